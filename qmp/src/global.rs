// SPDX-License-Identifier: MIT OR Apache-2.0
//! Implements global operations: MPI's collectives, and two operations that MPI lacks.
//!
//! - *Extended sums* add pairs of doubles (double-double arithmetic). The second number of a pair is the rounding error
//!   of the first.
//! - *Binary reductions* call the program's function on whole buffers: one item of a datatype as large as the buffer.
//!   During the reduction, the program's function is looked up by that datatype.
//!
//! # Safety
//! MPI calls `add_pairs` and `combine` only with items of the datatypes that they are used with.
#![allow(unsafe_code, reason = "functions that MPI calls back")]

use core::ffi::{c_int, c_void};

use crate::machine::{mpi_of, with_comm};
use crate::mpi::{self, Comm, Datatype, Op, ProgramMemory};
use crate::state;
use crate::status::{QmpFailure, QmpStatus, Result};

/// A function of the program: combines `input` into `inout`.
pub type BinaryFunction = unsafe extern "C" fn(inout: *mut c_void, input: *mut c_void);

/// A binary reduction in progress.
#[derive(Clone, Copy, Debug)]
pub struct Reduction {
    datatype: Datatype,
    bytes: usize,
    function: BinaryFunction,
}

/// Reduces `items` items over all nodes, in place.
pub fn reduce(
    which: Option<usize>,
    data: ProgramMemory,
    items: c_int,
    kind: Datatype,
    op: Op,
) -> Result<()> {
    let items = usize::try_from(items).map_err(|_| {
        QmpFailure::new(
            QmpStatus::INVALID_ARG,
            format!("an array of {items} items was given"),
        )
    })?;
    let comm = mpi_of(which)?;
    let bytes = match kind {
        Datatype::FLOAT => 4,
        Datatype::LONG_DOUBLE => 16,
        _ => 8,
    };
    let rounds =
        [Datatype::FLOAT, Datatype::DOUBLE, Datatype::LONG_DOUBLE].contains(&kind) && op == Op::SUM;
    if items == 0 {
        return Ok(());
    }
    exists(data)?;
    if rounds && reproducible()? {
        timed(|| comm.reduce_in_order(data, items, bytes, kind, op))
    } else {
        timed(|| comm.reduce(data, items, kind, op))
    }
}

/// `QMP_sum_double_extended`: the sum of one double of each node, rounded once.
pub fn sum_extended(which: Option<usize>, mine: f64) -> Result<f64> {
    let comm = mpi_of(which)?;
    let mut pair = [mine, 0.0];
    // SAFETY: one pair, which outlives the reduction.
    let data = unsafe { ProgramMemory::new((&raw mut pair).cast()) };
    // SAFETY: used below only with pairs of doubles.
    let op = unsafe { Op::new(add_pairs, true) }?;
    let done = with_bytes(size_of_val(&pair), |kind| {
        run(comm, data, size_of_val(&pair), kind, op)
    });
    let freed = op.free();
    done.and(freed)?;
    Ok(pair[0] + pair[1])
}

/// `QMP_binary_reduction`
pub fn binary(
    which: Option<usize>,
    data: ProgramMemory,
    bytes: usize,
    function: BinaryFunction,
) -> Result<()> {
    let comm = mpi_of(which)?;
    if bytes == 0 {
        return Ok(());
    }
    exists(data)?;
    // SAFETY: used below with a datatype that is in `reductions`.
    let op = unsafe { Op::new(combine, false) }?;
    let done = with_bytes(bytes, |datatype| {
        let reduction = Reduction {
            datatype,
            bytes,
            function,
        };
        state::visit(|state| state.reductions.push(reduction));
        let done = run(comm, data, bytes, datatype, op);
        state::visit(|state| state.reductions.retain(|other| other.datatype != datatype));
        done
    });
    let freed = op.free();
    done.and(freed)
}

/// `QMP_broadcast`
pub fn broadcast(which: Option<usize>, data: ProgramMemory, bytes: usize) -> Result<()> {
    let comm = mpi_of(which)?;
    if bytes == 0 {
        return Ok(());
    }
    exists(data)?;
    timed(|| comm.broadcast(data, bytes))
}

/// `QMP_comm_alltoall`
pub fn alltoall(which: usize, to: ProgramMemory, from: ProgramMemory, bytes: c_int) -> Result<()> {
    let comm = mpi_of(Some(which))?;
    if bytes < 0 {
        return Err(QmpFailure::new(
            QmpStatus::INVALID_ARG,
            format!("{bytes} bytes for each node were given"),
        ));
    }
    if bytes == 0 {
        return Ok(());
    }
    exists(to)?;
    exists(from)?;
    timed(|| comm.alltoall(to, from, bytes))
}

/// `QMP_barrier`
pub fn barrier(which: Option<usize>) -> Result<()> {
    let comm = with_comm(which, |comm| Ok(*comm.mpi))?;
    timed(|| comm.barrier())
}

/// Runs `work`. While profiling is on, adds its duration to the total.
pub fn timed<R>(work: impl FnOnce() -> R) -> R {
    if state::visit(|state| state.profiling) <= 0 {
        return work();
    }
    let start = mpi::seconds();
    let result = work();
    let spent = mpi::seconds() - start;
    state::visit(|state| state.seconds += spent);
    result
}

/// Reduces one item over all nodes, in node order if reproducibility is set.
fn run(comm: Comm, data: ProgramMemory, bytes: usize, kind: Datatype, op: Op) -> Result<()> {
    if reproducible()? {
        timed(|| comm.reduce_in_order(data, 1, bytes, kind, op))
    } else {
        timed(|| comm.reduce(data, 1, kind, op))
    }
}

fn with_bytes(bytes: usize, work: impl FnOnce(Datatype) -> Result<()>) -> Result<()> {
    let datatype = Datatype::of_bytes(bytes)?;
    let done = work(datatype);
    let freed = datatype.free();
    done.and(freed)
}

fn reproducible() -> Result<bool> {
    state::running(|state| Ok(state.settings.reproducible))
}

fn exists(data: ProgramMemory) -> Result<()> {
    if data.is_null() {
        return Err(QmpFailure::new(
            QmpStatus::INVALID_ARG,
            "NULL was given for the data of a global operation",
        ));
    }
    Ok(())
}

/// The MPI operation that adds pairs `[high, low]`: the rounded sum, and its rounding error.
unsafe extern "C" fn add_pairs(
    from: *mut c_void,
    into: *mut c_void,
    len: *mut c_int,
    _: *mut Datatype,
) {
    // SAFETY: MPI gives the number of items.
    let count = usize::try_from(unsafe { len.read() }).unwrap_or_default();
    let (from, into) = (from.cast::<[f64; 2]>(), into.cast::<[f64; 2]>());
    for index in 0..count {
        let (a, b) = (from.wrapping_add(index), into.wrapping_add(index));
        // SAFETY: one of the `count` items from MPI.
        let left = unsafe { a.read_unaligned() };
        // SAFETY: as above.
        let right = unsafe { b.read_unaligned() };
        // SAFETY: as above, for writing.
        unsafe { b.write_unaligned(add(left, right)) };
    }
}

/// The sum of two double-double numbers.
fn add(a: [f64; 2], b: [f64; 2]) -> [f64; 2] {
    let sum = a[0] + b[0];
    if !sum.is_finite() {
        return [sum, 0.0];
    }
    let of_b = sum - a[0];
    let lost = (a[0] - (sum - of_b)) + (b[0] - of_b);
    let low = lost + a[1] + b[1];
    let high = sum + low;
    let rest = if high.is_finite() {
        low - (high - sum)
    } else {
        0.0
    };
    [high, rest]
}

/// The MPI operation that calls the program's function.
unsafe extern "C" fn combine(
    from: *mut c_void,
    into: *mut c_void,
    len: *mut c_int,
    kind: *mut Datatype,
) {
    // SAFETY: MPI gives the datatype.
    let datatype = unsafe { kind.read() };
    // SAFETY: MPI gives the number of items.
    let count = usize::try_from(unsafe { len.read() }).unwrap_or_default();
    let found = state::visit(|state| {
        state
            .reductions
            .iter()
            .find(|other| other.datatype == datatype)
            .copied()
    });
    let Some(reduction) = found else {
        return;
    };
    for index in 0..count {
        let (a, b) = (
            from.wrapping_byte_add(index * reduction.bytes),
            into.wrapping_byte_add(index * reduction.bytes),
        );
        // SAFETY: the program's function, for items of the size that it was given with.
        unsafe { (reduction.function)(b, a) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn qmp_092_a_double_double_sum_keeps_cancelled_digits() {
        let all = [1e16, 1.0, 1.0, -1e16, 0.5];
        let sum = all
            .iter()
            .fold([0.0, 0.0], |sum, next| add(sum, [*next, 0.0]));
        assert_eq!(sum[0] + sum[1], 2.5);
        assert_eq!(all.iter().sum::<f64>(), 2.5 - 2.0);
    }

    #[test]
    fn double_double_sums_keep_infinity_and_nan() {
        let sum = add([f64::INFINITY, 0.0], [1.0, 0.0]);
        assert_eq!(sum[0] + sum[1], f64::INFINITY);
        assert!(add([f64::NAN, 0.0], [1.0, 0.0])[0].is_nan());
        assert_eq!(add([f64::MAX, 0.0], [f64::MAX, 0.0])[0], f64::INFINITY);
    }
}
