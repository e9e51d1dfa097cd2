// SPDX-License-Identifier: MIT OR Apache-2.0
//! Measures MPI libraries and the machine under them.
//!
//! The benchmark programs themselves are C programs beside this crate (`bench/*.c`), ordinary MPI programs; this crate
//! starts them ([`programs`]), measures what the machine allows without MPI ([`limits`]) and compares libraries in
//! alternating rounds of one run ([`compare`], and [`grid`] for every size of every operation). The rounds alternate
//! because figures from different hours or machines cannot be compared.
//!
//! **Knows** the C programs' JSON lines, the command lines of other MPIs' launchers, and the system's processes, shared
//! memory and CPUs.
//!
//! **Never** links an MPI library: it uses only the installed commands.
//!
//! Threads: MPI programs run in child processes, and the limits are measured by the main thread together with child
//! processes. Other threads only wait for input or its end, for a child's end and for signals ([`interrupt`]). A
//! machine runs one measurement at a time: [`lock`] makes a second one wait.

pub mod compare;
pub mod curves;
pub mod files;
pub mod grid;
pub mod hosts;
pub mod icount;
pub mod interrupt;
pub mod limits;
pub mod lock;
pub mod machine;
pub mod peers;
pub mod programs;
pub mod progress;
pub mod run;
pub mod stats;
pub mod table;
pub mod unit;

mod error;

pub use error::Error;
