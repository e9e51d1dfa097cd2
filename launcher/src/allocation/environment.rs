// SPDX-License-Identifier: MIT OR Apache-2.0
//! Access to everything by which an allocation is detected: environment variables, files, programs, and this host's
//! name.

use crate::program::cause;
use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::process::{Command, Stdio};

/// What the detection of allocations reads from the system.
pub(crate) trait JobEnvironment {
    /// The value of a variable; `None`: it is not set, or is empty.
    fn variable(&self, name: &str) -> Option<String>;

    /// The contents of a file.
    ///
    /// # Errors
    /// The reason, in words, why the file cannot be read.
    fn file(&self, path: &Path) -> Result<String, String>;

    /// Whether an executable program of this name is in one of the folders of `PATH`.
    fn has_program(&self, name: &str) -> bool;

    /// Runs a command, the program and its arguments, and returns its standard output.
    ///
    /// # Errors
    /// The reason, in words, why the program cannot be started or has failed.
    fn answer(&self, command: &[&str]) -> Result<String, String>;

    /// The name of this host.
    fn own(&self) -> String;
}

/// The environment of this process.
pub(crate) struct ProcessEnvironment;

/// Maximum size of a file that is read, in bytes.
const MOST_FILE_BYTES: u64 = 16 << 20;

impl JobEnvironment for ProcessEnvironment {
    fn variable(&self, name: &str) -> Option<String> {
        std::env::var(name).ok().filter(|text| !text.is_empty())
    }

    fn file(&self, path: &Path) -> Result<String, String> {
        let mut text = String::new();
        let read = File::open(path)
            .and_then(|file| file.take(MOST_FILE_BYTES + 1).read_to_string(&mut text))
            .map_err(|error| cause(&error))?;
        match read as u64 > MOST_FILE_BYTES {
            true => Err(format!("it has more than {} MiB", MOST_FILE_BYTES >> 20)),
            false => Ok(text),
        }
    }

    fn has_program(&self, name: &str) -> bool {
        let Some(path) = std::env::var_os("PATH") else {
            return false;
        };
        std::env::split_paths(&path).any(|folder| {
            let place = folder.join(name);
            nix::unistd::access(&place, nix::unistd::AccessFlags::X_OK).is_ok() && place.is_file()
        })
    }

    fn answer(&self, command: &[&str]) -> Result<String, String> {
        let mut process = Command::new(command[0]);
        process.args(&command[1..]).stdin(Stdio::null());
        let output = process.output().map_err(|error| cause(&error))?;
        let stderr = String::from_utf8_lossy(&output.stderr);
        match output.status.success() {
            true => Ok(String::from_utf8_lossy(&output.stdout).into_owned()),
            false => Err(match stderr.trim() {
                "" => format!("{} ends with {}", command[0], output.status),
                stderr => stderr.replace('\n', " / "),
            }),
        }
    }

    fn own(&self) -> String {
        crate::front::host()
    }
}

#[cfg(test)]
pub(crate) use recorded::FakeEnvironment;

#[cfg(test)]
mod recorded {
    use super::*;
    use std::collections::HashMap;

    /// A recorded environment, for tests.
    #[derive(Debug, Default, Clone)]
    pub(crate) struct FakeEnvironment {
        own: String,
        variables: HashMap<String, String>,
        files: HashMap<String, String>,
        programs: Vec<String>,
        answers: HashMap<String, String>,
    }

    impl FakeEnvironment {
        /// The empty environment of a host of this name.
        pub(crate) fn of(own: &str) -> Self {
            Self {
                own: own.to_owned(),
                ..Self::default()
            }
        }

        /// Adds a variable.
        pub(crate) fn with(mut self, name: &str, value: &str) -> Self {
            self.variables.insert(name.to_owned(), value.to_owned());
            self
        }

        /// Adds variables, one per line, as `env` prints them.
        pub(crate) fn with_all(self, lines: &str) -> Self {
            let pairs = lines.lines().filter_map(|line| line.trim().split_once('='));
            pairs.fold(self, |all, (name, value)| all.with(name, value))
        }

        /// Adds a file with this text.
        pub(crate) fn with_file(mut self, path: &str, text: &str) -> Self {
            self.files.insert(path.to_owned(), text.to_owned());
            self
        }

        /// Adds a program of this name to those that are found.
        pub(crate) fn with_program(mut self, name: &str) -> Self {
            self.programs.push(name.to_owned());
            self
        }

        /// Adds the output `text` of the command `line`.
        pub(crate) fn with_answer(mut self, line: &str, text: &str) -> Self {
            self.answers.insert(line.to_owned(), text.to_owned());
            self
        }
    }

    impl JobEnvironment for FakeEnvironment {
        fn variable(&self, name: &str) -> Option<String> {
            self.variables.get(name).cloned()
        }

        fn file(&self, path: &Path) -> Result<String, String> {
            let text = self.files.get(&path.display().to_string()).cloned();
            text.ok_or_else(|| "no such file or directory".to_owned())
        }

        fn has_program(&self, name: &str) -> bool {
            self.programs.iter().any(|program| program == name)
        }

        fn answer(&self, command: &[&str]) -> Result<String, String> {
            let text = self.answers.get(&command.join(" ")).cloned();
            text.ok_or_else(|| "no such program".to_owned())
        }

        fn own(&self) -> String {
            self.own.clone()
        }
    }
}
