// SPDX-License-Identifier: MIT OR Apache-2.0
//! The wait-for graph as a picture (SVG): ranks in a circle, an arrow from each waiting rank to the ranks that it waits for.

use std::collections::BTreeSet;
use std::f64::consts::TAU;
use std::fmt::Write as _;

use crate::verdict::{JobVerdict, VerdictKind};
use crate::waits::{JobWaits, RankState};

/// Draws the graph.
#[must_use]
pub fn svg(waits: &JobWaits, verdict: &JobVerdict) -> String {
    let count = waits.states.len().max(1);
    let plan = GraphLayout::of(count);
    let mut out = head(&plan, verdict);
    let arrows = arrows(waits);
    let steps: BTreeSet<(i32, i32)> = verdict.circles.iter().flat_map(|it| steps(it)).collect();
    let drawn = arrows.iter().take(MOST_ARROWS);
    // Arrows of cycles are drawn over the others.
    let (bold, thin): (Vec<&Arrow>, Vec<&Arrow>) =
        drawn.partition(|it| steps.contains(&(it.from, it.to)));
    for arrow in thin {
        plan.draw(&mut out, arrow, "a");
    }
    for arrow in bold {
        plan.draw(&mut out, arrow, "a c");
    }
    for (rank, state) in (0..).zip(&waits.states) {
        let class = match state {
            RankState::Waits(_) if verdict.stuck.contains(&rank) => "stuck",
            RankState::Waits(_) => "waits",
            RankState::Outside | RankState::Unknown => "out",
            RankState::Finalized | RankState::Ended | RankState::Unseen => "gone",
        };
        let (x, y) = plan.place(rank);
        let from_any = matches!(state, RankState::Waits(waits) if waits.iter().any(waits_for_many));
        if from_any {
            let _ = writeln!(
                out,
                "<circle class=\"any\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"{:.1}\"/>",
                plan.node + 4.0
            );
        }
        let _ = writeln!(
            out,
            "<g class=\"{class}\"><title>{}</title><circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"{:.1}\"/>\
             <text x=\"{x:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{rank}</text></g>",
            escape(&tooltip(rank, state)),
            plan.node,
            y + 4.0
        );
    }
    legend(&mut out, &plan);
    out.push_str("</svg>\n");
    out
}

/// An edge of the wait-for graph.
struct Arrow {
    from: i32,
    to: i32,
    /// One of several ranks is enough.
    any: bool,
}

fn arrows(waits: &JobWaits) -> Vec<Arrow> {
    let mut arrows = Vec::new();
    let mut known = BTreeSet::new();
    for (from, state) in (0..).zip(&waits.states) {
        let RankState::Waits(calls) = state else {
            continue;
        };
        for wait in calls.iter().filter(|it| !waits_for_many(it)) {
            for it in &wait.pending {
                let any = !wait.all || (!it.all && it.ranks.len() > 1);
                let others = it.ranks.iter().filter(|to| known.insert((from, **to)));
                arrows.extend(others.map(|to| Arrow { from, to: *to, any }));
            }
        }
    }
    arrows
}

/// Whether a message from any of many ranks is awaited: drawn as a ring instead of arrows to all.
fn waits_for_many(wait: &crate::waits::RankWait) -> bool {
    let mut pending = wait.pending.iter();
    pending.any(|it| !it.all && it.ranks.len() > MANY)
}

fn steps(circle: &[i32]) -> Vec<(i32, i32)> {
    let next = circle.iter().cycle().skip(1);
    circle.iter().copied().zip(next.copied()).collect()
}

/// Positions in the drawing.
struct GraphLayout {
    count: usize,
    width: f64,
    height: f64,
    middle: (f64, f64),
    radius: f64,
    node: f64,
}

impl GraphLayout {
    #[allow(clippy::cast_precision_loss, reason = "ranks of a job")]
    fn of(count: usize) -> Self {
        let node = 15.0;
        let radius = (count as f64 * (2.0 * node + 24.0) / TAU).max(110.0);
        let width = (2.0 * radius + 120.0).max(560.0);
        let top = 96.0;
        Self {
            count,
            width,
            height: top + 2.0 * radius + 2.0 * node + 60.0,
            middle: (width / 2.0, top + radius + node),
            radius,
            node,
        }
    }

    #[allow(clippy::cast_precision_loss, reason = "ranks of a job")]
    fn place(&self, rank: i32) -> (f64, f64) {
        let angle = TAU * f64::from(rank) / self.count as f64 - TAU / 4.0;
        (
            self.middle.0 + self.radius * angle.cos(),
            self.middle.1 + self.radius * angle.sin(),
        )
    }

    /// Draws an arrow, bent, so that the two arrows of ranks that wait for each other are distinct.
    fn draw(&self, out: &mut String, arrow: &Arrow, class: &str) {
        let ((x1, y1), (x2, y2)) = (self.place(arrow.from), self.place(arrow.to));
        let dashed = if arrow.any { " any" } else { "" };
        if arrow.from == arrow.to {
            let (dx, dy) = (
                (x1 - self.middle.0) / self.radius,
                (y1 - self.middle.1) / self.radius,
            );
            let (x, y) = (x1 + dx * self.node * 1.7, y1 + dy * self.node * 1.7);
            let _ = writeln!(
                out,
                "<circle class=\"{class}{dashed} self\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"{:.1}\"/>",
                self.node * 0.8
            );
            return;
        }
        let (dx, dy) = (x2 - x1, y2 - y1);
        let length = dx.hypot(dy).max(1.0);
        let bend = (length * 0.12).min(40.0);
        let (cx, cy) = (
            f64::midpoint(x1, x2) - dy / length * bend,
            f64::midpoint(y1, y2) + dx / length * bend,
        );
        let towards = |fx: f64, fy: f64, tx: f64, ty: f64, gap: f64| {
            let length = (tx - fx).hypot(ty - fy).max(1.0);
            (tx - (tx - fx) / length * gap, ty - (ty - fy) / length * gap)
        };
        let begin = towards(cx, cy, x1, y1, self.node);
        let end = towards(cx, cy, x2, y2, self.node + 3.0);
        let _ = writeln!(
            out,
            "<path class=\"{class}{dashed}\" marker-end=\"url(#{})\" d=\"M{:.1} {:.1}Q{cx:.1} {cy:.1} {:.1} {:.1}\"/>",
            if class == "a" { "tip" } else { "tipc" },
            begin.0,
            begin.1,
            end.0,
            end.1
        );
    }
}

fn head(plan: &GraphLayout, verdict: &JobVerdict) -> String {
    let (width, height) = (plan.width, plan.height);
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width:.0}\" height=\"{height:.0}\" \
         viewBox=\"0 0 {width:.0} {height:.0}\" font-family=\"system-ui, sans-serif\" font-size=\"12\" role=\"img\">\n\
         <title>{}</title>\n{STYLE}\
         <defs><marker id=\"tip\" viewBox=\"0 0 8 8\" refX=\"7\" refY=\"4\" markerWidth=\"7\" markerHeight=\"7\" \
         orient=\"auto\"><path class=\"tip\" d=\"M0 0L8 4L0 8z\"/></marker>\
         <marker id=\"tipc\" viewBox=\"0 0 8 8\" refX=\"7\" refY=\"4\" markerWidth=\"5\" markerHeight=\"5\" \
         orient=\"auto\"><path class=\"tip c\" d=\"M0 0L8 4L0 8z\"/></marker></defs>\n\
         <rect class=\"paper\" width=\"{width:.0}\" height=\"{height:.0}\"/>\n",
        escape(&verdict.headline)
    );
    let weight = if verdict.kind == VerdictKind::Deadlock {
        " font-weight=\"600\""
    } else {
        ""
    };
    let room = width - 40.0;
    let _ = writeln!(
        out,
        "<text class=\"ink\" x=\"20\" y=\"28\" font-size=\"16\"{weight}>{}</text>",
        escape(&shortened(&verdict.headline, room, 16.0))
    );
    for (line, y) in verdict.causes.iter().zip([48, 66, 84]) {
        let _ = writeln!(
            out,
            "<text class=\"faint\" x=\"20\" y=\"{y}\">{}</text>",
            escape(&shortened(line, room, 12.0))
        );
    }
    out
}

fn legend(out: &mut String, plan: &GraphLayout) {
    let y = plan.height - 22.0;
    let mut x = 28.0;
    for (class, text) in [
        ("stuck", "can never go on"),
        ("waits", "waits"),
        ("out", "not waiting in MPI"),
        ("gone", "has left, or was not seen"),
    ] {
        let _ = writeln!(
            out,
            "<g class=\"{class}\"><circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"7\"/></g>\
             <text class=\"faint\" x=\"{:.1}\" y=\"{:.1}\">{text}</text>",
            x + 12.0,
            y + 4.0
        );
        x += 34.0 + width_of(text, 12.0);
    }
    let _ = writeln!(
        out,
        "<text class=\"faint\" x=\"20\" y=\"{:.1}\">an arrow leads to who is waited for; broken, or a broken ring: any of several</text>",
        y + 18.0
    );
}

/// The tooltip of a rank.
fn tooltip(rank: i32, state: &RankState) -> String {
    match state {
        RankState::Waits(waits) => {
            let calls: Vec<&str> = waits.iter().map(|it| it.call.as_str()).collect();
            format!("rank {rank}: {}", calls.join(", "))
        }
        RankState::Outside => format!("rank {rank} is not waiting in MPI"),
        RankState::Unknown => format!("rank {rank} may wait, or not"),
        RankState::Finalized => format!("rank {rank} has finalized MPI"),
        RankState::Ended => format!("rank {rank} has ended"),
        RankState::Unseen => format!("rank {rank} was not looked at"),
    }
}

/// The approximate width of a text.
fn width_of(text: &str, size: f64) -> f64 {
    let letters = u32::try_from(text.chars().count()).unwrap_or(u32::MAX);
    f64::from(letters) * size * 0.54
}

fn shortened(text: &str, room: f64, size: f64) -> String {
    if width_of(text, size) <= room {
        return text.to_owned();
    }
    let mut short = text.to_owned();
    while !short.is_empty() && width_of(&short, size) + size > room {
        short.pop();
    }
    format!("{}…", short.trim_end())
}

/// Escapes XML's special characters, and replaces control characters, which XML does not permit.
fn escape(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '&' => safe.push_str("&amp;"),
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            '"' => safe.push_str("&quot;"),
            it if it.is_control() || it == '\u{fffe}' || it == '\u{ffff}' => safe.push(' '),
            it => safe.push(it),
        }
    }
    safe
}

const STYLE: &str = "<style>\n.paper{fill:#ffffff}.ink{fill:#1b1f24}.faint{fill:#57606a}\n\
    .a{fill:none;stroke:#8c959f;stroke-width:1.2}.a.c{stroke:#a3112f;stroke-width:2.4}\n\
    .tip{fill:#8c959f}.tip.c{fill:#a3112f}.any{fill:none;stroke:#8c959f;stroke-dasharray:4 3}\n\
    .stuck circle{fill:#a3112f}.waits circle{fill:#0b62a4}.out circle{fill:#0a7d57}.gone circle{fill:#6e7781}\n\
    .stuck text,.waits text,.out text,.gone text{fill:#ffffff;font-weight:600}\n\
    @media (prefers-color-scheme: dark){\n.paper{fill:#0d1117}.ink{fill:#e6edf3}.faint{fill:#9da7b1}\n\
    .a.c{stroke:#f0718a}.tip.c{fill:#f0718a}}\n</style>\n";

/// Maximum number of candidates of one wait that get an arrow each.
const MANY: usize = 8;
/// Maximum number of arrows in a picture.
const MOST_ARROWS: usize = 4096;
