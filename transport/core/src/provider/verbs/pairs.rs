// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reliable queue pairs: made when a peer is worth one, given up when others are worth more, broken and made again. What has
//! to be said about that is decided in `connect.rs`.
//!
//! - P1: a queue pair is taken apart only when every work request that was posted to it has come back, and after that
//!   nothing has arrived for a while: so no slot, buffer or lease is still the device's.
//! - P2: until then nothing goes over another one to the same peer, and what is posted again is posted in its old order:
//!   reads and writes first, packets behind them.

use std::mem;

use super::address::Address;
use super::connect::State;
use super::forgotten::Watch;
use super::ledger::{Ledger, Posted};
use super::port::{Body, CallError, Done, Operation, Port, QueuePair, Remote, Request, Status};
use super::rail::Line;
use super::unsaid::Unsaid;
use super::wire::{End, NUMBER_MASK, Say};
use super::words::{self, Ends};
use super::{NetLimits, Side, Verbs, name};

/// A reliable queue pair.
#[derive(Debug)]
pub(super) struct Pair {
    pub(super) line: Line,
    /// Its number among all that this process ever made.
    pub(super) made: u32,
    pub(super) end: QueuePair,
    /// Number of the first packet of the network's that it sends.
    pub(super) first: u32,
    pub(super) ledger: Ledger,
    /// Poll in which it was used last.
    pub(super) used_at: u64,
    /// Whether the peer says what has arrived over it (`unsaid.rs`).
    pub(super) unsaid: Unsaid,
    /// What it was told to wait for an answer: 4.096 µs × 2 to that power.
    pub(super) patience: u8,
    pub(super) watch: Watch,
    life: Life,
}

/// Whether a queue pair can be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Life {
    Whole,
    /// It broke; work requests come back. `marked`: one was posted that tells of the last.
    Broken {
        marked: bool,
    },
    /// All have come back; polls that found nothing since.
    Silent {
        polls: u8,
    },
}

impl Pair {
    /// What one takes, with the queue that the device's library keeps for it.
    pub(super) fn most_bytes(limits: &NetLimits) -> usize {
        let entry = size_of::<Posted>() + QUEUE_ENTRY_BYTES;
        size_of::<Self>() + limits.send_depth as usize * entry
    }

    pub(super) fn is_whole(&self) -> bool {
        self.life == Life::Whole
    }

    /// The oldest of what was posted, if its end is to be told.
    pub(super) fn awaited(&self) -> Option<(Line, Posted)> {
        Some((self.line, self.ledger.awaited()?))
    }
}

impl<P: Port> Verbs<P> {
    /// Makes a queue pair for a peer, if that is possible now.
    #[cold]
    pub(super) fn want_pair(&mut self, line: Line) {
        if self.way_to(line).is_none() {
            return;
        }
        let now_ns = self.pace.now_ns;
        let waits = self.sides.of(line.peer).waits_for_last;
        let Some(link) = self.sides.link(line) else {
            return;
        };
        if waits || !link.connection.may_ask(now_ns) {
            return;
        }
        if link.connection.is_vain() {
            link.connection.in_vain(now_ns);
            return self.say(line, Say::Ack { asks: true });
        }
        let has_room = self.has_room_for_pair();
        if !has_room {
            self.give_one_up();
        }
        // Where the device has no more: stay with datagrams for now.
        let made = has_room.then(|| self.make_pair(line).ok()).flatten();
        let Some(link) = self.sides.link(line) else {
            return;
        };
        let Some(index) = made else {
            link.connection.refused(now_ns + REFUSED_NS);
            return self.sides.arm(line.peer, self.pace.now_ns);
        };
        link.connection.ask(index, now_ns);
        self.say_again(line);
    }

    pub(super) fn has_room_for_pair(&self) -> bool {
        self.rails.pairs() < self.limits.pairs as usize
    }

    fn make_pair(&mut self, line: Line) -> Result<u32, CallError> {
        let end = self.rails[line.at()].port.create()?;
        let free = self.pairs.iter().position(Option::is_none);
        let index = free.unwrap_or(self.pairs.len());
        if index == self.pairs.len() {
            self.pairs.push(None);
        }
        // The last number is nobody's (`session.rs`).
        self.made = self.made.wrapping_add(1) % u32::MAX;
        let chance = self.pace.now_ns.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40;
        self.pairs[index] = Some(Pair {
            line,
            made: self.made,
            end,
            first: u32::try_from(chance).unwrap_or(0) & NUMBER_MASK,
            ledger: Ledger::default(),
            used_at: self.pace.polls(),
            unsaid: Unsaid::default(),
            patience: self.limits.terms.patience(),
            watch: Watch::default(),
            life: Life::Whole,
        });
        let index = u32::try_from(index).unwrap_or(u32::MAX);
        self.rails[line.at()].numbers.insert(end.number, index);
        Ok(index)
    }

    /// The peer asks for a queue pair.
    pub(super) fn answer(&mut self, line: Line, attempt: u32, theirs: End, again: bool) {
        let Some(link) = self.sides.link(line) else {
            return;
        };
        let Some(address) = link.address else {
            return;
        };
        let was_asking = matches!(link.connection.state, State::Asking { .. });
        match link.connection.end() {
            Some(index) if was_asking => self.break_quietly(index),
            Some(index) => self.break_pair(index),
            None => {}
        }
        if !again && !self.has_room_for_pair() {
            self.give_one_up();
            return self.refuse(line, attempt);
        }
        let made = self.make_pair(line);
        let Ok(index) = made.and_then(|index| self.join_end(index, address, theirs)) else {
            return self.refuse(line, attempt);
        };
        let now_ns = self.pace.now_ns;
        if let Some(link) = self.sides.link(line) {
            link.connection.answered(attempt, index, now_ns);
            self.say_again(line);
        }
    }

    fn refuse(&mut self, line: Line, attempt: u32) {
        if let Some(link) = self.sides.link(line) {
            link.connection.attempt = attempt;
            self.say(line, Say::Refuse { attempt });
        }
    }

    /// The peer has joined its end to ours.
    pub(super) fn join(&mut self, line: Line, theirs: End) {
        let Some(link) = self.sides.link(line) else {
            return;
        };
        let (end, address, attempt) =
            (link.connection.end(), link.address, link.connection.attempt);
        let (Some(index), Some(address)) = (end, address) else {
            return;
        };
        if self.join_end(index, address, theirs).is_err() {
            return self.abandon(line);
        }
        if let Some(link) = self.sides.link(line) {
            link.connection.joined(index, true);
        }
        self.say(line, Say::Ready { attempt });
        self.go_on(line.peer);
    }

    /// Joins an end of ours to one of the peer's; takes it apart if that fails.
    fn join_end(&mut self, index: u32, address: Address, theirs: End) -> Result<u32, CallError> {
        let patience = self.patience(index);
        let Some(pair) = self.pairs[index as usize].as_mut() else {
            return Ok(index);
        };
        pair.patience = patience;
        let remote = Remote {
            address,
            number: theirs.number,
            their_first: theirs.first,
            our_first: pair.first,
            patience,
        };
        let joined = self.rails[pair.line.at()].port.connect(pair.end, &remote);
        if joined.is_err() {
            self.drop_pair(index);
        } else {
            self.counts.joined.add(1);
        }
        joined.map(|()| index)
    }

    /// How long a queue pair waits for answers: longer with each that broke in vain, until there were none for a while.
    fn patience(&self, index: u32) -> u8 {
        let now_ns = self.pace.now_ns;
        let line = self.pairs[index as usize].as_ref().map(|pair| pair.line);
        let troubles = line.and_then(|line| self.troubles.get(&line));
        let breaks = troubles.map_or(0, |troubles| troubles.unanswered.count(now_ns));
        self.limits.terms.patience() + breaks.min(MORE_PATIENCE)
    }

    /// An end that was made comes to nothing: the peer has no room for it, or ours cannot be joined.
    pub(super) fn abandon(&mut self, line: Line) {
        let now_ns = self.pace.now_ns;
        let end = self.sides.link(line).and_then(|link| link.connection.end());
        if let Some(index) = end {
            self.drop_pair(index);
        }
        if let Some(link) = self.sides.link(line) {
            link.connection.refused(now_ns + REFUSED_NS);
        }
        self.go_on(line.peer);
        self.sides.arm(line.peer, self.pace.now_ns);
    }

    /// Gives the queue pair up that was not used for longest.
    fn give_one_up(&mut self) {
        let idle = |pair: &&Pair| {
            let side = self.sides.get(pair.line.peer);
            let link = side.and_then(|side| side.link(pair.line.rail));
            link.is_some_and(|link| matches!(link.connection.state, State::Joined { .. }))
                && pair.life == Life::Whole
        };
        let pairs = self.pairs.iter().flatten().filter(idle);
        if let Some(line) = pairs.min_by_key(|pair| pair.used_at).map(|pair| pair.line) {
            self.counts.given_up.add(1);
            self.leave(line, false);
        }
    }

    /// Sends nothing more over a peer's queue pair. `heard`: nor does the peer.
    pub(super) fn leave(&mut self, line: Line, heard: bool) {
        if let Some(link) = self.sides.link(line)
            && let Some(index) = link.connection.end()
        {
            link.connection.leave(index, heard);
            self.sides.list_leaving(line.peer);
        }
    }

    /// Looks after queue pairs that are on their way out.
    #[cold]
    pub(super) fn leave_some(&mut self) {
        for peer in self.sides.take_leaving() {
            self.sides.of(peer).listed_leaving = false;
            let rails: Vec<u8> = self.sides.of(peer).links().map(|link| link.rail).collect();
            let mut left = false;
            for rail in rails {
                left |= self.leave_on(Line { peer, rail });
            }
            left |= self.bury(peer);
            if left {
                self.sides.list_leaving(peer);
            }
        }
    }

    /// A queue pair that is given up: tells the peer when all has arrived. `true`: not yet.
    fn leave_on(&mut self, line: Line) -> bool {
        let now_ns = self.pace.now_ns;
        let state = self.sides.link(line).map(|link| link.connection.state);
        let Some(State::Leaving {
            end,
            said: false,
            heard,
        }) = state
        else {
            return false;
        };
        let Some(pair) = self.pairs[end as usize].as_ref() else {
            return false;
        };
        let side = self.sides.get(line.peer);
        let under_way = side.is_some_and(|side| side.session.is_under_way(pair.made));
        if !pair.ledger.is_empty() || under_way {
            if pair.ledger.unsignaled() != 0 {
                self.mark(end);
            }
            return true;
        }
        if heard {
            self.say_gone(line);
            self.take_apart(line);
        } else if let Some(link) = self.sides.link(line) {
            link.connection.said(end, now_ns);
            self.say_again(line);
        }
        false
    }

    /// Nobody uses the peer's queue pair any more.
    pub(super) fn take_apart(&mut self, line: Line) {
        let end = self.sides.link(line).and_then(|link| link.connection.end());
        if let Some(index) = end {
            self.break_quietly(index);
        }
        self.go_on(line.peer);
    }

    /// A work request has failed: its queue pair is broken.
    #[cold]
    pub(super) fn take_failed(&mut self, index: u32, number: u32, done: &Done) {
        while let Some(pair) = self.pairs.get_mut(index as usize).and_then(Option::as_mut)
            && let Some(posted) = pair.ledger.ended(number.wrapping_sub(1))
        {
            let made = pair.made;
            self.rails[pair.line.at()].posted -= 1;
            match posted {
                // Nothing has told its end: that it did not fail is not to be relied on (W3).
                Posted::Part { work, bytes, .. } => self.part_failed(work, bytes, Status::Flushed),
                Posted::Packet { .. } | Posted::Mark { .. } => self.retire(posted, made),
            }
        }
        let Some(pair) = self.pairs.get_mut(index as usize).and_then(Option::as_mut) else {
            return;
        };
        let Some(posted) = pair.ledger.failed(number) else {
            return;
        };
        let pair_line = pair.line;
        self.rails[pair_line.at()].posted -= 1;
        self.judge(index, done.status);
        self.complain_of(index, &posted, done);
        self.break_pair(index);
        self.detour_if_joined(pair_line, done.status);
        match posted {
            Posted::Packet { read, .. } | Posted::Mark { read } => {
                if let Some(slot) = read {
                    self.sends.retired(slot);
                }
            }
            Posted::Part { work, bytes, .. } => self.part_failed(work, bytes, done.status),
        }
    }

    /// What an error tells of the peer.
    pub(super) fn judge(&mut self, index: u32, status: Status) {
        let now_ns = self.pace.now_ns;
        let pair = self.pairs[index as usize].as_ref();
        let Some(line) = pair.map(|pair| pair.line) else {
            return;
        };
        match status {
            Status::Flushed => return,
            Status::NotReady => {
                self.counts.not_ready.add(1);
                self.troubles
                    .entry(line)
                    .or_default()
                    .not_ready
                    .again(now_ns);
                // Its device is there.
                return;
            }
            Status::RetryExceeded => {
                self.troubles
                    .entry(line)
                    .or_default()
                    .unanswered
                    .again(now_ns);
            }
            _ => {}
        }
        if let Some(link) = self.sides.link(line) {
            link.is_suspected = true;
        }
    }

    /// Says what failed, unless that is only what follows, or was said often.
    pub(super) fn complain_of(&mut self, index: u32, posted: &Posted, done: &Done) {
        let Some(pair) = self.pairs[index as usize].as_ref() else {
            return;
        };
        let Some(side) = self.sides.get(pair.line.peer) else {
            return;
        };
        let link = side.link(pair.line.rail);
        let often = match done.status {
            // A process that computes gives no buffers back; whoever is told wants to know of one that does so for long.
            Status::NotReady => {
                let troubles = self.troubles.get(&pair.line);
                let breaks = troubles.map_or(0, |it| it.not_ready.count(self.pace.now_ns));
                breaks != TOLD_NOT_READY
            }
            // Most of them heal, and where many break they do so for one reason.
            _ => !(self.counts.broken.get() + 1).is_power_of_two(),
        };
        if pair.life != Life::Whole || done.status == Status::Flushed || often {
            return;
        }
        let what = match posted {
            Posted::Part { bytes, .. } => format!("a transfer of {bytes} bytes"),
            Posted::Packet { .. } | Posted::Mark { .. } => "a message".to_owned(),
        };
        let ends = Ends {
            rank: self.me,
            host: self.hosts.here(),
            facts: self.rails[pair.line.at()].port.facts(),
            peer: pair.line.peer,
            peer_host: self.hosts.name(side.host),
            address: link.and_then(|link| link.address.as_ref()),
        };
        let words = words::of_failure(&what, done.status, done.vendor, &ends);
        self.news.complain(words);
    }

    /// A queue pair is broken; if there is work for it, another one is asked for as soon as its last work request is back.
    pub(super) fn break_pair(&mut self, index: u32) {
        let Some(pair) = self.pairs[index as usize].as_ref() else {
            return;
        };
        let (line, was_whole) = (pair.line, pair.life == Life::Whole);
        self.break_quietly(index);
        if was_whole {
            self.counts.broken.add(1);
            let peer = line.peer;
            let side = self.sides.of(peer);
            if let Some(link) = side.link_mut(line.rail) {
                link.breaks = link.breaks.saturating_add(1);
            }
            // What the peer was told last may be lost with it.
            side.owes_anyway = true;
            self.sides.list_owing(peer);
        }
    }

    pub(super) fn break_quietly(&mut self, index: u32) {
        let Some(pair) = self.pairs[index as usize].as_mut() else {
            return;
        };
        if pair.life != Life::Whole {
            return;
        }
        pair.life = Life::Broken { marked: false };
        let (line, made) = (pair.line, pair.made);
        self.rails[line.at()].port.fail(pair.end);
        let side = self.sides.of(line.peer);
        side.waits_for_last = true;
        side.session.broke(made);
        if let Some(link) = side.link_mut(line.rail)
            && link.connection.end() == Some(index)
        {
            link.connection.apart();
        }
        self.sides.list_leaving(line.peer);
    }

    /// Looks after the broken queue pairs of a peer (P1). `true`: there are some still.
    fn bury(&mut self, peer: u32) -> bool {
        let mut left = false;
        for index in 0..self.pairs.len() {
            let of_peer = self.pairs[index]
                .as_ref()
                .filter(|pair| pair.line.peer == peer);
            if of_peer.is_some_and(|pair| pair.life != Life::Whole) {
                let index = u32::try_from(index).unwrap_or(u32::MAX);
                left |= !self.has_gone(index);
            }
        }
        if !left && mem::take(&mut self.sides.of(peer).waits_for_last) {
            // What waited for it may be posted again, and nobody is told otherwise.
            self.pace.stir();
            self.go_on(peer);
        }
        left
    }

    /// Whether nothing of a broken queue pair is left.
    fn has_gone(&mut self, index: u32) -> bool {
        let Some(pair) = self.pairs[index as usize].as_mut() else {
            return true;
        };
        match pair.life {
            Life::Whole => return true,
            Life::Broken { marked: false } if pair.ledger.unsignaled() != 0 => {
                let end = pair.end;
                let work = name(index, pair.ledger.next());
                let request = Request {
                    work,
                    operation: Operation::Send,
                    body: Body::Inline(&[]),
                    signaled: true,
                };
                let rail = &mut self.rails[pair.line.at()];
                if rail.port.post(end, &[request]) == 1 {
                    pair.ledger.push(Posted::Mark { read: None }, true);
                    pair.life = Life::Broken { marked: true };
                    rail.posted += 1;
                }
            }
            Life::Broken { .. } if pair.ledger.is_empty() => {
                pair.life = Life::Silent { polls: 0 };
            }
            Life::Broken { .. } => {}
            Life::Silent { polls } if polls < SILENT_POLLS => {
                pair.life = Life::Silent { polls: polls + 1 };
            }
            Life::Silent { .. } => {
                self.drop_pair(index);
                return true;
            }
        }
        false
    }

    /// Takes the queue pairs of a lost rail apart, whether or not it tells the end of what was posted. What was goes over
    /// others.
    pub(super) fn forget_pairs(&mut self, rail: usize, is_gone: bool) {
        for index in 0..self.pairs.len() {
            let of_rail = |pair: &&mut Pair| pair.line.at() == rail;
            let Some(pair) = self.pairs[index].as_mut().filter(of_rail) else {
                continue;
            };
            let mut ledger = mem::take(&mut pair.ledger);
            let index = u32::try_from(index).unwrap_or(u32::MAX);
            self.break_quietly(index);
            // From here on the device touches nothing for it.
            self.drop_pair(index);
            while let Some(posted) = ledger.oldest() {
                self.rails[rail].posted -= 1;
                match posted {
                    Posted::Part { work, bytes, .. } => {
                        self.part_failed(work, bytes, Status::Flushed)
                    }
                    Posted::Packet { read, .. } | Posted::Mark { read } => {
                        if let Some(slot) = read {
                            self.sends.retired(slot);
                        }
                    }
                }
            }
        }
        let datagrams = &mut self.rails[rail].datagrams;
        while let Some(posted) = is_gone.then(|| datagrams.oldest()).flatten() {
            if let Posted::Mark { read: Some(slot) } = posted {
                self.sends.retired(slot);
            }
        }
    }

    fn drop_pair(&mut self, index: u32) {
        if let Some(pair) = self.pairs[index as usize].take() {
            let rail = &mut self.rails[pair.line.at()];
            rail.numbers.remove(&pair.end.number);
            rail.port.destroy(pair.end);
        }
    }

    /// Something may go on for a peer: works that wait, then packets (P2).
    pub(super) fn go_on(&mut self, peer: u32) {
        let side = self.sides.of(peer);
        if side.is_lost() {
            return;
        }
        if side.has_waiting() {
            self.push_all_works(peer);
        }
        let side = self.sides.of(peer);
        if side.main.waiting.is_empty() || side.pair_for_sends().is_none() {
            self.flush_held(peer);
        }
    }

    /// No slot is left: finds out which are not needed any more.
    #[cold]
    pub(super) fn relieve(&mut self) {
        for index in 0..self.pairs.len() {
            let pair = self.pairs[index].as_ref();
            let Some(pair) = pair.filter(|pair| pair.life == Life::Whole) else {
                continue;
            };
            let peer = pair.line.peer;
            if pair.ledger.unsignaled() != 0 {
                self.mark(u32::try_from(index).unwrap_or(u32::MAX));
            } else if self.sides.of(peer).session.awaits_word().is_some() {
                self.ask_for_ack(peer);
            }
        }
        self.poll_sends();
    }
}

/// 67 ms without an answer, seven times, then a queue pair breaks: half a second, where nothing else is set. After this many
/// doublings it is 1.1 s, seven times: a network that is so slow loses packets, not processes.
const MORE_PATIENCE: u8 = 4;
/// So many breaks in a row since the peer had no buffer are told.
const TOLD_NOT_READY: u8 = 3;
/// Where the peer or the device has refused a queue pair, the next one is asked for after this time.
const REFUSED_NS: u64 = 100_000_000;
/// Polls that find nothing before a queue pair whose work requests are back is taken apart.
const SILENT_POLLS: u8 = 2;
/// What a device's library keeps for a work request of one.
const QUEUE_ENTRY_BYTES: usize = 128;

// A side's size is in the promise about memory.
const _: () = assert!(size_of::<Side>() <= 512);
