// SPDX-License-Identifier: MIT OR Apache-2.0
//! Starts a test's job on this machine, or in its own world of hosts made of namespaces.

use crate::tree::{command, root};
use std::env;
use std::path::Path;
use std::process::Command;

/// `rmpiexec` with `ranks` ranks, to which the caller adds other arguments. With `hosts`, ranks are placed on the hosts
/// in blocks, and the exit code is 99 if the job has left something on a host.
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
