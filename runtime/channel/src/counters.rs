// SPDX-License-Identifier: MIT OR Apache-2.0
//! Counters of channels. Only the owner of the channels writes to them; any thread or signal handler may read them.

use ring::Own64;

/// Values of the counters of channels.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ChannelCounters {
    /// Bytes sent without a staging buffer on either side.
    pub direct_bytes: u64,
    /// Bytes that this process has copied in addition: to or from a staging buffer, or from the buffer of an eager
    /// message.
    pub packed_bytes: u64,
    /// Bytes sent eagerly, before the gate was known.
    pub eager_bytes: u64,
    /// One-sided writes posted, and messages copied through gate lines.
    pub writes: u64,
    /// Gates sent in frames.
    pub gates: u64,
    /// Allocations, including those of declarations.
    pub allocations: u64,
    /// Bytes sent in frames of kind STREAM instead of one-sided writes.
    pub streamed_bytes: u64,
    /// Invalid frames and immediates.
    pub refused: u64,
    /// Collected starts of sends.
    pub sends: u64,
    /// Collected starts of receives.
    pub receives: u64,
    /// Starts of sends whose gate was not known to be open.
    pub late_gates: u64,
}

/// The counters that the owner of the channels updates.
#[derive(Debug, Default)]
pub struct LiveChannelCounters {
    pub(crate) direct_bytes: Own64,
    pub(crate) packed_bytes: Own64,
    pub(crate) eager_bytes: Own64,
    pub(crate) writes: Own64,
    pub(crate) gates: Own64,
    pub(crate) allocations: Own64,
    pub(crate) streamed_bytes: Own64,
    pub(crate) refused: Own64,
    pub(crate) sends: Own64,
    pub(crate) receives: Own64,
    pub(crate) late_gates: Own64,
}

impl LiveChannelCounters {
    /// The current values. They are read one after another, not at one instant.
    #[must_use]
    pub fn snapshot(&self) -> ChannelCounters {
        ChannelCounters {
            direct_bytes: self.direct_bytes.get(),
            packed_bytes: self.packed_bytes.get(),
            eager_bytes: self.eager_bytes.get(),
            writes: self.writes.get(),
            gates: self.gates.get(),
            allocations: self.allocations.get(),
            streamed_bytes: self.streamed_bytes.get(),
            refused: self.refused.get(),
            sends: self.sends.get(),
            receives: self.receives.get(),
            late_gates: self.late_gates.get(),
        }
    }
}
