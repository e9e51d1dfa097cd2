// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of requests on queue pairs, of datagrams, and of the access to memory.

use std::net::Ipv6Addr;

use super::super::super::NetTerms;
use super::super::super::fake::tests::block::{inline, request};
use super::super::super::port::{
    CallError, CqKind, DatagramDestination, GRH_BYTES, PortEvent, Receives, RegionAccess, Sge,
    VerbsPort, WorkBody, WorkOpcode, WorkStatus,
};
use super::super::Udp;
use super::side::{BLOCK, Q_KEY, Side, end, join, joined, remote, until_done};

fn pattern(bytes: usize) -> Vec<u8> {
    (0..bytes).map(|at| (at * 7 % 251) as u8).collect()
}

#[test]
fn a_message_completes_at_both_sides() {
    let (mut sides, [here, _]) = joined();
    sides[1].give(Receives::Shared, 0, 2);
    assert!(sides[0].send(here, 7, b"hello"));
    let came = until_done(&mut sides, 1, CqKind::Receives);
    assert_eq!((came[0].work, came[0].bytes), (0, 5));
    assert_eq!(came[0].status, WorkStatus::Success);
    assert_eq!(sides[1].buffer(0, 5), b"hello");
    assert_eq!(end(&mut sides, 0), (7, WorkStatus::Success));
}

#[test]
fn messages_arrive_over_ipv6() {
    let here = Ipv6Addr::LOCALHOST.into();
    let side = || Side::over(Udp::open(here, 65_536).unwrap(), &NetTerms::DEFAULT);
    let mut sides = [side(), side()];
    let [pair, _] = join(&mut sides);
    sides[1].give(Receives::Shared, 0, 1);
    assert!(sides[0].send(pair, 7, b"hello"));
    assert_eq!(end(&mut sides, 0), (7, WorkStatus::Success));
    assert_eq!(sides[1].buffer(0, 5), b"hello");
    // IPv4 and IPv6 ports cannot reach each other.
    let mut other = Side::open();
    assert!(
        other
            .port
            .create_address_handle(&sides[0].port.address())
            .is_err()
    );
    assert!(
        sides[0]
            .port
            .create_address_handle(&other.port.address())
            .is_err()
    );
}

#[test]
fn datagrams_arrive_with_the_number_of_their_sender() {
    let (mut sides, _) = joined();
    sides[1].give(Receives::Datagrams, 3, 1);
    let handle = sides[0]
        .port
        .create_address_handle(&sides[1].port.address())
        .unwrap();
    let mailbox = DatagramDestination {
        handle,
        number: sides[1].port.datagram_number(),
        key: Q_KEY,
    };
    let posted = sides[0]
        .port
        .post_datagram(mailbox, 9, WorkBody::Inline(b"note"), true);
    posted.unwrap();
    let came = until_done(&mut sides, 1, CqKind::Receives)[0];
    assert_eq!((came.work, came.bytes as usize), (3, GRH_BYTES + 4));
    assert_eq!(came.source, sides[0].port.datagram_number());
    assert_eq!(sides[1].buffer(3, came.bytes)[GRH_BYTES..], *b"note");
    assert_eq!(end(&mut sides, 0), (9, WorkStatus::Success));
    // A datagram with another Q_Key is dropped; its send completes nevertheless.
    sides[1].give(Receives::Datagrams, 4, 1);
    let wrong = DatagramDestination {
        key: Q_KEY + 1,
        ..mailbox
    };
    let posted = sides[0]
        .port
        .post_datagram(wrong, 10, WorkBody::Inline(b"x"), true);
    posted.unwrap();
    assert_eq!(end(&mut sides, 0), (10, WorkStatus::Success));
    assert_eq!(sides[1].done(CqKind::Receives), []);
    sides[0].port.destroy_address_handle(handle);
    assert!(
        sides[0]
            .port
            .post_datagram(mailbox, 11, WorkBody::Inline(b"x"), true)
            .is_err()
    );
}

#[test]
fn memory_is_written_and_read_over_several_packets() {
    let (mut sides, [here, _]) = joined();
    let key = sides[1].region.remote_key;
    for bytes in [1usize, 4096, 4097, 100_000] {
        let content = pattern(bytes);
        sides[0].block.put(0, &content);
        let piece = sides[0].piece(0, bytes as u32);
        let address = sides[1].address(8);
        let write = WorkOpcode::Write { address, key };
        assert!(sides[0].post(here, request(1, write, piece)));
        assert_eq!(end(&mut sides, 0), (1, WorkStatus::Success));
        assert!(sides[1].block.get(8, bytes) == content, "{bytes} bytes");
        sides[0].block.put(0, &vec![0; bytes]);
        let read = WorkOpcode::Read { address, key };
        assert!(sides[0].post(here, request(2, read, piece)));
        assert_eq!(end(&mut sides, 0), (2, WorkStatus::Success));
        assert!(sides[0].block.get(0, bytes) == content, "{bytes} bytes");
    }
}

#[test]
fn atomics_change_remote_memory() {
    let (mut sides, [here, _]) = joined();
    let (key, address) = (sides[1].region.remote_key, sides[1].address(64));
    sides[1].block.put(64, &40u64.to_ne_bytes());
    let result = sides[0].piece(128, 8);
    let add = WorkOpcode::FetchAdd {
        address,
        key,
        add: 2,
    };
    assert!(sides[0].post(here, request(1, add, result)));
    assert_eq!(end(&mut sides, 0), (1, WorkStatus::Success));
    assert_eq!(sides[0].block.get(128, 8), 40u64.to_ne_bytes());
    let swap = WorkOpcode::CompareSwap {
        address,
        key,
        compare: 42,
        swap: 5,
    };
    assert!(sides[0].post(here, request(2, swap, result)));
    assert_eq!(end(&mut sides, 0), (2, WorkStatus::Success));
    assert_eq!(sides[1].block.get(64, 8), 5u64.to_ne_bytes());
}

#[test]
fn remote_access_beyond_a_regions_rights_fails() {
    let (mut sides, _) = joined();
    let whole = sides[1].region;
    let read_only = sides[1].register(0, 64, RegionAccess::Read);
    let own = sides[1].register(0, 64, RegionAccess::Own);
    let deregistered = sides[1].register(0, 64, RegionAccess::Full);
    sides[1].port.deregister(deregistered);
    let base = sides[1].address(0);
    let write = |address, key| WorkOpcode::Write { address, key };
    let read = |address, key| WorkOpcode::Read { address, key };
    let beyond = base + BLOCK as u64;
    for (number, operation) in (0..).zip([
        write(base, read_only.remote_key),
        write(base, own.remote_key),
        read(base, own.remote_key),
        read(base, deregistered.remote_key),
        read(base, whole.remote_key ^ 1 << 20),
        read(base, 0),
        read(base + 57, read_only.remote_key),
        read(beyond - 7, whole.remote_key),
        write(beyond, whole.remote_key),
        write(base - 1, whole.remote_key),
        write(u64::MAX - 3, whole.remote_key),
        WorkOpcode::FetchAdd {
            address: base,
            key: read_only.remote_key,
            add: 1,
        },
    ]) {
        let [here, there] = join(&mut sides);
        let piece = sides[0].piece(0, 8);
        sides[0].block.put(0, &[9; 8]);
        assert!(sides[0].post(here, request(number, operation, piece)));
        assert_eq!(
            end(&mut sides, 0),
            (number, WorkStatus::RemoteAccess),
            "{operation:?}"
        );
        assert_eq!(sides[1].block.get(0, 64), [0; 64], "{operation:?}");
        assert_eq!(sides[0].block.get(0, 8), [9; 8], "{operation:?}");
        // The other end broke too, although it had posted no request.
        assert_eq!(
            sides[1].port.next_event(),
            Some(PortEvent::QueuePairLost(there.number))
        );
        assert_eq!(sides[1].port.next_event(), None);
        sides[0].port.destroy(here);
        sides[1].port.destroy(there);
    }
}

#[test]
fn unregistered_local_memory_fails() {
    let (mut sides, _) = joined();
    let constant = sides[0].register(0, 64, RegionAccess::OwnRead);
    let key = sides[1].region.remote_key;
    let address = sides[1].address(0);
    let foreign = |piece: Sge, local_key| Sge { local_key, ..piece };
    let piece = sides[0].piece(0, 8);
    for (operation, piece) in [
        (WorkOpcode::Send, foreign(piece, 0)),
        (
            WorkOpcode::Write { address, key },
            foreign(piece, key ^ 1 << 30),
        ),
        (
            WorkOpcode::Read { address, key },
            foreign(piece, constant.local_key),
        ),
        (WorkOpcode::Send, sides[0].piece(BLOCK - 4, 8)),
    ] {
        let [here, _] = join(&mut sides);
        sides[1].give(Receives::Shared, 0, 1);
        assert!(sides[0].post(here, request(1, operation, piece)));
        assert_eq!(
            end(&mut sides, 0),
            (1, WorkStatus::LocalProtection),
            "{operation:?}"
        );
    }
}

#[test]
fn a_broken_pair_flushes_posts_and_a_destroyed_one_discards_them() {
    let (mut sides, [here, there]) = joined();
    assert!(sides[0].send(here, 1, b"no buffer for it"));
    sides[0].port.fail(here);
    assert_eq!(end(&mut sides, 0), (1, WorkStatus::Flushed));
    assert!(sides[0].send(here, 2, b"x"));
    assert_eq!(end(&mut sides, 0), (2, WorkStatus::Flushed));
    assert!(sides[0].send(here, 3, b"x"));
    sides[0].port.destroy(here);
    assert_eq!(sides[0].done(CqKind::Sends), []);
    assert!(!sides[0].send(here, 4, b"x"), "it is destroyed");
    assert_eq!(
        sides[0].port.next_event(),
        None,
        "no event for its own call"
    );
    sides[1].port.destroy(there);
    // The index of the destroyed queue pair is used again, with another number.
    let again = sides[0].port.create().unwrap();
    assert_ne!(again.number, here.number);
}

#[test]
fn a_silent_peer_breaks_the_queue_pair() {
    let (mut sides, [here, there]) = joined();
    sides[1].port.destroy(there);
    assert!(sides[0].post(here, inline(5, b"x")));
    assert_eq!(end(&mut sides, 0), (5, WorkStatus::RetryExceeded));
}

#[test]
fn a_queue_pair_connects_once_and_only_to_a_reachable_address() {
    let mut sides = [Side::open(), Side::open()];
    let [here, there] = join(&mut sides);
    let to = remote(&sides[1], there, [1, 1]);
    let errno = |error: CallError| (error.call, error.errno);
    let fails = |errno| Err(("ibv_modify_qp", errno));
    let port = &mut sides[0].port;
    assert_eq!(port.connect(here, &to).map_err(errno), fails(libc::EINVAL));
    let fresh = port.create().unwrap();
    let mut wrong = to;
    wrong.sq_psn = 1 << 24;
    assert_eq!(
        port.connect(fresh, &wrong).map_err(errno),
        fails(libc::EINVAL)
    );
    let mut elsewhere = to;
    elsewhere.address.gid = [0x20; 16];
    let unreached = fails(libc::EHOSTUNREACH);
    assert_eq!(port.connect(fresh, &elsewhere).map_err(errno), unreached);
    assert!(!sides[0].send(fresh, 1, b"x"), "it is not joined");
    assert_eq!(sides[0].port.connect(fresh, &to), Ok(()));
}
