//! Rust source as the rules see it: files found, comments and literals blanked, tests cut off.
//! A scanner of tokens, not a parser.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

/// A text file of the tree.
#[derive(Debug)]
pub(crate) struct Source {
    /// Path below the workspace, with `/`.
    pub(crate) path: String,
    /// All of it.
    pub(crate) text: String,
    /// For Rust: the text with comments, strings and characters blanked. Lines stay lines.
    pub(crate) code: String,
}

impl Source {
    /// A file as if it stood in the tree.
    pub(crate) fn new(path: &str, text: &str) -> Self {
        let code = if path.ends_with(".rs") { blank(text) } else { String::new() };
        Self { path: path.to_owned(), text: text.to_owned(), code }
    }

    /// Whether it is Rust.
    pub(crate) fn is_rust(&self) -> bool {
        self.path.ends_with(".rs")
    }

    /// Whether a program wrote it.
    pub(crate) fn is_generated(&self) -> bool {
        self.path.contains("/generated/")
    }

    /// The code before the unit tests, which come last in a file.
    pub(crate) fn code_before_tests(&self) -> &str {
        let end = self.code.find("#[cfg(test)]\nmod ").unwrap_or(self.code.len());
        &self.code[..end]
    }
}

/// Every file below `root` but what git and cargo keep, as sorted paths with `/`.
pub(crate) fn paths(root: &Path) -> Result<Vec<String>> {
    let mut files = Vec::new();
    walk(root, &mut files)?;
    let below = |path: PathBuf| {
        let path = path.strip_prefix(root).expect("found below the root").to_string_lossy();
        path.replace('\\', "/")
    };
    let mut paths: Vec<String> = files.into_iter().map(below).collect();
    paths.sort();
    Ok(paths)
}

/// Reads those of `paths` that people write: sources, manifests, documents, scripts.
pub(crate) fn read_tree(root: &Path, paths: &[String]) -> Result<Vec<Source>> {
    const WRITTEN: [&str; 10] =
        ["rs", "toml", "md", "proto", "py", "sh", "yml", "yaml", "service", "cpp"];
    let is_written = |path: &&String| {
        let name = path.rsplit('/').next().unwrap_or_default();
        let ending = name.rsplit_once('.').map(|(_, ending)| ending);
        ending.is_some_and(|ending| WRITTEN.contains(&ending))
            || name == "Dockerfile"
            || *path == ".ci/run"
    };
    let read = |path: &String| {
        let text = fs::read_to_string(root.join(path)).with_context(|| path.clone())?;
        Ok(Source::new(path, &text))
    };
    paths.iter().filter(is_written).map(read).collect()
}

fn walk(folder: &Path, paths: &mut Vec<PathBuf>) -> Result<()> {
    // Cargo marks its build folders with this file, whatever they are called.
    if folder.join("CACHEDIR.TAG").exists() {
        return Ok(());
    }
    for entry in fs::read_dir(folder).with_context(|| format!("{}", folder.display()))? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default();
        if !path.is_dir() {
            paths.push(path);
        } else if name != ".git" && name != "target" {
            walk(&path, paths)?;
        }
    }
    Ok(())
}

/// Position of the first `word` that stands alone.
pub(crate) fn find_word(code: &str, word: &str) -> Option<usize> {
    let part = |c: char| c.is_alphanumeric() || c == '_';
    code.match_indices(word)
        .map(|(at, _)| at)
        .find(|&at| !code[..at].ends_with(part) && !code[at + word.len()..].starts_with(part))
}

/// Line of a position, from 1.
pub(crate) fn line_of(text: &str, at: usize) -> usize {
    text[..at].matches('\n').count() + 1
}

/// Replaces comments, strings and characters by spaces, byte for byte.
fn blank(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut out = bytes.to_vec();
    let mut at = 0;
    while at < bytes.len() {
        let end = token_end(bytes, at);
        if end > at {
            out[at..end].iter_mut().filter(|b| **b != b'\n').for_each(|b| *b = b' ');
            at = end;
        } else {
            at += 1;
        }
    }
    // Whole tokens were blanked, so no character was cut.
    String::from_utf8(out).expect("blanking keeps UTF-8")
}

/// End of the comment or literal that starts at `at`; `at` itself when none does.
fn token_end(bytes: &[u8], at: usize) -> usize {
    let rest = &bytes[at..];
    let find = |from: usize, what: &[u8]| {
        rest[from..].windows(what.len()).position(|w| w == what).map(|n| at + from + n)
    };
    if rest.starts_with(b"//") {
        return find(2, b"\n").unwrap_or(bytes.len());
    }
    if rest.starts_with(b"/*") {
        return block_comment_end(bytes, at);
    }
    let after_word = at > 0 && (bytes[at - 1].is_ascii_alphanumeric() || bytes[at - 1] == b'_');
    let prefix = usize::from(rest[0] == b'b' && !after_word);
    if rest.get(prefix) == Some(&b'r') && !(after_word && prefix == 0) {
        let hashes = rest[prefix + 1..].iter().take_while(|b| **b == b'#').count();
        if rest.get(prefix + 1 + hashes) == Some(&b'"') {
            let close = [b"\"".as_slice(), &b"#".repeat(hashes)].concat();
            let end = find(prefix + 2 + hashes, &close).map(|n| n + close.len());
            return end.unwrap_or(bytes.len());
        }
    }
    match rest[0] {
        b'"' => quoted_end(bytes, at, b'"'),
        // `'a` is a lifetime unless a quote closes it.
        b'\'' if rest.get(1) == Some(&b'\\') => quoted_end(bytes, at, b'\''),
        b'\'' => {
            let width = rest.get(1).map_or(1, |b| match b {
                0xF0.. => 4,
                0xE0.. => 3,
                0xC0.. => 2,
                _ => 1,
            });
            if rest.get(1 + width) == Some(&b'\'') { at + 2 + width } else { at }
        }
        _ => at,
    }
}

fn quoted_end(bytes: &[u8], at: usize, quote: u8) -> usize {
    let mut end = at + 1;
    while end < bytes.len() && bytes[end] != quote {
        end += 1 + usize::from(bytes[end] == b'\\');
    }
    (end + 1).min(bytes.len())
}

fn block_comment_end(bytes: &[u8], at: usize) -> usize {
    let (mut end, mut depth) = (at + 2, 1);
    while end < bytes.len() && depth > 0 {
        match &bytes[end..bytes.len().min(end + 2)] {
            b"/*" => (end, depth) = (end + 2, depth + 1),
            b"*/" => (end, depth) = (end + 2, depth - 1),
            _ => end += 1,
        }
    }
    end
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expect: &str) {
        assert_eq!(blank(text), expect, "{text}");
    }

    #[test]
    fn comments_and_literals_are_blanked() {
        check("a // b\nc", "a     \nc");
        check("a /* b /* c */ d */ e", "a                   e");
        check(r#"f("x \" y", z)"#, "f(        , z)");
        check(r###"f(r#"x " y"#, z)"###, "f(          , z)");
        check(r#"f(br"x\", z)"#, "f(      , z)");
        check("f('\\'', 'x', 'é', b'\\n')", "f(    ,    ,     , b    )");
        check("\"never closed", "             ");
    }

    #[test]
    fn lifetimes_and_identifiers_stay() {
        check("fn f<'a>(x: &'a str, r: u8)", "fn f<'a>(x: &'a str, r: u8)");
        check("var\"x\"", "var   ");
    }

    #[test]
    fn words_are_whole() {
        assert_eq!(find_word("unsafe_code unsafe {", "unsafe"), Some(12));
        assert_eq!(find_word("an unsafety", "unsafe"), None);
    }

    #[test]
    fn tests_are_cut_off() {
        let source = Source::new("a.rs", "fn a() {}\n#[cfg(test)]\nmod tests { }\n");
        assert_eq!(source.code_before_tests(), "fn a() {}\n");
    }
}
