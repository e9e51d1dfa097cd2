// SPDX-License-Identifier: MIT OR Apache-2.0
//! Decides which frames are deferred: those of a program that starts many sends in a row, a *burst*, and waits for them
//! later. The first frames of a burst to a peer leave at once: eight, or one if a long burst to this peer has just ended.
//! The next ones are deferred: they leave when there are enough of them, with the next frame that is not deferrable, or
//! with the next poll. This poll ends the burst. Polls between two sends of the burst neither send them nor end it. A
//! pause of 0.1 ms ends it too.
//!
//! Deferred short frames share a packet, the *open* one at the end of their peer's stream (`frame_list.rs`).

/// The bursts of a process. Only those to some peers of late are known; another peer may take the place of one of them,
/// for which a new burst begins then.
#[derive(Debug)]
pub(super) struct FrameBursts {
    recent: Box<[FrameBurst; RECENT_PEERS as usize]>,
    /// Number of unacknowledged packets to a peer from which on no further packet is opened.
    most_packets: u32,
    /// Whether frames were deferred since the last poll that was not between two sends.
    has_deferred: bool,
    polls_between_sends: u64,
    /// Whether the poll in progress, or the next one, is between two sends.
    is_between_sends: bool,
}

/// The deferrable frames of a burst of sends to a peer.
#[derive(Clone, Copy, Debug)]
struct FrameBurst {
    peer: u32,
    /// Number of the burst, truncated.
    number: u32,
    /// Time of the last frame from number `first_frames` on, in units of 1024 ns, truncated.
    last: u32,
    /// Number of frames; from some number on only modulo [`MOST_DEFERRED`].
    frames: u16,
    /// Number of frames that are not deferred.
    first_frames: u16,
    /// Length of the open packet; 0: there is none.
    open_bytes: u16,
    /// Number of the open packet.
    open: u32,
}

/// The packet to which further frames may be added.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct OpenPacket {
    /// Number of the packet in its stream.
    pub(super) number: u32,
    /// Its length in bytes, as its owner counts it; not 0.
    pub(super) bytes: u16,
}

impl FrameBurst {
    /// The burst with number 0 of a peer that does not exist.
    const NONE: Self = Self {
        peer: u32::MAX,
        number: 0,
        last: 0,
        frames: 0,
        first_frames: FIRST_FRAMES,
        open_bytes: 0,
        open: 0,
    };
}

impl FrameBursts {
    /// For a job of `peers` processes.
    pub(super) fn new(peers: u32) -> Self {
        Self {
            recent: Box::new([FrameBurst::NONE; RECENT_PEERS as usize]),
            most_packets: (MOST_OPENED / peers.max(1)).min(MOST_PACKETS),
            has_deferred: false,
            polls_between_sends: 0,
            is_between_sends: false,
        }
    }

    /// Counts a deferrable frame to a peer, after `polls` polls. `true`: it is to be deferred.
    #[inline(always)]
    pub(super) fn count(&mut self, peer: u32, polls: u64, clock_ns: impl FnOnce() -> u64) -> bool {
        let number = self.number(polls);
        let burst = &mut self.recent[place(peer)];
        if burst.peer != peer {
            *burst = FrameBurst {
                peer,
                ..FrameBurst::NONE
            };
        }
        if burst.number != number {
            burst.first_frames = match burst.frames < MOST_DEFERRED {
                true => FIRST_FRAMES,
                false => FIRST_AFTER_LONG,
            };
            (burst.number, burst.frames) = (number, 0);
        }
        burst.frames = match burst.frames {
            u16::MAX => u16::MAX - MOST_DEFERRED + 1,
            frames => frames + 1,
        };
        if burst.frames < burst.first_frames {
            return false;
        }
        #[allow(
            clippy::cast_possible_truncation,
            reason = "only the difference is used"
        )]
        let now = (clock_ns() / UNIT_NS) as u32;
        let before = std::mem::replace(&mut burst.last, now);
        if burst.frames == burst.first_frames {
            let follows_long = burst.first_frames == FIRST_AFTER_LONG;
            if follows_long && now.wrapping_sub(before) > LONG_AGO_UNITS {
                burst.first_frames = FIRST_FRAMES;
            }
            return false;
        }
        if now.wrapping_sub(before) > PAUSE_UNITS {
            (burst.frames, burst.first_frames) = (1, FIRST_FRAMES);
            return false;
        }
        self.has_deferred = true;
        true
    }

    /// Whether a packet to a peer may be opened that has this many unacknowledged packets.
    #[inline]
    pub(super) fn may_open(&self, packets: u32) -> bool {
        packets < self.most_packets
    }

    /// Whether frames may be deferred now.
    #[inline(always)]
    pub(super) fn has_deferred(&self) -> bool {
        self.has_deferred
    }

    /// Whether the deferred frames to a peer are sent now, because there are many: the peer can handle them meanwhile.
    #[inline(always)]
    pub(super) fn is_much(&self, peer: u32) -> bool {
        let burst = &self.recent[place(peer)];
        burst.peer == peer && burst.frames.is_multiple_of(MOST_DEFERRED)
    }

    /// Whether frames to a peer are deferred, after `polls` polls.
    pub(super) fn is_deferring(&self, peer: u32, polls: u64) -> bool {
        let burst = &self.recent[place(peer)];
        burst.peer == peer
            && burst.number == self.number(polls)
            && burst.frames > burst.first_frames
    }

    /// The open packet to a peer.
    #[inline(always)]
    pub(super) fn open(&self, peer: u32) -> Option<OpenPacket> {
        let burst = &self.recent[place(peer)];
        (burst.peer == peer && burst.open_bytes != 0).then_some(OpenPacket {
            number: burst.open,
            bytes: burst.open_bytes,
        })
    }

    /// Records the open packet to a peer whose frame was [counted](Self::count) last.
    #[inline(always)]
    pub(super) fn set_open(&mut self, peer: u32, packet: OpenPacket) {
        let burst = &mut self.recent[place(peer)];
        debug_assert_eq!(burst.peer, peer, "its frame was counted last");
        (burst.open, burst.open_bytes) = (packet.number, packet.bytes);
    }

    /// Records that a packet to a peer was sent, or that its first bytes were: no frame may be added to it any more.
    #[inline(always)]
    pub(super) fn sent(&mut self, peer: u32, number: u32) {
        let burst = &mut self.recent[place(peer)];
        if burst.peer == peer && burst.open == number {
            burst.open_bytes = 0;
        }
    }

    /// Announces a poll between two sends.
    pub(super) fn begin_poll_between_sends(&mut self) {
        self.is_between_sends = true;
    }

    /// Ends a poll, which was counted in `polls`; returns whether it was between two sends.
    #[inline(always)]
    pub(super) fn end_poll(&mut self) -> bool {
        let is_between_sends = std::mem::take(&mut self.is_between_sends);
        self.polls_between_sends += u64::from(is_between_sends);
        self.has_deferred &= is_between_sends;
        is_between_sends
    }

    /// Number of the burst after `polls` polls, truncated: of the polls so far that were not between two sends.
    #[inline(always)]
    #[allow(clippy::cast_possible_truncation, reason = "only compared")]
    fn number(&self, polls: u64) -> u32 {
        (polls - self.polls_between_sends) as u32
    }
}

#[inline(always)]
fn place(peer: u32) -> usize {
    (peer % RECENT_PEERS) as usize
}

/// Number of frames of a burst to a peer that are not deferred. A program that starts a few sends to each peer, and
/// then computes, expects them to arrive meanwhile.
const FIRST_FRAMES: u16 = 8;
/// The same after a burst of at least [`MOST_DEFERRED`] frames. If this burst is as long, its frames leave before the
/// program waits for them. The first one shows the peer that more will come.
const FIRST_AFTER_LONG: u16 = 1;
/// A burst that ended longer ago than this has no effect on the next one: the program does not send all the time.
const LONG_AGO_UNITS: u32 = 1000;
/// The deferred frames of a burst are sent whenever it has another this many frames.
const MOST_DEFERRED: u16 = 64;
/// A pause of this length between two sends ends a burst: a program that computes between its sends expects them to
/// arrive meanwhile.
const PAUSE_UNITS: u32 = 100;
const UNIT_NS: u64 = 1 << 10;
/// Frames may arrive before their receives are posted, and a receiver stores a limited number of them. A sender learns
/// of that limit when it has filled its window, so all senders together open at most this many packets of
/// [`MOST_DEFERRED`] frames.
const MOST_OPENED: u32 = 1 << 12;
/// No packet is opened beyond this number of unacknowledged packets to its peer.
const MOST_PACKETS: u32 = 32;
/// Number of peers whose bursts are known at a time.
const RECENT_PEERS: u32 = 64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_frames_of_each_burst_are_not_deferred() {
        let mut bursts = FrameBursts::new(2);
        for polls in [7, 1 << 32 | 8] {
            for peer in [3, 4] {
                let deferred = (0..20).filter(|_| bursts.count(peer, polls, || 0)).count();
                assert_eq!(deferred, 20 - usize::from(FIRST_FRAMES));
                assert!(bursts.is_deferring(peer, polls) && !bursts.is_deferring(peer, polls + 1));
            }
        }
        (0..=u16::MAX).for_each(|_| _ = bursts.count(3, 9, || 0));
        assert!(bursts.count(3, 9, || 0), "the count goes on");
        let times = (0..640).filter(|_| bursts.count(3, 9, || 0) && bursts.is_much(3));
        assert_eq!(times.count(), 10);
    }

    #[test]
    fn after_a_long_burst_the_second_frame_is_deferred_already() {
        let mut bursts = FrameBursts::new(2);
        let lengths = [64, 63, 20, 640, 64, 2, 20];
        let deferred = (0..).zip(lengths).map(|(polls, frames)| {
            let frames = (0..frames).filter(|_| bursts.count(3, polls, || 0));
            frames.count()
        });
        let wanted = [64 - 8, 63 - 1, 20 - 8, 640 - 8, 64 - 1, 2 - 1, 20 - 8];
        assert!(deferred.eq(wanted));
        (0..64).for_each(|_| _ = bursts.count(3, 10, || 0));
        assert!(!bursts.count(3, 11, || 0));
        assert!(!bursts.count(3, 11, || 200_000), "a pause");
        assert!(!bursts.count(3, 11, || 200_000), "the burst was short");
        (0..64).for_each(|_| _ = bursts.count(3, 12, || 0));
        let late = (0..20).filter(|_| bursts.count(3, 13, || 2_000_000));
        assert_eq!(late.count(), 20 - 8, "the long burst was long ago");
    }

    #[test]
    fn a_poll_between_sends_does_not_end_a_burst() {
        let mut bursts = FrameBursts::new(2);
        (0..8).for_each(|_| _ = bursts.count(3, 1, || 0));
        assert!(!bursts.has_deferred());
        assert!(bursts.count(3, 1, || 0) && bursts.has_deferred());
        bursts.begin_poll_between_sends();
        assert!(bursts.end_poll() && bursts.has_deferred());
        assert!(
            bursts.count(3, 2, || 0),
            "the second poll was between sends"
        );
        assert!(!bursts.end_poll() && !bursts.has_deferred());
        assert!(!bursts.count(3, 3, || 0));
    }

    #[test]
    fn a_packet_that_was_sent_is_not_open() {
        let mut bursts = FrameBursts::new(2);
        bursts.count(1, 0, || 0);
        let packet = OpenPacket {
            number: 5,
            bytes: 100,
        };
        bursts.set_open(1, packet);
        bursts.sent(1, 4);
        bursts.sent(1 + RECENT_PEERS, 5);
        assert_eq!(bursts.open(1), Some(packet), "another packet was sent");
        assert_eq!(bursts.open(1 + RECENT_PEERS), None);
        bursts.sent(1, 5);
        assert_eq!(bursts.open(1), None);
        bursts.set_open(1, packet);
        bursts.count(1 + RECENT_PEERS, 0, || 0);
        assert_eq!(bursts.open(1), None, "another peer has its place");
    }

    #[test]
    fn a_pause_ends_a_burst() {
        let mut bursts = FrameBursts::new(2);
        (0..7).for_each(|_| _ = bursts.count(3, 1, || unreachable!("not deferred")));
        assert!(!bursts.count(3, 1, || 5 << 40));
        assert!(bursts.count(3, 1, || 5 << 40) && bursts.count(3, 1, || (5 << 40) + 50_000));
        assert!(!bursts.count(3, 1, || (5 << 40) + 200_000), "a pause");
        let deferred = (0..20).filter(|_| bursts.count(3, 1, || (5 << 40) + 200_000));
        assert_eq!(deferred.count(), 20 - usize::from(FIRST_FRAMES) + 1);
    }

    #[test]
    fn all_senders_of_a_large_job_together_open_few_packets() {
        let most = |peers| (0..64).filter(move |at| FrameBursts::new(peers).may_open(*at));
        let counts = [1, 100, 1024, 10_000].map(|peers| most(peers).count());
        assert_eq!(counts, [32, 32, 4, 0]);
    }
}
