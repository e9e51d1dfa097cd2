// SPDX-License-Identifier: MIT OR Apache-2.0
//! An SVG document under construction, and its elements.

use std::fmt::{Display, Write as _};

use crate::style::{Rule, sheet};
use crate::text::{FONT, escape, shortened};

const TITLE_FONT: f64 = 16.0;
/// The distance from one line of text to the next, in pixels.
pub(crate) const LINE: f64 = 18.0;
/// The margin to the left and to the right of the heading, in pixels.
pub(crate) const MARGIN: f64 = 20.0;

/// An SVG document under construction. Lengths are in pixels; y grows downwards.
#[derive(Clone, Debug)]
pub struct Canvas {
    out: String,
    width: f64,
}

/// The part of a text that is at the text's x coordinate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TextAnchor {
    /// Its left end.
    Start,
    /// Its centre.
    Middle,
    /// Its right end.
    End,
}

impl Canvas {
    /// An empty canvas with a painted background. `title` is for screen readers.
    ///
    /// The classes `ink` (text) and `faint` (labels, notes) exist on every canvas; `rules` define the others.
    #[must_use]
    pub fn new((width, height): (f64, f64), title: &str, rules: &[Rule]) -> Self {
        let out = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width:.0}\" height=\"{height:.0}\" \
             viewBox=\"0 0 {width:.0} {height:.0}\" font-family=\"system-ui, sans-serif\" font-size=\"{FONT}\" role=\"img\">\n\
             <title>{}</title>\n{}",
            escape(title),
            sheet(rules)
        );
        let mut canvas = Self { out, width };
        canvas.draw(&SvgElement::rect("paper", (0.0, 0.0), (width, height)));
        canvas
    }

    /// Draws the title in large letters and the notes below it; returns the y coordinate of the last line.
    pub fn heading<T: AsRef<str>>(&mut self, title: &str, notes: &[T]) -> f64 {
        let mut y = 28.0;
        let title = shortened(title, self.width - 2.0 * MARGIN, TITLE_FONT);
        let title = SvgElement::text("ink", (MARGIN, y), TextAnchor::Start, &title);
        self.draw(&title.set("font-size", TITLE_FONT).set("font-weight", 600));
        for note in notes {
            y += LINE;
            self.text("faint", (MARGIN, y), TextAnchor::Start, note.as_ref());
        }
        y
    }

    /// Draws one line of text, shortened if the canvas has no room for all of it.
    pub fn text(&mut self, class: &str, at: (f64, f64), anchor: TextAnchor, text: &str) {
        let room = match anchor {
            TextAnchor::Start => self.width - at.0 - 4.0,
            TextAnchor::Middle | TextAnchor::End => self.width,
        };
        let text = shortened(text, room, FONT);
        self.draw(&SvgElement::text(class, at, anchor, &text));
    }

    /// Draws an element on top of all earlier ones.
    pub fn draw(&mut self, element: &SvgElement) {
        element.write(&mut self.out);
        self.out.push('\n');
    }

    /// The finished document.
    #[must_use]
    pub fn finish(mut self) -> String {
        self.out.push_str("</svg>\n");
        self.out
    }

    /// The width of the canvas.
    pub(crate) const fn width(&self) -> f64 {
        self.width
    }
}

/// One SVG element: its name, its attributes and its content.
#[derive(Clone, Debug)]
pub struct SvgElement {
    name: &'static str,
    attributes: String,
    content: String,
}

impl SvgElement {
    /// An element with any name; it has no class if `class` is empty.
    #[must_use]
    pub fn new(name: &'static str, class: &str) -> Self {
        let (attributes, content) = (String::new(), String::new());
        let element = Self {
            name,
            attributes,
            content,
        };
        match class {
            "" => element,
            class => element.set("class", class),
        }
    }

    /// A rectangle with its upper left corner at `(x, y)`.
    #[must_use]
    pub fn rect(class: &str, (x, y): (f64, f64), (width, height): (f64, f64)) -> Self {
        let element = Self::new("rect", class).length("x", x).length("y", y);
        element.length("width", width).length("height", height)
    }

    /// A circle.
    #[must_use]
    pub fn circle(class: &str, (x, y): (f64, f64), radius: f64) -> Self {
        let element = Self::new("circle", class).length("cx", x).length("cy", y);
        element.length("r", radius)
    }

    /// A straight line.
    #[must_use]
    pub fn line(class: &str, from: (f64, f64), to: (f64, f64)) -> Self {
        let element = Self::new("line", class)
            .length("x1", from.0)
            .length("y1", from.1);
        element.length("x2", to.0).length("y2", to.1)
    }

    /// An element with points; `name` is `polyline` or `polygon`.
    #[must_use]
    pub fn points(name: &'static str, class: &str, points: &[(f64, f64)]) -> Self {
        let points = points
            .iter()
            .map(|(x, y)| format!("{},{}", rounded(*x), rounded(*y)));
        let points: Vec<String> = points.collect();
        Self::new(name, class).set("points", points.join(" "))
    }

    /// A `path`, whose attribute `d` is `data`.
    #[must_use]
    pub fn path(class: &str, data: &str) -> Self {
        Self::new("path", class).set("d", data)
    }

    /// One line of text, which is not shortened.
    #[must_use]
    pub fn text(class: &str, (x, y): (f64, f64), anchor: TextAnchor, text: &str) -> Self {
        let mut element = Self::new("text", class).length("x", x).length("y", y);
        element.content = escape(text);
        match anchor {
            TextAnchor::Start => element,
            TextAnchor::Middle => element.set("text-anchor", "middle"),
            TextAnchor::End => element.set("text-anchor", "end"),
        }
    }

    /// Sets an attribute.
    #[must_use]
    pub fn set(mut self, name: &str, value: impl Display) -> Self {
        let _ = write!(
            self.attributes,
            " {name}=\"{}\"",
            escape(&value.to_string())
        );
        self
    }

    /// The text that a viewer shows while the pointer rests on the element.
    #[must_use]
    pub fn tooltip(mut self, text: &str) -> Self {
        let _ = write!(self.content, "<title>{}</title>", escape(text));
        self
    }

    /// Adds an element to the content of this one.
    #[must_use]
    pub fn child(mut self, inner: &Self) -> Self {
        inner.write(&mut self.content);
        self
    }

    fn length(self, name: &str, value: f64) -> Self {
        self.set(name, rounded(value))
    }

    fn write(&self, out: &mut String) {
        let Self {
            name,
            attributes,
            content,
        } = self;
        let _ = match content.as_str() {
            "" => write!(out, "<{name}{attributes}/>"),
            content => write!(out, "<{name}{attributes}>{content}</{name}>"),
        };
    }
}

/// Rounds to hundredths of a pixel.
fn rounded(value: f64) -> f64 {
    (value * 100.0).round() / 100.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_element_has_its_attributes_and_holds_others() {
        let inner = SvgElement::circle("", (1.0 / 3.0, 2.0), 4.0).tooltip("a<b");
        let outer = SvgElement::new("g", "outer").child(&inner);
        let mut text = String::new();
        outer.write(&mut text);
        let expected = "<g class=\"outer\"><circle cx=\"0.33\" cy=\"2\" r=\"4\"><title>a&lt;b</title></circle></g>";
        assert_eq!(text, expected);
    }
}
