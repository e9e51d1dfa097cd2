// SPDX-License-Identifier: MIT OR Apache-2.0
//! The crate `mpi`, built against `rmpicc`: its examples, most of which check themselves.
//!
//! `ci/suites/rsmpi` has a manifest that names the crate and the lock file of all that it needs. The sources are copied into
//! the build folder, and so is libclang, which writes the crate's bindings to `mpi.h` when it is built.

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
    let home = made("rsmpi", &of(prefix, &given)?, |home| {
        fetch(home).map_err(|why| format!("the crate mpi could not be fetched: {why}"))?;
        build(home, prefix).map_err(|why| format!("the crate mpi could not be built: {why}"))
    })?;
    let list = ListedPrograms::of("rsmpi")?;
    tally.check("rsmpi: every example is listed", || {
        list.names_all(&examples(&home)?)
    });
    list.run(tally, |entry, ranks| run_one(&home, prefix, entry, ranks));
    Ok(())
}

/// The sources of the crate and of all that it needs, as the lock file says, and libclang.
fn fetch(home: &Path) -> Result<(), String> {
    let python = Python::make(home)?;
    python.install(&folder("rsmpi").join("tools.txt"))?;
    for folder in ["src/bin", ".cargo"] {
        make_folder(&home.join(folder))?;
    }
    for name in ["Cargo.toml", "Cargo.lock"] {
        copy(&folder("rsmpi").join(name), &home.join(name))?;
    }
    write(&home.join("src/lib.rs"), "//! Only its examples.\n")?;
    let mut vendor = cargo();
    vendor
        .current_dir(home)
        .args(["vendor", "--quiet", "--locked", "vendor"]);
    quiet(vendor, Duration::from_secs(600))?;
    write(&home.join(".cargo/config.toml"), FROM_HERE)?;
    for name in examples(home)? {
        let file = format!("{name}.rs");
        let from = home.join("vendor/mpi/examples").join(&file);
        copy(&from, &home.join("src/bin").join(&file))?;
    }
    Ok(())
}

fn build(home: &Path, prefix: &Path) -> Result<(), String> {
    // The package of libclang lacks the compiler's own headers (stddef.h); those of the C compiler do.
    let mut cc = command("cc");
    cc.arg("-print-file-name=include");
    let headers = quiet(cc, Duration::from_secs(120))?;
    let mut build = cargo();
    build
        .current_dir(home)
        .args(["build", "--quiet", "--locked", "--offline", "--bins"])
        .env("CARGO_TARGET_DIR", home.join("target"))
        .env("MPICC", prefix.join("bin/rmpicc"))
        .env("LIBCLANG_PATH", libclang(home)?)
        .env("BINDGEN_EXTRA_CLANG_ARGS", format!("-I{}", headers.trim()))
        // The examples forbid warnings, of which newer compilers have more.
        .env("RUSTFLAGS", "--cap-lints=warn");
    quiet(build, Duration::from_secs(1800)).map(|_| ())
}

/// The folder with libclang.so: below `lib/python3.X/site-packages`.
fn libclang(home: &Path) -> Result<PathBuf, String> {
    let mut find = command("find");
    find.arg(home.join("venv")).args(["-name", "libclang.so"]);
    let found = quiet(find, Duration::from_secs(120))?;
    let file = found.lines().next().map(Path::new);
    let folder = file.and_then(Path::parent).map(Path::to_path_buf);
    folder.ok_or_else(|| "the package libclang brought no libclang.so".into())
}

/// The names of the crate's examples.
fn examples(home: &Path) -> Result<BTreeSet<String>, String> {
    let folder = home.join("vendor/mpi/examples");
    let entries = fs::read_dir(&folder).map_err(|why| format!("{}: {why}", folder.display()))?;
    let names = entries
        .flatten()
        .map(|entry| entry.file_name().to_string_lossy().into_owned());
    Ok(names
        .filter_map(|name| name.strip_suffix(".rs").map(String::from))
        .collect())
}

fn run_one(home: &Path, prefix: &Path, entry: &Entry, ranks: u32) -> Result<(), String> {
    let limit = Duration::from_secs(entry.limit_s);
    let words = |job: &mut Command| {
        job.arg(home.join("target/debug").join(&entry.program));
    };
    let done = launch(prefix, ranks, &home.join("scratch"), limit, words)?;
    match entry.says.iter().find(|said| !done.stdout.contains(*said)) {
        None => Ok(()),
        Some(said) => Err(format!("it did not say `{said}` but:\n{}", shown(&done))),
    }
}

fn copy(from: &Path, to: &Path) -> Result<(), String> {
    let copied = fs::copy(from, to).map(|_| ());
    copied.map_err(|why| format!("{} to {}: {why}", from.display(), to.display()))
}

fn write(file: &Path, text: &str) -> Result<(), String> {
    fs::write(file, text).map_err(|why| format!("cannot write {}: {why}", file.display()))
}

/// Cargo's settings for sources that lie beside the manifest.
const FROM_HERE: &str = "\
[source.crates-io]
replace-with = \"here\"
[source.here]
directory = \"vendor\"
";
