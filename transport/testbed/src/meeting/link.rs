// SPDX-License-Identifier: MIT OR Apache-2.0
//! A non-blocking connection between two hosts, which transfers messages in order, each as a frame.

use std::collections::VecDeque;
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::{Duration, Instant};

/// A message between two hosts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HostMessage {
    /// The first message of a connecting host: its number, the number of its run, and the name of its test.
    Hello { host: u32, run: u64, test: String },
    /// Host a is at the same test.
    Welcome,
    /// Confirms the Welcome: from now on the connecting host counts as arrived.
    Here,
    /// Host a is in another run; with an explanation.
    Refused(String),
    /// Host a is at another test, with this name.
    At(String),
    /// The test of the receiving host is over on the sending host; with its outcome on the sending host.
    Over(String),
    /// The test of the receiving host was never started on the sending host.
    Never,
    /// The address record of a rank.
    Record { rank: u32, record: Vec<u8> },
    /// A rank has completed another phase.
    Done { rank: u32 },
    /// A host gives the test up; with the reason.
    GaveUp { host: u32, why: String },
    /// A keep-alive.
    Alive,
    /// The last message of a successful test.
    Bye,
}

impl HostMessage {
    fn parts(&self) -> (u8, u64, &[u8]) {
        match self {
            Self::Hello { .. } => (0, 0, &[]),
            Self::Welcome => (1, 0, &[]),
            Self::Here => (2, 0, &[]),
            Self::Refused(reason) => (3, 0, reason.as_bytes()),
            Self::At(test) => (4, 0, test.as_bytes()),
            Self::Over(reason) => (5, 0, reason.as_bytes()),
            Self::Never => (6, 0, &[]),
            Self::Record { rank, record } => (7, u64::from(*rank), record),
            Self::Done { rank } => (8, u64::from(*rank), &[]),
            Self::GaveUp { host, why } => (9, u64::from(*host), why.as_bytes()),
            Self::Alive => (10, 0, &[]),
            Self::Bye => (11, 0, &[]),
        }
    }

    /// Appends the frame of a message: kind, number, length of the text, text. In a Hello the number is that of the
    /// run, and the text begins with the number of the host.
    fn encode(&self, into: &mut Vec<u8>) {
        let hello;
        let (kind, number, text) = match self {
            Self::Hello { host, run, test } => {
                hello = [&host.to_le_bytes()[..], test.as_bytes()].concat();
                (0, *run, &hello[..])
            }
            _ => self.parts(),
        };
        into.push(kind);
        into.extend(number.to_le_bytes());
        into.extend(u32::try_from(text.len()).unwrap().to_le_bytes());
        into.extend(text);
    }

    fn decode(kind: u8, number: u64, text: &[u8]) -> Result<Self, String> {
        let string = || String::from_utf8_lossy(text).into_owned();
        let small = || u32::try_from(number).map_err(|_| format!("there is no number {number}"));
        Ok(match kind {
            0 => {
                let (host, test) = text.split_first_chunk().ok_or("a hello is too short")?;
                Self::Hello {
                    host: u32::from_le_bytes(*host),
                    run: number,
                    test: String::from_utf8_lossy(test).into_owned(),
                }
            }
            1 => Self::Welcome,
            2 => Self::Here,
            3 => Self::Refused(string()),
            4 => Self::At(string()),
            5 => Self::Over(string()),
            6 => Self::Never,
            7 => Self::Record {
                rank: small()?,
                record: text.to_vec(),
            },
            8 => Self::Done { rank: small()? },
            9 => Self::GaveUp {
                host: small()?,
                why: string(),
            },
            10 => Self::Alive,
            11 => Self::Bye,
            _ => return Err(format!("there is no message of kind {kind}")),
        })
    }
}

pub struct HostLink {
    stream: TcpStream,
    /// The host at the other end, once it is known.
    pub host: Option<u32>,
    /// Received bytes that are not parsed yet.
    received: Vec<u8>,
    /// Received messages that were not taken yet.
    messages: VecDeque<HostMessage>,
    /// Bytes to be sent.
    outgoing: Vec<u8>,
    /// Whether the last message of the other end was received.
    pub is_over: bool,
    /// Whether the last message of this end was queued.
    is_closing: bool,
    last_received: Instant,
    last_sent: Instant,
}

impl HostLink {
    pub fn new(stream: TcpStream, host: Option<u32>) -> std::io::Result<Self> {
        stream.set_nonblocking(true)?;
        stream.set_nodelay(true)?;
        let now = Instant::now();
        Ok(Self {
            stream,
            host,
            received: Vec::new(),
            messages: VecDeque::new(),
            outgoing: Vec::new(),
            is_over: false,
            is_closing: false,
            last_received: now,
            last_sent: now,
        })
    }

    /// Queues a message. After the last message nothing is queued any more: the other end may be closed, and data that
    /// it does not read would reset the connection before its own last message is received here.
    pub fn send(&mut self, message: &HostMessage) {
        if self.is_closing {
            return;
        }
        self.is_closing = *message == HostMessage::Bye;
        message.encode(&mut self.outgoing);
        self.last_sent = Instant::now();
    }

    pub fn send_keep_alive(&mut self) {
        if self.last_sent.elapsed() > KEEP_ALIVE_INTERVAL {
            self.send(&HostMessage::Alive);
        }
    }

    pub fn silence(&self) -> Duration {
        self.last_received.elapsed()
    }

    /// Sends and receives as much as possible without blocking. An error is the reason why nothing more will be
    /// received; messages that were received before can still be taken.
    pub fn turn(&mut self) -> Result<(), String> {
        let sent = self.flush();
        let read = self.fill();
        self.parse().and(read).and(sent)
    }

    /// Takes the next received message.
    pub fn take(&mut self) -> Option<HostMessage> {
        self.messages.pop_front()
    }

    /// Whether all queued bytes were passed to the kernel.
    pub fn is_flushed(&self) -> bool {
        self.outgoing.is_empty()
    }

    /// Shuts down the sending direction, and waits until the other end has received everything and closes, at most for
    /// `most`. An immediate close, with unread data, might discard data that was sent.
    pub fn finish(&mut self, most: Duration) {
        let limit = Instant::now() + most;
        let mut is_shut = false;
        while self.turn().is_ok() && Instant::now() < limit {
            if self.is_flushed() && !is_shut {
                is_shut = self.stream.shutdown(Shutdown::Write).is_ok();
            }
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    fn flush(&mut self) -> Result<(), String> {
        while !self.outgoing.is_empty() {
            match self.stream.write(&self.outgoing) {
                Ok(count) => drop(self.outgoing.drain(..count)),
                Err(why) if why.kind() == ErrorKind::WouldBlock => break,
                Err(why) if why.kind() == ErrorKind::Interrupted => {}
                Err(why) => return Err(format!("the connection broke: {why}")),
            }
        }
        Ok(())
    }

    fn fill(&mut self) -> Result<(), String> {
        let mut bytes = [0; 4096];
        loop {
            match self.stream.read(&mut bytes) {
                Ok(0) => return Err("it hung up".into()),
                Ok(count) => {
                    self.received.extend(&bytes[..count]);
                    self.last_received = Instant::now();
                }
                Err(why) if why.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(why) if why.kind() == ErrorKind::Interrupted => {}
                Err(why) => return Err(format!("the connection broke: {why}")),
            }
        }
    }

    fn parse(&mut self) -> Result<(), String> {
        while let Some((head, rest)) = self.received.split_first_chunk::<HEADER_BYTES>() {
            let number = u64::from_le_bytes(head[1..9].try_into().unwrap());
            let length = u32::from_le_bytes(head[9..].try_into().unwrap()) as usize;
            if length > TEXT_BYTES_MAX {
                return Err(format!(
                    "it sends a message of {length} bytes, longer than any of a host"
                ));
            }
            let Some(text) = rest.get(..length) else {
                break;
            };
            let message = HostMessage::decode(head[0], number, text)?;
            self.is_over |= message == HostMessage::Bye;
            self.messages.push_back(message);
            self.received.drain(..HEADER_BYTES + length);
        }
        Ok(())
    }
}

/// Length of the header of a frame in bytes.
const HEADER_BYTES: usize = 13;
/// Largest text of a frame in bytes.
const TEXT_BYTES_MAX: usize = 1 << 20;
/// Interval of keep-alives.
const KEEP_ALIVE_INTERVAL: Duration = Duration::from_secs(1);
