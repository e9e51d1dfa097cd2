// SPDX-License-Identifier: MIT OR Apache-2.0
//! Writes and parses the wire format between two processes over a port. Integers are little-endian.
//!
//! A *packet* is a frame or a part of one, in a peer's stream. It travels as a datagram or over a reliable queue pair:
//!
//! | offset | bytes | field    | |
//! |-------:|------:|----------|--------------------------------------------------------------------------------------|
//! |      0 |     1 | what     | [`PACKET`] |
//! |      1 |     1 | kind     | of the frame, the caller's |
//! |      2 |     2 | flags    | of the frame, the caller's |
//! |      4 |     4 | source   | number by which the receiver identifies the sender: its rank within a job |
//! |      8 |     4 | number   | in the sender's stream to this peer |
//! |     12 |     4 | next     | number of the next packet that the sender expects |
//! |     16 |     8 | beyond   | bit i: the sender has received packet `next + 1 + i` |
//! |     24 |     8 | word     | of the frame, the caller's |
//! |     32 |     1 | parts    | 1 the frame begins here, 2 it ends here; 4 an immediate acknowledgement is requested; 8 [`SEVERAL`] |
//! |     33 |     1 | –        | zero |
//! |     34 |     2 | returned | see [`Ack`] |
//! |     36 |     4 | –        | zero |
//! |     40 |     – | body     | |
//!
//! With 1, 2 and [`SEVERAL`] in `parts` the body is a list of short frames (`frame_list.rs`), and `kind`, `flags` and
//! `word` are zero.
//!
//! A *note* is a message outside the stream: an acknowledgement by itself, as a datagram or over a reliable queue pair,
//! or a message of the handshake that sets up a queue pair, as a datagram.
//!
//! | offset | bytes | field        | |
//! |-------:|------:|--------------|----------------------------------|
//! |      0 |     1 | what         | see [`LinkMessage`] |
//! |      1 |     1 | yes          | flag of the kind: 0 or 1 |
//! |      2 |     2 | returned     | as above |
//! |      4 |     4 | source       | as above |
//! |      8 |     4 | attempt      | number of the attempt |
//! |     12 |     4 | number       | queue pair number |
//! |     16 |     3 | first        | its first packet sequence number |
//! |     19 |     1 | size         | its MTU, in units of 64 bytes |
//! |     20 |    12 | next, beyond | as above, when the note is sent |
//!
//! A note that names a queue pair is padded with zeros: it is at least as long as the MTU of that queue pair, so it
//! arrives only if packets of the queue pair arrive (`path_mtu.rs`). An *echo* ([`ECHO`]) has the first 12 bytes of a
//! note and then zeros. There are two kinds: a request, and the reply to it, which the receiver of the request sends.
//!
//! From offset 8 on, a note [`MOVED`] has the new address of its sender instead (`address.rs`).
//!
//! The length of a message is the one that the device reports. A message that does not parse is dropped and counted.

use session::Ack;

use super::address::{PortAddress, mtu_of_units, mtu_units};
use super::path_mtu::MORE_BYTES;
use crate::Head;

/// Length of a packet's header, in bytes.
pub(super) const HEADER_BYTES: usize = 40;
/// Length of a note without padding, in bytes.
pub(super) const NOTE_BYTES: usize = 32;

/// The frame begins with this packet.
pub(super) const BEGINS: u8 = 1;
/// The frame ends with this packet.
pub(super) const ENDS: u8 = 2;
/// The sender requests an immediate acknowledgement.
pub(super) const ACK_REQUEST: u8 = 4;
/// The packet contains several whole frames.
pub(super) const SEVERAL: u8 = 8;

/// The header of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct StreamPacket {
    pub(super) source: u32,
    pub(super) number: u32,
    pub(super) ack: Ack,
    pub(super) parts: u8,
    pub(super) kind: u8,
    pub(super) flags: u16,
    pub(super) word: u64,
}

/// The content of a note.
pub(super) type LinkMessage = session::LinkMessage<PairEnd>;

/// One end of a reliable queue pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PairEnd {
    pub(super) number: u32,
    /// Packet sequence number of the first packet that this end sends; 24 bits.
    pub(super) first: u32,
    /// MTU of the queue pair in bytes, from 256 to 4096: a power of two, or between user-space ports a multiple of 64.
    pub(super) packet_bytes: u32,
}

/// A parsed packet or note.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WireMessage {
    Packet(StreamPacket),
    Note {
        source: u32,
        ack: Ack,
        message: LinkMessage,
    },
    /// An echo: a request (`is_request`), or the reply to it.
    Echo {
        source: u32,
        attempt: u32,
        is_request: bool,
    },
    Moved {
        source: u32,
        address: PortAddress,
    },
}

impl StreamPacket {
    /// The head of the frame, for its receiver.
    pub(super) fn head(&self) -> Head {
        Head {
            kind: self.kind,
            len: 0,
            flags: self.flags,
            word: self.word,
        }
    }

    #[inline(always)]
    pub(super) fn write(&self, to: &mut [u8; HEADER_BYTES]) {
        to[0] = PACKET;
        to[1] = self.kind;
        to[2..4].copy_from_slice(&self.flags.to_le_bytes());
        to[4..8].copy_from_slice(&self.source.to_le_bytes());
        to[8..12].copy_from_slice(&self.number.to_le_bytes());
        to[24..32].copy_from_slice(&self.word.to_le_bytes());
        to[32..40].copy_from_slice(&[self.parts, 0, 0, 0, 0, 0, 0, 0]);
        write_ack(self.ack, to);
    }
}

/// Replaces the acknowledgement in a packet that is about to be sent.
#[inline(always)]
pub(super) fn write_ack(ack: Ack, to: &mut [u8; HEADER_BYTES]) {
    to[12..16].copy_from_slice(&ack.next.to_le_bytes());
    to[16..24].copy_from_slice(&ack.beyond.to_le_bytes());
    to[34..36].copy_from_slice(&ack.returned.to_le_bytes());
}

/// Sets the request for an acknowledgement in a written packet.
pub(super) fn request_ack(to: &mut [u8; HEADER_BYTES]) {
    to[32] |= ACK_REQUEST;
}

/// A note from `source`, with `ack` for the peer's stream.
pub(super) fn note(source: u32, ack: Ack, message: LinkMessage) -> [u8; NOTE_BYTES] {
    const NO_END: PairEnd = PairEnd {
        number: 0,
        first: 0,
        packet_bytes: 0,
    };
    let (what, yes, attempt, end) = match message {
        LinkMessage::Ack { ack_request } => (ACK, ack_request, 0, NO_END),
        LinkMessage::Connect {
            attempt,
            end,
            again,
        } => (CONNECT, again, attempt, end),
        LinkMessage::Accept { attempt, end } => (ACCEPT, false, attempt, end),
        LinkMessage::Ready { attempt } => (READY, false, attempt, NO_END),
        LinkMessage::Refuse { attempt } => (REFUSE, false, attempt, NO_END),
        LinkMessage::Disconnect { attempt, done } => (GIVE_UP, done, attempt, NO_END),
    };
    let mut bytes = [0; NOTE_BYTES];
    (bytes[0], bytes[1]) = (what, yes.into());
    bytes[2..4].copy_from_slice(&ack.returned.to_le_bytes());
    let first = end.first & NUMBER_MASK | u32::from(mtu_units(end.packet_bytes)) << NUMBER_BITS;
    let words = [source, attempt, end.number, first, ack.next];
    for (place, word) in bytes[4..].chunks_exact_mut(4).zip(words) {
        place.copy_from_slice(&word.to_le_bytes());
    }
    bytes[24..].copy_from_slice(&ack.beyond.to_le_bytes());
    bytes
}

/// An echo from `source`: a request (`is_request`) or a reply.
pub(super) fn echo(source: u32, attempt: u32, is_request: bool) -> [u8; NOTE_BYTES] {
    let mut bytes = [0; NOTE_BYTES];
    (bytes[0], bytes[1]) = (ECHO, is_request.into());
    bytes[4..8].copy_from_slice(&source.to_le_bytes());
    bytes[8..12].copy_from_slice(&attempt.to_le_bytes());
    bytes
}

/// A note from `source` with its new address.
pub(super) fn moved(source: u32, address: PortAddress) -> [u8; NOTE_BYTES] {
    let mut bytes = [0; NOTE_BYTES];
    bytes[0] = MOVED;
    bytes[4..8].copy_from_slice(&source.to_le_bytes());
    bytes[8..].copy_from_slice(&address.to_bytes());
    bytes
}

/// Parses a received message. `bytes` is its beginning, or all of it if it is no longer than a header; `length` is that
/// of the whole message. `None`: the message is not of this version, or malformed.
#[inline(always)]
pub(super) fn read(bytes: &[u8], length: usize) -> Option<WireMessage> {
    let header = bytes.first_chunk::<HEADER_BYTES>();
    match header.and_then(packet) {
        Some(packet) => Some(WireMessage::Packet(packet)),
        None => read_note(bytes, length),
    }
}

/// Parses the header of a packet; `None`: the message is no packet.
#[inline(always)]
pub(super) fn packet(header: &[u8; HEADER_BYTES]) -> Option<StreamPacket> {
    (header[0] == PACKET).then(|| read_packet(header))
}

#[inline(always)]
fn read_packet(header: &[u8; HEADER_BYTES]) -> StreamPacket {
    StreamPacket {
        kind: header[1],
        flags: u16::from_le_bytes([header[2], header[3]]),
        source: word_at(header, 4),
        number: word_at(header, 8),
        ack: Ack {
            next: word_at(header, 12),
            beyond: long_at(header, 16),
            returned: u16::from_le_bytes([header[34], header[35]]),
        },
        word: long_at(header, 24),
        parts: header[32],
    }
}

fn read_note(bytes: &[u8], length: usize) -> Option<WireMessage> {
    let bytes: &[u8; NOTE_BYTES] = bytes.first_chunk()?;
    let (what, yes) = (bytes[0], bytes[1] != 0);
    let (source, attempt) = (word_at(bytes, 4), word_at(bytes, 8));
    if matches!(what, CONNECT | ACCEPT) {
        let end = read_end(bytes, length)?;
        let message = match what {
            CONNECT => LinkMessage::Connect {
                attempt,
                end,
                again: yes,
            },
            _ => LinkMessage::Accept { attempt, end },
        };
        let ack = read_ack(bytes);
        return Some(WireMessage::Note {
            source,
            ack,
            message,
        });
    }
    if length != NOTE_BYTES {
        return None;
    }
    let message = match bytes[0] {
        ACK => LinkMessage::Ack { ack_request: yes },
        READY => LinkMessage::Ready { attempt },
        REFUSE => LinkMessage::Refuse { attempt },
        GIVE_UP => LinkMessage::Disconnect { attempt, done: yes },
        ECHO => {
            return Some(WireMessage::Echo {
                source,
                attempt,
                is_request: yes,
            });
        }
        MOVED => {
            let address = PortAddress::from_bytes(&bytes[8..])?;
            return Some(WireMessage::Moved { source, address });
        }
        _ => return None,
    };
    let ack = read_ack(bytes);
    Some(WireMessage::Note {
        source,
        ack,
        message,
    })
}

/// The queue pair that a note names; `None`: the MTU is invalid, or the note is not padded to the MTU.
fn read_end(bytes: &[u8; NOTE_BYTES], length: usize) -> Option<PairEnd> {
    let first = word_at(bytes, 16);
    let packet_bytes = mtu_of_units(first >> NUMBER_BITS)?;
    let least = packet_bytes as usize;
    (least..=least + MORE_BYTES)
        .contains(&length)
        .then_some(PairEnd {
            number: word_at(bytes, 12) & NUMBER_MASK,
            first: first & NUMBER_MASK,
            packet_bytes,
        })
}

/// The acknowledgement in a note.
fn read_ack(bytes: &[u8; NOTE_BYTES]) -> Ack {
    Ack {
        next: word_at(bytes, 20),
        beyond: long_at(bytes, 24),
        returned: u16::from_le_bytes([bytes[2], bytes[3]]),
    }
}

#[inline(always)]
fn word_at(bytes: &[u8], at: usize) -> u32 {
    bytes[at..]
        .first_chunk()
        .map_or(0, |word| u32::from_le_bytes(*word))
}

#[inline(always)]
fn long_at(bytes: &[u8], at: usize) -> u64 {
    bytes[at..]
        .first_chunk()
        .map_or(0, |word| u64::from_le_bytes(*word))
}

/// Queue pair numbers and packet sequence numbers have 24 bits.
pub(super) const NUMBER_MASK: u32 = (1 << NUMBER_BITS) - 1;
const NUMBER_BITS: u32 = 24;

const PACKET: u8 = 0x11;
const ACK: u8 = 0x12;
const CONNECT: u8 = 0x13;
const ACCEPT: u8 = 0x14;
const READY: u8 = 0x15;
const REFUSE: u8 = 0x16;
const GIVE_UP: u8 = 0x17;
const MOVED: u8 = 0x18;
const ECHO: u8 = 0x19;

#[cfg(test)]
mod tests {
    use super::*;

    const END: PairEnd = PairEnd {
        number: 0x12_3456,
        first: 0xab_cdef,
        packet_bytes: 2048,
    };

    /// Parses a whole message.
    fn read(bytes: &[u8]) -> Option<WireMessage> {
        super::read(bytes, bytes.len())
    }

    #[test]
    fn a_packet_is_read_as_it_was_written() {
        let packet = StreamPacket {
            source: 7,
            number: u32::MAX,
            ack: Ack {
                next: 12,
                beyond: 0x8000_0000_0000_0001,
                returned: 0xfedc,
            },
            parts: BEGINS | ENDS,
            kind: 9,
            flags: 0xbeef,
            word: 0x0123_4567_89ab_cdef,
        };
        let mut bytes = [0xff; HEADER_BYTES];
        packet.write(&mut bytes);
        assert_eq!(read(&bytes), Some(WireMessage::Packet(packet)));
        let ack = Ack {
            next: 1,
            beyond: 2,
            returned: 3,
        };
        write_ack(ack, &mut bytes);
        assert_eq!(
            read(&bytes),
            Some(WireMessage::Packet(StreamPacket { ack, ..packet }))
        );
        request_ack(&mut bytes);
        let parts = BEGINS | ENDS | ACK_REQUEST;
        let with_request = StreamPacket {
            ack,
            parts,
            ..packet
        };
        assert_eq!(read(&bytes), Some(WireMessage::Packet(with_request)));
        assert_eq!(read(&bytes[1..]), None);
    }

    #[test]
    fn every_control_message_is_read_as_it_was_written() {
        let ack = Ack {
            next: 5,
            beyond: u64::MAX - 3,
            returned: 7,
        };
        let attempt = 77;
        for message in [
            LinkMessage::Ack { ack_request: true },
            LinkMessage::Ack { ack_request: false },
            LinkMessage::Connect {
                attempt,
                end: END,
                again: true,
            },
            LinkMessage::Accept { attempt, end: END },
            LinkMessage::Ready { attempt },
            LinkMessage::Refuse { attempt },
            LinkMessage::Disconnect {
                attempt,
                done: false,
            },
            LinkMessage::Disconnect {
                attempt,
                done: true,
            },
        ] {
            let mut bytes = note(3, ack, message).to_vec();
            if matches!(
                message,
                LinkMessage::Connect { .. } | LinkMessage::Accept { .. }
            ) {
                bytes.resize(2048, 0);
            }
            let source = 3;
            assert_eq!(
                read(&bytes),
                Some(WireMessage::Note {
                    source,
                    ack,
                    message
                })
            );
            bytes.truncate(31);
            assert_eq!(read(&bytes), None);
        }
    }

    #[test]
    fn control_messages_have_one_length_and_connects_that_of_their_mtu() {
        let ack = Ack::default();
        let short = note(3, ack, LinkMessage::Ready { attempt: 1 });
        assert!(super::read(&short, 32).is_some());
        assert_eq!(super::read(&short, 33), None);
        let message = LinkMessage::Accept {
            attempt: 1,
            end: END,
        };
        let long = note(3, ack, message);
        for (length, is_good) in [
            (32, false),
            (2047, false),
            (2048, true),
            (2060, true),
            (2061, false),
            (usize::MAX, false),
        ] {
            assert_eq!(super::read(&long, length).is_some(), is_good, "{length}");
        }
        // Versions without an MTU field had 0 in this byte.
        for units in (0..=3).chain(65..=255) {
            let mut bytes = long;
            bytes[19] = units;
            for length in [32, 256, 2048, 4096, 1 << 13, usize::MAX] {
                assert_eq!(super::read(&bytes, length), None, "{units}, {length}");
            }
        }
    }

    #[test]
    fn an_echo_is_read_as_it_was_written() {
        for is_request in [false, true] {
            let bytes = echo(5, 0xfedc_ba98, is_request);
            let (source, attempt) = (5, 0xfedc_ba98);
            let message = WireMessage::Echo {
                source,
                attempt,
                is_request,
            };
            assert_eq!(read(&bytes), Some(message));
            assert_eq!(super::read(&bytes, 64), None);
        }
    }

    #[test]
    fn a_new_address_is_read_as_it_was_written() {
        let address = PortAddress {
            link: super::super::address::LinkLayer::Ethernet,
            lid: 0,
            number: 17,
            packet_bytes: 1024,
            gid: [9; 16],
        };
        let mut bytes = moved(5, address);
        let source = 5;
        assert_eq!(read(&bytes), Some(WireMessage::Moved { source, address }));
        bytes[8] = 0;
        assert_eq!(read(&bytes), None, "no address record");
    }

    #[test]
    fn unknown_message_types_are_rejected() {
        for what in (0..=255).filter(|what| !(PACKET..=ECHO).contains(what)) {
            let mut bytes = [0; NOTE_BYTES];
            bytes[0] = what;
            assert_eq!(read(&bytes), None);
        }
        assert_eq!(read(&[]), None);
    }
}
