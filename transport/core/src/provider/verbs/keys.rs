// SPDX-License-Identifier: MIT OR Apache-2.0
//! Exported memory of this process, and remote keys of peers.
//!
//! A key names memory on one rail of its owner. The keys for the owner's other rails are sent to the peer in a packet
//! of the stream, and only for large memory: without a key for a rail, the memory is not transferred over that rail.
//! Keys may be missing or outdated. An outdated key gives no access, or access to the intended bytes: a request
//! contains an address of the owner's process, which the device accepts only inside the region of the key.

use std::collections::VecDeque;

use super::arrive::KEYS;
use super::port::{CallError, Region, VerbsPort};
use super::rail::MOST_RAILS;
use super::streams::VerbsStreams;
use super::transfers::VerbsTransfers;
use super::wire::{BEGINS, ENDS};
use crate::{Head, Peer, RemoteKey};

/// The regions of registered memory, by rail.
pub(super) type Regions = [Option<Region>; MOST_RAILS];
/// Remote keys of one range of memory, by the rails of its owner; 0: no key for this rail.
pub(super) type Keys = [u32; MOST_RAILS];

/// Remote keys that peers have sent for their other rails; only the newest ones are kept, up to a limit.
#[derive(Debug, Default)]
pub(super) struct PeerKeys(VecDeque<(u32, RemoteKey, Keys)>);

impl PeerKeys {
    /// Maximum memory of this table, in bytes.
    pub(super) const MOST_BYTES: usize = MOST_KEPT_KEYS * size_of::<(u32, RemoteKey, Keys)>();

    fn put(&mut self, peer: u32, key: RemoteKey, keys: Keys) {
        self.0.retain(|entry| (entry.0, entry.1) != (peer, key));
        if self.0.len() == MOST_KEPT_KEYS {
            self.0.pop_front();
        }
        self.0.push_back((peer, key, keys));
    }

    fn of(&self, peer: u32, key: RemoteKey) -> Option<Keys> {
        let mut all = self.0.iter();
        let found = all.find(|entry| (entry.0, entry.1) == (peer, key));
        found.map(|(_, _, keys)| *keys)
    }

    /// The keys to a peer's memory, one of which is `key`. `may_have_more`: the peer may have sent keys for its other
    /// rails.
    pub(super) fn keys_to(&self, peer: u32, key: RemoteKey, may_have_more: bool) -> Keys {
        let entry = may_have_more.then(|| self.of(peer, key)).flatten();
        let mut keys = entry.unwrap_or_default();
        keys[usize::from(rail_of(key.check))] = low(key.check);
        keys
    }
}

impl VerbsTransfers {
    /// Gives `peer` access to memory; returns the key. If the memory cannot be registered, the key is zero, and gives
    /// no access.
    pub(super) fn export<P: VerbsPort>(
        &mut self,
        streams: &mut VerbsStreams<P>,
        peer: Peer,
        address: u64,
        bytes: u64,
    ) -> RemoteKey {
        let Some(length) = usize::try_from(bytes).ok().filter(|length| *length != 0) else {
            return RemoteKey::default();
        };
        let regions = match self.registry.owned.regions(address, bytes) {
            Some(regions) => regions,
            None => match self.register_for(streams, peer.0, address, length) {
                Ok(regions) => regions,
                // Memory that cannot be registered (there is a limit) is sent through buffers.
                Err(error) => {
                    streams.links.warn_of_registration(&error, bytes);
                    return RemoteKey::default();
                }
            },
        };
        let remote = streams.links.peers.of(peer.0);
        let (names, memory) = ((remote.source_number, peer.0), (address, bytes));
        let main = remote.main.rail;
        let Some(key) = self.registry.export(names, memory, regions, main) else {
            return RemoteKey::default();
        };
        let several = regions.iter().flatten().count() > 1;
        if several
            && bytes >= streams.links.limits.striped_bytes
            && !streams.links.peers.of(peer.0).others().is_empty()
        {
            self.send_keys(streams, peer.0, key, &regions);
        }
        key
    }

    /// Lets `peer` read memory whose contents do not change meanwhile. Small memory that is not registered is copied to
    /// a bounce buffer, if one is free.
    pub(super) fn offer<P: VerbsPort>(
        &mut self,
        streams: &mut VerbsStreams<P>,
        peer: Peer,
        address: u64,
        bytes: u64,
    ) -> RemoteKey {
        let is_copied = self.registry.is_copied(address, bytes);
        let is_small = is_copied && bytes < streams.links.limits.striped_bytes;
        let remote = streams.links.peers.of(peer.0);
        let (names, memory) = ((remote.source_number, peer.0), (address, bytes));
        let main = remote.main.rail;
        let rails = &mut streams.links.rails;
        let copy = is_small.then(|| self.registry.export_copy(names, memory, main, rails));
        match copy.flatten() {
            Some(key) => key,
            None => self.export(streams, peer, address, bytes),
        }
    }

    /// Registers memory on the main rail to a peer; large memory also on those of the other rails to the peer where
    /// that is possible now.
    pub(super) fn register_for<P: VerbsPort>(
        &mut self,
        streams: &mut VerbsStreams<P>,
        peer: u32,
        address: u64,
        bytes: usize,
    ) -> Result<Regions, CallError> {
        let least = streams.links.limits.striped_bytes;
        let remote = streams.links.peers.of(peer);
        let main = remote.main.rail;
        let mut others = [false; MOST_RAILS];
        if bytes as u64 >= least {
            for link in remote.others() {
                others[usize::from(link.rail)] = true;
            }
        }
        streams.links.rails.register(main, others, address, bytes)
    }

    /// Sends a peer the keys for the other rails, if there is room.
    fn send_keys<P: VerbsPort>(
        &mut self,
        streams: &mut VerbsStreams<P>,
        peer: u32,
        key: RemoteKey,
        regions: &Regions,
    ) {
        let remote = streams.links.peers.of(peer);
        if remote.is_lost() {
            return;
        }
        let head = Head {
            kind: KEYS,
            len: 0,
            flags: 0,
            word: key.check,
        };
        let mut body = [0; KEYS_BYTES];
        body[..8].copy_from_slice(&key.address.to_le_bytes());
        body[8..16].copy_from_slice(&key.bytes.to_le_bytes());
        for (place, region) in body[16..].chunks_exact_mut(4).zip(regions) {
            let key = region.map_or(0, |region| region.remote_key);
            place.copy_from_slice(&key.to_le_bytes());
        }
        // If there is no room for the packet, the memory is transferred over one rail only.
        if streams.keep(peer, head, BEGINS | ENDS, &body).is_ok() {
            streams.flush(peer);
        }
    }

    /// Records keys that a peer has sent.
    #[cold]
    pub(super) fn take_keys<P: VerbsPort>(
        &mut self,
        streams: &mut VerbsStreams<P>,
        peer: u32,
        check: u64,
        [address, bytes, a, b]: [u64; 4],
    ) {
        let key = RemoteKey {
            address,
            bytes,
            check,
        };
        let remote = streams.links.peers.of(peer);
        let is_one_of_several = remote.more.is_some();
        if !is_one_of_several || !is_sealed(key, peer, remote.source_number) {
            streams.links.counts.refused.add(1);
            return;
        }
        let halves = |word: u64| [low(word), low(word >> 32)];
        let ([a, b], [c, d]) = (halves(a), halves(b));
        self.peer_keys.put(peer, key, [a, b, c, d]);
    }

    /// Withdraws a key that [`export`](Self::export) or [`offer`](Self::offer) returned. Memory that stays registered
    /// remains accessible to the peer until it is freed: all messages in that memory share one key, and other messages
    /// may be in flight.
    pub(super) fn withdraw<P: VerbsPort>(
        &mut self,
        streams: &mut VerbsStreams<P>,
        peer: Peer,
        key: RemoteKey,
    ) {
        let source_number = streams.links.peers.of(peer.0).source_number;
        if !is_sealed(key, source_number, peer.0) {
            return;
        }
        let Some(export) = self.registry.withdraw(key) else {
            return;
        };
        let Some(bounce) = export.bounce else {
            streams.links.rails.deregister(export.regions);
            self.recall(streams, peer.0, key.check);
            return;
        };
        let is_read =
            self.recall(streams, peer.0, key.check) || streams.links.peers.of(peer.0).is_lost();
        self.registry
            .give_back(bounce, is_read, &mut streams.links.rails);
    }
}

/// The region on rail `main`, or on another rail if there is none.
pub(super) fn first_of(regions: &Regions, main: u8) -> Option<(u8, Region)> {
    let region = regions[usize::from(main)].map(|region| (main, region));
    region.or_else(|| {
        let mut all = (0..).zip(regions);
        all.find_map(|(rail, region)| Some((rail, (*region)?)))
    })
}

/// Makes a remote key. From the lowest bit on, `check` holds the device's `rkey` (32 bits), the owner's rail (2 bits),
/// and a checksum, the seal.
pub(super) fn sealed(
    address: u64,
    bytes: u64,
    rail: u8,
    remote_key: u32,
    names: (u32, u32),
) -> RemoteKey {
    let check = u64::from(rail) << RAIL_SHIFT | u64::from(remote_key);
    let key = RemoteKey {
        address,
        bytes,
        check,
    };
    RemoteKey {
        check: check | seal(key, names),
        ..key
    }
}

/// The seal of a key. It detects a key that was damaged, or made for another peer, before a device breaks its queue
/// pair because of that key. The seal is no secret: the device's own check protects the memory. Both ends compute it
/// from the key and the numbers by which they address each other.
fn seal(key: RemoteKey, (owner, reader): (u32, u32)) -> u64 {
    let mut sum = 0x9e37_79b9_7f4a_7c15;
    let names = u64::from(owner) << 32 | u64::from(reader);
    let named = name_of(key.check);
    for word in [key.address, key.bytes, named, names] {
        sum = (sum ^ word).wrapping_mul(0xff51_afd7_ed55_8ccd);
        sum ^= sum >> 32;
    }
    (sum | 1) << SEAL_SHIFT
}

pub(super) fn is_sealed(key: RemoteKey, owner: u32, reader: u32) -> bool {
    key.check >> SEAL_SHIFT == seal(key, (owner, reader)) >> SEAL_SHIFT
}

/// The check value of a key without the seal.
pub(super) fn name_of(check: u64) -> u64 {
    check & ((1 << SEAL_SHIFT) - 1)
}

/// The owner's rail in the check value of a key.
pub(super) fn rail_of(check: u64) -> u8 {
    #[allow(clippy::cast_possible_truncation, reason = "two bits")]
    let rail = (check >> RAIL_SHIFT) as u8 & 3;
    rail
}

#[allow(clippy::cast_possible_truncation, reason = "the low half")]
pub(super) fn low(word: u64) -> u32 {
    word as u32
}

const RAIL_SHIFT: u32 = 32;
const SEAL_SHIFT: u32 = 34;
/// Maximum number of memory ranges whose keys are kept.
const MOST_KEPT_KEYS: usize = 256;
/// Length of a packet with keys, in bytes.
const KEYS_BYTES: usize = 16 + 4 * MOST_RAILS;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_key_seal_covers_rail_peers_and_address() {
        let key = sealed(0x1000, 64, 2, 0xabcd, (3, 4));
        assert!(is_sealed(key, 3, 4) && !is_sealed(key, 4, 3));
        assert_eq!((rail_of(key.check), low(key.check)), (2, 0xabcd));
        for bit in 0..64 {
            let check = key.check ^ 1 << bit;
            assert!(!is_sealed(RemoteKey { check, ..key }, 3, 4), "bit {bit}");
        }
        let address = key.address + 1;
        assert!(!is_sealed(RemoteKey { address, ..key }, 3, 4));
    }

    #[test]
    fn the_newest_keys_are_remembered() {
        let mut entry = PeerKeys::default();
        let key = |address| sealed(address, 8, 0, 1, (0, 1));
        for address in 0..=MOST_KEPT_KEYS as u64 {
            entry.put(7, key(address), [1, 2, 3, 4]);
        }
        assert_eq!(entry.of(7, key(0)), None);
        assert_eq!(entry.of(7, key(1)), Some([1, 2, 3, 4]));
        assert_eq!(entry.of(8, key(1)), None, "another peer's");
        entry.put(7, key(1), [5; 4]);
        let now = (entry.of(7, key(1)), entry.0.len());
        assert_eq!(now, (Some([5; 4]), MOST_KEPT_KEYS));
    }
}
