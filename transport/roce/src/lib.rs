// SPDX-License-Identifier: MIT OR Apache-2.0
//! RoCEv2 reliable connections in user space, on the wire as Linux Soft-RoCE (`rdma_rxe`) and adapters have them. Sans-IO:
//! packets and time are arguments, and what is to be sent is handed out.
//!
//! **Knows** packets, queue pairs and keys of memory.
//! **Never** knows a socket, a device or a clock, and never reads or writes memory itself.

#![forbid(unsafe_code)]

pub mod format;
pub mod icrc;
mod memory;
mod pair;
mod psn;

pub use memory::{Access, AccessError, Memory, Piece};
pub use pair::{
    Body, Completion, Config, ConfigError, MESSAGE_BYTES_MAX, Operation, Outgoing, PathMtu, Payload,
    PostError, ReceiveQueue, Request, Status,
};
pub use psn::Psn;
