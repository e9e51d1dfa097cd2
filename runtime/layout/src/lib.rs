// SPDX-License-Identifier: MIT OR Apache-2.0
//! The image of requests, unexpected messages, communicators, groups and waiting calls that a debugger reads from a
//! stopped process, and the counters of an engine, which tools read in the process itself.
//!
//! **Knows** byte offsets, states, and the version words that make a slot readable whenever the process is stopped.
//! **Never** follows a link, allocates, or depends on how a message is matched or moved.
//!
//! # How a slot is read
//! Request slots live in chunks that are never freed; a slot is in use unless its state is [`RequestState::Free`].
//! Every change of fields that a reader uses makes the slot's version odd, changes the fields, and makes the version
//! even again. A reader that has stopped the process uses the slots with an even version, and shows those with an odd
//! version as "in transition". A reader does not follow links: [`RequestFields::sequence`] gives the order. The rows of
//! communicators ([`CommRow`]), datatypes ([`TypeRow`]), groups ([`GroupRow`]) and waiting calls ([`CallRow`]) are read
//! by the same rule.
//!
//! # Threads
//! One thread at a time, the engine's owner, changes a slot or a row. A reader is another process that has stopped this
//! one, so only the compiler could reorder stores; [`RequestSlot::change`] has compiler fences against this. The
//! numbers of an [`EngineCounters`] are read at any time.
#![no_std]

mod anchor;
mod call;
mod comm;
mod datatype;
mod engine_counters;
mod event;
mod group;
mod slot;
mod table;

use core::sync::atomic::{Ordering, compiler_fence};

pub use anchor::{
    Anchor, BEFORE, BYTE_ORDER, FINALIZED, MAGIC, MANY_THREADS, ONE_THREAD, QUEUE_LAYOUT_MINOR,
    QUEUE_LAYOUT_VERSION, RUNNING,
};
pub use call::{
    CALL_FREE, CALL_LIST, CALL_MESSAGE, CALL_NAME_BYTES, CALL_OTHER, CALL_RANKS, CALL_REQUESTS,
    CALL_ROWS, CallFacts, CallRow, CallTable, NO_BYTES,
};
pub use comm::{
    COLLECTIVES, COMM_CHUNKS, COMM_NAME_BYTES, CommFacts, CommRow, CommTable, FIRST_ROWS,
    OF_COLLECTIVES, ROW_FREE, ROW_FREED, ROW_INTER, ROW_INTRA, collective,
};
pub use datatype::{FIRST_TYPE_ROWS, TYPE_CHUNKS, TYPE_NAME_BYTES, TypeFacts, TypeRow, TypeTable};
pub use engine_counters::{
    EngineCounters, OwnedCounter, QUEUES, Queued, Queues, WATCHES, WatermarkCounter,
    WatermarkObserver,
};
pub use event::{EventMask, EventType};
pub use group::{FIRST_GROUP_ROWS, GROUP_CHUNKS, GroupRow, GroupTable};
pub use slot::{
    ANY_PEER, ANY_TAG, CHUNK_SLOTS, Chunk, FLAG_CANCELLED, FLAG_CANCELLING, FLAG_EARLY, FLAG_GATED,
    FLAG_LENT, FLAG_ORPHAN, FLAG_PERSISTENT, FLAG_PLAIN, FLAG_STRUCTURED, FLAG_SYNCHRONOUS,
    MAX_CHUNKS, RequestFields, RequestKind, RequestSlot, RequestState, SlotWriteGuard, standing,
};
pub use table::{
    CALL, CHUNK, COMM, COMM_TABLE, FieldRow, GROUP, GROUP_TABLE, LAYOUT, SLOT, TYPE, TYPE_TABLE,
    call_field, comm_field, comm_table_field, field, group_field, group_table_field, type_field,
    type_table_field,
};

/// Publishes a pointer, such as the address of a new chunk: `store` is executed after all earlier stores.
#[inline(always)]
pub fn publish(store: impl FnOnce()) {
    // PAIR(chunk-table): the reader has stopped the process, so only the compiler could move the store of the address
    // before earlier stores.
    compiler_fence(Ordering::SeqCst);
    store();
}
