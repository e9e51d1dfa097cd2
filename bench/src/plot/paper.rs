// SPDX-License-Identifier: MIT OR Apache-2.0
//! What both forms of plots draw with: paper, text, markers, legend.

use std::fmt::Write as _;

/// Light and dark of the colours, in the order of the series. They differ in brightness too.
const COLOURS: [(&str, &str); 8] = [
    ("#0b62a4", "#5db2f0"),
    ("#c4470c", "#f2894e"),
    ("#0a7d57", "#3fc495"),
    ("#9a4a86", "#dc8fc9"),
    ("#8a6500", "#e0b22e"),
    ("#4d4d4d", "#b8b8b8"),
    ("#5b3fb5", "#a990f0"),
    ("#a3112f", "#f0718a"),
];
pub(super) const FONT: f64 = 12.0;
const TITLE_FONT: f64 = 16.0;
const ROW: f64 = 18.0;

/// An SVG that is being drawn.
pub(super) struct Paper {
    text: String,
    width: f64,
}

impl Paper {
    /// White or black paper of a size. `title` is what a screen reader says.
    pub(super) fn new(width: f64, height: f64, title: &str) -> Self {
        let mut text = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" \
             viewBox=\"0 0 {width} {height}\" font-family=\"system-ui, sans-serif\" font-size=\"{FONT}\" role=\"img\">\n\
             <title>{}</title>\n",
            escape(title)
        );
        text.push_str(&style());
        let _ = writeln!(
            text,
            "<rect class=\"paper\" width=\"{width}\" height=\"{height}\"/>"
        );
        Self { text, width }
    }

    /// Title, notes below it and the legend below them; returns where the rest may begin.
    pub(super) fn head(&mut self, title: &str, notes: &[String], names: &[String]) -> f64 {
        self.sized(20.0, 28.0, title, TITLE_FONT);
        let mut y = 28.0;
        for note in notes {
            y += ROW;
            self.words(20.0, y, note, "start", "faint");
        }
        let mut x = 20.0;
        y += ROW + 6.0;
        for (index, name) in names.iter().enumerate() {
            let width = 26.0 + text_width(name, FONT);
            if x > 20.0 && x + width > self.width - 20.0 {
                (x, y) = (20.0, y + ROW);
            }
            self.marker(x + 7.0, y - 4.0, index);
            self.words(
                x + 18.0,
                y,
                &shortened(name, self.width - 60.0),
                "start",
                "ink",
            );
            x += width + 16.0;
        }
        y
    }

    fn sized(&mut self, x: f64, y: f64, text: &str, size: f64) {
        let text = escape(&shortened_to(text, self.width - x - 20.0, size));
        let _ = writeln!(
            self.text,
            "<text class=\"ink\" x=\"{x}\" y=\"{y}\" font-size=\"{size}\" font-weight=\"600\">{text}</text>"
        );
    }

    /// A line of text; `anchor` is start, middle or end, `class` ink or faint.
    pub(super) fn words(&mut self, x: f64, y: f64, text: &str, anchor: &str, class: &str) {
        let room = if anchor == "start" {
            self.width - x - 4.0
        } else {
            self.width
        };
        let text = escape(&shortened(text, room));
        let _ = writeln!(
            self.text,
            "<text class=\"{class}\" x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\">{text}</text>"
        );
    }

    /// A straight line of a class.
    pub(super) fn line(&mut self, class: &str, from: (f64, f64), to: (f64, f64)) {
        let _ = writeln!(
            self.text,
            "<line class=\"{class}\" x1=\"{:.1}\" y1=\"{:.1}\" x2=\"{:.1}\" y2=\"{:.1}\"/>",
            from.0, from.1, to.0, to.1
        );
    }

    /// From where to where values of a series scatter.
    pub(super) fn spread(&mut self, series: usize, x: f64, ends: (f64, f64)) {
        let class = format!("spread l{}", series % COLOURS.len());
        self.line(&class, (x, ends.0), (x, ends.1));
    }

    /// A line through points in the colour of a series.
    pub(super) fn polyline(&mut self, series: usize, points: &[(f64, f64)]) {
        let places: Vec<String> = points
            .iter()
            .map(|(x, y)| format!("{x:.1},{y:.1}"))
            .collect();
        let colour = series % COLOURS.len();
        let _ = writeln!(
            self.text,
            "<polyline class=\"curve l{colour}\" points=\"{}\"/>",
            places.join(" ")
        );
    }

    /// The marker of a series: its colour and its shape.
    pub(super) fn marker(&mut self, x: f64, y: f64, series: usize) {
        let colour = series % COLOURS.len();
        let shape = match series % 4 {
            0 => {
                format!("<circle class=\"marker f{colour}\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"4\"/>")
            }
            1 => format!(
                "<rect class=\"marker f{colour}\" x=\"{:.1}\" y=\"{:.1}\" width=\"7.4\" height=\"7.4\"/>",
                x - 3.7,
                y - 3.7
            ),
            2 => polygon(colour, x, y, &[(0.0, -5.0), (4.6, 3.6), (-4.6, 3.6)]),
            _ => polygon(
                colour,
                x,
                y,
                &[(0.0, -5.2), (5.2, 0.0), (0.0, 5.2), (-5.2, 0.0)],
            ),
        };
        let _ = writeln!(self.text, "{shape}");
    }

    /// The finished text.
    pub(super) fn finish(mut self) -> String {
        self.text.push_str("</svg>\n");
        self.text
    }
}

fn polygon(colour: usize, x: f64, y: f64, corners: &[(f64, f64)]) -> String {
    let places: Vec<String> = corners
        .iter()
        .map(|(dx, dy)| format!("{:.1},{:.1}", x + dx, y + dy))
        .collect();
    format!(
        "<polygon class=\"marker f{colour}\" points=\"{}\"/>",
        places.join(" ")
    )
}

fn style() -> String {
    let mut text = String::from(
        "<style>\n.paper{fill:#ffffff}.ink{fill:#1b1f24}.faint{fill:#57606a}\n\
         .grid{stroke:#d8dee4}.frame{stroke:#57606a}.one{stroke:#1b1f24;stroke-dasharray:4 3}\n\
         .curve{fill:none;stroke-width:2}.spread{stroke-width:1.5;opacity:.6}.bar{stroke:#c4470c;stroke-width:2}\n",
    );
    for (index, (light, _)) in COLOURS.iter().enumerate() {
        let _ = writeln!(text, ".f{index}{{fill:{light}}}.l{index}{{stroke:{light}}}");
    }
    text.push_str(
        "@media (prefers-color-scheme: dark){\n.paper{fill:#0d1117}.ink{fill:#e6edf3}.faint{fill:#9da7b1}\n\
         .grid{stroke:#2b323b}.frame{stroke:#9da7b1}.one{stroke:#e6edf3}.bar{stroke:#f2894e}\n",
    );
    for (index, (_, dark)) in COLOURS.iter().enumerate() {
        let _ = writeln!(text, ".f{index}{{fill:{dark}}}.l{index}{{stroke:{dark}}}");
    }
    text.push_str("}\n</style>\n");
    text
}

/// How wide a text is in a sans-serif face of a size, at most.
pub(super) fn text_width(text: &str, size: f64) -> f64 {
    let narrow = |c: char| "iljtfrI.,:;|!'()[] 1".contains(c);
    let wide = |c: char| "mwMW@%".contains(c);
    let parts = text.chars().map(|c| match c {
        c if narrow(c) => 0.42,
        c if wide(c) => 0.95,
        c if c.is_uppercase() => 0.72,
        _ => 0.60,
    });
    parts.sum::<f64>() * size
}

/// The text, or as much of it as fits.
pub(super) fn shortened(text: &str, room: f64) -> String {
    shortened_to(text, room, FONT)
}

fn shortened_to(text: &str, room: f64, size: f64) -> String {
    if text_width(text, size) <= room {
        return text.to_owned();
    }
    let mut short: String = text.to_owned();
    while !short.is_empty() && text_width(&short, size) + size > room {
        short.pop();
    }
    format!("{}…", short.trim_end())
}

/// Text without what XML reads as its own, and without control characters, which it does not allow.
fn escape(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => safe.push_str("&amp;"),
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            '"' => safe.push_str("&quot;"),
            c if c.is_control() || c == '\u{fffe}' || c == '\u{ffff}' => safe.push(' '),
            c => safe.push(c),
        }
    }
    safe
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
    fn every_colour_stands_out_from_its_paper() {
        for (light, dark) in COLOURS {
            assert!(contrast(light, "#ffffff") >= 4.5, "{light}");
            assert!(contrast(dark, "#0d1117") >= 4.5, "{dark}");
        }
        for (ink, paper) in [
            ("#1b1f24", "#ffffff"),
            ("#57606a", "#ffffff"),
            ("#9da7b1", "#0d1117"),
        ] {
            assert!(
                contrast(ink, paper) >= 4.5 && style().contains(ink),
                "{ink}"
            );
        }
    }

    #[test]
    fn long_text_is_shortened_to_its_room() {
        let text = "a text that is far too long for the room that it has got here";
        let short = shortened(text, 100.0);
        assert!(
            short.ends_with('…') && text_width(&short, FONT) <= 100.0 + FONT,
            "{short}"
        );
        assert_eq!(shortened("short", 100.0), "short");
    }

    #[test]
    fn nothing_that_a_library_calls_itself_breaks_the_file() {
        assert_eq!(escape("a<b>&\"c\"\u{1b}"), "a&lt;b&gt;&amp;&quot;c&quot; ");
    }
}
