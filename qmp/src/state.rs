// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the library keeps from initialisation to the end.
//!
//! # Safety
//! One static. Below `QMP_THREAD_MULTIPLE` one thread at a time is in here by the program's promise; at that level a lock
//! sees to it. The cell itself checks that visits do not nest: a visit calls neither the program nor anything of MPI that
//! waits or calls the program.
#![allow(unsafe_code, reason = "the one static of the library")]

use core::cell::{Cell, RefCell};
use core::ffi::c_int;
use std::ffi::CString;
use std::sync::{Mutex, PoisonError};

use crate::channel::{DeclaredMessage, MessageMemory};
use crate::command_line::Options;
use crate::global::Reduction;
use crate::handle::{HandleTable, QmpHandleKind};
use crate::machine::{LatticeLayout, QmpCommunicator};
use crate::memory::AllocatedMemory;
use crate::settings::QmpSettings;
use crate::status::{QmpFailure, QmpStatus, Result};

/// The state of the library in this process.
pub struct QmpState {
    /// Between `QMP_init_msg_passing` and `QMP_finalize_msg_passing`.
    pub running: bool,
    /// MPI was initialised by QMP, which therefore finalises it.
    pub owns_mpi: bool,
    /// The command line.
    pub options: Options,
    /// The environment.
    pub settings: QmpSettings,
    /// Communicators.
    pub comms: HandleTable<QmpCommunicator>,
    /// The communicator of all nodes.
    pub allocated: usize,
    /// That of this job.
    pub job: usize,
    /// That of the functions that name none.
    pub default: usize,
    /// Memory that was given out.
    pub memories: HandleTable<AllocatedMemory>,
    /// Declared memory.
    pub message_memories: HandleTable<MessageMemory>,
    /// Declared messages.
    pub messages: HandleTable<DeclaredMessage>,
    /// Reductions under way with functions of the program.
    pub reductions: Vec<Reduction>,
    /// What `QMP_layout_grid` found.
    pub layout: LatticeLayout,
    /// `QMP_verbose`
    pub verbose: c_int,
    /// `QMP_profcontrol`
    pub profiling: c_int,
    /// Seconds inside communication, counted while profiling is on.
    pub seconds: f64,
    /// Head of what is printed: node, nodes and host.
    pub prefix: Option<CString>,
}

impl QmpState {
    const fn new() -> Self {
        Self {
            running: false,
            owns_mpi: false,
            options: Options::NONE,
            settings: QmpSettings::DEFAULT,
            comms: HandleTable::new(QmpHandleKind::Comm),
            allocated: 0,
            job: 0,
            default: 0,
            memories: HandleTable::new(QmpHandleKind::Memory),
            message_memories: HandleTable::new(QmpHandleKind::MessageMemory),
            messages: HandleTable::new(QmpHandleKind::Message),
            reductions: Vec::new(),
            layout: LatticeLayout::NONE,
            verbose: 0,
            profiling: 0,
            seconds: 0.0,
            prefix: None,
        }
    }
}

/// Visits the state, whether QMP runs or not.
#[inline]
pub fn visit<R>(visit: impl FnOnce(&mut QmpState) -> R) -> R {
    let multiple = CAGE.multiple.get();
    let _held = multiple.then(|| CAGE.lock.lock().unwrap_or_else(PoisonError::into_inner));
    visit(&mut CAGE.state.borrow_mut())
}

/// Visits the state of a running QMP.
#[inline]
pub fn running<R>(body: impl FnOnce(&mut QmpState) -> Result<R>) -> Result<R> {
    visit(|state| {
        if state.running {
            body(state)
        } else {
            let text =
                "call QMP_init_msg_passing first, and nothing after QMP_finalize_msg_passing";
            Err(QmpFailure::new(QmpStatus::NOT_INITED, text))
        }
    })
}

/// Says whether several threads may call at once; called while only one does.
pub fn set_multiple(multiple: bool) {
    CAGE.multiple.set(multiple);
}

/// The state with its lock.
struct LockedState {
    multiple: Cell<bool>,
    lock: Mutex<()>,
    state: RefCell<QmpState>,
}

// SAFETY: `multiple` changes only while one thread calls; `state` is used by one thread at a time: see the head of the file.
// What it holds is plain data, or pointers that are only handed on.
unsafe impl Sync for LockedState {}

static CAGE: LockedState = LockedState {
    multiple: Cell::new(false),
    lock: Mutex::new(()),
    state: RefCell::new(QmpState::new()),
};
