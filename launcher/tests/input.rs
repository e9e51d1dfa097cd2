// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests that standard input reaches rank 0 completely, at the pace at which rank 0 reads, and reaches no other rank.
#![allow(clippy::unwrap_used)]

mod common;
use common::{rmpiexec, script, until};
use std::io::Write;
use std::process::{Command, Stdio};

#[test]
fn unreadable_standard_input_is_reported_and_closed() {
    for (from, reason) in [
        ("< /", "is a directory"),
        ("0> /dev/null", "it is not open for reading"),
    ] {
        let line = format!("exec {} -n 2 cat {from}", env!("CARGO_BIN_EXE_rmpiexec"));
        let mut command = Command::new("sh");
        command.args(["-c", &line]);
        // The command's own standard input is set by the shell line.
        let outcome = common::Job::of(command).run().expect(0);
        let expected = format!("cannot read standard input: {reason}; rank 0 sees its end");
        assert_eq!(
            outcome.err.matches(&expected).count(),
            1,
            "{from}: {}",
            outcome.err
        );
    }
}

#[test]
fn a_hundred_mebibytes_arrive_unchanged() {
    let folder = tempfile::tempdir().unwrap();
    let (from, to) = (folder.path().join("from"), folder.path().join("to"));
    let mut state = 1_u64;
    let data: Vec<u8> = (0..100 << 17)
        .flat_map(|_| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            state.to_le_bytes()
        })
        .collect();
    std::fs::write(&from, &data).unwrap();
    let mut job = script(2, "[ $RMPI_RANK = 0 ] && cat; true");
    job.command
        .stdin(Stdio::from(std::fs::File::open(&from).unwrap()));
    job.command
        .stdout(Stdio::from(std::fs::File::create(&to).unwrap()));
    job.run().expect(0);
    assert!(std::fs::read(&to).unwrap() == data);
}

#[test]
fn a_pipe_reaches_rank_zero_only() {
    let line = format!(
        "echo hello | {} -n 3 sh -c 'echo $RMPI_RANK $(cat)'",
        env!("CARGO_BIN_EXE_rmpiexec")
    );
    let mut command = Command::new("sh");
    command.args(["-c", &line]);
    let outcome = common::Job::of(command).run().expect(0);
    assert_eq!(outcome.sorted(), ["0 hello", "1", "2"]);
}

#[test]
fn a_rank_that_never_reads_does_not_block_the_job() {
    let line = format!(
        "yes | head -c 30000000 | {} -n 2 echo done",
        env!("CARGO_BIN_EXE_rmpiexec")
    );
    let mut command = Command::new("sh");
    command.args(["-c", &line]);
    assert_eq!(common::Job::of(command).run().expect(0).out, "done\ndone\n");
}

#[test]
fn a_rank_that_stops_reading_does_not_block_the_job() {
    let line = format!(
        "yes | {} -n 2 sh -c '[ $RMPI_RANK = 0 ] && head -n 1; exec <&-; sleep 0.3; echo end'",
        env!("CARGO_BIN_EXE_rmpiexec")
    );
    let mut command = Command::new("sh");
    command.args(["-c", &line]);
    assert_eq!(
        common::Job::of(command).run().expect(0).sorted(),
        ["end", "end", "y"]
    );
}

#[test]
fn input_that_never_ends_does_not_outlive_the_job() {
    let mut job = rmpiexec(["-n", "2", "true"]);
    job.command.stdin(Stdio::piped());
    let mut running = job.start();
    let open = running.child.stdin.take();
    assert_eq!(running.end().code(), Some(0));
    drop(open);
}

#[test]
fn interactive_input_and_output_work() {
    let mut job = rmpiexec([
        "-n",
        "1",
        "sh",
        "-c",
        "read a; printf 'got %s? ' $a; read b; echo then $b",
    ]);
    job.command.stdin(Stdio::piped());
    let mut running = job.start();
    let mut input = running.child.stdin.take().unwrap();
    let mut output = running.child.stdout.take().unwrap();
    input.write_all(b"one\n").unwrap();
    // The prompt has no newline, but must be forwarded, since there is only one rank.
    let mut prompt = [0; 9];
    std::io::Read::read_exact(&mut output, &mut prompt).unwrap();
    assert_eq!(&prompt, b"got one? ");
    input.write_all(b"two\n").unwrap();
    let rest = std::io::read_to_string(output).unwrap();
    assert_eq!(rest, "then two\n");
    assert_eq!(running.end().code(), Some(0));
}

#[test]
fn a_background_job_does_not_read_the_terminal() {
    // `script` provides a terminal with an interactive shell, which runs the job in the background.
    let inner = format!(
        "set -m; {} -n 2 sleep 0.3 & wait $!; echo code $?",
        env!("CARGO_BIN_EXE_rmpiexec")
    );
    let mut command = Command::new("script");
    command
        .args(["-qec", &format!("bash -c '{inner}'"), "/dev/null"])
        .stdin(Stdio::piped());
    let mut running = common::Job::of(command).start();
    let keep = running.child.stdin.take();
    let status = until("the shell ends", || running.child.try_wait().unwrap());
    drop(keep);
    let text = std::io::read_to_string(running.child.stdout.take().unwrap()).unwrap();
    assert!(status.success() && text.contains("code 0"), "{text}");
}

#[test]
fn terminal_input_reaches_rank_zero() {
    let inner = format!(
        "{} -n 2 sh -c 'read x; echo $RMPI_RANK:$x'",
        env!("CARGO_BIN_EXE_rmpiexec")
    );
    let mut command = Command::new("script");
    command
        .args(["-qec", &inner, "/dev/null"])
        .stdin(Stdio::piped());
    let mut running = common::Job::of(command).start();
    let mut input = running.child.stdin.take().unwrap();
    input.write_all(b"typed\n").unwrap();
    running.end();
    let text = std::io::read_to_string(running.child.stdout.take().unwrap()).unwrap();
    assert!(
        text.contains("0:typed") && text.contains("1:\r\n"),
        "{text:?}"
    );
}

fn fed(options: &[&str], text: &str) -> common::Outcome {
    let line = format!(
        "seq 1 100000 | {} {} -n 3 sh -c '{text}'",
        env!("CARGO_BIN_EXE_rmpiexec"),
        options.join(" ")
    );
    let mut command = Command::new("sh");
    command.args(["-c", &line]);
    common::Job::of(command).run().expect(0)
}

const COUNT: &str = "echo $RMPI_RANK $(cksum)";

#[test]
fn stdin_all_gives_all_ranks_the_whole_input() {
    let outcome = fed(&["--stdin", "all"], COUNT);
    let sums: std::collections::HashSet<&str> = outcome
        .out
        .lines()
        .map(|line| line.split_once(' ').unwrap().1)
        .collect();
    assert_eq!(
        (outcome.out.lines().count(), sums.len()),
        (3, 1),
        "{}",
        outcome.out
    );
    assert!(sums.iter().all(|sum| sum.ends_with(" 588895")), "{sums:?}");
}

#[test]
fn stdin_option_selects_another_rank_or_none() {
    let sizes = |options: &[&str]| -> Vec<String> {
        let outcome = fed(options, "echo $RMPI_RANK $(wc -c)");
        outcome.sorted().into_iter().map(str::to_owned).collect()
    };
    assert_eq!(sizes(&["--stdin", "2"]), ["0 0", "1 0", "2 588895"]);
    assert_eq!(sizes(&["-s", "none"]), ["0 0", "1 0", "2 0"]);
    assert_eq!(sizes(&[]), ["0 588895", "1 0", "2 0"]);
}

#[test]
fn an_exiting_reader_does_not_block_the_others() {
    let outcome = fed(
        &["--stdin", "all"],
        "[ $RMPI_RANK = 1 ] && exit; exec wc -l",
    );
    assert_eq!(outcome.sorted(), ["100000", "100000"]);
}
