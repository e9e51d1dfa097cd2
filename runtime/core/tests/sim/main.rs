// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests the whole runtime over a simulated network: jobs of two to eight ranks run random programs of point-to-point
//! and collective calls. Meanwhile the network loses, delays, duplicates and reorders packets, starves senders, and
//! takes ranks off their processors. Everything happens in one thread, ranks are coroutines, and the seed determines
//! every random choice, so the run of a seed can be repeated exactly:
//!
//! ```text
//! RMPI_TEST_SEED=17 cargo test -p runtime --test sim programs     # one seed again
//! RMPI_TEST_SEEDS=100 cargo test -p runtime --test sim            # a hundred times as many seeds
//! ```
//!
//! For each program these properties are checked: every byte arrives once, in the right receive, and no byte outside
//! the buffer changes; messages of one sender do not overtake each other; truncation, probes, cancels and collectives
//! have the required results; the buffer of a complete send may be overwritten immediately; all ranks end; no request
//! or message is left in any rank.
#![allow(
    clippy::unwrap_used,
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    unreachable_pub,
    reason = "test code may panic; its sizes are small"
)]

mod collectives;
mod hops;
mod job;
mod log;
mod memory;
mod plan;
mod random;
mod rank;

use plan::{Plan, Scale};
use random::for_seeds;

const SMALL: Scale = Scale {
    phases: 4,
    messages: 3,
    large_percent: 5,
    collective_percent: 30,
};

#[test]
fn small_message_programs_conform_to_the_standard() {
    for_seeds("programs_of_small", 0, 2000, |seed| {
        job::run(Plan::random(seed, SMALL));
    });
}

#[test]
fn large_message_programs_conform_to_the_standard() {
    let scale = Scale {
        large_percent: 60,
        ..SMALL
    };
    for_seeds("programs_of_large", 1_000_000, 200, |seed| {
        job::run(Plan::random(seed, scale));
    });
}

#[test]
fn consecutive_collectives_conform_to_the_standard() {
    let scale = Scale {
        phases: 20,
        messages: 1,
        large_percent: 5,
        collective_percent: 100,
    };
    for_seeds("collectives", 2_000_000, 200, |seed| {
        job::run(Plan::random(seed, scale));
    });
}

#[test]
fn long_programs_conform_to_the_standard() {
    let scale = Scale {
        phases: 60,
        messages: 6,
        ..SMALL
    };
    for_seeds("long_programs", 3_000_000, 20, |seed| {
        job::run(Plan::random(seed, scale));
    });
}

/// Tests promise E3 of the engine with senders that never wait: above the budget, the receiver stores only messages
/// that were already in flight.
#[test]
fn a_message_flood_stays_within_the_budget_and_does_not_block() {
    for_seeds("a_flood", 5_000_000, 12, |seed| {
        job::run(Plan::flood(seed));
    });
}

#[test]
fn a_seed_replays_exactly() {
    for_seeds("a_seed_replays", 4_000_000, 20, |seed| {
        let run = || job::run(Plan::random(seed, SMALL));
        assert_eq!(run(), run());
    });
}
