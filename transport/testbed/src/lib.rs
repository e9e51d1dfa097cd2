// SPDX-License-Identifier: MIT OR Apache-2.0
//! Support for tests of the transport, and of protocols above it: a rank with a mailbox, worlds in which ranks run, and
//! the list of worlds that a suite of behaviours must pass ([`behaviours`]). A behaviour is a test case, written once
//! as an `async` function of one rank. A world is an environment for ranks. It decides what happens when a rank yields:
//! the next rank of the same thread runs, another thread or process runs, or an event of a simulated network occurs.
//!
//! **Knows** the transport, and how processes, threads and hosts are started.
//! **Never** is part of an installation, since its functions panic. A protocol above the transport is added to a rank
//! as a [`GuestProtocol`].
#![allow(
    missing_docs,
    unsafe_code,
    clippy::unwrap_used,
    clippy::cast_possible_truncation,
    reason = "for tests, which may panic; their sizes are small"
)]

pub mod hosts;
pub mod meeting;
pub mod memory;
mod suite;
pub mod world;

use std::any::Any;
use std::collections::VecDeque;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use memory::Guarded;
use transport::{
    Arrived, Atomic, Completion, Completions, Fabric, Head, Lease, Peer, RemoteKey, WordPoll,
    WorkId, WorkOutcome,
};

/// One rank of a world, with a mailbox of the events that were received and not taken yet.
pub struct TestRank {
    pub me: u32,
    pub size: u32,
    pub fabric: Fabric,
    pub reach: OneSidedReach,
    /// The source of all random choices of the behaviour. A rank has the same numbers in every world.
    pub random: Random,
    completions: Completions,
    inbox: Vec<VecDeque<PeerEvent>>,
    pub ended: Vec<(WorkId, WorkOutcome, Lease)>,
    /// Address records of all ranks, by rank, for networks that need them.
    pub records: Vec<Vec<u8>>,
    works: u64,
    /// Number of frames of one word that were received by the fast path for network frames.
    pub far_frames: u64,
    /// Whether the rank sleeps when idle.
    pub sleeps: bool,
    /// A protocol that shares the fabric with the behaviour.
    pub guest: Option<Box<dyn GuestProtocol>>,
}

/// Whether reads and writes of peers' memory work in this world.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OneSidedReach {
    Must,
    /// It depends on the system.
    May,
    Never,
}

/// An event caused by a peer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PeerEvent {
    Message { head: Head, body: Vec<u8> },
    Written(u32),
}

/// A protocol above the transport that shares the fabric of a rank with its behaviour.
pub trait GuestProtocol: Any + Send {
    /// Whether frames of this kind belong to the protocol.
    fn owns_kind(&self, kind: u8) -> bool;

    /// Whether the completion belongs to the protocol. If so, the rank calls [`take`](Self::take) with it.
    fn owns(&self, completion: &Completion) -> bool;

    /// Handles a completion that belongs to the protocol; if it is a frame, releases its buffer.
    fn take(&mut self, fabric: &mut Fabric, completion: Completion);

    /// Posts operations that wait for room. `true`: at least one was posted.
    fn turn(&mut self, fabric: &mut Fabric) -> bool;

    /// Whether the rank may sleep until something arrives.
    fn may_sleep(&self) -> bool;

    /// Whether there is work for which the rank would not be woken. This is the last check before the rank sleeps.
    fn has_arrivals(&mut self) -> bool;

    /// The protocol as [`Any`], for down-casts.
    fn as_any(&mut self) -> &mut dyn Any;
}

impl TestRank {
    pub fn new(fabric: Fabric, me: u32, size: u32, reach: OneSidedReach) -> Self {
        Self {
            me,
            size,
            fabric,
            reach,
            random: Random(u64::from(me) + 1),
            completions: Completions::new(),
            inbox: vec![VecDeque::new(); size as usize],
            ended: Vec::new(),
            records: Vec::new(),
            works: 0,
            far_frames: 0,
            sleeps: false,
            guest: None,
        }
    }

    /// Sends a frame, and retries while the transport is full. At random, half of the frames are posted as
    /// announcements or as deferrable frames, which may be sent later.
    pub async fn send(&mut self, to: u32, head: Head, body: &[u8]) {
        let way = self.random.below(4);
        loop {
            let posted = match way {
                0 => self.fabric.post_announcement(Peer(to), head, body, None),
                1 => self.fabric.post_deferrable(Peer(to), head, body),
                _ => self.fabric.post_send(Peer(to), head, body),
            };
            if posted.is_ok() {
                return;
            }
            self.turn().await;
        }
    }

    /// Waits for the next frame from `from`, and takes it.
    pub async fn receive(&mut self, from: u32) -> (Head, Vec<u8>) {
        match self.incoming(from).await {
            PeerEvent::Message { head, body } => (head, body),
            other => panic!("rank {} expected a frame of {from}, got {other:?}", self.me),
        }
    }

    /// Waits for the next event of `from`, and takes it.
    pub async fn incoming(&mut self, from: u32) -> PeerEvent {
        loop {
            if let Some(incoming) = self.inbox[from as usize].pop_front() {
                return incoming;
            }
            self.turn().await;
        }
    }

    /// Number of events of `from` in the mailbox.
    pub fn waiting(&self, from: u32) -> usize {
        self.inbox[from as usize].len()
    }

    /// Whether the next event of `from` in the mailbox is the completion of a write.
    pub fn is_written_next(&self, from: u32) -> bool {
        matches!(
            self.inbox[from as usize].front(),
            Some(PeerEvent::Written(_))
        )
    }

    /// Reads a peer's memory into local memory that is lent to the fabric (`lease`); returns the outcome.
    pub async fn read(
        &mut self,
        from: u32,
        lease: Lease,
        key: RemoteKey,
        offset: u64,
    ) -> WorkOutcome {
        let work = self.name_work();
        self.fabric.post_read(Peer(from), lease, key, offset, work);
        self.end_of(work).await
    }

    /// Writes to a peer's memory from local memory that is lent to the fabric (`lease`); returns the outcome.
    pub async fn write(
        &mut self,
        to: u32,
        mut lease: Lease,
        key: RemoteKey,
        offset: u64,
        immediate: Option<u32>,
    ) -> WorkOutcome {
        let work = self.name_work();
        while let Err(back) = self
            .fabric
            .post_write(Peer(to), lease, key, offset, work, immediate)
        {
            lease = back;
            self.turn().await;
        }
        self.end_of(work).await
    }

    /// Performs an atomic operation; returns the outcome and the original value.
    pub async fn change(
        &mut self,
        of: u32,
        atomic: Atomic,
        key: RemoteKey,
        offset: u64,
    ) -> (WorkOutcome, u64) {
        let work = self.name_work();
        let mut old = Guarded::new(8);
        let lease = old.lease(0, 8);
        self.fabric
            .post_atomic(Peer(of), atomic, lease, key, offset, work);
        let outcome = self.end_of(work).await;
        (outcome, u64::from_ne_bytes(old.bytes().try_into().unwrap()))
    }

    /// Whether an operation on valid memory was performed. An outcome that is impossible in this world fails the test.
    pub fn was_done(&self, outcome: WorkOutcome) -> bool {
        match (self.reach, outcome) {
            (OneSidedReach::Must | OneSidedReach::May, WorkOutcome::Done) => true,
            (OneSidedReach::Never | OneSidedReach::May, WorkOutcome::Unreachable) => false,
            (reach, outcome) => panic!("rank {}: {outcome:?} where it {reach:?}", self.me),
        }
    }

    /// Asserts that an operation on invalid memory was refused.
    pub fn assert_refused(&self, outcome: WorkOutcome) {
        match (self.reach, outcome) {
            (OneSidedReach::Must | OneSidedReach::May, WorkOutcome::BadKey) => {}
            (OneSidedReach::Never | OneSidedReach::May, WorkOutcome::Unreachable) => {}
            (reach, outcome) => panic!("rank {}: {outcome:?} where it {reach:?}", self.me),
        }
    }

    pub fn name_work(&mut self) -> WorkId {
        self.works += 1;
        WorkId(self.works)
    }

    pub async fn end_of(&mut self, work: WorkId) -> WorkOutcome {
        loop {
            let found = self.ended.iter().position(|(ended, ..)| *ended == work);
            if let Some(at) = found {
                return self.ended.swap_remove(at).1;
            }
            self.turn().await;
        }
    }

    /// Sends a remote key for memory of this rank to a peer.
    pub async fn send_key(&mut self, to: u32, key: RemoteKey) {
        self.send(to, head(KEY), &body_of(key)).await;
    }

    pub async fn receive_key(&mut self, from: u32) -> RemoteKey {
        let (head, body) = self.receive(from).await;
        assert_eq!((head.kind, body.len()), (KEY, 24));
        key_of(&body)
    }

    /// Returns after every rank has called it.
    pub async fn barrier(&mut self) {
        if self.me != 0 {
            self.send(0, head(BARRIER), &[]).await;
            assert_eq!(self.receive(0).await.0.kind, BARRIER);
            return;
        }
        for from in 1..self.size {
            assert_eq!(self.receive(from).await.0.kind, BARRIER);
        }
        for to in 1..self.size {
            self.send(to, head(BARRIER), &[]).await;
        }
    }

    /// Provides the addresses of peers that the fabric requests, instead of the launcher.
    fn provide_addresses(&mut self) {
        while let Some(peer) = self.fabric.next_unresolved() {
            let record = &self.records[peer.0 as usize];
            self.fabric.set_peer_address(peer, record);
        }
    }

    /// Polls the transport once, then yields. In between, an idle rank with `sleeps` sleeps until something arrives.
    pub async fn turn(&mut self) {
        let idle = self.poll() == 0 && self.guest.as_ref().is_none_or(|guest| guest.may_sleep());
        if idle && self.sleeps && self.fabric.prepare_sleep() {
            match self
                .guest
                .as_mut()
                .is_some_and(|guest| guest.has_arrivals())
            {
                true => self.fabric.stay_awake(),
                false => self.sleep(),
            }
        }
        yield_now().await;
    }

    /// Sleeps until something arrives; a sleep of [`LONG`] fails the test, because it shows that a wake-up was missed.
    /// A fake network has its own time and detects missed wake-ups itself.
    fn sleep(&mut self) {
        let asleep = Instant::now();
        self.fabric.sleep(LONG);
        assert!(
            asleep.elapsed() < LONG,
            "rank {} has slept for {} s and nothing woke it: either a sign is lost, or the behaviour waits for nothing, \
             which `pass` is for",
            self.me,
            LONG.as_secs()
        );
    }

    /// Polls the transport once, then yields; never sleeps.
    pub async fn pass(&mut self) {
        self.poll();
        yield_now().await;
    }

    /// Polls the transport once; at random, takes a frame over a fast path instead. Returns the number of events.
    pub fn poll(&mut self) -> usize {
        if self.random.below(2) == 0 && (self.take_first() || self.take_word()) {
            return 1;
        }
        let arrived = self.poll_and_hold();
        for arrived in &arrived.1 {
            self.file(arrived);
        }
        arrived.0 + usize::from(self.carry_on())
    }

    /// Makes progress for the guest. `true`: it has posted operations.
    fn carry_on(&mut self) -> bool {
        let guest = self.guest.as_mut();
        guest.is_some_and(|guest| guest.turn(&mut self.fabric))
    }

    /// Passes a completion to the guest, if the guest owns it; otherwise returns it.
    fn give_to_guest(&mut self, completion: Completion) -> Option<Completion> {
        match &mut self.guest {
            Some(guest) if guest.owns(&completion) => {
                guest.take(&mut self.fabric, completion);
                None
            }
            _ => Some(completion),
        }
    }

    /// The fast path for node-local frames: takes the next frame if it has at most one word and belongs to the
    /// behaviour. `true`: a frame was taken.
    fn take_first(&mut self) -> bool {
        let Some(first) = self.fabric.first_frame() else {
            return false;
        };
        let (peer, made, word) = (first.peer(), first.head(), first.word());
        let guest = self.guest.as_ref();
        let theirs = guest.is_some_and(|guest| guest.owns_kind(made.kind));
        if made.kind >= 128 || made.len > 8 || theirs {
            return false;
        }
        first.take();
        let body = word.to_ne_bytes()[..usize::from(made.len)].to_vec();
        let head = Head { len: 0, ..made };
        self.inbox[peer.0 as usize].push_back(PeerEvent::Message { head, body });
        true
    }

    /// The fast path for network frames: takes the next frame, unless a poll is needed first. `true`: a frame was
    /// taken.
    fn take_word(&mut self) -> bool {
        let arrived = match self.fabric.poll_word() {
            WordPoll::Word(far) => {
                let arrived = far.arrived();
                assert_eq!((arrived.bytes(), arrived.is_lent()), (8, false));
                self.far_frames += 1;
                arrived
            }
            WordPoll::Frame(arrived) => arrived,
            WordPoll::Nothing | WordPoll::Poll => return false,
        };
        if let Some(Completion::Arrived(arrived)) = self.give_to_guest(Completion::Arrived(arrived))
        {
            self.file(&arrived);
        }
        true
    }

    /// Polls the transport once. Returns the number of completions, and the frames with lent bodies and some frames
    /// behind them, which the caller must file or release.
    pub fn poll_and_hold(&mut self) -> (usize, Vec<Arrived>) {
        let mut held = Vec::new();
        self.provide_addresses();
        self.fabric.poll(&mut self.completions);
        let count = self.completions.len();
        for at in 0..count {
            let completion = self.completions.take(at).unwrap();
            let Some(completion) = self.give_to_guest(completion) else {
                continue;
            };
            match completion {
                Completion::Arrived(arrived) if arrived.is_lent() => held.push(arrived),
                Completion::Arrived(arrived) if held.is_empty() => self.file(&arrived),
                // Frames behind a held frame of the same poll are held too, so that the order is kept.
                Completion::Arrived(arrived) => held.push(arrived),
                Completion::Written { peer, immediate } => {
                    for arrived in std::mem::take(&mut held) {
                        self.file(&arrived);
                    }
                    self.inbox[peer.0 as usize].push_back(PeerEvent::Written(immediate));
                }
                Completion::Lost { peer } => {
                    panic!("{peer:?} was lost: {:?}", self.fabric.why_lost(peer));
                }
                Completion::Worked {
                    work,
                    outcome,
                    lease,
                } => {
                    let twice = self.ended.iter().any(|(ended, ..)| *ended == work);
                    assert!(!twice, "work {work:?} ended twice");
                    self.ended.push((work, outcome, lease));
                }
            }
        }
        (count, held)
    }

    /// Polls once and returns all frames that have arrived; the caller files or releases them. Called only while no
    /// other completion can arrive.
    pub fn poll_raw(&mut self) -> Vec<Arrived> {
        self.provide_addresses();
        self.fabric.poll(&mut self.completions);
        let count = self.completions.len();
        let taken = (0..count).filter_map(|at| self.completions.take(at));
        taken.map(|c| *c.arrived().unwrap()).collect()
    }

    /// Copies a frame into the mailbox and releases its buffer.
    pub fn file(&mut self, arrived: &Arrived) {
        let mut body = vec![0xEE; arrived.bytes() as usize];
        let copied = self.fabric.copy_body(arrived, &mut body);
        assert_eq!(copied, body.len(), "a body is copied whole");
        self.fabric.release(arrived);
        let head = Head {
            len: 0,
            ..arrived.head
        };
        self.inbox[arrived.peer.0 as usize].push_back(PeerEvent::Message { head, body });
    }

    /// Discards the events of `from` in the mailbox.
    pub fn forget(&mut self, from: u32) {
        self.inbox[from as usize].clear();
    }

    /// Asserts that no event is left in the mailbox.
    pub fn assert_empty(&self) {
        for (from, inbox) in self.inbox.iter().enumerate() {
            assert!(inbox.is_empty(), "left from {from}: {inbox:?}");
        }
        assert!(self.ended.is_empty(), "left: {:?}", self.ended);
    }
}

pub fn head(kind: u8) -> Head {
    Head {
        kind,
        len: 0,
        flags: 0,
        word: 0,
    }
}

/// Test bytes that differ for each sender, message number and position in the message.
pub fn pattern(from: u32, number: u64, bytes: usize) -> Vec<u8> {
    let mut random = Random(u64::from(from) << 40 ^ number << 8 ^ 0xA5);
    let mut body = vec![0; bytes];
    for chunk in body.chunks_mut(8) {
        let word = random.word().to_ne_bytes();
        chunk.copy_from_slice(&word[..chunk.len()]);
    }
    body
}

/// Yields to the other ranks of this world.
pub async fn yield_now() {
    struct Once(bool);
    impl Future for Once {
        type Output = ();
        fn poll(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<()> {
            if std::mem::replace(&mut self.0, true) {
                return Poll::Ready(());
            }
            Poll::Pending
        }
    }
    Once(false).await;
}

/// A small random number generator (SplitMix64). The same seed gives the same numbers.
#[derive(Clone, Debug)]
pub struct Random(pub u64);

impl Random {
    pub fn word(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = self.0;
        word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        word ^ (word >> 31)
    }

    pub fn below(&mut self, limit: u64) -> u64 {
        self.word() % limit
    }
}

/// The body of a frame that carries a key.
pub fn body_of(key: RemoteKey) -> Vec<u8> {
    key.to_words().map(u64::to_ne_bytes).concat()
}

/// The key in the body of a frame.
pub fn key_of(body: &[u8]) -> RemoteKey {
    let words = body.as_chunks::<8>().0;
    RemoteKey::from_words([0, 1, 2].map(|at| u64::from_ne_bytes(words[at])))
}

/// A time that is longer than any operation takes.
const LONG: Duration = Duration::from_secs(60);

/// Kinds of frames that the testbed uses; tests use kinds below 100.
pub const KEY: u8 = 100;
pub const BARRIER: u8 = 101;
