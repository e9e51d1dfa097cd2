// SPDX-License-Identifier: MIT OR Apache-2.0
//! Protocol between `rmpi-queues` and the front of a job over several hosts.
//!
//! The front listens on an abstract stream socket ([`address`]) for processes of its own user and of root. A client
//! first receives [`QueryReply::Job`] and one [`QueryReply::Node`] per node. Then it sends a byte ([`QUERY`]) and
//! receives frames until [`QueryReply::End`]; after that it may send the next [`QUERY`]. A frame:
//!
//! | offset | bytes | field  | |
//! |-------:|------:|--------|----------------------------------------------------------------------|
//! |      0 |     4 | length | bytes after this field, little endian, at most `LONGEST_FRAME_BYTES` |
//! |      4 |     1 | kind   | 1 to 6 |
//! |      5 |     – | body   | numbers little endian; data and text to the end of the frame |

/// Name of the socket of the front with this pid.
#[must_use]
pub fn address(front: u32) -> String {
    format!("rmpi-front-{front}")
}

/// Request to read the state of all ranks now.
pub const QUERY: u8 = 1;

/// Maximum size of a host's report about its ranks ([`QueryReply::Seen`]), in bytes.
pub const MOST_SEEN_BYTES: usize = 16 << 20;

/// Maximum size of a frame, in bytes. It has room for a report of [`MOST_SEEN_BYTES`] and for the list of ranks that
/// have ended.
const LONGEST_FRAME_BYTES: usize = 2 * MOST_SEEN_BYTES;

/// Message from the front.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum QueryReply {
    /// The job's key. This is the first message on a connection.
    Job(u64),
    /// A node of the job. This message precedes all other messages about the node.
    Node {
        /// Number of the node.
        node: u32,
        /// The name of its host.
        host: String,
        /// The ranks that were started on this host.
        ranks: Vec<u32>,
    },
    /// Output of the `rmpi-queues` process that ran on a node's host.
    Seen {
        /// The node.
        node: u32,
        /// Ranks of the node that have ended.
        ended: Vec<u32>,
        /// The output.
        bytes: Vec<u8>,
    },
    /// The ranks of a node could not be read.
    Unseen {
        /// The node.
        node: u32,
        /// The reason, as text.
        why: String,
    },
    /// All ranks of a node have ended.
    Ended(u32),
    /// End of the reply to one [`QUERY`]: every node was reported.
    End,
}

/// The bytes do not follow this protocol: the other side is of another build.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the launcher's answer makes no sense: installations are mixed")]
pub struct InvalidQueryReply;

impl QueryReply {
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

    /// Length of the frame that starts with these four bytes.
    ///
    /// # Errors
    /// When no frame has this length.
    pub fn length(head: [u8; 4]) -> Result<usize, InvalidQueryReply> {
        let length = u32::from_le_bytes(head) as usize;
        let is_possible = (1..=LONGEST_FRAME_BYTES).contains(&length);
        is_possible.then_some(length).ok_or(InvalidQueryReply)
    }

    /// Decodes a frame without its length field.
    ///
    /// # Errors
    /// When it is invalid.
    pub fn decode(frame: &[u8]) -> Result<Self, InvalidQueryReply> {
        let (kind, mut body) = frame.split_first().ok_or(InvalidQueryReply)?;
        let body = &mut body;
        let reply = match kind {
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
            _ => return Err(InvalidQueryReply),
        };
        body.is_empty().then_some(reply).ok_or(InvalidQueryReply)
    }
}

/// Appends the number of items and then the items.
fn put_numbers(numbers: &[u32], out: &mut Vec<u8>) {
    let count = u32::try_from(numbers.len()).unwrap_or(u32::MAX);
    out.extend(count.to_le_bytes());
    out.extend(numbers.iter().flat_map(|number| number.to_le_bytes()));
}

fn chunk<const N: usize>(body: &mut &[u8]) -> Result<[u8; N], InvalidQueryReply> {
    let (chunk, rest) = body.split_first_chunk().ok_or(InvalidQueryReply)?;
    *body = rest;
    Ok(*chunk)
}

fn number(body: &mut &[u8]) -> Result<u32, InvalidQueryReply> {
    chunk(body).map(u32::from_le_bytes)
}

fn numbers(body: &mut &[u8]) -> Result<Vec<u32>, InvalidQueryReply> {
    let count = number(body)? as usize;
    let bytes = count.checked_mul(4).ok_or(InvalidQueryReply)?;
    let (all, rest) = body.split_at_checked(bytes).ok_or(InvalidQueryReply)?;
    *body = rest;
    let (chunks, _) = all.as_chunks();
    Ok(chunks
        .iter()
        .map(|chunk| u32::from_le_bytes(*chunk))
        .collect())
}

fn text(body: &mut &[u8]) -> Result<String, InvalidQueryReply> {
    let bytes = std::mem::take(body).to_vec();
    String::from_utf8(bytes).map_err(|_| InvalidQueryReply)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn query_replies_round_trip() {
        let all = [
            QueryReply::Job(u64::MAX),
            QueryReply::Node {
                node: 1,
                host: "ä".into(),
                ranks: vec![3, 4],
            },
            QueryReply::Seen {
                node: 2,
                ended: vec![7],
                bytes: vec![0, 255],
            },
            QueryReply::Unseen {
                node: 3,
                why: "w".into(),
            },
            QueryReply::Ended(4),
            QueryReply::End,
        ];
        let mut bytes = Vec::new();
        all.iter().for_each(|reply| reply.put(&mut bytes));
        let mut rest = &bytes[..];
        for reply in all {
            let (head, after) = rest.split_first_chunk().unwrap();
            let (frame, after) = after.split_at(QueryReply::length(*head).unwrap());
            assert_eq!(QueryReply::decode(frame), Ok(reply));
            rest = after;
        }
        assert!(rest.is_empty());
    }

    #[test]
    fn a_frame_of_zero_or_excessive_length_is_invalid() {
        assert_eq!(QueryReply::length([0; 4]), Err(InvalidQueryReply));
        assert_eq!(QueryReply::length([255; 4]), Err(InvalidQueryReply));
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..64)) {
            let _ = QueryReply::decode(&bytes);
        }
    }
}
