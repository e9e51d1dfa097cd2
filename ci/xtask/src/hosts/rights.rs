// SPDX-License-Identifier: MIT OR Apache-2.0
//! Whether this process may create namespaces, and which setting forbids it.

use crate::process::capture;
use crate::tree::command;
use std::fs;
use std::time::Duration;

/// The privileges with which the world is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rights {
    /// As root; all user ids exist in the world.
    Root,
    /// As root of a new user namespace that has only this user id.
    User,
}

impl Rights {
    /// Tries first [`Rights::Root`], then [`Rights::User`]. The error names the sysctl that forbids namespaces, if it
    /// is one of [`SWITCHES`].
    pub(crate) fn find() -> Result<Self, String> {
        let mut message = String::new();
        for rights in [Self::Root, Self::User] {
            match rights.attempt() {
                Ok(()) => return Ok(rights),
                Err(why) => message = why,
            }
        }
        let forbids = SWITCHES.iter().find(|switch| switch.forbids());
        Err(match forbids {
            Some(switch) => format!(
                "this machine allows no namespaces: {} is {} (remedy: sysctl -w {}={})",
                switch.name, switch.forbidding, switch.name, switch.allowing
            ),
            None => format!(
                "this machine allows no namespaces, and no known sysctl forbids it: {message}"
            ),
        })
    }

    /// Options for `unshare`.
    pub(super) fn options(self) -> &'static [&'static str] {
        match self {
            Self::Root => &[],
            Self::User => &["--user", "--map-root-user"],
        }
    }

    fn attempt(self) -> Result<(), String> {
        let mut unshare = command("unshare");
        unshare.args(self.options());
        unshare.args("--net --mount --ipc --uts --pid --fork --mount-proc true".split(' '));
        let done = capture(unshare, Duration::from_secs(20), |_| ())?;
        if done.success() {
            return Ok(());
        }
        Err(done.stderr.trim().into())
    }
}

/// A sysctl that can forbid namespaces to users other than root.
struct Switch {
    name: &'static str,
    forbidding: &'static str,
    allowing: &'static str,
}

impl Switch {
    fn forbids(&self) -> bool {
        let file = format!("/proc/sys/{}", self.name.replace('.', "/"));
        fs::read_to_string(file).is_ok_and(|text| text.trim() == self.forbidding)
    }
}

const SWITCHES: &[Switch] = &[
    Switch {
        name: "user.max_user_namespaces",
        forbidding: "0",
        allowing: "10000",
    },
    Switch {
        name: "user.max_net_namespaces",
        forbidding: "0",
        allowing: "10000",
    },
    // On Debian.
    Switch {
        name: "kernel.unprivileged_userns_clone",
        forbidding: "0",
        allowing: "1",
    },
    // On Ubuntu.
    Switch {
        name: "kernel.apparmor_restrict_unprivileged_userns",
        forbidding: "1",
        allowing: "0",
    },
];
