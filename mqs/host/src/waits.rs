// SPDX-License-Identifier: MIT OR Apache-2.0
//! What each rank waits for, who could end that, and what lies beside it that nearly fits.

use std::collections::{BTreeMap, HashMap, HashSet};

use serde::Serialize;

use crate::calls::{AwaitedTarget, FINALIZE, OTHERS, RankCall, calls};
use crate::near::{Near, Other, ReceivePattern, near_messages, near_receives, world};
use crate::report::{self, CommReport, MessageData, OperationReport, RankReport};

/// What a rank does.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum RankState {
    /// Calls of it wait, one for each thread that is in MPI.
    Waits(Vec<RankWait>),
    /// It waits in no call: it computes, or does something else.
    Outside,
    /// Whether it waits is not known: its MPI's library does not say which calls do.
    Untold,
    /// It has finalized MPI.
    Finalized,
    /// Its process has ended.
    Ended,
    /// It was not looked at.
    Unseen,
}

/// A blocking call, with what it waits for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RankWait {
    /// The function, as `MPI_Recv`.
    pub call: String,
    /// All of what is pending must end, or one of it.
    pub all: bool,
    /// What it waits for.
    pub pending: Vec<AwaitedOperation>,
    /// It waits for something else too, of which nothing is known.
    pub more: bool,
    /// It waits for something else too, for which both sides are there: that ends by itself.
    pub moves: bool,
    /// Where all of several requests must end: those that have, and all.
    pub done: Option<(u32, u32)>,
}

/// One operation that a call waits for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct AwaitedOperation {
    /// What it is.
    pub what: AwaitedKind,
    /// Number of the communicator, the same on all its ranks.
    pub communicator: u64,
    /// Its name.
    pub name: String,
    /// The other side: its rank in `MPI_COMM_WORLD`; none: any.
    pub peer: Option<i32>,
    /// The same in the communicator.
    pub local_peer: Option<i64>,
    /// Tag of a message; none: any.
    pub tag: Option<i64>,
    /// A message, or the buffer for it.
    #[serde(flatten)]
    pub data: MessageData,
    /// Ranks in `MPI_COMM_WORLD` that can end it.
    pub ranks: Vec<i32>,
    /// All of them have to do something for that, or one of them.
    pub all: bool,
    /// It ends without any of them: both sides are there.
    pub under_way: bool,
    /// Of a collective: all ranks have come to this call of the communicator's, but not to the same collective or root.
    pub mixed: bool,
    /// It is a nonblocking collective: the call that waits does not name it.
    pub begun: bool,
    /// What nearly fits.
    pub near: Vec<Near>,
}

/// The kind of operation that is waited for.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum AwaitedKind {
    /// A message for a receive.
    Receive,
    /// A message for a probe.
    Probe,
    /// A receive for a message that was sent.
    Send,
    /// Ranks that have not called this collective.
    Collective {
        /// Its name, without `MPI_`.
        name: String,
        /// Calls of it on this communicator, with this one.
        number: i32,
    },
    /// Ranks that have not called `MPI_Finalize`.
    Finalize,
}

/// A receive that failed and that its rank has not collected.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct FailedReceive {
    /// Whose it is.
    pub rank: i32,
    /// Who sent the message.
    pub peer: Option<i32>,
    /// The tag of the message.
    pub tag: i64,
    /// Bytes of the message.
    pub bytes: i64,
    /// The buffer.
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
    /// Calls of communicators that are not the same collective, or not with the same root, on all ranks.
    pub mixed: Vec<CollectiveMismatch>,
}

/// One collective call of a communicator on which its ranks do not agree.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct CollectiveMismatch {
    /// The communicator.
    pub name: String,
    /// Which ranks are in which collective.
    pub who: Vec<MismatchSide>,
}

/// The ranks that make the same call.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct MismatchSide {
    /// Its name.
    pub name: String,
    /// Its root, as a rank of the communicator, if it has one.
    pub root: Option<i64>,
    /// Bytes that all ranks must name alike, if there are such.
    pub bytes: Option<i64>,
    /// The ranks.
    pub ranks: Vec<i32>,
}

/// How much of a job was looked at.
#[derive(Clone, Copy, Debug, Default)]
pub struct JobCoverage {
    /// All ranks that still run were looked at.
    pub whole: bool,
}

/// Makes the picture from what all ranks say.
#[must_use]
pub fn waits(ranks: &[RankReport], around: JobCoverage) -> JobWaits {
    let job = Job::of(ranks);
    let strangers = ranks.iter().any(|rank| rank.rank.is_none());
    let missing = match around.whole && !strangers {
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
            (false, true) if !rank.tells_calls => RankState::Untold,
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

/// A message, or the wish for one: communicator, sender, receiver.
type Lane = (u64, Option<i32>, i32);

/// What there is, to be looked up quickly.
struct Job<'a> {
    size: usize,
    by_rank: HashMap<i32, &'a RankReport>,
    calls: HashMap<i32, Vec<RankCall>>,
    /// Tags of sends that are not matched.
    sends: HashMap<Lane, HashSet<Option<i64>>>,
    /// Tags of receives that are not matched; the sender may be any.
    receives: HashMap<Lane, HashSet<Option<i64>>>,
    /// Collectives under way, by communicator and call of that.
    met: BTreeMap<(u64, i64), Vec<CollectiveMember<'a>>>,
    /// The last of them that each rank is in, by communicator and rank.
    latest: HashMap<(u64, i32), i64>,
}

/// Name, root and bytes of a collective.
type Way<'a> = (&'a str, Option<i64>, Option<i64>);

/// A rank in a collective.
struct CollectiveMember<'a> {
    rank: i32,
    name: &'a str,
    root: Option<i64>,
    bytes: Option<i64>,
    on: &'a CommReport,
}

impl CollectiveMember<'_> {
    fn is_other(&self, name: &str, it: &About) -> Option<Other> {
        let differ = |one: Option<i64>, other: Option<i64>| {
            one.zip(other).is_some_and(|(one, other)| one != other)
        };
        match (self.name == name, differ(self.root, it.root)) {
            (false, _) => Some(Other::Collective),
            (true, true) => Some(Other::Root),
            (true, false) => differ(self.bytes, it.bytes).then_some(Other::Size),
        }
    }
}

impl<'a> Job<'a> {
    fn of(ranks: &'a [RankReport]) -> Self {
        let mut job = Self {
            size: 0,
            by_rank: HashMap::new(),
            calls: HashMap::new(),
            sends: HashMap::new(),
            receives: HashMap::new(),
            met: BTreeMap::new(),
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
        let waits = |it: &&report::CallReport| it.waits == OTHERS && it.function != FINALIZE;
        let calls = comm.calls.iter().filter(waits);
        let calls = calls.filter_map(|it| Some((collective_of(it), it.peer, it.bytes, it.tag?)));
        let begun = comm.begun.iter();
        let begun = begun.filter_map(|it| Some((&*it.name, it.root, it.bytes, it.place?)));
        for (name, root, bytes, place) in calls.chain(begun) {
            let latest = self.latest.entry((comm.id, rank)).or_insert(place);
            *latest = place.max(*latest);
            let met = self.met.entry((comm.id, place)).or_default();
            met.push(CollectiveMember {
                rank,
                name,
                root,
                bytes,
                on: comm,
            });
        }
    }

    /// What ranks do not agree on. Between groups the root's group names no root, or itself.
    fn mixed(&self) -> Vec<CollectiveMismatch> {
        let mut mixed = Vec::new();
        for met in self.met.values() {
            let Some(first) = met.first() else { continue };
            if met
                .iter()
                .all(|it| it.is_other(first.name, &first.about()).is_none())
            {
                continue;
            }
            let mut who: BTreeMap<Way<'_>, Vec<i32>> = BTreeMap::new();
            for it in met {
                let side = who.entry((it.name, it.root, it.bytes));
                side.or_default().push(it.rank);
            }
            let side = |((name, root, bytes), ranks): (Way<'_>, _)| MismatchSide {
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
            match self.target(rank, target, number < MOST_LOOKS) {
                Some(pending) => wait.pending.push(pending),
                // What was matched or is complete.
                None => match target {
                    AwaitedTarget::Send(..) | AwaitedTarget::Receive(..) => wait.moves = true,
                    _ => wait.more = true,
                },
            }
        }
        wait
    }

    /// What is to be said of something that a call waits for, if it is there and open. `look`: also what nearly fits.
    fn target(
        &self,
        rank: &RankReport,
        target: &AwaitedTarget,
        look: bool,
    ) -> Option<AwaitedOperation> {
        let me = rank.rank.unwrap_or(-1);
        let comm = |place: &usize| rank.communicators.get(*place);
        let open = |it: &&OperationReport| it.status == "pending";
        match target {
            AwaitedTarget::Send(place, at) => comm(place).and_then(|comm| {
                let it = comm.sends.get(*at).filter(open)?;
                Some(self.send(me, comm, it, look))
            }),
            AwaitedTarget::Receive(place, at) => comm(place).and_then(|comm| {
                let it = comm.receives.get(*at).filter(open)?;
                Some(self.receive(
                    rank,
                    comm,
                    AwaitedKind::Receive,
                    &ReceivePattern::of(it),
                    look,
                ))
            }),
            AwaitedTarget::Probe(place, at) => comm(place).and_then(|comm| {
                let it = ReceivePattern::to_see(comm, comm.calls.get(*at)?);
                Some(self.receive(rank, comm, AwaitedKind::Probe, &it, true))
            }),
            AwaitedTarget::Collective(place, at) => comm(place).and_then(|comm| {
                let it = comm.calls.get(*at)?;
                let about = About {
                    root: it.peer,
                    place: it.tag,
                    number: called(comm, collective_of(it)),
                    bytes: it.bytes,
                };
                Some(self.collective(me, comm, collective_of(it), about))
            }),
            AwaitedTarget::Begun(place, at) => comm(place).and_then(|comm| {
                let it = comm.begun.get(*at)?;
                let mut pending = self.collective(me, comm, &it.name, about(comm, it));
                pending.begun = true;
                pending.under_way |= !pending.mixed && !is_counted(comm, &it.name);
                Some(pending)
            }),
            AwaitedTarget::Named(place, name) => comm(place).map(|comm| {
                let about = About {
                    number: called(comm, name),
                    ..About::default()
                };
                self.collective(me, comm, name, about)
            }),
            AwaitedTarget::Finalize => rank.communicators.first().map(|it| self.finalize(me, it)),
        }
    }

    fn send(
        &self,
        me: i32,
        comm: &CommReport,
        it: &OperationReport,
        look: bool,
    ) -> AwaitedOperation {
        let peer = world(it.world_peer);
        let fits = |from: Option<i32>| {
            let tags = peer.and_then(|to| self.receives.get(&(comm.id, from, to)));
            tags.is_some_and(|tags| tags.contains(&it.tag) || tags.contains(&None))
        };
        let mut pending = AwaitedOperation::of(AwaitedKind::Send, comm, &ReceivePattern::of(it));
        // What only waits for room goes on as long as its receiver is in MPI.
        let waits_for_room = it
            .words
            .iter()
            .any(|words| words.contains("waits for room"));
        let reads = peer.is_some_and(|peer| self.calls.get(&peer).is_some_and(|it| !it.is_empty()));
        pending.under_way = fits(Some(me)) || fits(None) || (waits_for_room && reads);
        pending.ranks = peer.into_iter().collect();
        let receiver = peer.and_then(|peer| self.by_rank.get(&peer));
        if let Some(receiver) = receiver.filter(|_| look) {
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
        look: bool,
    ) -> AwaitedOperation {
        let me = rank.rank.unwrap_or(-1);
        let mut pending = AwaitedOperation::of(what, comm, it);
        pending.ranks = match it.peer {
            Some(peer) => vec![peer],
            // One thread waits here, and no other is known that would send.
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
        if look {
            pending.near = near_messages(rank, comm, it);
        }
        pending
    }

    /// Whoever has called it less often than this rank, with this call, has not come.
    fn collective(&self, me: i32, comm: &CommReport, name: &str, it: About) -> AwaitedOperation {
        let what = AwaitedKind::Collective {
            name: name.to_owned(),
            number: it.number.unwrap_or(0),
        };
        let mut pending = AwaitedOperation::on(what, comm);
        pending.local_peer = it.root;
        pending.data.bytes = it.bytes.unwrap_or(0);
        let met = it.place.and_then(|place| self.met.get(&(comm.id, place)));
        let met = met.map_or(&[][..], Vec::as_slice);
        for theirs in met.iter().filter(|met| met.rank != me) {
            let other = theirs.is_other(name, &it);
            pending.near.extend(other.map(|other| theirs.near(other)));
        }
        let meets = |rank: i32| met.iter().any(|it| it.rank == rank);
        // Calls of another collective are not counted with this one.
        let is_same = pending.near.iter().all(|it| it.other == Other::Size);
        let is_through = |rank: i32| is_same && self.has_come(rank, comm.id, name, it.number);
        let is_later = |rank: i32| {
            let latest = self.latest.get(&(comm.id, rank));
            latest
                .zip(it.place)
                .is_some_and(|(latest, place)| *latest > place)
        };
        let is_here =
            |rank: &i32| *rank == me || meets(*rank) || is_through(*rank) || is_later(*rank);
        if !pending.near.is_empty() && comm.ranks.iter().all(is_here) {
            // Nobody else is left who could bring what is missing; and these can only if one of them goes on.
            let others = comm.ranks.iter().copied().filter(|rank| *rank != me);
            pending.ranks = others
                .filter(|rank| meets(*rank) || (is_later(*rank) && !is_through(*rank)))
                .collect();
            pending.mixed = true;
            return pending;
        }
        pending.near.clear();
        let has_met = |rank: i32| met.iter().any(|it| it.rank == rank && it.name == name);
        let absent = |rank: &&i32| {
            let has_come = has_met(**rank) || self.has_come(**rank, comm.id, name, it.number);
            **rank != me && !has_come
        };
        pending.ranks = comm.ranks.iter().filter(absent).copied().collect();
        pending.all = needs_all(name);
        pending.under_way = pending.ranks.is_empty();
        for rank in &pending.ranks {
            pending
                .near
                .extend(self.other_collective(*rank, comm, name));
        }
        let root = it.root.and_then(|root| usize::try_from(root).ok());
        let root = root.and_then(|root| comm.ranks.get(root).copied());
        let is_gone = |root: &i32| *root != me && !meets(*root);
        if let Some(root) = root.filter(is_gone)
            && pending.under_way
            && comes_from_root(name)
        {
            pending.near.push(Near::of(Other::Through, root, name));
        }
        pending
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

    /// The collective on a communicator that a call of a rank is.
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

    fn other_collective(&self, rank: i32, comm: &CommReport, name: &str) -> Option<Near> {
        let calls = self.calls.get(&rank)?;
        let mut targets = calls.iter().flat_map(|it| &it.targets);
        let other = targets.find_map(|it| self.is_in(it, rank, comm.id))?;
        (other != name).then(|| Near::of(Other::Collective, rank, other))
    }

    fn finalize(&self, me: i32, world: &CommReport) -> AwaitedOperation {
        let mut pending = AwaitedOperation::on(AwaitedKind::Finalize, world);
        let is_in = |rank: &i32| {
            let gone = self
                .by_rank
                .get(rank)
                .is_none_or(|it| it.communicators.is_empty());
            let calls = self.calls.get(rank).into_iter().flatten();
            gone || calls
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
    fn about(&self) -> About {
        About {
            root: self.root,
            bytes: self.bytes,
            ..About::default()
        }
    }

    fn near(&self, other: Other) -> Near {
        let mut near = Near::of(other, self.rank, self.name);
        near.peer = self.root.and_then(|root| i32::try_from(root).ok());
        near.data.bytes = self.bytes.unwrap_or(0);
        near
    }
}

/// What is known of a collective.
#[derive(Clone, Copy, Default)]
struct About {
    root: Option<i64>,
    /// Which call of the communicator's it is.
    place: Option<i64>,
    /// How often it was called then.
    number: Option<i32>,
    bytes: Option<i64>,
}

/// Of a nonblocking one, behind which others of the same name may have begun.
fn about(comm: &CommReport, it: &report::NonblockingCollective) -> About {
    let calls = comm.calls.iter().filter(|call| call.waits == OTHERS);
    let calls = calls.map(|call| (collective_of(call), call.tag));
    let all = calls.chain(comm.begun.iter().map(|it| (&*it.name, it.place)));
    let later = all.filter(|(name, place)| *name == it.name && *place > it.place);
    let later = i32::try_from(later.count()).unwrap_or(0);
    let called = called(comm, &it.name).map(|called| called - later);
    About {
        root: it.root,
        place: it.place,
        number: called,
        bytes: it.bytes,
    }
}

/// Whether it is known which of the calls that were counted those under way are. Where all wait for all, none that is behind
/// them has ended; of others it may have.
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
            let has_failed = it.words.iter().any(|words| words.starts_with("failed"));
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

/// Calls of a collective that a rank has begun; none where that one is not counted.
fn called(comm: &CommReport, name: &str) -> Option<i32> {
    let it = comm.collectives.iter().find(|it| it.name == name);
    it.map(|it| it.called)
}

/// A rank that waits in it waits for every rank. (In others the counts decide for whom, and are not known here.)
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

/// The root may leave it while others still wait for its data.
fn comes_from_root(name: &str) -> bool {
    ["Bcast", "Scatter", "Scatterv"].contains(&name)
}

/// Pending operations of a call for which what nearly fits is looked for.
const MOST_LOOKS: usize = 16;
