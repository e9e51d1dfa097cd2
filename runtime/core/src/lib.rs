// SPDX-License-Identifier: MIT OR Apache-2.0
//! The state of a process: its communicators, datatypes and requests, the progress loop, and the pump, which connects
//! the engine and the transport. The engine decides, the transport moves bytes.
//!
//! **Knows** both `engine` and `transport`; the launcher's messages (`wireup`); the application's buffers.
//! **Never** sees a C handle or an error class: these belong to `mpi-abi`. The only functions of the application that
//! it calls are reduction operations, between two visits.
//!
//! # The path of one message
//! [`Messages::send`] or [`Messages::receive`] calls the engine. `pump.rs` makes work requests from the outputs of the
//! engine, and inputs of the engine from the completions that `dispatch.rs` hands out. [`Universe::progress`] is one
//! turn; `visit.rs` has the loops in which calls wait.
//!
//! # Threads
//! A [`Universe`] is accessed in *visits*, by one thread at a time. If other threads may visit, nothing blocks during a
//! visit: a waiting call makes one short visit after another ([`Visit`]), and the lock can be handed over between two
//! of them.

mod awaits;
mod boot;
mod brief;
mod carrier;
pub mod channels;
pub mod collective;
pub mod comm;
mod comm_rows;
mod comms;
mod contexts;
pub mod datatype;
mod directory;
mod dispatch;
mod error;
mod gates;
mod limits;
mod managed;
mod messages;
mod network;
mod nodes;
pub mod op;
mod operation;
mod oversubscription;
mod pack;
mod payload;
mod progress;
mod pump;
mod rendezvous_protocol;
mod request_data;
mod roster;
mod tasks;
#[cfg(test)]
mod testing;
pub mod topology;
mod universe;
mod user_buf;
pub mod var;
mod visit;
mod waiting;

/// The lock by which the threads of a process take turns, and what it needs.
pub mod thread {
    pub use transport::wait::{
        fence_own_threads, register_own_threads, sleep_at, thread_number, wake_at,
    };
    pub use transport::{Bias, BiasTurn, Turnstile};
}

pub use awaits::{AwaitedCollective, Awaits, RequestList};
pub use boot::{DaemonLink, LaunchState, flush_output, leave, started_by};
pub use brief::Ended;
pub use collective::CollectiveCall;
pub use comm::{CallGuard, Comm, Group, GroupComparison};
pub use comms::{Comms, PREDEFINED};
pub use datatype::{Datatype, TypeSignature};
pub use engine::{
    Config as EngineConfig, ContextId, EventRecord, EventRecordList, EventType, Peer,
    ProbedMessage, ReceivedMessage, RequestId, RequestKind, RequestState, WORDS,
};
pub use error::Error;
pub use messages::{Deferred, Messages, SendMode, ToFarPeer};
pub use operation::{MessageStatus, Mode, ReceiveSource, SendTarget};
pub use pack::Structured;
pub use payload::Payload;
pub use roster::{ProcessName, Roster};
pub use tasks::Tasks;
pub use universe::Universe;
pub use user_buf::UserMemory;
pub use visit::Visit;
pub use waiting::{Pause, WaitPolicy, WaitProgress};
