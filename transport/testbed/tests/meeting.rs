// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of the rendezvous of hosts that run the conformance suite together, without virtual machines and devices: the
//! hosts are threads here.
#![allow(
    unsafe_code,
    clippy::unwrap_used,
    clippy::cast_possible_truncation,
    dead_code,
    unreachable_pub,
    reason = "test code may panic; its sizes are small"
)]

use std::io::Write;
use std::net::{SocketAddr, TcpStream};
use std::thread;
use std::time::{Duration, Instant};
use testbed::meeting::link::{HostLink, HostMessage};
use testbed::meeting::{MeetingHost, MeetingLimits, MeetingRank};

type End = Result<(), String>;

#[test]
fn hosts_synchronize_at_each_test() {
    let ends = hosts(2, |host| {
        for test in 0..100 {
            host.run(&format!("test {test}"), 2 + test % 5, plain)?;
        }
        Ok(())
    });
    assert_eq!(ends, [Ok(()), Ok(())]);
}

#[test]
fn test_failure_spreads_to_all_hosts_but_no_other_test() {
    // With three hosts, rank 3 is on host a, and rank 4 on host b.
    for (who, on) in [(3, 0), (4, 1)] {
        let begin = Instant::now();
        let ends = hosts(3, move |host| {
            host.run("before", 7, plain)?;
            let end = host.run("bad", 7, failing(who));
            for test in 0..20 {
                host.run(&format!("after {test}"), 7, plain)?;
            }
            end
        });
        let there = ["a", "b", "c"][on];
        for (place, end) in ends.into_iter().enumerate() {
            let here = ["a", "b", "c"][place];
            let via = match place == on {
                true => String::new(),
                false => format!("host {there} gave up: "),
            };
            let words = format!("host {here}: {via}rank {who}: seven is not eight");
            assert_eq!(end, Err(words));
        }
        assert!(begin.elapsed() < LIMITS.silence, "it was waited for");
    }
}

#[test]
fn foreign_connections_are_ignored() {
    let (mut a, mut b) = two();
    let mut connections = Vec::new();
    for words in [&b""[..], &[0; 5], &[255; 40], b"GET / HTTP/1.1\r\n\r\n"] {
        // Some connections are closed and some stay open; all are in the backlog before that of host b.
        for stays in [true, false] {
            let mut stream = TcpStream::connect(a.address()).unwrap();
            stream.write_all(words).unwrap();
            connections.extend(stays.then_some(stream));
        }
    }
    let ends = both(
        move || a.run("test", 2, plain),
        move || b.run("test", 2, plain),
    );
    assert_eq!(ends, [Ok(()), Ok(())]);
}

#[test]
fn host_of_another_run_is_refused_with_a_reason() {
    let (mut a, mut b) = two();
    let mut former = MeetingHost::other(1, 2, a.address(), RUN - 1);
    former.limits.meeting = Duration::from_secs(3);
    let of_a = thread::spawn(move || a.run("test", 2, plain));
    fails_with(
        former.run("test", 2, plain),
        "host a is in run 17 with 2 hosts, and number 1 of run 16 came",
    );
    // Host a still waits for host b.
    assert_eq!(b.run("test", 2, plain), Ok(()));
    assert_eq!(of_a.join().unwrap(), Ok(()));
}

#[test]
fn abandoned_connection_is_not_taken_for_the_host() {
    let (mut a, mut b) = two();
    b.limits.meeting = Duration::from_millis(300);
    // This connection is in the backlog of host a, which does not run yet: its Hello will be read later.
    fails_with(b.run("early", 2, plain), "it lets this host wait");
    b.limits = LIMITS;
    let ends = both(
        move || [a.run("early", 2, plain), a.run("next", 2, plain)],
        move || [b.run("next", 2, plain), Ok(())],
    );
    let [[early, next], [of_b, _]] = ends;
    fails_with(early, "host a: host b gave up: host a did not come");
    assert_eq!([next, of_b], [Ok(()), Ok(())]);
}

#[test]
fn late_host_receives_the_test_result() {
    let (mut a, mut b) = two();
    a.limits.meeting = Duration::from_millis(300);
    fails_with(a.run("late", 2, plain), "host b did not come to this test");
    a.limits = LIMITS;
    let ends = both(
        move || [a.run("next", 2, plain), Ok(())],
        move || [b.run("late", 2, plain), b.run("next", 2, plain)],
    );
    let [[of_a, _], [late, next]] = ends;
    fails_with(late, "host a gave up: host b did not come to this test");
    assert_eq!([of_a, next], [Ok(()), Ok(())]);
}

#[test]
fn hosts_with_different_tests_fail_at_once() {
    let (mut a, mut b) = two();
    let ends = both(
        move || [a.run("one", 2, plain), a.run("three", 2, plain)],
        move || [b.run("two", 2, plain), b.run("three", 2, plain)],
    );
    let [[one, of_a], [two, of_b]] = ends;
    fails_with(one, "host b never comes to this test: run the same tests");
    fails_with(two, "host a is at one, which never ran here");
    assert_eq!([of_a, of_b], [Ok(()), Ok(())]);
}

#[test]
fn absent_host_times_out() {
    let (mut a, mut b) = two();
    a.limits.meeting = Duration::from_millis(200);
    fails_with(a.run("test", 2, plain), "within 0.2 s");
    drop(a);
    b.limits.meeting = Duration::from_millis(200);
    fails_with(b.run("test", 2, plain), "refused");
}

#[test]
fn silent_or_dead_host_is_detected() {
    for (dies, words) in [
        (false, "sent nothing for 0.5 s"),
        (true, "is lost: it hung up"),
    ] {
        let (mut a, _) = two();
        a.limits.silence = Duration::from_millis(500);
        a.limits.end = Duration::from_millis(200);
        // This host is connected and then sends nothing, like a virtual machine that is stopped.
        let stream = TcpStream::connect(a.address()).unwrap();
        let mut link = HostLink::new(stream, None).unwrap();
        link.send(&HostMessage::Hello {
            host: 1,
            run: RUN,
            test: "test".into(),
        });
        link.send(&HostMessage::Here);
        link.turn().unwrap();
        let link = (!dies).then_some(link);
        fails_with(a.run("test", 2, plain), &format!("host a: host b {words}"));
        drop(link);
    }
}

#[test]
fn rank_that_never_ends_times_out() {
    let (mut a, mut b) = two();
    b.limits.test = Duration::from_millis(300);
    b.limits.end = Duration::from_millis(200);
    let stuck = |place: &MeetingRank| match place.me {
        1 => thread::sleep(Duration::from_secs(3600)),
        _ => plain(place),
    };
    let [of_a, of_b] = both(
        move || a.run("test", 2, stuck),
        move || b.run("test", 2, stuck),
    );
    fails_with(of_a, "host b gave up: the test took more than 0.3 s");
    fails_with(of_b, "host b: the test took more than 0.3 s");
}

#[test]
fn rank_can_fail_after_reporting_done() {
    let [of_a, of_b] = hosts(2, |host| {
        let end = host.run("test", 2, |place| {
            plain(place);
            assert!(place.me == 0, "something is left");
        });
        host.run("next", 2, plain)?;
        end
    })
    .try_into()
    .unwrap();
    fails_with(of_a, "host b gave up: rank 1: something is left");
    fails_with(of_b, "host b: rank 1: something is left");
}

#[test]
fn invalid_host_line_error_has_an_example() {
    for words in [
        "",
        "1/2",
        "1/2 10.77.0.1:7770",
        "2/2 10.77.0.1:7770 1",
        "0/0 10.77.0.1:7770 1",
    ] {
        let why = MeetingHost::parse(words).err().unwrap();
        assert!(why.contains(&format!("`{words}`")), "{why}");
        assert!(why.contains("as in 1/2 10.77.0.1:7770 17"), "{why}");
    }
    assert!(MeetingHost::parse("1/2 10.77.0.1:7770 1").is_ok());
    let taken = MeetingHost::parse("0/2 127.0.0.1:0 1").unwrap();
    let again = MeetingHost::parse(&format!("0/2 {} 1", taken.address()));
    assert!(again.err().unwrap().contains("cannot listen"));
}

/// Hosts a and b on this machine.
fn two() -> (MeetingHost, MeetingHost) {
    let mut a = MeetingHost::first(2, SocketAddr::from(([127, 0, 0, 1], 0)), RUN).unwrap();
    let mut b = MeetingHost::other(1, 2, a.address(), RUN);
    (a.limits, b.limits) = (LIMITS, LIMITS);
    (a, b)
}

/// Runs `count` hosts, which all run the same function, each in its own thread.
fn hosts(count: u32, run: impl Fn(&mut MeetingHost) -> End + Clone + Send + 'static) -> Vec<End> {
    let first = MeetingHost::first(count, SocketAddr::from(([127, 0, 0, 1], 0)), RUN).unwrap();
    let address = first.address();
    let others = (1..count).map(|me| MeetingHost::other(me, count, address, RUN));
    let threads: Vec<_> = std::iter::once(first)
        .chain(others)
        .map(|mut host| {
            let run = run.clone();
            host.limits = LIMITS;
            thread::spawn(move || run(&mut host))
        })
        .collect();
    threads.into_iter().map(|it| it.join().unwrap()).collect()
}

/// Runs two hosts, each in its own thread.
fn both<T: Send + 'static>(
    a: impl FnOnce() -> T + Send + 'static,
    b: impl FnOnce() -> T + Send + 'static,
) -> [T; 2] {
    let (a, b) = (thread::spawn(a), thread::spawn(b));
    [a.join().unwrap(), b.join().unwrap()]
}

/// A rank that exchanges its record and completes two phases, as each rank must.
fn plain(place: &MeetingRank) {
    let record = |rank: u32| vec![rank as u8; 40 + rank as usize];
    let records = place.exchange(record(place.me));
    let expected: Vec<_> = (0..place.ranks).map(record).collect();
    assert_eq!(records, expected);
    for phase in 1..3 {
        place.report_done();
        wait_for(place, phase);
    }
}

/// Ranks that exchange their records and complete one phase; rank `who` fails before that phase.
fn failing(who: u32) -> impl Fn(&MeetingRank) + Clone + Send + 'static {
    move |place| {
        place.exchange(Vec::new());
        assert!(place.me != who, "seven is not eight");
        place.report_done();
        wait_for(place, 1);
    }
}

fn wait_for(place: &MeetingRank, phase: u32) {
    while !place.is_over(phase) {
        thread::yield_now();
    }
}

fn fails_with(end: End, words: &str) {
    let why = end.unwrap_err();
    assert!(why.contains(words), "`{words}` is not in: {why}");
}

const RUN: u64 = 17;
/// Times that are long on any machine: no test waits for one of these limits.
const LIMITS: MeetingLimits = MeetingLimits {
    meeting: Duration::from_secs(60),
    silence: Duration::from_secs(60),
    test: Duration::from_secs(60),
    end: Duration::from_secs(60),
};
