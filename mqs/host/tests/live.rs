// SPDX-License-Identifier: MIT OR Apache-2.0
//! The installed library, asked about a program that runs, through the interface alone.
//!
//! MQS-094: the program is a rank that no launcher has started, so it is what debuggers call the starter itself.
//!
//! # Safety
//! The library is loaded and unloaded by hand.
#![allow(unsafe_code)]
#![allow(clippy::unwrap_used, reason = "a test may panic")]

#[path = "../../../runtime/abi/tests/common/mod.rs"]
mod common;

use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

use common::{prefix, scratch, source, succeed};
use object::{Object, ObjectSymbol};
use queues::report::{Communicator, Operation};

const PENDING: &str = "#include <mpi.h>\n#include <stdio.h>\n\
    static char buf[6][100000];\n\
    int main(void) {\n\
    MPI_Request r[6]; MPI_Comm comm; int flag;\n\
    MPI_Init(0, 0);\n\
    MPI_Comm_dup(MPI_COMM_WORLD, &comm); MPI_Comm_set_name(comm, \"halo\");\n\
    MPI_Barrier(comm);\n\
    MPI_Irecv(buf[0], 24, MPI_CHAR, 0, 7, comm, &r[0]);\n\
    MPI_Irecv(buf[1], 100, MPI_INT, MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &r[1]);\n\
    MPI_Isend(buf[3], 3, MPI_INT, 0, 21, MPI_COMM_SELF, &r[3]);\n\
    MPI_Issend(buf[5], 8, MPI_CHAR, 0, 23, MPI_COMM_SELF, &r[5]);\n\
    MPI_Iprobe(0, 99, MPI_COMM_SELF, &flag, MPI_STATUS_IGNORE);\n\
    puts(\"pending\"); fflush(stdout);\n\
    MPI_Recv(buf[2], 5, MPI_DOUBLE, 0, 8, comm, MPI_STATUS_IGNORE);\n\
    return 0; }\n";

struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn start() -> Running {
    let folder = scratch("queues-live");
    let program = folder.join("program");
    let mut compile = Command::new(prefix().join("bin/rmpicc"));
    let file = source(&folder, "program.c", PENDING);
    succeed(
        compile
            .args(["-Wall", "-Werror", "-o"])
            .arg(&program)
            .arg(file),
    );
    let mut running = Running(
        Command::new(program)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap(),
    );
    let mut line = String::new();
    let output = running.0.stdout.take().unwrap();
    BufReader::new(output).read_line(&mut line).unwrap();
    assert_eq!(line, "pending\n");
    running
}

/// All communicators, once the last call of the program waits.
fn look(pid: u32) -> Vec<Communicator> {
    loop {
        let mut ranks = queues::look(pid).unwrap();
        assert_eq!(
            (ranks.len(), ranks[0].rank, ranks[0].pid),
            (1, Some(0), pid)
        );
        let found = ranks.remove(0).communicators;
        if found.iter().any(|it| it.receives.len() == 2) {
            return found;
        }
    }
}

fn short(queue: &[Operation]) -> Vec<(Option<i64>, Option<i64>, i64)> {
    queue.iter().map(|it| (it.peer, it.tag, it.bytes)).collect()
}

#[test]
fn mqs_095_what_a_program_waits_for_is_read_through_its_own_library() {
    let running = start();
    let found = look(running.0.id());
    let names: Vec<_> = found.iter().map(|it| it.name.as_str()).collect();
    assert_eq!(names, ["MPI_COMM_WORLD", "MPI_COMM_SELF", "halo"]);
    let [world, myself, halo] = &found[..] else {
        panic!("{found:?}")
    };
    assert_eq!(short(&world.receives), [(None, None, 400)]);
    let all = [(Some(0), Some(7), 24), (Some(0), Some(8), 40)];
    assert_eq!(short(&halo.receives), all, "also that of a blocking call");
    assert_eq!(short(&myself.sends), [(Some(0), Some(23), 8)]);
    let arrived = [(Some(0), Some(21), 12), (Some(0), Some(23), 8)];
    assert_eq!(short(&myself.unexpected), arrived);
    assert_eq!((halo.rank, &halo.ranks[..]), (0, &[0][..]));
    let [barrier] = &halo.collectives[..] else {
        panic!("{:?}", halo.collectives)
    };
    assert_eq!(
        (barrier.name, barrier.called, barrier.active),
        ("Barrier", 1, 0)
    );
    assert_ne!(world.id, halo.id);
}

#[test]
fn mqs_090_the_library_has_the_names_of_the_interface_and_needs_libc_alone() {
    let bytes = fs::read(prefix().join("lib/librmpi_mqs.so")).unwrap();
    let file = object::File::parse(&*bytes).unwrap();
    let (mut has, mut needs) = (BTreeSet::new(), BTreeSet::new());
    for symbol in file.dynamic_symbols().filter(|it| !it.is_weak()) {
        let set = if symbol.is_definition() {
            &mut has
        } else {
            &mut needs
        };
        set.insert(symbol.name().unwrap().to_owned());
    }
    let header = fs::read_to_string(prefix().join("include/mpi_interface.h")).unwrap();
    let declared = header.lines().filter_map(|line| {
        let (before, _) = line.strip_suffix(");")?.split_once('(')?;
        let name = before.rsplit([' ', '*']).next()?;
        name.starts_with("mqs_").then(|| name.to_owned())
    });
    assert_eq!(has, declared.collect());
    let known = ["memcpy", "memset", "memmove", "memcmp", "bcmp", "strlen"];
    assert!(
        needs.iter().all(|name| known.contains(&name.as_str())),
        "{needs:?}"
    );
}

/// A debugger that has seen a job's end may load another version of the library, for the next job.
#[test]
fn a_debugger_may_unload_the_library() {
    let library = prefix().join("lib/librmpi_mqs.so");
    let path = std::ffi::CString::new(library.to_str().unwrap()).unwrap();
    let mapped = || {
        let maps = fs::read_to_string("/proc/self/maps").unwrap();
        maps.contains(library.to_str().unwrap())
    };
    // Other tests of this program may have it loaded: one of them in a process of its own is enough.
    if std::env::var_os(ALONE).is_none() {
        let mut alone = Command::new(std::env::current_exe().unwrap());
        let alone = alone.args(["--exact", "a_debugger_may_unload_the_library"]);
        succeed(alone.env(ALONE, "1"));
        return;
    }
    // SAFETY: a string; the library is ours.
    let handle = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW) };
    assert!(!handle.is_null() && mapped());
    // SAFETY: loaded just now, and nothing of it is in use.
    assert_eq!(unsafe { libc::dlclose(handle) }, 0);
    assert!(!mapped());
}

const ALONE: &str = "QUEUES_TEST_ALONE";
