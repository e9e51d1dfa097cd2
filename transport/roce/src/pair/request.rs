// SPDX-License-Identifier: MIT OR Apache-2.0
//! What is posted to a queue pair, and how it ends.

use std::fmt;

use crate::memory::RoceSge;

/// One work request. IBTA vol. 1 section 10.8.
#[derive(Clone, Copy, Debug)]
pub struct RoceRequest<'a> {
    /// Comes back in its completion.
    pub work: u64,
    /// What it does.
    pub operation: RequestOpcode,
    /// What is sent or written, or where that which is read goes. An atomic operation has a piece of 8 bytes, where that which
    /// was there goes, in the byte order of this host.
    pub body: RequestBody<'a>,
    /// Four bytes for the receiver's completion, of a send or a write; a write takes a receive buffer for them.
    pub immediate: Option<[u8; 4]>,
    /// Whether it has a completion if it succeeds. One that fails always has.
    pub signaled: bool,
}

/// What a work request does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestOpcode {
    /// Sends to the next receive buffer.
    Send,
    /// Writes to memory of the peer.
    Write {
        /// Where there.
        address: u64,
        /// Remote key.
        key: u32,
    },
    /// Reads memory of the peer.
    Read {
        /// Where there.
        address: u64,
        /// Remote key.
        key: u32,
    },
    /// Adds to 8 bytes of the peer.
    FetchAdd {
        /// Where there, a multiple of 8.
        address: u64,
        /// Remote key.
        key: u32,
        /// What is added.
        add: u64,
    },
    /// Changes 8 bytes of the peer if they are as expected.
    CompareSwap {
        /// Where there, a multiple of 8.
        address: u64,
        /// Remote key.
        key: u32,
        /// What must be there.
        compare: u64,
        /// What is put there then.
        swap: u64,
    },
}

/// What a work request carries.
#[derive(Clone, Copy, Debug)]
pub enum RequestBody<'a> {
    /// These bytes, copied when it is posted.
    Inline(&'a [u8]),
    /// What lies there until it has completed.
    Piece(RoceSge),
}

/// Why a request was not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PostError {
    /// There is no room until an earlier one has completed and its completion was polled.
    Full,
    /// It is longer than a message can be.
    TooLong {
        /// Its length in bytes.
        bytes: usize,
        /// The most.
        most: u32,
    },
    /// What was read or found cannot go into an inline body.
    Inline,
    /// An atomic operation wants a body of 8 bytes.
    AtomicBytes {
        /// What it has.
        bytes: u32,
    },
    /// The address of an atomic operation is no multiple of 8.
    AtomicAddress {
        /// The address.
        address: u64,
    },
}

/// The completion of a work request or of a receive buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WorkCompletion {
    /// The name that it was posted with.
    pub work: u64,
    /// How it ended.
    pub status: CompletionStatus,
    /// Bytes that moved; 0 if it failed. Of a receive for a write with immediate data, the bytes that were written.
    pub bytes: u32,
    /// Number of this process's queue pair.
    pub number: u32,
    /// Immediate data that came.
    pub immediate: Option<[u8; 4]>,
}

/// How a work request ended. IBTA vol. 1 section 11.4.2.1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CompletionStatus {
    /// It was carried out.
    Success,
    /// Its queue pair had broken before.
    Flushed,
    /// The other side does not answer.
    RetryExceeded,
    /// The other side had no receive buffer for too long.
    NotReadyExceeded,
    /// The other side does not allow it: key, bounds or rights are wrong.
    RemoteAccess,
    /// The other side found the request wrong.
    RemoteInvalid,
    /// The other side could not do it.
    RemoteOperation,
    /// Memory of this side is not registered as it should be.
    LocalProtection,
    /// What arrived is longer than its receive buffer.
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

/// Most bytes of one message: at the smallest path MTU it has a quarter of all packet numbers.
pub const MESSAGE_BYTES_MAX: u32 = 1 << 30;
