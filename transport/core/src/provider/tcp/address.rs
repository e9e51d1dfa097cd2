// SPDX-License-Identifier: MIT OR Apache-2.0
//! The address of a process for this provider: its part of the process's record.
//!
//! | offset | bytes | field     | |
//! |-------:|------:|-----------|-----|
//! |      0 |     1 | version   | [`VERSION`] |
//! |      1 |     1 | count     | of addresses, in at most [`MOST_ADDRESS_BYTES`] |
//! |      2 |     2 | port      | little endian |
//! |      4 |     8 | identity  | of the process, drawn at random: a connecting process sends the identity that it expects |
//! |     12 |     – | addresses | each 4 or 6, and the 4 or 16 bytes of an IP address in network order |
//! |        |       | host      | name of the host, for messages |

use std::collections::HashSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;

/// The address of a process: 24 bytes, which refer to a [`TcpHost`] that all processes of the host share.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct TcpAddress {
    pub(super) host: Arc<TcpHost>,
    /// Identifies the process, since the addresses may lead to another process.
    pub(super) identity: u64,
    port: u16,
}

/// The addresses and the name of a host, as published by its processes.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(super) struct TcpHost {
    addresses: Box<[IpAddr]>,
    /// For messages.
    pub(super) name: Box<str>,
}

/// The hosts of all peers, each stored once.
#[derive(Debug, Default)]
pub(super) struct TcpHosts {
    all: HashSet<Arc<TcpHost>>,
    /// When the table has this many hosts, those that are not in use are removed.
    many: usize,
}

impl TcpAddress {
    /// The socket addresses to connect to.
    pub(super) fn addresses(&self) -> Vec<SocketAddr> {
        let addresses = self.host.addresses.iter();
        addresses
            .map(|address| SocketAddr::new(*address, self.port))
            .collect()
    }
}

impl TcpHosts {
    /// Returns `place` with the stored copy of its host. If there is no copy yet, the host is stored.
    pub(super) fn share(&mut self, place: TcpAddress) -> TcpAddress {
        if self.all.len() >= self.many {
            self.all.retain(|host| Arc::strong_count(host) > 1);
            self.many = 2 * self.all.len().max(8);
        }
        let host = match self.all.get(&place.host) {
            Some(known) => Arc::clone(known),
            None => {
                self.all.insert(Arc::clone(&place.host));
                place.host
            }
        };
        TcpAddress { host, ..place }
    }
}

/// The record of a process with these addresses.
pub(super) fn to_record(addresses: &[IpAddr], port: u16, identity: u64, host: &str) -> Vec<u8> {
    let mut record = vec![VERSION, 0];
    record.extend(port.to_le_bytes());
    record.extend(identity.to_le_bytes());
    for address in &addresses[..how_many_fit(addresses)] {
        record[1] += 1;
        match address {
            IpAddr::V4(address) => {
                record.push(4);
                record.extend(address.octets());
            }
            IpAddr::V6(address) => {
                record.push(6);
                record.extend(address.octets());
            }
        }
    }
    record.extend(host.bytes().take(MOST_HOST_BYTES));
    record
}

/// How many of these addresses fit into a record.
pub(super) fn how_many_fit(addresses: &[IpAddr]) -> usize {
    let ends = addresses.iter().scan(0, |end, address| {
        *end += if address.is_ipv4() { 5 } else { 17 };
        Some(*end)
    });
    ends.take_while(|end| *end <= MOST_ADDRESS_BYTES).count()
}

/// Parses a record; `None`: it is malformed, or of another version.
pub(super) fn from_record(record: &[u8]) -> Option<TcpAddress> {
    let ([version, count, low, high], rest) = record.split_first_chunk()?;
    let (identity, mut rest) = rest.split_first_chunk()?;
    let identity = u64::from_le_bytes(*identity);
    let port = u16::from_le_bytes([*low, *high]);
    if *version != VERSION || port == 0 {
        return None;
    }
    let mut addresses = Vec::new();
    for _ in 0..*count {
        let (family, after) = rest.split_first()?;
        let address: IpAddr = match family {
            4 => Ipv4Addr::from(*after.first_chunk::<4>()?).into(),
            6 => Ipv6Addr::from(*after.first_chunk::<16>()?).into(),
            _ => return None,
        };
        rest = &after[if address.is_ipv4() { 4 } else { 16 }..];
        addresses.push(address);
    }
    // The name is displayed to users.
    let name = String::from_utf8_lossy(rest).replace(char::is_control, "?");
    let host = Arc::new(TcpHost {
        addresses: addresses.into(),
        name: name.into(),
    });
    Some(TcpAddress {
        host,
        identity,
        port,
    })
}

const VERSION: u8 = 2;
const FIXED_BYTES: usize = 12;
/// Maximum number of bytes of addresses: room for four IPv6 addresses, or thirteen IPv4 addresses.
const MOST_ADDRESS_BYTES: usize = 68;
const MOST_HOST_BYTES: usize = 17;
/// Maximum length of this part of a record, in bytes.
pub(in crate::provider) const MOST_RECORD_BYTES: usize =
    FIXED_BYTES + MOST_ADDRESS_BYTES + MOST_HOST_BYTES;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_read_as_it_was_written() {
        let addresses: [IpAddr; 2] = ["10.1.2.3".parse().unwrap(), "fd00::7".parse().unwrap()];
        let record = to_record(&addresses, 777, u64::MAX - 4, "node7");
        let place = from_record(&record).unwrap();
        let expected = addresses.map(|address| SocketAddr::new(address, 777));
        assert_eq!(
            (&*place.addresses(), &*place.host.name),
            (&expected[..], "node7")
        );
        assert_eq!(place.identity, u64::MAX - 4);
        let longest = to_record(&[addresses[1]; 20], 1, 5, &"x".repeat(99));
        assert_eq!(longest.len(), MOST_RECORD_BYTES);
        assert_eq!(from_record(&longest).unwrap().addresses().len(), 4);
        let longest = to_record(&[addresses[0]; 20], 1, 5, &"x".repeat(99));
        assert_eq!(longest.len(), MOST_RECORD_BYTES - 3);
        assert_eq!(from_record(&longest).unwrap().addresses().len(), 13);
        for length in 0..record.len() - 5 {
            assert_eq!(from_record(&record[..length]), None, "{length} bytes");
        }
        for (at, wrong) in [(0, 9), (1, 9), (12, 5)] {
            let mut bad = record.clone();
            bad[at] = wrong;
            assert_eq!(from_record(&bad), None, "byte {at}");
        }
    }

    #[test]
    fn peers_on_one_host_share_its_addresses_and_take_24_bytes_each() {
        assert_eq!(size_of::<TcpAddress>(), 24);
        let address = |host: u8| IpAddr::from([10, 0, 0, host]);
        let read = |host, port| {
            let record = to_record(&[address(host)], port, u64::from(port), "");
            from_record(&record).unwrap()
        };
        let mut hosts = TcpHosts::default();
        let ranks = (0..10).flat_map(|host| (0..64).map(move |rank| (host, rank)));
        let mut kept: Vec<TcpAddress> = ranks
            .map(|(host, rank)| hosts.share(read(host, 1000 + u16::from(host) * 64 + rank)))
            .collect();
        assert_eq!(hosts.all.len(), 10);
        assert!(Arc::ptr_eq(&kept[0].host, &kept[63].host));
        let expected = SocketAddr::new(address(9), 1639);
        assert_eq!(kept[639].addresses(), [expected]);
        // Addresses on further hosts are not kept here, so these hosts do not stay in the table.
        kept.truncate(64);
        for host in 0..=255 {
            hosts.share(read(host, 1));
        }
        assert!(hosts.all.len() <= 32, "{}", hosts.all.len());
    }
}
