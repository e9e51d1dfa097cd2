// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which addresses of this host others are told. Addresses that other hosts have too, as those of bridges for containers and virtual
//! machines, would lead to somebody else.

use std::net::IpAddr;
use std::path::Path;

/// An address of an interface that is up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Interface {
    pub(super) name: String,
    pub(super) address: IpAddr,
    pub(super) is_loopback: bool,
}

/// An address of this host: whether others are told it, or why not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Offer {
    pub(super) interface: Interface,
    pub(super) unfit: Option<&'static str>,
}

/// The addresses that others are told. `wanted`: names of interfaces or networks as in `10.1.0.0/16`, with commas between them;
/// nothing: all that lead to other hosts.
///
/// # Errors
/// What is wanted and not there, in words.
pub(super) fn choose(
    found: Vec<Interface>,
    wanted: &str,
    kinds: &impl Kinds,
) -> Result<Vec<Offer>, String> {
    let wanted: Vec<&str> = wanted
        .split(',')
        .map(str::trim)
        .filter(|word| !word.is_empty())
        .collect();
    let offer = |interface: Interface| Offer {
        unfit: match wanted.is_empty() {
            true => kinds.why_unfit(&interface),
            false => (!wanted.iter().any(|word| matches(word, &interface)))
                .then_some("RMPI_NET_INTERFACES has others"),
        },
        interface,
    };
    let mut offers: Vec<Offer> = found.into_iter().map(offer).collect();
    if offers.iter().any(|offer| offer.unfit.is_none()) {
        return Ok(offers);
    }
    if !wanted.is_empty() {
        let mut here: Vec<&str> = offers.iter().map(|offer| &*offer.interface.name).collect();
        here.dedup();
        return Err(format!(
            "RMPI_NET_INTERFACES is \"{}\", and no interface that is up has such a name or address: there are {}",
            wanted.join(","),
            here.join(", ")
        ));
    }
    // A host without a network talks to itself.
    for offer in &mut offers {
        if offer.interface.is_loopback {
            offer.unfit = None;
        }
    }
    Ok(offers)
}

/// Whether a word of the user's is this interface's name, its address, or a network that it is in.
fn matches(word: &str, interface: &Interface) -> bool {
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

/// What is known of interfaces beside their addresses.
pub(super) trait Kinds {
    /// Why others are not told this address; `None`: they are.
    fn why_unfit(&self, interface: &Interface) -> Option<&'static str>;
}

/// What the kernel says in `/sys/class/net`.
#[derive(Debug)]
pub(super) struct Kernel;

impl Kinds for Kernel {
    fn why_unfit(&self, interface: &Interface) -> Option<&'static str> {
        if interface.is_loopback {
            return Some("leads to this host only");
        }
        match interface.address {
            IpAddr::V4(address) if address.is_link_local() => return Some("is of one link only"),
            IpAddr::V6(address) if address.is_unicast_link_local() => {
                return Some("is of one link only");
            }
            _ => {}
        }
        let folder = Path::new("/sys/class/net").join(&interface.name);
        if folder.join("brport").exists() {
            return Some("is a port of a bridge");
        }
        if folder.join("tun_flags").exists() {
            return Some("is a tunnel of a program, as of a VPN");
        }
        let leads_out = || {
            let ports = std::fs::read_dir(folder.join("brif"));
            let mut ports = ports.into_iter().flatten().flatten();
            ports.any(|port| {
                port.path().join("../../device").exists() || is_device(&port.file_name())
            })
        };
        if folder.join("bridge").exists() && !leads_out() {
            return Some("is a bridge inside this host");
        }
        None
    }
}

/// Whether an interface is a device, not something that programs made.
fn is_device(name: &std::ffi::OsStr) -> bool {
    Path::new("/sys/class/net")
        .join(name)
        .join("device")
        .exists()
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Names;

    impl Kinds for Names {
        fn why_unfit(&self, interface: &Interface) -> Option<&'static str> {
            (interface.is_loopback || interface.name.starts_with("docker")).then_some("unfit")
        }
    }

    fn some(name: &str, address: &str) -> Interface {
        Interface {
            name: name.to_owned(),
            address: address.parse().unwrap(),
            is_loopback: name == "lo",
        }
    }

    fn host() -> Vec<Interface> {
        vec![
            some("lo", "127.0.0.1"),
            some("docker0", "172.17.0.1"),
            some("eth0", "10.1.2.3"),
            some("eth0", "fd00::5"),
            some("ib0", "10.2.2.3"),
        ]
    }

    fn chosen(found: Vec<Interface>, wanted: &str) -> Vec<String> {
        let offers = choose(found, wanted, &Names).unwrap();
        let fit = offers.iter().filter(|offer| offer.unfit.is_none());
        fit.map(|offer| offer.interface.address.to_string())
            .collect()
    }

    #[test]
    fn addresses_that_lead_elsewhere_are_told() {
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
            let words = choose(host(), wanted, &Names).unwrap_err();
            assert!(words.contains(wanted) && words.contains("eth0"), "{words}");
        }
    }
}
