// SPDX-License-Identifier: MIT OR Apache-2.0
//! Simulates registered memory: a key gives the access that its region allows, inside the bounds of the region, and no
//! other.
//!
//! # Safety
//! All memory that the simulation accesses is accessed here. M1: a region is in the table only from
//! [`FakeRegions::add`] to [`FakeRegions::remove`] or [`FakeRegions::clear`]. The caller of `add` passes on the
//! guarantee of [`VerbsPort::register`](super::super::port::VerbsPort::register). So the bytes of the region are
//! mapped, and may be read, and written if its access allows that. M2: every address is looked up in the table at the
//! moment of the access, under the lock of the network; no address is kept. Data are copied as untyped bytes, to or
//! from memory of this module; no reference to a region is made.
#![allow(unsafe_code)]

use std::collections::BTreeMap;
use std::ptr::NonNull;

use super::super::port::{Region, RegionAccess, Sge};
use crate::mr::to_usize;

/// The memory regions of one port.
#[derive(Debug, Default)]
pub(super) struct FakeRegions {
    table: BTreeMap<u32, FakeRegion>,
    /// Region ids by local key.
    local: BTreeMap<u32, u32>,
    /// Region ids by remote key.
    remote: BTreeMap<u32, u32>,
    bytes: u64,
}

/// A registered memory region.
#[derive(Debug)]
struct FakeRegion {
    base: NonNull<u8>,
    bytes: usize,
    access: RegionAccess,
    region: Region,
}

// SAFETY: an address with a length; neither the ownership of the memory nor its access depends on the thread (M1, M2).
unsafe impl Send for FakeRegion {}

impl FakeRegions {
    /// Adds a region. No other region in the table has its keys or its id.
    ///
    /// # Safety
    /// Until the region is removed, or all regions are cleared, the memory stays mapped, and its owner allows it to be
    /// read, and to be written if `access` allows that.
    pub(super) unsafe fn add(
        &mut self,
        base: NonNull<u8>,
        bytes: usize,
        access: RegionAccess,
        region: Region,
    ) {
        self.local.insert(region.local_key, region.id);
        self.remote.insert(region.remote_key, region.id);
        self.bytes += bytes as u64;
        let held = FakeRegion {
            base,
            bytes,
            access,
            region,
        };
        self.table.insert(region.id, held);
    }

    /// Removes a region; `false`: the table has no such region.
    pub(super) fn remove(&mut self, region: Region) -> bool {
        let found = self.table.get(&region.id);
        if found.is_none_or(|held| held.region != region) {
            return false;
        }
        let held = self.table.remove(&region.id);
        self.bytes -= held.map_or(0, |held| held.bytes as u64);
        self.local.remove(&region.local_key);
        self.remote.remove(&region.remote_key);
        true
    }

    /// Removes all regions.
    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }

    pub(super) fn len(&self) -> usize {
        self.table.len()
    }

    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Whether this process may read a range, or with `writes` write it.
    pub(super) fn allows(&self, piece: Sge, writes: bool) -> bool {
        piece.bytes == 0 || self.find_local(piece, writes).is_some()
    }

    /// The bytes of a range; `None`: this process may not read them.
    pub(super) fn load(&self, piece: Sge) -> Option<Vec<u8>> {
        if piece.bytes == 0 {
            return Some(Vec::new());
        }
        let source = self.find_local(piece, false)?;
        Some(copy_from(source, to_usize(u64::from(piece.bytes))))
    }

    /// Writes to the beginning of a range; `false`: this process may not write there, or the bytes do not fit.
    pub(super) fn store(&mut self, piece: Sge, bytes: &[u8]) -> bool {
        if bytes.is_empty() {
            return true;
        }
        if bytes.len() as u64 > u64::from(piece.bytes) {
            return false;
        }
        let target = self.find_local(piece, true);
        target.map(|target| copy_to(target, bytes)).is_some()
    }

    /// Reads for a peer; `None`: its key does not allow that.
    pub(super) fn load_for_peer(&self, key: u32, address: u64, bytes: u32) -> Option<Vec<u8>> {
        if bytes == 0 {
            return Some(Vec::new());
        }
        let allowed = [RegionAccess::Read, RegionAccess::Full];
        let source = self.find_remote(key, address, u64::from(bytes), &allowed)?;
        Some(copy_from(source, to_usize(u64::from(bytes))))
    }

    /// Writes for a peer; `false`: its key does not allow that.
    pub(super) fn store_for_peer(&mut self, key: u32, address: u64, bytes: &[u8]) -> bool {
        if bytes.is_empty() {
            return true;
        }
        let target = self.find_remote(key, address, bytes.len() as u64, &[RegionAccess::Full]);
        target.map(|target| copy_to(target, bytes)).is_some()
    }

    /// Changes a word atomically for a peer; returns its old value. `None`: the key of the peer does not allow that.
    pub(super) fn change_for_peer(
        &mut self,
        key: u32,
        address: u64,
        change: impl FnOnce(u64) -> u64,
    ) -> Option<u64> {
        let place = self.find_remote(key, address, 8, &[RegionAccess::Full])?;
        let bytes = copy_from(place, 8);
        let old = u64::from_ne_bytes(*bytes.first_chunk()?);
        copy_to(place, &change(old).to_ne_bytes());
        Some(old)
    }

    fn find_local(&self, piece: Sge, writes: bool) -> Option<FakeRegionRange> {
        let held = self.table.get(self.local.get(&piece.local_key)?)?;
        if writes && held.access == RegionAccess::OwnRead {
            return None;
        }
        held.spot(piece.address, u64::from(piece.bytes))
    }

    fn find_remote(
        &self,
        key: u32,
        address: u64,
        bytes: u64,
        allowed: &[RegionAccess],
    ) -> Option<FakeRegionRange> {
        let held = self.table.get(self.remote.get(&key)?)?;
        if !allowed.contains(&held.access) {
            return None;
        }
        held.spot(address, bytes)
    }
}

/// A range inside a region, just looked up in the table.
#[derive(Clone, Copy)]
struct FakeRegionRange {
    base: NonNull<u8>,
    bytes: usize,
}

impl FakeRegion {
    fn spot(&self, address: u64, bytes: u64) -> Option<FakeRegionRange> {
        let offset = address.checked_sub(self.base.addr().get() as u64)?;
        let end = offset.checked_add(bytes)?;
        if end > self.bytes as u64 {
            return None;
        }
        // SAFETY: at most `bytes` of the region, which is one range of mapped memory (M1).
        let base = unsafe { self.base.add(to_usize(offset)) };
        let bytes = to_usize(bytes);
        Some(FakeRegionRange { base, bytes })
    }
}

fn copy_from(source: FakeRegionRange, bytes: usize) -> Vec<u8> {
    assert!(bytes <= source.bytes);
    let mut copy = vec![0; bytes];
    // SAFETY:
    // - readable: `bytes` bytes of a region in the table (M1, M2).
    // - writable, and apart from the source: a vector made just now.
    unsafe {
        source
            .base
            .copy_to_nonoverlapping(NonNull::from(&mut copy[..]).cast(), bytes)
    };
    copy
}

fn copy_to(target: FakeRegionRange, bytes: &[u8]) {
    assert!(bytes.len() <= target.bytes);
    // SAFETY:
    // - writable: as many bytes of a region in the table, whose access allows it (M1, M2; `find_local` and
    //   `find_remote` check the access).
    // - readable: a slice; `copy` is right even if it overlaps a registered region.
    unsafe {
        target
            .base
            .copy_from(NonNull::from(bytes).cast(), bytes.len())
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    const ACCESSES: [RegionAccess; 4] = [
        RegionAccess::Own,
        RegionAccess::OwnRead,
        RegionAccess::Read,
        RegionAccess::Full,
    ];

    /// A region of 16 bytes with local key 7 and remote key 9.
    fn one(memory: &mut [u64; 2], access: RegionAccess) -> (FakeRegions, Region, u64) {
        let mut regions = FakeRegions::default();
        let region = Region {
            id: 3,
            local_key: 7,
            remote_key: 9,
        };
        let base = NonNull::from(memory).cast();
        // SAFETY: the memory outlives the table in every test, and is not accessed otherwise meanwhile.
        unsafe { regions.add(base, 16, access, region) };
        (regions, region, base.addr().get() as u64)
    }

    fn piece(address: u64, bytes: u32) -> Sge {
        Sge {
            address,
            bytes,
            local_key: 7,
        }
    }

    #[test]
    fn read_only_regions_allow_local_reads_but_no_writes() {
        for access in ACCESSES {
            let mut memory = [1; 2];
            let (mut regions, _, base) = one(&mut memory, access);
            assert!(regions.load(piece(base, 16)).is_some(), "{access:?}");
            let writes = access != RegionAccess::OwnRead;
            assert_eq!(regions.allows(piece(base, 16), true), writes, "{access:?}");
            assert_eq!(
                regions.store(piece(base, 16), &[2; 3]),
                writes,
                "{access:?}"
            );
        }
    }

    #[test]
    fn remote_access_is_limited_to_the_region_access() {
        for access in ACCESSES {
            let mut memory = [1; 2];
            let (mut regions, _, base) = one(&mut memory, access);
            let reads = matches!(access, RegionAccess::Read | RegionAccess::Full);
            let writes = access == RegionAccess::Full;
            assert_eq!(regions.load_for_peer(9, base, 8).is_some(), reads);
            assert_eq!(regions.store_for_peer(9, base, &[0; 8]), writes);
            let old = regions.change_for_peer(9, base + 8, |old| old + 41);
            assert_eq!(old, writes.then_some(1));
            assert_eq!(memory, if writes { [0, 42] } else { [1, 1] });
        }
    }

    #[test]
    fn accesses_beyond_the_region_bounds_fail() {
        let mut memory = [1; 2];
        let (mut regions, _, base) = one(&mut memory, RegionAccess::Full);
        for (address, bytes) in [
            (base, 17),
            (base - 1, 2),
            (base + 16, 1),
            (u64::MAX, 2),
            (0, 8),
        ] {
            assert!(!regions.allows(piece(address, bytes), false));
            assert_eq!(regions.load(piece(address, bytes)), None);
            assert_eq!(regions.load_for_peer(9, address, bytes), None);
            assert!(!regions.store_for_peer(9, address, &vec![0; bytes as usize]));
        }
        assert!(
            !regions.store(piece(base, 2), &[0; 3]),
            "longer than the piece"
        );
        assert_eq!(regions.change_for_peer(9, base + 9, |_| 0), None);
        assert!(regions.load(piece(base + 15, 1)).is_some());
        assert_eq!(memory, [1; 2]);
    }

    #[test]
    fn a_key_is_valid_only_for_its_registered_region() {
        let mut memory = [1; 2];
        let (mut regions, region, base) = one(&mut memory, RegionAccess::Full);
        assert_eq!(regions.load_for_peer(7, base, 8), None, "the local key");
        let foreign = Sge {
            local_key: 9,
            ..piece(base, 8)
        };
        assert_eq!(regions.load(foreign), None, "the remote key");
        assert_eq!((regions.len(), regions.bytes()), (1, 16));
        let other = Region {
            local_key: 8,
            ..region
        };
        assert!(!regions.remove(other));
        assert!(regions.remove(region) && !regions.remove(region));
        assert_eq!((regions.len(), regions.bytes()), (0, 0));
        assert_eq!(regions.load(piece(base, 8)), None);
        assert_eq!(regions.load_for_peer(9, base, 8), None);
    }
}
