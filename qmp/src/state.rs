// SPDX-License-Identifier: MIT OR Apache-2.0
//! The global state of the library.
//!
//! # Safety
//! One static. Below `QMP_THREAD_MULTIPLE` the program guarantees that one thread at a time is in the library; at that level a
//! lock does. The `RefCell` checks that visits do not nest: a visit calls neither the program nor an MPI function that waits or calls
//! the program.
#![allow(unsafe_code, reason = "the library's static")]

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
    /// Options of the command line.
    pub options: Options,
    /// Settings of the environment.
    pub settings: QmpSettings,
    /// Communicators.
    pub comms: HandleTable<QmpCommunicator>,
    /// The communicator of all nodes.
    pub allocated: usize,
    /// The communicator of this job.
    pub job: usize,
    /// The communicator of functions without a communicator argument.
    pub default: usize,
    /// Allocated memory.
    pub memories: HandleTable<AllocatedMemory>,
    /// Memory of declared messages.
    pub message_memories: HandleTable<MessageMemory>,
    /// Declared messages.
    pub messages: HandleTable<DeclaredMessage>,
    /// Binary reductions in progress.
    pub reductions: Vec<Reduction>,
    /// The result of `QMP_layout_grid`.
    pub layout: LatticeLayout,
    /// `QMP_verbose`
    pub verbose: c_int,
    /// `QMP_profcontrol`
    pub profiling: c_int,
    /// Seconds inside communication, counted while profiling is on.
    pub seconds: f64,
    /// Prefix of printed lines: node, number of nodes, and host.
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

/// Visits the state, whether QMP is initialised or not.
#[inline]
pub fn visit<R>(visit: impl FnOnce(&mut QmpState) -> R) -> R {
    let multiple = STATE.multiple.get();
    let _held = multiple.then(|| STATE.lock.lock().unwrap_or_else(PoisonError::into_inner));
    visit(&mut STATE.state.borrow_mut())
}

/// Visits the state; an error if QMP is not initialised.
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

/// Sets whether several threads may call at once; called while only one does.
pub fn set_multiple(multiple: bool) {
    STATE.multiple.set(multiple);
}

/// The state with its lock.
struct LockedState {
    multiple: Cell<bool>,
    lock: Mutex<()>,
    state: RefCell<QmpState>,
}

// SAFETY: `multiple` changes only while one thread calls; `state` is used by one thread at a time: see the head of the file.
// Its contents are plain data, or pointers that are not dereferenced here.
unsafe impl Sync for LockedState {}

static STATE: LockedState = LockedState {
    multiple: Cell::new(false),
    lock: Mutex::new(()),
    state: RefCell::new(QmpState::new()),
};
