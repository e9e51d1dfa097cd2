// SPDX-License-Identifier: MIT OR Apache-2.0
//! Pairs the ports of this process with the ports of a peer; each pair is a link.
//!
//! Both processes compute the same pairs from their two address records. A port has at most one link to a peer.

use session::{CarrierState, Connection};

use super::address::{LinkLayer, PortAddress};
use super::path_mtu::PathMtuProbe;
use super::port::AddressHandle;

/// A port of a peer, as reached over one rail of this process.
#[derive(Debug)]
pub(super) struct PeerPort {
    pub(super) rail: u8,
    /// Index of that port among the ports of the peer.
    pub(super) theirs: u8,
    pub(super) address: Option<PortAddress>,
    pub(super) handle: Option<AddressHandle>,
    /// Earliest time of the next attempt, after an address handle could not be created.
    pub(super) handle_after_ns: u64,
    /// The queue pair, by its index in [`ReliablePairs`](super::pair::ReliablePairs).
    pub(super) connection: Connection<u32>,
    /// The path MTU.
    pub(super) path_mtu: PathMtuProbe,
    /// Reads and writes to be posted, oldest first.
    pub(super) waiting: Vec<u32>,
    /// How often the link's queue pair has broken since the last packet over a queue pair of the link.
    pub(super) breaks: u8,
    /// Whether a work request on this link has failed since the last packet over its queue pair: the peer may be gone.
    /// Flushes and missing receive buffers do not count.
    pub(super) is_suspected: bool,
}

impl PeerPort {
    pub(super) fn new(rail: u8, theirs: u8, address: Option<PortAddress>) -> Self {
        Self {
            rail,
            theirs,
            address,
            handle: None,
            handle_after_ns: 0,
            connection: Connection::new(),
            path_mtu: PathMtuProbe::default(),
            waiting: Vec::new(),
            breaks: 0,
            is_suspected: false,
        }
    }

    /// Whether a queue pair was requested, without an answer yet.
    pub(super) fn is_connecting(&self) -> bool {
        matches!(self.connection.state(), CarrierState::Connecting { .. })
    }

    /// Records that a datagram of the peer arrived on this link. `true`: an echo was awaited because the peer seemed
    /// not to poll; the request is repeated soon.
    pub(super) fn mark_received(&mut self, now_ns: u64) -> bool {
        self.connection.note_reachable();
        let is_back = self.path_mtu.shows_life() && self.is_connecting();
        if is_back {
            self.connection.resend_at(now_ns);
        }
        is_back
    }

    /// MTU to that port, as far as known; `None`: its address is unknown.
    pub(super) fn packet_bytes(&self) -> Option<u32> {
        let port = self.address.map(|address| address.packet_bytes);
        port.map(|bytes| self.path_mtu.limit(bytes))
    }
}

/// Pairs the ports of two processes. Returns pairs of indices into both lists, in the order of `ours`, at least one.
/// `is_first`: whether this process is the first of the two; the peer passes the opposite value.
pub(super) fn pair_up(
    ours: &[PortAddress],
    theirs: &[PortAddress],
    is_first: bool,
) -> Vec<(u8, u8)> {
    let mut all = Vec::new();
    for (our_place, our) in (0_u8..).zip(ours) {
        for (their_place, their) in (0_u8..).zip(theirs) {
            all.push((nearness(our, their), our_place, their_place));
        }
    }
    let rank = |(near, our, their): &(Option<u32>, u8, u8)| {
        let first = if is_first { *our } else { *their };
        (std::cmp::Reverse(*near), (*our).max(*their), first)
    };
    all.sort_by_key(rank);
    let mut table: Vec<(u8, u8)> = Vec::new();
    for (near, our, their) in all {
        let is_taken = table.iter().any(|(a, b)| *a == our || *b == their);
        let have_common_prefix = near.is_some_and(|near| near >= LEAST_NEAR);
        if !is_taken && (have_common_prefix || table.is_empty()) {
            table.push((our, their));
        }
    }
    table.sort_unstable();
    table
}

/// Whether a path from one of our ports to one of theirs exists, as far as their addresses show. Both processes compute
/// the same result.
pub(super) fn is_any_near(ours: &[PortAddress], theirs: &[PortAddress]) -> bool {
    let leads = |our: &PortAddress, their: &PortAddress| nearness(our, their).is_some();
    ours.iter()
        .any(|our| theirs.iter().any(|their| leads(our, their)))
}

/// Why no path leads from our ports to theirs, as text after a colon; `None`: there may be a path.
pub(super) fn why_apart(ours: &[PortAddress], theirs: &[PortAddress]) -> Option<String> {
    if is_any_near(ours, theirs) {
        return None;
    }
    let subnet =
        |port: &PortAddress| u64::from_be_bytes(*port.gid.first_chunk().unwrap_or(&[0; 8]));
    let one = (ours.first()?, theirs.first()?);
    let link = one.0.link;
    Some(match surely_apart(ours, theirs) {
        Some(why) => why,
        None if link != one.1.link => "their ports have no network in common".to_owned(),
        None if link == LinkLayer::Infiniband => format!(
            "their ports are on different subnets of InfiniBand ({:#x} and {:#x})",
            subnet(one.0),
            subnet(one.1)
        ),
        None => "ports of the one have IPv4 addresses, those of the other IPv6 ones".to_owned(),
    })
}

/// Why no path can exist; then no attempt is made. `None`: that is not certain.
pub(super) fn surely_apart(ours: &[PortAddress], theirs: &[PortAddress]) -> Option<String> {
    if let Some((our, their)) = kinds_apart(ours, theirs) {
        return Some(format!(
            "ports of the one are on {our}, those of the other on {their}"
        ));
    }
    let may_reach = |our: &PortAddress, their: &PortAddress| {
        our.link == their.link && (our.link == LinkLayer::Infiniband || our.may_reach(their))
    };
    let is_any = ours
        .iter()
        .any(|our| theirs.iter().any(|their| may_reach(our, their)));
    (!is_any).then(|| {
        format!(
            "the one has an adapter, which sends to UDP port {} alone, and the other, which has none, is at another port",
            roce::format::PORT
        )
    })
}

/// If all our ports are on one kind of network and all theirs on the other: the names of both kinds.
fn kinds_apart(
    ours: &[PortAddress],
    theirs: &[PortAddress],
) -> Option<(&'static str, &'static str)> {
    let (our, their) = (ours.first()?.link, theirs.first()?.link);
    let are_apart = ours.iter().all(|port| port.link == our)
        && theirs.iter().all(|port| port.link == their)
        && our != their;
    let name = |kind| match kind {
        LinkLayer::Infiniband => "InfiniBand",
        LinkLayer::Ethernet => "Ethernet (RoCE)",
    };
    are_apart.then(|| (name(our), name(their)))
}

/// How near two addresses are. For IPv4: bits of their common prefix, at most 24. For IPv6: a quarter of these bits, at
/// most 16. For InfiniBand: 64. `None`: no path leads from one to the other.
fn nearness(one: &PortAddress, other: &PortAddress) -> Option<u32> {
    if one.link != other.link {
        return None;
    }
    let (one_is_v4, other_is_v4) = (is_mapped(&one.gid), is_mapped(&other.gid));
    let common = (u128::from_be_bytes(one.gid) ^ u128::from_be_bytes(other.gid)).leading_zeros();
    match one.link {
        // Only ports of one subnet (the prefix of 64 bits) reach each other: no routers between subnets are expected.
        LinkLayer::Infiniband => (common >= 64).then_some(64),
        LinkLayer::Ethernet if one_is_v4 != other_is_v4 || !one.may_reach(other) => None,
        // The prefix lengths are not known. Most networks have /24, so further common bits do not count.
        LinkLayer::Ethernet if one_is_v4 => Some((common - MAPPED_BITS).min(24)),
        LinkLayer::Ethernet => Some(common.min(64) / 4),
    }
}

/// Whether a GID is an IPv4-mapped address.
fn is_mapped(gid: &[u8; 16]) -> bool {
    gid[..12] == [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff]
}

/// Length of the prefix of IPv4-mapped GIDs, in bits.
const MAPPED_BITS: u32 = 96;
/// Ports with a lower [`nearness`] than this are most likely on separate networks.
const LEAST_NEAR: u32 = 16;

#[cfg(test)]
mod tests {
    use super::*;

    fn v4(last: [u8; 4]) -> PortAddress {
        let mut gid = [0; 16];
        gid[10..12].copy_from_slice(&[0xff, 0xff]);
        gid[12..].copy_from_slice(&last);
        PortAddress {
            link: LinkLayer::Ethernet,
            lid: 0,
            number: 9,
            packet_bytes: 1024,
            gid,
        }
    }

    fn infiniband(subnet: u8, lid: u16) -> PortAddress {
        let mut gid = [0; 16];
        (gid[0], gid[7], gid[15]) = (0xfe, subnet, 1);
        PortAddress {
            link: LinkLayer::Infiniband,
            lid,
            gid,
            ..v4([0; 4])
        }
    }

    /// The table, checked to be the same at the other end.
    fn both(ours: &[PortAddress], theirs: &[PortAddress]) -> Vec<(u8, u8)> {
        let table = pair_up(ours, theirs, true);
        let mut other: Vec<_> = pair_up(theirs, ours, false)
            .into_iter()
            .map(|(a, b)| (b, a))
            .collect();
        other.sort_unstable();
        assert_eq!(table, other, "both sides agree");
        let have_common_prefix = is_any_near(ours, theirs);
        assert_eq!(
            have_common_prefix,
            is_any_near(theirs, ours),
            "both sides agree"
        );
        table
    }

    #[test]
    fn ports_of_one_network_are_paired_in_their_order() {
        let ours = [v4([10, 0, 0, 1]), v4([10, 0, 0, 2]), v4([10, 0, 0, 3])];
        let theirs = [v4([10, 0, 0, 9]), v4([10, 0, 0, 8])];
        assert_eq!(both(&ours, &theirs), [(0, 0), (1, 1)]);
        assert_eq!(both(&ours[..1], &theirs), [(0, 0)]);
    }

    #[test]
    fn ports_are_paired_within_their_network() {
        let ours = [v4([10, 0, 7, 1]), v4([10, 1, 7, 1])];
        let theirs = [v4([10, 1, 7, 2]), v4([10, 0, 7, 2])];
        assert_eq!(both(&ours, &theirs), [(0, 1), (1, 0)]);
        let ours = [infiniband(1, 5), infiniband(2, 6)];
        let theirs = [infiniband(2, 7), infiniband(1, 8)];
        assert_eq!(both(&ours, &theirs), [(0, 1), (1, 0)]);
    }

    #[test]
    fn ports_of_separate_networks_are_not_paired() {
        let ours = [v4([10, 0, 0, 1]), v4([192, 168, 0, 1])];
        let theirs = [v4([10, 0, 0, 2]), v4([172, 16, 0, 1])];
        assert_eq!(both(&ours, &theirs), [(0, 0)]);
        let ours = [infiniband(1, 5), v4([10, 0, 0, 1])];
        let theirs = [v4([10, 0, 0, 2]), infiniband(2, 5)];
        assert_eq!(both(&ours, &theirs), [(1, 0)]);
    }

    #[test]
    fn without_a_common_network_the_first_ports_are_paired() {
        let table = both(&[infiniband(1, 5)], &[infiniband(2, 6), v4([10, 0, 0, 1])]);
        assert_eq!(table, [(0, 0)]);
    }

    #[test]
    fn ports_of_separate_fabrics_are_unreachable() {
        let (one, other, roce) = (infiniband(1, 5), infiniband(2, 6), v4([10, 0, 0, 1]));
        assert!(!is_any_near(&[one], &[other, roce]));
        let why = |ours: &[PortAddress], theirs: &[PortAddress]| {
            why_apart(ours, theirs).unwrap_or_default()
        };
        assert!(why(&[one], &[other]).contains("different subnets of InfiniBand (0x"));
        assert!(
            why(&[one], &[roce]).contains("on InfiniBand, those of the other on Ethernet (RoCE)")
        );
        assert!(why(&[roce, one], &[other]).contains("no network in common"));
        assert_eq!(why_apart(&[one, roce], &[other, roce]), None);
        assert!(is_any_near(&[one, roce], &[other, roce]));
        assert!(is_any_near(&[other], &[infiniband(2, 9)]));
        // Addresses do not show which networks are connected by IP routers.
        assert!(is_any_near(&[roce], &[v4([192, 168, 0, 1])]));
        assert_eq!(surely_apart(&[one], &[other, roce]), None);
        let why = surely_apart(&[one, other], &[roce]).unwrap();
        assert!(why.contains("on InfiniBand, those of the other on Ethernet (RoCE)"));
    }

    #[test]
    fn adapters_reach_software_roce_only_at_udp_port_4791() {
        let adapter = v4([10, 0, 0, 1]);
        let program = |lid| PortAddress {
            lid,
            ..v4([10, 0, 0, 2])
        };
        assert!(is_any_near(&[adapter], &[program(4791)]));
        assert!(is_any_near(&[program(4791)], &[program(50_000)]));
        assert!(is_any_near(&[program(50_001)], &[program(50_000)]));
        let why = why_apart(&[program(50_000)], &[adapter]).unwrap();
        assert_eq!(
            Some(&why),
            why_apart(&[adapter], &[program(50_000)]).as_ref()
        );
        assert!(
            why.starts_with("the one has an adapter, which sends to UDP port 4791 alone"),
            "{why}"
        );
        let why = why_apart(&[adapter, infiniband(1, 2)], &[program(50_000)]).unwrap();
        assert!(why.contains("at another port"), "{why}");
        let table = both(&[adapter], &[program(50_000), program(4791)]);
        assert_eq!(table, [(0, 1)]);
    }

    #[test]
    fn both_sides_pair_any_two_port_lists_alike() {
        let some = |seed: u32| {
            let count = 1 + seed % 4;
            let port = |place: u32| {
                let draw = (seed * 7919 + place * 104_729) >> 3;
                let [a, b, ..] = draw.to_le_bytes();
                match draw % 3 {
                    0 => infiniband(a % 2, u16::from(b)),
                    _ => v4([10, a % 2, b % 2, a]),
                }
            };
            (0..count).map(port).collect::<Vec<_>>()
        };
        for seed in 0..2000 {
            let table = both(&some(seed), &some(seed * 31 + 5));
            assert!(!table.is_empty());
        }
    }
}
