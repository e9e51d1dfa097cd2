// SPDX-License-Identifier: MIT OR Apache-2.0
//! The nodes of a job as its front sees them: a daemon each, and an edge to it. What every node has to say before it is true
//! of the job (all ranks stand still, nothing is left, so much input was taken) is put together here.

use crate::edge::{Closed, Edge};
use crate::link::{Event, Garbled, Gone, Order, Phase};
use std::os::fd::{AsFd, BorrowedFd};

/// All nodes of a job, by their numbers in its list of hosts.
#[derive(Debug, Default)]
pub(crate) struct Nodes(Vec<Node>);

/// One node.
#[derive(Debug)]
pub(crate) struct Node {
    edge: Edge,
    /// The process of its daemon, a child of this one.
    daemon: u32,
    /// The machine's name.
    host: String,
    /// Some of its ranks read standard input.
    reads: bool,
    /// Standard input that those have taken, all in all.
    taken: u64,
    /// Its ranks stand still for a debugger.
    held: bool,
    /// Its ranks have made no progress for so many seconds.
    standstill: Option<u64>,
    /// The phases that its ranks have come to, by number, and when.
    reached: [Option<u64>; PHASES],
    /// How it ended.
    gone: Option<Gone>,
    /// Its daemon has ended without a word.
    is_lost: bool,
}

/// Phases have numbers below this.
const PHASES: usize = Phase::Ended as usize + 1;

impl Node {
    /// A node whose daemon was just made. `reads`: some of its ranks read standard input.
    pub(crate) fn new(edge: Edge, daemon: u32, host: String, reads: bool) -> Self {
        Self {
            edge,
            daemon,
            host,
            reads,
            taken: 0,
            held: false,
            standstill: None,
            reached: [None; PHASES],
            gone: None,
            is_lost: false,
        }
    }
}

impl Nodes {
    pub(crate) fn add(&mut self, node: Node) {
        self.0.push(node);
    }

    /// The process of a node's daemon.
    pub(crate) fn daemon(&self, node: usize) -> u32 {
        self.0[node].daemon
    }

    /// The processes of all daemons.
    pub(crate) fn daemons(&self) -> impl Iterator<Item = u32> {
        self.0.iter().map(|node| node.daemon)
    }

    /// The name of a node's machine.
    pub(crate) fn host(&self, node: usize) -> &str {
        &self.0[node].host
    }

    /// The nodes of which something may still be heard.
    pub(crate) fn living(&self) -> impl Iterator<Item = usize> {
        let living = |(_, node): &(usize, &Node)| node.gone.is_none();
        (0..).zip(&self.0).filter(living).map(|(number, _)| number)
    }

    /// The edges of those, and whether something waits for room on them.
    pub(crate) fn edges(&self) -> impl Iterator<Item = (usize, BorrowedFd<'_>, bool)> {
        self.living().map(|number| {
            let edge = &self.0[number].edge;
            (number, edge.as_fd(), !edge.is_flushed())
        })
    }

    /// What is left of a job of which nothing is heard any more.
    pub(crate) fn sum(&self) -> Gone {
        let mut sum = Gone::default();
        for gone in self.0.iter().filter_map(|node| node.gone.as_ref()) {
            sum.signalled += gone.signalled;
            sum.killed += gone.killed;
            sum.leftovers += gone.leftovers;
            sum.tools += gone.tools;
            sum.stubborn.extend(&gone.stubborn);
        }
        sum
    }

    /// Whether some rank reads standard input.
    pub(crate) fn has_readers(&self) -> bool {
        self.0.iter().any(|node| node.reads)
    }

    /// Puts an order into the way of those that it is for. [`flush`](Self::flush) sends it.
    pub(crate) fn order(&mut self, order: &Order) {
        let is_input = matches!(order, Order::Input(_) | Order::InputEnd);
        let wants = |node: &&mut Node| node.gone.is_none() && (node.reads || !is_input);
        for node in self.0.iter_mut().filter(wants) {
            order.put(&mut node.edge.outbox);
        }
    }

    /// Puts an order into the way of one node.
    pub(crate) fn order_one(&mut self, node: usize, order: &Order) {
        let node = &mut self.0[node];
        if node.gone.is_none() {
            order.put(&mut node.edge.outbox);
        }
    }

    /// Puts bytes into the way of a node that are orders already.
    pub(crate) fn order_bytes(&mut self, node: usize, mut bytes: Vec<u8>) {
        self.0[node].edge.outbox.append(&mut bytes);
    }

    /// Sends what the sockets take.
    ///
    /// # Errors
    /// The first node whose daemon is not there any more.
    pub(crate) fn flush(&mut self) -> Result<(), usize> {
        for (number, node) in self.0.iter_mut().enumerate() {
            if node.gone.is_none() {
                node.edge.flush().map_err(|Closed| number)?;
            }
        }
        Ok(())
    }

    /// Reads once what a node has said.
    ///
    /// # Errors
    /// Its daemon is not there any more.
    pub(crate) fn fill(&mut self, node: usize, scratch: &mut [u8]) -> Result<(), Closed> {
        self.0[node].edge.fill(scratch)
    }

    /// The next event of a node that has arrived.
    pub(crate) fn take(&mut self, node: usize) -> Result<Option<Event>, Garbled> {
        Event::take(&mut self.0[node].edge.inbox)
    }

    /// A node's daemon has ended without a word.
    pub(crate) fn lost(&mut self, node: usize) {
        let node = &mut self.0[node];
        (node.gone, node.is_lost) = (Some(Gone::default()), true);
    }

    /// Whether that happened to any.
    pub(crate) fn has_lost_any(&self) -> bool {
        self.0.iter().any(|node| node.is_lost)
    }

    /// What an event of one node means for the job; `None`: nothing until others have said the same.
    pub(crate) fn put_together(&mut self, node: usize, event: Event) -> Option<Event> {
        match event {
            Event::Held => {
                self.0[node].held = true;
                self.all(|node| node.held).then_some(Event::Held)
            }
            Event::InputTaken(bytes) => {
                let before = self.taken();
                self.0[node].taken += bytes;
                self.taken_since(before)
            }
            Event::InputClosed => {
                let before = self.taken();
                self.0[node].reads = false;
                match self.has_readers() {
                    true => self.taken_since(before),
                    false => Some(Event::InputClosed),
                }
            }
            Event::Standstill(seconds) => {
                self.0[node].standstill = Some(seconds);
                let all = self.all(|node| node.standstill.is_some());
                // Said once, and again when all have said it again.
                let longest =
                    all.then(|| self.0.iter_mut().filter_map(|node| node.standstill.take()));
                longest.and_then(Iterator::max).map(Event::Standstill)
            }
            Event::Reached { phase, at } => self.reached(node, phase, at),
            Event::Gone(gone) => {
                self.0[node].gone = Some(gone);
                let all = self.0.iter().all(|node| node.gone.is_some());
                all.then(|| Event::Gone(self.sum()))
            }
            event => Some(event),
        }
    }

    /// The first rank in MPI is that of any node; all else is reached when the last node has come to it.
    fn reached(&mut self, node: usize, phase: Phase, at: u64) -> Option<Event> {
        let index = phase as usize;
        let is_first = self.0.iter().all(|node| node.reached[index].is_none());
        self.0[node].reached[index] = Some(at);
        let is_whole = match phase {
            Phase::FirstGreeted => is_first,
            _ => self.all(|node| node.reached[index].is_some()),
        };
        let last = self.0.iter().filter_map(|node| node.reached[index]).max()?;
        is_whole.then_some(Event::Reached { phase, at: last })
    }

    /// Whether this is so of all nodes that are still there.
    fn all(&self, is_so: impl Fn(&Node) -> bool) -> bool {
        self.0.iter().all(|node| node.gone.is_some() || is_so(node))
    }

    /// Standard input that all have taken which still read.
    fn taken(&self) -> Option<u64> {
        let reading = self
            .0
            .iter()
            .filter(|node| node.reads && node.gone.is_none());
        reading.map(|node| node.taken).min()
    }

    fn taken_since(&self, before: Option<u64>) -> Option<Event> {
        let more = self.taken()?.saturating_sub(before?);
        (more > 0).then_some(Event::InputTaken(more))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::failure::{Failure, How};

    /// Nodes, of which these read, and the edges of their daemons.
    fn nodes(reads: &[bool]) -> (Nodes, Vec<Edge>) {
        let mut nodes = Nodes::default();
        let mut daemons = Vec::new();
        for (number, reads) in (0..).zip(reads) {
            let (ours, theirs) = Edge::pair().unwrap();
            nodes.add(Node::new(ours, 100 + number, format!("n{number}"), *reads));
            daemons.push(theirs);
        }
        (nodes, daemons)
    }

    fn orders(daemon: &mut Edge) -> Vec<Order> {
        let _ = daemon.fill(&mut [0; 4096]);
        std::iter::from_fn(|| Order::take(&mut daemon.inbox).unwrap()).collect()
    }

    #[test]
    fn orders_go_to_those_that_they_are_for() {
        let (mut nodes, mut daemons) = nodes(&[false, true, true]);
        let input = || Order::Input(b"x".to_vec());
        nodes.order(&Order::Signal(15));
        nodes.order(&input());
        nodes.order_one(0, &Order::OutputTaken(3));
        nodes.put_together(2, Event::Gone(Gone::default()));
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
    fn events_of_a_node_come_through_with_all_that_they_say() {
        let (mut nodes, mut daemons) = nodes(&[true, true]);
        let failed = Event::Failed(Failure {
            rank: 1,
            pid: 2,
            finalized: false,
            how: How::Code(3),
            missing: String::new(),
        });
        failed.put(&mut daemons[1].outbox);
        assert_eq!(daemons[1].flush(), Ok(true));
        assert_eq!(nodes.fill(1, &mut [0; 4096]), Ok(()));
        let event = nodes.take(1).unwrap().unwrap();
        assert_eq!(nodes.put_together(1, event), Some(failed));
        assert_eq!((nodes.host(1), nodes.daemon(1)), ("n1", 101));
    }

    #[test]
    fn what_all_must_say_is_heard_when_the_last_has_said_it() {
        let (mut nodes, _daemons) = nodes(&[true, true, true]);
        nodes.lost(1);
        assert_eq!(nodes.put_together(0, Event::Held), None);
        assert_eq!(nodes.put_together(2, Event::Held), Some(Event::Held));
        assert_eq!(nodes.put_together(2, Event::Standstill(60)), None);
        let all = nodes.put_together(0, Event::Standstill(61));
        assert_eq!(all, Some(Event::Standstill(61)));
        assert_eq!(nodes.put_together(0, Event::Standstill(120)), None, "anew");
        let gone = |killed| {
            Event::Gone(Gone {
                killed,
                stubborn: vec![killed],
                ..Gone::default()
            })
        };
        assert_eq!(nodes.put_together(2, gone(3)), None);
        let Some(Event::Gone(sum)) = nodes.put_together(0, gone(4)) else {
            panic!("all are gone");
        };
        assert_eq!((sum.killed, sum.stubborn), (7, vec![4, 3]));
    }

    #[test]
    fn a_phase_is_reached_with_the_last_node_and_the_first_rank_in_mpi_with_the_first() {
        let (mut nodes, _daemons) = nodes(&[false, false]);
        let reached = |phase, at| Event::Reached { phase, at };
        let first = nodes.put_together(1, reached(Phase::FirstGreeted, 5));
        assert_eq!(first, Some(reached(Phase::FirstGreeted, 5)));
        assert_eq!(nodes.put_together(0, reached(Phase::FirstGreeted, 7)), None);
        assert_eq!(nodes.put_together(0, reached(Phase::AllGreeted, 9)), None);
        let all = nodes.put_together(1, reached(Phase::AllGreeted, 8));
        assert_eq!(all, Some(reached(Phase::AllGreeted, 9)));
    }

    #[test]
    fn input_is_as_far_as_the_slowest_of_those_that_read() {
        let (mut nodes, _daemons) = nodes(&[true, false, true]);
        assert_eq!(nodes.put_together(0, Event::InputTaken(10)), None);
        let taken = nodes.put_together(2, Event::InputTaken(4));
        assert_eq!(taken, Some(Event::InputTaken(4)));
        // The slower one reads no more: the other is ahead.
        let closed = nodes.put_together(2, Event::InputClosed);
        assert_eq!(closed, Some(Event::InputTaken(6)));
        assert_eq!(
            nodes.put_together(0, Event::InputTaken(1)),
            Some(Event::InputTaken(1))
        );
        assert_eq!(
            nodes.put_together(0, Event::InputClosed),
            Some(Event::InputClosed)
        );
    }
}
