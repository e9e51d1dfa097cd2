// SPDX-License-Identifier: MIT OR Apache-2.0
//! The head of each crate says what it knows and what it never does.

use super::{Problem, SourceFile};

/// Crates whose documentation lacks **Knows** or **Never**.
pub(crate) fn check(sources: &[SourceFile]) -> Vec<Problem> {
    sources
        .iter()
        .filter(|source| is_crate_root(source, sources))
        .filter_map(lacking)
        .collect()
}

/// `src/lib.rs`, or `src/main.rs` where there is no library beside it.
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
        .filter(|word| !head.contains(word))
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
    fn a_crate_without_its_plan_fails() {
        let found = problems(&[("a/src/lib.rs", "//! A crate.\n//! **Knows** bytes.\n")]);
        assert_eq!(found, ["the crate's documentation lacks a **Never** line"]);
    }

    #[test]
    fn the_library_speaks_for_the_program_beside_it() {
        let good = "//! **Knows** a.\n//! **Never** b.\n";
        assert!(problems(&[("a/src/lib.rs", good), ("a/src/main.rs", "//! Main.\n")]).is_empty());
        assert_eq!(problems(&[("b/src/main.rs", "//! Main.\n")]).len(), 1);
    }
}
