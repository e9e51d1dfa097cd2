// SPDX-License-Identifier: MIT OR Apache-2.0
//! Makes authenticated connections between the shepherds of a step. Each shepherd listens at one of a few ports for the
//! shepherds below, and connects to the shepherd above. Both ends prove that they have the step's key before any byte
//! outside the handshake is exchanged; a proof is valid only for its connection. A peer whose proof is wrong or late is
//! dropped.
//!
//! | side       | bytes | content |
//! |------------|------:|-----|
//! | listener   |    24 | [`MAGIC`], and a nonce of 16 bytes |
//! | connecting |    36 | its node, little endian, a nonce of 16 bytes, and a proof of 16 bytes: a keyed hash of the node, both nonces and both ends' addresses |
//! | listener   |    16 | a proof over the same data, for the other direction |

use super::protocol::StepKey;
use crate::job::random_u64;
use crate::program::cause;
use nix::errno::Errno;
use nix::libc;
use nix::sys::socket::{
    AddressFamily, Backlog, SockFlag, SockType, SockaddrIn6, bind, setsockopt, socket, sockopt,
};
use siphasher::sip128::SipHasher24;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6, TcpListener, TcpStream};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::time::{Duration, Instant};

const MAGIC: &[u8; 8] = b"rmpistep";
const CHALLENGE_BYTES: usize = 24;
const ANSWER_BYTES: usize = 36;
const PROOF_BYTES: usize = 16;

/// Time within which a peer must complete the handshake.
const PROVES_WITHIN: Duration = Duration::from_secs(5);
/// Maximum number of pending handshakes. When a further peer connects, the oldest handshake is dropped.
const MOST_PENDING_PEERS: usize = 128;
/// Pause in accepting after the process ran out of descriptors.
const PAUSE: Duration = Duration::from_millis(100);
/// Maximum number of ports of a range that are used. The limit exists because peers try all ports of the range.
const MOST_PORTS: u16 = 128;
/// Timeout for connecting to one address and port.
const CONNECTS_WITHIN: Duration = Duration::from_secs(1);
/// Timeout for the first message from an address and port in the first round over all addresses. It is doubled in each
/// further round, up to [`PROVES_WITHIN`].
const ANSWERS_WITHIN: Duration = Duration::from_millis(200);
/// Pause between the first two rounds over all addresses. It is doubled after each round, up to [`MOST_ROUND_AFTER`].
const ROUND_AFTER: Duration = Duration::from_millis(5);
const MOST_ROUND_AFTER: Duration = Duration::from_millis(250);

/// Direction of a proof.
#[derive(Clone, Copy)]
enum ProofDirection {
    Up,
    Down,
}

/// Random bytes for one connection.
type Nonce = [u8; 16];

fn nonce() -> io::Result<Nonce> {
    let half = || random_u64().map_err(io::Error::other);
    let number = u128::from(half()?) << 64 | u128::from(half()?);
    Ok(number.to_le_bytes())
}

/// Data about a connection that both ends have besides the key. Proofs are computed over this data, so a proof cannot
/// be relayed over another connection.
#[derive(Clone, Copy)]
struct ConnectionContext {
    node: u32,
    above: SocketAddr,
    below: SocketAddr,
    /// Nonces of the upper and of the lower end.
    nonces: [Nonce; 2],
}

impl ConnectionContext {
    fn proof(&self, StepKey(key): StepKey, direction: ProofDirection) -> [u8; PROOF_BYTES] {
        let direction = match direction {
            ProofDirection::Up => 1,
            ProofDirection::Down => 2,
        };
        let end = |address: &SocketAddr| {
            let ip = match address.ip().to_canonical() {
                IpAddr::V4(ip) => ip.to_ipv6_mapped(),
                IpAddr::V6(ip) => ip,
            };
            [&ip.octets()[..], &address.port().to_le_bytes()].concat()
        };
        let text = [
            MAGIC,
            &[direction][..],
            &self.node.to_le_bytes(),
            &end(&self.above),
            &end(&self.below),
            &self.nonces.concat(),
        ];
        let hasher = SipHasher24::new_with_key(&key.to_le_bytes());
        hasher.hash(&text.concat()).as_u128().to_le_bytes()
    }
}

/// Compares in constant time.
fn are_equal(one: &[u8; PROOF_BYTES], other: &[u8; PROOF_BYTES]) -> bool {
    let differ = one.iter().zip(other).fold(0, |all, (a, b)| all | (a ^ b));
    std::hint::black_box(differ) == 0
}

/// A connection whose handshake is not complete.
#[derive(Debug)]
struct PendingPeer {
    stream: TcpStream,
    nonce: Nonce,
    answer: Vec<u8>,
    since: Instant,
}

/// Listener for the shepherds below.
#[derive(Debug)]
pub(super) struct StepListener {
    listener: TcpListener,
    key: StepKey,
    pending_peers: Vec<PendingPeer>,
    /// When accepting resumes, after the process ran out of descriptors; `None` if accepting is not paused.
    paused_until: Option<Instant>,
}

impl StepListener {
    /// Listens at the first free port of the range `ports`, or at any port if `ports` is `None`.
    pub(super) fn open(key: StepKey, ports: Option<(u16, u16)>) -> io::Result<Self> {
        let (first, last) = ports.unwrap_or((0, 0));
        let mut why = io::Error::from(ErrorKind::AddrInUse);
        for port in first..=last_used(first, last) {
            match listen(port) {
                Ok(listener) => {
                    return Ok(Self {
                        listener,
                        key,
                        pending_peers: Vec::new(),
                        paused_until: None,
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

    /// The descriptors to poll for input.
    pub(super) fn reading(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        let pending_peers = self.pending_peers.iter().map(|peer| peer.stream.as_fd());
        let is_open = self.paused_until.is_none();
        pending_peers.chain(is_open.then(|| self.listener.as_fd()))
    }

    /// Continues the pending handshakes, and drops peers whose handshake takes too long. Returns the connections that
    /// are now authenticated, each with its node.
    pub(super) fn continue_handshakes(&mut self, now: Instant) -> Vec<(u32, TcpStream)> {
        self.paused_until.take_if(|until| *until <= now);
        if self.paused_until.is_none() {
            self.accept_new(now);
        }
        let mut authenticated = Vec::new();
        for mut peer in std::mem::take(&mut self.pending_peers) {
            match peer.receive_proof(self.key) {
                Ok(Some(node)) => authenticated.push((node, peer.stream)),
                Ok(None) if now.saturating_duration_since(peer.since) < PROVES_WITHIN => {
                    self.pending_peers.push(peer);
                }
                _ => (),
            }
        }
        authenticated
    }

    fn accept_new(&mut self, now: Instant) {
        // Accepts a bounded number of connections per call, even if more are waiting.
        for _ in 0..MOST_PENDING_PEERS {
            let stream = match self.listener.accept() {
                Ok((stream, _)) => stream,
                Err(error) => {
                    let lacks = [libc::EMFILE, libc::ENFILE, libc::ENOBUFS, libc::ENOMEM];
                    if error
                        .raw_os_error()
                        .is_some_and(|code| lacks.contains(&code))
                    {
                        self.paused_until = Some(now + PAUSE);
                    }
                    return;
                }
            };
            if let Ok(peer) = PendingPeer::begin_handshake(stream, now) {
                if self.pending_peers.len() == MOST_PENDING_PEERS {
                    self.pending_peers.remove(0);
                }
                self.pending_peers.push(peer);
            }
        }
    }
}

fn last_used(first: u16, last: u16) -> u16 {
    last.min(first.saturating_add(MOST_PORTS - 1))
}

/// Listens on IPv4 and IPv6, if this system has IPv6.
fn listen(port: u16) -> io::Result<TcpListener> {
    let listener = match listen_for_both(port) {
        // After any other error this does not fall back to IPv4: another process may have the port for IPv6, and would
        // receive the connections of the shepherds below.
        Err(Errno::EAFNOSUPPORT | Errno::EADDRNOTAVAIL) => {
            TcpListener::bind((Ipv4Addr::UNSPECIFIED, port))?
        }
        both => both?,
    };
    listener.set_nonblocking(true)?;
    Ok(listener)
}

fn listen_for_both(port: u16) -> Result<TcpListener, Errno> {
    let flags = SockFlag::SOCK_CLOEXEC;
    let socket = socket(AddressFamily::Inet6, SockType::Stream, flags, None)?;
    setsockopt(&socket, sockopt::ReuseAddr, &true)?;
    setsockopt(&socket, sockopt::Ipv6V6Only, &false)?;
    let address = SocketAddrV6::new(Ipv6Addr::UNSPECIFIED, port, 0, 0);
    bind(socket.as_raw_fd(), &SockaddrIn6::from(address))?;
    nix::sys::socket::listen(&socket, Backlog::MAXCONN)?;
    Ok(TcpListener::from(socket))
}

impl PendingPeer {
    fn begin_handshake(mut stream: TcpStream, since: Instant) -> io::Result<Self> {
        stream.set_nonblocking(true)?;
        stream.set_nodelay(true)?;
        let nonce = nonce()?;
        // The bytes fit in the empty buffer of a new socket.
        stream.write_all(&[MAGIC, &nonce[..]].concat())?;
        Ok(Self {
            stream,
            nonce,
            answer: Vec::new(),
            since,
        })
    }

    /// The peer's node, once its proof has arrived and is valid; `None` if the proof is not complete; an error if it is
    /// invalid.
    fn receive_proof(&mut self, key: StepKey) -> io::Result<Option<u32>> {
        let mut rest = [0; ANSWER_BYTES];
        let rest = &mut rest[..ANSWER_BYTES - self.answer.len()];
        match self.stream.read(rest) {
            Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
            Ok(bytes) => self.answer.extend_from_slice(&rest[..bytes]),
            Err(error) if is_for_later(&error) => (),
            Err(error) => return Err(error),
        }
        let Some((node, nonce, claim)) = parts(&self.answer) else {
            return Ok(None);
        };
        let context = ConnectionContext {
            node,
            above: self.stream.local_addr()?,
            below: self.stream.peer_addr()?,
            nonces: [self.nonce, nonce],
        };
        if !are_equal(&claim, &context.proof(key, ProofDirection::Up)) {
            return Err(ErrorKind::PermissionDenied.into());
        }
        self.stream
            .write_all(&context.proof(key, ProofDirection::Down))?;
        Ok(Some(node))
    }
}

fn is_for_later(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted)
}

/// Splits the connecting peer's message into node, nonce and proof; `None` if the message is not complete.
fn parts(answer: &[u8]) -> Option<(u32, Nonce, [u8; PROOF_BYTES])> {
    let (node, rest) = answer.split_first_chunk()?;
    let (nonce, rest) = rest.split_first_chunk()?;
    let (claim, _) = rest.split_first_chunk()?;
    Some((u32::from_le_bytes(*node), *nonce, *claim))
}

/// Connects to the shepherd above at any of the addresses that `resolve` returns (whose ports are ignored) and any of
/// these ports. Tries again until `until`, since that shepherd may not be listening yet.
///
/// # Errors
/// If no attempt has succeeded by `until`: the error of the last attempt.
pub(super) fn connect(
    key: StepKey,
    node: u32,
    resolve: impl Fn() -> io::Result<Vec<SocketAddr>>,
    ports: (u16, u16),
    until: Instant,
) -> Result<TcpStream, String> {
    let mut pause = ROUND_AFTER;
    let mut first_message_timeout = ANSWERS_WITHIN;
    let mut addresses = Vec::new();
    loop {
        let mut why = "it has no address".to_owned();
        if addresses.is_empty() {
            match resolve() {
                Ok(all) => addresses = all,
                Err(error) => why = cause(&error),
            }
        }
        for place in places(&addresses, ports) {
            match try_at(place, key, node, first_message_timeout) {
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
        first_message_timeout = (first_message_timeout * 2).min(PROVES_WITHIN);
    }
}

/// All pairs of address and port, in the order in which they are tried: the first port at all addresses, then the next
/// port.
fn places(addresses: &[SocketAddr], (first, last): (u16, u16)) -> impl Iterator<Item = SocketAddr> {
    (first..=last_used(first, last)).flat_map(move |port| {
        addresses.iter().map(move |address| {
            let mut place = *address;
            place.set_port(port);
            place
        })
    })
}

fn try_at(
    place: SocketAddr,
    key: StepKey,
    node: u32,
    first_message_timeout: Duration,
) -> io::Result<TcpStream> {
    let mut stream = TcpStream::connect_timeout(&place, CONNECTS_WITHIN)?;
    stream.set_nodelay(true)?;
    stream.set_write_timeout(Some(PROVES_WITHIN))?;
    let mut challenge = [0; CHALLENGE_BYTES];
    read_within(&mut stream, &mut challenge, first_message_timeout)?;
    let (magic, theirs) = challenge.split_first_chunk().expect("it is longer");
    let theirs: &Nonce = theirs.first_chunk().expect("16 are left");
    if magic != MAGIC {
        return Err(io::Error::other("something else answers"));
    }
    let own = nonce()?;
    let context = ConnectionContext {
        node,
        above: stream.peer_addr()?,
        below: stream.local_addr()?,
        nonces: [*theirs, own],
    };
    let claim = context.proof(key, ProofDirection::Up);
    stream.write_all(&[&node.to_le_bytes()[..], &own, &claim].concat())?;
    let mut answer = [0; PROOF_BYTES];
    let refused =
        |_| io::Error::other("it is of another job, or what is sent there goes elsewhere");
    read_within(&mut stream, &mut answer, PROVES_WITHIN).map_err(refused)?;
    match are_equal(&answer, &context.proof(key, ProofDirection::Down)) {
        true => Ok(stream),
        false => Err(io::Error::other("it does not have the key")),
    }
}

/// Fills `bytes`, within `time`.
fn read_within(stream: &mut TcpStream, mut bytes: &mut [u8], time: Duration) -> io::Result<()> {
    let until = Instant::now() + time;
    while !bytes.is_empty() {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(ErrorKind::TimedOut.into());
        }
        stream.set_read_timeout(Some(left))?;
        match stream.read(bytes) {
            Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
            Ok(count) => bytes = &mut bytes[count..],
            Err(error) if is_for_later(&error) => (),
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: StepKey = StepKey(0x1234_5678_9abc_def0_1234_5678_9abc_def0);

    fn listener() -> (StepListener, (u16, u16)) {
        let listener = StepListener::open(KEY, None).unwrap();
        let port = listener.port().unwrap();
        (listener, (port, port))
    }

    fn authenticated() -> io::Result<Vec<SocketAddr>> {
        Ok(vec![(Ipv4Addr::LOCALHOST, 0).into()])
    }

    fn soon() -> Instant {
        Instant::now() + Duration::from_secs(20)
    }

    /// Runs the listener until a connection is authenticated, and returns that connection.
    fn first(listener: &mut StepListener) -> (u32, TcpStream) {
        let until = soon();
        loop {
            if let Some(one) = listener.continue_handshakes(Instant::now()).pop() {
                return one;
            }
            assert!(Instant::now() < until, "no peer has connected");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    #[test]
    fn a_peer_with_the_key_is_accepted() {
        let (mut listener, ports) = listener();
        let caller = std::thread::spawn(move || connect(KEY, 7, authenticated, ports, soon()));
        let (node, mut ours) = first(&mut listener);
        let mut theirs = caller.join().unwrap().unwrap();
        assert_eq!(node, 7);
        ours.write_all(b"words").unwrap();
        let mut bytes = [0; 5];
        theirs.read_exact(&mut bytes).unwrap();
        assert_eq!(&bytes, b"words");
    }

    #[test]
    fn a_peer_without_the_key_is_rejected() {
        let (mut listener, ports) = listener();
        // Open more connections that send nothing than the listener has room for.
        let mut silent = Vec::new();
        for _ in 0..MOST_PENDING_PEERS + 20 {
            silent.push(TcpStream::connect((Ipv4Addr::LOCALHOST, ports.0)).unwrap());
            listener.continue_handshakes(Instant::now());
        }
        let mut noisy = TcpStream::connect((Ipv4Addr::LOCALHOST, ports.0)).unwrap();
        noisy.write_all(&[b'x'; 4096]).unwrap();
        let until = Instant::now() + Duration::from_millis(700);
        let wrong = std::thread::spawn(move || connect(StepKey(1), 7, authenticated, ports, until));
        while !wrong.is_finished() {
            assert!(listener.continue_handshakes(Instant::now()).is_empty());
        }
        let why = wrong.join().unwrap().unwrap_err();
        assert!(why.contains("another job"), "{why}");
        assert!(listener.pending_peers.len() <= MOST_PENDING_PEERS);
        let right = std::thread::spawn(move || connect(KEY, 8, authenticated, ports, soon()));
        assert_eq!(first(&mut listener).0, 8);
        assert!(right.join().unwrap().is_ok());
        listener.continue_handshakes(Instant::now() + PROVES_WITHIN);
        assert!(listener.pending_peers.is_empty(), "they had their time");
    }

    #[test]
    fn the_parent_may_listen_later_and_on_the_next_port() {
        // Another process has the first port and does not implement the protocol.
        let (other, place) = (0..100)
            .find_map(|_| {
                let other = listen(0).ok()?;
                let port = other.local_addr().ok()?.port();
                other.set_nonblocking(false).ok()?;
                let next = port.checked_add(1)?;
                listen(next).ok().map(|_| (other, (port, next)))
            })
            .unwrap();
        let other_server = std::thread::spawn(move || {
            while let Ok((mut stream, _)) = other.accept() {
                let _ = stream.write_all(&[b'y'; CHALLENGE_BYTES]);
                let mut end = [0; 1];
                if stream.read(&mut end).is_ok_and(|bytes| bytes == 1) && end == *b"q" {
                    return;
                }
            }
        });
        let caller = std::thread::spawn(move || connect(KEY, 3, authenticated, place, soon()));
        std::thread::sleep(Duration::from_millis(100));
        let mut listener = StepListener::open(KEY, Some(place)).unwrap();
        assert_eq!(listener.port().unwrap(), place.1);
        assert_eq!(first(&mut listener).0, 3);
        assert!(caller.join().unwrap().is_ok());
        let mut last = TcpStream::connect((Ipv4Addr::LOCALHOST, place.0)).unwrap();
        last.write_all(b"q").unwrap();
        other_server.join().unwrap();
    }

    #[test]
    fn a_proof_is_bound_to_key_direction_and_connection() {
        let at = |text: &str| text.parse().unwrap();
        let context = ConnectionContext {
            node: 1,
            above: at("10.0.0.1:7"),
            below: at("10.0.0.2:7"),
            nonces: [[1; 16], [2; 16]],
        };
        let mapped = ConnectionContext {
            above: at("[::ffff:10.0.0.1]:7"),
            ..context
        };
        assert!(are_equal(
            &context.proof(KEY, ProofDirection::Up),
            &mapped.proof(KEY, ProofDirection::Up)
        ));
        let other = [
            ConnectionContext { node: 2, ..context },
            ConnectionContext {
                above: at("10.0.0.1:8"),
                ..context
            },
            ConnectionContext {
                below: at("10.0.0.3:7"),
                ..context
            },
            ConnectionContext {
                nonces: [[2; 16], [1; 16]],
                ..context
            },
        ];
        let mut all = vec![
            context.proof(KEY, ProofDirection::Up),
            context.proof(KEY, ProofDirection::Down),
            context.proof(StepKey(9), ProofDirection::Up),
        ];
        all.extend(
            other
                .iter()
                .map(|context| context.proof(KEY, ProofDirection::Up)),
        );
        for (at, one) in all.iter().enumerate() {
            assert!(all[at + 1..].iter().all(|other| !are_equal(one, other)));
        }
    }

    #[test]
    fn a_relayed_handshake_is_rejected() {
        let (mut listener, ports) = listener();
        let between = listen(0).unwrap();
        between.set_nonblocking(false).unwrap();
        let port = between.local_addr().unwrap().port();
        let relay = std::thread::spawn(move || {
            let (mut below, _) = between.accept().unwrap();
            let mut above = TcpStream::connect((Ipv4Addr::LOCALHOST, ports.0)).unwrap();
            let mut challenge = [0; CHALLENGE_BYTES];
            above.read_exact(&mut challenge).unwrap();
            below.write_all(&challenge).unwrap();
            let mut answer = [0; ANSWER_BYTES];
            below.read_exact(&mut answer).unwrap();
            above.write_all(&answer).unwrap();
            above.read(&mut [0; PROOF_BYTES]).unwrap_or(0)
        });
        let until = Instant::now() + Duration::from_millis(1);
        let caller =
            std::thread::spawn(move || connect(KEY, 7, authenticated, (port, port), until));
        while !relay.is_finished() {
            assert!(listener.continue_handshakes(Instant::now()).is_empty());
        }
        assert_eq!(relay.join().unwrap(), 0, "nothing is proved to it");
        assert!(caller.join().unwrap().is_err());
    }

    #[test]
    fn only_some_ports_of_a_long_range_are_tried() {
        let all = |range| places(&authenticated().unwrap(), range).count();
        assert_eq!(
            (all((1, 65535)), all((65535, 65535)), all((10, 12))),
            (128, 1, 3)
        );
    }
}
