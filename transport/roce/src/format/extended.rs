// SPDX-License-Identifier: MIT OR Apache-2.0
//! The extension headers other than AETH and selective acknowledgement. IBTA vol. 1 chapter 9.
//!
//! | header       | offset | bits | field    | meaning |
//! |--------------|-------:|-----:|----------|----------------------------------------------|
//! | RETH         |      0 |   64 | address  | remote address |
//! |              |      8 |   32 | key      | remote key |
//! |              |     12 |   32 | bytes    | length of the whole message |
//! | AtomicETH    |      0 |   64 | address  | a multiple of 8 |
//! |              |      8 |   32 | key      | remote key |
//! |              |     12 |   64 | swap     | value to store, or addend |
//! |              |     20 |   64 | compare  | value to compare with; ignored for an add |
//! | AtomicAckETH |      0 |   64 | value    | original value |
//! | ImmDt        |      0 |   32 | data     | immediate data for the receiver's completion |
//! | IETH         |      0 |   32 | key      | key that the receiver is to invalidate |
//! | DETH         |      0 |   32 | key      | Q_Key of the receiver |
//! |              |      4 |    8 | reserved | 0 |
//! |              |      5 |   24 | source   | QPN of the sender |

use super::{read_u24, write_u24};

/// RDMA extended transport header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reth {
    /// Remote address.
    pub address: u64,
    /// Remote key.
    pub key: u32,
    /// Length of the whole message in bytes.
    pub bytes: u32,
}

/// Atomic extended transport header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AtomicEth {
    /// Remote address of the 8 bytes.
    pub address: u64,
    /// Remote key.
    pub key: u32,
    /// Value to store, or addend.
    pub swap: u64,
    /// Value to compare with.
    pub compare: u64,
}

/// Atomic acknowledge extended transport header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AtomicAckEth {
    /// The original value.
    pub value: u64,
}

/// Immediate data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ImmDt {
    /// The four bytes in the order of the wire.
    pub data: [u8; 4],
}

/// Invalidate extended transport header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ieth {
    /// Key that the receiver is to invalidate.
    pub key: u32,
}

/// Datagram extended transport header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Deth {
    /// Q_Key.
    pub key: u32,
    /// QPN of the sender, 24 bits.
    pub source: u32,
}

impl Reth {
    /// Length of the header in bytes.
    pub const BYTES: usize = 16;

    /// Parses a header.
    pub fn parse(bytes: &[u8; Self::BYTES]) -> Self {
        Self {
            address: u64::from_be_bytes(part(bytes, 0)),
            key: u32::from_be_bytes(part(bytes, 8)),
            bytes: u32::from_be_bytes(part(bytes, 12)),
        }
    }

    /// Writes the header.
    pub fn write(&self, bytes: &mut [u8; Self::BYTES]) {
        bytes[..8].copy_from_slice(&self.address.to_be_bytes());
        bytes[8..12].copy_from_slice(&self.key.to_be_bytes());
        bytes[12..].copy_from_slice(&self.bytes.to_be_bytes());
    }
}

impl AtomicEth {
    /// Length of the header in bytes.
    pub const BYTES: usize = 28;

    /// Parses a header.
    pub fn parse(bytes: &[u8; Self::BYTES]) -> Self {
        Self {
            address: u64::from_be_bytes(part(bytes, 0)),
            key: u32::from_be_bytes(part(bytes, 8)),
            swap: u64::from_be_bytes(part(bytes, 12)),
            compare: u64::from_be_bytes(part(bytes, 20)),
        }
    }

    /// Writes the header.
    pub fn write(&self, bytes: &mut [u8; Self::BYTES]) {
        bytes[..8].copy_from_slice(&self.address.to_be_bytes());
        bytes[8..12].copy_from_slice(&self.key.to_be_bytes());
        bytes[12..20].copy_from_slice(&self.swap.to_be_bytes());
        bytes[20..].copy_from_slice(&self.compare.to_be_bytes());
    }
}

impl AtomicAckEth {
    /// Length of the header in bytes.
    pub const BYTES: usize = 8;

    /// Parses a header.
    pub fn parse(bytes: &[u8; Self::BYTES]) -> Self {
        Self {
            value: u64::from_be_bytes(*bytes),
        }
    }

    /// Writes the header.
    pub fn write(&self, bytes: &mut [u8; Self::BYTES]) {
        *bytes = self.value.to_be_bytes();
    }
}

impl ImmDt {
    /// Length of the header in bytes.
    pub const BYTES: usize = 4;

    /// Parses a header.
    pub fn parse(bytes: &[u8; Self::BYTES]) -> Self {
        Self { data: *bytes }
    }

    /// Writes the header.
    pub fn write(&self, bytes: &mut [u8; Self::BYTES]) {
        *bytes = self.data;
    }
}

impl Ieth {
    /// Length of the header in bytes.
    pub const BYTES: usize = 4;

    /// Parses a header.
    pub fn parse(bytes: &[u8; Self::BYTES]) -> Self {
        Self {
            key: u32::from_be_bytes(*bytes),
        }
    }

    /// Writes the header.
    pub fn write(&self, bytes: &mut [u8; Self::BYTES]) {
        *bytes = self.key.to_be_bytes();
    }
}

impl Deth {
    /// Length of the header in bytes.
    pub const BYTES: usize = 8;

    /// Parses a header.
    pub fn parse(bytes: &[u8; Self::BYTES]) -> Self {
        Self {
            key: u32::from_be_bytes(part(bytes, 0)),
            source: read_u24(part(bytes, 5)),
        }
    }

    /// Writes the header.
    pub fn write(&self, bytes: &mut [u8; Self::BYTES]) {
        bytes[..4].copy_from_slice(&self.key.to_be_bytes());
        bytes[4] = 0;
        bytes[5..].copy_from_slice(&write_u24(self.source));
    }
}

/// `N` bytes from `offset` on. All callers pass constant offsets of a header's table, so they are within bounds.
fn part<const M: usize, const N: usize>(bytes: &[u8; M], offset: usize) -> [u8; N] {
    let mut part = [0; N];
    part.copy_from_slice(&bytes[offset..offset + N]);
    part
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The bytes 1, 2, 3, ….
    fn wire<const N: usize>() -> [u8; N] {
        std::array::from_fn(|at| u8::try_from(at + 1).unwrap())
    }

    #[test]
    fn written_bytes_parse_back_unchanged() {
        let mut reth = [0; Reth::BYTES];
        Reth::parse(&wire()).write(&mut reth);
        assert_eq!(reth, wire());
        let mut atomic = [0; AtomicEth::BYTES];
        AtomicEth::parse(&wire()).write(&mut atomic);
        assert_eq!(atomic, wire());
        let mut ack = [0; AtomicAckEth::BYTES];
        AtomicAckEth::parse(&wire()).write(&mut ack);
        assert_eq!(ack, wire());
        let mut immediate = [0; ImmDt::BYTES];
        ImmDt::parse(&wire()).write(&mut immediate);
        assert_eq!(immediate, wire());
        let mut key = [0; Ieth::BYTES];
        Ieth::parse(&wire()).write(&mut key);
        assert_eq!(key, wire());
        let mut datagram = [0xff; Deth::BYTES];
        Deth::parse(&wire()).write(&mut datagram);
        assert_eq!(datagram, [1, 2, 3, 4, 0, 6, 7, 8]);
    }

    #[test]
    fn extended_header_fields_match_the_specification() {
        let reth = Reth::parse(&wire());
        assert_eq!(reth.address, 0x0102_0304_0506_0708);
        assert_eq!((reth.key, reth.bytes), (0x090a_0b0c, 0x0d0e_0f10));
        let atomic = AtomicEth::parse(&wire());
        assert_eq!(atomic.swap, 0x0d0e_0f10_1112_1314);
        assert_eq!(atomic.compare, 0x1516_1718_191a_1b1c);
        assert_eq!(Deth::parse(&wire()).source, 0x06_0708);
    }
}
