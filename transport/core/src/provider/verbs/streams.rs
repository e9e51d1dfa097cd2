// SPDX-License-Identifier: MIT OR Apache-2.0
//! The streams of packets to all peers (crate `session`), over their [`Links`]: packets are kept and sent in `send.rs`. What comes is
//! taken in by [`Verbs`](super::Verbs), and put here to be handed up.

use super::NetLimits;
use super::letters::Letters;
use super::links::Links;
use super::port::{CallError, Port};
use super::ready::Ready;

/// All streams of this process.
#[derive(Debug)]
pub(super) struct Streams<P: Port> {
    pub(super) links: Links<P>,
    /// Packets of the provider's own that found no room.
    pub(super) letters: Letters,
    /// What the caller gets with its next polls.
    pub(super) ready: Ready,
}

impl<P: Port> Streams<P> {
    /// Takes ports, for a job of `peers` processes.
    pub(super) fn open(
        me: u32,
        peers: u32,
        ports: impl IntoIterator<Item = P>,
        limits: NetLimits,
    ) -> Result<Self, CallError> {
        Ok(Self {
            links: Links::open(me, peers, ports, limits)?,
            letters: Letters::default(),
            ready: Ready::new(),
        })
    }

    /// Whether nothing waits to be handed up, sent or told.
    #[inline(always)]
    pub(super) fn is_calm(&self) -> bool {
        self.ready.is_empty() && self.links.sides.is_calm()
    }
}
