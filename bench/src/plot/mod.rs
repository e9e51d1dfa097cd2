// SPDX-License-Identifier: MIT OR Apache-2.0
//! Plots as SVG: pure functions from figures to text.
//!
//! Two forms: [`lines`] over a continuous axis, and [`dots`] over things that have names. Every series has a colour, a
//! marker of its own shape and its name in the legend, so that nothing hangs on colour alone. Paper, ink and colours are
//! said once for light and once for dark surroundings; the paper is painted, so that a viewer that knows only one of them
//! shows readable text too.

mod dots;
mod lines;
mod paper;
mod scale;

pub use dots::{Dots, Thing, dots};
pub use lines::{Axis, Lines, lines};
pub use scale::Scale;
pub(crate) use scale::bytes;

/// One point of a series.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Point {
    /// Where.
    pub x: f64,
    /// The value.
    pub y: f64,
    /// From where to where it scattered, where that is known.
    pub spread: Option<(f64, f64)>,
}

/// The points that belong together.
#[derive(Clone, Debug, PartialEq)]
pub struct Series {
    /// Its name in the legend.
    pub name: String,
    /// Its points, by ascending x. Those that an axis cannot show (a zero on a logarithmic one, what is not finite) are
    /// left out.
    pub points: Vec<Point>,
}

#[cfg(test)]
pub(crate) mod testing {
    //! What the tests of both forms look at in a plot.

    use roxmltree::{Document, Node};

    /// Parses a plot and hands it on; everything must lie on the paper and no text on another.
    pub(crate) fn look(svg: &str, check: impl FnOnce(&Document<'_>)) {
        let document = Document::parse(svg).unwrap();
        assert_eq!(document.root_element().tag_name().name(), "svg");
        let size = |name: &str| number(&document.root_element(), name);
        let (width, height) = (size("width"), size("height"));
        let boxes: Vec<_> = texts(&document).map(|node| text_box(&node)).collect();
        for (left, top, right, bottom, text) in &boxes {
            assert!(
                *left >= 0.0 && *right <= width,
                "{text} is cut off: {left} to {right}"
            );
            assert!(*top >= 0.0 && *bottom <= height, "{text} is cut off");
        }
        for (index, one) in boxes.iter().enumerate() {
            for other in &boxes[index + 1..] {
                let apart =
                    one.2 <= other.0 || other.2 <= one.0 || one.3 <= other.1 || other.3 <= one.1;
                assert!(apart, "\"{}\" lies on \"{}\"", one.4, other.4);
            }
        }
        check(&document);
    }

    pub(crate) fn texts<'a>(document: &'a Document<'a>) -> impl Iterator<Item = Node<'a, 'a>> {
        document
            .descendants()
            .filter(|node| node.has_tag_name("text"))
    }

    pub(crate) fn has_text(document: &Document<'_>, wanted: &str) -> bool {
        texts(document).any(|node| node.text() == Some(wanted))
    }

    pub(crate) fn of_class<'a>(document: &'a Document<'a>, class: &str) -> Vec<Node<'a, 'a>> {
        let has = |node: &Node<'_, '_>| {
            let classes = node.attribute("class").unwrap_or_default();
            classes.split(' ').any(|word| word == class)
        };
        document.descendants().filter(has).collect()
    }

    pub(crate) fn number(node: &Node<'_, '_>, name: &str) -> f64 {
        node.attribute(name).unwrap().parse().unwrap()
    }

    /// Left, top, right, bottom, as a sans-serif face of the size needs at most.
    fn text_box<'a>(node: &Node<'a, 'a>) -> (f64, f64, f64, f64, &'a str) {
        let text = node.text().unwrap_or_default();
        let size: f64 = node
            .attribute("font-size")
            .map_or(12.0, |size| size.parse().unwrap());
        let width = super::paper::text_width(text, size);
        let (x, y) = (number(node, "x"), number(node, "y"));
        let left = match node.attribute("text-anchor") {
            Some("middle") => x - width / 2.0,
            Some("end") => x - width,
            _ => x,
        };
        (left, y - 0.75 * size, left + width, y + 0.2 * size, text)
    }
}
