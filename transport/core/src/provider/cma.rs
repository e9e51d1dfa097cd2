// SPDX-License-Identifier: MIT OR Apache-2.0
//! Copies between the memories of two processes by the kernel, in one pass (`process_vm_readv`, `process_vm_writev`).
//!
//! # Safety
//! The local side of every call is leased memory or memory of this function's own; the remote side is only a number,
//! which the kernel checks in the other process's address space. A wrong number gives an error, never a fault here.
#![allow(unsafe_code)]

use crate::Lease;
use crate::mr::to_usize;

/// Reads a value of two words at `address` of process `pid`.
pub(super) fn read_words(pid: u32, address: u64) -> Option<[u64; 2]> {
    let mut words = [0u64; 2];
    let local = libc::iovec {
        iov_base: words.as_mut_ptr().cast(),
        iov_len: size_of_val(&words),
    };
    (transfer(Direction::Read, pid, local, address) == Some(size_of_val(&words))).then_some(words)
}

/// Whether process `pid` has ended: there is no memory any more that could be read, or written by it.
pub(super) fn is_gone(pid: u32) -> bool {
    let mut word = [0u64];
    let local = libc::iovec {
        iov_base: word.as_mut_ptr().cast(),
        iov_len: size_of_val(&word),
    };
    // Nothing lies at address 0: the answer is only which error.
    let nowhere = transfer(Direction::Read, pid, local, 0);
    nowhere.is_none() && std::io::Error::last_os_error().raw_os_error() == Some(libc::ESRCH)
}

/// Fills bytes `offset .. offset + bytes` of the lease from `address` of process `pid`; `false` if not all could be.
pub(super) fn read(pid: u32, lease: &mut Lease, offset: usize, bytes: usize, address: u64) -> bool {
    whole(
        Direction::Read,
        pid,
        lease.address() + offset as u64,
        bytes,
        address,
    )
}

/// Writes bytes `offset .. offset + bytes` of the lease to `address` of process `pid`.
pub(super) fn write(pid: u32, lease: &Lease, offset: usize, bytes: usize, address: u64) -> bool {
    whole(
        Direction::Write,
        pid,
        lease.address() + offset as u64,
        bytes,
        address,
    )
}

/// Writes `bytes` bytes at `source` of this process, which this process offered for reading, to `target` of `pid`.
/// `source` may be any number: the kernel answers with an error if it is no memory.
pub(super) fn write_own(pid: u32, source: u64, bytes: usize, target: u64) -> bool {
    whole(Direction::Write, pid, source, bytes, target)
}

#[derive(Clone, Copy)]
enum Direction {
    Read,
    Write,
}

fn whole(direction: Direction, pid: u32, local: u64, bytes: usize, remote: u64) -> bool {
    let mut done = 0;
    while done < bytes {
        let base = std::ptr::null_mut::<u8>().with_addr(to_usize(local + done as u64));
        let vector = libc::iovec {
            iov_base: base.cast(),
            iov_len: bytes - done,
        };
        match transfer(direction, pid, vector, remote + done as u64) {
            // No progress is an error: a loop on it would spin for ever.
            None | Some(0) => return false,
            Some(moved) => done += moved,
        }
    }
    true
}

fn transfer(direction: Direction, pid: u32, local: libc::iovec, remote: u64) -> Option<usize> {
    let base = std::ptr::null_mut::<u8>().with_addr(to_usize(remote));
    let there = libc::iovec {
        iov_base: base.cast(),
        iov_len: local.iov_len,
    };
    let pid = i32::try_from(pid).ok()?;
    let moved = match direction {
        // SAFETY: the kernel checks both ranges and answers EFAULT; the local one is leased for writing (module head).
        Direction::Read => unsafe {
            libc::process_vm_readv(pid, &raw const local, 1, &raw const there, 1, 0)
        },
        // SAFETY: the kernel checks both ranges; the local one is only read.
        Direction::Write => unsafe {
            libc::process_vm_writev(pid, &raw const local, 1, &raw const there, 1, 0)
        },
    };
    usize::try_from(moved).ok()
}
