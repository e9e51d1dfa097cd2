// SPDX-License-Identifier: MIT OR Apache-2.0
//! The base transport header. IBTA vol. 1 section 9.2.
//!
//! | offset | bits | field       | meaning |
//! |-------:|-----:|-------------|--------------------------------------------------------------|
//! |      0 |    8 | opcode      | `opcode.rs` |
//! |      1 |    1 | SE          | solicited event: the receiver generates an event |
//! |      1 |    1 | MigReq      | migrated; adapters send 1, `rdma_rxe` 0, both are accepted |
//! |      1 |    2 | PadCnt      | zeros behind the payload, 0 to 3 bytes |
//! |      1 |    4 | TVer        | version of the transport: 0 |
//! |      2 |   16 | P_Key       | partition; the top bit is full membership |
//! |      4 |    1 | FECN        | the packet met congestion; the ICRC covers nothing of byte 4 |
//! |      4 |    1 | BECN        | packets of this queue pair met congestion |
//! |      4 |    6 | reserved    | sent as 0 |
//! |      5 |   24 | destination | destination QPN |
//! |      8 |    1 | AckReq      | an acknowledgement is requested |
//! |      8 |    7 | reserved    | sent as 0 |
//! |      9 |   24 | PSN         | packet sequence number |

use super::packet::Malformed;
use super::{Opcode, read_u24, write_u24};
use crate::psn::Psn;

/// The base transport header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bth {
    /// Service, operation and position of the packet.
    pub opcode: Opcode,
    /// SE: the receiver generates an event.
    pub solicited: bool,
    /// MigReq: the connection is in the migrated state.
    pub migrated: bool,
    /// Bytes of pad, 0 to 3.
    pub pad: u8,
    /// P_Key of the sender.
    pub partition: u16,
    /// FECN: this packet met congestion.
    pub forward_congestion: bool,
    /// BECN: packets of this queue pair met congestion.
    pub backward_congestion: bool,
    /// Destination QPN, 24 bits.
    pub destination: u32,
    /// AckReq: the sender requests an acknowledgement.
    pub ack_request: bool,
    /// Packet sequence number.
    pub psn: Psn,
}

impl Bth {
    /// Length of the header in bytes.
    pub const BYTES: usize = 12;

    /// The header of a packet without payload. Of its one-bit fields only MigReq is set, as adapters do.
    pub fn new(opcode: Opcode, partition: u16, destination: u32, psn: Psn) -> Self {
        Self {
            opcode,
            solicited: false,
            migrated: true,
            pad: 0,
            partition,
            forward_congestion: false,
            backward_congestion: false,
            destination,
            ack_request: false,
            psn,
        }
    }

    /// The same header with the pad count for `bytes` bytes of payload.
    #[must_use]
    pub fn carrying(self, bytes: u32) -> Self {
        let pad = pad_of(bytes);
        Self { pad, ..self }
    }

    /// Whether the P_Key matches that of a queue pair, `ours`: the same partition, and at least one of the two is a
    /// full member.
    pub fn is_of_partition(&self, ours: u16) -> bool {
        let theirs = self.partition;
        (ours ^ theirs) & !FULL_MEMBER == 0 && (ours | theirs) & FULL_MEMBER != 0
    }

    /// Parses a header.
    ///
    /// # Errors
    /// The opcode is unknown, or the version is not 0.
    pub fn parse(bytes: &[u8; Self::BYTES]) -> Result<Self, Malformed> {
        let [code, flags, p0, p1, congestion, d0, d1, d2, ack, n0, n1, n2] = *bytes;
        let version = flags & 0x0f;
        if version != 0 {
            return Err(Malformed::Version { version });
        }
        Ok(Self {
            opcode: Opcode::parse(code).ok_or(Malformed::Opcode { code })?,
            solicited: flags & 0x80 != 0,
            migrated: flags & 0x40 != 0,
            pad: flags >> 4 & 3,
            partition: u16::from_be_bytes([p0, p1]),
            forward_congestion: congestion & 0x80 != 0,
            backward_congestion: congestion & 0x40 != 0,
            destination: read_u24([d0, d1, d2]),
            ack_request: ack & 0x80 != 0,
            psn: Psn::new(read_u24([n0, n1, n2])),
        })
    }

    /// Writes the header.
    pub fn write(&self, bytes: &mut [u8; Self::BYTES]) {
        let bit = |is_set: bool, at: u8| u8::from(is_set) << at;
        let [p0, p1] = self.partition.to_be_bytes();
        let [d0, d1, d2] = write_u24(self.destination);
        let [n0, n1, n2] = write_u24(self.psn.get());
        *bytes = [
            self.opcode.code(),
            bit(self.solicited, 7) | bit(self.migrated, 6) | (self.pad & 3) << 4,
            p0,
            p1,
            bit(self.forward_congestion, 7) | bit(self.backward_congestion, 6),
            d0,
            d1,
            d2,
            bit(self.ack_request, 7),
            n0,
            n1,
            n2,
        ];
    }
}

/// Number of pad bytes behind `bytes` bytes of payload.
pub(crate) fn pad_of(bytes: u32) -> u8 {
    u8::try_from(bytes.wrapping_neg() & 3).unwrap_or(0)
}

/// The bit of a P_Key that marks a full member.
const FULL_MEMBER: u16 = 0x8000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn payload_and_pad_are_a_multiple_of_4() {
        let pads = [0, 1, 2, 3, 4, 1023].map(pad_of);
        assert_eq!(pads, [0, 3, 2, 1, 0, 1]);
    }

    #[test]
    fn partition_match_requires_one_full_member() {
        let bth = |partition| Bth::new(Opcode::CNP, partition, 1, Psn::new(0));
        assert!(bth(0xffff).is_of_partition(0x7fff));
        assert!(bth(0x7fff).is_of_partition(0xffff));
        assert!(!bth(0x7fff).is_of_partition(0x7fff));
        assert!(!bth(0xffff).is_of_partition(0xfffe));
    }

    #[test]
    fn written_bytes_parse_back_unchanged() {
        let wire = [
            0x04, 0xf0, 0x80, 0x01, 0xc0, 0x12, 0x34, 0x56, 0x80, 0xab, 0xcd, 0xef,
        ];
        let bth = Bth::parse(&wire).unwrap();
        assert!(bth.solicited && bth.migrated && bth.ack_request);
        assert_eq!((bth.pad, bth.partition), (3, 0x8001));
        assert_eq!((bth.destination, bth.psn.get()), (0x12_3456, 0xab_cdef));
        let mut again = [0; Bth::BYTES];
        bth.write(&mut again);
        assert_eq!(again, wire);
    }

    #[test]
    fn other_versions_and_unknown_opcodes_are_refused() {
        let mut wire = [0; Bth::BYTES];
        wire[1] = 1;
        assert_eq!(Bth::parse(&wire), Err(Malformed::Version { version: 1 }));
        wire[..2].copy_from_slice(&[0x15, 0]);
        assert_eq!(Bth::parse(&wire), Err(Malformed::Opcode { code: 0x15 }));
    }
}
