// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests with ranks that send the messages of an MPI library. The ranks are this test program, started again with the
//! name of a role.
#![allow(clippy::unwrap_used)]

mod common;
use common::rmpiexec;
use common::role::{ROLE, count, ranks, ranks_with, send_to_daemon, wrapped};
use nix::sys::socket::{
    AddressFamily, MsgFlags, SockFlag, SockType, UnixAddr, connect, recvmsg, send, socket,
};
use std::io::IoSliceMut;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use wireup::{BOOT_VARIABLE, Boot, MAX_DATAGRAM_BYTES, ToDaemon, ToRank};

/// Not a test by itself: the program of a rank in its role.
#[test]
#[ignore = "a rank, started by the other tests through rmpiexec"]
fn rank_program() {
    let (Ok(boot), Ok(role)) = (std::env::var(BOOT_VARIABLE), std::env::var(ROLE)) else {
        return;
    };
    let boot = Boot::parse(&boot).expect("the daemon writes what the library reads");
    match role.as_str() {
        "lost" | "forged" => ask_for_segment(&boot, role == "forged"),
        "memory" => ask_for_memory(&boot),
        "segment" => check_segment(&boot.segment_fd.to_string(), &boot),
        "absent" if boot.rank == 0 => (),
        _ => play(&role, &boot),
    }
}

fn play(role: &str, boot: &Boot) {
    if role == "nonsense" {
        for length in [1, 15, 16, 17, 2048] {
            let _ = send(boot.control_fd, &vec![0xa5; length], MsgFlags::empty());
        }
    }
    let rank = boot.rank;
    send_to_daemon(
        boot.control_fd,
        &ToDaemon::Hello {
            rank,
            pid: std::process::id(),
            publishes: false,
        },
    );
    match (role, rank) {
        ("leaves", 2) => std::process::exit(0),
        ("leaves with code", 2) => std::process::exit(33),
        ("abort", 2) => abort(boot, 300, "the lattice is odd"),
        ("abort zero", 2) => abort(boot, 0, ""),
        ("fatal", 2) => fatal(boot),
        ("deserts", 1) => std::process::exit(0),
        ("crash" | "crash alone", 1) => {
            nix::sys::signal::raise(nix::sys::signal::Signal::SIGABRT).unwrap()
        }
        ("daemon watch", _) => watch_daemon(boot),
        // The pause is longer than another rank may be delayed.
        ("absent" | "crash alone", _) => pause(2000),
        ("late failure", 0 | 2) => pause(300),
        ("proper" | "nonsense" | "late failure", _) => (),
        // Ranks in all other roles wait until the launcher ends them.
        _ => pause(100_000),
    }
    send_to_daemon(boot.control_fd, &ToDaemon::Finalized { rank });
    match (role, rank) {
        ("late failure", 1) => std::process::exit(4),
        ("late failure", _) => println!("\nundisturbed"),
        _ => (),
    }
}

fn pause(milliseconds: u64) {
    std::thread::sleep(std::time::Duration::from_millis(milliseconds));
}

fn abort(boot: &Boot, code: i32, message: &str) {
    let message = message.to_owned();
    send_to_daemon(
        boot.control_fd,
        &ToDaemon::Abort {
            rank: boot.rank,
            code,
            message,
        },
    );
    pause(100_000);
}

fn fatal(boot: &Boot) {
    println!("\nwhat it wrote before");
    send_to_daemon(
        boot.control_fd,
        &ToDaemon::Fatal {
            rank: boot.rank,
            code: 6,
            message: "a fatal MPI error (MPI_ERR_RANK) in MPI_Send".to_owned(),
        },
    );
    pause(100_000);
}

/// Waits for the daemon's end, and writes to a file how it was noticed.
fn watch_daemon(boot: &Boot) {
    let file = std::env::var("RMPI_TEST_FILE").unwrap();
    std::fs::write(&file, "in MPI").unwrap();
    let mut byte = [0];
    let end = nix::sys::socket::recv(boot.control_fd, &mut byte, MsgFlags::empty());
    std::fs::write(&file, format!("{end:?}")).unwrap();
    std::process::exit(0);
}

/// Role of a rank whose descriptors were closed by a wrapper. `forged`: whether it presents a wrong key.
fn ask_for_segment(boot: &Boot, forged: bool) {
    for lost in [boot.segment_fd, boot.control_fd] {
        nix::unistd::close(lost).expect("it was inherited");
    }
    let control = open_control(boot);
    let job = if forged { boot.job ^ 1 } else { boot.job };
    send_to_daemon(
        control.as_raw_fd(),
        &ToDaemon::AskSegment {
            rank: boot.rank,
            job,
        },
    );
    let (answer, descriptor) = answer(&control);
    match answer {
        ToRank::Segment => {
            let number = descriptor
                .expect("the segment travels with the answer")
                .to_string();
            check_segment(&number, boot);
            send_to_daemon(
                control.as_raw_fd(),
                &ToDaemon::Hello {
                    rank: boot.rank,
                    pid: 0,
                    publishes: false,
                },
            );
            send_to_daemon(
                control.as_raw_fd(),
                &ToDaemon::Finalized { rank: boot.rank },
            );
        }
        ToRank::Refused { why } => println!("\nrefused: {why}"),
        _ => panic!("no such answer"),
    }
}

/// Opens a connection to the daemon, as any process can.
fn open_control(boot: &Boot) -> OwnedFd {
    let control = socket(
        AddressFamily::Unix,
        SockType::SeqPacket,
        SockFlag::SOCK_CLOEXEC,
        None,
    )
    .unwrap();
    let address = UnixAddr::new_abstract(boot.address.as_bytes()).unwrap();
    connect(control.as_raw_fd(), &address).expect("the daemon listens");
    control
}

/// Requests the memory of a rank from the daemon, as a debugger does that has no permission to open it.
fn ask_for_memory(boot: &Boot) {
    for (rank, job) in [(boot.rank, boot.job ^ 1), (boot.size, boot.job)] {
        let control = open_control(boot);
        send_to_daemon(control.as_raw_fd(), &ToDaemon::AskMemory { rank, job });
        let (answer, descriptor) = answer(&control);
        assert!(matches!(answer, ToRank::Refused { .. }), "{answer:?}");
        assert_eq!(descriptor, None);
    }
    let control = open_control(boot);
    for _ in 0..2 {
        let (rank, job) = (boot.rank, boot.job);
        send_to_daemon(control.as_raw_fd(), &ToDaemon::AskMemory { rank, job });
        let (answer, descriptor) = answer(&control);
        let pid = std::process::id();
        assert_eq!(answer, ToRank::Memory { pid });
        let number = descriptor.expect("the memory travels with the answer");
        let memory = format!("/proc/self/fd/{number}");
        let is = std::fs::read_link(&memory).unwrap();
        assert_eq!(is.to_str(), Some(&*format!("/proc/{pid}/mem")));
        let flags = std::fs::read_to_string(format!("/proc/self/fdinfo/{number}")).unwrap();
        let flags = flags.lines().find_map(|line| line.strip_prefix("flags:"));
        assert!(
            flags.is_some_and(|flags| flags.ends_with('0')),
            "{flags:?}: for reading alone"
        );
    }
    println!("\nmemory of rank {}", boot.rank);
}

fn answer(control: &OwnedFd) -> (ToRank, Option<RawFd>) {
    let mut bytes = [0; MAX_DATAGRAM_BYTES];
    let mut space = nix::cmsg_space!(RawFd);
    let mut pieces = [IoSliceMut::new(&mut bytes)];
    let message = recvmsg::<UnixAddr>(
        control.as_raw_fd(),
        &mut pieces,
        Some(&mut space),
        MsgFlags::empty(),
    )
    .unwrap();
    let descriptor = message.cmsgs().unwrap().find_map(|part| match part {
        nix::sys::socket::ControlMessageOwned::ScmRights(descriptors) => {
            descriptors.first().copied()
        }
        _ => None,
    });
    let length = message.bytes;
    (ToRank::decode(&bytes[..length]).unwrap(), descriptor)
}

/// Checks that the segment has the right size and layout, and that no rank can change its size.
fn check_segment(number: &str, boot: &Boot) {
    let path = format!("/proc/self/fd/{number}");
    let file = std::fs::File::options()
        .read(true)
        .write(true)
        .open(path)
        .unwrap();
    let bytes = file.metadata().unwrap().len();
    let segment = ring::segment_bytes(boot.local_size());
    let arena = (bytes - segment) / u64::from(boot.local_size());
    assert_eq!(bytes, ring::layout::file_bytes(boot.local_size(), arena));
    assert!(arena.is_power_of_two(), "an arena for each rank");
    assert!(file.set_len(4096).is_err(), "shrinking must be sealed");
    assert!(
        file.set_len(bytes + 4096).is_err(),
        "growing must be sealed"
    );
    let mut head = [0; 24];
    std::os::unix::fs::FileExt::read_exact_at(&file, &mut head, 0).unwrap();
    assert_eq!(
        head,
        ring::SegmentHead {
            job: boot.job,
            local_size: boot.local_size()
        }
        .to_bytes()
    );
    println!("\nsegment of rank {}", boot.rank);
}

#[test]
fn rank_memory_needs_the_key_and_is_read_only() {
    let outcome = ranks(2, "memory").run().expect(0);
    assert_eq!(count(&outcome, "memory of rank "), 2, "{}", outcome.out);
}

#[test]
fn a_regular_run_prints_nothing() {
    let outcome = ranks(8, "proper").run().expect(0);
    assert_eq!(outcome.err, "");
}

#[test]
fn a_report_has_the_map_and_every_phase_in_order() {
    let outcome = ranks_with(&["--report"], 3, "proper").run().expect(0);
    let lines: Vec<&str> = outcome.err.lines().collect();
    assert!(
        lines[0].starts_with("rmpiexec: 3 ranks on host "),
        "{}",
        outcome.err
    );
    assert_eq!(count_lines(&lines, "rmpiexec: rank "), 3, "{}", outcome.err);
    let phases = [
        "command line understood, programs found",
        "node daemon made",
        "all ranks started",
        "first rank in MPI_Init",
        "last rank in MPI_Init",
        "last rank through MPI_Finalize",
        "all ranks ended",
        "nothing of the job left",
    ];
    let reported: Vec<&str> = lines[4..]
        .iter()
        .filter_map(|line| line.split("  ").last())
        .collect();
    let mut sorted = (reported.clone(), phases.to_vec());
    sorted.0.sort_unstable();
    sorted.1.sort_unstable();
    assert_eq!(sorted.0, sorted.1, "{}", outcome.err);
    // A rank may be in `MPI_Init` before the last rank is started, so the order of these two phases is not checked.
    let at = |name: &str| reported.iter().position(|line| *line == name);
    assert!(at("node daemon made") < at("all ranks started"));
    assert!(at("first rank in MPI_Init") < at("last rank in MPI_Init"));
    assert!(at("last rank through MPI_Finalize") < at("all ranks ended"));
    assert_eq!(at("nothing of the job left"), Some(7));
}

fn count_lines(lines: &[&str], start: &str) -> usize {
    lines.iter().filter(|line| line.starts_with(start)).count()
}

#[test]
fn keep_going_survives_a_crash_inside_mpi() {
    let outcome = ranks_with(&["--keep-going"], 4, "crash alone").run();
    assert!(
        outcome.code.is_some_and(|code| code > 128),
        "{}",
        outcome.err
    );
    outcome
        .reports("; the others go on")
        .reports("1 rank has failed; the first: rank ");
    let outcome = ranks_with(&["--keep-going"], 4, "abort").run();
    assert!(!outcome.err.contains("go on"), "{}", outcome.err);
    outcome.reports("called MPI_Abort");
}

#[test]
fn the_inherited_segment_is_whole_and_sealed() {
    let outcome = ranks(4, "segment").run().expect(0);
    assert_eq!(count(&outcome, "segment of rank"), 4, "{}", outcome.out);
}

#[test]
fn a_rank_without_descriptors_gets_the_segment_and_a_control_socket() {
    let outcome = ranks(4, "lost").run().expect(0);
    assert_eq!(count(&outcome, "segment of rank"), 4, "{}", outcome.out);
    assert_eq!(outcome.err, "");
}

#[test]
fn a_wrong_key_gets_no_segment() {
    let outcome = ranks(2, "forged").run().expect(0);
    assert_eq!(
        count(
            &outcome,
            "refused: there is no such rank, or the key is that of another job"
        ),
        2,
        "{}",
        outcome.out
    );
}

#[test]
fn leaving_without_finalize_ends_the_job() {
    let outcome = ranks(4, "leaves").run().expect(1);
    outcome
        .reports("rank 2 on host ")
        .reports("left without MPI_Finalize (exit code 0)");
    ranks(4, "leaves with code")
        .run()
        .expect(33)
        .reports("left without MPI_Finalize (exit code 33)");
}

#[test]
fn an_abort_ends_the_job_with_its_code_and_message() {
    let outcome = ranks(4, "abort").run().expect(300 & 0xff);
    let outcome = outcome
        .reports("rank 2 on host ")
        .reports("called MPI_Abort with code 300: the lattice is odd");
    assert!(outcome.err.lines().count() <= 5, "{}", outcome.err);
    ranks(4, "abort zero")
        .run()
        .expect(1)
        .reports("called MPI_Abort with code 0");
}

#[test]
fn a_fatal_mpi_error_is_not_reported_as_an_abort() {
    let outcome = ranks(4, "fatal").run().expect(6);
    let outcome = outcome
        .reports("was ended by a fatal MPI error (MPI_ERR_RANK) in MPI_Send")
        .reports("ended the remaining 3 ranks");
    assert!(!outcome.err.contains("MPI_Abort"), "{}", outcome.err);
    assert!(outcome.out.contains("what it wrote before"));
}

#[test]
fn a_crash_inside_mpi_is_reported_as_a_signal() {
    ranks(3, "crash")
        .run()
        .expect(134)
        .reports("rank 1 on host ")
        .reports("was killed by signal 6");
}

#[test]
fn a_failure_after_finalize_does_not_end_other_ranks() {
    let outcome = ranks(3, "late failure")
        .run()
        .expect(4)
        .reports("exited with code 4 after MPI_Finalize");
    assert_eq!(count(&outcome, "undisturbed"), 2, "{}", outcome.out);
}

#[test]
fn quiet_suppresses_the_report_of_a_rank_failure() {
    let own = std::env::current_exe().unwrap();
    let rank = "rank_program --exact --ignored --nocapture --test-threads=1";
    let arguments = ["--quiet", "-n", "3", own.to_str().unwrap()];
    let mut job = rmpiexec(arguments.into_iter().chain(rank.split(' ')));
    job.command.env(ROLE, "late failure");
    assert_eq!(job.run().expect(4).err, "");
}

#[test]
fn malformed_control_messages_are_ignored() {
    let outcome = ranks(3, "nonsense").run().expect(0);
    assert_eq!(outcome.err, "");
}

#[test]
fn a_rank_without_mpi_init_gives_a_remark_if_others_called_it() {
    let outcome = ranks(2, "absent").run().expect(0);
    outcome
        .reports("rank 0 (pid ")
        .reports("ended without MPI_Init while others called it");
}

#[test]
fn a_crashed_mpi_process_inside_a_running_script_is_detected() {
    let outcome = wrapped(2, "crash", "PROGRAM; sleep 100").run().expect(1);
    outcome
        .reports("rank 1 on host ")
        .reports("but its MPI process ")
        .reports("ended without MPI_Finalize");
}

#[test]
fn a_script_exit_code_after_a_crash_is_kept() {
    let outcome = wrapped(2, "crash", "PROGRAM; exit $?").run().expect(134);
    outcome.reports("left without MPI_Finalize (exit code 134, as after signal 6, SIGABRT)");
}

#[test]
fn a_script_may_run_mpi_programs_one_after_another() {
    wrapped(2, "proper", "PROGRAM && PROGRAM").run().expect(0);
}

#[test]
fn a_program_after_one_that_left_mpi_without_finalize_is_refused() {
    let script = "PROGRAM; PROGRAM; sleep 100";
    let outcome = wrapped(2, "deserts", script).run().expect(1);
    outcome
        .reports("rank 1 on host ")
        .reports("ended without MPI_Finalize");
}

#[test]
fn an_unequal_number_of_mpi_programs_per_rank_is_an_error() {
    let script = "PROGRAM; if [ $RMPI_RANK = 0 ]; then RMPI_TEST_ROLE=stays PROGRAM; fi";
    let outcome = wrapped(2, "proper", script).run().expect(1);
    outcome.reports(
        "rank 0 has started its MPI program number 2, but rank 1 has ended after 1: all ranks must start as many",
    );
}

#[test]
fn two_concurrent_mpi_programs_in_one_rank_are_refused() {
    let outcome = wrapped(2, "twice", "PROGRAM & PROGRAM & wait")
        .run()
        .expect(1);
    outcome.reports("called MPI_Init in two processes at a time");
}

#[test]
fn a_rank_detects_the_end_of_the_daemon() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("end");
    // When the daemon is killed, the wrapper that it started is killed too. The wrapper's child, which runs the role,
    // is killed only by the front, and the front is stopped until the child has written its report.
    let mut job = wrapped(1, "daemon watch", "PROGRAM & wait");
    job.command.env("RMPI_TEST_FILE", &file);
    let running = job.start();
    let reported = |name: &str, expected: &[&str]| {
        common::until(name, || {
            let text = std::fs::read_to_string(&file).unwrap_or_default();
            expected.contains(&text.as_str()).then_some(())
        });
    };
    reported("the rank is in MPI", &["in MPI"]);
    running.signal(nix::sys::signal::Signal::SIGSTOP);
    common::send(running.daemon(), nix::sys::signal::Signal::SIGKILL);
    reported("the rank sees the end", &["Ok(0)", "Err(ECONNRESET)"]);
    running.signal(nix::sys::signal::Signal::SIGCONT);
    running.finish().expect(137);
}
