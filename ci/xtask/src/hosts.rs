// SPDX-License-Identifier: MIT OR Apache-2.0
//! `cargo xtask hosts`: runs a command in a temporary world of hosts, which are made of namespaces on this machine.
//!
//! No namespace of the world has a name outside, and all of them end with the world's first process, so nothing is left
//! when the world ends, in whatever way. This process executes `unshare`, which executes the warden; the warden is in
//! all of the new namespaces except that of processes. The warden's child is the world's pid 1, a shell that reaps
//! orphans. The shell's child is [`world::run`].

mod faults;
mod left;
mod rights;
mod ssh;
mod world;

pub(crate) use rights::Rights;

use crate::process::{ending, exec};
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
    // Ctrl-C must end only the command, so the other processes of the world ignore it. They end when the command has
    // ended.
    unshare.args(["--ignore-signal=INT", "--ignore-signal=QUIT", "unshare"]);
    unshare
        .args(rights.options())
        .args("--net --mount --ipc --uts --pid --".split(' '))
        .arg(this_program()?)
        .args(["hosts", WARDEN])
        .args(args);
    exec(in_working_folder(unshare)?)
}

/// The parsed command line.
struct HostsRequest {
    count: usize,
    /// Folders that all hosts share although they are below a folder that each host has for itself, such as `/tmp`.
    keep: Vec<PathBuf>,
    /// Empty: a shell.
    command: Vec<String>,
}

impl HostsRequest {
    fn parse(args: &[String]) -> Result<Self, String> {
        let mut request = Self {
            count: 4,
            keep: Vec::new(),
            command: Vec::new(),
        };
        let mut args = args.iter();
        while let Some(arg) = args.next() {
            match arg.as_str() {
                "--" => {
                    request.command = args.cloned().collect();
                    break;
                }
                "-n" => request.count = count(args.next())?,
                "--keep" => {
                    let folder = args.next().ok_or("--keep lacks its folder")?;
                    request.keep.push(folder.into());
                }
                option if option.starts_with('-') => {
                    let options = ["-n", "--keep"].into_iter();
                    let help = "cargo xtask hosts --help";
                    return Err(stage::unknown("option", option, options, help));
                }
                first => {
                    request.command = [first.into()].into_iter().chain(args.cloned()).collect();
                    break;
                }
            }
        }
        Ok(request)
    }
}

fn count(arg: Option<&String>) -> Result<usize, String> {
    let arg = arg.ok_or("-n lacks its number of hosts")?;
    let count = arg.parse().ok();
    let count = count.filter(|count| (1..=MOST_HOSTS).contains(count));
    count.ok_or_else(|| format!("-n takes 1 to {MOST_HOSTS} hosts, not `{arg}`"))
}

/// The warden: starts the world and waits for it. When the warden ends for any reason, the kernel kills the world's pid
/// 1, and with it all processes of the world.
fn guard(args: &[String]) -> Result<i32, String> {
    let mut first = command("setpriv");
    first
        .args(["--pdeathsig", "KILL", "sh", "-c", FIRST, "sh"])
        .arg(this_program()?)
        .args(["hosts", WORLD])
        .args(args);
    let mut first = in_working_folder(first)?;
    let status = first.status();
    let status = status.map_err(|why| format!("cannot start setpriv (util-linux): {why}"))?;
    Ok(code_of(status))
}

/// The exit code for the status of a command.
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

/// Lets the command run in the caller's working directory, not in the root of the repository.
fn in_working_folder(mut command: Command) -> Result<Command, String> {
    let folder =
        env::current_dir().map_err(|why| format!("the working folder does not exist: {why}"))?;
    command.current_dir(folder);
    Ok(command)
}

/// The shell script of the world's pid 1. It passes its own input to its child explicitly, because the shell would give
/// a background command /dev/null.
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
        let args: Vec<String> = line.split_whitespace().map(String::from).collect();
        HostsRequest::parse(&args)
    }

    #[test]
    fn the_command_begins_at_the_first_argument_that_is_no_option() {
        let request = parse("-n 2 ls -n 3").unwrap();
        assert_eq!((request.count, request.command.len()), (2, 3));
        let request = parse("--keep /tmp/x -- -n").unwrap();
        assert_eq!(
            (request.count, request.command),
            (4, vec!["-n".to_string()])
        );
        assert_eq!(request.keep, [PathBuf::from("/tmp/x")]);
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
