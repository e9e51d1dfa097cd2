// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests that reads and writes complete when their peer is lost, however many of their parts were posted by then.

use transport::{FakeConfig, NetLimits, Peer, WorkOutcome};

use super::job::{AT_ONCE, Job, MILLISECOND, SECOND};
use testbed::memory::Guarded;
use testbed::pattern;

const PART: usize = 4096;
/// More bytes than one queue pair accepts at a time.
const BYTES: usize = 100 * PART;
const IN_PARTS: NetLimits = NetLimits {
    part_bytes: PART as u64,
    striped_bytes: u64::MAX,
    ..AT_ONCE
};

/// If only some parts of an operation were posted before the peer was lost, the operation is not successful, even
/// though all posted parts are.
#[test]
fn partly_posted_operation_fails_with_its_peer() {
    for is_write in [false, true] {
        let mut job = Job::on(FakeConfig::calm(1), 2, IN_PARTS);
        job.assert_whole();
        let mut there = Guarded::of(&pattern(1, 1, BYTES));
        let mut here = Guarded::new(BYTES);
        let key = job.export(1, 0, &mut there);
        job.pass(MILLISECOND);
        let (work, lease) = (job.name_work(), here.lease(0, BYTES));
        let fabric = &mut job.all[0].fabric;
        if is_write {
            let posted = fabric.post_write(Peer(1), lease, key, 0, work, None);
            assert!(posted.is_ok());
        } else {
            fabric.post_read(Peer(1), lease, key, 0, work);
        }
        job.all[0].is_busy = true;
        job.pass(SECOND);
        let stats = job.net.stats(0);
        let moved = (stats.reads + stats.writes) as usize;
        assert!((2..BYTES / PART).contains(&moved), "{moved} parts");
        job.all[0].fabric.lose(Peer(1), "it is enough");
        job.all[0].is_busy = false;
        assert_eq!(job.end_of(0, work), WorkOutcome::Unreachable);
        here.assert_guards();
        job.assert_careful();
    }
}
