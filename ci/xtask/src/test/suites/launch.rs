// SPDX-License-Identifier: MIT OR Apache-2.0
//! Runs a job of another project's program under the installed launcher.

use super::super::{jobs, over_hosts};
use crate::process::Finished;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

/// Runs `ranks` ranks of the program that `program` adds to the launcher's arguments. An error unless the job ends
/// within `limit` with code 0 and leaves nothing behind; `scratch` is a folder for its temporary files.
pub(super) fn launch(
    prefix: &Path,
    ranks: u32,
    scratch: &Path,
    limit: Duration,
    program: impl FnOnce(&mut Command),
) -> Result<Finished, String> {
    launch_over((prefix, None), ranks, scratch, limit, program)
}

/// Like [`launch`], over `hosts` hosts; `None`: on this machine.
pub(super) fn launch_over(
    (prefix, hosts): (&Path, Option<u32>),
    ranks: u32,
    scratch: &Path,
    limit: Duration,
    program: impl FnOnce(&mut Command),
) -> Result<Finished, String> {
    let mut job = over_hosts::launch(&prefix.join("bin/rmpiexec"), ranks, hosts)?;
    program(&mut job);
    let cookie = jobs::Cookie::new(scratch)?;
    let done = jobs::run(job, &cookie, limit)?;
    cookie.leftovers(jobs::LEFTOVER_GRACE)?;
    if done.success() {
        return Ok(done);
    }
    Err(format!("the job {}\n{}", done.end(), shown(&done)))
}

/// The output of a job, shortened to its beginning and its end if it is long.
pub(super) fn shown(done: &Finished) -> String {
    let lines: Vec<&str> = done.stdout.lines().chain(done.stderr.lines()).collect();
    if lines.len() <= 2 * SHOWN {
        return lines.join("\n");
    }
    let left_out = lines.len() - 2 * SHOWN;
    let (first, last) = (&lines[..SHOWN], &lines[lines.len() - SHOWN..]);
    format!(
        "{}\n({left_out} lines more)\n{}",
        first.join("\n"),
        last.join("\n")
    )
}

/// How many lines of the beginning and of the end are shown.
const SHOWN: usize = 30;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process::capture;

    #[test]
    fn long_output_is_shown_by_its_ends() {
        let mut shell = Command::new("sh");
        shell.args(["-c", "seq 1 100"]);
        let done = capture(shell, Duration::from_secs(10), |_| ()).unwrap();
        let text = shown(&done);
        assert!(text.starts_with("1\n2\n") && text.ends_with("99\n100"));
        assert!(text.contains("\n30\n(40 lines more)\n71\n"), "{text}");
    }
}
