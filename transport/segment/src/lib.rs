// SPDX-License-Identifier: MIT OR Apache-2.0
//! Makes the memory that the ranks of a node share, the node segment. It is made by the node daemon of `rmpiexec`; in a
//! job of another launcher, by one rank for all ranks of its node; and by tests.
//!
//! The segment is an anonymous memory file (`memfd_create`), which the kernel frees when the last process that uses it
//! ends. Its size is sealed, since truncation by one rank would kill the others (`SIGBUS`). Crate `ring` defines its
//! layout, and the transport maps it. If a filter of system calls forbids memory files, a file of `/dev/shm` is used
//! (`named.rs`), which lacks some of these properties.
//!
//! **Knows** the head of the segment, and the limit of file size, which applies to memory files too.
//! **Never** maps the segment.
#![forbid(unsafe_code)]

mod named;

use std::os::fd::OwnedFd;

use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};
use rustix::io::Errno;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Makes an empty node segment for `local_size` ranks of a job, with an arena for each rank behind it: memory that the
/// rank allocates and all ranks can map. Each arena is at least as large as the machine's memory, since it is not known
/// how much the ranks need; untouched pages cost nothing. If the hard limit of file size is too small for the arenas,
/// or memory files are forbidden, the segment has no arenas. During the call the process's soft limit of file size may
/// be raised.
///
/// # Errors
/// A message, if the system provides no such memory, or the hard limit of file size is too small even without arenas.
pub fn make(job: u64, local_size: u32) -> Result<OwnedFd, String> {
    let least = ring::layout::segment_bytes(local_size);
    let memory = rustix::system::sysinfo();
    let memory = memory.totalram * u64::from(memory.mem_unit);
    let whole = ring::layout::file_bytes(local_size, memory.next_power_of_two());
    let limit = getrlimit(Resource::Fsize);
    let is_within = |bytes: u64, limit: Option<u64>| limit.is_none_or(|most| bytes <= most);
    let bytes = if is_within(whole, limit.maximum) {
        whole
    } else {
        least
    };
    if is_within(bytes, limit.current) {
        return fill(job, local_size, bytes);
    }
    if let Some(most) = limit.maximum.filter(|most| bytes > *most) {
        return Err(format!(
            "the ranks of this machine share {bytes} bytes of memory, which count as a file; the limit of file size is \
             {most} bytes: raise it (ulimit -Hf) or start fewer ranks"
        ));
    }
    // A write beyond the soft limit would kill the process with a signal.
    set_limit(Some(bytes), limit.maximum)?;
    let made = fill(job, local_size, bytes);
    set_limit(limit.current, limit.maximum)?;
    made
}

/// Makes an empty node segment for `local_size` ranks of a job, with an arena of `arena_bytes` bytes for each rank
/// behind it. If memory files are forbidden, the segment has no arenas. The limits of file size are not considered.
///
/// # Errors
/// A message, if the system provides no such memory.
pub fn make_with(job: u64, local_size: u32, arena_bytes: u64) -> Result<OwnedFd, String> {
    let bytes = ring::layout::file_bytes(local_size, arena_bytes);
    fill(job, local_size, bytes)
}

fn fill(job: u64, local_size: u32, bytes: u64) -> Result<OwnedFd, String> {
    let (bytes, file) = match memory_file(bytes) {
        Err(error) if is_refusal(error) => {
            let least = ring::layout::segment_bytes(local_size);
            (least, named::make(least))
        }
        made => (bytes, made.map_err(describe_errno)),
    };
    let filled = file.and_then(|file| {
        let head = ring::SegmentHead { job, local_size }.to_bytes();
        match rustix::io::pwrite(&file, &head, 0) {
            Ok(written) if written == head.len() => Ok(file),
            Ok(_) => Err(describe_errno(Errno::NOSPC)),
            Err(error) => Err(describe_errno(error)),
        }
    });
    filled.map_err(|message| format!("cannot make the node segment of {bytes} bytes: {message}"))
}

/// A memory file whose length cannot be changed.
fn memory_file(bytes: u64) -> Result<OwnedFd, Errno> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    // Some systems forbid memory files that can be executed; old kernels do not have the flag.
    let file = match memfd_create(NAME, flags | MemfdFlags::NOEXEC_SEAL) {
        Err(Errno::INVAL) => memfd_create(NAME, flags)?,
        made => made?,
    };
    ftruncate(&file, bytes)?;
    fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
    Ok(file)
}

/// The reason why this system provides no memory files; then the ranks of a node share a file of `/dev/shm`. `None`:
/// the system provides memory files.
#[must_use]
pub fn why_named() -> Option<String> {
    let error = memory_file(1).err().filter(|error| is_refusal(*error))?;
    Some(describe_errno(error))
}

/// Whether an error means that all memory files are forbidden, for example by a filter of system calls.
fn is_refusal(error: Errno) -> bool {
    matches!(error, Errno::PERM | Errno::ACCESS | Errno::NOSYS)
}

const NAME: &str = "rmpi-segment";

fn set_limit(current: Option<u64>, maximum: Option<u64>) -> Result<(), String> {
    let set = setrlimit(Resource::Fsize, Rlimit { current, maximum });
    set.map_err(|error| {
        format!(
            "cannot change the limit of file size: {}",
            describe_errno(error)
        )
    })
}

/// The system's message for an error, in lower case and without the error number.
fn describe_errno(error: Errno) -> String {
    let text = std::io::Error::from(error).to_string();
    let message = text.split(" (os error").next().unwrap_or(&text);
    message.to_lowercase()
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::{fcntl_get_seals, fstat};

    #[test]
    fn segment_has_its_header_and_a_sealed_size() {
        let file = make(9, 3).unwrap();
        let mut head = [0; 24];
        assert_eq!(rustix::io::pread(&file, &mut head, 0), Ok(24));
        let expected = ring::SegmentHead {
            job: 9,
            local_size: 3,
        };
        assert_eq!(head, expected.to_bytes());
        assert!(fcntl_get_seals(&file).unwrap().contains(SealFlags::SEAL));
        assert!(ftruncate(&file, 0).is_err());
        let bytes = u64::try_from(fstat(&file).unwrap().st_size).unwrap();
        assert!(bytes >= ring::layout::segment_bytes(3));
    }

    #[test]
    fn segment_creation_error_is_readable() {
        let message = make_with(9, 3, 1 << 62).unwrap_err();
        assert!(
            message.starts_with("cannot make the node segment of "),
            "{message}"
        );
        assert!(!message.contains("os error"), "{message}");
    }
}
