// SPDX-License-Identifier: MIT OR Apache-2.0
//! Formats text: line breaking and sizes.

/// Breaks a text into lines of at most `WIDTH` characters, indented by `indent` spaces.
pub(crate) fn wrapped(text: &str, indent: usize) -> String {
    let mut all = String::new();
    let mut line = String::new();
    for word in text.split_whitespace() {
        let width = indent + line.chars().count() + 1 + word.chars().count();
        if !line.is_empty() && width > WIDTH {
            push(&mut all, indent, &line);
            line.clear();
        }
        if !line.is_empty() {
            line.push(' ');
        }
        line.push_str(word);
    }
    push(&mut all, indent, &line);
    all
}

fn push(all: &mut String, indent: usize, line: &str) {
    if !line.is_empty() {
        all.push_str(&" ".repeat(indent));
        all.push_str(line);
        all.push('\n');
    }
}

/// Formats a number of bytes in KiB, for users.
pub(crate) fn kib(bytes: u64) -> String {
    format!("{} KiB", bytes.div_ceil(1024))
}

const WIDTH: usize = 100;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_texts_are_wrapped_only_between_words() {
        let text = wrapped(&format!("{} b {}", "a".repeat(90), "c".repeat(120)), 4);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 2, "{text}");
        assert!(lines[0].starts_with("    a") && lines[0].ends_with("a b"));
        assert_eq!(lines[1], format!("    {}", "c".repeat(120)));
        assert_eq!(wrapped(" ", 2), "");
        assert_eq!(
            (kib(1), kib(8192 << 10)),
            ("1 KiB".into(), "8192 KiB".into())
        );
    }
}
