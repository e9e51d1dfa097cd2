// SPDX-License-Identifier: MIT OR Apache-2.0
//! Chooses the GID that a port uses among the entries of its GID table, and gives the reason for each entry.
//!
//! On InfiniBand it is the first entry, assigned by the subnet manager, unless the user selects others. On Ethernet the
//! table has an entry for each address of the port's interfaces and each RoCE version, and peers can reach only some of
//! the addresses. Candidates are the entries of RoCE v2 whose interface is up. Link-local addresses are excluded: they
//! are not routed, and are ambiguous on a host with two links. The best candidate is the address that was published
//! before, then one whose interface is on the route to the peers, then one whose interface is visible to this process,
//! then an IPv4 address, then the first in the table.
//!
//! Peers get the address, never its table index: indices differ from host to host, and change.

mod netlink;
mod system;

use std::cmp::Reverse;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::GidPlaces;
use super::address::LinkLayer;
pub(super) use system::{interfaces, route_to};

/// An address in network byte order.
pub(super) type Gid = [u8; 16];

/// An entry of a port's GID table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct GidEntry {
    pub(super) index: u32,
    pub(super) gid: Gid,
    pub(super) kind: GidType,
    /// Index of the network interface that has this address; 0: unknown.
    pub(super) interface: u32,
}

/// The kind of packets that a GID is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum GidType {
    Infiniband,
    RoceV1,
    RoceV2,
}

/// A network interface of this host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct HostInterface {
    /// The kernel's index of the interface.
    pub(super) index: u32,
    pub(super) name: String,
    pub(super) is_up: bool,
    pub(super) addresses: Vec<IpAddr>,
}

/// The interface through which packets to an address leave this host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum HostRoute {
    /// No address was given.
    Anywhere,
    /// The address is one of this host.
    Here,
    /// Through the interface with this index.
    Through(u32),
    /// There is no route.
    Nowhere,
}

/// The GID table entries to choose from.
#[derive(Clone, Copy, Debug)]
pub(super) struct GidTable<'a> {
    pub(super) link: LinkLayer,
    pub(super) entries: &'a [GidEntry],
    pub(super) interfaces: &'a [HostInterface],
}

/// The result of the choice, with the reason for each entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct GidChoice {
    pub(super) all: Vec<GidCandidate>,
    best: Option<usize>,
}

/// An entry, and whether it can be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct GidCandidate {
    pub(super) entry: GidEntry,
    /// Name of the entry's interface; `None`: unknown.
    pub(super) interface: Option<String>,
    pub(super) verdict: Result<Merit, GidFault>,
}

/// Order of preference of usable entries; greater is better.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Merit {
    /// Whether the entry's address was chosen and published before.
    keeps: bool,
    /// Whether packets to the peers leave through the entry's interface.
    on_route: bool,
    /// Whether the entry's interface is visible to this process.
    is_seen: bool,
    is_ipv4: bool,
    name: Reverse<u32>,
}

/// Why an entry cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum GidFault {
    NoAddress,
    /// The entry's index does not fit into the byte that address handles have for it.
    TooFar,
    RoceV1,
    /// Not a RoCE entry, on Ethernet.
    NoRoce,
    LinkLocal,
    Loopback,
    InterfaceDown,
    /// On InfiniBand only the first entry is used, unless the user selects others.
    NotFirst,
    /// The user has selected other indices.
    NotNamed,
}

impl GidChoice {
    /// Chooses an entry for packets on `route`. An entry with the address `keep` is preferred to any other.
    pub(super) fn make(table: GidTable<'_>, route: HostRoute, keep: Option<Gid>) -> Self {
        let assess = |entry: &GidEntry| {
            let interface = table.interface_of(entry);
            let merit = Merit {
                keeps: keep == Some(entry.gid),
                on_route: interface.is_some_and(|found| route == HostRoute::Through(found.index)),
                is_seen: interface.is_some(),
                is_ipv4: as_ipv4(entry.gid).is_some(),
                name: Reverse(entry.index),
            };
            GidCandidate {
                entry: *entry,
                interface: interface.map(|interface| interface.name.clone()),
                verdict: table.fault_of(entry, interface).map_or(Ok(merit), Err),
            }
        };
        let all: Vec<_> = table.entries.iter().map(assess).collect();
        let best = best_of(&all);
        Self { all, best }
    }

    /// Restricts the choice to the entries with these indices. Among these, also admits link-local addresses, and on
    /// InfiniBand entries other than the first.
    pub(super) fn only(mut self, places: GidPlaces) -> Self {
        if places == GidPlaces::ANY {
            return self;
        }
        for candidate in &mut self.all {
            let merit = Merit {
                keeps: false,
                on_route: false,
                is_seen: candidate.interface.is_some(),
                is_ipv4: as_ipv4(candidate.entry.gid).is_some(),
                name: Reverse(candidate.entry.index),
            };
            candidate.verdict = match candidate.verdict {
                _ if !places.has(candidate.entry.index) => Err(GidFault::NotNamed),
                Err(GidFault::LinkLocal | GidFault::NotFirst) => Ok(merit),
                verdict => verdict,
            };
        }
        self.best = best_of(&self.all);
        self
    }

    /// The chosen entry.
    pub(super) fn best(&self) -> Option<&GidCandidate> {
        self.all.get(self.best?)
    }

    /// Why this entry was chosen or not.
    pub(super) fn why(&self, at: usize) -> String {
        let candidate = &self.all[at];
        let name = candidate.interface.as_deref();
        match (candidate.verdict, self.best()) {
            (Err(fault), _) => fault.to_text(name),
            (Ok(merit), Some(best)) if best == candidate => {
                format!("chosen: {}", merit.to_text(name))
            }
            (Ok(merit), best) => {
                let best = best.and_then(|best| best.verdict.ok()).unwrap_or(merit);
                format!("would do, but {}", merit.behind(best))
            }
        }
    }
}

fn best_of(all: &[GidCandidate]) -> Option<usize> {
    let kept = all.iter().enumerate();
    let kept = kept.filter_map(|(at, candidate)| Some((candidate.verdict.ok()?, at)));
    kept.max().map(|(_, at)| at)
}

impl GidCandidate {
    /// Whether the entry is usable, and packets to the peers leave through its interface.
    pub(super) fn is_on_route(&self) -> bool {
        self.verdict.is_ok_and(|merit| merit.on_route)
    }
}

impl GidTable<'_> {
    fn interface_of(&self, entry: &GidEntry) -> Option<&HostInterface> {
        let address = as_ip(entry.gid);
        let is_its = |interface: &&HostInterface| match entry.interface {
            0 => interface.addresses.contains(&address),
            index => interface.index == index,
        };
        self.interfaces.iter().find(is_its)
    }

    fn fault_of(&self, entry: &GidEntry, interface: Option<&HostInterface>) -> Option<GidFault> {
        let faults = match self.link {
            LinkLayer::Infiniband => [
                (entry.gid == [0; 16], GidFault::NoAddress),
                (entry.index != 0, GidFault::NotFirst),
            ]
            .to_vec(),
            LinkLayer::Ethernet => {
                let address = as_ip(entry.gid);
                vec![
                    (entry.gid == [0; 16], GidFault::NoAddress),
                    (entry.kind == GidType::RoceV1, GidFault::RoceV1),
                    (entry.kind == GidType::Infiniband, GidFault::NoRoce),
                    (entry.index > u32::from(u8::MAX), GidFault::TooFar),
                    (is_link_local(address), GidFault::LinkLocal),
                    (address.is_loopback(), GidFault::Loopback),
                    (
                        interface.is_some_and(|interface| !interface.is_up),
                        GidFault::InterfaceDown,
                    ),
                ]
            }
        };
        let found = faults.into_iter().find(|(is_so, _)| *is_so);
        found.map(|(_, fault)| fault)
    }
}

impl Merit {
    fn to_text(self, interface: Option<&str>) -> String {
        let mut reasons = Vec::new();
        if self.keeps {
            reasons.push("it is the announced one".into());
        }
        if self.on_route {
            reasons.push(format!(
                "packets leave through {}",
                interface.unwrap_or("its interface")
            ));
        }
        if self.is_ipv4 {
            reasons.push("RoCE v2 with an IPv4 address".into());
        }
        if reasons.is_empty() {
            reasons.push("the first that serves".into());
        }
        reasons.join(", ")
    }

    /// Why a better entry was preferred to this one.
    fn behind(self, best: Self) -> &'static str {
        match () {
            () if best.keeps && !self.keeps => "the chosen one is announced already",
            () if best.on_route && !self.on_route => "packets do not leave through its interface",
            () if best.is_seen && !self.is_seen => {
                "its interface cannot be seen (it belongs to another network namespace)"
            }
            () if best.is_ipv4 && !self.is_ipv4 => "an IPv4 address is preferred",
            () => "the chosen one stands before it",
        }
    }
}

impl GidFault {
    fn to_text(self, interface: Option<&str>) -> String {
        match self {
            Self::NoAddress => "not used: it is empty".into(),
            Self::TooFar => "not used: work requests reach only the first 256 entries".into(),
            Self::RoceV1 => "not used: RoCE v1, which no router passes on".into(),
            Self::NoRoce => "not used: it is not of RoCE".into(),
            Self::LinkLocal => "not used: link-local; give the interface an address".into(),
            Self::Loopback => "not used: no other host can reach a loopback address".into(),
            Self::InterfaceDown => format!(
                "not used: {0} is down or not running yet (ip link set {0} up; look at its cable)",
                interface.unwrap_or("its interface")
            ),
            Self::NotFirst => "not used: on InfiniBand the first entry counts".into(),
            Self::NotNamed => "not used: RMPI_NET_GID_INDEX does not name its place".into(),
        }
    }
}

impl fmt::Display for GidType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Infiniband => "IB",
            Self::RoceV1 => "RoCE v1",
            Self::RoceV2 => "RoCE v2",
        })
    }
}

/// Table index of the entry for RoCE v2 or InfiniBand with this address; `None`: there is no such entry.
pub(super) fn place_of(gid: Gid, entries: &[GidEntry]) -> Option<u8> {
    let is_it = |entry: &&GidEntry| entry.gid == gid && entry.kind != GidType::RoceV1;
    entries
        .iter()
        .filter(is_it)
        .find_map(|entry| u8::try_from(entry.index).ok())
}

/// The IP address of a RoCE GID.
pub(super) fn as_ip(gid: Gid) -> IpAddr {
    Ipv6Addr::from(gid).to_canonical()
}

/// A GID in text form.
pub(super) fn to_text(gid: Gid) -> String {
    Ipv6Addr::from(gid).to_string()
}

fn as_ipv4(gid: Gid) -> Option<Ipv4Addr> {
    Ipv6Addr::from(gid).to_ipv4_mapped()
}

fn is_link_local(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => address.is_link_local(),
        IpAddr::V6(address) => address.is_unicast_link_local(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gid(text: &str) -> Gid {
        match text.parse().unwrap() {
            IpAddr::V4(address) => address.to_ipv6_mapped().octets(),
            IpAddr::V6(address) => address.octets(),
        }
    }

    fn entry(index: u32, address: &str, kind: GidType, interface: u32) -> GidEntry {
        GidEntry {
            index,
            gid: gid(address),
            kind,
            interface,
        }
    }

    fn interface(index: u32, name: &str, is_up: bool, addresses: &[&str]) -> HostInterface {
        HostInterface {
            index,
            name: name.into(),
            is_up,
            addresses: addresses.iter().map(|one| one.parse().unwrap()).collect(),
        }
    }

    fn table<'a>(entries: &'a [GidEntry], interfaces: &'a [HostInterface]) -> GidTable<'a> {
        GidTable {
            link: LinkLayer::Ethernet,
            entries,
            interfaces,
        }
    }

    /// A typical adapter's table: each address for both RoCE versions, on an untagged network and on a VLAN.
    fn usual() -> ([GidEntry; 8], [HostInterface; 2]) {
        use GidType::{RoceV1, RoceV2};
        let entries = [
            entry(0, "fe80::1", RoceV1, 2),
            entry(1, "fe80::1", RoceV2, 2),
            entry(2, "2001:db8::1", RoceV1, 2),
            entry(3, "2001:db8::1", RoceV2, 2),
            entry(4, "10.0.0.1", RoceV1, 2),
            entry(5, "10.0.0.1", RoceV2, 2),
            entry(6, "10.9.0.1", RoceV1, 3),
            entry(7, "10.9.0.1", RoceV2, 3),
        ];
        let interfaces = [
            interface(2, "eth0", true, &["10.0.0.1", "2001:db8::1"]),
            interface(3, "eth0.9", true, &["10.9.0.1"]),
        ];
        (entries, interfaces)
    }

    fn chosen(choice: &GidChoice) -> Option<u32> {
        choice.best().map(|candidate| candidate.entry.index)
    }

    #[test]
    fn a_roce_v2_ipv4_gid_is_chosen_and_each_entry_has_its_reason() {
        let (entries, interfaces) = usual();
        let choice = GidChoice::make(table(&entries, &interfaces), HostRoute::Anywhere, None);
        assert_eq!(chosen(&choice), Some(5));
        let why: Vec<_> = (0..entries.len()).map(|at| choice.why(at)).collect();
        assert!(why[0].contains("RoCE v1"), "{why:?}");
        assert!(why[1].contains("link-local; give the interface an address"));
        assert_eq!(why[3], "would do, but an IPv4 address is preferred");
        assert_eq!(why[5], "chosen: RoCE v2 with an IPv4 address");
        assert_eq!(why[7], "would do, but the chosen one stands before it");
    }

    #[test]
    fn the_gid_of_the_egress_interface_is_preferred() {
        let (entries, interfaces) = usual();
        let choice = |route| GidChoice::make(table(&entries, &interfaces), route, None);
        let through = choice(HostRoute::Through(3));
        assert_eq!(chosen(&through), Some(7));
        assert!(through.why(7).contains("packets leave through eth0.9"));
        assert!(
            through
                .why(5)
                .contains("do not leave through its interface")
        );
        // A route through another interface does not change the choice.
        for route in [HostRoute::Through(9), HostRoute::Here, HostRoute::Nowhere] {
            assert_eq!(chosen(&choice(route)), Some(5));
        }
    }

    #[test]
    fn the_announced_gid_is_kept_at_any_index() {
        let (mut entries, interfaces) = usual();
        let known = Some(gid("2001:db8::1"));
        let choice = |entries: &[GidEntry]| {
            chosen(&GidChoice::make(
                table(entries, &interfaces),
                HostRoute::Through(3),
                known,
            ))
        };
        assert_eq!(choice(&entries), Some(3));
        entries[3].index = 9;
        assert_eq!(choice(&entries), Some(9));
        assert_eq!(place_of(gid("2001:db8::1"), &entries), Some(9));
        entries[3].gid = gid("2001:db8::2");
        assert_eq!(choice(&entries), Some(7));
        assert_eq!(place_of(gid("2001:db8::1"), &entries), None);
    }

    #[test]
    fn gids_of_an_interface_that_is_down_are_not_used() {
        let (entries, mut interfaces) = usual();
        interfaces[0].is_up = false;
        let choice = GidChoice::make(table(&entries, &interfaces), HostRoute::Anywhere, None);
        assert_eq!(chosen(&choice), Some(7));
        assert_eq!(
            choice.why(5),
            "not used: eth0 is down or not running yet (ip link set eth0 up; look at its cable)"
        );
        interfaces[1].is_up = false;
        let choice = GidChoice::make(table(&entries, &interfaces), HostRoute::Anywhere, None);
        assert_eq!(choice.best(), None);
    }

    #[test]
    fn a_gid_without_an_interface_is_matched_by_address_or_used_last() {
        let entries = [
            entry(1, "10.1.0.1", GidType::RoceV2, 0),
            entry(2, "10.0.0.1", GidType::RoceV2, 0),
        ];
        let interfaces = [interface(4, "eth4", true, &["10.0.0.1"])];
        let choice = GidChoice::make(table(&entries, &interfaces), HostRoute::Anywhere, None);
        assert_eq!(chosen(&choice), Some(2));
        assert_eq!(choice.all[1].interface.as_deref(), Some("eth4"));
        assert!(choice.why(0).contains("another network namespace"));
        let alone = GidChoice::make(table(&entries[..1], &interfaces), HostRoute::Anywhere, None);
        assert_eq!(chosen(&alone), Some(1));
    }

    #[test]
    fn unreachable_gids_are_not_used() {
        for (address, index) in [
            ("127.0.0.1", 1),
            ("::1", 1),
            ("169.254.3.4", 1),
            ("fe80::7", 1),
            ("::", 1),
            ("10.0.0.1", 256),
        ] {
            let entries = [entry(index, address, GidType::RoceV2, 1)];
            let interfaces = [interface(1, "x", true, &[])];
            let choice = GidChoice::make(table(&entries, &interfaces), HostRoute::Anywhere, None);
            assert_eq!(choice.best(), None, "{address}");
            assert!(choice.why(0).starts_with("not used: "), "{}", choice.why(0));
        }
    }

    #[test]
    fn on_infiniband_the_first_gid_is_chosen() {
        let entries = [
            entry(0, "fe80::2:c903:0:1", GidType::Infiniband, 0),
            entry(1, "fe80::5", GidType::Infiniband, 0),
        ];
        let table = GidTable {
            link: LinkLayer::Infiniband,
            entries: &entries,
            interfaces: &[],
        };
        let choice = GidChoice::make(table, HostRoute::Anywhere, None);
        assert_eq!(chosen(&choice), Some(0));
        assert_eq!(choice.why(0), "chosen: the first that serves");
        assert!(choice.why(1).contains("the first entry counts"));
    }

    #[test]
    fn ipv4_gids_are_distinguished_from_ipv6() {
        assert_eq!(as_ip(gid("10.0.0.1")).to_string(), "10.0.0.1");
        assert_eq!(as_ip(gid("2001:db8::1")).to_string(), "2001:db8::1");
        assert_eq!(to_text(gid("10.0.0.1")), "::ffff:10.0.0.1");
    }
}
