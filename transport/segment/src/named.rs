// SPDX-License-Identifier: MIT OR Apache-2.0
//! Makes a node segment where the system refuses memory files: a file of `/dev/shm` (POSIX shared memory), which has a name for the
//! moment between its creation and the descriptor that is passed to the ranks.
//!
//! What a memory file does not have:
//! - Killed in that moment, the maker leaves the file `rmpi-segment-…` behind, of the whole size.
//! - It cannot be sealed: a process of the same user that has the descriptor and cuts the file ends those that use it (`SIGBUS`).
//! - The file system may be small (64 MiB in many containers). Its pages are therefore taken at once, and there are no arenas: who
//!   cannot have them gets an error here, not a signal at the first touch.

use std::os::fd::OwnedFd;

use rustix::fs::{FallocateFlags, Mode, OFlags, fallocate, open, unlink};
use rustix::io::{Errno, retry_on_intr};
use shared_memory::{ShmemConf, ShmemError};

/// A file of this many bytes, all of them zero, without a name.
pub(crate) fn make(bytes: u64) -> Result<OwnedFd, String> {
    let size = usize::try_from(bytes).map_err(|_| crate::in_words(Errno::NOMEM))?;
    let shared = loop {
        let name = format!("rmpi-segment-{:016x}", random()?);
        match ShmemConf::new().size(size).os_id(&name).create() {
            Ok(shared) => break shared,
            Err(ShmemError::MappingIdExists) => {}
            Err(error) => return Err(words_of(&error)),
        }
    };
    let flags = OFlags::RDWR | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let file = open(
        format!("/dev/shm/{}", shared.get_os_id()),
        flags,
        Mode::empty(),
    );
    // Its name is gone then, whatever came of it. The crate leaves it where the descriptor is 0.
    let path = format!("/dev/shm/{}", shared.get_os_id());
    drop(shared);
    _ = unlink(path);
    let file = file.map_err(crate::in_words)?;
    let taken = retry_on_intr(|| fallocate(&file, FallocateFlags::empty(), 0, bytes));
    taken.map_err(|error| match error {
        Errno::NOSPC => format!(
            "/dev/shm is full or too small for {bytes} bytes: enlarge it (--shm-size of a container), allow memfd_create, or start fewer ranks"
        ),
        error => crate::in_words(error),
    })?;
    Ok(file)
}

/// The system's message for an error.
fn words_of(error: &ShmemError) -> String {
    let number = match error {
        ShmemError::MapCreateFailed(number)
        | ShmemError::MapOpenFailed(number)
        | ShmemError::UnknownOsError(number) => i32::try_from(*number).ok(),
        _ => None,
    };
    number.map_or_else(
        || error.to_string(),
        |number| crate::in_words(Errno::from_raw_os_error(number)),
    )
}

fn random() -> Result<u64, String> {
    let mut bytes = [0; 8];
    let flags = rustix::rand::GetRandomFlags::empty();
    // So few bytes come whole.
    rustix::rand::getrandom(&mut bytes, flags).map_err(crate::in_words)?;
    Ok(u64::from_ne_bytes(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::fstat;

    #[test]
    fn a_named_segment_has_no_name_any_more_and_all_of_its_pages() {
        let file = make(1 << 20).unwrap();
        let status = fstat(&file).unwrap();
        assert_eq!((status.st_nlink, status.st_size), (0, 1 << 20));
        assert!(status.st_blocks * 512 >= 1 << 20);
    }

    #[test]
    fn one_that_does_not_fit_is_refused_and_leaves_nothing() {
        let words = make(1 << 45).unwrap_err();
        assert!(
            words.starts_with("/dev/shm is full or too small"),
            "{words}"
        );
    }
}
