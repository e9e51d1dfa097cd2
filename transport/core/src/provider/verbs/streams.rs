// SPDX-License-Identifier: MIT OR Apache-2.0
//! The streams of packets to all peers (crate `session`), over their [`VerbsLinks`]; `send.rs` keeps and sends packets.
//! [`Verbs`](super::Verbs) handles arriving packets, and queues their completions here.

use super::NetLimits;
use super::control_queue::ControlQueue;
use super::links::VerbsLinks;
use super::port::{CallError, VerbsPort};
use super::ready::Ready;

/// All streams of this process.
#[derive(Debug)]
pub(super) struct VerbsStreams<P: VerbsPort> {
    pub(super) links: VerbsLinks<P>,
    /// Control packets of the provider that wait for room.
    pub(super) control: ControlQueue,
    /// Completions for the caller's next polls.
    pub(super) ready: Ready,
    /// Memory for a copy of a list of frames that is being delivered.
    pub(super) list: Vec<u8>,
}

impl<P: VerbsPort> VerbsStreams<P> {
    /// Opens the streams on these ports, for a job of `peers` processes.
    pub(super) fn open(
        me: u32,
        peers: u32,
        ports: impl IntoIterator<Item = P>,
        limits: NetLimits,
    ) -> Result<Self, CallError> {
        Ok(Self {
            links: VerbsLinks::open(me, peers, ports, limits)?,
            control: ControlQueue::default(),
            ready: Ready::new(),
            list: Vec::new(),
        })
    }

    /// Whether nothing is pending: no completion, send or acknowledgement.
    #[inline(always)]
    pub(super) fn is_calm(&self) -> bool {
        self.ready.is_empty() && self.links.peers.is_calm()
    }
}
