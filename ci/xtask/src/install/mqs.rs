// SPDX-License-Identifier: MIT OR Apache-2.0
//! `librmpi_mqs.so`, which debuggers load, its header, and example programs that never end.

use std::fs;
use std::path::Path;

use super::{copy, copy_folder, rename, shared_library, write};
use crate::process::show;
use crate::tree::{cargo, make_folder, root, target};

/// Builds the library and installs it beside the MPI library, at the path that the MPI library reports to debuggers. It
/// is always built optimized: an unoptimized build keeps code that might panic, and such code cannot be linked here
/// (`mqs/dll`). A debugger may unload the library, because none of its code runs between two calls.
pub(super) fn install(prefix: &Path) -> Result<(), String> {
    let mut build = cargo();
    build.args(["build", "--quiet", "--release", "-p", "mqs-dll"]);
    show(build)?;
    let built = target().join("release");
    let script = built.join("librmpi_mqs.map");
    write(&script, "{\n  global:\n    mqs_*;\n  local: *;\n};\n")?;
    let fresh = prefix.join("lib/.librmpi_mqs.so.new");
    let archive = built.join("librmpi_mqs_static.a");
    let mut link = shared_library(&archive, &script, SHARED, &fresh);
    link.arg("-Wl,--strip-debug");
    show(link)?;
    rename(&fresh, &prefix.join("lib").join(SHARED))?;
    copy(
        &root().join("mqs/include/mpi_interface.h"),
        &prefix.join("include/mpi_interface.h"),
    )?;
    // The examples are programs on which users can try `rmpi-queues`.
    copy_folder("mqs/examples", &prefix.join("share/rmpi/mqs"))?;
    GDB.iter()
        .try_for_each(|folder| commands_of_gdb(prefix, folder))
}

/// Installs gdb's commands for MPI: Python scripts, which find the rest of the installation relative to their own
/// folder.
fn commands_of_gdb(prefix: &Path, folder: &str) -> Result<(), String> {
    let from = root().join("mqs/gdb").join(folder);
    let to = prefix.join("share/rmpi/gdb").join(folder);
    make_folder(&to)?;
    let entries =
        fs::read_dir(&from).map_err(|why| format!("cannot list {}: {why}", from.display()))?;
    for entry in entries.flatten() {
        let file = entry.path();
        if file.extension().is_some_and(|extension| extension == "py") {
            copy(&file, &to.join(entry.file_name()))?;
        }
    }
    Ok(())
}

const GDB: [&str; 2] = ["", "rmpi_gdb"];

const SHARED: &str = "librmpi_mqs.so";
