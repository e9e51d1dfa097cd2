// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reliable queue pairs (RC) of this process: created, connected, broken and destroyed here. `pairs.rs` decides when a
//! peer gets one, and exchanges the notes (messages that set it up) with the peer.

use std::collections::HashMap;
use std::mem;

use session::{AckStall, CarrierNumbers, CarrierState, RecentFailures, Slot};

use super::address::PortAddress;
use super::lost_completions::CompletionWatch;
use super::peer_table::PeerTable;
use super::pools::{SendPool, is_datagram};
use super::port::{
    CallError, PortCompletion, QueuePairHandle, RemotePair, VerbsPort, WorkBody, WorkOpcode,
    WorkRequest, WorkStatus,
};
use super::posted::{PostedRequest, PostedRequests};
use super::rail::{PeerPath, Rail, rail_of};
use super::rails::Rails;
use super::wire::{NOTE_BYTES, NUMBER_MASK, PairEnd};
use super::{NetLimits, name};
use crate::provider::counters::NetCounts;

/// A reliable queue pair, with the work requests posted to it.
#[derive(Debug)]
pub(super) struct ReliablePair {
    pub(super) path: PeerPath,
    /// Serial number of this queue pair among all queue pairs that this process ever made.
    pub(super) made: u32,
    pub(super) end: QueuePairHandle,
    /// First packet sequence number that it sends.
    pub(super) first: u32,
    pub(super) requests: PostedRequests,
    /// Number of the poll in which the queue pair was last used.
    pub(super) used_at: u64,
    /// Detects that the peer stops acknowledging packets sent over it ([`AckStall`]).
    ack_stall: AckStall,
    /// The acknowledgement timeout it was connected with (`ibv_qp_attr.timeout`): 4.096 µs × 2^timeout.
    timeout_exp: u8,
    watch: CompletionWatch,
    life: PairHealth,
}

/// Recent failures of the queue pairs of a link.
#[derive(Clone, Copy, Debug, Default)]
struct LinkFailures {
    /// How often a queue pair broke because the retries were exhausted: the next queue pair gets a longer timeout.
    unanswered: RecentFailures,
    /// How often a queue pair broke because the peer had no receive buffer.
    not_ready: RecentFailures,
}

/// Health of a queue pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PairHealth {
    Whole,
    /// The queue pair broke, and its work requests are being flushed. `marked`: a signaled request was posted behind
    /// them, whose completion ends the unsignaled ones.
    Broken {
        marked: bool,
    },
    /// All work requests have come back; counts the later polls that have drained the completion queues of receives.
    Silent {
        polls: u8,
    },
}

impl ReliablePair {
    /// Memory of one queue pair, in bytes, including an estimate of the send queue that the device's library allocates.
    pub(super) fn most_bytes(limits: &NetLimits) -> usize {
        let entry = size_of::<PostedRequest>() + QUEUE_ENTRY_BYTES;
        size_of::<Self>() + limits.send_depth as usize * entry
    }

    pub(super) fn is_whole(&self) -> bool {
        self.life == PairHealth::Whole
    }

    /// The oldest posted request that is signaled.
    pub(super) fn awaited(&self) -> Option<(PeerPath, PostedRequest)> {
        Some((self.path, self.requests.awaited()?))
    }

    /// The end that is sent to the peer, to connect to.
    pub(super) fn as_end(&self, packet_bytes: u32) -> PairEnd {
        PairEnd {
            number: self.end.number,
            first: self.first,
            packet_bytes,
        }
    }

    /// Posts a request whose completion matters only for the requests before it. `index`: index of this queue pair.
    /// `read`: the slot that the device reads meanwhile. `false`: the send queue is full.
    pub(super) fn post_mark<P: VerbsPort>(
        &mut self,
        index: u32,
        rail: &mut Rail<P>,
        (operation, body): (WorkOpcode, WorkBody<'_>),
        read: Option<Slot>,
    ) -> bool {
        let request = WorkRequest {
            work: name(index, self.requests.next()),
            operation,
            body,
            signaled: true,
        };
        if rail.port.post(self.end, &[request]) != 1 {
            return false;
        }
        self.requests.push(PostedRequest::Mark { read }, true);
        rail.posted += 1;
        true
    }

    /// Whether a broken queue pair may be destroyed (P1). Advances its state by one poll.
    fn may_be_destroyed<P: VerbsPort>(&mut self, index: u32, rail: &mut Rail<P>) -> bool {
        match self.life {
            PairHealth::Broken { marked: false } if self.requests.unsignaled() != 0 => {
                let nothing = (WorkOpcode::Send, WorkBody::Inline(&[]));
                if self.post_mark(index, rail, nothing, None) {
                    self.life = PairHealth::Broken { marked: true };
                }
            }
            PairHealth::Broken { .. } if self.requests.is_empty() => {
                self.life = PairHealth::Silent { polls: 0 };
            }
            PairHealth::Whole | PairHealth::Broken { .. } => {}
            PairHealth::Silent { polls } if polls < SILENT_POLLS => {
                self.life = PairHealth::Silent { polls: polls + 1 };
            }
            PairHealth::Silent { .. } => return true,
        }
        false
    }
}

/// The reliable queue pairs of a process, by index.
#[derive(Debug, Default)]
pub(super) struct ReliablePairs {
    all: Vec<Option<ReliablePair>>,
    numbers: CarrierNumbers,
    /// Links whose queue pairs keep failing, with the reasons.
    failures: HashMap<PeerPath, LinkFailures>,
}

impl ReliablePairs {
    #[inline(always)]
    pub(super) fn get(&self, index: u32) -> Option<&ReliablePair> {
        self.all.get(index as usize)?.as_ref()
    }

    #[inline(always)]
    pub(super) fn get_mut(&mut self, index: u32) -> Option<&mut ReliablePair> {
        self.all.get_mut(index as usize)?.as_mut()
    }

    /// The path of the queue pair at `index`.
    pub(super) fn path(&self, index: u32) -> Option<PeerPath> {
        self.get(index).map(|pair| pair.path)
    }

    /// Whether the packet in a receive buffer can be from this peer.
    #[inline(always)]
    pub(super) fn is_from<P: VerbsPort>(
        &self,
        source: u32,
        done: &PortCompletion,
        buffer: Slot,
        peers: &PeerTable,
        rails: &Rails<P>,
    ) -> bool {
        let Some(remote) = peers.find(source) else {
            return false;
        };
        if remote.is_lost() {
            return false;
        }
        let rail = rail_of(buffer);
        let Some(link) = remote.link(rail) else {
            return false;
        };
        if is_datagram(buffer) {
            return link.address.is_some_and(|at| at.number == done.source);
        }
        let pair = link.connection.end().and_then(|index| self.get(index));
        if pair.is_some_and(|pair| pair.end.number == done.number) {
            return true;
        }
        // A broken queue pair may still deliver packets that arrived before.
        let index = rails[usize::from(rail)].numbers.get(&done.number);
        let pair = index.and_then(|index| self.get(*index));
        pair.is_some_and(|pair| pair.path.peer == source)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &ReliablePair> {
        self.all.iter().flatten()
    }

    /// All indices, including free ones.
    pub(super) fn places(&self) -> impl Iterator<Item = u32> + use<> {
        (0..).take(self.all.len())
    }

    /// Creates a queue pair for a path; it is not connected yet.
    pub(super) fn make<P: VerbsPort>(
        &mut self,
        path: PeerPath,
        rail: &mut Rail<P>,
        limits: &NetLimits,
        (now_ns, poll): (u64, u64),
    ) -> Result<u32, CallError> {
        let end = rail.port.create()?;
        let free = self.all.iter().position(Option::is_none);
        let index = free.unwrap_or(self.all.len());
        if index == self.all.len() {
            self.all.push(None);
        }
        let random = now_ns.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40;
        self.all[index] = Some(ReliablePair {
            path,
            made: self.numbers.next(),
            end,
            first: u32::try_from(random).unwrap_or(0) & NUMBER_MASK,
            requests: PostedRequests::default(),
            used_at: poll,
            ack_stall: AckStall::default(),
            timeout_exp: limits.terms.timeout_exp(),
            watch: CompletionWatch::default(),
            life: PairHealth::Whole,
        });
        let index = u32::try_from(index).unwrap_or(u32::MAX);
        rail.numbers.insert(end.number, index);
        Ok(index)
    }

    /// Connects a queue pair to the peer's; destroys it on failure. `least`: smallest acknowledgement timeout, as an
    /// exponent.
    pub(super) fn connect<P: VerbsPort>(
        &mut self,
        index: u32,
        (address, theirs): (PortAddress, PairEnd),
        rails: &mut Rails<P>,
        (least, now_ns): (u8, u64),
    ) -> Result<(), CallError> {
        let path = self.path(index);
        let timeout_exp = least + path.map_or(0, |path| self.extra_timeout(path, now_ns));
        let Some(pair) = self.get_mut(index) else {
            return Ok(());
        };
        pair.timeout_exp = timeout_exp;
        let remote = RemotePair {
            address,
            number: theirs.number,
            rq_psn: theirs.first,
            sq_psn: pair.first,
            timeout_exp,
        };
        let joined = rails[pair.path.at()].port.connect(pair.end, &remote);
        if joined.is_err() {
            self.destroy(index, rails);
        }
        joined
    }

    /// Exponents to add to the acknowledgement timeout: one for each recent break by exhausted retries, up to a limit.
    fn extra_timeout(&self, path: PeerPath, now_ns: u64) -> u8 {
        let failures = self.failures.get(&path);
        let breaks = failures.map_or(0, |failures| failures.unanswered.count(now_ns));
        breaks.min(MOST_EXTRA_TIMEOUT)
    }

    /// Records a failed work request: counts it, and marks the link as suspected, except for flushes and missing
    /// receive buffers.
    pub(super) fn record_failure(
        &mut self,
        path: PeerPath,
        status: WorkStatus,
        now_ns: u64,
        peers: &mut PeerTable,
        counts: &NetCounts,
    ) {
        self.count_failure(path, status, now_ns);
        match status {
            WorkStatus::Flushed => {}
            // The peer's device has answered, so the peer is not suspected.
            WorkStatus::NotReady => counts.not_ready.add(1),
            _ => {
                if let Some(link) = peers.link(path) {
                    link.is_suspected = true;
                }
            }
        }
    }

    /// Counts the failure of a queue pair by its status; statuses other than exhausted retries and a missing receive
    /// buffer are not counted.
    fn count_failure(&mut self, path: PeerPath, status: WorkStatus, now_ns: u64) {
        let failures = &mut self.failures;
        match status {
            WorkStatus::NotReady => failures.entry(path).or_default().not_ready.record(now_ns),
            WorkStatus::RetryExceeded => {
                failures.entry(path).or_default().unanswered.record(now_ns)
            }
            _ => {}
        }
    }

    /// Number of recent breaks because the peer had no receive buffer.
    pub(super) fn not_ready(&self, path: PeerPath, now_ns: u64) -> u8 {
        let failures = self.failures.get(&path);
        failures.map_or(0, |it| it.not_ready.count(now_ns))
    }

    /// The path whose connected queue pair was least recently used.
    pub(super) fn least_recently_used(&self, peers: &PeerTable) -> Option<PeerPath> {
        let is_joined = |pair: &&ReliablePair| {
            let remote = peers.get(pair.path.peer);
            let link = remote.and_then(|remote| remote.link(pair.path.rail));
            link.is_some_and(|link| {
                matches!(link.connection.state(), CarrierState::Connected { .. })
            })
        };
        let pairs = self
            .iter()
            .filter(|pair| is_joined(pair) && pair.is_whole());
        pairs.min_by_key(|pair| pair.used_at).map(|pair| pair.path)
    }

    /// Whether a queue pair of this path is broken and not yet destroyed.
    pub(super) fn is_any_closing(&self, path: PeerPath) -> bool {
        self.iter()
            .any(|pair| pair.path == path && !pair.is_whole())
    }

    /// Posts a note over a queue pair. `false`: no slot is free, or the send queue is full.
    pub(super) fn post_note<P: VerbsPort>(
        &mut self,
        index: u32,
        note: &[u8; NOTE_BYTES],
        sends: &mut SendPool,
        rails: &mut Rails<P>,
    ) -> bool {
        let Some(slot) = sends.note(rails, note, NOTE_BYTES) else {
            return false;
        };
        let Some(pair) = self.get_mut(index) else {
            return false;
        };
        let at = pair.path.at();
        let rail = &mut rails[at];
        let inline_bytes = rail.port.facts().inline_bytes as usize;
        let body = sends.body(slot, at, NOTE_BYTES, inline_bytes);
        let read = matches!(body, WorkBody::Piece(_)).then_some(slot);
        let taken = pair.post_mark(index, rail, (WorkOpcode::Send, body), read);
        if let Some(slot) = read.filter(|_| taken) {
            sends.posted(slot);
        }
        sends.release(slot);
        taken
    }

    /// Posts a write of zero bytes. `false`: the send queue is full.
    pub(super) fn post_nothing<P: VerbsPort>(&mut self, index: u32, rails: &mut Rails<P>) -> bool {
        let Some(pair) = self.get_mut(index) else {
            return true;
        };
        pair.post_mark(index, &mut rails[pair.path.at()], NOTHING, None)
    }

    /// Breaks a queue pair, counts the break, and owes the peer an acknowledgement: the last acknowledgement may have
    /// been lost with the queue pair.
    pub(super) fn break_pair<P: VerbsPort>(
        &mut self,
        index: u32,
        rails: &mut Rails<P>,
        peers: &mut PeerTable,
        counts: &NetCounts,
    ) {
        if let Some(path) = self.break_quietly(index, rails, peers) {
            counts.broken.add(1);
            let remote = peers.of(path.peer);
            if let Some(link) = remote.link_mut(path.rail) {
                link.breaks = link.breaks.saturating_add(1);
            }
            remote.session.force_ack();
            peers.list_owing(path.peer);
        }
    }

    /// Breaks a queue pair without counting the break; returns its path. `None`: the queue pair was broken before.
    pub(super) fn break_quietly<P: VerbsPort>(
        &mut self,
        index: u32,
        rails: &mut Rails<P>,
        peers: &mut PeerTable,
    ) -> Option<PeerPath> {
        let pair = self.get_mut(index).filter(|pair| pair.is_whole())?;
        pair.life = PairHealth::Broken { marked: false };
        let path = pair.path;
        rails[path.at()].port.fail(pair.end);
        let remote = peers.of(path.peer);
        remote.waits_for_last = true;
        remote.session.carrier_broke(pair.made);
        if let Some(link) = remote.link_mut(path.rail)
            && link.connection.end() == Some(index)
        {
            link.connection.disconnected();
        }
        peers.list_leaving(path.peer);
        Some(path)
    }

    /// Advances the broken queue pairs of a peer and destroys those that are done (P1). `true`: some are left.
    pub(super) fn reap<P: VerbsPort>(&mut self, peer: u32, rails: &mut Rails<P>) -> bool {
        let mut left = false;
        for index in self.places() {
            let is_broken = |pair: &&mut ReliablePair| pair.path.peer == peer && !pair.is_whole();
            let Some(pair) = self.get_mut(index).filter(is_broken) else {
                continue;
            };
            let rail = &mut rails[pair.path.at()];
            if pair.may_be_destroyed(index, rail) {
                self.destroy(index, rails);
            } else {
                left = true;
            }
        }
        left
    }

    /// Destroys a queue pair immediately, even if work requests are outstanding: none of their completions comes any
    /// more.
    pub(super) fn destroy<P: VerbsPort>(&mut self, index: u32, rails: &mut Rails<P>) {
        let place = self.all.get_mut(index as usize);
        if let Some(pair) = place.and_then(Option::take) {
            let rail = &mut rails[pair.path.at()];
            rail.numbers.remove(&pair.end.number);
            rail.port.destroy(pair.end);
        }
    }

    /// Breaks and destroys a queue pair whose rail is lost; returns its outstanding work requests.
    pub(super) fn forget<P: VerbsPort>(
        &mut self,
        index: u32,
        rails: &mut Rails<P>,
        peers: &mut PeerTable,
    ) -> PostedRequests {
        let pair = self.get_mut(index);
        let requests = pair.map(|pair| mem::take(&mut pair.requests));
        self.break_quietly(index, rails, peers);
        // After this, the device accesses no memory for this queue pair.
        self.destroy(index, rails);
        requests.unwrap_or_default()
    }

    /// Breaks and destroys all queue pairs.
    pub(super) fn retire<P: VerbsPort>(&mut self, rails: &mut Rails<P>) {
        for pair in self.all.iter_mut().filter_map(Option::take) {
            let port = &mut rails[pair.path.at()].port;
            port.fail(pair.end);
            port.destroy(pair.end);
        }
    }

    /// Indices of queue pairs without a completion for longer than expected (`lost_completions.rs`). Records the
    /// present progress of all queue pairs.
    pub(super) fn late(&mut self, now_ns: u64) -> Vec<u32> {
        let places = self.places();
        places
            .filter(|index| self.is_late(*index, now_ns))
            .collect()
    }

    fn is_late(&mut self, index: u32, now_ns: u64) -> bool {
        let pair = self.get_mut(index).filter(|pair| pair.is_whole());
        pair.is_some_and(|pair| pair.watch.is_late(&pair.requests, pair.timeout_exp, now_ns))
    }

    /// How many times in a row the same packet was the oldest unacknowledged one ([`AckStall`]).
    pub(super) fn check_ack_stall(&mut self, index: u32, peers: &PeerTable) -> u8 {
        let Some(pair) = self.get_mut(index) else {
            return 0;
        };
        let remote = peers.get(pair.path.peer);
        let remote = remote.filter(|remote| remote.pair_for_sends() == Some(index));
        pair.ack_stall
            .observe(remote.and_then(|remote| remote.session.oldest_unacknowledged()))
    }

    /// Whether any peer with a queue pair has not acknowledged a packet of this process.
    pub(super) fn is_any_ack_pending(&self, peers: &PeerTable) -> bool {
        self.iter().any(|pair| {
            let remote = peers.get(pair.path.peer);
            remote.is_some_and(|remote| remote.session.oldest_unacknowledged().is_some())
        })
    }

    /// Memory of the existing queue pairs, in bytes.
    pub(super) fn bytes(&self, limits: &NetLimits) -> usize {
        self.iter().count() * ReliablePair::most_bytes(limits)
    }
}

/// A write of zero bytes: it changes nothing, and devices check no key for it. Its completion also ends all requests
/// before the write.
pub(super) const NOTHING: (WorkOpcode, WorkBody<'static>) = {
    let (address, key) = (0, 0);
    (WorkOpcode::Write { address, key }, WorkBody::Inline(&[]))
};
/// Maximum number of increments of the timeout exponent. By default a queue pair breaks after seven timeouts of 67 ms,
/// half a second in all. After this many doublings a timeout is 1.1 s: a network with such delays loses packets,
/// although the peer process is alive.
const MOST_EXTRA_TIMEOUT: u8 = 4;
/// When the last work request of a broken queue pair has come back, the queue pair stays for this many polls that drain
/// the completion queues of receives.
const SILENT_POLLS: u8 = 2;
/// Memory that a device's library is assumed to allocate for one send queue entry, in bytes.
const QUEUE_ENTRY_BYTES: usize = 128;

#[cfg(test)]
mod tests {
    use super::super::FakePort;
    use super::super::rails::one_rail;
    use super::*;

    const PATH: PeerPath = PeerPath { peer: 1, rail: 0 };
    const OTHER: PeerPath = PeerPath { peer: 2, rail: 0 };

    fn make(
        pairs: &mut ReliablePairs,
        path: PeerPath,
        rails: &mut Rails<FakePort>,
        poll: u64,
    ) -> u32 {
        let limits = NetLimits::DEFAULT;
        let made = pairs.make(path, &mut rails[path.at()], &limits, (5, poll));
        made.unwrap()
    }

    #[test]
    fn a_broken_pair_is_reaped_after_empty_polls_and_its_slot_reused() {
        let (mut pairs, mut rails, mut peers) = (
            ReliablePairs::default(),
            one_rail(),
            PeerTable::new(0, 3, 7),
        );
        let index = make(&mut pairs, PATH, &mut rails, 0);
        assert_eq!((rails.pairs(), pairs.path(index)), (1, Some(PATH)));
        let broke = pairs.break_quietly(index, &mut rails, &mut peers);
        assert_eq!(broke, Some(PATH));
        assert!(peers.of(1).waits_for_last && peers.is_any_leaving());
        let again = pairs.break_quietly(index, &mut rails, &mut peers);
        assert_eq!(again, None, "it is broken once");
        assert!(!pairs.reap(2, &mut rails), "another peer's");
        let mut attempts = 0;
        while pairs.reap(1, &mut rails) {
            attempts += 1;
        }
        assert_eq!(attempts, u32::from(SILENT_POLLS) + 1);
        assert_eq!((rails.pairs(), pairs.path(index)), (0, None));
        assert_eq!(make(&mut pairs, OTHER, &mut rails, 0), index);
        assert_eq!(pairs.get(index).map(|pair| pair.made), Some(2));
    }

    #[test]
    fn repeated_failures_lengthen_the_timeout_up_to_a_limit() {
        let mut pairs = ReliablePairs::default();
        for breaks in 0..=MOST_EXTRA_TIMEOUT + 2 {
            assert_eq!(pairs.extra_timeout(PATH, 9), breaks.min(MOST_EXTRA_TIMEOUT));
            pairs.count_failure(PATH, WorkStatus::RetryExceeded, 9);
            pairs.count_failure(OTHER, WorkStatus::NotReady, 9);
            pairs.count_failure(OTHER, WorkStatus::Flushed, 9);
            assert_eq!(pairs.not_ready(OTHER, 9), breaks + 1);
        }
        assert_eq!(
            (pairs.extra_timeout(OTHER, 9), pairs.not_ready(PATH, 9)),
            (0, 0)
        );
    }

    #[test]
    fn only_connected_unbroken_pairs_are_evicted() {
        let (mut pairs, mut rails, mut peers) = (
            ReliablePairs::default(),
            one_rail(),
            PeerTable::new(0, 3, 7),
        );
        let first = make(&mut pairs, PATH, &mut rails, 1);
        let second = make(&mut pairs, OTHER, &mut rails, 2);
        assert_eq!(pairs.least_recently_used(&peers), None, "none is joined");
        for (path, index) in [(PATH, first), (OTHER, second)] {
            peers.of(path.peer).main.connection.connected(index, true);
        }
        assert_eq!(pairs.least_recently_used(&peers), Some(PATH));
        let counts = NetCounts::default();
        pairs.break_pair(first, &mut rails, &mut peers, &counts);
        pairs.break_pair(first, &mut rails, &mut peers, &counts);
        assert_eq!((counts.broken.get(), peers.of(1).main.breaks), (1, 1));
        assert_eq!(pairs.least_recently_used(&peers), Some(OTHER));
    }
}
