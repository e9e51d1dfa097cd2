// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of the installed gdb commands for ranks, queues and values of MPI types. `cargo xtask test debuggers` installs
//! them and runs these tests.
#![allow(clippy::unwrap_used)]

mod common;
use common::{Job, Running};
use nix::sys::signal::Signal;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

const VARIABLE: &str = "RMPI_TEST_PREFIX";

/// A program that calls `look` while requests of all kinds are pending.
const PENDING: &str = r#"
#include <mpi.h>
static char buf[6][100000];
static void look(void) {}
int main(void)
{
    int rank, size;
    MPI_Request requests[8];
    MPI_Comm world = MPI_COMM_WORLD, none = MPI_COMM_NULL, zero = 0, wrong = (MPI_Comm) MPI_INT, halo, part, gone;
    MPI_Datatype type = MPI_INT, fixed = MPI_INT64_T, face, old;
    MPI_Op op = MPI_SUM;
    MPI_Group group, empty = MPI_GROUP_EMPTY, gone_group;
    MPI_Status status = {0}, statuses[1];
    MPI_Init(0, 0);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    MPI_Comm_dup(MPI_COMM_WORLD, &halo);
    MPI_Comm_set_name(halo, "halo");
    MPI_Comm_split(MPI_COMM_WORLD, 0, 0, &part);
    MPI_Comm_dup(MPI_COMM_SELF, &gone);
    MPI_Comm alias = gone;
    MPI_Comm_free(&gone);
    MPI_Comm_group(halo, &group);
    MPI_Comm_group(halo, &gone_group);
    MPI_Group stale_group = gone_group;
    MPI_Group_free(&gone_group);
    MPI_Type_vector(3, 2, 4, MPI_DOUBLE, &face);
    MPI_Type_set_name(face, "face");
    MPI_Type_commit(&face);
    MPI_Type_contiguous(3, MPI_CHAR, &old);
    MPI_Irecv(buf[0], 24, MPI_CHAR, 0, 7, halo, &requests[0]);
    MPI_Irecv(buf[1], 100, MPI_INT, MPI_ANY_SOURCE, MPI_ANY_TAG, halo, &requests[1]);
    MPI_Isend(buf[3], 3, MPI_INT, 0, 21, MPI_COMM_SELF, &requests[2]);
    MPI_Issend(buf[5], 8, MPI_CHAR, 0, 23, MPI_COMM_SELF, &requests[3]);
    MPI_Recv_init(buf[4], 1, face, 0, 5, part, &requests[4]);
    requests[5] = MPI_REQUEST_NULL;
    MPI_Irecv(buf[2], 1, MPI_CHAR, MPI_PROC_NULL, 0, halo, &requests[6]);
    MPI_Irecv(buf[2], 1, MPI_CHAR, 0, 99, halo, &requests[7]);
    MPI_Request stale = requests[7];
    MPI_Cancel(&requests[7]);
    MPI_Wait(&requests[7], &statuses[0]);
    MPI_Recv(buf[2], 100, MPI_INT, 0, 21, MPI_COMM_SELF, &status);
    look();
    return rank == size;
}
"#;

/// A program in which every rank waits for the rank before it.
const RING: &str = r#"
#include <mpi.h>
int main(void)
{
    int rank, size, token;
    MPI_Init(0, 0);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    MPI_Recv(&token, 1, MPI_INT, (rank + size - 1) % size, 7, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    MPI_Finalize();
    return 0;
}
"#;

fn installed(name: &str) -> PathBuf {
    let prefix = std::env::var_os(VARIABLE)
        .unwrap_or_else(|| panic!("{VARIABLE} is not set; type: cargo xtask test debuggers"));
    Path::new(&prefix).join(name)
}

/// A folder with this source, compiled as `program`.
fn folder(text: &str) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("program.c"), text).unwrap();
    let mut compile = Command::new(installed("bin/rmpicc"));
    compile.args(["-g", "-o", "program", "program.c"]);
    let compiled = compile.current_dir(folder.path()).status().unwrap();
    assert!(compiled.success());
    folder
}

/// Output of gdb with the installed commands loaded and these lines as input. `arguments` are appended to gdb's other
/// arguments.
fn gdb(folder: &Path, lines: &[&str], arguments: &[&str]) -> String {
    let mut command = Command::new("gdb");
    command.args(["-q", "-nx", "-batch", "-ex", "set pagination off"]);
    let script = installed("share/rmpi/gdb/rmpi.py");
    command.args(["-ex", &format!("source {}", script.display())]);
    for line in lines {
        command.args(["-ex", line]);
    }
    command.args(arguments).current_dir(folder);
    command.env("DEBUGINFOD_URLS", "").env("LC_ALL", "C");
    let outcome = Job::of(command).run();
    format!("{}\n{}", outcome.out, outcome.err)
}

fn expect(text: &str, parts: &[&str]) {
    for part in parts {
        assert!(text.contains(part), "expected {part:?} in: {text}");
    }
    assert!(!text.contains("Python Exception"), "{text}");
}

const HANDLES: [&str; 27] = [
    "world = MPI_COMM_WORLD (rank 0 of 1)\n",
    "none = MPI_COMM_NULL\n",
    "zero = 0 <no communicator, not even MPI_COMM_NULL>\n",
    "wrong = 0x209 <no communicator, but MPI_INT>\n",
    "halo = \"halo\" (rank 0 of 1)\n",
    "part = communicator ",
    "gone = MPI_COMM_NULL\n",
    "<a communicator that was freed>\n",
    "type = MPI_INT (4 bytes)\n",
    "fixed = MPI_INT64_T (8 bytes)\n",
    "face = \"face\" (48 bytes, extent 80)\n",
    "old = datatype (3 bytes, extent 3, not committed)\n",
    "op = MPI_SUM\n",
    "group = <group of rank 0 of MPI_COMM_WORLD; this process is rank 0 of 1>\n",
    "empty = MPI_GROUP_EMPTY\n",
    "gone_group = MPI_GROUP_NULL\n",
    "<a group that was freed>\n",
    "<receive from rank 0, tag 7, 24 bytes (24 of MPI_CHAR), in halo: posted; waits for its message>",
    "<receive from any rank, any tag, 400 bytes (100 of MPI_INT), in halo: posted; waits for its message>",
    "<send to rank 0, tag 23, 8 bytes (8 of MPI_CHAR), in MPI_COMM_SELF, synchronous: announced; waits for its receive>",
    "<receive from rank 0, tag 5, 48 bytes (1 of face), in communicator ",
    ", persistent: not started>, MPI_REQUEST_NULL, <complete at once>, MPI_REQUEST_NULL}",
    "<complete at once>",
    "<a request that was completed or freed>",
    "status = source 0, tag 21, error MPI_SUCCESS, 12 bytes\n",
    "cancelled",
    "statuses = {source ",
];

#[test]
#[ignore = "needs the installation: cargo xtask test debuggers"]
fn mqs_097_handles_and_statuses_are_readable_in_processes_and_core_files() {
    let folder = folder(PENDING);
    let lines = [
        "break look",
        "run",
        "up",
        "info locals",
        "print/r world",
        "generate-core-file core",
        "kill",
    ];
    let output = gdb(folder.path(), &lines, &["./program"]);
    expect(&output, &HANDLES);
    expect(&output, &["$1 = (MPI_Comm) 0x101\n"]);
    let core = ["up", "info locals", "mpi ranks", "mpi queues"];
    let output = gdb(folder.path(), &core, &["./program", "core"]);
    expect(&output, &HANDLES);
    expect(
        &output,
        &[
            "  from rank 0, tag 7, 24 bytes (receive; posted; waits for its message; 24 of MPI_CHAR)\n",
        ],
    );
}

#[test]
#[ignore = "needs the installation: cargo xtask test debuggers"]
fn before_init_and_after_exit_no_mpi_state_is_shown() {
    let folder = folder(PENDING);
    let lines = [
        "start",
        "print (MPI_Comm) 0x101",
        "print (MPI_Request) 0x20000100",
        "mpi ranks",
        "mpi queues",
    ];
    let output = gdb(folder.path(), &lines, &["./program"]);
    expect(
        &output,
        &["$1 = MPI_COMM_WORLD\n", "$2 = 0x20000100 <a request>\n"],
    );
    expect(
        &output,
        &[
            "main at program.c:",
            ": MPI is not initialized, or is finalized\n",
        ],
    );
}

/// A running job of three ranks of [`RING`] that have posted their receives, and the pids of the ranks in rank order.
fn ring(folder: &Path) -> (Running, Vec<u32>) {
    let mut command = Command::new(installed("bin/rmpiexec"));
    command.args(["-n", "3", "./program"]).current_dir(folder);
    command.env("RMPI_STANDSTILL", "1");
    let mut running = Job::of(command).start();
    running.wait_for_text("no rank has made progress");
    let mut ranks = running.wait_for(3, "./program");
    // The ranks were started in rank order, so their pids ascend.
    ranks.sort_unstable();
    (running, ranks)
}

#[test]
#[ignore = "needs the installation: cargo xtask test debuggers"]
fn mqs_095_ranks_and_queues_of_several_processes_are_shown_by_rank() {
    let folder = folder(RING);
    let (running, ranks) = ring(folder.path());
    // gdb does not attach to the ranks in rank order.
    let [zero, one, two] = [0, 1, 2].map(|rank: usize| format!("attach {}", ranks[rank]));
    let lines = [
        &two,
        "add-inferior",
        "inferior 2",
        &zero,
        "add-inferior",
        "inferior 3",
        &one,
        "mpi ranks",
    ];
    let queues = [
        "mpi queues",
        "echo ----\\n",
        "mpi queues 2",
        "echo ----\\n",
        "mpi queues all",
        "mpi queues 7",
    ];
    let output = gdb(folder.path(), &[&lines[..], &queues].concat(), &[]);
    for (rank, inferior) in [(0, 2), (1, 3), (2, 1)] {
        let row = format!(
            "{rank}         {inferior}  {:>7}        1  MPI_Recv at program.c:9\n",
            ranks[rank]
        );
        expect(&output, &[&row]);
    }
    let parts: Vec<&str> = output.split("----\n").collect();
    let waits = |rank: u32, parts: &str| {
        let from = (rank + 2) % 3;
        let line = format!(
            "from rank {from}, tag 7, 4 bytes (receive; posted; waits for its message; 1 of MPI_INT; in MPI_Recv)\n"
        );
        expect(parts, &[&format!("rank {rank}, inferior "), &line]);
    };
    waits(1, parts[0]);
    waits(2, parts[1]);
    (0..3).for_each(|rank| waits(rank, parts[2]));
    expect(
        parts[2],
        &["this gdb does not have rank 7; ranks that it has: 0, 1, 2\n"],
    );
    running.signal(Signal::SIGTERM);
    running.finish().expect(143);
}

#[test]
#[ignore = "needs the installation: cargo xtask test debuggers"]
fn gdb_commands_explain_missing_state() {
    let folder = folder(RING);
    let output = gdb(folder.path(), &["mpi queues", "mpi ranks"], &[]);
    assert_eq!(
        output
            .matches("there is no process here: attach to a rank")
            .count(),
        2
    );
    let output = gdb(
        folder.path(),
        &["starti", "mpi queues", "mpi queues x", "mpi ranks y"],
        &["/bin/true"],
    );
    expect(
        &output,
        &["has loaded no MPI that names a library for debuggers (MPIR_dll_name)"],
    );
    expect(
        &output,
        &[
            "`x` is neither a rank nor `all`",
            "it takes no argument, it was given `y`",
        ],
    );
    let lines = [
        "start",
        "set var *(char *) &MPIR_dll_name = 'X'",
        "mpi queues",
    ];
    let output = gdb(folder.path(), &lines, &["./program"]);
    expect(
        &output,
        &["cannot load X", "the MPI library's own for debuggers: "],
    );
}

#[test]
#[ignore = "needs the installation: cargo xtask test debuggers"]
fn gdb_started_by_rmpiexec_has_the_mpi_commands() {
    let folder = folder(RING);
    let input = folder.path().join("input");
    fs::write(
        &input,
        "break program.c:9\ncontinue\nmpi ranks\nmpi queues\nprint (MPI_Comm) 0x101\nkill\nquit\n",
    )
    .unwrap();
    let mut command = Command::new(installed("bin/rmpiexec"));
    command
        .args(["--gdb", "1", "-n", "2", "./program"])
        .current_dir(folder.path());
    command.stdin(Stdio::from(fs::File::open(&input).unwrap()));
    let outcome = Job::of(command).run();
    expect(
        &outcome.out,
        &[
            "        1  main at program.c:9\n",
            "rank 1, inferior 1",
            "  nothing is pending\n",
        ],
    );
    expect(&outcome.out, &["MPI_COMM_WORLD (rank 1 of 2)"]);
}

/// A program with groups of some of the ranks, not in rank order.
const GROUPS: &str = r#"
#include <mpi.h>
static void look(void) {}
int main(void)
{
    int some[] = {4, 0, 1, 2};
    MPI_Group world, part, rest;
    MPI_Init(0, 0);
    MPI_Comm_group(MPI_COMM_WORLD, &world);
    MPI_Group_incl(world, 4, some, &part);
    MPI_Group_difference(world, part, &rest);
    look();
    MPI_Finalize();
    return 0;
}
"#;

#[test]
#[ignore = "needs the installation: cargo xtask test debuggers"]
fn groups_are_printed_with_their_ranks() {
    let folder = folder(GROUPS);
    let lines = "break look\ncontinue\nup\ninfo locals\ndetach\nquit\n";
    let output = session(
        folder.path(),
        lines,
        &["--gdb", "1", "-n", "5", "./program"],
    );
    expect(
        &output,
        &[
            "world = <group of ranks 0-4 of MPI_COMM_WORLD; this process is rank 1 of 5>\n",
            "part = <group of ranks 4, 0-2 of MPI_COMM_WORLD; this process is rank 2 of 4>\n",
            "rest = <group of rank 3 of MPI_COMM_WORLD; this process is not in it>\n",
        ],
    );
}

/// `rmpiexec` with these arguments, and gdb in it with these lines as input.
fn session(folder: &Path, lines: &str, arguments: &[&str]) -> String {
    let input = folder.join("input");
    fs::write(&input, lines).unwrap();
    let mut command = Command::new(installed("bin/rmpiexec"));
    command.args(arguments).current_dir(folder);
    command.env("HOME", folder).env("DEBUGINFOD_URLS", "");
    command.stdin(Stdio::from(fs::File::open(&input).unwrap()));
    let outcome = Job::of(command).run();
    format!("{}\n{}", outcome.out, outcome.err)
}

#[test]
#[ignore = "needs the installation: cargo xtask test debuggers"]
fn run_in_an_attached_gdb_advises_continue() {
    let folder = folder(GROUPS);
    let lines = "run\nr\nstart\nstarti\nbreak look\ncontinue\nkill\nrun\nadd-inferior -exec /bin/true\ninferior 2\nrun\nquit\n";
    let output = session(
        folder.path(),
        lines,
        &["--gdb", "1", "-n", "5", "./program"],
    );
    let count_of = |command: &str| {
        // The text does not include the end of its line, which gdb writes separately; output of another process may
        // come in between.
        let expected = format!(
            "rank 1 was started by rmpiexec, so it cannot be started by `{command}`; to let it go on, type: continue"
        );
        output.matches(&expected).count()
    };
    assert_eq!(
        (count_of("run"), count_of("start"), count_of("starti")),
        (2, 1, 1),
        "{output}"
    );
    expect(
        &output,
        &[
            ", look () at program.c:3\n",
            // The text does not include the end of its line, which gdb writes separately; rmpiexec's message about the
            // kill may come in between.
            "rank 1 is gone, and a rank cannot be started again in its job; to begin anew, type: quit, and start rmpiexec --gdb again",
            // Processes that are not ranks can be started as usual.
            "[Inferior 2 (process ",
        ],
    );
}

#[test]
#[ignore = "needs the installation: cargo xtask test debuggers"]
fn mpi_ranks_distinguishes_the_launcher_from_ranks() {
    let folder = folder(RING);
    let (running, ranks) = ring(folder.path());
    let [launcher, rank] = [running.pid(), ranks[0]].map(|pid| format!("attach {pid}"));
    let lines = [&launcher, "add-inferior", "inferior 2", &rank, "mpi ranks"];
    let output = gdb(folder.path(), &lines, &[]);
    let row = format!("     -         1  {:>7}        ", running.pid());
    expect(
        &output,
        &[
            &row,
            "  no rank: rmpiexec, which starts the ranks and waits for them (",
        ],
    );
    expect(&output, &["*    0         2  "]);
    running.signal(Signal::SIGTERM);
    running.finish().expect(143);
}
