// SPDX-License-Identifier: MIT OR Apache-2.0
//! Gated channels between the ranks of a communicator: the channels of crate `channel`, addressed by rank and context
//! id. They are not part of MPI; libraries use them through a private C interface.

use channel::ChannelKey;
pub use channel::{
    ChannelCounters, ChannelDirection, ChannelError, ChannelFailure, ChannelId, ChannelMemory,
    UserBlocks,
};
use transport::Fabric;

use crate::carrier::carrier;
use crate::network::JobNetwork;
use crate::{Comm, Messages, Peer};

/// A channel as the program addresses it: by direction, rank in the communicator, and class.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChannelSpec {
    /// The direction of this end.
    pub direction: ChannelDirection,
    /// The rank of the process at the other end, in the communicator.
    pub rank: u32,
    /// Number that distinguishes the channels between two ranks; below 16.
    pub class: u8,
}

/// The channels of a process.
#[derive(Debug)]
pub struct ProcessChannels {
    pub(crate) own: channel::Channels,
}

impl ProcessChannels {
    pub(crate) fn new() -> Self {
        let own = channel::Channels::new();
        Self { own }
    }

    /// Makes this process's end of a channel to another rank of a communicator. Sends nothing. `None`: the communicator
    /// does not have the rank in `end`.
    ///
    /// # Errors
    /// Those of [`channel::Channels::declare`].
    pub fn declare(
        &mut self,
        messages: &mut Messages,
        comm: &Comm,
        end: ChannelSpec,
        memory: ChannelMemory,
    ) -> Option<Result<ChannelId, ChannelError>> {
        let key = ChannelKey {
            direction: end.direction,
            peer: carrier(comm.group.peer(end.rank)?),
            context: comm.context.0,
            class: end.class,
        };
        Some(self.own.declare(&mut messages.pump.fabric, key, memory))
    }

    /// Starts all of these channel ends, the receiving ends first. If there is an error, none is started.
    ///
    /// # Errors
    /// Those of [`channel::Channels::start`].
    #[inline]
    pub fn start(
        &mut self,
        messages: &mut Messages,
        ids: &[ChannelId],
    ) -> Result<(), ChannelError> {
        self.own.start(&mut messages.pump.fabric, ids)
    }

    /// Whether none of these channel ends is in progress: each has completed, or was not started.
    ///
    /// # Errors
    /// Those of [`channel::Channels::are_done`].
    #[inline]
    pub fn are_done(&mut self, ids: &[ChannelId]) -> Result<bool, ChannelError> {
        self.own.are_done(ids)
    }

    /// Collects all of these channel ends: they become inactive and can be started again.
    ///
    /// # Errors
    /// Those of [`channel::Channels::collect`].
    pub fn collect(&mut self, ids: &[ChannelId]) -> Result<(), ChannelError> {
        self.own.collect(ids)
    }

    /// Replaces the memory of an end that is not active.
    ///
    /// # Errors
    /// Those of [`channel::Channels::change_memory`].
    pub fn change(
        &mut self,
        messages: &mut Messages,
        id: ChannelId,
        memory: ChannelMemory,
    ) -> Result<(), ChannelError> {
        self.own
            .change_memory(&mut messages.pump.fabric, id, memory)
    }

    /// Frees an end that is not active.
    ///
    /// # Errors
    /// Those of [`channel::Channels::free`].
    pub fn free(&mut self, messages: &mut Messages, id: ChannelId) -> Result<(), ChannelError> {
        self.own.free(&mut messages.pump.fabric, id)
    }

    /// Records that this process will start no more channel ends of a communicator, and informs the peers whose channel
    /// ends wait for this process.
    pub fn leave(&mut self, messages: &mut Messages, comm: &Comm) {
        self.own.leave(&mut messages.pump.fabric, comm.context.0);
    }

    /// The error of the last message of a collected channel end, and the reason if the peer is dead. `None`: the
    /// message had no error.
    ///
    /// # Errors
    /// Those of [`channel::Channels::failed`].
    pub fn failure<'a>(
        &self,
        network: &'a JobNetwork,
        id: ChannelId,
    ) -> Result<Option<(ChannelFailure, &'a str)>, ChannelError> {
        let failed = self.own.failed(id)?;
        Ok(failed.map(|failed| {
            (
                failed,
                network.why_lost(Peer(failed.peer.0)).unwrap_or_default(),
            )
        }))
    }

    /// The counters of channels.
    #[must_use]
    pub fn counters(&mut self) -> ChannelCounters {
        self.own.counters()
    }

    /// A turn of the channels. `true`: something was posted.
    #[inline(never)]
    pub(crate) fn turn(&mut self, fabric: &mut Fabric) -> bool {
        self.own.progress(fabric)
    }
}
