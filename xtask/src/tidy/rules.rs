//! Rules about what stands in a file: its head, where `unsafe`, `async` and environment variables
//! may appear, and words that must not.

use super::Fault;
use crate::source::{Source, find_word, line_of};

/// Unfinished work. Spelled apart, or these lines would be faults themselves.
const UNFINISHED: [&str; 3] = [concat!("TO", "DO"), concat!("FIX", "ME"), concat!("XX", "X")];
const UNFINISHED_CODE: [&str; 4] = ["todo!", "unimplemented!", "dbg!", "#[ignore"];
/// Paths and tools of the machine someone happened to write this on.
const WORKPLACE: [&str; 5] = [
    concat!("/wo", "rk/"),
    concat!("/ro", "ot/"),
    concat!("/fa", "rm/"),
    concat!("fa", "rm-"),
    concat!("../sha", "red"),
];
const FORBID_UNSAFE: &str = "#![forbid(unsafe_code)]";
/// Crates that may contain unsafe code.
const UNSAFE_CRATES: [&str; 3] = ["crates/muse-cpu/", "crates/muse-tt-sys/", "crates/muse-tt/"];
/// The one file of a safe crate that may: it maps files.
const UNSAFE_FILE: &str = "crates/muse-weights/src/map.rs";
/// The one file of the core that sees a thread and a clock.
const THREAD_FILE: &str = "crates/muse-core/src/engine/thread.rs";
/// What makes a run depend on more than its input.
const IMPURE: [&str; 9] = [
    "std::fs",
    "std::io",
    "std::net",
    "std::env",
    "std::process",
    "std::thread",
    "Instant",
    "SystemTime",
    "println",
];
/// The one module that reads the environment.
const ENVIRONMENT_MODULE: &str = "crates/muse-serve/src/config/";

/// Faults of all files.
pub(super) fn check(sources: &[Source]) -> Vec<Fault> {
    let rules = [
        head,
        unsafe_places,
        forbids_unsafe,
        pure_core,
        async_places,
        environment,
        unfinished,
        workplace,
    ];
    sources.iter().flat_map(|source| rules.iter().filter_map(|rule| rule(source))).collect()
}

fn fault(source: &Source, at: usize, advice: &str) -> Option<Fault> {
    Some(format!("{}:{}: {advice}", source.path, line_of(&source.text, at)))
}

fn head(source: &Source) -> Option<Fault> {
    if !source.is_rust() || source.is_generated() || source.text.starts_with("//! ") {
        return None;
    }
    fault(source, 0, "open the file with `//!`: what it is, what it is not")
}

fn unsafe_places(source: &Source) -> Option<Fault> {
    let may =
        source.path == UNSAFE_FILE || UNSAFE_CRATES.iter().any(|c| source.path.starts_with(c));
    let at = find_word(&source.code, "unsafe").filter(|_| !may)?;
    fault(source, at, "unsafe code belongs into muse-cpu, muse-tt-sys, muse-tt or the mmap file")
}

fn forbids_unsafe(source: &Source) -> Option<Fault> {
    let is_root = source.path.ends_with("src/lib.rs") || source.path.ends_with("src/main.rs");
    let may = UNSAFE_FILE.starts_with(source.path.trim_end_matches("lib.rs"))
        || UNSAFE_CRATES.iter().any(|c| source.path.starts_with(c));
    if !is_root || may || source.code.contains(FORBID_UNSAFE) {
        return None;
    }
    fault(source, 0, &format!("add `{FORBID_UNSAFE}` to the crate root"))
}

fn pure_core(source: &Source) -> Option<Fault> {
    let code = source.code_before_tests();
    let used = IMPURE.iter().find_map(|name| find_word(code, name));
    let core = source.path.starts_with("crates/muse-core/src/") && source.path != THREAD_FILE;
    fault(source, used.filter(|_| core)?, &format!("only {THREAD_FILE} may; the core does no I/O"))
}

fn async_places(source: &Source) -> Option<Fault> {
    let may = source.path.starts_with("crates/muse-serve/")
        || source.path.starts_with("tests/")
        || source.is_generated();
    let at = ["async", "await"].iter().find_map(|word| find_word(&source.code, word));
    fault(source, at.filter(|_| !may)?, "asynchronous code belongs into muse-serve")
}

fn environment(source: &Source) -> Option<Fault> {
    let may = source.path.starts_with(ENVIRONMENT_MODULE)
        || ["xtask/", "tests/", "crates/muse-testkit/"].iter().any(|f| source.path.starts_with(f))
        || ["/tests/", "/benches/", "/build.rs"].iter().any(|f| source.path.contains(f));
    let code = source.code_before_tests();
    let at = ["env::var", "from_default_env"].iter().find_map(|read| code.find(read));
    fault(source, at.filter(|_| !may)?, &format!("only {ENVIRONMENT_MODULE} reads the environment"))
}

fn unfinished(source: &Source) -> Option<Fault> {
    let in_code = UNFINISHED_CODE.iter().find_map(|word| Some((source.code.find(word)?, *word)));
    let found =
        in_code.or_else(|| UNFINISHED.iter().find_map(|w| Some((find_word(&source.text, w)?, *w))));
    let (at, word) = found?;
    fault(source, at, &format!("`{word}` marks unfinished work: finish it or file it"))
}

fn workplace(source: &Source) -> Option<Fault> {
    let (at, word) = WORKPLACE.iter().find_map(|w| Some((source.text.find(w)?, *w)))?;
    fault(source, at, &format!("`{word}` is a path or tool of one machine: leave it out"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: &str = "//! A file.\n";

    /// The faults of one file that holds `text` below a proper head.
    fn faults(path: &str, text: &str) -> Vec<Fault> {
        check(&[Source::new(path, &format!("{HEAD}{text}\n"))])
    }

    #[track_caller]
    fn refuses(path: &str, text: &str, line: usize) {
        let found = faults(path, text);
        assert_eq!(found.len(), 1, "{path}: {text}: {found:?}");
        assert!(found[0].starts_with(&format!("{path}:{line}: ")), "{}", found[0]);
    }

    #[track_caller]
    fn allows(path: &str, text: &str) {
        assert_eq!(faults(path, text), Vec::<Fault>::new(), "{path}: {text}");
    }

    #[test]
    fn files_open_with_their_purpose() {
        for planted in ["", "use std::fs;\n//! Late.\n", "// A comment.\n", "//!\n"] {
            let found = check(&[Source::new("crates/muse-kv/src/a.rs", planted)]);
            assert_eq!(found.len(), 1, "{planted:?}: {found:?}");
        }
        assert!(
            check(&[Source::new("crates/muse-proto/src/generated/a.rs", "// made")]).is_empty()
        );
        assert!(check(&[Source::new("README.md", "# muse")]).is_empty());
    }

    #[test]
    fn unsafe_has_its_places() {
        let planted = "fn f() {\n    unsafe { g() }\n}";
        refuses("crates/muse-kv/src/pool.rs", planted, 3);
        refuses("crates/muse-weights/src/gguf.rs", planted, 3);
        refuses("tests/e2e/main.rs", planted, 3);
        allows("crates/muse-cpu/src/kernels/dot/avx2.rs", planted);
        allows("crates/muse-weights/src/map.rs", planted);
        allows("crates/muse-kv/src/pool.rs", "// Not unsafe.\nconst A: &str = \"unsafe\";");
    }

    #[test]
    fn safe_crates_forbid_it() {
        refuses("crates/muse-kv/src/lib.rs", "", 1);
        refuses("xtask/src/main.rs", "// #![forbid(unsafe_code)]", 1);
        allows("crates/muse-kv/src/lib.rs", FORBID_UNSAFE);
        allows("crates/muse-cpu/src/lib.rs", "");
        allows("crates/muse-weights/src/lib.rs", "");
    }

    #[test]
    fn the_core_sees_threads_and_clocks_in_one_file() {
        for planted in IMPURE {
            refuses("crates/muse-core/src/engine/step.rs", &format!("use {planted};"), 2);
            allows("crates/muse-core/src/engine/thread.rs", &format!("use {planted};"));
            allows("crates/muse-serve/src/app.rs", &format!("use {planted};"));
        }
    }

    #[test]
    fn async_lives_in_the_server() {
        refuses("crates/muse-core/src/engine/thread.rs", "async fn f() {}", 2);
        refuses("crates/muse-atem/src/a.rs", "fn f() { g().await }", 2);
        allows("crates/muse-serve/src/grpc/chat.rs", "async fn f() { g().await }");
        allows("tests/e2e/main.rs", "async fn f() {}");
        allows("crates/muse-core/src/a.rs", "// async is for others.");
    }

    #[test]
    fn the_environment_is_read_in_one_module() {
        let planted = "fn f() { std::env::var(\"MUSE\"); }";
        refuses("crates/muse-cpu/src/pool.rs", planted, 2);
        refuses("crates/muse-serve/src/main.rs", &format!("{FORBID_UNSAFE}\n{planted}"), 3);
        refuses("crates/muse-serve/src/log.rs", "fn f() { EnvFilter::from_default_env() }", 2);
        allows("crates/muse-serve/src/config/mod.rs", planted);
        allows("crates/muse-cpu/benches/dot.rs", planted);
        allows("crates/muse-cpu/src/pool.rs", &format!("#[cfg(test)]\nmod tests {{ {planted} }}"));
    }

    #[test]
    fn nothing_is_left_unfinished() {
        for planted in UNFINISHED_CODE {
            refuses("crates/muse-kv/src/pool.rs", planted, 2);
            allows("crates/muse-kv/src/pool.rs", &format!("const A: &str = \"{planted}\";"));
        }
        for planted in UNFINISHED {
            refuses("crates/muse-kv/src/pool.rs", &format!("// {planted}: later."), 2);
            refuses("README.md", planted, 2);
        }
    }

    #[test]
    fn nothing_speaks_of_the_workplace() {
        for planted in WORKPLACE {
            refuses("README.md", planted, 2);
            refuses("crates/muse-kv/src/pool.rs", &format!("// See {planted}notes."), 2);
        }
    }
}
