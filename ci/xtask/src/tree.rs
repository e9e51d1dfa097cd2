// SPDX-License-Identifier: MIT OR Apache-2.0
//! Paths of the repository, the build folder and the installed tree, and the commands that run there.

use std::env;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// The root of the repository.
pub(crate) fn root() -> PathBuf {
    let here = env::var_os("CARGO_MANIFEST_DIR")
        .map_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")), PathBuf::from);
    here.ancestors()
        .nth(2)
        .map_or_else(|| here.clone(), Path::to_path_buf)
}

/// The build folder: `CARGO_TARGET_DIR`, or `target` in the repository.
pub(crate) fn target() -> PathBuf {
    env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), |dir| root().join(dir))
}

/// The folder into which `demo`, `test`, `bench` and `compare` install.
pub(crate) fn prefix() -> PathBuf {
    target().join("rmpi")
}

/// The full path of a program that is in `PATH`.
pub(crate) fn find_program(name: &str) -> Option<PathBuf> {
    let path = env::var_os("PATH")?;
    env::split_paths(&path)
        .map(|dir| dir.join(name))
        .find(|file| is_executable(file))
}

fn is_executable(file: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt;
    fs::metadata(file).is_ok_and(|data| data.is_file() && data.permissions().mode() & 0o111 != 0)
}

/// A command that runs in the root of the repository, without the variables that `cargo run` sets for this program: a
/// rank must not find libraries by them.
pub(crate) fn command(program: impl AsRef<std::ffi::OsStr>) -> Command {
    let mut command = Command::new(program);
    command.current_dir(root());
    if let Some(folder) = FIRST_IN_PATH.get() {
        command.env("PATH", before_others(folder));
    }
    for (name, _) in env::vars_os() {
        let text = name.to_string_lossy();
        let ours = text.starts_with("CARGO_PKG_") || text.starts_with("CARGO_MANIFEST_");
        if ours || text == "CARGO" || text == "CARGO_CRATE_NAME" || text == "CARGO_BIN_NAME" {
            command.env_remove(name);
        }
    }
    if let Some(paths) = env::var_os("LD_LIBRARY_PATH") {
        let kept: Vec<_> = env::split_paths(&paths)
            .filter(|dir| !is_cargos(dir))
            .collect();
        match env::join_paths(&kept) {
            Ok(joined) if !kept.is_empty() => command.env("LD_LIBRARY_PATH", joined),
            _ => command.env_remove("LD_LIBRARY_PATH"),
        };
    }
    command
}

/// Puts this folder first into the `PATH` of every command that is made from now on.
pub(crate) fn put_first_in_path(folder: &Path) {
    // Only the first call has an effect: there is one such folder.
    let _ = FIRST_IN_PATH.set(folder.to_path_buf());
}

/// `PATH` with this folder first.
fn before_others(folder: &Path) -> OsString {
    let others = env::var_os("PATH").unwrap_or_default();
    let all = [folder.to_path_buf()]
        .into_iter()
        .chain(env::split_paths(&others));
    env::join_paths(all).unwrap_or(others)
}

static FIRST_IN_PATH: OnceLock<PathBuf> = OnceLock::new();

/// The `cargo` that runs this program.
pub(crate) fn cargo() -> Command {
    command(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
}

/// Whether `cargo run` puts this folder into `LD_LIBRARY_PATH`: build output or the toolchain.
fn is_cargos(dir: &Path) -> bool {
    let sysroot = env::var_os("RUSTUP_HOME").map(PathBuf::from);
    let toolchains = dir
        .components()
        .any(|part| part.as_os_str() == "toolchains");
    dir.as_os_str().is_empty()
        || dir.starts_with(target())
        || sysroot.is_some_and(|home| dir.starts_with(home))
        || (toolchains && dir.ends_with("lib"))
        || dir.to_string_lossy().contains("rustlib")
}

/// Creates a folder and its parents; an error names the path.
pub(crate) fn make_folder(dir: &Path) -> Result<(), String> {
    fs::create_dir_all(dir).map_err(|why| format!("cannot create {}: {why}", dir.display()))
}

/// Reads a text file; an error names the path.
pub(crate) fn read(file: &Path) -> Result<String, String> {
    fs::read_to_string(file).map_err(|why| format!("cannot read {}: {why}", file.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_root_holds_the_workspace() {
        assert!(root().join("ci/xtask/Cargo.toml").is_file());
    }

    #[test]
    fn a_program_on_the_path_is_found_and_a_missing_one_is_not() {
        assert!(find_program("sh").is_some());
        assert!(find_program("no-program-has-this-name").is_none());
    }

    #[test]
    fn build_folders_leave_the_library_path() {
        assert!(is_cargos(&target().join("debug/deps")));
        assert!(is_cargos(Path::new("/x/toolchains/1.95-x86_64/lib")));
        assert!(!is_cargos(Path::new("/opt/mpi/lib")));
    }
}
