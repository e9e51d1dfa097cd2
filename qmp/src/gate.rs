// SPDX-License-Identifier: MIT OR Apache-2.0
//! Bindings to the gated channels of `libmpi_abi.so.1`, a private interface for this library.
//!
//! # Safety
//! Every function is called as the MPI library declares it. Memory of messages is passed as [`StridedPiece`]s, whose
//! creator guarantees QMP's rules ([`StridedPiece::new`]).
#![allow(unsafe_code, reason = "calls the channels of the MPI library")]

use core::ffi::{CStr, c_int, c_void};

use crate::mpi::Comm;
use crate::status::{QmpFailure, QmpStatus, Result};

/// Blocks of equal size at a constant stride.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(C)]
pub struct StridedPiece {
    base: *mut c_void,
    block_bytes: usize,
    blocks: usize,
    stride: isize,
}

impl StridedPiece {
    /// # Safety
    /// The memory is the program's. It exists as long as any message handle that was declared with it exists. While a
    /// message is in progress, the program does not write the memory and, if the message is a receive, does not read it
    /// either.
    pub unsafe fn new(base: *mut c_void, block_bytes: usize, blocks: usize, stride: isize) -> Self {
        Self {
            base,
            block_bytes,
            blocks,
            stride,
        }
    }

    /// Address of the first block of the piece.
    pub fn base(&self) -> *mut c_void {
        self.base
    }

    /// Size of the piece in bytes; `None` on overflow.
    pub fn bytes(&self) -> Option<usize> {
        self.block_bytes.checked_mul(self.blocks)
    }

    /// The same piece, as one block if its blocks are adjacent.
    pub fn coalesced(self) -> Self {
        let dense = self.blocks <= 1 || usize::try_from(self.stride) == Ok(self.block_bytes);
        match self.bytes() {
            Some(bytes) if dense => Self {
                block_bytes: bytes,
                blocks: 1,
                stride: isize::try_from(bytes).unwrap_or_default(),
                ..self
            },
            _ => self,
        }
    }

    /// Whether this piece and `next` are one block each, and `next` begins where this block ends.
    pub fn is_followed_by(&self, next: &Self) -> bool {
        self.blocks == 1
            && next.blocks == 1
            && self.base.wrapping_byte_add(self.block_bytes) == next.base
    }

    /// This block and the adjacent `next` as one block.
    pub fn merged_with(self, next: &Self) -> Self {
        Self {
            block_bytes: self.block_bytes + next.block_bytes,
            ..self
        }
        .coalesced()
    }

    /// The same piece, relocated by the distance from `from` to `to`.
    ///
    /// # Safety
    /// As [`StridedPiece::new`], for the new address.
    pub unsafe fn moved(self, from: *mut c_void, to: *mut c_void) -> Self {
        let distance = self.base.addr().wrapping_sub(from.addr());
        Self {
            base: to.wrapping_byte_add(distance),
            ..self
        }
    }
}

unsafe extern "C" {
    fn rmpi_channel_declare(
        comm: Comm,
        direction: c_int,
        peer: c_int,
        class: c_int,
        pieces: *const StridedPiece,
        count: usize,
        id: *mut u64,
    ) -> c_int;
    fn rmpi_channel_start(ids: *const u64, count: usize) -> c_int;
    fn rmpi_channel_test(ids: *const u64, count: usize, done: *mut c_int) -> c_int;
    fn rmpi_channel_wait(ids: *const u64, count: usize, seconds: f64) -> c_int;
    fn rmpi_channel_move(id: u64, pieces: *const StridedPiece, count: usize) -> c_int;
    fn rmpi_channel_free(id: u64) -> c_int;
    fn rmpi_channel_leave(comm: Comm) -> c_int;
    fn rmpi_channel_failure(ids: *const u64, count: usize, failure: *mut FailureDetails) -> c_int;
}

/// Mirrors the structure in which the MPI library's channel functions report a failure.
#[repr(C)]
struct FailureDetails {
    index: usize,
    message_bytes: u64,
    room_bytes: u64,
    is_earlier: c_int,
    why: [u8; 256],
}

/// The failed end of a message, and the reason.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MessageFailure {
    /// Index among the given ends.
    pub index: usize,
    /// The reason.
    pub kind: MessageFailureKind,
}

/// Why a message failed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum MessageFailureKind {
    /// The message is longer than its receive.
    TooLong {
        /// Bytes of the message.
        message: u64,
        /// Bytes of the receive.
        room: u64,
        /// Whether the failed message is an earlier one, not the one that was waited for.
        is_earlier: bool,
    },
    /// The peer node has ended or cannot be reached. The text is the reason; empty if unknown.
    Lost(String),
    /// The peer node has left the communicator: it starts no more messages.
    Left,
}

/// An end of a channel, which sends or receives.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MessageDirection {
    /// Sends.
    Send = 0,
    /// Receives.
    Receive = 1,
}

/// Declares an end of a channel; a local operation.
pub fn declare(
    comm: Comm,
    direction: MessageDirection,
    peer: c_int,
    class: c_int,
    pieces: &[StridedPiece],
) -> Result<u64> {
    let mut id = 0;
    // SAFETY: a valid slice of pieces, whose creators guarantee the memory; `id` is one number.
    let code = unsafe {
        rmpi_channel_declare(
            comm,
            direction as c_int,
            peer,
            class,
            pieces.as_ptr(),
            pieces.len(),
            &mut id,
        )
    };
    check(code)?;
    Ok(id)
}

/// Starts all given ends.
#[inline]
pub fn start(ids: &[u64]) -> Result<()> {
    // SAFETY: a valid slice.
    check(unsafe { rmpi_channel_start(ids.as_ptr(), ids.len()) })
}

/// Whether each of the given ends is complete or was never started.
#[inline]
pub fn test(ids: &[u64]) -> Result<bool> {
    let mut done = 0;
    // SAFETY: a valid slice; `done` is one int.
    check(unsafe { rmpi_channel_test(ids.as_ptr(), ids.len(), &mut done) })?;
    Ok(done != 0)
}

/// Waits until all given ends are complete, for at most `seconds`; `None`: without a time limit.
#[inline]
pub fn wait(ids: &[u64], seconds: Option<f64>) -> Result<()> {
    // SAFETY: a valid slice.
    check(unsafe { rmpi_channel_wait(ids.as_ptr(), ids.len(), seconds.unwrap_or(-1.0)) })
}

/// Replaces the memory of an end.
pub fn change(id: u64, pieces: &[StridedPiece]) -> Result<()> {
    // SAFETY: a valid slice of pieces, whose creators guarantee the memory.
    check(unsafe { rmpi_channel_move(id, pieces.as_ptr(), pieces.len()) })
}

/// Leaves a communicator: this node starts no more messages there, and peers that wait for one get an error.
pub fn leave(comm: Comm) -> Result<()> {
    // SAFETY: a plain value.
    check(unsafe { rmpi_channel_leave(comm) })
}

/// The first failure among these ends in their last wait or test, if there is one.
pub fn last_failure(ids: &[u64]) -> Option<MessageFailure> {
    let mut details = FailureDetails {
        index: 0,
        message_bytes: 0,
        room_bytes: 0,
        is_earlier: 0,
        why: [0; 256],
    };
    // SAFETY: a valid slice; `details` is one structure with the library's layout.
    let code = unsafe { rmpi_channel_failure(ids.as_ptr(), ids.len(), &mut details) };
    let kind = match code {
        TOO_LONG => MessageFailureKind::TooLong {
            message: details.message_bytes,
            room: details.room_bytes,
            is_earlier: details.is_earlier != 0,
        },
        LOST => {
            let reason = CStr::from_bytes_until_nul(&details.why).unwrap_or_default();
            MessageFailureKind::Lost(reason.to_string_lossy().into_owned())
        }
        LEFT => MessageFailureKind::Left,
        _ => return None,
    };
    let index = details.index;
    Some(MessageFailure { index, kind })
}

const TOO_LONG: c_int = 6;
const LOST: c_int = 8;
const LEFT: c_int = 11;

/// Frees an end.
pub fn free(id: u64) -> Result<()> {
    // SAFETY: a plain value.
    check(unsafe { rmpi_channel_free(id) })
}

#[inline]
fn check(code: c_int) -> Result<()> {
    if code == 0 {
        Ok(())
    } else {
        Err(failure(code))
    }
}

#[cold]
fn failure(code: c_int) -> QmpFailure {
    let (status, text) = match code {
        1 => (QmpStatus::BAD_MESSAGE, "the message handle was freed"),
        2 => (
            QmpStatus::INVALID_OP,
            "the message was started and is not complete yet: wait for it first",
        ),
        3 => (QmpStatus::NODE_OUTRANGE, "there is no node of that number"),
        4 => (QmpStatus::INVALID_ARG, "the communicator was freed"),
        5 => (
            QmpStatus::BAD_MEMORY,
            "the memory of the message is no memory that can be",
        ),
        TOO_LONG => (
            QmpStatus::MEMSIZE_ERR,
            "the message is longer than its receive has room for",
        ),
        7 => (
            QmpStatus::TIMEOUT,
            "the message was not complete when the time of RMPI_QMP_TIMEOUT was over",
        ),
        LOST => (
            QmpStatus::ERROR,
            "the other node has ended or cannot be reached any more",
        ),
        9 => (
            QmpStatus::NOMEM_ERR,
            "there is not enough memory for another message",
        ),
        10 => (
            QmpStatus::NOT_INITED,
            "MPI is not initialised, or was finalised",
        ),
        LEFT => (
            QmpStatus::ERROR,
            "the other node has finalised QMP, or freed the communicator",
        ),
        _ => (
            QmpStatus::ERROR,
            "the channel answered with an unknown code",
        ),
    };
    QmpFailure::new(status, text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn piece(base: usize, block_bytes: usize, blocks: usize, stride: isize) -> StridedPiece {
        // SAFETY: nothing is sent from it.
        unsafe {
            StridedPiece::new(
                core::ptr::without_provenance_mut(base),
                block_bytes,
                blocks,
                stride,
            )
        }
    }

    #[test]
    fn contiguous_blocks_are_coalesced() {
        assert_eq!(piece(64, 8, 4, 8).coalesced(), piece(64, 32, 1, 32));
        assert_eq!(piece(64, 8, 4, 16).coalesced(), piece(64, 8, 4, 16));
        assert_eq!(piece(64, 8, 4, -8).coalesced(), piece(64, 8, 4, -8));
        assert_eq!(piece(64, usize::MAX, 4, 8).bytes(), None);
    }

    #[test]
    fn qmpl_039_a_moved_piece_keeps_its_place_in_the_message() {
        let from = core::ptr::without_provenance_mut(1000);
        let to = core::ptr::without_provenance_mut(5000);
        // SAFETY: nothing is sent from it.
        let moved = unsafe { piece(1100, 8, 2, 16).moved(from, to) };
        assert_eq!(moved, piece(5100, 8, 2, 16));
    }

    #[test]
    fn channel_error_codes_map_to_qmp_statuses() {
        assert_eq!(failure(6).status, QmpStatus::MEMSIZE_ERR);
        assert_eq!(failure(7).status, QmpStatus::TIMEOUT);
        assert_eq!(failure(2).status, QmpStatus::INVALID_OP);
        assert_eq!(failure(77).status, QmpStatus::ERROR);
    }
}
