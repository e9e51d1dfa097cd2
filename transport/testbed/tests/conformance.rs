// SPDX-License-Identifier: MIT OR Apache-2.0
//! Runs one suite of behaviours for every provider: a provider is complete when it passes the suite.
#![allow(
    unsafe_code,
    clippy::unwrap_used,
    clippy::cast_possible_truncation,
    unreachable_pub,
    reason = "test code may panic; its sizes are small"
)]

mod suite {
    pub mod announced;
    pub mod atomics;
    pub mod one_sided;
    pub mod sends;
}

use suite::{announced, atomics, one_sided, sends};
use testbed::behaviours;

behaviours! {
    bodies_of_all_sizes_arrive_whole: sends::sizes, 3 ranks, 100 seeds;
    capabilities_hold_for_peers_and_self: sends::caps, 2 ranks, 50 seeds;
    heads_pass_unchanged: sends::heads, 2 ranks, 50 seeds;
    frames_of_one_peer_keep_their_order: sends::order, 3 ranks, 200 seeds;
    bursts_of_deferrable_frames_keep_their_order: sends::bursts, 3 ranks, 60 seeds;
    all_to_all_frames_arrive: sends::all_to_all, 6 ranks, 60 seeds;
    a_full_queue_pair_takes_nothing_and_recovers: sends::full_and_recovery, 2 ranks, 200 seeds;
    held_buffers_starve_large_bodies_only: sends::held_buffers, 2 ranks, 100 seeds;
    a_short_target_takes_what_fits: sends::short_target, 2 ranks, 50 seeds;
    reads_of_all_sizes_arrive_whole: one_sided::reads, 2 ranks, 10 seeds;
    writes_of_all_sizes_arrive_whole: one_sided::writes, 2 ranks, 10 seeds;
    an_immediate_comes_after_its_bytes_and_in_order: one_sided::immediates, 2 ranks, 200 seeds;
    altered_keys_are_refused: one_sided::bad_keys, 3 ranks, 100 seeds;
    every_lease_comes_back_once: one_sided::many_at_once, 3 ranks, 100 seeds;
    announced_data_is_read_in_any_order: announced::announced, 2 ranks, 60 seeds;
    counters_add_up_and_one_is_elected: atomics::atomics, 3 ranks, 40 seeds;
    reads_in_both_directions_do_not_wait_for_each_other: one_sided::crossing_reads, 4 ranks, 30 seeds;
}
