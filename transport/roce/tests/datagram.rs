// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of unreliable-datagram queue pairs. IBTA vol. 1 section 9.8.

mod common;

use common::arena::{Arena, sge};
use common::end::{address, numbers};
use roce::format::{Bth, DATAGRAM_BYTES_MORE, Opcode, PAYLOAD_BYTES_MAX, Packet};
use roce::{
    CompletionStatus, Datagram, DatagramConfig, DatagramError, DatagramPair, PacketPayload,
    PathMtu, ReceiveQueue, RequestBody,
};

const SENDER: DatagramConfig = DatagramConfig {
    number: 17,
    key: 170,
    partition: 0xffff,
    path_mtu: PathMtu::BYTES_256,
    send_depth: 4,
};
const RECEIVER: DatagramConfig = DatagramConfig {
    number: 18,
    key: 180,
    ..SENDER
};

fn datagram(body: RequestBody<'_>) -> Datagram<'_> {
    Datagram {
        work: 1,
        to: address(2),
        number: RECEIVER.number,
        key: RECEIVER.key,
        body,
        immediate: None,
        signaled: true,
    }
}

fn arena() -> Arena {
    let mut arena = Arena::default();
    arena.add(7, numbers(1024));
    arena.add(8, vec![0; 1024]);
    arena
}

/// All packets that the queue pair sends now, without ICRCs.
fn leaving(pair: &mut DatagramPair, arena: &Arena) -> Vec<Vec<u8>> {
    let mut packets = Vec::new();
    while let Some(outgoing) = pair.next_outgoing(arena) {
        assert_eq!(outgoing.to, address(2));
        let mut packet = outgoing.headers.as_bytes().to_vec();
        match outgoing.payload {
            PacketPayload::Nothing => {}
            PacketPayload::Inline(bytes) => packet.extend(bytes),
            PacketPayload::Sge(sge) => packet.extend(arena.gather(sge)),
        }
        packet.extend(outgoing.pad());
        packets.push(packet);
    }
    packets
}

/// A receiving queue pair with one receive buffer of this length.
fn receiver(bytes: u32) -> (DatagramPair, Arena, ReceiveQueue) {
    let mut receives = ReceiveQueue::new(4);
    receives.post(5, sge(8, 0, bytes));
    (DatagramPair::new(RECEIVER), arena(), receives)
}

#[test]
fn datagram_payload_follows_the_40_byte_header() {
    let mut sender = DatagramPair::new(SENDER);
    let immediate = Some(*b"data");
    let inline = Datagram {
        immediate,
        ..datagram(RequestBody::Inline(b"hello"))
    };
    sender.post(&inline).unwrap();
    let packets = leaving(&mut sender, &arena());
    assert_eq!(
        sender.poll_sends().unwrap().status,
        CompletionStatus::Success
    );

    let (mut pair, mut arena, mut receives) = receiver(45);
    let packet = Packet::parse(&packets[0]).unwrap();
    assert_eq!(packet.bth.opcode.code(), 0x65);
    let from = address(1).ip();
    pair.receive(from, &packet, &mut arena, &mut receives);
    let received = pair.poll_receives().unwrap();
    assert_eq!((received.source, received.from), (17, from));
    let done = received.completion;
    assert_eq!((done.work, done.status), (5, CompletionStatus::Success));
    assert_eq!((done.bytes, done.immediate), (45, immediate));
    assert_eq!(arena.bytes(8)[40..46], *b"hello\0");
}

#[test]
fn datagrams_take_successive_psns_and_complete_on_send() {
    let mut sender = DatagramPair::new(SENDER);
    for work in 0..3 {
        let one = Datagram {
            work,
            signaled: work != 1,
            ..datagram(RequestBody::Sge(sge(7, 1, 256)))
        };
        sender.post(&one).unwrap();
    }
    assert_eq!(sender.poll_sends(), None);
    let packets = leaving(&mut sender, &arena());
    let parsed = packets.iter().map(|bytes| Packet::parse(bytes).unwrap());
    let psns: Vec<u32> = parsed.map(|packet| packet.bth.psn.get()).collect();
    assert_eq!(psns, [0, 1, 2]);
    assert_eq!(packets[0][20..], numbers(257)[1..]);
    let mut done = || sender.poll_sends().map(|done| done.work);
    assert_eq!([done(), done(), done()], [Some(0), Some(2), None]);
}

#[test]
fn datagrams_for_others_or_without_a_buffer_are_dropped() {
    let mut sender = DatagramPair::new(SENDER);
    let good = datagram(RequestBody::Inline(&[1]));
    let wrong = [
        Datagram { key: 181, ..good },
        Datagram { number: 19, ..good },
        good,
    ];
    for datagram in wrong {
        sender.post(&datagram).unwrap();
    }
    let (mut pair, mut arena, _) = receiver(100);
    let mut none = ReceiveQueue::new(0);
    for bytes in leaving(&mut sender, &arena) {
        let packet = Packet::parse(&bytes).unwrap();
        pair.receive(address(1).ip(), &packet, &mut arena, &mut none);
    }
    assert_eq!((pair.dropped(), pair.poll_receives()), (3, None));
    let reliable = common::by_hand::ByHand::new(4, 0, &[1]);
    let reliable = reliable.with(|bth: &mut Bth| bth.destination = RECEIVER.number);
    let bytes = reliable.bytes();
    let packet = Packet::parse(&bytes).unwrap();
    pair.receive(address(1).ip(), &packet, &mut arena, &mut none);
    assert_eq!(pair.dropped(), 4);
}

#[test]
fn too_long_datagram_fails_only_its_receive() {
    let mut sender = DatagramPair::new(SENDER);
    sender
        .post(&datagram(RequestBody::Inline(&[1; 6])))
        .unwrap();
    let (mut pair, mut arena, mut receives) = receiver(45);
    let bytes = leaving(&mut sender, &arena).remove(0);
    let packet = Packet::parse(&bytes).unwrap();
    let from = address(1).ip();
    pair.receive(from, &packet, &mut arena, &mut receives);
    receives.post(6, sge(8, 0, 46));
    pair.receive(from, &packet, &mut arena, &mut receives);
    let mut status = || {
        pair.poll_receives()
            .map(|received| received.completion.status)
    };
    assert_eq!(
        [status(), status()],
        [
            Some(CompletionStatus::LocalLength),
            Some(CompletionStatus::Success)
        ]
    );
}

#[test]
fn longest_datagram_equals_the_longest_reliable_packet() {
    let opcodes = (0..=u8::MAX).filter_map(Opcode::parse);
    let with_payload = opcodes.filter(|opcode| opcode.has_payload());
    let headers = with_payload.map(Opcode::extension_bytes).max().unwrap();
    let longest = PAYLOAD_BYTES_MAX + DATAGRAM_BYTES_MORE;
    let filled = u32::try_from(40 + longest).unwrap();
    let config = |config| DatagramConfig {
        path_mtu: PathMtu::BYTES_4096,
        ..config
    };
    let mut sender = DatagramPair::new(config(SENDER));
    let body = vec![7; longest];
    sender.post(&datagram(RequestBody::Inline(&body))).unwrap();
    let mut arena = Arena::default();
    arena.add(8, vec![0; 40 + longest]);
    let packets = leaving(&mut sender, &arena);
    assert_eq!(packets[0].len(), Bth::BYTES + headers + PAYLOAD_BYTES_MAX);

    let mut receives = ReceiveQueue::new(4);
    receives.post(5, sge(8, 0, filled));
    let packet = Packet::parse(&packets[0]).unwrap();
    let from = address(1).ip();
    let mut pair = DatagramPair::new(config(RECEIVER));
    pair.receive(from, &packet, &mut arena, &mut receives);
    let done = pair.poll_receives().unwrap().completion;
    assert_eq!(
        (done.status, done.bytes),
        (CompletionStatus::Success, filled)
    );
    assert_eq!(arena.bytes(8)[40..], body);
}

#[test]
fn unsendable_datagrams_are_refused_or_fail() {
    let mut sender = DatagramPair::new(SENDER);
    let long = sender.post(&datagram(RequestBody::Inline(&[0; 269])));
    assert_eq!(
        long,
        Err(DatagramError::TooLong {
            bytes: 269,
            most: 268
        })
    );
    let unknown = datagram(RequestBody::Sge(sge(9, 0, 1)));
    for _ in 0..4 {
        sender.post(&unknown).unwrap();
    }
    assert_eq!(sender.post(&unknown), Err(DatagramError::Full));
    assert!(leaving(&mut sender, &arena()).is_empty());
    assert_eq!(sender.post(&unknown), Err(DatagramError::Full));
    let done = sender.poll_sends().unwrap();
    assert_eq!(
        (done.status, done.bytes),
        (CompletionStatus::LocalProtection, 0)
    );
    assert_eq!(sender.post(&unknown), Ok(()));
}
