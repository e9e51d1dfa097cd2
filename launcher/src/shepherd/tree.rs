// SPDX-License-Identifier: MIT OR Apache-2.0
//! State machine of a shepherd. It does no I/O: received bytes are passed in, and bytes to send are appended to
//! outboxes. Time is an argument, measured from an arbitrary origin that is the same for all calls. The caller polls
//! for children to start or to drop.
//!
//! # Rules
//! - For the node of this shepherd and for every node below, the peer above receives at most one [`UpMessage::Here`].
//!   It then receives one [`UpMessage::Lost`] or [`UpMessage::Ended`], even if there was no [`UpMessage::Here`], and no
//!   further message about the node.
//! - Time without messages is counted only while this process runs: a shepherd that was stopped or got no CPU for an
//!   hour does not drop a child because of that hour.
//! - When the peer above is gone, everything below must end ([`ShepherdTree::is_orphan`]).

use super::fan_out::{self, RemoteHost};
use super::protocol::{
    DownMessage, Greeting, HeartbeatTiming, HostFacts, NodeLoss, RemoteShell, ShepherdConfig,
    UpMessage, find_greeting,
};
use super::shell::{self, ShellExit};
use crate::link::{Garbled, Inbox};
use std::collections::BTreeMap;
use std::time::Duration;

/// Maximum number of attempts to start a child by the shell, if the shell cannot connect for a transient reason.
const MOST_TRIES: u32 = 5;
/// Delay of the first retry; doubled each time.
const TRY_AGAIN_AFTER: Duration = Duration::from_millis(300);
/// Time within which a shell must exit once all its nodes have ended; then it is killed.
const SHELL_EXIT_WITHIN: Duration = Duration::from_secs(2);

/// Time within which the other shepherds of a step must connect after one of them has connected; then they are started
/// by the remote shell.
const COMES_WITHIN: Duration = Duration::from_secs(20);

/// State of a connection to another shepherd.
#[derive(Debug, Default)]
struct PeerLink {
    inbox: Inbox,
    outbox: Vec<u8>,
    /// Time since bytes were last received from the peer.
    silent: Duration,
    /// Time since the last heartbeat was sent. In the link to the peer above: since the last heartbeat or other
    /// message.
    send_idle: Duration,
}

impl PeerLink {
    /// Advances time. Returns whether a heartbeat is due; if so, the caller must send it.
    fn pass(&mut self, time: Duration, pace: &HeartbeatTiming) -> bool {
        self.silent += time;
        self.send_idle += time;
        let due = self.send_idle >= pace.every;
        if due {
            self.send_idle = Duration::ZERO;
        }
        due
    }
}

/// State of a child.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ChildState {
    /// The child is expected to connect. If it has not connected by this time, it is started by the shell.
    Expected(Duration),
    /// The child is to be started by the shell at this time.
    Due(Duration),
    /// The shell was started, or the child has connected; the child's greeting is pending.
    Starting,
    /// The child's shepherd is running.
    Here,
    /// All nodes of the child have ended; its shell must exit by this time.
    Ending(Duration),
    /// The child has terminated or was dropped.
    Ended,
}

/// A shepherd that this one starts, or that connects to this one.
#[derive(Debug)]
struct Child {
    target: RemoteHost,
    /// The hosts below the child; empty once they were sent to it.
    below: Vec<RemoteHost>,
    /// The nodes of this child and below it that have neither ended nor been lost; the value is whether the node has
    /// reported [`UpMessage::Here`].
    open: BTreeMap<u32, bool>,
    contact: PeerLink,
    /// Bytes received before its greeting.
    noise: Vec<u8>,
    state: ChildState,
    /// Whether the child was started by the step and has connected.
    connected: bool,
    tries: u32,
}

impl Child {
    fn of(part: &[RemoteHost], state: ChildState) -> Self {
        Self {
            target: part[0].clone(),
            below: part[1..].to_vec(),
            open: part.iter().map(|target| (target.node, false)).collect(),
            contact: PeerLink::default(),
            noise: Vec::new(),
            state,
            connected: false,
            tries: 0,
        }
    }

    /// Begins an attempt: the shell is being started, or the child has connected (`connected`).
    fn restart(&mut self, connected: bool) {
        self.state = ChildState::Starting;
        self.connected = connected;
        self.tries += 1;
        self.contact = PeerLink::default();
        self.noise.clear();
    }

    fn begin(&mut self, shell: &RemoteShell, pace: HeartbeatTiming) -> DownMessage {
        DownMessage::Begin(Box::new(ShepherdConfig {
            own: Some(self.target.node),
            below: std::mem::take(&mut self.below),
            step: None,
            // A step that has started the child has also started the shepherds below the child.
            in_step: self.connected,
            shell: RemoteShell {
                from: self.target.name.clone(),
                ..shell.clone()
            },
            pace,
        }))
    }
}

/// The daemon of this host.
#[derive(Debug)]
struct OwnNode {
    node: u32,
    /// Orders for the daemon.
    orders: Vec<u8>,
    has_ended: bool,
}

/// The state of a shepherd.
#[derive(Debug)]
pub(crate) struct ShepherdTree {
    own: Option<OwnNode>,
    children: Vec<Child>,
    /// By node: the child through which the node is reached.
    routes: BTreeMap<u32, usize>,
    above: PeerLink,
    /// Whether the peer above is gone.
    is_orphan: bool,
    /// Whether the peer above must send heartbeats; without them it counts as gone.
    is_watched: bool,
    shell: RemoteShell,
    pace: HeartbeatTiming,
    /// Children that the caller must kill or disconnect.
    dropped: Vec<usize>,
    last: Duration,
}

impl ShepherdTree {
    /// The state after the configuration was received; `inbox` has bytes received after it. `is_watched`: whether the
    /// peer above is another shepherd, which sends heartbeats.
    pub(crate) fn new(
        begin: ShepherdConfig,
        inbox: Inbox,
        is_watched: bool,
        now: Duration,
    ) -> Self {
        let parts = fan_out::parts(&begin.below);
        let state = match begin.in_step {
            true => ChildState::Expected(now + begin.pace.first_message_timeout),
            false => ChildState::Due(now),
        };
        let routes = (0..).zip(&parts);
        let routes = routes.flat_map(|(child, part)| part.iter().map(move |at| (at.node, child)));
        Self {
            own: begin.own.map(|node| OwnNode {
                node,
                orders: Vec::new(),
                has_ended: false,
            }),
            routes: routes.collect(),
            children: parts.iter().map(|part| Child::of(part, state)).collect(),
            above: PeerLink {
                inbox,
                ..PeerLink::default()
            },
            is_orphan: false,
            is_watched,
            shell: begin.shell,
            pace: begin.pace,
            dropped: Vec::new(),
            last: now,
        }
    }

    /// The node whose daemon this shepherd starts.
    pub(crate) fn own(&self) -> Option<u32> {
        self.own.as_ref().map(|own| own.node)
    }

    /// Bytes to send to the peer above.
    pub(crate) fn above(&mut self) -> &mut Vec<u8> {
        &mut self.above.outbox
    }

    /// Bytes to send to a child.
    pub(crate) fn below(&mut self, child: usize) -> &mut Vec<u8> {
        &mut self.children[child].contact.outbox
    }

    /// Bytes to send to the daemon; `None` if this shepherd starts no daemon.
    pub(crate) fn orders(&mut self) -> Option<&mut Vec<u8>> {
        self.own.as_mut().map(|own| &mut own.orders)
    }

    /// Whether the peer above is gone. If so, everything below must end.
    pub(crate) fn is_orphan(&self) -> bool {
        self.is_orphan
    }

    /// Whether the daemon and all children have ended.
    pub(crate) fn is_over(&self) -> bool {
        let own = self.own.as_ref().is_none_or(|own| own.has_ended);
        own && self
            .children
            .iter()
            .all(|child| child.state == ChildState::Ended)
    }

    /// The connection to the peer above has closed.
    pub(crate) fn parent_closed(&mut self) {
        self.is_orphan = true;
    }

    /// Handles bytes from above.
    pub(crate) fn receive_from_above(&mut self, bytes: &[u8]) {
        self.above.inbox.add(bytes);
        self.above.silent = Duration::ZERO;
        loop {
            match DownMessage::take(&mut self.above.inbox) {
                Ok(Some(DownMessage::Order(node, bytes))) => self.order(node, bytes),
                Ok(Some(DownMessage::OrderAll(bytes))) => self.order_all(&bytes),
                Ok(Some(DownMessage::NotComing(node))) => self.will_not_connect(node),
                Ok(Some(DownMessage::Beat | DownMessage::Begin(_))) => (),
                Ok(None) => return,
                Err(Garbled) => return self.parent_closed(),
            }
        }
    }

    fn order(&mut self, node: u32, mut bytes: Vec<u8>) {
        match &mut self.own {
            Some(own) if own.node == node => {
                if !own.has_ended {
                    own.orders.append(&mut bytes);
                }
                return;
            }
            _ => (),
        }
        let Some(child) = self
            .routes
            .get(&node)
            .map(|route| &mut self.children[*route])
        else {
            return;
        };
        if child.state == ChildState::Here && child.open.contains_key(&node) {
            DownMessage::Order(node, bytes).put(&mut child.contact.outbox);
            child.contact.send_idle = Duration::ZERO;
        }
    }

    /// Forwards an order for all nodes: each child receives it once, even if many nodes are reached through the child.
    fn order_all(&mut self, bytes: &[u8]) {
        if let Some(own) = self.own.as_mut().filter(|own| !own.has_ended) {
            own.orders.extend_from_slice(bytes);
        }
        let here = |child: &&mut Child| child.state == ChildState::Here;
        for child in self.children.iter_mut().filter(here) {
            DownMessage::put_order_all(bytes, &mut child.contact.outbox);
            child.contact.send_idle = Duration::ZERO;
        }
    }

    fn send_up(&mut self, message: &UpMessage) {
        message.put(&mut self.above.outbox);
        self.above.send_idle = Duration::ZERO;
    }

    /// The daemon of this host was started.
    pub(crate) fn daemon_started(&mut self, facts: HostFacts) {
        if let Some(node) = self.own() {
            self.send_up(&UpMessage::Here(node, facts));
        }
    }

    /// Handles bytes from the daemon of this host.
    pub(crate) fn receive_from_daemon(&mut self, bytes: &[u8]) {
        if let Some(node) = self.own() {
            self.send_up(&UpMessage::Event(node, bytes.to_vec()));
        }
    }

    /// The daemon of this host has ended. `loss`: the reason, if the end was not expected.
    pub(crate) fn daemon_ended(&mut self, loss: Option<NodeLoss>) {
        let Some(own) = self.own.as_mut().filter(|own| !own.has_ended) else {
            return;
        };
        own.has_ended = true;
        own.orders.clear();
        let node = own.node;
        self.send_up(&match loss {
            None => UpMessage::Ended(node),
            Some(loss) => UpMessage::Lost(node, loss),
        });
    }

    /// The next child that is due to be started by the shell, and its host; `None` if there is none. The child counts
    /// as starting from then on.
    pub(crate) fn next_start(&mut self, now: Duration) -> Option<(usize, RemoteHost)> {
        let is_due = |child: &Child| matches!(child.state, ChildState::Due(at) | ChildState::Expected(at) if at <= now);
        let number = self.children.iter().position(is_due)?;
        let child = &mut self.children[number];
        child.restart(false);
        Some((number, child.target.clone()))
    }

    /// The shepherd of a node has connected. Returns the child; `None` if this shepherd was not expected to connect.
    /// The other expected children must now connect within [`COMES_WITHIN`].
    pub(crate) fn connect(&mut self, node: u32, now: Duration) -> Option<usize> {
        let is_it = |child: &Child| {
            child.target.node == node && matches!(child.state, ChildState::Expected(_))
        };
        let number = self.children.iter().position(is_it)?;
        self.children[number].restart(true);
        for child in &mut self.children {
            if let ChildState::Expected(until) = &mut child.state {
                *until = (*until).min(now + COMES_WITHIN);
            }
        }
        Some(number)
    }

    /// Whether any child is still expected to connect.
    pub(crate) fn is_any_expected(&self) -> bool {
        let mut all = self.children.iter();
        all.any(|child| matches!(child.state, ChildState::Expected(_)))
    }

    /// The shepherd of a node will not connect. If it is an expected child, it is now due to be started by the shell.
    /// If it is below a running child, that child is informed.
    pub(crate) fn will_not_connect(&mut self, node: u32) {
        let Some(child) = self
            .routes
            .get(&node)
            .map(|route| &mut self.children[*route])
        else {
            return;
        };
        match child.state {
            ChildState::Expected(_) if child.target.node == node => {
                child.state = ChildState::Due(self.last)
            }
            ChildState::Here if child.target.node != node => {
                DownMessage::NotComing(node).put(&mut child.contact.outbox);
            }
            _ => (),
        }
    }

    /// No further shepherd will connect: all children that are still expected are now due to be started by the shell.
    pub(crate) fn expect_no_more(&mut self) {
        for child in &mut self.children {
            if matches!(child.state, ChildState::Expected(_)) {
                child.state = ChildState::Due(self.last);
            }
        }
    }

    /// Removes and returns a child that the caller must kill or disconnect; `None` if there is none.
    pub(crate) fn next_dropped(&mut self) -> Option<usize> {
        self.dropped.pop()
    }

    /// The remote shell.
    pub(crate) fn shell(&self) -> &RemoteShell {
        &self.shell
    }

    /// Whether all nodes of a child have ended.
    pub(crate) fn is_through(&self, number: usize) -> bool {
        matches!(
            self.children[number].state,
            ChildState::Ending(_) | ChildState::Ended
        )
    }

    /// Handles bytes from a child.
    pub(crate) fn receive_from_child(&mut self, number: usize, bytes: &[u8]) {
        let child = &mut self.children[number];
        child.contact.silent = Duration::ZERO;
        match child.state {
            ChildState::Starting => self.receive_greeting(number, bytes),
            ChildState::Here | ChildState::Ending(_) => {
                child.contact.inbox.add(bytes);
                self.handle_messages(number);
            }
            ChildState::Expected(_) | ChildState::Due(_) | ChildState::Ended => (),
        }
    }

    fn receive_greeting(&mut self, number: usize, bytes: &[u8]) {
        let child = &mut self.children[number];
        child.noise.extend_from_slice(bytes);
        match find_greeting(&child.noise) {
            Greeting::NotYet => (),
            Greeting::Right(end) => {
                child.state = ChildState::Here;
                let begin = child.begin(&self.shell, self.pace);
                begin.put(&mut child.contact.outbox);
                let rest = child.noise.split_off(end);
                child.noise = Vec::new();
                child.contact.inbox.add(&rest);
                self.handle_messages(number);
            }
            Greeting::Other(release) => {
                let message = shell::other_release(&self.shell, &release);
                self.give_up(number, &message);
            }
            Greeting::TooMuch => {
                let message = shell::not_a_shepherd(&self.shell);
                self.give_up(number, &message);
            }
        }
    }

    fn handle_messages(&mut self, number: usize) {
        loop {
            match UpMessage::take(&mut self.children[number].contact.inbox) {
                Ok(Some(message)) => self.forward_up(number, &message),
                Ok(None) => break,
                Err(Garbled) => {
                    let message =
                        "lost: it sent a message that no shepherd of this release sends".to_owned();
                    return self.give_up(number, &message);
                }
            }
        }
    }

    /// Forwards a child's message about one of its nodes, if the rules allow it.
    fn forward_up(&mut self, number: usize, message: &UpMessage) {
        let child = &mut self.children[number];
        let is_own_node = match message {
            UpMessage::Beat | UpMessage::Line => false,
            UpMessage::Here(node, _) => child
                .open
                .get_mut(node)
                .is_some_and(|is_here| !std::mem::replace(is_here, true)),
            UpMessage::Event(node, _) => child.open.get(node) == Some(&true),
            UpMessage::Lost(node, _) | UpMessage::Ended(node) => child.open.remove(node).is_some(),
        };
        if is_own_node {
            self.send_up(message);
        }
        let child = &mut self.children[number];
        if child.open.is_empty() && child.state == ChildState::Here {
            child.state = ChildState::Ending(self.last + SHELL_EXIT_WITHIN);
        }
    }

    /// A child's shell has ended or could not be started, or the child's connection has closed. Depending on the
    /// child's state, it is started again, or its open nodes are reported as lost.
    pub(crate) fn child_closed(&mut self, number: usize, closed: &ShellExit, now: Duration) {
        let child = &mut self.children[number];
        match child.state {
            // The connection closed before the greeting. The child is started by the shell, whose error may have the
            // reason.
            ChildState::Starting if child.connected => child.state = ChildState::Due(now),
            ChildState::Starting if closed.may_pass() && child.tries < MOST_TRIES => {
                child.state = ChildState::Due(now + TRY_AGAIN_AFTER * (1 << (child.tries - 1)));
            }
            ChildState::Starting => {
                let message = closed.why_no_start(&self.shell);
                self.drop_child(number, &message);
            }
            ChildState::Here => {
                let message = closed.why_lost();
                self.drop_child(number, &message);
            }
            ChildState::Expected(_)
            | ChildState::Due(_)
            | ChildState::Ending(_)
            | ChildState::Ended => {
                self.children[number].state = ChildState::Ended;
            }
        }
    }

    fn give_up(&mut self, number: usize, message: &str) {
        self.drop_child(number, message);
        self.dropped.push(number);
    }

    /// Drops a child, and reports all its nodes as lost.
    fn drop_child(&mut self, number: usize, message: &str) {
        let child = &mut self.children[number];
        child.state = ChildState::Ended;
        child.contact = PeerLink::default();
        let open = std::mem::take(&mut child.open);
        let (first, name) = (child.target.node, child.target.name.clone());
        for node in open.into_keys() {
            let message = if node == first {
                message.to_owned()
            } else {
                format!("lost, since it was reached through {name}: {message}")
            };
            self.send_up(&UpMessage::Lost(node, NodeLoss { message, code: 1 }));
        }
    }

    /// The latest time at which [`on_time`](Self::on_time) must be called.
    pub(crate) fn next_time(&self) -> Duration {
        let due = |child: &Child| match child.state {
            ChildState::Expected(at) | ChildState::Due(at) | ChildState::Ending(at) => Some(at),
            _ => None,
        };
        let due = self.children.iter().filter_map(due).min();
        let beat = self.last + self.pace.every / 4;
        due.map_or(beat, |due| due.min(beat))
    }

    /// Sends heartbeats that are due, and drops peers that have sent nothing for too long.
    pub(crate) fn on_time(&mut self, now: Duration) {
        let passed = now.saturating_sub(self.last).min(self.pace.every);
        self.last = now;
        if self.above.pass(passed, &self.pace) {
            UpMessage::Beat.put(&mut self.above.outbox);
        }
        if self.is_watched && self.above.silent >= self.pace.dead_after {
            self.is_orphan = true;
        }
        for number in 0..self.children.len() {
            self.check_child(number, passed, now);
        }
    }

    fn check_child(&mut self, number: usize, passed: Duration, now: Duration) {
        let pace = self.pace;
        let child = &mut self.children[number];
        match child.state {
            ChildState::Starting => {
                child.contact.silent += passed;
                if child.contact.silent >= pace.first_message_timeout {
                    let message = format!(
                        "cannot be reached: no answer for {} s; the remote shell hangs, or a shell's start file waits for input",
                        pace.first_message_timeout.as_secs_f64()
                    );
                    self.give_up(number, &message);
                }
            }
            ChildState::Here => {
                if child.contact.pass(passed, &pace) {
                    DownMessage::Beat.put(&mut child.contact.outbox);
                }
                if child.contact.silent >= pace.dead_after {
                    let message = format!(
                        "lost: it has sent nothing for {} s, so it is down, frozen or cut off",
                        pace.dead_after.as_secs_f64()
                    );
                    self.give_up(number, &message);
                }
            }
            ChildState::Ending(until) if until <= now => {
                child.state = ChildState::Ended;
                self.dropped.push(number);
            }
            ChildState::Expected(_)
            | ChildState::Due(_)
            | ChildState::Ending(_)
            | ChildState::Ended => (),
        }
    }
}

#[cfg(test)]
#[path = "tree_tests.rs"]
mod tests;
