// SPDX-License-Identifier: MIT OR Apache-2.0
//! The interface to carriers, which send packets to other hosts and receive theirs. A carrier does not interpret
//! packets; the port writes them into the carrier's buffers and reads them there, so that nothing is copied in between.

use std::fmt;
use std::net::SocketAddr;
use std::os::fd::BorrowedFd;

use dpdk_sys::{InPlaceMemory, Loan};
use roce::format::{Headers, ICRC_BYTES, PAYLOAD_BYTES_MAX, PORT};
use roce::icrc::{IcrcPrefix, RecentPrefixes};
use roce::link::FramePayload;

use super::writing::PacketRest;

/// A carrier of packets. It may lose, duplicate, reorder or damage them.
pub(crate) trait Carrier: fmt::Debug + Send {
    /// Whether consecutive packets of one length to one peer are sent in batches.
    const SENDS_BATCHES: bool = false;

    /// Time since a fixed moment in the past.
    fn now_ns(&self) -> u64;

    /// Reads the clock for what follows until the next call: reading it for every packet takes longer than sending one.
    fn begin(&mut self) -> u64 {
        self.now_ns()
    }

    /// The local socket address, to which peers send.
    fn local(&self) -> SocketAddr;

    /// The source address of the next packet to `to`.
    fn source(&mut self, to: SocketAddr) -> SocketAddr {
        _ = to;
        self.local()
    }

    /// Largest datagram that is sent unfragmented, including the headers of IP and UDP.
    fn most_bytes(&self) -> usize;

    /// Size of the receive buffer, as the system accounts it; packets beyond it are dropped.
    fn waiting_bytes(&self) -> usize;

    /// The buffer for the next outgoing packet, [`PACKET_BYTES`] long; `None`: there is no room until
    /// [`flush`](Self::flush) has sent some.
    fn buffer(&mut self) -> Option<&mut [u8]>;

    /// Queues the packet in the first `bytes` of [`buffer`](Self::buffer), for `to`.
    fn push(&mut self, bytes: usize, to: SocketAddr);

    /// Lets the carrier send from memory without a copy; `None`: it copies all packets, or those from this memory.
    fn lend(&mut self, _: InPlaceMemory) -> Option<Loan> {
        None
    }

    /// Takes memory back; returns when the carrier does not read it any more.
    fn take_back(&mut self, _: Loan) {}

    /// Smallest payload that is better sent in place than copied, in bytes.
    fn lends_from(&self) -> u32 {
        u32::MAX
    }

    /// Queues the packet whose headers are the first `bytes` of [`buffer`](Self::buffer), and whose payload is sent in
    /// place. `false`: impossible now, and nothing was changed.
    fn push_around(&mut self, _bytes: usize, _behind: &PacketRest, _to: SocketAddr) -> bool {
        false
    }

    /// Whether the last queued packets are a batch, to which the next packet may be added.
    fn is_in_batch(&self) -> bool {
        false
    }

    /// Sends queued packets, as far as the system takes them now. A packet that cannot be sent at all counts as lost.
    fn flush(&mut self);

    /// Whether packets are still queued.
    fn has_unsent(&self) -> bool;

    /// Receives a burst of packets; returns how many. The packets of the last burst are discarded. Not each call need
    /// look at everything that a carrier receives from.
    fn receive(&mut self) -> usize;

    /// As [`receive`](Self::receive), but returns 0 only if no packet waits anywhere.
    fn receive_any(&mut self) -> usize {
        self.receive()
    }

    /// A packet of the last burst.
    fn received(&self, index: usize) -> Option<FramePayload<'_>>;

    /// Whether [`descriptor`](Self::descriptor) shows when there is room for queued packets.
    fn shows_room(&self) -> bool {
        true
    }

    /// A descriptor that is readable while a packet waits, and writable while there is room to send; `None`: nothing
    /// shows that, so the process must poll.
    fn descriptor(&self) -> Option<BorrowedFd<'_>>;

    /// A further descriptor that is readable while a packet waits, if it was opened since the last call.
    fn new_descriptor(&mut self) -> Option<BorrowedFd<'_>> {
        None
    }
}

/// The part of the ICRC that covers the headers of a datagram of `bytes` bytes, which the system has removed. `None`:
/// the datagram cannot be a packet.
pub(super) fn prefix_of(
    recent: &mut RecentPrefixes,
    bytes: usize,
    from: SocketAddr,
    local: SocketAddr,
) -> Option<IcrcPrefix> {
    let packet = u16::try_from(bytes.checked_sub(ICRC_BYTES)?).ok()?;
    recent.assumed(from, local, packet).ok()
}

/// A packet that arrived as a UDP datagram.
pub(super) fn of_datagram(
    bytes: &[u8],
    from: SocketAddr,
    local: SocketAddr,
    prefix: IcrcPrefix,
) -> FramePayload<'_> {
    FramePayload {
        prefix,
        bytes,
        from,
        is_marked: false,
        // Adapters send only to this UDP port, with arbitrary IP identification fields.
        is_id_unknown: local.port() == PORT,
    }
}

/// Longest packet: headers, payload, pad and checksum.
pub(crate) const PACKET_BYTES: usize =
    (Headers::BYTES_MAX + PAYLOAD_BYTES_MAX + 3 + ICRC_BYTES).next_multiple_of(64);
