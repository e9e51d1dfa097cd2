// SPDX-License-Identifier: MIT OR Apache-2.0
//! The interface of a provider: one trait, which every provider implements. A fabric forwards each call to the provider
//! that reaches the peer, and its polls and sleeps to all providers. A default implementation is right for a provider
//! that does not have the ability; a provider reports its abilities in [`Caps`].
//!
//! The fast paths (`post_word`, `first_frame` and similar calls) are not part of the trait: they are for the case that
//! needs no decision.

use std::ptr::NonNull;

use super::caps::Caps;
use crate::wait_set::WaitSet;
use crate::{Atomic, Completions, Full, Head, Lease, LocalKey, Peer, RemoteKey, WorkId};

/// A provider, as used by [`Fabric`](super::Fabric), which documents each call and when it may be made.
pub(super) trait Provider {
    /// The capabilities toward a peer.
    fn caps(&self, peer: Peer) -> Caps;

    /// Posts a send.
    fn post_send(&mut self, peer: Peer, head: Head, body: &[u8]) -> Result<(), Full>;

    /// Posts a frame that announces data, which the peer is expected to read as a whole. A provider may delay the frame
    /// until the next frame to this peer or the next poll, and may send the data with it.
    fn post_announcement(
        &mut self,
        peer: Peer,
        (head, body): (Head, &[u8]),
        _data: Option<RemoteKey>,
    ) -> Result<(), Full> {
        self.post_send(peer, head, body)
    }

    /// Posts a frame that a provider may delay until the next frame that is not deferrable, or the next poll.
    fn post_deferrable(&mut self, peer: Peer, head: Head, body: &[u8]) -> Result<(), Full> {
        self.post_send(peer, head, body)
    }

    /// Declares that data which the peer announced with this key will not be read.
    fn decline(&mut self, _peer: Peer, _key: RemoteKey) {}

    /// Copies the body of a frame of this peer that lies in buffer `index`.
    fn copy_lent(&self, peer: Peer, index: u32, bytes: u32, target: &mut [u8]) -> usize;

    /// Returns the buffer `index`, which held a frame of this peer.
    fn release(&mut self, peer: Peer, index: u32);

    /// Whether data that `key` names for the peer should be sent through buffers rather than be read by the peer.
    fn had_better_stream(&mut self, _peer: Peer, _key: RemoteKey) -> bool {
        false
    }

    /// Exports memory to the peer; returns the key.
    fn export(&mut self, peer: Peer, address: u64, bytes: u64) -> RemoteKey;

    /// Exports memory of which the peer may read a copy; returns the key.
    fn offer(&mut self, peer: Peer, address: u64, bytes: u64) -> RemoteKey {
        self.export(peer, address, bytes)
    }

    /// Ends the export of the memory of a key.
    fn withdraw(&mut self, _peer: Peer, _key: RemoteKey) {}

    /// Registers memory from which there will be many writes; `None`: no registration is needed.
    fn register(&mut self, _address: u64, _bytes: u64) -> Option<LocalKey> {
        None
    }

    /// Whether peers write to this memory of ours without the kernel.
    fn reaches_directly(&self, _address: u64, _bytes: u64) -> bool {
        true
    }

    /// The address at which memory of the peer is mapped here; `None`: it is not mapped.
    fn place_of(&mut self, _peer: Peer, _key: RemoteKey) -> Option<NonNull<u8>> {
        None
    }

    /// Posts a read.
    fn post_read(&mut self, peer: Peer, lease: Lease, key: RemoteKey, offset: u64, work: WorkId);

    /// Posts a write.
    fn post_write(
        &mut self,
        peer: Peer,
        lease: Lease,
        key: RemoteKey,
        offset: u64,
        work: WorkId,
        immediate: Option<u32>,
    ) -> Result<(), Lease>;

    /// Posts an atomic operation.
    fn post_atomic(
        &mut self,
        peer: Peer,
        atomic: Atomic,
        lease: Lease,
        key: RemoteKey,
        offset: u64,
        work: WorkId,
    );

    /// Marks the peer as lost, for this reason.
    fn lose(&mut self, _peer: Peer, _why: &str) {}

    /// Returns completions, and does a bounded share of the pending work.
    fn poll(&mut self, completions: &mut Completions);

    /// Prepares for a sleep. `true`: a poll would find nothing, and the events that [`fall_asleep`](Self::fall_asleep)
    /// adds end the sleep.
    fn prepare_sleep(&mut self) -> bool;

    /// Adds the events that can wake the process to a [`WaitSet`].
    fn fall_asleep(&mut self, _waits: &mut WaitSet) {}

    /// The process is awake again, or did not fall asleep.
    fn wake(&mut self) {}
}
