// SPDX-License-Identifier: MIT OR Apache-2.0
//! Transfers packets and link messages as frames in a byte stream, such as that of a socket. Sans-IO: a [`Writer`]
//! returns bytes to send, and a [`Reader`] takes received bytes in pieces of any length.
//!
//! Numbers are little endian:
//!
//! | offset | bytes | field    | |
//! |-------:|------:|----------|----------------------------------------------|
//! |      0 |     4 | bytes    | of the body |
//! |      4 |     1 | kind     | a packet, or the kind of link message |
//! |      5 |     1 | flag     | the flag of a link message, 0 or 1 |
//! |      6 |     2 | returned | see [`Ack`] |
//! |      8 |     4 | next     | see [`Ack`] |
//! |     12 |     4 | number   | of the packet; the attempt of a link message |
//! |     16 |     – | body     | of a packet; a link message has none |
//!
//! A stream loses nothing and preserves order until it breaks, so no packet is acknowledged out of order (`beyond`).
//! The ends of a stream are connected from the beginning, so an end needs no description.
//!
//! A reader does not trust its input. It has one buffer of a fixed size, and rejects lengths that do not fit. After an
//! invalid frame it finds no further frame, since it is unknown where that begins.

use session::{Ack, LinkMessage};

/// Length of the header in front of a body.
pub(crate) const HEADER_BYTES: usize = 16;

/// A received frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Frame<'a> {
    /// The acknowledgement of the frame's sender.
    pub(crate) ack: Ack,
    /// A packet or a link message.
    pub(crate) content: Content<'a>,
}

/// The content of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Content<'a> {
    /// A packet of the session.
    Packet {
        /// Sequence number of the packet.
        number: u32,
        /// The bytes of the packet.
        body: &'a [u8],
    },
    /// A link message.
    Link(LinkMessage<()>),
}

/// The stream carries bytes that are not a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Garbled;

/// Parses frames from the bytes of a stream.
#[derive(Debug)]
pub(crate) struct Reader {
    /// The received bytes that were not consumed are those from `from` to `to`.
    buffer: Box<[u8]>,
    from: usize,
    to: usize,
    most_body_bytes: usize,
    is_garbled: bool,
}

impl Reader {
    /// A reader for frames whose bodies have at most this number of bytes. It uses about twice as much memory.
    #[must_use]
    pub(crate) fn new(most_body_bytes: usize) -> Self {
        let buffer = vec![0; 2 * (HEADER_BYTES + most_body_bytes)];
        Self {
            buffer: buffer.into(),
            from: 0,
            to: 0,
            most_body_bytes,
            is_garbled: false,
        }
    }

    /// The buffer for further received bytes. After the caller has written bytes to it, it calls
    /// [`filled`](Self::filled). The buffer has room if [`next`](Self::next) has just returned `None`.
    pub(crate) fn place(&mut self) -> &mut [u8] {
        let lacks = self.buffer.len() - self.from < HEADER_BYTES + self.most_body_bytes;
        if self.from == self.to || lacks {
            self.buffer.copy_within(self.from..self.to, 0);
            (self.from, self.to) = (0, self.to - self.from);
        }
        &mut self.buffer[self.to..]
    }

    /// Records that bytes were written to [`place`](Self::place).
    ///
    /// # Panics
    /// If `bytes` exceeds the length of that buffer.
    pub(crate) fn filled(&mut self, bytes: usize) {
        let to = self.to + bytes;
        assert!(to <= self.buffer.len(), "{bytes} bytes were not written");
        self.to = to;
    }

    /// Whether the beginning of a frame was received, but not the whole frame.
    #[must_use]
    pub(crate) fn is_torn(&self) -> bool {
        self.from != self.to
    }

    /// The next frame; `None`: it is not received completely.
    ///
    /// # Errors
    /// The stream carries bytes that are not a frame: it is unusable.
    #[allow(
        clippy::should_implement_trait,
        reason = "a frame borrows from the reader"
    )]
    pub(crate) fn next(&mut self) -> Result<Option<Frame<'_>>, Garbled> {
        if self.is_garbled {
            return Err(Garbled);
        }
        let waiting = &self.buffer[self.from..self.to];
        let Some(header) = waiting.first_chunk::<HEADER_BYTES>() else {
            return Ok(None);
        };
        let header = Header::read(header).filter(|header| header.is_good(self.most_body_bytes));
        let Some(header) = header else {
            self.is_garbled = true;
            return Err(Garbled);
        };
        let end = HEADER_BYTES + header.bytes;
        if waiting.len() < end {
            return Ok(None);
        }
        self.from += end;
        let body = &self.buffer[self.from - header.bytes..self.from];
        Ok(Some(header.frame(body)))
    }
}

/// The header in front of a body.
#[derive(Clone, Copy, Debug)]
struct Header {
    bytes: usize,
    ack: Ack,
    number: u32,
    /// The link message; `None`: the frame is a packet.
    message: Option<LinkMessage<()>>,
}

impl Header {
    /// Parses a header; `None`: it is invalid.
    fn read(bytes: &[u8; HEADER_BYTES]) -> Option<Self> {
        let [a, b, c, d, kind, flag, returned @ ..] = *bytes;
        let [e, f, next @ ..] = returned;
        let [n0, n1, n2, n3, m0, m1, m2, m3] = next;
        let number = u32::from_le_bytes([m0, m1, m2, m3]);
        let message = match (kind, flag) {
            (PACKET, 0) => None,
            (_, 0 | 1) => Some(message_of(kind, flag == 1, number)?),
            _ => return None,
        };
        Some(Self {
            bytes: usize::try_from(u32::from_le_bytes([a, b, c, d])).ok()?,
            ack: Ack {
                next: u32::from_le_bytes([n0, n1, n2, n3]),
                beyond: 0,
                returned: u16::from_le_bytes([e, f]),
            },
            number,
            message,
        })
    }

    /// Whether the length in the header is valid.
    fn is_good(&self, most_body_bytes: usize) -> bool {
        match self.message {
            None => self.bytes <= most_body_bytes,
            Some(_) => self.bytes == 0,
        }
    }

    fn frame(self, body: &[u8]) -> Frame<'_> {
        let number = self.number;
        let packet = Content::Packet { number, body };
        Frame {
            ack: self.ack,
            content: self.message.map_or(packet, Content::Link),
        }
    }
}

/// Buffers frames until the stream accepts them.
#[derive(Debug, Default)]
pub(crate) struct Writer {
    /// The frames. The bytes that the stream has not accepted yet begin at `from`.
    bytes: Vec<u8>,
    from: usize,
}

impl Writer {
    /// An empty buffer.
    #[must_use]
    pub(crate) fn new() -> Self {
        Self::default()
    }

    /// Whether another frame may be written. This limits the memory for a stream that accepts nothing.
    #[must_use]
    pub(crate) fn has_room(&self) -> bool {
        self.bytes.len() - self.from < MOST_WAITING_BYTES
    }

    /// Writes a packet.
    ///
    /// # Panics
    /// If the body is longer than 4 GiB.
    pub(crate) fn packet(&mut self, ack: Ack, number: u32, body: &[u8]) {
        let bytes = u32::try_from(body.len()).expect("a body that fits into a window");
        self.header(bytes, (PACKET, false), ack, number);
        self.bytes.extend_from_slice(body);
    }

    /// Writes a link message.
    pub(crate) fn link_message(&mut self, ack: Ack, message: LinkMessage<()>) {
        let (kind, flag, attempt) = parts_of(message);
        self.header(0, (kind, flag), ack, attempt);
    }

    fn header(&mut self, bytes: u32, (kind, flag): (u8, bool), ack: Ack, number: u32) {
        self.bytes.extend_from_slice(&bytes.to_le_bytes());
        self.bytes.extend_from_slice(&[kind, flag.into()]);
        self.bytes.extend_from_slice(&ack.returned.to_le_bytes());
        self.bytes.extend_from_slice(&ack.next.to_le_bytes());
        self.bytes.extend_from_slice(&number.to_le_bytes());
    }

    /// The bytes that the stream has not accepted yet.
    #[must_use]
    pub(crate) fn waiting(&self) -> &[u8] {
        &self.bytes[self.from..]
    }

    /// Records that the stream has accepted this number of bytes.
    ///
    /// # Panics
    /// If `bytes` exceeds the number of [waiting](Self::waiting) bytes.
    pub(crate) fn taken(&mut self, bytes: usize) {
        let from = self.from + bytes;
        assert!(from <= self.bytes.len(), "{bytes} bytes did not wait");
        self.from = from;
        if from == self.bytes.len() {
            self.bytes.clear();
            self.from = 0;
        } else if from >= MOST_WAITING_BYTES {
            self.bytes.drain(..from);
            self.from = 0;
        }
    }
}

/// The link message of this kind; `None`: the kind is not defined.
fn message_of(kind: u8, flag: bool, attempt: u32) -> Option<LinkMessage<()>> {
    let message = match (kind, flag) {
        (ACK, ack_request) => LinkMessage::Ack { ack_request },
        (CONNECT, again) => LinkMessage::Connect {
            attempt,
            end: (),
            again,
        },
        (ACCEPT, false) => LinkMessage::Accept { attempt, end: () },
        (READY, false) => LinkMessage::Ready { attempt },
        (REFUSE, false) => LinkMessage::Refuse { attempt },
        (GIVE_UP, done) => LinkMessage::Disconnect { attempt, done },
        _ => return None,
    };
    Some(message)
}

/// The kind of a link message, its flag, and its attempt.
fn parts_of(message: LinkMessage<()>) -> (u8, bool, u32) {
    match message {
        LinkMessage::Ack { ack_request } => (ACK, ack_request, 0),
        LinkMessage::Connect { attempt, again, .. } => (CONNECT, again, attempt),
        LinkMessage::Accept { attempt, .. } => (ACCEPT, false, attempt),
        LinkMessage::Ready { attempt } => (READY, false, attempt),
        LinkMessage::Refuse { attempt } => (REFUSE, false, attempt),
        LinkMessage::Disconnect { attempt, done } => (GIVE_UP, done, attempt),
    }
}

/// Limit of buffered bytes; the last frame may exceed it.
const MOST_WAITING_BYTES: usize = 64 << 10;

const PACKET: u8 = 0x21;
const ACK: u8 = 0x22;
const CONNECT: u8 = 0x23;
const ACCEPT: u8 = 0x24;
const READY: u8 = 0x25;
const REFUSE: u8 = 0x26;
const GIVE_UP: u8 = 0x27;

#[cfg(test)]
mod tests {
    use super::*;

    const MOST: usize = 100;
    const ACKED: Ack = Ack {
        next: u32::MAX - 1,
        beyond: 0,
        returned: 0xfedc,
    };

    /// The contents of frames of every kind, with bodies from empty to the longest.
    fn all() -> Vec<Content<'static>> {
        const BODY: &[u8] = &[7; MOST];
        let attempt = 0x0102_0304;
        let mut all: Vec<Content<'static>> = Vec::new();
        for flag in [false, true] {
            let (ack_request, again, done, end) = (flag, flag, flag, ());
            all.extend(
                [
                    LinkMessage::Ack { ack_request },
                    LinkMessage::Connect {
                        attempt,
                        end,
                        again,
                    },
                    LinkMessage::Accept { attempt, end },
                    LinkMessage::Ready { attempt },
                    LinkMessage::Refuse { attempt },
                    LinkMessage::Disconnect { attempt, done },
                ]
                .map(Content::Link),
            );
        }
        for (number, bytes) in [(0, 0), (u32::MAX, 1), (9, MOST)] {
            let body = &BODY[..bytes];
            all.push(Content::Packet { number, body });
        }
        all
    }

    fn written(contents: &[Content<'_>]) -> Writer {
        let mut writer = Writer::new();
        for content in contents {
            match *content {
                Content::Packet { number, body } => writer.packet(ACKED, number, body),
                Content::Link(message) => writer.link_message(ACKED, message),
            }
        }
        writer
    }

    /// Adds as many bytes as the reader has room for; returns their number.
    fn put(reader: &mut Reader, bytes: &[u8]) -> usize {
        let place = reader.place();
        let bytes = &bytes[..bytes.len().min(place.len())];
        place[..bytes.len()].copy_from_slice(bytes);
        reader.filled(bytes.len());
        bytes.len()
    }

    #[test]
    fn frames_round_trip_in_any_pieces() {
        let all = all();
        for piece in [1, 2, 3, 15, 16, 17, 100, 1000] {
            let mut writer = written(&all);
            let mut reader = Reader::new(MOST);
            let mut expected = all.iter();
            while !writer.waiting().is_empty() {
                let bytes = writer.waiting();
                let taken = put(&mut reader, &bytes[..piece.min(bytes.len())]);
                assert!(taken != 0, "there is room when nothing was found");
                writer.taken(taken);
                while let Some(frame) = reader.next().expect("all are good") {
                    assert_eq!(frame.ack, ACKED);
                    assert_eq!(Some(&frame.content), expected.next());
                }
            }
            assert!(!reader.is_torn());
            assert_eq!(expected.next(), None, "pieces of {piece}");
        }
    }

    #[test]
    fn malformed_frame_ends_the_stream() {
        let good = written(&[Content::Link(LinkMessage::Ready { attempt: 1 })]);
        let good: [u8; HEADER_BYTES] = good.waiting().try_into().expect("a header");
        let changed = |at: usize, byte: u8| {
            let mut bytes = good;
            bytes[at] = byte;
            bytes
        };
        let too_long = {
            let mut bytes = changed(4, PACKET);
            bytes[0] = 101;
            bytes
        };
        let bad = [
            changed(0, 1),
            changed(4, 0),
            changed(4, GIVE_UP + 1),
            changed(5, 1),
            changed(5, 2),
            too_long,
            [0xff; HEADER_BYTES],
        ];
        for bytes in bad {
            let mut reader = Reader::new(MOST);
            put(&mut reader, &bytes);
            assert_eq!(reader.next(), Err(Garbled), "{bytes:?}");
            put(&mut reader, &good);
            assert_eq!(reader.next(), Err(Garbled), "and it stays so");
        }
    }

    #[test]
    fn writer_discards_taken_bytes() {
        let mut writer = Writer::new();
        let body = [1; 1000];
        for number in 0..1000 {
            assert!(writer.has_room());
            writer.packet(ACKED, number, &body);
            // One frame without its first byte always remains.
            let rest = writer.waiting().len() - (HEADER_BYTES + 999);
            writer.taken(rest);
            assert!(writer.bytes.len() < 2 * MOST_WAITING_BYTES);
        }
        while writer.has_room() {
            writer.packet(ACKED, 0, &body);
        }
        assert!(writer.waiting().len() < MOST_WAITING_BYTES + HEADER_BYTES + 1000);
    }
}
