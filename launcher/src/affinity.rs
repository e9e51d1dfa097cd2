// SPDX-License-Identifier: MIT OR Apache-2.0
//! CPU affinity of ranks: computes each rank's CPUs from a topology, a number of ranks and the user's options. The
//! computation has no side effects.
//!
//! By default:
//! - With at least as many cores as ranks, each rank is bound to an even, contiguous share of the cores. If the share
//!   is several cores, the rank's threads can use all of them. A single rank keeps the whole mask. All ranks keep the
//!   whole mask if a quota grants less than the CPUs of the mask.
//! - With more ranks than cores, contiguous blocks of ranks prefer one CPU each, because a wake-up on the same CPU is
//!   more than ten times cheaper than one across CPUs. The daemon's `affinity_control` removes the preference from a
//!   rank that waits long for its CPU while another CPU is idle.

use crate::topology::{CpuTopology, HardwareThread, TopologyLevel, ranges};
use serde::{Deserialize, Serialize};
use std::ops::Range;

/// Argument of `--bind-to`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, clap::ValueEnum, Serialize, Deserialize)]
pub enum Binding {
    /// See the module docs.
    #[default]
    #[value(skip)]
    Auto,
    /// the CPU mask is left alone
    None,
    /// one core for each rank
    Core,
    /// one hardware thread for each rank
    Hwthread,
    /// all CPUs of a NUMA node for each rank
    Numa,
    /// all CPUs of a socket for each rank
    Socket,
}

/// Argument of `--map-by`: where the next rank goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, clap::ValueEnum, Serialize, Deserialize)]
pub enum Mapping {
    /// ranks in order, spread evenly over all cores
    #[default]
    Slot,
    /// each rank on the next core, without a gap
    Core,
    /// each rank on the next NUMA node
    Numa,
    /// each rank on the next socket
    Socket,
    /// each rank on the next host, and there as slot
    Node,
}

/// The user's options, and limits of the environment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Policy {
    /// `--bind-to`.
    pub binding: Binding,
    /// `--map-by`.
    pub mapping: Mapping,
    /// CPUs per rank that were requested from the batch system; 0 if no number was requested.
    pub cpus_per_rank: u32,
    /// Whether other processes use the CPUs of the mask too: a quota grants less than these CPUs, or ranks of another
    /// host of the job run on some of them.
    pub shared: bool,
}

/// How strictly a rank is bound to its CPUs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AffinityStrength {
    /// The rank's CPU mask is not changed.
    Free,
    /// Bound until the daemon finds that the binding slows the ranks down.
    Preferred,
    /// Bound permanently.
    Bound,
}

/// The CPUs of a rank, in ascending order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RankAffinity {
    /// CPU numbers as the operating system assigns them.
    pub cpus: Vec<u32>,
    /// How strictly the rank is bound to these CPUs.
    pub strength: AffinityStrength,
}

/// Computes the affinity of each of `ranks` ranks.
#[must_use]
pub fn affinities(topology: &CpuTopology, ranks: u32, policy: Policy) -> Vec<RankAffinity> {
    let domains: Vec<CpuTopology> = match policy.mapping {
        Mapping::Numa => parts(topology, TopologyLevel::Numa),
        Mapping::Socket => parts(topology, TopologyLevel::Socket),
        Mapping::Slot | Mapping::Core | Mapping::Node => vec![topology.clone()],
    };
    let rooms: Vec<usize> = domains
        .iter()
        .map(|domain| domain.groups(TopologyLevel::Core).len())
        .collect();
    let seats = deal(&rooms, ranks as usize);
    let taken = |domain| seats.iter().filter(|seat| seat.domain == domain).count();
    let taken: Vec<usize> = (0..domains.len()).map(taken).collect();
    let place = |seat: &DomainSlot| {
        let share = Share {
            domain: &domains[seat.domain],
            seat: seat.number,
            seats: taken[seat.domain],
            packed: policy.mapping == Mapping::Core,
        };
        place(topology, ranks, policy, share)
    };
    seats.iter().map(place).collect()
}

/// The position of a rank in a domain, which is the machine or a part of it: the rank is number `seat` of the domain's
/// `seats` ranks.
#[derive(Clone, Copy)]
struct Share<'a> {
    domain: &'a CpuTopology,
    seat: usize,
    seats: usize,
    packed: bool,
}

impl Share<'_> {
    /// The rank's share of `count` items. Shares of different ranks are disjoint if there are at least as many items as
    /// ranks.
    fn of(&self, count: usize) -> Range<usize> {
        if self.packed {
            let only = self.seat % count.max(1);
            return only..only + 1;
        }
        share(count, self.seat, self.seats)
    }

    fn core(&self) -> &[HardwareThread] {
        let cores = self.domain.groups(TopologyLevel::Core);
        cores
            .get(self.of(cores.len()).start)
            .copied()
            .unwrap_or_default()
    }

    fn cores(&self) -> Vec<HardwareThread> {
        let cores = self.domain.groups(TopologyLevel::Core);
        cores.get(self.of(cores.len())).unwrap_or_default().concat()
    }

    /// The rank's CPUs if each rank gets `cpus` of them. `None` if `cpus` is 0, if the domain has too few CPUs for all
    /// its ranks, or if the rank would get all CPUs of the domain.
    fn requested(&self, cpus: u32, ranks: u32) -> Option<&[HardwareThread]> {
        let (all, each) = (self.domain.units(), cpus as usize);
        let is_part = each != 0 && each < all.len() && self.seats * each <= all.len() && ranks != 0;
        let first = self.seat * each;
        is_part.then(|| all.get(first..first + each)).flatten()
    }

    fn thread(&self) -> &[HardwareThread] {
        let first = self.of(self.domain.units().len()).start;
        self.domain.units().get(first..=first).unwrap_or_default()
    }
}

fn place(topology: &CpuTopology, ranks: u32, policy: Policy, share: Share<'_>) -> RankAffinity {
    let all = topology.units();
    let (units, strength) = match policy.binding {
        Binding::None => (all.to_vec(), AffinityStrength::Free),
        _ if all.len() < 2 => (all.to_vec(), AffinityStrength::Free),
        Binding::Auto => return unasked(topology, ranks, policy, share),
        Binding::Core => (share.core().to_vec(), AffinityStrength::Bound),
        Binding::Hwthread => (share.thread().to_vec(), AffinityStrength::Bound),
        Binding::Numa => (
            around(topology, TopologyLevel::Numa, share.core()),
            AffinityStrength::Bound,
        ),
        Binding::Socket => (
            around(topology, TopologyLevel::Socket, share.core()),
            AffinityStrength::Bound,
        ),
    };
    RankAffinity::of(&units, strength)
}

/// The default affinity, see the module docs.
fn unasked(topology: &CpuTopology, ranks: u32, policy: Policy, share: Share<'_>) -> RankAffinity {
    let all = topology.units();
    if let Some(units) = share.requested(policy.cpus_per_rank, ranks) {
        return RankAffinity::of(units, AffinityStrength::Bound);
    }
    if ranks as usize > topology.groups(TopologyLevel::Core).len() {
        return RankAffinity::of(share.thread(), AffinityStrength::Preferred);
    }
    let units = share.cores();
    if ranks == 1 || policy.shared || units.len() == all.len() {
        return RankAffinity::of(all, AffinityStrength::Free);
    }
    RankAffinity::of(&units, AffinityStrength::Bound)
}

impl RankAffinity {
    fn of(units: &[HardwareThread], strength: AffinityStrength) -> Self {
        let mut cpus: Vec<u32> = units.iter().map(|unit| unit.cpu).collect();
        cpus.sort_unstable();
        Self { cpus, strength }
    }

    /// Describes the affinity; the text completes a sentence that begins with "rank N".
    #[must_use]
    pub fn describe(&self, topology: &CpuTopology) -> String {
        let verb = match self.strength {
            AffinityStrength::Free => "may use",
            AffinityStrength::Preferred => "prefers",
            AffinityStrength::Bound => "is bound to",
        };
        let mine = || {
            let units = topology.units().iter();
            units.filter(|unit| self.cpus.binary_search(&unit.cpu).is_ok())
        };
        let part = |one: &str, many: &str, level| {
            let mut numbers: Vec<u32> = mine().map(|unit| unit.part_of(level)).collect();
            numbers.sort_unstable();
            numbers.dedup();
            named(one, many, numbers)
        };
        format!(
            "{verb} {} ({}, {}, {})",
            named("CPU", "CPUs", self.cpus.clone()),
            part("core", "cores", TopologyLevel::Core),
            part("NUMA node", "NUMA nodes", TopologyLevel::Numa),
            part("socket", "sockets", TopologyLevel::Socket),
        )
    }
}

fn named(one: &str, many: &str, numbers: Vec<u32>) -> String {
    let noun = if numbers.len() == 1 { one } else { many };
    format!("{noun} {}", ranges(numbers))
}

/// All CPUs of the NUMA node or socket (`level`) that contains `core`.
fn around(
    topology: &CpuTopology,
    level: TopologyLevel,
    core: &[HardwareThread],
) -> Vec<HardwareThread> {
    let groups = topology.groups(level);
    let holds = |group: &&&[HardwareThread]| core.first().is_some_and(|unit| group.contains(unit));
    groups
        .iter()
        .find(holds)
        .map(|group| group.to_vec())
        .unwrap_or_default()
}

fn parts(topology: &CpuTopology, level: TopologyLevel) -> Vec<CpuTopology> {
    let groups = topology.groups(level).into_iter();
    groups
        .map(|group| CpuTopology::new(group.to_vec()))
        .collect()
}

/// A rank's domain, and the rank's number in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct DomainSlot {
    domain: usize,
    number: usize,
}

/// Assigns ranks round-robin to domains; domain `i` has `rooms[i]` cores. A domain with a rank per core is full and is
/// skipped. When all domains are full, each accepts one more rank per core.
fn deal(rooms: &[usize], ranks: usize) -> Vec<DomainSlot> {
    let mut taken = vec![0; rooms.len()];
    let mut seats = Vec::with_capacity(ranks);
    let mut round = 1;
    while seats.len() < ranks && rooms.iter().any(|room| *room > 0) {
        let before = seats.len();
        for (domain, room) in rooms.iter().enumerate() {
            if taken[domain] < room * round && seats.len() < ranks {
                let number = taken[domain];
                seats.push(DomainSlot { domain, number });
                taken[domain] += 1;
            }
        }
        round += usize::from(seats.len() == before);
    }
    // If the topology has no CPUs, because the mask is unknown, all ranks get number 0 of domain 0.
    seats.resize(
        ranks,
        DomainSlot {
            domain: 0,
            number: 0,
        },
    );
    seats
}

/// The part of `count` items that belongs to seat number `seat` of `seats` seats. It is never empty. Two seats share an
/// item only if there are more seats than items.
fn share(count: usize, seat: usize, seats: usize) -> Range<usize> {
    let start = seat * count / seats.max(1);
    let end = (seat + 1) * count / seats.max(1);
    start..end.max(start + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn placed(text: &str, ranks: u32, policy: Policy) -> Vec<(String, AffinityStrength)> {
        let machine = CpuTopology::parse(text).unwrap();
        let places = affinities(&machine, ranks, policy);
        assert_eq!(places.len(), ranks as usize);
        places
            .into_iter()
            .map(|place| (ranges(place.cpus), place.strength))
            .collect()
    }

    /// The CPUs of each rank, after a check that all ranks are bound with `strength`.
    fn cpus(text: &str, ranks: u32, policy: Policy, strength: AffinityStrength) -> Vec<String> {
        let all = placed(text, ranks, policy);
        assert!(all.iter().all(|(_, one)| *one == strength), "{all:?}");
        all.into_iter().map(|(cpus, _)| cpus).collect()
    }

    fn bind(binding: Binding) -> Policy {
        Policy {
            binding,
            ..Policy::default()
        }
    }

    fn map(mapping: Mapping) -> Policy {
        Policy {
            mapping,
            ..Policy::default()
        }
    }

    const AUTO: Policy = Policy {
        binding: Binding::Auto,
        mapping: Mapping::Slot,
        shared: false,
        cpus_per_rank: 0,
    };
    const TWO_SOCKETS: &str = "socket:2 numa:1 core:4 pu:2";

    #[test]
    fn one_core_per_rank_when_counts_are_equal() {
        assert_eq!(
            cpus("core:4", 4, AUTO, AffinityStrength::Bound),
            ["0", "1", "2", "3"]
        );
        assert_eq!(
            cpus("numa:2 core:2 pu:2", 4, AUTO, AffinityStrength::Bound),
            ["0-1", "2-3", "4-5", "6-7"]
        );
    }

    #[test]
    fn a_rank_gets_the_cpus_requested_from_the_batch_system() {
        let requested = Policy {
            cpus_per_rank: 2,
            ..AUTO
        };
        assert_eq!(
            cpus("core:8", 2, requested, AffinityStrength::Bound),
            ["0-1", "2-3"]
        );
        assert_eq!(
            cpus("core:8", 1, requested, AffinityStrength::Bound),
            ["0-1"]
        );
        // With too few CPUs for the request, the default applies.
        assert_eq!(
            cpus("core:5", 4, requested, AffinityStrength::Bound),
            ["0", "1", "2", "3-4"]
        );
        assert_eq!(
            cpus("core:2", 1, requested, AffinityStrength::Free),
            ["0-1"]
        );
    }

    #[test]
    fn spare_cores_are_distributed_evenly() {
        assert_eq!(
            cpus("core:5", 2, AUTO, AffinityStrength::Bound),
            ["0-1", "2-4"]
        );
        assert_eq!(
            cpus(TWO_SOCKETS, 2, AUTO, AffinityStrength::Bound),
            ["0-7", "8-15"]
        );
    }

    #[test]
    fn single_ranks_single_cpus_and_unknown_masks_stay_unbound() {
        assert_eq!(cpus("core:2", 1, AUTO, AffinityStrength::Free), ["0-1"]);
        assert_eq!(
            cpus("core:1", 3, AUTO, AffinityStrength::Free),
            ["0", "0", "0"]
        );
        let nowhere = affinities(&CpuTopology::default(), 2, AUTO);
        assert!(
            nowhere
                .iter()
                .all(|place| place.strength == AffinityStrength::Free)
        );
    }

    #[test]
    fn ranks_that_outnumber_cores_prefer_one_cpu_in_contiguous_blocks() {
        let two = cpus("core:2", 5, AUTO, AffinityStrength::Preferred);
        assert_eq!(two, ["0", "0", "0", "1", "1"]);
        let threads = cpus("core:2 pu:2", 4, AUTO, AffinityStrength::Preferred);
        assert_eq!(threads, ["0", "1", "2", "3"]);
        let many = cpus(TWO_SOCKETS, 64, AUTO, AffinityStrength::Preferred);
        assert!(many.iter().all(|cpus| !cpus.contains('-')));
        assert_eq!(
            (many[3].as_str(), many[4].as_str(), many[63].as_str()),
            ("0", "1", "15")
        );
    }

    #[test]
    fn a_cpu_quota_below_the_mask_disables_binding() {
        let shared = Policy {
            shared: true,
            ..AUTO
        };
        assert_eq!(
            cpus("core:4", 4, shared, AffinityStrength::Free),
            ["0-3"; 4]
        );
        let requested = Policy {
            binding: Binding::Core,
            ..shared
        };
        assert_eq!(
            cpus("core:4", 4, requested, AffinityStrength::Bound),
            ["0", "1", "2", "3"]
        );
    }

    #[test]
    fn binding_uses_only_cpus_of_the_mask() {
        assert_eq!(
            cpus("core:4 pu:2 mask:1,2,3,7", 3, AUTO, AffinityStrength::Bound),
            ["1", "2-3", "7"]
        );
        let numa = bind(Binding::Numa);
        assert_eq!(
            cpus("numa:2 core:4 mask:1-2,6", 3, numa, AffinityStrength::Bound),
            ["1-2", "1-2", "6"]
        );
    }

    #[test]
    fn binding_to_a_level_gives_all_its_cpus() {
        let of = |binding| cpus(TWO_SOCKETS, 4, bind(binding), AffinityStrength::Bound);
        assert_eq!(of(Binding::Hwthread), ["0", "4", "8", "12"]);
        assert_eq!(of(Binding::Core), ["0-1", "4-5", "8-9", "12-13"]);
        assert_eq!(of(Binding::Socket), ["0-7", "0-7", "8-15", "8-15"]);
        let numa = bind(Binding::Numa);
        assert_eq!(
            cpus("socket:1 numa:2 core:2", 4, numa, AffinityStrength::Bound),
            ["0-1", "0-1", "2-3", "2-3"]
        );
        let none = bind(Binding::None);
        assert_eq!(
            cpus("core:2", 2, none, AffinityStrength::Free),
            ["0-1", "0-1"]
        );
    }

    #[test]
    fn oversubscribed_units_are_shared_in_blocks() {
        let core = bind(Binding::Core);
        assert_eq!(
            cpus("core:2", 4, core, AffinityStrength::Bound),
            ["0", "0", "1", "1"]
        );
        let thread = bind(Binding::Hwthread);
        let threads = cpus("core:2 pu:2", 4, thread, AffinityStrength::Bound);
        assert_eq!(threads, ["0", "1", "2", "3"]);
    }

    #[test]
    fn mapping_by_core_uses_consecutive_cores() {
        let core = map(Mapping::Core);
        assert_eq!(
            cpus(TWO_SOCKETS, 3, core, AffinityStrength::Bound),
            ["0-1", "2-3", "4-5"]
        );
        let oversubscribed = cpus("core:2", 4, core, AffinityStrength::Preferred);
        assert_eq!(oversubscribed, ["0", "1", "0", "1"]);
    }

    #[test]
    fn mapping_by_numa_node_or_socket_is_round_robin() {
        for mapping in [Mapping::Numa, Mapping::Socket] {
            assert_eq!(
                cpus(TWO_SOCKETS, 4, map(mapping), AffinityStrength::Bound),
                ["0-3", "8-11", "4-7", "12-15"]
            );
            let bound = Policy {
                binding: Binding::Core,
                ..map(mapping)
            };
            assert_eq!(
                cpus(TWO_SOCKETS, 3, bound, AffinityStrength::Bound),
                ["0-1", "8-9", "4-5"]
            );
        }
        assert_eq!(
            cpus(TWO_SOCKETS, 4, map(Mapping::Node), AffinityStrength::Bound),
            cpus(TWO_SOCKETS, 4, AUTO, AffinityStrength::Bound)
        );
    }

    #[test]
    fn full_numa_nodes_are_skipped_until_all_are_full() {
        let uneven = "numa:2 core:4 mask:0,4-6";
        let numa = map(Mapping::Numa);
        assert_eq!(
            cpus(uneven, 4, numa, AffinityStrength::Bound),
            ["0", "4", "5", "6"]
        );
        let oversubscribed = cpus(uneven, 8, numa, AffinityStrength::Preferred);
        assert_eq!(
            oversubscribed.iter().filter(|cpu| *cpu == "0").count(),
            2,
            "{oversubscribed:?}"
        );
    }

    #[test]
    fn affinity_description_names_cpus_and_units() {
        let machine = CpuTopology::parse("socket:2 core:2 pu:2").unwrap();
        let describe =
            |ranks, policy: Policy| affinities(&machine, ranks, policy)[0].describe(&machine);
        assert_eq!(
            describe(4, AUTO),
            "is bound to CPUs 0-1 (core 0, NUMA node 0, socket 0)"
        );
        assert_eq!(
            describe(9, AUTO),
            "prefers CPU 0 (core 0, NUMA node 0, socket 0)"
        );
        assert_eq!(
            describe(1, AUTO),
            "may use CPUs 0-7 (cores 0-3, NUMA node 0, sockets 0-1)"
        );
    }
}
