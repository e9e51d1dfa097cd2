// SPDX-License-Identifier: MIT OR Apache-2.0
//! `rmpi-queues`: see the crate's documentation.

fn main() -> std::process::ExitCode {
    queues::cli::run(std::env::args_os())
}
