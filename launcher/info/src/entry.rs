// SPDX-License-Identifier: MIT OR Apache-2.0
//! A row of the tables of variables and events, with its text form, its JSON form and its search.

use serde_json::{Map, Value};

/// One variable or event.
pub(crate) struct TableEntry {
    /// Topic of this entry. Consecutive entries with the same topic form a group, and the topic is a line above the
    /// group. Empty if the entry has no topic.
    pub(crate) group: &'static str,
    /// The entry as text, with a newline at the end.
    pub(crate) text: String,
    /// The entry as JSON.
    pub(crate) json: Value,
}

impl TableEntry {
    /// Whether the text contains all words of `wanted`, ignoring case.
    pub(crate) fn is_about(&self, wanted: &str) -> bool {
        let text = self.text.to_lowercase();
        // The text becomes one line. So a line break between two words does not matter.
        let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
        wanted
            .to_lowercase()
            .split_whitespace()
            .all(|word| text.contains(word))
    }
}

/// The name of a kind of entry, and the entries of this kind.
pub(crate) type List = (&'static str, Vec<TableEntry>);

/// Formats the lists as text: entries separated by an empty line, below the topic of their group.
pub(crate) fn page(lists: &[List]) -> String {
    let (mut parts, mut group) = (Vec::new(), "");
    for entry in lists.iter().flat_map(|(_, entries)| entries) {
        if entry.group != group {
            group = entry.group;
            parts.push(format!("{group}\n"));
        }
        parts.push(entry.text.clone());
    }
    parts.join("\n")
}

/// Formats the lists as JSON: an object with an array for each list, under the name of the kind.
pub(crate) fn json(lists: Vec<List>) -> String {
    let all: Map<String, Value> = lists
        .into_iter()
        .map(|(word, entries)| {
            let entries = entries.into_iter().map(|entry| entry.json).collect();
            (word.to_owned(), Value::Array(entries))
        })
        .collect();
    format!("{:#}\n", Value::Object(all))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_is_named_above_its_first_entry() {
        let one = |group, text: &str| TableEntry {
            group,
            text: text.to_owned(),
            json: Value::Null,
        };
        let entries = vec![
            one("Waiting.", "A\n"),
            one("Waiting.", "B\n"),
            one("Memory.", "C\n"),
        ];
        let page = page(&[("vars", entries)]);
        assert_eq!(page, "Waiting.\n\nA\n\nB\n\nMemory.\n\nC\n");
    }

    #[test]
    fn a_search_matches_all_words_in_any_order_and_case() {
        let entry = TableEntry {
            group: "",
            text: "MPI_T_UMQ_LENGTH  level\n    Messages that no\n    receive has matched.\n"
                .into(),
            json: Value::Null,
        };
        for wanted in ["umq", "receive MESSAGES", "no receive", " level "] {
            assert!(entry.is_about(wanted), "{wanted}");
        }
        for wanted in ["umqs", "messages sent"] {
            assert!(!entry.is_about(wanted), "{wanted}");
        }
    }
}
