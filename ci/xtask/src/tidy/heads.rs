// SPDX-License-Identifier: MIT OR Apache-2.0
//! Checks that the documentation of each crate has the lines **Knows** and **Never**.

use super::{Problem, SourceFile};

/// The crates whose documentation lacks one of the two lines.
pub(crate) fn check(sources: &[SourceFile]) -> Vec<Problem> {
    sources
        .iter()
        .filter(|source| is_crate_root(source, sources))
        .filter_map(lacking)
        .collect()
}

/// Whether the file is `src/lib.rs`, or `src/main.rs` of a crate without a library.
fn is_crate_root(source: &SourceFile, sources: &[SourceFile]) -> bool {
    if source.path.ends_with("/src/lib.rs") {
        return true;
    }
    source
        .path
        .strip_suffix("/src/main.rs")
        .is_some_and(|folder| {
            let library = format!("{folder}/src/lib.rs");
            !sources.iter().any(|other| other.path == library)
        })
}

fn lacking(source: &SourceFile) -> Option<Problem> {
    let head: String = source
        .lines
        .iter()
        .filter(|line| line.comment.starts_with("//!"))
        .map(|line| line.comment.as_str())
        .collect();
    let missing: Vec<&str> = ["**Knows**", "**Never**"]
        .into_iter()
        .filter(|line| !head.contains(line))
        .collect();
    let what = format!(
        "the crate's documentation lacks a {} line",
        missing.join(" and a ")
    );
    (!missing.is_empty()).then(|| source.problem(1, what))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problems(files: &[(&str, &str)]) -> Vec<String> {
        check(&SourceFile::all(files))
            .into_iter()
            .map(|problem| problem.what)
            .collect()
    }

    #[test]
    fn a_crate_without_one_of_the_lines_fails() {
        let found = problems(&[("a/src/lib.rs", "//! A crate.\n//! **Knows** bytes.\n")]);
        assert_eq!(found, ["the crate's documentation lacks a **Never** line"]);
    }

    #[test]
    fn a_program_beside_a_library_needs_no_lines() {
        let good = "//! **Knows** a.\n//! **Never** b.\n";
        assert!(problems(&[("a/src/lib.rs", good), ("a/src/main.rs", "//! Main.\n")]).is_empty());
        assert_eq!(problems(&[("b/src/main.rs", "//! Main.\n")]).len(), 1);
    }
}
