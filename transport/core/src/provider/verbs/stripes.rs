// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which rail a read or write goes over, and how large ones go over several: each of these moves a share.

use std::mem;

use super::Verbs;
use super::link::Link;
use super::port::Port;
use super::rail::Line;
use super::work::{Kind, Work};
use super::works::MOST_TRIES;

impl<P: Port> Verbs<P> {
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
        let (registry, all) = (&mut self.registry, &mut self.rails);
        let Ok(shares) = self.works.shares(&work, &rails, registry, all) else {
            return Err(work);
        };
        self.counts.striped.add(1);
        let whole = self.works.place(Work {
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

    /// A work that waits goes over the rail that is best now. `false`: there is none, and it has ended.
    pub(super) fn bind_again(&mut self, index: u32) -> bool {
        let (sides, rails) = (&mut self.sides, &mut self.rails);
        let is_bound = self.works.bind_again(index, sides, rails);
        if !is_bound {
            self.finish(index);
        }
        is_bound
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
                    let (sides, rails) = (&mut self.sides, &mut self.rails);
                    self.works.bind(index, rail, sides, rails);
                }
            }
            self.works.put_back(index, &mut self.sides);
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

    /// The links to a peer have changed: all that waits is shared out among them anew.
    pub(super) fn bind_all_again(&mut self, peer: u32) {
        let links = self.sides.of(peer).links_mut();
        let waiting: Vec<u32> = links
            .flat_map(|link| mem::take(&mut link.waiting))
            .collect();
        for index in waiting {
            if self.bind_again(index) {
                self.works.put_back(index, &mut self.sides);
            }
        }
        self.works.count_strays(peer, &mut self.sides);
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
