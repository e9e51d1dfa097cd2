// SPDX-License-Identifier: MIT OR Apache-2.0
//! Notes: what is said outside the streams, and the datagrams that carry it.

use super::Verbs;
use super::connect::{Do, Overdue, State};
use super::pair::Pair;
use super::port::Port;
use super::rail::Line;
use super::session::ACK_EVERY;
use super::wire::{self, Ack, Say};

impl<P: Port> Verbs<P> {
    /// A note has arrived. Over a reliable queue pair only acknowledgements do.
    #[inline(never)]
    pub(super) fn hear(&mut self, line: Line, ack: Ack, say: Say, by_datagram: bool) {
        self.schedule.now_ns = self.rails.clock();
        let peer = line.peer;
        let (me, now_ns) = (self.me, self.schedule.now_ns);
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
            Do::Leave => self.sides.leave(line, true),
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
        let pair = end.and_then(|index| self.pairs.get(index));
        let Some(end) = pair.map(Pair::as_end) else {
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
            self.rails.send_note(line.rail, to, &note, &mut self.sends);
        }
        let ack = self.sides.of(line.peer).session.tell();
        let note = wire::note(self.me, ack, say);
        self.rails.send_note(line.rail, to, &note, &mut self.sends);
        self.sides.arm(line.peer, self.schedule.now_ns);
    }

    /// Asks over a reliable queue pair for an acknowledgement, which also tells the end of all that was posted before.
    pub(super) fn mark(&mut self, index: u32) -> bool {
        let Some(line) = self.pairs.line(index) else {
            return false;
        };
        let ack = self.sides.of(line.peer).session.tell();
        let note = wire::note(self.me, ack, Say::Ack { asks: true });
        let (sends, rails) = (&mut self.sends, &mut self.rails);
        self.pairs.post_note(index, &note, sends, rails)
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
