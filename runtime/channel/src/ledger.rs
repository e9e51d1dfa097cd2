// SPDX-License-Identifier: MIT OR Apache-2.0
//! What channels count: their owner goes on, and any thread or signal handler may read meanwhile.

use ring::Own64;

/// What channels did so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ChannelCounters {
    /// Bytes that this end has sent from where they were to where they belong, in one go.
    pub direct_bytes: u64,
    /// Bytes that this end has copied once more: to a place from where they were sent, or from one where they had landed.
    pub packed_bytes: u64,
    /// Bytes that were sent before their gate was known.
    pub eager_bytes: u64,
    /// One-sided writes posted.
    pub writes: u64,
    /// Gates told to peers in frames.
    pub gates: u64,
    /// Times that memory was asked for, by declares too.
    pub allocations: u64,
    /// Bytes that went in frames, since the peer's memory cannot be written to.
    pub streamed_bytes: u64,
    /// Frames and immediates that made no sense.
    pub refused: u64,
    /// Starts of sends whose end was taken.
    pub sends: u64,
    /// Starts of receives whose end was taken.
    pub receives: u64,
    /// Starts of sends that found their gate closed.
    pub late_gates: u64,
}

/// The same as it is counted.
#[derive(Debug, Default)]
pub struct ChannelLedger {
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

impl ChannelLedger {
    /// The numbers now, no two of them as of one instant.
    #[must_use]
    pub fn seen(&self) -> ChannelCounters {
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
