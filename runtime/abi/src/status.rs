// SPDX-License-Identifier: MIT OR Apache-2.0
//! `MPI_Status` and its accessors (MPI 5.0 sections 3.2.5, 3.8.4 and 13.3).
//!
//! The field `MPI_internal`, which the standard leaves to the library, contains the message's length in bytes (two
//! words, the low one first) and the cancelled flag. Its other two words are zero.
#![allow(non_camel_case_types, reason = "the standard's name")]
#![allow(non_snake_case, reason = "the standard's fields")]

use core::ffi::c_int;

use crate::args::{OutArg, OutCount, StatusMut};
use crate::c::{MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_PROC_NULL, MPI_SUCCESS, MPI_UNDEFINED};
use crate::enter::Mpi;
use crate::error::Result;
use crate::handle::{MPI_Count, MPI_Datatype};
use crate::pt2pt::bad_count;

/// `MPI_Status`: 32 bytes in the standard ABI.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(C)]
pub struct MPI_Status {
    /// The source rank.
    pub MPI_SOURCE: c_int,
    /// The tag.
    pub MPI_TAG: c_int,
    /// The error code. Calls that complete operations set it only if they return `MPI_ERR_IN_STATUS` or write the empty
    /// status.
    pub MPI_ERROR: c_int,
    pub(crate) internal: [c_int; 5],
}

const _: () = assert!(size_of::<MPI_Status>() == 32 && align_of::<MPI_Status>() == 4);

impl MPI_Status {
    pub(crate) const LOW: usize = 0;
    pub(crate) const HIGH: usize = 1;
    pub(crate) const CANCELLED: usize = 2;

    /// The empty status of MPI 5.0 section 3.7.3: any source, any tag, no bytes, not cancelled.
    pub const EMPTY: Self = Self {
        MPI_SOURCE: MPI_ANY_SOURCE,
        MPI_TAG: MPI_ANY_TAG,
        MPI_ERROR: MPI_SUCCESS,
        internal: [0; 5],
    };

    /// The status of a receive from `MPI_PROC_NULL` (MPI 5.0 section 3.10).
    pub const PROC_NULL: Self = Self {
        MPI_SOURCE: MPI_PROC_NULL,
        ..Self::EMPTY
    };

    /// The status of a message of `bytes` bytes.
    pub fn received(source: c_int, tag: c_int, bytes: u64) -> Self {
        let mut status = Self {
            MPI_SOURCE: source,
            MPI_TAG: tag,
            ..Self::EMPTY
        };
        status.set_bytes(bytes);
        status
    }

    /// Bytes of the message.
    pub fn bytes(&self) -> u64 {
        let word = |at: usize| u64::from(self.internal[at].cast_unsigned());
        word(Self::HIGH) << 32 | word(Self::LOW)
    }

    /// Sets the bytes of the message.
    #[allow(
        clippy::cast_possible_truncation,
        reason = "a 64-bit number is cut into two words"
    )]
    pub fn set_bytes(&mut self, bytes: u64) {
        self.internal[Self::LOW] = (bytes as u32).cast_signed();
        self.internal[Self::HIGH] = ((bytes >> 32) as u32).cast_signed();
    }

    /// Whether the operation was cancelled.
    pub fn cancelled(&self) -> bool {
        self.internal[Self::CANCELLED] != 0
    }

    /// Sets whether the operation was cancelled.
    pub fn set_cancelled(&mut self, cancelled: bool) {
        self.internal[Self::CANCELLED] = c_int::from(cancelled);
    }
}

/// `MPI_Status_get_source`.
pub fn get_source(status: MPI_Status, source: OutArg<'_, c_int>) -> Result<()> {
    source.set(status.MPI_SOURCE);
    Ok(())
}

/// `MPI_Status_get_tag`.
pub fn get_tag(status: MPI_Status, tag: OutArg<'_, c_int>) -> Result<()> {
    tag.set(status.MPI_TAG);
    Ok(())
}

/// `MPI_Status_get_error`.
pub fn get_error(status: MPI_Status, error: OutArg<'_, c_int>) -> Result<()> {
    error.set(status.MPI_ERROR);
    Ok(())
}

/// `MPI_Status_set_source`.
pub fn set_source(status: StatusMut<'_>, source: c_int) -> Result<()> {
    status.set_source(source);
    Ok(())
}

/// `MPI_Status_set_tag`.
pub fn set_tag(status: StatusMut<'_>, tag: c_int) -> Result<()> {
    status.set_tag(tag);
    Ok(())
}

/// `MPI_Status_set_error`.
pub fn set_error(status: StatusMut<'_>, error: c_int) -> Result<()> {
    status.set_error(error);
    Ok(())
}

/// `MPI_Status_set_cancelled`.
pub fn set_cancelled(status: StatusMut<'_>, flag: c_int) -> Result<()> {
    status.set_cancelled(flag != 0);
    Ok(())
}

/// `MPI_Test_cancelled`.
pub fn test_cancelled(status: MPI_Status, flag: OutArg<'_, c_int>) -> Result<()> {
    flag.set(c_int::from(status.cancelled()));
    Ok(())
}

/// `MPI_Get_count`.
pub fn get_count(
    mpi: Mpi,
    status: MPI_Status,
    datatype: MPI_Datatype,
    count: OutCount<'_>,
) -> Result<()> {
    let size = crate::datatype::of(mpi, datatype)?.size;
    let bytes = status.bytes();
    // For a datatype of size 0 the count is 0 if no byte was received, otherwise undefined (MPI 5.0 section 3.2.5).
    let items = match size {
        0 => (bytes == 0).then_some(0),
        _ => bytes.is_multiple_of(size).then_some(bytes / size),
    };
    count.set_or_undefined(items.and_then(|items| i64::try_from(items).ok()));
    Ok(())
}

/// `MPI_Get_elements`.
pub fn get_elements(
    mpi: Mpi,
    status: MPI_Status,
    datatype: MPI_Datatype,
    count: OutCount<'_>,
) -> Result<()> {
    let elements = crate::datatype::of(mpi, datatype)?.elements(status.bytes());
    count.set_or_undefined(elements.and_then(|elements| i64::try_from(elements).ok()));
    Ok(())
}

/// `MPI_Get_elements_x`.
pub fn get_elements_x(
    mpi: Mpi,
    status: MPI_Status,
    datatype: MPI_Datatype,
    count: OutArg<'_, MPI_Count>,
) -> Result<()> {
    let elements = crate::datatype::of(mpi, datatype)?.elements(status.bytes());
    let elements = elements.and_then(|elements| i64::try_from(elements).ok());
    count.set(elements.unwrap_or_else(|| MPI_UNDEFINED.into()));
    Ok(())
}

/// `MPI_Status_set_elements`.
pub fn set_elements(
    mpi: Mpi,
    status: StatusMut<'_>,
    datatype: MPI_Datatype,
    count: i64,
) -> Result<()> {
    let count = u64::try_from(count).map_err(|_| bad_count(count))?;
    status.set_bytes(crate::datatype::of(mpi, datatype)?.bytes_of(count));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_holds_lengths_beyond_32_bits() {
        for bytes in [
            0,
            1,
            u64::from(u32::MAX),
            1 << 40 | 7,
            i64::MAX.cast_unsigned(),
        ] {
            assert_eq!(MPI_Status::received(3, 7, bytes).bytes(), bytes);
        }
    }

    #[test]
    fn the_cancelled_flag_does_not_touch_the_length() {
        let mut status = MPI_Status::received(0, 0, 1 << 33);
        status.set_cancelled(true);
        assert!(status.cancelled() && status.bytes() == 1 << 33);
    }
}
