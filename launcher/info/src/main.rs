// SPDX-License-Identifier: MIT OR Apache-2.0
//! `rmpi-info`: see the crate's documentation.

fn main() -> std::process::ExitCode {
    rmpi_info::run(std::env::args_os())
}
