// SPDX-License-Identifier: MIT OR Apache-2.0
//! Selects the context id of a new communicator: a leader chooses it, or all processes that make the communicator agree
//! on it.
//!
//! A leader can choose if all members are in its job, since the processes of a job allocate disjoint context ids
//! (`Universe::reserve_context`). If the members are in several jobs, or the leader has no context id left, the leader
//! sends 0, and the members [agree](ContextMembers::agree) on a context id. Each attempt to agree takes two rounds
//! along a tree.

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

/// What a context id is used for.
#[derive(Clone, Copy)]
pub(crate) enum ContextScope {
    /// One communicator.
    One,
    /// Communicators of disjoint groups.
    Groups,
}

/// Returns a new context id. Rank 0 of an intracommunicator or the leaders of the two groups of an intercommunicator
/// choose it, or all processes agree on it. Only the `purpose` that rank 0 of each group passes is used. Processes that
/// are not in the new communicator must [release](release_context) the context id.
pub(crate) fn new_context(mpi: Mpi, comm: &Comm, purpose: ContextScope) -> Result<ContextId> {
    let local = comm.local();
    Ok(CollectiveCall::run(mpi, &local, async |call| {
        choose_context(mpi, call, comm, purpose).await
    })?)
}

/// [`new_context`] as a part of a task. `call` is a call on the local group.
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

/// Agrees on a context id among all members of a communicator; on an intercommunicator, among the members of both
/// groups. Collective.
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

/// The context id that a leader proposes for a communicator of these groups; 0: it proposes none, so all members have
/// to agree.
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

/// Chooses one of the context ids that two leaders propose; both leaders choose the same. Releases the id that this
/// leader proposed, if the other one is chosen. Returns 0 if a leader proposes none: then all members have to agree.
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
    mpi.visit(|universe| universe.comms.free_context(context));
}

/// The processes that make a communicator: the members of a group, and the lane (context and tag) of their messages. If
/// two groups make the communicator, the leader's value also contains the other group's leader.
pub(crate) struct ContextMembers {
    group: Group,
    /// Rank of this process in `group`. Rank 0 is the leader.
    rank: u32,
    lane: AgreementLane,
    /// The other group's leader, with the lane to it; only on the leader of one of two groups.
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

    /// The members of a group, with `lane` for their messages.
    pub(crate) fn in_lane(lane: AgreementLane, group: &Group, rank: u32) -> Self {
        Self {
            group: group.clone(),
            rank,
            lane,
            other: None,
        }
    }

    /// Makes rank `leader` the leader. `other`: the other group's leader with the lane to it; only used on the leader.
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

    /// The rank of this process among the members; rank 0 is the leader.
    pub(crate) fn rank(&self) -> u32 {
        self.rank
    }

    /// The members, the leader first.
    pub(crate) fn group(&self) -> &Group {
        &self.group
    }

    /// Agrees on a context id that is unused in all members, and reserves it. Collective.
    pub(crate) async fn agree(&self, mpi: Mpi) -> Outcome<ContextId> {
        let (mut from, mut attempt) = (0, 0);
        loop {
            let lowest = mpi.visit(|universe| universe.comms.propose_context(from));
            // A process without a free id sends `NONE_LEFT`, which is above all ids and so becomes the maximum.
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
            // Other groups may try the same ids concurrently, so the groups advance by different distances.
            attempt += 1;
            from = context.0.saturating_add(1 + self.spread(attempt));
        }
    }

    /// How many ids to skip after `attempt` failed attempts: a hash, so that concurrent groups seldom skip the same
    /// number.
    fn spread(&self, attempt: u32) -> u32 {
        let AgreementLane { context, tag } = self.lane;
        let seed = context.0 ^ tag.cast_unsigned().rotate_left(16);
        seed.wrapping_add(attempt).wrapping_mul(0x9E37_79B9) >> 22
    }

    /// [`agree`](Self::agree) as a blocking call, outside of tasks.
    pub(crate) fn agree_now(&self, mpi: Mpi) -> Result<ContextId> {
        let awaited = AwaitedCollective {
            context: self.lane.context,
            call: None,
            root: None,
            bytes: None,
        };
        Ok(mpi.block_on(false, awaited, self.agree(mpi))?)
    }

    /// The maximum of the members' words. The words go up a tree to the leader, from leader to leader, and the result
    /// goes down again.
    ///
    /// A member that cannot reach another one passes on `UNREACHED` instead and still answers its children: members of
    /// the other group do not detect that a member of this group is lost.
    async fn highest(&self, mpi: Mpi, word: u32) -> Outcome<u32> {
        let (lane, rank, size) = (self.lane, self.rank, self.group.size());
        let member = |rank: u32| self.group.peer(rank).filter(|_| rank < size);
        let (mut highest, mut span, mut failed) = (word, 1, None);
        while span < size && rank & span == 0 {
            if let Some(child) = member(rank + span) {
                let received = receive_word(mpi, lane, child).await;
                highest = highest.max(or_unreached(received, &mut failed));
            }
            span <<= 1;
        }
        if rank != 0 {
            if let Some(parent) = member(rank - span) {
                let result = exchange_word(mpi, lane, parent, highest).await;
                highest = or_unreached(result, &mut failed);
            }
        } else if let Some((lane, leader)) = self.other {
            let received = exchange_word(mpi, lane, leader, highest).await;
            highest = highest.max(or_unreached(received, &mut failed));
        }
        while span > 1 {
            span >>= 1;
            if let Some(child) = member(rank + span) {
                // This fails if the child is lost. If there is another round, it fails when it needs the child's word.
                let _ = send_word(mpi, lane, child, highest).await;
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

/// The word that was received, or else `UNREACHED`. The first error is kept in `failed`.
fn or_unreached(received: Outcome<u32>, failed: &mut Option<runtime::Error>) -> u32 {
    received.unwrap_or_else(|error| {
        failed.get_or_insert(error);
        UNREACHED
    })
}

/// Sends a word to a process and receives one from it: between two leaders, or from a member to its parent in the tree,
/// which replies with the result.
async fn exchange_word(mpi: Mpi, lane: AgreementLane, with: Peer, word: u32) -> Outcome<u32> {
    let mut bytes = Box::new([0; WORD]);
    let received = start_receive(mpi, lane, with, &mut *bytes)?;
    let sent = start_send(mpi, lane, with, word);
    // Waits for the receive even if the send failed: until the receive is complete, it may write to `bytes`. It
    // completes with the peer's word, or with an error if the peer or another member of the communicator is lost.
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
/// Sent instead of a context id by a process that has none left to propose.
const NONE_LEFT: u32 = u32::MAX - 1;
/// Sent instead of a context id if a member cannot be reached.
const UNREACHED: u32 = u32::MAX;
