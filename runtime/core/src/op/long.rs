// SPDX-License-Identifier: MIT OR Apache-2.0
//! C's `long double`. On x86-64 that is the 80-bit format, computed by the x87 FPU.
//!
//! # Safety
//! The assembly accesses only the operands of its function, and leaves the x87 register stack as it was.
#![allow(unsafe_code)]

use super::{ComplexPart, OpNumber};
use std::cmp::Ordering;

/// A C `long double` of x86-64: an 80-bit number in 16 bytes.
#[derive(Clone, Copy)]
#[repr(C, align(16))]
pub(super) struct Long([u8; 16]);

impl OpNumber<16> for Long {
    fn read(bytes: [u8; 16]) -> Self {
        Self(bytes)
    }
    fn write(self) -> [u8; 16] {
        self.0
    }
    fn add(self, other: Self) -> Self {
        let mut sum = self;
        // SAFETY: the instructions load two and store one ten-byte number, at addresses of 16-byte values, and pop what
        // they push.
        unsafe {
            std::arch::asm!(
                "fld tbyte ptr [{a}]", "fld tbyte ptr [{b}]", "faddp st(1), st", "fstp tbyte ptr [{a}]",
                a = in(reg) &raw mut sum, b = in(reg) &raw const other,
                out("st(0)") _, out("st(1)") _, out("st(2)") _, out("st(3)") _,
                out("st(4)") _, out("st(5)") _, out("st(6)") _, out("st(7)") _,
            );
        }
        sum
    }
    fn mul(self, other: Self) -> Self {
        let mut product = self;
        // SAFETY: as for `add`.
        unsafe {
            std::arch::asm!(
                "fld tbyte ptr [{a}]", "fld tbyte ptr [{b}]", "fmulp st(1), st", "fstp tbyte ptr [{a}]",
                a = in(reg) &raw mut product, b = in(reg) &raw const other,
                out("st(0)") _, out("st(1)") _, out("st(2)") _, out("st(3)") _,
                out("st(4)") _, out("st(5)") _, out("st(6)") _, out("st(7)") _,
            );
        }
        product
    }
}

impl ComplexPart<16> for Long {
    fn negate(mut self) -> Self {
        self.0[9] ^= 0x80;
        self
    }
}

impl PartialEq for Long {
    fn eq(&self, other: &Self) -> bool {
        self.partial_cmp(other) == Some(Ordering::Equal)
    }
}

impl PartialOrd for Long {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        let (above, below, unordered): (u8, u8, u8);
        // SAFETY: as for `add`; the flags that the comparison sets are read before any other instruction changes them.
        unsafe {
            std::arch::asm!(
                "fld tbyte ptr [{b}]", "fld tbyte ptr [{a}]", "fcomip st, st(1)",
                "setp {u}", "seta {g}", "setb {l}", "fstp st(0)",
                a = in(reg) self, b = in(reg) other,
                u = out(reg_byte) unordered, g = out(reg_byte) above, l = out(reg_byte) below,
                out("st(0)") _, out("st(1)") _, out("st(2)") _, out("st(3)") _,
                out("st(4)") _, out("st(5)") _, out("st(6)") _, out("st(7)") _,
            );
        }
        match (unordered, above, below) {
            (1, _, _) => None,
            (_, 1, _) => Some(Ordering::Greater),
            (_, _, 1) => Some(Ordering::Less),
            _ => Some(Ordering::Equal),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The 80-bit form of a small whole number, other than 0.
    fn whole(value: u64) -> Long {
        let mut bytes = [0; 16];
        let shift = value.leading_zeros();
        bytes[..8].copy_from_slice(&(value << shift).to_le_bytes());
        bytes[8..10].copy_from_slice(&u16::try_from(16383 + 63 - shift).unwrap().to_le_bytes());
        Long(bytes)
    }

    #[test]
    fn x87_arithmetic_uses_80_bits() {
        assert!(whole(3).add(whole(4)) == whole(7));
        assert!(whole(3).mul(whole(5)) == whole(15));
        assert!(whole(3) < whole(4) && whole(4) > whole(3));
        // 2^63 + 1 needs all 64 bits of the significand, more than binary64 has.
        assert!(whole(1 << 63).add(whole(1)) == whole((1 << 63) + 1));
        assert!(whole(2).add(whole(5).negate()) < whole(1));
    }
}
