// SPDX-License-Identifier: MIT OR Apache-2.0
//! IEEE 754 binary128, Fortran's `REAL*16`. It is computed in software, and rounded to nearest with ties to even.

use super::{ComplexPart, OpNumber};
use std::cmp::Ordering;

/// An IEEE binary128 number, by its bits.
#[derive(Clone, Copy)]
pub(super) struct Quad(u128);

/// A finite number: `value` times two to the power of `exponent` - 16383 - 115; or 0.
struct Finite {
    negative: bool,
    exponent: i32,
    /// The leading one is at bit 115, unless the number is too small for that. The last three bits are extra bits for
    /// rounding.
    value: u128,
}

impl OpNumber<16> for Quad {
    fn read(bytes: [u8; 16]) -> Self {
        Self(u128::from_ne_bytes(bytes))
    }

    fn write(self) -> [u8; 16] {
        self.0.to_ne_bytes()
    }

    fn add(self, other: Self) -> Self {
        if let Some(special) = self.nan_of(other) {
            return special;
        }
        match (self.is_infinite(), other.is_infinite()) {
            (true, true) if self.is_negative() != other.is_negative() => return NAN,
            (true, _) => return self,
            (_, true) => return other,
            _ => {}
        }
        let (large, small) = match self.magnitude() >= other.magnitude() {
            true => (self.finite(), other.finite()),
            false => (other.finite(), self.finite()),
        };
        let distance = large.exponent - small.exponent;
        let shifted = shifted_right(small.value, distance.cast_unsigned());
        let value = match large.negative == small.negative {
            true => large.value + shifted,
            false => large.value - shifted,
        };
        // An exact cancellation gives +0 (IEEE 754 section 6.3).
        let negative = large.negative && (value != 0 || small.negative);
        Finite {
            negative,
            value,
            ..large
        }
        .rounded()
    }

    fn mul(self, other: Self) -> Self {
        if let Some(special) = self.nan_of(other) {
            return special;
        }
        let negative = self.is_negative() != other.is_negative();
        if self.is_infinite() || other.is_infinite() {
            let zero = self.magnitude() == 0 || other.magnitude() == 0;
            return if zero {
                NAN
            } else {
                Self(sign(negative) | INFINITY)
            };
        }
        let (first, second) = (self.finite().normal(), other.finite().normal());
        // Both factors have 113 bits, so the product has 225 or 226.
        let (high, low) = product(first.value >> EXTRA, second.value >> EXTRA);
        let value = high << (128 - DROPPED) | low >> DROPPED;
        let sticky = u128::from(low << (128 - DROPPED) != 0);
        Finite {
            negative,
            exponent: first.exponent + second.exponent - BIAS,
            value: value | sticky,
        }
        .rounded()
    }
}

impl ComplexPart<16> for Quad {
    fn negate(self) -> Self {
        Self(self.0 ^ SIGN)
    }
}

impl PartialEq for Quad {
    fn eq(&self, other: &Self) -> bool {
        self.partial_cmp(other) == Some(Ordering::Equal)
    }
}

impl PartialOrd for Quad {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        if self.is_nan() || other.is_nan() {
            return None;
        }
        Some(self.order().cmp(&other.order()))
    }
}

impl Quad {
    fn magnitude(self) -> u128 {
        self.0 & !SIGN
    }

    fn is_negative(self) -> bool {
        self.0 & SIGN != 0
    }

    fn is_infinite(self) -> bool {
        self.magnitude() == INFINITY
    }

    fn is_nan(self) -> bool {
        self.magnitude() > INFINITY
    }

    /// The first NaN of the two numbers, made quiet; `None`: neither is a NaN.
    fn nan_of(self, other: Self) -> Option<Self> {
        let nan = [self, other].into_iter().find(|number| number.is_nan());
        nan.map(|nan| Self(nan.0 | QUIET))
    }

    /// An integer by which this number is compared: numbers have the order of their integers. Both zeros have the same
    /// integer.
    fn order(self) -> i128 {
        let magnitude = self.magnitude().cast_signed();
        if self.is_negative() {
            -magnitude
        } else {
            magnitude
        }
    }

    fn finite(self) -> Finite {
        let exponent = self.magnitude() >> FRACTION;
        let fraction = self.0 & ((1 << FRACTION) - 1);
        let leading = u128::from(exponent != 0) << FRACTION;
        Finite {
            negative: self.is_negative(),
            exponent: i32::try_from(exponent.max(1)).unwrap_or(MOST),
            value: (fraction | leading) << EXTRA,
        }
    }
}

impl Finite {
    /// This number with its leading one at bit 115, even if the exponent becomes too small for the format.
    fn normal(self) -> Self {
        let missing = self.value.leading_zeros().saturating_sub(127 - LEADING);
        if self.value == 0 || missing == 0 {
            return self;
        }
        Self {
            exponent: self.exponent - missing.cast_signed(),
            value: self.value << missing,
            ..self
        }
    }

    fn rounded(self) -> Quad {
        if self.value == 0 {
            return Quad(sign(self.negative));
        }
        let Self {
            negative,
            mut exponent,
            mut value,
        } = self;
        if value >> (LEADING + 1) != 0 {
            value = shifted_right(value, 1);
            exponent += 1;
        }
        if exponent < 1 {
            value = shifted_right(value, (1 - exponent).cast_unsigned());
            exponent = 1;
        }
        let missing = value.leading_zeros().saturating_sub(127 - LEADING);
        let shift = missing.min((exponent - 1).cast_unsigned());
        value <<= shift;
        exponent -= shift.cast_signed();
        let (kept, rest) = (value >> EXTRA, value & 7);
        let up = rest > 4 || rest == 4 && kept & 1 == 1;
        let kept = kept + u128::from(up);
        if exponent >= MOST {
            return Quad(sign(negative) | INFINITY);
        }
        // The leading one of the fraction is added to the exponent, and so is a carry from rounding. The result may
        // become infinity.
        let exponent = u128::from((exponent - 1).unsigned_abs());
        Quad(sign(negative) | ((exponent << FRACTION) + kept))
    }
}

fn sign(negative: bool) -> u128 {
    if negative { SIGN } else { 0 }
}

/// Shifts right. The last bit of the result is set if any bit was lost.
fn shifted_right(value: u128, by: u32) -> u128 {
    match by {
        0 => value,
        1..128 => value >> by | u128::from(value << (128 - by) != 0),
        _ => u128::from(value != 0),
    }
}

/// The 256 bits of a product: the high half, then the low half.
fn product(first: u128, second: u128) -> (u128, u128) {
    const HALF: u128 = (1 << 64) - 1;
    let (a, b) = (first >> 64, first & HALF);
    let (c, d) = (second >> 64, second & HALF);
    let (ac, ad, bc, bd) = (a * c, a * d, b * c, b * d);
    let middle = (bd >> 64) + (ad & HALF) + (bc & HALF);
    let low = middle << 64 | bd & HALF;
    (ac + (ad >> 64) + (bc >> 64) + (middle >> 64), low)
}

const SIGN: u128 = 1 << 127;
/// Number of bits of the fraction.
const FRACTION: u32 = 112;
/// Number of extra bits that are kept for rounding.
const EXTRA: u32 = 3;
/// Position of the leading one in a [`Finite`].
const LEADING: u32 = FRACTION + EXTRA;
/// Number of low bits of a product that only determine whether the other bits are exact. The leading one of a product
/// is at bit 224 or 225.
const DROPPED: u32 = 2 * FRACTION - LEADING;
const BIAS: i32 = 16383;
/// The exponent of infinity and NaN.
const MOST: i32 = 0x7fff;
const INFINITY: u128 = 0x7fff << FRACTION;
const QUIET: u128 = 1 << (FRACTION - 1);
/// The NaN that the processor's floating-point units return.
const NAN: Quad = Quad(SIGN | INFINITY | QUIET);

#[cfg(test)]
mod tests {
    use super::*;

    /// The 128-bit form of a whole number, other than 0.
    fn whole(value: u64) -> Quad {
        let exponent = u128::from(16383 + value.ilog2());
        let fraction = u128::from(value) << (FRACTION - value.ilog2());
        Quad((exponent << FRACTION) | fraction & ((1 << FRACTION) - 1))
    }

    fn bits(number: Quad) -> u128 {
        number.0
    }

    #[test]
    fn quad_arithmetic_of_integers_is_exact() {
        assert!(whole(3).add(whole(4)) == whole(7));
        assert!(whole(3).mul(whole(5)) == whole(15));
        assert!(whole(7).add(whole(5).negate()) == whole(2));
        assert!(whole(3) < whole(4) && whole(4) > whole(3) && whole(3).negate() < whole(1));
        let (large, one) = (whole((1 << 56) - 1), whole(1));
        assert!(large.mul(large).add(one.negate()) < large.mul(large));
        assert_eq!(bits(whole(9).add(whole(9).negate())), 0);
    }

    #[test]
    fn quad_addition_rounds_half_to_even() {
        // 2^-113 is half a unit in the last place of 1.
        let half = Quad(u128::from(16383 - 113u32) << FRACTION);
        let one = bits(whole(1));
        assert_eq!(bits(whole(1).add(half)), one);
        assert_eq!(bits(Quad(one + 1).add(half)), one + 2);
        let more = Quad(half.0 + 1);
        assert_eq!(bits(whole(1).add(more)), one + 1);
    }

    #[test]
    fn quad_overflow_underflow_infinity_and_nan() {
        let (largest, least, infinity) = (Quad(INFINITY - 1), Quad(1), Quad(INFINITY));
        assert_eq!(bits(largest.add(largest)), INFINITY);
        assert_eq!(bits(largest.mul(whole(2))), INFINITY);
        assert_eq!(bits(least.add(least)), 2);
        assert_eq!(bits(least.mul(least)), 0);
        assert_eq!(bits(least.negate().mul(least)), SIGN);
        // The largest number without a leading one, and the next number.
        let under = Quad((1 << FRACTION) - 1);
        assert_eq!(bits(under.add(least)), 1 << FRACTION);
        assert_eq!(bits(Quad(1 << FRACTION).add(least.negate())), under.0);
        assert!(infinity.add(infinity.negate()).is_nan());
        assert!(infinity.mul(Quad(0)).is_nan());
        assert_eq!(bits(infinity.add(largest.negate())), INFINITY);
        let nan = Quad(INFINITY + 1);
        assert_eq!(bits(nan.add(whole(1))), INFINITY + 1 + QUIET);
        assert!(nan != nan && nan.partial_cmp(&whole(1)).is_none());
        assert!(Quad(SIGN) == Quad(0));
    }
}
