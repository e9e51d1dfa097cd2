// SPDX-License-Identifier: MIT OR Apache-2.0
//! One end: a session, and the streams that carry it. This is all that a provider over sockets does for a peer.

use std::collections::VecDeque;

use session::{Ack, AckStall, PacketVerdict, Slot, Via};
use session::{
    CarrierNumbers, CarrierState, Connection, Do, Questions, RecentFailures, Say, Session, Silence,
};

use crate::frames::{Content, Frame, Reader, Writer};
use crate::net::{Gone, Net};

/// Longest body in bytes; bodies longer than [`LARGE`] are lent when they arrive.
pub(crate) const MOST_BODY: usize = 900;
pub(crate) const LARGE: usize = 300;

/// One of two ends.
#[derive(Debug)]
pub(crate) struct End {
    me: usize,
    pub(crate) session: Session,
    connection: Connection<usize>,
    /// Open streams, including those of strangers.
    opened: Vec<Opened>,
    /// The carrier of the connection's end.
    made: u32,
    numbers: CarrierNumbers,
    /// Bodies of kept packets.
    slots: Vec<Option<Vec<u8>>>,
    /// Delivered messages that were not taken.
    pub(crate) ready: VecDeque<Vec<u8>>,
    questions: Questions,
    asks: bool,
    silence: Silence,
    unsaid: AckStall,
    looked_ns: u64,
    troubles: RecentFailures,
    /// The last acknowledgement sent; a forgetful end sends it again when a stream begins, so that the peer sends
    /// packets again that have arrived.
    told: Ack,
    is_forgetful: bool,
    pub(crate) seen: Seen,
}

/// Events of an end.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Seen {
    pub(crate) joined: u32,
    /// Streams that broke, and those of them that broke within a frame.
    pub(crate) broken: u32,
    pub(crate) torn: u32,
    /// Streams that carried invalid data.
    pub(crate) refused: u32,
    /// Packets received twice.
    pub(crate) twice: u32,
    /// Streams closed for silence.
    pub(crate) silent: u32,
    pub(crate) is_lost: bool,
}

#[derive(Debug)]
struct Opened {
    stream: usize,
    made: u32,
    since_ns: u64,
    reader: Reader,
    writer: Writer,
}

/// The stream carried something that no peer sends here.
struct Refused;

impl End {
    pub(crate) fn new(me: usize, first: u32, is_forgetful: bool) -> Self {
        let session = Session::new(first);
        Self {
            told: session.ack(),
            is_forgetful,
            session,
            me,
            connection: Connection::new(),
            opened: Vec::new(),
            made: 0,
            numbers: CarrierNumbers::default(),
            slots: Vec::new(),
            ready: VecDeque::new(),
            questions: Questions::default(),
            asks: false,
            silence: Silence::default(),
            unsaid: AckStall::default(),
            looked_ns: 0,
            troubles: RecentFailures::default(),
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
            self.asks |= self.questions.ask(now_ns);
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
            self.session.owe_anyway();
        }
    }

    /// Makes all progress that is possible now.
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
        self.look_at_clock(now_ns, net);
        let wants = self.session.has_unsent() || self.asks;
        if wants && self.connection.may_ask(now_ns) {
            self.ask(now_ns, net);
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
            made: self.numbers.next(),
            since_ns: now_ns,
            reader: Reader::new(MOST_BODY),
            writer: Writer::new(),
        });
        self.opened.last_mut().expect("it was pushed")
    }

    /// Opens a stream and sends Connect.
    fn ask(&mut self, now_ns: u64, net: &mut Net) {
        let stream = net.dial(now_ns, self.me);
        let attempt = self.connection.ask(stream, now_ns);
        let again = self.seen.broken != 0;
        let (ack, end) = (self.first_word(), ());
        let opened = self.open(now_ns, stream);
        opened.writer.note(
            ack,
            Say::Connect {
                attempt,
                end,
                again,
            },
        );
        self.made = opened.made;
    }

    /// The acknowledgement in the first frame of a stream.
    fn first_word(&mut self) -> Ack {
        if self.is_forgetful {
            return self.told;
        }
        self.told = self.session.tell();
        self.told
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
                Err(Gone) => {
                    self.seen.torn += u32::from(it.reader.is_torn());
                    self.over(now_ns, stream);
                    return net.close(now_ns, stream, self.me);
                }
            }
            loop {
                let heard = match it.reader.next() {
                    Ok(None) => break,
                    Ok(Some(frame)) => {
                        self.hear(now_ns, (stream, it.made), &mut it.writer, frame, net)
                    }
                    Err(_) => Err(Refused),
                };
                if heard.is_err() {
                    self.seen.refused += 1;
                    self.over(now_ns, stream);
                    return net.close(now_ns, stream, self.me);
                }
            }
        }
    }

    /// A stream has ended; if it was the connection's, another one is opened.
    fn over(&mut self, now_ns: u64, stream: usize) {
        if self.connection.end() != Some(stream) {
            return;
        }
        self.troubles.record(now_ns);
        if let CarrierState::Asking { .. } = self.connection.state() {
            let doublings = self.troubles.count(now_ns).min(MOST_DOUBLINGS);
            let pause_ns = PAUSE_NS << doublings;
            return self.connection.refused(now_ns + pause_ns);
        }
        self.seen.broken += 1;
        self.connection.apart();
        self.session.broke(self.made);
    }

    /// Closes a stream.
    fn leave(&mut self, now_ns: u64, stream: usize, net: &mut Net) {
        self.over(now_ns, stream);
        self.opened.retain(|opened| opened.stream != stream);
        net.close(now_ns, stream, self.me);
    }

    fn hear(
        &mut self,
        now_ns: u64,
        (stream, made): (usize, u32),
        writer: &mut Writer,
        frame: Frame<'_>,
        net: &mut Net,
    ) -> Result<(), Refused> {
        if let Content::Note(say @ (Say::Connect { .. } | Say::Accept { .. })) = frame.content {
            self.agree(now_ns, (stream, made), writer, say, net)?;
        }
        if self.connection.usable() != Some(stream) {
            return Err(Refused);
        }
        self.silence.ends();
        let slots = &mut self.slots;
        let free = |slot: Slot| slots[slot as usize] = None;
        self.session.acknowledge(frame.ack, now_ns, free);
        match frame.content {
            Content::Note(Say::Ack { asks: true }) => self.session.owe_anyway(),
            Content::Note(_) => {}
            Content::Packet { number, body } => match self.session.accept(number, 0, false) {
                PacketVerdict::Deliver => self.ready.push_back(body.to_vec()),
                PacketVerdict::Twice => {
                    self.seen.twice += 1;
                    self.session.owe_anyway();
                }
                // A stream preserves order.
                PacketVerdict::Held | PacketVerdict::Early | PacketVerdict::Wild => {
                    return Err(Refused);
                }
            },
        }
        Ok(())
    }

    /// Handles a message of the peer about the connection.
    fn agree(
        &mut self,
        now_ns: u64,
        (stream, made): (usize, u32),
        writer: &mut Writer,
        say: Say<()>,
        net: &mut Net,
    ) -> Result<(), Refused> {
        match (self.connection.hear(say, self.me == 0), say) {
            (Do::Answer { end, .. }, Say::Connect { attempt, .. }) => {
                if let Some(old) = self.connection.end() {
                    self.leave(now_ns, old, net);
                }
                self.made = made;
                self.connection.answered(attempt, stream, now_ns);
                writer.note(self.first_word(), Say::Accept { attempt, end });
                // A stream is connected from the beginning.
                self.connection.joined(stream, false);
            }
            (Do::Join { .. }, _) if self.connection.end() == Some(stream) => {
                self.connection.joined(stream, true);
            }
            _ => return Err(Refused),
        }
        self.seen.joined += 1;
        Ok(())
    }

    fn look_at_clock(&mut self, now_ns: u64, net: &mut Net) {
        let overdue = self.connection.timeout(now_ns);
        if overdue.is_some_and(|overdue| overdue.tries >= MOST_TRIES)
            && let CarrierState::Asking { end } = self.connection.state()
        {
            self.leave(now_ns, end, net);
            self.seen.silent += 1;
            if self.silence.goes_on(now_ns) > MOST_SILENCE_NS {
                return self.lose(now_ns, net);
            }
        }
        for stream in self.streams() {
            let is_stranger = self.connection.end() != Some(stream);
            let opened = self.place_of(stream).map(|place| &self.opened[place]);
            if is_stranger && opened.is_some_and(|it| now_ns > it.since_ns + STRANGE_NS) {
                self.leave(now_ns, stream, net);
            }
        }
        let is_asked = self.questions.are_open(&self.session)
            && self.questions.deadline_ns(now_ns) <= Some(now_ns);
        self.asks |= is_asked && self.questions.ask(now_ns);
        if now_ns >= self.looked_ns + LOOK_NS {
            self.looked_ns = now_ns;
            self.look_at_unsaid(now_ns, net);
        }
    }

    /// Sends a peer that does not acknowledge a request; after that the stream counts as dead.
    fn look_at_unsaid(&mut self, now_ns: u64, net: &mut Net) {
        let Some(stream) = self.connection.usable() else {
            return;
        };
        let oldest = self.session.awaits_word();
        match self.unsaid.look(oldest) {
            0 => {}
            MOST_LOOKS.. => {
                self.seen.silent += 1;
                self.leave(now_ns, stream, net);
            }
            _ => self.asks = true,
        }
    }

    /// Gives the peer up.
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
        let made = self.made;
        while opened.writer.has_room()
            && let Some(due) = self.session.next_unsent()
        {
            let body = self.slots[due.slot as usize].as_ref();
            let body = body.expect("it is kept");
            assert_eq!(body.len(), due.bytes as usize);
            self.told = self.session.tell();
            opened.writer.packet(self.told, due.number, body);
            self.session.sent(due.number, Via::Reliable { made });
        }
        if opened.writer.has_room() {
            let asks = std::mem::take(&mut self.asks);
            if self.session.take_owing(true) || asks {
                self.told = self.session.tell();
                opened.writer.note(self.told, Say::Ack { asks });
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
                Err(Gone) => return self.leave(now_ns, stream, net),
            }
        }
    }
}

/// Delay after a failed attempt; longer each time.
const PAUSE_NS: u64 = 5_000_000;
const MOST_DOUBLINGS: u8 = 4;
/// Repetitions after which an attempt without a reply is given up.
const MOST_TRIES: u8 = 2;
/// Streams of strangers are closed after this time.
const STRANGE_NS: u64 = 100_000_000;
/// Interval of observing the peer's acknowledgements, and the number of observations after which the stream is given
/// up.
const LOOK_NS: u64 = 30_000_000;
const MOST_LOOKS: u8 = 4;
/// A peer that is silent for longer is given up.
pub(crate) const MOST_SILENCE_NS: u64 = 5_000_000_000;
