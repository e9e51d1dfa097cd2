// SPDX-License-Identifier: MIT OR Apache-2.0
//! `librmpi_mqs.so`, which debuggers load, and its header.

use std::path::Path;

use super::{copy, rename, shared_library, write};
use crate::process::show;
use crate::tree::{cargo, root, target};

/// Builds the library and installs it beside the MPI library, where that says it is. Always optimized, for only then it can be
/// linked: what might panic lacks a function (`mqs/dll`).
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
    )
}

const SHARED: &str = "librmpi_mqs.so";
