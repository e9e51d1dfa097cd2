// SPDX-License-Identifier: MIT OR Apache-2.0
//! Line charts over a continuous axis, for instance time over message size.

use crate::canvas::{Canvas, SvgElement, TextAnchor};
use crate::chart::{ChartArea, WIDTH, begin, line_class, marker};
use crate::scale::{AxisRange, Scale};
use crate::{Point, Series};

/// An axis.
#[derive(Clone, Debug, PartialEq)]
pub struct Axis {
    /// Its title, with the unit.
    pub title: String,
    /// Its scale.
    pub scale: Scale,
}

/// A chart with a line, or only points, for each series.
#[derive(Clone, Debug, PartialEq)]
pub struct LinePlot {
    /// The title, in large letters.
    pub title: String,
    /// Lines below the title.
    pub notes: Vec<String>,
    /// The horizontal axis.
    pub x: Axis,
    /// The vertical axis.
    pub y: Axis,
    /// Whether the points of a series are joined by a line.
    pub joined: bool,
    /// A value at which a horizontal line is drawn from left to right.
    pub mark: Option<f64>,
    /// The series, in the order of the legend.
    pub series: Vec<Series>,
}

const HEIGHT: f64 = 320.0;
const LEFT: f64 = 70.0;
const RIGHT: f64 = WIDTH - 24.0;

/// The area of the values and the ranges of its axes.
struct LineArea {
    frame: ChartArea,
    x: AxisRange,
    y: AxisRange,
}

impl LinePlot {
    /// Draws the chart.
    #[must_use]
    pub fn svg(&self) -> String {
        let names: Vec<String> = self
            .series
            .iter()
            .map(|series| series.name.clone())
            .collect();
        let (mut canvas, heading) = begin(&self.title, &self.notes, &names, HEIGHT + 92.0);
        let points = self.series.iter().flat_map(|series| &series.points);
        let heights = points.clone().flat_map(|point| {
            let spread = point.spread.unwrap_or((point.y, point.y));
            [point.y, spread.0, spread.1]
        });
        let top = heading + 40.0;
        let area = LineArea {
            frame: ChartArea {
                left: LEFT,
                right: RIGHT,
                top,
                bottom: top + HEIGHT,
            },
            x: AxisRange::of(self.x.scale, points.map(|point| point.x)),
            y: AxisRange::of(self.y.scale, heights.chain(self.mark)),
        };
        self.draw_axes(&mut canvas, &area);
        for (index, series) in self.series.iter().enumerate() {
            area.draw(&mut canvas, index, &series.points, self.joined);
        }
        canvas.finish()
    }

    fn draw_axes(&self, canvas: &mut Canvas, area: &LineArea) {
        let frame = area.frame;
        for (value, label) in area.y.ticks() {
            let Some(y) = area.up(value) else { continue };
            frame.horizontal(canvas, "grid", y);
            canvas.text("faint", (LEFT - 8.0, y + 4.0), TextAnchor::End, &label);
        }
        let across = |value: f64| area.across(value);
        frame.x_axis(canvas, &area.x, across, &self.x.title);
        if let Some(y) = self.mark.and_then(|mark| area.up(mark)) {
            frame.horizontal(canvas, "one", y);
        }
        frame.vertical(canvas, "frame", LEFT);
        let at = (20.0, frame.top - 14.0);
        canvas.text("ink", at, TextAnchor::Start, &self.y.title);
    }
}

impl LineArea {
    fn across(&self, value: f64) -> Option<f64> {
        // There is some room at both sides, so that markers do not overlap the frame.
        let (left, right) = (LEFT + 10.0, RIGHT - 10.0);
        let place = self.x.place(value)?;
        Some(left + place * (right - left))
    }

    fn up(&self, value: f64) -> Option<f64> {
        let place = self.y.place(value)?.clamp(0.0, 1.0);
        Some(self.frame.bottom - place * HEIGHT)
    }

    /// Draws one series: its line, a vertical line for the spread of each point, and the markers on top.
    fn draw(&self, canvas: &mut Canvas, series: usize, points: &[Point], joined: bool) {
        let place = |point: &Point| Some((self.across(point.x)?, self.up(point.y)?));
        let places: Vec<(f64, f64)> = points.iter().filter_map(place).collect();
        if joined && places.len() > 1 {
            canvas.draw(&SvgElement::points(
                "polyline",
                &line_class("curve", series),
                &places,
            ));
        }
        for point in points {
            let ends = point
                .spread
                .and_then(|(low, high)| Some((self.up(low)?, self.up(high)?)));
            let (Some(x), Some((low, high))) = (self.across(point.x), ends) else {
                continue;
            };
            if (low - high).abs() > 1.0 {
                let class = line_class("spread", series);
                let stroke = SvgElement::line(&class, (x, low), (x, high));
                canvas.draw(&stroke.set("opacity", 0.6));
            }
        }
        for at in places {
            canvas.draw(&marker(series, at));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{has_text, look, number, of_class};

    fn series(name: &str, points: &[(f64, f64)]) -> Series {
        let point = |(x, y): &(f64, f64)| Point {
            x: *x,
            y: *y,
            spread: Some((y * 0.9, y * 1.2)),
        };
        Series {
            name: name.to_owned(),
            points: points.iter().map(point).collect(),
        }
    }

    fn plot(series: Vec<Series>) -> LinePlot {
        LinePlot {
            title: "latency: one-way time of one message at a time".to_owned(),
            notes: vec!["2 ranks, medians".to_owned(), "a machine".to_owned()],
            x: Axis {
                title: "message size (bytes)".to_owned(),
                scale: Scale::Bytes,
            },
            y: Axis {
                title: "time (µs)".to_owned(),
                scale: Scale::Log,
            },
            joined: true,
            mark: None,
            series,
        }
    }

    const RMPI: &[(f64, f64)] = &[
        (0.0, 0.2),
        (8.0, 0.21),
        (1024.0, 0.7),
        (65536.0, 5.0),
        (4194304.0, 400.0),
    ];

    #[test]
    fn every_series_has_its_line_its_markers_and_its_name() {
        let other = series("mpich5 (best) <&>", &[(8.0, 0.9), (65536.0, 7.0)]);
        look(&plot(vec![series("rmpi", RMPI), other]).svg(), |document| {
            assert_eq!(of_class(document, "curve").len(), 2);
            // Five and two markers, and one more of each series in the legend.
            assert_eq!(of_class(document, "f0").len(), 6);
            assert_eq!(of_class(document, "f1").len(), 3);
            assert_eq!(of_class(document, "spread").len(), 7);
            for text in [
                "rmpi",
                "mpich5 (best) <&>",
                "message size (bytes)",
                "time (µs)",
                "0",
                "64K",
                "100",
            ] {
                assert!(has_text(document, text), "{text}");
            }
        });
    }

    #[test]
    fn points_lie_inside_the_frame_and_higher_values_higher_up() {
        look(&plot(vec![series("rmpi", RMPI)]).svg(), |document| {
            let line = of_class(document, "curve")[0]
                .attribute("points")
                .unwrap()
                .to_owned();
            let places: Vec<(f64, f64)> = line
                .split(' ')
                .map(|place| place.split_once(',').unwrap())
                .map(|(x, y)| (x.parse().unwrap(), y.parse().unwrap()))
                .collect();
            assert!(
                places
                    .windows(2)
                    .all(|pair| pair[0].0 < pair[1].0 && pair[0].1 > pair[1].1),
                "{line}"
            );
            let frame = of_class(document, "frame");
            let (bottom, top) = (number(&frame[0], "y1"), number(&frame[1], "y1"));
            assert!(
                places
                    .iter()
                    .all(|(x, y)| *x > LEFT && *x < RIGHT && *y >= top && *y <= bottom)
            );
        });
    }

    #[test]
    fn what_cannot_be_shown_is_left_out() {
        let odd = series("odd", &[(8.0, 0.0), (16.0, f64::NAN), (32.0, 1.0)]);
        look(&plot(vec![odd]).svg(), |document| {
            assert_eq!(of_class(document, "curve").len(), 0);
            assert_eq!(of_class(document, "f0").len(), 2);
        });
        let text = plot(vec![series("none", &[])]).svg();
        assert!(!text.contains("NaN") && !text.contains("inf"), "{text}");
        look(&text, |_| {});
    }

    #[test]
    fn points_can_be_drawn_without_lines_around_a_mark() {
        let alone = LinePlot {
            joined: false,
            mark: Some(1.0),
            ..plot(vec![series("rmpi", RMPI)])
        };
        look(&alone.svg(), |document| {
            assert_eq!(of_class(document, "curve").len(), 0);
            assert_eq!(of_class(document, "f0").len(), 6);
            assert_eq!(of_class(document, "one").len(), 1);
        });
    }

    #[test]
    fn many_long_names_take_several_rows_without_overlap() {
        let name = |index: usize| format!("an MPI with a rather long name {index} (best)");
        let many = (0..10).map(|index| series(&name(index), RMPI)).collect();
        look(&plot(many).svg(), |document| {
            assert!(has_text(document, &name(9)))
        });
    }

    #[test]
    fn light_and_dark_backgrounds_have_their_colours() {
        let text = plot(vec![series("rmpi", RMPI)]).svg();
        assert!(text.contains("prefers-color-scheme: dark") && text.contains("class=\"paper\""));
        assert!(
            text.contains(".l0{stroke:#0b62a4;fill:none;stroke-width:2}"),
            "{text}"
        );
    }
}
