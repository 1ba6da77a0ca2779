//! What constraints let through, on the tokens of the embedded checkpoint.

use std::sync::{Arc, LazyLock};

use muse_atem::json::Json;
use muse_atem::request::{ChatRequest, ToolChoice};
use muse_atem::{AnswerRule, Grammars, ThinkingBudget, Tokenizer};
use muse_core::contract::{Constraint, Conversation, Token, TokenMask, Tokenizer as _, Vocabulary};
use muse_testkit::nano_dir;
use serde_json::{Value, json};

static NANO: LazyLock<Arc<Tokenizer>> = LazyLock::new(|| {
    let json = std::fs::read(nano_dir().join("target/tokenizer.json")).unwrap();
    Tokenizer::new(Vocabulary::HuggingFace(json)).unwrap()
});
static GRAMMARS: LazyLock<Grammars> = LazyLock::new(|| Grammars::new(NANO.clone()).unwrap());

/// Text with its marks as tokens.
fn tokens(text: &str) -> Vec<Token> {
    let mut tokens = Vec::new();
    for part in text.split_inclusive("|>") {
        let (plain, mark) = part.find("<|").map_or((part, ""), |at| part.split_at(at));
        NANO.encode(plain, &mut tokens);
        tokens.extend(NANO.control(mark));
    }
    tokens
}

fn request(body: Value) -> (Conversation, ToolChoice, AnswerRule) {
    let mut body = body;
    body["messages"] = json!([{"role": "user", "content": "?"}]);
    let request = ChatRequest::parse(body.to_string().as_bytes()).unwrap();
    let answer = AnswerRule::from(&request.response_format);
    (request.conversation, request.tool_choice, answer)
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

/// Whether the constraint lets the whole text through, by masks and by draft alike.
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
    assert_eq!(legal, taken, "masks and drafts agree on {text}");
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

#[test]
fn structured_output_001_the_schema_binds_the_answer_and_nothing_else() {
    let berth = json!({"type": "object", "properties": {"berth": {"type": "integer"}},
        "required": ["berth"], "additionalProperties": false});
    let mut constraint = constraint(schema(&berth));
    check(
        &mut constraint,
        &[
            " to=self<|message|>Berth two?<|eom|><|start|>assistant to=user<|message|>{\"berth\": 2}<|eot|>",
            " to=self<|message|>a<|eom|><|start|>assistant to=self<|message|>b",
            " to=user<|message|>{\"berth\":12}<|eot|>",
            " to=user<|message|>{\n \"berth\": 12\n}<|eot|>",
        ],
        &[
            " to=user<|message|>Berth 2<|eot|>",
            " to=user<|message|>{\"berth\": 2.5}<|eot|>",
            " to=user<|message|>{\"berth\": 2<|eot|>",
            " to=user<|message|>{}<|eot|>",
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
fn structured_output_003_required_is_the_native_format() {
    let tools = json!([function("count", false, &json!({"n": {"type": "integer"}}), &["n"])]);
    let mut required = constraint(json!({"tools": tools, "tool_choice": "required"}));
    let one = call("count", &parameter("n", "1"));
    let thought = " to=self<|message|>Hm.<|eom|><|start|>assistant";
    check(
        &mut required,
        &[
            &format!("{one}<|eot|>"),
            &format!("{thought}{one}<|eot|>"),
            &format!("{one}<|eom|><|start|>assistant{one}<|eot|>"),
            &format!("{thought}{one}<|eom|><|start|>assistant{thought}{one}<|eot|>"),
        ],
        &[
            " to=user<|message|>No.<|eot|>",
            "[{\"name\": \"count\"}]",
            &format!("{}<|eot|>", call("count", "")),
            &format!("{}<|eot|>", call("count", &parameter("n", "one"))),
            &format!("{}<|eot|>", call("other", &parameter("n", "1"))),
            &format!("{one}<|eom|><|eot|>"),
        ],
    );
    let one_only = json!({"tools": tools, "tool_choice": "required", "parallel_tool_calls": false});
    check(
        &mut constraint(one_only),
        &[&format!("{one}<|eot|>")],
        &[&format!("{one}<|eom|><|start|>assistant{one}<|eot|>")],
    );
}

#[test]
fn structured_output_006_and_named_calls_are_armed_from_the_first_token() {
    let tools = json!([
        function("count", false, &json!({"n": {"type": "integer"}}), &["n"]),
        function(
            "files.put",
            false,
            &json!({"path": {"type": "string"}, "body": {"type": "string"}}),
            &["path"]
        ),
    ]);
    let named = json!({"type": "function", "function": {"name": "files.put"}});
    let mut constraint = constraint(json!({"tools": tools, "tool_choice": named}));
    let body = |parameters: &str| {
        let whole = call("files.put", parameters);
        whole.strip_prefix(" to=files.put<|message|>").unwrap().to_owned() + "<|eot|>"
    };
    check(
        &mut constraint,
        &[
            &body(&(parameter("path", "a b\n<c>") + &parameter("body", "{\"x\": 1}"))),
            &body(&parameter("path", "")),
        ],
        &[&body(&parameter("body", "b")), &body(&parameter("mode", "b")), &call("count", "")],
    );
}

#[test]
fn strict_tools_bind_under_auto() {
    let tools = json!([
        function("count", true, &json!({"n": {"type": "integer"}}), &["n"]),
        function("free", false, &json!({}), &[]),
    ]);
    check(
        &mut constraint(json!({"tools": tools})),
        &[
            " to=user<|message|>Anything<|eot|>",
            &format!("{}<|eot|>", call("count", &parameter("n", "-4"))),
            &format!("{}<|eot|>", call("free", &parameter("any", "thing"))),
            " to=user<|message|>So:<|eom|><|start|>assistant to=free<|message|>",
        ],
        &[&format!("{}<|eot|>", call("count", &parameter("n", "x")))],
    );
    let loose = json!([function("free", false, &json!({}), &[])]);
    let (conversation, choice, answer) = request(json!({"tools": loose}));
    assert!(GRAMMARS.constraint(&conversation, &choice, &answer).unwrap().is_none());
}

#[test]
fn structured_output_007_names_are_escaped() {
    for name in ["a.b-c_d", &"x".repeat(140), "mcp__a:b"] {
        let tools = json!([function(name, true, &json!({}), &[])]);
        check(
            &mut constraint(json!({"tools": tools})),
            &[&format!("{}<|eot|>", call(name, ""))],
            &[],
        );
    }
    let odd = json!([function("t", true, &json!({"a \\b / {c}": {"type": "boolean"}}), &[])]);
    let whole = call("t", &parameter("a \\b / {c}", "true"));
    check(&mut constraint(json!({"tools": odd})), &[&format!("{whole}<|eot|>")], &[]);
}

#[test]
fn structured_output_008_values_are_what_the_template_prints() {
    let properties = json!({
        "mix": {"anyOf": [{"const": "red"}, {"const": 3}]},
        "size": {"enum": ["small", "large"]},
        "code": {"type": "string", "pattern": "^[A-Z]{2}[0-9]+$"},
        "short": {"type": "string", "maxLength": 3},
        "on": {"type": "boolean"},
        "maybe": {"type": ["string", "null"]},
        "list": {"type": "array", "items": {"$ref": "#/$defs/Item"}},
        "ratio": {"type": "number", "minimum": 0, "maximum": 1},
    });
    let mut tool = function("t", true, &properties, &[]);
    tool["function"]["parameters"]["$defs"] = json!({"Item": {"type": "object",
        "properties": {"k": {"type": "integer"}}, "required": ["k"], "additionalProperties": false}});
    let mut constraint = constraint(json!({"tools": [tool]}));
    for (key, value, fits) in [
        ("mix", "red", true),
        ("mix", "3", true),
        ("mix", "\"red\"", false),
        ("mix", "4", false),
        ("size", "small", true),
        ("size", "huge", false),
        ("code", "AB12", true),
        ("code", "ab12", false),
        ("code", "AB12x", false),
        ("short", "abc", true),
        ("short", "abcd", false),
        ("on", "true", true),
        ("on", "True", false),
        ("maybe", "null", true),
        ("maybe", "any\nthing </b>", true),
        ("list", "[{\"k\": 1}, {\"k\": 2}]", true),
        ("list", "[{\"k\": 1},{\"k\": 2}]", false),
        ("list", "[{\"k\": \"1\"}]", false),
        ("ratio", "0.25", true),
        ("ratio", "2", false),
    ] {
        let text = call("t", &parameter(key, value)) + "<|eot|>";
        assert_eq!(accepts(constraint.as_mut(), &text), fits, "{key} = {value}");
    }
}

#[test]
fn structured_output_009_what_cannot_be_honoured_is_named() {
    let look = json!({"type": "string", "pattern": "(?<=x)y"});
    for (body, keyword) in [
        (schema(&look), "pattern"),
        (
            schema(&json!({"type": "object", "unevaluatedProperties": false})),
            "unevaluatedProperties",
        ),
        (schema(&json!({"type": "array", "uniqueItems": true})), "uniqueItems"),
        (schema(&json!({"$ref": "#/$defs/Gone"})), "$ref"),
        (schema(&json!({"not": {"type": "string"}})), "not"),
        (json!({"tools": [function("t", true, &json!({"p": look}), &[])]}), "pattern"),
        (json!({"tools": [function("t", true, &json!({}), &["gone"])]}), "required"),
    ] {
        let message = refusal(body.clone());
        assert!(message.contains(keyword), "{body}: {message:?} does not name {keyword}");
    }
}

#[test]
fn server_dos_002_hostile_patterns_run_in_linear_time() {
    let mut constraint = constraint(schema(&json!({"type": "string", "pattern": "^(a+)+$"})));
    let long = "a".repeat(2000);
    let start = std::time::Instant::now();
    check(
        &mut constraint,
        &[&format!(" to=user<|message|>\"{long}\"<|eot|>")],
        &[&format!(" to=user<|message|>\"{long}b\"<|eot|>")],
    );
    assert!(start.elapsed().as_secs() < 20, "took {:?}", start.elapsed());
    // Counts upon counts: refused or followed, but at once.
    let huge = json!({"type": "string", "pattern": "^(a{1,100}){1,100}b$"});
    let (conversation, choice, rule) = request(schema(&huge));
    if let Ok(Some(mut constraint)) = GRAMMARS.constraint(&conversation, &choice, &rule) {
        let text = tokens(&format!(" to=user<|message|>\"{}", "a".repeat(200)));
        for token in text {
            if constraint.accept(token).is_err() {
                break;
            }
        }
    }
    assert!(start.elapsed().as_secs() < 20, "took {:?}", start.elapsed());
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
        (AnswerRule::Regex("(".to_owned()), "regular expression"),
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
        // Draft the rest, take it back, and find everything as it was.
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

/// Random walks: whatever the model likes, the answer fits.
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
            let end = NANO.control("<|eot|>").unwrap();
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
                    // A number beyond doubles is JSON, but not for serde_json.
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

#[test]
fn metrics_usage_002_the_budget_closes_the_channel() {
    let conversation = Conversation::default();
    let mut budget = ThinkingBudget::new(4, &conversation, NANO.clone() as Arc<_>, None).unwrap();
    let closing = tokens("<|eom|><|start|>assistant to=user<|message|>");
    for token in tokens(" to=self<|message|>") {
        assert_eq!(budget.forced().unwrap(), None);
        budget.accept(token).unwrap();
    }
    let thought = tokens("one two three four");
    let mut whole = thought[..4].to_vec();
    whole.extend(&closing);
    assert_eq!(budget.legal_prefix(&thought).unwrap(), 4, "the fifth is too much");
    assert_eq!(budget.legal_prefix(&whole).unwrap(), whole.len());
    thought[..4].iter().for_each(|token| budget.accept(*token).unwrap());
    for token in &closing {
        assert_eq!(budget.forced().unwrap(), Some(*token));
        let mut mask = TokenMask::default();
        budget.mask(&mut mask).unwrap();
        assert_eq!((0..1024).filter(|t| mask.allows(Token(*t))).count(), 1);
        assert!(budget.accept(Token(1)).is_err());
        budget.accept(*token).unwrap();
    }
    assert_eq!(budget.forced().unwrap(), None);
    budget.rollback(closing.len() + 1).unwrap();
    assert_eq!(budget.forced().unwrap(), None, "one more thought is free again");
}

#[test]
fn a_budget_with_tools_leaves_the_choice_but_not_for_more_reasoning() {
    let tools = json!([function("count", true, &json!({"n": {"type": "integer"}}), &["n"])]);
    let (conversation, choice, rule) = request(json!({"tools": tools}));
    let inner = GRAMMARS.constraint(&conversation, &choice, &rule).unwrap();
    let mut budget = ThinkingBudget::new(2, &conversation, NANO.clone() as Arc<_>, inner).unwrap();
    for token in tokens(" to=self<|message|>") {
        budget.accept(token).unwrap();
    }
    tokens("a b").iter().take(2).for_each(|token| budget.accept(*token).unwrap());
    for token in tokens("<|eom|><|start|>assistant") {
        assert_eq!(budget.forced().unwrap(), Some(token));
        budget.accept(token).unwrap();
    }
    let call = call("count", &parameter("n", "1")) + "<|eot|>";
    assert!(accepts(&mut budget, &call));
    assert!(!accepts(&mut budget, " to=self<|message|>"));
    let mut none =
        ThinkingBudget::new(0, &Conversation::default(), NANO.clone() as Arc<_>, None).unwrap();
    assert!(!accepts(&mut none, " to=self<|message|>"));
    assert!(accepts(&mut none, " to=user<|message|>Hi<|eot|>"));
}

#[test]
fn compiled_grammars_are_kept() {
    let deep = json!({"type": "object", "properties": (0..60).map(|i| (format!("k{i}"), json!({"type": "string", "maxLength": i + 1})))
        .collect::<serde_json::Map<_, _>>()});
    let time = || {
        let start = std::time::Instant::now();
        drop(constraint(schema(&deep)));
        start.elapsed()
    };
    let (first, second) = (time(), time());
    assert!(second * 2 < first, "first {first:?}, second {second:?}");
}
