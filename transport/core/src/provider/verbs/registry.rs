// SPDX-License-Identifier: MIT OR Apache-2.0
//! Registered memory of this process: permanent registrations, exports to peers, and bounce buffers. This file does the
//! bookkeeping; its callers decide which peer gets which key.

use std::collections::HashMap;

use super::NetLimits;
use super::bounce::{Bounce, Bounces};
use super::keys::{Regions, first_of, low, rail_of, sealed};
use super::memory::register_leased;
use super::owned::Owned;
use super::port::{CallError, RegionAccess, VerbsPort};
use super::rails::Rails;
use super::work::{Registered, Work, WorkKind, WorkMemory};
use crate::RemoteKey;

/// The registered memory of this process.
#[derive(Debug)]
pub(super) struct RegionRegistry {
    pub(super) owned: Owned,
    /// Exported memory, by the rail and the key that were sent to the peer.
    exports: HashMap<(u8, u32), ExportedRegion>,
    /// Number of keys that were given to peers and not withdrawn.
    lent: u32,
    /// Bounce buffers for small reads.
    arrivals: Bounces,
    /// Bounce buffers for copies of small data that peers read.
    offers: Bounces,
    /// Largest transfer that is copied, in bytes.
    copied_bytes: u64,
}

/// Memory that a peer may access.
#[derive(Debug)]
pub(super) struct ExportedRegion {
    peer: u32,
    address: u64,
    bytes: u64,
    pub(super) regions: Regions,
    /// The bounce buffer that holds the copy, if a copy is exported.
    pub(super) bounce: Option<Bounce>,
}

impl RegionRegistry {
    pub(super) fn new(limits: &NetLimits) -> Self {
        Self {
            owned: Owned::new(),
            exports: HashMap::new(),
            lent: 0,
            arrivals: Bounces::new(RegionAccess::Own, limits.copied_bytes),
            offers: Bounces::new(RegionAccess::Read, limits.copied_bytes),
            copied_bytes: limits.copied_bytes,
        }
    }

    /// Sets the memory limit of the bounce buffers.
    pub(super) fn grant(&mut self, bytes: usize) {
        self.arrivals.grant(bytes / 2);
        self.offers.grant(bytes / 2);
    }

    /// Memory of the bounce buffers now, and its maximum; both in bytes.
    pub(super) fn bounced_bytes(&self) -> (usize, usize) {
        let (arrivals, offers) = (&self.arrivals, &self.offers);
        (
            arrivals.bytes() + offers.bytes(),
            arrivals.most_bytes() + offers.most_bytes(),
        )
    }

    /// Whether these data are copied through a bounce buffer: if they are few, and their memory is not registered.
    pub(super) fn is_copied(&self, address: u64, bytes: u64) -> bool {
        let few = bytes != 0 && bytes <= self.copied_bytes;
        few && self.owned.regions(address, bytes).is_none()
    }

    /// Whether any memory is exported.
    pub(super) fn is_any_lent(&self) -> bool {
        self.lent != 0
    }

    /// Makes the key for registered memory, and exports it to a peer. `main`: the preferred rail. `None`: it is
    /// registered on no rail.
    pub(super) fn export(
        &mut self,
        (source_number, peer): (u32, u32),
        (address, bytes): (u64, u64),
        regions: Regions,
        main: u8,
    ) -> Option<RemoteKey> {
        let (rail, region) = first_of(&regions, main)?;
        let key = sealed(
            address,
            bytes,
            rail,
            region.remote_key,
            (source_number, peer),
        );
        if self.owned.regions(address, bytes).is_none() {
            let export = ExportedRegion {
                peer,
                address,
                bytes,
                regions,
                bounce: None,
            };
            self.exports.insert((rail, region.remote_key), export);
        }
        self.lent += 1;
        Some(key)
    }

    /// Exports a copy of the bytes. `None`: there is no free buffer. A key without access: the buffer is registered on
    /// no rail.
    pub(super) fn export_copy<P: VerbsPort>(
        &mut self,
        (source_number, peer): (u32, u32),
        (address, bytes): (u64, u64),
        main: u8,
        rails: &mut Rails<P>,
    ) -> Option<RemoteKey> {
        let bounce = self.offers.take(rails, main)?;
        let (place, regions) = self.offers.place(&bounce);
        let Some((rail, region)) = first_of(&regions, main) else {
            self.offers.give_back(bounce);
            return Some(RemoteKey::default());
        };
        self.offers
            .fill(&bounce, address, crate::mr::to_usize(bytes));
        let export = ExportedRegion {
            peer,
            address: place,
            bytes,
            regions,
            bounce: Some(bounce),
        };
        self.exports.insert((rail, region.remote_key), export);
        self.lent += 1;
        Some(sealed(
            place,
            bytes,
            rail,
            region.remote_key,
            (source_number, peer),
        ))
    }

    /// Withdraws a key; returns the memory if it was registered or copied for this key, and the caller deregisters it
    /// or returns its buffer. `None`: the memory stays registered.
    pub(super) fn withdraw(&mut self, key: RemoteKey) -> Option<ExportedRegion> {
        self.lent = self.lent.saturating_sub(1);
        self.exports.remove(&(rail_of(key.check), low(key.check)))
    }

    /// Returns the buffer of a copy. `is_read`: a peer may still read it (B3 of `bounce.rs`).
    pub(super) fn give_back<P: VerbsPort>(
        &mut self,
        bounce: Bounce,
        is_read: bool,
        rails: &mut Rails<P>,
    ) {
        if is_read {
            self.offers.give_back_rekeyed(bounce, rails);
        } else {
            self.offers.give_back(bounce);
        }
    }

    /// The regions of memory exported to this peer under this check value. `None`: there is no such memory, or the
    /// range is empty or not inside that memory.
    pub(super) fn exported(
        &self,
        peer: u32,
        check: u64,
        address: u64,
        bytes: u64,
    ) -> Option<Regions> {
        let name = (rail_of(check), low(check));
        if let Some(export) = self.exports.get(&name) {
            let from = address.checked_sub(export.address)?;
            let end = from.checked_add(bytes)?;
            let is_theirs = export.peer == peer && bytes != 0 && end <= export.bytes;
            return is_theirs.then_some(export.regions);
        }
        // Permanently registered memory is accessible as a whole to all holders of its key.
        let known = self.owned.regions_with_key(name, (address, bytes));
        known.filter(|_| bytes != 0)
    }

    /// The key of a work's memory on its rail, and the region if the memory was registered only for this work.
    pub(super) fn register<P: VerbsPort>(
        &mut self,
        memory: WorkMemory,
        rails: &mut Rails<P>,
    ) -> Result<Registered, CallError> {
        let rail = usize::from(memory.rail);
        if let Some((peer, check)) = memory.export {
            let regions = self.exported(peer, check, memory.base, memory.bytes);
            let region = regions.and_then(|regions| regions[rail]);
            let region = region.ok_or(NOT_EXPORTED)?;
            return Ok(Registered {
                local_key: region.local_key,
                region: None,
            });
        }
        let (base, bytes) = (memory.base, memory.bytes);
        let owned = self.owned.regions(base, bytes);
        let known = owned.or_else(|| self.owned.kept_regions(memory.local, base, bytes));
        let known = known.or_else(|| self.arrivals.regions_at(base));
        if let Some(region) = known.and_then(|regions| regions[rail]) {
            let local_key = region.local_key;
            return Ok(Registered {
                local_key,
                region: None,
            });
        }
        let port = &mut rails[rail].port;
        let region = register_leased(port, base, bytes, memory.access)?;
        Ok(Registered {
            local_key: region.local_key,
            region: Some(region),
        })
    }

    /// Directs a read into a bounce buffer, if its data are to be [copied](Self::is_copied) and a buffer is free.
    pub(super) fn divert<P: VerbsPort>(&mut self, work: &mut Work, rails: &mut Rails<P>) {
        let is_whole = work.kind == WorkKind::Read && work.lease.is_some() && work.local.is_none();
        if is_whole && self.is_copied(work.base, work.bytes) {
            work.bounce = self.arrivals.take(rails, work.rail);
        }
        if let Some(bounce) = &work.bounce {
            (work.base, _) = self.arrivals.place(bounce);
        }
    }

    /// Copies a finished read out of its bounce buffer, if it succeeded. Returns the buffer, unless a device may still
    /// write there (B1).
    pub(super) fn copy_out_read(&mut self, work: &mut Work, is_done: bool) {
        let Some(bounce) = work.bounce.take() else {
            return;
        };
        if let Some(lease) = work.lease.as_mut().filter(|_| is_done) {
            self.arrivals.copy_to(&bounce, lease);
        }
        if work.in_flight == 0 {
            self.arrivals.give_back(bounce);
        }
    }

    /// Deregisters all exported memory.
    pub(super) fn withdraw_all<P: VerbsPort>(&mut self, rails: &mut Rails<P>) {
        for (_, export) in std::mem::take(&mut self.exports) {
            // Copies are deregistered with the bounce buffers.
            if export.bounce.is_none() {
                rails.deregister(export.regions);
            }
        }
    }

    /// Deregisters all bounce buffers.
    pub(super) fn retire_bounces<P: VerbsPort>(&mut self, rails: &mut Rails<P>) {
        self.arrivals.retire(rails);
        self.offers.retire(rails);
    }
}

/// The error if the peer has no access to the memory, or not over this rail.
const NOT_EXPORTED: CallError = CallError {
    call: "ibv_reg_mr",
    errno: libc::EACCES,
};

#[cfg(test)]
mod tests {
    use super::super::memory::SharedMapping;
    use super::super::rails::one_rail;
    use super::*;

    const ME: u32 = 0;
    const PEER: u32 = 1;
    const BYTES: usize = 8192;

    #[test]
    fn owned_memory_is_registered_until_it_is_freed() {
        let (mut registry, mut rails) = (RegionRegistry::new(&NetLimits::DEFAULT), one_rail());
        let mapping = SharedMapping::new(BYTES).unwrap();
        let (place, owned) = (mapping.place(), &mut registry.owned);
        owned.own(place, BYTES, Some(mapping), &mut rails).unwrap();
        let base = place.as_ptr().expose_provenance() as u64;
        let (bytes, half) = (BYTES as u64, BYTES as u64 / 2);
        assert!(owned.regions(base, bytes).is_some() && owned.regions(base + half, half).is_some());
        assert!(owned.regions(base + 1, bytes).is_none() && owned.regions(base - 1, 1).is_none());
        assert!(owned.regions(base + 1, u64::MAX).is_none());
        assert!(
            owned.keep(base, half, &mut rails).is_none(),
            "it is known already"
        );
        assert!(!registry.is_copied(base, 8) && registry.is_copied(base + bytes, 8));
        assert!(registry.owned.disown(place, &mut rails));
        assert!(registry.owned.regions(base, 1).is_none());
        assert!(
            !registry.owned.disown(place, &mut rails),
            "it is not there any more"
        );
    }

    #[test]
    fn an_exported_copy_is_found_by_its_peer_only_until_withdrawn() {
        let (mut registry, mut rails) = (RegionRegistry::new(&NetLimits::DEFAULT), one_rail());
        let data = [7_u8; 64];
        let memory = (data.as_ptr().expose_provenance() as u64, 64);
        let copy = registry.export_copy((ME, PEER), memory, 0, &mut rails);
        assert_eq!(copy, None, "no buffer was granted");
        registry.grant(1 << 20);
        let copy = registry.export_copy((ME, PEER), memory, 0, &mut rails);
        let key = copy.unwrap();
        let is_found = |registry: &RegionRegistry, peer, from, bytes| {
            let regions = registry.exported(peer, key.check, key.address + from, bytes);
            regions.is_some()
        };
        assert!(is_found(&registry, PEER, 0, 64) && is_found(&registry, PEER, 60, 4));
        assert!(!is_found(&registry, PEER + 1, 0, 64), "another peer");
        assert!(!is_found(&registry, PEER, 60, 5) && !is_found(&registry, PEER, 0, 0));
        assert!(registry.is_any_lent());
        let bounce = registry.withdraw(key).and_then(|export| export.bounce);
        assert!(!registry.is_any_lent() && !is_found(&registry, PEER, 0, 64));
        registry.give_back(bounce.unwrap(), false, &mut rails);
        let again = registry.export_copy((ME, PEER), memory, 0, &mut rails);
        assert_eq!(again, Some(key), "the same buffer with the same key");
    }

    #[test]
    fn a_buffer_that_may_still_be_read_gets_another_key() {
        let (mut registry, mut rails) = (RegionRegistry::new(&NetLimits::DEFAULT), one_rail());
        registry.grant(1 << 20);
        let data = [7_u8; 64];
        let memory = (data.as_ptr().expose_provenance() as u64, 64);
        let copy = registry.export_copy((ME, PEER), memory, 0, &mut rails);
        let key = copy.unwrap();
        let bounce = registry.withdraw(key).and_then(|export| export.bounce);
        registry.give_back(bounce.unwrap(), true, &mut rails);
        let copy = registry.export_copy((ME, PEER), memory, 0, &mut rails);
        let again = copy.unwrap();
        assert_eq!(again.address, key.address);
        assert_ne!(again.check, key.check);
    }
}
