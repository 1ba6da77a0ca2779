//! Each spelling in which clients constrain an answer, switch reasoning off, continue an answer and
//! declare functions, with the embedded checkpoint, whose answers are known; and over gRPC.

use muse_proto::v1::tokenizer_service_client::TokenizerServiceClient;
use muse_proto::v1::{
    ChatRequest, Constraint, Conversation, ReasoningStrength, RenderPromptRequest, Role, Sampling,
    TextChoice, ToolCall, constraint::Rule,
};
use serde_json::{Value, json};
use tonic::Code;
use tonic_types::StatusExt;

use crate::client::{channel, http, message, responses, texts_of};
use crate::fake::Running;
use crate::nano::nano;

const CHAT: &str = "/v1/chat/completions";
const DATE: &str = "2026-08-14";
const JAPAN: &str = "What is the capital of Japan?";
const SUM: &str = "What is 7 + 8?";

fn user(question: &str) -> Value {
    json!([{ "role": "user", "content": question }])
}

async fn post(server: &Running, messages: Value, more: &Value) -> (u16, Value) {
    let mut body = json!({ "messages": messages, "temperature": 0, "max_tokens": 300,
        "current_date": DATE });
    body.as_object_mut().expect("an object").extend(more.as_object().expect("one").clone());
    let reply = http(server.http, "POST", CHAT, body.to_string().as_bytes()).await;
    (reply.status, reply.json())
}

/// The message of the only choice, and the usage.
async fn answer(server: &Running, messages: Value, more: &Value) -> (Value, Value) {
    let (status, reply) = post(server, messages, more).await;
    assert_eq!(status, 200, "{more}: {reply}");
    (reply["choices"][0]["message"].clone(), reply["usage"].clone())
}

fn grpc_request(conversation: Conversation) -> ChatRequest {
    let conversation = Conversation { current_date: DATE.to_owned(), ..conversation };
    let sampling = Some(Sampling { temperature: Some(0.0), ..Sampling::default() });
    ChatRequest { conversation: Some(conversation), sampling, ..ChatRequest::default() }
}

async fn grpc_answer(server: &Running, request: ChatRequest) -> (String, String) {
    let (events, end) = responses(&server.grpc, request.clone()).await;
    end.unwrap_or_else(|status| panic!("{request:?}: {status:?}"));
    texts_of(&events, 0)
}

async fn grpc_refusal(server: &Running, request: ChatRequest) -> (String, String) {
    let (_, end) = responses(&server.grpc, request).await;
    let status = end.expect_err("a refusal");
    assert_eq!(status.code(), Code::InvalidArgument, "{status:?}");
    let details = status.get_error_details();
    let violation = &details.bad_request().expect("violations").field_violations[0];
    (violation.field.clone(), violation.description.clone())
}

#[tokio::test(flavor = "multi_thread")]
async fn answers_are_constrained_in_every_dialect() {
    let server = nano().await;
    let schema = json!({ "enum": ["Kyoto!", "Tokyo!"] });
    let (regex, choice) = ("(Kyoto|Tokyo)!", json!(["Kyoto!", "Tokyo!"]));
    let lark = "start: \"Kyoto!\" | \"Tokyo!\"";
    let gbnf = "root ::= \"Kyoto!\" | \"Tokyo!\"";
    let wrapped = json!({ "name": "x", "schema": schema });
    // JSON text as content, or the text itself.
    for fields in [
        json!({ "response_format": { "type": "json_schema", "json_schema": wrapped } }),
        json!({ "response_format": { "type": "json_object", "schema": schema } }),
        json!({ "json_schema": schema }),
        json!({ "guided_json": schema }),
        json!({ "guided_json": schema.to_string() }),
        json!({ "structured_outputs": { "json": schema } }),
        json!({ "format": schema }),
        json!({ "guided_regex": regex }),
        json!({ "regex": regex }),
        json!({ "structured_outputs": { "regex": regex } }),
        json!({ "guided_choice": choice }),
        json!({ "structured_outputs": { "choice": choice } }),
        json!({ "grammar": lark }),
        json!({ "grammar": gbnf }),
        json!({ "guided_grammar": lark }),
        json!({ "guided_grammar": gbnf }),
        json!({ "ebnf": gbnf }),
        json!({ "structured_outputs": { "grammar": gbnf } }),
        json!({ "response_format": { "type": "grammar", "grammar": lark } }),
        // One rule in two spellings.
        json!({ "guided_regex": regex, "regex": regex }),
    ] {
        let (message, _) = answer(&server, user(JAPAN), &fields).await;
        let content = message["content"].as_str().expect("a text");
        let is_json = fields.to_string().contains("enum");
        let expected = if is_json { "\"Tokyo!\"" } else { "Tokyo!" };
        assert_eq!(content, expected, "{fields}");
        assert_eq!(message["reasoning_content"], "Capital of Japan: Tokyo.", "{fields}");
    }
    for fields in [
        json!({ "response_format": { "type": "json_object" } }),
        json!({ "format": "json" }),
        json!({ "guided_json_object": true }),
        json!({ "structured_outputs": { "json_object": true } }),
    ] {
        let question = user("Give me JSON with size = 3 and color = green.");
        let (message, _) = answer(&server, question, &fields).await;
        let content = message["content"].as_str().expect("a text");
        let value: Value = serde_json::from_str(content).expect("JSON");
        assert_eq!(value, json!({ "size": 3, "color": "green" }), "{fields}");
    }
    for (fields, param, words) in [
        (json!({ "response_format": { "type": "yaml" } }), "response_format.type", "`yaml`"),
        (json!({ "json_schema": 5 }), "json_schema", "JSON schema"),
        (json!({ "guided_json": "{" }), "guided_json", "no JSON schema"),
        (json!({ "guided_regex": "(" }), "guided_regex", "regular expression"),
        (json!({ "guided_choice": [] }), "guided_choice", "at least one text"),
        (json!({ "grammar": "start: nothing" }), "grammar", "nothing"),
        (json!({ "grammar": "root ::= nothing" }), "grammar", "nothing"),
        (json!({ "format": "yaml" }), "format", "expected \"json\""),
        (json!({ "structured_outputs": { "xml": "x" } }), "structured_outputs.xml", "json_object"),
        (json!({ "regex": "a", "guided_regex": "b" }), "regex", "`guided_regex`"),
    ] {
        let (status, reply) = post(&server, user("Hello"), &fields).await;
        assert_eq!((status, &reply["error"]["param"]), (400, &param.into()), "{fields}: {reply}");
        let message = reply["error"]["message"].as_str().expect("a message");
        assert!(message.contains(words), "{fields}: {message:?} lacks {words:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn answers_are_constrained_over_grpc() {
    let server = nano().await;
    let schema = json!({ "enum": ["Kyoto!", "Tokyo!"] }).to_string();
    let question =
        || Conversation { messages: vec![message(Role::User, JAPAN)], ..Conversation::default() };
    let request = |rule: Rule| ChatRequest {
        constraint: Some(Constraint { rule: Some(rule) }),
        ..grpc_request(question())
    };
    let texts = |texts: &[&str]| {
        Rule::Choice(TextChoice { texts: texts.iter().map(|&text| text.to_owned()).collect() })
    };
    for (rule, expected) in [
        (Rule::JsonSchema(schema), "\"Tokyo!\""),
        (Rule::Regex("(Kyoto|Tokyo)!".to_owned()), "Tokyo!"),
        (Rule::Lark("start: \"Kyoto!\" | \"Tokyo!\"".to_owned()), "Tokyo!"),
        (Rule::Gbnf("root ::= \"Kyoto!\" | \"Tokyo!\"".to_owned()), "Tokyo!"),
        (texts(&["Kyoto!", "Tokyo!"]), "Tokyo!"),
    ] {
        let (reasoning, content) = grpc_answer(&server, request(rule.clone())).await;
        assert_eq!((reasoning.as_str(), content.as_str()), ("Capital of Japan: Tokyo.", expected));
    }
    for (rule, words) in [
        (Rule::JsonSchema("{".to_owned()), "schema"),
        (Rule::Regex("(".to_owned()), "regular expression"),
        (Rule::Lark("start: nothing".to_owned()), "nothing"),
        (Rule::Gbnf("root ::= nothing".to_owned()), "nothing"),
        (texts(&[]), "text"),
    ] {
        let (field, why) = grpc_refusal(&server, request(rule.clone())).await;
        assert_eq!(field, "constraint", "{rule:?}");
        assert!(why.contains(words), "{rule:?}: {why:?} lacks {words:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn reasoning_is_switched_off_in_every_dialect() {
    let server = nano().await;
    let (message, usage) = answer(&server, user(SUM), &json!({})).await;
    assert_eq!(message["reasoning_content"], "Add 7 and 8.");
    assert_ne!(usage["completion_tokens_details"]["reasoning_tokens"], 0);
    let mut answers = Vec::new();
    for fields in [
        json!({ "enable_thinking": false }),
        json!({ "chat_template_kwargs": { "enable_thinking": false } }),
        json!({ "thinking": { "type": "disabled" } }),
        json!({ "thinking": false }),
        json!({ "reasoning": { "enabled": false } }),
        json!({ "reasoning": { "effort": "none" } }),
        json!({ "reasoning_effort": "none" }),
    ] {
        let (message, usage) = answer(&server, user(SUM), &fields).await;
        assert_eq!(message.get("reasoning_content"), None, "{fields}: {message}");
        assert_eq!(usage["completion_tokens_details"]["reasoning_tokens"], 0, "{fields}");
        answers.push(message["content"].as_str().expect("a text").to_owned());
    }
    let conversation = Conversation {
        messages: vec![crate::client::message(Role::User, SUM)],
        reasoning_strength: ReasoningStrength::None.into(),
        ..Conversation::default()
    };
    let (reasoning, content) = grpc_answer(&server, grpc_request(conversation)).await;
    assert_eq!(reasoning, "");
    assert!(!content.is_empty() && answers.iter().all(|a| *a == content), "{answers:?} {content}");
    for (fields, param) in [
        (json!({ "thinking": { "type": "maybe" } }), "thinking.type"),
        (json!({ "reasoning_effort": "huge" }), "reasoning_effort"),
        (json!({ "enable_thinking": "no" }), "enable_thinking"),
    ] {
        let (status, reply) = post(&server, user(SUM), &fields).await;
        assert_eq!((status, &reply["error"]["param"]), (400, &param.into()), "{fields}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn answers_continue_the_last_message() {
    let server = nano().await;
    let opened = json!([{ "role": "user", "content": SUM },
        { "role": "assistant", "reasoning_content": "Add 7 and 8.", "content": "7 + 8" }]);
    for fields in [
        json!({ "continue_final_message": true, "add_generation_prompt": false }),
        json!({ "continue_final_message": true }),
        json!({ "chat_template_kwargs": { "continue_final_message": true } }),
    ] {
        let (message, _) = answer(&server, opened.clone(), &fields).await;
        assert_eq!(message["content"], " = 15.", "{fields}: {message}");
        assert_eq!(message.get("reasoning_content"), None, "{fields}");
    }
    let mut assistant = message(Role::Assistant, "7 + 8");
    assistant.reasoning = "Add 7 and 8.".to_owned();
    let open = |last: Vec<muse_proto::v1::Message>| {
        grpc_request(Conversation {
            messages: [vec![message(Role::User, SUM)], last].concat(),
            continue_final_message: true,
            ..Conversation::default()
        })
    };
    let (reasoning, content) = grpc_answer(&server, open(vec![assistant])).await;
    assert_eq!((reasoning.as_str(), content.as_str()), ("", " = 15."));
    let fields = json!({ "continue_final_message": true });
    let (status, reply) = post(&server, user(SUM), &fields).await;
    assert_eq!((status, &reply["error"]["param"]), (400, &"messages[0]".into()), "{reply}");
    let (field, why) = grpc_refusal(&server, open(Vec::new())).await;
    assert_eq!(field, "conversation.messages[0]");
    assert!(why.contains("assistant"), "{why}");
    // A prompt without the header of the answer is shorter by `<|start|>assistant`.
    let (_, with) = answer(&server, user(SUM), &json!({ "max_tokens": 1 })).await;
    let fields = json!({ "max_tokens": 1, "add_generation_prompt": false });
    let (_, without) = answer(&server, user(SUM), &fields).await;
    let tokens = |usage: &Value| usage["prompt_tokens"].as_u64().expect("a number");
    assert!(tokens(&without) < tokens(&with), "{without} {with}");
}

#[tokio::test(flavor = "multi_thread")]
async fn functions_are_called_in_their_own_shape() {
    let server = nano().await;
    let city = json!({ "type": "string", "description": "City name" });
    let function = json!({ "name": "get_weather", "description": "Get the weather for a city.",
        "parameters": { "type": "object", "properties": { "city": city }, "required": ["city"] } });
    let question = || user("What is the weather in Oslo?");
    for call in [json!("auto"), json!({ "name": "get_weather" })] {
        let fields = json!({ "functions": [function], "function_call": call });
        let (status, reply) = post(&server, question(), &fields).await;
        assert_eq!(status, 200, "{reply}");
        let choice = &reply["choices"][0];
        assert_eq!(choice["finish_reason"], "function_call", "{choice}");
        assert_eq!(choice["message"].get("tool_calls"), None, "{choice}");
        let made = &choice["message"]["function_call"];
        assert_eq!(made["name"], "get_weather");
        let arguments = made["arguments"].as_str().expect("a text");
        let arguments: Value = serde_json::from_str(arguments).expect("JSON");
        assert_eq!(arguments, json!({ "city": "Oslo" }));
        // The result goes on in the same shape.
        let messages = json!([question()[0], choice["message"],
            { "role": "function", "name": "get_weather", "content": "12 degrees, cloudy" }]);
        let (message, _) = answer(&server, messages, &json!({ "functions": [function] })).await;
        assert_eq!(message["content"], "It is 12 degrees and cloudy in Oslo.");
    }
    let fields = json!({ "functions": [function], "function_call": "none" });
    let (message, _) = answer(&server, question(), &fields).await;
    assert_eq!(message.get("function_call"), None, "{message}");
    let fields = json!({ "functions": [function], "function_call": { "name": "ghost" } });
    let (status, reply) = post(&server, question(), &fields).await;
    assert_eq!((status, &reply["error"]["type"]), (400, &"invalid_request_error".into()));
    assert!(reply["error"]["message"].as_str().is_some_and(|m| m.contains("ghost")), "{reply}");
}

#[tokio::test(flavor = "multi_thread")]
async fn repeated_call_ids_name_the_nearest_call_over_both_protocols() {
    let server = nano().await;
    let names = ["get_weather", "search.find"];
    // Two calls with one id, each with its result; the first is answered before the second is made.
    let mut messages = vec![json!({ "role": "user", "content": "Hello" })];
    let mut conversation = vec![message(Role::User, "Hello")];
    for name in names {
        let (id, arguments) = ("call_0".to_owned(), json!({ "city": "Oslo" }).to_string());
        messages.push(json!({ "role": "assistant", "content": null, "tool_calls": [{ "id": id,
            "type": "function", "function": { "name": name, "arguments": arguments } }] }));
        messages.push(json!({ "role": "tool", "tool_call_id": id, "content": "5 degrees" }));
        let mut made = message(Role::Assistant, "");
        made.content.clear();
        let call = ToolCall { id: id.clone(), name: name.to_owned(), arguments_json: arguments };
        made.tool_calls.push(call);
        let mut result = message(Role::Tool, "5 degrees");
        result.tool_call_id = id;
        conversation.extend([made, result]);
    }
    let whole = |messages: &[muse_proto::v1::Message]| Conversation {
        messages: messages.to_vec(),
        current_date: DATE.to_owned(),
        ..Conversation::default()
    };
    let mut tokenizer = TokenizerServiceClient::new(channel(&server.grpc).await);
    let request = RenderPromptRequest {
        conversation: Some(whole(&conversation)),
        ..RenderPromptRequest::default()
    };
    let prompt = tokenizer.render_prompt(request).await.expect("a prompt").into_inner();
    let results: Vec<&str> =
        prompt.text.split("<|start|>").filter(|m| m.contains("5 deg")).collect();
    assert_eq!(results.len(), 2, "{}", prompt.text);
    for (result, name) in results.iter().zip(names) {
        assert!(result.contains(name), "{result:?} is not of {name}");
    }
    let limit = json!({ "max_tokens": 1 });
    let (_, usage) = answer(&server, json!(messages), &limit).await;
    assert_eq!(usage["prompt_tokens"], prompt.ids.len(), "the same prompt");
    // Without the first result, both calls wait under one id.
    messages.remove(2);
    conversation.remove(2);
    let (status, reply) = post(&server, json!(messages), &limit).await;
    let param = "messages[2].tool_calls[0].id";
    assert_eq!((status, &reply["error"]["param"]), (400, &param.into()), "{reply}");
    let (field, _) = grpc_refusal(&server, grpc_request(whole(&conversation))).await;
    assert_eq!(field, format!("conversation.{param}"));
}
