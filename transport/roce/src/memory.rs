// SPDX-License-Identifier: MIT OR Apache-2.0
//! How the engine reaches memory: by key, address and length, through whoever holds the regions.

use std::fmt;

/// The registered memory of this process.
///
/// A key names a region, whether this process or a peer says it; [`MemoryAccess`] says which of the two it is, and what for. The engine
/// calls [`check`](Self::check) before all else, but an implementation trusts no call: each checks the bounds of its region.
pub trait RegisteredMemory {
    /// Whether all `bytes` from `address` on lie in the region of `key`, and `access` to them is allowed.
    ///
    /// # Errors
    /// The first rule that does not hold.
    fn check(
        &self,
        key: u32,
        address: u64,
        bytes: u64,
        access: MemoryAccess,
    ) -> Result<(), AccessError>;

    /// Writes `bytes` to `address` on.
    ///
    /// # Errors
    /// The region is gone, or ends before; then nothing was written.
    fn place(&mut self, key: u32, address: u64, bytes: &[u8]) -> Result<(), AccessError>;

    /// Adds to the 8 bytes at `address`, which is a multiple of 8, in the byte order of this host; answers what was there.
    ///
    /// # Errors
    /// The region is gone, or ends before; then nothing was changed.
    fn fetch_add(&mut self, key: u32, address: u64, add: u64) -> Result<u64, AccessError>;

    /// Puts `swap` at `address`, which is a multiple of 8, if `compare` is there; answers what was there.
    ///
    /// # Errors
    /// The region is gone, or ends before; then nothing was changed.
    fn compare_swap(
        &mut self,
        key: u32,
        address: u64,
        compare: u64,
        swap: u64,
    ) -> Result<u64, AccessError>;
}

/// Who accesses memory, and how.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemoryAccess {
    /// This process sends it.
    LocalRead,
    /// This process lets a message or the answer to a request into it.
    LocalWrite,
    /// A peer reads it.
    RemoteRead,
    /// A peer writes it.
    RemoteWrite,
    /// A peer does an atomic operation on it.
    RemoteAtomic,
}

/// Why memory cannot be reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum AccessError {
    /// No region has this key.
    Key {
        /// What was given.
        key: u32,
    },
    /// The bytes do not all lie in the region.
    Bounds {
        /// Key of the region.
        key: u32,
        /// Where they begin.
        address: u64,
        /// How many they are.
        bytes: u64,
    },
    /// The region does not allow it.
    Denied {
        /// Key of the region.
        key: u32,
        /// What was wanted.
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
    /// Key of its region.
    pub key: u32,
    /// Where it begins.
    pub address: u64,
    /// Its length in bytes.
    pub bytes: u32,
}

impl RoceSge {
    /// The part that begins `offset` bytes in, `bytes` long. The caller keeps both inside the piece.
    pub(crate) fn part(&self, offset: u32, bytes: u32) -> Self {
        Self {
            key: self.key,
            address: self.address.wrapping_add(u64::from(offset)),
            bytes,
        }
    }
}
