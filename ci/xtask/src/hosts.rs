// SPDX-License-Identifier: MIT OR Apache-2.0
//! `cargo xtask hosts`: a command in a throw-away world of hosts, made of namespaces on this machine.
//!
//! Nothing has a name outside the world, and the world ends with its first process: so nothing is left, however it ends.
//! Four processes in a row make it: this one becomes `unshare`, which becomes the warden (in the namespaces, but for the one of
//! processes); its child is the world's pid 1, a shell that collects orphans; the shell's child is [`world::run`].

mod faults;
mod left;
mod rights;
mod ssh;
mod world;

pub(crate) use rights::Rights;

use crate::process::{become_it, ending};
use crate::setup;
use crate::stage;
use crate::tree::command;
use std::env;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{Command, ExitStatus, exit};

/// `cargo xtask hosts [OPTION...] [--] [COMMAND...]`. Ends this process with the command's code.
pub(crate) fn run(args: &[String]) -> Result<(), String> {
    let rest = args.get(1..).unwrap_or_default();
    match args.first().map(String::as_str) {
        Some(WARDEN) => exit(guard(rest)?),
        Some(WORLD) => exit(world::run(&HostsRequest::parse(rest)?)?),
        Some(LAB) => exit(faults::run(rest)?),
        _ => {}
    }
    HostsRequest::parse(args)?;
    setup::ensure(&["hosts"])?;
    let rights = Rights::find()?;
    let mut unshare = command("env");
    // Ctrl-C is for the command. The world ends when the command does.
    unshare.args(["--ignore-signal=INT", "--ignore-signal=QUIT", "unshare"]);
    unshare
        .args(rights.options())
        .args("--net --mount --ipc --uts --pid --".split(' '))
        .arg(this_program()?)
        .args(["hosts", WARDEN])
        .args(args);
    become_it(at_home(unshare)?)
}

/// The command line.
struct HostsRequest {
    count: usize,
    /// Folders that hosts see though they are below one that each host has of its own.
    keep: Vec<PathBuf>,
    /// Empty means a shell.
    command: Vec<String>,
}

impl HostsRequest {
    fn parse(args: &[String]) -> Result<Self, String> {
        let mut asked = Self {
            count: 4,
            keep: Vec::new(),
            command: Vec::new(),
        };
        let mut words = args.iter();
        while let Some(word) = words.next() {
            match word.as_str() {
                "--" => {
                    asked.command = words.cloned().collect();
                    break;
                }
                "-n" => asked.count = count(words.next())?,
                "--keep" => {
                    let folder = words.next().ok_or("--keep lacks its folder")?;
                    asked.keep.push(folder.into());
                }
                option if option.starts_with('-') => {
                    let known = ["-n", "--keep"].into_iter();
                    let help = "cargo xtask hosts --help";
                    return Err(stage::unknown("option", option, known, help));
                }
                first => {
                    asked.command = [first.into()].into_iter().chain(words.cloned()).collect();
                    break;
                }
            }
        }
        Ok(asked)
    }
}

fn count(word: Option<&String>) -> Result<usize, String> {
    let word = word.ok_or("-n lacks its number of hosts")?;
    let count = word.parse().ok();
    let count = count.filter(|count| (1..=MOST_HOSTS).contains(count));
    count.ok_or_else(|| format!("-n takes 1 to {MOST_HOSTS} hosts, not `{word}`"))
}

/// The warden: starts the world and waits for it. When it dies, in whatever way, the kernel kills the world's pid 1, and
/// with it everything.
fn guard(args: &[String]) -> Result<i32, String> {
    let mut first = command("setpriv");
    first
        .args(["--pdeathsig", "KILL", "sh", "-c", FIRST, "sh"])
        .arg(this_program()?)
        .args(["hosts", WORLD])
        .args(args);
    let mut first = at_home(first)?;
    let status = first.status();
    let status = status.map_err(|why| format!("cannot start setpriv (util-linux): {why}"))?;
    Ok(code_of(status))
}

/// The code to end with after a command.
fn code_of(status: ExitStatus) -> i32 {
    match (status.code(), status.signal()) {
        (Some(code), _) => code,
        (None, Some(signal)) => {
            eprintln!("hosts: the command {}", ending(status));
            128 + signal
        }
        (None, None) => NO_WORLD,
    }
}

fn this_program() -> Result<PathBuf, String> {
    env::current_exe().map_err(|why| format!("cannot find this program: {why}"))
}

/// The command in the folder that we were called from, not in the repository's root.
fn at_home(mut command: Command) -> Result<Command, String> {
    let folder = env::current_dir().map_err(|why| format!("the working folder is gone: {why}"))?;
    command.current_dir(folder);
    Ok(command)
}

/// The world's pid 1. A command in the background has no input of its own, unless it is given one.
const FIRST: &str = r#"exec 3<&0; "$@" <&3 3<&- & exec 3<&-; wait "$!""#;
const WARDEN: &str = "--warden";
const WORLD: &str = "--world";
const LAB: &str = "--lab";
const MOST_HOSTS: usize = 64;
const NO_WORLD: i32 = 125;

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<HostsRequest, String> {
        let words: Vec<String> = line.split_whitespace().map(String::from).collect();
        HostsRequest::parse(&words)
    }

    #[test]
    fn the_command_begins_at_the_first_word_that_is_no_option() {
        let asked = parse("-n 2 ls -n 3").unwrap();
        assert_eq!((asked.count, asked.command.len()), (2, 3));
        let asked = parse("--keep /tmp/x -- -n").unwrap();
        assert_eq!((asked.count, asked.command), (4, vec!["-n".to_string()]));
        assert_eq!(asked.keep, [PathBuf::from("/tmp/x")]);
        assert!(parse("").unwrap().command.is_empty());
    }

    #[test]
    fn options_are_checked() {
        let refused = |line| parse(line).err().unwrap();
        assert!(refused("-n 65 ls").contains("1 to 64 hosts, not `65`"));
        assert!(refused("-n").contains("lacks"));
        assert!(refused("--kepe x").contains("did you mean `--keep`?"));
    }

    #[test]
    fn the_code_is_the_commands() {
        let shell = |line| Command::new("sh").args(["-c", line]).status().unwrap();
        assert_eq!(code_of(shell("exit 7")), 7);
        assert_eq!(code_of(shell("kill -9 $$")), 137);
    }
}
