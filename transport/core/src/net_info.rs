// SPDX-License-Identifier: MIT OR Apache-2.0
//! What this host has of InfiniBand and RoCE, what a process would use of it, and why not the rest: for people.
//!
//! [`look`] asks the kernel and rdma-core, opens no port and registers no memory. Everything is in the words that messages of
//! the network use too.

use std::net::IpAddr;

use crate::{NetworkSettings, Rendezvous};

/// All that was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NetReport {
    /// The devices, or why none can be seen and what to do.
    pub devices: Result<Vec<DeviceReport>, String>,
    /// How many of the ports that may be used a process opens.
    pub rails: u32,
    /// Who is to move large data.
    pub rendezvous: Rendezvous,
    /// Where packets to the peer leave; `None`: no peer was asked about.
    pub way: Option<Egress>,
    /// Memory that processes may lock for devices.
    pub memory: LockedMemoryReport,
}

/// A device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceReport {
    /// Its name, as in `RMPI_NET_DEVICES`.
    pub name: String,
    /// Its ports, or why they are not known.
    pub ports: Result<Vec<PortReport>, String>,
}

/// A port of a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortReport {
    /// `mlx5_0:1`.
    pub name: String,
    /// `RoCE`, `InfiniBand`, or that it is neither.
    pub link: &'static str,
    /// As `ibstat` says.
    pub state: &'static str,
    /// Its number in the subnet, on InfiniBand.
    pub lid: Option<u16>,
    /// Largest packet on the wire.
    pub packet_bytes: u32,
    /// What it carries at most; 0 where that is not known.
    pub rate_mbps: u32,
    /// Whether its device has no more than one read under way at a time.
    pub reads_poorly: bool,
    /// Its table of addresses.
    pub gids: Vec<Gid>,
    /// Why it cannot be used, and what to do; `None`: it can be.
    pub unfit: Option<String>,
    /// Whether the caller's list of devices has it.
    pub is_allowed: bool,
    /// Whether packets to the peer leave through the interface of one of its addresses. On RoCE, if a peer was asked about.
    pub leads_there: Option<bool>,
}

impl PortReport {
    /// Whether processes would use it: those of a host take all such ports in turn.
    #[must_use]
    pub fn is_used(&self) -> bool {
        self.is_allowed && self.unfit.is_none()
    }
}

/// An address in a port's table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gid {
    /// Its place there.
    pub index: u32,
    /// As the tools of rdma-core write it.
    pub text: String,
    /// `RoCE v2`, `RoCE v1` or `IB`.
    pub kind: String,
    /// The network interface that has it.
    pub interface: Option<String>,
    /// Whether others reach the port by it.
    pub is_chosen: bool,
    /// Why, or why not.
    pub why: String,
}

/// The interface by which packets to an address leave this host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Egress {
    /// It is this host's own address.
    Here,
    /// Through the interface of this name.
    Through(String),
    /// There is no way.
    Nowhere,
    /// The kernel did not say: its words.
    Unknown(String),
}

/// Memory that a process may lock for devices. In bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LockedMemoryReport {
    /// `None`: as much as there is.
    pub limit_bytes: Option<u64>,
    /// What a process locks when it begins to use the network.
    pub first_bytes: u64,
    /// What it locks at most, without the large messages that are under way.
    pub most_bytes: u64,
    /// What to do if the limit is below that.
    pub remedy: Option<String>,
}

/// An address of this host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AddressReport {
    /// The interface that has it.
    pub interface: String,
    /// The address.
    pub address: IpAddr,
    /// Why ranks do not tell others that they are found there; `None`: they do.
    pub unfit: Option<&'static str>,
}

/// The addresses of this host for provider tcp of a process that opened `network`.
///
/// # Errors
/// Why there are none, in words.
pub fn addresses(network: &NetworkSettings) -> Result<Vec<AddressReport>, String> {
    crate::provider::addresses(network)
}

/// The ports of DPDK that `RMPI_DPDK`, given here, names for this host. None is opened.
///
/// # Errors
/// What is missing, in words.
pub fn dpdk(ports: &str) -> Result<String, String> {
    crate::provider::dpdk_ports(ports)
}

/// Looks at this host: at what a process would use of it that opened `network`. `peer`: an address that packets shall go to.
#[must_use]
pub fn look(network: &NetworkSettings, peer: Option<IpAddr>) -> NetReport {
    crate::provider::look(network, peer)
}
