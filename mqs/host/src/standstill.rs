// SPDX-License-Identifier: MIT OR Apache-2.0
//! Takes two snapshots of a job. If the two show a rank in different calls, or if the rank had no time between them to
//! process messages that were in flight, it is doubtful whether the rank waits.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::calls::calls;
use crate::hosts::{FrontConnection, JobSnapshot, Unseen};
use crate::job::is_alive;
use crate::report::RankReport;
use crate::verdict::Doubt;
use crate::waits::JobCoverage;
use crate::{Error, InspectionSettings, RunningJob, ancestor, other_hosts};

/// The result of two snapshots of a job.
#[derive(Clone, Debug)]
pub struct JobObservation {
    /// The ranks of the second snapshot.
    pub ranks: Vec<RankReport>,
    /// By rank: why a waiting rank may nevertheless progress.
    pub doubts: BTreeMap<i32, Doubt>,
    /// How much of the job was inspected.
    pub coverage: JobCoverage,
    /// Hosts whose ranks could not be inspected.
    pub unseen: Vec<Unseen>,
    /// Advice to the user, if ranks are missing and no launcher was found that could report them.
    pub elsewhere: Option<String>,
}

/// Takes two snapshots of the ranks that a pid stands for, or only one if no rank waits.
///
/// # Errors
/// Those of [`inspect`](crate::inspect).
pub fn observe(pid: u32) -> Result<JobObservation, Error> {
    observe_with(pid, &InspectionSettings::default())
}

/// [`observe`] with options.
///
/// # Errors
/// Those of [`inspect`](crate::inspect).
pub fn observe_with(pid: u32, settings: &InspectionSettings) -> Result<JobObservation, Error> {
    if let Some(mut front) = FrontConnection::find(pid)? {
        return observe_hosts(&mut front);
    }
    for _ in 1..TRIES {
        match observe_once(pid, settings) {
            // A rank has ended meanwhile: start again, without it.
            Err(Error::NoProcess(missing)) if missing != pid && is_alive(pid) => {}
            seen => return seen,
        }
    }
    observe_once(pid, settings)
}

fn observe_once(pid: u32, settings: &InspectionSettings) -> Result<JobObservation, Error> {
    let job = RunningJob::find(pid, settings)?;
    // The front and its ranks may have been started since `observe_with` looked for a front.
    if let Some(mut front) = FrontConnection::find(pid)? {
        return observe_hosts(&mut front);
    }
    let first = job.inspect()?;
    if first.iter().all(|rank| calls(rank).is_empty()) {
        return Ok(JobObservation {
            coverage: coverage(&job, &first),
            elsewhere: elsewhere(pid, &first),
            ranks: first,
            doubts: BTreeMap::new(),
            unseen: Vec::new(),
        });
    }
    let before: Vec<Threads> = first.iter().map(|rank| threads(rank.pid)).collect();
    std::thread::sleep(PAUSE);
    let restless = settle(&first, &before);
    let second = job.inspect()?;
    let was: BTreeMap<Place, BTreeSet<String>> = first.iter().map(identified).collect();
    let doubt = |rank: &RankReport| {
        let is_restless = restless.contains(&rank.pid);
        doubt(rank, was.get(&place(rank)), is_restless, || {
            own_threads(rank.pid)
        })
    };
    let doubts = second.iter().filter_map(doubt).collect();
    Ok(JobObservation {
        coverage: coverage(&job, &second),
        elsewhere: elsewhere(pid, &second),
        ranks: second,
        doubts,
        unseen: Vec::new(),
    })
}

/// [`observe`] for several hosts. The first snapshot of all hosts ends before the second begins. So at one instant
/// between the two, every rank that is in the same call in both snapshots was in this call.
fn observe_hosts(front: &mut FrontConnection) -> Result<JobObservation, Error> {
    let first = front.inspect()?;
    if first.ranks.iter().all(|it| calls(&it.rank).is_empty()) {
        return of_hosts(front, first, BTreeMap::new());
    }
    std::thread::sleep(PAUSE_OF_HOSTS);
    let since = Instant::now();
    let (second, restless) = loop {
        let second = front.inspect()?;
        let restless = restless(&first, &second);
        if restless.is_empty() || since.elapsed() > SETTLE_TIMEOUT {
            break (second, restless);
        }
        std::thread::sleep(PAUSE);
    };
    let ranks = first.ranks.iter().map(|it| &it.rank);
    let was: BTreeMap<Place, BTreeSet<String>> = ranks.map(identified).collect();
    let doubts = second.ranks.iter().filter_map(|it| {
        let place = place(&it.rank);
        let is_restless = restless.contains(&place);
        doubt(&it.rank, was.get(&place), is_restless, || it.own)
    });
    let doubts = doubts.collect();
    of_hosts(front, second, doubts)
}

/// Ranks that are not known to have run their progress loop between the two snapshots.
fn restless(first: &JobSnapshot, second: &JobSnapshot) -> BTreeSet<Place> {
    let pairs = second.ranks.iter().map(|it| (place(&it.rank), &it.before));
    let now: BTreeMap<Place, &Threads> = pairs.collect();
    let settled = |place: &Place, rank, before| {
        now.get(place)
            .is_none_or(|now| has_settled(rank, before, now))
    };
    let ranks = first.ranks.iter().map(|it| (place(&it.rank), it));
    let restless = ranks.filter(|(place, it)| !settled(place, &it.rank, &it.after));
    restless.map(|(place, _)| place).collect()
}

fn of_hosts(
    front: &FrontConnection,
    snapshot: JobSnapshot,
    doubts: BTreeMap<i32, Doubt>,
) -> Result<JobObservation, Error> {
    let ranks: Vec<RankReport> = snapshot.ranks.into_iter().map(|it| it.rank).collect();
    if ranks.is_empty() {
        return Err(match snapshot.unseen.first() {
            None => Error::NoneInMpi(front.pid()),
            Some(one) => Error::Unseen {
                count: snapshot.unseen.len(),
                host: one.host.to_string(),
                why: one.why.clone(),
            },
        });
    }
    let complete = missing(&ranks).is_subset(&snapshot.ended);
    Ok(JobObservation {
        ranks,
        doubts,
        coverage: JobCoverage { complete },
        unseen: snapshot.unseen,
        elsewhere: None,
    })
}

/// A process: host and pid.
type Place = (Option<Arc<str>>, u32);

fn place(rank: &RankReport) -> Place {
    (rank.host.clone(), rank.pid)
}

fn identified(rank: &RankReport) -> (Place, BTreeSet<String>) {
    (place(rank), identity(rank))
}

/// Why a waiting rank may progress; `None` if the rank does not wait, or certainly waits. `was`: the waits of the rank
/// in the first snapshot; `None` if that snapshot does not have the rank.
fn doubt(
    rank: &RankReport,
    was: Option<&BTreeSet<String>>,
    is_restless: bool,
    count_threads: impl Fn() -> usize,
) -> Option<(i32, Doubt)> {
    let waits = calls(rank);
    let number = rank.rank.filter(|_| !waits.is_empty())?;
    let doubt = if was.is_some_and(|was| *was != identity(rank)) || is_moving(rank) {
        Doubt::Moved
    } else if was.is_none() || is_restless {
        Doubt::Restless
    } else if !waits.iter().any(|it| it.alone) && count_threads() > waits.len() {
        Doubt::Threads
    } else {
        return None;
    };
    Some((number, doubt))
}

/// Waits until the ranks have run their progress loops since they were continued. Returns the pids of ranks that have
/// not done so within the timeout.
fn settle(ranks: &[RankReport], before: &[Threads]) -> BTreeSet<u32> {
    let since = Instant::now();
    loop {
        let pairs = ranks.iter().zip(before);
        let restless: BTreeSet<u32> = pairs
            .filter(|(rank, before)| !has_settled(rank, before, &threads(rank.pid)))
            .map(|(rank, _)| rank.pid)
            .collect();
        if restless.is_empty() || since.elapsed() > SETTLE_TIMEOUT {
            return restless;
        }
        std::thread::sleep(PAUSE / 10);
    }
}

/// Compares two states of a rank's threads. Returns whether each waiting thread has run since `before` and sleeps
/// again, or has used [`POLL_TIME`] of CPU time since.
fn has_settled(rank: &RankReport, before: &Threads, now: &Threads) -> bool {
    calls(rank).iter().all(|call| {
        let thread = call.thread.unwrap_or(rank.pid);
        let was = before.get(&thread);
        now.get(&thread).is_some_and(|(sleeps, ran)| {
            let more = was.map_or(*ran, |(_, was)| ran.saturating_sub(*was));
            more >= POLL_TIME || (*sleeps && !more.is_zero())
        })
    })
}

/// By thread id: whether the thread sleeps, and its CPU time.
pub(crate) type Threads = BTreeMap<u32, (bool, Duration)>;

pub(crate) fn threads(pid: u32) -> Threads {
    let tasks = fs::read_dir(format!("/proc/{pid}/task"));
    let tasks = tasks.into_iter().flatten().flatten();
    let found = tasks.filter_map(|task| {
        let number = task.file_name().to_str()?.parse().ok()?;
        let stat = fs::read_to_string(task.path().join("stat")).ok()?;
        let state = stat.rsplit(") ").next()?.chars().next()?;
        let times = fs::read_to_string(task.path().join("schedstat")).ok()?;
        let ran = times.split_ascii_whitespace().next()?.parse().ok()?;
        Some((number, (state == 'S', Duration::from_nanos(ran))))
    });
    found.collect()
}

/// Number of threads of a process, without those of rmpi's library.
pub(crate) fn own_threads(pid: u32) -> usize {
    let tasks = fs::read_dir(format!("/proc/{pid}/task"));
    let tasks = tasks.into_iter().flatten().flatten();
    let names = tasks.filter_map(|task| fs::read_to_string(task.path().join("comm")).ok());
    names.filter(|name| !name.starts_with("rmpi-")).count()
}

/// Whether data of a collective are being transferred. The transfer may take long, and no queue shows its progress.
fn is_moving(rank: &RankReport) -> bool {
    rank.communicators.iter().any(|comm| {
        let calls = comm.calls.iter().any(|it| it.moving);
        let mut operations = comm.sends.iter().chain(&comm.receives);
        calls || comm.begun.iter().any(|it| it.moving) || operations.any(|it| it.moving)
    })
}

/// Identifies the waits of a rank: the result is equal for two snapshots only if the rank is still in the same waits.
fn identity(rank: &RankReport) -> BTreeSet<String> {
    let mut marks = BTreeSet::new();
    for comm in &rank.communicators {
        for it in comm.sends.iter().chain(&comm.receives) {
            marks.extend(
                it.call
                    .as_ref()
                    .map(|call| format!("{call} {:?} {:?}", it.thread, it.wait)),
            );
        }
        let begun = comm
            .begun
            .iter()
            .filter_map(|it| Some((it, it.call.as_ref()?)));
        marks.extend(begun.map(|(it, call)| format!("{call} {:?} {:?}", it.thread, it.wait)));
        let calls = comm.calls.iter();
        marks.extend(calls.map(|it| format!("{} {:?} {:?}", it.function, it.thread, it.wait)));
    }
    marks
}

/// Ranks that were not seen, but belong to a communicator of a rank that was seen.
fn missing(ranks: &[RankReport]) -> BTreeSet<i32> {
    let seen: BTreeSet<i32> = ranks.iter().filter_map(|it| it.rank).collect();
    let groups = ranks.iter().flat_map(|it| &it.communicators);
    let all = groups.flat_map(|it| it.ranks.iter().copied());
    all.filter(|it| !seen.contains(it)).collect()
}

/// Advice for ranks that were not seen because they are on another host or belong to another launcher.
fn elsewhere(named: u32, ranks: &[RankReport]) -> Option<String> {
    let missing = missing(ranks);
    let mut boots = ranks.iter().filter_map(|it| ancestor::boot(it.pid).ok());
    let Some(boot) = boots.next() else {
        let rank = ranks.first().filter(|_| !missing.is_empty())?;
        return Some(other_hosts::by_starter(named, rank.pid));
    };
    let is_here =
        |rank: &i32| u32::try_from(*rank).is_ok_and(|it| boot.ranks.as_slice().contains(&it));
    let is_part = boot.local_size() < boot.size && !missing.iter().all(is_here);
    is_part.then(|| other_hosts::BY_FRONT.to_owned())
}

/// The coverage of a job. It is complete if all ranks that were not seen have ended.
fn coverage(job: &RunningJob, ranks: &[RankReport]) -> JobCoverage {
    let missing = missing(ranks);
    // A missing rank need not have ended: perhaps it has not been started yet, or is a script between two programs. So
    // this requests from rmpi's daemon whether each missing rank has ended.
    let ended = |pid: u32| {
        let mut missing = missing.iter().filter_map(|it| u32::try_from(*it).ok());
        missing.all(|rank| ancestor::has_ended(pid, rank))
    };
    let complete = match ranks.first() {
        None => false,
        Some(rank) if ancestor::is_of_rmpi(rank.pid) => ended(rank.pid),
        Some(_) => are_all_ranks_of_launcher(job, ranks),
    };
    JobCoverage { complete }
}

/// For another MPI: whether all ranks of the job were started on this host by the given process, and no other process
/// below it can become a rank. If the given process has the environment variables of a rank, it is only a script around
/// that rank, not the process that started all ranks.
fn are_all_ranks_of_launcher(job: &RunningJob, ranks: &[RankReport]) -> bool {
    let starter = job.starter();
    let mut all = ranks.iter();
    let here = all.all(|rank| rank.pid != starter && is_job_of_one_host(rank.pid));
    here && !is_job_of_one_host(starter) && job.is_whole()
}

/// Whether all ranks of the job are on this host, according to the launcher's variables in a process's environment.
fn is_job_of_one_host(pid: u32) -> bool {
    let variables = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
    let value = |name: &str| {
        let mut lines = variables.split(|byte| *byte == 0);
        lines.find_map(|line| line.strip_prefix(name.as_bytes())?.strip_prefix(b"="))
    };
    let mut pairs = SIZE_VARIABLES.iter();
    pairs.any(|(all, local)| value(all).is_some() && value(all) == value(local))
}

const SIZE_VARIABLES: [(&str, &str); 3] = [
    ("RMPI_SIZE", "RMPI_LOCAL_SIZE"),
    ("OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE"),
    ("PMI_SIZE", "MPI_LOCALNRANKS"),
];

/// Maximum number of attempts, if ranks end during a snapshot.
const TRIES: usize = 5;
/// Time between two snapshots.
const PAUSE: Duration = Duration::from_millis(100);
/// Time between two snapshots of several hosts: the network may have to retransmit lost messages.
const PAUSE_OF_HOSTS: Duration = Duration::from_secs(1);
/// Time limit for all ranks to run their progress loops. It is meant to suffice even if CPUs are oversubscribed.
const SETTLE_TIMEOUT: Duration = Duration::from_secs(2);
/// CPU time after which a polling thread is assumed to have polled all sources.
const POLL_TIME: Duration = Duration::from_millis(2);
