// SPDX-License-Identifier: MIT OR Apache-2.0
//! Groups (MPI 5.0 section 7.3).

use core::ffi::c_int;

use runtime::{Group, GroupComparison, Peer, Visit};

use crate::args::{InOutArg, OutArg, OutArray};
use crate::c::{MPI_PROC_NULL, MPI_UNDEFINED};
use crate::comm::{comparison, int};
use crate::enter::Mpi;
use crate::error::{Error, ErrorClass, Result};
use crate::handle::MPI_Group;
use crate::session::SessionNumber;
use crate::state::GroupObject;

/// `MPI_Group_size`.
pub fn group_size(mpi: Mpi, group: MPI_Group, size: OutArg<'_, c_int>) -> Result<()> {
    size.set(int(of(mpi, group)?.size()));
    Ok(())
}

/// `MPI_Group_rank`.
pub fn group_rank(mpi: Mpi, group: MPI_Group, rank: OutArg<'_, c_int>) -> Result<()> {
    let me = Peer(mpi.visit(|universe| universe.rank()));
    rank.set(of(mpi, group)?.rank_of(me).map_or(MPI_UNDEFINED, int));
    Ok(())
}

/// `MPI_Group_compare`.
pub fn group_compare(
    mpi: Mpi,
    first: MPI_Group,
    second: MPI_Group,
    result: OutArg<'_, c_int>,
) -> Result<()> {
    let relation = of(mpi, first)?.compare(&of(mpi, second)?);
    debug_assert!(
        relation != GroupComparison::Congruent,
        "groups are identical, similar or unequal"
    );
    result.set(comparison(relation));
    Ok(())
}

/// `MPI_Group_translate_ranks`.
pub fn group_translate_ranks(
    mpi: Mpi,
    from: MPI_Group,
    ranks: &[c_int],
    to: MPI_Group,
    out: OutArray<'_, c_int>,
) -> Result<()> {
    let (from, to) = (of(mpi, from)?, of(mpi, to)?);
    for (at, rank) in ranks.iter().enumerate() {
        if *rank == MPI_PROC_NULL {
            out.set(at, MPI_PROC_NULL);
            continue;
        }
        let peer = member(&from, *rank)?;
        out.set(at, to.rank_of(peer).map_or(MPI_UNDEFINED, int));
    }
    Ok(())
}

/// `MPI_Group_union`: the members of the first group, followed by the members of the second that are not in the first.
pub fn group_union(
    mpi: Mpi,
    first: MPI_Group,
    second: MPI_Group,
    newgroup: OutArg<'_, MPI_Group>,
) -> Result<()> {
    let origin = origin(mpi, first, second)?;
    let (first, second) = (of(mpi, first)?, of(mpi, second)?);
    let others = second.peers().filter(|peer| first.rank_of(*peer).is_none());
    keep(
        mpi,
        origin,
        first.peers().chain(others).collect(),
        &newgroup,
    )
}

/// `MPI_Group_intersection`: the members are in the order of the first group.
pub fn group_intersection(
    mpi: Mpi,
    first: MPI_Group,
    second: MPI_Group,
    newgroup: OutArg<'_, MPI_Group>,
) -> Result<()> {
    let origin = origin(mpi, first, second)?;
    let (first, second) = (of(mpi, first)?, of(mpi, second)?);
    keep(
        mpi,
        origin,
        first
            .peers()
            .filter(|peer| second.rank_of(*peer).is_some())
            .collect(),
        &newgroup,
    )
}

/// `MPI_Group_difference`: the members are in the order of the first group.
pub fn group_difference(
    mpi: Mpi,
    first: MPI_Group,
    second: MPI_Group,
    newgroup: OutArg<'_, MPI_Group>,
) -> Result<()> {
    let origin = origin(mpi, first, second)?;
    let (first, second) = (of(mpi, first)?, of(mpi, second)?);
    keep(
        mpi,
        origin,
        first
            .peers()
            .filter(|peer| second.rank_of(*peer).is_none())
            .collect(),
        &newgroup,
    )
}

/// `MPI_Group_incl`.
pub fn group_incl(
    mpi: Mpi,
    group: MPI_Group,
    ranks: &[c_int],
    newgroup: OutArg<'_, MPI_Group>,
) -> Result<()> {
    let origin = origin(mpi, group, group)?;
    let group = of(mpi, group)?;
    keep(mpi, origin, chosen(&group, ranks)?, &newgroup)
}

/// `MPI_Group_excl`.
pub fn group_excl(
    mpi: Mpi,
    group: MPI_Group,
    ranks: &[c_int],
    newgroup: OutArg<'_, MPI_Group>,
) -> Result<()> {
    let origin = origin(mpi, group, group)?;
    let group = of(mpi, group)?;
    keep(
        mpi,
        origin,
        all_but(&group, &chosen(&group, ranks)?),
        &newgroup,
    )
}

/// `MPI_Group_range_incl`.
pub fn group_range_incl(
    mpi: Mpi,
    group: MPI_Group,
    ranges: &[[c_int; 3]],
    newgroup: OutArg<'_, MPI_Group>,
) -> Result<()> {
    let origin = origin(mpi, group, group)?;
    let group = of(mpi, group)?;
    keep(mpi, origin, chosen(&group, &expand(ranges)?)?, &newgroup)
}

/// `MPI_Group_range_excl`.
pub fn group_range_excl(
    mpi: Mpi,
    group: MPI_Group,
    ranges: &[[c_int; 3]],
    newgroup: OutArg<'_, MPI_Group>,
) -> Result<()> {
    let origin = origin(mpi, group, group)?;
    let group = of(mpi, group)?;
    keep(
        mpi,
        origin,
        all_but(&group, &chosen(&group, &expand(ranges)?)?),
        &newgroup,
    )
}

/// `MPI_Group_free`.
pub fn group_free(mpi: Mpi, group: InOutArg<'_, MPI_Group>) -> Result<()> {
    let handle = group.get();
    if handle != MPI_Group::EMPTY {
        mpi.state(|state| state.groups.remove(handle).map(drop))?;
    }
    group.set(MPI_Group::NULL);
    Ok(())
}

fn of(mpi: Mpi, group: MPI_Group) -> Result<Group> {
    mpi.state(|state| state.group(group))
}

/// The session that two groups derive from: that of the first group that has one. The empty group has none.
fn origin(mpi: Mpi, first: MPI_Group, second: MPI_Group) -> Result<Option<SessionNumber>> {
    mpi.state(|state| Ok(state.session_of(first)?.or(state.session_of(second)?)))
}

fn keep(
    mpi: Mpi,
    session: Option<SessionNumber>,
    peers: Vec<Peer>,
    newgroup: &OutArg<'_, MPI_Group>,
) -> Result<()> {
    if peers.is_empty() {
        newgroup.set(MPI_Group::EMPTY);
        return Ok(());
    }
    let members = Group::of(peers);
    newgroup.set(mpi.state(|state| state.groups.insert(GroupObject { members, session }))?);
    Ok(())
}

/// The members with these ranks; duplicates are an error.
fn chosen(group: &Group, ranks: &[c_int]) -> Result<Vec<Peer>> {
    let mut taken = vec![false; group.size() as usize];
    let mut peers = Vec::with_capacity(ranks.len());
    for rank in ranks {
        let peer = member(group, *rank)?;
        let at = usize::try_from(*rank).unwrap_or(0);
        if std::mem::replace(&mut taken[at], true) {
            return Err(Error::new(
                ErrorClass::RANK,
                format!("rank {rank} is given twice"),
            ));
        }
        peers.push(peer);
    }
    Ok(peers)
}

fn all_but(group: &Group, excluded: &[Peer]) -> Vec<Peer> {
    group
        .peers()
        .filter(|peer| !excluded.contains(peer))
        .collect()
}

fn member(group: &Group, rank: c_int) -> Result<Peer> {
    let peer = u32::try_from(rank).ok().and_then(|rank| group.peer(rank));
    peer.ok_or_else(|| {
        let (size, es) = (group.size(), if group.size() == 1 { "" } else { "es" });
        let detail = format!("rank {rank} is not in the group, which has {size} process{es}");
        Error::new(ErrorClass::RANK, detail)
    })
}

/// The ranks that (first, last, stride) triplets describe.
fn expand(ranges: &[[c_int; 3]]) -> Result<Vec<c_int>> {
    let mut ranks = Vec::new();
    for [first, last, stride] in ranges {
        let forward = *stride > 0 && first <= last;
        let backward = *stride < 0 && first >= last;
        if !forward && !backward {
            let detail = format!("the range ({first}, {last}, {stride}) names no rank");
            return Err(Error::new(ErrorClass::ARG, detail));
        }
        let step = usize::try_from(stride.unsigned_abs()).unwrap_or(1);
        match forward {
            true => ranks.extend((*first..=*last).step_by(step)),
            false => ranks.extend((*last..=*first).rev().step_by(step)),
        }
    }
    Ok(ranks)
}
