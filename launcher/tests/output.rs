// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of the ranks' output: lines are never torn and never lost, and an output that cannot be written any more ends
//! the job cleanly.
#![allow(clippy::unwrap_used)]

mod common;
use common::{rmpiexec, script};
use std::collections::HashMap;
use std::process::{Command, Stdio};

#[test]
fn lines_written_in_pieces_by_64_ranks_stay_whole() {
    let text = "i=0; while [ $i -lt 50 ]; do printf 'rank %s ' $RMPI_RANK; printf 'line %s ' $i; echo end; \
                printf 'error %s ' $RMPI_RANK >&2; echo line $i end >&2; i=$((i+1)); done";
    let outcome = script(64, text).run().expect(0);
    for (lines, word) in [(&outcome.out, "rank"), (&outcome.err, "error")] {
        let mut next: HashMap<&str, u32> = HashMap::new();
        for line in lines.lines() {
            let words: Vec<&str> = line.split(' ').collect();
            let [first, rank, "line", number, "end"] = words[..] else {
                panic!("torn: {line:?}")
            };
            assert_eq!(first, word);
            let expected = next.entry(rank).or_insert(0);
            assert_eq!(number, expected.to_string(), "order of rank {rank}");
            *expected += 1;
        }
        assert!(
            next.len() == 64 && next.values().all(|count| *count == 50),
            "{next:?}"
        );
    }
}

#[test]
fn both_streams_into_one_file_keep_their_lines_whole() {
    let line = format!(
        "{} -n 8 sh -c 'i=0; while [ $i -lt 200 ]; do printf out; echo put; {{ printf err; echo or; }} >&2; i=$((i+1)); done' 2>&1",
        env!("CARGO_BIN_EXE_rmpiexec")
    );
    let mut command = Command::new("sh");
    command.args(["-c", &line]);
    let outcome = common::Job::of(command).run().expect(0);
    assert_eq!(
        outcome.out.lines().filter(|line| *line == "output").count(),
        1600
    );
    assert_eq!(
        outcome.out.lines().filter(|line| *line == "error").count(),
        1600
    );
    assert_eq!(outcome.out.lines().count(), 3200);
}

#[test]
fn a_last_line_without_end_is_written() {
    let outcome = script(2, "printf 'no end %s' $RMPI_RANK").run().expect(0);
    assert!(
        ["no end 0no end 1", "no end 1no end 0"].contains(&outcome.out.as_str()),
        "{}",
        outcome.out
    );
}

#[test]
fn output_of_a_background_child_is_not_lost() {
    let outcome = script(2, "(sleep 0.05; echo child) & echo parent; wait")
        .run()
        .expect(0);
    assert_eq!(outcome.sorted(), ["child", "child", "parent", "parent"]);
}

#[test]
fn tags_stand_before_each_line_of_both_streams() {
    let outcome = rmpiexec(["-l", "-n", "2", "sh", "-c", "echo a; echo b; echo c >&2"])
        .run()
        .expect(0);
    assert_eq!(outcome.sorted(), ["[0] a", "[0] b", "[1] a", "[1] b"]);
    let mut errors: Vec<&str> = outcome.err.lines().collect();
    errors.sort_unstable();
    assert_eq!(errors, ["[0] c", "[1] c"]);
}

#[test]
fn tagging_loses_nothing() {
    let text = "i=0; while [ $i -lt 3000 ]; do echo $i some text to fill the line a little; i=$((i+1)); done";
    let outcome = rmpiexec(["-l", "-n", "4", "sh", "-c", text])
        .run()
        .expect(0);
    for rank in 0..4 {
        let tag = format!("[{rank}] ");
        let mine = outcome
            .out
            .lines()
            .filter_map(|line| line.strip_prefix(&tag));
        assert!(
            mine.enumerate()
                .all(|(number, line)| line.starts_with(&format!("{number} some")))
        );
    }
    assert_eq!(outcome.out.lines().count(), 12000);
}

#[test]
fn arbitrary_bytes_and_long_lines_arrive() {
    let folder = tempfile::tempdir().unwrap();
    let data: Vec<u8> = (0..5_000_000_u64)
        .map(|i| i.wrapping_mul(2_654_435_761).to_le_bytes()[2])
        .collect();
    let data: Vec<u8> = data
        .into_iter()
        .map(|byte| if byte == b'\n' { 0 } else { byte })
        .collect();
    let file = folder.path().join("data");
    std::fs::write(&file, &data).unwrap();
    let text = format!("[ $RMPI_RANK = 1 ] && cat {}; true", file.display());
    let outcome = script(2, &text).run().expect(0);
    assert!(
        outcome.raw_out == data,
        "{} bytes of {}",
        outcome.raw_out.len(),
        data.len()
    );
}

#[test]
fn a_reader_that_pauses_loses_nothing() {
    let line = format!(
        "{} -n 4 sh -c 'seq 1 100000' | {{ sleep 0.5; wc -l; }}",
        env!("CARGO_BIN_EXE_rmpiexec")
    );
    let mut command = Command::new("sh");
    command.args(["-c", &line]);
    assert_eq!(
        common::Job::of(command).run().expect(0).out.trim(),
        "400000"
    );
}

#[test]
fn a_reader_that_never_reads_does_not_hide_a_failure() {
    // Rank 0 writes more than all buffers hold, and its output is not read. Meanwhile rank 1 fails.
    let text = "if [ $RMPI_RANK = 1 ]; then sleep 0.5; exit 9; fi; yes";
    let mut running = script(2, text).start();
    let mut unread = running.child.stdout.take().unwrap();
    let errors = running.child.stderr.take().unwrap();
    let first = std::io::BufRead::lines(std::io::BufReader::new(errors))
        .next()
        .unwrap()
        .unwrap();
    assert!(first.contains("exited with code 9"), "{first}");
    std::io::copy(&mut unread, &mut std::io::sink()).unwrap();
    assert_eq!(running.end().code(), Some(9));
    running.assert_nothing_left();
}

#[test]
fn a_closed_standard_output_ends_the_job_with_one_message() {
    let line = format!(
        "{{ {} -n 4 yes; echo code $? >&2; }} | head -n 1",
        env!("CARGO_BIN_EXE_rmpiexec")
    );
    let mut command = Command::new("sh");
    command.args(["-c", &line]);
    let outcome = common::Job::of(command).run().expect(0);
    assert_eq!(outcome.out, "y\n");
    assert!(outcome.err.contains("code 141"), "{}", outcome.err);
    assert_eq!(
        outcome
            .err
            .matches("cannot write standard output: broken pipe")
            .count(),
        1,
        "{}",
        outcome.err
    );
}

#[test]
fn a_full_disk_ends_the_job_with_one_message() {
    let mut job = rmpiexec(["-n", "4", "yes"]);
    let full = std::fs::File::options()
        .write(true)
        .open("/dev/full")
        .unwrap();
    job.command.stdout(Stdio::from(full));
    let outcome = job.run().expect(1);
    assert_eq!(
        outcome
            .err
            .matches("cannot write standard output: no space left on device")
            .count(),
        1,
        "{}",
        outcome.err
    );
}

#[test]
fn a_full_disk_at_the_end_of_the_job_is_an_error() {
    let mut job = rmpiexec(["-n", "2", "echo", "last words"]);
    let full = std::fs::File::options()
        .write(true)
        .open("/dev/full")
        .unwrap();
    job.command.stdout(Stdio::from(full));
    job.run()
        .expect(1)
        .reports("cannot write standard output: no space left on device");
}

/// `rmpiexec` with these arguments, as a shell line.
fn line(arguments: &str) -> common::Job {
    let mut command = Command::new("sh");
    command.args([
        "-c",
        &format!("{} {arguments}", env!("CARGO_BIN_EXE_rmpiexec")),
    ]);
    common::Job::of(command)
}

#[test]
fn output_to_a_closed_descriptor_is_an_error() {
    let expected = "cannot write standard output: it is closed (name /dev/null if nobody wants it)";
    let outcome = line("-n 2 echo x >&-").run().expect(1).reports(expected);
    assert_eq!(outcome.err.matches("cannot write").count(), 1);
    line("--help >&-").run().expect(1).reports(expected);
    line("-n 2 sh -c 'echo x >&2' 2>&-").run().expect(1);
}

#[test]
fn an_unused_closed_descriptor_is_not_an_error() {
    line("-n 2 true >&- 2>&-").run().expect(0);
    line("-n 2 cat <&-").run().expect(0);
    line("-n 2 echo x > /dev/null").run().expect(0);
}

#[test]
fn unwritable_launcher_messages_do_not_end_a_job() {
    let outcome = line("-n 1 -x RMPI_TEST_UNSET echo x 2>&-").run().expect(0);
    assert_eq!(outcome.out, "x\n");
    let outcome = line("-v -n 1 echo x 2> /dev/full").run().expect(0);
    assert_eq!(outcome.out, "x\n");
}

#[test]
fn output_of_a_rank_precedes_the_report_of_its_failure() {
    let outcome = script(
        2,
        "[ $RMPI_RANK = 1 ] && { echo why >&2; exit 4; }; sleep 100",
    )
    .run()
    .expect(4);
    let lines: Vec<&str> = outcome.err.lines().collect();
    assert_eq!(lines[0], "why");
    assert!(lines[1].contains("rank 1 on host "), "{}", outcome.err);
}

#[test]
fn output_option_writes_one_file_per_rank_and_stream() {
    let folder = tempfile::tempdir().unwrap();
    let inner = folder.path().join("new/folder");
    let arguments = ["--output", inner.to_str().unwrap(), "-n", "12", "sh", "-c"];
    let text =
        "printf 'rank %s ' $RMPI_RANK; echo says; [ $RMPI_RANK = 11 ] && echo error >&2; true";
    let outcome = rmpiexec(arguments.into_iter().chain([text]))
        .run()
        .expect(0);
    assert_eq!((outcome.out.as_str(), outcome.err.as_str()), ("", ""));
    let read = |name: String| std::fs::read_to_string(inner.join(name)).unwrap();
    for rank in 0..12 {
        assert_eq!(
            read(format!("rank.{rank:02}.out")),
            format!("rank {rank} says\n")
        );
        let error = if rank == 11 { "error\n" } else { "" };
        assert_eq!(read(format!("rank.{rank:02}.err")), error);
    }
    assert_eq!(std::fs::read_dir(&inner).unwrap().count(), 24);
}

#[test]
fn output_files_get_large_writes_and_launcher_messages_stay_on_stderr() {
    let folder = tempfile::tempdir().unwrap();
    let arguments = [
        "--output",
        folder.path().to_str().unwrap(),
        "-n",
        "2",
        "sh",
        "-c",
    ];
    let text = "head -c 9000000 /dev/zero; [ $RMPI_RANK = 0 ] && exit 5; sleep 30";
    let outcome = rmpiexec(arguments.into_iter().chain([text]))
        .run()
        .expect(5)
        .reports("exited with code 5");
    assert_eq!(outcome.out, "");
    let size = |name: &str| std::fs::metadata(folder.path().join(name)).unwrap().len();
    assert_eq!(size("rank.0.out"), 9_000_000);
}

#[test]
fn a_file_that_cannot_be_written_is_named() {
    let folder = tempfile::tempdir().unwrap();
    std::os::unix::fs::symlink("/dev/full", folder.path().join("rank.1.out")).unwrap();
    let arguments = [
        "--output",
        folder.path().to_str().unwrap(),
        "-n",
        "2",
        "sh",
        "-c",
        "echo x; sleep 30",
    ];
    let outcome = rmpiexec(arguments).run().expect(1);
    let expected = format!(
        "cannot write {}: no space left on device; the job is ended",
        folder.path().join("rank.1.out").display()
    );
    outcome.reports(&expected);
}

#[test]
fn a_folder_for_files_that_cannot_be_made_stops_the_job_before_its_start() {
    let folder = tempfile::tempdir().unwrap();
    let mark = folder.path().join("started");
    let text = format!("touch {}", mark.display());
    let outcome = rmpiexec(["--output", "/dev/null/x", "-n", "2", "sh", "-c", &text])
        .run()
        .expect(1);
    outcome.reports("--output /dev/null/x: cannot make /dev/null/x: not a directory");
    assert!(!mark.exists());
}

/// Each rank writes more than all buffers on the path hold together: its pipe, the window between daemon and front, and
/// the reader's pipe.
#[test]
fn output_beyond_every_buffer_of_every_rank_arrives() {
    much_output(24 << 20);
}

/// Each rank writes one gibibyte. The long form of stage `deaths` runs this test.
#[test]
#[ignore = "takes a minute"]
fn a_gibibyte_of_output_from_every_rank_arrives() {
    much_output(1 << 30);
}

fn much_output(bytes: u64) {
    let line = format!(
        "{} -n 3 sh -c 'yes $RMPI_RANK | head -c {bytes}' | awk '{{ n[$1]++ }} END {{ for (r in n) print r, n[r] }}'",
        env!("CARGO_BIN_EXE_rmpiexec")
    );
    let mut command = Command::new("sh");
    command.args(["-c", &line]);
    let outcome = common::Job::of(command).run().expect(0);
    let expected: Vec<String> = (0..3).map(|rank| format!("{rank} {}", bytes / 2)).collect();
    assert_eq!(outcome.sorted(), expected);
}
