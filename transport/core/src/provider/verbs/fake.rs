// SPDX-License-Identifier: MIT OR Apache-2.0
//! A fake of devices and the network between them, in one process: for tests.
//!
//! It is as strict as hardware is, and says more: every request is checked against the regions that are registered when it
//! is carried out, work holds its slot until a completion of it or of later work was polled, whatever is lost, late or doubled
//! on the wire is so here, and [`FakeStats`] counts what a careful caller never does. Every fault can be had on demand, or by
//! chance. Time passes only when somebody calls [`FakeNet::advance`]. The same seed and the same calls give the same result.
//!
//! | file | what |
//! |---|---|
//! | `port.rs`     | what a process sees: the calls of `VerbsPort` |
//! | `net.rs`      | the clock, and who reaches whom |
//! | `adapter.rs`  | all that belongs to one port |
//! | `pair.rs`     | one end of a reliable queue pair |
//! | `requester.rs`, `responder.rs` | how its requests leave and end, and how those of others are carried out |
//! | `datagram.rs` | datagrams |
//! | `queue.rs`    | completion queues, slots |
//! | `memory.rs`   | registered memory |

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
mod tests;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::device::status_of;
use super::port::{CallError, PortEvent, WorkStatus};
use adapter::FakeAdapterState;
pub use config::{FakeConfig, FakeStats};
use net::{FakeNetEvent, FakeNetState};
use pair::{FakeFault, FakePair, FakePairState};
pub(crate) use port::FakePort;

/// A fake network. Clones are the same network; ports are opened on it and counted from 0 as they are.
#[derive(Clone, Debug)]
pub struct FakeNet(Arc<Mutex<FakeNetState>>);

/// Time, and what can be seen from outside.
impl FakeNet {
    /// A new network at time zero, without ports.
    #[must_use]
    pub fn new(config: FakeConfig) -> Self {
        Self(Arc::new(Mutex::new(FakeNetState::new(config))))
    }

    /// Moves the clock to the next event and lets it happen. `false`: nothing is under way, and nothing will happen
    /// until somebody posts.
    pub fn advance(&self) -> bool {
        self.lock().advance(u64::MAX)
    }

    /// The same if the event is not later than `time_ns`; else the clock comes to `time_ns` without one, and the answer is
    /// `false`.
    pub fn advance_until(&self, time_ns: u64) -> bool {
        let mut net = self.lock();
        let happens = net.advance(time_ns);
        if !happens {
            net.pass_to(time_ns);
        }
        happens
    }

    /// Lets time pass until something wakes a process that sleeps on the sign of a port, or so much time has passed; answers
    /// whether it is awake.
    pub fn sleep(&self, port: u32, limit_ns: u64) -> bool {
        let limit = self.now_ns().saturating_add(limit_ns);
        while !self.would_wake(port) && self.advance_until(limit) {}
        self.would_wake(port)
    }

    /// Simulated time.
    #[must_use]
    pub fn now_ns(&self) -> u64 {
        self.lock().now
    }

    /// What it does to packets, ports and processes.
    #[must_use]
    pub fn config(&self) -> FakeConfig {
        self.lock().config
    }

    /// Ports that have been opened, those that are gone included.
    #[must_use]
    pub fn ports(&self) -> u32 {
        u32::try_from(self.lock().ports.len()).expect("ports are few")
    }

    /// What a port did so far.
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

    /// Whether the process of a port runs; one that does not can neither post nor poll.
    #[must_use]
    pub fn is_running(&self, port: u32) -> bool {
        let mut net = self.lock();
        let now = net.now;
        net.port(port).runs(now)
    }

    /// Whether a port can carry anything.
    #[must_use]
    pub fn is_up(&self, port: u32) -> bool {
        self.lock().port(port).carries()
    }

    /// Whether the process of a port would be awake if it had slept on the signs of its ports since it took the last away.
    #[must_use]
    pub fn would_wake(&self, port: u32) -> bool {
        self.lock().would_wake(port)
    }

    /// The numbers of a port's reliable queue pairs that can send.
    #[must_use]
    pub fn pairs(&self, port: u32) -> Vec<u32> {
        let net = self.lock();
        let pairs = net.pairs.values();
        let ready = pairs.filter(|pair| pair.port == port && pair.state == FakePairState::Ready);
        ready.map(|pair| pair.number).collect()
    }

    /// The number of a port's reliable queue pair with another port, if it can send.
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
    /// The port loses its link: nothing comes or goes.
    pub fn port_down(&self, port: u32) {
        self.hold_down(port, true);
    }

    /// It is back.
    pub fn port_up(&self, port: u32) {
        self.hold_down(port, false);
    }

    fn hold_down(&self, port: u32, is_down: bool) {
        let mut net = self.lock();
        let adapter = net.port(port);
        adapter.is_held_down = is_down;
        adapter.follow_link();
    }

    /// The port's GID gets another place in its table. What was connected or opened from the old place reaches nobody.
    pub fn move_gid(&self, port: u32) {
        self.lock().move_gid(port);
    }

    /// The port gets another GID and LID; the old address is nobody's.
    pub fn readdress(&self, port: u32) {
        self.lock().readdress(port);
    }

    /// Packets of this port carry so many bytes; those of the others as many as before.
    pub fn set_packet_bytes(&self, port: u32, packet_bytes: u32) {
        self.lock().port(port).facts.packet_bytes = packet_bytes;
    }

    /// The port carries no more than this when it comes up next.
    pub fn set_rate(&self, port: u32, rate_mbps: u32) {
        self.lock().port(port).facts.rate_mbps = rate_mbps;
    }

    /// The device is lost: calls fail, nothing comes, nothing completes.
    pub fn lose_device(&self, port: u32) {
        self.lock().end_port(port, FakeAdapterState::Lost);
    }

    /// The shared receive queue is lost: messages stay without an answer.
    pub fn lose_shared_queue(&self, port: u32) {
        let mut net = self.lock();
        let adapter = net.port(port);
        adapter.shared.is_lost = true;
        adapter.events.push_back(PortEvent::SharedQueueLost);
    }

    /// The process of the port dies without a word; its memory is touched no more.
    pub fn vanish(&self, port: u32) {
        self.lock().bury(port);
    }

    /// The process of the port is off its processor for so long: it neither posts nor polls.
    pub fn pause(&self, port: u32, time_ns: u64) {
        let mut net = self.lock();
        let until = net.now.saturating_add(time_ns);
        net.port(port).paused_until = until;
        net.schedule(until, FakeNetEvent::Return);
    }

    /// The next datagrams that the port sends are lost.
    pub fn drop_datagrams(&self, port: u32, count: u32) {
        self.lock().port(port).datagrams.doomed = count;
    }

    /// Nothing passes between two ports.
    pub fn cut(&self, one: u32, other: u32) {
        self.lock().set_cut(one, other, true);
    }

    /// It passes again.
    pub fn mend(&self, one: u32, other: u32) {
        self.lock().set_cut(one, other, false);
    }

    /// The next work of the reliable queue pair of this number ends as if the other side had not answered, and breaks it; the
    /// other side has carried it out, or not.
    pub fn break_pair(&self, number: u32, carried_out: bool) {
        self.kill_pair(number, WorkStatus::RetryExceeded, carried_out);
    }

    /// The same with any status, a number of `enum ibv_wc_status`.
    pub fn break_pair_as(&self, number: u32, status: u32, carried_out: bool) {
        self.kill_pair(number, status_of(status), carried_out);
    }

    /// The device forgets what is posted to the reliable queue pair of this number: until that is broken, nothing leaves and
    /// nothing is told.
    pub fn forget_pair(&self, number: u32) {
        let mut net = self.lock();
        let serial = net.numbers.get(&number).copied();
        if let Some(pair) = serial.and_then(|serial| net.pairs.get_mut(&serial)) {
            pair.forgets = true;
        }
    }

    /// A datagram arrives at a port that claims to be from queue pair `source` of another port, with any Q_Key.
    pub fn inject_datagram(&self, from: u32, source: u32, to: u32, q_key: u32, bytes: &[u8]) {
        self.lock().inject_datagram(from, source, to, q_key, bytes);
    }

    /// The process of the other end sends any bytes over the reliable queue pair of this number; `false`: it has no room.
    pub fn inject_message(&self, number: u32, bytes: &[u8]) -> bool {
        self.lock().inject_message(number, bytes)
    }

    /// The number of a port's queue pair for datagrams, and the Q_Key that it wants.
    #[must_use]
    pub fn datagrams_at(&self, port: u32) -> (u32, u32) {
        let mut net = self.lock();
        let adapter = net.port(port);
        (adapter.datagrams.number, adapter.q_key)
    }

    /// Whether the process of a port sleeps: it fell asleep and nothing has woken it yet.
    #[must_use]
    pub fn is_asleep(&self, port: u32) -> bool {
        self.lock().is_asleep(port)
    }

    /// The same with any status.
    pub(crate) fn kill_pair(&self, number: u32, status: WorkStatus, carried_out: bool) {
        let mut net = self.lock();
        let serial = net.numbers.get(&number).copied();
        let pair = serial.and_then(|serial| net.pairs.get_mut(&serial));
        pair.expect("a reliable queue pair of this number").fault = Some(FakeFault {
            status,
            carried_out,
        });
    }

    /// Completions of the queue pair of this number are held back until [`let_go`](Self::let_go).
    pub fn hold(&self, port: u32, number: u32) {
        self.lock().port(port).hold(number);
    }

    /// They come.
    pub fn let_go(&self, port: u32, number: u32) {
        self.lock().port(port).let_go(number);
    }

    /// The port can make no reliable queue pair, so many times.
    pub fn fail_creates(&self, port: u32, count: u32) {
        self.lock().port(port).refused_creates = count;
    }

    /// It can register no memory, so many times.
    pub fn fail_registers(&self, port: u32, count: u32) {
        self.lock().port(port).refused_registers = count;
    }

    fn lock(&self) -> MutexGuard<'_, FakeNetState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl FakeNetState {
    /// Whether a port may register so much more.
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
