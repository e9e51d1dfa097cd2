// SPDX-License-Identifier: MIT OR Apache-2.0
//! The rows of waiting, memory and protocols within a rank that are numbers for tuning.

use super::{Category, ControlVariable, Range, Scope, Variable, Verbosity};

/// A row with a number: least, most and default.
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
    "Where several threads of a rank may call MPI, one that waits polls so often, if it is the only one that does call, \
     before it offers its core to others, and at last sleeps for a short time.",
);

pub(super) const SHORT_SLEEP: ControlVariable = number(
    Variable::ShortSleep,
    "RMPI_SHORT_SLEEP",
    (Category::Waiting, Scope::Any),
    (1, 1_000_000, 50),
    "microseconds",
    "A rank sleeps so long at most where nobody would wake it: while its messages wait for room, or several of \
     its threads wait.",
);

pub(super) const POLL_SLEEP: ControlVariable = number(
    Variable::PollSleep,
    "RMPI_POLL_SLEEP",
    (Category::Waiting, Scope::Any),
    (0, 1_000_000, 1000),
    "microseconds",
    "Where ranks share cores, a rank that asks again and again in vain (`MPI_Test`, `MPI_Iprobe`) sleeps so long at most in one \
     call, unless a message wakes it; 0: it only yields.",
);

pub(super) const CROWD_DELAY: ControlVariable = number(
    Variable::CrowdDelay,
    "RMPI_CROWD_DELAY",
    (Category::Waiting, Scope::Any),
    (1, 100, 25),
    "percent",
    "Where RMPI_WAIT is auto, a rank that had to wait for its core for more than this part of the time shares it from then on.",
);

pub(super) const CROWD_HOLD: ControlVariable = number(
    Variable::CrowdHold,
    "RMPI_CROWD_HOLD",
    (Category::Waiting, Scope::Any),
    (1, 3_600_000, 1000),
    "milliseconds",
    "Such a rank shares its core for so long before it may take it for its own again.",
);

pub(super) const TASKS_PER_CALL: ControlVariable = number(
    Variable::TasksPerCall,
    "RMPI_TASKS_PER_CALL",
    (Category::Collectives, Scope::Any),
    (1, 1 << 20, 8),
    "operations",
    "A call that has nothing to wait for carries on so many of the nonblocking collectives that are under way, \
     others the next time.",
);

pub(super) const LEADER_CONTEXTS: ControlVariable = number(
    Variable::LeaderContexts,
    "RMPI_LEADER_CONTEXTS",
    (Category::Collectives, Scope::Local),
    (0, 1 << 28, 1 << 28),
    "communicators",
    "Of the communicators whose making a rank leads, for so many it chooses alone by which context their messages are known; \
     for those after them all members agree on one, which takes longer. Ranks other than 0 have fewer to choose from.",
);

pub(super) const GATE_STARTS: ControlVariable = number(
    Variable::GateStarts,
    "RMPI_GATE_STARTS",
    (Category::PointToPoint, Scope::Local),
    (4, 1 << 30, 4),
    "starts",
    "A persistent receive is started so often before a gate is made for it (RMPI_PERSISTENT).",
);

pub(super) const COPY_TRIALS: ControlVariable = number(
    Variable::CopyTrials,
    "RMPI_COPY_TRIALS",
    (Category::PointToPoint, Scope::Local),
    (4, 1 << 30, 128),
    "periods",
    "Where RMPI_SINGLE_COPY is auto, two of so many busy periods of large messages from a rank go the slower way, \
     to find out whether it still is.",
);

pub(super) const UNEXPECTED_MESSAGES: ControlVariable = number(
    Variable::UnexpectedMessages,
    "RMPI_UNEXPECTED_MESSAGES",
    (Category::Memory, Scope::Local),
    (1, engine::MAX_UNEXPECTED, engine::MAX_UNEXPECTED),
    "messages",
    "Past so many unexpected messages, senders are asked to announce every message, whatever the memory.",
);

pub(super) const UNEXPECTED_RELEASE: ControlVariable = number(
    Variable::UnexpectedRelease,
    "RMPI_UNEXPECTED_RELEASE",
    (Category::Memory, Scope::Local),
    (0, 100, 50),
    "percent",
    "They may send again when no more than this part of RMPI_UNEXPECTED_BUDGET and of RMPI_UNEXPECTED_MESSAGES is \
     in use.",
);

pub(super) const EVENT_RECORDS: ControlVariable = number(
    Variable::EventRecords,
    "RMPI_EVENT_RECORDS",
    (Category::Process, Scope::Local),
    (16, 1 << 20, 1 << 10),
    "events",
    "So many events wait at most until they are told to a tool (MPI_T); those beyond are dropped, and counted.",
);
