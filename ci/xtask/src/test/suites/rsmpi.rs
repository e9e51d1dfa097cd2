// SPDX-License-Identifier: MIT OR Apache-2.0
//! The crate `mpi`, built against `rmpicc`: its examples, most of which check themselves.
//!
//! `ci/suites/rsmpi` has a manifest that names the crate, and the lock file of its dependencies. The sources are copied
//! into the build folder, and so is libclang, with which the crate's build generates bindings for `mpi.h`.

use super::super::testlist::Entry;
use super::Tally;
use super::launch::{launch, shown};
use super::listed::{ListedPrograms, folder};
use super::made::{made, of};
use super::python::Python;
use crate::process::quiet;
use crate::tree::{cargo, command, make_folder};
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

pub(super) fn run(tally: &mut Tally, prefix: &Path) -> Result<(), String> {
    let given = ["Cargo.toml", "Cargo.lock", "tools.txt"].map(|name| folder("rsmpi").join(name));
    let project = made("rsmpi", &of(prefix, &given)?, |project| {
        fetch(project).map_err(|why| format!("the crate mpi could not be fetched: {why}"))?;
        build(project, prefix).map_err(|why| format!("the crate mpi could not be built: {why}"))
    })?;
    let list = ListedPrograms::of("rsmpi")?;
    tally.check("rsmpi: every example is listed", || {
        list.names_all(&examples(&project)?)
    });
    list.run(tally, |entry, ranks| {
        run_one(&project, prefix, entry, ranks)
    });
    Ok(())
}

/// Fetches libclang, and the sources of the crate and of its dependencies according to the lock file.
fn fetch(project: &Path) -> Result<(), String> {
    let python = Python::make(project)?;
    python.install(&folder("rsmpi").join("tools.txt"))?;
    for folder in ["src/bin", ".cargo"] {
        make_folder(&project.join(folder))?;
    }
    for name in ["Cargo.toml", "Cargo.lock"] {
        copy(&folder("rsmpi").join(name), &project.join(name))?;
    }
    write(&project.join("src/lib.rs"), "//! Only its examples.\n")?;
    let mut vendor = cargo();
    vendor
        .current_dir(project)
        .args(["vendor", "--quiet", "--locked", "vendor"]);
    quiet(vendor, Duration::from_secs(600))?;
    write(&project.join(".cargo/config.toml"), FROM_HERE)?;
    for name in examples(project)? {
        let file = format!("{name}.rs");
        let from = project.join("vendor/mpi/examples").join(&file);
        copy(&from, &project.join("src/bin").join(&file))?;
    }
    Ok(())
}

fn build(project: &Path, prefix: &Path) -> Result<(), String> {
    // The package of libclang does not contain the compiler's own headers (stddef.h), so those of the C compiler are
    // used.
    let mut cc = command("cc");
    cc.arg("-print-file-name=include");
    let headers = quiet(cc, Duration::from_secs(120))?;
    let mut build = cargo();
    build
        .current_dir(project)
        .args(["build", "--quiet", "--locked", "--offline", "--bins"])
        .env("CARGO_TARGET_DIR", project.join("target"))
        .env("MPICC", prefix.join("bin/rmpicc"))
        .env("LIBCLANG_PATH", libclang(project)?)
        .env("BINDGEN_EXTRA_CLANG_ARGS", format!("-I{}", headers.trim()))
        // The examples turn warnings into errors, and newer compilers have more warnings; this option keeps them
        // warnings.
        .env("RUSTFLAGS", "--cap-lints=warn");
    quiet(build, Duration::from_secs(1800)).map(|_| ())
}

/// The folder with libclang.so: below `lib/python3.X/site-packages`.
fn libclang(project: &Path) -> Result<PathBuf, String> {
    let mut find = command("find");
    find.arg(project.join("venv"))
        .args(["-name", "libclang.so"]);
    let found = quiet(find, Duration::from_secs(120))?;
    let file = found.lines().next().map(Path::new);
    let folder = file.and_then(Path::parent).map(Path::to_path_buf);
    folder.ok_or_else(|| "the package libclang brought no libclang.so".into())
}

/// The names of the crate's examples.
fn examples(project: &Path) -> Result<BTreeSet<String>, String> {
    let folder = project.join("vendor/mpi/examples");
    let entries = fs::read_dir(&folder).map_err(|why| format!("{}: {why}", folder.display()))?;
    let names = entries
        .flatten()
        .map(|entry| entry.file_name().to_string_lossy().into_owned());
    Ok(names
        .filter_map(|name| name.strip_suffix(".rs").map(String::from))
        .collect())
}

fn run_one(project: &Path, prefix: &Path, entry: &Entry, ranks: u32) -> Result<(), String> {
    let limit = Duration::from_secs(entry.limit_s);
    let program = |job: &mut Command| {
        job.arg(project.join("target/debug").join(&entry.program));
    };
    let done = launch(prefix, ranks, &project.join("scratch"), limit, program)?;
    match entry.says.iter().find(|text| !done.stdout.contains(*text)) {
        None => Ok(()),
        Some(text) => Err(format!("it did not print `{text}` but:\n{}", shown(&done))),
    }
}

fn copy(from: &Path, to: &Path) -> Result<(), String> {
    let copied = fs::copy(from, to).map(|_| ());
    copied.map_err(|why| format!("{} to {}: {why}", from.display(), to.display()))
}

fn write(file: &Path, text: &str) -> Result<(), String> {
    fs::write(file, text).map_err(|why| format!("cannot write {}: {why}", file.display()))
}

/// Cargo's settings for sources in the folder `vendor` beside the manifest.
const FROM_HERE: &str = "\
[source.crates-io]
replace-with = \"here\"
[source.here]
directory = \"vendor\"
";
