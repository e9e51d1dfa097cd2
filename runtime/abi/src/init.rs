// SPDX-License-Identifier: MIT OR Apache-2.0
//! Initialization and finalization (MPI 5.0 chapter 11).

use core::ffi::c_int;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use runtime::var::{events, launch};
use runtime::{Awaits, CollectiveCall, Universe, Visit, collective};

use crate::anchor;
use crate::args::{MainArgc, MainArgv, OutArg};
use crate::attr;
use crate::c;
use crate::comm;
use crate::enter::{Mpi, On};
use crate::errhandler::{self, Handler};
use crate::error::{Error, ErrorClass, Result};
use crate::express_lanes;
use crate::handle::MPI_Comm;
use crate::lock;
use crate::mpir;
use crate::process::{self, Identity, Lookup, ProcessPhase, World};
use crate::qmpi;
use crate::state::{self, LibraryState, StateUnavailable};
use crate::tool_event;

/// `MPI_Init`.
pub fn init(_argc: MainArgc, _argv: MainArgv) -> Result<()> {
    start(c::MPI_THREAD_SINGLE)
}

/// `MPI_Init_thread`: every level is provided.
pub fn init_thread(
    _argc: MainArgc,
    _argv: MainArgv,
    required: c_int,
    provided: OutArg<'_, c_int>,
) -> Result<()> {
    let level = level(required);
    start(level)?;
    provided.set(granted().unwrap_or(level));
    Ok(())
}

/// The level that is provided for `required`.
pub(crate) fn level(required: c_int) -> c_int {
    let mut levels = LEVELS.into_iter();
    levels
        .find(|level| required <= *level)
        .unwrap_or(c::MPI_THREAD_MULTIPLE)
}

fn start(level: c_int) -> Result<()> {
    let _one = joining();
    match process::world() {
        World::Before => {}
        World::Active => return Err(Error::new(ErrorClass::OTHER, "MPI is initialized already")),
        World::Finalized => {
            let detail = "MPI was finalized; it cannot be initialized again in one process";
            return Err(Error::new(ErrorClass::OTHER, detail));
        }
    }
    if process::phase() == ProcessPhase::Before {
        join(level)?;
    }
    process::set_world(World::Active);
    if events::wanted().any() {
        tool_event::after_call();
    }
    Ok(())
}

/// Joins the job for a session, if this process has not done so yet; returns the provided thread level.
pub(crate) fn join_for_session(level: c_int) -> Result<c_int> {
    let _one = joining();
    match process::phase() {
        ProcessPhase::Before => join(level)?,
        ProcessPhase::Running => {}
        ProcessPhase::Finalized => {
            let detail = "MPI was finalized and its last session ended; no session can begin in this process";
            return Err(Error::new(ErrorClass::OTHER, detail));
        }
    }
    Ok(granted().unwrap_or(level))
}

/// The lock that serializes joining the job.
fn joining() -> MutexGuard<'static, ()> {
    static JOINING: Mutex<()> = Mutex::new(());
    JOINING.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The thread level of this process, set by the first initialization.
fn granted() -> Option<c_int> {
    state::peek(|state| state.thread_level).ok()
}

fn join(level: c_int) -> Result<()> {
    let mut universe = Universe::from_environment()?;
    let identity = Identity {
        rank: universe.rank() as usize,
        size: universe.size() as usize,
    };
    process::set_identity(identity);
    if universe.rank() == 0 {
        let complaints = universe.take_warnings();
        for complaint in complaints.into_iter().chain(qmpi::take_complaints()) {
            eprintln!("rmpi: {complaint}");
        }
    }
    if mpir::is_debugged() {
        universe.messages.keep_sends();
    }
    lock::set_multiple(level == c::MPI_THREAD_MULTIPLE);
    anchor::open(&universe, level == c::MPI_THREAD_MULTIPLE);
    if let Some(link) = universe.network.link() {
        // A process joins once.
        let _ = LINK.set(link.clone());
    }
    tool_event::begin(&mut universe, level);
    note_first_communicators(&mut universe);
    state::install(LibraryState::new(universe, level));
    process::set_lookup(Lookup {
        handler,
        name,
        end: end_job,
        missing,
    });
    process::set_phase(ProcessPhase::Running);
    express_lanes::open();
    launch::end(launch::LaunchPhase::Rest);
    Ok(())
}

fn note_first_communicators(universe: &mut Universe) {
    for (handle, comm) in [
        (MPI_Comm::WORLD, universe.comms.world()),
        (MPI_Comm::SELF, universe.comms.self_comm()),
    ] {
        let (size, rank) = (comm.size().into(), comm.rank.into());
        let words = [handle.0 as u64, size, rank, 0, 0];
        universe
            .messages
            .note(runtime::EventType::CommunicatorCreated, words);
    }
}

/// `MPI_Finalize`. Unless a rank is lost, a rank leaves only after all ranks of `MPI_COMM_WORLD` have called this
/// function. A rank that uses a network also waits until all messages of all ranks have arrived and been acknowledged.
pub fn finalize(mpi: Mpi) -> Result<()> {
    match process::world() {
        World::Active => {}
        World::Before => {
            let detail =
                "MPI was not initialized by MPI_Init; a session ends by MPI_Session_finalize";
            return Err(Error::new(ErrorClass::OTHER, detail));
        }
        World::Finalized => return Err(Error::new(ErrorClass::OTHER, "MPI is finalized already")),
    }
    // MPI 5.0 section 11.2.4: before anything else, the attributes of `MPI_COMM_SELF` are deleted, the one that was set
    // last first. So their delete functions can still call MPI.
    let of_self = attr::drop_all(mpi, MPI_Comm::SELF);
    let of_world = attr::drop_all(mpi, MPI_Comm::WORLD);
    let world = comm::any(mpi, MPI_Comm::WORLD)?;
    mpi.wait_until(Awaits::Other, |universe| universe.is_drained());
    match CollectiveCall::run(mpi, &world, async |call| collective::barrier(call).await) {
        Ok(()) => {}
        // The barrier fails because a rank is lost. Under another MPI's launcher the job ends here; otherwise this rank
        // leaves without waiting for the lost one.
        Err(runtime::Error::Lost { rank, why }) => {
            let lost = rank.cast_unsigned();
            mpi.state(|state| state.universe.network.end_job_without(lost, &why));
        }
        Err(error) => return Err(error.into()),
    }
    mpi.wait_until(Awaits::Other, |universe| universe.is_drained());
    mpi.state(|state| state.universe.network.report_quiescence());
    mpi.wait_until(Awaits::Other, |universe| universe.network.may_leave());
    process::set_world(World::Finalized);
    if mpi.state(|state| state.sessions.is_empty()) {
        leave_job(mpi)?;
    }
    of_self.or(of_world).map_or(Ok(()), Err)
}

/// Leaves the job. Called when neither the World Model nor a session is active any more.
pub(crate) fn leave_job(mpi: Mpi) -> Result<()> {
    mpi.wait_until(Awaits::Other, |universe| universe.is_drained());
    linger(mpi);
    express_lanes::close();
    anchor::close();
    process::set_phase(ProcessPhase::Finalized);
    lock::set_multiple(false);
    mpi.state(|state| match state.universe.network.link() {
        Some(link) => link.finalized().map_err(Error::from),
        None => Ok(()),
    })
}

/// Makes progress until the network permits this process to exit, but at most for [`LINGER`]. Processes that only used
/// sessions may leave at different times, so another process may still need acknowledgements from this process.
fn linger(mpi: Mpi) {
    if mpi.state(|state| state.universe.network.may_leave()) {
        return;
    }
    mpi.state(|state| state.universe.network.report_quiescence());
    let since = Instant::now();
    mpi.wait_until(Awaits::Other, |universe| {
        universe.network.may_leave() || since.elapsed() > LINGER
    });
}

/// `MPI_Initialized`.
pub fn initialized(flag: OutArg<'_, c_int>) -> Result<()> {
    flag.set(c_int::from(process::world() != World::Before));
    Ok(())
}

/// `MPI_Finalized`.
pub fn finalized(flag: OutArg<'_, c_int>) -> Result<()> {
    flag.set(c_int::from(process::world() == World::Finalized));
    Ok(())
}

/// `MPI_Abort`.
pub fn abort(_comm: MPI_Comm, code: c_int) -> Result<()> {
    runtime::flush_output();
    let phase = process::phase();
    let print = || eprintln!("{}: {}", process::identity(), abort_text(phase, code));
    // After finalization this process is not in the job any more, so nobody takes its report.
    if phase == ProcessPhase::Finalized {
        print();
        process::leave(code);
    }
    // Another MPI's launcher may end this process as soon as it gets the report. So if there is no daemon of rmpi, the
    // message is printed before the report.
    let is_reported = report(runtime::DaemonLink::has_daemon);
    if !is_reported {
        print();
    }
    if !report(|link| link.abort(code).is_ok()) && is_reported {
        print();
    }
    process::leave(code)
}

/// What is printed of a call of `MPI_Abort`.
fn abort_text(phase: ProcessPhase, code: c_int) -> String {
    let when = match phase {
        ProcessPhase::Before => " before MPI_Init",
        ProcessPhase::Running => "",
        ProcessPhase::Finalized => {
            " after MPI_Finalize, where it ends this process only (MPI 5.0 section 11.4); \
             to end the job, call it before MPI_Finalize"
        }
    };
    format!("MPI_Abort was called with code {code}{when}")
}

/// `MPI_Is_thread_main`.
pub fn is_thread_main(mpi: Mpi, flag: OutArg<'_, c_int>) -> Result<()> {
    let main = mpi.state(|state| state.main_thread == std::thread::current().id());
    flag.set(c_int::from(main));
    Ok(())
}

/// `MPI_Query_thread`.
pub fn query_thread(mpi: Mpi, provided: OutArg<'_, c_int>) -> Result<()> {
    provided.set(mpi.state(|state| state.thread_level));
    Ok(())
}

/// The error handler of an object, or that of `MPI_COMM_SELF` for an object without one (MPI 5.0 section 9.3).
fn handler(on: On) -> Handler {
    let found = match on {
        On::File(_) => return Handler::Return,
        On::Comm(comm) => state::peek(|state| state.comm(comm).map(|found| found.errhandler)),
        On::Session(session) => {
            state::peek(|state| state.sessions.get(session).map(|found| found.errhandler))
        }
        // No visit of the state: errors of functions that may be called at any time, from any thread, are handled here.
        _ => return errhandler::of_self(),
    };
    match found {
        Ok(Ok(found)) => errhandler::find(found).unwrap_or(Handler::Fatal),
        Ok(Err(_)) => errhandler::of_self(),
        Err(StateUnavailable::NotInitialized) => Handler::Fatal,
        // The handler cannot be looked up. It might be `MPI_ERRORS_RETURN`, so the error must not end the job.
        Err(StateUnavailable::Busy) => Handler::Return,
    }
}

fn name(on: On) -> Option<String> {
    let On::Comm(comm) = on else { return None };
    let name = state::peek(|state| Some(state.comm(comm).ok()?.name.clone()));
    let name = name.ok().flatten()?;
    (!name.is_empty()).then_some(name)
}

/// Ends the job after a message was printed.
fn end_job(code: c_int, error: &str) -> ! {
    runtime::flush_output();
    report(|link| link.fatal(code, error).is_ok());
    process::leave(code)
}

fn missing(function: &str) {
    report(|link| link.missing(function).is_ok());
}

/// Called when the process ends by `exit` with this code. If it has not finalized MPI under another MPI's launcher,
/// ends the job.
pub(crate) fn process_ends(code: c_int) {
    if let Some(link) = LINK.get() {
        link.ends(code);
    }
}

/// Sends a report over [`LINK`]; returns whether it was sent. If there is no connection, this process is the whole job.
/// Does not take the lock, because another thread may hold the lock for ever. Does not use the state, because a signal
/// may have interrupted a visit.
fn report(send: impl FnOnce(&runtime::DaemonLink) -> bool) -> bool {
    LINK.get().is_some_and(send)
}

/// The connection to the daemon, or to another MPI's launcher. Empty until this process has joined a job that has one
/// of these.
static LINK: OnceLock<runtime::DaemonLink> = OnceLock::new();

/// Time for lingering: several retransmission timeouts, in case acknowledgements are lost.
const LINGER: Duration = Duration::from_millis(200);

const LEVELS: [c_int; 4] = [
    c::MPI_THREAD_SINGLE,
    c::MPI_THREAD_FUNNELED,
    c::MPI_THREAD_SERIALIZED,
    c::MPI_THREAD_MULTIPLE,
];
