// SPDX-License-Identifier: MIT OR Apache-2.0
//! Packets to and from queue pair 1 of host 1: a test builds the packets to that queue pair, and parses the packets
//! from it.

use roce::Psn;
use roce::format::{
    Aeth, AtomicAckEth, AtomicEth, Bth, DEFAULT_PARTITION, Headers, ImmDt, Opcode, Packet,
    PacketSet, Reth, Syndrome,
};

use super::end::End;

/// The parsed fields of a packet that an end has sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Seen {
    pub(crate) code: u8,
    pub(crate) psn: u32,
    pub(crate) ack_request: bool,
    pub(crate) payload: Vec<u8>,
    pub(crate) reth: Option<Reth>,
    pub(crate) aeth: Option<Aeth>,
    pub(crate) value: Option<u64>,
    pub(crate) immediate: Option<[u8; 4]>,
    pub(crate) ahead: Option<PacketSet>,
}

impl Seen {
    pub(crate) fn read(wire: &[u8]) -> Self {
        let packet = Packet::parse(&wire[..wire.len() - 4]).expect("what is sent is a packet");
        Self {
            code: packet.bth.opcode.code(),
            psn: packet.bth.psn.get(),
            ack_request: packet.bth.ack_request,
            payload: packet.payload.to_vec(),
            reth: packet.reth(),
            aeth: packet.aeth(),
            value: packet.atomic_ack().map(|ack| ack.value),
            immediate: packet.immediate().map(|immediate| immediate.data),
            ahead: packet.sack(),
        }
    }

    pub(crate) fn syndrome(&self) -> u8 {
        self.aeth.expect("it is an answer").syndrome.code()
    }
}

/// The opcode and the PSN of each packet.
pub(crate) fn brief(seen: &[Seen]) -> Vec<(u8, u32)> {
    seen.iter().map(|seen| (seen.code, seen.psn)).collect()
}

/// A packet that a test delivers to an end.
#[derive(Clone, Debug)]
pub(crate) struct ByHand {
    pub(crate) bth: Bth,
    headers: Headers,
    payload: Vec<u8>,
}

impl ByHand {
    pub(crate) fn new(code: u8, psn: u32, payload: &[u8]) -> Self {
        let bth = Bth {
            opcode: Opcode::parse(code).expect("a test names opcodes that are"),
            solicited: false,
            migrated: false,
            pad: u8::try_from(payload.len().wrapping_neg() & 3).expect("two bits"),
            partition: DEFAULT_PARTITION,
            forward_congestion: false,
            backward_congestion: false,
            destination: 1,
            ack_request: true,
            psn: Psn::new(psn),
        };
        Self {
            headers: Headers::new(&bth),
            bth,
            payload: payload.to_vec(),
        }
    }

    /// Changes the BTH, and removes all extension headers: called before they are added.
    pub(crate) fn with(mut self, change: impl FnOnce(&mut Bth)) -> Self {
        change(&mut self.bth);
        self.headers = Headers::new(&self.bth);
        self
    }

    pub(crate) fn reth(mut self, address: u64, key: u32, bytes: u32) -> Self {
        self.headers = self.headers.reth(&Reth {
            address,
            key,
            bytes,
        });
        self
    }

    pub(crate) fn atomic(mut self, address: u64, key: u32, swap: u64, compare: u64) -> Self {
        self.headers = self.headers.atomic(&AtomicEth {
            address,
            key,
            swap,
            compare,
        });
        self
    }

    pub(crate) fn immediate(mut self, data: [u8; 4]) -> Self {
        self.headers = self.headers.immediate(&ImmDt { data });
        self
    }

    pub(crate) fn aeth(mut self, syndrome: u8) -> Self {
        let syndrome = Syndrome::parse(syndrome);
        self.headers = self.headers.aeth(&Aeth { syndrome, msn: 0 });
        self
    }

    pub(crate) fn ahead(mut self, packets: &[u32]) -> Self {
        self.headers = self.headers.sack(&set(packets));
        self
    }

    pub(crate) fn value(mut self, value: u64) -> Self {
        self.headers = self.headers.atomic_ack(&AtomicAckEth { value });
        self
    }

    /// The bytes of the packet from the BTH to the pad.
    pub(crate) fn bytes(&self) -> Vec<u8> {
        let mut bytes = self.headers.as_bytes().to_vec();
        bytes.extend(&self.payload);
        bytes.extend(&[0; 3][..usize::from(self.bth.pad)]);
        bytes
    }

    pub(crate) fn to(&self, end: &mut End, now_ns: u64) {
        let bytes = self.bytes();
        end.receive_packet(now_ns, &Packet::parse(&bytes).expect("it is a packet"));
    }
}

/// Delivers an acknowledgement or a NAK to an end.
pub(crate) fn answer(end: &mut End, now_ns: u64, psn: u32, syndrome: u8) {
    let packet = ByHand::new(0x11, psn, &[]).aeth(syndrome);
    packet.to(end, now_ns);
}

/// The set of these packets.
pub(crate) fn set(packets: &[u32]) -> PacketSet {
    let mut set = PacketSet::default();
    packets.iter().for_each(|packet| set.insert(*packet));
    set
}

/// Syndrome bytes.
pub(crate) const ACK: u8 = 0x1f;
pub(crate) const RNR: u8 = 0x21;
pub(crate) const SEQUENCE: u8 = 0x60;
pub(crate) const INVALID: u8 = 0x61;
pub(crate) const ACCESS: u8 = 0x62;
