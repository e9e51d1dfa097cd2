// SPDX-License-Identifier: MIT OR Apache-2.0
//! Runs a command under a time limit, collects its output or passes it on line by line, and can kill orphaned processes.
//! A signal to this program ([`interrupt`]) ends the command.

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
    /// `None` where the time limit ended it.
    pub status: Option<ExitStatus>,
    /// Standard output.
    pub stdout: String,
    /// Standard error.
    pub stderr: String,
    /// From its start to its end.
    pub elapsed: Duration,
}

impl CommandOutcome {
    /// Why this was not a success, in a few words; `None` if it was one.
    #[must_use]
    pub fn complaint(&self) -> Option<String> {
        let Some(status) = self.status else {
            return Some(format!("no end after {:.0} s", self.elapsed.as_secs_f64()));
        };
        if status.success() {
            return None;
        }
        // Launchers add lines of their own around the program's; the first is the program's.
        let said = self.stderr.lines().chain(self.stdout.lines());
        let first = said
            .map(str::trim)
            .find(|line| line.chars().any(char::is_alphanumeric));
        Some(format!(
            "{status}: {}",
            first.unwrap_or("it printed nothing")
        ))
    }
}

/// Makes this process the parent of everything that its children leave behind, so that [`end_orphans`] can end it.
pub fn adopt_orphans() {
    // Supported since Linux 3.4; without it the ranks of a hung launcher would only keep running.
    let _set = nix::sys::prctl::set_child_subreaper(true);
}

/// Runs `command` to its end or to the limit, whichever is first.
///
/// # Errors
/// When the command cannot be started.
pub fn run(command: &mut Command, limit: Duration) -> Result<CommandOutcome, Error> {
    let what = || format!("cannot run {}", command.get_program().display());
    let stdout = sink().map_err(|e| Error::io(what(), e))?;
    let stderr = sink().map_err(|e| Error::io(what(), e))?;
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

/// The same command, started by `program` so that it gets SIGTERM when this process ends for whatever reason; a launcher
/// then ends its ranks. The `main` of `program` must begin with [`guard_if_asked`].
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

/// Executes the command that [`guarded`] wrapped, if the command line has the first argument for it. Returns only if it has
/// not, or with the reason why the command cannot be run.
#[must_use]
pub fn guard_if_asked() -> Option<Error> {
    let mut arguments = std::env::args_os().skip(1);
    if arguments.next()? != GUARDED_WORD {
        return None;
    }
    let program = arguments.next()?;
    // Survives exec. A parent that ended before this line is not noticed; the time limit of its run is gone too.
    let _set = nix::sys::prctl::set_pdeathsig(Signal::SIGTERM);
    let error = Command::new(&program).args(arguments).exec();
    Some(Error::io(
        format!("cannot run {}", program.display()),
        error,
    ))
}

/// A file in memory, so that a full pipe never stops the command.
fn sink() -> io::Result<File> {
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

/// The period of the checks for signals and for the time limit; the command's own end is noticed at once.
const LOOK: Duration = Duration::from_millis(50);
/// How long a launcher may take to end its ranks before it is killed.
const GRACE: Duration = Duration::from_secs(3);

/// Waits on a thread, so that both the end and the time limit are noticed at once.
fn wait_at_most(mut child: Child, limit: Duration) -> Result<Option<ExitStatus>, Error> {
    let group = group_of(&child);
    let (tell, hear) = mpsc::channel();
    let waiter = std::thread::spawn(move || {
        // The receiver is gone only if this process is ending.
        let _sent = tell.send(child.wait());
    });
    let deadline = Instant::now() + limit;
    let status = loop {
        let left = deadline.saturating_duration_since(Instant::now());
        match hear.recv_timeout(left.min(LOOK)) {
            Ok(status) => {
                break Some(status.map_err(|e| Error::io("cannot wait for a command", e))?);
            }
            Err(_) if left > LOOK && !interrupt::seen() => {}
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

/// What the threads that read a command's output and wait for its end report.
enum CommandEvent {
    Line(OutputLine),
    Ended(io::Result<ExitStatus>),
}

/// Runs `command` to its end; `hear` gets each line as it comes. On a signal to this program the command gets SIGINT, and
/// SIGKILL if it does not end then.
///
/// # Errors
/// When the command cannot be started.
pub fn listen(
    command: &mut Command,
    mut hear: impl FnMut(OutputLine),
) -> Result<ExitStatus, Error> {
    let what = format!("cannot run {}", command.get_program().display());
    command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0);
    let mut child = command.spawn().map_err(|e| Error::io(what, e))?;
    let group = group_of(&child);
    let (tell, events) = mpsc::channel();
    let readers = [
        child
            .stdout
            .take()
            .map(|stream| reader(stream, OutputLine::Out, tell.clone())),
        child
            .stderr
            .take()
            .map(|stream| reader(stream, OutputLine::Err, tell.clone())),
    ];
    std::thread::spawn(move || tell.send(CommandEvent::Ended(child.wait())));
    let status = until_ended(group, &events, &mut hear)?;
    // What was written before the end comes before the end of the streams; a grandchild may hold them open.
    let deadline = Instant::now() + Duration::from_secs(1);
    while readers.iter().flatten().any(|reader| !reader.is_finished()) && Instant::now() < deadline
    {
        if let Ok(CommandEvent::Line(said)) = events.recv_timeout(Duration::from_millis(5)) {
            hear(said);
        }
    }
    for event in events.try_iter() {
        if let CommandEvent::Line(said) = event {
            hear(said);
        }
    }
    Ok(status)
}

fn until_ended(
    group: Pid,
    events: &mpsc::Receiver<CommandEvent>,
    hear: &mut impl FnMut(OutputLine),
) -> Result<ExitStatus, Error> {
    let mut asked: Option<Instant> = None;
    loop {
        match events.recv_timeout(LOOK) {
            Ok(CommandEvent::Line(said)) => hear(said),
            Ok(CommandEvent::Ended(status)) => {
                return status.map_err(|e| Error::io("cannot wait for a command", e));
            }
            Err(_) => {}
        }
        let signal = match asked {
            None if interrupt::seen() => Signal::SIGINT,
            Some(then) if then.elapsed() > GRACE => Signal::SIGKILL,
            _ => continue,
        };
        // The group may have ended in between.
        let _sent = killpg(group, signal);
        asked = Some(Instant::now());
    }
}

fn reader(
    stream: impl Read + Send + 'static,
    wrap: fn(String) -> OutputLine,
    tell: mpsc::Sender<CommandEvent>,
) -> std::thread::JoinHandle<()> {
    std::thread::spawn(move || {
        let mut lines = BufReader::new(stream).split(b'\n');
        while let Some(Ok(line)) = lines.next() {
            let line = String::from_utf8_lossy(&line).into_owned();
            if tell.send(CommandEvent::Line(wrap(line))).is_err() {
                return;
            }
        }
    })
}

/// Reaps orphaned processes of a command, killing them first if asked. Only for a process that has no other
/// children of its own running, and has called [`adopt_orphans`].
pub fn end_orphans(kill_them: bool) {
    let deadline = Instant::now() + Duration::from_secs(5);
    while Instant::now() < deadline {
        for orphan in children().into_iter().filter(|_| kill_them) {
            // It may have ended in between.
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

/// The parent in a line of `/proc/PID/stat`; the name before it may contain blanks and parentheses.
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
    fn output_of_both_streams_is_caught() {
        let outcome = shell("echo out; echo err >&2", 10_000);
        assert_eq!(
            (outcome.stdout.as_str(), outcome.stderr.as_str()),
            ("out\n", "err\n")
        );
        assert_eq!(outcome.complaint(), None);
    }

    #[test]
    fn the_limit_ends_the_whole_group() {
        let outcome = shell("sleep 1000 & sleep 1000", 200);
        assert!(outcome.status.is_none());
        assert!(outcome.complaint().unwrap().starts_with("no end after"));
    }

    #[test]
    fn a_failure_is_told_with_the_first_line_that_says_something() {
        let complaint =
            shell("echo ------ >&2; echo no such device >&2; exit 3", 10_000).complaint();
        assert_eq!(complaint.unwrap(), "exit status: 3: no such device");
    }

    #[test]
    fn lines_are_heard_as_they_come_and_none_is_lost_at_the_end() {
        let mut lines = Vec::new();
        let script =
            "echo one; echo two >&2; for i in 1 2 3; do echo $i; done; printf last; exit 4";
        let status = listen(Command::new("sh").args(["-c", script]), |said| {
            lines.push(said)
        })
        .unwrap();
        assert_eq!(status.code(), Some(4));
        let out: Vec<&str> = lines
            .iter()
            .filter_map(|said| match said {
                OutputLine::Out(line) => Some(line.as_str()),
                OutputLine::Err(_) => None,
            })
            .collect();
        assert_eq!(out, ["one", "1", "2", "3", "last"]);
        assert!(lines.contains(&OutputLine::Err("two".to_owned())));
    }

    #[test]
    fn a_grandchild_that_keeps_the_streams_open_does_not_hold_us() {
        let status = listen(Command::new("sh").args(["-c", "sleep 5 & exit 0"]), |_| {}).unwrap();
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
