// SPDX-License-Identifier: MIT OR Apache-2.0
//! The promises of channels, over every provider.
#![allow(
    unsafe_code,
    clippy::unwrap_used,
    clippy::cast_possible_truncation,
    unreachable_pub,
    reason = "test code may panic; its sizes are small"
)]

mod suite {
    pub mod channels;
    pub mod gaps;
    pub mod guest;
}

use suite::{channels, gaps};
use testbed::behaviours;

behaviours! {
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
