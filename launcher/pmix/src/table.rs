// SPDX-License-Identifier: MIT OR Apache-2.0
//! Loads `libpmix.so.2` and looks up its functions.
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
        /// The functions of the library. Callers must meet the requirements of the C functions.
        #[derive(Clone, Copy, Debug)]
        pub(crate) struct Functions {
            $(pub(crate) $field: unsafe extern "C" fn($($argument),*) $(-> $result)?,)*
            /// `PMIx_Value_free`; `None` in older libraries, where it is only a macro.
            pub(crate) free_value: Option<unsafe extern "C" fn(*mut PmixValue, usize)>,
            /// `PMIx_Get_version`, whose text is shown to the user.
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
                        // SAFETY: `found` is the address of the function of this name, which has this type in the
                        // standard.
                        unsafe { mem::transmute::<*mut c_void, Function>(found) }
                    },)*
                    version: {
                        let found = symbol(library, c"PMIx_Get_version");
                        type Function = Option<unsafe extern "C" fn() -> *const c_char>;
                        // SAFETY: as above; a null pointer becomes `None`.
                        unsafe { mem::transmute::<*mut c_void, Function>(found) }
                    },
                    free_value: {
                        let found = symbol(library, c"PMIx_Value_free");
                        type Function = Option<unsafe extern "C" fn(*mut PmixValue, usize)>;
                        // SAFETY: as above; a null pointer becomes `None`.
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

/// Path of the library that would be used, and its version if the library reports one.
///
/// # Errors
/// When no library can be used.
pub fn library() -> Result<String, Error> {
    let functions = Functions::load()?;
    let place = file_of(functions.init as *const c_void);
    let place = place.unwrap_or_else(|| NAME.to_owned());
    // SAFETY: no arguments; may be called before the library is initialized.
    let version = functions.version.map(|version| unsafe { version() });
    let Some(version) = version.filter(|text| !text.is_null()) else {
        return Ok(place);
    };
    // SAFETY: `version` is not null, and is a C string that the library never frees.
    let version = unsafe { CStr::from_ptr(version) }.to_string_lossy();
    Ok(format!("{place} ({})", version.trim()))
}

/// The file of the library that contains this address.
fn file_of(address: *const c_void) -> Option<String> {
    let mut found = mem::MaybeUninit::<libc::Dl_info>::zeroed();
    // SAFETY: any address may be queried, and there is room for the result.
    let is_known = unsafe { libc::dladdr(address, found.as_mut_ptr()) } != 0;
    // SAFETY: `found` was zeroed before the call, and null is a valid value of each of its pointers.
    let name = unsafe { found.assume_init() }.dli_fname;
    if !is_known || name.is_null() {
        return None;
    }
    // SAFETY: `name` is not null, and is a C string that is valid as long as the library is loaded; the library is
    // never unloaded.
    let name = unsafe { CStr::from_ptr(name) };
    Some(name.to_string_lossy().into_owned())
}

fn symbol(library: *mut c_void, name: &CStr) -> *mut c_void {
    // SAFETY: the arguments are the handle of a loaded library and a C string.
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

/// Candidate paths, best first. `RMPI_PMIX_LIBRARY` is the only candidate if it is set; otherwise the candidates are
/// the files in the launcher's installation, then the name alone, which the dynamic linker searches.
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
    // SAFETY: `name` is a C string. Loading runs the library's initializers, which linking with the library would run
    // too.
    let library = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
    if !library.is_null() {
        return Ok(library);
    }
    // SAFETY: no arguments; the result is null or a string that is valid until the next call in this thread.
    let error_text = unsafe { libc::dlerror() };
    if error_text.is_null() {
        return Err(format!("{} cannot be opened", place.display()));
    }
    // SAFETY: `error_text` is a C string and not null; this thread has called no function of the dynamic linker since.
    let error_text = unsafe { CStr::from_ptr(error_text) };
    Err(error_text.to_string_lossy().into_owned())
}

/// File name of the library in PMIx versions 3 to 6.
const NAME: &str = "libpmix.so.2";
