// SPDX-License-Identifier: MIT OR Apache-2.0
//! Wrappers of an environment: one that records what was found, for reports, and one for processes that start no job.

use super::Surroundings;
use remote_shell::word;
use std::cell::RefCell;
use std::path::Path;

/// An environment that records what was found in it.
pub(super) struct Watched<'a> {
    around: &'a dyn Surroundings,
    seen: RefCell<Vec<String>>,
}

impl<'a> Watched<'a> {
    pub(super) fn new(around: &'a dyn Surroundings) -> Self {
        Self {
            around,
            seen: RefCell::default(),
        }
    }

    /// The findings, each once, in order.
    pub(super) fn into_seen(self) -> Vec<String> {
        self.seen.into_inner()
    }

    fn note(&self, words: String) {
        let mut seen = self.seen.borrow_mut();
        if !seen.contains(&words) {
            seen.push(words);
        }
    }
}

impl Surroundings for Watched<'_> {
    fn variable(&self, name: &str) -> Option<String> {
        let value = self.around.variable(name)?;
        self.note(format!("{name}={}", word::shown(&value)));
        Some(value)
    }

    fn file(&self, path: &Path) -> Result<String, String> {
        let text = self.around.file(path)?;
        let lines = u32::try_from(text.lines().count()).unwrap_or(u32::MAX);
        let lines = crate::failure::counted(lines, "line", "lines");
        self.note(format!("{lines} in that file"));
        Ok(text)
    }

    fn has_program(&self, name: &str) -> bool {
        let has = self.around.has_program(name);
        let words = if has { "found" } else { "not found" };
        self.note(format!("program {name} {words}"));
        has
    }

    fn answer(&self, words: &[&str]) -> Result<String, String> {
        let answer = self.around.answer(words)?;
        self.note(format!("an answer of `{}`", words.join(" ")));
        Ok(answer)
    }

    fn own(&self) -> String {
        self.around.own()
    }
}

/// Environment of a process that starts no job: it may be one of several tasks.
pub(super) struct Onlooker<'a>(pub(super) &'a dyn Surroundings);

impl Surroundings for Onlooker<'_> {
    fn variable(&self, name: &str) -> Option<String> {
        match name {
            "SLURM_STEP_NUM_TASKS" => None,
            name => self.0.variable(name),
        }
    }

    fn file(&self, path: &Path) -> Result<String, String> {
        self.0.file(path)
    }

    fn has_program(&self, name: &str) -> bool {
        self.0.has_program(name)
    }

    fn answer(&self, words: &[&str]) -> Result<String, String> {
        self.0.answer(words)
    }

    fn own(&self) -> String {
        self.0.own()
    }
}
