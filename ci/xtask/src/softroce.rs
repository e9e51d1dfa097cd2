// SPDX-License-Identifier: MIT OR Apache-2.0
//! `cargo xtask softroce`: runs a command in a virtual machine that has Soft-RoCE and sees this machine's files.
//!
//! QEMU boots Debian's kernel, emulated in software; nothing is installed and root is not needed. Tests use [`Guest`].

mod apt;
mod bench;
mod cache;
mod guest;
mod kernel;
mod machine;
pub(crate) mod programs;
pub(crate) mod soak;
mod streams;

pub(crate) use cache::packages;
pub(crate) use guest::{Guest, GuestEnd, GuestOutcome};
pub(crate) use kernel::KernelSeries;

use crate::stage;
use crate::tree::prefix;
use std::path::{Path, PathBuf};
use std::process::exit;
use std::time::Duration;

/// `cargo xtask softroce [OPTION...] -- COMMAND...`. If the command's code is not 0, ends this process with it.
pub(crate) fn run(args: &[String]) -> Result<(), String> {
    if args.is_empty() {
        println!("{}", stage::find("softroce")?.help());
        return Ok(());
    }
    let request = SoftroceRequest::parse(args)?;
    match request.run() {
        Ok(0) => Ok(()),
        Ok(code) => exit(code),
        Err(why) => {
            eprintln!("softroce: {why}");
            exit(NO_MACHINE)
        }
    }
}

/// The parsed command line.
struct SoftroceRequest {
    guest: Guest,
    two: bool,
    bench: bool,
    /// How long to soak.
    soak: Option<Duration>,
    command: Vec<String>,
}

impl SoftroceRequest {
    fn parse(args: &[String]) -> Result<Self, String> {
        let mut request = Self {
            guest: Guest::new().shown(),
            two: false,
            bench: false,
            soak: None,
            command: Vec::new(),
        };
        let mut args = args.iter();
        loop {
            let Some(arg) = args.next() else {
                if request.bench || request.soak.is_some() {
                    break;
                }
                return Err(
                    "no command was given: cargo xtask softroce [OPTION...] -- COMMAND...".into(),
                );
            };
            let option = arg.as_str();
            match option {
                "--" => break,
                "--two" => request.two = true,
                "--bench" => request.bench = true,
                "--cards" => {
                    let guest = std::mem::replace(&mut request.guest, Guest::new());
                    request.guest = guest.cards();
                }
                _ if !OPTIONS.contains(&option) => {
                    let options = OPTIONS
                        .iter()
                        .copied()
                        .chain(["--two", "--bench", "--cards"]);
                    let help = "cargo xtask softroce --help";
                    return Err(stage::unknown("option", option, options, help));
                }
                _ => {
                    let value = args.next().filter(|value| *value != "--");
                    let value =
                        value.ok_or_else(|| format!("the option {option} lacks its value"))?;
                    request.set(option, value)?;
                }
            }
        }
        request.command = args.cloned().collect();
        request.fits().map(|()| request)
    }

    /// An error if the options and arguments do not fit together.
    fn fits(&self) -> Result<(), String> {
        let count = self.command.len();
        let alone = self.bench || self.soak.is_some();
        match self.two {
            true if self.soak.is_some() => Err("--soak is for one guest, without --two".into()),
            _ if self.bench && self.soak.is_some() => {
                Err("--bench or --soak: one of them at a time".into())
            }
            _ if self.soak.is_some() && (count > 1 || self.seed().is_err()) => Err(format!(
                "--soak takes a seed after --, a number, or nothing; `{}` was given",
                self.command.join(" ")
            )),
            false if count == 0 && !alone => Err("there is no command after --".into()),
            true if !alone && ![1, 2].contains(&count) => Err(format!(
                "--two takes one command after -- for guest a, or one for each guest, each a line of shell in quotes; \
                 {count} arguments were given"
            )),
            _ => Ok(()),
        }
    }

    /// The seed for `--soak`, if one was given.
    fn seed(&self) -> Result<Option<u64>, std::num::ParseIntError> {
        self.command.first().map(|arg| arg.parse()).transpose()
    }

    /// Sets an option that has a value.
    fn set(&mut self, option: &str, value: &str) -> Result<(), String> {
        if option == "--soak" {
            let minutes = number(option, value, 1, 1_000)?;
            self.soak = Some(Duration::from_secs(60 * u64::from(minutes)));
            return Ok(());
        }
        let guest = std::mem::replace(&mut self.guest, Guest::new());
        self.guest = set(guest, option, value)?;
        Ok(())
    }

    /// Runs what was requested and returns the exit code.
    fn run(&self) -> Result<i32, String> {
        if self.bench {
            let command = bench::command_line(&self.guest, &self.command)?;
            let outcome = if self.two {
                self.guest.run_beside(&command)?
            } else {
                self.guest.run(&command)?
            };
            return Ok(code_of("", &outcome));
        }
        if let Some(time) = self.soak {
            crate::install::run(&[])?;
            let seed = self.seed().unwrap_or_default();
            let command = soak::command_line(&prefix(), time, seed)?;
            let guest = soak::guest(self.guest.clone(), time);
            return Ok(code_of("", &guest.run(&command)?));
        }
        if !self.two {
            return Ok(code_of("", &self.guest.run(&self.command)?));
        }
        let (a, b) = match self.command.as_slice() {
            [a, b] => (a, b),
            line => {
                let args = ["sh", "-c", &line.concat()];
                return Ok(code_of("", &self.guest.run_beside(&args)?));
            }
        };
        let [a, b] = self.guest.run_two(a, b)?;
        let codes = [code_of("guest a: ", &a), code_of("guest b: ", &b)];
        Ok(codes.into_iter().find(|code| *code != 0).unwrap_or(0))
    }
}

/// Sets an option of the guest.
fn set(guest: Guest, option: &str, value: &str) -> Result<Guest, String> {
    let number = |least, most| number(option, value, least, most);
    Ok(match option {
        "--kernel" => guest.kernel(KernelSeries::named(value)?),
        // With less than 1280 bytes IPv6 would be disabled; a virtual card accepts at most 65 521.
        "--mtu" => guest.mtu(number(1280, 65_521)?),
        "--cpus" => guest.processors(number(1, 64)?),
        "--memory" => guest.memory(number(256, 1 << 20)?),
        "--timeout" => guest.limit(Duration::from_secs(number(1, 86_400)?.into())),
        "--netem" => guest.netem(value),
        "--log" => guest.log(Path::new(value)),
        _ => guest.share(&absolute(value)?),
    })
}

fn number(option: &str, value: &str, least: u32, most: u32) -> Result<u32, String> {
    let number = value
        .parse()
        .ok()
        .filter(|number| (least..=most).contains(number));
    number.ok_or_else(|| format!("{option} takes a number from {least} to {most}, not `{value}`"))
}

/// The folder's path without symbolic links: the guest has the folder at the same path.
fn absolute(folder: &str) -> Result<PathBuf, String> {
    std::fs::canonicalize(folder).map_err(|why| format!("cannot share {folder}: {why}"))
}

/// The exit code for an outcome; prints what happened if the command did not end by itself.
fn code_of(who: &str, outcome: &GuestOutcome) -> i32 {
    match outcome.end {
        GuestEnd::Code(code) => return code,
        GuestEnd::TimedOut => eprintln!(
            "softroce: {who}the command {} (--timeout SECONDS)",
            outcome.ending()
        ),
        GuestEnd::Lost(_) => eprintln!("softroce: {who}{}", outcome.ending()),
    }
    if outcome.end == GuestEnd::TimedOut {
        TIMED_OUT
    } else {
        NO_MACHINE
    }
}

/// Options that take a value.
const OPTIONS: &[&str] = &[
    "--kernel",
    "--mtu",
    "--netem",
    "--share",
    "--cpus",
    "--memory",
    "--timeout",
    "--log",
    "--soak",
];
const TIMED_OUT: i32 = 124;
const NO_MACHINE: i32 = 125;

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(args: &[&str]) -> Result<SoftroceRequest, String> {
        let args: Vec<String> = args.iter().map(|arg| (*arg).into()).collect();
        SoftroceRequest::parse(&args)
    }

    fn refused(args: &[&str]) -> String {
        parse(args).err().unwrap()
    }

    #[test]
    fn the_command_stands_after_the_dashes() {
        let request = parse(&["--mtu", "4200", "--", "ls", "--two"]).unwrap();
        assert_eq!(request.command, ["ls", "--two"]);
        assert!(!request.two);
        assert_eq!(request.guest.mtu_bytes, 4200);
        assert!(refused(&["--mtu", "4200"]).contains("no command was given"));
        assert_eq!(refused(&["--"]), "there is no command after --");
    }

    #[test]
    fn two_guests_have_one_command_or_two() {
        assert!(parse(&["--two", "--", "true", "true"]).unwrap().two);
        assert!(parse(&["--two", "--", "true"]).unwrap().two);
        assert!(refused(&["--two", "--"]).contains("0 arguments were given"));
        assert!(refused(&["--two", "--", "a", "b", "c"]).contains("3 arguments were given"));
    }

    #[test]
    fn the_benchmark_needs_no_command() {
        assert!(parse(&["--kernel", "6.1", "--bench"]).unwrap().bench);
        let request = parse(&["--bench", "--", "3", "0"]).unwrap();
        assert_eq!(request.command, ["3", "0"]);
        let request = parse(&["--two", "--bench", "--", "1", "1"]).unwrap();
        assert!(request.two && request.bench);
    }

    #[test]
    fn a_soak_has_minutes_and_perhaps_a_seed() {
        let request = parse(&["--soak", "10"]).unwrap();
        assert_eq!(request.soak, Some(Duration::from_secs(600)));
        assert_eq!(request.seed(), Ok(None));
        let request = parse(&["--soak", "1", "--", "17"]).unwrap();
        assert_eq!(request.seed(), Ok(Some(17)));
        assert!(refused(&["--soak", "1", "--", "ls"]).contains("`ls` was given"));
        assert!(refused(&["--soak", "0"]).contains("from 1 to 1000, not `0`"));
        assert!(refused(&["--soak", "1", "--bench"]).contains("one of them"));
        assert!(refused(&["--soak", "1", "--two"]).contains("without --two"));
    }

    #[test]
    fn options_and_values_are_checked() {
        assert!(refused(&["--mut", "1500", "--", "ls"]).contains("did you mean `--mtu`?"));
        assert!(refused(&["--mtu", "--", "ls"]).contains("--mtu lacks its value"));
        assert!(refused(&["--mtu", "9", "--", "ls"]).contains("from 1280 to 65521, not `9`"));
        assert!(refused(&["--kernel", "4.9", "--", "ls"]).contains("unknown kernel"));
        assert!(refused(&["--share", "/no/such", "--", "ls"]).contains("cannot share /no/such"));
    }

    #[test]
    fn codes_distinguish_how_the_command_ended() {
        let outcome = |end| GuestOutcome {
            end,
            stdout: String::new(),
            stderr: String::new(),
            wall: Duration::ZERO,
        };
        assert_eq!(code_of("", &outcome(GuestEnd::Code(3))), 3);
        assert_eq!(code_of("", &outcome(GuestEnd::TimedOut)), 124);
        assert_eq!(code_of("", &outcome(GuestEnd::Lost("why".into()))), 125);
    }
}
