// SPDX-License-Identifier: MIT OR Apache-2.0
//! A small debugger that only reads message queues: it stops ranks, loads their MPI's debugger library
//! (`MPIR_dll_name`), reads communicators and queues through it, and lets the ranks continue.
//!
//! | module                              | what it is |
//! |-------------------------------------|-----|
//! | [`job`]                             | finding the processes that are ranks |
//! | [`hosts`], [`host_report`]          | the ranks of a job over several hosts, and the report of each host on its own |
//! | [`stop`]                            | stopping processes, and letting them continue |
//! | [`target`]                          | a rank's process: its memory and mapped files |
//! | [`ancestor`]                        | a rank's memory through rmpi's launcher, if the system permits only ancestors to read it |
//! | [`symbols`], [`types`]              | symbols and debug information of files |
//! | [`dll`]                             | the debugger library, and the callbacks through which it reads a rank |
//! | [`report`]                          | communicators, queues and calls of a rank, as data |
//! | [`standstill`]                      | two snapshots, and the calls that did not change between them |
//! | [`calls`]                           | the calls that ranks wait in |
//! | [`waits`]                           | what each rank waits for, and which ranks can complete it |
//! | [`near_miss`]                       | messages and receives that nearly match |
//! | [`verdict`]                         | whether the job can progress, and if not, why |
//! | [`wording`], [`listing`], [`graph`] | the result as text, as lists and as a picture |
//! | [`cli`]                             | the command line |
//!
//! **Knows** the message queue interface (`mqs::interface`), `/proc`, and rmpi's launcher protocols for a rank's memory and
//! for the ranks of other hosts.
//! **Never** depends on the implementation behind the interface: the debugger library of any MPI works. It never writes
//! into a rank.
//!
//! # Threads
//! Ranks are read on several threads if the library permits that. Only the thread that stopped the ranks lets them continue.

pub mod ancestor;
pub mod calls;
pub mod cli;
pub mod dll;
pub mod graph;
pub mod host_report;
pub mod hosts;
pub mod job;
pub mod listing;
pub mod near_miss;
mod other_hosts;
pub mod report;
pub mod standstill;
pub mod stop;
pub mod symbols;
pub mod target;
pub mod types;
pub mod verdict;
pub mod waits;
pub mod wording;

use nix::libc;
use std::collections::{BTreeSet, HashMap};
use std::num::NonZero;
use std::path::PathBuf;

use dll::Dll;
use report::RankReport;
use stop::{BlockedSignals, HaltedProcesses};
use symbols::SymbolFiles;
use target::RankProcess;

/// Why queues cannot be shown.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// There is no such process.
    #[error("there is no process {0} any more: the job has probably ended")]
    NoProcess(u32),
    /// The process cannot be read: it belongs to another user, or another error occurred.
    #[error("process {pid} cannot be read: {why}; is it yours?")]
    Unreadable {
        /// The process.
        pid: u32,
        /// The system's error.
        #[source]
        why: std::io::Error,
    },
    /// The system forbids reading the memory of the process.
    #[error("the system does not let process {pid} be read: {}", forbidden(*.scope))]
    Forbidden {
        /// The process.
        pid: u32,
        /// `kernel.yama.ptrace_scope`, if the kernel has the Yama module.
        scope: Option<u32>,
    },
    /// No rank was found.
    #[error("process {0} is no rank and has started none; give the pid of rmpiexec or of a rank")]
    NoRanks(u32),
    /// Slurm's `srun` is not an ancestor of its ranks.
    #[error(
        "process {0} is srun, which has no rank below it: on a host of the job give the pid of slurmstepd, for all ranks of that host, or of \
         a rank"
    )]
    OfSrun(u32),
    /// The launcher of a job over several hosts does not reply, or replies with garbage.
    #[error("rmpiexec (process {pid}) does not say what the ranks of its hosts wait for: {why}")]
    Front {
        /// The launcher.
        pid: u32,
        /// What is wrong.
        why: String,
    },
    /// No rank of a job over several hosts is in MPI.
    #[error(
        "no rank of rmpiexec (process {0}) is in MPI: they have not come to MPI_Init, or have ended"
    )]
    NoneInMpi(u32),
    /// No host could inspect its ranks.
    #[error("no rank of {count} hosts could be looked at; host {host}: {why}")]
    Unseen {
        /// Number of hosts whose ranks could not be inspected.
        count: usize,
        /// One of these hosts.
        host: String,
        /// The error of that host.
        why: String,
    },
    /// A rank's MPI does not name a debugger library.
    #[error("process {0} has no MPIR_dll_name: its MPI has no library for debuggers")]
    NoDll(u32),
    /// The library cannot be loaded or used.
    #[error("cannot use {}: {why}", path.display())]
    Dll {
        /// The library.
        path: PathBuf,
        /// The error.
        why: String,
    },
    /// A function of the library failed.
    #[error("process {pid}: {function} failed: {why}")]
    Refused {
        /// The rank.
        pid: u32,
        /// The function.
        function: &'static str,
        /// The library's message.
        why: String,
    },
}

impl Error {
    /// The error for a process that could not be read.
    pub(crate) fn unreadable(pid: u32, why: std::io::Error) -> Self {
        let has_ended =
            why.kind() == std::io::ErrorKind::NotFound || why.raw_os_error() == Some(libc::ESRCH);
        match has_ended {
            true => Self::NoProcess(pid),
            false => Self::Unreadable { pid, why },
        }
    }

    /// The error for a launcher that does not reply.
    pub(crate) fn no_answer(pid: u32, why: &std::io::Error) -> Self {
        use std::io::ErrorKind;
        let why = match why.kind() {
            ErrorKind::UnexpectedEof | ErrorKind::BrokenPipe | ErrorKind::ConnectionReset => {
                "the job has just ended, or is another user's".to_owned()
            }
            ErrorKind::WouldBlock | ErrorKind::TimedOut => {
                "it does not answer; was it stopped?".to_owned()
            }
            _ => why.to_string(),
        };
        Self::Front { pid, why }
    }
}

/// Options of an inspection, besides the process.
#[derive(Clone, Debug, Default)]
pub struct InspectionSettings {
    /// The debugger library to use, instead of the one that the ranks' MPI names.
    pub library: Option<PathBuf>,
    /// Files with debug information of the ranks' MPI, for a library that needs types.
    pub debug_info: Vec<PathBuf>,
    /// For tests: whether to behave as if the system permitted only ancestors of a rank to trace and read it.
    pub as_unrelated: bool,
}

/// Stops all ranks of a job, reads their queues and lets the ranks continue. `pid`: a rank, or a process that started
/// ranks.
///
/// # Errors
/// When there is no rank, or a rank cannot be read.
pub fn inspect(pid: u32) -> Result<Vec<RankReport>, Error> {
    inspect_with(pid, &InspectionSettings::default())
}

/// [`inspect`] with options.
///
/// # Errors
/// Those of [`inspect`].
pub fn inspect_with(pid: u32, settings: &InspectionSettings) -> Result<Vec<RankReport>, Error> {
    RunningJob::find(pid, settings)?.inspect()
}

/// The ranks of a job, for one or more snapshots.
#[derive(Debug)]
pub struct RunningJob {
    pid: u32,
    is_unrelated: bool,
    targets: Vec<(RankProcess, PathBuf)>,
    libraries: HashMap<PathBuf, Dll>,
}

impl RunningJob {
    /// Finds the ranks that a process stands for, and loads their debugger libraries.
    ///
    /// # Errors
    /// When there is no rank, or no library for it.
    pub fn find(pid: u32, settings: &InspectionSettings) -> Result<Self, Error> {
        let mut files = SymbolFiles::default();
        let found = job::ranks(pid, &mut files)?;
        Self::of(found, settings, files)
    }

    /// The ranks that a node daemon of rmpi's launcher has started; possibly none.
    ///
    /// # Errors
    /// When there is no library for one of the ranks.
    pub(crate) fn of_daemon(pid: u32, settings: &InspectionSettings) -> Result<Self, Error> {
        let mut files = SymbolFiles::default();
        let found = job::ranks_of_daemon(pid, &mut files);
        Self::of(found, settings, files)
    }

    fn of(
        found: job::FoundJob,
        settings: &InspectionSettings,
        mut files: SymbolFiles,
    ) -> Result<Self, Error> {
        let mut job = Self {
            pid: found.starter,
            is_unrelated: settings.as_unrelated,
            targets: Vec::new(),
            libraries: HashMap::new(),
        };
        for mut target in found.ranks {
            if settings.as_unrelated {
                target.read_through_launcher();
            }
            for path in &settings.debug_info {
                target.add_types(files.symbols(path));
            }
            let named = settings.library.clone().or_else(|| target.dll_path());
            let path = named.ok_or_else(|| why_no_library(&target))?;
            if !job.libraries.contains_key(&path) {
                job.libraries.insert(path.clone(), Dll::load(&path)?);
            }
            job.targets.push((target, path));
        }
        Ok(job)
    }

    /// The process that started the ranks; see [`job::FoundJob::starter`].
    #[must_use]
    pub fn starter(&self) -> u32 {
        self.pid
    }

    /// Whether these ranks are still all ranks of the job, and no other process below the starter can become a rank.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        let known: BTreeSet<u32> = self.targets.iter().map(|(it, _)| it.pid()).collect();
        job::ranks(self.pid, &mut SymbolFiles::default()).is_ok_and(|now| {
            now.complete
                && now
                    .ranks
                    .iter()
                    .map(RankProcess::pid)
                    .collect::<BTreeSet<_>>()
                    == known
        })
    }

    /// Takes a snapshot: stops all ranks, reads their queues, and lets them continue.
    ///
    /// # Errors
    /// When a rank cannot be read any more.
    pub fn inspect(&self) -> Result<Vec<RankReport>, Error> {
        let pid = self.pid;
        let blocked = BlockedSignals::begin().map_err(|why| Error::Unreadable { pid, why })?;
        let pids = self.targets.iter().map(|(target, _)| target.pid());
        let stopped = match self.is_unrelated {
            true => HaltedProcesses::stop_by_signal(pids)?,
            false => HaltedProcesses::stop(pids)?,
        };
        let mut ranks = self.read()?;
        drop(stopped);
        drop(blocked);
        ranks.sort_by_key(|it| (it.rank, it.pid));
        Ok(ranks)
    }

    /// Reads all ranks, several at a time if the libraries permit that.
    fn read(&self) -> Result<Vec<RankReport>, Error> {
        let query = |(target, path): &(RankProcess, PathBuf)| {
            let library = self.libraries.get(path);
            let library = library.ok_or_else(|| Error::NoDll(target.pid()))?;
            // Reading fails if the rank was killed meanwhile: it has no memory any more.
            let read = library.read(target);
            read.map_err(|why| match job::is_alive(target.pid()) {
                true => why,
                false => Error::NoProcess(target.pid()),
            })
        };
        let together = self.libraries.values().all(Dll::is_for_threads);
        let workers = std::thread::available_parallelism().map_or(1, NonZero::get);
        if !together || workers == 1 {
            return self.targets.iter().map(query).collect();
        }
        let share = self.targets.len().div_ceil(workers).max(1);
        std::thread::scope(|scope| {
            let shares = self.targets.chunks(share);
            let running = shares.map(|share| {
                scope.spawn(move || share.iter().map(query).collect::<Result<Vec<_>, _>>())
            });
            // All threads are spawned before the first is joined.
            let running: Vec<_> = running.collect();
            let mut ranks = Vec::new();
            for share in running {
                let share = share.join();
                ranks.extend(share.unwrap_or_else(|panic| std::panic::resume_unwind(panic))?);
            }
            Ok(ranks)
        })
    }
}

fn why_no_library(target: &RankProcess) -> Error {
    let pid = target.pid();
    if target.is_readable() {
        return Error::NoDll(pid);
    }
    let scope = std::fs::read_to_string("/proc/sys/kernel/yama/ptrace_scope");
    let scope = scope.ok().and_then(|text| text.trim().parse().ok());
    Error::Forbidden { pid, scope }
}

/// The advice for [`Error::Forbidden`].
fn forbidden(scope: Option<u32>) -> String {
    match scope {
        Some(scope @ 1..) => format!(
            "kernel.yama.ptrace_scope is {scope}, so only a rank's ancestors may; run rmpi-queues as root, or set it to 0 \
             (sysctl kernel.yama.ptrace_scope=0)"
        ),
        _ => "it belongs to another user, or a container forbids it; be the user who started the job, and with Docker or Podman \
              give --cap-add SYS_PTRACE"
            .to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_permission_error_states_the_remedy() {
        let text = |scope| Error::Forbidden { pid: 7, scope }.to_string();
        assert_eq!(
            text(Some(1)),
            "the system does not let process 7 be read: kernel.yama.ptrace_scope is 1, so only a rank's ancestors may; run \
             rmpi-queues as root, or set it to 0 (sysctl kernel.yama.ptrace_scope=0)"
        );
        assert!(text(None).contains("--cap-add SYS_PTRACE"));
        assert_eq!(text(None), text(Some(0)));
    }
}
