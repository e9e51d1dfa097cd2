// SPDX-License-Identifier: MIT OR Apache-2.0
//! Assigns ranks to hosts: computes the host of each rank from slots, programs and the mapping, without side effects.
//!
//! - `slot`, and the mappings inside a host (`core`, `numa`, `socket`): each host is filled before the next one.
//! - `node`: round-robin over the hosts; a full host is skipped.
//!
//! Programs are assigned one after the other: a program gets the room that the programs before it have left. When all
//! hosts of a program are full, each of these hosts accepts as many further ranks as it has slots.

use super::HostShare;
use crate::affinity::Mapping;

/// A program's number of ranks, and the hosts that they may use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProgramRanks<'a> {
    /// Number of ranks.
    pub ranks: u32,
    /// The hosts, in the order in which they are filled; `None` for all hosts.
    pub hosts: Option<&'a [HostShare]>,
}

/// The host of each rank, given the slots of each host. A host with 0 slots counts as a host with one slot.
///
/// # Panics
/// If a program names a host that does not exist.
#[must_use]
pub fn deal(slots: &[u32], programs: &[ProgramRanks<'_>], mapping: Mapping) -> Vec<u32> {
    let every: Vec<u32> = (0..).zip(slots).map(|(number, _)| number).collect();
    let numbers = |parts: &[HostShare]| parts.iter().map(|part| part.host).collect();
    let ranks: usize = programs.iter().map(|program| program.ranks as usize).sum();
    let mut table = RankDistribution {
        slots,
        taken: vec![0; slots.len()],
        next: 0,
        rank_hosts: Vec::with_capacity(ranks),
    };
    for program in programs {
        let hosts: Vec<u32> = program.hosts.map_or_else(|| every.clone(), numbers);
        match mapping {
            _ if hosts.is_empty() => {}
            Mapping::Node => table.in_turn(&hosts, program.ranks),
            Mapping::Slot | Mapping::Core | Mapping::Numa | Mapping::Socket => {
                table.fill(&hosts, program.ranks);
            }
        }
    }
    table.rank_hosts
}

/// A distribution of ranks over hosts, while it is computed.
struct RankDistribution<'a> {
    slots: &'a [u32],
    taken: Vec<u64>,
    /// The next host in round-robin order.
    next: u32,
    rank_hosts: Vec<u32>,
}

impl RankDistribution<'_> {
    fn fill(&mut self, hosts: &[u32], ranks: u32) {
        let mut left = u64::from(ranks);
        while left > 0 {
            let round = self.round(hosts);
            for host in hosts {
                let count = self.room(*host, round).min(left);
                (0..count).for_each(|_| self.put(*host));
                left -= count;
            }
        }
    }

    fn in_turn(&mut self, hosts: &[u32], ranks: u32) {
        let first = hosts
            .iter()
            .position(|host| *host >= self.next)
            .unwrap_or(0);
        let (before, behind) = hosts.split_at(first);
        let mut left = ranks;
        while left > 0 {
            let round = self.round(hosts);
            for host in behind.iter().chain(before) {
                if left > 0 && self.room(*host, round) > 0 {
                    self.put(*host);
                    self.next = host + 1;
                    left -= 1;
                }
            }
        }
    }

    fn put(&mut self, host: u32) {
        self.rank_hosts.push(host);
        self.taken[host as usize] += 1;
    }

    /// The first round in which at least one of these hosts has room. In round `n` a host may have up to `n` times its
    /// slots.
    fn round(&self, hosts: &[u32]) -> u64 {
        let full = |host: &u32| self.taken[*host as usize] / self.slots_of(*host);
        1 + hosts.iter().map(full).min().unwrap_or(0)
    }

    fn room(&self, host: u32, round: u64) -> u64 {
        (self.slots_of(host) * round).saturating_sub(self.taken[host as usize])
    }

    fn slots_of(&self, host: u32) -> u64 {
        u64::from(self.slots[host as usize].max(1))
    }
}

/// Number of ranks on each host.
#[must_use]
pub fn loads(hosts: usize, rank_hosts: &[u32]) -> Vec<u32> {
    let mut loads = vec![0; hosts];
    for host in rank_hosts {
        loads[*host as usize] += 1;
    }
    loads
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn all(ranks: u32) -> ProgramRanks<'static> {
        ProgramRanks { ranks, hosts: None }
    }

    fn parts(hosts: &[u32]) -> Vec<HostShare> {
        let part = |host: &u32| HostShare {
            host: *host,
            slots: None,
        };
        hosts.iter().map(part).collect()
    }

    fn on(ranks: u32, hosts: &[HostShare]) -> ProgramRanks<'_> {
        let hosts = Some(hosts);
        ProgramRanks { ranks, hosts }
    }

    #[test]
    fn hosts_are_filled_in_order() {
        for mapping in [Mapping::Slot, Mapping::Core, Mapping::Numa, Mapping::Socket] {
            assert_eq!(deal(&[2, 1, 3], &[all(5)], mapping), [0, 0, 1, 2, 2]);
        }
    }

    #[test]
    fn mapping_by_node_is_round_robin_and_skips_full_hosts() {
        assert_eq!(
            deal(&[3, 1, 2], &[all(6)], Mapping::Node),
            [0, 1, 2, 0, 2, 0]
        );
    }

    #[test]
    fn more_ranks_than_slots_wrap_around() {
        assert_eq!(
            deal(&[2, 1], &[all(7)], Mapping::Slot),
            [0, 0, 1, 0, 0, 1, 0]
        );
        assert_eq!(deal(&[2, 1], &[all(6)], Mapping::Node), [0, 1, 0, 0, 1, 0]);
        assert_eq!(deal(&[0, 0], &[all(3)], Mapping::Slot), [0, 1, 0]);
    }

    #[test]
    fn a_program_continues_on_the_slots_left_by_the_previous_one() {
        assert_eq!(
            deal(&[2, 2], &[all(1), all(3)], Mapping::Slot),
            [0, 0, 1, 1]
        );
        assert_eq!(
            deal(&[2, 2], &[all(1), all(3)], Mapping::Node),
            [0, 1, 0, 1]
        );
        assert_eq!(
            deal(&[1, 1], &[all(3), all(1)], Mapping::Slot),
            [0, 1, 0, 1]
        );
    }

    #[test]
    fn a_program_may_have_its_own_hosts() {
        let (one, others) = (parts(&[1]), parts(&[2, 0]));
        let programs = [on(2, &one), on(3, &others), all(1)];
        assert_eq!(
            deal(&[2, 2, 2], &programs, Mapping::Slot),
            [1, 1, 2, 2, 0, 0]
        );
        let (first, both) = (parts(&[0]), parts(&[0, 1]));
        let oversubscribed = [on(3, &first), on(2, &both)];
        assert_eq!(
            deal(&[1, 1], &oversubscribed, Mapping::Slot),
            [0, 0, 0, 1, 1]
        );
        assert!(deal(&[], &[on(3, &[])], Mapping::Slot).is_empty());
    }

    proptest! {
        #[test]
        fn ranks_are_distributed_in_proportion_to_slots(
            slots in proptest::collection::vec(1..9u32, 1..9), ranks in 0..99u32, by_node in any::<bool>(),
        ) {
            let mapping = if by_node { Mapping::Node } else { Mapping::Slot };
            let rank_hosts = deal(&slots, &[all(ranks)], mapping);
            prop_assert_eq!(rank_hosts.len(), ranks as usize);
            let loads = loads(slots.len(), &rank_hosts);
            let whole = ranks / slots.iter().sum::<u32>();
            for (load, slots) in loads.iter().zip(&slots) {
                prop_assert!((whole * slots..=(whole + 1) * slots).contains(load));
            }
            if !by_node && whole == 0 {
                prop_assert!(rank_hosts.is_sorted());
            }
        }
    }
}
