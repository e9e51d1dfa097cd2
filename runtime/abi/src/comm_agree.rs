// SPDX-License-Identifier: MIT OR Apache-2.0
//! Agreement on a new communicator: short messages from the leader of a group to its members, and between the leaders
//! of two groups.
//!
//! If possible, one leader chooses the [context id](crate::comm_context). Then a broadcast in each group is enough,
//! without a reduction. Messages that are not part of a collective on the communicator use its
//! [`making_context`](runtime::Comm::making_context), which the program's messages never use.

use core::ffi::c_int;

use runtime::{
    CollectiveCall, Comm, ContextId, Group, Mode, Peer, ProcessName, ReceiveSource, RequestId,
    SendTarget, UserMemory, Visit, collective,
};

use crate::comm_context::{ContextScope, agree_all, choose, propose};
use crate::enter::Mpi;
use crate::error::{Error, ErrorClass, Result};

/// The context and tag of an agreement's messages.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AgreementLane {
    /// The context id.
    pub(crate) context: ContextId,
    /// The tag.
    pub(crate) tag: c_int,
}

impl AgreementLane {
    /// The lane of a communicator with this tag: for messages between the two groups of an intercommunicator, or
    /// between some members of a communicator.
    pub(crate) fn of(comm: &Comm, tag: c_int) -> Self {
        let context = comm.making_context();
        Self { context, tag }
    }

    /// Sends words; returns when the sends are complete.
    pub(crate) fn send(self, mpi: Mpi, to: Peer, words: &[u32]) -> Result<()> {
        let started = self.start_send(mpi, to, words)?;
        complete(mpi, started)
    }

    /// Receives the words of a matching [`send`](Self::send).
    pub(crate) fn receive(self, mpi: Mpi, from: Peer) -> Result<Vec<u32>> {
        let mut length = [0; WORD];
        finish(mpi, self.start_receive(mpi, from, &mut length)?)?;
        let mut bytes = vec![0; u32::from_ne_bytes(length) as usize * WORD];
        finish(mpi, self.start_receive(mpi, from, &mut bytes)?)?;
        Ok(to_words(&bytes))
    }

    /// Exchanges words with a process that calls `exchange` too.
    pub(crate) fn exchange(self, mpi: Mpi, with: Peer, words: &[u32]) -> Result<Vec<u32>> {
        let started = self.start_send(mpi, with, words)?;
        let received = self.receive(mpi, with);
        complete(mpi, started).and(received)
    }

    /// Broadcasts words of a group's first member along a tree. Only the members of the group call this.
    pub(crate) fn share(
        self,
        mpi: Mpi,
        group: &Group,
        rank: u32,
        words: Vec<u32>,
    ) -> Result<Vec<u32>> {
        let (size, mut words) = (group.size(), words);
        let mut span = 1;
        while span < size && rank & span == 0 {
            span <<= 1;
        }
        if rank != 0
            && let Some(parent) = group.peer(rank - span)
        {
            words = self.receive(mpi, parent)?;
        }
        span >>= 1;
        while span > 0 {
            if let Some(child) = group.peer(rank + span).filter(|_| rank + span < size) {
                self.send(mpi, child, &words)?;
            }
            span >>= 1;
        }
        Ok(words)
    }

    /// Starts two sends: of the number of words, and of the words.
    pub(crate) fn start_send(self, mpi: Mpi, peer: Peer, words: &[u32]) -> Result<Started> {
        let Self { context, tag } = self;
        let target = SendTarget { context, peer, tag };
        let start = |bytes: Vec<u8>| {
            let bytes = bytes.into_boxed_slice();
            mpi.visit(|universe| universe.sending().send_owned(target, bytes, Mode::Standard))
        };
        Ok([
            start(to_bytes(&[length_of(words)]))?,
            start(to_bytes(words))?,
        ])
    }

    fn start_receive(self, mpi: Mpi, peer: Peer, bytes: &mut [u8]) -> Result<RequestId> {
        let source = ReceiveSource {
            context: self.context,
            peer: Some(peer),
            tag: Some(self.tag),
        };
        let memory = UserMemory::of(bytes);
        Ok(mpi.visit(|universe| universe.messages.receive(source, memory))?)
    }
}

/// Gathers the words of all ranks of an intracommunicator, in rank order. Each rank gives the same number of words.
pub(crate) fn gather_all(mpi: Mpi, comm: &Comm, mine: &[u32]) -> Result<Vec<u32>> {
    let mut all = vec![0; mine.len() * comm.size() as usize];
    let at = comm.rank as usize * mine.len();
    all[at..at + mine.len()].copy_from_slice(mine);
    let mut bytes = to_bytes(&all);
    CollectiveCall::run(mpi, comm, async |call| {
        collective::allgather_bytes(call, &mut bytes).await
    })?;
    Ok(to_words(&bytes))
}

/// Broadcasts words of one rank of an intracommunicator.
pub(crate) fn broadcast_words(
    mpi: Mpi,
    comm: &Comm,
    root: u32,
    words: Vec<u32>,
) -> Result<Vec<u32>> {
    let mut length = to_bytes(&[length_of(&words)]);
    bcast(mpi, comm, &mut length, root)?;
    let length = to_words(&length).first().copied().unwrap_or(0) as usize;
    let mut bytes = to_bytes(&words);
    bytes.resize(length * WORD, 0);
    bcast(mpi, comm, &mut bytes, root)?;
    Ok(to_words(&bytes))
}

fn bcast(mpi: Mpi, comm: &Comm, bytes: &mut [u8], root: u32) -> Result<()> {
    Ok(CollectiveCall::run(mpi, comm, async |call| {
        collective::bcast(call, bytes, root).await
    })?)
}

/// The result of [`swap`], an exchange between the two groups of an intercommunicator.
pub(crate) struct GroupExchange {
    /// The new context id. Processes that are not in the new communicator must release it.
    pub(crate) context: ContextId,
    /// The words of the remote group's leader.
    pub(crate) theirs: Vec<u32>,
}

/// Exchanges the words of the two groups' leaders (rank 0), and chooses a new context id.
pub(crate) fn swap(mpi: Mpi, comm: &Comm, mine: Vec<u32>) -> Result<GroupExchange> {
    let mut received = Vec::new();
    if comm.rank == 0
        && let Some(leader) = comm.partners().peer(0)
    {
        received = exchange_leaders(mpi, AgreementLane::of(comm, 0), &comm.group, leader, mine)?;
    }
    let mut received = broadcast_words(mpi, &comm.local(), 0, received)?;
    let context = match received.pop().unwrap_or(0) {
        0 => agree_all(mpi, comm)?,
        context => ContextId(context),
    };
    Ok(GroupExchange {
        context,
        theirs: received,
    })
}

/// Exchanges the words of the two groups' leaders (rank 0), without a context id; returns the words of the remote
/// group's leader.
pub(crate) fn exchange_words(mpi: Mpi, comm: &Comm, mine: &[u32]) -> Result<Vec<u32>> {
    let mut received = Vec::new();
    if comm.rank == 0
        && let Some(leader) = comm.partners().peer(0)
    {
        received = AgreementLane::of(comm, 0).exchange(mpi, leader, mine)?;
    }
    broadcast_words(mpi, &comm.local(), 0, received)
}

/// Called by a leader: exchanges `mine` with the words of the other leader, `leader`. Returns the other leader's words,
/// followed by the new context id, or by 0 if all processes have to agree on a context id.
pub(crate) fn exchange_leaders(
    mpi: Mpi,
    lane: AgreementLane,
    own: &Group,
    leader: Peer,
    mut mine: Vec<u32>,
) -> Result<Vec<u32>> {
    // `propose` checks that all processes are in this job. The other leader checks the members of its own group, so
    // here only that leader itself is checked.
    let other = Group::of(vec![leader]);
    let proposed = propose(mpi, [Some(own), Some(&other)], ContextScope::One);
    mine.push(proposed);
    let mut theirs = lane.exchange(mpi, leader, &mine)?;
    let other = theirs.pop().unwrap_or(0);
    let chosen = choose(mpi, proposed, other);
    theirs.push(chosen);
    Ok(theirs)
}

/// Encodes a group as words: the global names of its members.
pub(crate) fn words_of(mpi: Mpi, group: &Group) -> Vec<u32> {
    let names = mpi.visit(|universe| {
        let roster = universe.roster();
        let names = group.peers().map(|peer| roster.name(peer));
        names.collect::<Option<Vec<_>>>()
    });
    let names = names.expect("only processes that are known are in groups");
    names.into_iter().flat_map(words_of_name).collect()
}

/// Decodes a group from words.
pub(crate) fn group_of(mpi: Mpi, words: &[u32]) -> Result<Group> {
    let names = words.as_chunks::<NAME>().0.iter().map(name_of);
    let peers = mpi.visit(|universe| {
        let roster = universe.roster();
        let peer = |name| roster.peer(name).ok_or(name);
        names.map(peer).collect::<core::result::Result<Vec<_>, _>>()
    });
    peers.map(Group::of).map_err(|name| {
        let ProcessName { job, rank } = name;
        let detail =
            format!("rank {rank} of job {job:016x} is in the other group, and not known here");
        Error::new(ErrorClass::OTHER, detail)
    })
}

fn words_of_name(ProcessName { job, rank }: ProcessName) -> [u32; NAME] {
    let [low, high] = [job, job >> 32].map(|half| half & u64::from(u32::MAX));
    let half = |half: u64| u32::try_from(half).unwrap_or(0);
    [half(low), half(high), rank]
}

fn name_of(&[low, high, rank]: &[u32; NAME]) -> ProcessName {
    let job = u64::from(high) << 32 | u64::from(low);
    ProcessName { job, rank }
}

/// Checks that a group is a subset of a communicator's local group.
pub(crate) fn check_members(comm: &Comm, members: &Group) -> Result<()> {
    let outsider = members
        .peers()
        .find(|peer| comm.group.rank_of(*peer).is_none());
    outsider.map_or(Ok(()), |outsider| {
        let detail = format!(
            "the group has a process (world rank {}) that is not in the communicator",
            outsider.0
        );
        Err(Error::new(ErrorClass::GROUP, detail))
    })
}

/// Started sends that are not complete.
pub(crate) type Started = [Option<RequestId>; 2];

/// Waits for started sends.
pub(crate) fn complete(mpi: Mpi, started: Started) -> Result<()> {
    let [first, second] = started.map(|one| one.map_or(Ok(()), |request| finish(mpi, request)));
    first.and(second)
}

fn finish(mpi: Mpi, request: RequestId) -> Result<()> {
    mpi.wait_for(request);
    let status = mpi.visit(|universe| universe.collect(request));
    status.error.map_or(Ok(()), |error| Err(error.into()))
}

fn length_of(words: &[u32]) -> u32 {
    u32::try_from(words.len()).unwrap_or(u32::MAX)
}

fn to_bytes(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_ne_bytes()).collect()
}

fn to_words(bytes: &[u8]) -> Vec<u32> {
    let words = bytes.as_chunks::<WORD>().0;
    words.iter().map(|word| u32::from_ne_bytes(*word)).collect()
}

const WORD: usize = size_of::<u32>();
/// Number of words in the global name of a process.
const NAME: usize = 3;
