// SPDX-License-Identifier: MIT OR Apache-2.0
//! The network address of a process: the record that is exchanged when a job starts, or when two processes first
//! communicate.
//!
//! | offset |   bytes | field | |
//! |-------:|--------:|-------|-----|
//! |      0 |       1 | form  | [`FORM`] |
//! |      1 |       1 | count | of ports, at least 1; ports beyond the first [`MOST_RAILS`] are ignored |
//! |      2 | 28 each | ports | in the order of the process's rails: an address (24), and the port's rate in Mbit/s (4, little-endian) |
//! |        |         | host  | name of the host, for messages |
//!
//! An address:
//!
//! | offset | bytes | field   | |
//! |-------:|------:|---------|-----|
//! |      0 |     1 | version | [`VERSION`] |
//! |      1 |     1 | link    | 1 InfiniBand, 2 Ethernet |
//! |      2 |     2 | lid     | little-endian; on Ethernet the UDP port, or 0 for an adapter, whose port is always 4791 |
//! |      4 |     3 | number  | of the datagram queue pair, little-endian |
//! |      7 |     1 | packet  | MTU, in units of 64 bytes |
//! |      8 |    16 | gid     | in network byte order |

use super::rail::MOST_RAILS;

/// The link layer of a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum LinkLayer {
    Infiniband,
    Ethernet,
}

/// The address of a port, and its rate in Mbit/s; 0: unknown.
pub(super) type Rated = (PortAddress, u32);

/// The address record of a process with these ports.
pub(super) fn to_record(ports: &[Rated], host: &str) -> Vec<u8> {
    let count = u8::try_from(ports.len()).unwrap_or(u8::MAX);
    let mut record = vec![FORM, count];
    for (address, rate_mbps) in ports {
        record.extend(address.to_bytes());
        record.extend(rate_mbps.to_le_bytes());
    }
    record.extend(host.bytes().take(MOST_HOST_BYTES));
    record
}

/// The ports and the host in a record; `None`: the record is not of this version, or malformed.
pub(super) fn from_record(record: &[u8]) -> Option<(Vec<Rated>, &[u8])> {
    let ([form, count], rest) = record.split_first_chunk()?;
    if *form != FORM || *count == 0 {
        return None;
    }
    let (ports, host) = rest.split_at_checked(usize::from(*count) * PORT_BYTES)?;
    let ports = ports.chunks_exact(PORT_BYTES).take(MOST_RAILS).map(|port| {
        let (address, rate) = port.split_last_chunk()?;
        Some((PortAddress::from_bytes(address)?, u32::from_le_bytes(*rate)))
    });
    Some((ports.collect::<Option<_>>()?, host))
}

/// The address of one port of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct PortAddress {
    pub(crate) link: LinkLayer,
    /// On InfiniBand the port's LID. On Ethernet the UDP port at which packets are received; 0: an adapter, which
    /// receives at the port of RoCE version 2 (4791), and sends to no other port.
    pub(crate) lid: u16,
    /// Number of the datagram queue pair (QPN).
    pub(crate) number: u32,
    /// MTU of the port, in bytes.
    pub(crate) packet_bytes: u32,
    pub(crate) gid: [u8; 16],
}

impl PortAddress {
    /// Length of an address in a record.
    pub(crate) const BYTES: usize = 24;

    /// Whether this is a user-space RoCE port: such a port makes progress only in the calls of its process.
    pub(super) fn is_program(&self) -> bool {
        self.link == LinkLayer::Ethernet && self.lid != 0
    }

    /// Whether each of two Ethernet ports sends to the UDP port at which the other receives.
    pub(super) fn may_reach(&self, other: &Self) -> bool {
        let is_for_adapters = |address: &Self| [0, roce::format::PORT].contains(&address.lid);
        (self.is_program() || is_for_adapters(other))
            && (other.is_program() || is_for_adapters(self))
    }

    pub(crate) fn to_bytes(self) -> [u8; Self::BYTES] {
        let mut record = [0; Self::BYTES];
        record[0] = VERSION;
        record[1] = match self.link {
            LinkLayer::Infiniband => 1,
            LinkLayer::Ethernet => 2,
        };
        record[2..4].copy_from_slice(&self.lid.to_le_bytes());
        record[4..7].copy_from_slice(&self.number.to_le_bytes()[..3]);
        record[7] = mtu_units(self.packet_bytes);
        record[8..].copy_from_slice(&self.gid);
        record
    }

    /// Parses an address; `None`: it is not of this version, or malformed.
    pub(crate) fn from_bytes(record: &[u8]) -> Option<Self> {
        let record: &[u8; Self::BYTES] = record.try_into().ok()?;
        let link = match record[1] {
            1 => LinkLayer::Infiniband,
            2 => LinkLayer::Ethernet,
            _ => return None,
        };
        if record[0] != VERSION {
            return None;
        }
        Some(Self {
            link,
            lid: u16::from_le_bytes([record[2], record[3]]),
            number: u32::from_le_bytes([record[4], record[5], record[6], 0]),
            packet_bytes: mtu_of_units(record[7].into())?,
            gid: *record.last_chunk()?,
        })
    }
}

/// An MTU as processes send it, in units of 64 bytes.
pub(super) fn mtu_units(packet_bytes: u32) -> u8 {
    u8::try_from(packet_bytes / MTU_UNIT_BYTES).unwrap_or(u8::MAX)
}

/// The MTU in bytes that a process has sent; `None`: out of range.
pub(super) fn mtu_of_units(units: u32) -> Option<u32> {
    let range = MTU_BYTES_MIN / MTU_UNIT_BYTES..=MTU_BYTES_MAX / MTU_UNIT_BYTES;
    range.contains(&units).then_some(units * MTU_UNIT_BYTES)
}

/// Every MTU is a multiple of this, in bytes.
pub(super) const MTU_UNIT_BYTES: u32 = 64;
/// Smallest and largest MTU, in bytes.
pub(super) const MTU_BYTES_MIN: u32 = 256;
pub(super) const MTU_BYTES_MAX: u32 = 4096;
const VERSION: u8 = 1;
/// The present form of a record. In form 0x24 an MTU was its base-2 logarithm. Form 0x23 was used by processes whose
/// notes (messages that set up queue pairs) had no MTU, and whose buffers were too short for padded notes; earlier
/// records began with [`VERSION`].
const FORM: u8 = 0x26;
/// Length of a port in a record: its address and its rate.
const PORT_BYTES: usize = PortAddress::BYTES + 4;
/// Longest host name in a record, in bytes.
const MOST_HOST_BYTES: usize = 40;
/// Longest record, in bytes.
pub(in crate::provider) const MOST_RECORD_BYTES: usize =
    2 + MOST_RAILS * PORT_BYTES + MOST_HOST_BYTES;

#[cfg(test)]
mod tests {
    use super::*;

    const SOME: PortAddress = PortAddress {
        link: LinkLayer::Ethernet,
        lid: 0x1234,
        number: 0x00ab_cdef,
        packet_bytes: 1408,
        gid: *b"0123456789abcdef",
    };

    #[test]
    fn a_record_is_read_as_it_was_written() {
        assert_eq!(PortAddress::from_bytes(&SOME.to_bytes()), Some(SOME));
    }

    #[test]
    fn an_address_record_has_all_ports_and_the_host() {
        let some = (SOME, 100_000);
        let other = (PortAddress { lid: 9, ..SOME }, u32::MAX);
        let record = to_record(&[some, other], "node7");
        let (ports, host) = from_record(&record).unwrap();
        assert_eq!((&*ports, host), (&[some, other][..], &b"node7"[..]));
        let long = to_record(&[some], &"x".repeat(99));
        assert_eq!(from_record(&long).unwrap().1.len(), MOST_HOST_BYTES);
        let many = to_record(&[some; 9], "");
        assert_eq!(from_record(&many).unwrap().0.len(), MOST_RAILS);
        let longest = to_record(&[some; MOST_RAILS], &"x".repeat(99));
        assert_eq!(longest.len(), MOST_RECORD_BYTES);
    }

    #[test]
    fn a_damaged_record_is_refused() {
        let good = to_record(&[(SOME, 1), (SOME, 2)], "n");
        for length in 0..2 + 2 * PORT_BYTES {
            assert!(from_record(&good[..length]).is_none(), "{length} bytes");
        }
        for (at, wrong) in [(0, VERSION), (1, 0), (1, 3), (2, 9), (2 + PORT_BYTES, 9)] {
            let mut bad = good.clone();
            bad[at] = wrong;
            assert!(from_record(&bad).is_none(), "byte {at}");
        }
    }

    #[test]
    fn invalid_port_addresses_are_rejected() {
        let good = SOME.to_bytes();
        assert_eq!(PortAddress::from_bytes(&good[1..]), None);
        for (at, wrong) in [(0, 9), (1, 0), (1, 3), (7, 3), (7, 65)] {
            let mut bad = good;
            bad[at] = wrong;
            assert_eq!(PortAddress::from_bytes(&bad), None, "byte {at}");
        }
    }
}
