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
        block_bytes <= self.carried_bytes && ranks >= MANY_RANKS
    }

    /// Whether the blocks of all ranks, of this size each, are known to all by few messages.
    #[must_use]
    pub fn travels_together(self, block_bytes: usize, ranks: usize) -> bool {
        self.is_carried(block_bytes, ranks) || self.is_flat(block_bytes.saturating_mul(ranks))
    }
}

/// With fewer, all may as well talk to all.
const MANY_RANKS: usize = 5;
