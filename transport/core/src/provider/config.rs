// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a fabric is opened with.

use super::NetworkSettings;
use crate::{Node, Peer};

/// What a fabric is opened with.
#[derive(Debug)]
pub struct Config {
    /// This process.
    pub me: Peer,
    /// Processes of the job.
    pub peers: u32,
    /// The ranks of this node; `None` where nobody made a segment for them.
    pub node: Option<Node>,
    /// Which providers may be used beside `self`.
    pub providers: Providers,
    /// How the network is used, where one is needed: its provider alone looks into that.
    pub network: NetworkSettings,
}

/// Which providers may be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Providers {
    /// Shared memory, between processes of a node.
    pub shm: bool,
    /// InfiniBand and RoCE.
    pub verbs: bool,
    /// The Internet protocol, where there is nothing better.
    pub tcp: bool,
    /// RoCE of this process's own, in datagrams of UDP, where it has no device.
    pub roce: bool,
    /// The same, without the kernel, where it has no device and a port of DPDK.
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
    /// Whether there is one for other nodes among them.
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
