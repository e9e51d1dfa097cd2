// SPDX-License-Identifier: MIT OR Apache-2.0
//! Builds the command line of the remote shell, and interprets its exit. Makes no system calls.

use super::fan_out::RemoteHost;
use super::protocol::RemoteShell;
use remote_shell::{SSH, joined, quoted};

/// The hidden option that makes `rmpiexec` a shepherd.
pub(crate) const OPTION: &str = "--shepherd";

impl RemoteShell {
    /// The command that starts a shepherd on a host.
    pub(crate) fn command(&self, target: &RemoteHost) -> Vec<String> {
        let mut arguments = self.to(target);
        match self.takes_arguments {
            true => arguments.extend([self.program.clone(), OPTION.to_owned()]),
            false => arguments.push(format!("exec {} {OPTION}", quoted(&self.program))),
        }
        arguments
    }

    /// The command that reaches a host, as a line for a shell, without the command to run on the host.
    pub(crate) fn line_to(&self, target: &RemoteHost) -> String {
        joined(&self.to(target))
    }

    fn to(&self, target: &RemoteHost) -> Vec<String> {
        let is_ssh = self.line.is_empty();
        let mut arguments: Vec<String> = match is_ssh {
            true => SSH.map(str::to_owned).to_vec(),
            false => self.line.clone(),
        };
        if let (true, Some(port)) = (is_ssh, target.port) {
            arguments.extend(["-p".to_owned(), port.to_string()]);
        }
        match &target.user {
            Some(user) if is_ssh => {
                arguments.extend(["-l".to_owned(), user.clone(), target.name.clone()])
            }
            Some(user) => arguments.push(format!("{user}@{}", target.name)),
            None => arguments.push(target.name.clone()),
        }
        arguments
    }

    fn name(&self) -> &str {
        self.line.first().map_or("ssh", String::as_str)
    }
}

/// How a remote shell has ended.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct ShellExit {
    /// Why the remote shell could not be started; `None` if it was started.
    pub(crate) not_started: Option<String>,
    /// The end of its standard error.
    pub(crate) stderr: String,
    /// Its exit code; `None` if it did not exit by itself.
    pub(crate) code: Option<i32>,
    /// The signal that killed it; `None` if no signal did.
    pub(crate) signal: Option<i32>,
}

/// Messages of an `ssh` client if the server rejects the connection because the server has too many connections.
const BUSY: [&str; 3] = [
    "Connection reset by peer",
    "Connection closed by remote host",
    "kex_exchange_identification",
];

impl ShellExit {
    /// Whether a retry may succeed: the server of `ssh` had too many connections.
    pub(crate) fn may_pass(&self) -> bool {
        self.code == Some(255) && BUSY.iter().any(|text| self.stderr.contains(text))
    }

    /// Why a host could not be reached; the text is printed after the host's name and a colon.
    pub(crate) fn why_no_start(&self, shell: &RemoteShell) -> String {
        let (name, program) = (shell.name(), &shell.program);
        let cannot = match shell.from.as_str() {
            "" => "cannot be reached".to_owned(),
            from => format!("cannot be reached from host {from}, which was to start it"),
        };
        if let Some(why) = &self.not_started {
            return format!("{cannot}: {name} cannot be started: {why}");
        }
        let stderr = self.stderr.trim();
        match (self.code, stderr) {
            (Some(1 | 127), stderr)
                if self.code == Some(127) || stderr.contains("ommand not found") =>
            {
                format!(
                    "there is no {program}: install rmpi there in the same folder, or name its folder with --prefix"
                )
            }
            (_, stderr) if stderr.contains("nvalid job") => format!(
                "{cannot}: {name} says: {}; where this shell is left over from a job that has ended, --rm none leaves it out",
                stderr.replace('\n', " / ")
            ),
            // This is the message of `srun`.
            (_, stderr) if stderr.contains("execve()") && stderr.contains("No such file") => {
                format!(
                    "there is no {program}: install rmpi there in the same folder, or name its folder with --prefix"
                )
            }
            (Some(126), _) => format!("cannot start {program}: {stderr}"),
            (Some(255), "") => {
                format!("cannot be reached: {name} prints nothing and ends with code 255")
            }
            (Some(code @ (2 | 64)), stderr) if stderr.contains(OPTION) => format!(
                "{program} is of another release (it ends with code {code}); name the folder of this one with --prefix"
            ),
            (_, stderr) => format!(
                "{cannot}: {name} {}{}",
                self.how(),
                if stderr.is_empty() {
                    String::new()
                } else {
                    format!(" and says: {}", stderr.replace('\n', " / "))
                }
            ),
        }
    }

    fn how(&self) -> String {
        match (self.signal, self.code) {
            (Some(signal), _) => format!("was killed by signal {signal}"),
            (None, Some(code)) => format!("ends with code {code}"),
            (None, None) => "is gone".to_owned(),
        }
    }

    /// Why a host was lost after it had been reached; the text is printed after the host's name and a colon.
    pub(crate) fn why_lost(&self) -> String {
        let is_of_step = (self.signal, self.code) == (None, None);
        let (event, source) = match is_of_step {
            true => (
                "its connection was closed".to_owned(),
                "of the step that has started it",
            ),
            false => {
                let how = self.how();
                (
                    format!("the connection of the remote shell was closed, which {how}"),
                    "it says",
                )
            }
        };
        match self.stderr.trim() {
            "" => format!("lost: {event}"),
            stderr => format!("lost: {event}; {source}: {}", stderr.replace('\n', " / ")),
        }
    }
}

/// The error for a host whose shepherd is of another release.
pub(crate) fn other_release(shell: &RemoteShell, release: &str) -> String {
    format!(
        "rmpi {release} is in {}, this is {}: install the same release, or name its folder with --prefix",
        shell.program,
        env!("CARGO_PKG_VERSION")
    )
}

/// The error for a host where the remote shell started a program that is not a shepherd.
pub(crate) fn not_a_shepherd(shell: &RemoteShell) -> String {
    format!(
        "something else than {} answers: look at what {} HOST true prints",
        shell.program,
        shell.name()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target(user: Option<&str>, port: Option<u16>) -> RemoteHost {
        RemoteHost {
            node: 1,
            name: "n1".into(),
            user: user.map(Into::into),
            port,
        }
    }

    fn shell(line: &[&str], program: &str) -> RemoteShell {
        RemoteShell {
            line: line.iter().map(|argument| (*argument).to_owned()).collect(),
            takes_arguments: false,
            program: program.into(),
            from: String::new(),
        }
    }

    #[test]
    fn the_remote_shell_gets_host_options_and_command() {
        let ssh = shell(&[], "/opt/my rmpi/bin/rmpiexec").command(&target(Some("me"), Some(2222)));
        assert_eq!(
            ssh[SSH.len()..],
            [
                "-p",
                "2222",
                "-l",
                "me",
                "n1",
                "exec '/opt/my rmpi/bin/rmpiexec' --shepherd"
            ]
        );
        let other = shell(&["rsh", "-n"], "/bin/rmpiexec").command(&target(Some("me"), Some(1)));
        assert_eq!(
            other,
            ["rsh", "-n", "me@n1", "exec /bin/rmpiexec --shepherd"]
        );
    }

    #[test]
    fn remote_shell_errors_are_reported_with_a_remedy() {
        let shell = shell(&[], "/opt/bin/rmpiexec");
        let why = |code, stderr: &str| {
            let closed = ShellExit {
                stderr: stderr.into(),
                code: Some(code),
                ..ShellExit::default()
            };
            (closed.may_pass(), closed.why_no_start(&shell))
        };
        let (again, message) = why(
            255,
            "ssh: Could not resolve hostname n9: Name or service not known\r\n",
        );
        assert!(
            !again
                && message.ends_with(
                    "says: ssh: Could not resolve hostname n9: Name or service not known"
                ),
            "{message}"
        );
        assert!(why(127, "bash: not found").1.contains("--prefix"));
        assert!(
            why(
                255,
                "kex_exchange_identification: read: Connection reset by peer"
            )
            .0
        );
        assert!(
            why(2, "error: unexpected argument '--shepherd' found")
                .1
                .contains("another release")
        );
        let closed = ShellExit {
            not_started: Some("no such file or directory".into()),
            ..ShellExit::default()
        };
        assert!(
            closed
                .why_no_start(&shell)
                .contains("ssh cannot be started: no")
        );
    }
}
