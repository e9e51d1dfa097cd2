// SPDX-License-Identifier: MIT OR Apache-2.0
//! Failure of a rank: its cause, the resulting exit code of the job, and the message for the user.

use std::fmt;

/// A rank that failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RankFailure {
    /// The rank.
    pub(crate) rank: u32,
    /// The process that the daemon started for it.
    pub(crate) pid: u32,
    /// `true`: the rank's process ended with an error after `MPI_Finalize`, and the front does not end the other ranks.
    /// `false`: any other failure, also of a rank that never called `MPI_Init`; by default the front then ends the
    /// other ranks.
    pub(crate) finalized: bool,
    /// The cause.
    pub(crate) how: FailureCause,
    /// Name of an MPI function that the rank called and that the library does not have; empty if there is none.
    pub(crate) missing: String,
}

/// Why a rank counts as failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum FailureCause {
    /// The program could not be started; the text has the step and the reason.
    NotStarted(String),
    /// Killed by a signal.
    Signal {
        /// Its number.
        number: i32,
        /// Whether a core file was written.
        core: bool,
    },
    /// Ended with this code, which is not 0.
    Code(i32),
    /// Ended with this code, possibly 0, after `MPI_Init` (or the initialization of PMI) and without `MPI_Finalize`.
    Unfinalized(i32),
    /// Called `MPI_Abort`.
    Abort {
        /// Exit code passed to `MPI_Abort`.
        code: i32,
        /// Message of the library, possibly empty.
        message: String,
    },
    /// The library ended the rank after an error that no error handler caught.
    Fatal {
        /// Error class.
        code: i32,
        /// Error text, which completes a sentence after "was ended by".
        message: String,
    },
    /// MPI process `pid` ended without `MPI_Finalize`, and the script that started it continues.
    Deserted {
        /// The process that had called `MPI_Init`.
        pid: u32,
    },
    /// Two running processes called `MPI_Init` as the same rank.
    Twice {
        /// The process that called `MPI_Init` last.
        pid: u32,
    },
}

impl RankFailure {
    /// The exit code of the job: 1 to 255.
    pub(crate) fn exit_code(&self) -> u8 {
        let code = match &self.how {
            FailureCause::NotStarted(_) => 127,
            FailureCause::Signal { number, .. } => 128 + number,
            FailureCause::Code(code)
            | FailureCause::Unfinalized(code)
            | FailureCause::Abort { code, .. }
            | FailureCause::Fatal { code, .. } => *code,
            FailureCause::Deserted { .. } | FailureCause::Twice { .. } => 1,
        };
        let low = u8::try_from(code & 0xff).unwrap_or(1);
        low.max(1)
    }

    /// The message for the user, one line.
    pub(crate) fn on_host<'a>(&'a self, host: &'a str) -> impl fmt::Display + 'a {
        OnHost {
            failure: self,
            host,
        }
    }
}

/// A failure together with its host, to be printed.
struct OnHost<'a> {
    failure: &'a RankFailure,
    host: &'a str,
}

impl fmt::Display for OnHost<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let RankFailure {
            rank,
            pid,
            finalized,
            how,
            missing,
        } = self.failure;
        if let FailureCause::NotStarted(why) = how {
            return write!(
                out,
                "rank {rank} on host {} could not be started: {why}",
                self.host
            );
        }
        write!(out, "rank {rank} on host {} (pid {pid}) {how}", self.host)?;
        if *finalized {
            out.write_str(" after MPI_Finalize")?;
        }
        match how {
            _ if missing.is_empty() => Ok(()),
            FailureCause::Fatal { message, .. } if message.ends_with(missing) => {
                out.write_str(", which is not there yet")
            }
            _ => write!(out, "; it had called {missing}, which is not there yet"),
        }
    }
}

impl fmt::Display for FailureCause {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotStarted(why) => write!(out, "could not be started: {why}"),
            Self::Signal { number, core } => {
                let (name, meaning) = describe_signal(*number);
                write!(out, "was killed by signal {number} ({name}: {meaning})")?;
                out.write_str(if *core { ", core dumped" } else { "" })
            }
            Self::Code(code) => write!(out, "exited with code {code}"),
            Self::Unfinalized(code) => {
                write!(
                    out,
                    "left without MPI_Finalize (exit code {code}{})",
                    describe_shell_code(*code)
                )
            }
            Self::Abort { code, message } if message.is_empty() => {
                write!(out, "called MPI_Abort with code {code}")
            }
            Self::Abort { code, message } => {
                write!(
                    out,
                    "called MPI_Abort with code {code}: {}",
                    message.trim_end()
                )
            }
            Self::Fatal { message, .. } => write!(out, "was ended by {}", message.trim_end()),
            Self::Deserted { pid } => write!(
                out,
                "runs on, but its MPI process {pid} ended without MPI_Finalize"
            ),
            Self::Twice { pid } => write!(
                out,
                "called MPI_Init in two processes at a time, the second is {pid}: start one MPI program per rank"
            ),
        }
    }
}

/// Meaning of an exit code above 128, with which a shell reports that a signal killed its program.
fn describe_shell_code(code: i32) -> String {
    let signal = nix::sys::signal::Signal::try_from(code - 128);
    signal.map_or_else(
        |_| String::new(),
        |name| format!(", as after signal {}, {name}", code - 128),
    )
}

/// Formats a count with its noun: `one` for 1, otherwise `many`.
pub(crate) fn counted(count: u32, one: &str, many: &str) -> String {
    format!("{count} {}", if count == 1 { one } else { many })
}

/// Name and meaning of a signal, for the user.
pub(crate) fn describe_signal(number: i32) -> (String, &'static str) {
    let Ok(signal) = nix::sys::signal::Signal::try_from(number) else {
        return (format!("SIGRTMIN+{}", number - 34), "a real-time signal");
    };
    use nix::sys::signal::Signal as S;
    let meaning = match signal {
        S::SIGSEGV => "it touched memory that is not its own",
        S::SIGBUS => "it touched memory that is not there",
        S::SIGFPE => "an impossible arithmetic operation",
        S::SIGILL => "an instruction that this CPU does not have",
        S::SIGABRT => "it called abort",
        S::SIGKILL => "by a user, a batch system or the kernel when memory ran out",
        S::SIGTERM => "asked to end",
        S::SIGINT => "interrupted",
        S::SIGPIPE => "it wrote to a pipe without a reader",
        S::SIGALRM => "a timer of its own, also where it could not end after MPI_Abort or an error",
        S::SIGXCPU => "its limit of CPU time",
        S::SIGXFSZ => "its limit of file size",
        S::SIGSYS => "a system call that is not allowed here",
        S::SIGTRAP => "a breakpoint without a debugger",
        _ => "sent by another process",
    };
    (signal.as_str().to_owned(), meaning)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failure(how: FailureCause) -> RankFailure {
        RankFailure {
            rank: 3,
            pid: 47,
            finalized: false,
            how,
            missing: String::new(),
        }
    }

    #[test]
    fn a_failure_keeps_the_exit_code_of_the_rank_and_is_never_zero() {
        for (how, code) in [
            (FailureCause::Code(7), 7),
            (FailureCause::Code(256), 1),
            (
                FailureCause::Signal {
                    number: 11,
                    core: false,
                },
                139,
            ),
            (
                FailureCause::Signal {
                    number: 9,
                    core: false,
                },
                137,
            ),
            (FailureCause::Unfinalized(0), 1),
            (FailureCause::Unfinalized(5), 5),
            (
                FailureCause::Abort {
                    code: 0,
                    message: String::new(),
                },
                1,
            ),
            (
                FailureCause::Abort {
                    code: 512,
                    message: String::new(),
                },
                1,
            ),
            (
                FailureCause::Abort {
                    code: -1,
                    message: String::new(),
                },
                255,
            ),
            (
                FailureCause::Fatal {
                    code: 6,
                    message: String::new(),
                },
                6,
            ),
            (FailureCause::NotStarted(String::new()), 127),
            (FailureCause::Deserted { pid: 5 }, 1),
        ] {
            assert_eq!(failure(how.clone()).exit_code(), code, "{how}");
        }
    }

    #[test]
    fn failure_text_names_rank_host_pid_and_cause() {
        let crashed = failure(FailureCause::Signal {
            number: 11,
            core: true,
        });
        assert_eq!(
            crashed.on_host("n1").to_string(),
            "rank 3 on host n1 (pid 47) was killed by signal 11 (SIGSEGV: it touched memory that is not its own), core dumped"
        );
        let aborted = failure(FailureCause::Abort {
            code: 7,
            message: "no mesh\n".into(),
        });
        assert!(
            aborted
                .on_host("n1")
                .to_string()
                .ends_with("MPI_Abort with code 7: no mesh")
        );
        let fatal = failure(FailureCause::Fatal {
            code: 6,
            message: "a fatal MPI error (MPI_ERR_RANK) in MPI_Send".into(),
        });
        assert_eq!(
            fatal.on_host("n1").to_string(),
            "rank 3 on host n1 (pid 47) was ended by a fatal MPI error (MPI_ERR_RANK) in MPI_Send"
        );
        let without = RankFailure {
            missing: "MPI_File_open".into(),
            ..failure(FailureCause::Code(4))
        };
        assert_eq!(
            without.on_host("n1").to_string(),
            "rank 3 on host n1 (pid 47) exited with code 4; it had called MPI_File_open, which is not there yet"
        );
        let ended = RankFailure {
            missing: "MPI_Win_create".into(),
            ..failure(FailureCause::Fatal {
                code: 55,
                message: "a fatal MPI error in MPI_Win_create".into(),
            })
        };
        assert_eq!(
            ended.on_host("n1").to_string(),
            "rank 3 on host n1 (pid 47) was ended by a fatal MPI error in MPI_Win_create, which is not there yet"
        );
        let late = RankFailure {
            finalized: true,
            ..failure(FailureCause::Code(4))
        };
        assert!(
            late.on_host("n1")
                .to_string()
                .ends_with("code 4 after MPI_Finalize")
        );
    }

    #[test]
    fn real_time_signals_have_names() {
        assert_eq!(describe_signal(36).0, "SIGRTMIN+2");
    }
}
