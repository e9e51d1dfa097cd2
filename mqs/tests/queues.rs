// SPDX-License-Identifier: MIT OR Apache-2.0
//! The communicators and queues of processes whose memory is known.
//!
//! # Safety
//! Functions of the interface are called as a debugger does; see `fake`.
#![allow(unsafe_code)]
#![allow(clippy::unwrap_used, reason = "a test may panic")]
#![allow(clippy::cast_possible_truncation, reason = "small numbers")]

mod fake;

use std::ffi::CStr;
use std::ptr::null_mut;

use fake::{Fake, Model, PATIENCE};
use mqs::entry::*;
use mqs::interface::*;
use queue_layout::{
    ANY_PEER, ANY_TAG, CALL_LIST, CALL_MESSAGE, CALL_RANKS, CALL_REQUESTS, CALL_ROWS, CallFacts,
    FLAG_PERSISTENT, NO_BYTES, OF_COLLECTIVES, RequestKind, RequestState, TypeFacts, collective,
};

fn attached(mut fake: Box<Fake>) -> Box<Fake> {
    assert_eq!(fake.attach(), (vec![OK; 4], None));
    fake
}

fn refused(mut fake: Fake) -> (i32, Option<String>) {
    let (answers, message) = fake.attach();
    fake.detach();
    (*answers.last().unwrap(), message)
}

#[test]
fn mqs_066_070_version_width_and_error_strings_are_reported() {
    assert_eq!((mqs_version_compatibility(), mqs_dll_taddr_width()), (2, 8));
    let text = |pointer| {
        // SAFETY: static strings.
        let text = unsafe { CStr::from_ptr(pointer) };
        text.to_string_lossy().into_owned()
    };
    assert!(text(mqs_version_string()).starts_with("rmpi "));
    assert_eq!(text(mqs_dll_error_string(OK)), "no error");
    assert!(text(mqs_dll_error_string(102)).contains("addresses of another size"));
    assert!(text(mqs_dll_error_string(-5)).contains("does not have"));
}

#[test]
fn mqs_031_034_communicators_have_an_identity_a_rank_a_size_and_a_name() {
    let mut model = Model::new();
    model.comm(12, 0, &[1, 3], None).rename("odd");
    model.comm(16, 1, &[3, 1], Some(&[2, 0]));
    model.comm(20, 1, &[0, 1, 2, 3], None).close();
    let mut fake = attached(Box::new(model.process()));
    let all = fake.list().unwrap();
    let seen: Vec<_> = all
        .iter()
        .map(|it| (it.name(), it.comm.local_rank, it.comm.size))
        .collect();
    let expected = [("MPI_COMM_WORLD", 1, 4), ("odd", 0, 2), ("", 1, 2)];
    assert_eq!(
        seen,
        expected.map(|(name, rank, size)| (name.to_owned(), rank, size))
    );
    // MQS-080: the ranks of an intercommunicator are those of the remote group.
    let ranks: Vec<_> = all.iter().map(|it| it.ranks.clone()).collect();
    assert_eq!(ranks, [vec![0, 1, 2, 3], vec![1, 3], vec![2, 0]]);
    // The unique id is the context id, plus the world rank of the group's first process in the high 32 bits. By this
    // rank the ids of the halves of a split differ: the halves have the same context id.
    let ids: Vec<_> = all.iter().map(|it| it.comm.unique_id).collect();
    assert_eq!(ids, [4, 1 << 32 | 12, 2 << 32 | 16]);
    fake.detach();
}

#[test]
fn mqs_082_088_three_queues_of_each_communicator_in_matching_order() {
    let mut fake = attached(Box::new(busy().process()));
    let all = fake.list().unwrap();
    let [world, pair] = &all[..] else {
        panic!("{all:?}")
    };
    let tags: Vec<_> = world.queues[1].iter().map(|it| it.desired_tag).collect();
    assert_eq!(tags, [11, 12, 13]);
    assert_eq!(world.queues[0].len(), 0);
    assert_eq!(
        world.queues[2].len(),
        1,
        "MQS-087: what a matched probe took is no longer there"
    );
    let message = world.queues[2][0];
    assert_eq!((message.system_buffer, message.actual_global_rank), (1, 3));
    let receive = pair.queues[1][0];
    assert_eq!(
        (receive.status, receive.tag_wild, receive.desired_local_rank),
        (PENDING, 1, -1)
    );
    let send = pair.queues[0][0];
    assert_eq!(
        (send.desired_local_rank, send.desired_global_rank),
        (0, 2),
        "MQS-092"
    );
    assert_eq!(
        (send.desired_length, send.actual_length, send.actual_tag),
        (1 << 40, 1 << 40, 5)
    );
    assert_eq!(
        (world.queues[1][0].buffer, world.queues[1][0].desired_length),
        (0x5000, 100)
    );
    fake.detach();
}

/// Receives whose order differs from that of their slots, wildcards, and requests that are in no queue.
fn busy() -> Model {
    let mut model = Model::new();
    model.comm(12, 1, &[2, 1], None);
    // Slots are reused, so their order is not the order of operations.
    for sequence in [3, 1, 2] {
        model.slot(|it| {
            (it.kind, it.state, it.peer, it.tag) = (
                RequestKind::Receive,
                RequestState::Posted,
                2,
                10 + sequence as i32,
            );
            (it.sequence, it.bytes, it.buffer) = (sequence, 100, 0x5000);
        });
    }
    model.slot(|it| {
        (it.kind, it.state, it.peer, it.tag) = (
            RequestKind::Receive,
            RequestState::Posted,
            ANY_PEER,
            ANY_TAG,
        );
        it.context = 12;
    });
    model.slot(|it| {
        (it.kind, it.state, it.peer, it.tag, it.bytes) =
            (RequestKind::Send, RequestState::Announced, 2, 5, 1 << 40);
        it.context = 12;
    });
    model
        .slot(|it| (it.kind, it.state, it.peer) = (RequestKind::Unexpected, RequestState::Kept, 3));
    model.slot(|it| {
        (it.kind, it.state, it.peer) = (RequestKind::Unexpected, RequestState::Claimed, 3)
    });
    model.slot(|it| (it.kind, it.state) = (RequestKind::Send, RequestState::Inactive));
    // A receive of a collective, in the context 4 + `OF_COLLECTIVES`.
    model.slot(|it| {
        (it.kind, it.state, it.context) = (RequestKind::Receive, RequestState::Posted, 5)
    });
    model
}

#[test]
fn mqs_084_086_unfinished_operations_stay_until_they_are_collected() {
    let mut model = Model::new();
    for state in [
        RequestState::Queued,
        RequestState::Announced,
        RequestState::Moving,
        RequestState::Complete,
    ] {
        model.slot(|it| (it.kind, it.state) = (RequestKind::Send, state));
    }
    for state in [
        RequestState::Posted,
        RequestState::Moving,
        RequestState::Complete,
    ] {
        model.slot(|it| {
            (it.kind, it.state, it.peer) = (RequestKind::Receive, state, ANY_PEER);
            (it.matched_peer, it.matched_tag, it.matched_bytes) = (3, 9, 8);
        });
    }
    let mut fake = attached(Box::new(model.process()));
    let all = fake.list().unwrap();
    let status =
        |queue: usize| -> Vec<i32> { all[0].queues[queue].iter().map(|it| it.status).collect() };
    assert_eq!(status(0), [PENDING, PENDING, MATCHED, COMPLETE]);
    assert_eq!(status(1), [PENDING, MATCHED, COMPLETE]);
    let done = all[0].queues[1][2];
    assert_eq!(
        (
            done.desired_global_rank,
            done.actual_global_rank,
            done.actual_tag
        ),
        (-1, 3, 9)
    );
    fake.detach();
}

#[test]
fn mqs_077_081_an_update_shows_changes_and_an_old_iterator_does_not() {
    let mut model = Model::new();
    let mut fake = attached(Box::new(model.process()));
    assert_eq!(fake.list().unwrap().len(), 1);
    model.comm(12, 0, &[1], None);
    for number in 0..1000 {
        model.slot(|it| {
            (it.kind, it.state, it.tag) = (RequestKind::Receive, RequestState::Posted, number)
        });
    }
    fake.memory = model.process().memory;
    let it = fake.opaque();
    // SAFETY: an attached process, here and below.
    assert_eq!(unsafe { mqs_setup_communicator_iterator(it) }, OK);
    // SAFETY: as above.
    let next = unsafe { mqs_next_communicator(it) };
    assert_eq!(next, END_OF_LIST, "of the old iterator");
    let all = fake.list().unwrap();
    assert_eq!((all.len(), all[0].queues[1].len()), (2, 1000));
    fake.detach();
}

#[test]
fn mqs_075_queues_are_there_before_mpi_init_and_empty_until_then() {
    let model = Model::new();
    let mut fake = attached(Box::new(model.image()));
    assert_eq!(fake.list().unwrap().len(), 0);
    let it = fake.opaque();
    // SAFETY: an attached process, here and below.
    assert_eq!(unsafe { mqs_get_global_rank(it) }, -1);
    fake.memory = model.process().memory;
    // SAFETY: as above.
    assert_eq!(unsafe { mqs_get_global_rank(it) }, 1);
    assert_eq!(fake.list().unwrap().len(), 1);
    model.anchor.close();
    fake.memory = model.image().memory;
    // SAFETY: as above.
    assert_eq!(unsafe { mqs_get_global_rank(it) }, 1, "a finalized process");
    assert_eq!(fake.list().unwrap().len(), 0);
    fake.detach();
}

#[test]
fn mqs_072_a_program_without_mpi_gives_no_message() {
    let mut fake = Model::new().process();
    fake.symbols.clear();
    assert_eq!(fake.attach(), (vec![OK, NO_INFORMATION, OK], None));
    fake.detach();
    for name in ["MPIR_ignore_queues", "MPIR_Ignore_queues"] {
        let mut fake = Model::new().process();
        fake.symbols.push((name, 0x1000));
        assert_eq!(fake.attach().0[1], NO_INFORMATION);
        fake.detach();
    }
}

#[test]
fn mqs_008_another_width_is_refused() {
    let mut fake = Model::new().process();
    fake.pointer_size = 4;
    assert_eq!(refused(fake).0, 102);
}

#[test]
fn mqs_021_other_major_versions_are_refused_and_later_minor_ones_read() {
    let mut model = Model::new();
    model.anchor.major = 2;
    let (code, message) = refused(model.process());
    assert_eq!(code, 105);
    assert!(
        message
            .unwrap()
            .contains("use the one that lies beside its libmpi_abi.so.1")
    );
    let mut model = Model::new();
    model.anchor.size = 88;
    assert_eq!(refused(model.process()).0, 105, "1.0 had no communicators");
    // Layout 1.1 has no blocking calls.
    let mut model = Model::new();
    (model.anchor.minor, model.anchor.size) = (1, 104);
    model
        .calls
        .begin(&call("MPI_Finalize", CALL_RANKS))
        .unwrap();
    let mut fake = attached(Box::new(model.process()));
    assert_eq!(fake.list().unwrap()[0].queues[1].len(), 0);
    fake.detach();
    let mut model = Model::new();
    (model.anchor.minor, model.anchor.size) = (9, 4000);
    let mut fake = attached(Box::new(model.process()));
    assert_eq!(fake.list().unwrap().len(), 1);
    fake.detach();
}

#[test]
fn mqs_065_numbers_are_converted_by_the_debugger() {
    let mut fake = Model::new().process();
    fake.swapped = true;
    assert_eq!(
        refused(fake).0,
        106,
        "the byte order differs from the declared one"
    );
}

#[test]
fn mqs_064_an_anchor_at_the_wrong_address_is_refused() {
    let mut fake = Model::new().process();
    let (address, bytes) = fake.memory[0].clone();
    fake.memory.push((0x77_0000, bytes));
    fake.symbols[0].1 = 0x77_0000;
    assert_eq!(refused(fake).0, 107);
    let mut fake = Model::new().process();
    fake.symbols[0].1 = address + 8;
    assert!(matches!(refused(fake).0, 103 | 104));
}

#[test]
fn mqs_048_a_failed_allocation_is_an_error_without_a_leak() {
    for patience in 0..8 {
        let mut model = Model::new();
        for _ in 0..100 {
            model.slot(|it| (it.kind, it.state) = (RequestKind::Receive, RequestState::Posted));
        }
        let mut fake = model.process();
        PATIENCE.set(patience);
        let (answers, _) = fake.attach();
        let code = match answers[..] {
            [OK, OK, OK, OK] => fake.list().map_or_else(|code| code, |_| OK),
            _ => *answers.iter().find(|code| **code >= 100).unwrap(),
        };
        assert!(
            code == 100 || code == 109 || (code == OK && patience > 5),
            "{patience}: {code}"
        );
        PATIENCE.set(i64::MAX);
        fake.detach();
    }
}

#[test]
fn mqs_091_iterators_that_were_not_set_up_return_an_error() {
    // Attaching to another process sets the basic callbacks.
    attached(Box::new(Model::new().process())).detach();
    let mut fake = Model::new().process();
    let it = fake.opaque();
    // SAFETY: a process of this debugger's that nothing is attached to.
    assert_eq!(unsafe { mqs_next_communicator(it) }, 109);
    let mut fake = attached(Box::new(fake));
    let it = fake.opaque();
    // SAFETY: an attached process, here and below; NULL may be given.
    assert_eq!(unsafe { mqs_get_communicator(it, null_mut()) }, 109);
    // SAFETY: as above.
    assert_eq!(unsafe { mqs_setup_operation_iterator(it, 0) }, 109);
    // SAFETY: as above.
    let unknown = unsafe { mqs_setup_operation_iterator(it, 4) };
    assert_eq!(unknown, NO_INFORMATION);
    fake.detach();
}

#[test]
fn collective_state_is_reported_for_each_communicator() {
    let model = Model::new();
    let row = &model.rows[0];
    let [_, first] = [row.begin(0), row.begin(collective("Allreduce"))];
    row.end(collective("Allreduce"), first);
    let mut fake = attached(Box::new(model.process()));
    fake.list().unwrap();
    let it = fake.opaque();
    // SAFETY: an attached process, here and below.
    assert_eq!(unsafe { mqs_setup_communicator_iterator(it) }, OK);
    let state = |number| {
        let (mut called, mut active) = (-1, -1);
        // SAFETY: as above, and room for both.
        let answer =
            unsafe { mqs_get_comm_coll_state(it, number, &raw mut called, &raw mut active) };
        (answer, called, active)
    };
    assert_eq!(
        (state(0), state(4), state(1)),
        ((OK, 1, 1), (OK, 1, 0), (OK, 0, 0))
    );
    assert_eq!((state(99).0, state(-1).0), (NO_INFORMATION, NO_INFORMATION));
    fake.detach();
}

/// A blocking call of the main thread.
fn call(function: &str, waits_for: u32) -> CallFacts<'_> {
    CallFacts {
        waits_for,
        function,
        thread: 77,
        context: 4,
        envelope: (ANY_PEER, ANY_TAG),
        tokens: [0; 2],
        list: (0, 0, 0),
        bytes: NO_BYTES,
    }
}

fn texts_of(operation: &PendingOperation) -> Vec<String> {
    let text = |line: &[u8; 64]| {
        CStr::from_bytes_until_nul(line)
            .unwrap()
            .to_string_lossy()
            .into_owned()
    };
    let lines = operation.extra_text.iter().map(text);
    lines.filter(|line| !line.is_empty()).collect()
}

#[test]
fn mqs_047_084_a_blocked_probe_is_listed_outside_the_message_queues() {
    let mut model = Model::new();
    model.comm(12, 1, &[3, 1], None);
    model.slot(|it| {
        (it.kind, it.state, it.context, it.peer) =
            (RequestKind::Receive, RequestState::Posted, 12, 1);
    });
    let probe = CallFacts {
        context: 12,
        envelope: (3, 9),
        ..call("MPI_Probe", CALL_MESSAGE)
    };
    model.calls.begin(&probe).unwrap();
    let mut fake = attached(Box::new(model.process()));
    let all = fake.list().unwrap();
    assert!(all[0].queues.iter().all(Vec::is_empty) && all[0].others.is_empty());
    let ([posted], [probe]) = (&all[1].queues[1][..], &all[1].others[..]) else {
        panic!("{all:?}")
    };
    assert_eq!(
        texts_of(posted),
        ["receive", "posted; waits for its message"]
    );
    assert_eq!(
        texts_of(probe),
        ["MPI_Probe", "waits for a message", "in MPI_Probe, wait 1"]
    );
    assert_eq!(
        (probe.status, probe.buffer, probe.desired_length),
        (PENDING, 0, 0)
    );
    assert_eq!(
        (
            probe.desired_local_rank,
            probe.desired_global_rank,
            probe.desired_tag,
            probe.tag_wild
        ),
        (0, 3, 9, 0)
    );
    fake.detach();
}

#[test]
fn mqs_047_operations_name_the_call_that_waits_for_them() {
    let mut model = Model::new();
    for number in 1..=4 {
        model.slot(|it| {
            (it.kind, it.state, it.token) =
                (RequestKind::Receive, RequestState::Posted, number << 8);
        });
    }
    // The request of a collective. The list contains it, the second receive, and a null handle.
    model.slot(|it| {
        (it.kind, it.state, it.token) = (RequestKind::Other, RequestState::Posted, 9 << 8)
    });
    let base = 6u64 << 27;
    let list = Box::new([base + (2 << 8), 0, base + (9 << 8)]);
    let first = CallFacts {
        tokens: [1 << 8, 4 << 8],
        ..call("MPI_Sendrecv", CALL_REQUESTS)
    };
    let all_of_them = CallFacts {
        thread: 78,
        list: (list.as_ptr().addr() as u64, 3, base),
        ..call("MPI_Waitall", CALL_LIST)
    };
    model.calls.begin(&first).unwrap();
    model.calls.begin(&all_of_them).unwrap();
    let ended = model.calls.begin(&call("MPI_Recv", CALL_RANKS)).unwrap();
    model.calls.end(ended);
    let mut process = model.process();
    let bytes = list.iter().flat_map(|it| it.to_ne_bytes()).collect();
    process.memory.push((list.as_ptr().addr() as u64, bytes));
    let mut fake = attached(Box::new(process));
    let all = fake.list().unwrap();
    let both = all[0].queues[1].iter().chain(&all[0].others);
    let texts: Vec<_> = both.map(texts_of).collect();
    assert_eq!(all[0].queues[1].len(), 4, "receives and nothing else");
    let waits = |at: usize| texts[at].get(2).map(String::as_str);
    assert_eq!(texts.len(), 5, "{texts:?}");
    assert_eq!(
        (waits(0), waits(3)),
        (
            Some("in MPI_Sendrecv, wait 1"),
            Some("in MPI_Sendrecv, wait 1")
        )
    );
    assert_eq!(
        (waits(1), waits(2)),
        (Some("in MPI_Waitall, wait 1, thread 78"), None)
    );
    assert_eq!(
        texts[4],
        [
            "MPI_Waitall",
            "waits for requests that are not listed",
            "in MPI_Waitall, wait 1, thread 78",
            "requests: 0 done, 2 pending"
        ]
    );
    fake.detach();
}

#[test]
fn mqs_047_calls_without_operations_are_listed_despite_a_corrupt_table() {
    let model = Model::new();
    let finalize = CallFacts {
        context: 0,
        ..call("MPI_Finalize", CALL_RANKS)
    };
    model.calls.begin(&finalize).unwrap();
    let wild = CallFacts {
        list: (0xdead_0000, u64::MAX, 0),
        ..call("MPI_Waitany", CALL_LIST)
    };
    for _ in 1..CALL_ROWS {
        model.calls.begin(&wild).unwrap();
    }
    let mut fake = attached(Box::new(model.process()));
    let all = fake.list().unwrap();
    assert!(all[0].queues.iter().all(Vec::is_empty), "no message");
    let queue = &all[0].others;
    assert_eq!(queue.len(), 1, "what cannot be read of a list is left out");
    let texts = texts_of(&queue[0]);
    assert_eq!(texts[..2], ["MPI_Finalize", "waits for the other ranks"]);
    fake.detach();
}

#[test]
fn mqs_084_operations_on_a_freed_communicator_are_listed_under_its_name() {
    let mut model = Model::new();
    model.comm(12, 0, &[1, 3], None).rename("halo");
    model.rows[1].retire();
    model.comm(16, 0, &[1, 3], None);
    model.rows[2].retire();
    model.comm(20, 0, &[1, 3], None).retire();
    let long = "a name that has as many letters as there is room for: 63, and more";
    model.comm(24, 0, &[1, 3], None).rename(long);
    model.rows[4].retire();
    for context in [12, 16, 24] {
        model.slot(|it| {
            (it.kind, it.state, it.context) = (RequestKind::Send, RequestState::Queued, context)
        });
    }
    let mut fake = attached(Box::new(model.process()));
    let all = fake.list().unwrap();
    let names: Vec<_> = all
        .iter()
        .map(|it| (it.name(), it.queues[0].len()))
        .collect();
    let cut = format!("{} (freed)", &long[..55]);
    let expected = [
        ("MPI_COMM_WORLD", 0),
        ("halo (freed)", 1),
        ("(freed)", 1),
        (&cut, 1),
    ];
    assert_eq!(
        names,
        expected.map(|(name, sends)| (name.to_owned(), sends))
    );
    fake.detach();
}

#[test]
fn mqs_096_neither_types_nor_functions_are_looked_up() {
    let callbacks = fake::image_callbacks();
    let types = (
        callbacks.find_type,
        callbacks.field_offset,
        callbacks.sizeof,
    );
    assert!(types.0.is_none() && types.1.is_none() && types.2.is_none());
    assert!(callbacks.find_function.is_none());
    let mut fake = attached(Box::new(busy().process()));
    let listed = fake.list().unwrap();
    assert_eq!(listed.iter().map(|it| it.queues[1].len()).sum::<usize>(), 4);
    fake.detach();
}

#[test]
fn mqs_093_a_communicator_larger_than_the_world_is_omitted() {
    let mut model = Model::new();
    model
        .comm(12, 0, &[1, 2, 3, 0, 7], None)
        .rename("of other worlds too");
    let mut fake = attached(Box::new(model.process()));
    let names: Vec<_> = fake.list().unwrap().iter().map(fake::Shown::name).collect();
    assert_eq!(names, ["MPI_COMM_WORLD"]);
    fake.detach();
}

#[test]
fn mqs_047_known_datatypes_of_operations_are_shown() {
    const FACE: u32 = 0x0700_0001;
    const FREED: u32 = 0x0700_0002;
    let mut model = Model::new();
    let facts = |handle, bytes, name| TypeFacts {
        handle,
        committed: true,
        bytes,
        extent: 80,
        name,
    };
    model.type_rows[3].fill(&facts(FACE, 24, "face"));
    model.type_rows[4].fill(&facts(FREED, 8, "gone"));
    model.type_rows[4].close();
    for datatype in [fake::INT, FACE, 0, FREED, 77, fake::DOUBLE] {
        model.slot(|it| {
            (it.kind, it.state, it.bytes) = (RequestKind::Receive, RequestState::Posted, 48);
        });
        model.datatype(datatype);
    }
    let mut fake = attached(Box::new(model.process()));
    let all = fake.list().unwrap();
    let third = |it: &PendingOperation| {
        let text = it.extra_text[2].split(|byte| *byte == 0).next().unwrap();
        String::from_utf8_lossy(text).into_owned()
    };
    let shown: Vec<_> = all[0].queues[1].iter().map(third).collect();
    assert_eq!(
        shown,
        ["12 of MPI_INT", "2 of face", "", "", "", "6 of MPI_DOUBLE"]
    );
    fake.detach();
}

/// A receive, collectives in progress, and calls that wait for some of these.
fn with_collectives() -> Model {
    let mut model = Model::new();
    let bcast = collective("Bcast") as u16 + 1;
    let known = [
        (bcast, RequestState::Moving),
        (0, RequestState::Moving),
        (bcast, RequestState::Complete),
        (999, RequestState::Moving),
    ];
    for (number, (protocol, state)) in known.into_iter().enumerate() {
        model.slot(|it| {
            (it.kind, it.state, it.protocol) = (RequestKind::Other, state, protocol);
            (it.peer, it.tag, it.token) = (2, 5, 7 + number as u32);
            it.bytes = if protocol == bcast { 77 } else { NO_BYTES };
            // An address left over from the slot's previous use.
            it.buffer = 0x5000;
        });
    }
    model.slot(|it| (it.kind, it.state, it.tag) = (RequestKind::Receive, RequestState::Posted, 11));
    let mut waits = call("MPI_Wait", CALL_REQUESTS);
    waits.tokens = [7, 0];
    model.calls.begin(&waits).unwrap();
    let mut root = call("MPI_Reduce", CALL_RANKS);
    (root.envelope, root.bytes) = ((3, 6), 1);
    model.calls.begin(&root).unwrap();
    model
}

#[test]
fn collectives_are_listed_with_root_sequence_and_bytes() {
    let mut fake = attached(Box::new(with_collectives().process()));
    let all = fake.list().unwrap();
    assert_eq!(all[0].queues[1].len(), 1);
    let seen: Vec<_> = all[0].queues[1]
        .iter()
        .chain(&all[0].others)
        .map(|it| {
            (
                texts_of(it),
                it.desired_local_rank,
                it.desired_tag,
                it.desired_length,
            )
        })
        .collect();
    let others = "waits for the other ranks";
    let line = |texts: &[&str]| texts.iter().map(|it| (*it).to_owned()).collect::<Vec<_>>();
    assert_eq!(
        seen,
        [
            (
                line(&["receive", "posted; waits for its message"]),
                0,
                11,
                0
            ),
            (
                line(&[
                    "nonblocking Bcast",
                    others,
                    "77 bytes a rank",
                    "in MPI_Wait, wait 1"
                ]),
                2,
                5,
                77
            ),
            (line(&["nonblocking collective", others]), 2, 5, 0),
            (
                line(&[
                    "MPI_Reduce",
                    others,
                    "1 byte a rank",
                    "in MPI_Reduce, wait 1"
                ]),
                3,
                6,
                1
            ),
        ]
    );
    assert!(all[0].others.iter().all(|it| it.status == PENDING));
    fake.detach();
}

#[test]
fn inactive_persistent_receives_have_their_own_queue() {
    let mut model = Model::new();
    for (state, tag) in [(RequestState::Inactive, 5), (RequestState::Posted, 6)] {
        model.slot(|it| {
            (it.kind, it.state, it.tag, it.peer) = (RequestKind::Receive, state, tag, 3);
            it.flags = FLAG_PERSISTENT;
        });
    }
    let mut fake = attached(Box::new(model.process()));
    let all = fake.list().unwrap();
    let tags = |queue: &[PendingOperation]| -> Vec<_> {
        queue
            .iter()
            .map(|it| (it.desired_tag, texts_of(it)))
            .collect()
    };
    let line = |texts: [&str; 2]| texts.map(str::to_owned).to_vec();
    assert_eq!(
        tags(&all[0].inactive),
        [(5, line(["receive, persistent", "not started"]))]
    );
    let posted = line(["receive, persistent", "posted; waits for its message"]);
    assert_eq!(tags(&all[0].queues[1]), [(6, posted)]);
    fake.detach();
}

#[test]
fn a_waiting_call_counts_its_completed_requests() {
    let mut model = Model::new();
    let base = 6u64 << 27;
    for (token, state) in [
        (2, RequestState::Posted),
        (3, RequestState::Complete),
        (4, RequestState::Posted),
        (5, RequestState::Inactive),
    ] {
        model.slot(|it| {
            (it.kind, it.state, it.token) = (RequestKind::Receive, state, token << 8);
        });
    }
    // The list ends with a null handle, and the handle of a send that was complete when it was started.
    let tokens = [2u64, 3, 4, 5].map(|it| base + (it << 8));
    let list: Box<[u64]> = tokens.into_iter().chain([0, base]).collect();
    let address = list.as_ptr().addr() as u64;
    let waits = CallFacts {
        list: (address, 6, base),
        ..call("MPI_Waitall", CALL_LIST)
    };
    model.calls.begin(&waits).unwrap();
    let mut process = model.process();
    let bytes = list.iter().flat_map(|it| it.to_ne_bytes()).collect();
    process.memory.push((address, bytes));
    let mut fake = attached(Box::new(process));
    let all = fake.list().unwrap();
    let texts = texts_of(&all[0].queues[1][0]);
    assert_eq!(
        texts[2..],
        ["in MPI_Waitall, wait 1", "requests: 3 done, 2 pending"]
    );
    fake.detach();
}

#[test]
fn a_collective_shows_its_wait_count_and_moving_data() {
    let mut model = Model::new();
    let number = model.calls.begin(&call("MPI_Bcast", CALL_RANKS)).unwrap();
    model.calls.renew(number);
    let last_text = |model: &Model| {
        let mut fake = attached(Box::new(model.process()));
        let all = fake.list().unwrap();
        let texts = texts_of(&all[0].others[0]);
        fake.detach();
        texts.last().unwrap().clone()
    };
    assert_eq!(last_text(&model), "in MPI_Bcast, wait 2");
    // A moving message of the program's, and a message of a blocking collective that does not move.
    for (context, state) in [
        (4, RequestState::Moving),
        (4 + OF_COLLECTIVES, RequestState::Posted),
    ] {
        model.slot(|it| (it.kind, it.state, it.context) = (RequestKind::Send, state, context));
    }
    assert_eq!(last_text(&model), "in MPI_Bcast, wait 2");
    let context = 4 + OF_COLLECTIVES;
    model.slot(|it| {
        (it.kind, it.state, it.context) = (RequestKind::Receive, RequestState::Moving, context);
    });
    assert_eq!(last_text(&model), "in MPI_Bcast, wait 2, moving");
}
