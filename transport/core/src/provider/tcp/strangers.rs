// SPDX-License-Identifier: MIT OR Apache-2.0
//! Those who have connected and not proved who they are. There are few at a time, each has little time, and what is said about them is
//! said once for each host and reason.

use std::collections::HashSet;
use std::net::{IpAddr, SocketAddr};

use super::proof::Meeting;
use super::room::HOLD_NS;
use super::sockets::Sock;
use super::talk::Talk;

/// Somebody who has connected.
#[derive(Debug)]
pub(super) struct Stranger {
    pub(super) talk: Talk,
    pub(super) from: SocketAddr,
    pub(super) since_ns: u64,
    /// Who it says to be, once it has.
    pub(super) meeting: Option<(u32, Meeting)>,
}

/// All of them.
#[derive(Debug, Default)]
pub(super) struct Strangers {
    all: Vec<Stranger>,
    told: HashSet<(IpAddr, &'static str)>,
}

impl Strangers {
    /// Whether one more finds room, or one of those that are here may be sent away for it.
    pub(super) fn has_room(&self, now_ns: u64) -> bool {
        self.all.len() < MOST_STRANGERS || self.gives_way(now_ns).is_some()
    }

    /// Takes the one that makes room for another, if that is needed.
    pub(super) fn take_for_another(&mut self, now_ns: u64) -> Option<Stranger> {
        let at = (self.all.len() >= MOST_STRANGERS).then(|| self.gives_way(now_ns))??;
        Some(self.all.swap_remove(at))
    }

    /// Takes one that has said nothing yet, though it had time.
    pub(super) fn take_silent(&mut self, now_ns: u64) -> Option<Stranger> {
        let at = self.gives_way(now_ns)?;
        self.all[at]
            .meeting
            .is_none()
            .then(|| self.all.swap_remove(at))
    }

    /// The oldest one that has said nothing, or else just the oldest. Each has some time.
    fn gives_way(&self, now_ns: u64) -> Option<usize> {
        let is_old = |one: &Stranger| now_ns.saturating_sub(one.since_ns) >= HOLD_NS;
        let old = self.all.iter().enumerate().filter(|(_, one)| is_old(one));
        let order = |(_, one): &(usize, &Stranger)| (one.meeting.is_some(), one.since_ns);
        Some(old.min_by_key(order)?.0)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    pub(super) fn add(&mut self, sock: Sock, from: SocketAddr, now_ns: u64) {
        self.all.push(Stranger {
            talk: Talk::new(sock),
            from,
            since_ns: now_ns,
            meeting: None,
        });
    }

    /// Takes the one with this connection.
    pub(super) fn take(&mut self, sock: Sock) -> Option<Stranger> {
        let at = self.all.iter().position(|one| one.talk.sock == sock)?;
        Some(self.all.swap_remove(at))
    }

    pub(super) fn put_back(&mut self, stranger: Stranger) {
        self.all.push(stranger);
    }

    /// Takes one whose time is over.
    pub(super) fn take_late(&mut self, now_ns: u64) -> Option<Stranger> {
        let is_late = |one: &Stranger| now_ns.saturating_sub(one.since_ns) > PATIENCE_NS;
        let at = self.all.iter().position(is_late)?;
        Some(self.all.swap_remove(at))
    }

    /// Nobody has listened for so long: that time does not count.
    pub(super) fn forgive(&mut self, passed_ns: u64, now_ns: u64) {
        for one in &mut self.all {
            one.since_ns = (one.since_ns + passed_ns).min(now_ns);
        }
    }

    /// Whether this is worth a line: it was not said of this host before.
    pub(super) fn is_news(&mut self, from: IpAddr, what: &'static str) -> bool {
        self.told.len() < MOST_TOLD && self.told.insert((from, what))
    }
}

/// At a time; who comes later waits in the system's queue.
const MOST_STRANGERS: usize = 64;
/// Whoever has not said who it is by then is sent away.
pub(super) const PATIENCE_NS: u64 = 10_000_000_000;
const MOST_TOLD: usize = 64;
