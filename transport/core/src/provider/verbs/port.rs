// SPDX-License-Identifier: MIT OR Apache-2.0
//! The seam between the provider and a device: what is asked of one port of one device, in the verbs' own words. The real one
//! stands in `device.rs`, a software fake with every fault on demand in `fake.rs`.
//!
//! An open port is a protection domain with a shared receive queue, one queue pair for datagrams, a completion queue for
//! sends and one for receives, and a channel that tells of both when it is armed. Reliable queue pairs are made on demand.
//!
//! # Memory
//! A port touches memory of this process only inside a [`Region`], from [`VerbsPort::register`] to [`VerbsPort::deregister`]: whatever
//! numbers a work request carries, the keys are checked against the regions. So registering is `unsafe` and all the
//! rest is not.
//!
//! # Safety
//! Nothing unsafe is done here; one method asks for a promise.
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
    /// Turns after which a look at the clock is due.
    const CLOCK_EVERY: u64;

    /// Whether a device may forget what was posted: a queue pair of which nothing is told for long is broken (`lost_completions.rs`). A
    /// port that is a program waits as long as the peer is believed to live.
    const MAY_FORGET: bool = true;

    /// Time since any moment in the past.
    fn now_ns(&self) -> u64;

    /// What is registered is counted here, if anything.
    fn count_into(&mut self, counts: Arc<PortCounts>);

    /// What is known of the port. [`refresh`](Self::refresh) changes it.
    fn facts(&self) -> &PortAttr;

    /// Asks the device again: state of the port, its LID, where its GID stands in the table.
    fn refresh(&mut self) -> Result<(), CallError>;

    /// Lets the device reach memory.
    ///
    /// # Safety
    /// The memory stays mapped until [`deregister`](Self::deregister) has returned or the port was dropped, and until then whoever
    /// holds it expects that the device reads it, and writes it if `access` says so.
    unsafe fn register(
        &mut self,
        base: NonNull<u8>,
        bytes: usize,
        access: RegionAccess,
    ) -> Result<Region, CallError>;

    /// Ends that: the device touches this memory no more.
    fn deregister(&mut self, region: Region);

    /// Hands buffers for receives over: the caller's names for them, and where they are. Answers how many were taken, from the
    /// first on.
    fn post_receives(&mut self, queue: Receives, buffers: &[(u64, Sge)]) -> usize;

    /// Number of the queue pair for datagrams.
    fn datagram_number(&self) -> u32;

    /// Where it is found.
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

    /// The key that it wants.
    fn datagram_key(&self) -> u32;

    /// A way for datagrams to a port elsewhere.
    fn create_address_handle(&mut self, to: &PortAddress) -> Result<AddressHandle, CallError>;

    /// Forgets one.
    fn destroy_address_handle(&mut self, handle: AddressHandle);

    /// Sends a datagram. A body [`WorkBody::Inline`] is at most [`PortAttr::inline_bytes`] long and copied at once.
    fn post_datagram(
        &mut self,
        to: Mailbox,
        work: u64,
        body: WorkBody<'_>,
        signaled: bool,
    ) -> Result<(), QueueFull>;

    /// Makes a reliable queue pair, which takes work only after [`connect`](Self::connect).
    fn create(&mut self) -> Result<QueuePairHandle, CallError>;

    /// Joins it to one elsewhere; from now on it receives and sends.
    fn connect(&mut self, pair: QueuePairHandle, to: &RemotePair) -> Result<(), CallError>;

    /// Breaks it: whatever was posted comes back as [`WorkStatus::Flushed`], if it was signaled or fails.
    fn fail(&mut self, pair: QueuePairHandle);

    /// Takes it apart. No completion of its sends comes any more, not even those that wait. Completions of receives may come
    /// or not: some devices forget them, and with them the names of their buffers.
    fn destroy(&mut self, pair: QueuePairHandle);

    /// Posts work requests in one go; answers how many were taken, from the first on. A request that was not signaled has no
    /// completion unless it fails; it has ended when a later one of the same queue pair has.
    fn post(&mut self, pair: QueuePairHandle, requests: &[WorkRequest<'_>]) -> usize;

    /// Posts one send, whose body travels inside; `false`: it was not taken.
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

    /// Takes completions of one kind of queue; answers how many.
    fn poll(&mut self, which: CqKind, done: &mut [Done]) -> usize;

    /// Takes the first one, if there is one.
    #[inline(always)]
    fn poll_first(&mut self, which: CqKind) -> Option<Done> {
        let mut done = [Done::default()];
        (self.poll(which, &mut done) != 0).then(|| done[0])
    }

    /// Asks for a sign on [`sign`](Self::sign) when the next completion comes, of either queue.
    fn arm(&mut self) -> Result<(), CallError>;

    /// A descriptor that becomes readable then, or when there is an event.
    fn sign(&self) -> Option<BorrowedFd<'_>>;

    /// Whether packets have come since this was asked, although nothing may have ended: a process that plays its port itself does not
    /// sleep in the middle of a message. A device knows nothing of that.
    fn take_stirred(&mut self) -> bool {
        false
    }

    /// Takes the signs away that have come.
    fn take_signs(&mut self);

    /// The next thing that happened to the port itself; never waits.
    fn next_event(&mut self) -> Option<PortEvent>;
}

/// Counted by the ports of a process; anybody may read it at any time.
#[derive(Debug, Default)]
pub(crate) struct PortCounts {
    /// Regions that were ever registered.
    pub(crate) regions: Own64,
    /// Bytes of them; of memory that several ports know, as often.
    came_bytes: Own64,
    /// Bytes of those that are no longer.
    went_bytes: Own64,
    /// The most that were there at any time.
    pub(crate) most_bytes: Own64,
    /// Packets that were sent again. These three by ports whose process plays the adapter: adapters keep them to themselves.
    pub(crate) repeated: Own64,
    /// Times that no answer came in time.
    pub(crate) timeouts: Own64,
    /// Times that less was sent at once, because of congestion or losses.
    pub(crate) window_cuts: Own64,
    /// Packets whose payload was not copied, and its bytes. Adapters copy none.
    pub(crate) in_place: Own64,
    pub(crate) in_place_bytes: Own64,
}

impl PortCounts {
    /// Memory was registered.
    pub(crate) fn add(&self, bytes: u64) {
        self.regions.add(1);
        self.came_bytes.add(bytes);
        let more = self.bytes().saturating_sub(self.most_bytes.get());
        self.most_bytes.add(more);
    }

    /// It is not any more.
    pub(crate) fn take(&self, bytes: u64) {
        self.went_bytes.add(bytes);
    }

    /// Bytes that are registered now.
    pub(crate) fn bytes(&self) -> u64 {
        // In this order: what went has come before.
        let went = self.went_bytes.get();
        self.came_bytes.get().saturating_sub(went)
    }
}

/// The attributes of a port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PortAttr {
    /// The device's name, `mlx5_0`.
    pub(crate) device: String,
    /// The port's number there, from 1.
    pub(crate) port: u8,
    /// Whether it can carry anything now.
    pub(crate) is_up: bool,
    /// Where others find it; without the number of the datagram queue pair.
    pub(crate) link: LinkLayer,
    pub(crate) lid: u16,
    pub(crate) gid: [u8; 16],
    /// Where that GID stands in the port's table, now.
    pub(crate) gid_index: u8,
    /// Bytes that one packet carries.
    pub(crate) packet_bytes: u32,
    /// What the port carries at most; 0: nobody knows.
    pub(crate) rate_mbps: u32,
    /// Bytes that travel inside a work request.
    pub(crate) inline_bytes: u32,
    /// Most bytes of one work request.
    pub(crate) message_bytes: u64,
    /// Reads and atomics that one queue pair has under way.
    pub(crate) reads: u8,
    /// Whether it does atomics.
    pub(crate) atomics: bool,
    /// Work requests that one reliable queue pair takes.
    pub(crate) depth: u32,
    /// Whether a read may be said to have ended well that brought nothing. Its queue pair breaks over it then, so what was
    /// posted behind it tells the truth.
    pub(crate) reads_lie: bool,
    /// Whether the kernel plays the device, on the processors of this host.
    pub(crate) in_software: bool,
    /// What queue pairs are told.
    pub(crate) terms: NetTerms,
    /// Where the key of their partition stands in the port's table.
    pub(crate) partition: u16,
}

/// How many of everything a port is opened with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Depths {
    /// Completions that each queue holds.
    pub(crate) completions: u32,
    /// Sends under way on one reliable queue pair.
    pub(crate) sends: u32,
    /// Datagrams under way.
    pub(crate) datagrams: u32,
    /// Buffers in the shared receive queue.
    pub(crate) shared: u32,
    /// Buffers for datagrams.
    pub(crate) datagram_buffers: u32,
    /// Bytes that should travel inside a work request; the device may grant less.
    pub(crate) inline_bytes: u32,
}

/// What peers may do with a memory region. This process may always read and write it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RegionAccess {
    /// Nothing.
    Own,
    /// Nothing, and the memory may be such that this process cannot write.
    OwnRead,
    /// Reads.
    Read,
    /// Reads, writes and atomics.
    Full,
}

/// Registered memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Region {
    /// The port's name for it.
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
    /// These bytes, copied when it is posted.
    Inline(&'a [u8]),
    /// What lies there until it is complete.
    Piece(Sge),
}

/// Which buffers for receives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Receives {
    /// Of all reliable queue pairs.
    Shared,
    /// Of datagrams. The first [`GRH_BYTES`] of a buffer are the device's.
    Datagrams,
}

/// Which completion queue of a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CqKind {
    Sends,
    Receives,
}

/// An address handle: an index among those of the port. Never zero inside, so that an `Option` of it takes no more room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct AddressHandle(NonZeroU32);

impl AddressHandle {
    /// The way at a place.
    pub(crate) fn at(place: u32) -> Self {
        Self(NonZeroU32::MIN.saturating_add(place))
    }

    /// Its place.
    #[inline(always)]
    pub(crate) fn place(self) -> u32 {
        self.0.get() - 1
    }
}

/// Where a datagram goes: the way, the queue pair that receives it, and the key that it must name to be heard there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Mailbox {
    pub(crate) handle: AddressHandle,
    pub(crate) number: u32,
    pub(crate) key: u32,
}

/// A reliable queue pair: its index at the port, and its number on the network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct QueuePairHandle {
    pub(crate) id: u32,
    pub(crate) number: u32,
}

/// The other end of a reliable queue pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RemotePair {
    pub(crate) address: PortAddress,
    /// Its number.
    pub(crate) number: u32,
    /// Packet number that it begins with, and that this side begins with; 24 bits.
    pub(crate) their_first: u32,
    pub(crate) our_first: u32,
    /// How long an answer may take before a packet is sent again: 4.096 µs × 2^patience; below 32.
    pub(crate) patience: u8,
}

/// A work request for a reliable queue pair.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WorkRequest<'a> {
    /// Comes back in its completion.
    pub(crate) work: u64,
    pub(crate) operation: WorkOpcode,
    /// What is sent or written, or where that which is read goes.
    pub(crate) body: WorkBody<'a>,
    /// Whether its end is told.
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

/// The end of a work request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Done {
    pub(crate) work: u64,
    pub(crate) status: WorkStatus,
    /// Bytes received; of datagrams with the [`GRH_BYTES`] in front.
    pub(crate) bytes: u32,
    /// Number of this process's queue pair.
    pub(crate) number: u32,
    /// Number of the sender's queue pair, of datagrams.
    pub(crate) source: u32,
    /// The maker's own number for an error.
    pub(crate) vendor: u32,
}

/// The status of a completion.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum WorkStatus {
    #[default]
    Success,
    /// Its queue pair had broken before.
    Flushed,
    /// The other side does not answer.
    RetryExceeded,
    /// The other side had no buffer for too long.
    NotReady,
    /// The other side does not allow it: the key is wrong, or its memory is gone.
    RemoteAccess,
    /// The other side found the request wrong.
    RemoteInvalid,
    /// The other side could not do it.
    RemoteOperation,
    /// Memory of this side is not registered as it should be.
    LocalProtection,
    /// What arrived is longer than its buffer.
    LocalLength,
    /// Another number of `enum ibv_wc_status`.
    Other(u32),
    /// Synthesized here: the completion never came (`lost_completions.rs`).
    Forgotten,
}

/// An asynchronous event of a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PortEvent {
    PortDown,
    PortUp,
    /// Its LID or its table of GIDs is another one.
    AddressChanged,
    /// The device is lost.
    DeviceLost,
    /// The shared receive queue is lost.
    SharedQueueLost,
    /// A queue pair broke, by its number.
    QueuePairLost(u32),
    /// A completion queue is lost.
    CompletionsLost,
    /// Another number of `enum ibv_event_type`, of no consequence.
    Other(u32),
}

/// Nothing was posted: the queue has no room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct QueueFull;

/// A call that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CallError {
    /// The verb, `ibv_reg_mr`.
    pub(crate) call: &'static str,
    /// What the system says.
    pub(crate) errno: i32,
}

/// Bytes in front of every datagram in its buffer.
pub(crate) const GRH_BYTES: usize = 40;
