// SPDX-License-Identifier: MIT OR Apache-2.0
#![allow(unsafe_code)]
//! Memory shared between the measuring processes, and the system calls that have no safe wrapper elsewhere.
//!
//! # Safety
//! This file guards the mapping of an [`Arena`]: its lifetime (invariant A3), its bounds, and that the mapping is
//! reached only as atomics through references (A1) or as bytes through bounded copies (A2). Every exported function is
//! safe to call.
//!
//! - **A1**: the first `line_count` lines of the mapping are reached only as [`CacheLine`]s, which has only atomic
//!   fields.
//! - **A2**: the rest (the bulk) is reached only through [`Arena::write_bulk`] and [`Arena::read_bulk`], which copy; no
//!   reference into it is ever made, so a write of the other process races with no reference.
//! - **A3**: the mapping lives as long as the arena, and the memfd behind it never shrinks: its descriptor is private
//!   to this module, which sets its size once, before another process can learn its path.

use nix::libc;
use std::ffi::{c_long, c_ulong};
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64};

use nix::sys::memfd::{MFdFlags, memfd_create};

/// One cache line: a flag, payload and a futex word.
#[repr(C, align(64))]
#[derive(Debug, Default)]
pub(super) struct CacheLine {
    /// The flag: stored last by the writer, with Release.
    pub(super) seq: AtomicU64,
    /// Payload words beside the flag.
    pub(super) words: [AtomicU64; 6],
    /// The futex word that a process sleeps on.
    pub(super) sleep: AtomicU32,
    pad: AtomicU32,
}

const _: () = assert!(size_of::<CacheLine>() == 64);

/// A block of memory that several processes map: lines first, bytes behind them.
#[derive(Debug)]
pub(super) struct Arena {
    file: File,
    base: NonNull<u8>,
    line_count: usize,
    bulk_bytes: usize,
}

impl Arena {
    /// Makes a new arena, all zero, in memory that vanishes with the last process that maps it.
    pub(super) fn create(line_count: usize, bulk_bytes: usize) -> io::Result<Self> {
        let file = File::from(memfd_create("rmpi-limits", MFdFlags::MFD_CLOEXEC)?);
        file.set_len((line_count * size_of::<CacheLine>() + bulk_bytes) as u64)?;
        Self::map(file, line_count, bulk_bytes)
    }

    /// Opens another process's arena by the path that [`Arena::path`] returned in that process.
    pub(super) fn open(path: &Path, line_count: usize) -> io::Result<Self> {
        let file = File::options().read(true).write(true).open(path)?;
        let bytes = usize::try_from(file.metadata()?.len()).map_err(io::Error::other)?;
        let bulk_bytes = bytes
            .checked_sub(line_count * size_of::<CacheLine>())
            .ok_or_else(|| io::Error::other("the shared memory is smaller than its lines"))?;
        Self::map(file, line_count, bulk_bytes)
    }

    /// The path by which a child process opens this arena while this process is running.
    pub(super) fn path(&self) -> String {
        format!("/proc/{}/fd/{}", std::process::id(), self.file.as_raw_fd())
    }

    fn map(file: File, line_count: usize, bulk_bytes: usize) -> io::Result<Self> {
        let bytes = line_count * size_of::<CacheLine>() + bulk_bytes;
        // SAFETY:
        // - no address is requested, so no existing mapping is replaced.
        // - the descriptor is open for reading and writing; a bad length is an error return, not undefined behaviour.
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
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let base = NonNull::new(base.cast())
            .ok_or_else(|| io::Error::other("the kernel mapped shared memory at address 0"))?;
        Ok(Self {
            file,
            base,
            line_count,
            bulk_bytes,
        })
    }

    /// The lines, shared with every process of the team.
    pub(super) fn lines(&self) -> &[CacheLine] {
        let first = self.base.cast::<CacheLine>();
        // SAFETY:
        // - non-null, aligned: mmap returns a page; in bounds: the mapping begins with `line_count` lines (`map`).
        // - initialised: the file was all zero and atomics accept every bit pattern.
        // - aliasing: A1, only atomics inside, so other processes may write; lifetime: A3, borrowed from `self`.
        unsafe { std::slice::from_raw_parts(first.as_ptr(), self.line_count) }
    }

    /// Copies `bytes` into the bulk at `offset`.
    pub(super) fn write_bulk(&self, offset: usize, bytes: &[u8]) {
        let to = self.bulk(offset, bytes.len());
        // SAFETY:
        // - `to` is valid for `bytes.len()` writes: `bulk` checked the range against the mapping.
        // - not overlapping: a slice of private memory never lies in the mapping (A2).
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), to, bytes.len()) };
    }

    /// Copies from the bulk at `offset` into `bytes`.
    pub(super) fn read_bulk(&self, offset: usize, bytes: &mut [u8]) {
        let from = self.bulk(offset, bytes.len());
        // SAFETY:
        // - `from` is valid for `bytes.len()` reads: `bulk` checked the range against the mapping.
        // - not overlapping: a slice of private memory never lies in the mapping (A2).
        unsafe { std::ptr::copy_nonoverlapping(from, bytes.as_mut_ptr(), bytes.len()) };
    }

    fn bulk(&self, offset: usize, count: usize) -> *mut u8 {
        let end = offset.checked_add(count);
        assert!(
            end.is_some_and(|end| end <= self.bulk_bytes),
            "{count} bytes at {offset} are outside the {} shared bytes",
            self.bulk_bytes
        );
        let start = self.line_count * size_of::<CacheLine>() + offset;
        // SAFETY: `start` is at most the mapping's length, by the assertion above, so it stays in the same allocation.
        unsafe { self.base.as_ptr().add(start) }
    }
}

impl Drop for Arena {
    fn drop(&mut self) {
        let bytes = self.line_count * size_of::<CacheLine>() + self.bulk_bytes;
        // SAFETY: `map` made exactly this mapping, and no reference into it outlives `self` (A1, A2).
        unsafe { libc::munmap(self.base.as_ptr().cast(), bytes) };
    }
}

/// If `word` still holds `value`, sleeps until a wake-up, for at most one second. May return early (spuriously).
pub(super) fn futex_wait(word: &AtomicU32, value: u32) {
    let second = libc::timespec {
        tv_sec: 1,
        tv_nsec: 0,
    };
    // SAFETY:
    // - `word` is a live, aligned 32-bit word for the whole call, because it is borrowed.
    // - the time-out is a valid timespec that outlives the call; the remaining arguments of `futex` are not read by
    //   this operation.
    unsafe {
        libc::syscall(
            libc::SYS_futex,
            word.as_ptr(),
            c_long::from(libc::FUTEX_WAIT),
            value,
            &raw const second,
        )
    };
}

/// Wakes at most `count` sleepers on `word`.
pub(super) fn futex_wake(word: &AtomicU32, count: i32) {
    // SAFETY: `word` is a live, aligned 32-bit word; waking reads nothing and writes nothing through it.
    unsafe {
        libc::syscall(
            libc::SYS_futex,
            word.as_ptr(),
            c_long::from(libc::FUTEX_WAKE),
            count,
        )
    };
}

/// Allows every process of this user to read and write this process's memory, even if the kernel (Yama) restricts that
/// to ancestors.
pub(super) fn allow_tracing() {
    // SAFETY: this option takes one integer and no pointer; a kernel without the option returns an error.
    unsafe {
        libc::prctl(
            libc::PR_SET_PTRACER,
            libc::PR_SET_PTRACER_ANY,
            0 as c_ulong,
            0,
            0,
        )
    };
}
