// SPDX-License-Identifier: MIT OR Apache-2.0
//! The registered memory of a port: a key gives the access that its region allows, inside the bounds of the region, and
//! no other. A region has one key for local and remote access: the low half is its index in the table, the high half
//! random bits, which differ from those of the last region with this index.
//!
//! # Safety
//! All memory of the program that the port accesses is accessed here.
//! - **M1**: a region is in the table only from [`RoceRegions::add`] to [`RoceRegions::remove`] or the end of the
//!   table, which is dropped with its port. The caller of `add` passes on the guarantee of
//!   [`VerbsPort::register`](super::super::port::VerbsPort::register). So the bytes of the region are mapped, and may
//!   be read, and written unless its access is [`RegionAccess::OwnRead`].
//! - **M2**: every address is looked up in the table at the moment of the access ([`RoceRegions::spot`]); no address is
//!   kept. The result is inside one region, whatever values were given: address and length are added with overflow
//!   checks, and the end is compared with the end of the region.
//! - **M3**: bytes are copied untyped, source and target may overlap, and no reference to a region is made. Words that
//!   peers change are changed atomically ([`change_word`]), after a check of their alignment.
//! - **M4**: the engine checks each remote access with [`RoceRegions::check`] just before the access. Local callers may
//!   read (gather) any range of a region. A range is written (placed) only for requests and buffers of this process
//!   that name it, or for a peer after that check.
#![allow(unsafe_code)]

use std::ptr::NonNull;

use dpdk_sys::{LentPart, Loan};
use ring::copy::copy_overlapping;
use roce::{AccessError, MemoryAccess, RegisteredMemory, RoceSge};

use super::super::port::RegionAccess;
use super::random::RandomPool;
use crate::Atomic;
use crate::mr::{change_word, to_usize};

/// The memory regions of one port.
#[derive(Debug, Default)]
pub(super) struct RoceRegions {
    places: Vec<RegionSlot>,
    free: Vec<usize>,
    random: RandomPool,
}

/// A slot of the table of regions.
#[derive(Debug)]
struct RegionSlot {
    /// Key of the present region, or of the last one.
    key: u32,
    held: Option<RoceRegion>,
}

/// A registered memory region.
#[derive(Debug)]
struct RoceRegion {
    base: NonNull<u8>,
    bytes: u64,
    access: RegionAccess,
    /// The carrier's handle for the region, if the carrier sends from it in place.
    loan: Option<Loan>,
}

/// A region that was removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Removed {
    pub(super) bytes: u64,
    /// The carrier's handle for the region, if the carrier may still read the region.
    pub(super) loan: Option<Loan>,
}

/// A range inside a region, just looked up in the table.
#[derive(Clone, Copy)]
struct RegionRange {
    base: NonNull<u8>,
    bytes: usize,
}

// SAFETY: an address with a length; neither the ownership of the memory nor its access depends on the thread (M1, M2).
unsafe impl Send for RoceRegion {}

impl RoceRegions {
    /// Adds a region of at least one byte; returns its key, or `None` if the table is full.
    ///
    /// # Safety
    /// Until the region is removed or the table is dropped, the memory stays mapped, and its owner allows it to be
    /// read, and to be written unless `access` is [`RegionAccess::OwnRead`].
    pub(super) unsafe fn add(
        &mut self,
        base: NonNull<u8>,
        bytes: usize,
        access: RegionAccess,
    ) -> Option<u32> {
        let index = self.free.pop().unwrap_or(self.places.len());
        if index == self.places.len() {
            if index == MOST_REGIONS {
                return None;
            }
            self.places.push(RegionSlot { key: 0, held: None });
        }
        let place = self.places.get_mut(index)?;
        let random = self.random.other_than(place.key >> INDEX_BITS, MOST_RANDOM);
        place.key = random << INDEX_BITS | u32::try_from(index).unwrap_or(0);
        place.held = Some(RoceRegion {
            base,
            bytes: bytes as u64,
            access,
            loan: None,
        });
        Some(place.key)
    }

    /// Records that a carrier sends from the region with this key.
    pub(super) fn lend(&mut self, key: u32, loan: Loan) {
        let place = self
            .places
            .get_mut(index_of(key))
            .filter(|it| it.key == key);
        if let Some(held) = place.and_then(|place| place.held.as_mut()) {
            held.loan = Some(loan);
        }
    }

    /// Removes the region with this key, if there is one.
    pub(super) fn remove(&mut self, key: u32) -> Option<Removed> {
        let index = index_of(key);
        let place = self.places.get_mut(index).filter(|it| it.key == key)?;
        let held = place.held.take()?;
        self.free.push(index);
        Some(Removed {
            bytes: held.bytes,
            loan: held.loan,
        })
    }

    /// A range as the carrier's type; `None`: the carrier does not send from there, or the range is not inside a
    /// region.
    pub(super) fn lent(&self, piece: RoceSge) -> Option<LentPart> {
        let held = self.find(piece.key).ok()?;
        let loan = held.loan?;
        let spot = self
            .spot(piece.key, piece.address, piece.bytes.into())
            .ok()?;
        Some(LentPart {
            loan,
            offset: spot.base.addr().get() - held.base.addr().get(),
            bytes: piece.bytes,
        })
    }

    /// Copies a range to `target`, which is as long.
    ///
    /// # Errors
    /// The region is gone, or the range is not inside it; then nothing was copied.
    pub(super) fn gather(&self, piece: RoceSge, target: &mut [u8]) -> Result<(), AccessError> {
        let spot = self.spot(piece.key, piece.address, target.len() as u64)?;
        // SAFETY:
        // - readable: `spot.bytes` bytes of a region in the table (M1, M2).
        // - writable: a slice as long; the copy is right even if the two overlap (M3).
        unsafe { copy_overlapping(spot.base.as_ptr(), target.as_mut_ptr(), spot.bytes) };
        Ok(())
    }

    fn find(&self, key: u32) -> Result<&RoceRegion, AccessError> {
        let place = self.places.get(index_of(key)).filter(|it| it.key == key);
        let held = place.and_then(|place| place.held.as_ref());
        held.ok_or(AccessError::Key { key })
    }

    /// The range of a region with these bytes.
    fn spot(&self, key: u32, address: u64, bytes: u64) -> Result<RegionRange, AccessError> {
        let held = self.find(key)?;
        let offset = address.checked_sub(held.base.addr().get() as u64);
        let end = offset.and_then(|offset| offset.checked_add(bytes));
        let (Some(offset), true) = (offset, end.is_some_and(|end| end <= held.bytes)) else {
            return Err(AccessError::Bounds {
                key,
                address,
                bytes,
            });
        };
        // SAFETY: at most as many bytes as the region has, which is one range of mapped memory (M1).
        let base = unsafe { held.base.add(to_usize(offset)) };
        let bytes = to_usize(bytes);
        Ok(RegionRange { base, bytes })
    }

    /// The range of a region with these bytes, if this process may write there.
    fn writable(&self, key: u32, address: u64, bytes: u64) -> Result<RegionRange, AccessError> {
        let access = MemoryAccess::LocalWrite;
        match self.find(key)?.access {
            RegionAccess::OwnRead => Err(AccessError::Denied { key, access }),
            RegionAccess::Own | RegionAccess::Read | RegionAccess::Full => {
                self.spot(key, address, bytes)
            }
        }
    }

    /// Changes a word for a peer; returns its old value.
    fn change(&mut self, key: u32, address: u64, atomic: Atomic) -> Result<u64, AccessError> {
        let bytes = size_of::<u64>() as u64;
        self.check(key, address, bytes, MemoryAccess::RemoteAtomic)?;
        let spot = self.writable(key, address, bytes)?;
        let word = spot.base.cast::<u64>();
        if !word.is_aligned() {
            return Err(AccessError::Bounds {
                key,
                address,
                bytes,
            });
        }
        // SAFETY: aligned, as was just checked, and 8 bytes of a region that may be written (M1, M2, M3).
        Ok(unsafe { change_word(word, atomic) })
    }
}

impl RegisteredMemory for RoceRegions {
    fn check(
        &self,
        key: u32,
        address: u64,
        bytes: u64,
        access: MemoryAccess,
    ) -> Result<(), AccessError> {
        let granted = self.find(key)?.access;
        let may = match access {
            MemoryAccess::LocalRead => true,
            MemoryAccess::LocalWrite => granted != RegionAccess::OwnRead,
            MemoryAccess::RemoteRead => matches!(granted, RegionAccess::Read | RegionAccess::Full),
            MemoryAccess::RemoteWrite | MemoryAccess::RemoteAtomic => granted == RegionAccess::Full,
        };
        if !may {
            return Err(AccessError::Denied { key, access });
        }
        self.spot(key, address, bytes).map(|_| ())
    }

    fn place(&mut self, key: u32, address: u64, bytes: &[u8]) -> Result<(), AccessError> {
        let spot = self.writable(key, address, bytes.len() as u64)?;
        // SAFETY:
        // - writable: `spot.bytes` bytes of a region in the table, whose access allows it (M1, M2, M4).
        // - readable: a slice as long; the copy is right even if the two overlap (M3).
        unsafe { copy_overlapping(bytes.as_ptr(), spot.base.as_ptr(), spot.bytes) };
        Ok(())
    }

    fn fetch_add(&mut self, key: u32, address: u64, add: u64) -> Result<u64, AccessError> {
        self.change(key, address, Atomic::FetchAdd { add })
    }

    fn compare_swap(
        &mut self,
        key: u32,
        address: u64,
        compare: u64,
        swap: u64,
    ) -> Result<u64, AccessError> {
        self.change(key, address, Atomic::CompareSwap { compare, swap })
    }
}

fn index_of(key: u32) -> usize {
    (key & ((1 << INDEX_BITS) - 1)) as usize
}

/// Bits of a key that are the index of its region.
const INDEX_BITS: u32 = 16;
/// Maximum number of regions.
const MOST_REGIONS: usize = 1 << INDEX_BITS;
/// Largest value of the random bits; they are never zero.
const MOST_RANDOM: u32 = (1 << (32 - INDEX_BITS)) - 1;

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: [RegionAccess; 4] = [
        RegionAccess::Own,
        RegionAccess::OwnRead,
        RegionAccess::Read,
        RegionAccess::Full,
    ];

    /// A region of 16 bytes; its key, and its address.
    fn one(memory: &mut [u64; 2], access: RegionAccess) -> (RoceRegions, u32, u64) {
        let mut regions = RoceRegions::default();
        let base = NonNull::from(memory).cast();
        // SAFETY: the memory outlives the table in every test, and is not accessed otherwise meanwhile.
        let key = unsafe { regions.add(base, 16, access) };
        (regions, key.unwrap(), base.addr().get() as u64)
    }

    fn gather(regions: &RoceRegions, key: u32, address: u64, bytes: u32) -> Option<Vec<u8>> {
        let mut target = vec![0; bytes as usize];
        let piece = RoceSge {
            key,
            address,
            bytes,
        };
        let gathered = regions.gather(piece, &mut target);
        gathered.is_ok().then_some(target)
    }

    #[test]
    fn read_only_regions_allow_local_reads_but_no_writes() {
        for access in ALL {
            let mut memory = [1; 2];
            let (mut regions, key, base) = one(&mut memory, access);
            assert!(gather(&regions, key, base, 16).is_some(), "{access:?}");
            assert!(
                regions
                    .check(key, base, 16, MemoryAccess::LocalRead)
                    .is_ok()
            );
            let writes = access != RegionAccess::OwnRead;
            let checked = regions.check(key, base, 16, MemoryAccess::LocalWrite);
            assert_eq!(checked.is_ok(), writes, "{access:?}");
            // Access without the check is refused, too.
            assert_eq!(regions.place(key, base, &[2; 3]).is_ok(), writes);
            assert_eq!(memory[0] != 1, writes, "{access:?}");
        }
    }

    #[test]
    fn remote_access_is_limited_to_the_region_access() {
        for access in ALL {
            let mut memory = [1; 2];
            let (mut regions, key, base) = one(&mut memory, access);
            let may = |access| regions.check(key, base, 8, access).is_ok();
            let reads = matches!(access, RegionAccess::Read | RegionAccess::Full);
            let writes = access == RegionAccess::Full;
            assert_eq!(may(MemoryAccess::RemoteRead), reads, "{access:?}");
            assert_eq!(may(MemoryAccess::RemoteWrite), writes, "{access:?}");
            assert_eq!(may(MemoryAccess::RemoteAtomic), writes, "{access:?}");
            let old = regions.fetch_add(key, base + 8, 41);
            assert_eq!(old.ok(), writes.then_some(1));
            let old = regions.compare_swap(key, base + 8, 42, 7);
            assert_eq!(old.ok(), writes.then_some(42));
            assert_eq!(memory, if writes { [1, 7] } else { [1, 1] });
        }
    }

    #[test]
    fn accesses_beyond_the_region_bounds_fail() {
        let mut memory = [1; 2];
        let (mut regions, key, base) = one(&mut memory, RegionAccess::Full);
        for (address, bytes) in [
            (base, 17),
            (base - 1, 2),
            (base + 16, 1),
            (base + 15, 2),
            (u64::MAX, 2),
            (0, 8),
        ] {
            let checked = regions.check(key, address, bytes.into(), MemoryAccess::RemoteWrite);
            assert!(matches!(checked, Err(AccessError::Bounds { .. })));
            assert_eq!(gather(&regions, key, address, bytes), None);
            let placed = regions.place(key, address, &vec![0; bytes as usize]);
            assert!(placed.is_err(), "{bytes} bytes at {address:#x}");
        }
        let all = regions.check(key, base, u64::MAX, MemoryAccess::RemoteRead);
        assert!(all.is_err());
        assert!(regions.fetch_add(key, base + 9, 1).is_err());
        assert!(regions.fetch_add(key, base + 4, 1).is_err(), "not aligned");
        assert!(regions.place(key, base + 16, &[]).is_ok());
        assert_eq!(gather(&regions, key, base + 15, 1), Some(vec![0]));
        assert_eq!(memory, [1; 2]);
    }

    #[test]
    fn a_key_is_valid_only_for_its_registered_region() {
        let mut memory = [1; 2];
        let (mut regions, key, base) = one(&mut memory, RegionAccess::Full);
        for wrong in [0, key ^ 1, key ^ 1 << 16, key ^ 1 << 31, u32::MAX] {
            assert_eq!(gather(&regions, wrong, base, 8), None, "{wrong:#x}");
            assert_eq!(regions.remove(wrong), None);
        }
        let removed = regions.remove(key).map(|it| (it.bytes, it.loan));
        assert_eq!((removed, regions.remove(key)), (Some((16, None)), None));
        assert_eq!(gather(&regions, key, base, 8), None);
        let checked = regions.check(key, base, 8, MemoryAccess::LocalRead);
        assert_eq!(checked, Err(AccessError::Key { key }));
        // SAFETY: as in `one`.
        let next = unsafe { regions.add(NonNull::from(&mut memory).cast(), 8, RegionAccess::Own) };
        let next = next.unwrap();
        assert_eq!((next & 0xffff, next == key), (key & 0xffff, false));
        assert_eq!(gather(&regions, key, base, 8), None);
    }

    #[test]
    fn regions_beyond_the_limit_are_refused() {
        let mut memory = [1u64; 2];
        let base = NonNull::from(&mut memory).cast();
        let mut regions = RoceRegions::default();
        for _ in 0..MOST_REGIONS {
            // SAFETY: as in `one`.
            assert!(unsafe { regions.add(base, 16, RegionAccess::Own) }.is_some());
        }
        // SAFETY: as in `one`.
        assert_eq!(unsafe { regions.add(base, 16, RegionAccess::Own) }, None);
    }
}
