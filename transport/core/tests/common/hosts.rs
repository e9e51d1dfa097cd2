// SPDX-License-Identifier: MIT OR Apache-2.0
//! Ranks on real devices: one thread each, all in this process, or some of them in a process on another host. A hub tells
//! them each other's records, as the launcher does, and when all of them are done.
//!
//! `RMPI_TEST_HOSTS="1/2 10.77.0.1:7770"`: this process is number 1 of 2 that run the same tests in the same order, and
//! number 0 has the hub at that address.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::pin::pin;
use std::task::{Context, Waker};
use std::time::{Duration, Instant};

use transport::{Config, Fabric, NetLimits, Network, Peer, wait};

use super::{Rank, Reach};

/// Ranks that reach each other over devices alone; `sleeps`: where they find nothing to do.
pub fn devices<B>(name: &str, ranks: u32, sleeps: bool, behaviour: B)
where
    B: AsyncFn(&mut Rank) + Copy + Send + 'static,
{
    let hosts = Hosts::here();
    let listener = (hosts.me == 0).then(|| TcpListener::bind(hosts.address).unwrap());
    let address = match &listener {
        Some(listener) => listener.local_addr().unwrap(),
        None => hosts.address,
    };
    // The hub ends by itself; if it fails, so do the ranks.
    let hub = listener.map(|it| {
        let name = name.to_owned();
        std::thread::spawn(move || hub(&it, &name, ranks))
    });
    let here = (0..ranks).filter(|rank| rank % hosts.count == hosts.me);
    let threads: Vec<_> = here
        .map(|me| {
            let name = name.to_owned();
            std::thread::spawn(move || one(&name, me, ranks, address, sleeps, behaviour))
        })
        .collect();
    let ranks: Vec<_> = threads
        .into_iter()
        .map(std::thread::JoinHandle::join)
        .collect();
    let told = hub.map(std::thread::JoinHandle::join);
    assert!(ranks.iter().all(Result::is_ok), "a rank has failed");
    assert!(told.is_none_or(|told| told.is_ok()), "the hub has failed");
}

/// One rank, from its port to its end.
fn one(
    name: &str,
    me: u32,
    ranks: u32,
    hub: SocketAddr,
    sleeps: bool,
    behaviour: impl AsyncFn(&mut Rank),
) {
    let fabric = Fabric::open(Config {
        me: Peer(me),
        peers: ranks,
        network: Network {
            // As many as there are: one between two hosts.
            rails: 2,
            local_rank: me,
            // The tests of one run are strangers to each other, as jobs are.
            q_key: sum(name) & 0x7fff_ffff,
            limits: NetLimits {
                // Few enough that both ways are used, and sometimes at once.
                datagrams_first: sum(name) % 5,
                ..NetLimits::default()
            },
            ..Network::default()
        },
        ..Config::alone()
    });
    let fabric = fabric.unwrap_or_else(|error| panic!("{error}"));
    let mut meeting = Meeting::join(hub, name, me, &fabric.network_record().unwrap());
    let mut rank = Rank::new(fabric, me, ranks, Reach::May);
    rank.records = (0..ranks).map(|_| meeting.hear_bytes()).collect();
    rank.sleeps = sleeps;
    // From here on nobody waits for the hub without looking at the network.
    meeting.hub.set_nonblocking(true).unwrap();
    run(&mut rank, &mut meeting, behaviour);
    rank.assert_empty();
}

/// The behaviour, and then the answers that others still need, until nobody has anything to send.
fn run(rank: &mut Rank, meeting: &mut Meeting, behaviour: impl AsyncFn(&mut Rank)) {
    let limit = Instant::now() + LIMIT;
    let mut context = Context::from_waker(Waker::noop());
    let mut turns = 0u32;
    let mut go_on = |meeting: &mut Meeting| {
        assert!(Instant::now() < limit, "a rank waits for ever");
        turns = turns.wrapping_add(1);
        if turns.is_multiple_of(64) {
            meeting.look();
        }
        wait::yield_core();
    };
    {
        let mut future = pin!(behaviour(&mut *rank));
        while future.as_mut().poll(&mut context).is_pending() {
            go_on(meeting);
        }
    }
    meeting.say_done();
    while meeting.over == 0 || !rank.fabric.is_quiet() {
        rank.look();
        go_on(meeting);
    }
    meeting.say_done();
    while meeting.over < PHASES {
        rank.look();
        go_on(meeting);
    }
    println!("rank {}: {:?}", rank.me, rank.fabric.net_stats());
    while let Some(words) = rank.fabric.next_complaint() {
        println!("rank {}: {words}", rank.me);
    }
}

/// Which part of the hosts this one is.
struct Hosts {
    me: u32,
    count: u32,
    address: SocketAddr,
}

impl Hosts {
    fn here() -> Self {
        let Ok(words) = std::env::var("RMPI_TEST_HOSTS") else {
            return Self {
                me: 0,
                count: 1,
                address: SocketAddr::from(([127, 0, 0, 1], 0)),
            };
        };
        let (place, address) = words.split_once(' ').unwrap();
        let (me, count) = place.split_once('/').unwrap();
        Self {
            me: me.parse().unwrap(),
            count: count.parse().unwrap(),
            address: address.parse().unwrap(),
        }
    }
}

/// A rank's connection with the hub. It breaks when another rank fails.
struct Meeting {
    hub: TcpStream,
    /// Phases that are over for everybody.
    over: u32,
}

impl Meeting {
    fn join(hub: SocketAddr, name: &str, me: u32, record: &[u8]) -> Self {
        let limit = Instant::now() + LIMIT;
        let mut hub = loop {
            match TcpStream::connect(hub) {
                Ok(stream) => break stream,
                // The other host may still be at the test before this one.
                Err(why) => assert!(Instant::now() < limit, "no hub at {hub}: {why}"),
            }
            std::thread::sleep(Duration::from_millis(20));
        };
        hub.set_read_timeout(Some(LIMIT)).unwrap();
        for bytes in [name.as_bytes(), &me.to_ne_bytes(), record] {
            say_bytes(&mut hub, bytes);
        }
        Self { hub, over: 0 }
    }

    fn hear_bytes(&mut self) -> Vec<u8> {
        hear_bytes(&mut self.hub)
    }

    fn say_done(&mut self) {
        self.hub.write_all(&[0]).unwrap();
    }

    /// Whether another phase is over, without waiting.
    fn look(&mut self) {
        let mut word = [0; 1];
        match self.hub.read(&mut word) {
            Ok(1) => self.over += 1,
            Err(why) if why.kind() == ErrorKind::WouldBlock => {}
            end => panic!("another rank has failed: {end:?}"),
        }
    }
}

/// Takes the records of all ranks, tells each of them all, and then after each phase that it is over.
fn hub(listener: &TcpListener, name: &str, ranks: u32) {
    let mut places: Vec<Option<(TcpStream, Vec<u8>)>> = (0..ranks).map(|_| None).collect();
    listener.set_nonblocking(true).unwrap();
    let limit = Instant::now() + LIMIT;
    while places.iter().any(Option::is_none) {
        match listener.accept() {
            Ok((mut stream, _)) => {
                stream.set_nonblocking(false).unwrap();
                stream.set_read_timeout(Some(LIMIT)).unwrap();
                let asked = hear_bytes(&mut stream);
                assert_eq!(asked, name.as_bytes(), "the hosts run different tests");
                let rank = u32::from_ne_bytes(hear_bytes(&mut stream).try_into().unwrap());
                let record = hear_bytes(&mut stream);
                assert!(places[rank as usize].replace((stream, record)).is_none());
            }
            Err(why) => assert!(Instant::now() < limit, "not all ranks came: {why}"),
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    let (mut ranks, records): (Vec<_>, Vec<_>) = places.into_iter().flatten().unzip();
    for rank in &mut ranks {
        for record in &records {
            say_bytes(rank, record);
        }
        rank.set_nonblocking(true).unwrap();
    }
    for _ in 0..PHASES {
        // A rank that has failed hangs up; then all the others are hung up on.
        let mut done = vec![false; ranks.len()];
        while done.contains(&false) {
            for (rank, done) in ranks.iter_mut().zip(&mut done) {
                let mut word = [0; 1];
                match rank.read(&mut word) {
                    Ok(1) => *done = true,
                    Err(why) if why.kind() == ErrorKind::WouldBlock => {}
                    end => panic!("a rank hung up: {end:?}"),
                }
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        for rank in &mut ranks {
            rank.write_all(&[0]).unwrap();
        }
    }
}

fn say_bytes(to: &mut TcpStream, bytes: &[u8]) {
    let length = u32::try_from(bytes.len()).unwrap();
    to.write_all(&length.to_ne_bytes()).unwrap();
    to.write_all(bytes).unwrap();
}

fn hear_bytes(from: &mut TcpStream) -> Vec<u8> {
    let mut length = [0; 4];
    from.read_exact(&mut length).unwrap();
    let mut bytes = vec![0; u32::from_ne_bytes(length) as usize];
    from.read_exact(&mut bytes).unwrap();
    bytes
}

/// A number that a name makes (FNV-1a).
fn sum(name: &str) -> u32 {
    let step = |sum: u32, byte| (sum ^ u32::from(byte)).wrapping_mul(0x0100_0193);
    name.bytes().fold(0x811c_9dc5, step)
}

/// First everybody has done the behaviour and has nothing left to send, then everybody knows it.
const PHASES: u32 = 2;
/// Longer than any behaviour takes on an emulated machine with losses.
const LIMIT: Duration = Duration::from_secs(300);
