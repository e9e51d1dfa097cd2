// SPDX-License-Identifier: MIT OR Apache-2.0
//! Determines which DPDK port a process uses, from `RMPI_DPDK` or from a file that `RMPI_DPDK` names.
//!
//! ```text
//! 10.9.0.1/24 net_af_packet0,iface=dp0; 10.9.0.2/24 net_af_packet0,iface=dp1 mtu=4200
//! ```
//! A file has one port per line; text after a `#` is a comment.

use std::net::IpAddr;

use dpdk_sys::{FrameMemory, InPlace};
use roce::link::{SubnetRoute, have_common_prefix};

/// A port, as configured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct DpdkConfig {
    pub(super) address: IpAddr,
    pub(super) route: SubnetRoute,
    /// DPDK's name of the device, with its arguments.
    pub(super) device: String,
    /// Largest payload of an Ethernet frame in bytes, if the driver does not report it.
    pub(super) mtu: Option<u16>,
    pub(super) memory: FrameMemory,
    pub(super) in_place: InPlace,
}

impl DpdkConfig {
    /// The port of the process with this local rank.
    ///
    /// # Errors
    /// Returns a message with what is wrong, and what was expected.
    pub(super) fn of_local_rank(text: &str, local_rank: u32) -> Result<Self, String> {
        let ports = ports(text)?;
        let own = ports.get(local_rank as usize).ok_or_else(|| {
            let count = ports.len();
            format!("RMPI_DPDK has {count} ports, and this is rank {local_rank} of its host, from 0 on: expected a port for each")
        })?;
        Self::parse(own).map_err(|why| format!("RMPI_DPDK: \"{own}\": {why}"))
    }

    fn parse(text: &str) -> Result<Self, String> {
        let mut words = text.split_whitespace();
        let place = words.next().unwrap_or_default();
        let (address, bits) = place.split_once('/').unwrap_or((place, "0"));
        let address = address_of(address)?;
        let most = if address.is_ipv4() { 32 } else { 128 };
        let prefix_bits = bits.parse().ok().filter(|bits| *bits <= most);
        let prefix_bits = prefix_bits.ok_or_else(|| format!("/{bits}, expected /0 to /{most}"))?;
        let device = words
            .next()
            .ok_or("expected a device of DPDK behind the address")?;
        let mut port = Self {
            address,
            route: SubnetRoute {
                prefix_bits,
                gateway: None,
            },
            device: whole(device),
            mtu: None,
            memory: FrameMemory::Ordinary,
            in_place: InPlace::IfFaster,
        };
        for word in words {
            match word.split_once('=').unwrap_or((word, "")) {
                ("huge", "") => port.memory = FrameMemory::Huge,
                ("in-place", "yes") => port.in_place = InPlace::IfPossible,
                ("in-place", "no") => port.in_place = InPlace::Never,
                ("mtu", bytes) => port.mtu = Some(mtu_of(bytes)?),
                ("gateway", gateway) => port.route.gateway = Some(address_of(gateway)?),
                _ => {
                    return Err(format!(
                        "{word}, expected mtu=BYTES, gateway=ADDRESS, in-place=yes or no, or huge"
                    ));
                }
            }
        }
        port.check_gateway()?;
        port.check_memif()?;
        Ok(port)
    }

    /// Checks that the gateway is in the network of the port's address, and that this network does not contain all
    /// addresses.
    fn check_gateway(&self) -> Result<(), String> {
        let SubnetRoute {
            prefix_bits,
            gateway,
        } = self.route;
        let Some(gateway) = gateway else {
            return Ok(());
        };
        match prefix_bits != 0 && have_common_prefix(gateway, self.address, prefix_bits) {
            true => Ok(()),
            false => Err(format!(
                "gateway={gateway}, expected one of the network given by /BITS behind the address"
            )),
        }
    }

    /// Checks that frames fit the buffers of a memif, which drops longer ones.
    fn check_memif(&self) -> Result<(), String> {
        let mut words = self.device.split(',');
        let is_memif = words
            .next()
            .is_some_and(|name| name.starts_with("net_memif"));
        let room = words.find_map(|word| word.strip_prefix("bsize="));
        let room: u32 = room.map_or(Ok(2048), str::parse).unwrap_or(0);
        match self.mtu {
            Some(mtu) if is_memif && u32::from(mtu) + 14 > room => Err(format!(
                "mtu={mtu}, expected buffers as large among the arguments of the device, as in bsize=8192, and not {room} bytes"
            )),
            _ => Ok(()),
        }
    }
}

/// The full address of a PCI device, if `device` is one without its domain.
fn whole(device: &str) -> String {
    let name = device.split(',').next().unwrap_or_default();
    match dpdk_sys::is_on_bus(name) && name.matches(':').count() == 1 {
        true => format!("0000:{device}"),
        false => device.to_owned(),
    }
}

/// The text of each configured port.
fn ports(text: &str) -> Result<Vec<String>, String> {
    let text = text.trim();
    if text.is_empty() {
        return Err(
            "RMPI_DPDK is not set, expected ports as in \"10.9.0.1/24 net_af_packet0,iface=eth1\""
                .to_owned(),
        );
    }
    let text = match text.starts_with('/') {
        true => std::fs::read_to_string(text).map_err(|error| {
            let error = error.to_string();
            let error = error
                .split(" (os error")
                .next()
                .unwrap_or_default()
                .to_lowercase();
            format!("RMPI_DPDK names {text}, which cannot be read: {error}")
        })?,
        false => text.to_owned(),
    };
    let lines = text
        .lines()
        .map(|line| line.split('#').next().unwrap_or_default());
    let ports = lines.flat_map(|line| line.split(';')).map(str::trim);
    Ok(ports
        .filter(|port| !port.is_empty())
        .map(str::to_owned)
        .collect())
}

/// The ports configured for this host, as text. None of them is opened.
///
/// # Errors
/// Returns a message with what is missing.
pub(crate) fn configured(text: &str) -> Result<String, String> {
    let ports = ports(text)?;
    let ports: Result<Vec<_>, _> = ports.iter().map(|port| DpdkConfig::parse(port)).collect();
    let ports = ports.map_err(|why| format!("RMPI_DPDK: {why}"))?;
    dpdk_sys::available()?;
    let message = ports
        .iter()
        .map(|port| format!("{} ({})", port.address, port.device));
    Ok(message.collect::<Vec<_>>().join(", "))
}

fn address_of(text: &str) -> Result<IpAddr, String> {
    let address: Option<IpAddr> = text.parse().ok();
    let of_one = |it: &IpAddr| {
        let is_mapped = matches!(it, IpAddr::V6(six) if six.to_ipv4_mapped().is_some());
        !is_mapped && !it.is_unspecified() && !it.is_multicast()
    };
    let address = address.filter(of_one);
    address.ok_or_else(|| format!("{text}, expected an address of IPv4 or IPv6"))
}

fn mtu_of(text: &str) -> Result<u16, String> {
    let bytes = text
        .parse()
        .ok()
        .filter(|bytes| (576..=9216).contains(bytes));
    bytes.ok_or_else(|| format!("mtu={text}, expected 576 to 9216"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_local_rank_has_its_own_dpdk_port() {
        let text = "10.9.0.1/24 net_af_packet0,iface=dp0; 10.9.0.2/24 3b:00.2 mtu=4200 gateway=10.9.0.254 huge;";
        let first = DpdkConfig::of_local_rank(text, 0).unwrap();
        assert_eq!(
            (
                first.device.as_str(),
                first.address,
                first.route.prefix_bits,
                dpdk_sys::is_on_bus(&first.device)
            ),
            (
                "net_af_packet0,iface=dp0",
                "10.9.0.1".parse().unwrap(),
                24,
                false
            )
        );
        let second = DpdkConfig::of_local_rank(text, 1).unwrap();
        assert_eq!(
            (second.device.as_str(), second.mtu, second.memory),
            ("0000:3b:00.2", Some(4200), FrameMemory::Huge)
        );
        assert_eq!(second.route.gateway, "10.9.0.254".parse().ok());
        let in_place = |text: &str| DpdkConfig::of_local_rank(text, 0).unwrap().in_place;
        for (message, expected) in [
            ("", InPlace::IfFaster),
            (" in-place=yes", InPlace::IfPossible),
            (" in-place=no", InPlace::Never),
        ] {
            assert_eq!(in_place(&format!("10.9.0.1 net_memif0{message}")), expected);
        }
        let six = DpdkConfig::of_local_rank("fd00::1/64 net_memif0 gateway=fd00::ff", 0).unwrap();
        assert_eq!(
            (six.address, six.route.prefix_bits),
            ("fd00::1".parse().unwrap(), 64)
        );
        let message = DpdkConfig::of_local_rank(text, 2).unwrap_err();
        assert_eq!(
            message,
            "RMPI_DPDK has 2 ports, and this is rank 2 of its host, from 0 on: expected a port for each"
        );
    }

    #[test]
    fn a_dpdk_port_file_has_one_port_per_line() {
        let path = std::env::temp_dir().join(format!("rmpi-dpdk-ports-{}", std::process::id()));
        std::fs::write(
            &path,
            "# ours\n\n10.9.0.1 net_memif0 # the first\n10.9.0.2 net_memif1\n",
        )
        .unwrap();
        let port = DpdkConfig::of_local_rank(path.to_str().unwrap(), 1);
        std::fs::remove_file(&path).unwrap();
        assert_eq!(port.unwrap().device, "net_memif1");
        let message = DpdkConfig::of_local_rank(path.to_str().unwrap(), 1).unwrap_err();
        assert!(
            message.ends_with("which cannot be read: no such file or directory"),
            "{message}"
        );
    }

    #[test]
    fn dpdk_port_errors_state_what_was_expected() {
        let message = |text: &str| DpdkConfig::of_local_rank(text, 0).unwrap_err();
        assert!(message(" ").starts_with("RMPI_DPDK is not set, expected ports as in"));
        for (text, why) in [
            (
                "eth0 net_memif0",
                "eth0, expected an address of IPv4 or IPv6",
            ),
            (
                "::ffff:10.9.0.1 net_memif0",
                "::ffff:10.9.0.1, expected an address of IPv4 or IPv6",
            ),
            ("fd00::1/129 net_memif0", "/129, expected /0 to /128"),
            (
                "fd00::1/64 net_memif0 gateway=10.9.0.254",
                "gateway=10.9.0.254, expected one of the network given by /BITS behind the address",
            ),
            ("10.9.0.1/33 net_memif0", "/33, expected /0 to /32"),
            ("10.9.0.1", "expected a device of DPDK behind the address"),
            (
                "10.9.0.1 net_memif0 gateway=10.9.0.254",
                "gateway=10.9.0.254, expected one of the network given by /BITS behind the address",
            ),
            (
                "10.9.0.1 net_memif0,id=1 mtu=4200",
                "mtu=4200, expected buffers as large among the arguments of the device, as in bsize=8192, and not 2048 bytes",
            ),
            ("10.9.0.1 net_memif0 mtu=99", "mtu=99, expected 576 to 9216"),
            (
                "10.9.0.1 net_memif0 big",
                "big, expected mtu=BYTES, gateway=ADDRESS, in-place=yes or no, or huge",
            ),
        ] {
            assert_eq!(message(text), format!("RMPI_DPDK: \"{text}\": {why}"));
        }
    }
}
