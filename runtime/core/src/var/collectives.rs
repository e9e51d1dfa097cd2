// SPDX-License-Identifier: MIT OR Apache-2.0
//! The rows that select the algorithm of a collective, and its limits.

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

/// A row with a size: least, most and default.
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
    "How MPI_Barrier goes: as RMPI_COLLECTIVES and its limits say (auto); over a board (board); inside each node, and \
     once between any two nodes (nodes, as auto where there are several); through rank 0 (flat); in a logarithmic \
     number of rounds between all (rounds); or up a binomial tree and down again (tree), which has fewer messages and \
     twice as many steps.",
);

pub(super) const BCAST: ControlVariable = choice(
    Variable::Bcast,
    "RMPI_BCAST",
    choice::Bcast::WORDS,
    "How MPI_Bcast goes: auto; board; nodes; from the root to each other rank (flat); along a binomial tree (tree); \
     from one rank to the next, in segments (chain); or a slice to each other rank, and these to each other (slices).",
);

pub(super) const REDUCE: ControlVariable = choice(
    Variable::Reduce,
    "RMPI_REDUCE",
    choice::Reduce::WORDS,
    "How MPI_Reduce goes: auto; board; nodes; all data at the root, which combines them (flat); up a binomial tree \
     (tree); or each rank combines a slice of all data, and the root collects the slices (slices).",
);

pub(super) const ALLREDUCE: ControlVariable = choice(
    Variable::Allreduce,
    "RMPI_ALLREDUCE",
    choice::Allreduce::WORDS,
    "How MPI_Allreduce goes: auto; board; nodes; reduced at rank 0 and told to all by messages, as RMPI_REDUCE and \
     RMPI_BCAST say (rooted); whole data in a logarithmic number of rounds (rounds); each rank combines a slice of \
     all data, and all tell all (slices); halves of halves in rounds (halves); or slices round a ring (ring). The \
     ring is for predefined operations; others, which may depend on the order, go in slices.",
);

pub(super) const REDUCE_SCATTER: ControlVariable = choice(
    Variable::ReduceScatter,
    "RMPI_REDUCE_SCATTER",
    choice::ReduceScatter::WORDS,
    "How MPI_Reduce_scatter and MPI_Reduce_scatter_block go: auto; board; nodes, of at most RMPI_BOARD_LIMIT; reduced \
     at rank 0, as RMPI_REDUCE says, and scattered (rooted); each rank combines its part of all data (slices); or \
     partial results go round a ring (ring), for predefined operations, and others in slices.",
);

pub(super) const SCAN: ControlVariable = choice(
    Variable::Scan,
    "RMPI_SCAN",
    choice::Scan::WORDS,
    "How MPI_Scan and MPI_Exscan go: auto; board; nodes, of at most RMPI_BOARD_LIMIT; in a logarithmic number of \
     rounds (rounds, as auto without a board); or from each rank to the next, piece by piece (chain, as auto for many \
     bytes), which has the fewest messages.",
);

pub(super) const GATHER: ControlVariable = choice(
    Variable::Gather,
    "RMPI_GATHER",
    choice::Gather::WORDS,
    "How MPI_Gather goes: auto, over a board where the ranks have one and the blocks have room there, by node where \
     there are several, else direct; nodes; each block straight to the root (direct); or along a binomial tree, where \
     blocks are handed on together (tree). MPI_Gatherv goes as auto does, nodes or direct.",
);

pub(super) const SCATTER: ControlVariable = choice(
    Variable::Scatter,
    "RMPI_SCATTER",
    choice::Scatter::WORDS,
    "How MPI_Scatter goes: auto, over a board where the ranks have one and the blocks have room there, by node where \
     there are several, else direct; nodes; each block straight from the root (direct); or along a binomial tree, \
     where blocks are handed on together (tree). MPI_Scatterv goes as auto does, nodes or direct.",
);

pub(super) const ALLGATHER: ControlVariable = choice(
    Variable::Allgather,
    "RMPI_ALLGATHER",
    choice::Allgather::WORDS,
    "How MPI_Allgather goes: auto; board; nodes; all blocks to rank 0 and from there to all (flat); in a logarithmic \
     number of rounds, where blocks are carried along (rounds); each block straight to all (direct); or round a ring \
     (ring).",
);

pub(super) const ALLGATHERV: ControlVariable = choice(
    Variable::Allgatherv,
    "RMPI_ALLGATHERV",
    choice::Allgatherv::WORDS,
    "How MPI_Allgatherv goes: auto, over a board where the ranks have one and the blocks have room there, by node \
     where there are several, else direct; nodes; each block straight to all (direct); or round a ring (ring).",
);

pub(super) const ALLTOALL: ControlVariable = choice(
    Variable::Alltoall,
    "RMPI_ALLTOALL",
    choice::Alltoall::WORDS,
    "How MPI_Alltoall goes: auto; board; nodes; in a logarithmic number of rounds, where blocks are carried along \
     (rounds); or each block straight to its rank (direct). MPI_Alltoallv goes over a board with auto, if the \
     blocks have room there, by node where there are several and ranks share cores, else direct. MPI_Alltoallw goes as \
     MPI_Alltoallv where ranks share cores, else direct.",
);

pub(super) const ALLTOALL_WINDOW: ControlVariable = size(
    Variable::AlltoallWindow,
    "RMPI_ALLTOALL_WINDOW",
    "ranks",
    (0, 1 << 20, 0),
    "Where blocks go straight to their ranks in MPI_Alltoall, MPI_Alltoallv and MPI_Alltoallw, they are exchanged with so \
     many ranks at a time: 1 is pair by pair, and 0 all at once.",
);

pub(super) const NODE_LIMIT: ControlVariable = size(
    Variable::NodeLimit,
    "RMPI_NODE_LIMIT",
    "bytes",
    (0, 1 << 20, 128),
    "Where ranks are on several nodes, blocks of at most so much data are handed on by one rank of each node in \
     MPI_Alltoall; larger ones go straight to their rank. Where ranks share cores, 128 times as much is, in \
     MPI_Alltoallv and MPI_Alltoallw too.",
);

pub(super) const NODE_GATHER_LIMIT: ControlVariable = size(
    Variable::NodeGatherLimit,
    "RMPI_NODE_GATHER_LIMIT",
    "bytes",
    (0, 1 << 20, 1 << 10),
    "Where ranks are on several nodes, blocks of at most so much data are handed on by one rank of each node in \
     MPI_Gather, MPI_Gatherv, MPI_Scatter and MPI_Scatterv; larger ones go straight to or from the root. Where ranks \
     share cores, 128 times as much is.",
);

pub(super) const NODE_SLICE_LIMIT: ControlVariable = size(
    Variable::NodeSliceLimit,
    "RMPI_NODE_SLICE_LIMIT",
    "bytes",
    (0, 1 << 40, 1 << 10),
    "Where MPI_Allreduce goes by node and ranks have a core each, slices of at least so much data are combined by all \
     ranks of a node, each with the ranks at its place on other nodes; else one rank of each node does it all. In \
     MPI_Reduce, and in MPI_Reduce_scatter where nodes and parts are alike, slices of twice as much are.",
);

pub(super) const RING_LIMIT: ControlVariable = size(
    Variable::RingLimit,
    "RMPI_RING_LIMIT",
    "bytes",
    (0, 1 << 40, 128 << 10),
    "Where RMPI_ALLREDUCE is auto, slices of at least so much data go round a ring if the operation is a predefined one. \
     Where ranks are on several nodes, and have a core each, an eighth of it is enough, and MPI_Reduce and \
     MPI_Reduce_scatter go that way too where their variables are auto.",
);

pub(super) const BCAST_SLICE_LIMIT: ControlVariable = size(
    Variable::BcastSliceLimit,
    "RMPI_BCAST_SLICE_LIMIT",
    "bytes",
    (0, 1 << 40, 1 << 40),
    "Broadcasts of at least so much data to more than one other rank go in slices where RMPI_BCAST is auto.",
);

pub(super) const BCAST_SEGMENT: ControlVariable = size(
    Variable::BcastSegment,
    "RMPI_BCAST_SEGMENT",
    "bytes",
    (64, 1 << 30, 64 << 10),
    "What goes on at a time where a broadcast goes along a chain.",
);

pub(super) const BOARD_BCAST_LIMIT: ControlVariable = size(
    Variable::BoardBcastLimit,
    "RMPI_BOARD_BCAST_LIMIT",
    "bytes",
    (0, 1 << 20, 8 << 10),
    "Where each rank has a CPU, broadcasts of more data do not go over a board, unless RMPI_BCAST says so.",
);

pub(super) const BOARD_WHOLE_LIMIT: ControlVariable = size(
    Variable::BoardWholeLimit,
    "RMPI_BOARD_WHOLE_LIMIT",
    "bytes",
    (0, 1 << 30, 16 << 10),
    "At a board, each rank combines all data of an MPI_Allreduce for itself if they are at most so many of all ranks \
     together, or four times as many where ranks share cores; of more, each combines a part, piece by piece, and reads the \
     others' one round later.",
);
