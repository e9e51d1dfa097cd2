// SPDX-License-Identifier: MIT OR Apache-2.0
//! Packets that are to be sent.

use std::net::SocketAddr;

use super::config::Config;
use crate::format::{Bth, CNP_BYTES, Headers, Opcode, pad_of};
use crate::memory::RoceSge;
use crate::psn::Psn;

/// A packet to send: the carrier puts headers, payload, pad and checksum one behind the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OutgoingPacket<'a> {
    /// Where it goes.
    pub to: SocketAddr,
    /// From the BTH to the payload.
    pub headers: &'a Headers,
    /// What it carries.
    pub payload: PacketPayload<'a>,
    /// It may have left before, and then it is not known when what it carries may change.
    pub is_repeated: bool,
}

/// The payload of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PacketPayload<'a> {
    /// No bytes.
    Nothing,
    /// These bytes.
    Inline(&'a [u8]),
    /// These bytes of registered memory; the engine has just checked that they may be read.
    Piece(RoceSge),
}

impl OutgoingPacket<'_> {
    /// Zeros that stand between the payload and the checksum.
    pub fn pad(&self) -> &'static [u8] {
        &[0; 3][..usize::from(pad_of(self.payload.bytes()))]
    }

    /// Length of the packet without its checksum, in bytes.
    pub fn bytes(&self) -> usize {
        let payload = usize::try_from(self.payload.bytes()).unwrap_or(usize::MAX);
        self.headers.as_bytes().len() + payload + self.pad().len()
    }
}

impl PacketPayload<'_> {
    /// Its length in bytes, at most the path MTU.
    pub fn bytes(&self) -> u32 {
        match self {
            Self::Nothing => 0,
            Self::Inline(bytes) => u32::try_from(bytes.len()).unwrap_or(u32::MAX),
            Self::Piece(piece) => piece.bytes,
        }
    }
}

/// Where the payload of a packet is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PayloadSource {
    Nothing,
    /// In the body of the request of this index in the send queue.
    Inline {
        index: usize,
        offset: u32,
        bytes: u32,
    },
    Piece(RoceSge),
    /// The packet may have left before.
    Repeated(RoceSge),
}

impl PayloadSource {
    /// The same of a packet that may have left before.
    pub(super) fn repeated(self) -> Self {
        match self {
            Self::Piece(piece) => Self::Repeated(piece),
            other => other,
        }
    }
}

/// What all packets of a queue pair have in common.
#[derive(Clone, Copy, Debug)]
pub(super) struct Label {
    partition: u16,
    destination: u32,
}

impl Label {
    pub(super) fn new(config: &Config) -> Self {
        Self {
            partition: config.partition,
            destination: config.remote_number,
        }
    }

    /// A CNP. Annex A17.9.3.
    pub(super) fn write_notification(&self, headers: &mut Headers) {
        headers.begin(&Bth {
            backward_congestion: true,
            migrated: false,
            ..Bth::new(Opcode::CNP, self.partition, self.destination, Psn::new(0))
        });
        headers.push(|bytes| *bytes = [0; CNP_BYTES]);
    }

    /// The BTH of a packet that carries `bytes` of payload.
    pub(super) fn bth(&self, opcode: Opcode, psn: Psn, bytes: u32, ack_request: bool) -> Bth {
        let bth = Bth::new(opcode, self.partition, self.destination, psn);
        Bth {
            ack_request,
            ..bth.carrying(bytes)
        }
    }
}
