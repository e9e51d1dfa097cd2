// SPDX-License-Identifier: MIT OR Apache-2.0
//! The rows of the table of control variables for waiting, memory and protocols within a rank, as far as their values
//! are numbers for tuning.

use super::{Category, ControlVariable, Range, Scope, Variable, Verbosity};

/// A row with a number. The three numbers are the least, the largest and the default value.
const fn number(
    variable: Variable,
    name: &'static str,
    (category, scope): (Category, Scope),
    (least, most, default): (u64, u64, u64),
    unit: &'static str,
    text: &'static str,
) -> ControlVariable {
    ControlVariable {
        variable,
        name,
        category,
        verbosity: Verbosity::TunerDetail,
        scope,
        range: Range::Number {
            least,
            most,
            default,
            unit,
        },
        text,
    }
}

pub(super) const THREAD_SPINS: ControlVariable = number(
    Variable::ThreadSpins,
    "RMPI_THREAD_SPINS",
    (Category::Waiting, Scope::Any),
    (0, 1 << 30, 64),
    "polls",
    "Where several threads of a rank may call MPI, number of polls of a waiting thread that is alone in MPI, \
     before it yields and at last sleeps for a short time.",
);

pub(super) const SHORT_SLEEP: ControlVariable = number(
    Variable::ShortSleep,
    "RMPI_SHORT_SLEEP",
    (Category::Waiting, Scope::Any),
    (1, 1_000_000, 50),
    "microseconds",
    "Longest sleep of a rank that nothing would wake: while its messages wait for room, or several of its \
     threads wait.",
);

pub(super) const POLL_SLEEP: ControlVariable = number(
    Variable::PollSleep,
    "RMPI_POLL_SLEEP",
    (Category::Waiting, Scope::Any),
    (0, 1_000_000, 1000),
    "microseconds",
    "Where ranks share cores, a rank that tests repeatedly without success (`MPI_Test`, `MPI_Iprobe`) sleeps at \
     most this long in one call, unless a message wakes it; 0: it only yields.",
);

pub(super) const CROWD_DELAY: ControlVariable = number(
    Variable::CrowdDelay,
    "RMPI_CROWD_DELAY",
    (Category::Waiting, Scope::Any),
    (1, 100, 25),
    "percent",
    "Where RMPI_WAIT is auto, a rank that had to wait for its core for more than this part of the time treats \
     it as shared from then on.",
);

pub(super) const CROWD_HOLD: ControlVariable = number(
    Variable::CrowdHold,
    "RMPI_CROWD_HOLD",
    (Category::Waiting, Scope::Any),
    (1, 3_600_000, 1000),
    "milliseconds",
    "How long such a rank treats its core as shared at least.",
);

pub(super) const TASKS_PER_CALL: ControlVariable = number(
    Variable::TasksPerCall,
    "RMPI_TASKS_PER_CALL",
    (Category::Collectives, Scope::Any),
    (1, 1 << 20, 8),
    "operations",
    "Number of pending nonblocking collectives that a call continues if it has nothing to wait for; the next \
     call continues others.",
);

pub(super) const LEADER_CONTEXTS: ControlVariable = number(
    Variable::LeaderContexts,
    "RMPI_LEADER_CONTEXTS",
    (Category::Collectives, Scope::Local),
    (0, 1 << 28, 1 << 28),
    "communicators",
    "Number of communicators for which the leading rank of their creation chooses the context id alone; for \
     further ones all members agree on one, which takes longer. Ranks other than 0 can choose fewer.",
);

pub(super) const GATE_STARTS: ControlVariable = number(
    Variable::GateStarts,
    "RMPI_GATE_STARTS",
    (Category::PointToPoint, Scope::Local),
    (4, 1 << 30, 4),
    "starts",
    "Starts of a persistent receive before a gate is made for it (RMPI_PERSISTENT).",
);

pub(super) const COPY_TRIALS: ControlVariable = number(
    Variable::CopyTrials,
    "RMPI_COPY_TRIALS",
    (Category::PointToPoint, Scope::Local),
    (4, 1 << 30, 128),
    "periods",
    "Where RMPI_SINGLE_COPY is auto, two of this many busy periods of large messages from a rank use the slower \
     method, to find out whether it still is.",
);

pub(super) const UNEXPECTED_MESSAGES: ControlVariable = number(
    Variable::UnexpectedMessages,
    "RMPI_UNEXPECTED_MESSAGES",
    (Category::Memory, Scope::Local),
    (1, engine::MAX_UNEXPECTED, engine::MAX_UNEXPECTED),
    "messages",
    "Above this number of unexpected messages, senders announce every message, whatever the memory.",
);

pub(super) const UNEXPECTED_RELEASE: ControlVariable = number(
    Variable::UnexpectedRelease,
    "RMPI_UNEXPECTED_RELEASE",
    (Category::Memory, Scope::Local),
    (0, 100, 50),
    "percent",
    "Senders stop announcing every message when no more than this part of RMPI_UNEXPECTED_BUDGET and of \
     RMPI_UNEXPECTED_MESSAGES is in use.",
);

pub(super) const EVENT_RECORDS: ControlVariable = number(
    Variable::EventRecords,
    "RMPI_EVENT_RECORDS",
    (Category::Process, Scope::Local),
    (16, 1 << 20, 1 << 10),
    "events",
    "Most events that wait until they are delivered to a tool (MPI_T); further ones are dropped and counted.",
);
