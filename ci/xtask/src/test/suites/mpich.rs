// SPDX-License-Identifier: MIT OR Apache-2.0
//! MPICH's test suite, from the distribution's source package, and its example that computes pi.
//!
//! `ci/suites/mpich/list` lists the programs. A program that `needs=` a function without a body is left out until there
//! is a body.

use super::super::compiling;
use super::super::testlist::{self, Entry};
use super::coverage::Present;
use super::launch::launch_over;
use super::{Tally, sources};
use crate::process::quiet;
use crate::tree::{command, make_folder, read, root};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// The unpacked suite, the folder of its built programs, and the MPI under test.
struct MpichSuite {
    source: PathBuf,
    build: PathBuf,
    prefix: PathBuf,
    /// The number of hosts for its jobs; `None`: only this machine.
    hosts: Option<u32>,
    /// The entries of the makefiles for single programs, by folder.
    makefiles: BTreeMap<String, Makefile>,
}

/// Sources of the programs that are not built from a single file with the program's name, and macro definitions of
/// programs.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Makefile {
    pub(super) sources: BTreeMap<String, Vec<String>>,
    flags: BTreeMap<String, Vec<String>>,
}

/// With these macros, the `mpi.h` of rmpi declares the functions for tools as MPICH's `mpi.h` does.
const MPICH_TOOLS: [&str; 2] = ["-DQMPI_API", "-DQMPI_MPICH"];

pub(super) fn run(tally: &mut Tally, prefix: &Path, hosts: Option<u32>) -> Result<(), String> {
    let folder = sources::fetch("mpich", &["*/test/mpi/*", "*/examples/*"])?;
    let list = testlist::parse(&read(&root().join("ci/suites/mpich/list"))?)?;
    let suite = MpichSuite::new(&folder, (prefix, hosts), &list)?;
    pi(tally, &suite, &folder)?;
    let present = Present::here()?;
    let (ready, later): (Vec<_>, Vec<_>) =
        list.into_iter().partition(|entry| present.allows(entry));
    let programs: BTreeSet<&str> = ready.iter().map(|entry| entry.program.as_str()).collect();
    let broken = compiling::all(&programs, |program| suite.compile(program))?;
    for (program, why) in &broken {
        tally.check(&format!("compile {program}"), || Err(why.clone()));
    }
    let is_built = |entry: &&Entry| !broken.iter().any(|(name, _)| *name == entry.program);
    for entry in ready.iter().filter(is_built) {
        for ranks in &entry.ranks {
            let name = entry.name(*ranks);
            match &entry.xfail {
                Some(why) => tally.check_expected(&name, why, || suite.run_one(entry, *ranks)),
                None => tally.check(&name, || suite.run_one(entry, *ranks)),
            }
        }
    }
    println!(
        "  {} programs wait for functions that have no body yet",
        later.len()
    );
    Ok(())
}

/// Runs MPICH's example `cpi`.
fn pi(tally: &mut Tally, suite: &MpichSuite, folder: &Path) -> Result<(), String> {
    let program = suite.build.join("cpi");
    let mut compiler = command(suite.prefix.join("bin/rmpicc"));
    compiler
        .args(["-O2", "-o"])
        .arg(&program)
        .arg(folder.join("examples/cpi.c"))
        .arg("-lm");
    quiet(compiler, Duration::from_secs(300))?;
    for ranks in [4, 64] {
        tally.check(&format!("examples/cpi -n {ranks}"), || {
            let output = suite.launch(ranks, Duration::from_secs(300), |job| {
                job.arg(&program);
            })?;
            let near = output.contains("pi is approximately 3.14159265");
            if near {
                Ok(())
            } else {
                Err(format!("it printed: {output}"))
            }
        });
    }
    Ok(())
}

impl MpichSuite {
    fn new(
        folder: &Path,
        (prefix, hosts): (&Path, Option<u32>),
        list: &[Entry],
    ) -> Result<Self, String> {
        let source = folder.join("test/mpi");
        let build = folder.join("build");
        make_folder(&build)?;
        let mut makefiles = BTreeMap::new();
        for entry in list {
            let part = folder_of(&entry.program).to_string();
            let file = source.join(&part).join("Makefile.am");
            if !makefiles.contains_key(&part) && file.exists() {
                makefiles.insert(part, Makefile::parse(&read(&file)?));
            }
        }
        let suite = Self {
            source,
            build,
            prefix: prefix.to_path_buf(),
            hosts,
            makefiles,
        };
        for helper in [
            "mtest",
            "mtest_common",
            "mtest_single",
            "mtest_thread",
            "dtypes",
        ] {
            let mut compiler = suite.compiler();
            compiler
                .arg("-c")
                .arg(suite.source.join(format!("util/{helper}.c")));
            compiler
                .arg("-o")
                .arg(suite.build.join(format!("{helper}.o")));
            quiet(compiler, Duration::from_secs(300))?;
        }
        Ok(suite)
    }

    fn compiler(&self) -> Command {
        let mut compiler = command(self.prefix.join("bin/rmpicc"));
        compiler.args(["-w", "-O1", "-g", "-pthread", "-DHAVE_CONFIG_H"]);
        compiler.arg("-I").arg(root().join("ci/suites/mpich"));
        for folder in ["include", "dtpools/include", "util"] {
            compiler.arg("-I").arg(self.source.join(folder));
        }
        compiler
    }

    fn program(&self, name: &str) -> PathBuf {
        self.build.join(name.replace('/', "-"))
    }

    fn compile(&self, name: &str) -> Result<(), String> {
        let (folder, program) = (folder_of(name), name.rsplit('/').next().unwrap_or(name));
        let own = [format!("{program}.c")];
        let makefile = self.makefiles.get(folder);
        let sources = makefile.and_then(|file| file.sources.get(program));
        let flags = makefile.and_then(|file| file.flags.get(program));
        let mut compiler = self.compiler();
        if folder == "mpi_t" {
            compiler.args(MPICH_TOOLS);
        }
        compiler
            .args(flags.into_iter().flatten())
            .arg("-o")
            .arg(self.program(name));
        for source in sources.map_or(&own[..], Vec::as_slice) {
            compiler.arg(self.source.join(folder).join(source));
        }
        let kind = if folder.starts_with("threads") {
            "mtest_thread"
        } else {
            "mtest_single"
        };
        for helper in ["mtest", "mtest_common", "dtypes", kind] {
            compiler.arg(self.build.join(format!("{helper}.o")));
        }
        compiler.arg("-lm");
        quiet(compiler, Duration::from_secs(300)).map(|_| ())
    }

    fn run_one(&self, entry: &Entry, ranks: u32) -> Result<(), String> {
        let output = self.launch(ranks, Duration::from_secs(entry.limit_s), |job| {
            job.arg(self.program(&entry.program)).args(&entry.args);
            job.envs(entry.env.iter().map(|(name, value)| (name, value)));
        })?;
        let good = output
            .lines()
            .any(|line| line.trim().eq_ignore_ascii_case("no errors"));
        if good {
            Ok(())
        } else {
            Err(format!("it did not print `No Errors` but:\n{output}"))
        }
    }

    /// Runs a job and returns its output; `program` adds the program to the launcher's arguments.
    fn launch(
        &self,
        ranks: u32,
        limit: Duration,
        program: impl FnOnce(&mut Command),
    ) -> Result<String, String> {
        let place = (&*self.prefix, self.hosts);
        launch_over(place, ranks, &self.build, limit, program).map(|done| done.stdout)
    }
}

impl Makefile {
    /// Parses lines such as `x_SOURCES = a.c b.c` and `x_CPPFLAGS = -DX $(AM_CPPFLAGS)`.
    pub(super) fn parse(text: &str) -> Self {
        let mut made = Self::default();
        for line in text.lines() {
            let Some((left, right)) = line.split_once('=') else {
                continue;
            };
            let values = right.split_whitespace().map(String::from);
            let left = left.trim();
            if let Some(program) = left.strip_suffix("_SOURCES") {
                made.sources.insert(program.into(), values.collect());
            } else if let Some(program) = left.strip_suffix("_CPPFLAGS") {
                let flags = values.filter(|value| value.starts_with("-D")).collect();
                made.flags.insert(program.into(), flags);
            }
        }
        made
    }
}

pub(super) fn folder_of(program: &str) -> &str {
    program.rsplit_once('/').map_or("", |(folder, _)| folder)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn makefiles_have_sources_and_definitions() {
        let made = Makefile::parse(
            "noinst_PROGRAMS = \\\nmt_send_SOURCES = common.c impl.c\n\
             mt_send_CPPFLAGS = -DSEND $(AM_CPPFLAGS)\n",
        );
        assert_eq!(made.sources["mt_send"], ["common.c", "impl.c"]);
        assert_eq!(made.flags["mt_send"], ["-DSEND"]);
    }

    #[test]
    fn the_list_is_well_formed() {
        let list = testlist::parse(&read(&root().join("ci/suites/mpich/list")).unwrap()).unwrap();
        assert!(list.len() > 100);
        assert!(
            list.iter()
                .all(|entry| !folder_of(&entry.program).is_empty())
        );
    }
}
