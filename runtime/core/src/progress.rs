// SPDX-License-Identifier: MIT OR Apache-2.0
//! A turn of progress, and what a waiting process does between two turns.

use transport::seat::Awaited;

use crate::Universe;
use crate::awaits::Awaits;
use crate::var::live;
use crate::waiting::{Rested, WaitContext, WaitPolicy, WaitProgress};

impl Universe {
    /// One bounded turn: polls the transport and posts waiting frames. `true`: something happened.
    #[inline]
    pub fn progress(&mut self) -> bool {
        self.messages.pump.fabric.poll(&mut self.completions);
        self.take_in_all()
    }

    /// A turn of progress that does not poll the ring whose frames the fast path of waiting takes in one by one.
    #[inline(never)]
    pub(crate) fn progress_without_first(&mut self) {
        self.messages
            .pump
            .fabric
            .poll_beside_first(&mut self.completions);
        self.take_in_all();
    }

    /// Takes in the completions of a poll, and does the rest of a turn.
    #[inline(always)]
    fn take_in_all(&mut self) -> bool {
        let count = self.completions.len();
        self.completions_seen = self.completions_seen.wrapping_add(count as u64);
        match count {
            0 => {}
            1 => self.take_in_one(0),
            _ => self.take_in_many(count),
        }
        if self.messages.pump.engine.busy_peers() != 0 {
            self.messages.pump.drain();
        }
        if live::is_stale() {
            self.renew_settings();
        }
        if self.network.needs_turns() {
            self.turn_network();
        }
        if !self.messages.bundles.is_idle() {
            self.messages.settle_bundles();
        }
        let mut moved = count != 0;
        if self.channels.own.is_busy() {
            moved |= self.channels.turn(&mut self.messages.pump.fabric);
        }
        if self.messages.gates.is_busy() {
            moved |= self.messages.gates.turn(&mut self.messages.pump);
        }
        moved
    }

    #[inline(always)]
    fn take_in_one(&mut self, index: usize) {
        if let Some(completion) = self.completions.take(index) {
            self.take_in(completion);
        }
    }

    /// Takes in `count` completions, and then posts all frames that they cause.
    #[inline(never)]
    fn take_in_many(&mut self, count: usize) {
        (0..count).for_each(|index| self.take_in_one(index));
        if self.messages.pump.engine.busy_peers() != 0 {
            self.messages.pump.drain();
        }
        self.messages.pump.fabric.uncork();
    }

    /// Makes a turn of progress once in `CALLS_PER_TURN` calls.
    #[inline]
    pub fn fast_path_turn(&mut self) {
        self.fast_path_calls = self.fast_path_calls.wrapping_add(1);
        if self.fast_path_calls.is_multiple_of(CALLS_PER_TURN) {
            self.progress();
        }
    }

    /// Whether an operation is in progress that completes only if this process makes turns of progress.
    pub(crate) fn needs_turns(&self) -> bool {
        self.messages.pump.engine.busy_peers() != 0
            || self.channels.own.is_busy()
            || self.messages.gates.is_busy()
            || !self.messages.bundles.is_idle()
            || self.network.needs_turns() && self.network.has_work(&self.messages.pump)
    }

    /// To be called after a turn in which nothing happened. Spins while the wait is short and no other process is known
    /// to need the core; else yields or sleeps. `what` returns the name of the calling function, and what it waits for.
    #[inline]
    pub fn rest(&mut self, wait: &mut WaitProgress, what: impl FnOnce() -> (&'static str, Awaits)) {
        if self.waiting.spins(wait, &self.messages.pump.fabric) {
            std::hint::spin_loop();
            return;
        }
        self.rest_long(wait, what());
    }

    #[inline(never)]
    fn rest_long(&mut self, wait: &mut WaitProgress, what: (&'static str, Awaits)) {
        let (waiting, mut context) = self.wait_context();
        if waiting.rest_long(wait, what, &mut context) {
            self.check_link();
        }
    }

    /// The wait policy, and the parts of the process that it checks before it sleeps.
    fn wait_context(&mut self) -> (&mut WaitPolicy, WaitContext<'_>) {
        let context = WaitContext {
            messages: &mut self.messages,
            channels: &mut self.channels.own,
            network: &mut self.network,
        };
        (&mut self.waiting, context)
    }

    /// If ranks share cores: sleeps once, until another rank makes the awaited store to a board, or anything else wakes
    /// this process. If something has arrived already, takes it in and does not sleep. `true`: the awaited store has
    /// happened. `false`: it has not, or ranks do not share cores.
    pub(crate) fn sleep_at_board(&mut self, what: &Awaited) -> bool {
        let (waiting, mut context) = self.wait_context();
        if !waiting.shares_core(context.fabric()) {
            return false;
        }
        if !waiting.sleep_at_board(what.clone(), &mut context) {
            self.progress();
        }
        what.has_happened()
    }

    /// At most twice a second: takes in messages that the daemon sends without a request, and the end of its
    /// connection.
    fn check_link(&mut self) {
        if self.waiting.crowding.is_time_to_check() {
            while let Some(event) = self.network.next_event() {
                self.take_in_daemon_event(event);
            }
        }
    }

    /// Rests in a long series of test calls. `true`: it has yielded the core or slept, so another turn may find
    /// something.
    pub(crate) fn rest_of_poll(&mut self) -> bool {
        let (waiting, mut context) = self.wait_context();
        let rested = waiting.rest_of_poll(&mut context);
        if rested == Rested::Asleep {
            self.check_link();
        }
        rested != Rested::Not
    }
}

/// One call on the fast path in this many makes a turn of progress.
const CALLS_PER_TURN: u32 = 32;

#[cfg(test)]
mod tests {
    use engine::Peer;
    use transport::{Config, Fabric};

    use super::*;
    use crate::var::live::change;
    use crate::var::{Variable, VariableValues};

    #[test]
    fn sends_poll_once_per_sends_per_look() {
        let (values, _) = VariableValues::from_environment(std::iter::empty());
        let fabric = Fabric::open(Config::alone()).unwrap();
        let mut universe = Universe::new(fabric, Peer(0), 1, &values);
        for sends_per_poll in [3, 16] {
            change(Variable::SendsPerLook, sends_per_poll);
            let mut counts = (0..sends_per_poll).map(|_| {
                universe.sending();
                u64::from(universe.messages.sends_since_poll)
            });
            assert!((1..sends_per_poll).all(|sends| counts.next() == Some(sends)));
            assert_eq!(counts.next(), Some(0));
        }
    }
}
