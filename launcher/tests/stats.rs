// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of the reports of the installed `rmpiexec --stats`, for jobs that end normally and jobs that do not. `cargo
//! xtask test debuggers` installs it and runs these tests.
#![allow(clippy::unwrap_used)]

mod common;
use common::{Job, Outcome, rmpiexec};
use serde_json::json;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

const VARIABLE: &str = "RMPI_TEST_PREFIX";

/// Each rank sends 1 MiB once and 1000 bytes ten times to the next rank. Then the ranks behave according to the
/// argument.
const PROGRAM: &str = r#"
#include <mpi.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int main(int argc, char **argv)
{
    static char out[1 << 20], in[1 << 20];
    int rank, size;
    const char *what = argv[argc - 1];
    MPI_Init(NULL, NULL);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    for (int i = 0; i < 11; i++)
        MPI_Sendrecv(out, i ? 1000 : 1 << 20, MPI_BYTE, (rank + 1) % size, 0, in, 1 << 20, MPI_BYTE, (rank + size - 1) % size, 0,
                     MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    MPI_Barrier(MPI_COMM_WORLD);
    if (!strcmp(what, "ends early")) {
        /* Whoever is still in the barrier would not have counted its messages yet: nobody is. */
        usleep(300000);
        if (rank == 1)
            MPI_Abort(MPI_COMM_WORLD, 3);
        if (rank == 2)
            raise(SIGSEGV);
        pause();
    }
    if (!strcmp(what, "is killed") && rank == 1)
        raise(SIGKILL);
    if (!strcmp(what, "errs") && rank == 1)
        MPI_Send(out, -1, MPI_BYTE, 0, 0, MPI_COMM_WORLD);
    if (!strcmp(what, "handles a signal")) {
        signal(SIGTERM, SIG_IGN);
        raise(SIGTERM);
    }
    MPI_Finalize();
    return 0;
}
"#;

fn installed(name: &str) -> PathBuf {
    let prefix = std::env::var_os(VARIABLE)
        .unwrap_or_else(|| panic!("{VARIABLE} is not set; type: cargo xtask test debuggers"));
    Path::new(&prefix).join(name)
}

/// A folder with the program.
fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("program.c"), PROGRAM).unwrap();
    let mut compile = Command::new(installed("bin/rmpicc"));
    compile.args(["-w", "-o", "program", "program.c"]);
    assert!(compile.current_dir(&folder).status().unwrap().success());
    folder
}

/// Result of `rmpiexec` with these arguments, run in this folder.
fn job(folder: &tempfile::TempDir, arguments: &[&str]) -> Outcome {
    let mut command = Command::new(installed("bin/rmpiexec"));
    command.args(arguments).current_dir(folder);
    command.stdin(std::process::Stdio::null());
    Job::of(command).run()
}

/// The numbers that follow this name in a JSON text.
fn numbers(text: &str, name: &str) -> Vec<f64> {
    let key = format!("\"{name}\": ");
    let value = |rest: &str| {
        let end = rest.find([',', '}', '\n']).unwrap();
        rest[..end].parse().ok()
    };
    text.split(&key).skip(1).filter_map(value).collect()
}

#[test]
#[ignore = "needs an installed rmpi"]
fn stats_are_printed_and_plotted() {
    let folder = folder();
    let arguments = "--stats --stats-plot plot.svg -n 3 ./program good";
    let arguments: Vec<&str> = arguments.split(' ').collect();
    let done = job(&folder, &arguments)
        .expect(0)
        .reports("rmpiexec: statistics of 3 ranks: ")
        .reports("collectives of MPI_COMM_WORLD, calls of a rank: barrier 1\n");
    assert_eq!(done.out, "");
    assert!(!done.err.contains("without MPI_Finalize"), "{}", done.err);
    let picture = fs::read_to_string(folder.path().join("plot.svg")).unwrap();
    assert!(picture.starts_with("<svg ") && picture.ends_with("</svg>\n"));
    let cells = picture.matches("1.01 MiB in 11 messages").count();
    assert_eq!(cells, 3, "{picture}");
}

#[test]
#[ignore = "needs an installed rmpi"]
fn stats_are_written_as_json() {
    let folder = folder();
    let arguments = ["--stats=all.json", "-n", "3", "./program", "good"];
    job(&folder, &arguments).expect(0);
    let report = fs::read_to_string(folder.path().join("all.json")).unwrap();
    let ends = report.matches("\"ended\": \"MPI_Finalize\"").count();
    assert_eq!(ends, 3, "{report}");
    let sum = |name| numbers(&report, name).iter().sum::<f64>();
    let large = 3.0 * f64::from(1 << 20);
    assert!(sum("rendezvous_send_bytes") >= large, "{report}");
    assert_eq!(sum("collective_barrier_calls"), 3.0);
    let bytes = (1 << 20) + 10 * 1000;
    let parsed: serde_json::Value = serde_json::from_str(&report).unwrap();
    let matrix = &parsed["sent_from_rank_to_rank"];
    let rows = json!([[0, bytes, 0], [0, 0, bytes], [bytes, 0, 0]]);
    assert_eq!(matrix["bytes"], rows, "{report}");
    assert_eq!(matrix["messages"][0], json!([0, 11, 0]), "{report}");
    let times = numbers(&report, "cpu_seconds");
    let is_one = |seconds: &f64| (0.0..60.0).contains(seconds);
    assert!(times.iter().all(is_one), "{report}");
}

#[test]
#[ignore = "needs an installed rmpi"]
fn stats_cover_a_failed_job() {
    let folder = folder();
    let done = job(
        &folder,
        &["--stats=all.json", "-n", "4", "./program", "ends early"],
    );
    assert!([Some(3), Some(139)].contains(&done.code), "{}", done.err);
    let report = fs::read_to_string(folder.path().join("all.json")).unwrap();
    assert!(
        report.contains("4 ranks ended without MPI_Finalize (0, 1, 2, 3): "),
        "{report}"
    );
    assert!(
        numbers(&report, "rendezvous_send_bytes").len() == 4,
        "{report}"
    );
    let done = job(&folder, &["--stats", "-n", "3", "./program", "is killed"]).expect(137);
    done.reports("1 rank has reported nothing (1): killed with SIGKILL");
    let done = job(&folder, &["--stats", "-n", "2", "./program", "errs"]);
    assert!(!done.err.contains("reported nothing"), "{}", done.err);
    assert!(
        done.err.contains("failed: count -1 is negative"),
        "{}",
        done.err
    );
}

#[test]
#[ignore = "needs an installed rmpi"]
fn stats_do_not_change_the_programs_signal_handling() {
    let folder = folder();
    let done = job(
        &folder,
        &["--stats", "-n", "2", "./program", "handles a signal"],
    )
    .expect(0);
    assert!(!done.err.contains("without MPI_Finalize"), "{}", done.err);
}

#[test]
#[ignore = "needs an installed rmpi"]
fn stats_work_with_a_library_loaded_by_dlopen() {
    // The library is loaded as Python loads its modules.
    let folder = folder();
    let mut compile = Command::new(installed("bin/rmpicc"));
    compile.args([
        "-w",
        "-shared",
        "-fPIC",
        "-Dmain=go",
        "-o",
        "module.so",
        "program.c",
    ]);
    assert!(compile.current_dir(&folder).status().unwrap().success());
    let script = "import ctypes; words = (ctypes.c_char_p * 1)(b\"is good\"); ctypes.CDLL(\"./module.so\").go(1, words)";
    let arguments = ["--stats-calls", "-n", "2", "python3", "-c", script];
    let done = job(&folder, &arguments).expect(0);
    assert_eq!(row(&done.err, "MPI_Sendrecv")[1], "22", "{}", done.err);
    assert!(
        done.err.contains("barrier 1\n") && !done.err.contains("without MPI_Finalize"),
        "{}",
        done.err
    );
}

#[test]
#[ignore = "needs an installed rmpi"]
fn finalized_sessions_count_as_a_regular_end() {
    let folder = folder();
    for (call, is_good) in [("MPI_Session_finalize(&session)", true), ("0", false)] {
        let text = format!(
            "#include <mpi.h>\nint main(void) {{ MPI_Session session; MPI_Session_init(MPI_INFO_NULL, MPI_ERRORS_ARE_FATAL, &session); \
             {call}; return 0; }}\n"
        );
        fs::write(folder.path().join("session.c"), text).unwrap();
        let mut compile = Command::new(installed("bin/rmpicc"));
        compile.args(["-w", "-o", "session", "session.c"]);
        assert!(compile.current_dir(&folder).status().unwrap().success());
        // The job has one rank: with more ranks, the first rank that exits would end the others, perhaps before they
        // have started.
        let done = job(&folder, &["--stats", "-n", "1", "./session"]);
        assert!(done.err.contains("statistics of 1 rank: "), "{}", done.err);
        assert_eq!(
            !done.err.contains("without MPI_Finalize (0"),
            is_good,
            "{}",
            done.err
        );
    }
}

#[test]
#[ignore = "needs an installed rmpi"]
fn stats_do_not_affect_scripts_and_non_mpi_programs() {
    let folder = folder();
    let script = "echo $RMPI_RANK | cat; exec ./program is good";
    let done = job(&folder, &["--stats", "-n", "2", "sh", "-c", script]).expect(0);
    assert_eq!(done.sorted(), ["0", "1"]);
    assert!(!done.err.contains("reported nothing"), "{}", done.err);
    job(&folder, &["--stats", "-n", "2", "true"])
        .expect(0)
        .reports("no rank has reported anything: none came through MPI_Init");
}

#[test]
#[ignore = "needs an installed rmpi"]
fn stats_do_not_change_the_calls_a_pmpi_tool_sees() {
    let folder = folder();
    let tool = "#include <mpi.h>\n#include <stdio.h>\nint MPI_Init(int *c, char ***v) { puts(\"tool\"); return PMPI_Init(c, v); }\n\
                int MPI_Finalize(void) { puts(\"tool\"); return PMPI_Finalize(); }\n";
    fs::write(folder.path().join("tool.c"), tool).unwrap();
    let mut compile = Command::new(installed("bin/rmpicc"));
    compile.args(["-shared", "-fPIC", "-o", "tool.so", "tool.c"]);
    assert!(compile.current_dir(&folder).status().unwrap().success());
    let path = folder.path().join("tool.so");
    let preload = format!("LD_PRELOAD={}", path.display());
    let done = job(
        &folder,
        &["--stats", "-n", "2", "-x", &preload, "./program", "is good"],
    )
    .expect(0);
    assert_eq!(done.out, "tool\n".repeat(4));
    assert!(
        done.err.contains("statistics of 2 ranks") && !done.err.contains("reported nothing"),
        "{}",
        done.err
    );
}

#[test]
#[ignore = "needs an installed rmpi"]
fn an_unwritable_stats_file_is_an_error_before_start() {
    let folder = folder();
    for (option, report) in [
        (
            "--stats=no/such.json",
            "--stats=no/such.json: cannot write it: no such file or directory",
        ),
        ("--stats=.", "--stats=.: cannot write it: is a directory"),
        (
            "--stats-plot=no/plot.svg",
            "--stats-plot=no/plot.svg: cannot write it: no such file or directory",
        ),
    ] {
        let done = job(&folder, &[option, "-n", "1", "touch", "started"])
            .expect(1)
            .reports(report);
        assert!(!folder.path().join("started").exists(), "{}", done.err);
    }
    let done = job(
        &folder,
        &["--stats=/dev/full", "-n", "1", "./program", "is good"],
    )
    .expect(1);
    done.reports("--stats=/dev/full: cannot write all of it: no space left on device");
}

/// The cells of a function's row in the table of calls.
fn row<'a>(report: &'a str, function: &str) -> Vec<&'a str> {
    let rows = report.lines().map(|line| line.split_whitespace().collect());
    let mut rows = rows.filter(|row: &Vec<&str>| row.first() == Some(&function));
    rows.next()
        .unwrap_or_else(|| panic!("{function} is not reported:\n{report}"))
}

#[test]
#[ignore = "needs an installed rmpi"]
fn stats_calls_times_all_calls() {
    let folder = folder();
    let done = job(&folder, &["--stats-calls", "-n", "3", "./program", "good"]).expect(0);
    assert!(
        done.err.contains("of the ranks' time in calls of MPI, "),
        "{}",
        done.err
    );
    // Only calls made by the program count, not those made inside the library.
    for (function, calls) in [
        ("MPI_Sendrecv", "33"),
        ("MPI_Barrier", "3"),
        ("MPI_Finalize", "3"),
    ] {
        assert_eq!(row(&done.err, function)[1], calls, "{}", done.err);
    }
    let arguments = "--stats-calls --stats=all.json --stats-plot plot.svg -n 3 ./program good";
    let arguments: Vec<&str> = arguments.split(' ').collect();
    let done = job(&folder, &arguments).expect(0);
    assert!(!done.err.contains("statistics of"), "a file was given");
    let report = fs::read_to_string(folder.path().join("all.json")).unwrap();
    let each = "\"MPI_Sendrecv\": {\"calls\": 11, \"seconds\": ";
    assert_eq!(report.matches(each).count(), 3, "{report}");
    let (runs, in_mpi) = (numbers(&report, "seconds"), numbers(&report, "mpi_seconds"));
    let is_part = |seconds: &f64| *seconds > 0.0 && *seconds <= runs[0];
    assert!(in_mpi.len() == 3 && in_mpi.iter().all(is_part), "{report}");
    let picture = fs::read_to_string(folder.path().join("plot.svg")).unwrap();
    assert!(
        picture.contains("<title>MPI_Sendrecv: 33 calls, "),
        "{picture}"
    );
}

#[test]
#[ignore = "needs an installed rmpi"]
fn mpi_pcontrol_selects_the_timed_calls() {
    let folder = folder();
    let text = "#include <mpi.h>\n#include <unistd.h>\n\
                static void steps(int count) { while (count-- > 0) MPI_Barrier(MPI_COMM_WORLD); }\n\
                int main(void) { MPI_Pcontrol(0); MPI_Init(0, 0); MPI_Pcontrol(0); steps(5); usleep(200000); MPI_Pcontrol(1); \
                steps(7); MPI_Pcontrol(1, \"step\", 3); MPI_Pcontrol(77); usleep(100000); MPI_Pcontrol(0); steps(2); MPI_Pcontrol(2); \
                MPI_Finalize(); return 0; }\n";
    fs::write(folder.path().join("part.c"), text).unwrap();
    let mut compile = Command::new(installed("bin/rmpicc"));
    compile.args(["-o", "part", "part.c"]);
    assert!(compile.current_dir(&folder).status().unwrap().success());
    let words = "--stats-calls --stats=all.json -n 2 ./part";
    job(&folder, &words.split(' ').collect::<Vec<_>>()).expect(0);
    let report = fs::read_to_string(folder.path().join("all.json")).unwrap();
    let each = "\"MPI_Barrier\": {\"calls\": 7, ";
    assert_eq!(report.matches(each).count(), 2, "{report}");
    assert!(!report.contains("\"MPI_Finalize\": {"), "{report}");
    let ends = "\"ended\": \"MPI_Finalize\"";
    assert_eq!(report.matches(ends).count(), 2, "{report}");
    let timed = numbers(&report, "timed_seconds");
    let runs = numbers(&report, "seconds");
    assert!(
        timed.iter().all(|it| *it >= 0.1 && *it < runs[0] - 0.19),
        "{report}"
    );
    let done = job(&folder, &["--stats-calls", "-n", "2", "./part"]).expect(0);
    let done = done.reports(" of the run, MPI_Pcontrol), by function:");
    assert_eq!(row(&done.err, "MPI_Barrier")[1], "14", "{}", done.err);
}

#[test]
#[ignore = "needs an installed rmpi"]
fn stats_flushed_by_mpi_pcontrol_survive_a_kill() {
    let folder = folder();
    let text = "#include <mpi.h>\n#include <signal.h>\n\
                int main(void) { int rank; MPI_Init(0, 0); MPI_Comm_rank(MPI_COMM_WORLD, &rank); \
                for (int i = 0; i < 2000; i++) { MPI_Barrier(MPI_COMM_WORLD); if (rank == 1 || i == 0) MPI_Pcontrol(2); } \
                MPI_Allgather(&rank, 0, MPI_INT, &rank, 0, MPI_INT, MPI_COMM_WORLD); \
                if (rank == 1) raise(SIGKILL); MPI_Finalize(); return 0; }\n";
    fs::write(folder.path().join("killed.c"), text).unwrap();
    let mut compile = Command::new(installed("bin/rmpicc"));
    compile.args(["-w", "-o", "killed", "killed.c"]);
    assert!(compile.current_dir(&folder).status().unwrap().success());
    let words = "--stats-calls --stats=all.json -n 3 ./killed";
    job(&folder, &words.split(' ').collect::<Vec<_>>()).expect(137);
    let report = fs::read_to_string(folder.path().join("all.json")).unwrap();
    assert!(
        report.contains("1 rank ended without a further report (1): what was counted until the last MPI_Pcontrol(2) is shown"),
        "{report}"
    );
    assert_eq!(report.matches("\"ended\": null").count(), 1, "{report}");
    assert!(
        report.contains("\"MPI_Barrier\": {\"calls\": 2000, "),
        "{report}"
    );
}

#[test]
#[ignore = "needs an installed rmpi"]
fn the_call_interrupted_by_the_job_end_is_timed() {
    let folder = folder();
    let text = "#include <mpi.h>\nint main(void) { int rank, data = 0; MPI_Init(0, 0); MPI_Comm_rank(MPI_COMM_WORLD, &rank); \
                MPI_Ssend(&data, 1, MPI_INT, 1 - rank, 0, MPI_COMM_WORLD); MPI_Finalize(); return 0; }\n";
    fs::write(folder.path().join("hang.c"), text).unwrap();
    let mut compile = Command::new(installed("bin/rmpicc"));
    compile.args(["-o", "hang", "hang.c"]);
    assert!(compile.current_dir(&folder).status().unwrap().success());
    let words = [
        "--stats-calls",
        "--stats=all.json",
        "--timeout",
        "1",
        "-n",
        "2",
        "./hang",
    ];
    job(&folder, &words).expect(124);
    let report = fs::read_to_string(folder.path().join("all.json")).unwrap();
    let mut lines = report.split_inclusive('\n');
    let ssend = lines.find(|line| line.contains("{\"name\": \"MPI_Ssend\", "));
    let ssend = ssend.unwrap_or_else(|| panic!("not reported:\n{report}"));
    assert_eq!(numbers(ssend, "calls")[0], 2.0, "{report}");
    assert!(numbers(ssend, "seconds")[0] > 0.0, "{report}");
    assert!(!report.contains("\"MPI_Finalize\": {"), "{report}");
}

#[test]
#[ignore = "needs an installed rmpi"]
fn nested_and_intercepted_calls_count_once() {
    let folder = folder();
    let tool = "#include <mpi.h>\nint MPI_Barrier(MPI_Comm c) { PMPI_Barrier(c); return PMPI_Barrier(c); }\n";
    fs::write(folder.path().join("tool.c"), tool).unwrap();
    let text = "#include <mpi.h>\nstatic void add(void *in, void *io, int *n, MPI_Datatype *t) { int rank; \
                MPI_Comm_rank(MPI_COMM_WORLD, &rank); *(int *)io += *(int *)in; (void)n, (void)t; }\n\
                int main(void) { int one = 1, all; MPI_Op op; MPI_Init(0, 0); MPI_Op_create(add, 1, &op); MPI_Barrier(MPI_COMM_WORLD); \
                MPI_Allreduce(&one, &all, 1, MPI_INT, op, MPI_COMM_WORLD); MPI_Finalize(); return all != 2; }\n";
    fs::write(folder.path().join("nested.c"), text).unwrap();
    let mut compile = Command::new(installed("bin/rmpicc"));
    compile.args(["-o", "nested", "nested.c"]);
    assert!(compile.current_dir(&folder).status().unwrap().success());
    let mut compile = Command::new(installed("bin/rmpicc"));
    compile.args(["-shared", "-fPIC", "-o", "tool.so", "tool.c"]);
    assert!(compile.current_dir(&folder).status().unwrap().success());
    let preload = format!("LD_PRELOAD={}", folder.path().join("tool.so").display());
    let words = ["--stats-calls", "-n", "2", "-x", &preload, "./nested"];
    let done = job(&folder, &words).expect(0);
    assert_eq!(row(&done.err, "MPI_Barrier")[1], "2", "{}", done.err);
    assert_eq!(row(&done.err, "MPI_Allreduce")[1], "2", "{}", done.err);
    assert!(!done.err.contains("MPI_Comm_rank"), "{}", done.err);
}

#[test]
fn stats_without_an_installation_name_the_missing_library() {
    let done = rmpiexec(["--stats", "-n", "1", "true"]).run().expect(1);
    done.reports("--stats needs lib/rmpi/librmpi_stats.so of the installation, which is not there");
}
