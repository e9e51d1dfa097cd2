// SPDX-License-Identifier: MIT OR Apache-2.0
//! Drawings as SVG: pure functions from figures to text.
//!
//! There are two charts, [`LinePlot`] over a continuous axis and [`DotPlot`] over named rows, and the [`Canvas`] that
//! they are drawn on. Other drawings put their own [`SvgElement`]s on a canvas. In a chart every series has a colour, a
//! marker shape and its name in the legend, so that series do not differ only in colour. Each colour is defined for a
//! light and for a dark background. The background is painted, so that text is readable in viewers without
//! `prefers-color-scheme` too.
//!
//! **Knows** SVG and how axes, ticks and text are laid out.
//!
//! **Never** reads or writes a file: callers write the returned text.

mod canvas;
mod chart;
mod dots;
mod lines;
mod scale;
mod style;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
mod text;

pub use canvas::{Canvas, SvgElement, TextAnchor};
pub use dots::{DotPlot, DotRow};
pub use lines::{Axis, LinePlot};
pub use scale::{Scale, bytes, three_digits};
pub use style::{Colour, FAINT, GRID, INK, PAPER, Rule, SERIES};
pub use text::text_width;

/// One point of a series.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Point {
    /// The value on the horizontal axis.
    pub x: f64,
    /// The value on the vertical axis.
    pub y: f64,
    /// The lowest and the highest of the values that `y` summarises, if there are several.
    pub spread: Option<(f64, f64)>,
}

/// Points of one colour, with one entry in the legend.
#[derive(Clone, Debug, PartialEq)]
pub struct Series {
    /// Its name in the legend.
    pub name: String,
    /// Its points, by ascending x. Values outside an axis's domain (not finite; zero on a logarithmic axis) are left
    /// out.
    pub points: Vec<Point>,
}
