// SPDX-License-Identifier: MIT OR Apache-2.0
//! The man page and the shell completions in `launcher/share` match the command line. `UPDATE_SHARE=1 cargo test -p
//! rmpi-info --test share` regenerates them.
#![allow(clippy::unwrap_used)]

#[path = "../../tests/common/pages.rs"]
mod pages;

use clap::CommandFactory;
use pages::Pages;
use std::path::Path;

fn pages() -> Pages {
    Pages {
        program: "rmpi-info",
        package: "rmpi-info",
        folder: Path::new(env!("CARGO_MANIFEST_DIR")).join("../share"),
        definition: rmpi_info::Options::command,
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
fn man_page_and_completions_have_every_option() {
    pages().assert_all_have(
        &["net", "peer", "vars", "pvars", "events", "search", "json"],
        &[],
    );
}
