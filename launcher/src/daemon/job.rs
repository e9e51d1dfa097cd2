// SPDX-License-Identifier: MIT OR Apache-2.0
//! One node's part of a job, ready to be started.

use super::start::random_u64;
use crate::cli::Reader;
use nix::sched::CpuSet;
use std::ffi::CString;

/// Numbers that belong to one job and that nobody can guess.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Keys {
    /// Of the job: the node segment has it, and who asks for that must know it.
    pub(crate) job: u64,
    /// See [`pmi::Boot::network_key`]. Not made from the other one, which more eyes see.
    pub(crate) network: u32,
}

impl Keys {
    /// Draws them.
    pub(crate) fn draw() -> Result<Self, String> {
        // 31 bits: they fit.
        let network = u32::try_from(random_u64()? >> 33).unwrap_or(0);
        let job = random_u64()?;
        Ok(Self { job, network })
    }
}

/// What a daemon is told at its start.
#[derive(Debug)]
pub(crate) struct NodeJob {
    /// The job's keys.
    pub(crate) keys: Keys,
    /// Ranks of the whole job.
    pub(crate) size: u32,
    /// The programs of the command line.
    pub(crate) programs: Vec<Program>,
    /// The ranks of this node; the index is the local rank.
    pub(crate) ranks: Vec<Placed>,
    /// The CPUs that the node's part of the job may use, in the form of [`pmi::Boot::mask`].
    pub(crate) mask: Vec<u64>,
    /// The same as the system's set.
    pub(crate) whole: CpuSet,
    /// Who reads standard input.
    pub(crate) input: Reader,
    /// Somebody sits at a terminal: an unfinished line of rank 0 is a prompt and goes out soon.
    pub(crate) prompts: bool,
    /// A debugger wants the ranks to stand still before their first instruction.
    pub(crate) hold: bool,
    /// Tell the front when the ranks come to a phase.
    pub(crate) report_phases: bool,
}

impl NodeJob {
    /// Ranks of this node.
    pub(crate) fn local_size(&self) -> u32 {
        u32::try_from(self.ranks.len()).expect("a node holds at most 1024 ranks")
    }
}

/// A program with all that `execve` needs but what differs from rank to rank.
#[derive(Debug)]
pub(crate) struct Program {
    /// The file.
    pub(crate) path: CString,
    /// Name as typed, and arguments.
    pub(crate) arguments: Vec<CString>,
    /// `NAME=VALUE`.
    pub(crate) environment: Vec<CString>,
    /// Where to start, if elsewhere.
    pub(crate) folder: Option<CString>,
}

/// A rank and its place.
#[derive(Debug)]
pub(crate) struct Placed {
    /// The rank.
    pub(crate) rank: u32,
    /// Its program.
    pub(crate) app: u32,
    /// CPUs to bind it to, or to prefer.
    pub(crate) cpus: Option<CpuSet>,
    /// The CPUs are only preferred, see `tend`.
    pub(crate) preferred: bool,
}
