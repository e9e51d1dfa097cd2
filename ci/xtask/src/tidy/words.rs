// SPDX-License-Identifier: MIT OR Apache-2.0
//! Checks for texts that a file must contain, and for texts that it must not contain.

use super::{Problem, SourceFile};

/// Finds a missing licence line, the words [`LEFTOVERS`] that mark unfinished work, and absolute paths that exist on
/// one machine only ([`MACHINE_PATHS`]).
pub(crate) fn check(source: &SourceFile) -> Vec<Problem> {
    let mut problems: Vec<Problem> = licence(source).into_iter().collect();
    for (index, line) in source.text.lines().enumerate() {
        if let Some(word) = LEFTOVERS.iter().find(|word| has_word(line, word)) {
            let what = format!("{word} on the main branch: do it, or open an issue");
            problems.push(source.problem(index + 1, what));
        }
        if let Some(path) = MACHINE_PATHS.iter().find(|path| names_path(line, path)) {
            let what = format!("{path} is a path of one machine");
            problems.push(source.problem(index + 1, what));
        }
    }
    problems
}

fn licence(source: &SourceFile) -> Option<Problem> {
    let kinds = [
        ".rs", ".c", ".h", ".cpp", ".hpp", ".f90", ".toml", ".sh", ".py", ".api", ".map",
    ];
    let name = source.path.rsplit('/').next().unwrap_or_default();
    let listed = kinds.iter().any(|kind| name.ends_with(kind)) || source.path.starts_with(".ci/");
    let needed = listed && !["rustfmt.toml", "clippy.toml"].contains(&name);
    let needed = needed && !source.path.starts_with(".cargo/");
    // The identifier ends its line: tools that look for licences read all of the line.
    let is_licence = |line: &str| {
        let rest = line.split_once(LICENCE).map(|(_, rest)| rest.trim());
        rest.is_some_and(|rest| ["", "*/", "-->"].contains(&rest))
    };
    let has = source.text.lines().take(3).any(is_licence);
    (needed && !has).then(|| source.problem(1, format!("the first lines lack a line `{LICENCE}`")))
}

/// Whether the line has `word` with no letter, digit or `_` beside it.
fn has_word(line: &str, word: &str) -> bool {
    let is_part = |c: char| c.is_alphanumeric() || c == '_';
    line.match_indices(word).any(|(at, _)| {
        !line[..at].ends_with(is_part) && !line[at + word.len()..].starts_with(is_part)
    })
}

/// Whether the line has an absolute path that begins with `path`. A relative path that contains `path`, such as
/// `shared/work/x` for `/work`, does not count.
fn names_path(line: &str, path: &str) -> bool {
    let is_part = |c: char| c.is_alphanumeric() || "_-.~}/)*".contains(c);
    line.match_indices(path)
        .any(|(at, _)| !line[..at].ends_with(is_part))
}

const LICENCE: &str = concat!("SPDX-License", "-Identifier: MIT OR Apache-2.0");
const LEFTOVERS: &[&str] = &[
    concat!("TO", "DO"),
    concat!("FIX", "ME"),
    concat!("X", "XX"),
];
const MACHINE_PATHS: &[&str] = &[
    concat!("/wo", "rk/"),
    concat!("/ho", "me/"),
    concat!("/ro", "ot/"),
];

#[cfg(test)]
mod tests {
    use super::*;

    fn problems(path: &str, body: &str) -> Vec<String> {
        let text = format!("// {LICENCE}\n{body}\n");
        check(&SourceFile::new(path, &text))
            .iter()
            .map(ToString::to_string)
            .collect()
    }

    #[test]
    fn a_file_without_its_licence_line_fails() {
        let found = check(&SourceFile::new("a.rs", "//! A file.\n"));
        assert!(found[0].what.contains("SPDX"), "{}", found[0]);
        assert!(check(&SourceFile::new("notes.md", "# Notes\n")).is_empty());
        assert!(problems("a.rs", "").is_empty());
        let glued = format!("// {LICENCE} A program.\n");
        assert_eq!(check(&SourceFile::new("a.c", &glued)).len(), 1);
        let closed = format!("/* {LICENCE} */\n");
        assert!(check(&SourceFile::new("a.c", &closed)).is_empty());
    }

    #[test]
    fn leftovers_fail_in_any_file() {
        for word in LEFTOVERS {
            let found = problems("a.md", &format!("see\n{word}: later"));
            assert_eq!(found.len(), 1, "{word}");
            assert!(found[0].starts_with("a.md:3: "), "{}", found[0]);
        }
        assert!(problems("a.c", "mktemp(name_XXXXXX); AUTODOCS").is_empty());
    }

    #[test]
    fn paths_of_one_machine_fail() {
        let path = concat!("/ho", "me/someone/mpi");
        assert!(problems("a.md", &format!("look in {path}"))[0].contains("one machine"));
        assert!(problems("a.md", concat!("look in notes/wo", "rk/x")).is_empty());
    }
}
