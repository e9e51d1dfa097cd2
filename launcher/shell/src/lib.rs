// SPDX-License-Identifier: MIT OR Apache-2.0
//! Builds the command line of the remote shell for `rmpiexec` and for the benchmarks between hosts: has `ssh` with its
//! options, splits the command line given with `--launcher`, and quotes words for a shell. Module [`word`] parses host
//! names.
//!
//! **Knows** the options of `ssh`, the quoting rules of shells, and the words of `--host`.
//! **Never** starts a process or makes a system call.

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
    let (mut arguments, mut argument, mut quote) = (Vec::new(), None::<String>, None);
    let mut characters = line.chars();
    while let Some(character) = characters.next() {
        match (quote, character) {
            (Some(mark), character) if character == mark => quote = None,
            (None, '\'' | '"') => {
                quote = Some(character);
                argument.get_or_insert_default();
            }
            (None | Some('"'), '\\') => {
                let next = characters.next().ok_or("it ends with a \\")?;
                argument.get_or_insert_default().push(next);
            }
            (None, ' ' | '\t' | '\n') => arguments.extend(argument.take()),
            (_, character) => argument.get_or_insert_default().push(character),
        }
    }
    if let Some(mark) = quote {
        return Err(format!("a {mark} is not closed"));
    }
    arguments.extend(argument);
    match arguments.is_empty() {
        true => Err("it is empty".to_owned()),
        false => Ok(arguments),
    }
}

/// Quotes a word so that any login shell parses it as one word.
#[must_use]
pub fn quoted(argument: &str) -> String {
    let is_plain =
        |character: char| character.is_ascii_alphanumeric() || "_./:=,-+@%".contains(character);
    match !argument.is_empty() && argument.chars().all(is_plain) {
        true => argument.to_owned(),
        false => format!("'{}'", argument.replace('\'', "'\\''")),
    }
}

/// Quotes these words and joins them to a line for a shell.
#[must_use]
pub fn joined(arguments: &[String]) -> String {
    let arguments: Vec<String> = arguments.iter().map(|argument| quoted(argument)).collect();
    arguments.join(" ")
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "test code may panic")]
mod tests {
    use super::*;

    #[test]
    fn a_command_line_is_split_like_in_a_shell() {
        let arguments = |line| split(line).unwrap();
        assert_eq!(arguments("ssh -p 22"), ["ssh", "-p", "22"]);
        assert_eq!(
            arguments(" 'a b'c  \"d 'e\" f\\ g ''"),
            ["a bc", "d 'e", "f g", ""]
        );
        for wrong in ["", "  ", "'a", "a\\"] {
            assert!(split(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn joined_arguments_split_into_the_same_arguments() {
        let arguments = ["a", "it's", "", "two words", "\"$x\"", "\\"].map(String::from);
        assert_eq!(split(&joined(&arguments)).unwrap(), arguments);
        assert_eq!(quoted("it's"), "'it'\\''s'");
    }
}
