// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests that channels allocate nothing after their declaration: the allocator of this program counts allocations.
#![allow(
    unsafe_code,
    clippy::unwrap_used,
    clippy::cast_possible_truncation,
    unreachable_pub,
    reason = "test code may panic; its sizes are small"
)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

use channel::{ChannelDirection, ChannelId, ChannelKey, ChannelMemory, Channels, UserBlocks};
use testbed::memory::{Guarded, open, segment_file_with};
use transport::{Completion, Completions, Fabric, Peer};

struct Counting;

static COUNT: AtomicU64 = AtomicU64::new(0);

// SAFETY: forwards to the system allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        COUNT.fetch_add(1, Ordering::Relaxed);
        // SAFETY: forwards the caller's promise.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, place: *mut u8, layout: Layout) {
        // SAFETY: forwards the caller's promise.
        unsafe { System.dealloc(place, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// A rank with its channels and their memory.
struct Rank {
    channels: Channels,
    fabric: Fabric,
    completions: Completions,
    ids: Vec<ChannelId>,
    _buffers: Vec<Guarded>,
}

impl Rank {
    fn new(fabric: Fabric) -> Self {
        Self {
            channels: Channels::new(),
            fabric,
            completions: Completions::new(),
            ids: Vec::new(),
            _buffers: Vec::new(),
        }
    }

    fn declare(&mut self, direction: ChannelDirection, peer: u32, bytes: usize, striped: bool) {
        let mut buffer = Guarded::new(2 * bytes);
        let own = NonNull::from(buffer.bytes_mut()).cast();
        // Memory for a message of odd length is allocated by the fabric, so peers can map it.
        let given = (bytes % 2 == 1).then(|| self.fabric.allocate(2 * bytes).unwrap());
        let base = given.unwrap_or(own);
        let (block, count) = if striped { (bytes / 3, 3) } else { (bytes, 1) };
        // SAFETY: within memory of this length, which stays valid until the test ends.
        let blocks = unsafe { UserBlocks::new(base, block, count, 2 * block.cast_signed()) };
        let way = ChannelKey {
            direction,
            peer: Peer(peer),
            context: 4,
            class: 0,
        };
        let memory = ChannelMemory::new([blocks]).unwrap();
        let id = self.channels.declare(&mut self.fabric, way, memory);
        self.ids.push(id.unwrap());
        self._buffers.push(buffer);
    }

    fn turn(&mut self) {
        self.fabric.poll(&mut self.completions);
        for at in 0..self.completions.len() {
            match self.completions.take(at).unwrap() {
                Completion::Arrived(arrived) => {
                    self.channels.arrive(&mut self.fabric, &arrived);
                    self.fabric.release(&arrived);
                }
                Completion::Written { peer, immediate } => self.channels.written(peer, immediate),
                Completion::Worked { work, outcome, .. } => {
                    self.channels.worked(&mut self.fabric, work, outcome);
                }
                Completion::Lost { .. } => panic!("no peer is lost"),
            }
        }
        self.channels.progress(&mut self.fabric);
    }
}

#[test]
fn channels_allocate_nothing_after_declare() {
    let file = segment_file_with(2, 5, 128 << 20);
    let mut ranks: Vec<_> = (0..2).map(|me| Rank::new(open(&file, 5, me, 2))).collect();
    for (me, rank) in (0..).zip(&mut ranks) {
        for (bytes, striped) in [
            (64, false),
            (4092, true),
            (12_000, false),
            (20_001, false),
            (50_004, true),
            (60_003, true),
            (399_999, true),
            (450_000, true),
        ] {
            rank.declare(ChannelDirection::Receive, 1 - me, bytes, striped);
            rank.declare(ChannelDirection::Send, 1 - me, bytes, !striped);
        }
    }
    let declared: Vec<_> = ranks
        .iter_mut()
        .map(|rank| rank.channels.counters())
        .collect();
    // Allocations are counted from here on: those of the first starts are included.
    let before = COUNT.load(Ordering::Relaxed);
    for round in 0..60 {
        // The ranks take turns in starting first.
        for me in [round % 2, 1 - round % 2] {
            let Rank {
                channels,
                fabric,
                ids,
                ..
            } = &mut ranks[me];
            channels.start(fabric, ids).unwrap();
            ranks[me].turn();
        }
        while ranks
            .iter_mut()
            .any(|rank| rank.channels.are_done(&rank.ids) != Ok(true))
        {
            ranks.iter_mut().for_each(Rank::turn);
        }
        for rank in &mut ranks {
            rank.channels.collect(&rank.ids).unwrap();
        }
    }
    let after = COUNT.load(Ordering::Relaxed);
    assert_eq!(after - before, 0, "allocations in 60 rounds of 14 messages");
    for (rank, declared) in ranks.iter_mut().zip(declared) {
        let counters = rank.channels.counters();
        assert_eq!(counters.allocations, declared.allocations);
        assert_eq!(counters.refused, 0);
        assert!(counters.writes > 0 && counters.eager_bytes > 0);
    }
}
