// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reduction operations: the predefined ones, and those that the program makes (MPI 5.0 sections 6.9.2 to 6.9.5).
//!
//! # Safety
//! A program's operation is called with two arrays, each of the given number of items in the layout of the reduction's
//! datatype. Obligation **O1** of the program (section 6.9.5): the function accesses no memory of the library except
//! these arrays, and returns. It is called outside of [visits of the state](crate::state) and without the lock, so it
//! may call MPI functions that do not communicate, and it may wait for other threads that communicate.
#![allow(unsafe_code, reason = "calls the program's operations")]

use core::ffi::c_int;
use core::ffi::c_void;
use std::sync::Arc;

use runtime::Structured;
use runtime::collective::Reducer;
use runtime::datatype::{Basic, Datatype};
use runtime::op::{self, Op};

use crate::args::{EitherFn, InOutArg, OutArg};
use crate::callback::{MPI_User_function, MPI_User_function_c};
use crate::enter::Mpi;
use crate::error::{Error, ErrorClass, Result};
use crate::handle::{MPI_Datatype, MPI_Op, describe};
use crate::lock;
use crate::state::TypeObject;

/// An operation of the program.
#[derive(Clone, Copy, Debug)]
pub struct OpObject {
    function: OpFunction,
    commutes: bool,
}

/// A program's reduction function, in one of its two forms.
#[derive(Clone, Copy, Debug)]
enum OpFunction {
    Int(MPI_User_function),
    Large(MPI_User_function_c),
}

/// An operation on items of one datatype.
#[derive(Clone)]
pub(crate) enum Combiner {
    Predefined(Op, Basic),
    User(UserOp),
}

/// A program's operation on a datatype.
#[derive(Clone)]
pub(crate) struct UserOp {
    mpi: Mpi,
    function: OpFunction,
    handle: MPI_Datatype,
    /// The object of the datatype at the time when the reduction was called; `None` if the program did not make the
    /// datatype.
    made: Option<TypeObject>,
    datatype: Arc<Datatype>,
    item_bytes: usize,
    /// Whether the items of the datatype have no gaps, so that packed items can be passed to the function.
    dense: bool,
}

/// `MPI_Op_create`.
pub fn op_create(
    mpi: Mpi,
    function: EitherFn<MPI_User_function, MPI_User_function_c>,
    commute: c_int,
    op: OutArg<'_, MPI_Op>,
) -> Result<()> {
    let function = match function {
        EitherFn::Int(Some(function)) => OpFunction::Int(function),
        EitherFn::Large(Some(function)) => OpFunction::Large(function),
        _ => return Err(Error::null("user_fn")),
    };
    let object = OpObject {
        function,
        commutes: commute != 0,
    };
    op.set(mpi.state(|state| state.ops.insert(object))?);
    Ok(())
}

/// `MPI_Op_free`. Collectives in progress keep a reference.
pub fn op_free(mpi: Mpi, op: InOutArg<'_, MPI_Op>) -> Result<()> {
    let handle = op.get();
    if predefined(handle).is_some() {
        let detail = format!("{} is predefined and cannot be freed", describe(handle.0));
        return Err(Error::new(ErrorClass::OP, detail));
    }
    mpi.state(|state| state.ops.remove(handle))?;
    op.set(MPI_Op::NULL);
    Ok(())
}

/// `MPI_Op_commutative`.
pub fn op_commutative(mpi: Mpi, op: MPI_Op, commute: OutArg<'_, c_int>) -> Result<()> {
    let commutes = match predefined(op) {
        Some(known) => !matches!(known, Op::Replace | Op::NoOp),
        None => mpi.state(|state| state.ops.get(op).map(|object| object.commutes))?,
    };
    commute.set(c_int::from(commutes));
    Ok(())
}

/// An operation on items of a datatype; an error if the operation is not defined for the datatype.
pub(crate) fn combiner(mpi: Mpi, op: MPI_Op, datatype: MPI_Datatype) -> Result<Combiner> {
    if let Some(known) = predefined(op) {
        if matches!(known, Op::Replace | Op::NoOp) {
            let detail = format!(
                "{} is for accumulating in windows alone, a reduction needs another operation",
                describe(op.0)
            );
            return Err(Error::new(ErrorClass::OP, detail));
        }
        let basic = mpi.state(|state| state.basic(datatype));
        return on_basic(op, known, datatype, basic);
    }
    mpi.state(|state| {
        let object = *state.ops.get(op)?;
        let datatype_object = state.datatype(datatype)?;
        if !datatype_object.committed {
            return Err(crate::pt2pt::uncommitted(datatype));
        }
        let described = datatype_object.datatype;
        let item_bytes = usize::try_from(described.size).unwrap_or(usize::MAX);
        let dense = described.dense(2) == Some((0, 2 * described.size));
        Ok(Combiner::User(UserOp {
            mpi,
            function: object.function,
            handle: datatype,
            made: state.datatypes.get(datatype).ok().cloned(),
            datatype: described,
            item_bytes,
            dense,
        }))
    })
}

/// A predefined operation on a predefined datatype; `None` if the operation is not defined for the datatype.
#[inline]
pub(crate) fn on_predefined(op: MPI_Op, basic: &Basic) -> Option<Combiner> {
    let known = predefined(op).filter(|known| !matches!(known, Op::Replace | Op::NoOp))?;
    op::is_defined(known, basic).then(|| Combiner::Predefined(known, *basic))
}

/// A predefined operation; an error unless the datatype is predefined and the operation is defined for it (MPI 5.0
/// section 6.9.2).
fn on_basic(
    op: MPI_Op,
    known: Op,
    datatype: MPI_Datatype,
    basic: Option<&Basic>,
) -> Result<Combiner> {
    let Some(basic) = basic else {
        let (op, datatype) = (describe(op.0), describe(datatype.0));
        let detail = format!("{op} needs a predefined datatype, {datatype} is none");
        return Err(Error::new(ErrorClass::TYPE, detail));
    };
    if !op::is_defined(known, basic) {
        let detail = format!(
            "{} is not defined for {}",
            describe(op.0),
            describe(datatype.0)
        );
        return Err(Error::new(ErrorClass::OP, detail));
    }
    Ok(Combiner::Predefined(known, *basic))
}

impl Reducer for Combiner {
    fn reduce(&self, input: &[u8], inout: &mut [u8]) {
        match self {
            Self::Predefined(op, basic) => {
                let defined = op::reduce(*op, basic, input, inout);
                debug_assert!(defined.is_ok(), "checked by `on_basic`");
            }
            Self::User(user) => user.reduce(input, inout),
        }
    }

    fn item_bytes(&self) -> usize {
        match self {
            Self::Predefined(_, basic) => basic.size.into(),
            Self::User(user) => user.item_bytes,
        }
    }

    fn commutes(&self) -> bool {
        matches!(self, Self::Predefined(..))
    }
}

impl UserOp {
    fn reduce(&self, input: &[u8], inout: &mut [u8]) {
        let items = inout.len().min(input.len()) / self.item_bytes.max(1);
        if items == 0 {
            return;
        }
        if self.dense && is_aligned(input, &self.datatype) && is_aligned(inout, &self.datatype) {
            return self.call(input.as_ptr().cast_mut(), inout.as_mut_ptr(), items);
        }
        // The function needs the items in the program's layout.
        let (mut left, mut right) = (
            ItemBuffer::new(&self.datatype, items),
            ItemBuffer::new(&self.datatype, items),
        );
        left.items.unpack(input);
        right.items.unpack(inout);
        self.call(left.base(), right.base(), items);
        inout.copy_from_slice(&right.items.pack());
    }

    /// Calls the function. If the program has freed the datatype since the reduction was called (MPI 5.0 section
    /// 5.1.9), the function gets a new handle of the same datatype.
    fn call(&self, input: *mut u8, inout: *mut u8, items: usize) {
        let fresh = self.mpi.state(|state| {
            let made = self.made.as_ref()?;
            let found = state.datatypes.get(self.handle);
            match found.is_ok_and(|found| Arc::ptr_eq(&found.datatype, &made.datatype)) {
                true => None,
                // If all handles are in use, the function gets the freed handle, and its MPI calls with that handle
                // return errors.
                false => state.datatypes.insert(made.clone()).ok(),
            }
        });
        self.call_with(fresh.unwrap_or(self.handle), input, inout, items);
        if let Some(fresh) = fresh {
            // The function may have freed `fresh`, erroneously.
            let _ = self.mpi.state(|state| state.datatypes.remove(fresh));
        }
    }

    fn call_with(&self, datatype: MPI_Datatype, input: *mut u8, inout: *mut u8, items: usize) {
        let (input, inout) = (input.cast::<c_void>(), inout.cast::<c_void>());
        let mut datatype = datatype;
        match self.function {
            OpFunction::Large(function) => {
                let mut length = i64::try_from(items).unwrap_or(i64::MAX);
                lock::without(|| {
                    // SAFETY: O1; both arrays have `items` items.
                    unsafe { function(input, inout, &raw mut length, &raw mut datatype) };
                });
            }
            OpFunction::Int(function) => {
                let step = c_int::MAX as usize;
                let extent = isize::try_from(self.datatype.extent).unwrap_or(0);
                let mut done = 0;
                while done < items {
                    let now = (items - done).min(step);
                    let by = extent.wrapping_mul(done.cast_signed());
                    let (input, inout) = (
                        input.wrapping_byte_offset(by),
                        inout.wrapping_byte_offset(by),
                    );
                    let mut length = c_int::try_from(now).unwrap_or(c_int::MAX);
                    lock::without(|| {
                        // SAFETY: O1; from these addresses on, both arrays have at least `now` items.
                        unsafe { function(input, inout, &raw mut length, &raw mut datatype) };
                    });
                    done += now;
                }
            }
        }
    }
}

/// A buffer for items whose datatype has gaps.
struct ItemBuffer {
    /// The memory; `u128` has the strictest alignment that a datatype needs.
    words: Vec<u128>,
    /// Distance in bytes from the origin of displacements to the start of the memory; large for datatypes with absolute
    /// addresses.
    start: isize,
    items: Structured,
}

impl ItemBuffer {
    fn new(datatype: &Arc<Datatype>, items: usize) -> Self {
        let last = datatype.extent.saturating_mul(items as i64 - 1);
        let low = datatype.true_lb.saturating_add(last.min(0));
        let high = datatype.true_lb.saturating_add(datatype.true_extent);
        let high = high.saturating_add(last.max(0));
        // A multiple of the word size preserves the alignment.
        let start = low.div_euclid(WORD as i64).saturating_mul(WORD as i64);
        let bytes = usize::try_from(high.saturating_sub(start)).unwrap_or(usize::MAX);
        let mut words = vec![0u128; bytes.div_ceil(WORD) + 1];
        let start = isize::try_from(start).unwrap_or(0);
        let base = origin(&mut words, start);
        // SAFETY: all bytes of the items, from the lowest to the highest, are in `words`, which outlives the result.
        let items = unsafe { Structured::new(base, items as u64, datatype) };
        Self {
            words,
            start,
            items,
        }
    }

    fn base(&mut self) -> *mut u8 {
        origin(&mut self.words, self.start)
    }
}

/// The origin of displacements: `start` bytes before the start of the memory.
fn origin(words: &mut [u128], start: isize) -> *mut u8 {
    let words = words.as_mut_ptr().cast::<u8>();
    words.wrapping_offset(start.wrapping_neg())
}

const WORD: usize = size_of::<u128>();

/// Whether the bytes are aligned for the program's function. The required alignment is the largest power of two that
/// divides the item size, but at most 16.
fn is_aligned(bytes: &[u8], datatype: &Datatype) -> bool {
    let size = datatype.size.max(1);
    let align = (1u64 << size.trailing_zeros()).min(WORD as u64);
    (bytes.as_ptr().addr() as u64).is_multiple_of(align)
}

fn predefined(op: MPI_Op) -> Option<Op> {
    Some(match op {
        MPI_Op::SUM => Op::Sum,
        MPI_Op::MIN => Op::Min,
        MPI_Op::MAX => Op::Max,
        MPI_Op::PROD => Op::Prod,
        MPI_Op::BAND => Op::Band,
        MPI_Op::BOR => Op::Bor,
        MPI_Op::BXOR => Op::Bxor,
        MPI_Op::LAND => Op::Land,
        MPI_Op::LOR => Op::Lor,
        MPI_Op::LXOR => Op::Lxor,
        MPI_Op::MINLOC => Op::Minloc,
        MPI_Op::MAXLOC => Op::Maxloc,
        MPI_Op::REPLACE => Op::Replace,
        MPI_Op::NO_OP => Op::NoOp,
        _ => return None,
    })
}
