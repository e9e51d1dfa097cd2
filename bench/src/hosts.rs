// SPDX-License-Identifier: MIT OR Apache-2.0
//! Two hosts between which is measured, and the remote shell by which they are reached.

use std::fs;
use std::process::Command;

use remote_shell::{SSH, joined, split};

use crate::Error;

/// Two hosts; one rank is started on each.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hosts {
    names: [String; 2],
    /// The line of `--launcher`; without one `ssh`.
    launcher: Option<String>,
}

impl Hosts {
    /// Reads `A,B`, and the remote shell that `--launcher` names.
    ///
    /// # Errors
    /// When these are not two names that every MPI takes for a host's, or the line is none of a shell.
    pub fn parse(names: &str, launcher: Option<&str>) -> Result<Self, Error> {
        let wrong = |why: &str| {
            Error::Usage(format!(
                "--host {names}: {why}; two names as in --host n1,n2 are needed"
            ))
        };
        let words: Vec<&str> = names.split(',').collect();
        let [one, other] = words.as_slice() else {
            return Err(wrong(&format!("these are {} hosts", words.len())));
        };
        for name in [one, other] {
            check(name).map_err(|why| wrong(&why))?;
        }
        if one == other {
            return Err(wrong("this is one host"));
        }
        if let Some(line) = launcher {
            split(line).map_err(|why| Error::Usage(format!("--launcher: {why}")))?;
        }
        Ok(Self {
            names: [one, other].map(|name| (*name).to_owned()),
            launcher: launcher.map(str::to_owned),
        })
    }

    /// Their names.
    #[must_use]
    pub const fn names(&self) -> &[String; 2] {
        &self.names
    }

    /// The line of `--launcher`.
    #[must_use]
    pub fn launcher(&self) -> Option<&str> {
        self.launcher.as_deref()
    }

    /// A script that is called as `ssh` is: for MPIs that take one word for their remote shell. `None` where there is no other than
    /// `ssh`.
    #[must_use]
    pub fn script(&self) -> Option<String> {
        let line = self.launcher.as_deref()?;
        let words = joined(&split(line).ok()?);
        Some(format!("#!/bin/sh\nexec {words} \"$@\"\n"))
    }

    /// The command that runs these words on the first host (0) or the second (1).
    #[must_use]
    pub fn command(&self, host: usize, words: &[String]) -> Command {
        let name = &self.names[host];
        if is_here(name) {
            let mut command = Command::new(&words[0]);
            command.args(&words[1..]);
            return command;
        }
        let shell = self.launcher.as_deref().map(split);
        let shell = match shell {
            Some(Ok(words)) => words,
            _ => SSH.map(str::to_owned).to_vec(),
        };
        let mut command = Command::new(&shell[0]);
        command.args(&shell[1..]).arg(name);
        command.arg(format!("exec {}", joined(words)));
        command
    }
}

/// What is wrong with the name of a host.
fn check(name: &str) -> Result<(), String> {
    let good = |letter: char| letter.is_alphanumeric() || "-._".contains(letter);
    match name {
        "" => Err("a name is empty".to_owned()),
        _ if name.starts_with('-') => Err(format!("{name} is an option")),
        _ if name.contains('@') => Err(format!(
            "users are the remote shell's to know: {name} says one (~/.ssh/config may, or --launcher \"ssh -l USER\")"
        )),
        _ if name.contains(':') => Err(format!(
            "{name} says slots or an address of IPv6, and each host has one rank"
        )),
        _ if !name.chars().all(good) => Err(format!("{name} is no name of one host")),
        _ => Ok(()),
    }
}

/// Whether this is that host: as for `rmpiexec`, which needs no remote shell then.
fn is_here(name: &str) -> bool {
    let own = fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    ["localhost", "127.0.0.1", own.trim()].contains(&name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(names: &str) -> String {
        Hosts::parse(names, None).unwrap_err().to_string()
    }

    fn words(command: &Command) -> Vec<String> {
        std::iter::once(command.get_program())
            .chain(command.get_args())
            .map(|word| word.to_string_lossy().into_owned())
            .collect()
    }

    #[test]
    fn two_names_are_two_hosts() {
        let hosts = Hosts::parse("n1.lab,10.0.0.2", None).unwrap();
        assert_eq!(hosts.names(), &["n1.lab".to_owned(), "10.0.0.2".to_owned()]);
        for (names, why) in [
            ("n1", "these are 1 hosts"),
            ("n1,n2,n3", "these are 3 hosts"),
            ("n1,n1", "this is one host"),
            ("n1,", "a name is empty"),
            ("n1,n2:4", "n2:4 says slots"),
            ("me@n1,n2", "users are the remote shell's"),
            ("n[1-2],n3", "n[1-2] is no name of one host"),
            ("-x,n2", "-x is an option"),
        ] {
            let error = refused(names);
            assert!(
                error.contains(why) && error.contains("--host n1,n2"),
                "{error}"
            );
        }
    }

    #[test]
    fn a_line_that_is_no_shell_is_refused() {
        for (line, why) in [
            ("", "it is empty"),
            ("ssh 'a", "a ' is not closed"),
            ("ssh \\", "it ends with a \\"),
        ] {
            let error = Hosts::parse("n1,n2", Some(line)).unwrap_err().to_string();
            assert_eq!(error, format!("--launcher: {why}"));
        }
    }

    #[test]
    fn the_remote_shell_gets_host_and_one_word() {
        let there = ["/opt/my tools/prog".to_owned(), "8".to_owned()];
        let hosts = Hosts::parse("n1,n2", Some("ssh -i 'a key'")).unwrap();
        assert_eq!(
            words(&hosts.command(1, &there)),
            ["ssh", "-i", "a key", "n2", "exec '/opt/my tools/prog' 8"]
        );
        let plain = Hosts::parse("n1,n2", None).unwrap();
        let plain = words(&plain.command(0, &there));
        assert_eq!(plain[0], "ssh");
        assert!(plain.contains(&"BatchMode=yes".to_owned()), "{plain:?}");
        assert_eq!(plain[plain.len() - 2], "n1");
    }

    #[test]
    fn this_machine_needs_no_remote_shell() {
        let hosts = Hosts::parse("localhost,n2", Some("rsh")).unwrap();
        let there = ["prog".to_owned(), "a b".to_owned()];
        assert_eq!(words(&hosts.command(0, &there)), ["prog", "a b"]);
        assert_eq!(
            words(&hosts.command(1, &there)),
            ["rsh", "n2", "exec prog 'a b'"]
        );
    }

    #[test]
    fn the_script_does_what_the_line_says() {
        let hosts = Hosts::parse("n1,n2", Some("ssh -i 'a key'")).unwrap();
        assert_eq!(
            hosts.script().unwrap(),
            "#!/bin/sh\nexec ssh -i 'a key' \"$@\"\n"
        );
        assert_eq!(Hosts::parse("n1,n2", None).unwrap().script(), None);
    }
}
