// SPDX-License-Identifier: MIT OR Apache-2.0
//! Stores packets until their peers have acknowledged them. Small packets are copied; the data of large ones stay where
//! they are, in a lease or in exported memory.

use std::collections::HashMap;

use session::{Ack, Slot};

use super::memory::MemoryRange;
use super::packet::{HEADER_BYTES, MOST_FRAME_BYTES, TcpPacketHeader, TcpPacketKind};

/// A packet that is kept until it is acknowledged.
#[derive(Debug, Default)]
struct StoredPacket {
    kind: Option<TcpPacketKind>,
    /// The header, which is written when the packet is sent, and the payload.
    bytes: Vec<u8>,
    data: Option<MemoryRange>,
    /// The export whose memory contains the data, if they are in exported memory.
    export: Option<u64>,
}

/// The stored packets of all peers.
#[derive(Debug, Default)]
pub(super) struct PacketStore {
    slots: Vec<StoredPacket>,
    free: Vec<Slot>,
    /// Bytes of memory of those free slots that keep more than [`SMALL_BYTES`] each, for large packets.
    spare_bytes: usize,
    /// For each export, the number of packets whose data are in its memory.
    lent: HashMap<u64, u32>,
}

impl PacketStore {
    /// Stores a packet, which `make` writes behind room for the header; `data`: memory with the rest of the payload.
    pub(super) fn keep(
        &mut self,
        kind: TcpPacketKind,
        make: impl FnOnce(&mut Vec<u8>),
        data: Option<MemoryRange>,
        export: Option<u64>,
    ) -> Slot {
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push(StoredPacket::default());
            Slot::try_from(self.slots.len() - 1).expect("windows bound them")
        });
        if let Some(export) = export {
            *self.lent.entry(export).or_default() += 1;
        }
        let kept = &mut self.slots[slot as usize];
        if kept.bytes.capacity() > SMALL_BYTES {
            self.spare_bytes -= kept.bytes.capacity();
        }
        make(&mut kept.bytes);
        kept.kind = Some(kind);
        (kept.data, kept.export) = (data, export);
        slot
    }

    /// Appends to the payload of a packet that has no data beside it.
    pub(super) fn extend(&mut self, slot: Slot, append: impl FnOnce(&mut Vec<u8>)) {
        let kept = &mut self.slots[slot as usize];
        debug_assert!(kept.data.is_none(), "the payload ends with the data");
        append(&mut kept.bytes);
    }

    /// Payload bytes of a packet.
    pub(super) fn length(&self, slot: Slot) -> usize {
        let kept = &self.slots[slot as usize];
        kept.bytes.len() - HEADER_BYTES + kept.data.map_or(0, MemoryRange::bytes)
    }

    /// Whether a packet is larger than any frame.
    pub(super) fn is_large(&self, slot: Slot) -> bool {
        self.length(slot) > MOST_FRAME_BYTES
    }

    /// Writes the header of a packet that is to be sent now.
    pub(super) fn address(&mut self, slot: Slot, number: u32, ack: Ack, lacks_core: bool) {
        let bytes = self.length(slot);
        let kept = &mut self.slots[slot as usize];
        let header = TcpPacketHeader {
            bytes,
            kind: kept.kind.unwrap_or(TcpPacketKind::Ack),
            requests_ack: false,
            lacks_core,
            ack,
            number,
        };
        header.write_to(&mut kept.bytes[..HEADER_BYTES]);
    }

    /// The rest of a packet after its first `at` bytes.
    pub(super) fn rest(&self, slot: Slot, at: usize) -> (&[u8], Option<MemoryRange>) {
        let kept = &self.slots[slot as usize];
        let bytes = kept.bytes.get(at..).unwrap_or_default();
        let beyond = at.saturating_sub(kept.bytes.len());
        (bytes, kept.data.map(|data| data.from(beyond)))
    }

    /// Frees a packet that is acknowledged, or whose peer is lost; returns whether it was [large](Self::is_large).
    pub(super) fn free(&mut self, slot: Slot) -> bool {
        let is_large = self.is_large(slot);
        let kept = &mut self.slots[slot as usize];
        kept.data = None;
        // The slot keeps the memory for its next packet, unless that is large and free slots already keep too much.
        let bytes = kept.bytes.capacity();
        if bytes > SMALL_BYTES && self.spare_bytes + bytes > SPARE_BYTES {
            kept.bytes = Vec::new();
        } else if bytes > SMALL_BYTES {
            self.spare_bytes += bytes;
        }
        if let Some(export) = kept.export.take() {
            self.give_back(export);
        }
        self.free.push(slot);
        is_large
    }

    fn give_back(&mut self, export: u64) {
        if let Some(count) = self.lent.get_mut(&export) {
            *count -= 1;
            if *count == 0 {
                self.lent.remove(&export);
            }
        }
    }

    /// Copies stored data of an export whose memory may be reused now. A peer that keeps to the protocol has received
    /// all of them already.
    pub(super) fn withdraw(&mut self, export: u64) {
        if self.lent.remove(&export).is_none() {
            return;
        }
        for kept in &mut self.slots {
            if kept.export != Some(export) {
                continue;
            }
            kept.export = None;
            if let Some(data) = kept.data.take() {
                let from = kept.bytes.len();
                kept.bytes.resize(from + data.bytes(), 0);
                data.copy_to(&mut kept.bytes[from..]);
            }
        }
    }

    /// Memory used, in bytes.
    pub(super) fn bytes(&self) -> usize {
        let owned = self.slots.iter().map(|kept| kept.bytes.capacity());
        owned.sum::<usize>() + self.slots.capacity() * size_of::<StoredPacket>()
    }
}

/// `SMALL_BYTES`: every free slot may keep this many bytes of memory. `SPARE_BYTES`: maximum number of bytes kept by
/// all free slots that have more memory; enough for a few large frames.
const SMALL_BYTES: usize = 256;
const SPARE_BYTES: usize = 128 << 10;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn withdrawn_memory_is_copied_into_its_stored_packets() {
        let mut store = PacketStore::default();
        let memory = [5u8; 100];
        let address = memory.as_ptr().expose_provenance() as u64;
        let data = MemoryRange::exported(address, memory.len());
        let make = |bytes: &mut Vec<u8>| bytes.resize(HEADER_BYTES + 4, 1);
        let slot = store.keep(TcpPacketKind::Data, make, Some(data), Some(7));
        assert_eq!(store.length(slot), 104);
        assert_eq!(
            store.rest(slot, HEADER_BYTES + 14),
            (&[][..], Some(data.from(10)))
        );
        store.withdraw(8);
        assert_eq!(store.rest(slot, 0).1, Some(data));
        store.withdraw(7);
        assert_eq!((store.rest(slot, 0).1, store.length(slot)), (None, 104));
        assert_eq!(store.rest(slot, HEADER_BYTES + 4).0, memory);
        store.free(slot);
        assert_eq!(store.keep(TcpPacketKind::Data, make, None, None), slot);
    }

    #[test]
    fn memory_kept_by_free_packet_slots_is_bounded() {
        let mut store = PacketStore::default();
        let keep = |store: &mut PacketStore, bytes: usize| {
            let make = |place: &mut Vec<u8>| place.resize(bytes, 1);
            store.keep(TcpPacketKind::Frame, make, None, None)
        };
        for _ in 0..2 {
            let slots: Vec<Slot> = (0..100).map(|_| keep(&mut store, 8000)).collect();
            assert!(store.bytes() >= 800_000 && store.spare_bytes == 0);
            for slot in slots {
                store.free(slot);
            }
            assert!((SPARE_BYTES / 2..=SPARE_BYTES).contains(&store.spare_bytes));
            let places = store.slots.capacity() * size_of::<StoredPacket>();
            assert!(store.bytes() - places <= SPARE_BYTES);
        }
        // Now small packets take slots that have kept more memory.
        let slots: Vec<Slot> = (0..100).map(|_| keep(&mut store, 100)).collect();
        assert_eq!(store.spare_bytes, 0);
        for slot in slots {
            store.free(slot);
        }
        assert!(store.spare_bytes <= SPARE_BYTES);
    }
}
