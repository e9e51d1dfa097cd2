// SPDX-License-Identifier: MIT OR Apache-2.0
//! Finds the processes that are ranks: those below the given process, or those of the job that the given process
//! belongs to.

use std::collections::{HashMap, HashSet};
use std::fs;

use crate::other_hosts::name;
use crate::symbols::SymbolFiles;
use crate::target::RankProcess;
use crate::{Error, ancestor};

/// The ranks of a job, and the process that started them.
#[derive(Debug)]
pub struct FoundJob {
    /// The given process. If that is a rank of rmpi, or a script around such a rank: the daemon that started the rank.
    pub starter: u32,
    /// The ranks.
    pub ranks: Vec<RankProcess>,
    /// Whether all ranks were found: no other descendant of the starter can still become one (by `exec`, or as the next
    /// program of a script).
    pub complete: bool,
}

/// The ranks that a pid stands for: those among the descendants of the process. But a rank of rmpi's launcher, or a
/// script around such a rank, stands for its job, and any other rank for itself.
///
/// # Errors
/// When the process cannot be read, or there is no rank.
pub fn ranks(pid: u32, files: &mut SymbolFiles) -> Result<FoundJob, Error> {
    let named = RankProcess::open(pid, files)?;
    let processes = ProcessTree::read();
    let ranks = match is_rank(&named) {
        true => vec![named],
        false => processes.ranks_below(pid, files),
    };
    let Some(first) = ranks.first() else {
        return Err(match name(pid).as_deref() {
            Some("srun") => Error::OfSrun(pid),
            _ => Error::NoRanks(pid),
        });
    };
    if let Some((daemon, job)) = processes.job_of(pid)
        && job_of(first.pid()) == Some(job)
    {
        let mut ranks = processes.ranks_below(daemon, files);
        // Ranks may have started jobs of their own; the ranks of these jobs are left out.
        ranks.retain(|it| job_of(it.pid()) == Some(job));
        if ranks.iter().any(|it| it.pid() == first.pid()) {
            return Ok(FoundJob {
                starter: daemon,
                complete: processes.are_only_processes(daemon, &ranks),
                ranks,
            });
        }
    }
    Ok(FoundJob {
        starter: pid,
        complete: processes.are_only_processes(pid, &ranks),
        ranks,
    })
}

/// The ranks that a node daemon of rmpi's launcher has started, without the ranks of jobs that these ranks have
/// started.
pub(crate) fn ranks_of_daemon(daemon: u32, files: &mut SymbolFiles) -> FoundJob {
    let mut ranks = ProcessTree::read().ranks_below(daemon, files);
    let is_its = |pid| ancestor::boot(pid).is_ok_and(|boot| boot.daemon_pid == daemon);
    ranks.retain(|it| is_its(it.pid()));
    FoundJob {
        starter: daemon,
        ranks,
        complete: false,
    }
}

/// The ancestors of a process, nearest first.
pub(crate) fn ancestors(pid: u32) -> Vec<u32> {
    let parents = ProcessTree::read().parents;
    let mut line = Vec::new();
    let mut at = pid;
    while let Some(parent) = parents.get(&at).filter(|it| !line.contains(*it)) {
        at = *parent;
        line.push(at);
    }
    line
}

/// The descendants of a process: children first, then their children, and so on.
pub(crate) fn descendants(pid: u32) -> Vec<u32> {
    let children = ProcessTree::read().children;
    let mut found = vec![pid];
    let mut at = 0;
    while let Some(parent) = found.get(at) {
        let new = children.get(parent).cloned().unwrap_or_default();
        found.extend(new);
        at += 1;
    }
    found.split_off(1)
}

/// Whether the process exists and has not ended.
pub(crate) fn is_alive(pid: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat"));
    let state = stat
        .ok()
        .and_then(|it| it.rsplit(") ").next()?.chars().next());
    !matches!(state, None | Some('Z' | 'X'))
}

/// The job key in a process's boot record.
fn job_of(pid: u32) -> Option<u64> {
    ancestor::boot(pid).ok().map(|boot| boot.job)
}

/// Whether a process is a rank: an MPI library is mapped in it. The symbol `MPIR_dll_name` does not prove that, since a
/// launcher may have it too.
fn is_rank(target: &RankProcess) -> bool {
    target.find(b"MPI_Init").is_some()
}

/// All processes with their parents.
#[derive(Default)]
struct ProcessTree {
    children: HashMap<u32, Vec<u32>>,
    parents: HashMap<u32, u32>,
}

impl ProcessTree {
    fn read() -> Self {
        let mut all = Self::default();
        let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
        for process in processes {
            let pid = process
                .file_name()
                .to_str()
                .and_then(|name| name.parse().ok());
            let stat = fs::read_to_string(process.path().join("stat"));
            if let (Some(pid), Ok(stat)) = (pid, stat)
                && let Some(parent) = parent(&stat)
            {
                all.children.entry(parent).or_default().push(pid);
                all.parents.insert(pid, parent);
            }
        }
        all
    }

    fn ranks_below(&self, pid: u32, files: &mut SymbolFiles) -> Vec<RankProcess> {
        let mut found = Vec::new();
        let mut left = vec![pid];
        while let Some(parent) = left.pop() {
            for child in self.children.get(&parent).into_iter().flatten() {
                left.push(*child);
                // A process that has ended meanwhile is skipped.
                found.extend(RankProcess::open(*child, files).ok().filter(is_rank));
            }
        }
        found
    }

    /// Whether each living descendant of `pid` is one of these ranks, or an ancestor or descendant of a rank. Any other
    /// descendant may be a rank before its `exec`: then a missing rank has perhaps not started yet.
    fn are_only_processes(&self, pid: u32, ranks: &[RankProcess]) -> bool {
        let ranks: HashSet<u32> = ranks.iter().map(RankProcess::pid).collect();
        let mut above = HashSet::new();
        for rank in &ranks {
            let mut at = *rank;
            while let Some(parent) = self.parents.get(&at).filter(|it| above.insert(**it)) {
                at = *parent;
            }
        }
        let mut left = vec![pid];
        while let Some(parent) = left.pop() {
            for child in self.children.get(&parent).into_iter().flatten() {
                if ranks.contains(child) {
                    continue;
                }
                if !above.contains(child) && is_alive(*child) {
                    return false;
                }
                left.push(*child);
            }
        }
        true
    }

    /// The daemon that a process's boot record names, and the key of the job; `None` if the daemon is not an ancestor
    /// of the process.
    fn job_of(&self, pid: u32) -> Option<(u32, u64)> {
        let boot = ancestor::boot(pid).ok()?;
        let mut at = pid;
        // Bounds the walk: parents may have changed while the processes were read, and form a cycle.
        for _ in 0..self.parents.len() {
            at = *self.parents.get(&at)?;
            if at == boot.daemon_pid {
                return Some((at, boot.job));
            }
        }
        None
    }
}

/// The parent's pid: the fourth field of `/proc/PID/stat`; the second is a name in parentheses with arbitrary characters.
fn parent(stat: &str) -> Option<u32> {
    let after_name = stat.rsplit(") ").next()?;
    after_name.split(' ').nth(1)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_parent_pid_is_parsed_after_any_process_name() {
        assert_eq!(parent("12 (a) S 9) S 7 12 12 0"), Some(7));
        assert_eq!(parent(""), None);
    }

    #[test]
    fn a_missing_process_is_reported_as_ended() {
        let why = ranks(0x3fff_ffff, &mut SymbolFiles::default()).unwrap_err();
        assert_eq!(
            why.to_string(),
            "there is no process 1073741823 any more: the job has probably ended"
        );
    }

    #[test]
    fn a_process_without_mpi_is_refused_with_its_pid() {
        let me = std::process::id();
        let why = ranks(me, &mut SymbolFiles::default())
            .unwrap_err()
            .to_string();
        assert_eq!(
            why,
            format!(
                "process {me} is no rank and has started none; give the pid of rmpiexec or of a rank"
            )
        );
    }
}
