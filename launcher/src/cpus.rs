// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which CPUs a rank gets. Pure: the caller reads the mask and applies the answer.
//!
//! - There are CPUs for all: each rank is bound to an even, contiguous share of the allowed CPUs. With as many ranks
//!   as CPUs that is one each; with fewer, a rank with threads has room for them. A single rank keeps the whole mask.
//! - Ranks outnumber CPUs: contiguous blocks of ranks prefer one CPU each, because a wake-up on the same CPU is more
//!   than ten times cheaper than one across. The daemon gives the preference up where it does harm (its `tend`).

use nix::sched::CpuSet;
use std::ops::Range;

/// What `--bind-to` asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Binding {
    /// As the head of this file says.
    #[default]
    Auto,
    /// One CPU per rank, also when there are more.
    Core,
    /// The mask is left alone.
    None,
}

/// The CPUs that `rmpiexec` itself may run on, in ascending order; never widened.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Cpus(Vec<u32>);

impl Cpus {
    /// CPUs by number; order and repetition do not matter.
    #[must_use]
    pub fn new(mut numbers: Vec<u32>) -> Self {
        numbers.sort_unstable();
        numbers.dedup();
        Self(numbers)
    }

    /// The mask of this process; empty where the system does not tell.
    #[must_use]
    pub fn allowed() -> Self {
        let Ok(set) = nix::sched::sched_getaffinity(nix::unistd::Pid::from_raw(0)) else {
            return Self::default();
        };
        let among = |cpu: &u32| set.is_set(*cpu as usize).unwrap_or(false);
        Self((0..).take(CpuSet::count()).filter(among).collect())
    }

    /// How many there are.
    #[must_use]
    pub fn count(&self) -> usize {
        self.0.len()
    }

    /// The mask in the form of [`pmi::Boot::mask`].
    #[must_use]
    pub fn words(&self) -> Vec<u64> {
        let highest = self.0.last().map_or(0, |cpu| *cpu as usize / 64 + 1);
        let mut words = vec![0; highest];
        for cpu in &self.0 {
            words[*cpu as usize / 64] |= 1_u64 << (cpu % 64);
        }
        words
    }

    /// The CPUs for local rank `rank` of `ranks`; `None` leaves its mask alone.
    #[must_use]
    pub fn place(&self, rank: u32, ranks: u32, binding: Binding) -> Option<&[u32]> {
        if binding == Binding::None || self.0.len() < 2 {
            return None;
        }
        let share = share(self.0.len(), rank as usize, ranks as usize);
        let whole = share.len() == self.0.len();
        match binding {
            Binding::Auto if whole => None,
            Binding::Core => self.0.get(share.start..=share.start),
            _ => self.0.get(share),
        }
    }

    /// These CPUs as the system's set.
    #[must_use]
    pub fn set_of(cpus: &[u32]) -> CpuSet {
        let mut set = CpuSet::new();
        for cpu in cpus {
            // Numbers come from a `CpuSet`, so they fit one.
            let _ = set.set(*cpu as usize);
        }
        set
    }

    /// All of them as the system's set.
    #[must_use]
    pub fn set(&self) -> CpuSet {
        Self::set_of(&self.0)
    }
}

/// The part of `cpus` that belongs to `rank`: never empty, and only shared when ranks outnumber CPUs.
fn share(cpus: usize, rank: usize, ranks: usize) -> Range<usize> {
    let start = rank * cpus / ranks.max(1);
    let end = (rank + 1) * cpus / ranks.max(1);
    start..end.max(start + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cpus(numbers: &[u32]) -> Cpus {
        Cpus::new(numbers.to_vec())
    }

    #[test]
    fn one_cpu_each_when_ranks_and_cpus_are_as_many() {
        let four = cpus(&[1, 3, 5, 7]);
        let placed: Vec<_> = (0..4)
            .map(|rank| four.place(rank, 4, Binding::Auto))
            .collect();
        assert_eq!(placed, [Some(&[1][..]), Some(&[3]), Some(&[5]), Some(&[7])]);
    }

    #[test]
    fn spare_cpus_are_shared_out_evenly() {
        let five = cpus(&[0, 1, 2, 3, 4]);
        assert_eq!(five.place(0, 2, Binding::Auto), Some(&[0, 1][..]));
        assert_eq!(five.place(1, 2, Binding::Auto), Some(&[2, 3, 4][..]));
        assert_eq!(five.place(1, 2, Binding::Core), Some(&[2][..]));
    }

    #[test]
    fn a_single_rank_keeps_the_mask() {
        assert_eq!(cpus(&[0, 1]).place(0, 1, Binding::Auto), None);
        assert_eq!(cpus(&[4]).place(0, 1, Binding::Auto), None);
    }

    #[test]
    fn ranks_that_outnumber_cpus_prefer_one_in_contiguous_blocks() {
        let two = cpus(&[2, 6]);
        let chosen: Vec<u32> = (0..5)
            .map(|rank| two.place(rank, 5, Binding::Auto).unwrap()[0])
            .collect();
        assert_eq!(chosen, [2, 2, 2, 6, 6]);
        assert!((0..64).all(|rank| two.place(rank, 64, Binding::Auto).unwrap().len() == 1));
    }

    #[test]
    fn no_binding_and_an_unknown_mask_leave_ranks_alone() {
        assert_eq!(cpus(&[0, 1]).place(0, 2, Binding::None), None);
        assert_eq!(Cpus::default().place(0, 2, Binding::Auto), None);
    }

    #[test]
    fn words_hold_one_bit_per_cpu() {
        assert_eq!(cpus(&[0, 1, 65]).words(), [3, 2]);
        assert_eq!(Cpus::default().words(), [0_u64; 0]);
    }
}
