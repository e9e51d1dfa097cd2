// SPDX-License-Identifier: MIT OR Apache-2.0
//! Converts strings: `CHARACTER` variables are blank-padded and have a length argument, C strings are NUL-terminated.
//! MPI 5.0 section 19.1.10 does not specify the conversion; the rules are in the description of each function.
//!
//! # Safety
//! Rule F (`lib.rs`): a [`Chars`] is the address of as many characters as the length argument gives.

use core::ffi::c_char;
use core::slice;

/// The address of a `CHARACTER` variable, or of an array of them; the length is another argument.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub(crate) struct Chars(*mut u8);

impl Chars {
    fn bytes<'call>(self, length: usize) -> &'call [u8] {
        if self.0.is_null() || length == 0 {
            return &[];
        }
        // SAFETY: rule F: `length` characters may be read while the call runs, and are not written meanwhile.
        unsafe { slice::from_raw_parts(self.0, length) }
    }

    /// The text without trailing blanks, for C.
    pub(crate) fn text(self, length: usize) -> Text {
        Text::of(end_trimmed(self.bytes(length)))
    }

    /// The text without leading and trailing blanks, for info keys and values (MPI 5.0 chapter 10).
    pub(crate) fn trimmed(self, length: usize) -> Text {
        let text = end_trimmed(self.bytes(length));
        let start = text.iter().take_while(|byte| **byte == b' ').count();
        Text::of(&text[start..])
    }

    /// Item `place` of an array whose items have `length` characters.
    pub(crate) fn item(self, place: usize, length: usize) -> Self {
        Self(self.0.wrapping_add(place * length))
    }

    /// Writes a text from C, truncated or blank-padded.
    pub(crate) fn give(self, text: &[u8], length: usize) {
        if self.0.is_null() {
            return;
        }
        for place in 0..length {
            let byte = text.get(place).copied().unwrap_or(b' ');
            // SAFETY: rule F: `length` characters may be written.
            unsafe { *self.0.wrapping_add(place) = byte };
        }
    }

    /// The address, for comparison with constants.
    pub(crate) fn as_ptr(self) -> *const u8 {
        self.0
    }
}

/// Removes trailing blanks, but no other white space.
fn end_trimmed(text: &[u8]) -> &[u8] {
    let blanks = text.iter().rev().take_while(|byte| **byte == b' ').count();
    &text[..text.len() - blanks]
}

/// A NUL-terminated text.
pub(crate) struct Text(Vec<u8>);

impl Text {
    fn of(bytes: &[u8]) -> Self {
        // The text ends at its first NUL, as for C.
        let bytes = bytes.split(|byte| *byte == 0).next().unwrap_or_default();
        let mut text = Vec::with_capacity(bytes.len() + 1);
        text.extend_from_slice(bytes);
        text.push(0);
        Self(text)
    }

    /// The pointer for C.
    pub(crate) fn as_ptr(&self) -> *const c_char {
        self.0.as_ptr().cast()
    }

    /// Whether the text has no characters.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.len() == 1
    }
}

/// A buffer for a text from C.
pub(crate) struct TextRoom(Vec<u8>);

impl TextRoom {
    /// A buffer for `size` characters including the NUL.
    pub(crate) fn of(size: usize) -> Self {
        Self(vec![0; size.max(1)])
    }

    /// The pointer for C.
    pub(crate) fn as_mut_ptr(&mut self) -> *mut c_char {
        self.0.as_mut_ptr().cast()
    }

    /// The text that C wrote.
    pub(crate) fn text(&self) -> &[u8] {
        self.0.split(|byte| *byte == 0).next().unwrap_or_default()
    }

    /// Copies the text to a Fortran variable of `length` characters.
    pub(crate) fn give(&self, to: Chars, length: usize) {
        to.give(self.text(), length);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chars(text: &mut [u8]) -> (Chars, usize) {
        (Chars(text.as_mut_ptr()), text.len())
    }

    #[test]
    fn trailing_blanks_are_removed_from_text() {
        let mut given = *b"  a name   ";
        let (name, length) = chars(&mut given);
        assert_eq!(name.text(length).0, b"  a name\0");
        assert_eq!(name.trimmed(length).0, b"a name\0");
        let mut blank = *b"    ";
        let (name, length) = chars(&mut blank);
        assert!(name.text(length).is_empty());
        assert!(name.text(0).is_empty());
    }

    #[test]
    fn a_nul_terminates_fortran_text() {
        let mut given = *b"ab\0cd ";
        let (name, length) = chars(&mut given);
        assert_eq!(name.text(length).0, b"ab\0");
    }

    #[test]
    fn c_text_is_padded_or_truncated_for_fortran() {
        let mut room = TextRoom::of(8);
        room.0[..3].copy_from_slice(b"abc");
        let mut wide = *b"######";
        let (to, length) = chars(&mut wide);
        room.give(to, length);
        assert_eq!(&wide, b"abc   ");
        let mut narrow = *b"##";
        let (to, length) = chars(&mut narrow);
        room.give(to, length);
        assert_eq!(&narrow, b"ab");
    }
}
