// SPDX-License-Identifier: MIT OR Apache-2.0
//! The stack of tools: built while their callbacks run, and never changed after that.
//!
//! # Safety
//! Tools' own pointers are kept and handed back, never looked behind.
#![allow(unsafe_code, reason = "keeps pointers of tools")]

use core::ffi::{c_int, c_void};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use super::{Function, NextTool, QmpiContext, number_of};
use crate::qmpi_table::FUNCTIONS;

/// The form of a tool's functions.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Flavour {
    /// The mail's: a context before MPI's arguments.
    Context,
    /// MPICH's: a context and the tool's number before them.
    Number,
}

/// What a tool says when it is loaded.
#[derive(Clone, Debug)]
pub(super) struct ToolAnnouncement {
    pub(super) name: Vec<u8>,
    pub(super) callback: unsafe extern "C" fn(c_int),
    /// The library that was being loaded for it; nothing where it was there before.
    pub(super) library: Vec<u8>,
}

/// One instance of a tool.
#[derive(Debug)]
struct ToolInstance {
    storage: *mut c_void,
    flavour: Option<Flavour>,
    /// What it intercepts; empty once that is in the table.
    functions: Vec<Option<Function>>,
}

// SAFETY: the storage is the tool's own, and only handed back to it.
unsafe impl Send for ToolInstance {}
// SAFETY: as above.
unsafe impl Sync for ToolInstance {}

/// All instances, the outermost first; the first has number 1.
#[derive(Debug)]
pub(super) struct Stack {
    instances: Vec<ToolInstance>,
    /// By instance (0 is the program) and function: who is called next.
    next: Vec<NextTool>,
}

impl Stack {
    /// Who is called behind number `above`: the first below it that intercepts the function, or MPI.
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

/// The stack as it is built.
#[derive(Debug, Default)]
pub(super) struct Builder {
    announced: Vec<ToolAnnouncement>,
    instances: Vec<ToolInstance>,
    /// The number of the instance whose callback runs; 0: none does.
    active: usize,
    /// The library that is being loaded.
    library: Vec<u8>,
    /// Which tools there are is settled.
    is_settled: bool,
}

/// Most instances in one stack.
pub(super) const MAX_INSTANCES: usize = 256;

static BUILDER: Mutex<Builder> = Mutex::new(Builder {
    announced: Vec::new(),
    instances: Vec::new(),
    active: 0,
    library: Vec::new(),
    is_settled: false,
});
static STACK: OnceLock<Stack> = OnceLock::new();

/// The stack, once it is settled and not empty.
#[inline(always)]
pub(super) fn stack() -> Option<&'static Stack> {
    STACK.get()
}

/// The builder; not held while a callback runs.
pub(super) fn builder() -> MutexGuard<'static, Builder> {
    BUILDER.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Builder {
    /// Takes a tool's announcement. `false`: there is one of this name, or it is too late.
    pub(super) fn announce(&mut self, mut tool: ToolAnnouncement) -> bool {
        if self.is_settled || self.named(&tool.name).is_some() {
            return false;
        }
        tool.library.clone_from(&self.library);
        self.announced.push(tool);
        true
    }

    /// Tools that are announced from now on belong to this library.
    pub(super) fn set_library(&mut self, library: &[u8]) {
        library.clone_into(&mut self.library);
    }

    /// The tools that a library announced when it was loaded.
    pub(super) fn of_library(&self, library: &[u8]) -> impl Iterator<Item = &ToolAnnouncement> {
        self.announced
            .iter()
            .filter(move |tool| tool.library == library)
    }

    /// How many instances there are.
    pub(super) fn count(&self) -> usize {
        self.instances.len()
    }

    pub(super) fn named(&self, name: &[u8]) -> Option<&ToolAnnouncement> {
        self.announced.iter().find(|tool| tool.name == name)
    }

    /// Names in the order in which they were announced.
    pub(super) fn names(&self) -> impl Iterator<Item = &[u8]> {
        self.announced.iter().map(|tool| tool.name.as_slice())
    }

    /// Begins an instance: its number, for its callback.
    pub(super) fn begin(&mut self) -> usize {
        self.instances.push(ToolInstance {
            storage: core::ptr::null_mut(),
            flavour: None,
            functions: vec![None; FUNCTIONS.len()],
        });
        self.active = self.instances.len();
        self.active
    }

    /// The callback has returned.
    pub(super) fn end(&mut self) {
        self.active = 0;
    }

    /// Whether the callback of this instance runs.
    pub(super) fn is_active(&self, tool: c_int) -> bool {
        self.active != 0 && usize::try_from(tool) == Ok(self.active)
    }

    /// Keeps what the instance at work wants to be reminded of.
    pub(super) fn set_storage(&mut self, storage: *mut c_void) {
        if let Some(instance) = self.instances.last_mut() {
            instance.storage = storage;
        }
    }

    /// Lets the instance at work intercept a function. `false`: it has functions of the other form.
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

    /// Makes the stack of what was registered.
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
        // Called once (`list::settle`).
        let _ = STACK.set(Stack { instances, next });
    }
}

/// By instance, the program first, and function.
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
