// SPDX-License-Identifier: MIT OR Apache-2.0
//! What `rmpi-queues` and the front of a job over several hosts say to each other.
//!
//! The front listens on an abstract stream socket ([`address`]) for processes of its own user and of root. Who connects is told
//! [`Shown::Job`] and the nodes, sends a byte ([`LOOK`]) and gets frames until [`Shown::End`]; it may ask again then. A frame:
//!
//! | offset | bytes | field  | |
//! |-------:|------:|--------|-|
//! |      0 |     4 | length | bytes after this field, little endian, at most `LONGEST_FRAME_BYTES` |
//! |      4 |     1 | kind   | 1 to 6 |
//! |      5 |     – | body   | numbers little endian; data and text to the end of the frame |

/// The name of the socket of the front that has this process.
#[must_use]
pub fn address(front: u32) -> String {
    format!("rmpi-front-{front}")
}

/// Look at all ranks now.
pub const LOOK: u8 = 1;

/// The most that a host may say of its ranks.
pub const MOST_SEEN_BYTES: usize = 16 << 20;

/// As many ranks as a host may have stand before that in a frame.
const LONGEST_FRAME_BYTES: usize = 2 * MOST_SEEN_BYTES;

/// What the front says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Shown {
    /// The job's key. The first that is said.
    Job(u64),
    /// A node of the job. Each is named before anything is said of it.
    Node {
        /// Its number.
        node: u32,
        /// The name of its host.
        host: String,
        /// The ranks that were started there.
        ranks: Vec<u32>,
    },
    /// What the `rmpi-queues` of that host has written.
    Seen {
        /// The node.
        node: u32,
        /// Its ranks that have ended.
        ended: Vec<u32>,
        /// What was written.
        bytes: Vec<u8>,
    },
    /// The ranks of a node could not be looked at.
    Unseen {
        /// The node.
        node: u32,
        /// Why.
        why: String,
    },
    /// All ranks of a node have ended.
    Ended(u32),
    /// Each node has had its word.
    End,
}

/// The other side speaks another language.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the launcher's answer makes no sense: installations are mixed")]
pub struct GarbledLook;

impl Shown {
    /// Appends the frame.
    pub fn put(&self, out: &mut Vec<u8>) {
        let start = out.len();
        out.extend([0; 4]);
        match self {
            Self::Job(key) => {
                out.push(1);
                out.extend(key.to_le_bytes());
            }
            Self::Node { node, host, ranks } => {
                out.push(2);
                out.extend(node.to_le_bytes());
                put_numbers(ranks, out);
                out.extend(host.as_bytes());
            }
            Self::Seen { node, ended, bytes } => {
                out.push(3);
                out.extend(node.to_le_bytes());
                put_numbers(ended, out);
                out.extend_from_slice(bytes);
            }
            Self::Unseen { node, why } => {
                out.push(4);
                out.extend(node.to_le_bytes());
                out.extend(why.as_bytes());
            }
            Self::Ended(node) => {
                out.push(5);
                out.extend(node.to_le_bytes());
            }
            Self::End => out.push(6),
        }
        let length = u32::try_from(out.len() - start - 4).unwrap_or(u32::MAX);
        if let Some(place) = out.get_mut(start..start + 4) {
            place.copy_from_slice(&length.to_le_bytes());
        }
    }

    /// Bytes of the frame that begins with these four.
    ///
    /// # Errors
    /// No frame is so long.
    pub fn length(head: [u8; 4]) -> Result<usize, GarbledLook> {
        let length = u32::from_le_bytes(head) as usize;
        let is_possible = (1..=LONGEST_FRAME_BYTES).contains(&length);
        is_possible.then_some(length).ok_or(GarbledLook)
    }

    /// Reads a frame without its length.
    ///
    /// # Errors
    /// It is none.
    pub fn decode(frame: &[u8]) -> Result<Self, GarbledLook> {
        let (kind, mut body) = frame.split_first().ok_or(GarbledLook)?;
        let body = &mut body;
        let shown = match kind {
            1 => Self::Job(u64::from_le_bytes(chunk(body)?)),
            2 => Self::Node {
                node: number(body)?,
                ranks: numbers(body)?,
                host: text(body)?,
            },
            3 => Self::Seen {
                node: number(body)?,
                ended: numbers(body)?,
                bytes: std::mem::take(body).to_vec(),
            },
            4 => Self::Unseen {
                node: number(body)?,
                why: text(body)?,
            },
            5 => Self::Ended(number(body)?),
            6 => Self::End,
            _ => return Err(GarbledLook),
        };
        body.is_empty().then_some(shown).ok_or(GarbledLook)
    }
}

/// How many, and each.
fn put_numbers(numbers: &[u32], out: &mut Vec<u8>) {
    let count = u32::try_from(numbers.len()).unwrap_or(u32::MAX);
    out.extend(count.to_le_bytes());
    out.extend(numbers.iter().flat_map(|number| number.to_le_bytes()));
}

fn chunk<const N: usize>(body: &mut &[u8]) -> Result<[u8; N], GarbledLook> {
    let (chunk, rest) = body.split_first_chunk().ok_or(GarbledLook)?;
    *body = rest;
    Ok(*chunk)
}

fn number(body: &mut &[u8]) -> Result<u32, GarbledLook> {
    chunk(body).map(u32::from_le_bytes)
}

fn numbers(body: &mut &[u8]) -> Result<Vec<u32>, GarbledLook> {
    let count = number(body)? as usize;
    let bytes = count.checked_mul(4).ok_or(GarbledLook)?;
    let (all, rest) = body.split_at_checked(bytes).ok_or(GarbledLook)?;
    *body = rest;
    let (chunks, _) = all.as_chunks();
    Ok(chunks
        .iter()
        .map(|chunk| u32::from_le_bytes(*chunk))
        .collect())
}

fn text(body: &mut &[u8]) -> Result<String, GarbledLook> {
    let bytes = std::mem::take(body).to_vec();
    String::from_utf8(bytes).map_err(|_| GarbledLook)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn what_is_said_is_read_again() {
        let all = [
            Shown::Job(u64::MAX),
            Shown::Node {
                node: 1,
                host: "ä".into(),
                ranks: vec![3, 4],
            },
            Shown::Seen {
                node: 2,
                ended: vec![7],
                bytes: vec![0, 255],
            },
            Shown::Unseen {
                node: 3,
                why: "w".into(),
            },
            Shown::Ended(4),
            Shown::End,
        ];
        let mut bytes = Vec::new();
        all.iter().for_each(|shown| shown.put(&mut bytes));
        let mut rest = &bytes[..];
        for shown in all {
            let (head, after) = rest.split_first_chunk().unwrap();
            let (frame, after) = after.split_at(Shown::length(*head).unwrap());
            assert_eq!(Shown::decode(frame), Ok(shown));
            rest = after;
        }
        assert!(rest.is_empty());
    }

    #[test]
    fn no_frame_is_empty_or_longer_than_what_is_told() {
        assert_eq!(Shown::length([0; 4]), Err(GarbledLook));
        assert_eq!(Shown::length([255; 4]), Err(GarbledLook));
    }

    proptest! {
        #[test]
        fn any_bytes_are_answered_without_a_panic(bytes in proptest::collection::vec(any::<u8>(), 0..64)) {
            let _ = Shown::decode(&bytes);
        }
    }
}
