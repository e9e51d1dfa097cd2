// SPDX-License-Identifier: MIT OR Apache-2.0
//! Counters of channels: written by their owner, read by any thread or signal handler.

use ring::Own64;

/// Counters of channels.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ChannelCounters {
    /// Bytes sent without a staging buffer on either side.
    pub direct_bytes: u64,
    /// Bytes copied once more by this end: to or from a staging buffer.
    pub packed_bytes: u64,
    /// Bytes sent eagerly, before the gate was known.
    pub eager_bytes: u64,
    /// One-sided writes posted.
    pub writes: u64,
    /// Gates sent in frames.
    pub gates: u64,
    /// Allocations, including those of declarations.
    pub allocations: u64,
    /// Bytes sent in frames, since the peer's memory cannot be written to.
    pub streamed_bytes: u64,
    /// Invalid frames and immediates.
    pub refused: u64,
    /// Collected starts of sends.
    pub sends: u64,
    /// Collected starts of receives.
    pub receives: u64,
    /// Starts of sends whose gate was not open.
    pub late_gates: u64,
}

/// The counters while they are updated.
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
    /// The values now; different counters may be read at different instants.
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
