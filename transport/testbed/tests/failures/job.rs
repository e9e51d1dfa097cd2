// SPDX-License-Identifier: MIT OR Apache-2.0
//! A job on a fake network that a test drives step by step.

use std::collections::VecDeque;

use transport::{
    Completion, Completions, Fabric, FakeConfig, FakeNet, Head, Lease, NetLimits, Peer, RemoteKey,
    WorkId, WorkOutcome,
};

use testbed::memory::Guarded;
use testbed::{head, pattern};

pub const MILLISECOND: u64 = 1_000_000;
pub const SECOND: u64 = 1_000 * MILLISECOND;

/// Values of `enum ibv_wc_status`.
pub const LOC_LEN: u32 = 1;
pub const LOC_PROT: u32 = 4;
pub const REM_INV_REQ: u32 = 9;
pub const REM_ACCESS: u32 = 10;
pub const REM_OP: u32 = 11;
pub const RETRY_EXC: u32 = 12;
pub const RNR_RETRY_EXC: u32 = 13;

/// Limits with which queue pairs are created immediately: no datagrams are sent before.
pub const AT_ONCE: NetLimits = NetLimits {
    datagrams_first: 0,
    ..NetLimits::DEFAULT
};

pub struct Job {
    pub net: FakeNet,
    pub all: Vec<Process>,
    /// The first port of each process; the last entry is the number of all ports.
    first: Vec<u32>,
    works: u64,
}

pub struct Process {
    pub me: u32,
    pub fabric: Fabric,
    /// Received frames by sender: number and body of each.
    pub received: Vec<Vec<(u64, Vec<u8>)>>,
    /// Numbers of received immediates (plus [`WRITTEN`]) and frames in the order of arrival, by sender.
    pub order: Vec<Vec<u64>>,
    pub ended: Vec<(WorkId, WorkOutcome, Lease)>,
    pub lost: Vec<u32>,
    pub messages: Vec<String>,
    /// Number of frames sent, by receiver.
    pub sent: Vec<u64>,
    /// Whether the process computes and does not poll.
    pub is_busy: bool,
    waits: VecDeque<u32>,
    completions: Completions,
}

impl Job {
    pub fn calm(ranks: u32, limits: NetLimits) -> Self {
        Self::on(FakeConfig::calm(1), ranks, limits)
    }

    pub fn on(config: FakeConfig, ranks: u32, limits: NetLimits) -> Self {
        Self::on_rails(config, &vec![1; ranks as usize], limits)
    }

    /// A job whose processes have these numbers of ports.
    pub fn on_rails(config: FakeConfig, rails: &[u32], limits: NetLimits) -> Self {
        let net = FakeNet::new(config);
        let ranks = rails.len() as u32;
        let mut first = vec![0];
        let open = |me: u32| Process {
            me,
            fabric: {
                let rails = rails[me as usize];
                let fabric = Fabric::faked_on_rails(&net, Peer(me), ranks, rails, limits);
                first.push(net.ports());
                fabric
            },
            received: vec![Vec::new(); ranks as usize],
            order: vec![Vec::new(); ranks as usize],
            ended: Vec::new(),
            lost: Vec::new(),
            messages: Vec::new(),
            sent: vec![0; ranks as usize],
            is_busy: false,
            waits: VecDeque::new(),
            completions: Completions::new(),
        };
        let all = (0..ranks).map(open).collect();
        let works = 0;
        Self {
            net,
            all,
            first,
            works,
        }
    }

    /// The ports of a process.
    pub fn ports(&self, rank: u32) -> std::ops::Range<u32> {
        self.first[rank as usize]..self.first[rank as usize + 1]
    }

    /// The port of a rail of a process.
    pub fn port(&self, rank: u32, rail: u32) -> u32 {
        let ports = self.ports(rank);
        assert!(rail < ports.len() as u32);
        ports.start + rail
    }

    fn is_running(&self, rank: u32) -> bool {
        self.net.is_running(self.first[rank as usize])
    }

    /// Every process that runs and is not busy polls once; then the next event of the network happens, or, if there is
    /// none, a millisecond passes.
    pub fn turn(&mut self) {
        self.poll();
        if !self.net.advance() {
            self.net.advance_until(self.net.now_ns() + MILLISECOND);
        }
    }

    fn poll(&mut self) {
        let records: Vec<_> = self
            .all
            .iter()
            .map(|process| process.fabric.network_record().unwrap())
            .collect();
        for process in &mut self.all {
            let first = self.first[process.me as usize];
            if self.net.is_running(first) && !process.is_busy {
                process.poll(&records);
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
    pub fn try_send(&mut self, from: u32, to: u32, bytes: usize) -> bool {
        let process = &mut self.all[from as usize];
        let word = process.sent[to as usize];
        let body = pattern(from, word, bytes);
        let head = Head { word, ..head(4) };
        let taken = process.fabric.post_send(Peer(to), head, &body).is_ok();
        process.sent[to as usize] += u64::from(taken);
        taken
    }

    pub fn send(&mut self, from: u32, to: u32, bytes: usize) {
        while !self.try_send(from, to, bytes) {
            self.turn();
        }
    }

    /// Every process sends `count` frames to every other process.
    pub fn chat(&mut self, count: u64) {
        let ranks = self.all.len() as u32;
        for number in 0..count {
            for from in 0..ranks {
                for to in (0..ranks).filter(|to| *to != from) {
                    self.send(from, to, size_of_frame(number));
                }
            }
            self.turn();
        }
    }

    /// Waits until all sent frames have arrived, and checks that each arrived once and in order. It does not wait for
    /// frames to and from lost peers, and to processes that compute or do not run.
    pub fn settle(&mut self) {
        self.until("all frames have come", |job| {
            job.all.iter().all(|to| {
                job.all.iter().all(|from| {
                    let sent = from.sent[to.me as usize];
                    let is_over = from.lost.contains(&to.me) || to.lost.contains(&from.me);
                    is_over
                        || to.is_busy
                        || !job.is_running(to.me)
                        || to.received[from.me as usize].len() as u64 >= sent
                })
            })
        });
        self.assert_streams();
    }

    /// Asserts that the received frames arrived once and in order.
    pub fn assert_streams(&self) {
        for process in &self.all {
            for (from, received) in (0..).zip(&process.received) {
                for (expected, (number, body)) in (0..).zip(received) {
                    assert_eq!(*number, expected, "rank {} from {from}", process.me);
                    assert!(
                        *body == pattern(from, expected, body.len()),
                        "rank {} got another frame {expected} than {from} sent",
                        process.me
                    );
                }
            }
        }
    }

    /// Asserts that the whole job works: frames of all sizes arrive in all directions.
    pub fn assert_whole(&mut self) {
        self.chat(10);
        self.settle();
        self.assert_no_peer_lost();
    }

    pub fn assert_no_peer_lost(&self) {
        for process in &self.all {
            assert_eq!(process.lost, [0u32; 0], "{:?}", process.messages);
        }
    }

    /// Asserts that no device got an invalid request.
    pub fn assert_careful(&self) {
        for process in &self.all {
            for port in self.ports(process.me) {
                let stats = self.net.stats(port);
                let never = (stats.wrong, stats.overruns, stats.buffers_lost);
                assert_eq!(never, (0, 0, 0), "rank {}: {stats:?}", process.me);
            }
        }
    }

    /// The latest reliable queue pair of a process, which it uses for sends.
    pub fn pair_of(&mut self, rank: u32) -> u32 {
        self.until("a queue pair", |job| !job.net.pairs(rank).is_empty());
        *self.net.pairs(rank).last().unwrap()
    }

    pub fn joined(&self, rank: u32) -> u64 {
        self.all[rank as usize].fabric.net_stats().joined
    }

    /// Exports memory of `owner` for `user`.
    pub fn export(&mut self, owner: u32, user: u32, memory: &mut Guarded) -> RemoteKey {
        memory.export(&mut self.all[owner as usize].fabric, user)
    }

    pub fn name_work(&mut self) -> WorkId {
        self.works += 1;
        WorkId(self.works)
    }

    /// Posts a read of all memory of a key.
    pub fn post_read(
        &mut self,
        reader: u32,
        owner: u32,
        key: RemoteKey,
        to: &mut Guarded,
    ) -> WorkId {
        let work = self.name_work();
        let lease = to.lease(0, key.bytes as usize);
        let fabric = &mut self.all[reader as usize].fabric;
        fabric.post_read(Peer(owner), lease, key, 0, work);
        work
    }

    pub fn read(
        &mut self,
        reader: u32,
        owner: u32,
        key: RemoteKey,
        to: &mut Guarded,
    ) -> WorkOutcome {
        let work = self.post_read(reader, owner, key, to);
        self.end_of(reader, work)
    }

    pub fn end_of(&mut self, rank: u32, work: WorkId) -> WorkOutcome {
        let place = |job: &Self| {
            let ended = &job.all[rank as usize].ended;
            ended.iter().position(|(ended, ..)| *ended == work)
        };
        self.until("the work ends", |job| place(job).is_some());
        let place = place(self).unwrap();
        self.all[rank as usize].ended.remove(place).1
    }

    /// All warnings of a process to its user, one per line.
    pub fn messages_of(&self, rank: u32) -> String {
        self.all[rank as usize].messages.join("\n")
    }

    pub fn why_lost(&self, rank: u32, peer: u32) -> String {
        let why = self.all[rank as usize].fabric.why_lost(Peer(peer));
        why.unwrap_or_default().to_owned()
    }
}

impl Process {
    fn poll(&mut self, records: &[Vec<u8>]) {
        while let Some(peer) = self.fabric.next_unresolved() {
            self.fabric
                .set_peer_address(peer, &records[peer.0 as usize]);
        }
        while let Some(message) = self.fabric.next_warning() {
            self.messages.push(message);
        }
        self.fabric.poll(&mut self.completions);
        for at in 0..self.completions.len() {
            match self.completions.take(at).unwrap() {
                Completion::Arrived(arrived) => {
                    let mut body = vec![0; arrived.bytes() as usize];
                    assert_eq!(self.fabric.copy_body(&arrived, &mut body), body.len());
                    self.fabric.release(&arrived);
                    let from = arrived.peer.0 as usize;
                    self.order[from].push(arrived.head.word);
                    self.received[from].push((arrived.head.word, body));
                }
                Completion::Written { peer, immediate } => {
                    self.order[peer.0 as usize].push(WRITTEN + u64::from(immediate));
                }
                Completion::Lost { peer } => {
                    assert!(!self.lost.contains(&peer.0), "lost twice");
                    self.lost.push(peer.0);
                }
                Completion::Worked {
                    work,
                    outcome,
                    lease,
                } => self.ended.push((work, outcome, lease)),
            }
        }
    }
}

/// The length of a frame: some fit a slot, some fit a datagram, and some are longer.
pub fn size_of_frame(number: u64) -> usize {
    [0, 8, 48, 49, 700, 3000, 8000][number as usize % 7]
}

/// Added to the number of an immediate in [`Process::order`].
pub const WRITTEN: u64 = 1 << 40;
