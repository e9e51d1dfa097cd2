// SPDX-License-Identifier: MIT OR Apache-2.0
//! Two jobs on a fake network, which meet later; a test drives the network step by step. The test identifies a process
//! by its place among the processes of both jobs; the processes themselves do not use these places.

use transport::{
    Completion, Completions, Fabric, FakeConfig, FakeNet, ForeignPeer, Head, Lease, NetLimits,
    Peer, StreamKey, WorkId, WorkOutcome,
};

use testbed::memory::Guarded;
use testbed::{head, pattern};

pub const MILLISECOND: u64 = 1_000_000;
pub const SECOND: u64 = 1_000 * MILLISECOND;

/// The datagram keys of the two jobs.
pub const KEYS: [u32; 2] = [0x0000_0a0a, 0x7b0b_0b0b];

/// The structure of the two jobs.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    pub sizes: [u32; 2],
    pub rails: u32,
    /// Whether the second job numbers the processes of the first in reverse.
    pub is_reversed: bool,
    /// In a pair of one process of each job: whether the process of the first job has `is_first`.
    pub is_first: bool,
    pub limits: NetLimits,
}

/// One rank in each job. Each rank uses the same peer number for the other rank, and queue pairs are created
/// immediately.
pub const TWO: Shape = Shape {
    sizes: [1, 1],
    rails: 1,
    is_reversed: false,
    is_first: true,
    limits: NetLimits {
        datagrams_first: 0,
        ..NetLimits::DEFAULT
    },
};

pub struct Both {
    pub net: FakeNet,
    pub shape: Shape,
    pub all: Vec<Process>,
    /// Whether addresses that a process requests are provided.
    pub provides_addresses: bool,
    works: u64,
}

pub struct Process {
    pub fabric: Fabric,
    job: usize,
    /// The peer numbers that the process uses for all processes, by their places.
    numbers: Vec<u32>,
    /// Received frames, by the places of their senders: number and body of each.
    pub received: Vec<Vec<(u64, Vec<u8>)>>,
    /// Received immediates, by the places of their senders.
    pub written: Vec<Vec<u32>>,
    ended: Vec<(WorkId, WorkOutcome, Lease)>,
    pub lost: Vec<usize>,
    pub messages: Vec<String>,
    pub wanted: Vec<usize>,
    /// Number of frames sent, by the places of their receivers.
    sent: Vec<u64>,
    completions: Completions,
}

impl Both {
    /// Two jobs that have not met.
    pub fn apart(config: FakeConfig, shape: Shape) -> Self {
        let net = FakeNet::new(config);
        let sizes = shape.sizes.map(|size| size as usize);
        let count = sizes[0] + sizes[1];
        let open = |place: usize| {
            let job = usize::from(place >= sizes[0]);
            let rank = Peer((place - job * sizes[0]) as u32);
            let (size, rails) = (shape.sizes[job], shape.rails);
            let fabric = Fabric::faked_with_key(&net, rank, size, rails, shape.limits, KEYS[job]);
            Process {
                fabric,
                job,
                numbers: (0..count).map(|other| number(shape, job, other)).collect(),
                received: vec![Vec::new(); count],
                written: vec![Vec::new(); count],
                ended: Vec::new(),
                lost: Vec::new(),
                messages: Vec::new(),
                wanted: Vec::new(),
                sent: vec![0; count],
                completions: Completions::new(),
            }
        };
        let all = (0..count).map(open).collect();
        Self {
            net,
            shape,
            all,
            provides_addresses: true,
            works: 0,
        }
    }

    /// Two jobs that have met.
    pub fn joined(config: FakeConfig, shape: Shape) -> Self {
        let mut both = Self::apart(config, shape);
        for place in 0..both.all.len() {
            both.add_others(place, true);
        }
        both
    }

    /// The description of process `other` that process `me` needs to add it.
    pub fn far(&self, me: usize, other: usize) -> ForeignPeer {
        let (mine, theirs) = (&self.all[me], &self.all[other]);
        ForeignPeer {
            source_number: theirs.numbers[me],
            key: KEYS[theirs.job],
            stream_key: StreamKey::new(KEYS[theirs.job].into()),
            is_first: (mine.job == 0) == self.shape.is_first,
        }
    }

    /// Adds all processes of the other job to process `me`. `with_address`: whether their addresses are provided
    /// immediately.
    pub fn add_others(&mut self, me: usize, with_address: bool) {
        let is_of_other_job = |both: &Self, other: &usize| both.all[*other].job != both.all[me].job;
        let mut others: Vec<usize> = (0..self.all.len()).collect();
        others.retain(|other| is_of_other_job(self, other));
        others.sort_by_key(|other| self.all[me].numbers[*other]);
        for other in others {
            let (far, record) = (self.far(me, other), self.record(other));
            let record = with_address.then_some(&record[..]);
            let peer = self.all[me].fabric.add_far(far, record).unwrap();
            assert_eq!(peer, self.peer(me, other), "numbers follow");
        }
    }

    pub fn record(&self, place: usize) -> Vec<u8> {
        self.all[place].fabric.network_record().unwrap()
    }

    /// The number that process `me` uses for process `other`.
    pub fn peer(&self, me: usize, other: usize) -> Peer {
        Peer(self.all[me].numbers[other])
    }

    /// The port of a rail of a process.
    pub fn port(&self, place: usize, rail: u32) -> u32 {
        place as u32 * self.shape.rails + rail
    }

    /// Every running process polls once; then the next event of the network happens, or, if there is none, a
    /// millisecond passes.
    pub fn turn(&mut self) {
        self.poll();
        if !self.net.advance() {
            self.net.advance_until(self.net.now_ns() + MILLISECOND);
        }
    }

    fn poll(&mut self) {
        let records: Vec<_> = (0..self.all.len()).map(|at| self.record(at)).collect();
        for place in 0..self.all.len() {
            if self.net.is_running(self.port(place, 0)) {
                self.all[place].poll(self.provides_addresses.then_some(&records));
            }
        }
    }

    /// Takes turns until `is_so` returns `true`.
    pub fn until(&mut self, what: &str, mut is_so: impl FnMut(&mut Self) -> bool) {
        let limit = self.net.now_ns() + 1_000 * SECOND;
        while !is_so(self) {
            assert!(self.net.now_ns() < limit, "never: {what}");
            self.turn();
        }
    }

    /// Lets this number of nanoseconds pass.
    pub fn pass(&mut self, time_ns: u64) {
        let limit = self.net.now_ns() + time_ns;
        let step = MILLISECOND.max(time_ns / 20_000);
        while self.net.now_ns() < limit {
            self.poll();
            self.net.advance_until(limit.min(self.net.now_ns() + step));
        }
    }

    /// Posts the next frame to `to`, with `bytes` bytes. `false`: it was refused.
    pub fn try_send(&mut self, from: usize, to: usize, bytes: usize) -> bool {
        let peer = self.peer(from, to);
        let process = &mut self.all[from];
        let word = process.sent[to];
        let head = Head { word, ..head(4) };
        let body = pattern(from as u32, word, bytes);
        let taken = process.fabric.post_send(peer, head, &body).is_ok();
        process.sent[to] += u64::from(taken);
        taken
    }

    pub fn send(&mut self, from: usize, to: usize, bytes: usize) {
        self.until("there is room for a frame", |both| {
            both.try_send(from, to, bytes)
        });
    }

    /// Every process of both jobs sends `count` frames of all sizes to every other process.
    pub fn chat(&mut self, count: usize) {
        for number in 0..count {
            for from in 0..self.all.len() {
                for to in (0..self.all.len()).filter(|to| *to != from) {
                    if !self.all[from].lost.contains(&to) {
                        self.send(from, to, SIZES[number % SIZES.len()]);
                    }
                }
            }
            self.turn();
        }
    }

    /// Waits until all sent frames have arrived, except those to and from lost peers, and checks that each arrived once
    /// and in order.
    pub fn settle(&mut self) {
        self.until("all frames have come", |both| {
            let all = 0..both.all.len();
            let pairs = all
                .clone()
                .flat_map(|from| all.clone().map(move |to| (from, to)));
            let is_here = |(from, to): (usize, usize)| {
                let is_lost = |one: usize, other| both.all[one].lost.contains(&other);
                let sent = both.all[from].sent[to];
                is_lost(from, to) || is_lost(to, from) || both.received(to, from) >= sent
            };
            pairs.into_iter().all(is_here)
        });
        for process in &self.all {
            for (from, received) in (0..).zip(&process.received) {
                for (expected, (number, body)) in (0..).zip(received) {
                    assert_eq!(*number, expected, "from the process at {from}");
                    assert!(*body == pattern(from, expected, body.len()));
                }
            }
        }
    }

    /// Number of frames that `to` has received from `from`.
    pub fn received(&self, to: usize, from: usize) -> u64 {
        self.all[to].received[from].len() as u64
    }

    /// Asserts that both jobs work, each by itself and with the other.
    pub fn assert_whole(&mut self) {
        self.chat(2 * SIZES.len());
        self.settle();
        self.assert_no_peer_lost();
    }

    pub fn assert_no_peer_lost(&self) {
        for process in &self.all {
            assert_eq!(process.lost, [0usize; 0], "{:?}", process.messages);
        }
    }

    /// Asserts that no device got an invalid request.
    pub fn assert_careful(&self) {
        for port in 0..self.net.ports() {
            let stats = self.net.stats(port);
            let never = (stats.wrong, stats.overruns, stats.buffers_lost);
            assert_eq!(never, (0, 0, 0), "port {port}: {stats:?}");
        }
    }

    pub fn refused(&self, place: usize) -> u64 {
        self.all[place].fabric.stats().refused
    }

    /// Reads `bytes` bytes of memory of `owner`, and checks them.
    pub fn read(&mut self, reader: usize, owner: usize, bytes: usize) {
        self.works += 1;
        let (work, body) = (WorkId(self.works), pattern(owner as u32, self.works, bytes));
        let mut source = Guarded::of(&body);
        let mut target = Guarded::new(bytes);
        let (there, back) = (self.peer(reader, owner), self.peer(owner, reader));
        let key = source.export(&mut self.all[owner].fabric, back.0);
        // A message that announces the memory wakes the reader.
        self.send(owner, reader, 8);
        self.settle();
        let lease = target.lease(0, bytes);
        let fabric = &mut self.all[reader].fabric;
        fabric.post_read(there, lease, key, 0, work);
        assert_eq!(self.end_of(reader, work), WorkOutcome::Done);
        self.all[owner].fabric.withdraw(back, key);
        assert!(target.bytes() == body);
        target.assert_guards();
    }

    /// Writes `bytes` bytes to memory of `owner`, with an immediate, and checks both.
    pub fn write(&mut self, writer: usize, owner: usize, bytes: usize) {
        self.works += 1;
        let (work, body) = (
            WorkId(self.works),
            pattern(writer as u32, self.works, bytes),
        );
        let mut source = Guarded::of(&body);
        let mut target = Guarded::new(bytes);
        let (there, back) = (self.peer(writer, owner), self.peer(owner, writer));
        let key = target.export(&mut self.all[owner].fabric, back.0);
        self.send(owner, writer, 8);
        self.settle();
        let mut lease = Some(source.lease(0, bytes));
        let immediate = self.works as u32;
        self.until("there is room for a write", |both| {
            let fabric = &mut both.all[writer].fabric;
            let taken = lease.take().unwrap();
            lease = fabric
                .post_write(there, taken, key, 0, work, Some(immediate))
                .err();
            lease.is_none()
        });
        assert_eq!(self.end_of(writer, work), WorkOutcome::Done);
        self.until("the owner is notified", |both| {
            both.all[owner].written[writer].last() == Some(&immediate)
        });
        self.all[owner].fabric.withdraw(back, key);
        assert!(target.bytes() == body);
        target.assert_guards();
    }

    fn end_of(&mut self, place: usize, work: WorkId) -> WorkOutcome {
        let mut outcome = None;
        self.until("the work ends", |both| {
            let mut ended = both.all[place].ended.iter();
            let found = ended.find(|(ended, ..)| *ended == work);
            outcome = found.map(|(_, outcome, _)| *outcome);
            outcome.is_some()
        });
        self.all[place].ended.clear();
        outcome.unwrap()
    }
}

impl Process {
    /// Polls once. Addresses that the process requests are provided from `records`, if there are any.
    fn poll(&mut self, records: Option<&Vec<Vec<u8>>>) {
        while let Some(peer) = self.fabric.next_unresolved() {
            let mut numbers = self.numbers.iter();
            let place = numbers.position(|number| *number == peer.0).unwrap();
            self.wanted.push(place);
            if let Some(records) = records {
                self.fabric.set_peer_address(peer, &records[place]);
            }
        }
        while let Some(message) = self.fabric.next_warning() {
            self.messages.push(message);
        }
        self.fabric.poll(&mut self.completions);
        let numbers = self.numbers.clone();
        let place = |peer: Peer| numbers.iter().position(|number| *number == peer.0);
        for at in 0..self.completions.len() {
            match self.completions.take(at).unwrap() {
                Completion::Arrived(arrived) => {
                    let mut body = vec![0; arrived.bytes() as usize];
                    assert_eq!(self.fabric.copy_body(&arrived, &mut body), body.len());
                    self.fabric.release(&arrived);
                    let from = place(arrived.peer).unwrap();
                    self.received[from].push((arrived.head.word, body));
                }
                Completion::Written { peer, immediate } => {
                    self.written[place(peer).unwrap()].push(immediate);
                }
                Completion::Lost { peer } => self.lost.push(place(peer).unwrap()),
                Completion::Worked {
                    work,
                    outcome,
                    lease,
                } => self.ended.push((work, outcome, lease)),
            }
        }
    }
}

/// The peer number that processes of `job` use for the process at `place`. For a process of their own job it is its
/// rank; the numbers of processes of the other job follow.
fn number(shape: Shape, job: usize, place: usize) -> u32 {
    let [first, second] = shape.sizes;
    let place = place as u32;
    match (job, place < first) {
        (0, _) => place,
        (_, true) if shape.is_reversed => second + first - 1 - place,
        (_, true) => second + place,
        (_, false) => place - first,
    }
}

/// Lengths of frames in bytes: some fit a slot, some fit a datagram, and some are longer.
pub const SIZES: [usize; 7] = [0, 8, 48, 49, 700, 3000, 8000];
