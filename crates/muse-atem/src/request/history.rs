//! What a client may ask of its history beyond the published template, which drops text beside
//! calls and renders all reasoning it is sent.

use muse_core::contract::Message;

/// Text beside calls as a message of its own before them, as the model wrote it.
pub(super) fn keep_text_beside_calls(messages: Vec<Message>) -> Vec<Message> {
    let mut kept = Vec::with_capacity(messages.len());
    for turn in messages {
        match turn {
            Message::Assistant { reasoning, content, calls, recipient, end_turn }
                if !content.is_empty() && !calls.is_empty() =>
            {
                kept.push(Message::Assistant {
                    reasoning,
                    content,
                    calls: Vec::new(),
                    recipient,
                    end_turn: Some(false),
                });
                kept.push(Message::Assistant {
                    reasoning: None,
                    content: Vec::new(),
                    calls,
                    recipient: None,
                    end_turn,
                });
            }
            turn => kept.push(turn),
        }
    }
    kept
}

/// Without the reasoning before the last message of the user: what came after it belongs to the
/// turn that goes on.
pub(super) fn drop_earlier_reasoning(messages: &mut [Message]) {
    let last = messages.iter().rposition(|turn| matches!(turn, Message::User(_))).unwrap_or(0);
    for turn in &mut messages[..last] {
        if let Message::Assistant { reasoning, .. } = turn {
            *reasoning = None;
        }
    }
}
