// SPDX-License-Identifier: MIT OR Apache-2.0
//! Lists in memory from the debugger's allocator.
//!
//! # Safety
//! A list owns `room` items of memory from the debugger's allocator, of which the first `len` are initialized (**L1**).
#![allow(unsafe_code, reason = "memory from another allocator")]

use core::ffi::c_void;

use crate::image::MqsError;
use crate::interface::BasicCallbacks;

/// The debugger's allocator.
#[derive(Clone, Copy, Debug)]
pub struct Allocator {
    malloc: unsafe extern "C" fn(usize) -> *mut c_void,
    free: unsafe extern "C" fn(*mut c_void),
}

impl Allocator {
    /// The allocator of a table; an error if the table has none.
    ///
    /// # Safety
    /// `malloc` and `free` of the table are those of a C allocator: memory is aligned for any type, and valid until it
    /// is freed.
    pub unsafe fn of(table: &BasicCallbacks) -> Result<Self, MqsError> {
        let functions = table.malloc.zip(table.free);
        let (malloc, free) = functions.ok_or(MqsError::NoCallback)?;
        Ok(Self { malloc, free })
    }

    /// Allocates memory for one value and stores the value there.
    pub fn store<T>(self, value: T) -> Result<*mut T, MqsError> {
        let place: *mut T = self.room(1)?;
        // SAFETY: memory for one `T`, aligned for any type, with no other reference to it.
        unsafe { place.write(value) };
        Ok(place)
    }

    /// Frees memory that [`store`](Self::store) returned.
    ///
    /// # Safety
    /// `place` is from [`store`](Self::store) of this allocator, and is not used any more.
    pub unsafe fn release<T>(self, place: *mut T) {
        // SAFETY: from this allocator, and unused: the caller's obligation.
        unsafe { (self.free)(place.cast()) };
    }

    fn room<T>(self, items: usize) -> Result<*mut T, MqsError> {
        const { assert!(align_of::<T>() <= 16, "the alignment of a C allocator") };
        let bytes = items
            .checked_mul(size_of::<T>())
            .ok_or(MqsError::NoMemory)?;
        // SAFETY: a C allocator takes any size.
        let memory: *mut T = unsafe { (self.malloc)(bytes) }.cast();
        if memory.is_null() || !memory.is_aligned() {
            return Err(MqsError::NoMemory);
        }
        Ok(memory)
    }
}

/// A list that grows; only [`clear`](Self::clear) frees its memory.
#[derive(Debug)]
pub struct GrowableList<T> {
    items: *mut T,
    len: usize,
    room: usize,
}

impl<T: Copy> GrowableList<T> {
    /// An empty list, without memory.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            items: core::ptr::null_mut(),
            len: 0,
            room: 0,
        }
    }

    /// Adds an item.
    ///
    /// # Errors
    /// When no memory can be allocated; the list is unchanged.
    pub fn push(&mut self, allocator: Allocator, item: T) -> Result<(), MqsError> {
        if self.len == self.room {
            self.grow(allocator)?;
        }
        // SAFETY: within the memory: L1, and `grow` has made room for one more.
        let place = unsafe { self.items.add(self.len) };
        // SAFETY: as above; `T` is `Copy`, so there is nothing to drop.
        unsafe { place.write(item) };
        self.len += 1;
        Ok(())
    }

    /// Removes all items and frees the memory.
    pub fn clear(&mut self, allocator: Allocator) {
        if !self.items.is_null() {
            // SAFETY: from this allocator, since a debugger has only one; not used after this.
            unsafe { allocator.release(self.items) };
        }
        *self = Self::new();
    }

    /// The items.
    #[must_use]
    pub fn as_slice(&self) -> &[T] {
        if self.items.is_null() {
            return &[];
        }
        // SAFETY: `len` items are initialized (L1), and stay so while this list is borrowed.
        unsafe { core::slice::from_raw_parts(self.items, self.len) }
    }

    /// The items, mutable.
    pub fn as_mut_slice(&mut self) -> &mut [T] {
        if self.items.is_null() {
            return &mut [];
        }
        // SAFETY: `len` items are initialized (L1); the list is borrowed exclusively.
        unsafe { core::slice::from_raw_parts_mut(self.items, self.len) }
    }

    fn grow(&mut self, allocator: Allocator) -> Result<(), MqsError> {
        let room = self.room.saturating_mul(2).max(32);
        let items: *mut T = allocator.room(room)?;
        if !self.items.is_null() {
            // SAFETY: `len` items are initialized (L1), the new memory has room for more, and fresh memory does not overlap.
            unsafe { items.copy_from_nonoverlapping(self.items, self.len) };
            // SAFETY: from this allocator, and not used after this.
            unsafe { allocator.release(self.items) };
        }
        (self.items, self.room) = (items, room);
        Ok(())
    }
}

impl<T: Copy> Default for GrowableList<T> {
    fn default() -> Self {
        Self::new()
    }
}
