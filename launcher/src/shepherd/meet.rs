// SPDX-License-Identifier: MIT OR Apache-2.0
//! Connections between the shepherds of a step: each waits for those below it at one of a few ports, and connects to who is above. Both
//! prove that they know the step's key before anything else is said; who does not, or says nothing, is dropped.
//!
//! | who | bytes | |
//! |-----|------:|-|
//! | who waits | 24 | [`MAGIC`], and 16 that it has drawn |
//! | who connects | 36 | its node, little endian, 16 that it has drawn, and 16 that are made of all that with the key |
//! | who waits | 16 | made of the same, for the other way |

use super::words::StepKey;
use crate::job::random_u64;
use crate::program::cause;
use siphasher::sip128::SipHasher24;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

const MAGIC: &[u8; 8] = b"rmpistep";
const RIDDLE_BYTES: usize = 24;
const ANSWER_BYTES: usize = 36;
const PROOF_BYTES: usize = 16;

/// Who has connected proves what it knows within this time.
const PROVES_WITHIN: Duration = Duration::from_secs(5);
/// So many may be about to prove it; the oldest makes room.
const MOST_GUESTS: usize = 128;
/// One address and port are tried for so long.
const CONNECTS_WITHIN: Duration = Duration::from_secs(1);
/// Between two rounds over all addresses, and twice of it the next time.
const ROUND_AFTER: Duration = Duration::from_millis(5);
const MOST_ROUND_AFTER: Duration = Duration::from_millis(250);

/// Which way a proof goes.
#[derive(Clone, Copy)]
enum Way {
    Up,
    Down,
}

/// What is drawn for one connection.
type Nonce = [u8; 16];

fn nonce() -> io::Result<Nonce> {
    let half = || random_u64().map_err(io::Error::other);
    let number = u128::from(half()?) << 64 | u128::from(half()?);
    Ok(number.to_le_bytes())
}

fn proof(StepKey(key): StepKey, way: Way, node: u32, drawn: (&Nonce, &Nonce)) -> [u8; PROOF_BYTES] {
    let way = match way {
        Way::Up => 1,
        Way::Down => 2,
    };
    let text = [MAGIC, &[way][..], &node.to_le_bytes(), drawn.0, drawn.1].concat();
    let hasher = SipHasher24::new_with_key(&key.to_le_bytes());
    hasher.hash(&text).as_u128().to_le_bytes()
}

/// The same time, wherever they differ.
fn are_equal(one: &[u8; PROOF_BYTES], other: &[u8; PROOF_BYTES]) -> bool {
    let differ = one.iter().zip(other).fold(0, |all, (a, b)| all | (a ^ b));
    std::hint::black_box(differ) == 0
}

/// Somebody who has connected and has not proved anything.
#[derive(Debug)]
struct Guest {
    stream: TcpStream,
    drawn: Nonce,
    answer: Vec<u8>,
    since: Instant,
}

/// A place where shepherds wait for those below.
#[derive(Debug)]
pub(super) struct Meeting {
    listener: TcpListener,
    key: StepKey,
    guests: Vec<Guest>,
}

impl Meeting {
    /// At the first of these ports that can be had; `None`: at any.
    pub(super) fn open(key: StepKey, ports: Option<(u16, u16)>) -> io::Result<Self> {
        let (first, last) = ports.unwrap_or((0, 0));
        let mut why = io::Error::from(ErrorKind::AddrInUse);
        for port in first..=last {
            match listen(port) {
                Ok(listener) => {
                    listener.set_nonblocking(true)?;
                    return Ok(Self {
                        listener,
                        key,
                        guests: Vec::new(),
                    });
                }
                Err(error) => why = error,
            }
        }
        Err(why)
    }

    pub(super) fn port(&self) -> io::Result<u16> {
        self.listener.local_addr().map(|address| address.port())
    }

    /// Where something may have come.
    pub(super) fn reading(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        let guests = self.guests.iter().map(|guest| guest.stream.as_fd());
        guests.chain([self.listener.as_fd()])
    }

    /// Who has come, by its node. Guests that take too long are sent away.
    pub(super) fn attend(&mut self, now: Instant) -> Vec<(u32, TcpStream)> {
        while let Ok((stream, _)) = self.listener.accept() {
            if let Ok(guest) = Guest::welcome(stream, now) {
                if self.guests.len() == MOST_GUESTS {
                    self.guests.remove(0);
                }
                self.guests.push(guest);
            }
        }
        let mut here = Vec::new();
        for mut guest in std::mem::take(&mut self.guests) {
            match guest.hear(self.key) {
                Ok(Some(node)) => here.push((node, guest.stream)),
                Ok(None) if now.saturating_duration_since(guest.since) < PROVES_WITHIN => {
                    self.guests.push(guest);
                }
                _ => (),
            }
        }
        here
    }
}

/// For both families of addresses, if this system has IPv6.
fn listen(port: u16) -> io::Result<TcpListener> {
    let both = TcpListener::bind((Ipv6Addr::UNSPECIFIED, port));
    both.or_else(|_| TcpListener::bind((Ipv4Addr::UNSPECIFIED, port)))
}

impl Guest {
    fn welcome(mut stream: TcpStream, since: Instant) -> io::Result<Self> {
        stream.set_nonblocking(true)?;
        stream.set_nodelay(true)?;
        let drawn = nonce()?;
        // There is room in a socket that has sent nothing.
        stream.write_all(&[MAGIC, &drawn[..]].concat())?;
        Ok(Self {
            stream,
            drawn,
            answer: Vec::new(),
            since,
        })
    }

    /// Its node, once it has proved that it belongs here; an error, if it does not.
    fn hear(&mut self, key: StepKey) -> io::Result<Option<u32>> {
        let mut rest = [0; ANSWER_BYTES];
        let rest = &mut rest[..ANSWER_BYTES - self.answer.len()];
        match self.stream.read(rest) {
            Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
            Ok(bytes) => self.answer.extend_from_slice(&rest[..bytes]),
            Err(error) if is_for_later(&error) => (),
            Err(error) => return Err(error),
        }
        let Some((node, drawn, claim)) = parts(&self.answer) else {
            return Ok(None);
        };
        let drawn = (&self.drawn, &drawn);
        if !are_equal(&claim, &proof(key, Way::Up, node, drawn)) {
            return Err(ErrorKind::PermissionDenied.into());
        }
        self.stream.write_all(&proof(key, Way::Down, node, drawn))?;
        Ok(Some(node))
    }
}

fn is_for_later(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted)
}

/// Of a whole answer.
fn parts(answer: &[u8]) -> Option<(u32, Nonce, [u8; PROOF_BYTES])> {
    let (node, rest) = answer.split_first_chunk()?;
    let (drawn, rest) = rest.split_first_chunk()?;
    let (claim, _) = rest.split_first_chunk()?;
    Some((u32::from_le_bytes(*node), *drawn, *claim))
}

/// Connects to who is above, which may be found at any of these addresses and ports, and may not be there yet.
///
/// # Errors
/// When the time is over: why, as the last tries said it.
pub(super) fn connect(
    key: StepKey,
    node: u32,
    resolve: impl Fn() -> io::Result<Vec<IpAddr>>,
    ports: (u16, u16),
    until: Instant,
) -> Result<TcpStream, String> {
    let mut pause = ROUND_AFTER;
    let mut addresses = Vec::new();
    loop {
        if addresses.is_empty() {
            addresses = resolve().map_err(|error| cause(&error))?;
        }
        let mut why = "no address".to_owned();
        for place in places(&addresses, ports) {
            match try_at(place, key, node) {
                Ok(stream) => return Ok(stream),
                Err(error) => why = format!("{place}: {}", cause(&error)),
            }
            if Instant::now() >= until {
                return Err(why);
            }
        }
        if Instant::now() + pause >= until {
            return Err(why);
        }
        std::thread::sleep(pause);
        pause = (pause * 2).min(MOST_ROUND_AFTER);
    }
}

/// The first port at all addresses, then the next one.
fn places(addresses: &[IpAddr], (first, last): (u16, u16)) -> impl Iterator<Item = SocketAddr> {
    (first..=last).flat_map(move |port| {
        let at = move |address: &IpAddr| SocketAddr::new(*address, port);
        addresses.iter().map(at)
    })
}

fn try_at(place: SocketAddr, key: StepKey, node: u32) -> io::Result<TcpStream> {
    let mut stream = TcpStream::connect_timeout(&place, CONNECTS_WITHIN)?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(PROVES_WITHIN))?;
    stream.set_write_timeout(Some(PROVES_WITHIN))?;
    let mut riddle = [0; RIDDLE_BYTES];
    stream.read_exact(&mut riddle)?;
    let (magic, theirs) = riddle.split_first_chunk().expect("it is longer");
    let theirs: &Nonce = theirs.first_chunk().expect("16 are left");
    if magic != MAGIC {
        return Err(io::Error::other("something else answers"));
    }
    let drawn = nonce()?;
    let claim = proof(key, Way::Up, node, (theirs, &drawn));
    stream.write_all(&[&node.to_le_bytes()[..], &drawn, &claim].concat())?;
    let mut answer = [0; PROOF_BYTES];
    let refused = |_| io::Error::other("it is of another job");
    stream.read_exact(&mut answer).map_err(refused)?;
    match are_equal(&answer, &proof(key, Way::Down, node, (theirs, &drawn))) {
        true => Ok(stream),
        false => Err(io::Error::other("it does not know the key")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: StepKey = StepKey(0x1234_5678_9abc_def0_1234_5678_9abc_def0);

    fn meeting() -> (Meeting, (u16, u16)) {
        let meeting = Meeting::open(KEY, None).unwrap();
        let port = meeting.port().unwrap();
        (meeting, (port, port))
    }

    fn here() -> io::Result<Vec<IpAddr>> {
        Ok(vec![Ipv4Addr::LOCALHOST.into()])
    }

    fn soon() -> Instant {
        Instant::now() + Duration::from_secs(20)
    }

    /// Attends until somebody has come.
    fn first(meeting: &mut Meeting) -> (u32, TcpStream) {
        let until = soon();
        loop {
            if let Some(one) = meeting.attend(Instant::now()).pop() {
                return one;
            }
            assert!(Instant::now() < until, "nobody came");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    #[test]
    fn who_knows_the_key_is_let_in_by_its_node() {
        let (mut meeting, ports) = meeting();
        let caller = std::thread::spawn(move || connect(KEY, 7, here, ports, soon()));
        let (node, mut ours) = first(&mut meeting);
        let mut theirs = caller.join().unwrap().unwrap();
        assert_eq!(node, 7);
        ours.write_all(b"words").unwrap();
        let mut heard = [0; 5];
        theirs.read_exact(&mut heard).unwrap();
        assert_eq!(&heard, b"words");
    }

    #[test]
    fn who_does_not_is_sent_away_and_hurts_nobody() {
        let (mut meeting, ports) = meeting();
        // More that say nothing than there is room for.
        let mut silent = Vec::new();
        for _ in 0..MOST_GUESTS + 20 {
            silent.push(TcpStream::connect((Ipv4Addr::LOCALHOST, ports.0)).unwrap());
            meeting.attend(Instant::now());
        }
        let mut noisy = TcpStream::connect((Ipv4Addr::LOCALHOST, ports.0)).unwrap();
        noisy.write_all(&[b'x'; 4096]).unwrap();
        let until = Instant::now() + Duration::from_millis(700);
        let wrong = std::thread::spawn(move || connect(StepKey(1), 7, here, ports, until));
        while !wrong.is_finished() {
            assert!(meeting.attend(Instant::now()).is_empty());
        }
        let why = wrong.join().unwrap().unwrap_err();
        assert!(why.contains("another job"), "{why}");
        assert!(meeting.guests.len() <= MOST_GUESTS);
        let right = std::thread::spawn(move || connect(KEY, 8, here, ports, soon()));
        assert_eq!(first(&mut meeting).0, 8);
        assert!(right.join().unwrap().is_ok());
        meeting.attend(Instant::now() + PROVES_WITHIN);
        assert!(meeting.guests.is_empty(), "they had their time");
    }

    #[test]
    fn who_is_above_may_come_later_and_beside_somebody_else() {
        // Somebody else has the first port, and says nothing of ours.
        let (other, place) = (0..100)
            .find_map(|_| {
                let other = listen(0).ok()?;
                let port = other.local_addr().ok()?.port();
                let next = port.checked_add(1)?;
                listen(next).ok().map(|_| (other, (port, next)))
            })
            .unwrap();
        let stranger = std::thread::spawn(move || {
            while let Ok((mut stream, _)) = other.accept() {
                let _ = stream.write_all(&[b'y'; RIDDLE_BYTES]);
                let mut end = [0; 1];
                if stream.read(&mut end).is_ok_and(|bytes| bytes == 1) && end == *b"q" {
                    return;
                }
            }
        });
        let caller = std::thread::spawn(move || connect(KEY, 3, here, place, soon()));
        std::thread::sleep(Duration::from_millis(100));
        let mut meeting = Meeting::open(KEY, Some(place)).unwrap();
        assert_eq!(meeting.port().unwrap(), place.1);
        assert_eq!(first(&mut meeting).0, 3);
        assert!(caller.join().unwrap().is_ok());
        let mut last = TcpStream::connect((Ipv4Addr::LOCALHOST, place.0)).unwrap();
        last.write_all(b"q").unwrap();
        stranger.join().unwrap();
    }

    #[test]
    fn a_proof_is_of_one_key_one_way_one_node_and_two_numbers() {
        let (one, other) = ([1; 16], [2; 16]);
        let all = [
            proof(KEY, Way::Up, 1, (&one, &other)),
            proof(KEY, Way::Down, 1, (&one, &other)),
            proof(KEY, Way::Up, 2, (&one, &other)),
            proof(KEY, Way::Up, 1, (&other, &one)),
            proof(StepKey(9), Way::Up, 1, (&one, &other)),
        ];
        for (at, one) in all.iter().enumerate() {
            assert!(all[at + 1..].iter().all(|other| !are_equal(one, other)));
        }
    }
}
