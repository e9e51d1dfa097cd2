// SPDX-License-Identifier: MIT OR Apache-2.0
//! The hosts of a measurement, and the remote shell that starts processes on them.

use std::fs;
use std::process::Command;

use remote_shell::word::{self, Count};
use remote_shell::{SSH, joined, split};

use crate::Error;

/// At least two hosts, with ranks on each.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BenchHosts {
    list: Vec<BenchHost>,
    /// The command line of `--launcher`; `None`: `ssh`.
    launcher: Option<String>,
}

/// One host of a [`BenchHosts`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BenchHost {
    /// Its name or address; an IPv6 address has no brackets.
    pub name: String,
    /// The login name, if it differs from the caller's.
    pub user: Option<String>,
    /// The number of ranks on it in measurements with all ranks.
    pub ranks: u32,
}

impl BenchHost {
    /// The host as a user writes it, without its number of ranks.
    #[must_use]
    pub fn label(&self) -> String {
        match &self.user {
            Some(user) => format!("{user}@{}", self.name),
            None => self.name.clone(),
        }
    }

    /// The host with a number of ranks, as `rmpiexec` and Open MPI expect it.
    #[must_use]
    pub fn with_ranks(&self, ranks: u32) -> String {
        let name = match self.name.contains(':') {
            true => format!("[{}]", self.name),
            false => self.name.clone(),
        };
        let user = self.user.iter().map(|user| format!("{user}@"));
        user.chain([format!("{name}:{ranks}")]).collect()
    }
}

impl BenchHosts {
    /// Reads hosts as `rmpiexec --host` does (`n1:2,me@n2:2,n[3-4]`), and the remote shell that `--launcher` names. If
    /// a host is named twice, its ranks are added.
    ///
    /// # Errors
    /// When there are fewer than two hosts, a host cannot be read, a host has two users or no fixed number of ranks
    /// (`*`), or the launcher's command line cannot be split into words.
    pub fn parse(names: &str, launcher: Option<&str>) -> Result<Self, Error> {
        let wrong = |why: String| Error::Usage(format!("--host {names}: {why}"));
        let mut list: Vec<BenchHost> = Vec::new();
        for (_, text) in word::split(names) {
            let read = word::read(text).map_err(|fault| wrong(fault.message))?;
            let ranks = match read.count {
                Count::Bare => 1,
                Count::Number(ranks) => ranks,
                Count::All => {
                    return Err(wrong(format!(
                        "the number of ranks of {text} is missing: all MPIs get the same number"
                    )));
                }
            };
            for name in read.names {
                let user = read.user.clone();
                let Some(host) = list.iter_mut().find(|host| host.name == name) else {
                    list.push(BenchHost { name, user, ranks });
                    continue;
                };
                if host.user.is_some() && user.is_some() && host.user != user {
                    return Err(wrong(format!("{name} is named with two users")));
                }
                host.ranks = host.ranks.saturating_add(ranks);
                host.user = host.user.take().or(user);
            }
        }
        if list.len() < 2 {
            return Err(wrong(
                "this is one host; two or more as in --host n1,n2 are needed".to_owned(),
            ));
        }
        if let Some(line) = launcher {
            split(line).map_err(|why| Error::Usage(format!("--launcher: {why}")))?;
        }
        Ok(Self {
            list,
            launcher: launcher.map(str::to_owned),
        })
    }

    /// All hosts.
    #[must_use]
    pub fn list(&self) -> &[BenchHost] {
        &self.list
    }

    /// The first two hosts with one rank each, for point-to-point messages.
    #[must_use]
    pub fn pair(&self) -> Self {
        let one_each = self.list.iter().take(2).map(|host| BenchHost {
            ranks: 1,
            ..host.clone()
        });
        Self {
            list: one_each.collect(),
            launcher: self.launcher.clone(),
        }
    }

    /// The number of ranks on all hosts.
    #[must_use]
    pub fn ranks(&self) -> u32 {
        let ranks = self.list.iter().map(|host| host.ranks);
        ranks.fold(0, u32::saturating_add)
    }

    /// The number of ranks per host, if it is the same on all hosts.
    #[must_use]
    pub fn ranks_each(&self) -> Option<u32> {
        let first = self.list.first()?.ranks;
        self.list
            .iter()
            .all(|host| host.ranks == first)
            .then_some(first)
    }

    /// The hosts' names as a list in prose.
    #[must_use]
    pub fn words(&self) -> String {
        words_of(&self.labels())
    }

    /// The hosts' names.
    #[must_use]
    pub fn labels(&self) -> Vec<String> {
        self.list.iter().map(BenchHost::label).collect()
    }

    /// The command line of `--launcher`; `None` if it is not given.
    #[must_use]
    pub fn launcher(&self) -> Option<&str> {
        self.launcher.as_deref()
    }

    /// The text of a script with the call syntax of `ssh`, for MPIs whose remote shell must be a single word. `None` if
    /// `--launcher` is not given.
    #[must_use]
    pub fn script(&self) -> Option<String> {
        let line = self.launcher.as_deref()?;
        let words = joined(&split(line).ok()?);
        Some(format!("#!/bin/sh\nexec {words} \"$@\"\n"))
    }

    /// The command that runs `words` (a program and its arguments) on the host with index `host` in
    /// [`BenchHosts::list`].
    #[must_use]
    pub fn command(&self, host: usize, words: &[String]) -> Command {
        let host = &self.list[host];
        if is_here(host) {
            let mut command = Command::new(&words[0]);
            command.args(&words[1..]);
            return command;
        }
        let shell = self.launcher.as_deref().map(split);
        // The arguments are those that rmpiexec gives to the remote shell.
        let (shell, to) = match (shell, &host.user) {
            (Some(Ok(words)), _) => (words, vec![host.label()]),
            (_, Some(user)) => {
                let to = vec!["-l".to_owned(), user.clone(), host.name.clone()];
                (SSH.map(str::to_owned).to_vec(), to)
            }
            (_, None) => (SSH.map(str::to_owned).to_vec(), vec![host.name.clone()]),
        };
        let mut command = Command::new(&shell[0]);
        command.args(&shell[1..]).args(to);
        command.arg(format!("exec {}", joined(words)));
        command
    }
}

/// Names of hosts as a list in prose.
#[must_use]
pub fn words_of(names: &[String]) -> String {
    match names {
        [first @ .., _, _, _] if first.len() >= MOST_NAMED => {
            let first = &first[..MOST_NAMED];
            format!("{} and {} more", first.join(", "), names.len() - MOST_NAMED)
        }
        [first @ .., last] if !first.is_empty() => format!("{} and {last}", first.join(", ")),
        names => names.concat(),
    }
}

/// Maximum number of hosts that a list names; of the others it states only the number.
const MOST_NAMED: usize = 4;

/// Whether `host` is this machine, by the rule of `rmpiexec`; then no remote shell is needed.
fn is_here(host: &BenchHost) -> bool {
    let own = fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    host.user.is_none() && ["localhost", "127.0.0.1", "::1", own.trim()].contains(&&*host.name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(names: &str) -> String {
        BenchHosts::parse(names, None).unwrap_err().to_string()
    }

    fn words(command: &Command) -> Vec<String> {
        std::iter::once(command.get_program())
            .chain(command.get_args())
            .map(|word| word.to_string_lossy().into_owned())
            .collect()
    }

    #[test]
    fn hosts_are_named_as_for_rmpiexec() {
        let read = |names: &str| -> Vec<String> {
            let hosts = BenchHosts::parse(names, None).unwrap();
            let list = hosts.list().iter();
            list.map(|host| host.with_ranks(host.ranks)).collect()
        };
        assert_eq!(read("n1.lab,10.0.0.2"), ["n1.lab:1", "10.0.0.2:1"]);
        assert_eq!(
            read("n1,me@n1,n[2-3]:2,[fe80::1]:3,n2"),
            ["me@n1:2", "n2:3", "n3:2", "[fe80::1]:3"]
        );
        for (names, why) in [
            ("n1", "this is one host; two or more as in --host n1,n2"),
            ("n1,n1", "this is one host"),
            ("n1,me@n1", "this is one host"),
            ("me@n1,you@n1,n2", "n1 is named with two users"),
            ("n1,", "expected a host's name"),
            ("n1,n2:*", "the number of ranks of n2:* is missing"),
            ("n1,n2:x", "`x` is no number of slots"),
            ("-x,n2", "does not begin with -"),
        ] {
            let error = refusal(names);
            assert!(error.contains(why), "{names}: {error}");
        }
    }

    #[test]
    fn pairs_are_of_the_first_two_hosts_and_collectives_of_all() {
        let hosts = BenchHosts::parse("a:2,me@b:2,c:2", Some("rsh")).unwrap();
        assert_eq!((hosts.ranks(), hosts.ranks_each()), (6, Some(2)));
        assert_eq!(hosts.words(), "a, me@b and c");
        let pair = hosts.pair();
        assert_eq!(pair, BenchHosts::parse("a,me@b", Some("rsh")).unwrap());
        assert_eq!((pair.ranks(), pair.words().as_str()), (2, "a and me@b"));
        let uneven = BenchHosts::parse("a:2,b", None).unwrap();
        assert_eq!((uneven.ranks(), uneven.ranks_each()), (3, None));
    }

    #[test]
    fn a_launcher_line_that_cannot_be_split_is_refused() {
        for (line, why) in [
            ("", "it is empty"),
            ("ssh 'a", "a ' is not closed"),
            ("ssh \\", "it ends with a \\"),
        ] {
            let error = BenchHosts::parse("n1,n2", Some(line))
                .unwrap_err()
                .to_string();
            assert_eq!(error, format!("--launcher: {why}"));
        }
    }

    #[test]
    fn the_remote_shell_gets_host_and_one_word() {
        let there = ["/opt/my tools/prog".to_owned(), "8".to_owned()];
        let hosts = BenchHosts::parse("n1,n2", Some("ssh -i 'a key'")).unwrap();
        assert_eq!(
            words(&hosts.command(1, &there)),
            ["ssh", "-i", "a key", "n2", "exec '/opt/my tools/prog' 8"]
        );
        let plain = BenchHosts::parse("n1,n2", None).unwrap();
        let plain = words(&plain.command(0, &there));
        assert_eq!(plain[0], "ssh");
        assert!(plain.contains(&"BatchMode=yes".to_owned()), "{plain:?}");
        assert_eq!(plain[plain.len() - 2], "n1");
        let users = |launcher| {
            let hosts = BenchHosts::parse("me@n1,n2", launcher).unwrap();
            let words = words(&hosts.command(0, &there));
            words[..words.len() - 1].join(" ")
        };
        assert!(users(None).ends_with(" -l me n1"));
        assert_eq!(users(Some("rsh")), "rsh me@n1");
    }

    #[test]
    fn this_machine_needs_no_remote_shell() {
        let hosts = BenchHosts::parse("localhost,n2", Some("rsh")).unwrap();
        let there = ["prog".to_owned(), "a b".to_owned()];
        assert_eq!(words(&hosts.command(0, &there)), ["prog", "a b"]);
        assert_eq!(
            words(&hosts.command(1, &there)),
            ["rsh", "n2", "exec prog 'a b'"]
        );
    }

    #[test]
    fn the_script_runs_the_launcher_line() {
        let hosts = BenchHosts::parse("n1,n2", Some("ssh -i 'a key'")).unwrap();
        assert_eq!(
            hosts.script().unwrap(),
            "#!/bin/sh\nexec ssh -i 'a key' \"$@\"\n"
        );
        assert_eq!(BenchHosts::parse("n1,n2", None).unwrap().script(), None);
    }
}
