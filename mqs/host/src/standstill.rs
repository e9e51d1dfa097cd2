// SPDX-License-Identifier: MIT OR Apache-2.0
//! Two looks at a job: what a rank waits for is believed when it was the same call both times, and the rank has had time in
//! between to take in whatever was under way to it.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::time::{Duration, Instant};

use crate::calls::calls;
use crate::job::is_there;
use crate::report::Rank;
use crate::verdict::Doubt;
use crate::waits::Surroundings;
use crate::{Error, Job, Settings, ancestor};

/// What two looks have shown.
#[derive(Clone, Debug)]
pub struct Seen {
    /// What the second look showed.
    pub ranks: Vec<Rank>,
    /// Why a rank that waits may go on all the same.
    pub doubts: BTreeMap<i32, Doubt>,
    /// What is known besides.
    pub around: Surroundings,
}

/// Looks twice at the ranks that a pid stands for, or once if no rank waits.
///
/// # Errors
/// Those of [`look`](crate::look).
pub fn observe(pid: u32) -> Result<Seen, Error> {
    observe_with(pid, &Settings::default())
}

/// The same with what a user has said beside it.
///
/// # Errors
/// Those of [`look`](crate::look).
pub fn observe_with(pid: u32, settings: &Settings) -> Result<Seen, Error> {
    for _ in 1..TRIES {
        match observe_once(pid, settings) {
            // One of them has ended in between: what that means for the others is seen anew.
            Err(Error::Gone(gone)) if gone != pid && is_there(pid) => {}
            seen => return seen,
        }
    }
    observe_once(pid, settings)
}

fn observe_once(pid: u32, settings: &Settings) -> Result<Seen, Error> {
    let job = Job::find(pid, settings)?;
    let first = job.look()?;
    if first.iter().all(|rank| calls(rank).is_empty()) {
        return Ok(Seen {
            around: around(&job, &first),
            ranks: first,
            doubts: BTreeMap::new(),
        });
    }
    let before: Vec<Threads> = first.iter().map(|rank| threads(rank.pid)).collect();
    std::thread::sleep(PAUSE);
    let restless = settle(&first, &before);
    let second = job.look()?;
    let was: BTreeMap<u32, BTreeSet<String>> = first
        .iter()
        .map(|rank| (rank.pid, identity(rank)))
        .collect();
    let mut doubts = BTreeMap::new();
    for rank in &second {
        let waits = calls(rank);
        let Some(number) = rank.rank.filter(|_| !waits.is_empty()) else {
            continue;
        };
        let doubt = if was.get(&rank.pid) != Some(&identity(rank)) || is_moving(rank) {
            Doubt::Moved
        } else if restless.contains(&rank.pid) {
            Doubt::Restless
        } else if !waits.iter().any(|it| it.alone) && own_threads(rank.pid) > waits.len() {
            Doubt::Threads
        } else {
            continue;
        };
        doubts.insert(number, doubt);
    }
    Ok(Seen {
        around: around(&job, &second),
        ranks: second,
        doubts,
    })
}

/// Waits until the ranks have looked at what had come when they were let go; those that have not, in the end.
fn settle(ranks: &[Rank], before: &[Threads]) -> BTreeSet<u32> {
    let since = Instant::now();
    loop {
        let pairs = ranks.iter().zip(before);
        let restless: BTreeSet<u32> = pairs
            .filter(|(rank, before)| !has_settled(rank, before))
            .map(|(rank, _)| rank.pid)
            .collect();
        if restless.is_empty() || since.elapsed() > PATIENCE {
            return restless;
        }
        std::thread::sleep(PAUSE / 10);
    }
}

/// Each thread that waits sleeps again, or has polled for a while.
fn has_settled(rank: &Rank, before: &Threads) -> bool {
    let now = threads(rank.pid);
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
type Threads = BTreeMap<u32, (bool, Duration)>;

fn threads(pid: u32) -> Threads {
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
fn own_threads(pid: u32) -> usize {
    let tasks = fs::read_dir(format!("/proc/{pid}/task"));
    let tasks = tasks.into_iter().flatten().flatten();
    let names = tasks.filter_map(|task| fs::read_to_string(task.path().join("comm")).ok());
    names.filter(|name| !name.starts_with("rmpi-")).count()
}

/// Whether data of a collective are just coming in: that may take long, and nothing else tells of it.
fn is_moving(rank: &Rank) -> bool {
    rank.communicators.iter().any(|comm| {
        let calls = comm.calls.iter().any(|it| it.moving);
        let mut operations = comm.sends.iter().chain(&comm.receives);
        calls || comm.begun.iter().any(|it| it.moving) || operations.any(|it| it.moving)
    })
}

/// What tells a rank that still waits in the same calls from one that waits in others that look alike.
fn identity(rank: &Rank) -> BTreeSet<String> {
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

/// Whether who has not been seen has ended.
fn around(job: &Job, ranks: &[Rank]) -> Surroundings {
    let seen: BTreeSet<i32> = ranks.iter().filter_map(|it| it.rank).collect();
    let groups = ranks.iter().flat_map(|it| &it.communicators);
    let all = groups.flat_map(|it| it.ranks.iter().copied());
    let missing: BTreeSet<i32> = all.filter(|it| !seen.contains(it)).collect();
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
    Surroundings { whole }
}

/// Of another MPI: the ranks were started here, all of them, by the process that was named, and nothing else below it can become one.
/// A script around one rank has been told what that rank was, and is no such process.
fn are_all_of_launcher(job: &Job, ranks: &[Rank]) -> bool {
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
/// For ranks that share their CPUs with many.
const PATIENCE: Duration = Duration::from_secs(2);
/// Who polls has looked at everything by then.
const POLLED: Duration = Duration::from_millis(2);
