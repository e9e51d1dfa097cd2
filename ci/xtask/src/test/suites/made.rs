// SPDX-License-Identifier: MIT OR Apache-2.0
//! Keeps what was fetched and built until one of its inputs changes.

use crate::process::seconds;
use crate::tree::{make_folder, read, target};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Instant;

/// The folder of a suite in the build folder. If it was not made from exactly `of`, `make` fills it again.
pub(super) fn made(
    suite: &str,
    of: &str,
    make: impl FnOnce(&Path) -> Result<(), String>,
) -> Result<PathBuf, String> {
    let folder = target().join("suites").join(suite);
    let mark = folder.join(".made-of");
    if read(&mark).is_ok_and(|made_of| made_of == of) {
        return Ok(folder);
    }
    let start = Instant::now();
    if folder.exists() {
        fs::remove_dir_all(&folder).map_err(|why| format!("{}: {why}", folder.display()))?;
    }
    for name in ["tmp", "scratch"] {
        make_folder(&folder.join(name))?;
    }
    make(&folder)?;
    fs::write(&mark, of).map_err(|why| format!("{}: {why}", mark.display()))?;
    println!("  fetched and built {suite} ({})", seconds(start.elapsed()));
    Ok(folder)
}

/// The text for [`made`]: the path of the MPI under test, the contents of some files, and `mpi.h`.
pub(super) fn of(prefix: &Path, files: &[PathBuf]) -> Result<String, String> {
    let mut all = format!("{}\n", prefix.display());
    for file in files {
        all += &read(file)?;
    }
    Ok(all + &read(&prefix.join("include/mpi.h"))?)
}
