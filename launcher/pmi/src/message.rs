// SPDX-License-Identifier: MIT OR Apache-2.0
//! A PMI message: a command and its pairs.

use std::fmt::Write;

/// `key=value` pairs; the first is the command.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PmiMessage(Vec<(String, String)>);

impl PmiMessage {
    /// A command without pairs.
    #[must_use]
    pub fn new(command: &str) -> Self {
        Self(vec![("cmd".to_owned(), command.to_owned())])
    }

    /// Adds a pair.
    #[must_use]
    pub fn with(mut self, key: &str, value: impl ToString) -> Self {
        self.0.push((key.to_owned(), value.to_string()));
        self
    }

    /// The command; empty if there is none.
    #[must_use]
    pub fn command(&self) -> &str {
        self.get("cmd").unwrap_or_default()
    }

    /// The value of a key; if the key occurs several times, its first value.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<&str> {
        let mut pairs = self.0.iter();
        let found = pairs.find(|(known, _)| known == key)?;
        Some(&found.1)
    }

    /// The value of a key as a number; `None` if there is no such key or its value is not a number of type `T`.
    #[must_use]
    pub fn number<T: std::str::FromStr>(&self, key: &str) -> Option<T> {
        self.get(key)?.parse().ok()
    }

    /// Whether a reply has no error; some servers leave out `rc=0`.
    #[must_use]
    pub fn is_well(&self) -> bool {
        self.get("rc").is_none_or(|code| code == "0")
    }

    /// Parses a line of PMI-1, with or without its newline. Words that are not pairs are skipped.
    #[must_use]
    pub fn of_line(line: &str) -> Self {
        let pairs = line.split_ascii_whitespace();
        Self(pairs.filter_map(pair).collect())
    }

    /// The line of PMI-1, with its newline.
    #[must_use]
    pub fn line(&self) -> String {
        let mut line = String::new();
        for (key, value) in &self.0 {
            let between = if line.is_empty() { "" } else { " " };
            let _ = write!(line, "{between}{key}={value}");
        }
        line.push('\n');
        line
    }

    /// Parses a message of PMI-2 without its length field. A semicolon inside a value is written twice.
    #[must_use]
    pub fn of_message(text: &str) -> Self {
        let mut pairs = Vec::new();
        let mut rest = text;
        while !rest.is_empty() {
            let (part, behind) = part(rest);
            pairs.extend(pair(&part));
            rest = behind;
        }
        Self(pairs)
    }

    /// The message of PMI-2, with its length field.
    #[must_use]
    pub fn message(&self) -> String {
        let mut text = String::new();
        for (key, value) in &self.0 {
            let _ = write!(text, "{key}={};", value.replace(';', ";;"));
        }
        format!("{:<6}{text}", text.len())
    }
}

/// Splits a text at the first semicolon that is not doubled: the part before it, with doubled semicolons made single,
/// and the rest.
fn part(text: &str) -> (String, &str) {
    let mut part = String::new();
    let mut rest = text;
    loop {
        let Some((before, behind)) = rest.split_once(';') else {
            part.push_str(rest);
            return (part, "");
        };
        part.push_str(before);
        match behind.strip_prefix(';') {
            Some(behind) => {
                part.push(';');
                rest = behind;
            }
            None => return (part, behind),
        }
    }
}

fn pair(text: &str) -> Option<(String, String)> {
    let (key, value) = text.split_once('=')?;
    Some((key.to_owned(), value.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn line_parsing_ignores_key_order_and_unknown_keys() {
        for line in [
            "cmd=response_to_init rc=0 pmi_version=1 pmi_subversion=2\n",
            "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0",
            "  cmd=response_to_init   pmi_version=1 new=thing odd\n",
        ] {
            let parsed = PmiMessage::of_line(line);
            assert_eq!(parsed.command(), "response_to_init");
            assert_eq!(parsed.number("pmi_version"), Some(1));
            assert!(parsed.is_well());
        }
        assert!(!PmiMessage::of_line("cmd=get_result rc=-1 msg=none").is_well());
        assert_eq!(PmiMessage::of_line("\n"), PmiMessage::default());
        assert_eq!(PmiMessage::default().command(), "");
    }

    #[test]
    fn pmi2_messages_have_a_length_prefix_and_doubled_semicolons() {
        let parsed = PmiMessage::new("kvs-put")
            .with("key", "k")
            .with("value", "a;b");
        assert_eq!(parsed.message(), "29    cmd=kvs-put;key=k;value=a;;b;");
        assert_eq!(
            PmiMessage::of_message("cmd=kvs-put;key=k;value=a;;b;"),
            parsed
        );
    }

    proptest! {
        #[test]
        fn written_text_parses_to_the_same_value(pairs in proptest::collection::vec(("[a-z_]{1,9}", "[!-~&&[^;=]]{0,20}"), 0..6)) {
            let parsed = pairs.iter().fold(PmiMessage::new("put"), |parsed, (key, value)| parsed.with(key, value));
            prop_assert_eq!(&PmiMessage::of_line(&parsed.line()), &parsed);
            prop_assert_eq!(&PmiMessage::of_message(&parsed.message()[6..]), &parsed);
        }

        #[test]
        fn arbitrary_pmi_text_never_panics(text in ".{0,300}") {
            let _ = (PmiMessage::of_line(&text), PmiMessage::of_message(&text));
        }
    }
}
