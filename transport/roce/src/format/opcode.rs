// SPDX-License-Identifier: MIT OR Apache-2.0
//! Opcodes: the upper three bits are the transport service, the lower five the operation. IBTA vol. 1 section 9.2.
//!
//! | bits 7–5 | service                       | lower five bits in use |
//! |---------:|-------------------------------|-------------------------|
//! |        0 | reliable connection (RC)      | 0x00–0x14, 0x16, 0x17 |
//! |        1 | unreliable connection (UC)    | 0x00–0x0b |
//! |        3 | unreliable datagram (UD)      | 0x04, 0x05, with a DETH |
//! |        4 | congestion notification (CNP) | 0x01 |

/// A valid opcode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Opcode {
    service: Service,
    row: OpcodeRow,
}

/// The transport service of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Service {
    /// RC.
    ReliableConnection,
    /// UC.
    UnreliableConnection,
    /// UD.
    UnreliableDatagram,
    /// CNP, annex A17.9.3.
    CongestionNotification,
}

/// The operation that a packet is part of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpcodeClass {
    /// SEND.
    Send,
    /// RDMA WRITE.
    Write,
    /// RDMA READ request.
    ReadRequest,
    /// RDMA READ response.
    ReadResponse,
    /// Acknowledge, positive or negative.
    Acknowledge,
    /// ATOMIC acknowledge.
    AtomicAcknowledge,
    /// CmpSwap.
    CompareSwap,
    /// FetchAdd.
    FetchAdd,
    /// Congestion notification.
    CongestionNotification,
}

/// The position of a packet in its message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MessagePosition {
    /// The first of several packets; its payload is as long as the path MTU.
    First,
    /// Neither the first nor the last packet; its payload is as long as the path MTU.
    Middle,
    /// The last of several packets; its payload is 1 byte to one path MTU long.
    Last,
    /// The only packet of its message; its payload is at most one path MTU long.
    Only,
}

/// A bit for each extension header, in the order in which the headers follow the BTH.
pub(crate) mod extension {
    pub(crate) const DETH: u8 = 1;
    pub(crate) const RETH: u8 = 2;
    pub(crate) const ATOMIC: u8 = 4;
    pub(crate) const AETH: u8 = 8;
    pub(crate) const ATOMIC_ACK: u8 = 16;
    pub(crate) const IMM: u8 = 32;
    pub(crate) const IETH: u8 = 64;
    /// Lengths of the extension headers in bytes, in the order of their bits.
    const BYTES: [u8; 7] = [8, 16, 28, 4, 8, 4, 4];

    /// The total length in bytes of a set of extension headers.
    pub(crate) fn bytes_of(extensions: u8) -> usize {
        let bytes = BYTES_OF.get(usize::from(extensions));
        bytes.map_or(0, |bytes| usize::from(*bytes))
    }

    /// The total length in bytes for each set. Precomputed, since it is needed for every received packet.
    const BYTES_OF: [u8; 128] = {
        let mut all = [0; 128];
        let mut set = 1;
        while set < all.len() {
            let lowest = set.trailing_zeros();
            all[set] = all[set & (set - 1)] + BYTES[lowest as usize];
            set += 1;
        }
        all
    };
}

/// One row of the table of opcodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct OpcodeRow {
    code: u8,
    kind: OpcodeClass,
    position: MessagePosition,
    extensions: u8,
}

impl Opcode {
    /// The opcode of a congestion notification packet (CNP).
    pub const CNP: Self = Self {
        service: Service::CongestionNotification,
        row: row(
            1,
            OpcodeClass::CongestionNotification,
            MessagePosition::Only,
            0,
        ),
    };

    /// Parses an opcode; `None` if it is not defined.
    pub fn parse(code: u8) -> Option<Self> {
        let low = code & 0x1f;
        let gap = usize::from(low > MISSING);
        let mut row = *ROWS.get(usize::from(low) - gap)?;
        if low == MISSING {
            return None;
        }
        let service = match code >> 5 {
            0 => Service::ReliableConnection,
            1 if low <= LAST_OF_UNRELIABLE => Service::UnreliableConnection,
            3 if low == 4 || low == 5 => {
                row.extensions |= extension::DETH;
                Service::UnreliableDatagram
            }
            4 if low == Self::CNP.row.code => return Some(Self::CNP),
            _ => return None,
        };
        Some(Self { service, row })
    }

    /// The opcode of a packet of a reliable connection. `has_immediate` has an effect only for the last packet of a
    /// send or a write. A position that packets of the operation cannot have is replaced by [`MessagePosition::Only`].
    pub fn reliable(kind: OpcodeClass, position: MessagePosition, has_immediate: bool) -> Self {
        let place = match position {
            MessagePosition::First => 0,
            MessagePosition::Middle => 1,
            MessagePosition::Last => 2 + u8::from(has_immediate),
            MessagePosition::Only => 4 + u8::from(has_immediate),
        };
        let code = match kind {
            OpcodeClass::Send => place,
            OpcodeClass::Write => 6 + place,
            OpcodeClass::ReadRequest => 0x0c,
            OpcodeClass::ReadResponse => 0x0d + place - u8::from(place >= 4),
            OpcodeClass::Acknowledge => 0x11,
            OpcodeClass::AtomicAcknowledge => 0x12,
            OpcodeClass::CompareSwap => 0x13,
            OpcodeClass::FetchAdd => 0x14,
            OpcodeClass::CongestionNotification => return Self::CNP,
        };
        let row = ROWS[usize::from(code)];
        Self {
            service: Service::ReliableConnection,
            row,
        }
    }

    /// The opcode of a datagram.
    pub fn datagram(has_immediate: bool) -> Self {
        let mut row = ROWS[4 + usize::from(has_immediate)];
        row.extensions |= extension::DETH;
        Self {
            service: Service::UnreliableDatagram,
            row,
        }
    }

    /// The opcode byte on the wire.
    pub fn code(self) -> u8 {
        let upper = match self.service {
            Service::ReliableConnection => 0,
            Service::UnreliableConnection => 1,
            Service::UnreliableDatagram => 3,
            Service::CongestionNotification => 4,
        };
        upper << 5 | self.row.code
    }

    /// The transport service.
    pub fn service(self) -> Service {
        self.service
    }

    /// The operation that the packet is part of.
    pub fn kind(self) -> OpcodeClass {
        self.row.kind
    }

    /// The packet's position in its message.
    pub fn position(self) -> MessagePosition {
        self.row.position
    }

    /// Whether the packet carries immediate data.
    pub fn has_immediate(self) -> bool {
        self.has(extension::IMM)
    }

    /// Whether the packet requests that the receiver invalidates a key.
    pub fn invalidates(self) -> bool {
        self.has(extension::IETH)
    }

    /// Whether the packet may carry payload.
    pub fn has_payload(self) -> bool {
        matches!(
            self.row.kind,
            OpcodeClass::Send
                | OpcodeClass::Write
                | OpcodeClass::ReadResponse
                | OpcodeClass::CongestionNotification
        )
    }

    /// Whether the packet is a response.
    pub fn is_answer(self) -> bool {
        matches!(
            self.row.kind,
            OpcodeClass::ReadResponse | OpcodeClass::Acknowledge | OpcodeClass::AtomicAcknowledge
        )
    }

    /// Whether the packet has this extension header.
    pub(crate) fn has(self, extension: u8) -> bool {
        self.row.extensions & extension != 0
    }

    /// The length in bytes of the extension headers behind the BTH.
    pub fn extension_bytes(self) -> usize {
        extension::bytes_of(self.row.extensions)
    }

    /// Offset of an extension header from the end of the BTH; `None` if the packet does not have it.
    pub(crate) fn offset_of(self, extension: u8) -> Option<usize> {
        let before = self.row.extensions & (extension - 1);
        self.has(extension).then(|| extension::bytes_of(before))
    }
}

const fn row(code: u8, kind: OpcodeClass, position: MessagePosition, extensions: u8) -> OpcodeRow {
    OpcodeRow {
        code,
        kind,
        position,
        extensions,
    }
}

/// The operations by the lower five bits of the opcode, without the undefined 0x15. UC and UD have only some of these
/// operations.
const ROWS: [OpcodeRow; 23] = {
    use MessagePosition::*;
    use OpcodeClass::*;
    use extension::*;
    [
        row(0x00, Send, First, 0),
        row(0x01, Send, Middle, 0),
        row(0x02, Send, Last, 0),
        row(0x03, Send, Last, IMM),
        row(0x04, Send, Only, 0),
        row(0x05, Send, Only, IMM),
        row(0x06, Write, First, RETH),
        row(0x07, Write, Middle, 0),
        row(0x08, Write, Last, 0),
        row(0x09, Write, Last, IMM),
        row(0x0a, Write, Only, RETH),
        row(0x0b, Write, Only, RETH | IMM),
        row(0x0c, ReadRequest, Only, RETH),
        row(0x0d, ReadResponse, First, AETH),
        row(0x0e, ReadResponse, Middle, 0),
        row(0x0f, ReadResponse, Last, AETH),
        row(0x10, ReadResponse, Only, AETH),
        row(0x11, Acknowledge, Only, AETH),
        row(0x12, AtomicAcknowledge, Only, AETH | ATOMIC_ACK),
        row(0x13, CompareSwap, Only, ATOMIC),
        row(0x14, FetchAdd, Only, ATOMIC),
        row(0x16, Send, Last, IETH),
        row(0x17, Send, Only, IETH),
    ]
};

/// The undefined value between the defined values of the lower five bits.
const MISSING: u8 = 0x15;
/// The last operation of an unreliable connection: WRITE_ONLY with immediate data.
const LAST_OF_UNRELIABLE: u8 = 0x0b;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn opcodes_round_trip() {
        let known = (0..=u8::MAX).filter_map(|code| Some((code, Opcode::parse(code)?)));
        let known: Vec<_> = known.collect();
        assert_eq!(known.len(), 23 + 12 + 2 + 1);
        for (code, opcode) in known {
            assert_eq!(opcode.code(), code);
        }
    }

    #[test]
    fn opcodes_are_built_from_class_position_and_immediate() {
        for code in (0..0x20).filter(|code| ![0x15, 0x16, 0x17, 0x18].contains(code)) {
            let Some(opcode) = Opcode::parse(code) else {
                assert!(code > 0x17);
                continue;
            };
            let again = Opcode::reliable(opcode.kind(), opcode.position(), opcode.has_immediate());
            assert_eq!(again, opcode, "0x{code:x}");
        }
        assert_eq!(Some(Opcode::datagram(true)), Opcode::parse(0x65));
        assert_eq!(Opcode::CNP.code(), 0x81);
    }

    #[test]
    fn extension_header_offsets_add_up() {
        let write = Opcode::parse(0x0b).unwrap();
        assert_eq!(write.extension_bytes(), 20);
        assert_eq!(write.offset_of(extension::IMM), Some(16));
        let datagram = Opcode::parse(0x65).unwrap();
        assert_eq!(datagram.offset_of(extension::IMM), Some(8));
        assert_eq!(datagram.offset_of(extension::RETH), None);
        assert_eq!(Opcode::parse(0x12).unwrap().extension_bytes(), 12);
    }
}
