// SPDX-License-Identifier: MIT OR Apache-2.0
//! Stage `abi`: the tests of `runtime/abi/tests`, `qmp/tests` and `mqs/host/tests`, with real compilers and installed
//! libraries.
//!
//! The tests install an unoptimized build for themselves, once per run.

use super::{Context, Tally, cargo_tests};
use crate::tree::cargo;

pub(crate) fn run(tally: &mut Tally, _: &mut Context) -> Result<(), String> {
    let mut tests = cargo();
    tests.args([
        "test",
        "--quiet",
        "--package",
        "mpi-abi",
        "--package",
        "qmp",
        "--package",
        "rmpi-queues",
        "--test",
        "*",
        "--no-fail-fast",
    ]);
    cargo_tests::run(tally, "symbols, header, wrappers, sizes", tests)
}
