// SPDX-License-Identifier: MIT OR Apache-2.0
//! Errors of PMI connections, on the client side and on the server side.

/// Why a request failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The server has closed the connection: the launcher is gone, or ends the job.
    #[error("the launcher has closed its connection to this process")]
    Closed,
    /// The connection could not be made, or a system call on it failed.
    #[error("the launcher cannot be talked to: {0}")]
    System(String),
    /// The server replied with an error or an unexpected message.
    #[error("the launcher answered \"{answer}\" to \"{request}\"")]
    Answer {
        /// The command.
        request: String,
        /// The reply.
        answer: String,
    },
    /// The server sent bytes that are not a message.
    #[error("the launcher sent what is no message of {version}: \"{text}\"")]
    Text {
        /// `PMI-1` or `PMI-2`.
        version: &'static str,
        /// The beginning of these bytes.
        text: String,
    },
    /// The address of the server is invalid.
    #[error("{variable} is \"{given}\", expected {expected}")]
    Variable {
        /// The variable.
        variable: &'static str,
        /// Its value.
        given: String,
        /// Valid values.
        expected: &'static str,
    },
    /// A process sent a line that does not end.
    #[error("the program sent a line of {bytes} bytes or more, expected at most {most}")]
    Long {
        /// Bytes received.
        bytes: usize,
        /// The limit in bytes.
        most: usize,
    },
    /// A key or value has this character, which servers would not preserve.
    #[error("a key or value has the character {0:?}, which servers do not keep")]
    Character(char),
}

impl From<rustix::io::Errno> for Error {
    fn from(error: rustix::io::Errno) -> Self {
        Self::System(std::io::Error::from(error).to_string())
    }
}
