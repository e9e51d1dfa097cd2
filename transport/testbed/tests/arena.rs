// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of memory that ranks allocate from their arenas, which all ranks of the node map: other ranks copy to and from
//! this memory without the kernel.
#![allow(
    unsafe_code,
    clippy::unwrap_used,
    clippy::cast_possible_truncation,
    unreachable_pub,
    dead_code,
    reason = "test code may panic; it fills memory that a fabric gave"
)]

use std::os::fd::OwnedFd;
use std::ptr::NonNull;

use testbed::memory::{Guarded, SegmentMapping, open, segment_file, segment_file_with};
use testbed::pattern;
use transport::{Completion, Completions, Fabric, Peer, RemoteKey, WorkId, WorkOutcome};

const ARENA_BYTES: u64 = 256 << 20;
const WINDOW_BYTES: usize = 64 << 20;

/// Two ranks that cannot access each other's process, because the blocks with their process ids are cleared.
fn isolated_ranks() -> (OwnedFd, Fabric, Fabric) {
    let file = segment_file_with(2, 7, ARENA_BYTES);
    let (owner, reader) = (open(&file, 7, 0, 2), open(&file, 7, 1, 2));
    let segment = SegmentMapping::of(&file);
    let region = (ring::layout::boards_offset(2) - 4096) / 2;
    for rank in 0..2 {
        segment.write(4096 + rank * region, &[0; 4096]);
    }
    (file, owner, reader)
}

/// The address `offset` bytes behind `place`. The tests stay within the allocation.
fn at(place: NonNull<u8>, offset: usize) -> NonNull<u8> {
    // SAFETY: the tests stay within the allocation.
    unsafe { place.add(offset) }
}

fn fill(place: NonNull<u8>, offset: usize, bytes: &[u8]) {
    let (to, from) = (at(place, offset), NonNull::from(bytes).cast());
    // SAFETY: two ranges of that length, one of which belongs to the fabric.
    unsafe { to.copy_from_nonoverlapping(from, bytes.len()) };
}

fn content(place: NonNull<u8>, offset: usize, bytes: usize) -> Vec<u8> {
    let mut copy = vec![0; bytes];
    let (from, to) = (at(place, offset), NonNull::from(&mut copy[..]).cast());
    // SAFETY: as in `fill`.
    unsafe { from.copy_to_nonoverlapping(to, bytes) };
    copy
}

fn end_of(fabric: &mut Fabric, other: &mut Fabric) -> WorkOutcome {
    let mut completions = Completions::new();
    for _ in 0..1_000_000 {
        fabric.poll(&mut completions);
        for at in 0..completions.len() {
            if let Some(Completion::Worked { outcome, .. }) = completions.take(at) {
                return outcome;
            }
        }
        other.poll(&mut completions);
    }
    panic!("the work never ends");
}

fn read(
    reader: &mut Fabric,
    owner: &mut Fabric,
    target: &mut Guarded,
    key: RemoteKey,
    offset: u64,
) -> WorkOutcome {
    let lease = target.lease(0, target.bytes().len());
    reader.post_read(Peer(0), lease, key, offset, WorkId(1));
    end_of(reader, owner)
}

#[test]
fn arena_is_accessible_without_access_to_the_process() {
    let (_file, mut owner, mut reader) = isolated_ranks();
    let bytes = 2 * WINDOW_BYTES + 100_000;
    let place = owner.allocate(bytes).unwrap();
    let address = place.as_ptr().expose_provenance() as u64;
    let key = owner.export(Peer(1), address, bytes as u64);
    for (number, offset, length) in [
        (1, 0, 1),
        (2, 4097, 70_001),
        (3, WINDOW_BYTES - 5, 10),
        (4, 2 * WINDOW_BYTES - 300_000, 399_999),
    ] {
        let data = pattern(0, number, length);
        fill(place, offset, &data);
        let mut target = Guarded::new(length);
        let outcome = read(&mut reader, &mut owner, &mut target, key, offset as u64);
        assert_eq!(outcome, WorkOutcome::Done);
        assert!(target.bytes() == data, "{offset}");

        let data = pattern(1, number, length);
        let mut source = Guarded::of(&data);
        let lease = source.lease(0, length);
        let posted = reader.post_write(Peer(0), lease, key, offset as u64, WorkId(2), None);
        assert!(posted.is_ok());
        assert_eq!(end_of(&mut reader, &mut owner), WorkOutcome::Done);
        assert!(content(place, offset, length) == data, "{offset}");
    }
    let mut private = Guarded::of(&[1; 100]);
    let key = private.export(&mut owner, 1);
    let mut target = Guarded::new(100);
    let outcome = read(&mut reader, &mut owner, &mut target, key, 0);
    assert_eq!(outcome, WorkOutcome::Unreachable, "else nothing was proved");
}

#[test]
fn arena_data_is_never_streamed() {
    let (_file, mut owner, _reader) = isolated_ranks();
    owner.set_sleepless(true);
    owner.set_attentive(true);
    let place = owner.allocate(1 << 20).unwrap();
    let key = owner.export(Peer(1), place.as_ptr().expose_provenance() as u64, 1 << 20);
    let mut private = Guarded::of(&[1; 100]);
    let elsewhere = private.export(&mut owner, 1);
    let mut measures = 0;
    for _ in 0..300 {
        assert!(!owner.had_better_stream(Peer(1), key));
        measures += u32::from(owner.had_better_stream(Peer(1), elsewhere));
    }
    assert!(measures > 0, "else nothing was proved");
}

#[test]
fn out_of_bounds_arena_keys_are_refused() {
    let (_file, mut owner, mut reader) = isolated_ranks();
    let place = owner.allocate(1 << 20).unwrap();
    let good = owner.export(Peer(1), place.as_ptr().expose_provenance() as u64, 1 << 20);
    let mark = 1 << 63;
    let mut target = Guarded::new(1000);
    for (address, bytes, offset) in [
        (mark + ARENA_BYTES - 999, 1000, 0),
        (mark + ARENA_BYTES, 1000, 0),
        (mark + (1 << 62), 1000, 0),
        (u64::MAX, 1000, 0),
        (mark, u64::MAX, 0),
        (mark, ARENA_BYTES + 1, 0),
        (good.address, good.bytes, good.bytes - 999),
        (good.address, good.bytes, u64::MAX),
    ] {
        let key = RemoteKey {
            address,
            bytes,
            check: good.check,
        };
        let outcome = read(&mut reader, &mut owner, &mut target, key, offset);
        assert_eq!(
            outcome,
            WorkOutcome::BadKey,
            "{address:#x} {bytes} {offset}"
        );
    }
    assert_eq!(reader.stats().refused, 8);
    assert_eq!(
        read(&mut reader, &mut owner, &mut target, good, 0),
        WorkOutcome::Done
    );
}

#[test]
fn freed_arena_memory_is_reused_as_zeros() {
    let (_file, mut owner, _reader) = isolated_ranks();
    let place = owner.allocate(10_000).unwrap();
    let other = owner.allocate(10_000).unwrap();
    fill(place, 0, &[7; 10_000]);
    fill(other, 0, &[8; 10_000]);
    assert!(owner.free(place));
    assert!(!owner.free(place), "twice");
    assert!(!owner.free(NonNull::dangling()), "not from here");
    assert_eq!(owner.allocate(10_000), Some(place));
    assert_eq!(content(place, 0, 10_000), [0; 10_000]);
    assert_eq!(content(other, 0, 10_000), [8; 10_000]);
}

#[test]
fn exhausted_or_missing_arena_allocates_nothing() {
    let (_file, mut owner, _reader) = isolated_ranks();
    assert!(owner.allocate(ARENA_BYTES as usize + 1).is_none());
    assert!(owner.allocate(usize::MAX).is_none());
    assert!(owner.allocate(ARENA_BYTES as usize).is_some());
    assert!(owner.allocate(1).is_none());
    let file = segment_file(2, 8);
    assert!(open(&file, 8, 0, 2).allocate(1).is_none());
}

#[test]
fn large_arena_read_is_shared_with_a_polling_owner() {
    let file = segment_file_with(2, 9, ARENA_BYTES);
    let (mut owner, mut reader) = (open(&file, 9, 0, 2), open(&file, 9, 1, 2));
    owner.set_attentive(true);
    reader.set_attentive(true);
    let data = pattern(0, 1, 4 << 20);
    let place = owner.allocate(data.len()).unwrap();
    fill(place, 0, &data);
    let key = owner.export(
        Peer(1),
        place.as_ptr().expose_provenance() as u64,
        data.len() as u64,
    );
    let mut target = Guarded::new(data.len());
    let outcome = read(&mut reader, &mut owner, &mut target, key, 0);
    assert_eq!(outcome, WorkOutcome::Done);
    assert!(target.bytes() == data);
    let stats = reader.stats();
    assert_eq!(stats.read_bytes + stats.helped_bytes, 4 << 20);
    target.assert_guards();
}

/// Offset of a rank's offers in the segment.
fn offers_of(rank: usize, ranks: u32) -> usize {
    let region = (ring::layout::boards_offset(ranks) - 4096) / ranks as usize;
    4096 + rank * region + 0x2000
}

#[test]
fn overwritten_offer_does_not_stop_an_arena_read() {
    let (file, mut owner, mut reader) = isolated_ranks();
    owner.set_attentive(true);
    reader.set_attentive(true);
    let data = pattern(0, 1, 4 << 20);
    let place = owner.allocate(data.len()).unwrap();
    fill(place, 0, &data);
    let address = place.as_ptr().expose_provenance() as u64;
    let key = owner.export(Peer(1), address, data.len() as u64);
    let mut target = Guarded::new(data.len());
    let lease = target.lease(0, data.len());
    reader.post_read(Peer(0), lease, key, 0, WorkId(1));
    SegmentMapping::of(&file).write(offers_of(1, 2), &[0xff; 4096]);
    assert_eq!(end_of(&mut reader, &mut owner), WorkOutcome::Done);
    assert!(target.bytes() == data);
}
