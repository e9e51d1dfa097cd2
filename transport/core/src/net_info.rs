// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reports, for people to read, this host's InfiniBand and RoCE devices, which of them a process would use, and why it
//! would not use the others.
//!
//! [`inspect`] queries the kernel and rdma-core, opens no port and registers no memory. The texts are those of the
//! error messages of provider `verbs`.

use std::net::IpAddr;

use crate::{NetworkSettings, Rendezvous};

/// The result of [`inspect`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NetReport {
    /// The devices, or why none can be seen and what to do.
    pub devices: Result<Vec<DeviceReport>, String>,
    /// Number of ports that a process opens; at most as many as it may use.
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
    /// Its name, such as `mlx5_0:1`.
    pub name: String,
    /// `RoCE`, `InfiniBand`, or that it is neither.
    pub link: &'static str,
    /// As printed by `ibstat`.
    pub state: &'static str,
    /// Its local identifier (LID) in the subnet, on InfiniBand.
    pub lid: Option<u16>,
    /// Largest packet on the wire.
    pub packet_bytes: u32,
    /// Its rate, in Mbit/s; 0: unknown.
    pub rate_mbps: u32,
    /// Whether its device has at most one read in flight.
    pub reads_poorly: bool,
    /// Its table of GIDs.
    pub gids: Vec<Gid>,
    /// Why it cannot be used, and what to do; `None`: it can be.
    pub unfit: Option<String>,
    /// Whether it is in the list of devices in the settings, or that list is empty.
    pub is_allowed: bool,
    /// Whether packets to the peer leave through the interface of one of this port's addresses. `None`: this is not a
    /// RoCE port, no peer was given, or packets to the peer do not leave through an interface.
    pub leads_there: Option<bool>,
}

impl PortReport {
    /// Whether processes of this host would use this port. The processes are spread over all ports that they would use.
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
    /// Whether peers reach the port by this GID.
    pub is_chosen: bool,
    /// Why this GID was chosen or not.
    pub why: String,
}

/// The interface by which packets to an address leave this host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Egress {
    /// The address is one of this host.
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
    /// The limit; `None`: there is none.
    pub limit_bytes: Option<u64>,
    /// Memory locked when a process begins to use the network.
    pub first_bytes: u64,
    /// Maximum memory locked, not counting large messages in flight.
    pub most_bytes: u64,
    /// What to do; `None` if the limit allows `most_bytes`.
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

/// The addresses of this host, as provider `tcp` would use them in a process with the settings `network`.
///
/// # Errors
/// Why there are no addresses, in words.
pub fn addresses(network: &NetworkSettings) -> Result<Vec<AddressReport>, String> {
    crate::provider::addresses(network)
}

/// Describes the DPDK ports that `ports`, a value of `RMPI_DPDK`, names for this host. Opens none of them.
///
/// # Errors
/// What is missing, in words.
pub fn dpdk(ports: &str) -> Result<String, String> {
    crate::provider::dpdk_ports(ports)
}

/// Reports the devices of this host, and which of them a process with the settings `network` would use. `peer`: an
/// address whose route is reported too.
#[must_use]
pub fn inspect(network: &NetworkSettings, peer: Option<IpAddr>) -> NetReport {
    crate::provider::inspect(network, peer)
}
