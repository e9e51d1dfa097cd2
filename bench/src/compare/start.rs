// SPDX-License-Identifier: MIT OR Apache-2.0
//! Starts the launcher of one contender, and cleans up after it whether it succeeds or not.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
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
    let shared_memory = SharedMemory::now(Path::new(SharedMemory::FOLDER));
    let outcome = launch();
    run::end_orphans(outcome.is_err());
    if outcome.is_err() {
        shared_memory.remove_new_segments_of_peers();
    }
    outcome
}

/// The names of the files in a folder of shared memory before a run; other MPIs leave their segments there when they
/// are killed.
struct SharedMemory {
    folder: PathBuf,
    before: BTreeSet<OsString>,
}

impl SharedMemory {
    const FOLDER: &str = "/dev/shm";
    /// How the names of the peers' segments begin.
    const PEERS: [&str; 4] = ["sm_segment.", "vader_segment.", "mpich_shm_", "Intel_MPI_"];

    fn now(folder: &Path) -> Self {
        Self {
            folder: folder.to_owned(),
            before: names(folder).collect(),
        }
    }

    /// Removes the new segments of this user that no process uses: all processes of this run have ended, so the others
    /// belong to other runs.
    fn remove_new_segments_of_peers(&self) {
        let is_peers = |name: &OsString| {
            let name = name.to_string_lossy();
            Self::PEERS.iter().any(|prefix| name.starts_with(prefix))
        };
        let new = names(&self.folder).filter(|name| is_peers(name) && !self.before.contains(name));
        let new: Vec<PathBuf> = new.map(|name| self.folder.join(name)).collect();
        if new.is_empty() {
            return;
        }
        let used = used_files(&self.folder);
        let own_user = nix::unistd::geteuid().as_raw();
        let is_own = |path: &PathBuf| {
            let metadata = path.symlink_metadata();
            metadata.is_ok_and(|metadata| metadata.uid() == own_user) && !used.contains(path)
        };
        for path in new.iter().filter(|path| is_own(path)) {
            // Removal fails if the file has just been removed by another process.
            drop(std::fs::remove_file(path));
        }
    }
}

/// The names of the files in a folder; none if it cannot be read.
fn names(folder: &Path) -> impl Iterator<Item = OsString> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    entries.map(|entry| entry.file_name())
}

/// The files in a folder that some process has mapped or open, as far as this user may see that. A process may have
/// mapped a segment and closed it, or have opened it and not mapped it yet.
fn used_files(folder: &Path) -> BTreeSet<PathBuf> {
    let mut used = BTreeSet::new();
    let processes = names(Path::new("/proc"))
        .filter(|name| name.as_encoded_bytes().iter().all(u8::is_ascii_digit));
    for process in processes.map(|name| Path::new("/proc").join(name)) {
        let maps = std::fs::read(process.join("maps")).unwrap_or_default();
        let maps = String::from_utf8_lossy(&maps);
        // The path is the rest of a line; the fields before it have no slash.
        let mapped = maps
            .lines()
            .filter_map(|line| Some(PathBuf::from(&line[line.find('/')?..])));
        let descriptors = process.join("fd");
        let links = names(&descriptors).map(|name| descriptors.join(name));
        let open = links.filter_map(|link| std::fs::read_link(link).ok());
        used.extend(mapped.chain(open).filter(|path| path.starts_with(folder)));
    }
    used
}

#[cfg(test)]
mod tests {
    use std::fs::{self, File};

    use super::*;

    #[test]
    fn only_unused_new_segments_of_this_user_are_removed() {
        let scratch = tempfile::tempdir().unwrap();
        let folder = scratch.path().canonicalize().unwrap();
        let make = |name: &str| File::create(folder.join(name)).unwrap();
        make("mpich_shm_before");
        let memory = SharedMemory::now(&folder);
        for name in [
            "mpich_shm_left",
            "sm_segment.left",
            "other",
            "vader_segment.foreign",
        ] {
            make(name);
        }
        // Segments of another run of this user.
        let _open = make("mpich_shm_used");
        let sleeper = File::create(folder.join("Intel_MPI_used")).unwrap();
        let mut other_run = Command::new("sleep")
            .arg("60")
            .stdin(sleeper)
            .spawn()
            .unwrap();
        // Only root can make a file of another user.
        let foreign = folder.join("vader_segment.foreign");
        if std::os::unix::fs::chown(&foreign, Some(65_534), None).is_err() {
            fs::rename(&foreign, folder.join("foreign")).unwrap();
        }
        memory.remove_new_segments_of_peers();
        other_run.kill().unwrap();
        other_run.wait().unwrap();
        let mut left: Vec<_> = names(&folder).collect();
        left.retain(|name| !name.to_string_lossy().ends_with("foreign"));
        left.sort();
        let expected = [
            "Intel_MPI_used",
            "mpich_shm_before",
            "mpich_shm_used",
            "other",
        ];
        assert_eq!(left, expected);
        let is_left = |name: &str| folder.join(name).exists();
        assert!(is_left("vader_segment.foreign") || is_left("foreign"));
    }
}
