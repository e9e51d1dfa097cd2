// SPDX-License-Identifier: MIT OR Apache-2.0
//! The types of work requests and their completions.

use std::fmt;

use crate::memory::RoceSge;

/// One work request. IBTA vol. 1 section 10.8.
#[derive(Clone, Copy, Debug)]
pub struct RoceRequest<'a> {
    /// Id that the completion of the request returns (`wr_id` in verbs).
    pub work: u64,
    /// The operation.
    pub operation: RequestOpcode,
    /// Source of a send or write, destination of a read. An atomic operation has a registered range of 8 bytes for the
    /// original value, in host byte order.
    pub body: RequestBody<'a>,
    /// Immediate data of a send or a write, which the receiver's completion returns. A write with immediate data
    /// consumes a receive buffer.
    pub immediate: Option<[u8; 4]>,
    /// Whether success generates a completion. Failure always does.
    pub signaled: bool,
}

/// Operation of a work request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestOpcode {
    /// SEND to the peer's next receive buffer.
    Send,
    /// RDMA WRITE to memory of the peer.
    Write {
        /// Remote address.
        address: u64,
        /// Remote key.
        key: u32,
    },
    /// RDMA READ of memory of the peer.
    Read {
        /// Remote address.
        address: u64,
        /// Remote key.
        key: u32,
    },
    /// Atomic fetch-and-add on 8 bytes of the peer.
    FetchAdd {
        /// Remote address, a multiple of 8.
        address: u64,
        /// Remote key.
        key: u32,
        /// The addend.
        add: u64,
    },
    /// Atomic compare-and-swap on 8 bytes of the peer.
    CompareSwap {
        /// Remote address, a multiple of 8.
        address: u64,
        /// Remote key.
        key: u32,
        /// The value to compare with.
        compare: u64,
        /// The value to store if the value in memory equals `compare`.
        swap: u64,
    },
}

/// Data of a work request.
#[derive(Clone, Copy, Debug)]
pub enum RequestBody<'a> {
    /// These bytes, which are copied when the request is posted.
    Inline(&'a [u8]),
    /// Registered memory, which the engine may access until the request completes.
    Sge(RoceSge),
}

/// The reason why a work request was not posted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PostError {
    /// The send queue is full until an earlier request has completed and its completion was polled.
    Full,
    /// The message is too long.
    TooLong {
        /// Length of the message in bytes.
        bytes: usize,
        /// The largest length in bytes.
        most: u32,
    },
    /// A read or atomic operation has an inline body, which cannot receive its result.
    Inline,
    /// The body of an atomic operation is not 8 bytes long.
    AtomicBytes {
        /// Length of the body in bytes.
        bytes: u32,
    },
    /// The address of an atomic operation is not a multiple of 8.
    AtomicAddress {
        /// The address.
        address: u64,
    },
}

/// The completion of a work request or of a receive buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WorkCompletion {
    /// The id of the work request or of the receive buffer.
    pub work: u64,
    /// The outcome.
    pub status: CompletionStatus,
    /// Number of bytes transferred; 0 if the request failed. For the receive buffer that a write with immediate data
    /// consumed, the number of bytes written.
    pub bytes: u32,
    /// QPN of the local queue pair.
    pub number: u32,
    /// The received immediate data, if there are any.
    pub immediate: Option<[u8; 4]>,
}

/// Outcome of a work request. IBTA vol. 1 section 11.4.2.1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CompletionStatus {
    /// The request was executed, or the message was received.
    Success,
    /// The queue pair has entered the error state before the request was executed.
    Flushed,
    /// Too many timeouts: the peer does not respond.
    RetryExceeded,
    /// Too many RNR NAKs: the peer had no receive buffer.
    RnrRetryExceeded,
    /// Remote access error: key, bounds or rights are wrong.
    RemoteAccess,
    /// Remote invalid request error.
    RemoteInvalid,
    /// Remote operational error.
    RemoteOperation,
    /// Local protection error: local memory is not registered, or its rights do not suffice.
    LocalProtection,
    /// Local length error: the message is longer than its receive buffer.
    LocalLength,
}

impl fmt::Display for PostError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Full => write!(f, "send queue is full"),
            Self::TooLong { bytes, most } => {
                write!(f, "message has {bytes} bytes, a queue pair takes {most}")
            }
            Self::Inline => write!(
                f,
                "a read or atomic operation has an inline body, expected a piece"
            ),
            Self::AtomicBytes { bytes } => {
                write!(
                    f,
                    "an atomic operation has a body of {bytes} bytes, expected 8"
                )
            }
            Self::AtomicAddress { address } => write!(
                f,
                "an atomic operation is at address 0x{address:x}, expected a multiple of 8"
            ),
        }
    }
}

impl std::error::Error for PostError {}

/// Longest message in bytes: with the smallest path MTU it takes a quarter of all PSNs.
pub const MESSAGE_BYTES_MAX: u32 = 1 << 30;
