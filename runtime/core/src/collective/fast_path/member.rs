// SPDX-License-Identifier: MIT OR Apache-2.0
//! The fast path of a rank that is not the leader of its node in a collective [by node](super::super::by_node). Such a
//! rank puts its data on the board of its node. If ranks share cores, it then sleeps until its leader publishes the
//! result. Most ranks of a job are not leaders, so if many ranks share a core, this path determines how long a call
//! takes.
//!
//! If a call does not end on this path, the general path continues it.

use std::rc::Rc;

use transport::Seat;
use transport::seat::{Awaited, BoardEvent, Round};

use super::super::bcast_queue::chunks;
use super::super::board_note::{BoardNote, RoundKind};
use super::super::by_node::{self, Across};
use super::super::tree::queue_limit;
use super::super::tuning::CollectiveTuning;
use super::super::{Reducer, board::BoardChoice};
use super::{applies, arrive, is_special, poll_limit};
use crate::comm::Comm;
use crate::nodes::CommNodes;
use crate::{Universe, UserMemory};

/// A call that may take the fast path, at a rank that does not lead its node. A method returns `None` if the general
/// path must complete the call.
#[derive(Debug)]
pub struct FastMemberCall<'a> {
    universe: &'a mut Universe,
    comm: &'a Comm,
    nodes: &'a CommNodes,
    seat: Rc<Seat>,
    shape: CollectiveTuning,
    number: u32,
    collective: usize,
}

impl<'a> FastMemberCall<'a> {
    /// The next call on `comm`; `None`: it cannot take the fast path. `collective`: a number of
    /// `queue_layout::COLLECTIVES`. The call may sleep during its [visit](crate::Visit), in which it excludes other
    /// threads from the process. So it must not be used if other threads may visit the process.
    #[must_use]
    pub fn new(universe: &'a mut Universe, comm: &'a Comm, collective: usize) -> Option<Self> {
        let nodes = comm.nodes.get()?.as_deref().filter(|_| !comm.has_board())?;
        let (seat, number) = (nodes.seat()?, comm.upcoming_call()?);
        if is_special(universe) {
            return None;
        }
        Some(Self {
            shape: *universe.shape(),
            universe,
            comm,
            nodes,
            seat,
            number,
            collective,
        })
    }

    /// As [`barrier`](super::super::barrier).
    #[must_use]
    pub fn barrier(mut self) -> Option<()> {
        let choice = self.shape.choice.barrier;
        let leader = self.leader(None)?;
        self.can_receive(0)?;
        let round = self.give(
            choice.by_node(self.shape.boards),
            choice.board(),
            RoundKind::Barrier,
            &[],
        )?;
        self.receive(leader, &mut [], Some(round))
    }

    /// As [`bcast`](super::super::bcast), at a rank other than the root.
    #[must_use]
    pub fn bcast(mut self, mut memory: UserMemory, root: u32) -> Option<()> {
        let applies = self.shape.choice.bcast.by_node(self.shape.boards);
        let leader = self.leader(Some(root)).filter(|_| applies)?;
        self.can_receive(memory.bytes())?;
        self.receive(leader, memory.as_mut_slice(), None)
    }

    /// As [`reduce`](super::super::reduce), at a rank other than the root.
    #[must_use]
    pub fn reduce(self, input: UserMemory, root: u32, op: &impl Reducer) -> Option<()> {
        let choice = self.shape.choice.reduce;
        self.leader(Some(root)).filter(|_| self.combines(op))?;
        let size = (input.bytes(), self.comm.size());
        if Across::of_reduce(&self.shape, self.nodes, size, op) != Across::Leaders {
            return None;
        }
        let applies = choice.by_node(self.shape.boards);
        self.give(applies, choice.board(), RoundKind::Reduce, input.as_slice())?;
        self.end()
    }

    /// As [`allreduce`](super::super::allreduce).
    #[must_use]
    pub fn allreduce(
        mut self,
        input: UserMemory,
        mut output: UserMemory,
        op: &impl Reducer,
    ) -> Option<()> {
        let choice = self.shape.choice;
        let leader = self.leader(None).filter(|_| self.combines(op))?;
        let size = (input.bytes(), self.comm.size());
        if Across::of_allreduce(&self.shape, self.nodes, size, op) != Across::Leaders {
            return None;
        }
        self.can_receive(input.bytes())?;
        let applies = choice.allreduce.by_node(self.shape.boards);
        let round = self.give(
            applies,
            choice.reduce.board(),
            RoundKind::Reduce,
            input.as_slice(),
        )?;
        self.receive(leader, output.as_mut_slice(), Some(round))
    }

    /// The index of this node's leader among the ranks of the node. `None`: this rank leads, or no rank is `root`.
    fn leader(&self, root: Option<u32>) -> Option<u32> {
        if root.is_some_and(|root| root >= self.comm.size()) {
            return None;
        }
        let (near, place) = self.nodes.near();
        let leader = by_node::place_of_root(self.comm, near, root).unwrap_or(0);
        (leader != place).then_some(leader)
    }

    /// Whether combining node by node keeps the order of ranks, or the operation does not need that order.
    fn combines(&self, op: &impl Reducer) -> bool {
        self.nodes.are_in_order() || op.commutes()
    }

    /// `Some`: `bytes` bytes come from the leader over the broadcast queue of the board.
    fn can_receive(&self, bytes: usize) -> Option<()> {
        let limit = queue_limit(&self.shape, self.shape.choice.bcast.board());
        (limit > 0 && bytes <= limit).then_some(())
    }

    /// Arrives with this rank's bytes at the board, and does not wait. `None`: the call does not use the board, or
    /// there is no room yet.
    fn give(
        &self,
        by_node: bool,
        board_choice: BoardChoice,
        kind: RoundKind,
        bytes: &[u8],
    ) -> Option<Round> {
        applies(&self.shape, &self.seat, bytes.len(), board_choice).filter(|()| by_node)?;
        let (_, place) = self.nodes.near();
        let note = BoardNote::of_call(self.number, kind, bytes.len());
        arrive(&self.seat, place, note, bytes)
    }

    /// Reads the leader's entries. `None`: the next entry did not come soon, or is not the leader's entry for this
    /// call. The general path then continues with that entry. `given`: the round in which this rank has arrived, if it
    /// has.
    fn receive(&mut self, leader: u32, into: &mut [u8], given: Option<Round>) -> Option<()> {
        let note = BoardNote::of_call(self.number, RoundKind::Bcast, into.len()).encode();
        for (received, chunk) in chunks(into.len()).enumerate() {
            let entry = match self.waits_for_entry() {
                true => self.seat.bcast_queue().next_entry(),
                false => None,
            };
            let Some(entry) = entry.filter(|entry| entry.place == leader && entry.note == note)
            else {
                self.comm.record_read_entries(self.number, received);
                if let Some(round) = given {
                    self.comm.begin_on_fast_path(self.number, round);
                }
                return None;
            };
            let queue = self.seat.bcast_queue();
            queue.read(&entry, chunk.len(), 0, &mut into[chunk]);
            self.seat.take_entry(&entry);
        }
        self.end()
    }

    /// Waits briefly for the next entry of the queue; if ranks share cores, also sleeps once. `true`: the entry is
    /// there.
    fn waits_for_entry(&mut self) -> bool {
        let queue = self.seat.bcast_queue();
        let next = queue.next();
        let arrives_soon = (0..poll_limit(self.universe)).any(|_| {
            std::hint::spin_loop();
            queue.is_published(next)
        });
        arrives_soon || {
            let entry = Awaited::new(&self.seat, BoardEvent::Entry(next));
            self.universe.sleep_at_board(&entry)
        }
    }

    fn end(&self) -> Option<()> {
        self.comm.count_call(self.collective);
        Some(())
    }
}
