// SPDX-License-Identifier: MIT OR Apache-2.0
//! Verdicts on synthetic queues, without running jobs.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::collections::BTreeMap;
use std::sync::Arc;

use queues::near_miss::Difference;
use queues::report::{
    CallReport, Collective, CommReport, NonblockingCollective, OperationReport, RankReport,
};
use queues::verdict::{Doubt, JobVerdict, VerdictKind, verdict};
use queues::waits::{JobCoverage, RankState, waits};
use queues::wording;

const WORLD: u64 = 4;

fn rank(number: i32, size: i32) -> RankReport {
    RankReport {
        rank: Some(number),
        host: None,
        pid: 100 + number.unsigned_abs(),
        reports_calls: true,
        communicators: vec![CommReport {
            id: WORLD,
            name: "MPI_COMM_WORLD".into(),
            rank: number.into(),
            ranks: (0..size).collect(),
            sends: Vec::new(),
            receives: Vec::new(),
            unexpected: Vec::new(),
            calls: Vec::new(),
            begun: Vec::new(),
            inactive: Vec::new(),
            collectives: Vec::new(),
        }],
    }
}

fn operation(peer: Option<i64>, tag: i64, call: Option<&str>) -> OperationReport {
    OperationReport {
        peer,
        world_peer: peer,
        tag: Some(tag),
        bytes: 8,
        items: None,
        datatype: None,
        buffer: 0,
        status: "pending".into(),
        matched: None,
        words: ["receive".into()].into(),
        call: call.map(Arc::from),
        thread: None,
        wait: Some(1),
        alone: call.is_some(),
        requests: None,
        moving: false,
    }
}

impl Step for RankReport {
    fn world(&mut self) -> &mut CommReport {
        &mut self.communicators[0]
    }
}

/// The steps of a synthetic rank.
trait Step: Sized {
    fn world(&mut self) -> &mut CommReport;

    fn receives(mut self, peer: i64, tag: i64, call: &str) -> Self {
        let peer = (peer >= 0).then_some(peer);
        self.world().receives.push(operation(peer, tag, Some(call)));
        self
    }

    fn sends(mut self, peer: i64, tag: i64, call: &str) -> Self {
        self.world()
            .sends
            .push(operation(Some(peer), tag, Some(call)));
        self
    }

    fn has_from(mut self, peer: i64, tag: i64) -> Self {
        self.world()
            .unexpected
            .push(operation(Some(peer), tag, None));
        self
    }

    fn enters(mut self, function: &str) -> Self {
        self.world().calls.push(CallReport {
            function: function.into(),
            waits: "waits for the other ranks".into(),
            thread: None,
            wait: Some(1),
            alone: true,
            peer: None,
            tag: None,
            bytes: None,
            moving: false,
            requests: None,
        });
        self
    }

    fn enters_at(self, function: &str, place: i64, root: Option<i64>) -> Self {
        let mut it = self.enters(function);
        let call = it.world().calls.last_mut().unwrap();
        (call.tag, call.peer) = (Some(place), root);
        it
    }

    fn with_bytes(mut self, bytes: i64) -> Self {
        self.world().calls.last_mut().unwrap().bytes = Some(bytes);
        self
    }

    fn begins(mut self, name: &str, place: i64, call: Option<&str>) -> Self {
        self.world().begun.push(NonblockingCollective {
            name: name.into(),
            root: None,
            place: Some(place),
            bytes: None,
            call: call.map(str::to_owned),
            thread: None,
            wait: Some(1),
            alone: call.is_some(),
            moving: false,
            requests: None,
        });
        self
    }

    fn has_called(mut self, name: &'static str, called: i32) -> Self {
        self.world().collectives.push(Collective {
            name: name.into(),
            called,
            active: 0,
        });
        self
    }
}

fn verdict_of(ranks: &[RankReport]) -> JobVerdict {
    verdict_with(ranks, true, &BTreeMap::new())
}

fn verdict_with(ranks: &[RankReport], complete: bool, doubts: &BTreeMap<i32, Doubt>) -> JobVerdict {
    verdict(&waits(ranks, JobCoverage { complete }), doubts)
}

#[test]
fn a_wait_cycle_is_found_and_ranks_behind_it_are_stuck() {
    let ring = |me: i32| rank(me, 4).receives(i64::from((me + 2) % 3), 7, "MPI_Recv");
    let tail = rank(3, 4).receives(0, 7, "MPI_Recv");
    let verdict = verdict_of(&[ring(0), ring(1), ring(2), tail]);
    assert_eq!(
        (verdict.kind, &verdict.stuck[..]),
        (VerdictKind::Deadlock, &[0, 1, 2, 3][..])
    );
    assert_eq!(verdict.circles, [[0, 2, 1]]);
    assert_eq!(
        verdict.headline,
        "deadlock: none of the 4 ranks can ever go on"
    );
}

#[test]
fn a_rank_outside_mpi_is_no_deadlock() {
    let verdict = verdict_of(&[rank(0, 2).receives(1, 0, "MPI_Recv"), rank(1, 2)]);
    assert_eq!(verdict.kind, VerdictKind::Waiting);
    assert_eq!(
        verdict.headline,
        "no deadlock: rank 0 waits; rank 1 is not waiting in MPI and may still come"
    );
}

#[test]
fn a_deadlock_needs_two_observations_of_the_same_call() {
    let ranks = [0, 1].map(|me| rank(me, 2).receives(i64::from(1 - me), 0, "MPI_Recv"));
    assert_eq!(verdict_of(&ranks).kind, VerdictKind::Deadlock);
    for doubt in [Doubt::Moved, Doubt::Restless, Doubt::Threads] {
        let verdict = verdict_with(&ranks, true, &BTreeMap::from([(1, doubt)]));
        let kind = match doubt {
            Doubt::Moved => VerdictKind::Waiting,
            _ => VerdictKind::NoVerdict,
        };
        assert_eq!((verdict.kind, verdict.stuck.len()), (kind, 0), "{doubt:?}");
        let certain = verdict.headline.starts_with("no deadlock");
        assert_eq!(certain, doubt == Doubt::Moved, "{}", verdict.headline);
    }
}

#[test]
fn a_matching_send_and_receive_are_no_deadlock() {
    let ranks = [
        rank(0, 2).receives(1, 3, "MPI_Recv"),
        rank(1, 2).sends(0, 3, "MPI_Send"),
    ];
    let verdict = verdict_of(&ranks);
    assert_eq!(verdict.kind, VerdictKind::Waiting);
    let expected = "no deadlock: ranks 0 and 1 wait; send and receive are both there for ranks 0 and 1, whose call can end; look \
                 again to see whether it does";
    assert_eq!(verdict.headline, expected);
}

#[test]
fn waitall_needs_all_requests_and_waitany_one() {
    let others = || [rank(1, 3).receives(0, 9, "MPI_Recv"), rank(2, 3)];
    let job = |call| {
        let first = rank(0, 3).receives(1, 0, call).receives(2, 0, call);
        let [second, third] = others();
        verdict_of(&[first, second, third]).stuck
    };
    assert_eq!(job("MPI_Waitall"), [0, 1]);
    assert_eq!(job("MPI_Waitany"), [0; 0]);
}

#[test]
fn an_any_source_receive_is_stuck_only_if_all_ranks_are() {
    let worker = |me| rank(me, 3).receives(0, 1, "MPI_Recv");
    let master = || rank(0, 3).receives(-1, 0, "MPI_Recv");
    assert_eq!(
        verdict_of(&[master(), worker(1), worker(2)]).stuck,
        [0, 1, 2]
    );
    assert_eq!(verdict_of(&[master(), worker(1), rank(2, 3)]).stuck, [0; 0]);
}

#[test]
fn an_ended_rank_is_a_cause_and_an_unread_rank_is_not() {
    let ranks = [rank(0, 2).receives(1, 0, "MPI_Recv")];
    let verdict = verdict_of(&ranks);
    assert_eq!(verdict.stuck, [0]);
    assert_eq!(verdict.causes, ["rank 0 waits for rank 1, which has ended"]);
    let verdict = verdict_with(&ranks, false, &BTreeMap::new());
    assert_eq!(
        verdict.headline,
        "no verdict: rank 0 waits; rank 1 was not looked at"
    );
    let mut finalized = rank(1, 2);
    finalized.communicators.clear();
    let verdict = verdict_of(&[ranks[0].clone(), finalized]);
    assert_eq!(
        verdict.causes,
        ["rank 0 waits for rank 1, which has finalized MPI"]
    );
}

#[test]
fn a_process_without_a_rank_prevents_a_verdict() {
    let mut unranked = rank(1, 2);
    (unranked.rank, unranked.communicators) = (None, Vec::new());
    let verdict = verdict_of(&[rank(0, 2).receives(1, 0, "MPI_Recv"), unranked]);
    assert_eq!(verdict.kind, VerdictKind::NoVerdict);
}

#[test]
fn a_collective_waits_for_ranks_with_fewer_calls() {
    let inside = |me| rank(me, 3).enters("MPI_Barrier").has_called("Barrier", 5);
    let late = rank(2, 3)
        .receives(0, 0, "MPI_Recv")
        .has_called("Barrier", 4);
    let verdict = verdict_of(&[inside(0), inside(1), late]);
    assert_eq!(verdict.stuck, [0, 1, 2]);
    let barrier = "MPI_Barrier, call 5 of it on MPI_COMM_WORLD: ranks 0 and 1 have come, rank 2 has not (it is in MPI_Recv)";
    assert!(
        verdict.causes.contains(&barrier.to_owned()),
        "{:?}",
        verdict.causes
    );
    let verdict = verdict_of(&[inside(0), inside(1), inside(2)]);
    assert_eq!(verdict.kind, VerdictKind::NoVerdict, "all have come");
    let still = "no verdict: ranks 0-2 wait; every rank has come to the collective of ranks 0-2, and it has not ended; if it does \
                 not, arguments of the ranks differ";
    assert_eq!(verdict.headline, still);
    let moved = BTreeMap::from([0, 1, 2].map(|it| (it, Doubt::Moved)));
    let verdict = verdict_with(&[inside(0), inside(1), inside(2)], true, &moved);
    assert_eq!(
        verdict.kind,
        VerdictKind::Waiting,
        "it goes on: {verdict:?}"
    );
}

#[test]
fn a_v_collective_is_not_stuck_if_a_late_rank_can_progress() {
    let job = |name: &'static str| {
        let inside = rank(0, 3)
            .enters(&format!("MPI_{name}"))
            .has_called(name, 1);
        let stuck = rank(1, 3).receives(0, 0, "MPI_Recv");
        verdict_of(&[inside, stuck, rank(2, 3)]).stuck
    };
    assert_eq!(job("Allreduce"), [0, 1]);
    assert_eq!(job("Alltoallv"), [0; 0]);
}

#[test]
fn a_near_match_is_reported_with_its_difference() {
    let receiver = rank(0, 3)
        .receives(1, 7, "MPI_Recv")
        .has_from(1, 8)
        .has_from(1, 8)
        .has_from(2, 7);
    let ranks = [receiver, rank(1, 3).receives(0, 0, "MPI_Recv"), rank(2, 3)];
    let waits = waits(&ranks, JobCoverage { complete: true });
    let RankState::Waits(calls) = &waits.states[0] else {
        panic!("{:?}", waits.states)
    };
    let near = &calls[0].pending[0].near;
    let short: Vec<_> = near
        .iter()
        .map(|it| (it.other, it.rank, it.tag, it.count))
        .collect();
    assert_eq!(
        short,
        [
            (Difference::Tag, 1, Some(8), 2),
            (Difference::Rank, 2, Some(7), 1)
        ]
    );
    let verdict = verdict(&waits, &BTreeMap::new());
    let expected =
        "rank 0 waits for tag 7 from rank 1 on MPI_COMM_WORLD, and tag 8 has come from it";
    assert!(
        verdict.causes.contains(&expected.to_owned()),
        "{:?}",
        verdict.causes
    );
}

#[test]
fn ranks_in_the_same_call_share_one_line() {
    let ring: Vec<RankReport> = (0..64)
        .map(|me| rank(me, 64).receives(i64::from((me + 63) % 64), 7, "MPI_Recv"))
        .collect();
    let waits = waits(&ring, JobCoverage { complete: true });
    let lines = wording::lines(&waits);
    assert_eq!((lines.len(), lines[0].who.len()), (1, 64));
    assert_eq!(
        lines[0].text,
        "MPI_Recv from the rank before, tag 7, 8 bytes, on MPI_COMM_WORLD"
    );
    let verdict = verdict(&waits, &BTreeMap::new());
    assert_eq!(
        verdict.causes,
        ["ranks 0-63 wait in a circle, each for the next: 0 -> 63 -> ... -> 1 -> 0"]
    );
    let svg = queues::graph::svg(&waits, &verdict);
    assert_eq!(svg.matches("<path class=\"a c\"").count(), 64);
}

#[test]
fn the_verdict_scales_to_640000_receives() {
    let many = |me: i32| {
        let mut it = rank(me, 64);
        for tag in 0..10_000 {
            it = it.receives(i64::from((me + 1) % 64), tag, "MPI_Waitall");
        }
        it
    };
    let ranks: Vec<RankReport> = (0..64).map(many).collect();
    assert_eq!(verdict_of(&ranks).stuck.len(), 64);
}

#[test]
fn a_library_that_does_not_report_calls_gives_no_verdict() {
    let mut ranks = [rank(0, 2), rank(1, 2)];
    ranks.iter_mut().for_each(|it| it.reports_calls = false);
    let waits = waits(&ranks, JobCoverage { complete: true });
    let verdict = verdict(&waits, &BTreeMap::new());
    assert!(
        verdict.headline.starts_with("no verdict: "),
        "{}",
        verdict.headline
    );
    assert_eq!(wording::lines(&waits)[0].text, "may wait, or not");
}

#[test]
fn different_roots_deadlock_once_all_ranks_have_called() {
    let reduce = |me: i32, size: i32, root: i64| {
        let it = rank(me, size).enters_at("MPI_Reduce", 4, Some(root));
        it.has_called("Reduce", 1)
    };
    let verdict = verdict_of(&[reduce(0, 2, 0), reduce(1, 2, 1)]);
    assert_eq!(
        (verdict.kind, &verdict.stuck[..]),
        (VerdictKind::Deadlock, &[0, 1][..])
    );
    assert_eq!(
        verdict.causes,
        [
            "ranks 0 and 1 wait for each other",
            "not all ranks call the same collective on MPI_COMM_WORLD at the same place: rank 0 calls Reduce with root 0, rank 1 \
             calls Reduce with root 1",
        ]
    );
    assert_eq!(
        verdict_of(&[reduce(0, 2, 1), reduce(1, 2, 1)]).kind,
        VerdictKind::NoVerdict
    );
    // The third rank may still send the missing data.
    let verdict = verdict_of(&[reduce(0, 3, 0), reduce(1, 3, 1), rank(2, 3)]);
    assert_eq!(verdict.kind, VerdictKind::NoVerdict);
}

/// The third rank has already received its data from the second rank, and waits in the next call for the other two
/// ranks.
#[test]
fn different_roots_deadlock_after_a_third_rank_has_left() {
    let bcast = |me: i32, root: i64| {
        let it = rank(me, 3).enters_at("MPI_Bcast", 4, Some(root));
        it.has_called("Bcast", 1)
    };
    let later = |it: RankReport| it.has_called("Bcast", 1).has_called("Barrier", 1);
    let third = later(rank(2, 3).enters_at("MPI_Barrier", 5, None));
    let verdict = verdict_of(&[bcast(0, 0), bcast(1, 1), third.clone()]);
    assert_eq!(
        (verdict.kind, &verdict.stuck[..]),
        (VerdictKind::Deadlock, &[0, 1, 2][..]),
        "{verdict:?}"
    );
    // The third rank may still progress if it is not known to wait.
    let doubts = BTreeMap::from([(2, Doubt::Restless)]);
    let verdict = verdict_with(&[bcast(0, 0), bcast(1, 1), third], true, &doubts);
    assert_eq!(verdict.kind, VerdictKind::NoVerdict);
    let verdict = verdict_of(&[bcast(0, 0), bcast(1, 1), later(rank(2, 3))]);
    assert_eq!(
        verdict.kind,
        VerdictKind::NoVerdict,
        "it may be in its own code"
    );
}

#[test]
fn a_rank_in_the_same_collective_counts_as_arrived() {
    let bcast = |me: i32, number| {
        let it = rank(me, 3).enters_at("MPI_Allreduce", 9, None);
        it.has_called("Allreduce", number)
    };
    let verdict = verdict_of(&[bcast(0, 3), bcast(1, 3), bcast(2, 2)]);
    assert_eq!(verdict.kind, VerdictKind::NoVerdict, "{verdict:?}");
}

#[test]
fn a_matched_request_is_no_deadlock_and_an_unlisted_one_no_verdict() {
    let mut ranks = [
        rank(0, 2).receives(1, 3, "MPI_Wait"),
        rank(1, 2).receives(0, 3, "MPI_Recv"),
    ];
    ranks[0].communicators[0].receives[0].status = "matched".into();
    assert_eq!(verdict_of(&ranks).kind, VerdictKind::Waiting);
    let mut other = rank(0, 2).enters("MPI_Wait");
    other.communicators[0].calls[0].waits = "waits for requests that are not listed".into();
    let verdict = verdict_of(&[other, rank(1, 2)]);
    assert_eq!(verdict.kind, VerdictKind::NoVerdict, "{verdict:?}");
}

#[test]
fn a_waitall_line_counts_the_completed_requests() {
    let mut first = rank(0, 2).receives(1, 0, "MPI_Waitall");
    first.communicators[0].receives[0].requests = Some((3, 1));
    let text = |ranks: &[RankReport]| {
        let waits = waits(ranks, JobCoverage { complete: true });
        wording::lines(&waits)[0].text.clone()
    };
    assert_eq!(
        text(&[first, rank(1, 2)]),
        "MPI_Waitall (3 of 4 requests are done) from rank 1, tag 0, 8 bytes, on MPI_COMM_WORLD"
    );
}

#[test]
fn an_inactive_persistent_receive_that_matches_is_reported() {
    let sender = rank(0, 2).sends(1, 5, "MPI_Send");
    let mut receiver = rank(1, 2).receives(0, 7, "MPI_Recv");
    let fits = operation(None, 5, None);
    let other = operation(Some(0), 6, None);
    receiver.communicators[0].inactive = vec![fits, other];
    let ranks = [sender, receiver];
    let waits = waits(&ranks, JobCoverage { complete: true });
    let lines = wording::lines(&waits);
    assert_eq!(
        lines[0].beside,
        [
            "rank 1 receives from it tag 7, 8 bytes",
            "rank 1 has a persistent receive that fits and is not started (MPI_Recv_init without MPI_Start)",
        ]
    );
    let verdict = verdict(&waits, &BTreeMap::new());
    let expected = "rank 0 waits until rank 1 receives tag 5 on MPI_COMM_WORLD: its persistent receive would, but was not started";
    assert!(
        verdict.causes.contains(&expected.to_owned()),
        "{:?}",
        verdict.causes
    );
}

#[test]
fn different_byte_counts_deadlock_though_some_ranks_have_left() {
    let bcast = |me: i32, size: i32, bytes: i64| {
        let it = rank(me, size).enters_at("MPI_Bcast", 4, Some(0));
        it.with_bytes(bytes).has_called("Bcast", 1)
    };
    let verdict = verdict_of(&[bcast(0, 3, 4), bcast(1, 3, 800), bcast(2, 3, 800)]);
    assert_eq!(
        (verdict.kind, &verdict.stuck[..]),
        (VerdictKind::Deadlock, &[0, 1, 2][..])
    );
    let causes_of = |it: &JobVerdict| it.causes.last().cloned().unwrap_or_default();
    assert_eq!(
        causes_of(&verdict),
        "not all ranks call the same collective on MPI_COMM_WORLD at the same place: rank 0 calls Bcast with root 0 and 4 bytes, \
         ranks 1 and 2 call Bcast with root 0 and 800 bytes"
    );
    let through = rank(2, 3).has_called("Bcast", 1);
    let verdict = verdict_of(&[bcast(0, 3, 4), bcast(1, 3, 800), through]);
    assert_eq!(
        (verdict.kind, &verdict.stuck[..]),
        (VerdictKind::Deadlock, &[0, 1][..])
    );
    // The first two ranks may wait for the third, which has not called the collective.
    let verdict = verdict_of(&[bcast(0, 3, 4), bcast(1, 3, 800), rank(2, 3)]);
    assert_eq!(verdict.kind, VerdictKind::NoVerdict);
    let verdict = verdict_of(&[bcast(0, 2, 8), bcast(1, 2, 8)]);
    assert_eq!(verdict.kind, VerdictKind::NoVerdict, "nothing differs");
}

#[test]
fn nonblocking_collectives_in_different_order_deadlock() {
    let two = |me: i32, names: [&'static str; 2]| {
        let it = rank(me, 2).begins(names[0], 0, Some("MPI_Waitall"));
        let it = it.begins(names[1], 1, Some("MPI_Waitall"));
        it.has_called("Barrier", 1).has_called("Bcast", 1)
    };
    let verdict = verdict_of(&[two(0, ["Barrier", "Bcast"]), two(1, ["Bcast", "Barrier"])]);
    assert_eq!(
        (verdict.kind, &verdict.stuck[..]),
        (VerdictKind::Deadlock, &[0, 1][..])
    );
    assert_eq!(verdict.causes.len(), 3, "{:?}", verdict.causes);
    let verdict = verdict_of(&[two(0, ["Barrier", "Bcast"]), two(1, ["Barrier", "Bcast"])]);
    assert_eq!(verdict.kind, VerdictKind::NoVerdict);
    // Rank 1 has called only one of two barriers.
    let once = rank(1, 2)
        .receives(0, 7, "MPI_Recv")
        .has_called("Barrier", 1);
    let twice = rank(0, 2)
        .begins("Barrier", 0, None)
        .begins("Barrier", 1, Some("MPI_Wait"));
    let verdict = verdict_of(&[twice.has_called("Barrier", 2), once]);
    assert_eq!(verdict.circles, [[0, 1]], "{verdict:?}");
}
