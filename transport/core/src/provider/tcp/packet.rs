// SPDX-License-Identifier: MIT OR Apache-2.0
//! The packet format. Numbers are little endian. Every packet begins with
//!
//! | offset | bytes | field    | |
//! |-------:|------:|----------|-----|
//! |      0 |     4 | bytes    | that follow these 16 |
//! |      4 |     1 | kind     | [`TcpPacketKind`] |
//! |      5 |     1 | flags    | 1, in ACK only: what has arrived is to be acknowledged now; 2: the sender has to wait for its core |
//! |      6 |     2 | returned | see [`Ack`] |
//! |      8 |     4 | next     | see [`Ack`] |
//! |     12 |     4 | number   | of the packet; 0 in ACK, which has no number |
//!
//! and goes on with
//!
//! | kind        |     bytes | |
//! |-------------|----------:|-----|
//! | FRAME       | 12 + body | kind (1), 0 (1), flags (2) and word (8) of its [`Head`]; the body |
//! | READ        |        44 | id (4), offset (8), bytes (8), key (24) |
//! | WRITE       | 64 + data | id (4), [`LAST`] and [`HAS_IMMEDIATE`] (4), immediate (4), 0 (4), offset (8) and bytes (8) of the whole write, offset of these data in the write (8), key (24); the data |
//! | ATOMIC      |        56 | id (4), 0 adds, 1 compares and swaps (4), two operands (8 each), offset (8), key (24) |
//! | DATA        | 16 + data | id of a read (4), 0 (4), offset of these data in the read (8); the data |
//! | ANSWER      |        16 | id (4), 0 done or 1 bad key (4), the word that was there before an atomic operation (8) |
//! | ACK         |         0 | |
//! | ANNOUNCE    | 36 + body | key (24) of the announced data; the rest as in FRAME. All of the data follow as UNSOLICITED |
//! | UNSOLICITED | 24 + data | key (24) of an ANNOUNCE; the data, none if the key was withdrawn |
//! | DECLINED    |         0 | the sender has dropped unsolicited data |
//! | FRAMES      |      list | several frames (`frame_list.rs`) |
//!
//! READ, WRITE and ATOMIC carry ids chosen by their sender; DATA and ANSWER repeat them. A read ends with the DATA that
//! completes it, or with an ANSWER if the key is bad or the length is 0. A write ends with the ANSWER to its last
//! piece, an atomic operation with its ANSWER.
//!
//! Other packets may come between an ANNOUNCE and its UNSOLICITED. A read of all that the key names sends no READ if
//! the announced data have arrived, or are in flight.

use session::Ack;

use super::proof::{u16_at, u32_at, u64_at};
use crate::provider::frame_list::{self, MOST_LIST_BYTES};
use crate::{Atomic, Head, RemoteKey, WorkOutcome};

pub(super) const HEADER_BYTES: usize = 16;
const REQUESTS_ACK: u8 = 1;
const LACKS_CORE: u8 = 2;
pub(super) const FRAME_BYTES: usize = 12;
/// Bytes of the largest frame, without the header.
pub(super) const MOST_FRAME_BYTES: usize = FRAME_BYTES + ring::layout::POOL_BUFFER_BYTES;
pub(super) const READ_BYTES: usize = 44;
pub(super) const WRITE_BYTES: usize = 64;
pub(super) const ATOMIC_BYTES: usize = 56;
pub(super) const DATA_BYTES: usize = 16;
pub(super) const ANSWER_BYTES: usize = 16;
pub(super) const KEY_BYTES: usize = 24;
/// Bytes of an ANNOUNCE before the body of its frame.
pub(super) const ANNOUNCE_BYTES: usize = KEY_BYTES + FRAME_BYTES;
/// Maximum number of bytes of data in one packet.
pub(super) const PIECE_BYTES: usize = 512 << 10;
/// Maximum number of bytes of unsolicited data. Larger data take so long to transfer that a request for them adds
/// little time.
pub(super) const MOST_UNSOLICITED_BYTES: usize = 256 << 10;

/// The kind of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TcpPacketKind {
    Frame = 0x31,
    Read = 0x32,
    Write = 0x33,
    Atomic = 0x34,
    Data = 0x35,
    Answer = 0x36,
    Ack = 0x37,
    Announce = 0x38,
    Unsolicited = 0x39,
    Declined = 0x3a,
    Frames = 0x3b,
}

impl TcpPacketKind {
    fn of(number: u8) -> Option<Self> {
        let all = [
            Self::Frame,
            Self::Read,
            Self::Write,
            Self::Atomic,
            Self::Data,
            Self::Answer,
            Self::Ack,
            Self::Announce,
            Self::Unsolicited,
            Self::Declined,
            Self::Frames,
        ];
        all.into_iter().find(|kind| *kind as u8 == number)
    }

    /// Number of bytes after the header that are parsed, and the maximum number of bytes that may follow them.
    fn fixed(self) -> (usize, usize) {
        match self {
            Self::Frame => (FRAME_BYTES, ring::layout::POOL_BUFFER_BYTES),
            Self::Read => (READ_BYTES, 0),
            Self::Write => (WRITE_BYTES, PIECE_BYTES),
            Self::Atomic => (ATOMIC_BYTES, 0),
            Self::Data => (DATA_BYTES, PIECE_BYTES),
            Self::Answer => (ANSWER_BYTES, 0),
            Self::Ack | Self::Declined => (0, 0),
            Self::Announce => (ANNOUNCE_BYTES, ring::layout::POOL_BUFFER_BYTES),
            Self::Unsolicited => (KEY_BYTES, MOST_UNSOLICITED_BYTES),
            Self::Frames => (0, MOST_LIST_BYTES),
        }
    }
}

/// The header of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TcpPacketHeader {
    pub(super) bytes: usize,
    pub(super) kind: TcpPacketKind,
    pub(super) requests_ack: bool,
    pub(super) lacks_core: bool,
    pub(super) ack: Ack,
    pub(super) number: u32,
}

impl TcpPacketHeader {
    /// Parses a header; `None`: it is malformed.
    pub(super) fn of(bytes: &[u8; HEADER_BYTES]) -> Option<Self> {
        let kind = TcpPacketKind::of(bytes[4])?;
        let length = usize::try_from(u32_at(bytes, 0)).ok()?;
        let (least, data) = kind.fixed();
        let requests_ack = bytes[5] & REQUESTS_ACK != 0;
        let is_good = (least..=least + data).contains(&length)
            && bytes[5] & !(REQUESTS_ACK | LACKS_CORE) == 0
            && (!requests_ack || kind == TcpPacketKind::Ack);
        is_good.then(|| Self {
            bytes: length,
            kind,
            requests_ack,
            lacks_core: bytes[5] & LACKS_CORE != 0,
            ack: Ack {
                next: u32_at(bytes, 8),
                beyond: 0,
                returned: u16_at(bytes, 6),
            },
            number: u32_at(bytes, 12),
        })
    }

    pub(super) fn write_to(self, bytes: &mut [u8]) {
        let length = u32::try_from(self.bytes).unwrap_or(u32::MAX);
        bytes[..4].copy_from_slice(&length.to_le_bytes());
        bytes[4] = self.kind as u8;
        let requests_ack = if self.requests_ack { REQUESTS_ACK } else { 0 };
        bytes[5] = requests_ack | if self.lacks_core { LACKS_CORE } else { 0 };
        bytes[6..8].copy_from_slice(&self.ack.returned.to_le_bytes());
        bytes[8..12].copy_from_slice(&self.ack.next.to_le_bytes());
        bytes[12..16].copy_from_slice(&self.number.to_le_bytes());
    }

    /// Bytes after the header that must have arrived before the packet is parsed: all except data that go to memory.
    pub(super) fn wanted(&self) -> usize {
        match self.kind {
            TcpPacketKind::Write => WRITE_BYTES,
            TcpPacketKind::Data => DATA_BYTES,
            TcpPacketKind::Unsolicited => KEY_BYTES,
            _ => self.bytes,
        }
    }
}

/// Builds the payload of a packet. Room for the header is in front.
pub(super) struct TcpPacketBuilder<'a>(&'a mut Vec<u8>);

impl<'a> TcpPacketBuilder<'a> {
    pub(super) fn new(bytes: &'a mut Vec<u8>) -> Self {
        bytes.clear();
        bytes.extend_from_slice(&[0; HEADER_BYTES]);
        Self(bytes)
    }

    fn u32(&mut self, value: u32) -> &mut Self {
        self.0.extend_from_slice(&value.to_le_bytes());
        self
    }

    fn u64(&mut self, value: u64) -> &mut Self {
        self.0.extend_from_slice(&value.to_le_bytes());
        self
    }

    fn key(&mut self, key: RemoteKey) {
        for word in key.to_words() {
            self.u64(word);
        }
    }

    pub(super) fn frame(&mut self, head: Head, body: &[u8]) {
        self.0.extend_from_slice(&[head.kind, 0]);
        self.0.extend_from_slice(&head.flags.to_le_bytes());
        self.u64(head.word);
        self.0.extend_from_slice(body);
    }

    pub(super) fn frame_of_list(&mut self, head: Head, body: &[u8]) {
        frame_list::append(self.0, head, body);
    }

    pub(super) fn announce(&mut self, data: RemoteKey, head: Head, body: &[u8]) {
        self.key(data);
        self.frame(head, body);
    }

    pub(super) fn unsolicited(&mut self, data: RemoteKey) {
        self.key(data);
    }

    pub(super) fn read(&mut self, read: &TcpReadRequest) {
        self.u32(read.id)
            .u64(read.offset)
            .u64(read.bytes)
            .key(read.key);
    }

    pub(super) fn write(&mut self, write: &TcpWriteRequest) {
        let last = if write.is_last { LAST } else { 0 };
        let has_immediate = if write.immediate.is_some() {
            HAS_IMMEDIATE
        } else {
            0
        };
        self.u32(write.id).u32(last | has_immediate);
        self.u32(write.immediate.unwrap_or(0)).u32(0);
        self.u64(write.offset).u64(write.bytes).u64(write.at);
        self.key(write.key);
    }

    pub(super) fn atomic(&mut self, change: &TcpAtomicRequest) {
        let (what, one, other) = match change.atomic {
            Atomic::FetchAdd { add } => (0, add, 0),
            Atomic::CompareSwap { compare, swap } => (1, compare, swap),
        };
        self.u32(change.id).u32(what).u64(one).u64(other);
        self.u64(change.offset).key(change.key);
    }

    pub(super) fn data(&mut self, id: u32, at: u64) {
        self.u32(id).u32(0).u64(at);
    }

    pub(super) fn answer(&mut self, answer: TcpWorkReply) {
        let bad = u32::from(answer.outcome != WorkOutcome::Done);
        self.u32(answer.id).u32(bad).u64(answer.old);
    }
}

/// The header of a packet without a number, as used on rails.
pub(super) fn bare_header(kind: TcpPacketKind, bytes: usize) -> TcpPacketHeader {
    TcpPacketHeader {
        bytes,
        kind,
        requests_ack: false,
        lacks_core: false,
        ack: Ack::default(),
        number: 0,
    }
}

/// Parses the head of a frame.
pub(super) fn head_of(bytes: &[u8]) -> Head {
    Head {
        kind: bytes[0],
        len: 0,
        flags: u16_at(bytes, 2),
        word: u64_at(bytes, 4),
    }
}

/// Requests data of the receiver's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TcpReadRequest {
    pub(super) id: u32,
    pub(super) offset: u64,
    pub(super) bytes: u64,
    pub(super) key: RemoteKey,
}

impl TcpReadRequest {
    pub(super) fn of(bytes: &[u8]) -> Self {
        Self {
            id: u32_at(bytes, 0),
            offset: u64_at(bytes, 4),
            bytes: u64_at(bytes, 12),
            key: key_at(bytes, 20),
        }
    }
}

/// A piece of a write to the receiver's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TcpWriteRequest {
    pub(super) id: u32,
    pub(super) is_last: bool,
    pub(super) immediate: Option<u32>,
    pub(super) offset: u64,
    pub(super) bytes: u64,
    pub(super) at: u64,
    pub(super) key: RemoteKey,
}

impl TcpWriteRequest {
    /// Parses the payload of a WRITE, without its data; `None`: it is malformed.
    pub(super) fn of(bytes: &[u8]) -> Option<Self> {
        let flags = u32_at(bytes, 4);
        (flags & !(LAST | HAS_IMMEDIATE) == 0).then(|| Self {
            id: u32_at(bytes, 0),
            is_last: flags & LAST != 0,
            immediate: (flags & HAS_IMMEDIATE != 0).then(|| u32_at(bytes, 8)),
            offset: u64_at(bytes, 16),
            bytes: u64_at(bytes, 24),
            at: u64_at(bytes, 32),
            key: key_at(bytes, 40),
        })
    }
}

/// Requests an atomic operation on a word of the receiver's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TcpAtomicRequest {
    pub(super) id: u32,
    pub(super) atomic: Atomic,
    pub(super) offset: u64,
    pub(super) key: RemoteKey,
}

impl TcpAtomicRequest {
    /// Parses the payload of an ATOMIC; `None`: it is malformed.
    pub(super) fn of(bytes: &[u8]) -> Option<Self> {
        let (one, other) = (u64_at(bytes, 8), u64_at(bytes, 16));
        let atomic = match u32_at(bytes, 4) {
            0 => Atomic::FetchAdd { add: one },
            1 => Atomic::CompareSwap {
                compare: one,
                swap: other,
            },
            _ => return None,
        };
        Some(Self {
            id: u32_at(bytes, 0),
            atomic,
            offset: u64_at(bytes, 24),
            key: key_at(bytes, 32),
        })
    }
}

/// The outcome of an operation that a peer requested.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TcpWorkReply {
    pub(super) id: u32,
    pub(super) outcome: WorkOutcome,
    pub(super) old: u64,
}

impl TcpWorkReply {
    /// Parses the payload of an ANSWER; `None`: it is malformed.
    pub(super) fn of(bytes: &[u8]) -> Option<Self> {
        let outcome = match u32_at(bytes, 4) {
            0 => WorkOutcome::Done,
            1 => WorkOutcome::BadKey,
            _ => return None,
        };
        Some(Self {
            id: u32_at(bytes, 0),
            outcome,
            old: u64_at(bytes, 8),
        })
    }
}

pub(super) fn key_at(bytes: &[u8], at: usize) -> RemoteKey {
    RemoteKey::from_words([0, 8, 16].map(|step| u64_at(bytes, at + step)))
}

/// Flag: the last piece of a write.
const LAST: u32 = 1;
/// Flag: the write has an immediate.
const HAS_IMMEDIATE: u32 = 2;

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: RemoteKey = RemoteKey {
        address: 0x1122_3344_5566_7788,
        bytes: 99,
        check: u64::MAX - 1,
    };

    fn made(make: impl FnOnce(&mut TcpPacketBuilder<'_>)) -> Vec<u8> {
        let mut bytes = vec![7];
        make(&mut TcpPacketBuilder::new(&mut bytes));
        bytes.split_off(HEADER_BYTES)
    }

    #[test]
    fn packets_are_read_as_they_were_written() {
        let read = TcpReadRequest {
            id: 5,
            offset: 6,
            bytes: 7,
            key: KEY,
        };
        let bytes = made(|maker| maker.read(&read));
        assert_eq!(
            (bytes.len(), TcpReadRequest::of(&bytes)),
            (READ_BYTES, read)
        );
        for (is_last, immediate) in [(true, None), (false, Some(9))] {
            let write = TcpWriteRequest {
                id: 1,
                is_last,
                immediate,
                offset: 2,
                bytes: 3,
                at: 4,
                key: KEY,
            };
            let bytes = made(|maker| maker.write(&write));
            assert_eq!(
                (bytes.len(), TcpWriteRequest::of(&bytes)),
                (WRITE_BYTES, Some(write))
            );
        }
    }

    #[test]
    fn other_packets_are_read_as_they_were_written() {
        for atomic in [
            Atomic::FetchAdd { add: 9 },
            Atomic::CompareSwap {
                compare: 1,
                swap: 2,
            },
        ] {
            let change = TcpAtomicRequest {
                id: 1,
                atomic,
                offset: 3,
                key: KEY,
            };
            let bytes = made(|maker| maker.atomic(&change));
            assert_eq!(
                (bytes.len(), TcpAtomicRequest::of(&bytes)),
                (ATOMIC_BYTES, Some(change))
            );
        }
        for outcome in [WorkOutcome::Done, WorkOutcome::BadKey] {
            let answer = TcpWorkReply {
                id: 1,
                outcome,
                old: 8,
            };
            let bytes = made(|maker| maker.answer(answer));
            assert_eq!(
                (bytes.len(), TcpWorkReply::of(&bytes)),
                (ANSWER_BYTES, Some(answer))
            );
        }
        let head = Head {
            kind: 9,
            len: 0,
            flags: 0xabcd,
            word: 77,
        };
        let bytes = made(|maker| maker.frame(head, b"body"));
        assert_eq!(
            (head_of(&bytes), &bytes[FRAME_BYTES..]),
            (head, &b"body"[..])
        );
    }

    #[test]
    fn headers_with_invalid_lengths_are_rejected() {
        let ack = Ack {
            next: 4,
            beyond: 0,
            returned: 5,
        };
        let header = |kind, bytes, requests_ack| {
            let header = TcpPacketHeader {
                bytes,
                kind,
                requests_ack,
                lacks_core: bytes % 2 == 0,
                ack,
                number: 6,
            };
            let mut place = [0; HEADER_BYTES];
            header.write_to(&mut place);
            (TcpPacketHeader::of(&place) == Some(header), place)
        };
        for (kind, bytes, good) in [
            (TcpPacketKind::Frame, 12, true),
            (TcpPacketKind::Frame, 11, false),
            (TcpPacketKind::Frame, 12 + 8192, true),
            (TcpPacketKind::Frame, 12 + 8193, false),
            (TcpPacketKind::Read, 43, false),
            (TcpPacketKind::Read, 45, false),
            (TcpPacketKind::Write, 64 + PIECE_BYTES, true),
            (TcpPacketKind::Write, 65 + PIECE_BYTES, false),
            (TcpPacketKind::Data, 15, false),
            (TcpPacketKind::Answer, 1 << 31, false),
            (TcpPacketKind::Ack, 0, true),
            (TcpPacketKind::Ack, 1, false),
            (TcpPacketKind::Announce, 36, true),
            (TcpPacketKind::Announce, 35, false),
            (TcpPacketKind::Announce, 36 + 8193, false),
            (TcpPacketKind::Unsolicited, 24, true),
            (TcpPacketKind::Unsolicited, 23, false),
            (
                TcpPacketKind::Unsolicited,
                25 + MOST_UNSOLICITED_BYTES,
                false,
            ),
            (TcpPacketKind::Declined, 0, true),
            (TcpPacketKind::Declined, 1, false),
            (TcpPacketKind::Frames, MOST_LIST_BYTES, true),
            (TcpPacketKind::Frames, MOST_LIST_BYTES + 1, false),
        ] {
            assert_eq!(header(kind, bytes, false).0, good, "{kind:?} {bytes}");
        }
        assert!(header(TcpPacketKind::Ack, 0, true).0 && !header(TcpPacketKind::Data, 16, true).0);
        let mut bad = header(TcpPacketKind::Ack, 0, false).1;
        bad[4] = 0x3c;
        assert_eq!(TcpPacketHeader::of(&bad), None);
    }
}
