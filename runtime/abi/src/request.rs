// SPDX-License-Identifier: MIT OR Apache-2.0
//! Requests: wait, test, start, free, cancel (MPI 5.0 sections 3.7 to 3.9). To *collect* a complete request means here:
//! to return its status, and to free the request or, if it is persistent, to make it inactive.

use core::ffi::c_int;

use runtime::{Awaits, MessageStatus, RequestId, RequestKind, RequestList, Visit};

use crate::args::{InOutArg, OutArg, OutArray, OutStatus, OutStatuses};
use crate::c::{MPI_SUCCESS, MPI_UNDEFINED};
use crate::coll::run_new_tasks;
use crate::enter::{Mpi, On, enter};
use crate::error::{Error, ErrorClass, Result};
use crate::express_lanes;
use crate::grequest::{self, Grequest};
use crate::handle::MPI_Request;
use crate::state::{
    DEFERRED, DONE, DONE_NULL, LibraryState, request_handle, request_token, stale_request,
};
use crate::status::MPI_Status;

/// What a request handle refers to.
#[derive(Clone, Copy)]
enum FoundRequest {
    /// `MPI_REQUEST_NULL`, or a persistent request that is not started: there is nothing to wait for.
    Inactive,
    /// A request that was complete when it was started, with this status.
    Done(MPI_Status),
    /// A request of the engine.
    Live(RequestId),
}

/// `MPI_Wait`.
pub fn wait(mpi: Mpi, request: InOutArg<'_, MPI_Request>, status: OutStatus<'_>) -> Result<()> {
    match find(mpi, request.get())? {
        FoundRequest::Inactive => status.set_empty(),
        FoundRequest::Done(known) => {
            status.set(known);
            request.set(MPI_Request::NULL);
        }
        FoundRequest::Live(id) => {
            mpi.wait_for(id);
            return take(mpi, id, &request, &status);
        }
    }
    Ok(())
}

/// `MPI_Test`.
pub fn test(
    mpi: Mpi,
    request: InOutArg<'_, MPI_Request>,
    flag: OutArg<'_, c_int>,
    status: OutStatus<'_>,
) -> Result<()> {
    let done = match find(mpi, request.get())? {
        FoundRequest::Inactive => {
            status.set_empty();
            true
        }
        FoundRequest::Done(known) => {
            status.set(known);
            request.set(MPI_Request::NULL);
            true
        }
        FoundRequest::Live(id) => {
            let done = is_done_now(mpi, id);
            if done {
                flag.set(1);
                return take(mpi, id, &request, &status);
            }
            false
        }
    };
    flag.set(c_int::from(done));
    Ok(())
}

/// `MPI_Waitall`.
pub fn waitall(mpi: Mpi, requests: &mut [MPI_Request], statuses: OutStatuses<'_>) -> Result<()> {
    waitall_from(mpi, requests, &statuses, 0)
}

/// Completes an `MPI_Waitall`, or an `MPI_Testall` with requests that are all complete. The express lane has already
/// collected the first `from` requests and written their statuses. `None` if `from` is 0.
#[inline(never)]
pub fn finish_waitall(
    name: &'static str,
    requests: &mut [MPI_Request],
    statuses: OutStatuses<'_>,
    from: usize,
) -> Option<c_int> {
    (from > 0).then(|| {
        enter(name, On::Nothing, |mpi| {
            waitall_from(mpi, requests, &statuses, from)
        })
    })
}

fn waitall_from(
    mpi: Mpi,
    requests: &mut [MPI_Request],
    statuses: &OutStatuses<'_>,
    from: usize,
) -> Result<()> {
    let found = find_all(mpi, requests)?;
    for entry in &found {
        if let FoundRequest::Live(id) = entry {
            mpi.wait_until(of_list(requests), |universe| {
                universe.messages.is_complete(*id)
            });
        }
    }
    collect_all(mpi, requests, &found, statuses, from)
}

/// `MPI_Testall`.
pub fn testall(
    mpi: Mpi,
    requests: &mut [MPI_Request],
    flag: OutArg<'_, c_int>,
    statuses: OutStatuses<'_>,
) -> Result<()> {
    let found = find_all(mpi, requests)?;
    let done = all_done(mpi, &found);
    flag.set(c_int::from(done));
    if done {
        collect_all(mpi, requests, &found, &statuses, 0)
    } else {
        Ok(())
    }
}

/// `MPI_Waitany`.
pub fn waitany(
    mpi: Mpi,
    requests: &mut [MPI_Request],
    index: OutArg<'_, c_int>,
    status: OutStatus<'_>,
) -> Result<()> {
    let found = find_all(mpi, requests)?;
    let mut chosen = None;
    if found
        .iter()
        .any(|entry| !matches!(entry, FoundRequest::Inactive))
    {
        mpi.wait_until(of_list(requests), |universe| {
            chosen = found.iter().position(|entry| is_done(universe, entry));
            chosen.is_some()
        });
    }
    give_one(mpi, requests, &found, chosen, &index, &status)
}

/// `MPI_Testany`.
pub fn testany(
    mpi: Mpi,
    requests: &mut [MPI_Request],
    index: OutArg<'_, c_int>,
    flag: OutArg<'_, c_int>,
    status: OutStatus<'_>,
) -> Result<()> {
    let found = find_all(mpi, requests)?;
    let chosen = first_done(mpi, &found);
    let nothing = found
        .iter()
        .all(|entry| matches!(entry, FoundRequest::Inactive));
    flag.set(c_int::from(chosen.is_some() || nothing));
    give_one(mpi, requests, &found, chosen, &index, &status)
}

/// `MPI_Waitsome`.
pub fn waitsome(
    mpi: Mpi,
    requests: &mut [MPI_Request],
    outcount: OutArg<'_, c_int>,
    indices: OutArray<'_, c_int>,
    statuses: OutStatuses<'_>,
) -> Result<()> {
    let found = find_all(mpi, requests)?;
    if found
        .iter()
        .any(|entry| !matches!(entry, FoundRequest::Inactive))
    {
        mpi.wait_until(of_list(requests), |universe| {
            found.iter().any(|entry| is_done(universe, entry))
        });
    }
    give_some(mpi, requests, &found, &outcount, &indices, &statuses)
}

/// `MPI_Testsome`.
pub fn testsome(
    mpi: Mpi,
    requests: &mut [MPI_Request],
    outcount: OutArg<'_, c_int>,
    indices: OutArray<'_, c_int>,
    statuses: OutStatuses<'_>,
) -> Result<()> {
    let found = find_all(mpi, requests)?;
    turn_unless_done(mpi, &found);
    give_some(mpi, requests, &found, &outcount, &indices, &statuses)
}

/// `MPI_Request_get_status`.
pub fn request_get_status(
    mpi: Mpi,
    request: MPI_Request,
    flag: OutArg<'_, c_int>,
    status: OutStatus<'_>,
) -> Result<()> {
    let found = find(mpi, request)?;
    let done = all_done(mpi, &[found]);
    flag.set(c_int::from(done));
    match found {
        FoundRequest::Inactive => status.set_empty(),
        _ if done => status.set(peek_status(mpi, found)),
        _ => {}
    }
    Ok(())
}

/// `MPI_Request_get_status_all`.
pub fn request_get_status_all(
    mpi: Mpi,
    requests: &[MPI_Request],
    flag: OutArg<'_, c_int>,
    statuses: OutStatuses<'_>,
) -> Result<()> {
    let found = find_all(mpi, requests)?;
    let done = all_done(mpi, &found);
    flag.set(c_int::from(done));
    if done {
        for (at, entry) in found.iter().enumerate() {
            match entry {
                FoundRequest::Inactive => statuses.set_empty(at),
                _ => statuses.set(at, peek_status(mpi, *entry)),
            }
        }
    }
    Ok(())
}

/// `MPI_Request_get_status_any`.
pub fn request_get_status_any(
    mpi: Mpi,
    requests: &[MPI_Request],
    index: OutArg<'_, c_int>,
    flag: OutArg<'_, c_int>,
    status: OutStatus<'_>,
) -> Result<()> {
    let found = find_all(mpi, requests)?;
    let nothing = found
        .iter()
        .all(|entry| matches!(entry, FoundRequest::Inactive));
    turn_unless_done(mpi, &found);
    let chosen = first_of_done(mpi, &found);
    flag.set(c_int::from(chosen.is_some() || nothing));
    index.set(chosen.map_or(MPI_UNDEFINED, small));
    match chosen {
        Some(at) => status.set(peek_status(mpi, found[at])),
        None if nothing => status.set_empty(),
        None => {}
    }
    Ok(())
}

/// `MPI_Request_get_status_some`.
pub fn request_get_status_some(
    mpi: Mpi,
    requests: &[MPI_Request],
    outcount: OutArg<'_, c_int>,
    indices: OutArray<'_, c_int>,
    statuses: OutStatuses<'_>,
) -> Result<()> {
    let found = find_all(mpi, requests)?;
    // Makes progress even if a request is complete. This call collects no request, so the program may call it again and
    // again with complete requests.
    turn_unless_done(mpi, &found);
    let done = done_ones(mpi, &found);
    for (slot, at) in done.iter().enumerate() {
        indices.set(slot, small(*at));
        statuses.set(slot, peek_status(mpi, found[*at]));
    }
    outcount.set(count_or_undefined(&found, done.len()));
    Ok(())
}

/// `MPI_Request_free`.
pub fn request_free(mpi: Mpi, request: InOutArg<'_, MPI_Request>) -> Result<()> {
    let handle = request.get();
    if handle == MPI_Request::NULL {
        return Err(Error::new(
            ErrorClass::REQUEST,
            "the request is MPI_REQUEST_NULL, there is nothing to free",
        ));
    }
    if handle == DEFERRED {
        mpi.visit(runtime::Universe::send_deferred);
    } else if handle != DONE && handle != DONE_NULL {
        let id = live(mpi, handle)?;
        if mpi.visit(|universe| universe.tasks.is_running(id)) {
            return Err(of_a_collective("freed before it is complete"));
        }
        if grequest::of(mpi, id).is_some() {
            request.set(MPI_Request::NULL);
            return grequest::free(mpi, id);
        }
        mpi.visit(|universe| universe.free(id));
    }
    request.set(MPI_Request::NULL);
    Ok(())
}

/// `MPI_Cancel`.
pub fn cancel(mpi: Mpi, request: InOutArg<'_, MPI_Request>) -> Result<()> {
    match find(mpi, request.get())? {
        FoundRequest::Live(id) => {
            if mpi.visit(|universe| universe.tasks.is_running(id)) {
                return Err(of_a_collective("cancelled"));
            }
            if let Some(general) = grequest::of(mpi, id) {
                return general.cancelled(mpi.visit(|universe| universe.messages.is_complete(id)));
            }
            mpi.visit(|universe| universe.cancel(id));
            Ok(())
        }
        // The request is complete, so it is too late to cancel it.
        FoundRequest::Done(_) => Ok(()),
        FoundRequest::Inactive => {
            let detail = "the request is null or not started, there is nothing to cancel";
            Err(Error::new(ErrorClass::REQUEST, detail))
        }
    }
}

/// `MPI_Start`.
pub fn start(mpi: Mpi, request: InOutArg<'_, MPI_Request>) -> Result<()> {
    startall(mpi, &mut [request.get()])
}

/// `MPI_Startall`.
pub fn startall(mpi: Mpi, requests: &mut [MPI_Request]) -> Result<()> {
    let first = mpi.visit(|universe| universe.tasks.next_number());
    let mut requests = requests.iter();
    let started = requests.try_for_each(|request| start_one(mpi, *request));
    run_new_tasks(mpi, first);
    // Opens the express lane for later starts.
    express_lanes::open();
    started
}

/// Completes an `MPI_Start` or `MPI_Startall`. The express lane has already started the first `from` requests. `None`
/// if `from` is 0.
#[cold]
#[inline(never)]
pub fn finish_startall(requests: &mut [MPI_Request], from: usize) -> Option<c_int> {
    (from > 0).then(|| {
        enter("MPI_Startall", On::Nothing, |mpi| {
            startall(mpi, &mut requests[from..])
        })
    })
}

fn start_one(mpi: Mpi, request: MPI_Request) -> Result<()> {
    if matches!(request, MPI_Request::NULL | DONE | DEFERRED | DONE_NULL) {
        return Err(not_startable("is not persistent"));
    }
    let id = live(mpi, request)?;
    let started = mpi.state(|state| {
        let universe = &mut state.universe;
        if !universe.messages.is_persistent(id) {
            return Err(not_startable("is not persistent"));
        }
        let fields = universe.messages.engine().arena().fields(id);
        if fields.state != runtime::RequestState::Inactive {
            return Err(not_startable("is started already and not complete"));
        }
        match fields.kind {
            RequestKind::Send => universe.sending().restart_send(id),
            RequestKind::Receive => universe.messages.restart_receive(id),
            _ => restart_other(state, id)?,
        }
        Ok(())
    });
    started.map_err(|error| {
        let context = mpi.visit(|universe| universe.messages.engine().arena().fields(id).context);
        on_its_comm(mpi, error, context)
    })
}

fn restart_other(state: &mut LibraryState, id: RequestId) -> Result<()> {
    if let Some((buffer, bytes)) = state.universe.messages.buffered_replay(id) {
        crate::buffer::check_room(state, buffer, bytes)?;
    }
    Ok(state.universe.restart_other(id)?)
}

/// The record for debuggers of a call that waits for a list of requests.
fn of_list(requests: &[MPI_Request]) -> Awaits {
    Awaits::List(RequestList {
        address: requests.as_ptr().addr(),
        count: requests.len(),
        base: request_handle(0).0,
    })
}

/// Waits for a request for which the program has no handle, collects it, and writes its status.
pub(crate) fn finish_alone(mpi: Mpi, id: RequestId, status: &OutStatus<'_>) -> Result<()> {
    mpi.wait_for(id);
    let (ended, context) = mpi.visit(|universe| {
        let context = universe.messages.engine().arena().fields(id).context;
        (universe.collect(id), context)
    });
    status.set(status_of(&ended));
    let raised = |error: runtime::Error| Err(on_its_comm(mpi, error.into(), context));
    ended.error.map_or(Ok(()), raised)
}

/// Converts a status of the runtime.
pub(crate) fn status_of(ended: &MessageStatus) -> MPI_Status {
    let mut status = match ended.source {
        Some(source) => MPI_Status::received(source, ended.tag, ended.bytes),
        None if ended.no_process => MPI_Status::PROC_NULL,
        None => {
            let mut status = MPI_Status::EMPTY;
            // The tasks of some operations, such as file operations, return a byte count. For all other operations
            // without a source, `bytes` is 0.
            status.set_bytes(ended.bytes);
            status
        }
    };
    status.set_cancelled(ended.cancelled);
    status
}

fn take(
    mpi: Mpi,
    id: RequestId,
    request: &InOutArg<'_, MPI_Request>,
    status: &OutStatus<'_>,
) -> Result<()> {
    let collected = collect(mpi, id, request.get())?;
    if collected.is_freed {
        request.set(MPI_Request::NULL);
    }
    let (ended, error) = status_and_error(mpi, collected);
    status.set(ended);
    error.map_or(Ok(()), Err)
}

/// A completed request that is being collected.
struct CollectedRequest {
    ended: MessageStatus,
    /// Whether the handle becomes `MPI_REQUEST_NULL`: the request is not persistent.
    is_freed: bool,
    context: u32,
    general: Option<Grequest>,
}

/// Collects a complete request. Returns an error if, after the lookup of the request, another entry of the list or
/// another thread has collected it; its slot may have been reused since.
fn collect(mpi: Mpi, id: RequestId, handle: MPI_Request) -> Result<CollectedRequest> {
    let collected = mpi.state(|state| {
        let universe = &mut state.universe;
        let token = universe.messages.token(id);
        universe.messages.find_request(token)?;
        let is_freed = !universe.messages.is_persistent(id);
        let context = universe.messages.engine().arena().fields(id).context;
        let ended = universe.collect(id);
        let general = match state.grequests.is_empty() {
            true => None,
            false => state.grequests.remove(&token),
        };
        Some(CollectedRequest {
            ended,
            is_freed,
            context,
            general,
        })
    });
    collected.ok_or_else(|| stale_request(handle))
}

fn status_and_error(mpi: Mpi, collected: CollectedRequest) -> (MPI_Status, Option<Error>) {
    if let Some(general) = collected.general {
        let (status, queried) = general.status();
        // The free function is called even if the query function failed.
        let freed = general.freed();
        return (status, queried.and(freed).err());
    }
    let status = status_of(&collected.ended);
    let raised = |error: runtime::Error| on_its_comm(mpi, error.into(), collected.context);
    (status, collected.ended.error.map(raised))
}

/// Sets the communicator of a request as the object on which the request's error is raised (MPI 5.0 section 9.3).
#[cold]
fn on_its_comm(mpi: Mpi, error: Error, context: u32) -> Error {
    match mpi.state(|state| state.comm_with_context(context)) {
        Some(comm) => error.raised_on(On::Comm(comm)),
        None => error,
    }
}

/// Collects an entry of a list. The entry becomes `MPI_REQUEST_NULL` unless its request is persistent.
fn take_entry(
    mpi: Mpi,
    request: &mut MPI_Request,
    found: FoundRequest,
) -> (MPI_Status, Option<Error>) {
    match found {
        FoundRequest::Inactive => (MPI_Status::EMPTY, None),
        FoundRequest::Done(known) => {
            *request = MPI_Request::NULL;
            (known, None)
        }
        FoundRequest::Live(id) => match collect(mpi, id, *request) {
            Ok(collected) => {
                if collected.is_freed {
                    *request = MPI_Request::NULL;
                }
                status_and_error(mpi, collected)
            }
            Err(error) => (MPI_Status::EMPTY, Some(error)),
        },
    }
}

/// Collects the requests from index `from` on, which are complete, and writes their statuses.
fn collect_all(
    mpi: Mpi,
    requests: &mut [MPI_Request],
    found: &[FoundRequest],
    statuses: &OutStatuses<'_>,
    from: usize,
) -> Result<()> {
    let mut errors = Vec::new();
    for (at, (request, entry)) in requests.iter_mut().zip(found).enumerate().skip(from) {
        let (status, error) = take_entry(mpi, request, *entry);
        match entry {
            FoundRequest::Inactive => statuses.set_empty(at),
            _ => statuses.set(at, status),
        }
        errors.extend(error.map(|error| (at, error)));
    }
    in_status(found.len(), errors, statuses)
}

/// The result of a call with a list: after errors, each status gets its own error code, and the call returns
/// `MPI_ERR_IN_STATUS` (MPI 5.0 section 3.7.5).
fn in_status(count: usize, errors: Vec<(usize, Error)>, statuses: &OutStatuses<'_>) -> Result<()> {
    let Some((first, error)) = errors.first() else {
        return Ok(());
    };
    let detail = format!("request {first} of {count}: {}", error.detail());
    for at in 0..count {
        statuses.set_error(at, MPI_SUCCESS);
    }
    for (at, error) in &errors {
        statuses.set_error(*at, error.class().0);
    }
    let class = if statuses.is_ignored() {
        error.class()
    } else {
        ErrorClass::IN_STATUS
    };
    let found = Error::new(class, detail);
    Err(match error.on() {
        Some(on) => found.raised_on(on),
        None => found,
    })
}

fn give_one(
    mpi: Mpi,
    requests: &mut [MPI_Request],
    found: &[FoundRequest],
    chosen: Option<usize>,
    index: &OutArg<'_, c_int>,
    status: &OutStatus<'_>,
) -> Result<()> {
    let Some(at) = chosen else {
        index.set(MPI_UNDEFINED);
        status.set_empty();
        return Ok(());
    };
    index.set(small(at));
    let (ended, error) = take_entry(mpi, &mut requests[at], found[at]);
    status.set(ended);
    error.map_or(Ok(()), Err)
}

fn give_some(
    mpi: Mpi,
    requests: &mut [MPI_Request],
    found: &[FoundRequest],
    outcount: &OutArg<'_, c_int>,
    indices: &OutArray<'_, c_int>,
    statuses: &OutStatuses<'_>,
) -> Result<()> {
    let done = done_ones(mpi, found);
    let mut errors = Vec::new();
    for (slot, at) in done.iter().enumerate() {
        let (status, error) = take_entry(mpi, &mut requests[*at], found[*at]);
        indices.set(slot, small(*at));
        statuses.set(slot, status);
        errors.extend(error.map(|error| (slot, error)));
    }
    outcount.set(count_or_undefined(found, done.len()));
    in_status(done.len(), errors, statuses)
}

fn count_or_undefined(found: &[FoundRequest], done: usize) -> c_int {
    if found
        .iter()
        .all(|entry| matches!(entry, FoundRequest::Inactive))
    {
        MPI_UNDEFINED
    } else {
        small(done)
    }
}

fn done_ones(mpi: Mpi, found: &[FoundRequest]) -> Vec<usize> {
    mpi.visit(|universe| {
        let is_done = |at: &usize| is_done(universe, &found[*at]);
        (0..found.len()).filter(is_done).collect()
    })
}

fn first_of_done(mpi: Mpi, found: &[FoundRequest]) -> Option<usize> {
    mpi.visit(|universe| found.iter().position(|entry| is_done(universe, entry)))
}

fn is_done(universe: &runtime::Universe, entry: &FoundRequest) -> bool {
    match entry {
        FoundRequest::Inactive => false,
        FoundRequest::Done(_) => true,
        FoundRequest::Live(id) => universe.messages.is_complete(*id),
    }
}

/// Makes progress. If there are active requests and none is complete, this rank may yield its core or sleep, as in
/// every test call that has found nothing.
fn turn_unless_done(mpi: Mpi, found: &[FoundRequest]) {
    let waits = |entry: &FoundRequest| !matches!(entry, FoundRequest::Inactive);
    if first_of_done(mpi, found).is_none() && found.iter().any(waits) {
        mpi.poll_turn();
    } else {
        mpi.turn();
    }
}

/// Index of the first complete request. Makes progress if no request is complete yet.
fn first_done(mpi: Mpi, found: &[FoundRequest]) -> Option<usize> {
    first_of_done(mpi, found).or_else(|| {
        mpi.poll_turn();
        first_of_done(mpi, found)
    })
}

fn is_done_now(mpi: Mpi, id: RequestId) -> bool {
    mpi.visit(|universe| universe.messages.is_complete(id)) || {
        mpi.poll_turn();
        mpi.visit(|universe| universe.messages.is_complete(id))
    }
}

fn all_done(mpi: Mpi, found: &[FoundRequest]) -> bool {
    let open = |universe: &runtime::Universe| {
        found.iter().any(
            |entry| matches!(entry, FoundRequest::Live(id) if !universe.messages.is_complete(*id)),
        )
    };
    !mpi.visit(|universe| open(universe)) || {
        mpi.poll_turn();
        !mpi.visit(|universe| open(universe))
    }
}

fn peek_status(mpi: Mpi, found: FoundRequest) -> MPI_Status {
    match found {
        FoundRequest::Inactive => MPI_Status::EMPTY,
        FoundRequest::Done(known) => known,
        FoundRequest::Live(id) => match grequest::of(mpi, id) {
            Some(general) => general.status().0,
            None => mpi.visit(|universe| status_of(&universe.status(id))),
        },
    }
}

/// The handle of a started request; `done`: its handle if it needs no slot.
pub(crate) fn handle_of(mpi: Mpi, request: Option<RequestId>, done: MPI_Request) -> MPI_Request {
    match request {
        None => done,
        Some(request) => request_handle(mpi.visit(|universe| universe.messages.token(request))),
    }
}

fn find_all(mpi: Mpi, requests: &[MPI_Request]) -> Result<Vec<FoundRequest>> {
    mpi.progress_briefly();
    let mut found = Vec::with_capacity(requests.len());
    for request in requests {
        found.push(find_now(mpi, *request)?);
    }
    Ok(found)
}

/// Looks up a request, and makes some progress: a wait for a complete request, or a test of it, makes no other
/// progress, and a program may make only such calls.
fn find(mpi: Mpi, request: MPI_Request) -> Result<FoundRequest> {
    mpi.progress_briefly();
    find_now(mpi, request)
}

fn find_now(mpi: Mpi, request: MPI_Request) -> Result<FoundRequest> {
    match request {
        MPI_Request::NULL => Ok(FoundRequest::Inactive),
        DONE => Ok(FoundRequest::Done(MPI_Status::EMPTY)),
        DEFERRED => {
            mpi.visit(runtime::Universe::send_deferred);
            Ok(FoundRequest::Done(MPI_Status::EMPTY))
        }
        DONE_NULL => Ok(FoundRequest::Done(MPI_Status::PROC_NULL)),
        _ => {
            let id = live(mpi, request)?;
            let inactive = mpi.visit(|universe| {
                universe.messages.engine().arena().fields(id).state
                    == runtime::RequestState::Inactive
            });
            Ok(if inactive {
                FoundRequest::Inactive
            } else {
                FoundRequest::Live(id)
            })
        }
    }
}

fn live(mpi: Mpi, request: MPI_Request) -> Result<RequestId> {
    let token = request_token(request)?;
    let found = mpi.visit(|universe| {
        let found = universe.messages.find_request(token)?;
        // A request that was freed while in progress completes by itself; its handle is stale.
        (!universe.messages.is_freed(found)).then_some(found)
    });
    found.ok_or_else(|| stale_request(request))
}

/// The error for an operation that is not permitted on the requests of collectives (MPI 5.0 section 6.12).
#[cold]
fn of_a_collective(what: &str) -> Error {
    let detail = format!("the request of a collective cannot be {what}; wait for it");
    Error::new(ErrorClass::REQUEST, detail)
}

fn not_startable(why: &str) -> Error {
    Error::new(ErrorClass::REQUEST, format!("the request {why}"))
}

fn small(index: usize) -> c_int {
    c_int::try_from(index).unwrap_or(c_int::MAX)
}
