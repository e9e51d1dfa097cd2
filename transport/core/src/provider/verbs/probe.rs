// SPDX-License-Identifier: MIT OR Apache-2.0
//! Exchanges the messages of path MTU discovery while a queue pair is made: requests and answers padded to the MTU, and
//! echoes if no answer comes. [`PathMtuProbe`](super::path_mtu::PathMtuProbe) decides what follows from them.

use session::CarrierState;

use super::error_text;
use super::links::VerbsLinks;
use super::path_mtu::{Miss, common_bytes, filled_bytes};
use super::port::VerbsPort;
use super::rail::PeerPath;
use super::wire::{self, LinkMessage, NOTE_BYTES};

impl<P: VerbsPort> VerbsLinks<P> {
    /// Largest MTU of a queue pair, as far as its two ports allow; `None`: the peer's address is unknown.
    pub(super) fn most_packet_bytes(&mut self, path: PeerPath) -> Option<u32> {
        self.usable_packet_bytes(path, u32::MAX)
    }

    /// Largest MTU of at most `bytes` bytes that both ports support; `None`: the peer's address is unknown.
    pub(super) fn usable_packet_bytes(&mut self, path: PeerPath, bytes: u32) -> Option<u32> {
        let ours = self.rails[path.at()].address();
        let theirs = self.peers.link(path)?.address?;
        Some(common_bytes(bytes, &ours, &theirs))
    }

    /// Requests a queue pair for a local end, with the path MTU found before, if any was.
    pub(super) fn request_connection(&mut self, path: PeerPath, end: u32) {
        let now_ns = self.schedule.now_ns;
        let most = self.most_packet_bytes(path);
        if let (Some(link), Some(most)) = (self.peers.link(path), most) {
            let again = link.path_mtu.begin(most, now_ns);
            let wants_echo = again && link.path_mtu.may_shrink();
            link.connection.connect(end, now_ns);
            let has_room = self.has_for_long_note();
            self.resend_note(path);
            if wants_echo && has_room {
                self.request_echo(path, false);
            }
        }
    }

    /// Whether there is a slot for a padded note. A note without a slot is lost, and an echo after it would falsely
    /// show a narrow path.
    fn has_for_long_note(&mut self) -> bool {
        self.sends.has_for_long_note(&mut self.rails)
    }

    /// Repeats the last note, which had no answer. If a smaller MTU may be tried, a repeated request is followed by an
    /// echo request, and after some tries only echo requests are sent: so a peer that has not polled for long does not
    /// find many long notes to process.
    pub(super) fn resend_with_echo(&mut self, path: PeerPath, attempts: u8) {
        let Some(link) = self.peers.link(path) else {
            return;
        };
        let wants_echo = link.is_connecting() && link.path_mtu.may_shrink();
        let alone = wants_echo && attempts > LONG_REQUESTS;
        let has_room = alone || self.has_for_long_note();
        if !alone {
            self.resend_note(path);
        }
        if wants_echo && has_room {
            self.request_echo(path, alone);
        }
    }

    fn request_echo(&mut self, path: PeerPath, alone: bool) {
        let Some(link) = self.peers.link(path) else {
            return;
        };
        link.path_mtu.awaits_echo(alone);
        let attempt = link.connection.attempt();
        self.send_echo(path, attempt, true);
    }

    fn send_echo(&mut self, path: PeerPath, attempt: u32, is_request: bool) {
        let Some(to) = self.destination_of(path) else {
            return;
        };
        let source = self.peers.of(path.peer).source_number;
        let note = wire::echo(source, attempt, is_request);
        let sends = &mut self.sends;
        self.rails
            .send_note(path.rail, to, (&note, NOTE_BYTES), sends);
        self.peers.arm(path.peer, self.schedule.now_ns);
    }

    /// Handles an echo: a request to send it back, or a reply.
    #[inline(never)]
    pub(super) fn take_echo(&mut self, path: PeerPath, attempt: u32, is_request: bool) {
        self.schedule.now_ns = self.rails.clock();
        let now_ns = self.schedule.now_ns;
        let has_room = self.has_for_long_note();
        let Some(remote) = self.peers.get_mut(path.peer) else {
            return;
        };
        remote.mark_alive();
        remote.last_rail = path.rail;
        let link = remote.link_mut(path.rail);
        if link.is_some_and(|link| link.mark_received(now_ns)) {
            self.peers.arm(path.peer, now_ns);
        }
        let Some(link) = self.peers.link(path) else {
            return;
        };
        if is_request {
            // The peer counts an echo that arrives without the answer to its request as a miss. If there is no slot for
            // a long note, the answer may be missing for that reason, so the echo is not sent back. An echo is not sent
            // back either if the peer's request is older than a pending request of ours: if ours succeeds, the peer's
            // needs no answer.
            let newest = link.connection.attempt();
            let is_old = is_newer(newest, attempt);
            if has_room && !(is_old && link.is_connecting()) {
                self.send_echo(path, if is_old { newest } else { attempt }, false);
            }
            return;
        }
        let CarrierState::Connecting { end } = link.connection.state() else {
            return;
        };
        let newest = link.connection.attempt();
        if is_newer(attempt, newest) {
            // The peer has made later attempts, whose requests did not arrive here: the next attempt gets a number
            // after theirs.
            link.connection.refuse(attempt);
            link.connection.connect(end, now_ns);
            return self.resend_with_echo(path, 0);
        }
        if attempt != newest {
            return;
        }
        match link.path_mtu.echo(now_ns) {
            Miss::Late => {}
            Miss::Again { after_ns } => {
                link.connection.resend_at(now_ns + after_ns);
                self.peers.arm(path.peer, now_ns);
            }
            Miss::Less => {
                // This begins a new attempt, because the peer may have connected an end with the larger MTU already.
                link.connection.connect(end, now_ns);
                self.resend_with_echo(path, 0);
            }
        }
    }

    /// Records the MTU of a queue pair; `requested`: this process has requested it.
    pub(super) fn agree(&mut self, path: PeerPath, packet_bytes: u32, requested: bool) {
        let now_ns = self.schedule.now_ns;
        let most = self.most_packet_bytes(path);
        let (Some(link), Some(most)) = (self.peers.link(path), most) else {
            return;
        };
        let is_new = requested && packet_bytes < most && link.path_mtu.is_doubted();
        link.path_mtu.agree(packet_bytes, most, now_ns);
        if is_new {
            self.counts.narrow.add(1);
            self.report_path_mtu(path, packet_bytes, most);
        }
    }

    /// Reports once that the path MTU is below that of both ports.
    #[cold]
    fn report_path_mtu(&mut self, path: PeerPath, packet_bytes: u32, most: u32) {
        let Some(ends) = self.ends_of(path) else {
            return;
        };
        let message = error_text::of_narrow_path(packet_bytes, most, &ends);
        self.notices.remark_on_path(message);
    }

    /// Length of a note on a path, in bytes: padded if it names a queue pair.
    pub(super) fn note_bytes(&self, path: PeerPath, message: &LinkMessage) -> usize {
        let (LinkMessage::Connect { end, .. } | LinkMessage::Accept { end, .. }) = message else {
            return NOTE_BYTES;
        };
        let ours = self.rails[path.at()].address();
        let remote = self.peers.get(path.peer);
        let theirs = remote.and_then(|remote| remote.link(path.rail)?.address);
        theirs.map_or(NOTE_BYTES, |theirs| {
            filled_bytes(end.packet_bytes, &ours, &theirs)
        })
    }
}

/// Whether attempt number `one` is later than `other`; the numbers wrap around.
fn is_newer(one: u32, other: u32) -> bool {
    one.wrapping_sub(other).cast_signed() > 0
}

/// After this many repetitions of a padded request without an answer, only echo requests are sent.
const LONG_REQUESTS: u8 = 2;

#[cfg(test)]
mod tests {
    use super::super::fake::FakePort;
    use super::super::{FakeConfig, FakeNet, NetLimits, Verbs};
    use super::*;
    use crate::{Completions, Head, Peer};

    const HEAD: Head = Head {
        kind: 1,
        len: 0,
        flags: 3,
        word: 9,
    };

    /// Two processes on ports with an MTU of 4096 bytes, which request a queue pair at the same time.
    fn two() -> (FakeNet, [Verbs<FakePort>; 2]) {
        let net = FakeNet::new(FakeConfig {
            packet_bytes: 4096,
            ..FakeConfig::calm(1)
        });
        let limits = NetLimits {
            datagrams_first: 0,
            ..NetLimits::DEFAULT
        };
        let mut both = [0, 1].map(|me| Verbs::open_on(&net, Peer(me), 2, 1, (limits, 7)));
        let records = [both[0].record(), both[1].record()];
        both[0].set_peer_address(Peer(1), &records[1]);
        both[1].set_peer_address(Peer(0), &records[0]);
        (net, both)
    }

    /// Both processes poll until the first one has connected a queue pair.
    fn until_joined(net: &FakeNet, both: &mut [Verbs<FakePort>; 2]) {
        let limit_ns = net.now_ns() + 5_000_000_000;
        let mut completions = Completions::new();
        while net.now_ns() < limit_ns {
            for verbs in &mut *both {
                verbs.poll(&mut completions);
            }
            if both[0].counts().joined.get() != 0 {
                return;
            }
            if !net.advance() {
                net.advance_until(net.now_ns() + 1_000_000);
            }
        }
        panic!("no queue pair");
    }

    #[test]
    fn a_refused_old_connect_attempt_does_not_reduce_the_mtu() {
        let (net, mut both) = two();
        let path = PeerPath { peer: 0, rail: 0 };
        // The peer is at attempt 9, and none of its requests has arrived.
        let link = both[1].streams.links.peers.link(path).unwrap();
        link.connection.refuse(9);
        both[0].post_send(Peer(1), HEAD, &[5; 40]).unwrap();
        until_joined(&net, &mut both);
        let path = PeerPath { peer: 1, rail: 0 };
        let link = both[0].streams.links.peers.link(path).unwrap();
        assert_eq!(link.connection.attempt(), 10);
        assert_eq!(link.packet_bytes(), Some(4096));
        assert_eq!(both[0].counts().narrow.get(), 0);
    }

    #[test]
    fn a_silent_peer_gets_a_full_connect_request_after_any_message() {
        let (net, mut both) = two();
        both[0].post_send(Peer(1), HEAD, &[5; 40]).unwrap();
        let mut completions = Completions::new();
        let path = PeerPath { peer: 1, rail: 0 };
        // The peer does not poll: after some requests for a queue pair, only echo requests are sent, at growing
        // intervals.
        while net.now_ns() < 1_000_000_000 {
            both[0].poll(&mut completions);
            net.advance_until(net.now_ns() + 1_000_000);
        }
        let links = &mut both[0].streams.links;
        links.take_echo(path, 0, true);
        let link = links.peers.link(path).unwrap();
        let soon_ns = net.now_ns() + 2_000_000;
        assert!(
            link.connection
                .deadline_ns()
                .is_some_and(|at| at <= soon_ns)
        );
        until_joined(&net, &mut both);
    }
}
