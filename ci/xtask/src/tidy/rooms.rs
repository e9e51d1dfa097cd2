// SPDX-License-Identifier: MIT OR Apache-2.0
//! Checks which files hold unsafe code, and which import atomics.
//!
//! The compiler denies `unsafe` in files that do not allow it; this list restricts which files may allow it.

use super::{Problem, SourceFile};

/// A room: a group of files that may hold unsafe code for one purpose. An entry that ends with `/` is a folder.
struct Room {
    name: &'static str,
    files: &'static [&'static str],
}

const UNSAFE_ROOMS: &[Room] = &[
    Room {
        name: "1: shared-memory rings",
        files: &["transport/ring/"],
    },
    Room {
        name: "2: rdma-core and its table, that of PMIx, and DPDK's",
        files: &[
            "transport/verbs-sys/",
            "transport/dpdk-sys/",
            "launcher/pmix/",
        ],
    },
    Room {
        name: "3: registered memory, and sleeping",
        files: &[
            "transport/core/src/arena.rs",
            "transport/core/src/mr.rs",
            "transport/core/src/node.rs",
            "transport/core/src/provider/cma.rs",
            "transport/core/src/wait.rs",
            "transport/core/src/provider/tcp/memory.rs",
            "transport/core/src/provider/tcp/system.rs",
            "transport/core/src/provider/verbs/device.rs",
            "transport/core/src/provider/verbs/device/",
            "transport/core/src/provider/verbs/fake/memory.rs",
            "transport/core/src/provider/verbs/fake/port.rs",
            "transport/core/src/provider/verbs/fake/tests/",
            "transport/core/src/provider/verbs/gid/system.rs",
            "transport/core/src/provider/verbs/memory.rs",
            "transport/core/src/provider/verbs/port.rs",
            "transport/core/src/provider/verbs/roce/port.rs",
            "transport/core/src/provider/verbs/roce/regions.rs",
            "transport/core/src/provider/verbs/roce/system.rs",
            "transport/core/src/provider/verbs/roce/tests/",
            "transport/testbed/",
            "runtime/channel/src/memory.rs",
            "runtime/channel/tests/",
        ],
    },
    Room {
        name: "4: the application's memory, the unit for long doubles, inherited descriptors",
        files: &[
            "runtime/core/src/user_buf.rs",
            "runtime/core/src/pack.rs",
            "runtime/core/src/op/long.rs",
            "runtime/core/src/boot.rs",
            "runtime/core/tests/sim/memory.rs",
        ],
    },
    Room {
        name: "5: C entry points",
        files: &[
            "runtime/abi/",
            "mqs/src/entry.rs",
            "mqs/src/interface.rs",
            "mqs/src/list.rs",
            "mqs/dll/",
            "mqs/tests/",
            "mqs/host/src/dll.rs",
            "mqs/host/src/stop.rs",
            "mqs/host/tests/",
            "qmp/src/entry.rs",
            "qmp/src/entry/",
            // QMP's calls of MPI's C functions: their callbacks, and the memory that is passed to them.
            "qmp/src/gate.rs",
            "qmp/src/global.rs",
            "qmp/src/memory.rs",
            "qmp/src/mpi.rs",
            "qmp/src/state.rs",
            "qmp/examples/",
            // The Fortran entry points, which call those of C.
            "runtime/fortran/",
        ],
    },
    Room {
        name: "6: starting processes",
        files: &[
            "launcher/src/spawn.rs",
            "launcher/src/mpir.rs",
            "launcher/tests/",
        ],
    },
    Room {
        name: "7: the machine's limits, and memory lent to be measured or counted",
        files: &[
            "bench/src/limits/raw.rs",
            "bench/benches/pack.rs",
            "ci/softroce/ibverbs-pingpong/src/main.rs",
            "launcher/src/tests/heap.rs",
        ],
    },
];

/// The files that may import atomics from `core` or `std`.
const ATOMIC_FILES: &[&str] = &[
    // Application memory that peers modify.
    "transport/core/src/mr.rs",
    "transport/core/src/provider/tcp/memory.rs",
    "transport/ring/src/sync.rs",
    "runtime/layout/",
    // An address that the debugger interface requires the library to store.
    "mqs/src/entry.rs",
    "runtime/core/src/var/",
    "runtime/core/src/var.rs",
    // State of the process: the thread level, initialization and finalization.
    "runtime/abi/src/lock.rs",
    // C variables that are set when the library is loaded.
    "runtime/abi/src/dll_name.rs",
    "runtime/abi/src/status_fortran.rs",
    "runtime/abi/src/process.rs",
    // A flag: whether there are QMPI tools.
    "runtime/abi/src/qmpi.rs",
    // Programs that are not part of the product.
    "transport/testbed/src/memory.rs",
    "runtime/abi/examples/",
    "bench/src/limits/",
    "ci/xtask/src/test/jobs.rs",
];

/// Unsafe code outside the rooms, files with unsafe code but without a `# Safety` section, and imports of atomics in
/// files that are not in [`ATOMIC_FILES`].
pub(crate) fn check(source: &SourceFile) -> Vec<Problem> {
    let mut problems = Vec::new();
    if let Some(line) = first_unsafe(source) {
        match room_of(&source.path) {
            None => problems.push(source.problem(
                line,
                "unsafe code outside the rooms that ci/xtask/src/tidy/rooms.rs lists",
            )),
            Some(room) if needs_head(source) && !has_safety_section(source) => {
                problems.push(source.problem(
                    1,
                    format!(
                        "in room {} the head of the file needs a `# Safety` section",
                        room.name
                    ),
                ))
            }
            Some(_) => {}
        }
    }
    problems.extend(foreign_atomics(source));
    problems
}

fn room_of(path: &str) -> Option<&'static Room> {
    UNSAFE_ROOMS.iter().find(|room| holds(room.files, path))
}

fn holds(files: &[&str], path: &str) -> bool {
    files
        .iter()
        .any(|file| path == *file || (file.ends_with('/') && path.starts_with(file)))
}

/// The first line (from 1) that uses or allows unsafe code.
fn first_unsafe(source: &SourceFile) -> Option<usize> {
    let uses = |code: &str| {
        let names = code.split(|c: char| !(c.is_alphanumeric() || c == '_'));
        let allows = code.contains("allow(unsafe_code") || code.contains("expect(unsafe_code");
        allows || names.into_iter().any(|name| name == "unsafe")
    };
    source
        .lines
        .iter()
        .position(|line| uses(&line.code))
        .map(|index| index + 1)
}

/// Whether the file needs a `# Safety` section: tests and generated files do not.
fn needs_head(source: &SourceFile) -> bool {
    !source.is_test() && !source.is_generated()
}

/// Whether the file's documentation has the section.
fn has_safety_section(source: &SourceFile) -> bool {
    source.lines.iter().any(|line| {
        line.comment.trim_start().starts_with("//!") && line.comment.contains("# Safety")
    })
}

fn foreign_atomics(source: &SourceFile) -> Option<Problem> {
    if source.is_test() || holds(ATOMIC_FILES, &source.path) {
        return None;
    }
    let imports = |code: &str| {
        ["core", "std", "loom"].iter().any(|origin| {
            code.contains(&format!("{origin}::sync::atomic"))
                || (code.contains(&format!("{origin}::sync::{{")) && code.contains("atomic"))
        })
    };
    let tests = source.lines_before_tests();
    let line = source.lines[..tests]
        .iter()
        .position(|line| imports(&line.code))?;
    let what = "atomics are imported only in ring::sync, runtime/layout, runtime/core/src/var and transport/core/src/mr.rs";
    Some(source.problem(line + 1, what))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problems(path: &str, text: &str) -> Vec<String> {
        check(&SourceFile::new(path, text))
            .into_iter()
            .map(|problem| problem.what)
            .collect()
    }

    #[test]
    fn unsafe_outside_the_rooms_fails() {
        let text = "#![allow(unsafe_code)]\nfn f() { unsafe { g() } }\n";
        assert!(problems("runtime/engine/src/lib.rs", text)[0].contains("outside the rooms"));
    }

    #[test]
    fn a_room_needs_its_safety_head() {
        let bare = "//! Rings.\nfn f() { unsafe { g() } }\n";
        let good = "//! Rings.\n//! # Safety\n//! R1.\nfn f() { unsafe { g() } }\n";
        assert!(problems("transport/ring/src/spsc.rs", bare)[0].contains("# Safety"));
        assert!(problems("transport/ring/src/spsc.rs", good).is_empty());
        assert!(problems("transport/ring/tests/two_process.rs", bare).is_empty());
    }

    #[test]
    fn forbidding_or_mentioning_unsafe_is_no_use_of_it() {
        let text = "#![forbid(unsafe_code)]\n// unsafe\nfn f() { g(\"unsafe {\") }\n";
        assert!(problems("runtime/engine/src/lib.rs", text).is_empty());
    }

    #[test]
    fn atomics_in_other_files_fail() {
        for line in [
            "use core::sync::atomic::AtomicU32;",
            "use std::sync::{Arc, atomic::Ordering};",
        ] {
            assert!(
                problems("runtime/engine/src/credit.rs", line)[0].contains("atomics"),
                "{line}"
            );
            assert!(problems("transport/ring/src/sync.rs", line).is_empty());
            assert!(problems("runtime/engine/tests/pair.rs", line).is_empty());
        }
    }
}
