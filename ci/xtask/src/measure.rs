// SPDX-License-Identifier: MIT OR Apache-2.0
//! `bench`, `compare` and `peers`: run the programs of the crate `bench`.

use crate::process::{exec, show};
use crate::tree::{cargo, command, prefix, target};
use crate::{install, setup};
use std::ffi::OsString;
use std::process::Command;

/// `cargo xtask bench [NAME [OPTION...]]`.
pub(crate) fn bench(args: &[String]) -> Result<(), String> {
    setup::ensure(&["bench"])?;
    install::build(&prefix())?;
    let args = after_dashes(args);
    if !args.is_empty() {
        return exec(rmpi_bench(args));
    }
    for table in ["latency", "bandwidth"] {
        show(rmpi_bench(&[table.to_string()]))?;
    }
    Ok(())
}

/// `cargo xtask compare [--peer NAME=PREFIX...] [OPTION...]`.
pub(crate) fn compare(args: &[String]) -> Result<(), String> {
    setup::ensure(&["compare"])?;
    let args = after_dashes(args);
    let own = args
        .iter()
        .any(|arg| arg == "--rmpi" || arg.starts_with("--rmpi="));
    let informational = ["--help", "-h", "--list", "--version", "-V"];
    let help = args.iter().any(|arg| informational.contains(&arg.as_str()));
    let mut all: Vec<OsString> = args.iter().map(OsString::from).collect();
    if !own && !help {
        install::build(&prefix())?;
        all.extend(["--rmpi".into(), prefix().into_os_string()]);
    }
    exec(rmpi_compare(&all))
}

/// `cargo xtask peers [DIR]`.
pub(crate) fn peers(args: &[String]) -> Result<(), String> {
    let dir = match args {
        [] => target().join("peers"),
        [dir] if !dir.starts_with('-') => dir.into(),
        _ => {
            return Err(format!(
                "`peers` takes one folder, `{}` was given",
                args.join(" ")
            ));
        }
    };
    setup::ensure(&["peers"])?;
    exec(rmpi_compare(&["--fetch".into(), dir.into_os_string()]))
}

fn rmpi_bench(args: &[String]) -> Command {
    let mut bench = command(prefix().join("bin/rmpi-bench"));
    bench.args(args);
    in_working_folder(bench)
}

fn rmpi_compare(args: &[OsString]) -> Command {
    let mut compare = cargo();
    compare.args(["run", "--quiet", "--profile", "tool", "--package", "bench"]);
    compare.args(["--bin", "rmpi-compare", "--"]).args(args);
    in_working_folder(compare)
}

/// Lets the command run in the caller's working directory, because options may name files there.
fn in_working_folder(mut command: Command) -> Command {
    if let Ok(here) = std::env::current_dir() {
        command.current_dir(here);
    }
    command
}

/// The arguments without a leading `--`: `-- --help` passes `--help` to the program.
fn after_dashes(args: &[String]) -> &[String] {
    match args {
        [first, rest @ ..] if first == "--" => rest,
        _ => args,
    }
}
