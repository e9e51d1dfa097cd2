// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of what gdb finds in the installed `rmpiexec` and in the ranks' library. `cargo xtask test debuggers` installs
//! both and runs these tests.
#![allow(clippy::unwrap_used)]

mod common;
use common::{Job, terminal, until};
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

const VARIABLE: &str = "RMPI_TEST_PREFIX";

/// A file of the installation.
fn installed(name: &str) -> PathBuf {
    let prefix = std::env::var_os(VARIABLE)
        .unwrap_or_else(|| panic!("{VARIABLE} is not set; type: cargo xtask test debuggers"));
    Path::new(&prefix).join(name)
}

/// Standard output of a command.
fn output_of(program: &str, arguments: &[&OsStr]) -> String {
    let output = Command::new(program).args(arguments).output().unwrap();
    assert!(
        output.status.success(),
        "{program} {arguments:?}: {output:?}"
    );
    String::from_utf8(output.stdout).unwrap()
}

/// The MPIR symbols that are defined in a file, as `nm` with these options prints them.
fn names(options: &[&str], file: &Path) -> BTreeSet<String> {
    let mut arguments: Vec<&OsStr> = options.iter().map(OsStr::new).collect();
    arguments.extend([OsStr::new("--defined-only"), file.as_os_str()]);
    let text = output_of("nm", &arguments);
    let names = text
        .lines()
        .filter_map(|line| line.split_whitespace().last());
    names
        .filter(|name| name.starts_with("MPIR_"))
        .map(str::to_owned)
        .collect()
}

/// Output of gdb with these lines as its script. `arguments` are appended to gdb's other arguments.
fn gdb(lines: &str, arguments: &[&OsStr], folder: &Path) -> String {
    let script = folder.join("script.gdb");
    fs::write(&script, format!("{BEGIN}{lines}")).unwrap();
    let mut command = Command::new("gdb");
    command.args(["-q", "-nx", "-batch", "-x"]).arg(&script);
    command.args(arguments).current_dir(folder);
    command.env("DEBUGINFOD_URLS", "").env("LC_ALL", "C");
    let outcome = Job::of(command).run();
    format!("{}\n{}", outcome.out, outcome.err)
}

/// Output of gdb with these lines as its script, after the commands [`LAUNCH`], where the program is `rmpiexec` with
/// these arguments.
fn gdb_starts(lines: &str, arguments: &[&str], folder: &Path) -> String {
    let launcher = installed("bin/rmpiexec");
    let mut all = vec![OsStr::new("--args"), launcher.as_os_str()];
    all.extend(arguments.iter().map(OsStr::new));
    gdb(&format!("{LAUNCH}{lines}"), &all, folder)
}

fn expect(text: &str, parts: &[&str]) {
    for part in parts {
        assert!(text.contains(part), "expected {part:?} in: {text}");
    }
}

/// How often `text`, the output of gdb, contains `expected`.
fn printed(text: &str, expected: &str) -> usize {
    text.matches(expected).count()
}

/// Commands after which signals that hold and release ranks do not stop gdb.
const BEGIN: &str = "set pagination off\nset confirm off\n\
    handle SIGCONT nostop noprint pass\nhandle SIGSTOP nostop noprint nopass\n";

/// Commands of a debugger that starts a job.
const LAUNCH: &str = "starti\nset var MPIR_being_debugged = 1\nbreak MPIR_Breakpoint\ncontinue\n";

const STARTER: [&str; 14] = [
    "MPIR_Breakpoint",
    "MPIR_acquired_pre_main",
    "MPIR_attach_fifo",
    "MPIR_being_debugged",
    "MPIR_debug_abort_string",
    "MPIR_debug_state",
    "MPIR_dll_name",
    "MPIR_executable_path",
    "MPIR_force_to_main",
    "MPIR_i_am_starter",
    "MPIR_partial_attach_ok",
    "MPIR_proctable",
    "MPIR_proctable_size",
    "MPIR_server_arguments",
];

/// MPIR-002..006, MPIR-008..012, MPIR-014..016; and MPIR-013, whose symbol must be absent, since a tool that finds it
/// shows no queues.
#[test]
#[ignore = "needs the installation: cargo xtask test debuggers"]
fn a_stripped_launcher_keeps_all_mpir_starter_symbols() {
    let launcher = installed("bin/rmpiexec");
    let wanted: BTreeSet<String> = STARTER.map(str::to_owned).into();
    assert_eq!(names(&[], &launcher), wanted);
    assert_eq!(names(&["-D"], &launcher), wanted);
    let folder = tempfile::tempdir().unwrap();
    let stripped = folder.path().join("rmpiexec");
    fs::copy(&launcher, &stripped).unwrap();
    output_of("strip", &[stripped.as_os_str()]);
    assert_eq!(names(&["-D"], &stripped), wanted);
}

/// MPIR-006 and MPIR-007 in a rank, and the queue library. The symbols of a starter must be absent, since a debugger
/// would otherwise treat each rank as a starter.
#[test]
#[ignore = "needs the installation: cargo xtask test debuggers"]
fn libmpi_has_only_the_mpir_symbols_of_a_rank() {
    let library = installed("lib/libmpi_abi.so.1");
    let wanted = ["MPIR_being_debugged", "MPIR_debug_gate", "MPIR_dll_name"].map(str::to_owned);
    assert_eq!(names(&["-D"], &library), wanted.into());
}

#[test]
#[ignore = "needs the installation: cargo xtask test debuggers"]
fn mpir_001_gdb_prints_the_c_types_of_the_interface() {
    let folder = tempfile::tempdir().unwrap();
    let launcher = installed("bin/rmpiexec");
    let lines = "ptype MPIR_PROCDESC\nwhatis MPIR_proctable\nprint sizeof(MPIR_PROCDESC)\n\
        whatis MPIR_debug_state\nwhatis MPIR_executable_path\nwhatis MPIR_server_arguments\nwhatis MPIR_attach_fifo\n\
        whatis MPIR_debug_abort_string\n";
    let output = gdb(lines, &[launcher.as_os_str()], folder.path());
    let row = "type = struct {\n    char *host_name;\n    char *executable_name;\n    int pid;\n}";
    expect(&output, &[row, "type = MPIR_PROCDESC *", "$1 = 24"]);
    expect(
        &output,
        &[
            "type = volatile int",
            "type = char [256]",
            "type = char [1024]",
        ],
    );
    assert!(!output.contains("Dwarf Error"), "{output}");
}

#[test]
#[ignore = "needs the installation: cargo xtask test debuggers"]
fn mpir_008_gdb_stops_at_the_breakpoint_and_no_rank_has_run() {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join("marks")).unwrap();
    let lines = "print MPIR_debug_state\nprint *MPIR_proctable@MPIR_proctable_size\n\
        shell echo marks: $(ls marks | wc -l)\ncontinue\n";
    let words = ["-n", "3", "sh", "-c", "touch marks/$RMPI_RANK"];
    let output = gdb_starts(lines, &words, folder.path());
    expect(
        &output,
        &["in MPIR_Breakpoint ()", "$1 = 1", "$2 = {{host_name = 0x"],
    );
    expect(&output, &["marks: 0", "exited normally"]);
    assert_eq!(printed(&output, "/sh\", pid = "), 3, "{output}");
    assert_eq!(
        fs::read_dir(folder.path().join("marks")).unwrap().count(),
        3
    );
}

/// Message of gdb 13 if a process with several threads ends just as gdb continues it. On a busy machine this happens
/// about once in ten runs.
const LOST_THE_END: &str = "Couldn't get registers: No such process.";

/// gdb attaches only to the second of four ranks; the others run freely. MPIR-009..012.
#[test]
#[ignore = "needs the installation: cargo xtask test debuggers"]
fn mpir_012_gdb_attaches_to_one_rank_while_the_others_run() {
    let folder = tempfile::tempdir().unwrap();
    build(PROGRAM, folder.path());
    let lines = "set schedule-multiple on\nset $rank = MPIR_proctable[1].pid\n\
        print MPIR_i_am_starter + MPIR_partial_attach_ok + MPIR_acquired_pre_main + MPIR_force_to_main\n\
        add-inferior\ninferior 2\neval \"attach %d\", $rank\ninfo symbol $pc\nbreak program.c:8\ninferior 1\ncontinue\n\
        print rank\nset var *(int *) &MPIR_debug_gate = 1\nprint *(int *) &MPIR_debug_gate\n\
        shell until [ $(cat others | wc -l) = 3 ]; do sleep 0.02; done; echo all others are there\n\
        detach\ninferior 1\ncontinue\n";
    let mut output = gdb_starts(lines, &["-n", "4", "./program"], folder.path());
    for _ in 0..5 {
        if !output.contains(LOST_THE_END) {
            break;
        }
        fs::remove_file(folder.path().join("others")).unwrap();
        output = gdb_starts(lines, &["-n", "4", "./program"], folder.path());
    }
    expect(
        &output,
        &["$1 = 4", "_start in section .text of /lib", "Breakpoint 2"],
    );
    expect(
        &output,
        &[
            "$2 = 1",
            "$3 = 1",
            "all others are there",
            "exited normally",
        ],
    );
}

/// All ranks except rank 1 write to a file that they are in MPI. Rank 1 waits in line 7 until the file has an entry:
/// when it stops in line 8, gdb also stops the launcher, which must have released all other ranks by then.
const PROGRAM: &str = "#include <mpi.h>\n#include <stdio.h>\nint main(int argc, char **argv)\n{\n    int rank;\n\
    \x20   MPI_Init(&argc, &argv);\n    MPI_Comm_rank(MPI_COMM_WORLD, &rank); \
    for (int one = rank == 1 ? EOF : 0; one == EOF;) { FILE *file = fopen(\"others\", \"r\"); one = fgetc(file); fclose(file); }\n\
    \x20   if (rank != 1) {\n        FILE *file = fopen(\"others\", \"a\");\n        fputs(\"here\\n\", file);\n\
    \x20       fclose(file);\n    }\n    MPI_Barrier(MPI_COMM_WORLD);\n    MPI_Finalize();\n    return 0;\n}\n";

fn build(text: &str, folder: &Path) {
    fs::write(folder.join("program.c"), text).unwrap();
    fs::write(folder.join("others"), "").unwrap();
    let mut compiler = Command::new(installed("bin/rmpicc"));
    compiler.args(["-g", "-O0", "-o", "program", "program.c"]);
    assert!(compiler.current_dir(folder).status().unwrap().success());
}

#[test]
#[ignore = "needs the installation: cargo xtask test debuggers"]
fn mpir_018_gdb_attaches_to_a_running_job_repeatedly() {
    let folder = tempfile::tempdir().unwrap();
    let mut command = Command::new(installed("bin/mpirun"));
    let script = "touch $RMPI_RANK; until [ -e end ]; do sleep 0.02; done";
    command.args(["-n", "2", "sh", "-c", script]);
    command.current_dir(folder.path());
    let running = Job::of(command).start();
    until("both ranks run", || {
        (folder.path().join("0").exists() && folder.path().join("1").exists()).then_some(())
    });
    let pid = running.pid().to_string();
    for _ in 0..2 {
        let lines = "print *MPIR_proctable@MPIR_proctable_size\nprint MPIR_attach_fifo\n\
            set $rank = MPIR_proctable[1].pid\ndetach\neval \"attach %d\", $rank\ninfo inferiors\ndetach\n";
        let output = gdb(lines, &[OsStr::new("-p"), OsStr::new(&pid)], folder.path());
        assert_eq!(printed(&output, "/sh\", pid = "), 2, "{output}");
        expect(&output, &[&format!("= \"/proc/{pid}/fd/"), "dash"]);
    }
    fs::write(folder.path().join("end"), "").unwrap();
    running.finish().expect(0);
}

#[test]
#[ignore = "needs the installation: cargo xtask test debuggers"]
fn mpir_019_gdb_stops_when_the_job_fails_and_reads_why() {
    let folder = tempfile::tempdir().unwrap();
    let lines = "continue\nprint MPIR_debug_state\nprint MPIR_debug_abort_string\ncontinue\n";
    let arguments = [
        "-n",
        "2",
        "sh",
        "-c",
        "[ $RMPI_RANK = 1 ] && exit 7; sleep 1000",
    ];
    let output = gdb_starts(lines, &arguments, folder.path());
    expect(
        &output,
        &[
            "$1 = 2",
            "rank 1 on host ",
            "exited with code 7",
            "exited with code 07",
        ],
    );
}

/// `rmpiexec --gdb` with these arguments; gdb reads the lines from its standard input.
fn with_gdb(lines: &str, arguments: &[&str], folder: &Path) -> String {
    let input = folder.join("input");
    fs::write(&input, lines).unwrap();
    let mut command = Command::new(installed("bin/rmpiexec"));
    command.args(arguments).current_dir(folder);
    command.env("DEBUGINFOD_URLS", "").env("LC_ALL", "C");
    command.env("HOME", folder);
    command.stdin(Stdio::from(fs::File::open(&input).unwrap()));
    let outcome = Job::of(command).run().expect(0);
    outcome.out
}

#[test]
#[ignore = "needs the installation: cargo xtask test debuggers"]
fn a_job_continues_after_gdb_detaches_from_its_rank() {
    let folder = tempfile::tempdir().unwrap();
    build(PROGRAM, folder.path());
    let lines = "break program.c:8\ncontinue\nprint rank\ndetach\nquit\n";
    let output = with_gdb(
        lines,
        &["--gdb", "2", "-n", "4", "./program"],
        folder.path(),
    );
    expect(
        &output,
        &[
            "rank 2 is inferior 1: before the first instruction",
            "$1 = 2",
        ],
    );
    assert_eq!(
        fs::read_to_string(folder.path().join("others")).unwrap(),
        "here\n".repeat(3)
    );
}

#[test]
#[ignore = "needs the installation: cargo xtask test debuggers"]
fn gdb_on_several_ranks_runs_them_together() {
    let folder = tempfile::tempdir().unwrap();
    build(PROGRAM, folder.path());
    // Line 15 is the last line of the program, after its barrier.
    let lines = "break program.c:15\ncontinue\nprint rank * 2 + 1\ninfo inferiors\ndelete\nquit\n";
    let output = with_gdb(
        lines,
        &["--gdb", "0-1", "-n", "2", "./program"],
        folder.path(),
    );
    expect(&output, &["rank 0 is inferior 1, rank 1 is inferior 2"]);
    assert!(
        output.contains("$1 = 1") || output.contains("$1 = 3"),
        "{output}"
    );
}

/// A command that runs gdb, started at a simulated terminal.
fn at_terminal(mut command: Command, folder: &Path) -> (terminal::Terminal, common::Running) {
    command.current_dir(folder).env("HOME", folder);
    command.env("DEBUGINFOD_URLS", "").env("LC_ALL", "C");
    command.env("TERM", "dumb");
    terminal::start(Job::of(command), (24, 80))
}

#[test]
#[ignore = "needs the installation: cargo xtask test debuggers"]
fn ctrl_c_stops_the_launcher_in_gdb_and_the_job_continues() {
    let folder = tempfile::tempdir().unwrap();
    let mut command = Command::new("gdb");
    command.args(["-q", "-nx", "-ex", "handle SIGCONT nostop noprint pass"]);
    command.arg("--args").arg(installed("bin/rmpiexec"));
    let script = "echo up; until [ -e end ]; do sleep 0.02; done; echo down";
    command.args(["-n", "2", "sh", "-c", script]);
    let (mut user, mut running) = at_terminal(command, folder.path());
    user.wait_for("(gdb) ");
    user.types("run\n");
    user.wait_for("up");
    user.wait_for("up");
    for _ in 0..2 {
        user.types("\x03");
        user.wait_for("received signal SIGINT");
        user.wait_for("(gdb) ");
        user.types("continue\n");
        user.wait_for("Continuing.");
    }
    fs::write(folder.path().join("end"), "").unwrap();
    user.wait_for("down");
    user.wait_for("exited normally");
    user.wait_for("(gdb) ");
    user.types("quit\n");
    assert_eq!(running.end().code(), Some(0), "{}", user.seen);
    running.assert_nothing_left();
}

#[test]
#[ignore = "needs the installation: cargo xtask test debuggers"]
fn gdb_attaches_to_many_ranks_without_a_pager_prompt() {
    let folder = tempfile::tempdir().unwrap();
    for (file, paging) in [("", "on"), ("set pagination off\n", "off")] {
        fs::write(folder.path().join(".gdbinit"), file).unwrap();
        let mut command = Command::new(installed("bin/rmpiexec"));
        command.args(["--gdb", "all", "-n", "8", "sleep", "1000"]);
        let (mut user, mut running) = at_terminal(command, folder.path());
        user.wait_for("before the first instruction. Set breakpoints, then type: continue");
        assert!(
            !user.seen.contains("--Type <RET> for more"),
            "{}",
            user.seen
        );
        user.wait_for("(gdb) ");
        user.types("show pagination\n");
        user.wait_for(&format!("State of pagination is {paging}."));
        user.types("kill inferiors 1\n");
        // gdb writes its question character by character. The test waits for rmpiexec's message about rank 0 first,
        // which could otherwise come in the middle of the question.
        user.wait_for("rank 0 on host");
        user.wait_for("when memory ran out)");
        user.types("quit\n");
        user.wait_for("Quit anyway?");
        user.types("y\n");
        assert_eq!(running.end().code(), Some(137), "{}", user.seen);
        running.assert_nothing_left();
    }
}
