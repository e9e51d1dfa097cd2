// SPDX-License-Identifier: MIT OR Apache-2.0
//! The results of a stage.

use crate::process::seconds;
use std::time::{Duration, Instant};

/// The tests that passed, failed, or failed as expected.
#[derive(Default)]
pub(crate) struct Tally {
    pub(crate) passed: usize,
    pub(crate) failed: Vec<String>,
    /// The name and the reason of each test that failed as expected.
    pub(crate) expected: Vec<(String, String)>,
}

impl Tally {
    /// Runs a test, and prints a line with its time, and the reason if it failed.
    pub(crate) fn check(&mut self, name: &str, test: impl FnOnce() -> Result<(), String>) {
        let start = Instant::now();
        let result = test();
        self.record(name, result, start.elapsed());
    }

    /// Records a test that was run elsewhere.
    pub(crate) fn record(&mut self, name: &str, result: Result<(), String>, time: Duration) {
        match result {
            Ok(()) => {
                self.passed += 1;
                println!("  ok    {name} ({})", seconds(time));
            }
            Err(why) => self.fail(name, &why, time),
        }
    }

    /// Runs a test that is known to fail, for `reason`. If it passes, that counts as a failure, because the list is out
    /// of date.
    pub(crate) fn check_expected(
        &mut self,
        name: &str,
        reason: &str,
        test: impl FnOnce() -> Result<(), String>,
    ) {
        let start = Instant::now();
        match test() {
            Ok(()) => self.fail(
                name,
                &format!("passes now: drop xfail=\"{reason}\""),
                start.elapsed(),
            ),
            Err(_) => {
                self.expected.push((name.into(), reason.into()));
                println!("  xfail {name} ({}): {reason}", seconds(start.elapsed()));
            }
        }
    }

    /// Adds the results of a suite that has counted its tests itself.
    pub(crate) fn add(&mut self, passed: usize, failed: Vec<String>) {
        self.passed += passed;
        self.failed.extend(failed);
    }

    fn fail(&mut self, name: &str, why: &str, time: Duration) {
        self.failed.push(name.into());
        println!("  FAIL  {name} ({})", seconds(time));
        for line in why.lines() {
            println!("        {line}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checks_are_counted() {
        let mut tally = Tally::default();
        tally.check("good", || Ok(()));
        tally.check("bad", || Err("why".into()));
        tally.add(3, vec!["other".into()]);
        assert_eq!((tally.passed, tally.failed.len()), (4, 2));
    }

    #[test]
    fn an_expected_failure_is_neither_and_an_unexpected_success_fails() {
        let mut tally = Tally::default();
        tally.check_expected("known", "not built yet", || Err("why".into()));
        assert_eq!(
            (tally.passed, tally.failed.len(), tally.expected.len()),
            (0, 0, 1)
        );
        tally.check_expected("known", "not built yet", || Ok(()));
        assert_eq!(tally.failed, ["known"]);
    }
}
