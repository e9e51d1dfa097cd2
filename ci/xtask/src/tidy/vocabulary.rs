// SPDX-License-Identifier: MIT OR Apache-2.0
//! Checks that each type name is defined once in the workspace, and that comments use the vocabulary of the field.

use super::{Problem, SourceFile, scan};
use std::collections::BTreeMap;

/// Type names that are defined in more than one file, and words in comments that the field does not use.
pub(crate) fn check(sources: &[SourceFile]) -> Vec<Problem> {
    let mut problems = doubles(sources);
    let rust = sources.iter().filter(|source| source.is_rust());
    problems.extend(
        rust.filter(|source| !source.is_generated())
            .flat_map(foreign),
    );
    problems
}

/// A problem at every definition of a name after the first; it names the first.
fn doubles(sources: &[SourceFile]) -> Vec<Problem> {
    let mut first: BTreeMap<String, (&str, usize)> = BTreeMap::new();
    let mut problems = Vec::new();
    for source in sources.iter().filter(|source| is_product(source)) {
        for (name, line) in types(source) {
            if IDIOMS.contains(&&name[..]) || SHARED.contains(&&name[..]) {
                continue;
            }
            let Some((file, at)) = first.get(&name) else {
                first.insert(name, (&source.path, line));
                continue;
            };
            let what =
                format!("the type `{name}` is also defined in {file}:{at}: rename one of them");
            problems.push(source.problem(line, what));
        }
    }
    problems
}

fn is_product(source: &SourceFile) -> bool {
    let name = source.path.rsplit('/').next().unwrap_or_default();
    source.is_rust() && !source.is_test() && name != "tests.rs" && !name.ends_with("_tests.rs")
}

/// The structures, enumerations, unions and traits that a file defines before its tests, with their line numbers (from
/// 1).
fn types(source: &SourceFile) -> Vec<(String, usize)> {
    let lines = &source.lines[..source.lines_before_tests()];
    let tokens = scan::tokens(lines);
    let is_type = |name: &str| name.starts_with(char::is_uppercase);
    tokens
        .windows(2)
        .filter(|pair| DEFINITIONS.contains(&&pair[0].text[..]) && is_type(&pair[1].text))
        .map(|pair| (pair[1].text.clone(), pair[1].line + 1))
        .collect()
}

/// Comments with one of the words in [`FOREIGN`].
fn foreign(source: &SourceFile) -> Vec<Problem> {
    let is_part = |c: char| c.is_alphanumeric() || c == '_' || c == '`';
    let has = |comment: &str, word: &str| {
        comment.match_indices(word).any(|(at, _)| {
            !comment[..at].ends_with(is_part) && !comment[at + word.len()..].starts_with(is_part)
        })
    };
    let mut problems = Vec::new();
    for (index, line) in source.lines.iter().enumerate() {
        let comment = line.comment.to_lowercase();
        for (word, better) in FOREIGN {
            if has(&comment, word) {
                let what = format!("a comment has \"{word}\": use {better}");
                problems.push(source.problem(index + 1, what));
            }
        }
    }
    problems
}

const DEFINITIONS: &[&str] = &["struct", "enum", "union", "trait"];
/// Names that Rust crates and modules usually give to one type each, and that are used with the path of the crate or
/// module.
const IDIOMS: &[&str] = &["Args", "Config", "Error", "Iter", "Options"];
/// Names that two crates may both define. `Peer` is the number of a process: the crates `engine` and `transport` number
/// processes in the same order, but neither depends on the other.
const SHARED: &[&str] = &["Peer"];
/// Words that must not be in comments, each with the words that rdma-core, UCX, MPICH, Slurm and the standard use
/// instead.
const FOREIGN: &[(&str, &str)] = &[
    (concat!("to", "ld"), "reported, recorded, signalled or sent"),
    (concat!("hea", "rs"), "receives"),
    (concat!("lat", "ely"), "recently, or the time"),
    (concat!("some", "body"), "which process, user or thread"),
    (concat!("un", "said"), "not sent"),
    (concat!("wish", "es"), "requests"),
];

#[cfg(test)]
mod tests {
    use super::*;

    fn problems(files: &[(&str, &str)]) -> Vec<String> {
        check(&SourceFile::all(files))
            .iter()
            .map(ToString::to_string)
            .collect()
    }

    #[test]
    fn a_second_type_of_a_name_fails_and_the_first_is_named() {
        let files = [
            (
                "a/src/lib.rs",
                "//! Head.\npub struct Frame;\nenum Kind {}\n",
            ),
            (
                "b/src/x.rs",
                "pub(crate) trait Other {}\nstruct Frame<'a>(&'a u8);\n",
            ),
        ];
        let found = problems(&files);
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].starts_with("b/src/x.rs:2: "), "{found:?}");
        assert!(found[0].contains("a/src/lib.rs:2"), "{found:?}");
    }

    #[test]
    fn idioms_tests_and_what_is_only_mentioned_pass() {
        let files = [
            ("a/src/lib.rs", "pub enum Error {}\nstruct Frame;\n"),
            (
                "b/src/lib.rs",
                "pub enum Error {}\n// struct Frame\nlet x = \"struct Frame\";\n",
            ),
            ("b/tests/x.rs", "struct Frame;\n"),
            (
                "c/src/lib.rs",
                "fn f() {}\n#[cfg(test)]\nmod tests {\n    struct Frame;\n}\n",
            ),
        ];
        assert_eq!(problems(&files), Vec::<String>::new());
    }

    #[test]
    fn words_that_are_not_of_the_field_fail_only_in_comments() {
        let word = concat!("to", "ld");
        let text = format!(
            "/// The peer is {word}.\nfn f() {{ let {word} = 1; }}\n/// `{word}` counts.\n"
        );
        let found = problems(&[("a/src/lib.rs", &text)]);
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].starts_with("a/src/lib.rs:1: "), "{found:?}");
        let inside = format!("// {word}ing, un{word} and {word}_at are other words.\n");
        assert_eq!(problems(&[("a/src/lib.rs", &inside)]), Vec::<String>::new());
    }
}
