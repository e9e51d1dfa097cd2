// SPDX-License-Identifier: MIT OR Apache-2.0
//! Shared-memory rings between the ranks of one node: how a frame passes from one process to another, how the receiver
//! signals that it polls or sleeps, how it is woken, and the layout of the node segment.
//!
//! **Knows** the segment's layout, one producer and one consumer per ring, words in shared memory.
//! **Never** makes a system call, allocates memory, interprets a frame, or trusts a value that another process can
//! write: every number from the segment is read once, checked, and only the copy is used.
//!
//! # Vocabulary
//! A *slot* is one cache line: a sequence number, a 12-byte head and up to [`SLOT_BODY_BYTES`] bytes of body. A *ring*
//! is one page of [`SLOTS`] slots from one sender to one receiver. A *pair line* belongs to each ring and carries data
//! in the other direction: the receiver's count of consumed slots (credit), and its *attention*, that is, whether it
//! polls the ring. The *bell* of a receiver holds one *pending* bit for each sender, and the word that the receiver
//! sleeps on. The *pool* of a sender holds buffers for bodies that do not fit a slot. A sender also has one *own
//! buffer* for each receiver, for the case that receivers that do not poll hold all buffers of the pool. A *gate line*
//! signals to a sender that a buffer may be written, and to the receiver that the buffer was written. With an *offer*,
//! the reader of large data lets the owner of the data do a part of the copy. A *board* is memory in which ranks that
//! run a collective together put their data and wait for each other; few data are in each member's own *lines*. A
//! board's *broadcast queue* carries entries from one member to all others, which need not have arrived yet.
//!
//! # Invariants
//! - **R1** A slot belongs to the producer until its head is published. From then on it belongs to the consumer, until
//!   the credit for the frame is returned; then it is the producer's again. Only the producer writes a slot. A process
//!   that breaks this garbles payloads; it cannot make another process access other memory, since every word is atomic
//!   and every count is checked.
//! - **R2** Slots are published in order, each with the sequence number `position + 1`.
//! - **R3** A receiver that goes to sleep never misses a published frame: either the sender sees that the receiver does
//!   not poll the ring, and rings the bell; or the receiver sees the frame, since it fences after it stops polling and
//!   then polls once more.
//! - **R4** A credit count is ignored if it is below the known credit or above the number of frames sent.
//! - **R5** Of all senders that ring one sleeper, exactly one makes the system call that wakes it.
//! - **R6** A round of a board is over only when each member has arrived in it once.
//! - **R7** A member writes to a half of a board only before it arrives in the present round, and after the previous
//!   round is over: then no member reads that half any more. A member writes its lines for round r only after round r −
//!   ([`DEPTH`] − 1) is over.
//! - **R8** An entry of a broadcast queue, and its bytes in the ring, are overwritten only after all members have taken
//!   the entry.
//!
//! # Memory order
//! | pair         | release side                                                                                       | acquire side |
//! |--------------|----------------------------------------------------------------------------------------------------|-----|
//! | slot-full    | `Producer::publish` stores the head                                                                | `Consumer::peek` and `Consumer::pop` load it |
//! | slot-free    | `Consumer::return_credit` stores the count                                                         | `Producer::refresh` loads it |
//! | bell-pending | `Bell::ring` sets the bit                                                                          | `Bell::take_pending` swaps the word |
//! | pool-free    | `PoolSide::release` stores the increased count                                                     | `Pool::came_back` loads the count |
//! | own-free     | `Consumer::release_own` stores the increased count                                                 | `Producer::acquire_own` loads the count |
//! | offer-open   | `Offer::open` stores the claim word                                                                | `Offer::claim` loads it |
//! | offer-done   | `Offer::finish_back` adds                                                                          | `Offer::helped` loads the sum |
//! | gate-open    | `GateLine::open` stores the number                                                                 | `GateLine::is_open` loads it |
//! | gate-written | `GateLine::signal_written` stores the number                                                       | `GateLine::is_written` loads it |
//! | gate-claim   | `GateLine::claim` exchanges the number                                                             | `GateLine::revoke` exchanges it: one of the two succeeds |
//! | board-gate   | `Board::arrive` adds                                                                               | the next `Board::arrive` at the same gate adds too |
//! | board-over   | the last `Board::arrive` stores the round                                                          | `Board::rounds` loads it |
//! | board-note   | `MemberLines::publish` stores the note                                                             | `MemberLines::note`, `MemberLines::has_reached` load it |
//! | board-sleep  | `Board::has_sleepers`, after an arrival or a publication: fence, then loads the number of sleepers | `Board::doze`: counts the sleeper, fence, then a last look |
//! | board-free   | `Board::leave` stores 0                                                                            | `Board::claim` swaps it |
//! | board-left   | each `Board::leave` adds                                                                           | the last `Board::leave` adds too |
//! | queue-entry  | `BcastQueue::publish` stores number and note                                                       | `BcastQueue::entry` loads them |
//! | queue-taken  | `BcastQueue::take` stores the count                                                                | `BcastQueue::least_taken` loads it |
//! | queue-call   | `BcastQueue::announce` stores the word                                                             | `BcastQueue::call_of` loads it |
//! | queue-room   | `BcastQueue::waiter`: fence, then loads the waiting member                                         | `BcastQueue::doze`: stores the waiting member, fence, then a last look |
//! | ident        | `Ident::introduce` stores `ready`                                                                  | `Ident::pid` loads it |
//! | bias         | `Bias::enter`: stores that it is inside, light fence, then loads the turn                          | `Bias::revoke`: stores the next turn, heavy fence, then loads whether the owner is inside |
//! | bias-left    | `Bias::leave` stores 0                                                                             | `Bias::revoke` loads it |
//! | turnstile    | `Turnstile::leave` stores the word                                                                 | `Turnstile::enter` and `enter_waiting` exchange or load it |
//! | own-count    | `Producer::publish` stores its count of frames                                                     | `ProducerCounts::counts` observes it |
//! | sleep-fence  | `Bell::wake`: fence, then loads the sleep word                                                     | `Bell::doze`: stores the sleep word, fence, then a last look |
//! | attention    | `Producer::publish`: light fence, then loads the attention                                         | `Consumer::end_polling` stores the attention; heavy fence, then a last look |
//!
//! # Threads
//! Each `Producer` and each `Consumer` belongs to one thread at a time; any threads may use `Bell`, `PoolSide` and
//! `ProducerCounts` at the same time.
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
