// SPDX-License-Identifier: MIT OR Apache-2.0
//! The settings of a guest, and running a command in it: `Guest::new().share(dir).run(&["ibv_devices"])`.

use super::cache::{self, Cache};
use super::kernel::KernelSeries;
use super::machine::{Machine, Wire};
use super::streams::{OutputTarget, Streams};
use crate::process::seconds;
use std::fs;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

/// The settings of a virtual machine, which is booted once for each command.
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

/// How a command ended, and its output.
#[derive(Debug)]
pub(crate) struct GuestOutcome {
    pub(crate) end: GuestEnd,
    /// Empty if the output was shown instead of kept.
    pub(crate) stdout: String,
    pub(crate) stderr: String,
    pub(crate) wall: Duration,
}

/// How a command ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum GuestEnd {
    /// By itself, with this code.
    Code(i32),
    /// It was stopped because its time was over.
    TimedOut,
    /// The guest ended before the command did, or before the command started; the reason.
    Lost(String),
}

impl Guest {
    /// The defaults: kernel 6.1, Ethernet frames of 1500 bytes, 1 GiB of memory, five minutes.
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

    /// Sets the kernel.
    pub(crate) fn kernel(mut self, series: KernelSeries) -> Self {
        self.series = series;
        self
    }

    /// Sets the size of Ethernet frames: 4200 bytes give rxe its largest packets, 4096.
    pub(crate) fn mtu(mut self, bytes: u32) -> Self {
        self.mtu_bytes = bytes;
        self
    }

    /// Sets the number of processors of each guest; the default is two for a single guest, and one for each of two
    /// guests.
    pub(crate) fn processors(mut self, count: u32) -> Self {
        self.processors = Some(count);
        self
    }

    /// Sets the memory, which also holds the files that the command writes.
    pub(crate) fn memory(mut self, mebibytes: u32) -> Self {
        self.memory_mib = mebibytes;
        self
    }

    /// Shares a folder, which the guest may write to, at the same path.
    pub(crate) fn share(mut self, dir: &Path) -> Self {
        self.share = Some(dir.to_path_buf());
        self
    }

    /// Sets arguments for `tc netem` on every device that sends: `loss 1%`.
    pub(crate) fn netem(mut self, args: &str) -> Self {
        self.netem = args.into();
        self
    }

    /// Adds two network cards, connected with each other and behind an IOMMU, for drivers in user space.
    pub(crate) fn cards(mut self) -> Self {
        self.has_cards = true;
        self
    }

    /// Appends the kernel's messages to a file.
    pub(crate) fn log(mut self, file: &Path) -> Self {
        self.log = Some(file.to_path_buf());
        self
    }

    /// Sets how long a run may take, including booting.
    pub(crate) fn limit(mut self, limit: Duration) -> Self {
        self.limit = limit;
        self
    }

    /// Shows the output as it arrives, instead of keeping it.
    pub(crate) fn shown(mut self) -> Self {
        self.target = OutputTarget::Shown;
        self
    }

    /// The folder with the guest's headers of rdma-core.
    pub(crate) fn include(&self) -> Result<PathBuf, String> {
        Ok(self.prepared()?.tools().join("usr/include"))
    }

    /// Boots, runs a command and powers off. An error if the machine cannot be started.
    pub(crate) fn run(&self, command: &[impl AsRef<str>]) -> Result<GuestOutcome, String> {
        let cache = self.prepared()?;
        let start = Instant::now();
        let args: Vec<&str> = command.iter().map(AsRef::as_ref).collect();
        let mut machine = Machine::start(&cache, self, Wire::None, &args)?;
        let mut streams = Streams::new(self.target, &[""]);
        streams.read(0, machine.output());
        let in_time = streams.until_all_end(start + self.limit)?;
        self.outcome(machine, streams.kept(0), in_time, start)
    }

    /// Boots two connected guests. When they can reach each other, runs a shell command in each.
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

    /// Boots two connected guests. When they can reach each other, runs a command in guest a; guest b keeps running
    /// until the command has ended.
    pub(crate) fn run_beside(&self, command: &[impl AsRef<str>]) -> Result<GuestOutcome, String> {
        let start = Instant::now();
        let args: Vec<&str> = command.iter().map(AsRef::as_ref).collect();
        let streams = Streams::new(self.target, &["", "b: "]);
        let mut two = self.start_two(&args, STAY, streams, start)?;
        let in_time = two.streams.until_one_ends(start + self.limit)?;
        let mut outcome = self.outcome(two.a, two.streams.kept(0), in_time, start)?;
        let far = self.outcome(two.b, two.streams.kept(1), in_time, start)?;
        if two.streams.has_ended(1) && !two.streams.has_ended(0) {
            outcome.end = GuestEnd::Lost(format!("guest b: {}", far.ending()));
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

    /// Fetches missing packages; an error if the folder to be shared does not exist.
    fn prepared(&self) -> Result<Cache, String> {
        if let Some(dir) = self.share.as_ref().filter(|dir| !dir.is_dir()) {
            return Err(format!("there is no folder {} to share", dir.display()));
        }
        cache::fill(self.series)
    }

    /// Reads the outcome from a machine's files, and stops the machine.
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

/// Two running guests and their output.
struct Two {
    a: Machine,
    b: Machine,
    streams: Streams,
}

impl GuestOutcome {
    /// How it ended, for a message: `ended with code 3`.
    pub(crate) fn ending(&self) -> String {
        match &self.end {
            GuestEnd::Code(code) => format!("ended with code {code}"),
            GuestEnd::TimedOut => format!("was stopped after {}", seconds(self.wall)),
            GuestEnd::Lost(why) => why.clone(),
        }
    }
}

/// Appends to a file: two guests have the same log.
fn append(file: &Path, bytes: &[u8]) -> std::io::Result<()> {
    use std::io::Write;
    let mut options = fs::File::options();
    options
        .create(true)
        .append(true)
        .open(file)?
        .write_all(bytes)
}

/// Waits until guest b's emulator has opened the socket: guest a's emulator tries to connect only once.
fn wait_for(socket: &Path, deadline: Instant) -> Result<(), String> {
    while !socket.exists() {
        if Instant::now() >= deadline {
            return Err("the emulator of guest b did not open its end of the wire".into());
        }
        thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}

/// The command of guest b if guest b is only a peer.
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
    fn ends_have_messages() {
        let outcome = |end| GuestOutcome {
            end,
            stdout: String::new(),
            stderr: String::new(),
            wall: Duration::from_secs(12),
        };
        assert_eq!(outcome(GuestEnd::Code(3)).ending(), "ended with code 3");
        assert_eq!(
            outcome(GuestEnd::TimedOut).ending(),
            "was stopped after 12 s"
        );
    }

    #[test]
    fn a_socket_that_never_appears_is_an_error() {
        let missing = Path::new("/no/such/socket");
        assert!(wait_for(missing, Instant::now()).is_err());
        assert_eq!(wait_for(Path::new("/"), Instant::now()), Ok(()));
    }
}
