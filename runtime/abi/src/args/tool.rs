// SPDX-License-Identifier: MIT OR Apache-2.0
//! Values of MPI_T variables: memory of the program, whose type is that of the variable.
//!
//! # Safety
//! The rule A3 of [`crate::args`]. By the standard a call uses, of a value, as many elements of the variable's datatype as
//! `MPI_T_cvar_handle_alloc` or `MPI_T_pvar_handle_alloc` returned; of a text, up to its NUL; of an object, one handle. No alignment
//! is assumed: tools pass arrays of characters.
#![allow(unsafe_code, reason = "a part of args")]

use core::ffi::c_void;
use core::marker::PhantomData;

use crate::error::{Error, Result};

/// A value that is read.
#[derive(Clone, Copy, Debug)]
pub struct InValue<'a> {
    name: &'static str,
    pointer: *const u8,
    call: PhantomData<&'a u8>,
}

impl InValue<'_> {
    /// The parameter `name`.
    ///
    /// # Safety
    /// A3.
    pub unsafe fn new(name: &'static str, pointer: *const c_void) -> Self {
        Self {
            name,
            pointer: pointer.cast(),
            call: PhantomData,
        }
    }

    /// The first bytes: as many as the variable's datatype has (A3).
    pub fn bytes<const N: usize>(&self) -> Result<[u8; N]> {
        self.item(0)
    }

    /// The bytes of element `at`, which is below the variable's count (A3).
    pub fn item<const N: usize>(&self, at: usize) -> Result<[u8; N]> {
        if self.pointer.is_null() {
            return Err(Error::null(self.name));
        }
        // SAFETY: A3, guaranteed to the constructor: the elements before it lie in the same memory.
        let place = unsafe { self.pointer.cast::<[u8; N]>().add(at) };
        // SAFETY: as above: it may be read; an array of bytes has no alignment.
        Ok(unsafe { place.read() })
    }

    /// The text, if its NUL is among the first `most` bytes, which is the variable's count (A3).
    pub fn text(&self, most: usize) -> Result<Option<Vec<u8>>> {
        if self.pointer.is_null() {
            return Err(Error::null(self.name));
        }
        let mut text = Vec::new();
        for at in 0..most {
            // SAFETY: A3, guaranteed to the constructor: no NUL came yet and `at` is below the count.
            let place = unsafe { self.pointer.add(at) };
            // SAFETY: as above: it may be read.
            let byte = unsafe { place.read() };
            if byte == 0 {
                return Ok(Some(text));
            }
            text.push(byte);
        }
        Ok(None)
    }
}

/// An output value.
#[derive(Clone, Copy, Debug)]
pub struct OutValue<'a> {
    name: &'static str,
    pointer: *mut u8,
    call: PhantomData<&'a u8>,
}

impl OutValue<'_> {
    /// The parameter `name`.
    ///
    /// # Safety
    /// A3.
    pub unsafe fn new(name: &'static str, pointer: *mut c_void) -> Self {
        Self {
            name,
            pointer: pointer.cast(),
            call: PhantomData,
        }
    }

    /// Whether the pointer is NULL.
    pub fn is_null(&self) -> bool {
        self.pointer.is_null()
    }

    /// Writes all these bytes: no more than the variable's elements have (A3). It does not allocate, so that signal handlers can
    /// call it, except for the error on NULL.
    pub fn set(&self, bytes: &[u8]) -> Result<()> {
        self.set_from(0, bytes)
    }

    /// The same for element `at`, which is below the variable's count.
    pub fn set_item<const N: usize>(&self, at: usize, bytes: &[u8; N]) -> Result<()> {
        self.set_from(N * at, bytes)
    }

    fn set_from(&self, first: usize, bytes: &[u8]) -> Result<()> {
        if self.pointer.is_null() {
            return Err(Error::null(self.name));
        }
        for (at, byte) in (first..).zip(bytes) {
            // SAFETY: A3, guaranteed to the constructor.
            let place = unsafe { self.pointer.add(at) };
            // SAFETY: as above: it may be written.
            unsafe { place.write(*byte) };
        }
        Ok(())
    }
}

/// The address of a handle that a variable is to be bound to.
#[derive(Clone, Copy, Debug)]
pub struct ToolObject<'a> {
    name: &'static str,
    pointer: *const usize,
    call: PhantomData<&'a usize>,
}

impl ToolObject<'_> {
    /// The parameter `name`.
    ///
    /// # Safety
    /// A3.
    pub unsafe fn new(name: &'static str, pointer: *mut c_void) -> Self {
        Self {
            name,
            pointer: pointer.cast(),
            call: PhantomData,
        }
    }

    /// The number of the handle, for a variable that is bound to an object (A3: of others it is never looked at).
    pub fn bits(&self) -> Result<usize> {
        if self.pointer.is_null() {
            return Err(Error::null(self.name));
        }
        // SAFETY: A3, guaranteed to the constructor: a handle lies there, which is as wide as a pointer.
        Ok(unsafe { self.pointer.read_unaligned() })
    }
}

#[cfg(test)]
mod tests {
    use core::ffi::{c_char, c_int};

    use super::*;
    use crate::args::{InOutArg, OutChars};

    #[test]
    fn a_text_ends_within_its_count_or_is_none() {
        // SAFETY: a string of four bytes.
        let value = unsafe { InValue::new("buf", c"shm".as_ptr().cast()) };
        assert_eq!(value.text(4), Ok(Some(b"shm".to_vec())));
        assert_eq!(value.text(3), Ok(None));
        // SAFETY: NULL is refused.
        let null = unsafe { InValue::new("buf", core::ptr::null()) };
        assert!(null.text(1).is_err() && null.bytes::<4>().is_err());
    }

    #[test]
    fn values_go_out_as_they_are_and_come_in_again() {
        let mut room = [0_u8; 9];
        // SAFETY: a local array with room for one number that is not aligned.
        let out = unsafe { OutValue::new("buf", room[1..].as_mut_ptr().cast()) };
        out.set(&7_u64.to_ne_bytes()).unwrap();
        // SAFETY: as above.
        let value = unsafe { InValue::new("buf", room[1..].as_ptr().cast()) };
        assert_eq!(value.bytes().map(u64::from_ne_bytes), Ok(7));
        // SAFETY: NULL is refused.
        let null = unsafe { ToolObject::new("obj_handle", core::ptr::null_mut()) };
        assert!(null.bits().is_err());
    }

    fn text_of(capacity: c_int, text: &str) -> (String, c_int) {
        let mut room = [b'#' as c_char; 8];
        let mut length = capacity;
        // SAFETY: a local array of eight, which no capacity here exceeds.
        let chars = unsafe { OutChars::optional(room.as_mut_ptr()) };
        // SAFETY: a local number.
        let places = unsafe { InOutArg::optional(&raw mut length) };
        crate::tool::put_text(chars, places, text);
        (room.iter().map(|c| *c as u8 as char).collect(), length)
    }

    #[test]
    fn s15_3_3_text_is_cut_to_its_room_and_its_length_is_always_told() {
        assert_eq!(text_of(8, "abc"), ("abc\0####".to_owned(), 4));
        assert_eq!(text_of(4, "abc"), ("abc\0####".to_owned(), 4));
        assert_eq!(text_of(3, "abc"), ("ab\0#####".to_owned(), 4));
        assert_eq!(text_of(1, "abc"), ("\0#######".to_owned(), 4));
        for nothing in [0, -1] {
            assert_eq!(text_of(nothing, "abc"), ("########".to_owned(), 4));
        }
        assert_eq!(text_of(5, ""), ("\0#######".to_owned(), 1));
    }
}
