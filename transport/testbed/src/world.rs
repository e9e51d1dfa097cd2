// SPDX-License-Identifier: MIT OR Apache-2.0
//! The worlds in which the ranks of a behaviour run.

use std::cell::Cell;
use std::io::Read;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::pin::{Pin, pin};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use transport::{
    Config, Fabric, FakeConfig, FakeNet, FakeStreams, NetLimits, NetTerms, NetworkSettings,
    PacketFaults, PacketNet, Peer, Providers, SimConfig, SimNet, StreamKey, StreamsConfig,
    TcpTerms, wait,
};

use super::memory::{can_reach_own_process, inherited, number_of, open, segment_file_with};
use super::{OneSidedReach, TestRank};

const JOB: u64 = 0x70b;
/// Size of each rank's arena in bytes.
const ARENA_BYTES: u64 = 64 << 20;

/// Runs one rank, which communicates with itself.
pub fn alone(behaviour: impl AsyncFn(&mut TestRank)) {
    let fabric = Fabric::open(Config::alone()).unwrap();
    in_turn(
        vec![TestRank::new(fabric, 0, 1, OneSidedReach::Must)],
        behaviour,
        |_| true,
    );
}

/// Runs ranks on one segment; the ranks take turns in one thread.
pub fn shm(ranks: u32, behaviour: impl AsyncFn(&mut TestRank)) {
    in_turn(shm_ranks(ranks), behaviour, |_| true);
}

/// Runs ranks on one segment, each in its own thread.
pub fn shm_threads<B>(ranks: u32, behaviour: B)
where
    B: AsyncFn(&mut TestRank) + Copy + Send + 'static,
{
    let threads: Vec<_> = shm_ranks(ranks)
        .into_iter()
        .map(|mut rank| {
            std::thread::spawn(move || {
                run(&mut rank, behaviour);
                rank
            })
        })
        .collect();
    // All ranks are kept until all are done, since a rank may still read the memory of another.
    let ranks: Vec<_> = threads.into_iter().map(|t| t.join().unwrap()).collect();
    drop(ranks);
}

/// Runs ranks on one segment, each in its own process. The processes run this test program again, which must call
/// [`child`] in its test `child_rank`.
pub fn shm_processes(ranks: u32, behaviour: &str) {
    let file = segment_file_with(ranks, JOB, ARENA_BYTES);
    let children = start(&file, ranks, behaviour);
    for (rank, status) in (0..).zip(finish(children)) {
        assert!(
            status.success(),
            "{behaviour}: rank {rank} ended with {status}"
        );
    }
}

/// Starts `ranks` processes that run a behaviour on a segment.
pub fn start(file: &OwnedFd, ranks: u32, behaviour: &str) -> Vec<Child> {
    (0..ranks)
        .map(|rank| {
            Command::new(std::env::current_exe().unwrap())
                .args(["child_rank", "--exact", "--nocapture", "--quiet"])
                .env(
                    CHILD,
                    format!("{behaviour} {rank} {ranks} {}", number_of(file)),
                )
                .stdout(Stdio::piped())
                .spawn()
                .unwrap()
        })
        .collect()
}

/// Reads the output of a process of [`start`] up to an exclamation mark. The output before the mark is that of the test
/// harness.
pub fn wait_for_mark(child: &mut Child) {
    let output = child.stdout.as_mut().unwrap();
    let mut byte = [0];
    while byte != *b"!" {
        output.read_exact(&mut byte).unwrap();
    }
}

/// Waits for processes, at most some minutes, and then kills those that still run.
pub fn finish(mut children: Vec<Child>) -> Vec<ExitStatus> {
    let limit = Instant::now() + Duration::from_secs(200);
    let is_over = |children: &mut Vec<Child>| {
        children
            .iter_mut()
            .all(|child| child.try_wait().unwrap().is_some())
    };
    while !is_over(&mut children) && Instant::now() < limit {
        std::thread::sleep(Duration::from_millis(2));
    }
    for child in &mut children {
        let _ = child.kill();
    }
    children.iter_mut().map(|c| c.wait().unwrap()).collect()
}

/// In a process of [`start`]: the name of the behaviour, and the rank. `None` in any other process.
pub fn child() -> Option<(String, TestRank)> {
    let fields = std::env::var(CHILD).ok()?;
    let fields: Vec<&str> = fields.split(' ').collect();
    let number = |at: usize| fields[at].parse::<u32>().unwrap();
    let file = inherited(number(3).cast_signed());
    let fabric = open(&file, JOB, number(1), number(2));
    Some((
        fields[0].to_owned(),
        TestRank::new(fabric, number(1), number(2), OneSidedReach::May),
    ))
}

/// Runs ranks on a simulated network, once for each seed. The seed of a failure is printed. Which of the `seeds` are
/// run: with `RMPI_TEST_SEED` only that seed; with `RMPI_TEST_AT_LENGTH=1` all; otherwise a third of them, but at least
/// 3.
pub fn sim(ranks: u32, seeds: u64, behaviour: impl AsyncFn(&mut TestRank)) {
    for seed in chosen(seeds) {
        let _failing = Failing(seed);
        let net = SimNet::new(SimConfig::harsh(seed, ranks));
        sim_on(&net, &behaviour);
    }
}

/// Runs ranks on a fake network of devices, once for each seed (seed 0: without faults). `RMPI_TEST_SEED` works as in
/// [`sim`].
pub fn fake(ranks: u32, seeds: u64, behaviour: impl AsyncFn(&mut TestRank)) {
    fake_seeds(ranks, seeds, false, behaviour);
}

/// Runs ranks on a fake network of devices as [`fake`] does, but they sleep when idle: a missed wake-up blocks them.
pub fn fake_asleep(ranks: u32, seeds: u64, behaviour: impl AsyncFn(&mut TestRank)) {
    fake_seeds(ranks, seeds, true, behaviour);
}

fn fake_seeds(ranks: u32, seeds: u64, sleeps: bool, behaviour: impl AsyncFn(&mut TestRank)) {
    fake_seeds_on((ranks, 1), seeds, sleeps, |config| config, &behaviour);
}

fn fake_seeds_on(
    (ranks, rails): (u32, u32),
    seeds: u64,
    sleeps: bool,
    change: impl Fn(FakeConfig) -> FakeConfig,
    behaviour: &impl AsyncFn(&mut TestRank),
) {
    for seed in chosen(seeds) {
        let _failing = Failing(seed);
        let config = match seed {
            0 => FakeConfig::calm(seed),
            _ => FakeConfig::harsh(seed),
        };
        let limits = NetLimits {
            // Queue pairs are created after so few datagrams that a test uses both datagrams and queue pairs, sometimes
            // at the same time.
            datagrams_first: (seed % 5) as u32,
            ..NetLimits::default()
        };
        let net = FakeNet::new(change(config));
        fake_ranks(&net, (ranks, rails), limits, sleeps, behaviour);
    }
}

/// Runs ranks with two ports each on a fake network of devices, first polling, then sleeping. With seeds other than 0,
/// one or both ports of a rank may go down.
pub fn fake_on_rails(ranks: u32, seeds: u64, behaviour: impl AsyncFn(&mut TestRank)) {
    fake_seeds_on((ranks, 2), seeds, false, |config| config, &behaviour);
    fake_seeds_on((ranks, 2), seeds / 2, true, |config| config, &behaviour);
}

/// Runs ranks on a fake network whose devices cannot perform reads, so the owners of data write them instead: with one
/// port, with two ports, and with two ports and sleeping.
pub fn fake_without_reads(ranks: u32, seeds: u64, behaviour: impl AsyncFn(&mut TestRank)) {
    let change = |config| FakeConfig {
        reads: 0,
        atomics: false,
        ..config
    };
    for (rails, sleeps) in [(1, false), (2, false), (2, true)] {
        fake_seeds_on((ranks, rails), seeds, sleeps, change, &behaviour);
    }
}

/// Runs ranks with one port each on a given fake network.
pub fn fake_on(
    net: &FakeNet,
    ranks: u32,
    limits: NetLimits,
    behaviour: impl AsyncFn(&mut TestRank),
) {
    fake_ranks(net, (ranks, 1), limits, false, behaviour);
}

/// Runs ranks with `rails` ports each on a given fake network. `sleeps`: whether they sleep when idle.
pub fn fake_ranks(
    net: &FakeNet,
    (ranks, rails): (u32, u32),
    limits: NetLimits,
    sleeps: bool,
    behaviour: impl AsyncFn(&mut TestRank),
) {
    let make = |me| {
        let fabric = Fabric::faked_on_rails(net, Peer(me), ranks, rails, limits);
        let rank = TestRank::new(fabric, me, ranks, OneSidedReach::May);
        TestRank { sleeps, ..rank }
    };
    let mut all: Vec<TestRank> = (0..ranks).map(make).collect();
    let record = |rank: &TestRank| rank.fabric.network_record().unwrap();
    let records: Vec<Vec<u8>> = all.iter().map(record).collect();
    for rank in &mut all {
        rank.records.clone_from(&records);
    }
    let awake = awake_at_the_end(&behaviour);
    let until_quiet = until_quiet(ranks, &awake);
    let behaviour = async |rank: &mut TestRank| {
        until_quiet(rank).await;
        for port in (0..rails).map(|rail| rank.me * rails + rail) {
            let stats = net.stats(port);
            let never = [
                stats.wrong,
                stats.overruns,
                stats.buffers_lost,
                stats.overslept,
            ];
            assert!(never == [0; 4], "port {port}: {stats:?}");
        }
    };
    in_turn_if(
        all,
        behaviour,
        |rank| net.is_running(rank * rails) && !net.is_asleep(rank * rails),
        |_| {
            // If no packet is in flight, a millisecond passes, since timers of the ranks may be running.
            net.advance() || net.advance_until(net.now_ns() + 1_000_000)
        },
    );
}

/// Runs ranks that are connected by TCP within this host, and take turns in one thread.
pub fn tcp(ranks: u32, behaviour: impl AsyncFn(&mut TestRank)) {
    in_turn(tcp_ranks(ranks), until_quiet(ranks, &behaviour), |_| true);
}

/// A behaviour that runs `behaviour`, and then makes progress for the other ranks until no rank has anything to send,
/// as `MPI_Finalize` does.
fn until_quiet(ranks: u32, behaviour: &impl AsyncFn(&mut TestRank)) -> impl AsyncFn(&mut TestRank) {
    let (done, quiet) = (Cell::new(0), Cell::new(0));
    async move |rank: &mut TestRank| {
        behaviour(rank).await;
        done.set(done.get() + 1);
        while done.get() < ranks || !rank.fabric.is_quiet() {
            rank.turn().await;
        }
        quiet.set(quiet.get() + 1);
        while quiet.get() < ranks {
            rank.turn().await;
        }
    }
}

/// Gives every rank the address records of all ranks.
fn with_records(mut all: Vec<TestRank>) -> Vec<TestRank> {
    let record = |rank: &TestRank| rank.fabric.network_record().unwrap();
    let records: Vec<Vec<u8>> = all.iter().map(record).collect();
    for rank in &mut all {
        rank.records.clone_from(&records);
    }
    all
}

/// Runs ranks on a fake network of streams, once for each seed (seed 0: without faults). `sleeps`: whether they
/// sleep when idle. `RMPI_TEST_SEED` works as in [`sim`].
pub fn streams(ranks: u32, seeds: u64, sleeps: bool, behaviour: impl AsyncFn(&mut TestRank)) {
    streams_on((ranks, 1), seeds, sleeps, &behaviour);
}

/// Runs ranks with two interfaces each on a fake network of streams, first polling, then sleeping. Reads from some size
/// on are striped over both interfaces.
pub fn streams_on_rails(ranks: u32, seeds: u64, behaviour: impl AsyncFn(&mut TestRank)) {
    streams_on((ranks, 2), seeds, false, &behaviour);
    streams_on((ranks, 2), seeds.div_ceil(2), true, &behaviour);
}

fn streams_on(
    (ranks, interfaces): (u32, u32),
    seeds: u64,
    sleeps: bool,
    behaviour: &impl AsyncFn(&mut TestRank),
) {
    for seed in chosen(seeds) {
        let _failing = Failing(seed);
        let net = FakeStreams::new(StreamsConfig {
            interfaces,
            ..StreamsConfig::of(seed, ranks)
        });
        let limits = NetLimits {
            // With some seeds there are so few connections that one must be evicted for each new one.
            pairs: 1 + (seed % 7) as u32,
            striped_bytes: if interfaces == 1 {
                512 << 10
            } else {
                1 << (seed * 7 % 20)
            },
            ..NetLimits::default()
        };
        let fabric = |me| Fabric::streamed(&net, Peer(me), ranks, limits);
        let make = |me| {
            let rank = TestRank::new(fabric(me), me, ranks, OneSidedReach::Must);
            TestRank { sleeps, ..rank }
        };
        let all = with_records((0..ranks).map(make).collect());
        let runs = |rank| !net.is_asleep(rank);
        let awake = awake_at_the_end(behaviour);
        let behaviour = until_quiet(ranks, &awake);
        in_turn_if(all, behaviour, runs, |_| {
            net.advance();
            true
        });
        (0..ranks).for_each(|rank| assert_eq!(net.overslept(rank), 0, "rank {rank}"));
    }
}

/// A behaviour that runs `behaviour`. Afterwards the rank does not sleep any more: it waits for the end of the other
/// ranks, which the network does not signal.
fn awake_at_the_end(behaviour: &impl AsyncFn(&mut TestRank)) -> impl AsyncFn(&mut TestRank) {
    async move |rank: &mut TestRank| {
        behaviour(rank).await;
        rank.sleeps = false;
    }
}

/// Runs ranks on a fake network of streams. About two of three ranks also have a port on a fake network of devices, and
/// reach each other over that network. `sleeps` as in [`streams`]. `RMPI_TEST_SEED` works as in [`sim`].
pub fn mixed(ranks: u32, seeds: u64, sleeps: bool, behaviour: impl AsyncFn(&mut TestRank)) {
    for seed in chosen(seeds) {
        let _failing = Failing(seed);
        let config = match seed {
            0 => FakeConfig::calm(seed),
            _ => FakeConfig::harsh(seed),
        };
        let nets = (
            &FakeStreams::new(StreamsConfig::of(seed, ranks)),
            &FakeNet::new(config),
        );
        let limits = NetLimits {
            datagrams_first: (seed % 5) as u32,
            pairs: 1 + (seed % 7) as u32,
            ..NetLimits::default()
        };
        let has_port = |me| (u64::from(me) + seed) % 3 != 0;
        mixed_on(nets, (ranks, sleeps), has_port, limits, &behaviour);
    }
}

/// Runs ranks on two given networks; `has_port` returns whether a rank has a device.
pub fn mixed_on(
    (streams, devices): (&FakeStreams, &FakeNet),
    (ranks, sleeps): (u32, bool),
    has_port: impl Fn(u32) -> bool,
    limits: NetLimits,
    behaviour: impl AsyncFn(&mut TestRank),
) {
    let fabric = |me| {
        let devices = has_port(me).then_some(devices);
        Fabric::mixed(streams, devices, Peer(me), ranks, limits)
    };
    let make = |me| {
        let rank = TestRank::new(fabric(me), me, ranks, OneSidedReach::May);
        TestRank { sleeps, ..rank }
    };
    let all = with_records((0..ranks).map(make).collect());
    let port = |rank| (0..rank).filter(|before| has_port(*before)).count() as u32;
    let ports: Vec<_> = (0..ranks)
        .map(|rank| has_port(rank).then(|| port(rank)))
        .collect();
    let runs = |rank: u32| {
        let port = ports[rank as usize];
        let is_asleep = |port| devices.is_asleep(port);
        !streams.is_asleep(rank) || port.is_some_and(|port| !is_asleep(port))
    };
    let awake = awake_at_the_end(&behaviour);
    let behaviour = until_quiet(ranks, &awake);
    in_turn_if(all, behaviour, runs, |_| {
        streams.advance();
        if (0..ranks).all(|rank| !runs(rank)) {
            // The network of streams advances as far as the network of devices below.
            streams.pass(1_000_000);
        }
        let _ = devices.advance() || devices.advance_until(devices.now_ns() + 1_000_000);
        true
    });
    (0..ranks).for_each(|rank| assert_eq!(streams.overslept(rank), 0, "rank {rank}"));
}

/// Runs ranks that are connected by TCP within this host, each in its own thread, which sleeps when idle.
pub fn tcp_asleep<B>(ranks: u32, behaviour: B)
where
    B: AsyncFn(&mut TestRank) + Copy + Send + 'static,
{
    asleep(tcp_ranks(ranks), behaviour);
}

/// Runs ranks that reach each other by RoCE over UDP within this host, and take turns in one thread.
pub fn roce(ranks: u32, behaviour: impl AsyncFn(&mut TestRank)) {
    in_turn(roce_ranks(ranks), until_quiet(ranks, &behaviour), |_| true);
}

/// Runs ranks that reach each other by RoCE over UDP within this host, each in its own thread, which sleeps when idle.
pub fn roce_asleep<B>(ranks: u32, behaviour: B)
where
    B: AsyncFn(&mut TestRank) + Copy + Send + 'static,
{
    asleep(roce_ranks(ranks), behaviour);
}

fn roce_ranks(ranks: u32) -> Vec<TestRank> {
    // `OneSidedReach::May`: a refused key breaks its queue pair, and then the outcome of the operations in flight is
    // not determined.
    let make = |me| TestRank::new(roce_fabric(me, ranks), me, ranks, OneSidedReach::May);
    with_records((0..ranks).map(make).collect())
}

/// The fabric of a rank that has only RoCE over UDP within this host.
pub fn roce_fabric(me: u32, ranks: u32) -> Fabric {
    let terms = TcpTerms {
        interfaces: "lo".to_owned(),
        ..TcpTerms::default()
    };
    let fabric = Fabric::open(Config {
        me: Peer(me),
        peers: ranks,
        providers: Providers {
            shm: false,
            verbs: false,
            tcp: false,
            roce: true,
            dpdk: false,
        },
        network: NetworkSettings::default().over_tcp(terms).with_key(0x7c9),
        ..Config::alone()
    });
    fabric.unwrap_or_else(|error| panic!("{error}"))
}

/// Runs ranks that reach each other by RoCE over a network with faults, once for each seed (seed 0: without faults).
/// `RMPI_TEST_SEED` works as in [`sim`].
pub fn packets(ranks: u32, seeds: u64, behaviour: impl AsyncFn(&mut TestRank)) {
    for seed in chosen(seeds) {
        let _failing = Failing(seed);
        let permille = (seed * 5 % 16) as u32;
        let net = PacketNet::new(PacketFaults {
            seed,
            loss: permille,
            twice: permille,
            damage: permille,
            full: permille,
            late: permille,
            most_delay_ns: seed % 5 * 100_000,
            ..PacketFaults::default()
        });
        let limits = NetLimits {
            datagrams_first: (seed % 5) as u32,
            terms: NetTerms {
                answer_ms: 1,
                ..NetTerms::default()
            },
            ..NetLimits::default()
        };
        let fabric = |me| Fabric::packeted(&net, Peer(me), ranks, limits);
        // `OneSidedReach::May`: it is not determined whether a queue pair that breaks has performed an atomic
        // operation.
        let make = |me| TestRank::new(fabric(me), me, ranks, OneSidedReach::May);
        let all = with_records((0..ranks).map(make).collect());
        in_turn(all, until_quiet(ranks, &behaviour), |_| {
            net.pass(50_000);
            true
        });
    }
}

/// Runs ranks, each in its own thread, which sleeps when idle.
fn asleep<B>(all: Vec<TestRank>, behaviour: B)
where
    B: AsyncFn(&mut TestRank) + Copy + Send + 'static,
{
    let ranks = all.len() as u32;
    let ends = Arc::new(Mutex::new([0; 2]));
    let count = |ends: &Mutex<[u32; 2]>, phase: usize, more| {
        let mut ends = ends.lock().unwrap();
        ends[phase] += more;
        ends[phase]
    };
    let threads: Vec<_> = all
        .into_iter()
        .map(|mut rank| {
            let ends = Arc::clone(&ends);
            let behaviour = async move |rank: &mut TestRank| {
                rank.sleeps = true;
                behaviour(rank).await;
                // The network does not signal that the other ranks are done.
                rank.sleeps = false;
                count(&ends, 0, 1);
                while count(&ends, 0, 0) < ranks || !rank.fabric.is_quiet() {
                    rank.turn().await;
                }
                count(&ends, 1, 1);
                while count(&ends, 1, 0) < ranks {
                    rank.turn().await;
                }
            };
            std::thread::spawn(move || run(&mut rank, behaviour))
        })
        .collect();
    threads.into_iter().for_each(|t| t.join().unwrap());
}

fn tcp_ranks(ranks: u32) -> Vec<TestRank> {
    let make = |me| TestRank::new(tcp_fabric(me, ranks, 0x7c9), me, ranks, OneSidedReach::Must);
    with_records((0..ranks).map(make).collect())
}

/// The fabric of a rank that has only TCP within this host.
pub fn tcp_fabric(me: u32, ranks: u32, key: u32) -> Fabric {
    let terms = TcpTerms {
        interfaces: "lo".to_owned(),
        ..TcpTerms::default()
    };
    tcp_fabric_with(me, ranks, key, terms, NetLimits::default())
}

/// The fabric of a rank that has only TCP within this host, with these settings.
pub fn tcp_fabric_with(
    me: u32,
    ranks: u32,
    key: u32,
    terms: TcpTerms,
    limits: NetLimits,
) -> Fabric {
    let fabric = Fabric::open(Config {
        me: Peer(me),
        peers: ranks,
        providers: Providers {
            shm: false,
            verbs: false,
            tcp: true,
            roce: false,
            dpdk: false,
        },
        network: NetworkSettings::default()
            .over_tcp(terms)
            .within(limits)
            .with_stream_key(StreamKey::new(key.into())),
        ..Config::alone()
    });
    fabric.unwrap_or_else(|error| panic!("{error}"))
}

/// Runs ranks on a given simulated network.
pub fn sim_on(net: &SimNet, behaviour: impl AsyncFn(&mut TestRank)) {
    let ranks = net.ranks();
    let reach = if net.config().one_sided {
        OneSidedReach::Must
    } else {
        OneSidedReach::Never
    };
    let make = |me| TestRank::new(Fabric::simulated(net, Peer(me)), me, ranks, reach);
    in_turn((0..ranks).map(make).collect(), behaviour, |_| net.advance());
}

/// Runs the behaviour of one rank to its end, while other ranks run in other threads or processes.
pub fn run(rank: &mut TestRank, behaviour: impl AsyncFn(&mut TestRank)) {
    {
        let mut future = pin!(behaviour(rank));
        let mut context = Context::from_waker(Waker::noop());
        let limit = Instant::now() + Duration::from_secs(180);
        while future.as_mut().poll(&mut context).is_pending() {
            assert!(Instant::now() < limit, "a rank waits for ever");
            wait::yield_core();
        }
    }
    rank.assert_empty();
}

fn shm_ranks(ranks: u32) -> Vec<TestRank> {
    let file = segment_file_with(ranks, JOB, ARENA_BYTES);
    let reach = if can_reach_own_process() {
        OneSidedReach::Must
    } else {
        OneSidedReach::May
    };
    (0..ranks)
        .map(|me| TestRank::new(open(&file, JOB, me, ranks), me, ranks, reach))
        .collect()
}

/// Polls the ranks in turn until all are done, and calls `between` after each round.
fn in_turn(
    ranks: Vec<TestRank>,
    behaviour: impl AsyncFn(&mut TestRank),
    between: impl FnMut(u64) -> bool,
) {
    in_turn_if(ranks, behaviour, |_| true, between);
}

/// Polls the ranks in turn until all are done, and calls `between` after each round. Ranks for which `runs` returns
/// `false` are skipped.
fn in_turn_if(
    mut ranks: Vec<TestRank>,
    behaviour: impl AsyncFn(&mut TestRank),
    runs: impl Fn(u32) -> bool,
    mut between: impl FnMut(u64) -> bool,
) {
    let mut context = Context::from_waker(Waker::noop());
    let mut futures: Vec<Option<Pin<Box<dyn Future<Output = ()> + '_>>>> = Vec::new();
    for rank in &mut ranks {
        futures.push(Some(Box::pin(behaviour(rank))));
    }
    let mut idle = 0;
    for round in 0.. {
        for (rank, place) in (0..).zip(&mut futures) {
            let done = runs(rank)
                && place
                    .as_mut()
                    .is_some_and(|f| f.as_mut().poll(&mut context) == Poll::Ready(()));
            if done {
                *place = None;
            }
        }
        if futures.iter().all(Option::is_none) {
            break;
        }
        idle = if between(round) { 0 } else { idle + 1 };
        assert!(idle < 10_000, "nothing is under way and ranks wait");
        assert!(round < MOST_ROUNDS, "ranks wait for ever");
    }
    drop(futures);
    for rank in &ranks {
        rank.assert_empty();
    }
}

/// The seeds to run: with `RMPI_TEST_SEED` only that seed; with `RMPI_TEST_AT_LENGTH`, which the test stage `soak`
/// sets, all `count` seeds; otherwise the first third of them, but at least 3 (or all, if there are fewer).
fn chosen(count: u64) -> Range<u64> {
    let only = std::env::var("RMPI_TEST_SEED").ok();
    let only = only.map(|seed| seed.parse::<u64>().unwrap());
    let short = match std::env::var_os("RMPI_TEST_AT_LENGTH") {
        Some(_) => count,
        None => (count / 3).max(count.min(3)),
    };
    only.map_or(0..short, |seed| seed..seed + 1)
}

/// Prints the seed if the test panics.
pub struct Failing(pub u64);

impl Drop for Failing {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("failing seed: RMPI_TEST_SEED={}", self.0);
        }
    }
}

const CHILD: &str = "RMPI_TEST_CHILD";
const MOST_ROUNDS: u64 = 3_000_000;
