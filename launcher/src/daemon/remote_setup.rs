// SPDX-License-Identifier: MIT OR Apache-2.0
//! Sets up a job on a host that the front cannot inspect: checks programs and folders, assigns CPUs to ranks, and adds
//! the host's own environment variables.

use crate::affinity::{AffinityStrength, Policy, affinities};
use crate::cpus::{CpuList, quota};
use crate::failure::counted;
use crate::job::{JobProgram, NodeJob, RemoteSetup};
use crate::plan;
use crate::prepare::{self, OF_A_HOST};
use crate::program::{self, NoProgram};
use crate::stats;
use std::collections::BTreeSet;
use std::ffi::{CString, OsStr, OsString};
use std::fs::File;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;

/// Result of the set-up.
#[derive(Debug, Default)]
pub(super) struct RemoteSetupResult {
    /// Messages for the user.
    pub(super) notices: Vec<String>,
    /// File in which ranks leave their records for `--stats`; `None` without `--stats`.
    pub(super) stats_file: Option<File>,
}

/// Completes a job for this host. The error reports what is missing on this host.
pub(super) fn set_up(job: &mut NodeJob, far: RemoteSetup) -> Result<RemoteSetupResult, NoProgram> {
    let left = far.stats.then(stats::file).transpose();
    let left = left.map_err(|message| NoProgram { message, code: 1 })?;
    let used: BTreeSet<u32> = job.ranks.iter().map(|placed| placed.app).collect();
    for app in used {
        let program = &mut job.programs[app as usize];
        add_own_variables(program);
        program
            .environment
            .extend(left.as_ref().and_then(stats::place));
        find(program)?;
    }
    Ok(RemoteSetupResult {
        notices: assign_cpus(job, far),
        stats_file: left,
    })
}

/// Adds the values of this host for variables that describe a host, unless the program's environment has them.
fn add_own_variables(program: &mut JobProgram) {
    for name in OF_A_HOST {
        let is_set = |set: &CString| {
            let rest = set.as_bytes().strip_prefix(name.as_bytes());
            rest.is_some_and(|rest| rest.starts_with(b"="))
        };
        let Some(value) = std::env::var_os(name) else {
            continue;
        };
        let text = [name.as_bytes(), b"=", value.as_bytes()].concat();
        if let (false, Ok(text)) = (program.environment.iter().any(is_set), CString::new(text)) {
            program.environment.push(text);
        }
    }
}

/// Finds a program's working directory and file.
fn find(program: &mut JobProgram) -> Result<(), NoProgram> {
    let path = |text: &CString| OsString::from_vec(text.as_bytes().to_vec());
    let folder = program.folder.as_ref().map(path).unwrap_or_default();
    if let Some(problem) = prepare::unusable_folder(Path::new(&folder)) {
        return Err(problem);
    }
    let search = program.environment.iter();
    let mut search = search.filter_map(|set| set.as_bytes().strip_prefix(b"PATH="));
    let search = OsStr::from_bytes(search.next().unwrap_or(prepare::DEFAULT_PATH.as_bytes()));
    let found = program::find(&path(&program.path), Path::new(&folder), search)?;
    let found = found.into_os_string().into_vec();
    program.path = CString::new(found).expect("made of texts that have no zero byte");
    Ok(())
}

/// Assigns CPUs to the ranks. Returns lines that describe the result if the user requested them, otherwise nothing.
fn assign_cpus(job: &mut NodeJob, far: RemoteSetup) -> Vec<String> {
    let cpus = CpuList::allowed();
    let granted = quota().unwrap_or(usize::MAX).min(cpus.count());
    let topology = plan::described(&cpus);
    let policy = Policy {
        shared: granted < cpus.count() || far.colocated.overlapping > 0,
        ..far.policy
    };
    let (before, own) = (far.colocated.before, job.local_size());
    let sharing = own
        .saturating_add(before)
        .saturating_add(far.colocated.behind);
    // The affinities are computed as for one host that has all ranks that share the CPUs. This host's own ranks come
    // after the first `before` ranks.
    let places = affinities(&topology, sharing, policy)
        .into_iter()
        .skip(before as usize);
    let mut lines = Vec::new();
    if far.report {
        let ranks = counted(own, "rank", "ranks");
        lines.push(format!("{ranks}{} on {topology}", far.colocated.describe()));
    }
    for (placed, assign_cpus) in job.ranks.iter_mut().zip(places) {
        if far.report {
            lines.push(format!(
                "rank {} {}",
                placed.rank,
                assign_cpus.describe(&topology)
            ));
        }
        placed.preferred = assign_cpus.strength == AffinityStrength::Preferred;
        placed.cpus = (assign_cpus.strength != AffinityStrength::Free)
            .then(|| CpuList::new(assign_cpus.cpus));
    }
    let all = u64::from(own) + u64::from(far.colocated.ranks());
    let crowded = all > granted as u64 || job.ranks.iter().any(|placed| placed.preferred);
    for program in job.programs.iter_mut().filter(|_| crowded) {
        let calm = prepare::calm_variable(&program.environment);
        program.environment.extend(calm);
    }
    job.cpus = cpus;
    lines
}
