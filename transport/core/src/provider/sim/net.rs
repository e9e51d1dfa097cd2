// SPDX-License-Identifier: MIT OR Apache-2.0
//! The simulated wire, clock and adapters of all ranks.
//!
//! One-sided operations are carried out by the target's adapter, in order with what was sent before them, whether the
//! target polls or not. They move bytes inside this process, through the lease.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use ring::layout::SLOT_BODY_BYTES;

use super::flow::{Again, Receiver, Sender, SimAck};
use super::{SimConfig, SimHop, SimStats};
use crate::provider::shm::seal;
use crate::{
    Arrived, Atomic, Completion, Completions, Head, Lease, Peer, RecvBuffer, RemoteKey, WorkId,
    WorkOutcome,
};

/// The simulated network: all adapters, and the events that are due.
#[derive(Debug)]
pub(super) struct SimWire {
    config: SimConfig,
    random: SimRandom,
    now: u64,
    /// Time of each event, and its id. Ids grow, so events of equal times keep their order.
    events: BinaryHeap<Reverse<(u64, u64)>>,
    happenings: Vec<Option<SimEvent>>,
    free: Vec<usize>,
    scheduled: u64,
    adapters: Vec<SimAdapter>,
    /// The flow from `from` to `to` is at index `from * ranks + to`.
    flows: Vec<Flow>,
    /// For each node, the times until which its adapter is busy with outgoing and with incoming packets.
    busy_until: Vec<[u64; 2]>,
    /// For each rank, the time until which its core is busy with data that have arrived.
    cores_until: Vec<u64>,
    pub(super) stats: SimStats,
}

/// Packets from one rank to another.
#[derive(Debug)]
struct Flow {
    sender: Sender<SimPost>,
    receiver: Receiver,
    /// `sent`: packets put on the wire. `latest`: the highest number of a packet that has arrived.
    sent: u64,
    latest: u64,
    secret: u64,
}

/// An item posted to the simulated network; it is stored until it is acknowledged.
#[derive(Debug)]
pub(super) enum SimPost {
    Frame {
        head: Head,
        body: Box<[u8]>,
    },
    Read {
        lease: Lease,
        key: RemoteKey,
        offset: u64,
        work: WorkId,
    },
    Write {
        lease: Lease,
        key: RemoteKey,
        offset: u64,
        work: WorkId,
        immediate: Option<u32>,
    },
    Atomic {
        atomic: Atomic,
        lease: Lease,
        key: RemoteKey,
        offset: u64,
        work: WorkId,
    },
    /// A frame that was delivered.
    Delivered,
    /// A read or write that the receiver's adapter has carried out.
    Done(Completion),
}

impl SimPost {
    /// Bytes of data that the item moves. The bytes that a read returns count too, since they occupy the adapters for
    /// as long.
    fn bytes(&self) -> u64 {
        match self {
            Self::Frame { body, .. } => body.len() as u64,
            Self::Read { lease, .. } | Self::Write { lease, .. } => lease.bytes() as u64,
            Self::Atomic { .. } => 8,
            Self::Delivered | Self::Done(_) => 0,
        }
    }
}

/// The simulated network adapter of one rank.
#[derive(Debug)]
struct SimAdapter {
    /// Arrived items, each with the rank that sent it.
    inbox: VecDeque<(u32, Completion)>,
    finished: VecDeque<Completion>,
    lent: Vec<Option<(u32, Box<[u8]>)>>,
    running: bool,
    /// When the rank is next taken off its processor, or returns to it.
    change: u64,
    refused: u64,
}

/// Something that happens at a simulated time: a packet arrives, a retransmission timer expires, or an operation
/// completes.
#[derive(Debug)]
enum SimEvent {
    Packet { from: u32, to: u32, what: SimPacket },
    Timer { from: u32, to: u32 },
    Finished { rank: u32, completion: Completion },
}

/// A packet of the simulated network.
#[derive(Clone, Copy, Debug)]
enum SimPacket {
    Item { sequence: u64, number: u64 },
    Probe,
    Ack(SimAck),
}

impl SimWire {
    pub(super) fn new(config: SimConfig) -> Self {
        let mut random = SimRandom::new(config.seed);
        // Twice the longest round trip, so that a wire without loss retransmits nothing. For queueing delays at
        // adapters, which are not known in advance, an upper bound is added.
        let timeout = match config.between {
            Some(hop) => 4 * (config.most_delay_ns + hop.delay_ns) + WAITS_AT_ADAPTERS_NS,
            None => 4 * config.most_delay_ns + 1,
        };
        let flows = (0..config.ranks * config.ranks)
            .map(|_| Flow::new(timeout, random.next()))
            .collect();
        let adapters = (0..config.ranks).map(|_| SimAdapter::new()).collect();
        let mut net = Self {
            config,
            random,
            now: 0,
            events: BinaryHeap::new(),
            happenings: Vec::new(),
            free: Vec::new(),
            scheduled: 0,
            adapters,
            flows,
            busy_until: vec![[0; 2]; index(config.ranks)],
            cores_until: vec![0; index(config.ranks)],
            stats: SimStats::default(),
        };
        for rank in 0..config.ranks {
            net.adapters[index(rank)].change = net.stretch(true);
        }
        net
    }

    pub(super) fn config(&self) -> SimConfig {
        self.config
    }

    pub(super) fn now(&self) -> u64 {
        self.now
    }

    pub(super) fn refused(&self, rank: u32) -> u64 {
        self.adapters[index(rank)].refused
    }

    pub(super) fn is_running(&self, rank: u32) -> bool {
        self.adapters[index(rank)].running
    }

    /// Gives an item to the adapter, or returns it if there is no room.
    pub(super) fn post(&mut self, from: u32, to: u32, item: SimPost) -> Result<(), SimPost> {
        if let Some(done) = self.refuse_one_sided(from, &item) {
            return self.finish_later(from, item, done);
        }
        let is_lent = matches!(&item, SimPost::Frame { body, .. } if body.len() > SLOT_BODY_BYTES);
        let config = self.config;
        let running = self.is_running(from);
        let sender = &self.flow(from, to).sender;
        let crowded = sender.in_window() >= u64::from(config.window_frames);
        let drained = is_lent && sender.lent() >= u64::from(config.lent_buffers);
        if !running || crowded || drained {
            self.stats.full += 1;
            return Err(item);
        }
        self.hand_over(from, to, item, is_lent);
        Ok(())
    }

    /// Posts a read or an atomic operation. These need no room: the poster bounds their number.
    pub(super) fn post_read(&mut self, from: u32, to: u32, item: SimPost) {
        match self.refuse_one_sided(from, &item) {
            Some(outcome) => {
                let _ = self.finish_later(from, item, outcome);
            }
            None => self.hand_over(from, to, item, false),
        }
    }

    pub(super) fn export(&mut self, owner: u32, user: u32, address: u64, bytes: u64) -> RemoteKey {
        let secret = self.flow(user, owner).secret;
        RemoteKey {
            address,
            bytes,
            check: seal(secret, &[address, bytes]),
        }
    }

    pub(super) fn poll(&mut self, rank: u32, completions: &mut Completions) {
        let adapter = &mut self.adapters[index(rank)];
        if !adapter.running {
            return;
        }
        while !completions.is_full()
            && let Some(completion) = adapter.finished.pop_front()
        {
            completions.push(completion);
        }
        let mut seen = Vec::new();
        while !completions.is_full()
            && let Some((from, completion)) = adapter.inbox.pop_front()
        {
            completions.push(completion);
            seen.push(from);
        }
        for from in &seen {
            self.flow(*from, rank).receiver.polled();
        }
        seen.sort_unstable();
        seen.dedup();
        for from in seen {
            self.acknowledge(from, rank);
        }
    }

    pub(super) fn has_completions(&self, rank: u32) -> bool {
        let adapter = &self.adapters[index(rank)];
        adapter.running && !(adapter.inbox.is_empty() && adapter.finished.is_empty())
    }

    pub(super) fn copy_lent(&self, rank: u32, at: u32, target: &mut [u8]) -> usize {
        let Some(Some((_, body))) = self.adapters[index(rank)].lent.get(index(at)) else {
            return 0;
        };
        let bytes = body.len().min(target.len());
        target[..bytes].copy_from_slice(&body[..bytes]);
        bytes
    }

    pub(super) fn release(&mut self, rank: u32, at: u32) {
        let place = self.adapters[index(rank)].lent.get_mut(index(at));
        if let Some((from, _)) = place.and_then(Option::take) {
            self.flow(from, rank).receiver.give_back();
            self.acknowledge(from, rank);
        }
    }

    pub(super) fn advance(&mut self) -> bool {
        let event = self.events.peek().map(|Reverse((time, _))| *time);
        let back = self.adapters.iter().filter(|adapter| !adapter.running);
        let Some(next) = back.map(|adapter| adapter.change).chain(event).min() else {
            return false;
        };
        self.now = self.now.max(next);
        self.reschedule_ranks();
        while let Some(Reverse((time, id))) = self.events.peek().copied()
            && time <= self.now
        {
            self.events.pop();
            let place = place_of(id);
            if let Some(happening) = self.happenings[place].take() {
                self.free.push(place);
                self.happen(happening);
            }
        }
        true
    }

    fn happen(&mut self, happening: SimEvent) {
        match happening {
            SimEvent::Packet { from, to, what } => self.arrive(from, to, what),
            SimEvent::Timer { from, to } => self.time_out(from, to),
            SimEvent::Finished { rank, completion } => {
                self.adapters[index(rank)].finished.push_back(completion);
            }
        }
    }

    fn arrive(&mut self, from: u32, to: u32, packet: SimPacket) {
        match packet {
            SimPacket::Item { sequence, number } => {
                let flow = self.flow(from, to);
                let overtaken = number < flow.latest;
                flow.latest = flow.latest.max(number);
                for ready in flow.receiver.accept(sequence) {
                    self.carry_out(from, to, ready);
                }
                self.stats.overtaken += u64::from(overtaken);
                self.acknowledge(from, to);
            }
            SimPacket::Probe => self.acknowledge(from, to),
            SimPacket::Ack(ack) => {
                let now = self.now;
                // An acknowledgement of what `to` has sent to `from`.
                let done = self.flow(to, from).sender.acknowledge(ack, now);
                let ended = done.into_iter().filter_map(|item| match item {
                    SimPost::Done(completion) => Some(completion),
                    _ => None,
                });
                self.adapters[index(to)].finished.extend(ended);
                self.set_timer(to, from);
            }
        }
    }

    /// Carries out an item that is in order at the receiver's adapter.
    fn carry_out(&mut self, from: u32, to: u32, sequence: u64) {
        let Some(place) = self.flow(from, to).sender.item(sequence) else {
            return;
        };
        let (rest, seen) = match std::mem::replace(place, SimPost::Delivered) {
            SimPost::Frame { head, body } => {
                let frame = self.land(from, to, head, body);
                (SimPost::Delivered, Some(frame))
            }
            SimPost::Read {
                mut lease,
                key,
                offset,
                work,
            } => {
                let outcome = self.check(from, to, &lease, key, offset);
                if outcome == WorkOutcome::Done {
                    lease.copy_within_process(key.address + offset);
                }
                (SimPost::Done(worked(work, outcome, lease)), None)
            }
            SimPost::Atomic {
                atomic,
                mut lease,
                key,
                offset,
                work,
            } => {
                let outcome = self.check_word(from, to, &lease, key, offset);
                if outcome == WorkOutcome::Done {
                    lease.change_within_process(key.address + offset, atomic);
                }
                (SimPost::Done(worked(work, outcome, lease)), None)
            }
            SimPost::Write {
                lease,
                key,
                offset,
                work,
                immediate,
            } => {
                let outcome = self.check(from, to, &lease, key, offset);
                if outcome == WorkOutcome::Done {
                    lease.copy_to_process(key.address + offset);
                }
                let immediate = immediate.filter(|_| outcome == WorkOutcome::Done);
                let written = immediate.map(|it| written(from, it));
                (SimPost::Done(worked(work, outcome, lease)), written)
            }
            rest @ (SimPost::Delivered | SimPost::Done(_)) => (rest, None),
        };
        let flow = self.flow(from, to);
        if let Some(place) = flow.sender.item(sequence) {
            *place = rest;
        }
        if let Some(completion) = seen {
            flow.receiver.wait_for_poll(sequence);
            self.adapters[index(to)].inbox.push_back((from, completion));
        }
    }

    fn land(&mut self, from: u32, to: u32, head: Head, body: Box<[u8]>) -> Completion {
        let mut words = [0u64; SLOT_BODY_BYTES / 8];
        let buffer = if body.len() <= SLOT_BODY_BYTES {
            for (word, chunk) in words.iter_mut().zip(body.chunks(8)) {
                let mut bytes = [0; 8];
                bytes[..chunk.len()].copy_from_slice(chunk);
                *word = u64::from_ne_bytes(bytes);
            }
            RecvBuffer::Inline {
                bytes: u8::try_from(body.len()).unwrap_or(u8::MAX),
            }
        } else {
            let lent = &mut self.adapters[index(to)].lent;
            let free = lent.iter().position(Option::is_none);
            let place = free.unwrap_or(lent.len());
            let bytes = narrow(body.len());
            match free {
                Some(place) => lent[place] = Some((from, body)),
                None => lent.push(Some((from, body))),
            }
            RecvBuffer::Lent {
                index: narrow(place),
                bytes,
            }
        };
        Completion::Arrived(Arrived {
            peer: Peer(from),
            head,
            words,
            body: buffer,
        })
    }

    /// Checks the key of an atomic operation, and that the word is aligned.
    fn check_word(
        &mut self,
        user: u32,
        owner: u32,
        lease: &Lease,
        key: RemoteKey,
        offset: u64,
    ) -> WorkOutcome {
        match self.check(user, owner, lease, key, offset) {
            WorkOutcome::Done if !(key.address + offset).is_multiple_of(8) => WorkOutcome::BadKey,
            outcome => outcome,
        }
    }

    fn check(
        &mut self,
        user: u32,
        owner: u32,
        lease: &Lease,
        key: RemoteKey,
        offset: u64,
    ) -> WorkOutcome {
        let fits = offset
            .checked_add(lease.bytes() as u64)
            .is_some_and(|end| end <= key.bytes);
        if fits && key == self.export(owner, user, key.address, key.bytes) {
            return WorkOutcome::Done;
        }
        self.adapters[index(user)].refused += 1;
        WorkOutcome::BadKey
    }

    /// The outcome of a one-sided operation on a network that does not support such operations; `None` for frames, on
    /// other networks, and for a write of a rank that is not running, which `post` rejects as full.
    fn refuse_one_sided(&self, from: u32, item: &SimPost) -> Option<WorkOutcome> {
        let waits = matches!(item, SimPost::Read { .. } | SimPost::Atomic { .. });
        let one_sided = waits || matches!(item, SimPost::Write { .. });
        let running = self.is_running(from) || waits;
        (one_sided && running && !self.config.one_sided).then_some(WorkOutcome::Unreachable)
    }

    fn finish_later(
        &mut self,
        rank: u32,
        item: SimPost,
        outcome: WorkOutcome,
    ) -> Result<(), SimPost> {
        let (SimPost::Read { lease, work, .. }
        | SimPost::Write { lease, work, .. }
        | SimPost::Atomic { lease, work, .. }) = item
        else {
            return Err(item);
        };
        let completion = worked(work, outcome, lease);
        let time = self.now + self.delay();
        self.schedule(time, SimEvent::Finished { rank, completion });
        Ok(())
    }

    fn hand_over(&mut self, from: u32, to: u32, item: SimPost, is_lent: bool) {
        let now = self.now;
        let sequence = self.flow(from, to).sender.push(item, is_lent, now);
        self.send_item(from, to, sequence);
        self.set_timer(from, to);
    }

    fn send_item(&mut self, from: u32, to: u32, sequence: u64) {
        let flow = self.flow(from, to);
        flow.sent += 1;
        let number = flow.sent;
        self.send(from, to, SimPacket::Item { sequence, number });
    }

    /// Sends the sender of flow `from -> to` an acknowledgement of what its receiver has received and consumed.
    fn acknowledge(&mut self, from: u32, to: u32) {
        let ack = self.flow(from, to).receiver.ack();
        self.send(to, from, SimPacket::Ack(ack));
    }

    fn send(&mut self, from: u32, to: u32, what: SimPacket) {
        let copies = 1 + u32::from(self.random.chance(self.config.duplicate_permille));
        self.stats.duplicated += u64::from(copies - 1);
        for _ in 0..copies {
            self.stats.packets += 1;
            if self.random.chance(self.config.loss_permille) {
                self.stats.lost += 1;
                continue;
            }
            let time = self.arrival(from, to, what);
            self.schedule(time, SimEvent::Packet { from, to, what });
        }
    }

    fn time_out(&mut self, from: u32, to: u32) {
        let now = self.now;
        match self.flow(from, to).sender.timeout(now) {
            Some(Again::Items(sequences)) => {
                self.stats.repeated += sequences.end - sequences.start;
                for sequence in sequences {
                    self.send_item(from, to, sequence);
                }
            }
            Some(Again::Probe) => self.send(from, to, SimPacket::Probe),
            // The timer was restarted meanwhile, and another event is scheduled for the new deadline.
            None => return,
        }
        self.set_timer(from, to);
    }

    fn set_timer(&mut self, from: u32, to: u32) {
        if let Some(deadline) = self.flow(from, to).sender.deadline() {
            self.schedule(deadline, SimEvent::Timer { from, to });
        }
    }

    fn schedule(&mut self, time: u64, happening: SimEvent) {
        let place = self.free.pop().unwrap_or(self.happenings.len());
        if place == self.happenings.len() {
            self.happenings.push(None);
        }
        self.happenings[place] = Some(happening);
        self.scheduled += 1;
        let id = self.scheduled << PLACE_BITS | place as u64;
        self.events.push(Reverse((time, id)));
    }

    /// Arrival time of a packet that is sent now.
    fn arrival(&mut self, from: u32, to: u32, what: SimPacket) -> u64 {
        let way_ns = self.delay();
        let Some(hop) = self.config.between else {
            return self.now + way_ns;
        };
        let item = match what {
            SimPacket::Item { sequence, .. } => self.flow(from, to).sender.item(sequence),
            SimPacket::Probe | SimPacket::Ack(_) => None,
        };
        let is_item = item.is_some();
        let bytes = item.as_deref().map_or(0, SimPost::bytes);
        // The rank whose core handles the data.
        let user = match item {
            Some(SimPost::Read { .. }) => from,
            _ => to,
        };
        let node = |rank: u32| index(rank / hop.ranks_per_node.max(1));
        let there = match (node(from), node(to)) {
            (from, to) if from == to => self.now + way_ns,
            nodes => self.passes_adapters(hop, nodes, bytes, way_ns),
        };
        if !is_item {
            return there;
        }
        let core_ns = hop.core_gap_ns + bytes * hop.core_byte_ps / 1000;
        let core = &mut self.cores_until[index(user)];
        *core = there.max(*core) + core_ns;
        *core
    }

    /// The time at which a packet with `bytes` bytes of data, sent now, has passed the adapters of both nodes.
    fn passes_adapters(
        &mut self,
        hop: SimHop,
        (from, to): (usize, usize),
        bytes: u64,
        way_ns: u64,
    ) -> u64 {
        self.stats.between += 1;
        let busy_ns = hop.gap_ns + bytes * hop.byte_ps / 1000;
        let [out, _] = &mut self.busy_until[from];
        *out = self.now.max(*out) + busy_ns;
        let there = *out + way_ns + hop.delay_ns;
        let [_, into] = &mut self.busy_until[to];
        *into = (there - busy_ns).max(*into) + busy_ns;
        *into
    }

    fn delay(&mut self) -> u64 {
        let SimConfig {
            least_delay_ns,
            most_delay_ns,
            ..
        } = self.config;
        let spread = most_delay_ns.saturating_sub(least_delay_ns);
        (least_delay_ns + self.random.below(1 + spread)).max(1)
    }

    fn reschedule_ranks(&mut self) {
        for rank in 0..self.adapters.len() {
            while self.adapters[rank].change <= self.now {
                let running = !self.adapters[rank].running;
                let stretch = self.stretch(running);
                let adapter = &mut self.adapters[rank];
                adapter.running = running;
                adapter.change = adapter.change.saturating_add(stretch);
                self.stats.away += u64::from(!running);
            }
        }
    }

    /// Duration of a rank's next stay on its processor (`running`), or off it.
    fn stretch(&mut self, running: bool) -> u64 {
        let SimConfig {
            most_away_ns,
            away_permille,
            ..
        } = self.config;
        if most_away_ns == 0 || away_permille == 0 {
            return u64::MAX;
        }
        let longest = match running {
            true => most_away_ns * (1000 - u64::from(away_permille)) / u64::from(away_permille),
            false => most_away_ns,
        };
        1 + self.random.below(longest.max(1))
    }

    fn flow(&mut self, from: u32, to: u32) -> &mut Flow {
        &mut self.flows[index(from * self.config.ranks + to)]
    }
}

impl Flow {
    fn new(timeout: u64, secret: u64) -> Self {
        Self {
            sender: Sender::new(timeout),
            receiver: Receiver::default(),
            sent: 0,
            latest: 0,
            secret,
        }
    }
}

impl SimAdapter {
    fn new() -> Self {
        Self {
            inbox: VecDeque::new(),
            finished: VecDeque::new(),
            lent: Vec::new(),
            running: true,
            change: 0,
            refused: 0,
        }
    }
}

/// A small generator whose whole state is one word (Steele, Lea, Flood: SplitMix64).
#[derive(Clone, Debug)]
pub(in crate::provider) struct SimRandom(u64);

impl SimRandom {
    pub(in crate::provider) fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(in crate::provider) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = self.0;
        word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        word ^ (word >> 31)
    }

    /// A number below `limit`, which is not 0.
    pub(in crate::provider) fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }

    /// Returns `true` with a probability of `permille` of 1000.
    pub(in crate::provider) fn chance(&mut self, permille: u32) -> bool {
        permille != 0 && self.below(1000) < u64::from(permille)
    }
}

/// The completion of a write with an immediate from `from`, at its receiver.
fn written(from: u32, immediate: u32) -> Completion {
    let peer = Peer(from);
    Completion::Written { peer, immediate }
}

fn worked(work: WorkId, outcome: WorkOutcome, lease: Lease) -> Completion {
    Completion::Worked {
        work,
        outcome,
        lease,
    }
}

fn index(rank: u32) -> usize {
    rank as usize
}

fn narrow(count: usize) -> u32 {
    u32::try_from(count).expect("bodies and their number are small")
}

fn place_of(id: u64) -> usize {
    usize::try_from(id & ((1 << PLACE_BITS) - 1)).expect("a place is an index")
}

/// Bits of an event's id that are its index: at most 2^24 events are pending at a time.
const PLACE_BITS: u32 = 24;
/// Upper bound of the time that a packet waits at adapters, by which the timeout is lengthened.
const WAITS_AT_ADAPTERS_NS: u64 = 1_000_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    /// Sends `count` numbered frames from 0 to 1; returns the frames that arrived, with the statistics.
    fn carry(config: SimConfig, count: u64) -> (Vec<u64>, SimStats, u64) {
        let mut net = SimWire::new(config);
        let (mut sent, mut got) = (0, Vec::new());
        let mut completions = Completions::new();
        for _ in 0..200_000 {
            let head = Head {
                kind: 1,
                len: 0,
                flags: 0,
                word: sent,
            };
            let item = SimPost::Frame {
                head,
                body: Box::default(),
            };
            sent += u64::from(sent < count && net.post(0, 1, item).is_ok());
            completions.clear();
            net.poll(1, &mut completions);
            for at in 0..completions.len() {
                let completion = completions.take(at).unwrap();
                got.push(completion.arrived().unwrap().head.word);
            }
            if got.len() as u64 == count {
                break;
            }
            net.advance();
        }
        (got, net.stats, net.now)
    }

    #[test]
    fn a_harsh_network_delivers_once_and_in_order() {
        let (mut lost, mut overtaken, mut full, mut away) = (0, 0, 0, 0);
        for seed in 0..300 {
            let (got, stats, _) = carry(SimConfig::harsh(seed, 2), 40);
            assert!(got.iter().copied().eq(0..40), "seed {seed}: {got:?}");
            lost += stats.lost;
            overtaken += stats.overtaken;
            full += stats.full;
            away += stats.away;
        }
        assert!(lost > 1000 && overtaken > 1000 && full > 1000 && away > 100);
    }

    #[test]
    fn the_same_seed_gives_the_same_result() {
        let config = SimConfig::harsh(17, 2);
        let (first, second) = (carry(config, 50), carry(config, 50));
        assert_eq!(first, second);
        let other = carry(SimConfig { seed: 18, ..config }, 50);
        assert_ne!(first.2, other.2);
    }

    #[test]
    fn a_calm_network_retransmits_nothing_and_becomes_idle() {
        let mut net = SimWire::new(SimConfig::calm(1, 2));
        let head = Head {
            kind: 1,
            len: 0,
            flags: 0,
            word: 0,
        };
        let body = vec![3; 1000].into();
        assert!(net.post(0, 1, SimPost::Frame { head, body }).is_ok());
        let mut completions = Completions::new();
        while completions.is_empty() {
            assert!(net.advance());
            net.poll(1, &mut completions);
        }
        net.release(1, 0);
        net.release(1, 0);
        while net.advance() {}
        assert_eq!((net.stats.repeated, net.stats.lost), (0, 0));
        assert_eq!(net.flows[1].sender.lent(), 0);
        assert_eq!(net.flows[1].sender.deadline(), None);
    }

    #[test]
    fn a_descheduled_rank_neither_posts_nor_polls() {
        let config = SimConfig {
            most_away_ns: 10_000,
            away_permille: 500,
            ..SimConfig::calm(3, 2)
        };
        let mut net = SimWire::new(config);
        while net.is_running(0) {
            assert!(net.advance() || net.is_running(0));
            net.now += 100;
            net.reschedule_ranks();
        }
        let head = Head {
            kind: 1,
            len: 0,
            flags: 0,
            word: 0,
        };
        let body = Box::default();
        assert!(net.post(0, 1, SimPost::Frame { head, body }).is_err());
        while !net.is_running(0) {
            assert!(net.advance(), "a rank that is away comes back");
        }
    }
}
