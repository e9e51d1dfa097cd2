// SPDX-License-Identifier: MIT OR Apache-2.0
//! Ranks that sleep whenever their channels are idle: gates and writes on gate lines wake them. A missed wake-up lets a
//! rank sleep for a minute, and fails the test.
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
fn neighbours_wake_each_other() {
    world::shm_threads(3, async |rank| {
        rank.sleeps = true;
        channels::neighbours(rank).await;
    });
}

#[test]
fn gates_wake_nobody_in_vain_and_all_who_wait() {
    world::shm_threads(2, async |rank| {
        rank.sleeps = true;
        channels::sends_first(rank).await;
        channels::sizes_differ(rank).await;
    });
}
