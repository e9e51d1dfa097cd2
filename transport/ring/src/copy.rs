// SPDX-License-Identifier: MIT OR Apache-2.0
//! Copies of more than a few bytes.
//!
//! The C library copies long blocks with one `rep movsb`. Some processors (AMD's since Zen 3) do that at 3 GB/s
//! instead of 50 where the target's offset in its 4 KiB page is slightly larger than the source's: for example from a
//! page-aligned buffer to a large block of `malloc`, which starts 16 bytes after a page boundary. Short blocks are
//! copied with vector registers, which is nearly as fast for any two addresses; so there long copies are done in short
//! blocks. Elsewhere `rep movsb` is better: it need not fetch the lines that it overwrites from another core.
//!
//! # Safety
//! The callers' promises of [`copy_nonoverlapping`](core::ptr::copy_nonoverlapping), handed on block by block.
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

/// Whether one long copy between these addresses, of one process or two, would be slow.
#[inline(always)]
#[must_use]
pub fn is_slow(source: usize, target: usize, bytes: usize) -> bool {
    let behind = || target.wrapping_sub(source) % PAGE_BYTES;
    bytes > BLOCK_BYTES && (1..SLOW_BYTES).contains(&behind())
}

/// Copies in short blocks.
///
/// # Safety
/// As of [`copy`].
unsafe fn copy_blocks(source: *const u8, target: *mut u8, bytes: usize) {
    let mut at = 0;
    while bytes - at > BLOCK_BYTES {
        // SAFETY: less than `bytes`, so inside.
        let from = unsafe { source.add(at) };
        // SAFETY: the same.
        let to = unsafe { target.add(at) };
        // Otherwise the compiler makes one long copy of the loop.
        let block = black_box(BLOCK_BYTES);
        // SAFETY: a block more ends before `bytes` bytes do; the caller's promise is for all of these.
        unsafe { core::ptr::copy_nonoverlapping(from, to, block) };
        at += BLOCK_BYTES;
    }
    // SAFETY: at most `bytes`.
    let from = unsafe { source.add(at) };
    // SAFETY: the same.
    let to = unsafe { target.add(at) };
    // SAFETY: the rest of what the caller promises.
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
        // SAFETY: the caller's promise, and they begin at least as far from each other as they are long.
        unsafe { copy_blocks(source, target, bytes) };
    } else {
        // SAFETY: the caller's promise.
        unsafe { core::ptr::copy(source, target, bytes) };
    }
}

/// Largest block that the C library copies with vector registers: it uses `rep movsb` from 2 KiB on at the earliest,
/// from 4 KiB with AVX.
const BLOCK_BYTES: usize = 2048;
/// Addresses whose distance is a multiple of this plus a little are the slow ones,
pub const PAGE_BYTES: usize = 4096;
/// less than this: 32 on the processors that were measured.
const SLOW_BYTES: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_bytes_and_no_others_are_copied() {
        let source: Vec<u8> = (0..20_000u32).map(|at| (at % 251) as u8 + 1).collect();
        for bytes in [0, 1, 2047, 2048, 2049, 4096, 4097, 10_000] {
            for (from, to) in [(0, 0), (16, 3), (1, 64), (0, 16), (9, 40)] {
                let mut target = vec![0u8; 10_100];
                // SAFETY: at most 10016 bytes of 20000, and 10064 of 10100.
                unsafe { copy(source[from..].as_ptr(), target[to..].as_mut_ptr(), bytes) };
                assert_eq!(target[to..to + bytes], source[from..from + bytes]);
                let beside = target[..to].iter().chain(&target[to + bytes..]);
                assert!(beside.into_iter().all(|byte| *byte == 0));
            }
        }
    }

    #[test]
    fn places_may_overlap() {
        for (from, to) in [(0usize, 5000usize), (5000, 0), (100, 0), (0, 100), (7, 7)] {
            let mut bytes: Vec<u8> = (0..12_000u32).map(|at| (at % 251) as u8).collect();
            let expected = bytes[from..from + 5000].to_vec();
            let base = bytes.as_mut_ptr();
            // SAFETY: before byte 12000.
            let source = unsafe { base.add(from) };
            // SAFETY: the same.
            let target = unsafe { base.add(to) };
            // SAFETY: both end before byte 12000.
            unsafe { copy_overlapping(source, target, 5000) };
            assert_eq!(bytes[to..to + 5000], expected);
        }
    }
}
