// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a process keeps for one peer on the network, from the first packet on.

use super::address::{self, Address};
use super::connect::State;
use super::link::{Link, pair_up};
use super::port::{CallError, Port, Way};
use super::rail::{Line, MOST_RAILS, rail_of};
use super::session::{ACK_EVERY, Moment, Session};
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
    /// The rail over which it was heard last.
    pub(super) heard_on: u8,
    /// What there is only where several links lead there.
    pub(super) more: Option<Box<More>>,
    /// A frame of which some parts are here.
    pub(super) building: Option<Vec<u8>>,
    /// A queue pair that broke has not told the end of all its work requests: until then nothing goes over another one.
    pub(super) waits_for_last: bool,
    pub(super) listed_unsent: bool,
    /// It is to be told what has arrived even if nothing new has.
    pub(super) owes_anyway: bool,
    /// Writes that have not ended and whose immediate is a packet: nothing overtakes them.
    pub(super) immediates: u32,
    /// Something found its window full, too many large frames there, or no slot: it is asked what has arrived; when it was
    /// last, and how often.
    wants_room: bool,
    /// The caller keeps something until there is a queue pair.
    pub(super) awaits_pair: bool,
    asked_at: Moment,
    asks: u8,
    pub(super) listed_owing: bool,
    pub(super) listed_leaving: bool,
    asked: bool,
    /// What [`Sides::arm`](super::sides::Sides::arm) has set.
    pub(super) timer_ns: u64,
    /// How long it has not answered, in milliseconds, and when that was found last.
    silent_ms: u32,
    silent_at: Moment,
    /// Why it was given up. Boxed twice, since there are thousands of peers and hardly any has this.
    lost: Option<Box<Box<str>>>,
}

/// What is kept for a peer to which several links lead.
#[derive(Debug)]
pub(super) struct More {
    /// Those that are not the main one.
    pub(super) links: Vec<Link>,
    /// What its ports carry at most, in the order of its rails; 0: nobody knows.
    pub(super) rates_mbps: [u32; MOST_RAILS],
    /// How often another became the main one since the peer was heard last, and when the next may.
    pub(super) moves: u8,
    pub(super) moves_after_ns: u64,
    /// Writes that have not ended, whose immediate is a packet, and that do not go over the main link.
    pub(super) strays: u32,
}

impl Side {
    /// What one takes, with what it owns while the peer has some packets under way.
    pub(super) const fn most_bytes(rails: usize) -> usize {
        let more = match rails {
            1 => 0,
            rails => size_of::<More>() + (rails - 1) * size_of::<Link>(),
        };
        size_of::<Self>() + Session::IDLE_BYTES + 2 * 16 + more
    }

    /// What this one takes, without what waits.
    pub(super) fn bytes(&self) -> usize {
        let more = self.more.as_ref();
        let more = more.map_or(0, |more| size_of::<More>() + size_of_val(&*more.links));
        size_of::<Self>() + more
    }

    pub(super) fn new(first_packet: u32) -> Self {
        Self {
            main: Link::new(0, 0, None),
            host: 0,
            session: Session::new(first_packet),
            packets: 0,
            heard_on: 0,
            more: None,
            building: None,
            waits_for_last: false,
            listed_unsent: false,
            owes_anyway: false,
            immediates: 0,
            wants_room: false,
            awaits_pair: false,
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

    /// The links of one that had none; the first that serves is the main one.
    fn set_links(&mut self, mut links: Vec<Link>, serves: impl Fn(&Link) -> bool) {
        let main = links.iter().position(serves).unwrap_or(0);
        let main = links.remove(main);
        let waiting = std::mem::take(&mut self.main.waiting);
        self.main = Link { waiting, ..main };
        self.heard_on = self.main.rail;
        if !links.is_empty() {
            self.more = Some(Box::new(More {
                links,
                rates_mbps: [0; MOST_RAILS],
                moves: 0,
                moves_after_ns: 0,
                strays: 0,
            }));
        }
    }

    /// One of its other links becomes the main one for a while: how it was with the old one. All goes again.
    pub(super) fn swap_main(&mut self, place: usize, now_ns: u64) -> Option<State<u32>> {
        let more = self.more.as_mut()?;
        std::mem::swap(&mut self.main, &mut more.links[place]);
        // Whether anybody hears there is found out anew.
        self.main.connection.heard();
        more.moves_after_ns = now_ns + (FIRST_STAY_NS << more.moves.min(MOST_DOUBLINGS));
        more.moves = more.moves.saturating_add(1);
        self.session.send_all_again();
        Some(more.links[place].connection.state)
    }

    /// Its main line; `peer` is its number.
    #[inline(always)]
    pub(super) fn line(&self, peer: u32) -> Line {
        let rail = self.main.rail;
        Line { peer, rail }
    }

    /// Those of its links that are not the main one.
    pub(super) fn others(&self) -> &[Link] {
        self.more.as_ref().map_or(&[], |more| &more.links)
    }

    /// The same, to change them.
    pub(super) fn others_mut(&mut self) -> &mut [Link] {
        self.more.as_mut().map_or(&mut [], |more| &mut more.links)
    }

    /// All its links, the main one first.
    pub(super) fn links(&self) -> impl Iterator<Item = &Link> {
        std::iter::once(&self.main).chain(self.others())
    }

    /// The same, to change them.
    pub(super) fn links_mut(&mut self) -> impl Iterator<Item = &mut Link> {
        let others = self
            .more
            .as_mut()
            .map_or(&mut [][..], |more| &mut more.links);
        std::iter::once(&mut self.main).chain(others)
    }

    /// The link of a rail.
    #[inline(always)]
    pub(super) fn link(&self, rail: u8) -> Option<&Link> {
        if self.main.rail == rail {
            return Some(&self.main);
        }
        self.others().iter().find(|link| link.rail == rail)
    }

    /// The same, to change it.
    #[inline(always)]
    pub(super) fn link_mut(&mut self, rail: u8) -> Option<&mut Link> {
        if self.main.rail == rail {
            return Some(&mut self.main);
        }
        let mut others = self.others_mut().iter_mut();
        others.find(|link| link.rail == rail)
    }

    /// Whether reads or writes wait to be posted.
    #[inline(always)]
    pub(super) fn has_waiting(&self) -> bool {
        !self.main.waiting.is_empty() || self.others().iter().any(|link| !link.waiting.is_empty())
    }

    /// The queue pair, if sends may use it.
    #[inline(always)]
    pub(super) fn pair_for_sends(&self) -> Option<u32> {
        self.main
            .connection
            .usable()
            .filter(|_| !self.waits_for_last)
    }

    /// The queue pair on a rail, if this is the one that packets are expected on.
    #[inline(always)]
    pub(super) fn pair_on(&self, rail: u8) -> Option<u32> {
        let is_main = self.main.rail == rail && !self.is_lost();
        self.main.connection.usable().filter(|_| is_main)
    }

    /// Whether a packet that has come in order leaves anything to be done.
    #[inline(always)]
    pub(super) fn needs_care(&self) -> bool {
        let was_silent = self.silent_ms != NOT_SILENT || self.main.breaks != 0;
        was_silent || self.main.is_suspected || self.owes_much() || self.session.has_unsent()
    }

    /// Whether the peer should be told what has come, even if nothing is sent to it.
    #[inline(always)]
    pub(super) fn owes_much(&self) -> bool {
        self.session.owed() >= ACK_EVERY
    }

    /// The peer's queue pair carries what it should.
    pub(super) fn recovered(&mut self) {
        self.was_heard();
        (self.main.breaks, self.main.is_suspected) = (0, false);
    }

    /// The queue pair, if a further packet may go over it at once.
    #[inline(always)]
    pub(super) fn pair_for_more(&self) -> Option<u32> {
        let is_first = !self.session.has_unsent() && self.immediates == 0 && !self.is_lost();
        self.pair_for_sends().filter(|_| is_first)
    }

    /// Whether packets may go over the queue pair, with no read or write before them.
    pub(super) fn is_ready(&self) -> bool {
        let strays = self.more.as_ref().map_or(0, |more| more.strays);
        self.pair_for_sends().is_some() && self.main.waiting.is_empty() && strays == 0
    }

    /// Largest packet that goes there as a datagram.
    pub(super) fn datagram_bytes(&self) -> usize {
        // Whatever link it is sent on again.
        let addresses = self.links().filter_map(|link| link.address);
        let theirs = addresses.map(|address| address.packet_bytes).min();
        (theirs.unwrap_or(u32::MAX) as usize).clamp(2 * HEADER_BYTES, MOST_DATAGRAM_BYTES)
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
            NOT_SILENT => {
                if let Some(more) = &mut self.more {
                    more.moves = 0;
                }
                0
            }
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
    pub(super) fn deadline_ns(&self, now_ns: u64) -> Option<u64> {
        let waits = self.session.has_unsent() || self.has_waiting() || self.awaits_pair;
        // Whoever waits for those is tried again then.
        let later = |time_ns: u64| (waits && time_ns > now_ns).then_some(time_ns);
        let deadlines = [
            self.session.deadline(now_ns),
            self.wants_room.then(|| now_ns + self.ask_pause_ns(now_ns)),
        ];
        let of_links = self.links().flat_map(|link| {
            let connection = &link.connection;
            [
                connection.deadline_ns(),
                later(link.way_after_ns),
                later(connection.not_before_ns),
            ]
        });
        deadlines.into_iter().chain(of_links).flatten().min()
    }
}

impl<P: Port> Verbs<P> {
    /// Where datagrams for a peer go; `None`: not known yet (then it is asked for), or there is no way.
    pub(super) fn way_to(&mut self, line: Line) -> Option<(Way, u32)> {
        if self.rails.is_all_lost() {
            self.lose_with_all(line);
            return None;
        }
        let now_ns = self.schedule.now_ns;
        let side = self.sides.of(line.peer);
        let link = side.link_mut(line.rail)?;
        let Some(address) = link.address else {
            if !std::mem::replace(&mut side.asked, true) {
                self.strangers.want(line.peer);
            }
            return None;
        };
        if let Some(way) = link.way {
            return Some((way, address.number));
        }
        if self.rails[line.at()].lost.is_some() {
            if self.sides.is_main(line) && !self.leave_for_ever(line.peer) {
                self.lose_with_all(line);
            }
            return None;
        }
        let link = self.sides.link(line)?;
        if now_ns < link.way_after_ns {
            return None;
        }
        let mut opened = self.rails[line.at()].port.open_way(&address);
        if opened.is_err() && self.find_port_again(line.at()) {
            // Telling the others may have opened it.
            if let Some(way) = self.sides.link(line)?.way {
                return Some((way, address.number));
            }
            opened = self.rails[line.at()].port.open_way(&address);
        }
        match opened {
            Ok(way) => {
                self.sides.link(line)?.way = Some(way);
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
        let (now_ns, silence_ns) = (self.schedule.now_ns, self.limits.silence_ns);
        let peer = line.peer;
        if let Some(link) = self.sides.link(line) {
            link.way_after_ns = now_ns + WAY_AGAIN_NS;
        }
        if !self.sides.is_main(line) || self.detour(peer, None) {
            return;
        }
        let side = self.sides.of(peer);
        if side.still_silent(now_ns) > silence_ns {
            return self.lose(peer, &format!("there is no way to its address: {error}"));
        }
        self.sides.arm(peer, self.schedule.now_ns);
    }

    /// What the launcher says about a peer.
    pub(in crate::provider) fn learn_address(&mut self, peer: Peer, record: &[u8]) {
        let Some((ports, host)) = address::from_record(record) else {
            let why = "its address record is of another version of this library, or damaged";
            return self.lose(peer.0, why);
        };
        let (addresses, rates): (Vec<Address>, Vec<u32>) = ports.into_iter().unzip();
        let host = self.hosts.number(&String::from_utf8_lossy(host));
        let table = pair_up(self.rails.published(), &addresses, self.me < peer.0);
        let links: Vec<Link> = table
            .iter()
            .map(|(ours, theirs)| Link::new(*ours, *theirs, Some(addresses[usize::from(*theirs)])))
            .collect();
        let side = self.sides.of(peer.0);
        side.host = host;
        if side.main.address.is_none() {
            // What goes over a link that is of no use finds that out.
            let serves = |link: &Link| self.rails.serves(link.rail);
            side.set_links(links, serves);
            self.bind_all_again(peer.0);
        } else {
            for link in links {
                let (peer, rail) = (peer.0, link.rail);
                let line = Line { peer, rail };
                self.sides.set_address(line, link.address, &mut self.rails);
            }
        }
        if let Some(more) = &mut self.sides.of(peer.0).more {
            more.rates_mbps
                .iter_mut()
                .zip(rates)
                .for_each(|(place, rate)| *place = rate);
        }
        self.meet_strangers(peer.0);
        self.go_on(peer.0);
    }

    /// A peer is found elsewhere from now on.
    #[cold]
    pub(super) fn follow(&mut self, line: Line, address: Address) {
        let side = self.sides.of(line.peer);
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

    /// A timer of a peer has run out.
    pub(super) fn time_is_over(&mut self, peer: u32) {
        let now_ns = self.schedule.now_ns;
        let side = self.sides.of(peer);
        // A later one was replaced by an earlier one, which has been here.
        if side.timer_ns > now_ns || side.is_lost() {
            return;
        }
        side.timer_ns = NEVER;
        // The caller tries again now.
        side.awaits_pair = false;
        let again = side.session.timeout(now_ns);
        let overdue = side.links_mut().filter_map(|link| {
            let overdue = link.connection.timeout(now_ns)?;
            Some((link.rail, overdue))
        });
        let overdue: Vec<_> = overdue.collect();
        if again || !overdue.is_empty() {
            let silent_ns = side.still_silent(now_ns);
            // One that computes does not answer either, but its device does.
            let has_moved = side.more.as_ref().is_some_and(|more| more.moves > 0);
            let is_suspected = side.main.is_suspected
                || (has_moved && side.others().iter().any(|link| link.is_suspected));
            if is_suspected && silent_ns > self.limits.silence_ns {
                let seconds = self.limits.silence_ns / 1_000_000_000;
                let why = format!("it has not answered for {seconds} s");
                return self.lose(peer, &why);
            }
        }
        for (rail, overdue) in overdue {
            self.say_again_or_not(Line { peer, rail }, overdue);
        }
        if again {
            self.detour_if_stuck(peer);
        }
        if again {
            self.counts.overdue.add(1);
            self.flush(peer);
        }
        self.ask_again(peer);
        self.sides.arm(peer, self.schedule.now_ns);
    }

    /// Something waits for the peer to say what it has taken; that it did may be lost.
    #[cold]
    pub(super) fn ask_for_ack(&mut self, peer: u32) {
        self.schedule.now_ns = self.rails.clock();
        let now_ns = self.schedule.now_ns;
        let side = self.sides.of(peer);
        side.wants_room = true;
        if side.ask_pause_ns(now_ns) == 0 {
            side.asked_at = Moment::of(now_ns);
            side.asks = (side.asks + 1).min(MOST_ASKS);
            let line = side.line(peer);
            self.say(line, Say::Ack { asks: true });
        }
        self.sides.arm(peer, self.schedule.now_ns);
    }

    /// The question may be lost, and so may the answer: asks once more if there is still no room.
    fn ask_again(&mut self, peer: u32) {
        let side = self.sides.of(peer);
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
    pub(in crate::provider) fn lose(&mut self, peer: u32, why: &str) {
        let side = self.sides.of(peer);
        if side.is_lost() {
            return;
        }
        side.lost = Some(Box::new(why.into()));
        let ends: Vec<u32> = side
            .links()
            .filter_map(|link| link.connection.end())
            .collect();
        let (sends, rails) = (&mut self.sends, &mut self.rails);
        let side = self.sides.get_mut(peer);
        if let Some(side) = side {
            side.session.forget(
                |slot| sends.release(slot),
                |buffer| rails[usize::from(rail_of(buffer))].give_back(buffer),
            );
        }
        for index in ends {
            self.break_pair(index);
        }
        let rails: Vec<u8> = self.sides.of(peer).links().map(|link| link.rail).collect();
        for rail in rails {
            self.fail_waiting(Line { peer, rail });
        }
        self.end_fetches(peer);
        for (buffer, _) in self.strangers.take(peer) {
            self.rails.give_back(buffer);
        }
        let peer = Peer(peer);
        self.ready.push(Completion::Lost { peer });
    }

    /// Why a peer was given up.
    pub(in crate::provider) fn why_lost(&self, peer: Peer) -> Option<&str> {
        let side = self.sides.find(peer.0)?;
        side.lost.as_deref().map(|why| &**why)
    }

    /// Whether a queue pair for the peer is being made, or could be.
    pub(super) fn hopes_for_pair(&mut self, line: Line) -> bool {
        self.want_pair(line);
        let waits = self.sides.of(line.peer).waits_for_last;
        let hopes = |link: &mut Link| link.connection.is_alive() || link.address.is_none() || waits;
        let hopes = self.sides.link(line).is_some_and(hopes);
        if hopes {
            self.sides.await_pair(line.peer, self.schedule.now_ns);
        }
        hopes
    }
}

/// The main link stays so for this time at least, and longer each time until the peer is heard.
const FIRST_STAY_NS: u64 = 500_000_000;
const MOST_DOUBLINGS: u8 = 5;
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
