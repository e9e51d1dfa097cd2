// SPDX-License-Identifier: MIT OR Apache-2.0
//! Ranks on real devices, or with RoCE over the ports of `RMPI_DPDK` or over UDP on a host without devices: one thread
//! each, all in this process, or some of them in a process on another host. They exchange their address records, as
//! through the launcher, and report when all of them are done.
//!
//! `RMPI_TEST_HOSTS="1/2 10.77.0.1:7770 17"`: this process is number 1 of 2 that run the same tests in the same order,
//! in run 17, and number 0 listens at that address. The module `meeting` describes the rendezvous.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::pin;
use std::sync::{Mutex, OnceLock, PoisonError};
use std::task::{Context, Waker};

use transport::{Config, Fabric, NetLimits, NetworkSettings, Peer, Providers, wait};

use super::meeting::{MeetingHost, MeetingRank};
use super::{OneSidedReach, TestRank};

/// Ranks that reach each other over devices alone; `sleeps`: they sleep when idle.
pub fn devices<B>(name: &str, ranks: u32, sleeps: bool, behaviour: B)
where
    B: AsyncFn(&mut TestRank) + Copy + Send + 'static,
{
    let shared = name.to_owned();
    let rank = move |place: &MeetingRank| one(&shared, place, sleeps, behaviour);
    let test = if sleeps { "asleep: " } else { "" }.to_owned() + name;
    let end = match std::env::var("RMPI_TEST_HOSTS") {
        Ok(words) => this_host(&words).and_then(|host| {
            let mut host = host.lock().unwrap_or_else(PoisonError::into_inner);
            host.run(&test, ranks, rank)
        }),
        Err(_) => MeetingHost::alone().run(&test, ranks, rank),
    };
    end.unwrap_or_else(|why| panic!("{why}"));
}

/// The state of this process, shared by all its tests.
fn this_host(words: &str) -> Result<&'static Mutex<MeetingHost>, String> {
    static HOST: OnceLock<Result<Mutex<MeetingHost>, String>> = OnceLock::new();
    let host = HOST.get_or_init(|| MeetingHost::parse(words).map(Mutex::new));
    host.as_ref().map_err(Clone::clone)
}

/// One rank, from opening its port to its end.
fn one(name: &str, place: &MeetingRank, sleeps: bool, behaviour: impl AsyncFn(&mut TestRank)) {
    let (me, ranks) = (place.me, place.ranks);
    let limits = NetLimits {
        // Few enough that datagrams and queue pairs are used, sometimes at the same time.
        datagrams_first: sum(name) % 5,
        ..NetLimits::default()
    };
    let fabric = Fabric::open(Config {
        me: Peer(me),
        peers: ranks,
        // All available rails: one between two hosts. Each test of a run has its own key, as jobs have.
        network: NetworkSettings::default()
            .on_rails(2)
            .over_dpdk(&std::env::var("RMPI_DPDK").unwrap_or_default())
            .of_local_rank(me)
            .with_key(sum(name) & 0x7fff_ffff)
            .within(limits),
        // Devices alone, and their emulations on a host without them: TCP would carry everything there.
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
    // Also of a rank that has failed: its network counters may explain why.
    println!("rank {me}: {:?}", rank.fabric.net_stats());
    while let Some(words) = rank.fabric.next_warning() {
        println!("rank {me}: {words}");
    }
    end.unwrap_or_else(|panic| resume_unwind(panic));
    rank.assert_empty();
}

/// Runs the behaviour, and then progress for the other ranks, until no rank has anything to send.
fn run(rank: &mut TestRank, place: &MeetingRank, behaviour: impl AsyncFn(&mut TestRank)) {
    let mut context = Context::from_waker(Waker::noop());
    let mut turns = 0u32;
    // Yields; now and then checks whether all ranks have completed this many phases. Panics when the test has failed
    // elsewhere.
    let mut looks = |phases| {
        turns = turns.wrapping_add(1);
        wait::yield_core();
        turns.is_multiple_of(64) && place.is_over(phases)
    };
    {
        let mut future = pin!(behaviour(&mut *rank));
        while future.as_mut().poll(&mut context).is_pending() {
            looks(1);
        }
    }
    // Phase 1: all ranks have run the behaviour and have nothing left to send. Phase 2: all ranks have observed that.
    place.report_done();
    while !looks(1) || !rank.fabric.is_quiet() {
        rank.poll();
    }
    place.report_done();
    while !looks(2) {
        rank.poll();
    }
}

/// A hash of a name (FNV-1a).
fn sum(name: &str) -> u32 {
    let step = |sum: u32, byte| (sum ^ u32::from(byte)).wrapping_mul(0x0100_0193);
    name.bytes().fold(0x811c_9dc5, step)
}
