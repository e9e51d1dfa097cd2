// SPDX-License-Identifier: MIT OR Apache-2.0
//! What takes packets to other hosts and brings theirs. It knows nothing of what they are; the port writes them into its buffers
//! and reads them there, so that nothing is copied in between.

use std::fmt;
use std::net::SocketAddr;
use std::os::fd::BorrowedFd;

use dpdk_sys::{LentMemory, Loan};
use roce::format::{Headers, ICRC_BYTES, NetworkHeaders, PAYLOAD_BYTES_MAX, PORT};
use roce::link::FramePayload;

use super::writing::Behind;

/// What packets go through. It may lose them, and bring them twice, in another order, or damaged.
pub(crate) trait Carrier: fmt::Debug + Send {
    /// Time since any moment in the past.
    fn now_ns(&self) -> u64;

    /// The same. What is done until this is called again counts as done now: to read a clock for every packet takes longer than to
    /// send it.
    fn begin(&mut self) -> u64 {
        self.now_ns()
    }

    /// What others send to.
    fn local(&self) -> SocketAddr;

    /// Where a packet comes from that goes there and is written next.
    fn source(&mut self, to: SocketAddr) -> SocketAddr {
        _ = to;
        self.local()
    }

    /// Largest datagram that leaves whole, with the headers of IP and UDP.
    fn most_bytes(&self) -> usize;

    /// Bytes that may wait here to be received, as the system counts them; what comes beyond is lost.
    fn waiting_bytes(&self) -> usize;

    /// Where the next packet that is to leave is written, [`PACKET_BYTES`] long; `None`: there is no room until
    /// [`flush`](Self::flush) has sent some.
    fn buffer(&mut self) -> Option<&mut [u8]>;

    /// The first `bytes` of [`buffer`](Self::buffer) are a packet, which is to go there.
    fn push(&mut self, bytes: usize, to: SocketAddr);

    /// Lets it send from memory without copying that; `None`: it copies all, or what lies there.
    fn lend(&mut self, _: LentMemory) -> Option<Loan> {
        None
    }

    /// Takes memory back that it has, and returns when nothing reads it any more.
    fn take_back(&mut self, _: Loan) {}

    /// Payloads of at least so many bytes are better not copied.
    fn lends_from(&self) -> u32 {
        u32::MAX
    }

    /// The first `bytes` of [`buffer`](Self::buffer) are a packet up to its payload, which is to go there without being copied.
    /// `false`: that cannot be done now, and the packet is as it was.
    fn push_around(&mut self, _bytes: usize, _behind: &Behind, _to: SocketAddr) -> bool {
        false
    }

    /// Sends what was pushed, as far as the system takes it now. What can never leave counts as lost on the way.
    fn flush(&mut self);

    /// Whether something that was pushed waits to be taken.
    fn has_unsent(&self) -> bool;

    /// Takes a burst of packets that have come; answers how many. Those of the last burst are forgotten.
    fn receive(&mut self) -> usize;

    /// One of them.
    fn received(&self, index: usize) -> Option<FramePayload<'_>>;

    /// Whether [`descriptor`](Self::descriptor) shows when there is room for what was pushed.
    fn shows_room(&self) -> bool {
        true
    }

    /// A descriptor that is readable while a packet waits, and writable while there is room to send; `None`: there is none,
    /// and time passes only when somebody lets it.
    fn descriptor(&self) -> Option<BorrowedFd<'_>>;
}

/// A packet that came from there to here as a datagram of UDP, whose headers the system has taken off.
pub(super) fn assumed(
    bytes: &[u8],
    from: SocketAddr,
    local: SocketAddr,
) -> Option<FramePayload<'_>> {
    let packet = u16::try_from(bytes.len().checked_sub(ICRC_BYTES)?).ok()?;
    Some(FramePayload {
        network: NetworkHeaders::assumed(from, local, packet).ok()?,
        bytes,
        from,
        is_marked: false,
        // Adapters send to that port alone, and with ids as they like.
        is_id_unknown: local.port() == PORT,
    })
}

/// No packet is longer: headers, payload, pad and checksum.
pub(crate) const PACKET_BYTES: usize =
    (Headers::BYTES_MAX + PAYLOAD_BYTES_MAX + 3 + ICRC_BYTES).next_multiple_of(64);
