// SPDX-License-Identifier: MIT OR Apache-2.0
//! The functions of `libibverbs.so.1`, looked up by the dynamic linker on demand.
//!
//! # Safety
//! - A function is assumed to have the type declared here. That is right because rdma-core gives a symbol a new version
//!   when its type changes, and keeps the old version. `dlsym` returns the default version of a symbol, which has been
//!   1.1 for these functions since 2007.
//! - The library is never unloaded, so a function stays valid until the process ends.
#![allow(unsafe_code)]

use core::ffi::{CStr, c_char, c_int, c_uint, c_void};
use core::fmt;
use core::mem;
use std::sync::OnceLock;

use crate::types::*;

/// The reason why the functions are not available.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LoadError {
    /// The library is missing, or cannot be loaded: the dynamic linker's message.
    NoLibrary(String),
    /// The library is too old: it lacks this function.
    NoFunction(&'static str),
}

impl fmt::Display for LoadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoLibrary(why) => write!(
                f,
                "{LIBRARY} cannot be loaded ({why}); InfiniBand and RoCE need the packages libibverbs1 and ibverbs-providers"
            ),
            Self::NoFunction(name) => write!(
                f,
                "{LIBRARY} has no function {name}; InfiniBand and RoCE need rdma-core 34 or newer"
            ),
        }
    }
}

impl core::error::Error for LoadError {}

/// The soname of the library.
const LIBRARY: &str = "libibverbs.so.1";

/// Defines the table, and the code that fills it.
macro_rules! functions {
    ($($field:ident = $symbol:literal: fn($($argument:ty),*) $(-> $result:ty)?;)*) => {
        /// The functions of the library, in fields with their names without `ibv_`. All are as unsafe as in C.
        #[derive(Clone, Copy, Debug)]
        pub struct VerbsFunctions {
            $(
                #[doc = concat!("`", $symbol, "`.")]
                pub $field: unsafe extern "C" fn($($argument),*) $(-> $result)?,
            )*
        }

        impl VerbsFunctions {
            fn find(library: &VerbsLibrary) -> Result<Self, LoadError> {
                Ok(Self {
                    $($field: {
                        const SYMBOL: &str = concat!($symbol, "\0");
                        let found = library.find(SYMBOL)?;
                        type Function = unsafe extern "C" fn($($argument),*) $(-> $result)?;
                        // SAFETY: the address of the function of this name, whose type does not change within a symbol
                        // version (see the head of this file).
                        unsafe { mem::transmute::<*mut c_void, Function>(found) }
                    },)*
                })
            }
        }
    };
}

functions! {
    get_device_list = "ibv_get_device_list": fn(*mut c_int) -> *mut *mut ibv_device;
    free_device_list = "ibv_free_device_list": fn(*mut *mut ibv_device);
    get_device_name = "ibv_get_device_name": fn(*mut ibv_device) -> *const c_char;
    get_device_guid = "ibv_get_device_guid": fn(*mut ibv_device) -> u64;
    open_device = "ibv_open_device": fn(*mut ibv_device) -> *mut ibv_context;
    close_device = "ibv_close_device": fn(*mut ibv_context) -> c_int;
    query_device = "ibv_query_device": fn(*mut ibv_context, *mut ibv_device_attr) -> c_int;
    query_port = "ibv_query_port": fn(*mut ibv_context, u8, *mut ibv_port_attr) -> c_int;
    query_pkey = "ibv_query_pkey": fn(*mut ibv_context, u8, c_int, *mut u16) -> c_int;
    query_gid_table = "_ibv_query_gid_table":
        fn(*mut ibv_context, *mut ibv_gid_entry, usize, u32, usize) -> isize;
    get_async_event = "ibv_get_async_event": fn(*mut ibv_context, *mut ibv_async_event) -> c_int;
    ack_async_event = "ibv_ack_async_event": fn(*mut ibv_async_event);
    event_type_str = "ibv_event_type_str": fn(c_uint) -> *const c_char;
    wc_status_str = "ibv_wc_status_str": fn(c_uint) -> *const c_char;
    alloc_pd = "ibv_alloc_pd": fn(*mut ibv_context) -> *mut ibv_pd;
    dealloc_pd = "ibv_dealloc_pd": fn(*mut ibv_pd) -> c_int;
    reg_mr = "ibv_reg_mr": fn(*mut ibv_pd, *mut c_void, usize, c_int) -> *mut ibv_mr;
    reg_mr_iova2 = "ibv_reg_mr_iova2":
        fn(*mut ibv_pd, *mut c_void, usize, u64, c_uint) -> *mut ibv_mr;
    dereg_mr = "ibv_dereg_mr": fn(*mut ibv_mr) -> c_int;
    create_comp_channel = "ibv_create_comp_channel": fn(*mut ibv_context) -> *mut ibv_comp_channel;
    destroy_comp_channel = "ibv_destroy_comp_channel": fn(*mut ibv_comp_channel) -> c_int;
    create_cq = "ibv_create_cq":
        fn(*mut ibv_context, c_int, *mut c_void, *mut ibv_comp_channel, c_int) -> *mut ibv_cq;
    destroy_cq = "ibv_destroy_cq": fn(*mut ibv_cq) -> c_int;
    get_cq_event = "ibv_get_cq_event":
        fn(*mut ibv_comp_channel, *mut *mut ibv_cq, *mut *mut c_void) -> c_int;
    ack_cq_events = "ibv_ack_cq_events": fn(*mut ibv_cq, c_uint);
    create_srq = "ibv_create_srq": fn(*mut ibv_pd, *mut ibv_srq_init_attr) -> *mut ibv_srq;
    modify_srq = "ibv_modify_srq": fn(*mut ibv_srq, *mut ibv_srq_attr, c_int) -> c_int;
    destroy_srq = "ibv_destroy_srq": fn(*mut ibv_srq) -> c_int;
    create_qp = "ibv_create_qp": fn(*mut ibv_pd, *mut ibv_qp_init_attr) -> *mut ibv_qp;
    modify_qp = "ibv_modify_qp": fn(*mut ibv_qp, *mut ibv_qp_attr, c_int) -> c_int;
    query_qp = "ibv_query_qp":
        fn(*mut ibv_qp, *mut ibv_qp_attr, c_int, *mut ibv_qp_init_attr) -> c_int;
    destroy_qp = "ibv_destroy_qp": fn(*mut ibv_qp) -> c_int;
    create_ah = "ibv_create_ah": fn(*mut ibv_pd, *mut ibv_ah_attr) -> *mut ibv_ah;
    destroy_ah = "ibv_destroy_ah": fn(*mut ibv_ah) -> c_int;
}

impl VerbsFunctions {
    /// The functions of the library on this machine. The library is searched for once.
    ///
    /// # Errors
    /// The library is missing, or lacks a function; the message names the package.
    pub fn load() -> Result<&'static Self, LoadError> {
        static FOUND: OnceLock<Result<VerbsFunctions, LoadError>> = OnceLock::new();
        let found = FOUND.get_or_init(|| Self::find(&VerbsLibrary::open(c"libibverbs.so.1")?));
        found.as_ref().map_err(Clone::clone)
    }
}

/// A library that is never unloaded.
struct VerbsLibrary(*mut c_void);

impl VerbsLibrary {
    fn open(name: &CStr) -> Result<Self, LoadError> {
        // SAFETY: a C string. Loading runs the library's initializers, as linking with it would.
        let handle = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
        match handle.is_null() {
            true => Err(LoadError::NoLibrary(dl_error())),
            false => Ok(Self(handle)),
        }
    }

    /// Finds the symbol `name`, which ends with a zero byte.
    fn find(&self, name: &'static str) -> Result<*mut c_void, LoadError> {
        // SAFETY: the handle of a loaded library, and a string that ends with a zero byte.
        let found = unsafe { libc::dlsym(self.0, name.as_ptr().cast()) };
        match found.is_null() {
            true => Err(LoadError::NoFunction(name.trim_end_matches('\0'))),
            false => Ok(found),
        }
    }
}

/// The dynamic linker's last error message.
fn dl_error() -> String {
    // SAFETY: no arguments; the result is null or a string that is valid until the next call in this thread.
    let message = unsafe { libc::dlerror() };
    if message.is_null() {
        return "no reason given".into();
    }
    // SAFETY: not null, so a C string, and no other call of the dynamic linker was made in this thread after that one.
    unsafe { CStr::from_ptr(message) }
        .to_string_lossy()
        .into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_library_error_names_the_package() {
        let Err(error) = VerbsLibrary::open(c"libno-such-thing.so.1") else {
            panic!("it is there");
        };
        let message = error.to_string();
        assert!(
            message.contains("libno-such-thing.so.1") && message.contains("ibverbs-providers"),
            "{message}"
        );
    }

    #[test]
    fn missing_function_error_names_the_function() {
        let libc = VerbsLibrary::open(c"libc.so.6").expect("the C library");
        assert!(libc.find("strlen\0").is_ok());
        let error = VerbsFunctions::find(&libc).expect_err("the C library is not rdma-core");
        assert_eq!(error, LoadError::NoFunction("ibv_get_device_list"));
        assert!(error.to_string().contains("rdma-core 34"));
    }

    #[test]
    fn repeated_loads_return_the_same_functions() {
        let (first, second) = (VerbsFunctions::load(), VerbsFunctions::load());
        assert_eq!(
            first.map(core::ptr::from_ref),
            second.map(core::ptr::from_ref)
        );
    }
}
