// SPDX-License-Identifier: MIT OR Apache-2.0
//! A carrier for tests, within one process: packets are lost, duplicated, delayed and damaged at random, and time is
//! simulated. The same seed and the same calls give the same result, except for random queue pair numbers and keys.

use std::collections::{BTreeMap, VecDeque};
use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::BorrowedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use roce::icrc::RecentPrefixes;
use roce::link::FramePayload;

use dpdk_sys::{InPlaceMemory, Loan};

use super::carrier::{Carrier, PACKET_BYTES, of_datagram, prefix_of};
use crate::provider::sim::SimRandom;

/// Faults of packets, each per thousand.
#[derive(Clone, Copy, Debug, Default)]
pub struct PacketFaults {
    /// Seed of the random numbers.
    pub seed: u64,
    /// Packets lost.
    pub loss: u32,
    /// Packets duplicated.
    pub twice: u32,
    /// Packets with one bit changed.
    pub damage: u32,
    /// Attempts to send that the carrier refuses at first.
    pub full: u32,
    /// Packets delayed, so that others overtake them.
    pub late: u32,
    /// Largest delay.
    pub most_delay_ns: u64,
    /// Packets longer than this, counted from the IP header on, never arrive; 0: no limit.
    pub most_bytes: usize,
    /// The limit applies only to packets from the place (endpoint) with this number; places are numbered from 1 on as
    /// they are opened. 0: the limit applies to all packets.
    pub narrow_from: u16,
}

/// A network. Clones refer to the same network.
#[derive(Clone, Debug)]
pub struct PacketNet(Arc<Mutex<PacketNetState>>);

/// The state of the faulty network, which its places share.
#[derive(Debug)]
struct PacketNetState {
    faults: PacketFaults,
    random: SimRandom,
    /// The MTU that each place reports.
    link_bytes: usize,
    now_ns: u64,
    sent: u64,
    places: Vec<SocketAddr>,
    /// Packets in flight by arrival time, then in the order in which they were sent.
    in_flight: BTreeMap<(u64, u64), PacketInFlight>,
}

/// A packet that has not arrived yet.
#[derive(Clone, Debug)]
struct PacketInFlight {
    from: SocketAddr,
    to: SocketAddr,
    bytes: Vec<u8>,
}

impl PacketNet {
    /// A new network, without places, with an MTU of 1500 bytes.
    #[must_use]
    pub fn new(faults: PacketFaults) -> Self {
        Self::of_links(faults, 1500)
    }

    /// A new network with this MTU, counted from the IP header on.
    #[must_use]
    pub fn of_links(faults: PacketFaults, link_bytes: usize) -> Self {
        Self(Arc::new(Mutex::new(PacketNetState {
            faults,
            random: SimRandom::new(faults.seed),
            link_bytes,
            now_ns: 1,
            sent: 0,
            places: Vec::new(),
            in_flight: BTreeMap::new(),
        })))
    }

    /// Adds a place, whose UDP port is its number from 1 on.
    pub(crate) fn join(&self) -> Faulty {
        let mut state = self.state();
        let port = u16::try_from(state.places.len() + 1).expect("places are few");
        let local = SocketAddr::from((Ipv4Addr::new(10, 0, 0, 1), port));
        state.places.push(local);
        Faulty {
            net: self.clone(),
            local,
            outgoing: Box::new([0; PACKET_BYTES]),
            unsent: VecDeque::new(),
            received: VecDeque::new(),
        }
    }

    /// Advances the time.
    pub fn pass(&self, time_ns: u64) {
        self.state().now_ns += time_ns;
    }

    /// Time since the beginning.
    #[must_use]
    pub fn now_ns(&self) -> u64 {
        self.state().now_ns
    }

    /// Sets the faults from now on.
    pub fn set_faults(&self, faults: PacketFaults) {
        self.state().faults = faults;
    }

    fn state(&self) -> MutexGuard<'_, PacketNetState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl PacketNetState {
    /// Whether a packet exceeds the path MTU.
    fn is_too_long(&self, in_flight: &PacketInFlight) -> bool {
        let PacketFaults {
            most_bytes,
            narrow_from,
            ..
        } = self.faults;
        let is_narrow = narrow_from == 0 || narrow_from == in_flight.from.port();
        most_bytes != 0 && is_narrow && in_flight.bytes.len() + IP_UDP_BYTES > most_bytes
    }

    fn send(&mut self, in_flight: &PacketInFlight) {
        let PacketFaults {
            loss,
            twice,
            damage,
            late,
            most_delay_ns,
            ..
        } = self.faults;
        let copies = 1 + u32::from(self.random.chance(twice));
        let is_too_long = self.is_too_long(in_flight);
        for _ in 0..copies {
            if self.random.chance(loss) || is_too_long {
                continue;
            }
            let mut in_flight = in_flight.clone();
            if self.random.chance(damage) {
                let at = self.random.below(in_flight.bytes.len() as u64);
                let at = usize::try_from(at).unwrap_or(0);
                in_flight.bytes[at] ^= 1 << self.random.below(8);
            }
            let delay_ns = match self.random.chance(late) {
                true => self.random.below(most_delay_ns + 1),
                false => 0,
            };
            let at_ns = self.now_ns + delay_ns;
            self.sent += 1;
            self.in_flight.insert((at_ns, self.sent), in_flight);
        }
    }
}

/// A place on a [`PacketNet`].
#[derive(Debug)]
pub(crate) struct Faulty {
    net: PacketNet,
    local: SocketAddr,
    outgoing: Box<[u8; PACKET_BYTES]>,
    /// Packets not sent yet.
    unsent: VecDeque<PacketInFlight>,
    received: VecDeque<PacketInFlight>,
}

impl Carrier for Faulty {
    fn now_ns(&self) -> u64 {
        self.net.state().now_ns
    }

    fn local(&self) -> SocketAddr {
        self.local
    }

    fn most_bytes(&self) -> usize {
        self.net.state().link_bytes
    }

    fn waiting_bytes(&self) -> usize {
        200 << 10
    }

    fn buffer(&mut self) -> Option<&mut [u8]> {
        (self.unsent.len() < BURST).then_some(&mut self.outgoing[..])
    }

    fn push(&mut self, bytes: usize, to: SocketAddr) {
        let bytes = self.outgoing[..bytes].to_vec();
        let from = self.local;
        self.unsent.push_back(PacketInFlight { from, to, bytes });
    }

    /// Accepts all memory, but later copies the payloads, as any carrier may.
    fn lend(&mut self, _: InPlaceMemory) -> Option<Loan> {
        Some(Loan(0))
    }

    fn lends_from(&self) -> u32 {
        LEAST_LENT_BYTES
    }

    fn flush(&mut self) {
        let mut state = self.net.state();
        let full = state.faults.full;
        while !self.unsent.is_empty() && !state.random.chance(full) {
            if let Some(in_flight) = self.unsent.pop_front() {
                state.send(&in_flight);
            }
        }
    }

    fn has_unsent(&self) -> bool {
        !self.unsent.is_empty()
    }

    fn receive(&mut self) -> usize {
        let mut state = self.net.state();
        let now_ns = state.now_ns;
        let is_here =
            |(at_ns, _): &(u64, u64), it: &PacketInFlight| *at_ns <= now_ns && it.to == self.local;
        let mut here = state.in_flight.iter().filter(|(at, it)| is_here(at, it));
        let places: Vec<_> = here.by_ref().take(BURST).map(|(at, _)| *at).collect();
        let received = places.iter().filter_map(|at| state.in_flight.remove(at));
        self.received = received.collect();
        self.received.len()
    }

    fn received(&self, index: usize) -> Option<FramePayload<'_>> {
        let received = self.received.get(index)?;
        let (bytes, from) = (&received.bytes, received.from);
        let recent = &mut RecentPrefixes::default();
        let prefix = prefix_of(recent, bytes.len(), from, self.local)?;
        Some(of_datagram(bytes, from, self.local, prefix))
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        None
    }
}

const BURST: usize = 8;
const LEAST_LENT_BYTES: u32 = 500;
/// Length of the headers of IPv4 and UDP in front of a packet.
const IP_UDP_BYTES: usize = 28;
