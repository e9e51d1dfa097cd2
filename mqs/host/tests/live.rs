// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests the installed library on a running program, only through the interface.
//!
//! MQS-094: the program is a rank without a launcher, so it is itself what debuggers call the starter process.
//!
//! # Safety
//! The library is loaded and unloaded by hand.
#![allow(unsafe_code)]
#![allow(clippy::unwrap_used, reason = "a test may panic")]

#[path = "../../../runtime/abi/tests/common/mod.rs"]
mod common;

use nix::libc;
use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use common::{prefix, scratch, source, succeed};
use object::{Object, ObjectSymbol};
use queues::report::{CommReport, OperationReport};

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
        // The process may have ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

const WAITING: &str = "#include <mpi.h>\n#include <pthread.h>\n#include <stdio.h>\n\
    static char buf[4][100000];\n\
    static MPI_Comm halo;\n\
    static void *probe(void *none) { MPI_Probe(0, 9, halo, MPI_STATUS_IGNORE); return none; }\n\
    static void *send(void *none) {\n\
    MPI_Ssend(buf[0], 8, MPI_CHAR, 0, 23, MPI_COMM_SELF); return none; }\n\
    int main(void) {\n\
    MPI_Request r[3]; pthread_t thread[2]; int level;\n\
    MPI_Init_thread(0, 0, MPI_THREAD_MULTIPLE, &level);\n\
    MPI_Comm_dup(MPI_COMM_WORLD, &halo); MPI_Comm_set_name(halo, \"halo\");\n\
    pthread_create(&thread[0], 0, probe, 0); pthread_create(&thread[1], 0, send, 0);\n\
    for (int i = 0; i < 2; i++)\n\
    MPI_Irecv(buf[1 + i], 24, MPI_CHAR, 0, i, halo, &r[i]);\n\
    r[2] = MPI_REQUEST_NULL;\n\
    puts(\"pending\"); fflush(stdout);\n\
    MPI_Waitall(3, r, MPI_STATUSES_IGNORE);\n\
    return 0; }\n";

const COLLECTED: &str = "#define _GNU_SOURCE\n#include <dlfcn.h>\n#include <mpi.h>\n#include <stdio.h>\n\
    static char buf[4][100];\n\
    int main(void) {\n\
    MPI_Request r[3]; MPI_Comm halo; int *debugged = dlsym(RTLD_DEFAULT, \"MPIR_being_debugged\");\n\
    *debugged = 1;\n\
    MPI_Init(0, 0);\n\
    MPI_Comm_dup(MPI_COMM_SELF, &halo); MPI_Comm_set_name(halo, \"halo\");\n\
    MPI_Isend(buf[0], 8, MPI_CHAR, 0, 1, halo, &r[0]);\n\
    MPI_Isend(buf[1], 8, MPI_CHAR, 0, 2, halo, &r[1]);\n\
    MPI_Isend(buf[2], 33, MPI_CHAR, 0, 3, halo, &r[2]);\n\
    MPI_Send(buf[3], 8, MPI_CHAR, 0, 4, halo);\n\
    MPI_Wait(&r[1], MPI_STATUS_IGNORE);\n\
    puts(\"pending\"); fflush(stdout);\n\
    MPI_Probe(0, 9, halo, MPI_STATUS_IGNORE);\n\
    return 0; }\n";

fn start(name: &str, text: &str) -> Running {
    let folder = scratch(name);
    let program = folder.join("program");
    let mut compile = Command::new(prefix().join("bin/rmpicc"));
    let file = source(&folder, "program.c", text);
    succeed(
        compile
            .args(["-Wall", "-Werror", "-pthread", "-o"])
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

/// Reads the communicators repeatedly until `is_ready` accepts them, and returns them.
fn poll(pid: u32, is_ready: impl Fn(&[CommReport]) -> bool) -> Vec<CommReport> {
    loop {
        let mut ranks = queues::inspect(pid).unwrap();
        assert_eq!(
            (ranks.len(), ranks[0].rank, ranks[0].pid),
            (1, Some(0), pid)
        );
        let found = ranks.remove(0).communicators;
        if is_ready(&found) {
            return found;
        }
    }
}

fn short(queue: &[OperationReport]) -> Vec<(Option<i64>, Option<i64>, i64)> {
    queue.iter().map(|it| (it.peer, it.tag, it.bytes)).collect()
}

/// Number of items and datatype of each operation.
fn data(queue: &[OperationReport]) -> Vec<Option<(u64, &str)>> {
    let known = queue.iter().map(|it| it.items.zip(it.datatype.as_deref()));
    known.collect()
}

fn of(items: u64, datatype: &str) -> Option<(u64, &str)> {
    Some((items, datatype))
}

#[test]
fn mqs_095_pending_operations_are_read_through_the_programs_library() {
    let running = start("queues-live", PENDING);
    let found = poll(running.0.id(), |found| {
        found.iter().any(|it| it.receives.len() == 2)
    });
    let names: Vec<_> = found.iter().map(|it| it.name.as_str()).collect();
    assert_eq!(names, ["MPI_COMM_WORLD", "MPI_COMM_SELF", "halo"]);
    let [world, myself, halo] = &found[..] else {
        panic!("{found:?}")
    };
    assert_eq!(short(&world.receives), [(None, None, 400)]);
    let all = [(Some(0), Some(7), 24), (Some(0), Some(8), 40)];
    assert_eq!(short(&halo.receives), all, "also that of a blocking call");
    assert_eq!(short(&myself.sends), [(Some(0), Some(23), 8)]);
    assert_eq!(data(&world.receives), [of(100, "MPI_INT")]);
    // The first of these receives was posted on the fast path of the entry points; the second is that of a blocking
    // call.
    let two = [of(24, "MPI_CHAR"), of(5, "MPI_DOUBLE")];
    assert_eq!(data(&halo.receives), two);
    assert_eq!(data(&myself.sends), [of(8, "MPI_CHAR")]);
    // The datatype of a message is recorded only by its sender.
    assert_eq!(data(&myself.unexpected), [None, None]);
    let arrived = [(Some(0), Some(21), 12), (Some(0), Some(23), 8)];
    assert_eq!(short(&myself.unexpected), arrived);
    assert_eq!((halo.rank, &halo.ranks[..]), (0, &[0][..]));
    let [barrier] = &halo.collectives[..] else {
        panic!("{:?}", halo.collectives)
    };
    assert_eq!(
        (&*barrier.name, barrier.called, barrier.active),
        ("Barrier", 1, 0)
    );
    assert_ne!(world.id, halo.id);
}

#[test]
fn mqs_047_084_blocked_calls_of_all_threads_are_reported() {
    let running = start("queues-waiting", WAITING);
    let waits = |queue: &[OperationReport]| queue.iter().filter(|it| it.call.is_some()).count();
    let found = poll(running.0.id(), |found| {
        let all = found.iter();
        let noted = all.map(|it| it.calls.len() + waits(&it.sends) + waits(&it.receives));
        noted.sum::<usize>() == 4
    });
    let [_, myself, halo] = &found[..] else {
        panic!("{found:?}")
    };
    let [probe] = &halo.calls[..] else {
        panic!("{:?}", halo.calls)
    };
    assert_eq!(probe.function, "MPI_Probe");
    assert_eq!((probe.peer, probe.tag), (Some(0), Some(9)));
    let thread = probe.thread.expect("not of the main thread");
    let task = format!("/proc/{}/task/{thread}", running.0.id());
    assert!(Path::new(&task).exists(), "{task}");
    assert_eq!(myself.sends[0].call.as_deref(), Some("MPI_Ssend"));
    for receive in &halo.receives {
        assert_eq!(receive.call.as_deref(), Some("MPI_Waitall"));
    }
    assert_eq!(
        short(&halo.receives),
        [(Some(0), Some(0), 24), (Some(0), Some(1), 24)]
    );
}

#[test]
fn mqs_085_under_a_debugger_completed_sends_stay_until_collected() {
    let running = start("queues-collected", COLLECTED);
    let found = poll(running.0.id(), |found| {
        found.iter().any(|it| !it.calls.is_empty())
    });
    let halo = &found[2];
    let first_and_third = [(Some(0), Some(1), 8), (Some(0), Some(3), 33)];
    assert_eq!(short(&halo.sends), first_and_third);
    for send in &halo.sends {
        assert_eq!(send.status, "complete");
        assert_eq!(send.words[..2], ["send", "complete; not collected yet"]);
    }
    assert_eq!(data(&halo.sends), [of(8, "MPI_CHAR"), of(33, "MPI_CHAR")]);
    assert_eq!(halo.unexpected.len(), 4);
}

#[test]
fn mqs_090_the_library_exports_the_interface_and_imports_only_libc() {
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

/// After a job's end a debugger may load another version of the library, for the next job.
#[test]
fn a_debugger_may_unload_the_library() {
    let library = prefix().join("lib/librmpi_mqs.so");
    let path = std::ffi::CString::new(library.to_str().unwrap()).unwrap();
    let mapped = || {
        let maps = fs::read_to_string("/proc/self/maps").unwrap();
        maps.contains(library.to_str().unwrap())
    };
    // Other tests of this program may have loaded the library, so this test runs again in a process of its own.
    if std::env::var_os(ALONE).is_none() {
        let mut alone = Command::new(std::env::current_exe().unwrap());
        let alone = alone.args(["--exact", "a_debugger_may_unload_the_library"]);
        succeed(alone.env(ALONE, "1"));
        return;
    }
    // SAFETY: a string; the library is rmpi's.
    let handle = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW) };
    assert!(!handle.is_null() && mapped());
    // SAFETY: loaded just now, and nothing of it is in use.
    assert_eq!(unsafe { libc::dlclose(handle) }, 0);
    assert!(!mapped());
}

const ALONE: &str = "QUEUES_TEST_ALONE";
