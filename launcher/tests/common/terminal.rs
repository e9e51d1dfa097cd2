// SPDX-License-Identifier: MIT OR Apache-2.0
//! Simulates a user at a terminal.
#![allow(unsafe_code)]

use super::{Job, PATIENCE, Running, is_readable};
use nix::libc;
use nix::pty::{Winsize, openpty};
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::process::Stdio;
use std::time::Instant;

/// The user's side of the terminal.
pub struct Terminal {
    pub file: File,
    /// Everything that was shown.
    pub seen: String,
    /// Position up to which the user has read.
    looked: usize,
}

/// Starts a job with a controlling terminal of this many lines and columns.
pub fn start(mut job: Job, (lines, columns): (u16, u16)) -> (Terminal, Running) {
    let size = Winsize {
        ws_row: lines,
        ws_col: columns,
        ws_xpixel: 0,
        ws_ypixel: 0,
    };
    let pty = openpty(Some(&size), None).unwrap();
    let end = |fd: &OwnedFd| Stdio::from(fd.try_clone().unwrap());
    job.command
        .stdin(end(&pty.slave))
        .stdout(end(&pty.slave))
        .stderr(end(&pty.slave));
    let begin = || {
        nix::unistd::setsid()?;
        // SAFETY: the call takes three numbers; descriptor 0 is open.
        let result = unsafe { libc::ioctl(0, libc::TIOCSCTTY, 0) };
        nix::errno::Errno::result(result)?;
        Ok(())
    };
    // SAFETY: the closure runs between fork and execve, and makes only two system calls.
    unsafe { job.command.pre_exec(begin) };
    let running = job.start();
    let terminal = Terminal {
        file: File::from(pty.master),
        seen: String::new(),
        looked: 0,
    };
    (terminal, running)
}

impl Terminal {
    /// Waits until `expected` is shown, after all texts for which earlier calls have waited. Fails after [`PATIENCE`].
    pub fn wait_for(&mut self, expected: &str) {
        let start = Instant::now();
        let mut bytes = [0; 512];
        loop {
            if let Some(at) = self.seen[self.looked..].find(expected) {
                self.looked += at + expected.len();
                return;
            }
            assert!(
                is_readable(&self.file, start),
                "{expected:?} did not come in {PATIENCE:?}: {}",
                self.seen
            );
            let count = self.file.read(&mut bytes).unwrap_or(0);
            assert!(count > 0, "expected {expected:?} in: {}", self.seen);
            self.seen
                .push_str(&String::from_utf8_lossy(&bytes[..count]));
        }
    }

    /// Types a text.
    pub fn types(&mut self, text: &str) {
        self.file.write_all(text.as_bytes()).unwrap();
    }
}
