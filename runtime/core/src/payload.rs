// SPDX-License-Identifier: MIT OR Apache-2.0
//! The application's data in a message or a collective, with gaps or without.

use std::borrow::Cow;
use std::ops::Range;

use crate::Error;
use crate::pack::Structured;
use crate::user_buf::UserMemory;

/// A message buffer of the application.
#[derive(Clone, Debug)]
pub enum Payload {
    /// Bytes without a gap.
    Dense(UserMemory),
    /// Items with gaps.
    Structured(Structured),
}

impl Payload {
    /// Bytes of data.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        match self {
            Self::Dense(memory) => memory.bytes() as u64,
            Self::Structured(data) => data.bytes(),
        }
    }

    /// A copy of the data without gaps.
    #[must_use]
    pub fn copy(&self) -> Box<[u8]> {
        match self {
            Self::Dense(memory) => memory.as_slice().into(),
            Self::Structured(data) => data.pack(),
        }
    }

    /// The data without gaps; copied if they have gaps.
    pub(crate) fn to_dense(&self) -> Cow<'_, [u8]> {
        match self {
            Self::Dense(memory) => Cow::Borrowed(memory.as_slice()),
            Self::Structured(data) => Cow::Owned(data.pack().into_vec()),
        }
    }

    /// Calls `give` with a part of the data, without gaps. `part`: a range of bytes of the data, in which gaps are not
    /// counted.
    pub(crate) fn with_part(&self, part: Range<u64>, give: impl FnOnce(&[u8])) {
        match self {
            Self::Dense(memory) => give(memory.part(in_memory(part)).as_slice()),
            Self::Structured(data) => {
                let mut bytes = vec![0; in_memory(part.clone()).len()];
                data.pack_at(part.start, &mut bytes);
                give(&bytes);
            }
        }
    }

    /// Fills a part of the data with the bytes that `take` writes. `part`: a range of bytes of the data, in which gaps
    /// are not counted.
    pub(crate) fn fill_part(&self, part: Range<u64>, take: impl FnOnce(&mut [u8])) {
        match self {
            Self::Dense(memory) => take(memory.part(in_memory(part)).as_mut_slice()),
            Self::Structured(data) => {
                let mut bytes = vec![0; in_memory(part.clone()).len()];
                take(&mut bytes);
                data.unpack_at(part.start, &bytes);
            }
        }
    }

    /// Copies the data to `target`.
    ///
    /// # Errors
    /// When `target` has another length.
    pub fn copy_to(&self, target: &Self) -> Result<(), Error> {
        let (given, expected) = (self.bytes(), target.bytes());
        if given != expected {
            return Err(Error::Unequal { given, expected });
        }
        match (self, target) {
            (Self::Dense(from), Self::Dense(to)) => to.copy_from(*from),
            (Self::Dense(from), Self::Structured(to)) => to.unpack(from.as_slice()),
            (_, Self::Dense(to)) => {
                let mut to = *to;
                to.as_mut_slice().copy_from_slice(&self.copy());
            }
            (_, Self::Structured(to)) => to.unpack(&self.copy()),
        }
        Ok(())
    }
}

/// A range of bytes as indices into this process's memory.
fn in_memory(part: Range<u64>) -> Range<usize> {
    let offset = |at| usize::try_from(at).unwrap_or(usize::MAX);
    offset(part.start)..offset(part.end)
}
