//! Names that the glossary of CONTRIBUTING.md replaced. Defining one again is a fault; ordinary
//! words in prose are free.

use super::Fault;
use crate::source::{Source, line_of};

/// Words that define the name behind them.
const DEFINES: [&str; 9] =
    ["struct", "enum", "trait", "type", "fn", "mod", "const", "static", "union"];

/// Retired names, each with the name to use, and where they are retired.
struct Retired {
    /// Beginnings of paths; every file when empty.
    below: &'static [&'static str],
    names: &'static [(&'static str, &'static str)],
}

/// Refused as names of items.
const DEFINITIONS: [Retired; 9] = [
    Retired {
        below: &[],
        names: &[
            ("Place", "SeqSlice"),
            ("Pages", "KvBlocks"),
            ("PageTable", "BlockTable"),
            ("PageGroup", "KvGroup"),
            ("PageKey", "PositionKey"),
            ("PageCount", "BlockCount"),
            ("PageCopy", "BlockCopy"),
            ("PAGE_TOKENS", "KV_BLOCK_SIZE"),
            ("scale_cap", "scale_softcap"),
            ("PickRow", "SampleRow"),
            ("Picked", "Sampled"),
            ("pick", "sample"),
            ("Target", "TargetModel"),
            ("Head", "EmbeddingAndLmHead"),
            ("unembed", "lm_head"),
            ("taps", "captured_hidden"),
            ("absorb", "append_context"),
            ("Kept", "ContextSlice"),
            ("Guess", "DraftToken"),
            ("guess", "draft"),
            ("Pace", "DraftStats"),
            ("Governor", "DraftController"),
            ("Floor", "ConfidenceThreshold"),
            ("Loop", "EngineCore"),
            ("Seq", "Sequence"),
            ("send_back_youngest", "preempt_last"),
            ("speak", "emit"),
            ("give_up", "abort"),
            ("Shelf", "KvOffloadStore"),
            ("shelf", "offload_store"),
            ("Spill", "KvOffload"),
            ("spill", "offload"),
            ("ColdPage", "PrefixBlock"),
            ("PrefixName", "PrefixHash"),
            ("Cold", "KvOffload"),
            ("Listener", "OutputParser"),
            ("hear", "push"),
            ("Heard", "ParsedEvent"),
            ("TokenListener", "TokenOutputParser"),
            ("TextListener", "TextOutputParser"),
            ("Voice", "EventBuffer"),
            ("Letters", "Utf8Decoder"),
            ("Turn", "Message"),
            ("Piece", "PromptPart"),
            ("Workshop", "CompileQueue"),
            ("aside", "blocking"),
            ("Passes", "ModelRunner"),
            ("Ceilings", "Roofline"),
            ("Mix", "BfpPolicy"),
            ("Rounded", "RoundedWeights"),
            ("soften", "online_softmax"),
            ("Packing", "PackedLayout"),
            ("Levels", "CodebookLayout"),
            ("Bent", "FaultyBackend"),
            ("bent", "faulty"),
            ("Teller", "StreamPrinter"),
            ("mutter", "print_dimmed"),
        ],
    },
    Retired {
        below: &["crates/muse-serve/"],
        names: &[
            ("Ask", "ChatJob"),
            ("Spent", "ChatUsage"),
            ("End", "ChatFinish"),
            ("Feed", "EventStream"),
            ("Choice", "ChoiceState"),
            ("Turns", "AnswerTokenCache"),
            ("Gate", "DrainGuard"),
            ("Pass", "Permit"),
            ("Line", "SingleSeqRunner"),
            ("Work", "PassWork"),
            ("wire", "runtime"),
        ],
    },
    Retired {
        below: &["crates/muse-core/"],
        names: &[
            ("Span", "BatchEntry"),
            ("Rows", "BatchInput"),
            ("Scores", "LogitsRequest"),
            ("scores", "logits"),
            ("Cost", "StepCost"),
            ("room", "draft_budget"),
            ("agreed", "accepted"),
            ("Ask", "Request"),
            ("mix", "hash64"),
            ("judge", "verify"),
            ("sweep", "reap_finished"),
            ("page_bytes", "block_bytes"),
        ],
    },
    Retired {
        below: &["crates/muse-kv/"],
        names: &[("page_bytes", "block_bytes"), ("pages", "blocks")],
    },
    Retired {
        below: &["crates/muse-dflash/"],
        names: &[("page_bytes", "block_bytes"), ("tap", "captured_hidden")],
    },
    Retired { below: &["crates/muse-testkit/"], names: &[("page_bytes", "block_bytes")] },
    Retired {
        below: &["crates/muse-cpu/"],
        names: &[
            ("numbers", "quants"),
            ("WHOLE", "INTEGER_SCALES"),
            ("Of", "a_real_name"),
            ("company", "batch_composition"),
            ("mix", "weighted_v_sum"),
        ],
    },
    Retired {
        below: &["crates/muse-tt/"],
        names: &[("Cost", "KernelCost"), ("Gate", "DeviceLock")],
    },
    Retired {
        below: &["crates/muse-atem/src/"],
        names: &[
            ("Gate", "CompileSlot"),
            ("Answer", "AnswerState"),
            ("Mark", "SpecialToken"),
            ("mark", "special_token"),
            ("letters", "utf8"),
            ("voice", "events"),
        ],
    },
];

/// Refused as any identifier in code: fields, locals and parameters too.
const IDENTIFIERS: [(&str, &str); 9] = [
    ("step_rows", "max_num_batched_tokens"),
    ("mixed_rows", "mixed_prefill_tokens"),
    ("max_active", "max_num_seqs"),
    ("most_parallel", "default_max_parallel"),
    ("token_gap", "target_itl"),
    ("score_rows", "max_logits_rows"),
    ("kv_spill", "kv_disk"),
    ("full_pages", "full_blocks"),
    ("window_pages", "window_blocks"),
];

/// Options that no text names any more.
const OPTIONS: [(&str, &str); 5] = [
    ("--token-gap", "--target-itl"),
    ("--kv-spill", "--kv-disk"),
    ("--kv-spill-bytes", "--kv-disk-bytes"),
    ("MUSE_TOKEN_GAP", "MUSE_TARGET_ITL"),
    ("MUSE_KV_SPILL", "MUSE_KV_DISK"),
];

/// Faults of all files.
pub(super) fn check(sources: &[Source]) -> Vec<Fault> {
    let mut faults = Vec::new();
    // This file lists the names; the changelog may tell of them.
    let own = |source: &&Source| !source.path.starts_with("xtask/src/tidy/");
    for source in sources.iter().filter(own) {
        for (at, name) in definitions(&source.code) {
            faults.extend(refusal(source, at, name, &DEFINITIONS));
        }
        for (at, name) in identifiers(&source.code) {
            let list = [Retired { below: &[], names: &IDENTIFIERS }];
            faults.extend(refusal(source, at, name, &list));
        }
        faults.extend(OPTIONS.iter().filter_map(|(old, new)| option(source, old, new)));
    }
    faults
}

fn refusal(source: &Source, at: usize, name: &str, list: &[Retired]) -> Option<Fault> {
    let here = |retired: &&Retired| {
        retired.below.is_empty() || retired.below.iter().any(|b| source.path.starts_with(b))
    };
    let mut names = list.iter().filter(here).flat_map(|retired| retired.names);
    let (_, now) = names.find(|(old, _)| *old == name)?;
    Some(format!(
        "{}:{}: `{name}` is retired, use {now} (see the glossary in CONTRIBUTING.md)",
        source.path,
        line_of(&source.code, at)
    ))
}

fn option(source: &Source, old: &str, new: &str) -> Option<Fault> {
    let part = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    let whole = |at: &usize| !source.text[at + old.len()..].starts_with(part);
    let at = source.text.match_indices(old).map(|(at, _)| at).find(whole)?;
    let line = line_of(&source.text, at);
    Some(format!("{}:{line}: the option {old} is retired, use {new}", source.path))
}

/// Names that blanked code defines, with their places.
fn definitions(code: &str) -> Vec<(usize, &str)> {
    let words: Vec<(usize, &str)> = identifiers(code).collect();
    let pairs = words.windows(2).filter(|pair| {
        let ((first, keyword), (second, _)) = (pair[0], pair[1]);
        let between = &code[first + keyword.len()..second];
        let lifetime = code[..first].ends_with('\'');
        // Indented, it is an associated type, whose name its trait gives.
        let line = code[..first].rsplit('\n').next().unwrap_or_default();
        let associated = keyword == "type" && line.starts_with(' ');
        let blank = between.chars().all(char::is_whitespace);
        DEFINES.contains(&keyword) && !lifetime && !associated && blank
    });
    pairs.map(|pair| pair[1]).collect()
}

/// Identifiers and keywords of blanked code, with their places.
fn identifiers(code: &str) -> impl Iterator<Item = (usize, &str)> {
    let part = |c: char| c.is_alphanumeric() || c == '_';
    let mut at = 0;
    std::iter::from_fn(move || {
        let begin = at + code[at..].find(part)?;
        let end = code[begin..].find(|c| !part(c)).map_or(code.len(), |n| begin + n);
        at = end;
        Some((begin, &code[begin..end]))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIST: [Retired; 2] = [
        Retired { below: &[], names: &[("Shelf", "KvOffloadStore"), ("sweep", "reap_finished")] },
        Retired { below: &["crates/a/"], names: &[("Gate", "DrainGuard")] },
    ];

    fn defined(path: &str, code: &str) -> Vec<Fault> {
        let source = Source::new(path, code);
        let found = definitions(&source.code);
        found.into_iter().filter_map(|(at, name)| refusal(&source, at, name, &LIST)).collect()
    }

    #[test]
    fn definitions_of_retired_names_are_found() {
        for planted in [
            "struct Shelf;",
            "pub enum Shelf {}",
            "pub(crate) trait Shelf<T> {}",
            "type Shelf = u8;",
            "mod\n    Shelf;",
            "pub const Shelf: u8 = 1;",
            "unsafe fn sweep() {}",
        ] {
            let found = defined("crates/b/src/a.rs", &format!("//! A.\n{planted}"));
            assert_eq!(found.len(), 1, "{planted}: {found:?}");
            assert!(found[0].contains("retired, use "), "{}", found[0]);
        }
        for free in [
            "// struct Shelf",
            "let a = \"struct Shelf\";",
            "struct ShelfLife;",
            "use b::Shelf;",
            "fn f(a: &'static Shelf, b: fn(Shelf)) {}",
            "impl Deref for B {\n    type Shelf = C;\n}",
        ] {
            assert_eq!(defined("crates/b/src/a.rs", free), Vec::<Fault>::new(), "{free}");
        }
    }

    #[test]
    fn a_name_may_be_retired_in_some_crates_only() {
        assert_eq!(defined("crates/a/src/a.rs", "struct Gate;").len(), 1);
        assert_eq!(defined("crates/b/src/a.rs", "struct Gate;"), Vec::<Fault>::new());
    }

    /// What the tree refuses, by the lists above.
    #[test]
    fn the_lists_are_in_force() {
        let faults = |text: &str| check(&[Source::new("crates/muse-kv/src/a.rs", text)]);
        for list in &DEFINITIONS {
            for (old, now) in list.names {
                let path = list.below.first().unwrap_or(&"crates/muse-kv/");
                let source = Source::new(&format!("{path}a.rs"), &format!("\nfn {old}() {{}}"));
                let found = check(&[source]);
                assert!(found.iter().any(|fault| fault.contains(now)), "{old}: {found:?}");
                assert!(found[0].starts_with(&format!("{path}a.rs:2: ")), "{}", found[0]);
            }
        }
        for (old, now) in IDENTIFIERS {
            let found = faults(&format!("let {old} = 1;"));
            assert!(found.len() == 1 && found[0].contains(now), "{old}: {found:?}");
        }
        for (old, now) in OPTIONS {
            let found = faults(&format!("// `muse serve {old} 5`"));
            assert!(found.len() == 1 && found[0].contains(now), "{old}: {found:?}");
            assert_eq!(faults(&format!("// {old}-more")), Vec::<Fault>::new());
        }
    }
}
