// SPDX-License-Identifier: MIT OR Apache-2.0
//! Colours and the style sheet. Each colour is defined for a light and for a dark background.

use std::fmt::Write as _;

/// A colour on a light and on a dark background.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Colour {
    light: &'static str,
    dark: &'static str,
}

impl Colour {
    /// A colour from its values on a light and on a dark background, as `#rrggbb`.
    #[must_use]
    pub const fn new(light: &'static str, dark: &'static str) -> Self {
        Self { light, dark }
    }

    /// Uses this colour's value for the light background on the dark background too.
    #[must_use]
    pub const fn fixed(self) -> Self {
        Self::new(self.light, self.light)
    }
}

/// The background.
pub const PAPER: Colour = Colour::new("#ffffff", "#0d1117");
/// Titles and names.
pub const INK: Colour = Colour::new("#1b1f24", "#e6edf3");
/// Labels and notes.
pub const FAINT: Colour = Colour::new("#57606a", "#9da7b1");
/// Grid lines, empty cells, the unfilled part of a bar.
pub const GRID: Colour = Colour::new("#d8dee4", "#2b323b");
/// The colours of the series, in the order of the series. They differ in brightness too.
pub const SERIES: [Colour; 8] = [
    Colour::new("#0b62a4", "#5db2f0"),
    Colour::new("#c4470c", "#f2894e"),
    Colour::new("#0a7d57", "#3fc495"),
    Colour::new("#9a4a86", "#dc8fc9"),
    Colour::new("#8a6500", "#e0b22e"),
    Colour::new("#4d4d4d", "#b8b8b8"),
    Colour::new("#5b3fb5", "#a990f0"),
    Colour::new("#a3112f", "#f0718a"),
];

/// One rule of a style sheet: a selector, the property that takes a colour, and further declarations.
#[derive(Clone, Debug)]
pub struct Rule {
    selector: String,
    property: &'static str,
    colour: Colour,
    more: &'static str,
}

impl Rule {
    /// A rule that fills the elements of `selector`.
    pub fn fill(selector: impl Into<String>, colour: Colour) -> Self {
        Self::new(selector.into(), "fill", colour)
    }

    /// A rule that colours the lines or outlines of the elements of `selector`.
    pub fn stroke(selector: impl Into<String>, colour: Colour) -> Self {
        Self::new(selector.into(), "stroke", colour)
    }

    /// Sets further declarations, which do not depend on the background, such as `stroke-width:2`.
    #[must_use]
    pub const fn with(mut self, more: &'static str) -> Self {
        self.more = more;
        self
    }

    const fn new(selector: String, property: &'static str, colour: Colour) -> Self {
        let more = "";
        Self {
            selector,
            property,
            colour,
            more,
        }
    }
}

/// The `<style>` element: the classes that every drawing has (`paper`, `ink`, `faint`), then `rules`.
pub(crate) fn sheet(rules: &[Rule]) -> String {
    let own = [("paper", PAPER), ("ink", INK), ("faint", FAINT)];
    let own = own.map(|(class, colour)| Rule::fill(format!(".{class}"), colour));
    let mut text = String::from("<style>\n");
    for rule in own.iter().chain(rules) {
        let declaration = (rule.property, rule.colour.light, rule.more);
        write(&mut text, &rule.selector, declaration);
    }
    text.push_str("@media (prefers-color-scheme: dark){\n");
    for rule in own.iter().chain(rules) {
        write(
            &mut text,
            &rule.selector,
            (rule.property, rule.colour.dark, ""),
        );
    }
    text.push_str("}\n</style>\n");
    text
}

fn write(text: &mut String, selector: &str, (property, colour, more): (&str, &str, &str)) {
    let separator = if more.is_empty() { "" } else { ";" };
    let _ = writeln!(text, "{selector}{{{property}:{colour}{separator}{more}}}");
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Relative luminance of a colour, as the Web Content Accessibility Guidelines define it.
    fn luminance(colour: &str) -> f64 {
        let part = |at: usize| {
            let value = f64::from(u8::from_str_radix(&colour[at..at + 2], 16).unwrap()) / 255.0;
            if value <= 0.04045 {
                value / 12.92
            } else {
                ((value + 0.055) / 1.055).powf(2.4)
            }
        };
        0.2126 * part(1) + 0.7152 * part(3) + 0.0722 * part(5)
    }

    fn contrast(one: &str, other: &str) -> f64 {
        let (one, other) = (luminance(one) + 0.05, luminance(other) + 0.05);
        (one / other).max(other / one)
    }

    #[test]
    fn every_colour_has_contrast_to_its_background() {
        for colour in SERIES.into_iter().chain([INK, FAINT]) {
            assert!(contrast(colour.light, PAPER.light) >= 4.5, "{colour:?}");
            assert!(contrast(colour.dark, PAPER.dark) >= 4.5, "{colour:?}");
        }
        let text = sheet(&[Rule::stroke(".bar", SERIES[1]).with("stroke-width:2")]);
        assert!(
            text.contains(".bar{stroke:#c4470c;stroke-width:2}\n"),
            "{text}"
        );
        assert!(text.contains(".bar{stroke:#f2894e}\n"), "{text}");
    }
}
