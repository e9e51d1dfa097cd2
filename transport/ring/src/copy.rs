// SPDX-License-Identifier: MIT OR Apache-2.0
//! Copies of more than a few bytes.
//!
//! The C library copies long blocks with one `rep movsb`. Some processors (AMD's since Zen 3) do that at 3 GB/s instead
//! of 50 GB/s if the target's offset in its 4 KiB page is slightly larger than the source's. An example is a copy from
//! a page-aligned buffer to a large block of `malloc`, which starts 16 bytes after a page boundary. The C library
//! copies short blocks with vector registers, which is nearly as fast as a fast `rep movsb`, whatever the two
//! addresses. So a long copy between such slow addresses is done in short blocks. Between other addresses `rep movsb`
//! is better: it need not fetch the lines that it overwrites from another core.
//!
//! # Safety
//! The callers guarantee what [`copy_nonoverlapping`](core::ptr::copy_nonoverlapping) requires for the whole range, and
//! so for each block.
#![allow(unsafe_code)]

use core::hint::black_box;

/// Copies bytes between places that do not overlap.
///
/// # Safety
/// `source` is readable and `target` writable for `bytes` bytes, and they do not overlap.
#[inline]
pub unsafe fn copy(source: *const u8, target: *mut u8, bytes: usize) {
    if is_slow(source.addr(), target.addr(), bytes) {
        // SAFETY: the caller's promise.
        unsafe { copy_blocks(source, target, bytes) };
    } else {
        // SAFETY: the caller's promise.
        unsafe { core::ptr::copy_nonoverlapping(source, target, bytes) };
    }
}

/// Whether a copy of `bytes` bytes between these addresses would be slow if it were not done in blocks. The addresses
/// may be of two processes.
#[inline(always)]
#[must_use]
pub fn is_slow(source: usize, target: usize, bytes: usize) -> bool {
    let behind = || target.wrapping_sub(source) % PAGE_BYTES;
    bytes > BLOCK_BYTES && (1..SLOW_BYTES).contains(&behind())
}

/// Copies in short blocks.
///
/// # Safety
/// As for [`copy`].
unsafe fn copy_blocks(source: *const u8, target: *mut u8, bytes: usize) {
    let mut at = 0;
    while bytes - at > BLOCK_BYTES {
        // SAFETY: `at` is less than `bytes`, so inside the range.
        let from = unsafe { source.add(at) };
        // SAFETY: as for `from`.
        let to = unsafe { target.add(at) };
        // Without `black_box` the compiler would turn the loop into one long copy.
        let block = black_box(BLOCK_BYTES);
        // SAFETY: the block from `at` on ends within the `bytes` bytes that the caller guarantees.
        unsafe { core::ptr::copy_nonoverlapping(from, to, block) };
        at += BLOCK_BYTES;
    }
    // SAFETY: `at` is at most `bytes`.
    let from = unsafe { source.add(at) };
    // SAFETY: as for `from`.
    let to = unsafe { target.add(at) };
    // SAFETY: the rest of the range that the caller guarantees.
    unsafe { core::ptr::copy_nonoverlapping(from, to, bytes - at) };
}

/// Copies bytes between places that may overlap.
///
/// # Safety
/// `source` is readable and `target` writable for `bytes` bytes.
#[inline]
pub unsafe fn copy_overlapping(source: *const u8, target: *mut u8, bytes: usize) {
    let are_apart = || source.addr().abs_diff(target.addr()) >= bytes;
    if is_slow(source.addr(), target.addr(), bytes) && are_apart() {
        // SAFETY: the caller's promise, and the two ranges do not overlap: they begin at least `bytes` bytes apart.
        unsafe { copy_blocks(source, target, bytes) };
    } else {
        // SAFETY: the caller's promise.
        unsafe { core::ptr::copy(source, target, bytes) };
    }
}

/// Length of a block in bytes: the C library copies a block of this length with vector registers. It may use `rep
/// movsb` for longer copies (with AVX, for copies of 4 KiB and more).
const BLOCK_BYTES: usize = 2048;
/// A copy is slow if the target address minus the source address, modulo this number, is at least 1 and less than
/// `SLOW_BYTES`.
pub const PAGE_BYTES: usize = 4096;
/// Exclusive end of the range of slow distances, modulo [`PAGE_BYTES`]. On the processors that were measured the range
/// ends at 32.
const SLOW_BYTES: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copy_writes_exactly_the_target_range() {
        let source: Vec<u8> = (0..20_000u32).map(|at| (at % 251) as u8 + 1).collect();
        for bytes in [0, 1, 2047, 2048, 2049, 4096, 4097, 10_000] {
            for (from, to) in [(0, 0), (16, 3), (1, 64), (0, 16), (9, 40)] {
                let mut target = vec![0u8; 10_100];
                // SAFETY: the source range ends before byte 20000, and the target range before byte 10100.
                unsafe { copy(source[from..].as_ptr(), target[to..].as_mut_ptr(), bytes) };
                assert_eq!(target[to..to + bytes], source[from..from + bytes]);
                let beside = target[..to].iter().chain(&target[to + bytes..]);
                assert!(beside.into_iter().all(|byte| *byte == 0));
            }
        }
    }

    #[test]
    fn copy_overlapping_handles_overlap() {
        for (from, to) in [(0usize, 5000usize), (5000, 0), (100, 0), (0, 100), (7, 7)] {
            let mut bytes: Vec<u8> = (0..12_000u32).map(|at| (at % 251) as u8).collect();
            let expected = bytes[from..from + 5000].to_vec();
            let base = bytes.as_mut_ptr();
            // SAFETY: at most byte 5000 of 12000.
            let source = unsafe { base.add(from) };
            // SAFETY: as for `source`.
            let target = unsafe { base.add(to) };
            // SAFETY: both ranges end before byte 12000.
            unsafe { copy_overlapping(source, target, 5000) };
            assert_eq!(bytes[to..to + 5000], expected);
        }
    }
}
