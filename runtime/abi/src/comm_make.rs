// SPDX-License-Identifier: MIT OR Apache-2.0
//! Communicators made from communicators (MPI 5.0 section 7.4.2).

use core::ffi::c_int;

use runtime::{Comm, ContextId, Group, Peer, Visit};

use crate::args::OutArg;
use crate::comm::{any, of};
use crate::comm_agree::{
    AgreementLane, GroupExchange, check_members, exchange_words, gather_all, group_of, swap,
    words_of,
};
use crate::comm_context::{
    ContextMembers, ContextScope, agree_all, new_context, propose, release_context,
};
use crate::enter::Mpi;
use crate::error::{Error, ErrorClass, Result};
use crate::handle::{MPI_Comm, MPI_Group, MPI_Info};
use crate::info::{InfoPairs, hints};
use crate::state::CommObject;
use crate::{anchor, attr, c, comm_hints, comm_kinds, express_lanes, tool_event};

/// `MPI_Comm_dup`: duplicates the hints too.
pub fn comm_dup(mpi: Mpi, comm: MPI_Comm, newcomm: OutArg<'_, MPI_Comm>) -> Result<()> {
    let parent = any(mpi, comm)?.for_one_call();
    let hints = mpi.state(|state| Ok::<_, Error>(state.comm(comm)?.hints.clone()))?;
    duplicate(mpi, comm, &parent, hints, &newcomm)
}

/// `MPI_Comm_dup_with_info`: with the given hints only.
pub fn comm_dup_with_info(
    mpi: Mpi,
    comm: MPI_Comm,
    info: MPI_Info,
    newcomm: OutArg<'_, MPI_Comm>,
) -> Result<()> {
    let parent = any(mpi, comm)?.for_one_call();
    let hints = comm_hints::accepted(&hints(info)?);
    duplicate(mpi, comm, &parent, hints, &newcomm)
}

fn duplicate(
    mpi: Mpi,
    comm: MPI_Comm,
    parent: &Comm,
    hints: InfoPairs,
    newcomm: &OutArg<'_, MPI_Comm>,
) -> Result<()> {
    let context = new_context(mpi, parent, ContextScope::One)?;
    let made = keep(mpi, comm, parent.with_context(context))?;
    mpi.state(|state| {
        state.comm_mut(made)?.hints = hints;
        Ok::<_, Error>(())
    })?;
    if let Err(error) = attr::copy_all(mpi, comm, made) {
        discard(mpi, made)?;
        newcomm.set(MPI_Comm::NULL);
        return Err(error);
    }
    newcomm.set(made);
    Ok(())
}

/// `MPI_Comm_create`: every rank of `comm` calls it; ranks outside of `group` get `MPI_COMM_NULL`.
pub fn comm_create(
    mpi: Mpi,
    comm: MPI_Comm,
    group: MPI_Group,
    newcomm: OutArg<'_, MPI_Comm>,
) -> Result<()> {
    let parent = any(mpi, comm)?.for_one_call();
    let members = mpi.state(|state| state.group(group))?;
    check_members(&parent, &members)?;
    let mut is_one_of_several = false;
    let (context, remote) = if parent.is_inter() {
        let GroupExchange { context, theirs } = swap(mpi, &parent, words_of(mpi, &members))?;
        let remote = group_of(mpi, &theirs).inspect_err(|_| release_context(mpi, context))?;
        (context, Some(remote))
    } else {
        // Each rank may pass a different group, and this rank sees only its own. So if the group is smaller than the
        // communicator, the context id must serve disjoint groups.
        let purpose = match members.size() == parent.size() {
            true => ContextScope::One,
            false => ContextScope::Groups,
        };
        is_one_of_several = members.size() != parent.size();
        (new_context(mpi, &parent, purpose)?, None)
    };
    let is_remote_empty = remote.as_ref().is_some_and(|remote| remote.size() == 0);
    let rank = parent
        .group
        .peer(parent.rank)
        .and_then(|me| members.rank_of(me));
    match rank.filter(|_| !is_remote_empty) {
        None => {
            release_context(mpi, context);
            newcomm.set(MPI_Comm::NULL);
        }
        Some(rank) => {
            let made = Comm::new(context, members, rank).with_remote(remote);
            let made = match is_one_of_several {
                true => made.sharing_context(),
                false => made,
            };
            newcomm.set(keep(mpi, comm, made)?);
        }
    }
    Ok(())
}

/// `MPI_Comm_create_group`: only the members of `group` call it.
pub fn comm_create_group(
    mpi: Mpi,
    comm: MPI_Comm,
    group: MPI_Group,
    tag: c_int,
    newcomm: OutArg<'_, MPI_Comm>,
) -> Result<()> {
    let parent = of(mpi, comm)?;
    let members = mpi.state(|state| state.group(group))?;
    check_members(&parent, &members)?;
    if tag < 0 {
        let detail = format!(
            "tag {tag} is out of range, expected 0 to {} (MPI_TAG_UB)",
            c_int::MAX
        );
        return Err(Error::new(ErrorClass::TAG, detail));
    }
    let rank = parent
        .group
        .peer(parent.rank)
        .and_then(|me| members.rank_of(me));
    let Some(rank) = rank else {
        newcomm.set(MPI_Comm::NULL);
        return Ok(());
    };
    let context = lead(mpi, AgreementLane::of(&parent, tag), &members, rank)?;
    newcomm.set(keep(mpi, comm, Comm::new(context, members, rank))?);
    Ok(())
}

/// A new context id. If possible, the first member of the group chooses it; otherwise all members agree on it. Only the
/// members of the group call this.
pub(crate) fn lead(mpi: Mpi, lane: AgreementLane, members: &Group, rank: u32) -> Result<ContextId> {
    let mut words = Vec::new();
    if rank == 0 {
        words.push(propose(mpi, [Some(members), None], ContextScope::One));
    }
    let words = lane.share(mpi, members, rank, words)?;
    match words.first() {
        None | Some(0) => ContextMembers::in_lane(lane, members, rank).agree_now(mpi),
        Some(context) => Ok(ContextId(*context)),
    }
}

/// `MPI_Comm_split`.
pub fn comm_split(
    mpi: Mpi,
    comm: MPI_Comm,
    color: c_int,
    key: c_int,
    newcomm: OutArg<'_, MPI_Comm>,
) -> Result<()> {
    let parent = any(mpi, comm)?.for_one_call();
    if color < 0 && color != c::MPI_UNDEFINED {
        let detail = format!("color {color} is negative; expected 0 or more, or MPI_UNDEFINED");
        return Err(Error::new(ErrorClass::ARG, detail));
    }
    let handle = match split(mpi, &parent, color, key)? {
        None => MPI_Comm::NULL,
        Some(made) => keep(mpi, comm, made)?,
    };
    newcomm.set(handle);
    Ok(())
}

/// `MPI_Comm_split_type`.
pub fn comm_split_type(
    mpi: Mpi,
    comm: MPI_Comm,
    split_type: c_int,
    key: c_int,
    info: MPI_Info,
    newcomm: OutArg<'_, MPI_Comm>,
) -> Result<()> {
    let parent = any(mpi, comm)?.for_one_call();
    let given = hints(info)?;
    let color = comm_kinds::color(mpi, &parent, split_type, &given)?;
    let handle = match split(mpi, &parent, color, key)? {
        None => MPI_Comm::NULL,
        Some(made) => keep(mpi, comm, made)?,
    };
    if handle != MPI_Comm::NULL {
        let hints = comm_hints::accepted(&given);
        mpi.state(|state| {
            state.comm_mut(handle)?.hints = hints;
            Ok::<_, Error>(())
        })?;
        comm_kinds::set_resource(split_type, info)?;
    }
    newcomm.set(handle);
    Ok(())
}

/// Splits a communicator by color, ordered by key. `None` if the color of this process is `MPI_UNDEFINED`. On an
/// intercommunicator, also `None` if no process of the other group has the color of this process.
pub(crate) fn split(mpi: Mpi, parent: &Comm, color: c_int, key: c_int) -> Result<Option<Comm>> {
    // Each process with a color reserves a context id, because it may turn out to be the first of its color.
    let proposed = match color {
        c::MPI_UNDEFINED => 0,
        _ => propose(
            mpi,
            [Some(&parent.group), parent.remote.as_ref()],
            ContextScope::One,
        ),
    };
    let mine = SplitEntry {
        color,
        key,
        context: proposed,
    };
    let local = parent.local();
    let all = gather_all(mpi, &local, &mine.to_words())?;
    let other = match parent.is_inter() {
        true => Some(exchange_words(mpi, parent, &all)?),
        false => None,
    };
    // All processes see the same entries. If one process could not reserve a context id, all processes agree on a
    // common one for all colors.
    let agreed = match lack_one(&all) || other.as_deref().is_some_and(lack_one) {
        true => Some(agree_all(mpi, parent)?),
        false => None,
    };
    let part = SplitGroup::of(&all, &parent.group, color);
    let theirs = other.map(|other| SplitGroup::of(&other, parent.partners(), color));
    let chosen = theirs.as_ref().map_or(0, |part| part.context);
    let context = match agreed {
        Some(context) => context.0,
        None => part.context.max(chosen),
    };
    let is_remote_empty = theirs.as_ref().is_some_and(|part| part.peers.is_empty());
    if proposed != 0 && (proposed != context || is_remote_empty) {
        mpi.visit(|universe| universe.release_context(ContextId(proposed)));
    }
    if color == c::MPI_UNDEFINED || is_remote_empty {
        release_context(mpi, ContextId(context));
        return Ok(None);
    }
    let group = Group::of(part.peers);
    let me = parent.group.peer(parent.rank);
    let rank = me.and_then(|me| group.rank_of(me)).unwrap_or(0);
    let remote = theirs.map(|part| Group::of(part.peers));
    let made = Comm::new(ContextId(context), group, rank);
    Ok(Some(made.with_remote(remote)))
}

/// The contribution of one process to a split.
struct SplitEntry {
    color: c_int,
    key: c_int,
    context: u32,
}

impl SplitEntry {
    fn to_words(&self) -> [u32; ENTRY] {
        [
            self.color.cast_unsigned(),
            self.key.cast_unsigned(),
            self.context,
        ]
    }

    fn of([color, key, context]: [u32; ENTRY]) -> Self {
        Self {
            color: color.cast_signed(),
            key: key.cast_signed(),
            context,
        }
    }
}

/// Whether one of these entries has a color but no context id.
fn lack_one(all: &[u32]) -> bool {
    let mut entries = all
        .as_chunks::<ENTRY>()
        .0
        .iter()
        .copied()
        .map(SplitEntry::of);
    entries.any(|entry| entry.color != c::MPI_UNDEFINED && entry.context == 0)
}

/// The processes of one group that have the same color, ordered by key, and the context id that the first of them
/// reserved.
struct SplitGroup {
    peers: Vec<Peer>,
    context: u32,
}

impl SplitGroup {
    fn of(all: &[u32], group: &Group, color: c_int) -> Self {
        let entries = all
            .as_chunks::<ENTRY>()
            .0
            .iter()
            .copied()
            .map(SplitEntry::of);
        let mut members: Vec<_> = (0u32..)
            .zip(entries)
            .filter(|(_, entry)| entry.color == color)
            .map(|(rank, entry)| (entry.key, rank, entry.context))
            .collect();
        members.sort_unstable();
        let peers = members.iter().filter_map(|(_, rank, _)| group.peer(*rank));
        Self {
            peers: peers.collect(),
            context: members.first().map_or(0, |(_, _, context)| *context),
        }
    }
}

/// Makes the handle of a new communicator. The communicator inherits the error handler of `parent` (MPI 5.0 section
/// 9.3).
pub(crate) fn keep(mpi: Mpi, parent: MPI_Comm, mut comm: Comm) -> Result<MPI_Comm> {
    let handle = mpi.state(|state| {
        let parent = state.comm(parent)?;
        let (errhandler, session) = (parent.errhandler, parent.session);
        state.universe.adopt(&mut comm);
        let object = CommObject {
            comm: comm.clone(),
            name: String::new(),
            errhandler,
            hints: InfoPairs::default(),
            session,
        };
        state.comms.insert(object)
    })?;
    known(mpi, handle, &comm);
    Ok(handle)
}

/// Reports a new communicator to debuggers and tools.
pub(crate) fn known(mpi: Mpi, handle: MPI_Comm, comm: &Comm) {
    // The express lane (cache of the fast path) may contain the handle from before the communicator was complete.
    express_lanes::forget(handle);
    anchor::set_handle(comm, handle);
    // A communicator without processes is not complete yet.
    if comm.size() > 0 {
        let (size, rank) = (comm.size().into(), comm.rank.into());
        let words = [handle.0 as u64, size, rank, 0, 0];
        tool_event::note(mpi, runtime::EventType::CommunicatorCreated, words);
    }
}

/// Frees a communicator that has no attributes.
pub(crate) fn discard(mpi: Mpi, handle: MPI_Comm) -> Result<()> {
    express_lanes::forget(handle);
    mpi.state(|state| {
        let object = state.comms.remove(handle)?;
        state.universe.forget(&object.comm);
        state.buffers.remove(&u64::from(object.comm.context.0));
        Ok::<_, Error>(())
    })?;
    let words = [handle.0 as u64, 0, 0, 0, 0];
    tool_event::note(mpi, runtime::EventType::CommunicatorFreed, words);
    Ok(())
}

/// Words of an entry: color, key and context id.
const ENTRY: usize = 3;
