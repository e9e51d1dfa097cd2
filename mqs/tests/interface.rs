// SPDX-License-Identifier: MIT OR Apache-2.0
//! Each function that a debugger calls, and each field that it receives.
//!
//! # Safety
//! Functions of the interface are called as a debugger does; see `fake`.
#![allow(unsafe_code)]
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod fake;

use core::ffi::{CStr, c_int};
use std::ptr::{null, null_mut};

use fake::{Fake, Model};
use mqs::entry::*;
use mqs::image::MqsError;
use mqs::interface::*;
use queue_layout::{ANY_PEER, ANY_TAG, RequestKind, RequestState};

fn attached(mut fake: Box<Fake>) -> Box<Fake> {
    assert_eq!(fake.attach(), (vec![OK; 4], None));
    fake
}

fn nowhere() -> Communicator {
    Communicator {
        unique_id: 0,
        local_rank: 0,
        size: 0,
        name: [0; 64],
    }
}

/// MQS-071, MQS-073, MQS-074, MQS-076
#[test]
fn mqs_073_infos_are_freed_once_and_null_is_accepted() {
    let mut fake = Model::new().process();
    assert_eq!(fake.infos(), (null_mut(), null_mut()));
    assert_eq!(fake.attach().0, [OK; 4]);
    let (image, process) = fake.infos();
    assert!(!image.is_null() && !process.is_null() && image != process);
    fake.list().unwrap();
    fake.detach();
    // SAFETY: nothing to free, here and below.
    assert_eq!(unsafe { mqs_destroy_image_info(null_mut()) }, OK);
    // SAFETY: as above.
    assert_eq!(unsafe { mqs_destroy_process_info(null_mut()) }, OK);
}

/// MQS-072, MQS-075: a debugger uses the message as a format string for the image's name.
#[test]
fn mqs_075_messages_contain_no_format_directive() {
    for code in 100..=MqsError::NotSetUp.code() {
        let text = MqsError::message(code).unwrap().to_bytes();
        assert!(!text.is_empty() && !text.contains(&b'%'), "{code}");
    }
    let mut fake = attached(Box::new(Model::new().process()));
    let it = fake.opaque();
    // A debugger may pass NULL for the message.
    // SAFETY: an attached process, here and below; NULL may be given.
    assert_eq!(unsafe { mqs_image_has_queues(it, null_mut()) }, OK);
    // SAFETY: as above.
    assert_eq!(unsafe { mqs_process_has_queues(it, null_mut()) }, OK);
    fake.memory.clear();
    let mut message = null();
    // SAFETY: as above, and room for a pointer.
    assert_eq!(unsafe { mqs_process_has_queues(it, &raw mut message) }, 103);
    // SAFETY: a static string.
    let text = unsafe { CStr::from_ptr(message) }.to_str().unwrap();
    assert_eq!(text, "memory of the process cannot be read");
    fake.detach();
}

/// MQS-077..081
#[test]
fn mqs_078_081_the_communicator_iterator_moves_only_on_next() {
    let mut model = Model::new();
    model.comm(12, 0, &[1, 3], None);
    let mut fake = attached(Box::new(model.process()));
    let it = fake.opaque();
    let ids = |count: usize| -> Vec<Address> {
        let one = |_| {
            let mut comm = nowhere();
            // SAFETY: an attached process and room for the answer.
            assert_eq!(unsafe { mqs_get_communicator(it, &raw mut comm) }, OK);
            comm.unique_id
        };
        (0..count).map(one).collect()
    };
    for _ in 0..2 {
        // This call reads the communicators if they were not read before.
        // SAFETY: an attached process, here and below.
        assert_eq!(unsafe { mqs_setup_communicator_iterator(it) }, OK);
        assert_eq!(ids(2), [4, 4]);
        // SAFETY: as above.
        assert_eq!(unsafe { mqs_next_communicator(it) }, OK);
        assert_eq!(ids(2), [1 << 32 | 12; 2]);
        for _ in 0..2 {
            // SAFETY: as above.
            assert_eq!(unsafe { mqs_next_communicator(it) }, END_OF_LIST);
            let mut comm = nowhere();
            // SAFETY: as above, and room for the answer.
            let behind = unsafe { mqs_get_communicator(it, &raw mut comm) };
            assert_eq!(behind, 109);
            // SAFETY: as above; nothing is written if there is no communicator.
            assert_eq!(unsafe { mqs_get_comm_group(it, null_mut()) }, 109);
        }
    }
    fake.detach();
}

/// MQS-082, MQS-083
#[test]
fn mqs_083_each_queue_can_be_walked_repeatedly() {
    let mut model = Model::new();
    for tag in [5, 6] {
        model.slot(|it| {
            (it.kind, it.state, it.tag) = (RequestKind::Receive, RequestState::Posted, tag)
        });
    }
    let mut fake = attached(Box::new(model.process()));
    let it = fake.opaque();
    let next = || {
        let mut operation = core::mem::MaybeUninit::<PendingOperation>::zeroed();
        // SAFETY: an attached process, and room for the answer.
        match unsafe { mqs_next_operation(it, operation.as_mut_ptr()) } {
            // SAFETY: filled in.
            OK => Ok(unsafe { operation.assume_init() }.desired_tag),
            other => Err(other),
        }
    };
    // SAFETY: an attached process, here and below.
    assert_eq!(unsafe { mqs_setup_communicator_iterator(it) }, OK);
    assert_eq!(next(), Err(END_OF_LIST), "no queue was chosen");
    for class in [1, 0, 1, 2, INACTIVE_RECEIVES] {
        // SAFETY: as above.
        assert_eq!(unsafe { mqs_setup_operation_iterator(it, class) }, OK);
        let expected: &[_] = if class == 1 { &[Ok(5), Ok(6)] } else { &[] };
        for tag in expected {
            assert_eq!(next(), *tag);
        }
        assert_eq!((next(), next()), (Err(END_OF_LIST), Err(END_OF_LIST)));
    }
    for class in [100, 101] {
        // SAFETY: as above; the numbers of rmpi's own queues.
        assert_eq!(unsafe { mqs_setup_operation_iterator(it, class) }, OK);
        assert_eq!(next(), Err(END_OF_LIST));
    }
    for class in [-1, 3, 99, 102, c_int::MIN, c_int::MAX] {
        // SAFETY: as above.
        let answer = unsafe { mqs_setup_operation_iterator(it, class) };
        assert_eq!(answer, NO_INFORMATION);
    }
    // SAFETY: as above.
    assert_eq!(unsafe { mqs_setup_operation_iterator(it, 1) }, OK);
    // SAFETY: as above; without room nothing is written.
    assert_eq!(unsafe { mqs_next_operation(it, null_mut()) }, 109);
    fake.detach();
}

/// MQS-091: iterators of different processes are independent.
#[test]
fn mqs_091_iterators_of_two_processes_are_independent() {
    let mut model = Model::new();
    model.comm(12, 0, &[1, 3], None);
    let mut two = [(); 2].map(|()| attached(Box::new(model.process())));
    let [first, second] = [two[0].opaque(), two[1].opaque()];
    let id = |it| {
        let mut comm = nowhere();
        // SAFETY: an attached process and room for the answer.
        assert_eq!(unsafe { mqs_get_communicator(it, &raw mut comm) }, OK);
        comm.unique_id
    };
    for it in [first, second] {
        // SAFETY: an attached process, here and below.
        assert_eq!(unsafe { mqs_setup_communicator_iterator(it) }, OK);
    }
    // SAFETY: as above.
    assert_eq!(unsafe { mqs_next_communicator(second) }, OK);
    assert_eq!((id(first), id(second)), (4, 1 << 32 | 12));
    two[1].release();
    assert_eq!(two[0].list().unwrap().len(), 2);
    two[0].detach();
}

/// MQS-093: communicators with ranks outside `MPI_COMM_WORLD` are not listed.
#[test]
fn mqs_093_communicators_with_ranks_outside_the_world_are_omitted() {
    let mut model = Model::new();
    model.comm(12, 0, &[1, 2, 3, 4, 5], None);
    model.comm(16, 0, &[1], Some(&[0, 1, 2, 3, 4]));
    model.comm(20, 0, &[1, 0], None);
    let mut fake = attached(Box::new(model.process()));
    let all = fake.list().unwrap();
    let sizes: Vec<_> = all.iter().map(|it| it.comm.size).collect();
    assert_eq!(sizes, [4, 2]);
    fake.detach();
}

/// MQS-031..034: every field of a communicator; a name that is too long is truncated.
#[test]
fn mqs_031_034_all_fields_of_a_communicator() {
    let mut model = Model::new();
    let name = "n".repeat(100);
    model.comm(12, 1, &[3, 1], None).rename(&name);
    let mut fake = attached(Box::new(model.process()));
    let all = fake.list().unwrap();
    let comm = all[1].comm;
    assert_eq!(comm.unique_id, 3 << 32 | 12);
    assert_eq!((comm.local_rank, comm.size), (1, 2));
    assert_eq!(all[1].name(), name[..63]);
    assert_ne!(all[0].comm.unique_id, comm.unique_id);
    fake.detach();
}

/// MQS-035..047: every field of an operation, in each queue.
#[test]
fn mqs_035_047_all_fields_of_an_operation() {
    let mut model = Model::new();
    model.comm(12, 1, &[3, 1], None);
    let mut slot = |kind, state| {
        model.slot(|it| {
            (it.kind, it.state, it.context) = (kind, state, 12);
            (it.peer, it.tag, it.bytes, it.buffer) = (3, 7, 1 << 33, 0x7f00_0000_1000);
            (it.matched_peer, it.matched_tag, it.matched_bytes) = (1, 8, 24);
        });
    };
    slot(RequestKind::Send, RequestState::Queued);
    slot(RequestKind::Receive, RequestState::Posted);
    slot(RequestKind::Receive, RequestState::Moving);
    slot(RequestKind::Receive, RequestState::Complete);
    slot(RequestKind::Unexpected, RequestState::Envelope);
    model.slot(|it| {
        (it.kind, it.state, it.context) = (RequestKind::Receive, RequestState::Posted, 12);
        (it.peer, it.tag) = (ANY_PEER, ANY_TAG);
    });
    let mut fake = attached(Box::new(model.process()));
    let all = fake.list().unwrap();
    let [sends, receives, unexpected] = &all[1].queues;
    let desired = |it: &PendingOperation| {
        let peer = (it.desired_local_rank, it.desired_global_rank);
        (peer, it.tag_wild, it.desired_tag, it.desired_length)
    };
    let actual = |it: &PendingOperation| {
        let peer = (it.actual_local_rank, it.actual_global_rank);
        (peer, it.actual_tag, it.actual_length)
    };
    let named = ((0, 3), 0, 7, 1 << 33);
    for it in sends.iter().chain(&receives[..3]).chain(unexpected) {
        assert_eq!(desired(it), named);
        assert_eq!(it.buffer, 0x7f00_0000_1000);
        assert!(it.extra_text[0].contains(&0) && it.extra_text[0][0] != 0);
    }
    let message = ((0, 3), 7, 1 << 33);
    assert_eq!(
        (actual(&sends[0]), actual(&unexpected[0])),
        (message, message)
    );
    let matched = ((1, 1), 8, 24);
    assert_eq!([&receives[1], &receives[2]].map(actual), [matched; 2]);
    let status = receives.iter().map(|it| it.status);
    let expected = [PENDING, MATCHED, COMPLETE, PENDING];
    assert_eq!(status.collect::<Vec<_>>(), expected);
    assert_eq!((sends[0].status, unexpected[0].status), (PENDING, PENDING));
    assert_eq!((sends[0].system_buffer, receives[0].system_buffer), (0, 0));
    assert_eq!(unexpected[0].system_buffer, 1);
    let wild = &receives[3];
    let any = (wild.desired_local_rank, wild.desired_global_rank);
    assert_eq!((any, wild.tag_wild), ((-1, -1), 1));
    fake.detach();
}
