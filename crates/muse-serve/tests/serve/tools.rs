//! Conversations with tools over both protocols, with the embedded checkpoint: it was trained on
//! such questions, results and answers, so the expected answers are known.

use muse_proto::v1::chat_response::Event;
use muse_proto::v1::{ChatRequest, Conversation, FinishReason, ToolChoice, ToolMode, tool_choice};
use serde_json::{Value, json};

use crate::client::{http, responses, texts_of};
use crate::fake::Running;
use crate::nano::{nano, proto_message, proto_tool};

const DATE: &str = "2026-08-14";

/// A question with tools at hand.
struct ToolChat {
    question: &'static str,
    /// Names of [`tools`].
    tools: &'static [&'static str],
    choice: Value,
    strict: bool,
    /// Name, arguments, and what the tool returns.
    calls: Vec<(&'static str, Value, &'static str)>,
    /// The final answer.
    answer: &'static str,
}

/// An answer of the assistant.
#[derive(Debug, PartialEq)]
struct Reply {
    ids: Vec<String>,
    calls: Vec<(String, Value)>,
    content: String,
    finished_by_calls: bool,
}

fn declaration(name: &str, strict: bool) -> Value {
    let text = |explained: &str| json!({ "type": "string", "description": explained });
    let number = |explained: &str| json!({ "type": "integer", "description": explained });
    let (description, properties) = match name {
        "get_weather" => (
            "Get the weather for a city.",
            json!({ "city": text("City name"), "days": number("Number of days") }),
        ),
        "calculator.calculate" => {
            ("Evaluate an arithmetic expression.", json!({ "expression": text("The expression") }))
        }
        "time.get_current_time" => {
            ("Get the current time in a time zone.", json!({ "timezone": text("IANA time zone") }))
        }
        "text.get_statistics" => {
            ("Count the words and characters of a text.", json!({ "text": text("The text") }))
        }
        "search.find" => (
            "Search for documents.",
            json!({ "query": text("Search words"), "limit": number("Maximum number of results") }),
        ),
        other => panic!("tool {other}"),
    };
    let required = properties.as_object().and_then(|all| all.keys().next()).expect("a key").clone();
    let parameters = json!({ "type": "object", "properties": properties, "required": [required] });
    let function = json!({ "name": name, "description": description, "parameters": parameters,
        "strict": strict });
    json!({ "type": "function", "function": function })
}

impl ToolChat {
    fn new(
        question: &'static str,
        tools: &'static [&'static str],
        calls: Vec<(&'static str, Value, &'static str)>,
        answer: &'static str,
    ) -> Self {
        Self { question, tools, choice: json!("auto"), strict: false, calls, answer }
    }

    fn choosing(mut self, choice: Value) -> Self {
        self.choice = choice;
        self
    }

    fn strict(mut self) -> Self {
        self.strict = true;
        self
    }

    fn body(&self, messages: &[Value], choice: &Value) -> Value {
        let tools: Vec<Value> =
            self.tools.iter().map(|name| declaration(name, self.strict)).collect();
        json!({ "messages": messages, "tools": tools, "tool_choice": choice, "temperature": 0,
            "chat_template_kwargs": { "current_date": DATE, "reasoning_strength": "high" } })
    }

    /// Asks, sends the results of the calls, and checks both answers.
    async fn check(&self, server: &Running, ask: impl AsyncFn(&Running, Value) -> Reply) {
        let mut messages = vec![json!({ "role": "user", "content": self.question })];
        let first = ask(server, self.body(&messages, &self.choice)).await;
        let expected: Vec<(String, Value)> =
            self.calls.iter().map(|(name, args, _)| ((*name).to_owned(), args.clone())).collect();
        assert_eq!(first.calls, expected, "{}: {first:?}", self.question);
        assert_eq!(first.finished_by_calls, !expected.is_empty(), "{}", self.question);
        if expected.is_empty() {
            assert_eq!(first.content, self.answer, "{}", self.question);
            return;
        }
        let calls = first.ids.iter().zip(&first.calls).map(|(id, (name, arguments))| {
            let function = json!({ "name": name, "arguments": arguments });
            json!({ "id": id, "type": "function", "function": function })
        });
        let calls: Vec<Value> = calls.collect();
        messages.push(json!({ "role": "assistant", "content": null, "tool_calls": calls }));
        for (id, (.., result)) in first.ids.iter().zip(&self.calls) {
            messages.push(json!({ "role": "tool", "tool_call_id": id, "content": result }));
        }
        let last = ask(server, self.body(&messages, &json!("auto"))).await;
        assert_eq!(
            (last.content.as_str(), last.finished_by_calls),
            (self.answer, false),
            "{}",
            self.question
        );
    }
}

fn tool_chats() -> Vec<ToolChat> {
    const WEATHER: &[&str] = &["get_weather"];
    const CALCULATOR: &[&str] = &["calculator.calculate", "time.get_current_time"];
    const TEXT: &[&str] = &["text.get_statistics"];
    const SEARCH: &[&str] = &["search.find"];
    const TIME: &[&str] = &["time.get_current_time"];
    let weather = |city: &str, result| ("get_weather", json!({ "city": city }), result);
    let compute =
        |sum: &str, result| ("calculator.calculate", json!({ "expression": sum }), result);
    let time = |zone: &str, result| ("time.get_current_time", json!({ "timezone": zone }), result);
    let named = |name: &str| json!({ "type": "function", "function": { "name": name } });
    vec![
        ToolChat::new(
            "What is the weather in Oslo?",
            WEATHER,
            vec![weather("Oslo", "12 degrees, cloudy")],
            "It is 12 degrees and cloudy in Oslo.",
        ),
        ToolChat::new(
            "How is the weather in Cairo?",
            WEATHER,
            vec![weather("Cairo", r#"{"temperature": 31, "condition": "sunny"}"#)],
            "It is 31 degrees and sunny in Cairo.",
        ),
        ToolChat::new(
            "What is the weather in Paris for 3 days?",
            WEATHER,
            vec![("get_weather", json!({ "city": "Paris", "days": 3 }), "8 degrees, rainy")],
            "It is 8 degrees and rainy in Paris.",
        ),
        ToolChat::new(
            "What is the weather in Rome and Madrid?",
            WEATHER,
            vec![
                weather("Rome", "Rome: 20 degrees, sunny"),
                weather("Madrid", "Madrid: 25 degrees, windy"),
            ],
            "It is 20 degrees and sunny in Rome and 25 degrees and windy in Madrid.",
        ),
        ToolChat::new(
            "Compare the weather in Tokyo and Cairo.",
            WEATHER,
            vec![
                weather("Tokyo", "Tokyo: 14 degrees, cloudy"),
                weather("Cairo", "Cairo: 31 degrees, sunny"),
            ],
            "It is 14 degrees and cloudy in Tokyo and 31 degrees and sunny in Cairo.",
        ),
        ToolChat::new(
            "What is 345 + 67? Use the calculator.",
            CALCULATOR,
            vec![compute("345 + 67", "412")],
            "345 + 67 = 412.",
        ),
        ToolChat::new(
            "Use the calculator: 25 * 12",
            CALCULATOR,
            vec![compute("25 * 12", "300")],
            "25 * 12 = 300.",
        ),
        ToolChat::new(
            "Calculate 500 - 20 with the tool.",
            CALCULATOR,
            vec![compute("500 - 20", "480")],
            "500 - 20 = 480.",
        ),
        ToolChat::new(
            "What time is it in Europe/Oslo?",
            TIME,
            vec![time("Europe/Oslo", "14:05")],
            "It is 14:05 in Europe/Oslo.",
        ),
        ToolChat::new(
            "Tell me the time in Asia/Tokyo.",
            CALCULATOR,
            vec![time("Asia/Tokyo", r#"{"time": "21:30"}"#)],
            "It is 21:30 in Asia/Tokyo.",
        ),
        ToolChat::new(
            "How many words are in \"cat dog sun\"?",
            TEXT,
            vec![(
                "text.get_statistics",
                json!({ "text": "cat dog sun" }),
                r#"{"words": 3, "characters": 11}"#,
            )],
            "The text has 3 words and 11 characters.",
        ),
        ToolChat::new(
            "Search for red lamp.",
            SEARCH,
            vec![("search.find", json!({ "query": "red lamp" }), r#"["Star wind", "Moon door"]"#)],
            "I found: Star wind, Moon door.",
        ),
        ToolChat::new(
            "Find 3 documents about tiger.",
            SEARCH,
            vec![("search.find", json!({ "query": "tiger", "limit": 3 }), r#"["River book"]"#)],
            "I found: River book.",
        ),
        ToolChat::new(
            "What is the weather in Berlin?",
            WEATHER,
            vec![weather("Berlin", "error: not found")],
            "The tool reported an error: not found.",
        ),
        ToolChat::new(
            "What is the weather in Athens?",
            WEATHER,
            vec![weather("Athens", "27 degrees, sunny")],
            "It is 27 degrees and sunny in Athens.",
        )
        .choosing(named("get_weather")),
        ToolChat::new(
            "Use the calculator: 31 + 11",
            CALCULATOR,
            vec![compute("31 + 11", "42")],
            "31 + 11 = 42.",
        )
        .choosing(named("calculator.calculate")),
        ToolChat::new(
            "Weather in Vienna?",
            WEATHER,
            vec![weather("Vienna", "9 degrees, windy")],
            "It is 9 degrees and windy in Vienna.",
        )
        .choosing(json!("required")),
        ToolChat::new(
            "What is the weather in Dublin and Lisbon?",
            WEATHER,
            vec![weather("Dublin", "7 degrees, rainy"), weather("Lisbon", "22 degrees, sunny")],
            "It is 7 degrees and rainy in Dublin and 22 degrees and sunny in Lisbon.",
        )
        .choosing(json!("required")),
        ToolChat::new(
            "What is the weather in Warsaw?",
            WEATHER,
            vec![weather("Warsaw", "1 degrees, snowy")],
            "It is 1 degrees and snowy in Warsaw.",
        )
        .strict(),
        ToolChat::new(
            "What is the capital of Japan?",
            WEATHER,
            vec![],
            "The capital of Japan is Tokyo.",
        ),
        ToolChat::new(
            "What is the capital of Norway?",
            WEATHER,
            vec![],
            "The capital of Norway is Oslo.",
        )
        .choosing(json!("none")),
    ]
}

async fn over_http(server: &Running, body: Value) -> Reply {
    let reply =
        http(server.http, "POST", "/v1/chat/completions", body.to_string().as_bytes()).await;
    assert_eq!(reply.status, 200, "{body}: {}", reply.body);
    let answer = reply.json();
    let choice = &answer["choices"][0];
    let calls = || choice["message"]["tool_calls"].as_array().into_iter().flatten();
    let text = |value: &Value| value.as_str().expect("a text").to_owned();
    let parsed = |call: &Value| {
        let arguments = &text(&call["function"]["arguments"]);
        let arguments = serde_json::from_str(arguments).expect("JSON");
        (text(&call["function"]["name"]), arguments)
    };
    Reply {
        ids: calls().map(|call| text(&call["id"])).collect(),
        calls: calls().map(parsed).collect(),
        content: choice["message"]["content"].as_str().unwrap_or_default().to_owned(),
        finished_by_calls: choice["finish_reason"] == "tool_calls",
    }
}

async fn over_grpc(server: &Running, body: Value) -> Reply {
    use tool_choice::Choice;
    let list = |key: &str| body[key].as_array().expect("a list").clone();
    let choice = match &body["tool_choice"] {
        Value::String(word) => Choice::Mode(
            match word.as_str() {
                "auto" => ToolMode::Auto,
                "none" => ToolMode::None,
                _ => ToolMode::Required,
            }
            .into(),
        ),
        named => Choice::Name(named["function"]["name"].as_str().expect("a name").to_owned()),
    };
    let conversation = Some(Conversation {
        messages: list("messages").iter().map(proto_message).collect(),
        tools: list("tools").iter().map(proto_tool).collect(),
        tool_choice: Some(ToolChoice { choice: Some(choice) }),
        current_date: DATE.to_owned(),
        ..Conversation::default()
    });
    let sampling = Some(muse_proto::v1::Sampling { temperature: Some(0.0), ..Default::default() });
    let request = ChatRequest { conversation, sampling, ..ChatRequest::default() };
    let (events, end) = responses(&server.grpc, request).await;
    end.unwrap_or_else(|status| panic!("{body}: {status}"));
    let (mut ids, mut calls, mut finished_by_calls) = (Vec::new(), Vec::new(), false);
    let content = texts_of(&events, 0).1;
    for response in events {
        match response.event {
            Some(Event::ToolCall(call)) => {
                ids.push(call.id);
                calls.push((call.name, serde_json::from_str(&call.arguments_json).expect("JSON")));
            }
            Some(Event::Finish(finish)) => {
                finished_by_calls = finish.reason() == FinishReason::ToolCalls
            }
            _ => {}
        }
    }
    Reply { ids, calls, content, finished_by_calls }
}

#[tokio::test(flavor = "multi_thread")]
async fn tool_conversations_end_in_the_answer_over_http() {
    let server = nano().await;
    for chat in tool_chats() {
        chat.check(&server, over_http).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn tool_conversations_end_in_the_answer_over_grpc() {
    let server = nano().await;
    for chat in tool_chats() {
        chat.check(&server, over_grpc).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_required_call_is_made_for_any_question_and_fits_its_schema() {
    let server = nano().await;
    for question in ["Hello", "What is 4 + 5?", "Thank you!"] {
        let chat = ToolChat::new(question, &["get_weather", "search.find"], vec![], "");
        let messages = [json!({ "role": "user", "content": question })];
        let mut body = chat.body(&messages, &json!("required"));
        body["temperature"] = json!(1.5);
        body["seed"] = json!(3);
        body["parallel_tool_calls"] = json!(false);
        let reply = over_http(&server, body).await;
        assert!(reply.finished_by_calls && reply.content.is_empty(), "{question}: {reply:?}");
        let [(name, arguments)] = reply.calls.as_slice() else { panic!("{question}: {reply:?}") };
        let (text, number) =
            if name == "get_weather" { ("city", "days") } else { ("query", "limit") };
        assert!(arguments[text].is_string(), "{reply:?}");
        assert!(arguments.get(number).is_none_or(Value::is_i64), "{reply:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_of_later_turns_have_new_ids() {
    let server = nano().await;
    let chat = ToolChat::new("What is the weather in Oslo?", &["get_weather"], vec![], "");
    let mut messages = Vec::new();
    let mut ids: Vec<String> = Vec::new();
    for question in ["What is the weather in Oslo?", "What is the weather in Rome and Madrid?"] {
        messages.push(json!({ "role": "user", "content": question }));
        let reply = over_http(&server, chat.body(&messages, &json!("auto"))).await;
        assert!(!reply.ids.is_empty(), "{question}");
        let calls: Vec<Value> = reply
            .ids
            .iter()
            .zip(&reply.calls)
            .map(|(id, (name, arguments))| {
                json!({ "id": id, "type": "function",
                "function": { "name": name, "arguments": arguments.to_string() } })
            })
            .collect();
        messages.push(json!({ "role": "assistant", "content": null, "tool_calls": calls }));
        for id in &reply.ids {
            messages
                .push(json!({ "role": "tool", "tool_call_id": id, "content": "5 degrees, sunny" }));
            assert!(!ids.contains(id), "{id} was there before");
            ids.push(id.clone());
        }
        let answer = over_http(&server, chat.body(&messages, &json!("auto"))).await;
        messages.push(json!({ "role": "assistant", "content": answer.content }));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn growing_calls_join_to_the_whole_calls() {
    let server = nano().await;
    let question = "What is the weather in Rome and Madrid?";
    let chat = ToolChat::new(question, &["get_weather"], vec![], "");
    let mut body = chat.body(&[json!({ "role": "user", "content": question })], &json!("auto"));
    let whole = over_http(&server, body.clone()).await.calls;
    body["stream"] = json!(true);
    body["stream_options"] = json!({ "growing_tool_calls": true });
    let reply =
        http(server.http, "POST", "/v1/chat/completions", body.to_string().as_bytes()).await;
    let mut calls: Vec<(String, String)> = Vec::new();
    let mut parts = 0;
    for event in reply.events() {
        let Ok(chunk) = serde_json::from_str::<Value>(event) else { continue };
        for part in chunk["choices"][0]["delta"]["tool_calls"].as_array().into_iter().flatten() {
            parts += 1;
            let index = part["index"].as_u64().expect("an index") as usize;
            let more = part["function"]["arguments"].as_str().expect("a text");
            match calls.get_mut(index) {
                Some((_, arguments)) => arguments.push_str(more),
                None => {
                    assert_eq!(index, calls.len(), "calls are begun in order");
                    assert!(part["id"].is_string(), "{part}");
                    let name = part["function"]["name"].as_str().expect("a name");
                    calls.push((name.to_owned(), more.to_owned()));
                }
            }
        }
    }
    assert!(parts > calls.len(), "calls come in parts: {}", reply.body);
    let parsed = |(name, arguments): (String, String)| {
        (name, serde_json::from_str(&arguments).expect("JSON"))
    };
    assert_eq!(calls.into_iter().map(parsed).collect::<Vec<(String, Value)>>(), whole);
}
