//! Constrained answers with the embedded checkpoint: schemas, patterns, required tools and budgets of
//! reasoning, with speculation and without.

use muse_proto::v1::chat_response::Event;
use muse_proto::v1::{ChatRequest, Constraint, Limits, TextChoice, constraint::Rule};
use serde_json::{Value, json};
use tonic::Code;
use tonic_types::StatusExt;

use crate::client::{chat_request, http, responses, texts_of};
use crate::fake::Running;
use crate::nano::nano;

const CHAT: &str = "/v1/chat/completions";

/// Why `value` does not fit `schema`, of which every keyword must be one that is known here.
fn misfit(schema: &Value, value: &Value) -> Option<String> {
    let number = |key: &str| schema[key].as_f64();
    let fits = |(key, bound): (&String, &Value)| match key.as_str() {
        "type" => match bound.as_str().expect("one type") {
            "object" => value.is_object(),
            "array" => value.is_array(),
            "string" => value.is_string(),
            "integer" => value.is_i64(),
            "number" => value.is_number(),
            "boolean" => value.is_boolean(),
            other => panic!("type {other}"),
        },
        "enum" => bound.as_array().expect("values").contains(value),
        "const" => bound == value,
        "anyOf" => bound.as_array().expect("branches").iter().any(|s| misfit(s, value).is_none()),
        "minimum" => value.as_f64() >= number("minimum"),
        "maximum" => value.as_f64() <= number("maximum"),
        "minItems" => value.as_array().map(Vec::len) >= bound.as_u64().map(|n| n as usize),
        "maxItems" => value.as_array().map(Vec::len) <= bound.as_u64().map(|n| n as usize),
        "minLength" => {
            value.as_str().expect("a text").chars().count() as f64 >= number(key).unwrap()
        }
        "maxLength" => {
            value.as_str().expect("a text").chars().count() as f64 <= number(key).unwrap()
        }
        "pattern" => match bound.as_str() {
            Some("^[A-Z]{3}-[0-9]{2}$") => {
                let text = value.as_str().expect("a text").as_bytes();
                text.len() == 6
                    && text[..3].iter().all(u8::is_ascii_uppercase)
                    && text[3] == b'-'
                    && text[4..].iter().all(u8::is_ascii_digit)
            }
            other => panic!("pattern {other:?}"),
        },
        "items" => value.as_array().expect("a list").iter().all(|v| misfit(bound, v).is_none()),
        "required" => bound
            .as_array()
            .expect("keys")
            .iter()
            .all(|key| value.get(key.as_str().expect("a key")).is_some()),
        "properties" => bound.as_object().expect("a mapping").iter().all(|(key, schema)| {
            value.get(key).is_none_or(|member| misfit(schema, member).is_none())
        }),
        "additionalProperties" => {
            assert_eq!(bound, false);
            value
                .as_object()
                .expect("an object")
                .keys()
                .all(|k| schema["properties"].get(k).is_some())
        }
        other => panic!("keyword {other}"),
    };
    let broken = schema.as_object().expect("a schema").iter().find(|member| !fits(*member))?;
    Some(format!("{value} does not fit {} {}", broken.0, broken.1))
}

/// Schemas with a question each that leads the model another way.
fn schemas() -> Vec<(&'static str, Value)> {
    let object = |properties: Value| {
        let keys: Vec<&String> = properties.as_object().expect("a mapping").keys().collect();
        let required = json!(keys);
        json!({ "type": "object", "properties": properties, "required": required,
                "additionalProperties": false })
    };
    let word = json!({ "type": "string", "maxLength": 12 });
    let age = json!({ "type": "integer", "minimum": 0, "maximum": 150 });
    vec![
        ("Hello", object(json!({ "name": word, "age": age }))),
        ("Give me JSON with keys name and age for Leo, 40.", object(json!({ "age": age }))),
        (
            "What is 4 + 5?",
            object(json!({ "answer": { "type": "integer", "minimum": 9, "maximum": 9 } })),
        ),
        ("Is the sky blue?", object(json!({ "yes": { "type": "boolean" } }))),
        ("Pick a colour.", object(json!({ "colour": { "enum": ["red", "green", "blue"] } }))),
        (
            "Count from 1 to 4.",
            json!({ "type": "array", "minItems": 2, "maxItems": 4,
            "items": { "type": "integer", "minimum": 0, "maximum": 99 } }),
        ),
        (
            "Where is Oslo?",
            object(
                json!({ "place": object(json!({ "city": word, "cold": { "type": "boolean" } })) }),
            ),
        ),
        (
            "What is my code?",
            object(json!({ "code": { "type": "string", "pattern": "^[A-Z]{3}-[0-9]{2}$" } })),
        ),
        (
            "Thanks",
            object(json!({ "kind": { "const": "reply" }, "mood": { "anyOf": [
            { "type": "integer", "minimum": 1, "maximum": 5 }, { "enum": ["good", "bad"] } ] } })),
        ),
        (
            "Sort these numbers: 4, 2, 9.",
            object(json!({ "sorted": { "type": "array", "minItems": 3,
            "maxItems": 3, "items": { "enum": [2, 4, 9] } }, "note": { "type": "string",
            "minLength": 2, "maxLength": 8 } })),
        ),
    ]
}

async fn post(server: &Running, body: &Value) -> Value {
    let reply = http(server.http, "POST", CHAT, body.to_string().as_bytes()).await;
    assert_eq!(reply.status, 200, "{body}: {}", reply.body);
    reply.json()
}

fn with_schema(question: &str, schema: &Value) -> Value {
    json!({
        "messages": [{ "role": "user", "content": question }],
        "response_format": { "type": "json_schema", "json_schema": { "name": "x", "schema": schema } },
        "max_completion_tokens": 1000,
        "seed": 7,
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn answers_fit_their_schema_for_any_question() {
    let server = nano().await;
    for (question, schema) in schemas() {
        for temperature in [0.0, 1.0] {
            let mut body = with_schema(question, &schema);
            body["temperature"] = json!(temperature);
            let answer = post(&server, &body).await;
            let choice = &answer["choices"][0];
            assert_eq!(choice["finish_reason"], "stop", "{question}: {answer}");
            let text = choice["message"]["content"].as_str().expect("a text");
            let value: Value = serde_json::from_str(text).unwrap_or_else(|e| panic!("{e}: {text}"));
            assert_eq!(misfit(&schema, &value), None, "{question}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn any_object_is_an_object() {
    let server = nano().await;
    let body = json!({
        "messages": [{ "role": "user", "content": "Give me JSON with size = 3 and color = green." }],
        "response_format": { "type": "json_object" },
        "temperature": 0,
    });
    let answer = post(&server, &body).await;
    let text = answer["choices"][0]["message"]["content"].as_str().expect("a text");
    let value: Value = serde_json::from_str(text).expect("JSON");
    assert_eq!(value, json!({ "size": 3, "color": "green" }));
}

fn constrained(question: &str, rule: Rule, max_draft: Option<u32>) -> ChatRequest {
    let limits = Limits { max_draft, max_tokens: Some(300), ..Limits::default() };
    let constraint = Some(Constraint { rule: Some(rule) });
    ChatRequest { constraint, limits: Some(limits), ..chat_request(question) }
}

/// Reasoning and text, and how many tokens were drafted.
async fn answer_and_drafted(server: &Running, request: ChatRequest) -> ((String, String), u32) {
    let (events, end) = responses(&server.grpc, request).await;
    end.expect("an answer");
    let drafted = events.iter().find_map(|response| match &response.event {
        Some(Event::Usage(usage)) => Some(usage.drafted_tokens),
        _ => None,
    });
    (texts_of(&events, 0), drafted.expect("a usage"))
}

#[tokio::test(flavor = "multi_thread")]
async fn drafted_and_plain_answers_are_equal() {
    let server = nano().await;
    let mut drafted = 0;
    for (question, schema) in schemas() {
        let rule = || Rule::JsonSchema(schema.to_string());
        let (fast, drafts) = answer_and_drafted(&server, constrained(question, rule(), None)).await;
        let (plain, none) =
            answer_and_drafted(&server, constrained(question, rule(), Some(0))).await;
        assert_eq!(fast, plain, "{question}");
        assert_eq!(none, 0, "{question}");
        drafted += drafts;
    }
    assert!(drafted > 0, "the drafter is on");
}

#[tokio::test(flavor = "multi_thread")]
async fn patterns_grammars_and_choices_constrain_the_answer_but_not_the_reasoning() {
    let server = nano().await;
    let question = "What is the capital of Japan?";
    let choice = |texts: &[&str]| {
        Rule::Choice(TextChoice { texts: texts.iter().map(|text| (*text).to_owned()).collect() })
    };
    for (rule, texts) in [
        (Rule::Regex("(Kyoto|Tokyo)!".to_owned()), ["Kyoto!", "Tokyo!"]),
        (
            Rule::Lark("start: CITY \".\"\nCITY: \"Tokyo\" | \"Oslo\"\n".to_owned()),
            ["Tokyo.", "Oslo."],
        ),
        (choice(&["It is Tokyo", "It is Rome"]), ["It is Tokyo", "It is Rome"]),
    ] {
        let ((reasoning, text), _) =
            answer_and_drafted(&server, constrained(question, rule, None)).await;
        assert_eq!(reasoning, "Capital of Japan: Tokyo.");
        assert!(texts.contains(&text.as_str()), "{text}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unsupported_keyword_is_named() {
    let server = nano().await;
    for (keyword, schema) in [
        ("multipleOf", json!({ "type": "integer", "multipleOf": 0 })),
        ("uniqueItems", json!({ "type": "array", "uniqueItems": true })),
        ("pattern", json!({ "type": "string", "pattern": "(?=x)" })),
        ("format", json!({ "type": "string", "format": "no-such-format" })),
        ("minimum", json!({ "type": "integer", "minimum": 5, "maximum": 3 })),
        ("allOf", json!({ "allOf": [{ "$ref": "#" }, { "type": "object" }] })),
        ("$ref", json!({ "$ref": "#" })),
        ("enum", json!({ "enum": [] })),
    ] {
        let check = |message: &str| {
            assert!(message.contains(keyword), "{schema}: {message:?} does not name {keyword}");
            assert!(
                !message.contains("thought:"),
                "{message:?} shows rules of the internal grammar"
            );
        };
        let body = with_schema("Hello", &schema).to_string();
        let reply = http(server.http, "POST", CHAT, body.as_bytes()).await;
        assert_eq!(reply.status, 400, "{schema}: {}", reply.body);
        let error = &reply.json()["error"];
        assert_eq!(error["param"], "response_format", "{schema}");
        check(error["message"].as_str().expect("a message"));
        let (_, end) = responses(
            &server.grpc,
            constrained("Hello", Rule::JsonSchema(schema.to_string()), None),
        )
        .await;
        let status = end.expect_err("an error");
        assert_eq!(status.code(), Code::InvalidArgument, "{schema}");
        let details = status.get_error_details();
        let violations = &details.bad_request().expect("violations").field_violations;
        assert_eq!(violations[0].field, "constraint", "{schema}");
        check(status.message());
    }
    let empty = ChatRequest { constraint: Some(Constraint::default()), ..chat_request("Hello") };
    let (_, end) = responses(&server.grpc, empty).await;
    assert!(end.expect_err("an error").message().contains("json_schema"), "advice");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_strict_tool_with_an_unsupported_keyword_is_named() {
    let server = nano().await;
    let parameters = json!({ "type": "object", "properties": {
        "ids": { "type": "array", "uniqueItems": true } } });
    let tool = json!({ "type": "function",
        "function": { "name": "pick", "strict": true, "parameters": parameters } });
    let body = json!({ "messages": [{ "role": "user", "content": "Hi" }], "tools": [tool] });
    let reply = http(server.http, "POST", CHAT, body.to_string().as_bytes()).await;
    assert_eq!(reply.status, 400, "{}", reply.body);
    let error = &reply.json()["error"];
    assert_eq!(error["param"], "tools");
    let mut request = chat_request("Hi");
    let conversation = request.conversation.as_mut().expect("a conversation");
    conversation.tools.push(muse_proto::v1::Tool {
        name: "pick".to_owned(),
        parameters_json: parameters.to_string(),
        strict: true,
        ..Default::default()
    });
    let (_, end) = responses(&server.grpc, request).await;
    let status = end.expect_err("an error");
    assert_eq!(status.code(), Code::InvalidArgument);
    for message in [error["message"].as_str().expect("a message"), status.message()] {
        for word in ["`pick`", "`uniqueItems`", "/properties/ids"] {
            assert!(message.contains(word), "{message:?} lacks {word}");
        }
    }
}

/// A schema that takes most of a second to compile: thousands of patterns. Another `name` makes it
/// another schema, so that it is compiled again.
fn slow_schema(name: &str) -> Value {
    let key = |i: usize| format!("{name}{i}");
    let pattern =
        |i: usize| json!({ "type": "string", "pattern": format!("^[a-z]{{{},}}$", i % 8) });
    let properties: serde_json::Map<_, _> = (0..4000).map(|i| (key(i), pattern(i))).collect();
    let required: Vec<_> = (0..4000).map(key).collect();
    json!({ "type": "object", "properties": properties, "required": required })
}

#[tokio::test(flavor = "multi_thread")]
async fn too_large_schemas_are_refused_and_large_ones_delay_no_other_request() {
    let server = nano().await;
    let words = |count: usize| json!({ "enum": (0..count).map(|i| format!("word {i}")).collect::<Vec<_>>() });
    let reply = http(
        server.http,
        "POST",
        CHAT,
        with_schema("Hello", &words(60_000)).to_string().as_bytes(),
    )
    .await;
    assert_eq!(reply.status, 400);
    let message = reply.json()["error"]["message"].as_str().expect("a message").to_owned();
    assert!(message.contains("bytes") && message.contains("smaller"), "{message}");
    // Schemas compile a few at a time for most of a second each; meanwhile another answer begins
    // and ends. On a busy machine it may take longer than one of them.
    for round in 0..5 {
        let compile = |index: u8| {
            let schema = slow_schema(
                &[b'a' + round, b'a' + index].map(char::from).iter().collect::<String>(),
            );
            let (to, body) = (server.http, with_schema("Hello", &schema).to_string());
            tokio::spawn(async move { http(to, "POST", CHAT, body.as_bytes()).await })
        };
        let compiling: Vec<_> = (0..1 << round).map(compile).collect();
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        let quick = json!({ "messages": [{ "role": "user", "content": "What is 4 + 5?" }],
            "temperature": 0, "reasoning_effort": "none" });
        let answer = post(&server, &quick).await;
        assert_eq!(answer["choices"][0]["finish_reason"], "stop", "{answer}");
        let finished_first = compiling.iter().any(|compile| !compile.is_finished());
        for compile in compiling {
            compile.await.expect("no panic");
        }
        if finished_first {
            return;
        }
    }
    panic!("the answer waited for grammars of other requests");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_budget_closes_the_reasoning_and_the_answer_follows() {
    let server = nano().await;
    let body = |budget: u32| {
        json!({
            "messages": [{ "role": "user", "content": "What is 27 + 18?" }],
            "thinking_token_budget": budget,
            "temperature": 0,
        })
    };
    let free = post(&server, &body(1000)).await;
    let usage = |answer: &Value| {
        answer["usage"]["completion_tokens_details"]["reasoning_tokens"].as_u64().expect("a count")
    };
    assert!(usage(&free) > 5, "{free}");
    for budget in [0, 1, 5] {
        let answer = post(&server, &body(budget)).await;
        // Reasoning up to the budget is counted, the special tokens that close it are not.
        assert_eq!(usage(&answer), u64::from(budget), "{answer}");
        let choice = &answer["choices"][0];
        assert_eq!(choice["finish_reason"], "stop", "{answer}");
        assert_ne!(choice["message"]["content"], "", "{answer}");
        let reasoning = choice["message"]["reasoning_content"].as_str().unwrap_or_default();
        let whole = free["choices"][0]["message"]["reasoning_content"].as_str().expect("a text");
        assert!(whole.starts_with(reasoning), "{reasoning}");
    }
}
