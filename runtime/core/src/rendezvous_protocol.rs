// SPDX-License-Identifier: MIT OR Apache-2.0
//! Selects how the data of a large message are transferred on a node. Either the receiver reads them from the sender's
//! memory (one copy by the kernel), or the sender streams them through shared buffers (two overlapping copies, one on
//! each side). Which protocol is faster depends on the processor, on the distance of the two cores, on the kernel, and
//! on how often the sender calls MPI, because it streams only in MPI calls. So both protocols are timed, and the slower
//! one is tried again from time to time.
//!
//! The unit of measurement is a *period* in which transfers of one size class from one peer are always in progress:
//! from the start of the first to the end of the last. All transfers that begin in a period use the same protocol.

use rustc_hash::FxHashMap;
use std::time::{Duration, Instant};

use engine::Peer;

/// How the data of a rendezvous are transferred.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RendezvousProtocol {
    /// The receiver reads the data from the sender's memory.
    Pull,
    /// The sender streams the data through shared buffers.
    Stream,
}

/// The protocols that are selected for each peer and size class by measurement.
#[derive(Debug)]
pub(crate) struct RendezvousChoices {
    /// The protocol of all messages; `None`: the protocol is selected by measurement.
    fixed: Option<RendezvousProtocol>,
    /// Of this many periods, two use the protocol that was slower so far, to measure it again.
    trial_every: u32,
    choices: FxHashMap<(Peer, u32), ProtocolChoice>,
}

impl RendezvousChoices {
    /// `policy`: index of the value of RMPI_SINGLE_COPY. `trial_every`: RMPI_COPY_TRIALS.
    pub(crate) fn new(policy: u64, trial_every: u64) -> Self {
        Self {
            fixed: match policy {
                1 => Some(RendezvousProtocol::Stream),
                2 => Some(RendezvousProtocol::Pull),
                _ => None,
            },
            trial_every: u32::try_from(trial_every).unwrap_or(u32::MAX),
            choices: FxHashMap::default(),
        }
    }

    /// Changes the policy. A change drops the measurements and the record of transfers in progress.
    pub(crate) fn follow(&mut self, policy: u64) {
        let other = Self::new(policy, self.trial_every.into());
        if other.fixed != self.fixed {
            *self = other;
        }
    }

    /// Selects the protocol for a message of `bytes` bytes from `peer`, and records that its transfer begins now.
    pub(crate) fn begin(&mut self, peer: Peer, bytes: u64) -> RendezvousProtocol {
        self.fixed
            .unwrap_or_else(|| self.begin_at(peer, bytes, Instant::now()))
    }

    /// Records the end of a transfer for which [`begin`](Self::begin) was called, whether it has succeeded or not.
    pub(crate) fn end(&mut self, peer: Peer, bytes: u64) {
        if self.fixed.is_none() {
            self.end_at(peer, bytes, Instant::now());
        }
    }

    fn begin_at(&mut self, peer: Peer, bytes: u64, now: Instant) -> RendezvousProtocol {
        let choice = self.choices.entry((peer, class(bytes)));
        let choice = choice.or_insert_with(|| ProtocolChoice::new(now));
        choice.begin(now, self.trial_every)
    }

    fn end_at(&mut self, peer: Peer, bytes: u64, now: Instant) {
        if let Some(choice) = self.choices.get_mut(&(peer, class(bytes))) {
            choice.end(bytes, now);
        }
    }
}

/// The size class of a message. Messages of one class are measured together.
fn class(bytes: u64) -> u32 {
    match bytes {
        0..=0x8000 => 0,
        0x8001..=0x2_0000 => 1,
        0x2_0001..=0x10_0000 => 2,
        _ => 3,
    }
}

/// The measurements by which the protocol for one peer and size class is selected.
#[derive(Debug)]
struct ProtocolChoice {
    protocol: RendezvousProtocol,
    under_way: u32,
    /// Start of the present period. `arrived`: the bytes that have arrived in that period.
    began: Instant,
    arrived: u64,
    /// Number of periods so far.
    periods: u32,
    pull: Times,
    stream: Times,
}

impl ProtocolChoice {
    fn new(now: Instant) -> Self {
        Self {
            protocol: RendezvousProtocol::Pull,
            under_way: 0,
            began: now,
            arrived: 0,
            periods: 0,
            pull: Times::default(),
            stream: Times::default(),
        }
    }

    fn begin(&mut self, now: Instant, trial_every: u32) -> RendezvousProtocol {
        // A long period is ended here: otherwise the period of a peer that is never idle would not end.
        if self.under_way != 0 && now - self.began > LONG_PERIOD {
            self.conclude(now);
            self.open(now, trial_every);
        } else if self.under_way == 0 {
            self.open(now, trial_every);
        }
        self.under_way += 1;
        self.protocol
    }

    fn end(&mut self, bytes: u64, now: Instant) {
        self.arrived += bytes;
        self.under_way = self.under_way.saturating_sub(1);
        if self.under_way == 0 {
            self.conclude(now);
        }
    }

    fn open(&mut self, now: Instant, trial_every: u32) {
        let better = if self.stream.typical() < self.pull.typical() {
            RendezvousProtocol::Stream
        } else {
            RendezvousProtocol::Pull
        };
        let turn = self.periods % trial_every;
        self.protocol = match turn {
            _ if self.pull.count() < KNOWN => RendezvousProtocol::Pull,
            _ if self.stream.count() < KNOWN => RendezvousProtocol::Stream,
            0 | 1 => better.other(),
            _ => better,
        };
        self.periods = self.periods.wrapping_add(1);
        (self.began, self.arrived) = (now, 0);
    }

    fn conclude(&mut self, now: Instant) {
        let taken = u64::try_from((now - self.began).as_nanos()).unwrap_or(u64::MAX);
        let Some(ps_per_byte) = taken.saturating_mul(1000).checked_div(self.arrived) else {
            return;
        };
        match self.protocol {
            RendezvousProtocol::Pull => self.pull.note(ps_per_byte),
            RendezvousProtocol::Stream => self.stream.note(ps_per_byte),
        }
    }
}

impl RendezvousProtocol {
    fn other(self) -> Self {
        match self {
            Self::Pull => Self::Stream,
            Self::Stream => Self::Pull,
        }
    }
}

/// The last measured times of a protocol, at most four, in ps per byte.
#[derive(Debug, Default)]
struct Times {
    last: [u64; 4],
    noted: usize,
}

impl Times {
    fn note(&mut self, time: u64) {
        self.last[self.noted % self.last.len()] = time;
        self.noted += 1;
    }

    fn count(&self) -> usize {
        self.noted.min(self.last.len())
    }

    /// The second lowest time; if there is only one, that time. Of four times it ignores one low outlier and two high
    /// ones. `u64::MAX`: nothing was measured.
    fn typical(&self) -> u64 {
        let mut known = self.last;
        let known = &mut known[..self.count()];
        known.sort_unstable();
        known
            .get(1)
            .or_else(|| known.first())
            .copied()
            .unwrap_or(u64::MAX)
    }
}

/// A protocol is compared with the other one after this many measured periods.
const KNOWN: usize = 2;
/// A period longer than this ends when the next transfer begins.
const LONG_PERIOD: Duration = Duration::from_millis(20);

#[cfg(test)]
mod tests {
    use super::*;

    /// Transfers `count` messages of 64 KiB; a transfer takes `pull_us` or `stream_us` us. Returns the number of
    /// messages that were pulled.
    fn moved(choices: &mut RendezvousChoices, count: u32, pull_us: u64, stream_us: u64) -> u32 {
        let (mut now, mut pulled) = (Instant::now(), 0);
        for _ in 0..count {
            let protocol = choices.begin_at(Peer(1), 65536, now);
            pulled += u32::from(protocol == RendezvousProtocol::Pull);
            now += Duration::from_micros(if protocol == RendezvousProtocol::Pull {
                pull_us
            } else {
                stream_us
            });
            choices.end_at(Peer(1), 65536, now);
        }
        pulled
    }

    #[test]
    fn the_faster_rendezvous_protocol_is_selected_and_reselected() {
        let mut choices = RendezvousChoices::new(0, 128);
        assert!(moved(&mut choices, 1000, 5, 8) > 970);
        assert!(moved(&mut choices, 1000, 8, 5) < 200);
        assert!(moved(&mut choices, 1000, 5, 8) > 800);
    }

    #[test]
    fn trial_setting_limits_transfers_by_the_slower_protocol() {
        for (trial_every, slower) in [(8, 200..=260), (128, 12..=20), (1 << 30, 2..=4)] {
            let mut choices = RendezvousChoices::new(0, trial_every);
            let pulled = moved(&mut choices, 1000, 5, 8);
            assert!(slower.contains(&(1000 - pulled)), "{trial_every}: {pulled}");
        }
    }

    #[test]
    fn one_slow_transfer_does_not_change_the_protocol() {
        let mut choices = RendezvousChoices::new(0, 128);
        moved(&mut choices, 500, 5, 8);
        moved(&mut choices, 1, 20_000, 20_000);
        assert!(moved(&mut choices, 100, 5, 8) >= 98);
    }

    #[test]
    fn overlapping_transfers_use_one_protocol_and_are_timed_together() {
        let mut choices = RendezvousChoices::new(0, 128);
        let mut now = Instant::now();
        for _ in 0..50 {
            let first = choices.begin_at(Peer(1), 65536, now);
            assert!((0..63).all(|_| choices.begin_at(Peer(1), 65536, now) == first));
            now += Duration::from_micros(if first == RendezvousProtocol::Pull {
                640
            } else {
                320
            });
            (0..64).for_each(|_| choices.end_at(Peer(1), 65536, now));
        }
        assert_eq!(
            choices.begin_at(Peer(1), 65536, now),
            RendezvousProtocol::Stream
        );
        assert_eq!(
            choices.begin_at(Peer(2), 65536, now),
            RendezvousProtocol::Pull,
            "a peer for itself"
        );
    }

    #[test]
    fn a_continuously_busy_peer_still_selects_a_protocol() {
        let mut choices = RendezvousChoices::new(0, 128);
        let mut now = Instant::now();
        choices.begin_at(Peer(1), 1 << 20, now);
        let mut streamed = 0;
        for _ in 0..2000 {
            let protocol = choices.begin_at(Peer(1), 1 << 20, now);
            streamed += u32::from(protocol == RendezvousProtocol::Stream);
            now += Duration::from_micros(if protocol == RendezvousProtocol::Pull {
                400
            } else {
                100
            });
            choices.end_at(Peer(1), 1 << 20, now);
        }
        assert!(streamed > 1200, "{streamed}");
    }
}
