// SPDX-License-Identifier: MIT OR Apache-2.0
//! The state of this process that is needed outside of the runtime: phase, identity, and the end of the job.
//!
//! Initialization sets rank and size with [`set_identity`], and the functions that look up handlers and names with
//! [`set_lookup`].

use core::ffi::c_int;
use core::fmt;
use std::fs;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, Ordering};
use std::sync::{OnceLock, PoisonError, RwLock};

use crate::enter::On;
use crate::errhandler::Handler;

/// The phase of MPI in this process.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum ProcessPhase {
    /// Neither `MPI_Init` nor a session yet.
    Before = 0,
    /// MPI may be called.
    Running = 1,
    /// `MPI_Finalize` is done.
    Finalized = 2,
}

static PHASE: AtomicU8 = AtomicU8::new(ProcessPhase::Before as u8);

/// The current phase.
#[inline]
pub fn phase() -> ProcessPhase {
    // PAIR(phase): `set_phase` stores with Release after initialization.
    match PHASE.load(Ordering::Acquire) {
        0 => ProcessPhase::Before,
        1 => ProcessPhase::Running,
        _ => ProcessPhase::Finalized,
    }
}

/// Sets the phase; called by initialization and finalization.
pub fn set_phase(phase: ProcessPhase) {
    // PAIR(phase): `phase` loads with Acquire.
    PHASE.store(phase as u8, Ordering::Release);
    runtime::var::pvars::set_phase(phase as u32);
}

/// The phase of the World Model (MPI 5.0 section 11.2): with sessions, MPI may be called outside of the World Model.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum World {
    /// `MPI_Init` was not called yet.
    Before = 0,
    /// Between `MPI_Init` and `MPI_Finalize`.
    Active = 1,
    /// `MPI_Finalize` was called.
    Finalized = 2,
}

static WORLD: AtomicU8 = AtomicU8::new(World::Before as u8);

/// The current phase of the World Model.
pub fn world() -> World {
    // PAIR(world): `set_world` stores with Release.
    match WORLD.load(Ordering::Acquire) {
        0 => World::Before,
        1 => World::Active,
        _ => World::Finalized,
    }
}

/// Sets the phase of the World Model; called by `MPI_Init` and `MPI_Finalize`.
pub fn set_world(world: World) {
    // PAIR(world): `world` loads with Acquire.
    WORLD.store(world as u8, Ordering::Release);
}

/// Number of calls of `MPI_T_init_thread` without a matching `MPI_T_finalize`.
static TOOLS: AtomicU32 = AtomicU32::new(0);

/// Whether the tool interface is initialized.
#[inline]
pub fn tools_are_on() -> bool {
    // PAIR(tools): `tool_begins` and `tool_ends` change it with Release.
    TOOLS.load(Ordering::Acquire) > 0
}

/// Counts a call of `MPI_T_init_thread`; `false` if the counter is full.
pub fn tool_begins() -> bool {
    let more = |uses: u32| uses.checked_add(1);
    // PAIR(tools): `tools_are_on` loads with Acquire.
    TOOLS
        .fetch_update(Ordering::AcqRel, Ordering::Relaxed, more)
        .is_ok()
}

/// Counts a call of `MPI_T_finalize`. Returns whether it matches a call of `MPI_T_init_thread`, and whether all these
/// calls are matched now.
pub fn tool_ends() -> (bool, bool) {
    let less = |uses: u32| uses.checked_sub(1);
    // PAIR(tools): `tools_are_on` loads with Acquire.
    let before = TOOLS.fetch_update(Ordering::AcqRel, Ordering::Relaxed, less);
    (before.is_ok(), before == Ok(1))
}

/// The identity of this process, for messages.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Identity {
    /// Rank in `MPI_COMM_WORLD`.
    pub rank: usize,
    /// Size of `MPI_COMM_WORLD`.
    pub size: usize,
}

impl fmt::Display for Identity {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            out,
            "rank {} of {} on host {}",
            self.rank,
            self.size,
            host()
        )
    }
}

static IDENTITY: OnceLock<Identity> = OnceLock::new();

/// Sets the identity; called by initialization.
pub fn set_identity(identity: Identity) {
    // This fails if an earlier initialization has set the identity. The identity never changes, so the failure is
    // ignored.
    let _ = IDENTITY.set(identity);
}

/// The identity as text. Before initialization it consists of pid and host, with the rank if the launcher's environment
/// has one.
pub fn identity() -> String {
    if let Some(identity) = IDENTITY.get() {
        return identity.to_string();
    }
    let rank = std::env::var("RMPI_RANK").ok();
    let rank = rank.and_then(|rank| rank.parse::<u32>().ok());
    let of = rank.map_or_else(String::new, |rank| format!(" of rank {rank}"));
    format!("process {}{of} on host {}", std::process::id(), host())
}

/// Size of `MPI_COMM_WORLD`; `None` before initialization.
pub fn world_size() -> Option<usize> {
    IDENTITY.get().map(|identity| identity.size)
}

/// The host's name, up to the first dot.
pub fn host() -> String {
    let full = fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    match full.trim().split('.').next() {
        Some(name) if !name.is_empty() => name.to_owned(),
        _ => "unknown".to_owned(),
    }
}

/// Functions of the initialized library that this module needs.
#[derive(Clone, Copy)]
pub struct Lookup {
    /// The error handler of an object.
    pub handler: fn(On) -> Handler,
    /// The name of an object, if it has one.
    pub name: fn(On) -> Option<String>,
    /// Ends every process of the job, with this exit code, because of the error in this text.
    pub end: fn(c_int, &str) -> !,
    /// Reports to the launcher that this function, which has no body, was called.
    pub missing: fn(&str),
}

static LOOKUP: RwLock<Option<Lookup>> = RwLock::new(None);

/// Sets the functions; called by initialization.
pub fn set_lookup(lookup: Lookup) {
    *LOOKUP.write().unwrap_or_else(PoisonError::into_inner) = Some(lookup);
}

fn lookup() -> Option<Lookup> {
    *LOOKUP.read().unwrap_or_else(PoisonError::into_inner)
}

/// The error handler of an object. Before initialization it is the initial handler, which is fatal (MPI 5.0 section
/// 9.3); for files, the handler that returns (section 14.7).
pub fn handler(on: On) -> Handler {
    match (lookup(), on) {
        (Some(lookup), _) => (lookup.handler)(on),
        (None, On::File(_)) => Handler::Return,
        (None, _) => Handler::Fatal,
    }
}

/// The name of an object, for messages.
pub fn name_of(on: On) -> Option<String> {
    lookup()
        .and_then(|lookup| (lookup.name)(on))
        .or_else(|| on.predefined_name().map(str::to_owned))
}

/// Ends the job because of an error that was printed already; `error` is a short form of its text for the launcher.
pub fn end(code: c_int, error: &str) -> ! {
    match lookup() {
        Some(lookup) => (lookup.end)(code, error),
        None => {
            runtime::flush_output();
            leave(code)
        }
    }
}

/// Reports the call of a function without a body to the launcher, because the program may end without printing the
/// error. Only the first such call is reported.
pub fn note_missing(function: &str) {
    static TOLD: AtomicBool = AtomicBool::new(false);
    if let Some(lookup) = lookup()
        && !TOLD.swap(true, Ordering::Relaxed)
    {
        (lookup.missing)(function);
    }
}

/// Ends this process immediately (see [`runtime::leave`]). The exit status is the low eight bits of the code, or 1 if
/// they are 0.
pub fn leave(code: c_int) -> ! {
    let status = code & 0xff;
    runtime::leave(if status == 0 { 1 } else { status })
}
