// SPDX-License-Identifier: MIT OR Apache-2.0
//! Splits Rust source into code and comments, line by line, and code into tokens.
//!
//! It recognizes comments (also nested), all kinds of strings, and characters and lifetimes, and no other grammar.

/// A line, split into code and comment; the contents of strings are removed.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(crate) struct SourceLine {
    pub(crate) code: String,
    pub(crate) comment: String,
}

/// A token: a name or number, or a single other character.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SourceToken {
    pub(crate) text: String,
    /// Counted from 0.
    pub(crate) line: usize,
}

/// Splits the lines of a file into code and comments.
pub(crate) fn split(text: &str) -> Vec<SourceLine> {
    let mut splitter = Splitter {
        rest: text.chars().collect(),
        at: 0,
        lines: vec![SourceLine::default()],
    };
    while splitter.at < splitter.rest.len() {
        splitter.step();
    }
    if text.ends_with('\n') {
        splitter.lines.pop();
    }
    splitter.lines
}

/// The tokens of the code, in order.
pub(crate) fn tokens(lines: &[SourceLine]) -> Vec<SourceToken> {
    let mut tokens = Vec::new();
    for (line, SourceLine { code, .. }) in lines.iter().enumerate() {
        let mut name = String::new();
        for c in code.chars().chain([' ']) {
            if c.is_alphanumeric() || c == '_' {
                name.push(c);
                continue;
            }
            if !name.is_empty() {
                tokens.push(SourceToken {
                    text: std::mem::take(&mut name),
                    line,
                });
            }
            if !c.is_whitespace() {
                tokens.push(SourceToken {
                    text: c.to_string(),
                    line,
                });
            }
        }
    }
    tokens
}

/// A scanner that separates the code of Rust text from its comments.
struct Splitter {
    rest: Vec<char>,
    at: usize,
    lines: Vec<SourceLine>,
}

impl Splitter {
    fn step(&mut self) {
        match (self.peek(0), self.peek(1)) {
            ('/', '/') => self.line_comment(),
            ('/', '*') => self.block_comment(),
            ('"', _) => self.string(),
            ('r' | 'b' | 'c', _) if self.starts_raw_string() => self.raw_string(),
            ('\'', _) => self.quote(),
            (c, _) => self.code(c),
        }
    }

    fn peek(&self, ahead: usize) -> char {
        self.rest.get(self.at + ahead).copied().unwrap_or('\0')
    }

    fn code(&mut self, c: char) {
        self.at += 1;
        if c == '\n' {
            self.lines.push(SourceLine::default());
        } else if let Some(line) = self.lines.last_mut() {
            line.code.push(c);
        }
    }

    fn comment(&mut self, c: char) {
        self.at += 1;
        if c == '\n' {
            self.lines.push(SourceLine::default());
        } else if let Some(line) = self.lines.last_mut() {
            line.comment.push(c);
        }
    }

    /// Skips text that is neither code nor comment, and counts its lines.
    fn skip(&mut self, count: usize) {
        for _ in 0..count {
            if self.peek(0) == '\n' {
                self.lines.push(SourceLine::default());
            }
            self.at += 1;
        }
    }

    fn line_comment(&mut self) {
        while self.at < self.rest.len() && self.peek(0) != '\n' {
            self.comment(self.peek(0));
        }
    }

    fn block_comment(&mut self) {
        let mut depth = 0;
        while self.at < self.rest.len() {
            let pair = (self.peek(0), self.peek(1));
            let change = match pair {
                ('/', '*') => 1,
                ('*', '/') => -1,
                _ => 0,
            };
            self.comment(pair.0);
            if change != 0 {
                self.comment(pair.1);
                depth += change;
            }
            if depth == 0 {
                return;
            }
        }
    }

    fn string(&mut self) {
        self.code('"');
        while self.at < self.rest.len() && self.peek(0) != '"' {
            self.skip(if self.peek(0) == '\\' { 2 } else { 1 });
        }
        self.code('"');
    }

    /// Whether a raw string starts here: `r"`, `r#"`, `br#"` or `cr"`, but not the end of a name such as `attr`.
    fn starts_raw_string(&self) -> bool {
        let before = self.at.checked_sub(1).and_then(|at| self.rest.get(at));
        if before.is_some_and(|c| c.is_alphanumeric() || *c == '_') {
            return false;
        }
        let mut ahead = usize::from(self.peek(0) != 'r');
        if self.peek(ahead) != 'r' {
            return false;
        }
        ahead += 1;
        while self.peek(ahead) == '#' {
            ahead += 1;
        }
        self.peek(ahead) == '"'
    }

    fn raw_string(&mut self) {
        while self.peek(0) != 'r' {
            self.at += 1;
        }
        self.at += 1;
        let mut hashes = 0;
        while self.peek(0) == '#' {
            hashes += 1;
            self.at += 1;
        }
        self.code('"');
        let ends = |s: &Self| s.peek(0) == '"' && (1..=hashes).all(|ahead| s.peek(ahead) == '#');
        while self.at < self.rest.len() && !ends(self) {
            self.skip(1);
        }
        self.code('"');
        self.at = (self.at + hashes).min(self.rest.len());
    }

    /// Skips a character literal; a lifetime is code.
    fn quote(&mut self) {
        if self.peek(1) == '\\' {
            self.at += 3;
            while self.at < self.rest.len() && self.peek(0) != '\'' {
                self.at += 1;
            }
            self.at += 1;
        } else if self.peek(2) == '\'' {
            self.at += 3;
        } else {
            self.code('\'');
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn code(text: &str) -> String {
        split(text)
            .iter()
            .map(|line| line.code.clone())
            .collect::<Vec<_>>()
            .join("\n")
    }

    #[test]
    fn comments_leave_the_code() {
        let lines = split("let a = 1; // one\n/* two\n/* nested */ */ let b;\n");
        assert_eq!(lines.len(), 3);
        assert_eq!(
            (lines[0].code.as_str(), lines[0].comment.as_str()),
            ("let a = 1; ", "// one")
        );
        assert_eq!(lines[1].comment, "/* two");
        assert_eq!(lines[2].code, " let b;");
    }

    #[test]
    fn strings_lose_their_contents() {
        assert_eq!(code(r#"f("a { \" // b", '{', b'"')"#), r#"f("", , b)"#);
        assert_eq!(code("f(r#\"unsafe \" {\"#, 1)"), "f(\"\", 1)");
        assert_eq!(code("attr\"x\""), "attr\"\"");
    }

    #[test]
    fn a_string_over_two_lines_keeps_the_count_of_lines() {
        assert_eq!(split("let a = \"x\n  y\";\nlet b;\n").len(), 3);
    }

    #[test]
    fn lifetimes_are_code_and_characters_are_not() {
        assert_eq!(
            code("fn f<'a>(x: &'a str) -> char { '\\'' }"),
            "fn f<'a>(x: &'a str) -> char {  }"
        );
        assert_eq!(code("x == '\\u{7d}' {"), "x ==  {");
    }

    #[test]
    fn names_and_other_characters_are_separate_tokens() {
        let tokens = tokens(&split("a_b(c)\n{ d }"));
        let texts: Vec<&str> = tokens.iter().map(|token| token.text.as_str()).collect();
        assert_eq!(texts, ["a_b", "(", "c", ")", "{", "d", "}"]);
        assert_eq!(tokens[5].line, 1);
    }
}
