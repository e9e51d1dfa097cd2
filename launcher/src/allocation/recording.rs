// SPDX-License-Identifier: MIT OR Apache-2.0
//! Two wrappers of a [`JobEnvironment`]: [`RecordingEnvironment`] records what was found, for reports, and
//! [`ObserverEnvironment`] is for processes that start no job.

use super::JobEnvironment;
use remote_shell::word;
use std::cell::RefCell;
use std::path::Path;

/// An environment that records what was found in it.
pub(super) struct RecordingEnvironment<'a> {
    environment: &'a dyn JobEnvironment,
    seen: RefCell<Vec<String>>,
}

impl<'a> RecordingEnvironment<'a> {
    pub(super) fn new(environment: &'a dyn JobEnvironment) -> Self {
        Self {
            environment,
            seen: RefCell::default(),
        }
    }

    /// The findings in the order in which they were made, each only once.
    pub(super) fn into_seen(self) -> Vec<String> {
        self.seen.into_inner()
    }

    fn note(&self, message: String) {
        let mut seen = self.seen.borrow_mut();
        if !seen.contains(&message) {
            seen.push(message);
        }
    }
}

impl JobEnvironment for RecordingEnvironment<'_> {
    fn variable(&self, name: &str) -> Option<String> {
        let value = self.environment.variable(name)?;
        self.note(format!("{name}={}", word::shown(&value)));
        Some(value)
    }

    fn file(&self, path: &Path) -> Result<String, String> {
        let text = self.environment.file(path)?;
        let lines = u32::try_from(text.lines().count()).unwrap_or(u32::MAX);
        let lines = crate::failure::counted(lines, "line", "lines");
        self.note(format!("{lines} in that file"));
        Ok(text)
    }

    fn has_program(&self, name: &str) -> bool {
        let has = self.environment.has_program(name);
        let message = if has { "found" } else { "not found" };
        self.note(format!("program {name} {message}"));
        has
    }

    fn answer(&self, command: &[&str]) -> Result<String, String> {
        let answer = self.environment.answer(command)?;
        self.note(format!("an answer of `{}`", command.join(" ")));
        Ok(answer)
    }

    fn own(&self) -> String {
        self.environment.own()
    }
}

/// The environment of a process that starts no job. Such a process may be one of several tasks of a Slurm step, so this
/// environment hides the number of tasks.
pub(super) struct ObserverEnvironment<'a>(pub(super) &'a dyn JobEnvironment);

impl JobEnvironment for ObserverEnvironment<'_> {
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

    fn answer(&self, command: &[&str]) -> Result<String, String> {
        self.0.answer(command)
    }

    fn own(&self) -> String {
        self.0.own()
    }
}
