// SPDX-License-Identifier: MIT OR Apache-2.0
//! The man page and the completions of the shells in `mqs/share` are those of the command line as it is now.
//! `UPDATE_SHARE=1 cargo test -p rmpi-queues --test share` writes them anew.
#![allow(clippy::unwrap_used)]

use clap::{Command, CommandFactory};
use clap_complete::{Shell, generate};
use std::path::PathBuf;

const LICENCE: &str = "SPDX-License-Identifier: MIT OR Apache-2.0";

#[test]
fn the_man_page_is_fresh() {
    let mut page = Vec::new();
    clap_mangen::Man::new(definition())
        .render(&mut page)
        .unwrap();
    let page = String::from_utf8(page).unwrap();
    // The examples are a table.
    let page = page
        .replace(".SH EXTRA\n", ".SH EXAMPLES AND EXIT CODE\n.nf\n")
        .replace(".SH VERSION\n", ".fi\n.SH VERSION\n");
    check("rmpi-queues.1", &format!(".\\\" {LICENCE}\n{page}"));
}

#[test]
fn the_completions_are_fresh() {
    for (file, shell) in [
        ("rmpi-queues.bash", Shell::Bash),
        ("rmpi-queues.fish", Shell::Fish),
    ] {
        check(file, &format!("# {LICENCE}\n{}", completion(shell)));
    }
    let text = completion(Shell::Zsh);
    // Its first line tells the shell what it completes.
    let (first, rest) = text.split_once('\n').unwrap();
    assert_eq!(first, "#compdef rmpi-queues");
    check("rmpi-queues.zsh", &format!("{first}\n# {LICENCE}\n{rest}"));
}

#[test]
fn each_of_them_has_the_options() {
    for file in [
        "rmpi-queues.1",
        "rmpi-queues.bash",
        "rmpi-queues.zsh",
        "rmpi-queues.fish",
    ] {
        let text = std::fs::read_to_string(path(file)).unwrap();
        let text = text.replace('\\', "");
        for option in ["all", "json", "graph"] {
            let spelt = match file.ends_with("fish") {
                true => format!("-l {option}"),
                false => format!("--{option}"),
            };
            assert!(text.contains(&spelt), "{file} lacks {spelt}");
        }
    }
}

fn definition() -> Command {
    queues::cli::Options::command()
}

fn completion(shell: Shell) -> String {
    let mut text = Vec::new();
    generate(shell, &mut definition(), "rmpi-queues", &mut text);
    String::from_utf8(text).unwrap()
}

fn path(file: &str) -> PathBuf {
    let share = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../share");
    share.join(file)
}

fn check(file: &str, expected: &str) {
    let lines = expected.lines().map(str::trim_end);
    let expected = lines.collect::<Vec<_>>().join("\n") + "\n";
    let path = path(file);
    if std::env::var_os("UPDATE_SHARE").is_some() {
        std::fs::write(&path, &expected).unwrap();
    }
    let there = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        there == expected,
        "{} is out of date; type: UPDATE_SHARE=1 cargo test -p rmpi-queues --test share",
        path.display()
    );
}
