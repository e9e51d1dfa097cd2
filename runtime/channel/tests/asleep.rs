// SPDX-License-Identifier: MIT OR Apache-2.0
//! Ranks that sleep whenever their channels have nothing for them: gates and writes that are told by a line of memory wake them.
//! Whoever is not woken sleeps for a minute, and the test ends badly.
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
