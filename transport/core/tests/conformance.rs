// SPDX-License-Identifier: MIT OR Apache-2.0
//! One suite of behaviours for every provider: a provider is done when it passes. `self`, `shm` (ranks taking turns in
//! one thread, in threads, in processes), `sim` (hundreds of seeds) and `verbs` (over fake devices and over real ones, awake
//! and asleep; the real ones only when asked for).
#![allow(
    unsafe_code,
    clippy::unwrap_used,
    clippy::cast_possible_truncation,
    unreachable_pub,
    reason = "test code may panic; its sizes are small"
)]

mod common;
mod suite {
    pub mod atomics;
    pub mod channels;
    pub mod gaps;
    pub mod one_sided;
    pub mod sends;
}

use common::{hosts, world};
use suite::{atomics, channels, gaps, one_sided, sends};

/// Every behaviour in every world: name, ranks, seeds on the simulated network.
macro_rules! behaviours {
    ($($name:ident: $path:path, $ranks:literal ranks, $seeds:literal seeds;)*) => {
        mod provider_self {
            use super::*;
            $(#[test] fn $name() { world::alone($path); })*
        }
        mod provider_shm_in_turn {
            use super::*;
            $(#[test] fn $name() { world::shm($ranks, $path); })*
        }
        mod provider_shm_in_threads {
            use super::*;
            $(#[test] fn $name() { world::shm_threads($ranks, $path); })*
        }
        mod provider_shm_in_processes {
            use super::*;
            $(#[test] fn $name() { world::shm_processes($ranks, stringify!($name)); })*
        }
        mod provider_sim {
            use super::*;
            $(#[test] fn $name() { world::sim($ranks, $seeds, $path); })*
        }

        mod provider_verbs_faked {
            use super::*;
            $(#[test] fn $name() { world::fake($ranks, $seeds / 2, $path); })*
        }
        mod provider_verbs_faked_asleep {
            use super::*;
            $(#[test] fn $name() { world::fake_asleep($ranks, $seeds / 4, $path); })*
        }

        mod provider_verbs {
            use super::*;
            $(
                #[test]
                #[ignore = "needs RDMA devices: cargo xtask test softroce"]
                fn $name() { hosts::devices(stringify!($name), $ranks, false, $path); }
            )*
        }
        mod provider_verbs_asleep {
            use super::*;
            $(
                #[test]
                #[ignore = "needs RDMA devices: cargo xtask test softroce"]
                fn $name() { hosts::devices(stringify!($name), $ranks, true, $path); }
            )*
        }
        mod provider_verbs_faked_on_rails {
            use super::*;
            $(#[test] fn $name() { world::fake_on_rails($ranks, $seeds / 4, $path); })*
        }
        mod provider_verbs_faked_without_reads {
            use super::*;
            $(#[test] fn $name() { world::fake_without_reads($ranks, ($seeds / 8).max(3), $path); })*
        }

        /// What the processes of `provider_shm_in_processes` run; nothing in the suite's own process.
        #[test]
        fn child_rank() {
            let Some((name, mut rank)) = world::child() else { return };
            match name.as_str() {
                $(stringify!($name) => world::run(&mut rank, $path),)*
                _ => panic!("no behaviour is called {name}"),
            }
        }
    };
}

behaviours! {
    bodies_of_all_sizes_arrive_whole: sends::sizes, 3 ranks, 100 seeds;
    heads_pass_unchanged: sends::heads, 2 ranks, 50 seeds;
    frames_of_one_peer_keep_their_order: sends::order, 3 ranks, 200 seeds;
    all_peers_are_heard_at_once: sends::all_to_all, 6 ranks, 60 seeds;
    a_full_queue_pair_takes_nothing_and_recovers: sends::full_and_recovery, 2 ranks, 200 seeds;
    held_buffers_starve_large_bodies_only: sends::held_buffers, 2 ranks, 100 seeds;
    a_short_target_takes_what_fits: sends::short_target, 2 ranks, 50 seeds;
    reads_of_all_sizes_arrive_whole: one_sided::reads, 2 ranks, 10 seeds;
    writes_of_all_sizes_arrive_whole: one_sided::writes, 2 ranks, 10 seeds;
    an_immediate_comes_after_its_bytes_and_in_order: one_sided::immediates, 2 ranks, 200 seeds;
    keys_that_were_altered_reach_nothing: one_sided::bad_keys, 3 ranks, 100 seeds;
    every_lease_comes_back_once: one_sided::many_at_once, 3 ranks, 100 seeds;
    counters_add_up_and_one_is_elected: atomics::atomics, 3 ranks, 40 seeds;
    reads_in_both_directions_do_not_wait_for_each_other: one_sided::crossing_reads, 4 ranks, 30 seeds;
    channels_to_both_neighbours_carry_every_round: channels::neighbours, 3 ranks, 30 seeds;
    lists_of_channels_are_started_in_turn: channels::lists_in_turn, 3 ranks, 20 seeds;
    the_start_number_k_of_a_class_meets_number_k: channels::in_order_of_starts, 3 ranks, 30 seeds;
    small_messages_of_channels_do_not_wait_for_their_receiver: channels::sends_first, 2 ranks, 30 seeds;
    messages_of_a_channel_may_be_shorter_than_their_receive: channels::shorter, 2 ranks, 20 seeds;
    messages_of_a_channel_that_are_too_long_are_told_at_both_ends: channels::sizes_differ, 2 ranks, 30 seeds;
    messages_that_were_complete_and_too_long_are_told_later: channels::differences_are_told_late, 2 ranks, 30 seeds;
    nobody_waits_for_who_has_left: channels::who_leaves_is_not_waited_for, 2 ranks, 30 seeds;
    channels_between_blocks_of_all_shapes_carry_every_byte: gaps::shapes_meet, 2 ranks, 8 seeds;
    channels_are_declared_used_once_and_freed: channels::used_once, 2 ranks, 20 seeds;
    frames_of_channels_that_make_no_sense_change_nothing: channels::nonsense, 2 ranks, 30 seeds;
    blocks_of_channels_that_are_nowhere_are_not_written: channels::blocks_of_nowhere, 2 ranks, 10 seeds;
    names_of_channels_that_are_wrong_are_told: channels::wrong_use, 2 ranks, 8 seeds;
}
