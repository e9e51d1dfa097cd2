// SPDX-License-Identifier: MIT OR Apache-2.0
//! One end for the test: a session, and the streams that carry it. It does all that a provider over sockets does for a
//! peer.

use std::collections::VecDeque;

use session::{Ack, AckStall, PacketVerdict, Slot, Via};
use session::{
    CarrierNumbers, CarrierState, ConnectAction, Connection, LinkMessage, RecentFailures, Session,
    Silence, WindowProbe,
};

use crate::frames::{Content, Frame, Reader, Writer};
use crate::net::{Net, StreamClosed};

/// Longest body in bytes. Bodies longer than [`LARGE`] are lent when they are received.
pub(crate) const MOST_BODY: usize = 900;
pub(crate) const LARGE: usize = 300;

/// One of two ends.
#[derive(Debug)]
pub(crate) struct End {
    me: usize,
    pub(crate) session: Session,
    connection: Connection<usize>,
    /// The open streams, including foreign ones.
    opened: Vec<Opened>,
    /// Number of the carrier that is the connection's stream.
    carrier: u32,
    numbers: CarrierNumbers,
    /// Bodies of the kept packets, by slot.
    slots: Vec<Option<Vec<u8>>>,
    /// Delivered messages that were not taken.
    pub(crate) ready: VecDeque<Vec<u8>>,
    window_probe: WindowProbe,
    ack_request: bool,
    silence: Silence,
    ack_stall: AckStall,
    observed_ns: u64,
    failures: RecentFailures,
    /// The last acknowledgement that was sent. When a stream begins, a forgetful end sends this again instead of the
    /// current one, so the peer sends packets again that have arrived.
    last_ack: Ack,
    is_forgetful: bool,
    pub(crate) seen: Seen,
}

/// Counts of the events at an end.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Seen {
    pub(crate) joined: u32,
    /// Number of connected streams that broke.
    pub(crate) broken: u32,
    pub(crate) torn: u32,
    /// Number of streams that carried invalid data.
    pub(crate) refused: u32,
    /// Number of packets that were received twice.
    pub(crate) twice: u32,
    /// Number of streams that were closed because the peer did not reply to Connect or did not acknowledge.
    pub(crate) silent: u32,
    pub(crate) is_lost: bool,
}

#[derive(Debug)]
struct Opened {
    stream: usize,
    carrier: u32,
    since_ns: u64,
    reader: Reader,
    writer: Writer,
}

/// The stream carried data that no correct peer sends.
struct Refused;

impl End {
    pub(crate) fn new(me: usize, first: u32, is_forgetful: bool) -> Self {
        let session = Session::new(first);
        Self {
            last_ack: session.ack(),
            is_forgetful,
            session,
            me,
            connection: Connection::new(),
            opened: Vec::new(),
            carrier: 0,
            numbers: CarrierNumbers::default(),
            slots: Vec::new(),
            ready: VecDeque::new(),
            window_probe: WindowProbe::default(),
            ack_request: false,
            silence: Silence::default(),
            ack_stall: AckStall::default(),
            observed_ns: 0,
            failures: RecentFailures::default(),
            seen: Seen::default(),
        }
    }

    /// Number of kept packets.
    pub(crate) fn kept(&self) -> usize {
        self.slots.iter().flatten().count()
    }

    /// Number of open streams.
    pub(crate) fn open_streams(&self) -> usize {
        self.opened.len()
    }

    /// Posts a message. `false`: there is no room.
    pub(crate) fn post(&mut self, now_ns: u64, body: &[u8]) -> bool {
        let is_large = body.len() > LARGE;
        if self.session.room() == 0 || (is_large && !self.session.may_lend()) {
            self.ack_request |= self.window_probe.probe(now_ns);
            return false;
        }
        if is_large {
            self.session.lend();
        }
        let free = self.slots.iter().position(Option::is_none);
        let place = free.unwrap_or(self.slots.len());
        if place == self.slots.len() {
            self.slots.push(None);
        }
        self.slots[place] = Some(body.to_vec());
        self.session.keep(place as Slot, body.len() as u32);
        true
    }

    /// Returns a large message.
    pub(crate) fn give_back(&mut self) {
        if self.session.give_back() {
            self.session.force_ack();
        }
    }

    /// Makes all progress that is possible at `now_ns`.
    pub(crate) fn turn(&mut self, now_ns: u64, net: &mut Net) {
        if self.seen.is_lost {
            return;
        }
        while let Some(stream) = net.accepted(now_ns, self.me) {
            self.open(now_ns, stream);
        }
        for stream in self.streams() {
            self.read(now_ns, stream, net);
        }
        self.run_timers(now_ns, net);
        let needs_stream = self.session.has_unsent() || self.ack_request;
        if needs_stream && self.connection.may_connect(now_ns) {
            self.connect(now_ns, net);
        }
        self.send();
        for stream in self.streams() {
            self.write(now_ns, stream, net);
        }
    }

    fn streams(&self) -> Vec<usize> {
        self.opened.iter().map(|opened| opened.stream).collect()
    }

    fn place_of(&self, stream: usize) -> Option<usize> {
        let mut all = self.opened.iter();
        all.position(|opened| opened.stream == stream)
    }

    fn open(&mut self, now_ns: u64, stream: usize) -> &mut Opened {
        self.opened.push(Opened {
            stream,
            carrier: self.numbers.next(),
            since_ns: now_ns,
            reader: Reader::new(MOST_BODY),
            writer: Writer::new(),
        });
        self.opened.last_mut().expect("it was pushed")
    }

    /// Opens a stream and sends Connect.
    fn connect(&mut self, now_ns: u64, net: &mut Net) {
        let stream = net.dial(now_ns, self.me);
        let attempt = self.connection.connect(stream, now_ns);
        let again = self.seen.broken != 0;
        let (ack, end) = (self.first_ack(), ());
        let opened = self.open(now_ns, stream);
        opened.writer.link_message(
            ack,
            LinkMessage::Connect {
                attempt,
                end,
                again,
            },
        );
        self.carrier = opened.carrier;
    }

    /// The acknowledgement for the first frame of a stream.
    fn first_ack(&mut self) -> Ack {
        if self.is_forgetful {
            return self.last_ack;
        }
        self.last_ack = self.session.take_ack();
        self.last_ack
    }

    fn read(&mut self, now_ns: u64, stream: usize, net: &mut Net) {
        let Some(place) = self.place_of(stream) else {
            return;
        };
        let mut it = self.opened.swap_remove(place);
        loop {
            match net.read(now_ns, stream, self.me, it.reader.place()) {
                Ok(0) => return self.opened.push(it),
                Ok(count) => it.reader.filled(count),
                Err(StreamClosed) => {
                    self.seen.torn += u32::from(it.reader.is_torn());
                    self.over(now_ns, stream);
                    return net.close(now_ns, stream, self.me);
                }
            }
            loop {
                let received = match it.reader.next() {
                    Ok(None) => break,
                    Ok(Some(frame)) => {
                        self.receive(now_ns, (stream, it.carrier), &mut it.writer, frame, net)
                    }
                    Err(_) => Err(Refused),
                };
                if received.is_err() {
                    self.seen.refused += 1;
                    self.over(now_ns, stream);
                    return net.close(now_ns, stream, self.me);
                }
            }
        }
    }

    /// Handles the end of a stream. If the connection used this stream, the connection ends, and another stream is
    /// opened later.
    fn over(&mut self, now_ns: u64, stream: usize) {
        if self.connection.end() != Some(stream) {
            return;
        }
        self.failures.record(now_ns);
        if let CarrierState::Connecting { .. } = self.connection.state() {
            let doublings = self.failures.count(now_ns).min(MOST_DOUBLINGS);
            let pause_ns = PAUSE_NS << doublings;
            return self.connection.retry_after(now_ns + pause_ns);
        }
        self.seen.broken += 1;
        self.connection.disconnected();
        self.session.carrier_broke(self.carrier);
    }

    /// Closes a stream at this end.
    fn leave(&mut self, now_ns: u64, stream: usize, net: &mut Net) {
        self.over(now_ns, stream);
        self.opened.retain(|opened| opened.stream != stream);
        net.close(now_ns, stream, self.me);
    }

    fn receive(
        &mut self,
        now_ns: u64,
        (stream, carrier): (usize, u32),
        writer: &mut Writer,
        frame: Frame<'_>,
        net: &mut Net,
    ) -> Result<(), Refused> {
        if let Content::Link(message @ (LinkMessage::Connect { .. } | LinkMessage::Accept { .. })) =
            frame.content
        {
            self.handle_message(now_ns, (stream, carrier), writer, message, net)?;
        }
        if self.connection.usable() != Some(stream) {
            return Err(Refused);
        }
        self.silence.end();
        let slots = &mut self.slots;
        let free = |slot: Slot| slots[slot as usize] = None;
        self.session.acknowledge(frame.ack, now_ns, free);
        match frame.content {
            Content::Link(LinkMessage::Ack { ack_request: true }) => self.session.force_ack(),
            Content::Link(_) => {}
            Content::Packet { number, body } => match self.session.accept(number, 0, false) {
                PacketVerdict::Deliver => self.ready.push_back(body.to_vec()),
                PacketVerdict::Duplicate => {
                    self.seen.twice += 1;
                    self.session.force_ack();
                }
                // A stream preserves order, so these come from no correct peer.
                PacketVerdict::Held | PacketVerdict::Early | PacketVerdict::Invalid => {
                    return Err(Refused);
                }
            },
        }
        Ok(())
    }

    /// Handles a link message that establishes the connection.
    fn handle_message(
        &mut self,
        now_ns: u64,
        (stream, carrier): (usize, u32),
        writer: &mut Writer,
        message: LinkMessage<()>,
        net: &mut Net,
    ) -> Result<(), Refused> {
        match (self.connection.receive(message, self.me == 0), message) {
            (ConnectAction::Accept { end, .. }, LinkMessage::Connect { attempt, .. }) => {
                if let Some(old) = self.connection.end() {
                    self.leave(now_ns, old, net);
                }
                self.carrier = carrier;
                self.connection.accepted(attempt, stream, now_ns);
                writer.link_message(self.first_ack(), LinkMessage::Accept { attempt, end });
                // A stream is connected from the beginning, so Ready is not needed.
                self.connection.connected(stream, false);
            }
            (ConnectAction::Connect { .. }, _) if self.connection.end() == Some(stream) => {
                self.connection.connected(stream, true);
            }
            _ => return Err(Refused),
        }
        self.seen.joined += 1;
        Ok(())
    }

    fn run_timers(&mut self, now_ns: u64, net: &mut Net) {
        let overdue = self.connection.timeout(now_ns);
        if overdue.is_some_and(|overdue| overdue.tries >= MOST_TRIES)
            && let CarrierState::Connecting { end } = self.connection.state()
        {
            self.leave(now_ns, end, net);
            self.seen.silent += 1;
            if self.silence.extend(now_ns) > MOST_SILENCE_NS {
                return self.lose(now_ns, net);
            }
        }
        for stream in self.streams() {
            let is_foreign = self.connection.end() != Some(stream);
            let opened = self.place_of(stream).map(|place| &self.opened[place]);
            if is_foreign && opened.is_some_and(|it| now_ns > it.since_ns + FOREIGN_TIMEOUT_NS) {
                self.leave(now_ns, stream, net);
            }
        }
        let is_probed = self.window_probe.is_blocked(&self.session)
            && self.window_probe.deadline_ns(now_ns) <= Some(now_ns);
        self.ack_request |= is_probed && self.window_probe.probe(now_ns);
        if now_ns >= self.observed_ns + OBSERVE_NS {
            self.observed_ns = now_ns;
            self.observe_acks(now_ns, net);
        }
    }

    /// Observes whether the peer acknowledges. If it does not, it is sent a request; later the stream is closed as
    /// dead.
    fn observe_acks(&mut self, now_ns: u64, net: &mut Net) {
        let Some(stream) = self.connection.usable() else {
            return;
        };
        let oldest = self.session.oldest_unacknowledged();
        match self.ack_stall.observe(oldest) {
            0 => {}
            OBSERVATIONS_MAX.. => {
                self.seen.silent += 1;
                self.leave(now_ns, stream, net);
            }
            _ => self.ack_request = true,
        }
    }

    /// Gives the peer up: closes all streams, and discards all packets.
    fn lose(&mut self, now_ns: u64, net: &mut Net) {
        self.seen.is_lost = true;
        for stream in self.streams() {
            self.leave(now_ns, stream, net);
        }
        let slots = &mut self.slots;
        let free = |slot: Slot| slots[slot as usize] = None;
        self.session.forget(free, |_| {});
    }

    /// Writes unsent packets to the connection's stream.
    fn send(&mut self) {
        let place = self
            .connection
            .usable()
            .and_then(|stream| self.place_of(stream));
        let Some(opened) = place.map(|place| &mut self.opened[place]) else {
            return;
        };
        let carrier = self.carrier;
        while opened.writer.has_room()
            && let Some(due) = self.session.next_unsent()
        {
            let body = self.slots[due.slot as usize].as_ref();
            let body = body.expect("it is kept");
            assert_eq!(body.len(), due.bytes as usize);
            self.last_ack = self.session.take_ack();
            opened.writer.packet(self.last_ack, due.number, body);
            self.session.sent(due.number, Via::Reliable { carrier });
        }
        if opened.writer.has_room() {
            let ack_request = std::mem::take(&mut self.ack_request);
            if self.session.take_ack_due(true) || ack_request {
                self.last_ack = self.session.take_ack();
                opened
                    .writer
                    .link_message(self.last_ack, LinkMessage::Ack { ack_request });
            }
        }
    }

    fn write(&mut self, now_ns: u64, stream: usize, net: &mut Net) {
        let Some(place) = self.place_of(stream) else {
            return;
        };
        let writer = &mut self.opened[place].writer;
        while !writer.waiting().is_empty() {
            match net.write(now_ns, stream, self.me, writer.waiting()) {
                Ok(0) => return,
                Ok(count) => writer.taken(count),
                Err(StreamClosed) => return self.leave(now_ns, stream, net),
            }
        }
    }
}

/// Delay after a failed attempt; it doubles with each failure.
const PAUSE_NS: u64 = 5_000_000;
const MOST_DOUBLINGS: u8 = 4;
/// An attempt is given up when it has timed out this number of times without a reply.
const MOST_TRIES: u8 = 2;
/// Foreign streams are closed after this time.
const FOREIGN_TIMEOUT_NS: u64 = 100_000_000;
/// Interval between two observations of the peer's acknowledgements.
const OBSERVE_NS: u64 = 30_000_000;
const OBSERVATIONS_MAX: u8 = 4;
/// A peer that is silent for longer than this is given up.
pub(crate) const MOST_SILENCE_NS: u64 = 5_000_000_000;
