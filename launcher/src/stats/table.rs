// SPDX-License-Identifier: MIT OR Apache-2.0
//! Formats the statistics of a job as text: one sentence, a line for each rank, and the traffic.

use super::job::{JobStats, RankStats, Traffic, percent};
use super::record::Values;
use super::{calls, hosts};
use crate::failure::counted;
use std::cmp::Reverse;
use std::collections::BTreeMap;

/// Maximum number of ranks of a job for which the whole matrix is shown.
const WHOLE_MATRIX: u32 = 10;
/// Maximum number of pairs of ranks that are shown for a job of more than [`WHOLE_MATRIX`] ranks.
const MOST_PAIRS: usize = 10;

/// A column of the table of ranks.
struct Column {
    head: &'static str,
    value: fn(&RankStats) -> Option<f64>,
    show: fn(f64) -> String,
}

const COLUMNS: &[Column] = &[
    Column {
        head: "sent",
        value: |rank| rank.sent.and_then(|it| whole(it.bytes)),
        show: bytes,
    },
    Column {
        head: "messages",
        value: |rank| rank.sent.and_then(|it| whole(it.messages)),
        show: plain,
    },
    Column {
        head: "eager",
        value: |rank| rank.eager.and_then(|it| whole(it.messages)),
        show: plain,
    },
    Column {
        head: "early",
        value: |rank| whole(rank.early.messages),
        show: plain,
    },
    Column {
        head: "gates",
        value: |rank| whole(rank.gates.messages),
        show: plain,
    },
    Column {
        head: "rendezvous",
        value: |rank| whole(rank.rendezvous.messages),
        show: plain,
    },
    Column {
        head: "on the wire",
        value: |rank| whole(rank.network),
        show: plain,
    },
    Column {
        head: "received",
        value: |rank| rank.received.and_then(|it| whole(it.bytes)),
        show: bytes,
    },
    Column {
        head: "unexpected",
        value: |rank| whole(rank.unexpected),
        show: plain,
    },
    Column {
        head: "waiting",
        value: |rank| rank.waiting_s,
        show: seconds,
    },
    Column {
        head: "of time",
        value: RankStats::waiting_share,
        show: percent,
    },
    Column {
        head: "in calls",
        value: RankStats::calls_s,
        show: seconds,
    },
    Column {
        head: "of run",
        value: RankStats::calls_share,
        show: percent,
    },
    Column {
        head: "CPU",
        value: |rank| Some(rank.cpu_s),
        show: seconds,
    },
    Column {
        head: "memory",
        value: |rank| whole(rank.memory_bytes),
        show: bytes,
    },
];

/// Columns that are shown even if all their values are 0.
const KEPT: [&str; 3] = ["sent", "messages", "CPU"];

#[allow(
    clippy::cast_precision_loss,
    clippy::unnecessary_wraps,
    reason = "for people; a column's value"
)]
fn whole(number: u64) -> Option<f64> {
    Some(number as f64)
}

/// The report, with at most `most_ranks` ranks.
pub(super) fn text(job: &JobStats, most_ranks: usize) -> String {
    let of = counted(job.size, "rank", "ranks");
    if job.ranks.is_empty() {
        let why = job.finding().unwrap_or_default();
        return format!("statistics of {of}: {why}");
    }
    // A report that lists all ranks, for a file, also lists all functions.
    let most_calls = match most_ranks {
        usize::MAX => usize::MAX,
        _ => calls::MOST_CALLS,
    };
    let sent = job.sent();
    let traffic_text = match job.ranks.iter().any(|rank| rank.sent.is_some()) {
        true => format!(
            ", {} sent in {} messages",
            traffic_bytes(sent),
            sent.messages
        ),
        false => String::new(),
    };
    let mut lines = vec![format!(
        "statistics of {of}: {} in MPI{traffic_text}",
        seconds(job.elapsed_s())
    )];
    lines.extend(job.finding().map(|sentence| format!("  {sentence}")));
    lines.extend(job.remarks().iter().map(|sentence| format!("  {sentence}")));
    lines.push(String::new());
    lines.extend(ranks(job, most_ranks));
    lines.extend(calls::table(job, most_calls));
    lines.extend(collectives(job));
    lines.extend(traffic(job));
    lines.extend(hosts::table(job));
    lines.join("\n")
}

/// Table of the ranks, in the order of descending traffic.
fn ranks(job: &JobStats, most: usize) -> Vec<String> {
    let mut order: Vec<&RankStats> = job.ranks.iter().collect();
    order.sort_by_key(|rank| {
        (
            Reverse(rank.sent.map(|it| (it.bytes, it.messages))),
            rank.rank,
        )
    });
    let has_report = |column: &&Column| {
        let is_kept = KEPT.contains(&column.head);
        let mut values = order.iter().filter_map(|rank| (column.value)(rank));
        values.any(|value| is_kept || value > 0.0)
    };
    let columns: Vec<&Column> = COLUMNS.iter().filter(has_report).collect();
    let first = |rank: &str, host: &str| beginning(job, rank, host);
    let heads = columns.iter().map(|column| column.head.to_owned());
    let mut rows = vec![first("rank", "host").into_iter().chain(heads).collect()];
    for rank in order.iter().take(most) {
        let cell = |column: &&Column| (column.value)(rank).map_or_else(|| "-".into(), column.show);
        let host = job.hosts.name(rank.rank).unwrap_or_default();
        let begin = first(&rank.rank.to_string(), host).into_iter();
        rows.push(begin.chain(columns.iter().map(cell)).collect());
    }
    let hidden = order.len().saturating_sub(most);
    if order.len() > 1 {
        let balances: Vec<_> = columns
            .iter()
            .map(|column| job.imbalance(column.value))
            .collect();
        let cells = |name: &str, cell: &dyn Fn(usize) -> Option<String>| -> Vec<String> {
            let rest = (0..columns.len()).map(|at| cell(at).unwrap_or_else(|| "-".into()));
            first(name, "").into_iter().chain(rest).collect()
        };
        let mean = |at: usize| balances[at].map(|it| (columns[at].show)(it.mean));
        let ratio = |at: usize| balances[at].map(|it| format!("{:.2}", it.ratio()));
        let worst = |at: usize| {
            balances[at]
                .filter(|it| it.ratio() > 1.005)
                .map(|it| it.rank.to_string())
        };
        rows.push(cells("mean", &mean));
        rows.push(cells("max/mean", &ratio));
        rows.push(cells("max is rank", &worst));
    }
    let mut lines = aligned(&rows);
    if hidden > 0 {
        let line = format!(
            "  ... and {} more; --stats=FILE writes all",
            counted(u32::try_from(hidden).unwrap_or(u32::MAX), "rank", "ranks")
        );
        lines.insert(1 + most, line);
    }
    lines
}

/// The first cells of a row: the rank, and the host if the job has several hosts.
fn beginning(job: &JobStats, rank: &str, host: &str) -> Vec<String> {
    let host = job.hosts.are_several().then_some(host);
    let cells = std::iter::once(rank).chain(host);
    cells.map(str::to_owned).collect()
}

/// The number of calls of each collective on `MPI_COMM_WORLD`: the largest number of any rank.
fn collectives(job: &JobStats) -> Option<String> {
    let mut calls: BTreeMap<&str, f64> = BTreeMap::new();
    for (name, values) in job.ranks.iter().flat_map(|rank| &rank.variables) {
        let Some(collective) = name
            .strip_prefix("collective_")
            .and_then(|rest| rest.strip_suffix("_calls"))
        else {
            continue;
        };
        let most = calls.entry(collective).or_default();
        *most = most.max(values.sum());
    }
    let mut calls: Vec<_> = calls
        .into_iter()
        .filter(|(_, count)| *count > 0.0)
        .collect();
    calls.sort_by(|one, other| other.1.total_cmp(&one.1));
    let counts: Vec<String> = calls
        .iter()
        .map(|(collective, count)| format!("{collective} {count:.0}"))
        .collect();
    (!counts.is_empty()).then(|| {
        format!(
            "\ncollectives of MPI_COMM_WORLD, calls of a rank: {}",
            counts.join(", ")
        )
    })
}

/// The traffic: the whole matrix, or the pairs of ranks with the most traffic.
fn traffic(job: &JobStats) -> Vec<String> {
    let pairs = job.pairs();
    if pairs.is_empty() {
        return Vec::new();
    }
    if job.size <= WHOLE_MATRIX {
        return matrix(job);
    }
    let all = job.sent().bytes.max(1);
    let mut rows: Vec<Vec<String>> = vec![
        ["from", "to", "sent", "messages", "of all"]
            .map(String::from)
            .to_vec(),
    ];
    for (from, to, sent) in pairs.iter().take(MOST_PAIRS) {
        #[allow(clippy::cast_precision_loss, reason = "a share")]
        let share = sent.bytes as f64 / all as f64;
        rows.push(vec![
            from.to_string(),
            to.to_string(),
            traffic_bytes(*sent),
            sent.messages.to_string(),
            format!("{:.1} %", share * 100.0),
        ]);
    }
    let title = format!("\nthe heaviest of {} pairs:", pairs.len());
    std::iter::once(title).chain(aligned(&rows)).collect()
}

fn matrix(job: &JobStats) -> Vec<String> {
    let most = job.pairs().first().map_or(0, |(_, _, sent)| sent.bytes);
    // The unit is chosen so that large values have several digits and small values are still visible.
    let (unit, name) = unit_of(most / 10);
    let heads = (0..job.size).map(|rank| rank.to_string());
    let mut rows: Vec<Vec<String>> = vec![
        std::iter::once("from \\ to".to_owned())
            .chain(heads)
            .collect(),
    ];
    for rank in &job.ranks {
        #[allow(clippy::cast_precision_loss, reason = "for people")]
        let cell = |sent: &Traffic| match sent.messages {
            0 => ".".to_owned(),
            _ => three(sent.bytes as f64 / unit, name == "B"),
        };
        rows.push(
            std::iter::once(rank.rank.to_string())
                .chain(rank.to.iter().map(cell))
                .collect(),
        );
    }
    std::iter::once(format!("\n{name} sent:"))
        .chain(aligned(&rows))
        .collect()
}

/// Formats a table with right-aligned cells.
pub(super) fn aligned(rows: &[Vec<String>]) -> Vec<String> {
    let columns = rows.first().map_or(0, Vec::len);
    let wide = |column: usize| {
        rows.iter()
            .map(|row| row[column].chars().count())
            .max()
            .unwrap_or(0)
    };
    let widths: Vec<usize> = (0..columns).map(wide).collect();
    let line = |row: &Vec<String>| {
        let cells: Vec<String> = row
            .iter()
            .zip(&widths)
            .map(|(cell, width)| format!("{cell:>width$}"))
            .collect();
        format!("  {}", cells.join("  "))
    };
    rows.iter().map(line).collect()
}

fn unit_of(bytes: u64) -> (f64, &'static str) {
    match bytes {
        0..1024 => (1.0, "B"),
        1024..1_048_576 => (1024.0, "KiB"),
        1_048_576..1_073_741_824 => (1_048_576.0, "MiB"),
        _ => (1_073_741_824.0, "GiB"),
    }
}

/// Formats a number with three digits, or with all digits if it is an integer (`is_whole`).
fn three(number: f64, is_whole: bool) -> String {
    match number {
        0.0 => "0".to_owned(),
        _ if is_whole => format!("{number:.0}"),
        ..9.995 => format!("{number:.2}"),
        ..99.95 => format!("{number:.1}"),
        _ => format!("{number:.0}"),
    }
}

pub(super) fn bytes(number: f64) -> String {
    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "bytes, for a unit"
    )]
    let (unit, name) = unit_of(number as u64);
    format!("{} {name}", three(number / unit, name == "B"))
}

#[allow(clippy::cast_precision_loss, reason = "for people")]
pub(super) fn traffic_bytes(sent: Traffic) -> String {
    bytes(sent.bytes as f64)
}

pub(super) fn plain(number: f64) -> String {
    format!("{number:.0}")
}

pub(super) fn seconds(number: f64) -> String {
    match number {
        ..1e-3 => format!("{} us", three(number * 1e6, false)),
        ..1.0 => format!("{} ms", three(number * 1e3, false)),
        _ => format!("{} s", three(number, false)),
    }
}

/// Whether all values are 0.
pub(super) fn is_zero(values: &Values) -> bool {
    values.sum() == 0.0
}

#[cfg(test)]
mod tests {
    use super::super::record::{RankOutcome, tests::record};
    use super::*;

    /// A job in which rank 0 sends to all other ranks, and rank 1 is late.
    fn job(size: u32) -> JobStats {
        let mut records = Vec::new();
        for rank in 0..size {
            let mut one = record(rank);
            let to = |bytes: u64| {
                (0..size)
                    .map(|to| {
                        if rank == 0 && to > 0 {
                            bytes * u64::from(to)
                        } else {
                            0
                        }
                    })
                    .collect()
            };
            one.variables = vec![
                ("sent_bytes_to".into(), Values::Whole(to(1 << 20))),
                ("sent_messages_to".into(), Values::Whole(to(10))),
                ("rendezvous_sends".into(), Values::Whole(vec![3])),
                (
                    "time_waiting".into(),
                    Values::Real(vec![if rank == 1 { 0.1 } else { 1.4 }]),
                ),
                ("collective_barrier_calls".into(), Values::Whole(vec![7])),
            ];
            records.push(one);
        }
        JobStats::of(size, records)
    }

    #[test]
    fn the_table_shows_hosts_and_traffic_between_them() {
        let nodes = [("a".to_owned(), vec![0, 2]), ("b".to_owned(), vec![1])];
        let hosts = super::super::RankHosts::of(nodes.into_iter());
        let report = text(&JobStats { hosts, ..job(3) }, 16);
        let expected = "\
host  ranks      sent  to other hosts
   a    0,2  3.00 MiB        1.00 MiB
   b      1       0 B             0 B
between hosts: 1.00 MiB in 10 messages, 33 % of all that was sent";
        let flat = |text: &str| {
            text.lines()
                .map(|line| line.trim_start().to_owned())
                .collect::<Vec<_>>()
                .join("\n")
        };
        assert!(flat(&report).ends_with(&flat(expected)), "{report}");
        assert!(flat(&report).contains("\n1     b       0 B"), "{report}");
    }

    #[test]
    fn a_small_job_is_listed_completely() {
        let report = text(&job(3), 16);
        let expected = "\
statistics of 3 ranks: 2.00 s in MPI, 3.00 MiB sent in 30 messages
  rank 1 waits least (5 %), the others 70 % of the time: they wait for it

         rank      sent  messages  eager  rendezvous  received  waiting  of time     CPU    memory
            0  3.00 MiB        30     27           3       0 B   1.40 s     70 %  1.50 s  1.00 MiB
            1       0 B         0      0           3  1.00 MiB   100 ms      5 %  1.50 s  1.00 MiB
            2       0 B         0      0           3  2.00 MiB   1.40 s     70 %  1.50 s  1.00 MiB
         mean  1.00 MiB        10      9           3  1.00 MiB   967 ms     48 %  1.50 s  1.00 MiB
     max/mean      3.00      3.00   3.00        1.00      2.00     1.45     1.45    1.00      1.00
  max is rank         0         0      0           -         2        0        0       -         -

collectives of MPI_COMM_WORLD, calls of a rank: barrier 7

KiB sent:
  from \\ to  0     1     2
          0  .  1024  2048
          1  .     .     .
          2  .     .     .";
        assert_eq!(report, expected, "{report}");
    }

    #[test]
    fn a_large_job_lists_only_the_heaviest_ranks_and_pairs() {
        let report = text(&job(64), 16);
        assert!(
            report.contains("  ... and 48 ranks more; --stats=FILE writes all"),
            "{report}"
        );
        assert!(report.contains("the heaviest of 63 pairs:"), "{report}");
        assert!(
            report.contains("   0  63  63.0 MiB       630   3.1 %"),
            "{report}"
        );
        assert!(
            report.lines().count() < 50 && report.lines().all(|line| line.chars().count() < 120),
            "{report}"
        );
        assert_eq!(
            text(&job(64), usize::MAX).lines().count(),
            report.lines().count() + 47
        );
    }

    #[test]
    fn ranks_without_a_record_or_finalize_are_named() {
        let mut records = vec![record(0), record(2)];
        records[1].ending = RankOutcome::Killed(15);
        let report = text(&JobStats::of(3, records), 16);
        assert!(
            report.contains("1 rank has reported nothing (1): "),
            "{report}"
        );
        assert!(
            report.contains("1 rank ended without MPI_Finalize (2): "),
            "{report}"
        );
        let none = text(&JobStats::of(3, Vec::new()), 16);
        assert!(
            none.starts_with("statistics of 3 ranks: no rank has reported anything: ")
                && none.lines().count() == 1,
            "{none}"
        );
    }

    #[test]
    fn a_killed_rank_is_not_called_late() {
        let mut job = job(3);
        assert!(
            job.finding()
                .is_some_and(|finding| finding.starts_with("rank 1 waits least"))
        );
        job.ranks[1].ending = RankOutcome::Killed(15);
        let report = text(&job, 16);
        assert!(
            !report.contains("waits least") && report.contains("1 rank ended without MPI_Finalize"),
            "{report}"
        );
    }

    #[test]
    fn records_of_ranks_beyond_the_job_are_ignored() {
        assert_eq!(
            JobStats::of(2, vec![record(2), record(u32::MAX)])
                .ranks
                .len(),
            0
        );
    }

    #[test]
    fn values_have_three_significant_digits() {
        let texts: Vec<String> = [0.0, 1023.0, 10_240.0, 1.5e9, 5e11].map(bytes).to_vec();
        assert_eq!(texts, ["0 B", "1023 B", "10.0 KiB", "1.40 GiB", "466 GiB"]);
        let texts: Vec<String> = [2e-6, 9.996e-6, 0.0123, 0.09996, 100.0]
            .map(seconds)
            .to_vec();
        assert_eq!(texts, ["2.00 us", "10.0 us", "12.3 ms", "100 ms", "100 s"]);
    }
}
