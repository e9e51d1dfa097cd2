// SPDX-License-Identifier: MIT OR Apache-2.0
//! The application's memory, lent to the library from the start of an operation until its completion.
//!
//! # Safety
//! The C layer makes a [`UserMemory`] from the application's arguments. Only that layer asserts the lifetime (MPI 5.0
//! sections 2.5.1, 3.7.2 and 3.2.2: the buffer exists, and the application does not use it against the rules of
//! [`UserMemory::new`] until the operation is complete). Request slots store the buffer's address, and only
//! [`crate::messages`] fills slots, always from a `UserMemory`. So the address and length in the slot of an operation
//! that is not complete denote lent memory. The functions below borrow that memory for one copy at a time, and none of
//! them keeps a borrow. These copies are made during visits, and a [`crate::Universe`] is visited by one thread at a
//! time, so only one copy to or from the memory of a slot is in progress at any time.
#![allow(unsafe_code)]

use std::ops::Range;
use std::ptr::NonNull;

use engine::RequestFields;
use transport::Lease;
use transport::copy::copy_overlapping;

/// A contiguous range of the application's memory.
#[derive(Clone, Copy, Debug)]
pub struct UserMemory {
    base: *mut u8,
    bytes: usize,
}

// SAFETY: the type is an address and a length. The rules for its use bind the application, and do not depend on the
// thread.
unsafe impl Send for UserMemory {}

impl UserMemory {
    /// Memory that the application lends.
    ///
    /// # Safety
    /// Until the operation to which it is passed is complete, `bytes` bytes at `base` are readable, and the application
    /// does not write there. If the operation receives data there, the bytes are also writable, and the application
    /// does not read there.
    #[must_use]
    pub unsafe fn new(base: *mut u8, bytes: usize) -> Self {
        Self { base, bytes }
    }

    /// A range of no bytes.
    #[must_use]
    pub const fn nothing() -> Self {
        Self {
            base: std::ptr::null_mut(),
            bytes: 0,
        }
    }

    /// Memory of the library, lent like memory of the application. It must outlive the operation.
    #[must_use]
    pub fn of(bytes: &mut [u8]) -> Self {
        Self {
            base: bytes.as_mut_ptr(),
            bytes: bytes.len(),
        }
    }

    /// Memory of the library from which data are only sent. It must outlive the operation.
    #[must_use]
    pub fn of_const(bytes: &[u8]) -> Self {
        Self {
            base: bytes.as_ptr().cast_mut(),
            bytes: bytes.len(),
        }
    }

    /// Address of the first byte.
    #[must_use]
    pub fn address(self) -> u64 {
        self.base.expose_provenance() as u64
    }

    /// Length in bytes.
    #[must_use]
    pub fn bytes(self) -> usize {
        self.bytes
    }

    /// Pointer to the first byte, for the pack routines.
    pub(crate) fn base(self) -> *mut u8 {
        self.base
    }

    /// The bytes, for one copy from them.
    #[must_use]
    pub fn as_slice(&self) -> &[u8] {
        if self.bytes == 0 {
            return &[];
        }
        // SAFETY: the memory is lent and readable (`new`), and nothing writes there while the slice exists.
        unsafe { std::slice::from_raw_parts(self.base, self.bytes) }
    }

    /// The part of this memory in `range`. The range is clipped to the end of the memory.
    #[must_use]
    pub fn part(self, range: Range<usize>) -> Self {
        let start = range.start.min(self.bytes);
        Self {
            base: self.base.wrapping_add(start),
            bytes: range.end.clamp(start, self.bytes) - start,
        }
    }

    /// This range and `next` as one range; `None`: `next` does not begin where this range ends. Both must be parts of
    /// one buffer of the application, so the joined range is lent memory too. The blocks of a collective are such parts
    /// (MPI 5.0 sections 6.5 to 6.8: blocks are at offsets from one address).
    pub(crate) fn joined(self, next: Self) -> Option<Self> {
        let follows = self.address() + self.bytes as u64 == next.address();
        follows.then_some(Self {
            base: self.base,
            bytes: self.bytes + next.bytes,
        })
    }

    /// Copies from other memory of the same length. The two ranges may overlap.
    pub fn copy_from(self, from: Self) {
        let bytes = self.bytes.min(from.bytes);
        if bytes > 0 {
            // SAFETY: both ranges are lent (`new`) and have at least `bytes` bytes; this one is writable. The copy
            // allows overlap.
            unsafe { copy_overlapping(from.base, self.base, bytes) };
        }
    }

    /// The bytes, for one copy into them.
    pub fn as_mut_slice(&mut self) -> &mut [u8] {
        if self.bytes == 0 {
            return &mut [];
        }
        // SAFETY: the memory is lent and writable (`new`), and nothing else uses it while the slice exists.
        unsafe { std::slice::from_raw_parts_mut(self.base, self.bytes) }
    }
}

/// Bytes `offset .. offset + bytes` of a request's buffer, clipped to its end.
pub(crate) fn of_request(fields: &RequestFields, offset: u64, bytes: u64) -> UserMemory {
    let offset = offset.min(fields.bytes);
    let bytes = bytes.min(fields.bytes - offset);
    let address = usize::try_from(fields.buffer.wrapping_add(offset)).unwrap_or(0);
    UserMemory {
        base: std::ptr::with_exposed_provenance_mut(address),
        bytes: usize::try_from(bytes).unwrap_or(0),
    }
}

/// The first `bytes` bytes of the buffer at `address`, which must be that of a receive that was just matched. `bytes`
/// must be at most the length of the buffer.
#[inline(always)]
pub(crate) fn of_matched(address: u64, bytes: u64) -> UserMemory {
    UserMemory {
        base: std::ptr::with_exposed_provenance_mut(usize::try_from(address).unwrap_or(0)),
        bytes: usize::try_from(bytes).unwrap_or(0),
    }
}

/// Writes a word to the buffer at address `buffer`, which must be that of a receive that was just matched, with at
/// least eight bytes.
#[inline(always)]
pub(crate) fn put_word(buffer: u64, word: u64) {
    let address = usize::try_from(buffer).unwrap_or(0);
    let target = std::ptr::with_exposed_provenance_mut::<u64>(address);
    // SAFETY: the slot's buffer has at least eight bytes, lent and writable until the receive is collected.
    unsafe { target.write_unaligned(word) };
}

/// The memory as a [`Lease`], with which it is lent to the transport for a one-sided operation.
pub(crate) fn lease(memory: UserMemory) -> Lease {
    let base = NonNull::new(memory.base).unwrap_or(NonNull::dangling());
    // SAFETY: the memory is lent until the request completes, and the request completes after the lease has come back
    // (`pump.rs`).
    unsafe { Lease::new(base, memory.bytes) }
}
