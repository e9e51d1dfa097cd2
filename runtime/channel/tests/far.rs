// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests that channel starts over a network copy nothing and register no memory.
#![allow(
    unsafe_code,
    clippy::unwrap_used,
    clippy::cast_possible_truncation,
    unreachable_pub,
    reason = "test code may panic; its sizes are small"
)]

mod suite {
    pub mod guest;
}

use std::ptr::NonNull;

use crate::suite::guest::channels_of;
use channel::{
    ChannelCounters, ChannelDirection, ChannelId, ChannelKey, ChannelMemory, UserBlocks,
};
use testbed::memory::Guarded;
use testbed::{TestRank, pattern, world};
use transport::{FakeConfig, FakeNet, NetLimits, Peer};

/// Contiguous memory, allocated by the process (`own`) or by the fabric.
struct Stretch {
    place: NonNull<u8>,
    bytes: usize,
    own: Option<Guarded>,
}

impl Stretch {
    fn new(rank: &mut TestRank, bytes: usize, is_own: bool) -> Self {
        let mut own = is_own.then(|| Guarded::new(bytes));
        let place = match &mut own {
            Some(own) => NonNull::from(own.bytes_mut()).cast(),
            None => rank.fabric.allocate(bytes).unwrap(),
        };
        Self { place, bytes, own }
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: the memory has this length and is valid until `end`; the tests access it only while no channel is
        // started.
        unsafe { std::slice::from_raw_parts_mut(self.place.as_ptr(), self.bytes) }
    }

    fn declare(&self, rank: &mut TestRank, direction: ChannelDirection) -> ChannelId {
        // SAFETY: as above.
        let blocks = unsafe { UserBlocks::new(self.place, self.bytes, 1, 0) };
        let way = ChannelKey {
            direction,
            peer: Peer(1 - rank.me),
            context: 3,
            class: 0,
        };
        let memory = ChannelMemory::new([blocks]).unwrap();
        let channels = channels_of(&mut rank.guest);
        channels.declare(&mut rank.fabric, way, memory).unwrap()
    }

    fn end(self, rank: &mut TestRank) {
        if self.own.is_none() {
            assert!(rank.fabric.free(self.place));
        }
    }
}

/// Sends one message from each rank to the other, and checks the message that this rank receives.
async fn exchange(
    rank: &mut TestRank,
    ids: &[ChannelId],
    number: u64,
    out: &mut Stretch,
    into: &mut Stretch,
) {
    let bytes = out.bytes;
    out.bytes_mut()
        .copy_from_slice(&pattern(rank.me, number, bytes));
    into.bytes_mut().fill(0);
    let channels = channels_of(&mut rank.guest);
    channels.start(&mut rank.fabric, ids).unwrap();
    while !channels_of(&mut rank.guest).are_done(ids).unwrap() {
        rank.turn().await;
    }
    channels_of(&mut rank.guest).collect(ids).unwrap();
    assert!(into.bytes_mut() == pattern(1 - rank.me, number, bytes));
}

/// Counters of the channels, and the sums of three counters over the ports of this rank: registered regions, bytes of
/// writes, bytes of messages.
fn counts(rank: &mut TestRank, net: &FakeNet, rails: u32) -> (ChannelCounters, [u64; 3]) {
    let stats = (0..rails).map(|rail| net.stats(rank.me * rails + rail));
    let all = stats.fold([0; 3], |[a, b, c], port| {
        [
            a + port.registered,
            b + port.write_bytes,
            c + port.message_bytes,
        ]
    });
    (channels_of(&mut rank.guest).counters(), all)
}

#[test]
fn after_declare_data_is_written_once_without_registration() {
    const ROUNDS: u64 = 20;
    for (rails, bytes, is_own) in [
        (1, 65_536, false),
        (1, 65_536, true),
        (2, 1 << 20, false),
        (2, 1 << 20, true),
    ] {
        let net = FakeNet::new(FakeConfig::calm(1));
        let limits = NetLimits::default();
        world::fake_ranks(&net, (2, rails), limits, false, async |rank| {
            let mut out = Stretch::new(rank, bytes, is_own);
            let mut into = Stretch::new(rank, bytes, is_own);
            let ids = [
                into.declare(rank, ChannelDirection::Receive),
                out.declare(rank, ChannelDirection::Send),
            ];
            // The first starts create queue pairs.
            for number in 0..4 {
                exchange(rank, &ids, number, &mut out, &mut into).await;
            }
            rank.barrier().await;
            let (before, [registered, written, sent]) = counts(rank, &net, rails);
            for number in 0..ROUNDS {
                exchange(rank, &ids, number, &mut out, &mut into).await;
            }
            let (after, now) = counts(rank, &net, rails);
            let all = ROUNDS * bytes as u64;
            let what = format!("{bytes} bytes over {rails} rails, own {is_own}");
            assert_eq!((now[0], now[1]), (registered, written + all), "{what}");
            // The only messages are gates and completions.
            assert!(now[2] - sent < 300 * ROUNDS, "{what}: {}", now[2] - sent);
            let expected = ChannelCounters {
                direct_bytes: before.direct_bytes + all,
                writes: before.writes + ROUNDS,
                gates: before.gates + ROUNDS,
                sends: before.sends + ROUNDS,
                receives: before.receives + ROUNDS,
                late_gates: after.late_gates,
                ..before
            };
            assert_eq!(after, expected, "{what}");
            rank.barrier().await;
            for id in ids {
                let channels = channels_of(&mut rank.guest);
                channels.free(&mut rank.fabric, id).unwrap();
            }
            out.end(rank);
            into.end(rank);
        });
    }
}
