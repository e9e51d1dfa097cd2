// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests with ranks that sleep while they wait: a peer that stores to a gate line must wake them. After a missed
//! wake-up a rank sleeps for a minute, which fails the test.
#![allow(
    unsafe_code,
    clippy::unwrap_used,
    clippy::cast_possible_truncation,
    unreachable_pub,
    dead_code,
    reason = "test code may panic; its sizes are small"
)]

mod suite {
    pub mod channels;
    pub mod guest;
}

use suite::channels;
use testbed::world;

#[test]
fn channel_starts_wake_sleeping_neighbours() {
    world::shm_threads(3, async |rank| {
        rank.sleeps = true;
        channels::neighbours(rank).await;
    });
}

#[test]
fn gates_wake_every_sleeping_waiter() {
    world::shm_threads(2, async |rank| {
        rank.sleeps = true;
        channels::sends_first(rank).await;
        channels::sizes_differ(rank).await;
    });
}
