// SPDX-License-Identifier: MIT OR Apache-2.0
//! Checks `// PAIR(name)`: each Release names the Acquire with which it synchronizes, and each Acquire its Release.

use super::{Problem, SourceFile};
use std::collections::BTreeMap;

/// Crates in which every Release and Acquire must name its pair.
const WATCHED: &[&str] = &["transport/ring/src/", "runtime/layout/src/"];

/// The sides of a pair that were found.
#[derive(Clone, Copy, Default)]
struct Sides {
    releases: bool,
    acquires: bool,
}

/// Pairs of which only one side exists, and memory orders in watched crates without the name of a pair.
pub(crate) fn check(sources: &[SourceFile]) -> Vec<Problem> {
    let mut names: BTreeMap<String, (Sides, Problem)> = BTreeMap::new();
    let mut problems = Vec::new();
    for source in sources
        .iter()
        .filter(|source| source.is_rust() && !is_self(&source.path))
    {
        let end = source.lines_before_tests();
        for (index, line) in source.lines[..end].iter().enumerate() {
            for name in named(&line.comment) {
                let here = sides_after(source, index, end);
                let place = source.problem(index + 1, "");
                let (known, _) = names
                    .entry(name)
                    .or_insert_with(|| (Sides::default(), place));
                known.releases |= here.releases;
                known.acquires |= here.acquires;
            }
        }
        problems.extend(unnamed(source, end));
    }
    problems.extend(
        names
            .into_iter()
            .filter_map(|(name, (sides, place))| one_sided(&name, sides, place)),
    );
    problems
}

fn one_sided(name: &str, sides: Sides, place: Problem) -> Option<Problem> {
    let lacks = match (sides.releases, sides.acquires) {
        (true, true) => return None,
        (true, false) => "no Acquire",
        (false, true) => "no Release",
        (false, false) => "neither Release nor Acquire",
    };
    Some(Problem {
        what: format!("PAIR({name}) has {lacks}"),
        ..place
    })
}

/// The names of the pairs that a comment mentions.
fn named(comment: &str) -> Vec<String> {
    comment
        .split("PAIR(")
        .skip(1)
        .filter_map(|rest| rest.split_once(')'))
        .map(|(name, _)| name.to_string())
        .collect()
}

/// The memory orders in the statement below or beside a comment.
fn sides_after(source: &SourceFile, index: usize, end: usize) -> Sides {
    let mut sides = Sides::default();
    let mut seen = 0;
    for line in &source.lines[index..end] {
        let code = line.code.trim();
        if code.is_empty() {
            continue;
        }
        let here = orders(code);
        sides.releases |= here.releases;
        sides.acquires |= here.acquires;
        seen += 1;
        if seen == STATEMENT_LINES {
            break;
        }
    }
    sides
}

fn orders(code: &str) -> Sides {
    let names: Vec<&str> = code
        .split(|c: char| !(c.is_alphanumeric() || c == '_'))
        .collect();
    let has = |name: &str| names.contains(&name);
    let both = has("AcqRel") || has("SeqCst");
    Sides {
        releases: both || has("Release"),
        acquires: both || has("Acquire"),
    }
}

/// Memory orders in watched crates without a `PAIR` in the lines above.
fn unnamed(source: &SourceFile, end: usize) -> Vec<Problem> {
    if !WATCHED.iter().any(|folder| source.path.starts_with(folder))
        || source.path.ends_with("sync.rs")
    {
        return Vec::new();
    }
    let mut problems = Vec::new();
    for (index, line) in source.lines[..end].iter().enumerate() {
        let here = orders(&line.code);
        let import = line.code.trim_start().starts_with("use ");
        if import || !(here.releases || here.acquires) {
            continue;
        }
        let above = &source.lines[index.saturating_sub(LINES_ABOVE)..=index];
        if !above.iter().any(|line| line.comment.contains("PAIR(")) {
            problems.push(source.problem(index + 1, "this memory order names no PAIR(partner)"));
        }
    }
    problems
}

/// Whether the file is `pairs.rs` itself: its text mentions `PAIR`, but it has no pairs.
fn is_self(path: &str) -> bool {
    path.ends_with("tidy/pairs.rs")
}

/// The number of lines of code below a comment that count as its statement.
const STATEMENT_LINES: usize = 5;
/// The number of lines above a memory order in which its pair may be named.
const LINES_ABOVE: usize = 8;

#[cfg(test)]
mod tests {
    use super::*;

    const RELEASE: &str = "// PAIR(full): pop loads it.\nseq.store(1, Release);\n";
    const ACQUIRE: &str = "// PAIR(full): push stores it.\nif seq.load(Acquire) == 1 {}\n";

    fn problems(files: &[(&str, &str)]) -> Vec<String> {
        check(&SourceFile::all(files))
            .iter()
            .map(ToString::to_string)
            .collect()
    }

    #[test]
    fn a_pair_with_both_sides_passes_even_across_files() {
        let files = [
            ("transport/ring/src/a.rs", RELEASE),
            ("transport/ring/src/b.rs", ACQUIRE),
        ];
        assert_eq!(problems(&files), [""; 0]);
    }

    #[test]
    fn a_pair_with_one_side_fails() {
        let found = problems(&[("transport/ring/src/a.rs", RELEASE)]);
        assert_eq!(
            found,
            ["transport/ring/src/a.rs:1: PAIR(full) has no Acquire"]
        );
        let found = problems(&[("runtime/core/src/a.rs", ACQUIRE)]);
        assert_eq!(
            found,
            ["runtime/core/src/a.rs:1: PAIR(full) has no Release"]
        );
    }

    #[test]
    fn an_order_without_a_name_fails_where_orders_are_watched() {
        let text = "use crate::sync::Release;\nseq.store(1, Release);\n";
        let found = problems(&[("transport/ring/src/a.rs", text)]);
        assert_eq!(
            found,
            ["transport/ring/src/a.rs:2: this memory order names no PAIR(partner)"]
        );
        assert_eq!(problems(&[("bench/src/a.rs", text)]), [""; 0]);
    }

    #[test]
    fn pairs_that_a_page_mentions_need_no_other_side() {
        assert_eq!(problems(&[("docs/a.md", RELEASE)]), [""; 0]);
    }
}
