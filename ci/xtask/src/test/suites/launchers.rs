// SPDX-License-Identifier: MIT OR Apache-2.0
//! Our programs under the launchers of others: they find each other by PMI-1, PMI-2 or PMIx, share memory, and end as they should. And
//! programs of others under ours, by PMI-1.

use super::super::jobs;
use super::Tally;
use super::peer::{INTEL, MPICH, OPENMPI, PeerMpi, WHOSE, compile, whose};
use crate::process::quiet;
use crate::tree::{command, make_folder, root, target};
use std::path::Path;
use std::time::Duration;

/// One way to start programs.
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
                let told = launcher.launch(ranks, &build, &["whose_library"], 0)?;
                whose("whose_library", ranks, &told, "rmpi")
            });
        }
        for program in PROGRAMS {
            tally.check(&format!("{title}: {program} -n 4"), || {
                launcher.launch(4, &build, &[program], 0).map(drop)
            });
        }
        tally.check(&format!("{title}: ranks of a node share memory"), || {
            let told = launcher.launch(4, &build, &["far", "who"], 0)?;
            let shared = told.matches("4 share its memory").count();
            (shared == 4).then_some(()).ok_or(told)
        });
        ways(tally, launcher, &build);
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
        theirs(tally, peer, prefix, &build)?;
    }
    Ok(())
}

/// Programs of others with their own library, under our launcher.
fn theirs(tally: &mut Tally, peer: &PeerMpi, prefix: &Path, build: &Path) -> Result<(), String> {
    let (home, says) = (peer.fetch()?, peer.says);
    let programs = ["whose_library", "abort"].map(|name| build.join(format!("{name}.{says}")));
    let sources = [WHOSE, "ci/suites/launchers/abort.c"];
    for (source, program) in sources.iter().zip(&programs) {
        let mut cc = command("gcc");
        cc.arg("-I").arg(home.join("include"));
        cc.args(["-std=gnu11", "-O1", "-pthread", "-o"])
            .arg(program);
        cc.arg(root().join(source)).arg("-L").arg(home.join("lib"));
        cc.arg(format!("-Wl,-rpath,{}", home.join("lib").display()));
        cc.args(["-lmpi", "-lm"]);
        quiet(cc, Duration::from_secs(300))?;
    }
    let run = |nodes: &str, ranks: u32, program: &Path, code: i32| {
        let mut job = command(prefix.join("bin/rmpiexec"));
        job.args(["-n", &ranks.to_string()]).arg(program);
        job.env("RMPI_LOCAL_NODES", nodes).env("I_MPI_ROOT", &home);
        let (lib, fabric) = (home.join("lib"), home.join("lib/libfabric"));
        job.env(
            "LD_LIBRARY_PATH",
            format!("{}:{}", lib.display(), fabric.display()),
        );
        job.envs(peer.env.iter().copied());
        if nodes != "1" {
            // A receive from any source between two nodes hangs in MPICH 5.0.2, under its own mpiexec too (7 of 8 runs of three
            // ranks on two cores with MPIR_CVAR_NUM_CLIQUES=2).
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
        let title = format!("a program of {says} under rmpiexec: -n {ranks}, nodes: {nodes}");
        tally.check(&title, || {
            let told = run(nodes, ranks, &programs[0], 0)?;
            whose("whose_library", ranks, &told, says)
        });
    }
    let title = format!("a program of {says} under rmpiexec: MPI_Abort");
    tally.check(&title, || run("1", 3, &programs[1], 7).map(drop));
    Ok(())
}

/// What else programs do.
fn ways(tally: &mut Tally, launcher: &Launcher, build: &Path) {
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
            let told = launcher.launch(3, build, &["children", "start", &again], 0)?;
            let jobs = ["a job of 3\n", "a job of 1\n", "a job of 2\n"];
            jobs.iter()
                .all(|job| told.contains(job))
                .then_some(())
                .ok_or(told)
        },
    );
    tally.check(&format!("{title}: MPI_Finalize at exit"), || {
        let told = launcher.launch(2, build, &["children", "late"], 0)?;
        told.contains("finalized late").then_some(()).ok_or(told)
    });
    tally.check(&format!("{title}: a rank that leaves ends the job"), || {
        launcher
            .launch(4, build, &["far", "leave", "2", "7"], 7)
            .map(drop)
    });
}

impl Launcher {
    /// Runs a program, which must end with this code, and answers what it printed.
    fn launch(
        &self,
        ranks: u32,
        build: &Path,
        words: &[&str],
        code: i32,
    ) -> Result<String, String> {
        self.launch_with(&[], ranks, build, words, code)
    }

    /// The same in this environment.
    fn launch_with(
        &self,
        env: &[(&str, &str)],
        ranks: u32,
        build: &Path,
        words: &[&str],
        code: i32,
    ) -> Result<String, String> {
        let home = self.peer.fetch()?;
        let mut job = command(home.join("bin").join(self.program));
        job.args(self.options).args(["-n", &ranks.to_string()]);
        job.arg(build.join(words[0])).args(&words[1..]);
        for root in ["I_MPI_ROOT", "OPAL_PREFIX", "PRTE_PREFIX", "PMIX_PREFIX"] {
            job.env(root, &home);
        }
        job.env_remove("LD_LIBRARY_PATH");
        job.envs(self.env.iter().chain(env).copied());
        let cookie = jobs::Cookie::new(build)?;
        let done = jobs::run(job, &cookie, Duration::from_secs(120))?;
        // Another launcher may leave something.
        let _ = cookie.leftovers(jobs::LEFTOVER_GRACE);
        if done.status.code() == Some(code) && !done.timed_out {
            return Ok(done.stdout);
        }
        let end = done.end();
        Err(format!("the job {end}\n{}{}", done.stdout, done.stderr))
    }

    /// The line of a shell that starts a program.
    fn line(&self, ranks: u32, program: &Path) -> Result<String, String> {
        let launcher = self.peer.fetch()?.join("bin").join(self.program);
        let options = self.options.join(" ");
        let (launcher, program) = (launcher.display(), program.display());
        Ok(format!("{launcher} {options} -n {ranks} {program}"))
    }
}
