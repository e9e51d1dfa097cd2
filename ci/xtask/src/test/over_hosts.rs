// SPDX-License-Identifier: MIT OR Apache-2.0
//! A job of a test on this machine, or over hosts made of namespaces, in a world of its own.

use crate::tree::{command, root};
use std::env;
use std::path::Path;
use std::process::Command;

/// `rmpiexec` with so many ranks, for its other arguments to be added. Over hosts they are dealt in blocks, and
/// the code is 99 where the job has left something on one of them.
pub(super) fn launch(launcher: &Path, ranks: u32, hosts: Option<u32>) -> Result<Command, String> {
    let ranks = ranks.to_string();
    let Some(hosts) = hosts else {
        let mut job = command(launcher);
        job.args(["-n", &ranks]);
        return Ok(job);
    };
    let hosts = hosts.to_string();
    let program = env::current_exe().map_err(|why| format!("cannot find this program: {why}"))?;
    let mut job = command(program);
    job.args(["hosts", "-n", &hosts, "--"]);
    job.arg(root().join("ci/hosts/over")).arg(launcher);
    job.args([&hosts, &ranks]);
    Ok(job)
}
