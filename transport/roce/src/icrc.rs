// SPDX-License-Identifier: MIT OR Apache-2.0
//! The invariant checksum of a packet: over all that no router changes. IBTA vol. 1 section 7.8.1, annex A17.3.3.
//!
//! It is the CRC-32 of Ethernet over 8 bytes of ones, where InfiniBand has its local header, the IP and UDP headers with some
//! fields as ones (`format/network.rs`), the BTH with its byte 4 as ones, and all that follows, pad included. It stands
//! behind the packet, low byte first.

use crc32fast::Hasher;

use crate::format::{Bth, ICRC_BYTES, Network};

/// A checksum that is being computed: headers first, then the payload piece by piece, then the pad.
#[derive(Clone, Debug)]
pub struct Icrc(Hasher);

impl Icrc {
    /// Begins with the headers: of IP and UDP, and from the BTH to the payload.
    pub fn new(network: &Network, headers: &[u8]) -> Self {
        let mut icrc = Self(Hasher::new_with_initial(CRC_OF_8_ONES));
        icrc.0.update(network.as_bytes());
        if let Some((head, rest)) = headers.split_first_chunk::<{ Bth::BYTES }>() {
            let mut head = *head;
            head[4] = 0xff;
            icrc.0.update(&head);
            icrc.0.update(rest);
        } else {
            icrc.0.update(headers);
        }
        icrc
    }

    /// Goes on with these bytes.
    pub fn add(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    /// The checksum as it stands on the wire.
    pub fn finish(self) -> [u8; ICRC_BYTES] {
        self.0.finalize().to_le_bytes()
    }
}

/// The packet in front of its checksum, if that is right.
pub fn verify<'a>(network: &Network, carried: &'a [u8]) -> Option<&'a [u8]> {
    let (packet, icrc) = carried.split_last_chunk()?;
    (Icrc::new(network, packet).finish() == *icrc).then_some(packet)
}

/// The CRC-32 of 8 bytes 0xff.
const CRC_OF_8_ONES: u32 = !0xdebb_20e3;

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use super::*;

    /// CRC-32 bit by bit, after the definition of Ethernet's.
    fn crc32(bytes: &[u8]) -> u32 {
        let mut register = !0;
        for byte in bytes {
            register ^= u32::from(*byte);
            for _ in 0..8 {
                register = (register >> 1) ^ ((register & 1) * 0xedb8_8320);
            }
        }
        !register
    }

    /// BTH of a SEND_ONLY, and 8 bytes of payload.
    const PACKET: [u8; 20] = [
        4, 0x40, 0xff, 0xff, 0, 0, 0, 17, 0x80, 0, 0, 1, 1, 2, 3, 4, 5, 6, 7, 8,
    ];

    #[test]
    fn the_register_begins_behind_8_ones() {
        assert_eq!(crc32(&[0xff; 8]), CRC_OF_8_ONES);
    }

    #[test]
    fn a17_3_3_over_ipv6_traffic_class_flow_label_and_hop_limit_are_ones() {
        let mut datagram = vec![0x6a, 0xbc, 0xde, 0xf0, 0, 32, 17, 64];
        datagram.extend((0..32).map(|at| 0x20 + at));
        datagram.extend([0xc0, 0x01, 0x12, 0xb7, 0, 32, 0xaa, 0xbb]);
        datagram.extend(PACKET);
        datagram.extend([0; 4]);
        let (network, carried) = Network::parse(&datagram).unwrap();

        let mut covered = vec![0xff; 8];
        covered.extend([0x6f, 0xff, 0xff, 0xff, 0, 32, 17, 0xff]);
        covered.extend((0..32).map(|at| 0x20 + at));
        covered.extend([0xc0, 0x01, 0x12, 0xb7, 0, 32, 0xff, 0xff]);
        covered.extend([4, 0x40, 0xff, 0xff, 0xff, 0, 0, 17, 0x80, 0, 0, 1]);
        covered.extend([1, 2, 3, 4, 5, 6, 7, 8]);
        let wanted = crc32(&covered).to_le_bytes();
        assert_eq!(Icrc::new(&network, &carried[..20]).finish(), wanted);
    }

    #[test]
    fn pieces_give_what_the_whole_gives() {
        let from: SocketAddr = "[fe80::1]:49153".parse().unwrap();
        let to: SocketAddr = "[fe80::2]:4791".parse().unwrap();
        let network = Network::assumed(from, to, 20).unwrap();
        let whole = Icrc::new(&network, &PACKET).finish();
        let mut pieces = Icrc::new(&network, &PACKET[..12]);
        pieces.add(&PACKET[12..15]);
        pieces.add(&[]);
        pieces.add(&PACKET[15..]);
        assert_eq!(pieces.finish(), whole);
        let mut carried = PACKET.to_vec();
        carried.extend(whole);
        assert_eq!(verify(&network, &carried), Some(&PACKET[..]));
        carried[19] ^= 1;
        assert_eq!(verify(&network, &carried), None);
        assert_eq!(verify(&network, &[0; 3]), None);
    }
}
