// SPDX-License-Identifier: MIT OR Apache-2.0
//! The output of one or two guests: kept, or shown as it arrives.

use std::io::{self, Read, Write};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::Instant;

/// Where output goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum OutputTarget {
    Kept,
    Shown,
}

/// What one guest prints on standard output and standard error.
pub(super) type Output = [Option<Box<dyn Read + Send>>; 2];

/// Reads each stream in a thread of its own; the output is kept or shown by the caller's thread.
pub(super) struct Streams {
    target: OutputTarget,
    sender: Option<Sender<Chunk>>,
    arrived: Receiver<Chunk>,
    /// Standard output and standard error of each guest.
    guests: Vec<[Stream; 2]>,
    /// For each guest, the number of streams that have not ended.
    open: Vec<usize>,
}

/// An output stream of the emulator, whose bytes are kept, and shown line by line.
#[derive(Default)]
struct Stream {
    /// The text before each line that is shown; empty for none.
    mark: &'static str,
    bytes: Vec<u8>,
}

/// Guest, stream and output; no bytes mean the end of the stream.
type Chunk = (usize, usize, Vec<u8>);

impl Streams {
    /// The streams of as many guests as there are `marks`; a guest's mark stands before each shown line of its output.
    pub(super) fn new(target: OutputTarget, marks: &[&'static str]) -> Self {
        let (sender, arrived) = channel();
        let stream = |mark| Stream {
            mark,
            bytes: Vec::new(),
        };
        Self {
            target,
            sender: Some(sender),
            arrived,
            guests: marks
                .iter()
                .map(|mark| [stream(*mark), stream(*mark)])
                .collect(),
            open: vec![0; marks.len()],
        }
    }

    /// Starts to read a guest's output.
    pub(super) fn read(&mut self, guest: usize, output: Output) {
        for (number, stream) in output.into_iter().enumerate() {
            if let (Some(stream), Some(sender)) = (stream, self.sender.clone()) {
                self.open[guest] += 1;
                thread::spawn(move || pass_on(stream, |bytes| sender.send((guest, number, bytes))));
            }
        }
    }

    /// Keeps or shows what arrives until all guests have ended; false if `deadline` came first. An error if the output
    /// cannot be shown, for instance because the reader has closed the stream.
    pub(super) fn until_all_end(&mut self, deadline: Instant) -> Result<bool, String> {
        self.until(deadline, |open| open.iter().all(|count| *count == 0))
    }

    /// Keeps or shows what arrives until one guest has ended; false if `deadline` came first.
    pub(super) fn until_one_ends(&mut self, deadline: Instant) -> Result<bool, String> {
        self.until(deadline, |open| open.contains(&0))
    }

    /// Whether both streams of a guest have ended.
    pub(super) fn has_ended(&self, guest: usize) -> bool {
        self.open[guest] == 0
    }

    fn until(
        &mut self,
        deadline: Instant,
        is_over: impl Fn(&[usize]) -> bool,
    ) -> Result<bool, String> {
        self.sender = None;
        let in_time = loop {
            if is_over(&self.open) {
                break true;
            }
            let left = deadline.saturating_duration_since(Instant::now());
            match self.arrived.recv_timeout(left) {
                Ok((guest, _, bytes)) if bytes.is_empty() => self.open[guest] -= 1,
                Ok((guest, number, bytes)) => self.take(guest, number, &bytes)?,
                Err(RecvTimeoutError::Disconnected) => break true,
                Err(RecvTimeoutError::Timeout) => break false,
            }
        };
        for guest in 0..self.guests.len() {
            for number in 0..2 {
                self.show_rest(guest, number)?;
            }
        }
        Ok(in_time)
    }

    /// The kept output of a guest: standard output and standard error.
    pub(super) fn kept(&self, guest: usize) -> (String, String) {
        let text = |stream: &Stream| String::from_utf8_lossy(&stream.bytes).into_owned();
        let [out, err] = &self.guests[guest];
        (text(out), text(err))
    }

    fn take(&mut self, guest: usize, number: usize, bytes: &[u8]) -> Result<(), String> {
        let stream = &mut self.guests[guest][number];
        // Output beyond the limit is dropped, because a command may print without end and would fill the memory.
        if self.target == OutputTarget::Shown || stream.bytes.len() < KEPT_BYTES_MAX {
            stream.bytes.extend_from_slice(bytes);
        }
        if self.target == OutputTarget::Kept {
            return Ok(());
        }
        let ready = stream.take_ready();
        show(number, &ready)
    }

    fn show_rest(&mut self, guest: usize, number: usize) -> Result<(), String> {
        let stream = &mut self.guests[guest][number];
        if self.target == OutputTarget::Kept || stream.bytes.is_empty() {
            return Ok(());
        }
        let mut rest = stream.mark.as_bytes().to_vec();
        rest.append(&mut stream.bytes);
        rest.push(b'\n');
        show(number, &rest)
    }
}

impl Stream {
    /// Takes the bytes that may be shown now: everything, or, if lines are marked, only whole lines.
    fn take_ready(&mut self) -> Vec<u8> {
        if self.mark.is_empty() {
            return std::mem::take(&mut self.bytes);
        }
        let whole = self.bytes.iter().rposition(|byte| *byte == b'\n');
        let rest = self.bytes.split_off(whole.map_or(0, |at| at + 1));
        let lines = std::mem::replace(&mut self.bytes, rest);
        let mut marked = Vec::new();
        for line in lines.split_inclusive(|byte| *byte == b'\n') {
            marked.extend_from_slice(self.mark.as_bytes());
            marked.extend_from_slice(line);
        }
        marked
    }
}

fn pass_on<E>(mut stream: impl Read, send: impl Fn(Vec<u8>) -> Result<(), E>) {
    let mut buffer = vec![0; 1 << 16];
    while let Ok(count @ 1..) = stream.read(&mut buffer) {
        if send(buffer[..count].to_vec()).is_err() {
            return;
        }
    }
    // The receiver may have been dropped.
    let _ = send(Vec::new());
}

fn show(number: usize, bytes: &[u8]) -> Result<(), String> {
    let done = if number == 0 {
        let mut out = io::stdout().lock();
        out.write_all(bytes).and_then(|()| out.flush())
    } else {
        io::stderr().lock().write_all(bytes)
    };
    done.map_err(|why| format!("cannot write the command's output: {why}"))
}

const KEPT_BYTES_MAX: usize = 64 << 20;

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn output(out: &'static str, err: &'static str) -> Output {
        [
            Some(Box::new(out.as_bytes())),
            Some(Box::new(err.as_bytes())),
        ]
    }

    fn soon() -> Instant {
        Instant::now() + Duration::from_secs(20)
    }

    #[test]
    fn streams_and_guests_are_kept_apart() {
        let mut streams = Streams::new(OutputTarget::Kept, &["a: ", "b: "]);
        streams.read(0, output("one\n", "two"));
        streams.read(1, output("three", ""));
        assert_eq!(streams.until_all_end(soon()), Ok(true));
        assert_eq!(streams.kept(0), ("one\n".into(), "two".into()));
        assert_eq!(streams.kept(1), ("three".into(), String::new()));
    }

    #[test]
    fn one_guest_may_end_before_the_other() {
        let mut streams = Streams::new(OutputTarget::Kept, &["a: ", "b: "]);
        let (end, _held) = io::pipe().unwrap();
        streams.read(0, output("one\n", ""));
        streams.read(1, [Some(Box::new(end)), None]);
        assert_eq!(streams.until_one_ends(soon()), Ok(true));
        assert!(streams.has_ended(0) && !streams.has_ended(1));
        assert_eq!(streams.kept(0).0, "one\n");
    }

    #[test]
    fn a_stream_that_stays_open_is_left_at_the_deadline() {
        let mut streams = Streams::new(OutputTarget::Kept, &[""]);
        let (end, _held) = io::pipe().unwrap();
        streams.read(0, [Some(Box::new(end)), None]);
        let deadline = Instant::now() + Duration::from_millis(20);
        assert_eq!(streams.until_all_end(deadline), Ok(false));
    }

    #[test]
    fn marked_output_is_shown_in_whole_lines() {
        let mut stream = Stream {
            mark: "a: ",
            bytes: b"one\ntwo\nthr".to_vec(),
        };
        assert_eq!(stream.take_ready(), b"a: one\na: two\n");
        assert_eq!(stream.bytes, b"thr");
        stream.mark = "";
        assert_eq!(stream.take_ready(), b"thr");
    }
}
