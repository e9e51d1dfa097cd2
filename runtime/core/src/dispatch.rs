// SPDX-License-Identifier: MIT OR Apache-2.0
//! Dispatches the completions of the transport to the protocols that use the transport: messages, gates and channels.
//! Each protocol has its own [`Owner`].
//!
//! The kind of a frame, the id of a work request and an immediate contain the owner, which is decoded only here. A
//! completion without a valid owner comes from a misbehaving peer: it is counted and has no other effect.
//!
//! Messages of the daemon and the loss of a peer are dispatched here too.

use engine::{EventType, Peer};
use transport::{Arrived, Completion, Owner, WorkId, WorkOutcome};

use crate::carrier::carrier;
use crate::directory::DaemonEvent;
use crate::pump::ENGINE;
use crate::{Universe, gates};

const _: () = assert!(
    !is_same(ENGINE, channel::OWNER)
        && !is_same(ENGINE, gates::OWNER)
        && !is_same(gates::OWNER, channel::OWNER),
    "every owner has a number of its own"
);

const fn is_same(one: Owner, other: Owner) -> bool {
    one.kind(0) == other.kind(0)
}

impl Universe {
    /// Takes in one completion of the transport.
    #[inline(always)]
    pub(crate) fn take_in(&mut self, completion: Completion) {
        match completion {
            Completion::Arrived(arrived) => self.take_in_frame(&arrived),
            other => self.take_in_event(other),
        }
    }

    /// Takes in a frame.
    #[inline(always)]
    pub(crate) fn take_in_frame(&mut self, arrived: &Arrived) {
        match Owner::of_kind(arrived.head.kind) {
            ENGINE => self.messages.take_in_message(arrived),
            _ => self.take_in_other(arrived),
        }
    }

    /// Takes in a frame that is not for the engine.
    #[cold]
    #[inline(never)]
    fn take_in_other(&mut self, arrived: &Arrived) {
        match Owner::of_kind(arrived.head.kind) {
            channel::OWNER => self
                .channels
                .own
                .arrive(&mut self.messages.pump.fabric, arrived),
            gates::OWNER => self
                .messages
                .gates
                .take_in(&mut self.messages.pump, arrived),
            _ => self.messages.pump.refuse(),
        }
        if arrived.is_lent() {
            self.messages.pump.fabric.release(arrived);
        }
    }

    #[inline(never)]
    fn take_in_event(&mut self, completion: Completion) {
        match completion {
            Completion::Arrived(_) => {}
            // With this completion the transport returns the memory that was lent for the work request.
            Completion::Worked { work, outcome, .. } => self.take_in_work(work, outcome),
            Completion::Written { peer, immediate } => match Owner::of_immediate(immediate) {
                channel::OWNER => self.channels.own.written(peer, immediate),
                _ => self.messages.pump.refuse(),
            },
            Completion::Lost { peer } => {
                let why = self.messages.pump.fabric.why_lost(peer);
                let why = why.unwrap_or_default().to_owned();
                self.lose(Peer(peer.0), &why);
            }
        }
    }

    /// Takes in the completion of a read or write.
    fn take_in_work(&mut self, work: WorkId, outcome: WorkOutcome) {
        match Owner::of_work(work) {
            ENGINE => self.messages.pump.take_in_read(work, outcome),
            channel::OWNER => {
                self.channels
                    .own
                    .worked(&mut self.messages.pump.fabric, work, outcome)
            }
            // This process posts no work requests with other owners.
            _ => {}
        }
    }

    /// A turn for the network, if there is work for it.
    #[inline(always)]
    pub(crate) fn turn_network(&mut self) {
        if self.network.has_work(&self.messages.pump) {
            self.turn_network_now();
        }
    }

    #[inline(never)]
    fn turn_network_now(&mut self) {
        let pump = &mut self.messages.pump;
        self.network.end_lost(&mut pump.engine, &self.comms);
        pump.withdraw_keys();
        if pump.fabric.has_network_notices() {
            self.network.report_network_events(pump);
        }
        if self.network.has_traffic() {
            self.exchange_with_daemon();
        }
    }

    /// Sends queued messages to the daemon, and takes in the daemon's messages if a reply is expected.
    #[cold]
    pub(crate) fn exchange_with_daemon(&mut self) {
        while let Some(event) = self.network.next_reply() {
            self.take_in_daemon_event(event);
        }
    }

    #[cold]
    pub(crate) fn take_in_daemon_event(&mut self, event: DaemonEvent) {
        match event {
            DaemonEvent::Record(rank, record) => {
                let fabric = &mut self.messages.pump.fabric;
                fabric.set_peer_address(transport::Peer(rank), record.bytes());
            }
            DaemonEvent::NoRecord(rank, why) => self.lose(Peer(rank), &why),
            DaemonEvent::Lost(rank, why) => {
                // Takes in the messages that the lost rank sent to this rank before it ended. They have arrived by now.
                self.progress();
                self.lose(Peer(rank), &why);
                self.network.end_job_without(rank, &why);
            }
            DaemonEvent::AllQuiet => self.network.allow_leave(),
            DaemonEvent::End => {
                // Without the daemon nothing else would end this process.
                eprintln!("rank {}: the launcher is gone; this rank ends", self.rank());
                crate::boot::leave(1);
            }
        }
    }

    /// Marks a peer as dead, or as unreachable from the start.
    #[cold]
    pub(crate) fn lose(&mut self, peer: Peer, why: &str) {
        let Self {
            messages,
            channels,
            network,
            comms,
            ..
        } = self;
        if network.add_lost(peer, why) {
            messages.pump.fabric.lose(carrier(peer), why);
            channels.own.lose(carrier(peer));
            let words = [peer.0.into(), 0, 0, 0, 0];
            messages.pump.engine.note(EventType::PeerLost, words);
            messages.gates.lose(&mut messages.pump, peer);
            messages.pump.sides.forget_packed();
        }
        network.end_lost(&mut messages.pump.engine, comms);
    }
}
