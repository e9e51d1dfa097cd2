// SPDX-License-Identifier: MIT OR Apache-2.0
//! Draws the statistics of a job as a picture (SVG): a matrix of the traffic with a row per sender, and beside each row
//! the waiting time of the row's ranks. Lines separate the ranks of different hosts. If calls were timed, the
//! functions' shares of the ranks' time are drawn below.

use super::calls::{self, MOST_CALLS, share};
use super::hosts;
use super::job::{JobStats, Traffic, percent};
use super::table::{bytes, seconds, traffic_bytes};
use plot::{Canvas, Colour, GRID, INK, Rule, SERIES, SvgElement, TextAnchor};
use std::ops::Range;

/// Maximum number of rows of the matrix. With more ranks, each row stands for several ranks.
const MOST_LINES: usize = 64;
const FIELD: f64 = 480.0;
const BAR: f64 = 200.0;
const LEFT: f64 = 70.0;
const TOP: f64 = 110.0;
/// Left end of the bars of waiting time.
const BARS: f64 = LEFT + FIELD + 30.0;
/// Vertical distance between the bars of two functions.
const CALL: f64 = 20.0;

/// The contents of the picture; each line (row or column) stands for `step` ranks.
struct TrafficMatrix {
    /// Number of ranks of a line.
    step: usize,
    lines: usize,
    cells: Vec<Traffic>,
    /// The host of each line's ranks; `None` if the job has only one host, or if the line's ranks are on several hosts.
    hosts: Vec<Option<String>>,
    /// By line: seconds of waiting and seconds in total, summed over the line's ranks; `None` if no rank of the line
    /// has reported them.
    times: Vec<Option<(f64, f64)>>,
    /// The fewest (`least`) and the most bytes (`most`) of a cell with messages.
    least: f64,
    most: f64,
}

impl TrafficMatrix {
    fn of(job: &JobStats) -> Self {
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

    /// Opacity of a cell, from 0 to 1. It is logarithmic, so that small traffic is visible beside large traffic.
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

/// The common host of these ranks; `None` if they are on several hosts or if the job has only one host.
fn host_of(job: &JobStats, ranks: Range<usize>) -> Option<String> {
    let mut hosts = ranks.filter_map(|rank| job.hosts.name(u32::try_from(rank).ok()?));
    let first = hosts.next()?;
    hosts.all(|host| host == first).then(|| first.to_owned())
}

/// Draws the picture.
pub(super) fn svg(job: &JobStats) -> String {
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
    let size = (BARS + BAR + 70.0, matrix + below);
    let mut canvas = Canvas::new(size, &headline, &rules());
    let notes = [job.finding(), hosts::describe_host_traffic(job)];
    let notes: Vec<String> = notes.into_iter().flatten().collect();
    canvas.heading(&headline, &notes);
    cells(&mut canvas, &field, job.size);
    borders(&mut canvas, &field);
    bars(&mut canvas, &field, job.size);
    legend(&mut canvas, &field);
    functions(&mut canvas, job, matrix);
    canvas.finish()
}

fn rules() -> [Rule; 6] {
    [
        Rule::fill(".none", Colour::new("#f0f0f0", "#1c222a")),
        Rule::fill(".some", SERIES[0]),
        Rule::fill(".time", GRID),
        Rule::fill(".wait", SERIES[1]),
        Rule::fill(".call", SERIES[2]),
        Rule::stroke(".host", INK),
    ]
}

#[allow(clippy::cast_precision_loss, reason = "places in a picture")]
fn cells(canvas: &mut Canvas, field: &TrafficMatrix, size: u32) {
    let side = FIELD / field.lines as f64;
    let gap = if side > 6.0 { 1.0 } else { 0.0 };
    canvas.draw(&SvgElement::rect("none", (LEFT, TOP), (FIELD, FIELD)));
    let middle = TOP + FIELD / 2.0;
    let to = (LEFT + FIELD / 2.0, TOP - 24.0);
    canvas.text("ink", to, TextAnchor::Middle, "to rank");
    let from = SvgElement::text("ink", (22.0, middle), TextAnchor::Middle, "from rank");
    canvas.draw(&from.set("transform", format!("rotate(-90 22 {middle:.1})")));
    let every = field.lines.div_ceil(16);
    for line in (0..field.lines).step_by(every) {
        let at = (line as f64 + 0.5) * side;
        let rank = (line * field.step).to_string();
        canvas.text("faint", (LEFT + at, TOP - 8.0), TextAnchor::Middle, &rank);
        canvas.text(
            "faint",
            (LEFT - 8.0, TOP + at + 4.0),
            TextAnchor::End,
            &rank,
        );
    }
    let cells = field.cells.iter().enumerate();
    for (place, cell) in cells.filter(|(_, cell)| cell.messages > 0) {
        let (from, to) = (place / field.lines, place % field.lines);
        let corner = (LEFT + to as f64 * side, TOP + from as f64 * side);
        let tooltip = format!(
            "{} to {}: {} in {} messages",
            field.name(from, size),
            field.name(to, size),
            traffic_bytes(*cell),
            cell.messages
        );
        let cell = shaded(field.shade(*cell), corner, (side - gap, side - gap));
        canvas.draw(&cell.tooltip(&tooltip));
    }
}

/// A rectangle of the matrix or of its legend.
fn shaded(shade: f64, corner: (f64, f64), size: (f64, f64)) -> SvgElement {
    SvgElement::rect("some", corner, size).set("fill-opacity", format!("{shade:.2}"))
}

/// Draws lines between the ranks of different hosts.
#[allow(clippy::cast_precision_loss, reason = "places in a picture")]
fn borders(canvas: &mut Canvas, field: &TrafficMatrix) {
    let side = FIELD / field.lines as f64;
    let borders = (1..field.lines).filter(|line| field.hosts[line - 1] != field.hosts[*line]);
    for at in borders.map(|line| line as f64 * side - 0.5) {
        let (x, y, right, bottom) = (LEFT + at, TOP + at, LEFT + FIELD, TOP + FIELD);
        let data = format!("M{x:.1} {TOP}V{bottom}M{LEFT} {y:.1}H{right}");
        canvas.draw(&SvgElement::path("host", &data));
    }
}

/// Draws the waiting time of each row's ranks as a bar.
#[allow(clippy::cast_precision_loss, reason = "places in a picture")]
fn bars(canvas: &mut Canvas, field: &TrafficMatrix, size: u32) {
    if field.times.iter().all(Option::is_none) {
        return;
    }
    let side = FIELD / field.lines as f64;
    let thick = (side * 0.8).min(24.0);
    let title = "waiting in MPI, of the time";
    canvas.text("ink", (BARS, TOP - 24.0), TextAnchor::Start, title);
    for (line, times) in field.times.iter().enumerate() {
        let Some((waited, all)) = times else { continue };
        let part = (waited / all.max(1e-9)).clamp(0.0, 1.0);
        let top = TOP + (line as f64 + 0.5) * side - thick / 2.0;
        let tooltip = format!(
            "{} waited {} of the time",
            field.name(line, size),
            percent(part)
        );
        bar(canvas, "wait", (BARS, top), (BAR, thick), part, &tooltip);
    }
}

/// Draws a share of the ranks' time as a bar, with the percentage beside the bar if the bar is high enough.
fn bar(
    canvas: &mut Canvas,
    class: &str,
    corner: (f64, f64),
    (width, height): (f64, f64),
    part: f64,
    tooltip: &str,
) {
    canvas.draw(&SvgElement::rect("time", corner, (width, height)));
    canvas.draw(&SvgElement::rect(class, corner, (width * part, height)).tooltip(tooltip));
    if height >= 9.0 {
        let at = (corner.0 + width + 6.0, corner.1 + height / 2.0 + 4.0);
        canvas.text("faint", at, TextAnchor::Start, &percent(part));
    }
}

/// Draws the functions with the most time, as shares of the time of all ranks.
#[allow(clippy::cast_precision_loss, reason = "places in a picture")]
fn functions(canvas: &mut Canvas, job: &JobStats, top: f64) {
    let (sums, run_s) = (calls::sums(job), calls::run_s(job));
    if sums.is_empty() {
        return;
    }
    let left = LEFT + 150.0;
    let title = "calls of MPI, of the ranks' time";
    canvas.text("ink", (LEFT, top + 16.0), TextAnchor::Start, title);
    for (at, sum) in sums.iter().take(MOST_CALLS).enumerate() {
        let (y, part) = (top + 28.0 + CALL * at as f64, share(sum.seconds, run_s));
        let name = (left - 8.0, y + 11.0);
        canvas.text("faint", name, TextAnchor::End, &sum.name);
        let tooltip = format!(
            "{}: {} calls, {}",
            sum.name,
            sum.calls,
            seconds(sum.seconds)
        );
        let size = (BARS + BAR - left, 14.0);
        bar(canvas, "call", (left, y), size, part, &tooltip);
    }
}

fn legend(canvas: &mut Canvas, field: &TrafficMatrix) {
    if field.most == 0.0 && field.least > 0.0 {
        return;
    }
    let y = TOP + FIELD + 22.0;
    // If all cells are equal, the legend has a single shade.
    let steps: &[u8] = if field.least < field.most {
        &[0, 1, 2, 3, 4]
    } else {
        &[4]
    };
    let mut x = LEFT;
    for step in steps {
        let shade = 0.15 + 0.85 * f64::from(*step) / 4.0;
        canvas.draw(&shaded(shade, (x, y), (24.0, 14.0)));
        x += 24.0;
    }
    let label = match steps.len() {
        1 => bytes(field.most),
        _ => format!(
            "from {} to {} (logarithmic)",
            bytes(field.least),
            bytes(field.most)
        ),
    };
    canvas.text("faint", (x + 8.0, y + 11.0), TextAnchor::Start, &label);
}

#[cfg(test)]
mod tests {
    use super::super::calls::tests::timed_job;
    use super::super::record::{Values, tests::record};
    use super::*;

    /// A job in which each rank sends to the next rank; rank 0 sends most.
    fn ring(size: u32) -> JobStats {
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
        JobStats::of(size, records)
    }

    #[test]
    fn the_plot_has_a_cell_per_pair_and_a_bar_per_rank() {
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
    fn the_plot_separates_hosts_by_lines() {
        let nodes = [("a<1>", vec![0, 1]), ("b", vec![2])];
        let nodes = nodes.map(|(name, ranks)| (name.to_owned(), ranks));
        let hosts = hosts::RankHosts::of(nodes.into_iter());
        let picture = svg(&JobStats { hosts, ..ring(3) });
        assert_eq!(picture.matches("class=\"host\"").count(), 1, "{picture}");
        assert!(picture.contains("<title>rank 1 on a&lt;1&gt; to rank 2 on b: 1.00 KiB"));
        assert!(
            picture.contains(">between hosts: 2.00 KiB in 8 messages, 0 % of all that was sent<")
        );
        assert_eq!(svg(&ring(3)).matches("class=\"host\"").count(), 0);
    }

    #[test]
    fn the_plot_has_a_bar_per_function() {
        let picture = svg(&timed_job(2));
        assert_eq!(picture.matches("class=\"call\"").count(), 3);
        assert!(
            picture.contains("<title>MPI_Recv: 10 calls, 1.00 s</title>"),
            "{picture}"
        );
        assert_eq!(svg(&ring(3)).matches("calls of MPI").count(), 0);
    }

    #[test]
    fn the_plot_of_many_ranks_groups_them() {
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
    fn a_job_without_messages_is_plotted() {
        let picture = svg(&JobStats::of(4, Vec::new()));
        assert!(
            picture.ends_with("</svg>\n") && !picture.contains("NaN") && !picture.contains("inf")
        );
    }
}
