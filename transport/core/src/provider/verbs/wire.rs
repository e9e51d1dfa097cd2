// SPDX-License-Identifier: MIT OR Apache-2.0
//! What two processes say to each other over a port, as bytes. Numbers are little endian.
//!
//! A *packet* is a frame or a part of one, in a peer's stream. It travels as a datagram or over a reliable queue pair:
//!
//! | offset | bytes | field  | |
//! |-------:|------:|--------|-|
//! |      0 |     1 | what   | [`PACKET`] |
//! |      1 |     1 | kind   | of the frame, the caller's |
//! |      2 |     2 | flags  | of the frame, the caller's |
//! |      4 |     4 | source | world rank of the sender |
//! |      8 |     4 | number | in the sender's stream to this peer |
//! |     12 |     4 | next   | number of the packet that the sender waits for |
//! |     16 |     8 | beyond | bit i: it has packet `next + 1 + i` |
//! |     24 |     8 | word   | of the frame, the caller's |
//! |     32 |     1 | parts  | 1 the frame begins here, 2 it ends here; 4 an acknowledgement is wanted at once |
//! |     33 |     1 | –      | zero |
//! |     34 |     2 | returned | see [`Ack`] |
//! |     36 |     4 | –      | zero |
//! |     40 |     – | body   | |
//!
//! A *note* is a datagram outside the stream: an acknowledgement alone, or what is said to make a queue pair.
//!
//! | offset | bytes | field   | |
//! |-------:|------:|---------|-|
//! |      0 |     1 | what    | see [`Say`] |
//! |      1 |     1 | yes     | what is asked or told with 1 |
//! |      2 |     2 | returned | as above |
//! |      4 |     4 | source  | world rank of the sender |
//! |      8 |     4 | attempt | number of the attempt |
//! |     12 |     4 | number  | of a queue pair |
//! |     16 |     4 | first   | packet number that it begins with |
//! |     20 |    12 | next, beyond | as above: what the sender has when it says this |
//!
//! A note [`MOVED`] has an address record (`address.rs`) from offset 8 on instead: where its sender is found from now on.
//!
//! All lengths are the network's; whatever does not parse is dropped and counted.

use session::Ack;

use super::address::Address;
use crate::Head;

/// Bytes in front of a packet's body.
pub(super) const HEADER_BYTES: usize = 40;
/// Bytes of a note.
pub(super) const NOTE_BYTES: usize = 32;

/// The frame begins with this packet.
pub(super) const BEGINS: u8 = 1;
/// The frame ends with this packet.
pub(super) const ENDS: u8 = 2;
/// Its sender wants to hear at once that it has arrived.
pub(super) const ASKS: u8 = 4;

/// A packet without its body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Packet {
    pub(super) source: u32,
    pub(super) number: u32,
    pub(super) ack: Ack,
    pub(super) parts: u8,
    pub(super) kind: u8,
    pub(super) flags: u16,
    pub(super) word: u64,
}

/// What a note says.
pub(super) type Say = session::Say<End>;

/// One end of a reliable queue pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct End {
    pub(super) number: u32,
    /// Number of the first packet that it will send; 24 bits.
    pub(super) first: u32,
}

/// What arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Message {
    Packet(Packet),
    Note { source: u32, ack: Ack, say: Say },
    Moved { source: u32, address: Address },
}

impl Packet {
    /// The frame's head, as its receiver sees it.
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

/// Puts another acknowledgement into a written packet, which is sent now.
#[inline(always)]
pub(super) fn write_ack(ack: Ack, to: &mut [u8; HEADER_BYTES]) {
    to[12..16].copy_from_slice(&ack.next.to_le_bytes());
    to[16..24].copy_from_slice(&ack.beyond.to_le_bytes());
    to[34..36].copy_from_slice(&ack.returned.to_le_bytes());
}

/// Asks for an acknowledgement in a written packet.
pub(super) fn ask(to: &mut [u8; HEADER_BYTES]) {
    to[32] |= ASKS;
}

/// A note from `source`, which has `ack` of the peer's stream.
pub(super) fn note(source: u32, ack: Ack, say: Say) -> [u8; NOTE_BYTES] {
    const NO_END: End = End {
        number: 0,
        first: 0,
    };
    let (what, yes, attempt, end) = match say {
        Say::Ack { asks } => (ACK, asks, 0, NO_END),
        Say::Connect {
            attempt,
            end,
            again,
        } => (CONNECT, again, attempt, end),
        Say::Accept { attempt, end } => (ACCEPT, false, attempt, end),
        Say::Ready { attempt } => (READY, false, attempt, NO_END),
        Say::Refuse { attempt } => (REFUSE, false, attempt, NO_END),
        Say::GiveUp { attempt, done } => (GIVE_UP, done, attempt, NO_END),
    };
    let mut bytes = [0; NOTE_BYTES];
    (bytes[0], bytes[1]) = (what, yes.into());
    bytes[2..4].copy_from_slice(&ack.returned.to_le_bytes());
    let words = [source, attempt, end.number, end.first, ack.next];
    for (place, word) in bytes[4..].chunks_exact_mut(4).zip(words) {
        place.copy_from_slice(&word.to_le_bytes());
    }
    bytes[24..].copy_from_slice(&ack.beyond.to_le_bytes());
    bytes
}

/// A note from `source`, whose address is another one now.
pub(super) fn moved(source: u32, address: Address) -> [u8; NOTE_BYTES] {
    let mut bytes = [0; NOTE_BYTES];
    bytes[0] = MOVED;
    bytes[4..8].copy_from_slice(&source.to_le_bytes());
    bytes[8..].copy_from_slice(&address.to_bytes());
    bytes
}

/// Reads what arrived; `None`: nobody of this version wrote it.
#[inline(always)]
pub(super) fn read(bytes: &[u8]) -> Option<Message> {
    let header = bytes.first_chunk::<HEADER_BYTES>();
    match header.and_then(packet) {
        Some(packet) => Some(Message::Packet(packet)),
        None => read_note(bytes),
    }
}

/// Reads the beginning of a packet; `None`: it is something else.
#[inline(always)]
pub(super) fn packet(header: &[u8; HEADER_BYTES]) -> Option<Packet> {
    (header[0] == PACKET).then(|| read_packet(header))
}

#[inline(always)]
fn read_packet(header: &[u8; HEADER_BYTES]) -> Packet {
    Packet {
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

fn read_note(bytes: &[u8]) -> Option<Message> {
    let bytes: &[u8; NOTE_BYTES] = bytes.try_into().ok()?;
    if bytes[0] == MOVED {
        let (source, address) = (word_at(bytes, 4), Address::from_bytes(&bytes[8..])?);
        return Some(Message::Moved { source, address });
    }
    let (yes, attempt) = (bytes[1] != 0, word_at(bytes, 8));
    let end = End {
        number: word_at(bytes, 12) & NUMBER_MASK,
        first: word_at(bytes, 16) & NUMBER_MASK,
    };
    let say = match bytes[0] {
        ACK => Say::Ack { asks: yes },
        CONNECT => Say::Connect {
            attempt,
            end,
            again: yes,
        },
        ACCEPT => Say::Accept { attempt, end },
        READY => Say::Ready { attempt },
        REFUSE => Say::Refuse { attempt },
        GIVE_UP => Say::GiveUp { attempt, done: yes },
        _ => return None,
    };
    let ack = Ack {
        next: word_at(bytes, 20),
        beyond: long_at(bytes, 24),
        returned: u16::from_le_bytes([bytes[2], bytes[3]]),
    };
    let source = word_at(bytes, 4);
    Some(Message::Note { source, ack, say })
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

/// Queue pairs and packets of the network have numbers of 24 bits.
pub(super) const NUMBER_MASK: u32 = 0xff_ffff;

const PACKET: u8 = 0x11;
const ACK: u8 = 0x12;
const CONNECT: u8 = 0x13;
const ACCEPT: u8 = 0x14;
const READY: u8 = 0x15;
const REFUSE: u8 = 0x16;
const GIVE_UP: u8 = 0x17;
const MOVED: u8 = 0x18;

#[cfg(test)]
mod tests {
    use super::*;

    const END: End = End {
        number: 0x12_3456,
        first: 0xab_cdef,
    };

    #[test]
    fn a_packet_is_read_as_it_was_written() {
        let packet = Packet {
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
        assert_eq!(read(&bytes), Some(Message::Packet(packet)));
        let ack = Ack {
            next: 1,
            beyond: 2,
            returned: 3,
        };
        write_ack(ack, &mut bytes);
        assert_eq!(
            read(&bytes),
            Some(Message::Packet(Packet { ack, ..packet }))
        );
        ask(&mut bytes);
        let parts = BEGINS | ENDS | ASKS;
        let asking = Packet {
            ack,
            parts,
            ..packet
        };
        assert_eq!(read(&bytes), Some(Message::Packet(asking)));
        assert_eq!(read(&bytes[1..]), None);
    }

    #[test]
    fn every_note_is_read_as_it_was_written() {
        let ack = Ack {
            next: 5,
            beyond: u64::MAX - 3,
            returned: 7,
        };
        let attempt = 77;
        for say in [
            Say::Ack { asks: true },
            Say::Ack { asks: false },
            Say::Connect {
                attempt,
                end: END,
                again: true,
            },
            Say::Accept { attempt, end: END },
            Say::Ready { attempt },
            Say::Refuse { attempt },
            Say::GiveUp {
                attempt,
                done: false,
            },
            Say::GiveUp {
                attempt,
                done: true,
            },
        ] {
            let bytes = note(3, ack, say);
            let source = 3;
            assert_eq!(read(&bytes), Some(Message::Note { source, ack, say }));
            assert_eq!(read(&bytes[..31]), None, "a note has one length");
        }
    }

    #[test]
    fn a_new_address_is_read_as_it_was_written() {
        let address = Address {
            link: super::super::address::Link::Ethernet,
            lid: 0,
            number: 17,
            packet_bytes: 1024,
            gid: [9; 16],
        };
        let mut bytes = moved(5, address);
        let source = 5;
        assert_eq!(read(&bytes), Some(Message::Moved { source, address }));
        bytes[8] = 0;
        assert_eq!(read(&bytes), None, "no address record");
    }

    #[test]
    fn anything_else_is_refused() {
        for what in (0..=255).filter(|what| !(PACKET..=MOVED).contains(what)) {
            let mut bytes = [0; NOTE_BYTES];
            bytes[0] = what;
            assert_eq!(read(&bytes), None);
        }
        assert_eq!(read(&[]), None);
    }
}
