// SPDX-License-Identifier: MIT OR Apache-2.0
//! Measures the engine's cost per packet: messages pass through two queue pairs without loss, and their payload is not
//! copied.
//!
//! `cargo bench -p roce` prints packets per second, acknowledgements included. The time includes requester, responder,
//! completer and the parsing on both sides. It excludes the ICRC, and the carrier's copies and system calls.

#![allow(
    missing_docs,
    reason = "criterion's macros make functions without docs"
)]

use std::hint::black_box;
use std::net::{IpAddr, SocketAddr};

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use roce::format::{Headers, PAYLOAD_BYTES_MAX, Packet};
use roce::{
    AccessError, CompletionKind, Config, MemoryAccess, PathMtu, QueuePair, ReceiveQueue,
    RegisteredMemory, RequestBody, RequestOpcode, RoceRequest, RoceSge,
};

/// Registered memory that allows every access and performs none.
struct Nowhere;

impl RegisteredMemory for Nowhere {
    fn check(&self, key: u32, _: u64, _: u64, _: MemoryAccess) -> Result<(), AccessError> {
        black_box(key);
        Ok(())
    }

    fn place(&mut self, _: u32, address: u64, bytes: &[u8]) -> Result<(), AccessError> {
        black_box((address, bytes.len()));
        Ok(())
    }

    fn fetch_add(&mut self, _: u32, _: u64, _: u64) -> Result<u64, AccessError> {
        Ok(0)
    }

    fn compare_swap(&mut self, _: u32, _: u64, _: u64, _: u64) -> Result<u64, AccessError> {
        Ok(0)
    }
}

/// Two connected queue pairs.
struct Both {
    pairs: [QueuePair; 2],
    hosts: [IpAddr; 2],
    receives: ReceiveQueue,
    wire: Vec<u8>,
    now_ns: u64,
}

impl Both {
    fn new(selective_repeat: bool) -> Self {
        let hosts = [1, 2].map(|host| SocketAddr::from(([10, 0, 0, host], 4791)));
        let config = |here: u32, there: u32, to| Config {
            path_mtu: PathMtu::BYTES_4096,
            peer_is_rmpi: selective_repeat,
            selective_repeat,
            ..Config::new(here, there, to)
        };
        let pairs = [config(1, 2, hosts[1]), config(2, 1, hosts[0])];
        Self {
            pairs: pairs.map(|config| QueuePair::new(config).expect("it is in range")),
            hosts: hosts.map(|host| host.ip()),
            receives: ReceiveQueue::new(64),
            wire: vec![0; Headers::BYTES_MAX + PAYLOAD_BYTES_MAX],
            now_ns: 0,
        }
    }

    /// Transfers messages of this length; returns the number of packets.
    fn transfer(&mut self, operation: RequestOpcode, bytes: u32, messages: u32) -> u64 {
        let inline = [7; 64];
        let sge = RoceSge {
            key: 1,
            address: 0,
            bytes,
        };
        let body = match usize::try_from(bytes)
            .ok()
            .and_then(|bytes| inline.get(..bytes))
        {
            Some(inline) => RequestBody::Inline(inline),
            None => RequestBody::Sge(sge),
        };
        for message in 0..messages {
            self.receives.post(0, sge);
            let request = RoceRequest {
                work: message.into(),
                operation,
                body,
                immediate: None,
                signaled: message + 1 == messages,
            };
            self.pairs[0].post(&request).expect("there is room");
        }
        let mut packets = 0;
        while self.pairs[0].poll(CompletionKind::Sends).is_none() {
            packets += self.carry(0) + self.carry(1);
            self.now_ns += 1000;
        }
        while self.pairs[1].poll(CompletionKind::Receives).is_some() {}
        packets
    }

    /// Delivers all packets that side `from` has to send to the other side; returns their number.
    fn carry(&mut self, from: usize) -> u64 {
        let [one, other] = &mut self.pairs;
        let (from_pair, to_pair) = if from == 0 {
            (one, other)
        } else {
            (other, one)
        };
        let mut packets = 0;
        while let Some(outgoing) = from_pair.next_outgoing(self.now_ns, &Nowhere) {
            let bytes = outgoing.bytes();
            outgoing.headers.write_to(&mut self.wire);
            let packet = Packet::parse(&self.wire[..bytes]).expect("it is a packet");
            let host = self.hosts[from];
            to_pair.receive(self.now_ns, host, &packet, &mut Nowhere, &mut self.receives);
            packets += 1;
        }
        packets
    }
}

fn engine(criterion: &mut Criterion) {
    let write = RequestOpcode::Write { address: 0, key: 1 };
    let cases = [
        ("send 8 B", RequestOpcode::Send, 8, 64),
        ("send 4 KiB", RequestOpcode::Send, 4096, 64),
        ("send 1 MiB", RequestOpcode::Send, 1 << 20, 1),
        ("write 1 MiB", write, 1 << 20, 1),
        (
            "read 1 MiB",
            RequestOpcode::Read { address: 0, key: 1 },
            1 << 20,
            1,
        ),
    ];
    for (is_selective, name) in [(false, "go back"), (true, "selective")] {
        let mut group = criterion.benchmark_group(name);
        for (case, operation, bytes, messages) in cases {
            let mut both = Both::new(is_selective);
            let packets = both.transfer(operation, bytes, messages);
            group.throughput(Throughput::Elements(packets));
            group.bench_function(case, |bencher| {
                bencher.iter(|| both.transfer(operation, bytes, messages));
            });
        }
        group.finish();
    }
}

criterion_group!(benches, engine);
criterion_main!(benches);
