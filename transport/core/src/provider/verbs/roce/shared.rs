// SPDX-License-Identifier: MIT OR Apache-2.0
//! Shares the UDP port of RoCE (4791), the only one to which adapters send, among the processes of a host at one
//! address. The system delivers each packet to the process whose place in the group is in the first bits of the
//! destination queue pair number ([`PairNumbers`]).
//!
//! The system does not report a socket's place; it is found by sending packets to the group until one arrives
//! ([`place_of`]). Places are numbered from 0 without gaps: when a socket is closed, the last one moves to its place,
//! and does not receive its own packets any more. So the port is for the ranks of one job, which end together: the
//! first of them claims it for the job ([`PortClaim`]) when no other job has it.

use std::io;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use roce::format::PORT;

use super::claim::{POLL_INTERVAL, PendingClaim, PortClaim, RELEASE_TIMEOUT};
use super::pairs::PairNumbers;
use super::system;
use crate::wait;

/// The socket at the UDP port of RoCE, which several processes share.
#[derive(Debug)]
pub(super) struct SharedSocket {
    pub(super) socket: UdpSocket,
    /// The queue pair numbers whose packets it receives.
    pub(super) numbers: PairNumbers,
    /// The claim to the port, which only the first rank of the job has.
    pub(super) claim: Option<PortClaim>,
}

/// Joins the group that shares the port. This process has local rank `rank` of `job`, from 0 on.
///
/// # Errors
/// Returns the reason; the message continues a sentence after a colon.
pub(super) fn join(address: IpAddr, rank: u32, job: u64) -> Result<SharedSocket, String> {
    let at = SocketAddr::new(address, PORT);
    if rank > u8::MAX.into() {
        return Err(format!("256 ranks have {at}, and there are no more places"));
    }
    let first = PendingClaim::of(address, job)?;
    let is_free = first.is_none() || becomes_free(at);
    let socket = system::bind_in_group(at, NUMBER_AT).map_err(|error| match error.kind() {
        io::ErrorKind::AddrInUse => format!(
            "{at} is taken, by rdma_rxe of this host's kernel or by another user's process (ss -ulnp shows it)"
        ),
        _ => format!("a socket at {at}: {error}"),
    })?;
    if !is_free {
        return Err(format!("ranks of another job have {at} still"));
    }
    let place = sure_place_of(&socket, at);
    let place = place.map_err(|error| format!("its place at {at}: {error}"))?;
    let claim = first.map(PendingClaim::announce).transpose();
    let claim = claim.map_err(|error| format!("a claim on {at}: {error}"))?;
    Ok(SharedSocket {
        socket,
        numbers: PairNumbers::of_place(place),
        claim,
    })
}

/// Whether the port is free, after some time for the sockets of an ending job to be closed.
fn becomes_free(at: SocketAddr) -> bool {
    let begin = Instant::now();
    // A socket without SO_REUSEPORT cannot be bound while the group exists.
    while UdpSocket::bind(at).is_err() {
        if begin.elapsed() > RELEASE_TIMEOUT {
            return false;
        }
        std::thread::sleep(POLL_INTERVAL);
    }
    true
}

/// The place of a socket, found by two searches with the same result.
fn sure_place_of(socket: &UdpSocket, at: SocketAddr) -> io::Result<u8> {
    let mut last = place_of(socket, at)?;
    for _ in 0..MOST_SEARCHES {
        let place = place_of(socket, at)?;
        if std::mem::replace(&mut last, place) == place {
            return Ok(place);
        }
    }
    Err(io::Error::other("it changes all the time"))
}

/// The place of a socket in the group at its address, which is the place for which it receives its own packet. Packets
/// for unused places go to any socket, so packets are sent for one place after the other, and the first that arrives
/// counts.
fn place_of(socket: &UdpSocket, at: SocketAddr) -> io::Result<u8> {
    let mut nonce = [0];
    wait::random_words(&mut nonce);
    let nonce = nonce[0].to_le_bytes();
    let mut come = [0; PROBE_BYTES + 1];
    let mut place_in = |socket: &UdpSocket| -> io::Result<Option<u8>> {
        let (bytes, from) = socket.recv_from(&mut come)?;
        let is_own = bytes == PROBE_BYTES && from == at && come[8..PROBE_BYTES] == nonce;
        Ok(is_own.then_some(come[NUMBER_AT as usize]))
    };
    socket.set_nonblocking(true)?;
    for place in 0..=u8::MAX {
        socket.send_to(&probe(place, nonce), at)?;
        match place_in(socket) {
            Ok(Some(found)) => return Ok(found),
            Ok(None) => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
    }
    // Delivery may be delayed.
    socket.set_nonblocking(false)?;
    socket.set_read_timeout(Some(LONG))?;
    loop {
        if let Some(found) = place_in(socket)? {
            return Ok(found);
        }
    }
}

/// A packet that no RoCE port accepts: its opcode is invalid, and it has no checksum.
fn probe(place: u8, nonce: [u8; 8]) -> [u8; PROBE_BYTES] {
    let mut probe = [0xff; PROBE_BYTES];
    probe[NUMBER_AT as usize] = place;
    probe[8..].copy_from_slice(&nonce);
    probe
}

/// Offset of the highest 8 bits of the destination queue pair number in a packet.
const NUMBER_AT: u32 = 5;
const PROBE_BYTES: usize = 16;
const MOST_SEARCHES: u32 = 8;
const LONG: Duration = Duration::from_secs(5);

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    /// An address of this host that no other test uses.
    fn address(last: u8) -> IpAddr {
        Ipv4Addr::new(127, 47, 91, last).into()
    }

    #[test]
    fn each_local_rank_receives_packets_for_its_index() {
        let address = address(1);
        let all: Vec<_> = (0..5).map(|rank| join(address, rank, 1).unwrap()).collect();
        let sender = UdpSocket::bind((address, 0)).unwrap();
        for (place, shared) in (0_u8..).zip(&all) {
            assert_eq!(shared.numbers, PairNumbers::of_place(place));
            assert_eq!(shared.claim.is_some(), place == 0);
            let socket = &shared.socket;
            let mut packet = [0; 40];
            packet[5] = place;
            sender.send_to(&packet, (address, PORT)).unwrap();
            socket.set_nonblocking(false).unwrap();
            socket.set_read_timeout(Some(LONG)).unwrap();
            loop {
                let (bytes, from) = socket.recv_from(&mut packet).unwrap();
                if from != SocketAddr::new(address, PORT) {
                    assert_eq!((bytes, packet[5]), (40, place));
                    break;
                }
            }
        }
    }

    #[test]
    fn a_second_job_is_refused_with_a_reason() {
        let address = address(2);
        let first = [0, 1].map(|rank| join(address, rank, 1).unwrap());
        let why = join(address, 0, 2).unwrap_err();
        assert_eq!(why, "another job has the port of RoCE at 127.47.91.2");
        // One of its ranks ends later than the one that has claimed the port.
        let [claims, late] = first;
        drop(claims);
        let why = join(address, 0, 2).unwrap_err();
        assert!(why.starts_with("ranks of another job"), "{why}");
        let ends = std::thread::spawn(move || {
            std::thread::sleep(POLL_INTERVAL * 50);
            drop(late);
        });
        let next = join(address, 0, 2).unwrap();
        assert_eq!(next.numbers, PairNumbers::of_place(0));
        ends.join().unwrap();
    }

    #[test]
    fn at_most_256_ranks_share_a_port() {
        let why = join(address(4), 256, 1).unwrap_err();
        assert!(why.starts_with("256 ranks have"), "{why}");
    }

    #[test]
    fn a_port_taken_by_another_program_is_reported() {
        let address = address(3);
        let _alone = UdpSocket::bind((address, PORT)).unwrap();
        let why = join(address, 0, 1).unwrap_err();
        assert!(
            why.starts_with("127.47.91.3:4791 is taken, by rdma_rxe"),
            "{why}"
        );
    }
}
