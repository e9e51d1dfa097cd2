// SPDX-License-Identifier: MIT OR Apache-2.0
//! Dot charts: a row for each name, with a dot for each series.

use crate::canvas::{Canvas, SvgElement, TextAnchor};
use crate::chart::{ChartArea, WIDTH, begin, marker};
use crate::scale::{AxisRange, Scale, three_digits};
use crate::text::{FONT, shortened, text_width};

/// A chart with a row for each name and a dot for each series.
#[derive(Clone, Debug, PartialEq)]
pub struct DotPlot {
    /// The title, in large letters.
    pub title: String,
    /// Lines below the title.
    pub notes: Vec<String>,
    /// The title of the axis.
    pub axis: String,
    /// The scale of the axis.
    pub scale: Scale,
    /// A value at which a vertical line is drawn from top to bottom.
    pub mark: Option<f64>,
    /// The names of the series.
    pub series: Vec<String>,
    /// The rows from top to bottom.
    pub rows: Vec<DotRow>,
}

/// One row of a [`DotPlot`].
#[derive(Clone, Debug, PartialEq)]
pub struct DotRow {
    /// Its label.
    pub name: String,
    /// The value of each series; `None`: the series has no dot in this row.
    pub values: Vec<Option<f64>>,
    /// A limit for the values, drawn as a short vertical line.
    pub bar: Option<f64>,
}

const ROW: f64 = 24.0;
const NAMES_MAX: f64 = 290.0;

impl DotPlot {
    /// Draws the chart.
    #[must_use]
    pub fn svg(&self) -> String {
        let height = ROW * self.rows.len() as f64;
        let (mut canvas, heading) = begin(&self.title, &self.notes, &self.series, height + 78.0);
        let names = self.rows.iter().map(|row| text_width(&row.name, FONT));
        // The dots of a single series have their values next to them, which need room at the right.
        let with_values = self.series.len() == 1;
        let area = ChartArea {
            left: 34.0 + names.fold(0.0, f64::max).min(NAMES_MAX),
            right: WIDTH - if with_values { 80.0 } else { 30.0 },
            top: heading + 22.0,
            bottom: heading + 22.0 + height,
        };
        let values = self.rows.iter().flat_map(|row| row.values.iter().flatten());
        let bars = self.rows.iter().filter_map(|row| row.bar);
        let range = AxisRange::of(self.scale, values.copied().chain(bars).chain(self.mark));
        let across = |value: f64| {
            let place = range.place(value)?.clamp(0.0, 1.0);
            Some(area.left + place * (area.right - area.left))
        };
        area.x_axis(&mut canvas, &range, across, &self.axis);
        if let Some(x) = self.mark.and_then(across) {
            area.vertical(&mut canvas, "one", x);
        }
        for (index, row) in self.rows.iter().enumerate() {
            let y = area.top + ROW * (index as f64 + 0.5);
            let name = shortened(&row.name, NAMES_MAX, FONT);
            canvas.text("ink", (area.left - 12.0, y + 4.0), TextAnchor::End, &name);
            area.horizontal(&mut canvas, "grid", y);
            row.draw(&mut canvas, y, across, with_values);
        }
        canvas.finish()
    }
}

impl DotRow {
    fn draw(
        &self,
        canvas: &mut Canvas,
        y: f64,
        across: impl Fn(f64) -> Option<f64>,
        with_values: bool,
    ) {
        if let Some(x) = self.bar.and_then(&across) {
            canvas.draw(&SvgElement::line("bar", (x, y - 8.0), (x, y + 8.0)));
        }
        // The first series is drawn last, on top of the others.
        for (series, value) in self.values.iter().enumerate().rev() {
            let Some((value, x)) = value.and_then(|value| Some((value, across(value)?))) else {
                continue;
            };
            canvas.draw(&marker(series, (x, y)));
            if with_values {
                let at = (x + 10.0, y + 4.0);
                canvas.text("ink", at, TextAnchor::Start, &three_digits(value));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{has_text, look, number, of_class};

    fn plot(series: &[&str], rows: Vec<DotRow>) -> DotPlot {
        DotPlot {
            title: "rmpi and others".to_owned(),
            notes: vec!["7 rounds".to_owned()],
            axis: "times slower than rmpi".to_owned(),
            scale: Scale::Log,
            mark: Some(1.0),
            series: series.iter().map(|name| (*name).to_owned()).collect(),
            rows,
        }
    }

    fn row(name: &str, values: &[Option<f64>], bar: Option<f64>) -> DotRow {
        DotRow {
            name: name.to_owned(),
            values: values.to_vec(),
            bar,
        }
    }

    #[test]
    fn every_value_has_a_dot_and_every_bar_a_stroke() {
        let rows = vec![
            row("latency 8 B", &[Some(1.0), Some(1.3), None], None),
            row(
                "64 ranks: barrier",
                &[Some(1.0), Some(40.0), Some(3.5)],
                Some(3.0),
            ),
        ];
        look(
            &plot(&["rmpi", "mpich5", "intel"], rows).svg(),
            |document| {
                // Dots in two rows, and the legend; the third series has no dot in one row.
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
    fn a_single_series_has_its_values_as_text() {
        let one = DotPlot {
            scale: Scale::Linear,
            mark: None,
            ..plot(
                &["rmpi"],
                vec![
                    row("private dirty after init", &[Some(284.0)], None),
                    row("Pss", &[Some(344.0)], None),
                ],
            )
        };
        look(&one.svg(), |document| {
            assert!(has_text(document, "284") && has_text(document, "344"));
        });
    }

    #[test]
    fn long_names_and_missing_values_can_be_drawn() {
        let name = "a row whose name is far longer than anybody would have the patience to read to its end";
        look(
            &plot(&["rmpi"], vec![row(name, &[None], None)]).svg(),
            |_| {},
        );
        look(&plot(&[], Vec::new()).svg(), |_| {});
        let wordy = DotPlot {
            axis: name.to_owned(),
            ..plot(&["rmpi"], vec![row(name, &[Some(1.0)], None)])
        };
        look(&wordy.svg(), |_| {});
    }
}
