// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a fabric is opened with.

use super::NetLimits;
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
    /// The network, where one is needed.
    pub network: Network,
}

/// Which providers may be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Providers {
    /// Shared memory, between processes of a node.
    pub shm: bool,
    /// InfiniBand and RoCE.
    pub verbs: bool,
}

impl Default for Providers {
    fn default() -> Self {
        Self {
            shm: true,
            verbs: true,
        }
    }
}

/// How the network is used.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Network {
    /// Devices that may be used, as in `mlx5_0:1,mlx5_1`; empty for any.
    pub devices: String,
    /// How many ports this process uses at most, from 1 to 4: large messages go over all of them, and others over the next
    /// when one fails. 0 stands for 1.
    pub rails: u32,
    /// Number of this process among those of its node: they begin with different ports, if there are several.
    pub local_rank: u32,
    /// Who moves large data.
    pub rendezvous: Rendezvous,
    /// What only processes of this job know; 31 bits.
    pub q_key: u32,
    /// How much of everything.
    pub limits: NetLimits,
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

impl Config {
    /// A job of one process.
    #[must_use]
    pub fn alone() -> Self {
        Self {
            me: Peer(0),
            peers: 1,
            node: None,
            providers: Providers::default(),
            network: Network::default(),
        }
    }
}
