// SPDX-License-Identifier: MIT OR Apache-2.0
//! Finds the program that a word of the command line names, before anything is started.

use nix::unistd::AccessFlags;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Why no program can be started: a message for the user and the exit code that shells use for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct NoProgram {
    pub(crate) message: String,
    pub(crate) code: u8,
}

/// The file that `program` names for a rank that starts in `folder` with `search` as its `PATH`.
pub(crate) fn find(program: &OsStr, folder: &Path, search: &OsStr) -> Result<PathBuf, NoProgram> {
    if program.is_empty() {
        return Err(no("the program's name is empty".to_owned(), 127));
    }
    if program.as_bytes().contains(&b'/') {
        let path = inside(folder, Path::new(program));
        return usable(&path, &program.display().to_string()).map(|()| path);
    }
    let candidates: Vec<PathBuf> = std::env::split_paths(search)
        .map(|part| inside(&folder.join(part), Path::new(program)))
        // As in a shell, a folder does not match.
        .filter(|path| !path.is_dir())
        .collect();
    let mut first_problem = None;
    for path in &candidates {
        match usable(path, &path.display().to_string()) {
            Ok(()) => return Ok(path.clone()),
            Err(problem) if problem.code == 126 => first_problem = first_problem.or(Some(problem)),
            Err(_) => (),
        }
    }
    Err(first_problem.unwrap_or_else(|| not_in_path(program, folder, search)))
}

fn not_in_path(program: &OsStr, folder: &Path, search: &OsStr) -> NoProgram {
    let name = program.display();
    let here = inside(folder, Path::new(program));
    let message = match usable(&here, &format!("./{name}")) {
        Ok(()) => format!("no program {name} in PATH, but one in this folder: type ./{name}"),
        Err(problem) if here.is_file() => format!("no program {name} in PATH; {}", problem.message),
        Err(_) if here.is_dir() => {
            format!("no program {name} in PATH; {} is a folder", here.display())
        }
        Err(_) => format!("no program {name} in PATH (looked in {})", search.display()),
    };
    no(message, 127)
}

/// `path` if it is absolute, otherwise `folder` joined with `path`; without `.` components.
pub(crate) fn inside(folder: &Path, path: &Path) -> PathBuf {
    folder.join(path).components().collect()
}

fn usable(path: &Path, name: &str) -> Result<(), NoProgram> {
    let data = match std::fs::metadata(path) {
        Ok(data) => data,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            let path = path.display().to_string();
            let message = if path == name {
                format!("no program {name}")
            } else {
                format!("no program {name} (looked for {path})")
            };
            return Err(no(message, 127));
        }
        Err(error) => return Err(no(format!("cannot look at {name}: {}", cause(&error)), 126)),
    };
    if data.is_dir() {
        return Err(no(format!("{name} is a folder, not a program"), 126));
    }
    let executable = nix::unistd::eaccess(path, AccessFlags::X_OK).is_ok();
    if !data.is_file() || !executable {
        return Err(no(
            format!("{name} is not executable: compile it, or type chmod +x {name}"),
            126,
        ));
    }
    Ok(())
}

/// The system's text for an error, without the number.
pub(crate) fn cause(error: &std::io::Error) -> String {
    match error.raw_os_error() {
        Some(number) => nix::errno::Errno::from_raw(number).desc().to_lowercase(),
        None => error.to_string(),
    }
}

fn no(message: String, code: u8) -> NoProgram {
    NoProgram { message, code }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    fn folder_with(name: &str, mode: u32) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(name);
        std::fs::write(&path, "#!/bin/sh\n").unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
        folder
    }

    fn find_in(folder: &Path, program: &str, search: &str) -> Result<PathBuf, NoProgram> {
        find(OsStr::new(program), folder, OsStr::new(search))
    }

    #[test]
    fn a_relative_path_starts_at_the_folder_of_the_rank() {
        let folder = folder_with("run", 0o755);
        let found = find_in(folder.path(), "./run", "/bin").unwrap();
        assert_eq!(found.as_os_str(), folder.path().join("run").as_os_str());
        let problem = find_in(folder.path(), "././ran", "/bin").unwrap_err();
        assert_eq!(problem.code, 127);
        let expected = format!(
            "no program ././ran (looked for {}/ran)",
            folder.path().display()
        );
        assert_eq!(problem.message, expected);
        let problem = find_in(folder.path(), "/no/where", "/bin").unwrap_err();
        assert_eq!(problem.message, "no program /no/where");
    }

    #[test]
    fn a_bare_name_is_searched_in_path() {
        let folder = folder_with("run", 0o755);
        let search = format!("/nowhere:{}", folder.path().display());
        assert_eq!(
            find_in(Path::new("/"), "run", &search).unwrap(),
            folder.path().join("run")
        );
        let problem = find_in(Path::new("/"), "ran", &search).unwrap_err().message;
        assert!(
            problem.contains("no program ran in PATH (looked in /nowhere:/"),
            "{problem}"
        );
    }

    #[test]
    fn a_program_in_this_folder_is_suggested() {
        let folder = folder_with("run", 0o755);
        let problem = find_in(folder.path(), "run", "/nowhere")
            .unwrap_err()
            .message;
        assert!(
            problem.ends_with("but one in this folder: type ./run"),
            "{problem}"
        );
    }

    #[test]
    fn folders_and_non_executable_files_have_distinct_errors() {
        let folder = folder_with("text", 0o644);
        let problem = find_in(folder.path(), "./text", "").unwrap_err();
        assert_eq!(problem.code, 126);
        assert!(
            problem
                .message
                .contains("./text is not executable: compile it, or type chmod")
        );
        let problem = find_in(folder.path(), "./", "").unwrap_err();
        assert!(
            problem.message.contains("is a folder"),
            "{}",
            problem.message
        );
        let problem = find_in(folder.path(), "text", &folder.path().display().to_string());
        assert_eq!(problem.unwrap_err().code, 126);
        let problem = find_in(folder.path(), "text", "/bin").unwrap_err();
        assert!(
            problem
                .message
                .starts_with("no program text in PATH; ./text is not executable"),
            "{}",
            problem.message
        );
        for name in ["sub", "."] {
            std::fs::create_dir_all(folder.path().join("sub")).unwrap();
            let search = folder.path().display().to_string();
            let problem = find_in(folder.path(), name, &search).unwrap_err();
            assert_eq!(problem.code, 127);
            assert!(
                problem.message.ends_with("is a folder"),
                "{}",
                problem.message
            );
        }
    }
}
