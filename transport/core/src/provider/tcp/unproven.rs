// SPDX-License-Identifier: MIT OR Apache-2.0
//! Connections that are accepted but not authenticated. Their number and the time of each are limited, and each warning
//! is given once per host and reason.

use std::collections::HashSet;
use std::net::{IpAddr, SocketAddr};

use super::eviction::HOLD_NS;
use super::handshake_stream::HandshakeStream;
use super::proof::HandshakeContext;
use super::sockets::Sock;

/// A connection that was accepted and has not finished the handshake.
#[derive(Debug)]
pub(super) struct UnprovenConnection {
    pub(super) stream: HandshakeStream,
    pub(super) from: SocketAddr,
    pub(super) since_ns: u64,
    /// The peer that the caller claims to be, once its HELLO has arrived.
    pub(super) context: Option<(u32, HandshakeContext)>,
}

/// All connections that have not finished the handshake.
#[derive(Debug, Default)]
pub(super) struct UnprovenConnections {
    all: Vec<UnprovenConnection>,
    reported: HashSet<(IpAddr, &'static str)>,
    /// Since when connections have been closed to make room for others; `None`: none was closed, or there has been much
    /// room since the last one was closed.
    crowded_ns: Option<u64>,
}

impl UnprovenConnections {
    /// Whether there is room for one more connection, or one of the present connections may be closed for it.
    pub(super) fn has_room(&self, now_ns: u64) -> bool {
        self.all.len() < MOST_UNPROVEN || self.find_replaceable(now_ns).is_some()
    }

    /// Whether there is room for many more connections.
    pub(super) fn has_much_room(&self) -> bool {
        self.all.len() <= MOST_UNPROVEN / 2
    }

    /// The time from which one of the present connections may be closed for another; `None`: there are no connections.
    pub(super) fn replaceable_at_ns(&self) -> Option<u64> {
        let since_ns = self.all.iter().map(|one| one.since_ns).min();
        since_ns.map(|since_ns| since_ns + HOLD_NS)
    }

    /// Takes the connection that is to be closed for another, if there is no room otherwise.
    pub(super) fn take_for_another(&mut self, now_ns: u64) -> Option<UnprovenConnection> {
        if self.all.len() < MOST_UNPROVEN / 2 {
            self.crowded_ns = None;
        }
        let at = (self.all.len() >= MOST_UNPROVEN).then(|| self.find_replaceable(now_ns))??;
        self.crowded_ns.get_or_insert(now_ns);
        Some(self.all.swap_remove(at))
    }

    /// Whether connections have been closed for others for so long that the user should be warned. There is no
    /// immediate warning: when a large job begins, many ranks connect at the same time.
    pub(super) fn is_long_crowded(&self, now_ns: u64) -> bool {
        let is_long = |since_ns: u64| now_ns.saturating_sub(since_ns) > PATIENCE_NS;
        self.crowded_ns.is_some_and(is_long)
    }

    /// Takes a connection over which no HELLO has arrived although there was time for it.
    pub(super) fn take_silent(&mut self, now_ns: u64) -> Option<UnprovenConnection> {
        let at = self.find_replaceable(now_ns)?;
        self.all[at]
            .context
            .is_none()
            .then(|| self.all.swap_remove(at))
    }

    /// Considers only connections that are at least [`HOLD_NS`] old. Returns the index of the oldest one without a
    /// HELLO; if all have sent one, of the oldest.
    fn find_replaceable(&self, now_ns: u64) -> Option<usize> {
        let is_old = |one: &UnprovenConnection| now_ns.saturating_sub(one.since_ns) >= HOLD_NS;
        let old = self.all.iter().enumerate().filter(|(_, one)| is_old(one));
        let order = |(_, one): &(usize, &UnprovenConnection)| (one.context.is_some(), one.since_ns);
        Some(old.min_by_key(order)?.0)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    pub(super) fn add(&mut self, sock: Sock, from: SocketAddr, now_ns: u64) {
        self.all.push(UnprovenConnection {
            stream: HandshakeStream::new(sock),
            from,
            since_ns: now_ns,
            context: None,
        });
    }

    /// Takes the connection with this sock.
    pub(super) fn take(&mut self, sock: Sock) -> Option<UnprovenConnection> {
        let at = self.all.iter().position(|one| one.stream.sock == sock)?;
        Some(self.all.swap_remove(at))
    }

    pub(super) fn put_back(&mut self, caller: UnprovenConnection) {
        self.all.push(caller);
    }

    /// Takes a connection whose handshake has taken longer than [`PATIENCE_NS`].
    pub(super) fn take_late(&mut self, now_ns: u64) -> Option<UnprovenConnection> {
        let is_late = |one: &UnprovenConnection| now_ns.saturating_sub(one.since_ns) > PATIENCE_NS;
        let at = self.all.iter().position(is_late)?;
        Some(self.all.swap_remove(at))
    }

    /// Leaves `passed_ns`, for which this process did not poll, out of the time of all connections.
    pub(super) fn skip_time(&mut self, passed_ns: u64, now_ns: u64) {
        for one in &mut self.all {
            one.since_ns = (one.since_ns + passed_ns).min(now_ns);
        }
    }

    /// Whether to report `what` for this host: it was not reported before, and the table of reports is not full.
    /// Records the report.
    pub(super) fn is_first_report(&mut self, from: IpAddr, what: &'static str) -> bool {
        self.reported.len() < MOST_REPORTED && self.reported.insert((from, what))
    }
}

/// Maximum number of unauthenticated connections at a time; further ones wait in the system's queue.
const MOST_UNPROVEN: usize = 64;
/// Time for the handshake, after which the connection is closed.
pub(super) const PATIENCE_NS: u64 = 10_000_000_000;
const MOST_REPORTED: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_lasting_overcrowding_is_reported() {
        let from = SocketAddr::from(([127, 0, 0, 1], 9));
        let mut unproven = UnprovenConnections::default();
        let mut now_ns = 0;
        let mut crowd = |unproven: &mut UnprovenConnections, moments: u64| {
            for moment in 0..moments {
                now_ns += HOLD_NS;
                if let Some(evicted) = unproven.take_for_another(now_ns) {
                    assert!(now_ns - evicted.since_ns >= HOLD_NS);
                }
                unproven.add(Sock::try_from(moment).unwrap(), from, now_ns);
            }
            now_ns
        };
        let at_ns = crowd(&mut unproven, 160);
        assert!(!unproven.is_long_crowded(at_ns));
        let at_ns = crowd(&mut unproven, 8);
        assert!(unproven.is_long_crowded(at_ns));
        // These connections are gone: the time of the next crowd is counted anew.
        unproven.all.clear();
        let at_ns = crowd(&mut unproven, 70);
        assert!(!unproven.is_long_crowded(at_ns));
    }
}
