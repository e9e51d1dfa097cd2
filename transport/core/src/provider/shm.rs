// SPDX-License-Identifier: MIT OR Apache-2.0
//! Provider `shm`: frames go through the rings of the node segment, larger bodies through the pool, large data by one
//! copy between the two processes (`transfer.rs`).

mod first;
mod one_sided;
mod wire;

use std::collections::VecDeque;
use std::hash::{DefaultHasher, Hasher};
use std::ptr::NonNull;
use std::sync::{Arc, OnceLock};

use crossbeam_utils::CachePadded;
use ring::layout::{OWN_BUFFER, POOL_BUFFER_BYTES, SLOT_BODY_BYTES};
use ring::{
    Bell, Consumer, Frame, PairLine, Peeked, Pool, PoolBuffer, Producer, ProducerCounts, Ring, Wake,
};

use super::cma;
use super::counters::{FabricCounters, FabricStats, ShmCounts};
use super::distance::{Distance, Fill};
use super::transfer::{Help, Transfers};
use crate::arena::Arenas;
use crate::{
    Arrived, Completion, Completions, Full, Grown, Head, Node, Peer, RecvBuffer, Segment, wait,
    words,
};
use first::Active;
pub use first::FirstFrame;

/// The rings between this process and the other ranks of its node; none if it is alone there.
///
/// This type has more than sixty methods: those of every provider, and fast paths (*lanes*), each a shorter form of a
/// provider's method.
#[derive(Debug)]
pub(super) struct Shm {
    /// By peer; a sender that never has room stands for a peer that does not share this segment.
    senders: Vec<CachePadded<Tx>>,
    receivers: Box<[Rx]>,
    words: WordCounts,
    /// Receivers that every poll checks: those whose senders need not ring the bell, and those that have frames.
    active: Active,
    pub(super) pool: Option<Pool<'static>>,
    pub(super) finished: VecDeque<Completion>,
    pub(super) transfers: Transfers,
    pub(super) node: Option<Node>,
    pub(super) arenas: Option<Arenas>,
    bell: Option<&'static Bell>,
    /// For each local rank, a secret and its proof. A rank must have read its secret from here, or present a key sealed
    /// with it, to access this process's memory.
    nonces: Box<[[u64; 2]]>,
    can_fence: bool,
    sleepless: bool,
    attentive: bool,
    polled: usize,
    pending_words: usize,
    polls: u64,
    pub(super) stats: Arc<ShmCounts>,
}

/// State of sending to one peer: one private cache line.
#[derive(Debug)]
struct Tx {
    producer: Producer<'static>,
    bell: Option<&'static Bell>,
    /// The peer's local rank.
    local: u32,
    distance: Distance,
}

/// Counts of the fast path of words. That path does no counting itself: the counts are those that the rings' producers
/// publish.
#[derive(Clone, Debug)]
pub(super) struct WordCounts {
    /// By peer.
    published_by: Arc<Grown<OnceLock<&'static ProducerCounts>>>,
}

impl Default for WordCounts {
    fn default() -> Self {
        let published_by = Arc::new(Grown::new(0));
        Self { published_by }
    }
}

impl WordCounts {
    /// Number of words sent to a peer, and the bytes in them; for any thread and for signal handlers. Both are never
    /// higher than what was sent, and lower only while a send is in progress.
    pub(super) fn of(&self, peer: Peer) -> (u64, u64) {
        let published = self.published_by.get(peer.0 as usize);
        let Some(published) = published.and_then(OnceLock::get) else {
            return (0, 0);
        };
        let counts = published.counts();
        let missing = counts.short_words * (8 - SHORT_WORD_BYTES);
        (counts.words, (8 * counts.words).saturating_sub(missing))
    }

    /// Frames sent to all ranks of the node.
    pub(super) fn frames(&self) -> u64 {
        let published = self.published_by.iter().filter_map(OnceLock::get);
        published.map(|published| published.counts().frames).sum()
    }
}

/// State of receiving from one peer.
#[derive(Debug)]
#[repr(align(64))]
struct Rx {
    consumer: Consumer<'static>,
    peer: Peer,
    active: bool,
    is_polled: bool,
    last_frame: u64,
    reach: PeerAccess,
}

/// Location of memory of a peer.
#[derive(Clone, Copy, Debug)]
pub(super) enum PeerMemory {
    /// In its own address space.
    Process { pid: u32, address: u64 },
    /// In its arena, which all ranks can map.
    Arena { offset: u64 },
}

/// Whether this process can read and write the peer's memory (`process_vm_readv`).
#[derive(Clone, Copy, Debug)]
pub(super) enum PeerAccess {
    /// Not tried yet.
    Unknown,
    /// Access works: process id, and the secret that was read there.
    Yes { pid: u32, secret: u64 },
    /// Access fails.
    No,
}

impl Shm {
    pub(super) fn open(node: Option<Node>, peers: u32) -> Self {
        Self::counting(node, peers, WordCounts::default(), Arc::default())
    }

    /// Attaches a further segment of this node, for a process with `peers` peers. The result shares the counters of
    /// `self`.
    pub(super) fn beside(&self, node: Node, peers: u32) -> Self {
        let mut shm = Self::counting(
            Some(node),
            peers,
            self.words.clone(),
            Arc::clone(&self.stats),
        );
        shm.set_sleepless(self.sleepless);
        shm.set_attentive(self.attentive);
        shm
    }

    fn counting(node: Option<Node>, peers: u32, words: WordCounts, stats: Arc<ShmCounts>) -> Self {
        let size = node.as_ref().map_or(0, |node| node.segment.local_size());
        let mut shm = Self {
            senders: Vec::new(),
            receivers: Box::default(),
            words,
            active: Active::with_room(size),
            pool: None,
            finished: VecDeque::new(),
            transfers: Transfers::default(),
            bell: None,
            nonces: vec![[0; 2]; size as usize].into(),
            can_fence: wait::register_for_fences(),
            sleepless: false,
            attentive: false,
            polled: 0,
            pending_words: size.div_ceil(64) as usize,
            polls: 0,
            stats,
            node: None,
            arenas: None,
        };
        shm.make_room_for(peers);
        if let Some(node) = node {
            shm.join(node);
        }
        shm
    }

    /// Makes room for new peers, so that there are `peers` in all; the new ones do not share this segment.
    pub(super) fn make_room_for(&mut self, peers: u32) {
        let nowhere = || CachePadded::new(Tx::nowhere());
        self.senders.resize_with(peers as usize, nowhere);
        self.words.published_by.grow_to(peers as usize);
    }

    fn join(&mut self, node: Node) {
        let (segment, me) = (node.segment, node.local_rank);
        let size = segment.local_size();
        // No ring leads to this process itself: the loopback serves it, and each peer is reached by one path only.
        for (to, peer) in node.others() {
            // Never freed, like the segment: the counts may be read at any time.
            let published: &ProducerCounts = Box::leak(Box::default());
            let place = self.words.published_by.get(peer.0 as usize);
            if place.is_none_or(|place| place.set(published).is_err()) {
                // Another segment reaches that peer.
                continue;
            }
            *self.senders[peer.0 as usize] = Tx {
                producer: Producer::new(segment.ring(to, me), segment.pair_line(to, me))
                    .with_counts(published),
                bell: Some(segment.bell(to)),
                local: to,
                distance: Distance::default(),
            };
        }
        self.receivers = (0..size)
            .map(|from| Rx::new(&segment, me, from, &node))
            .collect();
        self.pool = Some(Pool::new(segment.pool_side(me)));
        self.bell = Some(segment.bell(me));
        for nonce in &mut self.nonces {
            let mut secret = [0];
            wait::random_words(&mut secret);
            *nonce = [secret[0], proof(secret[0], node.job)];
        }
        let table = self.nonces.as_ptr().expose_provenance() as u64;
        segment
            .ident(me)
            .introduce(std::process::id(), table, &wait::allowed_cpus());
        self.arenas = Some(node.arenas());
        self.node = Some(node);
    }

    #[inline(always)]
    fn send(&mut self, to: Peer, head: Head, body: &[u8]) -> Result<(), Full> {
        if let Ok(bytes) = <[u8; 8]>::try_from(body) {
            return self.push(to, Head { len: 8, ..head }, &[u64::from_ne_bytes(bytes)]);
        }
        self.post_body(to, head, body)
    }

    /// The fast path: posts a send if a slot of the ring is known to be free. A body that does not fit into a slot
    /// needs a free buffer too. `None`: nothing was posted. `Some(false)`: the bell must be rung.
    #[inline(always)]
    pub(super) fn post_fast(&mut self, to: Peer, head: Head, body: &[u8]) -> Option<bool> {
        let tx = self.senders.get_mut(to.0 as usize)?;
        if !tx.producer.has_known_slot() {
            return None;
        }
        if body.len() <= SLOT_BODY_BYTES {
            return tx.push_inline(head, body).ok();
        }
        self.post_pooled(to, head, body).is_ok().then_some(true)
    }

    #[inline(never)]
    fn post_body(&mut self, to: Peer, head: Head, body: &[u8]) -> Result<(), Full> {
        if body.len() > SLOT_BODY_BYTES {
            return self.post_pooled(to, head, body);
        }
        if !self.senders[to.0 as usize].push_inline(head, body)? {
            self.ring_bell(to);
        }
        Ok(())
    }

    #[inline(never)]
    fn post_pooled(&mut self, to: Peer, head: Head, body: &[u8]) -> Result<(), Full> {
        assert!(
            body.len() <= POOL_BUFFER_BYTES,
            "a send of {} bytes",
            body.len()
        );
        let (Some(node), Some(pool)) = (&self.node, &mut self.pool) else {
            return Err(Full);
        };
        let tx = &mut self.senders[to.0 as usize];
        if !tx.producer.has_room() {
            return Err(Full);
        }
        let choose_fill = tx.distance.choose_fill(body.len());
        // The peer runs on another core if it is far away, and also if this process has a core for itself.
        let is_elsewhere = tx.distance.is_far() || self.attentive;
        let index = if is_elsewhere {
            pool.acquire_in_turn()
        } else {
            pool.acquire()
        };
        // If peers that do not poll hold all buffers of the pool, the buffer that is reserved for this peer may be
        // free.
        let index = index.or_else(|| tx.producer.acquire_own().then_some(OWN_BUFFER));
        let (from, to_local) = (node.local_rank, tx.local);
        let buffer = index.and_then(|index| lent_buffer(&node.segment, from, to_local, index));
        let (Some(index), Some(buffer)) = (index, buffer) else {
            return Err(Full);
        };
        match choose_fill {
            Fill::Plain => buffer.fill(body),
            Fill::PastCaches => buffer.fill_past_caches(body),
            Fill::Timed => tx.distance.measure(body.len(), || buffer.fill(body)),
        }
        let word = u64::from(index) | (body.len() as u64) << 32;
        self.push(to, Head { len: LENT, ..head }, &[word])
    }

    #[inline(always)]
    pub(super) fn push(&mut self, to: Peer, head: Head, words: &[u64]) -> Result<(), Full> {
        let watched = self.senders[to.0 as usize].producer.push(head, words)?;
        if !watched {
            self.ring_bell(to);
        }
        Ok(())
    }

    /// The fast path of words: posts a send of `BYTES` bytes, eight or four, if a slot of the ring is known to be free.
    /// `None`: nothing was posted. `Some(false)`: the bell must be rung.
    #[inline(always)]
    pub(super) fn post_word<const BYTES: u8>(
        &mut self,
        to: Peer,
        head: impl FnOnce() -> Head,
        word: impl FnOnce() -> u64,
    ) -> Option<bool> {
        const { assert!(BYTES == 8 || BYTES as u64 == SHORT_WORD_BYTES) };
        self.senders
            .get_mut(to.0 as usize)?
            .producer
            .try_push(BYTES != 8, head, word)
    }

    /// The counters, without those of the network.
    pub(super) fn counters(&self) -> FabricCounters {
        FabricCounters {
            shm: Arc::clone(&self.stats),
            net: None,
            words: self.words.clone(),
        }
    }

    #[cold]
    #[inline(never)]
    pub(super) fn ring_bell(&mut self, to: Peer) {
        let (Some(node), Some(bell)) = (&self.node, self.senders[to.0 as usize].bell) else {
            return;
        };
        self.stats.bells.add(1);
        if bell.ring(node.local_rank) == Wake::Sleeper {
            self.stats.wakes.add(1);
            wait::futex_wake(bell.sleep_word());
        }
    }

    /// Wakes a peer that sleeps, after a store to memory that it polls before it sleeps.
    #[inline(always)]
    pub(super) fn nudge(&mut self, to: Peer) {
        if let Some(bell) = self.bell_of(to)
            && bell.wake() == Wake::Sleeper
        {
            self.stats.wakes.add(1);
            wait::futex_wake(bell.sleep_word());
        }
    }

    /// Wakes those of several peers that sleep, after stores to memory that the peers poll before they sleep.
    #[cold]
    pub(super) fn wake_all(&mut self, bells: &[&'static Bell]) {
        for bell in bells {
            if bell.wake() == Wake::Sleeper {
                self.stats.wakes.add(1);
                wait::futex_wake(bell.sleep_word());
            }
        }
    }

    /// The bell of a peer of this node; none for this process itself.
    #[inline(always)]
    pub(super) fn bell_of(&self, peer: Peer) -> Option<&'static Bell> {
        self.senders[peer.0 as usize].bell
    }

    /// The local rank of a peer, which must be one of this node.
    #[inline(always)]
    fn local_of(&self, peer: Peer) -> u32 {
        self.senders[peer.0 as usize].local
    }

    /// The process behind a local rank.
    pub(super) fn peer_of(&self, local: u32) -> Peer {
        self.receivers[local as usize].peer
    }

    /// The next frame of the first active ring: the fast path of receiving.
    #[inline(always)]
    pub(super) fn first_frame(&mut self) -> Option<FirstFrame<'_>> {
        self.first(|consumer| consumer.peek())
    }

    /// As [`first_frame`](Self::first_frame), but only if the frame has this kind, this length, and no flags.
    #[inline(always)]
    pub(super) fn first_plain_frame(&mut self, kind: u8, len: u8) -> Option<FirstFrame<'_>> {
        self.first(|consumer| consumer.peek_plain(kind, len))
    }

    #[inline(always)]
    fn first(
        &mut self,
        peek: impl FnOnce(&Consumer<'static>) -> Option<Peeked<'static>>,
    ) -> Option<FirstFrame<'_>> {
        let active = &mut self.active;
        let from = active.first;
        let rx = self.receivers.get_mut(from as usize)?;
        let frame = peek(&rx.consumer)?;
        let (polls, node) = (&self.polls, &self.node);
        Some(FirstFrame {
            from,
            rx,
            frame,
            active,
            polls,
            node,
        })
    }

    #[inline(always)]
    pub(super) fn poll_all(&mut self, completions: &mut Completions) {
        self.poll_from(0, completions);
    }

    /// As [`poll_all`](Self::poll_all), but without the first active ring.
    pub(super) fn poll_beside_first(&mut self, completions: &mut Completions) {
        self.poll_from(1, completions);
    }

    #[inline(always)]
    fn poll_from(&mut self, first: usize, completions: &mut Completions) {
        self.polls += 1;
        self.active.polled();
        // Transfers are polled before the rings: a ring that is never empty must not delay completions of reads.
        if self.transfers.is_busy() || !self.finished.is_empty() {
            self.poll_transfers(completions);
        }
        for at in (first..self.active.ranks.len()).rev() {
            self.poll_receiver(at, completions);
        }
        if completions.is_full() {
            self.rotate_active();
        }
        for word in 0..self.pending_words {
            self.wake_receivers(word, completions);
        }
    }

    /// Makes the next poll begin with another ring, because the caller's array is full.
    #[cold]
    #[inline(never)]
    fn rotate_active(&mut self) {
        if !self.active.ranks.is_empty() {
            self.active.change(|ranks| ranks.rotate_right(1));
        }
    }

    #[inline(always)]
    fn poll_receiver(&mut self, at: usize, completions: &mut Completions) {
        let from = self.active.ranks[at];
        let rx = &mut self.receivers[from as usize];
        while !completions.is_full() {
            let Some(frame) = rx.consumer.pop() else {
                if !rx.is_polled {
                    // The ring is empty, and its next frame rings the bell: polls need not check the ring until then.
                    rx.active = false;
                    self.active.change(|ranks| {
                        ranks.swap_remove(at);
                    });
                }
                return;
            };
            rx.last_frame = self.polls;
            if frame.head.kind < INTERNAL {
                completions.push(Completion::Arrived(Arrived {
                    peer: rx.peer,
                    head: frame.head,
                    words: frame.body,
                    body: body_of(&frame),
                }));
                // The caller copies this body next, and meanwhile the next frame arrives: polling for it now would only
                // take the cache line away from the sender.
                if frame.head.len == LENT {
                    return;
                }
            } else {
                return self.arrive_internal(from, &frame, completions);
            }
        }
    }

    #[inline(always)]
    fn wake_receivers(&mut self, word: usize, completions: &mut Completions) {
        let Some(bell) = self.bell else { return };
        let mut bits = bell.take_pending(word);
        while bits != 0 {
            #[allow(
                clippy::cast_possible_truncation,
                reason = "at most 16 words of 64 bits"
            )]
            let from = word as u32 * 64 + bits.trailing_zeros();
            bits &= bits - 1;
            self.activate(from, completions);
        }
    }

    #[inline(never)]
    fn activate(&mut self, from: u32, completions: &mut Completions) {
        // A bit of a rank that does not exist was set by a faulty process.
        let Some(rx) = self.receivers.get_mut(from as usize) else {
            self.stats.refused.add(1);
            return;
        };
        if rx.active {
            return;
        }
        rx.active = true;
        self.active.change(|ranks| ranks.push(from));
        if self.attentive && self.polled == MOST_POLLED {
            self.end_silent_polling();
        }
        let rx = &mut self.receivers[from as usize];
        if self.attentive && self.polled < MOST_POLLED {
            rx.is_polled = true;
            rx.consumer.begin_polling();
            self.polled += 1;
        }
        self.poll_receiver(self.active.ranks.len() - 1, completions);
    }

    /// Requires the senders of rings that were silent for long to ring the bell again. One heavy fence serves all of
    /// these rings; they stay active, so each is polled once more before it depends on the bell.
    fn end_silent_polling(&mut self) {
        if !self.can_fence {
            return;
        }
        let long_ago = self.polls.saturating_sub(SILENT_POLLS);
        let mut any = false;
        for rx in self
            .receivers
            .iter_mut()
            .filter(|rx| rx.is_polled && rx.last_frame < long_ago)
        {
            rx.consumer.end_polling();
            rx.is_polled = false;
            self.polled -= 1;
            any = true;
        }
        if any {
            wait::heavy_fence();
        }
    }

    fn end_polling_all(&mut self) {
        if self.polled == 0 {
            return;
        }
        for rx in self.receivers.iter_mut().filter(|rx| rx.is_polled) {
            rx.consumer.end_polling();
            rx.is_polled = false;
        }
        self.polled = 0;
        wait::heavy_fence();
    }

    pub(super) fn set_sleepless(&mut self, sleepless: bool) {
        self.sleepless = sleepless;
    }

    pub(super) fn set_attentive(&mut self, attentive: bool) {
        self.attentive = attentive && (self.can_fence || self.sleepless);
        if !self.attentive {
            self.end_polling_all();
        }
    }

    /// Announces that this process is about to sleep. `false`: something has arrived or is pending, or the process
    /// never sleeps.
    fn announce_sleep(&mut self) -> bool {
        if self.sleepless {
            return false;
        }
        let Some(bell) = self.bell else { return true };
        self.end_polling_all();
        for from in &self.active.ranks {
            self.receivers[*from as usize].consumer.return_credit();
        }
        bell.doze();
        let inside = self
            .active
            .ranks
            .iter()
            .any(|from| self.receivers[*from as usize].consumer.is_ready());
        let rung = (0..self.pending_words).any(|word| bell.is_pending(word));
        if inside || rung || self.transfers.is_busy() || !self.finished.is_empty() {
            bell.rise();
            return false;
        }
        true
    }

    /// Whether this process is alone on its node.
    pub(super) fn is_alone(&self) -> bool {
        self.bell.is_none()
    }

    #[inline(never)]
    pub(super) fn copy_lent_by(
        &self,
        from: u32,
        index: u32,
        bytes: u32,
        target: &mut [u8],
    ) -> usize {
        let buffer = self
            .node
            .as_ref()
            .and_then(|node| lent_buffer(&node.segment, from, node.local_rank, index));
        // An index or length that is invalid was garbled in shared memory: nothing is copied.
        let Some(buffer) = buffer else { return 0 };
        let bytes = (bytes as usize).min(POOL_BUFFER_BYTES).min(target.len());
        // In a stream of frames, the next one arrives while this body is copied: its slot is fetched into the cache
        // meanwhile.
        self.receivers[from as usize].consumer.prefetch();
        buffer.drain(&mut target[..bytes]);
        bytes
    }

    #[inline(never)]
    pub(super) fn release_to(&mut self, from: u32, index: u32) {
        if let Some(node) = &self.node {
            give_back_lent(node, &self.receivers[from as usize].consumer, from, index);
        }
    }

    /// Allocates memory that all ranks of the node reach directly.
    pub(super) fn allocate(&mut self, bytes: usize) -> Option<NonNull<u8>> {
        self.arenas.as_mut()?.allocate(bytes)
    }

    pub(super) fn free(&mut self, place: NonNull<u8>) -> bool {
        self.arenas
            .as_mut()
            .is_some_and(|arenas| arenas.free(place))
    }

    /// Whether this process can read and write the memory of local rank `peer`. Tries once to read the secret that the
    /// peer has published for this process, and keeps the result; `Unknown` as long as the peer has published no
    /// process id.
    pub(super) fn reach(&mut self, peer: u32) -> PeerAccess {
        let rx = &mut self.receivers[peer as usize];
        if let (PeerAccess::Unknown, Some(node)) = (rx.reach, &self.node) {
            let ident = node.segment.ident(peer);
            let Some(pid) = ident.pid() else {
                return PeerAccess::Unknown;
            };
            let place = ident.nonces().wrapping_add(u64::from(node.local_rank) * 16);
            rx.reach = match cma::read_words(pid, place) {
                Some([secret, check]) if check == proof(secret, node.job) => {
                    PeerAccess::Yes { pid, secret }
                }
                _ => PeerAccess::No,
            };
        }
        self.receivers[peer as usize].reach
    }

    /// The seal by which `peer` verifies that words come from this process.
    pub(super) fn seal_for(&self, peer: u32, words: &[u64]) -> u64 {
        seal(self.nonces[peer as usize][0], words)
    }

    #[cold]
    #[inline(never)]
    fn arrive_internal(&mut self, from: u32, frame: &Frame, completions: &mut Completions) {
        match frame.head.kind {
            HELP => self.arrive_help(from, &frame.body),
            // Dropping a request does no harm, so every revocation is accepted.
            REVOKE => self.transfers.drop_help(from, frame.body[0]),
            REVOKED => self.arrive_revoked(from, &frame.body),
            #[allow(clippy::cast_possible_truncation, reason = "an immediate has 32 bits")]
            WRITTEN => completions.push(Completion::Written {
                peer: self.receivers[from as usize].peer,
                immediate: frame.head.word as u32,
            }),
            _ => self.stats.refused.add(1),
        }
    }

    fn arrive_revoked(&mut self, from: u32, words: &[u64; 6]) {
        let [place, check, ..] = *words;
        match self.reach(from) {
            PeerAccess::Yes { secret, .. }
                if check == seal(secret, &[place, u64::from(REVOKED)]) =>
            {
                self.transfers.help_was_dropped(from, place);
            }
            _ => self.stats.refused.add(1),
        }
    }

    fn arrive_help(&mut self, from: u32, words: &[u64; 6]) {
        let [source, target, bytes, place, check, _] = *words;
        let PeerAccess::Yes { pid, secret } = self.reach(from) else {
            return;
        };
        if check != seal(secret, &[source, target, bytes, place]) {
            self.stats.refused.add(1);
            return;
        }
        self.transfers.add_help(Help {
            from,
            pid,
            source,
            target,
            bytes,
            place,
        });
    }

    pub(super) fn neighbours_cpus(&self) -> impl Iterator<Item = [u64; 16]> {
        self.node.iter().flat_map(|node| {
            (0..node.segment.local_size())
                .filter(|rank| *rank != node.local_rank)
                .map(|rank| node.segment.ident(rank))
                .filter(|ident| ident.pid().is_some())
                .map(ring::Ident::cpus)
        })
    }

    #[inline(always)]
    pub(super) fn is_attentive(&self) -> bool {
        self.attentive
    }

    /// Whether the limit of frames taken one by one is reached: the next frame needs a poll.
    #[inline(always)]
    pub(super) fn has_run_out(&self) -> bool {
        self.active.has_run_out()
    }

    /// Whether only a poll can return more frames.
    #[inline(always)]
    pub(super) fn must_poll(&self) -> bool {
        self.active.first == Active::NONE
    }

    pub(super) fn stats(&self) -> FabricStats {
        FabricStats {
            sends: self.sent(),
            ..self.stats.seen()
        }
    }

    /// Frames posted.
    pub(super) fn sent(&self) -> u64 {
        let senders = self.senders.iter();
        senders.map(|tx| u64::from(tx.producer.sent())).sum()
    }
}

impl Tx {
    /// Pushes a frame with a body of up to 48 bytes. `false`: the bell must be rung.
    #[inline(always)]
    fn push_inline(&mut self, head: Head, body: &[u8]) -> Result<bool, Full> {
        #[allow(clippy::cast_possible_truncation, reason = "at most a slot's body")]
        let len = body.len() as u8;
        let slot = self.producer.begin()?;
        words::pack(body, |index, word| slot.put(index, word));
        Ok(slot.publish(Head { len, ..head }))
    }

    /// The state for a peer that no ring reaches: it never has room.
    fn nowhere() -> Self {
        static NOWHERE: OnceLock<(Ring, PairLine)> = OnceLock::new();
        let (ring, line) = NOWHERE.get_or_init(|| (Ring::new(), PairLine::closed()));
        Self {
            producer: Producer::blocked(ring, line),
            bell: None,
            local: 0,
            distance: Distance::default(),
        }
    }
}

impl Rx {
    fn new(segment: &Segment, me: u32, from: u32, node: &Node) -> Self {
        Self {
            consumer: Consumer::new(segment.ring(me, from), segment.pair_line(me, from)),
            peer: node.peers[from as usize],
            active: false,
            is_polled: false,
            last_frame: 0,
            reach: PeerAccess::Unknown,
        }
    }
}

#[inline(always)]
fn body_of(frame: &Frame) -> RecvBuffer {
    if frame.head.len == LENT {
        return lent(frame.body[0]);
    }
    #[allow(
        clippy::cast_possible_truncation,
        reason = "a slot's body has 48 bytes"
    )]
    let most = SLOT_BODY_BYTES as u8;
    RecvBuffer::Inline {
        bytes: frame.head.len.min(most),
    }
}

/// The buffer that the first word of a frame's body names.
#[inline(always)]
#[allow(
    clippy::cast_possible_truncation,
    reason = "the two halves are cut out of the word"
)]
fn lent(word: u64) -> RecvBuffer {
    let bytes = (word >> 32).min(POOL_BUFFER_BYTES as u64) as u32;
    RecvBuffer::Lent {
        index: word as u32,
        bytes,
    }
}

/// The buffer of `sender` that a frame to `receiver` names; `None` for an invalid index.
fn lent_buffer(segment: &Segment, sender: u32, receiver: u32, index: u32) -> Option<PoolBuffer> {
    if index == OWN_BUFFER {
        return Some(segment.own_buffer(sender, receiver));
    }
    segment.pool_buffer(sender, index)
}

/// Returns the buffer whose index was in a frame from `sender`.
fn give_back_lent(node: &Node, frames: &Consumer<'static>, sender: u32, index: u32) {
    if index == OWN_BUFFER {
        frames.release_own();
    } else {
        node.segment.pool_side(sender).release(index);
    }
}

/// A keyed checksum of `words`, which cannot be made without the secret.
pub(super) fn seal(secret: u64, words: &[u64]) -> u64 {
    let mut hasher = DefaultHasher::new();
    hasher.write_u64(secret);
    for word in words {
        hasher.write_u64(*word);
    }
    hasher.finish()
}

fn proof(secret: u64, job: u64) -> u64 {
    seal(secret, &[job, 0x726d_7069])
}

/// Kinds from here on are the provider's own.
const INTERNAL: u8 = 0x80;
/// A reader's request that the owner of the data copy a part.
pub(super) const HELP: u8 = 0x80;
/// A write with immediate has ended.
const WRITTEN: u8 = 0x81;
/// The reader's revocation of a [`HELP`] request.
pub(super) const REVOKE: u8 = 0x82;
/// The owner's report that it has dropped a revoked request.
pub(super) const REVOKED: u8 = 0x83;
/// Bytes of a short word.
const SHORT_WORD_BYTES: u64 = 4;
/// `len` of a frame whose body lies in the pool; the first word of the frame contains the length.
const LENT: u8 = 0xff;
/// Maximum number of rings that are polled so often that their senders need not ring the bell.
const MOST_POLLED: usize = 8;
/// A ring without a frame for this many polls gives up its place among the [`MOST_POLLED`] when another ring needs one.
const SILENT_POLLS: u64 = 1 << 14;
