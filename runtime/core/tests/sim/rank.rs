// SPDX-License-Identifier: MIT OR Apache-2.0
//! One rank. It carries out its script with blocking and nonblocking calls, as the C layer would.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;

use corosensei::Yielder;
use runtime::{
    Awaits, CollectiveCall, Comm, Error, MessageStatus, Mode, ReceiveSource, RequestId,
    RequestKind, RequestState, SendMode, SendTarget, Universe, Visit, collective,
};

use crate::collectives;
use crate::log::{End, Log, Received, name};
use crate::memory::Buffer;
use crate::plan::{Ending, Plan, ReceiveHow, Script, SendHow, Step};
use crate::random::{Random, content};

/// A rank's process, and the probability that other ranks get turns before a visit.
#[derive(Debug)]
pub struct Seat {
    pub universe: RefCell<Universe>,
    random: RefCell<Random>,
    /// Percentage of visits before which other ranks get turns.
    interruptions: u64,
    /// Number of events of this rank. If this number does not change at any rank, the job makes no progress.
    pub done: Cell<u64>,
}

impl Seat {
    /// A seat before whose visits other ranks get no turns.
    pub fn undisturbed(universe: Universe) -> Self {
        Self {
            interruptions: 0,
            ..Self::new(universe, 0)
        }
    }

    pub fn new(universe: Universe, seed: u64) -> Self {
        let mut random = Random(seed);
        Self {
            universe: RefCell::new(universe),
            interruptions: random.pick(&[0, 5, 30]),
            random: RefCell::new(random),
            done: Cell::new(0),
        }
    }
}

/// Access to a seat for the rank that uses it. Other ranks may get turns before a visit, and they get turns whenever
/// this rank waits.
#[derive(Clone, Copy)]
pub struct Hand<'a> {
    seat: &'a Seat,
    yielder: &'a Yielder<(), ()>,
}

impl<'a> Hand<'a> {
    pub fn new(seat: &'a Seat, yielder: &'a Yielder<(), ()>) -> Self {
        Self { seat, yielder }
    }
}

impl Visit for Hand<'_> {
    fn visit<R>(self, visit: impl FnOnce(&mut Universe) -> R) -> R {
        let interrupted = self
            .seat
            .random
            .borrow_mut()
            .percent(self.seat.interruptions);
        if interrupted {
            self.yielder.suspend(());
        }
        visit(&mut self.seat.universe.borrow_mut())
    }

    /// Returns `true`, so a wait calls [`run_unlocked`](Visit::run_unlocked) between two turns. There other ranks get a
    /// turn, and this rank does not sleep.
    fn is_shared(self) -> bool {
        true
    }

    fn run_unlocked(self, _: impl FnOnce()) {
        self.yielder.suspend(());
    }
}

/// State shared by all ranks of a job.
#[derive(Debug)]
pub struct Shared {
    pub plan: Plan,
    pub seats: Vec<Seat>,
    pub logs: RefCell<Vec<Log>>,
    /// For each phase, the number of ranks that have entered its collective.
    pub entered: RefCell<HashMap<usize, u32>>,
}

/// A running rank.
pub struct Rank<'a> {
    hand: Hand<'a>,
    shared: &'a Shared,
    me: u32,
    comms: Vec<Comm>,
    open: Vec<Open>,
    later: Vec<Open>,
    log: Log,
    persistent_sends: HashMap<usize, (RequestId, Buffer)>,
    persistent_receives: HashMap<usize, (RequestId, Option<Buffer>)>,
    random: Random,
}

/// A request that is not collected yet.
struct Open {
    request: RequestId,
    kind: OpenKind,
}

enum OpenKind {
    Send(Option<Buffer>),
    PersistentSend,
    /// Index of the receive in the log.
    Receive(usize),
    /// Template, and index of the receive in the log.
    PersistentReceive(usize, usize),
    Exchange(Option<Buffer>, usize),
    Flush,
}

impl<'a> Rank<'a> {
    /// Runs the whole program of rank `me`.
    pub fn run(shared: &Rc<Shared>, me: u32, yielder: &Yielder<(), ()>) {
        let seat = &shared.seats[me as usize];
        let mut rank = Rank {
            hand: Hand { seat, yielder },
            shared,
            me,
            comms: Vec::new(),
            open: Vec::new(),
            later: Vec::new(),
            log: Log::default(),
            persistent_sends: HashMap::new(),
            persistent_receives: HashMap::new(),
            random: Random(shared.plan.seed ^ u64::from(me) << 50),
        };
        rank.make_communicators();
        for (number, phase) in shared.plan.phases.iter().enumerate() {
            rank.phase(number, &phase.scripts[me as usize]);
        }
        rank.end();
        shared.logs.borrow_mut()[me as usize] = rank.log;
    }

    fn make_communicators(&mut self) {
        for comm in &self.shared.plan.comms {
            let peers = comm.members.iter().copied().map(runtime::Peer).collect();
            let group = runtime::Group::of(peers);
            let rank = group.rank_of(runtime::Peer(self.me)).unwrap_or(0);
            let context = runtime::ContextId(comm.context);
            let mut comm = Comm::new(context, group, rank);
            self.hand.visit(|universe| universe.adopt(&mut comm));
            self.comms.push(comm);
        }
    }

    fn phase(&mut self, number: usize, script: &Script) {
        for step in &script.steps {
            self.seat_moves();
            match *step {
                Step::Send(message) => self.send(message),
                Step::Receive(receive) => self.receive(receive),
                Step::Exchange(send, receive) => self.exchange(send, receive),
                Step::Progress => {
                    self.hand.visit(Universe::progress);
                }
                Step::LostReceive(comm) => self.lost_receive(comm),
                Step::IdleProbe(comm) => {
                    let source = self.source(comm, None, Some(NOBODYS_TAG));
                    let found = self.hand.visit(|universe| {
                        universe.progress();
                        universe.messages.find_message(source)
                    });
                    assert_eq!(found, None, "a probe found a message that was not sent");
                }
                Step::Collective => {
                    collectives::run(self.hand, self.shared, number, &self.comms);
                }
            }
        }
        self.finish_phase(script.ending);
    }

    fn seat_moves(&self) {
        let done = &self.hand.seat.done;
        done.set(done.get() + 1);
    }

    fn send(&mut self, id: usize) {
        let message = &self.shared.plan.messages[id];
        if let SendHow::Persistent(template) = message.how {
            return self.persistent_send(id, template);
        }
        let bytes = content(name(&self.shared.plan, id), message.bytes);
        if message.how == SendHow::Owned {
            let target = self.target(id);
            let owned = bytes.into();
            let sent = |universe: &mut Universe| {
                universe.sending().send_owned(target, owned, Mode::Standard)
            };
            let request = self.hand.visit(sent).unwrap();
            self.note_send(id, request, None);
            return;
        }
        let mut buffer = Buffer::holding(bytes, message.shape);
        let request = self.start_send(id, &mut buffer);
        match (message.how, request) {
            (SendHow::Freed, request) => {
                if let Some(request) = request {
                    self.hand.visit(|universe| universe.free(request));
                }
                self.log.sent.push(id);
                self.log.kept.push(buffer);
            }
            (SendHow::Cancelled, Some(request)) if self.cancel(request) => {
                let request = self.start_send(id, &mut buffer);
                self.note_send(id, request, Some(buffer));
            }
            (SendHow::Cancelled, Some(_)) => self.note_send(id, None, Some(buffer)),
            (_, request) => self.note_send(id, request, Some(buffer)),
        }
    }

    fn start_send(&self, id: usize, buffer: &mut Buffer) -> Option<RequestId> {
        let target = self.target(id);
        let mode = match self.shared.plan.messages[id].how {
            SendHow::Buffered => SendMode::Buffered { buffer: 0 },
            SendHow::Synchronous => SendMode::Direct(Mode::Synchronous),
            _ => SendMode::Direct(Mode::Standard),
        };
        let data = buffer.lend_payload();
        let sent = |universe: &mut Universe| universe.sending().send_payload(target, &data, mode);
        self.hand.visit(sent).unwrap()
    }

    /// Records the start of a send. If `request` is `None`, the send is complete, and its buffer is overwritten
    /// immediately.
    fn note_send(&mut self, id: usize, request: Option<RequestId>, buffer: Option<Buffer>) {
        self.log.sent.push(id);
        match request {
            None => self.reuse(buffer),
            Some(request) => self.open.push(Open {
                request,
                kind: OpenKind::Send(buffer),
            }),
        }
    }

    /// Overwrites the buffer of a complete send, so that the test detects it if the library still reads the buffer.
    fn reuse(&mut self, buffer: Option<Buffer>) {
        if let Some(mut buffer) = buffer {
            buffer.fill(&vec![0x55; buffer.bytes as usize]);
            self.log.kept.push(buffer);
        }
    }

    /// Cancels an operation and waits for its end (MPI 5.0 section 3.8.4). Returns whether it was cancelled.
    fn cancel(&self, request: RequestId) -> bool {
        self.hand.visit(|universe| universe.cancel(request));
        self.hand.wait_for(request);
        let status = self.hand.visit(|universe| universe.collect(request));
        assert!(status.error.is_none());
        status.cancelled
    }

    fn persistent_send(&mut self, id: usize, at: usize) {
        let plan = &self.shared.plan;
        let bytes = content(name(plan, id), plan.messages[id].bytes);
        let (request, mut buffer) = match self.persistent_sends.remove(&at) {
            Some(known) => known,
            None => self.prepare_send(id, at),
        };
        buffer.fill(bytes);
        self.hand
            .visit(
                |universe| match universe.messages.engine().arena().fields(request).kind {
                    RequestKind::Send => {
                        universe.sending().restart_send(request);
                        Ok(())
                    }
                    _ => universe.restart_other(request),
                },
            )
            .unwrap();
        self.persistent_sends.insert(at, (request, buffer));
        self.log.sent.push(id);
        self.open.push(Open {
            request,
            kind: OpenKind::PersistentSend,
        });
    }

    fn prepare_send(&self, id: usize, at: usize) -> (RequestId, Buffer) {
        let template = &self.shared.plan.templates[at];
        let mode = match (template.buffered, template.synchronous) {
            (true, _) => SendMode::Buffered { buffer: 0 },
            (false, true) => SendMode::Direct(Mode::Synchronous),
            (false, false) => SendMode::Direct(Mode::Standard),
        };
        let mut buffer = Buffer::empty(template.bytes, template.shapes[0]);
        let (target, data) = (self.target(id), buffer.lend_payload());
        let made =
            |universe: &mut Universe| universe.messages.prepare_payload(Some(target), data, mode);
        (self.hand.visit(made).unwrap(), buffer)
    }

    fn receive(&mut self, id: usize) {
        let plan = &self.shared.plan;
        let receive = &plan.receives[id];
        match receive.how {
            ReceiveHow::Posted => {
                let (request, place) = self.post(id);
                self.note_receive(request, place);
            }
            ReceiveHow::First => self.receive_first(id),
            ReceiveHow::Freed => {
                let (request, place) = self.post(id);
                self.hand.visit(|universe| universe.free(request));
                self.log.received[place].end = End::Freed;
            }
            ReceiveHow::Cancelled => self.cancelled_receive(id),
            ReceiveHow::Probed | ReceiveHow::Claimed => self.found_receive(id),
            ReceiveHow::Persistent(template) => self.persistent_receive(id, template),
        }
    }

    /// Posts a receive and records it in the log. Returns its request and its index in the log.
    fn post(&mut self, id: usize) -> (RequestId, usize) {
        let receive = &self.shared.plan.receives[id];
        let source = self.source(receive.comm, receive.source, receive.tag);
        let mut buffer = Buffer::empty(receive.room, receive.shape);
        let structured = receive.shape.block != receive.shape.stride;
        let posted = |universe: &mut Universe| match structured {
            true => universe
                .messages
                .receive_structured(source, buffer.lend_structured()),
            false => universe.messages.receive(source, buffer.lend()),
        };
        let request = self.hand.visit(posted).unwrap();
        self.log.received.push(Received::new(receive, Some(buffer)));
        (request, self.log.received.len() - 1)
    }

    fn note_receive(&mut self, request: RequestId, place: usize) {
        self.open.push(Open {
            request,
            kind: OpenKind::Receive(place),
        });
    }

    fn receive_first(&mut self, id: usize) {
        let receive = &self.shared.plan.receives[id];
        let (Some(peer), Some(tag)) = (receive.source, receive.tag) else {
            unreachable!("only exact receives are planned so");
        };
        let target = SendTarget {
            context: self.comms[receive.comm].context,
            peer: runtime::Peer(peer),
            tag,
        };
        let mut buffer = Buffer::empty(receive.room, receive.shape);
        let memory = buffer.lend();
        let posted = |universe: &mut Universe| {
            let token = universe.messages.receive_first(target, memory, 0)?;
            universe.messages.find_request(token)
        };
        let (request, place) = match self.hand.visit(posted) {
            None => self.post(id),
            Some(request) => {
                self.log.received.push(Received::new(receive, Some(buffer)));
                (request, self.log.received.len() - 1)
            }
        };
        self.note_receive(request, place);
    }

    fn cancelled_receive(&mut self, id: usize) {
        let (request, place) = self.post(id);
        if self.random.percent(50) {
            self.hand.visit(Universe::progress);
        }
        self.hand.visit(|universe| universe.cancel(request));
        self.hand.wait_for(request);
        self.collect_receive(request, place);
        if self.log.received[place].end == End::Cancelled {
            let (request, place) = self.post(id);
            self.note_receive(request, place);
        }
    }

    fn found_receive(&mut self, id: usize) {
        let receive = &self.shared.plan.receives[id];
        let source = self.source(receive.comm, receive.source, receive.tag);
        let mut found = None;
        self.hand.wait_until(Awaits::Other, |universe| {
            found = universe.messages.find_message(source);
            found.is_some()
        });
        let mut found = found.unwrap();
        let mut buffer = Buffer::empty(receive.room, receive.shape);
        let structured = receive.shape.block != receive.shape.stride;
        let claimed = receive.how == ReceiveHow::Claimed;
        let exact = self.source(receive.comm, Some(found.peer.0), Some(found.tag));
        if claimed {
            // Probe and claim are made in one visit, so no other rank gets a turn between them.
            let claim = |universe: &mut Universe| {
                let found = universe.messages.find_message(source)?;
                universe.messages.claim(found);
                Some(found)
            };
            found = self.hand.visit(claim).expect("found a moment ago");
        }
        let posted = |universe: &mut Universe| match (claimed, structured) {
            (true, true) => universe
                .messages
                .receive_claimed_structured(found.message, buffer.lend_structured()),
            (true, false) => universe
                .messages
                .receive_claimed(found.message, buffer.lend()),
            (false, true) => universe
                .messages
                .receive_structured(exact, buffer.lend_structured()),
            (false, false) => universe.messages.receive(exact, buffer.lend()),
        };
        let request = self.hand.visit(posted).unwrap();
        let mut received = Received::new(receive, Some(buffer));
        received.found = Some((found.peer.0, found.tag, found.bytes));
        self.log.received.push(received);
        self.note_receive(request, self.log.received.len() - 1);
    }

    fn persistent_receive(&mut self, id: usize, at: usize) {
        let receive = &self.shared.plan.receives[id];
        let source = self.source(receive.comm, receive.source, receive.tag);
        let known = self.persistent_receives.entry(at);
        let (request, _) = known.or_insert_with(|| {
            let mut buffer = Buffer::empty(receive.room, receive.shape);
            let structured = receive.shape.block != receive.shape.stride;
            let made = |universe: &mut Universe| match structured {
                true => universe
                    .messages
                    .prepare_receive_structured(source, buffer.lend_structured()),
                false => universe.messages.prepare_receive(source, buffer.lend()),
            };
            (self.hand.visit(made).unwrap(), Some(buffer))
        });
        let request = *request;
        self.hand
            .visit(|universe| universe.messages.restart_receive(request));
        self.log.received.push(Received::new(receive, None));
        self.open.push(Open {
            request,
            kind: OpenKind::PersistentReceive(at, self.log.received.len() - 1),
        });
    }

    fn exchange(&mut self, send: usize, receive: usize) {
        let plan = &self.shared.plan;
        let (posted, place) = self.post(receive);
        let message = &plan.messages[send];
        let bytes = content(name(plan, send), message.bytes);
        let mut buffer = Buffer::holding(bytes, message.shape);
        let sent = self.start_send(send, &mut buffer);
        self.log.sent.push(send);
        let parts = [Some(posted), sent].into_iter().flatten().collect();
        let bundled = |universe: &mut Universe| universe.messages.bundle(parts, Some(posted));
        let request = self.hand.visit(bundled).unwrap();
        let kind = OpenKind::Exchange(Some(buffer), place);
        self.open.push(Open { request, kind });
    }

    fn lost_receive(&self, comm: usize) {
        let source = self.source(comm, None, Some(NOBODYS_TAG));
        let mut buffer = Buffer::empty(8, crate::memory::Shape::DENSE);
        let memory = buffer.lend();
        let posted = |universe: &mut Universe| universe.messages.receive(source, memory);
        let request = self.hand.visit(posted).unwrap();
        assert!(
            self.cancel(request),
            "a receive of nothing was not cancelled"
        );
        assert!(buffer.is_clean());
    }

    fn finish_phase(&mut self, ending: Ending) {
        if ending == Ending::Later {
            let is_persistent = |open: &Open| {
                matches!(
                    open.kind,
                    OpenKind::PersistentSend | OpenKind::PersistentReceive(..)
                )
            };
            let (now, later): (Vec<_>, Vec<_>) = std::mem::take(&mut self.open)
                .into_iter()
                .partition(is_persistent);
            self.open = now;
            self.later.extend(later);
        }
        self.finish(ending);
    }

    fn finish(&mut self, ending: Ending) {
        match ending {
            Ending::InOrder | Ending::Later => {
                for open in std::mem::take(&mut self.open) {
                    self.hand.wait_for(open.request);
                    self.collect(open);
                }
            }
            Ending::All => {
                let open = std::mem::take(&mut self.open);
                let done = |universe: &mut Universe| {
                    open.iter()
                        .all(|open| universe.messages.is_complete(open.request))
                };
                self.hand.wait_until(Awaits::Other, done);
                open.into_iter().for_each(|open| self.collect(open));
            }
            Ending::Any | Ending::Poll => {
                while !self.open.is_empty() {
                    let at = self.one_done(ending == Ending::Poll);
                    if let Some(at) = at {
                        let open = self.open.swap_remove(at);
                        self.collect(open);
                    }
                }
            }
        }
    }

    fn one_done(&self, poll: bool) -> Option<usize> {
        let first = |universe: &mut Universe| {
            let mut open = self.open.iter();
            open.position(|open| universe.messages.is_complete(open.request))
        };
        if poll {
            self.hand.visit(Universe::progress);
            let found = self.hand.visit(first);
            if found.is_none() {
                self.hand.run_unlocked(|| ());
            }
            return found;
        }
        let mut found = None;
        self.hand.wait_until(Awaits::Other, |universe| {
            found = first(universe);
            found.is_some()
        });
        found
    }

    fn collect(&mut self, open: Open) {
        self.seat_moves();
        match open.kind {
            OpenKind::Send(buffer) => {
                self.collect_send(open.request);
                self.reuse(buffer);
            }
            OpenKind::PersistentSend | OpenKind::Flush => self.collect_send(open.request),
            OpenKind::Receive(place) => self.collect_receive(open.request, place),
            OpenKind::Exchange(buffer, place) => {
                self.collect_receive(open.request, place);
                self.reuse(buffer);
            }
            OpenKind::PersistentReceive(template, place) => {
                self.collect_receive(open.request, place);
                self.take_persistent(template, place);
            }
        }
    }

    /// Copies the contents of a persistent receive's buffer to the log, and clears that buffer.
    fn take_persistent(&mut self, template: usize, place: usize) {
        let (_, buffer) = self.persistent_receives.get_mut(&template).unwrap();
        let buffer = buffer.as_mut().unwrap();
        let received = &mut self.log.received[place];
        received.buffer = Some(Buffer::holding(
            &buffer.content(),
            crate::memory::Shape::DENSE,
        ));
        assert!(buffer.is_clean(), "bytes outside a persistent receive");
        buffer.fill(&vec![crate::memory::UNTOUCHED; buffer.bytes as usize]);
    }

    fn collect_send(&self, request: RequestId) {
        let status = self.hand.visit(|universe| universe.collect(request));
        assert!(status.error.is_none() && !status.cancelled, "{status:?}");
    }

    fn collect_receive(&mut self, request: RequestId, place: usize) {
        let status = self.hand.visit(|universe| universe.collect(request));
        self.log.received[place].end = end_of(&status);
    }

    fn end(&mut self) {
        self.open.append(&mut self.later);
        let flush = self
            .hand
            .visit(|universe| universe.messages.flush_request(0));
        self.open.push(Open {
            request: flush.unwrap(),
            kind: OpenKind::Flush,
        });
        self.finish(Ending::Any);
        let sends = self.persistent_sends.values().map(|(request, _)| *request);
        let receives = self.persistent_receives.values();
        let all: Vec<_> = sends.chain(receives.map(|(request, _)| *request)).collect();
        for request in all {
            self.hand.visit(|universe| {
                assert!(
                    universe.messages.engine().arena().fields(request).state
                        == RequestState::Inactive
                        && universe.messages.is_persistent(request)
                );
                universe.free(request);
            });
        }
        let held = self
            .hand
            .visit(|universe| universe.messages.buffered_bytes(0));
        assert_eq!(held, (0, 0), "buffered sends after their flush");
        self.finalize();
    }

    /// Does what `MPI_Finalize` does. After that this rank makes no progress.
    fn finalize(&self) {
        let world = &self.comms[0];
        self.hand
            .wait_until(Awaits::Other, |universe| universe.is_drained());
        let all = CollectiveCall::run(self.hand, world, async |call| {
            collective::barrier(call).await
        });
        all.unwrap();
        self.hand
            .wait_until(Awaits::Other, |universe| universe.is_drained());
        self.seat_moves();
    }

    fn source(&self, comm: usize, source: Option<u32>, tag: Option<i32>) -> ReceiveSource {
        ReceiveSource {
            context: self.comms[comm].context,
            peer: source.map(runtime::Peer),
            tag,
        }
    }

    fn target(&self, id: usize) -> SendTarget {
        let message = &self.shared.plan.messages[id];
        SendTarget {
            context: self.comms[message.comm].context,
            peer: runtime::Peer(message.to),
            tag: message.tag,
        }
    }
}

fn end_of(status: &MessageStatus) -> End {
    if status.cancelled {
        return End::Cancelled;
    }
    let truncated = match &status.error {
        None => None,
        Some(Error::Truncated { message_bytes, .. }) => Some(*message_bytes),
        Some(other) => panic!("a receive failed: {other}"),
    };
    End::Got {
        source: status.source.expect("a message has a source"),
        tag: status.tag,
        bytes: status.bytes,
        truncated,
    }
}

const NOBODYS_TAG: i32 = 9999;
