// SPDX-License-Identifier: MIT OR Apache-2.0
//! Chooses the addresses of this host that are published. Addresses that other hosts have too, such as those of bridges
//! for containers and virtual machines, would lead to the wrong process.

use std::net::IpAddr;
use std::path::PathBuf;

/// An address of a network interface that is up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct TcpInterface {
    pub(super) name: String,
    pub(super) address: IpAddr,
    pub(super) is_loopback: bool,
}

/// An address of this host, and why it is not published, if it is not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct CandidateAddress {
    pub(super) interface: TcpInterface,
    pub(super) unfit: Option<&'static str>,
}

/// Decides which addresses are published; returns all addresses, each with the reason if it is not published. `wanted`:
/// names of interfaces, addresses, or networks as in `10.1.0.0/16`, with commas between them. If it is empty, all
/// addresses that lead to other hosts are published, or, if there are none and the job is on this host only, those of
/// the loopback interface.
///
/// # Errors
/// In words: that no wanted interface exists, or that none leads to other hosts; and the interfaces found.
pub(super) fn choose(
    found: Vec<TcpInterface>,
    wanted: &str,
    over_hosts: bool,
    kinds: &impl Kinds,
) -> Result<Vec<CandidateAddress>, String> {
    let wanted: Vec<&str> = wanted
        .split(',')
        .map(str::trim)
        .filter(|word| !word.is_empty())
        .collect();
    let offer = |interface: TcpInterface| CandidateAddress {
        unfit: match wanted.is_empty() {
            _ if needs_scope(interface.address) => Some("is of one link only"),
            true => kinds.why_unfit(&interface),
            false => (!wanted.iter().any(|word| matches(word, &interface)))
                .then_some("RMPI_NET_INTERFACES has others"),
        },
        interface,
    };
    let mut offers: Vec<CandidateAddress> = found.into_iter().map(offer).collect();
    if offers.iter().any(|offer| offer.unfit.is_none()) {
        return Ok(offers);
    }
    if !wanted.is_empty() {
        return Err(format!(
            "RMPI_NET_INTERFACES is \"{}\", and no interface that is up has such a name, and an address that others can use: there \
             are {}",
            wanted.join(","),
            list(&offers, false)
        ));
    }
    if over_hosts {
        return Err(format!(
            "no interface of this host leads to the others: there are {}; set one up that does, or name one of these in \
             RMPI_NET_INTERFACES if it does",
            list(&offers, true)
        ));
    }
    // The job is on this host only, and no address leads to other hosts: loopback addresses are used.
    for offer in &mut offers {
        if offer.interface.is_loopback {
            offer.unfit = None;
        }
    }
    Ok(offers)
}

/// The published addresses, in their order, each with an index that stands for its interface.
pub(super) fn numbered(offers: &[CandidateAddress]) -> Vec<(IpAddr, u32)> {
    let fit = offers.iter().filter(|offer| offer.unfit.is_none());
    let number = |offer: &CandidateAddress| {
        let TcpInterface { name, address, .. } = &offer.interface;
        let is_it = |offer: &CandidateAddress| offer.interface.name == *name;
        let number = offers.iter().position(is_it).unwrap_or(0);
        (*address, u32::try_from(number).unwrap_or(u32::MAX))
    };
    fit.map(number).collect()
}

/// All candidates, for the user; `with_reason`: whether to add the reason why each is not used.
fn list(offers: &[CandidateAddress], with_reason: bool) -> String {
    let describe = |offer: &CandidateAddress| {
        let TcpInterface { name, address, .. } = &offer.interface;
        match offer.unfit.filter(|_| with_reason || needs_scope(*address)) {
            Some(why) => format!("{name} {address} ({why})"),
            None => format!("{name} {address}"),
        }
    };
    match offers {
        [] => "none".to_owned(),
        some => some.iter().map(describe).collect::<Vec<_>>().join(", "),
    }
}

/// Whether an address is meaningful only with a scope, which differs from host to host.
fn needs_scope(address: IpAddr) -> bool {
    matches!(address, IpAddr::V6(address) if address.is_unicast_link_local())
}

/// Whether an item of the user's list is this interface's name, its address, or a network that contains it.
fn matches(word: &str, interface: &TcpInterface) -> bool {
    if word == interface.name {
        return true;
    }
    let (network, bits) = match word.split_once('/') {
        Some((network, bits)) => (network, bits.parse::<u32>().ok()),
        None => (word, Some(128)),
    };
    let (Ok(network), Some(bits)) = (network.parse::<IpAddr>(), bits) else {
        return false;
    };
    let shared = match (network, interface.address) {
        (IpAddr::V4(a), IpAddr::V4(b)) => (u32::from(a) ^ u32::from(b)).leading_zeros(),
        (IpAddr::V6(a), IpAddr::V6(b)) => (u128::from(a) ^ u128::from(b)).leading_zeros(),
        _ => return false,
    };
    let most = if network.is_ipv4() { 32 } else { 128 };
    shared >= bits.min(most)
}

/// Properties of interfaces beside their addresses.
pub(super) trait Kinds {
    /// Why this address is not to be published; `None`: it is.
    fn why_unfit(&self, interface: &TcpInterface) -> Option<&'static str>;
}

/// Reads `/sys/class/net`, or a directory of the same form.
#[derive(Debug)]
pub(super) struct SysClassNet(PathBuf);

impl SysClassNet {
    pub(super) fn new() -> Self {
        Self(PathBuf::from("/sys/class/net"))
    }

    /// Whether packets through this interface leave the host by a device: its own, or that of a lower interface, such
    /// as those below bonds, VLANs and bridges.
    fn leads_out(&self, name: &str, depth: u32) -> bool {
        let folder = self.0.join(name);
        if folder.join("device").exists() {
            return true;
        }
        let below = std::fs::read_dir(folder).into_iter().flatten().flatten();
        let below = below.filter_map(|entry| {
            let name = entry.file_name().into_string().ok()?;
            Some(name.strip_prefix("lower_")?.to_owned())
        });
        depth != 0
            && below
                .into_iter()
                .any(|name| self.leads_out(&name, depth - 1))
    }
}

impl Kinds for SysClassNet {
    fn why_unfit(&self, interface: &TcpInterface) -> Option<&'static str> {
        if interface.is_loopback {
            return Some("leads to this host only");
        }
        if matches!(interface.address, IpAddr::V4(address) if address.is_link_local()) {
            return Some("is of one link only");
        }
        let folder = self.0.join(&interface.name);
        if folder.join("brport").exists() {
            return Some("is a port of a bridge");
        }
        if folder.join("tun_flags").exists() {
            return Some("is a tunnel of a program, as of a VPN");
        }
        if folder.join("bridge").exists() && !self.leads_out(&interface.name, MOST_LAYERS) {
            return Some("is a bridge inside this host");
        }
        None
    }
}

/// Maximum number of stacked interfaces, such as a bridge over a VLAN over a bond over a device.
const MOST_LAYERS: u32 = 8;

#[cfg(test)]
mod tests {
    use super::*;

    struct Names;

    impl Kinds for Names {
        fn why_unfit(&self, interface: &TcpInterface) -> Option<&'static str> {
            (interface.is_loopback || interface.name.starts_with("docker")).then_some("unfit")
        }
    }

    fn some(name: &str, address: &str) -> TcpInterface {
        TcpInterface {
            name: name.to_owned(),
            address: address.parse().unwrap(),
            is_loopback: name == "lo",
        }
    }

    fn host() -> Vec<TcpInterface> {
        vec![
            some("lo", "127.0.0.1"),
            some("docker0", "172.17.0.1"),
            some("eth0", "10.1.2.3"),
            some("eth0", "fd00::5"),
            some("ib0", "10.2.2.3"),
        ]
    }

    fn chosen(found: Vec<TcpInterface>, wanted: &str) -> Vec<String> {
        let offers = choose(found, wanted, false, &Names).unwrap();
        let fit = offers.iter().filter(|offer| offer.unfit.is_none());
        fit.map(|offer| offer.interface.address.to_string())
            .collect()
    }

    #[test]
    fn only_addresses_reachable_from_other_hosts_are_announced() {
        assert_eq!(chosen(host(), ""), ["10.1.2.3", "fd00::5", "10.2.2.3"]);
        assert_eq!(chosen(host()[..2].to_vec(), " , "), ["127.0.0.1"]);
    }

    #[test]
    fn the_user_may_name_interfaces_and_networks() {
        for (wanted, expected) in [
            ("ib0", &["10.2.2.3"][..]),
            ("10.2.0.0/16", &["10.2.2.3"]),
            ("10.0.0.0/8", &["10.1.2.3", "10.2.2.3"]),
            ("fd00::/64,lo", &["127.0.0.1", "fd00::5"]),
            ("10.1.2.3", &["10.1.2.3"]),
            ("docker0", &["172.17.0.1"]),
        ] {
            assert_eq!(chosen(host(), wanted), expected, "{wanted}");
        }
        for wanted in ["eth9", "10.3.0.0/16", "10.1.2.4", "10.1.0.0/x"] {
            let message = choose(host(), wanted, true, &Names).unwrap_err();
            assert!(
                message.contains(wanted) && message.contains("eth0"),
                "{message}"
            );
        }
    }

    #[test]
    fn loopback_is_announced_to_other_hosts_only_by_setting() {
        let lonely = || host()[..2].to_vec();
        let message = choose(lonely(), "", true, &Names).unwrap_err();
        for part in ["lo 127.0.0.1 (unfit)", "docker0", "RMPI_NET_INTERFACES"] {
            assert!(message.contains(part), "{message}");
        }
        assert!(choose(host(), "", true, &Names).is_ok());
        assert!(choose(lonely(), "lo", true, &Names).is_ok());
        let message = choose(Vec::new(), "", true, &Names).unwrap_err();
        assert!(message.contains("there are none"), "{message}");
    }

    #[test]
    fn link_local_addresses_are_never_announced() {
        let host = || vec![some("eth0", "fe80::7"), some("eth0", "fd00::5")];
        assert_eq!(chosen(host(), ""), ["fd00::5"]);
        assert_eq!(chosen(host(), "eth0"), ["fd00::5"]);
        let message = choose(host(), "fe80::/10", false, &Names).unwrap_err();
        assert!(
            message.contains("fe80::7 (is of one link only)"),
            "{message}"
        );
    }

    /// A directory like the kernel's, of interfaces and their lower interfaces.
    fn kernel(test: &str, interfaces: &[(&str, &[&str])]) -> SysClassNet {
        let root = std::env::temp_dir().join(format!("rmpi-{test}-{}", std::process::id()));
        for (name, files) in interfaces {
            for file in *files {
                std::fs::create_dir_all(root.join(name).join(file)).unwrap();
            }
        }
        SysClassNet(root)
    }

    #[test]
    fn a_bridge_is_usable_if_a_device_is_below_it() {
        let kernel = kernel(
            "bridges",
            &[
                ("eth0", &["device"]),
                ("bond0", &["lower_eth0"]),
                ("bond0.7", &["lower_bond0"]),
                ("br0", &["bridge", "lower_bond0.7", "lower_veth1"]),
                ("veth1", &["brport"]),
                ("docker0", &["bridge", "lower_veth1"]),
                ("virbr0", &["bridge"]),
                ("loop0", &["bridge", "lower_loop0"]),
                ("tun0", &["tun_flags"]),
            ],
        );
        let why = |name: &str| kernel.why_unfit(&some(name, "10.0.0.1"));
        let fit = ["eth0", "bond0", "bond0.7", "br0"];
        assert_eq!(fit.map(why), [None; 4]);
        let inside = ["docker0", "virbr0", "loop0"].map(why);
        assert_eq!(inside, [Some("is a bridge inside this host"); 3]);
        assert!(why("veth1").is_some() && why("tun0").is_some());
        std::fs::remove_dir_all(&kernel.0).unwrap();
    }
}
