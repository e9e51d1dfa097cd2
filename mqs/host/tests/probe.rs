// SPDX-License-Identifier: MIT OR Apache-2.0
//! MQS-048..065 on the side of the debugger: a library written in C against the header, independent of rmpi, uses each callback
//! and reports those that do not behave as the interface specifies.
//!
//! # Safety
//! A variable of a loaded library is read.
#![allow(unsafe_code)]
#![allow(clippy::unwrap_used, reason = "a test may panic")]

#[path = "../../../runtime/abi/tests/common/mod.rs"]
mod common;

use nix::libc;
use std::ffi::CString;
use std::io::{BufRead, BufReader};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use common::{prefix, scratch, source, succeed};
use queues::{Error, InspectionSettings, RunningJob};

struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        // The process may have ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Compiles the library as a third party would: only with the installed header.
fn library(folder: &Path) -> PathBuf {
    let library = folder.join("libprobe.so");
    let file = source(folder, "probe.c", include_str!("probe.c"));
    let mut compile = Command::new("cc");
    compile.args(["-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", "-I"]);
    compile.arg(prefix().join("include"));
    succeed(compile.arg("-o").arg(&library).arg(file));
    library
}

/// Starts a program whose `MPIR_dll_name` is this library; the program runs until the result is dropped.
fn start(folder: &Path, library: &str, flags: &[&str]) -> Running {
    let program = folder.join("target");
    let file = source(folder, "target.c", include_str!("target.c"));
    let mut compile = Command::new("cc");
    compile.args(["-Wall", "-Werror"]).args(flags);
    compile.arg(format!("-DPROBE=\"{library}\""));
    succeed(compile.arg("-o").arg(&program).arg(file));
    let child = Command::new(program).stdout(Stdio::piped()).spawn();
    let mut running = Running(child.unwrap());
    let mut line = String::new();
    let output = running.0.stdout.take().unwrap();
    BufReader::new(output).read_line(&mut line).unwrap();
    assert_eq!(line, "pending\n");
    running
}

/// Reads and resets what a loaded library counts: 1 for each destroyed image info, and 100 for each destroyed process
/// info.
fn destroyed(library: &Path) -> i32 {
    let path = CString::new(library.as_os_str().as_bytes()).unwrap();
    // SAFETY: a string; the library is loaded already.
    let handle = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW) };
    // SAFETY: a library that is loaded, and a string.
    let place: *mut i32 = unsafe { libc::dlsym(handle, c"probe_destroyed".as_ptr()) }.cast();
    // SAFETY: the library has an int of this name, which is not written concurrently.
    unsafe { place.replace(0) }
}

#[test]
fn mqs_048_065_every_debugger_callback_works() {
    let folder = scratch("mqs-probe");
    let library = library(&folder);
    let running = start(&folder, library.to_str().unwrap(), &["-g"]);
    let ranks = queues::inspect(running.0.id()).unwrap();
    assert_eq!(destroyed(&library), 101, "MQS-073 and MQS-076, once each");
    assert_eq!((ranks.len(), ranks[0].rank), (1, None));
    let [first, second] = &ranks[0].communicators[..] else {
        panic!("{ranks:?}")
    };
    assert_eq!((first.id, second.id, &*first.name), (70, 71, "probed"));
    assert_eq!((first.rank, &first.ranks[..]), (1, &[5, 6, -1][..]));
    assert!(first.sends.is_empty() && first.unexpected.is_empty());
    let [wild, matched] = &first.receives[..] else {
        panic!("{first:?}")
    };
    assert_eq!((wild.peer, wild.world_peer, wild.tag), (None, None, None));
    assert_eq!(
        (wild.matched, wild.bytes, wild.buffer),
        (None, 1000, 0x1234)
    );
    assert_eq!(
        (matched.world_peer, matched.matched),
        (Some(6), Some((1, 9, 8)))
    );
    assert_eq!(matched.words[..], ["first line", "last line"]);
}

#[test]
fn mqs_096_types_of_a_stripped_program_come_from_a_given_file() {
    let folder = scratch("mqs-probe-stripped");
    let library = library(&folder);
    let types = folder.join("types.o");
    let running = start(&folder, library.to_str().unwrap(), &[]);
    let refused = queues::inspect(running.0.id()).unwrap_err();
    let Error::Refused { function, why, .. } = refused else {
        panic!("{refused}")
    };
    assert_eq!(function, "mqs_image_has_queues");
    assert!(why.ends_with(": type"), "{why}");
    assert_eq!(destroyed(&library), 1, "no process was set up");
    let mut compile = Command::new("cc");
    compile.args(["-g", "-DPROBE=\"\"", "-o"]).arg(&types);
    succeed(compile.arg(folder.join("target.c")));
    let settings = InspectionSettings {
        debug_info: vec![types],
        ..InspectionSettings::default()
    };
    let job = RunningJob::find(running.0.id(), &settings).unwrap();
    assert_eq!(job.inspect().unwrap()[0].communicators.len(), 2);
}

#[test]
fn mqs_001_the_library_is_found_in_a_moved_installation_or_by_option() {
    let folder = scratch("mqs-probe-moved");
    let moved = folder.join("moved/opt/mpi/lib");
    std::fs::create_dir_all(&moved).unwrap();
    std::fs::rename(library(&folder), moved.join("libprobe.so")).unwrap();
    let bin = folder.join("moved/opt/mpi/bin");
    std::fs::create_dir_all(&bin).unwrap();
    let running = start(&bin, "/opt/mpi/lib/libprobe.so", &["-g"]);
    assert_eq!(queues::inspect(running.0.id()).unwrap().len(), 1);
    let absent = start(&folder, "/nowhere/libprobe.so", &["-g"]);
    let why = queues::inspect(absent.0.id()).unwrap_err().to_string();
    assert!(
        why.starts_with("cannot use /nowhere/libprobe.so: "),
        "{why}"
    );
    let settings = InspectionSettings {
        library: Some(moved.join("libprobe.so")),
        ..InspectionSettings::default()
    };
    let job = RunningJob::find(absent.0.id(), &settings).unwrap();
    assert_eq!(job.inspect().unwrap().len(), 1);
}
