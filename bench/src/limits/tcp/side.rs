// SPDX-License-Identifier: MIT OR Apache-2.0
//! The code that both ends of the connection share, and the end that measures.
//!
//! The measuring end sends its token, then one [`TcpBatch`] after the other; each batch begins when the server has
//! reported that it is ready. Sizes and counts from the network are checked against their bounds.

mod datagrams;

use std::hint::spin_loop;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpStream, ToSocketAddrs};
use std::time::{Duration, Instant};

use nix::sys::socket::{setsockopt, sockopt};

use crate::Error;
use crate::stats::Summary;

/// What is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TcpTask {
    /// One message at a time over TCP, there and back.
    PingPong,
    /// Messages one way over TCP, and a byte back when all have arrived.
    Stream,
    /// A ping-pong of UDP datagrams.
    Datagrams,
    /// Messages one way in UDP packets; lost packets are sent again.
    Packets,
}

impl TcpTask {
    const ALL: [Self; 4] = [Self::PingPong, Self::Stream, Self::Datagrams, Self::Packets];

    fn number(self) -> u8 {
        match self {
            Self::PingPong => 0,
            Self::Stream => 1,
            Self::Datagrams => 2,
            Self::Packets => 3,
        }
    }

    fn of_number(number: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|task| task.number() == number)
    }
}

/// How an end waits for data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wait {
    /// Non-blocking calls, repeated until there is data.
    Spin,
    /// Non-blocking calls with `sched_yield` in between, because both ends may share a CPU.
    Yield,
    /// Blocking calls.
    Block,
}

/// How an end uses its socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SocketUse {
    wait: Wait,
    /// Whether socket buffers of 4 MiB are requested; otherwise the kernel sizes them as it goes.
    buffers: bool,
    /// Whether congestion control is Reno, which every process may choose; otherwise it is the kernel's default.
    reno: bool,
}

impl SocketUse {
    const fn new(wait: Wait, buffers: bool, reno: bool) -> Self {
        Self {
            wait,
            buffers,
            reno,
        }
    }

    pub(super) const NON_BLOCKING: [Self; 2] = [
        Self::new(Wait::Spin, false, false),
        Self::new(Wait::Yield, false, false),
    ];
    pub(super) const STREAMING: [Self; 8] = [
        Self::new(Wait::Spin, false, false),
        Self::new(Wait::Block, false, false),
        Self::new(Wait::Spin, true, false),
        Self::new(Wait::Block, true, false),
        Self::new(Wait::Spin, false, true),
        Self::new(Wait::Block, false, true),
        Self::new(Wait::Spin, true, true),
        Self::new(Wait::Block, true, true),
    ];

    pub(super) fn words(self) -> String {
        let wait = match self.wait {
            Wait::Spin => "non-blocking",
            Wait::Yield => "yielding",
            Wait::Block => "blocking",
        };
        let buffers = if self.buffers { ", 4 MiB buffers" } else { "" };
        let reno = if self.reno { ", reno" } else { "" };
        format!("{wait}{buffers}{reno}")
    }
}

impl Wait {
    const ALL: [Self; 3] = [Self::Spin, Self::Yield, Self::Block];

    fn number(self) -> u8 {
        match self {
            Self::Spin => 0,
            Self::Yield => 1,
            Self::Block => 2,
        }
    }

    fn of_number(number: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|wait| wait.number() == number)
    }
}

/// One batch, as the measuring end requests it from the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TcpBatch {
    pub(super) task: TcpTask,
    pub(super) way: SocketUse,
    pub(super) size: usize,
    pub(super) count: u64,
}

pub(super) const LARGEST: usize = 4 << 20;
const MOST_MESSAGES: u64 = 1 << 32;
pub(super) const TOKEN_BYTES: usize = 32;
/// The server's reply to the token.
pub(super) const WELCOME: [u8; 8] = *b"rmpi tcp";
pub(super) const BATCH_BYTES: usize = 16;
/// How long one end waits for data from the other before it fails; tests wait for that.
const STUCK_AFTER: Duration = Duration::from_secs(if cfg!(test) { 5 } else { 30 });
/// The number of buffers that messages rotate over, as in the benchmarks.
const BUFFERS: usize = 64;

impl TcpBatch {
    pub(super) fn bytes(&self) -> [u8; BATCH_BYTES] {
        let mut bytes = [0; BATCH_BYTES];
        bytes[0] = self.task.number();
        bytes[1] = self.way.wait.number();
        bytes[2] = u8::from(self.way.buffers);
        bytes[3] = u8::from(self.way.reno);
        bytes[4..8].copy_from_slice(&u32::try_from(self.size).unwrap_or(0).to_le_bytes());
        bytes[8..].copy_from_slice(&self.count.to_le_bytes());
        bytes
    }

    /// Reads what [`TcpBatch::bytes`] wrote; `None` if a value is out of bounds.
    pub(super) fn read(bytes: [u8; BATCH_BYTES]) -> Option<Self> {
        let flag = |at: usize| (bytes[at] < 2).then_some(bytes[at] == 1);
        let size = u32::from_le_bytes(bytes[4..8].try_into().ok()?);
        let size = usize::try_from(size).ok()?;
        let count = u64::from_le_bytes(bytes[8..].try_into().ok()?);
        let good = (1..=LARGEST).contains(&size) && (1..=MOST_MESSAGES).contains(&count);
        good.then_some(())?;
        Some(Self {
            task: TcpTask::of_number(bytes[0])?,
            way: SocketUse {
                wait: Wait::of_number(bytes[1])?,
                buffers: flag(2)?,
                reno: flag(3)?,
            },
            size,
            count,
        })
    }
}

/// Buffers over which messages rotate; each batch begins with the buffer after the last one of the batch before.
pub(super) struct Buffers {
    bytes: Vec<u8>,
    size: usize,
    next: usize,
}

impl Buffers {
    pub(super) fn new(size: usize) -> Self {
        // The bytes are written here, so that no batch takes page faults.
        Self {
            bytes: vec![1; size * BUFFERS],
            size,
            next: 0,
        }
    }

    pub(super) const fn size(&self) -> usize {
        self.size
    }

    fn take(&mut self) -> &mut [u8] {
        let at = self.next * self.size;
        self.next = (self.next + 1) % BUFFERS;
        &mut self.bytes[at..at + self.size]
    }

    /// The payload of packet `number` of a batch whose messages have `in_message` packets each. The last packet of a
    /// message may be shorter.
    fn packet(&mut self, number: u64, in_message: usize) -> &mut [u8] {
        let number = usize::try_from(number).unwrap_or(0);
        let (message, packet) = (number / in_message % BUFFERS, number % in_message);
        let each = self.size.div_ceil(in_message);
        let begin = packet * each;
        let end = self.size.min(begin + each);
        &mut self.bytes[message * self.size..][begin..end]
    }
}

/// A connection, and how this end waits for data now (the `wait` of the last [`SocketUse`]).
pub(super) struct OneWayStream {
    stream: TcpStream,
    wait: Wait,
}

impl OneWayStream {
    /// Sets up a connection without Nagle's algorithm (`TCP_NODELAY`), with time limits for blocking calls.
    pub(super) fn new(stream: TcpStream) -> io::Result<Self> {
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(STUCK_AFTER))?;
        stream.set_write_timeout(Some(STUCK_AFTER))?;
        Ok(Self {
            stream,
            wait: Wait::Block,
        })
    }

    pub(super) fn set_blocking(&mut self) -> io::Result<()> {
        self.wait = Wait::Block;
        self.stream.set_nonblocking(false)
    }

    fn set(&mut self, way: SocketUse) -> io::Result<()> {
        if way.reno {
            setsockopt(&self.stream, sockopt::TcpCongestion, &"reno".into())?;
        }
        if way.buffers {
            setsockopt(&self.stream, sockopt::SndBuf, &LARGEST)?;
            setsockopt(&self.stream, sockopt::RcvBuf, &LARGEST)?;
        }
        self.wait = way.wait;
        self.stream.set_nonblocking(way.wait != Wait::Block)
    }

    pub(super) fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        let mut sent = 0;
        let mut limit = SpinLimit::default();
        while sent < bytes.len() {
            match self.stream.write(&bytes[sent..]) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(more) => sent += more,
                Err(error) => self.retry(error, &mut limit)?,
            }
        }
        Ok(())
    }

    pub(super) fn receive(&mut self, bytes: &mut [u8]) -> io::Result<()> {
        let mut received = 0;
        let mut limit = SpinLimit::default();
        while received < bytes.len() {
            match self.stream.read(&mut bytes[received..]) {
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(more) => received += more,
                Err(error) => self.retry(error, &mut limit)?,
            }
        }
        Ok(())
    }

    fn retry(&self, error: io::Error, limit: &mut SpinLimit) -> io::Result<()> {
        match error.kind() {
            ErrorKind::Interrupted => Ok(()),
            ErrorKind::WouldBlock if self.wait != Wait::Block => {
                match self.wait {
                    Wait::Yield => std::thread::yield_now(),
                    _ => spin_loop(),
                }
                limit.check()
            }
            _ => Err(error),
        }
    }

    /// Runs this end's part of a TCP batch, once the server has reported that it is ready. `is_first` is `true` at the
    /// measuring end, which sends first.
    pub(super) fn run(
        &mut self,
        job: TcpBatch,
        buffers: &mut Buffers,
        is_first: bool,
    ) -> io::Result<()> {
        let mut done = [0];
        for _ in 0..job.count {
            let buffer = buffers.take();
            if is_first {
                self.send(buffer)?;
            }
            if job.task == TcpTask::PingPong || !is_first {
                self.receive(buffer)?;
            }
            if job.task == TcpTask::PingPong && !is_first {
                self.send(buffer)?;
            }
        }
        match (job.task, is_first) {
            (TcpTask::PingPong | TcpTask::Datagrams | TcpTask::Packets, _) => Ok(()),
            (TcpTask::Stream, true) => self.receive(&mut done),
            (TcpTask::Stream, false) => self.send(&done),
        }
    }

    /// The server's part of a batch: reports that it is ready, and runs the task.
    pub(super) fn serve_batch(&mut self, job: TcpBatch, buffers: &mut Buffers) -> io::Result<()> {
        self.set(job.way)?;
        self.send(&[1])?;
        match job.task {
            TcpTask::Datagrams => {
                let socket = self.open_udp(job.task)?;
                self.exchange(&socket, job, buffers, false)?;
            }
            TcpTask::Packets => {
                let socket = self.open_udp(job.task)?;
                self.receive_packets(&socket, job, buffers)?;
            }
            TcpTask::PingPong | TcpTask::Stream => self.run(job, buffers, false)?,
        }
        self.set_blocking()
    }

    /// The measuring end's part of a batch: requests it, and measures seconds per message, one way.
    fn batch(&mut self, job: TcpBatch, buffers: &mut Buffers) -> io::Result<f64> {
        self.set_blocking()?;
        self.send(&job.bytes())?;
        self.receive(&mut [0])?;
        self.set(job.way)?;
        let socket = match job.task {
            TcpTask::Datagrams | TcpTask::Packets => Some(self.open_udp(job.task)?),
            TcpTask::PingPong | TcpTask::Stream => None,
        };
        let start = Instant::now();
        match (socket, job.task) {
            (Some(socket), TcpTask::Packets) => self.send_packets(&socket, job, buffers)?,
            (Some(socket), _) => self.exchange(&socket, job, buffers, true)?,
            (None, _) => self.run(job, buffers, true)?,
        }
        let seconds = start.elapsed().as_secs_f64();
        let ways = match job.task {
            TcpTask::Stream | TcpTask::Packets => 1.0,
            TcpTask::PingPong | TcpTask::Datagrams => 2.0,
        };
        #[allow(clippy::cast_precision_loss, reason = "a number of messages")]
        let messages = job.count as f64;
        Ok(seconds / messages / ways)
    }
}

/// The time limit of an end that spins for data.
#[derive(Default)]
struct SpinLimit {
    checks: u32,
    since: Option<Instant>,
}

impl SpinLimit {
    fn check(&mut self) -> io::Result<()> {
        self.checks = self.checks.wrapping_add(1);
        if self.checks.is_multiple_of(1024) {
            let since = *self.since.get_or_insert_with(Instant::now);
            if since.elapsed() > STUCK_AFTER {
                return Err(ErrorKind::TimedOut.into());
            }
        }
        Ok(())
    }
}

/// The addresses at which the server listens, and the token that it expects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Address {
    pub(super) port: u16,
    pub(super) token: String,
    pub(super) addresses: Vec<IpAddr>,
}

const ADDRESS_WORD: &str = "rmpi-limits-tcp";

impl Address {
    /// The line that [`Address::read`] reads.
    pub(super) fn line(&self) -> String {
        format!("{ADDRESS_WORD} {}", self.words().join(" "))
    }

    pub(super) fn read(line: &str) -> Option<Self> {
        let words: Vec<&str> = line.split_whitespace().collect();
        match words.as_slice() {
            [word, port, token, addresses] if *word == ADDRESS_WORD => {
                Self::of_words(port, token, addresses)
            }
            _ => None,
        }
    }

    pub(super) fn words(&self) -> [String; 3] {
        let addresses: Vec<String> = self.addresses.iter().map(IpAddr::to_string).collect();
        [
            self.port.to_string(),
            self.token.clone(),
            addresses.join(","),
        ]
    }

    pub(super) fn of_words(port: &str, token: &str, addresses: &str) -> Option<Self> {
        let good = token.len() == TOKEN_BYTES && token.bytes().all(|byte| byte.is_ascii_hexdigit());
        let addresses: Result<Vec<IpAddr>, _> = addresses.split(',').map(str::parse).collect();
        Some(Self {
            port: port.parse().ok()?,
            token: good.then(|| token.to_owned())?,
            addresses: addresses.ok()?,
        })
    }

    /// Finds the address at which the server answers: one that the host's name resolves to here, or one that the server
    /// has sent.
    pub(super) fn find(self, host: &str) -> Result<RemoteEnd, Error> {
        let named = (host, self.port).to_socket_addrs().into_iter().flatten();
        let announced = self
            .addresses
            .iter()
            .map(|address| SocketAddr::new(*address, self.port));
        let candidates: Vec<SocketAddr> = named.chain(announced).collect();
        for at in candidates.iter().copied() {
            let Ok(stream) = connect(at, &self.token) else {
                continue;
            };
            let ends = (stream.stream.local_addr(), stream.stream.peer_addr());
            if let (Ok(own), Ok(other)) = ends {
                let plain = |end: SocketAddr| end.ip().to_canonical().to_string();
                return Ok(RemoteEnd {
                    at,
                    token: self.token,
                    addresses: [plain(own), plain(other)],
                });
            }
        }
        let tried: Vec<String> = candidates.iter().map(SocketAddr::to_string).collect();
        Err(Error::Limit(format!(
            "host {host} cannot be reached over TCP from here: tried {}",
            tried.join(", ")
        )))
    }
}

fn connect(at: SocketAddr, token: &str) -> io::Result<OneWayStream> {
    let wait = Duration::from_secs(5);
    let stream = TcpStream::connect_timeout(&at, wait)?;
    let mut line = OneWayStream::new(stream)?;
    line.stream.set_read_timeout(Some(wait))?;
    line.send(token.as_bytes())?;
    let mut answer = [0; WELCOME.len()];
    line.receive(&mut answer)?;
    if answer != WELCOME {
        // Another program listens at that port, perhaps on another host with the same address.
        return Err(ErrorKind::InvalidData.into());
    }
    line.stream.set_read_timeout(Some(STUCK_AFTER))?;
    Ok(line)
}

/// The server, as [`Address::find`] reached it.
pub(super) struct RemoteEnd {
    at: SocketAddr,
    token: String,
    pub(super) addresses: [String; 2],
}

/// The intended duration of a ping-pong batch.
const BATCH: Duration = Duration::from_micros(500);
/// Messages of a stream batch: as many as the benchmarks have in flight, or fewer if they exceed `WINDOW_BYTES`.
const WINDOW: u64 = 64;
const WINDOW_BYTES: usize = 32 << 20;
const LEAST_BATCHES: usize = 3;

impl RemoteEnd {
    /// Measures seconds per message over a new connection.
    pub(super) fn measure(
        &self,
        task: TcpTask,
        way: SocketUse,
        size: usize,
        budget: Duration,
    ) -> Result<Summary, Error> {
        let seconds = self.samples(task, way, size, budget);
        let seconds = seconds.map_err(|e| Error::io("the connection between the hosts", e))?;
        Summary::of(&seconds).ok_or_else(|| Error::Limit("nothing was measured".to_owned()))
    }

    fn samples(
        &self,
        task: TcpTask,
        way: SocketUse,
        size: usize,
        budget: Duration,
    ) -> io::Result<Vec<f64>> {
        let mut line = connect(self.at, &self.token)?;
        let mut buffers = Buffers::new(size);
        let job = |count| TcpBatch {
            task,
            way,
            size,
            count,
        };
        let in_window = (WINDOW_BYTES / size) as u64;
        let window = WINDOW.min(in_window).max(1);
        // This batch is also the warm-up.
        let one = line.batch(job(window), &mut buffers)?;
        let count = match task {
            TcpTask::Stream | TcpTask::Packets => window,
            TcpTask::PingPong | TcpTask::Datagrams => trips(one),
        };
        line.batch(job(count), &mut buffers)?;
        let (start, mut samples) = (Instant::now(), Vec::new());
        while samples.len() < LEAST_BATCHES || start.elapsed() < budget {
            samples.push(line.batch(job(count), &mut buffers)?);
        }
        Ok(samples)
    }
}

/// The number of round trips that take about as long as [`BATCH`] if one way takes `one_way` seconds.
fn trips(one_way: f64) -> u64 {
    let trips = BATCH.as_secs_f64() / (2.0 * one_way.max(1e-9));
    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "within bounds"
    )]
    let trips = trips.clamp(1.0, 1e5) as u64;
    trips
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_is_read_as_it_was_written() {
        for way in [SocketUse::STREAMING, [SocketUse::NON_BLOCKING[1]; 8]].concat() {
            for task in TcpTask::ALL {
                let job = TcpBatch {
                    task,
                    way,
                    size: LARGEST,
                    count: 7,
                };
                assert_eq!(TcpBatch::read(job.bytes()), Some(job));
            }
        }
    }

    #[test]
    fn a_batch_out_of_bounds_is_refused() {
        let job = |size, count| TcpBatch {
            task: TcpTask::Stream,
            way: SocketUse::NON_BLOCKING[0],
            size,
            count,
        };
        for wrong in [
            job(0, 1),
            job(LARGEST + 1, 1),
            job(8, 0),
            job(8, MOST_MESSAGES + 1),
        ] {
            assert_eq!(TcpBatch::read(wrong.bytes()), None, "{wrong:?}");
        }
        let mut bytes = job(8, 1).bytes();
        bytes[1] = 3;
        assert_eq!(TcpBatch::read(bytes), None);
        assert_eq!(TcpBatch::read([0xff; BATCH_BYTES]), None);
    }

    #[test]
    fn an_address_is_found_among_what_a_login_shell_prints() {
        let address = Address {
            port: 4711,
            token: "0123456789abcdef".repeat(2),
            addresses: vec!["10.77.0.2".parse().unwrap(), "::1".parse().unwrap()],
        };
        assert_eq!(Address::read(&address.line()), Some(address));
        for noise in [
            "",
            "Welcome to n2",
            "rmpi-limits-tcp 4711 short 10.77.0.2",
            "rmpi-limits-tcp many words",
        ] {
            assert_eq!(Address::read(noise), None, "{noise}");
        }
    }

    #[test]
    fn a_batch_takes_about_its_intended_time() {
        assert_eq!((trips(5e-6), trips(1.0), trips(0.0)), (50, 1, 100_000));
    }
}
