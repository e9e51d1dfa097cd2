// SPDX-License-Identifier: MIT OR Apache-2.0
//! Memory that a port may access: our own blocks for packets, and leased memory of the caller.
//!
//! # Safety
//! - Memory allocated for the program (`owned.rs`) is registered until the program frees it.
//! - A [`RegisteredBlock`] is a mapping of its own. It stays until all ports have deregistered it; a block dropped
//!   earlier leaks its mapping, so that no device writes to reused memory.
//! - Bounce buffers (`bounce.rs`) are such blocks; they are copied from and to only while no device accesses them.
//! - The device may write to receive blocks at any time: they are copied from, never borrowed. It only reads send
//!   blocks.
//! - A [`Lease`] guarantees its memory until it is returned, which is after the region is deregistered (`work.rs`).
#![allow(unsafe_code)]

use std::ptr::NonNull;

use super::keys::Regions;
use super::port::{CallError, Region, RegionAccess, Sge, VerbsPort};
use super::rail::MOST_RAILS;
use crate::Lease;

/// Registered memory of our own, divided into pieces of one size.
#[derive(Debug)]
pub(super) struct RegisteredBlock {
    base: NonNull<u8>,
    bytes: usize,
    /// One region for each port, by rail; `None`: not registered with that port.
    regions: [Option<Region>; MOST_RAILS],
}

// SAFETY: an address of memory that only this type unmaps; blocks are used by one thread at a time.
unsafe impl Send for RegisteredBlock {}

impl RegisteredBlock {
    /// Maps `bytes` bytes, zeroed and page-aligned, not registered with any port.
    pub(super) fn new(bytes: usize) -> Result<Self, CallError> {
        // SAFETY: a new private mapping at an address that the system chooses.
        let base = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                bytes,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
                -1,
                0,
            )
        };
        let mapped = Some(base).filter(|base| *base != libc::MAP_FAILED);
        let base = mapped.and_then(|base| NonNull::new(base.cast::<u8>()));
        let base = base.ok_or_else(|| CallError::last("mmap"))?;
        // Child processes of the program must not share these pages: copy-on-write would move ours.
        // SAFETY: the whole of a mapping that was just made.
        unsafe { libc::madvise(base.as_ptr().cast(), bytes, libc::MADV_DONTFORK) };
        Ok(Self {
            base,
            bytes,
            regions: [None; MOST_RAILS],
        })
    }

    /// Registers the block with the port of rail `rail`, with which it must not be registered yet.
    pub(super) fn register<P: VerbsPort>(
        &mut self,
        rail: usize,
        port: &mut P,
        access: RegionAccess,
    ) -> Result<(), CallError> {
        assert!(self.regions[rail].is_none(), "registered once");
        // SAFETY:
        // - the block stays mapped until `deregister`: `drop` unmaps it only when no region is left.
        // - the device may write to the block if `access` allows that: then nothing here borrows its bytes.
        let region = unsafe { port.register(self.base, self.bytes, access) };
        self.regions[rail] = Some(region?);
        Ok(())
    }

    /// Deregisters the block from the port of rail `rail`.
    pub(super) fn deregister<P: VerbsPort>(&mut self, rail: usize, port: &mut P) {
        if let Some(region) = self.regions[rail].take() {
            port.deregister(region);
        }
    }

    /// The regions of the block, by rail.
    pub(super) fn regions(&self) -> Regions {
        self.regions
    }

    /// The address of the block.
    pub(super) fn address(&self) -> u64 {
        self.base.as_ptr().expose_provenance() as u64
    }

    /// Copies leased bytes to the start of the block. Only for blocks that peers can read but not write.
    pub(super) fn fill_from_lent(&mut self, address: u64, bytes: usize) {
        let source = std::ptr::with_exposed_provenance_mut(crate::mr::to_usize(address));
        if let Some(source) = NonNull::new(source) {
            let bytes = bytes.min(self.bytes);
            // SAFETY: offered memory is leased (`Fabric::offer`), at least `bytes` bytes of it. The block has at least
            // as many bytes, in a mapping of its own; it is borrowed exclusively, and no device writes to it.
            unsafe { crate::mr::copy_in_pieces(source, self.base, bytes) };
        }
    }

    /// Copies what a device has written at the start of the block to a lease.
    pub(super) fn copy_to(&self, lease: &mut Lease) {
        // SAFETY: `bytes` bytes are mapped at the base, and they are not borrowed; a lease is memory of the program,
        // which lies elsewhere.
        unsafe { lease.fill_in_pieces(self.base, self.bytes) };
    }

    /// `bytes` bytes from `at` on, as a scatter-gather entry for rail `rail`.
    #[inline(always)]
    pub(super) fn piece(&self, rail: usize, at: usize, bytes: usize) -> Sge {
        debug_assert!(at + bytes <= self.bytes, "inside the block");
        Sge {
            address: self.base.as_ptr().expose_provenance() as u64 + at as u64,
            bytes: u32::try_from(bytes).unwrap_or(0),
            local_key: self.regions[rail].map_or(0, |region| region.local_key),
        }
    }

    /// Copies bytes that a device has written.
    #[inline(always)]
    pub(super) fn copy_out(&self, at: usize, target: &mut [u8]) {
        assert!(
            at <= self.bytes && target.len() <= self.bytes - at,
            "inside the block"
        );
        // SAFETY: inside the block, as was just checked.
        let source = unsafe { self.base.add(at) };
        // SAFETY: the source is mapped and it is not borrowed; the target is borrowed exclusively, so it is elsewhere.
        unsafe {
            std::ptr::copy_nonoverlapping(source.as_ptr(), target.as_mut_ptr(), target.len());
        };
    }

    /// Copies a constant number of bytes that a device has written.
    #[inline(always)]
    pub(super) fn start_at<const BYTES: usize>(&self, at: usize) -> [u8; BYTES] {
        assert!(
            at <= self.bytes && BYTES <= self.bytes - at,
            "inside the block"
        );
        // SAFETY: inside the block, as was just checked.
        let source = unsafe { self.base.add(at) };
        // SAFETY: mapped and initialised (zero at first), and it is not borrowed; bytes have no alignment.
        unsafe { source.cast::<[u8; BYTES]>().read() }
    }

    /// Borrows bytes of a send block.
    ///
    /// Only for blocks registered with [`RegionAccess::OwnRead`]: no device writes there.
    #[inline(always)]
    pub(super) fn bytes(&self, at: usize, bytes: usize) -> &[u8] {
        assert!(
            at <= self.bytes && bytes <= self.bytes - at,
            "inside the block"
        );
        // SAFETY: inside the block, as was just checked.
        let start = unsafe { self.base.add(at) };
        // SAFETY: mapped and initialised (zero at first); the block is borrowed, so this process does not write to it,
        // and devices only read it.
        unsafe { std::slice::from_raw_parts(start.as_ptr(), bytes) }
    }

    /// Borrows bytes of a send block for writing.
    ///
    /// Only for blocks registered with [`RegionAccess::OwnRead`]: no device writes there.
    #[inline(always)]
    pub(super) fn bytes_mut(&mut self, at: usize, bytes: usize) -> &mut [u8] {
        assert!(
            at <= self.bytes && bytes <= self.bytes - at,
            "inside the block"
        );
        // SAFETY: inside the block, as was just checked.
        let start = unsafe { self.base.add(at) };
        // SAFETY: mapped and initialised (zero at first); the block is borrowed exclusively, and devices only read it.
        unsafe { std::slice::from_raw_parts_mut(start.as_ptr(), bytes) }
    }
}

impl Drop for RegisteredBlock {
    fn drop(&mut self) {
        if self.regions.iter().all(Option::is_none) {
            // SAFETY: mapped by `new`, and deregistered on every device.
            unsafe { libc::munmap(self.base.as_ptr().cast(), self.bytes) };
        }
    }
}

/// A mapping shared with child processes, for memory that the program allocates.
#[derive(Debug)]
pub(super) struct SharedMapping {
    base: NonNull<u8>,
    bytes: usize,
}

// SAFETY: an address of memory that only this type unmaps.
unsafe impl Send for SharedMapping {}

impl SharedMapping {
    /// Maps `bytes` bytes, zeroed and page-aligned.
    pub(super) fn new(bytes: usize) -> Option<Self> {
        // SAFETY: a new mapping at an address that the system chooses.
        let base = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                bytes,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED | libc::MAP_ANONYMOUS,
                -1,
                0,
            )
        };
        let mapped = Some(base).filter(|base| *base != libc::MAP_FAILED);
        let base = mapped.and_then(|base| NonNull::new(base.cast()))?;
        Some(Self { base, bytes })
    }

    pub(super) fn place(&self) -> NonNull<u8> {
        self.base
    }
}

impl Drop for SharedMapping {
    fn drop(&mut self) {
        // SAFETY: mapped by `new`; it was deregistered before, and the program has freed it (`owned.rs`).
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.bytes) };
    }
}

/// Registers memory that was allocated for the program, until it is freed.
pub(super) fn register_owned<P: VerbsPort>(
    port: &mut P,
    place: NonNull<u8>,
    bytes: usize,
) -> Result<Region, CallError> {
    // SAFETY: memory of an arena, which is never unmapped, or of a `SharedMapping`, which is unmapped after
    // `deregister` (`owned.rs`). The program has allowed access to the parts that it leases or exports. The other parts
    // are accessed only by a peer that exceeds the range of its key; these bytes are shared memory anyway.
    unsafe { port.register(place, bytes, RegionAccess::Full) }
}

/// Registers leased memory, or a part of it. It must be deregistered before the lease is returned.
pub(super) fn register_leased<P: VerbsPort>(
    port: &mut P,
    address: u64,
    bytes: u64,
    access: RegionAccess,
) -> Result<Region, CallError> {
    let base = std::ptr::with_exposed_provenance_mut(crate::mr::to_usize(address));
    let base = NonNull::new(base).ok_or(CallError {
        call: "ibv_reg_mr",
        errno: libc::EFAULT,
    })?;
    let bytes = crate::mr::to_usize(bytes);
    // SAFETY: a lease guarantees that its memory stays mapped, and is not written otherwise, until it is returned; this
    // provider returns it after `deregister` (`work.rs`). The lease of a work that is divided into shares is returned
    // when the last share has ended. Memory that is kept registered (`owned.rs`) stays until the caller returns its
    // key; the device reads it for leases only. A bounce buffer (`bounce.rs`) stays until all reads into it have ended.
    unsafe { port.register(base, bytes, access) }
}

/// Registers memory of the caller that peers may access until [`VerbsPort::deregister`].
pub(super) fn register_exported<P: VerbsPort>(
    port: &mut P,
    address: u64,
    bytes: usize,
) -> Result<Region, CallError> {
    let base = std::ptr::with_exposed_provenance_mut(crate::mr::to_usize(address));
    let base = NonNull::new(base).ok_or(CallError {
        call: "ibv_reg_mr",
        errno: libc::EFAULT,
    })?;
    // SAFETY: exported memory is leased (`Fabric::export`) and stays until its lease ends, which is after the key is
    // withdrawn. Exposed memory (`Fabric::expose`) stays until its key is returned. The lease of a read that a peer
    // carries out ends after `deregister` (`fetch.rs`).
    unsafe { port.register(base, bytes, RegionAccess::Full) }
}

impl CallError {
    pub(super) fn last(call: &'static str) -> Self {
        let errno = std::io::Error::last_os_error().raw_os_error().unwrap_or(0);
        Self { call, errno }
    }
}
