// SPDX-License-Identifier: MIT OR Apache-2.0
//! How long packets may be on the way to a peer. Each end knows what its own port carries, and nobody what is between: a switch or a
//! tunnel that carries less drops longer packets without a word. So whoever asks for a queue pair fills its note up to the size of packet
//! that it wants, and the answer is as long: where both arrive, packets of that size do, in both directions, and both ends use it.
//! Nothing more is sent for that.
//!
//! A note that has no answer was lost, was too long, or its peer computes and has not looked. To tell these apart a short note follows
//! an ask that is said again, which whoever polls sends back ([`WireMessage::Echo`](super::wire::WireMessage)); after some in vain it goes
//! alone. An echo without the answer to the ask before it is a *miss*. After [`MOST_MISSES`] in a row the next attempt wants half
//! the size, down to 256 bytes; a peer that sends no echo costs no size however long it is silent. With a fifth of all packets
//! lost, an ask and its answer come through with 0.64, an echo without them with 0.23: a size is given up by chance in one of 200
//! cases where the first ask was lost, one of 600 in all; with a tenth lost, one of 8000.
//!
//! What was found stays with the link: the next queue pair begins there, since most break for other reasons, and finds out by itself if
//! it is too much by now. After [`KNOWN_MINUTES`] it begins with all that the ports carry, since ways are mended too.
//!
//! On the wire a note is filled to be as long as the longest packet of a queue pair of that size. Adapters send and take no datagrams that
//! carry more than a packet, so between these it is 8 bytes shorter than a write (DETH and RETH): a way whose limit lies within
//! these 8 bytes is not recognized. None is known: for packets of 4096 bytes it would carry 4148 to 4155 bytes from the header of
//! IPv4 on, for 1024 bytes 1076 to 1083.

use super::address::PortAddress;

/// The size of packets to one port of a peer. Four bytes, since every link has one, and a process may have thousands of peers.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Path {
    /// What a packet carries, as far as is known, as a power of two; 0: nobody has asked.
    power: u8,
    /// Echoes without an answer to the ask before, in a row.
    misses: u8,
    asked: PathQuery,
    /// The [`minute`] since which it is less than both ports carry; 0: it is not.
    less_since: u8,
}

/// The last unanswered question about a path.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum PathQuery {
    /// Nothing.
    #[default]
    Nothing,
    /// For a queue pair; no echo is awaited.
    Pair,
    /// For a queue pair and then for an echo: if that comes first, the ask was lost or too long, or its answer was.
    PairAndEcho,
    /// For an echo alone, long after the queue pair: any sign of the peer says that it looks again.
    Life,
}

/// What follows from an echo that came before the answer to an ask.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Miss {
    /// Nothing.
    Late,
    /// The same is asked again after this time.
    Again { after_ns: u64 },
    /// Packets of this size do not arrive: the next attempt wants half of it.
    Less,
}

impl Path {
    /// What packets carry at most, of a port that says so much.
    #[inline]
    pub(super) fn limit(&self, port_bytes: u32) -> u32 {
        match self.power {
            0 => port_bytes,
            power => port_bytes.min(1 << power),
        }
    }

    /// A queue pair is asked for, between ports that carry `most` bytes. `true`: as one was before, which nobody has answered.
    /// Ports that go down, and other links that are taken instead, end attempts sooner than it takes to find a size: misses are
    /// counted through.
    pub(super) fn begin(&mut self, most: u32, now_ns: u64) -> bool {
        let (asked, before) = (self.asked, self.power);
        let most = power_of(most);
        if self.less_since == 0 || minutes_since(self.less_since, now_ns) >= KNOWN_MINUTES {
            (self.power, self.less_since) = (most, 0);
        }
        self.power = self.power.min(most);
        let is_same = asked != PathQuery::Nothing && self.power == before;
        if !is_same {
            self.misses = 0;
        }
        self.asked = PathQuery::Pair;
        is_same
    }

    /// The peer has answered, and wants none.
    pub(super) fn refused(&mut self) {
        (self.misses, self.asked) = (0, PathQuery::Nothing);
    }

    /// A queue pair has packets of so many bytes, between ports that carry `most`.
    pub(super) fn agree(&mut self, bytes: u32, most: u32, now_ns: u64) {
        let power = power_of(bytes);
        let is_known = self.less_since != 0 && self.power == power;
        if bytes >= most {
            self.less_since = 0;
        } else if !is_known {
            self.less_since = minute(now_ns);
        }
        self.power = power;
        (self.misses, self.asked) = (0, PathQuery::Nothing);
    }

    /// Whether an echo says anything about the ask that was just said: a shorter one cannot be had.
    pub(super) fn may_shrink(&self) -> bool {
        self.power > LEAST_POWER
    }

    /// Whether there were echoes without an answer.
    pub(super) fn is_doubted(&self) -> bool {
        self.misses != 0 || self.less_since != 0
    }

    /// An echo is asked for; `alone`: not behind an ask.
    pub(super) fn awaits_echo(&mut self, alone: bool) {
        self.asked = match alone {
            true => PathQuery::Life,
            false => PathQuery::PairAndEcho,
        };
    }

    /// Something of the peer has come. `true`: it was only asked for an echo, since it seemed to look no more.
    pub(super) fn shows_life(&mut self) -> bool {
        let awaited = self.asked == PathQuery::Life;
        if awaited {
            self.asked = PathQuery::Pair;
        }
        awaited
    }

    /// An echo has come, and no answer to an ask.
    pub(super) fn echo(&mut self, now_ns: u64) -> Miss {
        if self.asked != PathQuery::PairAndEcho || !self.may_shrink() {
            return Miss::Late;
        }
        self.asked = PathQuery::Pair;
        self.misses += 1;
        if self.misses < MOST_MISSES {
            let after_ns = FIRST_PAUSE_NS << (self.misses - 1);
            return Miss::Again { after_ns };
        }
        self.power -= 1;
        (self.misses, self.less_since) = (0, minute(now_ns));
        Miss::Less
    }
}

/// The number of a minute, of 255 that follow each other again and again, from 1 on.
fn minute(now_ns: u64) -> u8 {
    u8::try_from(now_ns / MINUTE_NS % MINUTES + 1).unwrap_or(1)
}

/// How many minutes have begun since one, or so many less than all of a round.
fn minutes_since(minute_then: u8, now_ns: u64) -> u64 {
    (u64::from(minute(now_ns)) + MINUTES - u64::from(minute_then)) % MINUTES
}

/// Which power of two packets of so many bytes are.
fn power_of(bytes: u32) -> u8 {
    let power = bytes.max(1).ilog2();
    u8::try_from(power).map_or(MOST_POWER, |power| power.clamp(LEAST_POWER, MOST_POWER))
}

/// Bytes of a note that shows that packets of `packet_bytes` arrive.
pub(super) fn filled_bytes(packet_bytes: u32, one: &PortAddress, other: &PortAddress) -> usize {
    let more = match one.is_program() && other.is_program() {
        true => MORE_BYTES,
        false => 0,
    };
    packet_bytes as usize + more
}

/// Packets are never shorter, and none are longer: 256 bytes and 4096.
const LEAST_POWER: u8 = 8;
const MOST_POWER: u8 = 12;
/// So many bytes more than a packet carries a note between two programs has at most.
pub(super) const MORE_BYTES: usize = roce::format::DATAGRAM_BYTES_MORE;
/// Bytes of the longest note.
pub(super) const MOST_NOTE_BYTES: usize = (1 << MOST_POWER) + MORE_BYTES;
/// Echoes without an answer after which a size is given up.
const MOST_MISSES: u8 = 4;
/// After the first of them the ask is said again after this time, after each further one twice as late: losses come in bursts.
const FIRST_PAUSE_NS: u64 = 5_000_000;
/// That less arrives than ports carry is believed for ten minutes, as RFC 8899 has it (`PMTU_RAISE_TIMER`).
const KNOWN_MINUTES: u64 = 10;
const MINUTE_NS: u64 = 60_000_000_000;
/// Minutes of a round.
const MINUTES: u64 = 255;

const _: () = assert!(size_of::<Path>() == 4);

#[cfg(test)]
mod tests {
    use super::super::address::LinkLayer;
    use super::*;

    const KNOWN_NS: u64 = KNOWN_MINUTES * MINUTE_NS;

    /// Echoes come without answers until the size is given up; how many.
    fn give_up(path: &mut Path, now_ns: u64) -> u32 {
        for count in 1..=10 {
            path.awaits_echo(false);
            if path.echo(now_ns) == Miss::Less {
                return count;
            }
        }
        panic!("it is never given up");
    }

    #[test]
    fn nothing_is_known_before_somebody_asks() {
        let mut path = Path::default();
        assert_eq!(path.limit(4096), 4096);
        path.begin(2048, 5);
        assert_eq!((path.limit(4096), path.is_doubted()), (2048, false));
    }

    #[test]
    fn a_size_is_given_up_after_some_misses_and_the_least_never() {
        let mut path = Path::default();
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
    fn the_pauses_grow_and_an_echo_counts_once() {
        let mut path = Path::default();
        path.begin(4096, 5);
        assert_eq!(path.echo(6), Miss::Late, "nobody has asked for it");
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
    fn what_was_found_is_kept_for_a_while() {
        let mut path = Path::default();
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
    fn minutes_are_counted_in_rounds() {
        for began in [0, 1, 254, 255, 256, 1000] {
            let mut path = Path::default();
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
    fn a_port_that_carries_less_now_is_no_finding() {
        let mut path = Path::default();
        path.begin(4096, 5);
        path.agree(4096, 4096, 6);
        path.begin(512, 7);
        assert_eq!((path.limit(4096), path.is_doubted()), (512, false));
        path.begin(2048, 8);
        assert_eq!(path.limit(4096), 2048);
    }

    #[test]
    fn between_programs_a_note_is_as_long_as_the_longest_packet() {
        let program = PortAddress {
            link: LinkLayer::Ethernet,
            lid: 4791,
            number: 1,
            packet_bytes: 4096,
            gid: [0; 16],
        };
        let adapter = PortAddress { lid: 0, ..program };
        assert_eq!(filled_bytes(1024, &program, &program), 1036);
        assert_eq!(filled_bytes(1024, &program, &adapter), 1024);
        assert_eq!(filled_bytes(256, &adapter, &adapter), 256);
        assert_eq!(filled_bytes(4096, &program, &program), MOST_NOTE_BYTES);
    }
}
