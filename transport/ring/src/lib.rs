// SPDX-License-Identifier: MIT OR Apache-2.0
//! Shared-memory rings between the ranks of one node: how a frame passes from one process to another, how the receiver
//! signals that it polls, sleeps and wakes, and the layout of the node segment.
//!
//! **Knows** the segment's layout, one producer and one consumer per ring, words in shared memory. **Never** makes a
//! system call, allocates, knows what a frame means, or trusts a value that another process can write: every number
//! from the segment is read once, checked, and only the copy is used.
//!
//! # Vocabulary
//! A *slot* is one cache line: a sequence number, a 12-byte head and up to [`SLOT_BODY_BYTES`] bytes of body. A *ring*
//! is one page of [`SLOTS`] slots from one sender to one receiver. A *pair line* goes with each ring and flows the
//! other way: the receiver's count of consumed slots (credit) and its *attention*. The *bell* of a receiver holds one
//! *pending* bit per sender and the word it sleeps on. The *pool* of a sender holds buffers for bodies that do not fit
//! a slot, and one *own buffer* for each receiver, so that receivers that do not poll can never hold all of them. A
//! *gate line* signals to a sender that a buffer may be written, and to the receiver that it was. An *offer* of a
//! reader lets the owner of large data do a part of the copy. A *board* is memory in which ranks that run a collective
//! together put their data and wait for each other, few data in each member's own *lines*; its *broadcast queue*
//! carries entries from one of them to all others, which need not have arrived yet.
//!
//! # Invariants
//! - **R1** A slot belongs to the producer from the moment its lap was credited until its head is published, and to
//!   the consumer from then until the credit is returned. No other process writes it (a process that breaks this garbles
//!   payloads; it cannot make the other side leave its memory, since every word is atomic and every count checked).
//! - **R2** Slots are published in order, each with the sequence number `position + 1`.
//! - **R3** A published frame is never forgotten by a receiver that goes to sleep: either the sender sees that the
//!   receiver does not poll the ring and rings the bell, or the receiver, which fences after it stops polling, sees
//!   the frame.
//! - **R4** A credit count that is not between the known credit and the frames sent frees nothing.
//! - **R5** Of all senders that ring one sleeper, exactly one makes the system call that wakes it.
//! - **R6** A round of a board is over when each member has arrived once, and not before.
//! - **R7** A member writes to a half of a board only in a round that it has not arrived in and that began after the
//!   one before was over: then no member reads that half any more. It writes its lines of a round only after the round
//!   [`DEPTH`] − 1 before it was over.
//! - **R8** An entry of a broadcast queue, and the bytes in its ring, are overwritten only after all members have
//!   taken them.
//!
//! # Memory order
//! | pair | release side | acquire side |
//! |---|---|---|
//! | slot-full | `Producer::publish` stores the head | `Consumer::peek` and `Consumer::pop` load it |
//! | slot-free | `Consumer::return_credit` stores the count | `Producer::refresh` loads it |
//! | bell-pending | `Bell::ring` sets the bit | `Bell::take_pending` swaps the word |
//! | pool-free | `PoolSide::release` counts on | `Pool::came_back` loads the count |
//! | own-free | `Consumer::release_own` counts on | `Producer::acquire_own` loads the count |
//! | offer-open | `Offer::open` stores the claim word | `Offer::claim` loads it |
//! | offer-done | `Offer::finish_back` adds | `Offer::helped` loads |
//! | gate-open | `GateLine::open` stores the number | `GateLine::is_open` loads it |
//! | gate-written | `GateLine::signal_written` stores the number | `GateLine::is_written` loads it |
//! | board-gate | `Board::arrive` adds | the next `Board::arrive` at the same gate |
//! | board-over | the last `Board::arrive` stores the round | `Board::rounds` loads it |
//! | board-note | `MemberLines::publish` stores the note | `MemberLines::note`, `MemberLines::has_reached` load it |
//! | board-sleep | a member that has arrived or published entries: fence, then the sleepers | `Board::doze`: counts, fence, then a last look |
//! | board-free | `Board::leave` stores 0 | `Board::claim` swaps it |
//! | board-left | each `Board::leave` adds | the last `Board::leave` |
//! | queue-entry | `BcastQueue::publish` stores number and note | `BcastQueue::entry` loads them |
//! | queue-taken | `BcastQueue::take` stores the count | `BcastQueue::least_taken` loads it |
//! | queue-call | `BcastQueue::announce` stores the word | `BcastQueue::call_of` loads it |
//! | queue-room | `BcastQueue::waiter`: fence, then the waiting member | `BcastQueue::doze`: stores it, fence, then a last look |
//! | ident | `Ident::introduce` stores `ready` | `Ident::pid` loads it |
//! | bias | `Bias::enter`: is inside, light fence, then the turn | `Bias::revoke`: the turn, heavy fence, then whether the owner is inside |
//! | bias-left | `Bias::leave` stores 0 | `Bias::revoke` loads it |
//! | turnstile | `Turnstile::leave` stores the word | `Turnstile::enter` and `enter_waiting` exchange or load it |
//! | own-count | `Producer::publish` stores its count of frames | `ProducerCounts::counts` observes it |
//! | sleep-fence | `Bell::ring`: fence, then the sleep word | `Bell::doze`: sleep word, fence, then a last look |
//! | attention | `Producer::publish`: light fence, then attention | `Consumer::end_polling`, heavy fence, then a last look |
//!
//! # Threads
//! A `Producer` and a `Consumer` belong to one thread at a time each; `Bell`, `PoolSide` and `ProducerCounts` are
//! shared freely.
#![cfg_attr(not(any(test, loom)), no_std)]

mod bcast_queue;
mod bias;
mod board;
#[cfg(not(loom))]
pub mod copy;
mod doorbell;
mod ident;
pub mod layout;
mod line;
mod lines;
mod offer;
mod pool;
mod spsc;
mod sync;
mod turnstile;
mod waits;

#[cfg(not(loom))]
mod segment;

pub use bcast_queue::{BcastEntryHead, BcastQueue, ENTRIES, QUEUE_BODY_BYTES};
pub use bias::{Bias, BiasTurn};
pub use board::{Board, RoundArrival, RoundNote, Sleeps};
pub use doorbell::{Bell, Wake};
pub use ident::Ident;
pub use layout::{
    LAYOUT_VERSION, MAX_LOCAL_RANKS, OWN_BUFFER, POOL_BUFFER_BYTES, POOL_BUFFERS, POOL_PLACES,
    SEGMENT_MAGIC, SLOT_BODY_BYTES, SLOTS, segment_bytes,
};
pub use line::GateLine;
pub use lines::{DEPTH, LINE_BODY_BYTES, MemberLines};
pub use offer::{ChunkClaim, Helped, MAX_CHUNKS, OFFERS, Offer};
pub use pool::{Pool, PoolSide};
pub use spsc::{
    Consumer, Filling, Frame, Full, Head, PairLine, Peeked, Producer, ProducerCounts, Ring,
    RingCounts,
};
pub use sync::Own64;
pub use turnstile::Turnstile;
pub use waits::{WaitCounts, WaitsSeen};

#[cfg(not(loom))]
pub use segment::{BoardParts, PoolBuffer, Segment, SegmentError, SegmentHead, SharedBytes};
