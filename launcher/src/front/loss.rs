// SPDX-License-Identifier: MIT OR Apache-2.0
//! Handles the loss of a host, a daemon or the shepherd: decides the consequences for the job, and kills processes that
//! are left.

use super::{Front, GIVE_UP_AFTER};
use crate::escalation::Escalation;
use crate::failure::describe_signal;
use crate::link::NodeEvent;
use crate::shepherd::protocol::NodeLoss;
use crate::spawn::{self, Reaped};
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::Pid;
use std::time::{Duration, Instant};

impl Front {
    /// Called when the host of a node cannot be reached any more, or its daemon has ended unexpectedly. The node's
    /// ranks count as failed: the job continues or ends as after any failure.
    pub(super) fn host_is_lost(&mut self, node: usize, loss: &NodeLoss) {
        if self.nodes.has_ended(node) {
            return;
        }
        let message = format!("host {}: {}", self.nodes.host(node), loss.message);
        if self.keep_going && self.escalation.is_none() {
            self.code.get_or_insert(loss.code);
            self.print(&format!("{message}; the others go on"));
            let ranks = self.nodes.send_lost(node, &message);
            let (count, _) = self.failed.get_or_insert((0, message));
            *count += ranks;
        } else {
            let message = format!("{message}; the job is ended");
            self.end(Escalation::failure, loss.code, &message);
        }
        let events = self.nodes.lost_remote(node);
        events
            .into_iter()
            .for_each(|event| self.handle_event(node, event));
    }

    /// Called when the connection to a child process, a daemon or the shepherd, has closed. If nodes that are reached
    /// over this connection have not ended, the child has ended unexpectedly. The ranks of these nodes were then killed
    /// together with the child, and this process adopts the processes that they have left. The ranks of other nodes are
    /// killed too.
    pub(super) fn handle_lost_link(&mut self, link: usize) {
        let is_open = |front: &Self| !front.nodes.living_over(link).is_empty();
        while self.nodes.fill(link, &mut self.scratch).is_ok() && is_open(self) {
            self.receive_events(link);
        }
        let lost = self.nodes.living_over(link);
        if lost.is_empty() {
            return;
        }
        let (process, is_shepherd) = self.nodes.process_of(link);
        let is_last = self.nodes.living().count() == lost.len();
        let ending = match is_last {
            true => clear_up(process),
            false => end_of(process),
        };
        let (how, code) = describe_exit(ending);
        let role = if is_shepherd {
            "shepherd"
        } else {
            "node daemon"
        };
        let message = format!("the {role} (pid {process}) {how}");
        if !is_last {
            let message = format!("{message}, the job is ended");
            self.end(Escalation::kill, code, &message);
        } else if self.code.is_none() {
            let message = format!("{message}; all ranks were killed");
            self.print(&message);
            self.debugger.aborting(&message);
        }
        self.code.get_or_insert(code);
        for node in lost {
            for event in self.nodes.lost(node) {
                match event {
                    NodeEvent::Ended(summary) if is_last => self.report_end(&summary),
                    _ if is_last => (),
                    event => self.handle_event(node, event),
                }
            }
        }
    }
}

/// Describes the unexpected end of a daemon; returns a text, and the exit code of the job.
pub(crate) fn describe_exit(ending: Option<spawn::ChildExit>) -> (String, u8) {
    match ending {
        Some(spawn::ChildExit::Signal { number, .. }) => (
            format!(
                "was killed by signal {number} ({})",
                describe_signal(number).0
            ),
            u8::try_from(128 + number).unwrap_or(1),
        ),
        Some(spawn::ChildExit::Code(code)) => (format!("ended with code {code}"), 1),
        None => ("is gone".to_owned(), 1),
    }
}

/// Kills a daemon whose connection is closed, and reaps it.
fn end_of(daemon: u32) -> Option<spawn::ChildExit> {
    let daemon = Pid::from_raw(daemon.cast_signed());
    // This has no effect if the daemon has terminated already.
    let _ = kill(daemon, Signal::SIGKILL);
    match waitpid(daemon, None) {
        Ok(WaitStatus::Exited(_, code)) => Some(spawn::ChildExit::Code(code)),
        Ok(WaitStatus::Signaled(_, signal, core)) => Some(spawn::ChildExit::Signal {
            number: signal as i32,
            core,
        }),
        _ => None,
    }
}

/// Waits until a daemon or shepherd has ended its own children and has terminated. After a timeout, kills all
/// descendants of this process.
pub(crate) fn wait_or_clear_up(shepherd: u32) {
    let until = Instant::now() + GIVE_UP_AFTER;
    while Instant::now() < until {
        match spawn::reap() {
            Reaped::Child(pid, _) if pid == shepherd => return,
            Reaped::NoChild => return,
            Reaped::Child(..) | Reaped::Stopped(..) => (),
            Reaped::NoneYet => std::thread::sleep(Duration::from_millis(2)),
        }
    }
    clear_up(shepherd);
}

/// Kills all descendants of this process; returns how process `daemon` ended, if it was reaped.
pub(super) fn clear_up(daemon: u32) -> Option<spawn::ChildExit> {
    let until = Instant::now() + GIVE_UP_AFTER;
    let mut ended = None;
    while Instant::now() < until {
        match spawn::reap() {
            Reaped::Child(pid, ending) if pid == daemon => ended = Some(ending),
            Reaped::Child(..) | Reaped::Stopped(..) => (),
            Reaped::NoChild => break,
            Reaped::NoneYet => {
                crate::daemon::signal_all(Signal::SIGKILL);
                std::thread::sleep(Duration::from_millis(5));
            }
        }
    }
    ended
}
