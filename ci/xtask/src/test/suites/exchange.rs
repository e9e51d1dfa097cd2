// SPDX-License-Identifier: MIT OR Apache-2.0
//! Binaries with several libraries: programs built by MPICH's wrapper run with rmpi, and programs built by `rmpicc` run
//! with other MPIs.

use super::super::jobs;
use super::Tally;
use super::peer::{INTEL, MPICH, WHOSE, compile, whose};
use crate::tree::{command, make_folder, root, target};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// Programs of `ci/ranks` that are built by MPICH's wrapper.
const PROGRAMS: &[&str] = &[
    "send_modes",
    "waits",
    "types_basic",
    "coll_data",
    "comm",
    "errhandler",
];

pub(super) fn run(tally: &mut Tally, prefix: &Path) -> Result<(), String> {
    let build = target().join("exchange");
    make_folder(&build)?;
    let mpich = MPICH.fetch()?;
    let launcher = prefix.join("bin/rmpiexec");
    for (name, source) in sources() {
        let program = build.join(format!("{name}-by-mpich"));
        let built = compile(&mpich.join("bin/mpicc_abi"), &source, &program);
        for ranks in ranks_of(name) {
            tally.check(
                &format!("{name}, built by MPICH's mpicc_abi, runs here -n {ranks}"),
                || {
                    built.clone()?;
                    let output = launch(&launcher, *ranks, &program, &build, &[])?;
                    whose(name, *ranks, &output, "rmpi")
                },
            );
        }
    }
    let theirs = build.join("whose_library-by-rmpi");
    compile(&prefix.join("bin/rmpicc"), &root().join(WHOSE), &theirs)?;
    for peer in [MPICH, INTEL] {
        tally.check(
            &format!("built by rmpicc, runs on {}", peer.library),
            || {
                let prefix = peer.fetch()?;
                let library = prefix.join("lib").display().to_string();
                let root = prefix.display().to_string();
                let mut env = vec![
                    ("LD_LIBRARY_PATH", library.as_str()),
                    ("I_MPI_ROOT", root.as_str()),
                ];
                env.extend(peer.env);
                let output = launch(&prefix.join("bin/mpiexec"), 4, &theirs, &build, &env)?;
                whose("whose_library", 4, &output, peer.library)
            },
        );
    }
    Ok(())
}

fn sources() -> impl Iterator<Item = (&'static str, PathBuf)> {
    let ranks = |name: &&'static str| (*name, root().join(format!("ci/ranks/{name}.c")));
    [("whose_library", root().join(WHOSE))]
        .into_iter()
        .chain(PROGRAMS.iter().map(ranks))
}

fn ranks_of(program: &str) -> &'static [u32] {
    if program == "whose_library" {
        &[2, 4, 64]
    } else {
        &[4]
    }
}

fn launch(
    launcher: &Path,
    ranks: u32,
    program: &Path,
    scratch: &Path,
    env: &[(&str, &str)],
) -> Result<String, String> {
    let mut job: Command = command(launcher);
    job.args(["-n", &ranks.to_string()]).arg(program);
    job.envs(env.iter().copied());
    let cookie = jobs::Cookie::new(scratch)?;
    let done = jobs::run(job, &cookie, Duration::from_secs(300))?;
    // This call removes what another launcher has left behind; leftovers are not an error here.
    let _ = cookie.leftovers(jobs::LEFTOVER_GRACE);
    if done.success() {
        return Ok(done.stdout);
    }
    Err(format!(
        "the job {}\n{}{}",
        done.end(),
        done.stdout,
        done.stderr
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_programs_exist() {
        assert!(sources().all(|(_, file)| file.is_file()));
    }
}
