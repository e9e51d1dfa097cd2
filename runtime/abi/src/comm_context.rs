// SPDX-License-Identifier: MIT OR Apache-2.0
//! The context id of a new communicator: chosen by a leader alone, or agreed on by all processes that make it.
//!
//! A leader can choose if all members are in its job, since the processes of a job allocate disjoint context ids
//! (`Universe::reserve_context`). If they are in several jobs, or the leader has none left, it sends 0, and the members
//! [agree](ContextMembers::agree) on one: each attempt takes two rounds along a tree.

use core::future::poll_fn;
use core::task::Poll;

use runtime::{
    AwaitedCollective, CollectiveCall, Comm, ContextId, Group, Mode, Peer, ReceiveSource,
    RequestId, SendTarget, UserMemory, Visit, collective,
};

use crate::comm_agree::AgreementLane;
use crate::enter::Mpi;
use crate::error::Result;

/// The result type of collectives.
type Outcome<T> = core::result::Result<T, runtime::Error>;

/// The scope of a context id.
#[derive(Clone, Copy)]
pub(crate) enum ContextScope {
    /// One communicator.
    One,
    /// Communicators of disjoint groups.
    Groups,
}

/// Chooses a new context id: by rank 0 of an intracommunicator, by the leaders of two groups, or by all. The `purpose` of rank 0 counts.
/// Processes that are not in the new communicator must [release](release_context) it.
pub(crate) fn new_context(mpi: Mpi, comm: &Comm, purpose: ContextScope) -> Result<ContextId> {
    let local = comm.local();
    Ok(CollectiveCall::run(mpi, &local, async |call| {
        choose_context(mpi, call, comm, purpose).await
    })?)
}

/// The same as a part of a task; `call` is made on the local group.
pub(crate) async fn choose_context(
    mpi: Mpi,
    call: &CollectiveCall<Mpi>,
    comm: &Comm,
    purpose: ContextScope,
) -> Outcome<ContextId> {
    let mut word = 0;
    if comm.rank == 0 {
        word = propose(mpi, [Some(&comm.group), comm.remote.as_ref()], purpose);
        if let Some(remote) = &comm.remote
            && let Some(leader) = remote.peer(0)
        {
            let other = exchange_word(mpi, lane_of(comm, call), leader, word).await?;
            word = choose(mpi, word, other);
        }
    }
    let mut bytes = word.to_ne_bytes();
    collective::bcast(call, &mut bytes, 0).await?;
    match u32::from_ne_bytes(bytes) {
        0 => ContextMembers::of(comm, call).agree(mpi).await,
        context => Ok(ContextId(context)),
    }
}

/// Agrees on a context id among all members of a communicator, of both groups if it has two. Collective.
pub(crate) fn agree_all(mpi: Mpi, comm: &Comm) -> Result<ContextId> {
    Ok(CollectiveCall::run(mpi, &comm.local(), async |call| {
        ContextMembers::of(comm, call).agree(mpi).await
    })?)
}

/// The lane of the messages of `call`.
fn lane_of(comm: &Comm, call: &CollectiveCall<Mpi>) -> AgreementLane {
    AgreementLane {
        context: comm.collective_context(),
        tag: call.call(),
    }
}

/// The context id that a leader proposes for a communicator of these groups; 0: none, so that all have to agree.
pub(crate) fn propose(mpi: Mpi, groups: [Option<&Group>; 2], purpose: ContextScope) -> u32 {
    let context = mpi.visit(|universe| {
        let mut groups = groups.into_iter().flatten();
        if groups.any(|group| universe.comms.has_others(group)) {
            return None;
        }
        match purpose {
            ContextScope::One => universe.reserve_context(),
            ContextScope::Groups => universe.comms.reserve_context(),
        }
    });
    context.map_or(0, |context| context.0)
}

/// Chooses between the context ids that two leaders propose, with the same result on both; 0: one of them proposes none.
pub(crate) fn choose(mpi: Mpi, proposed: u32, other: u32) -> u32 {
    let chosen = if proposed == 0 || other == 0 {
        0
    } else {
        proposed.max(other)
    };
    if chosen != proposed && proposed != 0 {
        mpi.visit(|universe| universe.release_context(ContextId(proposed)));
    }
    chosen
}

/// Releases a context id in a process that will not be in the new communicator.
pub(crate) fn release_context(mpi: Mpi, context: ContextId) {
    mpi.visit(|universe| universe.comms.let_go_context(context));
}

/// The processes that make a communicator: the members of a group, and the lane of their messages; for one of two groups, also the
/// other group's leader.
pub(crate) struct ContextMembers {
    group: Group,
    /// Rank in that group. Rank 0 leads.
    rank: u32,
    lane: AgreementLane,
    /// The other leader, on the leader of one of two groups.
    other: Option<(AgreementLane, Peer)>,
}

impl ContextMembers {
    /// All members of a communicator, with the tag of `call`.
    pub(crate) fn of(comm: &Comm, call: &CollectiveCall<Mpi>) -> Self {
        let lane = lane_of(comm, call);
        let remote = comm.remote.as_ref().filter(|_| comm.rank == 0);
        Self {
            group: comm.group.clone(),
            rank: comm.rank,
            lane,
            other: remote.and_then(|remote| Some((lane, remote.peer(0)?))),
        }
    }

    /// The members of a group, with a lane of their own.
    pub(crate) fn in_lane(lane: AgreementLane, group: &Group, rank: u32) -> Self {
        Self {
            group: group.clone(),
            rank,
            lane,
            other: None,
        }
    }

    /// The members of a group with rank `leader` as the leader, which knows the other group's leader.
    pub(crate) fn led_by(self, leader: u32, other: Option<(AgreementLane, Peer)>) -> Self {
        let size = self.group.size();
        let turned = (0..size).filter_map(|at| self.group.peer((leader + at) % size));
        Self {
            group: Group::of(turned.collect()),
            rank: (self.rank + size - leader) % size,
            other,
            ..self
        }
    }

    /// The rank of this process among them; rank 0 leads.
    pub(crate) fn rank(&self) -> u32 {
        self.rank
    }

    /// The members, the leader first.
    pub(crate) fn group(&self) -> &Group {
        &self.group
    }

    /// Agrees on a context id that is unused in all of them, and reserves it. Collective.
    pub(crate) async fn agree(&self, mpi: Mpi) -> Outcome<ContextId> {
        let (mut from, mut attempt) = (0, 0);
        loop {
            let lowest = mpi.visit(|universe| universe.comms.propose_context(from));
            // A process without a free id sends the highest value.
            let lowest = lowest.map_or(NONE_LEFT, |context| context.0);
            let context = ContextId(self.highest(mpi, lowest).await?);
            let keeps = mpi.visit(|universe| universe.comms.keep_context(context));
            match self.highest(mpi, u32::from(!keeps)).await {
                Ok(0) => return Ok(context),
                refused => {
                    if keeps {
                        release_context(mpi, context);
                    }
                    refused?;
                }
            }
            // Other groups may try the same ids concurrently: each advances by another distance.
            attempt += 1;
            from = context.0.saturating_add(1 + self.spread(attempt));
        }
    }

    /// The distance to advance after this many attempts, different from that of concurrent groups.
    fn spread(&self, attempt: u32) -> u32 {
        let AgreementLane { context, tag } = self.lane;
        let seed = context.0 ^ tag.cast_unsigned().rotate_left(16);
        seed.wrapping_add(attempt).wrapping_mul(0x9E37_79B9) >> 22
    }

    /// The same, outside of tasks.
    pub(crate) fn agree_now(&self, mpi: Mpi) -> Result<ContextId> {
        let meeting = AwaitedCollective {
            context: self.lane.context,
            call: None,
            root: None,
            bytes: None,
        };
        Ok(mpi.block_on(false, meeting, self.agree(mpi))?)
    }

    /// The maximum of the members' words: up a tree, from leader to leader, and down again.
    async fn highest(&self, mpi: Mpi, word: u32) -> Outcome<u32> {
        let (lane, rank, size) = (self.lane, self.rank, self.group.size());
        let member = |rank: u32| self.group.peer(rank).filter(|_| rank < size);
        let (mut highest, mut span) = (word, 1);
        while span < size && rank & span == 0 {
            if let Some(child) = member(rank + span) {
                highest = highest.max(receive_word(mpi, lane, child).await?);
            }
            span <<= 1;
        }
        let mut failed = None;
        if rank != 0 {
            if let Some(parent) = member(rank - span) {
                highest = exchange_word(mpi, lane, parent, highest).await?;
            }
        } else if let Some((lane, leader)) = self.other {
            match exchange_word(mpi, lane, leader, highest).await {
                Ok(word) => highest = highest.max(word),
                // The members of this group do not detect the loss of the other leader: it is reported to them here.
                Err(error) => (highest, failed) = (UNREACHED, Some(error)),
            }
        }
        while span > 1 {
            span >>= 1;
            if let Some(child) = member(rank + span) {
                send_word(mpi, lane, child, highest).await?;
            }
        }
        match (failed, highest) {
            (Some(error), _) => Err(error),
            (None, UNREACHED) => Err(runtime::Error::Unagreed),
            (None, NONE_LEFT) => Err(runtime::Error::ContextsExhausted),
            (None, highest) => Ok(highest),
        }
    }
}

/// Exchanges a word with a process that calls the same.
async fn exchange_word(mpi: Mpi, lane: AgreementLane, with: Peer, word: u32) -> Outcome<u32> {
    let mut bytes = Box::new([0; WORD]);
    let received = start_receive(mpi, lane, with, &mut *bytes)?;
    let sent = start_send(mpi, lane, with, word);
    // The receive completes before this returns, since the peer sends in every case.
    let received = ended(mpi, received).await;
    if let Some(sent) = sent? {
        ended(mpi, sent).await?;
    }
    received.map(|()| u32::from_ne_bytes(*bytes))
}

async fn receive_word(mpi: Mpi, lane: AgreementLane, from: Peer) -> Outcome<u32> {
    let mut bytes = Box::new([0; WORD]);
    let received = start_receive(mpi, lane, from, &mut *bytes)?;
    ended(mpi, received).await?;
    Ok(u32::from_ne_bytes(*bytes))
}

async fn send_word(mpi: Mpi, lane: AgreementLane, to: Peer, word: u32) -> Outcome<()> {
    match start_send(mpi, lane, to, word)? {
        None => Ok(()),
        Some(sent) => ended(mpi, sent).await,
    }
}

fn start_receive(
    mpi: Mpi,
    lane: AgreementLane,
    from: Peer,
    bytes: &mut [u8],
) -> Outcome<RequestId> {
    let source = ReceiveSource {
        context: lane.context,
        peer: Some(from),
        tag: Some(lane.tag),
    };
    let memory = UserMemory::of(bytes);
    mpi.visit(|universe| universe.messages.receive(source, memory))
}

fn start_send(mpi: Mpi, lane: AgreementLane, to: Peer, word: u32) -> Outcome<Option<RequestId>> {
    let target = SendTarget {
        context: lane.context,
        peer: to,
        tag: lane.tag,
    };
    let bytes = Box::new(word.to_ne_bytes());
    mpi.visit(|universe| universe.sending().send_owned(target, bytes, Mode::Standard))
}

async fn ended(mpi: Mpi, request: RequestId) -> Outcome<()> {
    poll_fn(
        |_| match mpi.visit(|universe| universe.messages.is_complete(request)) {
            true => Poll::Ready(()),
            false => Poll::Pending,
        },
    )
    .await;
    let status = mpi.visit(|universe| universe.collect(request));
    status.error.map_or(Ok(()), Err)
}

const WORD: usize = size_of::<u32>();
/// Instead of a context id: a process has none left to propose.
const NONE_LEFT: u32 = u32::MAX - 1;
/// Instead of a context id: the other leader is lost.
const UNREACHED: u32 = u32::MAX;
