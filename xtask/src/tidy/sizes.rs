//! The largest files and functions: something to look at, never a fault.

use std::fmt::Write;

use crate::source::{Source, find_word, line_of};

const SHOWN: usize = 5;

/// A table of the largest hand-written Rust files and functions, in lines.
pub(super) fn report(sources: &[Source]) -> String {
    let written = || sources.iter().filter(|s| s.is_rust() && !s.is_generated());
    let mut files: Vec<(usize, String)> =
        written().map(|s| (s.text.lines().count(), s.path.clone())).collect();
    let mut functions: Vec<(usize, String)> = written()
        .flat_map(|s| {
            let named = |(lines, line, name)| (lines, format!("{name}, {}:{line}", s.path));
            functions(&s.code).into_iter().map(named)
        })
        .collect();
    let mut out = String::new();
    for (title, rows) in [("files", &mut files), ("functions", &mut functions)] {
        rows.sort_by(|a, b| b.cmp(a));
        let _ = writeln!(out, "largest {title} (lines)");
        for (lines, what) in rows.iter().take(SHOWN) {
            let _ = writeln!(out, "{lines:>6}  {what}");
        }
    }
    out
}

/// Lines, first line and name of every function with a body in blanked code.
fn functions(code: &str) -> Vec<(usize, usize, String)> {
    let mut found = Vec::new();
    let mut at = 0;
    while let Some(next) = find_word(&code[at..], "fn").map(|n| at + n) {
        at = next + 2;
        let name: String = code[at..]
            .trim_start()
            .chars()
            .take_while(|c| c.is_alphanumeric() || *c == '_')
            .collect();
        // A `fn` type has no name.
        if let Some(open) = body(code, at).filter(|_| !name.is_empty()) {
            let first = line_of(code, next);
            found.push((line_of(code, body_end(code, open)) - first + 1, first, name));
        }
    }
    found
}

/// The brace that opens the body of the function whose head starts at `at`; none for a
/// declaration, which a semicolon ends. Those in brackets belong to array types.
fn body(code: &str, at: usize) -> Option<usize> {
    let mut depth = 0;
    for (offset, byte) in code[at..].bytes().enumerate() {
        match byte {
            b'[' | b'(' => depth += 1,
            b']' | b')' => depth -= 1,
            b'{' if depth == 0 => return Some(at + offset),
            b';' if depth == 0 => return None,
            _ => {}
        }
    }
    None
}

/// Position of the brace that closes the one at `open`.
fn body_end(code: &str, open: usize) -> usize {
    let mut depth = 0;
    for (at, byte) in code.bytes().enumerate().skip(open) {
        match byte {
            b'{' => depth += 1,
            b'}' => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return at;
        }
    }
    code.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_are_measured() {
        let code =
            "struct A { f: fn(u8) }\nfn a();\nfn b() {\n  if x { y }\n}\nfn c() -> [u8; 2] {}\n";
        assert_eq!(functions(code), [(3, 3, "b".to_owned()), (1, 6, "c".to_owned())]);
    }

    #[test]
    fn the_largest_come_first_and_generated_code_does_not_count() {
        let sources = [
            Source::new("a.rs", "fn small() {}\n"),
            Source::new("b.rs", "fn large() {\n}\n\n"),
            Source::new("x/generated/c.rs", "\n\n\n\n\n\n"),
        ];
        let expect = "largest files (lines)\n     3  b.rs\n     1  a.rs\n\
                      largest functions (lines)\n     2  large, b.rs:1\n     1  small, a.rs:1\n";
        assert_eq!(report(&sources), expect);
    }
}
