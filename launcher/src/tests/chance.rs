// SPDX-License-Identifier: MIT OR Apache-2.0
//! Random choices for simulated hosts, from a seed.

/// Random numbers from a seed.
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
    /// It is silent from now on.
    PowerOff,
    /// It does nothing for this many seconds.
    Frozen(u64),
    /// Its daemon is killed.
    DaemonKilled,
}
