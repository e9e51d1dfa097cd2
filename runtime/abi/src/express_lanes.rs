// SPDX-License-Identifier: MIT OR Apache-2.0
//! The express lane's cache of communicators, and whether the lane is open. A communicator is added at its first use,
//! if the communicator and the process meet the conditions of the lane, and removed when it is freed.
//!
//! # Safety
//! As in `express`, one thread at a time accesses the tables here. Below `MPI_THREAD_MULTIPLE` the program ensures
//! this; at that level the lock does. The exception is `LANES.current`, the last used communicator: at
//! `MPI_THREAD_MULTIPLE` any thread reads it without the lock, and no thread writes it. Obligation **L1**: `peers` of
//! an [`ExpressLane`] points into the group of its communicator, which exists until the communicator is freed. The lane
//! is [removed](forget) before that, and no lane is held across calls.
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
    /// Number of ranks, if all ranks equal their peer numbers; otherwise 0.
    plain: u32,
    /// Number of ranks, if `peers` lists them; otherwise 0.
    listed: u32,
    /// The peer of each rank; NULL if no ranks are listed.
    peers: *const Peer,
    pub(crate) context: ContextId,
}

impl ExpressLane {
    /// The lane while it is closed. Its handle is 0, which is not the handle of a communicator.
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

    /// The peer with this rank, if the ranks of the communicator equal peer numbers. `None` if they do not, or if there
    /// is no such rank.
    #[inline(always)]
    pub(crate) fn plain_peer(&self, rank: c_int) -> Option<Peer> {
        let rank = rank.cast_unsigned();
        (rank < self.plain).then_some(Peer(rank))
    }

    /// The peer with this rank of the communicator; `None` if there is no such rank.
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
        // SAFETY: L1; `peers` has `listed` entries, and `rank` is below.
        let place = unsafe { self.peers.add(rank as usize) };
        // SAFETY: as above.
        Some(unsafe { place.read() })
    }
}

/// The tables of the express lane, of the whole process.
struct Lanes {
    /// The last used communicator. At `MPI_THREAD_MULTIPLE` it is always [`ExpressLane::CLOSED`].
    current: UnsafeCell<ExpressLane>,
    /// A direct-mapped cache, indexed by the low bits of handles.
    known: [UnsafeCell<ExpressLane>; LANES_COUNT],
    /// Whether a communicator was added to the cache, and MPI is not finalized. If `true`, there are no QMPI tools.
    serves: UnsafeCell<bool>,
}

// SAFETY: one thread at a time accesses the cells (module head).
unsafe impl Sync for Lanes {}

/// The lane of the communicator `handle`, if it is the last used one.
#[inline(always)]
pub(crate) fn lane(handle: MPI_Comm) -> Option<&'static ExpressLane> {
    // SAFETY: not written while the reference is in use (module head).
    let lane = unsafe { &*LANES.current.get() };
    (lane.handle == handle).then_some(lane)
}

/// Whether the lane is open. Always `false` at `MPI_THREAD_MULTIPLE`.
#[inline(always)]
pub(crate) fn is_open() -> bool {
    // SAFETY: not written concurrently (module head).
    unsafe { *LANES.current.get() }.handle != ExpressLane::CLOSED.handle
}

/// At `MPI_THREAD_MULTIPLE`: whether the lane can be used for calls without a communicator. The reasons for a
/// [pause] are not considered.
#[inline(always)]
pub(crate) fn serves() -> bool {
    // SAFETY: no other thread is in MPI (module head).
    unsafe { *LANES.serves.get() }
}

/// Switches the lane to the communicator `handle`; returns whether it did. It does not if the lane has this
/// communicator already, if the communicator does not meet the conditions, if there is a reason for a [pause],
/// or at `MPI_THREAD_MULTIPLE`.
pub(crate) fn change_lane(handle: MPI_Comm) -> bool {
    let may_change = !lock::is_multiple() && handle != ExpressLane::CLOSED.handle;
    if !may_change || lane(handle).is_some() || process::phase() != ProcessPhase::Running {
        return false;
    }
    // SAFETY: MPI is initialized, no other thread is in it, and no visit is in progress.
    let Some(known) = (unsafe { known(handle) }) else {
        return false;
    };
    // While tools receive events or collectives run in the background, the lane stays closed: it handles neither.
    // SAFETY: as above.
    if events::wanted().any() || !unsafe { universe() }.tasks.is_empty() {
        return false;
    }
    // SAFETY: no other thread is in MPI (module head).
    unsafe { *LANES.current.get() = *known };
    true
}

/// Opens the lane for calls without a communicator, if it is closed and the process meets the conditions. Without this
/// call, the lane would stay closed in a program that uses only persistent requests. Only bodies may call this, outside
/// of visits.
pub(crate) fn open() {
    if lock::is_multiple() {
        if !serves() && process::phase() == ProcessPhase::Running {
            // SAFETY: MPI is initialized, and this thread has the lock, since it is in a body.
            let _ = unsafe { known(MPI_Comm::WORLD) };
        }
    } else if !is_open() {
        change_lane(MPI_Comm::WORLD);
    }
}

/// The lane of a communicator: from the cache, or looked up and added to the cache. `None` if the communicator does not
/// meet the conditions.
///
/// # Safety
/// MPI is initialized, no other thread is in it, and no visit is in progress.
#[inline(always)]
pub(crate) unsafe fn known(handle: MPI_Comm) -> Option<&'static ExpressLane> {
    let place = LANES.known[handle.0 % LANES_COUNT].get();
    // SAFETY: no other thread is in MPI.
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
    // The lane bypasses tools, and sends eight bytes eagerly. So there must be no tools, and the user must not have
    // disabled eager sends of eight bytes. SAFETY: the caller's obligation.
    if qmpi::is_stacked() || !unsafe { universe() }.messages.sends_at_once(8) {
        return None;
    }
    // SAFETY: the caller's obligation.
    let comm = unsafe { communicator(handle) }?;
    // SAFETY: no other thread is in MPI.
    unsafe { *LANES.serves.get() = true };
    Some(ExpressLane::of(handle, comm))
}

/// Removes a communicator that is being freed.
pub(crate) fn forget(handle: MPI_Comm) {
    let known = &LANES.known[handle.0 % LANES_COUNT];
    for cell in [known].into_iter().chain(current_to_change()) {
        // SAFETY: no other thread is in MPI (module head).
        let lane = unsafe { &mut *cell.get() };
        if lane.handle == handle {
            *lane = ExpressLane::CLOSED;
        }
    }
}

/// The cell of the last used communicator. `None` at `MPI_THREAD_MULTIPLE`: the cell is always closed then, and other
/// threads may read it.
fn current_to_change() -> Option<&'static UnsafeCell<ExpressLane>> {
    (!lock::is_multiple()).then_some(&LANES.current)
}

/// Closes the lane for all communicators, for `MPI_Finalize`.
pub(crate) fn close() {
    for cell in LANES.known.iter().chain(current_to_change()) {
        // SAFETY: no other thread is in MPI (module head).
        unsafe { *cell.get() = ExpressLane::CLOSED };
    }
    // SAFETY: as above.
    unsafe { *LANES.serves.get() = false };
}

/// Closes the lane. It stays closed while a collective runs in the background or a tool receives events, since the lane
/// handles neither.
pub(crate) fn pause() {
    // At `MPI_THREAD_MULTIPLE` the lane is closed, and other threads may read the cell.
    if !is_open() {
        return;
    }
    // SAFETY: no other thread is in MPI (module head).
    unsafe { *LANES.current.get() = ExpressLane::CLOSED };
}

/// Number of entries of the cache. The low bits of the handles of the program's first 256 communicators are 0 to 255;
/// these communicators do not evict `MPI_COMM_WORLD`.
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
    fn a_lane_maps_valid_ranks_to_peers_and_no_others() {
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
    fn an_intercommunicator_lane_maps_ranks_of_the_remote_group() {
        let remote = Some(Group::of(vec![Peer(2), Peer(3)]));
        let comm = Comm::new(ContextId(8), Group::world(2), 0).with_remote(remote);
        let lane = ExpressLane::of(MPI_Comm::WORLD, &comm);
        assert_eq!([lane.peer(0), lane.peer(1)], [Some(Peer(2)), Some(Peer(3))]);
        assert_eq!(lane.peer(2), None);
    }
}
