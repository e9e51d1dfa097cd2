// SPDX-License-Identifier: MIT OR Apache-2.0
//! The types that debugger and library share: those of `mpi_interface.h`, version 1.13, with Rust names.
//!
//! # Safety
//! This file only has function types; each call site states why the call is sound.

use core::ffi::{c_char, c_int, c_long, c_ulong, c_void};

/// `mqs_taddr_t`: an address of the target.
pub type Address = c_ulong;
/// Bytes of an address.
pub const ADDRESS_BYTES: c_int = 8;
/// `mqs_tword_t`: a `long` of the target.
pub type Word = c_long;

/// The result of [`mqs_version_compatibility`](crate::entry::mqs_version_compatibility).
pub const INTERFACE_COMPATIBILITY: c_int = 2;
/// `MQS_INVALID_PROCESS`.
pub const INVALID_PROCESS: c_int = -1;
/// `mqs_ok`.
pub const OK: c_int = 0;
/// `mqs_no_information`.
pub const NO_INFORMATION: c_int = 1;
/// `mqs_end_of_list`.
pub const END_OF_LIST: c_int = 2;
/// `mqs_first_user_code`.
pub const FIRST_USER_CODE: c_int = 100;
/// `mqs_pending_sends`.
pub const PENDING_SENDS: c_int = 0;
/// `mqs_pending_receives`.
pub const PENDING_RECEIVES: c_int = 1;
/// `mqs_unexpected_messages`.
pub const UNEXPECTED_MESSAGES: c_int = 2;
/// `mqs_rmpi_other_operations`, an extension of rmpi: pending operations other than sends and receives, such as
/// collectives and probes. The number is far above those that the interface assigns to queues.
pub const OTHER_OPERATIONS: c_int = FIRST_USER_CODE;
/// `mqs_rmpi_inactive_receives`, an extension of rmpi: persistent receives that are not started.
pub const INACTIVE_RECEIVES: c_int = FIRST_USER_CODE + 1;
/// `mqs_st_pending`.
pub const PENDING: c_int = 0;
/// `mqs_st_matched`.
pub const MATCHED: c_int = 1;
/// `mqs_st_complete`.
pub const COMPLETE: c_int = 2;
/// Names of the collectives, indexed by the number of `mqs_get_comm_coll_state`; those from the fifteenth on are rmpi's own.
pub use queue_layout::COLLECTIVES;

/// `mqs_lang_c`.
pub const LANGUAGE_C: c_int = 'c' as c_int;

/// `mqs_target_type_sizes`; some debuggers write two fields after the five of the interface.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct TypeSizes {
    /// Bytes of `short`.
    pub short_size: c_int,
    /// Bytes of `int`.
    pub int_size: c_int,
    /// Bytes of `long`.
    pub long_size: c_int,
    /// Bytes of `long long`.
    pub long_long_size: c_int,
    /// Bytes of an address.
    pub pointer_size: c_int,
    /// Room for the fields of a debugger with a longer structure.
    pub more: [c_int; 11],
}

/// `mqs_communicator`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Communicator {
    /// Id that is equal on all ranks of the communicator, and different from that of every other communicator.
    pub unique_id: Address,
    /// Rank of the process in the communicator.
    pub local_rank: Word,
    /// Number of ranks that a message can come from or go to: for an intercommunicator, the size of the remote group.
    pub size: Word,
    /// Name of the communicator, if any.
    pub name: [u8; 64],
}

/// `mqs_pending_operation`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct PendingOperation {
    /// [`PENDING`], [`MATCHED`] or [`COMPLETE`].
    pub status: c_int,
    /// Rank of the peer in the communicator; -1 for any.
    pub desired_local_rank: Word,
    /// Rank of the peer in `MPI_COMM_WORLD`; -1 for any.
    pub desired_global_rank: Word,
    /// Not 0 if any tag matches.
    pub tag_wild: c_int,
    /// The tag, unless `tag_wild` is set.
    pub desired_tag: Word,
    /// Bytes of the buffer or the message.
    pub desired_length: Word,
    /// Not 0 if `buffer` belongs to the library.
    pub system_buffer: c_int,
    /// Address of the data.
    pub buffer: Address,
    /// For sends, unexpected messages and matched receives: rank of the peer in the communicator.
    pub actual_local_rank: Word,
    /// For sends, unexpected messages and matched receives: rank of the peer in `MPI_COMM_WORLD`.
    pub actual_global_rank: Word,
    /// The tag of the message.
    pub actual_tag: Word,
    /// The bytes of the message.
    pub actual_length: Word,
    /// Lines of text that the debugger prints unchanged.
    pub extra_text: [[u8; 64]; 5],
}

/// An object of the debugger; the library only passes pointers to it.
#[derive(Debug)]
#[repr(C)]
pub struct Opaque {
    nothing: [u8; 0],
}

/// `mqs_basic_callbacks`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct BasicCallbacks {
    /// `mqs_malloc_fp`.
    pub malloc: Option<unsafe extern "C" fn(usize) -> *mut c_void>,
    /// `mqs_free_fp`.
    pub free: Option<unsafe extern "C" fn(*mut c_void)>,
    /// `mqs_dprints_fp`; never called.
    pub dprints: Option<unsafe extern "C" fn(*const c_char)>,
    /// `mqs_errorstring_fp`.
    pub errorstring: Option<unsafe extern "C" fn(c_int) -> *mut c_char>,
    /// `mqs_put_image_info_fp`.
    pub put_image_info: Option<unsafe extern "C" fn(*mut Opaque, *mut c_void)>,
    /// `mqs_get_image_info_fp`.
    pub get_image_info: Option<unsafe extern "C" fn(*mut Opaque) -> *mut c_void>,
    /// `mqs_put_process_info_fp`.
    pub put_process_info: Option<unsafe extern "C" fn(*mut Opaque, *mut c_void)>,
    /// `mqs_get_process_info_fp`.
    pub get_process_info: Option<unsafe extern "C" fn(*mut Opaque) -> *mut c_void>,
}

/// `mqs_image_callbacks`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct ImageCallbacks {
    /// `mqs_get_type_sizes_fp`.
    pub get_type_sizes: Option<unsafe extern "C" fn(*mut Opaque, *mut TypeSizes)>,
    /// `mqs_find_function_fp`.
    pub find_function:
        Option<unsafe extern "C" fn(*mut Opaque, *mut c_char, c_int, *mut Address) -> c_int>,
    /// `mqs_find_symbol_fp`.
    pub find_symbol: Option<unsafe extern "C" fn(*mut Opaque, *mut c_char, *mut Address) -> c_int>,
    /// `mqs_find_type_fp`.
    pub find_type: Option<unsafe extern "C" fn(*mut Opaque, *mut c_char, c_int) -> *mut Opaque>,
    /// `mqs_field_offset_fp`.
    pub field_offset: Option<unsafe extern "C" fn(*mut Opaque, *mut c_char) -> c_int>,
    /// `mqs_sizeof_fp`.
    pub sizeof: Option<unsafe extern "C" fn(*mut Opaque) -> c_int>,
}

/// `mqs_process_callbacks`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct ProcessCallbacks {
    /// `mqs_get_global_rank_fp`.
    pub get_global_rank: Option<unsafe extern "C" fn(*mut Opaque) -> c_int>,
    /// `mqs_get_image_fp`.
    pub get_image: Option<unsafe extern "C" fn(*mut Opaque) -> *mut Opaque>,
    /// `mqs_fetch_data_fp`.
    pub fetch_data: Option<unsafe extern "C" fn(*mut Opaque, Address, c_int, *mut c_void) -> c_int>,
    /// `mqs_target_to_host_fp`.
    pub target_to_host:
        Option<unsafe extern "C" fn(*mut Opaque, *const c_void, *mut c_void, c_int)>,
}

const _: () = {
    use core::mem::offset_of;
    assert!(
        size_of::<Address>() == ADDRESS_BYTES as usize,
        "a debugger of 64 bits"
    );
    assert!(offset_of!(TypeSizes, pointer_size) == 16);
    assert!(size_of::<Communicator>() == 88);
    assert!(offset_of!(Communicator, name) == 24);
    assert!(size_of::<PendingOperation>() == 416);
    assert!(offset_of!(PendingOperation, desired_tag) == 32);
    assert!(offset_of!(PendingOperation, buffer) == 56);
    assert!(offset_of!(PendingOperation, extra_text) == 96);
    assert!(size_of::<BasicCallbacks>() == 64);
    assert!(size_of::<ImageCallbacks>() == 48);
    assert!(size_of::<ProcessCallbacks>() == 32);
};
