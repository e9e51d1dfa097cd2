// SPDX-License-Identifier: MIT OR Apache-2.0
//! Parses QMP's command-line options. No function has side effects.
//!
//! An option is followed by its numbers: all arguments before the next argument that does not begin with a digit.
//! Options and numbers are removed from the command line; if an option is repeated, the last occurrence counts. An
//! unknown option that begins with `-qmp-` is an error, because a job on the wrong grid is expensive.

use core::ffi::c_int;

use crate::status::{QmpFailure, QmpStatus, Result};

/// The options of a command line.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct Options {
    /// `-qmp-geom`: the grid of the allocated nodes.
    pub geometry: Vec<c_int>,
    /// `-qmp-alloc-map`: the axes of that grid, fastest first.
    pub allocated_map: Vec<c_int>,
    /// `-qmp-logic-map`: the axes of a logical topology, fastest first.
    pub logical_map: Vec<c_int>,
    /// `-qmp-job`: the number of jobs, along each axis, into which the allocated nodes are divided.
    pub jobs: Vec<c_int>,
    /// `-qmp-nmpi`: the number of processes that take part.
    pub processes: Option<c_int>,
}

/// Parses a command line, whose first argument is the program's name. Returns the options, and the indices of the
/// remaining arguments, which include the name.
pub fn parse(arguments: &[String]) -> Result<(Options, Vec<usize>)> {
    let mut options = Options::default();
    let mut left = Vec::new();
    let mut at = 0;
    while at < arguments.len() {
        let argument = arguments[at].as_str();
        if at == 0 || !argument.starts_with("-qmp-") {
            left.push(at);
            at += 1;
            continue;
        }
        if !NAMES.contains(&argument) {
            let known = NAMES.join(", ");
            return Err(wrong(format!(
                "{argument} is no option of QMP; there are {known}"
            )));
        }
        let numbers = arguments[at + 1..]
            .iter()
            .take_while(|argument| is_number(argument));
        let texts: Vec<&String> = numbers.collect();
        if let Some(next) = arguments.get(at + 1).filter(|_| texts.is_empty()) {
            refuse_native(argument, next)?;
        }
        let values = texts.iter().map(|text| number(argument, text));
        options.take(argument, values.collect::<Result<_>>()?)?;
        at += 1 + texts.len();
    }
    Ok((options, left))
}

impl Options {
    /// No option.
    pub const NONE: Self = Self {
        geometry: Vec::new(),
        allocated_map: Vec::new(),
        logical_map: Vec::new(),
        jobs: Vec::new(),
        processes: None,
    };

    fn take(&mut self, name: &str, numbers: Vec<c_int>) -> Result<()> {
        if numbers.is_empty() {
            return Err(wrong(format!("{name} is followed by no number")));
        }
        match name {
            "-qmp-geom" => self.geometry = numbers,
            "-qmp-alloc-map" => self.allocated_map = numbers,
            "-qmp-logic-map" => self.logical_map = numbers,
            "-qmp-job" => self.jobs = numbers,
            _ => match numbers[..] {
                [count] if count > 0 => self.processes = Some(count),
                _ => {
                    return Err(wrong(format!(
                        "{name} is followed by {numbers:?}, expected one number of at least 1"
                    )));
                }
            },
        }
        Ok(())
    }
}

fn refuse_native(name: &str, next: &str) -> Result<()> {
    if next == "native" {
        let text =
            format!("{name} native: this machine has no grid of its own; give the dimensions");
        return Err(QmpFailure::new(QmpStatus::NOTSUPPORTED, text));
    }
    Ok(())
}

fn is_number(argument: &str) -> bool {
    argument.starts_with(|first: char| first.is_ascii_digit())
}

fn number(name: &str, text: &str) -> Result<c_int> {
    text.parse().map_err(|_| {
        wrong(format!(
            "{name} is followed by `{text}`, which is no number of nodes or of an axis"
        ))
    })
}

fn wrong(text: String) -> QmpFailure {
    QmpFailure::new(QmpStatus::INVALID_ARG, text)
}

const NAMES: [&str; 5] = [
    "-qmp-geom",
    "-qmp-alloc-map",
    "-qmp-logic-map",
    "-qmp-job",
    "-qmp-nmpi",
];

#[cfg(test)]
mod tests {
    use super::*;

    fn read(line: &str) -> Result<(Options, String)> {
        let arguments: Vec<String> = line.split(' ').map(String::from).collect();
        let (options, left) = parse(&arguments)?;
        let left: Vec<&str> = left.iter().map(|at| arguments[*at].as_str()).collect();
        Ok((options, left.join(" ")))
    }

    #[test]
    fn qmpl_073_qmpl_074_qmpl_075_qmpl_076_qmpl_077_options_are_read_and_taken_out() {
        let line = "prog in -qmp-geom 2 2 1 -x -qmp-alloc-map 1 0 -qmp-logic-map 2 -qmp-job 2 1 1 -qmp-nmpi 8 out";
        let (options, left) = read(line).unwrap();
        assert_eq!(left, "prog in -x out");
        assert_eq!(options.geometry, [2, 2, 1]);
        assert_eq!(options.allocated_map, [1, 0]);
        assert_eq!(options.logical_map, [2]);
        assert_eq!(options.jobs, [2, 1, 1]);
        assert_eq!(options.processes, Some(8));
    }

    #[test]
    fn the_last_of_repeated_options_applies_and_all_are_removed() {
        let (options, left) = read("p -qmp-geom 4 1 a -qmp-geom 2 2").unwrap();
        assert_eq!((options.geometry, left.as_str()), (vec![2, 2], "p a"));
    }

    #[test]
    fn invalid_option_numbers_are_named_in_the_error() {
        for (line, why) in [
            ("p -qmp-geom", "-qmp-geom is followed by no number"),
            ("p -qmp-geom -v", "no number"),
            ("p -qmp-geom 2x2", "`2x2`"),
            ("p -qmp-geom 99999999999", "`99999999999`"),
            ("p -qmp-nmpi 0", "at least 1"),
            ("p -qmp-nmpi 2 2", "expected one number"),
            (
                "p -qmp-gemo 2 2",
                "-qmp-gemo is no option of QMP; there are -qmp-geom,",
            ),
        ] {
            let error = read(line).unwrap_err();
            assert_eq!(error.status, QmpStatus::INVALID_ARG);
            assert!(error.text.contains(why), "{error:?}");
        }
        assert_eq!(
            read("p -qmp-geom native").unwrap_err().status,
            QmpStatus::NOTSUPPORTED
        );
    }

    #[test]
    fn the_name_of_the_program_is_never_an_option() {
        assert_eq!(read("-qmp-geom 2").unwrap().1, "-qmp-geom 2");
        assert_eq!(parse(&[]).unwrap(), (Options::default(), vec![]));
    }
}
