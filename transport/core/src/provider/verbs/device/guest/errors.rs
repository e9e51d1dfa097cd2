// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of failures of work requests.
//!
//! # Safety
//! As in `guest.rs`.
#![allow(unsafe_code)]

use super::*;

#[test]
#[ignore = "needs two Soft-RoCE devices: cargo xtask test softroce"]
fn a_wrong_remote_key_breaks_the_pair_and_flushes_later_work() {
    let (mut a, mut b) = two_ports();
    let (left, right) = joined(&mut a, &mut b);
    b.post_buffers(Receives::Shared, 2);
    let (address, key) = (b.block.address(0), b.block.region.remote_key);
    let wrong = WorkOpcode::Write {
        address,
        key: key ^ 0x55,
    };
    let mut requests = [
        request(
            1,
            WorkOpcode::Write { address, key },
            WorkBody::Inline(b"good"),
        ),
        request(2, wrong, WorkBody::Inline(b"bad")),
        request(3, WorkOpcode::Send, WorkBody::Inline(b"never")),
    ];
    (requests[1].signaled, requests[2].signaled) = (false, false);
    assert_eq!(a.device.post(left, &requests), 3);
    let done = a.wait(CqKind::Sends, 3);
    let wanted = [
        (1, WorkStatus::Success),
        (2, WorkStatus::RemoteAccess),
        (3, WorkStatus::Flushed),
    ];
    assert_eq!(statuses(&done), wanted);
    assert!(done.iter().all(|done| done.number == left.number));
    // Requests posted now are flushed too.
    a.send(left, 4, WorkBody::Inline(b"late"));
    assert_eq!(
        statuses(&a.wait(CqKind::Sends, 1)),
        [(4, WorkStatus::Flushed)]
    );
    // Adapters report the lost queue pair at the other end; Soft-RoCE reports nothing, or that the last buffer has been
    // used.
    let last_buffer = PortEvent::Other(verbs_sys::IBV_EVENT_QP_LAST_WQE_REACHED);
    let allowed = [PortEvent::QueuePairLost(right.number), last_buffer];
    let event = b.device.next_event();
    assert!(
        event.is_none_or(|event| allowed.contains(&event)),
        "{event:?}"
    );
    assert_eq!(
        b.device
            .poll(CqKind::Receives, &mut [PortCompletion::default()]),
        0
    );
    assert_eq!(b.block.read(0, 4), b"good");
}

#[test]
#[ignore = "needs two Soft-RoCE devices: cargo xtask test softroce"]
fn remote_access_to_deregistered_or_read_only_memory_fails() {
    let (mut a, mut b) = two_ports();
    let mut outcome = |access, operation: fn(u64, u32) -> WorkOpcode, end: bool| {
        let (left, right) = joined(&mut a, &mut b);
        let base = memory();
        // SAFETY: the memory is never freed.
        let region = unsafe { b.device.register(base, BLOCK_BYTES, access) }.unwrap();
        if end {
            b.device.deregister(region);
        }
        let operation = operation(base.addr().get() as u64, region.remote_key);
        let body = WorkBody::Piece(a.block.piece(0, 8));
        assert_eq!(a.device.post(left, &[request(1, operation, body)]), 1);
        let status = a.wait(CqKind::Sends, 1)[0].status;
        a.device.destroy(left);
        b.device.destroy(right);
        status
    };
    let read = |address, key| WorkOpcode::Read { address, key };
    let write = |address, key| WorkOpcode::Write { address, key };
    assert_eq!(
        outcome(RegionAccess::Full, write, false),
        WorkStatus::Success
    );
    assert_eq!(
        outcome(RegionAccess::Full, write, true),
        WorkStatus::RemoteAccess
    );
    assert_eq!(
        outcome(RegionAccess::Full, read, true),
        WorkStatus::RemoteAccess
    );
    assert_eq!(
        outcome(RegionAccess::Read, read, false),
        WorkStatus::Success
    );
    assert_eq!(
        outcome(RegionAccess::Read, write, false),
        WorkStatus::RemoteAccess
    );
    assert_eq!(
        outcome(RegionAccess::Own, read, false),
        WorkStatus::RemoteAccess
    );
}

#[test]
#[ignore = "needs two Soft-RoCE devices: cargo xtask test softroce"]
fn a_message_without_a_receive_buffer_fails_after_retries() {
    let (mut a, mut b) = two_ports();
    let (left, _) = joined(&mut a, &mut b);
    a.send(left, 1, WorkBody::Inline(b"nowhere"));
    assert_eq!(
        statuses(&a.wait(CqKind::Sends, 1)),
        [(1, WorkStatus::NotReady)]
    );
    // If a buffer is posted late, the message succeeds.
    let (left, _) = joined(&mut a, &mut b);
    a.send(left, 2, WorkBody::Inline(b"waits"));
    b.post_buffers(Receives::Shared, 1);
    assert_eq!(
        statuses(&a.wait(CqKind::Sends, 1)),
        [(2, WorkStatus::Success)]
    );
    assert_eq!(
        statuses(&b.wait(CqKind::Receives, 1)),
        [(100, WorkStatus::Success)]
    );
}

#[test]
#[ignore = "needs two Soft-RoCE devices: cargo xtask test softroce"]
fn a_message_longer_than_its_buffer_fails_at_both_sides() {
    let (mut a, mut b) = two_ports();
    let (left, right) = joined(&mut a, &mut b);
    b.post_buffers(Receives::Shared, 2);
    a.send(left, 1, WorkBody::Piece(a.block.piece(0, BUFFER_BYTES + 1)));
    assert_eq!(
        statuses(&a.wait(CqKind::Sends, 1)),
        [(1, WorkStatus::RemoteOperation)]
    );
    let done = b.wait(CqKind::Receives, 1);
    assert_eq!((done[0].work, done[0].number), (100, right.number));
    assert_ne!(done[0].status, WorkStatus::Success);
}

#[test]
#[ignore = "needs two Soft-RoCE devices: cargo xtask test softroce"]
fn a_wrong_local_key_breaks_the_pair() {
    let (mut a, mut b) = two_ports();
    let (left, _) = joined(&mut a, &mut b);
    b.post_buffers(Receives::Shared, 1);
    let mut piece = a.block.piece(0, 8);
    piece.local_key ^= 0x55;
    a.send(left, 1, WorkBody::Piece(piece));
    // The status from Soft-RoCE depends on the kernel: IBV_WC_LOC_QP_OP_ERR, or no cause at all.
    let status = a.wait(CqKind::Sends, 1)[0].status;
    let allowed = [
        WorkStatus::LocalProtection,
        WorkStatus::Other(2),
        WorkStatus::Flushed,
    ];
    assert!(allowed.contains(&status), "{status:?}");
}

#[test]
#[ignore = "needs two Soft-RoCE devices: cargo xtask test softroce"]
fn a_destroyed_peer_pair_is_detected_and_a_new_pair_connects() {
    let (mut a, mut b) = two_ports();
    let (left, right) = joined(&mut a, &mut b);
    b.device.destroy(right);
    a.send(left, 1, WorkBody::Inline(b"anybody?"));
    assert_eq!(
        statuses(&a.wait(CqKind::Sends, 1)),
        [(1, WorkStatus::RetryExceeded)]
    );
    a.device.destroy(left);
    assert_eq!(a.device.post(left, &[]), 0);
    let (left, _) = joined(&mut a, &mut b);
    b.post_buffers(Receives::Shared, 1);
    a.send(left, 2, WorkBody::Inline(b"again"));
    assert_eq!(
        statuses(&a.wait(CqKind::Sends, 1)),
        [(2, WorkStatus::Success)]
    );
}
