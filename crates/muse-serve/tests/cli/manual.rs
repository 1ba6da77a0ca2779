//! `muse --version`, `muse completions` and `muse man`.

use super::*;

const COMMANDS: [&str; 8] =
    ["serve", "chat", "generate", "inspect", "quantize", "bench", "completions", "man"];

#[test]
fn the_version_tells_of_the_build_and_the_machine() {
    let text = muse(&["--version"]).ok();
    let version = format!("muse {}\ncommit ", env!("CARGO_PKG_VERSION"));
    assert!(text.starts_with(&version), "{text}");
    let line = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name));
        line.unwrap_or_else(|| panic!("no {name} in {text}")).trim().to_owned()
    };
    assert_eq!(line("features"), "cpu, jemalloc, nano");
    let isa = muse_cpu::Isa::best().name();
    assert_eq!(line("instructions"), format!("{}, {isa}", std::env::consts::ARCH));
    assert_eq!(muse(&["-V"]).ok(), format!("muse {}\n", env!("CARGO_PKG_VERSION")));
}

#[test]
fn shells_can_read_the_completions() {
    for (shell, check) in [("bash", &["-n"][..]), ("zsh", &["-n"]), ("fish", &["--no-execute"])] {
        let script = muse(&["completions", shell]).ok();
        for word in COMMANDS.iter().copied().chain(["kv-disk", "q8_0"]) {
            assert!(script.contains(word), "{shell}: no {word}");
        }
        let file = tempfile::NamedTempFile::new().expect("a file");
        std::fs::write(file.path(), script).expect("written");
        // Only bash is on every machine.
        if let Ok(output) = Command::new(shell).args(check).arg(file.path()).output() {
            assert!(output.status.success(), "{shell}: {output:?}");
        } else {
            assert_ne!(shell, "bash", "bash runs");
        }
    }
    assert_eq!(muse(&["completions", "cmd"]).code, Some(2));
}

/// What bash offers behind `muse serve --ma`.
#[test]
fn bash_completes_an_option() {
    let script = muse(&["completions", "bash"]).ok();
    let words = "COMP_WORDS=(muse serve --max-d) COMP_CWORD=2; _muse muse --max-d serve";
    let run = format!("{script}\n{words}\nprintf '%s\\n' \"${{COMPREPLY[@]}}\"");
    let output = Command::new("bash").args(["-c", &run]).output().expect("bash runs");
    assert_eq!(String::from_utf8_lossy(&output.stdout), "--max-draft\n", "{output:?}");
}

#[test]
fn every_command_has_a_page() {
    let folder = tempfile::tempdir().expect("a folder");
    for _ in 0..2 {
        assert_eq!(muse(&["man", path(folder.path())]).ok(), "", "pages may be written again");
    }
    let read = |name: &str| {
        let page = folder.path().join(name);
        std::fs::read_to_string(&page).unwrap_or_else(|error| panic!("{name}: {error}"))
    };
    assert!(read("muse.1").contains("muse\\-serve(1)"), "{}", read("muse.1"));
    for command in COMMANDS {
        let page = read(&format!("muse-{command}.1"));
        assert!(page.contains(".TH ") && page.contains(".SH SYNOPSIS"), "{page}");
    }
    assert!(read("muse-serve.1").contains("MUSE_KV_DISK"), "variables are named");
    assert!(read("muse-chat.1").contains("line\\-by\\-line"));
    muse(&["man", "/nowhere/man1"]).refused(&["/nowhere/man1", "name a folder"]);
}
