// SPDX-License-Identifier: MIT OR Apache-2.0
//! Formats the page about the network: devices, ports and addresses, what ranks would use, and what is missing.

use crate::text::{kib, wrapped};
use std::net::IpAddr;
use transport::Rendezvous;
use transport::net_info::{
    AddressReport, DeviceReport, Egress, Gid, LockedMemoryReport, NetReport, PortReport,
};

/// The text of the page, and whether ranks could use the network (`works`).
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Page {
    pub(crate) text: String,
    pub(crate) works: bool,
}

/// Formats the report. `devices`: the value of `RMPI_NET_DEVICES`. `peer`: the address of `--peer`.
pub(crate) fn page(report: &NetReport, devices: &str, peer: Option<IpAddr>) -> Page {
    let mut text = String::new();
    let ports = match &report.devices {
        Err(why) => {
            text.push_str(&wrapped(&format!("no network: {why}"), 0));
            Vec::new()
        }
        Ok(devices) if devices.is_empty() => {
            text.push_str(&wrapped(NO_DEVICE, 0));
            Vec::new()
        }
        Ok(devices) => {
            for device in devices {
                text.push_str(&device_text(device));
            }
            let ports = devices
                .iter()
                .flat_map(|device| device.ports.iter().flatten());
            ports.filter(|port| port.is_used()).collect()
        }
    };
    text.push('\n');
    text.push_str(&memory_text(&report.memory));
    text.push('\n');
    text.push_str(&wrapped(&choice(&ports, devices), 0));
    if report.rails > 1 {
        text.push_str(&wrapped(&rails_text(report.rails), 0));
    }
    if !ports.is_empty() {
        text.push_str(&wrapped(&rendezvous_text(report.rendezvous, &ports), 0));
    }
    let mut works = !ports.is_empty();
    if works && !may_begin(&report.memory) {
        text.push_str(&wrapped(
            "But they may not lock the memory with which they begin.",
            0,
        ));
        works = false;
    }
    if let (Some(peer), Some(egress)) = (peer, &report.egress) {
        let (paragraph, reaches) = path_text(peer, egress, &ports);
        text.push_str(&wrapped(&paragraph, 0));
        works &= reaches;
    }
    Page { text, works }
}

/// Formats the addresses of provider tcp on this host. `rails`: the maximum number of interfaces over which a large
/// message is split.
pub(crate) fn addresses(found: &Result<Vec<AddressReport>, String>, rails: u64) -> String {
    let mut text = String::from("tcp, where verbs is not on both sides:\n");
    match found {
        Err(why) => text.push_str(&wrapped(why, 2)),
        Ok(all) => {
            for one in all {
                let published = match one.unfit {
                    None => "announced to peers".to_owned(),
                    Some(why) => format!("not announced: {why}"),
                };
                text.push_str(&format!(
                    "  {}  {}  {published}\n",
                    one.interface, one.address
                ));
            }
            let published = all.iter().filter(|one| one.unfit.is_none());
            let mut interfaces: Vec<&str> = published.map(|one| &*one.interface).collect();
            interfaces.sort_unstable();
            interfaces.dedup();
            let rails = rails.min(interfaces.len() as u64);
            if rails > 1 {
                let paragraph = format!(
                    "Large messages go over {rails} of these interfaces at once, where the other host has as many in the same \
                     networks (RMPI_NET_RAILS)."
                );
                text.push_str(&wrapped(&paragraph, 2));
            }
        }
    }
    text
}

fn device_text(device: &DeviceReport) -> String {
    match &device.ports {
        Ok(ports) => ports.iter().map(port_text).collect(),
        Err(why) => wrapped(&format!("{}: {why}", device.name), 0),
    }
}

fn port_text(port: &PortReport) -> String {
    let lid = port.lid.map(|lid| format!(", LID {lid}"));
    let mut text = format!(
        "{}  {}, {}{}{}, packets of {} bytes\n",
        port.name,
        port.link,
        port.state,
        lid.unwrap_or_default(),
        rate_text(port.rate_mbps),
        port.packet_bytes
    );
    match &port.unfit {
        Some(why) => text.push_str(&wrapped(&format!("not used: {why}"), 2)),
        None if !port.is_allowed => text.push_str("  not used: it is not in RMPI_NET_DEVICES\n"),
        None => {}
    }
    let width = |of: fn(&Gid) -> usize| port.gids.iter().map(of).max().unwrap_or(0);
    let (address, kind) = (width(|gid| gid.text.len()), width(|gid| gid.kind.len()));
    let interface = width(|gid| interface_of(gid).len());
    for gid in &port.gids {
        text.push_str(&format!(
            "  GID {:>2}  {:address$}  {:kind$}  {:interface$}  {}\n",
            gid.index,
            gid.text,
            gid.kind,
            interface_of(gid),
            gid.why
        ));
    }
    text
}

fn rate_text(rate_mbps: u32) -> String {
    match (rate_mbps / 1000, rate_mbps % 1000 / 100) {
        (0, 0) => String::new(),
        (gbps, 0) => format!(", {gbps} Gb/s"),
        (gbps, tenths) => format!(", {gbps}.{tenths} Gb/s"),
    }
}

fn interface_of(gid: &Gid) -> &str {
    gid.interface.as_deref().unwrap_or("-")
}

fn memory_text(memory: &LockedMemoryReport) -> String {
    let limit = match memory.limit_bytes {
        None => "a process may lock as much memory as there is".to_owned(),
        Some(limit) => format!("a process may lock {} of memory (ulimit -l)", kib(limit)),
    };
    let needs = format!(
        "{limit}; a rank locks {} when it begins to use the network, at most {}, and besides what MPI_Alloc_mem gives, and \
         large messages while they are under way",
        kib(memory.first_bytes),
        kib(memory.most_bytes)
    );
    let remedy = match (&memory.remedy, memory.limit_bytes) {
        (Some(remedy), _) => format!("too little: {remedy}"),
        (None, Some(_)) => {
            "Large messages that find no room under the limit go through buffers, which is slow: \
                            `ulimit -l unlimited` is better."
                .to_owned()
        }
        (None, None) => String::new(),
    };
    wrapped(&needs, 0) + &wrapped(&remedy, 2)
}

fn may_begin(memory: &LockedMemoryReport) -> bool {
    let limit = memory.limit_bytes;
    limit.is_none_or(|limit| limit >= memory.first_bytes)
}

/// Describes which ports ranks would use.
fn choice(ports: &[&PortReport], devices: &str) -> String {
    let names = names(ports.iter().copied());
    let list = match devices.trim() {
        "" => String::new(),
        devices => format!(" (RMPI_NET_DEVICES is \"{devices}\")"),
    };
    match ports.len() {
        0 => format!("Ranks on this host cannot use InfiniBand or RoCE{list}."),
        1 => format!("Ranks on this host would use {names}{list}."),
        _ => format!("Ranks on this host would use {names}, in turn{list}."),
    }
}

/// States that each rank uses several ports.
fn rails_text(rails: u32) -> String {
    format!(
        "Each rank opens {rails} of them: large messages go over all of these at once, others over the next when one fails \
         (RMPI_NET_RAILS)."
    )
}

/// Describes how large messages are transferred, and why.
fn rendezvous_text(rendezvous: Rendezvous, ports: &[&PortReport]) -> String {
    let poor: Vec<&PortReport> = ports
        .iter()
        .copied()
        .filter(|port| port.reads_poorly)
        .collect();
    let set = |word| format!("RMPI_NET_RENDEZVOUS is \"{word}\"");
    let one = "no more than one read under way at a time";
    match rendezvous {
        Rendezvous::Read if !poor.is_empty() => format!(
            "Large messages are read by their receivers ({}), though {} has {one}.",
            set("read"),
            names(poor.into_iter())
        ),
        Rendezvous::Read => format!(
            "Large messages are read by their receivers ({}).",
            set("read")
        ),
        Rendezvous::Write => format!(
            "Large messages are written by their senders ({}).",
            set("write")
        ),
        Rendezvous::Auto if poor.is_empty() => {
            "Large messages are read by their receivers (RMPI_NET_RENDEZVOUS).".to_owned()
        }
        Rendezvous::Auto => format!(
            "Large messages for ranks that begin with {} are written by their senders, since it has {one} \
             (RMPI_NET_RENDEZVOUS).",
            names(poor.into_iter())
        ),
    }
}

/// Describes the path to a peer; the result also has whether packets from the ports can reach the peer.
fn path_text(peer: IpAddr, egress: &Egress, ports: &[&PortReport]) -> (String, bool) {
    let (leading, others): (Vec<&PortReport>, Vec<&PortReport>) = ports
        .iter()
        .partition(|port| port.leads_there != Some(false));
    match egress {
        Egress::Here => (format!("{peer} is an address of this host."), true),
        Egress::Nowhere => {
            let paragraph = format!(
                "There is no way to {peer}: `ip route get {peer}` says why; the interface needs an address or a route."
            );
            (paragraph, false)
        }
        Egress::Unknown(why) => (
            format!("The kernel does not say the way to {peer}: {why}."),
            true,
        ),
        Egress::Through(interface) if leading.is_empty() => {
            let paragraph = format!(
                "Packets to {peer} leave through {interface}, and no port that ranks would use has an address of it: ask for the \
                 peer's address on the network of such a port."
            );
            (paragraph, false)
        }
        Egress::Through(interface) => {
            let begin = format!(
                "Packets to {peer} leave through {interface}: {} can reach it.",
                names(leading.iter().copied())
            );
            let rest = match others.is_empty() {
                true => String::new(),
                false => format!(
                    " {} may not: RMPI_NET_DEVICES={} would keep ranks from that.",
                    names(others.iter().copied()),
                    names(leading.iter().copied()).replace(", ", ",")
                ),
            };
            (begin + &rest, true)
        }
    }
}

fn names<'a>(ports: impl Iterator<Item = &'a PortReport>) -> String {
    let names: Vec<&str> = ports.map(|port| &*port.name).collect();
    names.join(", ")
}

const NO_DEVICE: &str = "no network: this host has no InfiniBand or RoCE device; `ls /sys/class/infiniband` shows those that \
    have a driver. To try without one: `rdma link add rxe0 type rxe netdev eth0` makes a device of software on an interface \
    (package iproute2, kernel module rdma_rxe)";

#[cfg(test)]
mod tests;
