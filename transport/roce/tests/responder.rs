// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of a responder's reaction to requests, and of its responses. IBTA vol. 1 sections 9.7.4 and 9.7.5.

mod common;

use common::arena::{address, sge};
use common::by_hand::{ACCESS, ACK, ByHand, INVALID, RNR, SEQUENCE, Seen, brief};
use common::end::{End, config, end, numbers};
use roce::{CompletionStatus, Config, MemoryAccess, QueuePairState};

/// An end with a few receive buffers of 1,000 bytes in region 8, with ids from 0 on.
fn listening() -> End {
    let mut end = end(Config {
        min_rnr_timer: 1,
        ..config()
    });
    for work in 0..4 {
        assert!(end.receives.post(work.into(), sge(8, work * 1000, 1000)));
    }
    end
}

fn statuses(end: &mut End) -> Vec<(u64, CompletionStatus, u32)> {
    let done = end.receives_done();
    done.iter()
        .map(|done| (done.work, done.status, done.bytes))
        .collect()
}

/// PSN and syndrome of each response that the end sends now.
fn answers(end: &mut End) -> Vec<(u32, u8)> {
    let seen = end.leaving(0);
    seen.iter()
        .map(|seen| (seen.psn, seen.syndrome()))
        .collect()
}

fn read(psn: u32, offset: u64, bytes: u32) -> ByHand {
    ByHand::new(0x0c, psn, &[]).reth(address(7) + offset, 7, bytes)
}

fn write(psn: u32, bytes: &[u8], key: u32) -> ByHand {
    let length = u32::try_from(bytes.len()).expect("it is short");
    ByHand::new(0x0a, psn, bytes).reth(address(8), key, length)
}

#[test]
fn a_message_of_several_packets_goes_into_one_buffer() {
    let mut end = listening();
    let bytes = numbers(600);
    ByHand::new(0, 100, &bytes[..256]).to(&mut end, 0);
    ByHand::new(1, 101, &bytes[256..512]).to(&mut end, 0);
    assert_eq!(statuses(&mut end), []);
    ByHand::new(3, 102, &bytes[512..])
        .immediate(*b"data")
        .to(&mut end, 0);
    let done = end.receives_done();
    assert_eq!((done[0].work, done[0].bytes, done[0].number), (0, 600, 1));
    assert_eq!(done[0].immediate, Some(*b"data"));
    assert_eq!(end.arena.bytes(8)[..600], *bytes);
}

#[test]
fn burst_gets_one_ack_with_the_message_count() {
    let mut end = listening();
    for psn in 100..103 {
        ByHand::new(4, psn, &[1]).to(&mut end, 0);
    }
    let seen = end.leaving(0);
    assert_eq!(brief(&seen), [(0x11, 102)]);
    let aeth = seen[0].aeth.unwrap();
    assert_eq!((aeth.msn, seen[0].syndrome()), (3, ACK));
    let silent = ByHand::new(4, 103, &[1]).with(|bth| bth.ack_request = false);
    silent.to(&mut end, 0);
    assert_eq!(answers(&mut end), []);
    assert_eq!(statuses(&mut end).len(), 4);
}

#[test]
fn empty_message_consumes_a_receive() {
    let mut end = listening();
    ByHand::new(4, 100, &[]).to(&mut end, 0);
    assert_eq!(statuses(&mut end), [(0, CompletionStatus::Success, 0)]);
}

#[test]
fn s9_7_duplicate_request_is_acknowledged_and_not_executed() {
    let mut end = listening();
    write(100, &[1], 8).to(&mut end, 0);
    ByHand::new(4, 101, &[9]).to(&mut end, 0);
    assert_eq!(statuses(&mut end).len(), 1);
    end.leaving(0);
    write(100, &[2], 8).to(&mut end, 0);
    ByHand::new(4, 101, &[9]).to(&mut end, 0);
    assert_eq!(answers(&mut end), [(101, ACK)]);
    assert_eq!(statuses(&mut end), []);
    assert_eq!(end.arena.bytes(8)[0], 9, "the send was into the same place");
    ByHand::new(4, 99, &[9]).to(&mut end, 0);
    assert_eq!(answers(&mut end), [], "it is before the first");
}

#[test]
fn s9_7_5_2_a_gap_has_one_nak() {
    let mut end = listening();
    for psn in [102, 103, 101] {
        ByHand::new(4, psn, &[1]).to(&mut end, 0);
    }
    assert_eq!(answers(&mut end), [(100, SEQUENCE)]);
    ByHand::new(4, 100, &[1]).to(&mut end, 0);
    ByHand::new(4, 102, &[1]).to(&mut end, 0);
    assert_eq!(answers(&mut end), [(101, SEQUENCE)]);
    assert_eq!(statuses(&mut end).len(), 1);
}

#[test]
fn s9_7_5_2_8_send_without_a_receive_gets_an_rnr_nak() {
    let mut end = listening();
    while !end.receives.is_empty() {
        let psn = 104 - u32::try_from(end.receives.len()).unwrap();
        ByHand::new(4, psn, &[1]).to(&mut end, 0);
    }
    end.leaving(0);
    ByHand::new(4, 104, &[5]).to(&mut end, 0);
    ByHand::new(4, 105, &[5]).to(&mut end, 0);
    assert_eq!(answers(&mut end), [(104, RNR)]);
    end.receives.post(9, sge(8, 0, 100));
    ByHand::new(4, 104, &[5]).to(&mut end, 0);
    assert_eq!(answers(&mut end), [(104, ACK)]);
    assert_eq!(
        statuses(&mut end).last(),
        Some(&(9, CompletionStatus::Success, 1))
    );
}

#[test]
fn write_with_immediate_needs_a_receive() {
    let mut end = end(config());
    let packet = ByHand::new(0x0b, 100, &[1, 2, 3]).reth(address(8), 8, 3);
    let packet = packet.immediate(*b"data");
    packet.to(&mut end, 0);
    assert_eq!(answers(&mut end), [(100, 0x2c)]);
    assert_eq!(end.arena.bytes(8)[0], 0, "nothing was written yet");
    end.receives.post(5, sge(8, 100, 0));
    packet.to(&mut end, 0);
    assert_eq!(end.arena.bytes(8)[..3], [1, 2, 3]);
    let done = end.receives_done();
    assert_eq!((done[0].work, done[0].bytes), (5, 3));
    assert_eq!(done[0].immediate, Some(*b"data"));
}

#[test]
fn s9_7_4_invalid_packet_order_in_a_message_is_refused() {
    let first = |code: u8, end: &mut End| {
        let packet = ByHand::new(code, 100, &[0; 256]);
        let packet = match code {
            6 => packet.reth(address(8), 8, 600),
            _ => packet,
        };
        packet.to(end, 0);
    };
    let wrong = [(0, 4), (0, 7), (0, 0), (6, 1), (6, 4), (0, 0x0c), (0, 0x13)];
    for (begin, code) in wrong {
        let mut end = listening();
        first(begin, &mut end);
        let packet = ByHand::new(code, 101, if code < 0x0c { &[0; 256] } else { &[] });
        let packet = match code {
            0x0c => packet.reth(address(7), 7, 1),
            0x13 => packet.atomic(address(7), 7, 0, 0),
            _ => packet,
        };
        packet.to(&mut end, 0);
        let answers = answers(&mut end);
        assert_eq!(answers.last(), Some(&(101, INVALID)), "{begin} then {code}");
        assert_eq!(end.pair.state(), QueuePairState::Error);
        let flushed: &[_] = match begin {
            0 => &[(0, CompletionStatus::Flushed, 0)],
            _ => &[],
        };
        assert_eq!(statuses(&mut end), *flushed);
    }
    for code in [1, 2, 7, 8] {
        let mut end = listening();
        ByHand::new(code, 100, &[0; 256]).to(&mut end, 0);
        assert_eq!(
            answers(&mut end),
            [(100, INVALID)],
            "{code} without a first"
        );
    }
}

#[test]
fn s9_7_4_lengths_that_violate_the_path_mtu_are_refused() {
    let wrong = [
        ByHand::new(0, 100, &[0; 255]),
        ByHand::new(0, 100, &[0; 257]),
        ByHand::new(4, 100, &[0; 257]),
        ByHand::new(6, 100, &[0; 256]).reth(address(8), 8, 256),
        ByHand::new(0x0a, 100, &[0; 4]).reth(address(8), 8, 5),
        ByHand::new(0x17, 100, &[0; 4]),
    ];
    for packet in wrong {
        let mut end = listening();
        let mut bytes = packet.bytes();
        bytes.extend([0; 4].iter().take(if bytes[0] == 0x17 { 4 } else { 0 }));
        let packet = roce::format::Packet::parse(&bytes).unwrap();
        end.receive_packet(0, &packet);
        assert_eq!(answers(&mut end), [(100, INVALID)], "{packet:?}");
    }
}

#[test]
fn a_message_longer_than_its_buffer_breaks_both_sides() {
    let mut end = end(config());
    end.receives.post(3, sge(8, 0, 300));
    ByHand::new(0, 100, &[1; 256]).to(&mut end, 0);
    ByHand::new(2, 101, &[1; 45]).to(&mut end, 0);
    assert_eq!(answers(&mut end), [(101, INVALID)]);
    assert_eq!(statuses(&mut end), [(3, CompletionStatus::LocalLength, 0)]);
}

#[test]
fn unregistered_receive_buffer_fails_both_sides() {
    let mut end = listening();
    end.arena.remove(8);
    ByHand::new(4, 100, &[1]).to(&mut end, 0);
    assert_eq!(answers(&mut end), [(100, 0x63)]);
    assert_eq!(
        statuses(&mut end),
        [(0, CompletionStatus::LocalProtection, 0)]
    );
}

#[test]
fn s9_7_5_2_4_keys_bounds_and_rights_are_checked() {
    let wrong = [
        write(100, &[1], 3),
        ByHand::new(6, 100, &[1; 256]).reth(address(8) + 8000, 8, 300),
        read(100, 8000, 193),
        ByHand::new(0x0c, 100, &[]).reth(u64::MAX - 10, 7, 20),
        ByHand::new(0x14, 100, &[]).atomic(address(8) + 8192, 8, 1, 0),
    ];
    for packet in wrong {
        let mut end = listening();
        packet.to(&mut end, 0);
        assert_eq!(answers(&mut end), [(100, ACCESS)], "{packet:?}");
        assert_eq!(end.pair.state(), QueuePairState::Error);
    }
    let mut end = listening();
    end.arena.deny(7, MemoryAccess::RemoteRead);
    read(100, 0, 1).to(&mut end, 0);
    assert_eq!(answers(&mut end), [(100, ACCESS)]);
    let mut end = listening();
    ByHand::new(0x13, 100, &[])
        .atomic(address(8) + 4, 8, 1, 0)
        .to(&mut end, 0);
    assert_eq!(answers(&mut end), [(100, INVALID)], "no multiple of 8");
}

#[test]
fn empty_write_needs_no_key() {
    let mut end = listening();
    ByHand::new(0x0a, 100, &[]).reth(0, 0, 0).to(&mut end, 0);
    assert_eq!(answers(&mut end), [(100, ACK)]);
}

#[test]
fn read_responses_take_the_psns_of_the_read() {
    let mut end = listening();
    read(100, 3, 600).to(&mut end, 0);
    read(103, 0, 0).to(&mut end, 0);
    let seen = end.leaving(0);
    let wanted = [(0x0d, 100), (0x0e, 101), (0x0f, 102), (0x10, 103)];
    assert_eq!(brief(&seen), wanted);
    let bytes: Vec<u8> = seen.iter().flat_map(|seen| seen.payload.clone()).collect();
    assert_eq!(bytes, numbers(8192)[3..603]);
    let has: Vec<bool> = seen.iter().map(|seen| seen.aeth.is_some()).collect();
    assert_eq!(has, [true, false, true, true]);
}

#[test]
fn duplicate_before_a_read_does_not_acknowledge_it() {
    let mut end = listening();
    let write = |psn| ByHand::new(0x0a, psn, &[]).reth(0, 0, 0);
    write(100).to(&mut end, 0);
    assert_eq!(brief(&end.leaving(0)), [(0x11, 100)]);
    read(101, 0, 300).to(&mut end, 0);
    write(103).to(&mut end, 0);
    end.leaving(0);
    write(100).to(&mut end, 0);
    assert_eq!(brief(&end.leaving(0)), [(0x11, 100)], "up to the read");
    write(103).to(&mut end, 0);
    assert_eq!(brief(&end.leaving(0)), [(0x11, 103)], "behind it");
}

#[test]
fn responses_to_a_repeated_read_are_marked() {
    let mut end = listening();
    let leaves = |end: &mut End| {
        let outgoing = end.pair.next_outgoing(0, &end.arena);
        outgoing.map(|it| it.is_repeated)
    };
    for is_repeated in [false, true, true] {
        read(100, 0, 300).to(&mut end, 0);
        assert_eq!(leaves(&mut end), Some(is_repeated));
        assert_eq!(leaves(&mut end), Some(is_repeated));
        assert_eq!(leaves(&mut end), None);
    }
}

#[test]
fn s9_7_5_1_repeated_read_is_answered_from_its_offset() {
    let mut end = listening();
    read(100, 0, 600).to(&mut end, 0);
    assert_eq!(
        end.next_on_wire(0).map(|wire| Seen::read(&wire).psn),
        Some(100)
    );
    read(101, 256, 344).to(&mut end, 0);
    assert_eq!(brief(&end.leaving(0)), [(0x0d, 101), (0x0f, 102)]);
    read(101, 255, 344).to(&mut end, 0);
    read(101, 256, 345).to(&mut end, 0);
    assert_eq!(end.leaving(0), [], "that is another read");
    read(101, 256, 88).to(&mut end, 0);
    read(101, 256, 256).to(&mut end, 0);
    assert_eq!(end.leaving(0), [], "the read would end before its end");
}

#[test]
fn s9_7_5_1_repeated_atomic_returns_its_first_result() {
    let mut end = listening();
    let add = ByHand::new(0x14, 100, &[]).atomic(address(8), 8, 5, 0);
    let swap = ByHand::new(0x13, 101, &[]).atomic(address(8), 8, 70, 5);
    for packet in [&add, &swap, &add, &swap] {
        packet.to(&mut end, 0);
        let seen = end.leaving(0);
        let wanted = if packet.bth.psn.get() == 100 { 0 } else { 5 };
        assert_eq!(seen[0].value, Some(wanted));
        assert_eq!((seen[0].code, seen.len()), (0x12, 1));
    }
    assert_eq!(end.arena.bytes(8)[..8], 70_u64.to_ne_bytes());
}

#[test]
fn queued_read_responses_are_limited_by_the_responder_depth() {
    let mut end = end(Config {
        responder_depth: 2,
        ..config()
    });
    for psn in 100..150 {
        read(psn, 0, 1).to(&mut end, 0);
        ByHand::new(0x0a, psn, &[]).reth(0, 0, 0).to(&mut end, 0);
        assert!(end.pair.queued_responses() <= 5);
    }
    let left = brief(&end.leaving(0));
    assert_eq!(left.iter().filter(|(code, _)| *code == 0x10).count(), 2);
}

#[test]
fn memory_deregistered_during_a_read_breaks_the_queue_pair() {
    let mut end = listening();
    read(100, 0, 600).to(&mut end, 0);
    assert!(end.next_on_wire(0).is_some());
    end.arena.remove(7);
    assert_eq!(answers(&mut end), [(101, ACCESS)]);
    assert_eq!(end.pair.state(), QueuePairState::Error);
}

#[test]
fn s9_6_1_packets_for_others_are_dropped_silently() {
    let good = ByHand::new(4, 100, &[1]);
    let others = [
        good.clone().with(|bth| bth.destination = 3),
        good.clone().with(|bth| bth.partition = 0x8001),
        ByHand::new(0x24, 100, &[1]),
        ByHand::new(0x81, 100, &[0; 16]).with(|bth| bth.destination = 3),
    ];
    let mut end = listening();
    for packet in others {
        packet.to(&mut end, 0);
    }
    let bytes = good.bytes();
    let packet = roce::format::Packet::parse(&bytes).unwrap();
    let foreign = [10, 0, 0, 3].into();
    end.pair
        .receive(0, foreign, &packet, &mut end.arena, &mut end.receives);
    assert_eq!(end.pair.counts().dropped, 5);
    assert_eq!(end.leaving(0), []);
    good.with(|bth| bth.partition = 0x7fff).to(&mut end, 0);
    assert_eq!(answers(&mut end), [(100, ACK)], "one full member is enough");
}

#[test]
fn a17_9_3_marked_requests_send_one_cnp_per_50_microseconds() {
    let mut end = listening();
    let mut sent = Vec::new();
    for (psn, now) in [(100, 0), (101, 49_999), (102, 50_000)] {
        let packet = ByHand::new(0x0a, psn, &[]).reth(0, 0, 0).bytes();
        let packet = roce::format::Packet::parse(&packet).unwrap().marked();
        end.receive_packet(now, &packet);
        sent.push(brief(&end.leaving(now)));
    }
    let notified = |psn| vec![(0x81, 0), (0x11, psn)];
    assert_eq!(sent, [notified(100), vec![(0x11, 101)], notified(102)]);
}

#[test]
fn messages_of_responses_and_of_requests_alternate() {
    let mut end = listening();
    end.post(0, roce::RequestOpcode::Send, sge(7, 0, 700));
    end.post(0, roce::RequestOpcode::Send, sge(7, 0, 100));
    read(100, 0, 700).to(&mut end, 0);
    read(103, 0, 100).to(&mut end, 0);
    let codes: Vec<u8> = end.leaving(0).iter().map(|seen| seen.code).collect();
    assert_eq!(codes, [0x0d, 0x0e, 0x0f, 0, 1, 2, 0x10, 4]);
}
