//! Properties over generated messages: results do not depend on how text is split, tokens and text
//! give the same events, and parsed messages render to what was generated.

use std::sync::{Arc, LazyLock};
use std::time::Instant;

use muse_atem::json::Json;
use muse_atem::{
    SpecialToken, TextOutputParser, TokenOutputParser, Tokenizer, render_history, spell,
};
use muse_core::contract::{
    Conversation, Message, OutputParser, ParsedEvent, Part, PromptPart, Token, Tokenizer as _,
    Tool, ToolCall, Vocabulary,
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

/// Text without special tokens, but with many beginnings of them.
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

/// A value that may quote calls, unless a quoted closer looks like the real one.
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

/// A message as it stands in a history.
fn message() -> impl Strategy<Value = Message> {
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

/// What the model generates for `message`: the prompt parts after the generation prompt.
fn written(message: &Message) -> Vec<PromptPart> {
    let mut parts = rendered(message);
    assert_eq!(parts.remove(0), PromptPart::Special("<|start|>"));
    match &mut parts[0] {
        PromptPart::Text(text) => *text = text.strip_prefix("assistant").unwrap().to_owned(),
        other => panic!("the header begins with {other:?}"),
    }
    parts
}

fn rendered(message: &Message) -> Vec<PromptPart> {
    let system = Message::System(vec![Part::Text("S".to_owned())]);
    let history = |messages| Conversation { messages, tools: tools(), ..Conversation::default() };
    let before = render_history(&history(vec![system.clone()])).unwrap();
    let mut parts = render_history(&history(vec![system, message.clone()])).unwrap();
    parts.drain(..before.len());
    parts
}

/// Events joined to the message they describe.
fn parsed_message(events: &[ParsedEvent]) -> Message {
    let (mut reasoning, mut content, mut calls) = (String::new(), String::new(), Vec::new());
    for event in events {
        match event {
            ParsedEvent::Reasoning(text) => reasoning.push_str(text),
            ParsedEvent::Content(text) => content.push_str(text),
            ParsedEvent::ToolCall(call) => {
                calls.push(ToolCall { id: String::new(), ..call.clone() })
            }
            other => panic!("events {other:?}"),
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

fn parse_text<'a>(parts: impl IntoIterator<Item = &'a [u8]>, complete: bool) -> Vec<ParsedEvent> {
    let conversation = Conversation { tools: tools(), ..Conversation::default() };
    let mut parser = TextOutputParser::new(&conversation, &[]);
    let mut out = Vec::new();
    for part in parts {
        parser.push_bytes(part, &mut out);
    }
    parser.finish(complete, &mut out);
    out
}

fn parse_tokens(parts: &[PromptPart]) -> Vec<ParsedEvent> {
    let conversation = Conversation { tools: tools(), ..Conversation::default() };
    let mut parser = TokenOutputParser::new(&conversation, &[], NANO.clone() as Arc<_>);
    let mut out = Vec::new();
    for token in tokens(parts) {
        parser.push(token, &mut out);
    }
    parser.finish(true, &mut out);
    out
}

fn tokens(parts: &[PromptPart]) -> Vec<Token> {
    muse_atem::encode(parts, NANO.as_ref()).unwrap()
}

/// Whether an event contains a special token or a header.
fn shows_framing(events: &[ParsedEvent]) -> bool {
    events.iter().any(|event| match event {
        ParsedEvent::Reasoning(text) | ParsedEvent::Content(text) => {
            SpecialToken::ALL.iter().any(|special| text.contains(special.text()))
                || text.contains("to=self")
        }
        _ => false,
    })
}

/// A part of what a model may generate.
#[derive(Clone, Debug)]
enum Generated {
    Text(String),
    Special(SpecialToken),
    Token(u32),
}

fn count_call() -> String {
    "<atem:function_calls>\n<atem:invoke name=\"count\">\n<atem:parameter name=\"n\">1\
     </atem:parameter>\n</atem:invoke>\n</atem:function_calls>"
        .to_owned()
}

fn content(events: &[ParsedEvent]) -> String {
    let contents = events.iter().filter_map(|event| match event {
        ParsedEvent::Content(text) => Some(text.as_str()),
        _ => None,
    });
    contents.collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn parsed_messages_render_to_what_was_generated(message in message()) {
        let parts = written(&message);
        prop_assert_eq!(&parsed_message(&parse_tokens(&parts)), &message);
        let text = spell(&parts);
        prop_assert_eq!(&parsed_message(&parse_text([text.as_bytes()], true)), &message);
        prop_assert_eq!(spell(&rendered(&message)), format!("<|start|>assistant{text}"));
    }

    #[test]
    fn splits_do_not_matter(message in message(), cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..6)) {
        let text = spell(&written(&message));
        let whole = parsed_message(&parse_text([text.as_bytes()], true));
        let by_byte = parse_text(text.as_bytes().chunks(1), true);
        prop_assert!(!shows_framing(&by_byte), "{:?}", by_byte);
        let by_byte = parsed_message(&by_byte);
        prop_assert_eq!(&by_byte, &whole);
        for at in 0..=text.len() {
            let (one, other) = text.as_bytes().split_at(at);
            prop_assert_eq!(&parsed_message(&parse_text([one, other], true)), &whole, "cut at {}", at);
        }
        let mut places: Vec<usize> = cuts.iter().map(|cut| cut.index(text.len() + 1)).collect();
        places.extend([0, text.len()]);
        places.sort_unstable();
        let parts = places.windows(2).map(|pair| &text.as_bytes()[pair[0]..pair[1]]);
        prop_assert_eq!(&parsed_message(&parse_text(parts, true)), &whole);
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
        let whole = parsed_message(&parse_text([text.as_bytes()], complete));
        prop_assert_eq!(&parsed_message(&parse_text(text.as_bytes().chunks(1), complete)), &whole);
        let letters: Vec<usize> = text.char_indices().map(|(at, _)| at).chain([text.len()]).collect();
        let by_character = letters.windows(2).map(|pair| &text.as_bytes()[pair[0]..pair[1]]);
        prop_assert_eq!(&parsed_message(&parse_text(by_character, complete)), &whole);
        for at in 0..=text.len() {
            let (one, other) = text.as_bytes().split_at(at);
            prop_assert_eq!(&parsed_message(&parse_text([one, other], complete)), &whole, "cut at {}", at);
        }
    }

    #[test]
    fn nothing_is_taken_back_when_the_answer_is_cut(message in message(), cut in any::<prop::sample::Index>()) {
        let text = spell(&written(&message));
        let whole = parsed_message(&parse_text([text.as_bytes()], true));
        let cut = parsed_message(&parse_text([&text.as_bytes()[..cut.index(text.len() + 1)]], false));
        let (Message::Assistant { calls: all, .. }, Message::Assistant { calls: some, .. }) = (&whole, &cut)
        else { unreachable!() };
        // A truncated answer has the first calls of the complete one, and never a partial call.
        prop_assert_eq!(&all[..some.len()], &some[..]);
    }

    #[test]
    fn content_tokens_join_to_the_content(
        parts in prop::collection::vec(prop_oneof![
            4 => prose().prop_map(Generated::Text),
            1 => value().prop_map(Generated::Text),
            2 => prop::sample::select(vec![" to=user", " to=self", " to=count", " to=files.put", "assistant",
                "assistant to=user", "assistant to=self", " ", "END", "\n", "tool x", "\u{fffd}"])
                .prop_map(|text| Generated::Text(text.to_owned())),
            1 => prop::sample::select(vec![count_call(), count_call().replace("</atem:invoke>", "<|eom|>")])
                .prop_map(Generated::Text),
            4 => prop::sample::select(SpecialToken::ALL.to_vec()).prop_map(Generated::Special),
            2 => (0..1024_u32).prop_map(Generated::Token),
        ], 0..20),
        declared in any::<bool>(),
        stop in prop::collection::vec(prop::sample::select(vec!["END", "\nA", "\n", "o=u", "🦭", "<|message|>", "AA"]), 0..3),
        complete in any::<bool>(),
    ) {
        let tools = if declared { tools() } else { Vec::new() };
        let conversation = Conversation { tools, ..Conversation::default() };
        let stop: Vec<String> = stop.into_iter().map(str::to_owned).collect();
        let mut parser = TokenOutputParser::new(&conversation, &stop, NANO.clone() as Arc<_>);
        let (mut out, mut shares) = (Vec::new(), Vec::new());
        let mut tokens = Vec::new();
        for part in &parts {
            match part {
                Generated::Text(text) => NANO.encode(text, &mut tokens),
                Generated::Special(special) => tokens.push(special.id(NANO.as_ref()).unwrap()),
                Generated::Token(id) => tokens.push(Token(*id)),
            }
        }
        for token in &tokens {
            parser.push(*token, &mut out);
            parser.content_tokens(&mut shares);
            let settled: usize = shares.iter().map(|share| share.bytes).sum();
            prop_assert!(settled <= content(&out).len(), "more than the content");
            // The server reads no further.
            if out.iter().any(|event| matches!(event, ParsedEvent::StopText(_))) {
                break;
            }
        }
        if !out.iter().any(|event| matches!(event, ParsedEvent::StopText(_))) {
            parser.finish(complete, &mut out);
            parser.content_tokens(&mut shares);
        }
        let content = content(&out);
        let joined: usize = shares.iter().map(|share| share.bytes).sum();
        prop_assert_eq!(joined, content.len(), "{:?} of {:?}", shares, content);
        let mut at = 0;
        for share in &shares {
            let part = &content.as_bytes()[at..at + share.bytes];
            at += share.bytes;
            let mut bytes = Vec::new();
            NANO.decode(tokens[share.index], &mut bytes);
            let part = part.strip_prefix(b"\n").filter(|_| !bytes.starts_with(part)).unwrap_or(part);
            let is_part = bytes.windows(part.len().max(1)).any(|window| window == part);
            let replaced = std::str::from_utf8(part).is_ok_and(|text| text.contains('\u{fffd}'));
            prop_assert!(is_part || replaced || part.is_empty(), "{:?} is no part of {:?}", part, bytes);
        }
        prop_assert!(shares.windows(2).all(|pair| pair[0].index < pair[1].index), "{:?}", shares);
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

/// Tokenizing is linear in the length of a word: a megabyte without spaces takes a second, not hours.
#[test]
fn one_long_word_is_tokenized_in_linear_time() {
    let time = |length: usize, word: &str| {
        let text = word.repeat(length / word.len());
        let start = Instant::now();
        let mut tokens = Vec::new();
        NANO.encode(&text, &mut tokens);
        let mut bytes = Vec::new();
        tokens.iter().for_each(|&token| NANO.decode(token, &mut bytes));
        assert!(bytes == text.as_bytes(), "the tokens spell another text");
        start.elapsed()
    };
    for word in ["a", "lo", "!"] {
        // Another program may take the processor meanwhile: the best of some runs counts.
        let ratio = || time(600_000, word).as_secs_f64() / time(60_000, word).as_secs_f64();
        let linear = (0..5).any(|_| ratio() < 30.0);
        assert!(linear, "ten times the length of {word:?} takes over thirty times as long");
    }
}
