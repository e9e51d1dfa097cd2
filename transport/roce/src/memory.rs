// SPDX-License-Identifier: MIT OR Apache-2.0
//! The engine's access to registered memory: by key, address and length, through an implementation by the owner of the
//! regions.

use std::fmt;

/// The registered memory of this process.
///
/// A key names a region for local and for remote access; [`MemoryAccess`] distinguishes the two. The engine calls
/// [`check`](Self::check) before every access; an implementation nevertheless checks the bounds of its region in each
/// call.
pub trait RegisteredMemory {
    /// Checks that all `bytes` from `address` on lie in the region of `key`, and that the region allows `access`.
    ///
    /// # Errors
    /// The key names no region, the bytes do not all lie in the region, or the region does not allow the access.
    fn check(
        &self,
        key: u32,
        address: u64,
        bytes: u64,
        access: MemoryAccess,
    ) -> Result<(), AccessError>;

    /// Writes `bytes` at `address`.
    ///
    /// # Errors
    /// The region was deregistered, or ends too early; then nothing was written.
    fn place(&mut self, key: u32, address: u64, bytes: &[u8]) -> Result<(), AccessError>;

    /// Adds `add` to the 8 bytes at `address`, a multiple of 8, in host byte order, and returns the original value.
    ///
    /// # Errors
    /// The region was deregistered, or ends too early; then nothing was changed.
    fn fetch_add(&mut self, key: u32, address: u64, add: u64) -> Result<u64, AccessError>;

    /// Stores `swap` at `address`, a multiple of 8, if the value there equals `compare`; returns the original value.
    ///
    /// # Errors
    /// The region was deregistered, or ends too early; then nothing was changed.
    fn compare_swap(
        &mut self,
        key: u32,
        address: u64,
        compare: u64,
        swap: u64,
    ) -> Result<u64, AccessError>;
}

/// Which side accesses memory, and how.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemoryAccess {
    /// This process reads the source of its send or write.
    LocalRead,
    /// This process writes a received message, or the response to its own request, to its destination.
    LocalWrite,
    /// A peer reads.
    RemoteRead,
    /// A peer writes.
    RemoteWrite,
    /// A peer executes an atomic operation.
    RemoteAtomic,
}

/// The reason why memory cannot be accessed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum AccessError {
    /// No region has this key.
    Key {
        /// The key.
        key: u32,
    },
    /// The bytes do not all lie within the region.
    Bounds {
        /// Key of the region.
        key: u32,
        /// Address of the first byte.
        address: u64,
        /// Number of bytes.
        bytes: u64,
    },
    /// The access rights of the region do not include this access.
    Denied {
        /// Key of the region.
        key: u32,
        /// The access that was denied.
        access: MemoryAccess,
    },
}

impl fmt::Display for AccessError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Key { key } => write!(f, "no region has key 0x{key:x}"),
            Self::Bounds {
                key,
                address,
                bytes,
            } => write!(
                f,
                "{bytes} bytes at 0x{address:x} do not lie in the region of key 0x{key:x}"
            ),
            Self::Denied { key, access } => {
                write!(f, "the region of key 0x{key:x} does not allow {access:?}")
            }
        }
    }
}

impl std::error::Error for AccessError {}

/// A scatter-gather entry: a range of a memory region of this process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RoceSge {
    /// Key of the region.
    pub key: u32,
    /// Address of the first byte of the range.
    pub address: u64,
    /// Length of the range in bytes.
    pub bytes: u32,
}

impl RoceSge {
    /// The part of the entry from `offset` on that is `bytes` long. The caller makes sure that it lies within the
    /// entry.
    pub(crate) fn part(&self, offset: u32, bytes: u32) -> Self {
        Self {
            key: self.key,
            address: self.address.wrapping_add(u64::from(offset)),
            bytes,
        }
    }
}
