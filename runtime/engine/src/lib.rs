// SPDX-License-Identifier: MIT OR Apache-2.0
//! Point-to-point MPI as a sans-IO state machine: matching, eager and rendezvous protocols, flow control, cancel and
//! probe (MPI 5.0 chapter 3). Inputs are method calls; each returns the action that the owner must carry out.
//!
//! **Knows** context ids, peers by number, tags, byte counts, the wire format, request slots.
//! **Never** touches payload, memory addresses (it only stores them), clocks, threads, communicators or datatypes; and
//! never depends on the crate `transport`: the runtime's pump joins the two crates.
//!
//! # Inputs and outputs
//! The owner calls [`Engine::start_send`], [`Engine::start_receive`], [`Engine::arrive`] and a few more methods, and
//! carries out the [`Output`] that they return. Frames that must go to a peer wait in that peer's outbox: the owner
//! takes them with [`Engine::next_frame`], posts them, and calls [`Engine::posted`]. When the transport is full, the
//! owner stops and tries again later.
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
//! # Guarantees (MPI 5.0 section 3.5)
//! - **E1 order**: if a receive matches two messages from one sender in one context, it gets the one that was sent
//!   first; frames from one peer must be handed to `arrive` in the order in which they were posted.
//! - **E2 progress**: a message for a posted receive is matched, whatever else arrives.
//! - **E3 bounded memory**: above the budget for unexpected data, peers must announce every message; messages already
//!   in flight are still kept. From then on only envelopes accumulate, at most one for each open request of a sender.
//! - **E4 hostile peers**: an invalid frame changes nothing and is counted ([`Counters::refused`]).
//! - **E5 lost peers**: no operation waits for a peer that is dead ([`Engine::lose`]).
//!
//! # Threads
//! An engine is not synchronized: one thread at a time may call it, so the owner holds a lock.
#![forbid(unsafe_code)]

mod cancel;
mod credit;
mod early;
mod gated;
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

/// The integer that keeps the messages of different communicators apart (MPI 5.0 section 3.2.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ContextId(pub u32);

/// Limits that the owner sets.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// Messages up to this size are sent eagerly; larger ones are announced. In bytes; at most the body of one frame of
    /// the transport.
    pub eager_limit_bytes: u64,
    /// Messages above the eager limit and up to this size are sent without a rendezvous, in several frames, if
    /// [`Send::early`] is set. The receiver keeps them like eager ones. In bytes.
    pub early_limit_bytes: u64,
    /// If more unexpected data than this are kept, the engine throttles senders. In bytes.
    pub unexpected_budget_bytes: u64,
    /// Largest body of one frame when a large message is streamed. In bytes.
    pub stream_chunk_bytes: u64,
    /// If there are more unexpected messages than this, the engine throttles senders, whatever the size of the
    /// messages.
    pub unexpected_messages: u64,
    /// The engine releases throttled senders when unexpected data and messages are both at most this share of their
    /// limits. In percent.
    pub release_percent: u64,
    /// Maximum number of event records that wait for the owner.
    pub max_records: usize,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            eager_limit_bytes: 8 * 1024,
            early_limit_bytes: 64 * 1024,
            unexpected_budget_bytes: 64 << 20,
            stream_chunk_bytes: 8 * 1024,
            unexpected_messages: MAX_UNEXPECTED,
            release_percent: 50,
            max_records: 1024,
        }
    }
}

/// Default and upper bound of [`Config::unexpected_messages`]: half of all slots.
pub const MAX_UNEXPECTED: u64 = 1 << 18;

/// A send to start.
#[derive(Clone, Copy, Debug)]
pub struct Send {
    /// Destination.
    pub peer: Peer,
    /// Context id.
    pub context: ContextId,
    /// Tag, 0 or more.
    pub tag: i32,
    /// Size of the message in bytes.
    pub bytes: u64,
    /// Address of the data; the engine only stores it.
    pub buffer: u64,
    /// Whether the send completes only after a receive has matched the message (`MPI_Ssend`).
    pub synchronous: bool,
    /// Whether data up to [`Config::early_limit_bytes`] are sent without a rendezvous, even if they need several
    /// frames.
    pub early: bool,
    /// The transport's remote key, with which the peer can read the buffer. The engine does not interpret it.
    pub key: [u64; 3],
}

/// A receive to start.
#[derive(Clone, Copy, Debug)]
pub struct Receive {
    /// Context id.
    pub context: ContextId,
    /// Source; `None` is `MPI_ANY_SOURCE`.
    pub peer: Option<Peer>,
    /// Tag; `None` is `MPI_ANY_TAG`.
    pub tag: Option<i32>,
    /// Room in the buffer in bytes.
    pub bytes: u64,
    /// Address of the buffer; the engine only stores it.
    pub buffer: u64,
}

/// A frame from the transport, with the first 48 bytes of its body.
#[derive(Clone, Copy, Debug)]
pub struct ArrivedFrame {
    /// The sender of the frame: the queue pair determines it, not the frame.
    pub peer: Peer,
    /// Head of the frame.
    pub head: FrameHead,
    /// Bytes of its body.
    pub bytes: u64,
    /// The body of a control frame; undefined beyond `bytes`.
    pub words: [u64; 6],
}

/// The action that the owner must carry out now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Output {
    /// Copy the first `bytes` bytes of the frame that just arrived to byte `offset` of the request's buffer.
    Deliver {
        /// The receive.
        request: RequestId,
        /// Offset in the message, in bytes.
        offset: u64,
        /// Number of bytes; less than the frame has if the buffer is too small.
        bytes: u64,
    },
    /// Keep the body of the frame that just arrived and pass it to [`Engine::keep`].
    Keep {
        /// The unexpected message.
        message: RequestId,
    },
    /// Copy the body of the frame that just arrived to byte `offset` of the body of a kept message
    /// ([`Engine::kept_body_mut`]), then call [`Engine::kept_more`].
    KeepMore {
        /// The unexpected message.
        message: RequestId,
        /// Offset in the message, in bytes.
        offset: u64,
    },
    /// Copy the first `bytes` bytes of a kept message to the request's buffer, then call [`Engine::drop_message`].
    DeliverKept {
        /// The receive.
        request: RequestId,
        /// The kept message.
        message: RequestId,
        /// Number of bytes; less than the message has if the buffer is too small.
        bytes: u64,
    },
    /// Read `bytes` bytes of the peer's memory into the request's buffer; then call [`Engine::pulled`], or
    /// [`Engine::cannot_pull`] if the transport cannot read that memory.
    Pull {
        /// The receive.
        request: RequestId,
        /// The peer whose memory is read.
        peer: Peer,
        /// The remote key that the peer sent.
        key: [u64; 3],
        /// Number of bytes.
        bytes: u64,
    },
}

/// A frame to be posted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OutFrame {
    /// Head of the frame.
    pub head: FrameHead,
    /// Body of the frame.
    pub body: FrameBody,
}

/// The body of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrameBody {
    /// The first `8 * count` bytes of these words.
    Words {
        /// The words.
        words: [u64; 6],
        /// Number of words.
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
    /// The slot of the message. After a matched probe ([`Engine::claim`]) the message stays in this slot.
    pub message: RequestId,
    /// Sender of the message.
    pub peer: Peer,
    /// Tag of the message.
    pub tag: i32,
    /// Size of the message in bytes.
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
    /// The peer is dead. In the slot of a receive, `matched_peer` is the dead peer.
    Lost = 3,
}

/// Counter values; for tests and performance variables.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counters {
    /// Invalid frames.
    pub refused: u64,
    /// Unexpected messages since the start.
    pub unexpected: u64,
    /// Bytes of unexpected data kept at present, including the overhead of each message.
    pub kept_bytes: u64,
    /// Highest value of `kept_bytes`.
    pub kept_bytes_peak: u64,
    /// Number of receives posted and not matched.
    pub posted_length: u64,
    /// Number of unexpected messages not matched.
    pub unexpected_length: u64,
    /// Queue entries inspected while matching.
    pub match_attempts: u64,
}

/// The engine of one process.
///
/// It has more than sixty methods, because the protocol has many events: calls, frames, ends of transfers. Each part of
/// the protocol has its own file of methods. All methods work on the request slots and the outboxes.
#[derive(Debug)]
pub struct Engine {
    arena: RequestArena,
    matching: Matching,
    outboxes: Vec<Outbox>,
    /// Number of outboxes that are not clear, plus one for each [guard](Self::guard_sends).
    blocked: u32,
    /// Peers whose outbox is not empty, each once.
    busy: VecDeque<Peer>,
    bodies: Vec<Option<Box<[u8]>>>,
    /// For each peer: the early message of which some frames have not arrived yet.
    incoming: HashMap<Peer, early::PartialMessage>,
    throttling: Vec<Peer>,
    /// Remote keys of sends that have ended, for the owner to release.
    returned: Vec<(Peer, [u64; 3])>,
    marks: synchronous::Marks,
    sequence: u64,
    config: Config,
    counters: Arc<EngineCounters>,
    journal: journal::Journal,
}

impl Engine {
    /// The engine of a process with `peers` peers, itself included. More can be [added](Self::add_peers).
    #[must_use]
    pub fn new(config: Config, peers: u32) -> Self {
        Self::with_counters(config, peers, Arc::default())
    }

    /// An engine as made by [`new`](Self::new), with counters that others can read.
    #[must_use]
    pub fn with_counters(config: Config, peers: u32, counters: Arc<EngineCounters>) -> Self {
        Self {
            arena: RequestArena::new(),
            matching: Matching::new(Arc::clone(&counters)),
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
            counters,
            journal: journal::Journal::with_room(config.max_records),
        }
    }

    /// Raises the number of peers to `peers`; the new peers get the next numbers.
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

    /// Whether a request is complete and not yet [collected](Self::collect).
    #[inline(always)]
    #[must_use]
    pub fn is_complete(&self, request: RequestId) -> bool {
        self.arena.fields(request).state == RequestState::Complete
    }

    /// The counter values. Scans all slots: there is no counter of posted receives.
    #[must_use]
    pub fn counters(&self) -> Counters {
        let is_posted = |id: &RequestId| {
            let fields = self.arena.fields(*id);
            (fields.kind, fields.state) == (RequestKind::Receive, RequestState::Posted)
        };
        let counters = &self.counters;
        Counters {
            refused: counters.refused.get(),
            unexpected: counters.unexpected.get(),
            kept_bytes: counters.kept_bytes.get(),
            kept_bytes_peak: counters.kept_bytes_peak.get(),
            posted_length: self.arena.iter().filter(is_posted).count() as u64,
            unexpected_length: counters.unexpected_length.get(),
            match_attempts: counters.match_attempts.get(),
        }
    }

    /// The counters themselves, which may be read at any time.
    #[must_use]
    pub fn live_counters(&self) -> &Arc<EngineCounters> {
        &self.counters
    }

    /// Begins to count the length of a queue: the entries of kind `kind` in one context. The result is an index into
    /// [`queue_layout::Queues`]; `None` if too many queues are counted. While posted receives are counted, the fast
    /// paths refuse.
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
        let queues = self.counters.queues(kind);
        queues.watch(context.0, length as u64)
    }

    /// Changes three limits of [`Config`], in bytes. They also hold for messages that are started but not yet sent.
    pub fn set_limits(&mut self, eager: u64, early: u64, unexpected_budget: u64) {
        self.config.eager_limit_bytes = eager;
        self.config.early_limit_bytes = early;
        self.config.unexpected_budget_bytes = unexpected_budget;
        self.relax();
    }

    /// The settings in force.
    #[must_use]
    pub fn config(&self) -> &Config {
        &self.config
    }

    #[cold]
    fn refuse(&mut self) -> Option<Output> {
        self.counters.refused.add(1);
        None
    }

    #[inline(always)]
    fn next_sequence(&mut self) -> u64 {
        self.sequence += 1;
        self.sequence
    }
}
