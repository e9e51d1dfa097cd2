// SPDX-License-Identifier: MIT OR Apache-2.0
//! The progress bar: one line at the bottom of the terminal, redrawn at each step; nothing is drawn if standard error
//! is no terminal.

use std::io::IsTerminal;

use indicatif::{ProgressBar, ProgressStyle};

/// The progress bar. Dropping it clears its line.
#[derive(Debug)]
pub struct Progress(ProgressBar);

impl Progress {
    /// A progress bar for `steps` steps.
    #[must_use]
    pub fn new(steps: usize) -> Self {
        if !std::io::stderr().is_terminal() {
            return Self(ProgressBar::hidden());
        }
        let bar = ProgressBar::new(steps as u64);
        if let Ok(style) = ProgressStyle::with_template("{bar:24} {pos}/{len} {elapsed} {msg}") {
            bar.set_style(style);
        }
        Self(bar)
    }

    /// Corrects the number of steps.
    pub fn expect(&self, steps: usize) {
        self.0.set_length(steps as u64);
    }

    /// Names the current step.
    pub fn show(&self, what: &str) {
        self.0.set_message(what.to_owned());
        self.0.tick();
    }

    /// Advances the bar by one step.
    pub fn step(&self) {
        self.0.inc(1);
    }

    /// Calls `print` with the bar hidden, so that its output stands above the bar.
    pub fn above<T>(&self, print: impl FnOnce() -> T) -> T {
        self.0.suspend(print)
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}
