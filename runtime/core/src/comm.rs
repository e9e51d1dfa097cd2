// SPDX-License-Identifier: MIT OR Apache-2.0
//! Groups, communicators and context ids (MPI 5.0 chapter 7).

use std::cell::{Cell, OnceCell};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

use engine::{ContextId, Peer};
use queue_layout::CommRow;
use rustc_hash::FxHashMap;
use transport::Seat;
use transport::seat::Round;

use crate::contexts;
use crate::nodes::CommNodes;
use crate::topology::{NeighbourLists, Topology};
use crate::var::pvars;

/// An ordered set of processes (MPI 5.0 section 7.2.1). Cheap to clone.
#[derive(Clone, Debug)]
pub struct Group(Arc<Members>);

#[derive(Debug)]
enum Members {
    /// World ranks `0 .. size`, in order.
    Identity { size: u32 },
    /// Any others; the map is the inverse.
    Table {
        peers: Box<[Peer]>,
        ranks: FxHashMap<Peer, u32>,
    },
}

/// The result of comparing two groups or communicators (MPI 5.0 sections 7.3.1 and 7.4.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GroupComparison {
    /// The same object.
    Identical,
    /// Same processes in the same order.
    Congruent,
    /// Same processes in another order.
    Similar,
    /// Different processes.
    Unequal,
}

impl Group {
    /// World ranks `0 .. size`.
    #[must_use]
    pub fn world(size: u32) -> Self {
        Self(Arc::new(Members::Identity { size }))
    }

    /// The given processes in the given order; each at most once.
    #[must_use]
    pub fn of(peers: Vec<Peer>) -> Self {
        let identity = (0..).zip(&peers).all(|(rank, peer)| peer.0 == rank);
        if identity && let Ok(size) = u32::try_from(peers.len()) {
            return Self::world(size);
        }
        let ranks = peers.iter().copied().zip(0..).collect();
        Self(Arc::new(Members::Table {
            peers: peers.into(),
            ranks,
        }))
    }

    /// Number of processes.
    #[must_use]
    pub fn size(&self) -> u32 {
        match &*self.0 {
            Members::Identity { size } => *size,
            Members::Table { peers, .. } => u32::try_from(peers.len()).unwrap_or(u32::MAX),
        }
    }

    /// The process with this rank; `None` if there is no such rank.
    #[inline]
    #[must_use]
    pub fn peer(&self, rank: u32) -> Option<Peer> {
        match &*self.0 {
            Members::Identity { size } => (rank < *size).then_some(Peer(rank)),
            Members::Table { peers, .. } => peers.get(rank as usize).copied(),
        }
    }

    /// The rank of a process; `None` if it is not a member.
    #[must_use]
    pub fn rank_of(&self, peer: Peer) -> Option<u32> {
        match &*self.0 {
            Members::Identity { size } => (peer.0 < *size).then_some(peer.0),
            Members::Table { ranks, .. } => ranks.get(&peer).copied(),
        }
    }

    /// Whether ranks are world ranks.
    #[must_use]
    pub fn is_identity(&self) -> bool {
        matches!(&*self.0, Members::Identity { .. })
    }

    /// The process of each rank; `None` where ranks are world ranks. It does not move while the group exists.
    #[must_use]
    pub fn table(&self) -> Option<&[Peer]> {
        match &*self.0 {
            Members::Identity { .. } => None,
            Members::Table { peers, .. } => Some(peers),
        }
    }

    /// Address of the world ranks in memory, for a debugger; 0 where ranks are world ranks.
    #[must_use]
    pub fn address(&self) -> u64 {
        self.table().map_or(0, |peers| peers.as_ptr().addr() as u64)
    }

    /// All members in order.
    pub fn peers(&self) -> impl Iterator<Item = Peer> + '_ {
        (0..self.size()).filter_map(|rank| self.peer(rank))
    }

    /// Compares two groups: never [`GroupComparison::Congruent`].
    #[must_use]
    pub fn compare(&self, other: &Self) -> GroupComparison {
        if Arc::ptr_eq(&self.0, &other.0) {
            return GroupComparison::Identical;
        }
        if self.size() != other.size() {
            return GroupComparison::Unequal;
        }
        if self.peers().eq(other.peers()) {
            return GroupComparison::Identical;
        }
        match self.peers().all(|peer| other.rank_of(peer).is_some()) {
            true => GroupComparison::Similar,
            false => GroupComparison::Unequal,
        }
    }
}

/// A communicator (MPI 5.0 sections 7.4 and 7.6).
#[derive(Clone, Debug)]
pub struct Comm {
    /// Context of its point-to-point messages. Collectives use the next one, and the one after that serves to make
    /// other communicators from it.
    pub context: ContextId,
    /// Its processes; of an intercommunicator those of the local group.
    pub group: Group,
    /// Rank of this process in it.
    pub rank: u32,
    /// The remote group of an intercommunicator.
    pub remote: Option<Group>,
    /// Its topology (MPI 5.0 chapter 8).
    pub topology: Option<Arc<Topology>>,
    calls: Rc<CommCalls>,
    /// The tag of the call that this copy was made for, if any.
    tag: Option<i32>,
    /// This process's seat at the board of its ranks, used for small collectives.
    pub(crate) seat: Option<Rc<Seat>>,
    /// Other communicators, of other processes, have the same context: it cannot identify a board.
    shares_context: bool,
    /// Its ranks grouped by node, computed on first use; inner `None`: the grouping is trivial or unknown.
    pub(crate) nodes: Rc<OnceCell<Option<Rc<CommNodes>>>>,
    /// Its row for debuggers.
    pub(crate) row: Option<&'static CommRow>,
}

/// Counters of the collective calls of a communicator.
#[derive(Debug, Default)]
struct CommCalls {
    /// Collective calls.
    collectives: Cell<u32>,
    /// Persistent collectives initialized.
    persistent: Cell<u32>,
    /// The last call has not sent or received anything yet.
    idle: Cell<bool>,
    /// A call was never started, because its arguments were wrong: the other ranks may still be in it.
    missed: Cell<bool>,
    /// The number of the next call, if this rank has already arrived for it at the board, and the round.
    begun: Cell<Option<(u32, Round)>>,
    /// A call that the fast path began, and how many of its broadcast queue entries were taken there.
    read_entries: Cell<(u32, usize)>,
}

impl Comm {
    /// An intracommunicator without a topology, with no calls yet.
    #[must_use]
    pub fn new(context: ContextId, group: Group, rank: u32) -> Self {
        Self {
            context,
            group,
            rank,
            remote: None,
            topology: None,
            calls: Rc::default(),
            tag: None,
            seat: None,
            shares_context: false,
            nodes: Rc::default(),
            row: None,
        }
    }

    /// Marks it as one of several communicators of different processes that are made at once, with one context.
    #[must_use]
    pub fn sharing_context(self) -> Self {
        Self {
            shares_context: true,
            ..self
        }
    }

    /// Whether other communicators may have its context.
    pub(crate) fn shares_context(&self) -> bool {
        self.shares_context || contexts::is_agreed(self.context)
    }

    /// The same as an intercommunicator, if there is a remote group.
    #[must_use]
    pub fn with_remote(self, remote: Option<Group>) -> Self {
        Self { remote, ..self }
    }

    /// The same with a topology.
    #[must_use]
    pub fn with_topology(self, topology: Topology) -> Self {
        let topology = Some(Arc::new(topology));
        Self { topology, ..self }
    }

    /// Another communicator of the same processes and topology, as a duplicate is.
    #[must_use]
    pub fn with_context(&self, context: ContextId) -> Self {
        Self {
            context,
            calls: Rc::default(),
            tag: None,
            seat: None,
            shares_context: false,
            nodes: Rc::default(),
            row: None,
            ..self.clone()
        }
    }

    /// A copy for one collective call, and for all steps of that call.
    ///
    /// The call is counted here, whatever its outcome: if the arguments are wrong on one rank alone, the tags of later
    /// calls must still agree.
    #[must_use]
    pub fn for_one_call(&self) -> Self {
        let tag = Some(count(&self.calls.collectives));
        if self.calls.idle.replace(true) {
            self.calls.missed.set(true);
        }
        Self {
            tag,
            ..self.clone()
        }
    }

    /// Its row for debuggers.
    #[must_use]
    pub fn row(&self) -> Option<&'static CommRow> {
        self.row
    }

    /// As [`for_one_call`](Self::for_one_call), for all starts of a persistent collective.
    #[must_use]
    pub fn for_persistent_calls(&self) -> Self {
        let tag = Some(count(&self.calls.persistent) | PERSISTENT);
        Self {
            tag,
            ..self.clone()
        }
    }

    /// The tag of the next collective on it. All ranks call collectives in the same order (MPI 5.0 section 6.14), so
    /// it is the same at all ranks; several calls may be in progress at once.
    pub(crate) fn next_tag(&self) -> i32 {
        self.calls.idle.set(false);
        self.tag.unwrap_or_else(|| count(&self.calls.collectives))
    }

    /// Whether this rank missed a call that the others may still be in.
    pub(crate) fn has_missed(&self) -> bool {
        self.calls.missed.get()
    }

    /// Records that this rank has synchronized with the others in a call.
    pub(crate) fn has_met(&self) {
        self.calls.missed.set(false);
    }

    /// Whether its ranks have a board; all or none of them have.
    #[must_use]
    pub fn has_board(&self) -> bool {
        self.seat.is_some()
    }

    /// The number of the next call, unless this rank missed the one before.
    #[inline]
    pub(crate) fn upcoming_call(&self) -> Option<u32> {
        let calls = &self.calls;
        let number = calls.collectives.get() & (PERSISTENT - 1).cast_unsigned();
        (!calls.idle.get() && !calls.missed.get()).then_some(number)
    }

    /// Counts the upcoming call, of a collective (a number of `queue_layout::COLLECTIVES`), as made and ended.
    #[inline]
    pub(crate) fn count_call(&self, collective: usize) {
        count(&self.calls.collectives);
        if let Some(row) = self.row {
            let begun = row.begin(collective);
            row.end(collective, begun);
        }
    }

    /// Records that this rank has arrived in `round` for the call of this number, which the general path continues.
    pub(crate) fn begin_on_fast_path(&self, number: u32, round: Round) {
        self.calls.begun.set(Some((number, round)));
    }

    /// Records that this rank has taken `entries` entries for the call of this number, which the general path continues.
    pub(crate) fn record_read_entries(&self, number: u32, entries: usize) {
        self.calls.read_entries.set((number, entries));
    }

    /// How many entries were [taken](Self::record_read_entries) for the call of this number; once.
    pub(crate) fn take_read_entries(&self, number: u32) -> usize {
        let (read_entries, entries) = self.calls.read_entries.take();
        if read_entries == number { entries } else { 0 }
    }

    /// The round that was [begun](Self::begin_on_fast_path) for the call of this number; once.
    pub(crate) fn begun_on_fast_path(&self, number: u32) -> Option<Round> {
        let (begun, round) = self.calls.begun.take()?;
        (begun == number).then_some(round)
    }

    /// Number of processes; of an intercommunicator those of the local group.
    #[must_use]
    pub fn size(&self) -> u32 {
        self.group.size()
    }

    /// Whether this is an intercommunicator.
    #[must_use]
    pub fn is_inter(&self) -> bool {
        self.remote.is_some()
    }

    /// The group that ranks in point-to-point calls refer to: the remote group of an intercommunicator.
    #[inline]
    #[must_use]
    pub fn partners(&self) -> &Group {
        self.remote.as_ref().unwrap_or(&self.group)
    }

    /// The local group as an intracommunicator. It shares the contexts; the two groups have no process in common, so
    /// its messages cannot be confused with those between the groups.
    #[must_use]
    pub fn local(&self) -> Self {
        Self {
            remote: None,
            topology: None,
            // Not computed for the local part of an intercommunicator: it would be repeated at each call.
            nodes: match self.is_inter() {
                true => Rc::new(OnceCell::from(None)),
                false => Rc::clone(&self.nodes),
            },
            ..self.clone()
        }
    }

    /// Context of its collective messages.
    #[must_use]
    pub fn collective_context(&self) -> ContextId {
        ContextId(self.context.0 + queue_layout::OF_COLLECTIVES)
    }

    /// Context of the messages by which some of its processes agree on another communicator. The tags are the
    /// application's.
    #[must_use]
    pub fn making_context(&self) -> ContextId {
        ContextId(self.context.0 + 2)
    }

    /// The neighbours of this process in the topology, if there is one.
    #[must_use]
    pub fn neighbours(&self) -> Option<NeighbourLists> {
        let topology = self.topology.as_ref()?;
        Some(topology.neighbours(self.rank))
    }

    /// Compares two communicators (MPI 5.0 section 7.4.1).
    #[must_use]
    pub fn compare(&self, other: &Self) -> GroupComparison {
        let remote = match (&self.remote, &other.remote) {
            (None, None) => GroupComparison::Identical,
            (Some(mine), Some(other)) => mine.compare(other),
            _ => return GroupComparison::Unequal,
        };
        let local = self.group.compare(&other.group);
        match (self.context == other.context, local, remote) {
            (true, _, _) => GroupComparison::Identical,
            (false, GroupComparison::Identical, GroupComparison::Identical) => {
                GroupComparison::Congruent
            }
            (false, GroupComparison::Unequal, _) | (false, _, GroupComparison::Unequal) => {
                GroupComparison::Unequal
            }
            _ => GroupComparison::Similar,
        }
    }
}

/// A collective call in progress.
#[derive(Debug)]
pub struct CallGuard {
    begun: Option<(&'static CommRow, u32)>,
    collective: usize,
    /// Its start, if a tool measures the duration.
    at: Option<Instant>,
}

impl CallGuard {
    /// Records, until it is dropped, that a call of a collective (a number of `queue_layout::COLLECTIVES`) is in
    /// progress on the communicator of a row.
    #[must_use]
    pub fn begin(row: Option<&'static CommRow>, collective: usize) -> Self {
        let begun = row.map(|row| (row, row.begin(collective)));
        let at = pvars::are_calls_timed().then(Instant::now);
        Self {
            begun,
            collective,
            at,
        }
    }
}

impl Drop for CallGuard {
    fn drop(&mut self) {
        if let Some((row, begun)) = self.begun {
            row.end(self.collective, begun);
            if let Some(at) = self.at {
                let ns = u64::try_from(at.elapsed().as_nanos()).unwrap_or(u64::MAX);
                row.took(self.collective, begun, ns);
            }
        }
    }
}

fn count(calls: &Cell<u32>) -> i32 {
    let number = calls.get();
    calls.set(number.wrapping_add(1));
    number.cast_signed() & (PERSISTENT - 1)
}

/// The point-to-point context of the communicator that has this context.
#[must_use]
pub fn of_messages(context: ContextId) -> ContextId {
    ContextId(context.0 / CONTEXT_STEP * CONTEXT_STEP)
}

/// Whether it is a context of internal messages: of collectives, or of making communicators.
#[must_use]
pub fn is_internal(context: ContextId) -> bool {
    !context.0.is_multiple_of(CONTEXT_STEP)
}

/// Tags of persistent collectives have this bit.
const PERSISTENT: i32 = 1 << 30;

/// Context of `MPI_COMM_WORLD`.
pub const WORLD_CONTEXT: ContextId = ContextId(4);
/// Context of `MPI_COMM_SELF`.
pub const SELF_CONTEXT: ContextId = ContextId(8);
/// Difference between the contexts of consecutive communicators.
pub(crate) const CONTEXT_STEP: u32 = 4;

#[cfg(test)]
mod tests {
    use super::*;

    fn peers(ranks: &[u32]) -> Vec<Peer> {
        ranks.iter().copied().map(Peer).collect()
    }

    #[test]
    fn a_table_in_world_order_is_the_identity() {
        let group = Group::of(peers(&[0, 1, 2]));
        assert!(group.is_identity());
        assert_eq!(group.compare(&Group::world(3)), GroupComparison::Identical);
        assert_eq!(group.peer(3), None);
    }

    #[test]
    fn groups_compare_by_members_and_order() {
        let (a, b, c) = (
            Group::of(peers(&[2, 0])),
            Group::of(peers(&[0, 2])),
            Group::of(peers(&[0, 3])),
        );
        assert_eq!(a.compare(&b), GroupComparison::Similar);
        assert_eq!(a.compare(&c), GroupComparison::Unequal);
        assert_eq!(
            (a.peer(0), a.rank_of(Peer(0)), a.rank_of(Peer(1))),
            (Some(Peer(2)), Some(1), None)
        );
        let comm = |context, group: &Group| Comm::new(ContextId(context), group.clone(), 0);
        assert_eq!(
            comm(8, &a).compare(&comm(10, &a)),
            GroupComparison::Congruent
        );
        assert_eq!(
            comm(8, &a).compare(&comm(8, &a)),
            GroupComparison::Identical
        );
        assert_eq!(comm(8, &a).compare(&comm(10, &b)), GroupComparison::Similar);
    }

    #[test]
    fn the_local_group_of_an_intracommunicator_keeps_its_board() {
        let comm = Comm::new(ContextId(8), Group::world(2), 0);
        assert!(Rc::ptr_eq(&comm.nodes, &comm.local().nodes));
        let inter = comm.with_remote(Some(Group::of(peers(&[2, 3]))));
        assert!(matches!(inter.local().nodes.get(), Some(None)));
    }

    #[test]
    fn intercommunicators_compare_by_both_groups() {
        let inter = |context, local: &[u32], remote: &[u32]| Comm {
            remote: Some(Group::of(peers(remote))),
            ..Comm::new(ContextId(context), Group::of(peers(local)), 0)
        };
        let first = inter(8, &[0, 1], &[2, 3]);
        assert_eq!(
            first.compare(&inter(8, &[0, 1], &[2, 3])),
            GroupComparison::Identical
        );
        assert_eq!(
            first.compare(&inter(12, &[0, 1], &[2, 3])),
            GroupComparison::Congruent
        );
        assert_eq!(
            first.compare(&inter(12, &[0, 1], &[3, 2])),
            GroupComparison::Similar
        );
        assert_eq!(
            first.compare(&inter(12, &[0, 1], &[2, 4])),
            GroupComparison::Unequal
        );
        assert_eq!(first.compare(&first.local()), GroupComparison::Unequal);
        assert_eq!(first.partners().peer(0), Some(Peer(2)));
    }
}
