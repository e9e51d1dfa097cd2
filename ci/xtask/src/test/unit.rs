// SPDX-License-Identifier: MIT OR Apache-2.0
//! Stage `unit`: unit, integration and documentation tests of every crate.
//!
//! The tests in `runtime/abi/tests`, `qmp/tests` and `mqs/host/tests` need the installed libraries: they are run by the
//! stage `abi`.

use super::{Context, Tally, cargo_tests};
use crate::setup::has_subcommand;
use crate::tree::{cargo, command, root};

pub(crate) fn run(tally: &mut Tally, _: &mut Context) -> Result<(), String> {
    if has_subcommand("nextest") {
        let mut tests = cargo();
        tests.args([
            "nextest",
            "run",
            "--workspace",
            "--no-fail-fast",
            "--color",
            "never",
        ]);
        tests.args(["--show-progress", "none", "--status-level", "fail"]);
        tests
            .arg("--config-file")
            .arg(root().join("ci/nextest.toml"));
        tests.args([
            "-E",
            "not ((package(mpi-abi) or package(qmp) or package(rmpi-queues)) and kind(test))",
        ]);
        cargo_tests::run(tally, "unit and integration tests", tests)?;
    } else {
        let mut tests = cargo();
        tests.args([
            "test",
            "--quiet",
            "--workspace",
            "--exclude",
            "mpi-abi",
            "--exclude",
            "qmp",
            "--exclude",
            "rmpi-queues",
            "--no-fail-fast",
        ]);
        tests.args(["--lib", "--bins", "--tests"]);
        cargo_tests::run(tally, "unit and integration tests", tests)?;
        let mut abi = cargo();
        abi.args([
            "test",
            "--quiet",
            "--package",
            "mpi-abi",
            "--package",
            "qmp",
            "--package",
            "rmpi-queues",
            "--lib",
        ]);
        cargo_tests::run(tally, "unit tests of mpi-abi, qmp and rmpi-queues", abi)?;
    }
    hwloc(tally)?;
    let mut docs = cargo();
    docs.args(["test", "--quiet", "--workspace", "--doc", "--no-fail-fast"]);
    cargo_tests::run(tally, "documentation tests", docs)
}

/// Tests the launcher's feature `hwloc`, if the system has that library.
fn hwloc(tally: &mut Tally) -> Result<(), String> {
    let mut probe = command("pkg-config");
    probe.args(["--exists", "hwloc >= 2"]);
    if probe.status().is_ok_and(|status| status.success()) {
        let mut hwloc = cargo();
        hwloc.args([
            "test",
            "--quiet",
            "--package",
            "launcher",
            "--features",
            "hwloc",
        ]);
        hwloc.args(["--lib", "hwloc"]);
        cargo_tests::run(tally, "the launcher with hwloc", hwloc)?;
    } else {
        println!(
            "  left out, since libhwloc is not installed with its headers: the launcher's feature hwloc"
        );
    }
    Ok(())
}
