// SPDX-License-Identifier: MIT OR Apache-2.0
//! `--gdb`: gdb at the user's terminal, with the ranks that the user picked.

use super::Signals;
use super::input::in_foreground;
use crate::prepare;
use crate::program::{self, cause};
use crate::spawn::{self, Tie};
use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, getpgrp, tcsetpgrp};
use std::ffi::{OsStr, OsString};
use std::io::{IsTerminal, stdin};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::{Child, Command};

/// A gdb that was asked for.
#[derive(Debug)]
pub(crate) struct Gdb {
    program: PathBuf,
    ranks: Vec<u32>,
    signals: Signals,
    session: Option<Session>,
}

/// One that runs.
#[derive(Debug)]
struct Session {
    child: Child,
    /// Readable when it has ended.
    ended: OwnedFd,
    /// The terminal is its own.
    terminal: bool,
    /// It has come to all its ranks, and said so.
    attached: bool,
}

impl Gdb {
    /// For these ranks, if there are any; it gets the signals as they were.
    pub(crate) fn find(ranks: &[u32], signals: Signals) -> Result<Option<Self>, String> {
        if ranks.is_empty() {
            return Ok(None);
        }
        let search = std::env::var_os("PATH").unwrap_or_else(|| OsString::from("/usr/bin"));
        let found = program::find(OsStr::new("gdb"), Path::new("/"), &search);
        let program = found.map_err(|problem| {
            let words = problem.words;
            format!("--gdb: {words}; install gdb, or use another debugger")
        })?;
        Ok(Some(Self {
            program,
            ranks: ranks.to_owned(),
            signals,
            session: None,
        }))
    }

    /// Starts it, to attach to its ranks' processes and to write to `fifo` then.
    pub(super) fn start(
        &mut self,
        fifo: &str,
        process: impl Fn(u32) -> Option<u32>,
    ) -> Result<(), String> {
        let terminal = stdin().is_terminal() && in_foreground();
        let mut command = Command::new(&self.program);
        command.args(BEGIN);
        if let Some(commands) = prepare::shared("rmpi/gdb/rmpi.py") {
            command.args(["-ex", &format!("source {}", commands.display())]);
            let ranks = self.ranks.iter().map(|rank| format!(" {rank}"));
            command.args(["-ex", &format!("mpi session{}", ranks.collect::<String>())]);
        }
        for line in self.lines(fifo, process) {
            command.args(["-ex", &line]);
        }
        let tie = Tie {
            terminal,
            ..Tie::here(self.signals.before())
        };
        tie.hold(&mut command);
        let started = command.spawn().and_then(|child| {
            let ended = spawn::watch(child.id())?;
            Ok((child, ended))
        });
        let path = self.program.display();
        let (child, ended) =
            started.map_err(|error| format!("cannot start {path}: {}", cause(&error)))?;
        self.session = Some(Session {
            child,
            ended,
            terminal,
            attached: false,
        });
        Ok(())
    }

    /// What it is told.
    fn lines(&self, fifo: &str, process: impl Fn(u32) -> Option<u32>) -> Vec<String> {
        let mut lines = vec!["set schedule-multiple on".to_owned()];
        let mut told = Vec::new();
        for (number, rank) in (1..).zip(&self.ranks) {
            if number > 1 {
                lines.push("add-inferior".to_owned());
                lines.push(format!("inferior {number}"));
            }
            let pid = process(*rank).unwrap_or(0);
            lines.push(format!("attach {pid}"));
            told.push(format!("rank {rank} is inferior {number}"));
        }
        if told.len() > 1 {
            lines.push("inferior 1".to_owned());
        }
        lines.push(format!("shell echo > {fifo}"));
        let told = told.join(", ");
        lines.push(format!(
            "echo {told}: before the first instruction. Set breakpoints, then type: continue\\n"
        ));
        lines.push(RESTORE_PAGES.to_owned());
        lines
    }

    /// Readable when it has ended.
    pub(super) fn end(&self) -> Option<BorrowedFd<'_>> {
        self.session.as_ref().map(|session| session.ended.as_fd())
    }

    /// Something was written to the FIFO: whether that is how it tells that it has come to its ranks.
    pub(super) fn attaches(&mut self) -> bool {
        let session = self.session.as_mut();
        session.is_some_and(|session| !std::mem::replace(&mut session.attached, true))
    }

    /// It has ended; whether it had come to its ranks.
    pub(super) fn over(&mut self) -> bool {
        let Some(mut session) = self.session.take() else {
            return true;
        };
        let _ = session.child.wait();
        if session.terminal {
            // It may be gone.
            let _ = tcsetpgrp(stdin(), getpgrp());
        }
        session.attached
    }

    /// Somebody wants all this to end.
    pub(super) fn ask_to_end(&self) {
        if let Some(session) = &self.session {
            let pid = Pid::from_raw(session.child.id().cast_signed());
            let _ = kill(pid, Signal::SIGTERM);
        }
    }
}

/// Page by page, or not, as the user has it from now on.
const RESTORE_PAGES: &str =
    "python gdb.execute('set pagination ' + ('on' if rmpi_paging else 'off'))";

/// Signals that hold ranks and let them go are not the user's; and until gdb has come to its ranks it waits for no key, however
/// small the terminal is: nobody could let the ranks go meanwhile.
const BEGIN: [&str; 9] = [
    "-q",
    "-iex",
    "python rmpi_paging = gdb.parameter('pagination')",
    "-iex",
    "set pagination off",
    "-iex",
    "handle SIGCONT nostop noprint pass",
    "-iex",
    "handle SIGSTOP nostop noprint nopass",
];
