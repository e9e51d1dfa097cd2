// SPDX-License-Identifier: MIT OR Apache-2.0
//! Where a process is found on the network: the record that is exchanged when a job starts, or when two processes first talk.
//!
//! | offset | bytes | field | |
//! |-------:|------:|-------|-|
//! |      0 |     1 | version | [`VERSION`] |
//! |      1 |     1 | link    | 1 InfiniBand, 2 Ethernet |
//! |      2 |     2 | lid     | little endian; 0 on Ethernet |
//! |      4 |     3 | number  | of the queue pair for datagrams, little endian |
//! |      7 |     1 | packet  | bytes that a packet carries, as a power of two |
//! |      8 |    16 | gid     | as the network writes it |

/// What kind of network a port is on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Link {
    Infiniband,
    Ethernet,
}

/// Where one port of a process is found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Address {
    pub(crate) link: Link,
    pub(crate) lid: u16,
    /// Number of the queue pair for datagrams.
    pub(crate) number: u32,
    /// Bytes that one packet carries there.
    pub(crate) packet_bytes: u32,
    pub(crate) gid: [u8; 16],
}

impl Address {
    /// Bytes of a record.
    pub(crate) const BYTES: usize = 24;

    pub(crate) fn to_bytes(self) -> [u8; Self::BYTES] {
        let mut record = [0; Self::BYTES];
        record[0] = VERSION;
        record[1] = match self.link {
            Link::Infiniband => 1,
            Link::Ethernet => 2,
        };
        record[2..4].copy_from_slice(&self.lid.to_le_bytes());
        record[4..7].copy_from_slice(&self.number.to_le_bytes()[..3]);
        record[7] = u8::try_from(self.packet_bytes.ilog2()).unwrap_or(0);
        record[8..].copy_from_slice(&self.gid);
        record
    }

    /// Reads a record; `None` for one that nobody of this version wrote.
    pub(crate) fn from_bytes(record: &[u8]) -> Option<Self> {
        let record: &[u8; Self::BYTES] = record.try_into().ok()?;
        let link = match record[1] {
            1 => Link::Infiniband,
            2 => Link::Ethernet,
            _ => return None,
        };
        let packet = u32::from(record[7]);
        if record[0] != VERSION || !(8..=12).contains(&packet) {
            return None;
        }
        Some(Self {
            link,
            lid: u16::from_le_bytes([record[2], record[3]]),
            number: u32::from_le_bytes([record[4], record[5], record[6], 0]),
            packet_bytes: 1 << packet,
            gid: *record.last_chunk()?,
        })
    }
}

const VERSION: u8 = 1;

#[cfg(test)]
mod tests {
    use super::*;

    const SOME: Address = Address {
        link: Link::Ethernet,
        lid: 0x1234,
        number: 0x00ab_cdef,
        packet_bytes: 1024,
        gid: *b"0123456789abcdef",
    };

    #[test]
    fn a_record_is_read_as_it_was_written() {
        assert_eq!(Address::from_bytes(&SOME.to_bytes()), Some(SOME));
    }

    #[test]
    fn what_is_no_record_is_refused() {
        let good = SOME.to_bytes();
        assert_eq!(Address::from_bytes(&good[1..]), None);
        for (at, wrong) in [(0, 9), (1, 0), (1, 3), (7, 7), (7, 200)] {
            let mut bad = good;
            bad[at] = wrong;
            assert_eq!(Address::from_bytes(&bad), None, "byte {at}");
        }
    }
}
