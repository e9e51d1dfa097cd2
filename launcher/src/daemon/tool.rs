// SPDX-License-Identifier: MIT OR Apache-2.0
//! Starts a program of a debugger on this host, where the program can attach to the ranks.

use super::Daemon;
use super::exec::SpawnContext;
use crate::prepare::OWN_VARIABLES;
use crate::program::cause;
use crate::spawn::ChildSetup;
use std::ffi::{CString, OsStr};
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::process::{Command, Stdio};

impl Daemon {
    /// Starts the program that a debugger requested, with its arguments.
    pub(super) fn start_tool(&mut self, command: &[CString]) {
        let Some((program, arguments)) = command.split_first() else {
            return;
        };
        match start(&self.spawn_context, program, arguments) {
            Ok(pid) => self.tools.push(pid),
            Err(error) => self.notice(format!(
                "cannot start {}, which the debugger wants on each host: {}; the job goes on without it",
                program.to_string_lossy(),
                cause(&error)
            )),
        }
    }
}

/// Starts the program in the daemon's working directory, with the daemon's environment. Its output goes to standard
/// error. It is killed when the daemon ends.
fn start(
    spawn_context: &SpawnContext,
    program: &CString,
    arguments: &[CString],
) -> std::io::Result<u32> {
    let text = |argument: &CString| OsStr::from_bytes(argument.to_bytes()).to_owned();
    let output = std::io::stderr().as_fd().try_clone_to_owned()?;
    let mut command = Command::new(text(program));
    command.args(arguments.iter().map(text)).stdout(output);
    command.stdin(Stdio::null());
    for variable in OWN_VARIABLES {
        command.env_remove(variable);
    }
    let setup = ChildSetup {
        files: Some(spawn_context.files),
        ..ChildSetup::here(spawn_context.signals)
    };
    setup.apply_to(&mut command);
    Ok(command.spawn()?.id())
}
