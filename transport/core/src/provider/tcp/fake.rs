// SPDX-License-Identifier: MIT OR Apache-2.0
//! A network of TCP streams that exists only in tests. Everything that a real network may do is drawn from a seed:
//! bytes come in arbitrary pieces and late, calls take fewer bytes than they could, connections are refused, or break
//! and lose what was in flight, and addresses lead to other processes. Time passes only in calls of `advance` and
//! `pass`.

#![allow(
    clippy::cast_possible_truncation,
    reason = "for tests; its sizes are small"
)]

use std::collections::VecDeque;
use std::io::{self, ErrorKind};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::super::sim::SimRandom;
use super::memory::MemoryRange;
use super::sockets::{Sock, SockEvent, Sockets};
use crate::wait_set::WaitSet;

/// Faults and limits of a fake network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamsConfig {
    /// Seed of all random choices.
    pub seed: u64,
    /// Number of processes.
    pub ranks: u32,
    /// Number of calls on a connection, of 100,000, that break it.
    pub breaks: u64,
    /// Number of connections, of 100, that are refused.
    pub refusals: u64,
    /// Longest delay of bytes.
    pub most_delay_ns: u64,
    /// Maximum number of bytes that one call moves.
    pub most_bytes: usize,
    /// Maximum number of connections that a process may have open.
    pub most_open: usize,
    /// Number of interfaces of each process, at most 200. Packets leave by the interface that has the same number as
    /// the interface that they go to.
    pub interfaces: u32,
}

impl StreamsConfig {
    /// A network whose faults are drawn from the seed; seed 0 has none.
    #[must_use]
    pub fn of(seed: u64, ranks: u32) -> Self {
        let mut random = SimRandom::new(seed ^ 0x7c9_5eed);
        let calm = Self {
            seed,
            ranks,
            breaks: 0,
            refusals: 0,
            most_delay_ns: 1_000,
            most_bytes: 1 << 20,
            most_open: usize::MAX,
            interfaces: 1,
        };
        if seed == 0 {
            return calm;
        }
        let most_bytes = [400, 1500, 70_000, 1 << 20][random.below(4) as usize];
        let breaks = [0, 10, 100, 1000][random.below(4) as usize];
        Self {
            // Limited so that the largest packet gets through now and then.
            breaks: breaks.min(most_bytes as u64 / 24),
            refusals: [0, 20, 60][random.below(3) as usize],
            most_delay_ns: 1 + random.below(100_000),
            most_bytes,
            most_open: [usize::MAX, usize::MAX, usize::MAX, 6][random.below(4) as usize],
            ..calm
        }
    }
}

/// Bytes in flight to one end, each with its time of arrival.
#[derive(Debug, Default)]
struct FakeByteQueue {
    pieces: VecDeque<(u64, Vec<u8>)>,
    bytes: usize,
    /// Bytes held back until more follow.
    held: Vec<u8>,
}

impl FakeByteQueue {
    /// Accepts bytes. `more`: the bytes leave with those that follow; else they leave now.
    fn send(&mut self, at_ns: u64, bytes: Vec<u8>, more: bool) {
        self.held.extend(bytes);
        if !more {
            let all = std::mem::take(&mut self.held);
            self.push(at_ns, all);
        }
    }

    fn push(&mut self, at_ns: u64, bytes: Vec<u8>) {
        let last_ns = self.pieces.back().map_or(0, |(at_ns, _)| *at_ns);
        self.bytes += bytes.len();
        if !bytes.is_empty() {
            self.pieces.push_back((at_ns.max(last_ns), bytes));
        }
    }

    /// Number of bytes that have arrived.
    fn here(&self, now_ns: u64) -> usize {
        let here = self.pieces.iter().take_while(|(at_ns, _)| *at_ns <= now_ns);
        here.map(|(_, bytes)| bytes.len()).sum()
    }

    fn take(&mut self, count: usize) -> Vec<u8> {
        let mut taken = Vec::with_capacity(count);
        while let Some((_, bytes)) = self.pieces.front_mut().filter(|_| taken.len() < count) {
            let share = bytes.len().min(count - taken.len());
            taken.extend(bytes.drain(..share));
            if bytes.is_empty() {
                self.pieces.pop_front();
            }
        }
        self.bytes -= taken.len();
        taken
    }
}

/// A network. Clones share it.
#[derive(Clone, Debug)]
pub struct FakeStreams(Arc<Mutex<FakeStreamNet>>);

/// The fake network of streams: all processes and connections, in simulated time.
#[derive(Debug)]
struct FakeStreamNet {
    config: StreamsConfig,
    random: SimRandom,
    now_ns: u64,
    processes: Vec<FakeProcess>,
    connections: Vec<FakeConnection>,
    broken: u64,
    /// For each interface number, since when the network between the interfaces with that number is cut; `None`: it is
    /// not cut.
    cut: Vec<Option<u64>>,
}

/// A process on the fake network. `listener`: the connections in its accept queue, each with the time of its arrival.
#[derive(Debug, Default)]
struct FakeProcess {
    /// The connection and the end that a sock stands for.
    socks: Vec<Option<FakeSock>>,
    listener: VecDeque<(u64, usize)>,
    is_shut: bool,
    /// Whether everything sent to the process is silently lost.
    is_cut_off: bool,
    has_ended: bool,
    /// `peak`: maximum number of connections that the process had open at a time. `event_polls`: how often it has
    /// polled for events.
    peak: usize,
    event_polls: u64,
    /// When the process wakes up without an event, and whether that sleep is so long that no timer can have set it.
    sleep: Option<(u64, bool)>,
    overslept: u64,
}

/// One end of a connection, as a process holds it. `wants`: whether the process waits until the end is writable.
#[derive(Clone, Copy, Debug)]
struct FakeSock {
    connection: usize,
    end: usize,
    wants: bool,
}

/// A connection between two processes.
#[derive(Debug, Default)]
struct FakeConnection {
    interface: u32,
    /// The process that has made the connection, and its peer.
    between: [u32; 2],
    ready_ns: u64,
    is_refused: bool,
    is_broken: bool,
    /// `ends`: bytes in flight to each end. `closed`: whether each end was closed.
    ends: [FakeByteQueue; 2],
    closed: [bool; 2],
    received: u64,
}

impl FakeStreams {
    /// A new network at time zero.
    #[must_use]
    pub fn new(config: StreamsConfig) -> Self {
        let processes = (0..config.ranks).map(|_| FakeProcess::default()).collect();
        Self(Arc::new(Mutex::new(FakeStreamNet {
            config,
            random: SimRandom::new(config.seed),
            now_ns: 0,
            processes,
            connections: Vec::new(),
            broken: 0,
            cut: vec![None; config.interfaces as usize],
        })))
    }

    /// Cuts or restores the network between interfaces of this number; restoring it delivers what waited.
    pub fn cut(&self, interface: u32, is_cut: bool) {
        let mut net = self.lock();
        let now_ns = net.now_ns;
        net.cut[interface as usize] = is_cut.then_some(now_ns);
    }

    /// Breaks all connections between interfaces of this number.
    pub fn reset(&self, interface: u32) {
        let mut net = self.lock();
        let all = net.connections.iter_mut();
        all.filter(|connection| connection.interface == interface)
            .for_each(|connection| connection.is_broken = true);
    }

    /// Number of bytes received over connections between interfaces of this number.
    #[must_use]
    pub fn received(&self, interface: u32) -> u64 {
        let net = self.lock();
        let all = net.connections.iter();
        let all = all.filter(|connection| connection.interface == interface);
        all.map(|connection| connection.received).sum()
    }

    /// Lets up to 20 µs pass; how much is random.
    pub fn advance(&self) {
        let mut net = self.lock();
        let step_ns = 1 + net.random.below(20_000);
        net.now_ns += step_ns;
    }

    /// From now on all bytes to a process are lost.
    pub fn cut_off(&self, process: u32) {
        self.lock().processes[process as usize].is_cut_off = true;
    }

    /// Ends a process: its connections break, and new ones are refused.
    pub fn end(&self, process: u32) {
        let mut net = self.lock();
        net.processes[process as usize].has_ended = true;
        let all = net.connections.iter_mut();
        all.filter(|connection| connection.between.contains(&process))
            .for_each(|connection| connection.is_broken = true);
    }

    /// Lets `ns` nanoseconds pass.
    pub fn pass(&self, ns: u64) {
        self.lock().now_ns += ns;
    }

    /// Maximum number of connections that a process had open at a time.
    #[must_use]
    pub fn peak(&self, process: u32) -> usize {
        self.lock().processes[process as usize].peak
    }

    /// How often a process has polled for events.
    #[must_use]
    pub fn event_polls(&self, process: u32) -> u64 {
        self.lock().processes[process as usize].event_polls
    }

    /// Whether a process still sleeps: since it began to sleep no event has come for it, and its time is not over.
    #[must_use]
    pub fn is_asleep(&self, process: u32) -> bool {
        let net = self.lock();
        let sleep = net.processes[process as usize].sleep;
        sleep.is_some_and(|(until_ns, _)| net.now_ns < until_ns)
            && net.sock_events(process).is_empty()
    }

    /// How often a process has slept for half a minute or more without an event at the end: it has missed an event.
    #[must_use]
    pub fn overslept(&self, process: u32) -> u64 {
        self.lock().processes[process as usize].overslept
    }

    /// Number of connection attempts so far.
    #[must_use]
    pub fn connections(&self) -> usize {
        self.lock().connections.len()
    }

    /// Number of connections that broke.
    #[must_use]
    pub fn broken(&self) -> u64 {
        self.lock().broken
    }

    fn lock(&self) -> MutexGuard<'_, FakeStreamNet> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One process's endpoint.
#[derive(Debug)]
pub(in crate::provider) struct FakeSockets {
    net: FakeStreams,
    me: u32,
}

impl FakeSockets {
    pub(super) fn new(net: FakeStreams, me: u32) -> Self {
        Self { net, me }
    }

    /// The published addresses, with the numbers of interfaces.
    pub(super) fn interfaces(&self) -> Vec<(IpAddr, u32)> {
        let interfaces = self.net.lock().config.interfaces;
        let address = |interface| (address_of(interface, self.me), interface);
        (0..interfaces).map(address).collect()
    }

    /// The published addresses, preceded by one that leads to another process.
    pub(super) fn addresses(&self) -> Vec<IpAddr> {
        let me = u8::try_from(self.me).unwrap_or(u8::MAX);
        let wrong = Ipv4Addr::new(10, 0, 1, me).into();
        let right = self.interfaces().into_iter().map(|(address, _)| address);
        std::iter::once(wrong).chain(right).collect()
    }
}

fn address_of(interface: u32, process: u32) -> IpAddr {
    let low = |number| u8::try_from(number).unwrap_or(u8::MAX);
    Ipv4Addr::new(10, low(interface), 0, low(process)).into()
}

impl FakeProcess {
    fn open(&self) -> usize {
        self.socks.iter().flatten().count()
    }
}

impl FakeStreamNet {
    /// Fails if a process may have no further connection.
    fn find_descriptor(&self, me: u32) -> io::Result<()> {
        match self.processes[me as usize].open() < self.config.most_open {
            true => Ok(()),
            false => Err(io::Error::from_raw_os_error(libc::EMFILE)),
        }
    }

    fn held(&self, me: u32, sock: Sock) -> io::Result<FakeSock> {
        let held = self.processes[me as usize].socks.get(sock as usize);
        held.copied()
            .flatten()
            .ok_or_else(|| ErrorKind::NotConnected.into())
    }

    /// Allocates a sock for an end of a connection.
    fn keep(&mut self, me: u32, connection: usize, end: usize, wants: bool) -> Sock {
        let socks = &mut self.processes[me as usize].socks;
        let held = FakeSock {
            connection,
            end,
            wants,
        };
        let free = socks.iter().position(Option::is_none);
        let place = free.unwrap_or(socks.len());
        if place == socks.len() {
            socks.push(None);
        }
        socks[place] = Some(held);
        let process = &mut self.processes[me as usize];
        process.peak = process.peak.max(process.open());
        place as Sock
    }

    /// The connection, if it is usable. The seed may make it break in this call.
    fn usable(&mut self, held: FakeSock) -> io::Result<&mut FakeConnection> {
        let breaks = self.random.below(100_000) < self.config.breaks;
        let connection = &mut self.connections[held.connection];
        if connection.is_refused {
            return Err(ErrorKind::ConnectionRefused.into());
        }
        if breaks && !connection.is_broken && connection.ready_ns <= self.now_ns {
            connection.is_broken = true;
            self.broken += 1;
        }
        if connection.is_broken {
            return Err(ErrorKind::ConnectionReset.into());
        }
        Ok(connection)
    }

    /// Draws the number of bytes, at most `bytes`, that a call moves.
    fn share(&mut self, bytes: usize) -> usize {
        let most = bytes.min(self.config.most_bytes);
        if most == 0 || self.config.seed != 0 && self.random.below(8) == 0 {
            return 0;
        }
        match self.config.seed {
            0 => most,
            _ => 1 + self.random.below(most as u64) as usize,
        }
    }

    /// The present events of a process.
    fn sock_events(&self, me: u32) -> Vec<SockEvent> {
        let process = &self.processes[me as usize];
        let has_caller = process
            .listener
            .iter()
            .any(|(at_ns, _)| *at_ns <= self.now_ns);
        let listener = (has_caller && !process.is_shut).then_some(SockEvent::Incoming);
        let sign = |(sock, held): (usize, &Option<FakeSock>)| {
            let held = (*held)?;
            let connection = &self.connections[held.connection];
            let room = connection.ends[1 - held.end].bytes < WINDOW_BYTES;
            let reads = self.reads(held);
            let sends = held.wants && (reads || room && connection.ready_ns <= self.now_ns);
            let sock = sock as Sock;
            (reads || sends).then_some(SockEvent::On { sock, reads, sends })
        };
        let socks = process.socks.iter().enumerate().filter_map(sign);
        listener.into_iter().chain(socks).collect()
    }

    fn is_cut(&self, connection: &FakeConnection) -> bool {
        let cut = self.cut.get(connection.interface as usize);
        cut.is_some_and(Option::is_some)
    }

    fn reads(&self, held: FakeSock) -> bool {
        let connection = &self.connections[held.connection];
        if self.is_cut(connection) {
            return connection.is_broken;
        }
        let queue = &connection.ends[held.end];
        connection.is_broken
            || connection.is_refused
            || queue.here(self.now_ns) != 0
            || queue.bytes == 0 && connection.closed[held.end]
    }
}

impl Sockets for FakeSockets {
    fn connect(&mut self, to: SocketAddr) -> io::Result<Sock> {
        let mut net = self.net.lock();
        let IpAddr::V4(address) = to.ip() else {
            return Err(ErrorKind::AddrNotAvailable.into());
        };
        net.find_descriptor(self.me)?;
        let [_, interface, wrong, rank] = address.octets();
        let interface = u32::from(interface);
        let host = (u32::from(rank) + u32::from(wrong)) % net.config.ranks;
        let delay = net.config.most_delay_ns;
        let (one, other) = (net.random.below(delay), net.random.below(delay));
        let is_refused = net.random.below(100) < net.config.refusals;
        let is_cut_off = net.processes[host as usize].is_cut_off;
        let has_ended = net.processes[host as usize].has_ended;
        let is_refused = (is_refused || has_ended) && !is_cut_off;
        let is_cut = net.cut.get(interface as usize).copied().flatten().is_some();
        let is_cut_off = is_cut_off || is_cut || interface >= net.config.interfaces;
        let connection = FakeConnection {
            interface,
            between: [self.me, host],
            ready_ns: if is_cut_off {
                u64::MAX
            } else {
                net.now_ns + one
            },
            is_refused,
            ..FakeConnection::default()
        };
        net.connections.push(connection);
        let number = net.connections.len() - 1;
        if !is_refused && !is_cut_off {
            let at_ns = net.now_ns + one + other;
            net.processes[host as usize]
                .listener
                .push_back((at_ns, number));
        }
        Ok(net.keep(self.me, number, 0, true))
    }

    fn accept(&mut self) -> io::Result<Option<(Sock, SocketAddr)>> {
        let mut net = self.net.lock();
        let now_ns = net.now_ns;
        // The kernel allocates the descriptor first, even when no connection waits.
        net.find_descriptor(self.me)?;
        let listener = &mut net.processes[self.me as usize].listener;
        let Some(at) = listener.iter().position(|(at_ns, _)| *at_ns <= now_ns) else {
            return Ok(None);
        };
        let (_, number) = listener.remove(at).expect("it was just found");
        let sock = net.keep(self.me, number, 1, false);
        Ok(Some((sock, SocketAddr::from(([10, 9, 9, 9], 9)))))
    }

    fn ends(&self, sock: Sock) -> io::Result<(IpAddr, IpAddr)> {
        let net = self.net.lock();
        let held = net.held(self.me, sock)?;
        let connection = &net.connections[held.connection];
        let end = |end: usize| address_of(connection.interface, connection.between[end]);
        Ok((end(held.end), end(1 - held.end)))
    }

    fn leaves_from(&self, to: SocketAddr) -> io::Result<IpAddr> {
        match to.ip() {
            IpAddr::V4(address) => Ok(address_of(address.octets()[1].into(), self.me)),
            IpAddr::V6(_) => Err(ErrorKind::AddrNotAvailable.into()),
        }
    }

    fn send(
        &mut self,
        sock: Sock,
        bytes: &[u8],
        memory: Option<MemoryRange>,
        more: bool,
    ) -> io::Result<usize> {
        let mut net = self.net.lock();
        let held = net.held(self.me, sock)?;
        let (now_ns, delay) = (net.now_ns, net.config.most_delay_ns);
        let connection = net.usable(held)?;
        if connection.ready_ns > now_ns {
            return Ok(0);
        }
        let room = WINDOW_BYTES.saturating_sub(connection.ends[1 - held.end].bytes);
        let whole = bytes.len() + memory.map_or(0, MemoryRange::bytes);
        let count = net.share(whole.min(room));
        let late_ns = now_ns + net.random.below(delay);
        let mut all = bytes[..bytes.len().min(count)].to_vec();
        if let Some(memory) = memory {
            let from = all.len();
            all.resize(count, 0);
            memory.copy_to(&mut all[from..]);
        }
        net.connections[held.connection].ends[1 - held.end].send(late_ns, all, more);
        Ok(count)
    }

    fn push(&mut self, sock: Sock) {
        let mut net = self.net.lock();
        let (now_ns, delay) = (net.now_ns, net.config.most_delay_ns);
        let late_ns = now_ns + net.random.below(delay);
        if let Ok(held) = net.held(self.me, sock) {
            net.connections[held.connection].ends[1 - held.end].send(late_ns, Vec::new(), false);
        }
    }

    fn receive(
        &mut self,
        sock: Sock,
        memory: Option<MemoryRange>,
        bytes: &mut [u8],
    ) -> io::Result<usize> {
        let mut net = self.net.lock();
        let held = net.held(self.me, sock)?;
        let now_ns = net.now_ns;
        if net.is_cut(&net.connections[held.connection]) {
            return Ok(0);
        }
        let connection = net.usable(held)?;
        let queue = &connection.ends[held.end];
        if queue.bytes == 0 && connection.closed[held.end] {
            return Err(ErrorKind::UnexpectedEof.into());
        }
        let first = memory.map_or(0, MemoryRange::bytes);
        let here = queue.here(now_ns).min(first + bytes.len());
        let count = net.share(here);
        let got = net.connections[held.connection].ends[held.end].take(count);
        net.connections[held.connection].received += count as u64;
        let (to_memory, rest) = got.split_at(first.min(count));
        if let Some(memory) = memory {
            memory.fill(to_memory);
        }
        bytes[..rest.len()].copy_from_slice(rest);
        Ok(count)
    }

    fn close(&mut self, sock: Sock) {
        let mut net = self.net.lock();
        if let Ok(held) = net.held(self.me, sock) {
            net.processes[self.me as usize].socks[sock as usize] = None;
            let now_ns = net.now_ns;
            let connection = &mut net.connections[held.connection];
            connection.ends[1 - held.end].send(now_ns, Vec::new(), false);
            connection.closed[1 - held.end] = true;
        }
    }

    fn want_to_send(&mut self, sock: Sock, wants: bool) {
        let mut net = self.net.lock();
        if let Ok(held) = net.held(self.me, sock) {
            net.processes[self.me as usize].socks[sock as usize] = Some(FakeSock { wants, ..held });
        }
    }

    fn watch_listeners(&mut self, wants: bool) {
        self.net.lock().processes[self.me as usize].is_shut = !wants;
    }

    fn most_open(&self) -> usize {
        self.net.lock().config.most_open
    }

    fn is_cut_off(&mut self, sock: Sock, for_ms: u32) -> bool {
        let net = self.net.lock();
        let Ok(held) = net.held(self.me, sock) else {
            return false;
        };
        let connection = &net.connections[held.connection];
        let cut = net.cut.get(connection.interface as usize);
        let is_long = |since_ns: u64| net.now_ns - since_ns > u64::from(for_ms) * 1_000_000;
        let has_sent = connection.ends[1 - held.end].bytes != 0;
        has_sent && cut.copied().flatten().is_some_and(is_long)
    }

    fn poll_events(&mut self, sock_events: &mut Vec<SockEvent>) {
        let mut net = self.net.lock();
        sock_events.extend(net.sock_events(self.me));
        let now_ns = net.now_ns;
        let process = &mut net.processes[self.me as usize];
        process.event_polls += 1;
        let sleep = process.sleep.take();
        let is_over = sleep.is_some_and(|(until_ns, is_last)| is_last && now_ns >= until_ns);
        process.overslept += u64::from(is_over && sock_events.is_empty());
    }

    /// The process sleeps in the time of the network, which the test advances.
    fn fall_asleep(&self, waits: &mut WaitSet) {
        let mut net = self.net.lock();
        let (now_ns, longest) = (net.now_ns, waits.longest());
        let ns = u64::try_from(longest.as_nanos()).unwrap_or(u64::MAX);
        let sleep = (now_ns.saturating_add(ns), longest >= OVERSLEPT);
        net.processes[self.me as usize].sleep = Some(sleep);
    }

    fn clock_ns(&self) -> u64 {
        self.net.lock().now_ns
    }

    fn random(&mut self) -> u64 {
        let mut net = self.net.lock();
        net.random.below(u64::MAX)
    }
}

/// Maximum number of bytes in flight in one direction of a connection.
const WINDOW_BYTES: usize = 200_000;
/// No timer is set for so long a time: a process that has slept for this long should have been woken.
const OVERSLEPT: Duration = Duration::from_secs(30);
