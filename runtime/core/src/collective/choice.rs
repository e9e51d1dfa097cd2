// SPDX-License-Identifier: MIT OR Apache-2.0
//! The algorithms of each collective. They are the values of its control variable, which is the same on all ranks. With
//! the first value, `auto`, sizes and ranks determine the algorithm.

use super::board::BoardChoice;
use crate::var::{Variable, VariableValues};

/// Defines the algorithms of one collective, and their names in the table of variables. The first must be `auto`. If
/// the collective has an algorithm over a board, that must be the second.
macro_rules! algorithms {
    ($($(#[$doc:meta])* $name:ident { $($variant:ident = $word:literal),+ })+) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        #[allow(missing_docs, reason = "the text of the variable explains them")]
        pub enum $name {
            #[default]
            $($variant),+
        }

        impl $name {
            /// The names, in the order of the algorithms.
            pub const WORDS: &'static [&'static str] = &[$($word),+];

            fn of(values: &VariableValues, variable: Variable) -> Self {
                const ALL: &[$name] = &[$($name::$variant),+];
                let place = usize::try_from(values.get(variable)).unwrap_or(0);
                ALL.get(place).copied().unwrap_or_default()
            }
        }
    )+};
}

/// Implements `by_node` for collectives with an algorithm [by node](super::by_node).
macro_rules! nodes {
    ($($name:ident)+) => {$(
        impl $name {
            /// Whether a call over several nodes goes by node. `usual`: the answer if the algorithm is `auto`.
            pub(super) fn by_node(self, usual: bool) -> bool {
                match self {
                    Self::Auto => usual,
                    Self::Nodes => true,
                    _ => false,
                }
            }
        }
    )+};
}

/// Implements `board` for collectives with an algorithm over a [board](super::board).
macro_rules! boards {
    ($($name:ident)+) => {$(
        impl $name {
            /// Whether a board is used.
            pub(super) fn board(self) -> BoardChoice {
                match self {
                    Self::Auto | Self::Nodes => BoardChoice::AsUsual,
                    Self::Board => BoardChoice::Yes,
                    _ => BoardChoice::No,
                }
            }
        }
    )+};
}

algorithms! {
    /// `MPI_Barrier`.
    Barrier {
        Auto = "auto", Board = "board", Flat = "flat", Rounds = "rounds", Tree = "tree",
        Nodes = "nodes"
    }
    /// `MPI_Bcast`.
    Bcast {
        Auto = "auto", Board = "board", Flat = "flat", Tree = "tree", Chain = "chain",
        Slices = "slices", Nodes = "nodes"
    }
    /// `MPI_Reduce`.
    Reduce {
        Auto = "auto", Board = "board", Flat = "flat", Tree = "tree", Slices = "slices",
        Nodes = "nodes"
    }
    /// `MPI_Allreduce`.
    Allreduce {
        Auto = "auto", Board = "board", Rooted = "rooted", Rounds = "rounds", Slices = "slices",
        Halves = "halves", Ring = "ring", Nodes = "nodes"
    }
    /// `MPI_Reduce_scatter` and `MPI_Reduce_scatter_block`.
    ReduceScatter {
        Auto = "auto", Board = "board", Rooted = "rooted", Slices = "slices", Ring = "ring",
        Nodes = "nodes"
    }
    /// `MPI_Scan` and `MPI_Exscan`.
    Scan {
        Auto = "auto", Board = "board", Rounds = "rounds", Chain = "chain", Nodes = "nodes"
    }
    /// `MPI_Gather`.
    Gather { Auto = "auto", Direct = "direct", Tree = "tree", Nodes = "nodes" }
    /// `MPI_Scatter`.
    Scatter { Auto = "auto", Direct = "direct", Tree = "tree", Nodes = "nodes" }
    /// `MPI_Allgather`.
    Allgather {
        Auto = "auto", Board = "board", Flat = "flat", Rounds = "rounds", Direct = "direct",
        Ring = "ring", Nodes = "nodes"
    }
    /// `MPI_Allgatherv`.
    Allgatherv { Auto = "auto", Direct = "direct", Ring = "ring", Nodes = "nodes" }
    /// `MPI_Alltoall`.
    Alltoall {
        Auto = "auto", Board = "board", Rounds = "rounds", Direct = "direct", Nodes = "nodes"
    }
}

nodes!(Barrier Bcast Reduce Allreduce ReduceScatter Scan Gather Scatter Allgather Allgatherv Alltoall);
boards!(Barrier Bcast Reduce Allreduce ReduceScatter Scan Allgather Alltoall);

/// The algorithms selected by the settings.
#[derive(Clone, Copy, Debug, Default)]
#[allow(missing_docs, reason = "each is that of one collective")]
pub struct Choices {
    pub barrier: Barrier,
    pub bcast: Bcast,
    pub reduce: Reduce,
    pub allreduce: Allreduce,
    pub reduce_scatter: ReduceScatter,
    pub scan: Scan,
    pub gather: Gather,
    pub scatter: Scatter,
    pub allgather: Allgather,
    pub allgatherv: Allgatherv,
    pub alltoall: Alltoall,
}

impl Choices {
    pub(super) fn new(values: &VariableValues) -> Self {
        Self {
            barrier: Barrier::of(values, Variable::Barrier),
            bcast: Bcast::of(values, Variable::Bcast),
            reduce: Reduce::of(values, Variable::Reduce),
            allreduce: Allreduce::of(values, Variable::Allreduce),
            reduce_scatter: ReduceScatter::of(values, Variable::ReduceScatter),
            scan: Scan::of(values, Variable::Scan),
            gather: Gather::of(values, Variable::Gather),
            scatter: Scatter::of(values, Variable::Scatter),
            allgather: Allgather::of(values, Variable::Allgather),
            allgatherv: Allgatherv::of(values, Variable::Allgatherv),
            alltoall: Alltoall::of(values, Variable::Alltoall),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_setting_value_selects_its_algorithm() {
        let given = |word: &str| [("RMPI_ALLREDUCE".to_owned(), word.to_owned())];
        for (word, algorithm) in [
            ("auto", Allreduce::Auto),
            ("board", Allreduce::Board),
            ("Ring", Allreduce::Ring),
        ] {
            let (values, warnings) = VariableValues::from_environment(given(word).into_iter());
            assert!(warnings.is_empty(), "{warnings:?}");
            assert_eq!(Choices::new(&values).allreduce, algorithm);
        }
        let (values, warnings) = VariableValues::from_environment(given("tree").into_iter());
        assert!(warnings[0].contains("one of auto, board, rooted"));
        assert_eq!(Choices::new(&values).allreduce, Allreduce::Auto);
    }
}
