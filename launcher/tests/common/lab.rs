// SPDX-License-Identifier: MIT OR Apache-2.0
//! Simulates hosts, all of which are this machine.

use super::{Job, rmpiexec};
use std::fs;
use std::os::unix::fs::PermissionsExt;

/// A folder with a script as remote shell. The script reaches all hosts except those called `bad...`, and is slow for
/// those called `slow...`. It passes on the environment variable that identifies the tests' processes.
pub struct Lab(pub tempfile::TempDir);

impl Lab {
    pub fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let text = "#!/bin/sh\n\
            host=$1; shift\n\
            case $host in bad*) echo \"rsh: unknown host $host\" >&2; exit 255;; slow*) sleep 2;; esac\n\
            echo 'Welcome to this host'\n\
            cd / && exec env -i HOME=/ PATH=/usr/bin:/bin RMPI_TEST_MARK=\"$RMPI_TEST_MARK\" HOSTNAME=$host sh -c \"$*\"\n";
        let shell = folder.path().join("rsh");
        fs::write(&shell, text).unwrap();
        fs::set_permissions(&shell, PermissionsExt::from_mode(0o755)).unwrap();
        Self(folder)
    }

    /// A job over these hosts.
    pub fn job(&self, hosts: &str, arguments: &[&str]) -> Job {
        let shell = self.0.path().join("rsh");
        let first = ["--launcher", shell.to_str().unwrap(), "--host", hosts];
        rmpiexec(first.iter().chain(arguments))
    }

    pub fn script(&self, hosts: &str, text: &str) -> Job {
        self.job(hosts, &["sh", "-c", text])
    }
}
