// SPDX-License-Identifier: MIT OR Apache-2.0
//! Computes and formats the time in MPI calls (`--stats-calls`), per rank and over all ranks.

use super::job::{Imbalance, JobStats, RankStats, percent};
use super::record::Values;
use super::table::{aligned, plain, seconds};
use std::collections::BTreeMap;

/// Prefix of the variables in which the tool library records timed functions.
const PREFIX: &str = "call ";
/// Maximum number of functions in the text report; those with the most time are shown.
pub(super) const MOST_CALLS: usize = 10;

/// The calls of one function by one rank.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct CallTimes {
    pub(super) calls: u64,
    pub(super) seconds: f64,
    pub(super) longest_s: f64,
}

/// Moves timed calls out of a rank's variables. Returns `None` if calls were not timed.
pub(super) fn take(variables: &mut Vec<(String, Values)>) -> Option<BTreeMap<String, CallTimes>> {
    let mut is_timed = false;
    let mut found = BTreeMap::new();
    variables.retain(|(name, values)| {
        let Some(function) = name.strip_prefix(PREFIX) else {
            return true;
        };
        is_timed = true;
        if let Values::Whole(numbers) = values
            && let [calls, ns, longest_ns] = numbers[..]
            && calls > 0
        {
            #[allow(clippy::cast_precision_loss, reason = "for people and charts")]
            let timed = CallTimes {
                calls,
                seconds: ns as f64 / 1e9,
                longest_s: longest_ns as f64 / 1e9,
            };
            found.insert(function.to_owned(), timed);
        }
        false
    });
    is_timed.then_some(found)
}

/// The calls of one function by all ranks.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct CallSum {
    pub(super) name: String,
    pub(super) calls: u64,
    pub(super) seconds: f64,
    pub(super) longest_s: f64,
    pub(super) longest_on: u32,
    /// Imbalance of the time in this function between ranks.
    pub(super) balance: Imbalance,
}

/// All functions that were called, by descending time.
pub(super) fn sums(job: &JobStats) -> Vec<CallSum> {
    let timed = |rank: &RankStats, name: &str| rank.calls.as_ref()?.get(name).copied();
    let names = job.ranks.iter().filter_map(|rank| rank.calls.as_ref());
    let mut names: Vec<&String> = names.flat_map(BTreeMap::keys).collect();
    names.sort();
    names.dedup();
    let sum = |name: &String| {
        let of = |rank: &RankStats| Some(timed(rank, name).map_or(0.0, |it| it.seconds));
        let mut sum = CallSum {
            name: name.clone(),
            calls: 0,
            seconds: 0.0,
            longest_s: 0.0,
            longest_on: 0,
            balance: job.imbalance(of)?,
        };
        for (rank, one) in job
            .ranks
            .iter()
            .filter_map(|rank| Some((rank.rank, timed(rank, name)?)))
        {
            sum.calls = sum.calls.saturating_add(one.calls);
            sum.seconds += one.seconds;
            if one.longest_s > sum.longest_s {
                (sum.longest_s, sum.longest_on) = (one.longest_s, rank);
            }
        }
        Some(sum)
    };
    let mut sums: Vec<CallSum> = names.into_iter().filter_map(sum).collect();
    sums.sort_by(|one, other| other.seconds.total_cmp(&one.seconds));
    sums
}

/// Time during which calls were timed, in seconds, summed over all ranks.
pub(super) fn run_s(job: &JobStats) -> f64 {
    let timed = job.ranks.iter().filter(|rank| rank.calls.is_some());
    timed.map(|rank| rank.timed_s).sum()
}

/// The share of `part` in `whole`, between 0 and 1. `whole` may be 0; then the share is 0 if `part` is 0, otherwise 1.
pub(super) fn share(part: f64, whole: f64) -> f64 {
    (part / whole.max(1e-9)).clamp(0.0, 1.0)
}

/// Table of the functions with the most time; empty if no calls were timed.
pub(super) fn table(job: &JobStats, most: usize) -> Vec<String> {
    let sums = sums(job);
    if sums.is_empty() {
        return Vec::new();
    }
    let (run_s, calls_s) = (run_s(job), sums.iter().map(|it| it.seconds).sum::<f64>());
    let heads = [
        "call",
        "calls",
        "time",
        "of run",
        "of calls",
        "each",
        "longest",
        "on rank",
        "max/mean",
        "max is rank",
    ];
    let mut rows: Vec<Vec<String>> = vec![heads.map(String::from).to_vec()];
    for sum in sums.iter().take(most) {
        let is_even = sum.balance.ratio() <= 1.005;
        #[allow(clippy::cast_precision_loss, reason = "for people")]
        let (calls, each) = (sum.calls as f64, sum.seconds / sum.calls.max(1) as f64);
        rows.push(vec![
            sum.name.clone(),
            plain(calls),
            seconds(sum.seconds),
            percent(share(sum.seconds, run_s)),
            percent(share(sum.seconds, calls_s)),
            seconds(each),
            seconds(sum.longest_s),
            sum.longest_on.to_string(),
            format!("{:.2}", sum.balance.ratio()),
            match is_even {
                true => "-".to_owned(),
                false => sum.balance.rank.to_string(),
            },
        ]);
    }
    let which = match sums.len() {
        all if all > most => format!("the {most} of {all} functions with most time"),
        _ => "by function".to_owned(),
    };
    let title = format!(
        "\n{} of the ranks' time in calls of MPI{}, {which}:",
        percent(share(calls_s, run_s)),
        timed_share(job)
    );
    std::iter::once(title).chain(aligned(&rows)).collect()
}

/// States during which part of the run calls were timed; empty if they were timed during the whole run.
fn timed_share(job: &JobStats) -> String {
    let timed = job.ranks.iter().filter(|rank| rank.calls.is_some());
    let elapsed_s: f64 = timed.map(|rank| rank.elapsed_s).sum();
    let part = share(run_s(job), elapsed_s);
    match part < 0.995 {
        true => format!(
            " while they were timed ({} of the run, MPI_Pcontrol)",
            percent(part)
        ),
        false => String::new(),
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::record::{StatsRecord, tests::record};
    use super::*;

    /// A job in which rank 0 waits for 1 s in receives, the other ranks send, and all ranks call `MPI_Barrier`.
    pub(in crate::stats) fn timed_job(size: u32) -> JobStats {
        let of = |rank: u32| {
            let call = |name: &str, calls, ns, longest| {
                (
                    format!("{PREFIX}{name}"),
                    Values::Whole(vec![calls, ns, longest]),
                )
            };
            let (receives, sends) = if rank == 0 { (10, 0) } else { (0, 5) };
            StatsRecord {
                variables: vec![
                    call("MPI_Barrier", 2, 500_000_000, 400_000_000),
                    call("MPI_Recv", receives, receives * 100_000_000, 300_000_000),
                    call("MPI_Send", sends, sends * 1000, 1500),
                    call("MPI_Ssend", 0, 0, 0),
                    ("messages".into(), Values::Whole(vec![3])),
                ],
                ..record(rank)
            }
        };
        JobStats::of(size, (0..size).map(of).collect())
    }

    #[test]
    fn calls_are_summed_and_sorted_by_time() {
        let report = table(&timed_job(2), 10).join("\n");
        let expected = "
50 % of the ranks' time in calls of MPI, by function:
         call  calls     time  of run  of calls     each  longest  on rank  max/mean  max is rank
  MPI_Barrier      4   1.00 s    25 %      50 %   250 ms   400 ms        0      1.00            -
     MPI_Recv     10   1.00 s    25 %      50 %   100 ms   300 ms        0      2.00            0
     MPI_Send      5  5.00 us     0 %       0 %  1.00 us  1.50 us        1      2.00            1";
        assert_eq!(report, expected, "{report}");
        let short = table(&timed_job(2), 2).join("\n");
        assert!(
            short.contains("the 2 of 3 functions with most time:"),
            "{short}"
        );
        assert!(!short.contains("MPI_Send "), "{short}");
    }

    #[test]
    fn untimed_periods_do_not_count_in_the_share() {
        let mut job = timed_job(2);
        for rank in &mut job.ranks {
            rank.timed_s = 1.6;
        }
        let report = table(&job, 1).join("\n");
        assert!(
            report.starts_with(
                "\n63 % of the ranks' time in calls of MPI while they were timed (80 % of the run, MPI_Pcontrol), "
            ),
            "{report}"
        );
        assert_eq!(job.ranks[0].calls_share(), Some(1.5 / 1.6));
    }

    #[test]
    fn untimed_calls_are_omitted() {
        let job = JobStats::of(2, vec![record(0)]);
        assert_eq!((table(&job, 10), &job.ranks[0].calls), (Vec::new(), &None));
        let timed = timed_job(1);
        assert_eq!(timed.ranks[0].variables.len(), 1, "the rest are calls");
        assert_eq!(timed.ranks[0].calls_s(), Some(1.5));
    }

    #[test]
    fn malformed_call_values_are_omitted() {
        let mut variables = vec![
            ("call MPI_Send".into(), Values::Whole(vec![1])),
            ("call MPI_Recv".into(), Values::Real(vec![1.0, 2.0, 3.0])),
        ];
        assert_eq!(take(&mut variables), Some(BTreeMap::new()));
        assert_eq!(variables, []);
    }
}
