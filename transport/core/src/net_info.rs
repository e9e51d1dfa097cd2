// SPDX-License-Identifier: MIT OR Apache-2.0
//! Report of this host's InfiniBand and RoCE devices, which of them a process would use, and why not the others; for
//! people to read.
//!
//! [`inspect`] queries the kernel and rdma-core, opens no port and registers no memory. The words are those of the
//! network's messages.

use std::net::IpAddr;

use crate::{NetworkSettings, Rendezvous};

/// Everything that was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NetReport {
    /// The devices, or why none can be seen and what to do.
    pub devices: Result<Vec<DeviceReport>, String>,
    /// How many of the ports that may be used a process opens.
    pub rails: u32,
    /// Which side moves large data.
    pub rendezvous: Rendezvous,
    /// Interface by which packets to the peer leave; `None`: no peer was given.
    pub egress: Option<Egress>,
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
    /// As printed by `ibstat`.
    pub state: &'static str,
    /// Its number in the subnet, on InfiniBand.
    pub lid: Option<u16>,
    /// Largest packet on the wire.
    pub packet_bytes: u32,
    /// Its rate; 0 where that is not known.
    pub rate_mbps: u32,
    /// Whether its device has at most one read in flight.
    pub reads_poorly: bool,
    /// Its table of GIDs.
    pub gids: Vec<Gid>,
    /// Why it cannot be used, and what to do; `None`: it can be.
    pub unfit: Option<String>,
    /// Whether the caller's list of devices has it.
    pub is_allowed: bool,
    /// Whether packets to the peer leave through the interface of one of its addresses. Only on RoCE, if a peer was
    /// given.
    pub leads_there: Option<bool>,
}

impl PortReport {
    /// Whether processes would use it: the processes of a host use all such ports in turn.
    #[must_use]
    pub fn is_used(&self) -> bool {
        self.is_allowed && self.unfit.is_none()
    }
}

/// An address in a port's table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gid {
    /// Its index in the table.
    pub index: u32,
    /// As written by the tools of rdma-core.
    pub text: String,
    /// `RoCE v2`, `RoCE v1` or `IB`.
    pub kind: String,
    /// The network interface that has it.
    pub interface: Option<String>,
    /// Whether peers reach the port by it.
    pub is_chosen: bool,
    /// Reason for that choice.
    pub why: String,
}

/// The interface by which packets to an address leave this host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Egress {
    /// It is this host's own address.
    Here,
    /// Through the interface of this name.
    Through(String),
    /// There is no route.
    Nowhere,
    /// The kernel refused the query: its error, in words.
    Unknown(String),
}

/// Memory that a process may lock for devices. In bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LockedMemoryReport {
    /// `None`: as much as there is.
    pub limit_bytes: Option<u64>,
    /// Memory locked when a process begins to use the network.
    pub first_bytes: u64,
    /// Most memory locked, without the large messages in flight.
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
    /// Why ranks do not publish this address; `None`: they do.
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

/// Reports the devices of this host, and which of them a process that opened `network` would use. `peer`: an address to route to.
#[must_use]
pub fn inspect(network: &NetworkSettings, peer: Option<IpAddr>) -> NetReport {
    crate::provider::inspect(network, peer)
}
