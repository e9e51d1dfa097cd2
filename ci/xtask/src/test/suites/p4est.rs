// SPDX-License-Identifier: MIT OR Apache-2.0
//! p4est (forests of octrees), from the distribution's source package: its tests, with all its internal checks enabled.

use super::super::compiling;
use super::launch::launch;
use super::listed::{ListedPrograms, folder};
use super::made::{made, of};
use super::{Tally, sources};
use crate::process::quiet;
use crate::tree::{command, make_folder};
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// The sources of the library: folders of the package, each with the names of the files that are used. An empty list
/// stands for all files of the folder.
const LIBRARY: &[(&str, &[&str])] = &[
    ("src", &[]),
    ("sc/src", &[]),
    ("sc/iniparser", &["dictionary", "iniparser"]),
    ("sc/libb64", &["cdecode", "cencode"]),
];

pub(super) fn run(tally: &mut Tally, prefix: &Path) -> Result<(), String> {
    let source = sources::fetch("p4est", &["*"])?;
    let list = ListedPrograms::of("p4est")?;
    let tests = names(&source.join("test"))?;
    tally.check("p4est: every test is listed", || list.names_all(&tests));
    let configuration = ["sc_config.h", "p4est_config.h"].map(|name| folder("p4est").join(name));
    let built = made("p4est-built", &of(prefix, &configuration)?, |built| {
        let package = P4estPackage {
            source: &source,
            built,
            prefix,
        };
        package.build(&list.ready())
    })?;
    let work = built.join("work");
    list.run(tally, |entry, ranks| {
        let limit = Duration::from_secs(entry.limit_s);
        let program = |job: &mut Command| {
            // Some tests write files into their working directory.
            job.arg(built.join("bin").join(&entry.program))
                .current_dir(&work);
        };
        launch(prefix, ranks, &built.join("scratch"), limit, program).map(|_| ())
    });
    Ok(())
}

/// The folders of p4est: its source, its build, and the MPI that it is built with.
struct P4estPackage<'a> {
    source: &'a Path,
    built: &'a Path,
    prefix: &'a Path,
}

impl P4estPackage<'_> {
    fn build(&self, tests: &BTreeSet<&str>) -> Result<(), String> {
        for folder in ["objects", "bin", "work"] {
            make_folder(&self.built.join(folder))?;
        }
        let mut library = BTreeSet::new();
        for (folder, some) in LIBRARY {
            let all = names(&self.source.join(folder))?;
            let chosen = all
                .iter()
                .filter(|name| some.is_empty() || some.contains(&name.as_str()));
            library.extend(chosen.map(|name| format!("{folder}/{name}")));
        }
        let files = library.iter().map(String::as_str).collect();
        first(compiling::all(&files, |file| self.compile(file))?)?;
        let mut archive = command("ar");
        archive.arg("rcs").arg(self.archive());
        archive.args(library.iter().map(|file| self.object(file)));
        quiet(archive, Duration::from_secs(300))?;
        first(compiling::all(tests, |test| self.link(test))?)
    }

    fn compiler(&self) -> Command {
        let mut compiler = command(self.prefix.join("bin/rmpicc"));
        compiler.args(["-w", "-O2", "-I"]).arg(folder("p4est"));
        for (folder, _) in LIBRARY {
            compiler.arg("-I").arg(self.source.join(folder));
        }
        compiler
    }

    fn compile(&self, file: &str) -> Result<(), String> {
        let mut compiler = self.compiler();
        compiler
            .arg("-c")
            .arg(self.source.join(format!("{file}.c")));
        compiler.arg("-o").arg(self.object(file));
        quiet(compiler, Duration::from_secs(600)).map(|_| ())
    }

    fn link(&self, test: &str) -> Result<(), String> {
        let mut compiler = self.compiler();
        compiler.arg(self.source.join(format!("test/{test}.c")));
        compiler.arg(self.archive()).args(["-lz", "-lm", "-o"]);
        compiler.arg(self.built.join("bin").join(test));
        quiet(compiler, Duration::from_secs(600)).map(|_| ())
    }

    fn object(&self, file: &str) -> PathBuf {
        let name = format!("{}.o", file.replace('/', "-"));
        self.built.join("objects").join(name)
    }

    fn archive(&self) -> PathBuf {
        self.built.join("libp4est.a")
    }
}

/// The names of the C files of a folder, without `.c`.
fn names(folder: &Path) -> Result<BTreeSet<String>, String> {
    let entries = fs::read_dir(folder).map_err(|why| format!("{}: {why}", folder.display()))?;
    let names = entries
        .flatten()
        .map(|entry| entry.file_name().to_string_lossy().into_owned());
    Ok(names
        .filter_map(|name| name.strip_suffix(".c").map(String::from))
        .collect())
}

/// An error that names the first file that did not compile.
fn first(broken: Vec<(String, String)>) -> Result<(), String> {
    match broken.into_iter().next() {
        None => Ok(()),
        Some((file, why)) => Err(format!("p4est's {file} does not compile: {why}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn c_files_are_found_by_name() {
        let found = names(&folder("exchange")).unwrap();
        assert_eq!(found, BTreeSet::from(["whose_library".to_string()]));
    }

    #[test]
    fn a_file_that_does_not_compile_is_named() {
        assert_eq!(first(Vec::new()), Ok(()));
        let error = first(vec![("src/p4est".into(), "no".into())]).unwrap_err();
        assert!(error.contains("src/p4est"));
    }
}
