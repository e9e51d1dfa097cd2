// SPDX-License-Identifier: MIT OR Apache-2.0
//! Helpers of the tests: run the real `rmpiexec`, and check for remaining processes.
#![allow(dead_code, unreachable_pub)]

#[cfg(target_arch = "x86_64")]
pub mod engine;
pub mod lab;
pub mod role;
pub mod terminal;
#[cfg(target_arch = "x86_64")]
pub mod tool;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use std::ffi::OsStr;
use std::io::Read;
use std::os::fd::AsFd;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// Timeout of a job. It is long because the machine may be busy.
const PATIENCE: Duration = Duration::from_secs(120);

static COUNTER: AtomicU32 = AtomicU32::new(0);

/// A command whose processes are identified by a variable in their environment.
pub struct Job {
    pub command: Command,
    mark: String,
}

/// The result of a job.
pub struct Outcome {
    pub code: Option<i32>,
    pub out: String,
    pub err: String,
    pub raw_out: Vec<u8>,
}

/// `rmpiexec` with these arguments.
pub fn rmpiexec<S: AsRef<OsStr>>(arguments: impl IntoIterator<Item = S>) -> Job {
    let mut command = Command::new(env!("CARGO_BIN_EXE_rmpiexec"));
    command.args(arguments).stdin(Stdio::null());
    Job::of(command)
}

/// `ranks` ranks of a shell script.
pub fn script(ranks: u32, text: &str) -> Job {
    rmpiexec(["-n", &ranks.to_string(), "sh", "-c", text])
}

impl Job {
    /// A job that is run by this command.
    pub fn of(mut command: Command) -> Self {
        let number = COUNTER.fetch_add(1, Ordering::Relaxed);
        let mark = format!("RMPI_TEST_MARK={}-{number}", std::process::id());
        let (name, value) = mark.split_once('=').unwrap();
        command
            .env(name, value)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        Self { command, mark }
    }

    /// Runs the job to its end and checks that no process is left.
    pub fn run(self) -> Outcome {
        self.start().finish()
    }

    /// Starts the job.
    pub fn start(mut self) -> Running {
        let child = self.command.spawn().expect("the command starts");
        Running {
            child,
            mark: self.mark,
        }
    }
}

/// A running job.
pub struct Running {
    pub child: Child,
    mark: String,
}

impl Running {
    /// The pid of the command.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Pids of the job's processes, including the command.
    pub fn processes(&self) -> Vec<u32> {
        marked(&self.mark)
    }

    /// Waits until the job has at least this many processes whose command line begins with `text`.
    pub fn wait_for(&self, count: usize, text: &str) -> Vec<u32> {
        until("the processes are there", || {
            let found: Vec<u32> = self
                .processes()
                .into_iter()
                .filter(|pid| command_line(*pid).starts_with(text))
                .collect();
            (found.len() >= count).then_some(found)
        })
    }

    /// Sends a signal to the command.
    pub fn signal(&self, signal: nix::sys::signal::Signal) {
        send(self.pid(), signal);
    }

    /// The node daemon: the only child of the command.
    pub fn daemon(&self) -> u32 {
        until("the daemon is there", || {
            let parent = self.pid();
            self.processes()
                .into_iter()
                .find(|pid| parent_of(*pid) == Some(parent))
        })
    }

    /// Reads standard error up to the end of `text`. What was read is discarded.
    pub fn wait_for_text(&mut self, text: &str) {
        let errors = self
            .child
            .stderr
            .as_mut()
            .expect("it is a pipe and not yet read to the end");
        let start = Instant::now();
        let (mut seen, mut byte) = (Vec::new(), [0]);
        while !String::from_utf8_lossy(&seen).contains(text) {
            assert!(
                is_readable(&*errors, start),
                "{text:?} did not come in {PATIENCE:?}: {}",
                String::from_utf8_lossy(&seen)
            );
            let count = errors.read(&mut byte).expect("a pipe can be read");
            assert!(
                count == 1,
                "expected {text:?} in: {}",
                String::from_utf8_lossy(&seen)
            );
            seen.push(byte[0]);
        }
    }

    /// Waits for the end of the job and checks that no process is left.
    pub fn finish(mut self) -> Outcome {
        let out = drain(self.child.stdout.take());
        let err = drain(self.child.stderr.take());
        let status = self.end();
        let (raw_out, err) = (out.join().unwrap(), err.join().unwrap());
        self.assert_nothing_left();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        Outcome {
            code: status.code(),
            out: text(&raw_out),
            err: text(&err),
            raw_out,
        }
    }

    /// Waits only for the end of the command.
    pub fn end(&mut self) -> ExitStatus {
        let child = &mut self.child;
        until("the command ends", || child.try_wait().unwrap())
    }

    /// Fails if a process of the job remains.
    pub fn assert_nothing_left(&self) {
        let start = Instant::now();
        while !self.processes().is_empty() {
            let left: Vec<String> = self.processes().into_iter().map(command_line).collect();
            assert!(
                start.elapsed() < Duration::from_secs(10),
                "left behind: {left:?}"
            );
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Outcome {
    /// Fails unless the exit code is `code`.
    pub fn expect(self, code: i32) -> Self {
        assert_eq!(
            self.code,
            Some(code),
            "stdout: {}\nstderr: {}",
            self.out,
            self.err
        );
        self
    }

    /// Fails unless standard error contains `text`.
    pub fn reports(self, text: &str) -> Self {
        assert!(
            self.err.contains(text),
            "expected {text:?} in: {}",
            self.err
        );
        self
    }

    /// Lines of standard output, sorted.
    pub fn sorted(&self) -> Vec<&str> {
        let mut lines: Vec<&str> = self.out.lines().collect();
        lines.sort_unstable();
        lines
    }
}

/// Sends a signal to a process.
pub fn send(pid: u32, signal: nix::sys::signal::Signal) {
    let pid = nix::unistd::Pid::from_raw(pid.cast_signed());
    nix::sys::signal::kill(pid, signal).expect("the process is there");
}

/// Shell code of a barrier: each rank waits until all `ranks` ranks have entered it, even if some rank is started late.
pub fn barrier(ranks: u32, folder: &std::path::Path) -> String {
    let here = folder.display();
    format!(
        "touch {here}/$RMPI_RANK; until [ $(ls {here} | wc -l) = {ranks} ]; do sleep 0.02; done"
    )
}

/// Calls `poll_once` again and again until it returns a result; fails after [`PATIENCE`].
pub fn until<T>(what: &str, mut poll_once: impl FnMut() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(answer) = poll_once() {
            return answer;
        }
        assert!(start.elapsed() < PATIENCE, "not in {PATIENCE:?}: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Waits until data or end of file can be read; `false` if neither comes within [`PATIENCE`] of `start`.
fn is_readable(from: &impl AsFd, start: Instant) -> bool {
    let mut ready = [PollFd::new(from.as_fd(), PollFlags::POLLIN)];
    loop {
        let left = PATIENCE.saturating_sub(start.elapsed());
        let left = PollTimeout::try_from(left).expect("two minutes are few milliseconds");
        match poll(&mut ready, left) {
            Err(nix::errno::Errno::EINTR) => (),
            count => return count.expect("a descriptor can be polled") > 0,
        }
    }
}

fn drain<R: Read + Send + 'static>(from: Option<R>) -> std::thread::JoinHandle<Vec<u8>> {
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        if let Some(mut from) = from {
            from.read_to_end(&mut bytes).expect("a pipe can be read");
        }
        bytes
    })
}

fn marked(mark: &str) -> Vec<u32> {
    let entries = std::fs::read_dir("/proc").unwrap().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.filter(|pid: &u32| {
        let environment = std::fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        environment
            .split(|byte| *byte == 0)
            .any(|variable| variable == mark.as_bytes())
    })
    .collect()
}

fn command_line(pid: u32) -> String {
    let text = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    String::from_utf8_lossy(&text).replace('\0', " ")
}

pub fn parent_of(pid: u32) -> Option<u32> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit_once(')')?
        .1
        .split_ascii_whitespace()
        .nth(1)?
        .parse()
        .ok()
}

/// The CPUs that this process may use.
pub fn own_mask() -> Vec<u32> {
    let set = nix::sched::sched_getaffinity(nix::unistd::Pid::from_raw(0)).unwrap();
    (0..1024)
        .filter(|cpu| set.is_set(*cpu as usize).unwrap())
        .collect()
}
