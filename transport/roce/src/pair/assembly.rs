// SPDX-License-Identifier: MIT OR Apache-2.0
//! Assembles the current send or write from its packets. IBTA vol. 1 section 9.7.4.
//!
//! A packet is checked completely before it changes anything, so a packet that is refused with an RNR NAK can be sent
//! again.

use super::receives::{PostedReceive, ReceiveQueue};
use super::request::{CompletionStatus, MESSAGE_BYTES_MAX};
use crate::format::{MessagePosition, Nak, OpcodeClass, Packet, Reth};
use crate::memory::{MemoryAccess, RegisteredMemory};

/// The message that is being received.
#[derive(Debug)]
pub(super) struct Assembly {
    message: Option<MessageInProgress>,
    mtu_bytes: usize,
}

/// A packet of the message.
#[derive(Clone, Copy, Debug)]
pub(super) struct ArrivedPacket<'a> {
    pub(super) packet: &'a Packet<'a>,
    /// Length of the payload in bytes, if the packet was received out of order and its payload is already in the
    /// destination memory.
    pub(super) placed_bytes: Option<u32>,
}

/// A message whose first packet has arrived and whose last packet has not.
#[derive(Clone, Copy, Debug)]
enum MessageInProgress {
    Send { buffer: PostedReceive, placed: u32 },
    Write { reth: Reth, placed: u32 },
}

/// A receive buffer that is complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FilledBuffer {
    pub(super) work: u64,
    pub(super) bytes: u32,
    pub(super) immediate: Option<[u8; 4]>,
}

/// The reason why a packet is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PacketRefusal {
    /// There is no receive buffer.
    Rnr,
    /// The packet is invalid, and this NAK is the reply.
    Nak(Nak),
    /// The receive buffer is too short or not registered: `nak` is the reply, and the buffer with id `work` completes
    /// with `status`.
    Buffer {
        nak: Nak,
        work: u64,
        status: CompletionStatus,
    },
}

impl Assembly {
    pub(super) fn new(mtu_bytes: u32) -> Self {
        Self {
            message: None,
            mtu_bytes: usize::try_from(mtu_bytes).unwrap_or(usize::MAX),
        }
    }

    /// Whether a message has begun and has not ended.
    pub(super) fn is_in_progress(&self) -> bool {
        self.message.is_some()
    }

    /// Abandons the current message. If the message is a send, returns the work id of its receive buffer.
    pub(super) fn abandon(&mut self) -> Option<u64> {
        match self.message.take()? {
            MessageInProgress::Send { buffer, .. } => Some(buffer.work),
            MessageInProgress::Write { .. } => None,
        }
    }

    /// Takes the next packet of a send or a write. Returns the receive buffer that the packet completes, if any.
    pub(super) fn take<M: RegisteredMemory>(
        &mut self,
        part: ArrivedPacket<'_>,
        memory: &mut M,
        receives: &mut ReceiveQueue,
    ) -> Result<Option<FilledBuffer>, PacketRefusal> {
        self.check_length(part)?;
        let packet = part.packet;
        let opcode = packet.bth.opcode;
        let begins = matches!(
            opcode.position(),
            MessagePosition::First | MessagePosition::Only
        );
        match (opcode.kind(), self.message, begins) {
            // Invalidation of keys is not implemented, so the request must not appear to succeed.
            _ if opcode.invalidates() => Err(INVALID),
            (OpcodeClass::Send, None, true) => {
                let buffer = receives.take().ok_or(PacketRefusal::Rnr)?;
                self.send(packet, buffer, 0, memory)
            }
            (OpcodeClass::Send, Some(MessageInProgress::Send { buffer, placed }), false) => {
                self.send(packet, buffer, placed, memory)
            }
            (OpcodeClass::Write, None, true) => {
                let reth = packet.reth().ok_or(INVALID)?;
                self.write(part, reth, 0, memory, receives)
            }
            (OpcodeClass::Write, Some(MessageInProgress::Write { reth, placed }), false) => {
                self.write(part, reth, placed, memory, receives)
            }
            _ => Err(INVALID),
        }
    }

    /// Writes the payload of a packet that was received out of order to its destination, and returns its length.
    /// `None`: the packet does not belong to the current write. `distance`: the packet's distance from the expected
    /// packet. With the length of the write it determines where the payload belongs.
    pub(super) fn place_ahead<M: RegisteredMemory>(
        &self,
        packet: &Packet<'_>,
        distance: u32,
        memory: &mut M,
    ) -> Option<u32> {
        let Some(MessageInProgress::Write { reth, placed }) = self.message else {
            return None;
        };
        let length = u32::try_from(packet.payload.len()).ok()?;
        let mtu_bytes = u32::try_from(self.mtu_bytes).ok()?;
        let from = distance.checked_mul(mtu_bytes)?.checked_add(placed)?;
        let rest = reth.bytes.checked_sub(from)?;
        let opcode = packet.bth.opcode;
        let is_its = match opcode.position() {
            MessagePosition::Middle => length == mtu_bytes && length < rest,
            MessagePosition::Last => length == rest && (1..=mtu_bytes).contains(&length),
            MessagePosition::First | MessagePosition::Only => false,
        };
        if opcode.kind() != OpcodeClass::Write || !is_its {
            return None;
        }
        let address = reth.address.wrapping_add(from.into());
        memory
            .check(reth.key, address, length.into(), MemoryAccess::RemoteWrite)
            .and_then(|()| memory.place(reth.key, address, packet.payload))
            .ok()
            .map(|()| length)
    }

    fn send<M: RegisteredMemory>(
        &mut self,
        packet: &Packet<'_>,
        buffer: PostedReceive,
        placed: u32,
        memory: &mut M,
    ) -> Result<Option<FilledBuffer>, PacketRefusal> {
        self.message = None;
        let wrong = |nak, status| PacketRefusal::Buffer {
            nak,
            work: buffer.work,
            status,
        };
        let length = u32::try_from(packet.payload.len()).unwrap_or(u32::MAX);
        let bytes = placed.saturating_add(length);
        if bytes > buffer.sge.bytes {
            return Err(wrong(Nak::InvalidRequest, CompletionStatus::LocalLength));
        }
        if length != 0 {
            let part = buffer.sge.part(placed, length);
            memory
                .check(
                    part.key,
                    part.address,
                    length.into(),
                    MemoryAccess::LocalWrite,
                )
                .and_then(|()| memory.place(part.key, part.address, packet.payload))
                .map_err(|_| wrong(Nak::RemoteOperation, CompletionStatus::LocalProtection))?;
        }
        if !ends(packet) {
            self.message = Some(MessageInProgress::Send {
                buffer,
                placed: bytes,
            });
            return Ok(None);
        }
        Ok(Some(FilledBuffer {
            work: buffer.work,
            bytes,
            immediate: packet.immediate().map(|immediate| immediate.data),
        }))
    }

    fn write<M: RegisteredMemory>(
        &mut self,
        part: ArrivedPacket<'_>,
        reth: Reth,
        placed: u32,
        memory: &mut M,
        receives: &mut ReceiveQueue,
    ) -> Result<Option<FilledBuffer>, PacketRefusal> {
        let packet = part.packet;
        let length = part.bytes();
        let bytes = placed.saturating_add(length);
        let fits = match ends(packet) {
            true => bytes == reth.bytes,
            false => bytes < reth.bytes,
        };
        if !fits || reth.bytes > MESSAGE_BYTES_MAX {
            return Err(INVALID);
        }
        let immediate = packet.immediate();
        if immediate.is_some() && receives.is_empty() {
            return Err(PacketRefusal::Rnr);
        }
        if length != 0 && part.placed_bytes.is_none() {
            let (key, rest) = (reth.key, u64::from(reth.bytes - placed));
            let address = reth.address.wrapping_add(placed.into());
            memory
                .check(key, address, rest, MemoryAccess::RemoteWrite)
                .and_then(|()| memory.place(key, address, packet.payload))
                .map_err(|_| PacketRefusal::Nak(Nak::RemoteAccess))?;
        }
        self.message = (!ends(packet)).then_some(MessageInProgress::Write {
            reth,
            placed: bytes,
        });
        let buffer = immediate.and_then(|immediate| Some((immediate, receives.take()?)));
        Ok(buffer.map(|(immediate, buffer)| FilledBuffer {
            work: buffer.work,
            bytes: reth.bytes,
            immediate: Some(immediate.data),
        }))
    }

    /// Checks that the payload length is valid for the packet's position in its message.
    fn check_length(&self, part: ArrivedPacket<'_>) -> Result<(), PacketRefusal> {
        let length = usize::try_from(part.bytes()).unwrap_or(usize::MAX);
        let is_right = match part.packet.bth.opcode.position() {
            MessagePosition::First | MessagePosition::Middle => length == self.mtu_bytes,
            MessagePosition::Last => (1..=self.mtu_bytes).contains(&length),
            MessagePosition::Only => length <= self.mtu_bytes,
        };
        is_right.then_some(()).ok_or(INVALID)
    }
}

impl ArrivedPacket<'_> {
    fn bytes(&self) -> u32 {
        let came = self.packet.payload.len();
        self.placed_bytes
            .unwrap_or_else(|| u32::try_from(came).unwrap_or(u32::MAX))
    }
}

/// Whether the packet is the last one of its message.
fn ends(packet: &Packet<'_>) -> bool {
    matches!(
        packet.bth.opcode.position(),
        MessagePosition::Last | MessagePosition::Only
    )
}

const INVALID: PacketRefusal = PacketRefusal::Nak(Nak::InvalidRequest);
