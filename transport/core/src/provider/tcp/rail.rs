// SPDX-License-Identifier: MIT OR Apache-2.0
//! Rails: connections with a peer beside the line, the first connection. Each uses interfaces of its own at both ends.
//! Rails carry only pieces of large reads: requests, which are READs of at most one packet of data, and their replies,
//! all without numbers. A read may be repeated, so a rail needs no session: requests over a rail that ends are made
//! again over the line.
//!
//! | file                         | content |
//! |------------------------------|------------------------------------------------------|
//! | `rail.rs`                    | a rail, and the choice of the connection for a piece |
//! | `rails.rs`                   | making and ending rails |
//! | `striping.rs`                | reads that are cut into pieces |
//! | `serve.rs`, `arrive/rail.rs` | sending and receiving over a rail |

use std::collections::VecDeque;

use super::active_open::ConnectStage;
use super::packet::{
    DATA_BYTES, HEADER_BYTES, TcpPacketBuilder, TcpPacketKind, TcpReadRequest, bare_header,
};
use super::sockets::Sock;

/// Bytes outstanding on a connection, and its measured speed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct ConnectionLoad {
    /// Bytes requested and not yet arrived.
    bytes: u64,
    /// When the last piece was complete.
    came_ns: u64,
    /// Nanoseconds per MiB; 0: not measured yet.
    cost_ns: u64,
}

impl ConnectionLoad {
    pub(super) fn is_idle(&self) -> bool {
        self.bytes == 0
    }

    /// Counts a requested piece.
    pub(super) fn request(&mut self, bytes: u64) {
        self.bytes += bytes;
    }

    /// Stops counting a requested piece that will not come.
    pub(super) fn forget(&mut self, bytes: u64) {
        self.bytes = self.bytes.saturating_sub(bytes);
    }

    /// Counts a completed piece, and updates the measured speed. A late piece is little evidence: the peer may have
    /// been computing.
    pub(super) fn come(&mut self, bytes: u64, requested_ns: u64, now_ns: u64) {
        self.forget(bytes);
        let since_ns = requested_ns.max(self.came_ns);
        self.came_ns = now_ns;
        let took_ns = now_ns.saturating_sub(since_ns).min(MOST_TIME_NS);
        let cost_ns = (took_ns << 20) / bytes.max(1);
        self.cost_ns = match self.cost_ns {
            0 => cost_ns,
            old if cost_ns < old => old.midpoint(cost_ns),
            old => old + (cost_ns.min(old.saturating_mul(4)) - old) / 4,
        }
        .max(1);
    }

    /// The load without the `here` bytes of the current piece that have arrived.
    fn without(self, here: u64) -> Self {
        let bytes = self.bytes.saturating_sub(here);
        Self { bytes, ..self }
    }

    /// Whether so little is in flight that another piece may be requested. A request while more is in flight would gain
    /// nothing, and would fill the system's socket buffers, which is slow.
    fn has_room(&self) -> bool {
        self.bytes <= AHEAD_BYTES
    }

    /// Time until `bytes` more bytes have arrived. `unknown_ns`: the cost per MiB that is assumed if none was measured.
    fn time_ns(&self, bytes: u64, unknown_ns: u64) -> u64 {
        let cost_ns = if self.cost_ns == 0 {
            unknown_ns
        } else {
            self.cost_ns
        };
        let all = u128::from(self.bytes + bytes) * u128::from(cost_ns);
        u64::try_from(all >> 20).unwrap_or(u64::MAX)
    }
}

/// The rails of a peer.
#[derive(Debug, Default)]
pub(super) struct TcpRails {
    /// Number of connections that the peer allows with this process; 0: the peer does not support rails.
    pub(super) allowed: u8,
    pub(super) all: Vec<TcpRail>,
    pub(super) calls: Vec<RailCall>,
    /// The load of the line.
    pub(super) first: ConnectionLoad,
    /// `again_at_ns`: no rail is made before this time. `failures`: number of failures, by which the pause grows.
    pub(super) again_at_ns: u64,
    pub(super) failures: u8,
}

impl TcpRails {
    /// Whether there is a rail, or one is being made. If so, large reads are cut into pieces.
    pub(super) fn is_any(&self) -> bool {
        !self.all.is_empty() || !self.calls.is_empty()
    }

    /// Memory used, in bytes.
    pub(super) fn bytes(&self) -> usize {
        let each = self.all.iter().map(TcpRail::bytes);
        each.sum::<usize>() + self.calls.capacity() * size_of::<RailCall>()
    }

    pub(super) fn find(&mut self, sock: Sock) -> Option<&mut TcpRail> {
        self.all.iter_mut().find(|rail| rail.sock == sock)
    }

    /// Whether data have moved over one of the rails recently.
    pub(super) fn has_moved(&self, now_ns: u64) -> bool {
        let moved = |rail: &TcpRail| now_ns.saturating_sub(rail.moved_ns) < RECENT_NS;
        self.all.iter().any(moved)
    }

    /// Records that a rail has failed: the next rail is made later.
    pub(super) fn fail(&mut self, now_ns: u64) {
        self.again_at_ns = now_ns + (FIRST_PAUSE_NS << self.failures.min(MOST_BACKOFF));
        self.failures = self.failures.saturating_add(1);
    }

    /// The load of each connection, without the arrived bytes of incomplete pieces. `here`: number of such bytes on the
    /// line.
    fn loads(&self, here: u64) -> impl Iterator<Item = ConnectionLoad> {
        let rail = |rail: &TcpRail| {
            let here = rail.inflow.map_or(0, |inflow| inflow.at as u64);
            rail.load.without(here)
        };
        std::iter::once(self.first.without(here)).chain(self.all.iter().map(rail))
    }

    /// Chooses the connection for the next piece of `bytes` bytes: 0 is the line, others are rails. `rest`: bytes still
    /// to be requested, with this piece. `first`: arrived bytes of the current data on the line; `None`: the line
    /// accepts no more requests. The result is the connection on which the piece would be complete soonest. If that
    /// connection accepts no request now, the result is the best of the connections that do. `None`: no connection
    /// accepts a request, or the fastest connection would complete all of `rest` before the best one that accepts a
    /// request completes this piece.
    pub(super) fn choose(&mut self, bytes: u64, rest: u64, first: Option<u64>) -> Option<usize> {
        let here = first.unwrap_or(0);
        let known = self.loads(here).map(|load| load.cost_ns);
        let unknown_ns = known.filter(|cost| *cost != 0).min().unwrap_or(1);
        let time = |load: &ConnectionLoad| load.time_ns(bytes, unknown_ns);
        let all = || self.loads(here).enumerate();
        let (best, fastest) = all().min_by_key(|(_, load)| time(load))?;
        let may = |(index, load): &(usize, ConnectionLoad)| {
            (*index != 0 || first.is_some()) && load.has_room()
        };
        let (index, load) = all().filter(may).min_by_key(|(_, load)| time(load))?;
        if index != best && time(&load) > fastest.time_ns(rest, unknown_ns) {
            return None;
        }
        self.retry_slow(index);
        Some(index)
    }

    /// Lowers the measured cost of each idle connection except `but`: a slow one may have recovered, and is so tried
    /// again after some time.
    fn retry_slow(&mut self, but: usize) {
        let first = std::iter::once(&mut self.first);
        let all = first.chain(self.all.iter_mut().map(|rail| &mut rail.load));
        for (_, load) in all.enumerate().filter(|(index, _)| *index != but) {
            if load.is_idle() {
                load.cost_ns -= load.cost_ns / 64;
            }
        }
    }
}

/// A rail being made.
#[derive(Debug)]
pub(super) struct RailCall {
    pub(super) stage: ConnectStage,
    /// The index of the interface of this host that the rail uses.
    pub(super) interface: u32,
    pub(super) since_ns: u64,
}

/// A further connection with a peer, over an interface of its own.
#[derive(Debug)]
pub(super) struct TcpRail {
    pub(super) sock: Sock,
    /// Its number among all connections of this process.
    pub(super) made: u32,
    /// The index of the interface of this host that the rail uses.
    pub(super) interface: u32,
    pub(super) load: ConnectionLoad,
    /// `moved_ns`: the latest time at which data moved over the rail, the rail was made, or data were requested while
    /// none were expected. `doubted_ns`: since when the rail is doubted because no data moved.
    pub(super) moved_ns: u64,
    pub(super) doubted_ns: Option<u64>,
    /// `outgoing`: requests and replies to be sent. `sent`: how many of their bytes were sent.
    pub(super) outgoing: Vec<u8>,
    pub(super) sent: usize,
    /// Reads by the peer whose data are to be sent over this rail.
    pub(super) serves: VecDeque<TcpReadRequest>,
    pub(super) out: Option<Sending>,
    /// `is_blocked`: whether the socket takes no bytes until there is an event. `is_armed`: whether such events were
    /// requested.
    pub(super) is_blocked: bool,
    pub(super) is_armed: bool,
    /// Received bytes that are not yet processed.
    pub(super) rest: Vec<u8>,
    pub(super) inflow: Option<RailInflow>,
}

impl TcpRail {
    pub(super) fn new(
        (sock, made): (Sock, u32),
        interface: u32,
        first: Vec<u8>,
        now_ns: u64,
    ) -> Self {
        Self {
            sock,
            made,
            interface,
            load: ConnectionLoad::default(),
            moved_ns: now_ns,
            doubted_ns: None,
            outgoing: first,
            sent: 0,
            serves: VecDeque::new(),
            out: None,
            is_blocked: false,
            is_armed: false,
            rest: Vec::new(),
            inflow: None,
        }
    }

    /// Appends a packet without data to the bytes to be sent.
    pub(super) fn enqueue(
        &mut self,
        kind: TcpPacketKind,
        make: impl FnOnce(&mut TcpPacketBuilder<'_>),
    ) {
        let mut packet = Vec::new();
        make(&mut TcpPacketBuilder::new(&mut packet));
        let header = bare_header(kind, packet.len() - HEADER_BYTES);
        header.write_to(&mut packet[..HEADER_BYTES]);
        self.outgoing.extend_from_slice(&packet);
    }

    /// Number of unanswered reads by the peer.
    pub(super) fn serving(&self) -> usize {
        self.serves.len() + usize::from(self.out.is_some())
    }

    fn bytes(&self) -> usize {
        let serves = self.serves.capacity() * size_of::<TcpReadRequest>();
        size_of::<Self>() + self.outgoing.capacity() + self.rest.capacity() + serves
    }

    /// Whether nothing is in flight over the rail.
    pub(super) fn is_idle(&self) -> bool {
        self.load.is_idle() && self.serving() == 0 && self.outgoing.is_empty()
    }
}

/// Data being sent to the peer.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sending {
    pub(super) head: [u8; HEADER_BYTES + DATA_BYTES],
    pub(super) read: TcpReadRequest,
    /// Bytes sent, those of `head` included.
    pub(super) at: usize,
}

impl Sending {
    /// Starts sending the data of a read.
    pub(super) fn new(read: TcpReadRequest) -> Self {
        let mut packet = Vec::new();
        TcpPacketBuilder::new(&mut packet).data(read.id, 0);
        let data = usize::try_from(read.bytes).unwrap_or(0);
        let header = bare_header(TcpPacketKind::Data, DATA_BYTES + data);
        header.write_to(&mut packet[..HEADER_BYTES]);
        let mut head = [0; HEADER_BYTES + DATA_BYTES];
        head.copy_from_slice(&packet);
        let at = 0;
        Self { head, read, at }
    }
}

/// Data being received for part `id` of a read.
#[derive(Clone, Copy, Debug)]
pub(super) struct RailInflow {
    pub(super) id: u32,
    pub(super) at: usize,
    pub(super) bytes: usize,
}

/// Maximum number of reads by the peer that wait at a rail; a peer that keeps to the protocol sends fewer.
pub(super) const MOST_SERVES: usize = 16;
/// When at most this many bytes requested over a connection are outstanding, the next piece is requested.
const AHEAD_BYTES: u64 = 128 << 10;
/// Data that moved at most this long ago count as moved recently. This is shorter than the time after which a
/// connection without a reply is cut off.
const RECENT_NS: u64 = 5_000_000_000;
/// Upper bound for the measured time of a piece.
const MOST_TIME_NS: u64 = 1_000_000_000;
const FIRST_PAUSE_NS: u64 = 1_000_000_000;
const MOST_BACKOFF: u8 = 6;

#[cfg(test)]
mod tests {
    use super::*;

    const PIECE: u64 = 256 << 10;

    /// Connections on which a piece takes the given numbers of microseconds; the line comes first.
    fn rails(times_us: &[u64]) -> TcpRails {
        let mut rails = TcpRails::default();
        for (index, time_us) in times_us.iter().enumerate() {
            let load = match index {
                0 => &mut rails.first,
                _ => {
                    rails.all.push(TcpRail::new((7, 1), 0, Vec::new(), 0));
                    &mut rails.all[index - 1].load
                }
            };
            if *time_us != 0 {
                load.request(PIECE);
                load.come(PIECE, 0, time_us * 1000);
            }
        }
        rails
    }

    /// How many pieces of a read each connection gets, if each moves a piece in its time; and the total time.
    fn dealt(times_us: &[u64], pieces: u64) -> (Vec<u64>, u64) {
        let mut rails = rails(times_us);
        let mut ends: Vec<Vec<u64>> = vec![Vec::new(); times_us.len()];
        let mut counts = vec![0; times_us.len()];
        let (mut left, mut now_us) = (pieces, 1_000_000);
        while left != 0 || ends.iter().any(|ends| !ends.is_empty()) {
            while left != 0
                && let Some(index) = rails.choose(PIECE, left * PIECE, Some(0))
            {
                let load = match index {
                    0 => &mut rails.first,
                    _ => &mut rails.all[index - 1].load,
                };
                load.request(PIECE);
                let since_us = ends[index].last().copied().unwrap_or(now_us);
                ends[index].push(since_us + times_us[index]);
                counts[index] += 1;
                left -= 1;
            }
            let (next_us, index) = (0..ends.len())
                .filter_map(|index| Some((*ends[index].first()?, index)))
                .min()
                .expect("something is under way, or a piece is requested");
            ends[index].remove(0);
            now_us = next_us;
            let load = match index {
                0 => &mut rails.first,
                _ => &mut rails.all[index - 1].load,
            };
            load.come(PIECE, now_us * 1000 - times_us[index] * 1000, now_us * 1000);
        }
        (counts, now_us - 1_000_000)
    }

    #[test]
    fn chunks_are_distributed_by_connection_speed() {
        assert_eq!(dealt(&[100, 100], 16).0, [8, 8]);
        let (counts, took_us) = dealt(&[100, 200, 100], 20);
        assert!(counts[1] >= 3 && counts[1] <= 5, "{counts:?}");
        assert!(took_us <= 1000, "{took_us}");
        // A slow connection gets nothing of a small read, and a fair part of a large one.
        assert_eq!(dealt(&[100, 5000], 16), (vec![16, 0], 1600));
        assert_eq!(dealt(&[5000, 100], 16), (vec![0, 16], 1600));
        let (counts, took_us) = dealt(&[100, 5000], 600);
        assert!((8..=12).contains(&counts[1]), "{counts:?}");
        assert!(took_us < 60_000, "{took_us}");
    }

    #[test]
    fn unmeasured_and_slow_rails_are_tried_again() {
        let mut rails = rails(&[100, 0]);
        assert_eq!(rails.choose(PIECE, 4 * PIECE, Some(0)), Some(0));
        rails.first.request(PIECE);
        assert_eq!(rails.choose(PIECE, 3 * PIECE, Some(0)), Some(1));
        rails.all[0].load.request(PIECE);
        rails.all[0].load.come(PIECE, 0, 3_000_000);
        rails.first.come(PIECE, 100_000, 200_000);
        let mut tries = 0;
        while rails.choose(PIECE, PIECE, Some(0)) == Some(0) {
            tries += 1;
            assert!(tries < 1000, "it is never tried again");
        }
        assert!(tries > 100, "{tries}");
    }

    #[test]
    fn bytes_in_flight_per_connection_are_limited() {
        let mut rails = rails(&[100, 100]);
        let mut counts = [0; 2];
        while let Some(index) = rails.choose(PIECE, 1 << 40, Some(0)) {
            counts[index] += 1;
            match index {
                0 => rails.first.request(PIECE),
                _ => rails.all[0].load.request(PIECE),
            }
        }
        assert_eq!(counts, [1, 1]);
        let last = Some(PIECE - AHEAD_BYTES);
        assert_eq!(
            rails.choose(PIECE, 1 << 40, last),
            Some(0),
            "little is to come"
        );
        rails.first.forget(PIECE);
        assert_eq!(
            rails.choose(PIECE, 1 << 40, None),
            None,
            "no packet finds room"
        );
    }

    #[test]
    fn one_late_chunk_hardly_changes_the_speed_estimate() {
        let mut load = rails(&[100]).first;
        load.request(PIECE);
        load.come(PIECE, 100_000, 500_000_000);
        assert!(load.time_ns(PIECE, 1) <= 200_000, "{load:?}");
        load.request(PIECE);
        load.come(PIECE, 500_000_000, 500_100_000);
        assert!(load.time_ns(PIECE, 1) <= 150_000, "{load:?}");
    }
}
