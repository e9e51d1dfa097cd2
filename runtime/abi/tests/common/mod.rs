// SPDX-License-Identifier: MIT OR Apache-2.0
//! Helpers of the tests of the C interface: they install a tree, read the standard's data, and run compilers.
#![allow(dead_code, reason = "each test binary uses a part of it")]

use std::fs::{self, File};
use std::io::ErrorKind;
use std::os::unix::process::parent_id;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;

/// The root of the repository, above the crate of the tests.
pub(crate) fn root() -> PathBuf {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    let root = folder
        .ancestors()
        .find(|at| at.join("Cargo.lock").is_file());
    root.unwrap().to_path_buf()
}

/// The folder of `mpi-abi`.
pub(crate) fn abi() -> PathBuf {
    root().join("runtime/abi")
}

/// The folder with the generated `mpi.h`.
pub(crate) fn generated() -> PathBuf {
    abi().join("gen")
}

/// A fresh folder for one test.
pub(crate) fn scratch(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"))
        .join("abi")
        .join(name);
    // This fails in the first run, when the folder does not exist.
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).unwrap();
    folder
}

/// A tree with library, header and wrappers, installed as by a user, but from a fast build. It is installed once per
/// test run.
pub(crate) fn prefix() -> &'static Path {
    static PREFIX: OnceLock<PathBuf> = OnceLock::new();
    PREFIX.get_or_init(install)
}

fn install() -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("abi-prefix");
    fs::create_dir_all(&folder).unwrap();
    // Some test runners start a process for each test. The first process installs the tree; the others find its stamp
    // file.
    let lock = File::create(folder.join(".lock")).unwrap();
    lock.lock().unwrap();
    let mark = folder.join(".installed");
    let run = run_of_tests();
    if fs::read_to_string(&mark).is_ok_and(|old| old == run) {
        return folder;
    }
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().unwrap();
    let mut install = Command::new(env!("CARGO"));
    install.current_dir(root()).env("CARGO_TARGET_DIR", target);
    install.args(["run", "--quiet", "--package", "xtask", "--"]);
    install
        .args(["install", "--library-only", "--quick", "--prefix"])
        .arg(&folder);
    succeed(&mut install);
    fs::write(&mark, run).unwrap();
    folder
}

/// A text that identifies the process that runs all tests: its pid and start time.
fn run_of_tests() -> String {
    let parent = parent_id();
    let stat = fs::read_to_string(format!("/proc/{parent}/stat")).unwrap_or_default();
    let after_name = stat.rsplit(')').next().unwrap_or_default();
    format!(
        "{parent} {}",
        after_name.split_whitespace().nth(19).unwrap_or_default()
    )
}

/// The rows of one of the standard's files, without the header.
pub(crate) fn standard(name: &str) -> Vec<Vec<String>> {
    let text = fs::read_to_string(abi().join("standard").join(name)).unwrap();
    let columns = |line: &str| line.split('\t').map(str::to_owned).collect();
    text.lines().skip(1).map(columns).collect()
}

/// The names of all functions of the standard.
pub(crate) fn function_names() -> Vec<String> {
    let names: Vec<String> = standard("functions.tsv")
        .into_iter()
        .map(|row| row[1].clone())
        .collect();
    assert_eq!(names.len(), 664);
    names
}

/// The library's exports besides functions.
pub(crate) fn exports() -> Vec<String> {
    let table = fs::read_to_string(abi().join("mpi.api")).unwrap();
    let names = table
        .lines()
        .filter_map(|line| line.strip_prefix("export "));
    names.map(|name| name.trim().to_owned()).collect()
}

/// Runs a program; panics with its output if it fails.
pub(crate) fn succeed(command: &mut Command) -> String {
    let output = run(command);
    assert!(
        output.status.success(),
        "{command:?}: {}\n{}{}",
        output.status,
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Runs a program that must exist.
pub(crate) fn run(command: &mut Command) -> Output {
    let program = command.get_program().to_string_lossy().into_owned();
    loop {
        match command.output() {
            Ok(output) => return output,
            // Another test of this process forked while the program was being copied. The forked child has the file
            // open for writing until it calls exec.
            Err(why) if why.kind() == ErrorKind::ExecutableFileBusy => std::thread::yield_now(),
            Err(why) => panic!(
                "cannot run `{program}`: {why}; `cargo xtask setup` installs what the tests need"
            ),
        }
    }
}

/// Writes a source file and returns its path.
pub(crate) fn source(folder: &Path, name: &str, text: &str) -> PathBuf {
    let path = folder.join(name);
    fs::write(&path, text).unwrap();
    path
}
