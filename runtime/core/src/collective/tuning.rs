// SPDX-License-Identifier: MIT OR Apache-2.0
//! The settings by which the algorithms of collectives are selected. They are the same on all ranks.

use super::block_pieces;
use super::choice::{Allgather, Alltoall, Choices};
use crate::Payload;
use crate::var::{Variable, VariableValues};

/// The placement of a communicator's ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CommPlacement {
    /// All ranks have one board.
    Board,
    /// The ranks are on several nodes, and collectives can group them by node.
    Nodes,
    /// Neither of these.
    Apart,
}

/// The settings by which collectives select their algorithms. They are the same on all ranks.
#[derive(Clone, Copy, Debug)]
pub struct CollectiveTuning {
    /// Whether small data go through one rank. Each other rank then waits once, not in several rounds: if ranks share
    /// cores, waits are expensive and messages are not.
    pub flat: bool,
    /// The algorithms selected by the settings.
    pub choice: Choices,
    /// Whether boards are used by default.
    pub boards: bool,
    /// Up to this many bytes of each rank go over a [board](transport::seat), the memory in which the ranks of a node
    /// exchange data; 0: no data do.
    pub board_bytes: usize,
    /// If each rank has a core of its own: size in bytes of the largest broadcast that goes over a board.
    pub board_bcast_bytes: usize,
    /// If the data of all ranks together have at most this many bytes, each rank combines all of them at a board for
    /// itself.
    pub board_whole_bytes: usize,
    /// Largest data, in bytes, that go through one rank.
    pub flat_bytes: usize,
    /// Data are cut into slices, each combined by one rank, if a slice has at least this many bytes.
    pub sliced_bytes: usize,
    /// Largest block, in bytes, that other ranks forward.
    pub carried_bytes: usize,
    /// Largest block, in bytes, that a leader forwards between a rank of its node and a rank of another node.
    pub node_bytes: usize,
    /// Largest block, in bytes, that a leader forwards between a rank of its node and a root on another node.
    pub node_gather_bytes: usize,
    /// In a reduction by node, each rank of a node combines a slice with other nodes if a slice has at least this many
    /// bytes.
    pub node_slice_bytes: usize,
    /// From this number of ranks on, ranks forward blocks for other ranks; fewer ranks exchange blocks directly.
    pub carrying_ranks: usize,
    /// Smallest broadcast, in bytes, that goes in slices.
    pub scattered_bytes: usize,
    /// Slices are sent round a ring if a slice has at least this many bytes.
    pub ring_bytes: usize,
    /// Number of bytes of a segment that is sent at a time along a chain.
    pub segment_bytes: usize,
    /// Maximum number of ranks with which a rank exchanges blocks directly at the same time.
    pub window_ranks: usize,
}

impl CollectiveTuning {
    /// `crowded`: the ranks of some node of the job outnumber its CPUs, as the launcher has reported to all ranks.
    pub(crate) fn new(values: &VariableValues, crowded: bool) -> Self {
        let size = |variable| usize::try_from(values.get(variable)).unwrap_or(usize::MAX);
        let flat = match values.get(Variable::Collectives) {
            0 => crowded,
            word => word == 1,
        };
        // A second round costs a wait. If ranks share cores, a wait costs as much as reading three times more data.
        let read_for_a_wait = if flat { 4 } else { 1 };
        // If ranks share cores, a message between nodes also costs a wait, and without forwarding each pair of ranks
        // has such a message.
        let carried_for_a_wait = if flat { 128 } else { 1 };
        Self {
            flat,
            choice: Choices::new(values),
            boards: values.get(Variable::Collectives) == 0,
            board_bytes: size(Variable::BoardLimit),
            board_bcast_bytes: size(Variable::BoardBcastLimit),
            board_whole_bytes: size(Variable::BoardWholeLimit).saturating_mul(read_for_a_wait),
            flat_bytes: size(Variable::FlatLimit),
            sliced_bytes: size(Variable::SliceLimit),
            node_slice_bytes: size(Variable::NodeSliceLimit),
            carried_bytes: size(Variable::CarryLimit),
            node_bytes: size(Variable::NodeLimit).saturating_mul(carried_for_a_wait),
            node_gather_bytes: size(Variable::NodeGatherLimit).saturating_mul(carried_for_a_wait),
            carrying_ranks: size(Variable::CarryRanks),
            scattered_bytes: size(Variable::BcastSliceLimit),
            ring_bytes: size(Variable::RingLimit),
            segment_bytes: size(Variable::BcastSegment),
            window_ranks: match size(Variable::AlltoallWindow) {
                0 => usize::MAX,
                ranks => ranks,
            },
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

    /// Whether, by default, each of `ranks` ranks of a node combines a slice of data of this size with other nodes.
    pub(crate) fn goes_in_slices_by_node(self, bytes: usize, ranks: u32) -> bool {
        ranks > 1 && !self.flat && bytes / ranks as usize >= self.node_slice_bytes
    }

    /// Whether slices of data of this size go round a ring, if the operation commutes.
    pub(crate) fn goes_round(self, bytes: usize, ranks: u32) -> bool {
        bytes / ranks as usize >= self.ring_bytes
    }

    /// Whether slices of data of this size go round a ring through several nodes, if the operation commutes. In such a
    /// ring slices may be smaller: a rank sends to the next node while it combines, and a step between nodes costs more
    /// with any algorithm.
    pub(crate) fn goes_round_nodes(self, bytes: usize, ranks: u32) -> bool {
        !self.flat && bytes / ranks as usize >= self.ring_bytes / 8
    }

    /// Whether a broadcast of this size goes in slices. If there are only two ranks, the root sends everything
    /// directly.
    pub(crate) fn is_scattered(self, bytes: usize, ranks: u32) -> bool {
        ranks > 2 && bytes >= self.scattered_bytes
    }

    /// Whether data that all ranks read go over the board, if the ranks have one. `block_bytes`: the bytes of each
    /// rank.
    fn gathers_at_board(self, block_bytes: usize, ranks: usize) -> bool {
        // For two ranks, messages need as few copies as the board, and both ranks copy at the same time. So only few
        // bytes go over the board.
        let most = match ranks {
            ..=2 => PAIR_BYTES,
            _ if self.flat => usize::MAX,
            _ => GATHERED_BYTES,
        };
        self.fits_board(block_bytes, most)
    }

    /// Whether data of which each rank reads a part go over the board, if the ranks have one. `bytes`: the bytes of
    /// each rank.
    fn exchanges_at_board(self, bytes: usize) -> bool {
        // If ranks share cores, a message costs as much as a copy of some KiB, so only `board_bytes` limits the size.
        let most = if self.flat { usize::MAX } else { PAIR_BYTES };
        self.fits_board(bytes, most)
    }

    fn fits_board(self, bytes: usize, most: usize) -> bool {
        self.boards && self.board_bytes > 0 && bytes <= most.min(self.board_bytes)
    }

    /// Whether blocks of this size are forwarded by other ranks.
    pub(crate) fn is_carried(self, block_bytes: usize, ranks: usize) -> bool {
        block_bytes <= self.carried_bytes && ranks >= self.carrying_ranks
    }

    /// Whether the blocks of all ranks, of `block_bytes` bytes each, are collected as contiguous bytes. Then they may
    /// go over a board, or several blocks may go in one message.
    #[must_use]
    pub fn gathers_bytes(self, block_bytes: usize, ranks: usize, place: CommPlacement) -> bool {
        let usual = || {
            self.is_carried(block_bytes, ranks)
                || self.is_flat(block_bytes.saturating_mul(ranks))
                || match place {
                    CommPlacement::Board => self.gathers_at_board(block_bytes, ranks),
                    // For blocks of any size: a node receives each block of another node only once, not once for each
                    // of its ranks.
                    CommPlacement::Nodes => self.boards,
                    CommPlacement::Apart => false,
                }
        };
        match self.choice.allgather {
            Allgather::Auto | Allgather::Nodes => usual(),
            Allgather::Board => block_bytes <= self.board_bytes || usual(),
            Allgather::Flat | Allgather::Rounds => true,
            Allgather::Direct | Allgather::Ring => false,
        }
    }

    /// Whether an all-to-all exchange of `blocks`, one for each rank, goes in rounds at a board, if the ranks have one.
    #[must_use]
    pub fn exchanges_in_rounds(self, blocks: &[Payload]) -> bool {
        let longest = blocks.iter().map(Payload::bytes).max().unwrap_or(0);
        let ranks = u32::try_from(blocks.len()).unwrap_or(u32::MAX);
        block_pieces::are_swapped(&self, longest, ranks)
    }

    /// Whether the blocks of an all-to-all exchange, of `block_bytes` bytes each, are sent from contiguous bytes. Then
    /// they may go over a board, or several blocks may go in one message.
    #[must_use]
    pub fn exchanges_bytes(self, block_bytes: usize, ranks: usize, place: CommPlacement) -> bool {
        let usual = || {
            self.is_carried(block_bytes, ranks)
                || match place {
                    CommPlacement::Board => {
                        self.exchanges_at_board(block_bytes.saturating_mul(ranks))
                    }
                    CommPlacement::Nodes => self.boards && block_bytes <= self.node_bytes,
                    CommPlacement::Apart => false,
                }
        };
        match self.choice.alltoall {
            Alltoall::Auto | Alltoall::Nodes => usual(),
            Alltoall::Board => block_bytes.saturating_mul(ranks) <= self.board_bytes || usual(),
            Alltoall::Rounds => true,
            Alltoall::Direct => false,
        }
    }
}

/// For more than two ranks, each with a core of its own: up to this many bytes of each rank, which all ranks read, go
/// over a board.
const GATHERED_BYTES: usize = 32 << 10;
/// For two ranks: up to this many bytes of each rank, which both read, go over a board. If each rank has a core of its
/// own, also the limit of an all-to-all exchange over a board: the bytes of all blocks of a rank.
const PAIR_BYTES: usize = 4 << 10;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn carry_ranks_setting_is_the_least_size_for_carried_blocks() {
        let given = |text: &str| [("RMPI_CARRY_RANKS".to_owned(), text.to_owned())];
        for (text, least) in [("5", 5), ("2", 2), ("100", 100)] {
            let (values, _) = VariableValues::from_environment(given(text).into_iter());
            let shape = CollectiveTuning::new(&values, false);
            assert!(shape.is_carried(8, least) && !shape.is_carried(8, least - 1));
        }
    }

    #[test]
    fn board_is_used_up_to_its_size_limit() {
        let (values, _) = VariableValues::from_environment(std::iter::empty());
        let (alone, crowded) = (
            CollectiveTuning::new(&values, false),
            CollectiveTuning::new(&values, true),
        );
        for (block, ranks, applies) in [(4096, 2, true), (4097, 2, false), (32768, 3, true)] {
            assert_eq!(
                alone.gathers_bytes(block, ranks, CommPlacement::Board),
                applies,
                "{block}"
            );
            assert!(!alone.gathers_bytes(block, ranks, CommPlacement::Apart));
        }
        assert!(!alone.gathers_bytes(32769, 8, CommPlacement::Board));
        for (block, ranks, applies) in [(2048, 2, true), (2049, 2, false), (512, 8, true)] {
            assert_eq!(
                alone.exchanges_bytes(block, ranks, CommPlacement::Board),
                applies,
                "{block}"
            );
        }
        assert!(crowded.exchanges_bytes(1024, 64, CommPlacement::Board));
        assert!(!crowded.exchanges_bytes(1025, 64, CommPlacement::Board));
        let (values, _) =
            VariableValues::from_environment([("RMPI_BOARD_LIMIT".into(), "0".into())].into_iter());
        assert!(!CollectiveTuning::new(&values, true).exchanges_bytes(
            1024,
            64,
            CommPlacement::Board
        ));
    }
}
