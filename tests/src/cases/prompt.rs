//! Cases of what a client sent.

use muse_atem::json::Json;
use muse_atem::request::{ChatRequest, from_template_arguments};
use muse_atem::{render, render_history, spell};
use serde_json::Value;

use super::{Case, Outcome, difference};

/// Keyword arguments of the chat template.
pub(super) fn run_template(case: &Case) -> Outcome {
    let arguments = &case.given["kwargs"];
    let rendered = || -> Result<String, String> {
        let json = Json::parse(&arguments.to_string()).map_err(|e| e.to_string())?;
        let conversation = from_template_arguments(&json).map_err(|e| e.to_string())?;
        let parts = match arguments["add_generation_prompt"].as_bool() {
            Some(true) => render(&conversation),
            _ => render_history(&conversation),
        };
        Ok(spell(&parts.map_err(|e| e.to_string())?))
    };
    match (rendered(), case.expect["prompt"].as_str()) {
        (Ok(found), Some(expected)) if found == expected => Outcome::Passed,
        (Ok(found), expected) => Outcome::Failed(difference("prompt", &found, &expected)),
        (Err(_), None) if case.expect["error"].is_string() => Outcome::Passed,
        (Err(error), _) => Outcome::Failed(format!("does not render: {error}")),
    }
}

/// The body of an HTTP request.
pub(super) fn run_request(case: &Case) -> Outcome {
    let endpoint = case.given["endpoint"].as_str().unwrap_or_default();
    if endpoint != "/v1/chat/completions" {
        return Outcome::Skipped(format!("{endpoint} comes with the serving issue"));
    }
    if case.expect["layer"] == "e2e" {
        return Outcome::Skipped("needs a running server; see the end-to-end tests".to_owned());
    }
    let result = ChatRequest::parse(case.given["body"].to_string().as_bytes());
    let accepts = |status: u64| {
        case.expect["status"] == status
            || case.expect["accept"].as_array().is_some_and(|all| all.contains(&status.into()))
    };
    match result {
        Ok(request) if accepts(200) => check_prompt(request, &case.expect),
        Ok(_) => Outcome::Failed("accepted, expected 400".to_owned()),
        Err(error) if !accepts(400) => Outcome::Failed(format!("refused: {error}")),
        Err(error) => match case.expect["error_contains"].as_str() {
            Some(part) if !error.to_string().contains(part) => {
                Outcome::Failed(difference("error", &error.to_string(), &part))
            }
            _ => Outcome::Passed,
        },
    }
}

fn check_prompt(request: ChatRequest, expect: &Value) -> Outcome {
    let Some(expected) = expect["prompt"].as_str() else { return Outcome::Passed };
    let mut conversation = request.conversation;
    if conversation.current_date.is_none() {
        conversation.current_date = expect["prompt_date"].as_str().map(str::to_owned);
    }
    match render(&conversation) {
        Ok(parts) if spell(&parts) == expected => Outcome::Passed,
        Ok(parts) => Outcome::Failed(difference("prompt", &spell(&parts), &expected)),
        Err(error) => Outcome::Failed(format!("does not render: {error}")),
    }
}
