// SPDX-License-Identifier: MIT OR Apache-2.0
//! The symbols of the MPIR process acquisition interface 1.1, which debuggers read and write in this process, and the
//! debug information that describes their types.
//!
//! A tool finds the symbols by name, reads and writes them while this process is stopped, and sets a breakpoint in
//! [`breakpoint`]. `MPIR_ignore_queues` is absent on purpose: a tool that finds it shows no message queues.
//!
//! # Safety
//! - The exported names are those of the interface, except `rmpi_launcher`. No other symbol of this program has any of
//!   these names.
//! - [`Shared`] holds memory that this process and a tool write. In this process only the single [`Starter`] accesses
//!   the memory, on the thread that owns the `Starter`. A tool accesses the memory only while this process is stopped.
//!   So no two accesses overlap. The compiler cannot see the accesses of a tool, so all accesses of this process are
//!   volatile, except stores to table rows. A tool only reads rows, and only at the breakpoint, an `asm!` across which
//!   the compiler moves no store.
//! - Pointers in [`Shared`] memory point to memory that is never freed, since a tool may follow them at any time.
#![allow(unsafe_code, clippy::disallowed_types)]

use std::arch::{asm, global_asm};
use std::cell::UnsafeCell;
use std::ffi::{CStr, CString, c_char, c_int};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::OnceLock;

/// A row of the process table, `MPIR_PROCDESC` in C.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
struct ProcessTableRow {
    host_name: *const c_char,
    executable_name: *const c_char,
    pid: c_int,
}

const _: () =
    assert!(size_of::<ProcessTableRow>() == 24 && std::mem::offset_of!(ProcessTableRow, pid) == 16);

/// A text that is never freed, since a tool may read it at any time.
pub(crate) type Name = &'static CStr;

/// Leaks a text.
pub(crate) fn leak(name: CString) -> Name {
    Box::leak(name.into_boxed_c_str())
}

/// The process table: one row per rank. No other data is kept per rank, since there may be many ranks.
#[derive(Debug)]
pub(crate) struct ProcessTable {
    rows: &'static mut [ProcessTableRow],
    /// Rows without a process.
    missing: usize,
}

impl ProcessTable {
    /// The table of a job with these programs and their numbers of ranks; the programs are in the order of the ranks.
    pub(crate) fn of(programs: &[(Name, u32)]) -> Self {
        let number = programs.iter().map(|(_, ranks)| *ranks as usize).sum();
        let mut rows = Vec::with_capacity(number);
        for (program, ranks) in programs {
            let row = ProcessTableRow {
                host_name: c"".as_ptr(),
                executable_name: program.as_ptr(),
                pid: 0,
            };
            rows.extend((0..*ranks).map(|_| row));
        }
        Self {
            rows: rows.leak(),
            missing: number,
        }
    }

    /// Sets the path of a rank's program on its host.
    pub(crate) fn set_program(&mut self, rank: u32, program: Name) {
        if let Some(row) = self.rows.get_mut(rank as usize) {
            row.executable_name = program.as_ptr();
        }
    }

    /// Sets a rank's process and the name of its host, which other hosts can resolve.
    pub(crate) fn set_process(&mut self, rank: u32, host: Name, pid: u32) {
        if let Some(row) = self.rows.get_mut(rank as usize) {
            self.missing -= usize::from(row.pid == 0);
            row.host_name = host.as_ptr();
            // Pid 0 is not stored, because it means that there is no process.
            row.pid = pid.cast_signed().max(1);
        }
    }

    /// The pid of a rank if the pid is known and the rank is on host `host`. `host` must be the pointer that was passed
    /// to [`set_process`](Self::set_process).
    pub(crate) fn process_on(&self, rank: u32, host: Name) -> Option<u32> {
        let row = self.rows.get(rank as usize)?;
        let is_there = row.pid != 0 && std::ptr::eq(row.host_name, host.as_ptr());
        is_there.then_some(row.pid.cast_unsigned())
    }

    /// Whether all ranks have a pid.
    pub(crate) fn is_complete(&self) -> bool {
        self.missing == 0
    }
}

/// Why this process stops at the breakpoint: the value of `MPIR_debug_state`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DebugState {
    /// All ranks have a process, and the table is published.
    Spawned = 1,
    /// The job is being ended.
    Aborting = 2,
}

/// A command that a tool requests to be started on each host: the program and its arguments.
pub(crate) type ToolCommand = Vec<CString>;

/// This process's access to the symbols.
#[derive(Debug)]
pub(crate) struct Starter(());

impl Starter {
    /// Takes the only instance; `None` if the instance was taken already.
    pub(crate) fn take() -> Option<Self> {
        static TAKEN: OnceLock<()> = OnceLock::new();
        TAKEN.set(()).ok().map(|()| Self(()))
    }

    /// Whether a tool has started this process or has attached to it later.
    pub(crate) fn is_being_debugged(&self) -> bool {
        BEING_DEBUGGED.read() != 0
    }

    /// Publishes the table, permanently.
    pub(crate) fn publish(&mut self, table: &ProcessTable) {
        PROCTABLE.write(table.rows.as_ptr());
        // The size is written last, so a tool that reads a size other than 0 finds the table.
        PROCTABLE_SIZE.write(c_int::try_from(table.rows.len()).unwrap_or(c_int::MAX));
    }

    /// Sets the state and calls the function that has the tool's breakpoint.
    pub(crate) fn report(&mut self, state: DebugState) {
        DEBUG_STATE.write(state as c_int);
        breakpoint();
    }

    /// Publishes the reason for the abort.
    pub(crate) fn name_cause(&mut self, cause: &str) {
        let cause = CString::new(cause.replace('\0', " ")).unwrap_or_default();
        ABORT_STRING.write(cause.into_raw());
    }

    /// Publishes the path of the FIFO to which a tool writes a byte after it has stored a command to start.
    pub(crate) fn name_fifo(&mut self, path: &str) {
        ATTACH_FIFO.write(padded(path.as_bytes()));
    }

    /// Publishes the path of the message queue library.
    pub(crate) fn name_queue_library(&mut self, path: &Path) {
        DLL_NAME.write(padded(path.as_os_str().as_bytes()));
    }

    /// The command that a tool has requested, if any.
    pub(crate) fn tool(&self) -> Option<ToolCommand> {
        let path = EXECUTABLE_PATH.read();
        let arguments = SERVER_ARGUMENTS.read();
        let path = first_argument(&path).filter(|path| !path.is_empty())?;
        let mut command = vec![path.to_owned()];
        let mut rest = &arguments[..];
        while let Some(argument) = first_argument(rest).filter(|argument| !argument.is_empty()) {
            rest = &rest[argument.to_bytes_with_nul().len()..];
            command.push(argument.to_owned());
        }
        Some(command)
    }
}

/// The text up to the first NUL; `None` if there is no NUL.
fn first_argument(bytes: &[u8]) -> Option<&CStr> {
    CStr::from_bytes_until_nul(bytes).ok()
}

/// The text padded with NULs to `N` bytes; all zero if there is no room for a terminating NUL.
fn padded<const N: usize>(text: &[u8]) -> [u8; N] {
    let mut bytes = [0; N];
    if text.len() < N {
        bytes[..text.len()].copy_from_slice(text);
    }
    bytes
}

/// Memory that a tool may read and write whenever this process is stopped.
#[repr(transparent)]
struct Shared<T>(UnsafeCell<T>);

// SAFETY: only the single `Starter` accesses the contents, so only one thread does, even if `T` is not `Sync`.
unsafe impl<T> Sync for Shared<T> {}

impl<T: Copy> Shared<T> {
    const fn new(value: T) -> Self {
        Self(UnsafeCell::new(value))
    }

    fn read(&self) -> T {
        // SAFETY:
        // - valid, aligned, initialized: the pointer is to the contents of a cell. The variables that tools write are
        //   integers, for which all bytes are valid.
        // - no race: see the module docs.
        unsafe { self.0.get().read_volatile() }
    }

    fn write(&self, value: T) {
        // SAFETY: the pointer is valid and aligned, since it is to the contents of a cell; no race: see the module
        // docs.
        unsafe { self.0.get().write_volatile(value) }
    }
}

/// Declares symbols of the interface, which the linker must keep.
macro_rules! symbols {
    ($($(#[doc = $doc:literal])+ $name:literal $ident:ident: $type:ty = $value:expr;)+) => {$(
        $(#[doc = $doc])+
        // SAFETY: no other symbol of this program has this name.
        #[used]
        #[unsafe(export_name = $name)]
        static $ident: Shared<$type> = Shared::new($value);
    )+};
}

symbols! {
    /// The table, in rank order.
    "MPIR_proctable" PROCTABLE: *const ProcessTableRow = std::ptr::null();
    /// Number of rows of the table; 0 until the table is complete.
    "MPIR_proctable_size" PROCTABLE_SIZE: c_int = 0;
    /// A [`DebugState`]; 0 before the first stop at the breakpoint.
    "MPIR_debug_state" DEBUG_STATE: c_int = 0;
    /// The reason for the abort.
    "MPIR_debug_abort_string" ABORT_STRING: *const c_char = std::ptr::null();
    /// Set to 1 by a tool while it is attached.
    "MPIR_being_debugged" BEING_DEBUGGED: c_int = 0;
    /// Its presence states that this process is not a rank.
    "MPIR_i_am_starter" I_AM_STARTER: c_int = 1;
    /// Its presence states that this process releases all ranks even if the tool has attached to only some of them.
    "MPIR_partial_attach_ok" PARTIAL_ATTACH_OK: c_int = 1;
    /// Its presence states that ranks are held before their `main`.
    "MPIR_acquired_pre_main" ACQUIRED_PRE_MAIN: c_int = 1;
    /// Its presence requests the tool to show `main` instead of the place where the ranks are held.
    "MPIR_force_to_main" FORCE_TO_MAIN: c_int = 1;
    /// Path of a program that the tool requests to be started on each host.
    "MPIR_executable_path" EXECUTABLE_PATH: [u8; 256] = [0; 256];
    /// Arguments of the program at `MPIR_executable_path`. Each is terminated by a NUL, and a second NUL follows the
    /// last argument.
    "MPIR_server_arguments" SERVER_ARGUMENTS: [u8; 1024] = [0; 1024];
    /// Path of the FIFO to which the tool writes a byte after it has set `MPIR_executable_path` and
    /// `MPIR_server_arguments` in a running job.
    "MPIR_attach_fifo" ATTACH_FIFO: [u8; 256] = [0; 256];
    /// Path of the message queue library; empty if the library is not installed.
    "MPIR_dll_name" DLL_NAME: [u8; 1024] = [0; 1024];
    /// Not part of the interface: identifies this launcher to tools that distinguish launchers by their symbols
    /// (`launcher/share/rm_rmpi.conf`).
    "rmpi_launcher" LAUNCHER: c_int = 1;
}

/// The function in which tools set their breakpoint.
// SAFETY: no other symbol of this program has this name.
#[unsafe(export_name = "MPIR_Breakpoint")]
#[inline(never)]
extern "C" fn breakpoint() {
    // SAFETY: the block has no instructions. To the compiler it stands for the tool's memory accesses, so neither this
    // function nor a call of this function can be optimised away.
    unsafe { asm!("", options(nostack, preserves_flags)) }
}

#[used]
static KEEP_BREAKPOINT: extern "C" fn() = breakpoint;

// Debug information with the types of the symbols. The interface requires it for tools that take the types from debug
// information. A release build has no debug information otherwise, and rustc's debug information has other type names.
// It is one DWARF 4 unit of language C with one entry per symbol. Subsection 1 places it behind the compiler's own
// output, which must be first in these sections.
global_asm!(
    r#"
    .pushsection .debug_abbrev,"",@progbits
    .subsection 1
.Lmpir_abbrev:
    .byte 1, 0x11, 1,  0x13, 0x05,  0x03, 0x08,  0, 0              // unit: language, name
    .byte 2, 0x24, 0,  0x0b, 0x0b,  0x3e, 0x0b,  0x03, 0x08,  0, 0 // base type: size, encoding, name
    .byte 3, 0x0f, 0,  0x0b, 0x0b,  0x49, 0x13,  0, 0              // pointer: size, type
    .byte 4, 0x13, 1,  0x0b, 0x0b,  0, 0                           // struct: size
    .byte 5, 0x0d, 0,  0x03, 0x08,  0x49, 0x13,  0x38, 0x0b,  0, 0 // member: name, type, offset
    .byte 6, 0x16, 0,  0x03, 0x08,  0x49, 0x13,  0, 0              // typedef: name, type
    .byte 7, 0x35, 0,  0x49, 0x13,  0, 0                           // volatile: type
    .byte 8, 0x01, 1,  0x49, 0x13,  0, 0                           // array: type
    .byte 9, 0x21, 0,  0x2f, 0x05,  0, 0                           // its last index
    .byte 10, 0x34, 0,  0x03, 0x08,  0x49, 0x13,  0x3f, 0x19,  0x02, 0x18,  0, 0 // variable: name, type, external, place
    .byte 0
    .popsection

    .macro mpir_array label, last
\label:
    .byte 8
    .4byte .Lmpir_char - .Lmpir_unit
    .byte 9
    .2byte \last
    .byte 0
    .endm

    .macro mpir_variable name, type
    .byte 10
    .asciz "\name"
    .4byte \type - .Lmpir_unit
    .byte 9, 0x03
    .8byte \name
    .endm

    .macro mpir_member name, type, offset
    .byte 5
    .asciz "\name"
    .4byte \type - .Lmpir_unit
    .byte \offset
    .endm

    .pushsection .debug_info,"",@progbits
    .subsection 1
.Lmpir_unit:
    .4byte .Lmpir_end - .Lmpir_version
.Lmpir_version:
    .2byte 4
    .4byte .Lmpir_abbrev
    .byte 8
    .byte 1
    .2byte 0x0c
    .asciz "MPIR"
.Lmpir_int:
    .byte 2, 4, 5
    .asciz "int"
.Lmpir_char:
    .byte 2, 1, 6
    .asciz "char"
.Lmpir_word:
    .byte 7
    .4byte .Lmpir_int - .Lmpir_unit
.Lmpir_text:
    .byte 3, 8
    .4byte .Lmpir_char - .Lmpir_unit
    mpir_array .Lmpir_256, 255
    mpir_array .Lmpir_1024, 1023
.Lmpir_row:
    .byte 4, 24
    mpir_member host_name, .Lmpir_text, 0
    mpir_member executable_name, .Lmpir_text, 8
    mpir_member pid, .Lmpir_int, 16
    .byte 0
.Lmpir_procdesc:
    .byte 6
    .asciz "MPIR_PROCDESC"
    .4byte .Lmpir_row - .Lmpir_unit
.Lmpir_table:
    .byte 3, 8
    .4byte .Lmpir_procdesc - .Lmpir_unit
    mpir_variable MPIR_proctable, .Lmpir_table
    mpir_variable MPIR_proctable_size, .Lmpir_int
    mpir_variable MPIR_debug_state, .Lmpir_word
    mpir_variable MPIR_debug_abort_string, .Lmpir_text
    mpir_variable MPIR_being_debugged, .Lmpir_word
    mpir_variable MPIR_i_am_starter, .Lmpir_int
    mpir_variable MPIR_partial_attach_ok, .Lmpir_int
    mpir_variable MPIR_acquired_pre_main, .Lmpir_int
    mpir_variable MPIR_force_to_main, .Lmpir_int
    mpir_variable MPIR_executable_path, .Lmpir_256
    mpir_variable MPIR_server_arguments, .Lmpir_1024
    mpir_variable MPIR_attach_fifo, .Lmpir_256
    mpir_variable MPIR_dll_name, .Lmpir_1024
    .byte 0
.Lmpir_end:
    .popsection
    .purgem mpir_array
    .purgem mpir_variable
    .purgem mpir_member
"#
);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mpir_starter_is_unique_and_reads_tool_variables() {
        let mut starter = Starter::take().unwrap();
        assert!(Starter::take().is_none());
        assert!(!starter.is_being_debugged() && starter.tool().is_none());
        EXECUTABLE_PATH.write(padded(b"/bin/tool"));
        let command = |starter: &Starter| starter.tool().unwrap();
        assert_eq!(command(&starter), [c"/bin/tool"]);
        SERVER_ARGUMENTS.write(padded(b"-a\0two words\0"));
        assert_eq!(command(&starter), [c"/bin/tool", c"-a", c"two words"]);
        // A text without a terminating NUL is not an argument.
        SERVER_ARGUMENTS.write([b'x'; 1024]);
        assert_eq!(command(&starter), [c"/bin/tool"]);
        EXECUTABLE_PATH.write([b'x'; 256]);
        assert_eq!(starter.tool(), None);
        starter.name_fifo(&"x".repeat(256));
        assert_eq!(ATTACH_FIFO.read()[0], 0);
    }

    #[test]
    fn the_mpir_process_table_is_published_with_its_size() {
        let (here, there) = (leak(c"here".into()), leak(c"here".into()));
        let mut table = ProcessTable::of(&[(c"/bin/true", 2)]);
        table.set_process(0, here, 7);
        table.set_process(0, here, 7);
        table.set_process(2, here, 7);
        assert!(!table.is_complete());
        table.set_program(1, c"/bin/false");
        table.set_process(1, there, 8);
        assert!(table.is_complete());
        assert_eq!(table.process_on(1, there), Some(8));
        assert_eq!(table.process_on(1, here), None);
        // No other code in this test process publishes a table.
        Starter(()).publish(&table);
        assert_eq!(PROCTABLE_SIZE.read(), 2);
        // SAFETY: the table was just published with two rows, which are never freed.
        let rows = unsafe { std::slice::from_raw_parts(PROCTABLE.read(), 2) };
        assert_eq!([rows[0].pid, rows[1].pid], [7, 8]);
        assert_ne!(rows[0].executable_name, rows[1].executable_name);
        assert_eq!(rows[0].host_name, here.as_ptr());
    }
}
