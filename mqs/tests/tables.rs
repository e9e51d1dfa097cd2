// SPDX-License-Identifier: MIT OR Apache-2.0
//! The callbacks of a debugger: which are required, and which are optional.
//!
//! # Safety
//! Functions of the interface are called as a debugger does; see `fake`.
#![allow(unsafe_code)]
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod fake;

use core::ffi::{CStr, c_char, c_int};
use std::cell::Cell;
use std::ptr::{null, null_mut};
use std::sync::{Mutex, MutexGuard};

use fake::{BASIC, IMAGE, Model, PROCESS};
use mqs::entry::*;
use mqs::interface::*;
use queue_layout::{RequestKind, RequestState};

/// All tests of this process share the table of basic callbacks, so only one test at a time runs.
fn alone() -> MutexGuard<'static, ()> {
    static ONE: Mutex<()> = Mutex::new(());
    ONE.lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner)
}

thread_local! {
    static TRAPPED: Cell<u32> = const { Cell::new(0) };
}

fn trap() {
    TRAPPED.set(TRAPPED.get() + 1);
}

unsafe extern "C" fn dprints(_: *const c_char) {
    trap();
}

unsafe extern "C" fn errorstring(_: c_int) -> *mut c_char {
    trap();
    null_mut()
}

unsafe extern "C" fn find_function(
    _: *mut Opaque,
    _: *mut c_char,
    _: c_int,
    _: *mut Address,
) -> c_int {
    trap();
    NO_INFORMATION
}

unsafe extern "C" fn find_type(_: *mut Opaque, _: *mut c_char, _: c_int) -> *mut Opaque {
    trap();
    null_mut()
}

unsafe extern "C" fn field_offset(_: *mut Opaque, _: *mut c_char) -> c_int {
    trap();
    -1
}

unsafe extern "C" fn type_size(_: *mut Opaque) -> c_int {
    trap();
    -1
}

unsafe extern "C" fn global_rank(_: *mut Opaque) -> c_int {
    trap();
    INVALID_PROCESS
}

/// MQS-050, MQS-051, MQS-057, MQS-059..062 and MQS-096: the library neither prints through the debugger, nor looks up
/// functions, types or the debugger's rank for the process. So queues are shown for optimized and stripped programs
/// too. All other callbacks are required (MQS-089).
#[test]
fn mqs_096_optional_callbacks_are_never_called() {
    let _alone = alone();
    let mut model = Model::new();
    model.slot(|it| (it.kind, it.state) = (RequestKind::Receive, RequestState::Posted));
    let mut fake = model.process();
    let basic: &'static _ = Box::leak(Box::new(BasicCallbacks {
        dprints: Some(dprints),
        errorstring: Some(errorstring),
        ..BASIC
    }));
    let image: &'static _ = Box::leak(Box::new(ImageCallbacks {
        find_function: Some(find_function),
        find_type: Some(find_type),
        field_offset: Some(field_offset),
        sizeof: Some(type_size),
        ..IMAGE
    }));
    let process: &'static _ = Box::leak(Box::new(ProcessCallbacks {
        get_global_rank: Some(global_rank),
        ..PROCESS
    }));
    let attached = fake.attach_with(basic, image, process);
    assert_eq!(attached, (vec![OK; 4], None));
    assert_eq!(fake.list().unwrap()[0].queues[1].len(), 1);
    fake.detach();
    // The optional callbacks are not called on an error either.
    let mut fake = model.process();
    fake.memory.clear();
    assert_eq!(fake.attach_with(basic, image, process).0[3], 103);
    fake.detach();
    assert_eq!(TRAPPED.get(), 0);
}

/// MQS-048, MQS-049, MQS-052..056, MQS-058, MQS-063..065: the required callbacks. A table that lacks one of them is
/// refused with a message.
#[test]
fn mqs_089_a_table_without_a_required_callback_is_refused() {
    let _alone = alone();
    type Lack = fn(&mut BasicCallbacks, &mut ImageCallbacks, &mut ProcessCallbacks);
    let lacks: [Lack; 11] = [
        |basic, _, _| basic.malloc = None,
        |basic, _, _| basic.free = None,
        |basic, _, _| basic.put_image_info = None,
        |basic, _, _| basic.get_image_info = None,
        |basic, _, _| basic.put_process_info = None,
        |basic, _, _| basic.get_process_info = None,
        |_, image, _| image.get_type_sizes = None,
        |_, image, _| image.find_symbol = None,
        |_, _, process| process.get_image = None,
        |_, _, process| process.fetch_data = None,
        |_, _, process| process.target_to_host = None,
    ];
    for (number, lack) in lacks.into_iter().enumerate() {
        let (mut basic, mut image, mut process) = (BASIC, IMAGE, PROCESS);
        lack(&mut basic, &mut image, &mut process);
        let mut fake = Model::new().process();
        let basic: &'static _ = Box::leak(Box::new(basic));
        let (image, process) = (Box::leak(Box::new(image)), Box::leak(Box::new(process)));
        let answers = fake.attach_with(basic, image, process).0;
        let refused = answers.iter().find(|code| **code >= FIRST_USER_CODE);
        let refused = *refused.unwrap_or_else(|| panic!("{number}: {answers:?}"));
        // SAFETY: a static string.
        let text = unsafe { CStr::from_ptr(mqs_dll_error_string(refused)) };
        assert!(!text.is_empty(), "{number}");
        // A complete table again, for the next case and to free all memory.
        // SAFETY: a static table.
        unsafe { mqs_setup_basic_callbacks(&raw const BASIC) };
        fake.detach();
    }
}

/// MQS-066..070
#[test]
fn mqs_068_version_queries_work_without_callbacks() {
    let _alone = alone();
    // SAFETY: NULL, which the function must accept.
    unsafe { mqs_setup_basic_callbacks(null()) };
    assert_eq!(mqs_version_compatibility(), 2);
    assert_eq!(mqs_dll_taddr_width(), 8);
    for code in [-1, 0, 1, 2, 3, 99, 100, 109, 110, c_int::MAX, c_int::MIN] {
        // SAFETY: a static string.
        let text = unsafe { CStr::from_ptr(mqs_dll_error_string(code)) };
        assert!(!text.is_empty() && !text.to_bytes().contains(&b'\n'));
    }
    let mut fake = Model::new().process();
    let it = fake.opaque();
    // SAFETY: a process without info.
    let refused = unsafe { mqs_update_communicator_list(it) };
    assert_eq!(refused, 101, "no table");
    // SAFETY: an image without info.
    assert_eq!(unsafe { mqs_setup_image(it, &raw const IMAGE) }, 101);
}
