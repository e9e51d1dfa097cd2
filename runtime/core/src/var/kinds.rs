// SPDX-License-Identifier: MIT OR Apache-2.0
//! Properties of control and performance variables other than their values: category, verbosity, scope.

/// The category of a variable. The categories are in the order in which MPI_T shows them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Category {
    /// The category that contains all other categories of MPI_T.
    All,
    /// Messages between two ranks.
    PointToPoint,
    /// Collective operations.
    Collectives,
    /// How a rank waits.
    Waiting,
    /// Memory that the library uses.
    Memory,
    /// Providers, and the devices that they use.
    Network,
    /// QMP, a message passing library for lattice codes.
    Qmp,
    /// The process and its communicators.
    Process,
    /// Variables of the launcher and the compiler wrappers, which are not MPI_T variables.
    Launch,
}

impl Category {
    /// The categories that MPI_T shows, in order.
    pub const SHOWN: [Self; 8] = [
        Self::All,
        Self::PointToPoint,
        Self::Collectives,
        Self::Waiting,
        Self::Memory,
        Self::Network,
        Self::Qmp,
        Self::Process,
    ];

    /// Name of the category.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::All => "rmpi",
            Self::PointToPoint => "rmpi.point_to_point",
            Self::Collectives => "rmpi.collectives",
            Self::Waiting => "rmpi.waiting",
            Self::Memory => "rmpi.memory",
            Self::Network => "rmpi.network",
            Self::Qmp => "rmpi.qmp",
            Self::Process => "rmpi.process",
            Self::Launch => "rmpi.launch",
        }
    }

    /// Description of the category.
    #[must_use]
    pub fn text(self) -> &'static str {
        match self {
            Self::All => "All variables of rmpi, in the categories below this one.",
            Self::PointToPoint => {
                "Messages between two ranks: protocols, matching and the queues of messages."
            }
            Self::Collectives => {
                "Collective operations: how they go, and how often they are called."
            }
            Self::Waiting => "How a rank waits for others, and how it is woken.",
            Self::Memory => "Memory that the library uses for messages.",
            Self::Network => {
                "What carries messages, over which devices, and what went wrong there."
            }
            Self::Qmp => "The library for lattice codes (QMP).",
            Self::Process => "The process and its communicators.",
            Self::Launch => "What the launcher and the compiler wrappers use.",
        }
    }

    /// Index of the category in [`SHOWN`](Self::SHOWN); `None`: MPI_T does not show it.
    #[must_use]
    pub fn place(self) -> Option<usize> {
        Self::SHOWN.iter().position(|other| *other == self)
    }

    /// The categories directly below this one.
    pub fn below(self) -> impl Iterator<Item = Self> {
        let all = Self::SHOWN.into_iter().skip(1);
        all.filter(move |_| self == Self::All)
    }
}

/// The verbosity level of a variable (MPI 5.0 section 15.3.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[allow(missing_docs, reason = "the standard's nine words")]
pub enum Verbosity {
    UserBasic,
    UserDetail,
    UserAll,
    TunerBasic,
    TunerDetail,
    TunerAll,
    DeveloperBasic,
    DeveloperDetail,
    DeveloperAll,
}

/// How a variable may be set, and whether ranks must agree on its value (MPI 5.0 section 15.3.6).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// Only the environment sets it.
    ReadOnly,
    /// Each rank may have its own value.
    Local,
    /// Each rank may have its own value, which may change at any time.
    Any,
    /// All ranks have to have the same value.
    AllEqual,
}

impl Scope {
    /// A sentence for the description of the variable that says how the variable can be set.
    #[must_use]
    pub fn text(self) -> &'static str {
        match self {
            Self::ReadOnly => "Set by the environment alone.",
            Self::Local => {
                "Can be written until MPI is initialized; ranks may have different values."
            }
            Self::Any => {
                "Can be written at any time, and holds at once; ranks may have different values."
            }
            Self::AllEqual => {
                "Can be written until MPI is initialized; all ranks have to write the same value."
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn categories_have_unique_names_and_no_cycles() {
        for (place, category) in Category::SHOWN.into_iter().enumerate() {
            assert_eq!(category.place(), Some(place));
            assert!(!category.text().is_empty());
            let same = |other: &Category| other.name() == category.name();
            assert_eq!(
                Category::SHOWN.iter().filter(|other| same(other)).count(),
                1
            );
            // No category below another one contains further categories, so none can contain itself.
            assert!(category.below().all(|below| below.below().next().is_none()));
        }
        assert_eq!(Category::All.below().count(), 7);
    }
}
