// SPDX-License-Identifier: MIT OR Apache-2.0
//! Runs a command: under a time limit with its output collected ([`run`]), or with its output passed on line by line
//! ([`run_lines`]). Also reaps orphaned processes. A signal to this program ([`interrupt`]) ends the command.

use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Read, Seek};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::sys::signal::{Signal, kill, killpg};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;

use crate::{Error, interrupt};

/// How a command ended, and what it printed.
#[derive(Debug)]
pub struct CommandOutcome {
    /// The exit status; `None` if the time limit or a signal to this program ended the command.
    pub status: Option<ExitStatus>,
    /// Standard output.
    pub stdout: String,
    /// Standard error.
    pub stderr: String,
    /// The time from its start to its end.
    pub elapsed: Duration,
}

impl CommandOutcome {
    /// Why the command failed, in a few words; `None` if it succeeded.
    #[must_use]
    pub fn failure(&self) -> Option<String> {
        let Some(status) = self.status else {
            return Some(format!("no end after {:.0} s", self.elapsed.as_secs_f64()));
        };
        if status.success() {
            return None;
        }
        // Launchers print their own lines after the program's, so the first line with text is the most useful.
        let line = self.stderr.lines().chain(self.stdout.lines());
        let first = line
            .map(str::trim)
            .find(|line| line.chars().any(char::is_alphanumeric));
        Some(format!(
            "{status}: {}",
            first.unwrap_or("it printed nothing")
        ))
    }
}

/// Makes this process the parent of all orphans among its descendants, so that [`end_orphans`] can end them.
pub fn adopt_orphans() {
    // The kernel supports this since Linux 3.4; without it the ranks of a hung launcher would only keep running.
    let _set = nix::sys::prctl::set_child_subreaper(true);
}

/// Runs `command` until it ends, the time limit is over or this program gets a signal. In the last two cases kills its
/// process group.
///
/// # Errors
/// When the command cannot be started.
pub fn run(command: &mut Command, limit: Duration) -> Result<CommandOutcome, Error> {
    let what = || format!("cannot run {}", command.get_program().display());
    let stdout = memory_file().map_err(|e| Error::io(what(), e))?;
    let stderr = memory_file().map_err(|e| Error::io(what(), e))?;
    let outputs = (stdout.try_clone(), stderr.try_clone());
    let (Ok(out), Ok(err)) = outputs else {
        return Err(Error::Program("cannot duplicate an output file".to_owned()));
    };
    command
        .stdin(Stdio::null())
        .stdout(out)
        .stderr(err)
        .process_group(0);
    let start = Instant::now();
    let child = command
        .spawn()
        .map_err(|e| Error::io(format!("cannot run {}", command.get_program().display()), e))?;
    let status = wait_at_most(child, limit)?;
    let elapsed = start.elapsed();
    Ok(CommandOutcome {
        status,
        stdout: content(stdout),
        stderr: content(stderr),
        elapsed,
    })
}

/// The first argument of a process that ends with its parent.
const GUARDED_WORD: &str = "guarded-run";

/// Wraps `command` so that it gets SIGTERM when this process ends for whatever reason; a launcher then ends its ranks.
/// `program` starts the command: its `main` must begin with [`guard_if_requested`].
#[must_use]
pub fn guarded(program: &Path, command: &Command) -> Command {
    let mut guarded = Command::new(program);
    guarded
        .arg(GUARDED_WORD)
        .arg(command.get_program())
        .args(command.get_args());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => guarded.env(name, value),
            None => guarded.env_remove(name),
        };
    }
    guarded
}

/// Replaces this process by the command that [`guarded`] wrapped, if this process was started for that. Returns `None`
/// if this process was not started for that, and an error if the command cannot be run.
#[must_use]
pub fn guard_if_requested() -> Option<Error> {
    let mut arguments = std::env::args_os().skip(1);
    if arguments.next()? != GUARDED_WORD {
        return None;
    }
    let program = arguments.next()?;
    // This setting survives exec. If the parent has ended before this line, nothing ends the command.
    let _set = nix::sys::prctl::set_pdeathsig(Signal::SIGTERM);
    let error = Command::new(&program).args(arguments).exec();
    Some(Error::io(
        format!("cannot run {}", program.display()),
        error,
    ))
}

/// A file in memory for the output: unlike a pipe, it never fills up and blocks the command.
fn memory_file() -> io::Result<File> {
    Ok(File::from(memfd_create("output", MFdFlags::MFD_CLOEXEC)?))
}

fn content(mut file: File) -> String {
    let mut bytes = Vec::new();
    if file
        .rewind()
        .and_then(|()| file.read_to_end(&mut bytes))
        .is_err()
    {
        return String::new();
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// The period of the checks for signals and for the time limit.
const CHECK_PERIOD: Duration = Duration::from_millis(50);
/// How long a launcher may take to end its ranks before it is killed.
const GRACE: Duration = Duration::from_secs(3);

/// Waits for the child's end in a separate thread, so that this function returns as soon as the child ends. At the time
/// limit or after a signal, kills the child's process group and returns `None`.
fn wait_at_most(mut child: Child, limit: Duration) -> Result<Option<ExitStatus>, Error> {
    let group = group_of(&child);
    let (sender, receiver) = mpsc::channel();
    let waiter = std::thread::spawn(move || {
        // The receiver is gone only if this process is ending.
        let _sent = sender.send(child.wait());
    });
    let deadline = Instant::now() + limit;
    let status = loop {
        let left = deadline.saturating_duration_since(Instant::now());
        match receiver.recv_timeout(left.min(CHECK_PERIOD)) {
            Ok(status) => {
                break Some(status.map_err(|e| Error::io("cannot wait for a command", e))?);
            }
            Err(_) if left > CHECK_PERIOD && !interrupt::seen() => {}
            Err(_) => {
                // The group may have ended in between; then there is nothing to kill.
                let _killed = killpg(group, Signal::SIGKILL);
                break None;
            }
        }
    };
    drop(waiter.join());
    Ok(status)
}

fn group_of(child: &Child) -> Pid {
    Pid::from_raw(i32::try_from(child.id()).unwrap_or(i32::MAX))
}

/// A line that a command printed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OutputLine {
    /// On standard output.
    Out(String),
    /// On standard error.
    Err(String),
}

/// An event from the threads that read a command's output and wait for its end.
enum CommandEvent {
    Line(OutputLine),
    Ended(io::Result<ExitStatus>),
}

/// Runs `command` to its end, and calls `on_line` with each line as it arrives. On a signal to this program the command
/// gets SIGINT, and SIGKILL if it has not ended 3 s later.
///
/// # Errors
/// When the command cannot be started.
pub fn run_lines(
    command: &mut Command,
    mut on_line: impl FnMut(OutputLine),
) -> Result<ExitStatus, Error> {
    let what = format!("cannot run {}", command.get_program().display());
    command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0);
    let mut child = command.spawn().map_err(|e| Error::io(what, e))?;
    let group = group_of(&child);
    let (sender, events) = mpsc::channel();
    let readers = [
        child
            .stdout
            .take()
            .map(|stream| spawn_reader(stream, OutputLine::Out, sender.clone())),
        child
            .stderr
            .take()
            .map(|stream| spawn_reader(stream, OutputLine::Err, sender.clone())),
    ];
    std::thread::spawn(move || sender.send(CommandEvent::Ended(child.wait())));
    let status = pass_on_until_end(group, &events, &mut on_line)?;
    // This loop passes on what the command wrote before its end. A grandchild may keep the streams open after the
    // command's end, so the loop waits at most 1 s for the end of the streams.
    let deadline = Instant::now() + Duration::from_secs(1);
    while readers.iter().flatten().any(|reader| !reader.is_finished()) && Instant::now() < deadline
    {
        if let Ok(CommandEvent::Line(line)) = events.recv_timeout(Duration::from_millis(5)) {
            on_line(line);
        }
    }
    for event in events.try_iter() {
        if let CommandEvent::Line(line) = event {
            on_line(line);
        }
    }
    Ok(status)
}

fn pass_on_until_end(
    group: Pid,
    events: &mpsc::Receiver<CommandEvent>,
    on_line: &mut impl FnMut(OutputLine),
) -> Result<ExitStatus, Error> {
    let mut signalled_at: Option<Instant> = None;
    loop {
        match events.recv_timeout(CHECK_PERIOD) {
            Ok(CommandEvent::Line(line)) => on_line(line),
            Ok(CommandEvent::Ended(status)) => {
                return status.map_err(|e| Error::io("cannot wait for a command", e));
            }
            Err(_) => {}
        }
        let signal = match signalled_at {
            None if interrupt::seen() => Signal::SIGINT,
            Some(then) if then.elapsed() > GRACE => Signal::SIGKILL,
            _ => continue,
        };
        // This fails if the group has ended in between.
        let _sent = killpg(group, signal);
        signalled_at = Some(Instant::now());
    }
}

fn spawn_reader(
    stream: impl Read + Send + 'static,
    wrap: fn(String) -> OutputLine,
    sender: mpsc::Sender<CommandEvent>,
) -> std::thread::JoinHandle<()> {
    std::thread::spawn(move || {
        let mut lines = BufReader::new(stream).split(b'\n');
        while let Some(Ok(line)) = lines.next() {
            let line = String::from_utf8_lossy(&line).into_owned();
            if sender.send(CommandEvent::Line(wrap(line))).is_err() {
                return;
            }
        }
    })
}

/// Reaps orphaned processes of a command; with `kill_them`, kills them first. Must be called only by a process that has
/// called [`adopt_orphans`] and has no other running children.
pub fn end_orphans(kill_them: bool) {
    let deadline = Instant::now() + Duration::from_secs(5);
    while Instant::now() < deadline {
        for orphan in children().into_iter().filter(|_| kill_them) {
            // This fails if the orphan has ended in between.
            let _killed = kill(orphan, Signal::SIGKILL);
        }
        match waitpid(None, Some(WaitPidFlag::WNOHANG)) {
            Ok(WaitStatus::StillAlive) if !kill_them => return,
            Ok(WaitStatus::StillAlive) => std::thread::sleep(Duration::from_millis(5)),
            Ok(_) => {}
            Err(_) => return,
        }
    }
}

/// The processes whose parent is this one.
fn children() -> Vec<Pid> {
    let me = std::process::id();
    let Ok(entries) = fs::read_dir("/proc") else {
        return Vec::new();
    };
    let pids = entries
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    pids.filter(|pid| {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        parent_of(&stat) == Some(me)
    })
    .map(Pid::from_raw)
    .collect()
}

/// The parent's process id in a line of `/proc/PID/stat`. The process name before it may contain blanks and
/// parentheses.
fn parent_of(stat: &str) -> Option<u32> {
    let (_, after_name) = stat.rsplit_once(')')?;
    after_name.split_whitespace().nth(1)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str, limit_ms: u64) -> CommandOutcome {
        run(
            Command::new("sh").args(["-c", script]),
            Duration::from_millis(limit_ms),
        )
        .unwrap()
    }

    #[test]
    fn output_of_both_streams_is_collected() {
        let outcome = shell("echo out; echo err >&2", 10_000);
        assert_eq!(
            (outcome.stdout.as_str(), outcome.stderr.as_str()),
            ("out\n", "err\n")
        );
        assert_eq!(outcome.failure(), None);
    }

    #[test]
    fn the_limit_ends_the_whole_group() {
        let outcome = shell("sleep 1000 & sleep 1000", 200);
        assert!(outcome.status.is_none());
        assert!(outcome.failure().unwrap().starts_with("no end after"));
    }

    #[test]
    fn a_failure_is_reported_with_the_first_line_that_has_text() {
        let failure = shell("echo ------ >&2; echo no such device >&2; exit 3", 10_000).failure();
        assert_eq!(failure.unwrap(), "exit status: 3: no such device");
    }

    #[test]
    fn lines_are_passed_on_as_they_arrive_and_none_is_lost_at_the_end() {
        let mut lines = Vec::new();
        let script =
            "echo one; echo two >&2; for i in 1 2 3; do echo $i; done; printf last; exit 4";
        let status = run_lines(Command::new("sh").args(["-c", script]), |line| {
            lines.push(line)
        })
        .unwrap();
        assert_eq!(status.code(), Some(4));
        let out: Vec<&str> = lines
            .iter()
            .filter_map(|line| match line {
                OutputLine::Out(line) => Some(line.as_str()),
                OutputLine::Err(_) => None,
            })
            .collect();
        assert_eq!(out, ["one", "1", "2", "3", "last"]);
        assert!(lines.contains(&OutputLine::Err("two".to_owned())));
    }

    #[test]
    fn a_grandchild_that_keeps_the_streams_open_does_not_delay_the_end() {
        let status =
            run_lines(Command::new("sh").args(["-c", "sleep 5 & exit 0"]), |_| {}).unwrap();
        assert!(status.success());
    }

    #[test]
    fn a_missing_command_is_named() {
        let error = run(
            &mut Command::new("/nonexistent/mpiexec"),
            Duration::from_secs(1),
        )
        .unwrap_err();
        assert!(
            error.to_string().contains("/nonexistent/mpiexec"),
            "{error}"
        );
    }

    #[test]
    fn the_parent_is_found_behind_an_odd_name() {
        assert_eq!(parent_of("12 (a) b) S 34 12 12 0"), Some(34));
        assert_eq!(parent_of(""), None);
    }
}
