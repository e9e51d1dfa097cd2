// SPDX-License-Identifier: MIT OR Apache-2.0
//! Schedules attempts to connect to peers, which take turns: an attempt takes a descriptor for each address of the
//! peer, and a process has few.

use std::collections::VecDeque;

/// Peers that this process is connecting to, and those that wait for their turn.
#[derive(Debug)]
pub(super) struct ConnectQueue {
    under_way: Vec<u32>,
    waiting: VecDeque<u32>,
    /// Peers whose attempts need no turn: they wait only for the peer's reply.
    aside: Vec<u32>,
    /// After a lack of descriptors, no attempt starts before this time; 0: descriptors have not been lacking.
    paused_until_ns: u64,
    /// Limit of concurrent attempts: reduced when descriptors are lacking, and raised again with time.
    most: usize,
    grown_ns: u64,
}

impl Default for ConnectQueue {
    fn default() -> Self {
        Self {
            under_way: Vec::new(),
            waiting: VecDeque::new(),
            aside: Vec::new(),
            paused_until_ns: 0,
            most: MOST_CALLS,
            grown_ns: 0,
        }
    }
}

impl ConnectQueue {
    /// Peers with an attempt in progress.
    pub(super) fn under_way(&self) -> &[u32] {
        &self.under_way
    }

    /// All peers. Those set aside come first, since their connections are the first to be given up.
    pub(super) fn all(&self) -> impl Iterator<Item = u32> {
        let others = self.waiting.iter().chain(&self.under_way);
        self.aside.iter().chain(others).copied()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.all().next().is_none()
    }

    /// Whether the attempt to connect to a peer has its turn. Only then are connections made.
    pub(super) fn is_under_way(&self, peer: u32) -> bool {
        self.under_way.contains(&peer)
    }

    pub(super) fn is_aside(&self, peer: u32) -> bool {
        self.aside.contains(&peer)
    }

    /// Number of peers that wait for their turn.
    pub(super) fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// `true`: the attempt may start now. Else the peer waits at the end of the queue.
    pub(super) fn begin(&mut self, peer: u32, now_ns: u64) -> bool {
        let may_begin = self.waiting.is_empty() && self.has_room(now_ns);
        if may_begin {
            self.under_way.push(peer);
        } else {
            self.waiting.push_back(peer);
        }
        may_begin
    }

    /// Moves the peer to the end of the queue.
    pub(super) fn wait(&mut self, peer: u32) {
        self.end(peer);
        self.waiting.push_back(peer);
    }

    /// Sets the peer aside: it needs no turn as long as its connections hold.
    pub(super) fn set_aside(&mut self, peer: u32) {
        self.end(peer);
        self.aside.push(peer);
    }

    /// Starts the turn of the next waiting peer, if an attempt may start now; returns the peer.
    pub(super) fn next(&mut self, now_ns: u64) -> Option<u32> {
        let peer = self.has_room(now_ns).then(|| self.waiting.pop_front())??;
        self.under_way.push(peer);
        Some(peer)
    }

    /// Removes the peer.
    pub(super) fn end(&mut self, peer: u32) {
        let of = self.under_way.iter().position(|one| *one == peer);
        if let Some(at) = of {
            self.under_way.remove(at);
            return;
        }
        self.waiting.retain(|one| *one != peer);
        self.aside.retain(|one| *one != peer);
    }

    /// Handles a lack of descriptors: no attempt starts for a while, and then fewer at a time, so that some
    /// descriptors are left for incoming connections. Returns the peers whose attempts must wait now.
    pub(super) fn lack(&mut self, now_ns: u64, pause_ns: u64) -> Vec<u32> {
        self.paused_until_ns = now_ns + pause_ns;
        self.grown_ns = now_ns;
        self.most = (self.under_way.len().min(self.most) / 2).max(1);
        self.under_way.iter().skip(self.most).copied().collect()
    }

    /// Raises the limit by one, if descriptors have not been lacking for a while.
    pub(super) fn grow(&mut self, now_ns: u64) {
        if self.most < MOST_CALLS && now_ns.saturating_sub(self.grown_ns) >= GROW_NS {
            self.grown_ns = now_ns;
            self.most += 1;
        }
    }

    /// Time from which the next attempt may start; `None`: no attempt waits, or one in progress must end first.
    pub(super) fn next_at_ns(&self) -> Option<u64> {
        let is_waiting = !self.waiting.is_empty() && self.under_way.len() < self.most;
        is_waiting.then_some(self.paused_until_ns)
    }

    fn has_room(&self, now_ns: u64) -> bool {
        self.under_way.len() < self.most && now_ns >= self.paused_until_ns
    }
}

/// Maximum number of concurrent attempts.
pub(super) const MOST_CALLS: usize = 32;
/// Interval at which the limit is raised by one.
const GROW_NS: u64 = 250_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connects_are_limited_and_the_rest_queue_in_order() {
        let mut calls = ConnectQueue::default();
        let most = u32::try_from(MOST_CALLS).unwrap();
        let began = (0..40).filter(|peer| calls.begin(*peer, 5)).count();
        assert_eq!((began, calls.waiting()), (MOST_CALLS, 40 - MOST_CALLS));
        assert_eq!(calls.next(5), None);
        calls.end(most + 1);
        calls.end(3);
        calls.wait(4);
        assert_eq!((calls.next(5), calls.next(5)), (Some(most), Some(most + 2)));
        calls.end(0);
        let over = calls.lack(5, 4);
        assert_eq!(over.len(), MOST_CALLS - 1 - (MOST_CALLS - 1) / 2);
        over.iter().for_each(|peer| calls.end(*peer));
        calls.end(5);
        assert_eq!((calls.next(8), calls.next_at_ns()), (None, Some(9)));
        assert_eq!(calls.next(9), Some(most + 3));
        assert_eq!(calls.next(9), None, "fewer at a time");
        calls.grow(5 + GROW_NS);
        assert_eq!(calls.next(5 + GROW_NS), Some(most + 4));
        (0..50).for_each(|peer| calls.end(peer));
        assert_eq!((calls.under_way().len(), calls.waiting()), (0, 0));
        assert!(calls.is_empty());
    }

    #[test]
    fn connects_set_aside_leave_their_turn_to_others() {
        let mut calls = ConnectQueue::default();
        let most = u32::try_from(MOST_CALLS).unwrap();
        let began = (0..=most).filter(|peer| calls.begin(*peer, 5)).count();
        assert_eq!(began, MOST_CALLS);
        calls.set_aside(3);
        assert!(calls.is_aside(3) && !calls.is_under_way(3));
        assert_eq!(calls.next(5), Some(most));
        assert_eq!((calls.all().next(), calls.waiting()), (Some(3), 0));
        calls.wait(3);
        assert!(!calls.is_aside(3) && calls.waiting() == 1);
        calls.set_aside(3);
        (0..=most).for_each(|peer| calls.end(peer));
        assert!(calls.is_empty());
    }
}
