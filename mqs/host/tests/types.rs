// SPDX-License-Identifier: MIT OR Apache-2.0
//! MQS-059..061 and MQS-096 on the side of the debugger: types are found in debug information in every place in which
//! compilers and distributions put it.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

#[path = "../../../runtime/abi/tests/common/mod.rs"]
mod common;

use std::path::{Path, PathBuf};
use std::process::Command;

use common::{scratch, source, succeed};
use queues::types::DebugInfo;

const HEADER: &str = "struct later;\n\
    typedef struct later later_t;\n\
    typedef struct { short kind; union { long wide; char narrow[3]; }; struct { int x, y; } place; later_t *next; } item;\n\
    typedef const item fixed_item;\n";

const LATER: &str = "struct later { double first; unsigned low : 3, high : 29; int last; };\n";

/// A library of two units, one of which has only a declaration of `struct later`.
fn library(folder: &Path, flags: &[&str]) -> PathBuf {
    let one = format!("{HEADER}fixed_item *keep_one; later_t *keep_two;\n");
    let other = format!("{LATER}struct later keep_three;\n");
    let library = folder.join("libtypes.so");
    let mut compile = Command::new("cc");
    compile.args(["-g", "-shared", "-fPIC", "-Wl,--build-id", "-o"]);
    compile.arg(&library).args(flags);
    compile.arg(source(folder, "one.c", &one));
    succeed(compile.arg(source(folder, "other.c", &other)));
    library
}

fn check(path: &Path) {
    let found = DebugInfo::of(path).unwrap();
    let item = found.find(b"fixed_item").unwrap();
    let offset = |name: &str| item.members.get(name.as_bytes()).copied();
    assert_eq!(item.size, 32);
    let members = ["kind", "wide", "narrow", "place", "next", "x"].map(offset);
    let expected = [Some(0), Some(8), Some(8), Some(16), Some(24), None];
    assert_eq!(&members[..4], &expected[..4]);
    assert_eq!(members[4..], expected[4..], "{item:?}");
    let later = found.find(b"later_t").unwrap();
    assert_eq!(later, found.find(b"later").unwrap());
    let offset = |name: &str| later.members.get(name.as_bytes()).copied();
    assert_eq!((later.size, offset("first")), (16, Some(0)));
    assert_eq!((offset("low"), offset("last")), (Some(8), Some(12)));
    assert_eq!(found.find(b"no such type"), None);
    assert_eq!(found.find(b"long int").unwrap().size, 8);
}

#[test]
fn mqs_059_types_are_found_in_the_library_by_name() {
    for (name, flags) in [
        ("types-4", &["-gdwarf-4"][..]),
        ("types-5", &["-gdwarf-5"]),
        ("types-z", &["-gz=zlib", "-O2"]),
    ] {
        check(&library(&scratch(name), flags));
    }
}

#[test]
fn mqs_096_types_are_found_in_a_file_beside_a_stripped_library() {
    let folder = scratch("types-beside");
    let library = library(&folder, &[]);
    let tool = |arguments: &[&str]| {
        let mut objcopy = Command::new("objcopy");
        succeed(objcopy.args(arguments).current_dir(&folder));
    };
    tool(&[
        "--only-keep-debug",
        "--compress-debug-sections",
        "libtypes.so",
        "libtypes.debug",
    ]);
    tool(&["--strip-debug", "libtypes.so"]);
    assert!(DebugInfo::of(&library).is_none());
    tool(&["--add-gnu-debuglink=libtypes.debug", "libtypes.so"]);
    check(&library);
    // Distributions have debug files in a folder named `.debug`.
    std::fs::create_dir(folder.join(".debug")).unwrap();
    std::fs::rename(
        folder.join("libtypes.debug"),
        folder.join(".debug/libtypes.debug"),
    )
    .unwrap();
    check(&library);
}

#[test]
fn damaged_or_missing_debug_info_yields_no_types() {
    let folder = scratch("types-none");
    let empty = source(&folder, "empty", "");
    assert!(DebugInfo::of(&empty).is_none());
    assert!(DebugInfo::of(&folder.join("absent")).is_none());
    // A truncated file yields no types, or fewer than the whole file.
    let library = library(&folder, &[]);
    let whole = std::fs::read(library).unwrap();
    let cut = folder.join("cut.so");
    for len in (64..whole.len()).step_by(97) {
        std::fs::write(&cut, &whole[..len]).unwrap();
        if let Some(found) = DebugInfo::of(&cut) {
            let _ = found.find(b"fixed_item");
        }
    }
    // Corrupted bytes.
    for at in (64..whole.len()).step_by(61) {
        let mut bytes = whole.clone();
        bytes[at] ^= 0xff;
        std::fs::write(&cut, &bytes).unwrap();
        if let Some(found) = DebugInfo::of(&cut) {
            let _ = found.find(b"fixed_item");
        }
    }
}
