// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which functions have a body: what `needs=` in the lists of the suites asks.

use super::super::testlist::Entry;
use crate::tree::{read, root};
use std::collections::BTreeSet;

/// The functions that have a body, by the table that the generator writes.
pub(super) struct Present(BTreeSet<String>);

impl Present {
    /// By the table of this repository.
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

    /// Whether all that a line needs is there.
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
    fn the_coverage_tells_what_is_there() {
        let present = Present::parse(
            "| `MPI_Send`, `_c` | 3.2.1 | present |\n| `MPI_Win_create`, `_c` | 12.2.1 | missing |\n",
        );
        assert!(present.allows(&line("MPI_Send")));
        assert!(!present.allows(&line("MPI_Send,MPI_Win_create")));
    }

    #[test]
    fn the_coverage_of_this_repository_is_understood() {
        assert!(Present::here().unwrap().allows(&line("MPI_Send")));
    }
}
