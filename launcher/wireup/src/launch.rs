// SPDX-License-Identifier: MIT OR Apache-2.0
//! Durations of the start of a rank.

use std::fmt;

/// Durations of the phases of the start, and the time of its end, in nanoseconds. The phases are given as durations
/// because clocks differ between hosts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Launch {
    /// From the start of `rmpiexec` until it had parsed its command line and inspected the programs.
    pub command_ns: u64,
    /// From the end of the command phase until all hosts were reached; 0 in a job of one host.
    pub hosts_ns: u64,
    /// From the time at which all hosts were reached until all daemons were ready.
    pub daemons_ns: u64,
    /// From the time at which this rank's daemon received the order to start ranks until the rank called `execve`.
    pub start_ns: u64,
    /// Time of that `execve`, on `CLOCK_MONOTONIC` of the rank's host.
    pub born_ns: u64,
}

impl Launch {
    /// Parses the output of `Display`; further numbers are skipped.
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
