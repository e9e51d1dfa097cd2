// SPDX-License-Identifier: MIT OR Apache-2.0
//! Writes outgoing packets: headers, payload, pad and checksum, contiguous in a carrier's buffer, or only the headers,
//! in front of a payload that the carrier sends in place.
//!
//! A payload that is sent in place may change as soon as its request is complete. In rare cases the carrier still holds
//! the packet then; W1 shows why that does no harm.
//!
//! **W1.** A packet has its payload in place only when it is sent for the first time, and never if it is a datagram;
//! retransmissions are copied, and so is the rest of a read response that is sent again. A carrier sends in order. So
//! when a packet is acknowledged, whichever transmission arrived, the carrier has read the payload for the first one. A
//! queue pair that breaks returns its memory earlier: a packet sent later with other bytes has a wrong checksum, and is
//! dropped as damaged. If memory changes while a peer reads it, the response may be dropped as damaged, too; its
//! retransmission is a copy.

use dpdk_sys::LentPart;
use roce::format::ICRC_BYTES;
use roce::icrc::{Icrc, IcrcPrefix, RecentPrefixes};
use roce::{OutgoingPacket, PacketPayload, RoceSge};

use super::super::port::PortCounts;
use super::carrier::Carrier;
use super::regions::RoceRegions;

/// Writer of outgoing packets to a carrier.
#[derive(Debug)]
pub(super) struct PacketWriter<'a, C> {
    carrier: &'a mut C,
    counts: &'a PortCounts,
    prefixes: &'a mut RecentPrefixes,
    /// Payloads of at least this size, in bytes, are sent in place.
    lends_from: u32,
}

impl<'a, C: Carrier> PacketWriter<'a, C> {
    /// A writer to this carrier; packets sent in place are counted in `counts`.
    pub(super) fn new(
        carrier: &'a mut C,
        counts: &'a PortCounts,
        prefixes: &'a mut RecentPrefixes,
    ) -> Self {
        Self {
            lends_from: carrier.lends_from(),
            carrier,
            counts,
            prefixes,
        }
    }

    /// Whether there is room for one more packet, after a flush if needed.
    pub(super) fn makes_room(&mut self) -> bool {
        if self.carrier.buffer().is_some() {
            return true;
        }
        self.carrier.flush();
        !self.carrier.has_unsent() && self.carrier.buffer().is_some()
    }

    /// Whether the last queued packets are a batch, to which the next packet may be added.
    pub(super) fn is_in_batch(&self) -> bool {
        self.carrier.is_in_batch()
    }

    /// Queues a packet. A packet that cannot be written counts as lost.
    pub(super) fn push(&mut self, outgoing: &OutgoingPacket<'_>, regions: &RoceRegions) {
        match lent(outgoing, regions, self.lends_from) {
            Some((piece, part)) => self.push_around(outgoing, regions, (piece, part)),
            None => self.push_copied(outgoing, regions),
        }
    }

    /// Queues a packet with a copy of its payload.
    pub(super) fn push_copied(&mut self, outgoing: &OutgoingPacket<'_>, regions: &RoceRegions) {
        let Some(prefix) = self.prefix(outgoing) else {
            return;
        };
        let buffer = self.carrier.buffer();
        let bytes = buffer.and_then(|buffer| write(outgoing, regions, prefix, buffer));
        if let Some(bytes) = bytes {
            self.carrier.push(bytes, outgoing.to);
        }
    }

    /// Queues a packet with its payload in place, if the carrier can do that now, otherwise with a copy of the payload.
    fn push_around(
        &mut self,
        outgoing: &OutgoingPacket<'_>,
        regions: &RoceRegions,
        at: (RoceSge, LentPart),
    ) {
        let Some(prefix) = self.prefix(outgoing) else {
            return;
        };
        let buffer = self.carrier.buffer();
        let written = buffer.and_then(|buffer| write_head(outgoing, at, prefix, buffer));
        let Some((bytes, behind)) = written else {
            return;
        };
        if self.carrier.push_around(bytes, &behind, outgoing.to) {
            self.counts.in_place.add(1);
            self.counts.in_place_bytes.add(behind.part.bytes.into());
            return;
        }
        let buffer = self.carrier.buffer();
        let copied = buffer.and_then(|buffer| behind.copy(regions, bytes, buffer));
        if let Some(bytes) = copied {
            self.carrier.push(bytes, outgoing.to);
        }
    }

    /// The part of the packet's ICRC that covers the IP and UDP headers.
    #[inline(always)]
    fn prefix(&mut self, outgoing: &OutgoingPacket<'_>) -> Option<IcrcPrefix> {
        let from = self.carrier.source(outgoing.to);
        let bytes = u16::try_from(outgoing.bytes()).ok()?;
        self.prefixes.assumed(from, outgoing.to, bytes).ok()
    }
}

/// The rest of a packet, behind its headers, which are written already.
#[derive(Debug)]
pub(crate) struct PacketRest {
    /// The payload as a range of the carrier; `piece` is the same bytes as a range of a region.
    pub(super) part: LentPart,
    piece: RoceSge,
    pub(super) pad: &'static [u8],
    /// The checksum of the headers.
    pub(super) icrc: Icrc,
}

impl PacketRest {
    /// Length of this rest in bytes, with the checksum at its end.
    pub(super) fn bytes(&self) -> usize {
        let payload = usize::try_from(self.part.bytes).unwrap_or(usize::MAX);
        payload + self.pad.len() + ICRC_BYTES
    }

    /// Copies the rest behind the headers in `buffer`, which are `at` bytes long; returns the length of the packet.
    pub(super) fn copy(
        &self,
        regions: &RoceRegions,
        at: usize,
        buffer: &mut [u8],
    ) -> Option<usize> {
        let place = buffer.get_mut(at..at + self.bytes())?;
        let (behind, checksum) = place.split_last_chunk_mut::<ICRC_BYTES>()?;
        let (payload, pad) = behind.split_at_mut(behind.len() - self.pad.len());
        regions.gather(self.piece, payload).ok()?;
        pad.copy_from_slice(self.pad);
        let mut icrc = self.icrc.clone();
        icrc.add(behind);
        *checksum = icrc.finish();
        Some(at + self.bytes())
    }
}

/// The payload of a packet, if it can be sent in place (W1).
fn lent(
    outgoing: &OutgoingPacket<'_>,
    regions: &RoceRegions,
    lends_from: u32,
) -> Option<(RoceSge, LentPart)> {
    match outgoing.payload {
        PacketPayload::Sge(piece) if piece.bytes >= lends_from && !outgoing.is_repeated => {
            Some((piece, regions.lent(piece)?))
        }
        _ => None,
    }
}

/// Writes the headers in front of a payload that is sent in place; returns the length of the headers, and the rest of
/// the packet.
fn write_head(
    outgoing: &OutgoingPacket<'_>,
    (piece, part): (RoceSge, LentPart),
    prefix: IcrcPrefix,
    to: &mut [u8],
) -> Option<(usize, PacketRest)> {
    let at = outgoing.headers.write_to(to)?;
    let behind = PacketRest {
        part,
        piece,
        pad: outgoing.pad(),
        icrc: Icrc::new(prefix, to.get(..at)?),
    };
    Some((at, behind))
}

/// Writes a whole packet; returns its length.
fn write(
    outgoing: &OutgoingPacket<'_>,
    regions: &RoceRegions,
    prefix: IcrcPrefix,
    to: &mut [u8],
) -> Option<usize> {
    let bytes = outgoing.bytes();
    let (packet, rest) = to.split_at_mut_checked(bytes)?;
    let checksum = rest.first_chunk_mut::<ICRC_BYTES>()?;
    let at = outgoing.headers.write_to(packet)?;
    let (payload, pad) = packet
        .get_mut(at..)?
        .split_at_mut_checked(usize::try_from(outgoing.payload.bytes()).ok()?)?;
    match outgoing.payload {
        PacketPayload::Nothing => {}
        PacketPayload::Inline(inline) => payload.copy_from_slice(inline),
        PacketPayload::Sge(piece) => regions.gather(piece, payload).ok()?,
    }
    pad.fill(0);
    *checksum = Icrc::new(prefix, packet).finish();
    Some(bytes + ICRC_BYTES)
}
