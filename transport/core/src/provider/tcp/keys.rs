// SPDX-License-Identifier: MIT OR Apache-2.0
//! The table of memory of this process that peers may access. A key is valid only if it is in this table, word for word
//! and for the peer that uses it; its `check` is an unguessable number. Every access looks the key up again, so no
//! memory is accessed under a key that was withdrawn.

use std::collections::HashMap;

use super::memory::MemoryRange;
use crate::RemoteKey;

/// The table: peers and keys.
#[derive(Debug, Default)]
pub(super) struct Exports(HashMap<(u32, RemoteKey), ExportedKey>);

/// The state of a remote key.
#[derive(Debug, Default)]
struct ExportedKey {
    /// Number of exports under this key; 1 for a key made here.
    given: u32,
    /// Whether the key was made here and no announcement has used it. The `check` of a key made here is unique to its
    /// memory.
    is_new: bool,
}

impl Exports {
    /// Exports memory to a peer. `check`: a new unguessable number.
    pub(super) fn add(&mut self, peer: u32, address: u64, bytes: u64, check: u64) -> RemoteKey {
        let key = RemoteKey {
            address,
            bytes,
            check,
        };
        let export = ExportedKey {
            given: 1,
            is_new: true,
        };
        self.0.insert((peer, key), export);
        key
    }

    /// Exports memory under a key made by another network.
    pub(super) fn add_key(&mut self, peer: u32, key: RemoteKey) {
        self.0.entry((peer, key)).or_default().given += 1;
    }

    /// Withdraws a key; `true`: it was valid.
    pub(super) fn remove(&mut self, peer: u32, key: RemoteKey) -> bool {
        let Some(export) = self.0.get_mut(&(peer, key)) else {
            return false;
        };
        export.given -= 1;
        if export.given == 0 {
            self.0.remove(&(peer, key));
        }
        true
    }

    /// Whether memory may be announced under this key: the key was not announced before, and it can name no other
    /// memory.
    pub(super) fn may_announce(&self, peer: u32, key: RemoteKey) -> bool {
        self.0.get(&(peer, key)).is_some_and(|export| export.is_new)
    }

    /// Records that the memory of a key is announced.
    pub(super) fn announce(&mut self, peer: u32, key: RemoteKey) {
        if let Some(export) = self.0.get_mut(&(peer, key)) {
            export.is_new = false;
        }
    }

    /// The memory that a peer may access by a key: `bytes` bytes from `offset`. `None`: the peer may not access it.
    pub(super) fn find(
        &self,
        peer: u32,
        key: RemoteKey,
        offset: u64,
        bytes: u64,
    ) -> Option<MemoryRange> {
        self.0.get(&(peer, key))?;
        let end = offset.checked_add(bytes)?;
        if end > key.bytes {
            return None;
        }
        let address = key.address.checked_add(offset)?;
        Some(MemoryRange::exported(address, usize::try_from(bytes).ok()?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exports_are_found_only_in_bounds_and_by_their_peer() {
        let mut exports = Exports::default();
        let key = exports.add(3, 1000, 50, 77);
        let found = exports.find(3, key, 10, 40);
        assert_eq!(found, Some(MemoryRange::exported(1010, 40)));
        let wrong = [
            (4, key, 0, 1),
            (3, key, 11, 40),
            (3, key, u64::MAX, 2),
            (3, key, 51, 0),
            (3, RemoteKey { bytes: 60, ..key }, 0, 1),
            (
                3,
                RemoteKey {
                    address: 999,
                    ..key
                },
                0,
                1,
            ),
            (3, RemoteKey { check: 78, ..key }, 0, 1),
            (3, RemoteKey::default(), 0, 0),
        ];
        for (peer, key, offset, bytes) in wrong {
            assert_eq!(exports.find(peer, key, offset, bytes), None, "{key:?}");
        }
        assert!(!exports.remove(4, key) && exports.remove(3, key));
        assert_eq!(exports.find(3, key, 0, 1), None);
    }

    #[test]
    fn a_key_is_announced_once_and_only_if_it_was_made_here() {
        let mut exports = Exports::default();
        let key = exports.add(3, 1000, 50, 77);
        let foreign = RemoteKey { check: 1, ..key };
        exports.add_key(3, foreign);
        assert!(exports.may_announce(3, key) && !exports.may_announce(4, key));
        exports.announce(3, key);
        assert!(!exports.may_announce(3, key) && !exports.may_announce(3, foreign));
    }

    #[test]
    fn a_key_added_twice_is_valid_until_removed_twice() {
        let mut exports = Exports::default();
        let key = RemoteKey {
            address: 1000,
            bytes: 50,
            check: 7,
        };
        let part = RemoteKey { bytes: 20, ..key };
        for key in [key, part, key] {
            exports.add_key(3, key);
        }
        for left in [2, 1, 0] {
            assert_eq!(exports.find(3, key, 0, 50).is_some(), left > 0);
            assert!(exports.find(3, part, 0, 20).is_some());
            assert_eq!(exports.remove(3, key), left > 0);
        }
    }
}
