// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a performance variable is, and where it is read; [`PVARS`] are all of them. All numbers are atomic and read without
//! a lock, so that a signal handler may read them whatever it has interrupted.

mod table;

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, LazyLock};

use queue_layout::{CommRow, EngineCounters, Queued, WatermarkCounter};

use crate::boot::Birth;

pub use table::PVARS;

use super::traffic::{PeerTraffic, traffic};
use super::{Category, Verbosity};

/// One performance variable.
#[derive(Clone, Copy, Debug)]
pub struct PerformanceVariable {
    /// Its name.
    pub name: &'static str,
    /// What it has to do with.
    pub category: Category,
    /// Whom it is for.
    pub verbosity: Verbosity,
    /// How its value behaves.
    pub class: PvarClass,
    /// What its value is made of.
    pub kind: PvarNumber,
    /// What is read.
    pub source: PvarSource,
    /// What it means.
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
    /// `int`; one of these words, if there are any.
    Int(&'static [&'static str]),
    /// `unsigned int`.
    Unsigned,
    /// `unsigned long long`.
    Long,
    /// `double`, as its bits; of a timer, which is in seconds, the nanoseconds.
    Double,
}

/// Where the value of a variable is read.
#[derive(Clone, Copy)]
pub enum PvarSource {
    /// A number of the process.
    Process(fn(&EngineCounters) -> u64),
    /// The extreme of a level since a moment of the handle's own.
    Extreme(fn(&EngineCounters) -> &WatermarkCounter),
    /// A number of one communicator.
    Comm(fn(&CommRow, usize) -> u64, usize),
    /// The length of a queue of matching of one communicator.
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
    /// Whether it belongs to a communicator.
    #[must_use]
    pub fn is_of_comm(&self) -> bool {
        matches!(self.source, PvarSource::Comm(..) | PvarSource::Queue(_))
    }

    /// How many numbers it has.
    #[must_use]
    pub fn count(&self) -> usize {
        match (self.source, traffic()) {
            (PvarSource::Ranks(_), Some(traffic)) => traffic.size(),
            // As many as there will be.
            (PvarSource::Ranks(_), None) => Birth::size_to_come() as usize,
            _ => 1,
        }
    }

    /// Whether it has a number for each world rank.
    #[must_use]
    pub fn is_of_ranks(&self) -> bool {
        matches!(self.source, PvarSource::Ranks(_))
    }

    /// Whether it counts from where a handle begins, so that a handle can be started, stopped and set.
    #[must_use]
    pub fn is_counted(&self) -> bool {
        matches!(
            self.class,
            PvarClass::Counter | PvarClass::Aggregate | PvarClass::Timer
        )
    }

    /// Whether it always runs.
    #[must_use]
    pub fn is_continuous(&self) -> bool {
        !self.is_counted() && !matches!(self.source, PvarSource::Queue(_))
    }

    /// Whether it cannot be written or reset.
    #[must_use]
    pub fn is_read_only(&self) -> bool {
        !self.is_counted() && !matches!(self.source, PvarSource::Extreme(_))
    }

    const fn of(mut self, kind: PvarNumber) -> Self {
        self.kind = kind;
        self
    }
}

/// The words of the variable `process_phase`, by value.
pub const PHASES: &[&str] = &["before", "running", "finalized"];

static TALLY: LazyLock<Arc<EngineCounters>> = LazyLock::new(Arc::default);
static PHASE: AtomicU32 = AtomicU32::new(0);
static BUDGET: AtomicU64 = AtomicU64::new(0);

/// What this process counts. The first call takes memory, so it is not one of a signal handler.
#[must_use]
pub fn tally() -> &'static Arc<EngineCounters> {
    &TALLY
}

/// Where the process is in MPI's life: a place in [`PHASES`].
pub fn set_phase(phase: u32) {
    PHASE.store(phase, Relaxed);
}

/// The memory for unexpected data, in bytes.
pub(crate) fn set_unexpected_budget(bytes: u64) {
    BUDGET.store(bytes, Relaxed);
}

/// Whether somebody wants to know how long calls of collectives take.
static CALLS_TIMED: AtomicBool = AtomicBool::new(false);

/// The same, for who makes such a call.
#[inline(always)]
pub(crate) fn are_calls_timed() -> bool {
    CALLS_TIMED.load(Relaxed)
}

/// Somebody reads this variable from now on.
pub(super) fn is_read(pvar: &PerformanceVariable) {
    if pvar.class == PvarClass::Timer && pvar.is_of_comm() {
        CALLS_TIMED.store(true, Relaxed);
    }
}
