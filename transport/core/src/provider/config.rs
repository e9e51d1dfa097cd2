// SPDX-License-Identifier: MIT OR Apache-2.0
//! Configuration of a fabric.

use super::NetworkSettings;
use crate::{Node, Peer};

/// Configuration of a fabric.
#[derive(Debug)]
pub struct Config {
    /// The peer number of this process.
    pub me: Peer,
    /// Number of processes of the job.
    pub peers: u32,
    /// The ranks of this node; `None` if there is no segment for them.
    pub node: Option<Node>,
    /// Providers that may be used beside `self`.
    pub providers: Providers,
    /// Settings of the network; used only if a network is needed.
    pub network: NetworkSettings,
}

/// The providers that may be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Providers {
    /// Shared memory, between processes of a node.
    pub shm: bool,
    /// InfiniBand and RoCE.
    pub verbs: bool,
    /// TCP connections, to peers that nothing better reaches.
    pub tcp: bool,
    /// RoCE in software, over UDP, if the process has no device.
    pub roce: bool,
    /// RoCE in software, over DPDK, if the process has a DPDK port and no device.
    pub dpdk: bool,
}

impl Default for Providers {
    fn default() -> Self {
        Self {
            shm: true,
            verbs: true,
            tcp: true,
            roce: false,
            dpdk: false,
        }
    }
}

impl Providers {
    /// Whether any of these providers reaches other nodes.
    pub(super) fn any_network(&self) -> bool {
        self.verbs || self.tcp || self.roce || self.dpdk
    }
}

impl Config {
    /// A job of one process.
    #[must_use]
    pub fn alone() -> Self {
        Self {
            me: Peer(0),
            peers: 1,
            node: None,
            providers: Providers::default(),
            network: NetworkSettings::default(),
        }
    }
}
