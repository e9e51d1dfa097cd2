// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of the access to registered memory.

use super::super::super::port::{
    CallError, CqKind, PortEvent, Receives, RegionAccess, Sge, VerbsPort, WorkOpcode, WorkStatus,
};
use super::super::{FakeConfig, FakeNet};
use super::side::{BLOCK, CARRIED_OUT, ON_THE_WIRE, Side, inline, joined, request, run, run_to};

#[test]
fn a_wrong_local_key_breaks_the_pair_after_earlier_work() {
    let (net, [mut one, mut other], [here, _]) = joined(FakeConfig::calm(1));
    other.give(Receives::Shared, 0, 4);
    let wrong = Sge {
        local_key: one.region.remote_key,
        ..one.piece(0, 8)
    };
    let requests = [
        inline(1, b"good"),
        request(2, WorkOpcode::Send, wrong),
        inline(3, b"late"),
    ];
    assert_eq!(one.port.post(here, &requests), 3);
    run(&net);
    let ends = [
        (1, WorkStatus::Success),
        (2, WorkStatus::LocalProtection),
        (3, WorkStatus::Flushed),
    ];
    assert_eq!(one.ends(), ends);
    assert_eq!(other.arrived(), [(0, b"good".to_vec())]);
    assert_eq!(other.events(), [], "no event at the other side");
}

#[test]
fn memory_deregistered_after_the_post_is_not_sent() {
    let (net, [mut one, mut other], [here, _]) = joined(FakeConfig::calm(1));
    other.give(Receives::Shared, 0, 1);
    let region = one.register(0, 64, RegionAccess::Own);
    let piece = Sge {
        local_key: region.local_key,
        ..one.piece(0, 8)
    };
    assert!(one.post(here, request(1, WorkOpcode::Send, piece)));
    one.port.deregister(region);
    run(&net);
    assert_eq!(one.ends(), [(1, WorkStatus::LocalProtection)]);
    assert_eq!(other.arrived(), []);
}

#[test]
fn a_read_needs_a_writable_target_until_it_completes() {
    for is_late in [false, true] {
        let (net, [mut one, other], [here, _]) = joined(FakeConfig::calm(1));
        let access = if is_late {
            RegionAccess::Own
        } else {
            RegionAccess::OwnRead
        };
        let region = one.register(0, 64, access);
        let piece = Sge {
            local_key: region.local_key,
            ..one.piece(0, 8)
        };
        other.block.put(0, &[9; 8]);
        let read = WorkOpcode::Read {
            address: other.address(0),
            key: other.region.remote_key,
        };
        assert!(one.post(here, request(1, read, piece)));
        if is_late {
            // The request was sent, and its response has not arrived yet.
            run_to(&net, CARRIED_OUT);
            one.port.deregister(region);
        }
        run(&net);
        assert_eq!(one.ends(), [(1, WorkStatus::LocalProtection)], "{is_late}");
        assert_eq!(one.block.get(0, 8), [0; 8]);
    }
}

#[test]
fn access_denied_by_a_region_breaks_both_sides() {
    type Case = (RegionAccess, fn(u64, u32) -> WorkOpcode, usize, bool);
    let read: fn(u64, u32) -> WorkOpcode = |address, key| WorkOpcode::Read { address, key };
    let write: fn(u64, u32) -> WorkOpcode = |address, key| WorkOpcode::Write { address, key };
    let add: fn(u64, u32) -> WorkOpcode = |address, key| WorkOpcode::FetchAdd {
        address,
        key,
        add: 1,
    };
    let cases: [Case; 10] = [
        (RegionAccess::Full, read, 56, true),
        (RegionAccess::Full, read, 57, false),
        (RegionAccess::Full, write, 57, false),
        (RegionAccess::Full, write, 1 << 20, false),
        (RegionAccess::Read, read, 0, true),
        (RegionAccess::Read, write, 0, false),
        (RegionAccess::Read, add, 0, false),
        (RegionAccess::Own, read, 0, false),
        (RegionAccess::OwnRead, read, 0, false),
        (RegionAccess::Full, add, 56, true),
    ];
    for (access, operation, offset, is_good) in cases {
        let (net, [mut one, mut other], [here, there]) = joined(FakeConfig::calm(1));
        let region = other.register(0, 64, access);
        let operation = operation(other.address(0) + offset as u64, region.remote_key);
        let piece = one.piece(0, 8);
        assert!(one.post(here, request(1, operation, piece)));
        run(&net);
        let name = format!("{access:?} {operation:?}");
        if is_good {
            assert_eq!(one.ends(), [(1, WorkStatus::Success)], "{name}");
            continue;
        }
        assert_eq!(one.ends(), [(1, WorkStatus::RemoteAccess)], "{name}");
        assert_eq!(other.events(), [PortEvent::QueuePairLost(there.number)]);
        assert_eq!(other.done(CqKind::Receives), []);
        assert!(other.send(there, 2, b"x"), "it is taken, and comes back");
        run(&net);
        assert_eq!(other.ends(), [(2, WorkStatus::Flushed)], "{name}");
    }
}

#[test]
fn wrong_and_stale_remote_keys_are_refused() {
    for is_old in [false, true] {
        let (net, [mut one, mut other], [here, _]) = joined(FakeConfig::calm(1));
        let region = other.register(0, 64, RegionAccess::Full);
        let key = match is_old {
            true => region.remote_key,
            false => region.local_key,
        };
        let write = WorkOpcode::Write {
            address: other.address(0),
            key,
        };
        let piece = one.piece(0, 8);
        one.block.put(0, &[7; 8]);
        assert!(one.post(here, request(1, write, piece)));
        // The write is on the wire while the other side deregisters the memory.
        run_to(&net, ON_THE_WIRE);
        other.port.deregister(region);
        run(&net);
        assert_eq!(one.ends(), [(1, WorkStatus::RemoteAccess)]);
        assert_eq!(other.block.get(0, 8), [0; 8]);
    }
}

#[test]
fn an_unwritable_receive_buffer_breaks_both_sides() {
    let (net, [mut one, mut other], [here, there]) = joined(FakeConfig::calm(1));
    let region = other.register(0, 64, RegionAccess::OwnRead);
    let piece = Sge {
        local_key: region.local_key,
        ..other.piece(0, 64)
    };
    assert_eq!(other.port.post_receives(Receives::Shared, &[(5, piece)]), 1);
    assert!(one.send(here, 1, b"x"));
    run(&net);
    assert_eq!(one.ends(), [(1, WorkStatus::RemoteOperation)]);
    let done = other.done(CqKind::Receives);
    assert_eq!(done.len(), 1);
    assert_eq!(
        (done[0].work, done[0].status),
        (5, WorkStatus::LocalProtection)
    );
    assert_eq!(other.events(), [PortEvent::QueuePairLost(there.number)]);
}

#[test]
fn registration_beyond_the_memory_limit_fails() {
    let net = FakeNet::new(FakeConfig {
        most_memory_bytes: BLOCK as u64 + 100,
        ..FakeConfig::calm(1)
    });
    let mut one = Side::open(&net);
    let mut register = |bytes| one.try_register(0, bytes, RegionAccess::Own);
    let errno = |error: CallError| (error.call, error.errno);
    let refused = Err(("ibv_reg_mr", libc::ENOMEM));
    assert_eq!(register(101).map_err(errno), refused);
    assert_eq!(
        register(0).map_err(errno),
        Err(("ibv_reg_mr", libc::EINVAL))
    );
    net.fail_registers(0, 1);
    assert_eq!(register(100).map_err(errno), refused);
    let region = register(100).unwrap();
    assert_eq!(register(1).map_err(errno), refused);
    let stats = net.stats(0);
    assert_eq!((stats.regions, stats.region_bytes), (2, BLOCK as u64 + 100));
    one.port.deregister(region);
    one.port.deregister(region);
    let stats = net.stats(0);
    assert_eq!((stats.regions, stats.wrong), (1, 1));
}

#[test]
fn memory_is_not_accessed_after_its_port_is_closed() {
    let (net, [mut one, other], [here, _]) = joined(FakeConfig::calm(1));
    let write = WorkOpcode::Write {
        address: other.address(0),
        key: other.region.remote_key,
    };
    one.block.put(0, &[7; 8]);
    let piece = one.piece(0, 8);
    assert!(one.post(here, request(1, write, piece)));
    run_to(&net, ON_THE_WIRE);
    let Side { port, block, .. } = other;
    drop(port);
    run(&net);
    assert_eq!(one.ends(), [(1, WorkStatus::RetryExceeded)]);
    assert_eq!(block.get(0, 8), [0; 8]);
}
