// SPDX-License-Identifier: MIT OR Apache-2.0
//! Text in a drawing: its estimated width, shortening, and escapes for XML.

/// The font size (pixels) of all text except the title.
pub(crate) const FONT: f64 = 12.0;

/// The estimated width (pixels) of a text of this font size in a sans-serif face. Wide faces such as DejaVu Sans exceed
/// it by up to 10 %.
#[must_use]
pub fn text_width(text: &str, size: f64) -> f64 {
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

/// The text, or its beginning with an ellipsis if it is wider than `room`.
pub(crate) fn shortened(text: &str, room: f64, size: f64) -> String {
    if text_width(text, size) <= room {
        return text.to_owned();
    }
    let mut short: String = text.to_owned();
    while !short.is_empty() && text_width(&short, size) + size > room {
        short.pop();
    }
    format!("{}…", short.trim_end())
}

/// Escapes the characters that XML reserves, and replaces control characters, which XML forbids, by blanks.
pub(crate) fn escape(text: &str) -> String {
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

    #[test]
    fn long_text_is_shortened_to_its_room() {
        let text = "a text that is far too long for the room that it has got here";
        let short = shortened(text, 100.0, FONT);
        assert!(
            short.ends_with('…') && text_width(&short, FONT) <= 100.0 + FONT,
            "{short}"
        );
        assert_eq!(shortened("short", 100.0, FONT), "short");
    }

    #[test]
    fn reserved_and_control_characters_are_escaped() {
        assert_eq!(escape("a<b>&\"c\"\u{1b}"), "a&lt;b&gt;&amp;&quot;c&quot; ");
    }
}
