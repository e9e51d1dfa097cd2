// SPDX-License-Identifier: MIT OR Apache-2.0
//! Advice for jobs with ranks on other hosts: which pid to give in order to see them, or why they cannot be seen.

use std::fs;

use crate::job::ancestors;

/// The hint for a job of rmpiexec.
pub(crate) const BY_FRONT: &str = "the job has ranks on other hosts; to see them give the pid of its rmpiexec, on the host where that runs";

/// Programs with which other launchers start the ranks of a host.
const STARTERS: [&str; 6] = [
    "slurmstepd",
    "hydra_pmi_proxy",
    "prted",
    "prterun",
    "flux-shell",
    "orted",
];

/// The hint for a job of another launcher. `named`: the pid that the user gave; `rank`: the pid of one of the job's
/// ranks.
pub(crate) fn by_starter(named: u32, rank: u32) -> String {
    let above = ancestors(rank).into_iter();
    let above = above.filter_map(|pid| Some((pid, name(pid)?)));
    hint(named, &above.collect::<Vec<_>>())
}

/// The text of the hint. `above`: the pids and names of the rank's ancestors, nearest first.
fn hint(named: u32, above: &[(u32, String)]) -> String {
    const HERE: &str =
        "no rmpiexec has started these ranks: those of this host alone can be looked at";
    let starter = above
        .iter()
        .find(|(_, name)| STARTERS.contains(&name.as_str()));
    match starter {
        Some((pid, name)) if *pid != named && above.iter().all(|(it, _)| *it != named) => {
            format!("{HERE}, all of them by the pid {pid} ({name})")
        }
        _ => HERE.to_owned(),
    }
}

/// The name of a process.
pub(crate) fn name(pid: u32) -> Option<String> {
    let name = fs::read_to_string(format!("/proc/{pid}/comm")).ok()?;
    Some(name.trim_end().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rank_of_another_launcher_error_names_the_host_daemon_pid() {
        let above = [(50, "sh"), (40, "slurmstepd"), (1, "slurmd")];
        let above = above.map(|(pid, name)| (pid, name.to_owned()));
        let here = "those of this host alone can be looked at";
        let rank = hint(60, &above);
        assert!(
            rank.ends_with(&format!("{here}, all of them by the pid 40 (slurmstepd)")),
            "{rank}"
        );
        for named in [40, 1] {
            assert!(hint(named, &above).ends_with(here), "{named}");
        }
        assert!(hint(60, &above[..1]).ends_with(here));
    }
}
