//! The embedded checkpoint over both protocols: its answers equal the reference's, alone and in a
//! batch.

use std::sync::Arc;

use muse_core::contract::KvType;
use muse_proto::v1::chat_response::Event;
use muse_proto::v1::generate_response;
use muse_proto::v1::generate_service_client::GenerateServiceClient;
use muse_proto::v1::tokenizer_service_client::TokenizerServiceClient;
use muse_proto::v1::{
    ChatRequest, Conversation, GenerateRequest, Message, ReasoningStrength, RenderPromptRequest,
    Role, Tool, ToolCall, Usage,
};
use muse_serve::ServeOptions;
use muse_serve::runtime::{LoadOptions, load};
use serde_json::{Value, json};

use crate::client::{channel, http, message, responses, texts_of};
use crate::fake::Running;

/// A chat of the reference and its answer.
struct Case {
    name: String,
    messages: Vec<Value>,
    tools: Value,
    variables: Value,
    prompt_ids: Vec<u32>,
    ids: Vec<u32>,
    reasoning: String,
    content: String,
    /// Names with arguments.
    calls: Vec<(String, Value)>,
}

impl Case {
    fn new(name: &str, case: &Value, parsed: Option<&Value>) -> Self {
        let ids = |list: &Value| {
            let ids = list.as_array().expect("a list").iter();
            ids.map(|id| id.as_u64().expect("an id") as u32).collect()
        };
        let text = case["f32"]["text"].as_str().expect("a text");
        let calls = parsed.map_or(Vec::new(), |parsed| {
            let calls = parsed["tool_calls"].as_array().expect("calls").iter();
            calls.map(|call| name_and_arguments(&call["function"])).collect()
        });
        Self {
            name: name.to_owned(),
            messages: case["messages"].as_array().expect("messages").clone(),
            tools: case["tools"].clone(),
            variables: case["template_kwargs"].clone(),
            prompt_ids: ids(&case["prompt_ids"]),
            ids: ids(&case["f32"]["ids"]),
            reasoning: body(text, " to=self"),
            content: body(text, " to=user"),
            calls,
        }
    }

    fn all() -> Vec<Self> {
        let file = muse_testkit::golden_dir().join("nano/chats.json");
        let text = std::fs::read_to_string(file).expect("the golden chats");
        let golden: Value = serde_json::from_str(&text).expect("JSON");
        let mut cases = Vec::new();
        for (name, chat) in golden["chats"].as_object().expect("chats") {
            cases.push(Self::new(name, chat, None));
        }
        for (name, trip) in golden["tool_round_trips"].as_object().expect("round trips") {
            cases.push(Self::new(&format!("{name} call"), &trip["call"], Some(&trip["parsed"])));
            cases.push(Self::new(&format!("{name} answer"), &trip["answer"], None));
        }
        assert_eq!(cases.len(), 18 + 2 * 6, "the reference has so many");
        cases
    }

    fn http(&self) -> Vec<u8> {
        let mut body = json!({ "messages": self.messages, "chat_template_kwargs": self.variables });
        if !self.tools.is_null() {
            body["tools"] = self.tools.clone();
        }
        body.to_string().into_bytes()
    }

    fn conversation(&self) -> Conversation {
        let strength = match self.variables["reasoning_strength"].as_str() {
            Some("low") => ReasoningStrength::Low,
            Some("medium") => ReasoningStrength::Medium,
            Some("high") => ReasoningStrength::High,
            other => panic!("{}: strength {other:?}", self.name),
        };
        let date = self.variables["current_date"].as_str().expect("a date");
        Conversation {
            messages: self.messages.iter().map(proto_message).collect(),
            tools: self.tools.as_array().into_iter().flatten().map(proto_tool).collect(),
            reasoning_strength: strength.into(),
            current_date: date.to_owned(),
            ..Conversation::default()
        }
    }

    fn grpc(&self) -> ChatRequest {
        ChatRequest { conversation: Some(self.conversation()), ..ChatRequest::default() }
    }

    async fn check_grpc(&self, url: &str) -> Usage {
        let (events, end) = responses(url, self.grpc()).await;
        end.unwrap_or_else(|status| panic!("{}: {status}", self.name));
        let (reasoning, content) = texts_of(&events, 0);
        assert_eq!((&reasoning, &content), (&self.reasoning, &self.content), "{}", self.name);
        let calls: Vec<(String, Value)> = events
            .iter()
            .filter_map(|response| match &response.event {
                Some(Event::ToolCall(call)) => Some((
                    call.name.clone(),
                    serde_json::from_str(&call.arguments_json).expect("JSON arguments"),
                )),
                _ => None,
            })
            .collect();
        assert_eq!(calls, self.calls, "{}", self.name);
        let usage = events.into_iter().find_map(|response| match response.event {
            Some(Event::Usage(usage)) => Some(usage),
            _ => None,
        });
        let usage = usage.expect("a usage");
        assert_eq!(usage.prompt_tokens as usize, self.prompt_ids.len(), "{}", self.name);
        assert_eq!(usage.completion_tokens as usize, self.ids.len(), "{}", self.name);
        usage
    }
}

/// The text between a header and the end of its message.
fn body(text: &str, header: &str) -> String {
    let start = format!("{header}<|message|>");
    let Some((_, rest)) = text.split_once(&start) else { return String::new() };
    rest.split("<|e").next().expect("a first part").to_owned()
}

fn name_and_arguments(function: &Value) -> (String, Value) {
    (function["name"].as_str().expect("a name").to_owned(), function["arguments"].clone())
}

pub(crate) fn proto_message(value: &Value) -> Message {
    let role = match value["role"].as_str() {
        Some("system") => Role::System,
        Some("user") => Role::User,
        Some("assistant") => Role::Assistant,
        Some("tool") => Role::Tool,
        other => panic!("role {other:?}"),
    };
    let text = |key: &str| value[key].as_str().unwrap_or_default().to_owned();
    let call = |call: &Value| {
        let (name, arguments) = name_and_arguments(&call["function"]);
        let id = call["id"].as_str().expect("an id").to_owned();
        ToolCall { id, name, arguments_json: arguments.to_string() }
    };
    Message {
        reasoning: text("reasoning_content"),
        tool_calls: value["tool_calls"].as_array().into_iter().flatten().map(call).collect(),
        tool_call_id: text("tool_call_id"),
        ..message(role, &text("content"))
    }
}

pub(crate) fn proto_tool(value: &Value) -> Tool {
    let function = &value["function"];
    let text = |key: &str| function[key].as_str().expect("a text").to_owned();
    let parameters_json = function["parameters"].to_string();
    let description = text("description");
    let strict = function["strict"] == true;
    Tool { name: text("name"), description, parameters_json, strict }
}

/// Serves the embedded checkpoint. The reference computes in f32, so the cache does as well.
pub(crate) async fn nano() -> Running {
    nano_with(|_| {}).await
}

/// The same with other options.
pub(crate) async fn nano_with(change: impl FnOnce(&mut ServeOptions)) -> Running {
    let options = LoadOptions {
        kv: KvType::F32,
        default_max_parallel: 8,
        threads: Some(1),
        ..LoadOptions::default()
    };
    let loaded = load(&options, &mut |_, _, _| {}).expect("the embedded checkpoint");
    let on_failure = Arc::new(|error: &muse_core::Error| panic!("{error}"));
    Running::start_with(loaded.start(on_failure).expect("an engine"), change).await
}

#[tokio::test(flavor = "multi_thread")]
async fn http_answers_equal_the_reference() {
    let server = nano().await;
    for case in Case::all() {
        let reply = http(server.http, "POST", "/v1/chat/completions", &case.http()).await;
        assert_eq!(reply.status, 200, "{}: {}", case.name, reply.body);
        let answer = reply.json();
        let message = &answer["choices"][0]["message"];
        let reasoning = message["reasoning_content"].as_str().unwrap_or_default();
        assert_eq!(reasoning, case.reasoning, "{}", case.name);
        assert_eq!(message["content"].as_str().unwrap_or_default(), case.content, "{}", case.name);
        let calls = message["tool_calls"].as_array().into_iter().flatten().map(|call| {
            let (name, arguments) = name_and_arguments(&call["function"]);
            let arguments = arguments.as_str().expect("arguments as text");
            (name, serde_json::from_str(arguments).expect("JSON arguments"))
        });
        assert_eq!(calls.collect::<Vec<(String, Value)>>(), case.calls, "{}", case.name);
        let reason = if case.calls.is_empty() { "stop" } else { "tool_calls" };
        assert_eq!(answer["choices"][0]["finish_reason"], reason, "{}", case.name);
        assert_eq!(answer["usage"]["completion_tokens"], case.ids.len(), "{}", case.name);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn grpc_answers_equal_the_reference_alone_and_in_a_batch() {
    let server = nano().await;
    let cases: Vec<Arc<Case>> = Case::all().into_iter().map(Arc::new).collect();
    let mut drafted = 0;
    for case in &cases {
        let usage = case.check_grpc(&server.grpc).await;
        assert_eq!(usage.reasoning_tokens == 0, case.reasoning.is_empty(), "{}", case.name);
        drafted += usage.drafted_tokens;
    }
    // The draft budget depends on measured times: a short answer may get none.
    assert!(drafted > 0, "the drafter is on");
    let together = cases.iter().map(|case| {
        let (case, url) = (case.clone(), server.grpc.clone());
        tokio::spawn(async move { case.check_grpc(&url).await })
    });
    for task in together.collect::<Vec<_>>() {
        task.await.expect("the same answer as alone");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn prompts_and_completions_equal_the_reference_token_for_token() {
    let server = nano().await;
    let mut tokenizer = TokenizerServiceClient::new(channel(&server.grpc).await);
    let mut client = GenerateServiceClient::new(channel(&server.grpc).await);
    for case in Case::all() {
        let conversation = Some(case.conversation());
        let request = RenderPromptRequest { conversation, ..RenderPromptRequest::default() };
        let prompt = tokenizer.render_prompt(request).await.expect("a prompt").into_inner();
        assert_eq!(prompt.ids, case.prompt_ids, "{}", case.name);
        let prompt_ids = case.prompt_ids.clone();
        let request = GenerateRequest { prompt_ids, ..GenerateRequest::default() };
        let mut stream = client.generate(request).await.expect("a stream").into_inner();
        let mut ids = Vec::new();
        while let Some(response) = stream.message().await.expect("an event") {
            if let Some(generate_response::Event::Tokens(delta)) = response.event {
                ids.extend(delta.tokens.iter().map(|token| token.id));
            }
        }
        assert_eq!(ids, case.ids, "{}", case.name);
    }
}
