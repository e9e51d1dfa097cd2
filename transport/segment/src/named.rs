// SPDX-License-Identifier: MIT OR Apache-2.0
//! Makes a node segment on a system that forbids memory files: a file of `/dev/shm` (POSIX shared memory). It has a
//! name for a short time, until it is created and opened; then only the descriptor is used, which is passed to the
//! ranks.
//!
//! Disadvantages, compared with a memory file:
//! - If the process is killed in that short time, the file `rmpi-segment-…` is left behind.
//! - It cannot be sealed: if a process of the same user that has the descriptor truncates the file, processes that use
//!   it are killed (`SIGBUS`).
//! - The file system may be small (64 MiB in many containers). So all pages are allocated when the file is made, and
//!   there are no arenas: if the file system is too small, the result is an error here, not a signal at the first
//!   access.

use std::os::fd::OwnedFd;

use rustix::fs::{FallocateFlags, Mode, OFlags, fallocate, open, unlink};
use rustix::io::{Errno, retry_on_intr};
use shared_memory::{ShmemConf, ShmemError};

/// Makes a file of `bytes` zero bytes, which has no name any more.
pub(crate) fn make(bytes: u64) -> Result<OwnedFd, String> {
    let size = usize::try_from(bytes).map_err(|_| crate::describe_errno(Errno::NOMEM))?;
    let shared = loop {
        let name = format!("rmpi-segment-{:016x}", random()?);
        match ShmemConf::new().size(size).os_id(&name).create() {
            Ok(shared) => break shared,
            Err(ShmemError::MappingIdExists) => {}
            Err(error) => return Err(describe_shmem_error(&error)),
        }
    };
    let flags = OFlags::RDWR | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let file = open(
        format!("/dev/shm/{}", shared.get_os_id()),
        flags,
        Mode::empty(),
    );
    // The name is removed, whether opening the file has succeeded or not. `drop` would remove it too, except if the
    // descriptor is 0: hence `unlink`.
    let path = format!("/dev/shm/{}", shared.get_os_id());
    drop(shared);
    _ = unlink(path);
    let file = file.map_err(crate::describe_errno)?;
    let taken = retry_on_intr(|| fallocate(&file, FallocateFlags::empty(), 0, bytes));
    taken.map_err(|error| match error {
        Errno::NOSPC => format!(
            "/dev/shm is full or too small for {bytes} bytes: enlarge it (--shm-size of a container), allow memfd_create, or start fewer ranks"
        ),
        error => crate::describe_errno(error),
    })?;
    Ok(file)
}

/// The system's message for an error of crate `shared_memory`.
fn describe_shmem_error(error: &ShmemError) -> String {
    let number = match error {
        ShmemError::MapCreateFailed(number)
        | ShmemError::MapOpenFailed(number)
        | ShmemError::UnknownOsError(number) => i32::try_from(*number).ok(),
        _ => None,
    };
    number.map_or_else(
        || error.to_string(),
        |number| crate::describe_errno(Errno::from_raw_os_error(number)),
    )
}

fn random() -> Result<u64, String> {
    let mut bytes = [0; 8];
    let flags = rustix::rand::GetRandomFlags::empty();
    // A request for so few bytes is never answered in part.
    rustix::rand::getrandom(&mut bytes, flags).map_err(crate::describe_errno)?;
    Ok(u64::from_ne_bytes(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::fstat;

    #[test]
    fn named_segment_is_unlinked_and_fully_allocated() {
        let file = make(1 << 20).unwrap();
        let status = fstat(&file).unwrap();
        assert_eq!((status.st_nlink, status.st_size), (0, 1 << 20));
        assert!(status.st_blocks * 512 >= 1 << 20);
    }

    #[test]
    fn segment_larger_than_dev_shm_is_refused() {
        let message = make(1 << 45).unwrap_err();
        assert!(
            message.starts_with("/dev/shm is full or too small"),
            "{message}"
        );
    }
}
