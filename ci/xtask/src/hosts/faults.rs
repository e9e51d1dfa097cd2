// SPDX-License-Identifier: MIT OR Apache-2.0
//! `lab`, a command inside the world: it injects faults into hosts and their links, and lists what jobs have left on
//! hosts.

use super::left;
use super::world::{ip, lab, write};
use crate::process::{quiet, send_signal};
use crate::stage;
use crate::tree::{command, find_program, read};
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

/// `lab COMMAND HOST...`; returns the exit code.
pub(super) fn run(args: &[String]) -> Result<i32, String> {
    if !lab().join("pid").is_dir() {
        return Err("lab works inside the world that `cargo xtask hosts` makes, on n0".into());
    }
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    match args.as_slice() {
        [] | ["help" | "--help" | "-h"] => println!("{HELP}"),
        ["left", rest @ ..] => return left::run(rest),
        ["cut", host] => wire(host, "down")?,
        ["mend", host] => mend(host)?,
        ["drop", one, other] => drop_between(one, other)?,
        ["kill", host] => kill(&pid_of(host)?),
        ["power-off", host] => {
            let pid = pid_of(host)?;
            wire(host, "down")?;
            kill(&pid);
        }
        ["freeze", host] => freeze(host)?,
        ["thaw", host] => signal_all("CONT", &left::processes_of(host)?),
        [name, ..] => {
            let known = COMMANDS.iter().copied();
            return Err(if COMMANDS.contains(name) {
                format!("lab {name}: wrong arguments\n{HELP}")
            } else {
                stage::unknown("command", name, known, "lab help")
            });
        }
    }
    Ok(0)
}

/// The pid of a host's first process in the world's namespace.
pub(super) fn pid_of(host: &str) -> Result<String, String> {
    let file = lab().join("pid").join(host);
    let pid = fs::read_to_string(file).map_err(|_| format!("there is no host {host}"))?;
    Ok(pid.trim().into())
}

fn wire(host: &str, state: &str) -> Result<(), String> {
    pid_of(host)?;
    ip(&[format!("link set v{} {state}", number(host))])
}

/// The number in a host's name: `3` for `n3`.
fn number(host: &str) -> &str {
    host.trim_start_matches('n')
}

/// Restores the connections between this host and all others.
fn mend(host: &str) -> Result<(), String> {
    if host != "n0" {
        wire(host, "up")?;
    }
    let mut pairs = dropped();
    let before = pairs.len();
    pairs.retain(|(one, other)| one != host && other != host);
    if pairs.len() == before {
        return Ok(());
    }
    filter(&pairs)
}

/// Silently drops all packets between two hosts, in both directions.
fn drop_between(one: &str, other: &str) -> Result<(), String> {
    for host in [one, other] {
        if host != "n0" {
            pid_of(host)?;
        }
    }
    let mut pairs = dropped();
    pairs.insert((one.into(), other.into()));
    filter(&pairs)
}

/// Pairs of hosts between which packets are dropped.
type Pairs = BTreeSet<(String, String)>;

fn dropped() -> Pairs {
    let text = read(&drops()).unwrap_or_default();
    let pair = |line: &str| {
        let (one, other) = line.split_once(' ')?;
        Some((one.into(), other.into()))
    };
    text.lines().filter_map(pair).collect()
}

fn drops() -> PathBuf {
    lab().join("drops")
}

/// Replaces the rules of the bridge with those for `pairs`.
fn filter(pairs: &Pairs) -> Result<(), String> {
    let lines = pairs.iter().map(|(one, other)| format!("{one} {other}\n"));
    write(&drops(), &lines.collect::<String>())?;
    let file = lab().join("rules");
    write(&file, &rules(pairs))?;
    let nft = find_program("nft").unwrap_or_else(|| "/usr/sbin/nft".into());
    let mut nft = command(nft);
    nft.arg("-f").arg(file);
    quiet(nft, Duration::from_secs(30)).map(|_| ())
}

/// n0 is the bridge itself, not one of its ports: its packets pass the hooks `input` and `output`.
fn rules(pairs: &Pairs) -> String {
    let [mut forward, mut input, mut output] = [const { String::new() }; 3];
    for (one, other) in pairs {
        for (from, to) in [(one, other), (other, one)] {
            match (number(from), number(to)) {
                ("0", to) => output += &format!("  oifname v{to} drop\n"),
                (from, "0") => input += &format!("  iifname v{from} drop\n"),
                (from, to) => forward += &format!("  iifname v{from} oifname v{to} drop\n"),
            }
        }
    }
    let chain = |hook: &str, rules: &str| {
        format!(
            " chain {hook} {{\n  type filter hook {hook} priority 0; policy accept;\n{rules} }}\n"
        )
    };
    format!(
        "table bridge lab\ndelete table bridge lab\ntable bridge lab {{\n{}{}{}}}\n",
        chain("forward", &forward),
        chain("input", &input),
        chain("output", &output)
    )
}

/// Kills a host by its first process, which ends only after all others have; returns when it has ended, or after 10 s.
fn kill(pid: &str) {
    send_signal("KILL", pid);
    let deadline = Instant::now() + Duration::from_secs(10);
    while Path::new("/proc").join(pid).exists() && Instant::now() < deadline {
        thread::sleep(Duration::from_millis(5));
    }
}

/// Stops all processes of a host. Repeats this until no new process appears, because processes that are not stopped yet
/// may start others.
fn freeze(host: &str) -> Result<(), String> {
    let mut before = Vec::new();
    loop {
        let all = left::processes_of(host)?;
        if all == before {
            return Ok(());
        }
        signal_all("STOP", &all);
        before = all;
    }
}

fn signal_all(signal: &str, pids: &[String]) {
    if !pids.is_empty() {
        send_signal(signal, &pids.join(" "));
    }
}

const COMMANDS: &[&str] = &[
    "cut",
    "mend",
    "drop",
    "kill",
    "power-off",
    "freeze",
    "thaw",
    "left",
    "help",
];
const HELP: &str = "\
lab cut HOST             take its link down
lab mend HOST            bring its link up again, and undo `drop`
lab drop HOST HOST       silently drop packets between them, in both directions
lab kill HOST            kill all its processes at once; its connections are closed
lab power-off HOST       the same, with its link down: its peers get no notice
lab freeze HOST          stop all its processes; the kernel still answers
lab thaw HOST            let them go on
lab left [--within SECONDS] [HOST...]
                         what is there that a fresh host has not: processes, sockets, files in /tmp and /dev/shm;
                         waits so long for it to go, and fails if it does not. Without a host: all, and n0";

#[cfg(test)]
mod tests {
    use super::*;

    fn pairs(all: &[(&str, &str)]) -> Pairs {
        let pair = |(one, other): &(&str, &str)| ((*one).into(), (*other).into());
        all.iter().map(pair).collect()
    }

    #[test]
    fn a_drop_has_both_directions() {
        let rules = rules(&pairs(&[("n1", "n2")]));
        assert!(rules.contains("  iifname v1 oifname v2 drop\n"), "{rules}");
        assert!(rules.contains("  iifname v2 oifname v1 drop\n"), "{rules}");
    }

    #[test]
    fn the_world_is_no_port() {
        let rules = rules(&pairs(&[("n0", "n2")]));
        assert!(rules.contains("  iifname v2 drop\n"), "{rules}");
        assert!(rules.contains("  oifname v2 drop\n"), "{rules}");
        assert!(!rules.contains("v0"), "{rules}");
    }

    #[test]
    fn outside_a_world_there_is_nothing_to_break() {
        assert!(run(&["cut".into(), "n1".into()]).is_err());
    }
}
