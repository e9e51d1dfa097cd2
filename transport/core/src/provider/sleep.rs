// SPDX-License-Identifier: MIT OR Apache-2.0
//! How a process sleeps at all that may wake it: each wire is asked whether something has come, adds what it is woken by, and hears
//! when the process is awake again. A network of which nothing is under way is left out of that, while a thread watches its
//! descriptors.

use std::time::Duration;

use super::Fabric;
use super::net::NetworkProvider;
use super::wire::Provider;

impl Fabric {
    /// Says, for who looks at this node from outside, after how many seconds without progress people want to know; 0: never.
    pub fn announce_patience(&self, seconds: u32) {
        if let Some(waits) = self.waits {
            waits.announce(seconds);
        }
    }

    /// Says that this process is about to sleep: whether for the first time in this wait, and whether other threads of it may
    /// be doing something else.
    pub fn tell_wait(&self, begins: bool, beside_others: bool) {
        if let Some(waits) = self.waits {
            waits.tell(begins, beside_others);
        }
    }

    /// Promises that this process will never [`sleep`](Self::sleep), or takes that back: while it holds the process can be
    /// attentive where the system has no fence for it. Say whether it is [attentive](Self::set_attentive) afterwards.
    pub fn set_sleepless(&mut self, sleepless: bool) {
        self.shm.set_sleepless(sleepless);
        self.later.set_sleepless(sleepless);
    }

    /// Announces that this process is about to sleep. `false`: something has happened, poll again; `true`: call
    /// [`sleep`](Self::sleep) or [`stay_awake`](Self::stay_awake) now.
    pub fn prepare_sleep(&mut self) -> bool {
        // A process that sleeps for its neighbours, again and again, has nothing to do with the network meanwhile.
        let is_dormant = self.net.as_ref().is_some_and(NetworkProvider::is_dormant);
        self.leaves_net = is_dormant && self.wait_set.has_watched();
        let quiet = self.sim.as_mut().is_none_or(Provider::prepare_sleep);
        let quiet =
            quiet && (self.leaves_net || self.net.as_mut().is_none_or(Provider::prepare_sleep));
        if !quiet || !self.loopback.prepare_sleep() || !self.shm.prepare_sleep() {
            return false;
        }
        let quiet = self.later.prepare_sleep();
        if !quiet {
            self.shm.wake();
        }
        quiet
    }

    /// Sleeps until somebody rings, at most for `timeout`.
    pub fn sleep(&mut self, timeout: Duration) {
        if let Some(sim) = &mut self.sim {
            // Its time is not that of the clock.
            return sim.sleep(timeout);
        }
        self.shm.stats.sleeps.add(1);
        match self.leaves_net {
            true => self.wait_set.begin_as_before(timeout),
            false => self.wait_set.begin(timeout),
        }
        self.shm.fall_asleep(&mut self.wait_set);
        self.later.fall_asleep(&mut self.wait_set);
        if let Some(net) = self.net.as_mut().filter(|_| !self.leaves_net) {
            net.fall_asleep(&mut self.wait_set);
        }
        self.wait_set.sleep();
        self.shm.wake();
        self.later.wake();
        if let Some(net) = &mut self.net {
            net.wake();
        }
    }

    /// Takes [`prepare_sleep`](Self::prepare_sleep) back.
    pub fn stay_awake(&mut self) {
        self.shm.wake();
        self.later.wake();
    }
}
