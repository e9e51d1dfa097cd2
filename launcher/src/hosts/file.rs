// SPDX-License-Identifier: MIT OR Apache-2.0
//! Parses host files, with one parser for three grammars. A line is:
//!
//! | launcher         | line |
//! |------------------|--------------------------------------------------------------------------------------|
//! | rmpi             | a word of `--host`: `n1`, `n1:4`, `n[01-16]:4`, `me@n1`, `[fe80::1]:4` |
//! | MPICH (Hydra)    | `name[:n] [user=U] [binding=B]` |
//! | Open MPI (PRRTE) | `[user@]name [slots=N] [max_slots=N] [port=N] [username=U]`, `^name` excludes a host |
//!
//! Comments extend from `#` or `//` to the end of the line, or from `/*` to `*/`. Words may be `"quoted"`. Blanks may
//! surround `=`.
//!
//! A name without a number of slots has one slot per core. But if some name occurs without a number on several lines,
//! every line without a number is one slot: batch systems write such files.

use super::JobHost;
use super::merge::{Bare, Mention, merge};
use remote_shell::word::{self, Count, MOST_HOSTS, WordError, shown};
use std::collections::HashSet;
use std::iter::Peekable;
use std::str::Chars;

/// Contents of a host file.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct HostFile {
    /// The hosts in the order of their first occurrence.
    pub(crate) hosts: Vec<JobHost>,
    /// Warnings about ignored options.
    pub(crate) remarks: Vec<String>,
}

/// Parses the contents of a host file. `name`: the file's name, for messages.
pub(crate) fn read(name: &str, bytes: &[u8]) -> Result<HostFile, String> {
    let text = String::from_utf8_lossy(bytes);
    let located = |(place, message): (Position, String)| {
        let Position { line, column } = place;
        format!("{name}, line {line}, column {column}: {message}")
    };
    let lines = lines(&text).map_err(located)?;
    let mut content = Content::default();
    for line in lines {
        content.enter(&line).map_err(located)?;
    }
    content
        .listed()
        .map_err(|message| format!("{name}: {message}"))
}

/// Position in a file, both numbers counted from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Position {
    line: usize,
    column: usize,
}

impl Position {
    fn plus(self, characters: usize) -> Self {
        let column = self.column + characters;
        Self { column, ..self }
    }
}

type SyntaxError = (Position, String);

fn wrong<T>(place: Position, message: impl Into<String>) -> Result<T, SyntaxError> {
    Err((place, message.into()))
}

/// A word of a line, or an `=`.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Lexeme {
    place: Position,
    text: String,
    is_equals: bool,
}

/// Splits a text into lines of words, without empty lines.
fn lines(text: &str) -> Result<Vec<Vec<Lexeme>>, SyntaxError> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let mut reader = CharReader::new(text);
    let (mut lines, mut line) = (Vec::new(), Vec::new());
    while let Some(character) = reader.peek() {
        let place = reader.place;
        match character {
            '\n' => {
                lines.push(std::mem::take(&mut line));
                reader.next();
            }
            '#' => reader.skip_line(),
            '/' => reader.skip_comment()?,
            '=' => {
                reader.next();
                let text = "=".to_owned();
                let is_equals = true;
                line.push(Lexeme {
                    place,
                    text,
                    is_equals,
                });
            }
            character if character.is_whitespace() => {
                reader.next();
            }
            _ => {
                let (text, is_equals) = (reader.word()?, false);
                line.push(Lexeme {
                    place,
                    text,
                    is_equals,
                });
            }
        }
    }
    lines.push(line);
    lines.retain(|line| !line.is_empty());
    Ok(lines)
}

/// The remaining characters of a file, and the position of the next character.
struct CharReader<'a> {
    rest: Peekable<Chars<'a>>,
    place: Position,
}

impl<'a> CharReader<'a> {
    fn new(text: &'a str) -> Self {
        let place = Position { line: 1, column: 1 };
        let rest = text.chars().peekable();
        Self { rest, place }
    }

    fn peek(&mut self) -> Option<char> {
        self.rest.peek().copied()
    }

    fn next(&mut self) -> Option<char> {
        let character = self.rest.next()?;
        self.place = match character {
            '\n' => Position {
                line: self.place.line + 1,
                column: 1,
            },
            _ => self.place.plus(1),
        };
        Some(character)
    }

    /// Skips to the end of the line.
    fn skip_line(&mut self) {
        while self.peek().is_some_and(|character| character != '\n') {
            self.next();
        }
    }

    /// Skips a comment that starts with a slash.
    fn skip_comment(&mut self) -> Result<(), SyntaxError> {
        let begin = self.place;
        self.next();
        match self.peek() {
            Some('/') => self.skip_line(),
            Some('*') => {
                self.next();
                let mut before = None;
                loop {
                    match self.next() {
                        Some('/') if before == Some('*') => break,
                        Some(character) => before = Some(character),
                        None => return wrong(begin, "the comment that begins here has no */"),
                    }
                }
            }
            _ => return wrong(begin, "expected // or /* for a comment, or a host's name"),
        }
        Ok(())
    }

    /// Reads a word, quoted or not.
    fn word(&mut self) -> Result<String, SyntaxError> {
        let begin = self.place;
        let mut word = String::new();
        if self.peek() != Some('"') {
            let ends = |character: char| character.is_whitespace() || "=#/\"".contains(character);
            while let Some(character) = self.peek().filter(|character| !ends(*character)) {
                word.push(character);
                self.next();
            }
            return Ok(word);
        }
        self.next();
        loop {
            match self.next() {
                Some('"') => return Ok(word),
                Some('\n') | None => {
                    return wrong(begin, "the quote that begins here does not end");
                }
                Some(character) => word.push(character),
            }
        }
    }
}

/// The contents of the lines parsed so far.
#[derive(Default)]
struct Content {
    mentions: Vec<Mention>,
    out: HashSet<String>,
    binding: bool,
}

impl Content {
    fn enter(&mut self, line: &[Lexeme]) -> Result<(), SyntaxError> {
        let Some((first, keys)) = line.split_first() else {
            return Ok(());
        };
        let place = first.place;
        if first.text.starts_with('+') {
            let message = format!("`{}`: hosts are named, not counted", shown(&first.text));
            return wrong(place, message + "; expected a host's name");
        }
        let (text, is_out) = match first.text.strip_prefix('^') {
            Some(text) => (text, true),
            None => (first.text.as_str(), false),
        };
        let at = |fault: WordError| (place.plus(fault.at + usize::from(is_out)), fault.message);
        let word = word::read(text).map_err(at)?;
        if is_out {
            self.out.extend(word.names);
            return keys.first().map_or(Ok(()), |key| {
                wrong(key.place, "nothing stands behind a host that is taken out")
            });
        }
        let mut options = LineOptions {
            user: word.user,
            count: word.count,
            ..LineOptions::default()
        };
        let mut rest = keys;
        while let [key, behind @ ..] = rest {
            rest = options.enter(key, behind)?;
        }
        self.binding |= options.binding;
        if self.mentions.len() + word.names.len() > MOST_HOSTS {
            return wrong(place, word::too_many().message);
        }
        let mention = |name| Mention {
            name,
            user: options.user.clone(),
            port: options.port,
            count: options.count,
            most: options.most,
        };
        self.mentions.extend(word.names.into_iter().map(mention));
        Ok(())
    }

    fn listed(self) -> Result<HostFile, String> {
        let bare = |mention: &&Mention| mention.is_bare();
        let mut seen = HashSet::new();
        let repeats = |mention: &Mention| !seen.insert((mention.name.clone(), mention.port));
        let is_list = self.mentions.iter().filter(bare).any(repeats);
        let bare = if is_list { Bare::OneSlot } else { Bare::Cores };
        let mut hosts = merge(self.mentions, bare)?;
        hosts.retain(|host| !self.out.contains(&host.name));
        if hosts.is_empty() {
            return Err(
                "no host is named there; expected one on each line, for example n1:4".into(),
            );
        }
        let remarks = self.binding.then(|| {
            "binding= of the host file is passed over; --bind-to says what ranks are bound to"
                .to_owned()
        });
        let remarks = remarks.into_iter().collect();
        Ok(HostFile { hosts, remarks })
    }
}

/// Options of a line, which apply to all hosts of the line.
#[derive(Default)]
struct LineOptions {
    user: Option<String>,
    port: Option<u16>,
    count: Count,
    most: Option<u32>,
    binding: bool,
}

impl LineOptions {
    /// Parses `key = value`; `behind` is the line after the key. Returns the rest of the line.
    fn enter<'a>(
        &mut self,
        key: &Lexeme,
        behind: &'a [Lexeme],
    ) -> Result<&'a [Lexeme], SyntaxError> {
        let name = key.text.as_str();
        let (value, rest) = match behind {
            [equals, value, rest @ ..] if equals.is_equals && !value.is_equals => (value, rest),
            [equals, ..] if equals.is_equals && !key.is_equals => {
                return wrong(
                    equals.place.plus(1),
                    format!("expected a value behind {}=", shown(name)),
                );
            }
            _ => return wrong(key.place, no_key(name)),
        };
        let text = value.text.as_str();
        let at = |fault: WordError| {
            (
                value.place.plus(fault.at),
                format!("{name}={}: {}", shown(text), fault.message),
            )
        };
        match name.to_ascii_lowercase().replace('-', "_").as_str() {
            "slots" | "cpu" | "cpus" | "count" => {
                if self.count != Count::Bare {
                    return wrong(key.place, "the number of slots is given twice");
                }
                self.count = Count::Number(word::slots(text).map_err(at)?);
            }
            "max_slots" | "slots_max" | "max_cpu" | "cpu_max" | "max_count" | "count_max" => {
                self.most = Some(word::slots(text).map_err(at)?);
            }
            "port" => {
                let port = text.parse().ok().filter(|port| *port > 0);
                let expected = format!("{name}={}: expected a number from 1 to 65535", shown(text));
                self.port = Some(port.ok_or((value.place, expected))?);
            }
            "user" | "username" | "user_name" => {
                word::check_user(text).map_err(at)?;
                self.user = Some(text.to_owned());
            }
            "binding" => self.binding = true,
            // Open MPI accepts and ignores these options.
            "boards" | "sockets" | "sockets_per_board" | "cores" | "cores_per_socket" => {}
            _ => return wrong(key.place, no_key(name)),
        }
        Ok(rest)
    }
}

/// The error for a word that is not an option.
fn no_key(name: &str) -> String {
    let advice = match name.parse::<u32>() {
        Ok(number) => {
            format!("; a number of slots is written slots={number}, or :{number} behind the name")
        }
        Err(_) => String::new(),
    };
    format!(
        "`{}` is not understood; expected slots=N, max_slots=N, port=N, user=NAME or the end of the line{advice}",
        shown(name)
    )
}

#[cfg(test)]
mod tests {
    use super::super::Slots;
    use super::*;
    use proptest::prelude::*;

    /// The hosts of a host file, formatted as short text.
    fn hosts(text: &str) -> String {
        let listed =
            read("F", text.as_bytes()).unwrap_or_else(|message| panic!("{text}: {message}"));
        listed
            .hosts
            .iter()
            .map(in_short)
            .collect::<Vec<_>>()
            .join(" ")
    }

    fn in_short(host: &JobHost) -> String {
        let user = host.user.iter().map(|user| format!("{user}@"));
        let slots = match host.slots {
            Slots::Number(number) => number.to_string(),
            Slots::Cores => "*".to_owned(),
        };
        let port = host.port.iter().map(|port| format!("/{port}"));
        let most = host.most.iter().map(|most| format!("<{most}"));
        let tail = port.chain(most).collect::<String>();
        format!("{}{}:{slots}{tail}", user.collect::<String>(), host.name)
    }

    fn refused(text: &str) -> String {
        read("F", text.as_bytes()).expect_err(text)
    }

    #[test]
    fn host_file_lines_of_each_grammar_are_understood() {
        for (text, expected) in [
            ("n1\nn2\n", "n1:* n2:*"),
            ("n1:4\nn2:2", "n1:4 n2:2"),
            ("n[01-03]:2\n", "n01:2 n02:2 n03:2"),
            ("n1:4 user=me binding=core:1\n", "me@n1:4"),
            (
                "n1 slots=4 max_slots=8\r\nme@n2 port=2222",
                "n1:4<8 me@n2:*/2222",
            ),
            ("n1 slots = 4\n  n2 slots= 2 \n", "n1:4 n2:2"),
            ("n1 cpu=4\nn2 count=3 username=me\n", "n1:4 me@n2:3"),
            ("n1 slots-max=2 sockets=2 cores=4", "n1:2<2"),
            ("\"n1\" slots=2 user=\"me\"", "me@n1:2"),
            (
                "10.77.0.1 slots=2\nfe80::1\n[fe80::2]:3",
                "10.77.0.1:2 fe80::1:* fe80::2:3",
            ),
            ("n1.a\nn1.b\n", "n1.a:* n1.b:*"),
            ("\u{feff}n1:1", "n1:1"),
        ] {
            assert_eq!(hosts(text), expected, "{text}");
        }
    }

    #[test]
    fn comments_in_host_files_are_ignored() {
        let text = "# all\n\nn1 slots=2 # two\nn2:3// three\n/* n3\nn4 * / */n5 /**/ slots=1\n#";
        assert_eq!(hosts(text), "n1:2 n2:3 n5:1");
        let latin = b"n1:1 # caf\xe9\n";
        assert_eq!(read("F", latin).map(|listed| listed.hosts.len()), Ok(1));
    }

    #[test]
    fn slots_of_repeated_hosts_add_up() {
        assert_eq!(hosts("n1:2\nn2:1\nn1 slots=3"), "n1:5 n2:1");
        assert_eq!(hosts("n1:2\nn1"), "n1:3");
        assert_eq!(hosts("n1 port=1\nn1 port=2"), "n1:*/1 n1:*/2");
    }

    #[test]
    fn repeated_lines_count_one_slot_each() {
        assert_eq!(hosts("n1\nn1\nn2\nn1\n"), "n1:3 n2:1");
    }

    #[test]
    fn excluded_hosts_are_removed() {
        assert_eq!(hosts("n[1-4]:2\n^n[2-3]\n^n9"), "n1:2 n4:2");
        assert!(refused("n1\n^n1").contains("F: no host is named there"));
        assert!(refused("n1\n^n1 slots=2").contains("line 2, column 5: nothing stands behind"));
    }

    #[test]
    fn quoted_file_text_is_shortened_and_escaped() {
        let options = refused(&format!("n1 \u{1b}[31m{}", "x".repeat(999)));
        assert!(
            options.contains("`\\u{1b}[31mxxx") && options.contains("xxx...` is not understood"),
            "{options}"
        );
    }

    /// Invalid files and their errors.
    const WRONG: &[(&str, &str)] = &[
        (
            "",
            "F: no host is named there; expected one on each line, for example n1:4",
        ),
        (
            "n1\n n2;x",
            "F, line 2, column 4: ';' has no place in a host's name",
        ),
        (
            "n1 slots=x",
            "F, line 1, column 10: slots=x: `x` is no number of slots",
        ),
        (
            "n1 slots=0",
            "F, line 1, column 10: slots=0: a host that is named has at least one slot",
        ),
        (
            "n1 slots=",
            "F, line 1, column 10: expected a value behind slots=",
        ),
        (
            "n1 slots==4",
            "F, line 1, column 10: expected a value behind slots=",
        ),
        (
            "n1 4",
            "column 4: `4` is not understood; expected slots=N, max_slots=N, port=N, user=NAME",
        ),
        (
            "n1 4",
            "a number of slots is written slots=4, or :4 behind the name",
        ),
        ("n1 n2", "column 4: `n2` is not understood"),
        (
            "n1:2 slots=3",
            "column 6: the number of slots is given twice",
        ),
        ("n1 = 3", "column 4: `=` is not understood"),
        ("= 3", "column 1: '=' has no place in a host's name"),
        (
            "n1 port=0",
            "column 9: port=0: expected a number from 1 to 65535",
        ),
        (
            "n1 user=-l",
            "column 9: user=-l: a user's name does not begin with -",
        ),
        ("-n1", "a host's name does not begin with -"),
        ("+n0", "hosts are named, not counted"),
        (
            "n1\n/* n2",
            "F, line 2, column 1: the comment that begins here has no */",
        ),
        ("n1/2", "line 1, column 3: expected // or /*"),
        (
            "\"n1\n",
            "F, line 1, column 1: the quote that begins here does not end",
        ),
        ("n1,n2", "',' has no place in a host's name"),
        ("me@n1\nyou@n1", "F: n1 is named with two users, me and you"),
        (
            "n[0-65535]\nm",
            "F, line 2, column 1: more than 65536 hosts",
        ),
        (
            "n1 slots=9 max_slots=4",
            "F: n1 has 9 slots and max_slots=4",
        ),
    ];

    #[test]
    fn host_file_errors_state_file_line_and_column() {
        for (text, message) in WRONG {
            let options = refused(text);
            assert!(options.contains(message), "{text}: {options}");
        }
    }

    #[test]
    fn ignored_host_file_keys_give_a_remark() {
        let remarks = read("F", b"n1:2 binding=core").map(|listed| listed.remarks);
        assert!(remarks.unwrap_or_default()[0].contains("--bind-to"));
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
            let _ = read("F", &bytes);
        }

        #[test]
        fn host_file_like_lines_never_panic(message in proptest::collection::vec(word(), 0..30)) {
            match read("F", message.concat().as_bytes()) {
                Ok(listed) => prop_assert!(!listed.hosts.is_empty()),
                Err(message) => prop_assert!(message.starts_with('F')),
            }
        }

        #[test]
        fn both_slot_notations_round_trip(slots in proptest::collection::vec(1..99u32, 1..20)) {
            let lines = slots.iter().enumerate();
            let ours: Vec<String> = lines.map(|(number, slots)| format!("n{number}:{slots}")).collect();
            let theirs: Vec<String> = ours.iter().map(|line| line.replace(':', " slots=")).collect();
            prop_assert_eq!(hosts(&ours.join("\n")), ours.join(" "));
            prop_assert_eq!(hosts(&theirs.join(" # x\n")), ours.join(" "));
        }
    }

    /// A random piece of a host file.
    fn word() -> impl Strategy<Value = &'static str> {
        proptest::sample::select(vec![
            "n1",
            "n2",
            "^n2",
            "n[1-3]",
            ":2",
            ":*",
            " ",
            "\n",
            "=",
            "slots",
            " slots=2",
            " max_slots=3",
            " port=7",
            " user=me",
            "me@",
            "#",
            "//",
            "/*",
            "*/",
            "\"",
            "fe80::1",
            "[fe80::1]",
            "\r\n",
            "+n0",
            "é",
        ])
    }
}
