// SPDX-License-Identifier: MIT OR Apache-2.0
//! How a request is cut into packets, and what each carries. IBTA vol. 1 section 9.7.

use super::config::Config;
use super::outgoing::{Label, Source};
use super::request::Operation;
use super::send_queue::{Kept, Work};
use crate::format::{AtomicEth, Headers, ImmDt, Kind, Opcode, PacketSet, Position, Reth};
use crate::memory::{Access, Memory};
use crate::psn::Psn;

/// What limits packets and how many are under way.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
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

/// The part of a request that one packet stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Span {
    pub(super) offset: u32,
    pub(super) bytes: u32,
    /// How many packet numbers.
    pub(super) packets: u32,
    pub(super) position: Position,
}

impl Limits {
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
    pub(super) fn span(&self, work: &Work, packet: u32) -> Span {
        let rest = work.packets.saturating_sub(packet);
        let packets = match work.is_read() {
            true => rest.min(self.read_packets - packet % self.read_packets),
            false => 1,
        };
        let offset = packet.saturating_mul(self.mtu_bytes);
        let bytes = work.body.bytes().saturating_sub(offset);
        let position = match (packet == 0, packets == rest) {
            _ if work.is_read() => Position::Only,
            (true, true) => Position::Only,
            (true, false) => Position::First,
            (false, false) => Position::Middle,
            (false, true) => Position::Last,
        };
        Span {
            offset,
            bytes: bytes.min(packets.saturating_mul(self.mtu_bytes)),
            packets,
            position,
        }
    }
}

/// Where the payload of a packet is; `None` if memory of this side is not registered as it should be.
pub(super) fn payload<M: Memory>(
    work: &Work,
    index: usize,
    span: Span,
    memory: &M,
) -> Option<Source> {
    let Span { offset, bytes, .. } = span;
    let access = match work.fetches() {
        true => Access::LocalWrite,
        false => Access::LocalRead,
    };
    match &work.body {
        _ if bytes == 0 => Some(Source::Nothing),
        Kept::Short { .. } | Kept::Inline(_) => Some(Source::Inline {
            index,
            offset,
            bytes,
        }),
        Kept::Piece(piece) => {
            let part = piece.part(offset, bytes);
            let checked = memory.check(part.key, part.address, part.bytes.into(), access);
            checked.ok().map(|()| match work.fetches() {
                true => Source::Nothing,
                false => Source::Piece(part),
            })
        }
    }
}

/// Writes the headers of a packet.
pub(super) fn write_headers(
    headers: &mut Headers,
    label: &Label,
    work: &Work,
    psn: Psn,
    span: Span,
    asks: bool,
) {
    let ends = matches!(span.position, Position::Last | Position::Only);
    let immediate = work.immediate.filter(|_| ends);
    let mut begin = |kind, bytes| {
        let opcode = Opcode::reliable(kind, span.position, immediate.is_some());
        headers.begin(&label.bth(opcode, psn, bytes, asks));
    };
    match work.operation {
        Operation::Send => begin(Kind::Send, span.bytes),
        Operation::Write { address, key } => {
            begin(Kind::Write, span.bytes);
            if matches!(span.position, Position::First | Position::Only) {
                let bytes = work.body.bytes();
                let reth = Reth {
                    address,
                    key,
                    bytes,
                };
                headers.push(|bytes| reth.write(bytes));
            }
        }
        Operation::Read { address, key } => {
            begin(Kind::ReadRequest, 0);
            let reth = Reth {
                address: address.wrapping_add(span.offset.into()),
                key,
                bytes: span.bytes,
            };
            headers.push(|bytes| reth.write(bytes));
        }
        Operation::FetchAdd { address, key, add } => {
            begin(Kind::FetchAdd, 0);
            push_atomic(headers, address, key, [add, 0]);
        }
        Operation::CompareSwap {
            address,
            key,
            compare,
            swap,
        } => {
            begin(Kind::CompareSwap, 0);
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
