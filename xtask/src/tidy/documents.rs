//! Rules about documents: the README stays short, and no text cites a file that is not there.

use super::Fault;
use crate::source::{Source, line_of};

const README_LINES: usize = 130;
/// Endings by which a path in a document is recognized.
const ENDINGS: [&str; 12] =
    ["rs", "toml", "md", "proto", "py", "json", "jsonl", "yaml", "service", "cpp", "h", "csv"];

/// Faults of all documents and comments; `paths` is every file of the tree.
pub(super) fn check(sources: &[Source], paths: &[String]) -> Vec<Fault> {
    let mut faults: Vec<Fault> = sources.iter().filter_map(length).collect();
    for source in sources {
        faults.extend(absent_documents(source, paths));
        if source.path.ends_with(".md") {
            faults.extend(absent_links(source, paths));
            faults.extend(absent_paths(source, paths));
            faults.extend(absent_targets(source, sources, paths));
        }
    }
    faults
}

fn length(source: &Source) -> Option<Fault> {
    let lines = source.text.lines().count();
    (source.path == "README.md" && lines > README_LINES).then(|| {
        format!(
            "README.md: {lines} lines, at most {README_LINES}: move details to tests/README.md, \
             CONTRIBUTING.md or the README of a crate"
        )
    })
}

/// Any word that ends in `.md`, in documents, comments and strings alike.
fn absent_documents(source: &Source, paths: &[String]) -> Vec<Fault> {
    // The rules' own tests plant such words.
    if source.path.starts_with("xtask/src/tidy/") {
        return Vec::new();
    }
    let part = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.' | '/');
    let text = &source.text;
    let mut faults = Vec::new();
    for (at, _) in text.match_indices(".md") {
        let end = at + ".md".len();
        let begin = text[..at].rfind(|c| !part(c)).map_or(0, |n| n + char_len(text, n));
        let name = &text[begin..end];
        let more = text[end..].starts_with(|c: char| c.is_ascii_alphanumeric() || c == '_');
        if at == begin || more || exists(source, name, paths) {
            continue;
        }
        faults.push(absent(source, begin, name));
    }
    faults
}

/// Links of a document to files.
fn absent_links(source: &Source, paths: &[String]) -> Vec<Fault> {
    let mut faults = Vec::new();
    for (at, _) in source.text.match_indices("](") {
        let rest = &source.text[at + 2..];
        let Some(target) = rest.find(')').map(|end| &rest[..end]) else { continue };
        let file = target.split('#').next().unwrap_or_default();
        let is_file = !file.is_empty() && !file.contains("://") && !file.ends_with(".md");
        if is_file && !exists(source, file, paths) {
            faults.push(absent(source, at, file));
        }
    }
    faults
}

/// Paths between backticks that name a file, as `engine/step.rs`.
fn absent_paths(source: &Source, paths: &[String]) -> Vec<Fault> {
    let mut faults = Vec::new();
    let spoken = outside_fences(&source.text);
    for (at, word) in quoted(&spoken) {
        let is_path = word.contains('/')
            && word.rsplit_once('.').is_some_and(|(_, ending)| ENDINGS.contains(&ending))
            && !word.ends_with(".md")
            && word.chars().all(|c| c.is_ascii_alphanumeric() || "_-./".contains(c));
        if is_path && !word.starts_with('/') && !exists(source, word, paths) {
            faults.push(absent(source, at, word));
        }
    }
    faults
}

/// Targets that commands of a document name, as `--example NAME`.
fn absent_targets(source: &Source, sources: &[Source], paths: &[String]) -> Vec<Fault> {
    let part = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
    let mut faults = Vec::new();
    for (flag, folder) in [
        ("--bench ", "benches"),
        ("--bin ", "bin"),
        ("--example ", "examples"),
        ("--test ", "tests"),
    ] {
        for (at, _) in source.text.match_indices(flag) {
            let rest = &source.text[at + flag.len()..];
            let name = &rest[..rest.find(|c| !part(c)).unwrap_or(rest.len())];
            let ends = [format!("/{folder}/{name}.rs"), format!("/{folder}/{name}/main.rs")];
            let line = format!("name = \"{name}\"");
            let is_named = |s: &Source| s.path.ends_with("Cargo.toml") && s.text.contains(&line);
            let exists = paths.iter().any(|path| ends.iter().any(|end| path.ends_with(end)))
                || sources.iter().any(is_named);
            // `--test NAME` and such are placeholders.
            let is_name = name.chars().any(|c| c.is_ascii_lowercase());
            if is_name && !exists {
                faults.push(absent(source, at, &format!("{flag}{name}")));
            }
        }
    }
    faults
}

fn absent(source: &Source, at: usize, name: &str) -> Fault {
    format!("{}:{}: cites {name}, which is not in the tree", source.path, line_of(&source.text, at))
}

/// Whether `name` is a file or folder: beside the source, from the root, or as the end of a path.
fn exists(source: &Source, name: &str, paths: &[String]) -> bool {
    let beside = match source.path.rsplit_once('/') {
        Some((folder, _)) => format!("{folder}/{name}"),
        None => name.to_owned(),
    };
    let (beside, plain) = (normal(&beside), normal(name));
    let end = format!("/{plain}");
    paths.iter().any(|path| {
        let below = |folder: &str| {
            path.strip_prefix(folder).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        below(&beside) || below(&plain) || (!plain.contains("..") && path.ends_with(&end))
    })
}

/// A path without `.`, `..` and a slash at its end.
fn normal(path: &str) -> String {
    let mut parts = Vec::new();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." if parts.last().is_some_and(|last| *last != "..") => drop(parts.pop()),
            part => parts.push(part),
        }
    }
    parts.join("/")
}

fn char_len(text: &str, at: usize) -> usize {
    text[at..].chars().next().map_or(1, char::len_utf8)
}

/// The text with blocks between fences blanked, byte for byte.
fn outside_fences(text: &str) -> String {
    let mut inside = false;
    let line = |line: &str| {
        let fence = line.trim_start().starts_with("```");
        let blank = inside || fence;
        inside ^= fence;
        if blank { " ".repeat(line.len()) } else { line.to_owned() }
    };
    text.split('\n').map(line).collect::<Vec<_>>().join("\n")
}

/// What stands between single backticks, with its place.
fn quoted(text: &str) -> Vec<(usize, &str)> {
    let ticks: Vec<usize> = text.match_indices('`').map(|(at, _)| at).collect();
    let pairs = ticks.chunks_exact(2);
    pairs.map(|pair| (pair[0], &text[pair[0] + 1..pair[1]])).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATHS: [&str; 5] = [
        "README.md",
        "crates/a/README.md",
        "crates/a/examples/use.rs",
        "crates/a/src/deep/step.rs",
        "tests/golden/b.json",
    ];

    fn faults(path: &str, text: &str) -> Vec<Fault> {
        check(&[Source::new(path, text)], &PATHS.map(str::to_owned))
    }

    #[track_caller]
    fn refuses(path: &str, text: &str, name: &str) {
        let found = faults(path, text);
        assert_eq!(found.len(), 1, "{text}: {found:?}");
        assert!(found[0].contains(name), "{}", found[0]);
    }

    #[track_caller]
    fn allows(path: &str, text: &str) {
        assert_eq!(faults(path, text), Vec::<Fault>::new(), "{text}");
    }

    #[test]
    fn the_readme_stays_short() {
        allows("README.md", &"line\n".repeat(README_LINES));
        refuses("README.md", &"line\n".repeat(README_LINES + 1), "131 lines");
        allows("tests/README.md", &"line\n".repeat(README_LINES + 1));
    }

    #[test]
    fn documents_that_are_cited_exist() {
        refuses("crates/a/src/lib.rs", "// As `DESIGN.md` defines it.", "DESIGN.md");
        refuses("tests/golden/make.py", "\"\"\"Written from MODEL.md only.", "MODEL.md");
        refuses("README.md", "[design](docs/DESIGN.md)", "docs/DESIGN.md");
        allows("crates/a/src/lib.rs", "// See `README.md` and crates/a/README.md, é README.md.");
        allows("crates/a/src/lib.rs", "let ending = \".md\"; // A file.mdx");
    }

    #[test]
    fn links_and_paths_of_documents_exist() {
        refuses("README.md", "[a](crates/b)", "crates/b");
        refuses("README.md", "[a](crates/a/src/lib.rs)", "crates/a/src/lib.rs");
        refuses("README.md", "see `deep/walk.rs`", "deep/walk.rs");
        refuses("README.md", "see `ep/step.rs`", "ep/step.rs");
        allows("README.md", "[a](crates/a), [b](crates/a/src/deep/step.rs), [c](#layout)");
        allows("crates/a/README.md", "[golden](../../tests/golden/b.json), [step](src/deep)");
        allows("README.md", "see `deep/step.rs`, `deep/<name>.rs`, `/etc/a.toml` and `x/y`");
        refuses("README.md", "`cargo run --example used`", "--example used");
        refuses("README.md", "```sh\ncargo bench --bench use\n```", "--bench use");
        allows("README.md", "`cargo run --example use`, `cargo test --test NAME`");
        allows("README.md", "[site](https://example.org/a.html)\n```sh\nrun `a/b.rs`\n```\n");
    }
}
