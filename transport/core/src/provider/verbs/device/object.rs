// SPDX-License-Identifier: MIT OR Apache-2.0
//! Objects that the library creates, each owned by one value here.
//!
//! # Safety
//! - **O1**: the pointer in a [`VerbsObject`] was returned by the library for an object that it has not destroyed; only
//!   `drop` destroys it, with the matching function.
//! - **O2**: an object is dropped before those from which it was made. A structure with several objects declares them
//!   in that order, since fields are dropped in the order of their declaration; local variables are dropped in reverse
//!   order.
#![allow(unsafe_code)]

use std::ffi::c_int;
use std::io;
use std::ptr::NonNull;

use super::super::port::CallError;

/// An object of rdma-core. Dropping it destroys it.
#[derive(Debug)]
pub(super) struct VerbsObject<T> {
    pointer: NonNull<T>,
    destroy: unsafe extern "C" fn(*mut T) -> c_int,
}

impl<T> VerbsObject<T> {
    /// Takes ownership of the result of `call`; null means an error.
    ///
    /// # Safety
    /// `pointer` is null, or points to an object that `destroy` destroys and that has no other owner; and O2 holds.
    pub(super) unsafe fn take(
        call: &'static str,
        pointer: *mut T,
        destroy: unsafe extern "C" fn(*mut T) -> c_int,
    ) -> Result<Self, CallError> {
        let pointer = NonNull::new(pointer).ok_or_else(|| last_error(call))?;
        Ok(Self { pointer, destroy })
    }

    #[inline(always)]
    pub(super) fn as_ptr(&self) -> *mut T {
        self.pointer.as_ptr()
    }
}

impl<T> Drop for VerbsObject<T> {
    fn drop(&mut self) {
        // SAFETY: O1, and no object made from it is left (O2). If the system refuses nevertheless, the object stays
        // until the process ends.
        unsafe { (self.destroy)(self.pointer.as_ptr()) };
    }
}

/// Checks the result of a call that returns 0, an error number, or a negative value with the error in `errno`.
pub(super) fn check(call: &'static str, answer: c_int) -> Result<(), CallError> {
    match answer {
        0 => Ok(()),
        errno if errno > 0 => Err(CallError { call, errno }),
        _ => Err(last_error(call)),
    }
}

/// The error that `call` left in `errno`.
pub(super) fn last_error(call: &'static str) -> CallError {
    let errno = io::Error::last_os_error().raw_os_error().unwrap_or(0);
    CallError { call, errno }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    thread_local! {
        static DESTROYED: Cell<u32> = const { Cell::new(0) };
    }

    unsafe extern "C" fn count(_: *mut u8) -> c_int {
        DESTROYED.with(|destroyed| destroyed.set(destroyed.get() + 1));
        0
    }

    #[test]
    fn objects_are_destroyed_once_and_null_never() {
        let mut byte = 0u8;
        // SAFETY: `count` reads nothing.
        let object = unsafe { VerbsObject::take("make", &raw mut byte, count) };
        assert_eq!(object.as_ref().map(VerbsObject::as_ptr), Ok(&raw mut byte));
        drop(object);
        // SAFETY: null.
        let none = unsafe { VerbsObject::take("make", std::ptr::null_mut(), count) };
        assert_eq!(none.map(drop).map_err(|error| error.call), Err("make"));
        assert_eq!(DESTROYED.with(Cell::get), 1);
    }

    #[test]
    fn return_codes_are_success_or_an_errno() {
        assert_eq!(check("x", 0), Ok(()));
        let error = CallError {
            call: "x",
            errno: libc::EINVAL,
        };
        assert_eq!(check("x", libc::EINVAL), Err(error));
        assert_eq!(check("y", -1).unwrap_err().call, "y");
    }
}
