// SPDX-License-Identifier: MIT OR Apache-2.0
//! Runs programs: with their output shown, or captured under a time limit.

use std::io::Read;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

/// How a captured program ended, and its output.
pub(crate) struct Finished {
    pub(crate) status: ExitStatus,
    pub(crate) timed_out: bool,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
    pub(crate) wall: Duration,
    /// Whether another process still had the output open [`GRACE`] after the program's end.
    pub(crate) held_open: bool,
}

impl Finished {
    pub(crate) fn success(&self) -> bool {
        self.status.success() && !self.timed_out
    }

    /// How it ended, for a message.
    pub(crate) fn end(&self) -> String {
        if self.timed_out {
            return format!("was stopped after {}", seconds(self.wall));
        }
        ending(self.status)
    }
}

/// `exited with code 3` or `was killed by signal 9`.
pub(crate) fn ending(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("exited with code {code}"),
        (None, Some(signal)) => format!("was killed by signal {signal}"),
        (None, None) => "ended in an unknown way".into(),
    }
}

/// A duration as people read it: `0.42 s`, `3 min 05 s`.
pub(crate) fn seconds(time: Duration) -> String {
    let whole = time.as_secs();
    if whole >= 60 {
        format!("{} min {:02} s", whole / 60, whole % 60)
    } else if whole >= 10 {
        format!("{:.0} s", time.as_secs_f64())
    } else {
        format!("{:.2} s", time.as_secs_f64())
    }
}

/// Runs a program with this process's standard streams; an error unless the program succeeds.
pub(crate) fn show(mut command: Command) -> Result<(), String> {
    let name = command_line(&command);
    let status = command
        .status()
        .map_err(|why| format!("cannot start {name}: {why}"))?;
    if status.success() {
        Ok(())
    } else {
        Err(format!("`{name}` {}", ending(status)))
    }
}

/// Replaces this process by a program, as `exec` does: only the program receives Ctrl-C, and its exit code is that of
/// this process. Returns only if it fails.
pub(crate) fn exec(mut command: Command) -> Result<(), String> {
    let why = command.exec();
    Err(format!("cannot start {}: {why}", command_line(&command)))
}

/// Runs a program and returns its standard output; if it fails, the error contains its output.
pub(crate) fn quiet(command: Command, limit: Duration) -> Result<String, String> {
    let name = command_line(&command);
    let done = capture(command, limit, |_| ())?;
    if done.success() {
        return Ok(done.stdout);
    }
    Err(format!(
        "`{name}` {}\n{}{}",
        done.end(),
        done.stdout,
        done.stderr
    ))
}

/// Runs a program in its own process group and keeps what it prints. After `limit`, `before_kill` may examine it (the
/// argument is its process id); then the whole group is ended.
pub(crate) fn capture(
    mut command: Command,
    limit: Duration,
    before_kill: impl FnOnce(u32),
) -> Result<Finished, String> {
    let name = command_line(&command);
    command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0);
    let start = Instant::now();
    let mut child = command
        .spawn()
        .map_err(|why| format!("cannot start {name}: {why}"))?;
    let (sender, arrived) = channel();
    collect(child.stdout.take(), false, sender.clone());
    collect(child.stderr.take(), true, sender);

    let mut printed = CommandOutput::default();
    let status = printed.until_end(&mut child, &arrived, start + limit)?;
    let timed_out = status.is_none();
    let status = match status {
        Some(status) => status,
        None => {
            before_kill(child.id());
            end_group(&mut child, &mut printed, &arrived)?
        }
    };
    let wall = start.elapsed();
    let held_open = !printed.until_closed(&arrived, GRACE);
    Ok(Finished {
        status,
        timed_out,
        stdout: String::from_utf8_lossy(&printed.stdout).into_owned(),
        stderr: String::from_utf8_lossy(&printed.stderr).into_owned(),
        wall,
        held_open,
    })
}

/// The command line as a user would type it, without the folder of the program.
pub(crate) fn command_line(command: &Command) -> String {
    let program = command.get_program().to_string_lossy().into_owned();
    let program = program.rsplit('/').next().unwrap_or(&program).to_string();
    let rest = command
        .get_args()
        .map(|arg| arg.to_string_lossy().into_owned());
    [program]
        .into_iter()
        .chain(rest)
        .collect::<Vec<_>>()
        .join(" ")
}

/// Sends `signal` (a name without SIG) to a process, or with a minus sign to a group.
pub(crate) fn send_signal(signal: &str, target: &str) {
    let line = format!("kill -s {signal} -- {target} 2>/dev/null");
    // A process that has ended already is no error.
    let _ = Command::new("sh").args(["-c", &line]).status();
}

fn end_group(
    child: &mut Child,
    printed: &mut CommandOutput,
    arrived: &Receiver<Chunk>,
) -> Result<ExitStatus, String> {
    let group = format!("-{}", child.id());
    send_signal("TERM", &group);
    if let Some(status) = printed.until_end(child, arrived, Instant::now() + GRACE)? {
        return Ok(status);
    }
    send_signal("KILL", &group);
    child
        .wait()
        .map_err(|why| format!("cannot wait for a killed process: {why}"))
}

type Chunk = (bool, Vec<u8>);

/// Reads one stream to its end, on a separate thread.
fn collect(stream: Option<impl Read + Send + 'static>, is_stderr: bool, to: Sender<Chunk>) {
    let Some(mut stream) = stream else { return };
    thread::spawn(move || {
        let mut buffer = vec![0; 1 << 16];
        while let Ok(count @ 1..) = stream.read(&mut buffer) {
            if to.send((is_stderr, buffer[..count].to_vec())).is_err() {
                return;
            }
        }
    });
}

/// What a finished command has written.
#[derive(Default)]
struct CommandOutput {
    stdout: Vec<u8>,
    stderr: Vec<u8>,
}

impl CommandOutput {
    fn keep(&mut self, (is_stderr, bytes): Chunk) {
        let stream = if is_stderr {
            &mut self.stderr
        } else {
            &mut self.stdout
        };
        // Output beyond the limit is dropped, because a program may print without end and would fill the memory.
        if stream.len() < OUTPUT_LIMIT_BYTES {
            stream.extend_from_slice(&bytes);
        }
    }

    /// Keeps output until the child has ended; `None` at the deadline.
    fn until_end(
        &mut self,
        child: &mut Child,
        arrived: &Receiver<Chunk>,
        deadline: Instant,
    ) -> Result<Option<ExitStatus>, String> {
        let mut pause = Duration::from_millis(1);
        loop {
            let ended = child
                .try_wait()
                .map_err(|why| format!("cannot wait: {why}"))?;
            if ended.is_some() || Instant::now() >= deadline {
                return Ok(ended);
            }
            match arrived.recv_timeout(pause) {
                Ok(chunk) => self.keep(chunk),
                Err(_) => thread::sleep(pause),
            }
            pause = (pause * 2).min(Duration::from_millis(20));
        }
    }

    /// Keeps output until every writer has closed it; `false` if a writer still has it open after `grace`.
    fn until_closed(&mut self, arrived: &Receiver<Chunk>, grace: Duration) -> bool {
        use std::sync::mpsc::RecvTimeoutError::{Disconnected, Timeout};
        let deadline = Instant::now() + grace;
        loop {
            match arrived.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
                Ok(chunk) => self.keep(chunk),
                Err(Disconnected) => return true,
                Err(Timeout) => return false,
            }
        }
    }
}

/// How long a program may take to end after SIGTERM, and how long its output may stay open after its end. Only broken
/// programs and busy machines need so long.
const GRACE: Duration = Duration::from_secs(10);
const OUTPUT_LIMIT_BYTES: usize = 64 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(line: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", line]);
        command
    }

    #[test]
    fn both_streams_and_the_code_are_kept() {
        let done = capture(shell("echo out; echo err >&2; exit 3"), GRACE * 5, |_| ()).unwrap();
        assert_eq!(
            (done.stdout.as_str(), done.stderr.as_str()),
            ("out\n", "err\n")
        );
        assert_eq!(done.end(), "exited with code 3");
        assert!(!done.held_open);
    }

    #[test]
    fn a_hung_program_is_ended_with_its_children() {
        let mut seen = None;
        let limit = Duration::from_millis(100);
        let done = capture(shell("sleep 100 & sleep 100"), limit, |pid| {
            seen = Some(pid)
        })
        .unwrap();
        assert!(done.timed_out && !done.success());
        assert!(seen.is_some());
        assert!(!done.held_open, "the sleeping child still holds the output");
    }

    #[test]
    fn a_program_killed_by_a_signal_is_reported_so() {
        let done = capture(shell("kill -SEGV $$"), GRACE * 5, |_| ()).unwrap();
        assert_eq!(done.end(), "was killed by signal 11");
    }

    #[test]
    fn a_failing_command_carries_its_output() {
        let error = quiet(shell("echo reason >&2; exit 1"), GRACE * 5).unwrap_err();
        assert!(
            error.contains("exited with code 1") && error.contains("reason"),
            "{error}"
        );
    }

    #[test]
    fn a_missing_program_is_named() {
        let error = quiet(Command::new("no-program-has-this-name"), GRACE).unwrap_err();
        assert!(
            error.contains("cannot start no-program-has-this-name"),
            "{error}"
        );
    }

    #[test]
    fn durations_read_well() {
        assert_eq!(seconds(Duration::from_millis(420)), "0.42 s");
        assert_eq!(seconds(Duration::from_secs(185)), "3 min 05 s");
    }
}
