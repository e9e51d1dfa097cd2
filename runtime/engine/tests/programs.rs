// SPDX-License-Identifier: MIT OR Apache-2.0
//! Random programs of two to five ranks against a reference model of MPI matching: sends of all modes, receives with
//! and without wildcards, probes, matched probes, cancels, persistent requests and freed ones, over wires that keep
//! order between two ranks only. Every program ends with nothing left.
#![allow(
    clippy::unwrap_used,
    clippy::cast_possible_truncation,
    unreachable_pub,
    reason = "test code may panic; its sizes are small"
)]

mod common;
mod model;

use common::{Reads, for_seeds};
use model::Program;

#[test]
fn random_programs_match_as_the_standard_says() {
    for_seeds(3000, |seed| Program::random(seed, 60).run());
}

#[test]
fn long_programs_match_as_the_standard_says() {
    for_seeds(60, |seed| Program::random(seed + 1_000_000, 1500).run());
}

#[test]
fn programs_whose_reads_fail_leave_nothing_behind() {
    for_seeds(300, |seed| {
        let mut program = Program::random(seed + 2_000_000, 60);
        program.world.reads = Reads::Fail;
        program.run();
    });
}
