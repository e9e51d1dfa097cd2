// SPDX-License-Identifier: MIT OR Apache-2.0
//! How the network is used: what is chosen for a process, as one value that nobody else looks into.

use super::NetLimits;
use crate::provider::tcp::{StreamKey, TcpTerms};

/// How the network is used. Whoever opens a fabric makes one and hands it on.
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

/// Who moves large data over the network: with a read, or when asked for it with a write.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Rendezvous {
    /// The reader; but where its device has no more than one read under way, the owner of the data.
    #[default]
    Auto,
    /// The reader, while the owner of the data may be doing something else.
    Read,
    /// The owner of the data.
    Write,
}

impl NetworkSettings {
    /// Devices that may be used, as in `mlx5_0:1,mlx5_1`; any, where this is not said, or is empty.
    #[must_use]
    pub fn on_devices(self, devices: &str) -> Self {
        let devices = devices.to_owned();
        Self { devices, ..self }
    }

    /// How many ports a process uses at most, from 1 to 4, else one: large messages go over all of them, and others over the
    /// next when one fails.
    #[must_use]
    pub fn on_rails(self, rails: u32) -> Self {
        Self { rails, ..self }
    }

    /// Number of this process among those of its node: they begin with different ports, if there are several.
    #[must_use]
    pub fn of_local_rank(self, local_rank: u32) -> Self {
        Self { local_rank, ..self }
    }

    /// The key of the job, random for each.
    #[must_use]
    pub fn of_job(self, job: u64) -> Self {
        Self { job, ..self }
    }

    /// Who moves large data.
    #[must_use]
    pub fn meeting_by(self, rendezvous: Rendezvous) -> Self {
        Self { rendezvous, ..self }
    }

    /// What only processes of this job know; 31 bits.
    #[must_use]
    pub fn with_key(self, q_key: u32) -> Self {
        Self { q_key, ..self }
    }

    /// What processes of this job prove to each other over connections. Nothing goes over connections where this is not said.
    #[must_use]
    pub fn with_stream_key(self, key: StreamKey) -> Self {
        let stream_key = Some(key);
        Self { stream_key, ..self }
    }

    /// How connections of the Internet protocol are used.
    #[must_use]
    pub fn over_tcp(self, tcp: TcpTerms) -> Self {
        Self { tcp, ..self }
    }

    /// Ports of DPDK of this host, as `RMPI_DPDK` says them.
    #[must_use]
    pub fn over_dpdk(self, ports: &str) -> Self {
        let dpdk = ports.to_owned();
        Self { dpdk, ..self }
    }

    /// Whether this host has ports of DPDK for the job: of a file that all hosts are told, those have some that have the file.
    pub(in crate::provider) fn has_dpdk_ports(&self) -> bool {
        let said = self.dpdk.trim();
        match said.starts_with('/') {
            true => std::path::Path::new(said).exists(),
            false => !said.is_empty(),
        }
    }

    /// Whether the job is over several hosts.
    #[must_use]
    pub fn over_hosts(mut self, over_hosts: bool) -> Self {
        self.tcp.over_hosts = over_hosts;
        self
    }

    /// How much of everything.
    #[must_use]
    pub fn within(self, limits: NetLimits) -> Self {
        Self { limits, ..self }
    }
}
