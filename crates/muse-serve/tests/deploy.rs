//! The files of `deploy/` say only what `muse serve` understands.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;

/// Words of `text` that start with `mark` and go on with letters, digits and `joint`.
fn words<'a>(text: &'a str, mark: &str, joint: char) -> BTreeSet<&'a str> {
    let part = |c: char| c.is_ascii_alphanumeric() || c == joint;
    let word = |(at, _): (usize, &str)| {
        let rest = &text[at..];
        let free = !text[..at].ends_with(part);
        let end = rest.find(|c| !part(c)).unwrap_or(rest.len());
        (free && end > mark.len()).then(|| &rest[..end])
    };
    text.match_indices(mark).filter_map(word).collect()
}

fn help() -> String {
    let muse = Command::new(env!("CARGO_BIN_EXE_muse")).args(["serve", "--help"]).output();
    let help = muse.expect("muse starts");
    assert!(help.status.success());
    String::from_utf8(help.stdout).expect("muse writes UTF-8")
}

#[test]
fn flags_and_variables_are_known() {
    let help = help();
    let (flags, variables) = (words(&help, "--", '-'), words(&help, "MUSE_", '_'));
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy");
    let mut seen = BTreeSet::new();
    for file in fs::read_dir(folder).expect("the folder deploy") {
        let path = file.expect("a file").path();
        let text = fs::read_to_string(&path).expect("text");
        // Lines that call the server; a Dockerfile's own flags stand on others.
        let calls =
            text.lines().filter(|line| line.contains("serve")).collect::<Vec<_>>().join("\n");
        for (said, known) in
            [(words(&calls, "--", '-'), &flags), (words(&text, "MUSE_", '_'), &variables)]
        {
            for word in said {
                assert!(known.contains(word), "{}: muse serve has no {word}", path.display());
                seen.insert(word.to_owned());
            }
        }
    }
    for used in ["--grpc", "--http", "MUSE_MODEL"] {
        assert!(seen.contains(used), "{used} was not found: the test looks past the files");
    }
}
