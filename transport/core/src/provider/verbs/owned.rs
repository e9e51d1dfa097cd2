// SPDX-License-Identifier: MIT OR Apache-2.0
//! Keeps memory registered, so that messages in it need no registration of their own. Peers may access our own memory
//! (allocated here for the program) as long as it exists. Of the program's memory, peers may access only exposed
//! ranges, which are registered once for all peers; other registered ranges are only sources of writes by this process.

use std::ptr::NonNull;

use super::keys::Regions;
use super::memory::{SharedMapping, register_exported, register_leased, register_owned};
use super::port::{CallError, RegionAccess, VerbsPort};
use super::rails::Rails;
use super::slab::Slab;
use crate::LocalKey;

/// Our own memory, by address, and registered ranges of the program's memory.
#[derive(Debug)]
pub(super) struct Owned {
    ours: Vec<Ours>,
    kept: Slab<RegisteredRange>,
    /// Keys of the ranges in `kept` that peers may access.
    exposed: Vec<u32>,
}

/// A range of our own memory.
#[derive(Debug)]
struct Ours {
    base: u64,
    bytes: u64,
    regions: Regions,
    /// The mapping, if this provider made it.
    mapping: Option<SharedMapping>,
}

/// A range of the program's memory that stays registered.
#[derive(Debug)]
struct RegisteredRange {
    base: u64,
    bytes: u64,
    regions: Regions,
}

impl Owned {
    pub(super) fn new() -> Self {
        Self {
            ours: Vec::new(),
            kept: Slab::new(),
            exposed: Vec::new(),
        }
    }

    /// Registers memory until it is freed. `mapping`: the mapping, if this provider made it.
    pub(super) fn own<P: VerbsPort>(
        &mut self,
        place: NonNull<u8>,
        bytes: usize,
        mapping: Option<SharedMapping>,
        rails: &mut Rails<P>,
    ) -> Result<(), CallError> {
        let mut regions = Regions::default();
        for (rail, region) in rails.iter_mut().zip(&mut regions) {
            if rail.lost.is_some() {
                continue;
            }
            match register_owned(&mut rail.port, place, bytes) {
                Ok(made) => *region = Some(made),
                Err(error) => {
                    rails.deregister(regions);
                    return Err(error);
                }
            }
        }
        let base = place.as_ptr().expose_provenance() as u64;
        let at = self.ours.partition_point(|ours| ours.base < base);
        let ours = Ours {
            base,
            bytes: bytes as u64,
            regions,
            mapping,
        };
        self.ours.insert(at, ours);
        Ok(())
    }

    /// Deregisters memory that is about to be freed. `true`: this provider had mapped it, and has unmapped it.
    pub(super) fn disown<P: VerbsPort>(
        &mut self,
        place: NonNull<u8>,
        rails: &mut Rails<P>,
    ) -> bool {
        let base = place.as_ptr().expose_provenance() as u64;
        let found = self.ours.binary_search_by_key(&base, |ours| ours.base);
        let Ok(at) = found else { return false };
        let ours = self.ours.remove(at);
        rails.deregister(ours.regions);
        ours.mapping.is_some()
    }

    /// The regions of our own or of exposed memory that contain this whole range.
    pub(super) fn regions(&self, address: u64, bytes: u64) -> Option<Regions> {
        let ours = self.regions_of_ours(address, bytes);
        ours.or_else(|| self.regions_of_exposed(address, bytes).next())
    }

    /// The regions that contain this whole range and have this key on this rail. Memory may be exposed more than once,
    /// so the range by itself does not determine them.
    pub(super) fn regions_with_key(
        &self,
        (rail, key): (u8, u32),
        (address, bytes): (u64, u64),
    ) -> Option<Regions> {
        let ours = self.regions_of_ours(address, bytes).into_iter();
        let mut all = ours.chain(self.regions_of_exposed(address, bytes));
        let has_key = |regions: &Regions| {
            let region = regions.get(usize::from(rail)).copied().flatten();
            region.is_some_and(|region| region.remote_key == key)
        };
        all.find(has_key)
    }

    fn regions_of_ours(&self, address: u64, bytes: u64) -> Option<Regions> {
        let after = self.ours.partition_point(|ours| ours.base <= address);
        let ours = self.ours.get(after.checked_sub(1)?)?;
        let end = (address - ours.base).checked_add(bytes)?;
        (end <= ours.bytes).then_some(ours.regions)
    }

    fn regions_of_exposed(&self, address: u64, bytes: u64) -> impl Iterator<Item = Regions> {
        let all = self.exposed.iter().map(|number| LocalKey(*number));
        all.filter_map(move |key| self.kept_regions(Some(key), address, bytes))
    }

    /// Registers memory of the program on each rail where that is possible, so that any peer can be given a key to any
    /// part of the memory. `None`: the memory is empty, or was allocated by this provider and so is registered already,
    /// or no rail can register it. In the last case each export registers its part.
    pub(super) fn expose<P: VerbsPort>(
        &mut self,
        base: u64,
        bytes: usize,
        rails: &mut Rails<P>,
    ) -> Option<LocalKey> {
        if bytes == 0 || self.regions_of_ours(base, bytes as u64).is_some() {
            return None;
        }
        let mut regions = Regions::default();
        for (rail, region) in rails.iter_mut().zip(&mut regions) {
            if rail.lost.is_none() {
                *region = register_exported(&mut rail.port, base, bytes).ok();
            }
        }
        let key = self.insert(base, bytes as u64, regions)?;
        self.exposed.push(key.0);
        Some(key)
    }

    /// Registers memory of the program for many writes from it. `None`: the memory is empty or registered already, or
    /// no rail can register it; then each write registers its part.
    pub(super) fn keep<P: VerbsPort>(
        &mut self,
        base: u64,
        bytes: u64,
        rails: &mut Rails<P>,
    ) -> Option<LocalKey> {
        if bytes == 0 || self.regions(base, bytes).is_some() {
            return None;
        }
        let mut regions = Regions::default();
        for (rail, region) in rails.iter_mut().zip(&mut regions) {
            if rail.lost.is_none() {
                *region = register_leased(&mut rail.port, base, bytes, RegionAccess::OwnRead).ok();
            }
        }
        self.insert(base, bytes, regions)
    }

    fn insert(&mut self, base: u64, bytes: u64, regions: Regions) -> Option<LocalKey> {
        let kept = RegisteredRange {
            base,
            bytes,
            regions,
        };
        let is_known = regions.iter().any(Option::is_some);
        is_known.then(|| LocalKey(self.kept.insert(kept)))
    }

    /// Deregisters a range.
    pub(super) fn keep_no_more<P: VerbsPort>(&mut self, key: LocalKey, rails: &mut Rails<P>) {
        self.exposed.retain(|number| *number != key.0);
        if let Some(kept) = self.kept.remove(key.0) {
            rails.deregister(kept.regions);
        }
    }

    /// The regions of the registered range with this key, if that contains the whole memory.
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

    /// Deregisters everything.
    pub(super) fn retire<P: VerbsPort>(&mut self, rails: &mut Rails<P>) {
        for number in self.kept.numbers() {
            self.keep_no_more(LocalKey(number), rails);
        }
        for ours in std::mem::take(&mut self.ours) {
            rails.deregister(ours.regions);
            // Memory that the program still holds stays mapped.
            std::mem::forget(ours.mapping);
        }
    }
}
