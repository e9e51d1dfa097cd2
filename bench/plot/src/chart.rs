// SPDX-License-Identifier: MIT OR Apache-2.0
//! The parts that both kinds of chart share: heading and legend, the horizontal axis, markers.

use crate::canvas::{Canvas, LINE, MARGIN, SvgElement, TextAnchor};
use crate::scale::AxisRange;
use crate::style::{FAINT, GRID, INK, Rule, SERIES};
use crate::text::{FONT, shortened, text_width};

/// The width of every chart.
pub(crate) const WIDTH: f64 = 760.0;

/// A canvas with heading and legend, and `below` pixels under them; also returns the y coordinate of the legend's last
/// line.
///
/// The height of the legend depends on the widths of the names, so the legend is laid out once to get the height of the
/// canvas, and then drawn.
pub(crate) fn begin(title: &str, notes: &[String], names: &[String], below: f64) -> (Canvas, f64) {
    let mut draft = Canvas::new((WIDTH, 0.0), "", &[]);
    let top = heading(&mut draft, title, notes, names);
    let mut canvas = Canvas::new((WIDTH, top + below), title, &rules());
    heading(&mut canvas, title, notes, names);
    (canvas, top)
}

/// Draws the heading and, below it, a legend with a marker for each series; returns the y coordinate of the last line.
fn heading(canvas: &mut Canvas, title: &str, notes: &[String], names: &[String]) -> f64 {
    let mut x = MARGIN;
    let mut y = canvas.heading(title, notes) + LINE + 6.0;
    for (index, name) in names.iter().enumerate() {
        let width = 26.0 + text_width(name, FONT);
        if x > MARGIN && x + width > canvas.width() - MARGIN {
            (x, y) = (MARGIN, y + LINE);
        }
        canvas.draw(&marker(index, (x + 7.0, y - 4.0)));
        let name = shortened(name, canvas.width() - 60.0, FONT);
        canvas.text("ink", (x + 18.0, y), TextAnchor::Start, &name);
        x += width + 16.0;
    }
    y
}

/// The rectangle of a chart in which its values lie.
#[derive(Clone, Copy)]
pub(crate) struct ChartArea {
    pub(crate) left: f64,
    pub(crate) right: f64,
    pub(crate) top: f64,
    pub(crate) bottom: f64,
}

impl ChartArea {
    /// Draws the horizontal axis: a grid line and a label for each tick, the frame's lower edge, and the title below.
    /// `across` gives the x coordinate of a value.
    pub(crate) fn x_axis(
        &self,
        canvas: &mut Canvas,
        range: &AxisRange,
        across: impl Fn(f64) -> Option<f64>,
        title: &str,
    ) {
        for (value, label) in range.ticks() {
            let Some(x) = across(value) else { continue };
            self.vertical(canvas, "grid", x);
            canvas.text("faint", (x, self.bottom + 18.0), TextAnchor::Middle, &label);
        }
        self.horizontal(canvas, "frame", self.bottom);
        let middle = f64::midpoint(self.left, self.right);
        let room = 2.0 * (WIDTH - 8.0 - middle).min(middle);
        let title = shortened(title, room, FONT);
        canvas.text(
            "ink",
            (middle, self.bottom + 41.0),
            TextAnchor::Middle,
            &title,
        );
    }

    /// Draws a vertical line from top to bottom.
    pub(crate) fn vertical(&self, canvas: &mut Canvas, class: &str, x: f64) {
        canvas.draw(&SvgElement::line(class, (x, self.top), (x, self.bottom)));
    }

    /// Draws a horizontal line from left to right.
    pub(crate) fn horizontal(&self, canvas: &mut Canvas, class: &str, y: f64) {
        canvas.draw(&SvgElement::line(class, (self.left, y), (self.right, y)));
    }
}

/// The marker of a series, with the colour and the shape of the series.
pub(crate) fn marker(series: usize, (x, y): (f64, f64)) -> SvgElement {
    let class = format!("marker f{}", series % SERIES.len());
    let polygon = |corners: &[(f64, f64)]| {
        let corners = corners.iter().map(|(dx, dy)| (x + dx, y + dy));
        SvgElement::points("polygon", &class, &corners.collect::<Vec<_>>())
    };
    match series % 4 {
        0 => SvgElement::circle(&class, (x, y), 4.0),
        1 => SvgElement::rect(&class, (x - 3.7, y - 3.7), (7.4, 7.4)),
        2 => polygon(&[(0.0, -5.0), (4.6, 3.6), (-4.6, 3.6)]),
        _ => polygon(&[(0.0, -5.2), (5.2, 0.0), (0.0, 5.2), (-5.2, 0.0)]),
    }
}

/// The classes of a line: `class`, and the class with the colour of the series.
pub(crate) fn line_class(class: &str, series: usize) -> String {
    format!("{class} l{}", series % SERIES.len())
}

fn rules() -> Vec<Rule> {
    let mut rules = vec![
        Rule::stroke(".grid", GRID),
        Rule::stroke(".frame", FAINT),
        Rule::stroke(".one", INK).with("stroke-dasharray:4 3"),
        Rule::stroke(".bar", SERIES[1]).with("stroke-width:2"),
    ];
    for (index, colour) in SERIES.into_iter().enumerate() {
        rules.push(Rule::fill(format!(".f{index}"), colour));
        let line = Rule::stroke(format!(".l{index}"), colour);
        rules.push(line.with("fill:none;stroke-width:2"));
    }
    rules
}
