// SPDX-License-Identifier: MIT OR Apache-2.0
//! Builds the command line of the remote shell for `rmpiexec` and for the benchmarks between hosts: `ssh` and its
//! options, splitting the command line given with `--launcher`, and quoting for a shell. Module [`word`] parses host
//! names.
//!
//! **Knows** the options of `ssh`, the quoting rules of shells, and the words of `--host`.
//! **Never** starts anything, and makes no system call.

pub mod word;

/// `ssh` with options that disable prompts, connection sharing and forwarding, and set a connection timeout of 20 s.
pub const SSH: [&str; 14] = [
    "ssh",
    "-x",
    "-a",
    "-T",
    "-o",
    "BatchMode=yes",
    "-o",
    "ConnectTimeout=20",
    "-o",
    "ControlMaster=no",
    "-o",
    "ControlPath=none",
    "-o",
    "ClearAllForwardings=yes",
];

/// Splits a line into words at blanks, with the quoting rules of a shell; returns at least one word.
///
/// # Errors
/// A message for the user.
pub fn split(line: &str) -> Result<Vec<String>, String> {
    let (mut words, mut word, mut quote) = (Vec::new(), None::<String>, None);
    let mut letters = line.chars();
    while let Some(letter) = letters.next() {
        match (quote, letter) {
            (Some(mark), letter) if letter == mark => quote = None,
            (None, '\'' | '"') => {
                quote = Some(letter);
                word.get_or_insert_default();
            }
            (None | Some('"'), '\\') => {
                let next = letters.next().ok_or("it ends with a \\")?;
                word.get_or_insert_default().push(next);
            }
            (None, ' ' | '\t' | '\n') => words.extend(word.take()),
            (_, letter) => word.get_or_insert_default().push(letter),
        }
    }
    if let Some(mark) = quote {
        return Err(format!("a {mark} is not closed"));
    }
    words.extend(word);
    match words.is_empty() {
        true => Err("it is empty".to_owned()),
        false => Ok(words),
    }
}

/// Quotes a word so that any login shell parses it as one word.
#[must_use]
pub fn quoted(word: &str) -> String {
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "_./:=,-+@%".contains(letter);
    match !word.is_empty() && word.chars().all(is_plain) {
        true => word.to_owned(),
        false => format!("'{}'", word.replace('\'', "'\\''")),
    }
}

/// Quotes these words and joins them to a line for a shell.
#[must_use]
pub fn joined(words: &[String]) -> String {
    let words: Vec<String> = words.iter().map(|word| quoted(word)).collect();
    words.join(" ")
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "test code may panic")]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_split_as_by_a_shell() {
        let words = |line| split(line).unwrap();
        assert_eq!(words("ssh -p 22"), ["ssh", "-p", "22"]);
        assert_eq!(
            words(" 'a b'c  \"d 'e\" f\\ g ''"),
            ["a bc", "d 'e", "f g", ""]
        );
        for wrong in ["", "  ", "'a", "a\\"] {
            assert!(split(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn what_was_joined_is_split_into_the_same() {
        let words = ["a", "it's", "", "two words", "\"$x\"", "\\"].map(String::from);
        assert_eq!(split(&joined(&words)).unwrap(), words);
        assert_eq!(quoted("it's"), "'it'\\''s'");
    }
}
