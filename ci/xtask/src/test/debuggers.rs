// SPDX-License-Identifier: MIT OR Apache-2.0
//! Stage `debuggers`: gdb with the installed launcher and library, message queues at random moments, and `rmpi-queues`
//! with programs that never end and with erroneous calls of collectives.

use super::{Context, Tally, cargo_tests};
use crate::tree::cargo;

pub(crate) fn run(tally: &mut Tally, context: &mut Context) -> Result<(), String> {
    let prefix = context.prefix()?;
    for (name, package, programs) in [
        (
            "process table, launch, attach, abort; standstill; ranks, queues and handles; statistics",
            "launcher",
            &["mpir", "standstill", "gdb_mpi", "gdb_over_hosts", "stats"][..],
        ),
        (
            "queues of ranks that are stopped at random",
            "rmpi-queues",
            &["journal"],
        ),
        (
            "which ranks wait for which, in every example",
            "rmpi-queues",
            &["gallery"],
        ),
        (
            "which ranks wait for which, over several hosts",
            "rmpi-queues",
            &["over_hosts"],
        ),
        (
            "verdicts on every collective with every mistake",
            "rmpi-queues",
            &["grid"],
        ),
    ] {
        let mut tests = cargo();
        tests.env("RMPI_TEST_PREFIX", &prefix);
        tests.args(["test", "--quiet", "--package", package]);
        for program in programs {
            tests.args(["--test", program]);
        }
        tests.args(["--no-fail-fast", "--", "--ignored"]);
        cargo_tests::run(tally, name, tests)?;
    }
    Ok(())
}
