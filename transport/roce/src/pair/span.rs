// SPDX-License-Identifier: MIT OR Apache-2.0
//! How a request is cut into packets, and what each carries. IBTA vol. 1 section 9.7.

use super::config::Config;
use super::outgoing::{Label, PayloadSource};
use super::request::RequestOpcode;
use super::send_queue::{SendQueueBody, SendQueueEntry};
use crate::format::{
    AtomicEth, Headers, ImmDt, MessagePosition, Opcode, OpcodeClass, PacketSet, Reth,
};
use crate::memory::{MemoryAccess, RegisteredMemory};
use crate::psn::Psn;

/// The limits of packets and of the window.
#[derive(Clone, Copy, Debug)]
pub(super) struct PacketLimits {
    pub(super) mtu_bytes: u32,
    pub(super) window_packets: u32,
    pub(super) read_packets: u32,
    pub(super) fetches: u32,
    /// Half of the window at most, so that a full one always has an answer coming.
    pub(super) ask_every: u32,
    ask_every_max: u32,
    /// The last packet of each request asks for an answer; else only that of those that are signaled.
    pub(super) asks_always: bool,
}

/// The part of a request that one packet carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PacketSpan {
    pub(super) offset: u32,
    pub(super) bytes: u32,
    /// How many packet numbers.
    pub(super) packets: u32,
    pub(super) position: MessagePosition,
}

impl PacketLimits {
    pub(super) fn new(config: &Config) -> Self {
        let ask_every_max = match config.peer_is_ours {
            true => ASK_OURS_EVERY_MAX,
            false => ASK_EVERY_MAX,
        };
        Self {
            mtu_bytes: config.path_mtu.bytes(),
            window_packets: config.window_packets,
            read_packets: match config.selective_repeat {
                true => config.read_packets.min(PacketSet::PACKETS),
                false => config.read_packets,
            },
            fetches: config.initiator_depth.into(),
            ask_every: config.window_packets.div_ceil(2).min(ask_every_max),
            ask_every_max,
            asks_always: config.ack_delay_ns == 0,
        }
    }

    /// So many packets may be under way from now on.
    pub(super) fn set_window(&mut self, packets: u32) {
        self.window_packets = packets;
        self.ask_every = packets.div_ceil(2).min(self.ask_every_max);
    }

    /// What the packet that begins at `packet` of a request stands for.
    pub(super) fn span(&self, work: &SendQueueEntry, packet: u32) -> PacketSpan {
        let rest = work.packets.saturating_sub(packet);
        let packets = match work.is_read() {
            true => rest.min(self.read_packets - packet % self.read_packets),
            false => 1,
        };
        let offset = packet.saturating_mul(self.mtu_bytes);
        let bytes = work.body.bytes().saturating_sub(offset);
        let position = match (packet == 0, packets == rest) {
            _ if work.is_read() => MessagePosition::Only,
            (true, true) => MessagePosition::Only,
            (true, false) => MessagePosition::First,
            (false, false) => MessagePosition::Middle,
            (false, true) => MessagePosition::Last,
        };
        PacketSpan {
            offset,
            bytes: bytes.min(packets.saturating_mul(self.mtu_bytes)),
            packets,
            position,
        }
    }
}

/// Where the payload of a packet is; `None` if memory of this side is not registered as it should be.
pub(super) fn payload<M: RegisteredMemory>(
    work: &SendQueueEntry,
    index: usize,
    span: PacketSpan,
    memory: &M,
) -> Option<PayloadSource> {
    let PacketSpan { offset, bytes, .. } = span;
    let access = match work.fetches() {
        true => MemoryAccess::LocalWrite,
        false => MemoryAccess::LocalRead,
    };
    match &work.body {
        _ if bytes == 0 => Some(PayloadSource::Nothing),
        SendQueueBody::Short { .. } | SendQueueBody::Inline(_) => Some(PayloadSource::Inline {
            index,
            offset,
            bytes,
        }),
        SendQueueBody::Piece(piece) => {
            let part = piece.part(offset, bytes);
            let checked = memory.check(part.key, part.address, part.bytes.into(), access);
            checked.ok().map(|()| match work.fetches() {
                true => PayloadSource::Nothing,
                false => PayloadSource::Piece(part),
            })
        }
    }
}

/// Writes the headers of a packet.
pub(super) fn write_headers(
    headers: &mut Headers,
    label: &Label,
    work: &SendQueueEntry,
    psn: Psn,
    span: PacketSpan,
    asks: bool,
) {
    let ends = matches!(span.position, MessagePosition::Last | MessagePosition::Only);
    let immediate = work.immediate.filter(|_| ends);
    let mut begin = |kind, bytes| {
        let opcode = Opcode::reliable(kind, span.position, immediate.is_some());
        headers.begin(&label.bth(opcode, psn, bytes, asks));
    };
    match work.operation {
        RequestOpcode::Send => begin(OpcodeClass::Send, span.bytes),
        RequestOpcode::Write { address, key } => {
            begin(OpcodeClass::Write, span.bytes);
            if matches!(
                span.position,
                MessagePosition::First | MessagePosition::Only
            ) {
                let bytes = work.body.bytes();
                let reth = Reth {
                    address,
                    key,
                    bytes,
                };
                headers.push(|bytes| reth.write(bytes));
            }
        }
        RequestOpcode::Read { address, key } => {
            begin(OpcodeClass::ReadRequest, 0);
            let reth = Reth {
                address: address.wrapping_add(span.offset.into()),
                key,
                bytes: span.bytes,
            };
            headers.push(|bytes| reth.write(bytes));
        }
        RequestOpcode::FetchAdd { address, key, add } => {
            begin(OpcodeClass::FetchAdd, 0);
            push_atomic(headers, address, key, [add, 0]);
        }
        RequestOpcode::CompareSwap {
            address,
            key,
            compare,
            swap,
        } => {
            begin(OpcodeClass::CompareSwap, 0);
            push_atomic(headers, address, key, [swap, compare]);
        }
    }
    if let Some(data) = immediate {
        headers.push(|bytes| ImmDt { data }.write(bytes));
    }
}

fn push_atomic(headers: &mut Headers, address: u64, key: u32, [swap, compare]: [u64; 2]) {
    let atomic = AtomicEth {
        address,
        key,
        swap,
        compare,
    };
    headers.push(|bytes| atomic.write(bytes));
}

/// In a long message an acknowledgement is asked for at least so often, as `rdma_rxe` does.
const ASK_EVERY_MAX: u32 = 64;
/// The same of a peer of ours, which answers a burst once: so the window is not full before the next answer is on its way.
const ASK_OURS_EVERY_MAX: u32 = 16;
