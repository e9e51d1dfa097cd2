// SPDX-License-Identifier: MIT OR Apache-2.0
//! What goes to a peer takes another rail when its own carries nothing any more. Packets that have not arrived for all we
//! know go again; the peer drops those that it has. Both sides choose for themselves.

use super::Verbs;
use super::connect::State;
use super::link::Link;
use super::port::{Port, Status};
use super::rail::Line;

impl<P: Port> Verbs<P> {
    /// Whether anything could go over a link now.
    fn serves(&self, link: &Link) -> bool {
        self.rails.serves(link.rail)
            && link.address.is_some()
            && link.way_after_ns <= self.schedule.now_ns
    }

    /// Another link becomes a peer's main one: that of rail `to`, or one that seems good. `false`: there is none.
    #[cold]
    pub(super) fn detour(&mut self, peer: u32, to: Option<u8>) -> bool {
        let is_wanted = |link: &Link| to.is_none_or(|rail| rail == link.rail);
        self.detour_to(peer, |it, link| it.serves(link) && is_wanted(link))
    }

    /// The rail of a peer's main link is lost: takes any that is not.
    pub(super) fn leave_for_ever(&mut self, peer: u32) -> bool {
        let is_there = |it: &Self, link: &Link| it.rails[usize::from(link.rail)].lost.is_none();
        self.detour(peer, None) || self.detour_to(peer, is_there)
    }

    fn detour_to(&mut self, peer: u32, is_wanted: impl Fn(&Self, &Link) -> bool) -> bool {
        let Some(side) = self.sides.get(peer) else {
            return false;
        };
        let links = (0..).zip(side.others());
        let wanted = links.filter(|(_, link)| is_wanted(self, link));
        // One that is joined is most likely to be good; then they take turns.
        let order = |(_, link): &(usize, &Link)| {
            let is_joined = link.connection.usable().is_some();
            (!is_joined, link.rail.wrapping_sub(side.main.rail))
        };
        let Some((place, _)) = wanted.min_by_key(order) else {
            return false;
        };
        self.take_detour(peer, place);
        true
    }

    fn take_detour(&mut self, peer: u32, place: usize) {
        let now_ns = self.schedule.now_ns;
        let Some(state) = self.sides.of(peer).swap_main(place, now_ns) else {
            return;
        };
        self.counts.detours.add(1);
        match state {
            State::Apart => {}
            State::Asking { end } => self.break_quietly(end),
            State::Answered { end } | State::Joined { end, .. } | State::Leaving { end, .. } => {
                self.break_pair(end);
            }
        }
        self.bind_all_again(peer);
        self.go_on(peer);
    }

    /// The peer has not acknowledged anything for some time.
    pub(super) fn detour_if_stuck(&mut self, peer: u32) {
        let now_ns = self.schedule.now_ns;
        let side = self.sides.of(peer);
        let more = side.more.as_ref();
        if more.is_none_or(|more| now_ns < more.moves_after_ns) {
            return;
        }
        let timeouts = side.session.timeouts();
        if side.heard_on != side.main.rail && timeouts >= SOME_TIMEOUTS {
            // Whatever the reason is, the peer has found a better one.
            let to = Some(side.heard_on);
            self.detour(peer, to);
        } else if timeouts >= MANY_TIMEOUTS {
            self.detour(peer, None);
        }
    }

    /// Nobody has answered on this line for some time. `true`: it is left alone.
    pub(super) fn detour_if_silent(&mut self, line: Line, tries: u8) -> bool {
        if tries < MANY_TRIES {
            return false;
        }
        let now_ns = self.schedule.now_ns;
        let side = self.sides.of(line.peer);
        let Some(more) = &side.more else { return false };
        if side.main.rail != line.rail {
            let asks = |link: &mut Link| matches!(link.connection.state, State::Asking { .. });
            let is_vain = self.sides.link(line).is_some_and(asks);
            if is_vain {
                self.abandon(line);
            }
            if let Some(link) = self.sides.link(line).filter(|_| is_vain) {
                link.connection.in_vain(now_ns);
            }
            return is_vain;
        }
        now_ns >= more.moves_after_ns && self.detour(line.peer, None)
    }

    /// A work request on a line has failed, which has broken its queue pair.
    pub(super) fn detour_if_joined(&mut self, line: Line, status: Status) {
        let is_of_way = matches!(
            status,
            Status::RetryExceeded | Status::Forgotten | Status::Other(_)
        );
        let side = self.sides.of(line.peer);
        let mut others = side.others().iter();
        if is_of_way
            && side.main.rail == line.rail
            && others.any(|link| link.connection.usable().is_some())
        {
            self.detour(line.peer, None);
        }
    }

    /// A rail carries nothing for now: what goes over it takes another, where there is one.
    pub(super) fn leave_rail(&mut self, rail: u8) {
        for peer in self.sides.peers() {
            let Some(side) = self.sides.get(peer).filter(|side| !side.is_lost()) else {
                continue;
            };
            let is_other_good = |link: &Link| link.rail != rail && self.serves(link);
            let has_other = side.links().any(is_other_good);
            let link = side.link(rail);
            let end = link.and_then(|link| link.connection.end());
            let is_main = side.main.rail == rail;
            match end {
                _ if !has_other => {}
                _ if is_main => {
                    self.detour(peer, None);
                }
                // Parts of transfers that would wait for it.
                Some(index) => self.break_pair(index),
                None => {}
            }
        }
    }
}

/// Packets that were not acknowledged so often in a row went nowhere; where the peer is heard on another rail, fewer.
const MANY_TIMEOUTS: u8 = 5;
const SOME_TIMEOUTS: u8 = 3;
/// What is said so often in vain is not heard.
const MANY_TRIES: u8 = 5;
