// SPDX-License-Identifier: MIT OR Apache-2.0
//! Parses `-x`, `-env` and `-genv`, which set variables of the ranks' environment.

use super::{Options, UsageError, Variable};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;

/// The variables of all `-genv` options. They apply to all programs, whichever program they precede.
pub(super) fn of_all(all: &[Options]) -> Result<Vec<Variable>, UsageError> {
    let mut everywhere = Vec::new();
    for options in all {
        everywhere.extend(pairs("-genv", &options.genv)?);
    }
    Ok(everywhere)
}

pub(super) fn pairs(option: &str, arguments: &[OsString]) -> Result<Vec<Variable>, UsageError> {
    let pair = |pair: &[OsString]| match pair {
        [name, value] if is_name(name) => Ok((name.clone(), value.clone())),
        _ => {
            let name = pair
                .first()
                .map(|name| name.display().to_string())
                .unwrap_or_default();
            Err(UsageError(format!(
                "{option} {name}: expected a variable's name and its value, separated by a space"
            )))
        }
    };
    arguments.chunks(2).map(pair).collect()
}

pub(super) fn exported(
    argument: &OsStr,
    remarks: &mut Vec<String>,
) -> Result<Option<Variable>, UsageError> {
    let bytes = argument.as_bytes();
    let equals = bytes.iter().position(|byte| *byte == b'=');
    let (name, value) = match equals {
        Some(at) => (&bytes[..at], Some(&bytes[at + 1..])),
        None => (bytes, None),
    };
    let name = OsStr::from_bytes(name);
    if !is_name(name) {
        let argument = argument.display();
        return Err(UsageError(format!(
            "-x {argument}: expected NAME or NAME=VALUE"
        )));
    }
    let value = value.map(|value| OsStr::from_bytes(value).to_owned());
    let value = value.or_else(|| std::env::var_os(name));
    if value.is_none() {
        let name = name.display();
        remarks.push(format!(
            "-x {name}: no such variable is set here, so the ranks do not get it"
        ));
    }
    Ok(value.map(|value| (name.to_owned(), value)))
}

fn is_name(name: &OsStr) -> bool {
    !name.is_empty() && !name.as_bytes().contains(&b'=')
}
