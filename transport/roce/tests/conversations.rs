// SPDX-License-Identifier: MIT OR Apache-2.0
//! Replays one side of the captured conversations of two `rdma_rxe` devices with this engine. As responder the engine
//! must send the responses that `rdma_rxe` sent. As requester it must send the packets that `rdma_rxe` sent, and the
//! captured responses must complete its requests.

mod common;

use common::arena::Arena;
use common::capture;
use common::end::{End, address};
use roce::format::{MessagePosition, NetworkHeaders, OpcodeClass, Packet};
use roce::{CompletionStatus, Config, QueuePairState, RequestOpcode, RoceSge};

/// Pairs of connected queue pairs: the QPN on host 1, and the QPN on host 2.
const CONVERSATIONS: [(u32, u32); 8] = [
    (17, 17),
    (18, 19),
    (21, 23),
    (22, 24),
    (23, 25),
    (24, 26),
    (25, 27),
    (26, 28),
];

#[test]
fn responder_sends_the_responses_of_rxe() {
    let mut flows = 0;
    for flow in flows_with_requests() {
        let mut end = responder(&flow);
        let mut answers = Vec::new();
        for packet in &flow.requests {
            end.receive_packet(0, packet);
            while let Some(wire) = end.next_on_wire(0) {
                answers.push(plain(&wire[..wire.len() - 4]));
            }
        }
        // The number of repetitions of a response depends on timing, so they are removed.
        answers.dedup();
        let mut wanted: Vec<_> = flow.answer_bytes.iter().map(|bytes| plain(bytes)).collect();
        wanted.dedup();
        assert_eq!(answers, wanted, "to {}", flow.config.number);
        assert_eq!(end.pair.state(), QueuePairState::Ready);
        let messages = flow.requests_posted();
        let sends = messages
            .iter()
            .filter(|posted| posted.operation == RequestOpcode::Send);
        let received = end.receives_done();
        assert_eq!(received.len(), sends.count());
        flows += 1;
    }
    assert_eq!(flows, 11);
}

#[test]
fn requester_sends_the_packets_of_rxe() {
    for flow in flows_with_requests() {
        let mut end = End::new(flow.requester_config(), address(flow.to_host));
        let posted = flow.requests_posted();
        for (work, posted) in (0..).zip(&posted) {
            let key = u32::try_from(work + 1).expect("it is small");
            end.arena.add(key, posted.bytes.clone());
            let bytes = u32::try_from(posted.bytes.len()).expect("it is short");
            let body = common::arena::sge(key, 0, bytes);
            end.post(work, posted.operation, body);
        }
        let sent = std::iter::from_fn(|| end.next_on_wire(0));
        let sent: Vec<_> = sent.map(|wire| plain(&wire[..wire.len() - 4])).collect();
        let mut wanted: Vec<Vec<u8>> = Vec::new();
        for bytes in &flow.request_bytes {
            let bytes = plain(bytes);
            if !wanted.contains(&bytes) {
                wanted.push(bytes);
            }
        }
        assert_eq!(sent, wanted, "to {}", flow.config.number);

        for packet in &flow.answers {
            end.receive_packet(0, packet);
        }
        let done = end.sends_done();
        assert_eq!(done.len(), posted.len());
        assert!(
            done.iter()
                .all(|done| done.status == CompletionStatus::Success)
        );
        assert_eq!(end.pair.counts().went_back, 0);
    }
}

/// The captured requests to one queue pair, and its responses.
struct Flow {
    /// The attributes of the responder.
    config: Config,
    to_host: u8,
    requests: Vec<Packet<'static>>,
    request_bytes: Vec<&'static [u8]>,
    answers: Vec<Packet<'static>>,
    answer_bytes: Vec<&'static [u8]>,
}

/// A request as it was posted. `bytes` are zeros if its response carries data.
struct Posted {
    operation: RequestOpcode,
    bytes: Vec<u8>,
}

impl Flow {
    fn requester_config(&self) -> Config {
        Config {
            number: self.config.remote_number,
            remote_number: self.config.number,
            to: address(3 - self.to_host),
            sq_psn: self.config.rq_psn,
            ..self.config
        }
    }

    /// Reassembles the posted requests from the captured packets; retransmissions are ignored.
    fn requests_posted(&self) -> Vec<Posted> {
        let mut posted: Vec<Posted> = Vec::new();
        let mut next = self.config.rq_psn;
        for packet in self.requests.iter() {
            if packet.bth.psn != next {
                continue;
            }
            let opcode = packet.bth.opcode;
            let operation = operation(packet);
            let mut bytes = packet.payload.to_vec();
            let mut packets = 1;
            if opcode.kind() == OpcodeClass::ReadRequest {
                let wanted = packet.reth().map_or(0, |reth| reth.bytes);
                bytes = vec![0; wanted as usize];
                packets = wanted.div_ceil(1024);
            } else if packet.atomic().is_some() {
                bytes = vec![0; 8];
            }
            next = next.plus(packets);
            match (opcode.position(), posted.last_mut()) {
                (MessagePosition::Middle | MessagePosition::Last, Some(last)) => {
                    last.bytes.extend(bytes)
                }
                _ => posted.push(Posted { operation, bytes }),
            }
        }
        posted
    }
}

fn operation(packet: &Packet<'_>) -> RequestOpcode {
    let (address, key) = packet
        .reth()
        .map_or((0, 0), |reth| (reth.address, reth.key));
    match (packet.bth.opcode.kind(), packet.atomic()) {
        (OpcodeClass::Write, _) => RequestOpcode::Write { address, key },
        (OpcodeClass::ReadRequest, _) => RequestOpcode::Read { address, key },
        (OpcodeClass::FetchAdd, Some(atomic)) => RequestOpcode::FetchAdd {
            address: atomic.address,
            key: atomic.key,
            add: atomic.swap,
        },
        (_, Some(atomic)) => RequestOpcode::CompareSwap {
            address: atomic.address,
            key: atomic.key,
            compare: atomic.compare,
            swap: atomic.swap,
        },
        _ => RequestOpcode::Send,
    }
}

fn flows_with_requests() -> Vec<Flow> {
    let both = CONVERSATIONS
        .iter()
        .flat_map(|(one, two)| [(1, *one, *two), (2, *two, *one)]);
    both.filter_map(|(host, number, remote_number)| flow(host, number, remote_number))
        .collect()
}

/// The requests that a queue pair of a host received, and its responses; `None`: it received no requests.
fn flow(host: u8, number: u32, remote_number: u32) -> Option<Flow> {
    let mut flow = Flow {
        config: Config::new(number, remote_number, address(3 - host)),
        to_host: 3 - host,
        requests: Vec::new(),
        request_bytes: Vec::new(),
        answers: Vec::new(),
        answer_bytes: Vec::new(),
    };
    for datagram in capture::datagrams() {
        let (_, carried) = NetworkHeaders::parse(datagram).expect("it is UDP");
        let bytes = &carried[..carried.len() - 4];
        let packet = Packet::parse(bytes).expect("it is a packet");
        let is_answer = packet.bth.opcode.is_answer();
        let to = (datagram[19], packet.bth.destination);
        if to == (host, number) && !is_answer {
            flow.requests.push(packet);
            flow.request_bytes.push(bytes);
        } else if to == (3 - host, remote_number) && is_answer {
            flow.answers.push(packet);
            flow.answer_bytes.push(bytes);
        }
    }
    flow.config.rq_psn = flow.requests.first()?.bth.psn;
    Some(flow)
}

/// An end with the memory that the requests access. The memory has the content that it had when `rdma_rxe` executed
/// them.
fn responder(flow: &Flow) -> End {
    let mut end = End::new(flow.config, address(3 - flow.to_host));
    add_memory(&mut end.arena, flow);
    end.arena.add(1, vec![0; 4096]);
    for work in 0..64 {
        let buffer = RoceSge {
            key: 1,
            address: common::arena::address(1),
            bytes: 4096,
        };
        assert!(end.receives.post(work, buffer));
    }
    end
}

fn add_memory(arena: &mut Arena, flow: &Flow) {
    let first = flow.requests[0];
    if let Some(atomic) = first.atomic() {
        let value = flow.answers[0].atomic_ack().map_or(0, |ack| ack.value);
        arena.add_at(atomic.key, atomic.address, value.to_ne_bytes().to_vec());
    }
    if let Some(reth) = first.reth() {
        let mut bytes: Vec<u8> = Vec::new();
        for answer in &flow.answers {
            bytes.extend(answer.payload);
        }
        bytes.resize(reth.bytes as usize, 0);
        arena.add_at(reth.key, reth.address, bytes);
    }
}

/// A packet with the bit MigReq cleared: this engine sets it, as adapters do, and `rdma_rxe` does not.
fn plain(bytes: &[u8]) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    bytes[1] &= !0x40;
    bytes
}
