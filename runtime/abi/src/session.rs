// SPDX-License-Identifier: MIT OR Apache-2.0
//! Sessions (MPI 5.0 section 11.3), process sets, and communicators made from groups.
//!
//! All sessions of a process and its World Model share one runtime. The process joins the job with the first session or
//! with `MPI_Init`. It leaves with `MPI_Finalize`; if sessions are still open then, it leaves when the last of them is
//! finalized. A process that only uses sessions may open another session at any time, so it leaves the job when it
//! exits.
//!
//! # Safety
//! `atexit` of the C library gets a function without parameters that does not unwind.
#![allow(unsafe_code, reason = "registers an exit handler")]

use core::ffi::{CStr, c_int};
use std::ffi::CString;
use std::sync::Once;

use runtime::{Comm, ContextId, Group, Peer, Visit};

use crate::args::{InOutArg, OutArg, OutChars};
use crate::buffer;
use crate::c;
use crate::comm::int;
use crate::comm_agree::{AgreementLane, exchange_leaders, group_of, words_of};
use crate::comm_context::{ContextMembers, release_context};
use crate::comm_make::{keep, lead};
use crate::enter::{Mpi, On, enter};
use crate::errhandler::{check_for_comms, check_for_sessions};
use crate::error::{Error, ErrorClass, Result};
use crate::handle::{MPI_Comm, MPI_Errhandler, MPI_Group, MPI_Info, MPI_Session};
use crate::info::{self, InfoPairs, hints};
use crate::init::{join_for_session, leave_job};
use crate::process::{self, ProcessPhase, World};
use crate::pt2pt::bad_rank;
use crate::state::GroupObject;

/// A session.
pub struct SessionObject {
    /// Error handler of the session.
    pub errhandler: MPI_Errhandler,
    /// Provided thread level.
    pub thread_level: c_int,
    /// Number of the session. The session's groups and communicators store this number, and the number of the session's
    /// buffer is derived from it.
    pub number: SessionNumber,
}

/// The number of a session, unique in the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SessionNumber(pub u32);

/// `MPI_Session_init`.
pub fn session_init(
    info: MPI_Info,
    errhandler: MPI_Errhandler,
    session: OutArg<'_, MPI_Session>,
) -> Result<()> {
    check_for_sessions(errhandler)?;
    let wanted = hints(info)?.get(THREAD_KEY).and_then(level_of);
    let thread_level = join_for_session(wanted.unwrap_or(c::MPI_THREAD_MULTIPLE))?;
    static AT_EXIT: Once = Once::new();
    AT_EXIT.call_once(|| {
        // SAFETY: see the head of this file.
        let refused = unsafe { atexit(at_exit) };
        debug_assert_eq!(refused, 0, "there is room for 32 functions at least");
    });
    let mut opened = Ok(MPI_Session::NULL);
    let code = enter("MPI_Session_init", On::Nothing, |mpi| {
        opened = mpi.state(|state| {
            let number = SessionNumber(state.sessions_opened);
            state.sessions_opened += 1;
            state.sessions.insert(SessionObject {
                errhandler,
                thread_level,
                number,
            })
        });
        Ok(())
    });
    debug_assert_eq!(code, c::MPI_SUCCESS);
    session.set(opened?);
    Ok(())
}

/// `MPI_Session_finalize`.
pub fn session_finalize(mpi: Mpi, session: InOutArg<'_, MPI_Session>) -> Result<()> {
    let handle = session.get();
    buffer::finish_session(mpi, handle)?;
    mpi.state(|state| state.sessions.remove(handle).map(drop))?;
    session.set(MPI_Session::NULL);
    let last = mpi.state(|state| state.sessions.is_empty());
    if last && process::world() == World::Finalized {
        leave_job(mpi)?;
    }
    Ok(())
}

/// `MPI_Session_get_info`.
pub fn session_get_info(mpi: Mpi, session: MPI_Session, info: OutArg<'_, MPI_Info>) -> Result<()> {
    let level = mpi.state(|state| Ok::<_, Error>(state.sessions.get(session)?.thread_level))?;
    let mut used = InfoPairs::default();
    let name = LEVELS.iter().find(|(number, _)| *number == level);
    used.set(THREAD_KEY, name.map_or(c"", |(_, name)| name));
    info.set(info::insert(used)?);
    Ok(())
}

/// `MPI_Session_get_num_psets`.
pub fn session_get_num_psets(
    mpi: Mpi,
    session: MPI_Session,
    info: MPI_Info,
    count: OutArg<'_, c_int>,
) -> Result<()> {
    check(mpi, session)?;
    hints(info)?;
    count.set(int(PSETS.len()));
    Ok(())
}

/// `MPI_Session_get_nth_pset`: `length` is the size of `name`, including the NUL, and becomes the required size.
pub fn session_get_nth_pset(
    mpi: Mpi,
    session: MPI_Session,
    info: MPI_Info,
    n: c_int,
    length: InOutArg<'_, c_int>,
    name: Option<OutChars<'_>>,
) -> Result<()> {
    check(mpi, session)?;
    hints(info)?;
    let found = usize::try_from(n).ok().and_then(|n| PSETS.get(n));
    let found = found.ok_or_else(|| {
        let count = PSETS.len();
        let detail =
            format!("process set number {n} was requested, there are {count}, counted from 0");
        Error::new(ErrorClass::ARG, detail)
    })?;
    let room = usize::try_from(length.get()).unwrap_or(0);
    if room > 0 {
        let name = name.ok_or_else(|| Error::null("pset_name"))?;
        name.within(room).set_bytes(found.to_bytes());
    }
    length.set(int(found.count_bytes() + 1));
    Ok(())
}

/// `MPI_Session_get_pset_info`.
pub fn session_get_pset_info(
    mpi: Mpi,
    session: MPI_Session,
    name: &CStr,
    info: OutArg<'_, MPI_Info>,
) -> Result<()> {
    check(mpi, session)?;
    let size = pset(mpi, name)?.size();
    let mut pairs = InfoPairs::default();
    if let Ok(size) = CString::new(size.to_string()) {
        pairs.set(c"mpi_size", &size);
    }
    info.set(info::insert(pairs)?);
    Ok(())
}

/// `MPI_Group_from_session_pset`.
pub fn group_from_session_pset(
    mpi: Mpi,
    session: MPI_Session,
    name: &CStr,
    newgroup: OutArg<'_, MPI_Group>,
) -> Result<()> {
    let members = pset(mpi, name)?;
    newgroup.set(mpi.state(|state| {
        let session = Some(state.sessions.get(session)?.number);
        state.groups.insert(GroupObject { members, session })
    })?);
    Ok(())
}

/// `MPI_Comm_create_from_group`: only the members of the group call it.
pub fn comm_create_from_group(
    mpi: Mpi,
    group: MPI_Group,
    stringtag: &CStr,
    info: MPI_Info,
    errhandler: MPI_Errhandler,
    newcomm: OutArg<'_, MPI_Comm>,
) -> Result<()> {
    let members = mpi.state(|state| state.group(group))?;
    hints(info)?;
    check_for_comms(errhandler)?;
    if members.size() == 0 {
        newcomm.set(MPI_Comm::NULL);
        return Ok(());
    }
    let rank = own_rank(mpi, &members)?;
    let context = lead(mpi, lane(mpi, stringtag), &members, rank)?;
    let made = Comm::new(context, members, rank);
    newcomm.set(own(mpi, made, group, errhandler)?);
    Ok(())
}

/// `MPI_Intercomm_create_from_groups`: each leader sends its group to the other leader, and broadcasts the other
/// leader's group to the members of its own group.
pub fn intercomm_create_from_groups(
    mpi: Mpi,
    local_group: MPI_Group,
    local_leader: c_int,
    remote_group: MPI_Group,
    remote_leader: c_int,
    stringtag: &CStr,
    info: MPI_Info,
    errhandler: MPI_Errhandler,
    newintercomm: OutArg<'_, MPI_Comm>,
) -> Result<()> {
    let members = mpi.state(|state| state.group(local_group))?;
    hints(info)?;
    check_for_comms(errhandler)?;
    let rank = own_rank(mpi, &members)?;
    let leader = rank_in("local leader", local_leader, &members)?;
    let lane = lane(mpi, stringtag);
    let exchanged = match rank == leader {
        true => exchange_with_leader(mpi, lane, &members, remote_group, remote_leader).map(Some),
        false => Ok(None),
    };
    // After an error this rank still takes part in the broadcast below, because the other members wait for it.
    let (result, failed) =
        exchanged.map_or_else(|error| (None, Some(error)), |result| (result, None));
    let (words, other) = result.map_or((Vec::new(), None), |(words, other)| (words, Some(other)));
    let makers = ContextMembers::in_lane(lane, &members, rank)
        .led_by(leader, other.map(|peer| (lane, peer)));
    let mut words = lane.share(mpi, makers.group(), makers.rank(), words)?;
    if let Some(error) = failed {
        return Err(error);
    }
    let context = match words.pop() {
        None => {
            let detail = "the local leader could not reach the remote leader";
            return Err(Error::new(ErrorClass::OTHER, detail));
        }
        Some(0) => makers.agree_now(mpi)?,
        Some(context) => ContextId(context),
    };
    let remote = group_of(mpi, &words).inspect_err(|_| release_context(mpi, context))?;
    let made = Comm::new(context, members, rank).with_remote(Some(remote));
    newintercomm.set(own(mpi, made, local_group, errhandler)?);
    Ok(())
}

/// Called by the leader of a group: exchanges the groups with the other leader. Returns the other leader's group as
/// words, followed by the context id or 0 (see [`exchange_leaders`]); and the other leader.
fn exchange_with_leader(
    mpi: Mpi,
    lane: AgreementLane,
    members: &Group,
    remote_group: MPI_Group,
    remote_leader: c_int,
) -> Result<(Vec<u32>, Peer)> {
    let others = mpi.state(|state| state.group(remote_group))?;
    let rank = rank_in("remote leader", remote_leader, &others)?;
    let peer = others.peer(rank);
    let peer = peer.ok_or_else(|| bad_rank("remote leader", remote_leader, others.size()))?;
    if members.rank_of(peer).is_some() {
        let detail =
            format!("the remote leader, rank {remote_leader}, is a process of the local group");
        return Err(Error::new(ErrorClass::RANK, detail));
    }
    Ok((
        exchange_leaders(mpi, lane, members, peer, words_of(mpi, members))?,
        peer,
    ))
}

/// Makes the handle of a communicator that has no parent. Its session is that of `group`.
fn own(mpi: Mpi, comm: Comm, group: MPI_Group, errhandler: MPI_Errhandler) -> Result<MPI_Comm> {
    let handle = keep(mpi, MPI_Comm::SELF, comm)?;
    mpi.state(|state| {
        let session = state.session_of(group)?;
        let object = state.comm_mut(handle)?;
        object.errhandler = errhandler;
        object.session = session;
        Ok(handle)
    })
}

/// The lane (context and tag) for the messages of processes that may have no common communicator: its tag is a hash
/// (FNV-1a) of the string tag that they pass.
fn lane(mpi: Mpi, stringtag: &CStr) -> AgreementLane {
    let hash = stringtag
        .to_bytes()
        .iter()
        .fold(0x811c_9dc5_u32, |hash, byte| {
            (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193)
        });
    let world = mpi.visit(|universe| universe.comms.world());
    AgreementLane::of(&world, (hash >> 1).cast_signed())
}

fn own_rank(mpi: Mpi, members: &Group) -> Result<u32> {
    let me = Peer(mpi.visit(|universe| universe.rank()));
    members.rank_of(me).ok_or_else(|| {
        let detail = "the group does not have the calling process, only its members may call";
        Error::new(ErrorClass::GROUP, detail)
    })
}

fn rank_in(which: &str, rank: c_int, group: &Group) -> Result<u32> {
    let found = u32::try_from(rank).ok().filter(|rank| *rank < group.size());
    found.ok_or_else(|| bad_rank(which, rank, group.size()))
}

/// The processes of the process set `name`. The case of the name does not matter.
fn pset(mpi: Mpi, name: &CStr) -> Result<Group> {
    let same = |other: &CStr| name.to_bytes().eq_ignore_ascii_case(other.to_bytes());
    if same(WORLD) {
        return Ok(mpi.visit(|universe| universe.comms.world()).group);
    }
    if same(MYSELF) {
        return Ok(mpi.visit(|universe| universe.comms.self_comm()).group);
    }
    let detail = format!("{name:?} is no process set; there are {WORLD:?} and {MYSELF:?}");
    Err(Error::new(ErrorClass::ARG, detail))
}

fn check(mpi: Mpi, session: MPI_Session) -> Result<()> {
    mpi.state(|state| state.sessions.get(session).map(drop))
}

fn level_of(name: &CStr) -> Option<c_int> {
    let found = LEVELS.iter().find(|(_, known)| *known == name);
    found.map(|(level, _)| *level)
}

/// Exit handler, in which a process that only used sessions leaves the job.
extern "C" fn at_exit() {
    if process::phase() != ProcessPhase::Running || process::world() != World::Before {
        return;
    }
    enter("MPI_Session_finalize", On::Nothing, |mpi| {
        // If a session is open, the process does not leave the job. To exit with an open session is an error, which the
        // launcher reports.
        match mpi.state(|state| state.sessions.is_empty()) {
            true => leave_job(mpi),
            false => Ok(()),
        }
    });
}

unsafe extern "C" {
    fn atexit(function: extern "C" fn()) -> c_int;
}

const THREAD_KEY: &CStr = c"thread_level";
const LEVELS: [(c_int, &CStr); 4] = [
    (c::MPI_THREAD_SINGLE, c"MPI_THREAD_SINGLE"),
    (c::MPI_THREAD_FUNNELED, c"MPI_THREAD_FUNNELED"),
    (c::MPI_THREAD_SERIALIZED, c"MPI_THREAD_SERIALIZED"),
    (c::MPI_THREAD_MULTIPLE, c"MPI_THREAD_MULTIPLE"),
];
const WORLD: &CStr = c"mpi://WORLD";
const MYSELF: &CStr = c"mpi://SELF";
const PSETS: [&CStr; 2] = [WORLD, MYSELF];
