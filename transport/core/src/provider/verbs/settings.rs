// SPDX-License-Identifier: MIT OR Apache-2.0
//! The network settings of a process, as one opaque value.

use super::NetLimits;
use crate::provider::tcp::{StreamKey, TcpTerms};

/// The network settings of a process, for opening a fabric.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NetworkSettings {
    pub(super) devices: String,
    pub(in crate::provider) rails: u32,
    pub(super) local_rank: u32,
    pub(super) job: u64,
    pub(super) rendezvous: Rendezvous,
    pub(in crate::provider) q_key: u32,
    pub(in crate::provider) stream_key: Option<StreamKey>,
    pub(in crate::provider) limits: NetLimits,
    pub(in crate::provider) tcp: TcpTerms,
    pub(super) dpdk: String,
}

/// Which side moves the data of a large message: the receiver with RDMA reads, or on request the sender with RDMA
/// writes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Rendezvous {
    /// The receiver; but the sender if the receiver's device supports only one read in flight.
    #[default]
    Auto,
    /// The receiver; the sender may compute meanwhile.
    Read,
    /// The sender.
    Write,
}

impl NetworkSettings {
    /// Devices that may be used, as in `mlx5_0:1,mlx5_1`; empty or unset: any.
    #[must_use]
    pub fn on_devices(self, devices: &str) -> Self {
        let devices = devices.to_owned();
        Self { devices, ..self }
    }

    /// Maximum number of ports that a process uses, from 1 to 4; one by default. Large messages are striped over all of
    /// them, and the others take over when one fails.
    #[must_use]
    pub fn on_rails(self, rails: u32) -> Self {
        Self { rails, ..self }
    }

    /// Rank of this process on its node: consecutive local ranks start with consecutive ports, in turn.
    #[must_use]
    pub fn of_local_rank(self, local_rank: u32) -> Self {
        Self { local_rank, ..self }
    }

    /// The key of the job, random for each job.
    #[must_use]
    pub fn of_job(self, job: u64) -> Self {
        Self { job, ..self }
    }

    /// Which side moves the data of large messages.
    #[must_use]
    pub fn meeting_by(self, rendezvous: Rendezvous) -> Self {
        Self { rendezvous, ..self }
    }

    /// The Q_Key, known only to processes of this job; 31 bits.
    #[must_use]
    pub fn with_key(self, q_key: u32) -> Self {
        Self { q_key, ..self }
    }

    /// The key with which processes of this job authenticate connections. Without it, TCP connections are not used.
    #[must_use]
    pub fn with_stream_key(self, key: StreamKey) -> Self {
        let stream_key = Some(key);
        Self { stream_key, ..self }
    }

    /// Settings of TCP connections.
    #[must_use]
    pub fn over_tcp(self, tcp: TcpTerms) -> Self {
        Self { tcp, ..self }
    }

    /// DPDK ports of this host, in the format of `RMPI_DPDK`.
    #[must_use]
    pub fn over_dpdk(self, ports: &str) -> Self {
        let dpdk = ports.to_owned();
        Self { dpdk, ..self }
    }

    /// Whether this host has DPDK ports for the job: the setting is not empty, and if it names a file, the file exists.
    pub(in crate::provider) fn has_dpdk_ports(&self) -> bool {
        let dpdk = self.dpdk.trim();
        match dpdk.starts_with('/') {
            true => std::path::Path::new(dpdk).exists(),
            false => !dpdk.is_empty(),
        }
    }

    /// Whether the job spans several hosts.
    #[must_use]
    pub fn over_hosts(mut self, over_hosts: bool) -> Self {
        self.tcp.over_hosts = over_hosts;
        self
    }

    /// Sizes of queues and pools.
    #[must_use]
    pub fn within(self, limits: NetLimits) -> Self {
        Self { limits, ..self }
    }
}
