// SPDX-License-Identifier: MIT OR Apache-2.0
//! IEEE binary16, computed in binary32.
use super::{ComplexPart, OpNumber};

/// An IEEE binary16 number, computed with as an `f32`.
#[derive(Clone, Copy, PartialEq, PartialOrd)]
pub(super) struct HalfFloat(f32);

impl OpNumber<2> for HalfFloat {
    fn read(bytes: [u8; 2]) -> Self {
        Self(widen(u16::from_ne_bytes(bytes)))
    }
    fn write(self) -> [u8; 2] {
        narrow(self.0).to_ne_bytes()
    }
    fn add(self, other: Self) -> Self {
        Self(self.0 + other.0)
    }
    fn mul(self, other: Self) -> Self {
        Self(self.0 * other.0)
    }
}

impl ComplexPart<2> for HalfFloat {
    fn negate(self) -> Self {
        Self(-self.0)
    }
}

fn widen(bits: u16) -> f32 {
    let sign = if bits & 0x8000 != 0 { -1.0 } else { 1.0 };
    let (exponent, fraction) = (i32::from(bits >> 10 & 0x1f), f32::from(bits & 0x3ff));
    sign * match exponent {
        0 => fraction * 2f32.powi(-24),
        31 if fraction == 0.0 => f32::INFINITY,
        31 => f32::NAN,
        _ => (1.0 + fraction / 1024.0) * 2f32.powi(exponent - 15),
    }
}

#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "ranges are checked"
)]
fn narrow(value: f32) -> u16 {
    let sign = if value.is_sign_negative() { 0x8000 } else { 0 };
    let size = value.abs();
    if size.is_nan() {
        return sign | 0x7e00;
    }
    // The largest number of the format is 65504. 65520 is halfway to the next number that the format would have, and
    // rounds to infinity.
    if size >= 65520.0 {
        return sign | 0x7c00;
    }
    let exponent = if size < 2f32.powi(-14) {
        -14
    } else {
        size.log2().floor() as i32
    };
    let steps = (size / 2f32.powi(exponent - 10)).round_ties_even() as u16;
    // If there are fewer than 1024 steps, the number is subnormal and has exponent 0. If rounding carries to 2048
    // steps, the exponent grows by one.
    let biased = ((exponent + 14) as u16) << 10;
    sign | if steps < 1024 { steps } else { biased + steps }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_half_float_survives_widening_and_narrowing() {
        for bits in 0..=u16::MAX {
            let value = widen(bits);
            if !value.is_nan() {
                assert_eq!(narrow(value), bits, "{bits:#x} is {value}");
            }
        }
    }
}
