// SPDX-License-Identifier: MIT OR Apache-2.0
//! Runs ranks on real devices. If `RMPI_DPDK` is set, they use RoCE over the DPDK ports that it names; on a host
//! without devices, they use RoCE over UDP. Each rank has a thread; all are in this process, or some in processes on
//! other hosts. As with a launcher, the ranks exchange their address records, and report when they are done.
//!
//! `RMPI_TEST_HOSTS="1/2 10.77.0.1:7770 17"` means: this process is number 1 of 2 processes that run the same tests in
//! the same order, number 0 listens at that address, and the number of the run is 17. The module `meeting` describes
//! the rendezvous.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::pin;
use std::sync::{Mutex, OnceLock, PoisonError};
use std::task::{Context, Waker};

use transport::{Config, Fabric, NetLimits, NetworkSettings, Peer, Providers, wait};

use super::meeting::{MeetingHost, MeetingRank};
use super::{OneSidedReach, TestRank};

/// Runs a behaviour in ranks that reach each other only over devices. `sleeps`: whether they sleep when idle.
pub fn devices<B>(name: &str, ranks: u32, sleeps: bool, behaviour: B)
where
    B: AsyncFn(&mut TestRank) + Copy + Send + 'static,
{
    let shared = name.to_owned();
    let rank = move |place: &MeetingRank| one(&shared, place, sleeps, behaviour);
    let test = if sleeps { "asleep: " } else { "" }.to_owned() + name;
    let end = match std::env::var("RMPI_TEST_HOSTS") {
        Ok(text) => this_host(&text).and_then(|host| {
            let mut host = host.lock().unwrap_or_else(PoisonError::into_inner);
            host.run(&test, ranks, rank)
        }),
        Err(_) => MeetingHost::alone().run(&test, ranks, rank),
    };
    end.unwrap_or_else(|why| panic!("{why}"));
}

/// This process's part in the rendezvous, which all its tests share.
fn this_host(text: &str) -> Result<&'static Mutex<MeetingHost>, String> {
    static HOST: OnceLock<Result<Mutex<MeetingHost>, String>> = OnceLock::new();
    let host = HOST.get_or_init(|| MeetingHost::parse(text).map(Mutex::new));
    host.as_ref().map_err(Clone::clone)
}

/// Runs one rank: opens its port, exchanges records, runs the behaviour, and waits for all other ranks.
fn one(name: &str, place: &MeetingRank, sleeps: bool, behaviour: impl AsyncFn(&mut TestRank)) {
    let (me, ranks) = (place.me, place.ranks);
    let limits = NetLimits {
        // Queue pairs are created after so few datagrams that a test uses both datagrams and queue pairs, sometimes at
        // the same time.
        datagrams_first: sum(name) % 5,
        ..NetLimits::default()
    };
    let fabric = Fabric::open(Config {
        me: Peer(me),
        peers: ranks,
        // A rank uses up to two rails; between two hosts of the test there is one rail. Each test of a run has its own
        // key, as each job does.
        network: NetworkSettings::default()
            .on_rails(2)
            .over_dpdk(&std::env::var("RMPI_DPDK").unwrap_or_default())
            .of_local_rank(me)
            .with_key(sum(name) & 0x7fff_ffff)
            .within(limits),
        // Enables only devices, or their emulation on a host without devices. If TCP were enabled, a host without
        // devices would use TCP instead of the emulation.
        providers: Providers {
            tcp: false,
            verbs: std::env::var_os("RMPI_DPDK").is_none(),
            dpdk: true,
            roce: true,
            ..Providers::default()
        },
        ..Config::alone()
    });
    let fabric = fabric.unwrap_or_else(|error| panic!("{error}"));
    let record = fabric.network_record().unwrap();
    let mut rank = TestRank::new(fabric, me, ranks, OneSidedReach::May);
    rank.records = place.exchange(record);
    rank.sleeps = sleeps;
    let end = catch_unwind(AssertUnwindSafe(|| run(&mut rank, place, behaviour)));
    // Printed for a rank that has failed too: its network counters may explain the failure.
    println!("rank {me}: {:?}", rank.fabric.net_stats());
    while let Some(warning) = rank.fabric.next_warning() {
        println!("rank {me}: {warning}");
    }
    end.unwrap_or_else(|panic| resume_unwind(panic));
    rank.assert_empty();
}

/// Runs the behaviour, and then makes progress for the other ranks, until no rank has anything to send.
fn run(rank: &mut TestRank, place: &MeetingRank, behaviour: impl AsyncFn(&mut TestRank)) {
    let mut context = Context::from_waker(Waker::noop());
    let mut turns = 0u32;
    // Yields the core. Every 64th call checks whether all ranks have completed this many phases, and returns the result
    // (panics if the test has failed elsewhere); the other calls return `false`.
    let mut have_completed = |phases| {
        turns = turns.wrapping_add(1);
        wait::yield_core();
        turns.is_multiple_of(64) && place.is_over(phases)
    };
    {
        let mut future = pin!(behaviour(&mut *rank));
        while future.as_mut().poll(&mut context).is_pending() {
            have_completed(1);
        }
    }
    // Phase 1: all ranks have run the behaviour and have nothing left to send. Phase 2: all ranks have observed the end
    // of phase 1.
    place.report_done();
    while !have_completed(1) || !rank.fabric.is_quiet() {
        rank.poll();
    }
    place.report_done();
    while !have_completed(2) {
        rank.poll();
    }
}

/// A hash of a name (FNV-1a).
fn sum(name: &str) -> u32 {
    let step = |sum: u32, byte| (sum ^ u32::from(byte)).wrapping_mul(0x0100_0193);
    name.bytes().fold(0x811c_9dc5, step)
}
