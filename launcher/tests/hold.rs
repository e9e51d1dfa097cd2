// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of what an MPIR debugger finds in `rmpiexec`, and that the ranks are held until the debugger has attached.
#![cfg(target_arch = "x86_64")]
#![allow(clippy::unwrap_used, unsafe_code)]

mod common;
use common::tool::{Row, Tool, attach, launch, start, trace};
use common::{Job, Running, rmpiexec, script, send, until};
use nix::libc;
use nix::sys::signal::Signal;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

/// The state letter of a process in `/proc`; `t` and `T` mean stopped.
fn state(pid: u32) -> char {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let behind = stat.rsplit_once(") ").unwrap().1;
    behind.chars().next().unwrap()
}

fn pids(tool: &Tool) -> Vec<u32> {
    tool.table().iter().map(|row| row.pid).collect()
}

/// A job whose ranks create a file as soon as they run.
fn marking(ranks: u32, folder: &Path) -> Job {
    script(ranks, &format!("touch {}/$RMPI_RANK", folder.display()))
}

fn marks(folder: &Path) -> usize {
    fs::read_dir(folder).unwrap().count()
}

/// A job whose ranks run until the file `end` exists.
fn waiting(ranks: u32, folder: &Path) -> Job {
    let end = folder.join("end");
    script(
        ranks,
        &format!("until [ -e {} ]; do sleep 0.02; done", end.display()),
    )
}

fn let_end(folder: &Path) {
    fs::write(folder.join("end"), "").unwrap();
}

/// The table of a job that was started without a debugger, as soon as it is complete.
fn table_later(running: &Running) -> Vec<Row> {
    until("the table is complete", || {
        let tool = attach(running);
        let table = tool.table();
        tool.leave();
        (!table.is_empty()).then_some(table)
    })
}

#[test]
fn mpir_017_ranks_are_held_until_the_breakpoint_returns() {
    let folder = tempfile::tempdir().unwrap();
    let (tool, running) = launch(marking(3, folder.path()));
    assert_eq!(tool.int("MPIR_debug_state"), 1);
    assert_eq!(tool.int("MPIR_proctable_size"), 3);
    for pid in pids(&tool) {
        assert_eq!(state(pid), 'T');
        let program = fs::read_link(format!("/proc/{pid}/exe")).unwrap();
        assert!(!program.ends_with("rmpiexec"), "{}", program.display());
    }
    assert_eq!(marks(folder.path()), 0);
    tool.leave();
    let outcome = running.finish().expect(0);
    assert_eq!((marks(folder.path()), outcome.err.as_str()), (3, ""));
}

/// MPIR-002, MPIR-003.
#[test]
fn the_table_has_each_rank_with_its_own_program_in_order() {
    let folder = tempfile::tempdir().unwrap();
    let own = folder.path().join("own");
    fs::write(&own, "#!/bin/sh\nexit 0\n").unwrap();
    fs::set_permissions(&own, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let mut job = rmpiexec(["-n", "2", "true", ":", "-n", "1", "./own"]);
    job.command.current_dir(folder.path());
    let (tool, running) = launch(job);
    let table = tool.table();
    let names: Vec<&str> = table.iter().map(|row| row.executable.as_str()).collect();
    assert!(
        names[..2]
            .iter()
            .all(|name| name.starts_with('/') && name.ends_with("/true"))
    );
    assert_eq!(Path::new(names[2]), own);
    let host = nix::unistd::gethostname().unwrap();
    assert!(table.iter().all(|row| *row.host == *host));
    let rank_of = |pid: u32| {
        let environment = fs::read(format!("/proc/{pid}/environ")).unwrap();
        let text = String::from_utf8_lossy(&environment).into_owned();
        let rank = text
            .split('\0')
            .find_map(|it| it.strip_prefix("RMPI_RANK="));
        rank.unwrap().to_owned()
    };
    let ranks: Vec<String> = pids(&tool).into_iter().map(rank_of).collect();
    assert_eq!(ranks, ["0", "1", "2"]);
    tool.leave();
    running.finish().expect(0);
}

#[test]
fn mpir_017_one_rank_that_never_calls_mpi_is_held_too() {
    let (tool, running) = launch(rmpiexec(["-n", "1", "true"]));
    assert_eq!(tool.table().len(), 1);
    assert_eq!(state(pids(&tool)[0]), 'T');
    tool.leave();
    running.finish().expect(0);
}

#[test]
fn three_hundred_ranks_are_held_and_released() {
    let (tool, running) = launch(rmpiexec(["-n", "300", "true"]));
    assert!(pids(&tool).into_iter().all(|pid| state(pid) == 'T'));
    tool.leave();
    running.finish().expect(0);
}

#[test]
fn mpir_018_the_table_of_a_running_job_is_always_readable() {
    let folder = tempfile::tempdir().unwrap();
    let running = waiting(4, folder.path()).start();
    let table = table_later(&running);
    assert_eq!(table.len(), 4);
    assert!(table.iter().all(|row| state(row.pid) != 'T'));
    assert_eq!(table_later(&running), table);
    let_end(folder.path());
    running.finish().expect(0);
}

#[test]
fn without_being_debugged_the_breakpoint_reports_running_ranks() {
    let folder = tempfile::tempdir().unwrap();
    let mut job = waiting(2, folder.path());
    trace(&mut job);
    let (mut tool, running) = start(job);
    tool.go();
    assert_eq!(tool.int("MPIR_debug_state"), 1);
    assert!(pids(&tool).into_iter().all(|pid| state(pid) != 'T'));
    tool.leave();
    let_end(folder.path());
    running.finish().expect(0);
}

/// MPIR-004, MPIR-005.
#[test]
fn mpir_019_a_failure_stops_at_the_breakpoint_while_other_ranks_run() {
    let (mut tool, running) = launch(script(2, "[ $RMPI_RANK = 1 ] && exit 3; sleep 1000"));
    let pids = pids(&tool);
    tool.go_again();
    assert_eq!(tool.int("MPIR_debug_state"), 2);
    let words = tool.text_behind("MPIR_debug_abort_string");
    assert!(words.contains("exited with code 3"), "{words}");
    assert!(!matches!(state(pids[0]), 'T' | 'Z' | 'X'));
    tool.leave();
    running.finish().expect(3).reports("exited with code 3");
}

#[test]
fn time_at_the_failure_breakpoint_does_not_shorten_the_grace_period() {
    let text = "trap 'exit 0' TERM; [ $RMPI_RANK = 1 ] && exit 3; while :; do sleep 0.05; done";
    let (mut tool, running) = launch(script(2, text));
    tool.go_again();
    std::thread::sleep(Duration::from_millis(1200));
    tool.leave();
    let outcome = running.finish().expect(3);
    assert!(!outcome.err.contains("SIGKILL"), "{}", outcome.err);
}

/// Creates a file that looks like a program, but that the kernel cannot start; returns its path.
fn unstartable(folder: &Path) -> String {
    let path = folder.join("unstartable");
    fs::write(&path, "#!/no/such/interpreter\n").unwrap();
    fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    path.to_str().unwrap().to_owned()
}

#[test]
fn an_unstartable_rank_ends_a_held_job() {
    let folder = tempfile::tempdir().unwrap();
    let bad = unstartable(folder.path());
    let job = rmpiexec(["-n", "3", "sleep", "1000", ":", "-n", "1", &bad]);
    let (tool, running) = launch(job);
    // The order of two events is not determined: the other ranks are held, and this rank has failed.
    assert!(matches!(tool.int("MPIR_debug_state"), 1 | 2));
    tool.leave();
    running.finish().expect(127).reports("cannot execute");
    let going = rmpiexec(["--keep-going", "-n", "3", "true", ":", "-n", "1", &bad]);
    let (tool, running) = launch(going);
    assert_eq!(tool.int("MPIR_debug_state"), 1);
    assert_eq!(tool.table().len(), 4);
    tool.leave();
    running.finish().expect(127).reports("cannot execute");
}

#[test]
fn without_ptrace_ranks_are_held_before_exec() {
    let folder = tempfile::tempdir().unwrap();
    let mut job = marking(2, folder.path());
    trace(&mut job);
    refuse_traceme(&mut job);
    let (mut tool, running) = start(job);
    tool.write("MPIR_being_debugged", 1);
    tool.go();
    for pid in pids(&tool) {
        assert_eq!(state(pid), 'T');
        let program = fs::read_link(format!("/proc/{pid}/exe")).unwrap();
        assert!(program.ends_with("rmpiexec"), "{}", program.display());
    }
    assert_eq!(marks(folder.path()), 0);
    tool.leave();
    let outcome = running.finish().expect(0);
    let outcome = outcome.reports("the system does not let processes be traced here (ptrace)");
    assert_eq!((marks(folder.path()), outcome.err.lines().count()), (2, 1));
}

/// Makes `PTRACE_TRACEME` fail with EPERM in all processes of the job, after the exec of its command.
fn refuse_traceme(job: &mut Job) {
    use std::os::unix::process::CommandExt;
    // SAFETY: the closure runs between fork and execve, and makes only two system calls.
    unsafe { job.command.pre_exec(filter_traceme) };
}

fn filter_traceme() -> std::io::Result<()> {
    nix::sys::prctl::set_no_new_privs()?;
    let op = |code: u32, jt, jf, k| libc::sock_filter {
        code: u16::try_from(code).unwrap_or(0),
        jt,
        jf,
        k,
    };
    let load = libc::BPF_LD | libc::BPF_W | libc::BPF_ABS;
    let equal = libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K;
    let answer = libc::BPF_RET | libc::BPF_K;
    // In the data of the filter, the number of the system call is at offset 0, and the low half of its first argument
    // at offset 16.
    let mut filter = [
        op(load, 0, 0, 0),
        op(equal, 0, 3, u32::try_from(libc::SYS_ptrace).unwrap_or(0)),
        op(load, 0, 0, 16),
        op(equal, 0, 1, libc::PTRACE_TRACEME),
        op(answer, 0, 0, libc::SECCOMP_RET_ERRNO | 1),
        op(answer, 0, 0, libc::SECCOMP_RET_ALLOW),
    ];
    let program = libc::sock_fprog {
        len: 6,
        filter: filter.as_mut_ptr(),
    };
    // SAFETY: the program and its filter are local variables that outlive the call; the kernel copies them.
    let result = unsafe {
        libc::prctl(
            libc::PR_SET_SECCOMP,
            libc::SECCOMP_MODE_FILTER,
            &raw const program,
        )
    };
    nix::errno::Errno::result(result)?;
    Ok(())
}

#[test]
fn nothing_survives_a_kill_of_either_role_while_the_ranks_are_held() {
    for daemon in [false, true] {
        let (tool, mut running) = launch(script(3, "sleep 1000"));
        let ranks = pids(&tool);
        let victim = if daemon {
            running.daemon()
        } else {
            running.pid()
        };
        send(victim, Signal::SIGKILL);
        if daemon {
            tool.leave();
        }
        running.end();
        running.assert_nothing_left();
        assert!(
            ranks
                .iter()
                .all(|pid| !Path::new(&format!("/proc/{pid}")).exists())
        );
    }
}

#[test]
fn an_interrupt_ends_a_job_with_held_ranks() {
    let (tool, running) = launch(script(3, "sleep 1000"));
    running.signal(Signal::SIGINT);
    tool.leave();
    running.finish().expect(130).reports("SIGINT received");
}

#[test]
fn the_timeout_starts_when_held_ranks_are_released() {
    let (tool, running) = launch(rmpiexec(["--timeout", "0.5", "-n", "2", "true"]));
    std::thread::sleep(Duration::from_millis(800));
    tool.leave();
    running.finish().expect(0);
    let (tool, running) = launch(rmpiexec(["--timeout", "0.5", "-n", "2", "sleep", "1000"]));
    tool.leave();
    running.finish().expect(124);
}

/// MPIR-015, MPIR-016: arguments of the tool's program, a shell, which writes its pid and one variable to a file and
/// does not exit.
fn arguments(folder: &Path) -> Vec<u8> {
    let file = folder.join("tool");
    let text = format!(
        "echo $$ $RMPI_RANK > {0}.new; mv {0}.new {0}; exec sleep 1000",
        file.display()
    );
    format!("-c\0{text}\0\0").into_bytes()
}

fn tool_report(folder: &Path) -> String {
    until("the tool's program has spoken", || {
        fs::read_to_string(folder.join("tool")).ok()
    })
}

const STAYED: &str = "ended 1 process of the debugger, which stayed when all ranks had ended";

#[test]
fn mpir_014_a_running_job_starts_the_debuggers_tool() {
    let folder = tempfile::tempdir().unwrap();
    let running = waiting(2, folder.path()).start();
    table_later(&running);
    let mut tool = attach(&running);
    let fifo = tool.text("MPIR_attach_fifo");
    tool.write_bytes("MPIR_executable_path", b"/bin/sh\0");
    tool.write_bytes("MPIR_server_arguments", &arguments(folder.path()));
    tool.leave();
    fs::write(fifo, [1]).unwrap();
    let pid = tool_report(folder.path()).trim().parse().unwrap();
    until("it has become what it stays", || {
        let name = fs::read_to_string(format!("/proc/{pid}/comm")).ok()?;
        (name.trim() == "sleep" && running.processes().contains(&pid)).then_some(())
    });
    let_end(folder.path());
    let outcome = running.finish().expect(0).reports(STAYED);
    assert_eq!(outcome.err.lines().count(), 1, "{}", outcome.err);
}

#[test]
fn the_debuggers_tool_starts_before_the_ranks_are_released() {
    let folder = tempfile::tempdir().unwrap();
    let (mut tool, running) = launch(waiting(2, folder.path()));
    tool.write_bytes("MPIR_executable_path", b"/bin/sh\0");
    tool.write_bytes("MPIR_server_arguments", &arguments(folder.path()));
    tool.leave();
    assert_eq!(
        tool_report(folder.path()).split_ascii_whitespace().count(),
        1
    );
    let_end(folder.path());
    running.finish().expect(0).reports(STAYED);
}

#[test]
fn a_missing_debuggers_tool_is_reported_and_the_job_continues() {
    let (mut tool, running) = launch(rmpiexec(["-n", "2", "true"]));
    tool.write_bytes("MPIR_executable_path", b"/no/such/tool\0");
    tool.leave();
    let expected = "cannot start /no/such/tool, which the debugger wants on each host: no such file or directory";
    running.finish().expect(0).reports(expected);
}

/// MQS-001 in the starter: the symbol is the address of the text, not of a pointer to it.
#[test]
fn mpir_dll_name_follows_a_moved_installation() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path().canonicalize().unwrap();
    for name in ["bin", "lib"] {
        fs::create_dir(folder.join(name)).unwrap();
    }
    let launcher = folder.join("bin/rmpiexec");
    fs::copy(env!("CARGO_BIN_EXE_rmpiexec"), &launcher).unwrap();
    let library = folder.join("lib/librmpi_mqs.so");
    for there in [false, true] {
        if there {
            fs::write(&library, "").unwrap();
        }
        let mut command = Command::new(&launcher);
        command.args(["-n", "1", "true"]);
        let (tool, running) = launch(Job::of(command));
        let expected = if there {
            library.as_path()
        } else {
            Path::new("")
        };
        assert_eq!(Path::new(&tool.text("MPIR_dll_name")), expected);
        tool.leave();
        running.finish().expect(0);
    }
}

/// A debugger that discards Ctrl-C, as gdb does, stops the launcher at the signal, and the job continues.
#[test]
fn a_debugger_may_discard_signals_to_the_launcher() {
    let folder = tempfile::tempdir().unwrap();
    let running = waiting(2, folder.path()).start();
    table_later(&running);
    let tool = attach(&running);
    tool.go_to_signal(&running, Signal::SIGINT);
    tool.go_to_signal(&running, Signal::SIGTERM);
    tool.leave();
    let_end(folder.path());
    let outcome = running.finish().expect(0);
    assert_eq!(outcome.err, "");
    let running = waiting(2, folder.path().join("no").as_path()).start();
    table_later(&running);
    let tool = attach(&running);
    tool.go_to_signal(&running, Signal::SIGINT);
    tool.leave_with(Signal::SIGINT);
    running.finish().expect(130).reports("SIGINT received");
}
