// SPDX-License-Identifier: MIT OR Apache-2.0
//! Chooses the ports that a process uses: some of those that are active and allowed by the user. Consecutive local
//! ranks start with consecutive ports of these, in turn.

use super::device::{DiscoveredDevice, DiscoveredPort, VerbsDevice, list};
use super::gid::HostRoute;
use super::rail::MOST_RAILS;
use super::settings::NetworkSettings;

/// Opens the ports for a process, at least one; returns also why others could not be opened.
///
/// # Errors
/// Returns a message with the ports found, why they cannot be used, and the remedy.
pub(super) fn open_best(
    network: &NetworkSettings,
) -> Result<(Vec<VerbsDevice>, Vec<String>), String> {
    let (depths, terms) = (network.limits.depths(), &network.limits.terms);
    let found = list(HostRoute::Anywhere, terms).map_err(|error| error.to_string())?;
    let ports = choose(&found, network)?;
    let mut opened = ports.iter().map(|port| {
        let (name, key) = (&port.device, network.q_key);
        let device = VerbsDevice::open(name, port.port, &depths, terms, key, None);
        device.map_err(|error| error.to_string())
    });
    // `choose` returns at least one port.
    let Some(first) = opened.next() else {
        return Err("there is no port".to_owned());
    };
    let mut devices = vec![first?];
    let mut warnings = Vec::new();
    for device in opened {
        match device {
            Ok(device) => devices.push(device),
            Err(why) => warnings.push(format!("goes on without a further port: {why}")),
        }
    }
    Ok((devices, warnings))
}

/// The ports for a process; the first is the one that it uses most. Consecutive local ranks start with consecutive
/// usable ports; after the last port comes the first again.
fn choose<'a>(
    found: &'a [DiscoveredDevice],
    network: &NetworkSettings,
) -> Result<Vec<&'a DiscoveredPort>, String> {
    let allowed = |port: &&DiscoveredPort| is_allowed(port, &network.devices);
    let fit = fit(found, &network.devices);
    if !fit.is_empty() {
        let first = network.local_rank as usize % fit.len();
        let count = rails(network.rails, fit.len());
        return Ok(fit
            .iter()
            .copied()
            .cycle()
            .skip(first)
            .take(count)
            .collect());
    }
    if found.is_empty() {
        return Err(
            "this host has no InfiniBand or RoCE device (ibv_devices shows none)".to_owned(),
        );
    }
    let mut warnings = String::from("none of its ports can be used:");
    for device in found {
        match &device.ports {
            Err(error) => warnings.push_str(&format!(" {}: {error};", device.name)),
            Ok(ports) => {
                for port in ports {
                    let why = match &port.unfit {
                        _ if !allowed(&port) => "is not in RMPI_NET_DEVICES".to_owned(),
                        Some(why) => port.unfit_text(*why),
                        None => continue,
                    };
                    warnings.push_str(&format!(" {}:{} {why};", port.device, port.port));
                }
            }
        }
    }
    warnings.pop();
    Err(warnings)
}

/// Number of ports that a process opens if the user allows `wanted` ports and `fit` ports are usable.
pub(super) fn rails(wanted: u32, fit: usize) -> usize {
    (wanted as usize).clamp(1, MOST_RAILS).min(fit)
}

/// The usable ports, of those that the list `devices` allows.
pub(super) fn fit<'a>(found: &'a [DiscoveredDevice], devices: &str) -> Vec<&'a DiscoveredPort> {
    let ports = found
        .iter()
        .flat_map(|device| device.ports.iter().flatten());
    ports
        .filter(|port| port.unfit.is_none() && is_allowed(port, devices))
        .collect()
}

/// Whether a port is in the list `devices`, or the list is empty.
pub(super) fn is_allowed(port: &DiscoveredPort, devices: &str) -> bool {
    let mut names = devices
        .split(',')
        .map(str::trim)
        .filter(|name| !name.is_empty())
        .peekable();
    names.peek().is_none() || names.any(|name| is_name_of(name, port))
}

/// Whether a name such as `mlx5_0` or `mlx5_0:1` names a port.
fn is_name_of(name: &str, port: &DiscoveredPort) -> bool {
    match name.rsplit_once(':') {
        None => name == port.device,
        Some((device, number)) => device == port.device && number.parse() == Ok(port.port),
    }
}

#[cfg(test)]
mod tests {
    use super::super::address::LinkLayer;
    use super::super::error_text::Unfit;
    use super::super::gid::{GidChoice, GidEntry, GidTable, GidType, HostInterface};
    use super::*;

    fn device(name: &str) -> DiscoveredDevice {
        let table = GidTable {
            link: LinkLayer::Infiniband,
            entries: &[],
            interfaces: &[],
        };
        let port = |port| DiscoveredPort {
            device: name.into(),
            port,
            link: Some(LinkLayer::Infiniband),
            state: 4,
            lid: 1,
            packet_bytes: 4096,
            rate_mbps: 100_000,
            reads: 16,
            in_software: false,
            partition: 0,
            gids: GidChoice::make(table, HostRoute::Anywhere, None),
            unfit: None,
        };
        DiscoveredDevice {
            name: name.into(),
            ports: Ok(vec![port(1), port(2)]),
        }
    }

    /// The ports that are chosen for some ranks of a node.
    fn chosen(wanted: u32, devices: &str) -> Vec<String> {
        let found = [device("a"), device("b")];
        let of_rank = |local_rank| {
            let network = NetworkSettings {
                devices: devices.into(),
                local_rank,
                rails: wanted,
                ..NetworkSettings::default()
            };
            let ports = choose(&found, &network).unwrap();
            let names = ports
                .iter()
                .map(|port| format!("{}{}", port.device, port.port));
            names.collect::<Vec<_>>().join(" ")
        };
        (0..3).map(of_rank).collect()
    }

    #[test]
    fn ranks_on_a_node_start_with_different_ports() {
        assert_eq!(chosen(1, ""), ["a1", "a2", "b1"]);
        assert_eq!(chosen(2, ""), ["a1 a2", "a2 b1", "b1 b2"]);
        assert_eq!(chosen(3, "b"), ["b1 b2", "b2 b1", "b1 b2"]);
        assert_eq!(chosen(9, "b:2,a"), ["a1 a2 b2", "a2 b2 a1", "b2 a1 a2"]);
        assert_eq!(chosen(0, "a:1"), ["a1", "a1", "a1"]);
    }

    #[test]
    fn warnings_state_why_each_gid_is_unusable() {
        let mut found = device("rxe0");
        let ports = found.ports.as_mut().unwrap();
        let entry = |index, gid| GidEntry {
            index,
            gid,
            kind: GidType::RoceV2,
            interface: 2,
        };
        let mut local = [0; 16];
        (local[0], local[1], local[15]) = (0xfe, 0x80, 1);
        let ours = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 0, 0, 1];
        let table = GidTable {
            link: LinkLayer::Ethernet,
            entries: &[entry(0, local), entry(1, ours)],
            interfaces: &[HostInterface {
                index: 2,
                name: "eth0".into(),
                is_up: false,
                addresses: Vec::new(),
            }],
        };
        ports.truncate(1);
        ports[0].gids = GidChoice::make(table, HostRoute::Anywhere, None);
        ports[0].unfit = Some(Unfit::NoGid);
        let warnings = choose(&[found], &NetworkSettings::default()).unwrap_err();
        assert!(
            warnings.contains("; fe80::1 is not used: link-local"),
            "{warnings}"
        );
        assert!(
            warnings.contains("; ::ffff:10.0.0.1 is not used: eth0 is down or not running yet"),
            "{warnings}"
        );
    }
}
