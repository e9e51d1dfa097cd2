// SPDX-License-Identifier: MIT OR Apache-2.0
//! A small debugger that only looks at message queues: it stops ranks, loads the library that their MPI names for
//! debuggers (`MPIR_dll_name`), asks it for communicators and queues, and lets the ranks go on.
//!
//! | module | what it is |
//! |---|---|
//! | [`job`] | which processes are ranks |
//! | [`target`] | a rank: stopped, its memory, its symbols |
//! | [`dll`] | the library, and the callbacks that it reads a rank through |
//! | [`report`] | what was found, as data |
//! | [`standstill`] | two looks, and what did not change between them |
//! | [`calls`] | the calls that ranks wait in |
//! | [`waits`] | what each rank waits for, and who could end that |
//! | [`verdict`] | whether the job can go on, and if not, why |
//! | [`words`], [`listing`], [`graph`] | all that in words, as lists and as a picture |
//! | [`cli`] | the command |
//!
//! **Knows** the message queue interface (`mqs::interface`) and `/proc`.
//! **Never** knows what lies behind the interface: any MPI's library will do. It writes nothing into a rank.
//!
//! # Threads
//! None; one process is asked after the other while all are stopped.

pub mod calls;
pub mod cli;
pub mod dll;
pub mod graph;
pub mod job;
pub mod listing;
pub mod report;
pub mod standstill;
pub mod target;
pub mod verdict;
pub mod waits;
pub mod words;

use std::collections::HashMap;
use std::path::PathBuf;

use dll::Dll;
use report::Rank;
use target::{Files, Stopped, Target, Undisturbed};

/// Why queues cannot be shown.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// There is no such process, or it is somebody else's.
    #[error("process {pid} cannot be read: {why}; is it there, and yours?")]
    Unreadable {
        /// The process.
        pid: u32,
        /// What the system said.
        #[source]
        why: std::io::Error,
    },
    /// No rank was found.
    #[error("process {0} is no rank and has started none; give the pid of rmpiexec or of a rank")]
    NoRanks(u32),
    /// A rank's MPI does not say where its library for debuggers lies.
    #[error("process {0} has no MPIR_dll_name: its MPI has no library for debuggers")]
    NoDll(u32),
    /// The library cannot be loaded or used.
    #[error("cannot use {}: {why}", path.display())]
    Dll {
        /// The library.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// The library answered with an error.
    #[error("process {pid}: {function} failed: {why}")]
    Refused {
        /// The rank.
        pid: u32,
        /// The function that was asked.
        function: &'static str,
        /// The library's words.
        why: String,
    },
}

/// Stops all ranks of a job, or one rank, reads their queues and lets them go on. `pid`: a rank, or who started ranks.
///
/// # Errors
/// When there is no rank, or one cannot be read.
pub fn look(pid: u32) -> Result<Vec<Rank>, Error> {
    let mut files = Files::default();
    let targets = job::ranks(pid, &mut files)?;
    let undisturbed = Undisturbed::begin().map_err(|why| Error::Unreadable { pid, why })?;
    let stopped: Result<Vec<_>, _> = targets.iter().map(|it| Stopped::stop(it.pid())).collect();
    let stopped = stopped?;
    let mut dlls = HashMap::new();
    let mut ranks = Vec::new();
    for target in targets {
        ranks.push(read(target, &mut dlls)?);
    }
    drop(stopped);
    drop(undisturbed);
    ranks.sort_by_key(|it| (it.rank, it.pid));
    Ok(ranks)
}

fn read(target: Target, dlls: &mut HashMap<PathBuf, Dll>) -> Result<Rank, Error> {
    let path = target.dll_path();
    let path = path.ok_or_else(|| Error::NoDll(target.pid()))?;
    if !dlls.contains_key(&path) {
        dlls.insert(path.clone(), Dll::load(&path)?);
    }
    match dlls.get(&path) {
        Some(dll) => dll.read(target),
        None => Err(Error::NoDll(target.pid())),
    }
}
