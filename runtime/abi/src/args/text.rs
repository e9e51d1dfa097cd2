// SPDX-License-Identifier: MIT OR Apache-2.0
//! Parameters that are input or output strings.
//!
//! # Safety
//! The rules A3 and A4 of [`crate::args`].
#![allow(unsafe_code, reason = "a part of args")]

use core::ffi::{CStr, c_char};
use core::marker::PhantomData;
use core::ptr::NonNull;
use std::ffi::CString;

use crate::error::{Error, Result};

/// The string `name`; NULL is an error.
///
/// # Safety
/// A4.
pub unsafe fn text<'a>(name: &str, pointer: *const c_char) -> Result<&'a CStr> {
    if pointer.is_null() {
        return Err(Error::null(name));
    }
    // SAFETY: A4, the caller's obligation: NUL-terminated, and unchanged during the call.
    Ok(unsafe { CStr::from_ptr(pointer) })
}

/// An output string of a known capacity.
#[derive(Debug)]
pub struct OutString<'a> {
    place: NonNull<c_char>,
    capacity: usize,
    call: PhantomData<&'a mut c_char>,
}

impl OutString<'_> {
    /// The parameter `name`, with room for `capacity` characters, including the NUL.
    ///
    /// # Safety
    /// A4.
    pub unsafe fn new(name: &str, pointer: *mut c_char, capacity: usize) -> Result<Self> {
        let place = NonNull::new(pointer).ok_or_else(|| Error::null(name))?;
        Ok(Self {
            place,
            capacity,
            call: PhantomData,
        })
    }

    /// Writes as much of `text` as fits without splitting a character, and a NUL; returns the number of bytes before
    /// the NUL. A capacity of 0 writes nothing.
    pub fn set(&self, text: &str) -> usize {
        let mut text = text.to_owned();
        crate::error::truncate(&mut text, self.capacity.saturating_sub(1));
        self.set_bytes(text.as_bytes())
    }

    /// Writes as many of `bytes` as fit, and a NUL; returns the number of bytes before the NUL. A capacity of 0 writes
    /// nothing.
    pub fn set_bytes(&self, bytes: &[u8]) -> usize {
        let Some(room) = self.capacity.checked_sub(1) else {
            return 0;
        };
        let bytes = &bytes[..bytes.len().min(room)];
        for (at, byte) in bytes.iter().chain(&[0]).enumerate() {
            // SAFETY: A4, guaranteed to the constructor: `at` is below the capacity, because room is left for the NUL.
            let place = unsafe { self.place.as_ptr().add(at) };
            // SAFETY: as above: it may be written.
            unsafe { place.write(byte.cast_signed() as c_char) };
        }
        bytes.len()
    }
}

/// An output string whose capacity the body determines.
#[derive(Clone, Copy, Debug)]
pub struct OutChars<'a> {
    place: NonNull<c_char>,
    call: PhantomData<&'a c_char>,
}

impl<'a> OutChars<'a> {
    /// The parameter `name`; NULL is an error.
    ///
    /// # Safety
    /// A4.
    pub unsafe fn new(name: &str, pointer: *mut c_char) -> Result<Self> {
        let place = NonNull::new(pointer).ok_or_else(|| Error::null(name))?;
        Ok(Self {
            place,
            call: PhantomData,
        })
    }

    /// A parameter that may be NULL. `None`: it is NULL.
    ///
    /// # Safety
    /// A4.
    pub unsafe fn optional(pointer: *mut c_char) -> Option<Self> {
        NonNull::new(pointer).map(|place| Self {
            place,
            call: PhantomData,
        })
    }

    /// The output string, with a capacity that another parameter of the call gives (A4).
    pub fn within(self, capacity: usize) -> OutString<'a> {
        OutString {
            place: self.place,
            capacity,
            call: PhantomData,
        }
    }
}

/// A list of strings: `argv` and the like.
#[derive(Clone, Copy, Debug)]
pub struct Strings<'a> {
    name: &'static str,
    pointer: *mut *mut c_char,
    call: PhantomData<&'a c_char>,
}

impl Strings<'_> {
    /// The parameter `name`.
    ///
    /// # Safety
    /// A3, and A4 for each string.
    pub unsafe fn new(name: &'static str, pointer: *mut *mut c_char) -> Self {
        Self {
            name,
            pointer,
            call: PhantomData,
        }
    }

    /// Whether this is `MPI_ARGV_NULL`.
    pub fn is_null(&self) -> bool {
        self.pointer.is_null()
    }

    /// Reads the first `length` strings or, if `length` is `None`, all up to the first NULL. `MPI_ARGV_NULL` is read as
    /// an empty list.
    pub fn read(&self, length: Option<usize>) -> Result<Vec<CString>> {
        let mut list = Vec::new();
        if self.is_null() {
            return Ok(list);
        }
        while length.is_none_or(|length| list.len() < length) {
            // SAFETY: A3, guaranteed to the constructor: no NULL was read before this place, and no more than `length`
            // strings are read.
            let place = unsafe { self.pointer.add(list.len()) };
            // SAFETY: as above: it may be read.
            let string = unsafe { place.read() };
            if string.is_null() && length.is_none() {
                break;
            }
            // SAFETY: A4, guaranteed to the constructor for each string.
            let string = unsafe { text(self.name, string) }?;
            list.push(string.to_owned());
        }
        Ok(list)
    }
}

/// A list of lists of strings: the `argv`s of `MPI_Comm_spawn_multiple`.
#[derive(Clone, Copy, Debug)]
pub struct StringLists<'a> {
    name: &'static str,
    pointer: *mut *mut *mut c_char,
    call: PhantomData<&'a c_char>,
}

impl StringLists<'_> {
    /// The parameter `name`.
    ///
    /// # Safety
    /// A3 for the array of lists; A3 and A4 for each list.
    pub unsafe fn new(name: &'static str, pointer: *mut *mut *mut c_char) -> Self {
        Self {
            name,
            pointer,
            call: PhantomData,
        }
    }

    /// Reads the first `length` lists (A3). `MPI_ARGVS_NULL` is read as `length` empty lists.
    pub fn read(&self, length: usize) -> Result<Vec<Vec<CString>>> {
        if self.pointer.is_null() {
            return Ok(vec![Vec::new(); length]);
        }
        let mut lists = Vec::with_capacity(length);
        for at in 0..length {
            // SAFETY: A3, guaranteed to the constructor.
            let place = unsafe { self.pointer.add(at) };
            // SAFETY: as above: it may be read.
            let list = unsafe { place.read() };
            // SAFETY: A3 and A4, guaranteed to the constructor for each list.
            let list = unsafe { Strings::new(self.name, list) };
            lists.push(list.read(None)?);
        }
        Ok(lists)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_that_does_not_fit_is_truncated_and_null_terminated() {
        let mut room = [1; 6];
        // SAFETY: a local array of six.
        let out = unsafe { OutString::new("name", room.as_mut_ptr(), 5) }.unwrap();
        assert_eq!(out.set("MPI_COMM_WORLD"), 4);
        assert_eq!(room.map(|c| c as u8), *b"MPI_\0\x01");
        // SAFETY: a capacity of 0 is allowed: nothing is written.
        let none = unsafe { OutString::new("name", room.as_mut_ptr(), 0) }.unwrap();
        assert_eq!(none.set("x"), 0);
    }

    #[test]
    fn a_string_array_ends_at_null_or_at_its_length() {
        let (a, b) = (c"-n".as_ptr().cast_mut(), c"4".as_ptr().cast_mut());
        let mut argv = [a, b, core::ptr::null_mut()];
        // SAFETY: a local array that ends with NULL.
        let list = unsafe { Strings::new("argv", argv.as_mut_ptr()) };
        assert_eq!(
            list.read(None).unwrap(),
            [c"-n".to_owned(), c"4".to_owned()]
        );
        assert_eq!(list.read(Some(1)).unwrap(), [c"-n".to_owned()]);
        assert!(
            list.read(Some(3))
                .unwrap_err()
                .detail()
                .contains("`argv` is NULL")
        );
    }
}
