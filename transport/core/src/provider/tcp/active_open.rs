// SPDX-License-Identifier: MIT OR Apache-2.0
//! Connecting to a peer: all its addresses are tried concurrently, and an address that fails is tried again later. The
//! first address that replies is sent a PROOF, and its WELCOME ends the attempt (messages: `proof.rs`).

use std::net::SocketAddr;

use super::handshake_stream::HandshakeStream;
use super::proof::{HandshakeContext, Hello};
use super::sockets::Sock;

/// The attempt to connect to a peer, at all of its addresses concurrently.
#[derive(Debug)]
pub(super) struct ActiveOpen {
    pub(super) tries: Vec<ConnectTry>,
    /// Index of the try that has sent its PROOF and waits for a WELCOME.
    pub(super) proving: Option<usize>,
    /// Start of the attempt's turn (see [`ConnectQueue`](super::connect_queue::ConnectQueue)).
    pub(super) since_ns: u64,
    /// Whether this process lacked a descriptor for a connection. If so, the failure is no evidence about the peer.
    pub(super) lacks: bool,
    /// `accepted_ns`: since when the peer's system has held an accepted connection. `proved_ns`: since when the try
    /// `proving` waits for a WELCOME.
    accepted_ns: Option<u64>,
    proved_ns: u64,
    /// Time up to which the silence of the peer was counted.
    pub(super) counted_ns: u64,
}

/// The attempt at one address of the peer.
#[derive(Debug)]
pub(super) struct ConnectTry {
    pub(super) address: SocketAddr,
    pub(super) stage: ConnectStage,
    /// Number of failures; `why` is the reason of the last.
    pub(super) failures: u8,
    pub(super) why: String,
    /// Number of consecutive refusals: the system at the address reported that nothing listens there, or another
    /// process replied.
    pub(super) refusals: u8,
}

/// The stage of a connection attempt.
#[derive(Debug)]
pub(super) enum ConnectStage {
    /// The address has failed, or was not tried yet: it is not tried before this time.
    Failed { again_at_ns: u64 },
    /// HELLO is sent as soon as the connection is established.
    Connecting {
        stream: HandshakeStream,
        hello: Hello,
        since_ns: u64,
    },
    /// Established; waits for RIDDLE.
    Greeted {
        stream: HandshakeStream,
        hello: Hello,
    },
    /// Waits for WELCOME.
    Proved {
        stream: HandshakeStream,
        context: HandshakeContext,
    },
}

impl ActiveOpen {
    pub(super) fn new(addresses: &[SocketAddr], now_ns: u64) -> Self {
        let again_at_ns = 0;
        let tries = addresses.iter().map(|address| ConnectTry {
            address: *address,
            stage: ConnectStage::Failed { again_at_ns },
            failures: 0,
            why: String::new(),
            refusals: 0,
        });
        Self {
            tries: tries.collect(),
            proving: None,
            since_ns: now_ns,
            lacks: false,
            accepted_ns: None,
            proved_ns: 0,
            counted_ns: now_ns,
        }
    }

    /// Sets the stage of the try `index`, and records when a try has begun to prove and when a connection was accepted.
    pub(super) fn has_come(&mut self, index: usize, stage: ConnectStage, now_ns: u64) {
        if matches!(stage, ConnectStage::Proved { .. }) && self.proving != Some(index) {
            self.proving = Some(index);
            self.proved_ns = now_ns;
        }
        self.tries[index].stage = stage;
        self.note_accepted(now_ns);
    }

    pub(super) fn note_accepted(&mut self, now_ns: u64) {
        let since_ns = self.accepted_ns.unwrap_or(now_ns);
        self.accepted_ns = self.is_accepted().then_some(since_ns);
    }

    /// Whether the peer's system has held an accepted connection for at most [`PROMISE_NS`]: the peer will probably
    /// reply.
    pub(super) fn is_promising(&self, now_ns: u64) -> bool {
        let for_ns = self.accepted_for_ns(now_ns);
        for_ns.is_some_and(|for_ns| for_ns <= PROMISE_NS)
    }

    /// For how long the peer's system has held an accepted connection; `None`: it holds none. A connection that is
    /// rejected immediately does not count: another process may be listening there.
    pub(super) fn accepted_for_ns(&self, now_ns: u64) -> Option<u64> {
        self.accepted_ns
            .map(|accepted_ns| now_ns.saturating_sub(accepted_ns))
    }

    /// The proving try, if it has waited too long for a WELCOME and other tries wait to prove instead.
    pub(super) fn proves_in_vain(&self, now_ns: u64) -> Option<usize> {
        let greeted = |one: &ConnectTry| matches!(one.stage, ConnectStage::Greeted { .. });
        let is_late = now_ns.saturating_sub(self.proved_ns) > PROMISE_NS;
        let has_others = is_late && self.tries.iter().any(greeted);
        self.proving.filter(|_| has_others)
    }

    /// Subtracts `passed_ns`, in which this process did not poll, from all durations.
    pub(super) fn skip_time(&mut self, passed_ns: u64) {
        self.since_ns += passed_ns;
        self.counted_ns += passed_ns;
        self.proved_ns += passed_ns;
        self.accepted_ns = self.accepted_ns.map(|accepted_ns| accepted_ns + passed_ns);
        for one in &mut self.tries {
            if let ConnectStage::Connecting { since_ns, .. } = &mut one.stage {
                *since_ns += passed_ns;
            }
        }
    }

    /// Duration of the attempt's turn so far.
    pub(super) fn lasts_ns(&self, now_ns: u64) -> u64 {
        now_ns.saturating_sub(self.since_ns)
    }

    pub(super) fn has_socks(&self) -> bool {
        self.socks().next().is_some()
    }

    /// Ends the attempt's turn: returns the connections to be closed. Those that the peer's system has accepted stay
    /// open: the peer handles them when it polls. If they were closed, the peer would find a dead connection beside
    /// each new one. Recorded failures stay recorded.
    pub(super) fn rest(&mut self) -> Vec<Sock> {
        self.fail_where(|stage| matches!(stage, ConnectStage::Connecting { .. }))
    }

    /// Ends the attempt's turn without keeping any connection: returns all of them, to be closed.
    pub(super) fn release_all(&mut self) -> Vec<Sock> {
        let socks = self.fail_where(|stage| stage.sock().is_some());
        (self.proving, self.accepted_ns) = (None, None);
        socks
    }

    fn fail_where(&mut self, ends: impl Fn(&ConnectStage) -> bool) -> Vec<Sock> {
        let mut socks = Vec::new();
        for one in self.tries.iter_mut().filter(|one| ends(&one.stage)) {
            socks.extend(one.stage.sock());
            one.stage = ConnectStage::Failed { again_at_ns: 0 };
        }
        socks
    }

    /// Whether nothing is left to be tried: the peer's system has accepted a connection at each address, and no try is
    /// proving while others wait for their turn to prove.
    pub(super) fn may_stand_aside(&self) -> bool {
        let waits_behind = self.proving.is_some() && self.tries.len() > 1;
        !waits_behind && self.tries.iter().all(|one| one.stage.is_accepted())
    }

    /// Whether the peer's system has accepted a connection. If so, only the peer's process has yet to reply.
    pub(super) fn is_accepted(&self) -> bool {
        self.tries.iter().any(|one| one.stage.is_accepted())
    }

    /// The connections of all tries.
    pub(super) fn socks(&self) -> impl Iterator<Item = Sock> {
        self.tries.iter().filter_map(|one| one.stage.sock())
    }

    /// Connections that the peer's system has accepted, with the indices of their addresses.
    pub(super) fn accepted(&self) -> Vec<(usize, Sock)> {
        let all = self.tries.iter().enumerate();
        let accepted = all.filter_map(|(index, one)| match &one.stage {
            ConnectStage::Greeted { stream, .. } | ConnectStage::Proved { stream, .. } => {
                Some((index, stream.sock))
            }
            _ => None,
        });
        accepted.collect()
    }

    /// The index of a connection's address.
    pub(super) fn of_sock(&self, sock: Sock) -> Option<usize> {
        let is_it = |one: &ConnectTry| one.stage.sock() == Some(sock);
        self.tries.iter().position(is_it)
    }

    /// Connections that were not established within [`CONNECT_NS`].
    pub(super) fn late(&self, now_ns: u64) -> Vec<Sock> {
        let late = self.tries.iter().filter_map(|one| match &one.stage {
            ConnectStage::Connecting {
                stream, since_ns, ..
            } if since_ns + CONNECT_NS <= now_ns => Some(stream.sock),
            _ => None,
        });
        late.collect()
    }

    /// Time at which a failed address is tried again or a connection times out, whichever comes first; `None`: neither
    /// will.
    pub(super) fn again_at_ns(&self) -> Option<u64> {
        let times = self.tries.iter().filter_map(|one| match one.stage {
            ConnectStage::Failed { again_at_ns } => Some(again_at_ns),
            ConnectStage::Connecting { since_ns, .. } => Some(since_ns + CONNECT_NS),
            _ => None,
        });
        times.min()
    }

    /// Records that the peer is not at an address: that host's system has refused, or another process has replied.
    /// `refusals`: number of consecutive refusals before this one.
    pub(super) fn note_refusal(&mut self, index: usize, refusals: u8) {
        self.tries[index].refusals = refusals.saturating_add(1);
    }

    /// Whether all addresses have been refused so often that the peer must have ended: a process listens until its end.
    pub(super) fn is_refused(&self) -> bool {
        self.tries.iter().all(|one| one.refusals >= CERTAIN)
    }

    /// Why the attempt does not succeed, for the user.
    pub(super) fn describe_failures(&self) -> String {
        let each = self.tries.iter().map(|one| match &*one.why {
            "" => one.address.to_string(),
            why => format!("{}: {why}", one.address),
        });
        each.collect::<Vec<_>>().join("; ")
    }
}

impl ConnectStage {
    fn is_accepted(&self) -> bool {
        matches!(self, Self::Greeted { .. } | Self::Proved { .. })
    }

    pub(super) fn sock(&self) -> Option<Sock> {
        match self {
            Self::Failed { .. } => None,
            Self::Connecting { stream, .. }
            | Self::Greeted { stream, .. }
            | Self::Proved { stream, .. } => Some(stream.sock),
        }
    }
}

impl ConnectTry {
    /// Marks a try as failed; returns its connection, which is to be closed.
    pub(super) fn fail(&mut self, why: String, now_ns: u64) -> Option<Sock> {
        let sock = self.stage.sock();
        self.failures = self.failures.saturating_add(1);
        self.why = why;
        self.refusals = 0;
        let pause_ns = FIRST_PAUSE_NS << self.failures.min(MOST_BACKOFF);
        self.stage = ConnectStage::Failed {
            again_at_ns: now_ns + pause_ns,
        };
        sock
    }
}

/// If an accepted connection has brought no reply for this long, it is doubtful whether the peer listens there.
const PROMISE_NS: u64 = 2_000_000_000;
/// A connection that is not established within this time is tried again.
pub(super) const CONNECT_NS: u64 = 5_000_000_000;
/// After this many consecutive refusals the peer has almost certainly ended. With their growing intervals they take ten
/// seconds.
const CERTAIN: u8 = 27;
const FIRST_PAUSE_NS: u64 = 1_000_000;
const MOST_BACKOFF: u8 = 9;

#[cfg(test)]
mod tests {
    use super::super::proof::PairKey;
    use super::super::secrets::StreamKey;
    use super::*;

    #[test]
    fn failed_connects_are_retried_with_backoff() {
        let address = "127.0.0.1:9".parse().unwrap();
        let mut call = ActiveOpen::new(&[address], 0);
        assert_eq!(call.again_at_ns(), Some(0));
        let mut last = 0;
        for _ in 0..12 {
            assert_eq!(call.tries[0].fail("no".to_owned(), 0), None);
            let again = call.again_at_ns().unwrap();
            assert!(again >= last && again <= 1_000_000_000);
            last = again;
        }
        assert_eq!(call.describe_failures(), "127.0.0.1:9: no");
        assert!(!call.is_accepted());
    }

    #[test]
    fn an_unanswered_connect_is_promising_for_a_limited_time() {
        let addresses = [7, 8].map(|port| SocketAddr::from(([127, 0, 0, 1], port)));
        let mut call = ActiveOpen::new(&addresses, 0);
        let hello = Hello {
            from: 1,
            to: 2,
            attempt: 3,
            welcomed: 4,
            is_rail: false,
            nonce: [5, 6],
        };
        let greeted = |sock| ConnectStage::Greeted {
            stream: HandshakeStream::new(sock),
            hello,
        };
        assert!(!call.is_promising(5));
        call.has_come(0, greeted(0), 5);
        assert!(!call.may_stand_aside(), "the other was not tried");
        assert!(call.is_promising(5 + PROMISE_NS));
        assert!(!call.is_promising(6 + PROMISE_NS));
        call.skip_time(1);
        assert!(call.is_promising(6 + PROMISE_NS));
        let context = HandshakeContext {
            keys: PairKey::new(StreamKey::new(1), StreamKey::new(1)),
            hello,
            nonce: [0; 2],
        };
        let stream = HandshakeStream::new(0);
        call.has_come(0, ConnectStage::Proved { stream, context }, 9);
        assert_eq!(call.proves_in_vain(10 + PROMISE_NS), None, "no other");
        call.has_come(1, greeted(1), 10);
        assert!(call.tries.iter().all(|one| one.stage.is_accepted()));
        assert_eq!(call.proves_in_vain(9 + PROMISE_NS), None);
        assert_eq!(call.proves_in_vain(10 + PROMISE_NS), Some(0));
        assert!(!call.may_stand_aside(), "one waits behind another");
        assert_eq!(call.rest(), []);
        assert!(call.is_promising(10), "they stay");
        assert_eq!(call.release_all(), [0, 1]);
        assert!(!call.is_promising(10) && !call.has_socks());
        (0..2).for_each(|index| call.has_come(index, greeted(7), 11));
        assert!(call.may_stand_aside());
    }
}
