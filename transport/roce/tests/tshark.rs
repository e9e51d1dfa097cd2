// SPDX-License-Identifier: MIT OR Apache-2.0
//! Compares Wireshark's dissection of packets of every opcode that the engine sends with the engine's own parser.
//! Wireshark must be installed: the stage `soak` of `cargo xtask test` runs this test.

mod common;

use std::collections::BTreeSet;
use std::io::Write;
use std::process::{Command, Stdio};

use common::arena::{Arena, address as memory, sge};
use common::end::{End, address, config, numbers};
use roce::format::{NetworkHeaders, Packet};
use roce::icrc::Icrc;
use roce::{
    Config, Datagram, DatagramConfig, DatagramPair, PacketPayload, PathMtu, QueuePairState,
    RequestBody, RequestOpcode, RoceRequest,
};

/// Packets with source and destination host, as on the wire.
#[derive(Default)]
struct Capture(Vec<(u8, u8, Vec<u8>)>);

impl Capture {
    /// Two ends exchange all their packets.
    fn exchange(&mut self, one: &mut End, two: &mut End, now_ns: u64) {
        loop {
            let there = one.next_on_wire(now_ns);
            let back = two.next_on_wire(now_ns);
            if there.is_none() && back.is_none() {
                break;
            }
            if let Some(wire) = there {
                two.receive(now_ns, &wire);
                self.0.push((1, 2, wire));
            }
            if let Some(wire) = back {
                one.receive(now_ns, &wire);
                self.0.push((2, 1, wire));
            }
        }
    }

    /// The contents of a pcap file with these packets as IP packets.
    fn pcap(&self) -> Vec<u8> {
        let mut file = Vec::new();
        for word in [0xa1b2_c3d4_u32, 0x0004_0002, 0, 0, 65_535, RAW_IP] {
            file.extend(word.to_le_bytes());
        }
        for (from, to, wire) in &self.0 {
            let datagram = datagram(*from, *to, wire);
            let bytes = u32::try_from(datagram.len()).expect("it is short");
            for word in [0, 0, bytes, bytes] {
                file.extend(word.to_le_bytes());
            }
            file.extend(datagram);
        }
        file
    }
}

/// A packet with the IP and UDP headers that its ICRC covers.
fn datagram(from: u8, to: u8, wire: &[u8]) -> Vec<u8> {
    let total = u16::try_from(28 + wire.len()).expect("it is short");
    let mut bytes = vec![0x45, 0];
    bytes.extend(total.to_be_bytes());
    bytes.extend([0, 0, 0x40, 0, 64, 17, 0, 0, 10, 0, 0, from, 10, 0, 0, to]);
    for word in [roce::format::PORT, roce::format::PORT, total - 20, 0] {
        bytes.extend(word.to_be_bytes());
    }
    bytes.extend(wire);
    bytes
}

fn ends() -> (End, End) {
    let one = config();
    let two = Config {
        number: one.remote_number,
        remote_number: one.number,
        sq_psn: one.rq_psn,
        rq_psn: one.sq_psn,
        to: address(1),
        ..one
    };
    let (mut one, mut two) = (End::new(one, address(1)), End::new(two, address(2)));
    for end in [&mut one, &mut two] {
        end.arena.add(7, numbers(8192));
        end.arena.add(8, vec![0; 8192]);
    }
    (one, two)
}

/// Message lengths in bytes: a short packet with a pad, one full packet of 256 bytes, two full packets, and three
/// packets.
const LENGTHS: [u32; 4] = [5, 256, 512, 700];

fn requests(capture: &mut Capture) {
    let (mut one, mut two) = ends();
    let (key, to) = (8, memory(8));
    let atomics = [
        RequestOpcode::FetchAdd {
            address: to,
            key,
            add: 3,
        },
        RequestOpcode::CompareSwap {
            address: to,
            key,
            compare: 3,
            swap: 9,
        },
    ];
    let mut post = |one: &mut End, two: &mut End, operation, body, immediate| {
        two.receives.post(1, sge(8, 4096, 2048));
        let request = RoceRequest {
            work: 1,
            operation,
            body: RequestBody::Sge(body),
            immediate,
            signaled: true,
        };
        one.pair.post(&request).expect("there is room");
        capture.exchange(one, two, 0);
    };
    for bytes in LENGTHS {
        let body = sge(7, 3, bytes);
        for immediate in [None, Some(*b"data")] {
            post(&mut one, &mut two, RequestOpcode::Send, body, immediate);
            let write = RequestOpcode::Write { address: to, key };
            post(&mut one, &mut two, write, body, immediate);
        }
        let read = RequestOpcode::Read { address: to, key };
        post(&mut one, &mut two, read, sge(8, 0, bytes), None);
    }
    for atomic in atomics {
        post(&mut one, &mut two, atomic, sge(8, 0, 8), None);
    }
    assert_eq!(
        (one.pair.state(), two.pair.state()),
        (QueuePairState::Ready, QueuePairState::Ready)
    );
}

/// Records conversations in which the peer has no receive buffer, a request is lost, a request is refused, and a packet
/// is ECN-marked.
fn refusals(capture: &mut Capture) {
    let (mut one, mut two) = ends();
    let body = sge(7, 0, 600);
    one.post(1, RequestOpcode::Send, body);
    capture.exchange(&mut one, &mut two, 0);
    two.receives.post(1, sge(8, 0, 1024));
    capture.exchange(&mut one, &mut two, 1_000_000_000);
    one.post(
        2,
        RequestOpcode::Write {
            address: memory(8),
            key: 8,
        },
        body,
    );
    let lost = one
        .next_on_wire(1_000_000_000)
        .expect("the write has several packets");
    assert!(!lost.is_empty());
    let marked = one
        .next_on_wire(1_000_000_000)
        .expect("the write has several packets");
    let packet = Packet::parse(&marked[..marked.len() - 4])
        .expect("it is whole")
        .marked();
    two.receive_packet(1_000_000_000, &packet);
    capture.exchange(&mut one, &mut two, 1_000_000_000);
    one.post(
        3,
        RequestOpcode::Write {
            address: memory(8),
            key: 99,
        },
        body,
    );
    capture.exchange(&mut one, &mut two, 2_000_000_000);
    assert_eq!(two.pair.state(), QueuePairState::Error);
}

fn datagrams(capture: &mut Capture) {
    let sender = DatagramConfig {
        number: 17,
        key: 170,
        partition: 0xffff,
        path_mtu: PathMtu::BYTES_256,
        send_depth: 4,
    };
    let mut pair = DatagramPair::new(sender);
    for (body, immediate) in [
        (&b"hello"[..], None),
        (b"four", Some(*b"data")),
        (b"", None),
    ] {
        let datagram = Datagram {
            work: 1,
            to: address(2),
            number: 18,
            key: 180,
            body: RequestBody::Inline(body),
            immediate,
            signaled: true,
        };
        pair.post(&datagram).expect("there is room");
        let outgoing = pair
            .next_outgoing(&Arena::default())
            .expect("one was posted");
        let mut wire = outgoing.headers.as_bytes().to_vec();
        if let PacketPayload::Inline(bytes) = outgoing.payload {
            wire.extend(bytes);
        }
        wire.extend(outgoing.pad());
        let bytes = u16::try_from(wire.len()).expect("it is short");
        let network =
            NetworkHeaders::assumed(address(1), address(2), bytes).expect("both are IPv4");
        wire.extend(Icrc::new(&network, &wire).finish());
        capture.0.push((1, 2, wire));
    }
}

/// The fields that Wireshark prints for each packet.
fn dissect(capture: &Capture) -> Vec<Vec<String>> {
    let mut tshark = Command::new("tshark");
    tshark.args(["-r", "-", "-T", "fields", "-E", "separator=;"]);
    // Heuristics of Wireshark that would dissect payload; they are switched off.
    let guesses = [
        "rpcordma",
        "iser",
        "smb_direct",
        "nvme-rdma",
        "infiniband.eoib",
        "infiniband_sdp",
        "fcoib",
        "lnet",
        "smc",
    ];
    for guess in guesses {
        tshark.args(["--disable-protocol", guess]);
    }
    for field in FIELDS {
        tshark.args(["-e", field]);
    }
    tshark.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut tshark = tshark
        .spawn()
        .expect("tshark is installed (Debian's package tshark)");
    let mut input = tshark.stdin.take().expect("it has one");
    input.write_all(&capture.pcap()).expect("it reads all");
    drop(input);
    let output = tshark.wait_with_output().expect("it ends");
    assert!(output.status.success());
    let text = String::from_utf8(output.stdout).expect("it writes text");
    let columns = |line: &str| line.split(';').map(str::to_owned).collect();
    text.lines().map(columns).collect()
}

const FIELDS: [&str; 12] = [
    "infiniband.bth.opcode",
    "infiniband.bth.destqp",
    "infiniband.bth.psn",
    "infiniband.bth.padcnt",
    "infiniband.bth.a",
    "infiniband.reth.va",
    "infiniband.reth.dmalen",
    "infiniband.aeth.syndrome",
    "infiniband.immdt",
    "infiniband.invariant.crc",
    "_ws.malformed",
    "_ws.expert.message",
];

/// Compares Wireshark's fields with those that the engine parses.
fn compare(wire: &[u8], fields: &[String]) {
    let (bytes, icrc) = wire.split_last_chunk::<4>().expect("it has a checksum");
    let packet = Packet::parse(bytes).expect("it is whole");
    let number = |field: &str| {
        let place = FIELDS
            .iter()
            .position(|name| *name == field)
            .expect("it was requested");
        let text = &fields[place];
        match text.strip_prefix("0x") {
            Some(hex) => u64::from_str_radix(hex, 16).ok(),
            None => text.parse().ok(),
        }
    };
    let bth = &packet.bth;
    let reth = packet.reth();
    // Wireshark has the same field name for the address of an AtomicETH and of a RETH.
    let atomic = packet.atomic().map(|it| it.address);
    let wanted = [
        ("infiniband.bth.opcode", Some(bytes[0].into())),
        ("infiniband.bth.destqp", Some(bth.destination.into())),
        ("infiniband.bth.psn", Some(bth.psn.get().into())),
        ("infiniband.bth.padcnt", Some(bth.pad.into())),
        ("infiniband.bth.a", Some(bth.ack_request.into())),
        ("infiniband.reth.va", reth.map(|it| it.address).or(atomic)),
        ("infiniband.reth.dmalen", reth.map(|it| it.bytes.into())),
        (
            "infiniband.aeth.syndrome",
            packet.aeth().map(|aeth| aeth.syndrome.code().into()),
        ),
    ];
    for (field, wanted) in wanted {
        assert_eq!(number(field), wanted, "{field}: {fields:?}");
    }
    // Wireshark prints these bytes twice.
    let hex = |data: [u8; 4]| format!("{:08x}", u32::from_be_bytes(data));
    let immediate = packet.immediate().map(|it| hex(it.data));
    let shown = fields[8]
        .split(',')
        .next()
        .filter(|shown| !shown.is_empty());
    assert_eq!(shown, immediate.as_deref(), "{fields:?}");
    let crc = u32::from_be_bytes(*icrc);
    // Wireshark prints no ICRC for some packets, and never verifies it. `capture.rs` verifies ICRCs of another
    // implementation.
    let shown = number("infiniband.invariant.crc");
    let may_lack = matches!(bytes[0], 0x0d..=0x10 | 0x81);
    assert!(
        shown == Some(crc.into()) || may_lack && shown.is_none(),
        "{fields:?}"
    );
    assert_eq!(fields[FIELDS.len() - 2..], ["", ""], "{fields:?}");
}

#[test]
#[ignore = "it needs Wireshark; the stage soak runs it"]
fn wireshark_dissects_every_opcode_alike() {
    let mut capture = Capture::default();
    requests(&mut capture);
    refusals(&mut capture);
    datagrams(&mut capture);
    let dissected = dissect(&capture);
    assert_eq!(dissected.len(), capture.0.len());
    let mut opcodes = BTreeSet::new();
    for ((_, _, wire), fields) in capture.0.iter().zip(&dissected) {
        opcodes.insert(wire[0]);
        compare(wire, fields);
    }
    // All opcodes of a reliable connection (except SEND with invalidation), both opcodes of datagrams, and the opcode
    // of the CNP.
    let wanted: BTreeSet<u8> = (0..=0x14).chain([0x64, 0x65, 0x81]).collect();
    assert_eq!(opcodes, wanted);
}

const RAW_IP: u32 = 101;
