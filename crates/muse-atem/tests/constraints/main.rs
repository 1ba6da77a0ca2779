//! What constraints allow, in the tokens of the embedded checkpoint.

mod answers;
mod budget;
mod calls;
mod limits;

use std::sync::{Arc, LazyLock};

use muse_atem::request::{ChatRequest, ToolChoice};
use muse_atem::{AnswerRule, Grammars, Tokenizer};
use muse_core::contract::{Constraint, Conversation, Token, TokenMask, Tokenizer as _, Vocabulary};
use muse_testkit::nano_dir;
use serde_json::{Value, json};

static NANO: LazyLock<Arc<Tokenizer>> = LazyLock::new(|| {
    let json = std::fs::read(nano_dir().join("target/tokenizer.json")).unwrap();
    Tokenizer::new(Vocabulary::HuggingFace(json)).unwrap()
});
static GRAMMARS: LazyLock<Grammars> = LazyLock::new(|| Grammars::new(NANO.clone()).unwrap());

/// The tokens of a text in which special tokens are spelled.
fn tokens(text: &str) -> Vec<Token> {
    let mut tokens = Vec::new();
    for part in text.split_inclusive("|>") {
        let (plain, special) = part.find("<|").map_or((part, ""), |at| part.split_at(at));
        NANO.encode(plain, &mut tokens);
        tokens.extend(NANO.special_token(special));
    }
    tokens
}

fn request(body: Value) -> (Conversation, ToolChoice, AnswerRule) {
    let mut body = body;
    body["messages"] = json!([{"role": "user", "content": "?"}]);
    let request = ChatRequest::parse(body.to_string().as_bytes()).unwrap();
    (request.conversation, request.tool_choice, request.answer)
}

fn constraint(body: Value) -> Box<dyn Constraint> {
    let (conversation, choice, answer) = request(body);
    GRAMMARS.constraint(&conversation, &choice, &answer).unwrap().expect("a constraint")
}

fn refusal(body: Value) -> String {
    let (conversation, choice, answer) = request(body);
    match GRAMMARS.constraint(&conversation, &choice, &answer) {
        Ok(_) => panic!("accepted"),
        Err(error) => error.to_string(),
    }
}

fn answer(rule: AnswerRule) -> Box<dyn Constraint> {
    let none = Conversation::default();
    GRAMMARS.constraint(&none, &ToolChoice::Auto, &rule).unwrap().expect("a constraint")
}

/// Whether the constraint allows the whole text, by masks and as a draft. Where a text is forced, a
/// mask may allow only another tokenization of it.
fn accepts(constraint: &mut dyn Constraint, text: &str) -> bool {
    let tokens = tokens(text);
    let legal = constraint.legal_prefix(&tokens).unwrap();
    let mut mask = TokenMask::default();
    let mut taken = 0;
    for token in &tokens {
        constraint.mask(&mut mask).unwrap();
        if !mask.allows(*token) {
            break;
        }
        constraint.accept(*token).unwrap();
        taken += 1;
    }
    constraint.rollback(taken).unwrap();
    assert!(legal >= taken, "the mask lets through what a draft may not hold: {text}");
    taken == tokens.len()
}

#[track_caller]
fn check(constraint: &mut Box<dyn Constraint>, allowed: &[&str], refused: &[&str]) {
    for text in allowed {
        assert!(accepts(constraint.as_mut(), text), "refused {text}");
    }
    for text in refused {
        assert!(!accepts(constraint.as_mut(), text), "let through {text}");
    }
}

fn schema(schema: &Value) -> Value {
    json!({"response_format": {"type": "json_schema", "json_schema": {"name": "s", "schema": schema}}})
}

fn function(name: &str, strict: bool, properties: &Value, required: &[&str]) -> Value {
    let parameters = json!({"type": "object", "properties": properties, "required": required});
    let function = json!({"name": name, "strict": strict, "parameters": parameters});
    json!({"type": "function", "function": function})
}

fn call(name: &str, parameters: &str) -> String {
    format!(
        " to={name}<|message|><atem:function_calls>\n<atem:invoke name=\"{name}\">\n{parameters}\
         </atem:invoke>\n</atem:function_calls>"
    )
}

fn parameter(key: &str, value: &str) -> String {
    format!("<atem:parameter name=\"{key}\">{value}</atem:parameter>\n")
}
