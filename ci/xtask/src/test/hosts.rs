// SPDX-License-Identifier: MIT OR Apache-2.0
//! Stage `hosts`: worlds of hosts on this machine.
//!
//! Each check has a world of its own and a limit of time, so that one that fails takes no other along. What it does is a function
//! of `ci/hosts/checks`; how a world ends, however it ends, is tried from outside.

mod ends;
mod rows;

use super::{Context, Tally};
use crate::hosts::Rights;
use crate::process::capture;
use crate::tree::{command, make_folder, root, target};
use rows::{Row, WORLD};
use std::env;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

pub(crate) fn run(tally: &mut Tally, context: &mut Context) -> Result<(), String> {
    if let Err(why) = Rights::find() {
        println!("  nothing can be tried here: {why}");
        tally.expected.push(("worlds of hosts".into(), why));
        return Ok(());
    }
    let build = target().join("hosts");
    make_folder(&build)?;
    for row in WORLD.iter().filter(|row| context.wants(row.name)) {
        tally.check(&row.title(), || in_world("checks", row, &[&build]));
    }
    for end in ends::ALL.iter().filter(|end| context.wants(end.name)) {
        tally.check(&end.name.replace('_', " "), || (end.check)(&build));
    }
    Ok(())
}

/// One check, a function of a script of `ci/hosts`; what it printed is in the error.
fn in_world(script: &str, row: &Row, folders: &[&Path]) -> Result<(), String> {
    let mut world = world(row.hosts)?;
    world.arg("sh").arg(root().join("ci/hosts").join(script));
    world.arg(row.name).args(folders);
    let done = capture(world, Duration::from_secs(row.seconds), |_| ())?;
    if done.success() {
        return Ok(());
    }
    let (out, err) = (&done.stdout, &done.stderr);
    Err(format!("{}\n{out}{err}", done.end()))
}

/// `cargo xtask hosts -n COUNT --`, for a command to be added.
fn world(count: usize) -> Result<Command, String> {
    let program = env::current_exe().map_err(|why| format!("cannot find this program: {why}"))?;
    let mut world = command(program);
    world.args(["hosts", "-n"]).arg(count.to_string()).arg("--");
    Ok(world)
}
