// SPDX-License-Identifier: MIT OR Apache-2.0
//! Text: `CHARACTER` variables are padded with blanks and come with their length, C's end with a NUL (MPI 5.0 section 19.1.10
//! calls neither by name; the rules are those of each function).
//!
//! # Safety
//! Rule F (`lib.rs`): a [`Chars`] is the address of as many characters as the length that came with it.

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
        // SAFETY: rule F: so many characters may be read while the call runs, and nothing writes to them before it does.
        unsafe { slice::from_raw_parts(self.0, length) }
    }

    /// The text without its trailing blanks, for C.
    pub(crate) fn text(self, length: usize) -> Text {
        Text::of(end_trimmed(self.bytes(length)))
    }

    /// Without leading blanks either, as keys and values of an info are taken (MPI 5.0 chapter 10).
    pub(crate) fn trimmed(self, length: usize) -> Text {
        let text = end_trimmed(self.bytes(length));
        let start = text.iter().take_while(|byte| **byte == b' ').count();
        Text::of(&text[start..])
    }

    /// The `place`-th of an array whose items have `length` characters.
    pub(crate) fn item(self, place: usize, length: usize) -> Self {
        Self(self.0.wrapping_add(place * length))
    }

    /// Writes what C gave, cut or padded with blanks.
    pub(crate) fn give(self, text: &[u8], length: usize) {
        if self.0.is_null() {
            return;
        }
        for place in 0..length {
            let byte = text.get(place).copied().unwrap_or(b' ');
            // SAFETY: rule F: so many characters may be written.
            unsafe { *self.0.wrapping_add(place) = byte };
        }
    }

    /// Whether C knows the address by a name of its own.
    pub(crate) fn as_ptr(self) -> *const u8 {
        self.0
    }
}

/// Only blanks pad: a tab is the program's own.
fn end_trimmed(text: &[u8]) -> &[u8] {
    let blanks = text.iter().rev().take_while(|byte| **byte == b' ').count();
    &text[..text.len() - blanks]
}

/// A text that ends with a NUL.
pub(crate) struct Text(Vec<u8>);

impl Text {
    fn of(bytes: &[u8]) -> Self {
        // What follows a NUL is not the program's text: C would not see it either.
        let bytes = bytes.split(|byte| *byte == 0).next().unwrap_or_default();
        let mut text = Vec::with_capacity(bytes.len() + 1);
        text.extend_from_slice(bytes);
        text.push(0);
        Self(text)
    }

    /// For C.
    pub(crate) fn as_ptr(&self) -> *const c_char {
        self.0.as_ptr().cast()
    }

    /// Whether there is no character.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.len() == 1
    }
}

/// Room for C to write a text into.
pub(crate) struct TextRoom(Vec<u8>);

impl TextRoom {
    /// For so many characters with the NUL.
    pub(crate) fn of(size: usize) -> Self {
        Self(vec![0; size.max(1)])
    }

    /// For C.
    pub(crate) fn as_mut_ptr(&mut self) -> *mut c_char {
        self.0.as_mut_ptr().cast()
    }

    /// What C wrote.
    pub(crate) fn text(&self) -> &[u8] {
        self.0.split(|byte| *byte == 0).next().unwrap_or_default()
    }

    /// Hands it to Fortran.
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
    fn blanks_at_the_end_are_no_text() {
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
    fn a_nul_ends_a_text() {
        let mut given = *b"ab\0cd ";
        let (name, length) = chars(&mut given);
        assert_eq!(name.text(length).0, b"ab\0");
    }

    #[test]
    fn what_c_gives_is_padded_or_cut() {
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
