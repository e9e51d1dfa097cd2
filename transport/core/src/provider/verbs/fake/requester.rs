// SPDX-License-Identifier: MIT OR Apache-2.0
//! Simulates the requester of reliable queue pairs: the calls of a process, and what its device does with the requests.
//! Requests are sent in order, may be sent again, and end in order when their responses have arrived.
//!
//! Data to send or write are read from memory whenever the request is sent; so the peer sees changes of the memory
//! before the request has ended, and the request fails if the memory was deregistered.

use super::super::port::{
    CallError, CqKind, PortEvent, QueuePairHandle, RemotePair, Sge, WorkBody, WorkOpcode,
    WorkRequest, WorkStatus,
};
use super::adapter::{FakeSource, ended};
use super::net::{FakeNetEvent, FakeNetState, NUMBER_MASK};
use super::pair::{
    FakeAnswer, FakeBody, FakeFault, FakePacket, FakePacketKind, FakePair, FakePairPeer,
    FakePairState,
};
use super::queue::{FakeCompletion, FakeSlotOwner};
use crate::mr::to_usize;

/// Calls of the process.
impl FakeNetState {
    pub(super) fn create(&mut self, port: u32) -> Result<QueuePairHandle, CallError> {
        let call = "ibv_create_qp";
        let most = u64::from(self.config.most_pairs);
        let adapter = self.port(port);
        adapter.alive(call)?;
        let is_refused = adapter.refused_creates > 0;
        adapter.refused_creates = adapter.refused_creates.saturating_sub(1);
        if is_refused || adapter.stats.pairs == most {
            let errno = libc::ENOMEM;
            return Err(CallError { call, errno });
        }
        adapter.stats.pairs += 1;
        let depth = adapter.facts.depth;
        let (id, number) = (self.new_serial(), self.new_number());
        self.numbers.insert(number, id);
        self.pairs.insert(id, FakePair::new(port, number, depth));
        Ok(QueuePairHandle { id, number })
    }

    pub(super) fn connect(
        &mut self,
        port: u32,
        pair: QueuePairHandle,
        known: FakeSource,
        to: &RemotePair,
    ) -> Result<(), CallError> {
        let call = "ibv_modify_qp";
        self.resolve(port, &known, &to.address, call)?;
        let firsts = (to.rq_psn | to.sq_psn) & !NUMBER_MASK;
        let packet_bytes = self.port(port).facts.packet_bytes;
        let packet_bytes = packet_bytes.min(to.address.packet_bytes);
        let pair = self.pair(port, pair);
        if pair.state != FakePairState::Fresh || firsts != 0 {
            self.port(port).stats.wrong += 1;
            let errno = libc::EINVAL;
            return Err(CallError { call, errno });
        }
        pair.join(FakePairPeer {
            remote: *to,
            source: known,
            packet_bytes,
        });
        Ok(())
    }

    pub(super) fn fail(&mut self, port: u32, pair: QueuePairHandle) {
        if self.port(port).has_ended() {
            return;
        }
        let serial = pair.id;
        let pair = self.pair(port, pair);
        let was_broken = pair.state == FakePairState::Broken;
        if self.port(port).is_open() && !was_broken {
            self.make_broken(serial);
        }
    }

    pub(super) fn destroy(&mut self, port: u32, pair: QueuePairHandle) {
        if self.port(port).has_ended() {
            return;
        }
        self.pair(port, pair);
        self.pairs.remove(&pair.id);
        self.numbers.remove(&pair.number);
        let adapter = self.port(port);
        adapter.purge(pair.id, pair.number);
        adapter.stats.pairs -= 1;
    }

    pub(super) fn post(
        &mut self,
        port: u32,
        pair: QueuePairHandle,
        requests: &[WorkRequest<'_>],
    ) -> usize {
        let now = self.now;
        if self.port(port).has_ended() {
            return 0;
        }
        let state = self.pair(port, pair).state;
        let adapter = self.port(port);
        if !adapter.works(now) || requests.is_empty() {
            return 0;
        }
        adapter.stats.doorbells += 1;
        if state == FakePairState::Fresh {
            adapter.stats.wrong += 1;
            return 0;
        }
        let taken = requests
            .iter()
            .take_while(|request| self.post_one(port, pair.id, request))
            .count();
        match state {
            _ if taken == 0 => {}
            FakePairState::Broken => self.flush_later(pair.id),
            _ => self.leave_later(pair.id, DOORBELL_NS),
        }
        taken
    }

    /// Injects a message at one end of a queue pair for a test.
    pub(super) fn inject_message(&mut self, number: u32, bytes: &[u8]) -> bool {
        let serial = self.numbers.get(&number).copied();
        let Some((id, port)) = serial.and_then(|id| Some((id, self.pairs.get(&id)?.port))) else {
            return false;
        };
        let request = WorkRequest {
            work: u64::MAX,
            operation: WorkOpcode::Send,
            body: WorkBody::Inline(bytes),
            signaled: false,
        };
        self.post(port, QueuePairHandle { id, number }, &[request]) == 1
    }

    fn post_one(&mut self, port: u32, serial: u32, request: &WorkRequest<'_>) -> bool {
        let adapter = &mut self.ports[port as usize];
        let Some(pair) = self.pairs.get_mut(&serial) else {
            return false;
        };
        if !is_possible(&adapter.facts, request) {
            adapter.stats.wrong += 1;
            return false;
        }
        let Some(slot) = pair.slots.take() else {
            adapter.stats.full += 1;
            return false;
        };
        adapter.stats.work_requests += 1;
        adapter.stats.signaled += u64::from(request.signaled);
        adapter.stats.wrong += u64::from(is_unaligned(&request.operation));
        let body = match request.body {
            WorkBody::Inline(bytes) => FakeBody::Inline(bytes.into()),
            WorkBody::Piece(piece) => FakeBody::Piece(piece),
        };
        pair.push(request, body, slot);
        true
    }

    /// A queue pair by its handle.
    ///
    /// # Panics
    /// If the port has no such queue pair: it was destroyed, or belongs to another port.
    fn pair(&mut self, port: u32, name: QueuePairHandle) -> &mut FakePair {
        let pair = self.pairs.get_mut(&name.id);
        let pair = pair.filter(|pair| (pair.port, pair.number) == (port, name.number));
        pair.unwrap_or_else(|| panic!("port {port} has no {name:?}"))
    }
}

/// Processing of local requests by the device.
impl FakeNetState {
    fn leave_later(&mut self, serial: u32, after: u64) {
        let time = self.now + after;
        if let Some(pair) = self.pairs.get_mut(&serial)
            && !pair.leave_is_due
        {
            pair.leave_is_due = true;
            self.schedule(time, FakeNetEvent::Leave { serial });
        }
    }

    /// Sends the next request.
    pub(super) fn leave(&mut self, serial: u32) {
        let Some(pair) = self.pairs.get_mut(&serial) else {
            return;
        };
        pair.leave_is_due = false;
        let adapter = &self.ports[pair.port as usize];
        if pair.state != FakePairState::Ready || pair.forgets || !adapter.is_open() {
            return;
        }
        if let Some(rest) = pair
            .quiet_until
            .checked_sub(self.now)
            .filter(|rest| *rest > 0)
        {
            return self.leave_later(serial, rest);
        }
        let Some((work, is_oldest)) = pair.next_to_leave(adapter.facts.reads) else {
            return;
        };
        let fault = pair.fault.filter(|fault| !fault.carried_out);
        let gathered = match &work.body {
            _ if fault.is_some() => None,
            FakeBody::Inline(bytes) => Some(bytes.to_vec()),
            FakeBody::Piece(piece) if work.returns_data() => {
                adapter.regions.allows(*piece, true).then(Vec::new)
            }
            FakeBody::Piece(piece) => adapter.regions.load(*piece),
        };
        let Some(bytes) = gathered else {
            // A local error is reported only when all requests posted earlier have ended.
            if is_oldest {
                let status = fault.map(|fault| fault.status);
                self.break_as_planned(serial, status.unwrap_or(WorkStatus::LocalProtection));
            }
            return;
        };
        let (psn, gap) = (work.psn, 1 + u64::from(work.bytes()) / BYTES_PER_NS);
        let kind = FakePacketKind::Request {
            operation: work.operation,
            bytes,
            wanted: work.bytes(),
            packets: work.packets(),
        };
        pair.has_left();
        let has_more = pair.has_more();
        self.send(serial, psn, kind);
        self.wait_for_answer(serial, false);
        self.inject_random_fault(serial);
        if has_more {
            self.leave_later(serial, gap);
        }
    }

    /// Plans a fault for the next request of a queue pair at random.
    fn inject_random_fault(&mut self, serial: u32) {
        if !self.random.chance(self.config.break_permille) {
            return;
        }
        let fault = FakeFault {
            status: WorkStatus::RetryExceeded,
            carried_out: self.random.chance(500),
        };
        if let Some(pair) = self.pairs.get_mut(&serial) {
            pair.fault.get_or_insert(fault);
        }
    }

    /// Puts a packet on the wire.
    pub(super) fn send(&mut self, serial: u32, psn: u32, kind: FakePacketKind) {
        let Some((from, joined)) = self
            .pairs
            .get(&serial)
            .and_then(|pair| Some((pair.port, pair.joined?)))
        else {
            return;
        };
        let adapter = &mut self.ports[from as usize];
        let longest = joined.packet_bytes.min(kind.bytes());
        let is_carried = self.config.carries(longest.into());
        let leaves = adapter.carries() && adapter.is_still(&joined.source) && is_carried;
        if !leaves || self.random.chance(self.config.pair_loss_permille) {
            adapter.stats.packets_lost += 1;
            return;
        }
        let arrival = self.now + self.delay();
        let Some(pair) = self.pairs.get_mut(&serial) else {
            return;
        };
        pair.last_arrival = arrival.max(pair.last_arrival + 1);
        let arrival = pair.last_arrival;
        let packet = FakePacket {
            from,
            source: joined.source,
            to: joined.remote.address,
            number: joined.remote.number,
            psn,
            kind,
        };
        self.schedule(arrival, FakeNetEvent::Packet(Box::new(packet)));
    }

    /// Sets the answer timer if it is not set; with `anew`, sets it again. Clears it if nothing is in flight.
    fn wait_for_answer(&mut self, serial: u32, anew: bool) {
        let Some(pair) = self.pairs.get_mut(&serial) else {
            return;
        };
        let deadline = self.now + pair.answer_ns(self.config.answer_ns);
        if !pair.has_in_flight() {
            return pair.set_deadline(None);
        }
        if anew || pair.deadline().is_none() {
            pair.set_deadline(Some(deadline));
        }
        if !pair.timer_is_set {
            pair.timer_is_set = true;
            self.schedule(deadline, FakeNetEvent::Timer { serial });
        }
    }

    pub(super) fn time_out(&mut self, serial: u32) {
        let now = self.now;
        let Some(pair) = self.pairs.get_mut(&serial) else {
            return;
        };
        pair.timer_is_set = false;
        if pair.forgets {
            return;
        }
        if pair.deadline().is_none_or(|deadline| deadline > now) {
            return self.wait_for_answer(serial, false);
        }
        pair.retries += 1;
        if pair.retries > RETRIES {
            return self.break_with(serial, WorkStatus::RetryExceeded);
        }
        let port = pair.port;
        pair.go_back();
        pair.set_deadline(None);
        self.port(port).stats.repeats += 1;
        self.leave_later(serial, 0);
    }

    /// Handles the response to the request with this packet sequence number; the requests before it have been carried
    /// out.
    pub(super) fn answered(&mut self, serial: u32, psn: u32, answer: FakeAnswer) {
        let pair = self.pairs.get(&serial).filter(|pair| !pair.forgets);
        let before = pair.and_then(|pair| pair.before(psn));
        let Some(before) = before else {
            return;
        };
        if let Some(pair) = self.pairs.get_mut(&serial) {
            pair.retries = 0;
        }
        for _ in 0..before {
            let oldest = self.pairs.get(&serial).and_then(FakePair::oldest);
            if oldest.is_none_or(|work| work.returns_data()) {
                // A read or an atomic needs a response of its own, which was lost.
                return self.retransmit_all(serial);
            }
            if !self.end_well(serial, &[]) {
                return;
            }
        }
        match answer {
            FakeAnswer::Done(bytes) => {
                if self.end_well(serial, &bytes) {
                    self.go_on(serial);
                }
            }
            FakeAnswer::Again => self.retransmit_all(serial),
            FakeAnswer::NotReady => self.wait_until_ready(serial),
            FakeAnswer::Refused(status) => self.break_with(serial, status),
        }
    }

    fn go_on(&mut self, serial: u32) {
        self.wait_for_answer(serial, true);
        self.leave_later(serial, 0);
    }

    fn retransmit_all(&mut self, serial: u32) {
        if let Some(pair) = self.pairs.get(&serial) {
            self.ports[pair.port as usize].stats.repeats += 1;
        }
        self.again(serial);
    }

    fn again(&mut self, serial: u32) {
        if let Some(pair) = self.pairs.get_mut(&serial) {
            pair.go_back();
        }
        self.go_on(serial);
    }

    fn wait_until_ready(&mut self, serial: u32) {
        let until = self.now + self.config.not_ready_ns;
        let Some(pair) = self.pairs.get_mut(&serial) else {
            return;
        };
        pair.waits += 1;
        if pair.waits > WAITS {
            return self.break_with(serial, WorkStatus::NotReady);
        }
        pair.quiet_until = until;
        self.again(serial);
    }

    /// Completes the oldest request, which was carried out. `false`: its end broke the queue pair.
    fn end_well(&mut self, serial: u32, bytes: &[u8]) -> bool {
        let Some(pair) = self.pairs.get_mut(&serial) else {
            return false;
        };
        let Some(work) = pair.oldest() else {
            return false;
        };
        let fault = pair.fault.filter(|fault| fault.carried_out);
        let adapter = &mut self.ports[pair.port as usize];
        let permille = self.config.empty_read_permille;
        if permille != 0
            && matches!(work.operation, WorkOpcode::Read { .. })
            && self.random.chance(permille)
        {
            adapter.stats.empty_reads += 1;
            self.break_with(serial, WorkStatus::Success);
            return false;
        }
        let fits = match (&work.body, work.returns_data()) {
            (FakeBody::Piece(piece), true) => adapter.regions.store(*piece, bytes),
            _ => true,
        };
        let failed = fault.map(|fault| fault.status);
        if let Some(status) = failed.or_else(|| (!fits).then_some(WorkStatus::LocalProtection)) {
            self.break_as_planned(serial, status);
            return false;
        }
        let bytes = u64::from(work.bytes());
        let stats = &mut adapter.stats;
        let mut words = 0;
        let (count, sum) = match work.operation {
            WorkOpcode::Send => (&mut stats.messages, &mut stats.message_bytes),
            WorkOpcode::Write { .. } => (&mut stats.writes, &mut stats.write_bytes),
            WorkOpcode::Read { .. } => (&mut stats.reads, &mut stats.read_bytes),
            _ => (&mut stats.atomics, &mut words),
        };
        *count += 1;
        *sum += bytes;
        pair.waits = 0;
        self.end_oldest(serial, WorkStatus::Success);
        true
    }

    /// Ends the oldest request.
    fn end_oldest(&mut self, serial: u32, status: WorkStatus) {
        let Some(pair) = self.pairs.get_mut(&serial) else {
            return;
        };
        let (port, number) = (pair.port, pair.number);
        let Some(work) = pair.end_oldest() else {
            return;
        };
        if !work.signaled && status == WorkStatus::Success {
            return;
        }
        let slot = work.slot;
        let entry = FakeCompletion {
            done: ended(work.work, number, status),
            owner: FakeSlotOwner::Pair { serial, slot },
        };
        self.port(port).complete(CqKind::Sends, entry);
    }

    /// Breaks the queue pair at its oldest request.
    fn break_with(&mut self, serial: u32, status: WorkStatus) {
        self.make_broken(serial);
        self.end_oldest(serial, status);
    }

    /// Breaks the queue pair at its oldest request because of a planned fault. A status that only the peer's device can
    /// cause breaks the peer's end too.
    fn break_as_planned(&mut self, serial: u32, status: WorkStatus) {
        self.break_with(serial, status);
        if !matches!(
            status,
            WorkStatus::RemoteAccess | WorkStatus::RemoteInvalid | WorkStatus::RemoteOperation
        ) {
            return;
        }
        let (remote, own) = match self.pairs.get(&serial) {
            Some(pair) => (pair.joined.map(|joined| joined.remote.number), pair.number),
            None => return,
        };
        let other = remote.and_then(|remote| self.numbers.get(&remote)).copied();
        let joined = other.and_then(|other| self.pairs[&other].joined);
        if joined.is_some_and(|joined| joined.remote.number == own) {
            other
                .into_iter()
                .for_each(|other| self.break_silently(other));
        }
    }

    /// Breaks the queue pair because of a peer's request. An event reports that; there is no completion for it.
    pub(super) fn break_silently(&mut self, serial: u32) {
        let Some(pair) = self.pairs.get(&serial) else {
            return;
        };
        if pair.state == FakePairState::Ready {
            let event = PortEvent::QueuePairLost(pair.number);
            let port = pair.port;
            self.port(port).events.push_back(event);
            self.make_broken(serial);
        }
    }

    fn make_broken(&mut self, serial: u32) {
        let Some(pair) = self.pairs.get_mut(&serial) else {
            return;
        };
        pair.state = FakePairState::Broken;
        pair.set_deadline(None);
        let port = pair.port;
        self.port(port).stats.broken += 1;
        self.flush_later(serial);
    }

    fn flush_later(&mut self, serial: u32) {
        let time = self.now + self.delay();
        if let Some(pair) = self.pairs.get_mut(&serial)
            && !pair.flush_is_due
        {
            pair.flush_is_due = true;
            self.schedule(time, FakeNetEvent::Flush { serial });
        }
    }

    /// Flushes all requests of a broken queue pair.
    pub(super) fn flush(&mut self, serial: u32) {
        let Some(pair) = self.pairs.get_mut(&serial) else {
            return;
        };
        pair.flush_is_due = false;
        if !self.ports[pair.port as usize].is_open() {
            return;
        }
        while self.pairs.get(&serial).is_some_and(|pair| !pair.is_idle()) {
            self.end_oldest(serial, WorkStatus::Flushed);
        }
    }
}

/// Whether any device accepts this request.
fn is_possible(facts: &super::super::port::PortAttr, request: &WorkRequest<'_>) -> bool {
    let atomic = matches!(
        request.operation,
        WorkOpcode::FetchAdd { .. } | WorkOpcode::CompareSwap { .. }
    );
    let returns_data = atomic || matches!(request.operation, WorkOpcode::Read { .. });
    if returns_data && facts.reads == 0 {
        return false;
    }
    match request.body {
        WorkBody::Inline(bytes) => {
            !returns_data && bytes.len() <= to_usize(u64::from(facts.inline_bytes))
        }
        WorkBody::Piece(Sge { bytes, .. }) if atomic => facts.atomics && bytes == 8,
        WorkBody::Piece(Sge { bytes, .. }) => u64::from(bytes) <= facts.message_bytes,
    }
}

/// Whether the operation is an atomic at an unaligned address; only the peer's device detects that.
fn is_unaligned(operation: &WorkOpcode) -> bool {
    match operation {
        WorkOpcode::FetchAdd { address, .. } | WorkOpcode::CompareSwap { address, .. } => {
            !address.is_multiple_of(8)
        }
        _ => false,
    }
}

/// Time from a post until the device processes it.
pub(super) const DOORBELL_NS: u64 = 100;
/// Rate of sending.
const BYTES_PER_NS: u64 = 10;
/// Retransmissions after timeouts: `retry_cnt`.
pub(super) const RETRIES: u8 = 7;
/// Retransmissions after RNR NAKs: `rnr_retry`.
pub(super) const WAITS: u8 = 6;
