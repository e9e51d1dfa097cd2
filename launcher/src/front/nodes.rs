// SPDX-License-Identifier: MIT OR Apache-2.0
//! The front's state of the nodes of a job, with one daemon per node, and of the connections to them. Some events hold
//! for the job only when all nodes have reported them (all ranks held, no process left, input consumed); these events
//! are combined here.
//!
//! A job may have 640,000 ranks (`tests/scale.rs`): the front stores a few bytes per rank, and most events do not need
//! a pass over all nodes.

use super::node_exchange::{NodeExchange, RoutedOrder};
use super::now;
use crate::connection::{Disconnected, FrameConnection};
use crate::link::{Garbled, Inbox, NodeEvent, NodePhase, NodeSummary, Order};
use crate::shepherd::protocol::{DownMessage, NodeLoss, UpMessage};
use crate::strided_ranks::StridedRanks;
use nix::poll::{PollFd, PollFlags};
use std::collections::VecDeque;
use wireup::ByNode;

/// All nodes of a job, and the links over which they are reached.
#[derive(Debug)]
pub(crate) struct Nodes {
    all: Vec<JobNode>,
    links: Vec<NodeLink>,
    exchange: NodeExchange,
    counts: NodeCounts,
    passed_on: ReportedOnce,
}

/// Which of the events that a job reports only once were reported.
#[derive(Debug, Default)]
struct ReportedOnce {
    held: bool,
    phases: [bool; PHASES],
    ended: bool,
}

/// A link: a child process of the front over which nodes are reached, and the connection to it.
#[derive(Debug)]
struct NodeLink {
    connection: FrameConnection,
    process: u32,
    /// Whether the process is the shepherd of a job over several hosts; otherwise it is a daemon.
    is_shepherd: bool,
    /// Received messages that [`Nodes::take`] has not returned yet, each with its node.
    messages: VecDeque<(usize, NodeMessage)>,
    /// Number of nodes over this link that have not ended.
    living: usize,
}

/// Message about a node.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum NodeMessage {
    /// An event of the node's daemon.
    Event(NodeEvent),
    /// The node and its ranks are lost.
    Lost(NodeLoss),
}

/// One node.
#[derive(Debug)]
pub(crate) struct JobNode {
    /// Number of the link over which the node is reached.
    link: usize,
    /// Bytes from the node's daemon that were not parsed yet.
    inbox: Inbox,
    /// Name of the node's machine.
    host: String,
    /// Whether some of the node's ranks read standard input.
    reads: bool,
    /// Bytes of standard input that these ranks have consumed.
    taken: u64,
    /// Whether the node's ranks are held for a debugger.
    held: bool,
    /// Set if the node has reported a standstill: its ranks have made no progress for this many seconds.
    standstill: Option<u64>,
    /// By phase number: whether the node's ranks have reached the phase.
    reached: [bool; PHASES],
    /// How the node ended; `None` if it has not ended.
    summary: Option<NodeSummary>,
    /// Whether the node's daemon is a child of this process and has ended unexpectedly.
    is_lost: bool,
    /// Whether the node's daemon has sent invalid frames.
    is_garbled: bool,
}

/// Length of an array that is indexed by phase; phases are numbered from 1.
const PHASES: usize = NodePhase::Ended as usize + 1;

impl JobNode {
    /// A new node. `reads`: whether some of the node's ranks read standard input.
    pub(crate) fn new(host: String, reads: bool) -> Self {
        Self {
            link: 0,
            inbox: Inbox::default(),
            host,
            reads,
            taken: 0,
            held: false,
            standstill: None,
            reached: [false; PHASES],
            summary: None,
            is_lost: false,
            is_garbled: false,
        }
    }

    /// Parses the events of the node's daemon. Invalid bytes count as the loss of the node.
    fn parse_events(&mut self) -> Vec<NodeMessage> {
        let mut messages = Vec::new();
        loop {
            match NodeEvent::take(&mut self.inbox) {
                Ok(Some(event)) => messages.push(NodeMessage::Event(of_front(event))),
                Ok(None) => break,
                Err(Garbled) => {
                    self.is_garbled = true;
                    let message =
                        "its node daemon speaks another language: installations are mixed";
                    messages.push(NodeMessage::Lost(lost(message)));
                    break;
                }
            }
        }
        self.inbox.give_back();
        messages
    }
}

/// How many nodes are in each state. With these counts, most events need no pass over all nodes.
#[derive(Debug, Default)]
struct NodeCounts {
    reading: usize,
    living: usize,
    /// Number of living nodes whose ranks are held. `standing_still` and `reached` count only living nodes too.
    held: usize,
    standing_still: usize,
    reached: [usize; PHASES],
    /// By phase: the latest time at which a node reached the phase; nodes that have ended count too.
    latest: [Option<u64>; PHASES],
}

impl NodeCounts {
    fn add(&mut self, node: &JobNode) {
        self.count(node, |number| *number += 1);
    }

    fn remove(&mut self, node: &JobNode) {
        self.count(node, |number| *number -= 1);
    }

    fn count(&mut self, node: &JobNode, step: impl Fn(&mut usize)) {
        if node.reads {
            step(&mut self.reading);
        }
        if node.summary.is_some() {
            return;
        }
        step(&mut self.living);
        if node.held {
            step(&mut self.held);
        }
        if node.standstill.is_some() {
            step(&mut self.standing_still);
        }
        let reached = self.reached.iter_mut().zip(node.reached);
        reached
            .filter(|(_, has_come)| *has_come)
            .for_each(|(number, _)| step(number));
    }

    /// Whether `number` is the number of living nodes, and there is a living node.
    fn is_all(&self, number: usize) -> bool {
        self.living > 0 && number == self.living
    }
}

fn lost(message: &str) -> NodeLoss {
    NodeLoss {
        message: message.to_owned(),
        code: 1,
    }
}

impl Nodes {
    /// Starts without any node; the caller must then add all nodes of the job in the order of their numbers. `ranks`:
    /// the node of each rank of the job.
    pub(crate) fn of(ranks: ByNode) -> Self {
        Self {
            all: Vec::new(),
            links: Vec::new(),
            exchange: NodeExchange::of(ranks),
            counts: NodeCounts::default(),
            passed_on: ReportedOnce::default(),
        }
    }

    /// Adds a process. The nodes that are added next are reached over this process.
    pub(crate) fn add_link(
        &mut self,
        connection: FrameConnection,
        process: u32,
        is_shepherd: bool,
    ) {
        self.links.push(NodeLink {
            connection,
            process,
            is_shepherd,
            messages: VecDeque::new(),
            living: 0,
        });
    }

    /// Adds a node that is reached over the last link.
    pub(crate) fn add(&mut self, node: JobNode) {
        let link = self.links.len().saturating_sub(1);
        if let Some(link) = self.links.last_mut() {
            link.living += 1;
        }
        self.counts.add(&node);
        self.all.push(JobNode { link, ..node });
        self.exchange.add();
    }

    /// Number of nodes, including those that have ended.
    pub(crate) fn count(&self) -> usize {
        self.all.len()
    }

    /// Number of links.
    pub(crate) fn links(&self) -> usize {
        self.links.len()
    }

    /// The pid of a link's process, and whether this process is a shepherd.
    pub(crate) fn process_of(&self, link: usize) -> (u32, bool) {
        let link = &self.links[link];
        (link.process, link.is_shepherd)
    }

    /// The living nodes that are reached over a link.
    pub(crate) fn living_over(&self, link: usize) -> Vec<usize> {
        let over = self.living().filter(|node| self.all[*node].link == link);
        over.collect()
    }

    /// The name of a node's machine.
    pub(crate) fn host(&self, node: usize) -> &str {
        &self.all[node].host
    }

    /// The ranks of a node.
    pub(crate) fn ranks_of(&self, node: usize) -> Vec<u32> {
        self.exchange.ranks_of(node)
    }

    /// The name of each node's machine, and its ranks.
    pub(crate) fn hosts(&self) -> impl Iterator<Item = (String, Vec<u32>)> {
        (0..self.count()).map(|node| (self.host(node).to_owned(), self.ranks_of(node)))
    }

    /// The nodes that have not ended.
    pub(crate) fn living(&self) -> impl Iterator<Item = usize> {
        let living = |(_, node): &(usize, &JobNode)| node.summary.is_none();
        (0..)
            .zip(&self.all)
            .filter(living)
            .map(|(number, _)| number)
    }

    /// The links with living nodes.
    pub(crate) fn living_links(&self) -> impl Iterator<Item = usize> {
        (0..self.links.len()).filter(|link| self.links[*link].living > 0)
    }

    /// The descriptors to poll, with their links.
    pub(crate) fn connections(&self) -> impl Iterator<Item = (usize, PollFd<'_>)> {
        self.living_links().flat_map(|number| {
            let connection = &self.links[number].connection;
            let waits = !connection.is_flushed();
            let room = waits.then(|| PollFd::new(connection.writing(), PollFlags::POLLOUT));
            [
                Some(PollFd::new(connection.reading(), PollFlags::POLLIN)),
                room,
            ]
            .into_iter()
            .flatten()
            .map(move |fd| (number, fd))
        })
    }

    /// The sum of the summaries of all nodes that have ended.
    fn sum(&self) -> NodeSummary {
        let mut sum = NodeSummary::default();
        for summary in self.all.iter().filter_map(|node| node.summary.as_ref()) {
            sum.signalled = sum.signalled.saturating_add(summary.signalled);
            sum.killed = sum.killed.saturating_add(summary.killed);
            sum.leftovers = sum.leftovers.saturating_add(summary.leftovers);
            sum.tools = sum.tools.saturating_add(summary.tools);
            sum.stubborn.extend(&summary.stubborn);
        }
        sum
    }

    /// Whether any rank reads standard input.
    pub(crate) fn has_readers(&self) -> bool {
        self.counts.reading > 0
    }

    /// Queues an order for all living nodes; input only for nodes that read it. [`flush`](Self::flush) sends the order.
    pub(crate) fn order(&mut self, order: &Order) {
        let is_input = matches!(order, Order::Input(_) | Order::InputEnd);
        let mut bytes = Vec::new();
        order.put(&mut bytes);
        let is_for_all = !is_input || self.counts.reading == self.counts.living;
        if is_for_all && self.links.iter().all(|link| link.is_shepherd) {
            return self.order_all_bytes(&bytes);
        }
        for number in 0..self.all.len() {
            let node = &self.all[number];
            if node.summary.is_none() && (node.reads || !is_input) {
                self.order_bytes(number, &bytes);
            }
        }
    }

    /// Reports the ranks of a lost node to all other nodes; returns the number of these ranks.
    pub(crate) fn send_lost(&mut self, node: usize, why: &str) -> u32 {
        let ranks = self.ranks_of(node);
        self.order(&Order::Lost {
            ranks: StridedRanks::of_all(&ranks),
            why: why.to_owned(),
        });
        u32::try_from(ranks.len()).unwrap_or(0)
    }

    /// Queues an order for one node.
    pub(crate) fn order_one(&mut self, node: usize, order: &Order) {
        self.order_some(&[node], order);
    }

    /// Queues an order for several nodes, which must be different.
    fn order_some(&mut self, nodes: &[usize], order: &Order) {
        let there = nodes
            .iter()
            .filter(|node| self.all[**node].summary.is_none());
        let there: Vec<usize> = there.copied().collect();
        if there.len() > 1 && there.len() == self.counts.living {
            return self.order(order);
        }
        let mut bytes = Vec::new();
        order.put(&mut bytes);
        for node in there {
            self.order_bytes(node, &bytes);
        }
    }

    /// Queues an encoded order for a node.
    pub(crate) fn order_bytes(&mut self, node: usize, bytes: &[u8]) {
        let link = &mut self.links[self.all[node].link];
        if link.is_shepherd {
            DownMessage::put_order(node_number(node), bytes, &mut link.connection.outbox);
        } else {
            link.connection.outbox.extend_from_slice(bytes);
        }
    }

    /// Queues encoded orders for all nodes. Each shepherd receives them once, even if many nodes are reached through
    /// it.
    pub(crate) fn order_all_bytes(&mut self, bytes: &[u8]) {
        for link in &mut self.links {
            match link.is_shepherd {
                true => DownMessage::put_order_all(bytes, &mut link.connection.outbox),
                false => link.connection.outbox.extend_from_slice(bytes),
            }
        }
    }

    /// Sends queued data, as much as the connections accept.
    ///
    /// # Errors
    /// The number of the first link that the other side has closed.
    pub(crate) fn flush(&mut self) -> Result<(), usize> {
        let mut closed = None;
        let living: Vec<usize> = self.living_links().collect();
        for link in living {
            if self.links[link].connection.flush() == Err(Disconnected) {
                closed = closed.or(Some(link));
            }
        }
        closed.map_or(Ok(()), Err)
    }

    /// Reads once from a link.
    ///
    /// # Errors
    /// The other side has closed it.
    pub(crate) fn fill(&mut self, link: usize, scratch: &mut [u8]) -> Result<(), Disconnected> {
        self.links[link].connection.fill(scratch)
    }

    /// Removes and returns the next message about a node that is reached over link `number`; `None` if there is none.
    pub(crate) fn take(&mut self, number: usize) -> Result<Option<(usize, NodeMessage)>, Garbled> {
        let link = &mut self.links[number];
        if !link.is_shepherd {
            let node = self.all.iter().position(|node| node.link == number);
            let event = NodeEvent::take(&mut link.connection.inbox)?;
            return Ok(node.zip(event.map(NodeMessage::Event)));
        }
        loop {
            let link = &mut self.links[number];
            if let Some(message) = link.messages.pop_front() {
                return Ok(Some(message));
            }
            let Some(message) = UpMessage::take(&mut link.connection.inbox)? else {
                return Ok(None);
            };
            self.receive_shepherd(number, message)?;
        }
    }

    fn receive_shepherd(&mut self, number: usize, message: UpMessage) -> Result<(), Garbled> {
        let link = &mut self.links[number];
        match message {
            UpMessage::Event(node, bytes) => {
                let number = node as usize;
                let node = self.all.get_mut(number).ok_or(Garbled)?;
                if !node.is_garbled {
                    node.inbox.add(&bytes);
                    let messages = node.parse_events();
                    link.messages
                        .extend(messages.into_iter().map(|message| (number, message)));
                }
            }
            UpMessage::Lost(node, _) | UpMessage::Ended(node)
                if node as usize >= self.all.len() =>
            {
                return Err(Garbled);
            }
            UpMessage::Lost(node, loss) => link
                .messages
                .push_back((node as usize, NodeMessage::Lost(loss))),
            UpMessage::Ended(node) => {
                let loss = lost("its node daemon has ended without a word");
                link.messages
                    .push_back((node as usize, NodeMessage::Lost(loss)));
            }
            // `Here` was handled before the nodes were added.
            UpMessage::Here(..) | UpMessage::Beat | UpMessage::Line => (),
        }
        Ok(())
    }

    /// The daemon of a node, a child of this process, has ended unexpectedly. Returns the resulting events of the job,
    /// like [`combine`](Self::combine).
    pub(crate) fn lost(&mut self, node: usize) -> Vec<NodeEvent> {
        self.all[node].is_lost = true;
        self.lost_remote(node)
    }

    /// Ends the daemon of a node without ranks, and counts the node as ended.
    pub(crate) fn retire(&mut self, node: usize) {
        self.order_one(node, &Order::Kill);
        self.combine(node, NodeEvent::Ended(NodeSummary::default()));
    }

    /// A node behind a shepherd is lost; the shepherd cleans up on the node's host. Returns the resulting events of the
    /// job, like [`combine`](Self::combine).
    pub(crate) fn lost_remote(&mut self, node: usize) -> Vec<NodeEvent> {
        self.combine(node, NodeEvent::Ended(NodeSummary::default()))
    }

    /// Closes all connections.
    pub(crate) fn hang_up(&mut self) {
        self.links
            .iter_mut()
            .for_each(|link| link.connection.close());
    }

    /// Whether a node has ended or is lost.
    pub(crate) fn has_ended(&self, node: usize) -> bool {
        self.all[node].summary.is_some()
    }

    /// Whether a daemon that this process forked has ended unexpectedly.
    pub(crate) fn has_lost_any(&self) -> bool {
        self.all.iter().any(|node| node.is_lost)
    }

    /// Combines an event of one node with the events of the other nodes, and returns the resulting events of the job.
    /// There is none if reports of other nodes are still missing. There may be several, for example if this node has
    /// ended and was the only node with missing reports. Events that need not be combined are returned unchanged;
    /// events of the exchange between nodes are forwarded to these nodes and are not returned.
    pub(crate) fn combine(&mut self, number: usize, event: NodeEvent) -> Vec<NodeEvent> {
        let event = match self.exchange.pass(number, event) {
            Ok(passed) => {
                self.pass(passed);
                return Vec::new();
            }
            Err(event) => event,
        };
        if !is_combined(&event) {
            return vec![event];
        }
        let reads = self.all[number].reads;
        let input = reads.then(|| self.taken());
        let had_ended = self.has_ended(number);
        self.change(number, event);
        if self.has_ended(number) {
            if !had_ended {
                self.links[self.all[number].link].living -= 1;
            }
            let passed = self.exchange.node_ended(number);
            self.pass(passed);
        }
        let mut events = self.new_phases();
        events.extend(input.and_then(|before| self.input_since(before)));
        events.extend(self.all_held());
        events.extend(self.combined_standstill());
        events.extend(self.all_ended());
        events
    }

    /// Updates the state of a node.
    fn change(&mut self, number: usize, event: NodeEvent) {
        let node = &mut self.all[number];
        self.counts.remove(node);
        match event {
            NodeEvent::Held => node.held = true,
            NodeEvent::InputTaken(bytes) => node.taken = node.taken.saturating_add(bytes),
            NodeEvent::InputClosed => node.reads = false,
            NodeEvent::Standstill(seconds) => node.standstill = Some(seconds),
            NodeEvent::Reached { phase, at } => {
                node.reached[phase as usize] = true;
                let latest = &mut self.counts.latest[phase as usize];
                *latest = (*latest).max(Some(at));
            }
            NodeEvent::Ended(summary) => (node.summary, node.reads) = (Some(summary), false),
            _ => (),
        }
        self.counts.add(node);
    }

    fn pass(&mut self, passed: Vec<RoutedOrder>) {
        for (nodes, order) in passed {
            self.order_some(&nodes, &order);
        }
    }

    /// Phases that the job has reached since the last call. `FirstInMpi` is reached when any node has reached it; all
    /// other phases are reached when all living nodes have reached them.
    fn new_phases(&mut self) -> Vec<NodeEvent> {
        let counts = &self.counts;
        let is_new = |phase: &NodePhase| {
            let number = *phase as usize;
            !self.passed_on.phases[number]
                && counts.latest[number].is_some()
                && (*phase == NodePhase::FirstInMpi || counts.is_all(counts.reached[number]))
        };
        let new: Vec<NodePhase> = NodePhase::ALL.into_iter().filter(is_new).collect();
        let reached = |phase: NodePhase| {
            self.passed_on.phases[phase as usize] = true;
            let at = self.counts.latest[phase as usize].unwrap_or(0);
            NodeEvent::Reached { phase, at }
        };
        new.into_iter().map(reached).collect()
    }

    /// The event for the change in consumed input; `None` if nothing has changed. `before`: the result of
    /// [`taken`](Self::taken) before the change.
    fn input_since(&self, before: Option<u64>) -> Option<NodeEvent> {
        if !self.has_readers() {
            return Some(NodeEvent::InputClosed);
        }
        let more = self.taken()?.saturating_sub(before?);
        (more > 0).then_some(NodeEvent::InputTaken(more))
    }

    /// Number of bytes of standard input that have been consumed by every node that still reads it; `None` if no node
    /// reads it.
    fn taken(&self) -> Option<u64> {
        let reading = self.all.iter().filter(|node| node.reads);
        reading.map(|node| node.taken).min()
    }

    fn all_held(&mut self) -> Option<NodeEvent> {
        let is_new = !self.passed_on.held && self.counts.is_all(self.counts.held);
        self.passed_on.held |= is_new;
        is_new.then_some(NodeEvent::Held)
    }

    /// The event of a standstill of the job, if all living nodes have reported one. Removes their reports, so the event
    /// is returned again only after all of them have reported again.
    fn combined_standstill(&mut self) -> Option<NodeEvent> {
        if !self.counts.is_all(self.counts.standing_still) {
            return None;
        }
        self.counts.standing_still = 0;
        let seconds = self
            .all
            .iter_mut()
            .filter_map(|node| node.standstill.take());
        seconds.max().map(NodeEvent::Standstill)
    }

    fn all_ended(&mut self) -> Option<NodeEvent> {
        let is_new = !self.passed_on.ended && self.counts.living == 0;
        self.passed_on.ended |= is_new;
        is_new.then(|| NodeEvent::Ended(self.sum()))
    }
}

/// Whether an event must be combined with the events of other nodes.
fn is_combined(event: &NodeEvent) -> bool {
    matches!(
        event,
        NodeEvent::Held
            | NodeEvent::InputTaken(_)
            | NodeEvent::InputClosed
            | NodeEvent::Standstill(_)
            | NodeEvent::Reached { .. }
            | NodeEvent::Ended(_)
    )
}

/// Node number as sent in messages.
fn node_number(node: usize) -> u32 {
    u32::try_from(node).expect("there are fewer nodes than ranks")
}

/// Replaces the time of an event by the time of receipt on the local clock, because clocks of other machines differ.
fn of_front(event: NodeEvent) -> NodeEvent {
    match event {
        NodeEvent::Reached { phase, .. } => NodeEvent::Reached {
            phase,
            at: u64::try_from(now().as_nanos()).unwrap_or(u64::MAX),
        },
        event => event,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::failure::{FailureCause, RankFailure};
    use crate::link::RankLocation;
    use proptest::prelude::*;

    /// Nodes with the daemons' ends of their connections. `reads`: for each node whether it reads input.
    fn nodes(reads: &[bool]) -> (Nodes, Vec<FrameConnection>) {
        let count = u32::try_from(reads.len()).unwrap();
        let mut nodes = Nodes::of(wireup::NodeMap::new(0..count).unwrap().by_node());
        let mut daemons = Vec::new();
        for (number, reads) in (0..).zip(reads) {
            let (ours, theirs) = FrameConnection::pair().unwrap();
            nodes.add_link(ours, 100 + number, false);
            nodes.add(JobNode::new(format!("n{number}"), *reads));
            daemons.push(theirs);
        }
        (nodes, daemons)
    }

    fn orders(daemon: &mut FrameConnection) -> Vec<Order> {
        let _ = daemon.fill(&mut [0; 4096]);
        std::iter::from_fn(|| Order::take(&mut daemon.inbox).unwrap()).collect()
    }

    #[test]
    fn orders_reach_their_nodes_only() {
        let (mut nodes, mut daemons) = nodes(&[false, true, true]);
        let input = || Order::Input(b"x".to_vec());
        nodes.order(&Order::Signal(15));
        nodes.order(&input());
        nodes.order_one(0, &Order::OutputTaken(3));
        nodes.combine(2, NodeEvent::Ended(NodeSummary::default()));
        nodes.order(&Order::Kill);
        assert_eq!(nodes.flush(), Ok(()));
        assert_eq!(
            orders(&mut daemons[0]),
            [Order::Signal(15), Order::OutputTaken(3), Order::Kill]
        );
        assert_eq!(
            orders(&mut daemons[1]),
            [Order::Signal(15), input(), Order::Kill]
        );
        assert_eq!(nodes.living().collect::<Vec<_>>(), [0, 1]);
        drop(daemons);
        nodes.order(&Order::Kill);
        assert_eq!(nodes.flush(), Err(0));
    }

    #[test]
    fn node_events_arrive_with_all_their_fields() {
        let (mut nodes, mut daemons) = nodes(&[true, true]);
        let failed = NodeEvent::Failed(RankFailure {
            rank: 1,
            pid: 2,
            finalized: false,
            how: FailureCause::Code(3),
            missing: String::new(),
        });
        failed.put(&mut daemons[1].outbox);
        assert_eq!(daemons[1].flush(), Ok(true));
        assert_eq!(nodes.fill(1, &mut [0; 4096]), Ok(()));
        let Some((1, NodeMessage::Event(event))) = nodes.take(1).unwrap() else {
            panic!();
        };
        assert_eq!(nodes.combine(1, event), [failed]);
        assert_eq!((nodes.host(1), nodes.process_of(1)), ("n1", (101, false)));
    }

    #[test]
    fn combined_events_complete_with_the_last_node() {
        let (mut nodes, _daemons) = nodes(&[true, true, true]);
        assert_eq!(nodes.lost(1), []);
        assert_eq!(nodes.combine(0, NodeEvent::Held), []);
        assert_eq!(nodes.combine(2, NodeEvent::Held), [NodeEvent::Held]);
        assert_eq!(nodes.combine(2, NodeEvent::Standstill(60)), []);
        let all = nodes.combine(0, NodeEvent::Standstill(61));
        assert_eq!(all, [NodeEvent::Standstill(61)]);
        assert_eq!(nodes.combine(0, NodeEvent::Standstill(120)), [], "anew");
        let summary = |killed| {
            NodeEvent::Ended(NodeSummary {
                killed,
                stubborn: vec![killed],
                ..NodeSummary::default()
            })
        };
        // The node that had not reported a standstill is gone, so the reports of the remaining nodes are complete.
        assert_eq!(nodes.combine(2, summary(3)), [NodeEvent::Standstill(120)]);
        let end = nodes.combine(0, summary(4));
        let [NodeEvent::InputClosed, NodeEvent::Ended(sum)] = &end[..] else {
            panic!("{end:?}");
        };
        assert_eq!((sum.killed, &sum.stubborn), (7, &vec![4, 3]));
    }

    #[test]
    fn messages_between_nodes_are_forwarded_and_not_reported() {
        let (mut nodes, mut daemons) = nodes(&[false, false]);
        assert_eq!(nodes.combine(0, NodeEvent::Watch(1)), []);
        assert_eq!(nodes.flush(), Ok(()));
        assert_eq!(orders(&mut daemons[1]), [Order::Watch(1)]);
        nodes.combine(1, NodeEvent::Ended(NodeSummary::default()));
        assert_eq!(nodes.combine(0, NodeEvent::Quiet(0)), []);
        assert_eq!(nodes.flush(), Ok(()));
        let orders = orders(&mut daemons[0]);
        let [Order::Location(of), Order::AllQuiet(0)] = &orders[..] else {
            panic!("{orders:?}");
        };
        assert_eq!((of.rank, of.ended), (1, true));
    }

    #[test]
    fn ended_nodes_are_not_waited_for() {
        let (mut nodes, _daemons) = nodes(&[true, true]);
        assert_eq!(nodes.combine(0, NodeEvent::Held), []);
        assert_eq!(nodes.combine(0, NodeEvent::InputTaken(9)), []);
        let end = nodes.combine(1, NodeEvent::Ended(NodeSummary::default()));
        // The ranks of the node that ended had consumed nothing; the other node now determines the minimum.
        assert_eq!(end, [NodeEvent::InputTaken(9), NodeEvent::Held]);
        assert_eq!(
            nodes.lost(0),
            [
                NodeEvent::InputClosed,
                NodeEvent::Ended(NodeSummary::default())
            ]
        );
        assert!(nodes.has_lost_any());
    }

    #[test]
    fn all_in_mpi_needs_all_nodes_and_first_in_mpi_needs_one() {
        let (mut nodes, _daemons) = nodes(&[false, false]);
        let reached = |phase, at| NodeEvent::Reached { phase, at };
        let first = nodes.combine(1, reached(NodePhase::FirstInMpi, 5));
        assert_eq!(first, [reached(NodePhase::FirstInMpi, 5)]);
        assert_eq!(nodes.combine(0, reached(NodePhase::FirstInMpi, 7)), []);
        assert_eq!(nodes.combine(0, reached(NodePhase::AllInMpi, 9)), []);
        let all = nodes.combine(1, reached(NodePhase::AllInMpi, 8));
        assert_eq!(all, [reached(NodePhase::AllInMpi, 9)]);
    }

    #[test]
    fn consumed_input_is_the_minimum_over_reading_nodes() {
        let (mut nodes, _daemons) = nodes(&[true, false, true]);
        assert_eq!(nodes.combine(0, NodeEvent::InputTaken(10)), []);
        let taken = nodes.combine(2, NodeEvent::InputTaken(4));
        assert_eq!(taken, [NodeEvent::InputTaken(4)]);
        // The slower node does not read any more, and the other node has consumed more.
        let closed = nodes.combine(2, NodeEvent::InputClosed);
        assert_eq!(closed, [NodeEvent::InputTaken(6)]);
        let taken = nodes.combine(0, NodeEvent::InputTaken(1));
        assert_eq!(taken, [NodeEvent::InputTaken(1)]);
        assert_eq!(
            nodes.combine(0, NodeEvent::InputClosed),
            [NodeEvent::InputClosed]
        );
    }

    #[test]
    fn a_broadcast_order_is_queued_once_for_all_nodes() {
        let (mut nodes, _shepherd) = over_hosts(1000);
        let large = vec![7; 1 << 20];
        nodes.order_all_bytes(&large);
        (0..1000).for_each(|node| nodes.order_bytes(node, &[1; 100]));
        let waits = nodes.links[0].connection.outbox.len();
        assert!(waits < large.len() + 1000 * 120, "{waits}");
    }

    /// Encoded events of a daemon, valid or corrupted.
    fn event_bytes() -> impl Strategy<Value = Vec<u8>> {
        let frames = |events: Vec<NodeEvent>| {
            let mut bytes = Vec::new();
            events.iter().for_each(|event| event.put(&mut bytes));
            bytes
        };
        let location = |rank| RankLocation {
            rank,
            round: 1,
            silent: true,
            ended: false,
            last: None,
        };
        let summary = NodeSummary {
            signalled: u32::MAX,
            killed: u32::MAX,
            ..NodeSummary::default()
        };
        let right = proptest::sample::select(vec![
            frames(vec![NodeEvent::Held, NodeEvent::Standstill(7)]),
            frames(vec![
                NodeEvent::Watch(1),
                NodeEvent::Watch(77),
                NodeEvent::Quiet(1),
            ]),
            frames(vec![NodeEvent::Location(location(1))]),
            frames(vec![NodeEvent::Location(location(u32::MAX))]),
            frames(vec![NodeEvent::Started(vec![(u32::MAX, 1), (0, 0)])]),
            frames(vec![
                NodeEvent::InputTaken(u64::MAX),
                NodeEvent::InputClosed,
            ]),
            frames(vec![NodeEvent::Reached {
                phase: NodePhase::Ended,
                at: u64::MAX,
            }]),
            frames(vec![
                NodeEvent::Ended(summary.clone()),
                NodeEvent::Ended(summary),
            ]),
        ]);
        let alter = |(mut bytes, place, byte): (Vec<u8>, usize, u8)| {
            let place = place % bytes.len();
            bytes[place] = byte;
            bytes
        };
        let altered = (right.clone(), any::<usize>(), any::<u8>()).prop_map(alter);
        prop_oneof![
            right,
            altered,
            proptest::collection::vec(any::<u8>(), 0..40)
        ]
    }

    proptest! {
        #[test]
        fn arbitrary_node_messages_report_each_end_once(
            messages in proptest::collection::vec((0..6u32, event_bytes(), any::<u8>()), 0..60),
        ) {
            let (mut nodes, mut shepherd) = over_hosts(4);
            let mut ends = 0;
            for (node, bytes, kind) in messages {
                let out = &mut shepherd.outbox;
                match kind % 8 {
                    0 => UpMessage::Lost(node % 4, lost("lost")).put(out),
                    1 => UpMessage::Ended(node % 4).put(out),
                    2 => UpMessage::Beat.put(out),
                    _ => UpMessage::Event(node % 4, bytes).put(out),
                }
                let _ = shepherd.flush();
                prop_assert_eq!(nodes.fill(0, &mut [0; 9000]), Ok(()));
                while let Some((node, message)) = nodes.take(0).unwrap() {
                    let events = match message {
                        NodeMessage::Event(event) => nodes.combine(node, event),
                        NodeMessage::Lost(_) => nodes.lost_remote(node),
                    };
                    let is_end = |event: &&NodeEvent| matches!(event, NodeEvent::Ended(_));
                    ends += events.iter().filter(is_end).count();
                }
                // The orders that were queued fit in the socket buffers.
                let _ = nodes.flush();
                while shepherd.read(&mut [0; 9000]).is_ok_and(|bytes| bytes > 0) {}
            }
            prop_assert!(ends <= 1);
            let all_have_ended = (0..4).all(|node| nodes.has_ended(node));
            prop_assert_eq!(all_have_ended, ends == 1);
        }
    }

    /// Nodes with one rank each, behind one shepherd, and the shepherd's end of the connection.
    fn over_hosts(count: u32) -> (Nodes, FrameConnection) {
        let mut nodes = Nodes::of(wireup::NodeMap::new(0..count).unwrap().by_node());
        let (ours, theirs) = FrameConnection::pair().unwrap();
        nodes.add_link(ours, 100, true);
        for number in 0..count {
            nodes.add(JobNode::new(format!("n{number}"), true));
        }
        (nodes, theirs)
    }
}
