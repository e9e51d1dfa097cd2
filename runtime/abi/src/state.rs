// SPDX-License-Identifier: MIT OR Apache-2.0
//! The state of the C layer from initialization to finalization: the runtime of the process, and the objects of all
//! handles.
//!
//! # Safety
//! The state is one static. A *visit* is a call of a closure with the state. Bodies visit it through [`Mpi`], which
//! proves that MPI is initialized and that this thread holds the lock, if there is one; other code calls [`peek`].
//! Obligation **S1**: visits never nest, which [`Mpi::state`] and [`peek`] check; so there is one `&mut` at a time. The
//! express lane accesses the state outside of visits ([`universe`], [`communicator`]).
#![allow(unsafe_code, reason = "the library's static")]
#![allow(clippy::disallowed_types, reason = "the library's static")]

use core::cell::{Cell, UnsafeCell};
use std::sync::Arc;

use runtime::datatype::{Basic, Datatype};
use runtime::{Comm, Group, PREDEFINED, Universe, Visit};

use crate::datatype_contents::Recipe;
use crate::enter::Mpi;
use crate::error::{Error, Result};
use crate::group_rows::Groups;
use crate::handle::{
    Handle, HandleKind, HandleParts, MPI_Comm, MPI_Datatype, MPI_Errhandler, MPI_Group,
    MPI_Message, MPI_Op, describe,
};
use crate::lock;
use crate::op::OpObject;
use crate::registry::{HandleRegistry, not_a};
use crate::session::SessionNumber;
use crate::type_rows::Types;
use crate::{datatype_table, handle, tool_event};

/// The state of the library: all objects of handles.
pub struct LibraryState {
    /// The runtime of the process.
    pub universe: Universe,
    world: CommObject,
    myself: CommObject,
    /// Communicators that the program made.
    pub comms: HandleRegistry<MPI_Comm, CommObject>,
    /// Groups that the program made.
    pub groups: Groups,
    /// Datatypes that the program made.
    pub datatypes: Types,
    /// Names that the program gave to predefined datatypes.
    pub type_names: std::collections::HashMap<usize, String>,
    /// The datatypes of `MPI_Type_create_f90_*`, by combiner, precision and range: each datatype is made once.
    pub f90_types: std::collections::HashMap<[core::ffi::c_int; 3], MPI_Datatype>,
    /// The program's part of generalized requests, by token.
    pub grequests: std::collections::HashMap<u32, crate::grequest::Grequest>,
    /// Operations that the program made.
    pub ops: HandleRegistry<MPI_Op, OpObject>,
    /// Open sessions.
    pub sessions: HandleRegistry<handle::MPI_Session, crate::session::SessionObject>,
    /// Number of sessions opened so far.
    pub sessions_opened: u32,
    /// Messages of matched probes.
    pub messages: HandleRegistry<MPI_Message, MessageObject>,
    /// Buffers for buffered sends, by buffer number; 0 is the process's buffer. The runtime counts the messages in each
    /// buffer by its number.
    pub buffers: std::collections::HashMap<u64, crate::buffer::Attached>,
    /// Memory that the program got from `MPI_Alloc_mem`, by address.
    pub allocations: std::collections::HashMap<usize, crate::memory::MemoryOrigin>,
    /// Attributes of communicators and datatypes.
    pub attributes: crate::attr::Attributes,
    /// The thread that initialized MPI.
    pub main_thread: std::thread::ThreadId,
    /// The provided thread level.
    pub thread_level: core::ffi::c_int,
}

/// A communicator.
pub struct CommObject {
    /// Processes and contexts of the communicator.
    pub comm: Comm,
    /// Name (MPI 5.0 section 7.8).
    pub name: String,
    /// Error handler.
    pub errhandler: MPI_Errhandler,
    /// Hints (MPI 5.0 section 7.4.4).
    pub hints: crate::info::InfoPairs,
    /// The session that this object derives from; `None` if it derives from the World Model.
    pub session: Option<SessionNumber>,
}

/// A group of the program.
pub struct GroupObject {
    /// Processes of the group.
    pub members: Group,
    /// The session that this object derives from; `None` if it derives from the World Model.
    pub session: Option<SessionNumber>,
}

/// A datatype that the program made.
#[derive(Clone, Debug)]
pub struct TypeObject {
    /// Layout of the datatype.
    pub datatype: Arc<Datatype>,
    /// Whether the datatype is committed, and so usable for communication.
    pub committed: bool,
    /// The call that made it.
    pub recipe: Arc<Recipe>,
    /// Name (MPI 5.0 section 7.8).
    pub name: String,
    /// For a datatype of `MPI_Type_create_f90_*`: the predefined datatype that it equals. Such a datatype cannot be
    /// freed. `None` for all other datatypes.
    pub stands_for: Option<&'static Basic>,
}

/// The parts of a datatype's object that communication needs.
#[derive(Clone)]
pub struct TypeUse {
    /// Layout of the datatype.
    pub datatype: Arc<Datatype>,
    /// Whether the datatype is committed, and so usable for communication.
    pub committed: bool,
}

/// A message of a matched probe.
pub struct MessageObject {
    /// The engine's request slot that contains the message.
    pub message: runtime::RequestId,
    /// Communicator of the message.
    pub comm: MPI_Comm,
}

impl LibraryState {
    /// The state of a process that has just joined its job.
    pub fn new(universe: Universe, thread_level: core::ffi::c_int) -> Self {
        let object = |comm, name: usize| CommObject {
            comm,
            name: PREDEFINED[name].to_owned(),
            errhandler: MPI_Errhandler::ERRORS_ARE_FATAL,
            hints: crate::info::InfoPairs::default(),
            session: None,
        };
        Self {
            world: object(universe.comms.world(), 0),
            myself: object(universe.comms.self_comm(), 1),
            universe,
            comms: HandleRegistry::new(),
            groups: Groups::default(),
            datatypes: Types::default(),
            type_names: std::collections::HashMap::new(),
            f90_types: std::collections::HashMap::new(),
            grequests: std::collections::HashMap::new(),
            ops: HandleRegistry::new(),
            sessions: HandleRegistry::new(),
            sessions_opened: 0,
            messages: HandleRegistry::new(),
            buffers: std::collections::HashMap::new(),
            allocations: std::collections::HashMap::new(),
            attributes: crate::attr::Attributes::default(),
            main_thread: std::thread::current().id(),
            thread_level,
        }
    }

    /// The communicator of a handle.
    pub fn comm(&self, handle: MPI_Comm) -> Result<&CommObject> {
        match handle {
            MPI_Comm::WORLD => Ok(&self.world),
            MPI_Comm::SELF => Ok(&self.myself),
            other => self.comms.get(other),
        }
    }

    /// The runtime of the process, mutable, and the communicator of a handle.
    pub fn universe_and_comm(&mut self, handle: MPI_Comm) -> Result<(&mut Universe, &CommObject)> {
        let comm = match handle {
            MPI_Comm::WORLD => &self.world,
            MPI_Comm::SELF => &self.myself,
            other => self.comms.get(other)?,
        };
        Ok((&mut self.universe, comm))
    }

    /// The communicator of a handle, mutable.
    pub fn comm_mut(&mut self, handle: MPI_Comm) -> Result<&mut CommObject> {
        match handle {
            MPI_Comm::WORLD => Ok(&mut self.world),
            MPI_Comm::SELF => Ok(&mut self.myself),
            other => self.comms.get_mut(other),
        }
    }

    /// The communicator whose point-to-point messages have this context id.
    pub fn comm_with_context(&self, context: u32) -> Option<MPI_Comm> {
        if self.world.comm.context.0 == context {
            return Some(MPI_Comm::WORLD);
        }
        if self.myself.comm.context.0 == context {
            return Some(MPI_Comm::SELF);
        }
        self.comms
            .iter()
            .find(|(_, object)| object.comm.context.0 == context)
            .map(|(handle, _)| handle)
    }

    /// The datatype of a handle, committed or not.
    pub fn datatype(&self, handle: MPI_Datatype) -> Result<TypeUse> {
        if let Some(datatype) = datatype_table::datatype(handle) {
            return Ok(TypeUse {
                datatype,
                committed: true,
            });
        }
        self.datatypes.get(handle).map(|object| TypeUse {
            datatype: Arc::clone(&object.datatype),
            committed: object.committed,
        })
    }

    /// The predefined datatype of a handle; for a datatype of `MPI_Type_create_f90_*`, the predefined datatype that it
    /// equals. `None` for all other handles.
    pub fn basic(&self, handle: MPI_Datatype) -> Option<&'static Basic> {
        datatype_table::basic(handle).or_else(|| self.datatypes.get(handle).ok()?.stands_for)
    }

    /// The group of a handle.
    pub fn group(&self, handle: MPI_Group) -> Result<Group> {
        match handle {
            MPI_Group::EMPTY => Ok(Group::of(Vec::new())),
            other => self.groups.get(other).map(|group| group.members.clone()),
        }
    }

    /// The session that a group derives from, if any.
    pub fn session_of(&self, handle: MPI_Group) -> Result<Option<SessionNumber>> {
        match handle {
            MPI_Group::EMPTY => Ok(None),
            other => self.groups.get(other).map(|group| group.session),
        }
    }
}

impl Mpi {
    /// Calls `visit` with the state.
    ///
    /// # Panics
    /// If this is called within a visit; bodies never do that.
    #[inline(always)]
    pub fn state<R>(self, visit: impl FnOnce(&mut LibraryState) -> R) -> R {
        let nested = STATE.busy.replace(true);
        assert!(!nested, "visits of the state do not nest");
        // SAFETY:
        // - one at a time: S1, checked above; `self` proves that this thread holds the lock.
        let slot = unsafe { &mut *STATE.slot.get() };
        let state = slot
            .as_mut()
            .expect("an `Mpi` exists only after initialization");
        let result = visit(state);
        STATE.busy.set(false);
        result
    }
}

impl Visit for Mpi {
    #[inline(always)]
    fn visit<R>(self, visit: impl FnOnce(&mut Universe) -> R) -> R {
        self.state(|state| visit(&mut state.universe))
    }

    fn function(self) -> &'static str {
        Self::function(self)
    }

    fn is_shared(self) -> bool {
        lock::is_multiple()
    }

    fn is_contended(self) -> bool {
        lock::is_contended()
    }

    fn run_unlocked(self, outside: impl FnOnce()) {
        lock::without(outside);
    }

    #[inline(always)]
    fn deliver_events(self) {
        if runtime::var::events::wanted().any() {
            tool_event::within_wait(self);
        }
    }
}

/// Stores the state; initialization calls it once.
pub fn install(state: LibraryState) {
    // SAFETY: no `Mpi` exists before initialization, and initialization is called once, by one thread (`init.rs`).
    unsafe { *STATE.slot.get() = Some(state) };
}

/// The runtime of the process, for the express lane.
///
/// # Safety
/// MPI is initialized, no other thread is in it, and no visit is in progress.
#[inline(always)]
pub unsafe fn universe<'a>() -> &'a mut Universe {
    // SAFETY: no other reference is alive: the caller's obligation.
    let slot = unsafe { &mut *STATE.slot.get() };
    // SAFETY: `install` stored the state before initialization ended, and it is never removed.
    let state = unsafe { slot.as_mut().unwrap_unchecked() };
    &mut state.universe
}

/// The communicator of a handle, for the express lane; `None` if the handle is invalid.
///
/// # Safety
/// As [`universe`].
pub unsafe fn communicator<'a>(handle: MPI_Comm) -> Option<&'a Comm> {
    // SAFETY: no other reference is alive: the caller's obligation.
    let state = unsafe { &mut *STATE.slot.get() }.as_ref()?;
    state.comm(handle).ok().map(|object| &object.comm)
}

/// The token of a request handle. `None` for any other number, including [`DONE`], [`DEFERRED`] and
/// [`DONE_NULL`].
#[inline(always)]
pub fn express_token(handle: handle::MPI_Request) -> Option<u32> {
    let bits = handle
        .bits()
        .wrapping_sub((HandleKind::Request as usize) << 27 | FIRST_TOKEN);
    #[allow(clippy::cast_possible_truncation, reason = "compared with the mask")]
    (bits <= TOKEN_MASK as usize - FIRST_TOKEN).then_some((bits + FIRST_TOKEN) as u32)
}

/// Why the state cannot be visited.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum StateUnavailable {
    /// MPI was not initialized yet.
    NotInitialized,
    /// This thread is visiting the state already: a signal handler that interrupted the visit has called MPI.
    Busy,
}

/// Calls `visit` with the state, outside of any body. Takes the lock, which this thread may hold already.
pub fn peek<R>(
    visit: impl FnOnce(&mut LibraryState) -> R,
) -> core::result::Result<R, StateUnavailable> {
    let _held = lock::hold();
    if STATE.busy.replace(true) {
        return Err(StateUnavailable::Busy);
    }
    // SAFETY: one at a time: S1, checked above; this thread holds the lock, if there is one.
    let slot = unsafe { &mut *STATE.slot.get() };
    let result = slot.as_mut().map(visit);
    STATE.busy.set(false);
    result.ok_or(StateUnavailable::NotInitialized)
}

/// The cell of the state. One thread at a time uses it.
struct StateCell {
    slot: UnsafeCell<Option<LibraryState>>,
    busy: Cell<bool>,
}

// SAFETY: only one thread at a time accesses the cell. Below MPI_THREAD_MULTIPLE the program ensures this (MPI 5.0
// section 11.6); at MPI_THREAD_MULTIPLE the lock does.
unsafe impl Sync for StateCell {}

static STATE: StateCell = StateCell {
    slot: UnsafeCell::new(None),
    busy: Cell::new(false),
};

/// The token of a request handle, or an error that describes what the handle is instead.
pub fn request_token(handle: handle::MPI_Request) -> Result<u32> {
    match HandleParts::of(HandleKind::Request, handle.bits()) {
        #[allow(clippy::cast_possible_truncation, reason = "27 bits of a live handle")]
        Some(_) => Ok(handle.bits() as u32 & TOKEN_MASK),
        None => Err(not_a(HandleKind::Request, handle.bits())),
    }
}

/// The handle of a request.
pub fn request_handle(token: u32) -> handle::MPI_Request {
    handle::MPI_Request((HandleKind::Request as usize) << 27 | token as usize)
}

/// The error for the handle of a request that was completed or freed.
#[cold]
pub fn stale_request(handle: handle::MPI_Request) -> Error {
    Error::new(
        crate::error::ErrorClass::REQUEST,
        format!(
            "{} is the handle of a request that was completed or freed",
            describe(handle.bits())
        ),
    )
}

const TOKEN_MASK: u32 = (1 << 27) - 1;
/// The lowest token: no request slot has the number 0.
const FIRST_TOKEN: usize = 1 << 8;

/// The handle of all requests that were complete when they were started and needed no request slot, such as most small
/// sends; not of receives from `MPI_PROC_NULL`.
pub const DONE: handle::MPI_Request = handle::MPI_Request((HandleKind::Request as usize) << 27);
/// As [`DONE`], for sends whose messages may be deferred: who collects the request calls
/// [`send_deferred`](runtime::Universe::send_deferred).
pub const DEFERRED: handle::MPI_Request =
    handle::MPI_Request((HandleKind::Request as usize) << 27 | 2);
/// The handle of every nonblocking receive from `MPI_PROC_NULL`.
pub const DONE_NULL: handle::MPI_Request =
    handle::MPI_Request((HandleKind::Request as usize) << 27 | 1);
