// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the express lane knows of communicators, and whether it is open. A communicator comes in when it is first used and
//! nothing is special about it or about the process; it is forgotten when it is freed.
//!
//! # Safety
//! As `express`: the tables here are read and changed by one thread at a time, below `MPI_THREAD_MULTIPLE` by the program's
//! promise, there by the lock. But for the communicator that was used last: at `MPI_THREAD_MULTIPLE` any thread looks at that
//! without the lock, and nobody writes it. Obligation **L1**: the ranks of a [`ExpressLane`] lie in the group of its communicator, which lives
//! until the communicator is freed; it is [forgotten](forget) before that, and nobody keeps a lane over a call.
#![allow(unsafe_code, reason = "tables that one thread at a time changes")]
#![allow(
    clippy::disallowed_types,
    reason = "a table that only the thread in MPI changes"
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

/// What the short way knows of a communicator.
#[derive(Clone, Copy)]
pub(crate) struct ExpressLane {
    pub(crate) handle: MPI_Comm,
    /// How many ranks are numbers of processes too: all, or none.
    plain: u32,
    /// How many of the others there are.
    listed: u32,
    /// The processes of those.
    peers: *const Peer,
    pub(crate) context: ContextId,
}

impl ExpressLane {
    /// No handle is 0.
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

    /// The process with a rank of the program's, where their numbers are the same; `None` elsewhere, or if there is none.
    #[inline(always)]
    pub(crate) fn plain_peer(&self, rank: c_int) -> Option<Peer> {
        let rank = rank.cast_unsigned();
        (rank < self.plain).then_some(Peer(rank))
    }

    /// The process with a rank of the program's; `None` if there is none.
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
        // SAFETY: the same.
        Some(unsafe { place.read() })
    }
}

struct Lanes {
    /// The communicator that was used last, below `MPI_THREAD_MULTIPLE`.
    current: UnsafeCell<ExpressLane>,
    /// Those that were used before, by the end of their handles.
    known: [UnsafeCell<ExpressLane>; LANES_COUNT],
    /// Some communicator was served, and MPI is not finalized: no tools are stacked.
    serves: UnsafeCell<bool>,
}

// SAFETY: one thread at a time (module head).
unsafe impl Sync for Lanes {}

/// The lane of the communicator that was used last, if it is this one.
#[inline(always)]
pub(crate) fn lane(handle: MPI_Comm) -> Option<&'static ExpressLane> {
    // SAFETY: nobody writes while the reference is in use (module head).
    let lane = unsafe { &*LANES.current.get() };
    (lane.handle == handle).then_some(lane)
}

/// Whether the lane is open, below `MPI_THREAD_MULTIPLE`.
#[inline(always)]
pub(crate) fn is_open() -> bool {
    // SAFETY: nobody writes meanwhile (module head).
    unsafe { *LANES.current.get() }.handle != ExpressLane::CLOSED.handle
}

/// Whether the lane may serve calls that name no communicator, at `MPI_THREAD_MULTIPLE`. It says nothing about pauses.
#[inline(always)]
pub(crate) fn serves() -> bool {
    // SAFETY: this thread alone is in MPI (module head).
    unsafe { *LANES.serves.get() }
}

/// Makes the lane that of another communicator. `false` if it is so already, if something is special about that one, or while
/// the lane is [paused](pause) or there is none.
pub(crate) fn change_lane(handle: MPI_Comm) -> bool {
    let may_change = !lock::is_multiple() && handle != ExpressLane::CLOSED.handle;
    if !may_change || lane(handle).is_some() || process::phase() != ProcessPhase::Running {
        return false;
    }
    // SAFETY: MPI is initialized, and this thread alone is in it, outside of any visit.
    let Some(known) = (unsafe { known(handle) }) else {
        return false;
    };
    // Nothing is told to tools there, and no collective is moved on.
    // SAFETY: as above.
    if events::wanted().any() || !unsafe { universe() }.tasks.is_empty() {
        return false;
    }
    // SAFETY: this thread alone is in MPI (module head).
    unsafe { *LANES.current.get() = *known };
    true
}

/// Opens the lane for calls that name no communicator, if it is closed and nothing is special about the process: a program may
/// never name one in a call with a lane, as who has persistent requests alone. For bodies, outside of visits.
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

/// What the lane knows of a communicator, which is looked up if it is not known yet. `None`: it does not serve it.
///
/// # Safety
/// MPI is initialized, this thread alone is in it, and no visit is under way.
#[inline(always)]
pub(crate) unsafe fn known(handle: MPI_Comm) -> Option<&'static ExpressLane> {
    let place = LANES.known[handle.0 % LANES_COUNT].get();
    // SAFETY: this thread alone is here.
    if unsafe { &*place }.handle != handle {
        cold_path();
        // SAFETY: promised.
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
    // It would pass by the tools, and it sends eight bytes at once: not where the program's user has forbidden that.
    // SAFETY: promised.
    if qmpi::is_stacked() || !unsafe { universe() }.messages.sends_at_once(8) {
        return None;
    }
    // SAFETY: promised.
    let comm = unsafe { communicator(handle) }?;
    // SAFETY: this thread alone is in MPI.
    unsafe { *LANES.serves.get() = true };
    Some(ExpressLane::of(handle, comm))
}

/// A communicator is being freed: the lane must not know it any more.
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

/// The communicator that was used last; `None` at `MPI_THREAD_MULTIPLE`, where there is none and others may be looking.
fn current_to_change() -> Option<&'static UnsafeCell<ExpressLane>> {
    (!lock::is_multiple()).then_some(&LANES.current)
}

/// Closes the lane for all communicators: `MPI_Finalize`.
pub(crate) fn close() {
    for cell in LANES.known.iter().chain(current_to_change()) {
        // SAFETY: this thread alone is in MPI (module head).
        unsafe { *cell.get() = ExpressLane::CLOSED };
    }
    // SAFETY: the same.
    unsafe { *LANES.serves.get() = false };
}

/// Closes the lane until no collective goes on in the background and no tool listens to events: the lane would do nothing for
/// them.
pub(crate) fn pause() {
    // At `MPI_THREAD_MULTIPLE` it is closed, and others may be looking at it.
    if !is_open() {
        return;
    }
    // SAFETY: this thread alone is in MPI (module head).
    unsafe { *LANES.current.get() = ExpressLane::CLOSED };
}

/// So many that the first 256 communicators of a program, whose handles end in 0 to 255, leave `MPI_COMM_WORLD` its place.
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
