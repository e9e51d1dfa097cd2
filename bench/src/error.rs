// SPDX-License-Identifier: MIT OR Apache-2.0
//! The error of a measurement.

use std::io;

/// Why a measurement failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The system refused something.
    #[error("{what}: {source}")]
    Io {
        /// What was tried.
        what: String,
        /// The system's reason.
        #[source]
        source: io::Error,
    },
    /// A limit of the machine could not be measured.
    #[error("{0}")]
    Limit(String),
    /// A benchmark program failed, or printed what cannot be read.
    #[error("{0}")]
    Program(String),
    /// An option or a file that the user named is wrong.
    #[error("{0}")]
    Usage(String),
}

impl Error {
    /// An error of the system with what was tried.
    pub(crate) fn io(what: impl Into<String>, source: io::Error) -> Self {
        Self::Io {
            what: what.into(),
            source,
        }
    }
}
