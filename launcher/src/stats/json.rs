// SPDX-License-Identifier: MIT OR Apache-2.0
//! The statistics of a job as JSON: all ranks, all variables that are not 0, the whole matrix.

use super::calls::{CallSum, CallTimes, sums};
use super::hosts;
use super::job::{Imbalance, Job, RankStats, Traffic};
use super::record::{RankOutcome, Values};
use super::table::is_zero;

/// The whole document.
pub(super) fn text(job: &Job) -> String {
    let ranks: Vec<String> = job
        .ranks
        .iter()
        .map(|one| format!("\n    {}", rank(one)))
        .collect();
    let row = |pick: fn(&Traffic) -> u64| {
        let line = |rank: u32| {
            let report = job
                .ranks
                .iter()
                .find(|it| it.rank == rank && it.sent.is_some());
            report.map_or_else(
                || "null".to_owned(),
                |it| list(it.to.iter().map(|sent| pick(sent).to_string())),
            )
        };
        let lines: Vec<String> = (0..job.size)
            .map(|rank| format!("\n      {}", line(rank)))
            .collect();
        format!("[{}\n    ]", lines.join(","))
    };
    #[allow(clippy::cast_precision_loss, reason = "for charts")]
    let balances = [
        (
            "sent_bytes",
            job.imbalance(|rank| Some(rank.sent?.bytes as f64)),
        ),
        (
            "sent_messages",
            job.imbalance(|rank| Some(rank.sent?.messages as f64)),
        ),
        ("waiting_seconds", job.imbalance(|rank| rank.waiting_s)),
        ("mpi_seconds", job.imbalance(RankStats::calls_s)),
        ("cpu_seconds", job.imbalance(|rank| Some(rank.cpu_s))),
    ];
    let balances: Vec<String> = balances
        .iter()
        .filter_map(|(name, found)| Some(format!("\n    {}: {}", quoted(name), balance((*found)?))))
        .collect();
    let calls: Vec<String> = sums(job).iter().map(call_sum).collect();
    let remarks = list(job.remarks().iter().map(|words| quoted(words)));
    format!(
        "{{\n  \"version\": 1,\n  \"ranks\": {},\n  \"seconds\": {},\n  \"finding\": {},\n  \"remarks\": {remarks},\n{}  \
         \"imbalance\": {{{}\n  }},\n  \"calls\": [{}\n  ],\n  \"per_rank\": [{}\n  ],\n  \"sent_from_rank_to_rank\": {{\n    \"bytes\": {},\n    \
         \"messages\": {}\n  }}\n}}\n",
        job.size,
        real(job.elapsed_s()),
        job.finding()
            .map_or_else(|| "null".to_owned(), |words| quoted(&words)),
        places(job),
        balances.join(","),
        calls.join(","),
        ranks.join(","),
        row(|sent| sent.bytes),
        row(|sent| sent.messages)
    )
}

/// The host of each rank, and the traffic between hosts; empty with a single host.
fn places(job: &Job) -> String {
    if !job.hosts.are_several() {
        return String::new();
    }
    let name = |rank| {
        job.hosts
            .name(rank)
            .map_or_else(|| "null".to_owned(), quoted)
    };
    let between = hosts::between(job);
    format!(
        "  \"hosts\": {},\n  \"sent_between_hosts\": {{\"messages\": {}, \"bytes\": {}}},\n",
        list((0..job.size).map(name)),
        between.messages,
        between.bytes
    )
}

fn rank(rank: &RankStats) -> String {
    let ended = match rank.ending {
        RankOutcome::Finalized => "\"MPI_Finalize\"".to_owned(),
        RankOutcome::Left => "\"exit\"".to_owned(),
        RankOutcome::SoFar => "null".to_owned(),
        RankOutcome::Killed(signal) => {
            quoted(&crate::failure::describe_signal(signal.cast_signed()).0)
        }
    };
    let of = |name: &str, traffic: Option<Traffic>| {
        let numbers =
            |it: Traffic| format!("{{\"messages\": {}, \"bytes\": {}}}", it.messages, it.bytes);
        format!(
            "\"{name}\": {}",
            traffic.map_or_else(|| "null".to_owned(), numbers)
        )
    };
    let kinds = [
        ("sent", rank.sent),
        ("received", rank.received),
        ("eager", rank.eager),
        ("early", Some(rank.early)),
        ("gates", Some(rank.gates)),
        ("rendezvous", Some(rank.rendezvous)),
    ];
    let kinds: Vec<String> = kinds.map(|(name, traffic)| of(name, traffic)).to_vec();
    let variables = rank.variables.iter().filter(|(_, values)| !is_zero(values));
    let variables: Vec<String> = variables
        .map(|(name, values)| format!("{}: {}", quoted(name), value(values)))
        .collect();
    let calls: Vec<String> = rank.calls.iter().flatten().map(call).collect();
    format!(
        "{{\"rank\": {}, \"ended\": {ended}, \"seconds\": {}, \"waiting_seconds\": {}, \"cpu_seconds\": {}, \"memory_bytes\": {}, \
         {}, \"unexpected_messages\": {}, \"mpi_seconds\": {}, \"timed_seconds\": {}, \"calls\": {{{}}}, \"variables\": {{{}}}}}",
        rank.rank,
        real(rank.elapsed_s),
        rank.waiting_s.map_or_else(|| "null".to_owned(), real),
        real(rank.cpu_s),
        rank.memory_bytes,
        kinds.join(", "),
        rank.unexpected,
        rank.calls_s().map_or_else(|| "null".to_owned(), real),
        rank.calls
            .as_ref()
            .map_or_else(|| "null".to_owned(), |_| real(rank.timed_s)),
        calls.join(", "),
        variables.join(", ")
    )
}

/// The calls of a function by one rank.
fn call((name, timed): (&String, &CallTimes)) -> String {
    format!(
        "{}: {{\"calls\": {}, \"seconds\": {}, \"longest_seconds\": {}}}",
        quoted(name),
        timed.calls,
        real(timed.seconds),
        real(timed.longest_s)
    )
}

/// The calls of a function by all ranks.
fn call_sum(sum: &CallSum) -> String {
    format!(
        "\n    {{\"name\": {}, \"calls\": {}, \"seconds\": {}, \"longest_seconds\": {}, \"longest_on_rank\": {}, \
         \"seconds_per_rank\": {}}}",
        quoted(&sum.name),
        sum.calls,
        real(sum.seconds),
        real(sum.longest_s),
        sum.longest_on,
        balance(sum.balance)
    )
}

fn balance(found: Imbalance) -> String {
    format!(
        "{{\"max\": {}, \"mean\": {}, \"max_over_mean\": {}, \"rank\": {}}}",
        real(found.highest),
        real(found.mean),
        real(found.ratio()),
        found.rank
    )
}

fn value(values: &Values) -> String {
    let all: Vec<String> = match values {
        Values::Whole(all) => all.iter().map(u64::to_string).collect(),
        Values::Real(all) => all.iter().map(|value| real(*value)).collect(),
    };
    match &all[..] {
        [one] => one.clone(),
        _ => list(all.into_iter()),
    }
}

fn list(items: impl Iterator<Item = String>) -> String {
    format!("[{}]", items.collect::<Vec<_>>().join(", "))
}

/// JSON has no infinite numbers.
fn real(number: f64) -> String {
    if number.is_finite() {
        format!("{number}")
    } else {
        "null".to_owned()
    }
}

fn quoted(words: &str) -> String {
    let mut out = String::from("\"");
    for letter in words.chars() {
        match letter {
            '"' | '\\' => out.extend(['\\', letter]),
            letter if letter < ' ' => out += &format!("\\u{:04x}", u32::from(letter)),
            letter => out.push(letter),
        }
    }
    out + "\""
}

#[cfg(test)]
mod tests {
    use super::super::calls::tests::timed_job;
    use super::super::record::tests::record;
    use super::*;

    #[test]
    fn calls_are_told_by_rank_and_of_all() {
        let report = text(&timed_job(2));
        for line in [
            "\"mpi_seconds\": 1.5, \"timed_seconds\": 2, \"calls\": {\"MPI_Barrier\": {\"calls\": 2, \"seconds\": 0.5, \"longest_seconds\": 0.4}, ",
            "{\"name\": \"MPI_Recv\", \"calls\": 10, \"seconds\": 1, \"longest_seconds\": 0.3, \"longest_on_rank\": 0, \
             \"seconds_per_rank\": {\"max\": 1, \"mean\": 0.5, \"max_over_mean\": 2, \"rank\": 0}}",
        ] {
            assert!(report.contains(line), "{line}: {report}");
        }
        let none = text(&Job::of(2, vec![record(1)]));
        assert!(
            none.contains("\"calls\": [\n  ]") && none.contains("\"mpi_seconds\": null"),
            "{none}"
        );
    }

    #[test]
    fn where_ranks_were_is_told_of_several_hosts() {
        let nodes = [("a".to_owned(), vec![1]), ("b".to_owned(), vec![0])];
        let hosts = hosts::RankHosts::of(nodes.into_iter());
        let job = Job::of(2, vec![record(1)]);
        assert!(!text(&job).contains("hosts"));
        let report = text(&Job { hosts, ..job });
        let line = "  \"hosts\": [\"b\", \"a\"],\n  \"sent_between_hosts\": {\"messages\": 0, \"bytes\": 0},\n  \"imbalance\": {";
        assert!(report.contains(line), "{report}");
    }

    #[test]
    fn what_is_quoted_can_be_read() {
        assert_eq!(quoted("a \"b\"\\\n"), "\"a \\\"b\\\"\\\\\\u000a\"");
        assert_eq!(
            (real(0.5), real(f64::NAN), real(3.0)),
            ("0.5".into(), "null".into(), "3".into())
        );
    }

    #[test]
    fn who_told_nothing_has_no_row() {
        let report = text(&Job::of(2, vec![record(1)]));
        assert!(
            report.contains("\"bytes\": [\n      null,\n      null\n    ]"),
            "{report}"
        );
        assert!(
            report.contains("\"variables\": {\"messages\": [3, 4], \"time\": 0.25}"),
            "{report}"
        );
        let count = |letter| report.chars().filter(|it| *it == letter).count();
        assert_eq!(
            (count('{'), count('[')),
            (count('}'), count(']')),
            "{report}"
        );
    }
}
