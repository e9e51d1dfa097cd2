// SPDX-License-Identifier: MIT OR Apache-2.0
//! MPI 5.0 section 15.3.8: events. Each type of event is a row of [`runtime::var::events::EVENTS`]. There is one source
//! of events.
//!
//! Events are queued in the engine, and delivered to callbacks at two places: at the end of an MPI call, where a
//! callback may call MPI (unless the call has finalized MPI), and between two polls of a wait, where it must not. So
//! callbacks of every safety level are called. If a registration has callbacks and all of these may call MPI, no event
//! of any registration is delivered within waits. One thread at a time calls callbacks.
//!
//! While a registration has a callback, the express lane (the fast path of frequent calls, `express`) is closed.
//!
//! # Safety
//! Obligation **V1**: functions were passed to `MPI_T_event_register_callback`, `MPI_T_event_handle_free` or
//! `MPI_T_event_set_dropped_handler`, by whose contract they may be called with the program's pointer wherever their
//! safety level permits it. They are called without a lock of the library.
#![allow(unsafe_code, reason = "calls the functions of tools")]

use core::ffi::{CStr, c_int, c_void};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::ThreadId;

use runtime::Visit;
use runtime::var::events::{
    EVENTS, Element, ElementOrigin, ElementType as ElementKind, EventDescription, want, wanted,
};
use runtime::{EventRecord, EventRecordList, comm};

use crate::args::{ExtraState, InOutArg, OutArg, OutArrayPtr, OutChars, OutValue, ToolObject};
use crate::callback::{
    MPI_T_event_cb_function, MPI_T_event_dropped_cb_function, MPI_T_event_free_cb_function,
};
use crate::enter::Mpi;
use crate::error::ErrorClass;
use crate::handle::{
    MPI_Aint, MPI_Comm, MPI_Count, MPI_Datatype, MPI_Info, MPI_T_enum, MPI_T_event_instance,
    MPI_T_event_registration,
};
use crate::info::{self, InfoPairs};
use crate::process::{self, ProcessPhase};
use crate::tool::{Result, ToolError, at, number, put, put_text, verbosity};
use crate::tool_handles::{ToolHandleKind, ToolHandles, bits};
use crate::{c, clock, express_lanes, lock, state, tool_enum};

/// A pointer of the tool.
#[derive(Clone, Copy, Debug)]
struct UserData(*mut c_void);

// SAFETY: the pointer is never dereferenced here, only passed back to the tool.
unsafe impl Send for UserData {}

/// A function that is called for each event.
#[derive(Clone, Copy, Debug)]
struct Callback {
    function: MPI_T_event_cb_function,
    data: UserData,
}

/// The object of a registration handle.
#[derive(Debug)]
struct Registration {
    event: &'static EventDescription,
    /// The callback for each level of [`LEVELS`].
    callbacks: [Option<Callback>; LEVELS.len()],
    /// Number of events dropped since the last call of the dropped handler.
    dropped: u64,
    on_dropped: Option<MPI_T_event_dropped_cb_function>,
}

impl Registration {
    /// The callback to call at a place that requires the safety level `required`: of the callbacks whose level is at
    /// least that, the one with the lowest level.
    fn callback(&self, required: c_int) -> Option<Callback> {
        let mut levels = LEVELS.iter().zip(self.callbacks);
        levels.find_map(|(level, callback)| callback.filter(|_| *level >= required))
    }
}

/// The event for which callbacks are being called.
#[derive(Clone, Copy, Debug)]
struct EventInstance {
    /// The handle of the event.
    number: usize,
    row: &'static EventDescription,
    at: u64,
    /// The record of the event. `communicator` is the handle of the communicator in the record.
    record: EventRecord,
    communicator: MPI_Comm,
}

impl EventInstance {
    #[allow(
        clippy::cast_possible_truncation,
        reason = "elements that are ints were made of ints"
    )]
    fn value(&self, element: &Element) -> u64 {
        let words = &self.record.words;
        match element.from {
            ElementOrigin::Word(word) => words[word],
            ElementOrigin::Communicator(_) => self.communicator.0 as u64,
            ElementOrigin::Internal(word) => comm::is_internal(context(words[word])).into(),
        }
    }

    /// The bytes of an element.
    #[allow(
        clippy::cast_possible_truncation,
        reason = "elements that are ints were made of ints"
    )]
    fn bytes(&self, element: &Element) -> ([u8; 8], usize) {
        let value = self.value(element);
        let mut bytes = [0; 8];
        match element.kind {
            ElementKind::Int => bytes[..4].copy_from_slice(&(value as u32).to_ne_bytes()),
            ElementKind::Long => bytes = value.to_ne_bytes(),
        }
        (bytes, element.kind.bytes())
    }
}

#[allow(clippy::cast_possible_truncation, reason = "it was one")]
fn context(word: u64) -> runtime::ContextId {
    runtime::ContextId(word as u32)
}

/// A registration that was freed while callbacks were being called.
type Freed = (
    MPI_T_event_registration,
    UserData,
    MPI_T_event_free_cb_function,
);

/// All registrations of the process.
struct EventRegistry {
    registrations: ToolHandles<Registration>,
    /// The thread that is calling callbacks, if any.
    caller: Option<ThreadId>,
    instance: Option<EventInstance>,
    instances: u8,
    freed: Vec<Freed>,
    /// Whether events may be delivered within waits: each registration that has a callback has one that may be called
    /// there.
    allows_wait_callbacks: bool,
}

static BOOK: Mutex<EventRegistry> = Mutex::new(EventRegistry {
    registrations: ToolHandles::new(ToolHandleKind::Registration),
    caller: None,
    instance: None,
    instances: 0,
    freed: Vec::new(),
    allows_wait_callbacks: false,
});

fn book() -> MutexGuard<'static, EventRegistry> {
    BOOK.lock().unwrap_or_else(PoisonError::into_inner)
}

impl EventRegistry {
    fn find(&mut self, handle: MPI_T_event_registration) -> Result<&mut Registration> {
        let found = self.registrations.get_mut(handle.0);
        found.ok_or(ToolError(ErrorClass::T_INVALID_HANDLE))
    }

    fn instance(&self, handle: MPI_T_event_instance) -> Result<EventInstance> {
        let current = self.instance.filter(|current| current.number == handle.0);
        current.ok_or(ToolError(ErrorClass::T_INVALID_HANDLE))
    }

    /// To be called after a registration or a callback was added or removed: updates which events the engine records,
    /// and whether callbacks may run within waits. If there are callbacks, closes the express lane.
    fn changed(&mut self) {
        let mut events = 0;
        self.allows_wait_callbacks = true;
        for registration in self.registrations.iter() {
            if registration.callback(c::MPI_T_CB_REQUIRE_NONE).is_none() {
                continue;
            }
            events |= registration.event.event.bit();
            let within = registration.callback(c::MPI_T_CB_REQUIRE_MPI_RESTRICTED);
            self.allows_wait_callbacks &= within.is_some();
        }
        want(events);
        if events != 0 {
            close_lane();
        }
    }
}

/// The thread that has initialized MPI; set only if no other thread may call MPI.
static ONLY_THREAD: OnceLock<ThreadId> = OnceLock::new();

/// Called by the initialization of MPI, with the provided thread level.
pub fn begin(universe: &mut runtime::Universe, level: c_int) {
    universe.messages.set_clock(clock::ticks);
    if level <= c::MPI_THREAD_FUNNELED {
        // This cannot fail: a process initializes MPI once.
        let _ = ONLY_THREAD.set(std::thread::current().id());
    }
}

/// Whether this is the only thread that may call MPI.
pub fn is_only_thread() -> bool {
    ONLY_THREAD.get() == Some(&std::thread::current().id())
}

/// Closes the express lane if this thread is the only one that may call MPI. If it is not: below `MPI_THREAD_MULTIPLE`,
/// the end of the next ordinary MPI call closes the lane; at that level, the lane checks for events at each call.
fn close_lane() {
    if is_only_thread() {
        express_lanes::pause();
    }
}

/// Frees all registrations when the interface is finalized.
pub fn forget() {
    let mut book = book();
    book.registrations.clear();
    book.changed();
}

/// Queues an event of a communicator or call, if a tool has registered for it.
pub fn note(mpi: Mpi, event: runtime::EventType, words: [u64; runtime::WORDS]) {
    if wanted().has(event) {
        mpi.visit(|universe| universe.messages.note(event, words));
    }
}

/// Queues the event of a failed call.
#[cold]
pub fn note_error(class: ErrorClass) {
    let words = [i64::from(class.0).cast_unsigned(), 0, 0, 0, 0];
    // This fails only if a signal handler has called MPI, erroneously, during a visit of the state.
    let _ = state::peek(|state| {
        state
            .universe
            .messages
            .note(runtime::EventType::ErrorRaised, words);
    });
}

/// Delivers events at the end of an MPI call.
#[cold]
#[inline(never)]
pub fn after_call() {
    if !lock::is_multiple() {
        express_lanes::pause();
    }
    deliver(match process::phase() {
        ProcessPhase::Running => c::MPI_T_CB_REQUIRE_NONE,
        _ => c::MPI_T_CB_REQUIRE_MPI_RESTRICTED,
    });
}

/// Delivers events between two polls of a wait.
#[cold]
#[inline(never)]
pub fn within_wait(mpi: Mpi) {
    let has_records = mpi.visit(|universe| universe.messages.engine().has_records());
    if has_records && book().allows_wait_callbacks {
        lock::without(|| deliver(c::MPI_T_CB_REQUIRE_MPI_RESTRICTED));
    }
}

/// Delivers queued events, unless a thread is already doing so.
fn deliver(required: c_int) {
    {
        let mut book = book();
        if book.caller.is_some() {
            return;
        }
        book.caller = Some(std::thread::current().id());
    }
    let (records, communicators) = take();
    for (event, lost) in records.dropped.iter().enumerate() {
        add_dropped(event, *lost);
    }
    for (record, communicator) in records.list.into_iter().zip(communicators) {
        call_callbacks(record, communicator, required);
    }
    let freed = {
        let mut book = book();
        book.caller = None;
        core::mem::take(&mut book.freed)
    };
    for (registration, data, function) in freed {
        // SAFETY: V1.
        unsafe { function(registration, required, data.0) };
    }
}

/// Takes the queued records, with the communicator of each.
fn take() -> (EventRecordList, Vec<MPI_Comm>) {
    let taken = state::peek(|state| {
        if !state.universe.messages.engine().has_records() {
            return (EventRecordList::default(), Vec::new());
        }
        let records = state.universe.messages.take_records();
        let of = |record: &EventRecord| communicator(state, record);
        let communicators = records.list.iter().map(of).collect();
        (records, communicators)
    });
    taken.unwrap_or_default()
}

fn communicator(state: &state::LibraryState, record: &EventRecord) -> MPI_Comm {
    let row = &EVENTS[record.event as usize];
    let by_context = row.elements.iter().find_map(|element| match element.from {
        ElementOrigin::Communicator(word) => Some(record.words[word]),
        _ => None,
    });
    let found = by_context.and_then(|word| {
        let context = comm::of_messages(context(word));
        state.comm_with_context(context.0)
    });
    found.unwrap_or(MPI_Comm::NULL)
}

fn add_dropped(event: usize, lost: u64) {
    if lost == 0 {
        return;
    }
    for registration in book().registrations.iter_mut() {
        if registration.event.event as usize == event {
            registration.dropped += lost;
        }
    }
}

/// Calls all callbacks of an event.
fn call_callbacks(record: EventRecord, communicator: MPI_Comm, required: c_int) {
    let row = &EVENTS[record.event as usize];
    let mut places = 0;
    let handle = {
        let mut book = book();
        book.instances = book.instances.wrapping_add(1);
        let handle = bits(ToolHandleKind::Instance, 0, book.instances);
        book.instance = Some(EventInstance {
            number: handle,
            row,
            at: record.at,
            record,
            communicator,
        });
        handle
    };
    while let Some(call) = next_call(&mut places, row, required) {
        call.make(MPI_T_event_instance(handle), required);
    }
    book().instance = None;
}

/// A pending callback of a registration.
struct EventCallback {
    registration: MPI_T_event_registration,
    callback: Callback,
    dropped: Option<(u64, MPI_T_event_dropped_cb_function)>,
}

impl EventCallback {
    fn make(self, instance: MPI_T_event_instance, required: c_int) {
        let (registration, data) = (self.registration, self.callback.data.0);
        if let Some((lost, function)) = self.dropped {
            let lost = MPI_Count::try_from(lost).unwrap_or(MPI_Count::MAX);
            // SAFETY: V1.
            unsafe { function(lost, registration, SOURCE, required, data) };
        }
        let function = self.callback.function;
        // SAFETY: V1.
        unsafe { function(instance, registration, required, data) };
    }
}

/// The next registration for the event, from index `place` on, that has a callback for the level `required`. Counts the
/// event as dropped for each registration that has no such callback. Between two calls of this function, registrations
/// may be added and removed.
fn next_call(place: &mut usize, row: &EventDescription, required: c_int) -> Option<EventCallback> {
    let mut book = book();
    loop {
        let (handle, registration) = book.registrations.next_from(place)?;
        if registration.event.event != row.event {
            continue;
        }
        let Some(callback) = registration.callback(required) else {
            registration.dropped += 1;
            continue;
        };
        let dropped = match registration.on_dropped {
            Some(function) if registration.dropped > 0 => {
                Some((core::mem::take(&mut registration.dropped), function))
            }
            _ => None,
        };
        return Some(EventCallback {
            registration: MPI_T_event_registration(handle),
            callback,
            dropped,
        });
    }
}

/// `MPI_T_source_get_num`: there is one source.
pub fn source_get_num(num: OutArg<'_, c_int>) -> Result<()> {
    num.set(SOURCE + 1);
    Ok(())
}

/// `MPI_T_source_get_info`.
pub fn source_get_info(
    index: c_int,
    name: Option<OutChars<'_>>,
    name_len: Option<InOutArg<'_, c_int>>,
    desc: Option<OutChars<'_>>,
    desc_len: Option<InOutArg<'_, c_int>>,
    ordering: Option<OutArg<'_, c_int>>,
    ticks_per_second: Option<OutArg<'_, MPI_Count>>,
    max_ticks: Option<OutArg<'_, MPI_Count>>,
    info: Option<OutArg<'_, MPI_Info>>,
) -> Result<()> {
    source(index)?;
    put_text(name, name_len, "rmpi");
    put_text(desc, desc_len, SOURCE_TEXT);
    put(ordering, c::MPI_T_SOURCE_ORDERED);
    put(ticks_per_second, TICKS_PER_SECOND);
    put(max_ticks, MPI_Count::MAX);
    put_info(info, InfoPairs::default())
}

/// `MPI_T_source_get_timestamp`.
pub fn source_get_timestamp(index: c_int, timestamp: OutArg<'_, MPI_Count>) -> Result<()> {
    source(index)?;
    timestamp.set(count(clock::ticks()));
    Ok(())
}

fn source(index: c_int) -> Result<()> {
    match index {
        SOURCE => Ok(()),
        _ => Err(ToolError(ErrorClass::T_INVALID_INDEX)),
    }
}

fn put_info(place: Option<OutArg<'_, MPI_Info>>, pairs: InfoPairs) -> Result<()> {
    if let Some(place) = place {
        let made = info::insert(pairs);
        place.set(made.map_err(|_| ToolError(ErrorClass::T_OUT_OF_HANDLES))?);
    }
    Ok(())
}

fn count(ticks: u64) -> MPI_Count {
    MPI_Count::try_from(ticks).unwrap_or(MPI_Count::MAX)
}

/// `MPI_T_event_get_num`.
pub fn get_num(num: OutArg<'_, c_int>) -> Result<()> {
    num.set(number(EVENTS.len()));
    Ok(())
}

/// `MPI_T_event_get_info`. The info object has the names of the elements.
pub fn get_info(
    index: c_int,
    name: Option<OutChars<'_>>,
    name_len: Option<InOutArg<'_, c_int>>,
    verbose: Option<OutArg<'_, c_int>>,
    datatypes: Option<OutArrayPtr<'_, MPI_Datatype>>,
    displacements: Option<OutArrayPtr<'_, MPI_Aint>>,
    num_elements: Option<InOutArg<'_, c_int>>,
    enumtype: Option<OutArg<'_, MPI_T_enum>>,
    info: Option<OutArg<'_, MPI_Info>>,
    desc: Option<OutChars<'_>>,
    desc_len: Option<InOutArg<'_, c_int>>,
    bind: Option<OutArg<'_, c_int>>,
) -> Result<()> {
    let row = at(EVENTS.iter(), index)?;
    put_info(info, names(row))?;
    put_text(name, name_len, row.name);
    put_text(desc, desc_len, &row.describe());
    put(verbose, verbosity(row.verbosity));
    if let Some(num_elements) = num_elements {
        let room = usize::try_from(num_elements.get()).unwrap_or(0);
        let room = room.min(row.elements.len());
        if let Some(datatypes) = datatypes {
            let types = row.elements.iter().map(|element| type_of(element.kind));
            datatypes.slice(room)?.fill(types);
        }
        if let Some(displacements) = displacements {
            let places = row.displacements().map(usize::cast_signed);
            displacements.slice(room)?.fill(places);
        }
        num_elements.set(number(row.elements.len()));
    }
    put(enumtype, tool_enum::of_event(row));
    put(bind, c::MPI_T_BIND_NO_OBJECT);
    Ok(())
}

fn type_of(kind: ElementKind) -> MPI_Datatype {
    match kind {
        ElementKind::Int => MPI_Datatype::INT,
        ElementKind::Long => MPI_Datatype::UNSIGNED_LONG_LONG,
    }
}

fn names(row: &EventDescription) -> InfoPairs {
    let names: Vec<&str> = row.elements.iter().map(|element| element.name).collect();
    let mut pairs = InfoPairs::default();
    if let Ok(names) = std::ffi::CString::new(names.join(",")) {
        pairs.set(c"rmpi_elements", &names);
    }
    pairs
}

/// `MPI_T_event_get_index`.
pub fn get_index(name: &CStr, index: OutArg<'_, c_int>) -> Result<()> {
    let is_it = |row: &EventDescription| row.name.as_bytes() == name.to_bytes();
    let found = EVENTS.iter().position(is_it);
    index.set(number(found.ok_or(ToolError(ErrorClass::T_INVALID_NAME))?));
    Ok(())
}

/// `MPI_T_event_handle_alloc`: no event is bound to an object.
pub fn handle_alloc(
    index: c_int,
    _obj_handle: ToolObject<'_>,
    hints: MPI_Info,
    registration: OutArg<'_, MPI_T_event_registration>,
) -> Result<()> {
    let event = at(EVENTS.iter(), index)?;
    check_info(hints)?;
    let made = book().registrations.insert(Registration {
        event,
        callbacks: [None; LEVELS.len()],
        dropped: 0,
        on_dropped: None,
    });
    registration.set(MPI_T_event_registration(
        made.ok_or(ToolError(ErrorClass::T_OUT_OF_HANDLES))?,
    ));
    Ok(())
}

/// Checks an info argument. There are no hints, so every info object is accepted.
fn check_info(hints: MPI_Info) -> Result<()> {
    match info::hints(hints) {
        Ok(_) => Ok(()),
        Err(_) => Err(ToolError(ErrorClass::T_INVALID)),
    }
}

/// `MPI_T_event_handle_set_info`.
pub fn handle_set_info(registration: MPI_T_event_registration, hints: MPI_Info) -> Result<()> {
    book().find(registration)?;
    check_info(hints)
}

/// `MPI_T_event_handle_get_info`: a new, empty object, since there are no hints.
pub fn handle_get_info(
    registration: MPI_T_event_registration,
    info_used: Option<OutArg<'_, MPI_Info>>,
) -> Result<()> {
    book().find(registration)?;
    put_info(info_used, InfoPairs::default())
}

/// `MPI_T_event_register_callback`. Without a function, removes the callback of this level.
pub fn register_callback(
    registration: MPI_T_event_registration,
    safety: c_int,
    hints: MPI_Info,
    data: ExtraState,
    function: Option<MPI_T_event_cb_function>,
) -> Result<()> {
    let mut book = book();
    let found = book.find(registration)?;
    let level = level(safety)?;
    check_info(hints)?;
    let data = UserData(data.0);
    found.callbacks[level] = function.map(|function| Callback { function, data });
    book.changed();
    Ok(())
}

/// The index of a safety level.
fn level(safety: c_int) -> Result<usize> {
    let found = LEVELS.iter().position(|level| *level == safety);
    found.ok_or(ToolError(ErrorClass::T_INVALID))
}

/// Checks that a registration has a callback of a level.
fn callback(registration: MPI_T_event_registration, safety: c_int) -> Result<()> {
    let mut book = book();
    let found = book.find(registration)?;
    match found.callbacks[level(safety)?] {
        Some(_) => Ok(()),
        None => Err(ToolError(ErrorClass::T_INVALID)),
    }
}

/// `MPI_T_event_callback_set_info`.
pub fn callback_set_info(
    registration: MPI_T_event_registration,
    safety: c_int,
    hints: MPI_Info,
) -> Result<()> {
    callback(registration, safety)?;
    check_info(hints)
}

/// `MPI_T_event_callback_get_info`.
pub fn callback_get_info(
    registration: MPI_T_event_registration,
    safety: c_int,
    info_used: Option<OutArg<'_, MPI_Info>>,
) -> Result<()> {
    callback(registration, safety)?;
    put_info(info_used, InfoPairs::default())
}

/// `MPI_T_event_handle_free`: the registration's callbacks are not called any more. The program's function is called
/// immediately or, if events are being delivered, after this delivery.
pub fn handle_free(
    registration: MPI_T_event_registration,
    data: ExtraState,
    function: Option<MPI_T_event_free_cb_function>,
) -> Result<()> {
    let mut book = book();
    let freed = book.registrations.remove(registration.0);
    freed.ok_or(ToolError(ErrorClass::T_INVALID_HANDLE))?;
    book.changed();
    let Some(function) = function else {
        return Ok(());
    };
    if book.caller.is_some() {
        book.freed.push((registration, UserData(data.0), function));
        return Ok(());
    }
    drop(book);
    // SAFETY: V1.
    unsafe { function(registration, c::MPI_T_CB_REQUIRE_MPI_RESTRICTED, data.0) };
    Ok(())
}

/// `MPI_T_event_set_dropped_handler`; without a function, removes the handler.
pub fn set_dropped_handler(
    registration: MPI_T_event_registration,
    function: Option<MPI_T_event_dropped_cb_function>,
) -> Result<()> {
    book().find(registration)?.on_dropped = function;
    Ok(())
}

/// `MPI_T_event_read`.
pub fn read(instance: MPI_T_event_instance, element: c_int, buffer: OutValue<'_>) -> Result<()> {
    let instance = book().instance(instance)?;
    let element = at(instance.row.elements.iter(), element)?;
    let (bytes, length) = instance.bytes(element);
    Ok(buffer.set(&bytes[..length])?)
}

/// `MPI_T_event_copy`: copies all elements to their displacements, with zeros in the gaps.
pub fn copy(instance: MPI_T_event_instance, buffer: OutValue<'_>) -> Result<()> {
    let instance = book().instance(instance)?;
    let mut all = Vec::new();
    let places = instance.row.displacements();
    for (place, element) in places.zip(instance.row.elements) {
        let (bytes, length) = instance.bytes(element);
        all.resize(place, 0);
        all.extend_from_slice(&bytes[..length]);
    }
    Ok(buffer.set(&all)?)
}

/// `MPI_T_event_get_timestamp`.
pub fn get_timestamp(
    instance: MPI_T_event_instance,
    timestamp: OutArg<'_, MPI_Count>,
) -> Result<()> {
    timestamp.set(count(book().instance(instance)?.at));
    Ok(())
}

/// `MPI_T_event_get_source`.
pub fn get_source(instance: MPI_T_event_instance, index: OutArg<'_, c_int>) -> Result<()> {
    book().instance(instance)?;
    index.set(SOURCE);
    Ok(())
}

/// The safety levels, the lowest first (MPI 5.0 section 15.3.8).
const LEVELS: [c_int; 4] = [
    c::MPI_T_CB_REQUIRE_NONE,
    c::MPI_T_CB_REQUIRE_MPI_RESTRICTED,
    c::MPI_T_CB_REQUIRE_THREAD_SAFE,
    c::MPI_T_CB_REQUIRE_ASYNC_SIGNAL_SAFE,
];

/// The index of the only source.
const SOURCE: c_int = 0;
const SOURCE_TEXT: &str = "The library in this process. Timestamps are nanoseconds of the clock of MPI_Wtime, so those of ranks of \
                           one host compare.";
const TICKS_PER_SECOND: MPI_Count = 1_000_000_000;
