// SPDX-License-Identifier: MIT OR Apache-2.0
//! Whether a job can go on, and if not, why: proved from what each rank waits for, or not said.
//!
//! A rank can go on if it is not waiting, or if what it waits for can come from ranks that can go on. What is left when
//! nothing more follows from that can never go on: each of these waits for others of them, or for who is gone.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use serde::Serialize;

use crate::waits::{Mixed, Near, Other, Pending, Side, State, Wait, Waits, What};
use crate::words::{self, ranks, verb};

/// What is to be said of a job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Verdict {
    /// In one word, for programs.
    pub kind: Kind,
    /// In one line.
    pub headline: String,
    /// Why, a line each.
    pub causes: Vec<String>,
    /// Ranks that can never go on.
    pub stuck: Vec<i32>,
    /// Each waits for the next, and the last for the first.
    pub circles: Vec<Vec<i32>>,
}

/// A verdict in one word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// Ranks can never go on.
    Deadlock,
    /// Ranks wait for something that may still come.
    Waiting,
    /// No rank waits.
    Running,
}

/// Why a rank that waits may go on all the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Doubt {
    /// It did not wait in the same call when it was looked at before.
    Moved,
    /// It had no time to look at what has come.
    Restless,
    /// Other threads of it may be in MPI at any time.
    Threads,
}

/// Judges. `doubts` are by rank, as the states are.
#[must_use]
pub fn verdict(waits: &Waits, doubts: &BTreeMap<i32, Doubt>) -> Verdict {
    let judge = Judge::of(waits, doubts);
    let stuck = judge.stuck();
    let circles = judge.circles();
    let kind = match (stuck.is_empty(), judge.waiting().is_empty()) {
        (false, _) => Kind::Deadlock,
        (true, false) => Kind::Waiting,
        (true, true) => Kind::Running,
    };
    let mut causes = Vec::new();
    match kind {
        Kind::Deadlock => {
            causes.extend(circles.iter().map(|it| circle(it)));
            causes.extend(judge.gone());
            causes.extend(judge.absent(&stuck));
            causes.extend(judge.nearly(&stuck));
        }
        Kind::Waiting => causes.extend(judge.absent(&judge.waiting())),
        Kind::Running => {}
    }
    causes.extend(waits.mixed.iter().map(mixed));
    causes.extend(waits.failed.iter().map(|it| {
        let from = it.peer.map_or_else(|| "a rank".to_owned(), |it| format!("rank {it}"));
        format!(
            "a receive of rank {} has failed: the message from {from} with tag {} has {}, the buffer {} ({})",
            it.rank,
            it.tag,
            words::bytes(it.bytes),
            words::data(&it.room),
            it.name
        )
    }));
    Verdict {
        kind,
        headline: judge.headline(kind, &stuck),
        causes,
        stuck,
        circles,
    }
}

struct Judge<'a> {
    waits: &'a Waits,
    doubts: &'a BTreeMap<i32, Doubt>,
    /// By rank: whether it can go on.
    free: Vec<bool>,
}

impl<'a> Judge<'a> {
    fn of(waits: &'a Waits, doubts: &'a BTreeMap<i32, Doubt>) -> Self {
        let begin = |(number, state): (i32, &State)| match state {
            State::Outside | State::Untold | State::Unseen => true,
            State::Waits(_) => doubts.contains_key(&number),
            State::Finalized | State::Ended => false,
        };
        let free = (0..).zip(&waits.states).map(begin).collect();
        let mut judge = Self {
            waits,
            doubts,
            free,
        };
        while judge.free_more() {}
        judge
    }

    /// Frees whom the free can free; whether there was one.
    fn free_more(&mut self) -> bool {
        let mut found = false;
        for (number, state) in self.waits.states.iter().enumerate() {
            let State::Waits(waits) = state else { continue };
            if !self.free[number] && waits.iter().any(|it| self.can_end(it)) {
                self.free[number] = true;
                found = true;
            }
        }
        found
    }

    fn can_end(&self, wait: &Wait) -> bool {
        match wait.all {
            true => wait.pending.iter().all(|it| self.can_come(it)),
            false => wait.more || wait.pending.iter().any(|it| self.can_come(it)),
        }
    }

    fn can_come(&self, it: &Pending) -> bool {
        let mut ranks = it.ranks.iter();
        it.under_way
            || match it.all {
                true => ranks.all(|rank| self.is_free(*rank)),
                false => ranks.any(|rank| self.is_free(*rank)),
            }
    }

    fn is_free(&self, rank: i32) -> bool {
        let place = usize::try_from(rank).ok();
        place.and_then(|at| self.free.get(at)).is_none_or(|it| *it)
    }

    fn state(&self, rank: i32) -> Option<&State> {
        usize::try_from(rank)
            .ok()
            .and_then(|at| self.waits.states.get(at))
    }

    fn is_gone(&self, rank: i32) -> bool {
        matches!(self.state(rank), Some(State::Finalized | State::Ended))
    }

    /// Ranks that wait, with their waits.
    fn waiters(&self) -> impl Iterator<Item = (i32, &[Wait])> {
        (0..)
            .zip(&self.waits.states)
            .filter_map(|(rank, state)| match state {
                State::Waits(waits) => Some((rank, &waits[..])),
                _ => None,
            })
    }

    fn waiting(&self) -> Vec<i32> {
        self.waiters().map(|(rank, _)| rank).collect()
    }

    fn stuck(&self) -> Vec<i32> {
        let stuck = self.waiters().map(|(rank, _)| rank);
        stuck.filter(|rank| !self.is_free(*rank)).collect()
    }

    /// What a rank that is stuck waits for and does not get.
    fn lacks(&self, rank: i32) -> impl Iterator<Item = &Pending> {
        let waits = match self.state(rank) {
            Some(State::Waits(waits)) => &waits[..],
            _ => &[],
        };
        let pending = waits.iter().flat_map(|wait| &wait.pending);
        pending.filter(|it| !self.can_come(it))
    }

    /// Ranks that are stuck too and for which this one waits.
    fn next(&self, rank: i32) -> BTreeSet<i32> {
        let all = self.lacks(rank).flat_map(|it| it.ranks.iter().copied());
        all.filter(|it| !self.is_free(*it) && !self.is_gone(*it))
            .collect()
    }

    /// The shortest circle through each rank that is in none yet.
    fn circles(&self) -> Vec<Vec<i32>> {
        let mut circles: Vec<Vec<i32>> = Vec::new();
        let stuck = self.stuck();
        let next: BTreeMap<i32, BTreeSet<i32>> =
            stuck.iter().map(|rank| (*rank, self.next(*rank))).collect();
        let mut reached = BTreeSet::new();
        let mut begins: Vec<Vec<i32>> = stuck
            .iter()
            .take(MOST_BEGINS)
            .filter_map(|rank| circle_through(*rank, &next))
            .collect();
        begins.sort_by_key(Vec::len);
        for circle in begins {
            if circle.iter().all(|rank| !reached.contains(rank)) {
                reached.extend(circle.iter().copied());
                circles.push(circle);
            }
        }
        circles.truncate(MOST_CIRCLES);
        circles
    }

    /// What is waited for from ranks that are gone, or from nobody.
    fn gone(&self) -> Vec<String> {
        let mut told: BTreeMap<String, Vec<i32>> = BTreeMap::new();
        for rank in self.stuck() {
            for it in self.lacks(rank) {
                let gone: Vec<i32> = it
                    .ranks
                    .iter()
                    .copied()
                    .filter(|rank| self.is_gone(*rank))
                    .collect();
                let never = if it.all {
                    !gone.is_empty()
                } else {
                    gone.len() == it.ranks.len()
                };
                if never {
                    told.entry(self.gone_words(it, &gone))
                        .or_default()
                        .push(rank);
                }
            }
        }
        let lines = told.into_iter();
        lines
            .map(|(text, who)| format!("{} {} {text}", ranks(&who), verb(&who, "waits", "wait")))
            .collect()
    }

    fn gone_words(&self, it: &Pending, gone: &[i32]) -> String {
        if gone.is_empty() {
            return format!("for a message that nobody can send, on {}", it.name);
        }
        let ended = gone
            .iter()
            .any(|rank| self.state(*rank) == Some(&State::Ended));
        let what = if ended { "ended" } else { "finalized MPI" };
        let have = verb(gone, "has", "have");
        format!("for {}, which {have} {what}", ranks(gone))
    }

    /// Collectives that some have entered, and what the others do instead.
    fn absent(&self, of: &[i32]) -> Vec<String> {
        let mut calls: BTreeMap<Call, Entered> = BTreeMap::new();
        for rank in of {
            let pending = match self.state(*rank) {
                Some(State::Waits(waits)) => waits.iter().flat_map(|it| &it.pending),
                _ => continue,
            };
            for it in pending.filter(|it| !it.ranks.is_empty() && !it.mixed) {
                let (name, number) = match &it.what {
                    What::Collective { name, number } => (name.clone(), *number),
                    What::Finalize => ("Finalize".to_owned(), 0),
                    _ => continue,
                };
                let call = Call {
                    communicator: it.communicator,
                    name,
                    number,
                };
                let new = || Entered {
                    come: Vec::new(),
                    absent: it.ranks.clone(),
                    on: it.name.clone(),
                };
                calls.entry(call).or_insert_with(new).come.push(*rank);
            }
        }
        let lines = calls.iter().take(MOST_CALLS);
        lines.map(|(call, it)| self.entered(call, it)).collect()
    }

    fn entered(&self, call: &Call, Entered { come, absent, on }: &Entered) -> String {
        let which = match call.number {
            0 => String::new(),
            number => format!(", call {number} of it on {on}"),
        };
        format!(
            "MPI_{}{which}: {} {} come, {} {} not{}",
            call.name,
            ranks(come),
            verb(come, "has", "have"),
            ranks(absent),
            verb(absent, "has", "have"),
            self.instead(absent)
        )
    }

    /// What some ranks do, if all do the same.
    fn instead(&self, absent: &[i32]) -> String {
        let does = |rank: &i32| match self.state(*rank) {
            Some(State::Waits(waits)) => waits.first().map(|it| format!("in {}", it.call)),
            Some(State::Outside) => Some("not waiting in MPI".to_owned()),
            _ => None,
        };
        let calls: BTreeSet<Option<String>> = absent.iter().map(does).collect();
        match calls.into_iter().collect::<Vec<_>>().as_slice() {
            [Some(same)] => format!(" ({} {same})", verb(absent, "it is", "they are")),
            _ => String::new(),
        }
    }

    fn headline(&self, kind: Kind, stuck: &[i32]) -> String {
        let size = self.waits.states.len();
        match kind {
            Kind::Deadlock if stuck.len() == size && size > 1 => {
                format!("deadlock: none of the {size} ranks can ever go on")
            }
            Kind::Deadlock => {
                let of = if size > 1 {
                    format!(" of {size}")
                } else {
                    String::new()
                };
                format!("deadlock: {}{of} can never go on", ranks(stuck))
            }
            Kind::Running if self.waits.states.contains(&State::Untold) => {
                "no verdict: the library of this MPI does not say which calls wait".to_owned()
            }
            Kind::Running => "no rank waits in MPI".to_owned(),
            Kind::Waiting => {
                let waiting = self.waiting();
                let (hopes, doubts) = (self.hopes(), self.unknown());
                let (what, why) = match (hopes.is_empty(), self.doubtful()) {
                    (true, _) => ("no verdict", doubts),
                    (false, Some(doubt)) => ("no verdict", vec![doubt]),
                    (false, None) => ("no deadlock", hopes),
                };
                let waits = verb(&waiting, "waits", "wait");
                format!("{what}: {} {waits}; {}", ranks(&waiting), why.join("; "))
            }
        }
    }

    /// Who may still do what others wait for.
    fn hopes(&self) -> Vec<String> {
        let outside = self.those(|_, state| *state == State::Outside);
        let moved = self.those(|rank, _| self.doubts.get(&rank) == Some(&Doubt::Moved));
        let moving = self.those(|_, state| match state {
            State::Waits(waits) => waits.iter().any(is_under_way),
            _ => false,
        });
        let mut hopes = Vec::new();
        if !outside.is_empty() {
            let is = verb(&outside, "is", "are");
            hopes.push(format!(
                "{} {is} not waiting in MPI and may still come",
                ranks(&outside)
            ));
        }
        if !moved.is_empty() {
            let has = verb(&moved, "has", "have");
            hopes.push(format!("{} {has} just gone on", ranks(&moved)));
        }
        if hopes.is_empty() && !moving.is_empty() {
            let waits = verb(&moving, "waits", "wait");
            hopes.push(format!("what {} {waits} for is under way", ranks(&moving)));
        }
        hopes
    }

    /// What is under way only if arguments fit that nobody can look at any more, where all hope is in that.
    fn doubtful(&self) -> Option<String> {
        let (mut waiting, mut through) = (BTreeSet::new(), BTreeSet::new());
        for (rank, waits) in self.waiters() {
            for it in waits.iter().flat_map(|wait| &wait.pending) {
                let roots = it.near.iter().filter(|it| it.other == Other::Through);
                let roots: Vec<i32> = roots.map(|it| it.rank).collect();
                if roots.is_empty() && it.under_way {
                    return None;
                }
                waiting.extend((!roots.is_empty()).then_some(rank));
                through.extend(roots);
            }
        }
        let goes_on = |rank: i32, state: &State| {
            *state == State::Outside || self.doubts.get(&rank) == Some(&Doubt::Moved)
        };
        let others = self.those(|rank, state| goes_on(rank, state) && !through.contains(&rank));
        if waiting.is_empty() || !others.is_empty() {
            return None;
        }
        let waiting: Vec<i32> = waiting.into_iter().collect();
        let through: Vec<i32> = through.into_iter().collect();
        Some(format!(
            "data that {} {} for come from {}, which {} through with the call; if they do not come, counts or datatypes differ",
            ranks(&waiting),
            verb(&waiting, "waits", "wait"),
            ranks(&through),
            verb(&through, "is", "are")
        ))
    }

    /// Why nothing can be said.
    fn unknown(&self) -> Vec<String> {
        let with = |doubt| self.those(|rank, _| self.doubts.get(&rank) == Some(&doubt));
        let unseen = self.those(|_, state| *state == State::Unseen);
        let reasons = [
            (unseen, "was not looked at", "were not looked at"),
            (
                with(Doubt::Restless),
                "has not looked for messages meanwhile",
                "have not looked for messages meanwhile",
            ),
            (
                with(Doubt::Threads),
                "has threads that may be in MPI at any time",
                "have threads that may be in MPI at any time",
            ),
        ];
        let known = reasons.into_iter().filter(|(who, ..)| !who.is_empty());
        known
            .map(|(who, one, many)| format!("{} {}", ranks(&who), verb(&who, one, many)))
            .collect()
    }

    fn those(&self, is: impl Fn(i32, &State) -> bool) -> Vec<i32> {
        let numbered = (0..).zip(&self.waits.states);
        let found = numbered.filter(|(rank, state)| is(*rank, state));
        found.map(|(rank, _)| rank).collect()
    }

    /// What ranks that are stuck want, and what is there instead.
    fn nearly(&self, stuck: &[i32]) -> Vec<String> {
        let mut lines = Vec::new();
        for rank in stuck {
            for it in self.lacks(*rank).filter(|it| it.what != What::Send) {
                lines.extend(self.finalizing(*rank, it));
                lines.extend(it.near.iter().filter_map(|found| instead(*rank, it, found)));
            }
        }
        let more = lines.len().saturating_sub(MOST_NEAR);
        lines.truncate(MOST_NEAR);
        if more > 0 {
            lines.push(format!("and {more} more like these"));
        }
        lines
    }

    /// Who is in `MPI_Finalize` sends nothing any more.
    fn finalizing(&self, rank: i32, it: &Pending) -> Option<String> {
        let peer = it.peer?;
        let Some(State::Waits(waits)) = self.state(peer) else {
            return None;
        };
        let last = waits.iter().any(|wait| wait.call == "MPI_Finalize");
        last.then(|| {
            format!(
                "rank {rank} waits for a message from rank {peer}, which is in MPI_Finalize and sends no more"
            )
        })
    }
}

/// Which ranks are in which collective.
fn mixed(it: &Mixed) -> String {
    let alike = |one: &Side, other: &Side| (&one.name, one.root) == (&other.name, other.root);
    let parts = it.who.iter().map(|side| {
        let Side {
            name, root, ranks, ..
        } = side;
        // Bytes where they are what ranks differ in.
        let several = it.who.iter().filter(|other| alike(side, other)).count() > 1;
        let with = words::with(*root, side.bytes.filter(|_| several));
        let call = verb(ranks, "calls", "call");
        format!("{} {call} {name}{with}", words::ranks(ranks))
    });
    let parts: Vec<String> = parts.collect();
    format!(
        "not all ranks call the same collective on {} at the same place: {}",
        it.name,
        parts.join(", ")
    )
}

/// One call of a collective.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Call {
    communicator: u64,
    name: String,
    number: i32,
}

/// Who has come to it, and who has not.
struct Entered {
    come: Vec<i32>,
    absent: Vec<i32>,
    /// The communicator's name.
    on: String,
}

fn is_under_way(wait: &Wait) -> bool {
    wait.more || wait.pending.iter().any(|it| it.under_way)
}

/// What is there in place of a message.
fn instead(rank: i32, it: &Pending, found: &Near) -> Option<String> {
    let sender = found.rank;
    let wanted = words::tag(it.tag);
    Some(match found.other {
        Other::Tag => format!(
            "rank {rank} waits for {wanted} from rank {sender} on {}, and {} has come from it",
            it.name,
            words::tag(found.tag)
        ),
        Other::Communicator => format!(
            "rank {rank} waits for {wanted} from rank {sender} on {}, and it has come on {}",
            it.name, found.name
        ),
        Other::Rank => format!(
            "rank {rank} waits for {wanted} from rank {} on {}, and it has come from rank {sender}",
            it.peer?, it.name
        ),
        Other::Collective | Other::Root | Other::Size | Other::Through => return None,
    })
}

/// From a rank to itself, by the fewest steps.
fn circle_through(begin: i32, next: &BTreeMap<i32, BTreeSet<i32>>) -> Option<Vec<i32>> {
    let mut from: BTreeMap<i32, i32> = BTreeMap::new();
    let mut queue = VecDeque::from([begin]);
    while let Some(rank) = queue.pop_front() {
        for follower in next.get(&rank).into_iter().flatten() {
            if *follower == begin {
                let mut circle = vec![rank];
                let mut at = rank;
                while at != begin {
                    at = *from.get(&at)?;
                    circle.push(at);
                }
                circle.reverse();
                return Some(circle);
            }
            if !from.contains_key(follower) {
                from.insert(*follower, rank);
                queue.push_back(*follower);
            }
        }
    }
    None
}

fn circle(circle: &[i32]) -> String {
    match circle {
        [only] => format!("rank {only} waits for itself"),
        [one, other] => format!("ranks {one} and {other} wait for each other"),
        [first, ..] if circle.len() <= LONG_CIRCLE => {
            let way: Vec<String> = circle.iter().map(ToString::to_string).collect();
            format!(
                "ranks wait in a circle, each for the next: {} -> {first}",
                way.join(" -> ")
            )
        }
        [first, second, .., last] => format!(
            "{} wait in a circle, each for the next: {first} -> {second} -> ... -> {last} -> {first}",
            ranks(circle)
        ),
        [] => String::new(),
    }
}

/// Ranks from which circles are looked for.
const MOST_BEGINS: usize = 256;
/// Circles and calls that are told.
const MOST_CIRCLES: usize = 4;
const MOST_CALLS: usize = 4;
/// Messages that nearly fit and are told.
const MOST_NEAR: usize = 6;
/// A longer one is told by its ends.
const LONG_CIRCLE: usize = 8;
