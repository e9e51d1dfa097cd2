// SPDX-License-Identifier: MIT OR Apache-2.0
//! The functions and structures of the plug-in, as declared in `shim/rmpi_dpdk.h`.
//!
//! # Safety
//! A function is assumed to have the type declared here. That is right because the plug-in is of the same installation
//! as the program that opens it, and the version of its interface is checked first ([`ABI`]). The plug-in is never
//! unloaded.
#![allow(unsafe_code)]

use core::ffi::{CStr, c_char, c_int, c_void};
use core::mem;
use std::ffi::CString;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

/// A frame, as the plug-in's structure.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct RawFrame {
    pub(crate) buffer: *mut c_void,
    pub(crate) data: *mut u8,
    pub(crate) bytes: u32,
    pub(crate) room: u32,
}

impl RawFrame {
    pub(crate) const NONE: Self = Self {
        buffer: core::ptr::null_mut(),
        data: core::ptr::null_mut(),
        bytes: 0,
        room: 0,
    };
}

/// The attributes of a port.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DpdkPortAttr {
    /// The port's MAC address.
    pub mac: [u8; 6],
    /// MTU of the driver, in bytes.
    pub mtu: u16,
    /// Size of the receive queue, in frames.
    pub receives: u32,
    /// Not 0: memory can be lent to the port.
    pub(crate) in_place: u32,
}

impl DpdkPortAttr {
    /// Whether the port can send from lent memory without a copy.
    #[must_use]
    pub fn sends_in_place(&self) -> bool {
        self.in_place != 0
    }
}

macro_rules! functions {
    ($($field:ident: fn($($argument:ty),*) $(-> $result:ty)?;)*) => {
        /// The functions of the plug-in. The symbol of a function is `rmpi_dpdk_` followed by the name of its field.
        /// All are as unsafe as in C.
        #[derive(Clone, Copy, Debug)]
        pub(crate) struct Plugin {
            $(pub(crate) $field: unsafe extern "C" fn($($argument),*) $(-> $result)?,)*
        }

        impl Plugin {
            fn find(library: &PluginLibrary) -> Result<Self, String> {
                Ok(Self {
                    $($field: {
                        const SYMBOL: &str = concat!("rmpi_dpdk_", stringify!($field), "\0");
                        let found = library.find(SYMBOL)?;
                        type Function = unsafe extern "C" fn($($argument),*) $(-> $result)?;
                        // SAFETY: the plug-in has this version of the interface, in which the function of this name has
                        // this type.
                        unsafe { mem::transmute::<*mut c_void, Function>(found) }
                    },)*
                })
            }
        }
    };
}

functions! {
    start: fn(c_int, *const *const c_char, *mut c_char, usize) -> c_int;
    open: fn(*const c_char, u32, u16, c_int, *mut *mut c_void, *mut DpdkPortAttr, *mut c_char, usize) -> c_int;
    close: fn(*mut c_void);
    take: fn(*mut c_void, *mut RawFrame, u32) -> u32;
    give_back: fn(*mut RawFrame, u32);
    send: fn(*mut c_void, *mut RawFrame, u32) -> u32;
    receive: fn(*mut c_void, *mut RawFrame, u32) -> u32;
    lend: fn(*mut c_void, *mut c_void, usize) -> *mut c_void;
    attach: fn(*mut c_void, *mut RawFrame, *mut c_void, *const u8, u32, u32, u32) -> c_int;
    forget: fn(*mut c_void, *mut c_void, *mut RawFrame, u32) -> c_int;
}

impl Plugin {
    /// The plug-in of this installation that has the driver of a device. Each of the two plug-ins is searched for once.
    ///
    /// # Errors
    /// Returns where the plug-in was searched for, or the dynamic linker's message, or that it is of another release.
    pub(crate) fn load(device: &str) -> Result<&'static Self, String> {
        static USUAL: OnceLock<Result<Plugin, String>> = OnceLock::new();
        static WITH_XDP: OnceLock<Result<Plugin, String>> = OnceLock::new();
        let (found, file) = match device.starts_with("net_af_xdp") {
            true => (&WITH_XDP, FILE_WITH_XDP),
            false => (&USUAL, FILE),
        };
        let found = found.get_or_init(|| Self::open_at(&places(file)));
        found.as_ref().map_err(Clone::clone)
    }

    fn open_at(places: &[PathBuf]) -> Result<Self, String> {
        let Some(place) = places.iter().find(|place| place.exists()) else {
            let beside = places
                .first()
                .map_or_else(|| Path::new(FILE), PathBuf::as_path);
            return Err(format!(
                "{} is not there: install DPDK (package libdpdk-dev; for AF_XDP also libxdp-dev) and run cargo xtask install again",
                beside.display()
            ));
        };
        let library = PluginLibrary::open(place)?;
        let abi = library.find("rmpi_dpdk_abi\0")?;
        // SAFETY: this function has this type in every version of the plug-in.
        let abi = unsafe { mem::transmute::<*mut c_void, extern "C" fn() -> u32>(abi) }();
        if abi != ABI {
            return Err(format!(
                "{} has interface {abi}, expected {ABI}: it is of another release than this library",
                place.display()
            ));
        }
        Self::find(&library)
    }
}

/// Version of the plug-in's interface.
const ABI: u32 = 2;

/// The paths where the plug-in may be, relative to the library or the program that contains this code.
fn places(name: &str) -> Vec<PathBuf> {
    let file = own_file();
    let folders = file.iter().filter_map(|file| file.parent());
    folders
        .flat_map(|folder| ["rmpi", "../lib/rmpi"].map(|within| folder.join(within).join(name)))
        .collect()
}

const FILE: &str = "librmpi_dpdk.so";
/// The plug-in with the AF_XDP driver, which needs the library libxdp on each host.
const FILE_WITH_XDP: &str = "librmpi_dpdk_xdp.so";

/// The file that this code was loaded from.
fn own_file() -> Option<PathBuf> {
    // SAFETY: all bytes zero are a valid value of this type.
    let mut info: libc::Dl_info = unsafe { mem::zeroed() };
    let here = own_file as fn() -> Option<PathBuf> as *const c_void;
    // SAFETY: an address of code, and a place for the result.
    let found = unsafe { libc::dladdr(here, &raw mut info) };
    if found == 0 || info.dli_fname.is_null() {
        return None;
    }
    // SAFETY: a C string of the dynamic linker, which is valid as long as this code is loaded.
    let name = unsafe { CStr::from_ptr(info.dli_fname) };
    let path = Path::new(std::ffi::OsStr::from_bytes(name.to_bytes()));
    // If this code is in the program itself, the name may be its `argv[0]`, a relative path.
    match path.is_absolute() {
        true => std::fs::canonicalize(path).ok(),
        false => std::env::current_exe().ok(),
    }
}

/// A library that is never unloaded.
struct PluginLibrary(*mut c_void);

impl PluginLibrary {
    fn open(path: &Path) -> Result<Self, String> {
        let name = CString::new(path.as_os_str().as_bytes()).map_err(|error| error.to_string())?;
        // SAFETY: a C string. Loading runs the library's initializers, as linking with it would.
        let handle = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
        match handle.is_null() {
            true => Err(format!("the plug-in cannot be loaded: {}", dl_error())),
            false => Ok(Self(handle)),
        }
    }

    /// Finds the symbol `name`, which ends with a zero byte.
    fn find(&self, name: &'static str) -> Result<*mut c_void, String> {
        // SAFETY: the handle of a loaded library, and a string that ends with a zero byte.
        let found = unsafe { libc::dlsym(self.0, name.as_ptr().cast()) };
        match found.is_null() {
            true => {
                let name = name.trim_end_matches('\0');
                Err(format!("the plug-in has no function {name}"))
            }
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
    fn missing_plugin_error_names_path_and_package() {
        let message = Plugin::open_at(&["/nowhere/librmpi_dpdk.so".into()]).unwrap_err();
        assert!(
            message.starts_with("/nowhere/librmpi_dpdk.so is not there")
                && message.contains("libdpdk-dev"),
            "{message}"
        );
    }

    #[test]
    fn library_without_the_abi_symbol_is_rejected() {
        let file = own_file().expect("this code is in a file");
        assert!(file.exists());
        // The C library, at whatever path this system has it.
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        let libc = maps.lines().find_map(|line| {
            line.split(' ')
                .next_back()
                .filter(|it| it.contains("libc.so"))
        });
        let message = Plugin::open_at(&[libc.unwrap().into()]).unwrap_err();
        assert_eq!(message, "the plug-in has no function rmpi_dpdk_abi");
    }
}
