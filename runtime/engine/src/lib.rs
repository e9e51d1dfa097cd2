// SPDX-License-Identifier: MIT OR Apache-2.0
//! Point-to-point MPI as a machine that is told what happened and answers what to do: matching, eager and rendezvous
//! protocols, flow control, cancel and probe (MPI 5.0 chapter 3), without any input or output of its own.
//!
//! **Knows** context ids, peers by number, tags, byte counts, the wire format, request slots.
//! **Never** touches payload, memory addresses (it only stores them), clocks, threads, communicators or datatypes; and
//! never sees the crate `transport`: the runtime's pump stands between them.
//!
//! # Inputs and outputs
//! The owner calls [`Engine::start_send`], [`Engine::start_receive`], [`Engine::arrive`] and a few more, and carries
//! out the [`Output`] that each returns. Frames that must go to a peer wait in that peer's outbox: the owner takes
//! them with [`Engine::next_frame`], posts them, and says [`Engine::posted`]; when the transport is full it just
//! stops and comes back later.
//!
//! ```
//! use engine::{ArrivedFrame, Config, ContextId, Engine, Output, Peer, Receive, wire};
//! let mut engine = Engine::new(Config::default(), 2);
//! let receive = Receive { context: ContextId(4), peer: Some(Peer(1)), tag: Some(7), bytes: 16, buffer: 0 };
//! let (request, _) = engine.start_receive(receive, false).unwrap();
//! let head = wire::eager(ContextId(4), 7);
//! let output = engine.arrive(ArrivedFrame { peer: Peer(1), head, bytes: 8, words: [0; 6] });
//! assert_eq!(output, Some(Output::Deliver { request, offset: 0, bytes: 8 }));
//! assert!(engine.is_complete(request));
//! ```
//!
//! # What it promises (MPI 5.0 section 3.5)
//! - **E1 order**: two messages from one sender in one context match in the order in which they were sent, if a
//!   receive can take both; frames from one peer must be handed to `arrive` in the order in which they were posted.
//! - **E2 progress**: a message that is waited for is matched whatever else arrives. Credit is never withheld.
//! - **E3 bounded memory**: past the budget for unexpected data, peers are asked to announce every message; what was
//!   under way is still kept. Envelopes are then bounded by the senders' own open requests.
//! - **E4 hostile peers**: a frame that makes no sense changes nothing and is counted ([`Counters::refused`]).
//! - **E5 lost peers**: nothing waits for a peer that does not answer any more ([`Engine::lose`]).
//!
//! # Threads
//! One thread at a time; the owner holds the lock.
#![forbid(unsafe_code)]

mod beside;
mod cancel;
mod credit;
mod early;
mod journal;
mod lost;
mod matching;
mod receive;
mod rendezvous;
mod request;
mod send;
mod synchronous;
pub mod wire;

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

pub use journal::{EventRecord, EventRecordList, WORDS};
pub use queue_layout::{EventType, RequestFields, RequestKind, RequestState};
pub use request::{CollectOutcome, Exhausted, ReceivedMessage, RequestArena, RequestId};
pub use wire::FrameHead;

use credit::Outbox;
use matching::Matching;
use queue_layout::{EngineCounters, Queued};

/// A process of the job: its rank in `MPI_COMM_WORLD`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(transparent)]
pub struct Peer(pub u32);

/// The integer that keeps the messages of communicators apart (MPI 5.0 section 3.2.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ContextId(pub u32);

/// What the owner sets.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// Messages up to this size travel at once; larger ones are announced. In bytes, at most what one frame of the
    /// transport can carry.
    pub eager_limit_bytes: u64,
    /// Larger messages up to this size, which the receiver keeps like eager ones, travel at once in several frames where
    /// their [`Send::early`] says so. In bytes.
    pub early_limit_bytes: u64,
    /// Unexpected data above this make the engine ask for announcements only. In bytes.
    pub unexpected_budget_bytes: u64,
    /// Largest body of one frame when a large message is streamed. In bytes.
    pub stream_chunk_bytes: u64,
    /// More unexpected messages make the engine ask for announcements only, whatever their bytes.
    pub unexpected_messages: u64,
    /// Down to this part of both limits, in percent, it takes that back.
    pub release_percent: u64,
    /// Records of events that wait for the owner at most.
    pub most_records: usize,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            eager_limit_bytes: 8 * 1024,
            early_limit_bytes: 64 * 1024,
            unexpected_budget_bytes: 64 << 20,
            stream_chunk_bytes: 8 * 1024,
            unexpected_messages: MOST_UNEXPECTED,
            release_percent: 50,
            most_records: 1024,
        }
    }
}

/// Unexpected messages from which on senders are asked to announce by default, and at most: half of all slots.
pub const MOST_UNEXPECTED: u64 = 1 << 18;

/// A send to start.
#[derive(Clone, Copy, Debug)]
pub struct Send {
    /// Where to.
    pub peer: Peer,
    /// In which context.
    pub context: ContextId,
    /// With which tag, 0 or more.
    pub tag: i32,
    /// Size of the message in bytes.
    pub bytes: u64,
    /// Address of the data, only stored.
    pub buffer: u64,
    /// Complete only after the receive was matched (`MPI_Ssend`).
    pub synchronous: bool,
    /// Send the data at once although they need several frames, up to [`Config::early_limit_bytes`].
    pub early: bool,
    /// How the peer can read the buffer, as the transport's remote key; opaque here.
    pub key: [u64; 3],
}

/// A receive to start.
#[derive(Clone, Copy, Debug)]
pub struct Receive {
    /// In which context.
    pub context: ContextId,
    /// From whom; `None` is `MPI_ANY_SOURCE`.
    pub peer: Option<Peer>,
    /// With which tag; `None` is `MPI_ANY_TAG`.
    pub tag: Option<i32>,
    /// Room in the buffer in bytes.
    pub bytes: u64,
    /// Address of the buffer, only stored.
    pub buffer: u64,
}

/// A frame as it came from the transport, with the first 48 bytes of its body.
#[derive(Clone, Copy, Debug)]
pub struct ArrivedFrame {
    /// Who sent it: known from the queue pair, never from the frame.
    pub peer: Peer,
    /// Its head.
    pub head: FrameHead,
    /// Bytes of its body.
    pub bytes: u64,
    /// The body of a control frame; undefined beyond `bytes`.
    pub words: [u64; 6],
}

/// What the owner must do now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Output {
    /// Copy the first `bytes` bytes of the frame that just arrived to byte `offset` of the request's buffer.
    Deliver {
        /// The receive.
        request: RequestId,
        /// Where in the message the bytes belong.
        offset: u64,
        /// How many; may be fewer than arrived.
        bytes: u64,
    },
    /// Keep the body of the frame that just arrived and hand it over with [`Engine::keep`].
    Keep {
        /// The unexpected message.
        message: RequestId,
    },
    /// Copy the body of the frame that just arrived to byte `offset` of the body of a kept message
    /// ([`Engine::kept_body_mut`]), then ask [`Engine::kept_more`] what is next.
    KeepMore {
        /// The unexpected message.
        message: RequestId,
        /// Where in the message the bytes belong.
        offset: u64,
    },
    /// Copy the first `bytes` bytes of a kept message to the request's buffer, then call [`Engine::drop_message`].
    DeliverKept {
        /// The receive.
        request: RequestId,
        /// The message that was kept.
        message: RequestId,
        /// How many bytes; may be fewer than the message has.
        bytes: u64,
    },
    /// Read `bytes` bytes of the peer's memory into the request's buffer; then call [`Engine::pulled`], or
    /// [`Engine::cannot_pull`] if the transport has no way to read there.
    Pull {
        /// The receive.
        request: RequestId,
        /// Whose memory.
        peer: Peer,
        /// The remote key that the peer sent.
        key: [u64; 3],
        /// How many bytes.
        bytes: u64,
    },
}

/// A frame that waits for the transport.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OutFrame {
    /// Its head.
    pub head: FrameHead,
    /// Its body.
    pub body: FrameBody,
}

/// The body of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrameBody {
    /// The first `8 * count` bytes of these words.
    Words {
        /// The words.
        words: [u64; 6],
        /// How many of them.
        count: u8,
    },
    /// Bytes of the application's buffer.
    Payload {
        /// The send.
        request: RequestId,
        /// First byte.
        offset: u64,
        /// Number of bytes.
        bytes: u64,
    },
}

/// A message that a probe found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProbedMessage {
    /// Its slot: what a matched probe keeps.
    pub message: RequestId,
    /// Who sent it.
    pub peer: Peer,
    /// Its tag.
    pub tag: i32,
    /// Its size in bytes.
    pub bytes: u64,
}

/// Why a request failed, as stored in its slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum RequestFailure {
    /// The message is longer than the receive buffer (`MPI_ERR_TRUNCATE`).
    Truncated = 1,
    /// The data could not be moved.
    Transfer = 2,
    /// The other side does not answer any more. Of a receive, `matched_peer` says who that is.
    Lost = 3,
}

/// What was counted; for tests and performance variables.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counters {
    /// Frames that made no sense.
    pub refused: u64,
    /// Unexpected messages so far.
    pub unexpected: u64,
    /// Bytes of unexpected data kept at the moment, with what each message costs beside its body.
    pub kept_bytes: u64,
    /// The most bytes kept at one time.
    pub kept_bytes_peak: u64,
    /// Receives posted and not matched.
    pub posted_length: u64,
    /// Unexpected messages not matched.
    pub unexpected_length: u64,
    /// Entries looked at while matching.
    pub match_attempts: u64,
}

/// The engine of one process.
///
/// Its methods are more than sixty since each event of the protocol has one (a call, a frame, an end of a transfer), in a file for each
/// part of the protocol, and all of them read and change the same two things: the slots of requests and the queues of peers.
#[derive(Debug)]
pub struct Engine {
    arena: RequestArena,
    matching: Matching,
    outboxes: Vec<Outbox>,
    /// Outboxes that are not clear.
    blocked: u32,
    /// Peers whose outbox is not empty, each once.
    busy: VecDeque<Peer>,
    bodies: Vec<Option<Box<[u8]>>>,
    /// The message of each peer of which frames are still to come.
    incoming: HashMap<Peer, early::PartialMessage>,
    throttling: Vec<Peer>,
    /// Remote keys of sends that have ended.
    returned: Vec<(Peer, [u64; 3])>,
    marks: synchronous::Marks,
    sequence: u64,
    config: Config,
    tally: Arc<EngineCounters>,
    journal: journal::Journal,
}

impl Engine {
    /// The engine of a process that has `peers` peers, itself among them. Others may [come](Self::add_peers).
    #[must_use]
    pub fn new(config: Config, peers: u32) -> Self {
        Self::counting(config, peers, Arc::default())
    }

    /// The same, which counts into a tally that others read.
    #[must_use]
    pub fn counting(config: Config, peers: u32, tally: Arc<EngineCounters>) -> Self {
        Self {
            arena: RequestArena::new(),
            matching: Matching::new(Arc::clone(&tally)),
            outboxes: (0..peers).map(|_| Outbox::default()).collect(),
            blocked: 0,
            busy: VecDeque::new(),
            bodies: Vec::new(),
            incoming: HashMap::new(),
            throttling: Vec::new(),
            returned: Vec::new(),
            marks: synchronous::Marks::default(),
            sequence: 0,
            config,
            tally,
            journal: journal::Journal::with_room(config.most_records),
        }
    }

    /// Further peers come, with the next numbers: there are `peers` now.
    pub fn add_peers(&mut self, peers: u32) {
        let peers = (peers as usize).max(self.outboxes.len());
        self.outboxes.resize_with(peers, Outbox::default);
    }

    /// Takes one arrived frame and returns what the caller must do now.
    #[inline]
    pub fn arrive(&mut self, arrival: ArrivedFrame) -> Option<Output> {
        if arrival.head.kind == wire::EAGER {
            return self.arrive_eager(&arrival);
        }
        self.arrive_other(&arrival)
    }

    #[cold]
    #[inline(never)]
    fn arrive_other(&mut self, arrival: &ArrivedFrame) -> Option<Output> {
        if arrival.peer.0 as usize >= self.outboxes.len() {
            return self.refuse();
        }
        match arrival.head.kind {
            wire::RTS => self.arrive_rts(arrival),
            wire::CTS => self.arrive_cts(arrival),
            wire::FIN => self.arrive_fin(arrival),
            wire::DATA => self.arrive_data(arrival),
            wire::FIRST => self.arrive_early(arrival),
            wire::MORE => self.arrive_more(arrival),
            wire::THROTTLE => self.arrive_throttle(arrival.peer, true),
            wire::RELEASE => self.arrive_throttle(arrival.peer, false),
            wire::CANCEL => self.arrive_cancel(arrival),
            wire::CANCELLED => self.arrive_cancelled(arrival),
            wire::MATCHED => self.arrive_matched(arrival),
            _ => self.refuse(),
        }
    }

    /// The request slots, for status, wait and the debugger's anchor.
    #[inline(always)]
    #[must_use]
    pub fn arena(&self) -> &RequestArena {
        &self.arena
    }

    /// Whether a request has ended and waits to be collected.
    #[inline(always)]
    #[must_use]
    pub fn is_complete(&self, request: RequestId) -> bool {
        self.arena.fields(request).state == RequestState::Complete
    }

    /// What was counted so far. Looks at all slots: nothing is counted where receives are posted and matched.
    #[must_use]
    pub fn counters(&self) -> Counters {
        let is_posted = |id: &RequestId| {
            let fields = self.arena.fields(*id);
            (fields.kind, fields.state) == (RequestKind::Receive, RequestState::Posted)
        };
        let tally = &self.tally;
        Counters {
            refused: tally.refused.get(),
            unexpected: tally.unexpected.get(),
            kept_bytes: tally.kept_bytes.get(),
            kept_bytes_peak: tally.kept_bytes_peak.get(),
            posted_length: self.arena.iter().filter(is_posted).count() as u64,
            unexpected_length: tally.unexpected_length.get(),
            match_attempts: tally.match_attempts.get(),
        }
    }

    /// What is counted: others may read it at any time.
    #[must_use]
    pub fn tally(&self) -> &Arc<EngineCounters> {
        &self.tally
    }

    /// Begins to count what is in a queue of one context; `None`: too many contexts are counted. What it answers is for
    /// [`queue_layout::Queues`] of the tally. While posted receives are counted so, the fast paths refuse.
    #[must_use]
    pub fn watch_queue(&mut self, kind: Queued, context: ContextId) -> Option<usize> {
        if kind == Queued::Posted {
            return self.matching.watch_posted(&mut self.arena, context.0);
        }
        let waits = |id: &RequestId| {
            let fields = self.arena.fields(*id);
            let is_queued = matches!(fields.state, RequestState::Kept | RequestState::Envelope);
            fields.kind == RequestKind::Unexpected && is_queued && fields.context == context.0
        };
        let length = self.arena.iter().filter(waits).count();
        let queues = self.tally.queues(kind);
        queues.watch(context.0, length as u64)
    }

    /// Other limits hold from now on, for what has not left and what comes. In bytes.
    pub fn set_limits(&mut self, eager: u64, early: u64, unexpected_budget: u64) {
        self.config.eager_limit_bytes = eager;
        self.config.early_limit_bytes = early;
        self.config.unexpected_budget_bytes = unexpected_budget;
        self.relax();
    }

    /// The settings that hold.
    #[must_use]
    pub fn config(&self) -> &Config {
        &self.config
    }

    #[cold]
    fn refuse(&mut self) -> Option<Output> {
        self.tally.refused.add(1);
        None
    }

    #[inline(always)]
    fn next_sequence(&mut self) -> u64 {
        self.sequence += 1;
        self.sequence
    }
}
