// SPDX-License-Identifier: MIT OR Apache-2.0
//! RoCEv2 reliable connections in user space, with the wire format of Linux Soft-RoCE (`rdma_rxe`) and of adapters.
//! Sans-IO: received packets and the time are arguments, and packets to send are returned, so a test with random
//! numbers is reproduced by its seed.
//!
//! **Knows** packets, queue pairs and memory keys.
//! **Never** uses a socket, a device or a clock, and never accesses registered memory itself: its user implements
//! [`RegisteredMemory`] for that.
//!
//! # Parts
//! - [`mod@format`] parses and writes packets; [`icrc`] computes their checksum.
//! - [`QueuePair`] is a reliable queue pair: requester, responder, retransmission, completions. [`ReceiveQueue`] is the
//!   shared receive queue. [`DatagramPair`] is an unreliable-datagram queue pair. Each of these objects is owned by its
//!   creator; no call blocks or takes a lock.
//! - [`RegisteredMemory`] is the engine's access to registered memory.
//! - [`link`] parses and writes the layers below RoCE (Ethernet, IP, UDP) for carriers without a kernel.
//!
//! # Duties of a carrier
//! - It looks up the queue pair by the destination QP of the BTH, verifies the ICRC ([`icrc::verify`]), and calls
//!   [`QueuePair::receive`]. After a burst it calls [`QueuePair::next_outgoing`] until that returns `None`, or
//!   [`QueuePair::has_sent_all`] is true. So a burst is acknowledged once.
//! - It passes an ECN mark of the IP header on with [`Packet::marked`](format::Packet::marked), and sends packets as
//!   ECN-capable.
//! - It sends headers, payload, pad and ICRC of an [`OutgoingPacket`] contiguously. The carrier may gather payload from
//!   registered memory without a copy, but must have done so before that memory is written or deregistered.
//! - It calls [`QueuePair::next_outgoing`] again when [`QueuePair::deadline`] has passed.
//! - If it finds out that an unresponsive peer is alive, it reports that with [`QueuePair::note_peer_alive`].
//!
//! # Promises
//! - Q1: the responder executes each request once, in the order of posting; only a read that is requested again is
//!   executed again. Completions are returned in the order of posting too, one for each request that is signaled or
//!   fails.
//! - Q2: no packet causes a panic, an endless loop or unbounded growth: memory is bounded by the depths in [`Config`]
//!   and, with selective repeat, by 256 packets received out of order.
//! - Q3: memory is accessed only after [`RegisteredMemory::check`] has allowed it.
//!
//! Times are in nanoseconds since an arbitrary moment and never decrease. `now_ns` of [`QueuePair::receive`] should be
//! the packet's arrival time: round trips are measured with it, and congestion is inferred from the round trips.
//!
//! # Example
//! ```
//! use roce::format::Packet;
//! use roce::{CompletionKind, Config, PacketPayload, QueuePair, ReceiveQueue};
//! use roce::{RequestBody, RequestOpcode, RoceRequest, RoceSge};
//! # use roce::{AccessError, MemoryAccess, RegisteredMemory};
//! # struct Bytes(Vec<u8>);
//! # impl RegisteredMemory for Bytes {
//! #     fn check(&self, _: u32, _: u64, _: u64, _: MemoryAccess) -> Result<(), AccessError> {
//! #         Ok(())
//! #     }
//! #     fn place(&mut self, _: u32, _: u64, bytes: &[u8]) -> Result<(), AccessError> {
//! #         self.0[..bytes.len()].copy_from_slice(bytes);
//! #         Ok(())
//! #     }
//! #     fn fetch_add(&mut self, key: u32, _: u64, _: u64) -> Result<u64, AccessError> {
//! #         Err(AccessError::Key { key })
//! #     }
//! #     fn compare_swap(&mut self, key: u32, _: u64, _: u64, _: u64) -> Result<u64, AccessError> {
//! #         Err(AccessError::Key { key })
//! #     }
//! # }
//! # let mut memory = Bytes(vec![0; 16]);
//! let host_1: std::net::SocketAddr = "10.0.0.1:4791".parse()?;
//! let host_2 = "10.0.0.2:4791".parse()?;
//! let mut here = QueuePair::new(Config::new(17, 18, host_2))?;
//! let mut there = QueuePair::new(Config::new(18, 17, host_1))?;
//! let mut receives = ReceiveQueue::new(64);
//! receives.post(5, RoceSge { key: 1, address: 0, bytes: 16 });
//!
//! here.post(&RoceRequest {
//!     work: 4,
//!     operation: RequestOpcode::Send,
//!     body: RequestBody::Inline(b"hello"),
//!     immediate: None,
//!     signaled: true,
//! })?;
//! while let Some(outgoing) = here.next_outgoing(0, &memory) {
//!     let mut wire = outgoing.headers.as_bytes().to_vec();
//!     if let PacketPayload::Inline(bytes) = outgoing.payload {
//!         wire.extend(bytes);
//!     }
//!     wire.extend(outgoing.pad());
//!     there.receive(0, host_1.ip(), &Packet::parse(&wire)?, &mut memory, &mut receives);
//! }
//! let received = there.poll(CompletionKind::Receives).expect("it has arrived");
//! assert_eq!((received.work, received.bytes), (5, 5));
//! assert_eq!(memory.0[..5], *b"hello");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#![forbid(unsafe_code)]

mod datagram;
pub mod format;
pub mod icrc;
pub mod link;
mod memory;
mod pair;
mod psn;

pub use datagram::{
    Datagram, DatagramConfig, DatagramError, DatagramPair, GRH_BYTES, ReceivedDatagram,
};
pub use memory::{AccessError, MemoryAccess, RegisteredMemory, RoceSge};
pub use pair::{
    CompletionKind, CompletionStatus, Config, ConfigError, CongestionCounts, MESSAGE_BYTES_MAX,
    OutgoingPacket, PacketPayload, PathMtu, PostError, QueuePair, QueuePairCounts, QueuePairState,
    ReceiveQueue, RequestBody, RequestOpcode, RoceRequest, WorkCompletion,
};
pub use psn::Psn;
