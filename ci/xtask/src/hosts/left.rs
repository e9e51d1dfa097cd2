// SPDX-License-Identifier: MIT OR Apache-2.0
//! Lists what a host has that a fresh host does not: processes, sockets, files.

use super::faults::pid_of;
use super::world::{lab, write};
use crate::process::seconds;
use crate::tree::read;
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

/// A process, socket or file of a host: the key that identifies it, and the text that is shown.
struct Thing {
    key: String,
    shown: String,
}

/// `lab left [--within SECONDS] [HOST...]`; the exit code is 1 if something is left.
pub(super) fn run(args: &[&str]) -> Result<i32, String> {
    let (within, hosts) = match args {
        ["--within", time, hosts @ ..] => {
            let time: u64 = time
                .parse()
                .map_err(|_| format!("--within takes seconds, not `{time}`"))?;
            (Duration::from_secs(time), hosts)
        }
        hosts => (Duration::ZERO, hosts),
    };
    let hosts: Vec<String> = match hosts {
        [] => all_hosts()?,
        some => some.iter().map(|host| (*host).into()).collect(),
    };
    let start = Instant::now();
    loop {
        let mut found = Vec::new();
        for host in &hosts {
            found.extend(left_on(host)?);
        }
        if found.is_empty() {
            println!("nothing is left after {}", seconds(start.elapsed()));
            return Ok(0);
        }
        if start.elapsed() >= within {
            found.iter().for_each(|thing| println!("{thing}"));
            return Ok(1);
        }
        thread::sleep(Duration::from_millis(20));
    }
}

/// Records what the host has now; later this counts as the state of a fresh host.
pub(super) fn remember(host: &str) -> Result<(), String> {
    let lines = things(host)?.into_iter().map(|thing| thing.key + "\n");
    write(&base(host), &lines.collect::<String>())
}

fn base(host: &str) -> PathBuf {
    lab().join("base").join(host)
}

fn all_hosts() -> Result<Vec<String>, String> {
    let folder = lab().join("base");
    let entries = fs::read_dir(&folder)
        .map_err(|why| format!("cannot read {}: {why}", folder.display()))?
        .flatten();
    let mut hosts: Vec<String> = entries
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .collect();
    hosts.sort_by_key(|host| (host.len(), host.clone()));
    Ok(hosts)
}

fn left_on(host: &str) -> Result<Vec<String>, String> {
    let base = read(&base(host))?;
    let base: BTreeSet<&str> = base.lines().collect();
    let new = |thing: &Thing| !base.contains(thing.key.as_str());
    let line = |thing: Thing| format!("{host}: {}", thing.shown);
    Ok(things(host)?.into_iter().filter(new).map(line).collect())
}

/// Everything on a host; empty if the host is dead.
fn things(host: &str) -> Result<Vec<Thing>, String> {
    let (pid, skipped) = if host == "n0" {
        ("self".into(), ancestors())
    } else {
        (pid_of(host)?, Vec::new())
    };
    let proc = Path::new("/proc").join(&pid);
    let mut all: Vec<Thing> = processes_of(host)?
        .into_iter()
        .filter(|pid| !skipped.contains(pid))
        .map(process)
        .collect();
    for table in ["tcp", "tcp6", "udp", "udp6"] {
        let text = fs::read_to_string(proc.join("net").join(table)).unwrap_or_default();
        all.extend(text.lines().skip(1).filter_map(|line| socket(table, line)));
    }
    let text = fs::read_to_string(proc.join("net/unix")).unwrap_or_default();
    all.extend(text.lines().skip(1).filter_map(unix_socket));
    for folder in ["tmp", "dev/shm"] {
        let files = fs::read_dir(proc.join("root").join(folder));
        for file in files.into_iter().flatten().flatten() {
            let shown = format!("file /{folder}/{}", file.file_name().to_string_lossy());
            let key = shown.clone();
            all.push(Thing { key, shown });
        }
    }
    Ok(all)
}

/// The pids of a host's live processes in the world's namespace.
pub(super) fn processes_of(host: &str) -> Result<Vec<String>, String> {
    let first = if host == "n0" {
        "self".into()
    } else {
        pid_of(host)?
    };
    let space = |pid: &str| fs::read_link(format!("/proc/{pid}/ns/pid")).ok();
    let Some(namespace) = space(&first) else {
        return Ok(Vec::new());
    };
    let entries = fs::read_dir("/proc").map_err(|why| format!("cannot read /proc: {why}"))?;
    let mut pids: Vec<u32> = entries
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .collect();
    pids.sort_unstable();
    let pids = pids.into_iter().map(|pid| pid.to_string());
    Ok(pids
        .filter(|pid| space(pid).as_ref() == Some(&namespace) && is_alive(pid))
        .collect())
}

/// The fields of `/proc/PID/stat` after the name, which may contain spaces and parentheses.
fn stat_fields(pid: &str) -> Vec<String> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let rest = stat.rsplit_once(") ").map_or("", |(_, rest)| rest);
    rest.split_whitespace().map(String::from).collect()
}

fn is_alive(pid: &str) -> bool {
    stat_fields(pid)
        .first()
        .is_some_and(|state| !["Z", "X"].contains(&state.as_str()))
}

/// This process and its ancestors.
fn ancestors() -> Vec<String> {
    let mut all = vec![std::process::id().to_string()];
    loop {
        let parent = all.last().map(|pid| stat_fields(pid)).unwrap_or_default();
        match parent.into_iter().nth(1) {
            Some(parent) if parent != "0" => all.push(parent),
            _ => return all,
        }
    }
}

fn process(pid: String) -> Thing {
    let command_line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let command_line = String::from_utf8_lossy(&command_line).replace('\0', " ");
    let mut shown = format!("process {pid} ({})", command_line.trim());
    if stat_fields(&pid).first().is_some_and(|state| state == "T") {
        shown += ", stopped";
    }
    Thing {
        key: format!("process {pid}"),
        shown,
    }
}

/// Parses a line of `/proc/net/tcp` and the like. Lines without an inode are skipped: such a socket (TIME_WAIT) is no
/// longer open in any process.
fn socket(table: &str, line: &str) -> Option<Thing> {
    let fields: Vec<&str> = line.split_whitespace().collect();
    let [_, from, to, state, _, _, _, _, _, inode, ..] = fields.as_slice() else {
        return None;
    };
    if *inode == "0" {
        return None;
    }
    let listens = *state == "0A";
    let (from, to) = (port(from), port(to));
    let shown = if listens {
        format!("socket {table}, listens at port {from}")
    } else {
        format!("socket {table}, port {from} to port {to}, state {state}")
    };
    let key = format!("socket {table} {inode}");
    Some(Thing { key, shown })
}

fn port(address: &str) -> u32 {
    let port = address.rsplit(':').next().unwrap_or_default();
    u32::from_str_radix(port, 16).unwrap_or(0)
}

/// Parses a line of `/proc/net/unix`; `None` if the socket has no name.
fn unix_socket(line: &str) -> Option<Thing> {
    let fields: Vec<&str> = line.split_whitespace().collect();
    let (inode, name) = (fields.get(6)?, fields.get(7)?);
    Some(Thing {
        key: format!("socket unix {inode}"),
        shown: format!("socket unix {name}"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_socket_is_parsed_and_one_in_time_wait_is_skipped() {
        let line = |state, inode| {
            format!(
                "0: 0100007F:1F90 00000000:0016 {state} 00000000:00000000 00:00000000 00000000 0 0 {inode} 1"
            )
        };
        let thing = socket("tcp", &line("0A", "77")).unwrap();
        assert_eq!(
            (thing.key.as_str(), thing.shown.as_str()),
            ("socket tcp 77", "socket tcp, listens at port 8080")
        );
        let thing = socket("tcp", &line("01", "78")).unwrap();
        assert_eq!(thing.shown, "socket tcp, port 8080 to port 22, state 01");
        assert!(socket("tcp", &line("06", "0")).is_none());
    }

    #[test]
    fn a_socket_without_a_name_is_skipped() {
        let line = "0000: 00000002 00000000 00010000 0001 01 12345";
        assert!(unix_socket(line).is_none());
        let thing = unix_socket(&format!("{line} @rmpi")).unwrap();
        assert_eq!(thing.shown, "socket unix @rmpi");
    }

    #[test]
    fn we_are_among_our_ancestors_and_alive() {
        let all = ancestors();
        assert!(all.len() > 1 && is_alive(&all[0]));
    }
}
