// SPDX-License-Identifier: MIT OR Apache-2.0
//! Path MTU discovery. Each end has the MTU of its own port, but not that of the switches and tunnels on the path,
//! which drop longer packets silently. So the note (a message outside the streams, `wire.rs`) that requests a queue
//! pair is padded to the packet size that it requests, and the answer is as long: if both arrive, packets of that size
//! arrive in both directions, and both ends use it. This takes no further messages.
//!
//! If a request is not answered, the request or its answer was lost or too long, or the peer is not polling. To
//! distinguish these cases, a repeated request is followed by a short note which a polling peer echoes
//! ([`WireMessage::Echo`](super::wire::WireMessage)); after some failures the short note is sent alone. An echo without
//! the answer to the request before it is a *miss*. After [`MOST_MISSES`] misses in a row the next attempt requests the
//! next smaller power of two, down to 256 bytes; a silent peer that sends no echo does not reduce the size. With 20%
//! packet loss, a request and its answer arrive with probability 0.64, and an echo without them with probability 0.23.
//! So a size is given up wrongly in one of 200 cases in which the first request was lost, which is one of 600 of all
//! cases; with 10% packet loss, it is one of 8000.
//!
//! The result stays with the link: the next queue pair starts from it, since most queue pairs break for other reasons,
//! and reduces it again if needed. After [`KNOWN_MINUTES`] the next queue pair starts with the MTU of the ports, since
//! paths are also repaired.
//!
//! On the wire a note is padded to the length of the longest packet of a queue pair with that MTU. Adapters do not send
//! or receive datagrams longer than the MTU, so between adapters a note is 8 bytes shorter than a write (DETH and
//! RETH): a path whose limit lies within these 8 bytes is not recognized. No such path is known. For an MTU of 4096
//! bytes its limit would be 4148 to 4155 bytes from the IPv4 header on, for 1024 bytes 1076 to 1083.

use super::address::{MTU_BYTES_MAX, MTU_BYTES_MIN, MTU_UNIT_BYTES, PortAddress, mtu_units};

/// The MTU to one port of a peer. Four bytes, since every link has one, and a process may have thousands of peers.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct PathMtuProbe {
    /// Packet size in units of 64 bytes, as far as known; 0: never requested.
    units: u8,
    /// Misses in a row.
    misses: u8,
    requested: PathMtuRequest,
    /// The [`minute`] since which the MTU is below that of both ports; 0: it is not.
    less_since: u8,
}

/// The last unanswered request of a path.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum PathMtuRequest {
    /// No request.
    #[default]
    Nothing,
    /// A queue pair; no echo is awaited.
    Pair,
    /// A queue pair and then an echo: if the echo comes first, the request or its answer was lost or too long.
    PairAndEcho,
    /// Only an echo, long after the request for a queue pair: any packet from the peer proves that the peer polls
    /// again.
    Life,
}

/// Outcome of an echo that came before the answer to a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Miss {
    /// No conclusion.
    Late,
    /// The same request is repeated after this time.
    Again { after_ns: u64 },
    /// Packets of this size do not arrive: the next attempt requests a smaller size.
    Less,
}

impl PathMtuProbe {
    /// MTU of the path, at most that of a port.
    #[inline]
    pub(super) fn limit(&self, port_bytes: u32) -> u32 {
        match self.units {
            0 => port_bytes,
            units => port_bytes.min(u32::from(units) * MTU_UNIT_BYTES),
        }
    }

    /// Begins a request for a queue pair between ports with an MTU of `most` bytes. `true`: it repeats an unanswered
    /// request of the same size. Then misses are kept from attempt to attempt: a port that goes down, or a change of
    /// the link, may end an attempt before a size is found.
    pub(super) fn begin(&mut self, most: u32, now_ns: u64) -> bool {
        let (requested, before) = (self.requested, self.units);
        let most = units_of(most);
        if self.less_since == 0 || minutes_since(self.less_since, now_ns) >= KNOWN_MINUTES {
            (self.units, self.less_since) = (most, 0);
        }
        self.units = self.units.min(most);
        let is_same = requested != PathMtuRequest::Nothing && self.units == before;
        if !is_same {
            self.misses = 0;
        }
        self.requested = PathMtuRequest::Pair;
        is_same
    }

    /// The peer has refused a queue pair.
    pub(super) fn refused(&mut self) {
        (self.misses, self.requested) = (0, PathMtuRequest::Nothing);
    }

    /// A queue pair uses packets of `bytes` bytes, between ports with an MTU of `most`.
    pub(super) fn agree(&mut self, bytes: u32, most: u32, now_ns: u64) {
        let units = units_of(bytes);
        let is_known = self.less_since != 0 && self.units == units;
        if bytes >= most {
            self.less_since = 0;
        } else if !is_known {
            self.less_since = minute(now_ns);
        }
        self.units = units;
        (self.misses, self.requested) = (0, PathMtuRequest::Nothing);
    }

    /// Whether an echo can lead to a smaller size than the one just requested.
    pub(super) fn may_shrink(&self) -> bool {
        self.units > LEAST_UNITS
    }

    /// Whether there were misses, or the MTU is below that of the ports.
    pub(super) fn is_doubted(&self) -> bool {
        self.misses != 0 || self.less_since != 0
    }

    /// An echo was requested; `alone`: without a request for a queue pair before it.
    pub(super) fn awaits_echo(&mut self, alone: bool) {
        self.requested = match alone {
            true => PathMtuRequest::Life,
            false => PathMtuRequest::PairAndEcho,
        };
    }

    /// A packet of the peer has arrived. `true`: only an echo was awaited, since the peer seemed not to poll.
    pub(super) fn shows_life(&mut self) -> bool {
        let awaited = self.requested == PathMtuRequest::Life;
        if awaited {
            self.requested = PathMtuRequest::Pair;
        }
        awaited
    }

    /// An echo has arrived without an answer to the request.
    pub(super) fn echo(&mut self, now_ns: u64) -> Miss {
        if self.requested != PathMtuRequest::PairAndEcho || !self.may_shrink() {
            return Miss::Late;
        }
        self.requested = PathMtuRequest::Pair;
        self.misses += 1;
        if self.misses < MOST_MISSES {
            let after_ns = FIRST_PAUSE_NS << (self.misses - 1);
            return Miss::Again { after_ns };
        }
        // The next smaller power of two.
        self.units = 1 << (self.units - 1).ilog2();
        (self.misses, self.less_since) = (0, minute(now_ns));
        Miss::Less
    }
}

/// Number of the present minute, 1 to 255, then again from 1.
fn minute(now_ns: u64) -> u8 {
    u8::try_from(now_ns / MINUTE_NS % MINUTES + 1).unwrap_or(1)
}

/// Minutes since `minute_then`, modulo 255.
fn minutes_since(minute_then: u8, now_ns: u64) -> u64 {
    (u64::from(minute(now_ns)) + MINUTES - u64::from(minute_then)) % MINUTES
}

/// Packet size in units of 64 bytes, within the limits.
fn units_of(bytes: u32) -> u8 {
    mtu_units(bytes.clamp(MTU_BYTES_MIN, MTU_BYTES_MAX))
}

/// Largest MTU of a queue pair between two ports, at most `bytes`: adapters have powers of two.
pub(super) fn common_bytes(bytes: u32, one: &PortAddress, other: &PortAddress) -> u32 {
    let bytes = bytes.min(one.packet_bytes).min(other.packet_bytes);
    match one.is_program() && other.is_program() {
        true => bytes,
        false => 1 << bytes.max(1).ilog2(),
    }
}

/// Length in bytes of a note that shows that packets of `packet_bytes` arrive.
pub(super) fn filled_bytes(packet_bytes: u32, one: &PortAddress, other: &PortAddress) -> usize {
    let more = match one.is_program() && other.is_program() {
        true => MORE_BYTES,
        false => 0,
    };
    packet_bytes as usize + more
}

/// Smallest packet size, in units of 64 bytes.
const LEAST_UNITS: u8 = 4;
/// Bytes by which a note between two user-space ports may exceed the MTU.
pub(super) const MORE_BYTES: usize = roce::format::DATAGRAM_BYTES_MORE;
/// Length of the longest note, in bytes.
pub(super) const MOST_NOTE_BYTES: usize = MTU_BYTES_MAX as usize + MORE_BYTES;
/// Misses in a row after which a size is given up.
const MOST_MISSES: u8 = 4;
/// Delay of the repeated request after the first miss, doubled for each further one: losses come in bursts.
const FIRST_PAUSE_NS: u64 = 5_000_000;
/// A reduced MTU is kept for ten minutes, as in RFC 8899 (`PMTU_RAISE_TIMER`).
const KNOWN_MINUTES: u64 = 10;
const MINUTE_NS: u64 = 60_000_000_000;
/// Minutes after which the counter wraps around.
const MINUTES: u64 = 255;

const _: () = assert!(size_of::<PathMtuProbe>() == 4);

#[cfg(test)]
mod tests {
    use super::super::address::LinkLayer;
    use super::*;

    const KNOWN_NS: u64 = KNOWN_MINUTES * MINUTE_NS;

    /// The address of a user-space port with this MTU.
    fn program(packet_bytes: u32) -> PortAddress {
        PortAddress {
            link: LinkLayer::Ethernet,
            lid: 4791,
            number: 1,
            packet_bytes,
            gid: [0; 16],
        }
    }

    /// Records misses until the size is given up; returns how many.
    fn give_up(path: &mut PathMtuProbe, now_ns: u64) -> u32 {
        for count in 1..=10 {
            path.awaits_echo(false);
            if path.echo(now_ns) == Miss::Less {
                return count;
            }
        }
        panic!("it is never given up");
    }

    #[test]
    fn the_mtu_is_not_limited_before_a_probe() {
        let mut path = PathMtuProbe::default();
        assert_eq!(path.limit(4096), 4096);
        path.begin(2048, 5);
        assert_eq!((path.limit(4096), path.is_doubted()), (2048, false));
    }

    #[test]
    fn an_mtu_is_halved_after_some_misses_but_not_below_the_minimum() {
        let mut path = PathMtuProbe::default();
        path.begin(1024, 5);
        assert_eq!(give_up(&mut path, 7), 4);
        assert_eq!(path.limit(4096), 512);
        assert_eq!(give_up(&mut path, 8), 4);
        assert_eq!((path.limit(4096), path.may_shrink()), (256, false));
        for _ in 0..9 {
            path.awaits_echo(false);
            assert_eq!(path.echo(9), Miss::Late);
        }
        assert_eq!(path.limit(4096), 256);
    }

    #[test]
    fn an_mtu_between_powers_of_two_becomes_the_next_smaller_one() {
        let mut path = PathMtuProbe::default();
        path.begin(1408, 5);
        assert_eq!(path.limit(4096), 1408);
        give_up(&mut path, 7);
        assert_eq!(path.limit(4096), 1024);
    }

    #[test]
    fn only_user_space_ports_share_an_mtu_between_powers_of_two() {
        let program = program(1408);
        let adapter = PortAddress {
            lid: 0,
            packet_bytes: 4096,
            ..program
        };
        assert_eq!(common_bytes(4096, &program, &program), 1408);
        assert_eq!(common_bytes(1344, &program, &program), 1344);
        assert_eq!(common_bytes(4096, &program, &adapter), 1024);
        assert_eq!(common_bytes(512, &adapter, &program), 512);
    }

    #[test]
    fn probe_intervals_grow_and_an_echo_counts_once() {
        let mut path = PathMtuProbe::default();
        path.begin(4096, 5);
        assert_eq!(path.echo(6), Miss::Late, "not requested");
        for after_ns in [5_000_000, 10_000_000, 20_000_000] {
            path.awaits_echo(false);
            assert_eq!(path.echo(7), Miss::Again { after_ns });
            assert_eq!(path.echo(7), Miss::Late);
        }
        assert!(!path.shows_life());
        path.awaits_echo(true);
        assert_eq!(path.echo(7), Miss::Late, "no miss");
        assert!(path.shows_life() && !path.shows_life());
        assert!(path.begin(4096, 8) && path.is_doubted(), "counted through");
        path.refused();
        assert!(!path.begin(4096, 9) && !path.is_doubted());
    }

    #[test]
    fn a_found_mtu_is_kept_for_a_limited_time() {
        let mut path = PathMtuProbe::default();
        path.begin(4096, 5);
        give_up(&mut path, 10);
        path.agree(2048, 4096, 20);
        path.begin(4096, KNOWN_NS - 1);
        assert_eq!(path.limit(4096), 2048);
        path.agree(2048, 4096, KNOWN_NS - 1);
        path.begin(4096, KNOWN_NS);
        assert_eq!(path.limit(4096), 4096, "since it was found, not used");
        path.agree(1024, 4096, 30);
        path.agree(4096, 4096, 40);
        path.begin(4096, 50);
        assert!(!path.is_doubted(), "all arrives again");
    }

    #[test]
    fn the_age_of_a_found_mtu_survives_counter_wraparound() {
        for began in [0, 1, 254, 255, 256, 1000] {
            let mut path = PathMtuProbe::default();
            path.begin(4096, began * MINUTE_NS);
            path.agree(1024, 4096, began * MINUTE_NS);
            for (later, known) in [(0, true), (9, true), (10, false), (254, false)] {
                let mut path = path;
                path.begin(4096, (began + later) * MINUTE_NS);
                assert_eq!(path.limit(4096) == 1024, known, "{began} and {later}");
            }
        }
    }

    #[test]
    fn a_smaller_port_mtu_is_not_recorded_as_a_narrow_path() {
        let mut path = PathMtuProbe::default();
        path.begin(4096, 5);
        path.agree(4096, 4096, 6);
        path.begin(512, 7);
        assert_eq!((path.limit(4096), path.is_doubted()), (512, false));
        path.begin(2048, 8);
        assert_eq!(path.limit(4096), 2048);
    }

    #[test]
    fn probe_messages_between_user_space_ports_exceed_the_mtu() {
        let program = program(4096);
        let adapter = PortAddress { lid: 0, ..program };
        assert_eq!(filled_bytes(1024, &program, &program), 1036);
        assert_eq!(filled_bytes(1024, &program, &adapter), 1024);
        assert_eq!(filled_bytes(256, &adapter, &adapter), 256);
        assert_eq!(filled_bytes(4096, &program, &program), MOST_NOTE_BYTES);
    }
}
