// SPDX-License-Identifier: MIT OR Apache-2.0
//! Performance variables: their definition, and how they are read. [`PVARS`] has all of them. All numbers are atomic
//! and are read without a lock, so a signal handler may read them at any time.

mod table;

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, LazyLock};

use queue_layout::{CommRow, EngineCounters, Queued, WatermarkCounter};

use crate::boot::LaunchState;

pub use table::PVARS;

use super::traffic::{PeerTraffic, traffic};
use super::{Category, Verbosity};

/// One performance variable.
#[derive(Clone, Copy, Debug)]
pub struct PerformanceVariable {
    /// Name of the variable.
    pub name: &'static str,
    /// Category of the variable.
    pub category: Category,
    /// Verbosity level of the variable.
    pub verbosity: Verbosity,
    /// Class of the variable.
    pub class: PvarClass,
    /// Type of the value.
    pub kind: PvarNumber,
    /// Source of the value.
    pub source: PvarSource,
    /// Description of the variable.
    pub text: &'static str,
}

/// The class of a variable: how its value behaves (MPI 5.0 section 15.3.7).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the standard's words")]
pub enum PvarClass {
    State,
    Level,
    Size,
    Percentage,
    HighWatermark,
    LowWatermark,
    Counter,
    Aggregate,
    Timer,
    Generic,
}

/// The type of a variable's value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PvarNumber {
    /// `int`; if there are names, an enumeration with these names.
    Int(&'static [&'static str]),
    /// `unsigned int`.
    Unsigned,
    /// `unsigned long long`.
    Long,
    /// `double`. The source returns the bits of the value. For a timer, whose value is in seconds, the source returns
    /// nanoseconds instead.
    Double,
}

/// The source of a variable's value.
#[derive(Clone, Copy)]
pub enum PvarSource {
    /// A number of the whole process.
    Process(fn(&EngineCounters) -> u64),
    /// The highest or lowest value that a number of the process has had since the start of the handle.
    Extreme(fn(&EngineCounters) -> &WatermarkCounter),
    /// A number of one communicator.
    Comm(fn(&CommRow, usize) -> u64, usize),
    /// The length of a matching queue of one communicator.
    Queue(Queued),
    /// A number for each world rank.
    Ranks(fn(&PeerTraffic, usize) -> u64),
}

impl std::fmt::Debug for PvarSource {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str(match self {
            Self::Process(_) => "Process",
            Self::Extreme(_) => "Extreme",
            Self::Comm(..) => "Comm",
            Self::Queue(_) => "Queue",
            Self::Ranks(_) => "Ranks",
        })
    }
}

impl PerformanceVariable {
    /// Whether a handle of the variable is bound to a communicator.
    #[must_use]
    pub fn is_of_comm(&self) -> bool {
        matches!(self.source, PvarSource::Comm(..) | PvarSource::Queue(_))
    }

    /// Number of values of the variable.
    #[must_use]
    pub fn count(&self) -> usize {
        match (self.source, traffic()) {
            (PvarSource::Ranks(_), Some(traffic)) => traffic.size(),
            // Before `MPI_Init`, the expected number of ranks of the job.
            (PvarSource::Ranks(_), None) => LaunchState::expected_size() as usize,
            _ => 1,
        }
    }

    /// Whether the variable has a number for each world rank.
    #[must_use]
    pub fn is_of_ranks(&self) -> bool {
        matches!(self.source, PvarSource::Ranks(_))
    }

    /// Whether a handle of the variable counts from its start. Such a handle can be started, stopped and set.
    #[must_use]
    pub fn is_counted(&self) -> bool {
        matches!(
            self.class,
            PvarClass::Counter | PvarClass::Aggregate | PvarClass::Timer
        )
    }

    /// Whether handles of the variable always run.
    #[must_use]
    pub fn is_continuous(&self) -> bool {
        !self.is_counted() && !matches!(self.source, PvarSource::Queue(_))
    }

    /// Whether the variable cannot be written or reset.
    #[must_use]
    pub fn is_read_only(&self) -> bool {
        !self.is_counted() && !matches!(self.source, PvarSource::Extreme(_))
    }

    const fn of(mut self, kind: PvarNumber) -> Self {
        self.kind = kind;
        self
    }
}

/// The values of the variable `process_phase`.
pub const PHASES: &[&str] = &["before", "running", "finalized"];

static TALLY: LazyLock<Arc<EngineCounters>> = LazyLock::new(Arc::default);
static PHASE: AtomicU32 = AtomicU32::new(0);
static BUDGET: AtomicU64 = AtomicU64::new(0);

/// The counters of this process. The first call allocates, so it must not be made in a signal handler.
#[must_use]
pub fn engine_counters() -> &'static Arc<EngineCounters> {
    &TALLY
}

/// Sets the phase of MPI in this process: an index into [`PHASES`].
pub fn set_phase(phase: u32) {
    PHASE.store(phase, Relaxed);
}

/// Sets the budget for unexpected data, in bytes.
pub(crate) fn set_unexpected_budget(bytes: u64) {
    BUDGET.store(bytes, Relaxed);
}

/// Whether a tool has bound a variable for the durations of collectives.
static CALLS_TIMED: AtomicBool = AtomicBool::new(false);

/// Whether the durations of collectives are measured, because a tool has bound a variable for them.
#[inline(always)]
pub(crate) fn are_calls_timed() -> bool {
    CALLS_TIMED.load(Relaxed)
}

/// To be called when a tool binds `pvar` to a handle.
pub(super) fn is_read(pvar: &PerformanceVariable) {
    if pvar.class == PvarClass::Timer && pvar.is_of_comm() {
        CALLS_TIMED.store(true, Relaxed);
    }
}
