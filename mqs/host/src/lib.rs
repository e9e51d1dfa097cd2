// SPDX-License-Identifier: MIT OR Apache-2.0
//! A small debugger that only looks at message queues: it stops ranks, loads the library that their MPI names for
//! debuggers (`MPIR_dll_name`), asks it for communicators and queues, and lets the ranks go on.
//!
//! | module | what it is |
//! |---|---|
//! | [`job`] | which processes are ranks |
//! | [`hosts`], [`host_report`] | the ranks of a job over several hosts, and what each host says of its own |
//! | [`stop`] | ranks that stand still |
//! | [`target`] | a rank: its memory, what is mapped in it |
//! | [`ancestor`] | that memory by way of rmpi's launcher, where the system gives it to no other |
//! | [`symbols`], [`types`] | what files say |
//! | [`dll`] | the library, and the callbacks that it reads a rank through |
//! | [`report`] | what was found, as data |
//! | [`standstill`] | two looks, and what did not change between them |
//! | [`calls`] | the calls that ranks wait in |
//! | [`waits`] | what each rank waits for, and who could end that |
//! | [`near`] | what lies beside it that nearly fits |
//! | [`verdict`] | whether the job can go on, and if not, why |
//! | [`words`], [`listing`], [`graph`] | all that in words, as lists and as a picture |
//! | [`cli`] | the command |
//!
//! **Knows** the message queue interface (`mqs::interface`), `/proc`, and how rmpi's launcher is asked for
//! memory, and for the ranks of other hosts.
//! **Never** knows what lies behind the interface: any MPI's library will do. It writes nothing into a rank.
//!
//! # Threads
//! Libraries that allow it are asked about several ranks at once. Whoever stopped the ranks lets them go on.

pub mod ancestor;
pub mod calls;
pub mod cli;
pub mod dll;
mod elsewhere;
pub mod graph;
pub mod host_report;
pub mod hosts;
pub mod job;
pub mod listing;
pub mod near;
pub mod report;
pub mod standstill;
pub mod stop;
pub mod symbols;
pub mod target;
pub mod types;
pub mod verdict;
pub mod waits;
pub mod words;

use nix::libc;
use std::collections::{BTreeSet, HashMap};
use std::num::NonZero;
use std::path::PathBuf;

use dll::Dll;
use report::RankReport;
use stop::{HaltedProcesses, Undisturbed};
use symbols::SymbolFiles;
use target::RankProcess;

/// Why queues cannot be shown.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// There is no such process.
    #[error("there is no process {0} any more: the job has probably ended")]
    Gone(u32),
    /// It is somebody else's, or something is wrong with it.
    #[error("process {pid} cannot be read: {why}; is it yours?")]
    Unreadable {
        /// The process.
        pid: u32,
        /// What the system said.
        #[source]
        why: std::io::Error,
    },
    /// The system does not let its memory be read.
    #[error("the system does not let process {pid} be read: {}", forbidden(*.scope))]
    Forbidden {
        /// The process.
        pid: u32,
        /// What the Yama module is set to, where there is one.
        scope: Option<u32>,
    },
    /// No rank was found.
    #[error("process {0} is no rank and has started none; give the pid of rmpiexec or of a rank")]
    NoRanks(u32),
    /// Slurm's `srun` has no rank below itself.
    #[error(
        "process {0} is srun, which has no rank below it: on a host of the job give the pid of slurmstepd, for all ranks of that host, or of \
         a rank"
    )]
    OfSrun(u32),
    /// The launcher of a job over several hosts does not answer as it should.
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
    /// No host could look at its ranks.
    #[error("no rank of {count} hosts could be looked at; host {host}: {why}")]
    Unseen {
        /// How many hosts.
        count: usize,
        /// One of them.
        host: String,
        /// What it says.
        why: String,
    },
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

impl Error {
    /// Of a process that could not be read.
    pub(crate) fn unreadable(pid: u32, why: std::io::Error) -> Self {
        let is_gone =
            why.kind() == std::io::ErrorKind::NotFound || why.raw_os_error() == Some(libc::ESRCH);
        match is_gone {
            true => Self::Gone(pid),
            false => Self::Unreadable { pid, why },
        }
    }

    /// Of a launcher that does not speak.
    pub(crate) fn silent(pid: u32, why: &std::io::Error) -> Self {
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

/// What a user may say besides which process.
#[derive(Clone, Debug, Default)]
pub struct InspectionSettings {
    /// The library to ask, instead of the one that the ranks' MPI names.
    pub library: Option<PathBuf>,
    /// Files with debug information of the ranks' MPI, for a library that asks for types.
    pub debug_info: Vec<PathBuf>,
    /// Does without what the system allows only to the ranks' ancestors, as if it did here: for tests.
    pub as_stranger: bool,
}

/// Stops all ranks of a job, reads their queues and lets them go on. `pid`: a rank, or who started ranks.
///
/// # Errors
/// When there is no rank, or one cannot be read.
pub fn look(pid: u32) -> Result<Vec<RankReport>, Error> {
    look_with(pid, &InspectionSettings::default())
}

/// The same with what a user has said beside it.
///
/// # Errors
/// Those of [`look`].
pub fn look_with(pid: u32, settings: &InspectionSettings) -> Result<Vec<RankReport>, Error> {
    Job::find(pid, settings)?.look()
}

/// Ranks that may be looked at more than once.
#[derive(Debug)]
pub struct Job {
    pid: u32,
    is_stranger: bool,
    targets: Vec<(RankProcess, PathBuf)>,
    libraries: HashMap<PathBuf, Dll>,
}

impl Job {
    /// Finds the ranks that a process stands for, and loads their libraries for debuggers.
    ///
    /// # Errors
    /// When there is no rank, or no library for it.
    pub fn find(pid: u32, settings: &InspectionSettings) -> Result<Self, Error> {
        let mut files = SymbolFiles::default();
        let found = job::ranks(pid, &mut files)?;
        Self::of(found, settings, files)
    }

    /// The ranks that a node daemon of rmpi's launcher has started, which may be none.
    ///
    /// # Errors
    /// When there is no library for one.
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
            is_stranger: settings.as_stranger,
            targets: Vec::new(),
            libraries: HashMap::new(),
        };
        for mut target in found.ranks {
            if settings.as_stranger {
                target.be_stranger();
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

    /// The process that started them, or the only one.
    #[must_use]
    pub fn starter(&self) -> u32 {
        self.pid
    }

    /// Whether these are still all ranks, and nothing else that was started there may become one.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        let known: BTreeSet<u32> = self.targets.iter().map(|(it, _)| it.pid()).collect();
        job::ranks(self.pid, &mut SymbolFiles::default()).is_ok_and(|now| {
            now.whole
                && now
                    .ranks
                    .iter()
                    .map(RankProcess::pid)
                    .collect::<BTreeSet<_>>()
                    == known
        })
    }

    /// Stops all of them, reads their queues, and lets them go on.
    ///
    /// # Errors
    /// When one cannot be read any more.
    pub fn look(&self) -> Result<Vec<RankReport>, Error> {
        let pid = self.pid;
        let undisturbed = Undisturbed::begin().map_err(|why| Error::Unreadable { pid, why })?;
        let pids = self.targets.iter().map(|(target, _)| target.pid());
        let stopped = match self.is_stranger {
            true => HaltedProcesses::stop_by_signal(pids)?,
            false => HaltedProcesses::stop(pids)?,
        };
        let mut ranks = self.read()?;
        drop(stopped);
        drop(undisturbed);
        ranks.sort_by_key(|it| (it.rank, it.pid));
        Ok(ranks)
    }

    /// Asks for all of them, several at a time if the libraries allow that.
    fn read(&self) -> Result<Vec<RankReport>, Error> {
        let ask = |(target, path): &(RankProcess, PathBuf)| {
            let library = self.libraries.get(path);
            let library = library.ok_or_else(|| Error::NoDll(target.pid()))?;
            // Who was killed while it was being read has no memory any more.
            let read = library.read(target);
            read.map_err(|why| match job::is_there(target.pid()) {
                true => why,
                false => Error::Gone(target.pid()),
            })
        };
        let together = self.libraries.values().all(Dll::is_for_threads);
        let workers = std::thread::available_parallelism().map_or(1, NonZero::get);
        if !together || workers == 1 {
            return self.targets.iter().map(ask).collect();
        }
        let share = self.targets.len().div_ceil(workers).max(1);
        std::thread::scope(|scope| {
            let shares = self.targets.chunks(share);
            let asked = shares.map(|share| {
                scope.spawn(move || share.iter().map(ask).collect::<Result<Vec<_>, _>>())
            });
            // All are started before any is waited for.
            let asked: Vec<_> = asked.collect();
            let mut ranks = Vec::new();
            for share in asked {
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

/// What to do about it.
fn forbidden(scope: Option<u32>) -> String {
    match scope {
        Some(scope @ 1..) => format!(
            "kernel.yama.ptrace_scope is {scope}, so only a rank's ancestors may; run rmpi-queues as root, or set it to 0 \
             (sysctl kernel.yama.ptrace_scope=0)"
        ),
        _ => "it is somebody else's, or a container forbids it; be the user who started the job, and with Docker or Podman \
              give --cap-add SYS_PTRACE"
            .to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_says_what_to_do() {
        let words = |scope| Error::Forbidden { pid: 7, scope }.to_string();
        assert_eq!(
            words(Some(1)),
            "the system does not let process 7 be read: kernel.yama.ptrace_scope is 1, so only a rank's ancestors may; run \
             rmpi-queues as root, or set it to 0 (sysctl kernel.yama.ptrace_scope=0)"
        );
        assert!(words(None).contains("--cap-add SYS_PTRACE"));
        assert_eq!(words(None), words(Some(0)));
    }
}
