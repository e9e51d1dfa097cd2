// SPDX-License-Identifier: MIT OR Apache-2.0
//! Lists in memory that the debugger gives and takes back.
//!
//! # Safety
//! A list owns `room` items of memory from the debugger's allocator, of which the first `len` are initialized (**L1**).
#![allow(unsafe_code, reason = "memory from another allocator")]

use core::ffi::c_void;

use crate::image::Trouble;
use crate::interface::BasicCallbacks;

/// The debugger's allocator.
#[derive(Clone, Copy, Debug)]
pub struct Allocator {
    malloc: unsafe extern "C" fn(usize) -> *mut c_void,
    free: unsafe extern "C" fn(*mut c_void),
}

impl Allocator {
    /// The allocator of a table, if it has one.
    ///
    /// # Safety
    /// The functions are those of a C allocator: memory for any type, until it is freed.
    pub unsafe fn of(table: &BasicCallbacks) -> Result<Self, Trouble> {
        let functions = table.malloc.zip(table.free);
        let (malloc, free) = functions.ok_or(Trouble::NoCallback)?;
        Ok(Self { malloc, free })
    }

    /// Memory for one value, which it holds from now on.
    pub fn place<T>(self, value: T) -> Result<*mut T, Trouble> {
        let place: *mut T = self.room(1)?;
        // SAFETY: memory for one `T`, aligned for any type, that nobody else knows.
        unsafe { place.write(value) };
        Ok(place)
    }

    /// Gives back what [`place`](Self::place) gave.
    ///
    /// # Safety
    /// It is from there, and nobody uses it any more.
    pub unsafe fn take_back<T>(self, place: *mut T) {
        // SAFETY: from this allocator, and unused: promised.
        unsafe { (self.free)(place.cast()) };
    }

    fn room<T>(self, items: usize) -> Result<*mut T, Trouble> {
        const { assert!(align_of::<T>() <= 16, "what a C allocator gives") };
        let bytes = items.checked_mul(size_of::<T>()).ok_or(Trouble::NoMemory)?;
        // SAFETY: a C allocator takes any size.
        let memory: *mut T = unsafe { (self.malloc)(bytes) }.cast();
        if memory.is_null() || !memory.is_aligned() {
            return Err(Trouble::NoMemory);
        }
        Ok(memory)
    }
}

/// A list that grows; [`clear`](Self::clear) gives its memory back.
#[derive(Debug)]
pub struct GrowableList<T> {
    items: *mut T,
    len: usize,
    room: usize,
}

impl<T: Copy> GrowableList<T> {
    /// An empty one.
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
    /// When there is no memory; the list stays as it was.
    pub fn push(&mut self, allocator: Allocator, item: T) -> Result<(), Trouble> {
        if self.len == self.room {
            self.grow(allocator)?;
        }
        // SAFETY: within the memory: L1, and `grow` has made room for one more.
        let place = unsafe { self.items.add(self.len) };
        // SAFETY: as above; `T` is plain data, so nothing is there to drop.
        unsafe { place.write(item) };
        self.len += 1;
        Ok(())
    }

    /// Empties it, and gives its memory back.
    pub fn clear(&mut self, allocator: Allocator) {
        if !self.items.is_null() {
            // SAFETY: from this allocator, as the debugger has one; nobody has it after this.
            unsafe { allocator.take_back(self.items) };
        }
        *self = Self::new();
    }

    /// The items.
    #[must_use]
    pub fn as_slice(&self) -> &[T] {
        if self.items.is_null() {
            return &[];
        }
        // SAFETY: that many are initialized (L1), and stay so while this list is borrowed.
        unsafe { core::slice::from_raw_parts(self.items, self.len) }
    }

    /// The items, to change.
    pub fn as_mut_slice(&mut self) -> &mut [T] {
        if self.items.is_null() {
            return &mut [];
        }
        // SAFETY: that many are initialized (L1); the list is borrowed by this alone.
        unsafe { core::slice::from_raw_parts_mut(self.items, self.len) }
    }

    fn grow(&mut self, allocator: Allocator) -> Result<(), Trouble> {
        let room = self.room.saturating_mul(2).max(32);
        let items: *mut T = allocator.room(room)?;
        if !self.items.is_null() {
            // SAFETY: `len` items are there (L1), there is room for more, and fresh memory overlaps with none.
            unsafe { items.copy_from_nonoverlapping(self.items, self.len) };
            // SAFETY: from this allocator, and nobody has it after this.
            unsafe { allocator.take_back(self.items) };
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
