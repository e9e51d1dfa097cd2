// SPDX-License-Identifier: MIT OR Apache-2.0
//! How processes agree on a new communicator: few words from a leader to the others, and between the leaders of two groups.
//!
//! A leader alone chooses the context (`Universe::reserve_context`: no two processes choose the same one), so what has to be
//! agreed on travels once, from the leader to the rest. Messages that are no collective of the communicator go in its
//! [`making_context`](runtime::Comm::making_context), where a program's own messages never are.

use core::ffi::c_int;
use core::future::poll_fn;
use core::task::Poll;

use runtime::{
    Comm, ContextId, Group, Line, Mode, Peer, RequestId, Source, Target, UserMemory, Visit,
    collective,
};

use crate::enter::Mpi;
use crate::error::{Error, ErrorClass, Result};

/// Where the messages of an agreement go.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Lane {
    /// In which context.
    pub(crate) context: ContextId,
    /// With which tag.
    pub(crate) tag: c_int,
}

impl Lane {
    /// Messages between the two groups of an intercommunicator, or between members for a matter of theirs.
    pub(crate) fn of(comm: &Comm, tag: c_int) -> Self {
        let context = comm.making_context();
        Self { context, tag }
    }

    /// Sends some words.
    pub(crate) fn send(self, mpi: Mpi, to: Peer, words: &[u32]) -> Result<()> {
        let started = self.start_send(mpi, to, words)?;
        complete(mpi, started)
    }

    /// Receives some words.
    pub(crate) fn receive(self, mpi: Mpi, from: Peer) -> Result<Vec<u32>> {
        let mut length = [0; WORD];
        finish(mpi, self.start_receive(mpi, from, &mut length)?)?;
        let mut bytes = vec![0; u32::from_ne_bytes(length) as usize * WORD];
        finish(mpi, self.start_receive(mpi, from, &mut bytes)?)?;
        Ok(to_words(&bytes))
    }

    /// Sends some words to a process that does the same, and receives its words.
    pub(crate) fn exchange(self, mpi: Mpi, with: Peer, words: &[u32]) -> Result<Vec<u32>> {
        let started = self.start_send(mpi, with, words)?;
        let received = self.receive(mpi, with);
        complete(mpi, started).and(received)
    }

    /// Words of the first member of a group to all others, along a tree. Only the members call.
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

    /// Starts to send how many words there are, and the words.
    pub(crate) fn start_send(self, mpi: Mpi, peer: Peer, words: &[u32]) -> Result<Started> {
        let Self { context, tag } = self;
        let target = Target { context, peer, tag };
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
        let source = Source {
            context: self.context,
            peer: Some(peer),
            tag: Some(self.tag),
        };
        let memory = UserMemory::of(bytes);
        Ok(mpi.visit(|universe| universe.messages.receive(source, memory))?)
    }
}

/// For whom a context is.
#[derive(Clone, Copy)]
pub(crate) enum For {
    /// One communicator.
    One,
    /// Communicators of disjoint groups.
    Groups,
}

/// A new context, chosen by rank 0 of an intracommunicator, or by the leaders of the two groups. What rank 0 says it is for
/// holds for all.
pub(crate) fn new_context(mpi: Mpi, comm: &Comm, purpose: For) -> Result<ContextId> {
    let local = comm.local();
    Ok(Line::run(mpi, &local, async |line| {
        choose_context(mpi, line, comm, purpose).await
    })?)
}

/// The same as a part of a task; `line` is one of the local group.
pub(crate) async fn choose_context(
    mpi: Mpi,
    line: &Line<Mpi>,
    comm: &Comm,
    purpose: For,
) -> core::result::Result<ContextId, runtime::Error> {
    let mut word = 0;
    if comm.rank == 0 {
        let proposed = mpi.visit(|universe| match purpose {
            For::One => universe.reserve_context(),
            For::Groups => universe.comms.reserve_context(),
        });
        word = proposed.map_or(0, |context| context.0);
        if let Some(remote) = &comm.remote
            && let Some(leader) = remote.peer(0)
        {
            let other = exchange_word(mpi, Lane::of(comm, 0), leader, word).await?;
            word = choose(mpi, word, other);
        }
    }
    let mut bytes = word.to_ne_bytes();
    collective::bcast(line, &mut bytes, 0).await?;
    match u32::from_ne_bytes(bytes) {
        0 => Err(runtime::Error::ContextsExhausted),
        context => Ok(ContextId(context)),
    }
}

async fn exchange_word(
    mpi: Mpi,
    lane: Lane,
    with: Peer,
    word: u32,
) -> core::result::Result<u32, runtime::Error> {
    let Lane { context, tag } = lane;
    let mut bytes = Box::new([0; WORD]);
    let source = Source {
        context,
        peer: Some(with),
        tag: Some(tag),
    };
    let target = Target {
        context,
        peer: with,
        tag,
    };
    let memory = UserMemory::of(&mut *bytes);
    let received = mpi.visit(|universe| universe.messages.receive(source, memory))?;
    let out = Box::new(word.to_ne_bytes());
    let sent = mpi.visit(|universe| universe.sending().send_owned(target, out, Mode::Standard));
    // The receive ends before this returns, as the other leader sends whatever happens.
    let received = ended(mpi, received).await;
    if let Some(sent) = sent? {
        ended(mpi, sent).await?;
    }
    received.map(|()| u32::from_ne_bytes(*bytes))
}

async fn ended(mpi: Mpi, request: RequestId) -> core::result::Result<(), runtime::Error> {
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

/// Of the contexts that two leaders propose the one that both take; none where one of them has none left.
fn choose(mpi: Mpi, proposed: u32, other: u32) -> u32 {
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

/// One word of each rank of an intracommunicator, in rank order, as a list of equally many words each.
pub(crate) fn gather_all(mpi: Mpi, comm: &Comm, mine: &[u32]) -> Result<Vec<u32>> {
    let mut all = vec![0; mine.len() * comm.size() as usize];
    let at = comm.rank as usize * mine.len();
    all[at..at + mine.len()].copy_from_slice(mine);
    let mut bytes = to_bytes(&all);
    Line::run(mpi, comm, async |line| {
        collective::allgather_bytes(line, &mut bytes).await
    })?;
    Ok(to_words(&bytes))
}

/// Words of one rank of an intracommunicator to all.
pub(crate) fn deal_out(mpi: Mpi, comm: &Comm, root: u32, words: Vec<u32>) -> Result<Vec<u32>> {
    let mut length = to_bytes(&[length_of(&words)]);
    bcast(mpi, comm, &mut length, root)?;
    let length = to_words(&length).first().copied().unwrap_or(0) as usize;
    let mut bytes = to_bytes(&words);
    bytes.resize(length * WORD, 0);
    bcast(mpi, comm, &mut bytes, root)?;
    Ok(to_words(&bytes))
}

fn bcast(mpi: Mpi, comm: &Comm, bytes: &mut [u8], root: u32) -> Result<()> {
    Ok(Line::run(mpi, comm, async |line| {
        collective::bcast(line, bytes, root).await
    })?)
}

/// What the two groups of an intercommunicator told each other.
pub(crate) struct Swapped {
    /// The new context that they chose.
    pub(crate) context: ContextId,
    /// What the leader of the remote group said.
    pub(crate) theirs: Vec<u32>,
}

/// Tells the other group what rank 0 of this group gives, and chooses a new context.
pub(crate) fn swap(mpi: Mpi, comm: &Comm, mine: Vec<u32>) -> Result<Swapped> {
    let mut told = Vec::new();
    if comm.rank == 0
        && let Some(leader) = comm.partners().peer(0)
    {
        told = swap_leaders(mpi, Lane::of(comm, 0), leader, mine)?;
    }
    let mut told = deal_out(mpi, &comm.local(), 0, told)?;
    let context = context_of(told.pop())?;
    Ok(Swapped {
        context,
        theirs: told,
    })
}

/// What a leader does of the above: the other side's words, and the new context after them.
pub(crate) fn swap_leaders(
    mpi: Mpi,
    lane: Lane,
    leader: Peer,
    mut mine: Vec<u32>,
) -> Result<Vec<u32>> {
    let proposed = mpi.visit(|universe| universe.reserve_context());
    let proposed = proposed.map_or(0, |context| context.0);
    mine.push(proposed);
    let mut theirs = lane.exchange(mpi, leader, &mine)?;
    let other = theirs.pop().unwrap_or(0);
    let chosen = choose(mpi, proposed, other);
    theirs.push(chosen);
    Ok(theirs)
}

/// A context as it was told; 0 stands for none.
pub(crate) fn context_of(word: Option<u32>) -> Result<ContextId> {
    match word {
        Some(word) if word != 0 => Ok(ContextId(word)),
        _ => Err(runtime::Error::ContextsExhausted.into()),
    }
}

/// A group as words: the world ranks of its members.
pub(crate) fn words_of(group: &Group) -> Vec<u32> {
    group.peers().map(|peer| peer.0).collect()
}

/// The inverse.
pub(crate) fn group_of(words: &[u32]) -> Group {
    Group::of(words.iter().copied().map(Peer).collect())
}

/// The processes of a group must be among the members of a communicator's local group.
pub(crate) fn check_members(comm: &Comm, members: &Group) -> Result<()> {
    let stranger = members
        .peers()
        .find(|peer| comm.group.rank_of(*peer).is_none());
    stranger.map_or(Ok(()), |stranger| {
        let detail = format!(
            "the group has a process (world rank {}) that is not in the communicator",
            stranger.0
        );
        Err(Error::new(ErrorClass::GROUP, detail))
    })
}

/// Sends that were started, as far as they are not complete.
pub(crate) type Started = [Option<RequestId>; 2];

/// Waits for them.
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
