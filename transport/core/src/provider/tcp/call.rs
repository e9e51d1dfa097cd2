// SPDX-License-Identifier: MIT OR Apache-2.0
//! Connecting to a peer: all its addresses are tried at once, and each again when it fails. The first that answers is asked for a
//! welcome, and with that the call ends.

use std::net::SocketAddr;

use super::proof::{Hello, Meeting};
use super::sockets::Sock;
use super::talk::Talk;

/// A call to a peer.
#[derive(Debug)]
pub(super) struct Call {
    pub(super) tries: Vec<Try>,
    /// The one that has proved the key and waits for a welcome.
    pub(super) proving: Option<usize>,
    /// Since when it has its turn.
    pub(super) since_ns: u64,
    /// There was no descriptor for it: that says nothing about the peer.
    pub(super) lacks: bool,
}

/// One of its addresses.
#[derive(Debug)]
pub(super) struct Try {
    pub(super) address: SocketAddr,
    pub(super) stage: Stage,
    /// How often it failed, and why the last time.
    pub(super) failures: u8,
    pub(super) why: String,
}

/// How far it is.
#[derive(Debug)]
pub(super) enum Stage {
    /// It failed: not before this time again.
    Failed { again_at_ns: u64 },
    /// HELLO is sent as soon as there is a connection.
    Connecting {
        talk: Talk,
        hello: Hello,
        since_ns: u64,
    },
    /// There is one; a RIDDLE is to come.
    Greeted { talk: Talk, hello: Hello },
    /// A WELCOME is to come.
    Proved { talk: Talk, meeting: Meeting },
}

impl Call {
    pub(super) fn new(addresses: &[SocketAddr], now_ns: u64) -> Self {
        let again_at_ns = 0;
        let tries = addresses.iter().map(|address| Try {
            address: *address,
            stage: Stage::Failed { again_at_ns },
            failures: 0,
            why: String::new(),
        });
        Self {
            tries: tries.collect(),
            proving: None,
            since_ns: now_ns,
            lacks: false,
        }
    }

    /// For how long it has had its turn.
    pub(super) fn lasts_ns(&self, now_ns: u64) -> u64 {
        now_ns.saturating_sub(self.since_ns)
    }

    pub(super) fn has_socks(&self) -> bool {
        self.socks().next().is_some()
    }

    /// It waits for its turn: answers its connections, which are to be closed. What has failed is remembered.
    pub(super) fn rest(&mut self) -> Vec<Sock> {
        let socks = self.socks().collect();
        for one in &mut self.tries {
            one.stage = Stage::Failed { again_at_ns: 0 };
        }
        self.proving = None;
        socks
    }

    /// Whether the peer's system has taken a connection: then it is only a matter of time.
    pub(super) fn is_heard(&self) -> bool {
        let is_heard =
            |stage: &Stage| matches!(stage, Stage::Greeted { .. } | Stage::Proved { .. });
        self.tries.iter().any(|one| is_heard(&one.stage))
    }

    /// Connections of it.
    pub(super) fn socks(&self) -> impl Iterator<Item = Sock> {
        self.tries.iter().filter_map(|one| one.stage.sock())
    }

    /// The address of a connection, by its number in the call.
    pub(super) fn of_sock(&self, sock: Sock) -> Option<usize> {
        let is_it = |one: &Try| one.stage.sock() == Some(sock);
        self.tries.iter().position(is_it)
    }

    /// When something is to be tried again.
    pub(super) fn again_at_ns(&self) -> Option<u64> {
        let times = self.tries.iter().filter_map(|one| match one.stage {
            Stage::Failed { again_at_ns } => Some(again_at_ns),
            Stage::Connecting { since_ns, .. } => Some(since_ns + CONNECT_NS),
            _ => None,
        });
        times.min()
    }

    /// Why it does not succeed, for people.
    pub(super) fn words(&self) -> String {
        let each = self.tries.iter().map(|one| match &*one.why {
            "" => one.address.to_string(),
            why => format!("{}: {why}", one.address),
        });
        each.collect::<Vec<_>>().join("; ")
    }
}

impl Stage {
    pub(super) fn sock(&self) -> Option<Sock> {
        match self {
            Self::Failed { .. } => None,
            Self::Connecting { talk, .. }
            | Self::Greeted { talk, .. }
            | Self::Proved { talk, .. } => Some(talk.sock),
        }
    }
}

impl Try {
    /// It failed; answers the connection, which is to be closed.
    pub(super) fn fail(&mut self, why: String, now_ns: u64) -> Option<Sock> {
        let sock = self.stage.sock();
        self.failures = self.failures.saturating_add(1);
        self.why = why;
        let pause_ns = FIRST_PAUSE_NS << self.failures.min(MOST_BACKOFF);
        self.stage = Stage::Failed {
            again_at_ns: now_ns + pause_ns,
        };
        sock
    }
}

/// A connection that is not there after so much time is tried again.
pub(super) const CONNECT_NS: u64 = 5_000_000_000;
const FIRST_PAUSE_NS: u64 = 1_000_000;
const MOST_BACKOFF: u8 = 9;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_fails_is_tried_again_ever_more_slowly() {
        let address = "127.0.0.1:9".parse().unwrap();
        let mut call = Call::new(&[address], 0);
        assert_eq!(call.again_at_ns(), Some(0));
        let mut last = 0;
        for _ in 0..12 {
            assert_eq!(call.tries[0].fail("no".to_owned(), 0), None);
            let again = call.again_at_ns().unwrap();
            assert!(again >= last && again <= 1_000_000_000);
            last = again;
        }
        assert_eq!(call.words(), "127.0.0.1:9: no");
        assert!(!call.is_heard());
    }
}
