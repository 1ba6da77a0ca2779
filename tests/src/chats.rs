//! The golden chats of the trained model: prompts, and what the reference answered in f32.

use muse_core::contract::Token;
use muse_testkit::golden_dir;
use serde_json::Value;

/// Tokens that end a turn; `<|eom|>` (903) is not one of them.
pub const STOP: [Token; 2] = [Token(897), Token(904)];

/// A prompt and its answer.
pub struct Chat {
    /// Its name, the turn included.
    pub name: String,
    /// The prompt.
    pub prompt: Vec<Token>,
    /// The greedy answer with its stop token.
    pub ids: Vec<Token>,
    /// Draft tokens kept of each block of 15.
    pub accepted: Vec<usize>,
    /// The first block's drafts.
    pub first_draft: Vec<Token>,
}

/// All chats: 18 of one answer, 6 tool round trips of two.
pub fn chats() -> Vec<Chat> {
    let file = std::fs::read(golden_dir().join("nano/chats.json")).expect("part of the tree");
    let file: Value = serde_json::from_slice(&file).expect("JSON");
    let single = entries(&file["chats"]).map(|(name, chat)| chat_of(name.clone(), chat));
    let trips = entries(&file["tool_round_trips"]).flat_map(|(name, trip)| {
        ["call", "answer"].map(|turn| chat_of(format!("{name} {turn}"), &trip[turn]))
    });
    single.chain(trips).collect()
}

fn entries(value: &Value) -> impl Iterator<Item = (&String, &Value)> {
    value.as_object().expect("an object").iter()
}

fn chat_of(name: String, chat: &Value) -> Chat {
    let numbers = |value: &Value| -> Vec<u32> {
        let list = value.as_array().unwrap_or_else(|| panic!("{name}: no list"));
        list.iter().map(|n| n.as_u64().expect("a number") as u32).collect()
    };
    let tokens = |value: &Value| numbers(value).into_iter().map(Token).collect();
    let answer = &chat["f32"];
    Chat {
        prompt: tokens(&chat["prompt_ids"]),
        ids: tokens(&answer["ids"]),
        accepted: numbers(&answer["accepted"]).into_iter().map(|n| n as usize).collect(),
        first_draft: tokens(&answer["draft0"]),
        name,
    }
}
