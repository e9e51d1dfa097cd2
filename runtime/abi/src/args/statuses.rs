// SPDX-License-Identifier: MIT OR Apache-2.0
//! Parameters that are statuses. An output status may be ignored. `MPI_ERROR` is written only by the functions
//! `set_empty` and `set_error`.
//!
//! # Safety
//! The rules A1 and A2 of [`crate::args`].
#![allow(unsafe_code, reason = "a part of args")]

use core::ffi::c_int;
use core::marker::PhantomData;
use core::ptr::NonNull;

use crate::c::MPI_SUCCESS;
use crate::error::{Error, Result};
use crate::status::MPI_Status;

/// Reads the status `name`. `MPI_STATUS_IGNORE`, which is NULL, is an error.
///
/// # Safety
/// A1.
pub unsafe fn status(name: &str, pointer: *const MPI_Status) -> Result<MPI_Status> {
    if pointer.is_null() {
        return Err(Error::null(name));
    }
    // SAFETY: A1, the caller's obligation, and not NULL.
    Ok(unsafe { pointer.read() })
}

/// A status whose fields are set individually. Fields that are not set stay unchanged; they may be uninitialized.
#[derive(Debug)]
pub struct StatusMut<'a> {
    place: NonNull<MPI_Status>,
    call: PhantomData<&'a mut MPI_Status>,
}

impl StatusMut<'_> {
    /// The parameter `name`; NULL is an error.
    ///
    /// # Safety
    /// A1, for a status that is written.
    pub unsafe fn new(name: &str, pointer: *mut MPI_Status) -> Result<Self> {
        let place = NonNull::new(pointer).ok_or_else(|| Error::null(name))?;
        Ok(Self {
            place,
            call: PhantomData,
        })
    }

    /// Writes `MPI_SOURCE`.
    pub fn set_source(&self, source: c_int) {
        // SAFETY: A1, guaranteed to the constructor: the field is inside the status.
        let field = unsafe { &raw mut (*self.place.as_ptr()).MPI_SOURCE };
        write(field, source);
    }

    /// Writes `MPI_TAG`.
    pub fn set_tag(&self, tag: c_int) {
        // SAFETY: A1, guaranteed to the constructor: the field is inside the status.
        let field = unsafe { &raw mut (*self.place.as_ptr()).MPI_TAG };
        write(field, tag);
    }

    /// Writes `MPI_ERROR`.
    pub fn set_error(&self, error: c_int) {
        // SAFETY: A1, guaranteed to the constructor: the field is inside the status.
        let field = unsafe { &raw mut (*self.place.as_ptr()).MPI_ERROR };
        write(field, error);
    }

    /// Writes whether the operation was cancelled.
    pub fn set_cancelled(&self, cancelled: bool) {
        // SAFETY: A1, guaranteed to the constructor: the field is inside the status.
        let internal = unsafe { &raw mut (*self.place.as_ptr()).internal };
        write(
            internal.cast::<c_int>().wrapping_add(MPI_Status::CANCELLED),
            c_int::from(cancelled),
        );
    }

    /// Writes the length of the message in bytes.
    pub fn set_bytes(&self, bytes: u64) {
        let mut counted = MPI_Status::EMPTY;
        counted.set_bytes(bytes);
        // SAFETY: A1, guaranteed to the constructor: the field is inside the status.
        let internal = unsafe { &raw mut (*self.place.as_ptr()).internal };
        let words = internal.cast::<c_int>();
        write(
            words.wrapping_add(MPI_Status::LOW),
            counted.internal[MPI_Status::LOW],
        );
        write(
            words.wrapping_add(MPI_Status::HIGH),
            counted.internal[MPI_Status::HIGH],
        );
    }

    /// Writes all fields except `MPI_ERROR`. MPI 5.0 section 3.2.5 reserves that field for calls that complete several
    /// requests.
    fn set_all_but_error(&self, status: MPI_Status) {
        self.set_source(status.MPI_SOURCE);
        self.set_tag(status.MPI_TAG);
        // SAFETY: A1, guaranteed to the constructor: the field is inside the status.
        let internal = unsafe { &raw mut (*self.place.as_ptr()).internal };
        // SAFETY: as above: it may be written.
        unsafe { internal.write(status.internal) };
    }
}

/// Writes one field of a status under A1 or A2.
fn write(field: *mut c_int, value: c_int) {
    // SAFETY: every caller above took `field` from inside a status that may be written (A1).
    unsafe { field.write(value) };
}

/// An output status, or `MPI_STATUS_IGNORE`.
#[derive(Debug)]
pub struct OutStatus<'a>(Option<StatusMut<'a>>);

impl OutStatus<'_> {
    /// The parameter.
    ///
    /// # Safety
    /// A1.
    pub unsafe fn new(pointer: *mut MPI_Status) -> Self {
        Self(NonNull::new(pointer).map(|place| StatusMut {
            place,
            call: PhantomData,
        }))
    }

    /// Whether the parameter is `MPI_STATUS_IGNORE`.
    pub fn is_ignored(&self) -> bool {
        self.0.is_none()
    }

    /// Writes the status, but not `MPI_ERROR` (MPI 5.0 section 3.2.5).
    pub fn set(&self, status: MPI_Status) {
        if let Some(place) = &self.0 {
            place.set_all_but_error(status);
        }
    }

    /// Writes the empty status, whose `MPI_ERROR` is `MPI_SUCCESS` (MPI 5.0 section 3.7.3).
    pub fn set_empty(&self) {
        if let Some(place) = &self.0 {
            place.set_all_but_error(MPI_Status::EMPTY);
            place.set_error(MPI_SUCCESS);
        }
    }
}

/// An output array of statuses, or `MPI_STATUSES_IGNORE`.
#[derive(Debug)]
pub struct OutStatuses<'a> {
    pointer: *mut MPI_Status,
    length: usize,
    call: PhantomData<&'a mut MPI_Status>,
}

impl OutStatuses<'_> {
    /// The parameter: an array of `length` statuses.
    ///
    /// # Safety
    /// A2.
    pub unsafe fn new(pointer: *mut MPI_Status, length: usize) -> Self {
        Self {
            pointer,
            length,
            call: PhantomData,
        }
    }

    /// Whether the parameter is `MPI_STATUSES_IGNORE`.
    pub fn is_ignored(&self) -> bool {
        self.pointer.is_null()
    }

    /// Writes the status at `index`, but not its `MPI_ERROR`.
    pub fn set(&self, index: usize, status: MPI_Status) {
        if let Some(place) = self.place(index) {
            place.set_all_but_error(status);
        }
    }

    /// Writes the empty status at `index`. Its `MPI_ERROR` is `MPI_SUCCESS` (MPI 5.0 section 3.7.3).
    pub fn set_empty(&self, index: usize) {
        self.set(index, MPI_Status::EMPTY);
        self.set_error(index, MPI_SUCCESS);
    }

    /// Writes `MPI_ERROR` of the status at `index`: for a call that returns `MPI_ERR_IN_STATUS`, or for the empty
    /// status.
    pub fn set_error(&self, index: usize, error: c_int) {
        if let Some(place) = self.place(index) {
            place.set_error(error);
        }
    }

    fn place(&self, index: usize) -> Option<StatusMut<'_>> {
        if index >= self.length || self.is_ignored() {
            return None;
        }
        // SAFETY: A2, guaranteed to the constructor: the index is inside, so the offset stays in the array.
        let pointer = unsafe { self.pointer.add(index) };
        NonNull::new(pointer).map(|place| StatusMut {
            place,
            call: PhantomData,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writing_a_status_keeps_its_mpi_error_field() {
        let mut status = MPI_Status {
            MPI_ERROR: 99,
            ..MPI_Status::EMPTY
        };
        // SAFETY: a local.
        let out = unsafe { OutStatus::new(&raw mut status) };
        out.set(MPI_Status::received(3, 7, 11));
        assert_eq!(
            (status.MPI_SOURCE, status.MPI_TAG, status.MPI_ERROR),
            (3, 7, 99)
        );
        assert_eq!(status.bytes(), 11);
    }

    #[test]
    fn a_status_array_may_be_ignored_and_is_not_overrun() {
        // SAFETY: NULL is MPI_STATUSES_IGNORE.
        let ignored = unsafe { OutStatuses::new(core::ptr::null_mut(), 3) };
        ignored.set(0, MPI_Status::EMPTY);
        let mut list = [MPI_Status::received(0, 0, 1); 2];
        // SAFETY: a local array of two statuses, of which one may be written.
        let out = unsafe { OutStatuses::new(list.as_mut_ptr(), 1) };
        out.set(1, MPI_Status::received(9, 9, 9));
        out.set_error(0, 15);
        assert_eq!((list[0].MPI_ERROR, list[1].MPI_SOURCE), (15, 0));
    }

    #[test]
    fn setting_a_status_field_keeps_the_other_fields() {
        let mut status = MPI_Status::received(1, 2, 3);
        // SAFETY: a local.
        let place = unsafe { StatusMut::new("status", &raw mut status) }.unwrap();
        place.set_bytes(1 << 40);
        place.set_cancelled(true);
        place.set_tag(8);
        assert_eq!(
            (status.MPI_SOURCE, status.MPI_TAG, status.bytes()),
            (1, 8, 1 << 40)
        );
        assert!(status.cancelled());
    }
}
