// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which functions have a body, for `needs=` in the lists of the suites.

use super::super::testlist::Entry;
use crate::tree::{read, root};
use std::collections::BTreeSet;

/// The functions that have a body, from the table that `codegen` writes.
pub(super) struct Present(BTreeSet<String>);

impl Present {
    /// Reads the table of this repository.
    pub(super) fn here() -> Result<Self, String> {
        Ok(Self::parse(&read(
            &root().join("runtime/abi/gen/coverage.md"),
        )?))
    }

    fn parse(coverage: &str) -> Self {
        let rows = coverage
            .lines()
            .filter(|line| line.ends_with("| present |"));
        Self(
            rows.filter_map(|line| line.split('`').nth(1))
                .map(String::from)
                .collect(),
        )
    }

    /// Whether all functions that a list entry needs have a body.
    pub(super) fn allows(&self, entry: &Entry) -> bool {
        entry.needs.iter().all(|name| self.0.contains(name))
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::testlist;
    use super::*;

    fn line(needs: &str) -> Entry {
        let line = format!("program 1 needs={needs}");
        testlist::parse(&line).unwrap().remove(0)
    }

    #[test]
    fn only_functions_with_a_body_are_present() {
        let present = Present::parse(
            "| `MPI_Send`, `_c` | 3.2.1 | present |\n| `MPI_Win_create`, `_c` | 12.2.1 | missing |\n",
        );
        assert!(present.allows(&line("MPI_Send")));
        assert!(!present.allows(&line("MPI_Send,MPI_Win_create")));
    }

    #[test]
    fn the_table_of_this_repository_is_parsed() {
        assert!(Present::here().unwrap().allows(&line("MPI_Send")));
    }
}
