// SPDX-License-Identifier: MIT OR Apache-2.0
//! Checks that the members of the workspace are listed from the lowest layer up, and that none depends on a later one.

use super::{Problem, SourceFile};
use std::collections::BTreeMap;

/// Dependencies on a higher layer, and members without the shared lints.
pub(crate) fn check(sources: &[SourceFile]) -> Vec<Problem> {
    let Some(workspace) = sources.iter().find(|source| source.path == "Cargo.toml") else {
        return Vec::new();
    };
    let members = members(&workspace.text);
    let crates = local_crates(&workspace.text);
    let mut problems = Vec::new();
    for (level, member) in members.iter().enumerate() {
        let path = format!("{member}/Cargo.toml");
        let Some(manifest) = sources.iter().find(|source| source.path == path) else {
            problems.push(workspace.problem(0, format!("the member {member} has no {path}")));
            continue;
        };
        if !in_section(&manifest.text, "lints").any(|(_, entry)| squeeze(entry) == "workspace=true")
        {
            problems.push(manifest.problem(
                0,
                "the shared lints are not used (`[lints] workspace = true`)",
            ));
        }
        for (line, name) in dependencies(&manifest.text) {
            let target = crates
                .get(&name)
                .and_then(|folder| members.iter().position(|m| m == folder));
            if target.is_some_and(|target| target > level) {
                let what = format!("{member} depends on `{name}`, a later member (a higher layer)");
                problems.push(manifest.problem(line, what));
            }
        }
    }
    problems
}

fn members(text: &str) -> Vec<String> {
    let list = text
        .split_once("members = [")
        .and_then(|(_, rest)| rest.split_once(']'));
    let list = list.map_or("", |(list, _)| list);
    let lines = list
        .lines()
        .map(|line| line.split('#').next().unwrap_or_default());
    lines
        .flat_map(|line| line.split(','))
        .map(|name| name.trim().trim_matches('"').to_string())
        .filter(|name| !name.is_empty())
        .collect()
}

/// The folder of each workspace crate, by its name.
fn local_crates(text: &str) -> BTreeMap<String, String> {
    let entries = in_section(text, "workspace.dependencies");
    entries
        .filter_map(|(_, entry)| {
            let (name, value) = entry.split_once('=')?;
            let path = value.split_once("path = \"")?.1.split_once('"')?.0;
            Some((name.trim().to_string(), path.to_string()))
        })
        .collect()
}

/// The line and the name of each dependency of any kind.
fn dependencies(text: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    let mut inside = false;
    for (index, line) in text.lines().enumerate() {
        let line = line.trim();
        if let Some(section) = line.strip_prefix('[') {
            inside = section.trim_end_matches(']').ends_with("dependencies");
        } else if inside && line.contains('=') && !line.starts_with('#') {
            let name = line.split(['=', '.', ' ']).next().unwrap_or_default();
            found.push((index + 1, name.trim_matches('"').to_string()));
        }
    }
    found
}

/// The entries of one section, with their line numbers.
fn in_section<'a>(text: &'a str, name: &'a str) -> impl Iterator<Item = (usize, &'a str)> {
    let mut inside = false;
    text.lines().enumerate().filter_map(move |(index, line)| {
        let line = line.trim();
        if line.starts_with('[') {
            inside = line == format!("[{name}]");
            return None;
        }
        (inside && !line.is_empty() && !line.starts_with('#')).then_some((index + 1, line))
    })
}

fn squeeze(text: &str) -> String {
    text.chars().filter(|c| !c.is_whitespace()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROOT: &str = "[workspace]\nmembers = [\n \"low\", # first\n \"high\",\n]\n\
                        [workspace.dependencies]\nlow = { path = \"low\" }\nhigh = { path = \"high\" }\n";
    const LINTS: &str = "[lints]\nworkspace = true\n";

    fn problems(low: &str, high: &str) -> Vec<String> {
        let files = [
            ("Cargo.toml", ROOT),
            ("low/Cargo.toml", low),
            ("high/Cargo.toml", high),
        ];
        check(&SourceFile::all(&files))
            .iter()
            .map(ToString::to_string)
            .collect()
    }

    #[test]
    fn members_are_read_in_order() {
        assert_eq!(members(ROOT), ["low", "high"]);
    }

    #[test]
    fn a_dependency_downwards_passes() {
        let high = format!("{LINTS}[dependencies]\nlow.workspace = true\nlibc = \"0.2\"\n");
        assert_eq!(problems(LINTS, &high), [""; 0]);
    }

    #[test]
    fn a_dependency_upwards_fails() {
        for section in [
            "dependencies",
            "dev-dependencies",
            "target.'cfg(unix)'.dependencies",
        ] {
            let low = format!("{LINTS}[{section}]\nhigh = {{ workspace = true }}\n");
            let found = problems(&low, LINTS);
            assert_eq!(found.len(), 1, "{section}");
            assert!(found[0].contains("low depends on `high`"), "{}", found[0]);
        }
    }

    #[test]
    fn a_member_without_the_shared_lints_fails() {
        assert!(problems("[package]\n", LINTS)[0].contains("shared lints"));
    }
}
