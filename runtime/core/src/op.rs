// SPDX-License-Identifier: MIT OR Apache-2.0
//! The predefined reductions (MPI 5.0 section 6.9.2) on data without gaps: `inout = input op inout`, element by
//! element.
//!
//! Values are read and written as bytes, so alignment does not matter. The loops are simple enough to be vectorised.

mod half;
mod long;
mod quad;

use std::cmp::Ordering;

use crate::datatype::{Basic, BasicItem, Float, ScalarType};

/// A predefined operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the standard's names")]
pub enum Op {
    Sum,
    Min,
    Max,
    Prod,
    Band,
    Bor,
    Bxor,
    Land,
    Lor,
    Lxor,
    Minloc,
    Maxloc,
    Replace,
    NoOp,
}

/// The operation is not defined for this datatype (MPI 5.0 section 6.9.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Undefined;

/// Applies `op` to items of a predefined datatype without gaps; pairs have no padding either. The number of items is
/// that of the shorter buffer.
///
/// # Errors
/// [`Undefined`] when the standard does not define the operation for the datatype; nothing was changed.
pub fn reduce(op: Op, basic: &Basic, input: &[u8], inout: &mut [u8]) -> Result<(), Undefined> {
    match (op, basic.shape) {
        (Op::NoOp, _) => Ok(()),
        (Op::Replace, _) => {
            let bytes = input.len().min(inout.len());
            inout[..bytes].copy_from_slice(&input[..bytes]);
            Ok(())
        }
        (_, BasicItem::One(scalar)) => reduce_scalars(op, scalar, input, inout),
        (Op::Minloc | Op::Maxloc, BasicItem::Pair { value, index, .. }) => {
            reduce_pairs(op == Op::Minloc, value, index, input, inout)
        }
        _ => Err(Undefined),
    }
}

/// Whether `op` is defined for `basic`.
#[must_use]
pub fn is_defined(op: Op, basic: &Basic) -> bool {
    reduce(op, basic, &[], &mut []).is_ok()
}

fn reduce_scalars(
    op: Op,
    scalar: ScalarType,
    input: &[u8],
    inout: &mut [u8],
) -> Result<(), Undefined> {
    match scalar {
        ScalarType::Signed(1) => integers::<i8, 1>(op, input, inout),
        ScalarType::Signed(2) => integers::<i16, 2>(op, input, inout),
        ScalarType::Signed(4) => integers::<i32, 4>(op, input, inout),
        ScalarType::Signed(8) => integers::<i64, 8>(op, input, inout),
        ScalarType::Signed(16) => integers::<i128, 16>(op, input, inout),
        ScalarType::Unsigned(1) => integers::<u8, 1>(op, input, inout),
        ScalarType::Unsigned(2) => integers::<u16, 2>(op, input, inout),
        ScalarType::Unsigned(4) => integers::<u32, 4>(op, input, inout),
        ScalarType::Unsigned(8) => integers::<u64, 8>(op, input, inout),
        // The standard defines no arithmetic on characters. MPICH, Open MPI and Intel MPI compute with `MPI_CHAR` as C
        // does, and programs rely on it; `MPI_WCHAR` is treated alike.
        ScalarType::Char(1) => integers::<i8, 1>(op, input, inout),
        ScalarType::Char(4) => integers::<i32, 4>(op, input, inout),
        ScalarType::Byte => bits::<u8, 1>(op, input, inout),
        ScalarType::Logical(1) => logicals::<u8, 1>(op, input, inout),
        ScalarType::Logical(2) => logicals::<u16, 2>(op, input, inout),
        ScalarType::Logical(4) => logicals::<u32, 4>(op, input, inout),
        ScalarType::Logical(8) => logicals::<u64, 8>(op, input, inout),
        ScalarType::Logical(16) => logicals::<u128, 16>(op, input, inout),
        ScalarType::Float(Float::Single) => floats::<f32, 4>(op, input, inout),
        ScalarType::Float(Float::Double) => floats::<f64, 8>(op, input, inout),
        ScalarType::Float(Float::Half) => floats::<half::HalfFloat, 2>(op, input, inout),
        ScalarType::Float(Float::Long) => floats::<long::Long, 16>(op, input, inout),
        ScalarType::Float(Float::Quad) => floats::<quad::Quad, 16>(op, input, inout),
        ScalarType::Complex(Float::Single) => complex::<f32, 4, 8>(op, input, inout),
        ScalarType::Complex(Float::Double) => complex::<f64, 8, 16>(op, input, inout),
        ScalarType::Complex(Float::Half) => complex::<half::HalfFloat, 2, 4>(op, input, inout),
        ScalarType::Complex(Float::Long) => complex::<long::Long, 16, 32>(op, input, inout),
        ScalarType::Complex(Float::Quad) => complex::<quad::Quad, 16, 32>(op, input, inout),
        _ => Err(Undefined),
    }
}

/// A number of `N` bytes.
trait OpNumber<const N: usize>: Copy + PartialEq + PartialOrd {
    fn read(bytes: [u8; N]) -> Self;
    fn write(self) -> [u8; N];
    fn add(self, other: Self) -> Self;
    fn mul(self, other: Self) -> Self;
}

/// An integer for bitwise operations.
trait Bits<const N: usize>: OpNumber<N> {
    const ZERO: Self;
    const ONE: Self;
    fn and(self, other: Self) -> Self;
    fn or(self, other: Self) -> Self;
    fn xor(self, other: Self) -> Self;
}

macro_rules! integer {
    ($($type:ty: $bytes:literal),*) => {$(
        impl OpNumber<$bytes> for $type {
            #[inline(always)]
            fn read(bytes: [u8; $bytes]) -> Self { Self::from_ne_bytes(bytes) }
            #[inline(always)]
            fn write(self) -> [u8; $bytes] { self.to_ne_bytes() }
            #[inline(always)]
            fn add(self, other: Self) -> Self { self.wrapping_add(other) }
            #[inline(always)]
            fn mul(self, other: Self) -> Self { self.wrapping_mul(other) }
        }
        impl Bits<$bytes> for $type {
            const ZERO: Self = 0;
            const ONE: Self = 1;
            #[inline(always)]
            fn and(self, other: Self) -> Self { self & other }
            #[inline(always)]
            fn or(self, other: Self) -> Self { self | other }
            #[inline(always)]
            fn xor(self, other: Self) -> Self { self ^ other }
        }
    )*};
}
integer!(i8: 1, i16: 2, i32: 4, i64: 8, i128: 16, u8: 1, u16: 2, u32: 4, u64: 8, u128: 16);

macro_rules! float {
    ($($type:ty: $bytes:literal),*) => {$(
        impl OpNumber<$bytes> for $type {
            #[inline(always)]
            fn read(bytes: [u8; $bytes]) -> Self { Self::from_ne_bytes(bytes) }
            #[inline(always)]
            fn write(self) -> [u8; $bytes] { self.to_ne_bytes() }
            #[inline(always)]
            fn add(self, other: Self) -> Self { self + other }
            #[inline(always)]
            fn mul(self, other: Self) -> Self { self * other }
        }
    )*};
}
float!(f32: 4, f64: 8);

/// Sets each `inout[i]` to `f(input[i], inout[i])`.
#[inline(always)]
fn fold<T: OpNumber<N>, const N: usize>(input: &[u8], inout: &mut [u8], f: impl Fn(T, T) -> T) {
    let (input, _) = input.as_chunks::<N>();
    let (inout, _) = inout.as_chunks_mut::<N>();
    for (to, from) in inout.iter_mut().zip(input) {
        *to = f(T::read(*from), T::read(*to)).write();
    }
}

fn integers<T: Bits<N>, const N: usize>(
    op: Op,
    input: &[u8],
    inout: &mut [u8],
) -> Result<(), Undefined> {
    match op {
        Op::Sum => fold::<T, N>(input, inout, T::add),
        Op::Prod => fold::<T, N>(input, inout, T::mul),
        Op::Min => fold::<T, N>(input, inout, |a, b| if a < b { a } else { b }),
        Op::Max => fold::<T, N>(input, inout, |a, b| if a > b { a } else { b }),
        Op::Land | Op::Lor | Op::Lxor => return logicals::<T, N>(op, input, inout),
        _ => return bits::<T, N>(op, input, inout),
    }
    Ok(())
}

fn bits<T: Bits<N>, const N: usize>(
    op: Op,
    input: &[u8],
    inout: &mut [u8],
) -> Result<(), Undefined> {
    match op {
        Op::Band => fold::<T, N>(input, inout, T::and),
        Op::Bor => fold::<T, N>(input, inout, T::or),
        Op::Bxor => fold::<T, N>(input, inout, T::xor),
        _ => return Err(Undefined),
    }
    Ok(())
}

fn logicals<T: Bits<N>, const N: usize>(
    op: Op,
    input: &[u8],
    inout: &mut [u8],
) -> Result<(), Undefined> {
    let truth = |value: bool| if value { T::ONE } else { T::ZERO };
    match op {
        Op::Land => fold::<T, N>(input, inout, |a, b| truth(a != T::ZERO && b != T::ZERO)),
        Op::Lor => fold::<T, N>(input, inout, |a, b| truth(a != T::ZERO || b != T::ZERO)),
        Op::Lxor => fold::<T, N>(input, inout, |a, b| truth((a != T::ZERO) != (b != T::ZERO))),
        _ => return Err(Undefined),
    }
    Ok(())
}

fn floats<T: OpNumber<N>, const N: usize>(
    op: Op,
    input: &[u8],
    inout: &mut [u8],
) -> Result<(), Undefined> {
    match op {
        Op::Sum => fold::<T, N>(input, inout, T::add),
        Op::Prod => fold::<T, N>(input, inout, T::mul),
        Op::Min => fold::<T, N>(input, inout, |a, b| if a < b { a } else { b }),
        Op::Max => fold::<T, N>(input, inout, |a, b| if a > b { a } else { b }),
        _ => return Err(Undefined),
    }
    Ok(())
}

/// Reduces complex numbers of two parts of `N` bytes each. `M` must be twice `N`.
fn complex<T: ComplexPart<N>, const N: usize, const M: usize>(
    op: Op,
    input: &[u8],
    inout: &mut [u8],
) -> Result<(), Undefined> {
    if !matches!(op, Op::Sum | Op::Prod) {
        return Err(Undefined);
    }
    let parts = |bytes: &[u8; M]| {
        let (parts, _) = bytes.as_chunks::<N>();
        (T::read(parts[0]), T::read(parts[1]))
    };
    let (input, _) = input.as_chunks::<M>();
    let (inout, _) = inout.as_chunks_mut::<M>();
    for (to, from) in inout.iter_mut().zip(input) {
        let ((a, b), (c, d)) = (parts(from), parts(to));
        let (real, imaginary) = match op {
            Op::Sum => (a.add(c), b.add(d)),
            _ => (a.mul(c).add(b.mul(d).negate()), a.mul(d).add(b.mul(c))),
        };
        to[..N].copy_from_slice(&real.write());
        to[N..].copy_from_slice(&imaginary.write());
    }
    Ok(())
}

/// The real or imaginary part of a complex number.
trait ComplexPart<const N: usize>: OpNumber<N> {
    fn negate(self) -> Self;
}

impl ComplexPart<4> for f32 {
    fn negate(self) -> Self {
        -self
    }
}

impl ComplexPart<8> for f64 {
    fn negate(self) -> Self {
        -self
    }
}

/// Reduces pairs of value and index. `minimum`: whether the result is the pair with the lower value, not the one with
/// the higher value. If two values are equal, the result has the lower index. A NaN loses against every number, and two
/// NaNs count as equal, so the result does not depend on the order of the pairs.
fn reduce_pairs(
    minimum: bool,
    value: ScalarType,
    index: ScalarType,
    input: &[u8],
    inout: &mut [u8],
) -> Result<(), Undefined> {
    let (value_bytes, index_bytes) = (usize::from(value.bytes()), usize::from(index.bytes()));
    let item = value_bytes + index_bytes;
    for (to, from) in inout.chunks_exact_mut(item).zip(input.chunks_exact(item)) {
        let (a, i) = from.split_at(value_bytes);
        let (b, j) = to.split_at(value_bytes);
        let values = compare(value, minimum, a, b).ok_or(Undefined)?;
        let indices = compare(index, true, i, j).ok_or(Undefined)?;
        if values.then(indices).is_lt() {
            to.copy_from_slice(from);
        }
    }
    Ok(())
}

/// The order of two numbers, ascending or else descending, NaNs last; `None`: numbers of this type are not compared.
fn compare(scalar: ScalarType, ascending: bool, a: &[u8], b: &[u8]) -> Option<Ordering> {
    fn order<T: OpNumber<N>, const N: usize>(
        ascending: bool,
        a: &[u8],
        b: &[u8],
    ) -> Option<Ordering> {
        let (a, b) = (T::read(*a.first_chunk()?), T::read(*b.first_chunk()?));
        let is_nan = |number: T| number.partial_cmp(&number).is_none();
        let numbers = match ascending {
            true => a.partial_cmp(&b),
            false => b.partial_cmp(&a),
        };
        Some(numbers.unwrap_or_else(|| is_nan(a).cmp(&is_nan(b))))
    }
    match scalar {
        ScalarType::Signed(2) => order::<i16, 2>(ascending, a, b),
        ScalarType::Signed(4) => order::<i32, 4>(ascending, a, b),
        ScalarType::Signed(8) => order::<i64, 8>(ascending, a, b),
        ScalarType::Float(Float::Single) => order::<f32, 4>(ascending, a, b),
        ScalarType::Float(Float::Double) => order::<f64, 8>(ascending, a, b),
        ScalarType::Float(Float::Long) => order::<long::Long, 16>(ascending, a, b),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run<T: Copy, const N: usize>(
        op: Op,
        scalar: ScalarType,
        input: [T; 2],
        inout: [T; 2],
        bytes: impl Fn(T) -> [u8; N],
    ) -> Result<Vec<u8>, Undefined> {
        let input: Vec<u8> = input.iter().flat_map(|v| bytes(*v)).collect();
        let mut inout: Vec<u8> = inout.iter().flat_map(|v| bytes(*v)).collect();
        reduce(op, &Basic::of_scalar(scalar), &input, &mut inout).map(|()| inout)
    }

    #[test]
    fn integers_have_all_operations() {
        let calc = |op| {
            run(
                op,
                ScalarType::Signed(4),
                [6i32, -3],
                [3, 0],
                i32::to_ne_bytes,
            )
            .unwrap()
        };
        let is = |op, expected: [i32; 2]| {
            assert_eq!(
                calc(op),
                expected
                    .iter()
                    .flat_map(|v| v.to_ne_bytes())
                    .collect::<Vec<_>>(),
                "{op:?}"
            );
        };
        is(Op::Sum, [9, -3]);
        is(Op::Prod, [18, 0]);
        is(Op::Min, [3, -3]);
        is(Op::Max, [6, 0]);
        is(Op::Band, [2, 0]);
        is(Op::Bor, [7, -3]);
        is(Op::Bxor, [5, -3]);
        is(Op::Land, [1, 0]);
        is(Op::Lor, [1, 1]);
        is(Op::Lxor, [0, 1]);
    }

    #[test]
    fn characters_have_the_arithmetic_of_c() {
        let one = |op| {
            run(
                op,
                ScalarType::Char(1),
                [100i8, -3],
                [3, -4],
                i8::to_ne_bytes,
            )
            .unwrap()
        };
        assert_eq!(one(Op::Sum), [103i8, -7].map(|v| v.to_ne_bytes()[0]));
        assert_eq!(one(Op::Max), [100i8, -3].map(|v| v.to_ne_bytes()[0]));
        assert_eq!(one(Op::Lxor), [0, 0]);
        let wide = run(
            Op::Prod,
            ScalarType::Char(4),
            [3i32, -3],
            [5, 7],
            i32::to_ne_bytes,
        );
        let expected = [15i32, -21].map(i32::to_ne_bytes).concat();
        assert_eq!(wide, Ok(expected));
        assert!(!is_defined(
            Op::Minloc,
            &Basic::of_scalar(ScalarType::Char(1))
        ));
    }

    #[test]
    fn floats_have_arithmetic_and_no_bitwise_operations() {
        let sum = run(
            Op::Sum,
            ScalarType::Float(Float::Double),
            [1.5f64, 2.0],
            [0.25, -2.0],
            f64::to_ne_bytes,
        );
        assert_eq!(
            sum.unwrap(),
            [1.75f64, 0.0]
                .iter()
                .flat_map(|v| v.to_ne_bytes())
                .collect::<Vec<_>>()
        );
        for op in [Op::Band, Op::Land, Op::Minloc] {
            assert!(
                !is_defined(op, &Basic::of_scalar(ScalarType::Float(Float::Double))),
                "{op:?}"
            );
        }
        assert!(!is_defined(
            Op::Max,
            &Basic::of_scalar(ScalarType::Complex(Float::Single))
        ));
        assert!(!is_defined(Op::Sum, &Basic::of_scalar(ScalarType::Byte)));
        assert!(is_defined(Op::Bxor, &Basic::of_scalar(ScalarType::Byte)));
    }

    #[test]
    fn complex_numbers_multiply() {
        let bytes = |parts: [f32; 2]| {
            parts
                .iter()
                .flat_map(|v| v.to_ne_bytes())
                .collect::<Vec<_>>()
        };
        let mut inout = bytes([3.0, 4.0]);
        reduce(
            Op::Prod,
            &Basic::of_scalar(ScalarType::Complex(Float::Single)),
            &bytes([1.0, 2.0]),
            &mut inout,
        )
        .unwrap();
        assert_eq!(inout, bytes([-5.0, 10.0]));
    }

    #[test]
    fn minloc_and_maxloc_take_the_lower_index_of_equal_values() {
        let pair = |v: f64, i: i32| [&v.to_ne_bytes()[..], &i.to_ne_bytes()].concat();
        let basic = Basic::of_pair(ScalarType::Float(Float::Double), ScalarType::Signed(4));
        for (op, a, b, expected) in [
            (Op::Minloc, (1.0, 5), (1.0, 3), (1.0, 3)),
            (Op::Minloc, (0.5, 5), (1.0, 3), (0.5, 5)),
            (Op::Maxloc, (2.0, 9), (1.0, 3), (2.0, 9)),
            (Op::Maxloc, (1.0, 2), (1.0, 3), (1.0, 2)),
        ] {
            let mut inout = pair(b.0, b.1);
            reduce(op, &basic, &pair(a.0, a.1), &mut inout).unwrap();
            assert_eq!(inout, pair(expected.0, expected.1), "{op:?}");
        }
    }

    #[test]
    fn minloc_and_maxloc_take_a_number_rather_than_a_nan_in_any_order() {
        let pair = |(v, i): (f64, i32)| [&v.to_ne_bytes()[..], &i.to_ne_bytes()].concat();
        let basic = Basic::of_pair(ScalarType::Float(Float::Double), ScalarType::Signed(4));
        for op in [Op::Minloc, Op::Maxloc] {
            for (wins, loses) in [
                ((1.0, 5), (f64::NAN, 3)),
                ((f64::INFINITY, 5), (f64::NAN, 3)),
                ((f64::NEG_INFINITY, 5), (f64::NAN, 3)),
                ((f64::NAN, 3), (-f64::NAN, 5)),
            ] {
                for (input, inout) in [(wins, loses), (loses, wins)] {
                    let mut inout = pair(inout);
                    reduce(op, &basic, &pair(input), &mut inout).unwrap();
                    assert_eq!(inout, pair(wins), "{op:?} of {input:?} and another");
                }
            }
        }
    }
}
