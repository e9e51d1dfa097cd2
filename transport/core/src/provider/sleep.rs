// SPDX-License-Identifier: MIT OR Apache-2.0
//! Puts a process to sleep until an event wakes it: each provider checks for events, adds its wake-up sources, and is
//! notified when the process is awake again. A network on which nothing is pending is skipped if its descriptors are
//! still watched from the last sleep.

use std::time::Duration;

use super::Fabric;
use super::net::NetworkProvider;
use super::wire::Provider;

impl Fabric {
    /// Publishes, for tools that read this node's segment, the number of seconds without progress after which a hang is
    /// to be reported; 0: it is never reported.
    pub fn announce_patience(&self, seconds: u32) {
        if let Some(waits) = self.waits {
            waits.announce(seconds);
        }
    }

    /// Counts a sleep that is about to begin: `begins`, whether it is the first in this wait; `beside_others`, whether
    /// other threads of the process may be running.
    pub fn count_sleep(&self, begins: bool, beside_others: bool) {
        if let Some(waits) = self.waits {
            waits.count_sleep(begins, beside_others);
        }
    }

    /// Promises that this process will never [`sleep`](Self::sleep) (`true`), or revokes the promise. While the promise
    /// holds, the process can be attentive even if the system lacks the fence that a sleep would need. Call
    /// [`set_attentive`](Self::set_attentive) again afterwards.
    pub fn set_sleepless(&mut self, sleepless: bool) {
        self.shm.set_sleepless(sleepless);
        self.later.set_sleepless(sleepless);
    }

    /// Announces that this process is about to sleep. `false`: an event has occurred, or the process has promised not
    /// to sleep: poll again; `true`: call [`sleep`](Self::sleep) or [`stay_awake`](Self::stay_awake) now.
    pub fn prepare_sleep(&mut self) -> bool {
        // Skipping a dormant network saves work if the process sleeps again and again while it waits for ranks of its
        // node.
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

    /// Sleeps until a doorbell or descriptor wakes it, at most for `timeout`.
    pub fn sleep(&mut self, timeout: Duration) {
        if let Some(sim) = &mut self.sim {
            // Simulated time does not follow the clock: instead of blocking, this call advances it.
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

    /// Revokes the announcement made by [`prepare_sleep`](Self::prepare_sleep), instead of a sleep.
    pub fn stay_awake(&mut self) {
        self.shm.wake();
        self.later.wake();
    }
}
