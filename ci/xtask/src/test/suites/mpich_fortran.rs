// SPDX-License-Identifier: MIT OR Apache-2.0
//! The Fortran part of MPICH's test suite: its folders `f77` (mpif.h), `f90` (`use mpi`) and `f08` (`use mpi_f08`).
//!
//! `ci/suites/mpich_fortran/list` lists the programs, and why others are not run.

use super::super::compiling;
use super::super::testlist::{self, Entry};
use super::coverage::Present;
use super::launch::launch;
use super::mpich::{Makefile, folder_of};
use super::{Tally, sources};
use crate::process::quiet;
use crate::tree::{command, make_folder, read, root};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// The unpacked suite, the folder of its built programs, and the MPI under test.
struct MpichFortranSuite {
    source: PathBuf,
    build: PathBuf,
    prefix: PathBuf,
    /// By folder: the sources of the programs that are not built from a single file with the program's name.
    makefiles: BTreeMap<String, Makefile>,
}

pub(super) fn run(tally: &mut Tally, prefix: &Path) -> Result<(), String> {
    let folder = sources::fetch("mpich", &["*/test/mpi/*", "*/examples/*"])?;
    let list = testlist::parse(&read(&root().join(LIST))?)?;
    let present = Present::here()?;
    let (list, later): (Vec<_>, Vec<_>) = list.into_iter().partition(|entry| present.allows(entry));
    let suite = MpichFortranSuite::new(&folder, prefix, &list)?;
    let programs: BTreeSet<&str> = list.iter().map(|entry| entry.program.as_str()).collect();
    let broken = compiling::all(&programs, |program| suite.compile(program))?;
    for (program, why) in &broken {
        tally.check(&format!("compile {program}"), || Err(why.clone()));
    }
    let is_built = |entry: &&Entry| !broken.iter().any(|(name, _)| *name == entry.program);
    for entry in list.iter().filter(is_built) {
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

impl MpichFortranSuite {
    fn new(folder: &Path, prefix: &Path, list: &[Entry]) -> Result<Self, String> {
        let source = folder.join("test/mpi");
        let build = folder.join("build-fortran");
        make_folder(&build)?;
        let folders: BTreeSet<&str> = list.iter().map(|entry| folder_of(&entry.program)).collect();
        let mut makefiles = BTreeMap::new();
        for folder in folders {
            let text = read(&source.join(folder).join("Makefile.am"))?;
            makefiles.insert(folder.to_string(), Makefile::parse(&text));
        }
        let suite = Self {
            source,
            build,
            prefix: prefix.to_path_buf(),
            makefiles,
        };
        suite.configure()?;
        for helper in HELPERS {
            let mut compiler = suite.compiler(helper.method, helper.object)?;
            compiler.arg("-c").arg(suite.source.join(helper.source));
            compiler.arg("-o").arg(suite.build.join(helper.object));
            quiet(compiler, Duration::from_secs(300))?;
        }
        Ok(suite)
    }

    /// Writes the files that `configure` would write: declarations of integers that are as wide as addresses, and
    /// macros for the parts in C.
    fn configure(&self) -> Result<(), String> {
        let macros = read(&root().join("ci/suites/mpich/mpitestconf.h"))?;
        let macros = macros + "#define F77_NAME_LOWER_USCORE 1\n#define HAVE_FINT_IS_INT 1\n";
        write(&self.source.join("include/mpitestconf.h"), &macros)?;
        for (folder, name) in DECLARATIONS {
            let template = self.source.join(format!("f77/{folder}/{name}.in"));
            let text = read(&template)?.replace("@F77_MPI_ADDRESS@", "integer*8");
            write(&self.build.join(name), &text)?;
        }
        Ok(())
    }

    /// The compiler command for programs of a method, `f77`, `f90` or `f08`; the modules of each program have a
    /// separate folder.
    fn compiler(&self, method: &str, program: &str) -> Result<Command, String> {
        let modules = self.build.join(format!("{program}.modules"));
        make_folder(&modules)?;
        let mut compiler = command(self.prefix.join("bin/rmpifort"));
        compiler.args(["-w", "-O1", "-g", "-DHAVE_CONFIG_H"]);
        if method != "f08" {
            // These programs pass buffers of all types to the same procedure, which the compiler would otherwise
            // reject.
            compiler.arg("-fallow-argument-mismatch");
        }
        compiler.arg("-J").arg(modules).arg("-I").arg(&self.build);
        compiler.arg("-I").arg(self.source.join("include"));
        Ok(compiler)
    }

    fn compile(&self, name: &str) -> Result<(), String> {
        let folder = folder_of(name);
        let program = name.rsplit('/').next().unwrap_or(name);
        let method = name.split('/').next().unwrap_or(name);
        let own = [format!(
            "{program}{}",
            if method == "f77" { ".f" } else { ".f90" }
        )];
        let makefile = self.makefiles.get(folder);
        let sources = makefile.and_then(|file| file.sources.get(program));
        let mut compiler = self.compiler(method, &flat(name))?;
        compiler.arg("-o").arg(self.build.join(flat(name)));
        for source in sources.map_or(&own[..], Vec::as_slice) {
            let file = self.source.join(folder).join(source);
            // The parts in C of `f08` are those of `f90`, from which its makefiles copy them.
            let elsewhere = self.source.join(folder.replace("f08", "f90")).join(source);
            compiler.arg(if file.is_file() { file } else { elsewhere });
        }
        let helper = HELPERS.iter().find(|helper| helper.method == method);
        let helper = helper.ok_or_else(|| format!("`{method}` is no method"))?;
        compiler
            .arg("-I")
            .arg(self.build.join(format!("{}.modules", helper.object)));
        compiler.arg(self.build.join(helper.object));
        quiet(compiler, Duration::from_secs(300)).map(|_| ())
    }

    fn run_one(&self, entry: &Entry, ranks: u32) -> Result<(), String> {
        let limit = Duration::from_secs(entry.limit_s);
        let done = launch(&self.prefix, ranks, &self.build, limit, |job| {
            job.arg(self.build.join(flat(&entry.program)));
            job.args(&entry.args);
            job.envs(entry.env.iter().map(|(name, value)| (name, value)));
        })?;
        let output = done.stdout;
        let good = output
            .lines()
            .any(|line| line.trim().eq_ignore_ascii_case("no errors"));
        if good {
            Ok(())
        } else {
            Err(format!("it did not print `No Errors` but:\n{output}"))
        }
    }
}

/// The object with which all programs of a method are linked.
struct Helper {
    method: &'static str,
    source: &'static str,
    object: &'static str,
}

const HELPERS: [Helper; 3] = [
    Helper {
        method: "f77",
        source: "util/mtest_f77.f",
        object: "mtest_f77.o",
    },
    Helper {
        method: "f90",
        source: "util/mtest_f90.f90",
        object: "mtest_f90.o",
    },
    Helper {
        method: "f08",
        source: "util/mtest_f08.f90",
        object: "mtest_f08.o",
    },
];

/// The folder and the name of each file with declarations.
const DECLARATIONS: [(&str, &str); 4] = [
    ("attr", "attraints.h"),
    ("ext", "add1size.h"),
    ("datatype", "typeaints.h"),
    ("pt2pt", "attr1aints.h"),
];

const LIST: &str = "ci/suites/mpich_fortran/list";

/// A program's file in the build folder.
fn flat(name: &str) -> String {
    name.replace('/', "-")
}

fn write(file: &Path, text: &str) -> Result<(), String> {
    fs::write(file, text).map_err(|why| format!("cannot write {}: {why}", file.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_is_well_formed_and_has_all_three_methods() {
        let list = testlist::parse(&read(&root().join(LIST)).unwrap()).unwrap();
        for helper in &HELPERS {
            let method = format!("{}/", helper.method);
            let programs = list
                .iter()
                .filter(|entry| entry.program.starts_with(&method));
            assert!(programs.count() > 30, "{method}");
        }
    }
}
