// SPDX-License-Identifier: MIT OR Apache-2.0
//! A rank that has no file descriptor left. Alone in its process, since the limit holds for all of it.
#![allow(
    unsafe_code,
    clippy::unwrap_used,
    unreachable_pub,
    dead_code,
    reason = "test code may panic; it sets a limit of its own process"
)]

mod common;

use common::memory::{Guarded, attach, open, segment_file_with};
use transport::{Completion, Completions, Config, Fabric, Outcome, Peer, WorkId};

const ARENA_BYTES: u64 = 64 << 20;

#[test]
fn a_rank_without_free_descriptors_reads_from_arenas_all_the_same() {
    let file = segment_file_with(2, 7, ARENA_BYTES);
    let mut owner = open(&file, 7, 0, 2);
    let config = Config {
        me: Peer(1),
        peers: 2,
        node: Some(attach(&file, 7, 1, 2)),
    };
    let none = libc::rlimit {
        rlim_cur: 0,
        rlim_max: libc::RLIM_INFINITY,
    };
    // SAFETY: an all-zero limit is a value of the type.
    let mut before: libc::rlimit = unsafe { std::mem::zeroed() };
    // SAFETY: writes one limit.
    assert_eq!(
        unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut before) },
        0
    );
    let none = libc::rlimit {
        rlim_max: before.rlim_max,
        ..none
    };
    // SAFETY: reads one limit.
    assert_eq!(
        unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const none) },
        0
    );
    let opened = Fabric::open(config);
    // SAFETY: as above.
    assert_eq!(
        unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const before) },
        0
    );
    let mut reader = opened.unwrap();
    let place = owner.allocate(1000).unwrap();
    // SAFETY: a thousand bytes that the fabric gave.
    unsafe { place.write_bytes(7, 1000) };
    let key = owner.export(Peer(1), place.as_ptr().expose_provenance() as u64, 1000);
    let mut target = Guarded::new(1000);
    let lease = target.lease(0, 1000);
    reader.post_read(Peer(0), lease, key, 0, WorkId(1));
    let mut completions = Completions::new();
    reader.poll(&mut completions);
    assert!(matches!(
        completions.take(0),
        Some(Completion::Worked {
            outcome: Outcome::Done,
            ..
        })
    ));
    assert_eq!(target.bytes(), [7; 1000]);
}
