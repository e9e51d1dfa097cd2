// SPDX-License-Identifier: MIT OR Apache-2.0
//! The communicators of this process, by context id: their members and ranks, their [boards](transport::seat) (shared
//! memory for collectives), and their rows for debuggers. Nothing here sends or waits.

use std::cell::Cell;
use std::collections::HashSet;
use std::rc::Rc;
use std::sync::Arc;

use engine::{ContextId, Peer, ReceivedMessage};
use queue_layout::{CommTable, EngineCounters};
use rustc_hash::FxHashMap;
use transport::Fabric;
use transport::seat::NODE_BOARD;

use crate::Error;
use crate::carrier::carrier;
use crate::comm::{Comm, Group, SELF_CONTEXT, WORLD_CONTEXT};
use crate::comm_rows::CommRows;
use crate::contexts::Contexts;
use crate::roster::Roster;
use crate::var::{Variable, VariableValues};

/// All communicators of this process, including freed ones with pending operations.
#[derive(Debug)]
pub struct Comms {
    /// `MPI_COMM_WORLD` and `MPI_COMM_SELF`.
    predefined: [Comm; 2],
    /// Groups that are not that of `MPI_COMM_WORLD`, by context id; of an intercommunicator, the remote group. They
    /// give the source in a status, and determine which operations fail when a rank is lost.
    groups: FxHashMap<u32, Group>,
    /// The last context id that was looked up and is not in `groups`: ranks in its communicator are world ranks.
    plain: Cell<u32>,
    /// Context ids of communicators that were freed while operations on them were pending.
    ending: Vec<u32>,
    rows: CommRows,
    contexts: Contexts,
}

/// The names of the predefined communicators (MPI 5.0 section 7.8).
pub const PREDEFINED: [&str; 2] = ["MPI_COMM_WORLD", "MPI_COMM_SELF"];

impl Comms {
    /// A table with only the predefined communicators.
    pub(crate) fn new(
        roster: &Roster,
        fabric: &Fabric,
        values: &VariableValues,
        counters: Arc<EngineCounters>,
    ) -> Self {
        let (me, size) = (Peer(roster.rank()), roster.size());
        let led = u32::try_from(values.get(Variable::LeaderContexts)).unwrap_or(u32::MAX);
        let mut rows = CommRows::with_counters(counters);
        let mut world = Comm::new(WORLD_CONTEXT, Group::world(size), me.0);
        // If all ranks are on one node, `MPI_COMM_WORLD` uses the board of the node.
        take_seat(&mut world, fabric, NODE_BOARD);
        let myself = Comm::new(SELF_CONTEXT, Group::of(vec![me]), 0);
        let mut predefined = [world, myself];
        for (comm, name) in predefined.iter_mut().zip(PREDEFINED) {
            rows.open(comm);
            rows.rename(comm, name);
        }
        Self {
            groups: FxHashMap::from_iter([(SELF_CONTEXT.0, predefined[1].group.clone())]),
            predefined,
            plain: Cell::new(WORLD_CONTEXT.0),
            ending: Vec::new(),
            rows,
            contexts: Contexts::new(me.0, led),
        }
    }

    /// `MPI_COMM_WORLD`.
    #[must_use]
    pub fn world(&self) -> Comm {
        self.predefined[0].clone()
    }

    /// `MPI_COMM_SELF`.
    #[must_use]
    pub fn self_comm(&self) -> Comm {
        self.predefined[1].clone()
    }

    /// Reserves a context id that no communicator of the job has, without a board. It is for several communicators of
    /// disjoint groups that get the same context id, for which a board would be ambiguous; for other communicators use
    /// [`Universe::reserve_context`](crate::Universe::reserve_context). `None`: this process has no context id left.
    /// The members then [agree](Self::propose_context) on one, like those of a communicator over several jobs.
    pub fn reserve_context(&mut self) -> Option<ContextId> {
        self.contexts.reserve()
    }

    /// Returns a reserved context id that is not needed; `false`: another process has reserved it.
    pub(crate) fn release_context(&mut self, context: ContextId) -> bool {
        self.contexts.release(context)
    }

    /// The context id that this process proposes when the members of a communicator agree on one. It is at least
    /// `from`. The members select the highest proposal, if all of them can [keep](Self::keep_context) it.
    ///
    /// # Errors
    /// When all context ids are used.
    pub fn propose_context(&self, from: u32) -> Result<ContextId, Error> {
        self.contexts
            .lowest_free(from)
            .ok_or(Error::ContextsExhausted)
    }

    /// Marks a context id that was agreed on as used, until its communicator is freed. `false`: another communicator of
    /// this process uses this id.
    pub fn keep_context(&mut self, context: ContextId) -> bool {
        self.contexts.keep(context)
    }

    /// Releases a context id that was marked by [`keep_context`](Self::keep_context).
    pub fn free_context(&mut self, context: ContextId) {
        self.contexts.free(context);
    }

    /// Whether a group contains processes of other jobs.
    #[must_use]
    pub fn has_others(&self, group: &Group) -> bool {
        group.peers().any(|peer| peer.0 >= self.world_size())
    }

    /// Registers a new communicator. Takes a seat at its board, if there is one.
    pub(crate) fn adopt(&mut self, fabric: &mut Fabric, comm: &mut Comm) {
        let key = comm.context.0;
        if !comm.is_inter() && comm.size() > 1 {
            take_seat(comm, fabric, key);
        }
        // A communicator without processes is still being made.
        if comm.seat.is_none() && comm.size() > 0 {
            // The leader of the communicator, if it is on this node, may have claimed a board for the communicator.
            let groups = [Some(&comm.group), comm.remote.as_ref()];
            let members = groups.into_iter().flatten().flat_map(Group::peers);
            fabric.decline_board(key, members.map(carrier));
        }
        let partners = comm.partners();
        if !partners.is_identity() || partners.size() != self.world_size() {
            self.groups.insert(key, partners.clone());
            if self.plain.get() == key {
                self.plain.set(WORLD_CONTEXT.0);
            }
        }
        self.rows.open(comm);
    }

    /// Sets the name of a communicator, for debuggers.
    pub fn rename(&self, comm: &Comm, name: &str) {
        self.rows.rename(comm, name);
    }

    /// The table of communicators, for debuggers.
    #[must_use]
    pub fn table(&self) -> &CommTable {
        self.rows.table()
    }

    /// Retires a freed communicator. Its group and row are [kept](Self::forget_ended) while operations on it are
    /// pending.
    pub(crate) fn retire(&mut self, context: ContextId) {
        self.rows.retire(context.0);
        self.ending.push(context.0);
    }

    /// Drops the groups and rows of freed communicators without pending operations. `used`: the context ids of all
    /// requests.
    pub(crate) fn forget_ended(&mut self, used: &HashSet<u32>) {
        let (groups, rows, contexts) = (&mut self.groups, &mut self.rows, &mut self.contexts);
        self.ending.retain(|context| {
            let needed = used.contains(context);
            if !needed {
                groups.remove(context);
                rows.close(*context);
                contexts.free(ContextId(*context));
            }
            needed
        });
    }

    /// Rank of a process in the communicator with this context id; -1 if the process is not a member.
    #[inline(always)]
    #[must_use]
    pub fn rank_in(&self, context: ContextId, peer: Peer) -> i32 {
        if self.is_plain(context) {
            return peer.0.cast_signed();
        }
        self.rank_in_other(context, peer)
    }

    /// Whether ranks in the communicator with this context id are known to be peer numbers. `false`: they may differ
    /// from peer numbers.
    #[inline(always)]
    #[must_use]
    pub fn is_plain(&self, context: ContextId) -> bool {
        context.0 == self.plain.get()
    }

    #[inline(never)]
    fn rank_in_other(&self, context: ContextId, peer: Peer) -> i32 {
        let rank = match self.groups.get(&context.0) {
            None => {
                self.plain.set(context.0);
                Some(peer.0)
            }
            Some(group) => group.rank_of(peer),
        };
        rank.and_then(|rank| i32::try_from(rank).ok()).unwrap_or(-1)
    }

    /// Rank of a message's sender in the communicator of the message.
    #[inline(always)]
    #[must_use]
    pub fn sender_rank(&self, received: &ReceivedMessage) -> i32 {
        self.rank_in(received.context, received.peer)
    }

    /// Whether a process is in the communicator with this context id; in an intercommunicator, whether it is in the
    /// remote group.
    pub(crate) fn has_member(&self, context: ContextId, peer: Peer) -> bool {
        match self.groups.get(&context.0) {
            None => peer.0 < self.world_size(),
            Some(group) => group.rank_of(peer).is_some(),
        }
    }

    fn world_size(&self) -> u32 {
        self.predefined[0].size()
    }
}

fn take_seat(comm: &mut Comm, fabric: &Fabric, key: u32) {
    let members = comm.group.peers().map(carrier);
    comm.seat = fabric.take_seat(key, members).map(Rc::new);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The communicators of rank 1 of 2.
    fn comms(fabric: &Fabric) -> Comms {
        let (values, _) = VariableValues::from_environment(std::iter::empty());
        Comms::new(
            &Roster::of_one_node(0, 1, 2),
            fabric,
            &values,
            Arc::default(),
        )
    }

    fn alone() -> Fabric {
        Fabric::open(transport::Config::alone()).unwrap()
    }

    fn comm(context: u32, group: Group) -> Comm {
        Comm::new(ContextId(context), group, 0)
    }

    #[test]
    fn rank_in_uses_the_group_of_the_context() {
        let mut fabric = alone();
        let mut comms = comms(&fabric);
        let turned = Group::of(vec![Peer(1), Peer(0)]);
        comms.adopt(&mut fabric, &mut comm(12, turned));
        comms.adopt(&mut fabric, &mut comm(16, Group::world(2)));
        for _ in 0..2 {
            for (context, ranks) in [(WORLD_CONTEXT.0, [0, 1]), (12, [1, 0]), (16, [0, 1])] {
                let rank = |peer| comms.rank_in(ContextId(context), Peer(peer));
                assert_eq!([rank(0), rank(1)], ranks);
            }
            assert_eq!(comms.rank_in(SELF_CONTEXT, Peer(1)), 0);
            assert_eq!(comms.rank_in(SELF_CONTEXT, Peer(0)), -1);
        }
    }

    #[test]
    fn a_context_may_be_reused_with_another_rank_order() {
        let mut fabric = alone();
        let mut comms = comms(&fabric);
        assert_eq!(comms.rank_in(ContextId(12), Peer(1)), 1);
        assert!(comms.is_plain(ContextId(12)));
        let turned = Group::of(vec![Peer(1), Peer(0)]);
        comms.adopt(&mut fabric, &mut comm(12, turned));
        assert_eq!(comms.rank_in(ContextId(12), Peer(1)), 0);
    }

    #[test]
    fn a_group_is_kept_while_a_request_uses_its_context() {
        let mut fabric = alone();
        let mut comms = comms(&fabric);
        for context in [12, 16] {
            let mut comm = comm(context, Group::of(vec![Peer(1)]));
            comms.adopt(&mut fabric, &mut comm);
            comms.retire(comm.context);
        }
        comms.forget_ended(&HashSet::from([12]));
        assert!(!comms.has_member(ContextId(12), Peer(0)));
        assert!(comms.has_member(ContextId(16), Peer(0)), "it is not known");
        comms.forget_ended(&HashSet::new());
        assert!(comms.has_member(ContextId(12), Peer(0)) && comms.ending.is_empty());
    }

    #[test]
    fn processes_added_later_are_in_no_communicator_of_the_job() {
        let comms = comms(&alone());
        assert!(comms.has_member(WORLD_CONTEXT, Peer(1)));
        assert!(!comms.has_member(WORLD_CONTEXT, Peer(2)));
        assert!(comms.has_others(&Group::of(vec![Peer(0), Peer(2)])));
        assert!(!comms.has_others(&Group::world(2)));
    }

    #[test]
    fn an_agreed_context_is_reused_when_its_communicator_has_ended() {
        let mut fabric = alone();
        let mut comms = comms(&fabric);
        let context = comms.propose_context(0).unwrap();
        assert!(comms.keep_context(context));
        let mut comm = Comm::new(context, Group::world(2), 1);
        comms.adopt(&mut fabric, &mut comm);
        assert_ne!(comms.propose_context(0).unwrap(), context);
        comms.retire(context);
        comms.forget_ended(&HashSet::from([context.0]));
        assert!(!comms.keep_context(context));
        comms.forget_ended(&HashSet::new());
        assert_eq!(comms.propose_context(0).unwrap(), context);
    }
}
