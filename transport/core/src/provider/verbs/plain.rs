// SPDX-License-Identifier: MIT OR Apache-2.0
//! The fast path of receiving: messages of one word that come in order over their peer's queue pair, one by one, while nothing
//! else is to be done. Whatever is not of that kind goes the way of all (`arrive.rs`), and waits for the next poll.

use super::SENDS_EVERY;
use super::Verbs;
use super::arrive::FIRST_INTERNAL;
use super::pools::is_datagram;
use super::port::{Done, Port, Queue, Status};
use super::rail::rail_of;
use super::session::Slot;
use super::wire::{self, BEGINS, ENDS, HEADER_BYTES};
use crate::{Arrived, Completions, Peer, RecvBuffer};

/// What a [look](crate::Fabric::look_far) at the network has found.
#[derive(Debug)]
pub enum FarLook {
    /// Nothing has come.
    Nothing,
    /// A frame with a body of eight bytes.
    Word(Arrived),
    /// Something else is there or has to be done: [`poll`](crate::Fabric::poll).
    Poll,
}

/// Bytes of a packet whose body is a word.
const WORD_BYTES: usize = HEADER_BYTES + 8;

impl<P: Port> Verbs<P> {
    /// Looks whether a frame has come, and does nothing else.
    #[inline(always)]
    pub(in crate::provider) fn look(&mut self) -> FarLook {
        let polls = self.polls + 1;
        if polls.is_multiple_of(SENDS_EVERY) || !self.is_calm() {
            return FarLook::Poll;
        }
        self.polls = polls;
        // The others are polled when it is time for a poll.
        let rail = self.warm;
        let mut done = [Done::default()];
        if self.rails[rail].port.poll(Queue::Receives, &mut done) != 0 {
            return self.take_first(rail, &done[0]);
        }
        FarLook::Nothing
    }

    #[inline(always)]
    fn is_calm(&self) -> bool {
        self.ready.is_empty()
            && self.owing.is_empty()
            && self.unsent.is_empty()
            && self.leaving.is_empty()
    }

    #[inline(never)]
    fn take_first(&mut self, rail: usize, done: &Done) -> FarLook {
        self.has_stirred = true;
        let at = &mut self.rails[rail];
        let Some(buffer) = at.receives.filled(done.work, done.bytes) else {
            return FarLook::Nothing;
        };
        let found = match self.take_word(buffer, done) {
            Some(arrived) => FarLook::Word(arrived),
            None => self.take_other(buffer, done),
        };
        let at = &mut self.rails[rail];
        at.receives.tend(&mut at.port);
        found
    }

    /// Something special has come: the next poll tells of it.
    #[cold]
    fn take_other(&mut self, buffer: Slot, done: &Done) -> FarLook {
        let mut completions = Completions::new();
        self.take_filled(buffer, done, &mut completions);
        self.tell_first(&mut completions);
        FarLook::Poll
    }

    /// Takes a message of one word in. `None`: it is something else, and nothing was done.
    #[inline(always)]
    fn take_word(&mut self, buffer: Slot, done: &Done) -> Option<Arrived> {
        let is_word = done.bytes as usize == WORD_BYTES && done.status == Status::Success;
        if !is_word || is_datagram(buffer) {
            return None;
        }
        let mut start = [0; WORD_BYTES];
        self.receives(buffer).copy_out(buffer, 0, &mut start);
        let (header, body) = start.split_first_chunk::<HEADER_BYTES>()?;
        let packet = wire::packet(header)?;
        if packet.parts != BEGINS | ENDS || packet.kind >= FIRST_INTERNAL {
            return None;
        }
        let side = self.sides.get_mut(packet.source as usize)?.as_deref_mut()?;
        let index = side.pair_on(rail_of(buffer))?;
        let pair = self.pairs.get(index as usize)?.as_ref()?;
        if pair.end.number != done.number || !side.session.accept_next(packet.number) {
            return None;
        }
        let sends = &mut self.sends;
        side.session
            .acknowledge(packet.ack, self.now_ns, |slot| sends.release(slot));
        // Where to answer (`detour.rs`).
        side.heard_on = rail_of(buffer);
        if side.needs_care() {
            self.care_for(packet.source);
        }
        self.give_back(buffer);
        let word = u64::from_ne_bytes(*body.first_chunk()?);
        Some(Arrived {
            peer: Peer(packet.source),
            head: packet.head(),
            words: [word, 0, 0, 0, 0, 0],
            body: RecvBuffer::Inline { bytes: 8 },
        })
    }

    /// What a packet leaves to be done beside its own.
    #[cold]
    fn care_for(&mut self, peer: u32) {
        let side = self.side(peer);
        side.recovered();
        let (owes, waits) = (side.owes_much(), side.session.has_unsent());
        if owes && !std::mem::replace(&mut side.listed_owing, true) {
            self.owing.push(peer);
        }
        if waits {
            self.list_unsent(peer);
        }
    }
}
