// SPDX-License-Identifier: MIT OR Apache-2.0
//! PMI client: the connection of a process of a job to its launcher.

use std::net::TcpStream;
use std::os::fd::{AsFd, OwnedFd};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use crate::{Error, PmiMessage};

/// Version of the protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Version {
    /// PMI-1: lines. Supported by all servers.
    One,
    /// PMI-2: messages preceded by their length. Supported by Slurm's `--mpi=pmi2` and MPICH's `mpiexec`.
    Two,
}

/// Connection of a process to the launcher that has started it.
#[derive(Debug)]
pub struct Client {
    stream: OwnedFd,
    /// Received bytes that are not a complete message yet.
    unread: Vec<u8>,
    version: Version,
    place: RankAndSize,
    app: u32,
    /// PMI-1: name of the key-value space; PMI-2: name of the job. All processes of a job have the same name here, and
    /// jobs on one host have different ones.
    job: String,
    /// Maximum size of a value in bytes, including a terminating zero byte.
    value_bytes: usize,
    fence: Fence,
}

/// State of the last fence.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fence {
    Over,
    Begun,
    /// The PMI-2 server has acknowledged the fence. MPICH's server may do that before the fence is over. So the client
    /// has sent a get: its reply arrives when the fence is over.
    Requested,
}

/// Rank and size of the job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct RankAndSize {
    rank: u32,
    size: u32,
}

impl Client {
    /// Initializes over the socket from `PMI_FD`; `rank` and `size` are the values of `PMI_RANK` and `PMI_SIZE`.
    ///
    /// # Errors
    /// When the server does not support this version.
    pub fn begin(stream: OwnedFd, version: Version, rank: u32, size: u32) -> Result<Self, Error> {
        let mut client = Self::over(stream, version, RankAndSize { rank, size });
        client.init()?;
        Ok(client)
    }

    /// Connects to a listening server, with PMI-1. `port` is the text of `PMI_PORT`, `HOST:PORT`; `id` is the value of
    /// `PMI_ID`.
    ///
    /// # Errors
    /// When there is no server, or it rejects this process.
    pub fn connect(port: &str, id: u32) -> Result<Self, Error> {
        let stream = TcpStream::connect(port).map_err(|error| {
            let why = format!("PMI_PORT is \"{port}\", and {error}");
            Error::System(why)
        })?;
        // Messages are small, and the client waits for the reply to each.
        let _ = stream.set_nodelay(true);
        let nowhere = RankAndSize { rank: 0, size: 1 };
        let mut client = Self::over(stream.into(), Version::One, nowhere);
        client.send(&PmiMessage::new("initack").with("pmiid", id))?;
        // The server sends exactly four lines: the acknowledgement, and three with one value each.
        let mut lines = Vec::new();
        for _ in 0..4 {
            lines.push(client.receive()?);
        }
        let value = |key| lines.iter().rev().find_map(|line| line.number(key));
        let (Some(rank), Some(size)) = (value("rank"), value("size")) else {
            return Err(unexpected("initack", &lines[0]));
        };
        client.place = RankAndSize { rank, size };
        client.init()?;
        Ok(client)
    }

    fn over(stream: OwnedFd, version: Version, place: RankAndSize) -> Self {
        Self {
            stream,
            unread: Vec::new(),
            version,
            place,
            app: 0,
            job: String::new(),
            value_bytes: LONGEST_PIECE,
            fence: Fence::Over,
        }
    }

    fn init(&mut self) -> Result<(), Error> {
        let number = match self.version {
            Version::One => 1,
            Version::Two => 2,
        };
        let subversion = 2 - number;
        let hello = PmiMessage::new("init").with("pmi_version", number);
        // This message and its reply are lines in both versions.
        self.write(hello.with("pmi_subversion", subversion).line().as_bytes())?;
        let answer = PmiMessage::of_line(&self.next_line()?);
        let is_known = answer
            .number("pmi_version")
            .is_none_or(|other: u32| other == number);
        if answer.command() != "response_to_init" || !answer.is_well() || !is_known {
            return Err(unexpected("init", &answer));
        }
        match self.version {
            Version::One => self.begin_one(),
            Version::Two => self.begin_two(),
        }
    }

    fn begin_one(&mut self) -> Result<(), Error> {
        let most = self.call(&PmiMessage::new("get_maxes"), "maxes")?;
        let most = most.number("vallen_max").unwrap_or(LONGEST_PIECE);
        self.value_bytes = most.clamp(SHORTEST_PIECE, LONGEST_PIECE);
        let app = self.call(&PmiMessage::new("get_appnum"), "appnum")?;
        // Slurm reports -1, which is not a `u32` and becomes 0.
        self.app = app.number("appnum").unwrap_or(0);
        let name = self.call(&PmiMessage::new("get_my_kvsname"), "my_kvsname")?;
        self.job = name.get("kvsname").unwrap_or_default().to_owned();
        Ok(())
    }

    fn begin_two(&mut self) -> Result<(), Error> {
        // Slurm requires a job id, and MPICH's server a non-empty one; both ignore its value.
        let hello = PmiMessage::new("fullinit")
            .with("pmijobid", "unknown")
            .with("pmirank", self.place.rank)
            .with("threaded", "FALSE");
        let answer = self.call(&hello, "fullinit-response")?;
        let (Some(rank), Some(size)) = (answer.number("rank"), answer.number("size")) else {
            return Err(unexpected("fullinit", &answer));
        };
        self.place = RankAndSize { rank, size };
        self.app = answer.number("appnum").unwrap_or(0);
        let job = self.call(&PmiMessage::new("job-getid"), "job-getid-response")?;
        self.job = job.get("jobid").unwrap_or_default().to_owned();
        Ok(())
    }

    /// Rank of this process.
    #[must_use]
    pub fn rank(&self) -> u32 {
        self.place.rank
    }

    /// Number of processes of the job.
    #[must_use]
    pub fn size(&self) -> u32 {
        self.place.size
    }

    /// Index of this process's program on the command line; 0 if the server does not report it.
    #[must_use]
    pub fn app(&self) -> u32 {
        self.app
    }

    /// The server's name for the job.
    #[must_use]
    pub fn job(&self) -> &str {
        &self.job
    }

    /// Stores a pair, which other processes can get after a fence.
    ///
    /// # Errors
    /// When the key or the value has characters that servers do not preserve, or the server rejects the pair.
    pub fn put(&mut self, key: &str, value: &str) -> Result<(), Error> {
        let wrong = |text: &str| {
            text.chars()
                .find(|c| !c.is_ascii_graphic() || ";=".contains(*c))
        };
        if let Some(character) = wrong(key).or_else(|| wrong(value)) {
            return Err(Error::Character(character));
        }
        // Slurm limits a line of PMI-1 to 1,023 bytes, and the line includes the job's name.
        let head = self.job.len() + key.len() + 64;
        let room = 1024_usize.saturating_sub(head).max(SHORTEST_PIECE);
        let room = room.min(self.value_bytes) - 8;
        let pieces: Vec<&[u8]> = value.as_bytes().chunks(room).collect();
        let count = pieces.len();
        for (index, piece) in pieces.iter().enumerate() {
            // ASCII, as checked above.
            let piece = String::from_utf8_lossy(piece);
            match index {
                0 => self.put_piece(key, &format!("{count}.{piece}"))?,
                _ => self.put_piece(&format!("{key}.{index}"), &piece)?,
            }
        }
        if count == 0 {
            self.put_piece(key, "0.")?;
        }
        Ok(())
    }

    fn put_piece(&mut self, key: &str, value: &str) -> Result<(), Error> {
        let (message, answer) = match self.version {
            Version::One => {
                let message = PmiMessage::new("put").with("kvsname", &self.job);
                (message, "put_result")
            }
            Version::Two => (PmiMessage::new("kvs-put"), "kvs-put-response"),
        };
        self.call(&message.with("key", key).with("value", value), answer)?;
        Ok(())
    }

    /// The value that was put under a key before the last fence, if any.
    ///
    /// # Errors
    /// When the server does not reply, or returns a truncated value.
    pub fn get(&mut self, key: &str) -> Result<Option<String>, Error> {
        let Some(first) = self.get_piece(key)? else {
            return Ok(None);
        };
        let broken = || Error::Answer {
            request: format!("get {key}"),
            answer: first.clone(),
        };
        let (count, value) = first.split_once('.').ok_or_else(broken)?;
        let count: usize = count.parse().map_err(|_| broken())?;
        let mut value = value.to_owned();
        for index in 1..count {
            let piece = self.get_piece(&format!("{key}.{index}"))?;
            value.push_str(&piece.ok_or_else(broken)?);
        }
        Ok(Some(value))
    }

    fn get_piece(&mut self, key: &str) -> Result<Option<String>, Error> {
        self.send_get(key)?;
        let found = loop {
            let found = self.receive()?;
            match (self.fence, found.command()) {
                // This message ends the fence. It arrives before the reply to this get, because replies arrive in the
                // order of requests.
                (Fence::Begun, "barrier_out") | (Fence::Requested, "kvs-get-response") => {
                    self.fence = Fence::Over;
                }
                (Fence::Begun, "kvs-fence-response") => {
                    self.fence = Fence::Requested;
                    self.send_get("fence")?;
                    break self.receive()?;
                }
                _ => break found,
            }
        };
        if !matches!(found.command(), "get_result" | "kvs-get-response") {
            return Err(unexpected(&format!("get {key}"), &found));
        }
        let is_there = found.is_well() && found.get("found") != Some("FALSE");
        Ok(found.get("value").filter(|_| is_there).map(str::to_owned))
    }

    fn send_get(&mut self, key: &str) -> Result<(), Error> {
        let message = match self.version {
            Version::One => PmiMessage::new("get").with("kvsname", &self.job),
            Version::Two => {
                let message = PmiMessage::new("kvs-get").with("jobid", &self.job);
                message.with("srcid", -1)
            }
        };
        self.send(&message.with("key", key))
    }

    /// Starts a fence, in which all processes of the job participate: values put before the fence can be read after it.
    /// No value may be put until the fence [is over](Self::is_fence_over).
    ///
    /// # Errors
    /// When the message cannot be sent.
    pub fn begin_fence(&mut self) -> Result<(), Error> {
        self.send(&PmiMessage::new(match self.version {
            Version::One => "barrier_in",
            Version::Two => "kvs-fence",
        }))?;
        self.fence = Fence::Begun;
        Ok(())
    }

    /// Whether the last fence is over, or none was started. Handles the server's messages about the fence that have
    /// arrived; does not block.
    ///
    /// # Errors
    /// When the server is gone, or sends a message that does not belong to a fence.
    pub fn is_fence_over(&mut self) -> Result<bool, Error> {
        while self.fence != Fence::Over {
            let Some(answer) = self.take()? else {
                if !self.is_readable()? {
                    return Ok(false);
                }
                self.fill()?;
                continue;
            };
            match (self.fence, answer.command()) {
                (Fence::Begun, "barrier_out") if answer.is_well() => self.fence = Fence::Over,
                (Fence::Begun, "kvs-fence-response") if answer.is_well() => {
                    self.fence = Fence::Requested;
                    self.send_get("fence")?;
                }
                (Fence::Requested, "kvs-get-response") => self.fence = Fence::Over,
                _ => return Err(unexpected("fence", &answer)),
            }
        }
        Ok(true)
    }

    /// Ends the job, with exit code `code` if the server supports that.
    ///
    /// # Errors
    /// When the message cannot be sent.
    pub fn abort(&mut self, code: i32, message: &str) -> Result<(), Error> {
        self.send(&match self.version {
            Version::One => PmiMessage::new("abort").with("exitcode", code),
            // MPICH's server also accepts an exit code.
            Version::Two => PmiMessage::new("abort")
                .with("isworld", "TRUE")
                .with("exitcode", code)
                .with("msg", message.replace(['=', ';'], " ")),
        })
    }

    /// Reports that this process is done, so that its exit is no failure. Pending fences are abandoned.
    ///
    /// # Errors
    /// When the message cannot be sent.
    pub fn finalize(&mut self) -> Result<(), Error> {
        let message = PmiMessage::new("finalize");
        self.send(&message)?;
        loop {
            let received = self.receive()?;
            match received.command() {
                "finalize_ack" | "finalize-response" => return Ok(()),
                _ if self.fence != Fence::Over => self.fence = Fence::Over,
                _ => return Err(unexpected("finalize", &received)),
            }
        }
    }

    /// Sends a request and receives the reply, which must be `answer` without an error.
    fn call(&mut self, message: &PmiMessage, answer: &str) -> Result<PmiMessage, Error> {
        self.send(message)?;
        let received = self.receive()?;
        match received.command() == answer && received.is_well() {
            true => Ok(received),
            false => Err(unexpected(message.command(), &received)),
        }
    }

    fn send(&mut self, message: &PmiMessage) -> Result<(), Error> {
        let text = match self.version {
            Version::One => message.line(),
            Version::Two => message.message(),
        };
        self.write(text.as_bytes())
    }

    fn write(&mut self, mut bytes: &[u8]) -> Result<(), Error> {
        while !bytes.is_empty() {
            let flags = rustix::net::SendFlags::NOSIGNAL;
            match rustix::net::send(&self.stream, bytes, flags) {
                Ok(written) => bytes = &bytes[written..],
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => self.rest(PollFlags::OUT)?,
                Err(Errno::PIPE | Errno::CONNRESET) => return Err(Error::Closed),
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// Receives the next message; blocks until it is complete.
    fn receive(&mut self) -> Result<PmiMessage, Error> {
        loop {
            if let Some(message) = self.take()? {
                return Ok(message);
            }
            self.fill()?;
        }
    }

    /// Removes the next message from the received bytes; `None` if it is not complete yet.
    fn take(&mut self) -> Result<Option<PmiMessage>, Error> {
        match self.version {
            Version::One => Ok(self.take_line().map(|line| PmiMessage::of_line(&line))),
            Version::Two => {
                let Some(head) = self.unread.get(..LENGTH_BYTES) else {
                    return Ok(None);
                };
                let length = std::str::from_utf8(head).ok();
                let length = length.and_then(|text| text.trim().parse::<usize>().ok());
                let Some(length) = length.filter(|length| *length <= LONGEST_MESSAGE) else {
                    return Err(self.malformed("PMI-2"));
                };
                let end = LENGTH_BYTES + length;
                if self.unread.len() < end {
                    return Ok(None);
                }
                let text = String::from_utf8_lossy(&self.unread[LENGTH_BYTES..end]);
                let message = PmiMessage::of_message(&text);
                self.unread.drain(..end);
                Ok(Some(message))
            }
        }
    }

    fn next_line(&mut self) -> Result<String, Error> {
        loop {
            if let Some(line) = self.take_line() {
                return Ok(line);
            }
            self.fill()?;
        }
    }

    fn take_line(&mut self) -> Option<String> {
        let end = self.unread.iter().position(|byte| *byte == b'\n')?;
        let line = self.unread.drain(..=end);
        Some(String::from_utf8_lossy(&line.collect::<Vec<u8>>()).into_owned())
    }

    /// Receives more bytes; blocks until there are any.
    fn fill(&mut self) -> Result<(), Error> {
        if self.unread.len() > LONGEST_MESSAGE + LENGTH_BYTES {
            return Err(self.malformed("PMI-1"));
        }
        let mut bytes = [0; 4096];
        match rustix::io::read(&self.stream, &mut bytes) {
            Ok(0) | Err(Errno::CONNRESET) => Err(Error::Closed),
            Ok(read) => {
                self.unread.extend_from_slice(&bytes[..read]);
                Ok(())
            }
            Err(Errno::INTR) => Ok(()),
            // The process that started this one shares the file description of this socket, and may have made it
            // non-blocking.
            Err(Errno::AGAIN) => self.rest(PollFlags::IN),
            Err(error) => Err(error.into()),
        }
    }

    fn malformed(&self, version: &'static str) -> Error {
        let text = String::from_utf8_lossy(&self.unread);
        Error::Text {
            version,
            text: clip(&text),
        }
    }

    fn is_readable(&self) -> Result<bool, Error> {
        self.poll(PollFlags::IN, Some(&Timespec::default()))
    }

    fn rest(&self, until: PollFlags) -> Result<(), Error> {
        self.poll(until, None).map(drop)
    }

    fn poll(&self, until: PollFlags, patience: Option<&Timespec>) -> Result<bool, Error> {
        let mut polled = [PollFd::new(&self.stream, until)];
        match poll(&mut polled, patience) {
            Ok(ready) => Ok(ready > 0),
            Err(Errno::INTR) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }
}

impl AsFd for Client {
    /// The socket, which becomes readable when a fence ends.
    fn as_fd(&self) -> std::os::fd::BorrowedFd<'_> {
        self.stream.as_fd()
    }
}

fn unexpected(request: &str, answer: &PmiMessage) -> Error {
    Error::Answer {
        request: request.to_owned(),
        answer: clip(answer.line().trim()),
    }
}

fn clip(text: &str) -> String {
    text.chars().take(200).collect()
}

const LENGTH_BYTES: usize = 6;
/// Maximum size of a message from a server, in bytes; a longer message is an error.
const LONGEST_MESSAGE: usize = 1 << 20;
/// Maximum size in bytes of a value that all servers preserve. Longer values are split into pieces of at most this
/// size.
const LONGEST_PIECE: usize = 900;
/// Lower bound of the limit for a piece, in bytes. If the limit of the server is lower, this one is used instead.
const SHORTEST_PIECE: usize = 32;

#[cfg(test)]
mod tests;
