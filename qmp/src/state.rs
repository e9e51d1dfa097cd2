// SPDX-License-Identifier: MIT OR Apache-2.0
//! The global state of the library.
//!
//! # Safety
//! The state is one static. Below `QMP_THREAD_MULTIPLE` the program guarantees that one thread at a time is in the
//! library; at `QMP_THREAD_MULTIPLE` a lock ensures it. The `RefCell` checks that no function uses the state inside
//! another that uses it. A function that uses the state must not call the program, or an MPI function that waits or
//! calls the program.
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
    /// Whether QMP is initialised and not finalised.
    pub running: bool,
    /// Whether QMP initialised MPI, and therefore finalises it.
    pub owns_mpi: bool,
    /// Options of the command line.
    pub options: Options,
    /// Settings from the environment.
    pub settings: QmpSettings,
    /// Communicators.
    pub comms: HandleTable<QmpCommunicator>,
    /// Handle of the communicator of all nodes.
    pub allocated: usize,
    /// Handle of the communicator of this job.
    pub job: usize,
    /// Handle of the communicator that functions without a communicator argument use.
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
    /// Seconds spent in waits for messages and in global operations, counted while profiling is on.
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

/// Passes the state to `visit`, whether QMP is initialised or not.
#[inline]
pub fn visit<R>(visit: impl FnOnce(&mut QmpState) -> R) -> R {
    let multiple = STATE.multiple.get();
    let _held = multiple.then(|| STATE.lock.lock().unwrap_or_else(PoisonError::into_inner));
    visit(&mut STATE.state.borrow_mut())
}

/// Passes the state to `body`; an error if QMP is not initialised.
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

/// Sets whether several threads may call the library at the same time. To be called while only one thread is in the
/// library.
pub fn set_multiple(multiple: bool) {
    STATE.multiple.set(multiple);
}

/// The state with its lock.
struct LockedState {
    multiple: Cell<bool>,
    lock: Mutex<()>,
    state: RefCell<QmpState>,
}

// SAFETY: `multiple` changes only while one thread is in the library; `state` is used by one thread at a time: see the
// head of the file. Its contents are plain data, or pointers that are not dereferenced here.
unsafe impl Sync for LockedState {}

static STATE: LockedState = LockedState {
    multiple: Cell::new(false),
    lock: Mutex::new(()),
    state: RefCell::new(QmpState::new()),
};
