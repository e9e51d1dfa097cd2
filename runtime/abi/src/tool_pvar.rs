// SPDX-License-Identifier: MIT OR Apache-2.0
//! MPI 5.0 section 15.3.7: performance variables, the rows of [`runtime::var::pvars::PVARS`].
//!
//! Sessions and handles are made and freed under a lock. Starting, stopping, reading, writing and resetting a variable
//! neither locks nor allocates, so these calls are async-signal-safe. Binding a handle to a communicator accesses that
//! communicator like any MPI function, so below `MPI_THREAD_MULTIPLE` only the thread that calls MPI may bind.

use core::ffi::{CStr, c_int};
use core::time::Duration;

use runtime::var::pvars::{PVARS, PerformanceVariable, PvarClass, PvarNumber, PvarSource};
use runtime::var::tool_sessions::{self, PvarBinding, PvarRefusal, SessionKey, ToolSessions};

use crate::args::{InOutArg, InValue, OutArg, OutChars, OutValue, ToolObject};
use crate::c;
use crate::error::ErrorClass;
use crate::handle::{MPI_Comm, MPI_Datatype, MPI_T_enum, MPI_T_pvar_handle, MPI_T_pvar_session};
use crate::process::{self, ProcessPhase};
use crate::state;
use crate::tool::{Result, ToolError, at, number, put, put_text, verbosity};
use crate::tool_enum;
use crate::tool_handles::{ToolHandleKind, bits, place};

impl From<PvarRefusal> for ToolError {
    fn from(refusal: PvarRefusal) -> Self {
        Self(match refusal {
            PvarRefusal::Session => ErrorClass::T_INVALID_SESSION,
            PvarRefusal::Handle => ErrorClass::T_INVALID_HANDLE,
            PvarRefusal::Index => ErrorClass::T_INVALID_INDEX,
            PvarRefusal::Invalid => ErrorClass::T_INVALID,
            PvarRefusal::StartStop => ErrorClass::T_PVAR_NO_STARTSTOP,
            PvarRefusal::Write => ErrorClass::T_PVAR_NO_WRITE,
            PvarRefusal::Atomic => ErrorClass::T_PVAR_NO_ATOMIC,
            PvarRefusal::Handles => ErrorClass::T_OUT_OF_HANDLES,
            PvarRefusal::Sessions => ErrorClass::T_OUT_OF_SESSIONS,
        })
    }
}

/// `MPI_T_pvar_get_num`.
pub fn get_num(num: OutArg<'_, c_int>) -> Result<()> {
    num.set(number(PVARS.len()));
    Ok(())
}

/// `MPI_T_pvar_get_info`.
pub fn get_info(
    index: c_int,
    name: Option<OutChars<'_>>,
    name_len: Option<InOutArg<'_, c_int>>,
    verbose: Option<OutArg<'_, c_int>>,
    var_class: Option<OutArg<'_, c_int>>,
    datatype: Option<OutArg<'_, MPI_Datatype>>,
    enumtype: Option<OutArg<'_, MPI_T_enum>>,
    desc: Option<OutChars<'_>>,
    desc_len: Option<InOutArg<'_, c_int>>,
    bind: Option<OutArg<'_, c_int>>,
    readonly: Option<OutArg<'_, c_int>>,
    continuous: Option<OutArg<'_, c_int>>,
    atomic: Option<OutArg<'_, c_int>>,
) -> Result<()> {
    let pvar = at(PVARS.iter(), index)?;
    put_text(name, name_len, pvar.name);
    put(verbose, verbosity(pvar.verbosity));
    put(var_class, class_of(pvar));
    put(datatype, type_of(pvar));
    put(enumtype, tool_enum::of_pvar(pvar));
    put_text(desc, desc_len, pvar.text);
    put(
        bind,
        match pvar.is_of_comm() {
            true => c::MPI_T_BIND_MPI_COMM,
            false => c::MPI_T_BIND_NO_OBJECT,
        },
    );
    put(readonly, c_int::from(pvar.is_read_only()));
    put(continuous, c_int::from(pvar.is_continuous()));
    put(atomic, c_int::from(!pvar.is_read_only()));
    Ok(())
}

fn class_of(pvar: &PerformanceVariable) -> c_int {
    match pvar.class {
        PvarClass::State => c::MPI_T_PVAR_CLASS_STATE,
        PvarClass::Level => c::MPI_T_PVAR_CLASS_LEVEL,
        PvarClass::Size => c::MPI_T_PVAR_CLASS_SIZE,
        PvarClass::Percentage => c::MPI_T_PVAR_CLASS_PERCENTAGE,
        PvarClass::HighWatermark => c::MPI_T_PVAR_CLASS_HIGHWATERMARK,
        PvarClass::LowWatermark => c::MPI_T_PVAR_CLASS_LOWWATERMARK,
        PvarClass::Counter => c::MPI_T_PVAR_CLASS_COUNTER,
        PvarClass::Aggregate => c::MPI_T_PVAR_CLASS_AGGREGATE,
        PvarClass::Timer => c::MPI_T_PVAR_CLASS_TIMER,
        PvarClass::Generic => c::MPI_T_PVAR_CLASS_GENERIC,
    }
}

fn type_of(pvar: &PerformanceVariable) -> MPI_Datatype {
    match pvar.kind {
        PvarNumber::Int(_) => MPI_Datatype::INT,
        PvarNumber::Unsigned => MPI_Datatype::UNSIGNED,
        PvarNumber::Long => MPI_Datatype::UNSIGNED_LONG_LONG,
        PvarNumber::Double => MPI_Datatype::DOUBLE,
    }
}

/// `MPI_T_pvar_get_index`.
pub fn get_index(name: &CStr, var_class: c_int, index: OutArg<'_, c_int>) -> Result<()> {
    let is_it = |pvar: &PerformanceVariable| {
        pvar.name.as_bytes() == name.to_bytes() && class_of(pvar) == var_class
    };
    let found = PVARS.iter().position(is_it);
    index.set(number(found.ok_or(ToolError(ErrorClass::T_INVALID_NAME))?));
    Ok(())
}

/// `MPI_T_pvar_session_create`.
pub fn session_create(session: OutArg<'_, MPI_T_pvar_session>) -> Result<()> {
    let key = sessions()?.create_session()?;
    session.set(MPI_T_pvar_session(bits(
        ToolHandleKind::Session,
        key.index,
        key.generation,
    )));
    Ok(())
}

/// `MPI_T_pvar_session_free`: frees the session's handles too.
pub fn session_free(session: InOutArg<'_, MPI_T_pvar_session>) -> Result<()> {
    sessions()?.free_session(session_of(session.get())?)?;
    session.set(MPI_T_pvar_session(0));
    Ok(())
}

/// `MPI_T_pvar_handle_alloc`.
pub fn handle_alloc(
    session: MPI_T_pvar_session,
    index: c_int,
    obj_handle: ToolObject<'_>,
    handle: OutArg<'_, MPI_T_pvar_handle>,
    count: OutArg<'_, c_int>,
) -> Result<()> {
    let session = session_of(session)?;
    let pvar = at(PVARS.iter(), index)?;
    let at = usize::try_from(index).map_err(|_| PvarRefusal::Index)?;
    let bound = match pvar.is_of_comm() {
        true => bind(pvar, MPI_Comm(obj_handle.bits()?))?,
        false => PvarBinding::Nothing,
    };
    let sessions = sessions()?;
    let made = sessions.alloc(session, at, bound);
    if let (Err(_), PvarBinding::Comm(_, Some(watch)), PvarSource::Queue(kind)) =
        (made, bound, pvar.source)
    {
        runtime::var::pvars::engine_counters()
            .queues(kind)
            .unwatch(watch);
    }
    let key = made?;
    handle.set(MPI_T_pvar_handle(bits(
        ToolHandleKind::Pvar,
        key.index,
        key.generation,
    )));
    count.set(number(sessions.count(session, key)?));
    Ok(())
}

/// The binding of a handle for this communicator.
fn bind(pvar: &PerformanceVariable, comm: MPI_Comm) -> Result<PvarBinding> {
    if process::phase() != ProcessPhase::Running {
        return Err(ToolError(ErrorClass::T_INVALID));
    }
    let inspect = |state: &mut state::LibraryState| {
        let comm = &state.comm(comm)?.comm;
        let row = comm.row();
        let watch = match pvar.source {
            PvarSource::Queue(kind) => {
                let watch = state.universe.messages.watch_queue(kind, comm.context);
                Some(watch.ok_or(ToolError(ErrorClass::T_OUT_OF_HANDLES))?)
            }
            _ => None,
        };
        let row = row.ok_or(ToolError(ErrorClass::T_NOT_ACCESSIBLE))?;
        Ok(PvarBinding::Comm(row, watch))
    };
    match state::peek(inspect) {
        Ok(found) => found.map_err(|ToolError(class)| match class {
            ErrorClass::COMM => ToolError(ErrorClass::T_INVALID),
            _ => ToolError(class),
        }),
        Err(_) => Err(ToolError(ErrorClass::T_NOT_ACCESSIBLE)),
    }
}

/// `MPI_T_pvar_handle_free`.
pub fn handle_free(
    session: MPI_T_pvar_session,
    handle: InOutArg<'_, MPI_T_pvar_handle>,
) -> Result<()> {
    sessions()?.free(session_of(session)?, handle_of(handle.get())?)?;
    handle.set(MPI_T_pvar_handle(0));
    Ok(())
}

/// `MPI_T_pvar_start`.
pub fn start(session: MPI_T_pvar_session, handle: MPI_T_pvar_handle) -> Result<()> {
    Ok(sessions()?.start(session_of(session)?, one_or_all(handle)?)?)
}

/// `MPI_T_pvar_stop`.
pub fn stop(session: MPI_T_pvar_session, handle: MPI_T_pvar_handle) -> Result<()> {
    Ok(sessions()?.stop(session_of(session)?, one_or_all(handle)?)?)
}

/// `MPI_T_pvar_reset`.
pub fn reset(session: MPI_T_pvar_session, handle: MPI_T_pvar_handle) -> Result<()> {
    Ok(sessions()?.reset(session_of(session)?, one_or_all(handle)?)?)
}

/// `MPI_T_pvar_read`.
pub fn read(
    session: MPI_T_pvar_session,
    handle: MPI_T_pvar_handle,
    buf: OutValue<'_>,
) -> Result<()> {
    let (sessions, session, handle) = (sessions()?, session_of(session)?, handle_of(handle)?);
    write_out(sessions.count(session, handle)?, buf, |at| {
        sessions.read(session, handle, at)
    })
}

/// `MPI_T_pvar_readreset`.
pub fn readreset(
    session: MPI_T_pvar_session,
    handle: MPI_T_pvar_handle,
    buf: OutValue<'_>,
) -> Result<()> {
    let (session, handle) = (session_of(session)?, handle_of(handle)?);
    if buf.is_null() {
        return Err(ToolError(ErrorClass::T_INVALID));
    }
    let sessions = sessions()?;
    write_out(sessions.count(session, handle)?, buf, |at| {
        sessions.read_reset(session, handle, at)
    })
}

/// `MPI_T_pvar_write`.
pub fn write(
    session: MPI_T_pvar_session,
    handle: MPI_T_pvar_handle,
    buf: InValue<'_>,
) -> Result<()> {
    let (session, handle) = (session_of(session)?, handle_of(handle)?);
    let sessions = sessions()?;
    let pvar = sessions.pvar(session, handle)?;
    for at in 0..sessions.count(session, handle)? {
        let value = match pvar.kind {
            PvarNumber::Int(_) | PvarNumber::Unsigned => u32::from_ne_bytes(buf.item(at)?).into(),
            PvarNumber::Double if pvar.class == PvarClass::Timer => {
                let time = Duration::try_from_secs_f64(f64::from_ne_bytes(buf.item(at)?));
                let time = time.map_err(|_| PvarRefusal::Invalid)?;
                u64::try_from(time.as_nanos()).map_err(|_| PvarRefusal::Invalid)?
            }
            PvarNumber::Long | PvarNumber::Double => u64::from_ne_bytes(buf.item(at)?),
        };
        sessions.write(session, handle, at, value)?;
    }
    Ok(())
}

#[allow(
    clippy::cast_possible_truncation,
    reason = "narrow variables count in their width"
)]
fn write_out(
    count: usize,
    buf: OutValue<'_>,
    read: impl Fn(usize) -> core::result::Result<(&'static PerformanceVariable, u64), PvarRefusal>,
) -> Result<()> {
    for at in 0..count {
        let (pvar, value) = read(at)?;
        match pvar.kind {
            PvarNumber::Int(_) | PvarNumber::Unsigned => {
                buf.set_item(at, &(value as u32).to_ne_bytes())?
            }
            PvarNumber::Double if pvar.class == PvarClass::Timer => {
                let seconds = Duration::from_nanos(value).as_secs_f64();
                buf.set_item(at, &seconds.to_ne_bytes())?;
            }
            PvarNumber::Long | PvarNumber::Double => buf.set_item(at, &value.to_ne_bytes())?,
        }
    }
    Ok(())
}

fn sessions() -> Result<&'static ToolSessions> {
    tool_sessions::get().ok_or(ToolError(ErrorClass::T_NOT_INITIALIZED))
}

fn session_of(session: MPI_T_pvar_session) -> Result<SessionKey> {
    key(ToolHandleKind::Session, session.0).ok_or(ToolError(ErrorClass::T_INVALID_SESSION))
}

fn handle_of(handle: MPI_T_pvar_handle) -> Result<SessionKey> {
    key(ToolHandleKind::Pvar, handle.0).ok_or(ToolError(ErrorClass::T_INVALID_HANDLE))
}

fn one_or_all(handle: MPI_T_pvar_handle) -> Result<Option<SessionKey>> {
    match handle.0 {
        ALL_HANDLES => Ok(None),
        _ => handle_of(handle).map(Some),
    }
}

/// The value of `MPI_T_PVAR_ALL_HANDLES`.
const ALL_HANDLES: usize = 1;

fn key(kind: ToolHandleKind, number: usize) -> Option<SessionKey> {
    let (index, generation) = place(kind, number)?;
    Some(SessionKey { index, generation })
}
