// SPDX-License-Identifier: MIT OR Apache-2.0
//! RoCEv2 reliable connections in user space, on the wire as Linux Soft-RoCE (`rdma_rxe`) and adapters have them. Sans-IO:
//! packets and time are arguments, and what is to be sent is handed out. So a seed replays any run.
//!
//! **Knows** packets, queue pairs and keys of memory.
//! **Never** knows a socket, a device or a clock, and never reads or writes memory itself: that is behind [`RegisteredMemory`].
//!
//! # Parts
//! - [`mod@format`] reads and writes packets; [`icrc`] is their checksum.
//! - [`QueuePair`] is a reliable queue pair: requester, responder, retries, completions. [`ReceiveQueue`] is the shared receive
//!   queue. [`DatagramPair`] is a queue pair for datagrams. All belong to whoever made them, and no call waits or takes a lock.
//! - [`RegisteredMemory`] is how the engine reaches registered memory.
//! - [`link`] writes and reads what lies below RoCE, where no kernel does.
//!
//! # What a carrier does
//! - It finds the queue pair of a packet by the BTH's destination, verifies the checksum ([`icrc::verify`]), and calls
//!   [`QueuePair::receive`]. After a burst it asks [`QueuePair::next_outgoing`] until there is nothing: so the burst has one
//!   acknowledgement.
//! - It says with [`Packet::marked`](format::Packet::marked) that the network has marked a packet (ECN), and sends packets as such
//!   that can be marked.
//! - It puts headers, payload, pad and checksum of an [`OutgoingPacket`] one behind the other; payload in registered memory can be
//!   gathered, and must be before that memory is written or deregistered.
//! - It calls `next_outgoing` again when [`QueuePair::deadline`] has passed.
//! - It says with [`QueuePair::peer_lives`] that a peer lives which does not answer.
//!
//! # Promises
//! - Q1: a request is carried out once at the peer, and requests in the order in which they were posted. Completions come in this
//!   order, one for each that is signaled or fails.
//! - Q2: no packet makes it panic or loop, or grow: what it keeps is bounded by the depths in [`Config`], and by 256 packets that
//!   have come ahead where selective repeat was agreed on.
//! - Q3: memory is read and written only after [`RegisteredMemory::check`] has allowed it.
//!
//! Times are nanoseconds since any moment; they never go back. The time of a packet that came is best that of its arrival: the round
//! trip is measured with it, and says whether there is congestion.
//!
//! # Example
//! ```
//! use roce::format::Packet;
//! use roce::{Body, Config, Operation, Payload, Piece, Queue, QueuePair, ReceiveQueue, Request};
//! # use roce::{Access, AccessError, Memory};
//! # struct Bytes(Vec<u8>);
//! # impl Memory for Bytes {
//! #     fn check(&self, _: u32, _: u64, _: u64, _: Access) -> Result<(), AccessError> { Ok(()) }
//! #     fn place(&mut self, _: u32, _: u64, bytes: &[u8]) -> Result<(), AccessError> {
//! #         self.0[..bytes.len()].copy_from_slice(bytes);
//! #         Ok(())
//! #     }
//! #     fn fetch_add(&mut self, key: u32, _: u64, _: u64) -> Result<u64, AccessError> { Err(AccessError::Key { key }) }
//! #     fn compare_swap(&mut self, key: u32, _: u64, _: u64, _: u64) -> Result<u64, AccessError> { Err(AccessError::Key { key }) }
//! # }
//! # let mut memory = Bytes(vec![0; 16]);
//! let host_1: std::net::SocketAddr = "10.0.0.1:4791".parse()?;
//! let host_2 = "10.0.0.2:4791".parse()?;
//! let mut here = QueuePair::new(Config::new(17, 18, host_2))?;
//! let mut there = QueuePair::new(Config::new(18, 17, host_1))?;
//! let mut receives = ReceiveQueue::new(64);
//! receives.post(5, Piece { key: 1, address: 0, bytes: 16 });
//!
//! here.post(&Request {
//!     work: 4,
//!     operation: Operation::Send,
//!     body: Body::Inline(b"hello"),
//!     immediate: None,
//!     signaled: true,
//! })?;
//! while let Some(outgoing) = here.next_outgoing(0, &memory) {
//!     let mut wire = outgoing.headers.as_bytes().to_vec();
//!     if let Payload::Inline(bytes) = outgoing.payload {
//!         wire.extend(bytes);
//!     }
//!     wire.extend(outgoing.pad());
//!     there.receive(0, host_1.ip(), &Packet::parse(&wire)?, &mut memory, &mut receives);
//! }
//! let received = there.poll(Queue::Receives).expect("it has arrived");
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
