// SPDX-License-Identifier: MIT OR Apache-2.0
//! The streams of packets to all peers (crate `session`), over their [`VerbsLinks`]: packets are kept and sent in `send.rs`. What comes is
//! taken in by [`Verbs`](super::Verbs), and put here to be handed up.

use super::NetLimits;
use super::control_queue::ControlQueue;
use super::links::VerbsLinks;
use super::port::{CallError, VerbsPort};
use super::ready::Ready;

/// All streams of this process.
#[derive(Debug)]
pub(super) struct VerbsStreams<P: VerbsPort> {
    pub(super) links: VerbsLinks<P>,
    /// Packets of the provider's own that found no room.
    pub(super) letters: ControlQueue,
    /// What the caller gets with its next polls.
    pub(super) ready: Ready,
}

impl<P: VerbsPort> VerbsStreams<P> {
    /// Takes ports, for a job of `peers` processes.
    pub(super) fn open(
        me: u32,
        peers: u32,
        ports: impl IntoIterator<Item = P>,
        limits: NetLimits,
    ) -> Result<Self, CallError> {
        Ok(Self {
            links: VerbsLinks::open(me, peers, ports, limits)?,
            letters: ControlQueue::default(),
            ready: Ready::new(),
        })
    }

    /// Whether nothing waits to be handed up, sent or told.
    #[inline(always)]
    pub(super) fn is_calm(&self) -> bool {
        self.ready.is_empty() && self.links.sides.is_calm()
    }
}
