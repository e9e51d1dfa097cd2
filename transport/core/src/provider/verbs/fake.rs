// SPDX-License-Identifier: MIT OR Apache-2.0
//! Simulated devices and the network between them, in one process: for tests.
//!
//! The simulation is as strict as hardware, and checks more: every request is validated against the registered regions
//! when it is carried out, a work request holds its slot until its own completion or that of a later request was
//! polled, packets may be lost, delayed or duplicated, and [`FakeStats`] also counts errors of the caller. Every fault
//! can be injected on demand, or at random. Time advances only with [`FakeNet::advance`]. The same seed and the same
//! calls give the same result.
//!
//! | file           | what |
//! |----------------|--------------------------------------------------------------|
//! | `port.rs`      | the calls of `VerbsPort` |
//! | `net.rs`       | the clock, the events, and which ports reach each other |
//! | `adapter.rs`   | the state of one port |
//! | `pair.rs`      | one end of a reliable queue pair |
//! | `requester.rs` | how a device sends and completes the requests of its process |
//! | `responder.rs` | how a device carries out the requests of peers |
//! | `datagram.rs`  | datagrams |
//! | `queue.rs`     | completion queues, and slots of work queues |
//! | `memory.rs`    | registered memory |

mod adapter;
mod config;
mod datagram;
mod memory;
mod net;
mod pair;
mod port;
mod queue;
mod requester;
mod responder;
#[cfg(test)]
pub(super) mod tests;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::device::status_of;
use super::port::{CallError, PortEvent, WorkStatus};
use adapter::FakeAdapterState;
pub use config::{FakeConfig, FakeStats};
use net::{FakeNetEvent, FakeNetState};
use pair::{FakeFault, FakePair, FakePairState};
pub(crate) use port::FakePort;

/// A simulated network. Clones refer to the same network. Ports are numbered from 0 in the order in which they are
/// opened.
#[derive(Clone, Debug)]
pub struct FakeNet(Arc<Mutex<FakeNetState>>);

/// Time, and the observable state.
impl FakeNet {
    /// A new network at time zero, without ports.
    #[must_use]
    pub fn new(config: FakeConfig) -> Self {
        Self(Arc::new(Mutex::new(FakeNetState::new(config))))
    }

    /// Advances the clock to the next event and processes it. `false`: there is no event; nothing will happen until a
    /// process posts.
    pub fn advance(&self) -> bool {
        self.lock().advance(u64::MAX)
    }

    /// Processes the next event if it is not later than `time_ns`; otherwise advances the clock to `time_ns` and
    /// returns `false`.
    pub fn advance_until(&self, time_ns: u64) -> bool {
        let mut net = self.lock();
        let happens = net.advance(time_ns);
        if !happens {
            net.pass_to(time_ns);
        }
        happens
    }

    /// Advances time until a completion event or an asynchronous event wakes the process of a port, at most by
    /// `limit_ns`; returns whether the process was woken.
    pub fn sleep(&self, port: u32, limit_ns: u64) -> bool {
        let limit = self.now_ns().saturating_add(limit_ns);
        while !self.would_wake(port) && self.advance_until(limit) {}
        self.would_wake(port)
    }

    /// The simulated time.
    #[must_use]
    pub fn now_ns(&self) -> u64 {
        self.lock().now
    }

    /// The configuration.
    #[must_use]
    pub fn config(&self) -> FakeConfig {
        self.lock().config
    }

    /// Number of ports ever opened.
    #[must_use]
    pub fn ports(&self) -> u32 {
        u32::try_from(self.lock().ports.len()).expect("ports are few")
    }

    /// Counters of a port.
    #[must_use]
    pub fn stats(&self, port: u32) -> FakeStats {
        let mut net = self.lock();
        let adapter = net.port(port);
        FakeStats {
            regions: adapter.regions.len() as u64,
            region_bytes: adapter.regions.bytes(),
            ..adapter.stats
        }
    }

    /// Whether the process of a port is running; otherwise it can neither post nor poll.
    #[must_use]
    pub fn is_running(&self, port: u32) -> bool {
        let mut net = self.lock();
        let now = net.now;
        net.port(port).runs(now)
    }

    /// Whether a port can carry packets.
    #[must_use]
    pub fn is_up(&self, port: u32) -> bool {
        self.lock().port(port).carries()
    }

    /// Whether a port of this port's process has an event that the process has not acknowledged: a process that sleeps
    /// on the events of its ports is woken then.
    #[must_use]
    pub fn would_wake(&self, port: u32) -> bool {
        self.lock().would_wake(port)
    }

    /// The numbers of a port's reliable queue pairs that are in the Ready to Send state.
    #[must_use]
    pub fn pairs(&self, port: u32) -> Vec<u32> {
        let net = self.lock();
        let pairs = net.pairs.values();
        let ready = pairs.filter(|pair| pair.port == port && pair.state == FakePairState::Ready);
        ready.map(|pair| pair.number).collect()
    }

    /// The number of a port's reliable queue pair with another port, if it is in the Ready to Send state.
    #[must_use]
    pub fn pair_between(&self, port: u32, other: u32) -> Option<u32> {
        let net = self.lock();
        let is_of_other = |pair: &&FakePair| {
            let far = pair.joined.map(|joined| joined.remote.number);
            let far = far.and_then(|far| net.numbers.get(&far));
            far.is_some_and(|far| net.pairs[far].port == other)
        };
        let pairs = net.pairs.values();
        let mut ready =
            pairs.filter(|pair| pair.port == port && pair.state == FakePairState::Ready);
        ready.find(is_of_other).map(|pair| pair.number)
    }
}

/// Faults on demand.
impl FakeNet {
    /// Takes the link of a port down: the port neither sends nor receives.
    pub fn port_down(&self, port: u32) {
        self.hold_down(port, true);
    }

    /// Brings the link of a port up again.
    pub fn port_up(&self, port: u32) {
        self.hold_down(port, false);
    }

    fn hold_down(&self, port: u32, is_down: bool) {
        let mut net = self.lock();
        let adapter = net.port(port);
        adapter.is_held_down = is_down;
        adapter.follow_link();
    }

    /// Moves the port's GID to another table index. Queue pairs and address handles with the old index reach no peer.
    pub fn move_gid(&self, port: u32) {
        self.lock().move_gid(port);
    }

    /// Gives the port another GID and LID; no port has the old address any more.
    pub fn readdress(&self, port: u32) {
        self.lock().readdress(port);
    }

    /// Sets the MTU of this port, in bytes; other ports are unchanged.
    pub fn set_packet_bytes(&self, port: u32, packet_bytes: u32) {
        self.lock().port(port).facts.packet_bytes = packet_bytes;
    }

    /// Sets the rate of the port; it takes effect when the port comes up next.
    pub fn set_rate(&self, port: u32, rate_mbps: u32) {
        self.lock().port(port).facts.rate_mbps = rate_mbps;
    }

    /// Loses the device: calls fail, nothing arrives, nothing completes.
    pub fn lose_device(&self, port: u32) {
        self.lock().end_port(port, FakeAdapterState::Lost);
    }

    /// Loses the shared receive queue: messages to the port get no response.
    pub fn lose_shared_queue(&self, port: u32) {
        let mut net = self.lock();
        let adapter = net.port(port);
        adapter.shared.is_lost = true;
        adapter.events.push_back(PortEvent::SharedQueueLost);
    }

    /// Kills the process of the port without notice; its memory is not accessed any more.
    pub fn vanish(&self, port: u32) {
        self.lock().end_process(port);
    }

    /// Suspends the process of the port for `time_ns`: it neither posts nor polls.
    pub fn pause(&self, port: u32, time_ns: u64) {
        let mut net = self.lock();
        let until = net.now.saturating_add(time_ns);
        net.port(port).paused_until = until;
        net.schedule(until, FakeNetEvent::Return);
    }

    /// Drops the next `count` datagrams that the port sends.
    pub fn drop_datagrams(&self, port: u32, count: u32) {
        self.lock().port(port).datagrams.doomed = count;
    }

    /// Drops all packets between two ports.
    pub fn cut(&self, one: u32, other: u32) {
        self.lock().set_cut(one, other, true);
    }

    /// Ends [`cut`](Self::cut).
    pub fn mend(&self, one: u32, other: u32) {
        self.lock().set_cut(one, other, false);
    }

    /// Fails the next work request of the reliable queue pair with this number as if the retries were exhausted, which
    /// breaks the queue pair. `carried_out`: the peer carries the request out first.
    pub fn break_pair(&self, number: u32, carried_out: bool) {
        self.kill_pair(number, WorkStatus::RetryExceeded, carried_out);
    }

    /// Fails the next work request as [`break_pair`](Self::break_pair) does, but with the status `status`, a value of
    /// `enum ibv_wc_status`.
    pub fn break_pair_as(&self, number: u32, status: u32, carried_out: bool) {
        self.kill_pair(number, status_of(status), carried_out);
    }

    /// Makes the device lose the requests of the reliable queue pair with this number: until the queue pair is broken,
    /// nothing is sent and nothing completes.
    pub fn forget_pair(&self, number: u32) {
        let mut net = self.lock();
        let serial = net.numbers.get(&number).copied();
        if let Some(pair) = serial.and_then(|serial| net.pairs.get_mut(&serial)) {
            pair.forgets = true;
        }
    }

    /// Sends a datagram to a port with a forged source, queue pair `source` of port `from`, and any Q_Key.
    pub fn inject_datagram(&self, from: u32, source: u32, to: u32, q_key: u32, bytes: &[u8]) {
        self.lock().inject_datagram(from, source, to, q_key, bytes);
    }

    /// Sends any bytes over the reliable queue pair with this number; `false`: its send queue is full.
    pub fn inject_message(&self, number: u32, bytes: &[u8]) -> bool {
        self.lock().inject_message(number, bytes)
    }

    /// The number of a port's datagram queue pair, and its Q_Key.
    #[must_use]
    pub fn datagrams_at(&self, port: u32) -> (u32, u32) {
        let mut net = self.lock();
        let adapter = net.port(port);
        (adapter.datagrams.number, adapter.q_key)
    }

    /// Whether the process of a port sleeps, and nothing has woken it yet.
    #[must_use]
    pub fn is_asleep(&self, port: u32) -> bool {
        self.lock().is_asleep(port)
    }

    /// Fails the next work request as [`break_pair`](Self::break_pair) does, but with any status of the provider.
    pub(crate) fn kill_pair(&self, number: u32, status: WorkStatus, carried_out: bool) {
        let mut net = self.lock();
        let serial = net.numbers.get(&number).copied();
        let pair = serial.and_then(|serial| net.pairs.get_mut(&serial));
        pair.expect("a reliable queue pair of this number").fault = Some(FakeFault {
            status,
            carried_out,
        });
    }

    /// Holds back the completions of the queue pair with this number until [`let_go`](Self::let_go).
    pub fn hold(&self, port: u32, number: u32) {
        self.lock().port(port).hold(number);
    }

    /// Delivers the completions that were held back, and ends [`hold`](Self::hold).
    pub fn let_go(&self, port: u32, number: u32) {
        self.lock().port(port).release_held(number);
    }

    /// Makes the next `count` creations of reliable queue pairs fail.
    pub fn fail_creates(&self, port: u32, count: u32) {
        self.lock().port(port).refused_creates = count;
    }

    /// Makes the next `count` registrations fail.
    pub fn fail_registers(&self, port: u32, count: u32) {
        self.lock().port(port).refused_registers = count;
    }

    fn lock(&self) -> MutexGuard<'_, FakeNetState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl FakeNetState {
    /// Checks that a port may register `bytes` more bytes.
    fn may_register(&mut self, port: u32, bytes: u64) -> Result<(), CallError> {
        let call = "ibv_reg_mr";
        let most = self.config.most_memory_bytes;
        let adapter = self.port(port);
        adapter.alive(call)?;
        let is_refused = adapter.refused_registers > 0;
        adapter.refused_registers = adapter.refused_registers.saturating_sub(1);
        let all = adapter.regions.bytes().saturating_add(bytes);
        let errno = match () {
            () if bytes == 0 => libc::EINVAL,
            () if is_refused || all > most => libc::ENOMEM,
            () => return Ok(()),
        };
        Err(CallError { call, errno })
    }
}
