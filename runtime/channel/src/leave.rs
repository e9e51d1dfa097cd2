// SPDX-License-Identifier: MIT OR Apache-2.0
//! Leaving a context, and failures of messages.
//!
//! A process that leaves a context sends a LEAVE to each peer with which it has a class in that context. The LEAVE
//! contains the numbers of sends and receives that the process has started. Operations paired with those complete as
//! before; operations paired with later ones complete with [`ChannelError::Left`]. A process that has left also replies
//! with a LEAVE to every GATE, DATA and QUERY of the context. A waiting receive has sent a GATE, an eager send a DATA.
//! A send that waits while no receive of the peer is known sends a QUERY, once per class. So every waiting peer gets a
//! LEAVE. A context that a process has left stays marked as left, so the caller must not use its id again in this
//! process. The allocation of context ids does not ensure this: an id that ranks have agreed on can be reused after it
//! was freed.

use crate::class::{ChannelClass, Started};
use crate::wire;
use crate::{ChannelDirection, ChannelError, ChannelFailure, ChannelId, Channels};
use transport::{Arrived, Fabric};

impl Channels {
    /// Leaves a context. Operations of peers that wait for later starts of this process in the context, now or in the
    /// future, complete with [`ChannelError::Left`].
    pub fn leave(&mut self, fabric: &mut Fabric, context: u32) {
        self.commit_run();
        self.epoch += 1;
        if !self.departed.insert(context) {
            return;
        }
        for class in 0..self.classes.len() {
            if self.classes[class].name.context == context {
                self.send_leave(fabric, class);
            }
        }
    }

    /// The failure of the last collected message of an end; `None`: it did not fail.
    ///
    /// # Errors
    /// [`ChannelError::Stale`].
    pub fn failed(&self, id: ChannelId) -> Result<Option<ChannelFailure>, ChannelError> {
        Ok(self.handles.find(id)?.failed)
    }

    fn send_leave(&mut self, fabric: &mut Fabric, class: usize) {
        let ChannelClass {
            peer,
            name,
            out,
            into,
            ..
        } = &self.classes[class];
        let (peer, words) = (*peer, [out.started, into.started]);
        self.send_frame(fabric, peer, wire::head(wire::LEAVE, *name, 0), &words);
    }

    /// Sends a QUERY for a waiting send, if no receive of the peer is known: the peer may have left.
    #[inline]
    pub(crate) fn query_leave(&mut self, fabric: &mut Fabric, index: u32) {
        let class = &mut self.classes[self.handles.at(index).class as usize];
        if class.out.has_known_receives() || std::mem::replace(&mut class.has_queried, true) {
            return;
        }
        let (peer, head) = (class.peer, wire::head(wire::QUERY, class.name, 0));
        self.send_frame(fabric, peer, head, &[]);
    }

    /// Handles a start or a query of a peer: sends a LEAVE if this process has left the context.
    pub(crate) fn answer_query(&mut self, fabric: &mut Fabric, class: u32, kind: u8) {
        let class = class as usize;
        let waits = matches!(kind, wire::GATE | wire::DATA | wire::QUERY);
        if waits && self.departed.contains(&self.classes[class].name.context) {
            self.send_leave(fabric, class);
        }
    }

    /// Handles a LEAVE.
    pub(crate) fn take_leave(&mut self, class: u32, arrived: &Arrived) -> Option<()> {
        let [sends, receives, ..] = arrived.words;
        let state = &mut self.classes[class as usize];
        if arrived.bytes() != 16 || state.left.is_some() {
            // A second LEAVE is valid: one is sent at the departure, another as a reply.
            return (arrived.bytes() == 16).then_some(());
        }
        state.left = Some(Started { sends, receives });
        self.epoch += 1;
        for index in &state.handles {
            let Some(handle) = self.handles.get_mut(*index) else {
                continue;
            };
            let is_unmatched = match handle.direction {
                ChannelDirection::Send => handle.is_pending() && handle.number >= receives,
                ChannelDirection::Receive => handle.number >= sends && !handle.is_done(),
            };
            if !is_unmatched {
                continue;
            }
            if handle.direction == ChannelDirection::Receive {
                state.into.end(handle.number);
            }
            handle.finish(Err(ChannelError::Left));
        }
        let handles = &self.handles;
        self.pending.retain(|index| handles.at(*index).is_pending());
        Some(())
    }

    /// Collects the outcome of one message and, if the message has failed, records the failure. A send that has
    /// succeeded returns the error of an earlier eager send of the class, if there is one.
    pub(crate) fn take_outcome(&mut self, id: ChannelId) -> Result<(), ChannelError> {
        let handle = self.handles.at_mut(id.index());
        let class = &mut self.classes[handle.class as usize];
        let end = handle.collect();
        let sizes = handle.sizes.take();
        handle.failed = None;
        let (error, sizes, is_earlier) = match end {
            Err(error) => (error, sizes, false),
            Ok(()) if handle.direction == ChannelDirection::Send && class.refused.is_some() => {
                (ChannelError::SizesDiffer, class.refused.take(), true)
            }
            Ok(()) => return Ok(()),
        };
        handle.failed = Some(ChannelFailure {
            error,
            peer: class.peer,
            message_bytes: sizes.map_or(0, |sizes| sizes.message),
            room_bytes: sizes.map_or(0, |sizes| sizes.room),
            is_earlier,
        });
        Err(error)
    }
}

impl ChannelClass {
    /// The error of receive `number`, if its message will never be sent.
    pub(crate) fn never_sends(&self, number: u64) -> Option<ChannelError> {
        self.peer_error(|left| number >= left.sends)
    }

    /// The error of send `number`, if its message will never be received.
    pub(crate) fn never_receives(&self, number: u64) -> Option<ChannelError> {
        self.peer_error(|left| number >= left.receives)
    }

    #[inline]
    fn peer_error(&self, is_behind: impl FnOnce(Started) -> bool) -> Option<ChannelError> {
        if self.is_dead {
            return Some(ChannelError::Lost);
        }
        self.left
            .is_some_and(is_behind)
            .then_some(ChannelError::Left)
    }
}
