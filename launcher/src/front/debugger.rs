// SPDX-License-Identifier: MIT OR Apache-2.0
//! Supports debuggers: fills the MPIR process table, stops at the breakpoint, and returns the programs that a debugger
//! requests to be started on each host.
//!
//! The table is always filled, since a debugger may attach at any time. The FIFO of the interface is not a file: it is
//! a pipe, which a debugger opens by its path below `/proc`.

use super::Gdb;
use crate::mpir::{self, DebugState, Name, ProcessTable, Starter, ToolCommand};
use nix::errno::Errno;
use nix::fcntl::OFlag;
use nix::unistd::{pipe2, read};
use std::ffi::{CStr, CString};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

/// The front's interface to a debugger.
pub(crate) struct Debugger {
    starter: Starter,
    processes: Processes,
    /// Whether the job holds its ranks for a debugger. [`Debugger::stop_at_breakpoint`] sets this to `false`.
    holding: bool,
    fifo: String,
    gdb: Option<Gdb>,
    fifo_fd: OwnedFd,
    /// The write end of the FIFO. This process never writes to it; while it is open, the read end does not report end
    /// of file.
    _write_end: OwnedFd,
}

impl Debugger {
    /// The interface for a job with these hosts, and with these programs and their numbers of ranks. `holding`: whether
    /// the ranks are held.
    pub(crate) fn new(
        mut starter: Starter,
        (hosts, holding): (&[String], bool),
        programs: impl Iterator<Item = (CString, u32)>,
        gdb: Option<Gdb>,
    ) -> Result<Self, Errno> {
        let (fifo_fd, write_end) = pipe2(OFlag::O_CLOEXEC | OFlag::O_NONBLOCK)?;
        let fifo = format!("/proc/{}/fd/{}", std::process::id(), fifo_fd.as_raw_fd());
        starter.name_fifo(&fifo);
        Ok(Self {
            starter,
            processes: Processes::of(hosts.iter(), programs),
            holding,
            fifo,
            gdb,
            fifo_fd,
            _write_end: write_end,
        })
    }

    /// Whether the ranks are held for a debugger.
    pub(crate) fn is_holding(&self) -> bool {
        self.holding
    }

    /// Sets the path of these ranks' program on their host.
    pub(crate) fn found(&mut self, path: &CStr, ranks: &[u32]) {
        self.processes.found(path, ranks);
    }

    /// Sets the processes of these ranks of a node. Once all ranks have a process, publishes the process table; if the
    /// ranks are not held, also stops at the debugger's breakpoint.
    pub(crate) fn started(&mut self, node: usize, started: &[(u32, u32)]) {
        if self.processes.started(node, started) {
            self.publish();
        }
    }

    fn publish(&mut self) {
        self.starter.publish(self.processes.table());
        if !self.holding {
            // If the job is not held, a debugger that has attached stops at its breakpoint now.
            self.spawned();
        }
    }

    /// Stops at the debugger's breakpoint, because all ranks have a process.
    pub(crate) fn spawned(&mut self) {
        self.starter.report(DebugState::Spawned);
    }

    /// The program that the debugger requests to be started on each host; `None` if the debugger has stored no program.
    pub(crate) fn tool(&self) -> Option<ToolCommand> {
        self.starter.tool()
    }

    /// Stops at the breakpoint, when all ranks are held. Returns the program to start on each host before the ranks are
    /// released, if there is one.
    pub(crate) fn stop_at_breakpoint(&mut self) -> Option<ToolCommand> {
        self.spawned();
        self.holding = false;
        self.tool()
    }

    /// Reports to the debugger that the job is being ended, with the reason.
    pub(crate) fn aborting(&mut self, why: &str) {
        self.starter.name_cause(why);
        self.starter.report(DebugState::Aborting);
    }

    /// A descriptor that is readable when a debugger has written to the FIFO.
    pub(crate) fn fifo_fd(&self) -> BorrowedFd<'_> {
        self.fifo_fd.as_fd()
    }

    /// Starts the gdb of `--gdb`; returns whether there is one. Once gdb has attached, it requests the release of the
    /// ranks through the FIFO.
    pub(crate) fn start_gdb(&mut self) -> Result<bool, String> {
        let Some(gdb) = &mut self.gdb else {
            return Ok(false);
        };
        gdb.start(&self.fifo, |rank| self.processes.of_rank(rank))
            .map(|()| true)
    }

    /// A descriptor that is readable when the gdb of `--gdb` has terminated; `None` if it is not running.
    pub(crate) fn gdb_end(&self) -> Option<BorrowedFd<'_>> {
        self.gdb.as_ref().and_then(Gdb::end)
    }

    /// Reaps the gdb of `--gdb`. Returns `false` if it ended before it had attached to its ranks.
    pub(crate) fn gdb_over(&mut self) -> bool {
        self.gdb.as_mut().is_none_or(Gdb::over)
    }

    /// Sends SIGTERM to the gdb of `--gdb`.
    pub(crate) fn terminate_gdb(&self) {
        self.gdb.iter().for_each(Gdb::terminate);
    }

    /// Reads the FIFO, and returns the request of the debugger. The first write of the gdb of `--gdb` requests the
    /// release of the ranks. Any later write requests the start of the stored program. `None` if nothing was written,
    /// or if no program is stored.
    pub(crate) fn take_request(&mut self) -> Option<DebuggerRequest> {
        // All bytes written so far are one request.
        let mut bytes = [0; 64];
        let mut any = false;
        while matches!(read(&self.fifo_fd, &mut bytes), Ok(1..)) {
            any = true;
        }
        if !any {
            return None;
        }
        if self.gdb.as_mut().is_some_and(Gdb::attaches) {
            return Some(DebuggerRequest::Release);
        }
        self.starter.tool().map(DebuggerRequest::Tool)
    }
}

/// The processes of all ranks. Since there may be many ranks, only the process table is kept per rank; it is made when
/// the first program or process is reported.
pub(crate) struct Processes {
    /// By node: the name of its machine. Each node has an allocation of its own, so the pointer identifies the node.
    hosts: Vec<Name>,
    /// Paths of the programs, with their numbers of ranks.
    programs: Vec<(Name, u32)>,
    /// Paths that programs have on some hosts, if they differ from those in `programs`.
    elsewhere: Vec<Name>,
    table: Option<ProcessTable>,
}

impl Processes {
    /// The processes of a job with these hosts, and with these programs and their numbers of ranks. No process is known
    /// yet.
    pub(crate) fn of<'a>(
        hosts: impl Iterator<Item = &'a String>,
        programs: impl Iterator<Item = (CString, u32)>,
    ) -> Self {
        let host = |name: &String| mpir::leak(CString::new(name.as_str()).unwrap_or_default());
        let programs = programs.map(|(path, ranks)| (mpir::leak(path), ranks));
        Self {
            hosts: hosts.map(host).collect(),
            programs: programs.collect(),
            elsewhere: Vec::new(),
            table: None,
        }
    }

    fn found(&mut self, path: &CStr, ranks: &[u32]) {
        let programs = self.programs.iter().map(|(path, _)| path);
        let mut known = programs.chain(&self.elsewhere);
        let known = known.find(|known| **known == path).copied();
        let path = known.unwrap_or_else(|| {
            let path = mpir::leak(path.to_owned());
            self.elsewhere.push(path);
            path
        });
        for rank in ranks {
            self.table().set_program(*rank, path);
        }
    }

    fn table(&mut self) -> &mut ProcessTable {
        let programs = &self.programs;
        self.table.get_or_insert_with(|| ProcessTable::of(programs))
    }

    /// Sets the processes of these ranks of a node; returns whether all ranks of the job have a process now.
    pub(crate) fn started(&mut self, node: usize, started: &[(u32, u32)]) -> bool {
        let host = self.hosts[node];
        let table = self.table();
        for (rank, pid) in started {
            table.set_process(*rank, host, *pid);
        }
        table.is_complete()
    }

    /// The node and pid of a rank; `None` if they are unknown.
    fn of_rank(&self, rank: u32) -> Option<(usize, u32)> {
        let table = self.table.as_ref()?;
        let mut hosts = self.hosts.iter().enumerate();
        hosts.find_map(|(node, host)| Some((node, table.process_on(rank, host)?)))
    }
}

/// A debugger's request to a running job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum DebuggerRequest {
    /// Release the ranks.
    Release,
    /// Start this program on each host.
    Tool(ToolCommand),
}
