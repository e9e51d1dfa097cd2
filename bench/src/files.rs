// SPDX-License-Identifier: MIT OR Apache-2.0
//! Standard output, and the files that options name. A file is opened once before the measurement ([`try_writable`]),
//! so that a missing folder is reported before the measurement and not after an hour.

use std::fs::File;
use std::io::{ErrorKind, Write as _};
use std::path::{Path, PathBuf};

use crate::Error;

/// Whether output was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PrintStatus {
    /// It was written.
    Written,
    /// The reader has closed the pipe.
    ReaderGone,
}

/// Prints `text` on standard output.
///
/// # Errors
/// When it cannot be written; a closed pipe is not an error.
pub fn print(text: &str) -> Result<PrintStatus, Error> {
    let mut out = std::io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Ok(()) => Ok(PrintStatus::Written),
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(PrintStatus::ReaderGone),
        Err(error) => Err(Error::io("cannot write to standard output", error)),
    }
}

/// Reads the name of a file for a plot, as an option gives it.
///
/// # Errors
/// When it has another extension than `svg`.
pub fn plot_name(text: &str) -> Result<PathBuf, String> {
    let file = PathBuf::from(text);
    match file
        .extension()
        .map(|extension| extension.to_string_lossy().into_owned())
    {
        Some(other) if !other.eq_ignore_ascii_case("svg") => Err(format!(
            "plots are SVG, not {other}: name the file {}",
            file.with_extension("svg").display()
        )),
        _ => Ok(file),
    }
}

/// Checks that a file can be written. An existing file is not changed; a file that the check creates is removed.
///
/// # Errors
/// When it cannot; the error names the option.
pub fn try_writable(option: &str, file: &Path) -> Result<(), Error> {
    let existed = file.exists();
    match File::options().create(true).append(true).open(file) {
        Ok(_) if existed => Ok(()),
        // This check has created the file, which is empty.
        Ok(_) => std::fs::remove_file(file).map_err(|e| refused(option, file, &e)),
        Err(error) => Err(refused(option, file, &error)),
    }
}

/// Writes `text` to the file that `option` named.
///
/// # Errors
/// When it cannot be written.
pub fn write(option: &str, file: &Path, text: &str) -> Result<(), Error> {
    std::fs::write(file, text).map_err(|e| refused(option, file, &e))
}

fn refused(option: &str, file: &Path, error: &std::io::Error) -> Error {
    Error::Usage(format!(
        "cannot write {} ({error}); {option} needs a file in a folder that exists and that you may write to",
        file.display()
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_writable_file_is_left_unchanged() {
        let folder = tempfile::tempdir().unwrap();
        let (old, new) = (folder.path().join("old"), folder.path().join("new"));
        std::fs::write(&old, "text").unwrap();
        try_writable("--plot", &old).unwrap();
        try_writable("--plot", &new).unwrap();
        assert_eq!(std::fs::read_to_string(&old).unwrap(), "text");
        assert!(!new.exists());
    }

    #[test]
    fn a_plot_with_another_extension_is_refused() {
        assert_eq!(plot_name("a/b.SVG"), Ok(PathBuf::from("a/b.SVG")));
        assert_eq!(plot_name("/dev/stdout"), Ok(PathBuf::from("/dev/stdout")));
        let error = plot_name("a/b.png").unwrap_err();
        assert_eq!(error, "plots are SVG, not png: name the file a/b.svg");
    }

    #[test]
    fn the_error_for_an_unwritable_file_names_the_option() {
        for file in ["/nonexistent/plot.svg", "/proc"] {
            let error = try_writable("--plot", Path::new(file)).unwrap_err();
            let error = error.to_string();
            assert!(error.contains(file) && error.contains("--plot"), "{error}");
        }
    }
}
