// SPDX-License-Identifier: MIT OR Apache-2.0
//! Detects hosts that are the same machine, even if their names and addresses differ. The ranks of such hosts share the
//! machine's CPUs as if they were on one host. Has no side effects, except that [`HostMachine::here`] reads from the
//! system.

use super::{JobHost, Slots};
use crate::cpus::CpuList;
use crate::failure::counted;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Identity of a host's machine, and the CPUs that ranks may use on the host.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(crate) struct HostMachine {
    /// Boot id of the machine's kernel, unique per machine and boot; empty if unknown.
    pub(crate) boot: String,
    /// CPUs that a job may use on the host.
    pub(crate) mask: CpuList,
}

impl HostMachine {
    /// The machine of this process.
    pub(crate) fn here() -> Self {
        let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id");
        Self {
            boot: boot.unwrap_or_default().trim().to_owned(),
            mask: CpuList::allowed(),
        }
    }

    /// Whether the two hosts have CPUs in common.
    fn shares_cpus_with(&self, other: &Self) -> bool {
        !self.boot.is_empty() && self.boot == other.boot && self.mask.intersects(&other.mask)
    }

    /// Whether the two hosts have exactly the same CPUs.
    fn is_same(&self, other: &Self) -> bool {
        self.shares_cpus_with(other) && self.mask == other.mask
    }
}

/// Numbers of ranks of other hosts that share the CPUs of one host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(crate) struct ColocatedRanks {
    /// Ranks of hosts with the same CPUs that come earlier in the list.
    pub(crate) before: u32,
    /// Ranks of hosts with the same CPUs that come later in the list.
    pub(crate) behind: u32,
    /// Ranks of hosts that have some, but not exactly the same, CPUs in common with this host.
    pub(crate) overlapping: u32,
}

impl ColocatedRanks {
    /// Sum of the three numbers.
    pub(crate) fn ranks(self) -> u32 {
        let all = [self.before, self.behind, self.overlapping];
        all.into_iter().fold(0, u32::saturating_add)
    }

    /// Describes these ranks; the text is printed after the number of the host's own ranks.
    pub(crate) fn describe(self) -> String {
        match self.ranks() {
            0 => String::new(),
            number => format!(
                ", beside {} of other hosts,",
                counted(number, "rank", "ranks")
            ),
        }
    }
}

/// The machines of all hosts, indexed by boot id. Only machines with the same boot id are compared.
struct MachineIndex<'a> {
    machines: &'a [&'a HostMachine],
    by_boot: BTreeMap<&'a str, Vec<usize>>,
}

impl<'a> MachineIndex<'a> {
    fn of(machines: &'a [&'a HostMachine]) -> Self {
        let mut by_boot: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
        let known = machines.iter().enumerate();
        for (at, machine) in known.filter(|(_, machine)| !machine.boot.is_empty()) {
            by_boot.entry(&machine.boot).or_default().push(at);
        }
        Self { machines, by_boot }
    }

    /// The other hosts that have CPUs in common with host `at`, in ascending order.
    fn meeting(&self, at: usize) -> impl Iterator<Item = usize> {
        let own = self.machines[at];
        let others = self.by_boot.get(own.boot.as_str());
        let others = others.into_iter().flatten().copied();
        others.filter(move |other| *other != at && own.shares_cpus_with(self.machines[*other]))
    }

    /// The hosts with exactly the CPUs of host `at`, including this host, in ascending order.
    fn same(&self, at: usize) -> Vec<usize> {
        let own = self.machines[at];
        let others = self.meeting(at);
        let others = others.filter(|other| own.is_same(self.machines[*other]));
        let mut same: Vec<usize> = others.chain([at]).collect();
        same.sort_unstable();
        same
    }
}

/// Counts for each host the ranks of other hosts that share its CPUs. `ranks`: the number of ranks of each host.
pub(crate) fn colocated_ranks(machines: &[&HostMachine], ranks: &[u32]) -> Vec<ColocatedRanks> {
    let alike = MachineIndex::of(machines);
    let of = |at: usize| {
        let mut colocated = ColocatedRanks::default();
        for other in alike.meeting(at) {
            let sum = match machines[at].is_same(machines[other]) {
                true if other < at => &mut colocated.before,
                true => &mut colocated.behind,
                false => &mut colocated.overlapping,
            };
            *sum = sum.saturating_add(ranks[other]);
        }
        colocated
    };
    (0..machines.len()).map(of).collect()
}

/// The slots of each host, given its number of cores. Hosts with one slot per core and exactly the same CPUs divide
/// among themselves the cores that are left after the slots of other hosts with these CPUs; each gets at least one
/// slot.
pub(crate) fn slots(hosts: &[JobHost], machines: &[&HostMachine], cores: &[u32]) -> Vec<u32> {
    let alike = MachineIndex::of(machines);
    let of = |at: usize| {
        let Slots::Cores = hosts[at].slots else {
            return hosts[at].slots.or(cores[at]);
        };
        let same = alike.same(at);
        let taken = same.iter().map(|other| hosts[*other].slots.or(0));
        let left = u64::from(cores[at].saturating_sub(taken.fold(0, u32::saturating_add)));
        let sharing = same
            .iter()
            .filter(|other| hosts[**other].slots == Slots::Cores);
        let (mut place, mut sharers) = (0, 0);
        for other in sharing {
            place += u64::from(*other < at);
            sharers += 1;
        }
        let share = left * (place + 1) / sharers - left * place / sharers;
        u32::try_from(share).unwrap_or(u32::MAX).max(1)
    };
    (0..hosts.len()).map(of).collect()
}

/// Describes for the user which hosts are the same machine.
pub(crate) fn describe_shared(names: &[String], machines: &[&HostMachine]) -> Vec<String> {
    let alike = MachineIndex::of(machines);
    let mut listed = vec![false; names.len()];
    let mut lines = Vec::new();
    for at in 0..names.len() {
        if std::mem::replace(&mut listed[at], true) {
            continue;
        }
        let others: Vec<usize> = alike.meeting(at).collect();
        others.iter().for_each(|other| listed[*other] = true);
        let is_same = |other: &usize| machines[at].is_same(machines[*other]);
        let how = match others.iter().all(is_same) {
            true => "their ranks share out its CPUs",
            false => {
                "they may use different CPUs of it, so ranks are bound only where --bind-to says so"
            }
        };
        let all = std::iter::once(&at).chain(&others);
        let all: Vec<&str> = all.map(|host| names[*host].as_str()).collect();
        if all.len() > 1 {
            let named = crate::front::startup::named(&all);
            lines.push(format!("{named} are one machine: {how}"));
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    fn machine(boot: &str, mask: &[u32]) -> HostMachine {
        HostMachine {
            boot: boot.to_owned(),
            mask: CpuList::new(mask.to_vec()),
        }
    }

    fn all(machines: &[HostMachine]) -> Vec<&HostMachine> {
        machines.iter().collect()
    }

    fn counts(colocated: &ColocatedRanks) -> [u32; 3] {
        [colocated.before, colocated.behind, colocated.overlapping]
    }

    #[test]
    fn host_names_of_one_machine_share_its_cpus() {
        let machines = [
            machine("x", &[0, 1]),
            machine("y", &[0, 1]),
            machine("x", &[0, 1]),
            machine("x", &[1, 2]),
            machine("x", &[3]),
            machine("", &[0, 1]),
            machine("", &[0, 1]),
        ];
        let colocated = colocated_ranks(&all(&machines), &[2, 3, 5, 7, 1, 1, 1]);
        let counted: Vec<[u32; 3]> = colocated.iter().map(counts).collect();
        let (first, third, fourth) = ([0, 5, 7], [2, 0, 7], [0, 0, 7]);
        let alone = [0, 0, 0];
        assert_eq!(counted, [first, alone, third, fourth, alone, alone, alone]);
        assert_eq!(colocated[0].describe(), ", beside 12 ranks of other hosts,");
        assert_eq!(colocated[1].describe(), "");
        let names = ["a", "b", "c", "d", "e", "f", "g"].map(String::from);
        let message = describe_shared(&names, &all(&machines));
        assert_eq!(message.len(), 1, "{message:?}");
        assert!(message[0].starts_with("hosts a, c, d are one machine: they may"));
        let two = describe_shared(&names[..2], &all(&[machine("x", &[0]), machine("x", &[0])]));
        assert_eq!(
            two,
            ["hosts a, b are one machine: their ranks share out its CPUs"]
        );
    }

    #[test]
    fn cores_of_one_machine_are_counted_once() {
        let host = |slots| JobHost {
            name: "n".to_owned(),
            user: None,
            port: None,
            slots,
            most: None,
            is_own: false,
        };
        let machines = vec![machine("x", &[0, 1]); 4];
        let slots = |list: &[Slots], cores: u32| {
            let hosts: Vec<JobHost> = list.iter().map(|slots| host(*slots)).collect();
            slots(
                &hosts,
                &all(&machines[..list.len()]),
                &vec![cores; list.len()],
            )
        };
        let (cores, two) = (Slots::Cores, Slots::Number(2));
        assert_eq!(slots(&[cores], 8), [8]);
        assert_eq!(slots(&[cores, cores], 9), [4, 5]);
        assert_eq!(slots(&[cores, two, cores], 8), [3, 2, 3]);
        assert_eq!(slots(&[two, cores, two], 3), [2, 1, 2]);
        assert_eq!(slots(&[two, two], 1), [2, 2]);
    }
}
