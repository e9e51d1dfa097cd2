// SPDX-License-Identifier: MIT OR Apache-2.0
//! The man page and the shell completions in `mqs/share` match the command line.
//! `UPDATE_SHARE=1 cargo test -p rmpi-queues --test share` regenerates them.
#![allow(clippy::unwrap_used)]

#[path = "../../../launcher/tests/common/pages.rs"]
mod pages;

use clap::CommandFactory;
use pages::Pages;
use std::path::Path;

fn pages() -> Pages {
    Pages {
        program: "rmpi-queues",
        package: "rmpi-queues",
        folder: Path::new(env!("CARGO_MANIFEST_DIR")).join("../share"),
        definition: queues::cli::Options::command,
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
fn man_page_and_completions_have_the_options() {
    pages().assert_all_have(&["all", "json", "graph"], &[]);
}
