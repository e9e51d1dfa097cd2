// SPDX-License-Identifier: MIT OR Apache-2.0
//! Types of the PMIx standard, with the layout of versions 4 and 5.
//!
//! # Safety
//! This file makes no calls. All zero bytes are a valid value of each type (`PMIX_*_CONSTRUCT`), and the sizes of the
//! types are checked below.

use core::ffi::{c_char, c_int, c_void};

/// `pmix_status_t`.
pub(crate) type Status = c_int;

/// `pmix_proc_t`.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct Proc {
    /// A string terminated by a zero byte.
    pub(crate) namespace: [c_char; 256],
    pub(crate) rank: u32,
}

/// `pmix_value_t`.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct PmixValue {
    pub(crate) kind: u16,
    pub(crate) data: Data,
}

/// The union in `pmix_value_t`.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) union Data {
    pub(crate) flag: bool,
    pub(crate) string: *mut c_char,
    pub(crate) int: c_int,
    pub(crate) uint32: u32,
    pub(crate) uint16: u16,
    room: [u64; 3],
}

/// `pmix_info_t`.
#[repr(C)]
pub(crate) struct Info {
    pub(crate) key: [c_char; 512],
    pub(crate) flags: u32,
    pub(crate) value: PmixValue,
}

/// `pmix_op_cbfunc_t`.
pub(crate) type OpDone = unsafe extern "C" fn(Status, *mut c_void);

/// Type tags of values.
pub(crate) const BOOL: u16 = 1;
pub(crate) const STRING: u16 = 3;
pub(crate) const INT: u16 = 6;
pub(crate) const UINT16: u16 = 13;
pub(crate) const UINT32: u16 = 14;
pub(crate) const RANK: u16 = 40;
/// `PMIX_RANK_WILDCARD`.
pub(crate) const ALL_RANKS: u32 = u32::MAX - 1;
/// `PMIX_GLOBAL`.
pub(crate) const GLOBAL: u8 = 3;
/// `PMIX_SUCCESS`.
pub(crate) const SUCCESS: Status = 0;
/// `PMIX_ERR_NOT_FOUND`.
pub(crate) const NOT_FOUND: Status = -46;

impl Proc {
    /// An empty namespace and rank 0, as before `PMIx_Init`.
    pub(crate) const fn none() -> Self {
        Self {
            namespace: [0; 256],
            rank: 0,
        }
    }

    /// The process with rank `rank` in the namespace of `self`.
    pub(crate) const fn with_rank(&self, rank: u32) -> Self {
        Self { rank, ..*self }
    }
}

#[cfg(test)]
impl Data {
    /// A union with these bytes.
    pub(crate) const fn of(room: [u64; 3]) -> Self {
        Self { room }
    }
}

impl PmixValue {
    pub(crate) const fn of_flag(flag: bool) -> Self {
        let mut data = Data { room: [0; 3] };
        data.flag = flag;
        Self { kind: BOOL, data }
    }

    pub(crate) const fn of_string(string: *mut c_char) -> Self {
        let mut data = Data { room: [0; 3] };
        data.string = string;
        Self { kind: STRING, data }
    }
}

impl Info {
    /// A directive that sets the flag `key`.
    pub(crate) fn on(key: &str) -> Self {
        let mut name = [0; 512];
        // The last byte stays zero and terminates the key.
        for (place, byte) in name[..511].iter_mut().zip(key.bytes()) {
            *place = byte.cast_signed();
        }
        Self {
            key: name,
            flags: 0,
            value: PmixValue::of_flag(true),
        }
    }
}

const _: () = {
    assert!(size_of::<Proc>() == 260);
    assert!(size_of::<PmixValue>() == 32 && core::mem::offset_of!(PmixValue, data) == 8);
    assert!(size_of::<Info>() == 552 && core::mem::offset_of!(Info, value) == 520);
};
