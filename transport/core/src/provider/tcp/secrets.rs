// SPDX-License-Identifier: MIT OR Apache-2.0
//! The secrets with which processes authenticate: one per job.

use std::collections::HashMap;
use std::fmt;

use super::proof::PairKey;

/// The secret of a job, with which its processes authenticate to each other: 128 unguessable bits. `Debug` does not
/// show them.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct StreamKey(u128);

impl StreamKey {
    /// A key of these bits.
    #[must_use]
    pub fn new(bits: u128) -> Self {
        Self(bits)
    }

    pub(super) fn bytes(self) -> [u8; 16] {
        self.0.to_le_bytes()
    }
}

impl fmt::Debug for StreamKey {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("StreamKey(..)")
    }
}

/// The secret of this job, and those of jobs whose processes were added.
#[derive(Debug)]
pub(super) struct Secrets {
    own: StreamKey,
    others: HashMap<u32, StreamKey>,
}

impl Secrets {
    pub(super) fn new(own: StreamKey) -> Self {
        Self {
            own,
            others: HashMap::new(),
        }
    }

    /// Records the key of a peer of another job.
    pub(super) fn add_key(&mut self, peer: u32, key: StreamKey) {
        self.others.insert(peer, key);
    }

    /// The key that this process shares with a peer.
    pub(super) fn with(&self, peer: u32) -> PairKey {
        PairKey::new(
            self.own,
            self.others.get(&peer).copied().unwrap_or(self.own),
        )
    }
}
