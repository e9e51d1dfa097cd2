// SPDX-License-Identifier: MIT OR Apache-2.0
//! A socket from which packets are received, one or several at a time ([`RecvHistory`] decides).

use std::io::{self, ErrorKind};
use std::net::{SocketAddr, UdpSocket};

use super::recv_mode::{RecvHistory, RecvMode};
use super::system::{self, NO_ADDRESS, RECEIVED_AT_ONCE, UdpBatch};

/// A receiving socket.
#[derive(Debug)]
pub(super) struct RecvSocket {
    socket: UdpSocket,
    history: RecvHistory,
    /// The peer, if the socket has packets of this peer only.
    source: Option<SocketAddr>,
}

/// Room for received packets.
#[derive(Debug)]
pub(super) struct RecvBuffers {
    /// [`RECEIVED_AT_ONCE`] buffers of [`RecvBuffers::BYTES`] each.
    pub(super) bytes: Box<[u8]>,
    /// Results of the last receive call, by buffer.
    pub(super) batches: [UdpBatch; RECEIVED_AT_ONCE],
}

impl RecvBuffers {
    /// Length of a buffer, in bytes: no datagram, and no batch of datagrams, is longer.
    pub(super) const BYTES: usize = 1 << 16;

    pub(super) fn new() -> Self {
        let nothing = UdpBatch {
            bytes: 0,
            packet_bytes: 0,
            from: NO_ADDRESS,
        };
        Self {
            bytes: vec![0; RECEIVED_AT_ONCE * Self::BYTES].into_boxed_slice(),
            batches: [nothing; RECEIVED_AT_ONCE],
        }
    }
}

impl RecvSocket {
    /// A nonblocking socket; packets are coalesced only if `may_coalesce`.
    pub(super) fn new(socket: UdpSocket, may_coalesce: bool) -> Self {
        Self {
            socket,
            history: RecvHistory::new(may_coalesce),
            source: None,
        }
    }

    pub(super) fn socket(&self) -> &UdpSocket {
        &self.socket
    }

    /// From now on the socket has packets of this peer only, so receive calls need not return the source.
    pub(super) fn set_source(&mut self, source: SocketAddr) {
        self.source = Some(source);
    }

    /// Receives batches of packets into the first buffers, one batch each; returns the number of batches.
    pub(super) fn receive(&mut self, buffers: &mut RecvBuffers) -> usize {
        // Errors concern packets sent before, not received ones: the second call returns what waits.
        match self.try_receive(buffers) {
            Ok(count) => count,
            Err(error) if error.kind() == ErrorKind::WouldBlock => 0,
            Err(_) => self.try_receive(buffers).unwrap_or(0),
        }
    }

    #[inline(always)]
    fn try_receive(&self, buffers: &mut RecvBuffers) -> io::Result<usize> {
        let (socket, batches) = (&self.socket, &mut buffers.batches);
        let (bytes, most) = (&mut buffers.bytes, RecvBuffers::BYTES);
        match self.history.next() {
            RecvMode::Single => {
                let buffer = bytes.get_mut(..most).unwrap_or_default();
                let received = match self.source {
                    Some(source) => socket.recv(buffer).map(|bytes| (bytes, source)),
                    None => socket.recv_from(buffer),
                };
                received.map(|(bytes, from)| {
                    batches[0] = UdpBatch {
                        bytes,
                        packet_bytes: bytes,
                        from,
                    };
                    1
                })
            }
            RecvMode::Batch => system::receive_burst::<1>(socket, bytes, most, batches),
            RecvMode::Batches => {
                system::receive_burst::<RECEIVED_AT_ONCE>(socket, bytes, most, batches)
            }
        }
    }

    /// Records the number of packets of the last call, and adapts the next ones.
    pub(super) fn found(&mut self, packets: usize) {
        if let Some(coalesces) = self.history.found(packets) {
            system::coalesce(&self.socket, coalesces);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    #[test]
    fn an_error_of_a_sent_packet_hides_no_received_one() {
        let bound = |port| UdpSocket::bind((Ipv4Addr::LOCALHOST, port)).unwrap();
        let (here, there) = (bound(0), bound(0));
        let peer = there.local_addr().unwrap();
        here.connect(peer).unwrap();
        here.set_nonblocking(true).unwrap();
        drop(there);
        // The system reports that the port is closed.
        here.send(&[1]).unwrap();
        let there = bound(peer.port());
        there
            .send_to(&[1, 2, 3], here.local_addr().unwrap())
            .unwrap();
        let mut socket = RecvSocket::new(here, false);
        socket.set_source(peer);
        let mut buffers = RecvBuffers::new();
        assert_eq!(socket.receive(&mut buffers), 1);
        assert_eq!(
            (buffers.batches[0].bytes, buffers.batches[0].from),
            (3, peer)
        );
        assert_eq!(socket.receive(&mut buffers), 0);
    }
}
