// SPDX-License-Identifier: MIT OR Apache-2.0
//! The one seam between the vocabulary and what carries bytes: a closed set of providers, one per peer.

mod cma;
mod distance;
mod loopback;
mod shm;
mod sim;
mod transfer;

use std::ptr::NonNull;
use std::time::Duration;

use crate::qp::{Route, Routes};
use crate::{
    Arrived, Completions, Error, Full, Head, Lease, Node, Peer, RecvBuffer, RemoteKey, Seat,
    WorkId, seat,
};
use loopback::Loopback;
pub use shm::FirstFrame;
use shm::Shm;
use sim::Sim;
pub use sim::{SimConfig, SimNet, SimStats};

/// What a queue pair can do. All sizes in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Caps {
    /// Bodies up to this size travel inside the frame.
    pub max_inline_bytes: usize,
    /// Largest body of one send.
    pub max_send_bytes: usize,
}

/// What a fabric is opened with.
#[derive(Debug)]
pub struct Config {
    /// This process.
    pub me: Peer,
    /// Processes of the job.
    pub peers: u32,
    /// The other ranks of this node; `None` when the process is alone.
    pub node: Option<Node>,
}

impl Config {
    /// A job of one process.
    #[must_use]
    pub fn alone() -> Self {
        Self {
            me: Peer(0),
            peers: 1,
            node: None,
        }
    }
}

/// What was moved so far; for tests and performance variables.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Frames posted.
    pub sends: u64,
    /// Bells rung because the receiver did not look.
    pub bells: u64,
    /// Wake-up calls made.
    pub wakes: u64,
    /// Times this process went to sleep.
    pub sleeps: u64,
    /// Bytes read from peers' memory by this process.
    pub read_bytes: u64,
    /// Bytes of reads that the owner of the data has written instead.
    pub helped_bytes: u64,
    /// Frames and offers that made no sense.
    pub refused: u64,
}

/// A process's access to all its peers.
#[derive(Debug)]
pub struct Fabric {
    routes: Routes,
    shm: Shm,
    loopback: Loopback,
    sim: Option<Sim>,
}

impl Fabric {
    /// Opens a queue pair to every peer. Costs no memory for peers that never talk.
    ///
    /// # Errors
    /// When a provider cannot be set up, or no provider reaches some peer.
    pub fn open(config: Config) -> Result<Self, Error> {
        let mut routes = vec![None; config.peers as usize];
        for (local, world) in (0..).zip(config.node.iter().flat_map(|node| &node.world_ranks)) {
            routes[*world as usize] = Some(Route::Shm(local));
        }
        routes[config.me.0 as usize] = Some(Route::Loopback);
        let reached = |(peer, route): (u32, Option<Route>)| route.ok_or(Error::NoRoute { peer });
        let routes: Vec<_> = (0..).zip(routes).map(reached).collect::<Result<_, _>>()?;
        Ok(Self {
            routes: Routes::new(routes),
            shm: Shm::open(config.node, config.peers),
            loopback: Loopback::new(config.me),
            sim: None,
        })
    }

    /// Opens a queue pair to every rank of a simulated network, for rank `me` of it.
    #[must_use]
    pub fn simulated(net: &SimNet, me: Peer) -> Self {
        let route = |rank| {
            if rank == me.0 {
                Route::Loopback
            } else {
                Route::Sim
            }
        };
        Self {
            routes: Routes::new((0..net.ranks()).map(route)),
            shm: Shm::open(None, net.ranks()),
            loopback: Loopback::new(me),
            sim: Some(Sim::open(net.clone(), me)),
        }
    }

    /// What the queue pair to `peer` can do.
    #[must_use]
    pub fn caps(&self, _peer: Peer) -> Caps {
        Caps {
            max_inline_bytes: ring::SLOT_BODY_BYTES,
            max_send_bytes: ring::layout::POOL_BUFFER_BYTES,
        }
    }

    /// Posts a send. The bytes are copied before the call returns. `head.kind` below 128; `head.len` is ignored.
    ///
    /// # Errors
    /// [`Full`]: nothing was posted; poll and post again.
    ///
    /// # Panics
    /// When the body is longer than [`Caps::max_send_bytes`].
    #[inline(always)]
    pub fn post_send(&mut self, peer: Peer, head: Head, body: &[u8]) -> Result<(), Full> {
        match self.routes.of(peer) {
            Route::Shm(_) => self.shm.post_send(peer, head, body),
            Route::Loopback => self.loopback.post_send(head, body),
            Route::Sim => self.sim().post_send(peer, head, body),
        }
    }

    /// Posts a send of at most eight bytes (`head.len` says how many), or says `None` where that takes more than a slot
    /// at hand: the fast path. After `Some(false)` the caller must [`ring_bell`](Self::ring_bell).
    #[inline(always)]
    pub fn post_word(
        &mut self,
        peer: Peer,
        head: impl FnOnce() -> Head,
        word: impl FnOnce() -> u64,
    ) -> Option<bool> {
        self.shm.post_word(peer, head, word)
    }

    /// Rings the bell of a peer that does not look.
    pub fn ring_bell(&mut self, peer: Peer) {
        self.shm.ring_bell(peer);
    }

    /// A frame that is at hand without any other work: the fast path of receiving. Not every frame shows here;
    /// [`poll`](Self::poll) gives them all.
    #[inline(always)]
    pub fn first_frame(&mut self) -> Option<FirstFrame<'_>> {
        self.shm.first_frame()
    }

    /// As [`first_frame`](Self::first_frame), but only a frame of this kind and length in bytes, without flags.
    #[inline(always)]
    pub fn first_plain_frame(&mut self, kind: u8, len: u8) -> Option<FirstFrame<'_>> {
        self.shm.first_plain_frame(kind, len)
    }

    /// Memory that peers can read and write without any help, zero and aligned to a page; `None` where there is none of
    /// that kind, or no more. It is shared with child processes too.
    pub fn allocate(&mut self, bytes: usize) -> Option<NonNull<u8>> {
        self.shm.allocate(bytes)
    }

    /// Gives back what [`allocate`](Self::allocate) gave. `false`: it is not from there, or was given back already.
    pub fn free(&mut self, place: NonNull<u8>) -> bool {
        self.shm.free(place)
    }

    /// Takes a [board](Seat) for processes of this node that will call it `key`. `false`: there are none, or no free one.
    pub fn claim_board(&mut self, key: u32) -> bool {
        let node = self.shm.node.as_ref();
        node.is_some_and(|node| seat::claim(node, key))
    }

    /// Gives a board back that was claimed and that nobody else knows of.
    pub fn unclaim_board(&mut self, key: u32) {
        if let Some(node) = &self.shm.node {
            seat::leave(node, key, 1);
        }
    }

    /// A seat at the board `key` for this process and the other `members`, in the order of their places; each of them takes
    /// one. `None`: there is no such board, or some of them are on other nodes.
    #[must_use]
    pub fn take_seat(&self, key: u32, members: impl Iterator<Item = Peer>) -> Option<Seat> {
        let node = self.shm.node.as_ref()?;
        let local = |peer| match self.routes.of(peer) {
            Route::Shm(local) => Some(local),
            Route::Loopback => Some(node.local_rank),
            Route::Sim => None,
        };
        let members: Box<[u32]> = members.map(local).collect::<Option<_>>()?;
        let place = members
            .iter()
            .position(|member| *member == node.local_rank)?;
        let place = u32::try_from(place).ok()?;
        Seat::take(node, key, members, place)
    }

    /// Is done for ever with the board `key` of `members` processes; nothing happens if there is none. They all say so.
    pub fn leave_board(&mut self, key: u32, members: u32) {
        if let Some(node) = &self.shm.node {
            seat::leave(node, key, members);
        }
    }

    /// Whether data for `peer` had better be sent at once, through buffers, than be read by it: a guess from what was
    /// measured. Asking counts as a message: now and then the answer is yes only to measure again.
    pub fn had_better_stream(&mut self, peer: Peer) -> bool {
        match self.routes.of(peer) {
            Route::Shm(_) => self.shm.had_better_stream(peer),
            Route::Loopback => false,
            Route::Sim => true,
        }
    }

    /// Names leased memory for `peer`, so that it can read (or write) it until the lease ends.
    pub fn export(&mut self, peer: Peer, address: u64, bytes: u64) -> RemoteKey {
        match self.routes.of(peer) {
            Route::Shm(local) => self.shm.export(local, address, bytes),
            Route::Loopback => self.loopback.export(address, bytes),
            Route::Sim => self.sim().export(peer, address, bytes),
        }
    }

    /// Posts a read: fills the lease from byte `offset` of the peer's memory. Ends with a completion, always.
    pub fn post_read(
        &mut self,
        peer: Peer,
        lease: Lease,
        key: RemoteKey,
        offset: u64,
        work: WorkId,
    ) {
        match self.routes.of(peer) {
            Route::Shm(local) => self.shm.post_read(local, lease, key, offset, work),
            Route::Loopback => self.loopback.post_read(lease, key, offset, work),
            Route::Sim => self.sim().post_read(peer, lease, key, offset, work),
        }
    }

    /// Posts a write of the lease to byte `offset` of the peer's memory; with `immediate`, tells the peer. Ends with
    /// a completion, always.
    ///
    /// # Errors
    /// [`Full`] gives the lease back: the immediate needs room; poll and post again.
    pub fn post_write(
        &mut self,
        peer: Peer,
        lease: Lease,
        key: RemoteKey,
        offset: u64,
        work: WorkId,
        immediate: Option<u32>,
    ) -> Result<(), Lease> {
        match self.routes.of(peer) {
            Route::Shm(local) => self
                .shm
                .post_write(local, lease, key, offset, work, immediate),
            Route::Loopback => {
                self.loopback
                    .post_write(lease, key, offset, work, immediate);
                Ok(())
            }
            Route::Sim => self
                .sim()
                .post_write(peer, lease, key, offset, work, immediate),
        }
    }

    /// Asks once what happened, without waiting, and does a bounded share of the work that is under way.
    #[inline(always)]
    pub fn poll(&mut self, completions: &mut Completions) {
        completions.clear();
        if self.loopback.has_completions() || self.sim.is_some() {
            self.poll_others(completions);
        }
        self.shm.poll(completions);
    }

    #[cold]
    #[inline(never)]
    fn poll_others(&mut self, completions: &mut Completions) {
        self.loopback.poll(completions);
        if let Some(sim) = &mut self.sim {
            sim.poll(completions);
        }
    }

    /// Copies the body of an arrived frame, or as much as fits; answers how many bytes that was.
    #[inline(always)]
    pub fn copy_body(&self, arrived: &Arrived, target: &mut [u8]) -> usize {
        match arrived.body {
            RecvBuffer::Inline { bytes } => copy_inline(&arrived.words, usize::from(bytes), target),
            RecvBuffer::Lent { index, bytes } => match self.routes.of(arrived.peer) {
                Route::Shm(local) => self.shm.copy_lent(local, index, bytes, target),
                Route::Loopback => self.loopback.copy_lent(index, target),
                Route::Sim => self
                    .sim
                    .as_ref()
                    .map_or(0, |sim| sim.copy_lent(index, target)),
            },
        }
    }

    /// Gives the buffer of an arrived frame back to its provider. Nothing happens for bodies inside the frame.
    #[inline(always)]
    pub fn release(&mut self, arrived: &Arrived) {
        if let RecvBuffer::Lent { index, .. } = arrived.body {
            match self.routes.of(arrived.peer) {
                Route::Shm(local) => self.shm.release(local, index),
                Route::Loopback => self.loopback.release(index),
                Route::Sim => self.sim().release(index),
            }
        }
    }

    /// Whether this process should look at its rings so eagerly that senders need not ring (a core is free for it).
    pub fn set_attentive(&mut self, attentive: bool) {
        self.shm.set_attentive(attentive);
    }

    /// Promises that this process will never [`sleep`](Self::sleep): then it can be attentive where the system has no
    /// fence for it.
    pub fn never_sleep(&mut self) {
        self.shm.never_sleep();
    }

    /// Whether [`first_frame`](Self::first_frame) shows nothing before the next [`poll`](Self::poll): frame by frame, the
    /// other peers and what is under way would be forgotten, so it ends after some hundreds.
    #[inline(always)]
    #[must_use]
    pub fn must_poll(&self) -> bool {
        self.shm.must_poll()
    }

    /// Whether [`set_attentive`](Self::set_attentive) holds.
    #[inline(always)]
    #[must_use]
    pub fn is_attentive(&self) -> bool {
        self.shm.is_attentive()
    }

    /// Announces that this process is about to sleep. `false`: something has happened, poll again; `true`: call
    /// [`sleep`](Self::sleep) or [`stay_awake`](Self::stay_awake) now.
    pub fn prepare_sleep(&mut self) -> bool {
        let quiet = self.sim.as_ref().is_none_or(Sim::prepare_sleep);
        quiet && !self.loopback.has_completions() && self.shm.prepare_sleep()
    }

    /// Sleeps until somebody rings, at most for `timeout`.
    pub fn sleep(&mut self, timeout: Duration) {
        match &mut self.sim {
            Some(sim) => sim.sleep(timeout),
            None => self.shm.sleep(timeout),
        }
    }

    /// Takes [`prepare_sleep`](Self::prepare_sleep) back.
    pub fn stay_awake(&mut self) {
        self.shm.stay_awake();
    }

    /// CPUs that the other ranks of this node say they may use, one mask per rank that has introduced itself.
    #[must_use]
    pub fn neighbours_cpus(&self) -> Vec<[u64; 16]> {
        self.shm.neighbours_cpus()
    }

    /// What was moved so far.
    #[must_use]
    pub fn stats(&self) -> Stats {
        match &self.sim {
            Some(sim) => sim.stats(),
            None => self.shm.stats(),
        }
    }

    #[cold]
    #[inline(never)]
    fn sim(&mut self) -> &mut Sim {
        self.sim
            .as_mut()
            .expect("only a fabric on a simulated network has such routes")
    }
}

#[inline(always)]
fn copy_inline(words: &[u64], bytes: usize, target: &mut [u8]) -> usize {
    if bytes == 8
        && let Some(target) = target.first_chunk_mut::<8>()
    {
        *target = words[0].to_ne_bytes();
        return 8;
    }
    copy_words(words, bytes, target)
}

#[inline(never)]
fn copy_words(words: &[u64], bytes: usize, target: &mut [u8]) -> usize {
    let bytes = bytes.min(target.len()).min(8 * words.len());
    for (chunk, word) in target[..bytes].chunks_mut(8).zip(words) {
        chunk.copy_from_slice(&word.to_ne_bytes()[..chunk.len()]);
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peer_that_nobody_reaches_is_named_when_the_fabric_is_opened() {
        let config = Config {
            peers: 3,
            ..Config::alone()
        };
        let error = Fabric::open(config).unwrap_err();
        assert_eq!(
            error.to_string(),
            "no provider reaches rank 1: it is not on this node"
        );
    }

    #[test]
    fn a_fabric_may_move_to_another_thread() {
        fn movable<T: Send>() {}
        movable::<Fabric>();
    }
}
