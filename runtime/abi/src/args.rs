// SPDX-License-Identifier: MIT OR Apache-2.0
//! Converts each kind of C parameter to the argument of a body. The bodies access the program's memory only through
//! these types, except for user data, so most bodies are safe code.
//!
//! | kind in mpi.api | in C | in the body | checks |
//! |---|---|---|---|
//! | `Buf`, `MutBuf` | user data | [`ConstBuf`], [`MutBuf`] | none: never accessed here |
//! | `State` | a pointer of the program | [`ExtraState`] | none: it is only passed back |
//! | `Count`, `DispUnit`, `AintCount` | `int`, `MPI_Aint` or `MPI_Count` | `i64` | none: bodies check the range |
//! | `Len`, `CountLen`, `LargeLen` | the length of the arrays that name it | the length of these arrays | not negative |
//! | `Int Flag Enum Code Keyval Level` | `int` | `c_int` | none |
//! | `Peer` | a rank, `MPI_PROC_NULL` or `MPI_ANY_SOURCE` | `c_int` | none: bodies have the communicator |
//! | `Rank`, `Root`, `Tag` | `int` | `c_int` | none: bodies have the communicator |
//! | `Aint`, `Offset`, `LargeCount` | as named | `isize`, `i64`, `i64` | none |
//! | `Comm`, `Type`, `Request`, ... | a handle | the handle type | none: the registry checks it |
//! | `out X` | a pointer | [`OutArg`], [`OutCount`], [`OutStatus`] | not NULL; a status may be ignored |
//! | `inout X` | a pointer | [`InOutArg`], [`InOutCount`], [`StatusMut`] | not NULL |
//! | `opt out X` | a pointer or NULL | `Option<OutArg>` | none |
//! | `X[n]` | an array of `n` | `&[X]`, [`CountArray`] | NULL only if `n` is 0 |
//! | `out X[n]`, `inout X[n]` | an array of `n` | [`OutArray`], [`OutStatuses`], `&mut [X]` | NULL only if `n` is 0; statuses may be ignored |
//! | `X[*]` | an array whose length the body determines | [`Array`], [`CountsPtr`], [`OutArrayPtr`] | in `slice(n)` |
//! | `Bytes[n]` | an object of `n` bytes | `&[u8]`, [`OutArray`] | NULL only if `n` is 0 |
//! | `Weights` | an array whose length the body determines, or a constant | [`GraphWeights`], [`OutWeights`] | in `slice(n)` |
//! | `String`, `Chars` | text | `&CStr` | not NULL |
//! | `out String[MAX]`, `out String[*]` | room for text | [`OutString`], [`OutChars`] | not NULL |
//! | `Strings`, `StringLists` | `argv` and the like | [`Strings`], [`StringLists`] | in `read` |
//! | `Value`, `out Value`, `Object` | a value of an MPI_T variable, or the handle of the object that a variable is bound to | [`InValue`], [`OutValue`], [`ToolObject`] | not NULL, at each read or write |
//! | `Fn(T)`, `VarFn(T)` | a function | `Option<T>`, [`EitherFn`] | none |
//! | `MainArgc`, `MainArgv` | addresses of `main`'s parameters | [`MainArgc`], [`MainArgv`] | none: never accessed |
//!
//! # Safety
//! Every unsafe constructor has one of four requirements. MPI 5.0 places them on the caller of the C function; entry
//! points only pass them on. While a call runs:
//! - **A1**, one value: the pointer is NULL, or a constant of the standard with the same meaning, or it points to one
//!   aligned value of the C type. That value may be read (`in`), written (`out`) or both (`inout`).
//! - **A2**, an array: A1 holds for as many values as the given length; a length of 0 requires nothing.
//! - **A3**, an array whose length the body determines: A1 holds for as many values as the call uses by the standard.
//!   Bodies must not call `slice` with a larger length.
//! - **A4**, text: the pointer is NULL or points to a NUL-terminated string. For output, it is NULL or points to room
//!   for the given number of characters.
//!
//! Two `out` parameters may share one address (programs pass the same dummy twice). So they are written through raw
//! pointers, one value at a time, and no reference to them is ever made.
#![allow(
    unsafe_code,
    reason = "the only place that dereferences a caller's pointer"
)]

mod counts;
mod statuses;
mod text;
mod tool;

use core::ffi::{c_char, c_int, c_void};
use core::marker::PhantomData;
use core::ptr::NonNull;
use core::slice;

pub use counts::{CountArray, CountWidth, CountsPtr, InOutCount, OutCount};
pub use statuses::{OutStatus, OutStatuses, StatusMut, status};
pub use text::{OutChars, OutString, StringLists, Strings, text};
pub use tool::{InValue, OutValue, ToolObject};

use crate::c::{MPI_BOTTOM, MPI_BUFFER_AUTOMATIC, MPI_IN_PLACE, MPI_UNWEIGHTED, MPI_WEIGHTS_EMPTY};
use crate::error::{Error, ErrorClass, Result};

/// User data that is read: an address, or `MPI_IN_PLACE`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(transparent)]
pub struct ConstBuf(pub *const c_void);

/// User data that is written: an address, or `MPI_IN_PLACE`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(transparent)]
pub struct MutBuf(pub *mut c_void);

macro_rules! buffer {
    ($name:ident) => {
        impl $name {
            /// Whether this is `MPI_IN_PLACE`.
            pub fn is_in_place(self) -> bool {
                self.address() == MPI_IN_PLACE
            }

            /// Whether this is `MPI_BOTTOM`, the buffer for datatypes with absolute addresses. `MPI_BOTTOM` equals
            /// NULL.
            pub fn is_bottom(self) -> bool {
                self.address() == MPI_BOTTOM
            }

            /// Whether this is `MPI_BUFFER_AUTOMATIC`.
            pub fn is_automatic(self) -> bool {
                self.address() == MPI_BUFFER_AUTOMATIC
            }

            /// The address as a number.
            pub fn address(self) -> usize {
                self.0.addr()
            }
        }
    };
}

buffer!(ConstBuf);
buffer!(MutBuf);

/// A pointer of the program that is only stored and passed back: extra state, or the value of an attribute.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(transparent)]
pub struct ExtraState(pub *mut c_void);

/// `int *argc` of `MPI_Init`; ignored.
#[derive(Clone, Copy, Debug)]
pub struct MainArgc(pub *mut c_int);

/// `char ***argv` of `MPI_Init`; ignored.
#[derive(Clone, Copy, Debug)]
pub struct MainArgv(pub *mut *mut *mut c_char);

/// A callback with counts of type `int` (passed to `MPI_X`) or `MPI_Count` (passed to `MPI_X_c`).
#[derive(Clone, Copy, Debug)]
pub enum EitherFn<I, L> {
    /// The function passed to `MPI_X`.
    Int(Option<I>),
    /// The function passed to `MPI_X_c`.
    Large(Option<L>),
}

/// Integer types of counts and displacements.
pub trait WideCount: Copy {
    /// The value as `i64`.
    fn wide(self) -> i64;
}

impl WideCount for c_int {
    fn wide(self) -> i64 {
        i64::from(self)
    }
}

impl WideCount for i64 {
    fn wide(self) -> i64 {
        self
    }
}

impl WideCount for isize {
    fn wide(self) -> i64 {
        const {
            assert!(
                size_of::<Self>() == size_of::<i64>(),
                "MPI_Aint has 64 bits"
            )
        };
        self as i64
    }
}

/// A count of any C type as `i64`.
pub fn wide(number: impl WideCount) -> i64 {
    number.wide()
}

/// The length of arrays; a negative length is an error of class `class`.
pub fn len(name: &str, number: i64, class: ErrorClass) -> Result<usize> {
    let negative = || {
        Error::new(
            class,
            format!("the parameter `{name}` is {number}, it must not be negative"),
        )
    };
    usize::try_from(number).map_err(|_| negative())
}

/// An output parameter of one value.
#[derive(Debug)]
pub struct OutArg<'a, T> {
    place: NonNull<T>,
    call: PhantomData<&'a mut T>,
}

impl<T> OutArg<'_, T> {
    /// The parameter `name`; NULL is an error.
    ///
    /// # Safety
    /// A1.
    pub unsafe fn new(name: &str, pointer: *mut T) -> Result<Self> {
        let place = NonNull::new(pointer).ok_or_else(|| Error::null(name))?;
        Ok(Self {
            place,
            call: PhantomData,
        })
    }

    /// A parameter that may be NULL. `None`: it is NULL.
    ///
    /// # Safety
    /// A1.
    pub unsafe fn optional(pointer: *mut T) -> Option<Self> {
        NonNull::new(pointer).map(|place| Self {
            place,
            call: PhantomData,
        })
    }

    /// Writes the value.
    pub fn set(&self, value: T) {
        // SAFETY: A1, guaranteed to the constructor: the place may be written.
        unsafe { self.place.as_ptr().write(value) };
    }
}

/// One value that is read and written.
#[derive(Debug)]
pub struct InOutArg<'a, T> {
    place: NonNull<T>,
    call: PhantomData<&'a mut T>,
}

impl<T: Copy> InOutArg<'_, T> {
    /// The parameter `name`; NULL is an error.
    ///
    /// # Safety
    /// A1.
    pub unsafe fn new(name: &str, pointer: *mut T) -> Result<Self> {
        let place = NonNull::new(pointer).ok_or_else(|| Error::null(name))?;
        Ok(Self {
            place,
            call: PhantomData,
        })
    }

    /// A parameter that may be NULL. `None`: it is NULL.
    ///
    /// # Safety
    /// A1.
    pub unsafe fn optional(pointer: *mut T) -> Option<Self> {
        NonNull::new(pointer).map(|place| Self {
            place,
            call: PhantomData,
        })
    }

    /// The value.
    pub fn get(&self) -> T {
        // SAFETY: A1, guaranteed to the constructor: the place holds a value and may be read.
        unsafe { self.place.as_ptr().read() }
    }

    /// Writes the value.
    pub fn set(&self, value: T) {
        // SAFETY: A1, guaranteed to the constructor: the place may be written.
        unsafe { self.place.as_ptr().write(value) };
    }
}

/// The array `name` of `length` values that are read.
///
/// # Safety
/// A2.
pub unsafe fn slice<'a, T>(name: &str, pointer: *const T, length: usize) -> Result<&'a [T]> {
    if length == 0 {
        return Ok(&[]);
    }
    if pointer.is_null() {
        return Err(Error::null(name));
    }
    // SAFETY:
    // - valid, aligned and unchanged for the call: A2, the caller's obligation.
    // - not longer than isize::MAX bytes: it is memory of one C array.
    Ok(unsafe { slice::from_raw_parts(pointer, length) })
}

/// The array `name` of `length` values that are read and written.
///
/// # Safety
/// A2, and no other parameter points into the array.
pub unsafe fn slice_mut<'a, T>(name: &str, pointer: *mut T, length: usize) -> Result<&'a mut [T]> {
    if length == 0 {
        return Ok(&mut []);
    }
    if pointer.is_null() {
        return Err(Error::null(name));
    }
    // SAFETY:
    // - valid, aligned and initialised for the call: A2, the caller's obligation.
    // - not aliased: the caller's obligation too; MPI 5.0 section 2.3 forbids aliases of arguments that are written.
    Ok(unsafe { slice::from_raw_parts_mut(pointer, length) })
}

/// An input array whose length the body determines.
#[derive(Clone, Copy, Debug)]
pub struct Array<'a, T> {
    name: &'static str,
    pointer: *const T,
    call: PhantomData<&'a T>,
}

impl<'a, T> Array<'a, T> {
    /// The parameter `name`.
    ///
    /// # Safety
    /// A3.
    pub unsafe fn new(name: &'static str, pointer: *const T) -> Self {
        Self {
            name,
            pointer,
            call: PhantomData,
        }
    }

    /// The first `length` values: as many as the call reads by the standard (A3).
    pub fn slice(&self, length: usize) -> Result<&'a [T]> {
        // SAFETY: A3, guaranteed to the constructor, is A2 for the length that the standard gives.
        unsafe { slice(self.name, self.pointer, length) }
    }
}

/// An output array of `length` values.
#[derive(Debug)]
pub struct OutArray<'a, T> {
    pointer: *mut T,
    length: usize,
    call: PhantomData<&'a mut T>,
}

impl<T> OutArray<'_, T> {
    /// The parameter `name`, an array of `length` values. NULL is an error, unless `length` is 0.
    ///
    /// # Safety
    /// A2.
    pub unsafe fn new(name: &str, pointer: *mut T, length: usize) -> Result<Self> {
        if pointer.is_null() && length > 0 {
            return Err(Error::null(name));
        }
        Ok(Self {
            pointer,
            length,
            call: PhantomData,
        })
    }

    /// Number of values that fit.
    pub fn len(&self) -> usize {
        self.length
    }

    /// Whether no value fits.
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// Writes the value at `index`. An index past the end is ignored.
    pub fn set(&self, index: usize, value: T) {
        if index >= self.length {
            return;
        }
        // SAFETY: A2, guaranteed to the constructor, and the index is inside, so the offset stays in the array.
        let place = unsafe { self.pointer.add(index) };
        // SAFETY: A2: the place may be written.
        unsafe { place.write(value) };
    }

    /// Writes the values of `from`, as many as fit.
    pub fn fill(&self, from: impl IntoIterator<Item = T>) {
        for (index, value) in from.into_iter().enumerate().take(self.length) {
            self.set(index, value);
        }
    }
}

/// An output array whose length the body determines.
#[derive(Clone, Copy, Debug)]
pub struct OutArrayPtr<'a, T> {
    name: &'static str,
    pointer: *mut T,
    call: PhantomData<&'a T>,
}

impl<'a, T> OutArrayPtr<'a, T> {
    /// The parameter `name`.
    ///
    /// # Safety
    /// A3.
    pub unsafe fn new(name: &'static str, pointer: *mut T) -> Self {
        Self {
            name,
            pointer,
            call: PhantomData,
        }
    }

    /// A parameter that may be NULL, as `MPI_ERRCODES_IGNORE` is. `None`: it is NULL.
    ///
    /// # Safety
    /// A3.
    pub unsafe fn optional(name: &'static str, pointer: *mut T) -> Option<Self> {
        (!pointer.is_null()).then_some(Self {
            name,
            pointer,
            call: PhantomData,
        })
    }

    /// The first `length` values: as many as the call writes by the standard (A3).
    pub fn slice(&self, length: usize) -> Result<OutArray<'a, T>> {
        // SAFETY: A3, guaranteed to the constructor, is A2 for the length that the standard gives.
        unsafe { OutArray::new(self.name, self.pointer, length) }
    }
}

/// The weights of a distributed graph (MPI 5.0 section 8.5.4).
#[derive(Clone, Copy, Debug)]
pub struct GraphWeights<'a>(Array<'a, c_int>);

impl<'a> GraphWeights<'a> {
    /// The parameter `name`.
    ///
    /// # Safety
    /// A3; `MPI_UNWEIGHTED` and `MPI_WEIGHTS_EMPTY` count as NULL.
    pub unsafe fn new(name: &'static str, pointer: *const c_int) -> Self {
        // SAFETY: A3, the caller's obligation; `slice` below never dereferences the two constants.
        Self(unsafe { Array::new(name, pointer) })
    }

    /// The first `length` weights (A3); `None` for `MPI_UNWEIGHTED`. `MPI_WEIGHTS_EMPTY` is an error unless `length` is
    /// 0.
    pub fn slice(&self, length: usize) -> Result<Option<&'a [c_int]>> {
        match self.0.pointer.addr() {
            MPI_UNWEIGHTED => Ok(None),
            MPI_WEIGHTS_EMPTY if length == 0 => Ok(Some(&[])),
            MPI_WEIGHTS_EMPTY => Err(Error::new(
                ErrorClass::ARG,
                format!(
                    "`{}` is MPI_WEIGHTS_EMPTY, {length} weights are needed",
                    self.0.name
                ),
            )),
            _ => self.0.slice(length).map(Some),
        }
    }
}

/// The output weights of a distributed graph.
#[derive(Clone, Copy, Debug)]
pub struct OutWeights<'a>(OutArrayPtr<'a, c_int>);

impl<'a> OutWeights<'a> {
    /// The parameter `name`.
    ///
    /// # Safety
    /// A3; `MPI_UNWEIGHTED` and `MPI_WEIGHTS_EMPTY` count as NULL.
    pub unsafe fn new(name: &'static str, pointer: *mut c_int) -> Self {
        // SAFETY: A3, the caller's obligation; `slice` below never dereferences the two constants.
        Self(unsafe { OutArrayPtr::new(name, pointer) })
    }

    /// The array of the first `length` weights (A3); `None` for `MPI_UNWEIGHTED` and `MPI_WEIGHTS_EMPTY`.
    pub fn slice(&self, length: usize) -> Result<Option<OutArray<'a, c_int>>> {
        if matches!(self.0.pointer.addr(), MPI_UNWEIGHTED | MPI_WEIGHTS_EMPTY) {
            return Ok(None);
        }
        self.0.slice(length).map(Some)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn null_output_argument_is_named_in_the_error() {
        let mut value = 1;
        // SAFETY: the pointer is to a local.
        let out = unsafe { OutArg::new("flag", &raw mut value) }.unwrap();
        out.set(5);
        assert_eq!(value, 5);
        // SAFETY: NULL is allowed.
        let refused = unsafe { OutArg::<c_int>::new("flag", core::ptr::null_mut()) }.unwrap_err();
        assert_eq!(refused.detail(), "the parameter `flag` is NULL");
        assert_eq!(refused.class(), ErrorClass::ARG);
    }

    #[test]
    fn negative_length_error_names_the_parameter_and_has_its_class() {
        let refused = len("count", -3, ErrorClass::COUNT).unwrap_err();
        assert_eq!(refused.class(), ErrorClass::COUNT);
        assert_eq!(
            refused.detail(),
            "the parameter `count` is -3, it must not be negative"
        );
    }

    #[test]
    fn only_an_empty_array_argument_may_be_null() {
        // SAFETY: NULL is allowed.
        let empty = unsafe { slice::<c_int>("ranks", core::ptr::null(), 0) };
        assert_eq!(empty, Ok(&[][..]));
        // SAFETY: as above.
        assert!(unsafe { slice::<c_int>("ranks", core::ptr::null(), 1) }.is_err());
        // SAFETY: as above.
        assert!(unsafe { OutArray::<c_int>::new("ranks", core::ptr::null_mut(), 1) }.is_err());
    }

    #[test]
    fn an_output_array_is_not_overrun() {
        let mut places = [0; 3];
        // SAFETY: a local array of three values, of which two may be written.
        let out = unsafe { OutArray::new("list", places.as_mut_ptr(), 2) }.unwrap();
        out.fill([7, 8, 9]);
        assert_eq!(places, [7, 8, 0]);
    }

    #[test]
    fn graph_weights_accept_mpi_unweighted_and_weights_empty() {
        let constant = |address: usize| core::ptr::without_provenance::<c_int>(address);
        // SAFETY: the constants are allowed.
        let none = unsafe { GraphWeights::new("weights", constant(MPI_UNWEIGHTED)) };
        assert_eq!(none.slice(3), Ok(None));
        // SAFETY: as above.
        let empty = unsafe { GraphWeights::new("weights", constant(MPI_WEIGHTS_EMPTY)) };
        assert_eq!(empty.slice(0), Ok(Some(&[][..])));
        assert!(empty.slice(1).is_err());
    }

    #[test]
    fn buffer_arguments_recognize_in_place_automatic_and_bottom() {
        assert!(ConstBuf(core::ptr::without_provenance(MPI_IN_PLACE)).is_in_place());
        assert!(MutBuf(core::ptr::without_provenance_mut(MPI_BUFFER_AUTOMATIC)).is_automatic());
        assert!(ConstBuf(core::ptr::null()).is_bottom());
    }
}
