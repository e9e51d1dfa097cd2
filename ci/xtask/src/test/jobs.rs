// SPDX-License-Identifier: MIT OR Apache-2.0
//! Runs a job under a launcher: captures its output and its end, and finds what it leaves behind.

use crate::process::{Finished, capture, seconds, send_signal};
use crate::tree::{command, find_program, make_folder};
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{self, Command};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// Processes and files of a job that still exist this long after its launcher has ended count as left behind.
pub(crate) const LEFTOVER_GRACE: Duration = Duration::from_secs(10);

/// Marks every process of one job, by an environment variable that all of them inherit.
pub(crate) struct Cookie {
    value: String,
    /// The job's folder for temporary files.
    pub(crate) scratch: PathBuf,
    shm_before: BTreeSet<String>,
}

impl Cookie {
    /// A new mark, with an empty folder below `base`.
    pub(crate) fn new(base: &Path) -> Result<Self, String> {
        let count = COUNTER.fetch_add(1, Ordering::Relaxed);
        let value = format!("{}-{count}", process::id());
        let scratch = base.join(format!("scratch-{value}"));
        make_folder(&scratch)?;
        Ok(Self {
            value,
            scratch,
            shm_before: shm_files(),
        })
    }

    /// Marks the processes that `command` will start.
    pub(crate) fn mark(&self, command: &mut Command) {
        command
            .env(VARIABLE, &self.value)
            .env("TMPDIR", &self.scratch);
    }

    /// The processes of the job that are alive now.
    pub(crate) fn processes(&self) -> Vec<u32> {
        let mark = format!("{VARIABLE}={}", self.value);
        let Ok(entries) = fs::read_dir("/proc") else {
            return Vec::new();
        };
        let pids = entries
            .flatten()
            .filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        pids.filter(|pid| is_marked(*pid, &mark)).collect()
    }

    /// Waits up to `grace` until nothing of the job is left, and returns how long that took. If something is left then,
    /// kills the processes, removes the temporary files, and returns an error that lists everything left.
    pub(crate) fn leftovers(&self, grace: Duration) -> Result<Duration, String> {
        let start = Instant::now();
        let deadline = start + grace;
        loop {
            let found = self.found();
            if found.is_empty() {
                let _ = fs::remove_dir_all(&self.scratch);
                return Ok(start.elapsed());
            }
            if Instant::now() >= deadline {
                for pid in self.processes() {
                    send_signal("KILL", &pid.to_string());
                }
                let _ = fs::remove_dir_all(&self.scratch);
                return Err(format!(
                    "left behind after {}: {}",
                    seconds(grace),
                    found.join(", ")
                ));
            }
            thread::sleep(Duration::from_millis(5));
        }
    }

    fn found(&self) -> Vec<String> {
        let mut found: Vec<String> = self
            .processes()
            .iter()
            .map(|pid| format!("process {pid} ({})", command_line(*pid)))
            .collect();
        let new = shm_files();
        found.extend(
            new.difference(&self.shm_before)
                .map(|name| format!("/dev/shm/{name}")),
        );
        if let Ok(files) = fs::read_dir(&self.scratch) {
            found.extend(
                files
                    .flatten()
                    .map(|file| format!("file {}", file.path().display())),
            );
        }
        found
    }
}

/// Runs one job to its end or its limit. At the limit, adds the stacks of the job's processes to its output and then
/// ends the job.
pub(crate) fn run(mut job: Command, cookie: &Cookie, limit: Duration) -> Result<Finished, String> {
    cookie.mark(&mut job);
    let mut stacks = String::new();
    let mut done = capture(job, limit, |_| {
        stacks = where_they_hang(&cookie.processes())
    })?;
    done.stderr += &stacks;
    Ok(done)
}

/// The stacks of the processes of a job that hangs.
fn where_they_hang(pids: &[u32]) -> String {
    let mut text = String::from("\nwhere its processes were:\n");
    let debugger = find_program("gdb");
    for pid in pids.iter().take(HUNG_SHOWN) {
        text += &format!("process {pid} ({})\n", command_line(*pid));
        let Some(gdb) = &debugger else { continue };
        let mut look = command(gdb);
        look.args([
            "-p",
            &pid.to_string(),
            "-batch",
            "-nx",
            "-ex",
            "thread apply all bt 12",
        ]);
        if let Ok(done) = capture(look, Duration::from_secs(60), |_| ()) {
            let frames = done
                .stdout
                .lines()
                .filter(|line| line.starts_with(['#', 'T']));
            text.extend(frames.map(|line| format!("  {line}\n")));
        }
    }
    if pids.len() > HUNG_SHOWN {
        text += &format!("and {} more\n", pids.len() - HUNG_SHOWN);
    }
    text
}

fn is_marked(pid: u32, mark: &str) -> bool {
    let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
    let marked = environment
        .split(|byte| *byte == 0)
        .any(|entry| entry == mark.as_bytes());
    // A zombie does not count: it holds no memory.
    marked && !is_zombie(pid)
}

fn is_zombie(pid: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit(") ")
        .next()
        .is_none_or(|rest| rest.starts_with(['Z', 'X']))
}

fn command_line(pid: u32) -> String {
    let args = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    String::from_utf8_lossy(&args)
        .replace('\0', " ")
        .trim()
        .to_string()
}

/// The names of rmpi's files in `/dev/shm`; files of other programs are ignored.
fn shm_files() -> BTreeSet<String> {
    let Ok(entries) = fs::read_dir("/dev/shm") else {
        return BTreeSet::new();
    };
    let names = entries
        .flatten()
        .map(|entry| entry.file_name().to_string_lossy().into_owned());
    names.filter(|name| name.contains("rmpi")).collect()
}

/// The variable's name does not begin with `RMPI_`: the library would report an unknown variable of that prefix as
/// misspelt.
const VARIABLE: &str = "XTASK_JOB";
const HUNG_SHOWN: usize = 8;
static COUNTER: AtomicU32 = AtomicU32::new(0);

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(line: &str) -> Command {
        let mut shell = Command::new("sh");
        shell.args(["-c", line]);
        shell
    }

    fn cookie() -> Cookie {
        Cookie::new(&std::env::temp_dir()).unwrap()
    }

    #[test]
    fn a_clean_job_leaves_nothing() {
        let cookie = cookie();
        run(shell("true"), &cookie, Duration::from_secs(20)).unwrap();
        assert!(cookie.leftovers(Duration::from_secs(30)).is_ok());
    }

    #[test]
    fn a_process_left_behind_is_found_and_ended() {
        let cookie = cookie();
        let line = "setsid sleep 1000 >/dev/null 2>&1 & sleep 0.1";
        run(shell(line), &cookie, Duration::from_secs(20)).unwrap();
        let found = cookie.leftovers(Duration::from_millis(50)).unwrap_err();
        assert!(found.contains("sleep 1000"), "{found}");
        let all_ended = |cookie: &Cookie| cookie.processes().is_empty();
        assert!((0..200).any(|_| all_ended(&cookie) || {
            thread::sleep(Duration::from_millis(10));
            false
        }));
    }

    #[test]
    fn a_file_left_behind_is_found() {
        let cookie = cookie();
        run(
            shell("touch $TMPDIR/left"),
            &cookie,
            Duration::from_secs(20),
        )
        .unwrap();
        let found = cookie.leftovers(Duration::from_millis(10)).unwrap_err();
        assert!(found.contains("/left"), "{found}");
        assert!(!cookie.scratch.exists());
    }

    #[test]
    fn stacks_of_a_hung_job_are_reported() {
        let cookie = cookie();
        let done = run(
            shell("exec sleep 1000"),
            &cookie,
            Duration::from_millis(200),
        )
        .unwrap();
        assert!(
            done.timed_out && done.stderr.contains("sleep 1000"),
            "{}",
            done.stderr
        );
    }
}
