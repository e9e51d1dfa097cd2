// SPDX-License-Identifier: MIT OR Apache-2.0
//! How long a launcher took to start a rank.

use std::fmt;

/// The phases of the start, in nanoseconds. Hosts have clocks of their own: all are durations, but for the last.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Launch {
    /// From the beginning of `rmpiexec` until it had understood its command line and looked at the programs.
    pub command_ns: u64,
    /// From there until all hosts were reached; 0 in a job of one host.
    pub hosts_ns: u64,
    /// From there until the daemons had all they need.
    pub daemons_ns: u64,
    /// From the order to start ranks, as the daemon of this one heard it, until this one became its program.
    pub start_ns: u64,
    /// When that was, on `CLOCK_MONOTONIC` of the rank's host.
    pub born_ns: u64,
}

impl Launch {
    /// Reads what `Display` writes; further numbers are skipped.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let mut numbers = text.split(',').map(|number| number.parse().ok());
        let mut next = || numbers.next().flatten();
        Some(Self {
            command_ns: next()?,
            hosts_ns: next()?,
            daemons_ns: next()?,
            start_ns: next()?,
            born_ns: next()?,
        })
    }
}

impl fmt::Display for Launch {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            out,
            "{},{},{},{},{}",
            self.command_ns, self.hosts_ns, self.daemons_ns, self.start_ns, self.born_ns
        )
    }
}
