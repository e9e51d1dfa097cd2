// SPDX-License-Identifier: MIT OR Apache-2.0
//! Several processes on a fake network of streams; they are polled in turn.

use super::super::{FakeSockets, FakeStreams, StreamKey, StreamsConfig, Tcp};
use crate::provider::verbs::NetLimits;
use crate::{Completion, Completions, Head, Peer, WorkOutcome};

pub(super) const HEAD: Head = Head {
    kind: 7,
    len: 0,
    flags: 3,
    word: 9,
};
pub(super) const SECOND: u64 = 1_000_000_000;

/// All processes, and what has happened to them.
pub(super) struct World {
    pub(super) net: FakeStreams,
    pub(super) all: Vec<Tcp<FakeSockets>>,
    /// Number of frames that arrived, by receiver and sender.
    pub(super) received: Vec<Vec<u32>>,
    /// Number of works (one-sided operations) that succeeded, by process.
    pub(super) worked: Vec<u32>,
    /// Number of works that have ended, with any outcome.
    pub(super) ended: u32,
    /// Processes that take no turns: they compute.
    pub(super) busy: Vec<u32>,
    pub(super) complaints: Vec<(u32, String)>,
}

impl World {
    pub(super) fn new(config: StreamsConfig, pairs: u32) -> Self {
        let net = FakeStreams::new(config);
        let limits = NetLimits {
            pairs,
            ..NetLimits::default()
        };
        let open = |me| Tcp::open_on(&net, Peer(me), config.ranks, (limits, StreamKey::new(5)));
        let all = (0..config.ranks).map(open).collect();
        Self::of(config, net, all)
    }

    /// A world of these processes.
    pub(super) fn of(config: StreamsConfig, net: FakeStreams, all: Vec<Tcp<FakeSockets>>) -> Self {
        Self {
            all,
            received: vec![vec![0; config.ranks as usize]; config.ranks as usize],
            worked: vec![0; config.ranks as usize],
            ended: 0,
            busy: Vec::new(),
            complaints: Vec::new(),
            net,
        }
    }

    /// Polls each process once, and lets time pass.
    pub(super) fn turn(&mut self) {
        for me in 0..u32::try_from(self.all.len()).unwrap() {
            if !self.busy.contains(&me) {
                self.turn_of(me);
            }
        }
        self.net.advance();
    }

    fn turn_of(&mut self, me: u32) {
        let mut completions = Completions::new();
        while let Some(peer) = self.all[me as usize].next_unresolved() {
            let record = self.all[peer as usize].record();
            self.all[me as usize].set_peer_address(Peer(peer), Some(&record));
        }
        let tcp = &mut self.all[me as usize];
        tcp.poll(&mut completions);
        while let Some(message) = tcp.next_warning() {
            self.complaints.push((me, message));
        }
        for index in 0..completions.len() {
            let (me, done) = (me as usize, WorkOutcome::Done);
            match completions.take(index) {
                Some(Completion::Arrived(it)) => self.received[me][it.peer.0 as usize] += 1,
                Some(Completion::Worked { outcome, .. }) => {
                    self.worked[me] += u32::from(outcome == done);
                    self.ended += 1;
                }
                _ => {}
            }
        }
    }

    /// Sets the least size of reads over several connections.
    pub(super) fn share_from(&mut self, bytes: u64) {
        for tcp in &mut self.all {
            tcp.links.limits.shared_bytes = bytes;
        }
    }

    pub(super) fn send(&mut self, from: u32, to: u32) {
        let tcp = &mut self.all[from as usize];
        tcp.post_send(Peer(to), HEAD, b"x").unwrap();
    }

    /// Runs turns until `holds` returns true.
    pub(super) fn until(&mut self, what: &str, holds: impl Fn(&Self) -> bool) {
        for _ in 0..200_000 {
            if holds(self) {
                return;
            }
            self.turn();
        }
        panic!("{what}: it does not come; {:?}", self.complaints);
    }
}
