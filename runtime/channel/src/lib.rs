// SPDX-License-Identifier: MIT OR Apache-2.0
//! Gated channels: each sends messages from fixed memory of one process to fixed memory of another; it is declared once
//! and started often.
//!
//! Each end declares its memory locally, without communication. When the receiver starts its end, it opens the *gate*:
//! it sends the key of the destination memory to the sender. When the sender starts its end, a single one-sided write
//! moves the bytes to that memory, and the immediate data of the write completes the receive. There is no matching and
//! no intermediate copy. The gate may be open long before the sender starts.
//!
//! # Promises
//! - C1: the channels from one process to another in one context and class form a queue: start number k of the sends is
//!   paired with start number k of the receives, whichever ends were started.
//! - C2: a message of at most 4096 bytes whose gate is not known is sent eagerly, and its send completes immediately:
//!   two processes that both send before they receive do not block each other. A receiver buffers at most 8 such
//!   messages of a queue; further messages wait until their gates are known, or earlier receives are started.
//! - C3: once all ends are declared, nothing is allocated; [`ChannelCounters::allocations`] counts allocations.
//! - C4: a message may be shorter than its receive: it fills the beginning of the memory, and the rest is unchanged. If
//!   the message is longer, both ends complete with [`ChannelError::SizesDiffer`], and the memory of the receive is
//!   unchanged. If an eager send was collected before that, the next send of the queue that is collected returns the
//!   error instead.
//! - C5: input from a peer is validated before use. Invalid frames are counted ([`ChannelCounters::refused`]) and
//!   ignored.
//! - C6: operations that wait for a process that was lost, or has [left](Channels::leave) the context, complete with an
//!   error.
//!
//! # Within a node
//! A frame for each start would cost more than the start itself. So a receive whose sender is on the same node has a
//! *gate line*, a cache line in memory that both processes map. From the third start of the receive on, a store to the
//! line opens the gate. The sender, which has mapped the receiver's memory, copies the bytes and completes the receive
//! by another store. A waiting process polls gate lines; a process that sleeps is woken by the peer.
//!
//! # Memory with gaps
//! If the blocks of a receive are large enough, the receiver sends their layout to the sender. The sender then moves
//! each contiguous segment directly: by copies to mapped memory, or else by one-sided writes. Otherwise an end uses a
//! staging buffer that its declaration has allocated: the sender packs its blocks into its buffer before the write, or
//! the receiver unpacks its blocks from its own buffer.
//!
//! # Use
//! The code that polls the [`Fabric`] passes on the completions that belong to [channels](OWNER): frames to
//! [`Channels::arrive`], work completions to [`Channels::worked`], immediate data to [`Channels::written`]. It calls
//! [`Channels::progress`] while the channels are [busy](Channels::is_busy).
//!
//! **Knows** the transport; contexts and classes are plain numbers here.
//! **Never** interprets these numbers, and never uses the engine.

mod chain;
pub mod claimed;
mod class;
mod counters;
mod handle;
mod layout;
mod leave;
mod line;
mod list;
mod memory;
mod receive;
mod send;
mod wire;

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;

use transport::{
    Arrived, Fabric, Head, Owner, Peer, RemoteKey, WorkId, WorkOutcome, number_of_immediate,
};

use chain::CHAINED_BLOCK;
use class::{ChannelClass, EAGER_BYTES};
pub use counters::{ChannelCounters, LiveChannelCounters};
use handle::{ChannelEnd, ChannelEnds};
use layout::{LAYOUT_PIECES_MAX, smallest_block};
use line::{LINES_MAX, SpareLines};
use list::{LISTS, StartList, StartedList};
pub use memory::{ChannelMemory, UserBlocks};
use memory::{MemorySpan, StagingBuffer};
use wire::StartQueueName;

/// Which end of a channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChannelDirection {
    /// The sending end: its memory is read.
    Send,
    /// The receiving end: its memory is written.
    Receive,
}

/// Identifies the queue that a channel end belongs to: direction, peer, context and class.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChannelKey {
    /// Direction of this end.
    pub direction: ChannelDirection,
    /// The process at the other end, which may be this one.
    pub peer: Peer,
    /// Context id of the communicator that both processes belong to.
    pub context: u32,
    /// Number of the queue within the context, below 16.
    pub class: u8,
}

/// Id of a channel end: never 0. The id of a freed end is reused only after about four billion further declarations.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(transparent)]
pub struct ChannelId(pub u64);

/// Why an operation on a channel, or a message of a channel, failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ChannelError {
    /// The id is invalid: it was never returned by `declare`, or its end was freed.
    #[error("this is no channel, or one that was freed; expected what a declare has answered")]
    Stale,
    /// The end was started and its outcome was not collected; or, if this is the result of `collect`, the end has not
    /// completed.
    #[error("the channel was started and has not ended; wait for it first")]
    Active,
    /// The class is out of range.
    #[error("the class of a channel is a number below 16")]
    BadClass,
    /// There are too many channels.
    #[error("this process has as many channels as can be; free some first")]
    TooMany,
    /// The message is longer than the receive.
    #[error("the message of the channel is longer than its receive has room for")]
    SizesDiffer,
    /// The peer has died or cannot be reached.
    #[error("the other end of the channel is lost")]
    Lost,
    /// The peer has left the context.
    #[error("the other end of the channel has left")]
    Left,
}

/// Why a message of a channel failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChannelFailure {
    /// The error.
    pub error: ChannelError,
    /// The process at the other end.
    pub peer: Peer,
    /// Length in bytes of a message that was too long; 0 for any other error.
    pub message_bytes: u64,
    /// Length in bytes of the receive of that message; 0 for any other error.
    pub room_bytes: u64,
    /// Whether the failure is that of an earlier message, not of the message that was collected.
    pub is_earlier: bool,
}

/// The channels of a process.
///
/// It has more than sixty methods because a start consists of many small steps, and each step uses several of the
/// tables that describe a channel: handles, classes, lists, memory. The methods are in files by topic: `send.rs`,
/// `receive.rs`, `leave.rs` and others.
#[derive(Debug)]
pub struct Channels {
    handles: ChannelEnds,
    classes: Vec<ChannelClass>,
    names: HashMap<(Peer, StartQueueName), u32>,
    /// Number of classes that peers have named in frames, and that are not declared here yet.
    undeclared_classes: usize,
    /// Indices of the sends that `progress` must continue: they wait for a gate or for room, or are sent in frames.
    pending: Vec<u32>,
    /// Frames for which the transport had no room: peer, header, body.
    outbox: VecDeque<(Peer, Head, [u64; 6])>,
    /// Capacity reserved in `outbox`: a number of frames for each declared end.
    outbox_capacity: usize,
    /// Maximum number of outstanding writes to ranks of this node.
    writes_max: usize,
    lines: SpareLines,
    lists: Vec<StartList>,
    /// The list that was started last; `None` after its state was committed to its ends.
    running: Option<StartedList>,
    /// Bit k is set: send k of the running list waits for its gate.
    pending_gates: u64,
    /// Incremented at every change of an end except a start. Prepared lists of an older epoch are invalid.
    epoch: u64,
    /// Number of messages that arrived before their receive was started.
    buffered: usize,
    /// Number of ends that are started and not collected, without those of the running list.
    active: usize,
    dead: Vec<Peer>,
    /// Contexts that this process has left.
    departed: HashSet<u32>,
    /// Peers whose memory cannot be written to.
    unwritable: Vec<Peer>,
    scratch: Box<[u8]>,
    counters: Arc<LiveChannelCounters>,
}

impl Default for Channels {
    fn default() -> Self {
        Self::new()
    }
}

impl Channels {
    /// No channels.
    #[must_use]
    pub fn new() -> Self {
        Self {
            handles: ChannelEnds::default(),
            classes: Vec::new(),
            names: HashMap::new(),
            undeclared_classes: 0,
            pending: Vec::new(),
            outbox: VecDeque::new(),
            outbox_capacity: 0,
            writes_max: 0,
            lines: SpareLines::default(),
            lists: Vec::new(),
            running: None,
            pending_gates: 0,
            epoch: 1,
            buffered: 0,
            active: 0,
            dead: Vec::new(),
            departed: HashSet::new(),
            unwritable: Vec::new(),
            scratch: Box::default(),
            counters: Arc::default(),
        }
    }

    /// Declares one end of a channel. Does not communicate.
    pub fn declare(
        &mut self,
        fabric: &mut Fabric,
        key: ChannelKey,
        memory: ChannelMemory,
    ) -> Result<ChannelId, ChannelError> {
        if key.class >= wire::CLASSES {
            return Err(ChannelError::BadClass);
        }
        if self.handles.is_full() {
            return Err(ChannelError::TooMany);
        }
        let class = self.declare_class(&key);
        self.counters.allocations.add(1);
        let mut handle = ChannelEnd::new(key.direction, class, memory);
        self.register_memory(fabric, key.peer, &mut handle);
        self.reserve(fabric, key.peer, &handle);
        let id = self.handles.add(handle);
        Ok(id)
    }

    /// Reserves all memory that the starts of one more end need.
    fn reserve(&mut self, fabric: &mut Fabric, peer: Peer, handle: &ChannelEnd) {
        let all = self.handles.len() + 2;
        self.pending.reserve(all - self.pending.len().min(all));
        self.outbox_capacity += 2 + handle.blocks.len();
        let additional = self.outbox_capacity - self.outbox.len().min(self.outbox_capacity);
        self.outbox.reserve(additional);
        let is_near = fabric.is_near(peer);
        if self.lists.is_empty() && is_near {
            self.lists.resize_with(LISTS, StartList::with_room);
        }
        if handle.direction == ChannelDirection::Send && is_near {
            self.writes_max += handle.outstanding_max();
            let out = &mut self.classes[handle.class as usize].out;
            fabric.expect_lines(peer, out.expect_places(), self.writes_max);
            self.lists
                .iter_mut()
                .for_each(StartList::reserve_for_blocks);
        }
        if self.scratch.is_empty() {
            self.scratch = vec![0; EAGER_BYTES].into();
        }
    }

    /// Starts all these ends, the receives first. If one of them cannot be started, starts none.
    ///
    /// # Errors
    /// [`ChannelError::Stale`], [`ChannelError::Active`].
    #[inline]
    pub fn start(&mut self, fabric: &mut Fabric, ids: &[ChannelId]) -> Result<(), ChannelError> {
        if self.run_again(fabric, ids) {
            return Ok(());
        }
        self.start_each(fabric, ids)
    }

    #[inline(never)]
    fn start_each(&mut self, fabric: &mut Fabric, ids: &[ChannelId]) -> Result<(), ChannelError> {
        self.commit_run();
        self.mark_started(ids)?;
        if self.active == ids.len() && self.buffered == 0 {
            self.unmark(ids);
            if self.run_list(fabric, ids) {
                return Ok(());
            }
            self.mark_started(ids)?;
        }
        for direction in [ChannelDirection::Receive, ChannelDirection::Send] {
            for id in ids {
                let index = id.index();
                let handle = self.handles.at(index);
                match direction {
                    _ if handle.direction != direction => {}
                    ChannelDirection::Receive => self.open_gate(fabric, index),
                    ChannelDirection::Send => self.start_send(fabric, index),
                }
            }
        }
        Ok(())
    }

    /// Returns whether each of these ends has completed or is not started.
    ///
    /// # Errors
    /// [`ChannelError::Stale`].
    #[inline]
    pub fn are_done(&mut self, ids: &[ChannelId]) -> Result<bool, ChannelError> {
        if let Some(done) = self.is_run_done(ids) {
            return Ok(done);
        }
        self.commit_run();
        for id in ids {
            if !self.handles.find(*id)?.is_done() {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Collects the outcomes of these ends, all of which must have completed. They can then be started again. Returns
    /// the first error.
    ///
    /// # Errors
    /// [`ChannelError::Stale`]; [`ChannelError::Active`] if an end has not completed: then nothing is collected;
    /// [`ChannelError::SizesDiffer`], [`ChannelError::Lost`], [`ChannelError::Left`].
    pub fn collect(&mut self, ids: &[ChannelId]) -> Result<(), ChannelError> {
        if self.collect_run(ids) {
            return Ok(());
        }
        if !self.are_done(ids)? {
            return Err(ChannelError::Active);
        }
        let mut all = Ok(());
        for id in ids {
            self.complete_written(id.index());
            let handle = self.handles.at_mut(id.index());
            if handle.is_started {
                self.active -= 1;
                match handle.direction {
                    ChannelDirection::Send => self.counters.sends.add(1),
                    ChannelDirection::Receive => self.counters.receives.add(1),
                }
            }
            let end = self.take_outcome(*id);
            all = all.and(end);
        }
        all
    }

    /// Replaces the memory of an end that is not active.
    ///
    /// # Errors
    /// [`ChannelError::Stale`], [`ChannelError::Active`].
    pub fn change_memory(
        &mut self,
        fabric: &mut Fabric,
        id: ChannelId,
        memory: ChannelMemory,
    ) -> Result<(), ChannelError> {
        self.commit_run();
        self.epoch += 1;
        let handle = self.handles.find(id)?;
        if handle.is_started {
            return Err(ChannelError::Active);
        }
        let peer = self.classes[handle.class as usize].peer;
        self.counters.allocations.add(1);
        let fresh = ChannelEnd::new(handle.direction, handle.class, memory);
        let old = std::mem::replace(self.handles.at_mut(id.index()), fresh);
        self.release_memory(fabric, id.index(), old);
        let empty = ChannelEnd::new(ChannelDirection::Send, 0, ChannelMemory::EMPTY);
        let mut fresh = std::mem::replace(self.handles.at_mut(id.index()), empty);
        self.register_memory(fabric, peer, &mut fresh);
        self.reserve(fabric, peer, &fresh);
        *self.handles.at_mut(id.index()) = fresh;
        Ok(())
    }

    /// Frees an end that is not active.
    ///
    /// # Errors
    /// [`ChannelError::Stale`], [`ChannelError::Active`].
    pub fn free(&mut self, fabric: &mut Fabric, id: ChannelId) -> Result<(), ChannelError> {
        self.commit_run();
        self.epoch += 1;
        if self.handles.find(id)?.is_started {
            return Err(ChannelError::Active);
        }
        if let Some(handle) = self.handles.remove(id.index()) {
            let class = &mut self.classes[handle.class as usize];
            class.handles.retain(|index| *index != id.index());
            self.release_memory(fabric, id.index(), handle);
        }
        Ok(())
    }

    /// The counters now.
    #[must_use]
    pub fn counters(&mut self) -> ChannelCounters {
        self.commit_run();
        self.counters.snapshot()
    }

    /// The live counters, for readers that do not own the channels. Operations of a running list are counted when the
    /// list is collected.
    #[must_use]
    pub fn live_counters(&self) -> &Arc<LiveChannelCounters> {
        &self.counters
    }

    /// Whether [`progress`](Self::progress) may have something to do.
    #[inline(always)]
    #[must_use]
    pub fn is_busy(&self) -> bool {
        (self.pending.len() | self.outbox.len()) as u64 | self.pending_gates != 0
    }

    /// Whether a frame or a send waits for room in the transport. The transport does not signal that there is room
    /// again.
    #[must_use]
    pub fn waits_for_room(&self) -> bool {
        !self.outbox.is_empty() || self.pending.iter().any(|index| self.could_go(*index))
    }

    /// Whether the outbox is empty. A peer may wait for a frame in it, even if the operation of the frame is complete
    /// here.
    #[must_use]
    pub fn is_drained(&self) -> bool {
        self.outbox.is_empty()
    }

    /// Continues operations that waited for a gate or for room. `true`: something has changed.
    pub fn progress(&mut self, fabric: &mut Fabric) -> bool {
        let before = (self.outbox.len(), self.pending.len());
        let moved = self.retry_gates(fabric);
        self.flush(fabric);
        self.retry_pending(fabric);
        moved || before != (self.outbox.len(), self.pending.len())
    }

    /// Handles a frame. The caller releases the frame.
    #[cold]
    pub fn arrive(&mut self, fabric: &mut Fabric, arrived: &Arrived) {
        self.commit_run();
        if self.take_frame(fabric, arrived).is_none() {
            self.counters.refused.add(1);
        }
    }

    /// Handles the immediate data of a peer's write.
    pub fn written(&mut self, peer: Peer, immediate: u32) {
        self.commit_run();
        let token = number_of_immediate(immediate);
        if self.end_written(peer, token).is_none() {
            self.counters.refused.add(1);
        }
    }

    /// Handles the completion of a write.
    pub fn worked(&mut self, fabric: &mut Fabric, work: WorkId, outcome: WorkOutcome) {
        self.commit_run();
        let index = u32::try_from(work.number()).unwrap_or(u32::MAX);
        self.end_write(fabric, index, outcome);
    }

    /// Whether a peer on this node has used a gate line to open a gate that a send waits for, or to complete a receive.
    /// Also true if the running list waits for gates: that list then continues on the ordinary path, which must be
    /// polled first. Must be called before this process sleeps. A peer that uses a gate line after this call wakes this
    /// process.
    pub fn has_arrivals(&mut self) -> bool {
        if self.active == 0 && self.is_run_quiet() {
            return false;
        }
        // A running list polls only its own gate lines. The ordinary path finds every open gate, so it is used before
        // the process sleeps.
        let mut has_arrivals = self.pending_gates != 0;
        self.commit_run();
        has_arrivals |= self.pending.iter().any(|index| self.is_line_open(*index));
        for index in 0..self.handles.end() {
            has_arrivals |= self.handles.get_mut(index).is_some() && self.complete_written(index);
        }
        has_arrivals
    }

    /// Handles the loss of a peer. Each started end of a channel with that peer completes: with [`ChannelError::Lost`],
    /// unless its message is already complete. A send with outstanding writes completes only after these writes.
    pub fn lose(&mut self, peer: Peer) {
        self.commit_run();
        if self.dead.contains(&peer) {
            return;
        }
        self.epoch += 1;
        self.dead.push(peer);
        for class in self.classes.iter_mut().filter(|class| class.peer == peer) {
            class.is_dead = true;
        }
        self.outbox.retain(|(to, ..)| *to != peer);
        for index in 0..self.handles.end() {
            let Some(handle) = self.handles.get_mut(index) else {
                continue;
            };
            let class = &mut self.classes[handle.class as usize];
            if class.peer != peer {
                continue;
            }
            if !handle.is_written() {
                class.into.end(handle.number);
            }
            handle.lose();
        }
        let handles = &self.handles;
        self.pending.retain(|index| handles.at(*index).is_pending());
    }

    /// Checks that all ends can be started, and marks them as started.
    fn mark_started(&mut self, ids: &[ChannelId]) -> Result<(), ChannelError> {
        for (at, id) in ids.iter().enumerate() {
            let started = self.handles.find_mut(*id).and_then(ChannelEnd::begin);
            match started {
                Ok(()) => self.active += 1,
                Err(error) => {
                    self.unmark(&ids[..at]);
                    return Err(error);
                }
            }
        }
        Ok(())
    }

    fn unmark(&mut self, ids: &[ChannelId]) {
        for id in ids {
            self.handles.at_mut(id.index()).is_started = false;
        }
        self.active -= ids.len();
    }

    fn declare_class(&mut self, key: &ChannelKey) -> u32 {
        let name = StartQueueName {
            context: key.context,
            class: key.class,
        };
        let index = match self.names.get(&(key.peer, name)) {
            Some(index) => *index,
            None => self.add_class(key.peer, name),
        };
        let class = &mut self.classes[index as usize];
        if !class.is_declared {
            class.is_declared = true;
            self.undeclared_classes = self.undeclared_classes.saturating_sub(1);
        }
        match key.direction {
            ChannelDirection::Send => class.out.prepare(class.handles.len() + 1),
            ChannelDirection::Receive => class.into.prepare(class.handles.len() + 1),
        }
        class.handles.push(self.handles.next_index());
        index
    }

    fn add_class(&mut self, peer: Peer, name: StartQueueName) -> u32 {
        self.counters.allocations.add(1);
        let index = u32::try_from(self.classes.len()).expect("contexts are fewer");
        let is_dead = self.dead.contains(&peer);
        let class = ChannelClass::new(peer, name);
        self.classes.push(ChannelClass { is_dead, ..class });
        self.names.insert((peer, name), index);
        self.undeclared_classes += 1;
        index
    }

    /// The class that a frame names. The class is added if the frame arrives before its first declaration. `None`: the
    /// frame is invalid, or too many classes are undeclared.
    fn class_of(&mut self, peer: Peer, head: &Head) -> Option<u32> {
        let name = wire::name(head)?;
        if let Some(index) = self.names.get(&(peer, name)) {
            return Some(*index);
        }
        (self.undeclared_classes < UNDECLARED_CLASSES_MAX).then(|| self.add_class(peer, name))
    }

    /// Sets the memory that an end transfers: its own memory, or a new staging buffer if that has gaps or the peer
    /// cannot map it. Registers it for a send; exports it to the peer for a receive.
    fn register_memory(&mut self, fabric: &mut Fabric, peer: Peer, handle: &mut ChannelEnd) {
        let bytes = handle.memory.bytes();
        let receives = handle.direction == ChannelDirection::Receive;
        handle.staging = match handle.memory.whole() {
            None => Some(StagingBuffer::new(fabric, bytes)),
            Some(whole) if receives && bytes <= STAGED_BYTES && bytes > 0 => {
                let reached = fabric.reaches_directly(peer, whole.address(), bytes as u64);
                (!reached)
                    .then(|| StagingBuffer::direct(fabric, bytes))
                    .flatten()
            }
            Some(_) => None,
        };
        self.counters
            .allocations
            .add(u64::from(handle.staging.is_some()));
        let staging = handle.staging.as_ref().map(StagingBuffer::span);
        handle.span = staging
            .or_else(|| handle.memory.whole())
            .unwrap_or(MemorySpan::EMPTY);
        let blocks = handle.memory.pieces();
        let has_gaps = handle.memory.whole().is_none();
        if !receives {
            handle.local = fabric.register(peer, handle.span.address(), bytes as u64);
            if has_gaps && smallest_block(blocks) >= CHAINED_BLOCK {
                let hulls = blocks.iter().map(UserBlocks::hull);
                let register = |(base, bytes)| fabric.register(peer, base, bytes);
                handle.locals = hulls.map(register).collect();
            }
        } else {
            let key = fabric.export(peer, handle.span.address(), bytes as u64);
            handle.key = Some(key);
            if has_gaps {
                handle.blocks = export_blocks(fabric, peer, &handle.memory);
            }
            let lines = &mut self.classes[handle.class as usize].into.lines;
            if fabric.is_near(peer) && *lines < LINES_MAX {
                handle.line = self.lines.take(fabric);
                *lines += usize::from(handle.line.is_some());
            }
        }
    }

    /// Deregisters the memory of an end, withdraws its keys from the peer, and releases its gate line and staging
    /// buffer.
    fn release_memory(&mut self, fabric: &mut Fabric, index: u32, mut handle: ChannelEnd) {
        let class = &mut self.classes[handle.class as usize];
        let (peer, name) = (class.peer, class.name);
        if let Some(line) = handle.line.take() {
            class.into.lines -= 1;
            self.lines.give_back(line);
            if line.is_announced {
                let head = wire::head(wire::FORGET, name, 0);
                self.send_frame(fabric, peer, head, &[line.to_name().place]);
            }
        }
        if handle.is_layout_sent && !handle.blocks.is_empty() {
            let head = wire::head(wire::NO_LAYOUT, name, index.into());
            self.send_frame(fabric, peer, head, &[]);
        }
        for key in handle.key.iter().chain(&handle.blocks) {
            fabric.withdraw(peer, *key);
        }
        let locals = handle.locals.iter().flatten();
        for key in locals.chain(&handle.local) {
            fabric.deregister(*key);
        }
        self.outbox_capacity -= (2 + handle.blocks.len()).min(self.outbox_capacity);
        if handle.direction == ChannelDirection::Send && fabric.is_near(peer) {
            self.writes_max -= handle.outstanding_max().min(self.writes_max);
        }
        if let Some(staging) = handle.staging.take() {
            staging.end(fabric);
        }
    }

    /// Sends a frame, or queues it until there is room.
    fn send_frame(&mut self, fabric: &mut Fabric, peer: Peer, head: Head, words: &[u64]) {
        if self.dead.contains(&peer) {
            return;
        }
        let waits = self.outbox.iter().any(|(to, ..)| *to == peer);
        if waits || !post_words(fabric, peer, head, words) {
            let mut body = [0; 6];
            body[..words.len()].copy_from_slice(words);
            let len = u8::try_from(words.len()).unwrap_or(0);
            self.outbox.push_back((peer, Head { len, ..head }, body));
        }
    }

    /// Sends queued frames. Frames to one peer stay in order.
    fn flush(&mut self, fabric: &mut Fabric) {
        let mut at = 0;
        while at < self.outbox.len() {
            let (peer, head, body) = self.outbox[at];
            let waits = self.outbox.iter().take(at).any(|(to, ..)| *to == peer);
            if !waits && post_words(fabric, peer, head, &body[..usize::from(head.len)]) {
                self.outbox.remove(at);
            } else {
                at += 1;
            }
        }
    }

    fn take_frame(&mut self, fabric: &mut Fabric, arrived: &Arrived) -> Option<()> {
        let class = self.class_of(arrived.peer, &arrived.head)?;
        self.answer_query(fabric, class, arrived.head.kind);
        match arrived.head.kind {
            wire::GATE => self.take_gate(fabric, class, arrived),
            wire::DATA => self.take_data(fabric, class, arrived),
            wire::STREAM => self.take_stream(fabric, class, arrived),
            wire::DIFFER => self.take_difference(class, arrived),
            wire::CREDIT => self.take_credit(class, arrived),
            wire::FORGET => self.forget_line(class, arrived),
            wire::NO_LINE => self.give_up_line(fabric, class, arrived),
            wire::LAYOUT => self.take_layout(fabric, class, arrived),
            wire::NO_LAYOUT => self.forget_layout(class, arrived),
            wire::LEAVE => self.take_leave(class, arrived),
            wire::QUERY => (arrived.bytes() == 0).then_some(()),
            _ => None,
        }
    }
}

impl ChannelId {
    #[allow(
        clippy::cast_possible_truncation,
        reason = "the half is cut out of the word"
    )]
    fn index(self) -> u32 {
        self.0 as u32
    }
}

/// If the memory of a receive has few pieces, and their blocks are large, the sender should write to the blocks
/// directly: exports the pieces to the sender, and returns their keys. Otherwise, or if a piece cannot be registered,
/// returns no keys.
fn export_blocks(fabric: &mut Fabric, peer: Peer, memory: &ChannelMemory) -> Box<[RemoteKey]> {
    let blocks = memory.pieces();
    let is_reached = |(base, bytes)| fabric.reaches_directly(peer, base, bytes);
    let is_mapped = fabric.is_near(peer) && blocks.iter().map(UserBlocks::hull).all(is_reached);
    let least = if is_mapped {
        MAPPED_BLOCK
    } else {
        CHAINED_BLOCK
    };
    // A copy by the kernel is slower than staging, as long as the staging buffer fits a cache.
    let is_staged = fabric.is_near(peer) && !is_mapped && memory.bytes() <= STAGED_BYTES;
    if is_staged || blocks.len() > LAYOUT_PIECES_MAX || smallest_block(blocks) < least {
        return Box::default();
    }
    let mut keys = Vec::with_capacity(blocks.len());
    for (base, bytes) in blocks.iter().map(UserBlocks::hull) {
        let key = fabric.export(peer, base, bytes);
        if key.bytes != bytes {
            // This piece cannot be registered.
            keys.iter().for_each(|key| fabric.withdraw(peer, *key));
            return Box::default();
        }
        keys.push(key);
    }
    keys.into()
}

/// Posts a frame whose body is `words`. `false`: there is no room.
fn post_words(fabric: &mut Fabric, peer: Peer, head: Head, words: &[u64]) -> bool {
    let mut body = [0u8; 48];
    for (to, word) in body.as_chunks_mut::<8>().0.iter_mut().zip(words) {
        *to = word.to_ne_bytes();
    }
    let head = Head { len: 0, ..head };
    fabric
        .post_send(peer, head, &body[..8 * words.len()])
        .is_ok()
}

/// Owner number of the channels' work requests, frames and immediates.
pub const OWNER: Owner = Owner::new(1);
/// Largest receive memory, in bytes, that gets a staging buffer if the peer cannot map it: the second copy, which reads
/// from a cache, costs half as much as a copy by the kernel.
const STAGED_BYTES: usize = 256 * 1024;
/// Smallest mapped block, in bytes, that is written to directly. A smaller block spans only a few cache lines, and
/// packed data move fewer cache lines between cores.
const MAPPED_BLOCK: usize = 128;
/// Maximum number of classes that peers may name before they are declared here.
const UNDECLARED_CLASSES_MAX: usize = 4096;
