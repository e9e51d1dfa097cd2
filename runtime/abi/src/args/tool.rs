// SPDX-License-Identifier: MIT OR Apache-2.0
//! Values of MPI_T variables: the program's memory, whose element type is the datatype of the variable.
//!
//! # Safety
//! The rule A3 of [`crate::args`]. The standard fixes how much memory a call accesses. A value has as many elements of
//! the variable's datatype as `MPI_T_cvar_handle_alloc` or `MPI_T_pvar_handle_alloc` returned; a text ends at its NUL;
//! an object is one handle. No alignment is assumed: tools pass arrays of characters.
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

    /// The first `N` bytes; `N` is the size of the variable's datatype (A3).
    pub fn bytes<const N: usize>(&self) -> Result<[u8; N]> {
        self.item(0)
    }

    /// The bytes of element `at`; `at` is below the variable's count (A3).
    pub fn item<const N: usize>(&self, at: usize) -> Result<[u8; N]> {
        if self.pointer.is_null() {
            return Err(Error::null(self.name));
        }
        // SAFETY: A3, guaranteed to the constructor: the elements before element `at` lie in the same memory.
        let place = unsafe { self.pointer.cast::<[u8; N]>().add(at) };
        // SAFETY: as above: it may be read; an array of bytes has no alignment.
        Ok(unsafe { place.read() })
    }

    /// The text without its NUL; `None` if the first `most` bytes contain no NUL. `most` is the variable's count (A3).
    pub fn text(&self, most: usize) -> Result<Option<Vec<u8>>> {
        if self.pointer.is_null() {
            return Err(Error::null(self.name));
        }
        let mut text = Vec::new();
        for at in 0..most {
            // SAFETY: A3, guaranteed to the constructor: no NUL precedes this byte, and `at` is below the count.
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

    /// Writes `bytes`. They must fit in the elements of the variable (A3). A pointer of NULL is an error. Only this
    /// error is allocated, so with any other pointer the function is async-signal-safe.
    pub fn set(&self, bytes: &[u8]) -> Result<()> {
        self.set_from(0, bytes)
    }

    /// Writes the bytes of element `at`; `at` is below the variable's count (A3).
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

/// The address of the handle of an object, to which a variable is to be bound.
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

    /// The handle's bits. May be called only for a variable that is bound to an object; for other variables nothing
    /// dereferences the pointer (A3).
    pub fn bits(&self) -> Result<usize> {
        if self.pointer.is_null() {
            return Err(Error::null(self.name));
        }
        // SAFETY: A3, guaranteed to the constructor: the pointer is to a handle, which is as wide as a pointer.
        Ok(unsafe { self.pointer.read_unaligned() })
    }
}

#[cfg(test)]
mod tests {
    use core::ffi::{c_char, c_int};

    use super::*;
    use crate::args::{InOutArg, OutChars};

    #[test]
    fn a_tool_string_must_end_within_its_count() {
        // SAFETY: a string of four bytes.
        let value = unsafe { InValue::new("buf", c"shm".as_ptr().cast()) };
        assert_eq!(value.text(4), Ok(Some(b"shm".to_vec())));
        assert_eq!(value.text(3), Ok(None));
        // SAFETY: NULL is refused.
        let null = unsafe { InValue::new("buf", core::ptr::null()) };
        assert!(null.text(1).is_err() && null.bytes::<4>().is_err());
    }

    #[test]
    fn tool_values_are_written_and_read_unaligned() {
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
    fn s15_3_3_truncated_text_returns_the_full_length() {
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
