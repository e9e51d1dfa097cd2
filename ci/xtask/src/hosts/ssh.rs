// SPDX-License-Identifier: MIT OR Apache-2.0
//! How hosts are reached: by an sshd in each host, with keys of this world, or by `lab-rsh`.

use super::world::write;
use crate::process::quiet;
use crate::tree::{command, find_program, read};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How a command is started on another host.
pub(super) enum Shell {
    /// By ssh: the path of sshd, and the user.
    Ssh(PathBuf, User),
    /// By `lab-rsh`, because ssh cannot be used, for this reason.
    StandIn(&'static str),
}

/// The user who may log in: the user outside that is root in the namespace.
pub(super) struct User {
    name: String,
    pub(super) uid: u32,
    pub(super) gid: u32,
    pub(super) home: String,
}

impl Shell {
    pub(super) fn find() -> Self {
        // `/usr/sbin` is searched too, because the PATH of a user may lack it.
        let usual = Some(PathBuf::from("/usr/sbin/sshd")).filter(|file| file.exists());
        let sshd = find_program("sshd").or(usual);
        match (sshd, User::find()) {
            (None, _) => Self::StandIn("openssh-server is not installed"),
            (_, _) if find_program("ssh-keygen").is_none() => {
                Self::StandIn("openssh-client is not installed")
            }
            (_, None) => Self::StandIn("the user who made the world cannot log in"),
            (Some(sshd), Some(user)) => Self::Ssh(sshd, user),
        }
    }

    /// The argument for `rmpiexec --launcher`.
    pub(super) fn launcher(&self, lab: &Path) -> String {
        match self {
            Self::Ssh(..) => format!("ssh -F {}", lab.join("etc/ssh/ssh_config").display()),
            Self::StandIn(_) => lab.join("bin/lab-rsh").display().to_string(),
        }
    }

    /// The text in the line that `cargo xtask hosts` prints.
    pub(super) fn description(&self) -> String {
        match self {
            Self::Ssh(..) => "reached by ssh".into(),
            Self::StandIn(why) => format!("reached by lab-rsh, because {why}"),
        }
    }

    /// Writes keys and settings; all hosts use the same keys.
    pub(super) fn prepare(&self, lab: &Path) -> Result<(), String> {
        let Self::Ssh(_, user) = self else {
            return Ok(());
        };
        let etc = lab.join("etc");
        let folder = etc.join("ssh");
        for name in ["key", "host_key"] {
            let mut keygen = command("ssh-keygen");
            keygen.args(["-q", "-t", "ed25519", "-N", "", "-C", "lab", "-f"]);
            keygen.arg(folder.join(name));
            quiet(keygen, Duration::from_secs(60))?;
        }
        let at = folder.display();
        let host_key = read(&folder.join("host_key.pub"))?;
        let known_hosts = format!("n*,10.77.0.*,fd77::* {host_key}");
        write(&folder.join("known_hosts"), &known_hosts)?;
        let filled = |text: &str| {
            text.replace("FOLDER", &at.to_string())
                .replace("USER", &user.name)
        };
        write(&folder.join("ssh_config"), &filled(CLIENT))?;
        let mut server = filled(SERVER);
        if user.uid != 0 {
            // In a user namespace, the folders above have an owner without a mapping, which StrictModes refuses.
            server += "StrictModes no\n";
        }
        write(&folder.join("sshd_config"), &server)?;
        unlocked_root(&etc.join("shadow"))
    }
}

impl User {
    /// The user outside that is root in this namespace. `None` if that user is the real root and the namespace has no
    /// other user: sshd would then run as root, and as root it needs a second user to change to.
    fn find() -> Option<Self> {
        let outside = |map: &str| {
            let text = fs::read_to_string(map).ok()?;
            let numbers: Vec<u32> = text
                .split_whitespace()
                .map_while(|field| field.parse().ok())
                .collect();
            match numbers.as_slice() {
                [0, 0, u32::MAX] => Some((0, true)),
                [0, outside, ..] => Some((*outside, false)),
                _ => None,
            }
        };
        let (uid, all_users) = outside("/proc/self/uid_map")?;
        let (gid, _) = outside("/proc/self/gid_map")?;
        if uid == 0 && !all_users {
            return None;
        }
        let mut entry = command("getent");
        entry.args(["passwd", &uid.to_string()]);
        let entry = quiet(entry, Duration::from_secs(10)).ok()?;
        Self::of_entry(entry.trim(), uid, gid)
    }

    /// Parses a line of `/etc/passwd`; `None` if the user cannot log in.
    fn of_entry(entry: &str, uid: u32, gid: u32) -> Option<Self> {
        let fields: Vec<&str> = entry.split(':').collect();
        let [name, _, _, _, _, home, shell] = fields.as_slice() else {
            return None;
        };
        let refuses = ["nologin", "false"]
            .iter()
            .any(|name| shell.ends_with(name));
        (!refuses).then(|| Self {
            name: (*name).into(),
            uid,
            gid,
            home: (*home).into(),
        })
    }
}

/// Writes a copy of `/etc/shadow` in which root's account is not locked: sshd refuses locked accounts, and some
/// distributions lock root's.
fn unlocked_root(copy: &Path) -> Result<(), String> {
    let Ok(shadow) = fs::read_to_string("/etc/shadow") else {
        return Ok(());
    };
    if !shadow.lines().any(|line| line.starts_with("root:!")) {
        return Ok(());
    }
    let unlocked = |line: &str| match line.strip_prefix("root:") {
        Some(rest) => format!("root:*{}\n", rest.find(':').map_or("", |end| &rest[end..])),
        None => format!("{line}\n"),
    };
    write(copy, "")?;
    fs::set_permissions(copy, fs::Permissions::from_mode(0o600))
        .map_err(|why| format!("cannot protect {}: {why}", copy.display()))?;
    write(copy, &shadow.lines().map(unlocked).collect::<String>())
}

const CLIENT: &str = "\
Host *
  User USER
  IdentityFile FOLDER/key
  IdentitiesOnly yes
  UserKnownHostsFile FOLDER/known_hosts
  GlobalKnownHostsFile /dev/null
  StrictHostKeyChecking yes
";
/// Settings of sshd. It accepts the same few environment variables as on most clusters.
const SERVER: &str = "\
Port 22
HostKey FOLDER/host_key
AuthorizedKeysFile FOLDER/key.pub
PermitRootLogin prohibit-password
PasswordAuthentication no
KbdInteractiveAuthentication no
UsePAM no
UseDNS no
PidFile none
PrintMotd no
PrintLastLog no
AcceptEnv LANG LC_*
MaxStartups 200:30:400
";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_user_with_a_shell_can_log_in() {
        let user = User::of_entry("me:x:1000:100:I,,:/srv/me:/bin/bash", 1000, 100).unwrap();
        assert_eq!((user.name.as_str(), user.home.as_str()), ("me", "/srv/me"));
        assert!(User::of_entry("no:x:65534:1:n:/nonexistent:/usr/sbin/nologin", 1, 1).is_none());
        assert!(User::of_entry("", 1, 1).is_none());
    }
}
