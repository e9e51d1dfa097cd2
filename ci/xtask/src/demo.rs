// SPDX-License-Identifier: MIT OR Apache-2.0
//! `cargo xtask demo`: builds and installs rmpi, runs 64 ranks, and prints tables of latency and bandwidth.

use crate::process::show;
use crate::steps::Steps;
use crate::tree::{command, make_folder, prefix, root, target};
use crate::{install, setup};

/// `cargo xtask demo`.
pub(crate) fn run(args: &[String]) -> Result<(), String> {
    if let Some(arg) = args.first() {
        return Err(format!("`demo` takes no options, `{arg}` was given"));
    }
    let mut steps = Steps::new(6);
    let prefix = prefix();
    let program = target().join("demo").join("hello");
    steps.silent("look for the system packages that are needed", || {
        setup::ensure(&["demo"])
    })?;
    let what = format!("build and install into {}", prefix.display());
    steps.shown(&what, || install::build(&prefix))?;

    steps.silent("compile ci/demo/hello.c with rmpicc", || {
        make_folder(&target().join("demo"))?;
        let mut compiler = command(prefix.join("bin/rmpicc"));
        compiler
            .args(["-O2", "-o"])
            .arg(&program)
            .arg(root().join("ci/demo/hello.c"));
        show(compiler)
    })?;
    steps.shown("rmpiexec -n 64 hello", || {
        let mut launch = command(prefix.join("bin/rmpiexec"));
        launch.args(["-n", "64"]).arg(&program);
        show(launch)
    })?;
    for table in ["latency", "bandwidth"] {
        steps.shown(&format!("rmpi-bench {table} (two ranks)"), || {
            let mut bench = command(prefix.join("bin/rmpi-bench"));
            bench.arg(table);
            show(bench)
        })?;
    }
    println!("demo: everything worked in {}", steps.total());
    println!(
        "next: put {} first in PATH, or type `cargo xtask test`",
        prefix.join("bin").display()
    );
    Ok(())
}
