// SPDX-License-Identifier: MIT OR Apache-2.0
//! `bench`, `compare` and `peers`: doors to the programs of the crate `bench`.

use crate::process::show;
use crate::tree::{cargo, command, prefix, target};
use crate::{install, setup};
use std::ffi::OsString;

/// `cargo xtask bench [NAME [OPTION...]]`.
pub(crate) fn bench(args: &[String]) -> Result<(), String> {
    setup::ensure(&["bench"])?;
    install::build(&prefix())?;
    let args = after_dashes(args);
    if !args.is_empty() {
        return rmpi_bench(args);
    }
    for table in ["latency", "bandwidth"] {
        rmpi_bench(&[table.to_string()])?;
    }
    Ok(())
}

/// `cargo xtask compare [--peer NAME=PREFIX...] [OPTION...]`.
pub(crate) fn compare(args: &[String]) -> Result<(), String> {
    setup::ensure(&["compare"])?;
    let args = after_dashes(args);
    let own = args
        .iter()
        .any(|word| word == "--rmpi" || word.starts_with("--rmpi="));
    let help = args.iter().any(|word| word == "--help" || word == "-h");
    let mut all: Vec<OsString> = args.iter().map(OsString::from).collect();
    if !own && !help {
        install::build(&prefix())?;
        all.extend(["--rmpi".into(), prefix().into_os_string()]);
    }
    rmpi_compare(&all)
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
    rmpi_compare(&["--fetch".into(), dir.into_os_string()])
}

fn rmpi_bench(args: &[String]) -> Result<(), String> {
    let mut bench = command(prefix().join("bin/rmpi-bench"));
    bench.args(args);
    show(bench)
}

fn rmpi_compare(args: &[OsString]) -> Result<(), String> {
    let mut compare = cargo();
    compare.args(["run", "--quiet", "--profile", "tool", "--package", "bench"]);
    compare.args(["--bin", "rmpi-compare", "--"]).args(args);
    show(compare)
}

/// `-- --help` hands `--help` on to the program.
fn after_dashes(args: &[String]) -> &[String] {
    match args {
        [first, rest @ ..] if first == "--" => rest,
        _ => args,
    }
}
