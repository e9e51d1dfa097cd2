// SPDX-License-Identifier: MIT OR Apache-2.0
//! Provider `self`, by which a process reaches itself: a queue in private memory, and copies within the process.

use std::collections::VecDeque;
use std::ptr::NonNull;

use super::caps::{Caps, Mover};
use super::wire::Provider;
use crate::{
    Arrived, Atomic, Completion, Completions, Full, Head, Lease, Peer, RecvBuffer, RemoteKey,
    WorkId, WorkOutcome,
};

/// The queue pair of a process to itself.
#[derive(Debug)]
pub(super) struct Loopback {
    me: Peer,
    waiting: VecDeque<Completion>,
    bodies: Vec<LoopbackBody>,
    frames: usize,
    /// Distinguishes keys made by this process from any others.
    secret: u64,
}

/// The body of a queued frame. Its memory is reused.
#[derive(Debug, Default)]
struct LoopbackBody {
    bytes: Vec<u8>,
    is_lent: bool,
}

impl LoopbackBody {
    fn lend(&mut self, body: &[u8]) {
        self.bytes.clear();
        self.bytes.extend_from_slice(body);
        self.is_lent = true;
    }
}

impl Loopback {
    pub(super) fn new(me: Peer) -> Self {
        let mut secret = [0];
        crate::wait::random_words(&mut secret);
        Self {
            me,
            waiting: VecDeque::new(),
            bodies: Vec::new(),
            frames: 0,
            secret: secret[0],
        }
    }

    fn lend(&mut self, body: &[u8]) -> RecvBuffer {
        let free = self.bodies.iter().position(|body| !body.is_lent);
        let index = free.unwrap_or(self.bodies.len());
        if index == self.bodies.len() {
            self.bodies.push(LoopbackBody::default());
        }
        self.bodies[index].lend(body);
        let count = |n: usize| u32::try_from(n).expect("a body fits a pool buffer");
        RecvBuffer::Lent {
            index: count(index),
            bytes: count(body.len()),
        }
    }

    /// The key to memory of this process.
    fn key_of(&self, address: u64, bytes: u64) -> RemoteKey {
        RemoteKey {
            address,
            bytes,
            check: self.secret ^ address.rotate_left(17) ^ bytes,
        }
    }

    fn is_ours(&self, key: RemoteKey) -> bool {
        key == self.key_of(key.address, key.bytes)
    }

    fn check(&self, lease: &Lease, key: RemoteKey, offset: u64) -> WorkOutcome {
        let fits = offset
            .checked_add(lease.bytes() as u64)
            .is_some_and(|end| end <= key.bytes);
        if fits && self.is_ours(key) {
            WorkOutcome::Done
        } else {
            WorkOutcome::BadKey
        }
    }

    #[inline(always)]
    pub(super) fn has_completions(&self) -> bool {
        !self.waiting.is_empty()
    }
}

impl Provider for Loopback {
    /// The caller moves all data; nothing arrives while it sleeps.
    fn caps(&self, _peer: Peer) -> Caps {
        Caps {
            max_inline_bytes: ring::SLOT_BODY_BYTES,
            max_send_bytes: ring::layout::POOL_BUFFER_BYTES,
            reads: Mover::Caller,
            writes: Mover::Caller,
            atomics: Some(Mover::Caller),
            may_stream: false,
            maps: true,
            wakes: true,
        }
    }

    #[inline(never)]
    fn post_send(&mut self, _peer: Peer, head: Head, body: &[u8]) -> Result<(), Full> {
        if self.frames == DEPTH {
            return Err(Full);
        }
        let mut words = [0u64; 6];
        let buffer = if body.len() <= ring::SLOT_BODY_BYTES {
            for (word, chunk) in words.iter_mut().zip(body.chunks(8)) {
                let mut bytes = [0; 8];
                bytes[..chunk.len()].copy_from_slice(chunk);
                *word = u64::from_ne_bytes(bytes);
            }
            RecvBuffer::Inline {
                bytes: u8::try_from(body.len()).unwrap_or(u8::MAX),
            }
        } else {
            self.lend(body)
        };
        self.frames += 1;
        let arrived = Arrived {
            peer: self.me,
            head,
            words,
            body: buffer,
        };
        self.waiting.push_back(Completion::Arrived(arrived));
        Ok(())
    }

    fn copy_lent(&self, _peer: Peer, index: u32, _bytes: u32, target: &mut [u8]) -> usize {
        let body = self.bodies.get(index as usize).filter(|body| body.is_lent);
        let body = body.map_or(&[][..], |body| &body.bytes);
        let bytes = body.len().min(target.len());
        target[..bytes].copy_from_slice(&body[..bytes]);
        bytes
    }

    fn release(&mut self, _peer: Peer, index: u32) {
        if let Some(body) = self.bodies.get_mut(index as usize) {
            body.is_lent = false;
        }
    }

    fn export(&mut self, _peer: Peer, address: u64, bytes: u64) -> RemoteKey {
        self.key_of(address, bytes)
    }

    fn place_of(&mut self, _peer: Peer, key: RemoteKey) -> Option<NonNull<u8>> {
        let address = usize::try_from(key.address).ok()?;
        let place = NonNull::new(std::ptr::with_exposed_provenance_mut(address))?;
        self.is_ours(key).then_some(place)
    }

    fn post_read(
        &mut self,
        _peer: Peer,
        mut lease: Lease,
        key: RemoteKey,
        offset: u64,
        work: WorkId,
    ) {
        let outcome = self.check(&lease, key, offset);
        if outcome == WorkOutcome::Done {
            lease.copy_within_process(key.address + offset);
        }
        self.waiting.push_back(Completion::Worked {
            work,
            outcome,
            lease,
        });
    }

    fn post_write(
        &mut self,
        _peer: Peer,
        lease: Lease,
        key: RemoteKey,
        offset: u64,
        work: WorkId,
        immediate: Option<u32>,
    ) -> Result<(), Lease> {
        let outcome = self.check(&lease, key, offset);
        if outcome == WorkOutcome::Done {
            lease.copy_to_process(key.address + offset);
            if let Some(immediate) = immediate {
                self.waiting.push_back(Completion::Written {
                    peer: self.me,
                    immediate,
                });
            }
        }
        self.waiting.push_back(Completion::Worked {
            work,
            outcome,
            lease,
        });
        Ok(())
    }

    fn post_atomic(
        &mut self,
        _peer: Peer,
        atomic: Atomic,
        mut lease: Lease,
        key: RemoteKey,
        offset: u64,
        work: WorkId,
    ) {
        let mut outcome = self.check(&lease, key, offset);
        if outcome == WorkOutcome::Done && !(key.address + offset).is_multiple_of(8) {
            outcome = WorkOutcome::BadKey;
        }
        if outcome == WorkOutcome::Done {
            lease.change_within_process(key.address + offset, atomic);
        }
        self.waiting.push_back(Completion::Worked {
            work,
            outcome,
            lease,
        });
    }

    /// Fills at most half of the caller's array, so that a process that sends to itself all the time still serves other
    /// peers.
    fn poll(&mut self, completions: &mut Completions) {
        for _ in 0..Completions::CAPACITY / 2 {
            let Some(completion) = self.waiting.pop_front() else {
                return;
            };
            if let Completion::Arrived(_) = completion {
                self.frames -= 1;
            }
            completions.push(completion);
        }
    }

    fn prepare_sleep(&mut self) -> bool {
        !self.has_completions()
    }
}

/// Maximum number of queued frames: as many as in a ring.
const DEPTH: usize = 64;
