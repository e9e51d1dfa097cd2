// SPDX-License-Identifier: MIT OR Apache-2.0
//! Counts, with callgrind in one of several ranks, the instructions of `MPI_Isend`, `MPI_Irecv` and `MPI_Wait` for some
//! message sizes, of other calls for small messages, of polls that find nothing, and of `QMP_start`.
//!
//! `isend_count.c`, `forms_count.c`, `persistent_count.c`, `poll_count.c` and `start_count.c` put each counted call
//! into its own function, and callgrind writes one file per call. The count is the median over the calls, so a single
//! call that had to wait for a late message does not change it.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::peers::{Case, Installation, Setting, Tuning};
use crate::stats::Summary;
use crate::{Error, machine, programs, run};

/// Maximum number of instructions for `MPI_Isend` of 8 bytes.
pub const ISEND_BUDGET: f64 = 60.0;
/// Maximum number of instructions for `MPI_Isend` of 8 bytes if no tool is loaded: the QMPI tool stack must then cost
/// nothing. Builds without the stack took 55 instructions; 2 more were added later, to count the traffic to each rank.
pub const ISEND_WITHOUT_STACKS: f64 = 55.0 + 2.0;
/// Maximum number of instructions for `MPI_Isend`, `MPI_Irecv` and `MPI_Wait` together, of 8 bytes without a status.
pub const SUM_BUDGET: f64 = 250.0;
/// The message sizes (bytes) for which `MPI_Isend`, `MPI_Irecv` and `MPI_Wait` are counted.
pub const SIZES: [u32; 11] = [0, 1, 4, 8, 9, 16, 32, 48, 64, 256, 1024];
/// Maximum number of instructions for `MPI_Isend`, `MPI_Irecv` and `MPI_Wait` together, with a status, for each of
/// [`SIZES`]: what these calls took in November 2026, plus a margin for other compilers and C libraries. Sizes that
/// have not reached [`size_aim`] must not get slower than these budgets.
pub const SIZE_BUDGETS: [f64; 11] = [
    395.0, 415.0, 335.0, 257.0, 432.0, 407.0, 424.0, 436.0, 735.0, 775.0, 1120.0,
];
/// [`SIZE_BUDGETS`] for `MPI_THREAD_MULTIPLE`.
pub const MULTIPLE_BUDGETS: [f64; 11] = [
    556.0, 576.0, 581.0, 497.0, 590.0, 568.0, 584.0, 596.0, 885.0, 925.0, 1270.0,
];

/// The instructions that `MPI_THREAD_MULTIPLE` may add to [`size_aim`].
pub const MULTIPLE_MORE: f64 = 150.0;

/// Maximum number of instructions for `MPI_Isend`, `MPI_Irecv` and `MPI_Wait` together, with 8 bytes and a status, in
/// other communicators than `MPI_COMM_WORLD`. Each entry has the arguments of `isend_count.c` that select the
/// communicator and the thread level, and the maximum. `reversed` is a communicator with its ranks in reverse order, so
/// the destination and the source of a message have to be translated.
pub const COMM_BUDGETS: [(&[&str], f64); 4] = [
    (&["dup"], 262.0),
    (&["reversed"], 470.0),
    (&["multiple", "dup"], 505.0),
    (&["multiple", "reversed"], 600.0),
];

/// The aim (in instructions) for `MPI_Isend`, `MPI_Irecv` and `MPI_Wait` together, with a message of `bytes` bytes of
/// `MPI_CHAR` and a status.
#[must_use]
pub fn size_aim(bytes: u32) -> f64 {
    match bytes {
        0..=48 => 330.0,
        _ => 450.0 + f64::from(bytes) / 4.0,
    }
}

/// The maximum number of instructions for `MPI_Startall` and for `MPI_Waitall`, with a persistent receive and a
/// persistent send of 8 bytes, in a program that has no other messages.
pub const PERSISTENT: [(&str, f64); 2] = [("MPI_Startall", 450.0), ("MPI_Waitall", 720.0)];

/// Calls with a message of 8 bytes and a status, and the maximum number of instructions for each. `MPI_Startall` and
/// `MPI_Waitall` are for a persistent receive and a persistent send; for the other calls the message has already
/// arrived.
pub const FORMS: [(&str, f64); 6] = [
    ("MPI_Sendrecv", 300.0),
    ("MPI_Startall", 450.0),
    ("MPI_Waitall", 720.0),
    ("MPI_Test", 230.0),
    ("MPI_Testall", 630.0),
    ("MPI_Waitany", 590.0),
];

/// Maximum number of instructions for an `MPI_Test` that finds nothing, in a rank that has its own core.
pub const TEST_BUDGET: f64 = 265.0;
/// Maximum number of instructions for an `MPI_Iprobe` that finds nothing, in a rank that has its own core.
pub const IPROBE_BUDGET: f64 = 340.0;
/// Maximum number of instructions for `QMP_start` of eight receives and eight sends, without the copying of payload.
pub const START_BUDGET: f64 = 400.0;

/// Median instructions per call, callees included.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Counts {
    /// `MPI_Isend` to a rank on this node that has received all earlier messages.
    pub isend: Summary,
    /// `MPI_Irecv` while no message has arrived.
    pub irecv: Summary,
    /// `MPI_Wait` for a receive whose message has arrived.
    pub wait: Summary,
}

impl Counts {
    /// The medians of `MPI_Isend`, `MPI_Irecv` and `MPI_Wait`, added up.
    #[must_use]
    pub fn sum(&self) -> f64 {
        self.isend.median + self.irecv.median + self.wait.median
    }
}

/// A program whose rank 0 makes the counted calls.
struct Traced {
    name: &'static str,
    /// The number of ranks besides rank 0.
    others: usize,
    /// The functions that each make one counted call.
    counted: &'static [&'static str],
    /// Functions inside the counted calls that are not counted.
    left_out: &'static [&'static str],
}

const ISEND: Traced = Traced {
    name: "isend_count",
    others: 1,
    counted: &["counted_isend", "counted_irecv", "counted_wait"],
    left_out: &[],
};
const FORMS_COUNT: Traced = Traced {
    name: "forms_count",
    others: 1,
    counted: &[
        "counted_sendrecv",
        "counted_startall",
        "counted_waitall",
        "counted_test",
        "counted_testall",
        "counted_waitany",
    ],
    left_out: &[],
};
const PERSISTENT_COUNT: Traced = Traced {
    name: "persistent_count",
    others: 1,
    counted: &["counted_startall", "counted_waitall"],
    left_out: &[],
};
const POLLS: Traced = Traced {
    name: "poll_count",
    others: 1,
    counted: &["counted_test", "counted_iprobe"],
    left_out: &[],
};
const START: Traced = Traced {
    name: "start_count",
    others: 8,
    counted: &["counted_start"],
    left_out: &["memmove"],
};
/// The function at whose entry callgrind writes a file.
const END_OF_CALL: &str = "end_of_call";

/// Counts `MPI_Isend`, `MPI_Irecv` and `MPI_Wait` of an MPI. Without `arguments` messages have 8 bytes and no status.
/// If there are arguments, the first one is a number of bytes: messages are that many `MPI_CHAR`, with a status.
/// `multiple` (for `MPI_THREAD_MULTIPLE`) and `dup` or `reversed` (for another communicator) may follow. `work` is a
/// folder for binaries and callgrind's files.
///
/// # Errors
/// When valgrind is missing, or the program cannot be built or run under it.
pub fn count(
    mpi: &Installation,
    level: Tuning,
    work: &Path,
    limit: Duration,
    arguments: &[&str],
) -> Result<Counts, Error> {
    let counts = ISEND.count(mpi, with_a_core(mpi, level)?, arguments, work, limit)?;
    let [isend, irecv, wait] = counts[..] else {
        unreachable!("three functions are counted");
    };
    Ok(Counts { isend, irecv, wait })
}

/// Counts the calls of [`FORMS`], in this order.
///
/// # Errors
/// As [`count`].
pub fn count_forms(
    mpi: &Installation,
    level: Tuning,
    work: &Path,
    limit: Duration,
) -> Result<Vec<Summary>, Error> {
    FORMS_COUNT.count(mpi, with_a_core(mpi, level)?, &[], work, limit)
}

/// Counts the calls of [`PERSISTENT`], in this order.
///
/// # Errors
/// As [`count`].
pub fn count_persistent(
    mpi: &Installation,
    level: Tuning,
    work: &Path,
    limit: Duration,
) -> Result<Vec<Summary>, Error> {
    PERSISTENT_COUNT.count(mpi, with_a_core(mpi, level)?, &[], work, limit)
}

/// Counts an `MPI_Test` and an `MPI_Iprobe` that find nothing, in this order.
///
/// # Errors
/// As [`count`].
pub fn count_polls(
    mpi: &Installation,
    level: Tuning,
    work: &Path,
    limit: Duration,
) -> Result<[Summary; 2], Error> {
    let counts = POLLS.count(mpi, with_a_core(mpi, level)?, &[], work, limit)?;
    let [test, iprobe] = counts[..] else {
        unreachable!("two functions are counted");
    };
    Ok([test, iprobe])
}

/// The launcher for two ranks that each have their own core.
fn with_a_core(mpi: &Installation, level: Tuning) -> Result<Command, Error> {
    let setting = mpi
        .kind
        .setting(Case::TwoRanks, level)
        .ok_or_else(|| Error::Usage(format!("{} has no other setting", mpi.name)))?;
    let mut launcher = mpi.launcher(setting, 1, None);
    // The counted path is that of a rank with its own core. Without this variable the library would assume a shared
    // core on a busy machine, and under valgrind, which lacks `membarrier`.
    launcher.env("RMPI_WAIT", "spin");
    Ok(launcher)
}

/// Counts `QMP_start` of a halo in eight directions, without the copying of payload.
///
/// # Errors
/// As [`count`].
pub fn count_start(mpi: &Installation, work: &Path, limit: Duration) -> Result<Summary, Error> {
    let mut launcher = mpi.launcher(Setting::default(), 1, None);
    // The other ranks poll and share cores. If they slept, the count would include waking them.
    launcher.env("RMPI_POLL_SLEEP", "0");
    let counts = START.count(mpi, launcher, &[], work, limit)?;
    Ok(counts[0])
}

impl Traced {
    fn count(
        &self,
        mpi: &Installation,
        mut launcher: Command,
        arguments: &[&str],
        work: &Path,
        limit: Duration,
    ) -> Result<Vec<Summary>, Error> {
        let valgrind = machine::find_in_path("valgrind").ok_or_else(|| {
            Error::Usage("valgrind is not installed (Debian: apt-get install valgrind)".to_owned())
        })?;
        let program = work.join(self.name);
        programs::compile(mpi.mpicc(), &mpi.environment(), self.name, &program)?;
        let dumps = work.join("callgrind");
        // If files of an earlier run stayed, they would be counted too.
        drop(fs::remove_dir_all(&dumps));
        fs::create_dir_all(&dumps)
            .map_err(|e| Error::io("cannot make a folder for callgrind", e))?;
        launcher
            .arg(valgrind)
            .args(self.callgrind_options(&dumps))
            .arg(&program)
            .args(arguments);
        // Only rank 0 runs under valgrind; the others run at full speed.
        launcher
            .args([":", "-n", &self.others.to_string()])
            .arg(&program)
            .args(arguments);
        let outcome = run::run(&mut launcher, limit)?;
        if let Some(failure) = outcome.failure() {
            return Err(Error::Program(format!(
                "{} with {}: {failure}",
                self.name, mpi.name
            )));
        }
        self.read_dumps(&dumps)
    }

    fn callgrind_options(&self, dumps: &Path) -> Vec<String> {
        let mut options = vec![
            "--tool=callgrind".to_owned(),
            "--quiet".to_owned(),
            "--compress-strings=no".to_owned(),
            "--compress-pos=no".to_owned(),
            format!("--callgrind-out-file={}/out", dumps.display()),
            format!("--dump-before={END_OF_CALL}"),
        ];
        // A function that is left out switches the counting off while it runs.
        let toggles = self.counted.iter().chain(self.left_out);
        options.extend(toggles.map(|name| format!("--toggle-collect={name}")));
        options
    }

    /// A summary for each counted function.
    fn read_dumps(&self, folder: &Path) -> Result<Vec<Summary>, Error> {
        let entries =
            fs::read_dir(folder).map_err(|e| Error::io("cannot read callgrind's files", e))?;
        let dumps: Vec<String> = entries
            .flatten()
            .map(|entry| fs::read_to_string(entry.path()).unwrap_or_default())
            .collect();
        let summary = |name: &&str| {
            let counts = dumps
                .iter()
                .filter_map(|dump| inclusive_of_callees(dump, name));
            Summary::of(&counts.collect::<Vec<_>>()).ok_or_else(|| {
                Error::Program("callgrind wrote no file with a counted call in it".to_owned())
            })
        };
        self.counted.iter().map(summary).collect()
    }
}

/// The instructions of the callees of `function`, without its own; `None` if it was not called.
///
/// A callgrind file has blocks that begin with `fn=NAME`. In a block, `calls=COUNT TARGET` is followed by a line `LINE
/// COST`; COST includes the callee and everything that the callee called.
fn inclusive_of_callees(dump: &str, function: &str) -> Option<f64> {
    let mut inside = false;
    let mut calls = false;
    let mut cost = None;
    for line in dump.lines() {
        if let Some(name) = line.strip_prefix("fn=") {
            inside = name == function;
        } else if calls && inside {
            let callee: f64 = line.split_whitespace().nth(1)?.parse().ok()?;
            cost = Some(cost.unwrap_or(0.0) + callee);
        }
        calls = line.starts_with("calls=");
    }
    cost
}

#[cfg(test)]
mod tests {
    use super::*;

    const DUMP: &str = "events: Ir\nfn=main\ncfn=counted_isend\ncalls=1 14 \n38 704\n\nfn=counted_isend\n14 1\n15 7\n\
                        cob=/lib/libmpi.so.12\ncfi=???\ncfn=PMPI_Isend\ncalls=1 0 \n15 693\n15 1\n17 2\n\n\
                        fn=PMPI_Isend\n0 100\ncfn=inner\ncalls=2 0 \n0 593\n\ntotals: 704\n";

    #[test]
    fn only_what_the_counted_function_calls_is_counted() {
        assert_eq!(inclusive_of_callees(DUMP, "counted_isend"), Some(693.0));
        assert_eq!(inclusive_of_callees(DUMP, "counted_wait"), None);
    }

    #[test]
    fn the_sources_have_the_functions_that_callgrind_counts() {
        for traced in [ISEND, FORMS_COUNT, PERSISTENT_COUNT, POLLS, START] {
            let file = programs::sources().join(format!("{}.c", traced.name));
            let source = fs::read_to_string(file).unwrap();
            for name in traced.counted.iter().chain([&END_OF_CALL]) {
                assert!(source.contains(&format!("COUNTED void {name}(")), "{name}");
            }
            for name in traced.left_out {
                assert!(source.contains(&format!("COUNTED void *{name}(")), "{name}");
            }
        }
    }
}
