// SPDX-License-Identifier: MIT OR Apache-2.0
//! Gated channels, as `libmpi_abi.so.1` has them for this library alone.
//!
//! # Safety
//! Every function is called as its library declares it. Memory of messages comes as [`StridedPiece`]s, whose maker promises that
//! the program leaves it alone as QMP wants it: there until the handle is freed, untouched between start and completion.
#![allow(unsafe_code, reason = "calls the channels of the MPI library")]

use core::ffi::{CStr, c_int, c_void};

use crate::mpi::Comm;
use crate::status::{QmpFailure, QmpStatus, Result};

/// Blocks of the same size at the same distance from each other.
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
    /// The memory is the program's; it is there as long as a message handle is that it is declared with, and the program
    /// neither changes it nor, where it is to receive, reads it while a message is under way.
    pub unsafe fn new(base: *mut c_void, block_bytes: usize, blocks: usize, stride: isize) -> Self {
        Self {
            base,
            block_bytes,
            blocks,
            stride,
        }
    }

    /// Where it begins.
    pub fn base(&self) -> *mut c_void {
        self.base
    }

    /// How many bytes it has; `None` where that is no number.
    pub fn bytes(&self) -> Option<usize> {
        self.block_bytes.checked_mul(self.blocks)
    }

    /// The same, in one block where blocks follow each other.
    pub fn joined(self) -> Self {
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

    /// Whether `next` lies right behind it.
    pub fn meets(&self, next: &Self) -> bool {
        self.blocks == 1
            && next.blocks == 1
            && self.base.wrapping_byte_add(self.block_bytes) == next.base
    }

    /// Both as one.
    pub fn with(self, next: &Self) -> Self {
        Self {
            block_bytes: self.block_bytes + next.block_bytes,
            ..self
        }
        .joined()
    }

    /// The same shape elsewhere: moved as far as `from` is from `to`.
    ///
    /// # Safety
    /// As [`StridedPiece::new`], for the new place.
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
    fn rmpi_channel_failure(ids: *const u64, count: usize, failure: *mut Details) -> c_int;
}

#[repr(C)]
struct Details {
    index: usize,
    message_bytes: u64,
    room_bytes: u64,
    is_earlier: c_int,
    why: [u8; 256],
}

/// Which part of a message failed, and why.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MessageFailure {
    /// Which of the ends that were asked for.
    pub index: usize,
    /// What went wrong.
    pub kind: MessageFailureKind,
}

/// Why a message failed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum MessageFailureKind {
    /// It is too long.
    TooLong {
        /// Its bytes.
        message: u64,
        /// What its receive has room for.
        room: u64,
        /// It was one before the message that was asked for.
        is_earlier: bool,
    },
    /// The other node has died or cannot be reached, with the reason.
    Lost(String),
    /// The other node starts nothing more.
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

/// Declares an end; local.
pub fn declare(
    comm: Comm,
    direction: MessageDirection,
    peer: c_int,
    class: c_int,
    pieces: &[StridedPiece],
) -> Result<u64> {
    let mut id = 0;
    // SAFETY: the slice is whole; the memory behind it is as its makers promise; `id` is one number.
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

/// Starts all of them.
#[inline]
pub fn start(ids: &[u64]) -> Result<()> {
    // SAFETY: the slice is whole.
    check(unsafe { rmpi_channel_start(ids.as_ptr(), ids.len()) })
}

/// Whether all are complete, or were never started.
#[inline]
pub fn test(ids: &[u64]) -> Result<bool> {
    let mut done = 0;
    // SAFETY: the slice is whole; `done` is one int.
    check(unsafe { rmpi_channel_test(ids.as_ptr(), ids.len(), &mut done) })?;
    Ok(done != 0)
}

/// Waits until all are complete; at most so many seconds.
#[inline]
pub fn wait(ids: &[u64], seconds: Option<f64>) -> Result<()> {
    // SAFETY: the slice is whole.
    check(unsafe { rmpi_channel_wait(ids.as_ptr(), ids.len(), seconds.unwrap_or(-1.0)) })
}

/// Gives an end other memory.
pub fn change(id: u64, pieces: &[StridedPiece]) -> Result<()> {
    // SAFETY: the slice is whole; the memory behind it is as its makers promise.
    check(unsafe { rmpi_channel_move(id, pieces.as_ptr(), pieces.len()) })
}

/// Starts nothing more in a communicator: who waits for this node there is told.
pub fn leave(comm: Comm) -> Result<()> {
    // SAFETY: a plain value.
    check(unsafe { rmpi_channel_leave(comm) })
}

/// How the first of these has failed that has, when they were waited for or tested last.
pub fn why(ids: &[u64]) -> Option<MessageFailure> {
    let mut details = Details {
        index: 0,
        message_bytes: 0,
        room_bytes: 0,
        is_earlier: 0,
        why: [0; 256],
    };
    // SAFETY: the slice is whole; `details` is one structure, as the library has it.
    let code = unsafe { rmpi_channel_failure(ids.as_ptr(), ids.len(), &mut details) };
    let kind = match code {
        TOO_LONG => MessageFailureKind::TooLong {
            message: details.message_bytes,
            room: details.room_bytes,
            is_earlier: details.is_earlier != 0,
        },
        LOST => {
            let words = CStr::from_bytes_until_nul(&details.why).unwrap_or_default();
            MessageFailureKind::Lost(words.to_string_lossy().into_owned())
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

/// Gives an end back.
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
    fn blocks_without_gaps_are_one_block() {
        assert_eq!(piece(64, 8, 4, 8).joined(), piece(64, 32, 1, 32));
        assert_eq!(piece(64, 8, 4, 16).joined(), piece(64, 8, 4, 16));
        assert_eq!(piece(64, 8, 4, -8).joined(), piece(64, 8, 4, -8));
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
    fn every_code_of_a_channel_has_a_status_of_its_own_kind() {
        assert_eq!(failure(6).status, QmpStatus::MEMSIZE_ERR);
        assert_eq!(failure(7).status, QmpStatus::TIMEOUT);
        assert_eq!(failure(2).status, QmpStatus::INVALID_OP);
        assert_eq!(failure(77).status, QmpStatus::ERROR);
    }
}
