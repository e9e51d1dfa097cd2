// SPDX-License-Identifier: MIT OR Apache-2.0
//! The other extension headers. IBTA vol. 1 chapter 9.
//!
//! | header       | offset | bits | field   | meaning                                      |
//! |--------------|-------:|-----:|---------|----------------------------------------------|
//! | RETH         |      0 |   64 | address | where the memory of the responder begins     |
//! |              |      8 |   32 | key     | remote key                                   |
//! |              |     12 |   32 | bytes   | length of the whole message                  |
//! | AtomicETH    |      0 |   64 | address | a multiple of 8                              |
//! |              |      8 |   32 | key     | remote key                                   |
//! |              |     12 |   64 | swap    | what is put there, or added                  |
//! |              |     20 |   64 | compare | what must be there; of no meaning for an add |
//! | AtomicAckETH |      0 |   64 | value   | what was there                               |
//! | ImmDt        |      0 |   32 | data    | four bytes for the receiver's completion     |
//! | IETH         |      0 |   32 | key     | key that the receiver should invalidate      |
//! | DETH         |      0 |   32 | key     | Q_Key that the receiver must have            |
//! |              |      4 |    8 | reserved | 0                                           |
//! |              |      5 |   24 | source  | queue pair that it comes from                |

use super::{read_u24, write_u24};

/// RDMA extended transport header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reth {
    /// Where the memory of the responder begins.
    pub address: u64,
    /// Remote key.
    pub key: u32,
    /// Length of the whole message in bytes.
    pub bytes: u32,
}

/// Atomic extended transport header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AtomicEth {
    /// Where the 8 bytes are.
    pub address: u64,
    /// Remote key.
    pub key: u32,
    /// What is put there, or added.
    pub swap: u64,
    /// What must be there for it.
    pub compare: u64,
}

/// Atomic acknowledge extended transport header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AtomicAckEth {
    /// What was there.
    pub value: u64,
}

/// Immediate data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ImmDt {
    /// The four bytes, as they are on the wire.
    pub data: [u8; 4],
}

/// Invalidate extended transport header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ieth {
    /// Key that the receiver should invalidate.
    pub key: u32,
}

/// Datagram extended transport header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Deth {
    /// Q_Key.
    pub key: u32,
    /// Number of the queue pair that it comes from, 24 bits.
    pub source: u32,
}

impl Reth {
    /// Its length.
    pub const BYTES: usize = 16;

    /// Reads one.
    pub fn parse(bytes: &[u8; Self::BYTES]) -> Self {
        Self {
            address: u64::from_be_bytes(part(bytes, 0)),
            key: u32::from_be_bytes(part(bytes, 8)),
            bytes: u32::from_be_bytes(part(bytes, 12)),
        }
    }

    /// Writes it.
    pub fn write(&self, bytes: &mut [u8; Self::BYTES]) {
        bytes[..8].copy_from_slice(&self.address.to_be_bytes());
        bytes[8..12].copy_from_slice(&self.key.to_be_bytes());
        bytes[12..].copy_from_slice(&self.bytes.to_be_bytes());
    }
}

impl AtomicEth {
    /// Its length.
    pub const BYTES: usize = 28;

    /// Reads one.
    pub fn parse(bytes: &[u8; Self::BYTES]) -> Self {
        Self {
            address: u64::from_be_bytes(part(bytes, 0)),
            key: u32::from_be_bytes(part(bytes, 8)),
            swap: u64::from_be_bytes(part(bytes, 12)),
            compare: u64::from_be_bytes(part(bytes, 20)),
        }
    }

    /// Writes it.
    pub fn write(&self, bytes: &mut [u8; Self::BYTES]) {
        bytes[..8].copy_from_slice(&self.address.to_be_bytes());
        bytes[8..12].copy_from_slice(&self.key.to_be_bytes());
        bytes[12..20].copy_from_slice(&self.swap.to_be_bytes());
        bytes[20..].copy_from_slice(&self.compare.to_be_bytes());
    }
}

impl AtomicAckEth {
    /// Its length.
    pub const BYTES: usize = 8;

    /// Reads one.
    pub fn parse(bytes: &[u8; Self::BYTES]) -> Self {
        Self {
            value: u64::from_be_bytes(*bytes),
        }
    }

    /// Writes it.
    pub fn write(&self, bytes: &mut [u8; Self::BYTES]) {
        *bytes = self.value.to_be_bytes();
    }
}

impl ImmDt {
    /// Its length.
    pub const BYTES: usize = 4;

    /// Reads one.
    pub fn parse(bytes: &[u8; Self::BYTES]) -> Self {
        Self { data: *bytes }
    }

    /// Writes it.
    pub fn write(&self, bytes: &mut [u8; Self::BYTES]) {
        *bytes = self.data;
    }
}

impl Ieth {
    /// Its length.
    pub const BYTES: usize = 4;

    /// Reads one.
    pub fn parse(bytes: &[u8; Self::BYTES]) -> Self {
        Self {
            key: u32::from_be_bytes(*bytes),
        }
    }

    /// Writes it.
    pub fn write(&self, bytes: &mut [u8; Self::BYTES]) {
        *bytes = self.key.to_be_bytes();
    }
}

impl Deth {
    /// Its length.
    pub const BYTES: usize = 8;

    /// Reads one.
    pub fn parse(bytes: &[u8; Self::BYTES]) -> Self {
        Self {
            key: u32::from_be_bytes(part(bytes, 0)),
            source: read_u24(part(bytes, 5)),
        }
    }

    /// Writes it.
    pub fn write(&self, bytes: &mut [u8; Self::BYTES]) {
        bytes[..4].copy_from_slice(&self.key.to_be_bytes());
        bytes[4] = 0;
        bytes[5..].copy_from_slice(&write_u24(self.source));
    }
}

/// `N` bytes from `offset` on. The callers name offsets of their own tables, so they lie inside.
fn part<const M: usize, const N: usize>(bytes: &[u8; M], offset: usize) -> [u8; N] {
    let mut part = [0; N];
    part.copy_from_slice(&bytes[offset..offset + N]);
    part
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 1, 2, 3 and so on.
    fn wire<const N: usize>() -> [u8; N] {
        std::array::from_fn(|at| u8::try_from(at + 1).unwrap())
    }

    #[test]
    fn what_is_written_is_read_again() {
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
    fn fields_lie_where_the_table_says() {
        let reth = Reth::parse(&wire());
        assert_eq!(reth.address, 0x0102_0304_0506_0708);
        assert_eq!((reth.key, reth.bytes), (0x090a_0b0c, 0x0d0e_0f10));
        let atomic = AtomicEth::parse(&wire());
        assert_eq!(atomic.swap, 0x0d0e_0f10_1112_1314);
        assert_eq!(atomic.compare, 0x1516_1718_191a_1b1c);
        assert_eq!(Deth::parse(&wire()).source, 0x06_0708);
    }
}
