// SPDX-License-Identifier: MIT OR Apache-2.0
//! Helpers shared by the tests of this crate.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use channel::Channels;
use engine::Peer;
use transport::{Config, Fabric};

use crate::comm::{Comm, Group};
use crate::operation::{Mode, ReceiveSource, SendTarget};
use crate::pump::Pump;
use crate::user_buf::UserMemory;
use crate::var::VariableValues;
use crate::{ContextId, Messages, Universe};

/// A sealed memory file with an empty node segment of a job, like that of the daemon.
pub(crate) fn segment(job: u64, ranks: u32) -> OwnedFd {
    node_segment::make_with(job, ranks, 64 << 20).unwrap()
}

/// Messages of a singleton process.
pub(crate) fn messages_alone() -> Messages {
    let (values, _) = VariableValues::from_environment(std::iter::empty());
    let fabric = Fabric::open(Config::alone()).unwrap();
    let channel_counters = Arc::clone(Channels::new().live_counters());
    let pump = Pump::new(
        fabric,
        (Peer(0), 1),
        &values,
        Arc::default(),
        channel_counters,
    );
    Messages::new(pump, &values)
}

/// Exchanges messages of the given lengths between two processes of different jobs, in a communicator of both. Each
/// process has the other as peer 1. `advance` makes the network between them advance.
pub(crate) fn exchange_messages(
    both: &mut [Universe; 2],
    lengths: &[usize],
    mut advance: impl FnMut(),
) {
    let context = ContextId(40);
    for (rank, universe) in (0..).zip(&mut *both) {
        // Both processes must have the members in the same order.
        let mut members = vec![Peer(1); 2];
        members[rank as usize] = Peer(0);
        universe.adopt(&mut Comm::new(context, Group::of(members), rank));
    }
    let (peer, tag) = (Peer(1), 7);
    let source = ReceiveSource {
        context,
        peer: Some(peer),
        tag: Some(tag),
    };
    let target = SendTarget { context, peer, tag };
    for (bytes, (from, to)) in lengths.iter().flat_map(|n| [(*n, (0, 1)), (*n, (1, 0))]) {
        let mut sent: Vec<u8> = (0..bytes)
            .map(|at| [at, from][at % 2].to_le_bytes()[0])
            .collect();
        let mut got = vec![0; bytes];
        let memory = UserMemory::of(&mut got);
        let receive = both[to].messages.receive(source, memory).unwrap();
        let memory = UserMemory::of(&mut sent);
        let sending = both[from].sending();
        let send = sending.send(target, memory, Mode::Standard).unwrap();
        let is_under_way = |both: &[Universe; 2]| {
            let sends = send.is_some_and(|send| !both[from].messages.is_complete(send));
            sends || !both[to].messages.is_complete(receive)
        };
        while is_under_way(both) {
            both.iter_mut().for_each(|universe| _ = universe.progress());
            advance();
        }
        let status = both[to].collect(receive);
        let sender = i32::try_from(from).unwrap();
        assert_eq!((status.source, status.bytes), (Some(sender), bytes as u64));
        assert!(got == sent, "{bytes} bytes");
        send.map(|send| both[from].collect(send));
    }
    let traffic = &both[0].messages.pump.traffic;
    let sum: usize = lengths.iter().sum();
    assert_eq!(traffic.bytes(1), sum as u64);
}
