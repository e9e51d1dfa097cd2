// SPDX-License-Identifier: MIT OR Apache-2.0
//! The secrets with which processes prove who they are: one of each job.

use std::collections::HashMap;
use std::fmt;

use super::proof::PairKey;

/// What only processes of one job know and prove to each other over connections: 128 bits that nobody can guess. It is not shown with
/// what it is a part of.
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

/// That of this job, and those of jobs whose processes were met.
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

    /// A peer is of another job, which has this key.
    pub(super) fn meet(&mut self, peer: u32, key: StreamKey) {
        self.others.insert(peer, key);
    }

    /// What this process and a peer both know.
    pub(super) fn with(&self, peer: u32) -> PairKey {
        PairKey::new(
            self.own,
            self.others.get(&peer).copied().unwrap_or(self.own),
        )
    }
}
