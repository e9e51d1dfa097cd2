// SPDX-License-Identifier: MIT OR Apache-2.0
//! Random choices for simulated hosts, determined by a seed.

/// A pseudo-random number generator.
pub(crate) struct Dice(u64);

impl Dice {
    pub(crate) fn of(seed: u64) -> Self {
        Self(seed * 2 + 0x9e37_79b9)
    }

    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % end
    }
}

/// A fault of a host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Fault {
    /// Its shepherd is killed; all peers notice.
    Killed,
    /// It sends nothing from now on, and its connections do not close.
    PowerOff,
    /// It does nothing for this many seconds.
    Frozen(u64),
    /// Its daemon is killed.
    DaemonKilled,
}
