// SPDX-License-Identifier: MIT OR Apache-2.0
//! Copies between the memories of two processes by the kernel, in one pass (`process_vm_readv`, `process_vm_writev`).
//!
//! The kernel copies by `rep movsb`. On some processors this instruction [is slow](ring::copy) for certain distances
//! between the two addresses: it reaches a quarter of the usual speed. At such distances data go through a buffer of
//! this thread at a better distance: two passes, the second in the cache. Whether this processor is affected is
//! measured on first use.
//!
//! # Safety
//! The local side of every call is leased memory or local memory of the calling function; the remote side is only a
//! number, which the kernel checks in the other process's address space. A wrong number gives an error, never a fault
//! here.
#![allow(unsafe_code)]

use std::cell::RefCell;
use std::ptr::NonNull;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use ring::copy::{PAGE_BYTES, is_slow};

use crate::Lease;
use crate::mr::to_usize;

/// Reads a value of two words at `address` of process `pid`.
pub(super) fn read_words(pid: u32, address: u64) -> Option<[u64; 2]> {
    let mut words = [0u64; 2];
    let local = libc::iovec {
        iov_base: words.as_mut_ptr().cast(),
        iov_len: size_of_val(&words),
    };
    (transfer(CmaDirection::Read, pid, local, address) == Some(size_of_val(&words)))
        .then_some(words)
}

/// Whether process `pid` has ended. If so, it writes to no memory any more, and its own memory can no longer be read.
pub(super) fn has_ended(pid: u32) -> bool {
    let mut word = [0u64];
    let local = libc::iovec {
        iov_base: word.as_mut_ptr().cast(),
        iov_len: size_of_val(&word),
    };
    // Nothing is mapped at address 0, so the call fails; its error shows whether the process exists.
    let nowhere = transfer(CmaDirection::Read, pid, local, 0);
    nowhere.is_none() && std::io::Error::last_os_error().raw_os_error() == Some(libc::ESRCH)
}

/// Fills bytes `offset .. offset + bytes` of the lease from `address` of process `pid`; `false` if not all could be
/// read.
pub(super) fn read(pid: u32, lease: &mut Lease, offset: usize, bytes: usize, address: u64) -> bool {
    let local = lease.address() + offset as u64;
    if !is_slow_here(address, local, bytes) {
        return whole(CmaDirection::Read, pid, local, bytes, address);
    }
    let through_bounce = through_bounce(bytes, address, |bounce, done| {
        let there = address + done as u64;
        let is_read = whole(
            CmaDirection::Read,
            pid,
            address_of(bounce),
            bounce.len(),
            there,
        );
        if is_read {
            // SAFETY: memory of this thread.
            unsafe { lease.fill_from(offset + done, NonNull::from(&*bounce).cast(), bounce.len()) };
        }
        is_read
    });
    through_bounce.unwrap_or_else(|| whole(CmaDirection::Read, pid, local, bytes, address))
}

/// Writes bytes `offset .. offset + bytes` of the lease to `address` of process `pid`.
pub(super) fn write(pid: u32, lease: &Lease, offset: usize, bytes: usize, address: u64) -> bool {
    write_own(pid, lease.address() + offset as u64, bytes, address)
}

/// Writes `bytes` bytes from address `source` of this process, which has offered them for reading, to address `target`
/// of process `pid`. `source` may be any number: if nothing is mapped there, the kernel returns an error, and the
/// result is `false`.
pub(super) fn write_own(pid: u32, source: u64, bytes: usize, target: u64) -> bool {
    if !is_slow_here(source, target, bytes) {
        return whole(CmaDirection::Write, pid, source, bytes, target);
    }
    let through_bounce = through_bounce(bytes, source, |bounce, done| {
        let (from, to) = (source + done as u64, target + done as u64);
        whole(
            CmaDirection::Read,
            std::process::id(),
            address_of(bounce),
            bounce.len(),
            from,
        ) && whole(
            CmaDirection::Write,
            pid,
            address_of(bounce),
            bounce.len(),
            to,
        )
    });
    through_bounce.unwrap_or_else(|| whole(CmaDirection::Write, pid, source, bytes, target))
}

/// Whether a copy by the kernel between these addresses would be slow, on this processor.
fn is_slow_here(source: u64, target: u64, bytes: usize) -> bool {
    static MEASURED: OnceLock<bool> = OnceLock::new();
    is_slow(to_usize(source), to_usize(target), bytes) && *MEASURED.get_or_init(has_slow_distances)
}

/// Measures, in this process's own memory, whether this processor copies slowly at such distances. Takes some 50 µs.
fn has_slow_distances() -> bool {
    const BYTES: usize = 16 << 10;
    let from = vec![1u8; BYTES];
    let mut to = vec![0u8; BYTES + 2 * PAGE_BYTES];
    let start = from.as_ptr().addr().wrapping_sub(to.as_ptr().addr()) % PAGE_BYTES;
    let mut time = |distance: usize| {
        let begin = Instant::now();
        let bounce = &mut to[start + distance..][..BYTES];
        let there = from.as_ptr().expose_provenance() as u64;
        whole(
            CmaDirection::Read,
            std::process::id(),
            address_of(bounce),
            BYTES,
            there,
        );
        begin.elapsed()
    };
    let mut least = [Duration::MAX; 2];
    for _ in 0..5 {
        for (least, distance) in least.iter_mut().zip([0, 16]) {
            *least = time(distance).min(*least);
        }
    }
    least[1] > 2 * least[0]
}

/// Calls `copy` for piece after piece, with a buffer of this thread and the number of bytes already done, until all
/// `bytes` bytes are done or a call fails. Returns whether all are done; `None`: there is no buffer, since the thread
/// is about to end. The buffer's offset in a page is half a page away from that of `address`, so copies between the two
/// are not slow.
fn through_bounce(
    bytes: usize,
    address: u64,
    mut copy: impl FnMut(&mut [u8], usize) -> bool,
) -> Option<bool> {
    thread_local! {
        static BOUNCE: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
    }
    let copied = BOUNCE.try_with(|bounce| {
        let bounce = &mut *bounce.borrow_mut();
        bounce.resize(BOUNCE_BYTES + PAGE_BYTES, 0);
        let far = to_usize(address).wrapping_add(PAGE_BYTES / 2);
        let start = far.wrapping_sub(bounce.as_ptr().addr()) % PAGE_BYTES;
        let mut done = 0;
        while done < bytes {
            // Pieces start at the same offset in a page as `address`, since their size is a multiple of a page's.
            let piece = BOUNCE_BYTES.min(bytes - done);
            if !copy(&mut bounce[start..start + piece], done) {
                return false;
            }
            done += piece;
        }
        true
    });
    copied.ok()
}

fn address_of(bounce: &mut [u8]) -> u64 {
    bounce.as_mut_ptr().expose_provenance() as u64
}

/// `process_vm_readv` or `process_vm_writev`.
#[derive(Clone, Copy)]
enum CmaDirection {
    Read,
    Write,
}

fn whole(direction: CmaDirection, pid: u32, local: u64, bytes: usize, remote: u64) -> bool {
    let mut done = 0;
    while done < bytes {
        let base = std::ptr::null_mut::<u8>().with_addr(to_usize(local + done as u64));
        let vector = libc::iovec {
            iov_base: base.cast(),
            iov_len: bytes - done,
        };
        match transfer(direction, pid, vector, remote + done as u64) {
            // No progress is an error: a retry would spin for ever.
            None | Some(0) => return false,
            Some(moved) => done += moved,
        }
    }
    true
}

fn transfer(direction: CmaDirection, pid: u32, local: libc::iovec, remote: u64) -> Option<usize> {
    let base = std::ptr::null_mut::<u8>().with_addr(to_usize(remote));
    let there = libc::iovec {
        iov_base: base.cast(),
        iov_len: local.iov_len,
    };
    let pid = i32::try_from(pid).ok()?;
    let moved = match direction {
        // SAFETY: the kernel checks both ranges, and returns EFAULT if one is invalid; the local one is leased for
        // writing (module head).
        CmaDirection::Read => unsafe {
            libc::process_vm_readv(pid, &raw const local, 1, &raw const there, 1, 0)
        },
        // SAFETY: the kernel checks both ranges; the local one is only read.
        CmaDirection::Write => unsafe {
            libc::process_vm_writev(pid, &raw const local, 1, &raw const there, 1, 0)
        },
    };
    usize::try_from(moved).ok()
}

/// Size of the bounce buffer: it stays in a core's own caches.
const BOUNCE_BYTES: usize = 64 << 10;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg_attr(miri, ignore = "only the kernel can do it")]
    fn cma_copies_all_bytes_at_any_page_offset() {
        let me = std::process::id();
        let source: Vec<u8> = (0..300_000u32).map(|at| (at % 251) as u8 + 1).collect();
        let mut target = vec![0u8; 300_000];
        for (from, to, bytes) in [
            (0, 0, 200_000),
            (0, 16, 200_000),
            (100, 101, 65_537),
            (4000, 63, 150_000),
            (5, 9, 3000),
        ] {
            let slow = is_slow(
                source[from..].as_ptr().addr(),
                target[to..].as_ptr().addr(),
                bytes,
            );
            let there = source[from..].as_ptr().expose_provenance() as u64;
            target.fill(0);
            let base = NonNull::from(&mut target[..]).cast::<u8>();
            // SAFETY: the vector stays where it is until the lease is gone.
            let mut lease = unsafe { Lease::new(base, 300_000) };
            assert!(read(me, &mut lease, to, bytes, there), "slow: {slow}");
            assert_eq!(target[to..to + bytes], source[from..from + bytes]);
            assert!(
                target[..to]
                    .iter()
                    .chain(&target[to + bytes..])
                    .all(|byte| *byte == 0)
            );
            target.fill(0);
            let there = target[to..].as_mut_ptr().expose_provenance() as u64;
            let own = source[from..].as_ptr().expose_provenance() as u64;
            assert!(write_own(me, own, bytes, there), "slow: {slow}");
            assert_eq!(target[to..to + bytes], source[from..from + bytes]);
        }
    }

    #[test]
    #[cfg_attr(miri, ignore = "only the kernel can do it")]
    fn cma_with_unmapped_memory_is_an_error() {
        let mut target = vec![0u8; 100_000];
        let base = NonNull::from(&mut target[..]).cast::<u8>();
        // SAFETY: the vector stays where it is until the lease is gone.
        let mut lease = unsafe { Lease::new(base, 100_000) };
        let near = lease.address() % 4096;
        for nowhere in [near + 4096 - 16, 4096 - 16] {
            assert!(!read(std::process::id(), &mut lease, 0, 100_000, nowhere));
            assert!(!write_own(
                std::process::id(),
                nowhere,
                100_000,
                lease.address()
            ));
        }
    }
}
