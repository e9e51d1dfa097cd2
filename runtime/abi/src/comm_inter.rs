// SPDX-License-Identifier: MIT OR Apache-2.0
//! Intercommunicators (MPI 5.0 section 7.6).

use core::ffi::c_int;

use runtime::{CollectiveCall, Comm, ContextId, Group, Peer, Universe, Visit};

use crate::args::OutArg;
use crate::comm::{any, int, of};
use crate::comm_agree::{
    AgreementLane, broadcast_words, exchange_leaders, group_of, swap, words_of,
};
use crate::comm_context::{ContextMembers, release_context};
use crate::comm_make::keep;
use crate::enter::Mpi;
use crate::error::{Error, ErrorClass, Result};
use crate::handle::{MPI_Comm, MPI_Group};
use crate::pt2pt::bad_rank;
use crate::state::GroupObject;

/// `MPI_Comm_test_inter`.
pub fn comm_test_inter(mpi: Mpi, comm: MPI_Comm, flag: OutArg<'_, c_int>) -> Result<()> {
    flag.set(c_int::from(any(mpi, comm)?.is_inter()));
    Ok(())
}

/// `MPI_Comm_remote_size`.
pub fn comm_remote_size(mpi: Mpi, comm: MPI_Comm, size: OutArg<'_, c_int>) -> Result<()> {
    size.set(int(remote(mpi, comm)?.size()));
    Ok(())
}

/// `MPI_Comm_remote_group`.
pub fn comm_remote_group(mpi: Mpi, comm: MPI_Comm, group: OutArg<'_, MPI_Group>) -> Result<()> {
    let members = remote(mpi, comm)?;
    group.set(mpi.state(|state| {
        let session = state.comm(comm)?.session;
        state.groups.insert(GroupObject { members, session })
    })?);
    Ok(())
}

/// `MPI_Intercomm_create`: each leader sends its group to the other leader, and broadcasts the other leader's group to
/// the members of its own group.
pub fn intercomm_create(
    mpi: Mpi,
    local_comm: MPI_Comm,
    local_leader: c_int,
    peer_comm: MPI_Comm,
    remote_leader: c_int,
    tag: c_int,
    newintercomm: OutArg<'_, MPI_Comm>,
) -> Result<()> {
    let local = of(mpi, local_comm)?.for_one_call();
    let leader = member("local leader", local_leader, &local.group)?;
    let exchanged = match leader == local.rank {
        // After an error this rank still takes part in the broadcast below, because the other members wait for it.
        true => exchange_with_leader(mpi, &local, peer_comm, remote_leader, tag).map(Some),
        false => Ok(None),
    };
    let (result, failed) =
        exchanged.map_or_else(|error| (None, Some(error)), |result| (result, None));
    let (words, other) = result.map_or((Vec::new(), None), |(words, other)| (words, Some(other)));
    let mut exchanged = broadcast_words(mpi, &local, leader, words)?;
    if let Some(error) = failed {
        return Err(error);
    }
    let Some(context) = exchanged.pop() else {
        let detail = "the local leader could not reach the remote leader";
        return Err(Error::new(ErrorClass::OTHER, detail));
    };
    let remote = group_of(mpi, &exchanged);
    let peers = || remote.iter().flat_map(Group::peers);
    if let Some(both) = peers().find(|peer| local.group.rank_of(*peer).is_some()) {
        let detail = format!(
            "the process with world rank {} is in both groups, which must have none in common",
            both.0
        );
        // Only the leader that chose the id returns it: another process may get it a second time as a member of both
        // groups, when the id is already used by a newer communicator.
        if leader == local.rank && context != 0 {
            mpi.visit(|universe| universe.release_context(ContextId(context)));
        }
        return Err(Error::new(ErrorClass::COMM, detail));
    }
    let context = match context {
        0 => CollectiveCall::run(mpi, &local, async |call| {
            let makers = ContextMembers::of(&local, call).led_by(leader, other);
            makers.agree(mpi).await
        })?,
        context => ContextId(context),
    };
    // An error in `remote` is returned only now, since other processes may wait for this one in the agreement.
    let remote = remote.inspect_err(|_| release_context(mpi, context))?;
    let made = Comm::new(context, local.group, local.rank).with_remote(Some(remote));
    newintercomm.set(keep(mpi, local_comm, made)?);
    Ok(())
}

/// Called by the leader of the local group: exchanges the groups with the other leader. Returns the other leader's
/// group as words, followed by the context id or 0 (see [`exchange_leaders`]); and the other leader with the lane
/// (context and tag) to it.
fn exchange_with_leader(
    mpi: Mpi,
    local: &Comm,
    peer_comm: MPI_Comm,
    remote_leader: c_int,
    tag: c_int,
) -> Result<(Vec<u32>, (AgreementLane, Peer))> {
    let bridge = any(mpi, peer_comm)?;
    let rank = member("remote leader", remote_leader, bridge.partners())?;
    if tag < 0 {
        let detail = format!(
            "tag {tag} is out of range, expected 0 to {} (MPI_TAG_UB)",
            c_int::MAX
        );
        return Err(Error::new(ErrorClass::TAG, detail));
    }
    let peer = bridge.partners().peer(rank);
    let peer =
        peer.ok_or_else(|| bad_rank("remote leader", remote_leader, bridge.partners().size()))?;
    if local.group.rank_of(peer).is_some() {
        let detail =
            format!("the remote leader, rank {remote_leader}, is a process of the local group");
        return Err(Error::new(ErrorClass::RANK, detail));
    }
    let lane = AgreementLane::of(&bridge, tag);
    let exchanged = exchange_leaders(mpi, lane, &local.group, peer, words_of(mpi, &local.group))?;
    Ok((exchanged, (lane, peer)))
}

/// `MPI_Intercomm_merge`: the group that passes `high` comes second. If both groups pass the same value, the group
/// whose leader has the lower global name comes first.
pub fn intercomm_merge(
    mpi: Mpi,
    intercomm: MPI_Comm,
    high: c_int,
    newintracomm: OutArg<'_, MPI_Comm>,
) -> Result<()> {
    let parent = any(mpi, intercomm)?.for_one_call();
    let theirs = remote(mpi, intercomm)?;
    let high = u32::from(high != 0);
    let swapped = swap(mpi, &parent, vec![high])?;
    let their_high = swapped.theirs.first().copied().unwrap_or(0);
    // Leaders are compared by their global names, because these do not depend on the group.
    let leader = |group: &Group| {
        let name = |universe: &mut Universe| universe.roster().name(group.peer(0)?);
        mpi.visit(name).map(|name| (name.job, name.rank))
    };
    let first = (high, leader(&parent.group)) < (their_high, leader(&theirs));
    let both = match first {
        true => [&parent.group, &theirs],
        false => [&theirs, &parent.group],
    };
    let group = Group::of(both.into_iter().flat_map(Group::peers).collect());
    let me = parent.group.peer(parent.rank);
    let rank = me.and_then(|me| group.rank_of(me)).unwrap_or(0);
    let made = Comm::new(swapped.context, group, rank);
    newintracomm.set(keep(mpi, intercomm, made)?);
    Ok(())
}

fn remote(mpi: Mpi, comm: MPI_Comm) -> Result<Group> {
    any(mpi, comm)?.remote.ok_or_else(|| {
        let detail = "the communicator is an intracommunicator, an intercommunicator is needed";
        Error::new(ErrorClass::COMM, detail)
    })
}

fn member(which: &str, rank: c_int, group: &Group) -> Result<u32> {
    let found = u32::try_from(rank).ok().filter(|rank| *rank < group.size());
    found.ok_or_else(|| bad_rank(which, rank, group.size()))
}
