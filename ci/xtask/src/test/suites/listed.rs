// SPDX-License-Identifier: MIT OR Apache-2.0
//! A list of programs in `ci/suites`, of which each line is run.

use super::super::testlist::{self, Entry};
use super::Tally;
use super::coverage::Present;
use crate::tree::{read, root};
use std::collections::BTreeSet;
use std::path::PathBuf;

/// The programs of one suite.
pub(super) struct ListedPrograms {
    suite: &'static str,
    entries: Vec<Entry>,
    present: Present,
}

impl ListedPrograms {
    /// Reads `ci/suites/SUITE/list`.
    pub(super) fn of(suite: &'static str) -> Result<Self, String> {
        Ok(Self {
            suite,
            entries: testlist::parse(&read(&folder(suite).join("list"))?)?,
            present: Present::here()?,
        })
    }

    /// An error unless the list has exactly the programs `found`: a program without a line would never run.
    pub(super) fn names_all(&self, found: &BTreeSet<String>) -> Result<(), String> {
        let file = |entry: &Entry| entry.program.split('.').next().map(String::from);
        let listed: BTreeSet<String> = self.entries.iter().filter_map(file).collect();
        let differing: Vec<&str> = found
            .symmetric_difference(&listed)
            .map(String::as_str)
            .collect();
        if differing.is_empty() {
            return Ok(());
        }
        Err(format!(
            "in the suite or in ci/suites/{}/list, but not in both: {}",
            self.suite,
            differing.join(", ")
        ))
    }

    /// The classes and tests of a file that have separate lines.
    pub(super) fn parts_of(&self, file: &str) -> Vec<&str> {
        let names = self.entries.iter().map(|entry| entry.program.as_str());
        names.filter(|name| is_part(name, file)).collect()
    }

    /// The programs of the lines whose functions all have a body.
    pub(super) fn ready(&self) -> BTreeSet<&str> {
        let ready = self.entries.iter();
        ready
            .filter(|entry| self.present.allows(entry))
            .map(|entry| entry.program.as_str())
            .collect()
    }

    /// Runs each line whose functions all have a body.
    pub(super) fn run(&self, tally: &mut Tally, run: impl Fn(&Entry, u32) -> Result<(), String>) {
        let (ready, later): (Vec<_>, Vec<_>) = self
            .entries
            .iter()
            .partition(|entry| self.present.allows(entry));
        for entry in ready {
            for ranks in &entry.ranks {
                let name = format!("{}/{}", self.suite, entry.name(*ranks));
                match &entry.xfail {
                    Some(why) => tally.check_expected(&name, why, || run(entry, *ranks)),
                    None => tally.check(&name, || run(entry, *ranks)),
                }
            }
        }
        if !later.is_empty() {
            println!(
                "  {} lines of the list need functions that have no body yet",
                later.len()
            );
        }
    }
}

/// The folder of the suite's list and its other files.
pub(super) fn folder(suite: &str) -> PathBuf {
    root().join("ci/suites").join(suite)
}

/// Whether `name` is a class or a test of the file `file`.
fn is_part(name: &str, file: &str) -> bool {
    name.strip_prefix(file)
        .is_some_and(|rest| rest.starts_with('.'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_is_of_one_file_only() {
        assert!(is_part("test_win.TestA", "test_win"));
        assert!(!is_part("test_window.TestA", "test_win"));
        assert!(!is_part("test_win", "test_win"));
    }

    #[test]
    fn the_lists_are_well_formed() {
        for suite in super::super::LISTS {
            let list = ListedPrograms::of(suite).unwrap();
            let names = list.entries.iter().map(|entry| entry.program.clone());
            let mut files: BTreeSet<String> = names.filter(|name| !name.contains('.')).collect();
            assert_eq!(list.names_all(&files), Ok(()), "{suite}");
            files.insert("new".into());
            assert!(list.names_all(&files).is_err(), "{suite}");
        }
    }
}
