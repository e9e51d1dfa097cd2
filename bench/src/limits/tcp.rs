// SPDX-License-Identifier: MIT OR Apache-2.0
//! The limits of TCP and UDP between two hosts, without MPI: a process on each host, started by the remote shell, and
//! one connection between them. The process on the second host is the server: it runs the batches that the process on
//! the first host requests.
//!
//! A library may choose how to use its sockets, so this measurement does too: each way that suits the test
//! (`SocketUse`) is measured, and the best one counts.

mod server;
mod side;

use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use super::{Figure, json_line};
use crate::hosts::BenchHosts;
use crate::unit::FigureUnit;
use crate::{Error, interrupt, run};
use side::{Address, SocketUse, TcpTask};

/// One measurement between two hosts.
#[derive(Debug)]
struct Test {
    name: &'static str,
    title: &'static str,
    unit: FigureUnit,
    sizes: &'static [usize],
    task: TcpTask,
    ways: &'static [SocketUse],
}

const TESTS: [Test; 4] = [
    Test {
        name: "tcp",
        title: "TCP between hosts, one way",
        unit: FigureUnit::Us,
        sizes: &[1, 8, 9, 64, 1 << 10, 4 << 10],
        task: TcpTask::PingPong,
        ways: &SocketUse::NON_BLOCKING,
    },
    Test {
        name: "tcp-stream",
        title: "TCP stream between hosts",
        unit: FigureUnit::MegabytesPerSecond,
        sizes: &[4 << 10, 64 << 10, 1 << 20, 4 << 20],
        task: TcpTask::Stream,
        ways: &SocketUse::STREAMING,
    },
    Test {
        name: "udp",
        title: "UDP between hosts, one way",
        unit: FigureUnit::Us,
        sizes: &[8, 64, 1 << 10],
        task: TcpTask::Datagrams,
        ways: &SocketUse::NON_BLOCKING,
    },
    Test {
        name: "udp-stream",
        title: "UDP packets between hosts, none lost",
        unit: FigureUnit::MegabytesPerSecond,
        sizes: &[4 << 10, 64 << 10, 1 << 20, 4 << 20],
        task: TcpTask::Packets,
        ways: &SocketUse::NON_BLOCKING,
    },
];

/// The names of what is measured between two hosts.
pub fn names() -> impl Iterator<Item = &'static str> {
    TESTS.iter().map(|test| test.name)
}

/// The figures between two hosts.
#[derive(Clone, Debug, PartialEq)]
pub struct HostLimits {
    /// The figures, in the order of the requested names.
    pub figures: Vec<Figure>,
    /// The addresses of the connection's two ends, the first host's first.
    pub addresses: [String; 2],
}

/// The line that the process on the first host prints before the figures.
#[derive(Serialize, Deserialize)]
struct ConnectionInfo {
    addresses: [String; 2],
}

/// The first argument of the processes on the hosts.
const SERVE_WORD: &str = "limits-tcp-serve";
const MEASURE_WORD: &str = "limits-tcp-measure";
/// How long the second host may take to start its process.
const START_TIMEOUT: Duration = Duration::from_secs(40);

/// Measures limits between the first two hosts: `NAME` is measured in all its sizes, `NAME.BYTES` in one. `program`
/// must be at the same path on both hosts, and its `main` must begin with
/// [`serve_if_requested`](super::serve_if_requested) and [`guard_if_requested`](run::guard_if_requested).
///
/// # Errors
/// When a name is unknown, a host cannot be reached, or the measurement fails there.
pub fn between(
    hosts: &BenchHosts,
    program: &Path,
    names: &[&str],
    budget: Duration,
) -> Result<HostLimits, Error> {
    for name in names {
        find(name)?;
    }
    let server = LimitServer::start(hosts, program)?;
    let mut words = vec![
        program.display().to_string(),
        MEASURE_WORD.to_owned(),
        budget.as_millis().to_string(),
        hosts.list()[1].name.clone(),
    ];
    words.extend(server.address.words());
    words.extend(names.iter().map(|name| (*name).to_owned()));
    let mut command = run::guarded(program, &hosts.command(0, &words));
    let outcome = run::run(&mut command, Duration::from_secs(300))?;
    let first = hosts.list()[0].label();
    if let Some(failure) = outcome.failure() {
        return Err(Error::Limit(format!("TCP: host {first}: {failure}")));
    }
    let info = outcome
        .stdout
        .lines()
        .find_map(|line| serde_json::from_str::<ConnectionInfo>(line).ok());
    let figures = outcome
        .stdout
        .lines()
        .filter_map(|line| serde_json::from_str(line).ok());
    let info = info.ok_or_else(|| {
        Error::Limit(format!(
            "TCP: host {first} printed nothing that can be read"
        ))
    })?;
    Ok(HostLimits {
        figures: figures.collect(),
        addresses: info.addresses,
    })
}

fn find(name: &str) -> Result<(&'static Test, Vec<usize>), Error> {
    let (stem, size) = match name.split_once('.') {
        Some((stem, size)) => (stem, Some(size)),
        None => (name, None),
    };
    let test = TESTS.iter().find(|test| test.name == stem);
    let sizes = |test: &'static Test| -> Vec<usize> {
        let matches = |known: &usize| size.is_none_or(|size| known.to_string() == size);
        test.sizes.iter().copied().filter(matches).collect()
    };
    test.map(|test| (test, sizes(test)))
        .filter(|(_, sizes)| !sizes.is_empty())
        .ok_or_else(|| {
            let known: Vec<_> = names().collect();
            Error::Limit(format!(
                "no limit between hosts is called \"{name}\"; known are {}",
                known.join(", ")
            ))
        })
}

/// The process on the second host; dropping this ends it.
struct LimitServer {
    child: Child,
    address: Address,
}

impl LimitServer {
    fn start(hosts: &BenchHosts, program: &Path) -> Result<Self, Error> {
        let second = hosts.list()[1].label();
        let words = [program.display().to_string(), SERVE_WORD.to_owned()];
        let mut command = run::guarded(program, &hosts.command(1, &words));
        // Standard input is a pipe, because the remote process ends when its standard input ends.
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .process_group(0);
        let mut child = command
            .spawn()
            .map_err(|e| Error::io("cannot start a remote shell", e))?;
        match address_of(&mut child) {
            Some(address) => Ok(Self { child, address }),
            None => {
                end(&mut child);
                Err(Error::Limit(format!(
                    "TCP: host {second}: {} does not answer there",
                    program.display()
                )))
            }
        }
    }
}

impl Drop for LimitServer {
    fn drop(&mut self) {
        end(&mut self.child);
    }
}

/// Closes the standard input of the remote shell, which ends the server. If the remote shell has not ended 2 s later,
/// kills it.
fn end(child: &mut Child) {
    drop(child.stdin.take());
    let deadline = Instant::now() + Duration::from_secs(2);
    while Instant::now() < deadline && matches!(child.try_wait(), Ok(None)) {
        std::thread::sleep(Duration::from_millis(5));
    }
    // This fails if the process has ended in between.
    drop(child.kill());
    drop(child.wait());
}

/// Reads the server's address from its output, skipping anything that a login shell printed before; `None` if it does
/// not come in time.
fn address_of(child: &mut Child) -> Option<Address> {
    let stream = child.stdout.take()?;
    let (sender, receiver) = mpsc::channel();
    std::thread::spawn(move || {
        let lines = BufReader::new(stream).lines().map_while(Result::ok);
        for line in lines {
            if let Some(address) = Address::read(&line) {
                // The receiver is gone after a time-out.
                drop(sender.send(address));
            }
        }
    });
    let deadline = Instant::now() + START_TIMEOUT;
    while Instant::now() < deadline && !interrupt::seen() {
        match receiver.recv_timeout(Duration::from_millis(50)) {
            Ok(address) => return Some(address),
            Err(mpsc::RecvTimeoutError::Disconnected) => return None,
            Err(mpsc::RecvTimeoutError::Timeout) => {}
        }
    }
    None
}

/// If the arguments are those of a process on one of the two hosts, does its work and returns `true`; otherwise returns
/// `false`.
pub(super) fn serve_if_requested(arguments: &[String]) -> bool {
    let failure = match arguments {
        [_, word] if word == SERVE_WORD => server::serve().err(),
        [_, word, rest @ ..] if word == MEASURE_WORD => measure(rest).err(),
        _ => return false,
    };
    if let Some(error) = failure {
        eprintln!("{error}");
        std::process::exit(1);
    }
    true
}

/// The work of the process on the first host.
fn measure(words: &[String]) -> Result<(), Error> {
    let wrong = || Error::Usage(format!("{MEASURE_WORD} is for rmpi-bench itself"));
    let [milliseconds, host, port, token, addresses, names @ ..] = words else {
        return Err(wrong());
    };
    let budget = Duration::from_millis(milliseconds.parse().map_err(|_| wrong())?);
    let address = Address::of_words(port, token, addresses).ok_or_else(wrong)?;
    let remote = address.find(host)?;
    let info = ConnectionInfo {
        addresses: remote.addresses.clone(),
    };
    let line = serde_json::to_string(&info);
    println!(
        "{}",
        line.map_err(|e| Error::Program(format!("cannot write JSON: {e}")))?
    );
    for name in names {
        let (test, sizes) = find(name)?;
        for size in sizes {
            print!("{}", json_line(&figure(test, size, &remote, budget)?));
        }
    }
    Ok(())
}

/// Measures every suitable socket use, and returns the figure of the best one.
fn figure(
    test: &Test,
    size: usize,
    remote: &side::RemoteEnd,
    budget: Duration,
) -> Result<Figure, Error> {
    let mut best = None;
    let each = budget / u32::try_from(test.ways.len()).unwrap_or(1);
    for way in test.ways {
        let seconds = remote.measure(test.task, *way, size, each)?;
        let value = |seconds: f64| test.unit.from_seconds(seconds, size);
        let figure = Figure {
            id: format!("{}.{size}", test.name),
            title: format!("{}, {}", test.title, way.words()),
            unit: test.unit,
            size,
            median: value(seconds.median),
            p99: value(seconds.p99),
            best: value(seconds.min),
            worst: value(seconds.max),
            batches: seconds.count,
        };
        best = match best {
            Some(Figure { median, .. }) if test.unit.better(median, figure.median) == median => {
                best
            }
            _ => Some(figure),
        };
    }
    best.ok_or_else(|| Error::Limit("nothing was measured".to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_selects_all_sizes_or_one() {
        assert_eq!(find("tcp").unwrap().1, [1, 8, 9, 64, 1024, 4096]);
        assert_eq!(find("tcp-stream.65536").unwrap().1, [65536]);
        for wrong in ["tcp.7", "line", "tcp-stream.64K"] {
            let error = find(wrong).unwrap_err().to_string();
            assert!(
                error.contains(wrong) && error.contains("tcp, tcp-stream, udp, udp-stream"),
                "{error}"
            );
        }
    }
}
