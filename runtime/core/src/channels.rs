// SPDX-License-Identifier: MIT OR Apache-2.0
//! Gated channels between the ranks of a communicator: those of crate `channel`, with ranks and contexts as names. MPI knows nothing
//! of them; who builds on this library does, by its private C interface.

use channel::Way;
pub use channel::{Blocks, ChannelCounters, ChannelError, ChannelId, Direction, Failed, Memory};

use crate::pump::carrier;
use crate::{Comm, Universe};

/// Where a channel leads, as the program names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct End {
    /// Which end this is.
    pub direction: Direction,
    /// The rank at the other end, in the communicator.
    pub rank: u32,
    /// Which queue of the two ranks, below 16.
    pub class: u8,
}

impl Universe {
    /// Makes one end of a channel between two ranks of a communicator. Talks to nobody. `None`: there is no such rank.
    ///
    /// # Errors
    /// Those of [`channel::Channels::declare`].
    pub fn declare_channel(
        &mut self,
        comm: &Comm,
        end: End,
        memory: Memory,
    ) -> Option<Result<ChannelId, ChannelError>> {
        let way = Way {
            direction: end.direction,
            peer: carrier(comm.group.peer(end.rank)?),
            context: comm.context.0,
            class: end.class,
        };
        Some(
            self.channels
                .declare(&mut self.messages.pump.fabric, way, memory),
        )
    }

    /// Starts all of these, the receives first; or none.
    ///
    /// # Errors
    /// Those of [`channel::Channels::start`].
    #[inline]
    pub fn start_channels(&mut self, ids: &[ChannelId]) -> Result<(), ChannelError> {
        self.channels.start(&mut self.messages.pump.fabric, ids)
    }

    /// Whether all of these have ended, or are not started.
    ///
    /// # Errors
    /// Those of [`channel::Channels::are_done`].
    #[inline]
    pub fn are_channels_done(&mut self, ids: &[ChannelId]) -> Result<bool, ChannelError> {
        self.channels.are_done(ids)
    }

    /// Takes the ends of all of these.
    ///
    /// # Errors
    /// Those of [`channel::Channels::collect`].
    pub fn collect_channels(&mut self, ids: &[ChannelId]) -> Result<(), ChannelError> {
        self.channels.collect(ids)
    }

    /// Gives an end that is not active other memory.
    ///
    /// # Errors
    /// Those of [`channel::Channels::change_memory`].
    pub fn change_channel(&mut self, id: ChannelId, memory: Memory) -> Result<(), ChannelError> {
        self.channels
            .change_memory(&mut self.messages.pump.fabric, id, memory)
    }

    /// Gives an end up that is not active.
    ///
    /// # Errors
    /// Those of [`channel::Channels::free`].
    pub fn free_channel(&mut self, id: ChannelId) -> Result<(), ChannelError> {
        self.channels.free(&mut self.messages.pump.fabric, id)
    }

    /// This process starts nothing more in the context of a communicator: who waits for it there is told.
    pub fn leave_channels(&mut self, comm: &Comm) {
        self.channels
            .leave(&mut self.messages.pump.fabric, comm.context.0);
    }

    /// How the last message of an end has failed that was collected, and why its peer is lost, if it is.
    ///
    /// # Errors
    /// Those of [`channel::Channels::failed`].
    pub fn channel_failure(&self, id: ChannelId) -> Result<Option<(Failed, &str)>, ChannelError> {
        let failed = self.channels.failed(id)?;
        Ok(failed.map(|failed| (failed, self.why_lost(failed.peer.0).unwrap_or_default())))
    }

    /// What channels did so far.
    #[must_use]
    pub fn channel_counters(&mut self) -> ChannelCounters {
        self.channels.counters()
    }

    /// Channels' part of a turn. `true`: something was posted.
    #[inline(never)]
    pub(crate) fn tend_channels(&mut self) -> bool {
        self.channels.progress(&mut self.messages.pump.fabric)
    }
}
