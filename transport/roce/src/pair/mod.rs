// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reliable queue pairs. IBTA vol. 1 sections 9.7 and 10.3.

mod assembly;
mod completer;
mod config;
mod order;
mod outgoing;
mod receives;
mod replay;
mod replies;
mod request;
mod requester;
mod responder;
mod retry;
mod send_queue;

pub use config::{Config, ConfigError, PathMtu};
pub use outgoing::{Outgoing, Payload};
pub use receives::ReceiveQueue;
pub use request::{Body, Completion, MESSAGE_BYTES_MAX, Operation, PostError, Request, Status};
