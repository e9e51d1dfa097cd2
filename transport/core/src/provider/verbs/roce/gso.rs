// SPDX-License-Identifier: MIT OR Apache-2.0
//! Queues outgoing packets in batches for segmentation offload: a batch is contiguous packets of one length to one
//! peer, of which the last may be shorter. The system takes a batch in one call, and splits it into datagrams as late
//! as possible (`UDP_SEGMENT`). In doing so it increments the identification field of IPv4, which the ICRC of adapters
//! covers: so packets to adapters are not batched.

use std::net::SocketAddr;

use roce::format::{Bth, ICRC_BYTES};

use super::carrier::PACKET_BYTES;
use super::system::{NO_ADDRESS, OutgoingBatch};

/// Batches to be sent, in order.
#[derive(Debug)]
pub(super) struct GsoQueue {
    bytes: Box<[u8]>,
    batches: [GsoBatch; BATCHES],
    /// Number of batches; the last may grow.
    count: usize,
    /// Number of batches sent.
    left: usize,
    /// Maximum number of packets in a batch.
    most_packets: usize,
}

/// One batch; its bytes are at [`BATCH_BYTES`] times its index.
#[derive(Clone, Copy, Debug)]
struct GsoBatch {
    to: SocketAddr,
    /// Length of each packet except the last, which may be shorter.
    packet_bytes: usize,
    bytes: usize,
    packets: usize,
}

impl GsoQueue {
    pub(super) fn new() -> Self {
        Self {
            bytes: vec![0; BATCHES * BATCH_BYTES].into_boxed_slice(),
            batches: [GsoBatch::EMPTY; BATCHES],
            count: 0,
            left: 0,
            most_packets: MOST_PACKETS,
        }
    }

    /// Disables batching: from now on each packet is a batch of its own.
    pub(super) fn disable_batching(&mut self) {
        self.most_packets = 1;
    }

    /// The buffer for the next packet, [`PACKET_BYTES`] long; `None`: there is no room.
    pub(super) fn buffer(&mut self) -> Option<&mut [u8]> {
        let at = self.place()?;
        self.bytes.get_mut(at..at + PACKET_BYTES)
    }

    /// Queues the packet in the first `bytes` of [`buffer`](Self::buffer), for `to`.
    pub(super) fn push(&mut self, bytes: usize, to: SocketAddr) {
        let Some(at) = self.place() else {
            return;
        };
        let bytes = bytes.min(PACKET_BYTES);
        let last = self.count.checked_sub(1);
        let last = last.and_then(|last| self.batches.get_mut(last));
        if let Some(batch) = last.filter(|batch| batch.takes(bytes, to, self.most_packets)) {
            batch.bytes += bytes;
            batch.packets += 1;
            return;
        }
        let begin = self.count * BATCH_BYTES;
        if at != begin {
            self.bytes.copy_within(at..at + bytes, begin);
        }
        if let Some(batch) = self.batches.get_mut(self.count) {
            *batch = GsoBatch {
                to,
                packet_bytes: bytes,
                bytes,
                packets: 1,
            };
            self.count += 1;
        }
    }

    /// Whether there is nothing to send.
    pub(super) fn is_empty(&self) -> bool {
        self.left == self.count
    }

    /// Whether the last batch has several packets, and may take one more.
    pub(super) fn is_in_batch(&self) -> bool {
        let last = self.count.checked_sub(1).filter(|_| self.left < self.count);
        let last = last.and_then(|last| self.batches.get(last));
        last.is_some_and(|batch| {
            batch.packets > 1 && batch.is_whole() && batch.has_room(self.most_packets)
        })
    }

    /// The batches not sent yet, from the first on.
    pub(super) fn waiting(&self) -> impl Iterator<Item = OutgoingBatch<'_>> {
        let batches = self.batches[..self.count].iter().enumerate();
        batches.skip(self.left).filter_map(|(index, batch)| {
            let begin = index * BATCH_BYTES;
            Some(OutgoingBatch {
                bytes: self.bytes.get(begin..begin + batch.bytes)?,
                packet_bytes: batch.packet_bytes,
                to: batch.to,
            })
        })
    }

    /// Records that the first `batches` waiting batches were sent.
    pub(super) fn have_left(&mut self, batches: usize) {
        self.left += batches;
        if self.left >= self.count {
            (self.left, self.count) = (0, 0);
        }
    }

    /// Offset of the next packet; `None`: there is no room for a further batch, which the packet may need, since its
    /// destination is not known yet.
    fn place(&self) -> Option<usize> {
        if self.count == BATCHES {
            return None;
        }
        let last = self.count.checked_sub(1).filter(|_| self.left < self.count);
        let last = last.and_then(|last| Some((last, self.batches.get(last)?)));
        Some(match last {
            Some((index, batch)) if batch.has_room(self.most_packets) => {
                index * BATCH_BYTES + batch.bytes
            }
            _ => self.count * BATCH_BYTES,
        })
    }
}

impl GsoBatch {
    const EMPTY: Self = Self {
        to: NO_ADDRESS,
        packet_bytes: 0,
        bytes: 0,
        packets: 0,
    };

    /// Whether the batch has room for one more full packet.
    fn has_room(&self, most_packets: usize) -> bool {
        self.packets < most_packets && self.bytes + self.packet_bytes <= MOST_BATCH_BYTES
    }

    /// Whether a packet may be added to the batch.
    fn takes(&self, bytes: usize, to: SocketAddr, most_packets: usize) -> bool {
        let has_room = self.has_room(most_packets);
        let is_for_ours = to.port() != roce::format::PORT;
        let fits = self.to == to && (1..=self.packet_bytes).contains(&bytes);
        self.is_whole() && has_room && is_for_ours && fits
    }

    /// Whether all packets have the same length.
    fn is_whole(&self) -> bool {
        self.bytes == self.packets * self.packet_bytes
    }
}

/// Number of packets with `payload_bytes` of payload and no extended header that fit one batch.
pub(super) fn in_one_batch(payload_bytes: u32) -> u32 {
    let packet_bytes = Bth::BYTES + payload_bytes as usize + ICRC_BYTES;
    u32::try_from(MOST_BATCH_BYTES / packet_bytes).unwrap_or(u32::MAX)
}

/// Maximum number of batches.
pub(super) const BATCHES: usize = 16;
/// Room for one batch.
const BATCH_BYTES: usize = MOST_BATCH_BYTES + PACKET_BYTES;
/// The largest IP packet, without the headers of IP and UDP.
const MOST_BATCH_BYTES: usize = 65_535 - 40 - 8;
/// The limit of every kernel with segmentation offload (`UDP_MAX_SEGMENTS`).
const MOST_PACKETS: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    fn place(port: u16) -> SocketAddr {
        SocketAddr::from(([10, 0, 0, 1], port))
    }

    fn push(gso: &mut GsoQueue, bytes: usize, value: u8, to: u16) {
        gso.buffer().expect("there is room")[..bytes].fill(value);
        gso.push(bytes, place(to));
    }

    /// Destination, length of a packet, and the fill values of the packets, of each batch.
    fn waiting(gso: &GsoQueue) -> Vec<(u16, usize, Vec<u8>)> {
        let waiting = gso.waiting();
        let read = waiting.map(|it| {
            let packets = it.bytes.chunks(it.packet_bytes);
            let values = packets.map(|packet| {
                assert!(packet.iter().all(|byte| *byte == packet[0]));
                packet[0]
            });
            (it.to.port(), it.packet_bytes, values.collect())
        });
        read.collect()
    }

    #[test]
    fn packets_of_one_length_to_one_address_form_one_batch() {
        let mut gso = GsoQueue::new();
        for value in 1..=3 {
            push(&mut gso, 100, value, 7);
        }
        push(&mut gso, 20, 4, 7);
        push(&mut gso, 20, 5, 7);
        assert_eq!(
            waiting(&gso),
            [(7, 100, vec![1, 2, 3, 4]), (7, 20, vec![5])]
        );
    }

    #[test]
    fn another_address_or_a_longer_packet_begins_a_batch() {
        let mut gso = GsoQueue::new();
        push(&mut gso, 100, 1, 7);
        push(&mut gso, 100, 2, 8);
        push(&mut gso, 101, 3, 8);
        assert_eq!(
            waiting(&gso),
            [(7, 100, vec![1]), (8, 100, vec![2]), (8, 101, vec![3])]
        );
        gso.have_left(2);
        assert_eq!(waiting(&gso), [(8, 101, vec![3])]);
        gso.have_left(1);
        assert!(gso.is_empty());
    }

    #[test]
    fn batches_are_limited_in_packets_and_bytes() {
        let mut gso = GsoQueue::new();
        for (bytes, packets) in [(30, MOST_PACKETS), (1040, 62), (4096, 15)] {
            let count = u8::try_from(packets + 3).unwrap();
            for value in 0..count {
                push(&mut gso, bytes, value, 7);
            }
            let first = (0..count - 3).collect();
            let rest = (count - 3..count).collect();
            assert_eq!(
                waiting(&gso),
                [(7, bytes, first), (7, bytes, rest)],
                "each packet is where it was written"
            );
            assert!(gso.waiting().all(|it| it.bytes.len() <= 65_487));
            gso.have_left(2);
        }
    }

    #[test]
    fn a_full_gso_queue_returns_no_buffer() {
        let mut gso = GsoQueue::new();
        for to in 0..BATCHES {
            push(&mut gso, 9, 1, u16::try_from(to).unwrap());
        }
        assert!(gso.buffer().is_none());
        gso.have_left(BATCHES - 1);
        assert!(gso.buffer().is_none(), "the last has not left");
        gso.have_left(1);
        assert!(gso.buffer().is_some());
    }

    #[test]
    fn with_batching_disabled_each_packet_is_sent_alone() {
        let mut gso = GsoQueue::new();
        gso.disable_batching();
        push(&mut gso, 9, 1, 7);
        push(&mut gso, 9, 2, 7);
        assert_eq!(waiting(&gso), [(7, 9, vec![1]), (7, 9, vec![2])]);
    }
}
