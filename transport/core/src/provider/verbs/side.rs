// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a process keeps for one peer on the network, from the first packet on.

use std::cmp::Reverse;
use std::collections::HashMap;

use super::address::Address;
use super::connect::{Connection, State};
use super::port::{CallError, Port, Way};
use super::rail::{Line, rail_of};
use super::session::{Moment, Session};
use super::wire::{HEADER_BYTES, Say};
use super::{MOST_DATAGRAM_BYTES, Verbs};
use crate::{Completion, Peer};

/// One peer.
#[derive(Debug)]
pub(super) struct Side {
    /// The link that carries packets.
    pub(super) main: Link,
    /// The name of its host, by its place in [`Verbs`].
    pub(super) host: u32,
    pub(super) session: Session,
    /// Frames that were posted.
    pub(super) packets: u32,
    /// Reads and writes that wait to be posted, oldest first.
    pub(super) waiting: Vec<u32>,
    /// A frame of which some parts are here.
    pub(super) building: Option<Vec<u8>>,
    /// A queue pair that broke has not told the end of all its work requests: until then nothing goes over another one.
    pub(super) waits_for_last: bool,
    pub(super) listed_unsent: bool,
    /// It is to be told what has arrived even if nothing new has.
    pub(super) owes_anyway: bool,
    /// Writes that have not ended and whose immediate is a packet: nothing overtakes them.
    pub(super) immediates: u32,
    /// Something found its window full, or too many large frames there: it is asked what has arrived; when it was last, and
    /// how often.
    wants_room: bool,
    asked_at: Moment,
    asks: u8,
    pub(super) listed_owing: bool,
    pub(super) listed_leaving: bool,
    asked: bool,
    /// What [`Verbs::arm`] has set.
    timer_ns: u64,
    /// How long it has not answered, in milliseconds, and when that was found last.
    silent_ms: u32,
    silent_at: Moment,
    /// Why it was given up. Boxed twice, since there are thousands of peers and hardly any has this.
    lost: Option<Box<Box<str>>>,
}

/// A port of a peer, as one rail of this process reaches it.
#[derive(Debug)]
pub(super) struct Link {
    pub(super) rail: u8,
    pub(super) address: Option<Address>,
    way: Option<Way>,
    /// No way there could be opened: not before this time again.
    way_after_ns: u64,
    /// The queue pair, by its place in [`Verbs`].
    pub(super) connection: Connection<u32>,
    /// How often its queue pair broke without anything between.
    pub(super) breaks: u32,
    /// The peer's device did not answer either.
    pub(super) is_suspected: bool,
}

impl Link {
    fn new(rail: u8) -> Self {
        Self {
            rail,
            address: None,
            way: None,
            way_after_ns: 0,
            connection: Connection::new(),
            breaks: 0,
            is_suspected: false,
        }
    }
}

impl Side {
    /// What one takes, with what it owns while the peer has some packets under way.
    pub(super) const MOST_BYTES: usize = size_of::<Self>() + Session::IDLE_BYTES + 2 * 16;

    fn new(first_packet: u32) -> Self {
        Self {
            main: Link::new(0),
            host: 0,
            session: Session::new(first_packet),
            packets: 0,
            waiting: Vec::new(),
            building: None,
            waits_for_last: false,
            listed_unsent: false,
            owes_anyway: false,
            immediates: 0,
            wants_room: false,
            asked_at: Moment::of(0),
            asks: 0,
            listed_owing: false,
            listed_leaving: false,
            asked: false,
            timer_ns: NEVER,
            silent_ms: NOT_SILENT,
            silent_at: Moment::of(0),
            lost: None,
        }
    }

    /// Its main line; `peer` is its number.
    #[inline(always)]
    pub(super) fn line(&self, peer: u32) -> Line {
        let rail = self.main.rail;
        Line { peer, rail }
    }

    /// All its links.
    pub(super) fn links(&self) -> impl Iterator<Item = &Link> {
        std::iter::once(&self.main)
    }

    /// The same, to change them.
    pub(super) fn links_mut(&mut self) -> impl Iterator<Item = &mut Link> {
        std::iter::once(&mut self.main)
    }

    /// The link of a rail.
    #[inline(always)]
    pub(super) fn link(&self, rail: u8) -> Option<&Link> {
        Some(&self.main).filter(|main| main.rail == rail)
    }

    /// The same, to change it.
    #[inline(always)]
    pub(super) fn link_mut(&mut self, rail: u8) -> Option<&mut Link> {
        Some(&mut self.main).filter(|main| main.rail == rail)
    }

    /// The queue pair, if sends may use it.
    #[inline(always)]
    pub(super) fn pair_for_sends(&self) -> Option<u32> {
        self.main
            .connection
            .usable()
            .filter(|_| !self.waits_for_last)
    }

    /// Whether packets may go over the queue pair, with no read or write before them.
    pub(super) fn is_ready(&self) -> bool {
        self.pair_for_sends().is_some() && self.waiting.is_empty()
    }

    /// Largest packet that goes there as a datagram.
    pub(super) fn datagram_bytes(&self) -> usize {
        let theirs = self
            .main
            .address
            .map_or(u32::MAX, |address| address.packet_bytes);
        (theirs as usize).clamp(2 * HEADER_BYTES, MOST_DATAGRAM_BYTES)
    }

    #[inline(always)]
    pub(super) fn is_lost(&self) -> bool {
        self.lost.is_some()
    }

    /// Something was heard of it.
    #[inline(always)]
    pub(super) fn was_heard(&mut self) {
        self.silent_ms = NOT_SILENT;
    }

    /// It has not answered again: for how long now. Time in which this process did not look does not count.
    fn still_silent(&mut self, now_ns: u64) -> u64 {
        let more = self.silent_at.until(now_ns).min(MOST_PAUSE_NS) / 1_000_000;
        self.silent_ms = match self.silent_ms {
            NOT_SILENT => 0,
            before => before.saturating_add(u32::try_from(more).unwrap_or(0)),
        };
        self.silent_at = Moment::of(now_ns);
        u64::from(self.silent_ms) * 1_000_000
    }

    /// For how long it is not asked again what has arrived.
    fn ask_pause_ns(&self, now_ns: u64) -> u64 {
        let pause_ns = match self.asks {
            0 => 0,
            asks => ASK_EVERY_NS << (asks - 1),
        };
        pause_ns.saturating_sub(self.asked_at.until(now_ns))
    }

    /// When something is to be done that nothing else brings about.
    fn deadline_ns(&self, now_ns: u64) -> Option<u64> {
        let waits = self.session.has_unsent() || !self.waiting.is_empty();
        // Whoever waits for those is tried again then.
        let later = |time_ns: u64| (waits && time_ns > now_ns).then_some(time_ns);
        let deadlines = [
            self.session.deadline(now_ns),
            self.wants_room.then(|| now_ns + self.ask_pause_ns(now_ns)),
            later(self.main.way_after_ns),
            later(self.main.connection.not_before_ns),
        ];
        let of_links = self.links().map(|link| link.connection.deadline_ns);
        deadlines.into_iter().chain(of_links).flatten().min()
    }
}

/// The names of hosts, each once: many peers are on the same.
#[derive(Debug, Default)]
pub(super) struct Hosts {
    names: Vec<Box<str>>,
    numbers: HashMap<Box<str>, u32>,
}

impl Hosts {
    fn number(&mut self, name: &str) -> u32 {
        if let Some(number) = self.numbers.get(name) {
            return *number;
        }
        self.names.push(name.into());
        // Number 0 is nobody's.
        let number = u32::try_from(self.names.len()).unwrap_or(0);
        self.numbers.insert(name.into(), number);
        number
    }

    pub(super) fn name(&self, number: u32) -> Option<&str> {
        let index = (number as usize).checked_sub(1)?;
        let name = self.names.get(index)?;
        Some(name)
            .map(|name| &**name)
            .filter(|name| !name.is_empty())
    }
}

impl<P: Port> Verbs<P> {
    /// What is kept for a peer.
    #[inline(always)]
    pub(super) fn side(&mut self, peer: u32) -> &mut Side {
        let first = self.first_packet;
        self.sides[peer as usize].get_or_insert_with(|| Box::new(Side::new(first)))
    }

    /// A peer's link of a rail; `None`: that does not lead there.
    #[inline(always)]
    pub(super) fn link(&mut self, line: Line) -> Option<&mut Link> {
        self.side(line.peer).link_mut(line.rail)
    }

    /// Where datagrams for a peer go; `None`: not known yet (then it is asked for), or there is no way.
    pub(super) fn way_to(&mut self, line: Line) -> Option<(Way, u32)> {
        if self.all_lost.is_some() {
            self.lose_with_all(line.peer);
            return None;
        }
        let now_ns = self.now_ns;
        let side = self.side(line.peer);
        let link = side.link_mut(line.rail)?;
        let Some(address) = link.address else {
            if !std::mem::replace(&mut side.asked, true) {
                self.wanted.push_back(line.peer);
            }
            return None;
        };
        if let Some(way) = link.way {
            return Some((way, address.number));
        }
        if now_ns < link.way_after_ns {
            return None;
        }
        let mut opened = self.rails[line.at()].port.open_way(&address);
        if opened.is_err() && self.find_port_again(line.at()) {
            // Telling the others may have opened it.
            if let Some(way) = self.link(line)?.way {
                return Some((way, address.number));
            }
            opened = self.rails[line.at()].port.open_way(&address);
        }
        match opened {
            Ok(way) => {
                self.link(line)?.way = Some(way);
                Some((way, address.number))
            }
            Err(error) => {
                self.no_way(line, error);
                None
            }
        }
    }

    /// A way could not be opened: a port may be down for a while.
    #[cold]
    fn no_way(&mut self, line: Line, error: CallError) {
        let (now_ns, silence_ns) = (self.now_ns, self.limits.silence_ns);
        let peer = line.peer;
        let side = self.side(peer);
        if let Some(link) = side.link_mut(line.rail) {
            link.way_after_ns = now_ns + WAY_AGAIN_NS;
        }
        if side.still_silent(now_ns) > silence_ns {
            return self.lose(peer, &format!("there is no way to its address: {error}"));
        }
        self.arm(peer);
    }

    /// The ways of a rail have changed: they are opened anew when they are needed.
    pub(super) fn forget_ways(&mut self, rail: usize) {
        let of_rail = |link: &&mut Link| usize::from(link.rail) == rail;
        let sides = self.sides.iter_mut().flatten();
        let links = sides.flat_map(|side| side.links_mut());
        for link in links.filter(of_rail) {
            self.rails[rail].leave_way(link.way.take());
        }
    }

    /// What the launcher says about a peer.
    pub(in crate::provider) fn learn_address(&mut self, peer: Peer, record: &[u8]) {
        let (address, host) = record.split_at(record.len().min(Address::BYTES));
        let Some(address) = Address::from_bytes(address) else {
            let why = "its address record is of another version of this library, or damaged";
            return self.lose(peer.0, why);
        };
        let host = self.hosts.number(&String::from_utf8_lossy(host));
        let side = self.side(peer.0);
        let main = &mut side.main;
        if main.address == Some(address) {
            return;
        }
        main.address = Some(address);
        let (way, rail) = (main.way.take(), usize::from(main.rail));
        side.host = host;
        self.rails[rail].leave_way(way);
        self.meet_strangers(peer.0);
        self.go_on(peer.0);
    }

    /// A peer is found elsewhere from now on.
    #[cold]
    pub(super) fn follow(&mut self, line: Line, address: Address) {
        let side = self.side(line.peer);
        side.was_heard();
        let Some(link) = side.link_mut(line.rail) else {
            return;
        };
        // The queue pair for datagrams stays the same; else it is not this peer's note.
        let is_new = link
            .address
            .is_some_and(|old| old != address && old.number == address.number);
        if !is_new {
            return;
        }
        link.address = Some(address);
        link.way_after_ns = 0;
        let (way, end) = (link.way.take(), link.connection.usable());
        self.rails[line.at()].leave_way(way);
        if let Some(index) = end {
            self.break_pair(index);
        }
        self.go_on(line.peer);
    }

    /// Sets the timer of a peer, if anything of it has a deadline.
    pub(super) fn arm(&mut self, peer: u32) {
        let now_ns = self.now_ns;
        let side = self.sides[peer as usize].as_deref_mut();
        let Some(side) = side.filter(|side| !side.is_lost()) else {
            return;
        };
        let Some(deadline) = side.deadline_ns(now_ns) else {
            return;
        };
        if side.timer_ns > deadline {
            side.timer_ns = deadline;
            self.timers.push(Reverse((deadline, peer)));
        }
    }

    /// A timer of a peer has run out.
    pub(super) fn time_is_over(&mut self, peer: u32) {
        let now_ns = self.now_ns;
        let side = self.side(peer);
        // A later one was replaced by an earlier one, which has been here.
        if side.timer_ns > now_ns || side.is_lost() {
            return;
        }
        side.timer_ns = NEVER;
        let again = side.session.timeout(now_ns);
        let overdue = side.links_mut().filter_map(|link| {
            let overdue = link.connection.timeout(now_ns)?;
            Some((link.rail, overdue))
        });
        let overdue: Vec<_> = overdue.collect();
        if again || !overdue.is_empty() {
            let silent_ns = side.still_silent(now_ns);
            // One that computes does not answer either, but its device does.
            if side.main.is_suspected && silent_ns > self.limits.silence_ns {
                let seconds = self.limits.silence_ns / 1_000_000_000;
                let why = format!("it has not answered for {seconds} s");
                return self.lose(peer, &why);
            }
        }
        for (rail, overdue) in overdue {
            self.say_again_or_not(Line { peer, rail }, overdue);
        }
        if again {
            self.net.overdue += 1;
            self.flush(peer);
        }
        self.ask_again(peer);
        self.arm(peer);
    }

    /// The peer's window is full: what says that it has taken something may be lost.
    #[cold]
    pub(super) fn ask_for_ack(&mut self, peer: u32) {
        self.now_ns = self.clock();
        let now_ns = self.now_ns;
        let side = self.side(peer);
        side.wants_room = true;
        if side.ask_pause_ns(now_ns) == 0 {
            side.asked_at = Moment::of(now_ns);
            side.asks = (side.asks + 1).min(MOST_ASKS);
            let line = side.line(peer);
            self.say(line, Say::Ack { asks: true });
        }
        self.arm(peer);
    }

    /// The question may be lost, and so may the answer: asks once more if there is still no room.
    fn ask_again(&mut self, peer: u32) {
        let side = self.side(peer);
        if !side.wants_room {
            return;
        }
        if side.session.room() != 0 && side.session.may_lend() {
            (side.wants_room, side.asks) = (false, side.asks.min(1));
            return;
        }
        self.ask_for_ack(peer);
    }

    /// Gives a peer up.
    pub(super) fn lose(&mut self, peer: u32, why: &str) {
        let side = self.side(peer);
        if side.is_lost() {
            return;
        }
        side.lost = Some(Box::new(why.into()));
        let ends: Vec<u32> = side
            .links()
            .filter_map(|link| link.connection.end())
            .collect();
        let (sends, rails) = (&mut self.sends, &mut self.rails);
        let side = self.sides[peer as usize].as_deref_mut();
        if let Some(side) = side {
            side.session.forget(
                |slot| sends.release(slot),
                |buffer| rails[usize::from(rail_of(buffer))].give_back(buffer),
            );
        }
        for index in ends {
            self.break_pair(index);
        }
        self.fail_waiting(peer);
        self.forget_strangers(peer);
        let peer = Peer(peer);
        self.ready.push_back(Completion::Lost { peer });
    }

    /// Why a peer was given up.
    pub(in crate::provider) fn why_lost(&self, peer: Peer) -> Option<&str> {
        let side = self.sides.get(peer.0 as usize)?.as_deref()?;
        side.lost.as_deref().map(|why| &**why)
    }

    /// Whether a queue pair for the peer is being made, or could be.
    pub(super) fn hopes_for_pair(&mut self, peer: u32) -> bool {
        let line = self.side(peer).line(peer);
        self.want_pair(line);
        let side = self.side(peer);
        let main = &side.main;
        !matches!(main.connection.state, State::Apart | State::Leaving { .. })
            || main.address.is_none()
            || side.waits_for_last
    }
}

/// While a window stays full, the peer is asked so often.
const ASK_EVERY_NS: u64 = 20_000_000;
/// Each time half as often as before, until this one.
const MOST_ASKS: u8 = 4;
/// It answers.
const NOT_SILENT: u32 = u32::MAX;
/// Whoever does not answer is asked more often than this.
const MOST_PAUSE_NS: u64 = 2_000_000_000;
/// After this time a way that could not be opened is tried again.
const WAY_AGAIN_NS: u64 = 10_000_000;
/// A time that does not come.
const NEVER: u64 = u64::MAX;
