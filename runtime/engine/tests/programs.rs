// SPDX-License-Identifier: MIT OR Apache-2.0
//! Random programs of two to five ranks against a reference model of MPI matching: sends of all modes, receives with
//! and without wildcards, probes, matched probes, cancels, and persistent and freed requests. The wires keep order only
//! between two ranks. At the end of every program nothing may be left.
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
fn random_programs_match_as_the_standard_requires() {
    for_seeds(3000, |seed| Program::random(seed, 60).run());
}

#[test]
fn long_programs_match_as_the_standard_requires() {
    for_seeds(60, |seed| Program::random(seed + 1_000_000, 1500).run());
}

#[test]
fn programs_with_failing_reads_leak_nothing() {
    for_seeds(300, |seed| {
        let mut program = Program::random(seed + 2_000_000, 60);
        program.world.reads = Reads::Fail;
        program.run();
    });
}
