// SPDX-License-Identifier: MIT OR Apache-2.0
//! The man page and the completions of the shells in `launcher/share` are those of the command line as it is now.
//! `UPDATE_SHARE=1 cargo test -p launcher --test share` writes them anew.
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
    check("rmpiexec.1", &format!(".\\\" {LICENCE}\n{page}"));
}

#[test]
fn the_completion_of_bash_is_fresh() {
    check(
        "rmpiexec.bash",
        &format!("# {LICENCE}\n{}", completion(Shell::Bash)),
    );
}

#[test]
fn the_completion_of_zsh_is_fresh() {
    let text = completion(Shell::Zsh);
    // Its first line tells the shell what it completes.
    let (first, rest) = text.split_once('\n').unwrap();
    assert_eq!(first, "#compdef rmpiexec");
    check("rmpiexec.zsh", &format!("{first}\n# {LICENCE}\n{rest}"));
}

#[test]
fn the_completion_of_fish_is_fresh() {
    check(
        "rmpiexec.fish",
        &format!("# {LICENCE}\n{}", completion(Shell::Fish)),
    );
}

#[test]
fn every_option_of_the_help_is_in_each_of_them() {
    let command = definition();
    let options = command.get_arguments().filter_map(clap::Arg::get_long);
    let options: Vec<&str> = options
        .filter(|name| !["help", "version"].contains(name))
        .collect();
    assert!(
        options.len() > 15 && options.contains(&"bind-to"),
        "{options:?}"
    );
    for file in [
        "rmpiexec.1",
        "rmpiexec.bash",
        "rmpiexec.zsh",
        "rmpiexec.fish",
    ] {
        let text = std::fs::read_to_string(path(file))
            .unwrap()
            .replace('\\', "");
        for option in &options {
            let spelt = if file.ends_with("fish") {
                format!("-l {option}")
            } else {
                format!("--{option}")
            };
            assert!(text.contains(&spelt), "{file} lacks {spelt}");
        }
        assert!(
            file.ends_with('1') || text.contains("hwthread"),
            "{file} lacks values"
        );
    }
}

#[test]
fn bash_completes_options_and_their_values() {
    let line = format!(
        "source {}; COMP_WORDS=(rmpiexec --bind-to h); COMP_CWORD=2; _rmpiexec rmpiexec h --bind-to; echo ${{COMPREPLY[@]}}; \
         COMP_WORDS=(rmpiexec --repo); COMP_CWORD=1; _rmpiexec rmpiexec --repo rmpiexec; echo ${{COMPREPLY[@]}} | xargs -n 1 \
         | sort | xargs",
        path("rmpiexec.bash").display()
    );
    let done = std::process::Command::new("bash")
        .args(["-c", &line])
        .output()
        .unwrap();
    let told = String::from_utf8_lossy(&done.stdout).into_owned();
    assert_eq!(
        told,
        "hwthread\n--report --report-bindings\n",
        "{}",
        String::from_utf8_lossy(&done.stderr)
    );
}

fn definition() -> Command {
    launcher::Options::command()
}

fn completion(shell: Shell) -> String {
    let mut text = Vec::new();
    generate(shell, &mut definition(), "rmpiexec", &mut text);
    String::from_utf8(text).unwrap()
}

fn path(file: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("share")
        .join(file)
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
        "{} is out of date; type: UPDATE_SHARE=1 cargo test -p launcher --test share",
        path.display()
    );
}
