// SPDX-License-Identifier: MIT OR Apache-2.0
//! Registered memory for tests: each region is a vector.

use roce::{AccessError, MemoryAccess, RegisteredMemory, RoceSge};

#[derive(Debug, Default)]
pub(crate) struct Arena {
    regions: Vec<Region>,
}

#[derive(Debug)]
struct Region {
    key: u32,
    address: u64,
    bytes: Vec<u8>,
    denied: Vec<MemoryAccess>,
}

impl Arena {
    /// Registers memory with all access rights, at the [`address`] of its key.
    pub(crate) fn add(&mut self, key: u32, bytes: Vec<u8>) {
        self.add_at(key, address(key), bytes);
    }

    /// Registers memory with all access rights, at any address.
    pub(crate) fn add_at(&mut self, key: u32, address: u64, bytes: Vec<u8>) {
        self.regions.push(Region {
            key,
            address,
            bytes,
            denied: Vec::new(),
        });
    }

    pub(crate) fn deny(&mut self, key: u32, access: MemoryAccess) {
        let region = self.regions.iter_mut().find(|region| region.key == key);
        region.expect("it was added").denied.push(access);
    }

    pub(crate) fn remove(&mut self, key: u32) {
        self.regions.retain(|region| region.key != key);
    }

    pub(crate) fn bytes(&self, key: u32) -> &[u8] {
        let region = self.regions.iter().find(|region| region.key == key);
        &region.expect("it was added").bytes
    }

    /// The bytes that a carrier gathers for a payload.
    pub(crate) fn gather(&self, sge: RoceSge) -> &[u8] {
        let region = self.region(sge.key).expect("the engine has checked it");
        let from = region.offset(sge.address, sge.bytes.into());
        &region.bytes[from.expect("the engine has checked it")..][..sge.bytes as usize]
    }

    fn region(&self, key: u32) -> Result<&Region, AccessError> {
        let region = self.regions.iter().find(|region| region.key == key);
        region.ok_or(AccessError::Key { key })
    }

    fn slice(&mut self, key: u32, address: u64, bytes: u64) -> Result<&mut [u8], AccessError> {
        let region = self.regions.iter_mut().find(|region| region.key == key);
        let region = region.ok_or(AccessError::Key { key })?;
        let from = region.offset(address, bytes)?;
        let len = usize::try_from(bytes).unwrap_or(usize::MAX);
        Ok(&mut region.bytes[from..from + len])
    }

    fn change(
        &mut self,
        key: u32,
        address: u64,
        change: impl FnOnce(u64) -> u64,
    ) -> Result<u64, AccessError> {
        let place = self.slice(key, address, 8)?;
        let mut old = [0; 8];
        old.copy_from_slice(place);
        let old = u64::from_ne_bytes(old);
        place.copy_from_slice(&change(old).to_ne_bytes());
        Ok(old)
    }
}

impl Region {
    fn offset(&self, address: u64, bytes: u64) -> Result<usize, AccessError> {
        let from = address.checked_sub(self.address);
        let fits = |from: &u64| {
            let end = from.checked_add(bytes);
            end.is_some_and(|end| end <= self.bytes.len() as u64)
        };
        let from = from
            .filter(fits)
            .and_then(|from| usize::try_from(from).ok());
        from.ok_or(AccessError::Bounds {
            key: self.key,
            address,
            bytes,
        })
    }
}

impl RegisteredMemory for Arena {
    fn check(
        &self,
        key: u32,
        address: u64,
        bytes: u64,
        access: MemoryAccess,
    ) -> Result<(), AccessError> {
        let region = self.region(key)?;
        region.offset(address, bytes)?;
        match region.denied.contains(&access) {
            true => Err(AccessError::Denied { key, access }),
            false => Ok(()),
        }
    }

    fn place(&mut self, key: u32, address: u64, bytes: &[u8]) -> Result<(), AccessError> {
        let place = self.slice(key, address, bytes.len() as u64)?;
        place.copy_from_slice(bytes);
        Ok(())
    }

    fn fetch_add(&mut self, key: u32, address: u64, add: u64) -> Result<u64, AccessError> {
        self.change(key, address, |old| old.wrapping_add(add))
    }

    fn compare_swap(
        &mut self,
        key: u32,
        address: u64,
        compare: u64,
        swap: u64,
    ) -> Result<u64, AccessError> {
        self.change(key, address, |old| if old == compare { swap } else { old })
    }
}

/// Address of the region of a key.
pub(crate) fn address(key: u32) -> u64 {
    u64::from(key) << 32
}

/// `bytes` bytes from `offset` on of the region of a key, if that region is at the [`address`] of its key.
pub(crate) fn sge(key: u32, offset: u32, bytes: u32) -> RoceSge {
    RoceSge {
        key,
        address: address(key) + u64::from(offset),
        bytes,
    }
}
