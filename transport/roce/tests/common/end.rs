// SPDX-License-Identifier: MIT OR Apache-2.0
//! One end of a connection, for tests: a queue pair, its memory, its receive queue, and its carrier.

use std::net::SocketAddr;

use roce::format::{NetworkHeaders, Packet};
use roce::icrc::{self, Icrc};
use roce::{
    CompletionKind, Config, PacketPayload, PathMtu, Psn, QueuePair, ReceiveQueue, RequestBody,
    RequestOpcode, RoceRequest, RoceSge, WorkCompletion,
};

use super::arena::Arena;
use super::by_hand::Seen;

#[derive(Debug)]
pub(crate) struct End {
    pub(crate) pair: QueuePair,
    pub(crate) arena: Arena,
    pub(crate) receives: ReceiveQueue,
    from: SocketAddr,
}

impl End {
    pub(crate) fn new(config: Config, from: SocketAddr) -> Self {
        Self {
            pair: QueuePair::new(config).expect("a test's settings are right"),
            arena: Arena::default(),
            receives: ReceiveQueue::new(1024),
            from,
        }
    }

    /// The next packet that the end sends, as it is on the wire, from the BTH to the ICRC.
    pub(crate) fn next_on_wire(&mut self, now_ns: u64) -> Option<Vec<u8>> {
        let is_timer_due = self.pair.deadline().is_some_and(|due_ns| due_ns <= now_ns);
        let has_sent_all = !is_timer_due && self.pair.has_sent_all(now_ns);
        let outgoing = self.pair.next_outgoing(now_ns, &self.arena);
        assert!(
            !has_sent_all || outgoing.is_none(),
            "all was sent, and yet {outgoing:?}"
        );
        let outgoing = outgoing?;
        let bytes = u16::try_from(outgoing.bytes()).expect("a packet is short");
        let network =
            NetworkHeaders::assumed(self.from, outgoing.to, bytes).expect("both are IPv4");
        let mut wire = outgoing.headers.as_bytes().to_vec();
        let mut icrc = Icrc::new(&network, &wire);
        let payload = match outgoing.payload {
            PacketPayload::Nothing => &[],
            PacketPayload::Inline(bytes) => bytes,
            PacketPayload::Sge(sge) => self.arena.gather(sge),
        };
        for part in [payload, outgoing.pad()] {
            icrc.add(part);
            wire.extend(part);
        }
        assert_eq!(wire.len(), usize::from(bytes));
        wire.extend(icrc.finish());
        Some(wire)
    }

    /// Delivers a packet to the end. `false`: the packet's ICRC is wrong, or the packet is malformed.
    pub(crate) fn receive(&mut self, now_ns: u64, wire: &[u8]) -> bool {
        let bytes = u16::try_from(wire.len().saturating_sub(4)).expect("a packet is short");
        let from = self.pair.config().to;
        let network = NetworkHeaders::assumed(from, self.from, bytes).expect("both are IPv4");
        let packet = icrc::verify(&network, wire).and_then(|bytes| Packet::parse(bytes).ok());
        if let Some(packet) = &packet {
            self.receive_packet(now_ns, packet);
        }
        packet.is_some()
    }

    pub(crate) fn receive_packet(&mut self, now_ns: u64, packet: &Packet<'_>) {
        let from = self.pair.config().to.ip();
        let (arena, receives) = (&mut self.arena, &mut self.receives);
        self.pair.receive(now_ns, from, packet, arena, receives);
    }

    /// All packets that the end sends now.
    pub(crate) fn leaving(&mut self, now_ns: u64) -> Vec<Seen> {
        let packets = std::iter::from_fn(|| self.next_on_wire(now_ns));
        packets.map(|wire| Seen::read(&wire)).collect()
    }

    pub(crate) fn post(&mut self, work: u64, operation: RequestOpcode, body: RoceSge) {
        let request = RoceRequest {
            work,
            operation,
            body: RequestBody::Sge(body),
            immediate: None,
            signaled: true,
        };
        self.pair.post(&request).expect("there is room");
    }

    pub(crate) fn sends_done(&mut self) -> Vec<WorkCompletion> {
        std::iter::from_fn(|| self.pair.poll(CompletionKind::Sends)).collect()
    }

    pub(crate) fn receives_done(&mut self) -> Vec<WorkCompletion> {
        std::iter::from_fn(|| self.pair.poll(CompletionKind::Receives)).collect()
    }
}

/// Attributes with a small path MTU, for QPN 1, connected to QPN 2.
pub(crate) fn config() -> Config {
    Config {
        path_mtu: PathMtu::BYTES_256,
        sq_psn: Psn::new(0x00ff_fffe),
        rq_psn: Psn::new(100),
        ..Config::new(1, 2, address(2))
    }
}

/// The address of the host with a number.
pub(crate) fn address(host: u8) -> SocketAddr {
    SocketAddr::from(([10, 0, 0, host], roce::format::PORT))
}

/// An end with these attributes. Region 7 has the bytes 0, 1, 2, …; region 8 has zeros. Both are 8,192 bytes long.
pub(crate) fn end(config: Config) -> End {
    let mut end = End::new(config, address(1));
    end.arena.add(7, numbers(8192));
    end.arena.add(8, vec![0; 8192]);
    end
}

pub(crate) fn numbers(len: usize) -> Vec<u8> {
    (0..=u8::MAX).cycle().take(len).collect()
}
