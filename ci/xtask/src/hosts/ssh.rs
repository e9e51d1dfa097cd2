// SPDX-License-Identifier: MIT OR Apache-2.0
//! An sshd in each host, with keys of this world; or what stands in for it.

use super::Rights;
use super::world::write;
use crate::process::quiet;
use crate::tree::{command, find_program, read};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How a command gets to another host.
pub(super) enum Shell {
    /// ssh, to this sshd.
    Ssh(PathBuf),
    /// `lab-rsh`, and why.
    StandIn(&'static str),
}

impl Shell {
    pub(super) fn find(rights: Rights) -> Self {
        // sbin is not in everybody's PATH.
        let usual = Some(PathBuf::from("/usr/sbin/sshd")).filter(|file| file.exists());
        match (rights, find_program("sshd").or(usual)) {
            (Rights::User, _) => Self::StandIn("only root can run sshd"),
            (Rights::Root, Some(sshd)) if find_program("ssh-keygen").is_some() => Self::Ssh(sshd),
            (Rights::Root, _) => Self::StandIn("openssh-server is not installed"),
        }
    }

    /// What `rmpiexec --launcher` takes.
    pub(super) fn words(&self, lab: &Path) -> String {
        match self {
            Self::Ssh(_) => format!("ssh -F {}", lab.join("etc/ssh/ssh_config").display()),
            Self::StandIn(_) => lab.join("bin/lab-rsh").display().to_string(),
        }
    }

    /// For the line that people read.
    pub(super) fn told(&self) -> String {
        match self {
            Self::Ssh(_) => "reached by ssh".into(),
            Self::StandIn(why) => format!("reached by lab-rsh, as {why}"),
        }
    }

    /// Keys and settings; one pair of keys is enough for all hosts.
    pub(super) fn prepare(&self, lab: &Path) -> Result<(), String> {
        if matches!(self, Self::StandIn(_)) {
            return Ok(());
        }
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
        let known = format!("n*,10.77.0.*,fd77::* {host_key}");
        write(&folder.join("known_hosts"), &known)?;
        let client = CLIENT.replace("FOLDER", &at.to_string());
        write(&folder.join("ssh_config"), &client)?;
        let server = SERVER.replace("FOLDER", &at.to_string());
        write(&folder.join("sshd_config"), &server)?;
        unlocked_root(&etc.join("shadow"))
    }
}

/// sshd lets nobody in whose account is locked, as root's is on some distributions: in this world it is not.
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
  IdentityFile FOLDER/key
  IdentitiesOnly yes
  UserKnownHostsFile FOLDER/known_hosts
  GlobalKnownHostsFile /dev/null
  StrictHostKeyChecking yes
";
/// Takes no more of the environment than most clusters do.
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
