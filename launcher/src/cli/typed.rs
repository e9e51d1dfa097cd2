// SPDX-License-Identifier: MIT OR Apache-2.0
//! Parses a command line as users type it, including long options with one dash. Makes messages for words that are not
//! valid.

use super::{Options, UsageError};
use crate::foreign_options;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{CommandFactory, FromArgMatches};
use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};

/// Parses the options of one program.
pub(super) fn options(arguments: &[OsString]) -> Result<Options, clap::Error> {
    let mut command = Options::command();
    let mut arguments = arguments.to_vec();
    lengthen(&command, &mut arguments);
    let name = OsString::from("rmpiexec");
    let matches = command.try_get_matches_from_mut(std::iter::once(name).chain(arguments))?;
    Options::from_arg_matches(&matches)
}

/// Adds a second dash to long options that were typed with one dash, such as `-np` and `-genv`. Stops at the program.
fn lengthen(command: &clap::Command, arguments: &mut [OsString]) {
    let mut next = 0;
    while let Some(argument) = arguments.get_mut(next) {
        let bytes = argument.as_bytes();
        if bytes == b"--" || !bytes.starts_with(b"-") || bytes == b"-" {
            return;
        }
        let inline = bytes.contains(&b'=');
        let name = bytes.split(|byte| *byte == b'=').next().unwrap_or(bytes);
        let name = String::from_utf8_lossy(name).into_owned();
        if !name.starts_with("--") && is_long(command, &name[1..]) {
            let longer = [b"-", argument.as_bytes()].concat();
            *argument = OsString::from_vec(longer);
        }
        next += 1 + if inline { 0 } else { values_of(command, &name) };
    }
}

/// Whether the text after a single dash is meant as a long option, correct or mistyped, not as a group of short
/// options.
fn is_long(command: &clap::Command, name: &str) -> bool {
    let short = |character: char| {
        command
            .get_arguments()
            .find(|arg| arg.get_short() == Some(character))
    };
    let mut characters = name.chars();
    let (Some(first), rest) = (characters.next(), characters.as_str()) else {
        return false;
    };
    if rest.is_empty() {
        return false;
    }
    if find_long(command, name).is_some() || matches!(name, "help" | "version") {
        return true;
    }
    if first == 'n' {
        return !rest.starts_with(|character: char| character.is_ascii_digit());
    }
    if foreign_options::advice(name).is_some() {
        return true;
    }
    if short(first).is_some_and(|arg| arg.get_action().takes_values()) {
        return false;
    }
    !name
        .chars()
        .all(|character| short(character).is_some() || "hV".contains(character))
}

fn find_long<'a>(command: &'a clap::Command, name: &str) -> Option<&'a clap::Arg> {
    command.get_arguments().find(|arg| {
        let aliases = arg.get_all_aliases().unwrap_or_default();
        arg.get_long() == Some(name) || aliases.contains(&name)
    })
}

/// Number of words after option `name` that are its values.
fn values_of(command: &clap::Command, name: &str) -> usize {
    let bare = name.trim_start_matches('-');
    let by_character = |arg: &&clap::Arg| {
        arg.get_short()
            .is_some_and(|character| bare == character.to_string())
    };
    let arg = find_long(command, bare).or_else(|| command.get_arguments().find(by_character));
    let Some(arg) = arg.filter(|arg| arg.get_action().takes_values()) else {
        return 0;
    };
    arg.get_num_args().map_or(1, |range| range.min_values())
}
pub(super) fn usage_error(error: &clap::Error, typed: &[OsString]) -> UsageError {
    let context = |kind| match error.get(kind) {
        Some(ContextValue::String(text)) => Some(text.clone()),
        Some(ContextValue::Strings(texts)) => texts.first().cloned(),
        _ => None,
    };
    let option = context(ContextKind::InvalidArg).unwrap_or_default();
    let known = || foreign_options::advice(&as_typed(&option, typed));
    let text = match error.kind() {
        ErrorKind::UnknownArgument if known().is_some() => known().unwrap_or_default(),
        ErrorKind::UnknownArgument => match context(ContextKind::SuggestedArg) {
            Some(near) => format!(
                "unknown option {}; the nearest is {near}. Type rmpiexec --help for all of them",
                as_typed(&option, typed)
            ),
            None => format!(
                "unknown option {}. Type rmpiexec --help for all of them; a program's own options stand behind its name",
                as_typed(&option, typed)
            ),
        },
        ErrorKind::InvalidValue
            if context(ContextKind::InvalidValue).is_some_and(|v| !v.is_empty()) =>
        {
            one_of(error, &option, typed)
        }
        ErrorKind::InvalidValue | ErrorKind::WrongNumberOfValues | ErrorKind::TooFewValues => {
            let mut parts = option.splitn(2, ' ');
            let (name, values) = (parts.next().unwrap_or_default(), parts.next());
            let name = as_typed(name, typed);
            let values = values.unwrap_or("VALUE");
            format!(
                "nothing stands behind {name}; expected {name} {values}. Type rmpiexec --help for examples"
            )
        }
        ErrorKind::TooManyValues => {
            format!("option {option} takes no value. Type rmpiexec --help for examples")
        }
        _ => error
            .to_string()
            .trim_start_matches("error: ")
            .trim_end()
            .to_owned(),
    };
    UsageError(text)
}

/// The message for a value that an option does not accept.
fn one_of(error: &clap::Error, option: &str, typed: &[OsString]) -> String {
    let name = option.split(' ').next().unwrap_or_default();
    let name = as_typed(name, typed);
    let given = match error.get(ContextKind::InvalidValue) {
        Some(ContextValue::String(text)) => text.as_str(),
        _ => "",
    };
    let known = match error.get(ContextKind::ValidValue) {
        Some(ContextValue::Strings(known)) => known.as_slice(),
        _ => &[],
    };
    let expected = match known {
        [first @ .., last] if !first.is_empty() => format!("{} or {last}", first.join(", ")),
        _ => known.concat(),
    };
    format!("{name} {given}: expected {expected}")
}

/// The option as the user typed it, with the user's dashes and the user's choice among the names of the option.
fn as_typed(option: &str, typed: &[OsString]) -> String {
    let Some(bare) = option.strip_prefix("--") else {
        return option.to_owned();
    };
    let alone = [bare];
    let several = SEVERAL.iter().find(|names| names[0] == bare);
    let names = several.copied().unwrap_or(&alone);
    let name = |argument: &OsString| {
        let argument = argument.to_string_lossy();
        let name = argument.split('=').next().unwrap_or_default();
        let bare = name.trim_start_matches('-');
        (name != bare && names.contains(&bare)).then(|| name.to_owned())
    };
    let found = typed.iter().find_map(name);
    found.unwrap_or_else(|| option.to_owned())
}

/// Options with several names; the first name of each is the one that clap reports.
const SEVERAL: &[&[&str]] = &[
    &["np", "n"],
    &["host", "hosts", "H"],
    &["hostfile", "machinefile", "machine", "f"],
    &["ranks-per-node", "ppn", "npernode", "perhost", "N"],
    &["launcher", "launcher-exec"],
];
