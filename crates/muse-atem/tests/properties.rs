//! Properties over generated turns: how the text is cut does not matter, tokens and text give the
//! same, and what was heard renders to what was written.

use std::sync::{Arc, LazyLock};

use muse_atem::json::Json;
use muse_atem::{Mark, TextOutputParser, TokenOutputParser, Tokenizer, render_history, spell};
use muse_core::contract::{
    Conversation, Message, OutputParser, ParsedEvent, Part, PromptPart, Token, Tool, ToolCall,
    Vocabulary,
};
use muse_testkit::nano_dir;
use proptest::prelude::*;

static NANO: LazyLock<Arc<Tokenizer>> = LazyLock::new(|| {
    let json = std::fs::read(nano_dir().join("target/tokenizer.json")).unwrap();
    Tokenizer::new(Vocabulary::HuggingFace(json)).unwrap()
});

const TOOLS: [&str; 3] = ["files.put", "count", "files.read"];
const KEYS: [&str; 3] = ["path", "body", "n"];

fn tools() -> Vec<Tool> {
    let parameters = r#"{"type": "object", "properties": {"path": {"type": "string"},
        "body": {"type": "string"}, "n": {"type": "integer"}}}"#;
    let tool = |name: &&str| Tool {
        name: (*name).to_owned(),
        description: String::new(),
        parameters: parameters.to_owned(),
        strict: false,
    };
    TOOLS.iter().map(tool).collect()
}

/// Text for people: no marks, but much that looks like the beginning of one.
fn prose() -> impl Strategy<Value = String> {
    let part = prop_oneof![
        Just(" to"),
        Just(" to="),
        Just(" to=co"),
        Just("<"),
        Just("<|"),
        Just("\n"),
        Just("🦭"),
        Just("</atem:parameter>"),
        Just("word "),
        Just("<atem:invoke"),
        Just(" to=user"),
        Just("| >"),
        Just("é"),
        Just("<|start"),
        Just(" to=files.put "),
    ];
    prop::collection::vec(part, 1..12).prop_map(|parts| format!("A{}", parts.concat()))
}

/// A value that quotes whatever it likes, as long as no closer in it looks like the real one.
fn value() -> impl Strategy<Value = String> {
    let part = prop_oneof![
        Just("</atem:parameter> or "),
        Just("</atem:invoke> x"),
        Just("<atem:parameter name=\"q\">"),
        Just("\n"),
        Just("  "),
        Just("<|message|>"),
        Just("<|start|> then "),
        Just("<|eom|>."),
        Just("text"),
        Just("to=user"),
        Just("{\"a\": 1}"),
        Just("</atem:function_calls>"),
        Just("🦭"),
        Just("<atem:function_calls>\n<atem:invoke name=\"count\">\n"),
        Just("<"),
    ];
    prop::collection::vec(part, 0..10).prop_map(|parts| parts.concat() + ".")
}

fn call() -> impl Strategy<Value = ToolCall> {
    let argument = (0..2_usize, value());
    (0..TOOLS.len(), prop::collection::vec(argument, 0..3), any::<Option<i64>>()).prop_map(
        |(tool, texts, number)| {
            let mut members: Vec<(String, Json)> = Vec::new();
            for (key, text) in texts {
                members.push((KEYS[key].to_owned(), Json::String(text)));
            }
            if let Some(number) = number {
                members.push(("n".to_owned(), Json::parse(&number.to_string()).unwrap()));
            }
            let arguments = Json::object(members).to_compact();
            ToolCall { id: String::new(), name: TOOLS[tool].to_owned(), arguments }
        },
    )
}

/// A turn as it would stand in a history.
fn turn() -> impl Strategy<Value = Message> {
    let answer = prose().prop_map(|text| (vec![Part::Text(text)], Vec::new()));
    let calls = prop::collection::vec(call(), 1..3).prop_map(|calls| (Vec::new(), calls));
    (prop::option::of(prose()), prop_oneof![answer, calls]).prop_map(
        |(reasoning, (content, calls))| Message::Assistant {
            reasoning,
            content,
            calls,
            recipient: None,
            end_turn: None,
        },
    )
}

/// What the model wrote to make `turn`: the pieces behind the generation prompt.
fn written(turn: &Message) -> Vec<PromptPart> {
    let mut pieces = rendered(turn);
    assert_eq!(pieces.remove(0), PromptPart::Special("<|start|>"));
    match &mut pieces[0] {
        PromptPart::Text(text) => *text = text.strip_prefix("assistant").unwrap().to_owned(),
        other => panic!("the header begins with {other:?}"),
    }
    pieces
}

fn rendered(turn: &Message) -> Vec<PromptPart> {
    let system = Message::System(vec![Part::Text("S".to_owned())]);
    let history = |messages| Conversation { messages, tools: tools(), ..Conversation::default() };
    let before = render_history(&history(vec![system.clone()])).unwrap();
    let mut pieces = render_history(&history(vec![system, turn.clone()])).unwrap();
    pieces.drain(..before.len());
    pieces
}

/// What was heard, joined, as the turn it makes.
fn heard_turn(heard: &[ParsedEvent]) -> Message {
    let (mut reasoning, mut content, mut calls) = (String::new(), String::new(), Vec::new());
    for event in heard {
        match event {
            ParsedEvent::Reasoning(text) => reasoning.push_str(text),
            ParsedEvent::Content(text) => content.push_str(text),
            ParsedEvent::ToolCall(call) => {
                calls.push(ToolCall { id: String::new(), ..call.clone() })
            }
            other => panic!("heard {other:?}"),
        }
    }
    Message::Assistant {
        reasoning: (!reasoning.is_empty()).then_some(reasoning),
        content: if content.is_empty() { Vec::new() } else { vec![Part::Text(content)] },
        calls,
        recipient: None,
        end_turn: None,
    }
}

fn hear_text<'a>(parts: impl IntoIterator<Item = &'a [u8]>, complete: bool) -> Vec<ParsedEvent> {
    let conversation = Conversation { tools: tools(), ..Conversation::default() };
    let mut listener = TextOutputParser::new(&conversation, &[]);
    let mut out = Vec::new();
    for part in parts {
        listener.hear_bytes(part, &mut out);
    }
    listener.finish(complete, &mut out);
    out
}

fn hear_tokens(pieces: &[PromptPart]) -> Vec<ParsedEvent> {
    let conversation = Conversation { tools: tools(), ..Conversation::default() };
    let mut listener = TokenOutputParser::new(&conversation, &[], NANO.clone() as Arc<_>);
    let mut out = Vec::new();
    for token in tokens(pieces) {
        listener.push(token, &mut out);
    }
    listener.finish(true, &mut out);
    out
}

fn tokens(pieces: &[PromptPart]) -> Vec<Token> {
    muse_atem::encode(pieces, NANO.as_ref()).unwrap()
}

/// Whether a delta shows a mark or a header.
fn shows_framing(heard: &[ParsedEvent]) -> bool {
    heard.iter().any(|event| match event {
        ParsedEvent::Reasoning(text) | ParsedEvent::Content(text) => {
            Mark::ALL.iter().any(|mark| text.contains(mark.text())) || text.contains("to=self")
        }
        _ => false,
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn rendering_what_was_heard_gives_what_was_written(turn in turn()) {
        let pieces = written(&turn);
        prop_assert_eq!(&heard_turn(&hear_tokens(&pieces)), &turn);
        let text = spell(&pieces);
        prop_assert_eq!(&heard_turn(&hear_text([text.as_bytes()], true)), &turn);
        prop_assert_eq!(spell(&rendered(&turn)), format!("<|start|>assistant{text}"));
    }

    #[test]
    fn cuts_do_not_matter(turn in turn(), cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..6)) {
        let text = spell(&written(&turn));
        let whole = heard_turn(&hear_text([text.as_bytes()], true));
        let by_byte = hear_text(text.as_bytes().chunks(1), true);
        prop_assert!(!shows_framing(&by_byte), "{:?}", by_byte);
        let by_byte = heard_turn(&by_byte);
        prop_assert_eq!(&by_byte, &whole);
        for at in 0..=text.len() {
            let (one, other) = text.as_bytes().split_at(at);
            prop_assert_eq!(&heard_turn(&hear_text([one, other], true)), &whole, "cut at {}", at);
        }
        let mut places: Vec<usize> = cuts.iter().map(|cut| cut.index(text.len() + 1)).collect();
        places.extend([0, text.len()]);
        places.sort_unstable();
        let parts = places.windows(2).map(|pair| &text.as_bytes()[pair[0]..pair[1]]);
        prop_assert_eq!(&heard_turn(&hear_text(parts, true)), &whole);
    }

    #[test]
    fn any_text_in_any_cut_gives_the_same(
        parts in prop::collection::vec(prop_oneof![
            prose(), value(), Just("<|eom|>".to_owned()), Just("<|start|>assistant".to_owned()),
            Just(" to=count<|message|>".to_owned()), Just(" to=self<|message|>".to_owned()),
            Just("<atem:function_calls>\n<atem:invoke name=\"count\">\n".to_owned()),
            Just("<atem:parameter name=\"n\">".to_owned()), Just("1</atem:parameter>\n".to_owned()),
            Just("</atem:invoke>\n</atem:function_calls>".to_owned()), Just("<|eot|>".to_owned()),
            Just("<|start|>user<|message|>".to_owned()), Just("<|start|>assistant to=files.put<|message|>".to_owned()),
        ], 0..14),
        complete in any::<bool>(),
    ) {
        let text = parts.concat();
        let whole = heard_turn(&hear_text([text.as_bytes()], complete));
        prop_assert_eq!(&heard_turn(&hear_text(text.as_bytes().chunks(1), complete)), &whole);
        let letters: Vec<usize> = text.char_indices().map(|(at, _)| at).chain([text.len()]).collect();
        let by_letter = letters.windows(2).map(|pair| &text.as_bytes()[pair[0]..pair[1]]);
        prop_assert_eq!(&heard_turn(&hear_text(by_letter, complete)), &whole);
        for at in 0..=text.len() {
            let (one, other) = text.as_bytes().split_at(at);
            prop_assert_eq!(&heard_turn(&hear_text([one, other], complete)), &whole, "cut at {}", at);
        }
    }

    #[test]
    fn nothing_is_taken_back_when_the_answer_is_cut(turn in turn(), cut in any::<prop::sample::Index>()) {
        let text = spell(&written(&turn));
        let whole = heard_turn(&hear_text([text.as_bytes()], true));
        let cut = heard_turn(&hear_text([&text.as_bytes()[..cut.index(text.len() + 1)]], false));
        let (Message::Assistant { calls: all, .. }, Message::Assistant { calls: some, .. }) = (&whole, &cut)
        else { unreachable!() };
        // A cut answer holds the first calls of the whole one, and never half of one.
        prop_assert_eq!(&all[..some.len()], &some[..]);
    }

    #[test]
    fn json_prints_back(text in json_text(3)) {
        let value = Json::parse(&text).unwrap();
        prop_assert_eq!(&Json::parse(&value.to_compact()).unwrap(), &value);
        prop_assert_eq!(Json::parse(&value.to_python()).unwrap().to_python(), value.to_python());
    }
}

fn json_text(depth: u32) -> impl Strategy<Value = String> {
    let leaf = prop_oneof![
        Just("null".to_owned()),
        Just("true".to_owned()),
        any::<i64>().prop_map(|n| n.to_string()),
        (-1e300..1e300_f64).prop_map(|n| format!("{n:e}")),
        any::<String>().prop_map(|text| Json::String(text).to_compact()),
    ];
    leaf.prop_recursive(depth, 32, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4)
                .prop_map(|items| format!("[{}]", items.join(" , "))),
            prop::collection::vec((any::<String>(), inner), 0..4).prop_map(|members| {
                let members: Vec<String> = members
                    .into_iter()
                    .map(|(key, value)| format!("{}:{value}", Json::String(key).to_compact()))
                    .collect();
                format!("{{ {} }}", members.join(","))
            }),
        ]
    })
}
