// SPDX-License-Identifier: MIT OR Apache-2.0
//! The rows of the table of control variables that select the algorithms of collectives, and the limits of these
//! algorithms.

use super::{Category, ControlVariable, Range, Scope, Variable, Verbosity};
use crate::collective::choice;

/// A row whose values are the algorithms of a collective.
const fn choice(
    variable: Variable,
    name: &'static str,
    words: &'static [&'static str],
    text: &'static str,
) -> ControlVariable {
    ControlVariable {
        variable,
        name,
        category: Category::Collectives,
        verbosity: Verbosity::TunerBasic,
        scope: Scope::AllEqual,
        range: Range::Words(words),
        text,
    }
}

/// A row with a size. The three numbers are the least, the largest and the default value.
const fn size(
    variable: Variable,
    name: &'static str,
    unit: &'static str,
    (least, most, default): (u64, u64, u64),
    text: &'static str,
) -> ControlVariable {
    ControlVariable {
        variable,
        name,
        category: Category::Collectives,
        verbosity: Verbosity::TunerDetail,
        scope: Scope::AllEqual,
        range: Range::Number {
            least,
            most,
            default,
            unit,
        },
        text,
    }
}

pub(super) const BARRIER: ControlVariable = choice(
    Variable::Barrier,
    "RMPI_BARRIER",
    choice::Barrier::WORDS,
    "Algorithm of MPI_Barrier: as RMPI_COLLECTIVES and its limits say (auto); over a board (board); inside each \
     node, and once between any two nodes (nodes, as auto where there are several); through rank 0 (flat); in a \
     logarithmic number of rounds between all (rounds); or up a binomial tree and down again (tree), which has \
     fewer messages and twice as many steps.",
);

pub(super) const BCAST: ControlVariable = choice(
    Variable::Bcast,
    "RMPI_BCAST",
    choice::Bcast::WORDS,
    "Algorithm of MPI_Bcast: auto; board; nodes; from the root to each other rank (flat); along a binomial tree \
     (tree); from one rank to the next, in segments (chain); or a different slice to every rank, after which \
     the ranks exchange their slices (slices).",
);

pub(super) const REDUCE: ControlVariable = choice(
    Variable::Reduce,
    "RMPI_REDUCE",
    choice::Reduce::WORDS,
    "Algorithm of MPI_Reduce: auto; board; nodes; the root receives all data and combines them (flat); up a \
     binomial tree (tree); or each rank combines a slice of all data, and the root collects the slices \
     (slices).",
);

pub(super) const ALLREDUCE: ControlVariable = choice(
    Variable::Allreduce,
    "RMPI_ALLREDUCE",
    choice::Allreduce::WORDS,
    "Algorithm of MPI_Allreduce: auto; board; nodes; reduced at rank 0 and broadcast by messages, as \
     RMPI_REDUCE and RMPI_BCAST say (rooted); whole data in a logarithmic number of rounds (rounds); each rank \
     combines a slice of all data, and the ranks exchange their slices (slices); recursive halving and doubling \
     (halves); or slices round a ring (ring). The ring is for predefined operations; others, which may depend \
     on the order, use slices.",
);

pub(super) const REDUCE_SCATTER: ControlVariable = choice(
    Variable::ReduceScatter,
    "RMPI_REDUCE_SCATTER",
    choice::ReduceScatter::WORDS,
    "Algorithm of MPI_Reduce_scatter and MPI_Reduce_scatter_block: auto; board; nodes, of at most \
     RMPI_BOARD_LIMIT; reduced at rank 0, as RMPI_REDUCE says, and scattered (rooted); each rank combines its \
     part of all data (slices); or partial results round a ring (ring), for predefined operations, while others \
     use slices.",
);

pub(super) const SCAN: ControlVariable = choice(
    Variable::Scan,
    "RMPI_SCAN",
    choice::Scan::WORDS,
    "Algorithm of MPI_Scan and MPI_Exscan: auto; board; nodes, of at most RMPI_BOARD_LIMIT; in a logarithmic \
     number of rounds (rounds, as auto without a board); or from each rank to the next, piece by piece (chain, \
     as auto for many bytes), which has the fewest messages.",
);

pub(super) const GATHER: ControlVariable = choice(
    Variable::Gather,
    "RMPI_GATHER",
    choice::Gather::WORDS,
    "Algorithm of MPI_Gather: auto, over a board if the ranks have one and the blocks fit into it, by node if \
     there are several, else direct; nodes; each block directly to the root (direct); or along a binomial tree, \
     where blocks are forwarded together (tree). MPI_Gatherv takes auto, nodes or direct.",
);

pub(super) const SCATTER: ControlVariable = choice(
    Variable::Scatter,
    "RMPI_SCATTER",
    choice::Scatter::WORDS,
    "Algorithm of MPI_Scatter: auto, over a board if the ranks have one and the blocks fit into it, by node if \
     there are several, else direct; nodes; each block directly from the root (direct); or along a binomial \
     tree, where blocks are forwarded together (tree). MPI_Scatterv takes auto, nodes or direct.",
);

pub(super) const ALLGATHER: ControlVariable = choice(
    Variable::Allgather,
    "RMPI_ALLGATHER",
    choice::Allgather::WORDS,
    "Algorithm of MPI_Allgather: auto; board; nodes; all blocks to rank 0 and from there to all (flat); in a \
     logarithmic number of rounds, where blocks are forwarded (rounds); each block directly to all (direct); or \
     round a ring (ring).",
);

pub(super) const ALLGATHERV: ControlVariable = choice(
    Variable::Allgatherv,
    "RMPI_ALLGATHERV",
    choice::Allgatherv::WORDS,
    "Algorithm of MPI_Allgatherv: auto, over a board if the ranks have one and the blocks fit into it, by node \
     if there are several, else direct; nodes; each block directly to all (direct); or round a ring (ring).",
);

pub(super) const ALLTOALL: ControlVariable = choice(
    Variable::Alltoall,
    "RMPI_ALLTOALL",
    choice::Alltoall::WORDS,
    "Algorithm of MPI_Alltoall: auto; board; nodes; in a logarithmic number of rounds, where blocks are \
     forwarded (rounds); or each block directly to its rank (direct). With auto, MPI_Alltoallv uses a board if \
     the blocks fit into it, goes by node if there are several and ranks share cores, else direct. \
     MPI_Alltoallw is as MPI_Alltoallv where ranks share cores, else direct.",
);

pub(super) const ALLTOALL_WINDOW: ControlVariable = size(
    Variable::AlltoallWindow,
    "RMPI_ALLTOALL_WINDOW",
    "ranks",
    (0, 1 << 20, 0),
    "Number of ranks with which a rank exchanges blocks at a time in MPI_Alltoall, MPI_Alltoallv and \
     MPI_Alltoallw if blocks are sent directly: 1 is pair by pair, and 0 all at once.",
);

pub(super) const NODE_LIMIT: ControlVariable = size(
    Variable::NodeLimit,
    "RMPI_NODE_LIMIT",
    "bytes",
    (0, 1 << 20, 128),
    "Where ranks are on several nodes, blocks up to this size are forwarded by one rank of each node in \
     MPI_Alltoall; larger ones are sent directly. Where ranks share cores, the limit is 128 times as high, and \
     holds for MPI_Alltoallv and MPI_Alltoallw too.",
);

pub(super) const NODE_GATHER_LIMIT: ControlVariable = size(
    Variable::NodeGatherLimit,
    "RMPI_NODE_GATHER_LIMIT",
    "bytes",
    (0, 1 << 20, 1 << 10),
    "Where ranks are on several nodes, blocks up to this size are forwarded by one rank of each node in \
     MPI_Gather, MPI_Gatherv, MPI_Scatter and MPI_Scatterv; larger ones go directly to or from the root. Where \
     ranks share cores, the limit is 128 times as high.",
);

pub(super) const NODE_SLICE_LIMIT: ControlVariable = size(
    Variable::NodeSliceLimit,
    "RMPI_NODE_SLICE_LIMIT",
    "bytes",
    (0, 1 << 40, 1 << 10),
    "Where MPI_Allreduce goes by node and ranks have a core each, slices of at least this size are combined by \
     all ranks of a node, each with the ranks at its place on other nodes; smaller ones by one rank of each \
     node. In MPI_Reduce, and in MPI_Reduce_scatter where nodes and parts are alike, the limit is twice as \
     high.",
);

pub(super) const RING_LIMIT: ControlVariable = size(
    Variable::RingLimit,
    "RMPI_RING_LIMIT",
    "bytes",
    (0, 1 << 40, 128 << 10),
    "Where RMPI_ALLREDUCE is auto, slices of at least this size go round a ring if the operation is predefined. \
     Where ranks are on several nodes and have a core each, the limit is an eighth of it, and holds for \
     MPI_Reduce and MPI_Reduce_scatter too if their variables are auto.",
);

pub(super) const BCAST_SLICE_LIMIT: ControlVariable = size(
    Variable::BcastSliceLimit,
    "RMPI_BCAST_SLICE_LIMIT",
    "bytes",
    (0, 1 << 40, 1 << 40),
    "Broadcasts of at least this size to more than one other rank go in slices if RMPI_BCAST is auto.",
);

pub(super) const BCAST_SEGMENT: ControlVariable = size(
    Variable::BcastSegment,
    "RMPI_BCAST_SEGMENT",
    "bytes",
    (64, 1 << 30, 64 << 10),
    "Segment size of a broadcast along a chain.",
);

pub(super) const BOARD_BCAST_LIMIT: ControlVariable = size(
    Variable::BoardBcastLimit,
    "RMPI_BOARD_BCAST_LIMIT",
    "bytes",
    (0, 1 << 20, 8 << 10),
    "Where each rank has a CPU, larger broadcasts do not use a board, unless RMPI_BCAST says so.",
);

pub(super) const BOARD_WHOLE_LIMIT: ControlVariable = size(
    Variable::BoardWholeLimit,
    "RMPI_BOARD_WHOLE_LIMIT",
    "bytes",
    (0, 1 << 30, 16 << 10),
    "At a board, each rank combines all data of an MPI_Allreduce itself if the data of all ranks together are \
     at most this large, or four times as large where ranks share cores; of larger data each combines a part, \
     piece by piece, and reads the other parts one round later.",
);
