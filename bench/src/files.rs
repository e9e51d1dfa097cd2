// SPDX-License-Identifier: MIT OR Apache-2.0
//! Standard output, and files that the user wants written. They are opened before anything is
//! measured, so that a missing folder is reported at once and not after an hour.

use std::fs::File;
use std::io::{ErrorKind, Write as _};
use std::path::{Path, PathBuf};

use crate::Error;

/// Whether output was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PrintStatus {
    /// It was written.
    Well,
    /// The reader has closed the pipe.
    Unread,
}

/// Prints on standard output.
///
/// # Errors
/// When it cannot be written for another reason than a closed pipe.
pub fn print(text: &str) -> Result<PrintStatus, Error> {
    let mut out = std::io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Ok(()) => Ok(PrintStatus::Well),
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(PrintStatus::Unread),
        Err(error) => Err(Error::io("cannot write to standard output", error)),
    }
}

/// The name of a file for a plot, as an option gives it.
///
/// # Errors
/// When its extension is that of another format.
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

/// Checks that a file can be written, and changes nothing.
///
/// # Errors
/// When it cannot, with the option that named it.
pub fn try_writable(option: &str, file: &Path) -> Result<(), Error> {
    let existed = file.exists();
    match File::options().create(true).append(true).open(file) {
        Ok(_) if existed => Ok(()),
        // This check created it, and it is empty.
        Ok(_) => std::fs::remove_file(file).map_err(|e| refused(option, file, &e)),
        Err(error) => Err(refused(option, file, &error)),
    }
}

/// Writes a file that an option named.
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
    fn what_can_be_written_is_left_as_it_was() {
        let folder = tempfile::tempdir().unwrap();
        let (old, new) = (folder.path().join("old"), folder.path().join("new"));
        std::fs::write(&old, "text").unwrap();
        try_writable("--plot", &old).unwrap();
        try_writable("--plot", &new).unwrap();
        assert_eq!(std::fs::read_to_string(&old).unwrap(), "text");
        assert!(!new.exists());
    }

    #[test]
    fn a_plot_that_promises_another_format_is_refused() {
        assert_eq!(plot_name("a/b.SVG"), Ok(PathBuf::from("a/b.SVG")));
        assert_eq!(plot_name("/dev/stdout"), Ok(PathBuf::from("/dev/stdout")));
        let error = plot_name("a/b.png").unwrap_err();
        assert_eq!(error, "plots are SVG, not png: name the file a/b.svg");
    }

    #[test]
    fn what_cannot_be_written_is_told_with_the_option() {
        for file in ["/nonexistent/plot.svg", "/proc"] {
            let error = try_writable("--plot", Path::new(file)).unwrap_err();
            let error = error.to_string();
            assert!(error.contains(file) && error.contains("--plot"), "{error}");
        }
    }
}
