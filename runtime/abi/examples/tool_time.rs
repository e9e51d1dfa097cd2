// SPDX-License-Identifier: MIT OR Apache-2.0
//! A QMPI tool in Rust: when MPI is finalized, each rank prints the time that it has spent in MPI_Barrier.
//!
//! ```text
//! rustc --edition 2024 -O --crate-type cdylib -o libtime.so tool_time.rs -L $PREFIX/lib -l mpi_abi
//! RMPI_TOOLS=$PWD/libtime.so rmpiexec -n 4 ./program
//! ```
//!
//! # Safety
//! The functions of the library are called as its header declares them. Each function of this tool is registered for
//! the MPI function that has the same parameters.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::mem::transmute;
use std::sync::atomic::{AtomicI32, AtomicU64, Ordering::Relaxed};
use std::time::Instant;

type Function = unsafe extern "C" fn();
/// As large as the C struct `QMPI_Context`, which contains one pointer.
type Context = usize;
type Comm = *mut c_void;

/// Numbers of MPI functions from `qmpi.h`, which never change.
const BARRIER: c_int = 42;
const FINALIZE: c_int = 219;

unsafe extern "C" {
    fn QMPI_Register_tool_name(name: *const c_char, begin: extern "C" fn(c_int)) -> c_int;
    fn QMPI_Register_tool_function(tool: c_int, function: c_int, address: Function) -> c_int;
    fn QMPI_Get_function(
        tool: c_int,
        function: c_int,
        next: *mut Option<Function>,
        below: *mut c_void,
    ) -> c_int;
}

static TOOL: AtomicI32 = AtomicI32::new(0);
static CALLS: AtomicU64 = AtomicU64::new(0);
static NANOSECONDS: AtomicU64 = AtomicU64::new(0);

/// The function of the next tool in the stack, or of the library, and the context to call that function with. `None`:
/// there is no such function.
fn next(function: c_int) -> Option<(Function, Context)> {
    let (mut address, mut below): (Option<Function>, Context) = (None, 0);
    // SAFETY: the library writes one function pointer and one context.
    unsafe {
        QMPI_Get_function(
            TOOL.load(Relaxed),
            function,
            &mut address,
            (&raw mut below).cast(),
        )
    };
    Some((address?, below))
}

unsafe extern "C" fn barrier(_: Context, comm: Comm) -> c_int {
    let Some((address, below)) = next(BARRIER) else {
        return 1;
    };
    // SAFETY: the next function for MPI_Barrier has these parameters.
    let barrier =
        unsafe { transmute::<Function, unsafe extern "C" fn(Context, Comm) -> c_int>(address) };
    let since = Instant::now();
    // SAFETY: `comm` is the communicator that the program has passed.
    let code = unsafe { barrier(below, comm) };
    let spent = u64::try_from(since.elapsed().as_nanos()).unwrap_or(u64::MAX);
    NANOSECONDS.fetch_add(spent, Relaxed);
    CALLS.fetch_add(1, Relaxed);
    code
}

unsafe extern "C" fn finalize(_: Context) -> c_int {
    let (calls, spent) = (CALLS.load(Relaxed), NANOSECONDS.load(Relaxed));
    println!("{calls} calls of MPI_Barrier, {:.3} ms", spent as f64 / 1e6);
    let Some((address, below)) = next(FINALIZE) else {
        return 1;
    };
    // SAFETY: the next function for MPI_Finalize has this parameter.
    let finalize =
        unsafe { transmute::<Function, unsafe extern "C" fn(Context) -> c_int>(address) };
    // SAFETY: the only argument is the context.
    unsafe { finalize(below) }
}

extern "C" fn begin(tool: c_int) {
    TOOL.store(tool, Relaxed);
    // SAFETY: both functions have the parameters of the MPI functions that they are registered for.
    unsafe {
        QMPI_Register_tool_function(
            tool,
            BARRIER,
            transmute::<unsafe extern "C" fn(Context, Comm) -> c_int, Function>(barrier),
        );
        QMPI_Register_tool_function(
            tool,
            FINALIZE,
            transmute::<unsafe extern "C" fn(Context) -> c_int, Function>(finalize),
        );
    }
}

/// Runs when the library is loaded.
// SAFETY: the loader calls the functions that this section lists.
#[used]
#[unsafe(link_section = ".init_array")]
static ANNOUNCE: extern "C" fn() = announce;

extern "C" fn announce() {
    const NAME: &CStr = c"time";
    // SAFETY: `NAME` is a C string, and `begin` has the required parameter.
    unsafe { QMPI_Register_tool_name(NAME.as_ptr(), begin) };
}
