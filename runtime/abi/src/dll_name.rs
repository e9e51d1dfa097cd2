// SPDX-License-Identifier: MIT OR Apache-2.0
//! The path of the debugger library for message queues (`librmpi_mqs.so`): in the folder from which this library was
//! loaded.
//!
//! Debuggers may read these variables in a process that has not reached `main`, so the variables are filled when the
//! library is loaded.
//!
//! # Safety
//! Three unsafe things are done here: exporting the names of the debuggers' interface, placing a function in
//! `.init_array`, and reading strings of the loader, which are valid as long as the library is loaded.
#![allow(unsafe_code, reason = "exported symbols, and the loader's answer")]

use core::ffi::CStr;
use core::ptr::null_mut;
use core::sync::atomic::{AtomicPtr, AtomicU8, Ordering::Relaxed};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use crate::anchor::rmpi_debug_anchor;

/// The path as a zero-terminated array, not a pointer: debuggers read the string at the symbol's address.
// SAFETY: no other symbol has this name.
#[used]
#[unsafe(no_mangle)]
#[allow(non_upper_case_globals, reason = "a name for C programs")]
pub static MPIR_dll_name: [AtomicU8; ROOM] = {
    let mut text = [const { AtomicU8::new(0) }; ROOM];
    let mut at = 0;
    while at < NAME.len() {
        text[at] = AtomicU8::new(NAME.as_bytes()[at]);
        at += 1;
    }
    text
};

/// `char **`: the path of [`MPIR_dll_name`], and a terminating NULL.
// SAFETY: no other symbol has this name.
#[used]
#[unsafe(no_mangle)]
#[allow(non_upper_case_globals, reason = "a name for C programs")]
pub static mpimsgq_dll_locations: AtomicPtr<AtomicPtr<AtomicU8>> =
    AtomicPtr::new((&raw const PATHS).cast_mut().cast());

/// `char **`: libraries for handle introspection. There are none, so the list is only a NULL.
// SAFETY: no other symbol has this name.
#[used]
#[unsafe(no_mangle)]
#[allow(non_upper_case_globals, reason = "a name for C programs")]
pub static mpidbg_dll_locations: AtomicPtr<AtomicPtr<AtomicU8>> =
    AtomicPtr::new((&raw const NO_PATHS).cast_mut().cast());

static PATHS: [AtomicPtr<AtomicU8>; 2] = [
    AtomicPtr::new((&raw const MPIR_dll_name).cast_mut().cast()),
    AtomicPtr::new(null_mut()),
];
static NO_PATHS: [AtomicPtr<AtomicU8>; 1] = [AtomicPtr::new(null_mut())];

// SAFETY: the loader runs functions of this type from that section.
#[used]
#[unsafe(link_section = ".init_array")]
static AT_LOAD: extern "C" fn() = fill_in;

/// Replaces the bare name by the path, unless this library is linked statically into a program.
extern "C" fn fill_in() {
    let Some(path) = own_file().and_then(|file| beside(&file)) else {
        return;
    };
    let bytes = path.as_os_str().as_bytes();
    if bytes.len() < ROOM {
        let zeros = core::iter::repeat(&0);
        for (place, byte) in MPIR_dll_name.iter().zip(bytes.iter().chain(zeros)) {
            place.store(*byte, Relaxed);
        }
    }
}

/// The file that this code was loaded from.
fn own_file() -> Option<PathBuf> {
    let mut found = core::mem::MaybeUninit::<libc::Dl_info>::zeroed();
    let here = (&raw const rmpi_debug_anchor).cast();
    // SAFETY: `dladdr` accepts any address, and there is room for the result.
    if unsafe { libc::dladdr(here, found.as_mut_ptr()) } == 0 {
        return None;
    }
    // SAFETY: the value was zeroed, which is valid for pointers, and then the loader filled it in.
    let name = unsafe { found.assume_init() }.dli_fname;
    if name.is_null() {
        return None;
    }
    // SAFETY: a C string of the loader, valid as long as the library is loaded.
    let name = unsafe { CStr::from_ptr(name) };
    let file = Path::new(std::ffi::OsStr::from_bytes(name.to_bytes()));
    std::path::absolute(file).ok()
}

fn beside(file: &Path) -> Option<PathBuf> {
    let name = file.file_name()?.as_bytes();
    name.starts_with(b"libmpi_abi.so")
        .then(|| file.with_file_name(NAME))
}

const NAME: &str = "librmpi_mqs.so";
const ROOM: usize = 1024;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mqs_001_the_debugger_library_is_in_the_folder_of_libmpi_abi() {
        let beside = |file: &str| beside(Path::new(file));
        let expected = Some(PathBuf::from("/opt/x/lib/librmpi_mqs.so"));
        assert_eq!(beside("/opt/x/lib/libmpi_abi.so.1"), expected);
        assert_eq!(beside("/opt/y/a.out"), None, "a static program");
        let text: Vec<u8> = MPIR_dll_name
            .iter()
            .map(|byte| byte.load(Relaxed))
            .collect();
        assert_eq!(&text[..NAME.len() + 1], b"librmpi_mqs.so\0", "of this test");
    }
}
