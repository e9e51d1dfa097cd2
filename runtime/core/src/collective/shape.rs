// SPDX-License-Identifier: MIT OR Apache-2.0
//! What algorithms are chosen by, besides sizes: the same on all ranks.

use crate::var::{Values, Variable};

/// Rows of the variable table, and what the launcher told all ranks alike.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    /// Through one rank, so that each other one waits once, and not in rounds: where ranks share cores, waiting is what
    /// costs, not the number of messages.
    pub flat: bool,
    /// Largest data of a rank, in bytes, that go over a board; 0: none do.
    pub board_bytes: usize,
    /// Largest data, in bytes, that go through one rank.
    pub flat_bytes: usize,
    /// Least slice, in bytes, that a rank combines of all ranks' data.
    pub sliced_bytes: usize,
    /// Largest block, in bytes, that other ranks carry along.
    pub carried_bytes: usize,
    /// Least number of ranks of which some carry blocks of others: of fewer, all may as well talk to all.
    pub carrying_ranks: usize,
}

impl Shape {
    /// `crowded`: the ranks of the node outnumber the CPUs that the launcher has for them.
    pub(crate) fn new(values: &Values, crowded: bool) -> Self {
        let size = |variable| usize::try_from(values.get(variable)).unwrap_or(usize::MAX);
        Self {
            flat: match values.get(Variable::Collectives) {
                0 => crowded,
                word => word == 1,
            },
            board_bytes: match values.get(Variable::Collectives) {
                0 => size(Variable::BoardLimit),
                _ => 0,
            },
            flat_bytes: size(Variable::FlatLimit),
            sliced_bytes: size(Variable::SliceLimit),
            carried_bytes: size(Variable::CarryLimit),
            carrying_ranks: size(Variable::CarryRanks),
        }
    }

    /// Whether data of this size go through one rank.
    pub(crate) fn is_flat(self, bytes: usize) -> bool {
        self.flat && bytes <= self.flat_bytes
    }

    /// Whether each rank combines a slice of data of this size.
    pub(crate) fn is_sliced(self, bytes: usize, ranks: u32) -> bool {
        bytes / ranks as usize >= self.sliced_bytes
    }

    /// Whether blocks of this size are carried along by ranks between.
    #[must_use]
    pub fn is_carried(self, block_bytes: usize, ranks: usize) -> bool {
        block_bytes <= self.carried_bytes && ranks >= self.carrying_ranks
    }

    /// Whether the blocks of all ranks, of this size each, are known to all by few messages.
    #[must_use]
    pub fn travels_together(self, block_bytes: usize, ranks: usize) -> bool {
        self.is_carried(block_bytes, ranks) || self.is_flat(block_bytes.saturating_mul(ranks))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_carried_from_so_many_ranks_on_as_the_settings_say() {
        let given = |text: &str| [("RMPI_CARRY_RANKS".to_owned(), text.to_owned())];
        for (text, least) in [("5", 5), ("2", 2), ("100", 100)] {
            let (values, _) = Values::from_environment(given(text).into_iter());
            let shape = Shape::new(&values, false);
            assert!(shape.is_carried(8, least) && !shape.is_carried(8, least - 1));
        }
    }
}
