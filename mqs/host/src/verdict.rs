// SPDX-License-Identifier: MIT OR Apache-2.0
//! Whether a job can go on, and if not, why: proved from what each rank waits for, or not said.
//!
//! A rank can go on if it is not waiting, or if what it waits for can come from ranks that can go on. What is left when
//! nothing more follows from that can never go on: each of these waits for others of them, or for who is gone.
//!
//! That there is no deadlock is proved the same way, but only from what is certain: that all ranks have come to a collective
//! does not say that their calls fit together. Where neither is proved there is no verdict.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use serde::Serialize;

use crate::near::{Near, Other};
use crate::waits::{
    AwaitedKind, AwaitedOperation, CollectiveMismatch, JobWaits, MismatchSide, RankState, RankWait,
};
use crate::words::{self, ranks, verb};

/// Whether a job is deadlocked, and why.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct JobVerdict {
    /// In one word, for programs.
    pub kind: VerdictKind,
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
pub enum VerdictKind {
    /// Ranks can never go on.
    Deadlock,
    /// Ranks wait for something that may still come from ranks that go on.
    Waiting,
    /// Ranks wait, and neither is proved.
    NoVerdict,
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
pub fn verdict(waits: &JobWaits, doubts: &BTreeMap<i32, Doubt>) -> JobVerdict {
    let judge = Judge::of(waits, doubts);
    let stuck = judge.stuck();
    let circles = judge.circles();
    let kind = judge.kind(&stuck);
    let mut causes = Vec::new();
    match kind {
        VerdictKind::Deadlock => {
            causes.extend(circles.iter().map(|it| circle(it)));
            causes.extend(judge.gone());
            causes.extend(judge.absent(&stuck));
            causes.extend(judge.nearly(&stuck));
        }
        VerdictKind::Waiting | VerdictKind::NoVerdict => {
            causes.extend(judge.absent(&judge.waiting()))
        }
        VerdictKind::Running => {}
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
    JobVerdict {
        kind,
        headline: judge.headline(kind, &stuck),
        causes,
        stuck,
        circles,
    }
}

struct Judge<'a> {
    waits: &'a JobWaits,
    doubts: &'a BTreeMap<i32, Doubt>,
    /// By rank: whether it can go on, for all that is known.
    free: Vec<bool>,
    /// By rank: whether it is certain that it can.
    sure: Vec<bool>,
}

/// Ranks that can go on, while more of them are being found.
struct Free<'a> {
    free: &'a [bool],
    /// Only what is certain counts.
    strict: bool,
}

impl Free<'_> {
    fn has(&self, rank: i32) -> bool {
        let place = usize::try_from(rank).ok();
        place.and_then(|at| self.free.get(at)).is_none_or(|it| *it)
    }

    fn can_end(&self, wait: &RankWait) -> bool {
        let mut pending = wait.pending.iter();
        match wait.all {
            true => !(self.strict && wait.more) && pending.all(|it| self.can_come(it)),
            false => {
                let other = wait.moves || (wait.more && !self.strict);
                other || pending.any(|it| self.can_come(it))
            }
        }
    }

    fn can_come(&self, it: &AwaitedOperation) -> bool {
        if self.strict
            && matches!(
                it.what,
                AwaitedKind::Collective { .. } | AwaitedKind::Finalize
            )
        {
            let fits = it.near.is_empty() && !it.ranks.is_empty();
            return fits && it.ranks.iter().all(|rank| self.has(*rank));
        }
        let mut ranks = it.ranks.iter();
        it.under_way
            || match it.all {
                true => ranks.all(|rank| self.has(*rank)),
                false => ranks.any(|rank| self.has(*rank)),
            }
    }

    /// All that follows from those that can go on without others.
    fn of(waits: &JobWaits, begin: impl Fn(i32, &RankState) -> bool, strict: bool) -> Vec<bool> {
        let numbered = (0..).zip(&waits.states);
        let mut free: Vec<bool> = numbered.map(|(rank, it)| begin(rank, it)).collect();
        loop {
            let mut found = false;
            for (at, state) in waits.states.iter().enumerate() {
                let RankState::Waits(waits) = state else {
                    continue;
                };
                let known = Free {
                    free: &free,
                    strict,
                };
                if !free[at] && waits.iter().any(|it| known.can_end(it)) {
                    (free[at], found) = (true, true);
                }
            }
            if !found {
                return free;
            }
        }
    }
}

impl<'a> Judge<'a> {
    fn of(waits: &'a JobWaits, doubts: &'a BTreeMap<i32, Doubt>) -> Self {
        let may = |rank: i32, state: &RankState| match state {
            RankState::Outside | RankState::Untold | RankState::Unseen => true,
            RankState::Waits(_) => doubts.contains_key(&rank),
            RankState::Finalized | RankState::Ended => false,
        };
        let does = |rank: i32, state: &RankState| match state {
            RankState::Outside => true,
            RankState::Waits(_) => doubts.get(&rank) == Some(&Doubt::Moved),
            _ => false,
        };
        Self {
            waits,
            doubts,
            free: Free::of(waits, may, false),
            sure: Free::of(waits, does, true),
        }
    }

    fn kind(&self, stuck: &[i32]) -> VerdictKind {
        let waiting = self.waiting();
        let is_sure = |rank: &i32| usize::try_from(*rank).is_ok_and(|at| self.sure[at]);
        match waiting.is_empty() {
            _ if !stuck.is_empty() => VerdictKind::Deadlock,
            true if self.waits.states.contains(&RankState::Untold) => VerdictKind::NoVerdict,
            true => VerdictKind::Running,
            false if self.waits.mixed.is_empty() && waiting.iter().all(is_sure) => {
                VerdictKind::Waiting
            }
            false => VerdictKind::NoVerdict,
        }
    }

    fn can_come(&self, it: &AwaitedOperation) -> bool {
        let (free, strict) = (&self.free[..], false);
        Free { free, strict }.can_come(it)
    }

    fn is_free(&self, rank: i32) -> bool {
        let (free, strict) = (&self.free[..], false);
        Free { free, strict }.has(rank)
    }

    fn state(&self, rank: i32) -> Option<&RankState> {
        usize::try_from(rank)
            .ok()
            .and_then(|at| self.waits.states.get(at))
    }

    fn is_gone(&self, rank: i32) -> bool {
        matches!(
            self.state(rank),
            Some(RankState::Finalized | RankState::Ended)
        )
    }

    /// Ranks that wait, with their waits.
    fn waiters(&self) -> impl Iterator<Item = (i32, &[RankWait])> {
        (0..)
            .zip(&self.waits.states)
            .filter_map(|(rank, state)| match state {
                RankState::Waits(waits) => Some((rank, &waits[..])),
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
    fn lacks(&self, rank: i32) -> impl Iterator<Item = &AwaitedOperation> {
        let waits = match self.state(rank) {
            Some(RankState::Waits(waits)) => &waits[..],
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

    fn gone_words(&self, it: &AwaitedOperation, gone: &[i32]) -> String {
        if gone.is_empty() {
            return format!("for a message that nobody can send, on {}", it.name);
        }
        let ended = gone
            .iter()
            .any(|rank| self.state(*rank) == Some(&RankState::Ended));
        let what = if ended { "ended" } else { "finalized MPI" };
        let have = verb(gone, "has", "have");
        format!("for {}, which {have} {what}", ranks(gone))
    }

    /// Collectives that some have entered, and what the others do instead.
    fn absent(&self, of: &[i32]) -> Vec<String> {
        let mut calls: BTreeMap<CollectiveInstance, CollectiveAttendance> = BTreeMap::new();
        for rank in of {
            let pending = match self.state(*rank) {
                Some(RankState::Waits(waits)) => waits.iter().flat_map(|it| &it.pending),
                _ => continue,
            };
            for it in pending.filter(|it| !it.ranks.is_empty() && !it.mixed) {
                let (name, number) = match &it.what {
                    AwaitedKind::Collective { name, number } => (name.clone(), *number),
                    AwaitedKind::Finalize => ("Finalize".to_owned(), 0),
                    _ => continue,
                };
                let call = CollectiveInstance {
                    communicator: it.communicator,
                    name,
                    number,
                };
                let new = || CollectiveAttendance {
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

    fn entered(
        &self,
        call: &CollectiveInstance,
        CollectiveAttendance { come, absent, on }: &CollectiveAttendance,
    ) -> String {
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
            Some(RankState::Waits(waits)) => waits.first().map(|it| format!("in {}", it.call)),
            Some(RankState::Outside) => Some("not waiting in MPI".to_owned()),
            _ => None,
        };
        let calls: BTreeSet<Option<String>> = absent.iter().map(does).collect();
        match calls.into_iter().collect::<Vec<_>>().as_slice() {
            [Some(same)] => format!(" ({} {same})", verb(absent, "it is", "they are")),
            _ => String::new(),
        }
    }

    fn headline(&self, kind: VerdictKind, stuck: &[i32]) -> String {
        let size = self.waits.states.len();
        match kind {
            VerdictKind::Deadlock if stuck.len() == size && size > 1 => {
                format!("deadlock: none of the {size} ranks can ever go on")
            }
            VerdictKind::Deadlock => {
                let of = if size > 1 {
                    format!(" of {size}")
                } else {
                    String::new()
                };
                format!("deadlock: {}{of} can never go on", ranks(stuck))
            }
            VerdictKind::Running => "no rank waits in MPI".to_owned(),
            VerdictKind::Waiting => self.headline_of_waiting("no deadlock", &self.hopes()),
            VerdictKind::NoVerdict if self.waiting().is_empty() => {
                "no verdict: the library of this MPI does not say which calls wait".to_owned()
            }
            VerdictKind::NoVerdict => self.headline_of_waiting("no verdict", &self.unknown()),
        }
    }

    fn headline_of_waiting(&self, what: &str, why: &[String]) -> String {
        let waiting = self.waiting();
        let waits = verb(&waiting, "waits", "wait");
        format!("{what}: {} {waits}; {}", ranks(&waiting), why.join("; "))
    }

    /// Who may still do what others wait for.
    fn hopes(&self) -> Vec<String> {
        let (outside, moved) = (self.outside(), self.moved());
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
            hopes.push(format!("{} {has} gone on meanwhile", ranks(&moved)));
        }
        if hopes.is_empty() {
            let meeting = self.those(|_, state| match state {
                RankState::Waits(waits) => waits.iter().any(is_under_way),
                _ => false,
            });
            hopes.push(format!(
                "send and receive are both there for {}, whose call can end; look again to see whether it does",
                ranks(&meeting)
            ));
        }
        hopes
    }

    fn outside(&self) -> Vec<i32> {
        self.those(|_, state| *state == RankState::Outside)
    }

    fn moved(&self) -> Vec<i32> {
        self.those(|rank, _| self.doubts.get(&rank) == Some(&Doubt::Moved))
    }

    /// Why nothing can be said.
    fn unknown(&self) -> Vec<String> {
        let with = |doubt| self.those(|rank, _| self.doubts.get(&rank) == Some(&doubt));
        let unseen = self.those(|_, state| *state == RankState::Unseen);
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
            (
                self.outside(),
                "is not waiting in MPI",
                "are not waiting in MPI",
            ),
            (
                self.moved(),
                "has gone on meanwhile",
                "have gone on meanwhile",
            ),
        ];
        let known = reasons.into_iter().filter(|(who, ..)| !who.is_empty());
        let told =
            known.map(|(who, one, many)| format!("{} {}", ranks(&who), verb(&who, one, many)));
        told.chain(self.unfit()).chain(self.beside()).collect()
    }

    /// Collectives to which all have come, and which do not end.
    fn unfit(&self) -> Vec<String> {
        let (mut through, mut from, mut still) =
            (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
        for (rank, waits) in self.waiters() {
            let pending = waits.iter().flat_map(|wait| &wait.pending);
            let met = pending.filter(|it| {
                it.under_way
                    && matches!(
                        it.what,
                        AwaitedKind::Collective { .. } | AwaitedKind::Finalize
                    )
            });
            for it in met {
                let roots = it.near.iter().filter(|it| it.other == Other::Through);
                let roots: Vec<i32> = roots.map(|it| it.rank).collect();
                match roots.is_empty() {
                    true => still.insert(rank),
                    false => through.insert(rank),
                };
                from.extend(roots);
            }
        }
        let list = |it: BTreeSet<i32>| it.into_iter().collect::<Vec<_>>();
        let (through, from, still) = (list(through), list(from), list(still));
        let mut lines = Vec::new();
        if !through.is_empty() {
            lines.push(format!(
                "data that {} {} for come from {}, which {} through with the call; if they do not come, counts or datatypes differ",
                ranks(&through),
                verb(&through, "waits", "wait"),
                ranks(&from),
                verb(&from, "is", "are")
            ));
        }
        if !still.is_empty() {
            lines.push(format!(
                "every rank has come to the collective of {}, and it has not ended; if it does not, arguments of the ranks differ",
                ranks(&still)
            ));
        }
        lines
    }

    /// What else nothing is known of.
    fn beside(&self) -> Vec<String> {
        let more = self.those(|_, state| match state {
            RankState::Waits(waits) => waits.iter().any(|it| it.more),
            _ => false,
        });
        let mut lines = Vec::new();
        if !more.is_empty() {
            lines.push(format!("not all that {} waits for is known", ranks(&more)));
        }
        if !self.waits.mixed.is_empty() {
            lines.push("not all ranks call the same collective at the same place".to_owned());
        }
        lines
    }

    fn those(&self, is: impl Fn(i32, &RankState) -> bool) -> Vec<i32> {
        let numbered = (0..).zip(&self.waits.states);
        let found = numbered.filter(|(rank, state)| is(*rank, state));
        found.map(|(rank, _)| rank).collect()
    }

    /// What ranks that are stuck want, and what is there instead.
    fn nearly(&self, stuck: &[i32]) -> Vec<String> {
        let mut lines = Vec::new();
        for rank in stuck {
            for it in self.lacks(*rank) {
                let told =
                    |found: &&Near| it.what != AwaitedKind::Send || found.other == Other::Inactive;
                let near = it.near.iter().filter(told);
                lines.extend(self.finalizing(*rank, it));
                lines.extend(near.filter_map(|found| instead(*rank, it, found)));
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
    fn finalizing(&self, rank: i32, it: &AwaitedOperation) -> Option<String> {
        let peer = it.peer.filter(|_| it.what != AwaitedKind::Send)?;
        let Some(RankState::Waits(waits)) = self.state(peer) else {
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
fn mixed(it: &CollectiveMismatch) -> String {
    let alike = |one: &MismatchSide, other: &MismatchSide| {
        (&one.name, one.root) == (&other.name, other.root)
    };
    let parts = it.who.iter().map(|side| {
        let MismatchSide {
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
struct CollectiveInstance {
    communicator: u64,
    name: String,
    number: i32,
}

/// The ranks that have entered a collective, and those that have not.
struct CollectiveAttendance {
    come: Vec<i32>,
    absent: Vec<i32>,
    /// The communicator's name.
    on: String,
}

fn is_under_way(wait: &RankWait) -> bool {
    wait.moves || wait.pending.iter().any(|it| it.under_way)
}

/// What is there in place of a message.
fn instead(rank: i32, it: &AwaitedOperation, found: &Near) -> Option<String> {
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
        Other::Inactive => format!(
            "rank {rank} waits until rank {sender} receives {wanted} on {}: its persistent receive would, but was not started",
            it.name
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
