// SPDX-License-Identifier: MIT OR Apache-2.0
//! The man page and the shell completions in `launcher/share` match the command line. `UPDATE_SHARE=1 cargo test -p
//! launcher --test share` regenerates them.
#![allow(clippy::unwrap_used)]

#[path = "common/pages.rs"]
mod pages;

use clap::CommandFactory;
use pages::Pages;
use std::path::Path;

fn pages() -> Pages {
    Pages {
        program: "rmpiexec",
        package: "launcher",
        folder: Path::new(env!("CARGO_MANIFEST_DIR")).join("share"),
        definition: launcher::Options::command,
    }
}

#[test]
fn the_man_page_is_fresh() {
    pages().assert_the_man_page_is_fresh();
}

#[test]
fn the_completions_are_fresh() {
    pages().assert_the_completions_are_fresh();
}

#[test]
fn man_page_and_completions_have_every_help_option() {
    let command = launcher::Options::command();
    let options = command.get_arguments().filter_map(clap::Arg::get_long);
    let options: Vec<&str> = options
        .filter(|name| !["help", "version"].contains(name))
        .collect();
    assert!(
        options.len() > 15 && options.contains(&"bind-to"),
        "{options:?}"
    );
    pages().assert_all_have(&options, &["hwthread"]);
}

#[test]
fn bash_completes_options_and_their_values() {
    let line = format!(
        "source {}; COMP_WORDS=(rmpiexec --bind-to h); COMP_CWORD=2; _rmpiexec rmpiexec h --bind-to; echo ${{COMPREPLY[@]}}; \
         COMP_WORDS=(rmpiexec --repo); COMP_CWORD=1; _rmpiexec rmpiexec --repo rmpiexec; echo ${{COMPREPLY[@]}} | xargs -n 1 \
         | sort | xargs",
        pages().path("bash").display()
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
