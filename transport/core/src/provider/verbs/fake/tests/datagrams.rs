// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of simulated datagrams.

use super::super::super::address::LinkLayer;
use super::super::super::port::{
    AddressHandle, CallError, CqKind, DatagramDestination, Depths, GRH_BYTES, PortCompletion,
    PortEvent, QueueFull, Receives, RegionAccess, Sge, VerbsPort, WorkBody, WorkStatus,
};
use super::super::{FakeConfig, FakeNet};
use super::side::{DEPTHS, Q_KEY, Side, mailbox, run};

/// Two ports, the second with buffers, and an address handle from the first to it.
fn linked(config: FakeConfig) -> (FakeNet, [Side; 2], AddressHandle) {
    let net = FakeNet::new(config);
    let [mut one, mut other] = [Side::open(&net), Side::open(&net)];
    assert_eq!(other.give(Receives::Datagrams, 0, 64), 64);
    let handle = one.handle(&other);
    (net, [one, other], handle)
}

fn post(
    side: &mut Side,
    handle: AddressHandle,
    number: u32,
    work: u64,
    bytes: &[u8],
) -> Result<(), QueueFull> {
    let (body, key) = (WorkBody::Inline(bytes), side.port.datagram_key());
    let to = DatagramDestination {
        handle,
        number,
        key,
    };
    side.port.post_datagram(to, work, body, true)
}

#[test]
fn a_datagram_arrives_with_its_grh_and_sender() {
    for infiniband in [false, true] {
        let config = FakeConfig {
            infiniband,
            ..FakeConfig::calm(1)
        };
        let (net, [mut one, mut other], handle) = linked(config);
        let number = other.port.datagram_number();
        assert_eq!(post(&mut one, handle, number, 7, b"hello"), Ok(()));
        run(&net);
        let done = PortCompletion {
            work: 0,
            status: WorkStatus::Success,
            bytes: 45,
            number,
            source: one.port.datagram_number(),
            vendor: 0,
        };
        assert_eq!(other.done(CqKind::Receives), [done]);
        let buffer = other.buffer(0, 45);
        assert_eq!(&buffer[GRH_BYTES..], b"hello");
        assert_eq!(buffer[8..24], one.facts().gid);
        assert_eq!(one.ends(), [(7, WorkStatus::Success)]);
        let stats = net.stats(0);
        assert_eq!((stats.datagrams, stats.datagram_bytes), (1, 5));
    }
}

#[test]
fn a_port_can_send_datagrams_to_itself() {
    let net = FakeNet::new(FakeConfig::calm(1));
    let mut one = Side::open(&net);
    one.give(Receives::Datagrams, 0, 1);
    let handle = one.port.create_address_handle(&one.port.address()).unwrap();
    let number = one.port.datagram_number();
    assert_eq!(post(&mut one, handle, number, 7, b"me"), Ok(()));
    run(&net);
    assert_eq!(one.arrived()[0].1[GRH_BYTES..], *b"me");
}

#[test]
fn datagrams_with_a_wrong_number_or_q_key_are_dropped() {
    let net = FakeNet::new(FakeConfig::calm(1));
    let mut one = Side::open(&net);
    let mut other_job = Side::open_with(&net, &DEPTHS, Q_KEY + 1);
    let mut other = Side::open(&net);
    other.give(Receives::Datagrams, 0, 4);
    let number = other.port.datagram_number();
    let handles = [one.handle(&other), other_job.handle(&other)];
    assert_eq!(post(&mut one, handles[0], number ^ 1, 1, b"x"), Ok(()));
    assert_eq!(post(&mut other_job, handles[1], number, 2, b"x"), Ok(()));
    run(&net);
    assert_eq!(other.done(CqKind::Receives), []);
    assert_eq!(net.stats(2).datagrams_foreign, 2);
    assert_eq!(
        one.ends(),
        [(1, WorkStatus::Success)],
        "the sender gets no error"
    );
    assert_eq!(other_job.ends(), [(2, WorkStatus::Success)]);
    // The Q_Key in the datagram counts, not that of the sender.
    let to = mailbox(handles[1], number);
    let status = other_job
        .port
        .post_datagram(to, 3, WorkBody::Inline(b"y"), true);
    assert_eq!(status, Ok(()));
    run(&net);
    assert_eq!(other.arrived()[0].1[GRH_BYTES..], *b"y");
}

#[test]
fn a_datagram_without_a_receive_buffer_is_dropped() {
    let net = FakeNet::new(FakeConfig::calm(1));
    let [mut one, mut other] = [Side::open(&net), Side::open(&net)];
    let (handle, number) = (one.handle(&other), other.port.datagram_number());
    assert_eq!(post(&mut one, handle, number, 1, b"x"), Ok(()));
    run(&net);
    other.give(Receives::Datagrams, 0, 1);
    run(&net);
    assert_eq!(other.done(CqKind::Receives), []);
    assert_eq!(net.stats(1).datagrams_without_buffer, 1);
    assert_eq!(one.ends(), [(1, WorkStatus::Success)]);
}

#[test]
fn datagrams_longer_than_the_mtu_of_either_port_fail() {
    let (net, [mut one, mut other], handle) = linked(FakeConfig::calm(1));
    let number = other.port.datagram_number();
    let large = other.piece(0, 2048);
    assert_eq!(
        other
            .port
            .post_receives(Receives::Datagrams, &[(99, large)]),
        0,
        "full"
    );
    for (bytes, taken) in [(1025, Err(QueueFull)), (200, Ok(()))] {
        let body = WorkBody::Piece(one.piece(0, bytes));
        assert_eq!(
            one.port
                .post_datagram(mailbox(handle, number), 1, body, true),
            taken
        );
    }
    assert_eq!(
        post(&mut one, handle, number, 2, &[0; 65]),
        Err(QueueFull),
        "inline"
    );
    assert_eq!(net.stats(0).wrong, 2);
    run(&net);
    assert_eq!(other.done(CqKind::Receives)[0].bytes, 240);
    net.set_packet_bytes(1, 256);
    let body = WorkBody::Piece(one.piece(0, 257));
    assert_eq!(
        one.port
            .post_datagram(mailbox(handle, number), 3, body, true),
        Ok(())
    );
    run(&net);
    assert_eq!(other.done(CqKind::Receives), [], "longer than its packets");
    assert_eq!(net.stats(1).datagrams_foreign, 1);
}

#[test]
fn a_buffer_that_is_too_small_breaks_the_receiver() {
    let (net, [mut one, mut other], handle) = linked(FakeConfig::calm(1));
    let number = other.port.datagram_number();
    let body = WorkBody::Piece(one.piece(0, 217));
    assert_eq!(
        one.port
            .post_datagram(mailbox(handle, number), 1, body, true),
        Ok(())
    );
    run(&net);
    let done = other.done(CqKind::Receives);
    assert_eq!((done[0].status, done.len()), (WorkStatus::LocalLength, 64));
    assert!(
        done[1..]
            .iter()
            .all(|done| done.status == WorkStatus::Flushed)
    );
    assert_eq!(other.events(), [PortEvent::QueuePairLost(number)]);
    assert_eq!(other.give(Receives::Datagrams, 0, 1), 0);
    let handle = other.handle(&one);
    let number = one.port.datagram_number();
    assert_eq!(post(&mut other, handle, number, 1, b"x"), Err(QueueFull));
}

#[test]
fn datagram_memory_is_read_at_transmission() {
    let (net, [mut one, mut other], handle) = linked(FakeConfig::calm(1));
    let number = other.port.datagram_number();
    let body = WorkBody::Piece(one.piece(0, 6));
    one.block.put(0, b"before");
    assert_eq!(
        one.port
            .post_datagram(mailbox(handle, number), 1, body, false),
        Ok(())
    );
    one.block.put(0, b"after!");
    run(&net);
    assert_eq!(other.arrived()[0].1[GRH_BYTES..], *b"after!");
    assert_eq!(one.ends(), [], "silent");
}

#[test]
fn sending_deregistered_memory_breaks_the_sender() {
    let (net, [mut one, other], handle) = linked(FakeConfig::calm(1));
    let number = other.port.datagram_number();
    let region = one.register(0, 64, RegionAccess::Own);
    let piece = Sge {
        local_key: region.local_key,
        ..one.piece(0, 8)
    };
    let body = WorkBody::Piece(piece);
    assert_eq!(
        one.port
            .post_datagram(mailbox(handle, number), 1, body, false),
        Ok(())
    );
    assert_eq!(post(&mut one, handle, number, 2, b"x"), Ok(()));
    one.port.deregister(region);
    run(&net);
    assert_eq!(
        one.ends(),
        [(1, WorkStatus::LocalProtection), (2, WorkStatus::Flushed)]
    );
    let own = one.port.datagram_number();
    assert_eq!(one.events(), [PortEvent::QueuePairLost(own)]);
}

#[test]
fn destroying_an_address_handle_in_use_is_an_error() {
    let (net, [mut one, other], handle) = linked(FakeConfig::calm(1));
    let number = other.port.datagram_number();
    assert_eq!(post(&mut one, handle, number, 1, b"x"), Ok(()));
    one.port.destroy_address_handle(handle);
    run(&net);
    assert_eq!(one.ends(), [(1, WorkStatus::Other(2))]);
    assert_eq!(post(&mut one, handle, number, 2, b"x"), Err(QueueFull));
    one.port.destroy_address_handle(handle);
    let stats = net.stats(0);
    assert_eq!((stats.wrong, stats.handles), (3, 0));
}

#[test]
fn address_handles_to_unreachable_addresses_fail() {
    let (net, [mut one, other], _) = linked(FakeConfig::calm(1));
    let errno = |error: CallError| (error.call, error.errno);
    let fails = |errno| Err(("ibv_create_ah", errno));
    let mut unused = other.port.address();
    unused.gid[15] = 200;
    assert_eq!(
        one.port.create_address_handle(&unused).map_err(errno),
        fails(libc::EHOSTUNREACH)
    );
    let mut foreign = other.port.address();
    foreign.link = LinkLayer::Infiniband;
    assert_eq!(
        one.port.create_address_handle(&foreign).map_err(errno),
        fails(libc::EINVAL)
    );
    net.port_down(0);
    let to = other.port.address();
    assert_eq!(
        one.port.create_address_handle(&to).map_err(errno),
        fails(libc::ENETUNREACH)
    );
    assert_eq!(net.stats(0).handles, 1);
}

#[test]
fn datagrams_hold_their_slots_until_a_completion_is_polled() {
    let (net, [mut one, other], handle) = linked(FakeConfig::calm(1));
    let number = other.port.datagram_number();
    let body = WorkBody::Inline(b"x");
    let depth = u64::from(DEPTHS.datagrams);
    for work in 0..depth {
        let signaled = work == 7;
        assert_eq!(
            one.port
                .post_datagram(mailbox(handle, number), work, body, signaled),
            Ok(())
        );
    }
    run(&net);
    assert_eq!(post(&mut one, handle, number, 1, b"x"), Err(QueueFull));
    assert_eq!(one.ends(), [(7, WorkStatus::Success)]);
    for _ in 0..8 {
        assert_eq!(
            one.port
                .post_datagram(mailbox(handle, number), 9, body, false),
            Ok(())
        );
    }
    assert_eq!(post(&mut one, handle, number, 1, b"x"), Err(QueueFull));
    let stats = net.stats(0);
    assert_eq!((stats.full, stats.wrong), (2, 0));
}

#[test]
fn datagrams_are_lost_doubled_and_reordered() {
    let config = FakeConfig {
        loss_permille: 200,
        duplicate_permille: 200,
        most_delay_ns: 10_000,
        ..FakeConfig::calm(5)
    };
    let (net, [mut one, mut other], handle) = linked(config);
    let number = other.port.datagram_number();
    let (mut seen, mut names) = (Vec::new(), 0);
    for work in 0..400u64 {
        assert_eq!(
            post(&mut one, handle, number, work, &work.to_le_bytes()),
            Ok(())
        );
        if work % 10 == 9 {
            run(&net);
            assert_eq!(one.ends().len(), 10);
            let arrived = other.arrived();
            names += other.give(Receives::Datagrams, names as u64, arrived.len() as u64);
            let word = |(_, bytes): &(u64, Vec<u8>)| {
                u64::from_le_bytes(bytes[GRH_BYTES..].try_into().unwrap())
            };
            seen.extend(arrived.iter().map(word));
        }
    }
    let (sender, receiver) = (net.stats(0), net.stats(1));
    assert!((50..110).contains(&sender.datagrams_doubled), "{sender:?}");
    assert!((60..130).contains(&sender.datagrams_lost), "{sender:?}");
    assert!(receiver.datagrams_overtaken > 50, "{receiver:?}");
    let all = 400 + sender.datagrams_doubled - sender.datagrams_lost;
    assert_eq!(seen.len() as u64, all);
    assert!(!seen.is_sorted());
    seen.sort_unstable();
    seen.dedup();
    assert!(seen.len() > 300 && seen.iter().all(|work| *work < 400));
}

#[test]
fn drop_datagrams_drops_the_next_ones() {
    let (net, [mut one, mut other], handle) = linked(FakeConfig::calm(1));
    let number = other.port.datagram_number();
    net.drop_datagrams(0, 2);
    for (work, packet) in (0..).zip(b"abc") {
        assert_eq!(post(&mut one, handle, number, work, &[*packet]), Ok(()));
    }
    run(&net);
    let arrived = other.arrived();
    assert_eq!((arrived.len(), arrived[0].1[GRH_BYTES]), (1, b'c'));
}

#[test]
fn opening_a_port_beyond_device_limits_fails() {
    let net = FakeNet::new(FakeConfig::calm(1));
    let calls = |depths: Depths, q_key| net.open(&depths, q_key).err().map(|error| error.call);
    assert_eq!(
        calls(
            Depths {
                completions: 40_000,
                ..DEPTHS
            },
            1
        ),
        Some("ibv_create_cq")
    );
    assert_eq!(
        calls(
            Depths {
                shared: 0,
                ..DEPTHS
            },
            1
        ),
        Some("ibv_create_srq")
    );
    assert_eq!(
        calls(
            Depths {
                datagrams: 0,
                ..DEPTHS
            },
            1
        ),
        Some("ibv_create_qp")
    );
    assert_eq!(calls(DEPTHS, 1 << 31), Some("ibv_modify_qp"));
    assert_eq!(net.ports(), 0);
    let port = net
        .open(
            &Depths {
                inline_bytes: 4096,
                ..DEPTHS
            },
            1,
        )
        .unwrap();
    let facts = port.facts();
    assert_eq!(
        (facts.inline_bytes, facts.depth, facts.packet_bytes),
        (512, 16, 1024)
    );
}
