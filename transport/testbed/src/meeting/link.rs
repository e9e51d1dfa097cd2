// SPDX-License-Identifier: MIT OR Apache-2.0
//! A connection between two hosts: frames, in the order in which they were said, without waiting.

use std::collections::VecDeque;
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::{Duration, Instant};

/// A message between two hosts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HostMessage {
    /// The first that who connects says: its number, its run, and the test it is at.
    Hello { host: u32, run: u64, test: String },
    /// Host a is at this test too.
    Welcome,
    /// The answer to the welcome: from here on the connection counts.
    Here,
    /// Host a is in another run: its words.
    Refused(String),
    /// Host a is at this test.
    At(String),
    /// The test that the other is at is over here: how it ended.
    Over(String),
    /// The test that the other is at was never begun here.
    Never,
    /// The record of a rank.
    Record { rank: u32, record: Vec<u8> },
    /// A rank is through another of its phases.
    Done { rank: u32 },
    /// A host gives the test up: why.
    GaveUp { host: u32, why: String },
    /// Nothing new.
    Alive,
    /// The last word.
    Bye,
}

impl HostMessage {
    fn parts(&self) -> (u8, u64, &[u8]) {
        match self {
            Self::Hello { .. } => (0, 0, &[]),
            Self::Welcome => (1, 0, &[]),
            Self::Here => (2, 0, &[]),
            Self::Refused(words) => (3, 0, words.as_bytes()),
            Self::At(words) => (4, 0, words.as_bytes()),
            Self::Over(words) => (5, 0, words.as_bytes()),
            Self::Never => (6, 0, &[]),
            Self::Record { rank, record } => (7, u64::from(*rank), record),
            Self::Done { rank } => (8, u64::from(*rank), &[]),
            Self::GaveUp { host, why } => (9, u64::from(*host), why.as_bytes()),
            Self::Alive => (10, 0, &[]),
            Self::Bye => (11, 0, &[]),
        }
    }

    /// Kind, number, length of the text, text. The number of the hello is the run, its text begins with the host.
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
        let words = || String::from_utf8_lossy(text).into_owned();
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
            3 => Self::Refused(words()),
            4 => Self::At(words()),
            5 => Self::Over(words()),
            6 => Self::Never,
            7 => Self::Record {
                rank: small()?,
                record: text.to_vec(),
            },
            8 => Self::Done { rank: small()? },
            9 => Self::GaveUp {
                host: small()?,
                why: words(),
            },
            10 => Self::Alive,
            11 => Self::Bye,
            _ => return Err(format!("there is no word of kind {kind}")),
        })
    }
}

pub struct HostLink {
    stream: TcpStream,
    /// Who is at the other end, once that is known.
    pub host: Option<u32>,
    /// Bytes that are not a whole frame yet.
    heard: Vec<u8>,
    /// Words that nobody has taken yet.
    words: VecDeque<HostMessage>,
    /// Bytes that the system has not taken yet.
    unsaid: Vec<u8>,
    /// The other end has said its last word.
    pub is_over: bool,
    /// This end has.
    is_last_said: bool,
    last_heard: Instant,
    last_said: Instant,
}

impl HostLink {
    pub fn new(stream: TcpStream, host: Option<u32>) -> std::io::Result<Self> {
        stream.set_nonblocking(true)?;
        stream.set_nodelay(true)?;
        let now = Instant::now();
        Ok(Self {
            stream,
            host,
            heard: Vec::new(),
            words: VecDeque::new(),
            unsaid: Vec::new(),
            is_over: false,
            is_last_said: false,
            last_heard: now,
            last_said: now,
        })
    }

    /// Says a word as soon as the system takes it. Behind the last one nothing is said: the other end may be gone, and what it
    /// does not hear would break the connection under its own last word.
    pub fn say(&mut self, word: &HostMessage) {
        if self.is_last_said {
            return;
        }
        self.is_last_said = *word == HostMessage::Bye;
        word.encode(&mut self.unsaid);
        self.last_said = Instant::now();
    }

    pub fn say_alive(&mut self) {
        if self.last_said.elapsed() > ALIVE {
            self.say(&HostMessage::Alive);
        }
    }

    pub fn silence(&self) -> Duration {
        self.last_heard.elapsed()
    }

    /// Gives the system what it takes, and takes what has come. An error, in words, if nothing will ever come again; what came
    /// before that can be heard nevertheless.
    pub fn turn(&mut self) -> Result<(), String> {
        let said = self.flush();
        let read = self.fill();
        self.cut().and(read).and(said)
    }

    /// The next word that has come.
    pub fn hear(&mut self) -> Option<HostMessage> {
        self.words.pop_front()
    }

    /// Whether all that was said is with the system.
    pub fn is_said(&self) -> bool {
        self.unsaid.is_empty()
    }

    /// Says no more. Waits until the other end has all of it and hangs up, since a connection that is closed while there is
    /// something to hear may lose what was said.
    pub fn finish(&mut self, most: Duration) {
        let limit = Instant::now() + most;
        let mut is_shut = false;
        while self.turn().is_ok() && Instant::now() < limit {
            if self.is_said() && !is_shut {
                is_shut = self.stream.shutdown(Shutdown::Write).is_ok();
            }
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    fn flush(&mut self) -> Result<(), String> {
        while !self.unsaid.is_empty() {
            match self.stream.write(&self.unsaid) {
                Ok(count) => drop(self.unsaid.drain(..count)),
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
                    self.heard.extend(&bytes[..count]);
                    self.last_heard = Instant::now();
                }
                Err(why) if why.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(why) if why.kind() == ErrorKind::Interrupted => {}
                Err(why) => return Err(format!("the connection broke: {why}")),
            }
        }
    }

    fn cut(&mut self) -> Result<(), String> {
        while let Some((head, rest)) = self.heard.split_first_chunk::<HEAD>() {
            let number = u64::from_le_bytes(head[1..9].try_into().unwrap());
            let length = u32::from_le_bytes(head[9..].try_into().unwrap()) as usize;
            if length > LONGEST {
                return Err(format!("it says {length} bytes at once, no host does"));
            }
            let Some(text) = rest.get(..length) else {
                break;
            };
            let word = HostMessage::decode(head[0], number, text)?;
            self.is_over |= word == HostMessage::Bye;
            self.words.push_back(word);
            self.heard.drain(..HEAD + length);
        }
        Ok(())
    }
}

/// Bytes before a frame's text.
const HEAD: usize = 13;
/// Of a frame's text.
const LONGEST: usize = 1 << 20;
/// How often a host that has nothing to say tells that it is there.
const ALIVE: Duration = Duration::from_secs(1);
