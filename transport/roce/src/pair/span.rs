// SPDX-License-Identifier: MIT OR Apache-2.0
//! Splits requests into packets, and writes the headers of these packets. IBTA vol. 1 section 9.7.

use super::config::Config;
use super::outgoing::{HeaderTemplate, PayloadSource};
use super::request::RequestOpcode;
use super::send_queue::{SendQueueBody, SendQueueEntry};
use crate::format::{
    AtomicEth, Headers, ImmDt, MessagePosition, Opcode, OpcodeClass, PacketSet, Reth,
};
use crate::memory::{MemoryAccess, RegisteredMemory};
use crate::psn::Psn;

/// The limits of the size and the number of packets.
#[derive(Clone, Copy, Debug)]
pub(super) struct PacketLimits {
    pub(super) mtu_bytes: u32,
    pub(super) window_packets: u32,
    pub(super) read_packets: u32,
    pub(super) fetches: u32,
    /// A packet at this distance, in packets, from the last packet with AckReq has AckReq too. The distance is at most
    /// half of the window, so an acknowledgement is on its way before the window is full.
    pub(super) ack_interval: u32,
    ack_interval_max: u32,
    /// Whether AckReq is set in the last packet of every request. If not, only signaled requests, reads and atomic
    /// operations have it set in their last packet.
    pub(super) acks_every_request: bool,
}

/// The part of a request that one packet carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PacketSpan {
    pub(super) offset: u32,
    pub(super) bytes: u32,
    /// Number of PSNs that the packet takes: more than 1 for a read.
    pub(super) packets: u32,
    pub(super) position: MessagePosition,
}

impl PacketLimits {
    pub(super) fn new(config: &Config) -> Self {
        let ack_interval_max = match config.peer_is_rmpi {
            true => ACK_INTERVAL_RMPI_MAX,
            false => ACK_INTERVAL_MAX,
        };
        Self {
            mtu_bytes: config.path_mtu.bytes(),
            window_packets: config.window_packets,
            read_packets: match config.selective_repeat {
                true => config.read_packets.min(PacketSet::PACKETS),
                false => config.read_packets,
            },
            fetches: config.initiator_depth.into(),
            ack_interval: config.window_packets.div_ceil(2).min(ack_interval_max),
            ack_interval_max,
            acks_every_request: config.ack_delay_ns == 0,
        }
    }

    /// Sets the window to `packets`.
    pub(super) fn set_window(&mut self, packets: u32) {
        self.window_packets = packets;
        self.ack_interval = packets.div_ceil(2).min(self.ack_interval_max);
    }

    /// The span of one packet of a request: the packet that has `packet` PSNs of the request before it.
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

/// The source of the payload of a request's packet; `None`: local protection error.
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
        SendQueueBody::Sge(sge) => {
            let part = sge.part(offset, bytes);
            let checked = memory.check(part.key, part.address, part.bytes.into(), access);
            checked.ok().map(|()| match work.fetches() {
                true => PayloadSource::Nothing,
                false => PayloadSource::Sge(part),
            })
        }
    }
}

/// Writes the headers of the packet for a span.
pub(super) fn write_headers(
    headers: &mut Headers,
    template: &HeaderTemplate,
    work: &SendQueueEntry,
    psn: Psn,
    span: PacketSpan,
    ack_request: bool,
) {
    let ends = matches!(span.position, MessagePosition::Last | MessagePosition::Only);
    let immediate = work.immediate.filter(|_| ends);
    let mut begin = |kind, bytes| {
        let opcode = Opcode::reliable(kind, span.position, immediate.is_some());
        headers.begin(&template.bth(opcode, psn, bytes, ack_request));
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

/// Largest distance between two packets with AckReq in a long message, in packets, as in `rdma_rxe`.
const ACK_INTERVAL_MAX: u32 = 64;
/// Largest distance between two packets with AckReq for an rmpi peer, in packets. It is shorter than for other peers,
/// because it costs few further acknowledgements: an rmpi peer sends one acknowledgement for a whole burst of requests
/// (`replies.rs`). With a short distance, an acknowledgement is more likely to be on its way before the window is full.
const ACK_INTERVAL_RMPI_MAX: u32 = 16;
