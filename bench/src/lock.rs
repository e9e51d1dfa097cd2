// SPDX-License-Identifier: MIT OR Apache-2.0
//! A lock that allows one measurement at a time on a machine: two at the same time would slow each other down.

use std::fs::{File, TryLockError};
use std::path::{Path, PathBuf};

use crate::Error;

/// The lock, held during a measurement; dropping it releases the lock.
#[derive(Debug)]
pub struct Lock {
    _file: File,
}

/// The path of the lock file; the file stays there, empty.
#[must_use]
pub fn path() -> PathBuf {
    std::env::temp_dir().join("rmpi-measure.lock")
}

/// Takes the lock; if another measurement holds it, calls `waiting` once and waits.
///
/// # Errors
/// When the file cannot be opened or locked.
pub fn take(path: &Path, waiting: impl FnOnce()) -> Result<Lock, Error> {
    let what = || format!("cannot lock {}", path.display());
    // Another user's file can be locked too: a lock does not need write permission.
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
        let (sender, receiver) = std::sync::mpsc::channel();
        let second = std::thread::spawn(move || {
            take(&path_of_second, || sender.send(()).unwrap()).map(drop)
        });
        receiver.recv().unwrap();
        drop(first);
        second.join().unwrap().unwrap();
    }
}
