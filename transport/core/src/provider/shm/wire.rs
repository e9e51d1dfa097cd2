// SPDX-License-Identifier: MIT OR Apache-2.0
//! Implements [`Provider`] for shared memory: translates peer numbers to local ranks, and calls the methods of [`Shm`].

use std::ptr::NonNull;

use super::Shm;
use crate::provider::caps::{Caps, Mover};
use crate::provider::wire::Provider;
use crate::wait_set::{Doorbell, WaitSet};
use crate::{Atomic, Completions, Full, Head, Lease, Peer, RemoteKey, WorkId, arena};

impl Provider for Shm {
    fn caps(&self, _peer: Peer) -> Caps {
        Caps {
            max_inline_bytes: ring::SLOT_BODY_BYTES,
            max_send_bytes: ring::layout::POOL_BUFFER_BYTES,
            reads: Mover::Caller,
            writes: Mover::Caller,
            atomics: Some(Mover::Caller),
            may_stream: true,
            maps: true,
            wakes: true,
        }
    }

    #[inline(always)]
    fn post_send(&mut self, peer: Peer, head: Head, body: &[u8]) -> Result<(), Full> {
        self.send(peer, head, body)
    }

    fn copy_lent(&self, peer: Peer, index: u32, bytes: u32, target: &mut [u8]) -> usize {
        self.copy_lent_by(self.local_of(peer), index, bytes, target)
    }

    fn release(&mut self, peer: Peer, index: u32) {
        self.release_to(self.local_of(peer), index);
    }

    fn had_better_stream(&mut self, peer: Peer, key: RemoteKey) -> bool {
        let is_direct = arena::is_name(key.address);
        let to = &mut self.senders[peer.0 as usize];
        !is_direct && self.attentive && to.distance.had_better_stream()
    }

    fn export(&mut self, peer: Peer, address: u64, bytes: u64) -> RemoteKey {
        self.key_for(self.local_of(peer), address, bytes)
    }

    fn reaches_directly(&self, address: u64, bytes: u64) -> bool {
        self.is_in_arena(address, bytes)
    }

    fn place_of(&mut self, peer: Peer, key: RemoteKey) -> Option<NonNull<u8>> {
        self.mapped_place(self.local_of(peer), key)
    }

    fn post_read(&mut self, peer: Peer, lease: Lease, key: RemoteKey, offset: u64, work: WorkId) {
        self.read(self.local_of(peer), lease, key, offset, work);
    }

    fn post_write(
        &mut self,
        peer: Peer,
        lease: Lease,
        key: RemoteKey,
        offset: u64,
        work: WorkId,
        immediate: Option<u32>,
    ) -> Result<(), Lease> {
        self.write(self.local_of(peer), lease, key, offset, work, immediate)
    }

    fn post_atomic(
        &mut self,
        peer: Peer,
        atomic: Atomic,
        lease: Lease,
        key: RemoteKey,
        offset: u64,
        work: WorkId,
    ) {
        self.change(self.local_of(peer), atomic, lease, key, offset, work);
    }

    fn poll(&mut self, completions: &mut Completions) {
        self.poll_all(completions);
    }

    fn prepare_sleep(&mut self) -> bool {
        self.announce_sleep()
    }

    /// Adds this process's bell, on which its sleep is announced.
    fn fall_asleep(&mut self, waits: &mut WaitSet) {
        if let (Some(bell), Some(node)) = (self.bell, &self.node) {
            waits.add_doorbell(Doorbell {
                bell,
                local_rank: node.local_rank,
            });
        }
    }

    fn wake(&mut self) {
        if let Some(bell) = self.bell {
            bell.rise();
        }
    }
}
