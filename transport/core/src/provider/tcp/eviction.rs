// SPDX-License-Identifier: MIT OR Apache-2.0
//! Chooses the connection that is closed for another one when the limit is reached, or when the system has no more
//! descriptors. An evicted connection is made again when it is needed, and nothing is lost. A connection over which
//! large data move is kept, though not for ever: a partly sent piece starts again with each connection, and might never
//! get through.

use std::io;

use super::links::TcpLinks;
use super::peer::TcpPeer;
use super::sockets::Sockets;

impl<S: Sockets> TcpLinks<S> {
    /// Closes rails, then the least recently used idle connections, until there are at most `most`. While there are
    /// more than twice the limit, connections over which something is in flight are closed too.
    pub(super) fn make_room(&mut self, most: usize) {
        while self.connections() > most && self.give_rail_up() {}
        while self.joined.len() > most {
            let is_far_above = self.joined.len() > self.limits.lines.saturating_mul(2);
            let old = || self.oldest_line(false).filter(|_| is_far_above);
            let Some(peer) = self.oldest_idle().or_else(old) else {
                return;
            };
            self.give_up(peer);
        }
    }

    /// Whether so many connections are new or move large data that new ones have to wait until some end.
    pub(super) fn is_full(&self) -> bool {
        let most = self.limits.lines.saturating_mul(2).max(1);
        let stays = |side: &&TcpPeer| {
            let is_new = side.line.as_ref().is_some_and(|it| it.is_new(self.now_ns));
            is_new || side.is_busy(self.now_ns)
        };
        let sides = self.joined.iter().filter_map(|peer| self.find(*peer));
        self.joined.len() >= most && sides.filter(stays).count() >= most
    }

    /// Closes the least useful connection to free its descriptor. Does not close connections of the attempt to connect
    /// to `but`. `false`: there is none to close, or all are new or move large data.
    pub(super) fn free_one(&mut self, but: Option<u32>) -> bool {
        if self.give_rail_up() {
            return true;
        }
        if let Some(silent) = self.unproven.take_silent(self.now_ns) {
            self.close(silent.stream.sock);
            return true;
        }
        if let Some(peer) = self.oldest_idle() {
            self.give_up(peer);
            return true;
        }
        let is_old = |peer: &u32| {
            let call = self.find(*peer).and_then(|side| side.call.as_ref());
            call.is_some_and(|call| call.has_socks() && call.lasts_ns(self.now_ns) >= HOLD_NS)
        };
        let oldest = self
            .calls
            .all()
            .find(|peer| but != Some(*peer) && is_old(peer));
        if let Some(peer) = oldest {
            self.release_connect(peer);
            return true;
        }
        let line = self.oldest_line(true);
        line.into_iter().for_each(|peer| self.give_up(peer));
        line.is_some()
    }

    /// The least recently used line over which nothing is in flight, and which is not new.
    fn oldest_idle(&self) -> Option<u32> {
        let used = |peer: &u32| {
            let side = self.find(*peer)?;
            let line = side.line.as_ref().filter(|line| line.is_idle())?;
            let is_quiet = side.session.oldest_unacknowledged().is_none() && !side.needs_line();
            let is_wanted = side.is_busy(self.now_ns) || line.is_new(self.now_ns);
            (is_quiet && !is_wanted).then_some((line.used, *peer))
        };
        Some(self.joined.iter().filter_map(used).min()?.1)
    }

    /// The least recently used line that is not new and moves no large data. If it is closed, what is in flight over it
    /// is sent again. `in_need`: whether connections over which nothing has arrived yet are candidates too, after
    /// [`HOLD_NS`].
    fn oldest_line(&self, in_need: bool) -> Option<u32> {
        let used = |peer: &u32| {
            let side = self.find(*peer)?;
            let line = side.line.as_ref()?;
            let is_old = self.now_ns.saturating_sub(line.since_ns) >= HOLD_NS;
            let is_new = !in_need && line.is_new(self.now_ns);
            (is_old && !is_new && !side.is_busy(self.now_ns)).then_some((line.used, *peer))
        };
        Some(self.joined.iter().filter_map(used).min()?.1)
    }

    fn give_up(&mut self, peer: u32) {
        // Received packets are acknowledged first, even if packets wait to be sent: else the peer would connect again
        // only to resend what it has not seen acknowledged.
        let side = self.find_mut(peer).filter(|side| side.owes);
        if let Some(line) = side.and_then(|side| side.line.as_mut()) {
            line.owes_ack = true;
            // An error does not matter, since the connection is closed next.
            let _ = self.send_some(peer, false);
        }
        if self.hang_up(peer) {
            self.counts.given_up.add(1);
        }
        // The new call is queued last, behind the call for which this connection makes room.
        if self.of(peer).needs_line() {
            self.call_later(peer);
        }
    }

    /// Handles that the system has no descriptor for another connection, and that no connection could be given up.
    pub(super) fn lack_descriptors(&mut self) {
        let message = "no descriptor is free for another connection: it is made when there is one again; a higher limit (ulimit -n) helps, \
                     or a smaller RMPI_NET_PAIRS";
        if !std::mem::replace(&mut self.has_reported_descriptors, true) {
            self.notices.complain(message.to_owned());
        }
        for peer in self.calls.lack(self.now_ns, HOLD_NS) {
            self.release_connect(peer);
        }
    }
}

/// Whether an error means that this process or the system has as many descriptors as it may have.
pub(super) fn is_without_descriptors(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EMFILE | libc::ENFILE))
}

/// For this long, a new connection or attempt is not closed for another one.
pub(super) const HOLD_NS: u64 = 100_000_000;
