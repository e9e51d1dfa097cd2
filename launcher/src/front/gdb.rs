// SPDX-License-Identifier: MIT OR Apache-2.0
//! `--gdb`: runs gdb at the user's terminal, attached to the ranks that the user chose. To ranks of other hosts gdb
//! attaches through `gdbserver`. The remote shell starts `gdbserver` on the host, and gdb communicates with it over the
//! standard input and output of the remote shell.

use super::Signals;
use super::input::in_foreground;
use crate::prepare;
use crate::program::{self, cause};
use crate::spawn::{self, ChildSetup};
use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, getpgrp, tcsetpgrp};
use std::ffi::{OsStr, OsString};
use std::io::{IsTerminal, stdin};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::{Child, Command};

/// The gdb of `--gdb`.
#[derive(Debug)]
pub(crate) struct Gdb {
    program: PathBuf,
    ranks: Vec<u32>,
    signals: Signals,
    /// By node: how its ranks are reached; `None` if the node is on this machine. Empty if all nodes are on this
    /// machine.
    targets: Vec<Option<RemoteTarget>>,
    session: Option<GdbSession>,
}

/// How ranks of another host are reached.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RemoteTarget {
    /// Name as the user typed it.
    pub(crate) host: String,
    /// Command line of the remote shell, quoted for a local shell, without the command to run on the host.
    pub(crate) line: String,
}

/// A running gdb.
#[derive(Debug)]
struct GdbSession {
    child: Child,
    /// Pidfd of gdb.
    ended: OwnedFd,
    /// Whether gdb's group was made the terminal's foreground process group.
    terminal: bool,
    /// Whether gdb has attached to all its ranks and has then written to the FIFO.
    attached: bool,
}

impl Gdb {
    /// Finds gdb.
    ///
    /// # Errors
    /// A message for the user.
    pub(crate) fn find() -> Result<PathBuf, String> {
        let search = std::env::var_os("PATH").unwrap_or_else(|| OsString::from("/usr/bin"));
        let found = program::find(OsStr::new("gdb"), Path::new("/"), &search);
        found.map_err(|problem| {
            let message = problem.message;
            format!("--gdb: {message}; install gdb, or use another debugger")
        })
    }

    /// The gdb for these ranks, which is not started yet. gdb will get the signal mask that `rmpiexec` had at its
    /// start.
    pub(crate) fn new(program: PathBuf, ranks: &[u32], signals: Signals) -> Self {
        Self {
            program,
            ranks: ranks.to_owned(),
            signals,
            targets: Vec::new(),
            session: None,
        }
    }

    /// Sets how each node is reached. By default all nodes are on this machine.
    pub(crate) fn reaching(self, targets: Vec<Option<RemoteTarget>>) -> Self {
        Self { targets, ..self }
    }

    /// Starts gdb, which attaches to its ranks and then writes to `fifo`. `process`: returns the node and pid of a
    /// rank.
    pub(super) fn start(
        &mut self,
        fifo: &str,
        process: impl Fn(u32) -> Option<(usize, u32)>,
    ) -> Result<(), String> {
        let terminal = stdin().is_terminal() && in_foreground();
        let mut command = Command::new(&self.program);
        command.args(BEGIN);
        let commands = prepare::shared("rmpi/gdb/rmpi.py");
        if commands.is_none() && self.targets.iter().any(Option::is_some) {
            return Err("--gdb: share/rmpi/gdb/rmpi.py of this installation is missing, by which gdb comes to ranks of \
                        other hosts; install rmpi again"
                .to_owned());
        }
        if let Some(commands) = commands {
            command.args(["-ex", &format!("source {}", commands.display())]);
            let ranks = self.ranks.iter().map(|rank| format!(" {rank}"));
            command.args(["-ex", &format!("mpi session{}", ranks.collect::<String>())]);
        }
        for line in self.lines(fifo, process) {
            command.args(["-ex", &line]);
        }
        let setup = ChildSetup {
            terminal,
            ..ChildSetup::here(self.signals.before())
        };
        setup.apply_to(&mut command);
        let started = command.spawn().and_then(|child| {
            let ended = spawn::watch(child.id())?;
            Ok((child, ended))
        });
        let path = self.program.display();
        let (child, ended) =
            started.map_err(|error| format!("cannot start {path}: {}", cause(&error)))?;
        self.session = Some(GdbSession {
            child,
            ended,
            terminal,
            attached: false,
        });
        Ok(())
    }

    /// The gdb commands that attach gdb to its ranks and then report this through the FIFO.
    fn lines(&self, fifo: &str, process: impl Fn(u32) -> Option<(usize, u32)>) -> Vec<String> {
        let mut lines = vec!["set schedule-multiple on".to_owned()];
        if self.targets.iter().any(Option::is_some) {
            // Without this setting gdb continues only the ranks of one host.
            lines.push("maint set target-non-stop on".to_owned());
        }
        let mut attached = Vec::new();
        for (number, rank) in (1..).zip(&self.ranks) {
            if number > 1 {
                lines.push("add-inferior -no-connection".to_owned());
                lines.push(format!("inferior {number}"));
            }
            let (node, pid) = process(*rank).unwrap_or_default();
            lines.push(match self.targets.get(node) {
                Some(Some(RemoteTarget { host, line })) => format!("mpi reach {host} {pid} {line}"),
                _ => format!("attach {pid}"),
            });
            attached.push(format!("rank {rank} is inferior {number}"));
        }
        if attached.len() > 1 {
            lines.push("inferior 1".to_owned());
        }
        lines.push(format!("shell echo > {fifo}"));
        let attached = attached.join(", ");
        lines.push(format!(
            "echo {attached}: before the first instruction. Set breakpoints, then type: continue\\n"
        ));
        lines.push(RESTORE_PAGES.to_owned());
        lines
    }

    /// A descriptor that is readable when gdb has terminated; `None` if gdb is not running.
    pub(super) fn end(&self) -> Option<BorrowedFd<'_>> {
        self.session.as_ref().map(|session| session.ended.as_fd())
    }

    /// Called when the FIFO was written to. The first write since the start of gdb is gdb's report that it has
    /// attached: records it and returns `true`.
    pub(super) fn attaches(&mut self) -> bool {
        let session = self.session.as_mut();
        session.is_some_and(|session| !std::mem::replace(&mut session.attached, true))
    }

    /// Reaps gdb. Returns `false` if it ended before it had attached to its ranks.
    pub(super) fn over(&mut self) -> bool {
        let Some(mut session) = self.session.take() else {
            return true;
        };
        let _ = session.child.wait();
        if session.terminal {
            // This fails if the terminal is gone.
            let _ = tcsetpgrp(stdin(), getpgrp());
        }
        session.attached
    }

    /// Sends SIGTERM to gdb.
    pub(super) fn terminate(&self) {
        if let Some(session) = &self.session {
            let pid = Pid::from_raw(session.child.id().cast_signed());
            let _ = kill(pid, Signal::SIGTERM);
        }
    }
}

/// The gdb command that restores the user's setting of pagination.
const RESTORE_PAGES: &str =
    "python gdb.execute('set pagination ' + ('on' if rmpi_paging else 'off'))";

/// First arguments of gdb. The signals that hold and release ranks do not stop gdb. Pagination is disabled until gdb
/// has attached, because the ranks cannot be released while gdb waits for a key.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gdb_reaches_remote_ranks_through_gdbserver() {
        let reach = RemoteTarget {
            host: "b".to_owned(),
            line: "ssh -x b".to_owned(),
        };
        let signals = Signals::hold().unwrap();
        let gdb = Gdb::new(PathBuf::from("gdb"), &[0, 1, 2], signals);
        let gdb = gdb.reaching(vec![None, Some(reach)]);
        let lines = gdb.lines("fifo", |rank| Some((rank as usize % 2, 100 + rank)));
        let expected = [
            "set schedule-multiple on",
            "maint set target-non-stop on",
            "attach 100",
            "add-inferior -no-connection",
            "inferior 2",
            "mpi reach b 101 ssh -x b",
            "add-inferior -no-connection",
            "inferior 3",
            "attach 102",
            "inferior 1",
            "shell echo > fifo",
        ];
        assert_eq!(lines[..expected.len()], expected);
    }
}
