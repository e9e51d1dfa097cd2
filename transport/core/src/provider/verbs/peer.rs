// SPDX-License-Identifier: MIT OR Apache-2.0
//! State of one peer, from the first packet on. No code in this file accesses a port.

use std::mem::offset_of;

use session::{ACK_EVERY, CarrierState, Session, Silence, WindowProbe};

use super::MOST_DATAGRAM_BYTES;
use super::peer_port::PeerPort;
use super::rail::{MOST_RAILS, PeerPath};
use super::wire::HEADER_BYTES;

/// State of one peer.
#[derive(Debug)]
pub(super) struct VerbsPeer {
    /// The link in use for packets.
    pub(super) main: PeerPort,
    /// The peer's host name, as an index into [`HostNames`](super::hosts::HostNames).
    pub(super) host: u32,
    pub(super) session: Session,
    /// Number of frames posted to the peer.
    pub(super) packets: u32,
    /// The number by which the peer addresses this process: the source field of packets and notes to the peer.
    pub(super) source_number: u32,
    /// The rail of the last packet received from the peer.
    pub(super) last_rail: u8,
    /// State that only peers with several links have.
    pub(super) more: Option<Box<More>>,
    /// A frame of which some parts have arrived.
    pub(super) building: Option<Vec<u8>>,
    /// Whether a broken queue pair of this peer still exists: until it is destroyed, no other queue pair is used.
    pub(super) waits_for_last: bool,
    pub(super) listed_unsent: bool,
    /// Number of writes in flight whose immediate is sent as a packet; no packet overtakes these writes.
    pub(super) immediates: u32,
    /// Requests for an acknowledgement, made when a send found the window full, too many large frames in flight, or no
    /// slot.
    window_probe: WindowProbe,
    /// Whether the caller postpones something until there is a queue pair.
    pub(super) awaits_pair: bool,
    pub(super) listed_owing: bool,
    pub(super) listed_leaving: bool,
    address_requested: bool,
    /// Deadline set by [`PeerTable::arm`](super::peer_table::PeerTable::arm).
    pub(super) timer_ns: u64,
    /// How long the peer has not answered.
    silence: Silence,
    /// Why the peer was given up. The text is boxed twice, to take 8 bytes here instead of 16: there are thousands of
    /// peers, and hardly any of them is ever given up.
    lost: Option<Box<Box<str>>>,
}

/// State of a peer with several links.
#[derive(Debug)]
pub(super) struct More {
    /// The links other than the main one.
    pub(super) links: Vec<PeerPort>,
    /// Rates of its ports, in the order of its rails, in Mbit/s; 0: unknown.
    pub(super) rates_mbps: [u32; MOST_RAILS],
    /// Times that the main link changed since the last packet from the peer; `moves_after_ns` is when it may change
    /// next.
    pub(super) moves: u8,
    pub(super) moves_after_ns: u64,
    /// Number of writes in flight whose immediate is sent as a packet, and which are not posted on the main link.
    pub(super) strays: u32,
}

impl VerbsPeer {
    /// Maximum memory of a peer's state, in bytes, including what it owns while some packets are in flight.
    pub(super) const fn most_bytes(rails: usize) -> usize {
        let more = match rails {
            1 => 0,
            rails => size_of::<More>() + (rails - 1) * size_of::<PeerPort>(),
        };
        size_of::<Self>() + Session::IDLE_BYTES + 2 * 16 + more
    }

    /// Memory of this peer's state, in bytes, without packets that wait.
    pub(super) fn bytes(&self) -> usize {
        let more = self.more.as_ref();
        let more = more.map_or(0, |more| size_of::<More>() + size_of_val(&*more.links));
        size_of::<Self>() + more
    }

    pub(super) fn new(first_packet: u32, source_number: u32) -> Self {
        Self {
            main: PeerPort::new(0, 0, None),
            host: 0,
            session: Session::new(first_packet),
            packets: 0,
            source_number,
            last_rail: 0,
            more: None,
            building: None,
            waits_for_last: false,
            listed_unsent: false,
            immediates: 0,
            window_probe: WindowProbe::default(),
            awaits_pair: false,
            listed_owing: false,
            listed_leaving: false,
            address_requested: false,
            timer_ns: NEVER,
            silence: Silence::default(),
            lost: None,
        }
    }

    /// Sets the links of a peer that had none; the first that serves becomes the main one.
    pub(super) fn set_links(
        &mut self,
        mut links: Vec<PeerPort>,
        serves: impl Fn(&PeerPort) -> bool,
    ) {
        let main = links.iter().position(serves).unwrap_or(0);
        let main = links.remove(main);
        let waiting = std::mem::take(&mut self.main.waiting);
        self.main = PeerPort { waiting, ..main };
        self.last_rail = self.main.rail;
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

    /// Index of the best other link among those that are wanted.
    pub(super) fn best_other(&self, is_wanted: impl Fn(&PeerPort) -> bool) -> Option<usize> {
        let links = (0..).zip(self.others());
        let wanted = links.filter(|(_, link)| is_wanted(link));
        // A connected link is most likely to work; otherwise the links are taken in turn.
        let order = |(_, link): &(usize, &PeerPort)| {
            let is_joined = link.connection.usable().is_some();
            (!is_joined, link.rail.wrapping_sub(self.main.rail))
        };
        wanted.min_by_key(order).map(|(place, _)| place)
    }

    /// Makes the other link at `place` the main one for a while, and marks all packets to be sent again. Returns the
    /// state of the old main link's connection.
    pub(super) fn swap_main(&mut self, place: usize, now_ns: u64) -> Option<CarrierState<u32>> {
        let more = self.more.as_mut()?;
        std::mem::swap(&mut self.main, &mut more.links[place]);
        // Whether packets arrive over the new link is not known yet, so it counts as reachable.
        self.main.connection.note_reachable();
        more.moves_after_ns = now_ns + (FIRST_STAY_NS << more.moves.min(MOST_DOUBLINGS));
        more.moves = more.moves.saturating_add(1);
        // Until the strays (writes that are not posted on the main link) are counted exactly, all writes of
        // `immediates` count as strays: none was posted on the new main link.
        more.strays = self.immediates;
        self.session.resend_lossy();
        Some(more.links[place].connection.state())
    }

    /// The main path to this peer; `peer` is the peer's number.
    #[inline(always)]
    pub(super) fn path(&self, peer: u32) -> PeerPath {
        let rail = self.main.rail;
        PeerPath { peer, rail }
    }

    /// The links other than the main one.
    pub(super) fn others(&self) -> &[PeerPort] {
        self.more.as_ref().map_or(&[], |more| &more.links)
    }

    /// The links other than the main one, mutable.
    pub(super) fn others_mut(&mut self) -> &mut [PeerPort] {
        self.more.as_mut().map_or(&mut [], |more| &mut more.links)
    }

    /// All links of the peer, the main one first.
    pub(super) fn links(&self) -> impl Iterator<Item = &PeerPort> {
        std::iter::once(&self.main).chain(self.others())
    }

    /// All links of the peer, the main one first, mutable.
    pub(super) fn links_mut(&mut self) -> impl Iterator<Item = &mut PeerPort> {
        let others = self
            .more
            .as_mut()
            .map_or(&mut [][..], |more| &mut more.links);
        std::iter::once(&mut self.main).chain(others)
    }

    /// The link on a rail.
    #[inline(always)]
    pub(super) fn link(&self, rail: u8) -> Option<&PeerPort> {
        if self.main.rail == rail {
            return Some(&self.main);
        }
        self.others().iter().find(|link| link.rail == rail)
    }

    /// The link on a rail, mutable.
    #[inline(always)]
    pub(super) fn link_mut(&mut self, rail: u8) -> Option<&mut PeerPort> {
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

    /// The queue pair for sends, if there is one that may be used.
    #[inline(always)]
    pub(super) fn pair_for_sends(&self) -> Option<u32> {
        self.main
            .connection
            .usable()
            .filter(|_| !self.waits_for_last)
    }

    /// The queue pair on a rail, if packets are expected from it.
    #[inline(always)]
    pub(super) fn pair_on(&self, rail: u8) -> Option<u32> {
        let is_main = self.main.rail == rail && !self.is_lost();
        self.main.connection.usable().filter(|_| is_main)
    }

    /// Whether further work is due after a packet that came in order.
    #[inline(always)]
    pub(super) fn needs_follow_up(&self) -> bool {
        let was_silent = self.silence.is_silent() || self.main.breaks != 0;
        was_silent || self.main.is_suspected || self.owes_much() || self.session.has_unsent()
    }

    /// Whether an acknowledgement is due even without a packet to carry it.
    #[inline(always)]
    pub(super) fn owes_much(&self) -> bool {
        self.session.delivered_since_ack() >= ACK_EVERY
    }

    /// Records a packet from the peer over the link on `rail`.
    #[inline(always)]
    pub(super) fn sent_packet(&mut self, rail: u8, by_datagram: bool) {
        self.mark_alive();
        self.last_rail = rail;
        match self.link_mut(rail) {
            Some(link) if by_datagram => link.connection.note_reachable(),
            Some(link) => {
                link.connection.note_arrival();
                (link.breaks, link.is_suspected) = (0, false);
            }
            None => {}
        }
    }

    /// Records that the peer's queue pair works.
    pub(super) fn recovered(&mut self) {
        self.mark_alive();
        (self.main.breaks, self.main.is_suspected) = (0, false);
    }

    /// The queue pair, if a packet may be posted to it now, with nothing to be sent before the packet.
    #[inline(always)]
    pub(super) fn pair_for_more(&self) -> Option<u32> {
        let is_first = !self.session.has_unsent() && self.immediates == 0 && !self.is_lost();
        self.pair_for_sends().filter(|_| is_first)
    }

    /// Whether packets may be posted to the queue pair, with no read or write before them.
    pub(super) fn is_ready(&self) -> bool {
        let strays = self.more.as_ref().map_or(0, |more| more.strays);
        self.pair_for_sends().is_some() && self.main.waiting.is_empty() && strays == 0
    }

    /// Largest packet that may be sent to the peer as a datagram, in bytes.
    pub(super) fn datagram_bytes(&self) -> usize {
        // The packet must fit every link over which it may be sent again.
        let theirs = self.links().filter_map(PeerPort::packet_bytes).min();
        (theirs.unwrap_or(u32::MAX) as usize).clamp(2 * HEADER_BYTES, MOST_DATAGRAM_BYTES)
    }

    #[inline(always)]
    pub(super) fn is_lost(&self) -> bool {
        self.lost.is_some()
    }

    /// Gives the peer up. `false`: it was given up before.
    pub(super) fn lose(&mut self, why: &str) -> bool {
        let is_new = self.lost.is_none();
        if is_new {
            self.lost = Some(Box::new(why.into()));
        }
        is_new
    }

    /// Why the peer was given up.
    pub(super) fn why_lost(&self) -> Option<&str> {
        self.lost.as_deref().map(|why| &**why)
    }

    /// Whether to request the peer's address now; only the first call returns `true`.
    pub(super) fn request_address(&mut self) -> bool {
        !std::mem::replace(&mut self.address_requested, true)
    }

    /// A timer of the peer has expired. `false`: nothing is to be done, since the peer is lost, or an earlier timer
    /// that replaced this one has been handled.
    pub(super) fn timer_ended(&mut self, now_ns: u64) -> bool {
        if self.timer_ns > now_ns || self.is_lost() {
            return false;
        }
        self.timer_ns = NEVER;
        // The caller retries now.
        self.awaits_pair = false;
        true
    }

    /// A send waits for an acknowledgement, which may have been lost. `true`: request one now.
    pub(super) fn request_room(&mut self, now_ns: u64) -> bool {
        self.window_probe.probe(now_ns)
    }

    /// Whether sends still have no room: the request or its answer may have been lost.
    pub(super) fn still_wants_room(&mut self) -> bool {
        self.window_probe.is_blocked(&self.session)
    }

    /// Records that something has arrived from the peer.
    #[inline(always)]
    pub(super) fn mark_alive(&mut self) {
        self.silence.end();
    }

    /// Records another timeout; returns for how long the peer has been silent, in nanoseconds. Time in which this
    /// process did not poll is not counted.
    pub(super) fn still_silent(&mut self, now_ns: u64) -> u64 {
        if let Some(more) = self.more.as_mut().filter(|_| !self.silence.is_silent()) {
            more.moves = 0;
        }
        self.silence.extend(now_ns)
    }

    /// Next time at which something must be done without an event.
    pub(super) fn deadline_ns(&self, now_ns: u64) -> Option<u64> {
        let waits = self.session.has_unsent() || self.has_waiting() || self.awaits_pair;
        // Sends that wait for an address handle or a queue pair are retried at these times.
        let later = |time_ns: u64| (waits && time_ns > now_ns).then_some(time_ns);
        let deadlines = [
            self.session.deadline(now_ns),
            self.window_probe.deadline_ns(now_ns),
        ];
        let of_links = self.links().flat_map(|link| {
            let connection = &link.connection;
            [
                connection.deadline_ns(),
                later(link.handle_after_ns),
                later(connection.retry_at_ns()),
            ]
        });
        deadlines.into_iter().chain(of_links).flatten().min()
    }
}

/// A link stays the main one for at least this time, which doubles with each change until a packet of the peer arrives.
const FIRST_STAY_NS: u64 = 500_000_000;
const MOST_DOUBLINGS: u8 = 5;
/// No deadline.
const NEVER: u64 = u64::MAX;

// The number that every packet carries (`source_number`) lies beside a field that every post accesses anyway
// (`packets`), most likely in one cache line.
const _: () =
    assert!(offset_of!(VerbsPeer, source_number).abs_diff(offset_of!(VerbsPeer, packets)) < 16);

#[cfg(test)]
mod tests {
    use super::*;

    /// A peer with links on these rails, the first of which is the main one.
    fn remote(rails: &[u8]) -> VerbsPeer {
        let mut remote = VerbsPeer::new(0, 0);
        let links = rails.iter().map(|rail| PeerPort::new(*rail, *rail, None));
        remote.set_links(links.collect(), |link| link.rail == rails[0]);
        remote
    }

    #[test]
    fn links_are_tried_in_turn_and_connected_ones_first() {
        let mut remote = remote(&[1, 0, 2, 3]);
        let best = |remote: &VerbsPeer| {
            remote
                .best_other(|_| true)
                .map(|at| remote.others()[at].rail)
        };
        assert_eq!(best(&remote), Some(2));
        assert_eq!(remote.best_other(|link| link.rail > 7), None);
        let link = remote.link_mut(0).unwrap();
        link.connection.connected(9, true);
        assert_eq!(best(&remote), Some(0));
    }

    #[test]
    fn each_swap_doubles_the_stay_of_the_main_link() {
        let mut remote = remote(&[0, 1]);
        for (moves, rail) in [(0, 1), (1, 0), (2, 1)] {
            assert!(remote.swap_main(0, 100).is_some());
            assert_eq!(remote.main.rail, rail);
            let more = remote.more.as_ref().unwrap();
            assert_eq!(more.moves_after_ns, 100 + (FIRST_STAY_NS << moves));
        }
    }

    #[test]
    fn a_peer_is_lost_once_for_the_first_reason() {
        let mut remote = remote(&[0]);
        assert!(remote.lose("the first") && !remote.lose("the second"));
        assert_eq!(remote.why_lost(), Some("the first"));
        assert!(!remote.timer_ended(u64::MAX), "nothing of it is due");
    }
}
