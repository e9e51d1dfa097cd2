// SPDX-License-Identifier: MIT OR Apache-2.0
//! Context ids (MPI 5.0 section 7.1.1), which separate the messages of communicators. No process may have two
//! communicators with one context id.
//!
//! - If all members are of one job, the leader of the new communicator [chooses](Contexts::reserve) a context id from
//!   its own range, which no other process of the job uses: these ids begin with the leader's rank in a prefix code
//!   (Elias delta). So the ranges do not depend on the size of the job, and low ranks have more ids.
//! - If the members are of several jobs, or the leader has no id left, the members *agree* on an id. Each member
//!   proposes the [lowest](Contexts::lowest_free) id that it does not use. The highest proposal is used if all members
//!   can [keep](Contexts::keep) it; else they try again with higher ids. Ids that were agreed on have the highest bit
//!   set, and are reused when freed.

use std::collections::HashSet;

use engine::ContextId;

use crate::comm::CONTEXT_STEP;

/// The context ids of a process.
#[derive(Debug)]
pub(crate) struct Contexts {
    rank: u32,
    handed_out: u32,
    /// Maximum of `handed_out`.
    most: u32,
    /// Ids with the highest bit that this process uses, or that members are about to agree on.
    kept: HashSet<ContextId>,
}

impl Contexts {
    /// The context ids of rank `rank` of the job, which chooses at most `most` ids as a leader.
    pub(crate) fn new(rank: u32, most: u32) -> Self {
        Self {
            rank,
            handed_out: 0,
            most,
            kept: HashSet::new(),
        }
    }

    /// Reserves a context id and those up to the next multiple of [`CONTEXT_STEP`]; `None`: all are used up.
    pub(crate) fn reserve(&mut self) -> Option<ContextId> {
        let context = nth_of(self.rank, self.handed_out).filter(|_| self.handed_out < self.most)?;
        self.handed_out += 1;
        Some(context)
    }

    /// Returns a reserved context id; `false`: it is not an id of this process. It is reused only if it was reserved
    /// last.
    pub(crate) fn release(&mut self, context: ContextId) -> bool {
        let last = self.handed_out.checked_sub(1);
        if last.and_then(|last| nth_of(self.rank, last)) == Some(context) {
            self.handed_out -= 1;
        }
        is_of(self.rank, context)
    }

    /// The lowest context id of at least `from` on which members can agree and which this process does not use; `None`:
    /// it uses all of them.
    pub(crate) fn lowest_free(&self, from: u32) -> Option<ContextId> {
        let from = from.max(AGREED).checked_next_multiple_of(CONTEXT_STEP)?;
        let all = (from..=LAST).step_by(CONTEXT_STEP as usize).map(ContextId);
        all.into_iter().find(|context| !self.kept.contains(context))
    }

    /// Marks a context id as used by a communicator. `false`: another communicator of this process uses it.
    pub(crate) fn keep(&mut self, context: ContextId) -> bool {
        self.kept.insert(context)
    }

    /// Frees a context id. If the members had agreed on it, it can be used again.
    pub(crate) fn free(&mut self, context: ContextId) {
        self.kept.remove(&context);
    }
}

/// Whether members have agreed on a context id. Other processes may use such an id for another communicator at the same
/// time.
pub(crate) fn is_agreed(context: ContextId) -> bool {
    context.0 >= AGREED
}

/// Context id number `turn` of those that a rank chooses as a leader; `None`: it has no id with this number.
fn nth_of(rank: u32, turn: u32) -> Option<ContextId> {
    let (code, bits) = code_of(rank);
    let room = NUMBER_BITS.checked_sub(bits)?;
    let is_within = u64::from(turn) < 1 << room;
    let number = u32::try_from(code << room).ok()? | turn;
    is_within.then_some(ContextId(number * CONTEXT_STEP))
}

/// Whether a context id is one of those that a rank chooses as a leader.
fn is_of(rank: u32, context: ContextId) -> bool {
    let (code, bits) = code_of(rank);
    let room = NUMBER_BITS.checked_sub(bits);
    room.is_some_and(|room| u64::from(context.0 / CONTEXT_STEP) >> room == code)
}

/// The Elias delta code of `rank + 1`, and its length in bits. Ranks are coded plus one because 0 has no code.
fn code_of(rank: u32) -> (u64, u32) {
    let number = u64::from(rank) + 1;
    let bits = number.ilog2();
    // The code begins with the bit count of `number` in Elias gamma code: if the count has n bits, n - 1 zeros and then
    // the count in binary.
    let head_bits = 2 * (bits + 1).ilog2() + 1;
    let tail = number - (1 << bits);
    (u64::from(bits + 1) << bits | tail, head_bits + bits)
}

/// The lowest context id on which members can agree.
const AGREED: u32 = 1 << 31;
const LAST: u32 = u32::MAX - CONTEXT_STEP + 1;
/// Number of bits of a context id that distinguish communicators of one job: those below [`AGREED`], without those
/// below [`CONTEXT_STEP`].
const NUMBER_BITS: u32 = AGREED.ilog2() - CONTEXT_STEP.ilog2();

#[cfg(test)]
mod tests {
    use super::*;
    use crate::comm::{SELF_CONTEXT, WORLD_CONTEXT};

    #[test]
    fn contexts_of_different_ranks_are_distinct() {
        let mut seen = HashSet::from([WORLD_CONTEXT, SELF_CONTEXT]);
        for rank in (0..2000).chain([9_999, 65_535, 99_999, 1 << 17]) {
            let mut contexts = Contexts::new(rank, u32::MAX);
            for _ in 0..4 {
                let context = contexts.reserve().unwrap();
                assert!(seen.insert(context), "rank {rank} has {context:?}");
                assert!(context.0.is_multiple_of(CONTEXT_STEP) && context.0 < AGREED);
            }
        }
    }

    /// No rank hands out a context id of another rank.
    #[test]
    fn each_rank_has_its_own_context_range() {
        let count = |rank| {
            let (_, bits) = code_of(rank);
            1 << (NUMBER_BITS - bits)
        };
        let stretch = |rank| {
            let ends = [0, count(rank) - 1].map(|turn| nth_of(rank, turn).unwrap().0);
            assert_eq!(nth_of(rank, count(rank)), None);
            ends
        };
        let mut all: Vec<_> = (0..5000).map(stretch).collect();
        all.sort_unstable();
        assert!(all.is_sorted_by(|before, next| before[1] < next[0]));
        assert!(all[0][0] > SELF_CONTEXT.0);
        let counts = [0, 1, 63, 1023, 16_383].map(count);
        assert_eq!(counts, [1 << 28, 1 << 25, 1 << 18, 1 << 12, 1 << 8]);
    }

    #[test]
    fn a_released_context_is_reserved_again() {
        let mut contexts = Contexts::new(5, u32::MAX);
        let first = contexts.reserve().unwrap();
        let second = contexts.reserve().unwrap();
        assert!(contexts.release(first) && contexts.release(second));
        assert_eq!(contexts.reserve(), Some(second));
    }

    #[test]
    fn a_context_of_another_rank_is_not_released() {
        let mut contexts = Contexts::new(5, u32::MAX);
        let own = contexts.reserve().unwrap();
        for other in [nth_of(4, 0), nth_of(6, 0), contexts.lowest_free(0)] {
            assert!(!contexts.release(other.unwrap()));
        }
        assert!(contexts.release(own));
    }

    #[test]
    fn reserving_fails_when_contexts_are_exhausted() {
        for (most, before) in [(u32::MAX, (1 << 28) - 1), (3, 2)] {
            let mut contexts = Contexts::new(0, most);
            contexts.handed_out = before;
            assert!(contexts.reserve().is_some());
            assert_eq!(contexts.reserve(), None);
        }
        assert_eq!(Contexts::new(u32::MAX, u32::MAX).reserve(), None);
    }

    #[test]
    fn a_kept_context_is_free_again_after_release() {
        let mut contexts = Contexts::new(0, 0);
        let first = contexts.lowest_free(0).unwrap();
        assert!(contexts.keep(first) && !contexts.keep(first));
        let second = contexts.lowest_free(0).unwrap();
        assert_eq!(second.0, first.0 + CONTEXT_STEP);
        assert_eq!(
            contexts.lowest_free(second.0 + 1).unwrap().0,
            second.0 + CONTEXT_STEP
        );
        contexts.free(first);
        assert_eq!(contexts.lowest_free(0), Some(first));
        assert_eq!(contexts.lowest_free(LAST), Some(ContextId(LAST)));
        assert_eq!(contexts.lowest_free(LAST + 1), None);
    }
}
