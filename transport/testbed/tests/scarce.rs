// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests a rank without any free file descriptor. This test is the only one in its process, since the limit is per
//! process.
#![allow(
    unsafe_code,
    clippy::unwrap_used,
    unreachable_pub,
    dead_code,
    reason = "test code may panic; it sets a limit of its own process"
)]

use testbed::memory::{Guarded, attach, open, segment_file_with};
use transport::{Completion, Completions, Config, Fabric, Peer, WorkId, WorkOutcome};

const ARENA_BYTES: u64 = 64 << 20;

#[test]
fn arena_reads_work_without_free_descriptors() {
    let file = segment_file_with(2, 7, ARENA_BYTES);
    let mut owner = open(&file, 7, 0, 2);
    let config = Config {
        me: Peer(1),
        peers: 2,
        node: Some(attach(&file, 7, 1, 2)),
        ..Config::alone()
    };
    let before = limit();
    set_limit(libc::rlimit {
        rlim_cur: 0,
        ..before
    });
    let opened = Fabric::open(config);
    set_limit(before);
    let mut reader = opened.unwrap();
    let place = owner.allocate(1000).unwrap();
    // SAFETY: the fabric has allocated a thousand bytes there.
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
            outcome: WorkOutcome::Done,
            ..
        })
    ));
    assert_eq!(target.bytes(), [7; 1000]);
}

/// The limit of file descriptors of this process.
fn limit() -> libc::rlimit {
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: writes one limit, to a valid place.
    let done = unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) };
    assert_eq!(done, 0);
    limit
}

fn set_limit(limit: libc::rlimit) {
    // SAFETY: reads one limit, from a valid place.
    let done = unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit) };
    assert_eq!(done, 0);
}
