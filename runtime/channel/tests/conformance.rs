// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests the promises of gated channels (crate `channel`), over every provider.
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
    lists_of_channels_are_started_repeatedly: channels::lists_in_turn, 3 ranks, 20 seeds;
    start_number_k_of_a_class_matches_number_k: channels::in_order_of_starts, 3 ranks, 30 seeds;
    small_messages_of_channels_do_not_wait_for_their_receiver: channels::sends_first, 2 ranks, 30 seeds;
    messages_of_a_channel_may_be_shorter_than_their_receive: channels::shorter, 2 ranks, 20 seeds;
    a_message_too_long_fails_at_both_channel_ends: channels::sizes_differ, 2 ranks, 30 seeds;
    a_completed_send_too_long_is_reported_by_the_next: channels::late_size_error, 2 ranks, 30 seeds;
    operations_with_a_rank_that_left_complete: channels::peer_leaves, 2 ranks, 30 seeds;
    channels_between_blocks_of_all_shapes_carry_every_byte: gaps::all_shapes, 2 ranks, 8 seeds;
    channels_are_declared_used_once_and_freed: channels::used_once, 2 ranks, 20 seeds;
    malformed_channel_frames_are_ignored: channels::malformed_frames, 2 ranks, 30 seeds;
    blocks_outside_registered_memory_are_not_written: channels::invalid_blocks, 2 ranks, 10 seeds;
    invalid_channel_ids_and_uses_are_refused: channels::wrong_use, 2 ranks, 8 seeds;
}
