// SPDX-License-Identifier: MIT OR Apache-2.0
//! Draws the wait-for graph as a picture (SVG): ranks in a circle, an arrow from each waiting rank to the ranks that it
//! waits for.

use std::collections::BTreeSet;
use std::f64::consts::TAU;

use plot::{Canvas, Colour, PAPER, Rule, SERIES, SvgElement, TextAnchor, text_width};

use crate::verdict::JobVerdict;
use crate::waits::{JobWaits, RankState};

/// Draws the graph.
#[must_use]
pub fn svg(waits: &JobWaits, verdict: &JobVerdict) -> String {
    let count = waits.states.len().max(1);
    let plan = GraphLayout::of(count);
    let mut canvas = head(&plan, verdict);
    let arrows = arrows(waits);
    let steps: BTreeSet<(i32, i32)> = verdict.circles.iter().flat_map(|it| steps(it)).collect();
    let drawn = arrows.iter().take(MOST_ARROWS);
    // Arrows of cycles are drawn over the others.
    let (bold, thin): (Vec<&Arrow>, Vec<&Arrow>) =
        drawn.partition(|it| steps.contains(&(it.from, it.to)));
    for arrow in thin {
        canvas.draw(&plan.arrow(arrow, "a"));
    }
    for arrow in bold {
        canvas.draw(&plan.arrow(arrow, "a c"));
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
            canvas.draw(&SvgElement::circle("any", (x, y), plan.node + 4.0));
        }
        let label = SvgElement::text("", (x, y + 4.0), TextAnchor::Middle, &rank.to_string());
        let node = SvgElement::new("g", class).tooltip(&tooltip(rank, state));
        let node = node.child(&SvgElement::circle("", (x, y), plan.node));
        canvas.draw(&node.child(&label));
    }
    legend(&mut canvas, &plan);
    canvas.finish()
}

/// Rank `from` waits for rank `to`.
struct Arrow {
    from: i32,
    to: i32,
    /// Whether one of several candidates is enough.
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

/// Whether a wait is for a message from any of many ranks. Such a wait is drawn as a ring instead of an arrow to each
/// of them.
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

    /// Draws an arrow. The arrow is bent: so the arrows of two ranks that wait for each other do not coincide.
    fn arrow(&self, arrow: &Arrow, class: &str) -> SvgElement {
        let ((x1, y1), (x2, y2)) = (self.place(arrow.from), self.place(arrow.to));
        let dashed = if arrow.any { " any" } else { "" };
        if arrow.from == arrow.to {
            let (dx, dy) = (
                (x1 - self.middle.0) / self.radius,
                (y1 - self.middle.1) / self.radius,
            );
            let (x, y) = (x1 + dx * self.node * 1.7, y1 + dy * self.node * 1.7);
            let class = format!("{class}{dashed} self");
            return SvgElement::circle(&class, (x, y), self.node * 0.8);
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
        let data = format!(
            "M{:.1} {:.1}Q{cx:.1} {cy:.1} {:.1} {:.1}",
            begin.0, begin.1, end.0, end.1
        );
        let tip = if class == "a" {
            "url(#tip)"
        } else {
            "url(#tipc)"
        };
        SvgElement::path(&format!("{class}{dashed}"), &data).set("marker-end", tip)
    }
}

/// The canvas with the tips of the arrows, and with the verdict and its causes above the graph.
fn head(plan: &GraphLayout, verdict: &JobVerdict) -> Canvas {
    let mut canvas = Canvas::new((plan.width, plan.height), &verdict.headline, &rules());
    let tips = SvgElement::new("defs", "").child(&tip("tip", "tip", 7));
    canvas.draw(&tips.child(&tip("tipc", "tip c", 5)));
    let causes = &verdict.causes[..verdict.causes.len().min(3)];
    canvas.heading(&verdict.headline, causes);
    canvas
}

fn tip(id: &str, class: &str, size: u32) -> SvgElement {
    let marker = SvgElement::new("marker", "")
        .set("id", id)
        .set("orient", "auto");
    let marker = marker
        .set("viewBox", "0 0 8 8")
        .set("refX", 7)
        .set("refY", 4);
    let marker = marker.set("markerWidth", size).set("markerHeight", size);
    marker.child(&SvgElement::path(class, "M0 0L8 4L0 8z"))
}

fn rules() -> Vec<Rule> {
    const ARROW: Colour = Colour::new("#8c959f", "#8c959f");
    const LEFT_COLOUR: Colour = Colour::new("#6e7781", "#6e7781");
    let mut rules = vec![
        Rule::stroke(".a", ARROW).with("fill:none;stroke-width:1.2"),
        Rule::stroke(".a.c", SERIES[7]).with("stroke-width:2.4"),
        Rule::fill(".tip", ARROW),
        Rule::fill(".tip.c", SERIES[7]),
        Rule::stroke(".any", ARROW).with("fill:none;stroke-dasharray:4 3"),
    ];
    for (class, colour) in STATES
        .into_iter()
        .zip([SERIES[7], SERIES[0], SERIES[2], LEFT_COLOUR])
    {
        // White text must be readable on these colours, whatever the background.
        rules.push(Rule::fill(format!(".{class} circle"), colour.fixed()));
        rules.push(Rule::fill(format!(".{class} text"), PAPER.fixed()).with("font-weight:600"));
    }
    rules
}

fn legend(canvas: &mut Canvas, plan: &GraphLayout) {
    let y = plan.height - 22.0;
    let mut x = 28.0;
    let texts = [
        "can never go on",
        "waits",
        "not waiting in MPI",
        "has left, or was not seen",
    ];
    for (class, text) in STATES.into_iter().zip(texts) {
        let node = SvgElement::circle("", (x, y), 7.0);
        canvas.draw(&SvgElement::new("g", class).child(&node));
        canvas.text("faint", (x + 12.0, y + 4.0), TextAnchor::Start, text);
        x += 34.0 + text_width(text, 12.0);
    }
    let arrows = "an arrow points to the awaited rank; dashed, or a dashed ring: any of several";
    canvas.text("faint", (20.0, y + 18.0), TextAnchor::Start, arrows);
}

/// The text that is shown while the pointer rests on a rank.
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

/// The classes of ranks by their state.
const STATES: [&str; 4] = ["stuck", "waits", "out", "gone"];
/// Maximum number of candidates of one wait that get an arrow each.
const MANY: usize = 8;
/// Maximum number of arrows in a picture.
const MOST_ARROWS: usize = 4096;
