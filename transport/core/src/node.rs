// SPDX-License-Identifier: MIT OR Apache-2.0
//! The node segment in this process: mapping what the launcher's daemon made, and who lives in it.
//!
//! # Safety
//! The one `mmap` of the crate. The mapping is shared, as long as the sealed file says and never undone, which is what
//! [`ring::Segment::attach`] asks for.
#![allow(unsafe_code)]

use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
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
    /// Which of them this process is.
    pub local_rank: u32,
    /// The peer behind each local rank, in order; this process among them.
    pub peers: Vec<Peer>,
    /// Number of the job.
    pub job: u64,
    /// The segment's file and its length: the ranks' arenas lie behind the segment.
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

    /// The local ranks of the others, and the peers behind them.
    pub(crate) fn others(&self) -> impl Iterator<Item = (u32, Peer)> + Clone {
        let all = (0..).zip(self.peers.iter().copied());
        all.filter(|(local, _)| *local != self.local_rank)
    }

    /// Maps the segment behind `file`, which `peers` share.
    ///
    /// # Errors
    /// When the file is no sealed segment of this job, or cannot be mapped.
    pub fn attach(
        file: BorrowedFd<'_>,
        job: u64,
        local_rank: u32,
        peers: Vec<Peer>,
    ) -> Result<Self, Error> {
        let local_size = u32::try_from(peers.len()).unwrap_or(u32::MAX);
        let file_bytes = sealed_length(file)?;
        let bytes = file_bytes.min(ring::layout::segment_bytes(
            local_size.min(ring::layout::MAX_LOCAL_RANKS),
        ));
        let head = ring::SegmentHead { job, local_size };
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
        // - stays so: never unmapped, and the file is sealed against shrinking (`sealed_length`).
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

/// Another descriptor of the same file, which a program that is started does not inherit.
fn own(file: BorrowedFd<'_>) -> Result<OwnedFd, Error> {
    let what = "duplicating the descriptor of the node segment";
    file.try_clone_to_owned()
        .map_err(|source| Error::System { what, source })
}

/// The length of a file that can neither shrink nor grow.
fn sealed_length(file: BorrowedFd<'_>) -> Result<u64, Error> {
    // SAFETY: F_GET_SEALS takes no argument and only reads the descriptor's state.
    let seals = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_GET_SEALS) };
    if seals < 0 || seals & libc::F_SEAL_SHRINK == 0 {
        return Err(Error::Segment(ring::SegmentError::NotASegment));
    }
    // SAFETY: an all-zero stat is a value of the type.
    let mut status: libc::stat = unsafe { std::mem::zeroed() };
    // SAFETY: the descriptor is open and `status` is writable.
    if unsafe { libc::fstat(file.as_raw_fd(), &raw mut status) } != 0 {
        return Err(Error::last("reading the size of the node segment"));
    }
    Ok(u64::try_from(status.st_size).unwrap_or(0))
}
