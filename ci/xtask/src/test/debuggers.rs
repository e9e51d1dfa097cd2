// SPDX-License-Identifier: MIT OR Apache-2.0
//! Stage `debuggers`: gdb with the installed launcher and library.

use super::{Context, Tally, cargo_tests};
use crate::tree::cargo;

pub(crate) fn run(tally: &mut Tally, context: &mut Context) -> Result<(), String> {
    let mut tests = cargo();
    tests.env("RMPI_TEST_PREFIX", context.prefix()?);
    tests.args(["test", "--quiet", "--package", "launcher"]);
    for test in ["mpir", "standstill", "gdb_mpi"] {
        tests.args(["--test", test]);
    }
    tests.args(["--no-fail-fast", "--", "--ignored"]);
    cargo_tests::run(
        tally,
        "process table, launch, attach, abort; standstill; ranks, queues and handles",
        tests,
    )
}
