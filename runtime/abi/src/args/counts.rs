// SPDX-License-Identifier: MIT OR Apache-2.0
//! Parameters that are counts or displacements. They are `int` in `MPI_X`, and `MPI_Count` or `MPI_Aint` in `MPI_X_c`;
//! bodies get one type for both functions.
//!
//! # Safety
//! The rules A1 to A3 of [`crate::args`].
#![allow(unsafe_code, reason = "a part of args")]

use core::ffi::c_int;

use super::{InOutArg, OutArg, slice};
use crate::c::MPI_UNDEFINED;
use crate::error::{Error, ErrorClass, Result};
use crate::handle::{MPI_Aint, MPI_Count};

/// The form of a function that was called: with counts of type `int` or of type `MPI_Count`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CountWidth {
    /// `MPI_X`.
    Int,
    /// `MPI_X_c`.
    Large,
}

/// An output parameter of one count.
#[derive(Debug)]
pub enum OutCount<'a> {
    /// `int`: the parameter of `MPI_X`.
    Int(&'static str, OutArg<'a, c_int>),
    /// `MPI_Count`: the parameter of `MPI_X_c`.
    Large(OutArg<'a, MPI_Count>),
    /// `MPI_Aint`: the parameter of either function.
    Address(OutArg<'a, MPI_Aint>),
}

impl OutCount<'_> {
    /// The parameter `name`, an `int`.
    ///
    /// # Safety
    /// A1.
    pub unsafe fn int(name: &'static str, pointer: *mut c_int) -> Result<Self> {
        // SAFETY: A1, the caller's obligation.
        unsafe { OutArg::new(name, pointer) }.map(|out| Self::Int(name, out))
    }

    /// The parameter `name`, an `MPI_Count`.
    ///
    /// # Safety
    /// A1.
    pub unsafe fn count(name: &str, pointer: *mut MPI_Count) -> Result<Self> {
        // SAFETY: A1, the caller's obligation.
        unsafe { OutArg::new(name, pointer) }.map(Self::Large)
    }

    /// The parameter `name`, an `MPI_Aint`.
    ///
    /// # Safety
    /// A1.
    pub unsafe fn aint(name: &str, pointer: *mut MPI_Aint) -> Result<Self> {
        // SAFETY: A1, the caller's obligation.
        unsafe { OutArg::new(name, pointer) }.map(Self::Address)
    }

    /// Writes the count. A count that does not fit is an error of class `MPI_ERR_VALUE_TOO_LARGE`.
    pub fn set(&self, value: i64) -> Result<()> {
        match self {
            Self::Large(out) => out.set(value),
            Self::Address(out) => out.set(aint(value)?),
            Self::Int(name, out) => match c_int::try_from(value) {
                Ok(small) => out.set(small),
                Err(_) => return Err(too_large(name, value)),
            },
        }
        Ok(())
    }

    /// Writes the count, or `MPI_UNDEFINED` if `value` is `None` or does not fit, as MPI 5.0 section 3.2.5 requires for
    /// `MPI_Get_count`.
    pub fn set_or_undefined(&self, value: Option<i64>) {
        let undefined = i64::from(MPI_UNDEFINED);
        match self {
            Self::Large(out) => out.set(value.unwrap_or(undefined)),
            Self::Address(out) => {
                let fits = value.and_then(|v| MPI_Aint::try_from(v).ok());
                out.set(fits.unwrap_or(MPI_UNDEFINED as MPI_Aint));
            }
            Self::Int(_, out) => {
                let fits = value.and_then(|v| c_int::try_from(v).ok());
                out.set(fits.unwrap_or(MPI_UNDEFINED));
            }
        }
    }
}

fn aint(value: i64) -> Result<MPI_Aint> {
    MPI_Aint::try_from(value).map_err(|_| too_large("MPI_Aint", value))
}

#[cold]
fn too_large(name: &str, value: i64) -> Error {
    Error::new(
        ErrorClass::VALUE_TOO_LARGE,
        format!(
            "{value} does not fit in the parameter `{name}`; the function's _c form has room for it"
        ),
    )
}

/// A count that is read and written, such as the position in a packed buffer.
#[derive(Debug)]
pub enum InOutCount<'a> {
    /// `int`: the parameter of `MPI_X`.
    Int(&'static str, InOutArg<'a, c_int>),
    /// `MPI_Count`: the parameter of `MPI_X_c`.
    Large(InOutArg<'a, MPI_Count>),
    /// `MPI_Aint`: the parameter of either function.
    Address(InOutArg<'a, MPI_Aint>),
}

impl InOutCount<'_> {
    /// The parameter `name`, an `int`.
    ///
    /// # Safety
    /// A1.
    pub unsafe fn int(name: &'static str, pointer: *mut c_int) -> Result<Self> {
        // SAFETY: A1, the caller's obligation.
        unsafe { InOutArg::new(name, pointer) }.map(|both| Self::Int(name, both))
    }

    /// The parameter `name`, an `MPI_Count`.
    ///
    /// # Safety
    /// A1.
    pub unsafe fn count(name: &str, pointer: *mut MPI_Count) -> Result<Self> {
        // SAFETY: A1, the caller's obligation.
        unsafe { InOutArg::new(name, pointer) }.map(Self::Large)
    }

    /// The parameter `name`, an `MPI_Aint`.
    ///
    /// # Safety
    /// A1.
    pub unsafe fn aint(name: &str, pointer: *mut MPI_Aint) -> Result<Self> {
        // SAFETY: A1, the caller's obligation.
        unsafe { InOutArg::new(name, pointer) }.map(Self::Address)
    }

    /// The count.
    pub fn get(&self) -> i64 {
        match self {
            Self::Int(_, both) => i64::from(both.get()),
            Self::Large(both) => both.get(),
            Self::Address(both) => both.get() as i64,
        }
    }

    /// Writes the count. A count that does not fit is an error of class `MPI_ERR_VALUE_TOO_LARGE`.
    pub fn set(&self, value: i64) -> Result<()> {
        match self {
            Self::Large(both) => both.set(value),
            Self::Address(both) => both.set(aint(value)?),
            Self::Int(name, both) => match c_int::try_from(value) {
                Ok(small) => both.set(small),
                Err(_) => return Err(too_large(name, value)),
            },
        }
        Ok(())
    }
}

/// An array of counts or displacements.
#[derive(Clone, Copy, Debug)]
pub enum CountArray<'a> {
    /// `int`: the parameter of `MPI_X`.
    Int(&'a [c_int]),
    /// `MPI_Count`: the parameter of `MPI_X_c`.
    Large(&'a [MPI_Count]),
    /// `MPI_Aint`: the parameter of either function.
    Address(&'a [MPI_Aint]),
}

impl CountArray<'_> {
    /// The parameter `name`: an array of `length` values of type `int`.
    ///
    /// # Safety
    /// A2.
    pub unsafe fn int(name: &str, pointer: *const c_int, length: usize) -> Result<Self> {
        // SAFETY: A2, the caller's obligation.
        unsafe { slice(name, pointer, length) }.map(Self::Int)
    }

    /// The parameter `name`: an array of `length` values of type `MPI_Count`.
    ///
    /// # Safety
    /// A2.
    pub unsafe fn count(name: &str, pointer: *const MPI_Count, length: usize) -> Result<Self> {
        // SAFETY: A2, the caller's obligation.
        unsafe { slice(name, pointer, length) }.map(Self::Large)
    }

    /// The parameter `name`: an array of `length` values of type `MPI_Aint`.
    ///
    /// # Safety
    /// A2.
    pub unsafe fn aint(name: &str, pointer: *const MPI_Aint, length: usize) -> Result<Self> {
        // SAFETY: A2, the caller's obligation.
        unsafe { slice(name, pointer, length) }.map(Self::Address)
    }

    /// The count at `index`, which must be below [`CountArray::len`].
    pub fn get(&self, index: usize) -> i64 {
        match self {
            Self::Int(list) => i64::from(list[index]),
            Self::Large(list) => list[index],
            Self::Address(list) => list[index] as i64,
        }
    }

    /// Number of counts.
    pub fn len(&self) -> usize {
        match self {
            Self::Int(list) => list.len(),
            Self::Large(list) => list.len(),
            Self::Address(list) => list.len(),
        }
    }

    /// Whether there are no counts.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// All counts in order.
    pub fn iter(&self) -> impl Iterator<Item = i64> {
        (0..self.len()).map(|index| self.get(index))
    }
}

/// An array of counts whose length the body determines: usually the size of the communicator.
#[derive(Clone, Copy, Debug)]
pub enum CountsPtr<'a> {
    /// `int`: the parameter of `MPI_X`.
    Int(super::Array<'a, c_int>),
    /// `MPI_Count`: the parameter of `MPI_X_c`.
    Large(super::Array<'a, MPI_Count>),
    /// `MPI_Aint`: the parameter of either function.
    Address(super::Array<'a, MPI_Aint>),
}

impl<'a> CountsPtr<'a> {
    /// The parameter `name`: an array of type `int`.
    ///
    /// # Safety
    /// A3.
    pub unsafe fn int(name: &'static str, pointer: *const c_int) -> Self {
        // SAFETY: A3, the caller's obligation.
        Self::Int(unsafe { super::Array::new(name, pointer) })
    }

    /// The parameter `name`: an array of type `MPI_Count`.
    ///
    /// # Safety
    /// A3.
    pub unsafe fn count(name: &'static str, pointer: *const MPI_Count) -> Self {
        // SAFETY: A3, the caller's obligation.
        Self::Large(unsafe { super::Array::new(name, pointer) })
    }

    /// The parameter `name`: an array of type `MPI_Aint`.
    ///
    /// # Safety
    /// A3.
    pub unsafe fn aint(name: &'static str, pointer: *const MPI_Aint) -> Self {
        // SAFETY: A3, the caller's obligation.
        Self::Address(unsafe { super::Array::new(name, pointer) })
    }

    /// The first `length` counts: as many as the call reads by the standard (A3).
    pub fn slice(&self, length: usize) -> Result<CountArray<'a>> {
        match self {
            Self::Int(array) => array.slice(length).map(CountArray::Int),
            Self::Large(array) => array.slice(length).map(CountArray::Large),
            Self::Address(array) => array.slice(length).map(CountArray::Address),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_count_too_large_for_int_is_an_error_or_undefined() {
        let (mut small, mut large) = (0, 0);
        // SAFETY: a local.
        let int = unsafe { OutCount::int("count", &raw mut small) }.unwrap();
        assert_eq!(
            int.set(1 << 31).unwrap_err().class(),
            ErrorClass::VALUE_TOO_LARGE
        );
        int.set_or_undefined(Some(1 << 31));
        assert_eq!(small, MPI_UNDEFINED);
        // SAFETY: a local.
        let count = unsafe { OutCount::count("count", &raw mut large) }.unwrap();
        count.set(1 << 31).unwrap();
        assert_eq!(large, 1 << 31);
        count.set_or_undefined(None);
        assert_eq!(large, i64::from(MPI_UNDEFINED));
    }

    #[test]
    fn count_arrays_of_every_width_are_read_correctly() {
        let (ints, counts, aints) = ([1, -2], [1_i64, -2], [1_isize, -2]);
        // SAFETY: local arrays of two values.
        let int = unsafe { CountsPtr::int("n", ints.as_ptr()) };
        // SAFETY: as above.
        let large = unsafe { CountsPtr::count("n", counts.as_ptr()) };
        // SAFETY: as above.
        let address = unsafe { CountsPtr::aint("n", aints.as_ptr()) };
        for pointer in [int, large, address] {
            assert_eq!(
                pointer.slice(2).unwrap().iter().collect::<Vec<_>>(),
                [1, -2]
            );
        }
    }

    #[test]
    fn an_int_position_is_updated_and_overflow_is_an_error() {
        let mut position = 4;
        // SAFETY: a local.
        let both = unsafe { InOutCount::int("position", &raw mut position) }.unwrap();
        both.set(both.get() + 8).unwrap();
        assert!(both.set(1 << 40).is_err());
        assert_eq!(position, 12);
    }
}
