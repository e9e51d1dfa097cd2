// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the front does for debuggers: it fills the process table, stops where a debugger waits for it, and hears when one
//! wants a program of its own on each host.
//!
//! The table is always filled, since a debugger may come to a job at any time. There is no file: what a debugger writes
//! its byte to is a pipe, by its name below `/proc`.

use super::Gdb;
use crate::mpir::{self, Name, Starter, State, Table, ToolWords};
use nix::errno::Errno;
use nix::fcntl::OFlag;
use nix::unistd::{pipe2, read};
use std::ffi::{CStr, CString};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

/// The debugger's side of a front.
pub(crate) struct Debugger {
    starter: Starter,
    processes: Processes,
    /// All ranks stand still until [`Debugger::meet`] is over.
    holding: bool,
    fifo: String,
    gdb: Option<Gdb>,
    asks: OwnedFd,
    /// Never written to: while it is open here, the other end does not tell that nobody writes.
    _write_end: OwnedFd,
}

impl Debugger {
    /// For a job of these programs, with so many ranks each, on these hosts.
    pub(crate) fn new(
        mut starter: Starter,
        (hosts, holding): (&[String], bool),
        programs: impl Iterator<Item = (CString, u32)>,
        gdb: Option<Gdb>,
    ) -> Result<Self, Errno> {
        let (asks, write_end) = pipe2(OFlag::O_CLOEXEC | OFlag::O_NONBLOCK)?;
        let fifo = format!("/proc/{}/fd/{}", std::process::id(), asks.as_raw_fd());
        starter.name_fifo(&fifo);
        Ok(Self {
            starter,
            processes: Processes::of(hosts.iter(), programs),
            holding,
            fifo,
            gdb,
            asks,
            _write_end: write_end,
        })
    }

    /// Whether the ranks stand still for a debugger.
    pub(crate) fn is_holding(&self) -> bool {
        self.holding
    }

    /// Where the program of these ranks lies on their host.
    pub(crate) fn found(&mut self, path: &CStr, ranks: &[u32]) {
        self.processes.found(path, ranks);
    }

    /// These ranks are these processes of a node.
    pub(crate) fn started(&mut self, node: usize, started: &[(u32, u32)]) {
        if self.processes.started(node, started) {
            self.publish();
        }
    }

    fn publish(&mut self) {
        self.starter.publish(self.processes.table());
        if !self.holding {
            // Who has a breakpoint there and did not say so at the start comes late, and is told all the same.
            self.spawned();
        }
    }

    /// Stops in the debugger's breakpoint: all ranks are there.
    pub(crate) fn spawned(&mut self) {
        self.starter.tell(State::Spawned);
    }

    /// What the debugger wants to be started on each host, as far as it has said so.
    pub(crate) fn tool(&self) -> Option<ToolWords> {
        self.starter.tool()
    }

    /// All ranks stand still: the debugger has its turn. What it wants to be started before they go.
    pub(crate) fn meet(&mut self) -> Option<ToolWords> {
        self.spawned();
        self.holding = false;
        self.tool()
    }

    /// The job is being ended, for this reason.
    pub(crate) fn aborting(&mut self, why: &str) {
        self.starter.name_cause(why);
        self.starter.tell(State::Aborting);
    }

    /// Readable when a debugger wants something to be started.
    pub(crate) fn asks(&self) -> BorrowedFd<'_> {
        self.asks.as_fd()
    }

    /// Starts the gdb that the user wants, if any. It asks for the ranks to be let go when it has come to its own.
    pub(crate) fn start_gdb(&mut self) -> Result<bool, String> {
        let Some(gdb) = &mut self.gdb else {
            return Ok(false);
        };
        gdb.start(&self.fifo, |rank| self.processes.of_rank(rank))
            .map(|()| true)
    }

    /// Readable when that gdb has ended.
    pub(crate) fn gdb_end(&self) -> Option<BorrowedFd<'_>> {
        self.gdb.as_ref().and_then(Gdb::end)
    }

    /// That gdb has ended; whether it had come to its ranks.
    pub(crate) fn gdb_over(&mut self) -> bool {
        self.gdb.as_mut().is_none_or(Gdb::over)
    }

    /// Somebody wants the job to end.
    pub(crate) fn ask_gdb_to_end(&self) {
        self.gdb.iter().for_each(Gdb::ask_to_end);
    }

    /// What it wants.
    pub(crate) fn asked(&mut self) -> Option<Wish> {
        // As many bytes as came so far are one wish.
        let mut bytes = [0; 64];
        let mut any = false;
        while matches!(read(&self.asks, &mut bytes), Ok(1..)) {
            any = true;
        }
        if !any {
            return None;
        }
        if self.gdb.as_mut().is_some_and(Gdb::attaches) {
            return Some(Wish::Release);
        }
        self.starter.tool().map(Wish::Tool)
    }
}

/// The processes of all ranks. There may be many: nothing is kept of them but their table, from the first on that is known.
pub(crate) struct Processes {
    /// The machines of the nodes, a name of its own for each.
    hosts: Vec<Name>,
    /// The files of programs, with so many ranks each.
    programs: Vec<(Name, u32)>,
    /// The files of some ranks' programs that lie elsewhere on their hosts.
    elsewhere: Vec<Name>,
    table: Option<Table>,
}

impl Processes {
    /// Of programs with so many ranks each.
    pub(crate) fn of<'a>(
        hosts: impl Iterator<Item = &'a String>,
        programs: impl Iterator<Item = (CString, u32)>,
    ) -> Self {
        let host = |name: &String| mpir::keep(CString::new(name.as_str()).unwrap_or_default());
        let programs = programs.map(|(path, ranks)| (mpir::keep(path), ranks));
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
            let path = mpir::keep(path.to_owned());
            self.elsewhere.push(path);
            path
        });
        for rank in ranks {
            self.table().set_program(*rank, path);
        }
    }

    fn table(&mut self) -> &mut Table {
        let programs = &self.programs;
        self.table.get_or_insert_with(|| Table::of(programs))
    }

    /// These ranks are these processes of a node; whether all have theirs now.
    pub(crate) fn started(&mut self, node: usize, started: &[(u32, u32)]) -> bool {
        let host = self.hosts[node];
        let table = self.table();
        for (rank, pid) in started {
            table.set_process(*rank, host, *pid);
        }
        table.is_complete()
    }

    /// The process of a rank, and its node.
    fn of_rank(&self, rank: u32) -> Option<(usize, u32)> {
        let table = self.table.as_ref()?;
        let mut hosts = self.hosts.iter().enumerate();
        hosts.find_map(|(node, host)| Some((node, table.process_on(rank, host)?)))
    }
}

/// What a debugger may want of a running job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Wish {
    /// That the ranks are let go.
    Release,
    /// That this is started on each host.
    Tool(ToolWords),
}
