// SPDX-License-Identifier: MIT OR Apache-2.0
//! Dots over things that have names: a row for each thing, a dot for each series.

use super::paper::{FONT, Paper, shortened, text_width};
use super::scale::{Scale, Span};

/// A plot of dots.
#[derive(Clone, Debug, PartialEq)]
pub struct Dots {
    /// In large letters.
    pub title: String,
    /// Below it, one line each.
    pub notes: Vec<String>,
    /// What the axis says.
    pub axis: String,
    /// How values lie on it.
    pub scale: Scale,
    /// A value that gets a line from top to bottom.
    pub mark: Option<f64>,
    /// The names of the series.
    pub series: Vec<String>,
    /// The things.
    pub rows: Vec<Thing>,
}

/// One row of a plot of dots.
#[derive(Clone, Debug, PartialEq)]
pub struct Thing {
    /// Its name.
    pub name: String,
    /// The value of each series.
    pub values: Vec<Option<f64>>,
    /// Where a bar stands that one of them must reach.
    pub bar: Option<f64>,
}

const WIDTH: f64 = 760.0;
const ROW: f64 = 24.0;
const NAMES_MAX: f64 = 290.0;

/// Draws the plot.
#[must_use]
pub fn dots(plot: &Dots) -> String {
    let mut draft = Paper::new(WIDTH, 0.0, "");
    let top = draft.head(&plot.title, &plot.notes, &plot.series) + 22.0;
    let bottom = top + ROW * plot.rows.len() as f64;
    let mut paper = Paper::new(WIDTH, bottom + 56.0, &plot.title);
    paper.head(&plot.title, &plot.notes, &plot.series);
    let widest = plot
        .rows
        .iter()
        .map(|row| text_width(&row.name, FONT))
        .fold(0.0, f64::max);
    let left = 20.0 + widest.min(NAMES_MAX) + 14.0;
    // One series says its values in figures, which need room at the right.
    let right = WIDTH - if plot.series.len() == 1 { 80.0 } else { 30.0 };
    let values = plot
        .rows
        .iter()
        .flat_map(|row| row.values.iter().flatten().copied());
    let bars = plot.rows.iter().filter_map(|row| row.bar);
    let span = Span::of(plot.scale, values.chain(bars).chain(plot.mark));
    let across = |value: f64| {
        span.place(value)
            .map(|place| left + place.clamp(0.0, 1.0) * (right - left))
    };
    for (value, label) in span.ticks() {
        let Some(x) = across(value) else { continue };
        paper.line("grid", (x, top), (x, bottom));
        paper.words(x, bottom + 18.0, &label, "middle", "faint");
    }
    if let Some(x) = plot.mark.and_then(across) {
        paper.line("one", (x, top), (x, bottom));
    }
    paper.line("frame", (left, bottom), (right, bottom));
    let middle = f64::midpoint(left, right);
    let room = 2.0 * (WIDTH - 8.0 - middle).min(middle);
    let axis = shortened(&plot.axis, room);
    paper.words(middle, bottom + 42.0, &axis, "middle", "ink");
    for (index, row) in plot.rows.iter().enumerate() {
        let y = top + ROW * (index as f64 + 0.5);
        draw(
            &mut paper,
            (left, right, y),
            row,
            across,
            plot.series.len() == 1,
        );
    }
    paper.finish()
}

fn draw(
    paper: &mut Paper,
    (left, right, y): (f64, f64, f64),
    row: &Thing,
    across: impl Fn(f64) -> Option<f64>,
    in_figures: bool,
) {
    paper.words(
        left - 12.0,
        y + 4.0,
        &shortened(&row.name, NAMES_MAX),
        "end",
        "ink",
    );
    paper.line("grid", (left, y), (right, y));
    if let Some(x) = row.bar.and_then(&across) {
        paper.line("bar", (x, y - 8.0), (x, y + 8.0));
    }
    // The first series is drawn last, on top of the others.
    for (series, value) in row.values.iter().enumerate().rev() {
        let Some((value, x)) = value.and_then(|value| Some((value, across(value)?))) else {
            continue;
        };
        paper.marker(x, y, series);
        if in_figures {
            paper.words(
                x + 10.0,
                y + 4.0,
                &crate::unit::three_digits(value),
                "start",
                "ink",
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{has_text, look, number, of_class};
    use super::*;

    fn plot(series: &[&str], rows: Vec<Thing>) -> Dots {
        Dots {
            title: "rmpi and others".to_owned(),
            notes: vec!["7 rounds".to_owned()],
            axis: "times slower than rmpi".to_owned(),
            scale: Scale::Log,
            mark: Some(1.0),
            series: series.iter().map(|name| (*name).to_owned()).collect(),
            rows,
        }
    }

    fn thing(name: &str, values: &[Option<f64>], bar: Option<f64>) -> Thing {
        Thing {
            name: name.to_owned(),
            values: values.to_vec(),
            bar,
        }
    }

    #[test]
    fn every_value_has_a_dot_and_every_bar_a_stroke() {
        let rows = vec![
            thing("latency 8 B", &[Some(1.0), Some(1.3), None], None),
            thing(
                "64 ranks: barrier",
                &[Some(1.0), Some(40.0), Some(3.5)],
                Some(3.0),
            ),
        ];
        look(
            &dots(&plot(&["rmpi", "mpich5", "intel"], rows)),
            |document| {
                // Two rows and the legend; one row lacks the third.
                let count = |class: &str| of_class(document, class).len();
                assert_eq!(
                    (count("f0"), count("f1"), count("f2"), count("bar")),
                    (3, 3, 2, 1)
                );
                assert!(
                    has_text(document, "64 ranks: barrier")
                        && has_text(document, "times slower than rmpi")
                );
                let one = number(&of_class(document, "one")[0], "x1");
                let dots = of_class(document, "f0");
                assert!(
                    dots[1..]
                        .iter()
                        .all(|dot| (number(dot, "cx") - one).abs() < 0.2)
                );
            },
        );
    }

    #[test]
    fn a_single_series_says_its_values() {
        let one = Dots {
            scale: Scale::Linear,
            mark: None,
            ..plot(
                &["rmpi"],
                vec![
                    thing("private dirty after init", &[Some(284.0)], None),
                    thing("Pss", &[Some(344.0)], None),
                ],
            )
        };
        look(&dots(&one), |document| {
            assert!(has_text(document, "284") && has_text(document, "344"));
        });
    }

    #[test]
    fn long_names_and_no_values_do_no_harm() {
        let name = "a row whose name is far longer than anybody would have the patience to read to its end";
        look(
            &dots(&plot(&["rmpi"], vec![thing(name, &[None], None)])),
            |_| {},
        );
        look(&dots(&plot(&[], Vec::new())), |_| {});
        let wordy = Dots {
            axis: name.to_owned(),
            ..plot(&["rmpi"], vec![thing(name, &[Some(1.0)], None)])
        };
        look(&dots(&wordy), |_| {});
    }
}
