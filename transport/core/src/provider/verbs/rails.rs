// SPDX-License-Identifier: MIT OR Apache-2.0
//! All ports of this process, and operations on all of them: which rail a buffer belongs to, which rails can carry
//! packets, the clock, and deregistration of memory that several ports have registered. Independent of peers.

use std::ops::{Deref, DerefMut};
use std::time::Duration;

use session::Slot;

use super::address::{self, PortAddress, Rated};
use super::inspect::cannot_open;
use super::keys::Regions;
use super::memory::register_exported;
use super::peer_port::PeerPort;
use super::pools::{RecvPool, SendPool};
use super::port::{CallError, DatagramDestination, PortAttr, PortCompletion, VerbsPort, WorkBody};
use super::posted::PostedRequest;
use super::rail::{MOST_RAILS, Rail, largest_datagram, rail_of};
use super::wire::NOTE_BYTES;
use super::work::Work;
use super::{DATAGRAMS, NetLimits, PortChange, name};
use crate::Completions;
use crate::wait_set::WaitSet;

/// The ports; at least one.
#[derive(Debug)]
pub(super) struct Rails<P: VerbsPort> {
    all: Vec<Rail<P>>,
    /// The addresses of the ports when they were opened, which were published to the peers.
    published: Vec<PortAddress>,
    /// Largest packet that may be sent as a datagram over every port, in bytes.
    datagram_bytes: usize,
    /// The rail of the last completion.
    warm: usize,
    is_all_lost: bool,
    /// Buffers for polled completions of receives and of sends; empty while the completions are processed.
    pub(super) received: Vec<PortCompletion>,
    pub(super) sent: Vec<PortCompletion>,
}

/// Result of [`open_all`].
#[derive(Debug)]
pub(super) struct Opened<P: VerbsPort> {
    pub(super) rails: Rails<P>,
    pub(super) sends: SendPool,
    /// Warnings for the user.
    pub(super) warnings: Vec<String>,
}

impl<P: VerbsPort> Deref for Rails<P> {
    type Target = [Rail<P>];

    #[inline(always)]
    fn deref(&self) -> &[Rail<P>] {
        &self.all
    }
}

impl<P: VerbsPort> DerefMut for Rails<P> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut [Rail<P>] {
        &mut self.all
    }
}

impl<P: VerbsPort> Rails<P> {
    fn new(all: Vec<Rail<P>>) -> Self {
        let datagrams = all.iter().map(|rail| largest_datagram(&rail.port));
        Self {
            datagram_bytes: datagrams.min().unwrap_or(0),
            published: all.iter().map(Rail::address).collect(),
            all,
            warm: 0,
            is_all_lost: false,
            received: vec![PortCompletion::default(); Completions::CAPACITY],
            sent: vec![PortCompletion::default(); 16],
        }
    }

    /// Time since a fixed moment in the past, in nanoseconds.
    #[inline(always)]
    pub(super) fn clock(&self) -> u64 {
        self.all[0].port.now_ns()
    }

    /// The addresses of the ports when they were opened.
    pub(super) fn published(&self) -> &[PortAddress] {
        &self.published
    }

    /// The address record for peers: the ports' present addresses, and the name of this host.
    pub(super) fn record(&self, host: &str) -> Vec<u8> {
        let port = |rail: &Rail<P>| (rail.address(), rail.port.facts().rate_mbps);
        let ports: Vec<Rated> = self.all.iter().map(port).collect();
        address::to_record(&ports, host)
    }

    /// Largest packet that may be sent as a datagram, whichever port sends it, in bytes.
    #[inline(always)]
    pub(super) fn datagram_bytes(&self) -> usize {
        self.datagram_bytes
    }

    #[inline(always)]
    pub(super) fn warm(&self) -> usize {
        self.warm
    }

    /// Records a completion on this rail.
    #[inline(always)]
    pub(super) fn came_on(&mut self, rail: usize) {
        self.warm = rail;
    }

    /// Returns a receive buffer, to be posted again.
    #[inline(always)]
    pub(super) fn give_back(&mut self, buffer: Slot) {
        self.all[usize::from(rail_of(buffer))].give_back(buffer);
    }

    /// The pool of a receive buffer.
    #[inline(always)]
    pub(super) fn receives(&self, buffer: Slot) -> &RecvPool {
        &self.all[usize::from(rail_of(buffer))].receives
    }

    /// Whether a rail can carry packets now.
    pub(super) fn serves(&self, rail: u8) -> bool {
        self.all[usize::from(rail)].serves()
    }

    /// Whether a link can carry packets now.
    pub(super) fn may_use(&self, link: &PeerPort, now_ns: u64) -> bool {
        self.serves(link.rail) && link.address.is_some() && link.handle_after_ns <= now_ns
    }

    /// The notice that a port went down or came back.
    pub(super) fn change(&self, rail: usize, is_up: bool) -> PortChange {
        let number = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
        let serving = self.all.iter().filter(|rail| rail.serves()).count();
        PortChange {
            rail: number(rail),
            port: self.all[rail].port.facts().port,
            is_up,
            serving: number(serving),
        }
    }

    /// Marks a rail as lost.
    pub(super) fn lose(&mut self, rail: usize, why: String) {
        self.all[rail].lost = Some(why.into());
        let living = self.all.iter().position(|rail| rail.lost.is_none());
        self.warm = living.unwrap_or(self.warm);
        self.is_all_lost = living.is_none();
    }

    /// Whether all ports are lost, and with them all peers.
    pub(super) fn is_all_lost(&self) -> bool {
        self.is_all_lost
    }

    /// Number of reliable queue pairs on all ports.
    pub(super) fn pairs(&self) -> usize {
        self.all.iter().map(|rail| rail.numbers.len()).sum()
    }

    /// Whether another reliable queue pair may be made.
    pub(super) fn has_room_for_pair(&self, limits: &NetLimits) -> bool {
        self.pairs() < limits.pairs as usize
    }

    /// Registers memory on rail `main`, and on those of `others` that can carry packets now and whose registration
    /// succeeds.
    pub(super) fn register(
        &mut self,
        main: u8,
        others: [bool; MOST_RAILS],
        address: u64,
        bytes: usize,
    ) -> Result<Regions, CallError> {
        let main = usize::from(main);
        let mut regions = Regions::default();
        let port = &mut self.all[main].port;
        regions[main] = Some(register_exported(port, address, bytes)?);
        for (at, rail) in self.all.iter_mut().enumerate() {
            if others[at] && at != main && rail.serves() {
                regions[at] = register_exported(&mut rail.port, address, bytes).ok();
            }
        }
        Ok(regions)
    }

    /// Deregisters memory on all rails.
    pub(super) fn deregister(&mut self, regions: Regions) {
        for (rail, region) in self.all.iter_mut().zip(regions) {
            if let Some(region) = region {
                rail.port.deregister(region);
            }
        }
    }

    /// Sends a note as a datagram, padded to `bytes`. If there is no room, the note counts as lost on the wire.
    pub(super) fn send_note(
        &mut self,
        rail: u8,
        to: DatagramDestination,
        (note, bytes): (&[u8; NOTE_BYTES], usize),
        sends: &mut SendPool,
    ) {
        if let Some(slot) = sends.note(self, note, bytes) {
            self.post_datagram(rail, to, sends, (slot, bytes));
            sends.release(slot);
        }
    }

    /// Posts the packet in a slot as a datagram; `false`: there is no room.
    pub(super) fn post_datagram(
        &mut self,
        rail: u8,
        to: DatagramDestination,
        sends: &mut SendPool,
        (slot, bytes): (Slot, usize),
    ) -> bool {
        let at = usize::from(rail);
        let rail = &mut self.all[at];
        let inline_bytes = rail.port.facts().inline_bytes as usize;
        let body = sends.body(slot, at, bytes, inline_bytes);
        let read = matches!(body, WorkBody::Piece(_)).then_some(slot);
        let work = name(DATAGRAMS, rail.datagrams.next());
        let posted = rail.port.post_datagram(to, work, body, true);
        if posted.is_err() {
            return false;
        }
        rail.datagrams.push(PostedRequest::Mark { read }, true);
        if let Some(slot) = read {
            sends.posted(slot);
        }
        true
    }

    /// Deregisters the memory of a work, if it was registered only for that work.
    pub(super) fn deregister_of(&mut self, work: &Work) {
        if let Some((rail, region)) = work.region() {
            self.all[rail].port.deregister(region);
        }
    }

    /// Whether the kernel implements the device of any port in software.
    pub(super) fn is_any_in_software(&self) -> bool {
        self.all.iter().any(|rail| rail.port.facts().in_software)
    }

    /// Makes the ports hold back the packets of further posts.
    pub(super) fn cork(&mut self) {
        for rail in &mut self.all {
            rail.port.cork();
        }
    }

    /// Makes the ports send the packets that they held back.
    #[inline(always)]
    pub(super) fn uncork(&mut self) {
        for rail in &mut self.all {
            rail.port.uncork();
        }
    }

    /// Whether packets have arrived on any port since the last call.
    pub(super) fn take_activity(&mut self) -> bool {
        let stirred = self.all.iter_mut().map(|rail| rail.port.take_activity());
        stirred.fold(false, |any, one| any | one)
    }

    /// Arms the completion queues of all ports that are not lost. `false`: a call failed.
    pub(super) fn arm(&mut self) -> bool {
        let mut living = self.all.iter_mut().filter(|rail| rail.lost.is_none());
        living.all(|rail| rail.port.arm().is_ok())
    }

    /// Adds the descriptors of all ports to a wait set.
    pub(super) fn add_event_fds(&self, waits: &mut WaitSet) {
        for rail in self.all.iter().filter(|rail| rail.lost.is_none()) {
            match rail.port.event_fd() {
                Some(event_fd) => waits.add_descriptor(event_fd),
                None => waits.poll_after(WITHOUT_EVENTS),
            }
        }
    }

    /// Whether completions of all ports wake a process that sleeps.
    pub(super) fn all_wake(&self) -> bool {
        let mut rails = self.all.iter().filter(|rail| rail.lost.is_none());
        rails.all(|rail| rail.port.event_fd().is_some())
    }

    /// Acknowledges the completion events after a sleep.
    pub(super) fn ack_events(&mut self) {
        for rail in &mut self.all {
            rail.port.ack_events();
        }
    }

    /// Memory of the receive buffers, in bytes.
    pub(super) fn received_bytes(&self) -> usize {
        self.all.iter().map(|rail| rail.receives.bytes()).sum()
    }

    /// Maximum memory of receive buffers on `rails` rails, in bytes.
    pub(super) fn received_most_bytes(&self, rails: usize) -> usize {
        let rails = self.all.iter().take(rails);
        rails.map(|rail| rail.receives.most_bytes()).sum()
    }

    /// Destroys unused address handles and deregisters all receive buffers.
    pub(super) fn retire(&mut self) {
        for rail in &mut self.all {
            for (_, handle) in std::mem::take(&mut rail.old_handles) {
                rail.port.destroy_address_handle(handle);
            }
            rail.receives.retire(&mut rail.port);
        }
    }
}

/// Opens ports as rails, with send slots registered on all of them. The first must open; failures of others become
/// warnings.
pub(super) fn open_all<P: VerbsPort>(
    ports: impl IntoIterator<Item = P>,
    limits: &NetLimits,
) -> Result<Opened<P>, CallError> {
    let mut rails: Vec<Rail<P>> = Vec::new();
    let mut warnings = Vec::new();
    for port in ports.into_iter().take(MOST_RAILS) {
        let facts = port.facts().clone();
        let at = u8::try_from(rails.len()).unwrap_or(u8::MAX);
        match Rail::open(at, port, limits) {
            Ok(rail) => rails.push(rail),
            Err(error) if rails.is_empty() => return Err(error),
            Err(error) => warnings.push(left_out(&error, &facts)),
        }
    }
    loop {
        let mut sends = SendPool::new();
        let Err(error) = sends.open(&mut rails) else {
            let rails = Rails::new(rails);
            return Ok(Opened {
                rails,
                sends,
                warnings,
            });
        };
        sends.retire(&mut rails);
        match rails.pop().filter(|_| !rails.is_empty()) {
            Some(mut last) => {
                warnings.push(left_out(&error, last.port.facts()));
                last.receives.retire(&mut last.port);
            }
            None => return Err(error),
        }
    }
}

fn left_out(error: &CallError, facts: &PortAttr) -> String {
    format!(
        "goes on without a further port: {}",
        cannot_open(error, facts)
    )
}

/// Interval of polls of a port without completion events.
const WITHOUT_EVENTS: Duration = Duration::from_millis(1);

/// A port on a network without losses, for tests of other parts.
#[cfg(test)]
pub(super) fn one_rail() -> Rails<super::FakePort> {
    use super::{FakeConfig, FakeNet};
    let (net, limits) = (FakeNet::new(FakeConfig::calm(1)), NetLimits::DEFAULT);
    let port = net.open_beside(None, &limits.depths(), &limits.terms, 7);
    let port = port.expect("depths that a device has");
    let opened = open_all([port], &limits);
    opened.expect("a fake has memory at first").rails
}
