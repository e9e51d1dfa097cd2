// SPDX-License-Identifier: MIT OR Apache-2.0
//! Stage `tidy`: checks formatting, lints, house rules, generated files and documentation.

use super::{Context, Tally};
use crate::process::quiet;
use crate::tree::cargo;
use crate::{codegen, tidy};
use std::time::Duration;

pub(crate) fn run(tally: &mut Tally, _: &mut Context) -> Result<(), String> {
    tally.check("rustfmt", || {
        let mut fmt = cargo();
        fmt.args(["fmt", "--all", "--check"]);
        quiet(fmt, LIMIT).map(|_| ())
    });
    tally.check("house rules", || tidy::run(&[]));
    tally.check("generated files are fresh", || {
        codegen::run(&["--check".to_string()])
    });
    tally.check("clippy", || {
        let mut clippy = cargo();
        clippy.args([
            "clippy",
            "--quiet",
            "--workspace",
            "--all-targets",
            "--",
            "-D",
            "warnings",
        ]);
        quiet(clippy, LIMIT).map(|_| ())
    });
    tally.check("rustdoc", || {
        let mut doc = cargo();
        doc.args(["doc", "--quiet", "--workspace", "--no-deps"])
            .env("RUSTDOCFLAGS", "-D warnings");
        quiet(doc, LIMIT).map(|_| ())
    });
    Ok(())
}

const LIMIT: Duration = Duration::from_secs(900);
