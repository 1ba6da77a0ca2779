//! Joins the results in a history to their calls.

use std::collections::HashMap;

use muse_core::contract::Message;

use super::error::RequestError;

/// A call that was made, and its place in the messages.
struct MadeCall {
    name: String,
    message: usize,
    position: usize,
    has_result: bool,
}

/// Fills in the tool names of results: that of the nearest earlier call with the result's id. An
/// id may come again once its call has a result.
///
/// # Errors
/// Two calls that wait for results have the same id, or a result has the id of no earlier call and
/// no tool name. The path is that of the id, like `messages[2].tool_calls[0].id`.
pub fn resolve_calls(messages: &mut [Message]) -> Result<(), RequestError> {
    let mut made: HashMap<String, MadeCall> = HashMap::new();
    for (i, message) in messages.iter_mut().enumerate() {
        match message {
            Message::Assistant { calls, .. } => {
                for (j, call) in calls.iter().enumerate().filter(|(_, call)| !call.id.is_empty()) {
                    let name = call.name.clone();
                    let new = MadeCall { name, message: i, position: j, has_result: false };
                    if let Some(MadeCall { message, position, has_result: false, .. }) =
                        made.insert(call.id.clone(), new)
                    {
                        return Err(RequestError {
                            path: format!("messages[{i}].tool_calls[{j}].id"),
                            message: format!(
                                "{:?} is the id of messages[{message}].tool_calls[{position}], \
                                 which has no result; give each open call its own",
                                call.id
                            ),
                        });
                    }
                }
            }
            Message::Tool { name, call_id: Some(id), .. } if !id.is_empty() => {
                let is_named = name.as_deref().is_some_and(|name| !name.is_empty());
                match made.get_mut(id) {
                    Some(call) => {
                        call.has_result = true;
                        if !is_named {
                            *name = Some(call.name.clone());
                        }
                    }
                    None if is_named => {}
                    None => {
                        return Err(RequestError {
                            path: format!("messages[{i}].tool_call_id"),
                            message: format!(
                                "no call before it has the id {id:?}; send the message with that \
                                 call, or the name of the tool"
                            ),
                        });
                    }
                }
            }
            _ => {}
        }
    }
    Ok(())
}
