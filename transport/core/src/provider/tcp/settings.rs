// SPDX-License-Identifier: MIT OR Apache-2.0
//! Settings of connections.

pub use super::congestion::TcpCongestion;

/// Settings of connections.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TcpTerms {
    /// Interfaces, addresses or networks that may be used, as in `eth0,10.1.0.0/16`; empty: all that lead to other
    /// hosts.
    pub interfaces: String,
    /// The first and the last port to listen on; `None`: chosen by the system.
    pub ports: Option<(u16, u16)>,
    /// Number of connections of a process above which idle ones are closed.
    pub connections: u32,
    /// Whether the job is on several hosts. If so, an address that is valid only on this host is of no use.
    pub over_hosts: bool,
    /// The congestion control algorithm.
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
