// SPDX-License-Identifier: MIT OR Apache-2.0
//! The protocol that a frame, a work request or an immediate is part of, if several protocols share one fabric.

use crate::WorkId;

/// One of the protocols that share a fabric, by a number below 8 on which both ends agree. The number is in three bits
/// of the kind of each frame, of the id of each work request, and of each immediate. The transport treats all owners
/// alike; the caller of `poll` dispatches by the number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Owner(u8);

impl Owner {
    /// Number of owners.
    pub const COUNT: u8 = 8;
    /// Number of frame kinds of each owner.
    pub const KINDS: u8 = 16;
    /// Number of bits of a work request's id that the owner chooses.
    pub const WORK_BITS: u32 = 61;
    /// Number of bits of an immediate that the owner chooses.
    pub const IMMEDIATE_BITS: u32 = 29;

    /// The owner with this number.
    ///
    /// # Panics
    /// When the number is [`COUNT`](Self::COUNT) or more.
    #[must_use]
    pub const fn new(number: u8) -> Self {
        assert!(number < Self::COUNT, "owners have numbers below 8");
        Self(number)
    }

    /// Frame kind `number` of this owner.
    ///
    /// # Panics
    /// When the number is [`KINDS`](Self::KINDS) or more.
    #[must_use]
    pub const fn kind(self, number: u8) -> u8 {
        assert!(number < Self::KINDS, "an owner has 16 kinds of frames");
        self.0 * Self::KINDS + number
    }

    /// The owner of a frame kind below 128. Kinds from 128 on are the transport's own and have no owner.
    #[inline(always)]
    #[must_use]
    pub const fn of_kind(kind: u8) -> Self {
        Self(kind / Self::KINDS)
    }

    /// The id of a work request, from 61 bits of this owner's choice.
    #[inline(always)]
    #[must_use]
    pub const fn work(self, number: u64) -> WorkId {
        WorkId(number & WORK_MASK | (self.0 as u64) << Self::WORK_BITS)
    }

    /// The owner of a work request.
    #[inline(always)]
    #[must_use]
    pub const fn of_work(work: WorkId) -> Self {
        Self((work.0 >> Self::WORK_BITS) as u8)
    }

    /// An immediate, from 29 bits of this owner's choice.
    #[inline(always)]
    #[must_use]
    pub const fn immediate(self, number: u32) -> u32 {
        number & IMMEDIATE_MASK | (self.0 as u32) << Self::IMMEDIATE_BITS
    }

    /// The owner of an immediate.
    #[inline(always)]
    #[must_use]
    pub const fn of_immediate(immediate: u32) -> Self {
        Self((immediate >> Self::IMMEDIATE_BITS) as u8)
    }
}

impl WorkId {
    /// The bits that its [owner](Owner) has chosen.
    #[inline(always)]
    #[must_use]
    pub const fn number(self) -> u64 {
        self.0 & WORK_MASK
    }
}

/// The bits that the owner of an immediate has chosen.
#[inline(always)]
#[must_use]
pub const fn number_of_immediate(immediate: u32) -> u32 {
    immediate & IMMEDIATE_MASK
}

const WORK_MASK: u64 = (1 << Owner::WORK_BITS) - 1;
const IMMEDIATE_MASK: u32 = (1 << Owner::IMMEDIATE_BITS) - 1;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn works_immediates_and_kinds_keep_their_owner_and_number() {
        for owner in (0..Owner::COUNT).map(Owner::new) {
            for number in [0, 1, u64::from(u32::MAX), WORK_MASK] {
                let work = owner.work(number);
                assert_eq!((Owner::of_work(work), work.number()), (owner, number));
            }
            for number in [0, 1, IMMEDIATE_MASK] {
                let immediate = owner.immediate(number);
                assert_eq!(Owner::of_immediate(immediate), owner);
                assert_eq!(number_of_immediate(immediate), number);
            }
            for number in [0, 15] {
                let kind = owner.kind(number);
                assert!(kind < 128 && Owner::of_kind(kind) == owner);
            }
        }
    }

    #[test]
    fn too_large_numbers_do_not_change_the_owner() {
        let owner = Owner::new(2);
        assert_eq!(Owner::of_work(owner.work(u64::MAX)), owner);
        assert_eq!(Owner::of_immediate(owner.immediate(u32::MAX)), owner);
    }

    #[test]
    fn kinds_of_the_transport_have_no_owner() {
        let all = (0..Owner::COUNT).map(Owner::new);
        assert!(all.into_iter().all(|owner| owner != Owner::of_kind(128)));
    }
}
