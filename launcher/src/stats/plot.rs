// SPDX-License-Identifier: MIT OR Apache-2.0
//! The statistics of a job as a picture (SVG): a matrix of the traffic with a row per sender, and beside it the
//! waiting time of that rank. Lines separate the ranks of different hosts. Below, if calls were timed, the functions'
//! share of the ranks' time.

use super::calls::{self, MOST_CALLS, share};
use super::hosts;
use super::job::{Job, Traffic, percent};
use super::table::{bytes, seconds, traffic_bytes};
use std::fmt::Write as _;
use std::ops::Range;

/// Most rows: with more ranks, several share one.
const MOST_LINES: usize = 64;
const FIELD: f64 = 480.0;
const BAR: f64 = 200.0;
const LEFT: f64 = 70.0;
const TOP: f64 = 110.0;
/// Distance between two functions.
const CALL: f64 = 20.0;

const STYLE: &str = "<style>\n.paper{fill:#fff}text{fill:#222}.faint{fill:#666}.none{fill:#f0f0f0}.some{fill:#08519c}\
                     .time{fill:#e3e3e3}.wait{fill:#d95f02}.call{fill:#2a7f62}.host{stroke:#222}\n@media (prefers-color-scheme:dark){.paper{fill:#1b1b1d}text{fill:#ddd}\
                     .faint{fill:#999}.none{fill:#29292c}.some{fill:#6baed6}.time{fill:#3a3a3d}.wait{fill:#f28e2b}.call{fill:#5bb592}.host{stroke:#ddd}}\n</style>\n";

/// The matrix: each row stands for `step` ranks.
struct TrafficMatrix {
    /// Ranks per row.
    step: usize,
    lines: usize,
    cells: Vec<Traffic>,
    /// The host of each row's ranks; `None` if there is only one, or they are on several.
    hosts: Vec<Option<String>>,
    /// Waiting time and total time of each row, in seconds; `None` without a record.
    times: Vec<Option<(f64, f64)>>,
    /// The fewest and the most bytes of a cell with messages.
    least: f64,
    most: f64,
}

impl TrafficMatrix {
    fn of(job: &Job) -> Self {
        let size = job.size as usize;
        let step = size.div_ceil(MOST_LINES).max(1);
        let lines = size.div_ceil(step);
        let mut cells = vec![Traffic::default(); lines * lines];
        for (from, to, sent) in job.pairs() {
            let cell = &mut cells[from as usize / step * lines + to as usize / step];
            cell.bytes = cell.bytes.saturating_add(sent.bytes);
            cell.messages = cell.messages.saturating_add(sent.messages);
        }
        let mut times: Vec<Option<(f64, f64)>> = vec![None; lines];
        for rank in &job.ranks {
            let Some(waited) = rank.waiting_s else {
                continue;
            };
            let line = times[rank.rank as usize / step].get_or_insert((0.0, 0.0));
            line.0 += waited;
            line.1 += rank.elapsed_s;
        }
        #[allow(clippy::cast_precision_loss, reason = "shades of a colour")]
        let sizes = cells
            .iter()
            .filter(|cell| cell.messages > 0)
            .map(|cell| cell.bytes as f64);
        let (least, most) = sizes.fold((f64::INFINITY, 0.0_f64), |(least, most), size| {
            (least.min(size), most.max(size))
        });
        let hosts = (0..lines).map(|line| host_of(job, step * line..step * (line + 1)));
        Self {
            step,
            lines,
            cells,
            hosts: hosts.collect(),
            times,
            least,
            most,
        }
    }

    /// Darkness of a cell: logarithmic, so that small traffic is visible beside large.
    fn shade(&self, cell: Traffic) -> f64 {
        #[allow(clippy::cast_precision_loss, reason = "a shade of a colour")]
        let (size, least) = (cell.bytes.max(1) as f64, self.least.max(1.0));
        let span = (self.most.max(1.0) / least).ln();
        if span <= 0.0 {
            1.0
        } else {
            0.15 + 0.85 * (size / least).ln() / span
        }
    }

    fn name(&self, line: usize, size: u32) -> String {
        let first = line * self.step;
        let last = (first + self.step - 1).min(size.saturating_sub(1) as usize);
        let host = self.hosts[line].as_ref();
        let host = host.map_or_else(String::new, |host| format!(" on {host}"));
        if first == last {
            format!("rank {first}{host}")
        } else {
            format!("ranks {first} to {last}{host}")
        }
    }
}

/// The host of all of these ranks, in a job over several hosts.
fn host_of(job: &Job, ranks: Range<usize>) -> Option<String> {
    let mut hosts = ranks.filter_map(|rank| job.hosts.name(u32::try_from(rank).ok()?));
    let first = hosts.next()?;
    hosts.all(|host| host == first).then(|| escaped(first))
}

/// Escapes a text for SVG.
fn escaped(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
}

/// Draws the picture.
pub(super) fn svg(job: &Job) -> String {
    let field = TrafficMatrix::of(job);
    let sent = job.sent();
    let headline = format!(
        "{} ranks: {} sent in {} messages",
        job.size,
        traffic_bytes(sent),
        sent.messages
    );
    let matrix = TOP + FIELD + 60.0;
    let timed = calls::sums(job).len().min(MOST_CALLS);
    #[allow(clippy::cast_precision_loss, reason = "places in a picture")]
    let below = match timed {
        0 => 0.0,
        some => 50.0 + CALL * some as f64,
    };
    let (width, height) = (LEFT + FIELD + 30.0 + BAR + 70.0, matrix + below);
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" viewBox=\"0 0 {width} {height}\" \
         font-family=\"system-ui, sans-serif\" font-size=\"12\" role=\"img\">\n<title>{headline}</title>\n{STYLE}\
         <rect class=\"paper\" width=\"{width}\" height=\"{height}\"/>\n"
    );
    let _ = writeln!(
        out,
        "<text x=\"20\" y=\"30\" font-size=\"16\">{headline}</text>"
    );
    let _ = writeln!(
        out,
        "<text class=\"faint\" x=\"20\" y=\"50\">{}</text>",
        job.finding().unwrap_or_default()
    );
    if let Some(words) = hosts::describe_host_traffic(job) {
        let _ = writeln!(
            out,
            "<text class=\"faint\" x=\"20\" y=\"68\">{words}</text>"
        );
    }
    cells(&mut out, &field, job.size);
    borders(&mut out, &field);
    bars(&mut out, &field, job.size);
    legend(&mut out, &field);
    functions(&mut out, job, matrix);
    out.push_str("</svg>\n");
    out
}

#[allow(clippy::cast_precision_loss, reason = "places in a picture")]
fn cells(out: &mut String, field: &TrafficMatrix, size: u32) {
    let side = FIELD / field.lines as f64;
    let gap = if side > 6.0 { 1.0 } else { 0.0 };
    let _ = writeln!(
        out,
        "<rect class=\"none\" x=\"{LEFT}\" y=\"{TOP}\" width=\"{FIELD}\" height=\"{FIELD}\"/>"
    );
    let _ = writeln!(
        out,
        "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">to rank</text>",
        LEFT + FIELD / 2.0,
        TOP - 24.0
    );
    let middle = TOP + FIELD / 2.0;
    let _ = writeln!(
        out,
        "<text x=\"22\" y=\"{middle:.1}\" text-anchor=\"middle\" transform=\"rotate(-90 22 {middle:.1})\">from rank</text>"
    );
    let every = field.lines.div_ceil(16);
    for line in (0..field.lines).step_by(every) {
        let at = (line as f64 + 0.5) * side;
        let rank = line * field.step;
        let _ = writeln!(
            out,
            "<text class=\"faint\" x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{rank}</text>",
            LEFT + at,
            TOP - 8.0
        );
        let _ = writeln!(
            out,
            "<text class=\"faint\" x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{rank}</text>",
            LEFT - 8.0,
            TOP + at + 4.0
        );
    }
    for (place, cell) in field
        .cells
        .iter()
        .enumerate()
        .filter(|(_, cell)| cell.messages > 0)
    {
        let (from, to) = (place / field.lines, place % field.lines);
        let _ = writeln!(
            out,
            "<rect class=\"some\" fill-opacity=\"{:.2}\" x=\"{:.2}\" y=\"{:.2}\" width=\"{:.2}\" height=\"{:.2}\"><title>{} to {}: {} in {} \
             messages</title></rect>",
            field.shade(*cell),
            LEFT + to as f64 * side,
            TOP + from as f64 * side,
            side - gap,
            side - gap,
            field.name(from, size),
            field.name(to, size),
            traffic_bytes(*cell),
            cell.messages
        );
    }
}

/// Lines between the ranks of different hosts.
#[allow(clippy::cast_precision_loss, reason = "places in a picture")]
fn borders(out: &mut String, field: &TrafficMatrix) {
    let side = FIELD / field.lines as f64;
    let borders = (1..field.lines).filter(|line| field.hosts[line - 1] != field.hosts[*line]);
    for at in borders.map(|line| line as f64 * side - 0.5) {
        let (x, y, right, bottom) = (LEFT + at, TOP + at, LEFT + FIELD, TOP + FIELD);
        let _ = writeln!(
            out,
            "<path class=\"host\" d=\"M{x:.1} {TOP}V{bottom}M{LEFT} {y:.1}H{right}\"/>"
        );
    }
}

/// The waiting time of each row's ranks.
#[allow(clippy::cast_precision_loss, reason = "places in a picture")]
fn bars(out: &mut String, field: &TrafficMatrix, size: u32) {
    if field.times.iter().all(Option::is_none) {
        return;
    }
    let left = LEFT + FIELD + 30.0;
    let side = FIELD / field.lines as f64;
    let thick = (side * 0.8).min(24.0);
    let _ = writeln!(
        out,
        "<text x=\"{left:.1}\" y=\"{:.1}\">waiting in MPI, of the time</text>",
        TOP - 24.0
    );
    for (line, (waited, all)) in field
        .times
        .iter()
        .enumerate()
        .filter_map(|(line, times)| Some((line, (*times)?)))
    {
        let share = (waited / all.max(1e-9)).clamp(0.0, 1.0);
        let top = TOP + (line as f64 + 0.5) * side - thick / 2.0;
        let _ = writeln!(
            out,
            "<rect class=\"time\" x=\"{left:.1}\" y=\"{top:.2}\" width=\"{BAR}\" height=\"{thick:.2}\"/><rect class=\"wait\" x=\"{left:.1}\" \
             y=\"{top:.2}\" width=\"{:.1}\" height=\"{thick:.2}\"><title>{} waited {} of the time</title></rect>",
            BAR * share,
            field.name(line, size),
            percent(share)
        );
        if thick >= 9.0 {
            let _ = writeln!(
                out,
                "<text class=\"faint\" x=\"{:.1}\" y=\"{:.1}\">{}</text>",
                left + BAR + 6.0,
                top + thick / 2.0 + 4.0,
                percent(share)
            );
        }
    }
}

/// The functions with most time, as shares of the time of all ranks.
#[allow(clippy::cast_precision_loss, reason = "places in a picture")]
fn functions(out: &mut String, job: &Job, top: f64) {
    let (sums, run_s) = (calls::sums(job), calls::run_s(job));
    if sums.is_empty() {
        return;
    }
    let (left, wide) = (LEFT + 150.0, FIELD - 150.0 + 30.0 + BAR);
    let _ = writeln!(
        out,
        "<text x=\"{LEFT}\" y=\"{:.1}\">calls of MPI, of the ranks' time</text>",
        top + 16.0
    );
    for (at, sum) in sums.iter().take(MOST_CALLS).enumerate() {
        let (y, part) = (top + 28.0 + CALL * at as f64, share(sum.seconds, run_s));
        let _ = writeln!(
            out,
            "<text class=\"faint\" x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{}</text><rect class=\"time\" x=\"{left:.1}\" y=\"{y:.1}\" \
             width=\"{wide:.1}\" height=\"14\"/><rect class=\"call\" x=\"{left:.1}\" y=\"{y:.1}\" width=\"{:.1}\" height=\"14\"><title>{}: {} \
             calls, {}</title></rect><text class=\"faint\" x=\"{:.1}\" y=\"{:.1}\">{}</text>",
            left - 8.0,
            y + 11.0,
            sum.name,
            wide * part,
            sum.name,
            sum.calls,
            seconds(sum.seconds),
            left + wide + 6.0,
            y + 11.0,
            percent(part)
        );
    }
}

fn legend(out: &mut String, field: &TrafficMatrix) {
    if field.most == 0.0 && field.least > 0.0 {
        return;
    }
    let y = TOP + FIELD + 22.0;
    // A single shade if all cells are equal.
    let steps: &[u8] = if field.least < field.most {
        &[0, 1, 2, 3, 4]
    } else {
        &[4]
    };
    let mut x = LEFT;
    for step in steps {
        let _ = writeln!(
            out,
            "<rect class=\"some\" fill-opacity=\"{:.2}\" x=\"{x:.1}\" y=\"{y:.1}\" width=\"24\" height=\"14\"/>",
            0.15 + 0.85 * f64::from(*step) / 4.0
        );
        x += 24.0;
    }
    let words = match steps.len() {
        1 => bytes(field.most),
        _ => format!(
            "from {} to {} (logarithmic)",
            bytes(field.least),
            bytes(field.most)
        ),
    };
    let _ = writeln!(
        out,
        "<text class=\"faint\" x=\"{:.1}\" y=\"{:.1}\">{words}</text>",
        x + 8.0,
        y + 11.0
    );
}

#[cfg(test)]
mod tests {
    use super::super::calls::tests::timed_job;
    use super::super::record::{Values, tests::record};
    use super::*;

    /// Each rank sends to the next, rank 0 most.
    fn ring(size: u32) -> Job {
        let mut records = Vec::new();
        for rank in 0..size {
            let mut one = record(rank);
            let to = |number: u64| {
                (0..size)
                    .map(|to| if to == (rank + 1) % size { number } else { 0 })
                    .collect()
            };
            one.variables = vec![
                (
                    "sent_bytes_to".into(),
                    Values::Whole(to(if rank == 0 { 1 << 20 } else { 1024 })),
                ),
                ("sent_messages_to".into(), Values::Whole(to(4))),
                ("time_waiting".into(), Values::Real(vec![0.5])),
            ];
            records.push(one);
        }
        Job::of(size, records)
    }

    #[test]
    fn each_pair_is_a_cell_and_each_rank_a_bar() {
        let picture = svg(&ring(3));
        assert!(
            picture.contains("<title>rank 0 to rank 1: 1.00 MiB in 4 messages</title>"),
            "{picture}"
        );
        assert!(
            picture.contains("fill-opacity=\"0.15\"") && picture.contains("fill-opacity=\"1.00\"")
        );
        assert_eq!(picture.matches("class=\"wait\"").count(), 3);
        assert_eq!(picture.matches("</title></rect>").count(), 6);
        assert!(picture.contains("rank 2 waited 25 % of the time"));
    }

    #[test]
    fn ranks_of_different_hosts_are_parted_by_lines() {
        let nodes = [("a<1>", vec![0, 1]), ("b", vec![2])];
        let nodes = nodes.map(|(name, ranks)| (name.to_owned(), ranks));
        let hosts = hosts::RankHosts::of(nodes.into_iter());
        let picture = svg(&Job { hosts, ..ring(3) });
        assert_eq!(picture.matches("class=\"host\"").count(), 1, "{picture}");
        assert!(picture.contains("<title>rank 1 on a&lt;1&gt; to rank 2 on b: 1.00 KiB"));
        assert!(
            picture.contains(">between hosts: 2.00 KiB in 8 messages, 0 % of all that was sent<")
        );
        assert_eq!(svg(&ring(3)).matches("class=\"host\"").count(), 0);
    }

    #[test]
    fn each_function_is_a_bar() {
        let picture = svg(&timed_job(2));
        assert_eq!(picture.matches("class=\"call\"").count(), 3);
        assert!(
            picture.contains("<title>MPI_Recv: 10 calls, 1.00 s</title>"),
            "{picture}"
        );
        assert_eq!(svg(&ring(3)).matches("calls of MPI").count(), 0);
    }

    #[test]
    fn many_ranks_share_lines() {
        let picture = svg(&ring(1000));
        assert!(
            picture.contains("<title>ranks 0 to 15 to ranks 0 to 15: "),
            "{picture}"
        );
        assert!(
            picture.contains(
                "<title>ranks 992 to 999 to ranks 0 to 15: 1.00 KiB in 4 messages</title>"
            )
        );
        assert_eq!(picture.matches("class=\"wait\"").count(), 63);
        assert!(picture.len() < 100_000);
    }

    #[test]
    fn a_job_that_sent_nothing_is_drawn_too() {
        let picture = svg(&Job::of(4, Vec::new()));
        assert!(
            picture.ends_with("</svg>\n") && !picture.contains("NaN") && !picture.contains("inf")
        );
    }
}
