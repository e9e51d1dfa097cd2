// SPDX-License-Identifier: MIT OR Apache-2.0
//! Memory that every rank of the node can map: each rank has an arena, which lies behind the node segment in the sealed
//! file of the segment and is sparse until it is touched. Data in an arena are copied directly, without the kernel.
//!
//! # Safety
//! - A rank maps its own arena whole, and those parts (*windows*) of other arenas that it accesses. Mappings are never
//!   undone, and the file can neither shrink nor grow; so every address that is computed from a mapping and a checked
//!   offset stays mapped until the process ends.
//! - Other ranks write to these bytes at any time. So the bytes are only copied, or changed by atomic operations. They
//!   are borrowed only as gate lines ([`GateLine`]), which consist of atomics. All accesses are safe whatever the
//!   values of the bytes are.
//! - Allocated memory belongs to the caller until it is freed (`ArenaSpace` never allocates a byte twice).
#![allow(unsafe_code)]

mod free;

use std::collections::HashMap;
use std::os::fd::{AsRawFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::Arc;

use ring::GateLine;

use crate::mr::WORD_BYTES;
use crate::{Atomic, Lease};
use free::ArenaSpace;

/// The arenas of a node, as seen by one rank.
#[derive(Debug)]
pub(crate) struct Arenas {
    file: Arc<OwnedFd>,
    /// `first`: offset of the first arena in the file. `bytes`: length of each arena.
    first: u64,
    bytes: u64,
    own: ArenaState,
    /// Index of this rank's arena.
    me: u32,
    windows: HashMap<(u32, u64), ArenaMapping>,
    /// Number of windows for which `windows` has reserved room.
    expected: usize,
}

/// The state of this rank's arena.
#[derive(Debug)]
enum ArenaState {
    /// No memory has been requested yet.
    Untouched,
    /// The arena could not be mapped.
    Refused,
    /// Mapped.
    Open {
        base: ArenaMapping,
        space: ArenaSpace,
    },
}

/// The address at which an arena, or a window of one, is mapped.
#[derive(Clone, Copy, Debug)]
struct ArenaMapping(NonNull<u8>);

// SAFETY: an address of memory that is never unmapped, and that is accessed only by copies and atomic operations.
unsafe impl Send for ArenaMapping {}

impl Arenas {
    /// The arenas of `ranks` ranks that lie behind the first `first` bytes of a sealed file of `length` bytes.
    pub(crate) fn new(file: Arc<OwnedFd>, first: u64, length: u64, ranks: u32, me: u32) -> Self {
        let bytes = length.saturating_sub(first) / u64::from(ranks.max(1));
        Self {
            file,
            first,
            // A multiple of the window size, so all arenas and windows begin at page boundaries if the first arena
            // does.
            bytes: bytes - bytes % WINDOW_BYTES,
            own: ArenaState::Untouched,
            me,
            windows: HashMap::new(),
            expected: 0,
        }
    }

    /// Allocates `bytes` bytes, zeroed and page-aligned; `None` if the arena has no room for them, or cannot be mapped.
    pub(crate) fn allocate(&mut self, bytes: usize) -> Option<NonNull<u8>> {
        if matches!(self.own, ArenaState::Untouched) {
            self.own = match self.map(self.me, 0, self.bytes) {
                Some(base) => ArenaState::Open {
                    base,
                    space: ArenaSpace::new(self.bytes),
                },
                None => ArenaState::Refused,
            };
        }
        let ArenaState::Open { base, space } = &mut self.own else {
            return None;
        };
        let offset = space.take(u64::try_from(bytes).ok()?)?;
        // SAFETY: `ArenaSpace` returns offsets inside the arena, which is mapped whole.
        Some(unsafe { base.0.add(usize::try_from(offset).ok()?) })
    }

    /// Frees the memory that [`allocate`](Self::allocate) returned as `place`, and returns its pages to the system.
    /// Returns `false` if there is no such memory, or it was freed already.
    pub(crate) fn free(&mut self, place: NonNull<u8>) -> bool {
        let ArenaState::Open { base, space } = &mut self.own else {
            return false;
        };
        let offset = place.addr().get().checked_sub(base.0.addr().get());
        let Some(bytes) = offset.and_then(|offset| space.give_back(offset as u64)) else {
            return false;
        };
        let bytes = usize::try_from(bytes).unwrap_or(0);
        // SAFETY: whole pages of the arena that are not in use any more. If the call fails, the pages just stay.
        unsafe { libc::madvise(place.as_ptr().cast(), bytes, libc::MADV_REMOVE) };
        true
    }

    /// The name under which other ranks address `bytes` bytes from `address` in this rank's arena; `None` if they are
    /// not all inside the arena.
    pub(crate) fn name_of(&self, address: u64, bytes: u64) -> Option<u64> {
        let ArenaState::Open { base, .. } = &self.own else {
            return None;
        };
        let offset = address.checked_sub(base.0.addr().get() as u64)?;
        let inside = offset.checked_add(bytes)? <= self.bytes;
        inside.then(|| name(offset))
    }

    /// The address in this rank's arena that `name` stands for; `None` if `bytes` bytes from there are not all inside
    /// it.
    pub(crate) fn address_of(&self, name: u64, bytes: u64) -> Option<u64> {
        let ArenaState::Open { base, .. } = &self.own else {
            return None;
        };
        let offset = self.offset_of(name, bytes)?;
        Some(base.0.as_ptr().expose_provenance() as u64 + offset)
    }

    /// The offset that a name stands for, if `bytes` bytes from there are inside an arena.
    pub(crate) fn offset_of(&self, name: u64, bytes: u64) -> Option<u64> {
        let offset = name & !NAME_MARK;
        let inside = offset
            .checked_add(bytes)
            .is_some_and(|end| end <= self.bytes);
        (is_name(name) && inside).then_some(offset)
    }

    /// Fills bytes `at .. at + bytes` of the lease from `offset` of a rank's arena; `false` if that cannot be mapped.
    pub(crate) fn read(
        &mut self,
        rank: u32,
        offset: u64,
        lease: &mut Lease,
        at: usize,
        bytes: usize,
    ) -> bool {
        let mut done = 0;
        while done < bytes {
            let Some((place, room)) = self.reach(rank, offset + done as u64) else {
                return false;
            };
            let part = room.min(bytes - done);
            // SAFETY: `reach` returns mapped memory of `room` bytes; other ranks may write there, but no reference to
            // it exists.
            unsafe { lease.fill_from(at + done, place, part) };
            done += part;
        }
        true
    }

    /// Copies the lease to `offset` of a rank's arena; `false` if that cannot be mapped.
    pub(crate) fn write(&mut self, rank: u32, offset: u64, lease: &Lease) -> bool {
        let mut done = 0;
        while done < lease.bytes() {
            let Some((place, room)) = self.reach(rank, offset + done as u64) else {
                return false;
            };
            let part = room.min(lease.bytes() - done);
            // SAFETY: as in `read`.
            unsafe { lease.copy_out(done, place, part) };
            done += part;
        }
        true
    }

    /// Changes the word at `offset` of a rank's arena; the lease gets its previous value. `false` if the word is not
    /// aligned, or cannot be mapped.
    pub(crate) fn change(
        &mut self,
        rank: u32,
        offset: u64,
        lease: &mut Lease,
        atomic: Atomic,
    ) -> bool {
        let Some((place, room)) = self.reach(rank, offset) else {
            return false;
        };
        if room < WORD_BYTES || !place.cast::<u64>().is_aligned() {
            return false;
        }
        // SAFETY: aligned, as was just checked; mapped as in `read`.
        unsafe { lease.change(place, atomic) };
        true
    }

    /// The gate line at an address in this rank's arena; `None` if it is not aligned, or not all inside the arena.
    pub(crate) fn own_line(&self, place: NonNull<u8>) -> Option<&'static GateLine> {
        self.name_of(place.addr().get() as u64, LINE_BYTES)?;
        // SAFETY: the line lies in the arena, which is never unmapped; aligned, as `line_at` checks.
        unsafe { line_at(place) }
    }

    /// The gate line that a rank names in its arena; `None` if it is not aligned, not all inside the arena, or cannot
    /// be mapped.
    pub(crate) fn line_of(&mut self, rank: u32, name: u64) -> Option<&'static GateLine> {
        let place = self.place_of(rank, name, LINE_BYTES)?;
        // SAFETY: the line lies in a window, which is never unmapped; aligned, as `line_at` checks.
        unsafe { line_at(place) }
    }

    /// The address at which `bytes` bytes that a rank names in its arena are mapped here; `None` if they are not in one
    /// window, or cannot be mapped.
    pub(crate) fn place_of(&mut self, rank: u32, name: u64, bytes: u64) -> Option<NonNull<u8>> {
        let offset = self.offset_of(name, bytes)?;
        let (place, room) = self.reach(rank, offset)?;
        (bytes <= room as u64).then_some(place)
    }

    /// Reserves room for up to `most` more windows of a rank, so recording a window later allocates no memory.
    pub(crate) fn expect(&mut self, most: usize) {
        let all = usize::try_from(self.bytes / WINDOW_BYTES).unwrap_or(usize::MAX);
        self.expected += most.min(all);
        let known = self.windows.len();
        self.windows.reserve(self.expected.saturating_sub(known));
    }

    /// The address at which `offset` of a rank's arena is mapped here, and the number of bytes mapped from there.
    fn reach(&mut self, rank: u32, offset: u64) -> Option<(NonNull<u8>, usize)> {
        if offset >= self.bytes {
            return None;
        }
        let (window, inside) = (offset / WINDOW_BYTES, offset % WINDOW_BYTES);
        let base = match self.windows.get(&(rank, window)) {
            Some(base) => *base,
            None => {
                let base = self.map(rank, window * WINDOW_BYTES, WINDOW_BYTES)?;
                self.windows.insert((rank, window), base);
                base
            }
        };
        // SAFETY: the window is mapped whole and `inside` lies in it.
        let place = unsafe { base.0.add(usize::try_from(inside).ok()?) };
        Some((place, usize::try_from(WINDOW_BYTES - inside).ok()?))
    }

    fn map(&self, rank: u32, offset: u64, bytes: u64) -> Option<ArenaMapping> {
        if bytes == 0 {
            return None;
        }
        let start = self.first + u64::from(rank) * self.bytes + offset;
        // SAFETY: a new shared mapping of an open file at an address that the system chooses.
        let base = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                usize::try_from(bytes).ok()?,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED | libc::MAP_NORESERVE,
                self.file.as_raw_fd(),
                libc::off_t::try_from(start).ok()?,
            )
        };
        let mapped = Some(base).filter(|base| *base != libc::MAP_FAILED);
        mapped
            .and_then(|base| NonNull::new(base.cast()))
            .map(ArenaMapping)
    }
}

/// # Safety
/// 64 bytes from `place` on are mapped until the process ends.
unsafe fn line_at(place: NonNull<u8>) -> Option<&'static GateLine> {
    let is_aligned = place.cast::<GateLine>().is_aligned();
    // SAFETY: mapped, as promised, and aligned, as was just checked.
    is_aligned.then(|| unsafe { GateLine::at(place) })
}

/// Whether an address in a remote key is a name in an arena.
pub(crate) fn is_name(address: u64) -> bool {
    address & NAME_MARK != 0
}

/// The name of an offset in an arena.
pub(crate) fn name(offset: u64) -> u64 {
    offset | NAME_MARK
}

/// Bytes of a gate line.
const LINE_BYTES: u64 = size_of::<GateLine>() as u64;
/// Set in names only: no address of a process has this bit.
const NAME_MARK: u64 = 1 << 63;
/// Size of the windows in which the arenas of other ranks are mapped.
const WINDOW_BYTES: u64 = 64 << 20;
