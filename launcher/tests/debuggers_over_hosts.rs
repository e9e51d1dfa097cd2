// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of what an MPIR debugger finds of a job over hosts: the processes of all hosts, and its own programs on each
//! host. All hosts are this machine, as in `over_hosts`.
#![cfg(target_arch = "x86_64")]
#![allow(clippy::unwrap_used, unsafe_code)]

mod common;
use common::lab::Lab;
use common::tool::{attach, launch};
use common::{Job, parent_of, until};
use std::fs;
use std::path::Path;

/// A job whose ranks each create a file and then wait until another file exists.
fn waiting(lab: &Lab, folder: &Path) -> Job {
    let here = folder.display();
    let text = format!("touch {here}/$RMPI_RANK; until [ -e {here}/end ]; do sleep 0.02; done");
    lab.script("a:2,b", &text)
}

fn marks(folder: &Path, begin: &str) -> usize {
    let files = fs::read_dir(folder).unwrap();
    let names = files.map(|file| file.unwrap().file_name().into_string().unwrap());
    names.filter(|name| name.starts_with(begin)).count()
}

#[test]
fn the_mpir_table_names_hosts_and_pids_before_ranks_run() {
    let (lab, folder) = (Lab::new(), tempfile::tempdir().unwrap());
    let (tool, running) = launch(waiting(&lab, folder.path()));
    let rows = tool.table();
    let hosts: Vec<&str> = rows.iter().map(|row| row.host.as_str()).collect();
    assert_eq!(hosts, ["a", "a", "b"]);
    let daemons: Vec<_> = rows.iter().map(|row| parent_of(row.pid).unwrap()).collect();
    assert!(daemons[0] == daemons[1] && daemons[1] != daemons[2]);
    assert!(rows.iter().all(|row| row.executable.ends_with("/sh")));
    assert_eq!(marks(folder.path(), ""), 0, "ranks stand still");
    tool.leave();
    until("all ranks run", || {
        (marks(folder.path(), "") == 3).then_some(())
    });
    fs::write(folder.path().join("end"), "").unwrap();
    running.finish().expect(0);
}

#[test]
fn the_debuggers_tool_is_started_on_each_host() {
    let (lab, folder) = (Lab::new(), tempfile::tempdir().unwrap());
    let running = waiting(&lab, folder.path()).start();
    until("all ranks run", || {
        (marks(folder.path(), "") == 3).then_some(())
    });
    let mut tool = attach(&running);
    let fifo = tool.text("MPIR_attach_fifo");
    let script = format!("touch {}/tool-on-$HOSTNAME", folder.path().display());
    let arguments = ["-c", &script, ""].join("\0") + "\0";
    tool.write_bytes("MPIR_executable_path", b"/bin/sh\0");
    tool.write_bytes("MPIR_server_arguments", arguments.as_bytes());
    tool.leave();
    fs::write(fifo, [1]).unwrap();
    until("the program has run on both hosts", || {
        (marks(folder.path(), "tool-on-") == 2).then_some(())
    });
    assert!(folder.path().join("tool-on-b").exists());
    fs::write(folder.path().join("end"), "").unwrap();
    running.finish().expect(0);
}
