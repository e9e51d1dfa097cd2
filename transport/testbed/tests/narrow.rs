// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of networks of devices with a path MTU that is smaller than the MTU of the ports. Such a network drops longer
//! packets silently; ranks detect that and continue, in spite of other faults.
#![allow(
    unsafe_code,
    clippy::unwrap_used,
    clippy::cast_possible_truncation,
    unreachable_pub,
    dead_code,
    reason = "test code may panic; its sizes are small; the suite has more"
)]

mod suite {
    pub mod one_sided;
    pub mod sends;
}

use suite::{one_sided, sends};
use testbed::world::Failing;
use testbed::{TestRank, world};
use transport::{FakeConfig, FakeNet, NetLimits};

/// Runs a behaviour on ports with an MTU of 4096 bytes and a network with an MTU of `network_mtu_bytes` bytes.
fn narrow(network_mtu_bytes: u32, rails: u32, behaviour: impl AsyncFn(&mut TestRank)) {
    for seed in 0..24 {
        let _failing = Failing(seed);
        let config = match seed {
            0 => FakeConfig::calm(seed),
            _ => FakeConfig::harsh(seed),
        };
        let net = FakeNet::new(FakeConfig {
            packet_bytes: 4096,
            network_mtu_bytes,
            ..config
        });
        let limits = NetLimits {
            datagrams_first: u32::try_from(seed % 5).unwrap(),
            ..NetLimits::default()
        };
        let sleeps = seed % 2 == 1;
        world::fake_ranks(
            &net,
            (2, rails),
            limits,
            sleeps,
            async |rank: &mut TestRank| {
                behaviour(rank).await;
                // Without other faults, the dropped packets have broken no queue pair.
                let stats = rank.fabric.net_stats();
                assert!(seed != 0 || stats.broken == 0, "{stats:?}");
            },
        );
    }
}

#[test]
fn messages_arrive() {
    for network_mtu_bytes in [2048, 1000] {
        narrow(network_mtu_bytes, 1, sends::sizes);
    }
    narrow(512, 2, sends::sizes);
}

#[test]
fn memory_is_read_and_written() {
    narrow(1024, 1, one_sided::reads);
    narrow(1024, 2, one_sided::writes);
}
