//! Rules of the output parser beyond the golden cases: inputs with the expected result beside them.

use std::sync::{Arc, LazyLock};

use muse_atem::{TextOutputParser, TokenOutputParser, Tokenizer};
use muse_core::contract::{
    Channel, Conversation, OutputParser, ParsedEvent, PromptPart, Token, Tokenizer as _, Tool,
    Vocabulary,
};
use muse_testkit::nano_dir;

static NANO: LazyLock<Arc<Tokenizer>> = LazyLock::new(|| {
    let json = std::fs::read(nano_dir().join("target/tokenizer.json")).unwrap();
    Tokenizer::new(Vocabulary::HuggingFace(json)).unwrap()
});

fn conversation() -> Conversation {
    let tool = |name: &str, properties: &str| Tool {
        name: name.to_owned(),
        description: String::new(),
        parameters: format!(r#"{{"type": "object", "properties": {{{properties}}}}}"#),
        strict: false,
    };
    let text = r#""path": {"type": "string"}, "body": {"type": "string"}"#;
    let tools = vec![
        tool("count", r#""n": {"type": "integer"}"#),
        tool("files.put", text),
        tool("garden.list_beds", ""),
        tool("calendar.find", r#""day": {"type": "string"}"#),
    ];
    Conversation { tools, ..Conversation::default() }
}

/// `reasoning|content|calls`, calls as `name{arguments}`.
fn summary(events: &[ParsedEvent]) -> String {
    let (mut reasoning, mut content, mut calls) = (String::new(), String::new(), String::new());
    for event in events {
        match event {
            ParsedEvent::Reasoning(text) => reasoning.push_str(text),
            ParsedEvent::Content(text) => content.push_str(text),
            ParsedEvent::ToolCall(call) => {
                calls.push_str(&format!("{}{}", call.name, call.arguments))
            }
            ParsedEvent::ToolCallDelta(_) => {}
            ParsedEvent::StopText(stop) => content.push_str(&format!("[stop {stop}]")),
        }
    }
    format!("{reasoning}|{content}|{calls}")
}

fn parse_with(conversation: &Conversation, text: &str, complete: bool, stop: &[String]) -> String {
    let mut parser = TextOutputParser::new(conversation, stop);
    let mut out = Vec::new();
    text.as_bytes().chunks(3).for_each(|part| parser.push_bytes(part, &mut out));
    parser.finish(complete, &mut out);
    summary(&out)
}

#[track_caller]
fn check(text: &str, expect: &str) {
    assert_eq!(parse_with(&conversation(), text, true, &[]), expect, "{text}");
}

#[track_caller]
fn check_cut(text: &str, expect: &str) {
    assert_eq!(parse_with(&conversation(), text, false, &[]), expect, "{text}");
}

/// `{n}` is the n-th special token of the vocabulary; the rest is text.
fn tokens(text: &str) -> Vec<Token> {
    let mut tokens = Vec::new();
    for (i, part) in text.split(['{', '}']).enumerate() {
        if i % 2 == 1 {
            tokens.push(Token(896 + part.parse::<u32>().unwrap()));
        } else {
            NANO.encode(part, &mut tokens);
        }
    }
    tokens
}

#[track_caller]
fn check_tokens(text: &str, complete: bool, expect: &str) {
    let mut parser = TokenOutputParser::new(&conversation(), &[], NANO.clone() as Arc<_>);
    let mut out = Vec::new();
    tokens(text).into_iter().for_each(|token| parser.push(token, &mut out));
    parser.finish(complete, &mut out);
    assert_eq!(summary(&out), expect, "{text}");
}

fn invoke(name: &str, parameters: &str) -> String {
    format!("<atem:invoke name=\"{name}\">\n{parameters}</atem:invoke>\n")
}

fn parameter(key: &str, value: &str) -> String {
    format!("<atem:parameter name=\"{key}\">{value}</atem:parameter>\n")
}

fn block(invokes: &str) -> String {
    format!("<atem:function_calls>\n{invokes}</atem:function_calls>")
}

fn count(n: u32) -> String {
    block(&invoke("count", &parameter("n", &n.to_string())))
}

#[test]
fn r2_headers() {
    check("Hello<|eot|>", "|Hello|");
    check("<|message|>Hi<|eot|>", "|Hi|");
    check(" <|message|>Hi<|eot|>", "|Hi|");
    check("<|start|>assistant<|message|>Hi<|eot|>", "|Hi|");
    check(" to=user<|message|>a<|eom|>b<|eot|>", "|a\nb|");
    check(" to=user<|message|>a<|start|>assistant to=self<|message|>b<|eot|>", "b|a|");
    check(" to=user<|message|>a<|start|>system<|message|>b<|eot|>", "|a|");
    check(" to=user<|message|>a<|start|>tool count<|message|>b<|eot|>", "|a|");
    check(" to=user<|message|>a<|start|>robot<|message|>b<|eot|>", "|a<|start|>robot<|message|>b|");
    check(" to=user<|message|>a<|start|><|start|>assistant<|message|>b", "|a<|start|>\nb|");
    check(" to=user<|message|>ends on <|start|>", "|ends on <|start|>|");
    check(" to=a b<|message|>c<|eot|>", "| to=a b<|message|>c|");
    check(" to=<|message|>c<|eot|>", "| to=<|message|>c|");
    check(" to=user<|message|>a<|end_of_text|>b", "|a|");
    check("<|eot|>", "||");
    check_cut(" to=user<|message|>a<|start|>assis", "|a|");
    check_cut("<|start|>", "||");
}

#[test]
fn r4_calls_without_header() {
    check(&(count(1) + "<|eot|>"), "||count{\"n\":1}");
    check(&(format!("<|message|>\n{}\n<|eot|>", count(1))), "||count{\"n\":1}");
    let undeclared = block(&invoke("ghost", ""));
    check(&undeclared, &format!("|{undeclared}|"));
    let and_more = count(1) + " Done.";
    check(&and_more, &format!("|{and_more}|"));
    let twice = count(1) + "\n" + &count(2);
    check(&twice, &format!("|{twice}|"));
    let empty = block("");
    check(&empty, &format!("|{empty}|"));
    check_cut("<atem:function_calls>\n<atem:invoke name=\"cou", "||");
    check_cut("<at", "|<at|");
    check_cut("<<", "|<<|");
    check("\n<|", "|\n<||");
}

#[test]
fn r5_switches_without_start() {
    let call = format!(" to=count<|message|>{}<|eot|>", count(1));
    check(
        &format!(" to=self<|message|>Hm to=coun to=count{call}"),
        "Hm to=coun to=count||count{\"n\":1}",
    );
    check(&format!(" to=user<|message|>So:{call}"), "|So:|count{\"n\":1}");
    check(" to=self<|message|>x to=count<|message|> no<|eot|>", "x to=count<|message|> no||");
    check(
        " to=self<|message|>x to=ghost<|message|><atem:invoke<|eot|>",
        "x to=ghost<|message|><atem:invoke||",
    );
    check_tokens(" to=self{23}a to=self{23}b to=user{23}c{8}", true, "a\nb|c|");
    check_tokens(" to=self{23}a to=user<|message|>b{8}", true, "a to=user<|message|>b||");
    check_tokens(" to=user{23}a to=self{23}b{8}", true, "|a to=self<|message|>b|");
    let call = format!(" to=self{{23}}a to=count{{23}}\n{}{{8}}", count(1));
    check_tokens(&call, true, "a||count{\"n\":1}");
}

#[test]
fn r7_values_are_opaque() {
    let put = |body: &str| {
        let parameters = parameter("path", "p") + &parameter("body", body);
        format!(" to=files.put<|message|>{}", block(&invoke("files.put", &parameters)))
    };
    for body in [
        "a </atem:parameter>\n</atem:invoke>\n</atem:function_calls> b",
        "<atem:parameter name=\"x\">1</atem:parameter> and",
        "<|start|>user<|message|> x",
        "<|eom|> x",
        "<|message|>",
        "<|eot|><|start|>nobody",
        " to=user<|message|>",
    ] {
        let expect = format!("||files.put{}", serde_json::json!({"path": "p", "body": body}));
        check(&(put(body) + "<|eot|>"), &expect);
        check(&put(body), &expect);
    }
    // A quoted call followed by prose: the outer call is complete.
    let body = format!("see {}\nEnd.", count(9));
    let expect = format!("||files.put{}", serde_json::json!({"path": "p", "body": body}));
    check(&(put(&body) + "\nThat is all.<|eot|>"), &expect);
    // Truncated after the quoted call, the outer call is incomplete.
    let cut = put(&body);
    check_cut(&cut[..cut.find("End.").unwrap() + 3], "||");
}

#[test]
fn r7_end_tokens_in_values() {
    let open = " to=count{23}<atem:function_calls>\n<atem:invoke name=\"count\">\n<atem:parameter name=\"n\">1";
    check_tokens(&format!("{open}{{8}}"), true, &format!("|{}|", &open[" to=count{23}".len()..]));
    check_tokens(
        &format!("{open}{{7}} still{{8}}"),
        true,
        "|<atem:function_calls>\n<atem:invoke name=\"count\">\n<atem:parameter name=\"n\">1 still|",
    );
    let next = format!("{open}{{7}}{{22}}assistant to=count{{23}}{}{{8}}", count(2));
    check_tokens(
        &next,
        true,
        "|<atem:function_calls>\n<atem:invoke name=\"count\">\n<atem:parameter name=\"n\">1|count{\"n\":2}",
    );
}

#[test]
fn r8_r9_malformed_and_tolerated() {
    let to = " to=count<|message|>";
    check(
        &(to.to_owned() + &invoke("count", &parameter("n", "1")) + "<|eot|>"),
        "||count{\"n\":1}",
    );
    let two = invoke("count", &parameter("n", "1")) + &invoke("count", &parameter("n", "2"));
    check(&(to.to_owned() + &block(&two)), "||count{\"n\":1}count{\"n\":2}");
    check(&format!("{to}{}\nand{}<|eot|>", count(1), count(2)), "||count{\"n\":1}count{\"n\":2}");
    check(&format!("{to}{}\n{}", count(1), count(2)), "||count{\"n\":1}count{\"n\":2}");
    for bad in [
        "<atem:invoke name=\"count\">\n<atem:parameter=\"n\">1</atem:parameter>\n</atem:invoke>",
        "<atem:invoke name=\"count\">\n<atem:parameter name=\"n\">1</atem:日>\n</atem:invoke>",
        "<atem:invoke name=\"count\">\n<atem:parameter name=\"n\">1</atem:parameter>\n",
        "<atem:invoke  name=\"count\">\n</atem:invoke>",
        "<atem:invoke name=\"count\"/>",
    ] {
        check(&format!("{to}{bad}<|eot|>"), &format!("|{bad}|"));
    }
    // A call quoted in an unreadable call must not be parsed as a call; the call after it is.
    let bad = format!("<atem:invoke name=count>\n{} x</atem:invoke>\n", count(7));
    check(&format!("{to}{bad}{}", invoke("count", &parameter("n", "1"))), "||count{\"n\":1}");
    check(&format!("{to}nothing <|message|>here<|eot|>"), "|nothing here|");
}

#[test]
fn r12_names() {
    let to = |recipient: &str, name: &str| {
        parse_with(
            &conversation(),
            &format!(" to={recipient}<|message|>{}", invoke(name, "")),
            true,
            &[],
        )
    };
    assert_eq!(to("count.count", "count.count"), "||count{}");
    assert_eq!(to("calendar.find", "find"), "||calendar.find{}");
    assert_eq!(to("count", "calendar.find"), "||calendar.find{}");
    assert_eq!(to("weather.find", "find"), "||find{}");
    assert_eq!(to("garden", "garden.fly"), "||garden.fly{}");
    assert!(to("count", "find").starts_with("|<atem:invoke"));
}

#[test]
fn r13_known_fumbles() {
    for fumble in [
        "<atem:invoke name=\"garden.<|message|>list_beds\">\n</atem:invoke>",
        "<atem:invoke name=\"garden.list_beds<|message|>\">\n</atem:invoke>",
        "<atem:invoke name=\"garden.list_beds<|message|>\n</atem:invoke>",
        "<atem:invoke name=\"garden.list_beds\"<|message|>\n</atem:invoke>",
    ] {
        check(&format!(" to=garden.list_beds<|message|>{fumble}<|eot|>"), "||garden.list_beds{}");
        let tokens = fumble.replace("<|message|>", "{23}");
        check_tokens(
            &format!(" to=garden.list_beds{{23}}{tokens}{{8}}"),
            true,
            "||garden.list_beds{}",
        );
    }
    let glued = "<atem:invoke name=\"count.n\">4</atem:parameter>\n</atem:invoke>";
    check(&format!(" to=count<|message|>{glued}<|eot|>"), "||count{\"n\":4}");
    check(&format!(" to=garden<|message|>{glued}<|eot|>"), &format!("|{glued}|"));
    let both = format!("<atem:invoke name=\"count.n\">\n{}</atem:invoke>", parameter("n", "4"));
    check(&format!(" to=count<|message|>{both}<|eot|>"), &format!("|{both}|"));
}

#[test]
fn r16_cut_answers() {
    let call = format!(" to=count<|message|>{}", count(1));
    check_cut(&call, "||count{\"n\":1}");
    check_cut(&call[..call.len() - 1], "||count{\"n\":1}");
    check_cut(&call[..call.find("</atem:invoke").unwrap()], "||");
    check_cut(&(call.clone() + "<|eom|><|start|>assistant to=co"), "||count{\"n\":1}");
    check_cut(" to=ghost<|message|>A note to", "|A note to|");
    check_cut(" to=count<|message|>A note to", "||");
    check_cut(" to=self<|message|>x to=cou", "x to=cou||");
    check_cut(" to=self<|message|>x to=count<|message|>\n<atem:fun", "x||");
}

#[test]
fn r17_characters_over_tokens() {
    let mut parser = TextOutputParser::new(&conversation(), &[]);
    let mut out = Vec::new();
    parser.push_bytes(b" to=user<|message|>a\xf0\x9f", &mut out);
    parser.push("b", &mut out);
    parser.push_bytes(b"\xff\xe6\x97", &mut out);
    parser.finish(true, &mut out);
    assert_eq!(summary(&out), "|a\u{fffd}b\u{fffd}\u{fffd}|");
}

#[test]
fn r18_one_call_at_most() {
    let one = Conversation { single_call: true, ..conversation() };
    let two = invoke("count", &parameter("n", "1")) + &invoke("count", &parameter("n", "2"));
    let text = format!(" to=count<|message|>{}<|eom|>more<|eot|>", block(&two));
    assert_eq!(parse_with(&one, &text, true, &[]), "||count{\"n\":1}");
}

#[test]
fn r23_stop_texts_match_what_is_seen() {
    let stop = ["END".to_owned(), "<|eom|>".to_owned()];
    let text = " to=self<|message|>END<|eom|><|start|>assistant to=user<|message|>a END b<|eot|>";
    assert_eq!(parse_with(&conversation(), text, true, &stop), "END|a [stop END]|");
    let joined = " to=user<|message|>E<|eom|><|start|>assistant<|message|>ND<|eot|>";
    assert_eq!(parse_with(&conversation(), joined, true, &stop), "|E\nND|");
}

#[test]
fn metrics_usage_001_reasoning_tokens_are_counted() {
    let text = " to=self{23}one two three four five{7}{22}assistant to=user{23}a b c{8}";
    let mut parser = TokenOutputParser::new(&conversation(), &[], NANO.clone() as Arc<_>);
    let mut channels = Vec::new();
    let mut out = Vec::new();
    for token in tokens(text) {
        parser.push(token, &mut out);
        channels.push(parser.channel());
    }
    let between = |from: &str, to: &str| {
        let start = text.find(from).unwrap();
        tokens(&text[start..text.find(to).unwrap()]).len()
    };
    let of = |channel: Channel| channels.iter().filter(|found| **found == channel).count();
    assert_eq!(of(Channel::Reasoning), between("one", "{7}"));
    assert_eq!(of(Channel::Content), between("a b", "{8}"));
}

#[test]
fn a_committed_header_begins_inside_the_body() {
    let answer_prefix =
        vec![PromptPart::Text(" to=count".to_owned()), PromptPart::Special("<|message|>")];
    let named = Conversation { answer_prefix, ..conversation() };
    assert_eq!(parse_with(&named, &(count(3) + "<|eot|>"), true, &[]), "||count{\"n\":3}");
}

#[test]
fn a_continued_message_begins_with_what_is_new() {
    let continued = |recipient: &str, text: &str| Conversation {
        answer_prefix: vec![
            PromptPart::Text(format!(" to={recipient}")),
            PromptPart::Special("<|message|>"),
            PromptPart::Text(text.to_owned()),
        ],
        ..conversation()
    };
    let user = continued("user", "Once to=");
    assert_eq!(parse_with(&user, "count<|eot|>", true, &[]), "|count|");
    let more = " more<|eom|><|start|>assistant to=user<|message|>b<|eot|>";
    assert_eq!(parse_with(&user, more, true, &["ce".to_owned()]), "| more\nb|");
    let thought = continued("self", "a");
    let more = "b<|eom|><|start|>assistant to=user<|message|>c<|eot|>";
    assert_eq!(parse_with(&thought, more, true, &[]), "b|c|");
}

#[test]
fn an_omitted_header_is_read() {
    let none = Conversation { omit_generation_prompt: true, ..conversation() };
    let text = "<|start|>assistant to=user<|message|>a<|eot|>";
    assert_eq!(parse_with(&none, text, true, &[]), "|a|");
}

#[test]
fn call_ids_are_unique() {
    let text = format!(" to=count<|message|>{}<|eot|>", count(1));
    let mut ids = std::collections::HashSet::new();
    for _ in 0..1000 {
        let mut parser = TextOutputParser::new(&conversation(), &[]);
        let mut out = Vec::new();
        parser.push(&text, &mut out);
        let ParsedEvent::ToolCall(call) = &out[0] else { panic!("{out:?}") };
        assert!(ids.insert(call.id.clone()), "{} came twice", call.id);
    }
}

/// Ids and arguments.
type Calls = Vec<(String, String)>;

/// Parses growing calls in parts of `size` bytes: the joined deltas of each call, and the complete
/// calls.
fn grown(text: &str, size: usize, complete: bool) -> (Calls, Calls) {
    let growing = Conversation { growing_calls: true, ..conversation() };
    let mut parser = TextOutputParser::new(&growing, &[]);
    let (mut parts, mut whole) = (Calls::new(), Calls::new());
    let mut out = Vec::new();
    text.as_bytes().chunks(size).for_each(|part| parser.push_bytes(part, &mut out));
    parser.finish(complete, &mut out);
    for event in out {
        match event {
            ParsedEvent::ToolCallDelta(part) => {
                match parts.iter_mut().find(|(id, _)| *id == part.id) {
                    Some((_, joined)) => joined.push_str(&part.arguments),
                    None => parts.push((part.id, part.arguments)),
                }
            }
            ParsedEvent::ToolCall(call) => whole.push((call.id, call.arguments)),
            _ => {}
        }
    }
    (parts, whole)
}

#[test]
fn r15_growing_arguments_join_to_the_final_json() {
    let put =
        |body: &str| invoke("files.put", &(parameter("body", body) + &parameter("path", "p")));
    let count = invoke("count", &parameter("n", "12"));
    for body in [
        "l1 \"l2\"\nl3",
        "",
        "a </atem:parameter> b",
        "<atem:parameter name=\"q\">1</atem:parameter> x",
        "🦭",
    ] {
        let text = format!(
            " to=files.put<|message|>{}<|eot|>",
            block(&(put(body) + &count + &invoke("garden.list_beds", "")))
        );
        for size in [1, 5, text.len()] {
            let (parts, whole) = grown(&text, size, true);
            assert_eq!(parts, whole, "{body} by {size}");
            assert_eq!(whole.len(), 3);
            let value: serde_json::Value = serde_json::from_str(&whole[0].1).unwrap();
            assert_eq!(value["body"], body);
        }
    }
    // Truncated within a string: what was certain was sent, without a closing quote, and no call
    // follows.
    let text = format!(" to=files.put<|message|>{}", put("growing text"));
    let cut = &text[..text.find("</atem:parameter>").unwrap() + 9];
    let (parts, whole) = grown(cut, 1, false);
    assert_eq!(parts[0].1, "{\"body\":\"growing text");
    assert_eq!(whole, []);
}

/// The text and the share of each token that the visible answer consists of.
fn content_tokens(text: &str, stop: &[String]) -> (String, Vec<(String, usize)>) {
    let mut parser = TokenOutputParser::new(&conversation(), stop, NANO.clone() as Arc<_>);
    let tokens = tokens(text);
    let (mut out, mut shares) = (Vec::new(), Vec::new());
    tokens.iter().for_each(|token| parser.push(*token, &mut out));
    parser.finish(true, &mut out);
    parser.content_tokens(&mut shares);
    let spelled = shares.iter().map(|share| {
        let mut bytes = Vec::new();
        NANO.decode(tokens[share.index], &mut bytes);
        (String::from_utf8_lossy(&bytes).into_owned(), share.bytes)
    });
    (summary(&out), spelled.collect())
}

#[test]
fn content_tokens_are_those_of_the_content() {
    let check = |text: &str, stop: &[&str], expect: &str, first: &str, bytes: usize| {
        let stop: Vec<String> = stop.iter().map(|stop| (*stop).to_owned()).collect();
        let (found, shares) = content_tokens(text, &stop);
        assert_eq!(found, expect, "{text}");
        assert_eq!(shares.first(), Some(&(first.to_owned(), bytes)), "{text}: {shares:?}");
        let joined: usize = shares.iter().map(|(_, bytes)| bytes).sum();
        let content = expect[1..expect.len() - 1].split("[stop").next().unwrap();
        assert_eq!(joined, content.len(), "{text}: {shares:?}");
    };
    // After a reasoning budget of 0 the header is open, and the model answers without one.
    let shown = "|<|start|>assistant five|";
    check(" to=self{23}{7}{22}assistant five{8}", &[], shown, "<|start|>", 9);
    check("five{8}", &[], "|five|", "f", 1);
    // Special tokens that are shown as text.
    check(" to=user{23}{23}{8}", &[], "|<|message|>|", "<|message|>", 11);
    check(" to=user{23}a{22}b{8}", &[], "|a<|start|>b|", "a", 1);
    // A newline that joins messages belongs to the token after it.
    check(" to=user{23}{7}{22}assistant{23}a{7}b{8}", &[], "|a\nb|", "a", 1);
    // A stop text within a token leaves the token's other bytes.
    check(" to=user{23}END{8}", &["D"], "|EN[stop D]|", "E", 1);
}
