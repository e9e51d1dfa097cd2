// SPDX-License-Identifier: MIT OR Apache-2.0
//! Computes and formats the traffic between the hosts of a job, from the host of each rank.

use super::job::{JobStats, Traffic, percent};
use super::table::{aligned, traffic_bytes};
use crate::topology::ranges;
use std::collections::BTreeMap;

/// The host of each rank; empty if all ranks were on one host.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct RankHosts {
    /// The hosts in order, with their ranks.
    all: Vec<(String, Vec<u32>)>,
    of_rank: BTreeMap<u32, usize>,
}

/// Traffic sent by the ranks of a host: in total, and to other hosts.
type Sent = (Traffic, Traffic);

impl RankHosts {
    /// The hosts of nodes, given by host name, with the nodes' ranks. Several nodes may be on one host.
    pub(crate) fn of(nodes: impl Iterator<Item = (String, Vec<u32>)>) -> Self {
        let mut hosts = Self::default();
        for (name, ranks) in nodes.filter(|(_, ranks)| !ranks.is_empty()) {
            match hosts.all.iter_mut().find(|(known, _)| *known == name) {
                Some((_, known)) => known.extend(ranks),
                None => hosts.all.push((name, ranks)),
            }
        }
        if hosts.all.len() < 2 {
            return Self::default();
        }
        let numbered = hosts.all.iter().enumerate();
        let of_rank = numbered.flat_map(|(at, (_, ranks))| ranks.iter().map(move |it| (*it, at)));
        hosts.of_rank = of_rank.collect();
        hosts
    }

    /// Whether there is more than one host.
    pub(super) fn are_several(&self) -> bool {
        !self.all.is_empty()
    }

    /// The host of a rank; `None` if all ranks were on one host.
    pub(super) fn name(&self, rank: u32) -> Option<&str> {
        let at = self.of_rank.get(&rank)?;
        self.all.get(*at).map(|(name, _)| name.as_str())
    }

    /// Traffic sent by the ranks of each host.
    fn sent(&self, job: &JobStats) -> Vec<Sent> {
        let mut sums = vec![Sent::default(); self.all.len()];
        for (from, to, sent) in job.pairs() {
            let (from, to) = (self.of_rank.get(&from), self.of_rank.get(&to));
            if let Some((whole, away)) = from.and_then(|at| sums.get_mut(*at)) {
                *whole = whole.and(sent);
                if from != to {
                    *away = away.and(sent);
                }
            }
        }
        sums
    }
}

/// The traffic between hosts.
pub(super) fn between(job: &JobStats) -> Traffic {
    let sums = job.hosts.sent(job);
    let away = sums.iter().map(|(_, away)| *away);
    away.fold(Traffic::default(), Traffic::and)
}

/// A table with a line for each host, and a line about the traffic between hosts; empty with a single host.
pub(super) fn table(job: &JobStats) -> Vec<String> {
    let hosts = &job.hosts;
    if !hosts.are_several() {
        return Vec::new();
    }
    let mut rows = vec![
        ["host", "ranks", "sent", "to other hosts"]
            .map(String::from)
            .to_vec(),
    ];
    for ((name, ranks), (whole, away)) in hosts.all.iter().zip(hosts.sent(job)) {
        let ranks = ranges(ranks.iter().copied());
        rows.push(vec![
            name.clone(),
            ranks,
            traffic_bytes(whole),
            traffic_bytes(away),
        ]);
    }
    let mut lines = vec![String::new()];
    lines.extend(aligned(&rows));
    lines.extend(describe_host_traffic(job));
    lines
}

/// Describes the traffic between hosts as a share of all; `None` with a single host.
pub(super) fn describe_host_traffic(job: &JobStats) -> Option<String> {
    if !job.hosts.are_several() {
        return None;
    }
    let (all, away) = (job.sent(), between(job));
    #[allow(clippy::cast_precision_loss, reason = "a share")]
    let share = away.bytes as f64 / all.bytes.max(1) as f64;
    Some(format!(
        "between hosts: {} in {} messages, {} of all that was sent",
        traffic_bytes(away),
        away.messages,
        percent(share)
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hosts(names: [&str; 3]) -> RankHosts {
        let nodes = (0..)
            .zip(names)
            .map(|(rank, name)| (name.to_owned(), vec![rank]));
        RankHosts::of(nodes)
    }

    #[test]
    fn a_single_host_is_not_named() {
        assert_eq!(hosts(["a", "a", "a"]), RankHosts::default());
        assert_eq!(hosts(["a", "b", "a"]).name(2), Some("a"));
        assert_eq!(hosts(["a", "b", "a"]).name(3), None);
    }
}
