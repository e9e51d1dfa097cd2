// SPDX-License-Identifier: MIT OR Apache-2.0
//! Determines the CPUs that this process may use, and the CPU quota of its control groups.

use nix::sched::CpuSet;
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};

/// A set of CPUs, in ascending order. The set of a job is the CPU mask of `rmpiexec`, or a part of this mask.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct CpuList(Vec<u32>);

impl CpuList {
    /// The set of these CPU numbers, which may be in any order and repeated.
    #[must_use]
    pub fn new(mut numbers: Vec<u32>) -> Self {
        numbers.sort_unstable();
        numbers.dedup();
        Self(numbers)
    }

    /// The CPU mask of this process; empty if the system does not report it.
    #[must_use]
    pub fn allowed() -> Self {
        let Ok(set) = nix::sched::sched_getaffinity(nix::unistd::Pid::from_raw(0)) else {
            return Self::default();
        };
        let among = |cpu: &u32| set.is_set(*cpu as usize).unwrap_or(false);
        Self((0..).take(CpuSet::count()).filter(among).collect())
    }

    /// Whether all numbers are below the largest number of CPUs that a kernel supports.
    #[must_use]
    pub fn are_possible(&self) -> bool {
        self.0.iter().all(|cpu| (*cpu as usize) < CpuSet::count())
    }

    /// Whether the two sets intersect.
    #[must_use]
    pub fn intersects(&self, others: &Self) -> bool {
        self.0.iter().any(|cpu| others.0.binary_search(cpu).is_ok())
    }

    /// Number of CPUs.
    #[must_use]
    pub fn count(&self) -> usize {
        self.0.len()
    }

    /// CPU numbers, ascending.
    #[must_use]
    pub fn numbers(&self) -> &[u32] {
        &self.0
    }

    /// The mask in the form of [`wireup::Boot::mask`].
    #[must_use]
    pub fn words(&self) -> Vec<u64> {
        let highest = self.0.last().map_or(0, |cpu| *cpu as usize / 64 + 1);
        let mut words = vec![0; highest];
        for cpu in &self.0 {
            words[*cpu as usize / 64] |= 1_u64 << (cpu % 64);
        }
        words
    }

    /// The mask in the form of `sched_setaffinity`.
    #[must_use]
    pub fn set(&self) -> CpuSet {
        let mut set = CpuSet::new();
        for cpu in &self.0 {
            // Cannot fail for CPU numbers that are possible.
            let _ = set.set(*cpu as usize);
        }
        set
    }
}

/// Number of CPUs that the control groups of this process grant as CPU time per period, for example the quota of a
/// container: the minimum over all enclosing groups, rounded up. `None` without a quota.
#[must_use]
pub fn quota() -> Option<usize> {
    let groups = std::fs::read_to_string("/proc/self/cgroup").ok()?;
    quota_of(&groups, Path::new("/sys/fs/cgroup"))
}

/// Computes [`quota`] from `groups`, the text of `/proc/self/cgroup`, and `root`, the mount point of control groups.
fn quota_of(groups: &str, root: &Path) -> Option<usize> {
    let mut least: Option<usize> = None;
    for line in groups.lines() {
        let mut parts = line.splitn(3, ':');
        let (Some(_), Some(controllers), Some(path)) = (parts.next(), parts.next(), parts.next())
        else {
            continue;
        };
        let place = match controllers {
            "" => root.to_path_buf(),
            list if list.split(',').any(|name| name == "cpu") => root.join("cpu"),
            _ => continue,
        };
        let own = place.join(path.trim_start_matches('/'));
        // In a container the path may be that of the host and not exist here; then `place` is the container's own
        // group.
        let around = own
            .ancestors()
            .take_while(|folder| folder.starts_with(&place));
        let found = around
            .map(PathBuf::from)
            .filter_map(|folder| limit_of(&folder))
            .min();
        least = least.into_iter().chain(found).min();
    }
    least
}

/// The quota of one group in CPUs, rounded up; `None` if it has no quota.
fn limit_of(folder: &Path) -> Option<usize> {
    let read = |name: &str| std::fs::read_to_string(folder.join(name)).ok();
    let text = read("cpu.max").or_else(|| {
        Some(format!(
            "{} {}",
            read("cpu.cfs_quota_us")?.trim(),
            read("cpu.cfs_period_us")?.trim()
        ))
    })?;
    let mut fields = text.split_ascii_whitespace().map(str::parse::<usize>);
    // Without a quota the first word is `max` or `-1`, which does not parse.
    let (quota, period) = (fields.next()?.ok()?, fields.next()?.ok()?);
    (period > 0).then(|| quota.div_ceil(period).max(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cpus(numbers: &[u32]) -> CpuList {
        CpuList::new(numbers.to_vec())
    }

    #[test]
    fn mask_words_hold_one_bit_per_cpu() {
        assert_eq!(cpus(&[0, 1, 65]).words(), [3, 2]);
        assert_eq!(CpuList::default().words(), [0_u64; 0]);
    }

    #[test]
    fn the_smallest_quota_of_all_enclosing_cgroups_counts() {
        let root = tempfile::tempdir().unwrap();
        let group = root.path().join("a/b");
        std::fs::create_dir_all(&group).unwrap();
        std::fs::write(group.join("cpu.max"), "max 100000\n").unwrap();
        assert_eq!(quota_of("0::/a/b\n", root.path()), None);
        std::fs::write(root.path().join("a/cpu.max"), "250000 100000\n").unwrap();
        assert_eq!(quota_of("0::/a/b\n", root.path()), Some(3));
        std::fs::write(group.join("cpu.max"), "50000 100000\n").unwrap();
        assert_eq!(quota_of("0::/a/b\n", root.path()), Some(1));
        assert_eq!(quota_of("0::/elsewhere\n", root.path()), None);
    }

    #[test]
    fn cgroup_v1_quota_is_understood() {
        let root = tempfile::tempdir().unwrap();
        let group = root.path().join("cpu");
        std::fs::create_dir_all(&group).unwrap();
        std::fs::write(group.join("cpu.cfs_period_us"), "100000\n").unwrap();
        std::fs::write(group.join("cpu.cfs_quota_us"), "-1\n").unwrap();
        let groups = "3:cpu,cpuacct:/docker/7\n2:memory:/x\n";
        assert_eq!(quota_of(groups, root.path()), None);
        std::fs::write(group.join("cpu.cfs_quota_us"), "400000\n").unwrap();
        assert_eq!(quota_of(groups, root.path()), Some(4));
        assert_eq!(quota_of("nonsense\n", root.path()), None);
    }
}
