// SPDX-License-Identifier: MIT OR Apache-2.0
//! Decides whether a job can progress, and if not, why. It reports only what the waits of the ranks prove.
//!
//! A rank can progress if it is not waiting, or if ranks that can progress can end its wait. The ranks outside the
//! fixed point of this rule are stuck: they can never progress. Each waits for other stuck ranks, for ranks that have
//! left MPI, or for something that no rank can do.
//!
//! "No deadlock" is proved by the same fixed point, computed only from certain facts: for example, a collective that
//! all ranks have entered may still not end, since their arguments may differ. If neither a deadlock nor its absence is
//! proved, there is no verdict.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use serde::Serialize;

use crate::near_miss::{Difference, NearMiss};
use crate::waits::{
    AwaitedKind, AwaitedOperation, CollectiveMismatch, JobWaits, MismatchSide, RankState, RankWait,
};
use crate::wording::{self, ranks, verb};

/// Whether a job is deadlocked, and why.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct JobVerdict {
    /// The verdict, for programs.
    pub kind: VerdictKind,
    /// The verdict as a line of text.
    pub headline: String,
    /// The causes, one line each.
    pub causes: Vec<String>,
    /// Ranks that can never progress.
    pub stuck: Vec<i32>,
    /// Cycles: each rank waits for the next, and the last for the first.
    pub circles: Vec<Vec<i32>>,
}

/// The kinds of verdict.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum VerdictKind {
    /// At least one rank can never progress.
    Deadlock,
    /// Ranks wait, but all of them can progress: ranks that already make progress can end their waits, directly or one
    /// after another.
    Waiting,
    /// Ranks wait or may wait, and neither a deadlock nor its absence is proved.
    NoVerdict,
    /// No rank waits.
    Running,
}

/// Why a waiting rank may nevertheless progress.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Doubt {
    /// The rank was in other waits in the first snapshot, or is in a collective whose data are being transferred.
    Moved,
    /// The rank is not known to have run its progress loop between the snapshots, or was not in the first one.
    Restless,
    /// Other threads of the rank may enter MPI at any time.
    Threads,
}

/// Computes the verdict. `doubts` are by rank in `MPI_COMM_WORLD`.
#[must_use]
pub fn verdict(waits: &JobWaits, doubts: &BTreeMap<i32, Doubt>) -> JobVerdict {
    let analysis = Analysis::of(waits, doubts);
    let stuck = analysis.stuck();
    let circles = analysis.circles();
    let kind = analysis.kind(&stuck);
    let mut causes = Vec::new();
    match kind {
        VerdictKind::Deadlock => {
            causes.extend(circles.iter().map(|it| describe_cycle(it)));
            causes.extend(analysis.absent_peers());
            causes.extend(analysis.absent(&stuck));
            causes.extend(analysis.near_misses(&stuck));
        }
        VerdictKind::Waiting | VerdictKind::NoVerdict => {
            causes.extend(analysis.absent(&analysis.waiting()))
        }
        VerdictKind::Running => {}
    }
    causes.extend(waits.mixed.iter().map(describe_mismatch));
    causes.extend(waits.failed.iter().map(|it| {
        let from = it.peer.map_or_else(|| "a rank".to_owned(), |it| format!("rank {it}"));
        format!(
            "a receive of rank {} has failed: the message from {from} with tag {} has {}, the buffer {} ({})",
            it.rank,
            it.tag,
            wording::bytes(it.bytes),
            wording::data(&it.room),
            it.name
        )
    }));
    JobVerdict {
        kind,
        headline: analysis.headline(kind, &stuck),
        causes,
        stuck,
        circles,
    }
}

/// The ranks of a job, while it is determined which of them may still progress.
struct Analysis<'a> {
    waits: &'a JobWaits,
    doubts: &'a BTreeMap<i32, Doubt>,
    /// By rank: whether it may progress.
    free: Vec<bool>,
    /// By rank: whether it certainly can progress.
    sure: Vec<bool>,
}

/// The ranks known to be able to progress, during the fixed-point iteration.
struct Runnable<'a> {
    free: &'a [bool],
    /// Whether only facts count that are certain. If not, a wait that may end counts as one that ends.
    strict: bool,
}

impl Runnable<'_> {
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

    /// Computes the fixed point, starting from the ranks for which `begin` is true. Returns, by rank, whether the rank
    /// can progress.
    fn of(waits: &JobWaits, begin: impl Fn(i32, &RankState) -> bool, strict: bool) -> Vec<bool> {
        let numbered = (0..).zip(&waits.states);
        let mut free: Vec<bool> = numbered.map(|(rank, it)| begin(rank, it)).collect();
        loop {
            let mut found = false;
            for (at, state) in waits.states.iter().enumerate() {
                let RankState::Waits(waits) = state else {
                    continue;
                };
                let known = Runnable {
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

impl<'a> Analysis<'a> {
    fn of(waits: &'a JobWaits, doubts: &'a BTreeMap<i32, Doubt>) -> Self {
        let may = |rank: i32, state: &RankState| match state {
            RankState::Outside | RankState::Unknown | RankState::Unseen => true,
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
            free: Runnable::of(waits, may, false),
            sure: Runnable::of(waits, does, true),
        }
    }

    fn kind(&self, stuck: &[i32]) -> VerdictKind {
        let waiting = self.waiting();
        let is_sure = |rank: &i32| usize::try_from(*rank).is_ok_and(|at| self.sure[at]);
        match waiting.is_empty() {
            _ if !stuck.is_empty() => VerdictKind::Deadlock,
            true if self.waits.states.contains(&RankState::Unknown) => VerdictKind::NoVerdict,
            true => VerdictKind::Running,
            false if self.waits.mixed.is_empty() && waiting.iter().all(is_sure) => {
                VerdictKind::Waiting
            }
            false => VerdictKind::NoVerdict,
        }
    }

    fn can_come(&self, it: &AwaitedOperation) -> bool {
        let (free, strict) = (&self.free[..], false);
        Runnable { free, strict }.can_come(it)
    }

    fn is_free(&self, rank: i32) -> bool {
        let (free, strict) = (&self.free[..], false);
        Runnable { free, strict }.has(rank)
    }

    fn state(&self, rank: i32) -> Option<&RankState> {
        usize::try_from(rank)
            .ok()
            .and_then(|at| self.waits.states.get(at))
    }

    fn has_left(&self, rank: i32) -> bool {
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

    /// The operations that a rank waits for and that no rank can complete, unless a stuck rank progresses.
    fn unmet(&self, rank: i32) -> impl Iterator<Item = &AwaitedOperation> {
        let waits = match self.state(rank) {
            Some(RankState::Waits(waits)) => &waits[..],
            _ => &[],
        };
        let pending = waits.iter().flat_map(|wait| &wait.pending);
        pending.filter(|it| !self.can_come(it))
    }

    /// The stuck ranks that rank `rank` waits for.
    fn next(&self, rank: i32) -> BTreeSet<i32> {
        let all = self.unmet(rank).flat_map(|it| it.ranks.iter().copied());
        all.filter(|it| !self.is_free(*it) && !self.has_left(*it))
            .collect()
    }

    /// Disjoint shortest cycles among the stuck ranks.
    fn circles(&self) -> Vec<Vec<i32>> {
        let mut circles: Vec<Vec<i32>> = Vec::new();
        let stuck = self.stuck();
        let next: BTreeMap<i32, BTreeSet<i32>> =
            stuck.iter().map(|rank| (*rank, self.next(*rank))).collect();
        let mut reached = BTreeSet::new();
        let mut begins: Vec<Vec<i32>> = stuck
            .iter()
            .take(MAX_CYCLE_STARTS)
            .filter_map(|rank| cycle_through(*rank, &next))
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

    /// Lines about waits for ranks that have left, and about waits that no rank can end.
    fn absent_peers(&self) -> Vec<String> {
        let mut ranks_by_text: BTreeMap<String, Vec<i32>> = BTreeMap::new();
        for rank in self.stuck() {
            for it in self.unmet(rank) {
                let absent_peers: Vec<i32> = it
                    .ranks
                    .iter()
                    .copied()
                    .filter(|rank| self.has_left(*rank))
                    .collect();
                let never = if it.all {
                    !absent_peers.is_empty()
                } else {
                    absent_peers.len() == it.ranks.len()
                };
                if never {
                    ranks_by_text
                        .entry(self.describe_absent(it, &absent_peers))
                        .or_default()
                        .push(rank);
                }
            }
        }
        let lines = ranks_by_text.into_iter();
        lines
            .map(|(text, who)| format!("{} {} {text}", ranks(&who), verb(&who, "waits", "wait")))
            .collect()
    }

    fn describe_absent(&self, it: &AwaitedOperation, absent_peers: &[i32]) -> String {
        if absent_peers.is_empty() {
            return format!("for a message that no rank can send, on {}", it.name);
        }
        let ended = absent_peers
            .iter()
            .any(|rank| self.state(*rank) == Some(&RankState::Ended));
        let what = if ended { "ended" } else { "finalized MPI" };
        let have = verb(absent_peers, "has", "have");
        format!("for {}, which {have} {what}", ranks(absent_peers))
    }

    /// Lines about collectives that only some ranks have entered, with the state of the other ranks.
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

    /// The state of the absent ranks as text; empty if their states differ.
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
            VerdictKind::Waiting => self.headline_of_waiting("no deadlock", &self.may_come()),
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

    /// The reasons why waits may still end.
    fn may_come(&self) -> Vec<String> {
        let (outside, moved) = (self.outside(), self.moved());
        let mut may_come = Vec::new();
        if !outside.is_empty() {
            let is = verb(&outside, "is", "are");
            may_come.push(format!(
                "{} {is} not waiting in MPI and may still come",
                ranks(&outside)
            ));
        }
        if !moved.is_empty() {
            let has = verb(&moved, "has", "have");
            may_come.push(format!("{} {has} gone on meanwhile", ranks(&moved)));
        }
        if may_come.is_empty() {
            let meeting = self.ranks_where(|_, state| match state {
                RankState::Waits(waits) => waits.iter().any(is_under_way),
                _ => false,
            });
            may_come.push(format!(
                "send and receive are both there for {}, whose call can end; look again to see whether it does",
                ranks(&meeting)
            ));
        }
        may_come
    }

    fn outside(&self) -> Vec<i32> {
        self.ranks_where(|_, state| *state == RankState::Outside)
    }

    fn moved(&self) -> Vec<i32> {
        self.ranks_where(|rank, _| self.doubts.get(&rank) == Some(&Doubt::Moved))
    }

    /// Why there is no verdict.
    fn unknown(&self) -> Vec<String> {
        let with = |doubt| self.ranks_where(|rank, _| self.doubts.get(&rank) == Some(&doubt));
        let unseen = self.ranks_where(|_, state| *state == RankState::Unseen);
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
        let described =
            known.map(|(who, one, many)| format!("{} {}", ranks(&who), verb(&who, one, many)));
        described
            .chain(self.unfinished())
            .chain(self.incomplete())
            .collect()
    }

    /// Lines about collectives that all ranks have entered, and in which some ranks still wait.
    fn unfinished(&self) -> Vec<String> {
        let (mut through, mut from, mut still) =
            (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
        for (rank, waits) in self.waiters() {
            let pending = waits.iter().flat_map(|wait| &wait.pending);
            let complete_collectives = pending.filter(|it| {
                it.under_way
                    && matches!(
                        it.what,
                        AwaitedKind::Collective { .. } | AwaitedKind::Finalize
                    )
            });
            for it in complete_collectives {
                let roots = it.near.iter().filter(|it| it.other == Difference::Through);
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

    /// Further reasons why there is no verdict: unlisted operations, and collectives that do not match.
    fn incomplete(&self) -> Vec<String> {
        let more = self.ranks_where(|_, state| match state {
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

    fn ranks_where(&self, is: impl Fn(i32, &RankState) -> bool) -> Vec<i32> {
        let numbered = (0..).zip(&self.waits.states);
        let found = numbered.filter(|(rank, state)| is(*rank, state));
        found.map(|(rank, _)| rank).collect()
    }

    /// Lines about near misses of stuck ranks.
    fn near_misses(&self, stuck: &[i32]) -> Vec<String> {
        let mut lines = Vec::new();
        for rank in stuck {
            for it in self.unmet(*rank) {
                let is_listed = |found: &&NearMiss| {
                    it.what != AwaitedKind::Send || found.other == Difference::Inactive
                };
                let near = it.near.iter().filter(is_listed);
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

    /// A line about a receive or probe whose sender is in `MPI_Finalize`, and so sends no more; `None` for any other
    /// operation.
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

/// The text of a collective mismatch.
fn describe_mismatch(it: &CollectiveMismatch) -> String {
    let alike = |one: &MismatchSide, other: &MismatchSide| {
        (&one.name, one.root) == (&other.name, other.root)
    };
    let parts = it.who.iter().map(|side| {
        let MismatchSide {
            name, root, ranks, ..
        } = side;
        // Sizes are given only if ranks differ in them.
        let several = it.who.iter().filter(|other| alike(side, other)).count() > 1;
        let with = wording::with(*root, side.bytes.filter(|_| several));
        let call = verb(ranks, "calls", "call");
        format!("{} {call} {name}{with}", wording::ranks(ranks))
    });
    let parts: Vec<String> = parts.collect();
    format!(
        "not all ranks call the same collective on {} at the same place: {}",
        it.name,
        parts.join(", ")
    )
}

/// Identifies one call of a collective.
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

/// The text of a near miss; `None` for a near miss of a collective.
fn instead(rank: i32, it: &AwaitedOperation, found: &NearMiss) -> Option<String> {
    let sender = found.rank;
    let wanted = wording::tag(it.tag);
    Some(match found.other {
        Difference::Tag => format!(
            "rank {rank} waits for {wanted} from rank {sender} on {}, and {} has come from it",
            it.name,
            wording::tag(found.tag)
        ),
        Difference::Communicator => format!(
            "rank {rank} waits for {wanted} from rank {sender} on {}, and it has come on {}",
            it.name, found.name
        ),
        Difference::Rank => format!(
            "rank {rank} waits for {wanted} from rank {} on {}, and it has come from rank {sender}",
            it.peer?, it.name
        ),
        Difference::Inactive => format!(
            "rank {rank} waits until rank {sender} receives {wanted} on {}: its persistent receive would, but was not started",
            it.name
        ),
        Difference::Collective | Difference::Root | Difference::Size | Difference::Through => {
            return None;
        }
    })
}

/// The shortest cycle through a rank.
fn cycle_through(begin: i32, next: &BTreeMap<i32, BTreeSet<i32>>) -> Option<Vec<i32>> {
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

fn describe_cycle(circle: &[i32]) -> String {
    match circle {
        [only] => format!("rank {only} waits for itself"),
        [one, other] => format!("ranks {one} and {other} wait for each other"),
        [first, ..] if circle.len() <= LONG_CIRCLE => {
            let path: Vec<String> = circle.iter().map(ToString::to_string).collect();
            format!(
                "ranks wait in a circle, each for the next: {} -> {first}",
                path.join(" -> ")
            )
        }
        [first, second, .., last] => format!(
            "{} wait in a circle, each for the next: {first} -> {second} -> ... -> {last} -> {first}",
            ranks(circle)
        ),
        [] => String::new(),
    }
}

/// Maximum number of stuck ranks from which cycles are searched.
const MAX_CYCLE_STARTS: usize = 256;
/// Maximum number of cycles and of collective calls in the causes.
const MOST_CIRCLES: usize = 4;
const MOST_CALLS: usize = 4;
/// Maximum number of near misses in the causes.
const MOST_NEAR: usize = 6;
/// Maximum number of ranks of a cycle that is written out; longer cycles are abbreviated.
const LONG_CIRCLE: usize = 8;
