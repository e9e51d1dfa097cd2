// SPDX-License-Identifier: MIT OR Apache-2.0
//! Provider `verbs`: InfiniBand and RoCE. Every peer has a stream of packets (`session.rs`) that goes as datagrams at first
//! and over a reliable queue pair after some packets (`connect.rs`, `pairs.rs`); queue pairs break and are made again
//! without losing or repeating anything. Large data are read and written by the device (`work.rs`).
//!
//! One port serves all peers: one queue of receive buffers, one pool of slots for sends, a bounded number of reliable queue
//! pairs. So memory does not grow with the number of peers but for [`Side`], which exists from the first packet on.
//!
//! [`Verbs::poll`] is what happens: completions of receives (`arrive.rs`), then of sends, then what has become due.

mod address;
mod arrive;
mod choose;
mod connect;
mod device;
mod fake;
mod gid;
mod ledger;
mod look;
mod memory;
mod notes;
mod owned;
mod pairs;
mod pools;
mod port;
mod session;
mod side;
mod slab;
mod wire;
mod words;
mod work;

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, VecDeque};
use std::os::fd::BorrowedFd;
use std::time::Duration;

use super::Stats;
use crate::{Completion, Completions, Full, Head, Peer, wait};
use address::Address;
use arrive::Assembled;
pub(super) use device::Device;
pub(super) use fake::FakePort;
pub use fake::{FakeConfig, FakeNet, FakeStats};
use ledger::{Ledger, Posted};
pub(crate) use look::look;
use owned::Owned;
use pairs::Pair;
use pools::{MOST_DATAGRAMS, MOST_SHARED, RecvPool, SendPool};
use port::{Body, CallError, Depths, Done, Operation, Port, Queue, Region, Request, Status, Way};
use session::{Due, Moment, Slot, Via};
use side::{Hosts, Side};
use wire::{Ack, BEGINS, ENDS, HEADER_BYTES, Packet};
use work::Work;

/// The network of a process.
#[derive(Debug)]
pub(super) struct Verbs<P: Port> {
    me: u32,
    port: P,
    limits: NetLimits,
    /// Number of the first packet of every stream.
    first_packet: u32,
    sides: Box<[Option<Box<Side>>]>,
    sends: SendPool,
    receives: RecvPool,
    /// Largest packet that goes as a datagram.
    datagram_bytes: usize,
    /// Datagrams that were posted and have not ended.
    datagrams: Ledger,
    /// Ways that are not used any more, and the number of the first datagram that did not go there.
    old_ways: VecDeque<(u32, Way)>,
    pairs: Vec<Option<Pair>>,
    /// Reliable queue pairs by their number on the network.
    numbers: HashMap<u32, u32>,
    /// Work requests on all of them.
    posted: usize,
    /// Works that were ever begun.
    serial: u64,
    works: Vec<Option<Work>>,
    /// Bytes of reads under way that may lie.
    doubted_bytes: u64,
    /// Memory of this process that peers may reach, by the key that they have.
    exports: HashMap<u32, Region>,
    /// Memory that stays registered, by address.
    owned: Vec<Owned>,
    /// Completions that found no room in the caller's array.
    ready: VecDeque<Completion>,
    assembled: Assembled,
    /// Peers with something that waits to be sent.
    unsent: Vec<u32>,
    /// Peers that may have to be told what has arrived.
    owing: Vec<u32>,
    /// Peers whose queue pair is given up, or has broken and waits for its last completions.
    leaving: Vec<u32>,
    timers: BinaryHeap<Reverse<(u64, u32)>>,
    /// Peers whose address should be asked for.
    wanted: VecDeque<u32>,
    /// Datagrams of peers whose address is not known yet: the sender as it says, buffer, and queue pair it came from.
    strangers: VecDeque<(u32, Slot, u32)>,
    /// This host, and those of peers.
    host: String,
    hosts: Hosts,
    /// What the user should know, oldest first.
    complaints: VecDeque<String>,
    told_of_registration: bool,
    /// The port is lost, and so are all peers: why.
    all_lost: Option<Box<str>>,
    /// The port has another address than was published.
    has_moved: bool,
    /// Where completions are written; empty while they are looked at.
    received: Vec<Done>,
    sent: Vec<Done>,
    polls: u64,
    /// Something was heard since the caller wanted to sleep last: what was full may have room.
    has_stirred: bool,
    now_ns: u64,
    /// When the port is asked for events next.
    events_at_ns: u64,
    pub(super) stats: Stats,
    pub(super) net: NetStats,
}

/// What the network did so far; for tests and performance variables.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NetStats {
    /// Packets that went as datagrams.
    pub datagrams: u64,
    /// Of these, those whose time was over before they were acknowledged.
    pub overdue: u64,
    /// Packets that went over reliable queue pairs.
    pub packets: u64,
    /// Reliable queue pairs that were joined.
    pub joined: u64,
    /// Of those, the ones that broke.
    pub broken: u64,
    /// Of those, the ones that broke because the peer had no buffers for too long.
    pub not_ready: u64,
    /// Reliable queue pairs that were given up for others.
    pub given_up: u64,
    /// Packets that came twice.
    pub twice: u64,
    /// Bytes that the device read or wrote elsewhere on order of this process.
    pub moved_bytes: u64,
}

/// How much of everything.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NetLimits {
    /// Reliable queue pairs.
    pub pairs: u32,
    /// Packets to a peer before one is made for it.
    pub datagrams_first: u32,
    /// How long a peer may not answer after its queue pair broke.
    pub silence_ns: u64,
}

impl Default for NetLimits {
    fn default() -> Self {
        Self {
            pairs: 128,
            datagrams_first: 16,
            silence_ns: 120_000_000_000,
        }
    }
}

/// What a port should be opened with.
#[allow(clippy::cast_possible_truncation, reason = "some hundreds")]
pub(super) const DEPTHS: Depths = Depths {
    completions: (MOST_POSTED + MOST_OTHERS) as u32,
    sends: 64,
    datagrams: 256,
    shared: MOST_SHARED as u32,
    datagram_buffers: MOST_DATAGRAMS as u32,
    inline_bytes: 220,
};

impl<P: Port> Verbs<P> {
    /// Takes a port for a job of `peers` processes.
    pub(super) fn open(
        me: Peer,
        peers: u32,
        mut port: P,
        limits: NetLimits,
    ) -> Result<Self, CallError> {
        let packet_bytes = port.facts().packet_bytes as usize;
        let datagram_bytes = packet_bytes.min(MOST_DATAGRAM_BYTES);
        let mut receives = RecvPool::new(datagram_bytes);
        receives.open(&mut port)?;
        let mut sends = SendPool::new();
        sends.open(&mut port)?;
        Ok(Self {
            me: me.0,
            now_ns: port.now_ns(),
            port,
            limits,
            first_packet: 0,
            sides: (0..peers).map(|_| None).collect(),
            sends,
            receives,
            datagram_bytes,
            datagrams: Ledger::default(),
            old_ways: VecDeque::new(),
            pairs: Vec::new(),
            numbers: HashMap::new(),
            posted: 0,
            serial: 0,
            works: Vec::new(),
            doubted_bytes: 0,
            exports: HashMap::new(),
            owned: Vec::new(),
            ready: VecDeque::new(),
            assembled: Assembled::default(),
            unsent: Vec::new(),
            owing: Vec::new(),
            leaving: Vec::new(),
            timers: BinaryHeap::new(),
            wanted: VecDeque::new(),
            strangers: VecDeque::new(),
            host: wait::host_name(),
            hosts: Hosts::default(),
            complaints: VecDeque::new(),
            told_of_registration: false,
            all_lost: None,
            has_moved: false,
            received: vec![Done::default(); Completions::CAPACITY],
            sent: vec![Done::default(); 16],
            polls: 0,
            has_stirred: false,
            events_at_ns: 0,
            stats: Stats::default(),
            net: NetStats::default(),
        })
    }

    /// The streams begin with this number, here and at all others.
    pub(super) fn number_from(&mut self, first_packet: u32) {
        self.first_packet = first_packet;
    }

    pub(in crate::provider) fn port(&self) -> &P {
        &self.port
    }

    /// Where this process is found, for others: its address, and the name of its host for messages.
    pub(super) fn record(&self) -> Vec<u8> {
        let mut record = self.address().to_bytes().to_vec();
        record.extend(self.host.bytes().take(MOST_HOST_BYTES));
        record
    }

    fn address(&self) -> Address {
        let facts = self.port.facts();
        Address {
            link: facts.link,
            lid: facts.lid,
            number: self.port.datagram_number(),
            packet_bytes: facts.packet_bytes,
            gid: facts.gid,
        }
    }

    /// Memory that all of this takes now, and that it takes at most, in bytes, with as many peers as there are.
    pub(super) fn memory(&self) -> (usize, usize) {
        let fixed = size_of::<Self>() + self.sides.len() * size_of::<Option<Box<Side>>>();
        let sides = self.sides.iter().flatten().count();
        let pairs = self.pairs.iter().flatten().count();
        let now = fixed
            + sides * size_of::<Side>()
            + pairs * Pair::MOST_BYTES
            + self.sends.bytes()
            + self.receives.bytes();
        let most = fixed
            + self.sides.len() * Side::MOST_BYTES
            + self.limits.pairs as usize * Pair::MOST_BYTES
            + self.sends.most_bytes()
            + self.receives.most_bytes();
        let queues = 2 * COMPLETION_BYTES * DEPTHS.completions as usize;
        (now + queues, most + queues)
    }

    /// Posts a send.
    #[inline(never)]
    pub(super) fn post_send(&mut self, to: Peer, head: Head, body: &[u8]) -> Result<(), Full> {
        assert!(
            body.len() <= ring::layout::POOL_BUFFER_BYTES,
            "a send of {} bytes",
            body.len()
        );
        let side = self.side(to.0);
        if side.is_lost() {
            // The caller was told; nobody will ever read this.
            return Ok(());
        }
        let is_large = body.len() > ring::SLOT_BODY_BYTES;
        if is_large && !side.session.may_lend() {
            self.ask_for_ack(to.0);
            return Err(Full);
        }
        let side = self.side(to.0);
        side.packets = side.packets.saturating_add(1);
        let (begins, whole) = match side.pair_for_sends() {
            Some(_) => (true, true),
            None => (false, HEADER_BYTES + body.len() <= self.datagram_bytes),
        };
        if begins || whole {
            self.keep(to.0, head, BEGINS | ENDS, body)?;
        } else {
            self.keep_parts(to.0, head, body)?;
        }
        if is_large {
            self.side(to.0).session.lend();
        }
        self.stats.sends += 1;
        self.flush(to.0);
        Ok(())
    }

    /// Keeps a frame, or a part of one, in the peer's stream.
    #[inline(always)]
    fn keep(&mut self, to: u32, head: Head, parts: u8, body: &[u8]) -> Result<(), Full> {
        let bytes = HEADER_BYTES + body.len();
        let side = self.sides[to as usize].as_deref_mut().ok_or(Full)?;
        if side.session.room() == 0 {
            self.ask_for_ack(to);
            return Err(Full);
        }
        let Some(slot) = self.sends.take(&mut self.port, bytes) else {
            self.relieve();
            return Err(Full);
        };
        let packet = Packet {
            source: self.me,
            number: side.session.next(),
            ack: Ack::default(),
            parts,
            kind: head.kind,
            flags: head.flags,
            word: head.word,
        };
        let place = self.sends.bytes_mut(slot, bytes);
        if let Some((header, rest)) = place.split_first_chunk_mut::<HEADER_BYTES>() {
            packet.write(header);
            rest.copy_from_slice(body);
        }
        side.session.keep(slot, u32::try_from(bytes).unwrap_or(0));
        Ok(())
    }

    /// Keeps a frame as several packets, each of which goes as a datagram; all or none.
    #[cold]
    fn keep_parts(&mut self, to: u32, head: Head, body: &[u8]) -> Result<(), Full> {
        if self.hopes_for_pair(to) {
            // Better over the queue pair that is being made.
            return Err(Full);
        }
        let datagram_bytes = self.datagram_bytes;
        let side = self.side(to);
        let part_bytes = datagram_bytes.min(side.datagram_bytes()) - HEADER_BYTES;
        let parts = body.len().div_ceil(part_bytes);
        if (side.session.room() as usize) < parts || !self.sends.has(part_bytes, parts) {
            self.relieve();
            return Err(Full);
        }
        for (index, part) in body.chunks(part_bytes).enumerate() {
            let begins = if index == 0 { BEGINS } else { 0 };
            let ends = if index + 1 == parts { ENDS } else { 0 };
            self.keep(to, head, begins | ends, part)?;
        }
        Ok(())
    }

    /// Sends what waits in the peer's stream, as far as it goes now.
    #[inline(always)]
    fn flush(&mut self, peer: u32) {
        while let Some(side) = self.sides[peer as usize].as_deref_mut()
            && let Some(due) = side.session.next_unsent()
        {
            // A packet that tells of a write must not come before it.
            let sent = match side.pair_for_sends() {
                _ if side.immediates != 0 && !side.is_ready() => false,
                Some(pair) => self.send_over(peer, pair, due),
                None => self.send_datagram(peer, due),
            };
            if !sent {
                return self.list_unsent(peer);
            }
        }
    }

    #[cold]
    fn list_unsent(&mut self, peer: u32) {
        let side = self.side(peer);
        if !std::mem::replace(&mut side.listed_unsent, true) {
            self.unsent.push(peer);
        }
    }

    #[inline(always)]
    fn send_over(&mut self, peer: u32, index: u32, due: Due) -> bool {
        let inline_bytes = self.port.facts().inline_bytes as usize;
        let depth = self.port.facts().depth as usize;
        let (Some(side), Some(pair)) = (
            self.sides[peer as usize].as_deref_mut(),
            self.pairs[index as usize].as_mut(),
        ) else {
            return false;
        };
        if pair.ledger.len() >= depth || self.posted >= MOST_POSTED {
            return false;
        }
        let attempt = pair.attempt;
        let bytes = due.bytes as usize;
        if self.sends.is_still(due.slot) {
            stamp(&mut self.sends, due.slot, side.session.tell());
        }
        // Those without a completion, of all queue pairs, are never all that may be posted.
        let scarce = self.sends.is_scarce()
            || self.posted >= MOST_POSTED / 2
            || pair.ledger.len() + SIGNAL_EVERY as usize >= depth;
        let signaled = scarce || pair.ledger.unsignaled() + 1 >= SIGNAL_EVERY;
        let body = self.sends.body(due.slot, bytes, inline_bytes);
        let read = matches!(body, Body::Piece(_)).then_some(due.slot);
        let request = Request {
            work: name(index, pair.ledger.next()),
            operation: Operation::Send,
            body,
            signaled,
        };
        if self.port.post(pair.end, &[request]) == 0 {
            return false;
        }
        let posted = Posted::Packet {
            peer,
            number: due.number,
            read,
        };
        pair.ledger.push(posted, signaled);
        pair.used_at = self.polls;
        self.posted += 1;
        self.net.packets += 1;
        if let Some(slot) = read {
            self.sends.posted(slot);
        }
        side.session.sent(due.number, Via::Pair { attempt });
        true
    }

    fn send_datagram(&mut self, peer: u32, due: Due) -> bool {
        let first = self.limits.datagrams_first;
        let side = self.side(peer);
        let wants_pair = side.packets > first || due.bytes as usize > side.datagram_bytes();
        if wants_pair && !side.waits_for_last {
            self.want_pair(peer);
        }
        self.now_ns = self.port.now_ns();
        let now_ns = self.now_ns;
        let Some(to) = self.way_to(peer) else {
            return false;
        };
        let side = self.side(peer);
        if due.bytes as usize > side.datagram_bytes() {
            return false;
        }
        if self.sends.is_still(due.slot) {
            let ack = self.side(peer).session.tell();
            stamp(&mut self.sends, due.slot, ack);
        }
        if !self.post_datagram(to, due.slot, due.bytes as usize) {
            return false;
        }
        self.net.datagrams += 1;
        let at = Moment::of(now_ns);
        let via = Via::Datagram { at };
        self.side(peer).session.sent(due.number, via);
        self.arm(peer);
        true
    }

    /// Takes completions of sends.
    #[inline(never)]
    fn poll_sends(&mut self) {
        let mut done = std::mem::take(&mut self.sent);
        loop {
            let count = self.port.poll(Queue::Sends, &mut done);
            if count != 0 {
                self.take_all_sent(&done[..count]);
            }
            if count == 0 || count < done.len() {
                break;
            }
        }
        self.sent = done;
    }

    #[inline(never)]
    fn take_all_sent(&mut self, done: &[Done]) {
        self.has_stirred = true;
        for one in done {
            self.take_sent(one);
        }
    }

    #[inline(always)]
    fn take_sent(&mut self, done: &Done) {
        let (index, number) = parts_of(done.work);
        if index == DATAGRAMS {
            return self.take_sent_datagram(number);
        }
        if done.status != Status::Success {
            return self.take_failed(index, number, done);
        }
        while let Some(pair) = self.pairs.get_mut(index as usize).and_then(Option::as_mut)
            && let Some(posted) = pair.ledger.ended(number)
        {
            let attempt = pair.attempt;
            self.posted -= 1;
            self.retire(posted, attempt);
        }
    }

    /// A work request on a reliable queue pair has ended well.
    #[inline(always)]
    fn retire(&mut self, posted: Posted, attempt: u32) {
        match posted {
            Posted::Packet { peer, number, read } => {
                if let Some(slot) = read {
                    self.sends.retired(slot);
                }
                if let Some(side) = self.sides[peer as usize].as_deref_mut() {
                    side.was_heard();
                    if let Some(slot) = side.session.arrived(number, attempt) {
                        self.sends.release(slot);
                    }
                }
            }
            Posted::Part { work, bytes } => self.part_ended(work, bytes),
            Posted::Mark { read } => {
                if let Some(slot) = read {
                    self.sends.retired(slot);
                }
            }
        }
    }

    /// Asks once what happened.
    #[inline(never)]
    pub(super) fn poll(&mut self, completions: &mut Completions) {
        self.polls += 1;
        while !completions.is_full()
            && let Some(completion) = self.ready.pop_front()
        {
            completions.push(completion);
        }
        if !self.owing.is_empty() {
            self.tell_owed();
        }
        let room = Completions::CAPACITY - completions.len();
        let mut done = std::mem::take(&mut self.received);
        let heard = self.port.poll(Queue::Receives, &mut done[..room]);
        if heard != 0 {
            self.take_all_received(&done[..heard], completions);
        }
        self.received = done;
        if heard == 0 || self.sends.is_scarce() || self.polls.is_multiple_of(16) {
            self.poll_sends();
        }
        if !self.unsent.is_empty() {
            self.flush_all();
        }
        if heard < room && !self.leaving.is_empty() {
            self.leave_some();
        }
        if self.polls.is_multiple_of(P::CLOCK_EVERY) {
            self.look_at_clock();
        }
    }

    #[inline(never)]
    fn take_all_received(&mut self, done: &[Done], completions: &mut Completions) {
        for one in done {
            self.take_received(one, completions);
        }
        self.has_stirred = true;
        self.receives.tend(&mut self.port);
    }

    #[cold]
    fn flush_all(&mut self) {
        for peer in std::mem::take(&mut self.unsent) {
            self.side(peer).listed_unsent = false;
            self.go_on(peer);
        }
    }

    /// What is due by now.
    fn look_at_clock(&mut self) {
        self.now_ns = self.port.now_ns();
        while let Some(Reverse((deadline, peer))) = self.timers.peek().copied()
            && deadline <= self.now_ns
        {
            self.timers.pop();
            self.has_stirred = true;
            self.time_is_over(peer);
        }
        if self.now_ns >= self.events_at_ns {
            self.events_at_ns = self.now_ns + EVENTS_EVERY_NS;
            self.take_events();
        }
    }

    /// Whether all that was sent has arrived; what was posted last is asked about.
    pub(super) fn is_quiet(&mut self) -> bool {
        let quiet = |side: &Side| side.is_lost() || side.session.has_arrived();
        let all = self.sides.iter().flatten().all(|side| quiet(side));
        if !all {
            self.relieve();
        }
        all
    }

    /// A peer whose address should be asked for; each is named once.
    pub(super) fn wanted_address(&mut self) -> Option<u32> {
        self.wanted.pop_front()
    }

    #[inline(always)]
    pub(super) fn has_news(&self) -> bool {
        !self.wanted.is_empty() || !self.complaints.is_empty()
    }

    /// Something that the user should know.
    pub(super) fn next_complaint(&mut self) -> Option<String> {
        self.complaints.pop_front()
    }

    /// Keeps something that the user should know; there is an end to what anybody wants to read.
    fn complain(&mut self, words: String) {
        if self.complaints.len() < MOST_COMPLAINTS {
            self.complaints.push_back(words);
        }
    }

    /// Whether nothing is here and nothing can be done: then a sign comes when there is.
    pub(super) fn prepare_sleep(&mut self) -> bool {
        if self.port.arm().is_err() {
            return false;
        }
        // What came before gives no sign any more.
        let mut completions = Completions::new();
        self.poll(&mut completions);
        // They come before those that found no room in the array.
        let taken = (0..completions.len()).filter_map(|index| completions.take(index));
        let taken: Vec<Completion> = taken.collect();
        for completion in taken.into_iter().rev() {
            self.ready.push_front(completion);
        }
        let has_stirred = std::mem::take(&mut self.has_stirred);
        !has_stirred
            && self.ready.is_empty()
            && self.owing.is_empty()
            && self.leaving.is_empty()
            && self.wanted.is_empty()
    }

    /// The longest that the process may sleep.
    pub(super) fn until_due(&mut self, timeout: Duration) -> Duration {
        let Some(Reverse((deadline, _))) = self.timers.peek() else {
            return timeout;
        };
        let due = deadline.saturating_sub(self.port.now_ns());
        timeout.min(Duration::from_nanos(due))
    }

    /// The process is awake again.
    pub(super) fn wake(&mut self) {
        self.port.take_signs();
        // An event may be what has woken it.
        self.events_at_ns = 0;
        self.look_at_clock();
    }

    pub(super) fn sign(&self) -> Option<BorrowedFd<'_>> {
        self.port.sign()
    }
}

impl<P: Port> Drop for Verbs<P> {
    /// Breaks what is there, forgets all memory, and lets the port go.
    fn drop(&mut self) {
        for pair in self.pairs.iter_mut().filter_map(Option::take) {
            self.port.fail(pair.end);
            self.port.destroy(pair.end);
        }
        for (_, region) in self.exports.drain() {
            self.port.deregister(region);
        }
        for work in self.works.iter_mut().filter_map(Option::take) {
            if let Some(region) = work.region() {
                self.port.deregister(region);
            }
        }
        self.disown_all();
        self.forget_ways();
        for (_, way) in std::mem::take(&mut self.old_ways) {
            self.port.close_way(way);
        }
        self.sends.retire(&mut self.port);
        self.receives.retire(&mut self.port);
    }
}

/// Writes what the peer should be told into a packet that is sent now. Not while a device still reads it for an earlier time:
/// half of one answer and half of another would be a third.
#[inline(always)]
fn stamp(sends: &mut SendPool, slot: Slot, ack: Ack) {
    let header = sends.bytes_mut(slot, HEADER_BYTES);
    if let Some(header) = header.first_chunk_mut() {
        wire::write_ack(ack, header);
    }
}

/// The name of a work request: which queue, and its number there.
#[inline(always)]
fn name(index: u32, number: u32) -> u64 {
    u64::from(index) << 32 | u64::from(number)
}

#[inline(always)]
#[allow(
    clippy::cast_possible_truncation,
    reason = "the two halves are cut out of the word"
)]
fn parts_of(work: u64) -> (u32, u32) {
    ((work >> 32) as u32, work as u32)
}

/// The queue of datagrams, among those of the reliable queue pairs.
const DATAGRAMS: u32 = u32::MAX;
/// So many work requests on all reliable queue pairs: each may need a completion.
const MOST_POSTED: usize = 640;
/// The others that may need one in the same queue: datagrams, and a mark for each reliable queue pair.
const MOST_OTHERS: usize = 256 + 128;
/// So many packets at most go without asking for a completion.
const SIGNAL_EVERY: u32 = 16;
/// Larger packets only go over reliable queue pairs.
const MOST_DATAGRAM_BYTES: usize = 2048;
/// What a device's library keeps for a completion, at most.
const COMPLETION_BYTES: usize = 64;
const EVENTS_EVERY_NS: u64 = 100_000_000;
/// Bytes of a host's name in a record.
const MOST_HOST_BYTES: usize = 40;
const MOST_COMPLAINTS: usize = 16;
