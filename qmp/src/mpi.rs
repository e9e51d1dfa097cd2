// SPDX-License-Identifier: MIT OR Apache-2.0
//! Bindings to MPI: the functions of `libmpi_abi.so.1` that are used here, with safe wrappers.
//!
//! # Safety
//! Every MPI function is called as `mpi.h` declares it. Memory of the program is passed as [`ProgramMemory`]; the
//! creator of this value guarantees that the memory has the size that the called function assumes. All other memory
//! belongs to functions of this module. It outlives the call, since every call here is blocking.
#![allow(unsafe_code, reason = "calls MPI")]

use core::ffi::{CStr, c_char, c_int, c_longlong, c_void};

use crate::status::{QmpFailure, QmpStatus, Result};

/// Defines handle types of MPI, with the constants of `mpi.h` that are used here.
macro_rules! handles {
    ($($(#[$doc:meta])* $kind:ident { $($name:ident = $value:literal,)* })*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        #[repr(transparent)]
        pub struct $kind(usize);

        #[allow(missing_docs, reason = "as in mpi.h")]
        impl $kind {
            $(pub const $name: Self = Self($value);)*
        }
    )*};
}

handles! {
    /// A communicator of MPI.
    Comm {
        NULL = 0x100,
        WORLD = 0x101,
        SELF = 0x102,
    }
    /// A datatype of MPI.
    Datatype {
        INT = 0x209,
        UNSIGNED_LONG = 0x20e,
        FLOAT = 0x210,
        DOUBLE = 0x214,
        LONG_DOUBLE = 0x220,
        BYTE = 0x247,
        UINT64 = 0x259,
    }
    /// An operation of MPI.
    Op {
        SUM = 0x21,
        MIN = 0x22,
        MAX = 0x23,
        BXOR = 0x2a,
    }
}

/// A function that combines `*len` items: `inout = in op inout`.
pub type Combine = unsafe extern "C" fn(*mut c_void, *mut c_void, *mut c_int, *mut Datatype);

/// Memory of the program, valid for one call.
#[derive(Clone, Copy, Debug)]
pub struct ProgramMemory(*mut c_void);

impl ProgramMemory {
    /// # Safety
    /// The memory is the program's, and has the size that the function to which it is passed assumes.
    pub unsafe fn new(base: *mut c_void) -> Self {
        Self(base)
    }

    /// Whether the pointer is NULL.
    pub fn is_null(self) -> bool {
        self.0.is_null()
    }
}

const ERRORS_RETURN: usize = 0x143;
const INFO_NULL: usize = 0x130;
const COMM_TYPE_SHARED: c_int = 221;
const UNDEFINED: c_int = -32766;
const IN_PLACE: *const c_void = core::ptr::without_provenance(1);
const MAX_ERROR_STRING: usize = 512;
/// MPI's thread levels, indexed by QMP's thread level.
const THREAD_LEVELS: [c_int; 4] = [0, 1024, 2048, 4096];

unsafe extern "C" {
    fn MPI_Init_thread(
        argc: *mut c_int,
        argv: *mut *mut *mut c_char,
        required: c_int,
        provided: *mut c_int,
    ) -> c_int;
    fn MPI_Initialized(flag: *mut c_int) -> c_int;
    fn MPI_Finalized(flag: *mut c_int) -> c_int;
    fn MPI_Query_thread(provided: *mut c_int) -> c_int;
    fn MPI_Finalize() -> c_int;
    fn MPI_Abort(comm: Comm, code: c_int) -> c_int;
    fn MPI_Comm_dup(comm: Comm, new: *mut Comm) -> c_int;
    fn MPI_Comm_split(comm: Comm, color: c_int, key: c_int, new: *mut Comm) -> c_int;
    fn MPI_Comm_split_type(
        comm: Comm,
        kind: c_int,
        key: c_int,
        info: usize,
        new: *mut Comm,
    ) -> c_int;
    fn MPI_Comm_free(comm: *mut Comm) -> c_int;
    fn MPI_Comm_size(comm: Comm, size: *mut c_int) -> c_int;
    fn MPI_Comm_rank(comm: Comm, rank: *mut c_int) -> c_int;
    fn MPI_Comm_get_errhandler(comm: Comm, handler: *mut usize) -> c_int;
    fn MPI_Errhandler_free(handler: *mut usize) -> c_int;
    fn MPI_Comm_set_errhandler(comm: Comm, handler: usize) -> c_int;
    fn MPI_Allgather(
        from: *const c_void,
        count: c_int,
        kind: Datatype,
        to: *mut c_void,
        each: c_int,
        of: Datatype,
        comm: Comm,
    ) -> c_int;
    fn MPI_Allreduce_c(
        from: *const c_void,
        to: *mut c_void,
        count: c_longlong,
        kind: Datatype,
        op: Op,
        comm: Comm,
    ) -> c_int;
    fn MPI_Reduce_local_c(
        from: *const c_void,
        into: *mut c_void,
        count: c_longlong,
        kind: Datatype,
        op: Op,
    ) -> c_int;
    fn MPI_Bcast_c(
        buffer: *mut c_void,
        count: c_longlong,
        kind: Datatype,
        root: c_int,
        comm: Comm,
    ) -> c_int;
    fn MPI_Alltoall(
        from: *const c_void,
        count: c_int,
        kind: Datatype,
        to: *mut c_void,
        each: c_int,
        of: Datatype,
        comm: Comm,
    ) -> c_int;
    fn MPI_Barrier(comm: Comm) -> c_int;
    fn MPI_Type_contiguous_c(count: c_longlong, of: Datatype, new: *mut Datatype) -> c_int;
    fn MPI_Type_commit(kind: *mut Datatype) -> c_int;
    fn MPI_Type_free(kind: *mut Datatype) -> c_int;
    fn MPI_Op_create(combine: Combine, commutes: c_int, op: *mut Op) -> c_int;
    fn MPI_Op_free(op: *mut Op) -> c_int;
    fn MPI_Alloc_mem(bytes: isize, info: usize, base: *mut *mut c_void) -> c_int;
    fn MPI_Free_mem(base: *mut c_void) -> c_int;
    fn MPI_Error_string(code: c_int, text: *mut c_char, length: *mut c_int) -> c_int;
    fn MPI_Wtime() -> f64;
}

/// The state of MPI.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MpiPhase {
    /// Not yet initialised.
    Before,
    /// Initialised.
    Running,
    /// Finalised.
    After,
}

/// The current state of MPI.
pub fn phase() -> MpiPhase {
    let (mut started, mut ended) = (0, 0);
    // SAFETY: may be called at any time; writes one int.
    unsafe { MPI_Initialized(&mut started) };
    // SAFETY: as above.
    unsafe { MPI_Finalized(&mut ended) };
    match (started, ended) {
        (0, _) => MpiPhase::Before,
        (_, 0) => MpiPhase::Running,
        _ => MpiPhase::After,
    }
}

/// Initialises MPI at a thread level of QMP; returns the provided level.
///
/// # Safety
/// `argc` and `argv` are NULL, or the addresses of the parameters of `main`.
pub unsafe fn init(argc: *mut c_int, argv: *mut *mut *mut c_char, level: usize) -> Result<usize> {
    let mut provided = 0;
    let required = THREAD_LEVELS[level.min(3)];
    // SAFETY: the command line is the caller's obligation; `provided` is one int.
    check(unsafe { MPI_Init_thread(argc, argv, required, &mut provided) })?;
    Ok(level_of(provided))
}

/// The thread level of a running MPI.
pub fn thread_level() -> Result<usize> {
    let mut provided = 0;
    // SAFETY: writes one int.
    check(unsafe { MPI_Query_thread(&mut provided) })?;
    Ok(level_of(provided))
}

fn level_of(provided: c_int) -> usize {
    THREAD_LEVELS
        .iter()
        .filter(|level| **level <= provided)
        .count()
        .saturating_sub(1)
}

/// Finalises MPI.
pub fn finalize() -> Result<()> {
    // SAFETY: no argument.
    check(unsafe { MPI_Finalize() })
}

/// Ends the job.
pub fn abort(code: c_int) {
    // SAFETY: plain values.
    unsafe { MPI_Abort(Comm::WORLD, code) };
}

impl Comm {
    /// Duplicates a communicator; the copy returns errors (`MPI_ERRORS_RETURN`).
    pub fn duplicate(self) -> Result<Self> {
        let mut new = Self::NULL;
        // SAFETY: writes one handle.
        check(unsafe { MPI_Comm_dup(self, &mut new) })?;
        new.returning_errors()
    }

    /// Splits by colour, ordered by key; `None` if the colour is negative. A negative colour becomes `MPI_UNDEFINED`:
    /// with the colour itself, MPI would return an error on this node, and the other nodes would wait for this node.
    pub fn split(self, color: c_int, key: c_int) -> Result<Option<Self>> {
        let mut new = Self::NULL;
        let color = if color < 0 { UNDEFINED } else { color };
        // SAFETY: writes one handle.
        check(unsafe { MPI_Comm_split(self, color, key, &mut new) })?;
        if new == Self::NULL {
            return Ok(None);
        }
        new.returning_errors().map(Some)
    }

    /// Returns for each node a number that identifies its host. All nodes must call it.
    pub fn hosts(self) -> Result<Vec<c_int>> {
        let rank = self.rank()?;
        let mut host = Self::NULL;
        // SAFETY: writes one handle.
        check(unsafe { MPI_Comm_split_type(self, COMM_TYPE_SHARED, rank, INFO_NULL, &mut host) })?;
        let mut first = rank;
        // SAFETY: the item is one int, reduced in place.
        let reduced = check(unsafe {
            MPI_Allreduce_c(
                IN_PLACE,
                (&raw mut first).cast(),
                1,
                Datatype::INT,
                Op::MIN,
                host,
            )
        });
        host.free()?;
        reduced?;
        self.gather(first)
    }

    /// Gathers one number of each node.
    pub fn gather(self, mine: c_int) -> Result<Vec<c_int>> {
        let size = usize::try_from(self.size()?).unwrap_or_default();
        let mut all = vec![0; size];
        // SAFETY: one int of each node; `all` has room for all nodes.
        check(unsafe {
            MPI_Allgather(
                (&raw const mine).cast(),
                1,
                Datatype::INT,
                all.as_mut_ptr().cast(),
                1,
                Datatype::INT,
                self,
            )
        })?;
        Ok(all)
    }

    /// Frees the communicator.
    pub fn free(mut self) -> Result<()> {
        // SAFETY: reads and writes one handle.
        check(unsafe { MPI_Comm_free(&mut self) })
    }

    /// Number of nodes.
    pub fn size(self) -> Result<c_int> {
        let mut size = 0;
        // SAFETY: writes one int.
        check(unsafe { MPI_Comm_size(self, &mut size) })?;
        Ok(size)
    }

    /// Number of this node.
    pub fn rank(self) -> Result<c_int> {
        let mut rank = 0;
        // SAFETY: writes one int.
        check(unsafe { MPI_Comm_rank(self, &mut rank) })?;
        Ok(rank)
    }

    /// Waits for all nodes.
    pub fn barrier(self) -> Result<()> {
        // SAFETY: plain value.
        check(unsafe { MPI_Barrier(self) })
    }

    /// Broadcasts `bytes` bytes from node 0.
    pub fn broadcast(self, data: ProgramMemory, bytes: usize) -> Result<()> {
        // SAFETY: `data` is `bytes` long: guaranteed by its creator.
        check(unsafe { MPI_Bcast_c(data.0, count(bytes)?, Datatype::BYTE, 0, self) })
    }

    /// Sends `bytes` bytes from each node to each node.
    pub fn alltoall(self, to: ProgramMemory, from: ProgramMemory, bytes: c_int) -> Result<()> {
        // SAFETY: `from` and `to` are `bytes` times the number of nodes long: guaranteed by their creators.
        check(unsafe {
            MPI_Alltoall(
                from.0,
                bytes,
                Datatype::BYTE,
                to.0,
                bytes,
                Datatype::BYTE,
                self,
            )
        })
    }

    /// Reduces `items` items over all nodes, in place.
    pub fn reduce(self, data: ProgramMemory, items: usize, kind: Datatype, op: Op) -> Result<()> {
        // SAFETY: `data` holds `items` items of `kind`: guaranteed by its creator.
        check(unsafe { MPI_Allreduce_c(IN_PLACE, data.0, count(items)?, kind, op, self) })
    }

    /// Reduces `items` items over all nodes, in place and in the order of node numbers. The result does not depend on
    /// the number of items or the placement of nodes: the items of all nodes are gathered, a bounded number at a time,
    /// and combined here. An item is `bytes` long.
    pub fn reduce_in_order(
        self,
        data: ProgramMemory,
        items: usize,
        bytes: usize,
        kind: Datatype,
        op: Op,
    ) -> Result<()> {
        let nodes = usize::try_from(self.size()?).unwrap_or(1);
        let at_once = items_at_once(nodes, items, bytes);
        let mut all = room(nodes * at_once * bytes)?;
        let mut done = 0;
        while done < items {
            let now = at_once.min(items - done);
            let mine = data.0.wrapping_byte_add(done * bytes);
            let base: *mut c_void = all.as_mut_ptr().cast();
            let each = c_int::try_from(now).map_err(|_| too_many(now))?;
            // SAFETY: `mine` is `now` of the program's `items` items; `all` has room for `nodes` times as many.
            check(unsafe { MPI_Allgather(mine, each, kind, base, each, kind, self) })?;
            for node in 1..nodes {
                let next = base.wrapping_byte_add(node * now * bytes);
                // SAFETY: `next` and `base` are `now` items each in `all`, of different nodes.
                check(unsafe { MPI_Reduce_local_c(next, base, count(now)?, kind, op) })?;
            }
            // SAFETY: `base` and `mine` are `now` items each; `all` is a separate allocation, so they do not overlap.
            unsafe {
                core::ptr::copy_nonoverlapping(base.cast::<u8>(), mine.cast::<u8>(), now * bytes)
            };
            done += now;
        }
        Ok(())
    }

    fn returning_errors(self) -> Result<Self> {
        // SAFETY: plain values.
        check(unsafe { MPI_Comm_set_errhandler(self, ERRORS_RETURN) })?;
        Ok(self)
    }
}

/// Maximum number of bytes in one gather. A gather exceeds it only if it has one item of each node.
const GATHERED_BYTES: usize = 1 << 20;

/// Number of items of each node in one gather.
fn items_at_once(nodes: usize, items: usize, bytes: usize) -> usize {
    let of_all_nodes = nodes.saturating_mul(bytes).max(1);
    (GATHERED_BYTES / of_all_nodes).clamp(1, items.max(1))
}

fn room(bytes: usize) -> Result<Vec<u128>> {
    let units = bytes.div_ceil(size_of::<u128>());
    let mut all = Vec::new();
    all.try_reserve_exact(units).map_err(|_| {
        QmpFailure::new(
            QmpStatus::NOMEM_ERR,
            format!("{bytes} bytes are needed to gather the items of all nodes"),
        )
    })?;
    all.resize(units, 0);
    Ok(all)
}

impl Datatype {
    /// Creates a datatype of `bytes` bytes, to be freed with [`Datatype::free`].
    pub fn of_bytes(bytes: usize) -> Result<Self> {
        let mut new = Self(0);
        // SAFETY: writes one handle.
        check(unsafe { MPI_Type_contiguous_c(count(bytes)?, Self::BYTE, &mut new) })?;
        // SAFETY: the handle was just made.
        check(unsafe { MPI_Type_commit(&mut new) })?;
        Ok(new)
    }

    /// Frees the datatype.
    pub fn free(mut self) -> Result<()> {
        // SAFETY: reads and writes one handle.
        check(unsafe { MPI_Type_free(&mut self) })
    }
}

impl Op {
    /// Creates an operation, to be freed with [`Op::free`].
    ///
    /// # Safety
    /// `combine` may be called with any items of the datatypes that the operation is used with.
    pub unsafe fn new(combine: Combine, commutes: bool) -> Result<Self> {
        let mut new = Self(0);
        // SAFETY: writes one handle; the function is the caller's obligation.
        check(unsafe { MPI_Op_create(combine, c_int::from(commutes), &mut new) })?;
        Ok(new)
    }

    /// Frees the operation.
    pub fn free(mut self) -> Result<()> {
        // SAFETY: reads and writes one handle.
        check(unsafe { MPI_Op_free(&mut self) })
    }
}

/// Allocates memory, if possible such that other nodes of the host can access it directly; NULL for zero bytes.
pub fn allocate(bytes: usize) -> Result<*mut c_void> {
    let mut base = core::ptr::null_mut();
    let size = isize::try_from(bytes).map_err(|_| too_many(bytes))?;
    // SAFETY: writes one pointer.
    let call = || check(unsafe { MPI_Alloc_mem(size, INFO_NULL, &mut base) });
    let done = surviving_errors(call)?;
    done.map_err(|why| QmpFailure::new(QmpStatus::NOMEM_ERR, why.text))?;
    Ok(base)
}

/// Calls an MPI function that has no communicator. Its errors are raised on `MPI_COMM_SELF`, whose handler may abort
/// the job (MPI 5.0 section 9.3), so `MPI_ERRORS_RETURN` is set for the call.
fn surviving_errors<R>(call: impl FnOnce() -> R) -> Result<R> {
    let mut handler = ERRORS_RETURN;
    // SAFETY: writes one handle.
    unsafe { MPI_Comm_get_errhandler(Comm::SELF, &mut handler) };
    // SAFETY: plain values.
    let set = unsafe { MPI_Comm_set_errhandler(Comm::SELF, ERRORS_RETURN) };
    if set != 0 {
        let text = format!("MPI_Comm_set_errhandler of MPI_COMM_SELF answered with the code {set}");
        return Err(QmpFailure::new(QmpStatus::RTENV_ERR, text));
    }
    let result = call();
    // SAFETY: the previous handler.
    unsafe { MPI_Comm_set_errhandler(Comm::SELF, handler) };
    // SAFETY: from `MPI_Comm_get_errhandler`, freed once.
    unsafe { MPI_Errhandler_free(&mut handler) };
    Ok(result)
}

/// Frees memory of [`allocate`].
///
/// # Safety
/// The memory is not used any more.
pub unsafe fn deallocate(base: *mut c_void) -> Result<()> {
    // SAFETY: unused: the caller's obligation; MPI returns an error for an unknown address.
    check(unsafe { MPI_Free_mem(base) })
}

/// `MPI_Wtime`: seconds since a fixed time in the past.
pub fn seconds() -> f64 {
    // SAFETY: may be called at any time.
    unsafe { MPI_Wtime() }
}

/// MPI's text for an error code; `None` if it is not an error code of MPI, or MPI is not running.
pub fn error_text(code: c_int) -> Option<String> {
    if phase() != MpiPhase::Running {
        return None;
    }
    let mut text = [0 as c_char; MAX_ERROR_STRING];
    let mut length = 0;
    // SAFETY: room for `MPI_MAX_ERROR_STRING` bytes.
    let call = || unsafe { MPI_Error_string(code, text.as_mut_ptr(), &mut length) };
    // For an invalid code MPI raises an error, which could abort the job.
    let result = surviving_errors(call).ok()?;
    text[MAX_ERROR_STRING - 1] = 0;
    // SAFETY: the last byte is zero.
    let text = unsafe { CStr::from_ptr(text.as_ptr()) };
    (result == 0).then(|| text.to_string_lossy().into_owned())
}

fn check(code: c_int) -> Result<()> {
    if code == 0 {
        return Ok(());
    }
    let text = error_text(code).unwrap_or_else(|| format!("MPI answered with the code {code}"));
    Err(QmpFailure::new(QmpStatus(code), text))
}

fn count(number: usize) -> Result<c_longlong> {
    c_longlong::try_from(number).map_err(|_| too_many(number))
}

fn too_many(number: usize) -> QmpFailure {
    QmpFailure::new(
        QmpStatus::INVALID_ARG,
        format!("{number} is more than MPI can count"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gathered_bytes_are_bounded_to_at_least_one_item() {
        assert_eq!(items_at_once(4, 100, 8), 100);
        assert_eq!(items_at_once(4, 1 << 40, 8), GATHERED_BYTES / 32);
        assert_eq!(items_at_once(1, usize::MAX, 1), GATHERED_BYTES);
        assert_eq!(items_at_once(64, 10, 2_200_000_000), 1);
        assert_eq!(items_at_once(64, 10, usize::MAX), 1);
        assert_eq!(items_at_once(8, 0, 8), 1);
    }

    #[test]
    fn counts_beyond_2_gib_are_not_truncated() {
        assert_eq!(count(2_200_000_000), Ok(2_200_000_000));
        assert_eq!(
            count(usize::MAX).unwrap_err().status,
            QmpStatus::INVALID_ARG
        );
    }
}
