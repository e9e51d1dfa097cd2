// SPDX-License-Identifier: MIT OR Apache-2.0
//! The interface between the provider and a device: one port of one device, in terms of the verbs. `device.rs`
//! implements it for real devices, `fake.rs` for simulated devices with faults on demand, `roce.rs` in user space.
//!
//! An open port is a protection domain with a shared receive queue, one queue pair for datagrams (UD), a completion
//! queue each for sends and receives, and a completion channel for both. Reliable queue pairs (RC) are made on demand.
//!
//! # Memory
//! A port accesses memory of this process only inside a [`Region`], from [`VerbsPort::register`] to
//! [`VerbsPort::deregister`]: the keys in work requests are checked against the regions. So registering is `unsafe`,
//! and no other method is.
//!
//! # Safety
//! The trait has only one unsafe method; no code here is unsafe.
#![allow(unsafe_code)]

use std::fmt;
use std::num::NonZeroU32;
use std::os::fd::BorrowedFd;
use std::ptr::NonNull;
use std::sync::Arc;

use ring::Own64;

use super::NetTerms;
use super::address::{LinkLayer, PortAddress};

/// One port of one device.
pub(crate) trait VerbsPort: fmt::Debug + Send + Sized {
    /// The clock is read once in this many polls.
    const CLOCK_EVERY: u64;

    /// Whether the device may lose completions: if so, a queue pair without a completion for too long is broken
    /// (`lost_completions.rs`). A user-space port waits as long as the peer is believed to be alive.
    const MAY_LOSE_COMPLETIONS: bool = true;

    /// Whether peers read the memory of this process only while this process polls, so that an announcement of data may
    /// wait for the next poll.
    const SERVES_IN_POLLS: bool = false;

    /// Time since a fixed moment in the past.
    fn now_ns(&self) -> u64;

    /// Sets the counters for registrations and packets.
    fn count_into(&mut self, counts: Arc<PortCounts>);

    /// Attributes of the port. [`refresh`](Self::refresh) updates them.
    fn facts(&self) -> &PortAttr;

    /// Queries the device again: state of the port, its LID, the index of its GID.
    fn refresh(&mut self) -> Result<(), CallError>;

    /// Registers memory.
    ///
    /// # Safety
    /// The memory stays mapped until [`deregister`](Self::deregister) has returned or the port was dropped, and until
    /// then its owner allows the device to read it, and to write it if `access` allows that.
    unsafe fn register(
        &mut self,
        base: NonNull<u8>,
        bytes: usize,
        access: RegionAccess,
    ) -> Result<Region, CallError>;

    /// Deregisters a region: the device accesses this memory no more.
    fn deregister(&mut self, region: Region);

    /// Posts receive buffers, each with the caller's `wr_id`. Returns how many were taken, from the first on.
    fn post_receives(&mut self, queue: Receives, buffers: &[(u64, Sge)]) -> usize;

    /// Number of the queue pair for datagrams (UD QPN).
    fn datagram_number(&self) -> u32;

    /// The address of this port, for peers.
    fn address(&self) -> PortAddress {
        let facts = self.facts();
        PortAddress {
            link: facts.link,
            lid: facts.lid,
            number: self.datagram_number(),
            packet_bytes: facts.packet_bytes,
            gid: facts.gid,
        }
    }

    /// The Q_Key of the port's datagram queue pair.
    fn datagram_key(&self) -> u32;

    /// Creates an address handle for a remote port.
    fn create_address_handle(&mut self, to: &PortAddress) -> Result<AddressHandle, CallError>;

    /// Destroys an address handle.
    fn destroy_address_handle(&mut self, handle: AddressHandle);

    /// Sends a datagram. A body [`WorkBody::Inline`] is at most [`PortAttr::inline_bytes`] long and is copied during
    /// the call.
    fn post_datagram(
        &mut self,
        to: DatagramDestination,
        work: u64,
        body: WorkBody<'_>,
        signaled: bool,
    ) -> Result<(), QueueFull>;

    /// Creates a reliable queue pair, which takes work only after [`connect`](Self::connect).
    fn create(&mut self) -> Result<QueuePairHandle, CallError>;

    /// Connects a reliable queue pair to a remote one; from then on it receives and sends.
    fn connect(&mut self, pair: QueuePairHandle, to: &RemotePair) -> Result<(), CallError>;

    /// Moves a reliable queue pair to the error state: posted requests come back as [`WorkStatus::Flushed`] if they are
    /// signaled or fail.
    fn fail(&mut self, pair: QueuePairHandle);

    /// Destroys a reliable queue pair. None of its send completions is delivered any more, not even pending ones. Its
    /// pending receive completions might be lost: some devices drop them, and with them the `wr_id`s of the buffers.
    fn destroy(&mut self, pair: QueuePairHandle);

    /// Posts a list of work requests; returns how many were taken, from the first on. An unsignaled request has no
    /// completion unless it fails; it has ended when a later request of its queue pair has ended.
    fn post(&mut self, pair: QueuePairHandle, requests: &[WorkRequest<'_>]) -> usize;

    /// Posts one send with an inline body; `false`: it was not taken.
    #[inline(always)]
    fn post_inline(
        &mut self,
        pair: QueuePairHandle,
        work: u64,
        body: &[u8],
        signaled: bool,
    ) -> bool {
        let request = WorkRequest {
            work,
            operation: WorkOpcode::Send,
            body: WorkBody::Inline(body),
            signaled,
        };
        self.post(pair, &[request]) == 1
    }

    /// Holds back the packets of further posts until [`uncork`](Self::uncork), or until a poll, so that they are sent
    /// together. Has no effect on a device.
    fn cork(&mut self) {}

    /// Sends the packets that were held back.
    fn uncork(&mut self) {}

    /// Polls a completion queue; returns how many completions were taken.
    fn poll(&mut self, which: CqKind, done: &mut [PortCompletion]) -> usize;

    /// Polls a completion queue for one completion.
    #[inline(always)]
    fn poll_first(&mut self, which: CqKind) -> Option<PortCompletion> {
        let mut done = [PortCompletion::default()];
        (self.poll(which, &mut done) != 0).then(|| done[0])
    }

    /// Arms both completion queues: the next completion raises an event on [`event_fd`](Self::event_fd).
    fn arm(&mut self) -> Result<(), CallError>;

    /// The descriptor that becomes readable on a completion event or an asynchronous event.
    fn event_fd(&self) -> Option<BorrowedFd<'_>>;

    /// Whether packets have arrived since the last call, even without a completion: a process with a user-space port
    /// does not sleep in the middle of a message. A device does not report that.
    fn take_activity(&mut self) -> bool {
        false
    }

    /// Acknowledges pending completion events.
    fn ack_events(&mut self);

    /// The next asynchronous event of the port; never blocks.
    fn next_event(&mut self) -> Option<PortEvent>;
}

/// Counters of the ports of a process; any thread may read them at any time.
#[derive(Debug, Default)]
pub(crate) struct PortCounts {
    /// Regions ever registered.
    pub(crate) regions: Own64,
    /// Bytes ever registered; memory registered on several ports counts once per port.
    registered_bytes_ever: Own64,
    /// Bytes ever deregistered.
    deregistered_bytes: Own64,
    /// High-water mark of registered bytes.
    pub(crate) most_bytes: Own64,
    /// Packets sent again. This and the next two counters are kept only for user-space ports: adapters do not report
    /// such events.
    pub(crate) repeated: Own64,
    /// Timeouts without an answer.
    pub(crate) timeouts: Own64,
    /// Times that the congestion window was cut, because of congestion or losses.
    pub(crate) window_cuts: Own64,
    /// Packets sent by user-space ports without a copy of the payload. Adapters never copy.
    pub(crate) in_place: Own64,
    /// Bytes of the payloads that user-space ports sent without a copy.
    pub(crate) in_place_bytes: Own64,
}

impl PortCounts {
    /// Counts a registration.
    pub(crate) fn add(&self, bytes: u64) {
        self.regions.add(1);
        self.registered_bytes_ever.add(bytes);
        let more = self.bytes().saturating_sub(self.most_bytes.get());
        self.most_bytes.add(more);
    }

    /// Counts a deregistration.
    pub(crate) fn take(&self, bytes: u64) {
        self.deregistered_bytes.add(bytes);
    }

    /// Bytes registered now.
    pub(crate) fn bytes(&self) -> u64 {
        // Read in this order, `deregistered_bytes` never exceeds `registered_bytes_ever`.
        let went = self.deregistered_bytes.get();
        self.registered_bytes_ever.get().saturating_sub(went)
    }
}

/// The attributes of a port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PortAttr {
    /// The device's name, `mlx5_0`.
    pub(crate) device: String,
    /// Port number on its device, from 1.
    pub(crate) port: u8,
    /// Whether the port is active.
    pub(crate) is_up: bool,
    /// `link`, `lid` and `gid` are the port's address, without the number of the datagram queue pair.
    pub(crate) link: LinkLayer,
    pub(crate) lid: u16,
    pub(crate) gid: [u8; 16],
    /// Index of `gid` in the port's table.
    pub(crate) gid_index: u8,
    /// MTU in bytes.
    pub(crate) packet_bytes: u32,
    /// Rate in Mbit/s; 0: unknown.
    pub(crate) rate_mbps: u32,
    /// Largest inline body, in bytes.
    pub(crate) inline_bytes: u32,
    /// Largest message, in bytes.
    pub(crate) message_bytes: u64,
    /// Outstanding reads and atomics per queue pair (`max_rd_atomic`).
    pub(crate) reads: u8,
    /// Whether the device supports atomics.
    pub(crate) atomics: bool,
    /// Work requests that one reliable queue pair holds.
    pub(crate) depth: u32,
    /// Whether a read may complete successfully without its data. Then its queue pair breaks, so a successful
    /// completion of a request posted behind the read proves the read.
    pub(crate) has_unreliable_reads: bool,
    /// Whether the kernel implements the device in software, on the processors of this host (rxe, siw).
    pub(crate) in_software: bool,
    /// Attributes that queue pairs are set up with.
    pub(crate) terms: NetTerms,
    /// Index of the partition key in use, in the port's table.
    pub(crate) partition: u16,
}

/// Queue depths that a port is opened with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Depths {
    /// Entries of each completion queue.
    pub(crate) completions: u32,
    /// Send queue depth of one reliable queue pair.
    pub(crate) sends: u32,
    /// Send queue depth of the datagram queue pair.
    pub(crate) datagrams: u32,
    /// Buffers in the shared receive queue.
    pub(crate) shared: u32,
    /// Receive buffers for datagrams.
    pub(crate) datagram_buffers: u32,
    /// Largest inline body to request, in bytes; the device may grant less.
    pub(crate) inline_bytes: u32,
}

/// Remote access to a memory region. Requests of this process may read it, and write to it except with `OwnRead`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RegionAccess {
    /// No remote access.
    Own,
    /// No remote access; this process itself might have no write access to the memory.
    OwnRead,
    /// Reads.
    Read,
    /// Reads, writes and atomics.
    Full,
}

/// Registered memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Region {
    /// Index of the region at the port.
    pub(crate) id: u32,
    pub(crate) local_key: u32,
    pub(crate) remote_key: u32,
}

/// A scatter-gather entry: a range of a memory region of this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Sge {
    pub(crate) address: u64,
    pub(crate) bytes: u32,
    pub(crate) local_key: u32,
}

/// The body of a work request.
#[derive(Clone, Copy, Debug)]
pub(crate) enum WorkBody<'a> {
    /// These bytes, copied when the request is posted.
    Inline(&'a [u8]),
    /// Registered memory, read or written until completion.
    Piece(Sge),
}

/// Which receive queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Receives {
    /// The shared receive queue of the reliable queue pairs.
    Shared,
    /// The receive queue of the datagram queue pair. The device writes a header to the first [`GRH_BYTES`] of a buffer.
    Datagrams,
}

/// Which completion queue of a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CqKind {
    Sends,
    Receives,
}

/// An address handle: an index at its port. The stored value is never zero, so an `Option` of it takes no more room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct AddressHandle(NonZeroU32);

impl AddressHandle {
    /// The address handle with this index.
    pub(crate) fn at(place: u32) -> Self {
        Self(NonZeroU32::MIN.saturating_add(place))
    }

    /// Its index.
    #[inline(always)]
    pub(crate) fn place(self) -> u32 {
        self.0.get() - 1
    }
}

/// Destination of a datagram: address handle, queue pair number, and Q_Key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DatagramDestination {
    pub(crate) handle: AddressHandle,
    pub(crate) number: u32,
    pub(crate) key: u32,
}

/// A reliable queue pair: its index at the port, and its queue pair number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct QueuePairHandle {
    pub(crate) id: u32,
    pub(crate) number: u32,
}

/// The remote end of a reliable queue pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RemotePair {
    pub(crate) address: PortAddress,
    /// Queue pair number of the remote end.
    pub(crate) number: u32,
    /// First packet sequence number that the remote end sends; 24 bits.
    pub(crate) rq_psn: u32,
    /// First packet sequence number that this end sends; 24 bits.
    pub(crate) sq_psn: u32,
    /// Acknowledgement timeout as in `ibv_qp_attr.timeout`: 4.096 µs × 2^timeout; below 32.
    pub(crate) timeout_exp: u8,
}

/// A work request for a reliable queue pair.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WorkRequest<'a> {
    /// The `wr_id` of the request, returned in the completion.
    pub(crate) work: u64,
    pub(crate) operation: WorkOpcode,
    /// The data to send or write, or the destination of a read or of the old value of an atomic.
    pub(crate) body: WorkBody<'a>,
    /// Whether the request generates a completion when it succeeds.
    pub(crate) signaled: bool,
}

/// The operation of a work request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WorkOpcode {
    Send,
    Write {
        address: u64,
        key: u32,
    },
    Read {
        address: u64,
        key: u32,
    },
    FetchAdd {
        address: u64,
        key: u32,
        add: u64,
    },
    CompareSwap {
        address: u64,
        key: u32,
        compare: u64,
        swap: u64,
    },
}

/// A work completion.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct PortCompletion {
    pub(crate) work: u64,
    pub(crate) status: WorkStatus,
    /// Bytes received; for datagrams including the [`GRH_BYTES`] in front.
    pub(crate) bytes: u32,
    /// Number of the local queue pair.
    pub(crate) number: u32,
    /// Number of the sender's queue pair, for datagrams.
    pub(crate) source: u32,
    /// Vendor error code.
    pub(crate) vendor: u32,
}

/// The status of a completion.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum WorkStatus {
    #[default]
    Success,
    /// The queue pair was in the error state.
    Flushed,
    /// The peer does not answer (retries exceeded).
    RetryExceeded,
    /// The peer had no receive buffer for too long (RNR retries exceeded).
    NotReady,
    /// The peer's device refuses access: wrong key, or deregistered memory.
    RemoteAccess,
    /// The peer's device rejects the request as invalid.
    RemoteInvalid,
    /// The peer's device could not carry the request out.
    RemoteOperation,
    /// Local memory is not registered as the request needs it.
    LocalProtection,
    /// The message is longer than its receive buffer.
    LocalLength,
    /// Another value of `enum ibv_wc_status`.
    Other(u32),
    /// Synthesized here: the completion never came (`lost_completions.rs`).
    Forgotten,
}

/// An asynchronous event of a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PortEvent {
    PortDown,
    PortUp,
    /// The LID or the GID table of the port has changed.
    AddressChanged,
    /// The device is lost.
    DeviceLost,
    /// The shared receive queue is lost.
    SharedQueueLost,
    /// The queue pair with this number broke.
    QueuePairLost(u32),
    /// A completion queue is lost.
    CompletionsLost,
    /// Another value of `enum ibv_event_type`, without consequences.
    Other(u32),
}

/// Nothing was posted: the queue is full.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct QueueFull;

/// A call that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CallError {
    /// The verb, `ibv_reg_mr`.
    pub(crate) call: &'static str,
    /// The system's error.
    pub(crate) errno: i32,
}

/// Bytes of the Global Routing Header in front of every received datagram.
pub(crate) const GRH_BYTES: usize = 40;
