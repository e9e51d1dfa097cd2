// SPDX-License-Identifier: MIT OR Apache-2.0
//! Runs cargo's tests and counts their results.

use super::Tally;
use crate::process::{capture, command_line};
use std::process::Command;
use std::time::Duration;

/// The results that a run of tests printed.
#[derive(Debug, Default, PartialEq, Eq)]
struct Counts {
    passed: usize,
    failed: usize,
    /// Whether a summary was printed.
    counted: bool,
}

/// Runs `cargo nextest run` or `cargo test` and adds its counts; shows its output if it fails.
pub(crate) fn run(tally: &mut Tally, what: &str, command: Command) -> Result<(), String> {
    let line = command_line(&command);
    let done = capture(command, LIMIT, |_| ())?;
    let counts = count(&(done.stdout.clone() + &done.stderr));
    let mut failed = vec![what.to_string(); counts.failed];
    if !done.success() && failed.is_empty() {
        failed.push(what.to_string());
    }
    if !failed.is_empty() {
        println!("{}{}", done.stdout, done.stderr);
        println!("  FAIL  {what}: `{line}` {}", done.end());
    } else if !counts.counted {
        return Err(format!("`{line}` printed no count of tests"));
    }
    println!(
        "  {what}: {} passed, {} failed",
        counts.passed,
        failed.len()
    );
    tally.add(counts.passed, failed);
    Ok(())
}

/// Adds up the summaries of nextest and of the standard harness.
fn count(text: &str) -> Counts {
    let mut counts = Counts::default();
    for line in text.lines() {
        let line = line.trim();
        let summary = match line.strip_prefix("test result: ") {
            Some(rest) => rest,
            None if line.starts_with("Summary [") => line,
            None => continue,
        };
        counts.counted = true;
        counts.passed += number_before(summary, "passed");
        for result in ["failed", "timed out", "exec failed"] {
            counts.failed += number_before(summary, result);
        }
    }
    counts
}

/// The number before `result` in a summary: 3 for `passed` in `3 passed (1 slow), 2 failed`.
fn number_before(summary: &str, result: &str) -> usize {
    summary
        .split([',', ';', ':', '.', ']'])
        .map(str::trim)
        .filter_map(|part| part.split_once(' '))
        .filter(|(_, rest)| rest.split(" (").next() == Some(result))
        .filter_map(|(number, _)| number.parse::<usize>().ok())
        .sum()
}

/// The time limit: long enough to build the tests, too, and short enough to leave time for the later stages if a test
/// hangs.
const LIMIT: Duration = Duration::from_secs(1800);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_harness_is_counted_over_all_binaries() {
        let text = "test result: ok. 3 passed; 0 failed; 1 ignored; 0 measured\n\
                    test result: FAILED. 4 passed; 2 failed; 0 ignored; 0 measured\n";
        assert_eq!(
            count(text),
            Counts {
                passed: 7,
                failed: 2,
                counted: true
            }
        );
    }

    #[test]
    fn nextest_is_counted_with_all_kinds_of_failure() {
        let text = "     Summary [   0.004s] 9 tests run: 5 passed (1 slow), 2 failed, 1 timed out, \
                    1 exec failed, 3 skipped\n";
        assert_eq!(
            count(text),
            Counts {
                passed: 5,
                failed: 4,
                counted: true
            }
        );
    }

    #[test]
    fn no_summary_counts_as_none() {
        assert_eq!(count("error: could not compile\n"), Counts::default());
    }

    #[test]
    fn a_failing_run_without_a_summary_is_one_failure() {
        let mut tally = Tally::default();
        let mut shell = Command::new("sh");
        shell.args(["-c", "exit 1"]);
        run(&mut tally, "tests", shell).unwrap();
        assert_eq!(tally.failed, ["tests"]);
    }
}
