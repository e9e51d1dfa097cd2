// SPDX-License-Identifier: MIT OR Apache-2.0
//! Memory for tests: buffers between guard bytes, words for atomic operations, and node segments.
//!
//! # Safety
//! A [`Guarded`] or an [`AtomicWords`] lends parts of memory that it owns; the test keeps it until all work with that
//! memory has completed. A [`SegmentMapping`] is written byte by byte, as by a peer that violates the protocol, and
//! never borrowed. Descriptors are owned by their creators.

use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

use transport::{Config, Fabric, Lease, Node, Peer, RemoteKey};

const GUARD_BYTES: usize = 4096;
const GUARD: u8 = 0xD7;

/// A buffer that detects writes beyond its bounds.
pub struct Guarded {
    all: Vec<u8>,
    bytes: usize,
}

impl Guarded {
    pub fn new(bytes: usize) -> Self {
        let mut all = vec![GUARD; bytes + 2 * GUARD_BYTES];
        all[GUARD_BYTES..][..bytes].fill(0);
        Self { all, bytes }
    }

    pub fn of(content: &[u8]) -> Self {
        let mut buffer = Self::new(content.len());
        buffer.bytes_mut().copy_from_slice(content);
        buffer
    }

    pub fn bytes(&self) -> &[u8] {
        &self.all[GUARD_BYTES..][..self.bytes]
    }

    pub fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.all[GUARD_BYTES..][..self.bytes]
    }

    /// A lease on a part of the buffer. The caller waits until the work with the lease has completed, or keeps the
    /// buffer until the fabric is dropped.
    pub fn lease(&mut self, offset: usize, bytes: usize) -> Lease {
        let base = NonNull::from(&mut self.bytes_mut()[offset..][..bytes]).cast();
        // SAFETY: the part is within the buffer (checked by the slice). Tests keep the buffer until the work has
        // completed, and do not access the part until then.
        unsafe { Lease::new(base, bytes) }
    }

    /// A key with which `peer` may access the whole buffer.
    pub fn export(&mut self, fabric: &mut Fabric, peer: u32) -> RemoteKey {
        let bytes = self.bytes;
        let address = self.lease(0, bytes).address();
        fabric.export(Peer(peer), address, bytes as u64)
    }

    pub fn assert_guards(&self) {
        let (front, rest) = self.all.split_at(GUARD_BYTES);
        let back = &rest[self.bytes..];
        assert!(
            is_all(front, GUARD) && is_all(back, GUARD),
            "bytes beside a buffer of {} bytes were overwritten",
            self.bytes
        );
    }
}

/// Words for atomic operations of peers: in memory that the fabric allocates, if it can.
pub struct AtomicWords {
    place: NonNull<u64>,
    count: usize,
    /// Owns the memory, if the fabric has not allocated it.
    _own: Option<Box<[u64]>>,
}

impl AtomicWords {
    pub fn new(fabric: &mut Fabric, count: usize) -> Self {
        if let Some(place) = fabric.allocate(8 * count) {
            let (place, _own) = (place.cast(), None);
            return Self { place, count, _own };
        }
        let mut own = vec![0; count].into_boxed_slice();
        let place = NonNull::from(&mut own[..]).cast();
        let _own = Some(own);
        Self { place, count, _own }
    }

    pub fn export(&self, fabric: &mut Fabric, peer: u32) -> RemoteKey {
        let address = self.place.as_ptr().expose_provenance() as u64;
        fabric.export(Peer(peer), address, 8 * self.count as u64)
    }

    /// The current value of a word.
    pub fn get(&self, index: usize) -> u64 {
        assert!(index < self.count);
        // SAFETY: the index is less than the number of words.
        let word = unsafe { self.place.add(index) };
        // SAFETY: the word is aligned, and mapped as long as the fabric or the box exists; it is only modified
        // atomically.
        unsafe { AtomicU64::from_ptr(word.as_ptr()) }.load(Ordering::SeqCst)
    }
}

/// Whether all bytes are `value`. The function makes one comparison of slices, since tests run without optimisation.
pub fn is_all(bytes: &[u8], value: u8) -> bool {
    match bytes {
        [] => true,
        [first, rest @ ..] => *first == value && *rest == bytes[..rest.len()],
    }
}

impl Drop for Guarded {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            self.assert_guards();
        }
    }
}

/// A sealed memory file with an empty node segment for `ranks` ranks. It is inherited across an exec.
pub fn segment_file(ranks: u32, job: u64) -> OwnedFd {
    segment_file_with(ranks, job, 0)
}

/// A sealed memory file with an empty node segment for `ranks` ranks, and an arena of `arena_bytes` bytes for each
/// rank. It is inherited across an exec.
pub fn segment_file_with(ranks: u32, job: u64, arena_bytes: u64) -> OwnedFd {
    let file = node_segment::make_with(job, ranks, arena_bytes).unwrap();
    // SAFETY: an open descriptor and an integer.
    let kept = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_SETFD, 0) };
    assert_eq!(kept, 0);
    file
}

/// Another mapping of a node segment.
pub fn attach(file: &OwnedFd, job: u64, me: u32, ranks: u32) -> Node {
    attach_as(file, job, me, (0..ranks).map(Peer).collect())
}

/// Another mapping of a node segment, for a process that uses `peers` as the numbers of the segment's ranks.
pub fn attach_as(file: &OwnedFd, job: u64, me: u32, peers: Vec<Peer>) -> Node {
    Node::attach(file.as_fd(), job, me, peers).unwrap()
}

/// The fabric of one rank on a node segment.
pub fn open(file: &OwnedFd, job: u64, me: u32, ranks: u32) -> Fabric {
    Fabric::open(Config {
        me: Peer(me),
        peers: ranks,
        node: Some(attach(file, job, me, ranks)),
        ..Config::alone()
    })
    .unwrap()
}

/// A raw view of a whole segment, for tests of peers that violate the protocol.
pub struct SegmentMapping {
    base: NonNull<u8>,
    bytes: usize,
}

impl SegmentMapping {
    pub fn of(file: &OwnedFd) -> Self {
        // SAFETY: an all-zero stat is a value of the type.
        let mut status: libc::stat = unsafe { std::mem::zeroed() };
        // SAFETY: the descriptor is open and `status` is writable.
        assert_eq!(unsafe { libc::fstat(file.as_raw_fd(), &raw mut status) }, 0);
        let bytes = usize::try_from(status.st_size).unwrap();
        // SAFETY: a new shared mapping at an address chosen by the kernel.
        let base = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                bytes,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED,
                file.as_raw_fd(),
                0,
            )
        };
        assert_ne!(base, libc::MAP_FAILED);
        let base = NonNull::new(base.cast()).unwrap();
        Self { base, bytes }
    }

    pub fn bytes(&self) -> usize {
        self.bytes
    }

    pub fn write(&self, offset: usize, content: &[u8]) {
        assert!(offset + content.len() <= self.bytes);
        for (at, byte) in (offset..).zip(content) {
            // SAFETY: the byte is within the mapping (asserted).
            let place = unsafe { self.base.add(at) };
            // SAFETY: writable memory of this mapping. Other mappings access it at the same time: that is what the
            // tests are for.
            unsafe { place.write_volatile(*byte) };
        }
    }
}

impl Drop for SegmentMapping {
    fn drop(&mut self) {
        // SAFETY: this value owns the mapping, and nothing refers to it any more.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.bytes) };
    }
}

/// A descriptor that was inherited from the process that started this one.
pub fn inherited(number: i32) -> OwnedFd {
    // SAFETY: the parent has left this descriptor open for this process, which takes it only once.
    unsafe { OwnedFd::from_raw_fd(number) }
}

pub fn number_of(file: &OwnedFd) -> i32 {
    file.as_raw_fd()
}

/// Whether the kernel allows this process to use `process_vm_readv` on itself.
pub fn can_reach_own_process() -> bool {
    let (source, mut target) = ([7u8; 16], [0u8; 16]);
    let there = libc::iovec {
        iov_base: source.as_ptr().cast_mut().cast(),
        iov_len: 16,
    };
    let here = libc::iovec {
        iov_base: target.as_mut_ptr().cast(),
        iov_len: 16,
    };
    let me = std::process::id().cast_signed();
    // SAFETY: both vectors describe memory of this function; the destination is borrowed mutably.
    let moved = unsafe { libc::process_vm_readv(me, &raw const here, 1, &raw const there, 1, 0) };
    moved == 16 && source == target
}
