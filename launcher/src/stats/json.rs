// SPDX-License-Identifier: MIT OR Apache-2.0
//! Writes the report of `--stats=FILE.json`, which is meant for programs: all ranks, all variables that are not 0, and
//! the whole matrix.
//!
//! Numbers that are not finite and values that a rank did not report are `null`. While `version` is 1, keys are never
//! renamed or removed, but new keys may be added.

use super::calls::{CallSum, CallTimes, sums};
use super::hosts;
use super::job::{Imbalance, JobStats, RankStats, Traffic};
use super::record::{RankOutcome, Values};
use super::table::is_zero;
use serde::Serialize;
use serde::ser::{SerializeMap, Serializer};
use serde_json::ser::Formatter;
use std::collections::BTreeMap;
use std::io::{self, Write};

/// The report as JSON text. Each entry of the two outermost levels begins a new line; deeper entries are on the line of
/// their parent.
pub(super) fn text(job: &JobStats) -> String {
    let mut out = Vec::new();
    let mut serializer = serde_json::Serializer::with_formatter(&mut out, Lines::default());
    let written = JobReport::of(job).serialize(&mut serializer);
    debug_assert!(written.is_ok(), "memory takes everything: {written:?}");
    out.push(b'\n');
    String::from_utf8_lossy(&out).into_owned()
}

/// The report of a job. The fields of these structures are the keys in `--stats=FILE.json`.
#[derive(Serialize)]
struct JobReport<'a> {
    version: u32,
    ranks: u32,
    seconds: f64,
    finding: Option<String>,
    remarks: Vec<String>,
    #[serde(flatten)]
    hosts: Option<HostsReport<'a>>,
    imbalance: ImbalanceReport,
    calls: Vec<CallStatsReport>,
    per_rank: Vec<RankStatsReport<'a>>,
    sent_from_rank_to_rank: MatrixReport,
}

/// The part of the report that only jobs over several hosts have.
#[derive(Serialize)]
struct HostsReport<'a> {
    /// Host of each rank, by rank.
    hosts: Vec<Option<&'a str>>,
    sent_between_hosts: TrafficReport,
}

/// Number and size of messages.
#[derive(Serialize)]
struct TrafficReport {
    messages: u64,
    bytes: u64,
}

/// Traffic by sender, then by receiver. The row of a sender that reported nothing is `null`.
#[derive(Serialize)]
struct MatrixReport {
    bytes: Vec<Option<Vec<u64>>>,
    messages: Vec<Option<Vec<u64>>>,
}

/// How evenly each quantity is distributed over the ranks; a quantity that was not measured is left out.
#[derive(Serialize)]
struct ImbalanceReport {
    #[serde(skip_serializing_if = "Option::is_none")]
    sent_bytes: Option<BalanceReport>,
    #[serde(skip_serializing_if = "Option::is_none")]
    sent_messages: Option<BalanceReport>,
    #[serde(skip_serializing_if = "Option::is_none")]
    waiting_seconds: Option<BalanceReport>,
    #[serde(skip_serializing_if = "Option::is_none")]
    mpi_seconds: Option<BalanceReport>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cpu_seconds: Option<BalanceReport>,
}

/// Imbalance of a quantity between ranks; `rank` is the rank with the largest value.
#[derive(Serialize)]
struct BalanceReport {
    max: f64,
    mean: f64,
    max_over_mean: f64,
    rank: u32,
}

/// The calls of one function by all ranks.
#[derive(Serialize)]
struct CallStatsReport {
    name: String,
    calls: u64,
    seconds: f64,
    longest_seconds: f64,
    longest_on_rank: u32,
    seconds_per_rank: BalanceReport,
}

/// The calls of one function by one rank.
#[derive(Serialize)]
struct TimedReport {
    calls: u64,
    seconds: f64,
    longest_seconds: f64,
}

/// The statistics of one rank.
#[derive(Serialize)]
struct RankStatsReport<'a> {
    rank: u32,
    /// `MPI_Finalize`, `exit`, the name of a signal, or `null` for a report in the middle of the run.
    ended: Option<String>,
    seconds: f64,
    waiting_seconds: Option<f64>,
    cpu_seconds: f64,
    memory_bytes: u64,
    sent: Option<TrafficReport>,
    received: Option<TrafficReport>,
    eager: Option<TrafficReport>,
    early: TrafficReport,
    gates: TrafficReport,
    rendezvous: TrafficReport,
    unexpected_messages: u64,
    mpi_seconds: Option<f64>,
    timed_seconds: Option<f64>,
    /// Timed calls by name of the MPI function.
    calls: BTreeMap<&'a str, TimedReport>,
    #[serde(serialize_with = "by_name")]
    variables: Vec<(&'a str, ValueReport<'a>)>,
}

/// A variable's value, or its values in the order of its elements.
#[derive(Serialize)]
#[serde(untagged)]
enum ValueReport<'a> {
    Integer(u64),
    Integers(&'a [u64]),
    Real(f64),
    Reals(&'a [f64]),
}

impl<'a> JobReport<'a> {
    fn of(job: &'a JobStats) -> Self {
        Self {
            version: 1,
            ranks: job.size,
            seconds: job.elapsed_s(),
            finding: job.finding(),
            remarks: job.remarks(),
            hosts: job.hosts.are_several().then(|| HostsReport {
                hosts: (0..job.size).map(|rank| job.hosts.name(rank)).collect(),
                sent_between_hosts: hosts::between(job).into(),
            }),
            imbalance: ImbalanceReport::of(job),
            calls: sums(job).into_iter().map(CallStatsReport::from).collect(),
            per_rank: job.ranks.iter().map(RankStatsReport::of).collect(),
            sent_from_rank_to_rank: MatrixReport {
                bytes: matrix(job, |sent| sent.bytes),
                messages: matrix(job, |sent| sent.messages),
            },
        }
    }
}

fn matrix(job: &JobStats, pick: fn(&Traffic) -> u64) -> Vec<Option<Vec<u64>>> {
    let sender = |rank: u32| {
        let reported = |it: &&RankStats| it.rank == rank && it.sent.is_some();
        let sender = job.ranks.iter().find(reported)?;
        Some(sender.to.iter().map(pick).collect())
    };
    (0..job.size).map(sender).collect()
}

impl ImbalanceReport {
    #[allow(clippy::cast_precision_loss, reason = "for charts")]
    fn of(job: &JobStats) -> Self {
        let of =
            |value: fn(&RankStats) -> Option<f64>| job.imbalance(value).map(BalanceReport::from);
        Self {
            sent_bytes: of(|rank| Some(rank.sent?.bytes as f64)),
            sent_messages: of(|rank| Some(rank.sent?.messages as f64)),
            waiting_seconds: of(|rank| rank.waiting_s),
            mpi_seconds: of(RankStats::calls_s),
            cpu_seconds: of(|rank| Some(rank.cpu_s)),
        }
    }
}

impl<'a> RankStatsReport<'a> {
    fn of(rank: &'a RankStats) -> Self {
        let calls = rank.calls.iter().flatten();
        let variables = rank.variables.iter();
        Self {
            rank: rank.rank,
            ended: match rank.ending {
                RankOutcome::Finalized => Some("MPI_Finalize".to_owned()),
                RankOutcome::Left => Some("exit".to_owned()),
                RankOutcome::SoFar => None,
                RankOutcome::Killed(signal) => {
                    Some(crate::failure::describe_signal(signal.cast_signed()).0)
                }
            },
            seconds: rank.elapsed_s,
            waiting_seconds: rank.waiting_s,
            cpu_seconds: rank.cpu_s,
            memory_bytes: rank.memory_bytes,
            sent: rank.sent.map(TrafficReport::from),
            received: rank.received.map(TrafficReport::from),
            eager: rank.eager.map(TrafficReport::from),
            early: rank.early.into(),
            gates: rank.gates.into(),
            rendezvous: rank.rendezvous.into(),
            unexpected_messages: rank.unexpected,
            mpi_seconds: rank.calls_s(),
            timed_seconds: rank.calls.as_ref().map(|_| rank.timed_s),
            calls: calls.map(|(name, it)| (&name[..], it.into())).collect(),
            variables: variables
                .filter(|(_, values)| !is_zero(values))
                .map(|(name, values)| (&name[..], values.into()))
                .collect(),
        }
    }
}

impl From<Traffic> for TrafficReport {
    fn from(it: Traffic) -> Self {
        Self {
            messages: it.messages,
            bytes: it.bytes,
        }
    }
}

impl From<Imbalance> for BalanceReport {
    fn from(it: Imbalance) -> Self {
        Self {
            max: it.highest,
            mean: it.mean,
            max_over_mean: it.ratio(),
            rank: it.rank,
        }
    }
}

impl From<CallSum> for CallStatsReport {
    fn from(it: CallSum) -> Self {
        Self {
            name: it.name,
            calls: it.calls,
            seconds: it.seconds,
            longest_seconds: it.longest_s,
            longest_on_rank: it.longest_on,
            seconds_per_rank: it.balance.into(),
        }
    }
}

impl From<&CallTimes> for TimedReport {
    fn from(it: &CallTimes) -> Self {
        Self {
            calls: it.calls,
            seconds: it.seconds,
            longest_seconds: it.longest_s,
        }
    }
}

impl<'a> From<&'a Values> for ValueReport<'a> {
    fn from(values: &'a Values) -> Self {
        match values {
            Values::Whole(all) if all.len() == 1 => Self::Integer(all[0]),
            Values::Whole(all) => Self::Integers(all),
            Values::Real(all) if all.len() == 1 => Self::Real(all[0]),
            Values::Real(all) => Self::Reals(all),
        }
    }
}

/// Writes pairs as an object, with the keys in the order of the pairs.
fn by_name<S: Serializer>(
    pairs: &[(&str, ValueReport<'_>)],
    serializer: S,
) -> Result<S::Ok, S::Error> {
    let mut map = serializer.serialize_map(Some(pairs.len()))?;
    for (name, value) in pairs {
        map.serialize_entry(name, value)?;
    }
    map.end()
}

/// JSON formatter that breaks lines at the two outermost levels, so that each rank and each matrix is one line.
#[derive(Default)]
struct Lines {
    depth: usize,
}

impl Lines {
    const DEEPEST: usize = 3;

    fn open<W: Write + ?Sized>(&mut self, out: &mut W, bracket: &[u8]) -> io::Result<()> {
        self.depth += 1;
        out.write_all(bracket)
    }

    fn entry<W: Write + ?Sized>(&self, out: &mut W, is_first: bool) -> io::Result<()> {
        if !is_first {
            out.write_all(b",")?;
        }
        if self.depth < Self::DEEPEST {
            self.line(out)
        } else if is_first {
            Ok(())
        } else {
            out.write_all(b" ")
        }
    }

    fn close<W: Write + ?Sized>(&mut self, out: &mut W, bracket: &[u8]) -> io::Result<()> {
        self.depth -= 1;
        if self.depth + 1 < Self::DEEPEST {
            self.line(out)?;
        }
        out.write_all(bracket)
    }

    fn line<W: Write + ?Sized>(&self, out: &mut W) -> io::Result<()> {
        write!(out, "\n{:1$}", "", 2 * self.depth)
    }
}

impl Formatter for Lines {
    fn begin_array<W: Write + ?Sized>(&mut self, out: &mut W) -> io::Result<()> {
        self.open(out, b"[")
    }

    fn end_array<W: Write + ?Sized>(&mut self, out: &mut W) -> io::Result<()> {
        self.close(out, b"]")
    }

    fn begin_array_value<W: Write + ?Sized>(&mut self, out: &mut W, first: bool) -> io::Result<()> {
        self.entry(out, first)
    }

    fn begin_object<W: Write + ?Sized>(&mut self, out: &mut W) -> io::Result<()> {
        self.open(out, b"{")
    }

    fn end_object<W: Write + ?Sized>(&mut self, out: &mut W) -> io::Result<()> {
        self.close(out, b"}")
    }

    fn begin_object_key<W: Write + ?Sized>(&mut self, out: &mut W, first: bool) -> io::Result<()> {
        self.entry(out, first)
    }

    fn begin_object_value<W: Write + ?Sized>(&mut self, out: &mut W) -> io::Result<()> {
        out.write_all(b": ")
    }
}

#[cfg(test)]
mod tests {
    use super::super::calls::tests::timed_job;
    use super::super::record::tests::record;
    use super::*;
    use serde_json::{Value, json};

    fn parsed(job: &JobStats) -> Value {
        let text = text(job);
        serde_json::from_str(&text).unwrap_or_else(|why| panic!("{why}: {text}"))
    }

    #[test]
    fn calls_are_reported_by_rank_and_of_all() {
        let report = parsed(&timed_job(2));
        let rank = &report["per_rank"][0];
        assert_eq!(
            (&rank["mpi_seconds"], &rank["timed_seconds"]),
            (&json!(1.5), &json!(2.0))
        );
        assert_eq!(
            rank["calls"]["MPI_Barrier"],
            json!({"calls": 2, "seconds": 0.5, "longest_seconds": 0.4})
        );
        let receives = json!({
            "name": "MPI_Recv", "calls": 10, "seconds": 1.0, "longest_seconds": 0.3, "longest_on_rank": 0,
            "seconds_per_rank": {"max": 1.0, "mean": 0.5, "max_over_mean": 2.0, "rank": 0},
        });
        let calls = report["calls"].as_array().unwrap();
        assert!(calls.contains(&receives), "{calls:?}");
        let none = parsed(&JobStats::of(2, vec![record(1)]));
        assert_eq!(
            (&none["calls"], &none["per_rank"][0]["mpi_seconds"]),
            (&json!([]), &Value::Null)
        );
    }

    #[test]
    fn json_lists_hosts_only_if_several() {
        let nodes = [("a".to_owned(), vec![1]), ("b".to_owned(), vec![0])];
        let hosts = hosts::RankHosts::of(nodes.into_iter());
        let job = JobStats::of(2, vec![record(1)]);
        assert!(!text(&job).contains("hosts"));
        let report = parsed(&JobStats { hosts, ..job });
        assert_eq!(report["hosts"], json!(["b", "a"]));
        assert_eq!(
            report["sent_between_hosts"],
            json!({"messages": 0, "bytes": 0})
        );
    }

    #[test]
    fn json_has_one_line_per_rank_and_per_matrix() {
        let text = text(&JobStats::of(2, vec![record(1)]));
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0], "{");
        assert!(lines[1].starts_with("  \"version\": 1,"), "{text}");
        let ranks = lines.iter().filter(|it| it.starts_with("    {\"rank\": "));
        assert_eq!(ranks.count(), 1, "{text}");
        assert!(lines.contains(&"    \"bytes\": [null, null],"), "{text}");
        assert_eq!(lines.last(), Some(&"}"), "{text}");
    }

    #[test]
    fn variables_keep_their_names_and_values() {
        let job = JobStats::of(2, vec![record(1)]);
        let report = parsed(&job);
        let variables = json!({"messages": [3, 4], "time": 0.25});
        assert_eq!(report["per_rank"][0]["variables"], variables);
        let mut odd = job;
        let name = "a \"b\"\\\n".to_owned();
        odd.ranks[0].variables = vec![(name.clone(), Values::Real(vec![1.0, f64::NAN]))];
        let variables = &parsed(&odd)["per_rank"][0]["variables"];
        assert_eq!(variables[&name], json!([1.0, null]));
    }
}
