// SPDX-License-Identifier: MIT OR Apache-2.0
//! Memory that a port may touch: blocks of our own for packets, and what the caller leased.
//!
//! # Safety
//! - What the program allocates (`owned.rs`) is registered until the program gives it back.
//! - A [`RegisteredBlock`] is a mapping of its own. It lives until the ports that it is registered with have forgotten it; whoever
//!   drops it without that leaks the mapping rather than take it away from a device.
//! - So do blocks that the program's data pass through (`bounce.rs`): they are copied from and to while no device is at them.
//! - The device writes to blocks for receives at any time: they are copied from, never borrowed. It only reads blocks for sends.
//! - A [`Lease`] promises its memory until it comes back, and it comes back after the region is gone (`work.rs`).
#![allow(unsafe_code)]

use std::ptr::NonNull;

use super::keys::Regions;
use super::port::{CallError, Region, RegionAccess, Sge, VerbsPort};
use super::rail::MOST_RAILS;
use crate::Lease;

/// Registered memory of our own, cut into pieces of one size.
#[derive(Debug)]
pub(super) struct RegisteredBlock {
    base: NonNull<u8>,
    bytes: usize,
    /// One for each port that it is registered with, in the order of these.
    regions: [Option<Region>; MOST_RAILS],
}

// SAFETY: an address of memory that nobody else unmaps; blocks are used by one thread at a time.
unsafe impl Send for RegisteredBlock {}

impl RegisteredBlock {
    /// Maps `bytes` bytes, zero and aligned to a page, which no port knows yet.
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
        // Child processes that the program starts must not share these pages: a write of theirs would move ours elsewhere.
        // SAFETY: the whole of a mapping that was just made.
        unsafe { libc::madvise(base.as_ptr().cast(), bytes, libc::MADV_DONTFORK) };
        Ok(Self {
            base,
            bytes,
            regions: [None; MOST_RAILS],
        })
    }

    /// Registers it with port number `rail`, with which it is not yet.
    pub(super) fn register<P: VerbsPort>(
        &mut self,
        rail: usize,
        port: &mut P,
        access: RegionAccess,
    ) -> Result<(), CallError> {
        assert!(self.regions[rail].is_none(), "registered once");
        // SAFETY:
        // - stays mapped until `deregister`: `drop` unmaps it only when no region is left.
        // - the device may write if `access` says so: nothing here borrows it then.
        let region = unsafe { port.register(self.base, self.bytes, access) };
        self.regions[rail] = Some(region?);
        Ok(())
    }

    /// Takes it away from port number `rail`.
    pub(super) fn deregister<P: VerbsPort>(&mut self, rail: usize, port: &mut P) {
        if let Some(region) = self.regions[rail].take() {
            port.deregister(region);
        }
    }

    /// How the ports know it.
    pub(super) fn regions(&self) -> Regions {
        self.regions
    }

    /// Where it is.
    pub(super) fn address(&self) -> u64 {
        self.base.as_ptr().expose_provenance() as u64
    }

    /// Fills it from its start with bytes that are on loan. Only where peers at most read it.
    pub(super) fn fill_from_lent(&mut self, address: u64, bytes: usize) {
        let source = std::ptr::with_exposed_provenance_mut(crate::mr::to_usize(address));
        if let Some(source) = NonNull::new(source) {
            let bytes = bytes.min(self.bytes);
            // SAFETY: what is offered is leased memory (`Fabric::offer`), so many bytes of it; as many are mapped here, in a
            // mapping of its own, which is borrowed exclusively and written by no device.
            unsafe { crate::mr::copy_in_pieces(source, self.base, bytes) };
        }
    }

    /// Fills a lease with what a device has written from its start.
    pub(super) fn copy_to(&self, lease: &mut Lease) {
        // SAFETY: so many bytes are mapped at the base, and nobody borrows them; a lease of the program's is elsewhere.
        unsafe { lease.fill_in_pieces(self.base, self.bytes) };
    }

    /// `bytes` bytes from `at` on, as a work request to port number `rail` names them.
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
        // SAFETY: the source is mapped and nobody borrows it; the target is borrowed exclusively, so it is elsewhere.
        unsafe {
            std::ptr::copy_nonoverlapping(source.as_ptr(), target.as_mut_ptr(), target.len());
        };
    }

    /// The same for a number of bytes that the compiler knows.
    #[inline(always)]
    pub(super) fn start_at<const BYTES: usize>(&self, at: usize) -> [u8; BYTES] {
        assert!(
            at <= self.bytes && BYTES <= self.bytes - at,
            "inside the block"
        );
        // SAFETY: inside the block, as was just checked.
        let source = unsafe { self.base.add(at) };
        // SAFETY: mapped and initialised (zero at first), and nobody borrows it; bytes have no alignment.
        unsafe { source.cast::<[u8; BYTES]>().read() }
    }

    /// Bytes of a block for sends, to read them.
    ///
    /// Only of blocks that were registered with [`RegionAccess::OwnRead`]: no device writes there.
    #[inline(always)]
    pub(super) fn bytes(&self, at: usize, bytes: usize) -> &[u8] {
        assert!(
            at <= self.bytes && bytes <= self.bytes - at,
            "inside the block"
        );
        // SAFETY: inside the block, as was just checked.
        let start = unsafe { self.base.add(at) };
        // SAFETY: mapped and initialised (zero at first); the block is borrowed, so nobody writes to it, and devices only
        // read it.
        unsafe { std::slice::from_raw_parts(start.as_ptr(), bytes) }
    }

    /// The same, to write them.
    ///
    /// Only of blocks that were registered with [`RegionAccess::OwnRead`]: no device writes there.
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
            // SAFETY: mapped by `new`, and every device that knew it has forgotten it.
            unsafe { libc::munmap(self.base.as_ptr().cast(), self.bytes) };
        }
    }
}

/// A mapping that child processes share, for memory that the program allocates.
#[derive(Debug)]
pub(super) struct SharedMapping {
    base: NonNull<u8>,
    bytes: usize,
}

// SAFETY: an address of memory that nobody else unmaps.
unsafe impl Send for SharedMapping {}

impl SharedMapping {
    /// Maps `bytes` bytes, zero and aligned to a page.
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
        // SAFETY: mapped by `new`; whoever drops it has deregistered it, and the program has given it back (`owned.rs`).
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.bytes) };
    }
}

/// Registers memory that was allocated for the program, until it is given back.
pub(super) fn register_owned<P: VerbsPort>(
    port: &mut P,
    place: NonNull<u8>,
    bytes: usize,
) -> Result<Region, CallError> {
    // SAFETY: memory of an arena, which is never unmapped, or of a `SharedMapping`, which is unmapped after `deregister`
    // (`owned.rs`). What the program leases of it, or exports, it expects the device to touch; the rest is touched only by
    // a peer that was given a key of it and goes beyond: then it finds bytes changed that are shared memory anyway.
    unsafe { port.register(place, bytes, RegionAccess::Full) }
}

/// Registers leased memory, or a part of it. Whoever gives the lease back deregisters first.
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
    // SAFETY: a lease promises that its memory stays, and is written by nobody else, until it comes back; this provider
    // gives it back after `deregister` (`work.rs`), that of a work in shares after the last of these has ended. Memory that is
    // kept registered (`owned.rs`) stays until the caller gives its key back; the device reads it for leases only. A bounce
    // buffer (`bounce.rs`) that a port does not know yet stays until all reads into it have ended.
    unsafe { port.register(base, bytes, access) }
}

/// Registers memory of the caller's that peers may reach until [`VerbsPort::deregister`].
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
    // SAFETY: what is exported is leased memory (`Fabric::export`), which stays until its lease ends; whoever ends it
    // withdraws the key first. What is exposed (`Fabric::expose`) stays until its key is given back. The lease of a read that a
    // peer carries out ends after `deregister` (`fetch.rs`).
    unsafe { port.register(base, bytes, RegionAccess::Full) }
}

impl CallError {
    pub(super) fn last(call: &'static str) -> Self {
        let errno = std::io::Error::last_os_error().raw_os_error().unwrap_or(0);
        Self { call, errno }
    }
}
