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

/// The processes of a group, by rank.
#[derive(Debug)]
enum Members {
    /// World ranks `0 .. size`, in order.
    Identity { size: u32 },
    /// Any other processes. `ranks` maps each process to its rank.
    Table {
        peers: Box<[Peer]>,
        ranks: FxHashMap<Peer, u32>,
    },
}

/// The result of comparing two groups or communicators (MPI 5.0 sections 7.3.1 and 7.4.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GroupComparison {
    /// The same communicator, or groups of the same processes in the same order.
    Identical,
    /// Different communicators of the same processes in the same order.
    Congruent,
    /// The same processes in another order.
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

    /// The process of each rank; `None` if ranks are world ranks. The table does not move while the group exists.
    #[must_use]
    pub fn table(&self) -> Option<&[Peer]> {
        match &*self.0 {
            Members::Identity { .. } => None,
            Members::Table { peers, .. } => Some(peers),
        }
    }

    /// Address in memory of the table of processes by rank, for a debugger; 0 if ranks are world ranks.
    #[must_use]
    pub fn address(&self) -> u64 {
        self.table().map_or(0, |peers| peers.as_ptr().addr() as u64)
    }

    /// All members in order.
    pub fn peers(&self) -> impl Iterator<Item = Peer> + '_ {
        (0..self.size()).filter_map(|rank| self.peer(rank))
    }

    /// Compares two groups. The result is never [`GroupComparison::Congruent`].
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
    /// Context id of its point-to-point messages. Its collectives use the next context id. The context id after that is
    /// for messages by which other communicators are made from this one.
    pub context: ContextId,
    /// Processes of the communicator; in an intercommunicator, of the local group.
    pub group: Group,
    /// Rank of this process in the communicator.
    pub rank: u32,
    /// The remote group of an intercommunicator; `None` in an intracommunicator.
    pub remote: Option<Group>,
    /// Topology of the communicator (MPI 5.0 chapter 8), if it has one.
    pub topology: Option<Arc<Topology>>,
    calls: Rc<CommCalls>,
    /// The tag of the collective call for which this copy was made; `None`: it was not made for one call.
    tag: Option<i32>,
    /// This process's seat at the [board](transport::seat) of its ranks, which small collectives use; `None`: the ranks
    /// have no board.
    pub(crate) seat: Option<Rc<Seat>>,
    /// Whether other communicators, of other processes, may have the same context id. Then it cannot identify a board.
    shares_context: bool,
    /// The ranks grouped by node, computed on first use. Inner `None`: they are not grouped, because that is of no use
    /// or the node of a rank is unknown.
    pub(crate) nodes: Rc<OnceCell<Option<Rc<CommNodes>>>>,
    /// The row of this communicator in the table for debuggers.
    pub(crate) row: Option<&'static CommRow>,
}

/// Counters of the collective calls of a communicator.
#[derive(Debug, Default)]
struct CommCalls {
    /// Number of collective calls.
    collectives: Cell<u32>,
    /// Number of persistent collectives initialized.
    persistent: Cell<u32>,
    /// Whether the last call has not started yet: it has no tag, and has sent and received nothing.
    idle: Cell<bool>,
    /// Whether a call of this rank has ended before it started, because its arguments were wrong. The other ranks may
    /// still be in that call.
    missed: Cell<bool>,
    /// If the fast path has already arrived at the board for a call: the number of that call, and the round.
    begun: Cell<Option<(u32, Round)>>,
    /// Number of a call that the fast path began, and how many broadcast queue entries it has read for that call.
    read_entries: Cell<(u32, usize)>,
}

impl Comm {
    /// An intracommunicator without a topology, in which no collective was called yet.
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

    /// Marks this communicator as one of several communicators with the same context id, which disjoint groups of
    /// processes make at the same time.
    #[must_use]
    pub fn sharing_context(self) -> Self {
        Self {
            shares_context: true,
            ..self
        }
    }

    /// Whether other communicators may have the same context id.
    pub(crate) fn shares_context(&self) -> bool {
        self.shares_context || contexts::is_agreed(self.context)
    }

    /// This communicator with the given remote group. `Some` makes it an intercommunicator.
    #[must_use]
    pub fn with_remote(self, remote: Option<Group>) -> Self {
        Self { remote, ..self }
    }

    /// This communicator with a topology.
    #[must_use]
    pub fn with_topology(self, topology: Topology) -> Self {
        let topology = Some(Arc::new(topology));
        Self { topology, ..self }
    }

    /// A duplicate with the same processes and topology, but with another context id.
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
    /// The call is counted here, before its arguments are checked: if they are wrong on only one rank, the tags of
    /// later calls must still agree.
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

    /// The row of this communicator in the table for debuggers.
    #[must_use]
    pub fn row(&self) -> Option<&'static CommRow> {
        self.row
    }

    /// A copy for all starts of one persistent collective. They have one tag, which no other call has.
    #[must_use]
    pub fn for_persistent_calls(&self) -> Self {
        let tag = Some(count(&self.calls.persistent) | PERSISTENT);
        Self {
            tag,
            ..self.clone()
        }
    }

    /// Marks the call as started, and returns its tag. If this is not a copy for one call, counts the call first. All
    /// ranks call collectives in the same order (MPI 5.0 section 6.14), so the tag is the same at all ranks; several
    /// calls may be in progress at the same time.
    pub(crate) fn next_tag(&self) -> i32 {
        self.calls.idle.set(false);
        self.tag.unwrap_or_else(|| count(&self.calls.collectives))
    }

    /// Whether this rank has missed a call: the call ended here before it started, and the other ranks may still be in
    /// it.
    pub(crate) fn has_missed(&self) -> bool {
        self.calls.missed.get()
    }

    /// Records that this rank has synchronized with all other ranks since it missed a call.
    pub(crate) fn clear_missed(&self) {
        self.calls.missed.set(false);
    }

    /// Whether the ranks have a board. Either all ranks have a seat at it, or none has.
    #[must_use]
    pub fn has_board(&self) -> bool {
        self.seat.is_some()
    }

    /// The number of the next call. `None`: this rank has missed a call, or its last call has not started.
    #[inline]
    pub(crate) fn upcoming_call(&self) -> Option<u32> {
        let calls = &self.calls;
        let number = calls.collectives.get() & (PERSISTENT - 1).cast_unsigned();
        (!calls.idle.get() && !calls.missed.get()).then_some(number)
    }

    /// Counts the upcoming call as made and ended. `collective`: number of the collective in
    /// `queue_layout::COLLECTIVES`.
    #[inline]
    pub(crate) fn count_call(&self, collective: usize) {
        count(&self.calls.collectives);
        if let Some(row) = self.row {
            let begun = row.begin(collective);
            row.end(collective, begun);
        }
    }

    /// Records that this rank has arrived in `round` for call `number`. The general path continues the call.
    pub(crate) fn begin_on_fast_path(&self, number: u32, round: Round) {
        self.calls.begun.set(Some((number, round)));
    }

    /// Records that this rank has read `entries` entries for call `number`. The general path continues the call.
    pub(crate) fn record_read_entries(&self, number: u32, entries: usize) {
        self.calls.read_entries.set((number, entries));
    }

    /// Returns and clears the number of entries that the fast path has [read](Self::record_read_entries) for call
    /// `number`.
    pub(crate) fn take_read_entries(&self, number: u32) -> usize {
        let (read_entries, entries) = self.calls.read_entries.take();
        if read_entries == number { entries } else { 0 }
    }

    /// Returns and clears the round in which the fast path has [arrived](Self::begin_on_fast_path) for call `number`;
    /// `None`: it has arrived in no round for that call.
    pub(crate) fn begun_on_fast_path(&self, number: u32) -> Option<Round> {
        let (begun, round) = self.calls.begun.take()?;
        (begun == number).then_some(round)
    }

    /// Number of processes; in an intercommunicator, of the local group.
    #[must_use]
    pub fn size(&self) -> u32 {
        self.group.size()
    }

    /// Whether this is an intercommunicator.
    #[must_use]
    pub fn is_inter(&self) -> bool {
        self.remote.is_some()
    }

    /// The group to which ranks in point-to-point calls refer; in an intercommunicator, the remote group.
    #[inline]
    #[must_use]
    pub fn partners(&self) -> &Group {
        self.remote.as_ref().unwrap_or(&self.group)
    }

    /// An intracommunicator of the local group, with the context ids of this communicator. The local and the remote
    /// group have no process in common, so messages inside a group cannot be confused with messages between the groups.
    #[must_use]
    pub fn local(&self) -> Self {
        Self {
            remote: None,
            topology: None,
            // The local group of an intercommunicator is not grouped by node: each copy would compute the groups anew.
            nodes: match self.is_inter() {
                true => Rc::new(OnceCell::from(None)),
                false => Rc::clone(&self.nodes),
            },
            ..self.clone()
        }
    }

    /// Context id of collective messages on this communicator.
    #[must_use]
    pub fn collective_context(&self) -> ContextId {
        ContextId(self.context.0 + queue_layout::OF_COLLECTIVES)
    }

    /// Context id of the messages by which some of the processes agree on another communicator. The application chooses
    /// the tags of these messages.
    #[must_use]
    pub fn making_context(&self) -> ContextId {
        ContextId(self.context.0 + 2)
    }

    /// The neighbours of this process in the topology; `None`: the communicator has no topology.
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

/// Records for tools and debuggers that a collective call is in progress, until it is dropped.
#[derive(Debug)]
pub struct CallGuard {
    begun: Option<(&'static CommRow, u32)>,
    collective: usize,
    /// When the call began, if a tool measures how long collectives take.
    at: Option<Instant>,
}

impl CallGuard {
    /// Records that a collective call is in progress on the communicator of `row`, until the guard is dropped.
    /// `collective`: the number of the collective in `queue_layout::COLLECTIVES`.
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

/// The point-to-point context id of the communicator that `context` belongs to.
#[must_use]
pub fn of_messages(context: ContextId) -> ContextId {
    ContextId(context.0 / CONTEXT_STEP * CONTEXT_STEP)
}

/// Whether `context` is for internal messages: those of collectives, or those that make communicators.
#[must_use]
pub fn is_internal(context: ContextId) -> bool {
    !context.0.is_multiple_of(CONTEXT_STEP)
}

/// Tags of persistent collectives have this bit.
const PERSISTENT: i32 = 1 << 30;

/// Context id of `MPI_COMM_WORLD`.
pub const WORLD_CONTEXT: ContextId = ContextId(4);
/// Context id of `MPI_COMM_SELF`.
pub const SELF_CONTEXT: ContextId = ContextId(8);
/// Difference between the context ids of consecutive communicators.
pub(crate) const CONTEXT_STEP: u32 = 4;

#[cfg(test)]
mod tests {
    use super::*;

    fn peers(ranks: &[u32]) -> Vec<Peer> {
        ranks.iter().copied().map(Peer).collect()
    }

    #[test]
    fn a_group_in_world_order_is_the_identity() {
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
