// SPDX-License-Identifier: MIT OR Apache-2.0
//! The UDP tasks: a ping-pong of datagrams, and a reliable stream as a library would send it. The stream has packets
//! with a number and a checksum, sent in trains (`UDP_SEGMENT`, `UDP_GRO`) within a window, and copied out by the
//! receiver. The two ends exchange their UDP ports over the TCP connection.

use std::io::{self, ErrorKind};
use std::net::{SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use nix::sys::socket::{setsockopt, sockopt};

use super::{Buffers, LARGEST, OneWayStream, SpinLimit, TcpBatch, TcpTask};

impl OneWayStream {
    /// Opens a UDP socket and connects it to the peer's socket. Both ends call this at the same time.
    pub(super) fn open_udp(&mut self, task: TcpTask) -> io::Result<UdpSocket> {
        let (own, other) = (self.stream.local_addr()?, self.stream.peer_addr()?);
        let socket = UdpSocket::bind(SocketAddr::new(own.ip(), 0))?;
        if task == TcpTask::Packets {
            setsockopt(&socket, sockopt::UdpGsoSegment, &PACKET_LENGTH)?;
            setsockopt(&socket, sockopt::UdpGroSegment, &true)?;
            setsockopt(&socket, sockopt::RcvBuf, &LARGEST)?;
        }
        self.send(&socket.local_addr()?.port().to_le_bytes())?;
        let mut port = [0; 2];
        self.receive(&mut port)?;
        socket.connect(SocketAddr::new(other.ip(), u16::from_le_bytes(port)))?;
        socket.set_nonblocking(true)?;
        Ok(socket)
    }

    /// Runs this end's part of a ping-pong. `is_first` is `true` at the measuring end, which sends first. At most one
    /// datagram is in flight, so none is lost to a full buffer; a datagram that is lost nevertheless ends the batch
    /// with a time-out.
    pub(super) fn exchange(
        &self,
        socket: &UdpSocket,
        job: TcpBatch,
        buffers: &mut Buffers,
        is_first: bool,
    ) -> io::Result<()> {
        for _ in 0..job.count {
            let buffer = buffers.take();
            if is_first {
                socket.send(buffer)?;
            }
            let mut limit = SpinLimit::default();
            loop {
                match socket.recv(buffer) {
                    Ok(_) => break,
                    Err(error) => self.retry(error, &mut limit)?,
                }
            }
            if !is_first {
                socket.send(buffer)?;
            }
        }
        Ok(())
    }

    /// Sends all messages of a batch; returns when the peer has acknowledged them, or with a time-out if it acknowledges
    /// nothing new for [`STUCK_AFTER`](super::STUCK_AFTER).
    pub(super) fn send_packets(
        &self,
        socket: &UdpSocket,
        job: TcpBatch,
        buffers: &mut Buffers,
    ) -> io::Result<()> {
        let in_message = job.size.div_ceil(PAYLOAD_BYTES);
        let all = in_message as u64 * job.count;
        let (mut acknowledged, mut next) = (0, 0);
        let mut train = vec![0; TRAIN_PACKETS * PACKET_BYTES];
        let mut limit = SpinLimit::default();
        let mut acknowledged_at = Instant::now();
        while acknowledged < all {
            let room = (acknowledged + WINDOW_PACKETS).min(all) - next;
            let mut filled = 0;
            let places = train.chunks_exact_mut(PACKET_BYTES);
            for (packet, number) in places.zip(next..next + room) {
                write_packet(packet, number, buffers.packet(number, in_message));
                filled += PACKET_BYTES;
            }
            if filled != 0 {
                match socket.send(&train[..filled]) {
                    Ok(_) => next += (filled / PACKET_BYTES) as u64,
                    Err(error) if error.kind() == ErrorKind::WouldBlock || is_closed(&error) => {}
                    Err(error) => return Err(error),
                }
            }
            let mut answer = [0; 8];
            match socket.recv(&mut answer) {
                Ok(_) => {
                    let number = u64::from_le_bytes(answer).min(next);
                    // A repeated acknowledgement does not extend the time limit: the peer may send these for ever.
                    if number > acknowledged {
                        (acknowledged, limit) = (number, SpinLimit::default());
                    } else {
                        limit.check()?;
                    }
                    acknowledged_at = Instant::now();
                }
                Err(error) => {
                    // If the peer has closed its socket, this is no failure: the peer has sent its last acknowledgement
                    // before that, and a later `recv` returns it unless it was lost.
                    if is_closed(&error) {
                        limit.check()?;
                    } else {
                        self.retry(error, &mut limit)?;
                    }
                    if room == 0 && acknowledged_at.elapsed() > LOST_AFTER {
                        (next, acknowledged_at) = (acknowledged, Instant::now());
                    }
                }
            }
        }
        Ok(())
    }

    /// Receives all messages of a batch: verifies each packet, copies its payload out, and acknowledges each train.
    pub(super) fn receive_packets(
        &self,
        socket: &UdpSocket,
        job: TcpBatch,
        buffers: &mut Buffers,
    ) -> io::Result<()> {
        let in_message = job.size.div_ceil(PAYLOAD_BYTES);
        let all = in_message as u64 * job.count;
        let mut expected = 0;
        let mut train = vec![0; 1 << 16];
        let mut limit = SpinLimit::default();
        while expected < all {
            let bytes = match socket.recv(&mut train) {
                Ok(bytes) => bytes,
                Err(error) => {
                    self.retry(error, &mut limit)?;
                    continue;
                }
            };
            let before = expected;
            for packet in train[..bytes].chunks_exact(PACKET_BYTES) {
                if read_number(packet) == Some(expected) {
                    let payload = buffers.packet(expected, in_message);
                    payload.copy_from_slice(&packet[HEAD_BYTES..][..payload.len()]);
                    expected += 1;
                }
            }
            if expected > before {
                limit = SpinLimit::default();
            } else {
                limit.check()?;
            }
            // No later acknowledgement can replace the last one if it is lost, so the last one is sent three times. The
            // peer may close its socket after the first of the three, so errors of these sends are ignored.
            let times = if expected == all { 3 } else { 1 };
            for _ in 0..times {
                let sent = socket.send(&expected.to_le_bytes());
                if expected < all {
                    sent?;
                }
            }
        }
        Ok(())
    }
}

/// Whether an error means that the peer has closed its socket, as it does once it has received everything.
fn is_closed(error: &io::Error) -> bool {
    error.kind() == ErrorKind::ConnectionRefused
}

/// Writes a packet: number, payload, checksum.
fn write_packet(packet: &mut [u8], number: u64, payload: &[u8]) {
    let (rest, checksum) = packet.split_at_mut(PACKET_BYTES - 4);
    rest[..8].copy_from_slice(&number.to_le_bytes());
    rest[HEAD_BYTES..][..payload.len()].copy_from_slice(payload);
    checksum.copy_from_slice(&crc32fast::hash(rest).to_le_bytes());
}

/// The number of a packet whose checksum is right; `None` otherwise.
fn read_number(packet: &[u8]) -> Option<u64> {
    let (rest, checksum) = packet.split_last_chunk::<4>()?;
    let is_whole = crc32fast::hash(rest).to_le_bytes() == *checksum;
    is_whole.then_some(u64::from_le_bytes(*rest.first_chunk()?))
}

/// The size of RoCE's base transport header.
const HEAD_BYTES: usize = 12;
/// The payload of rmpi's packets over Ethernet of 1,500 bytes.
const PAYLOAD_BYTES: usize = 1408;
const PACKET_BYTES: usize = HEAD_BYTES + PAYLOAD_BYTES + 4;
#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    reason = "below 1,500"
)]
const PACKET_LENGTH: i32 = PACKET_BYTES as i32;
/// As many packets as fit one call.
const TRAIN_PACKETS: usize = 45;
/// Maximum number of packets in flight.
const WINDOW_PACKETS: u64 = 248;
const LOST_AFTER: Duration = Duration::from_millis(5);

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use super::super::SocketUse;
    use super::*;

    /// Runs one batch between two threads; returns seconds per message.
    fn batch(task: TcpTask, size: usize) -> f64 {
        let job = TcpBatch {
            task,
            way: SocketUse::NON_BLOCKING[1],
            size,
            count: 20,
        };
        let listener = TcpListener::bind("[::1]:0").unwrap();
        let at = listener.local_addr().unwrap();
        let other = std::thread::spawn(move || {
            let mut line = OneWayStream::new(listener.accept().unwrap().0).unwrap();
            let mut bytes = [0; super::super::BATCH_BYTES];
            line.receive(&mut bytes).unwrap();
            let job = TcpBatch::read(bytes).unwrap();
            line.serve_batch(job, &mut Buffers::new(job.size)).unwrap();
        });
        let mut line = OneWayStream::new(TcpStream::connect(at).unwrap()).unwrap();
        let seconds = line.batch(job, &mut Buffers::new(size));
        other.join().unwrap();
        seconds.unwrap()
    }

    #[test]
    fn datagrams_go_there_and_back() {
        assert!(batch(TcpTask::Datagrams, 8) > 0.0);
    }

    #[test]
    fn messages_go_in_packets() {
        for size in [1, 1024, 4096, 65_536, 100_000] {
            assert!(batch(TcpTask::Packets, size) > 0.0);
        }
    }

    /// Sends packets to a peer whose socket `peer` gets; returns how the sender ends.
    fn send_to(peer: impl FnOnce(UdpSocket) + Send + 'static) -> io::Result<()> {
        let listener = TcpListener::bind("[::1]:0").unwrap();
        let at = listener.local_addr().unwrap();
        let other = std::thread::spawn(move || {
            let mut line = OneWayStream::new(listener.accept().unwrap().0).unwrap();
            peer(line.open_udp(TcpTask::Packets).unwrap());
        });
        let mut line = OneWayStream::new(TcpStream::connect(at).unwrap()).unwrap();
        let socket = line.open_udp(TcpTask::Packets).unwrap();
        let job = TcpBatch {
            task: TcpTask::Packets,
            way: SocketUse::NON_BLOCKING[1],
            size: 1,
            count: 20,
        };
        line.wait = job.way.wait;
        let sent = line.send_packets(&socket, job, &mut Buffers::new(job.size));
        drop(socket);
        other.join().unwrap();
        sent
    }

    #[test]
    fn the_sender_ends_if_the_last_acknowledgements_are_lost() {
        let sent = send_to(drop);
        assert_eq!(sent.unwrap_err().kind(), ErrorKind::TimedOut);
    }

    #[test]
    fn the_sender_ends_if_the_peer_acknowledges_nothing_new() {
        let (ended, is_ended) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            let sent = send_to(|socket| {
                let mut train = vec![0; 1 << 16];
                let is_open = |error: &io::Error| error.kind() == ErrorKind::WouldBlock;
                while socket
                    .recv(&mut train)
                    .err()
                    .is_none_or(|error| is_open(&error))
                {
                    // The send fails when the sender has closed its socket.
                    if socket.send(&0_u64.to_le_bytes()).is_err() {
                        break;
                    }
                    std::thread::yield_now();
                }
            });
            ended.send(sent.unwrap_err().kind()).unwrap();
        });
        let ending = is_ended.recv_timeout(4 * super::super::STUCK_AFTER);
        assert_eq!(ending, Ok(ErrorKind::TimedOut));
    }

    #[test]
    fn a_damaged_packet_has_no_number() {
        let mut packet = vec![0; PACKET_BYTES];
        write_packet(&mut packet, 77, &[5; 100]);
        assert_eq!(read_number(&packet), Some(77));
        packet[50] ^= 1;
        assert_eq!(read_number(&packet), None);
        assert_eq!(read_number(&[1; 3]), None);
    }
}
