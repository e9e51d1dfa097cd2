// SPDX-License-Identifier: MIT OR Apache-2.0
//! What may be set.

pub use super::congestion::TcpCongestion;

/// How connections are used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TcpTerms {
    /// Interfaces, addresses or networks that may be used, as in `eth0,10.1.0.0/16`; nothing: all that lead to other hosts.
    pub interfaces: String,
    /// The first and the last port that others may be told; `None`: whichever the system chooses.
    pub ports: Option<(u16, u16)>,
    /// Connections that a process has at a time.
    pub connections: u32,
    /// The job is over several hosts, so that an address of this one alone is of no use.
    pub over_hosts: bool,
    /// What controls the congestion of connections.
    pub congestion: TcpCongestion,
}

impl Default for TcpTerms {
    fn default() -> Self {
        Self {
            interfaces: String::new(),
            ports: None,
            connections: 128,
            over_hosts: false,
            congestion: TcpCongestion::Auto,
        }
    }
}
