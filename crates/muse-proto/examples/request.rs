//! A chat request with a tool and a schema for the answer, as it goes over the wire.

use muse_proto::v1::{
    ChatRequest, Constraint, Conversation, Limits, Message, Part, Role, Tool, constraint, part,
};
use prost::Message as _;

fn main() -> Result<(), prost::DecodeError> {
    let question = Part { part: Some(part::Part::Text("Weather in Zurich?".into())) };
    let message =
        Message { role: Role::User.into(), content: vec![question], ..Message::default() };
    let tool = Tool {
        name: "weather".into(),
        description: "The weather of a city, now.".into(),
        parameters_json: r#"{"type":"object","properties":{"city":{"type":"string"}}}"#.into(),
        strict: true,
    };
    let schema = r#"{"type":"object","properties":{"celsius":{"type":"number"}}}"#;
    let request = ChatRequest {
        conversation: Some(Conversation {
            messages: vec![message],
            tools: vec![tool],
            ..Conversation::default()
        }),
        constraint: Some(Constraint { rule: Some(constraint::Rule::JsonSchema(schema.into())) }),
        limits: Some(Limits { max_tokens: Some(200), ..Limits::default() }),
        ..ChatRequest::default()
    };
    let bytes = request.encode_to_vec();
    println!("{} bytes: {request:#?}", bytes.len());
    assert_eq!(ChatRequest::decode(bytes.as_slice())?, request);
    Ok(())
}
