// SPDX-License-Identifier: MIT OR Apache-2.0
//! Checks on a finished drawing, for tests.

use roxmltree::{Document, Node};

/// Parses a drawing and passes it to `check`. Panics if a text is cut off or two texts overlap.
pub fn look(svg: &str, check: impl FnOnce(&Document<'_>)) {
    let document = Document::parse(svg).expect("a drawing is well-formed");
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

/// All text elements.
pub fn texts<'a>(document: &'a Document<'a>) -> impl Iterator<Item = Node<'a, 'a>> {
    document
        .descendants()
        .filter(|node| node.has_tag_name("text"))
}

/// Whether one of the text elements is exactly `wanted`.
pub fn has_text(document: &Document<'_>, wanted: &str) -> bool {
    texts(document).any(|node| node.text() == Some(wanted))
}

/// All elements that have a class.
pub fn of_class<'a>(document: &'a Document<'a>, class: &str) -> Vec<Node<'a, 'a>> {
    let has = |node: &Node<'_, '_>| {
        let classes = node.attribute("class").unwrap_or_default();
        classes.split(' ').any(|word| word == class)
    };
    document.descendants().filter(has).collect()
}

/// The value of an attribute that is a number.
pub fn number(node: &Node<'_, '_>, name: &str) -> f64 {
    let value = node.attribute(name).expect("the attribute is there");
    value.parse().expect("the attribute is a number")
}

/// Left, top, right and bottom of a text, estimated for a sans-serif face, and the text.
fn text_box<'a>(node: &Node<'a, 'a>) -> (f64, f64, f64, f64, &'a str) {
    let text = node.text().unwrap_or_default();
    let size: f64 = node
        .attribute("font-size")
        .map_or(12.0, |size| size.parse().expect("a size is a number"));
    let width = crate::text_width(text, size);
    let (x, y) = (number(node, "x"), number(node, "y"));
    let left = match node.attribute("text-anchor") {
        Some("middle") => x - width / 2.0,
        Some("end") => x - width,
        _ => x,
    };
    (left, y - 0.75 * size, left + width, y + 0.2 * size, text)
}
