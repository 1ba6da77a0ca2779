//! Constraints on the visible answer; drafts do not change them.

use muse_atem::AnswerRule;
use muse_atem::json::Json;
use muse_atem::request::{ChatRequest, ToolChoice};
use muse_core::contract::{Constraint, Conversation, Token, TokenMask, Tokenizer as _};
use serde_json::{Value, json};

use super::{GRAMMARS, NANO, answer, check, constraint, schema, tokens};

#[test]
fn structured_output_001_the_schema_constrains_only_the_answer() {
    let berth = json!({"type": "object", "properties": {"berth": {"type": "integer"}},
        "required": ["berth"], "additionalProperties": false});
    let mut constraint = constraint(schema(&berth));
    check(
        &mut constraint,
        &[
            " to=self<|message|>Berth two?<|eom|><|start|>assistant to=user<|message|>{\"berth\": 2}<|eot|>",
            " to=self<|message|>a<|eom|><|start|>assistant to=self<|message|>b",
            " to=user<|message|>{\"berth\":12}<|eot|>",
        ],
        &[
            " to=user<|message|>Berth 2<|eot|>",
            " to=user<|message|>{\"berth\": 2.5}<|eot|>",
            " to=user<|message|>{\"berth\": 2<|eot|>",
            " to=user<|message|>{}<|eot|>",
            " to=user<|message|>{\"berth\":  2}<|eot|>",
            " to=user<|message|>{\"berth\": 2 }<|eot|>",
            " to=user<|message|>{\"berth\":\n2}<|eot|>",
            " to=user<|message|>{\"berth\": 2}\n<|eot|>",
            "<|message|>{\"berth\": 2}<|eot|>",
            " to=self<|message|>a<|eot|>",
            " to=count<|message|>",
        ],
    );
}

#[test]
fn structured_output_002_thinking_off_begins_in_the_body() {
    let mut body = schema(&json!({"type": "object"}));
    body["reasoning_effort"] = "none".into();
    check(
        &mut constraint(body),
        &["{\"berth\": 2}<|eot|>"],
        &[" to=user<|message|>{}<|eot|>", "x"],
    );
}

#[test]
fn a_continued_answer_is_constrained_as_a_whole() {
    let berth = json!({"type": "object", "properties": {"berth": {"type": "integer"}},
        "required": ["berth"], "additionalProperties": false});
    let request = |begun: &str| {
        let mut body = schema(&berth);
        body["messages"] =
            json!([{"role": "user", "content": "?"}, {"role": "assistant", "content": begun}]);
        body["continue_final_message"] = json!(true);
        ChatRequest::parse(body.to_string().as_bytes()).unwrap()
    };
    let compile = |request: &ChatRequest| {
        GRAMMARS.constraint(&request.conversation, &request.tool_choice, &request.answer)
    };
    let mut open = compile(&request("{\"ber")).unwrap().expect("a constraint");
    check(
        &mut open,
        &["th\": 12}<|eot|>"],
        &["x\": 12}<|eot|>", "{\"berth\": 12}<|eot|>", "<|eot|>"],
    );
    let error = compile(&request("Berth")).err().expect("it does not fit").to_string();
    assert!(error.contains("the message to continue does not fit"), "{error}");
}

#[test]
fn a_prompt_without_header_is_constrained_from_the_header_on() {
    let mut body = schema(&json!({"type": "object"}));
    body["add_generation_prompt"] = json!(false);
    check(
        &mut constraint(body),
        &["<|start|>assistant to=user<|message|>{}<|eot|>"],
        &[" to=user<|message|>{}<|eot|>", "<|start|>user"],
    );
}

#[test]
fn gbnf_is_honoured_exactly() {
    let gbnf = |text: &str| answer(AnswerRule::Gbnf(text.to_owned()));
    let check_texts = |grammar: &str, allowed: &[&str], refused: &[&str]| {
        let mut constraint = gbnf(grammar);
        let whole = |text: &str| format!(" to=user<|message|>{text}<|eot|>");
        allowed.iter().for_each(|text| check(&mut constraint, &[&whole(text)], &[]));
        refused.iter().for_each(|text| check(&mut constraint, &[], &[&whole(text)]));
    };
    // Longest match would lose `abc` and `aab` here.
    check_texts("root ::= (\"a\" | \"ab\") \"bc\"", &["abc", "abbc"], &["ab", "abcb"]);
    check_texts("root ::= [a-z]* \"ab\"", &["ab", "aab", "abab"], &["a", "aba"]);
    check_texts(
        "root ::= \"x\" root \"y\" | \"xy\" | \"\"",
        &["", "xy", "xxyy", "xxxyyy"],
        &["xyy", "yx"],
    );
    check_texts(
        "root ::= expr \"=\" num\nexpr ::= term ([-+*/] term)*\n\
         term ::= num | \"(\" expr \")\" # nested\nnum ::= [0-9]{1,3}",
        &["(1+2)*3=9", "1=1", "((12))=123"],
        &["1+=2", "(1=1", "1=1234"],
    );
    check_texts(
        "root ::= [^a-c\\n]{2} \"\\u00e9\" .",
        &["xyé\n", "ééé🦭"],
        &["ayéx", "xyé", "x\néa"],
    );
}

#[test]
fn gbnf_of_json_is_followed_at_once() {
    // As llama.cpp ships it, in the main.
    let json = r#"
root   ::= object
value  ::= object | array | string | number | ("true" | "false" | "null") ws
object ::=
  "{" ws (
            string ":" ws value
    ("," ws string ":" ws value)*
  )? "}" ws
array  ::= "[" ws ( value ("," ws value)* )? "]" ws
string ::=
  "\"" (
    [^"\\\x7F\x00-\x1F] |
    "\\" (["\\bfnrt] | "u" [0-9a-fA-F]{4})
  )* "\"" ws
number ::= ("-"? ([0-9] | [1-9] [0-9]{0,15})) ("." [0-9]+)? ([eE] [-+]? [0-9] [1-9]{0,15})? ws
ws ::= | " " | "\n" [ \t]{0,20}
"#;
    let text =
        json!({"a": [1, -2.5e7, true, null], "b": {"c": "d \"é\" 🦭 x\n"}, "e": []}).to_string();
    let mut constraint = answer(AnswerRule::Gbnf(json.to_owned()));
    let refused = [
        " to=user<|message|>{\"a\" 1}<|eot|>",
        " to=user<|message|>[]<|eot|>",
        " to=user<|message|>{\"a\": 01x}<|eot|>",
    ];
    check(&mut constraint, &[&format!(" to=user<|message|>{text}<|eot|>")], &refused);
}

#[test]
fn answers_can_be_patterns_grammars_and_choices() {
    check(
        &mut answer(AnswerRule::Regex("[0-9]+/[a-z]*".to_owned())),
        &[" to=user<|message|>12/ab<|eot|>"],
        &[" to=user<|message|>12<|eot|>", " to=user<|message|>12/ab!<|eot|>"],
    );
    check(
        &mut answer(AnswerRule::Lark("start: \"a\" NUMBER\nNUMBER: /[0-9]+/".to_owned())),
        &[" to=user<|message|>a12<|eot|>"],
        &[" to=user<|message|>b12<|eot|>"],
    );
    check(
        &mut answer(AnswerRule::Choice(vec!["yes".to_owned(), "no \"way\"".to_owned()])),
        &[" to=user<|message|>yes<|eot|>", " to=user<|message|>no \"way\"<|eot|>"],
        &[" to=user<|message|>maybe<|eot|>", " to=user<|message|>yes!<|eot|>"],
    );
    let none = Conversation::default();
    for (rule, what) in [
        (AnswerRule::Regex("(".to_owned()), "expression \"(\" is not supported: unclosed group at"),
        (AnswerRule::Lark("nonsense".to_owned()), "grammar"),
        (AnswerRule::Choice(Vec::new()), "no texts"),
        (AnswerRule::Regex("a".repeat(1 << 20)), "at most"),
    ] {
        let error = GRAMMARS.constraint(&none, &ToolChoice::Auto, &rule).err().unwrap();
        assert!(error.to_string().contains(what), "{error}");
    }
}

#[test]
fn dflash_014_rejected_drafts_roll_back() {
    let mut constraint =
        constraint(schema(&json!({"type": "object", "properties": {"a": {"type": "integer"}},
        "required": ["a"], "additionalProperties": false})));
    let whole = tokens(" to=user<|message|>{\"a\": 15}<|eot|>");
    let masks = |constraint: &mut dyn Constraint| {
        let mut mask = TokenMask::default();
        constraint.mask(&mut mask).unwrap();
        mask
    };
    let mut before = Vec::new();
    for (at, token) in whole.iter().enumerate() {
        before.push(masks(constraint.as_mut()));
        // Accept the rest as a draft, roll it back, and compare the state.
        let legal = constraint.legal_prefix(&whole[at..]).unwrap();
        assert_eq!(legal, whole.len() - at);
        for draft in &whole[at..] {
            constraint.accept(*draft).unwrap();
        }
        constraint.rollback(whole.len() - at).unwrap();
        assert_eq!(masks(constraint.as_mut()), before[at]);
        constraint.accept(*token).unwrap();
    }
    for at in (0..whole.len()).rev() {
        constraint.rollback(1).unwrap();
        assert_eq!(masks(constraint.as_mut()), before[at]);
    }
}

/// Random walks over allowed tokens: the answer always fits its rule.
#[test]
fn random_answers_are_always_valid() {
    type Fits = fn(&Value) -> bool;
    let schemas: [(Value, Fits); 10] = [
        (json!({"type": "object"}), Value::is_object),
        (json!({"type": "integer", "minimum": 3, "maximum": 12}), |v| {
            (3..=12).contains(&v.as_i64().unwrap_or(0))
        }),
        (json!({"type": "string", "maxLength": 5}), |v| {
            v.as_str().is_some_and(|s| s.chars().count() <= 5)
        }),
        (json!({"enum": ["a", 1, null]}), |v| *v == "a" || *v == 1 || v.is_null()),
        (
            json!({"type": "array", "items": {"type": "boolean"}, "minItems": 1, "maxItems": 3}),
            |v| {
                v.as_array()
                    .is_some_and(|a| (1..=3).contains(&a.len()) && a.iter().all(Value::is_boolean))
            },
        ),
        (
            json!({"type": "object", "properties": {"x": {"type": "number"}}, "required": ["x"], "additionalProperties": false}),
            |v| v["x"].is_number() && v.as_object().is_some_and(|o| o.len() == 1),
        ),
        (json!({"anyOf": [{"type": "null"}, {"type": "boolean"}]}), |v| {
            v.is_null() || v.is_boolean()
        }),
        (json!({"type": "string", "pattern": "^[ab]{2,4}$"}), |v| {
            v.as_str()
                .is_some_and(|s| (2..=4).contains(&s.len()) && s.chars().all(|c| "ab".contains(c)))
        }),
        (
            json!({"$defs": {"n": {"type": "integer"}}, "type": "array", "prefixItems": [{"$ref": "#/$defs/n"}, {"const": "z"}],
            "minItems": 2, "items": false}),
            |v| v[0].is_i64() && v[1] == "z" && v[2].is_null(),
        ),
        (
            json!({"type": "object", "properties": {"d": {"type": "string", "format": "date"}}, "required": ["d"]}),
            |v| v["d"].as_str().is_some_and(|d| d.len() == 10),
        ),
    ];
    let mut noise = 0x9e37_79b9_7f4a_7c15_u64;
    let mut random = move |bound: usize| {
        noise ^= noise << 13;
        noise ^= noise >> 7;
        noise ^= noise << 17;
        (noise % bound as u64) as usize
    };
    for (shape, fits) in &schemas {
        let mut finished = 0;
        for _ in 0..12 {
            let mut constraint = constraint(schema(shape));
            for token in tokens(" to=user<|message|>") {
                constraint.accept(token).unwrap();
            }
            let mut bytes = Vec::new();
            let mut mask = TokenMask::default();
            let end = NANO.special_token("<|eot|>").unwrap();
            for _ in 0..150 {
                constraint.mask(&mut mask).unwrap();
                let allowed: Vec<Token> =
                    (0..1024).map(Token).filter(|token| mask.allows(*token)).collect();
                assert!(!allowed.is_empty(), "{shape}: nothing allowed behind {bytes:?}");
                let ends = mask.allows(end) && random(2) == 0;
                let token = if ends { end } else { allowed[random(allowed.len())] };
                constraint.accept(token).unwrap();
                if token == end {
                    let text = String::from_utf8(bytes.clone()).unwrap();
                    assert!(Json::parse(&text).is_ok(), "{shape}: {text}");
                    // A number beyond the range of doubles is JSON, but not for serde_json.
                    if let Ok(value) = serde_json::from_str::<Value>(&text) {
                        assert!(fits(&value), "{shape}: {text}");
                    }
                    finished += 1;
                    break;
                }
                NANO.decode(token, &mut bytes);
            }
        }
        println!("{shape}: {finished} of 12 finished");
    }
}
