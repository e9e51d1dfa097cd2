// SPDX-License-Identifier: MIT OR Apache-2.0
//! The IP and UDP headers of a packet, as the ICRC covers them ("as ones": the ICRC is computed with all bits of the
//! field set). Annex A17.3.
//!
//! | header | offset | bits | field                     | in the ICRC |
//! |--------|-------:|-----:|---------------------------|----------------------------------------|
//! | IPv4   |      0 |    4 | version                   | 4 |
//! |        |      0 |    4 | length                    | of this header in 4 bytes, 5 to 15 |
//! |        |      1 |    8 | TOS                       | as ones |
//! |        |      2 |   16 | total length              | from here to the last byte of the ICRC |
//! |        |      4 |   32 | id, fragments             | as sent |
//! |        |      8 |    8 | TTL                       | as ones |
//! |        |      9 |    8 | protocol                  | 17 |
//! |        |     10 |   16 | checksum                  | as ones |
//! |        |     12 |   64 | addresses                 | as sent |
//! | IPv6   |      0 |    4 | version                   | 6 |
//! |        |      0 |   28 | traffic class, flow label | as ones |
//! |        |      4 |   16 | payload length            | of all behind this header |
//! |        |      6 |    8 | next header               | 17: extension headers are not accepted |
//! |        |      7 |    8 | hop limit                 | as ones |
//! |        |      8 |  256 | addresses                 | as sent |
//! | UDP    |      0 |   32 | ports                     | as sent |
//! |        |      4 |   16 | length                    | from here to the last byte of the ICRC |
//! |        |      6 |   16 | checksum                  | as ones |

use std::fmt;
use std::net::SocketAddr;

/// IP and UDP headers of a packet, with the fields that the ICRC does not cover set to ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NetworkHeaders {
    bytes: [u8; Self::BYTES_MAX],
    len: u8,
}

/// The reason why bytes are not a UDP datagram over IP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum NetworkError {
    /// The bytes end within a header.
    Short {
        /// Number of bytes.
        bytes: usize,
        /// Bytes that the header needs.
        wanted: usize,
    },
    /// The IP version is neither 4 nor 6, or the header length is too small.
    Version {
        /// The first byte.
        first: u8,
    },
    /// Not UDP.
    Protocol {
        /// Protocol number in the IP header.
        protocol: u8,
    },
    /// The lengths in the IP and UDP headers contradict each other or the length of the datagram.
    Lengths {
        /// Bytes behind the IP header.
        bytes: usize,
        /// Number of bytes behind the IP header according to the IP header.
        ip: usize,
        /// Number of bytes behind the IP header according to the UDP header.
        udp: usize,
    },
    /// The addresses are of different IP versions.
    Mixed,
}

impl NetworkHeaders {
    /// Length of the longest headers in bytes: IPv4 with all options, and UDP.
    const BYTES_MAX: usize = 60 + UDP_BYTES;

    /// Splits a datagram that begins with its IP header into its headers and its UDP payload. The payload is the packet
    /// and its ICRC; trailing bytes, such as Ethernet's padding, are left out.
    ///
    /// # Errors
    /// The datagram is not UDP over IPv4 or IPv6, or a length is wrong.
    pub fn parse(datagram: &[u8]) -> Result<(Self, &[u8]), NetworkError> {
        let ip = ip_header(datagram)?;
        let rest = datagram.get(ip.bytes..).unwrap_or_default();
        let udp = rest.first_chunk::<UDP_BYTES>().ok_or(NetworkError::Short {
            bytes: datagram.len(),
            wanted: ip.bytes + UDP_BYTES,
        })?;
        let length = usize::from(u16::from_be_bytes([udp[4], udp[5]]));
        let fits = length == ip.behind && length >= UDP_BYTES;
        let carried = rest.get(UDP_BYTES..length).filter(|_| fits);
        let carried = carried.ok_or(NetworkError::Lengths {
            bytes: rest.len(),
            ip: ip.behind,
            udp: length,
        })?;
        let headers = datagram.get(..ip.bytes + UDP_BYTES).unwrap_or_default();
        Ok((Self::masked(headers, ip.bytes), carried))
    }

    /// The headers that the kernel writes for a datagram of an unconnected UDP socket that forbids fragmentation: no IP
    /// options, don't fragment, id 0. With segmentation offload (`UDP_SEGMENT`) only the first segment has id 0: the
    /// other segments are accepted only by peers that ignore the id. `bytes` is the packet's length without the ICRC.
    ///
    /// # Errors
    /// The addresses are of different IP versions.
    pub fn assumed(from: SocketAddr, to: SocketAddr, bytes: u16) -> Result<Self, NetworkError> {
        let udp_bytes = bytes.saturating_add(BEHIND_IP_BYTES);
        let [u0, u1] = udp_bytes.to_be_bytes();
        let ([s0, s1], [d0, d1]) = (from.port().to_be_bytes(), to.port().to_be_bytes());
        let udp = [s0, s1, d0, d1, u0, u1, 0xff, 0xff];
        let mut headers = Self {
            bytes: [0; Self::BYTES_MAX],
            len: 0,
        };
        match (from, to) {
            (SocketAddr::V4(from), SocketAddr::V4(to)) => {
                let [l0, l1] = udp_bytes.saturating_add(20).to_be_bytes();
                headers.push(&[0x45, 0xff, l0, l1, 0, 0, 0x40, 0, 0xff, UDP, 0xff, 0xff]);
                headers.push(&from.ip().octets());
                headers.push(&to.ip().octets());
            }
            (SocketAddr::V6(from), SocketAddr::V6(to)) => {
                headers.push(&[0x6f, 0xff, 0xff, 0xff, u0, u1, UDP, 0xff]);
                headers.push(&from.ip().octets());
                headers.push(&to.ip().octets());
            }
            _ => return Err(NetworkError::Mixed),
        }
        headers.push(&udp);
        Ok(headers)
    }

    /// Appends a part of the headers, as the ICRC covers it.
    #[inline(always)]
    fn push<const N: usize>(&mut self, part: &[u8; N]) {
        let room = self.bytes.get_mut(usize::from(self.len)..);
        if let Some(room) = room.and_then(<[u8]>::first_chunk_mut) {
            *room = *part;
            self.len += u8::try_from(N).unwrap_or(0);
        }
    }

    /// The headers as the ICRC covers them.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len)]
    }

    /// Number of header bytes from the IPv4 id on; `None`: the packet is IPv6.
    pub(crate) fn bytes_from_id(&self) -> Option<usize> {
        let is_four = self.bytes[0] >> 4 == 4;
        is_four.then(|| self.as_bytes().len() - 4)
    }

    /// Sets the fields that the ICRC does not cover to ones. The first `ip_bytes` bytes of `headers`, at most 60, are
    /// the IP header; the UDP header follows.
    fn masked(headers: &[u8], ip_bytes: usize) -> Self {
        let mut bytes = [0; Self::BYTES_MAX];
        bytes[..headers.len()].copy_from_slice(headers);
        if bytes[0] >> 4 == 4 {
            bytes[1] = 0xff;
            bytes[8] = 0xff;
            bytes[10..12].fill(0xff);
        } else {
            bytes[0] |= 0x0f;
            bytes[1..4].fill(0xff);
            bytes[7] = 0xff;
        }
        bytes[ip_bytes + 6..ip_bytes + UDP_BYTES].fill(0xff);
        let len = u8::try_from(headers.len()).unwrap_or(0);
        Self { bytes, len }
    }
}

/// The length of an IP header, and the length that it states for the bytes behind it.
struct IpLengths {
    bytes: usize,
    behind: usize,
}

fn ip_header(datagram: &[u8]) -> Result<IpLengths, NetworkError> {
    let short = |wanted| NetworkError::Short {
        bytes: datagram.len(),
        wanted,
    };
    let first = *datagram.first().ok_or_else(|| short(1))?;
    let (ip, protocol) = match first >> 4 {
        4 => {
            let head: &[u8; 20] = datagram.first_chunk().ok_or_else(|| short(20))?;
            let bytes = usize::from(first & 0x0f) * 4;
            let total = usize::from(u16::from_be_bytes([head[2], head[3]]));
            if bytes < 20 {
                return Err(NetworkError::Version { first });
            }
            let behind = total.saturating_sub(bytes);
            (IpLengths { bytes, behind }, head[9])
        }
        6 => {
            let head: &[u8; 40] = datagram.first_chunk().ok_or_else(|| short(40))?;
            let behind = usize::from(u16::from_be_bytes([head[4], head[5]]));
            (IpLengths { bytes: 40, behind }, head[6])
        }
        _ => return Err(NetworkError::Version { first }),
    };
    match protocol {
        UDP => Ok(ip),
        protocol => Err(NetworkError::Protocol { protocol }),
    }
}

impl fmt::Display for NetworkError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Short { bytes, wanted } => {
                write!(f, "datagram has {bytes} bytes, its headers need {wanted}")
            }
            Self::Version { first } => write!(
                f,
                "datagram begins with 0x{first:02x}, expected IP of version 4 or 6"
            ),
            Self::Protocol { protocol } => {
                write!(f, "datagram is of IP protocol {protocol}, expected {UDP}")
            }
            Self::Lengths { bytes, ip, udp } => write!(
                f,
                "{bytes} bytes follow the IP header, expected {ip} by its length and {udp} by that of the UDP header"
            ),
            Self::Mixed => write!(f, "one address is of IP version 4, the other of 6"),
        }
    }
}

impl std::error::Error for NetworkError {}

/// Length of UDP header and ICRC in bytes.
const BEHIND_IP_BYTES: u16 = 12;
const UDP_BYTES: usize = 8;
/// The protocol number of UDP.
const UDP: u8 = 17;

#[cfg(test)]
mod tests {
    use super::*;

    /// An IPv4 datagram with `carried` bytes of payload.
    fn datagram(carried: u8) -> Vec<u8> {
        let mut bytes = vec![0; 28 + usize::from(carried)];
        bytes[0] = 0x45;
        bytes[3] = 28 + carried;
        bytes[9] = UDP;
        bytes[25] = 8 + carried;
        bytes
    }

    #[test]
    fn udp_payload_is_split_off() {
        let mut bytes = datagram(5);
        bytes.extend([0; 9]);
        let (headers, carried) = NetworkHeaders::parse(&bytes).unwrap();
        assert_eq!((headers.as_bytes().len(), carried.len()), (28, 5));
    }

    #[test]
    fn inconsistent_ip_and_udp_lengths_are_refused() {
        let mut longer = datagram(5);
        longer[25] += 1;
        assert!(matches!(
            NetworkHeaders::parse(&longer),
            Err(NetworkError::Lengths {
                ip: 13,
                udp: 14,
                ..
            })
        ));
        longer[3] += 1;
        assert!(matches!(
            NetworkHeaders::parse(&longer),
            Err(NetworkError::Lengths { bytes: 13, .. })
        ));
        let mut none = datagram(0);
        (none[3], none[25]) = (27, 7);
        assert!(NetworkHeaders::parse(&none).is_err());
    }

    #[test]
    fn malformed_network_headers_do_not_panic() {
        for len in 0..80 {
            for first in [0x00, 0x40, 0x45, 0x4f, 0x60, 0xff] {
                let mut bytes = vec![0xff; len];
                if let Some(byte) = bytes.first_mut() {
                    *byte = first;
                }
                assert!(NetworkHeaders::parse(&bytes).is_err());
            }
        }
    }

    #[test]
    fn mixed_ip_versions_are_refused() {
        let four: SocketAddr = "10.0.0.1:1".parse().unwrap();
        let six: SocketAddr = "[::1]:1".parse().unwrap();
        assert_eq!(
            NetworkHeaders::assumed(four, six, 12),
            Err(NetworkError::Mixed)
        );
    }
}
