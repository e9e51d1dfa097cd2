// SPDX-License-Identifier: MIT OR Apache-2.0
//! Simulates the network between the ports: its clock, its events, and which ports reach each other.

use std::collections::{BTreeMap, BTreeSet};

use super::super::NetTerms;
use super::super::address::{LinkLayer, PortAddress};
use super::super::port::{CallError, CqKind, Depths, PortEvent};
use super::adapter::{FakeAdapter, FakeAdapterState, FakeSource, RandomToggle, gid, lid};
use super::config::FakeConfig;
use super::datagram::FakeDatagram;
use super::pair::{FakePacket, FakePair};
use super::queue::{FakeCompletion, FakeSlotOwner};
use super::responder::FakeReply;
use crate::provider::sim::SimRandom;

/// The state of the whole network.
#[derive(Debug)]
pub(super) struct FakeNetState {
    pub(super) config: FakeConfig,
    pub(super) random: SimRandom,
    pub(super) now: u64,
    /// Scheduled events by time, then in the order in which they were scheduled.
    events: BTreeMap<(u64, u64), FakeNetEvent>,
    scheduled: u64,
    pub(super) ports: Vec<FakeAdapter>,
    /// Reliable queue pairs by serial number; serial numbers are never reused.
    pub(super) pairs: BTreeMap<u32, FakePair>,
    serials: u32,
    /// Serial numbers of reliable queue pairs, by QPN. Datagram queue pairs have QPNs too, but no entry here.
    pub(super) numbers: BTreeMap<u32, u32>,
    next_number: u32,
    keys: u32,
    places: u32,
    /// Pairs of ports that are cut off from each other, the smaller number first.
    cuts: BTreeSet<(u32, u32)>,
}

/// A scheduled event of the network.
#[derive(Debug)]
pub(super) enum FakeNetEvent {
    /// Sends the next request of a queue pair, if there is one.
    Leave { serial: u32 },
    /// The answer timer of a queue pair expires.
    Timer { serial: u32 },
    /// Flushes the requests of a broken queue pair.
    Flush { serial: u32 },
    /// Sends the response to a request.
    Reply {
        serial: u32,
        psn: u32,
        reply: FakeReply,
    },
    /// A packet of a reliable queue pair arrives.
    Packet(Box<FakePacket>),
    /// Sends the next datagram of a port.
    DatagramLeaves { port: u32 },
    /// A datagram arrives.
    Datagram(Box<FakeDatagram>),
    /// A suspended process runs again.
    Return,
}

impl FakeNetState {
    pub(super) fn new(config: FakeConfig) -> Self {
        Self {
            config,
            random: SimRandom::new(config.seed),
            now: 0,
            events: BTreeMap::new(),
            scheduled: 0,
            ports: Vec::new(),
            pairs: BTreeMap::new(),
            serials: 0,
            numbers: BTreeMap::new(),
            next_number: 0x11,
            keys: 0x1000,
            places: 0,
            cuts: BTreeSet::new(),
        }
    }

    /// Opens a port at a new address, for a new process or for the process with port `first`; returns the index of the
    /// new port.
    pub(super) fn open(
        &mut self,
        depths: &Depths,
        terms: &NetTerms,
        q_key: u32,
        first: Option<u32>,
    ) -> Result<u32, CallError> {
        let fault = |call| CallError {
            call,
            errno: libc::EINVAL,
        };
        if !(1..=MOST_COMPLETIONS).contains(&depths.completions) {
            return Err(fault("ibv_create_cq"));
        }
        if depths.shared == 0 {
            return Err(fault("ibv_create_srq"));
        }
        if depths.sends == 0 || depths.datagrams == 0 || depths.datagram_buffers == 0 {
            return Err(fault("ibv_create_qp"));
        }
        // The highest bit is reserved for privileged keys.
        if q_key >> 31 != 0 {
            return Err(fault("ibv_modify_qp"));
        }
        let index = u32::try_from(self.ports.len()).expect("ports are few");
        let number = self.new_number();
        let place = self.new_place();
        let mut adapter = FakeAdapter::new(&self.config, (depths, terms), place, number, q_key);
        adapter.up.change = self.after(true, self.config.most_down_ns, self.config.down_permille);
        adapter.process = first.unwrap_or(index);
        if first.is_none() {
            let FakeConfig {
                most_away_ns,
                away_permille,
                ..
            } = self.config;
            adapter.running.change = self.after(true, most_away_ns, away_permille);
        }
        self.ports.push(adapter);
        Ok(index)
    }

    pub(super) fn port(&mut self, port: u32) -> &mut FakeAdapter {
        let found = self.ports.get_mut(port as usize);
        found.expect("a port of this network")
    }

    /// The ports of a port's process.
    fn process_of(&self, port: u32) -> impl Iterator<Item = &FakeAdapter> {
        let process = self.ports[port as usize].process;
        let ports = self.ports.iter();
        ports.filter(move |other| other.process == process)
    }

    /// Whether the process of a port has an event, of any of its ports, that would end a sleep.
    pub(super) fn would_wake(&self, port: u32) -> bool {
        self.process_of(port).any(FakeAdapter::would_wake)
    }

    /// Whether the process of a port sleeps, and no event has woken it.
    pub(super) fn is_asleep(&self, port: u32) -> bool {
        let now = self.now;
        self.process_of(port).all(|port| port.is_asleep(now)) && !self.would_wake(port)
    }

    /// Ends the sleep of a process that polls.
    fn end_sleep(&mut self, port: u32) {
        let process = self.ports[port as usize].process;
        let is_woken = self.would_wake(port);
        for port in &mut self.ports {
            if port.process == process {
                port.end_sleep(is_woken);
            }
        }
    }

    /// Time of the next event.
    fn next_time(&mut self) -> Option<u64> {
        self.settle_timers();
        let first = self.events.first_key_value();
        let first = first.map(|((time, _), _)| *time);
        let back = self.ports.iter().filter_map(FakeAdapter::comes_back);
        back.chain(first).min()
    }

    /// Advances the clock to the next time at which something happens, and processes the events that are due then.
    /// `false`: nothing happens up to the time `limit`, and the clock is unchanged.
    pub(super) fn advance(&mut self, limit: u64) -> bool {
        let Some(next) = self.next_time().filter(|next| *next <= limit) else {
            return false;
        };
        self.pass_to(next);
        while let Some(entry) = self.events.first_entry()
            && entry.key().0 <= self.now
        {
            let event = entry.remove();
            self.process(event);
        }
        true
    }

    /// Advances the clock to `limit` without processing events.
    pub(super) fn pass_to(&mut self, limit: u64) {
        self.now = self.now.max(limit);
        self.update_toggles();
    }

    fn process(&mut self, event: FakeNetEvent) {
        match event {
            FakeNetEvent::Leave { serial } => self.leave(serial),
            FakeNetEvent::Timer { serial } => self.time_out(serial),
            FakeNetEvent::Flush { serial } => self.flush(serial),
            FakeNetEvent::Reply { serial, psn, reply } => self.reply(serial, psn, reply),
            FakeNetEvent::Packet(packet) => self.arrive(*packet),
            FakeNetEvent::DatagramLeaves { port } => self.datagram_leaves(port),
            FakeNetEvent::Datagram(datagram) => self.datagram_arrives(*datagram),
            FakeNetEvent::Return => {}
        }
    }

    pub(super) fn schedule(&mut self, time: u64, event: FakeNetEvent) {
        self.scheduled += 1;
        self.events.insert((time, self.scheduled), event);
    }

    /// Removes timers without a deadline, so that they do not advance the clock; moves others to their deadline.
    fn settle_timers(&mut self) {
        while let Some(entry) = self.events.first_entry()
            && let FakeNetEvent::Timer { serial } = *entry.get()
        {
            let time = entry.key().0;
            let deadline = self.pairs.get(&serial).and_then(FakePair::deadline);
            if deadline.is_some_and(|deadline| deadline <= time) {
                return;
            }
            entry.remove();
            if let Some(deadline) = deadline {
                self.schedule(deadline, FakeNetEvent::Timer { serial });
            } else if let Some(pair) = self.pairs.get_mut(&serial) {
                pair.timer_is_set = false;
            }
        }
    }

    /// A random packet delay.
    pub(super) fn delay(&mut self) -> u64 {
        let FakeConfig {
            least_delay_ns,
            most_delay_ns,
            ..
        } = self.config;
        (least_delay_ns + self.spread(most_delay_ns.saturating_sub(least_delay_ns))).max(1)
    }

    /// A random time of at most `most` nanoseconds.
    pub(super) fn spread(&mut self, most: u64) -> u64 {
        self.random.below(1 + most)
    }

    /// Whether a packet for this address arrives at this port.
    pub(super) fn delivers(&self, from: u32, to: u32, address: &PortAddress) -> bool {
        let adapter = &self.ports[to as usize];
        let cut = self.cuts.contains(&(from.min(to), from.max(to)));
        adapter.carries() && adapter.is_at(address) && !cut
    }

    pub(super) fn set_cut(&mut self, one: u32, other: u32, is_cut: bool) {
        let key = (one.min(other), one.max(other));
        match is_cut {
            true => self.cuts.insert(key),
            false => self.cuts.remove(&key),
        };
    }

    /// Checks that an address can be resolved from a port. `known`: the port's own address, as the caller last queried
    /// it.
    pub(super) fn resolve(
        &self,
        port: u32,
        known: &FakeSource,
        to: &PortAddress,
        call: &'static str,
    ) -> Result<(), CallError> {
        let adapter = &self.ports[port as usize];
        adapter.alive(call)?;
        let fail = |errno| Err(CallError { call, errno });
        if to.link != adapter.facts.link {
            return fail(libc::EINVAL);
        }
        // The GID index that the caller uses is empty now.
        if !adapter.is_still(known) {
            return fail(libc::ENODATA);
        }
        if to.link == LinkLayer::Infiniband {
            return Ok(());
        }
        if !adapter.facts.is_up {
            return fail(libc::ENETUNREACH);
        }
        match self.ports.iter().any(|other| other.is_at(to)) {
            true => Ok(()),
            false => fail(libc::EHOSTUNREACH),
        }
    }

    pub(super) fn poll_one(&mut self, port: u32, which: CqKind) -> Option<FakeCompletion> {
        let now = self.now;
        let adapter = self.port(port);
        if !adapter.works(now) {
            return None;
        }
        if adapter.sleeps() {
            self.end_sleep(port);
        }
        let adapter = self.port(port);
        let entry = adapter.take_completion(which)?;
        if let FakeSlotOwner::Pair { serial, slot } = entry.owner
            && let Some(pair) = self.pairs.get_mut(&serial)
        {
            pair.slots.free_up_to(slot);
        }
        Some(entry)
    }

    pub(super) fn new_number(&mut self) -> u32 {
        let taken = |net: &Self, number| {
            let is_datagrams = |port: &FakeAdapter| port.datagrams.number == number;
            net.numbers.contains_key(&number) || net.ports.iter().any(is_datagrams)
        };
        if self.config.reuse_numbers {
            let mut free = (0x11..).filter(|number| !taken(self, *number));
            return free.next().unwrap_or(0x11);
        }
        loop {
            let step = u32::try_from(self.random.below(5)).unwrap_or(0);
            self.next_number = (self.next_number + 1 + step) & NUMBER_MASK;
            if self.next_number > 1 && !taken(self, self.next_number) {
                return self.next_number;
            }
        }
    }

    pub(super) fn new_serial(&mut self) -> u32 {
        self.serials += 1;
        self.serials
    }

    /// An id or key that nothing else on the network has.
    pub(super) fn new_key(&mut self) -> u32 {
        self.keys += 1;
        self.keys
    }

    fn new_place(&mut self) -> u32 {
        self.places += 1;
        self.places - 1
    }

    /// Gives a port a new address.
    pub(super) fn readdress(&mut self, port: u32) {
        let place = self.new_place();
        let (gid, lid) = (gid(&self.config, place), lid(&self.config, place));
        let adapter = self.port(port);
        adapter.facts.gid = gid;
        adapter.facts.lid = lid;
        adapter.events.push_back(PortEvent::AddressChanged);
    }

    /// Moves the GID of a port to another table index.
    pub(super) fn move_gid(&mut self, port: u32) {
        let adapter = self.port(port);
        adapter.facts.gid_index = adapter.facts.gid_index % 15 + 1;
        adapter.events.push_back(PortEvent::AddressChanged);
    }

    /// Ends the process of a port, or with [`FakeAdapterState::Lost`] its device.
    pub(super) fn end_port(&mut self, port: u32, state: FakeAdapterState) {
        let adapter = self.port(port);
        let was_open = adapter.is_open();
        adapter.state = state;
        adapter.facts.is_up = false;
        if was_open && state == FakeAdapterState::Lost {
            adapter.events.push_back(PortEvent::DeviceLost);
        }
    }

    /// Ends the process of a port, and removes all objects of the port.
    pub(super) fn end_process(&mut self, port: u32) {
        self.end_port(port, FakeAdapterState::Ended);
        let adapter = self.port(port);
        adapter.regions.clear();
        adapter.handles.clear();
        adapter.events.clear();
        for (_, pair) in self.pairs.extract_if(.., |_, pair| pair.port == port) {
            self.numbers.remove(&pair.number);
        }
    }

    /// Takes ports up and down, and processes off their processors and back, at random.
    fn update_toggles(&mut self) {
        let FakeConfig {
            most_down_ns,
            down_permille,
            most_away_ns,
            away_permille,
            ..
        } = self.config;
        for index in 0..self.ports.len() {
            if !self.ports[index].is_open() {
                continue;
            }
            while self.ports[index].up.change <= self.now {
                let is_on = !self.ports[index].up.is_on;
                let duration = self.random_duration(is_on, most_down_ns, down_permille);
                self.ports[index].up.turn(duration);
                self.ports[index].follow_link();
                // While the port was down, its address may have moved to another index of the GID table.
                if is_on && self.random.below(3) == 0 {
                    self.move_gid(u32::try_from(index).expect("ports are few"));
                }
            }
            while self.ports[index].running.change <= self.now {
                let is_on = !self.ports[index].running.is_on;
                let duration = self.random_duration(is_on, most_away_ns, away_permille);
                self.ports[index].running.turn(duration);
                self.ports[index].stats.away += u64::from(!is_on);
            }
        }
    }

    fn after(&mut self, is_on: bool, most_off: u64, permille: u32) -> u64 {
        self.now
            .saturating_add(self.random_duration(is_on, most_off, permille))
    }

    /// A random time for which a toggle stays on or off, such that it is off for about `permille` of the time.
    fn random_duration(&mut self, is_on: bool, most_off: u64, permille: u32) -> u64 {
        if most_off == 0 || permille == 0 {
            return u64::MAX;
        }
        let permille = u64::from(permille);
        let longest = match is_on {
            true => most_off.saturating_mul(1000 - permille.min(999)) / permille,
            false => most_off,
        };
        1 + self.random.below(longest.max(1))
    }
}

impl FakeAdapter {
    /// When the port comes up again or its process runs again, whichever is earlier; `None`: the port is up and its
    /// process runs, or the process has ended or the device is lost.
    fn comes_back(&self) -> Option<u64> {
        let toggles = [self.up, self.running];
        let off = toggles
            .iter()
            .filter(|toggle| self.is_open() && !toggle.is_on);
        off.map(|toggle| toggle.change).min()
    }
}

impl RandomToggle {
    fn turn(&mut self, duration: u64) {
        self.is_on = !self.is_on;
        self.change = self.change.saturating_add(duration);
    }
}

/// Queue pair numbers and packet sequence numbers have 24 bits.
pub(super) const NUMBER_MASK: u32 = 0xff_ffff;
/// Largest completion queue.
const MOST_COMPLETIONS: u32 = 32_767;
