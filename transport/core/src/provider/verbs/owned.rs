// SPDX-License-Identifier: MIT OR Apache-2.0
//! Memory that stays registered: what is in it moves without a registration for each message. To our own, which the program
//! has from here, peers reach for as long as it is there; from the program's there are only writes.

use std::ptr::NonNull;

use super::Verbs;
use super::keys::Regions;
use super::memory::{Shared, register_leased, register_owned};
use super::port::{Access, Port};
use crate::LocalKey;

/// A stretch of it.
#[derive(Debug)]
pub(super) struct Owned {
    base: u64,
    bytes: u64,
    regions: Regions,
    /// The mapping, where it is this provider's.
    mapping: Option<Shared>,
}

/// A stretch of the program's memory.
#[derive(Debug)]
pub(super) struct Kept {
    base: u64,
    bytes: u64,
    regions: Regions,
}

impl<P: Port> Verbs<P> {
    /// Memory that stays registered until it is freed: zero, aligned to a page, shared with child processes. `None`: no more
    /// can be mapped or registered.
    pub(in crate::provider) fn allocate(&mut self, bytes: usize) -> Option<NonNull<u8>> {
        let mapping = Shared::new(bytes)?;
        let place = mapping.place();
        self.own_with(place, bytes, Some(mapping)).then_some(place)
    }

    /// Keeps memory registered that another provider has allocated, if that is possible.
    pub(in crate::provider) fn own(&mut self, place: NonNull<u8>, bytes: usize) {
        self.own_with(place, bytes, None);
    }

    fn own_with(&mut self, place: NonNull<u8>, bytes: usize, mapping: Option<Shared>) -> bool {
        let mut regions = Regions::default();
        for (rail, region) in self.rails.iter_mut().zip(&mut regions) {
            if rail.lost.is_some() {
                continue;
            }
            match register_owned(&mut rail.port, place, bytes) {
                Ok(made) => *region = Some(made),
                Err(error) => {
                    self.rails.deregister(regions);
                    self.complain_of_registration(&error, bytes as u64);
                    return false;
                }
            }
        }
        let base = place.as_ptr().expose_provenance() as u64;
        let at = self.owned.partition_point(|owned| owned.base < base);
        let owned = Owned {
            base,
            bytes: bytes as u64,
            regions,
            mapping,
        };
        self.owned.insert(at, owned);
        true
    }

    /// Forgets memory that is about to be freed. `true`: it was this provider's, and is freed.
    pub(in crate::provider) fn disown(&mut self, place: NonNull<u8>) -> bool {
        let base = place.as_ptr().expose_provenance() as u64;
        let found = self.owned.binary_search_by_key(&base, |owned| owned.base);
        let Ok(at) = found else { return false };
        let owned = self.owned.remove(at);
        self.rails.deregister(owned.regions);
        owned.mapping.is_some()
    }

    /// The regions that all of this memory is in.
    pub(super) fn owned_regions(&self, address: u64, bytes: u64) -> Option<Regions> {
        let after = self.owned.partition_point(|owned| owned.base <= address);
        let owned = self.owned.get(after.checked_sub(1)?)?;
        let end = (address - owned.base).checked_add(bytes)?;
        (end <= owned.bytes).then_some(owned.regions)
    }

    /// Registers memory of the program's for many writes from there. `None`: it is known already, or cannot be registered; then
    /// each write tries to register what it moves.
    pub(in crate::provider) fn keep_registered(
        &mut self,
        base: u64,
        bytes: u64,
    ) -> Option<LocalKey> {
        if bytes == 0 || self.owned_regions(base, bytes).is_some() {
            return None;
        }
        let mut regions = Regions::default();
        for (rail, region) in self.rails.iter_mut().zip(&mut regions) {
            if rail.lost.is_none() {
                *region = register_leased(&mut rail.port, base, bytes, Access::OwnRead).ok();
            }
        }
        let kept = Kept {
            base,
            bytes,
            regions,
        };
        let is_known = regions.iter().any(Option::is_some);
        is_known.then(|| LocalKey(self.kept.insert(kept)))
    }

    /// Forgets it.
    pub(in crate::provider) fn keep_no_more(&mut self, key: LocalKey) {
        if let Some(kept) = self.kept.remove(key.0) {
            self.rails.deregister(kept.regions);
        }
    }

    /// The regions that memory is in which is known by a key.
    pub(super) fn kept_regions(
        &self,
        key: Option<LocalKey>,
        address: u64,
        bytes: u64,
    ) -> Option<Regions> {
        let kept = self.kept.get(key?.0)?;
        let end = address.checked_sub(kept.base)?.checked_add(bytes)?;
        (end <= kept.bytes).then_some(kept.regions)
    }

    /// Forgets all of it.
    pub(super) fn disown_all(&mut self) {
        for number in self.kept.numbers() {
            self.keep_no_more(LocalKey(number));
        }
        for owned in std::mem::take(&mut self.owned) {
            self.rails.deregister(owned.regions);
            // What the program still holds stays mapped.
            std::mem::forget(owned.mapping);
        }
    }
}
