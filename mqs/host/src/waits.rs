// SPDX-License-Identifier: MIT OR Apache-2.0
//! Derives what each rank waits for, which ranks can end the wait, and near misses.

use std::collections::{BTreeMap, HashMap, HashSet};

use serde::Serialize;

use crate::calls::{AwaitedTarget, FINALIZE, RankCall, WAITS_FOR_RANKS, calls};
use crate::near_miss::{Difference, NearMiss, ReceivePattern, near_messages, near_receives, world};
use crate::report::{self, CommReport, MessageData, OperationReport, RankReport};

/// The state of a rank.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum RankState {
    /// The rank waits: one call for each thread that is in MPI.
    Waits(Vec<RankWait>),
    /// The rank is in no blocking call.
    Outside,
    /// It is not known whether the rank waits: the debugger library of its MPI does not list blocking calls.
    #[serde(rename = "untold")]
    Unknown,
    /// The rank has finalized MPI.
    Finalized,
    /// The process of the rank has ended.
    Ended,
    /// The rank was not inspected.
    Unseen,
}

/// A blocking call, with what it waits for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RankWait {
    /// Name of the function, such as `MPI_Recv`.
    pub call: String,
    /// Whether the call ends only after all pending operations; if not, after one of them.
    pub all: bool,
    /// The operations that the call waits for and that are not yet matched.
    pub pending: Vec<AwaitedOperation>,
    /// Whether the call also waits for something that the library does not list.
    pub more: bool,
    /// Whether the call also waits for a send or receive that is already matched: such an operation needs no further
    /// call of a peer.
    pub moves: bool,
    /// If the call needs all of several requests: the number of complete requests, and the number of all.
    pub done: Option<(u32, u32)>,
}

/// One operation that a call waits for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct AwaitedOperation {
    /// The kind of the operation.
    pub what: AwaitedKind,
    /// Id of the communicator, equal on all its ranks.
    pub communicator: u64,
    /// Name of the communicator.
    pub name: String,
    /// The peer's rank in `MPI_COMM_WORLD`; `None`: any.
    pub peer: Option<i32>,
    /// The peer's rank in the communicator; for a collective, the root, if any.
    pub local_peer: Option<i64>,
    /// Tag of a message; `None`: any.
    pub tag: Option<i64>,
    /// Size of the message or of its buffer.
    #[serde(flatten)]
    pub data: MessageData,
    /// The ranks that can end the operation, as ranks in `MPI_COMM_WORLD`.
    pub ranks: Vec<i32>,
    /// Whether all of `ranks` must act; if not, one is enough.
    pub all: bool,
    /// Whether the peers have already done their part: the operation can end without further calls of the peers.
    pub under_way: bool,
    /// For a collective: whether all ranks have come to the call with this number on the communicator, but some of them
    /// to another collective, or with another root or size.
    pub mixed: bool,
    /// Whether it is a nonblocking collective. If so, the blocking call is a wait for the collective, and has another
    /// name.
    pub begun: bool,
    /// Near misses.
    pub near: Vec<NearMiss>,
}

/// The kind of operation that is waited for.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum AwaitedKind {
    /// A receive waits for a message.
    Receive,
    /// A probe waits for a message.
    Probe,
    /// A send waits for its receive.
    Send,
    /// A collective waits for ranks that have not called it.
    Collective {
        /// Name of the collective, without `MPI_`.
        name: String,
        /// Number of calls of this collective on the communicator, including this one; 0: unknown.
        number: i32,
    },
    /// `MPI_Finalize` waits for ranks that have not called it.
    Finalize,
}

/// A receive that has failed but was not yet collected by a test or wait.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct FailedReceive {
    /// The receiver.
    pub rank: i32,
    /// The sender, if known.
    pub peer: Option<i32>,
    /// The tag of the message.
    pub tag: i64,
    /// Bytes of the message.
    pub bytes: i64,
    /// Size and datatype of the buffer.
    pub room: MessageData,
    /// The communicator.
    pub name: String,
}

/// All ranks of a job with what they wait for.
#[derive(Clone, Debug, Serialize)]
pub struct JobWaits {
    /// By rank in `MPI_COMM_WORLD`.
    pub states: Vec<RankState>,
    /// Receives that have failed.
    pub failed: Vec<FailedReceive>,
    /// Collective calls that do not match on all ranks.
    pub mixed: Vec<CollectiveMismatch>,
}

/// A collective call that does not match on all ranks of its communicator.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct CollectiveMismatch {
    /// The communicator.
    pub name: String,
    /// The ranks, grouped by equal calls.
    pub who: Vec<MismatchSide>,
}

/// Ranks that make the same call.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct MismatchSide {
    /// Name of the collective.
    pub name: String,
    /// Root of the collective, as a rank of the communicator, if it has one.
    pub root: Option<i64>,
    /// The size that must be equal on all ranks, if there is one.
    pub bytes: Option<i64>,
    /// The ranks.
    pub ranks: Vec<i32>,
}

/// How much of a job was inspected.
#[derive(Clone, Copy, Debug, Default)]
pub struct JobCoverage {
    /// Whether all ranks that have not ended were inspected.
    pub complete: bool,
}

/// Derives the waits of a job from the reports of its ranks.
#[must_use]
pub fn waits(ranks: &[RankReport], coverage: JobCoverage) -> JobWaits {
    let job = ReportIndex::of(ranks);
    let has_unranked = ranks.iter().any(|rank| rank.rank.is_none());
    let missing = match coverage.complete && !has_unranked {
        true => RankState::Ended,
        false => RankState::Unseen,
    };
    let mut states = vec![missing; job.size];
    for (rank, number) in ranks.iter().filter_map(|it| Some((it, it.rank?))) {
        let Some(state) = usize::try_from(number)
            .ok()
            .and_then(|at| states.get_mut(at))
        else {
            continue;
        };
        let calls = job.calls.get(&number).map_or(&[][..], Vec::as_slice);
        *state = match (rank.communicators.is_empty(), calls.is_empty()) {
            (true, _) => RankState::Finalized,
            (false, true) if !rank.reports_calls => RankState::Unknown,
            (false, true) => RankState::Outside,
            (false, false) => RankState::Waits(calls.iter().map(|it| job.wait(rank, it)).collect()),
        };
    }
    let failed = ranks.iter().flat_map(failed_receives).collect();
    JobWaits {
        states,
        failed,
        mixed: job.mixed(),
    }
}

/// Key of sends and receives: communicator, sender (`None`: any), receiver.
type Lane = (u64, Option<i32>, i32);

/// An index of all reports.
struct ReportIndex<'a> {
    size: usize,
    by_rank: HashMap<i32, &'a RankReport>,
    calls: HashMap<i32, Vec<RankCall>>,
    /// Tags of unmatched sends.
    sends: HashMap<Lane, HashSet<Option<i64>>>,
    /// Tags of unmatched receives; the sender may be any.
    receives: HashMap<Lane, HashSet<Option<i64>>>,
    /// The ranks in each collective in progress, by communicator and number of the call.
    entered: BTreeMap<(u64, i64), Vec<CollectiveMember<'a>>>,
    /// Number of the last call in `entered` of each rank, by communicator and rank.
    latest: HashMap<(u64, i32), i64>,
}

/// Name, root and bytes of a collective.
type CallArguments<'a> = (&'a str, Option<i64>, Option<i64>);

/// A rank in a collective.
struct CollectiveMember<'a> {
    rank: i32,
    name: &'a str,
    root: Option<i64>,
    bytes: Option<i64>,
    on: &'a CommReport,
}

impl CollectiveMember<'_> {
    fn difference(&self, name: &str, it: &CollectiveFacts) -> Option<Difference> {
        let differ = |one: Option<i64>, other: Option<i64>| {
            one.zip(other).is_some_and(|(one, other)| one != other)
        };
        match (self.name == name, differ(self.root, it.root)) {
            (false, _) => Some(Difference::Collective),
            (true, true) => Some(Difference::Root),
            (true, false) => differ(self.bytes, it.bytes).then_some(Difference::Size),
        }
    }
}

impl<'a> ReportIndex<'a> {
    fn of(ranks: &'a [RankReport]) -> Self {
        let mut job = Self {
            size: 0,
            by_rank: HashMap::new(),
            calls: HashMap::new(),
            sends: HashMap::new(),
            receives: HashMap::new(),
            entered: BTreeMap::new(),
            latest: HashMap::new(),
        };
        let mut highest = -1;
        for rank in ranks {
            let Some(number) = rank.rank else { continue };
            highest = highest.max(number);
            job.by_rank.insert(number, rank);
            job.calls.insert(number, calls(rank));
            for comm in &rank.communicators {
                highest = highest.max(comm.ranks.iter().copied().max().unwrap_or(-1));
                job.index(number, comm);
            }
        }
        job.size = usize::try_from(highest + 1).unwrap_or(0);
        job
    }

    fn index(&mut self, number: i32, comm: &'a CommReport) {
        self.index_collectives(number, comm);
        let open = |it: &&OperationReport| it.status == "pending";
        for it in comm.sends.iter().filter(open) {
            if let Some(to) = world(it.world_peer) {
                let lane = (comm.id, Some(number), to);
                self.sends.entry(lane).or_default().insert(it.tag);
            }
        }
        for it in comm.receives.iter().filter(open) {
            let lane = (comm.id, world(it.world_peer), number);
            self.receives.entry(lane).or_default().insert(it.tag);
        }
    }

    fn index_collectives(&mut self, rank: i32, comm: &'a CommReport) {
        let waits =
            |it: &&report::CallReport| it.waits == WAITS_FOR_RANKS && it.function != FINALIZE;
        let calls = comm.calls.iter().filter(waits);
        let calls = calls.filter_map(|it| Some((collective_of(it), it.peer, it.bytes, it.tag?)));
        let begun = comm.begun.iter();
        let begun = begun.filter_map(|it| Some((&*it.name, it.root, it.bytes, it.place?)));
        for (name, root, bytes, place) in calls.chain(begun) {
            let latest = self.latest.entry((comm.id, rank)).or_insert(place);
            *latest = place.max(*latest);
            let entered = self.entered.entry((comm.id, place)).or_default();
            entered.push(CollectiveMember {
                rank,
                name,
                root,
                bytes,
                on: comm,
            });
        }
    }

    /// Finds the collective mismatches. A missing root or size matches any other: on an intercommunicator the root's
    /// group passes no root, or `MPI_ROOT`.
    fn mixed(&self) -> Vec<CollectiveMismatch> {
        let mut mixed = Vec::new();
        for entered in self.entered.values() {
            let Some(first) = entered.first() else {
                continue;
            };
            if entered
                .iter()
                .all(|it| it.difference(first.name, &first.facts()).is_none())
            {
                continue;
            }
            let mut who: BTreeMap<CallArguments<'_>, Vec<i32>> = BTreeMap::new();
            for it in entered {
                let side = who.entry((it.name, it.root, it.bytes));
                side.or_default().push(it.rank);
            }
            let side = |((name, root, bytes), ranks): (CallArguments<'_>, _)| MismatchSide {
                name: name.to_owned(),
                root,
                bytes,
                ranks,
            };
            mixed.push(CollectiveMismatch {
                name: first.on.label(),
                who: who.into_iter().map(side).collect(),
            });
        }
        mixed
    }

    fn wait(&self, rank: &RankReport, call: &RankCall) -> RankWait {
        let mut wait = RankWait {
            call: call.function.clone(),
            all: !call.is_any(),
            pending: Vec::new(),
            more: call.more,
            moves: false,
            done: call.done(),
        };
        for (number, target) in call.targets.iter().enumerate() {
            match self.target(rank, target, number < MAX_NEAR_MISS_SEARCHES) {
                Some(pending) => wait.pending.push(pending),
                // A send or receive that is not pending is matched or complete.
                None => match target {
                    AwaitedTarget::Send(..) | AwaitedTarget::Receive(..) => wait.moves = true,
                    _ => wait.more = true,
                },
            }
        }
        wait
    }

    /// The operation of a target; `None` if it is not listed, or already matched. `near_misses`: whether to search near
    /// misses of the operation.
    fn target(
        &self,
        rank: &RankReport,
        target: &AwaitedTarget,
        near_misses: bool,
    ) -> Option<AwaitedOperation> {
        let me = rank.rank.unwrap_or(-1);
        let comm = |place: &usize| rank.communicators.get(*place);
        let open = |it: &&OperationReport| it.status == "pending";
        match target {
            AwaitedTarget::Send(place, at) => comm(place).and_then(|comm| {
                let it = comm.sends.get(*at).filter(open)?;
                Some(self.send(me, comm, it, near_misses))
            }),
            AwaitedTarget::Receive(place, at) => comm(place).and_then(|comm| {
                let it = comm.receives.get(*at).filter(open)?;
                Some(self.receive(
                    rank,
                    comm,
                    AwaitedKind::Receive,
                    &ReceivePattern::of(it),
                    near_misses,
                ))
            }),
            AwaitedTarget::Probe(place, at) => comm(place).and_then(|comm| {
                let it = ReceivePattern::of_probe(comm, comm.calls.get(*at)?);
                Some(self.receive(rank, comm, AwaitedKind::Probe, &it, true))
            }),
            AwaitedTarget::Collective(place, at) => comm(place).and_then(|comm| {
                let it = comm.calls.get(*at)?;
                let facts = CollectiveFacts {
                    root: it.peer,
                    place: it.tag,
                    number: called(comm, collective_of(it)),
                    bytes: it.bytes,
                };
                Some(self.collective(me, comm, collective_of(it), facts))
            }),
            AwaitedTarget::Begun(place, at) => comm(place).and_then(|comm| {
                let it = comm.begun.get(*at)?;
                let mut pending = self.collective(me, comm, &it.name, facts(comm, it));
                pending.begun = true;
                pending.under_way |= !pending.mixed && !is_counted(comm, &it.name);
                Some(pending)
            }),
            AwaitedTarget::Named(place, name) => comm(place).map(|comm| {
                let facts = CollectiveFacts {
                    number: called(comm, name),
                    ..CollectiveFacts::default()
                };
                self.collective(me, comm, name, facts)
            }),
            AwaitedTarget::Finalize => rank.communicators.first().map(|it| self.finalize(me, it)),
        }
    }

    fn send(
        &self,
        me: i32,
        comm: &CommReport,
        it: &OperationReport,
        near_misses: bool,
    ) -> AwaitedOperation {
        let peer = world(it.world_peer);
        let fits = |from: Option<i32>| {
            let tags = peer.and_then(|to| self.receives.get(&(comm.id, from, to)));
            tags.is_some_and(|tags| tags.contains(&it.tag) || tags.contains(&None))
        };
        let mut pending = AwaitedOperation::of(AwaitedKind::Send, comm, &ReceivePattern::of(it));
        // A send that waits only for room in the transport progresses while its receiver is in MPI.
        let waits_for_room = it.words.iter().any(|text| text.contains("waits for room"));
        let reads = peer.is_some_and(|peer| self.calls.get(&peer).is_some_and(|it| !it.is_empty()));
        pending.under_way = fits(Some(me)) || fits(None) || (waits_for_room && reads);
        pending.ranks = peer.into_iter().collect();
        let receiver = peer.and_then(|peer| self.by_rank.get(&peer));
        if let Some(receiver) = receiver.filter(|_| near_misses) {
            pending.near = near_receives(me, receiver, comm, it);
        }
        pending
    }

    fn receive(
        &self,
        rank: &RankReport,
        comm: &CommReport,
        what: AwaitedKind,
        it: &ReceivePattern,
        near_misses: bool,
    ) -> AwaitedOperation {
        let me = rank.rank.unwrap_or(-1);
        let mut pending = AwaitedOperation::of(what, comm, it);
        pending.ranks = match it.peer {
            Some(peer) => vec![peer],
            // The rank itself waits here, so it is no candidate.
            None => comm.ranks.iter().copied().filter(|it| *it != me).collect(),
        };
        let fits = |from: &i32| {
            let tags = self.sends.get(&(comm.id, Some(*from), me));
            tags.is_some_and(|tags| match it.tag {
                Some(_) => tags.contains(&it.tag),
                None => !tags.is_empty(),
            })
        };
        pending.under_way = pending.ranks.iter().any(fits);
        if near_misses {
            pending.near = near_messages(rank, comm, it);
        }
        pending
    }

    /// The collective `name` that rank `me` waits in. Another rank has not come to this call if it has called the
    /// collective on the communicator fewer times than rank `me` has, counting this call.
    fn collective(
        &self,
        me: i32,
        comm: &CommReport,
        name: &str,
        it: CollectiveFacts,
    ) -> AwaitedOperation {
        let what = AwaitedKind::Collective {
            name: name.to_owned(),
            number: it.number.unwrap_or(0),
        };
        let mut pending = AwaitedOperation::on(what, comm);
        pending.local_peer = it.root;
        pending.data.bytes = it.bytes.unwrap_or(0);
        let entered = self.members(comm.id, it.place);
        for theirs in entered.iter().filter(|entered| entered.rank != me) {
            let other = theirs.difference(name, &it);
            pending.near.extend(other.map(|other| theirs.near(other)));
        }
        let has_entered = |rank: i32| entered.iter().any(|it| it.rank == rank);
        // Calls are counted per collective. So the counts are compared only if all ranks that have entered this call
        // have entered this collective with this root; their sizes may differ.
        let is_same = pending.near.iter().all(|it| it.other == Difference::Size);
        let is_through = |rank: i32| is_same && self.has_come(rank, comm.id, name, it.number);
        let is_later = |rank: i32| self.is_past(rank, comm.id, it.place);
        let is_here =
            |rank: &i32| *rank == me || has_entered(*rank) || is_through(*rank) || is_later(*rank);
        if !pending.near.is_empty() && comm.ranks.iter().all(is_here) {
            // All ranks are in this call or past it. Only the ranks that are selected here could end the wait; one that
            // progresses is enough.
            let others = comm.ranks.iter().copied().filter(|rank| *rank != me);
            pending.ranks = others
                .filter(|rank| has_entered(*rank) || (is_later(*rank) && !is_through(*rank)))
                .collect();
            pending.mixed = true;
            return pending;
        }
        pending.near.clear();
        let is_here = |rank: i32| entered.iter().any(|it| it.rank == rank && it.name == name);
        let has_come = |rank: i32| is_here(rank) || self.has_come(rank, comm.id, name, it.number);
        let absent = |rank: &&i32| **rank != me && !has_come(**rank);
        pending.ranks = comm.ranks.iter().filter(absent).copied().collect();
        pending.all = needs_all(name);
        pending.under_way = pending.ranks.is_empty();
        let absent = pending.ranks.iter();
        let others = absent.filter_map(|rank| self.other_collective(*rank, comm, name));
        pending.near.extend(others);
        let root = world_root(comm, it.root);
        let has_passed = |root: &i32| *root != me && !has_entered(*root);
        if let Some(root) = root.filter(has_passed)
            && pending.under_way
            && comes_from_root(name)
        {
            let near = NearMiss::of(Difference::Through, root, name);
            pending.near.push(near);
        }
        pending
    }

    /// The ranks that are in the collective call with number `place` on a communicator.
    fn members(&self, comm: u64, place: Option<i64>) -> &[CollectiveMember<'a>] {
        let members = place.and_then(|place| self.entered.get(&(comm, place)));
        members.map_or(&[], Vec::as_slice)
    }

    /// Whether a rank is in a later collective call of a communicator.
    fn is_past(&self, rank: i32, comm: u64, place: Option<i64>) -> bool {
        let latest = self.latest.get(&(comm, rank)).zip(place);
        latest.is_some_and(|(latest, place)| *latest > place)
    }

    fn has_come(&self, rank: i32, comm: u64, name: &str, number: Option<i32>) -> bool {
        let there = self.by_rank.get(&rank);
        let theirs = there.and_then(|it| it.communicators.iter().find(|it| it.id == comm));
        match (theirs, number) {
            (Some(theirs), Some(number)) => called(theirs, name).unwrap_or(0) >= number,
            _ => {
                let calls = self.calls.get(&rank).into_iter().flatten();
                let mut targets = calls.flat_map(|it| &it.targets);
                targets.any(|it| self.is_in(it, rank, comm) == Some(name))
            }
        }
    }

    /// The name of the collective that `target` of rank `rank` is; `None` if it is not a collective on the communicator
    /// `id`.
    fn is_in<'t>(&'t self, target: &'t AwaitedTarget, rank: i32, id: u64) -> Option<&'t str> {
        let comms = &self.by_rank.get(&rank)?.communicators;
        let (comm, name) = match target {
            AwaitedTarget::Collective(place, at) => {
                let comm = comms.get(*place)?;
                (comm, collective_of(comm.calls.get(*at)?))
            }
            AwaitedTarget::Begun(place, at) => {
                let comm = comms.get(*place)?;
                (comm, &*comm.begun.get(*at)?.name)
            }
            AwaitedTarget::Named(place, name) => (comms.get(*place)?, name.as_str()),
            _ => return None,
        };
        (comm.id == id).then_some(name)
    }

    fn other_collective(&self, rank: i32, comm: &CommReport, name: &str) -> Option<NearMiss> {
        let calls = self.calls.get(&rank)?;
        let mut targets = calls.iter().flat_map(|it| &it.targets);
        let other = targets.find_map(|it| self.is_in(it, rank, comm.id))?;
        (other != name).then(|| NearMiss::of(Difference::Collective, rank, other))
    }

    fn finalize(&self, me: i32, world: &CommReport) -> AwaitedOperation {
        let mut pending = AwaitedOperation::on(AwaitedKind::Finalize, world);
        let is_in = |rank: &i32| {
            let is_finalized = self
                .by_rank
                .get(rank)
                .is_none_or(|it| it.communicators.is_empty());
            let calls = self.calls.get(rank).into_iter().flatten();
            is_finalized
                || calls
                    .flat_map(|it| &it.targets)
                    .any(|it| *it == AwaitedTarget::Finalize)
        };
        let others = world.ranks.iter().filter(|rank| **rank != me);
        pending.ranks = others.filter(|rank| !is_in(rank)).copied().collect();
        pending.all = true;
        pending.under_way = pending.ranks.is_empty();
        pending
    }
}

/// The root's rank in `MPI_COMM_WORLD`.
fn world_root(comm: &CommReport, root: Option<i64>) -> Option<i32> {
    let root = root.and_then(|root| usize::try_from(root).ok());
    root.and_then(|root| comm.ranks.get(root).copied())
}

impl AwaitedOperation {
    fn on(what: AwaitedKind, comm: &CommReport) -> Self {
        Self {
            what,
            communicator: comm.id,
            name: comm.label(),
            peer: None,
            local_peer: None,
            tag: None,
            data: MessageData::default(),
            ranks: Vec::new(),
            all: false,
            under_way: false,
            mixed: false,
            begun: false,
            near: Vec::new(),
        }
    }

    fn of(what: AwaitedKind, comm: &CommReport, it: &ReceivePattern) -> Self {
        Self {
            peer: it.peer,
            local_peer: it.local_peer,
            tag: it.tag,
            data: it.data.clone(),
            ..Self::on(what, comm)
        }
    }
}

impl CollectiveMember<'_> {
    fn facts(&self) -> CollectiveFacts {
        CollectiveFacts {
            root: self.root,
            bytes: self.bytes,
            ..CollectiveFacts::default()
        }
    }

    fn near(&self, other: Difference) -> NearMiss {
        let mut near = NearMiss::of(other, self.rank, self.name);
        near.peer = self.root.and_then(|root| i32::try_from(root).ok());
        near.data.bytes = self.bytes.unwrap_or(0);
        near
    }
}

/// What is known of a collective call.
#[derive(Clone, Copy, Default)]
struct CollectiveFacts {
    root: Option<i64>,
    /// Number of the call on its communicator.
    place: Option<i64>,
    /// Number of calls of this collective, including this one.
    number: Option<i32>,
    bytes: Option<i64>,
}

/// The facts of a nonblocking collective. In these, `number` does not count calls of the same collective that were
/// started later.
fn facts(comm: &CommReport, it: &report::NonblockingCollective) -> CollectiveFacts {
    let calls = comm
        .calls
        .iter()
        .filter(|call| call.waits == WAITS_FOR_RANKS);
    let calls = calls.map(|call| (collective_of(call), call.tag));
    let all = calls.chain(comm.begun.iter().map(|it| (&*it.name, it.place)));
    let later = all.filter(|(name, place)| *name == it.name && *place > it.place);
    let later = i32::try_from(later.count()).unwrap_or(0);
    let called = called(comm, &it.name).map(|called| called - later);
    CollectiveFacts {
        root: it.root,
        place: it.place,
        number: called,
        bytes: it.bytes,
    }
}

/// Whether the number of each call in progress follows from the count of calls. In a collective that synchronizes all
/// ranks, no later call can have ended before an earlier one. In other collectives a later call may have ended, so all
/// counted calls must be in progress.
fn is_counted(comm: &CommReport, name: &str) -> bool {
    let calls = comm.calls.iter().filter(|it| collective_of(it) == name);
    let begun = comm.begun.iter().filter(|it| it.name == name);
    let under_way = i32::try_from(calls.count() + begun.count()).ok();
    needs_all(name) || called(comm, name) == under_way
}

fn collective_of(call: &report::CallReport) -> &str {
    call.function.strip_prefix("MPI_").unwrap_or(&call.function)
}

fn failed_receives(rank: &RankReport) -> Vec<FailedReceive> {
    let Some(number) = rank.rank else {
        return Vec::new();
    };
    let mut found = Vec::new();
    for comm in &rank.communicators {
        for it in &comm.receives {
            let has_failed = it.words.iter().any(|text| text.starts_with("failed"));
            if let (true, Some((peer, tag, bytes))) = (has_failed, it.matched) {
                let peer = usize::try_from(peer).ok();
                found.push(FailedReceive {
                    rank: number,
                    peer: peer.and_then(|peer| comm.ranks.get(peer).copied()),
                    tag,
                    bytes,
                    room: it.data(),
                    name: comm.label(),
                });
            }
        }
    }
    found
}

/// Number of calls of a collective that a rank has started; `None` if it is not counted.
fn called(comm: &CommReport, name: &str) -> Option<i32> {
    let it = comm.collectives.iter().find(|it| it.name == name);
    it.map(|it| it.called)
}

/// Whether a rank in this collective waits for every other rank. In other collectives that depends on the counts of
/// data, which are unknown here.
fn needs_all(name: &str) -> bool {
    const ALL: [&str; 7] = [
        "Barrier",
        "Allgather",
        "Allreduce",
        "Alltoall",
        "Reduce_scatter_block",
        "Comm_dup",
        "Comm_split",
    ];
    ALL.contains(&name)
}

/// Whether the root may return while other ranks still wait for its data.
fn comes_from_root(name: &str) -> bool {
    ["Bcast", "Scatter", "Scatterv"].contains(&name)
}

/// Maximum number of pending operations of a call for which near misses are searched.
const MAX_NEAR_MISS_SEARCHES: usize = 16;
