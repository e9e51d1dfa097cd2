// SPDX-License-Identifier: MIT OR Apache-2.0
//! The express lane's cache of communicators, and whether the lane is open. A communicator is added at its first use, if it and the
//! process meet the conditions of the lane; it is removed when it is freed.
//!
//! # Safety
//! As `express`: the tables here are accessed by one thread at a time, which below `MPI_THREAD_MULTIPLE` the program ensures, and at
//! that level the lock. The exception is the last used communicator: at `MPI_THREAD_MULTIPLE` any thread reads it without the lock,
//! and none writes it. Obligation **L1**: the ranks of an [`ExpressLane`] are in the group of its communicator, which exists until
//! the communicator is freed; the lane is [removed](forget) before that, and no lane is held across calls.
#![allow(unsafe_code, reason = "tables that one thread at a time changes")]
#![allow(
    clippy::disallowed_types,
    reason = "a table that only the thread in MPI writes"
)]

use core::cell::UnsafeCell;
use core::ffi::c_int;
use core::hint::cold_path;
use core::ptr;

use runtime::var::events;
use runtime::{Comm, ContextId, Peer};

use crate::handle::MPI_Comm;
use crate::lock;
use crate::process::{self, ProcessPhase};
use crate::qmpi;
use crate::state::{communicator, universe};

/// The express lane's data of a communicator.
#[derive(Clone, Copy)]
pub(crate) struct ExpressLane {
    pub(crate) handle: MPI_Comm,
    /// Number of ranks that equal their peer numbers: all, or none.
    plain: u32,
    /// Number of the other ranks.
    listed: u32,
    /// The peers of those.
    peers: *const Peer,
    pub(crate) context: ContextId,
}

impl ExpressLane {
    /// A closed lane: no handle is 0.
    const CLOSED: Self = Self {
        handle: MPI_Comm(0),
        plain: 0,
        listed: 0,
        peers: ptr::null(),
        context: ContextId(0),
    };

    fn of(handle: MPI_Comm, comm: &Comm) -> Self {
        let group = comm.partners();
        let known = Self {
            handle,
            context: comm.context,
            ..Self::CLOSED
        };
        match group.table() {
            None => Self {
                plain: group.size(),
                ..known
            },
            Some(peers) => Self {
                listed: group.size(),
                peers: peers.as_ptr(),
                ..known
            },
        }
    }

    /// The peer with a rank of the communicator, if ranks equal peer numbers; `None` otherwise, or if there is no such rank.
    #[inline(always)]
    pub(crate) fn plain_peer(&self, rank: c_int) -> Option<Peer> {
        let rank = rank.cast_unsigned();
        (rank < self.plain).then_some(Peer(rank))
    }

    /// The peer with a rank of the communicator; `None` if there is no such rank.
    #[inline(always)]
    pub(crate) fn peer(&self, rank: c_int) -> Option<Peer> {
        if let Some(peer) = self.plain_peer(rank) {
            return Some(peer);
        }
        cold_path();
        let rank = rank.cast_unsigned();
        if rank >= self.listed {
            return None;
        }
        // SAFETY: L1; there are `listed`.
        let place = unsafe { self.peers.add(rank as usize) };
        // SAFETY: as above.
        Some(unsafe { place.read() })
    }
}

struct Lanes {
    /// The last used communicator, below `MPI_THREAD_MULTIPLE`.
    current: UnsafeCell<ExpressLane>,
    /// A direct-mapped cache, indexed by the low bits of handles.
    known: [UnsafeCell<ExpressLane>; LANES_COUNT],
    /// The lane was used for some communicator, and MPI is not finalized; implies that no tools are stacked.
    serves: UnsafeCell<bool>,
}

// SAFETY: one thread at a time (module head).
unsafe impl Sync for Lanes {}

/// The lane of the last used communicator, if it is this one.
#[inline(always)]
pub(crate) fn lane(handle: MPI_Comm) -> Option<&'static ExpressLane> {
    // SAFETY: not written while the reference is in use (module head).
    let lane = unsafe { &*LANES.current.get() };
    (lane.handle == handle).then_some(lane)
}

/// Whether the lane is open, below `MPI_THREAD_MULTIPLE`.
#[inline(always)]
pub(crate) fn is_open() -> bool {
    // SAFETY: not written concurrently (module head).
    unsafe { *LANES.current.get() }.handle != ExpressLane::CLOSED.handle
}

/// Whether the lane can be used for calls without a communicator, at `MPI_THREAD_MULTIPLE`. Does not consider [pauses](pause).
#[inline(always)]
pub(crate) fn serves() -> bool {
    // SAFETY: this thread alone is in MPI (module head).
    unsafe { *LANES.serves.get() }
}

/// Switches the lane to another communicator. `false` if it has that one already, if that one does not meet the conditions, or while
/// the lane is [paused](pause) or not available.
pub(crate) fn change_lane(handle: MPI_Comm) -> bool {
    let may_change = !lock::is_multiple() && handle != ExpressLane::CLOSED.handle;
    if !may_change || lane(handle).is_some() || process::phase() != ProcessPhase::Running {
        return false;
    }
    // SAFETY: MPI is initialized, and this thread alone is in it, outside of any visit.
    let Some(known) = (unsafe { known(handle) }) else {
        return false;
    };
    // The lane neither reports events to tools nor advances collectives.
    // SAFETY: as above.
    if events::wanted().any() || !unsafe { universe() }.tasks.is_empty() {
        return false;
    }
    // SAFETY: this thread alone is in MPI (module head).
    unsafe { *LANES.current.get() = *known };
    true
}

/// Opens the lane for calls without a communicator, if it is closed and the process meets the conditions: a program that uses only
/// persistent requests, for example, makes no call of the lane with a communicator. For bodies, outside of visits.
pub(crate) fn open() {
    if lock::is_multiple() {
        if !serves() && process::phase() == ProcessPhase::Running {
            // SAFETY: MPI is initialized, and this thread alone is in it: in a body it has the lock.
            let _ = unsafe { known(MPI_Comm::WORLD) };
        }
    } else if !is_open() {
        change_lane(MPI_Comm::WORLD);
    }
}

/// The lane of a communicator, looked up if it is not in the cache. `None` if the communicator does not meet the conditions.
///
/// # Safety
/// MPI is initialized, this thread alone is in it, and no visit is in progress.
#[inline(always)]
pub(crate) unsafe fn known(handle: MPI_Comm) -> Option<&'static ExpressLane> {
    let place = LANES.known[handle.0 % LANES_COUNT].get();
    // SAFETY: this thread alone is here.
    if unsafe { &*place }.handle != handle {
        cold_path();
        // SAFETY: the caller's obligation.
        let lane = unsafe { look_up(handle) }?;
        // SAFETY: as above.
        unsafe { *place = lane };
    }
    // SAFETY: as above; no reference outlives the call.
    Some(unsafe { &*place })
}

/// # Safety
/// As [`known`].
#[cold]
#[inline(never)]
unsafe fn look_up(handle: MPI_Comm) -> Option<ExpressLane> {
    // The lane bypasses tools, and sends eight bytes eagerly, which the user may have disabled.
    // SAFETY: the caller's obligation.
    if qmpi::is_stacked() || !unsafe { universe() }.messages.sends_at_once(8) {
        return None;
    }
    // SAFETY: the caller's obligation.
    let comm = unsafe { communicator(handle) }?;
    // SAFETY: this thread alone is in MPI.
    unsafe { *LANES.serves.get() = true };
    Some(ExpressLane::of(handle, comm))
}

/// Removes a communicator that is being freed.
pub(crate) fn forget(handle: MPI_Comm) {
    let known = &LANES.known[handle.0 % LANES_COUNT];
    for cell in [known].into_iter().chain(current_to_change()) {
        // SAFETY: this thread alone is in MPI (module head).
        let lane = unsafe { &mut *cell.get() };
        if lane.handle == handle {
            *lane = ExpressLane::CLOSED;
        }
    }
}

/// The cell of the last used communicator; `None` at `MPI_THREAD_MULTIPLE`, where it is always closed and may be read concurrently.
fn current_to_change() -> Option<&'static UnsafeCell<ExpressLane>> {
    (!lock::is_multiple()).then_some(&LANES.current)
}

/// Closes the lane for all communicators: `MPI_Finalize`.
pub(crate) fn close() {
    for cell in LANES.known.iter().chain(current_to_change()) {
        // SAFETY: this thread alone is in MPI (module head).
        unsafe { *cell.get() = ExpressLane::CLOSED };
    }
    // SAFETY: as above.
    unsafe { *LANES.serves.get() = false };
}

/// Closes the lane until no collective runs in the background and no tool receives events, since the lane handles neither.
pub(crate) fn pause() {
    // At `MPI_THREAD_MULTIPLE` it is closed, and may be read concurrently.
    if !is_open() {
        return;
    }
    // SAFETY: this thread alone is in MPI (module head).
    unsafe { *LANES.current.get() = ExpressLane::CLOSED };
}

/// Size of the cache: the program's first 256 communicators, whose handles end in 0 to 255, do not evict `MPI_COMM_WORLD`.
const LANES_COUNT: usize = 512;
static LANES: Lanes = Lanes {
    current: UnsafeCell::new(ExpressLane::CLOSED),
    known: [const { UnsafeCell::new(ExpressLane::CLOSED) }; LANES_COUNT],
    serves: UnsafeCell::new(false),
};

#[cfg(test)]
mod tests {
    use runtime::Group;

    use super::*;

    fn lane_of(group: Group) -> (ExpressLane, Comm) {
        let comm = Comm::new(ContextId(8), group, 0);
        (ExpressLane::of(MPI_Comm::WORLD, &comm), comm)
    }

    #[test]
    fn a_rank_leads_to_its_process_and_no_other_number_does() {
        let (plain, _comm) = lane_of(Group::world(3));
        let peers: Vec<_> = (-2..5).map(|rank| plain.peer(rank)).collect();
        let all = [None, None, Some(0), Some(1), Some(2), None, None];
        assert_eq!(peers, all.map(|peer| peer.map(Peer)));

        let (listed, _comm) = lane_of(Group::of(vec![Peer(7), Peer(0), Peer(4)]));
        let peers: Vec<_> = (-2..5).map(|rank| listed.peer(rank)).collect();
        let all = [None, None, Some(7), Some(0), Some(4), None, None];
        assert_eq!(peers, all.map(|peer| peer.map(Peer)));
        assert_eq!(ExpressLane::CLOSED.peer(0), None);
    }

    #[test]
    fn ranks_of_an_intercommunicator_are_those_of_the_remote_group() {
        let remote = Some(Group::of(vec![Peer(2), Peer(3)]));
        let comm = Comm::new(ContextId(8), Group::world(2), 0).with_remote(remote);
        let lane = ExpressLane::of(MPI_Comm::WORLD, &comm);
        assert_eq!([lane.peer(0), lane.peer(1)], [Some(Peer(2)), Some(Peer(3))]);
        assert_eq!(lane.peer(2), None);
    }
}
