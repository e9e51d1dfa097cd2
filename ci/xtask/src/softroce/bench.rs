// SPDX-License-Identifier: MIT OR Apache-2.0
//! `cargo xtask softroce --bench`: what `ci/softroce/bench` needs, and its command line.

use super::guest::Guest;
use crate::process::quiet;
use crate::tree::{command, make_folder, prefix, root, target};
use std::path::Path;
use std::time::Duration;

/// Installs rmpi, compiles the ping-pong without MPI, and returns the command that measures both. `args`: the numbers
/// of pairs, rounds and bytes; the last ones may be missing.
pub(super) fn command_line(guest: &Guest, args: &[String]) -> Result<Vec<String>, String> {
    crate::install::run(&[])?;
    let pingpong = compile(guest)?;
    let by_crate = compile_with_crate().unwrap_or_else(|why| {
        println!("the ping-pong by the crate ibverbs is left out: {why}");
        String::new()
    });
    let text = |path: &Path| path.to_string_lossy().into_owned();
    let mut line = vec![
        "sh".into(),
        text(&root().join("ci/softroce/bench")),
        text(&prefix()),
        pingpong,
        by_crate,
    ];
    line.extend_from_slice(args);
    Ok(line)
}

/// Compiles the ping-pong in C with the guest's headers and library: this machine needs none.
fn compile(guest: &Guest) -> Result<String, String> {
    let include = guest.include()?;
    let library = include.with_file_name("lib/x86_64-linux-gnu");
    let folder = target().join("softroce");
    make_folder(&folder)?;
    let program = folder.join("pingpong");
    let mut compiler = command("cc");
    compiler
        .args(["-O2", "-Wall", "-Wextra", "-o"])
        .arg(&program)
        .arg(root().join("ci/softroce/pingpong.c"))
        .arg("-I")
        .arg(&include)
        .arg("-L")
        .arg(&library)
        .arg(format!("-Wl,-rpath-link,{}", library.display()))
        .arg("-libverbs");
    quiet(compiler, Duration::from_secs(120))?;
    Ok(program.to_string_lossy().into_owned())
}

/// Compiles the ping-pong that uses the crate `ibverbs`, which builds a part of rdma-core and generates its bindings.
fn compile_with_crate() -> Result<String, String> {
    let folder = target().join("softroce/ibverbs");
    let mut cargo = command("cargo");
    cargo
        .args([
            "build",
            "--release",
            "--quiet",
            "--locked",
            "--manifest-path",
        ])
        .arg(root().join("ci/softroce/ibverbs-pingpong/Cargo.toml"))
        .env("CARGO_TARGET_DIR", &folder)
        .env("BINDGEN_EXTRA_CLANG_ARGS", compilers_headers()?);
    quiet(cargo, Duration::from_secs(600)).map_err(|why| {
        let packages = "cmake, libclang-dev, libnl-3-dev and libnl-route-3-dev";
        let last = why.lines().last().unwrap_or_default();
        format!("it needs {packages} (or LIBCLANG_PATH): {last}")
    })?;
    let program = folder.join("release/ibverbs-pingpong");
    Ok(program.to_string_lossy().into_owned())
}

/// The option for the C compiler's own headers, such as `stddef.h`, which are not part of libclang.
fn compilers_headers() -> Result<String, String> {
    let mut cc = command("cc");
    cc.arg("-print-file-name=include");
    let path = quiet(cc, Duration::from_secs(10))?;
    Ok(format!("-I{}", path.trim()))
}
