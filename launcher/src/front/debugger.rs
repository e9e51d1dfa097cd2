// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the front does for debuggers: it fills the process table, stops where a debugger waits for it, and hears when one
//! wants a program of its own on each host.
//!
//! The table is always filled, since a debugger may come to a job at any time. There is no file: what a debugger writes
//! its byte to is a pipe, by its name below `/proc`.

use super::Gdb;
use crate::job::{NodeJob, Program};
use crate::mpir::{Process, Starter, State, ToolWords};
use nix::errno::Errno;
use nix::fcntl::OFlag;
use nix::unistd::{pipe2, read};
use std::collections::BTreeMap;
use std::ffi::CString;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

/// The debugger's side of a front.
pub(crate) struct Debugger {
    starter: Starter,
    /// The machines of the nodes.
    hosts: Vec<CString>,
    /// The program of each rank, and its node and process once these are known.
    ranks: Vec<(CString, Option<(usize, u32)>)>,
    /// All ranks stand still until [`Debugger::meet`] is over.
    holding: bool,
    fifo: String,
    gdb: Option<Gdb>,
    asks: OwnedFd,
    /// Never written to: while it is open here, the other end does not tell that nobody writes.
    _write_end: OwnedFd,
}

impl Debugger {
    /// For the ranks of a job of these programs on these hosts, a part of the job for each.
    pub(crate) fn new(
        mut starter: Starter,
        (hosts, holding): (&[String], bool),
        (programs, jobs): (&[Program], &[NodeJob]),
        gdb: Option<Gdb>,
    ) -> Result<Self, Errno> {
        let (asks, write_end) = pipe2(OFlag::O_CLOEXEC | OFlag::O_NONBLOCK)?;
        let fifo = format!("/proc/{}/fd/{}", std::process::id(), asks.as_raw_fd());
        starter.name_fifo(&fifo);
        let host = |name: &String| CString::new(name.as_str()).unwrap_or_default();
        let program = |app: u32| programs[app as usize].path.clone();
        let of_job = |job: &NodeJob| {
            let ranks = job.ranks.iter();
            let named = ranks.map(|placed| (placed.rank, program(placed.app)));
            named.collect::<Vec<_>>()
        };
        let ranks: BTreeMap<u32, CString> = jobs.iter().flat_map(of_job).collect();
        Ok(Self {
            starter,
            hosts: hosts.iter().map(host).collect(),
            ranks: ranks.into_values().map(|program| (program, None)).collect(),
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
    pub(crate) fn found(&mut self, path: &CString, ranks: &[u32]) {
        for rank in ranks {
            if let Some((program, _)) = self.ranks.get_mut(*rank as usize) {
                program.clone_from(path);
            }
        }
    }

    /// These ranks are these processes of a node.
    pub(crate) fn started(&mut self, node: usize, started: &[(u32, u32)]) {
        for (rank, pid) in started {
            if let Some((_, process)) = self.ranks.get_mut(*rank as usize) {
                *process = Some((node, *pid));
            }
        }
        if self.ranks.iter().all(|(_, pid)| pid.is_some()) {
            self.publish();
        }
    }

    fn publish(&mut self) {
        let hosts = &self.hosts;
        self.starter
            .publish(self.ranks.iter().map(|(executable, process)| {
                let (node, pid) = process.unwrap_or_default();
                Process {
                    host: &hosts[node],
                    executable,
                    pid,
                }
            }));
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
        let process = |rank: u32| self.ranks.get(rank as usize)?.1;
        gdb.start(&self.fifo, process).map(|()| true)
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

/// What a debugger may want of a running job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Wish {
    /// That the ranks are let go.
    Release,
    /// That this is started on each host.
    Tool(ToolWords),
}
