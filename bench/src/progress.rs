// SPDX-License-Identifier: MIT OR Apache-2.0
//! Progress: one line at the bottom of a terminal, redrawn; nothing where standard error is no terminal.

use std::io::IsTerminal;

use indicatif::{ProgressBar, ProgressStyle};

/// The line. Dropping it wipes it away.
#[derive(Debug)]
pub struct Progress(ProgressBar);

impl Progress {
    /// A line for so many steps.
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

    /// Corrects how many steps there are.
    pub fn expect(&self, steps: usize) {
        self.0.set_length(steps as u64);
    }

    /// Names the current step.
    pub fn tell(&self, what: &str) {
        self.0.set_message(what.to_owned());
        self.0.tick();
    }

    /// One step is done.
    pub fn step(&self) {
        self.0.inc(1);
    }

    /// Prints something above the line.
    pub fn above<T>(&self, print: impl FnOnce() -> T) -> T {
        self.0.suspend(print)
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}
