// SPDX-License-Identifier: MIT OR Apache-2.0
//! Packets that may be deferred and leave with others. Sending a packet by itself costs some microseconds in the
//! kernel, and no process waits for a packet that only announces data which this process moves in a later turn.

use session::Slot;

use super::links::TcpLinks;
use super::sockets::Sockets;

impl<S: Sockets> TcpLinks<S> {
    /// As [`post`](Self::post), but the packet may leave with the next packet to this peer, or in the next turn. The
    /// first packet to a peer in a turn leaves immediately: this process may be waiting for the reply.
    pub(super) fn post_deferrable(&mut self, peer: u32, slot: Slot) {
        let turn = self.turn;
        let side = self.of(peer);
        let is_first = side.posted != turn;
        let can_be_held = side.line.is_some() && !self.is_corked();
        self.keep(peer, slot);
        if is_first || !can_be_held {
            return self.flush(peer);
        }
        if let Err(error) = self.send_some(peer, true) {
            return self.broke(peer, &error);
        }
        if !self.held.contains(&peer) {
            self.held.push(peer);
        }
    }

    /// Makes the system send the bytes that it holds back until more follow.
    pub(super) fn push_held(&mut self) {
        while let Some(peer) = self.held.pop() {
            let line = self.find_mut(peer).and_then(|side| side.line.as_mut());
            if let Some(line) = line.filter(|line| line.is_held) {
                line.is_held = false;
                let sock = line.sock;
                self.sockets.push(sock);
            }
        }
    }
}
