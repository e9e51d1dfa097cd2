// SPDX-License-Identifier: MIT OR Apache-2.0
//! Two looks at a job: what a rank waits for is believed when it was the same call both times, and the rank has had time in
//! between to take in whatever was under way to it.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::calls::calls;
use crate::hosts::{Front, JobSnapshot, Unseen};
use crate::job::is_there;
use crate::report::RankReport;
use crate::verdict::Doubt;
use crate::waits::JobCoverage;
use crate::{Error, InspectionSettings, Job, ancestor, elsewhere};

/// What two snapshots of a job have shown.
#[derive(Clone, Debug)]
pub struct JobObservation {
    /// What the second look showed.
    pub ranks: Vec<RankReport>,
    /// Why a rank that waits may go on all the same.
    pub doubts: BTreeMap<i32, Doubt>,
    /// What is known besides.
    pub around: JobCoverage,
    /// Hosts whose ranks could not be looked at.
    pub unseen: Vec<Unseen>,
    /// Ranks are missing, and nobody was found to ask for them: what the user may do.
    pub elsewhere: Option<String>,
}

/// Looks twice at the ranks that a pid stands for, or once if no rank waits.
///
/// # Errors
/// Those of [`look`](crate::look).
pub fn observe(pid: u32) -> Result<JobObservation, Error> {
    observe_with(pid, &InspectionSettings::default())
}

/// The same with what a user has said beside it.
///
/// # Errors
/// Those of [`look`](crate::look).
pub fn observe_with(pid: u32, settings: &InspectionSettings) -> Result<JobObservation, Error> {
    if let Some(mut front) = Front::find(pid)? {
        return observe_hosts(&mut front);
    }
    for _ in 1..TRIES {
        match observe_once(pid, settings) {
            // One of them has ended in between: what that means for the others is seen anew.
            Err(Error::Gone(gone)) if gone != pid && is_there(pid) => {}
            seen => return seen,
        }
    }
    observe_once(pid, settings)
}

fn observe_once(pid: u32, settings: &InspectionSettings) -> Result<JobObservation, Error> {
    let job = Job::find(pid, settings)?;
    // The ranks may have been started since there was no front.
    if let Some(mut front) = Front::find(pid)? {
        return observe_hosts(&mut front);
    }
    let first = job.look()?;
    if first.iter().all(|rank| calls(rank).is_empty()) {
        return Ok(JobObservation {
            around: around(&job, &first),
            elsewhere: elsewhere(pid, &first),
            ranks: first,
            doubts: BTreeMap::new(),
            unseen: Vec::new(),
        });
    }
    let before: Vec<Threads> = first.iter().map(|rank| threads(rank.pid)).collect();
    std::thread::sleep(PAUSE);
    let restless = settle(&first, &before);
    let second = job.look()?;
    let was: BTreeMap<Place, BTreeSet<String>> = first.iter().map(identified).collect();
    let doubt = |rank: &RankReport| {
        let is_restless = restless.contains(&rank.pid);
        doubt(rank, was.get(&place(rank)), is_restless, || {
            own_threads(rank.pid)
        })
    };
    let doubts = second.iter().filter_map(doubt).collect();
    Ok(JobObservation {
        around: around(&job, &second),
        elsewhere: elsewhere(pid, &second),
        ranks: second,
        doubts,
        unseen: Vec::new(),
    })
}

/// The same over hosts. All have been looked at for the first time before any is for the second: there is a moment at which each
/// rank was in the call that it was in both times.
fn observe_hosts(front: &mut Front) -> Result<JobObservation, Error> {
    let first = front.look()?;
    if first.ranks.iter().all(|it| calls(&it.rank).is_empty()) {
        return of_hosts(front, first, BTreeMap::new());
    }
    std::thread::sleep(PAUSE_OF_HOSTS);
    let since = Instant::now();
    let (second, restless) = loop {
        let second = front.look()?;
        let restless = restless(&first, &second);
        if restless.is_empty() || since.elapsed() > PATIENCE {
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

/// Ranks that have not looked at what had come when they were let go.
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
    front: &Front,
    look: JobSnapshot,
    doubts: BTreeMap<i32, Doubt>,
) -> Result<JobObservation, Error> {
    let ranks: Vec<RankReport> = look.ranks.into_iter().map(|it| it.rank).collect();
    if ranks.is_empty() {
        return Err(match look.unseen.first() {
            None => Error::NoneInMpi(front.pid()),
            Some(one) => Error::Unseen {
                count: look.unseen.len(),
                host: one.host.to_string(),
                why: one.why.clone(),
            },
        });
    }
    let whole = missing(&ranks).is_subset(&look.ended);
    Ok(JobObservation {
        ranks,
        doubts,
        around: JobCoverage { whole },
        unseen: look.unseen,
        elsewhere: None,
    })
}

/// A process among those of all hosts.
type Place = (Option<Arc<str>>, u32);

fn place(rank: &RankReport) -> Place {
    (rank.host.clone(), rank.pid)
}

fn identified(rank: &RankReport) -> (Place, BTreeSet<String>) {
    (place(rank), identity(rank))
}

/// Why a rank that waits may go on. `was`: the calls that it waited in before, if it was looked at.
fn doubt(
    rank: &RankReport,
    was: Option<&BTreeSet<String>>,
    is_restless: bool,
    own: impl Fn() -> usize,
) -> Option<(i32, Doubt)> {
    let waits = calls(rank);
    let number = rank.rank.filter(|_| !waits.is_empty())?;
    let doubt = if was.is_some_and(|was| *was != identity(rank)) || is_moving(rank) {
        Doubt::Moved
    } else if was.is_none() || is_restless {
        Doubt::Restless
    } else if !waits.iter().any(|it| it.alone) && own() > waits.len() {
        Doubt::Threads
    } else {
        return None;
    };
    Some((number, doubt))
}

/// Waits until the ranks have looked at what had come when they were let go; those that have not, in the end.
fn settle(ranks: &[RankReport], before: &[Threads]) -> BTreeSet<u32> {
    let since = Instant::now();
    loop {
        let pairs = ranks.iter().zip(before);
        let restless: BTreeSet<u32> = pairs
            .filter(|(rank, before)| !has_settled(rank, before, &threads(rank.pid)))
            .map(|(rank, _)| rank.pid)
            .collect();
        if restless.is_empty() || since.elapsed() > PATIENCE {
            return restless;
        }
        std::thread::sleep(PAUSE / 10);
    }
}

/// Each thread that waits sleeps again, or has polled for a while.
fn has_settled(rank: &RankReport, before: &Threads, now: &Threads) -> bool {
    calls(rank).iter().all(|call| {
        let thread = call.thread.unwrap_or(rank.pid);
        let was = before.get(&thread);
        now.get(&thread).is_some_and(|(sleeps, ran)| {
            let more = was.map_or(*ran, |(_, was)| ran.saturating_sub(*was));
            more >= POLLED || (*sleeps && !more.is_zero())
        })
    })
}

/// By number: whether a thread sleeps, and for how long it has run.
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

/// Threads that are not the library's own.
pub(crate) fn own_threads(pid: u32) -> usize {
    let tasks = fs::read_dir(format!("/proc/{pid}/task"));
    let tasks = tasks.into_iter().flatten().flatten();
    let names = tasks.filter_map(|task| fs::read_to_string(task.path().join("comm")).ok());
    names.filter(|name| !name.starts_with("rmpi-")).count()
}

/// Whether data of a collective are just coming in: that may take long, and nothing else tells of it.
fn is_moving(rank: &RankReport) -> bool {
    rank.communicators.iter().any(|comm| {
        let calls = comm.calls.iter().any(|it| it.moving);
        let mut operations = comm.sends.iter().chain(&comm.receives);
        calls || comm.begun.iter().any(|it| it.moving) || operations.any(|it| it.moving)
    })
}

/// What tells a rank that still waits in the same calls from one that waits in others that look alike.
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

/// Ranks that others know and that were not seen.
fn missing(ranks: &[RankReport]) -> BTreeSet<i32> {
    let seen: BTreeSet<i32> = ranks.iter().filter_map(|it| it.rank).collect();
    let groups = ranks.iter().flat_map(|it| &it.communicators);
    let all = groups.flat_map(|it| it.ranks.iter().copied());
    all.filter(|it| !seen.contains(it)).collect()
}

/// What to do about ranks that were not seen, where their launcher says that they are of another node, or is another one.
fn elsewhere(named: u32, ranks: &[RankReport]) -> Option<String> {
    let missing = missing(ranks);
    let mut boots = ranks.iter().filter_map(|it| ancestor::boot(it.pid).ok());
    let Some(boot) = boots.next() else {
        let rank = ranks.first().filter(|_| !missing.is_empty())?;
        return Some(elsewhere::by_starter(named, rank.pid));
    };
    let is_here =
        |rank: &i32| u32::try_from(*rank).is_ok_and(|it| boot.ranks.as_slice().contains(&it));
    let is_part = boot.local_size() < boot.size && !missing.iter().all(is_here);
    is_part.then(|| elsewhere::BY_FRONT.to_owned())
}

/// Whether who has not been seen has ended.
fn around(job: &Job, ranks: &[RankReport]) -> JobCoverage {
    let missing = missing(ranks);
    // It may not have been started yet, or be a script between two programs: rmpi's daemon knows.
    let ended = |pid: u32| {
        let mut missing = missing.iter().filter_map(|it| u32::try_from(*it).ok());
        missing.all(|rank| ancestor::has_ended(pid, rank))
    };
    let whole = match ranks.first() {
        None => false,
        Some(rank) if ancestor::is_of_rmpi(rank.pid) => ended(rank.pid),
        Some(_) => are_all_of_launcher(job, ranks),
    };
    JobCoverage { whole }
}

/// Of another MPI: the ranks were started here, all of them, by the process that was named, and nothing else below it can become one.
/// A script around one rank has been told what that rank was, and is no such process.
fn are_all_of_launcher(job: &Job, ranks: &[RankReport]) -> bool {
    let starter = job.starter();
    let mut all = ranks.iter();
    let here = all.all(|rank| rank.pid != starter && are_all_here(rank.pid));
    here && !are_all_here(starter) && job.is_whole()
}

/// What a launcher tells each rank: ranks of the job, and those of this host.
fn are_all_here(pid: u32) -> bool {
    let variables = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
    let value = |name: &str| {
        let mut lines = variables.split(|byte| *byte == 0);
        lines.find_map(|line| line.strip_prefix(name.as_bytes())?.strip_prefix(b"="))
    };
    let mut pairs = SIZES.iter();
    pairs.any(|(all, local)| value(all).is_some() && value(all) == value(local))
}

const SIZES: [(&str, &str); 3] = [
    ("RMPI_SIZE", "RMPI_LOCAL_SIZE"),
    ("OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE"),
    ("PMI_SIZE", "MPI_LOCALNRANKS"),
];

/// Looks at a job of which ranks end meanwhile.
const TRIES: usize = 5;
/// Between two looks.
const PAUSE: Duration = Duration::from_millis(100);
/// The same where messages come over a network, which may lose some and send them again.
const PAUSE_OF_HOSTS: Duration = Duration::from_secs(1);
/// For ranks that share their CPUs with many.
const PATIENCE: Duration = Duration::from_secs(2);
/// Who polls has looked at everything by then.
const POLLED: Duration = Duration::from_millis(2);
