// SPDX-License-Identifier: MIT OR Apache-2.0
//! Stage `model`: loom tests every interleaving of the ring's operations.

use super::{Context, Tally, cargo_tests};
use crate::tree::{cargo, target};

pub(crate) fn run(tally: &mut Tally, _: &mut Context) -> Result<(), String> {
    let mut loom = cargo();
    loom.args([
        "test",
        "--quiet",
        "--release",
        "--package",
        "ring",
        "--test",
        "loom",
    ]);
    loom.args(["--no-fail-fast"]);
    // Uses a separate build folder: `--cfg loom` changes how every crate is compiled, so in the common folder cargo
    // would rebuild all crates whenever the flag changes.
    loom.env("CARGO_TARGET_DIR", target().join("loom"))
        .env("RUSTFLAGS", "--cfg loom");
    loom.env("CARGO_PROFILE_RELEASE_LTO", "off")
        .env("CARGO_PROFILE_RELEASE_CODEGEN_UNITS", "16");
    cargo_tests::run(tally, "every interleaving (loom)", loom)
}
