// SPDX-License-Identifier: MIT OR Apache-2.0
//! The report of `rmpi-info` on this host's devices, ports, GIDs and lockable memory.

use std::net::IpAddr;

use locked_memory::LockedMemory;

use super::address::LinkLayer;
use super::bounce::Bounces;
use super::choose::{fit, is_allowed, rails};
use super::device::{DiscoveredDevice, DiscoveredPort, list};
use super::error_text::{of_registration, remedy_of, state_text};
use super::fetch::POOR_READS;
use super::gid::{self, HostInterface, HostRoute};
use super::pair::ReliablePair;
use super::pools::{RecvPool, SendPool};
use super::port::{CallError, PortAttr, RegionAccess};
use super::settings::NetworkSettings;
use super::{COMPLETION_BYTES, NetLimits};
use crate::net_info::{DeviceReport, Egress, Gid, LockedMemoryReport, NetReport, PortReport};

/// Reports on this host, and on the route to `peer`.
pub(crate) fn inspect(network: &NetworkSettings, peer: Option<IpAddr>) -> NetReport {
    let (devices, limits) = (&*network.devices, &network.limits);
    let route = peer.map(gid::route_to);
    let known = match &route {
        Some(Ok(route)) => *route,
        _ => HostRoute::Anywhere,
    };
    let found = list(known, &limits.terms).map_err(|error| error.to_string());
    let interfaces = gid::interfaces().unwrap_or_default();
    let device = |device: &DiscoveredDevice| DeviceReport {
        name: device.name.clone(),
        ports: match &device.ports {
            Ok(ports) => Ok(ports
                .iter()
                .map(|port| port_report(port, devices, known))
                .collect()),
            Err(error) => Err(error.to_string()),
        },
    };
    let fit = found.as_ref().map_or(0, |found| fit(found, devices).len());
    let rails = rails(network.rails, fit);
    NetReport {
        rails: u32::try_from(rails).unwrap_or(0),
        rendezvous: network.rendezvous,
        devices: found.map(|found| found.iter().map(device).collect()),
        egress: route.map(|route| match route {
            Ok(route) => egress(route, &interfaces),
            Err(error) => Egress::Unknown(error.to_string()),
        }),
        memory: memory(LockedMemory::now(), rails.max(1), limits),
    }
}

/// Error message for a port that cannot be opened.
pub(super) fn cannot_open(error: &CallError, facts: &PortAttr) -> String {
    let (first, _) = registered_bytes(&NetLimits::default(), 1);
    let first = u64::try_from(first).unwrap_or(0);
    match error.call {
        "ibv_reg_mr" => of_registration(error, facts, first, LockedMemory::now()),
        _ => error.to_string(),
    }
}

fn port_report(port: &DiscoveredPort, devices: &str, route: HostRoute) -> PortReport {
    let best = port.gids.best();
    let gid = |(at, candidate): (usize, &gid::GidCandidate)| Gid {
        index: candidate.entry.index,
        text: gid::to_text(candidate.entry.gid),
        kind: candidate.entry.kind.to_string(),
        interface: candidate.interface.clone(),
        is_chosen: best == Some(candidate),
        why: port.gids.why(at),
    };
    let has_route =
        port.link == Some(LinkLayer::Ethernet) && matches!(route, HostRoute::Through(_));
    PortReport {
        name: format!("{}:{}", port.device, port.port),
        link: match port.link {
            Some(LinkLayer::Ethernet) => "RoCE",
            Some(LinkLayer::Infiniband) => "InfiniBand",
            None => "neither InfiniBand nor Ethernet",
        },
        state: state_text(port.state),
        lid: (port.link == Some(LinkLayer::Infiniband)).then_some(port.lid),
        packet_bytes: port.packet_bytes,
        rate_mbps: port.rate_mbps,
        reads_poorly: port.reads <= POOR_READS,
        gids: port.gids.all.iter().enumerate().map(gid).collect(),
        unfit: port.unfit.map(|why| why.to_string()),
        is_allowed: is_allowed(port, devices),
        leads_there: has_route.then(|| best.is_some_and(gid::GidCandidate::is_on_route)),
    }
}

fn egress(route: HostRoute, interfaces: &[HostInterface]) -> Egress {
    let name = |index| interfaces.iter().find(|one| one.index == index);
    match route {
        HostRoute::Here => Egress::Here,
        HostRoute::Nowhere => Egress::Nowhere,
        HostRoute::Through(index) => Egress::Through(
            name(index).map_or_else(|| format!("interface {index}"), |one| one.name.clone()),
        ),
        HostRoute::Anywhere => Egress::Unknown("no address was given".into()),
    }
}

fn memory(locked: LockedMemory, rails: usize, limits: &NetLimits) -> LockedMemoryReport {
    let (first, most) = registered_bytes(limits, rails);
    let [first_bytes, most_bytes] = [first, most].map(|bytes| u64::try_from(bytes).unwrap_or(0));
    LockedMemoryReport {
        limit_bytes: locked.limit_bytes,
        first_bytes,
        most_bytes,
        remedy: remedy_of(locked, most_bytes),
    }
}

/// Bytes that a process with `rails` rails registers: at its first send over the network, and the maximum while no
/// large messages are in flight. Each rail registers the send slots too. Both results include the queues, as far as
/// their sizes are known before a device makes them. The second one also includes the bounce buffers of a job that is
/// not very large.
fn registered_bytes(limits: &NetLimits, rails: usize) -> (usize, usize) {
    let receives = RecvPool::new(0, limits.terms.most_packet_bytes(), limits);
    let sends = SendPool::new();
    let queues = 2 * COMPLETION_BYTES * limits.depths().completions as usize;
    let first = sends.first_bytes() + receives.first_bytes();
    let mut bounces = Bounces::new(RegionAccess::Own, limits.copied_bytes);
    bounces.grant(usize::MAX);
    let bounces = 2 * bounces.most_bytes();
    let most = sends.most_bytes() + receives.most_bytes();
    let pairs = limits.pairs as usize * ReliablePair::most_bytes(limits);
    (
        rails * (queues + first),
        rails * (queues + most) + pairs + bounces,
    )
}

#[cfg(test)]
mod tests {
    use super::super::NetTerms;
    use super::super::address::LinkLayer;
    use super::super::error_text::Unfit;
    use super::super::gid::{GidChoice, GidEntry, GidTable, GidType};
    use super::*;
    use std::net::Ipv4Addr;

    fn interface(index: u32, name: &str, last: u8) -> HostInterface {
        HostInterface {
            index,
            name: name.into(),
            is_up: true,
            addresses: vec![IpAddr::from([10, 0, 0, last])],
        }
    }

    /// A port with an address of the interface `index`.
    fn port(index: u32, route: HostRoute) -> DiscoveredPort {
        let entry = GidEntry {
            index: 1,
            gid: Ipv4Addr::new(10, 0, 0, 1).to_ipv6_mapped().octets(),
            kind: GidType::RoceV2,
            interface: index,
        };
        let table = GidTable {
            link: LinkLayer::Ethernet,
            entries: &[entry],
            interfaces: &[interface(7, "veth0", 1), interface(8, "veth1", 2)],
        };
        DiscoveredPort {
            in_software: false,
            partition: 0,
            device: "rxe0".into(),
            port: 1,
            link: Some(LinkLayer::Ethernet),
            state: 4,
            lid: 0,
            packet_bytes: 1024,
            rate_mbps: 10_000,
            reads: 16,
            gids: GidChoice::make(table, route, None),
            unfit: None,
        }
    }

    #[test]
    fn a_usable_port_is_used_if_the_setting_allows_it() {
        let found = port_report(&port(7, HostRoute::Anywhere), "", HostRoute::Anywhere);
        assert_eq!(
            (&*found.name, found.link, found.state, found.lid),
            ("rxe0:1", "RoCE", "active", None)
        );
        assert!(found.is_used() && found.leads_there.is_none() && !found.reads_poorly);
        let poor = DiscoveredPort {
            reads: 1,
            ..port(7, HostRoute::Anywhere)
        };
        assert!(port_report(&poor, "", HostRoute::Anywhere).reads_poorly);
        let [gid] = &found.gids[..] else { panic!() };
        assert!(gid.is_chosen && gid.why.starts_with("chosen: "), "{gid:?}");
        assert_eq!(
            (&*gid.text, &*gid.kind, gid.interface.as_deref()),
            ("::ffff:10.0.0.1", "RoCE v2", Some("veth0"))
        );
        let allowed =
            |list| port_report(&port(7, HostRoute::Anywhere), list, HostRoute::Anywhere).is_used();
        assert!(allowed("mlx5_0, rxe0:1") && !allowed("rxe0:2") && !allowed("mlx5_0"));
    }

    #[test]
    fn an_unusable_port_is_reported_with_the_reason() {
        let down = DiscoveredPort {
            unfit: Some(Unfit::Down(1)),
            ..port(7, HostRoute::Anywhere)
        };
        let down = port_report(&down, "", HostRoute::Anywhere);
        assert!(!down.is_used());
        assert!(down.unfit.unwrap().contains("the port is down"));
    }

    #[test]
    fn the_route_to_a_peer_selects_one_port() {
        let route = HostRoute::Through(8);
        let leads = |index| port_report(&port(index, route), "", route).leads_there;
        assert_eq!((leads(7), leads(8)), (Some(false), Some(true)));
        let interfaces = [interface(7, "veth0", 1), interface(8, "veth1", 2)];
        assert_eq!(egress(route, &interfaces), Egress::Through("veth1".into()));
        assert_eq!(
            egress(HostRoute::Through(9), &interfaces),
            Egress::Through("interface 9".into())
        );
    }

    #[test]
    fn a_too_small_memlock_limit_is_reported_with_a_remedy() {
        let locked = |limit_bytes| LockedMemory {
            limit_bytes,
            used_bytes: 0,
        };
        let found = memory(locked(Some(64 << 10)), 1, &NetLimits::DEFAULT);
        assert!(found.first_bytes > 64 << 10 && found.most_bytes > found.first_bytes);
        assert!(found.most_bytes < 8 << 20, "{found:?}");
        let needed = found.most_bytes.div_ceil(1024).to_string();
        assert!(found.remedy.unwrap().contains(&needed));
        assert_eq!(memory(locked(None), 1, &NetLimits::DEFAULT).remedy, None);
        let two = memory(locked(None), 2, &NetLimits::DEFAULT);
        assert_eq!(two.first_bytes, 2 * found.first_bytes);
        assert!(two.most_bytes - found.most_bytes < 4 << 20);
        assert_eq!(
            memory(locked(Some(1 << 30)), 4, &NetLimits::DEFAULT).remedy,
            None
        );
    }

    #[test]
    fn memlock_limit_error_states_the_bytes_needed() {
        let facts = PortAttr {
            in_software: false,
            terms: NetTerms::DEFAULT,
            partition: 0,
            device: "mlx5_0".into(),
            port: 1,
            is_up: true,
            link: LinkLayer::Infiniband,
            lid: 7,
            gid: [0; 16],
            gid_index: 0,
            packet_bytes: 4096,
            rate_mbps: 100_000,
            inline_bytes: 64,
            message_bytes: 1 << 30,
            reads: 16,
            atomics: true,
            depth: 64,
            has_unreliable_reads: false,
        };
        let failed = |call| CallError {
            call,
            errno: libc::ENOMEM,
        };
        let message = cannot_open(&failed("ibv_reg_mr"), &facts);
        let (first, _) = registered_bytes(&NetLimits::default(), 1);
        assert!(message.contains(&format!("mlx5_0:1 cannot register {first} bytes")));
        assert!(message.contains("ulimit -l"), "{message}");
        let message = cannot_open(&failed("mmap"), &facts);
        assert!(message.starts_with("mmap failed: "), "{message}");
    }

    #[test]
    fn inspect_reports_devices_or_why_there_are_none() {
        let network = NetworkSettings::default().on_rails(2);
        let report = inspect(&network, Some(IpAddr::from([127, 0, 0, 1])));
        assert_eq!(report.egress, Some(Egress::Here));
        match report.devices {
            Ok(devices) => assert!(devices.iter().all(|device| !device.name.is_empty())),
            Err(why) => assert!(why.contains("ibv"), "{why}"),
        }
    }
}
