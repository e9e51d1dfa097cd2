// SPDX-License-Identifier: MIT OR Apache-2.0
//! One measurement at a time on a machine: two at once would measure each other.

use std::fs::{File, TryLockError};
use std::path::{Path, PathBuf};

use crate::Error;

/// Held while measuring; dropping it lets the next one in.
#[derive(Debug)]
pub struct Lock {
    _file: File,
}

/// Where the lock lies; the file is left there, empty.
#[must_use]
pub fn path() -> PathBuf {
    std::env::temp_dir().join("rmpi-measure.lock")
}

/// Takes the lock; where another measurement holds it, calls `waiting` once and waits.
///
/// # Errors
/// When the file cannot be opened.
pub fn take(path: &Path, waiting: impl FnOnce()) -> Result<Lock, Error> {
    let what = || format!("cannot lock {}", path.display());
    // Another user's file can be locked too: that needs no right to write it.
    let file = File::options()
        .create(true)
        .append(true)
        .open(path)
        .or_else(|_| File::open(path))
        .map_err(|e| Error::io(what(), e))?;
    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => {
            waiting();
            file.lock().map_err(|e| Error::io(what(), e))?;
        }
        Err(TryLockError::Error(error)) => return Err(Error::io(what(), error)),
    }
    Ok(Lock { _file: file })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    #[test]
    fn the_second_waits_for_the_first() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("lock");
        let waited = Cell::new(false);
        let first = take(&path, || waited.set(true)).unwrap();
        assert!(!waited.get());
        let path_of_second = path.clone();
        let (tell, hear) = std::sync::mpsc::channel();
        let second =
            std::thread::spawn(move || take(&path_of_second, || tell.send(()).unwrap()).map(drop));
        hear.recv().unwrap();
        drop(first);
        second.join().unwrap().unwrap();
    }
}
