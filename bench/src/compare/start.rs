// SPDX-License-Identifier: MIT OR Apache-2.0
//! Starts the launcher of one contender, and cleans up after it whether it succeeds or not.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use crate::Error;
use crate::run::{self, CommandOutcome};

/// Runs a launcher to its end or to the time limit. `program` is this binary, which starts the launcher
/// ([`run::guarded`]).
pub(crate) fn start(
    program: &Path,
    launcher: &Command,
    limit: Duration,
) -> Result<CommandOutcome, Error> {
    cleanly(|| {
        let outcome = run::run(&mut run::guarded(program, launcher), limit)?;
        match outcome.failure() {
            Some(failure) => Err(Error::Program(failure)),
            None => Ok(outcome),
        }
    })
}

/// Calls `launch`, which runs a launcher, and reaps orphaned processes. If `launch` fails, also kills the processes
/// that are left and removes the shared-memory files that peers have left.
pub(crate) fn cleanly<T>(launch: impl FnOnce() -> Result<T, Error>) -> Result<T, Error> {
    let shared_memory = SharedMemory::now();
    let outcome = launch();
    run::end_orphans(outcome.is_err());
    if outcome.is_err() {
        shared_memory.remove_new_segments_of_peers();
    }
    outcome
}

/// The names of the files in `/dev/shm` before a run; other MPIs leave their segments there when they are killed.
struct SharedMemory(BTreeSet<OsString>);

impl SharedMemory {
    const FOLDER: &str = "/dev/shm";
    /// How the names of the peers' segments begin.
    const PEERS: [&str; 4] = ["sm_segment.", "vader_segment.", "mpich_shm_", "Intel_MPI_"];

    fn now() -> Self {
        let entries = std::fs::read_dir(Self::FOLDER)
            .into_iter()
            .flatten()
            .flatten();
        Self(entries.map(|entry| entry.file_name()).collect())
    }

    fn remove_new_segments_of_peers(&self) {
        let is_peers = |name: &OsString| {
            Self::PEERS
                .iter()
                .any(|prefix| name.to_string_lossy().starts_with(prefix))
        };
        for name in Self::now()
            .0
            .difference(&self.0)
            .filter(|name| is_peers(name))
        {
            // Removal fails for a file of another user, but such a file is not from this run.
            drop(std::fs::remove_file(Path::new(Self::FOLDER).join(name)));
        }
    }
}
