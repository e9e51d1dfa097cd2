// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a guest is like, and running a command in it: `Guest::new().share(dir).run(&["ibv_devices"])`.

use super::cache::{self, Cache};
use super::kernel::KernelSeries;
use super::machine::{Machine, Wire};
use super::streams::{OutputTarget, Streams};
use crate::process::seconds;
use std::fs;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

/// A virtual machine to be started: once for each command that is run.
#[derive(Debug, Clone)]
pub(crate) struct Guest {
    pub(super) series: KernelSeries,
    pub(super) mtu_bytes: u32,
    pub(super) processors: Option<u32>,
    pub(super) memory_mib: u32,
    pub(super) share: Option<PathBuf>,
    pub(super) netem: String,
    pub(super) has_cards: bool,
    log: Option<PathBuf>,
    limit: Duration,
    target: OutputTarget,
}

/// What became of a command.
#[derive(Debug)]
pub(crate) struct GuestOutcome {
    pub(crate) end: GuestEnd,
    /// Empty if it was shown at once.
    pub(crate) stdout: String,
    pub(crate) stderr: String,
    pub(crate) wall: Duration,
}

/// How it ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum GuestEnd {
    /// By itself, with this code.
    Code(i32),
    /// It was stopped, since its time was over.
    TimedOut,
    /// The guest was gone before the command's end, or never came so far: why, in words.
    Lost(String),
}

impl Guest {
    /// Kernel 6.1, Ethernet frames of 1500 bytes, 1 GiB of memory, five minutes.
    pub(crate) fn new() -> Self {
        Self {
            series: KernelSeries::default(),
            mtu_bytes: 1500,
            processors: None,
            memory_mib: 1024,
            share: None,
            netem: String::new(),
            has_cards: false,
            log: None,
            limit: Duration::from_secs(300),
            target: OutputTarget::Kept,
        }
    }

    /// Another kernel.
    pub(crate) fn kernel(mut self, series: KernelSeries) -> Self {
        self.series = series;
        self
    }

    /// Frames of another size: 4200 bytes give rxe its largest packets, 4096.
    pub(crate) fn mtu(mut self, bytes: u32) -> Self {
        self.mtu_bytes = bytes;
        self
    }

    /// Processors; without it two, or one each for two guests.
    pub(crate) fn processors(mut self, count: u32) -> Self {
        self.processors = Some(count);
        self
    }

    /// Memory; what the command writes lies there too.
    pub(crate) fn memory(mut self, mebibytes: u32) -> Self {
        self.memory_mib = mebibytes;
        self
    }

    /// A folder that the guest writes to, at the path that it has outside.
    pub(crate) fn share(mut self, dir: &Path) -> Self {
        self.share = Some(dir.to_path_buf());
        self
    }

    /// Words for `tc netem` on every device that sends: `loss 1%`.
    pub(crate) fn netem(mut self, words: &str) -> Self {
        self.netem = words.into();
        self
    }

    /// Two network cards more, on one wire and behind an IOMMU, for drivers in user space.
    pub(crate) fn cards(mut self) -> Self {
        self.has_cards = true;
        self
    }

    /// Keeps the kernel's messages in a file.
    pub(crate) fn log(mut self, file: &Path) -> Self {
        self.log = Some(file.to_path_buf());
        self
    }

    /// How long it may take, with booting.
    pub(crate) fn limit(mut self, limit: Duration) -> Self {
        self.limit = limit;
        self
    }

    /// Shows the output as it comes, instead of keeping it.
    pub(crate) fn shown(mut self) -> Self {
        self.target = OutputTarget::Shown;
        self
    }

    /// The folder with the headers of rdma-core, as the guest has it.
    pub(crate) fn include(&self) -> Result<PathBuf, String> {
        Ok(self.prepared()?.tools().join("usr/include"))
    }

    /// Boots, runs a command and powers off. An error if there is no machine to boot.
    pub(crate) fn run(&self, command: &[impl AsRef<str>]) -> Result<GuestOutcome, String> {
        let cache = self.prepared()?;
        let start = Instant::now();
        let words: Vec<&str> = command.iter().map(AsRef::as_ref).collect();
        let mut machine = Machine::start(&cache, self, Wire::None, &words)?;
        let mut streams = Streams::new(self.target, &[""]);
        streams.read(0, machine.output());
        let in_time = streams.until_all_end(start + self.limit)?;
        self.outcome(machine, streams.kept(0), in_time, start)
    }

    /// Boots two guests on one wire and runs a line of shell in each, once they reach each other.
    pub(crate) fn run_two(&self, a: &str, b: &str) -> Result<[GuestOutcome; 2], String> {
        let start = Instant::now();
        let streams = Streams::new(self.target, &["a: ", "b: "]);
        let mut two = self.start_two(&["sh", "-c", a], &["sh", "-c", b], streams, start)?;
        let in_time = two.streams.until_all_end(start + self.limit)?;
        Ok([
            self.outcome(two.a, two.streams.kept(0), in_time, start)?,
            self.outcome(two.b, two.streams.kept(1), in_time, start)?,
        ])
    }

    /// Boots two guests on one wire and runs a command in guest a, once they reach each other. Guest b is there until it has
    /// ended.
    pub(crate) fn run_beside(&self, command: &[impl AsRef<str>]) -> Result<GuestOutcome, String> {
        let start = Instant::now();
        let words: Vec<&str> = command.iter().map(AsRef::as_ref).collect();
        let streams = Streams::new(self.target, &["", "b: "]);
        let mut two = self.start_two(&words, STAY, streams, start)?;
        let in_time = two.streams.until_one_ends(start + self.limit)?;
        let mut outcome = self.outcome(two.a, two.streams.kept(0), in_time, start)?;
        let far = self.outcome(two.b, two.streams.kept(1), in_time, start)?;
        if two.streams.has_ended(1) && !two.streams.has_ended(0) {
            outcome.end = GuestEnd::Lost(format!("guest b: {}", far.in_words()));
        }
        Ok(outcome)
    }

    fn start_two(
        &self,
        a: &[&str],
        b: &[&str],
        mut streams: Streams,
        start: Instant,
    ) -> Result<Two, String> {
        let cache = self.prepared()?;
        let mut listener = Machine::start(&cache, self, Wire::Listen, b)?;
        streams.read(1, listener.output());
        wait_for(&listener.wire(), start + self.limit.min(WIRE_LIMIT))?;
        let mut caller = Machine::start(&cache, self, Wire::Connect(&listener), a)?;
        streams.read(0, caller.output());
        Ok(Two {
            a: caller,
            b: listener,
            streams,
        })
    }

    /// Fetches what is missing; checks the folder.
    fn prepared(&self) -> Result<Cache, String> {
        if let Some(dir) = self.share.as_ref().filter(|dir| !dir.is_dir()) {
            return Err(format!("there is no folder {} to share", dir.display()));
        }
        cache::fill(self.series)
    }

    /// Judges what a machine left, and ends it.
    fn outcome(
        &self,
        machine: Machine,
        (stdout, stderr): (String, String),
        in_time: bool,
        start: Instant,
    ) -> Result<GuestOutcome, String> {
        if let Some(log) = &self.log {
            append(log, &machine.console())
                .map_err(|why| format!("cannot write {}: {why}", log.display()))?;
        }
        let end = match machine.code() {
            Some(code) => GuestEnd::Code(code),
            None if !in_time => GuestEnd::TimedOut,
            None => GuestEnd::Lost(machine.why_lost()),
        };
        machine.stop();
        Ok(GuestOutcome {
            end,
            stdout,
            stderr,
            wall: start.elapsed(),
        })
    }
}

/// Two guests that run.
struct Two {
    a: Machine,
    b: Machine,
    streams: Streams,
}

impl GuestOutcome {
    /// The end in words: `ended with code 3`.
    pub(crate) fn in_words(&self) -> String {
        match &self.end {
            GuestEnd::Code(code) => format!("ended with code {code}"),
            GuestEnd::TimedOut => format!("was stopped after {}", seconds(self.wall)),
            GuestEnd::Lost(why) => why.clone(),
        }
    }
}

/// Adds to a file: two guests share one.
fn append(file: &Path, bytes: &[u8]) -> std::io::Result<()> {
    use std::io::Write;
    let mut options = fs::File::options();
    options
        .create(true)
        .append(true)
        .open(file)?
        .write_all(bytes)
}

/// Waits for the socket of the wire: this emulator calls once and never again.
fn wait_for(socket: &Path, deadline: Instant) -> Result<(), String> {
    while !socket.exists() {
        if Instant::now() >= deadline {
            return Err("the emulator of guest b did not open its end of the wire".into());
        }
        thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}

/// What guest b does that is only there to be reached.
const STAY: &[&str] = &["sleep", "infinity"];
const WIRE_LIMIT: Duration = Duration::from_secs(120);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_that_is_not_there_is_named_before_anything_is_fetched() {
        let why = Guest::new()
            .share(Path::new("/no/such/folder"))
            .run(&["true"])
            .unwrap_err();
        assert_eq!(why, "there is no folder /no/such/folder to share");
    }

    #[test]
    fn ends_have_words() {
        let outcome = |end| GuestOutcome {
            end,
            stdout: String::new(),
            stderr: String::new(),
            wall: Duration::from_secs(12),
        };
        assert_eq!(outcome(GuestEnd::Code(3)).in_words(), "ended with code 3");
        assert_eq!(
            outcome(GuestEnd::TimedOut).in_words(),
            "was stopped after 12 s"
        );
    }

    #[test]
    fn a_wire_that_never_comes_is_an_error() {
        let missing = Path::new("/no/such/socket");
        assert!(wait_for(missing, Instant::now()).is_err());
        assert_eq!(wait_for(Path::new("/"), Instant::now()), Ok(()));
    }
}
