// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which rail a read or write goes over, and how large ones go over several: each of these moves a share.

use std::mem;

use super::Verbs;
use super::ends::MOST_TRIES;
use super::keys::Keys;
use super::link::Link;
use super::port::Port;
use super::rail::Line;
use super::work::{Kind, Work};
use crate::Outcome;

impl<P: Port> Verbs<P> {
    /// The rail for a work with these keys: that of the main link if there is a key for it. `None`: no link has one.
    pub(super) fn rail_for(&mut self, peer: u32, keys: &Keys) -> Option<u8> {
        let side = self.sides.of(peer);
        let main = &side.main;
        // Where nothing is known yet, all is found out later.
        if main.address.is_none() || keys[usize::from(main.theirs)] != 0 {
            return Some(main.rail);
        }
        let others = side.others().iter();
        let with_key = others.filter(|link| keys[usize::from(link.theirs)] != 0);
        let rails: Vec<u8> = with_key.map(|link| link.rail).collect();
        let serves = |rail: &&u8| self.rails[usize::from(**rail)].serves();
        rails.iter().find(serves).or_else(|| rails.first()).copied()
    }

    /// Shares a large read or write out among the rails that have a queue pair; an error gives back one that is not.
    #[allow(
        clippy::result_large_err,
        reason = "it is given back as it was taken, which costs a copy"
    )]
    pub(super) fn share_out(&mut self, work: Work) -> Result<(), Work> {
        let is_large = work.bytes >= self.limits.striped_bytes;
        let has_more = !self.sides.of(work.peer).others().is_empty();
        if !is_large || !has_more || matches!(work.kind, Kind::Atomic(_)) {
            return Err(work);
        }
        let rails = self.rails_for_shares(&work);
        if rails.len() < 2 {
            return Err(work);
        }
        let Some(shares) = self.shares(&work, &rails) else {
            return Err(work);
        };
        self.counts.striped.add(1);
        let whole = self.place(Work {
            shares: u32::try_from(shares.len()).unwrap_or(0),
            ..work
        });
        for share in shares {
            let whole = Some(whole);
            self.start(Work { whole, ..share });
        }
        Ok(())
    }

    /// The rails that take a share of a work now, and how large a one. Others are asked for, for the next one.
    fn rails_for_shares(&mut self, work: &Work) -> Vec<(u8, u64)> {
        let peer = work.peer;
        let side = self.sides.of(peer);
        let Some(more) = &side.more else {
            return Vec::new();
        };
        let has_key = |theirs: u8| work.keys[usize::from(theirs)] != 0;
        let links: Vec<(u8, u32, bool)> = side
            .links()
            .filter(|link| has_key(link.theirs))
            .map(|link| {
                let is_joined = link.connection.usable().is_some();
                (
                    link.rail,
                    more.rates_mbps[usize::from(link.theirs)],
                    is_joined,
                )
            })
            .collect();
        let mut rails = Vec::new();
        for (rail, rate_there, is_joined) in links {
            let here = &self.rails[usize::from(rail)];
            match is_joined {
                true if here.serves() => {
                    rails.push((rail, here.port.facts().rate_mbps.min(rate_there)));
                }
                // None is given up for it.
                false if self.has_room_for_pair() => self.want_pair(Line { peer, rail }),
                _ => {}
            }
        }
        divide(work.bytes, rails, self.limits.striped_bytes / 2)
    }

    /// The shares of a work, registered on their rails; `None`: some cannot be.
    fn shares(&mut self, work: &Work, rails: &[(u8, u64)]) -> Option<Vec<Work>> {
        let mut from = 0;
        let mut shares: Vec<Work> = Vec::new();
        for (rail, bytes) in rails {
            self.serial += 1;
            let mut share = Work {
                serial: self.serial,
                lease: None,
                base: work.base + from,
                bytes: *bytes,
                rail: *rail,
                address: work.address.wrapping_add(from),
                bounce: None,
                ..*work
            };
            from += bytes;
            match self.registry.register(share.stretch(), &mut self.rails) {
                Ok(registered) => share.registered = Some(registered),
                Err(_) => {
                    for share in &shares {
                        self.deregister_work(share);
                    }
                    return None;
                }
            }
            shares.push(share);
        }
        Some(shares)
    }

    /// A share has ended. The whole ends with the last, and as badly as the worst.
    pub(super) fn share_ended(&mut self, whole: u32, outcome: Outcome) {
        let Some(work) = self.works.get_mut(whole) else {
            return;
        };
        work.shares -= 1;
        if work.outcome == Outcome::Done || outcome == Outcome::BadKey {
            work.outcome = outcome;
        }
        if work.shares == 0 {
            self.finish(whole);
        }
    }

    /// A work that waits goes over the rail that is best now. `false`: there is none, and it has ended.
    pub(super) fn bind_again(&mut self, index: u32) -> bool {
        let Some(work) = self.works.get(index) else {
            return false;
        };
        let (peer, keys, rail) = (work.peer, work.keys, work.rail);
        let is_told = work.immediate.is_some();
        let Some(best) = self.rail_for(peer, &keys) else {
            return is_told || self.give_up(index);
        };
        if best != rail {
            self.bind(index, best);
        }
        true
    }

    /// A work that waits goes over this rail, where its memory is not known yet.
    fn bind(&mut self, index: u32, rail: u8) {
        let Some(work) = self.works.get_mut(index) else {
            return;
        };
        let (peer, is_told) = (work.peer, work.immediate.is_some());
        let before = work.region();
        (work.rail, work.registered) = (rail, None);
        if let Some((rail, region)) = before {
            self.rails[rail].port.deregister(region);
        }
        if is_told {
            self.count_strays(peer);
        }
    }

    /// A link gets no queue pair now: reads and writes that wait for one go over another link that has it, or soon will.
    #[cold]
    pub(super) fn move_waiting(&mut self, line: Line) {
        let links = self.links_instead(line);
        let waiting = self
            .sides
            .link(line)
            .map(|link| mem::take(&mut link.waiting));
        for index in waiting.unwrap_or_default() {
            if let Some(work) = self.works.get_mut(index) {
                // What two devices do to one word is not done in one step; and nothing goes to and fro for ever.
                let may_move = !matches!(work.kind, Kind::Atomic(_)) && work.tries < MOST_TRIES;
                let has_key = |(_, theirs): &&(u8, u8)| work.keys[usize::from(*theirs)] != 0;
                let to = links.iter().find(has_key).filter(|_| may_move).copied();
                if let Some((rail, _)) = to {
                    work.tries += 1;
                    self.bind(index, rail);
                }
            }
            self.put_back(index);
        }
        for (rail, _) in links {
            let peer = line.peer;
            self.push_works(Line { peer, rail });
        }
    }

    /// The links to a peer that could do what one cannot, those with a queue pair first: rails here and there.
    fn links_instead(&mut self, line: Line) -> Vec<(u8, u8)> {
        // One that was joined before is asked for again.
        let is_tried = |link: &&Link| link.connection.is_alive() || link.breaks != 0;
        let mut tried: Vec<&Link> = self.sides.of(line.peer).links().filter(is_tried).collect();
        tried.sort_by_key(|link| link.connection.usable().is_none());
        let mut rails: Vec<(u8, u8)> = tried
            .into_iter()
            .map(|link| (link.rail, link.theirs))
            .collect();
        rails.retain(|(rail, _)| {
            let other = Line {
                rail: *rail,
                ..line
            };
            other != line && self.rails[other.at()].serves() && self.hopes_for_pair(other)
        });
        rails
    }

    fn give_up(&mut self, index: u32) -> bool {
        if let Some(work) = self.works.get_mut(index) {
            work.outcome = Outcome::Unreachable;
        }
        self.finish(index);
        false
    }

    /// The links to a peer have changed: all that waits is shared out among them anew.
    pub(super) fn bind_all_again(&mut self, peer: u32) {
        let links = self.sides.of(peer).links_mut();
        let waiting: Vec<u32> = links
            .flat_map(|link| mem::take(&mut link.waiting))
            .collect();
        for index in waiting {
            if self.bind_again(index) {
                self.put_back(index);
            }
        }
        self.count_strays(peer);
    }

    /// Puts a work among those that wait, in its old place.
    pub(super) fn put_back(&mut self, index: u32) {
        let Some(work) = self.works.get(index) else {
            return;
        };
        let works = &self.works;
        let Some(side) = self.sides.get_mut(work.peer) else {
            return;
        };
        let Some(link) = side.link_mut(work.rail) else {
            return;
        };
        if link.waiting.contains(&index) {
            return;
        }
        let is_older = |other: &u32| {
            let other = works.get(*other);
            other.is_none_or(|other| other.serial < work.serial)
        };
        let place = link.waiting.partition_point(is_older);
        link.waiting.insert(place, index);
    }

    /// Registers the memory of a work with its rail, where it is not. `Some(false)`: it cannot be, and the work has ended;
    /// `None`: it cannot be now, and the work must stay, since the peer is told of it.
    pub(super) fn make_known(&mut self, index: u32) -> Option<bool> {
        let work = self.works.get(index)?;
        if work.registered.is_some() {
            return Some(true);
        }
        let (stretch, is_told) = (work.stretch(), work.immediate.is_some());
        let registered = self.registry.register(stretch, &mut self.rails).ok();
        self.works.get_mut(index)?.registered = registered;
        match registered {
            Some(_) => Some(true),
            None if is_told => None,
            None => Some(self.give_up(index)),
        }
    }

    /// Counts the writes that tell a peer something and do not go over its main link.
    pub(super) fn count_strays(&mut self, peer: u32) {
        let main = self.sides.of(peer).main.rail;
        let is_stray =
            |work: &&Work| work.peer == peer && work.immediate.is_some() && work.rail != main;
        let strays = self.works.iter().filter(is_stray).count();
        if let Some(more) = &mut self.sides.of(peer).more {
            more.strays = u32::try_from(strays).unwrap_or(u32::MAX);
        }
    }
}

/// Divides bytes among rails as fast as they are, leaving out slow ones whose share would not be worth it.
fn divide(bytes: u64, mut rails: Vec<(u8, u32)>, least: u64) -> Vec<(u8, u64)> {
    if rails.iter().any(|(_, rate)| *rate == 0) {
        rails.iter_mut().for_each(|(_, rate)| *rate = 1);
    }
    loop {
        let all: u128 = rails.iter().map(|(_, rate)| u128::from(*rate)).sum();
        let part = |rate: u32| {
            let part = u128::from(bytes) * u128::from(rate) / all.max(1);
            u64::try_from(part).unwrap_or(bytes)
        };
        let by_rate = |(_, (_, rate)): &(usize, &(u8, u32))| *rate;
        let slowest = rails.iter().enumerate().rev().min_by_key(by_rate);
        let too_slow = slowest.filter(|(_, (_, rate))| part(*rate) < least);
        if let Some((place, _)) = too_slow.filter(|_| rails.len() > 1) {
            rails.remove(place);
            continue;
        }
        let grains = |rate: u32| part(rate) / GRAIN_BYTES * GRAIN_BYTES;
        let mut shares: Vec<(u8, u64)> = rails
            .iter()
            .map(|(rail, rate)| (*rail, grains(*rate)))
            .collect();
        let rest = bytes - shares.iter().map(|(_, share)| share).sum::<u64>();
        if let Some((_, share)) = shares.last_mut() {
            *share += rest;
        }
        return shares;
    }
}

/// Shares begin at multiples of this.
const GRAIN_BYTES: u64 = 4096;

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn divided(bytes: u64, rails: Vec<(u8, u32)>) -> Vec<(u8, u64)> {
        divide(bytes, rails, MIB / 4)
    }

    #[test]
    fn rails_get_shares_as_large_as_they_are_fast() {
        assert_eq!(
            divided(8 * MIB, vec![(0, 100_000), (1, 100_000)]),
            [(0, 4 * MIB), (1, 4 * MIB)]
        );
        assert_eq!(
            divided(10 * MIB + 5, vec![(0, 100_000), (2, 25_000)]),
            [(0, 8 * MIB), (2, 2 * MIB + 5)]
        );
        let shares = divided(10 * MIB, vec![(0, 10), (1, 400), (2, 200), (3, 400)]);
        assert_eq!(shares.len(), 3, "the slowest is left out: {shares:?}");
        assert_eq!(shares.iter().map(|(_, share)| share).sum::<u64>(), 10 * MIB);
        let (one, half) = (shares[0].1, shares[1].1);
        assert!(
            shares[0].0 == 1 && one.abs_diff(2 * half) <= 2 * GRAIN_BYTES,
            "{shares:?}"
        );
        assert_eq!(
            divided(u64::MAX, vec![(0, u32::MAX), (1, u32::MAX)]).len(),
            2
        );
    }

    #[test]
    fn where_a_rate_is_not_known_shares_are_equal() {
        assert_eq!(
            divided(2 * MIB, vec![(0, 0), (3, 400_000)]),
            [(0, MIB), (3, MIB)]
        );
    }

    #[test]
    fn small_shares_are_not_worth_it() {
        assert_eq!(divided(MIB / 2, vec![(0, 7), (1, 7)]).len(), 2);
        assert_eq!(
            divided(MIB / 2, vec![(0, 7), (1, 7), (2, 7)]),
            [(0, MIB / 4), (1, MIB / 4)]
        );
        assert_eq!(divided(MIB, vec![(0, 25), (1, 100)]), [(1, MIB)]);
        assert_eq!(divided(MIB, Vec::new()), []);
    }
}
