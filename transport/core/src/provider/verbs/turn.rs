// SPDX-License-Identifier: MIT OR Apache-2.0
//! Polls the network: received packets, completed sends, timers, and asynchronous events of the ports; and prepares
//! sleeps until there is more to do.

use std::time::Duration;

use super::port::{CqKind, PortCompletion, VerbsPort};
use super::{PortChange, SENDS_EVERY, Verbs};
use crate::Completions;
use crate::wait_set::WaitSet;

impl<P: VerbsPort> Verbs<P> {
    /// Polls once.
    #[inline(never)]
    pub(in crate::provider) fn poll(&mut self, completions: &mut Completions) {
        self.streams.links.rails.cork();
        self.poll_once(completions);
        if !self.corks || completions.len() <= 1 {
            self.uncork();
        }
    }

    /// Promises that after each poll that returned more than one completion, the caller calls [`uncork`](Self::uncork)
    /// when it has handled them.
    pub(in crate::provider) fn promise_uncork(&mut self) {
        self.corks = true;
    }

    /// Sends, together, the packets that user-space ports held back during a poll, and while the caller handled its
    /// completions.
    #[inline(always)]
    pub(in crate::provider) fn uncork(&mut self) {
        self.streams.links.rails.uncork();
    }

    #[inline(always)]
    fn poll_once(&mut self, completions: &mut Completions) {
        self.announced_to = None;
        self.streams.links.schedule.count();
        self.catch_up();
        self.streams.ready.hand_up(completions);
        if self.streams.links.peers.is_any_owing() {
            self.streams.links.send_owed_acks();
        }
        let mut done = std::mem::take(&mut self.streams.links.rails.received);
        let (mut has_received, mut has_all) = (false, true);
        let count = self.streams.links.rails.len();
        for step in 0..count {
            let rail = self.streams.links.schedule.rail(step, count);
            if self.streams.links.rails[rail].lost.is_some() {
                // Packets of a lost rail are not taken: their answers would be sent over that rail.
                continue;
            }
            let room = Completions::CAPACITY - completions.len();
            let port = &mut self.streams.links.rails[rail].port;
            let received = port.poll(CqKind::Receives, &mut done[..room]);
            if received != 0 {
                self.take_all_received(rail, &done[..received], completions);
            }
            has_received |= received != 0;
            has_all &= received < room;
        }
        self.streams.links.rails.received = done;
        if self.streams.links.schedule.is_turn(SENDS_EVERY) || self.awaits_sends(has_received) {
            self.streams.poll_sends();
        }
        self.settle();
        let had_deferred = self.streams.links.bursts.has_deferred();
        let is_between_sends = self.streams.links.bursts.end_poll();
        if self.streams.links.peers.is_any_unsent() {
            self.flush_all(is_between_sends);
            if had_deferred && !is_between_sends && self.streams.links.peers.is_any_unsent() {
                // The program completes its sends now: completions that have not been polled may make room.
                self.streams.poll_sends();
                self.settle();
                self.flush_all(false);
            }
        }
        if has_all && self.streams.links.peers.is_any_leaving() {
            self.streams.links.advance_leaving();
            self.settle();
        }
        if self.streams.links.schedule.is_turn(P::CLOCK_EVERY) {
            self.check_clock();
        }
        self.settle();
    }

    /// Hands the queued link events to reads and writes.
    #[inline(always)]
    pub(super) fn settle(&mut self) {
        if !self.streams.links.link_events.is_empty() {
            self.settle_all();
        }
    }

    #[inline(never)]
    fn settle_all(&mut self) {
        while let Some(event) = self.streams.links.link_events.pop_front() {
            self.transfers.handle_event(&mut self.streams, event);
        }
    }

    /// Whether completions of sends are needed now: something waits for them and nothing was received, or slots are
    /// scarce.
    #[inline(always)]
    fn awaits_sends(&self, has_received: bool) -> bool {
        let is_urgent = !self.transfers.works.is_empty()
            || self.streams.links.peers.is_any_unsent()
            || self.streams.links.peers.is_any_leaving();
        (is_urgent && !has_received) || self.streams.links.sends.is_scarce()
    }

    #[inline(never)]
    fn take_all_received(
        &mut self,
        rail: usize,
        done: &[PortCompletion],
        completions: &mut Completions,
    ) {
        for one in done {
            let receives = &mut self.streams.links.rails[rail].receives;
            if let Some(buffer) = receives.filled(one.work, one.bytes) {
                self.take_filled(buffer, one, completions);
            }
        }
        self.streams.links.schedule.note_activity();
        self.streams.links.rails.came_on(rail);
        let rail = &mut self.streams.links.rails[rail];
        rail.receives.replenish(&mut rail.port);
    }

    /// Sends what waits. `is_between_sends`: except frames that are deferred until there are more of them.
    #[cold]
    fn flush_all(&mut self, is_between_sends: bool) {
        for peer in self.streams.links.peers.take_unsent() {
            if is_between_sends && self.streams.is_deferring(peer) {
                self.streams.links.peers.list_unsent(peer);
            } else {
                self.transfers.go_on(&mut self.streams, peer);
            }
        }
        if !self.streams.control.is_empty() {
            self.streams.post_control();
        }
    }

    /// Reads the clock, and does what is due.
    fn check_clock(&mut self) {
        self.streams.links.schedule.now_ns = self.streams.links.rails.clock();
        let next = self.streams.links.peers.deadline_ns();
        if next.is_some_and(|deadline_ns| deadline_ns <= self.streams.links.schedule.now_ns) {
            self.streams.links.schedule.check_events_soon();
        }
        if self.streams.links.schedule.are_events_due() {
            self.take_all_events();
            self.settle();
        }
        while let Some(peer) = self
            .streams
            .links
            .peers
            .next_due(self.streams.links.schedule.now_ns)
        {
            self.streams.links.schedule.note_activity();
            let sends_again = self.streams.links.time_is_over(peer);
            // Reads and writes are posted before packets (P2).
            self.settle();
            if sends_again {
                self.streams.flush(peer);
            }
        }
    }

    fn take_all_events(&mut self) {
        for rail in 0..self.streams.links.rails.len() {
            self.streams.links.take_events(rail);
        }
        if P::MAY_LOSE_COMPLETIONS {
            self.streams.break_lost();
        }
        if !self.transfers.fetches.is_empty() {
            self.transfers.try_owners(&mut self.streams);
        }
        self.streams.links.try_receivers();
    }

    /// Whether all packets have been acknowledged, those of this process and those received from peers, and no control
    /// packet waits. Marks the acknowledgements that this process owes as due, and requests those that it misses.
    pub(in crate::provider) fn is_quiet(&mut self) -> bool {
        self.catch_up();
        self.streams.links.peers.owe_all();
        let all = self.streams.links.peers.have_all_arrived();
        if !all {
            self.streams.request_completions();
            self.settle();
        }
        all && self.streams.control.is_empty() && !self.streams.links.peers.is_any_owing()
    }

    /// A peer whose address is needed; each peer is returned once.
    pub(in crate::provider) fn next_unresolved(&mut self) -> Option<u32> {
        self.streams.links.unresolved.next_wanted()
    }

    #[inline(always)]
    pub(in crate::provider) fn has_notices(&self) -> bool {
        self.streams.links.unresolved.is_any_wanted() || !self.streams.links.notices.is_empty()
    }

    /// A port that went down or came back.
    pub(in crate::provider) fn next_port_change(&mut self) -> Option<PortChange> {
        self.streams.links.notices.next_change()
    }

    /// A warning for the user.
    pub(in crate::provider) fn next_warning(&mut self) -> Option<String> {
        self.streams.links.notices.next_warning()
    }

    /// A message for the user that is to be shown once per job.
    pub(in crate::provider) fn next_remark(&mut self) -> Option<String> {
        self.streams.links.notices.next_remark()
    }

    /// Arms the completion queues, then polls. `true`: nothing is pending, and the next completion raises an event.
    pub(in crate::provider) fn prepare_sleep(&mut self) -> bool {
        if self.streams.links.rails.take_activity() || !self.streams.links.rails.arm() {
            return false;
        }
        // Completions from before the arming raise no event, so they are polled here.
        let mut completions = Completions::new();
        self.poll(&mut completions);
        self.streams.poll_sends();
        self.settle();
        self.uncork();
        self.streams.ready.put_first(&mut completions);
        let has_activity = self.streams.links.schedule.take_activity();
        !has_activity
            && self.streams.ready.is_empty()
            && !self.streams.links.peers.is_any_owing()
            && !self.streams.links.peers.is_any_leaving()
            && !self.streams.links.unresolved.is_any_wanted()
    }

    /// Adds the ports' descriptors and the next deadline to a wait set.
    pub(in crate::provider) fn fall_asleep(&mut self, waits: &mut WaitSet) {
        if let Some(due) = self.until_due() {
            waits.poll_after(due);
        }
        self.streams.links.rails.add_event_fds(waits);
    }

    /// Time to the next deadline; `None`: there is none.
    pub(super) fn until_due(&self) -> Option<Duration> {
        let links = &self.streams.links;
        let is_ack_pending = links.pairs.is_any_ack_pending(&links.peers);
        let receivers_at_ns = is_ack_pending.then(|| links.schedule.receivers_at_ns());
        let deadlines = [
            links.peers.deadline_ns(),
            self.transfers.fetches.tries_owners_at(),
            receivers_at_ns,
        ];
        let deadline = deadlines.into_iter().flatten().min()?;
        Some(Duration::from_nanos(
            deadline.saturating_sub(links.rails.clock()),
        ))
    }

    /// Continues after a sleep.
    pub(in crate::provider) fn wake(&mut self) {
        self.streams.links.rails.ack_events();
        // An asynchronous event may have woken the process.
        self.streams.links.schedule.check_events_now();
        self.check_clock();
        self.settle();
    }
}
