// SPDX-License-Identifier: MIT OR Apache-2.0
//! Finds and signals the descendants of this process. This process is a sub-reaper and adopts orphans, so every process
//! that a rank started, even a detached one, is found by walking down the process tree from this process.

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::collections::{HashMap, HashSet};

/// A descendant of this process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Descendant {
    /// Its pid.
    pub(crate) pid: u32,
    /// Whether its main thread has exited; other threads may still run.
    pub(crate) zombie: bool,
}

/// Snapshot of all processes, by parent. Queries that belong together must use the same snapshot, since processes may
/// be created between two snapshots.
#[derive(Debug, Default)]
pub(crate) struct ProcessSnapshot(HashMap<u32, Vec<Descendant>>);

impl ProcessSnapshot {
    /// Takes a snapshot of `/proc`.
    pub(crate) fn now() -> Self {
        processes().collect()
    }

    /// All descendants of `ancestors`, without the ancestors themselves.
    pub(crate) fn below(&self, ancestors: &[u32]) -> Vec<Descendant> {
        let (mut found, mut next) = (Vec::new(), ancestors.to_vec());
        // The snapshot may have a cycle if a pid was reused while it was taken, so each pid is visited once.
        let mut seen: HashSet<u32> = ancestors.iter().copied().collect();
        while let Some(pid) = next.pop() {
            let children = self.0.get(&pid).into_iter().flatten();
            let new = children.filter(|process| seen.insert(process.pid));
            let new: Vec<Descendant> = new.copied().collect();
            next.extend(new.iter().map(|process| process.pid));
            found.extend(new);
        }
        found
    }
}

impl FromIterator<(Descendant, u32)> for ProcessSnapshot {
    fn from_iter<T: IntoIterator<Item = (Descendant, u32)>>(processes: T) -> Self {
        let mut tree = Self::default();
        for (process, parent) in processes {
            tree.0.entry(parent).or_default().push(process);
        }
        tree
    }
}

/// All current descendants of `ancestors`, without the ancestors themselves.
pub(crate) fn descendants(ancestors: &[u32]) -> Vec<Descendant> {
    ProcessSnapshot::now().below(ancestors)
}

/// Sends a signal to every descendant of this process; returns the pids of those that were alive.
pub(crate) fn signal_all(signal: Signal) -> Vec<u32> {
    let found = descendants(&[std::process::id()]);
    for process in &found {
        // The process may have terminated since the snapshot.
        let _ = kill(Pid::from_raw(process.pid.cast_signed()), signal);
    }
    found
        .iter()
        .filter(|process| !process.zombie)
        .map(|process| process.pid)
        .collect()
}

/// Whether a process is exiting: its files may be closed already, although its parent cannot reap it yet.
pub(crate) fn is_exiting(pid: u32) -> bool {
    let stat = std::fs::read(format!("/proc/{pid}/stat"));
    stat.is_ok_and(|stat| flags(&String::from_utf8_lossy(&stat)) & PF_EXITING != 0)
}

/// The kernel flags of a process, from a line of `/proc/PID/stat`.
fn flags(stat: &str) -> u32 {
    let behind = stat.rsplit_once(')').map_or("", |(_, behind)| behind);
    let field = behind.split_ascii_whitespace().nth(6);
    field.and_then(|field| field.parse().ok()).unwrap_or(0)
}

/// Kernel flag of a process that is exiting (`include/linux/sched.h`).
const PF_EXITING: u32 = 4;

/// The threads of a process.
pub(crate) fn threads(pid: u32) -> impl Iterator<Item = i32> {
    let entries = std::fs::read_dir(format!("/proc/{pid}/task"));
    let entries = entries.into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

/// Every process, with the pid of its parent.
fn processes() -> impl Iterator<Item = (Descendant, u32)> {
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| {
        let pid = entry.file_name().to_str()?.parse().ok()?;
        let stat = std::fs::read(entry.path().join("stat")).ok()?;
        let (zombie, parent) = state_and_parent(&String::from_utf8_lossy(&stat))?;
        Some((Descendant { pid, zombie }, parent))
    })
}

/// Parses the text of `/proc/PID/stat`, `pid (name) state parent ...`, where the name may contain any characters.
/// Returns whether the process is a zombie, and its parent.
fn state_and_parent(stat: &str) -> Option<(bool, u32)> {
    let (_, behind) = stat.rsplit_once(')')?;
    let mut fields = behind.split_ascii_whitespace();
    let zombie = matches!(fields.next()?, "Z" | "X");
    Some((zombie, fields.next()?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn stat_parsing_survives_parentheses_in_the_name() {
        assert_eq!(
            state_and_parent("12 (a) R 9) S 34 12 12 0"),
            Some((false, 34))
        );
        assert_eq!(state_and_parent("12 (sh) Z 34 12 12 0"), Some((true, 34)));
        assert_eq!(state_and_parent("garbage"), None);
        assert_eq!(flags("12 (a) R 9) S 34 12 12 0 -1 4194304 0"), 0x40_0000);
        assert_eq!(flags("12 (sh) Z 34 12 12 0 -1 4227084 0") & PF_EXITING, 4);
        assert_eq!(flags("garbage"), 0);
    }

    #[test]
    fn children_and_grandchildren_are_found() {
        let script = "sh -c 'sleep 60 & wait' & wait";
        let mut child = Command::new("sh").args(["-c", script]).spawn().unwrap();
        let mut found = Vec::new();
        while found.len() < 2 {
            found = descendants(&[child.id()]);
        }
        for process in found {
            kill(Pid::from_raw(process.pid.cast_signed()), Signal::SIGKILL).unwrap();
        }
        child.wait().unwrap();
    }
}
