// SPDX-License-Identifier: MIT OR Apache-2.0
//! The invariant CRC (ICRC) of a packet: it covers every field that routers do not change. IBTA vol. 1 section 7.8.1,
//! annex A17.3.3.
//!
//! It is Ethernet's CRC-32 over 8 bytes 0xff (in place of InfiniBand's local route header), the IP and UDP headers with
//! the variant fields set to ones (`format/network.rs`), the BTH with its byte 4 set to ones, and all bytes that
//! follow, pad included. The ICRC follows the packet, least significant byte first.

use std::net::SocketAddr;

use crc32fast::Hasher;

use crate::format::{Bth, ICRC_BYTES, NetworkError, NetworkHeaders};

/// The part of an ICRC that covers the IP and UDP headers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IcrcPrefix {
    crc: u32,
    /// Number of header bytes from the IPv4 id on; 0: the packet is IPv6.
    bytes_from_id: u8,
}

impl From<&NetworkHeaders> for IcrcPrefix {
    fn from(network: &NetworkHeaders) -> Self {
        let mut crc = Hasher::new_with_initial(CRC_OF_8_ONES);
        crc.update(network.as_bytes());
        let from_id = network.bytes_from_id().unwrap_or(0);
        Self {
            crc: crc.finalize(),
            bytes_from_id: u8::try_from(from_id).unwrap_or(0),
        }
    }
}

/// Prefixes computed recently. Most packets have the addresses and the length of one of the last few.
#[derive(Debug)]
pub struct RecentPrefixes([Option<RecentPrefix>; RECENT_PREFIXES]);

#[derive(Clone, Copy, Debug)]
struct RecentPrefix {
    from: SocketAddr,
    to: SocketAddr,
    bytes: u16,
    prefix: IcrcPrefix,
}

impl Default for RecentPrefixes {
    fn default() -> Self {
        Self([None; RECENT_PREFIXES])
    }
}

impl RecentPrefixes {
    /// The prefix for the headers that the kernel writes ([`NetworkHeaders::assumed`]).
    ///
    /// # Errors
    /// The addresses are of different IP versions.
    #[inline(always)]
    pub fn assumed(
        &mut self,
        from: SocketAddr,
        to: SocketAddr,
        bytes: u16,
    ) -> Result<IcrcPrefix, NetworkError> {
        // Lengths are multiples of 4.
        let recent = &mut self.0[usize::from(bytes / 4) % RECENT_PREFIXES];
        match recent {
            Some(it) if it.bytes == bytes && it.from == from && it.to == to => Ok(it.prefix),
            _ => compute(recent, from, to, bytes),
        }
    }
}

#[inline(never)]
fn compute(
    recent: &mut Option<RecentPrefix>,
    from: SocketAddr,
    to: SocketAddr,
    bytes: u16,
) -> Result<IcrcPrefix, NetworkError> {
    let prefix = IcrcPrefix::from(&NetworkHeaders::assumed(from, to, bytes)?);
    *recent = Some(RecentPrefix {
        from,
        to,
        bytes,
        prefix,
    });
    Ok(prefix)
}

/// An ICRC that is being computed: of the headers first, then of the payload part by part, then of the pad.
#[derive(Clone, Debug)]
pub struct Icrc(Hasher);

impl Icrc {
    /// Begins with the headers: IP and UDP, then the BTH and what follows it.
    #[inline]
    pub fn new(prefix: impl Into<IcrcPrefix>, headers: &[u8]) -> Self {
        let mut icrc = Self(Hasher::new_with_initial(prefix.into().crc));
        // Every update takes a fixed time beside that for its bytes.
        if let Some((head, rest)) = headers.split_first_chunk::<MASKED_BYTES>() {
            let mut head = *head;
            head[4] = 0xff;
            icrc.0.update(&head);
            icrc.0.update(rest);
        } else if headers.len() >= Bth::BYTES {
            let mut head = [0; MASKED_BYTES];
            head[..headers.len()].copy_from_slice(headers);
            head[4] = 0xff;
            icrc.0.update(&head[..headers.len()]);
        } else {
            icrc.0.update(headers);
        }
        icrc
    }

    /// Continues the ICRC over `bytes`.
    pub fn add(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    /// The CRC-32 of all bytes so far, for a caller that continues the computation by other means.
    pub fn so_far(&self) -> u32 {
        self.0.clone().finalize()
    }

    /// The ICRC as it is on the wire.
    pub fn finish(self) -> [u8; ICRC_BYTES] {
        self.0.finalize().to_le_bytes()
    }
}

/// The packet without its ICRC; `None`: the ICRC is wrong.
#[inline]
pub fn verify(prefix: impl Into<IcrcPrefix>, carried: &[u8]) -> Option<&[u8]> {
    let (packet, icrc) = carried.split_last_chunk()?;
    (Icrc::new(prefix, packet).finish() == *icrc).then_some(packet)
}

/// The packet without its ICRC; `None`: the ICRC is wrong for every possible IPv4 id. This is for a receiver that does
/// not see the identification field of the IPv4 header, which each system chooses freely: `prefix` has 0 in that
/// field. Of corrupt packets, one in 65,536 is accepted; with [`verify`] it is one in 2^32.
///
/// A CRC is linear: an id contributes the CRC of its own 16 bits, advanced over the bytes that follow it. So the
/// difference between the computed and the received ICRC, moved back over as many bytes, must fit in 16 bits.
pub fn verify_but_id(prefix: impl Into<IcrcPrefix>, carried: &[u8]) -> Option<&[u8]> {
    let prefix = prefix.into();
    let (packet, icrc) = carried.split_last_chunk()?;
    let assumed = Icrc::new(prefix, packet).finish();
    let difference = u32::from_le_bytes(assumed) ^ u32::from_le_bytes(*icrc);
    if difference == 0 {
        return Some(packet);
    }
    if prefix.bytes_from_id == 0 {
        return None;
    }
    let from_id = usize::from(prefix.bytes_from_id) + packet.len();
    let id = multiplied(difference, back_over(from_id));
    u16::try_from(id).is_ok().then_some(packet)
}

/// The factor that moves the CRC register back over `bytes` bytes: x^(-8 · bytes).
fn back_over(bytes: usize) -> u32 {
    let powers = BACK.iter().enumerate();
    powers
        .filter(|(power, _)| bytes >> power & 1 == 1)
        .fold(ONE, |factor, (_, back)| multiplied(factor, *back))
}

/// The product of two polynomials modulo the polynomial of the CRC; the lowest power is in the highest bit.
const fn multiplied(one: u32, mut other: u32) -> u32 {
    let mut product = 0;
    let mut bit = ONE;
    while bit != 0 {
        if one & bit != 0 {
            product ^= other;
        }
        other = (other >> 1) ^ ((other & 1) * POLYNOMIAL);
        bit >>= 1;
    }
    product
}

/// The factors that move back over 1, 2, 4, … bytes. Products of these factors move back over any number of bytes that
/// a datagram can have.
const BACK: [u32; 16] = {
    let mut one_byte = ONE;
    let mut bits = 0;
    while bits < 8 {
        // The highest bit is set if the forward step, which is undone here, added the polynomial.
        let was_added = one_byte >> 31;
        one_byte = ((one_byte ^ (was_added * POLYNOMIAL)) << 1) | was_added;
        bits += 1;
    }
    let mut powers = [one_byte; 16];
    let mut power = 1;
    while power < powers.len() {
        powers[power] = multiplied(powers[power - 1], powers[power - 1]);
        power += 1;
    }
    powers
};
const ONE: u32 = 1 << 31;
/// The polynomial of CRC-32; the lowest power is in the highest bit.
const POLYNOMIAL: u32 = 0xedb8_8320;
/// Number of bytes at the beginning of a packet that are copied to mask one of them.
const MASKED_BYTES: usize = 64;
const RECENT_PREFIXES: usize = 8;
/// The CRC-32 of 8 bytes 0xff.
const CRC_OF_8_ONES: u32 = !0xdebb_20e3;

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use super::*;

    /// CRC-32 bit by bit, as IEEE 802.3 defines it.
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
    fn crc_starts_after_8_bytes_of_ones() {
        assert_eq!(crc32(&[0xff; 8]), CRC_OF_8_ONES);
    }

    #[test]
    fn a17_3_3_over_ipv6_traffic_class_flow_label_and_hop_limit_are_ones() {
        let mut datagram = vec![0x6a, 0xbc, 0xde, 0xf0, 0, 32, 17, 64];
        datagram.extend((0..32).map(|at| 0x20 + at));
        datagram.extend([0xc0, 0x01, 0x12, 0xb7, 0, 32, 0xaa, 0xbb]);
        datagram.extend(PACKET);
        datagram.extend([0; 4]);
        let (network, carried) = NetworkHeaders::parse(&datagram).unwrap();

        let mut covered = vec![0xff; 8];
        covered.extend([0x6f, 0xff, 0xff, 0xff, 0, 32, 17, 0xff]);
        covered.extend((0..32).map(|at| 0x20 + at));
        covered.extend([0xc0, 0x01, 0x12, 0xb7, 0, 32, 0xff, 0xff]);
        covered.extend([4, 0x40, 0xff, 0xff, 0xff, 0, 0, 17, 0x80, 0, 0, 1]);
        covered.extend([1, 2, 3, 4, 5, 6, 7, 8]);
        let wanted = crc32(&covered).to_le_bytes();
        assert_eq!(Icrc::new(&network, &carried[..20]).finish(), wanted);
    }

    /// A packet with `bytes` bytes added; its IPv4 header has this id. Returns the headers that a receiver with a
    /// socket assumes (id 0), and the bytes that it receives.
    fn with_id(id: u16, bytes: u8) -> (NetworkHeaders, Vec<u8>) {
        let mut packet = PACKET.to_vec();
        packet.extend(0..bytes);
        let from: SocketAddr = "10.77.0.1:49153".parse().unwrap();
        let to: SocketAddr = "10.77.0.2:4791".parse().unwrap();
        let assumed = NetworkHeaders::assumed(from, to, packet.len().try_into().unwrap()).unwrap();
        let mut datagram = assumed.as_bytes().to_vec();
        datagram[4..6].copy_from_slice(&id.to_be_bytes());
        datagram.extend(&packet);
        datagram.extend([0; ICRC_BYTES]);
        let (seen, _) = NetworkHeaders::parse(&datagram).unwrap();
        packet.extend(Icrc::new(&seen, &packet).finish());
        (assumed, packet)
    }

    #[test]
    fn packet_verifies_with_any_ip_id() {
        for bytes in [0, 1, 4, 77, 255] {
            for id in [0, 1, 2, 0x8000, 0x1234, 0xffff]
                .into_iter()
                .chain((0..0xffff).step_by(997))
            {
                let (assumed, carried) = with_id(id, bytes);
                let packet = carried.split_last_chunk::<ICRC_BYTES>().unwrap().0;
                assert_eq!(
                    verify_but_id(&assumed, &carried),
                    Some(packet),
                    "{id} {bytes}"
                );
                assert_eq!(verify(&assumed, &carried).is_some(), id == 0);
            }
        }
    }

    #[test]
    fn bit_flip_is_not_mistaken_for_another_ip_id() {
        let (assumed, carried) = with_id(0x2b67, 200);
        for bit in 0..carried.len() * 8 {
            // Byte 4 of a BTH is not covered.
            if bit / 8 == 4 {
                continue;
            }
            let mut changed = carried.clone();
            changed[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(verify_but_id(&assumed, &changed), None, "bit {bit}");
        }
    }

    #[test]
    fn random_packets_rarely_pass_as_another_ip_id() {
        let (assumed, mut carried) = with_id(7, 40);
        let mut state = 1_u32;
        let mut passed = 0;
        for _ in 0..200_000 {
            for byte in &mut carried {
                state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                *byte = state.to_be_bytes()[0];
            }
            passed += usize::from(verify_but_id(&assumed, &carried).is_some());
        }
        // On average one packet in 65,536 passes by chance, so about three are expected.
        assert!(passed < 20, "{passed}");
    }

    #[test]
    fn ipv6_packets_verify_without_an_id() {
        let from: SocketAddr = "[fe80::1]:49153".parse().unwrap();
        let to: SocketAddr = "[fe80::2]:4791".parse().unwrap();
        let network = NetworkHeaders::assumed(from, to, 20).unwrap();
        let mut carried = PACKET.to_vec();
        carried.extend(Icrc::new(&network, &PACKET).finish());
        assert_eq!(verify_but_id(&network, &carried), Some(&PACKET[..]));
        carried[3] ^= 1;
        assert_eq!(verify_but_id(&network, &carried), None);
        assert_eq!(verify_but_id(&network, &[0; 3]), None);
    }

    #[test]
    fn recent_prefixes_are_those_of_their_addresses_and_length() {
        const { assert!(RECENT_PREFIXES == 8, "52 takes the place of 20") };
        let addresses: Vec<SocketAddr> = ["10.0.0.1:5", "10.0.0.1:6", "10.0.0.2:5"]
            .map(|it| it.parse().unwrap())
            .into();
        let mut recent = RecentPrefixes::default();
        for _ in 0..3 {
            for bytes in [20, 24, 52, 21] {
                for (from, to) in [(0, 1), (1, 0), (0, 2), (2, 0), (1, 2)] {
                    let (from, to) = (addresses[from], addresses[to]);
                    let anew = NetworkHeaders::assumed(from, to, bytes).unwrap();
                    let wanted = IcrcPrefix::from(&anew);
                    assert_eq!(recent.assumed(from, to, bytes), Ok(wanted));
                    assert_eq!(recent.assumed(from, to, bytes), Ok(wanted));
                }
            }
        }
        let six = "[::1]:5".parse().unwrap();
        assert!(recent.assumed(addresses[0], six, 20).is_err());
    }

    #[test]
    fn icrc_of_pieces_equals_icrc_of_the_whole() {
        let from: SocketAddr = "[fe80::1]:49153".parse().unwrap();
        let to: SocketAddr = "[fe80::2]:4791".parse().unwrap();
        let network = NetworkHeaders::assumed(from, to, 20).unwrap();
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
