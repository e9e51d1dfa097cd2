// SPDX-License-Identifier: MIT OR Apache-2.0
//! Computes the statistics of a job: per rank, per pair of ranks, and a remarkable finding.

use super::calls::{self, CallTimes};
use super::hosts::RankHosts;
use super::record::{RankOutcome, StatsRecord, Values};
use crate::failure::counted;
use std::collections::BTreeMap;

/// Names of the performance variables from which the tables are computed. Variables that a library does not have are
/// left out.
mod names {
    pub(super) const BYTES_TO: &str = "sent_bytes_to";
    pub(super) const MESSAGES_TO: &str = "sent_messages_to";
    pub(super) const RENDEZVOUS: &str = "rendezvous_sends";
    pub(super) const RENDEZVOUS_BYTES: &str = "rendezvous_send_bytes";
    pub(super) const EARLY: &str = "early_sends";
    pub(super) const EARLY_BYTES: &str = "early_send_bytes";
    pub(super) const GATES: &str = "gate_sends";
    pub(super) const GATES_BYTES: &str = "gate_send_bytes";
    pub(super) const UNEXPECTED: &str = "unexpected_messages";
    pub(super) const WAITING: &str = "time_waiting";
    pub(super) const NETWORK: &str = "net_frames_sent";
}

/// Number of messages, and their bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Traffic {
    pub(super) messages: u64,
    pub(super) bytes: u64,
}

impl Traffic {
    pub(super) fn and(self, other: Self) -> Self {
        Self {
            messages: self.messages.saturating_add(other.messages),
            bytes: self.bytes.saturating_add(other.bytes),
        }
    }

    fn less(self, other: Self) -> Self {
        Self {
            messages: self.messages.saturating_sub(other.messages),
            bytes: self.bytes.saturating_sub(other.bytes),
        }
    }
}

/// Statistics of one rank that left a record.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct RankStats {
    pub(super) rank: u32,
    pub(super) ending: RankOutcome,
    pub(super) elapsed_s: f64,
    /// Part of the elapsed time during which the rank's calls were timed, in seconds.
    pub(super) timed_s: f64,
    pub(super) cpu_s: f64,
    pub(super) memory_bytes: u64,
    /// Time in MPI without progress, in seconds; `None` if the library does not report it.
    pub(super) waiting_s: Option<f64>,
    pub(super) unexpected: u64,
    /// Number of frames sent over a network.
    pub(super) network: u64,
    /// Messages sent; `None` if the library does not count messages by destination.
    pub(super) sent: Option<Traffic>,
    pub(super) received: Option<Traffic>,
    pub(super) eager: Option<Traffic>,
    pub(super) early: Traffic,
    pub(super) gates: Traffic,
    pub(super) rendezvous: Traffic,
    /// Messages sent, by destination rank.
    pub(super) to: Vec<Traffic>,
    /// Timed calls by MPI function; `None` if calls were not timed.
    pub(super) calls: Option<BTreeMap<String, CallTimes>>,
    /// All variables of the record, except those of timed calls.
    pub(super) variables: Vec<(String, Values)>,
}

impl RankStats {
    fn of(mut record: StatsRecord, size: usize) -> Self {
        let calls = calls::take(&mut record.variables);
        let find = |name: &str| {
            record
                .variables
                .iter()
                .find(|(found, _)| found == name)
                .map(|(_, values)| values)
        };
        let whole = |name: &str| match find(name) {
            Some(Values::Whole(all)) => &all[..],
            _ => &[],
        };
        let first = |name: &str| whole(name).first().copied().unwrap_or(0);
        let both = |messages: &str, bytes: &str| Traffic {
            messages: first(messages),
            bytes: first(bytes),
        };
        let (messages, bytes) = (whole(names::MESSAGES_TO), whole(names::BYTES_TO));
        let at = |all: &[u64], rank: usize| all.get(rank).copied().unwrap_or(0);
        let to: Vec<Traffic> = (0..size)
            .map(|rank| Traffic {
                messages: at(messages, rank),
                bytes: at(bytes, rank),
            })
            .collect();
        let sum = to.iter().fold(Traffic::default(), |sum, one| sum.and(*one));
        let sent = (!messages.is_empty()).then_some(sum);
        let early = both(names::EARLY, names::EARLY_BYTES);
        let gates = both(names::GATES, names::GATES_BYTES);
        let rendezvous = both(names::RENDEZVOUS, names::RENDEZVOUS_BYTES);
        Self {
            rank: record.rank,
            ending: record.ending,
            elapsed_s: record.elapsed_s,
            timed_s: (record.elapsed_s - record.off_s).max(0.0),
            cpu_s: record.cpu_s,
            memory_bytes: record.memory_bytes,
            waiting_s: find(names::WAITING).map(Values::sum),
            unexpected: first(names::UNEXPECTED),
            network: first(names::NETWORK),
            sent,
            received: None,
            eager: sent.map(|sent| sent.less(early).less(gates).less(rendezvous)),
            early,
            gates,
            rendezvous,
            to,
            calls,
            variables: record.variables,
        }
    }

    /// The rank's time in MPI calls, in seconds; `None` if calls were not timed.
    pub(super) fn calls_s(&self) -> Option<f64> {
        let calls = self.calls.as_ref()?;
        Some(calls.values().map(|it| it.seconds).sum())
    }

    /// Share of the rank's timed run that it spent in MPI calls; `None` if calls were not timed.
    pub(super) fn calls_share(&self) -> Option<f64> {
        self.calls_s()
            .map(|seconds| calls::share(seconds, self.timed_s))
    }

    /// Share of the rank's elapsed time during which it waited; `None` if the library does not report it.
    pub(super) fn waiting_share(&self) -> Option<f64> {
        self.waiting_s
            .map(|waited| (waited / self.elapsed_s.max(1e-9)).clamp(0.0, 1.0))
    }
}

/// Statistics of a job.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct JobStats {
    /// Number of ranks.
    pub(super) size: u32,
    /// The ranks that left a record, in rank order.
    pub(super) ranks: Vec<RankStats>,
    /// The hosts of the ranks.
    pub(super) hosts: RankHosts,
}

/// The highest of some values, the rank that has it, and the mean of the values.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Imbalance {
    pub(super) rank: u32,
    pub(super) highest: f64,
    pub(super) mean: f64,
}

impl Imbalance {
    /// The highest value divided by the mean; 1 if all values are equal.
    pub(super) fn ratio(self) -> f64 {
        if self.mean > 0.0 {
            self.highest / self.mean
        } else {
            1.0
        }
    }
}

impl JobStats {
    /// The statistics from all records. If a rank has left several records, the last one counts.
    pub(super) fn of(size: u32, records: Vec<StatsRecord>) -> Self {
        let mut known: Vec<Option<RankStats>> = (0..size).map(|_| None).collect();
        for record in records {
            if let Some(place) = known.get_mut(record.rank as usize) {
                *place = Some(RankStats::of(record, size as usize));
            }
        }
        let mut ranks: Vec<RankStats> = known.into_iter().flatten().collect();
        for at in 0..ranks.len() {
            let rank = ranks[at].rank as usize;
            let sum = |sum: Traffic, from: &RankStats| {
                sum.and(from.to.get(rank).copied().unwrap_or_default())
            };
            let has_report = ranks.iter().any(|rank| rank.sent.is_some());
            ranks[at].received = has_report.then(|| ranks.iter().fold(Traffic::default(), sum));
        }
        Self {
            size,
            ranks,
            hosts: RankHosts::default(),
        }
    }

    /// Duration of the job in seconds: the longest elapsed time of any rank.
    pub(super) fn elapsed_s(&self) -> f64 {
        self.ranks
            .iter()
            .map(|rank| rank.elapsed_s)
            .fold(0.0, f64::max)
    }

    /// Imbalance of a value over the ranks that have it.
    pub(super) fn imbalance(
        &self,
        number: impl Fn(&RankStats) -> Option<f64>,
    ) -> Option<Imbalance> {
        let all: Vec<(u32, f64)> = self
            .ranks
            .iter()
            .filter_map(|rank| Some((rank.rank, number(rank)?)))
            .collect();
        let (rank, highest) = all
            .iter()
            .copied()
            .reduce(|one, other| if other.1 > one.1 { other } else { one })?;
        #[allow(clippy::cast_precision_loss, reason = "a number of ranks")]
        let mean = all.iter().map(|(_, value)| value).sum::<f64>() / all.len() as f64;
        Some(Imbalance {
            rank,
            highest,
            mean,
        })
    }

    /// All traffic.
    pub(super) fn sent(&self) -> Traffic {
        self.ranks
            .iter()
            .filter_map(|rank| rank.sent)
            .fold(Traffic::default(), Traffic::and)
    }

    /// Traffic by pair of ranks, in the order of descending bytes, without pairs that have no traffic.
    pub(super) fn pairs(&self) -> Vec<(u32, u32, Traffic)> {
        let of = |rank: &RankStats| {
            let from = rank.rank;
            let one = move |(to, traffic): (u32, &Traffic)| (from, to, *traffic);
            (0..).zip(&rank.to).map(one).collect::<Vec<_>>()
        };
        let mut pairs: Vec<_> = self
            .ranks
            .iter()
            .flat_map(of)
            .filter(|(_, _, sent)| sent.messages > 0)
            .collect();
        pairs.sort_by_key(|(from, to, sent)| {
            (std::cmp::Reverse((sent.bytes, sent.messages)), *from, *to)
        });
        pairs
    }

    /// The most remarkable observation, as a sentence. If no rank stands out: a sentence that says so, or `None` if the
    /// job has only one rank, if some rank left no record, or if some rank did not reach `MPI_Finalize`.
    pub(super) fn finding(&self) -> Option<String> {
        if self.ranks.is_empty() {
            return Some(
                "no rank has reported anything: none came through MPI_Init, all were killed with SIGKILL, or the program has the \
                 MPI library in itself (-static-mpi)"
                    .into(),
            );
        }
        let found = self
            .lateness()
            .or_else(|| self.busyness())
            .or_else(|| self.surprise())
            .or_else(|| self.lopsidedness());
        let is_whole = self.ranks.len() == self.size as usize && self.early().is_empty();
        found.or_else(|| (is_whole && self.size > 1).then(|| "no rank stands out".into()))
    }

    /// Ranks that ended without `MPI_Finalize`.
    fn early(&self) -> Vec<u32> {
        let early = self
            .ranks
            .iter()
            .filter(|rank| rank.ending != RankOutcome::Finalized);
        early.map(|rank| rank.rank).collect()
    }

    /// The finding that the ranks wait for a rank that rarely waits, or that all ranks wait most of the time.
    fn lateness(&self) -> Option<String> {
        // Time in unfinished calls is not counted, so a rank that was ended in a call would seem to wait least.
        if !self.early().is_empty() {
            return None;
        }
        let shares: Vec<(u32, f64)> = self
            .ranks
            .iter()
            .filter_map(|rank| Some((rank.rank, rank.waiting_share()?)))
            .collect();
        let (late, least) = shares
            .iter()
            .copied()
            .reduce(|one, other| if other.1 < one.1 { other } else { one })?;
        let others = shares
            .iter()
            .filter(|(rank, _)| *rank != late)
            .map(|(_, share)| *share);
        #[allow(clippy::cast_precision_loss, reason = "a number of ranks")]
        let mean = others.sum::<f64>() / (shares.len() - 1).max(1) as f64;
        if shares.len() < 2 || mean - least < 0.15 {
            let all = (mean + least) / 2.0;
            return (shares.len() > 1 && all >= 0.5).then(|| {
                format!("all ranks wait most of the time ({}), none more than others: it is the messages that take long", percent(all))
            });
        }
        Some(format!(
            "rank {late} waits least ({}), the others {} of the time: they wait for it",
            percent(least),
            percent(mean)
        ))
    }

    /// The finding that one rank uses much more CPU time than the average rank.
    fn busyness(&self) -> Option<String> {
        let found = self.imbalance(|rank| Some(rank.cpu_s))?;
        let is_much = found.highest > 0.2 * self.elapsed_s() && found.highest > 0.05;
        (self.ranks.len() > 1 && found.ratio() >= 1.5 && is_much).then(|| {
            format!(
                "rank {} takes {:.1} times the processor time of a rank on average: the others may wait for it",
                found.rank,
                found.ratio()
            )
        })
    }

    /// The finding that most messages arrive before their receives are posted.
    fn surprise(&self) -> Option<String> {
        let messages: u64 = self
            .ranks
            .iter()
            .filter_map(|rank| rank.received)
            .map(|received| received.messages)
            .sum();
        let unexpected: u64 = self.ranks.iter().map(|rank| rank.unexpected).sum();
        #[allow(clippy::cast_precision_loss, reason = "a share")]
        let share = unexpected as f64 / messages.max(1) as f64;
        (messages >= 1000 && share > 0.5).then(|| {
            format!("{} of the messages arrived before their receive: posting receives earlier saves a copy of each", percent(share.min(1.0)))
        })
    }

    /// The finding that one rank sends much more than the average rank.
    fn lopsidedness(&self) -> Option<String> {
        #[allow(clippy::cast_precision_loss, reason = "a ratio")]
        let found = self.imbalance(|rank| Some(rank.sent?.bytes as f64))?;
        (self.ranks.len() > 2 && found.ratio() >= 1.5).then(|| {
            format!(
                "rank {} sends {:.1} times what a rank sends on average",
                found.rank,
                found.ratio()
            )
        })
    }

    /// Warnings about ranks that left no record or did not reach `MPI_Finalize`, with the effect on the numbers.
    pub(super) fn remarks(&self) -> Vec<String> {
        let mut remarks = Vec::new();
        let known = u32::try_from(self.ranks.len()).unwrap_or(u32::MAX);
        let silent = self.size.saturating_sub(known);
        if silent > 0 && known > 0 {
            let missing =
                (0..self.size).filter(|rank| !self.ranks.iter().any(|it| it.rank == *rank));
            remarks.push(format!(
                "{} reported nothing ({}): killed with SIGKILL, not in MPI, or with the MPI library in the program (-static-mpi)",
                counted(silent, "rank has", "ranks have"),
                listed(missing)
            ));
        }
        let (so_far, early): (Vec<&RankStats>, Vec<&RankStats>) = self
            .ranks
            .iter()
            .filter(|rank| rank.ending != RankOutcome::Finalized)
            .partition(|rank| rank.ending == RankOutcome::SoFar);
        for (ranks, how, until) in [
            (early, "without MPI_Finalize", "then"),
            (
                so_far,
                "without a further report",
                "the last MPI_Pcontrol(2)",
            ),
        ] {
            if ranks.is_empty() {
                continue;
            }
            let count = u32::try_from(ranks.len()).unwrap_or(u32::MAX);
            remarks.push(format!(
                "{} {how} ({}): what was counted until {until} is shown",
                counted(count, "rank ended", "ranks ended"),
                listed(ranks.iter().map(|rank| rank.rank))
            ));
        }
        remarks
    }
}

/// A list of ranks, truncated.
fn listed(ranks: impl Iterator<Item = u32>) -> String {
    const SHOWN: usize = 8;
    let all: Vec<String> = ranks.map(|rank| rank.to_string()).collect();
    let more = if all.len() > SHOWN { ", ..." } else { "" };
    all[..all.len().min(SHOWN)].join(", ") + more
}

/// Formats a share between 0 and 1 as a percentage.
pub(super) fn percent(share: f64) -> String {
    format!("{:.0} %", share * 100.0)
}
