// SPDX-License-Identifier: MIT OR Apache-2.0
//! Checks the lengths of files and functions, and the nesting of functions.

use super::scan::{SourceToken, tokens};
use super::{Problem, SourceFile};

const FILE_LINES_MAX: usize = 900;
const FILE_LINES_WARN: usize = 600;
const OVERVIEW_LINES_MAX: usize = 400;
const OVERVIEW_COLUMNS_MAX: usize = 120;
const FUNCTION_LINES_MAX: usize = 60;
const NESTING_MAX: usize = 4;

/// A file is an error with more than 900 lines and a warning with more than 600. Its tests do not count.
pub(crate) fn file_length(source: &SourceFile) -> Option<Problem> {
    let kinds = [".rs", ".c", ".h", ".cpp", ".sh", ".py"];
    if !kinds.iter().any(|kind| source.path.ends_with(kind)) {
        return None;
    }
    let lines = source.lines_before_tests();
    let mut problem = source.problem(
        0,
        format!("{lines} lines, at most {FILE_LINES_MAX} are good"),
    );
    problem.warning = lines <= FILE_LINES_MAX;
    (lines > FILE_LINES_WARN).then_some(problem)
}

/// `ARCHITECTURE.md` may have at most 400 lines of at most 120 columns.
pub(crate) fn overview(source: &SourceFile) -> Vec<Problem> {
    if source.path != "ARCHITECTURE.md" {
        return Vec::new();
    }
    let count = source.text.lines().count();
    let mut problems = Vec::new();
    if count > OVERVIEW_LINES_MAX {
        let what = format!("{count} lines, at most {OVERVIEW_LINES_MAX} are good");
        problems.push(source.problem(0, what));
    }
    for (index, line) in source.text.lines().enumerate() {
        let columns = line.chars().count();
        if columns > OVERVIEW_COLUMNS_MAX {
            let what = format!("{columns} columns, at most {OVERVIEW_COLUMNS_MAX} are good");
            problems.push(source.problem(index + 1, what));
        }
    }
    problems
}

/// A function of more than 60 lines needs `// tidy: long (reason)`; more than four levels of nesting are an error.
pub(crate) fn functions(source: &SourceFile) -> Vec<Problem> {
    let tokens = tokens(&source.lines);
    let mut problems = Vec::new();
    for function in find(&tokens) {
        let head = tokens[function.start].line;
        let lines = tokens[function.close].line - head + 1;
        let name = &tokens[function.start + 1].text;
        if lines > FUNCTION_LINES_MAX && !is_excused(source, head, tokens[function.close].line) {
            let what = format!(
                "`{name}` has {lines} lines, at most {FUNCTION_LINES_MAX} are good \
                 (or give a reason with `// tidy: long (reason)`)"
            );
            problems.push(source.problem(head + 1, what));
        }
        let (depth, line) = deepest(&tokens[function.open..=function.close]);
        if depth > NESTING_MAX {
            let what = format!("`{name}` nests {depth} deep, at most {NESTING_MAX} are good");
            problems.push(source.problem(line + 1, what));
        }
    }
    problems
}

/// The token indices of `fn` and of the body's opening and closing brace.
struct FunctionSpan {
    start: usize,
    open: usize,
    close: usize,
}

fn find(tokens: &[SourceToken]) -> Vec<FunctionSpan> {
    let is_name = |text: &str| text.starts_with(|c: char| c.is_alphabetic() || c == '_');
    let heads = (0..tokens.len()).filter(|&at| {
        tokens[at].text == "fn" && tokens.get(at + 1).is_some_and(|next| is_name(&next.text))
    });
    heads.filter_map(|start| body(tokens, start)).collect()
}

fn body(tokens: &[SourceToken], start: usize) -> Option<FunctionSpan> {
    let mut brackets = 0i32;
    let open = (start..tokens.len()).find(|&at| {
        match tokens[at].text.as_str() {
            "(" | "[" => brackets += 1,
            ")" | "]" => brackets -= 1,
            _ => {}
        }
        brackets == 0 && ["{", ";"].contains(&tokens[at].text.as_str())
    })?;
    if tokens[open].text == ";" {
        return None;
    }
    let close = closing(tokens, open)?;
    Some(FunctionSpan { start, open, close })
}

fn closing(tokens: &[SourceToken], open: usize) -> Option<usize> {
    let mut depth = 0i32;
    (open..tokens.len()).find(|&at| {
        match tokens[at].text.as_str() {
            "{" => depth += 1,
            "}" => depth -= 1,
            _ => {}
        }
        depth == 0
    })
}

fn is_excused(source: &SourceFile, head: usize, close: usize) -> bool {
    let with_reason = |comment: &str| {
        comment
            .split_once("tidy: long (")
            .is_some_and(|(_, reason)| reason.find(')').is_some_and(|end| end > 0))
    };
    source.lines[head.saturating_sub(ATTRIBUTES_ABOVE)..=close]
        .iter()
        .any(|line| with_reason(&line.comment))
}

/// The deepest nesting of control flow and closures in a body, and its line.
fn deepest(body: &[SourceToken]) -> (usize, usize) {
    let mut stack = Vec::new();
    let mut deepest = (0, 0);
    for (at, token) in body.iter().enumerate() {
        match token.text.as_str() {
            "{" => stack.push(at > 0 && is_control(body, at)),
            "}" => {
                stack.pop();
            }
            _ => continue,
        }
        let depth = stack.iter().filter(|control| **control).count();
        if depth > deepest.0 {
            deepest = (depth, token.line);
        }
    }
    deepest
}

/// Whether the brace at `open` is that of control flow or of a closure; arms of a match, plain blocks, items and values
/// do not count.
fn is_control(tokens: &[SourceToken], open: usize) -> bool {
    if tokens[open - 1].text == "|" {
        return true;
    }
    let mut brackets = 0i32;
    let mut at = open;
    while at > 0 {
        at -= 1;
        let text = tokens[at].text.as_str();
        let next = tokens.get(at + 1).map_or("", |token| token.text.as_str());
        match text {
            ")" | "]" => brackets += 1,
            "(" | "[" => brackets -= 1,
            // `if let Point { x, y } = p {`: the pattern is part of the head.
            "}" if next == "=" => at = opening(tokens, at),
            "{" | "}" | ";" => return false,
            "," if brackets == 0 => return false,
            ">" if brackets == 0 && at > 0 && tokens[at - 1].text == "=" => return false,
            "if" | "else" | "for" | "while" | "loop" | "match" if brackets == 0 => return true,
            _ => {}
        }
        if brackets < 0 {
            return false;
        }
    }
    false
}

fn opening(tokens: &[SourceToken], close: usize) -> usize {
    let mut depth = 0i32;
    (0..=close)
        .rev()
        .find(|&at| {
            match tokens[at].text.as_str() {
                "}" => depth += 1,
                "{" => depth -= 1,
                _ => {}
            }
            depth == 0
        })
        .unwrap_or(0)
}

/// The number of lines above `fn`, for attributes and documentation, in which the reason may be given.
const ATTRIBUTES_ABOVE: usize = 6;

#[cfg(test)]
mod tests {
    use super::*;

    fn long_function(lines: usize, comment: &str) -> SourceFile {
        let text = format!(
            "{comment}\nfn f() {{\n{}}}\n",
            "    g();\n".repeat(lines - 2)
        );
        SourceFile::new("x.rs", &text)
    }

    #[test]
    fn an_overview_that_grows_fails() {
        let good = "words\n".repeat(400) + &"x".repeat(120);
        assert_eq!(
            overview(&SourceFile::new("ARCHITECTURE.md", &good[6..])),
            []
        );
        let found = overview(&SourceFile::new("ARCHITECTURE.md", &(good.clone() + "x\n")));
        let lines: Vec<usize> = found.iter().map(|problem| problem.line).collect();
        assert_eq!(lines, [0, 401]);
        assert_eq!(overview(&SourceFile::new("docs/other.md", &good)), []);
    }

    #[test]
    fn a_file_over_the_limit_fails_and_a_longish_one_warns() {
        let of = |lines: usize| file_length(&SourceFile::new("x.c", &"int a;\n".repeat(lines)));
        assert!(of(901).is_some_and(|problem| !problem.warning));
        assert!(of(700).is_some_and(|problem| problem.warning));
        assert!(of(600).is_none());
        assert!(file_length(&SourceFile::new("x.txt", &"a\n".repeat(2000))).is_none());
    }

    #[test]
    fn a_function_of_61_lines_fails() {
        assert!(functions(&long_function(60, "")).is_empty());
        let problems = functions(&long_function(61, ""));
        assert_eq!(problems.len(), 1);
        assert!(
            problems[0].what.starts_with("`f` has 61 lines"),
            "{}",
            problems[0]
        );
    }

    #[test]
    fn a_long_function_with_a_reason_passes() {
        assert!(functions(&long_function(80, "// tidy: long (a table)")).is_empty());
        assert_eq!(functions(&long_function(80, "// tidy: long ()")).len(), 1);
    }

    #[test]
    fn five_levels_fail_and_four_pass() {
        let four = "fn f() { for a in b { if c { while d { if e { g() } } } } }";
        let five = "fn f() { for a in b { if c { while d { if e { loop { g() } } } } } }";
        assert!(functions(&SourceFile::new("x.rs", four)).is_empty());
        let problems = functions(&SourceFile::new("x.rs", five));
        assert!(problems[0].what.contains("nests 5 deep"), "{}", problems[0]);
    }

    #[test]
    fn arms_blocks_and_values_do_not_nest() {
        let text = "fn f() { match a { B { c } => { let d = E { g: 1 }; { unsafe { h() } } } } }";
        let depth = deepest(&tokens(&crate::tidy::scan::split(text))[4..]).0;
        assert_eq!(depth, 1);
    }

    #[test]
    fn closures_and_patterns_in_heads_nest() {
        let depth = |text: &str| deepest(&tokens(&crate::tidy::scan::split(text))).0;
        assert_eq!(depth("{ a.map(|b| { c() }) }"), 1);
        assert_eq!(depth("{ if let P { x } = y { z() } }"), 1);
        assert_eq!(depth("{ let v = if a { b } else { c }; }"), 1);
    }

    #[test]
    fn the_first_of_the_deepest_lines_is_named() {
        let deep = "for a in b {\nif c {\nwhile d {\nif e {\nloop {\nf() } } } } }\n";
        let source = SourceFile::new("x.rs", &format!("fn g() {{\n{deep}{deep}}}\n"));
        let found = functions(&source);
        assert_eq!((found.len(), found[0].line), (1, 6));
    }

    #[test]
    fn types_of_functions_are_no_functions() {
        let long = "    g();\n".repeat(70);
        let text = format!("struct A {{\n    f: fn(u8),\n}}\nconst B: () = {{\n{long}}};\n");
        assert!(functions(&SourceFile::new("x.rs", &text)).is_empty());
    }

    #[test]
    fn declarations_without_a_body_are_no_functions() {
        let text = "trait T { fn a(&self); fn b(&self) -> [u8; 4] { [0; 4] } } type F = fn(u8);";
        let all = tokens(&crate::tidy::scan::split(text));
        assert_eq!(find(&all).len(), 1);
    }
}
