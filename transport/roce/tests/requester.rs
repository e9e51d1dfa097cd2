// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of the packets that a requester sends, and of its reaction to responses. IBTA vol. 1 sections 9.7 and 9.7.5.

mod common;

use common::arena::sge;
use common::by_hand::{ACCESS, ACK, ByHand, RNR, SEQUENCE, answer, brief};
use common::end::{End, config, end, numbers};
use roce::{
    CompletionStatus, Config, MemoryAccess, PostError, QueuePairState, RequestBody, RequestOpcode,
    RoceRequest,
};

const FIRST: u32 = 0x00ff_fffe;
const WRITE: RequestOpcode = RequestOpcode::Write {
    address: 0x1000,
    key: 9,
};
const READ: RequestOpcode = RequestOpcode::Read {
    address: 0x1000,
    key: 9,
};
const ADD: RequestOpcode = RequestOpcode::FetchAdd {
    address: 0x1000,
    key: 9,
    add: 5,
};

/// Posts sends of one byte, with ids from 0 on.
fn post_sends(end: &mut End, count: u64) {
    for work in 0..count {
        end.post(work, RequestOpcode::Send, sge(7, 0, 1));
    }
}

/// Attributes with a response timeout of 8,192 ns.
fn impatient() -> Config {
    Config {
        timeout: 1,
        floor_ns: 0,
        ..config()
    }
}

fn statuses(end: &mut End) -> Vec<(u64, CompletionStatus)> {
    let done = end.sends_done();
    done.iter().map(|done| (done.work, done.status)).collect()
}

fn read_answer(code: u8, psn: u32, payload: &[u8]) -> ByHand {
    let packet = ByHand::new(code, psn, payload);
    if code == 0x0e {
        packet
    } else {
        packet.aeth(ACK)
    }
}

#[test]
fn a_message_is_cut_into_packets_of_the_path_mtu() {
    let mut end = end(config());
    end.post(0, RequestOpcode::Send, sge(7, 0, 513));
    end.post(1, WRITE, sge(7, 1, 257));
    end.post(2, RequestOpcode::Send, sge(7, 0, 0));
    let seen = end.leaving(0);
    let wanted = [(0, FIRST), (1, FIRST + 1), (2, 0), (6, 1), (8, 2), (4, 3)];
    assert_eq!(brief(&seen), wanted);
    let sent: Vec<u8> = seen[..3]
        .iter()
        .flat_map(|seen| seen.payload.clone())
        .collect();
    assert_eq!(sent, numbers(513));
    let ack_request: Vec<bool> = seen.iter().map(|seen| seen.ack_request).collect();
    assert_eq!(ack_request, [false, false, true, false, true, true]);
    let reth = seen[3].reth.unwrap();
    assert_eq!((reth.address, reth.key, reth.bytes), (0x1000, 9, 257));
    assert_eq!(seen[4].reth, None);
}

#[test]
fn immediate_data_is_in_the_last_packet() {
    let mut end = end(config());
    for (work, operation) in [(0, RequestOpcode::Send), (1, WRITE)] {
        for bytes in [1, 300] {
            let request = RoceRequest {
                work,
                operation,
                body: RequestBody::Inline(&numbers(bytes)),
                immediate: Some(*b"data"),
                signaled: true,
            };
            end.pair.post(&request).unwrap();
        }
    }
    let seen = end.leaving(0);
    let codes: Vec<u8> = seen.iter().map(|seen| seen.code).collect();
    assert_eq!(codes, [5, 0, 3, 0x0b, 6, 9]);
    let has: Vec<bool> = seen.iter().map(|seen| seen.immediate.is_some()).collect();
    assert_eq!(has, [true, false, true, true, false, true]);
    assert_eq!(seen[2].payload, numbers(300)[256..]);
}

#[test]
fn window_limits_packets_and_last_requests_an_ack() {
    let mut end = end(Config {
        window_packets: 4,
        ..config()
    });
    end.post(0, RequestOpcode::Send, sge(7, 0, 2560));
    let seen = end.leaving(0);
    assert_eq!(seen.len(), 4);
    assert!(seen[1].ack_request && seen[3].ack_request);
    answer(&mut end, 0, 0, ACK);
    assert_eq!(brief(&end.leaving(0)), [(1, 2), (1, 3), (1, 4)]);
}

#[test]
fn acknowledgements_are_cumulative() {
    let mut end = end(config());
    post_sends(&mut end, 3);
    end.leaving(0);
    answer(&mut end, 0, FIRST + 1, ACK);
    assert_eq!(
        statuses(&mut end),
        [
            (0, CompletionStatus::Success),
            (1, CompletionStatus::Success)
        ]
    );
    answer(&mut end, 0, FIRST, ACK);
    answer(&mut end, 0, 1, ACK);
    assert_eq!(
        statuses(&mut end),
        [],
        "one came before, one was never sent"
    );
}

#[test]
fn unsignaled_requests_complete_only_on_failure() {
    let mut end = end(config());
    for work in 0..3 {
        let request = RoceRequest {
            work,
            operation: RequestOpcode::Send,
            body: RequestBody::Inline(&[1]),
            immediate: None,
            signaled: work == 1,
        };
        end.pair.post(&request).unwrap();
    }
    end.leaving(0);
    answer(&mut end, 0, FIRST + 1, ACK);
    assert_eq!(statuses(&mut end), [(1, CompletionStatus::Success)]);
    end.pair.fail();
    assert_eq!(statuses(&mut end), [(2, CompletionStatus::Flushed)]);
}

#[test]
fn s9_7_5_2_sequence_nak_acknowledges_earlier_and_resends_the_rest() {
    let mut end = end(config());
    post_sends(&mut end, 4);
    end.leaving(0);
    answer(&mut end, 0, FIRST + 1, SEQUENCE);
    assert_eq!(statuses(&mut end), [(0, CompletionStatus::Success)]);
    let again = [(4, FIRST + 1), (4, 0), (4, 1)];
    assert_eq!(brief(&end.leaving(0)), again);
    answer(&mut end, 0, FIRST + 1, SEQUENCE);
    assert_eq!(end.leaving(0), [], "it contains nothing new");
}

#[test]
fn s9_7_5_2_8_rnr_nak_resends_after_the_timer() {
    let mut end = end(config());
    post_sends(&mut end, 3);
    end.leaving(0);
    answer(&mut end, 5, FIRST + 1, RNR);
    answer(&mut end, 6, FIRST + 1, SEQUENCE);
    assert_eq!(statuses(&mut end), [(0, CompletionStatus::Success)]);
    assert_eq!(end.pair.deadline(), Some(10_005));
    assert_eq!(end.leaving(10_004), []);
    assert_eq!(brief(&end.leaving(10_005)), [(4, FIRST + 1), (4, 0)]);
}

#[test]
fn rnr_retries_are_limited() {
    let mut end = end(Config {
        rnr_retry: 1,
        ..config()
    });
    post_sends(&mut end, 2);
    end.leaving(0);
    answer(&mut end, 0, FIRST, RNR);
    assert_eq!(end.leaving(20_000).len(), 2);
    answer(&mut end, 20_000, FIRST, RNR);
    let wanted = [
        (0, CompletionStatus::RnrRetryExceeded),
        (1, CompletionStatus::Flushed),
    ];
    assert_eq!(statuses(&mut end), wanted);
}

#[test]
fn refused_request_breaks_the_queue_pair_after_earlier_ones_complete() {
    let mut end = end(config());
    end.post(0, RequestOpcode::Send, sge(7, 0, 1));
    end.post(1, WRITE, sge(7, 0, 600));
    end.post(2, RequestOpcode::Send, sge(7, 0, 1));
    end.leaving(0);
    answer(&mut end, 0, 0, ACCESS);
    let (bad, flushed) = (CompletionStatus::RemoteAccess, CompletionStatus::Flushed);
    assert_eq!(
        statuses(&mut end),
        [(0, CompletionStatus::Success), (1, bad), (2, flushed)]
    );
    assert_eq!(end.pair.state(), QueuePairState::Error);
    end.post(3, RequestOpcode::Send, sge(7, 0, 1));
    assert_eq!(statuses(&mut end), [(3, flushed)]);
    assert_eq!(end.leaving(0), []);
}

#[test]
fn long_read_is_split_within_the_initiator_depth() {
    let mut end = end(Config {
        read_packets: 2,
        initiator_depth: 2,
        ..config()
    });
    end.post(0, READ, sge(8, 0, 1281));
    end.post(1, RequestOpcode::Send, sge(7, 0, 1));
    let parts = |end: &mut End| -> Vec<(u32, u64, u32)> {
        let seen = end.leaving(0);
        let parts = seen.iter().filter_map(|seen| Some((seen.psn, seen.reth?)));
        parts
            .map(|(psn, reth)| (psn, reth.address, reth.bytes))
            .collect()
    };
    assert_eq!(parts(&mut end), [(FIRST, 0x1000, 512), (0, 0x1200, 512)]);
    let bytes = numbers(1281);
    read_answer(0x0d, FIRST, &bytes[..256]).to(&mut end, 0);
    assert_eq!(parts(&mut end), []);
    read_answer(0x0f, FIRST + 1, &bytes[256..512]).to(&mut end, 0);
    assert_eq!(parts(&mut end), [(2, 0x1400, 257)]);
    let rest = [(0x0d, 0, 512), (0x0f, 1, 768), (0x0d, 2, 1024)];
    for (code, psn, from) in rest {
        read_answer(code, psn, &bytes[from..from + 256]).to(&mut end, 0);
    }
    assert_eq!(statuses(&mut end), []);
    read_answer(0x0f, 3, &bytes[1280..]).to(&mut end, 0);
    assert_eq!(statuses(&mut end), [(0, CompletionStatus::Success)]);
    assert_eq!(end.arena.bytes(8)[..1281], *bytes);
    assert_eq!(end.leaving(0), []);
}

#[test]
fn s9_7_5_1_2_read_response_acknowledges_earlier_requests() {
    let mut end = end(config());
    post_sends(&mut end, 2);
    end.post(2, READ, sge(8, 0, 3));
    end.leaving(0);
    read_answer(0x10, 0, &[1, 2, 3]).to(&mut end, 0);
    let good = CompletionStatus::Success;
    assert_eq!(statuses(&mut end), [(0, good), (1, good), (2, good)]);
    assert_eq!(end.arena.bytes(8)[..4], [1, 2, 3, 0]);
}

#[test]
fn ack_past_a_read_means_its_response_was_lost() {
    let mut end = end(config());
    post_sends(&mut end, 1);
    end.post(1, READ, sge(8, 0, 600));
    end.post(2, RequestOpcode::Send, sge(7, 0, 1));
    end.leaving(0);
    read_answer(0x0d, FIRST + 1, &[5; 256]).to(&mut end, 0);
    answer(&mut end, 0, 2, ACK);
    assert_eq!(statuses(&mut end), [(0, CompletionStatus::Success)]);
    let again = end.leaving(0);
    assert_eq!(brief(&again), [(0x0c, 0), (4, 2)]);
    let reth = again[0].reth.unwrap();
    assert_eq!((reth.address, reth.bytes), (0x1100, 344), "only the rest");
}

#[test]
fn repeated_read_accepts_new_or_continued_responses() {
    // When the rest of a read is requested again, adapters and this engine begin a new response; `rdma_rxe` continues
    // the old one.
    for codes in [[0x0d, 0x0f], [0x0e, 0x0f]] {
        let mut end = end(impatient());
        end.post(0, READ, sge(8, 0, 600));
        end.leaving(0);
        read_answer(0x0d, FIRST, &[1; 256]).to(&mut end, 0);
        assert_eq!(brief(&end.leaving(8192)), [(0x0c, FIRST + 1)]);
        read_answer(codes[0], FIRST + 1, &[2; 256]).to(&mut end, 8192);
        read_answer(codes[1], 0, &[3; 88]).to(&mut end, 8192);
        assert_eq!(statuses(&mut end), [(0, CompletionStatus::Success)]);
        let brought = end.arena.bytes(8);
        assert_eq!(
            [brought[0], brought[256], brought[599], brought[600]],
            [1, 2, 3, 0]
        );
    }
}

#[test]
fn read_response_of_wrong_length_is_dropped() {
    let mut end = end(config());
    end.post(0, READ, sge(8, 0, 300));
    end.leaving(0);
    read_answer(0x0d, FIRST, &[1; 255]).to(&mut end, 0);
    read_answer(0x10, FIRST, &[1; 256]).to(&mut end, 0);
    assert_eq!(end.arena.bytes(8)[0], 0);
    read_answer(0x0d, FIRST, &[1; 256]).to(&mut end, 0);
    read_answer(0x0f, FIRST + 1, &[1; 44]).to(&mut end, 0);
    assert_eq!(statuses(&mut end), [(0, CompletionStatus::Success)]);
}

#[test]
fn atomic_operation_returns_the_old_value() {
    let mut end = end(config());
    end.post(0, ADD, sge(8, 16, 8));
    end.leaving(0);
    answer(&mut end, 0, FIRST, ACK);
    assert_eq!(statuses(&mut end), [], "that is not its answer");
    ByHand::new(0x12, FIRST, &[])
        .aeth(ACK)
        .value(0x0102_0304)
        .to(&mut end, 0);
    assert_eq!(statuses(&mut end), [(0, CompletionStatus::Success)]);
    assert_eq!(end.arena.bytes(8)[16..24], 0x0102_0304_u64.to_ne_bytes());
}

#[test]
fn sequential_atomics_and_reads_never_exhaust_the_depth() {
    for is_selective in [false, true] {
        let mut end = end(Config {
            initiator_depth: 2,
            peer_is_rmpi: is_selective,
            selective_repeat: is_selective,
            ..config()
        });
        for work in 0..20_u32 {
            let psn = (FIRST + work) & 0x00ff_ffff;
            let answer = match work % 2 {
                0 => {
                    end.post(work.into(), ADD, sge(8, 16, 8));
                    ByHand::new(0x12, psn, &[]).aeth(ACK).value(7)
                }
                _ => {
                    end.post(work.into(), READ, sge(8, 0, 4));
                    read_answer(0x10, psn, &[1, 2, 3, 4])
                }
            };
            assert_eq!(end.leaving(0).len(), 1, "{is_selective} {work}");
            answer.to(&mut end, 0);
            assert_eq!(
                statuses(&mut end),
                [(work.into(), CompletionStatus::Success)]
            );
        }
    }
}

#[test]
fn local_protection_error_completes_in_order() {
    let mut end = end(config());
    end.arena.deny(8, MemoryAccess::LocalWrite);
    post_sends(&mut end, 1);
    end.post(1, READ, sge(8, 0, 8));
    end.post(2, RequestOpcode::Send, sge(7, 0, 1));
    assert_eq!(brief(&end.leaving(0)), [(4, FIRST)]);
    assert_eq!(end.pair.state(), QueuePairState::Ready);
    answer(&mut end, 0, FIRST, ACK);
    assert_eq!(end.leaving(0), []);
    let (bad, flushed) = (CompletionStatus::LocalProtection, CompletionStatus::Flushed);
    assert_eq!(
        statuses(&mut end),
        [(0, CompletionStatus::Success), (1, bad), (2, flushed)]
    );
}

#[test]
fn unpolled_completions_occupy_the_send_queue() {
    let mut end = end(Config {
        send_depth: 2,
        ..config()
    });
    post_sends(&mut end, 2);
    end.leaving(0);
    answer(&mut end, 0, FIRST + 1, ACK);
    let request = RoceRequest {
        work: 9,
        operation: RequestOpcode::Send,
        body: RequestBody::Sge(sge(7, 0, 1)),
        immediate: None,
        signaled: true,
    };
    assert_eq!(end.pair.post(&request), Err(PostError::Full));
    assert_eq!(statuses(&mut end).len(), 2);
    assert_eq!(end.pair.post(&request), Ok(()));
}

#[test]
fn acks_after_going_back_advance_the_next_packet() {
    let mut end = end(config());
    post_sends(&mut end, 4);
    end.leaving(0);
    answer(&mut end, 0, FIRST, SEQUENCE);
    assert_eq!(end.next_on_wire(8192).map(|wire| wire[11]), Some(0xfe));
    answer(&mut end, 8192, 0, ACK);
    assert_eq!(brief(&end.leaving(8192)), [(4, 1)]);
}
