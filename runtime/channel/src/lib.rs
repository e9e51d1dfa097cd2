// SPDX-License-Identifier: MIT OR Apache-2.0
//! Gated channels: messages of a fixed size between two processes, declared once and started often.
//!
//! Each end declares its memory locally, without communication. When the receiver starts its end, it sends the
//! destination of the bytes to the sender: the *gate*. When the sender starts its end, one one-sided write moves the
//! bytes there, and the immediate data of the write completes the receive. There is no matching and no intermediate
//! copy, and the gate may be open long before the sender starts.
//!
//! # Promises
//! - C1: the channels between two processes in one context and class form a queue: start number k of one side is paired
//!   with start number k of the other, whichever handles these are.
//! - C2: a message of at most 4096 bytes whose gate is not known is sent eagerly, and its send is complete: two
//!   processes that both send before they receive do not block each other. A receiver buffers at most 8 such messages
//!   of a queue; further ones wait for their gates.
//! - C3: nothing is allocated after the declarations; [`ChannelCounters::allocations`] counts allocations.
//! - C4: a message may be shorter than its receive: it fills the beginning, and the rest is unchanged. If it is longer,
//!   both ends complete with [`ChannelError::SizesDiffer`], and no byte is moved; if the send was complete before its
//!   receive started, and was collected, the next collected send of the queue has this error.
//! - C5: input from a peer is validated before use. Invalid frames are counted ([`ChannelCounters::refused`]) and
//!   ignored.
//! - C6: operations that wait for a process that was lost, or has [left](Channels::leave), complete with an error.
//!
//! # Within a node
//! A frame for each start would cost more than the start itself. So a receive whose sender is on the same node has a
//! *gate line*, a cache line in memory that both map: from its third start on, a store there opens the gate, and the
//! sender, which has mapped the receiver's memory, copies the bytes and completes the receive by another store. Only
//! waiting processes poll gate lines; a sleeping process is woken.
//!
//! # Memory with gaps
//! If the blocks of a receive are large enough, its sender is sent their layout, and moves each contiguous segment
//! directly: within a node by copies to mapped memory, elsewhere by one-sided writes. Small blocks are packed into a
//! staging buffer that the declaration has allocated, and unpacked at the other end.
//!
//! # Use
//! The owner of a [`Fabric`] who polls it passes on the completions that belong to [channels](OWNER): frames to
//! [`Channels::arrive`], work completions to [`Channels::worked`], immediate data to [`Channels::written`]; and calls
//! [`Channels::progress`] while they are [busy](Channels::is_busy).
//!
//! **Knows** the transport, and contexts and classes as numbers. **Never** knows their meaning, nor the engine.

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

/// Identifies a channel: direction, peer, context and class.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChannelKey {
    /// Direction of this end.
    pub direction: ChannelDirection,
    /// The process at the other end, which may be this one.
    pub peer: Peer,
    /// Number of the group of processes that both ends belong to.
    pub context: u32,
    /// Number of the queue, below 16.
    pub class: u8,
}

/// Id of a channel end: never 0, and never reused, not even after the end was freed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(transparent)]
pub struct ChannelId(pub u64);

/// Why an operation on a channel failed, or a message of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ChannelError {
    /// The id is invalid: of no channel, of a freed one, or of the other direction.
    #[error("this is no channel, or one that was freed; expected what a declare has answered")]
    Stale,
    /// The end was started, or opened, and has not completed.
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
    /// Length of a message that was too long.
    pub message_bytes: u64,
    /// Length of its receive.
    pub room_bytes: u64,
    /// It belongs to an earlier message, not to the collected one.
    pub is_earlier: bool,
}

/// The channels of a process.
///
/// It has more than sixty methods because a start consists of many small steps, in files by topic (`send.rs`,
/// `receive.rs`, `leave.rs`), each over several of the tables that a channel is in: handles, classes, lists, memory.
#[derive(Debug)]
pub struct Channels {
    handles: ChannelEnds,
    classes: Vec<ChannelClass>,
    names: HashMap<(Peer, StartQueueName), u32>,
    /// Number of classes that only peers have named so far.
    undeclared_classes: usize,
    /// Sends that wait for a gate or for room, or are sent in frames.
    pending: Vec<u32>,
    /// Frames for which the transport had no room.
    outbox: VecDeque<(Peer, Head, [u64; 6])>,
    /// Capacity reserved in `outbox`: a number of frames for each declared end.
    outbox_capacity: usize,
    /// Largest number of outstanding writes to ranks of this node.
    writes_max: usize,
    lines: SpareLines,
    lists: Vec<StartList>,
    /// The list that runs; what it has done is not committed to its ends yet.
    running: Option<StartedList>,
    /// Its sends that wait for their gates, as bits.
    pending_gates: u64,
    /// Changes whenever an end changes other than by a start: prepared lists of an older epoch are invalid.
    epoch: u64,
    /// Number of messages that arrived before their receive was started.
    buffered: usize,
    /// Number of ends that are started or open, without those of the running list.
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

    /// Reserves memory for all that the starts of one more end need.
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

    /// Starts all these ends, the receives first; or none of them, if one cannot be started.
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

    /// Whether all these ends have completed, or are not started.
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

    /// Collects the outcome of these ends, which have completed and can be started again. Returns the first error.
    ///
    /// # Errors
    /// [`ChannelError::Stale`]; [`ChannelError::Active`] if one has not completed, then nothing is collected;
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

    /// The live counters, for readers that do not own the channels. Operations of a running list are counted when it is
    /// collected.
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

    /// Whether something waits for room in the transport, which is not signalled.
    #[must_use]
    pub fn waits_for_room(&self) -> bool {
        !self.outbox.is_empty() || self.pending.iter().any(|index| self.could_go(*index))
    }

    /// Whether all frames were sent that a peer waits for and whose operation is complete here.
    #[must_use]
    pub fn is_drained(&self) -> bool {
        self.outbox.is_empty()
    }

    /// Posts operations that waited for a gate or for room. `true`: something was posted.
    pub fn progress(&mut self, fabric: &mut Fabric) -> bool {
        let before = (self.outbox.len(), self.pending.len());
        let moved = self.retry_gates(fabric);
        self.flush(fabric);
        self.retry_pending(fabric);
        moved || before != (self.outbox.len(), self.pending.len())
    }

    /// Handles a frame. The caller releases it.
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

    /// To be checked before this process sleeps: whether a peer of this node has opened an awaited gate, or written
    /// through one. From then on it wakes this process when it does so.
    pub fn has_arrivals(&mut self) -> bool {
        if self.active == 0 && self.is_run_quiet() {
            return false;
        }
        // The ordinary path finds gates elsewhere too, so it is used before the process sleeps.
        let mut has_arrivals = self.pending_gates != 0;
        self.commit_run();
        has_arrivals |= self.pending.iter().any(|index| self.is_line_open(*index));
        for index in 0..self.handles.end() {
            has_arrivals |= self.handles.get_mut(index).is_some() && self.complete_written(index);
        }
        has_arrivals
    }

    /// A peer is lost: all its started ends complete with an error.
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

    /// The class that a frame names; it may arrive before the first declaration.
    fn class_of(&mut self, peer: Peer, head: &Head) -> Option<u32> {
        let name = wire::name(head)?;
        if let Some(index) = self.names.get(&(peer, name)) {
            return Some(*index);
        }
        (self.undeclared_classes < UNDECLARED_CLASSES_MAX).then(|| self.add_class(peer, name))
    }

    /// Determines the contiguous memory of a handle, and registers it; exports it to the peer if that writes to it.
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

    /// The reverse of `register_memory`.
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

    /// Sends queued frames, in order for each peer.
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

/// Exports the blocks of a receive to its sender, if they are few and so large that it should write to them directly;
/// else none.
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
            // It cannot be registered.
            keys.iter().for_each(|key| fabric.withdraw(peer, *key));
            return Box::default();
        }
        keys.push(key);
    }
    keys.into()
}

/// Posts a frame whose body is words.
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
/// Receive memory up to this size that a peer cannot map is written to through a staging buffer: the second copy, from
/// a cache, costs half of a copy by the kernel.
const STAGED_BYTES: usize = 256 * 1024;
/// Smallest mapped block that is written to directly; smaller ones span only a few cache lines each, and packed data
/// move fewer lines between the caches.
const MAPPED_BLOCK: usize = 128;
/// Limit of classes that peers may name before they are declared here.
const UNDECLARED_CLASSES_MAX: usize = 4096;
