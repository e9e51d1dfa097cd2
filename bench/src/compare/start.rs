// SPDX-License-Identifier: MIT OR Apache-2.0
//! Starts one contender's launcher, and cleans up behind it whatever becomes of it.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use crate::Error;
use crate::run::{self, CommandOutcome};

/// Runs a launcher to its end or to the limit. `program` is this binary, which guards the launcher.
pub(crate) fn start(
    program: &Path,
    launcher: &Command,
    limit: Duration,
) -> Result<CommandOutcome, Error> {
    cleanly(|| {
        let outcome = run::run(&mut run::guarded(program, launcher), limit)?;
        match outcome.complaint() {
            Some(complaint) => Err(Error::Program(complaint)),
            None => Ok(outcome),
        }
    })
}

/// Runs a launcher in any way, and ends and removes what it left when that failed.
pub(crate) fn cleanly<T>(launch: impl FnOnce() -> Result<T, Error>) -> Result<T, Error> {
    let shared_memory = SharedMemory::now();
    let outcome = launch();
    run::end_orphans(outcome.is_err());
    if outcome.is_err() {
        shared_memory.remove_what_peers_left();
    }
    outcome
}

/// The files in `/dev/shm` before a run: other MPIs leave their segments behind when they are killed.
struct SharedMemory(BTreeSet<OsString>);

impl SharedMemory {
    const FOLDER: &str = "/dev/shm";
    /// How the peers' segments begin.
    const PEERS: [&str; 4] = ["sm_segment.", "vader_segment.", "mpich_shm_", "Intel_MPI_"];

    fn now() -> Self {
        let entries = std::fs::read_dir(Self::FOLDER)
            .into_iter()
            .flatten()
            .flatten();
        Self(entries.map(|entry| entry.file_name()).collect())
    }

    fn remove_what_peers_left(&self) {
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
            // Another user's cannot be removed, and is none of this run's.
            drop(std::fs::remove_file(Path::new(Self::FOLDER).join(name)));
        }
    }
}
