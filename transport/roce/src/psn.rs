// SPDX-License-Identifier: MIT OR Apache-2.0
//! Packet sequence numbers: 24 bits, modulo 2^24. IBTA vol. 1 section 9.7.

/// A packet sequence number, 0 to 2^24 - 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Psn(u32);

impl Psn {
    /// Mask of the 24 bits of a PSN.
    pub const MASK: u32 = 0x00ff_ffff;

    /// The low 24 bits of `number`.
    pub const fn new(number: u32) -> Self {
        Self(number & Self::MASK)
    }

    /// The PSN as a number below 2^24.
    pub const fn get(self) -> u32 {
        self.0
    }

    /// The PSN that is `packets` later.
    #[must_use]
    pub const fn plus(self, packets: u32) -> Self {
        Self::new(self.0.wrapping_add(packets))
    }

    /// The PSN before this one.
    #[must_use]
    pub const fn previous(self) -> Self {
        Self::new(self.0.wrapping_sub(1))
    }

    /// The signed distance from `other` to this PSN, -2^23 to 2^23 - 1; negative if this PSN is before `other`.
    pub const fn since(self, other: Self) -> i32 {
        (self.0.wrapping_sub(other.0) << 8).cast_signed() >> 8
    }

    /// Whether this PSN is before `other`, by the sign of [`since`](Self::since).
    pub const fn is_before(self, other: Self) -> bool {
        self.since(other) < 0
    }

    /// The distance from `other` forwards to this PSN, 0 to 2^24 - 1.
    pub const fn packets_since(self, other: Self) -> u32 {
        self.0.wrapping_sub(other.0) & Self::MASK
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn psns_wrap_after_24_bits() {
        let last = Psn::new(0xffff_ffff);
        assert_eq!(last.get(), 0x00ff_ffff);
        assert_eq!(last.plus(1), Psn::new(0));
        assert_eq!(Psn::new(0).previous(), last);
        assert_eq!(Psn::new(5).packets_since(last), 6);
    }

    #[test]
    fn psn_order_is_the_sign_of_the_difference() {
        let cases = [
            (0, 0, 0),
            (1, 0, 1),
            (0, 1, -1),
            (0, 0x00ff_ffff, 1),
            (0x007f_ffff, 0, 0x007f_ffff),
            (0x0080_0000, 0, -0x0080_0000),
            (5, 0x00ff_fffd, 8),
        ];
        for (this, other, since) in cases {
            let (this, other) = (Psn::new(this), Psn::new(other));
            assert_eq!(this.since(other), since, "{this:?} since {other:?}");
            assert_eq!(this.is_before(other), since < 0);
        }
    }
}
