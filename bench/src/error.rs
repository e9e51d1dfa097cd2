// SPDX-License-Identifier: MIT OR Apache-2.0
//! The error of a measurement.

use std::io;

/// Why a measurement failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A system call failed.
    #[error("{what}: {source}")]
    Io {
        /// The operation that failed.
        what: String,
        /// The system's reason.
        #[source]
        source: io::Error,
    },
    /// A limit of the machine could not be measured.
    #[error("{0}")]
    Limit(String),
    /// A benchmark program failed, or its output cannot be read.
    #[error("{0}")]
    Program(String),
    /// An option or a file that the user named is wrong.
    #[error("{0}")]
    Usage(String),
}

impl Error {
    /// A system error, with the operation that failed.
    pub(crate) fn io(what: impl Into<String>, source: io::Error) -> Self {
        Self::Io {
            what: what.into(),
            source,
        }
    }
}
