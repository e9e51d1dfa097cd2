// SPDX-License-Identifier: MIT OR Apache-2.0
//! `cargo xtask`: builds, tests, installs and measures rmpi. People and CI use the same commands.
//!
//! **Knows** where things are in this repository, which system packages they need and in which order the stages of the
//! tests run. **Never** links a crate of the product: it starts programs and reads their output, so that it compiles in
//! seconds and works while the product does not.
//!
//! It has one thread, and one for each output stream of a captured program.

mod codegen;
mod demo;
mod hosts;
mod install;
mod measure;
mod process;
mod setup;
mod softroce;
mod stage;
mod steps;
mod test;
mod tidy;
mod tree;

use std::process::ExitCode;

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match dispatch(&args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("xtask: {why}");
            ExitCode::FAILURE
        }
    }
}

fn dispatch(args: &[String]) -> Result<(), String> {
    let (name, rest) = match args {
        [] => return Err(format!("no stage was given\n{}", stage::overview())),
        [first, rest @ ..] => (first.as_str(), rest),
    };
    if ["--help", "-h", "help"].contains(&name) {
        let text = match rest {
            [] => stage::overview(),
            [topic, ..] => stage::find(topic)?.help(),
        };
        println!("{text}");
        return Ok(());
    }
    let stage = stage::find(name)?;
    if rest
        .first()
        .is_some_and(|arg| arg == "--help" || arg == "-h")
    {
        println!("{}", stage.help());
        return Ok(());
    }
    match stage.name {
        "setup" => setup::run(rest),
        "demo" => demo::run(rest),
        "test" => test::run(rest),
        "install" => install::run(rest),
        "codegen" => codegen::run(rest),
        "tidy" => tidy::run(rest),
        "softroce" => softroce::run(rest),
        "hosts" => hosts::run(rest),
        "bench" => measure::bench(rest),
        "compare" => measure::compare(rest),
        "peers" => measure::peers(rest),
        other => Err(format!("the stage `{other}` is not implemented")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_stage_suggests_the_nearest() {
        let error = dispatch(&["instal".into()]).unwrap_err();
        assert!(error.contains("did you mean `install`?"), "{error}");
    }

    #[test]
    fn no_stage_shows_the_overview() {
        assert!(dispatch(&[]).unwrap_err().contains("cargo xtask STAGE"));
    }

    #[test]
    fn help_is_no_error() {
        assert_eq!(dispatch(&["help".into(), "test".into()]), Ok(()));
        assert_eq!(dispatch(&["demo".into(), "--help".into()]), Ok(()));
    }
}
