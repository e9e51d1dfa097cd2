// SPDX-License-Identifier: MIT OR Apache-2.0
//! The UDP port of RoCE, to which alone adapters send, shared by the processes of a host that are at one address. The system hands each
//! packet to the one whose place among them begins the number of the queue pair that it is for ([`PairNumbers`]).
//!
//! Nobody says which place a socket has got; it sends itself packets until one comes ([`place_of`]). The system keeps places from 0 on
//! without gaps: when a socket is closed, the last one gets its place, and hears nothing of what is for it any more. So the port is for
//! the ranks of one job, which end together: the first of them takes it for the job ([`PortClaim`]), when nobody else has it.

use std::io;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use roce::format::PORT;

use super::claim::{First, PATIENCE, PortClaim, SHORT};
use super::pairs::PairNumbers;
use super::system;
use crate::wait;

/// The socket at the UDP port of RoCE, which several processes share.
#[derive(Debug)]
pub(super) struct SharedSocket {
    pub(super) socket: UdpSocket,
    /// What its socket hears of.
    pub(super) numbers: PairNumbers,
    /// Of the first rank of the job to come.
    pub(super) claim: Option<PortClaim>,
}

/// Joins those who share the port. This process is rank `rank` of `job` on this host, from 0 on.
///
/// # Errors
/// What is in the way, in words that stand behind a colon.
pub(super) fn join(address: IpAddr, rank: u32, job: u64) -> Result<SharedSocket, String> {
    let at = SocketAddr::new(address, PORT);
    if rank > u8::MAX.into() {
        return Err(format!("256 ranks have {at}, and there are no more places"));
    }
    let first = First::of(address, job)?;
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
    let claim = first.map(First::show).transpose();
    let claim = claim.map_err(|error| format!("a claim on {at}: {error}"))?;
    Ok(SharedSocket {
        socket,
        numbers: PairNumbers::of_place(place),
        claim,
    })
}

/// Whether nobody has the port any more, after some time for a job that ends: its sockets have places, and give them up.
fn becomes_free(at: SocketAddr) -> bool {
    let begin = Instant::now();
    // Where sockets share a port, one that does not is refused.
    while UdpSocket::bind(at).is_err() {
        if begin.elapsed() > PATIENCE {
            return false;
        }
        std::thread::sleep(SHORT);
    }
    true
}

/// The place of a socket, which two searches have found.
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

/// The place of a socket among those at its address: of the packets that it sends there it gets the one for that place. One for a
/// place that nobody has goes to anybody, so they are sent in order and the first to come counts.
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
    // The system delivers late.
    socket.set_nonblocking(false)?;
    socket.set_read_timeout(Some(LONG))?;
    loop {
        if let Some(found) = place_in(socket)? {
            return Ok(found);
        }
    }
}

/// No packet of RoCE: its opcode is none, and it has no checksum.
fn probe(place: u8, nonce: [u8; 8]) -> [u8; PROBE_BYTES] {
    let mut probe = [0xff; PROBE_BYTES];
    probe[NUMBER_AT as usize] = place;
    probe[8..].copy_from_slice(&nonce);
    probe
}

/// Where a packet has the highest 8 bits of the number of the queue pair that it is for.
const NUMBER_AT: u32 = 5;
const PROBE_BYTES: usize = 16;
const MOST_SEARCHES: u32 = 8;
const LONG: Duration = Duration::from_secs(5);

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    /// An address of this host that no other test has.
    fn address(last: u8) -> IpAddr {
        Ipv4Addr::new(127, 47, 91, last).into()
    }

    #[test]
    fn each_of_a_host_gets_what_is_for_its_place() {
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
    fn a_second_job_is_refused_in_words() {
        let address = address(2);
        let first = [0, 1].map(|rank| join(address, rank, 1).unwrap());
        let why = join(address, 0, 2).unwrap_err();
        assert_eq!(why, "another job has the port of RoCE at 127.47.91.2");
        // One of its ranks ends later than the one that has taken the port for it.
        let [claims, late] = first;
        drop(claims);
        let why = join(address, 0, 2).unwrap_err();
        assert!(why.starts_with("ranks of another job"), "{why}");
        let ends = std::thread::spawn(move || {
            std::thread::sleep(SHORT * 50);
            drop(late);
        });
        let next = join(address, 0, 2).unwrap();
        assert_eq!(next.numbers, PairNumbers::of_place(0));
        ends.join().unwrap();
    }

    #[test]
    fn there_are_256_places() {
        let why = join(address(4), 256, 1).unwrap_err();
        assert!(why.starts_with("256 ranks have"), "{why}");
    }

    #[test]
    fn who_has_the_port_alone_is_named_as_far_as_it_is_known() {
        let address = address(3);
        let _alone = UdpSocket::bind((address, PORT)).unwrap();
        let why = join(address, 0, 1).unwrap_err();
        assert!(
            why.starts_with("127.47.91.3:4791 is taken, by rdma_rxe"),
            "{why}"
        );
    }
}
