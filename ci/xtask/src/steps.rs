// SPDX-License-Identifier: MIT OR Apache-2.0
//! Shows progress: a line per step, with its time.

use crate::process::seconds;
use std::io::Write;
use std::time::Instant;

/// Numbers and times the steps of a longer command.
pub(crate) struct Steps {
    start: Instant,
    count: usize,
    total: usize,
}

impl Steps {
    pub(crate) fn new(total: usize) -> Self {
        Self {
            start: Instant::now(),
            count: 0,
            total,
        }
    }

    /// A step that prints nothing itself: one line, ended by its time.
    pub(crate) fn silent<T>(
        &mut self,
        what: &str,
        step: impl FnOnce() -> Result<T, String>,
    ) -> Result<T, String> {
        self.head(what);
        let start = Instant::now();
        let result = step();
        println!("{}", ended(result.is_ok(), start));
        result
    }

    /// A step that prints: a line above its output, a line with its time below.
    pub(crate) fn shown<T>(
        &mut self,
        what: &str,
        step: impl FnOnce() -> Result<T, String>,
    ) -> Result<T, String> {
        self.head(what);
        println!();
        let start = Instant::now();
        let result = step();
        println!("      {}", ended(result.is_ok(), start));
        result
    }

    /// The time since the first step.
    pub(crate) fn total(&self) -> String {
        seconds(self.start.elapsed())
    }

    fn head(&mut self, what: &str) {
        self.count += 1;
        print!("[{}/{}] {what} ... ", self.count, self.total);
        // A closed terminal is no reason to stop.
        let _ = std::io::stdout().flush();
    }
}

fn ended(good: bool, start: Instant) -> String {
    let result = if good { "done" } else { "FAILED" };
    format!("{result} ({})", seconds(start.elapsed()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_returns_its_result() {
        let mut steps = Steps::new(2);
        assert_eq!(steps.silent("add", || Ok(1 + 1)), Ok(2));
        let failed: Result<(), String> = steps.shown("fail", || Err("why".into()));
        assert_eq!(failed, Err("why".into()));
        assert_eq!(steps.count, 2);
    }
}
