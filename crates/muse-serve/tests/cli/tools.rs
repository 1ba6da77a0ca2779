//! `muse chat --tools`: calls are run here, whoever holds the model.

use super::serve::Server;
use super::*;

#[test]
fn tools_are_run_until_the_model_answers() {
    let args = ["chat", "--tools", "--json", "Use the calculator: 25 * 12"];
    let answer = muse(&[&args, &DATE[..]].concat()).json();
    assert_eq!(answer["content"], "25 * 12 = 300.");
    assert_eq!(answer["tool_calls"], json!([]), "the answer itself calls nothing");
    let results = answer["tool_results"].as_array().expect("results");
    assert_eq!(results.len(), 1, "{answer}");
    assert_eq!(
        (&results[0]["name"], &results[0]["result"]),
        (&json!("calculator.calculate"), &json!("300"))
    );
    let arguments = results[0]["arguments"].as_str().expect("a text");
    let arguments: Value = serde_json::from_str(arguments).expect("JSON");
    assert_eq!(arguments, json!({ "expression": "25 * 12" }));
}

#[test]
fn calls_and_results_are_shown_and_every_answer_is_accounted_for() {
    let chat = &[&["chat", "--tools", "--line-by-line"], &DATE[..]].concat();
    let input = "How many words are in \"cat dog sun\"?\nWhat is 4 + 5?\n";
    let Said { code, out, err } = muse_with(chat, input);
    assert_eq!(code, Some(0), "{err}");
    let call = "call text.get_statistics ";
    let result = "result {\"words\": 3, \"characters\": 11}\n";
    let answer = "The text has 3 words and 11 characters.\n";
    let mut rest = out.as_str();
    for part in [call, result, answer, "4 + 5 = 9.\n"] {
        let Some((_, after)) = rest.split_once(part) else { panic!("no {part:?} in order: {out}") };
        rest = after;
    }
    assert_eq!(err.lines().count(), 3, "a line for each answer of the model: {err}");
    for line in err.lines() {
        for word in ["(prompt ", " cached", "; answer ", "reasoning", "/s; drafts accepted "] {
            assert!(line.contains(word), "no {word:?} in {line}");
        }
    }
    let cached = |line: &str| -> u32 {
        let (_, rest) = line.split_once("tokens, ").expect("a count");
        rest.split(' ').next().and_then(|word| word.parse().ok()).expect("a number")
    };
    let cached: Vec<u32> = err.lines().map(cached).collect();
    assert!(cached[0] == 0 && cached[1] > 0, "the second prompt continues the first: {err}");
}

#[test]
fn a_servers_calls_are_run_here_as_well() {
    let server = Server::start();
    let chat = ["chat", "--server", &server.grpc, "--tools", "--json"];
    let answer = muse(&[&chat, &DATE[..], &["What time is it in UTC?"]].concat()).json();
    let results = answer["tool_results"].as_array().expect("results");
    assert_eq!(results[0]["name"], "time.get_current_time", "{answer}");
    let result = results[0]["result"].as_str().expect("a text");
    let result: Value = serde_json::from_str(result).expect("JSON");
    let time = result["time"].as_str().expect("a time");
    assert!(time.len() == 5 && time.as_bytes()[2] == b':', "{result}");
    assert_eq!(answer["finish_reason"], "stop", "the model goes on from the result: {answer}");
}
