// SPDX-License-Identifier: MIT OR Apache-2.0
//! The part of a rank that does not lead its node in a collective [by node](super::super::by_node), at hand: it gives what it has at the
//! board of its node, and sleeps there for what its leader tells, if ranks share cores. Most ranks of a job are such ranks, so where many
//! share a core their way through a call is what a call costs.
//!
//! As for all that is done at hand, what does not end here the ordinary way goes on with.

use std::rc::Rc;

use transport::Seat;
use transport::seat::{Awaited, BoardEvent, Round};

use super::super::bcast_queue::chunks;
use super::super::board_note::{BoardNote, RoundKind};
use super::super::by_node::{self, Across};
use super::super::tree::queue_limit;
use super::super::tuning::CollectiveTuning;
use super::super::{Reducer, board::BoardChoice};
use super::{arrive, goes, is_special, looks};
use crate::comm::Comm;
use crate::nodes::CommNodes;
use crate::{Universe, UserMemory};

/// A call about which nothing is special so far, at a rank near its leader. Each way of it answers `None` where the ordinary way must
/// end it.
#[derive(Debug)]
pub struct NearHand<'a> {
    universe: &'a mut Universe,
    comm: &'a Comm,
    nodes: &'a CommNodes,
    seat: Rc<Seat>,
    shape: CollectiveTuning,
    number: u32,
    collective: usize,
}

impl<'a> NearHand<'a> {
    /// The next call on `comm`, of a collective (a number of `queue_layout::COLLECTIVES`). It may sleep, so nobody else must be waiting to
    /// visit the process.
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
        self.hears(0)?;
        let round = self.give(
            choice.by_node(self.shape.boards),
            choice.board(),
            RoundKind::Barrier,
            &[],
        )?;
        self.hear(leader, &mut [], Some(round))
    }

    /// As [`bcast`](super::super::bcast), at another rank than the root.
    #[must_use]
    pub fn bcast(mut self, mut memory: UserMemory, root: u32) -> Option<()> {
        let goes = self.shape.choice.bcast.by_node(self.shape.boards);
        let leader = self.leader(Some(root)).filter(|_| goes)?;
        self.hears(memory.bytes())?;
        self.hear(leader, memory.as_mut_slice(), None)
    }

    /// As [`reduce`](super::super::reduce), at another rank than the root.
    #[must_use]
    pub fn reduce(self, input: UserMemory, root: u32, op: &impl Reducer) -> Option<()> {
        let choice = self.shape.choice.reduce;
        self.leader(Some(root)).filter(|_| self.combines(op))?;
        let size = (input.bytes(), self.comm.size());
        if Across::of_reduce(&self.shape, self.nodes, size, op) != Across::Leaders {
            return None;
        }
        let goes = choice.by_node(self.shape.boards);
        self.give(goes, choice.board(), RoundKind::Reduce, input.as_slice())?;
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
        self.hears(input.bytes())?;
        let goes = choice.allreduce.by_node(self.shape.boards);
        let round = self.give(
            goes,
            choice.reduce.board(),
            RoundKind::Reduce,
            input.as_slice(),
        )?;
        self.hear(leader, output.as_mut_slice(), Some(round))
    }

    /// The place of this node's leader; `None`: it is this rank, or there is no such root.
    fn leader(&self, root: Option<u32>) -> Option<u32> {
        if root.is_some_and(|root| root >= self.comm.size()) {
            return None;
        }
        let (near, place) = self.nodes.near();
        let leader = by_node::place_of_root(self.comm, near, root).unwrap_or(0);
        (leader != place).then_some(leader)
    }

    /// Whether ranks of a node combine their data before those of others.
    fn combines(&self, op: &impl Reducer) -> bool {
        self.nodes.are_in_order() || op.commutes()
    }

    /// Whether the leader tells so many bytes over the queue of the board.
    fn hears(&self, bytes: usize) -> Option<()> {
        let limit = queue_limit(&self.shape, self.shape.choice.bcast.board());
        (limit > 0 && bytes <= limit).then_some(())
    }

    /// Arrives with its bytes at the board, if the call goes that way, and does not wait.
    fn give(
        &self,
        by_node: bool,
        wish: BoardChoice,
        kind: RoundKind,
        bytes: &[u8],
    ) -> Option<Round> {
        goes(&self.shape, &self.seat, bytes.len(), wish).filter(|()| by_node)?;
        let (_, place) = self.nodes.near();
        let told = BoardNote::of_call(self.number, kind, bytes.len());
        arrive(&self.seat, place, told, bytes)
    }

    /// What the leader tells, if it comes before anything else happens. `given`: the round in which this rank has arrived.
    fn hear(&mut self, leader: u32, into: &mut [u8], given: Option<Round>) -> Option<()> {
        let note = BoardNote::of_call(self.number, RoundKind::Bcast, into.len()).note();
        for (heard, chunk) in chunks(into.len()).enumerate() {
            let told = match self.is_told() {
                true => self.seat.bcast_queue().next_entry(),
                false => None,
            };
            let Some(told) = told.filter(|told| told.place == leader && told.note == note) else {
                self.comm.hear_at_hand(self.number, heard);
                if let Some(round) = given {
                    self.comm.begin_at_hand(self.number, round);
                }
                return None;
            };
            let queue = self.seat.bcast_queue();
            queue.read(&told, chunk.len(), 0, &mut into[chunk]);
            self.seat.take_entry(&told);
        }
        self.end()
    }

    /// Whether the next entry of the queue was told, or is before anything else happens.
    fn is_told(&mut self) -> bool {
        let queue = self.seat.bcast_queue();
        let next = queue.next();
        let comes_soon = (0..looks(self.universe)).any(|_| {
            std::hint::spin_loop();
            queue.is_published(next)
        });
        comes_soon || {
            let entry = Awaited::new(&self.seat, BoardEvent::Entry(next));
            self.universe.sleep_at_board(&entry)
        }
    }

    fn end(&self) -> Option<()> {
        self.comm.count_call(self.collective);
        Some(())
    }
}
