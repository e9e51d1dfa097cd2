// SPDX-License-Identifier: MIT OR Apache-2.0
//! Waits for the hosts of a job over several hosts, before all daemons are ordered to start their ranks: first until
//! all hosts have reported their facts, then until all daemons have reported that they are ready. Errors of all hosts
//! are reported together.

use super::nodes::{NodeMessage, Nodes};
use super::signals::ENDING;
use crate::connection::{Disconnected, FrameConnection};
use crate::link::{Garbled, Inbox, NodeEvent};
use crate::shepherd::protocol::{HostFacts, UpMessage};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, poll};
use nix::sys::signal::{Signal, kill};
use nix::sys::signalfd::SignalFd;
use nix::unistd::Pid;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

/// Why a job was not started.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct StartFailure {
    /// Messages for the user, one per line.
    pub(crate) lines: Vec<String>,
    /// Exit code.
    pub(crate) code: u8,
}

/// Error of a host: a message that is printed after the host's name and a colon, and an exit code.
type Problem = (String, u8);

/// The replies of all hosts, one per host.
pub(crate) struct HostReplies<'a, T> {
    names: &'a [String],
    all: Vec<Option<Result<T, Problem>>>,
}

/// Maximum number of hosts that are named in one message.
const MOST_NAMED: usize = 8;

impl<'a, T> HostReplies<'a, T> {
    pub(crate) fn of(names: &'a [String]) -> Self {
        Self {
            names,
            all: names.iter().map(|_| None).collect(),
        }
    }

    /// Records a reply. The first error of a host replaces any other reply.
    pub(crate) fn record(&mut self, node: usize, answer: Result<T, Problem>) {
        if let Some(place) = self.all.get_mut(node)
            && !matches!(place, Some(Err(_)))
        {
            *place = Some(answer);
        }
    }

    /// The hosts without a reply.
    fn missing(&self) -> Vec<&str> {
        let both = self.names.iter().zip(&self.all);
        let missing = both.filter(|(_, answer)| answer.is_none());
        missing.map(|(name, _)| name.as_str()).collect()
    }

    /// Records this error for all hosts without a reply.
    fn give_up(&mut self, message: &str) {
        let missing = self.all.iter_mut().filter(|answer| answer.is_none());
        missing.for_each(|answer| *answer = Some(Err((message.to_owned(), 1))));
    }

    pub(crate) fn are_complete(&self) -> bool {
        self.all.iter().all(Option::is_some)
    }

    /// All replies, or the errors. Each different error is one line, with all hosts that have it.
    pub(crate) fn end(self) -> Result<Vec<T>, StartFailure> {
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
            |((message, _), hosts): &(Problem, Vec<&str>)| format!("{}: {message}", named(hosts));
        let mut lines: Vec<String> = problems.iter().map(line).collect();
        let failed = total - good.len();
        let is_are = if failed == 1 { "is" } else { "are" };
        lines.push(format!(
            "nothing was started: {failed} of {total} hosts {is_are} not ready"
        ));
        Err(StartFailure { lines, code })
    }
}

/// Formats a list of hosts.
pub(crate) fn named(hosts: &[&str]) -> String {
    match hosts {
        [only] => format!("host {only}"),
        hosts if hosts.len() <= MOST_NAMED => format!("hosts {}", hosts.join(", ")),
        hosts => {
            let first = hosts[..MOST_NAMED].join(", ");
            format!("hosts {first} and {} more", hosts.len() - MOST_NAMED)
        }
    }
}

/// Waits for hosts, and handles signals and timeouts meanwhile.
pub(crate) struct StartupWait<'a> {
    signals: &'a SignalFd,
    /// End of `--timeout`, and its length; `None` without this option.
    until: Option<(Instant, Duration)>,
    /// When the hosts that have not replied are reported to the user; `None` once that was done.
    report_at: Option<Instant>,
}

/// Time after which the hosts that have not replied are reported to the user.
const REPORT_AFTER: Duration = Duration::from_secs(10);
/// Timeout for a daemon to report that it is ready.
const READY_WITHIN: Duration = Duration::from_secs(120);

impl<'a> StartupWait<'a> {
    /// Starts the timeouts. `limit`: length of `--timeout`.
    pub(crate) fn new(signals: &'a SignalFd, limit: Option<Duration>) -> Self {
        Self {
            signals,
            until: limit.map(|limit| (Instant::now() + limit, limit)),
            report_at: Some(Instant::now() + REPORT_AFTER),
        }
    }

    /// Waits until a stream or a signal is readable, at most for [`CHECK_PERIOD_MS`]. Then handles timeouts and
    /// signals; an error means that the job is not started. `missing`: the hosts that have not replied.
    fn wait<'b>(&mut self, mut fds: Vec<PollFd<'b>>, missing: &[&str]) -> Result<(), StartFailure>
    where
        'a: 'b,
    {
        let signals = self.signals;
        fds.push(PollFd::new(signals.as_fd(), PollFlags::POLLIN));
        match poll(&mut fds, CHECK_PERIOD_MS) {
            Ok(_) | Err(Errno::EINTR) => (),
            Err(error) => {
                return Err(stop(
                    format!("cannot wait for the hosts: {}", error.desc()),
                    1,
                ));
            }
        }
        let now = Instant::now();
        if self.report_at.take_if(|at| *at <= now).is_some() {
            eprintln!("rmpiexec: waiting for {}", named(missing));
        }
        if let Some((_, limit)) = self.until.filter(|(until, _)| *until <= now) {
            let message = format!(
                "the time of {} s is over, and {} not ready; nothing was started",
                limit.as_secs_f64(),
                are(missing)
            );
            return Err(stop(message, super::TIMEOUT_CODE));
        }
        self.handle_signals()
    }

    fn handle_signals(&self) -> Result<(), StartFailure> {
        while let Ok(Some(info)) = self.signals.read_signal() {
            let number = i32::try_from(info.ssi_signo).unwrap_or(0);
            let Ok(signal) = Signal::try_from(number) else {
                continue;
            };
            if ENDING.contains(&signal) {
                let code = u8::try_from(128 + number).unwrap_or(1);
                return Err(stop(
                    format!("{signal} received before ranks were started"),
                    code,
                ));
            }
            if signal == Signal::SIGTSTP {
                // SIGTSTP is blocked and read from the signalfd, so it does not stop this process; SIGSTOP does.
                let _ = kill(Pid::this(), Signal::SIGSTOP);
            }
        }
        Ok(())
    }
}

/// Maximum time between two checks of the clock, in milliseconds.
const CHECK_PERIOD_MS: u16 = 250;

fn are(missing: &[&str]) -> String {
    let verb = if missing.len() == 1 { "is" } else { "are" };
    format!("{} {verb}", named(missing))
}

fn stop(message: String, code: u8) -> StartFailure {
    StartFailure {
        lines: vec![message],
        code,
    }
}

/// The error if the shepherd of this machine ends.
fn shepherd_lost() -> StartFailure {
    stop(
        "the shepherd of this machine is gone; nothing was started".to_owned(),
        1,
    )
}

/// Records the facts that hosts have reported.
pub(crate) fn receive_facts(
    inbox: &mut Inbox,
    replies: &mut HostReplies<'_, HostFacts>,
) -> Result<(), Garbled> {
    while let Some(message) = UpMessage::take(inbox)? {
        match message {
            UpMessage::Here(node, facts) => replies.record(node as usize, Ok(facts)),
            UpMessage::Lost(node, loss) => {
                replies.record(node as usize, Err((loss.message, loss.code)))
            }
            UpMessage::Ended(node) => replies.record(node as usize, Err(ended())),
            // A daemon sends no events before it has its part of the job.
            UpMessage::Event(..) | UpMessage::Beat | UpMessage::Line => (),
        }
    }
    Ok(())
}

/// Records the daemons' reports that they are ready.
pub(crate) fn receive_ready(
    nodes: &mut Nodes,
    replies: &mut HostReplies<'_, ()>,
) -> Result<(), Garbled> {
    while let Some((node, message)) = nodes.take(0)? {
        match message {
            NodeMessage::Event(NodeEvent::Ready) => replies.record(node, Ok(())),
            NodeMessage::Event(NodeEvent::Broken { message, code }) => {
                replies.record(node, Err((message, code)));
            }
            NodeMessage::Lost(loss) if !nodes.has_ended(node) => {
                replies.record(node, Err((loss.message, loss.code)));
            }
            NodeMessage::Event(_) | NodeMessage::Lost(_) => (),
        }
    }
    Ok(())
}

/// The error of a daemon that ends before it has reported.
fn ended() -> Problem {
    ("its node daemon has ended without a word".to_owned(), 1)
}

/// Waits until each host has reported its facts, or the reason why it cannot be reached was reported.
pub(crate) fn facts(
    connection: &mut FrameConnection,
    names: &[String],
    wait: &mut StartupWait<'_>,
) -> Result<Vec<HostFacts>, StartFailure> {
    let mut replies = HostReplies::of(names);
    let mut scratch = vec![0; 64 << 10];
    loop {
        receive_facts(&mut connection.inbox, &mut replies).map_err(|_| shepherd_lost())?;
        if replies.are_complete() {
            return replies.end();
        }
        let is_flushed = connection.flush().map_err(|Disconnected| shepherd_lost())?;
        let mut fds = vec![PollFd::new(connection.reading(), PollFlags::POLLIN)];
        if !is_flushed {
            fds.push(PollFd::new(connection.writing(), PollFlags::POLLOUT));
        }
        wait.wait(fds, &replies.missing())?;
        connection
            .fill(&mut scratch)
            .map_err(|Disconnected| shepherd_lost())?;
    }
}

/// Waits until each daemon has reported that it is ready, or what is missing on its host. All nodes are reached over
/// one connection.
pub(crate) fn ready(
    nodes: &mut Nodes,
    names: &[String],
    wait: &mut StartupWait<'_>,
) -> Result<(), StartFailure> {
    let until = Instant::now() + READY_WITHIN;
    let mut replies = HostReplies::of(names);
    for node in (0..nodes.count()).filter(|node| nodes.has_ended(*node)) {
        // A node that is gone already has no ranks.
        replies.record(node, Ok(()));
    }
    let mut scratch = vec![0; 64 << 10];
    loop {
        receive_ready(nodes, &mut replies).map_err(|_| shepherd_lost())?;
        if replies.are_complete() {
            return replies.end().map(|_| ());
        }
        if until <= Instant::now() {
            let seconds = READY_WITHIN.as_secs();
            replies.give_up(&format!(
                "its node daemon has not found the program and its folder within {seconds} s: a file system hangs there"
            ));
        }
        nodes.flush().map_err(|_| shepherd_lost())?;
        let fds = nodes.connections().map(|(_, fds)| fds).collect();
        wait.wait(fds, &replies.missing())?;
        nodes
            .fill(0, &mut scratch)
            .map_err(|Disconnected| shepherd_lost())?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_hosts_that_are_not_ready_are_named() {
        let names: Vec<String> = (1..=20).map(|number| format!("n{number}")).collect();
        let mut replies = HostReplies::of(&names[..3]);
        replies.record(1, Err(("is down".to_owned(), 1)));
        replies.record(0, Ok(5));
        assert!(!replies.are_complete());
        replies.record(2, Ok(7));
        replies.record(2, Err(("no program a".to_owned(), 127)));
        replies.record(2, Ok(7));
        replies.record(9, Ok(7));
        assert!(replies.are_complete());
        let stop = replies.end().unwrap_err();
        assert_eq!(
            stop.lines,
            [
                "host n2: is down",
                "host n3: no program a",
                "nothing was started: 2 of 3 hosts are not ready"
            ]
        );
        assert_eq!(stop.code, 1);
        let mut well = HostReplies::of(&names[..1]);
        well.record(0, Ok(3));
        assert_eq!(well.end(), Ok(vec![3]));
        let mut many = HostReplies::<u32>::of(&names);
        (0..20).for_each(|node| many.record(node, Err(("no program a".to_owned(), 127))));
        let stop = many.end().unwrap_err();
        let first = "hosts n1, n2, n3, n4, n5, n6, n7, n8 and 12 more: no program a";
        assert_eq!((stop.lines[0].as_str(), stop.code), (first, 127));
    }
}
