// SPDX-License-Identifier: MIT OR Apache-2.0
//! Writes the files of `--output`: one file per rank and stream.

use crate::link::OutputStream;
use crate::program::cause;
use nix::errno::Errno;
use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::io::{Error, Write};
use std::path::{Path, PathBuf};

/// Maximum number of files that are open at a time. Other files are closed, and reopened when needed, so this process
/// stays below its limit of open files.
const MOST_OPEN: usize = 128;

/// The output files of a job.
#[derive(Debug)]
pub(crate) struct Files {
    folder: PathBuf,
    digits: usize,
    open: HashMap<(u32, OutputStream), File>,
}

impl Files {
    /// Creates the folder, and an empty file for each rank and stream. So errors are found before the ranks are
    /// started, and no output of an earlier job is left.
    pub(crate) fn create(folder: &Path, ranks: u32) -> Result<Self, String> {
        let failed = |path: &Path, error: &Error| {
            format!(
                "--output {}: cannot make {}: {}",
                folder.display(),
                path.display(),
                cause(error)
            )
        };
        std::fs::create_dir_all(folder).map_err(|error| failed(folder, &error))?;
        // The path is made absolute, since the current folder may change.
        let folder = std::path::absolute(folder).map_err(|error| failed(folder, &error))?;
        let files = Self {
            folder,
            digits: ranks.saturating_sub(1).to_string().len(),
            open: HashMap::new(),
        };
        for rank in 0..ranks {
            for stream in [OutputStream::Out, OutputStream::Err] {
                let path = files.path(rank, stream);
                File::create(&path).map_err(|error| failed(&path, &error))?;
            }
        }
        Ok(files)
    }

    /// The path of a rank's file. Rank numbers are padded with zeros to equal length, so that the names sort in rank
    /// order.
    pub(crate) fn path(&self, rank: u32, stream: OutputStream) -> PathBuf {
        let end = match stream {
            OutputStream::Out => "out",
            OutputStream::Err => "err",
        };
        let digits = self.digits;
        self.folder.join(format!("rank.{rank:0digits$}.{end}"))
    }

    /// Appends to a rank's file.
    pub(crate) fn write(
        &mut self,
        rank: u32,
        stream: OutputStream,
        bytes: &[u8],
    ) -> Result<(), Errno> {
        let known = (rank, stream);
        let result = match self.open.get_mut(&known) {
            Some(file) => file.write_all(bytes),
            None => self.reopen(known).and_then(|file| file.write_all(bytes)),
        };
        result.map_err(|error| error.raw_os_error().map_or(Errno::EIO, Errno::from_raw))
    }

    fn reopen(&mut self, (rank, stream): (u32, OutputStream)) -> Result<&mut File, Error> {
        let file = OpenOptions::new()
            .append(true)
            .open(self.path(rank, stream))?;
        if self.open.len() >= MOST_OPEN {
            self.open.clear();
        }
        Ok(self.open.entry((rank, stream)).or_insert(file))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_output_files_than_may_be_open_lose_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let inner = folder.path().join("a/b");
        let mut files = Files::create(&inner, 200).unwrap();
        for turn in ["one\n", "two\n"] {
            for rank in 0..200 {
                files
                    .write(rank, OutputStream::Out, turn.as_bytes())
                    .unwrap();
            }
        }
        assert!(files.open.len() <= MOST_OPEN);
        for rank in 0..200 {
            let text = std::fs::read_to_string(files.path(rank, OutputStream::Out)).unwrap();
            assert_eq!(text, "one\ntwo\n");
        }
        assert!(inner.join("rank.007.err").exists());
    }

    #[test]
    fn output_files_of_an_earlier_job_are_truncated() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("rank.0.out"), "old").unwrap();
        let files = Files::create(folder.path(), 1).unwrap();
        assert_eq!(
            std::fs::read(files.path(0, OutputStream::Out)).unwrap(),
            b""
        );
    }

    #[test]
    fn an_output_folder_that_cannot_be_made_is_an_error() {
        let error = Files::create(Path::new("/dev/null/x"), 1).unwrap_err();
        assert_eq!(
            error,
            "--output /dev/null/x: cannot make /dev/null/x: not a directory"
        );
    }
}
