// SPDX-License-Identifier: MIT OR Apache-2.0
//! `rmpiexec`: see the crate's documentation.

fn main() -> std::process::ExitCode {
    launcher::run(std::env::args_os())
}
