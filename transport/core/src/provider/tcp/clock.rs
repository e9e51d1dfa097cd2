// SPDX-License-Identifier: MIT OR Apache-2.0
//! Timers: they repeat connection attempts, close unauthenticated connections whose time is over, give up peers that
//! cannot be reached, and break connections that the network has cut.

use std::io;
use std::time::Duration;

use super::active_open::ActiveOpen;
use super::links::TcpLinks;
use super::rails::STALL_NS;
use super::sockets::{Sock, Sockets};

impl<S: Sockets> TcpLinks<S> {
    /// Runs the timers that are due.
    pub(super) fn run_timers(&mut self) {
        let before_ns = std::mem::replace(&mut self.now_ns, self.sockets.clock_ns());
        let passed_ns = self.now_ns.saturating_sub(before_ns);
        if passed_ns > AWAY_NS {
            self.unproven.skip_time(passed_ns, self.now_ns);
            for index in 0..self.calls.under_way().len() {
                let peer = self.calls.under_way()[index];
                let call = self.find_mut(peer).and_then(|side| side.call.as_mut());
                if let Some(call) = call {
                    call.skip_time(passed_ns);
                }
            }
            for index in 0..self.joined.len() {
                let peer = self.joined[index];
                let line = self.find_mut(peer).and_then(|side| side.line.as_mut());
                if let Some(line) = line {
                    line.skip_time(passed_ns);
                }
            }
        }
        if !self.railed.is_empty() {
            let away_ns = if passed_ns > STALL_NS { passed_ns } else { 0 };
            self.check_rails(away_ns);
        }
        for peer in self.calls.under_way().to_vec() {
            self.check_connect(peer);
        }
        self.take_turns();
        while let Some(caller) = self.unproven.take_late(self.now_ns) {
            // The user is not warned: the caller may just be computing.
            self.close(caller.stream.sock);
        }
        self.resume_accepting();
        let is_above = self.joined.len() > self.limits.lines;
        if is_above && self.now_ns.saturating_sub(self.trimmed_ns) > TRIM_NS {
            self.trimmed_ns = self.now_ns;
            self.make_room(self.limits.lines);
        }
        if self.now_ns.saturating_sub(self.checked_ns) > CHECK_NS {
            self.checked_ns = self.now_ns;
            self.check_lines();
        }
    }

    /// Starts waiting connection attempts if there is room; ends the turns of attempts that have long been
    /// unsuccessful.
    fn take_turns(&mut self) {
        self.calls.grow(self.now_ns);
        let mut others = self.calls.waiting();
        if others == 0 || self.is_full() {
            return;
        }
        self.start_calls();
        others = others.min(self.calls.waiting());
        let now_ns = self.now_ns;
        let has_had_its_turn = |peer: &u32| {
            let call = self.find(*peer).and_then(|side| side.call.as_ref());
            call.is_none_or(|call| call.lasts_ns(now_ns) > TURN_NS)
        };
        let over = self.calls.under_way().iter().copied();
        let over: Vec<u32> = over.filter(has_had_its_turn).take(others).collect();
        if !over.is_empty() {
            over.into_iter().for_each(|peer| self.put_off(peer));
            self.start_calls();
        }
    }

    fn check_connect(&mut self, peer: u32) {
        let (now_ns, limit_ns) = (self.now_ns, self.limits.silence_ns);
        // The failure of another attempt may have ended the turn of this one.
        let is_under_way = self.calls.is_under_way(peer);
        let Some(side) = self.find_mut(peer).filter(|_| is_under_way) else {
            return;
        };
        let Some(call) = side.call.as_ref() else {
            return;
        };
        if !side.needs_line() {
            return self.end_call(peer, None);
        }
        if call.again_at_ns().is_some_and(|at_ns| at_ns <= now_ns) {
            self.try_again(peer);
        }
        let Some(side) = self.find_mut(peer) else {
            return;
        };
        let Some(call) = side.call.as_mut() else {
            return;
        };
        if let Some(index) = call.proves_in_vain(now_ns) {
            return self.give_try_up(
                peer,
                index,
                "the process there accepts, but does not continue the handshake",
            );
        }
        if call.lacks || call.accepted_for_ns(now_ns) >= Some(COUNT_NS) {
            call.counted_ns = now_ns;
        } else if !call.is_accepted() && call.counted_ns + COUNT_NS <= now_ns {
            side.silent_ns += now_ns - std::mem::replace(&mut call.counted_ns, now_ns);
            let silent_ns = side.silent_ns;
            self.doubt(peer, silent_ns, limit_ns);
        }
    }

    /// Handles that a peer has been unreachable for `silent_ns`: after [`COMPLAIN_NS`] warns the user; marks the peer
    /// lost after `limit_ns`, or if all its addresses refuse.
    fn doubt(&mut self, peer: u32, silent_ns: u64, limit_ns: u64) {
        let side = self.of(peer);
        let (Some(call), Some(place)) = (&side.call, &side.place) else {
            return;
        };
        let message = format!(
            "{} cannot be reached ({})",
            match &*place.host.name {
                "" => "its host".to_owned(),
                host => format!("host {host}"),
            },
            call.describe_failures()
        );
        if call.is_refused() {
            let why = format!("{message}: its process has ended, or a firewall refuses");
            self.lose(peer, &why);
        } else if silent_ns >= limit_ns {
            let seconds = limit_ns / 1_000_000_000;
            let why = format!(
                "{message} for {seconds} s: is there a firewall? RMPI_NET_INTERFACES chooses addresses, RMPI_PORT_RANGE ports"
            );
            self.lose(peer, &why);
        } else if silent_ns >= COMPLAIN_NS && !std::mem::replace(&mut side.has_complained, true) {
            let message = format!("rank {peer}: {message}; it is tried again and again");
            self.notices.complain(message);
        }
    }

    /// Breaks connections on which the network has long been silent although something is in flight: lines, rails, and
    /// those of attempts that the peer's system has accepted. If nothing is in flight, TCP keepalive checks that the
    /// other host is there.
    fn check_lines(&mut self) {
        for peer in self.joined.clone() {
            let side = self.find(peer);
            let sock = side.and_then(|side| Some(side.line.as_ref()?.sock));
            let has_rails = side.is_some_and(|side| side.rails.has_moved(self.now_ns));
            let for_ms = if has_rails {
                CUT_OFF_BESIDE_MS
            } else {
                CUT_OFF_MS
            };
            if sock.is_some_and(|sock| self.sockets.is_cut_off(sock, for_ms)) {
                self.broke(peer, &io::ErrorKind::TimedOut.into());
            }
            let side = self.find(peer);
            let rails = side.map_or(&[][..], |side| &side.rails.all);
            let socks: Vec<Sock> = rails.iter().map(|rail| rail.sock).collect();
            for sock in socks {
                if self.sockets.is_cut_off(sock, CUT_OFF_MS) {
                    self.rail_broke(peer, sock);
                }
            }
        }
        for peer in self.calls.all().collect::<Vec<_>>() {
            let call = self.find(peer).and_then(|side| side.call.as_ref());
            let accepted: Vec<(usize, Sock)> = call.map(|call| call.accepted()).unwrap_or_default();
            let cut = accepted
                .into_iter()
                .find(|(_, sock)| self.sockets.is_cut_off(*sock, CUT_OFF_MS));
            // Other tries of this attempt are checked the next time.
            if let Some((index, _)) = cut {
                self.give_try_up(peer, index, "the network has cut the connection");
            }
        }
    }

    /// Closes a failed connection to one address of a peer, and marks the address as failed for the reason `why`.
    fn give_try_up(&mut self, peer: u32, index: usize, why: &str) {
        let call = self.find(peer).and_then(|side| side.call.as_ref());
        if let Some(sock) = call.and_then(|call| call.tries[index].stage.sock()) {
            self.close(sock);
        }
        self.try_failed(peer, index, why);
    }

    /// Time until the next timer; `None`: none is pending.
    pub(super) fn until_due(&self) -> Option<Duration> {
        let calls = self
            .calls
            .under_way()
            .iter()
            .filter_map(|peer| self.find(*peer)?.call.as_ref());
        let due_ns = |call: &ActiveOpen| {
            let count_ns = call.counted_ns.max(self.now_ns) + COUNT_NS;
            let count_ns = (!call.is_accepted()).then_some(count_ns);
            call.again_at_ns().into_iter().chain(count_ns).min()
        };
        let at_ns = calls.filter_map(|call| due_ns(call)).min();
        let late_ns = (!self.unproven.is_empty()).then_some(self.now_ns + CHECK_NS);
        let rails_ns = self.rails_due_ns();
        let others = [late_ns, self.shut_until_ns, self.turn_due_ns(), rails_ns];
        let at_ns = at_ns.into_iter().chain(others.into_iter().flatten());
        let at_ns = at_ns.min()?;
        Some(Duration::from_nanos(
            at_ns.saturating_sub(self.sockets.clock_ns()),
        ))
    }

    /// Time at which the next connection attempt may start, or connections may be evicted.
    fn turn_due_ns(&self) -> Option<u64> {
        let is_waiting = self.calls.waiting() != 0;
        let is_above = self.joined.len() > self.limits.lines;
        let check_ns = (is_waiting || is_above).then_some(self.now_ns + CHECK_NS);
        match self.calls.next_at_ns() {
            Some(_) if self.is_full() => Some(self.now_ns + TRIM_NS),
            next_ns => next_ns.or(check_ns),
        }
    }
}

/// Length of a turn of a connection attempt while others wait for theirs.
const TURN_NS: u64 = 2_000_000_000;
/// Interval of evictions while there are too many connections.
const TRIM_NS: u64 = 20_000_000;
/// A process that has not polled for this long was computing: time-outs meanwhile are not the fault of the peers.
const AWAY_NS: u64 = 1_000_000_000;
/// Interval at which the time in which a peer is unreachable is counted. If this process does not poll, little of that
/// time counts.
pub(super) const COUNT_NS: u64 = 500_000_000;
/// Interval at which connections are checked.
const CHECK_NS: u64 = 1_000_000_000;
/// A connection is cut off if the kernel got no reply on it for this many ms although one was due. The second value is
/// for the line to a peer if data have moved over a rail to that peer recently.
const CUT_OFF_MS: u32 = 10_000;
const CUT_OFF_BESIDE_MS: u32 = 2_000;
/// After this time the user is warned that a peer cannot be reached.
const COMPLAIN_NS: u64 = 10_000_000_000;
