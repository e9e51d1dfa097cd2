// SPDX-License-Identifier: MIT OR Apache-2.0
//! The packets to send, as the carrier gets them.

use std::net::SocketAddr;

use super::config::Config;
use crate::format::{Bth, CNP_BYTES, Headers, Opcode, PAYLOAD_BYTES_MAX, pad_of};
use crate::memory::RoceSge;
use crate::psn::Psn;

/// A packet to send: the carrier sends headers, payload, pad and ICRC contiguously.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OutgoingPacket<'a> {
    /// Address and port of the peer.
    pub to: SocketAddr,
    /// The BTH and extension headers.
    pub headers: &'a Headers,
    /// The payload.
    pub payload: PacketPayload<'a>,
    /// Number of zero bytes behind the payload, if they are more than those up to a multiple of four bytes; else 0.
    pub filler_bytes: u32,
    /// Whether the packet may have been sent before. If so, the memory of its payload may change at any time, because
    /// the acknowledgement of the first transmission can arrive.
    pub is_repeated: bool,
}

/// The payload of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PacketPayload<'a> {
    /// No payload.
    Nothing,
    /// Bytes of an inline work request.
    Inline(&'a [u8]),
    /// A range of registered memory, for which the engine has just checked that it may be read.
    Sge(RoceSge),
}

impl OutgoingPacket<'_> {
    /// The zero bytes between the payload and the ICRC.
    pub fn pad(&self) -> &'static [u8] {
        let bytes = u32::from(pad_of(self.payload.bytes())).max(self.filler_bytes);
        let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
        ZEROS.get(..bytes).unwrap_or(&ZEROS)
    }

    /// Length of the packet without its ICRC, in bytes.
    pub fn bytes(&self) -> usize {
        let payload = usize::try_from(self.payload.bytes()).unwrap_or(usize::MAX);
        self.headers.as_bytes().len() + payload + self.pad().len()
    }
}

impl PacketPayload<'_> {
    /// Length of the payload in bytes, at most the path MTU.
    pub fn bytes(&self) -> u32 {
        match self {
            Self::Nothing => 0,
            Self::Inline(bytes) => u32::try_from(bytes.len()).unwrap_or(u32::MAX),
            Self::Sge(sge) => sge.bytes,
        }
    }
}

/// The source of a packet's payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PayloadSource {
    Nothing,
    /// `bytes` bytes from `offset` on of the inline body of the request at `index` in the send queue.
    Inline {
        index: usize,
        offset: u32,
        bytes: u32,
    },
    Sge(RoceSge),
    /// Registered memory, and behind it this number of zero bytes.
    Padded(RoceSge, u32),
    /// Registered memory, for a packet that may have been sent before.
    Repeated(RoceSge),
}

impl PayloadSource {
    /// This source, but marked as that of a packet that may have been sent before.
    pub(super) fn repeated(self) -> Self {
        match self {
            Self::Sge(sge) | Self::Padded(sge, _) => Self::Repeated(sge),
            other => other,
        }
    }
}

/// The longest padding.
static ZEROS: [u8; PAYLOAD_BYTES_MAX] = [0; PAYLOAD_BYTES_MAX];

/// The BTH fields that all packets of a queue pair have in common.
#[derive(Clone, Copy, Debug)]
pub(super) struct HeaderTemplate {
    partition: u16,
    destination: u32,
}

impl HeaderTemplate {
    pub(super) fn new(config: &Config) -> Self {
        Self {
            partition: config.partition,
            destination: config.remote_number,
        }
    }

    /// Writes the headers of a congestion notification packet (CNP). Annex A17.9.3.
    pub(super) fn write_notification(&self, headers: &mut Headers) {
        headers.begin(&Bth {
            backward_congestion: true,
            migrated: false,
            ..Bth::new(Opcode::CNP, self.partition, self.destination, Psn::new(0))
        });
        headers.push(|bytes| *bytes = [0; CNP_BYTES]);
    }

    /// The BTH of a packet that carries `bytes` bytes of payload.
    pub(super) fn bth(&self, opcode: Opcode, psn: Psn, bytes: u32, ack_request: bool) -> Bth {
        let bth = Bth::new(opcode, self.partition, self.destination, psn);
        Bth {
            ack_request,
            ..bth.carrying(bytes)
        }
    }
}
