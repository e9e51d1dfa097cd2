// SPDX-License-Identifier: MIT OR Apache-2.0
//! Parses a word that names hosts: `a`, `a:3`, `a:*`, `me@a`, `192.0.2.1:2`, `[fe80::1]:2`, or a word with ranges of
//! numbers, which keep their leading zeros: `n[01-16,20]:2`, `c[1-2]x[3-4]`.

use std::net::Ipv6Addr;

/// Maximum number of hosts that one word may name; a word with more is an error.
pub const MOST_HOSTS: usize = 65_536;

/// Number of slots that follows a host's name in a word.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Count {
    /// The word has no number of slots.
    #[default]
    Bare,
    /// `:3`.
    Number(u32),
    /// `:*`.
    All,
}

/// The parsed form of a word.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostWord {
    /// The hosts. The user and the count apply to each host.
    pub names: Vec<String>,
    /// User name.
    pub user: Option<String>,
    /// Slots per host.
    pub count: Count,
}

/// An error in a text, and the position of the error.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WordError {
    /// Characters before the position.
    pub at: usize,
    /// The message.
    pub message: String,
}

impl WordError {
    /// An error at a position.
    #[must_use]
    pub fn new(at: usize, message: impl Into<String>) -> Self {
        let message = message.into();
        Self { at, message }
    }

    fn behind(mut self, text: &str) -> Self {
        self.at += text.chars().count();
        self
    }
}

/// Prepares a text for a message: escapes control characters and quotes, and truncates the text after 60 characters.
#[must_use]
pub fn shown(text: &str) -> String {
    const MOST: usize = 60;
    let mut characters = text.chars();
    let head: String = characters
        .by_ref()
        .take(MOST)
        .flat_map(char::escape_debug)
        .collect();
    let rest = if characters.next().is_some() {
        "..."
    } else {
        ""
    };
    head + rest
}

/// The words of a comma-separated list, with the number of characters before each. Commas inside brackets do not
/// separate.
#[must_use]
pub fn split(list: &str) -> Vec<(usize, &str)> {
    let (mut parts, mut from, mut characters, mut before) = (Vec::new(), 0, 0, 0);
    let mut inside = false;
    for (number, (at, character)) in list.char_indices().enumerate() {
        match character {
            '[' => inside = true,
            ']' => inside = false,
            ',' if !inside => {
                parts.push((before, &list[from..at]));
                (from, before) = (at + 1, number + 1);
            }
            _ => {}
        }
        characters = number + 1;
    }
    parts.push((before.min(characters), &list[from..]));
    parts
}

/// Parses a word.
///
/// # Errors
/// The error and its position.
pub fn read(text: &str) -> Result<HostWord, WordError> {
    let (user, rest) = match text.rsplit_once('@') {
        Some((user, rest)) => (Some(user), rest),
        None => (None, text),
    };
    let head = &text[..text.len() - rest.len()];
    if let Some(user) = user {
        check_user(user)?;
    }
    let (name, count) = halves(rest).map_err(|fault| fault.behind(head))?;
    let behind = &text[..text.len() - count.map_or(0, str::len)];
    let count = match count {
        None => Count::Bare,
        Some("*") => Count::All,
        Some(count) => Count::Number(slots(count).map_err(|fault| fault.behind(behind))?),
    };
    let names = names(name).map_err(|fault| fault.behind(head))?;
    let user = user.map(str::to_owned);
    Ok(HostWord { names, user, count })
}

/// Parses the number of slots of a host.
///
/// # Errors
/// The error and its position.
pub fn slots(text: &str) -> Result<u32, WordError> {
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    match text.parse() {
        Ok(0) => Err(WordError::new(
            0,
            "a host that is named has at least one slot",
        )),
        Ok(number) if digits && number <= MOST_SLOTS => Ok(number),
        _ if digits => {
            let message = format!(
                "{} slots are too many, expected at most {MOST_SLOTS}",
                shown(text)
            );
            Err(WordError::new(0, message))
        }
        _ => {
            let message = format!(
                "`{}` is no number of slots; expected a number from 1",
                shown(text)
            );
            Err(WordError::new(0, message))
        }
    }
}

/// Maximum number of slots of a host. A larger number is an error, because no system has so many processes.
const MOST_SLOTS: u32 = 1 << 22;

/// Formats names as a list that [`split`] and [`read`] parse into the same names, in order: `n[01-16],m2`. The names
/// must not contain brackets or commas.
#[must_use]
pub fn packed<'a>(names: impl IntoIterator<Item = &'a str>) -> String {
    let mut runs: Vec<NumberedNames<'a>> = Vec::new();
    for name in names {
        if !runs.last_mut().is_some_and(|run| run.takes(name)) {
            runs.push(NumberedNames::of(name));
        }
    }
    let parts: Vec<String> = runs.iter().map(NumberedNames::word).collect();
    parts.join(",")
}

/// Names that differ only in their last digits, which are consecutive numbers.
struct NumberedNames<'a> {
    head: &'a str,
    /// Digits of each number.
    width: usize,
    first: u64,
    last: u64,
}

impl<'a> NumberedNames<'a> {
    fn of(name: &'a str) -> Self {
        // Only the last nine digits count as the number, so it fits in its type.
        let digits = name.bytes().rev().take_while(u8::is_ascii_digit);
        let is_address = name.contains(':');
        let width = if is_address {
            0
        } else {
            digits.take(9).count()
        };
        let (head, number) = name.split_at(name.len() - width);
        let number = number.parse().unwrap_or(0);
        Self {
            head,
            width,
            first: number,
            last: number,
        }
    }

    fn takes(&mut self, name: &'a str) -> bool {
        let next = NumberedNames::of(name);
        let fits = self.width > 0
            && (next.head, next.width, next.first) == (self.head, self.width, self.last + 1);
        if fits {
            self.last = next.first;
        }
        fits
    }

    fn word(&self) -> String {
        let (head, width) = (self.head, self.width);
        match self.width {
            0 => head.to_owned(),
            _ if self.first == self.last => format!("{head}{:0width$}", self.first),
            _ => format!("{head}[{:0width$}-{:0width$}]", self.first, self.last),
        }
    }
}

/// Checks that a user name may be passed to a remote shell.
///
/// # Errors
/// The error and its position.
pub fn check_user(user: &str) -> Result<(), WordError> {
    let fits = |character: char| character.is_alphanumeric() || "._-+@\\%".contains(character);
    match user.chars().position(|character| !fits(character)) {
        _ if user.is_empty() => Err(WordError::new(0, "a user's name stands before @")),
        _ if user.starts_with('-') => Err(WordError::new(0, "a user's name does not begin with -")),
        Some(at) => Err(WordError::new(
            at,
            unexpected_character(user, at, "a user's name"),
        )),
        None => Ok(()),
    }
}

/// The name and the text after its colon.
fn halves(text: &str) -> Result<(&str, Option<&str>), WordError> {
    if let Some(inner) = text.strip_prefix('[')
        && let Some((address, rest)) = inner.split_once(']')
        && address.contains(':')
    {
        check_address(address).map_err(|fault| fault.behind("["))?;
        let behind = &text[..text.len() - rest.len()];
        return match (rest, rest.strip_prefix(':')) {
            ("", _) => Ok((address, None)),
            (_, Some(count)) => Ok((address, Some(count))),
            (_, None) => {
                Err(WordError::new(0, "expected :N behind an address in brackets").behind(behind))
            }
        };
    }
    match text.matches(':').count() {
        0 => Ok((text, None)),
        1 => Ok(text
            .split_once(':')
            .map_or((text, None), |(name, count)| (name, Some(count)))),
        _ => check_address(text).map(|()| (text, None)),
    }
}

/// Checks an IPv6 address, which may have a zone: `fe80::1%eth0`.
fn check_address(text: &str) -> Result<(), WordError> {
    let (address, zone) = text.split_once('%').unwrap_or((text, "-"));
    let zone_fits =
        |character: char| character.is_ascii_alphanumeric() || "._-".contains(character);
    if address.parse::<Ipv6Addr>().is_ok() && !zone.is_empty() && zone.chars().all(zone_fits) {
        return Ok(());
    }
    let message = format!(
        "`{}` is no IPv6 address; one with a number of slots is written [fe80::1]:2, a name with one a:2",
        shown(text)
    );
    Err(WordError::new(0, message))
}

/// Expands the ranges of a name.
fn names(text: &str) -> Result<Vec<String>, WordError> {
    if text.contains(':') {
        return Ok(vec![text.to_owned()]);
    }
    let mut all = vec![String::new()];
    let mut rest = text;
    while let Some(at) = rest.find(['[', ']']) {
        let (plain, brackets) = rest.split_at(at);
        let before = &text[..text.len() - brackets.len()];
        let inner = brackets
            .strip_prefix('[')
            .and_then(|inner| inner.split_once(']'));
        let Some((inner, behind)) = inner else {
            let message = "a bracket without its other one; a range is written n[01-16,20]";
            return Err(WordError::new(0, message).behind(before));
        };
        let numbers = numbers(inner).map_err(|fault| fault.behind(before).behind("["))?;
        if all.len().saturating_mul(numbers.len()) > MOST_HOSTS {
            return Err(too_many().behind(before));
        }
        let longer = |head: &String| {
            let heads = numbers
                .iter()
                .map(move |number| format!("{head}{plain}{number}"));
            heads.collect::<Vec<_>>()
        };
        all = all.iter().flat_map(longer).collect();
        rest = behind;
    }
    all.iter_mut().for_each(|name| name.push_str(rest));
    check_name(text)?;
    Ok(all)
}

/// Checks that a name, outside its brackets, has only characters that a resolver or the configuration of a remote shell
/// accepts.
fn check_name(text: &str) -> Result<(), WordError> {
    let mut inside = false;
    let fits = |character: char| {
        inside = (inside || character == '[') && character != ']';
        inside || character.is_ascii_alphanumeric() || "._-]".contains(character)
    };
    match text.chars().map(fits).position(|fits| !fits) {
        _ if text.is_empty() => Err(WordError::new(0, "expected a host's name")),
        _ if text.starts_with('-') => Err(WordError::new(0, "a host's name does not begin with -")),
        Some(at) => Err(WordError::new(
            at,
            unexpected_character(text, at, "a host's name"),
        )),
        None => Ok(()),
    }
}

/// The message for the character at position `at`, which is invalid in `thing`.
fn unexpected_character(text: &str, at: usize, thing: &str) -> String {
    let character = text.chars().nth(at).unwrap_or_default();
    format!("{character:?} has no place in {thing}")
}

/// The numbers that a list in brackets stands for, with their leading zeros.
fn numbers(text: &str) -> Result<Vec<String>, WordError> {
    let mut all = Vec::new();
    let mut at = 0;
    for part in text.split(',') {
        let fault = |message| WordError::new(at, message);
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (from, to) = number(first).zip(number(last)).ok_or_else(|| {
            fault(format!(
                "`{}` is no range; expected numbers, as in n[01-16,20]",
                shown(part)
            ))
        })?;
        if from > to {
            return Err(fault(format!("{part} ends before it begins")));
        }
        if last.starts_with('0') && last.len() != first.len() {
            return Err(fault(format!("{part}: both ends need as many digits")));
        }
        if to - from >= MOST_HOSTS.saturating_sub(all.len()) as u64 {
            return Err(WordError::new(at, too_many().message));
        }
        let width = if first.starts_with('0') {
            first.len()
        } else {
            1
        };
        all.extend((from..=to).map(|number| format!("{number:0width$}")));
        at += part.chars().count() + 1;
    }
    Ok(all)
}

fn number(text: &str) -> Option<u64> {
    let digits = (1..=18).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit());
    digits.then(|| text.parse().ok()).flatten()
}

/// The error for a list with too many names.
#[must_use]
pub fn too_many() -> WordError {
    WordError::new(0, format!("more than {MOST_HOSTS} hosts"))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "test code may panic")]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn named(text: &str) -> (String, Count) {
        let word = read(text).unwrap_or_else(|fault| panic!("{text}: {fault:?}"));
        (word.names.join(" "), word.count)
    }

    fn refused(text: &str) -> (usize, String) {
        let fault = read(text).expect_err(text);
        (fault.at, fault.message)
    }

    #[test]
    fn host_names_and_addresses_may_have_a_slot_count() {
        for (text, name, count) in [
            ("a", "a", Count::Bare),
            ("a:3", "a", Count::Number(3)),
            ("a:*", "a", Count::All),
            ("n1.lab.example:12", "n1.lab.example", Count::Number(12)),
            ("10.77.0.1", "10.77.0.1", Count::Bare),
            ("10.77.0.1:2", "10.77.0.1", Count::Number(2)),
            ("fe80::1", "fe80::1", Count::Bare),
            ("fe80::1:2", "fe80::1:2", Count::Bare),
            ("::1", "::1", Count::Bare),
            ("[fe80::1]", "fe80::1", Count::Bare),
            ("[fe80::1]:2", "fe80::1", Count::Number(2)),
            ("[fe80::1%eth0]:*", "fe80::1%eth0", Count::All),
        ] {
            assert_eq!(named(text), (name.to_owned(), count), "{text}");
        }
    }

    #[test]
    fn the_user_ends_at_the_last_at_sign() {
        let user = |text| read(text).unwrap().user;
        assert_eq!(user("me@a:2").as_deref(), Some("me"));
        assert_eq!(user("me@lab.org@a").as_deref(), Some("me@lab.org"));
        assert_eq!(user("me@[::1]:2").as_deref(), Some("me"));
        assert_eq!(user("a"), None);
    }

    #[test]
    fn ranges_keep_leading_zeros() {
        for (text, names) in [
            ("n[1-3]", "n1 n2 n3"),
            ("n[08-11,20]", "n08 n09 n10 n11 n20"),
            ("n[8-10]", "n8 n9 n10"),
            ("c[1-2]x[3-4]", "c1x3 c1x4 c2x3 c2x4"),
            ("r[1-2].lab:4", "r1.lab r2.lab"),
            ("[01-02]", "01 02"),
            ("n[3,1,1]", "n3 n1 n1"),
        ] {
            assert_eq!(named(text).0, names, "{text}");
        }
    }

    #[test]
    fn errors_state_the_position() {
        for (text, at, expected_text) in [
            ("", 0, "expected a host's name"),
            (":3", 0, "expected a host's name"),
            ("a:", 2, "`` is no number of slots"),
            (
                "a:x",
                2,
                "`x` is no number of slots; expected a number from 1",
            ),
            ("a:+1", 2, "`+1` is no number of slots"),
            ("a:0", 2, "at least one slot"),
            ("me@a:99999999999", 5, "slots are too many"),
            ("a:1:2", 0, "`a:1:2` is no IPv6 address"),
            ("[a:1", 0, "a bracket without its other one"),
            ("[fe80::1]2", 9, "expected :N behind an address"),
            ("[fe80::zz]:2", 1, "is no IPv6 address"),
            ("n[1-", 1, "a bracket without its other one"),
            ("n1]", 2, "a bracket without its other one"),
            ("n[[1-2]]", 2, "is no range"),
            ("n[]", 2, "`` is no range"),
            ("n[1-2,x]", 6, "`x` is no range"),
            ("n[3-1]", 2, "3-1 ends before it begins"),
            ("n[1-010]", 2, "both ends need as many digits"),
            ("n[0-99999999]", 2, "more than 65536 hosts"),
            ("n[1-1000][1-1000]", 9, "more than 65536 hosts"),
            ("-oProxyCommand=x", 0, "does not begin with -"),
            ("-l@a", 0, "does not begin with -"),
            ("@a", 0, "a user's name stands before @"),
            ("a;b", 1, "';' has no place in a host's name"),
            ("n[1-2] x", 6, "' ' has no place in a host's name"),
            ("m$e@a", 1, "'$' has no place in a user's name"),
        ] {
            let (place, message) = refused(text);
            assert!(message.contains(expected_text), "{text}: {message}");
            assert_eq!(place, at, "{text}: {message}");
        }
    }

    #[test]
    fn commas_in_brackets_do_not_separate_hosts() {
        assert_eq!(
            split("a:2,n[1,3]:2,é,"),
            [(0, "a:2"), (4, "n[1,3]:2"), (13, "é"), (15, "")]
        );
    }

    fn unpacked(list: &str) -> Vec<String> {
        let parsed = split(list).into_iter().map(|(_, word)| read(word).unwrap());
        parsed.flat_map(|word| word.names).collect()
    }

    #[test]
    fn consecutive_names_are_packed_into_ranges() {
        for (names, list) in [
            ("n1 n2 n3", "n[1-3]"),
            ("n08 n09 n10 m1", "n[08-10],m1"),
            ("n9 n10 n11", "n9,n[10-11]"),
            ("a b n3 n1 n2", "a,b,n3,n[1-2]"),
            ("fe80::1 fe80::2", "fe80::1,fe80::2"),
            ("n1 n1", "n1,n1"),
            ("n0999999999 n1000000000", "n0999999999,n1000000000"),
            ("n4.lab n5.lab", "n4.lab,n5.lab"),
        ] {
            assert_eq!(packed(names.split(' ')), list);
            assert_eq!(unpacked(list).join(" "), names);
        }
    }

    proptest! {
        #[test]
        fn packed_names_unpack_in_order(
            heads in proptest::collection::vec(("[a-c]{1,2}[0-9]{0,2}", 0..200_u32, 1..30_u32), 1..10)
        ) {
            let names = heads.iter().flat_map(|(head, first, count)| {
                (*first..first + count).map(move |number| format!("{head}{number:02}"))
            });
            let names: Vec<String> = names.collect();
            prop_assert_eq!(unpacked(&packed(names.iter().map(String::as_str))), names);
        }

        #[test]
        fn arbitrary_text_never_panics(text in "\\PC*") {
            for (_, word) in split(&text) {
                let _ = read(word);
            }
        }

        #[test]
        fn host_list_like_text_never_panics(text in "[a1:\\[\\],@*%.-]{0,24}") {
            for (at, word) in split(&text) {
                let characters = word.chars().count();
                prop_assert!(text.chars().skip(at).take(characters).eq(word.chars()));
                match read(word) {
                    Ok(read) => prop_assert!(read.names.iter().all(|name| !name.is_empty() && !name.starts_with('-'))),
                    Err(fault) => prop_assert!(fault.at <= characters, "{word}: {fault:?}"),
                }
            }
        }
    }
}
