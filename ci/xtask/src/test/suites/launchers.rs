// SPDX-License-Identifier: MIT OR Apache-2.0
//! Programs with rmpi under launchers of other MPIs: ranks connect by PMI-1, PMI-2 or PMIx, share memory, and end
//! correctly. Programs of other MPIs under rmpiexec, by PMI-1.

use super::super::jobs;
use super::Tally;
use super::peer::{INTEL, MPICH, OPENMPI, PeerMpi, WHOSE, compile, whose};
use crate::process::quiet;
use crate::tree::{command, make_folder, root, target};
use std::path::Path;
use std::time::Duration;

/// A launcher with its options and environment.
struct Launcher {
    title: &'static str,
    peer: &'static PeerMpi,
    program: &'static str,
    options: &'static [&'static str],
    env: &'static [(&'static str, &'static str)],
}

const LAUNCHERS: &[Launcher] = &[
    Launcher {
        title: "MPICH's mpiexec, PMI-1",
        peer: &MPICH,
        program: "mpiexec",
        options: &[],
        env: &[],
    },
    Launcher {
        title: "MPICH's mpiexec, PMI-2",
        peer: &MPICH,
        program: "mpiexec",
        options: &[],
        env: &[("RMPI_PMI", "pmi2")],
    },
    Launcher {
        title: "MPICH's mpiexec, a port",
        peer: &MPICH,
        program: "mpiexec",
        options: &["-pmi-port"],
        env: &[],
    },
    Launcher {
        title: "Intel's mpiexec",
        peer: &INTEL,
        program: "mpiexec",
        options: &[],
        env: &[],
    },
    Launcher {
        title: "prterun, PMIx",
        peer: &OPENMPI,
        program: "prterun",
        options: &["--allow-run-as-root", "--map-by", ":OVERSUBSCRIBE"],
        env: &[],
    },
];

/// Programs of `ci/ranks`.
const PROGRAMS: &[&str] = &["send_modes", "coll_data", "comm"];

pub(super) fn run(tally: &mut Tally, prefix: &Path) -> Result<(), String> {
    let build = target().join("launchers");
    make_folder(&build)?;
    let sources = PROGRAMS
        .iter()
        .map(|name| (*name, format!("ci/ranks/{name}.c")));
    let others = [
        ("whose_library", WHOSE),
        ("far", "ci/hosts/far.c"),
        ("children", "ci/suites/launchers/children.c"),
    ];
    let others = others.map(|(name, source)| (name, source.to_owned()));
    for (name, source) in sources.chain(others) {
        compile(
            &prefix.join("bin/rmpicc"),
            &root().join(source),
            &build.join(name),
        )?;
    }
    for launcher in LAUNCHERS {
        let title = launcher.title;
        for ranks in [1, 4, 64] {
            tally.check(&format!("{title}: -n {ranks}"), || {
                let output = launcher.launch(ranks, &build, &["whose_library"], 0)?;
                whose("whose_library", ranks, &output, "rmpi")
            });
        }
        for program in PROGRAMS {
            tally.check(&format!("{title}: {program} -n 4"), || {
                launcher.launch(4, &build, &[program], 0).map(drop)
            });
        }
        tally.check(&format!("{title}: ranks of a node share memory"), || {
            let output = launcher.launch(4, &build, &["far", "who"], 0)?;
            let shared = output.matches("4 share its memory").count();
            (shared == 4).then_some(()).ok_or(output)
        });
        other_checks(tally, launcher, &build);
    }
    tally.check("rmpiexec: child processes, and jobs of ranks", || {
        let (launcher, program) = (prefix.join("bin/rmpiexec"), build.join("children"));
        let again = format!("{} -n 2 {}", launcher.display(), program.display());
        let mut job = command(&launcher);
        job.args(["-n", "3"]).arg(&program).args(["start", &again]);
        let cookie = jobs::Cookie::new(&build)?;
        let done = jobs::run(job, &cookie, Duration::from_secs(120))?;
        let jobs = ["a job of 3\n", "a job of 1\n", "a job of 2\n"];
        let is_well = done.status.success() && jobs.iter().all(|job| done.stdout.contains(job));
        is_well.then_some(()).ok_or(done.stdout + &done.stderr)
    });
    for peer in [&MPICH, &INTEL] {
        peers_programs(tally, peer, prefix, &build)?;
    }
    Ok(())
}

/// Runs programs with another MPI's library under rmpiexec.
fn peers_programs(
    tally: &mut Tally,
    peer: &PeerMpi,
    prefix: &Path,
    build: &Path,
) -> Result<(), String> {
    let (theirs, library) = (peer.fetch()?, peer.library);
    let programs = ["whose_library", "abort"].map(|name| build.join(format!("{name}.{library}")));
    let sources = [WHOSE, "ci/suites/launchers/abort.c"];
    for (source, program) in sources.iter().zip(&programs) {
        let mut cc = command("gcc");
        cc.arg("-I").arg(theirs.join("include"));
        cc.args(["-std=gnu11", "-O1", "-pthread", "-o"])
            .arg(program);
        cc.arg(root().join(source))
            .arg("-L")
            .arg(theirs.join("lib"));
        cc.arg(format!("-Wl,-rpath,{}", theirs.join("lib").display()));
        cc.args(["-lmpi", "-lm"]);
        quiet(cc, Duration::from_secs(300))?;
    }
    let run = |nodes: &str, ranks: u32, program: &Path, code: i32| {
        let mut job = command(prefix.join("bin/rmpiexec"));
        job.args(["-n", &ranks.to_string()]).arg(program);
        job.env("RMPI_LOCAL_NODES", nodes)
            .env("I_MPI_ROOT", &theirs);
        let (lib, fabric) = (theirs.join("lib"), theirs.join("lib/libfabric"));
        job.env(
            "LD_LIBRARY_PATH",
            format!("{}:{}", lib.display(), fabric.display()),
        );
        job.envs(peer.env.iter().copied());
        if nodes != "1" {
            // `named` avoids MPI_ANY_SOURCE: such a receive between two nodes hangs in MPICH 5.0.2, also under its own
            // mpiexec (in 7 of 8 runs of three ranks on two cores with MPIR_CVAR_NUM_CLIQUES=2).
            job.arg("named").env("I_MPI_FABRICS", "shm:ofi");
        }
        let cookie = jobs::Cookie::new(build)?;
        let done = jobs::run(job, &cookie, Duration::from_secs(120))?;
        if done.status.code() == Some(code) && !done.timed_out {
            return Ok(done.stdout);
        }
        let end = done.end();
        Err(format!("the job {end}\n{}{}", done.stdout, done.stderr))
    };
    for (nodes, ranks) in [("1", 1), ("1", 4), ("2", 3)] {
        let title = format!("a program of {library} under rmpiexec: -n {ranks}, nodes: {nodes}");
        tally.check(&title, || {
            let output = run(nodes, ranks, &programs[0], 0)?;
            whose("whose_library", ranks, &output, library)
        });
    }
    let title = format!("a program of {library} under rmpiexec: MPI_Abort");
    tally.check(&title, || run("1", 3, &programs[1], 7).map(drop));
    Ok(())
}

/// Checks other things than messages: a single provider, child processes, MPI_Finalize at exit, a rank that exits
/// early.
fn other_checks(tally: &mut Tally, launcher: &Launcher, build: &Path) {
    let title = launcher.title;
    tally.check(&format!("{title}: over tcp alone"), || {
        let tcp = [("RMPI_PROVIDERS", "tcp")];
        launcher
            .launch_with(&tcp, 4, build, &["far", "ring", "100000"], 0)
            .map(drop)
    });
    tally.check(
        &format!("{title}: child processes, and jobs of ranks"),
        || {
            let again = launcher.line(2, &build.join("children"))?;
            let output = launcher.launch(3, build, &["children", "start", &again], 0)?;
            let jobs = ["a job of 3\n", "a job of 1\n", "a job of 2\n"];
            jobs.iter()
                .all(|job| output.contains(job))
                .then_some(())
                .ok_or(output)
        },
    );
    tally.check(&format!("{title}: MPI_Finalize at exit"), || {
        let output = launcher.launch(2, build, &["children", "late"], 0)?;
        output
            .contains("finalized late")
            .then_some(())
            .ok_or(output)
    });
    tally.check(&format!("{title}: a rank that leaves ends the job"), || {
        launcher
            .launch(4, build, &["far", "leave", "2", "7"], 7)
            .map(drop)
    });
}

impl Launcher {
    /// Runs a program (the first argument) and returns its output; an error unless it ends with this code.
    fn launch(&self, ranks: u32, build: &Path, args: &[&str], code: i32) -> Result<String, String> {
        self.launch_with(&[], ranks, build, args, code)
    }

    /// Like `launch`, with these environment variables.
    fn launch_with(
        &self,
        env: &[(&str, &str)],
        ranks: u32,
        build: &Path,
        args: &[&str],
        code: i32,
    ) -> Result<String, String> {
        let prefix = self.peer.fetch()?;
        let mut job = command(prefix.join("bin").join(self.program));
        job.args(self.options).args(["-n", &ranks.to_string()]);
        job.arg(build.join(args[0])).args(&args[1..]);
        for root in ["I_MPI_ROOT", "OPAL_PREFIX", "PRTE_PREFIX", "PMIX_PREFIX"] {
            job.env(root, &prefix);
        }
        job.env_remove("LD_LIBRARY_PATH");
        job.envs(self.env.iter().chain(env).copied());
        let cookie = jobs::Cookie::new(build)?;
        let done = jobs::run(job, &cookie, Duration::from_secs(120))?;
        // This call removes what another launcher has left behind; leftovers are not an error here.
        let _ = cookie.leftovers(jobs::LEFTOVER_GRACE);
        if done.status.code() == Some(code) && !done.timed_out {
            return Ok(done.stdout);
        }
        let end = done.end();
        Err(format!("the job {end}\n{}{}", done.stdout, done.stderr))
    }

    /// The shell command that starts a program.
    fn line(&self, ranks: u32, program: &Path) -> Result<String, String> {
        let launcher = self.peer.fetch()?.join("bin").join(self.program);
        let options = self.options.join(" ");
        let (launcher, program) = (launcher.display(), program.display());
        Ok(format!("{launcher} {options} -n {ranks} {program}"))
    }
}
