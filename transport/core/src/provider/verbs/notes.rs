// SPDX-License-Identifier: MIT OR Apache-2.0
//! Notes: what is said outside the streams, and the datagrams that carry it.

use super::connect::{Do, Overdue, State};
use super::ledger::Posted;
use super::port::{Body, Operation, Port, Request, Way};
use super::rail::Line;
use super::session::{ACK_EVERY, Slot};
use super::wire::{self, Ack, End, NOTE_BYTES, Say};
use super::{DATAGRAMS, Verbs, name};

impl<P: Port> Verbs<P> {
    /// A note has arrived. Over a reliable queue pair only acknowledgements do.
    #[inline(never)]
    pub(super) fn hear(&mut self, line: Line, ack: Ack, say: Say, by_datagram: bool) {
        self.pace.now_ns = self.rails.clock();
        let peer = line.peer;
        let (me, now_ns) = (self.me, self.pace.now_ns);
        let sends = &mut self.sends;
        let Some(side) = self.sides.get_mut(peer) else {
            return;
        };
        side.was_heard();
        side.heard_on = line.rail;
        side.session
            .acknowledge(ack, now_ns, |slot| sends.release(slot));
        let mut link = side.link_mut(line.rail);
        if let Some(link) = link.as_mut().filter(|_| by_datagram) {
            link.connection.heard();
        }
        if let Say::Ack { asks } = say {
            if let Some(link) = link.filter(|_| !by_datagram) {
                link.connection.was_used();
            }
            side.owes_anyway |= asks;
            if asks {
                self.sides.list_owing(peer);
            }
        } else if let Some(link) = link.filter(|_| by_datagram) {
            let todo = link.connection.hear(say, me, peer);
            self.carry_out(line, say, todo);
        }
        if self.sides.of(peer).session.has_unsent() {
            self.sides.list_unsent(peer);
        }
    }

    fn carry_out(&mut self, line: Line, say: Say, todo: Do) {
        match todo {
            Do::Nothing => {}
            Do::Answer { end, again } => {
                if let Say::Connect { attempt, .. } = say {
                    self.answer(line, attempt, end, again);
                }
            }
            Do::AnswerAgain => self.say_again(line),
            Do::Join { end } => self.join(line, end),
            Do::ReadyAgain => {
                if let Some(link) = self.sides.link(line) {
                    let attempt = link.connection.attempt;
                    self.say(line, Say::Ready { attempt });
                }
            }
            Do::Use => {
                if let Some(link) = self.sides.link(line) {
                    link.connection.was_used();
                }
                self.go_on(line.peer);
            }
            Do::Abandon => self.abandon(line),
            Do::Leave => self.leave(line, true),
            Do::TakeApart { asked } => {
                if asked {
                    self.say_gone(line);
                }
                self.take_apart(line);
            }
            Do::GoneAgain => self.say_gone(line),
        }
    }

    pub(super) fn say_gone(&mut self, line: Line) {
        if let Some(link) = self.sides.link(line) {
            let attempt = link.connection.attempt;
            let done = true;
            self.say(line, Say::GiveUp { attempt, done });
        }
    }

    /// Nobody has answered: says it again, but answers to what may have been asked long ago not for ever.
    pub(super) fn say_again_or_not(&mut self, line: Line, overdue: Overdue) {
        let state = self.sides.link(line).map(|link| link.connection.state);
        match state {
            Some(State::Answered { end, .. }) if overdue.tries > MOST_ANSWERS => {
                self.break_quietly(end);
            }
            _ if self.detour_if_silent(line, overdue.tries) => {}
            _ => self.say_again(line),
        }
    }

    /// Says again what nobody has answered.
    pub(super) fn say_again(&mut self, line: Line) {
        let Some(link) = self.sides.link(line) else {
            return;
        };
        let (attempt, again) = (link.connection.attempt, link.breaks != 0);
        let (state, end) = (link.connection.state, link.connection.end());
        let end = end.and_then(|index| self.pairs[index as usize].as_ref());
        let Some(end) = end.map(|pair| End {
            number: pair.end.number,
            first: pair.first,
        }) else {
            return;
        };
        let say = match state {
            State::Asking { .. } => Say::Connect {
                attempt,
                end,
                again,
            },
            State::Answered { .. } | State::Joined { .. } => Say::Accept { attempt, end },
            State::Leaving { said: true, .. } => Say::GiveUp {
                attempt,
                done: false,
            },
            State::Leaving { .. } | State::Apart => return,
        };
        self.say(line, say);
    }

    /// Sends a note. One that finds no room is lost, as it may be on its way.
    pub(super) fn say(&mut self, line: Line, say: Say) {
        let Some(to) = self.way_to(line) else { return };
        let rail = &self.rails[line.at()];
        if rail.has_moved {
            let note = wire::moved(self.me, rail.address());
            self.send_note(line.rail, to, &note);
        }
        let ack = self.sides.of(line.peer).session.tell();
        let note = wire::note(self.me, ack, say);
        self.send_note(line.rail, to, &note);
        self.sides.arm(line.peer, self.pace.now_ns);
    }

    fn send_note(&mut self, rail: u8, to: (Way, u32), note: &[u8; NOTE_BYTES]) {
        if let Some(slot) = self.slot_with(note) {
            self.post_datagram(rail, to, slot, NOTE_BYTES);
            self.sends.release(slot);
        }
    }

    fn slot_with(&mut self, note: &[u8; NOTE_BYTES]) -> Option<Slot> {
        let slot = self.sends.take_for_note(&mut self.rails)?;
        self.sends.bytes_mut(slot, NOTE_BYTES).copy_from_slice(note);
        Some(slot)
    }

    /// Posts what is in a slot as a datagram; `false`: there is no room.
    pub(super) fn post_datagram(
        &mut self,
        rail: u8,
        to: (Way, u32),
        slot: Slot,
        bytes: usize,
    ) -> bool {
        let at = usize::from(rail);
        let rail = &mut self.rails[at];
        let inline_bytes = rail.port.facts().inline_bytes as usize;
        let body = self.sends.body(slot, at, bytes, inline_bytes);
        let read = matches!(body, Body::Piece(_)).then_some(slot);
        let work = name(DATAGRAMS, rail.datagrams.next());
        let (way, number) = to;
        let posted = rail.port.post_datagram(way, number, work, body, true);
        if posted.is_err() {
            return false;
        }
        rail.datagrams.push(Posted::Mark { read }, true);
        if let Some(slot) = read {
            self.sends.posted(slot);
        }
        true
    }

    /// A datagram has left, or could not: whoever misses it will ask.
    pub(super) fn take_sent_datagram(&mut self, rail: usize, number: u32) {
        let rail = &mut self.rails[rail];
        while let Some(posted) = rail.datagrams.ended(number) {
            if let Posted::Mark { read: Some(slot) } = posted {
                self.sends.retired(slot);
            }
        }
        if !rail.old_ways.is_empty() {
            rail.close_ways();
        }
    }

    /// Asks over a reliable queue pair for an acknowledgement, which also tells the end of all that was posted before.
    pub(super) fn mark(&mut self, index: u32) -> bool {
        let Some(pair) = self.pairs[index as usize].as_ref() else {
            return false;
        };
        let peer = pair.line.peer;
        let ack = self.sides.of(peer).session.tell();
        let note = wire::note(self.me, ack, Say::Ack { asks: true });
        let Some(slot) = self.slot_with(&note) else {
            return false;
        };
        let Some(pair) = self.pairs[index as usize].as_mut() else {
            return false;
        };
        let at = pair.line.at();
        let rail = &mut self.rails[at];
        let inline_bytes = rail.port.facts().inline_bytes as usize;
        let body = self.sends.body(slot, at, NOTE_BYTES, inline_bytes);
        let read = matches!(body, Body::Piece(_)).then_some(slot);
        let request = Request {
            work: name(index, pair.ledger.next()),
            operation: Operation::Send,
            body,
            signaled: true,
        };
        let taken = rail.port.post(pair.end, &[request]) == 1;
        if taken {
            pair.ledger.push(Posted::Mark { read }, true);
            rail.posted += 1;
            if let Some(slot) = read {
                self.sends.posted(slot);
            }
        }
        self.sends.release(slot);
        taken
    }

    /// Tells peers what has arrived, unless something that went to them meanwhile has.
    #[cold]
    pub(super) fn tell_owed(&mut self) {
        for peer in self.sides.take_owing() {
            let side = self.sides.of(peer);
            side.listed_owing = false;
            let anyway = std::mem::take(&mut side.owes_anyway);
            let joined = side.pair_for_sends().is_some();
            let owed = side.session.owed();
            if anyway || owed >= ACK_EVERY || (owed != 0 && !joined) {
                // The main line may lead nowhere now.
                let rail = side.heard_on;
                self.say(Line { peer, rail }, Say::Ack { asks: false });
            }
        }
    }
}

/// An answer is repeated so often.
const MOST_ANSWERS: u8 = 12;
