// SPDX-License-Identifier: MIT OR Apache-2.0
//! The node segment in this process: maps the file that the launcher's daemon made, and lists the ranks that share it.
//!
//! # Safety
//! The mapping is shared, has the length of the file, and is never undone, as [`ring::Segment::attach`] requires.
#![allow(unsafe_code)]

use std::fs::File;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::ptr::NonNull;
use std::sync::Arc;

use crate::arena::Arenas;
use crate::{Error, Peer};
pub use ring::Segment;

/// The ranks of this node and their segment.
#[derive(Clone, Debug)]
pub struct Node {
    /// The mapped segment.
    pub segment: Segment,
    /// The local rank of this process.
    pub local_rank: u32,
    /// The peer with each local rank, in order, this process included.
    pub peers: Vec<Peer>,
    /// Number of the job.
    pub job: u64,
    /// `file`: the file that contains the segment and, behind it, the ranks' arenas. `file_bytes`: length of the whole
    /// file.
    pub(crate) file: Arc<OwnedFd>,
    pub(crate) file_bytes: u64,
}

impl Node {
    /// The arenas behind the segment.
    pub(crate) fn arenas(&self) -> Arenas {
        let ranks = self.segment.local_size();
        let first = ring::layout::segment_bytes(ranks);
        let file = Arc::clone(&self.file);
        Arenas::new(file, first, self.file_bytes, ranks, self.local_rank)
    }

    /// The local rank and the peer number of each other process.
    pub(crate) fn others(&self) -> impl Iterator<Item = (u32, Peer)> + Clone {
        let all = (0..).zip(self.peers.iter().copied());
        all.filter(|(local, _)| *local != self.local_rank)
    }

    /// Maps the segment in `file`, which the processes `peers` share.
    ///
    /// # Errors
    /// When the file is no segment of this job, or cannot be mapped.
    pub fn attach(
        file: BorrowedFd<'_>,
        job: u64,
        local_rank: u32,
        peers: Vec<Peer>,
    ) -> Result<Self, Error> {
        let local_size = u32::try_from(peers.len()).unwrap_or(u32::MAX);
        let head = ring::SegmentHead { job, local_size };
        let file_bytes = length(file, head)?;
        let bytes = file_bytes.min(ring::layout::segment_bytes(
            local_size.min(ring::layout::MAX_LOCAL_RANKS),
        ));
        // SAFETY: a new shared mapping of an open file at an address that the system chooses.
        let base = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                usize::try_from(bytes).unwrap_or(0),
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED,
                file.as_raw_fd(),
                0,
            )
        };
        let base = match NonNull::new(base.cast::<u8>()) {
            Some(base) if base.as_ptr().cast() != libc::MAP_FAILED => base,
            _ => {
                let source = std::io::Error::last_os_error();
                return Err(Error::Mapping { bytes, source });
            }
        };
        // SAFETY:
        // - page-aligned, readable, writable, `bytes` long: just mapped so.
        // - stays so: never unmapped. The file is sealed against shrinking. If it is of a kind that cannot be sealed
        //   (`is_segment`), a process of this user may truncate it; an access then ends this process by a signal, which
        //   is no access to other memory.
        let segment = unsafe { Segment::attach(base, bytes, head) }.map_err(Error::Segment)?;
        Ok(Self {
            segment,
            local_rank,
            peers,
            job,
            file: Arc::new(own(file)?),
            file_bytes,
        })
    }
}

/// Duplicates the descriptor; a spawned program does not inherit the copy.
fn own(file: BorrowedFd<'_>) -> Result<OwnedFd, Error> {
    let what = "duplicating the descriptor of the node segment";
    file.try_clone_to_owned()
        .map_err(|source| Error::System { what, source })
}

/// Whether a file can be the node segment of this job: a memory file that can neither shrink nor grow, or, if the
/// system has no such files, an unlinked file of this user that starts with this job's segment head.
#[must_use]
pub fn is_segment(file: BorrowedFd<'_>, job: u64, local_size: u32) -> bool {
    is_sealed(file) || is_nameless(file, ring::SegmentHead { job, local_size })
}

fn is_sealed(file: BorrowedFd<'_>) -> bool {
    // SAFETY: F_GET_SEALS takes no argument and only reads the descriptor's state.
    let seals = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_GET_SEALS) };
    seals >= 0 && seals & libc::F_SEAL_SHRINK != 0
}

fn is_nameless(file: BorrowedFd<'_>, head: ring::SegmentHead) -> bool {
    let Ok(file) = file.try_clone_to_owned().map(File::from) else {
        return false;
    };
    // SAFETY: takes no argument and always succeeds.
    let user = unsafe { libc::geteuid() };
    let is_ours = file
        .metadata()
        .is_ok_and(|status| status.is_file() && status.nlink() == 0 && status.uid() == user);
    let mut begins = [0; 24];
    is_ours && file.read_exact_at(&mut begins, 0).is_ok() && begins == head.to_bytes()
}

/// Length of a file that passes [`is_segment`].
fn length(file: BorrowedFd<'_>, head: ring::SegmentHead) -> Result<u64, Error> {
    if !is_segment(file, head.job, head.local_size) {
        return Err(Error::Segment(ring::SegmentError::NotASegment));
    }
    let status = own(file).and_then(|file| {
        let what = "reading the size of the node segment";
        let read = File::from(file).metadata();
        read.map_err(|source| Error::System { what, source })
    })?;
    Ok(status.len())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsFd;

    #[test]
    fn files_with_a_name_or_another_head_are_no_segment() {
        let name = format!("rmpi-node-test-{}", std::process::id());
        let path = std::env::temp_dir().join(name);
        let mut options = File::options();
        let file = options.read(true).write(true).create(true).truncate(true);
        let file = file.open(&path).unwrap();
        let head = ring::SegmentHead {
            job: 7,
            local_size: 2,
        };
        file.write_all_at(&head.to_bytes(), 0).unwrap();
        assert!(!is_segment(file.as_fd(), 7, 2));
        std::fs::remove_file(&path).unwrap();
        assert!(is_segment(file.as_fd(), 7, 2));
        assert!(!is_segment(file.as_fd(), 8, 2) && !is_segment(file.as_fd(), 7, 3));
        file.set_len(3).unwrap();
        assert!(!is_segment(file.as_fd(), 7, 2));
    }
}
