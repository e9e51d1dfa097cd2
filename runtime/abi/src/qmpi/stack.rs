// SPDX-License-Identifier: MIT OR Apache-2.0
//! The stack of tools. It is built from what the tools' callbacks register, and never changed after that.
//!
//! # Safety
//! Pointers of tools are stored and returned, never dereferenced.
#![allow(unsafe_code, reason = "stores pointers of tools")]

use core::ffi::{c_int, c_void};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use super::{Function, NextTool, QmpiContext, number_of};
use crate::qmpi_table::FUNCTIONS;

/// The form of a tool's functions.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Flavour {
    /// The form of the working group's mail: a context before MPI's arguments.
    Context,
    /// MPICH's form: a context and the tool's number before MPI's arguments.
    Number,
}

/// The registration of a tool.
#[derive(Clone, Debug)]
pub(super) struct ToolAnnouncement {
    pub(super) name: Vec<u8>,
    pub(super) callback: unsafe extern "C" fn(c_int),
    /// The library that was being loaded when the tool was registered; empty if no library was.
    pub(super) library: Vec<u8>,
}

/// One instance of a tool.
#[derive(Debug)]
struct ToolInstance {
    storage: *mut c_void,
    flavour: Option<Flavour>,
    /// The functions that the instance intercepts, by the number of the MPI function. Empty after the table of next
    /// callees is built from them.
    functions: Vec<Option<Function>>,
}

// SAFETY: the storage pointer is only returned to the tool.
unsafe impl Send for ToolInstance {}
// SAFETY: as above.
unsafe impl Sync for ToolInstance {}

/// All instances, the outermost first; the outermost has number 1.
#[derive(Debug)]
pub(super) struct Stack {
    instances: Vec<ToolInstance>,
    /// The next callee, by caller and function: a row of all functions for the program, followed by a row for each
    /// instance.
    next: Vec<NextTool>,
}

impl Stack {
    /// The callee after instance `above`: the first instance below that intercepts the function, or MPI.
    #[inline(always)]
    pub(super) fn below(&self, above: usize, function: usize) -> &NextTool {
        let row = above.checked_mul(FUNCTIONS.len());
        let at = row.and_then(|row| row.checked_add(function));
        at.and_then(|at| self.next.get(at))
            .unwrap_or(&NextTool::Mpi)
    }

    pub(super) fn flavour(&self, number: usize) -> Option<Flavour> {
        self.instances.get(number.checked_sub(1)?)?.flavour
    }

    pub(super) fn storage(&self, number: usize) -> Option<*mut c_void> {
        Some(self.instances.get(number.checked_sub(1)?)?.storage)
    }
}

/// The state while the stack is built.
#[derive(Debug, Default)]
pub(super) struct Builder {
    announced: Vec<ToolAnnouncement>,
    instances: Vec<ToolInstance>,
    /// The number of the instance whose callback runs; 0: no callback runs.
    active: usize,
    /// The library that is being loaded; empty if no library is being loaded.
    library: Vec<u8>,
    /// Whether the stack is built.
    is_settled: bool,
}

/// Maximum number of instances.
pub(super) const MAX_INSTANCES: usize = 256;

static BUILDER: Mutex<Builder> = Mutex::new(Builder {
    announced: Vec::new(),
    instances: Vec::new(),
    active: 0,
    library: Vec::new(),
    is_settled: false,
});
static STACK: OnceLock<Stack> = OnceLock::new();

/// The stack, once it is built and not empty.
#[inline(always)]
pub(super) fn stack() -> Option<&'static Stack> {
    STACK.get()
}

/// Locks the builder; not held while a callback runs.
pub(super) fn builder() -> MutexGuard<'static, Builder> {
    BUILDER.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Builder {
    /// Adds the registration of a tool. `false`: a tool of this name is registered already, or the stack is built.
    pub(super) fn announce(&mut self, mut tool: ToolAnnouncement) -> bool {
        if self.is_settled || self.named(&tool.name).is_some() {
            return false;
        }
        tool.library.clone_from(&self.library);
        self.announced.push(tool);
        true
    }

    /// Sets the library of the tools that are registered from now on.
    pub(super) fn set_library(&mut self, library: &[u8]) {
        library.clone_into(&mut self.library);
    }

    /// The tools that a library registered when it was loaded.
    pub(super) fn of_library(&self, library: &[u8]) -> impl Iterator<Item = &ToolAnnouncement> {
        self.announced
            .iter()
            .filter(move |tool| tool.library == library)
    }

    /// Number of instances.
    pub(super) fn count(&self) -> usize {
        self.instances.len()
    }

    pub(super) fn named(&self, name: &[u8]) -> Option<&ToolAnnouncement> {
        self.announced.iter().find(|tool| tool.name == name)
    }

    /// Names in order of registration.
    pub(super) fn names(&self) -> impl Iterator<Item = &[u8]> {
        self.announced.iter().map(|tool| tool.name.as_slice())
    }

    /// Begins an instance; returns its number, for its callback.
    pub(super) fn begin(&mut self) -> usize {
        self.instances.push(ToolInstance {
            storage: core::ptr::null_mut(),
            flavour: None,
            functions: vec![None; FUNCTIONS.len()],
        });
        self.active = self.instances.len();
        self.active
    }

    /// Ends an instance, after its callback.
    pub(super) fn end(&mut self) {
        self.active = 0;
    }

    /// Whether the callback of this instance runs.
    pub(super) fn is_active(&self, tool: c_int) -> bool {
        self.active != 0 && usize::try_from(tool) == Ok(self.active)
    }

    /// Stores the pointer of the active instance.
    pub(super) fn set_storage(&mut self, storage: *mut c_void) {
        if let Some(instance) = self.instances.last_mut() {
            instance.storage = storage;
        }
    }

    /// Records that the active instance intercepts a function. `false`: the instance already has functions of the other
    /// form.
    pub(super) fn intercept(
        &mut self,
        flavour: Flavour,
        function: usize,
        address: Function,
    ) -> bool {
        let Some(instance) = self.instances.last_mut() else {
            return false;
        };
        if *instance.flavour.get_or_insert(flavour) != flavour {
            return false;
        }
        instance.functions[function] = Some(address);
        true
    }

    /// Builds the stack from the registrations.
    pub(super) fn finish(&mut self) {
        self.is_settled = true;
        if self.instances.is_empty() {
            return;
        }
        let mut instances = core::mem::take(&mut self.instances);
        let next = next_table(&instances);
        for instance in &mut instances {
            instance.functions = Vec::new();
        }
        // Never fails: `list::settle` calls this function once.
        let _ = STACK.set(Stack { instances, next });
    }
}

/// Makes the table of next callees: a row of all functions for the program, followed by a row for each instance.
fn next_table(instances: &[ToolInstance]) -> Vec<NextTool> {
    let mut table = vec![NextTool::Mpi; (instances.len() + 1) * FUNCTIONS.len()];
    for function in 0..FUNCTIONS.len() {
        let mut below = NextTool::Mpi;
        for (at, instance) in instances.iter().enumerate().rev() {
            let context = QmpiContext(at + 1);
            if let (Some(address), Some(flavour)) = (instance.functions[function], instance.flavour)
            {
                below = match flavour {
                    Flavour::Context => NextTool::ByContext(address, context),
                    Flavour::Number => NextTool::ByNumber(address, context, number_of(at + 1)),
                };
            }
            table[at * FUNCTIONS.len() + function] = below;
        }
    }
    table
}
