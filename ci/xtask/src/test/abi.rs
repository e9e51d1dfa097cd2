// SPDX-License-Identifier: MIT OR Apache-2.0
//! Stage `abi`: the tests of `runtime/abi/tests`, over the installed library.

use super::{Context, Tally, cargo_tests};
use crate::tree::cargo;

pub(crate) fn run(tally: &mut Tally, context: &mut Context) -> Result<(), String> {
    let prefix = context.prefix()?;
    let mut tests = cargo();
    tests.args([
        "test",
        "--quiet",
        "--package",
        "mpi-abi",
        "--test",
        "*",
        "--no-fail-fast",
    ]);
    tests.env("RMPI_PREFIX", &prefix);
    cargo_tests::run(tally, "symbols, header, wrappers, sizes", tests)
}
