// SPDX-License-Identifier: MIT OR Apache-2.0
//! Writes and parses the body of a packet that contains several short frames. Integers are little-endian. Each frame
//! begins at a multiple of eight bytes:
//!
//! | offset | bytes | field | |
//! |-------:|------:|-------|------------------------------------|
//! |      0 |     1 | kind  | of the frame, the caller's |
//! |      1 |     1 | –     | zero |
//! |      2 |     2 | flags | of the frame, the caller's |
//! |      4 |     4 | bytes | length of the body |
//! |      8 |     8 | word  | of the frame, the caller's |
//! |     16 |     – | body  | padded with zeros to a multiple of eight bytes |
//!
//! All input of the parser is untrusted.

use crate::Head;

/// Largest body of a frame in a list, in bytes. Longer frames have packets of their own: that saves a copy.
pub(super) const MOST_LISTED_BYTES: usize = 2 << 10;
/// Largest list, in bytes: as long as the largest frame.
pub(super) const MOST_LIST_BYTES: usize = ring::layout::POOL_BUFFER_BYTES;

/// A frame in a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ListedFrame<'a> {
    pub(super) head: Head,
    pub(super) body: &'a [u8],
}

/// Bytes that a frame occupies in a list.
#[inline(always)]
pub(super) const fn listed_bytes(body: usize) -> usize {
    FRAME_HEADER_BYTES + body.next_multiple_of(8)
}

/// Writes a frame at `to`, which has [`listed_bytes`].
#[inline(always)]
pub(super) fn write(to: &mut [u8], head: Head, body: &[u8]) {
    let Some((header, rest)) = to.split_first_chunk_mut::<FRAME_HEADER_BYTES>() else {
        return;
    };
    #[allow(clippy::cast_possible_truncation, reason = "some thousand")]
    let bytes = body.len() as u32;
    header[..2].copy_from_slice(&[head.kind, 0]);
    header[2..4].copy_from_slice(&head.flags.to_le_bytes());
    header[4..8].copy_from_slice(&bytes.to_le_bytes());
    header[8..].copy_from_slice(&head.word.to_le_bytes());
    if let (Some(place), Ok(word)) = (rest.first_chunk_mut::<8>(), <[u8; 8]>::try_from(body)) {
        // Most frames have eight bytes.
        *place = word;
        return;
    }
    let (place, padding) = rest.split_at_mut(body.len());
    place.copy_from_slice(body);
    padding.fill(0);
}

/// Appends a frame to a list.
pub(super) fn append(list: &mut Vec<u8>, head: Head, body: &[u8]) {
    let from = list.len();
    list.resize(from + listed_bytes(body.len()), 0);
    write(&mut list[from..], head, body);
}

/// Takes the first frame of a list. `None`: the list is empty, or malformed from here on.
#[inline(always)]
pub(super) fn take_first<'a>(list: &mut &'a [u8]) -> Option<ListedFrame<'a>> {
    let (header, rest) = list.split_first_chunk::<FRAME_HEADER_BYTES>()?;
    let bytes = u32::from_le_bytes(*header[4..].first_chunk()?);
    let bytes = usize::try_from(bytes).ok()?;
    if bytes > rest.len() || rest.len() < bytes.next_multiple_of(8) {
        return None;
    }
    let (body, rest) = (&rest[..bytes], &rest[bytes.next_multiple_of(8)..]);
    let (_, word) = header.split_last_chunk::<8>()?;
    *list = rest;
    Some(ListedFrame {
        head: Head {
            kind: header[0],
            len: 0,
            flags: u16::from_le_bytes([header[2], header[3]]),
            word: u64::from_le_bytes(*word),
        },
        body,
    })
}

const FRAME_HEADER_BYTES: usize = 16;

#[cfg(test)]
mod tests {
    use super::*;

    const MOST: usize = 2100;

    fn head(word: u64) -> Head {
        Head {
            kind: 7,
            len: 0,
            flags: 0xbeef,
            word,
        }
    }

    #[test]
    fn frames_of_every_length_are_read_as_they_were_written() {
        let body: Vec<u8> = (0..=255).cycle().take(MOST).collect();
        let mut list = Vec::new();
        for bytes in 0..=MOST {
            append(&mut list, head(bytes as u64), &body[..bytes]);
            assert_eq!(list.len() % 8, 0);
        }
        let mut list = &list[..];
        for bytes in 0..=MOST {
            let frame = take_first(&mut list).unwrap();
            assert_eq!(
                (frame.head, frame.body),
                (head(bytes as u64), &body[..bytes])
            );
        }
        assert_eq!((list.len(), take_first(&mut list)), (0, None));
    }

    #[test]
    fn malformed_lists_end_early() {
        let mut list = Vec::new();
        append(&mut list, head(1), &[3; 9]);
        for cut in 0..list.len() {
            assert_eq!(take_first(&mut &list[..cut]), None, "{cut} bytes of it");
        }
        for bytes in [17, 1 << 16, u32::MAX] {
            list[4..8].copy_from_slice(&bytes.to_le_bytes());
            assert_eq!(take_first(&mut &list[..]), None, "a body of {bytes} bytes");
        }
    }
}
