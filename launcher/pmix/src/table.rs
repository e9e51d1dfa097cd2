// SPDX-License-Identifier: MIT OR Apache-2.0
//! The functions of `libpmix.so.2`, found by the dynamic linker.
//!
//! # Safety
//! - Each function has the type that the PMIx standard gives it.
//! - The library is never unloaded, so its functions stay valid until the process ends.

use core::ffi::{CStr, c_char, c_int, c_void};
use core::mem;
use std::env;
use std::ffi::{CString, OsStr};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use crate::Error;
use crate::types::{Info, OpDone, PmixValue, Proc, Status};

macro_rules! functions {
    ($($field:ident = $symbol:literal: fn($($argument:ty),*) $(-> $result:ty)?;)*) => {
        /// As unsafe as in C.
        #[derive(Clone, Copy, Debug)]
        pub(crate) struct Functions {
            $(pub(crate) $field: unsafe extern "C" fn($($argument),*) $(-> $result)?,)*
            /// `PMIx_Value_free`, which is only a macro in older libraries.
            pub(crate) free_value: Option<unsafe extern "C" fn(*mut PmixValue, usize)>,
            /// `PMIx_Get_version`, for messages.
            pub(crate) version: Option<unsafe extern "C" fn() -> *const c_char>,
        }

        impl Functions {
            fn find(library: *mut c_void) -> Result<Self, &'static str> {
                Ok(Self {
                    $($field: {
                        let found = symbol(library, $symbol);
                        if found.is_null() {
                            return Err($symbol.to_str().unwrap_or_default());
                        }
                        type Function = unsafe extern "C" fn($($argument),*) $(-> $result)?;
                        // SAFETY: the address of the function of this name, which has this type in the standard.
                        unsafe { mem::transmute::<*mut c_void, Function>(found) }
                    },)*
                    version: {
                        let found = symbol(library, c"PMIx_Get_version");
                        type Function = Option<unsafe extern "C" fn() -> *const c_char>;
                        // SAFETY: as above; null is none.
                        unsafe { mem::transmute::<*mut c_void, Function>(found) }
                    },
                    free_value: {
                        let found = symbol(library, c"PMIx_Value_free");
                        type Function = Option<unsafe extern "C" fn(*mut PmixValue, usize)>;
                        // SAFETY: as above; null is none.
                        unsafe { mem::transmute::<*mut c_void, Function>(found) }
                    },
                })
            }
        }
    };
}

functions! {
    init = c"PMIx_Init": fn(*mut Proc, *mut Info, usize) -> Status;
    finalize = c"PMIx_Finalize": fn(*const Info, usize) -> Status;
    get = c"PMIx_Get": fn(*const Proc, *const c_char, *const Info, usize, *mut *mut PmixValue) -> Status;
    put = c"PMIx_Put": fn(u8, *const c_char, *mut PmixValue) -> Status;
    commit = c"PMIx_Commit": fn() -> Status;
    fence = c"PMIx_Fence_nb": fn(*const Proc, usize, *const Info, usize, OpDone, *mut c_void) -> Status;
    abort = c"PMIx_Abort": fn(c_int, *const c_char, *mut Proc, usize) -> Status;
    error_string = c"PMIx_Error_string": fn(Status) -> *const c_char;
}

/// Path of the library that would be used, and its version, if it has one.
///
/// # Errors
/// When none can be used.
pub fn library() -> Result<String, Error> {
    let functions = Functions::load()?;
    let place = file_of(functions.init as *const c_void);
    let place = place.unwrap_or_else(|| NAME.to_owned());
    // SAFETY: no arguments; may be called before the library is initialized.
    let version = functions.version.map(|version| unsafe { version() });
    let Some(version) = version.filter(|text| !text.is_null()) else {
        return Ok(place);
    };
    // SAFETY: not null, and a string of C that stays.
    let version = unsafe { CStr::from_ptr(version) }.to_string_lossy();
    Ok(format!("{place} ({})", version.trim()))
}

/// The file that contains an address of a library.
fn file_of(address: *const c_void) -> Option<String> {
    let mut found = mem::MaybeUninit::<libc::Dl_info>::zeroed();
    // SAFETY: any address may be queried, and there is room for the result.
    let is_known = unsafe { libc::dladdr(address, found.as_mut_ptr()) } != 0;
    // SAFETY: zeroed before, and null is a value of each of its pointers.
    let name = unsafe { found.assume_init() }.dli_fname;
    if !is_known || name.is_null() {
        return None;
    }
    // SAFETY: not null, a string of C that stays as long as the library, which is never unloaded.
    let name = unsafe { CStr::from_ptr(name) };
    Some(name.to_string_lossy().into_owned())
}

fn symbol(library: *mut c_void, name: &CStr) -> *mut c_void {
    // SAFETY: the handle of a library that is loaded, and a string of C.
    unsafe { libc::dlsym(library, name.as_ptr()) }
}

impl Functions {
    /// The functions of the first library that can be opened.
    pub(crate) fn load() -> Result<Self, Error> {
        let mut tried = Vec::new();
        for place in places() {
            match open(&place) {
                Ok(library) => match Self::find(library) {
                    Ok(functions) => return Ok(functions),
                    Err(lacks) => tried.push(format!("{} has no {lacks}", place.display())),
                },
                Err(why) => tried.push(why),
            }
        }
        Err(Error::Library(tried.join("; ")))
    }
}

/// Candidate paths, best first: the user's, the launcher's installation, and the dynamic linker's search.
fn places() -> Vec<PathBuf> {
    let named = |variable| env::var_os(variable).filter(|text| !text.is_empty());
    if let Some(library) = named("RMPI_PMIX_LIBRARY") {
        return vec![library.into()];
    }
    let prefixes = ["PMIX_PREFIX", "PRTE_PREFIX", "OPAL_PREFIX"];
    let mut places = Vec::new();
    for prefix in prefixes.into_iter().filter_map(named) {
        for folder in ["lib", "lib64", "lib/openmpi", "lib64/openmpi"] {
            let place = PathBuf::from(&prefix).join(folder).join(NAME);
            if place.exists() && !places.contains(&place) {
                places.push(place);
            }
        }
    }
    places.push(NAME.into());
    places
}

fn open(place: &std::path::Path) -> Result<*mut c_void, String> {
    let name = CString::new(OsStr::as_bytes(place.as_os_str()));
    let name = name.map_err(|_| "RMPI_PMIX_LIBRARY has a zero byte".to_owned())?;
    // SAFETY: a C string. Loading runs the library's initializers, as linking with it would.
    let library = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
    if !library.is_null() {
        return Ok(library);
    }
    // SAFETY: no arguments; the result is null or a string that is valid until the next call in this thread.
    let words = unsafe { libc::dlerror() };
    if words.is_null() {
        return Err(format!("{} cannot be opened", place.display()));
    }
    // SAFETY: not null, a C string, and no other call in between.
    let words = unsafe { CStr::from_ptr(words) };
    Err(words.to_string_lossy().into_owned())
}

/// The name of versions 3 to 6.
const NAME: &str = "libpmix.so.2";
