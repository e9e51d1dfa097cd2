// SPDX-License-Identifier: MIT OR Apache-2.0
//! Bytes, peers and keys: the verbs vocabulary in safe Rust, over any provider that carries bytes between two
//! processes.
//!
//! **Knows** peers, queue pairs, memory regions, work requests, completions, and how a process waits.
//! **Never** knows a tag, a communicator or a datatype; never calls upward: [`Fabric::poll`] fills the caller's array.
//!
//! # Vocabulary
//! - A [`Fabric`] is a process's access to all its peers: one queue pair per peer, one completion queue.
//! - A *send* carries a [`Head`] and up to [`Caps::max_send_bytes`] bytes; they are copied before the call returns.
//! - A *read* or *write* is one-sided: it moves bytes between a [`Lease`] here and a [`RemoteKey`] there, and ends with
//!   a [`Completion`], in which the lease comes back.
//! - An [`Atomic`] operation changes one word of a peer's memory in one step, and returns its previous value.
//! - A *board* is shared memory through which ranks of one node run collectives. A [`Seat`] is a process's place at a
//!   board.
//! - A *write with immediate* also gives the peer a completion that carries 32 bits.
//! - An [`Owner`] is one of the protocols that share a fabric. The kind of each frame, the id of each work request and
//!   each immediate contain the owner's number, by which the caller of `poll` dispatches.
//!
//! Every queue pair is reliable and ordered: what was posted towards a peer arrives once and in order, or the peer is
//! lost. [`Full`] is an ordinary result: poll, then post again.
//!
//! # Example: a process and itself
//! ```
//! use transport::{Completion, Completions, Config, Fabric, Head, Peer};
//! let mut fabric = Fabric::open(Config::alone()).unwrap();
//! let head = Head { kind: 1, len: 0, flags: 0, word: 42 };
//! fabric.post_send(Peer(0), head, b"hello").unwrap();
//! let mut completions = Completions::new();
//! fabric.poll(&mut completions);
//! let Some(Completion::Arrived(arrived)) = completions.take(0) else { panic!() };
//! assert_eq!((arrived.peer, arrived.head.word, arrived.bytes()), (Peer(0), 42, 5));
//! let mut body = [0; 5];
//! fabric.copy_body(&arrived, &mut body);
//! fabric.release(&arrived);
//! assert_eq!(&body, b"hello");
//! ```
//!
//! # Threads and clean-up
//! A fabric belongs to one thread at a time. Memory that was leased must stay valid until the completion of the work
//! request that took it; drop the fabric last. Node segments stay mapped until the process ends.

mod arena;
pub mod bcast_queue;
mod cq;
mod error;
mod grown;
mod mr;
pub mod net_info;
mod node;
mod owner;
mod peers;
mod provider;
pub mod seat;
pub mod wait;
mod wait_set;
mod watcher;
mod words;
mod wr;

pub use cq::{Arrived, Completion, Completions, RecvBuffer};
pub use error::Error;
pub use grown::Grown;
pub use mr::{Lease, LocalKey, RemoteKey};
pub use node::{Node, Segment, is_segment};
pub use owner::{Owner, number_of_immediate};
pub use provider::{
    Caps, Config, Fabric, FabricCounters, FabricStats, FakeConfig, FakeNet, FakeStats, FakeStreams,
    FirstFrame, ForeignPeer, GidPlaces, MOST_RECORD_BYTES, Mover, NetLimits, NetStats, NetTerms,
    NetWord, NetworkSettings, PacketFaults, PacketNet, PortChange, Providers, Rendezvous,
    SimConfig, SimHop, SimNet, SimStats, StreamKey, StreamsConfig, TcpCongestion, TcpTerms,
    WordPoll,
};
pub use ring::{Bias, BiasTurn, Full, Head, SLOT_BODY_BYTES, Turnstile, copy};
pub use seat::Seat;
pub use wr::{Atomic, WorkId, WorkOutcome};

/// A process that this process may reach, by number: first the ranks of its own job in their order, then the processes
/// that were added later.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Peer(pub u32);
