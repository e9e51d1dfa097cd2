// SPDX-License-Identifier: MIT OR Apache-2.0
//! Compares the man page and the completions of a program with its command line. `UPDATE_SHARE=1` regenerates them.

use clap::Command;
use clap_complete::{Shell, generate};
use std::path::PathBuf;

const LICENCE: &str = "SPDX-License-Identifier: MIT OR Apache-2.0";

/// The files of one program.
pub(crate) struct Pages {
    pub(crate) program: &'static str,
    pub(crate) package: &'static str,
    /// The folder of the files.
    pub(crate) folder: PathBuf,
    pub(crate) definition: fn() -> Command,
}

impl Pages {
    pub(crate) fn assert_the_man_page_is_fresh(&self) {
        let mut page = Vec::new();
        clap_mangen::Man::new((self.definition)())
            .render(&mut page)
            .unwrap();
        let page = String::from_utf8(page).unwrap();
        // The examples are a table, whose line breaks must be kept.
        let page = page
            .replace(".SH EXTRA\n", ".SH EXAMPLES AND EXIT CODE\n.nf\n")
            .replace(".SH VERSION\n", ".fi\n.SH VERSION\n");
        self.check("1", &format!(".\\\" {LICENCE}\n{page}"));
    }

    pub(crate) fn assert_the_completions_are_fresh(&self) {
        for (extension, shell) in [("bash", Shell::Bash), ("fish", Shell::Fish)] {
            self.check(
                extension,
                &format!("# {LICENCE}\n{}", self.completion(shell)),
            );
        }
        let text = self.completion(Shell::Zsh);
        // The first line of the file declares the command for which it has completions, and must stay the first line.
        let (first, rest) = text.split_once('\n').unwrap();
        assert_eq!(first, format!("#compdef {}", self.program));
        self.check("zsh", &format!("{first}\n# {LICENCE}\n{rest}"));
    }

    /// Asserts that every file contains these options, and that every completion file contains these words.
    pub(crate) fn assert_all_have(&self, options: &[&str], expected: &[&str]) {
        for extension in ["1", "bash", "zsh", "fish"] {
            let text = std::fs::read_to_string(self.path(extension)).unwrap();
            let text = text.replace('\\', "");
            for option in options {
                let spelt = match extension {
                    "fish" => format!("-l {option}"),
                    _ => format!("--{option}"),
                };
                assert!(text.contains(&spelt), "{extension} lacks {spelt}");
            }
            for phrase in expected {
                let has = extension == "1" || text.contains(phrase);
                assert!(has, "{extension} lacks {phrase}");
            }
        }
    }

    /// The file with this ending.
    pub(crate) fn path(&self, extension: &str) -> PathBuf {
        self.folder.join(format!("{}.{extension}", self.program))
    }

    fn completion(&self, shell: Shell) -> String {
        let mut text = Vec::new();
        generate(shell, &mut (self.definition)(), self.program, &mut text);
        String::from_utf8(text).unwrap()
    }

    fn check(&self, extension: &str, expected: &str) {
        let lines = expected.lines().map(str::trim_end);
        let expected = lines.collect::<Vec<_>>().join("\n") + "\n";
        let path = self.path(extension);
        if std::env::var_os("UPDATE_SHARE").is_some() {
            std::fs::write(&path, &expected).unwrap();
        }
        let there = std::fs::read_to_string(&path).unwrap_or_default();
        assert!(
            there == expected,
            "{} is out of date; type: UPDATE_SHARE=1 cargo test -p {} --test share",
            path.display(),
            self.package
        );
    }
}
