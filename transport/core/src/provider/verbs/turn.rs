// SPDX-License-Identifier: MIT OR Apache-2.0
//! One turn of the network: what has come, what has left, what is due, and what happens to the ports themselves; and how to
//! sleep until there is more.

use std::time::Duration;

use session::State;

use super::link::Link;
use super::port::{Done, Event, Port, Queue};
use super::rail::Line;
use super::side::Side;
use super::wire::Say;
use super::{PortChange, SENDS_EVERY, Verbs, words};
use crate::Completions;
use crate::wait_set::WaitSet;

impl<P: Port> Verbs<P> {
    /// Asks once what happened.
    #[inline(never)]
    pub(in crate::provider) fn poll(&mut self, completions: &mut Completions) {
        self.schedule.count();
        self.catch_up();
        self.ready.hand_up(completions);
        if self.sides.is_any_owing() {
            self.tell_owed();
        }
        let mut done = std::mem::take(&mut self.rails.received);
        let (mut has_heard, mut has_all) = (false, true);
        let count = self.rails.len();
        for step in 0..count {
            let rail = self.schedule.rail(step, count);
            if self.rails[rail].lost.is_some() {
                // Whoever is heard there would be answered.
                continue;
            }
            let room = Completions::CAPACITY - completions.len();
            let port = &mut self.rails[rail].port;
            let heard = port.poll(Queue::Receives, &mut done[..room]);
            if heard != 0 {
                self.take_all_received(rail, &done[..heard], completions);
            }
            has_heard |= heard != 0;
            has_all &= heard < room;
        }
        self.rails.received = done;
        if self.schedule.is_turn(SENDS_EVERY) || self.awaits_sends(has_heard) {
            self.poll_sends();
        }
        if self.sides.is_any_unsent() {
            self.flush_all();
        }
        if has_all && self.sides.is_any_leaving() {
            self.leave_some();
        }
        if self.schedule.is_turn(P::CLOCK_EVERY) {
            self.look_at_clock();
        }
    }

    /// Whether anything but room waits for the end of what was posted.
    #[inline(always)]
    fn awaits_sends(&self, has_heard: bool) -> bool {
        let is_urgent =
            !self.works.is_empty() || self.sides.is_any_unsent() || self.sides.is_any_leaving();
        (is_urgent && !has_heard) || self.sends.is_scarce()
    }

    #[inline(never)]
    fn take_all_received(&mut self, rail: usize, done: &[Done], completions: &mut Completions) {
        for one in done {
            let receives = &mut self.rails[rail].receives;
            if let Some(buffer) = receives.filled(one.work, one.bytes) {
                self.take_filled(buffer, one, completions);
            }
        }
        self.schedule.stir();
        self.rails.came_on(rail);
        let rail = &mut self.rails[rail];
        rail.receives.tend(&mut rail.port);
    }

    #[cold]
    fn flush_all(&mut self) {
        for peer in self.sides.take_unsent() {
            self.go_on(peer);
        }
        if !self.letters.is_empty() {
            self.post_letters();
        }
    }

    /// What is due by now.
    fn look_at_clock(&mut self) {
        self.schedule.now_ns = self.rails.clock();
        let next = self.sides.deadline_ns();
        if next.is_some_and(|deadline_ns| deadline_ns <= self.schedule.now_ns) {
            self.schedule.ask_events_soon();
        }
        if self.schedule.are_events_due() {
            self.take_all_events();
        }
        while let Some(peer) = self.sides.next_due(self.schedule.now_ns) {
            self.schedule.stir();
            self.time_is_over(peer);
        }
    }

    fn take_all_events(&mut self) {
        for rail in 0..self.rails.len() {
            self.take_events(rail);
        }
        self.break_forgotten();
        if !self.fetches.is_empty() {
            self.try_owners();
        }
        self.try_receivers();
    }

    /// Whether all that was sent has arrived, and everybody was told what has arrived here; what was posted last is asked about.
    pub(in crate::provider) fn is_quiet(&mut self) -> bool {
        self.catch_up();
        self.sides.owe_all();
        let all = self.sides.have_all_arrived();
        if !all {
            self.relieve();
        }
        all && self.letters.is_empty() && !self.sides.is_any_owing()
    }

    /// A peer whose address should be asked for; each is named once.
    pub(in crate::provider) fn wanted_address(&mut self) -> Option<u32> {
        self.strangers.next_wanted()
    }

    #[inline(always)]
    pub(in crate::provider) fn has_news(&self) -> bool {
        self.strangers.is_any_wanted() || !self.news.is_empty()
    }

    /// A port that has gone down or come back.
    pub(in crate::provider) fn next_port_change(&mut self) -> Option<PortChange> {
        self.news.next_change()
    }

    /// Something that the user should know.
    pub(in crate::provider) fn next_complaint(&mut self) -> Option<String> {
        self.news.next_complaint()
    }

    /// Whether nothing is here and nothing can be done: then a sign comes when there is.
    pub(in crate::provider) fn prepare_sleep(&mut self) -> bool {
        if !self.rails.arm() {
            return false;
        }
        // What came before gives no sign any more.
        let mut completions = Completions::new();
        self.poll(&mut completions);
        self.poll_sends();
        self.ready.tell_first(&mut completions);
        let has_stirred = self.schedule.take_stirred();
        !has_stirred
            && self.ready.is_empty()
            && !self.sides.is_any_owing()
            && !self.sides.is_any_leaving()
            && !self.strangers.is_any_wanted()
    }

    /// Whether the kernel moves data of this process now, on a processor that this process may be keeping from it.
    pub(in crate::provider) fn needs_cores(&self) -> bool {
        let is_moving =
            self.registry.is_any_lent() || !self.works.is_empty() || !self.fetches.is_empty();
        is_moving && self.rails.is_any_in_software()
    }

    /// Adds what can wake the process, and when something is due.
    pub(in crate::provider) fn fall_asleep(&mut self, waits: &mut WaitSet) {
        if let Some(due) = self.until_due() {
            waits.poll_after(due);
        }
        self.rails.add_signs(waits);
    }

    /// How long until something is due; `None`: nothing is.
    pub(super) fn until_due(&self) -> Option<Duration> {
        let deadlines = [
            self.sides.deadline_ns(),
            self.fetches.tries_owners_at(),
            self.tries_receivers_at(),
        ];
        let deadline = deadlines.into_iter().flatten().min()?;
        Some(Duration::from_nanos(
            deadline.saturating_sub(self.rails.clock()),
        ))
    }

    /// The process is awake again.
    pub(in crate::provider) fn wake(&mut self) {
        self.rails.take_signs();
        // An event may be what has woken it.
        self.schedule.ask_events_now();
        self.look_at_clock();
    }

    /// Takes in what happened to a port.
    #[cold]
    pub(super) fn take_events(&mut self, rail: usize) {
        while let Some(event) = self.rails[rail].port.next_event() {
            self.schedule.stir();
            let was_down = self.rails[rail].is_down;
            let is_news = match event {
                Event::Other(_) | Event::QueuePairLost(_) => false,
                // Some devices tell each of these twice.
                Event::PortDown => !was_down,
                Event::PortUp => was_down,
                _ => true,
            };
            if is_news {
                let words = words::of_event(event, self.rails[rail].port.facts());
                self.news.complain(words);
            }
            match event {
                Event::Other(_) => {}
                Event::PortDown => {
                    self.rails[rail].is_down = true;
                    if is_news {
                        self.news.note_change(self.rails.change(rail, false));
                    }
                    self.leave_rail(number_of(rail));
                }
                Event::PortUp | Event::AddressChanged => {
                    self.rails[rail].is_down &= event != Event::PortUp;
                    if is_news && event == Event::PortUp {
                        self.news.note_change(self.rails.change(rail, true));
                    }
                    self.find_port_again(rail);
                }
                Event::QueuePairLost(number) => {
                    if let Some(index) = self.rails[rail].numbers.get(&number).copied() {
                        self.break_pair(index);
                    }
                }
                Event::DeviceLost => self.lose_rail(rail, true),
                Event::SharedQueueLost | Event::CompletionsLost => self.lose_rail(rail, false),
            }
        }
    }

    /// A port is back, or its place in the table of GIDs is another one: then every way there is made anew. `true`: so it
    /// is.
    pub(super) fn find_port_again(&mut self, rail: usize) -> bool {
        let port = &mut self.rails[rail].port;
        let before = port.facts().clone();
        // The device says so itself if it is lost.
        let is_known = port.refresh().is_ok();
        let now = port.facts();
        let is_elsewhere = (now.lid, now.gid) != (before.lid, before.gid);
        if !is_known || (!is_elsewhere && now.gid_index == before.gid_index) {
            return false;
        }
        self.rails[rail].has_moved |= is_elsewhere;
        self.sides.forget_ways(rail, &mut self.rails);
        for index in self.pairs.places() {
            let line = self.pairs.line(index);
            let Some(line) = line.filter(|line| line.at() == rail) else {
                continue;
            };
            let asks = |link: &mut Link| matches!(link.connection.state(), State::Asking { .. });
            // One that is not joined yet knows no address.
            if !self.sides.link(line).is_some_and(asks) {
                self.break_pair(index);
            }
        }
        if is_elsewhere {
            self.tell_of_move(number_of(rail));
        }
        true
    }

    /// Whoever waits for something of ours asks at the old address.
    fn tell_of_move(&mut self, rail: u8) {
        for peer in self.sides.peers() {
            let side = self.sides.get(peer);
            let link = side.and_then(|side| side.link(rail));
            if link.is_some_and(|link| link.address.is_some()) {
                self.say(Line { peer, rail }, Say::Ack { asks: true });
            }
        }
    }

    /// A rail is of no use any more. `is_gone`: nor is its device, which never tells the end of what it was doing.
    fn lose_rail(&mut self, rail: usize, is_gone: bool) {
        let facts = self.rails[rail].port.facts();
        let why = format!(
            "{} port {} of rank {} on {} is lost",
            facts.device,
            facts.port,
            self.me,
            self.hosts.here()
        );
        self.rails.lose(rail, why);
        self.news.note_change(self.rails.change(rail, false));
        let is_all_lost = self.rails.is_all_lost();
        if !is_all_lost {
            self.leave_rail(number_of(rail));
            self.forget_pairs(rail, is_gone);
        }
        for peer in self.sides.peers() {
            let side = self.sides.get(peer);
            let is_over = |side: &Side| is_all_lost || usize::from(side.main.rail) == rail;
            // One that was not found yet may be on the others.
            let is_known = |side: &&Side| is_all_lost || side.main.address.is_some();
            let is_over = side.filter(is_known).is_some_and(is_over);
            if is_over && (is_all_lost || !self.leave_for_ever(peer)) {
                let rail = number_of(rail);
                self.lose_with_all(Line { peer, rail });
            }
        }
        if is_all_lost {
            self.end_all_works(is_gone);
        }
    }

    /// Gives a peer up whose rail is lost.
    #[cold]
    pub(super) fn lose_with_all(&mut self, line: Line) {
        let lost = self.rails[line.at()].lost.take();
        let why = lost.as_deref().unwrap_or("the network is lost");
        self.lose(line.peer, why);
        self.rails[line.at()].lost = lost;
    }
}

/// A rail's place as it is written everywhere.
fn number_of(rail: usize) -> u8 {
    u8::try_from(rail).unwrap_or(u8::MAX)
}
