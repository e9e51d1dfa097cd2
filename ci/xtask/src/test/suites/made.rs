// SPDX-License-Identifier: MIT OR Apache-2.0
//! What was fetched and built is kept as long as nothing that it was made of changes.

use crate::process::seconds;
use crate::tree::{make_folder, read, target};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Instant;

/// The folder of a suite in the build folder. Unless it was made of just this, `make` fills it anew.
pub(super) fn made(
    suite: &str,
    of: &str,
    make: impl FnOnce(&Path) -> Result<(), String>,
) -> Result<PathBuf, String> {
    let home = target().join("suites").join(suite);
    let mark = home.join(".made-of");
    if read(&mark).is_ok_and(|made_of| made_of == of) {
        return Ok(home);
    }
    let start = Instant::now();
    if home.exists() {
        fs::remove_dir_all(&home).map_err(|why| format!("{}: {why}", home.display()))?;
    }
    for folder in ["tmp", "scratch"] {
        make_folder(&home.join(folder))?;
    }
    make(&home)?;
    fs::write(&mark, of).map_err(|why| format!("{}: {why}", mark.display()))?;
    println!("  fetched and built {suite} ({})", seconds(start.elapsed()));
    Ok(home)
}

/// The contents of some files and what the MPI under test shows to compilers.
pub(super) fn of(prefix: &Path, files: &[PathBuf]) -> Result<String, String> {
    let mut all = format!("{}\n", prefix.display());
    for file in files {
        all += &read(file)?;
    }
    Ok(all + &read(&prefix.join("include/mpi.h"))?)
}
