// SPDX-License-Identifier: MIT OR Apache-2.0
//! The start of a job over several hosts, up to the word by which all daemons start their ranks: all hosts say that they are there,
//! get their parts of the job, and say that they have found what it needs. What is wrong is told of all hosts at once.

use super::nodes::{Heard, Nodes};
use super::signals::ENDING;
use crate::edge::{Closed, Edge};
use crate::link::Event;
use crate::shepherd::words::{Facts, Up};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::Signal;
use nix::sys::signalfd::SignalFd;
use std::os::fd::AsFd;

/// Why a job was not started, and its exit code.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Stop {
    /// For the user, a line each.
    pub(crate) lines: Vec<String>,
    /// The exit code.
    pub(crate) code: u8,
}

/// What a host says that is not ready: words that stand behind its name and a colon, and an exit code.
type Problem = (String, u8);

/// What the hosts say, each once.
struct Answers<'a, T> {
    names: &'a [String],
    all: Vec<Option<Result<T, Problem>>>,
}

/// So many hosts with the same problem are named.
const MOST_NAMED: usize = 8;

impl<'a, T> Answers<'a, T> {
    fn of(names: &'a [String]) -> Self {
        Self {
            names,
            all: names.iter().map(|_| None).collect(),
        }
    }

    /// The first that a host says counts.
    fn hear(&mut self, node: usize, answer: Result<T, Problem>) {
        if let Some(place) = self.all.get_mut(node) {
            place.get_or_insert(answer);
        }
    }

    fn are_complete(&self) -> bool {
        self.all.iter().all(Option::is_some)
    }

    /// What they have answered; or the problems, each with all hosts that have it.
    fn end(self) -> Result<Vec<T>, Stop> {
        let total = self.all.len();
        let mut good = Vec::with_capacity(total);
        let mut problems: Vec<(Problem, Vec<&str>)> = Vec::new();
        for (name, answer) in self.names.iter().zip(self.all) {
            match answer.unwrap_or_else(|| Err(("no answer".to_owned(), 1))) {
                Ok(answer) => good.push(answer),
                Err(problem) => match problems.iter_mut().find(|(known, _)| *known == problem) {
                    Some((_, hosts)) => hosts.push(name),
                    None => problems.push((problem, vec![name])),
                },
            }
        }
        let Some(((_, code), _)) = problems.first() else {
            return Ok(good);
        };
        let code = *code;
        let line =
            |((words, _), hosts): &(Problem, Vec<&str>)| format!("{}: {words}", named(hosts));
        let mut lines: Vec<String> = problems.iter().map(line).collect();
        let failed = total - good.len();
        let is_are = if failed == 1 { "is" } else { "are" };
        lines.push(format!(
            "nothing was started: {failed} of {total} hosts {is_are} not ready"
        ));
        Err(Stop { lines, code })
    }
}

/// Hosts that have the same to say.
fn named(hosts: &[&str]) -> String {
    match hosts {
        [only] => format!("host {only}"),
        hosts if hosts.len() <= MOST_NAMED => format!("hosts {}", hosts.join(", ")),
        hosts => {
            let first = hosts[..MOST_NAMED].join(", ");
            format!("hosts {first} and {} more", hosts.len() - MOST_NAMED)
        }
    }
}

/// Waits until the stream or a signal has something.
fn wait(edge_asks: Vec<PollFd<'_>>, signals: &SignalFd) -> Result<(), Stop> {
    let mut asked = edge_asks;
    asked.push(PollFd::new(signals.as_fd(), PollFlags::POLLIN));
    match poll(&mut asked, PollTimeout::NONE) {
        Ok(_) | Err(Errno::EINTR) => (),
        Err(error) => {
            return Err(Stop {
                lines: vec![format!("cannot wait for the hosts: {}", error.desc())],
                code: 1,
            });
        }
    }
    while let Ok(Some(told)) = signals.read_signal() {
        let number = i32::try_from(told.ssi_signo).unwrap_or(0);
        let ending = Signal::try_from(number)
            .ok()
            .filter(|signal| ENDING.contains(signal));
        if let Some(signal) = ending {
            return Err(Stop {
                lines: vec![format!("{signal} received before the ranks were started")],
                code: u8::try_from(128 + number).unwrap_or(1),
            });
        }
    }
    Ok(())
}

/// What is said if the shepherd of this machine ends.
fn shepherd_is_gone() -> Stop {
    Stop {
        lines: vec!["the shepherd of this machine is gone; nothing was started".to_owned()],
        code: 1,
    }
}

/// Waits until each host has said what it is, or why it cannot be reached.
pub(crate) fn facts(
    edge: &mut Edge,
    names: &[String],
    signals: &SignalFd,
) -> Result<Vec<Facts>, Stop> {
    let mut answers = Answers::of(names);
    let mut scratch = vec![0; 64 << 10];
    loop {
        while let Some(word) = Up::take(&mut edge.inbox).map_err(|_| shepherd_is_gone())? {
            match word {
                Up::Here(node, facts) => answers.hear(node as usize, Ok(facts)),
                Up::Lost(node, loss) => answers.hear(node as usize, Err((loss.words, loss.code))),
                // Whose daemon says something then is told by the next words.
                Up::Event(..) | Up::Ended(_) | Up::Beat => (),
            }
        }
        if answers.are_complete() {
            return answers.end();
        }
        let is_flushed = edge.flush().map_err(|Closed| shepherd_is_gone())?;
        let mut asked = vec![PollFd::new(edge.reading(), PollFlags::POLLIN)];
        if !is_flushed {
            asked.push(PollFd::new(edge.writing(), PollFlags::POLLOUT));
        }
        wait(asked, signals)?;
        edge.fill(&mut scratch)
            .map_err(|Closed| shepherd_is_gone())?;
    }
}

/// Waits until each daemon has found what its ranks need, or has said what is missing. All nodes are reached over one way.
pub(crate) fn ready(nodes: &mut Nodes, names: &[String], signals: &SignalFd) -> Result<(), Stop> {
    let mut answers = Answers::of(names);
    for node in (0..nodes.count()).filter(|node| nodes.is_gone(*node)) {
        // It has no ranks.
        answers.hear(node, Ok(()));
    }
    let mut scratch = vec![0; 64 << 10];
    loop {
        while let Some((node, heard)) = nodes.take(0).map_err(|_| shepherd_is_gone())? {
            match heard {
                Heard::Event(Event::Ready) => answers.hear(node, Ok(())),
                Heard::Event(Event::Broken { words, code }) => {
                    answers.hear(node, Err((words, code)));
                }
                Heard::Lost(loss) => answers.hear(node, Err((loss.words, loss.code))),
                Heard::Event(_) => (),
            }
        }
        if answers.are_complete() {
            return answers.end().map(|_| ());
        }
        nodes.flush().map_err(|_| shepherd_is_gone())?;
        wait(nodes.edges().map(|(_, asked)| asked).collect(), signals)?;
        nodes
            .fill(0, &mut scratch)
            .map_err(|Closed| shepherd_is_gone())?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_hosts_that_are_not_ready_are_named() {
        let names: Vec<String> = (1..=20).map(|number| format!("n{number}")).collect();
        let mut answers = Answers::of(&names[..3]);
        answers.hear(1, Err(("is down".to_owned(), 1)));
        answers.hear(0, Ok(5));
        assert!(!answers.are_complete());
        answers.hear(2, Err(("no program a".to_owned(), 127)));
        answers.hear(2, Ok(7));
        answers.hear(9, Ok(7));
        assert!(answers.are_complete());
        let stop = answers.end().unwrap_err();
        assert_eq!(
            stop.lines,
            [
                "host n2: is down",
                "host n3: no program a",
                "nothing was started: 2 of 3 hosts are not ready"
            ]
        );
        assert_eq!(stop.code, 1);
        let mut well = Answers::of(&names[..1]);
        well.hear(0, Ok(3));
        assert_eq!(well.end(), Ok(vec![3]));
        let mut many = Answers::<u32>::of(&names);
        (0..20).for_each(|node| many.hear(node, Err(("no program a".to_owned(), 127))));
        let stop = many.end().unwrap_err();
        let first = "hosts n1, n2, n3, n4, n5, n6, n7, n8 and 12 more: no program a";
        assert_eq!((stop.lines[0].as_str(), stop.code), (first, 127));
    }
}
