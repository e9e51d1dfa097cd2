// SPDX-License-Identifier: MIT OR Apache-2.0
//! Support for debuggers: fills the MPIR process table, stops in the breakpoint, and starts a program on each host
//! when a debugger requests that.
//!
//! The table is always filled, since a debugger may attach at any time. There is no FIFO in the file system: a
//! debugger writes to a pipe by its path below `/proc`.

use super::Gdb;
use crate::mpir::{self, DebugState, Name, ProcessTable, Starter, ToolWords};
use nix::errno::Errno;
use nix::fcntl::OFlag;
use nix::unistd::{pipe2, read};
use std::ffi::{CStr, CString};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

/// The front's interface to a debugger.
pub(crate) struct Debugger {
    starter: Starter,
    processes: Processes,
    /// All ranks are held until [`Debugger::stop_at_breakpoint`] returns.
    holding: bool,
    fifo: String,
    gdb: Option<Gdb>,
    fifo_fd: OwnedFd,
    /// Never written to: as long as it is open here, the read end does not report end of file.
    _write_end: OwnedFd,
}

impl Debugger {
    /// For a job of these programs with their numbers of ranks, on these hosts.
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

    /// Sets the processes of these ranks of a node.
    pub(crate) fn started(&mut self, node: usize, started: &[(u32, u32)]) {
        if self.processes.started(node, started) {
            self.publish();
        }
    }

    fn publish(&mut self) {
        self.starter.publish(self.processes.table());
        if !self.holding {
            // A debugger that attached without holding the job gets its breakpoint now.
            self.spawned();
        }
    }

    /// Stops in the debugger's breakpoint: all ranks have a process.
    pub(crate) fn spawned(&mut self) {
        self.starter.report(DebugState::Spawned);
    }

    /// The program that the debugger wants started on each host, if it has set one.
    pub(crate) fn tool(&self) -> Option<ToolWords> {
        self.starter.tool()
    }

    /// All ranks are held: stops in the breakpoint. Returns the program to start before they are released.
    pub(crate) fn stop_at_breakpoint(&mut self) -> Option<ToolWords> {
        self.spawned();
        self.holding = false;
        self.tool()
    }

    /// Reports to the debugger that the job is being ended, with the reason.
    pub(crate) fn aborting(&mut self, why: &str) {
        self.starter.name_cause(why);
        self.starter.report(DebugState::Aborting);
    }

    /// Readable when a debugger has written to the FIFO.
    pub(crate) fn fifo_fd(&self) -> BorrowedFd<'_> {
        self.fifo_fd.as_fd()
    }

    /// Starts the user's gdb, if there is one. It requests the release of the ranks through the FIFO once it has
    /// attached.
    pub(crate) fn start_gdb(&mut self) -> Result<bool, String> {
        let Some(gdb) = &mut self.gdb else {
            return Ok(false);
        };
        gdb.start(&self.fifo, |rank| self.processes.of_rank(rank))
            .map(|()| true)
    }

    /// Readable when that gdb has terminated.
    pub(crate) fn gdb_end(&self) -> Option<BorrowedFd<'_>> {
        self.gdb.as_ref().and_then(Gdb::end)
    }

    /// Reaps that gdb; returns whether it had attached to its ranks.
    pub(crate) fn gdb_over(&mut self) -> bool {
        self.gdb.as_mut().is_none_or(Gdb::over)
    }

    /// Sends SIGTERM to that gdb.
    pub(crate) fn terminate_gdb(&self) {
        self.gdb.iter().for_each(Gdb::terminate);
    }

    /// The pending request of the debugger.
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

/// The processes of all ranks. There may be many: only the table is kept, from the first known process on.
pub(crate) struct Processes {
    /// The name of each node's machine, one allocation per node.
    hosts: Vec<Name>,
    /// Paths of the programs with their numbers of ranks.
    programs: Vec<(Name, u32)>,
    /// Paths of programs that differ on some hosts.
    elsewhere: Vec<Name>,
    table: Option<ProcessTable>,
}

impl Processes {
    /// For these programs with their numbers of ranks.
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

    /// Sets the processes of these ranks of a node; returns whether all ranks have one now.
    pub(crate) fn started(&mut self, node: usize, started: &[(u32, u32)]) -> bool {
        let host = self.hosts[node];
        let table = self.table();
        for (rank, pid) in started {
            table.set_process(*rank, host, *pid);
        }
        table.is_complete()
    }

    /// The node and pid of a rank.
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
    Tool(ToolWords),
}
