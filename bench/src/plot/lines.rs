// SPDX-License-Identifier: MIT OR Apache-2.0
//! Lines over a continuous axis, for instance time over message size.

use super::paper::Paper;
use super::scale::{Scale, Span};
use super::{Point, Series};

/// What an axis says and how it lies.
#[derive(Clone, Debug, PartialEq)]
pub struct Axis {
    /// Its title, with the unit.
    pub title: String,
    /// How values lie on it.
    pub scale: Scale,
}

/// A plot of lines.
#[derive(Clone, Debug, PartialEq)]
pub struct Lines {
    /// In large letters.
    pub title: String,
    /// Below it, one line each.
    pub notes: Vec<String>,
    /// The horizontal axis.
    pub x: Axis,
    /// The vertical axis.
    pub y: Axis,
    /// Whether the points of a series are joined by a line.
    pub joined: bool,
    /// A value that gets a line from left to right.
    pub mark: Option<f64>,
    /// The lines.
    pub series: Vec<Series>,
}

const WIDTH: f64 = 760.0;
const PLOT_HEIGHT: f64 = 320.0;
const LEFT: f64 = 70.0;
const RIGHT: f64 = WIDTH - 24.0;

/// Where the plot's own area is, and its axes.
struct Area {
    top: f64,
    x: Span,
    y: Span,
}

impl Area {
    fn bottom(&self) -> f64 {
        self.top + PLOT_HEIGHT
    }

    fn across(&self, value: f64) -> Option<f64> {
        // A little room at both sides, so that markers do not lie on the frame.
        let (left, right) = (LEFT + 10.0, RIGHT - 10.0);
        self.x
            .place(value)
            .map(|place| left + place * (right - left))
    }

    fn up(&self, value: f64) -> Option<f64> {
        let place = self.y.place(value)?.clamp(0.0, 1.0);
        Some(self.bottom() - place * PLOT_HEIGHT)
    }
}

/// Draws the plot.
#[must_use]
pub fn lines(plot: &Lines) -> String {
    let names: Vec<String> = plot
        .series
        .iter()
        .map(|series| series.name.clone())
        .collect();
    // The head's height depends on how many rows the legend takes: it is drawn on the paper first, on a second one again.
    let mut draft = Paper::new(WIDTH, 0.0, "");
    let top = draft.head(&plot.title, &plot.notes, &names) + 40.0;
    let mut paper = Paper::new(WIDTH, top + PLOT_HEIGHT + 52.0, &plot.title);
    paper.head(&plot.title, &plot.notes, &names);
    let points = plot.series.iter().flat_map(|series| &series.points);
    let heights = points.clone().flat_map(|point| {
        let spread = point.spread.unwrap_or((point.y, point.y));
        [point.y, spread.0, spread.1]
    });
    let area = Area {
        top,
        x: Span::of(plot.x.scale, points.map(|point| point.x)),
        y: Span::of(plot.y.scale, heights.chain(plot.mark)),
    };
    frame(&mut paper, &area, plot);
    for (index, series) in plot.series.iter().enumerate() {
        draw(&mut paper, &area, index, &series.points, plot.joined);
    }
    paper.finish()
}

fn frame(paper: &mut Paper, area: &Area, plot: &Lines) {
    let bottom = area.bottom();
    for (value, label) in area.y.ticks() {
        let Some(y) = area.up(value) else { continue };
        paper.line("grid", (LEFT, y), (RIGHT, y));
        paper.words(LEFT - 8.0, y + 4.0, &label, "end", "faint");
    }
    for (value, label) in area.x.ticks() {
        let Some(x) = area.across(value) else {
            continue;
        };
        paper.line("grid", (x, area.top), (x, bottom));
        paper.words(x, bottom + 18.0, &label, "middle", "faint");
    }
    if let Some(y) = plot.mark.and_then(|mark| area.up(mark)) {
        paper.line("one", (LEFT, y), (RIGHT, y));
    }
    paper.line("frame", (LEFT, bottom), (RIGHT, bottom));
    paper.line("frame", (LEFT, area.top), (LEFT, bottom));
    paper.words(20.0, area.top - 14.0, &plot.y.title, "start", "ink");
    paper.words(
        f64::midpoint(LEFT, RIGHT),
        bottom + 40.0,
        &plot.x.title,
        "middle",
        "ink",
    );
}

fn draw(paper: &mut Paper, area: &Area, index: usize, points: &[Point], joined: bool) {
    let place = |point: &Point| Some((area.across(point.x)?, area.up(point.y)?));
    let places: Vec<(f64, f64)> = points.iter().filter_map(place).collect();
    if joined && places.len() > 1 {
        paper.polyline(index, &places);
    }
    for point in points {
        let ends = point
            .spread
            .and_then(|(low, high)| Some((area.up(low)?, area.up(high)?)));
        let (Some(x), Some((low, high))) = (area.across(point.x), ends) else {
            continue;
        };
        if (low - high).abs() > 1.0 {
            paper.spread(index, x, (low, high));
        }
    }
    for (x, y) in places {
        paper.marker(x, y, index);
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{has_text, look, number, of_class};
    use super::*;

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

    fn plot(series: Vec<Series>) -> Lines {
        Lines {
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
        look(
            &lines(&plot(vec![series("rmpi", RMPI), other])),
            |document| {
                assert_eq!(of_class(document, "curve").len(), 2);
                // Five and two, and one of each in the legend.
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
            },
        );
    }

    #[test]
    fn points_lie_inside_the_frame_and_higher_values_higher_up() {
        look(&lines(&plot(vec![series("rmpi", RMPI)])), |document| {
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
        look(&lines(&plot(vec![odd])), |document| {
            assert_eq!(of_class(document, "curve").len(), 0);
            assert_eq!(of_class(document, "f0").len(), 2);
        });
        let text = lines(&plot(vec![series("none", &[])]));
        assert!(!text.contains("NaN") && !text.contains("inf"), "{text}");
        look(&text, |_| {});
    }

    #[test]
    fn points_may_stand_alone_around_a_mark() {
        let alone = Lines {
            joined: false,
            mark: Some(1.0),
            ..plot(vec![series("rmpi", RMPI)])
        };
        look(&lines(&alone), |document| {
            assert_eq!(of_class(document, "curve").len(), 0);
            assert_eq!(of_class(document, "f0").len(), 6);
            assert_eq!(of_class(document, "one").len(), 1);
        });
    }

    #[test]
    fn many_long_names_take_several_rows_and_stay_apart() {
        let name = |index: usize| format!("an MPI with a rather long name {index} (best)");
        let many = (0..10).map(|index| series(&name(index), RMPI)).collect();
        look(&lines(&plot(many)), |document| {
            assert!(has_text(document, &name(9)))
        });
    }

    #[test]
    fn both_surroundings_have_their_colours() {
        let text = lines(&plot(vec![series("rmpi", RMPI)]));
        assert!(text.contains("prefers-color-scheme: dark") && text.contains("class=\"paper\""));
    }
}
