// SPDX-License-Identifier: MIT OR Apache-2.0
//! The fast path of receiving: messages of one word that come in order over their peer's queue pair, one by one, while nothing
//! else is to be done. Whatever is not of that kind goes the way of all (`arrive.rs`), and waits for the next poll.
//!
//! A word is handed up as soon as it is known whose it is. What it leaves to be done (its [`Chore`]) is done while nothing
//! comes, or before anything else is: nobody can tell that from a packet that came so much later.

use super::Verbs;
use super::arrive::FIRST_INTERNAL;
use super::pools::is_datagram;
use super::port::{Done, Port, Queue, Status};
use super::rail::rail_of;
use super::session::Slot;
use super::wire::{self, Ack, BEGINS, ENDS, HEADER_BYTES};
use crate::{Arrived, Completions, Head, Peer, RecvBuffer};

/// What a [look](crate::Fabric::look_far) at the network has found.
#[derive(Debug)]
pub enum FarLook {
    /// Nothing has come.
    Nothing,
    /// A frame with a body of eight bytes.
    Word(FarWord),
    /// Something else is there or has to be done: [`poll`](crate::Fabric::poll).
    Poll,
}

/// A frame with a body of eight bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FarWord {
    /// Who sent it: known from the queue pair.
    pub peer: Peer,
    /// Its head, as posted; `len` is 8.
    pub head: Head,
    /// Its body.
    pub word: u64,
}

impl FarWord {
    /// The same as a poll would tell it.
    #[must_use]
    pub fn arrived(self) -> Arrived {
        Arrived {
            peer: self.peer,
            head: Head {
                len: 0,
                ..self.head
            },
            words: [self.word, 0, 0, 0, 0, 0],
            body: RecvBuffer::Inline { bytes: 8 },
        }
    }
}

/// What a word that was handed up leaves to be done.
#[derive(Clone, Copy, Debug)]
pub(super) struct Chore {
    peer: u32,
    /// It lay there.
    buffer: Slot,
    /// And told this.
    ack: Ack,
}

/// Bytes of a packet whose body is a word.
const WORD_BYTES: usize = HEADER_BYTES + 8;

impl<P: Port> Verbs<P> {
    /// Looks whether a frame has come, and does nothing else.
    #[inline(always)]
    pub(in crate::provider) fn look(&mut self) -> FarLook {
        if self.schedule.needs_poll() || !self.is_calm() {
            return FarLook::Poll;
        }
        self.schedule.count();
        // The others are polled when it is time for a poll.
        let rail = self.rails.warm();
        match self.rails[rail].port.poll_first(Queue::Receives) {
            Some(done) => self.take_first(rail, &done),
            None => {
                self.catch_up();
                FarLook::Nothing
            }
        }
    }

    #[inline(always)]
    fn is_calm(&self) -> bool {
        self.ready.is_empty() && self.sides.is_calm()
    }

    #[inline(never)]
    fn take_first(&mut self, rail: usize, done: &Done) -> FarLook {
        self.catch_up();
        let Some(buffer) = self.rails[rail].receives.filled(done.work, done.bytes) else {
            return FarLook::Nothing;
        };
        match self.take_word(rail, buffer, done) {
            Some(word) => FarLook::Word(word),
            None => self.take_other(rail, buffer, done),
        }
    }

    /// Something special has come: the next poll tells of it.
    #[cold]
    fn take_other(&mut self, rail: usize, buffer: Slot, done: &Done) -> FarLook {
        let mut completions = Completions::new();
        self.take_filled(buffer, done, &mut completions);
        self.ready.tell_first(&mut completions);
        self.schedule.stir();
        let rail = &mut self.rails[rail];
        rail.receives.tend(&mut rail.port);
        FarLook::Poll
    }

    /// Takes a message of one word in. `None`: it is something else, and nothing was done.
    #[inline(always)]
    fn take_word(&mut self, rail: usize, buffer: Slot, done: &Done) -> Option<FarWord> {
        let is_word = done.bytes as usize == WORD_BYTES && done.status == Status::Success;
        if !is_word || is_datagram(buffer) {
            return None;
        }
        let start = self.rails[rail].receives.start::<WORD_BYTES>(buffer);
        let (header, body) = start.split_first_chunk::<HEADER_BYTES>()?;
        let packet = wire::packet(header)?;
        if packet.parts != BEGINS | ENDS || packet.kind >= FIRST_INTERNAL {
            return None;
        }
        let side = self.sides.find_mut(packet.source)?;
        let index = side.pair_on(rail_of(buffer))?;
        let pair = self.pairs.get(index)?;
        if pair.end.number != done.number || !side.session.accept_next(packet.number) {
            return None;
        }
        self.chore = Some(Chore {
            peer: packet.source,
            buffer,
            ack: packet.ack,
        });
        Some(FarWord {
            peer: Peer(packet.source),
            head: Head {
                len: 8,
                ..packet.head()
            },
            word: u64::from_ne_bytes(*body.first_chunk()?),
        })
    }

    /// Does what the last word has left to be done.
    #[inline(always)]
    pub(super) fn catch_up(&mut self) {
        if let Some(chore) = self.chore.take() {
            self.do_chore(chore);
        }
    }

    #[inline(never)]
    fn do_chore(&mut self, Chore { peer, buffer, ack }: Chore) {
        self.schedule.stir();
        let rail = rail_of(buffer);
        if let Some(side) = self.sides.get_mut(peer)
            && !side.is_lost()
        {
            let sends = &mut self.sends;
            side.session
                .acknowledge(ack, self.schedule.now_ns, |slot| sends.release(slot));
            // Where to answer (`detour.rs`).
            side.heard_on = rail;
            if side.needs_care() {
                self.care_for(peer);
            }
        }
        self.rails.give_back(buffer);
        let rail = &mut self.rails[usize::from(rail)];
        rail.receives.tend(&mut rail.port);
    }

    /// What a packet leaves to be done beside its own.
    #[cold]
    fn care_for(&mut self, peer: u32) {
        let side = self.sides.of(peer);
        side.recovered();
        let (owes, waits) = (side.owes_much(), side.session.has_unsent());
        if owes {
            self.sides.list_owing(peer);
        }
        if waits {
            self.sides.list_unsent(peer);
        }
    }
}
