// SPDX-License-Identifier: MIT OR Apache-2.0
//! The table of events.

use crate::entry::TableEntry;
use crate::text::wrapped;
use runtime::var::events::{EVENTS, Element, ElementType, EventDescription};
use serde_json::{Value, json};

/// All events.
pub(crate) fn entries() -> Vec<TableEntry> {
    EVENTS.iter().map(one).collect()
}

fn one(row: &EventDescription) -> TableEntry {
    let category = row.category.name();
    let elements: Vec<String> = row.elements.iter().map(element).collect();
    let elements = wrapped(&format!("({})", elements.join(", ")), 4);
    let text = format!(
        "{}  in {category}\n{elements}{}",
        row.name,
        wrapped(row.text, 4)
    );
    let places = row.displacements().zip(row.elements);
    let json = json!({
        "name": row.name,
        "category": category,
        "verbosity": format!("{:?}", row.verbosity),
        "elements": places.map(|(at, element)| described(at, element)).collect::<Vec<_>>(),
        "text": row.text,
    });
    TableEntry {
        group: "",
        text,
        json,
    }
}

fn element(element: &Element) -> String {
    format!("{} {}", kind(element.kind), element.name)
}

fn described(displacement: usize, element: &Element) -> Value {
    let mut json = json!({
        "name": element.name,
        "type": kind(element.kind),
        "displacement": displacement,
    });
    if !element.words.is_empty() {
        json["words"] = element.words.into();
    }
    json
}

fn kind(kind: ElementType) -> &'static str {
    match kind {
        ElementType::Int => "int",
        ElementType::Long => "unsigned long long",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::entry::page;

    #[test]
    fn every_event_is_listed_with_elements_and_text() {
        let page = page(&[("events", entries())]);
        let joined = page.split_whitespace().collect::<Vec<_>>().join(" ");
        for row in EVENTS {
            let is_head = |line: &str| line.split(' ').next() == Some(row.name);
            assert!(page.lines().any(is_head), "{}", row.name);
            let text = row.text.split_whitespace().collect::<Vec<_>>();
            assert!(joined.contains(&text.join(" ")), "{}", row.name);
        }
        let lines = "peer_lost  in rmpi.network\n    (int peer)\n    A process does not respond";
        assert!(page.contains(lines), "{page}");
        assert!(page.lines().all(|line| line.chars().count() <= 100));
    }

    #[test]
    fn json_lists_event_elements_with_displacements() {
        let all = entries();
        let found = all.iter().find(|it| it.json["name"] == "request_complete");
        let elements = &found.unwrap().json["elements"];
        assert_eq!(elements[0]["words"], json!(["send", "receive"]));
        assert_eq!(elements[1]["displacement"], 8);
        assert_eq!(elements[5]["type"], "unsigned long long");
    }
}
