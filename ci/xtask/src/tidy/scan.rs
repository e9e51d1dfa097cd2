// SPDX-License-Identifier: MIT OR Apache-2.0
//! Splits Rust text into code and comments, line by line, and code into words.
//!
//! It knows comments (nested ones too), strings in all their spellings, and characters beside
//! lifetimes; it needs no more grammar than that.

/// One line, its comment apart from its code; what stood inside strings is gone.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(crate) struct SourceLine {
    pub(crate) code: String,
    pub(crate) comment: String,
}

/// A word or a sign of the code.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SourceToken {
    pub(crate) text: String,
    /// Counted from 0.
    pub(crate) line: usize,
}

/// The lines of a file, code and comments apart.
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

/// The words and signs of the code, in order.
pub(crate) fn tokens(lines: &[SourceLine]) -> Vec<SourceToken> {
    let mut tokens = Vec::new();
    for (line, SourceLine { code, .. }) in lines.iter().enumerate() {
        let mut word = String::new();
        for letter in code.chars().chain([' ']) {
            if letter.is_alphanumeric() || letter == '_' {
                word.push(letter);
                continue;
            }
            if !word.is_empty() {
                tokens.push(SourceToken {
                    text: std::mem::take(&mut word),
                    line,
                });
            }
            if !letter.is_whitespace() {
                tokens.push(SourceToken {
                    text: letter.to_string(),
                    line,
                });
            }
        }
    }
    tokens
}

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
            (letter, _) => self.code(letter),
        }
    }

    fn peek(&self, ahead: usize) -> char {
        self.rest.get(self.at + ahead).copied().unwrap_or('\0')
    }

    fn code(&mut self, letter: char) {
        self.at += 1;
        if letter == '\n' {
            self.lines.push(SourceLine::default());
        } else if let Some(line) = self.lines.last_mut() {
            line.code.push(letter);
        }
    }

    fn comment(&mut self, letter: char) {
        self.at += 1;
        if letter == '\n' {
            self.lines.push(SourceLine::default());
        } else if let Some(line) = self.lines.last_mut() {
            line.comment.push(letter);
        }
    }

    /// Passes over text that is neither code nor comment, keeping the line count.
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

    /// `r"`, `r#"`, `br#"`, `cr"`, but not the end of a name such as `attr`.
    fn starts_raw_string(&self) -> bool {
        let before = self.at.checked_sub(1).and_then(|at| self.rest.get(at));
        if before.is_some_and(|letter| letter.is_alphanumeric() || *letter == '_') {
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

    /// A character literal is passed over; a lifetime is code.
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
    fn words_and_signs_are_told_apart() {
        let tokens = tokens(&split("a_b(c)\n{ d }"));
        let texts: Vec<&str> = tokens.iter().map(|token| token.text.as_str()).collect();
        assert_eq!(texts, ["a_b", "(", "c", ")", "{", "d", "}"]);
        assert_eq!(tokens[5].line, 1);
    }
}
