// SPDX-License-Identifier: MIT OR Apache-2.0
//! What can go wrong between a process and the server of another launcher.

/// Why something could not be asked or said.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The server has closed the connection: the launcher is gone, or ends the job.
    #[error("the launcher has closed its connection to this process")]
    Closed,
    /// The system does not let this process talk to the server.
    #[error("the launcher cannot be talked to: {0}")]
    System(String),
    /// The server says no, or something else than an answer.
    #[error("the launcher answered \"{answer}\" to \"{asked}\"")]
    Answer {
        /// The command.
        asked: String,
        /// What came.
        answer: String,
    },
    /// The server speaks a language of its own.
    #[error("the launcher sent what is no message of {version}: \"{text}\"")]
    Text {
        /// PMI-1 or PMI-2.
        version: &'static str,
        /// The beginning of it.
        text: String,
    },
    /// Where the server listens cannot be understood.
    #[error("{variable} is \"{given}\", expected {expected}")]
    Variable {
        /// The variable.
        variable: &'static str,
        /// What it is.
        given: String,
        /// What it may be.
        expected: &'static str,
    },
    /// A process does not end its lines.
    #[error("the program sent a line of {bytes} bytes or more, expected at most {most}")]
    Long {
        /// So many have come.
        bytes: usize,
        /// So many may.
        most: usize,
    },
    /// A value that servers would not give back as it is.
    #[error("a key or value has the character {0:?}, which servers do not keep")]
    Character(char),
}

impl From<rustix::io::Errno> for Error {
    fn from(error: rustix::io::Errno) -> Self {
        Self::System(std::io::Error::from(error).to_string())
    }
}
