// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reads, writes and atomic operations on memory of the node's other ranks: in their arenas, or through the kernel.

use std::ptr::NonNull;

use ring::GateLine;

use super::{PeerAccess, PeerMemory, Shm, WRITTEN, seal};
use crate::provider::cma;
use crate::{Atomic, Completion, Head, Lease, RemoteKey, WorkId, WorkOutcome, arena};

impl Shm {
    /// Makes a page of gate lines, and returns them with their names.
    pub(in crate::provider) fn make_lines(&mut self) -> Vec<(&'static GateLine, u64)> {
        let Some(arenas) = &mut self.arenas else {
            return Vec::new();
        };
        let Some(page) = arenas.allocate(PAGE_BYTES) else {
            return Vec::new();
        };
        let line = |at: usize| {
            let place = NonNull::new(page.as_ptr().wrapping_add(at))?;
            let name = arenas.name_of(place.addr().get() as u64, LINE_BYTES as u64)?;
            Some((arenas.own_line(place)?, name))
        };
        (0..PAGE_BYTES)
            .step_by(LINE_BYTES)
            .filter_map(line)
            .collect()
    }

    pub(in crate::provider) fn expect_lines(&mut self, windows: usize, works: usize) {
        let works = works.min(MOST_EXPECTED);
        self.finished
            .reserve(works.saturating_sub(self.finished.len()));
        if let Some(arenas) = &mut self.arenas {
            arenas.expect(windows);
        }
    }

    pub(in crate::provider) fn line_of(&mut self, of: u32, name: u64) -> Option<&'static GateLine> {
        self.arenas.as_mut()?.line_of(of, name)
    }

    /// The gate line named by this process itself.
    pub(in crate::provider) fn own_line(&self, name: u64) -> Option<&'static GateLine> {
        let arenas = self.arenas.as_ref()?;
        let address = arenas.address_of(name, LINE_BYTES as u64)?;
        let place = std::ptr::with_exposed_provenance_mut(usize::try_from(address).ok()?);
        arenas.own_line(NonNull::new(place)?)
    }

    /// The address at which memory that a rank names in its arena is mapped here.
    pub(super) fn mapped_place(&mut self, of: u32, key: RemoteKey) -> Option<NonNull<u8>> {
        self.arenas.as_mut()?.place_of(of, key.address, key.bytes)
    }

    /// Whether all ranks of the node can map this memory.
    pub(super) fn is_in_arena(&self, address: u64, bytes: u64) -> bool {
        let arenas = self.arenas.as_ref();
        arenas.is_some_and(|arenas| arenas.name_of(address, bytes).is_some())
    }

    pub(super) fn key_for(&self, to: u32, address: u64, bytes: u64) -> RemoteKey {
        let arenas = self.arenas.as_ref();
        // Memory in an arena needs no secret, since every rank of the node can map it.
        let (address, check) = match arenas.and_then(|arenas| arenas.name_of(address, bytes)) {
            Some(name) => (name, 0),
            None => (address, self.seal_for(to, &[address, bytes])),
        };
        RemoteKey {
            address,
            bytes,
            check,
        }
    }

    pub(super) fn read(
        &mut self,
        from: u32,
        lease: Lease,
        key: RemoteKey,
        offset: u64,
        work: WorkId,
    ) {
        match self.place_of(from, &lease, key, offset) {
            Ok(source) => self.begin_read(from, source, lease, work),
            Err(outcome) => self.finished.push_back(Completion::Worked {
                work,
                outcome,
                lease,
            }),
        }
    }

    pub(super) fn write(
        &mut self,
        to: u32,
        lease: Lease,
        key: RemoteKey,
        offset: u64,
        work: WorkId,
        immediate: Option<u32>,
    ) -> Result<(), Lease> {
        let peer = self.peer_of(to).0 as usize;
        if immediate.is_some() && !self.senders[peer].producer.has_room() {
            return Err(lease);
        }
        let outcome = match self.place_of(to, &lease, key, offset) {
            Err(outcome) => outcome,
            Ok(target) => self.write_to(to, target, &lease),
        };
        if let (WorkOutcome::Done, Some(immediate)) = (outcome, immediate) {
            let head = Head {
                kind: WRITTEN,
                len: 0,
                flags: 0,
                word: u64::from(immediate),
            };
            // This cannot fail: room was checked at the start of this call, and only this process fills the ring.
            let _ = self.push(self.peer_of(to), head, &[]);
        }
        self.finished.push_back(Completion::Worked {
            work,
            outcome,
            lease,
        });
        Ok(())
    }

    /// Carries out an atomic operation. That works only on memory in an arena; elsewhere the kernel can only copy.
    pub(super) fn change(
        &mut self,
        to: u32,
        atomic: Atomic,
        mut lease: Lease,
        key: RemoteKey,
        offset: u64,
        work: WorkId,
    ) {
        let outcome = match self.place_of(to, &lease, key, offset) {
            Err(outcome) => outcome,
            Ok(PeerMemory::Process { .. }) => WorkOutcome::Unreachable,
            Ok(PeerMemory::Arena { offset }) if !offset.is_multiple_of(8) => self.refuse_key(),
            Ok(PeerMemory::Arena { offset }) => {
                let arenas = self.arenas.as_mut();
                match arenas.is_some_and(|arenas| arenas.change(to, offset, &mut lease, atomic)) {
                    true => WorkOutcome::Done,
                    false => WorkOutcome::Unreachable,
                }
            }
        };
        self.finished.push_back(Completion::Worked {
            work,
            outcome,
            lease,
        });
    }

    fn write_to(&mut self, to: u32, target: PeerMemory, lease: &Lease) -> WorkOutcome {
        let (done, otherwise) = match target {
            PeerMemory::Process { pid, address } => {
                let done = cma::write(pid, lease, 0, lease.bytes(), address);
                (done, WorkOutcome::BadKey)
            }
            PeerMemory::Arena { offset } => {
                let arenas = self.arenas.as_mut();
                let done = arenas.is_some_and(|arenas| arenas.write(to, offset, lease));
                (done, WorkOutcome::Unreachable)
            }
        };
        if done { WorkOutcome::Done } else { otherwise }
    }

    /// Location of the memory that a key names, after all checks.
    fn place_of(
        &mut self,
        peer: u32,
        lease: &Lease,
        key: RemoteKey,
        offset: u64,
    ) -> Result<PeerMemory, WorkOutcome> {
        let fits = offset
            .checked_add(lease.bytes() as u64)
            .is_some_and(|end| end <= key.bytes);
        // Memory in an arena needs no secret: every rank of the node can map it.
        if let (true, Some(arenas)) = (arena::is_name(key.address), &self.arenas) {
            let whole = arenas.offset_of(key.address, key.bytes);
            return match whole.filter(|_| fits) {
                Some(start) => Ok(PeerMemory::Arena {
                    offset: start + offset,
                }),
                None => Err(self.refuse_key()),
            };
        }
        let PeerAccess::Yes { pid, secret } = self.reach(peer) else {
            return Err(WorkOutcome::Unreachable);
        };
        let wraps = key.address.checked_add(key.bytes).is_none();
        if !fits || wraps || key.check != seal(secret, &[key.address, key.bytes]) {
            return Err(self.refuse_key());
        }
        let address = key.address + offset;
        Ok(PeerMemory::Process { pid, address })
    }

    #[cold]
    fn refuse_key(&mut self) -> WorkOutcome {
        self.stats.refused.add(1);
        WorkOutcome::BadKey
    }
}

/// Maximum number of completions of writes for which room is reserved in advance.
const MOST_EXPECTED: usize = 65_536;
const PAGE_BYTES: usize = 4096;
const LINE_BYTES: usize = size_of::<GateLine>();
