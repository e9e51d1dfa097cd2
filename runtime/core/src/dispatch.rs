// SPDX-License-Identifier: MIT OR Apache-2.0
//! Who gets what the transport tells: the protocols that share the fabric of a process, each with an [`Owner`] of its own.
//!
//! The kind of a frame, the name of a work request and an immediate say whose they are; nothing else decides it, and it is
//! decided here alone. What is nobody's was sent by a peer that makes no sense: it is counted and changes nothing.

use transport::{Arrived, Completion, Outcome, Owner, WorkId};

use crate::pump::ENGINE;
use crate::{Universe, gates};

const _: () = assert!(
    !is_same(ENGINE, channel::OWNER)
        && !is_same(ENGINE, gates::OWNER)
        && !is_same(gates::OWNER, channel::OWNER),
    "every owner has a number of its own"
);

const fn is_same(one: Owner, other: Owner) -> bool {
    one.kind(0) == other.kind(0)
}

impl Universe {
    /// One completion of the transport.
    #[inline(always)]
    pub(crate) fn take_in(&mut self, completion: Completion) {
        match completion {
            Completion::Arrived(arrived) => self.take_in_frame(&arrived),
            other => self.take_in_event(other),
        }
    }

    /// A frame.
    #[inline(always)]
    pub(crate) fn take_in_frame(&mut self, arrived: &Arrived) {
        match Owner::of_kind(arrived.head.kind) {
            ENGINE => self.messages.take_in_message(arrived),
            _ => self.take_in_other(arrived),
        }
    }

    /// A frame that is no message.
    #[cold]
    #[inline(never)]
    fn take_in_other(&mut self, arrived: &Arrived) {
        match Owner::of_kind(arrived.head.kind) {
            channel::OWNER => self
                .channels
                .arrive(&mut self.messages.pump.fabric, arrived),
            gates::OWNER => self
                .messages
                .gates
                .take_in(&mut self.messages.pump, arrived),
            _ => self.messages.pump.refuse(),
        }
        if arrived.is_lent() {
            self.messages.pump.fabric.release(arrived);
        }
    }

    #[inline(never)]
    fn take_in_event(&mut self, completion: Completion) {
        match completion {
            Completion::Arrived(_) => {}
            // The lease has come back with it: the loan is over.
            Completion::Worked { work, outcome, .. } => self.take_in_work(work, outcome),
            Completion::Written { peer, immediate } => match Owner::of_immediate(immediate) {
                channel::OWNER => self.channels.written(peer, immediate),
                _ => self.messages.pump.refuse(),
            },
            Completion::Lost { peer } => {
                let why = self
                    .messages
                    .pump
                    .fabric
                    .why_lost(peer)
                    .unwrap_or_default()
                    .to_owned();
                self.lose(engine::Peer(peer.0), why);
            }
        }
    }

    /// The end of a read or write.
    fn take_in_work(&mut self, work: WorkId, outcome: Outcome) {
        match Owner::of_work(work) {
            ENGINE => self.messages.pump.take_in_read(work, outcome),
            channel::OWNER => self
                .channels
                .worked(&mut self.messages.pump.fabric, work, outcome),
            // This process has posted no other.
            _ => {}
        }
    }
}
