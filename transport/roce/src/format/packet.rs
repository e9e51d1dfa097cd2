// SPDX-License-Identifier: MIT OR Apache-2.0
//! Parses a whole packet: the bytes from the BTH to the last byte before the ICRC.

use std::fmt;

use super::opcode::extension;
use super::{
    Aeth, AtomicAckEth, AtomicEth, Bth, DATAGRAM_BYTES_MORE, Deth, Ieth, ImmDt, OpcodeClass,
    PAYLOAD_BYTES_MAX, PacketSet, Reth, Service,
};

/// A well-formed packet: its opcode is defined, all of its extension headers are present, and pad and payload are valid
/// for the opcode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packet<'a> {
    /// Base transport header.
    pub bth: Bth,
    extensions: &'a [u8],
    /// The payload, without the pad.
    pub payload: &'a [u8],
}

/// The reason why bytes are not a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Malformed {
    /// The bytes end within the headers.
    Short {
        /// Number of bytes.
        bytes: usize,
        /// Bytes that the headers need.
        wanted: usize,
    },
    /// The version of the transport is not 0.
    Version {
        /// The version.
        version: u8,
    },
    /// The opcode is not defined.
    Opcode {
        /// The opcode.
        code: u8,
    },
    /// The length of payload and pad is not a multiple of 4.
    Unaligned {
        /// Length of payload and pad in bytes.
        bytes: usize,
    },
    /// The pad length exceeds the number of bytes behind the headers.
    Pad {
        /// Length of the pad in bytes, as stated in the BTH.
        pad: u8,
        /// Bytes behind the headers.
        bytes: usize,
    },
    /// The payload is too long for the opcode.
    Payload {
        /// The opcode.
        code: u8,
        /// Length of the payload in bytes.
        bytes: usize,
    },
}

impl<'a> Packet<'a> {
    /// Parses the bytes from the BTH to the last one before the ICRC.
    ///
    /// # Errors
    /// A length is wrong, or the opcode or version is unknown.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, Malformed> {
        let short = |wanted| Malformed::Short {
            bytes: bytes.len(),
            wanted,
        };
        let (head, rest) = bytes.split_first_chunk().ok_or_else(|| short(Bth::BYTES))?;
        let bth = Bth::parse(head)?;
        let extended = bth.opcode.extension_bytes();
        let (extensions, rest) = rest
            .split_at_checked(extended)
            .ok_or_else(|| short(Bth::BYTES + extended))?;
        if !rest.len().is_multiple_of(4) {
            return Err(Malformed::Unaligned { bytes: rest.len() });
        }
        let carried = rest.len().checked_sub(usize::from(bth.pad));
        let payload = carried.and_then(|carried| rest.get(..carried));
        let payload = payload.ok_or(Malformed::Pad {
            pad: bth.pad,
            bytes: rest.len(),
        })?;
        let most = match bth.opcode.kind() {
            OpcodeClass::CongestionNotification => CNP_BYTES,
            OpcodeClass::Acknowledge if PacketSet::parse(payload).is_some() => PacketSet::BYTES_MAX,
            _ if !bth.opcode.has_payload() => 0,
            _ if bth.opcode.service() == Service::UnreliableDatagram => {
                PAYLOAD_BYTES_MAX + DATAGRAM_BYTES_MORE
            }
            _ => PAYLOAD_BYTES_MAX,
        };
        if payload.len() > most {
            return Err(Malformed::Payload {
                code: bth.opcode.code(),
                bytes: payload.len(),
            });
        }
        Ok(Self {
            bth,
            extensions,
            payload,
        })
    }

    /// This packet, recorded as ECN-marked. The carrier calls this if it found "congestion experienced" in the packet's
    /// IP header.
    #[must_use]
    pub fn marked(mut self) -> Self {
        self.bth.forward_congestion = true;
        self
    }

    /// The RETH, if the opcode has one.
    pub fn reth(&self) -> Option<Reth> {
        self.extension(extension::RETH).map(Reth::parse)
    }

    /// The AETH, if the opcode has one.
    pub fn aeth(&self) -> Option<Aeth> {
        self.extension(extension::AETH).map(Aeth::parse)
    }

    /// The AtomicETH, if the opcode has one.
    pub fn atomic(&self) -> Option<AtomicEth> {
        self.extension(extension::ATOMIC).map(AtomicEth::parse)
    }

    /// The AtomicAckETH, if the opcode has one.
    pub fn atomic_ack(&self) -> Option<AtomicAckEth> {
        self.extension(extension::ATOMIC_ACK)
            .map(AtomicAckEth::parse)
    }

    /// The immediate data, if the opcode has them.
    pub fn immediate(&self) -> Option<ImmDt> {
        self.extension(extension::IMM).map(ImmDt::parse)
    }

    /// The IETH, if the opcode has one.
    pub fn invalidate(&self) -> Option<Ieth> {
        self.extension(extension::IETH).map(Ieth::parse)
    }

    /// The DETH, if the opcode has one.
    pub fn deth(&self) -> Option<Deth> {
        self.extension(extension::DETH).map(Deth::parse)
    }

    /// The selective acknowledgement, if the packet is an acknowledgement that has one.
    pub fn sack(&self) -> Option<PacketSet> {
        let is_acknowledge = self.bth.opcode.kind() == OpcodeClass::Acknowledge;
        is_acknowledge
            .then(|| PacketSet::parse(self.payload))
            .flatten()
    }

    /// A packet that is restored from its stored parts.
    pub(crate) fn kept(bth: Bth, extensions: &'a [u8], payload: &'a [u8]) -> Self {
        Self {
            bth,
            extensions,
            payload,
        }
    }

    /// All extension headers, contiguous.
    pub(crate) fn extensions(&self) -> &'a [u8] {
        self.extensions
    }

    fn extension<const N: usize>(&self, which: u8) -> Option<&'a [u8; N]> {
        let offset = self.bth.opcode.offset_of(which)?;
        self.extensions.get(offset..)?.first_chunk()
    }
}

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Short { bytes, wanted } => {
                write!(f, "packet has {bytes} bytes, its headers need {wanted}")
            }
            Self::Version { version } => {
                write!(f, "packet has transport version {version}, expected 0")
            }
            Self::Opcode { code } => write!(f, "packet has opcode 0x{code:02x}, which is none"),
            Self::Unaligned { bytes } => write!(
                f,
                "payload and pad are {bytes} bytes, expected a multiple of 4"
            ),
            Self::Pad { pad, bytes } => write!(
                f,
                "packet names {pad} bytes of pad, behind its headers are {bytes}"
            ),
            Self::Payload { code, bytes } => write!(
                f,
                "packet of opcode 0x{code:02x} has {bytes} bytes of payload, more than it can have"
            ),
        }
    }
}

impl std::error::Error for Malformed {}

/// Number of reserved bytes behind the BTH of a CNP.
pub(crate) const CNP_BYTES: usize = 16;

#[cfg(test)]
mod tests {
    use super::super::{Headers, MessagePosition, Opcode};
    use super::*;

    fn wire(code: u8, pad: u8, behind: usize) -> Vec<u8> {
        let mut bytes = vec![0; Bth::BYTES + behind];
        bytes[0] = code;
        bytes[1] = pad << 4;
        bytes
    }

    #[test]
    fn truncated_headers_are_refused() {
        assert_eq!(
            Packet::parse(&[0; 11]),
            Err(Malformed::Short {
                bytes: 11,
                wanted: 12
            })
        );
        assert_eq!(
            Packet::parse(&wire(0x0b, 0, 16)),
            Err(Malformed::Short {
                bytes: 28,
                wanted: 32
            })
        );
    }

    #[test]
    fn pad_must_fit_the_payload() {
        let packet = wire(4, 3, 8);
        assert_eq!(Packet::parse(&packet).unwrap().payload.len(), 5);
        let pad = Malformed::Pad { pad: 2, bytes: 0 };
        assert_eq!(Packet::parse(&wire(4, 2, 0)), Err(pad));
        let unaligned = Malformed::Unaligned { bytes: 5 };
        assert_eq!(Packet::parse(&wire(4, 3, 5)), Err(unaligned));
    }

    #[test]
    fn payload_is_limited_by_the_opcode() {
        let refused = |code, bytes| Err(Malformed::Payload { code, bytes });
        assert_eq!(Packet::parse(&wire(0x11, 0, 8)), refused(0x11, 4));
        assert_eq!(Packet::parse(&wire(0x81, 0, 20)), refused(0x81, 20));
        assert!(Packet::parse(&wire(0x81, 0, 16)).is_ok());
        assert_eq!(Packet::parse(&wire(4, 0, 4100)), refused(4, 4100));
        assert!(Packet::parse(&wire(4, 0, 4096)).is_ok());
    }

    #[test]
    fn extension_headers_are_found() {
        let opcode = Opcode::reliable(OpcodeClass::Write, MessagePosition::Only, true);
        let bth = Bth {
            opcode,
            ..Bth::parse(&[0; 12]).unwrap()
        };
        let reth = Reth {
            address: 1,
            key: 2,
            bytes: 3,
        };
        let immediate = ImmDt { data: *b"data" };
        let headers = Headers::new(&bth).reth(&reth).immediate(&immediate);
        let packet = Packet::parse(headers.as_bytes()).unwrap();
        assert_eq!(packet.reth(), Some(reth));
        assert_eq!(packet.immediate(), Some(immediate));
        assert_eq!((packet.aeth(), packet.deth()), (None, None));
    }
}
