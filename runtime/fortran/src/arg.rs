// SPDX-License-Identifier: MIT OR Apache-2.0
//! Types of the arguments of a Fortran call, and their conversion to C.
//!
//! | in Fortran                                               | here                                               | in C |
//! |----------------------------------------------------------|----------------------------------------------------|-----|
//! | a choice buffer                                          | [`ChoiceBuffer`]                                   | an address, or the number that C has for `MPI_BOTTOM`, `MPI_IN_PLACE`, ... |
//! | `INTEGER`, `LOGICAL`, a count, an address, `INTENT(IN)`  | [`InAddress`]                                      | its value; of an array, its address |
//! | `INTEGER`, `LOGICAL`, a count, an address, `INTENT(OUT)` | [`OutAddress`]                                     | its address |
//! | a handle                                                 | [`InAddress`], [`OutAddress`] of [`FortranHandle`] | [`CHandle`], in a local variable if C writes it |
//! | an array of handles                                      | [`InAddress`], [`OutAddress`] of [`FortranHandle`] | [`CHandleArray`], read before the call and written back after it |
//! | a status, an array of them                               | [`FortranStatus`], [`Statuses`]                    | the address, or null for `MPI_STATUS_IGNORE` |
//! | weights, error codes                                     | [`FortranWeights`], [`Errcodes`]                   | the address, or the constant |
//! | a procedure                                              | [`UserProcedure`]                                  | the procedure itself: see [`UserProcedure`] |
//! | `IERROR`                                                 | [`Ierror`]                                         | the returned code |
//!
//! Text is in [`crate::text`].
//!
//! # Safety
//! The types of this file represent rule F (`lib.rs`): only a call from Fortran makes an [`InAddress`] or an
//! [`OutAddress`], and its pointer is then valid as the type specifies. A reference made from such a pointer does not
//! outlive the function that makes the reference.

use core::ffi::{c_int, c_void};
use core::slice;

use crate::common;

/// Address constants of C (MPI 5.0 section 20.3).
const IN_PLACE: usize = 1;
const BUFFER_AUTOMATIC: usize = 2;
const UNWEIGHTED: usize = 10;
const WEIGHTS_EMPTY: usize = 11;

/// The address of something that may be read while the call runs: one value, or an array (rule F).
#[derive(Clone, Copy)]
#[repr(transparent)]
pub(crate) struct InAddress<T>(*const T);

impl<T: Copy> InAddress<T> {
    /// The value at the address.
    pub(crate) fn get(self) -> T {
        // SAFETY: rule F: the caller's address of a value.
        unsafe { *self.0 }
    }

    /// The address itself.
    pub(crate) fn as_ptr(self) -> *const T {
        self.0
    }
}

impl InAddress<FortranHandle> {
    /// The handle for C.
    pub(crate) fn handle(self) -> CHandle {
        self.get().handle()
    }
}

impl InAddress<c_int> {
    /// A `LOGICAL` as a C flag.
    pub(crate) fn truth(self) -> c_int {
        c_int::from(self.get() != 0)
    }
}

/// The address of something that may be read and written while the call runs (rule F).
#[derive(Clone, Copy)]
#[repr(transparent)]
pub(crate) struct OutAddress<T>(*mut T);

impl<T: Copy> OutAddress<T> {
    /// The value.
    pub(crate) fn get(self) -> T {
        // SAFETY: rule F: the caller's address of a value.
        unsafe { *self.0 }
    }

    /// Writes the value.
    pub(crate) fn set(self, value: T) {
        // SAFETY: rule F: the caller's address of a value that may be written.
        unsafe { *self.0 = value };
    }

    /// The address itself.
    pub(crate) fn as_ptr(self) -> *mut T {
        self.0
    }
}

impl OutAddress<FortranHandle> {
    /// The current handle. C may replace it; a failing call leaves it unchanged.
    pub(crate) fn handle(self) -> CHandle {
        self.get().handle()
    }

    /// Writes the handle from C, unless C left it unchanged.
    pub(crate) fn set_handle(self, handle: CHandle) {
        if handle != self.handle() {
            self.set(handle.number());
        }
    }
}

impl OutAddress<c_int> {
    /// Writes an index from C, converted to count from 1; `MPI_UNDEFINED` is not converted. Writes nothing if C has
    /// left `index` at [`UNWRITTEN`].
    pub(crate) fn set_index(self, index: c_int) {
        if index != UNWRITTEN {
            self.set(one_based(index));
        }
    }

    /// Writes a count from C. Writes nothing if C has left `count` at [`UNWRITTEN`].
    pub(crate) fn set_count(self, count: c_int) {
        if count != UNWRITTEN {
            self.set(count);
        }
    }

    /// Converts `count` indices in place: C counts from 0, Fortran from 1. Converts none if `count` is `MPI_UNDEFINED`.
    pub(crate) fn all_count_from_one(self, count: c_int) {
        for place in 0..usize::try_from(count).unwrap_or(0) {
            let index = Self(self.0.wrapping_add(place));
            index.set(one_based(index.get()));
        }
    }
}

/// The initial value of an index or count that C may leave unwritten.
pub(crate) const UNWRITTEN: c_int = c_int::MIN;

/// Converts a C index to Fortran, where indices count from 1; negative numbers are unchanged.
fn one_based(index: c_int) -> c_int {
    if index < 0 {
        index
    } else {
        index.saturating_add(1)
    }
}

/// A handle in Fortran: a default `INTEGER`, or a derived type whose only component is a default `INTEGER`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(transparent)]
pub(crate) struct FortranHandle(c_int);

/// A handle in C. Only its value counts; it is never dereferenced.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(transparent)]
pub(crate) struct CHandle(usize);

impl FortranHandle {
    /// Converts to C. A negative number becomes 0, which is never a valid handle.
    pub(crate) fn handle(self) -> CHandle {
        CHandle(usize::try_from(self.0).unwrap_or(0))
    }
}

impl CHandle {
    /// Converts to Fortran, like `MPI_Comm_toint`.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_possible_wrap,
        reason = "handles fit in 31 bits"
    )]
    pub(crate) fn number(self) -> FortranHandle {
        FortranHandle(self.0 as c_int)
    }
}

/// An array of handles, converted for a call.
pub(crate) struct CHandleArray {
    few: [CHandle; Self::FEW],
    many: Vec<CHandle>,
    count: usize,
}

impl CHandleArray {
    /// Maximum number of handles for which no memory is allocated.
    const FEW: usize = 32;

    /// Reads `count` handles. If `count` is negative, reads none: the C function will refuse the count.
    pub(crate) fn read(from: *const FortranHandle, count: impl Into<i64>) -> Self {
        let count = usize::try_from(count.into()).unwrap_or(0);
        let count = if from.is_null() { 0 } else { count };
        let mut handles = Self {
            few: [CHandle(0); Self::FEW],
            many: Vec::new(),
            count,
        };
        let numbers = match count {
            0 => &[],
            // SAFETY: rule F: the caller's array has `count` handles; nothing writes to it while this function runs.
            _ => unsafe { slice::from_raw_parts(from, count) },
        };
        if count > Self::FEW {
            handles.many = numbers.iter().map(|number| number.handle()).collect();
        } else {
            for (handle, number) in handles.few.iter_mut().zip(numbers) {
                *handle = number.handle();
            }
        }
        handles
    }

    /// An empty array, for an argument that is not significant.
    pub(crate) fn none() -> Self {
        Self::read(core::ptr::null(), 0)
    }

    /// The array for C.
    pub(crate) fn as_mut_ptr(&mut self) -> *mut CHandle {
        self.as_slice_mut().as_mut_ptr()
    }

    fn as_slice_mut(&mut self) -> &mut [CHandle] {
        match self.many.is_empty() {
            true => &mut self.few[..self.count],
            false => &mut self.many,
        }
    }

    /// Writes back to the program's array the handles that C has changed.
    pub(crate) fn write(&mut self, to: OutAddress<FortranHandle>) {
        for (place, handle) in self.as_slice_mut().iter().enumerate() {
            OutAddress(to.0.wrapping_add(place)).set_handle(*handle);
        }
    }
}

/// A choice buffer.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub(crate) struct ChoiceBuffer(*mut c_void);

impl ChoiceBuffer {
    /// The argument for C.
    pub(crate) fn get(self) -> *mut c_void {
        if common::is_bottom(self.0) {
            core::ptr::null_mut()
        } else if self.is_in_place() {
            core::ptr::without_provenance_mut(IN_PLACE)
        } else if common::is_buffer_automatic(self.0) {
            core::ptr::without_provenance_mut(BUFFER_AUTOMATIC)
        } else {
            self.0
        }
    }

    /// Whether it is `MPI_IN_PLACE`.
    pub(crate) fn is_in_place(self) -> bool {
        common::is_in_place(self.0)
    }
}

/// A status: `INTEGER(MPI_STATUS_SIZE)` or `TYPE(MPI_Status)`, both with the layout of C's.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub(crate) struct FortranStatus(*mut [c_int; 8]);

impl FortranStatus {
    /// The argument for C.
    pub(crate) fn get(self) -> *mut [c_int; 8] {
        // Programs confuse `MPI_STATUS_IGNORE` and `MPI_STATUSES_IGNORE`; no status may be written to either of them.
        match common::is_status_ignore(self.0.cast()) || common::is_statuses_ignore(self.0.cast()) {
            true => core::ptr::null_mut(),
            false => self.0,
        }
    }
}

/// An array of statuses.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub(crate) struct Statuses(*mut [c_int; 8]);

impl Statuses {
    /// The argument for C.
    pub(crate) fn get(self) -> *mut [c_int; 8] {
        FortranStatus(self.0).get()
    }
}

/// Weights of the edges of a graph.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub(crate) struct FortranWeights(*mut c_int);

impl FortranWeights {
    /// The argument for C.
    pub(crate) fn get(self) -> *mut c_int {
        if common::is_unweighted(self.0.cast()) {
            core::ptr::without_provenance_mut(UNWEIGHTED)
        } else if common::is_weights_empty(self.0.cast()) {
            core::ptr::without_provenance_mut(WEIGHTS_EMPTY)
        } else {
            self.0
        }
    }
}

/// The error codes of spawned processes.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub(crate) struct Errcodes(*mut c_int);

impl Errcodes {
    /// The argument for C.
    pub(crate) fn get(self) -> *mut c_int {
        match common::is_errcodes_ignore(self.0.cast()) {
            true => core::ptr::null_mut(),
            false => self.0,
        }
    }
}

/// A procedure of the program that C calls directly: a reduction or an error handler. Such a procedure gets the
/// addresses of its arguments, in C and in Fortran. C passes the address of an eight-byte handle, and the procedure
/// reads the four bytes there: on a little-endian machine these are the low four bytes, which hold the value.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub(crate) struct UserProcedure(*const c_void);

const _: () = assert!(cfg!(target_endian = "little"));

impl UserProcedure {
    /// The argument for C.
    pub(crate) fn get(self) -> *const c_void {
        self.0
    }
}

/// `IERROR`, which may be absent with `mpi_f08`.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub(crate) struct Ierror(*mut c_int);

impl Ierror {
    /// Writes the code.
    pub(crate) fn set(self, code: c_int) {
        if !self.0.is_null() {
            // SAFETY: rule F: an `INTEGER` that may be written, since the argument is present.
            unsafe { *self.0 = code };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn indices_are_one_based_and_undefined_is_kept() {
        assert_eq!(
            [one_based(0), one_based(6), one_based(-32766)],
            [1, 7, -32766]
        );
        let mut indices = [0, 4, 9];
        OutAddress(indices.as_mut_ptr()).all_count_from_one(2);
        assert_eq!(indices, [1, 5, 9]);
        OutAddress(indices.as_mut_ptr()).all_count_from_one(-32766);
        OutAddress(indices.as_mut_ptr()).all_count_from_one(UNWRITTEN);
        OutAddress(indices.as_mut_ptr()).set_index(UNWRITTEN);
        assert_eq!(indices, [1, 5, 9]);
    }

    #[test]
    fn handles_written_by_c_are_converted_back() {
        for count in [0_usize, 3, 32, 33, 100] {
            let mut numbers: Vec<FortranHandle> = (5..).map(FortranHandle).take(count).collect();
            let mut handles = CHandleArray::read(numbers.as_ptr(), count as i64);
            assert_eq!(handles.as_slice_mut().len(), count);
            for handle in handles.as_slice_mut() {
                handle.0 += 1000;
            }
            handles.write(OutAddress(numbers.as_mut_ptr()));
            assert!(
                numbers
                    .iter()
                    .enumerate()
                    .all(|(n, number)| usize::try_from(number.0) == Ok(n + 1005))
            );
        }
        let mut none = CHandleArray::read([FortranHandle(1)].as_ptr(), -1);
        assert!(none.as_slice_mut().is_empty());
    }

    #[test]
    fn unchanged_handles_keep_their_fortran_value() {
        let mut numbers = [FortranHandle(-1), FortranHandle(257)];
        let mut handles = CHandleArray::read(numbers.as_ptr(), 2);
        handles.as_slice_mut()[1] = CHandle(256);
        handles.write(OutAddress(numbers.as_mut_ptr()));
        assert_eq!(numbers, [FortranHandle(-1), FortranHandle(256)]);
    }

    #[test]
    fn a_negative_fortran_handle_is_invalid() {
        assert_eq!(FortranHandle(-3).handle(), CHandle(0));
        assert_eq!(FortranHandle(257).handle().number(), FortranHandle(257));
    }

    #[test]
    fn an_absent_ierror_is_not_written() {
        Ierror(core::ptr::null_mut()).set(5);
        let mut code = 0;
        Ierror(&raw mut code).set(5);
        assert_eq!(code, 5);
    }
}
