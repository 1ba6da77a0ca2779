//! Reasoning budgets, alone and together with a grammar.

use std::sync::Arc;

use muse_atem::ReasoningBudget;
use muse_core::contract::{Constraint, Conversation, Token, TokenMask};
use serde_json::json;

use super::{GRAMMARS, NANO, accepts, call, function, parameter, request, tokens};

#[test]
fn metrics_usage_002_the_budget_ends_the_reasoning() {
    let conversation = Conversation::default();
    let mut budget = ReasoningBudget::new(4, &conversation, NANO.clone() as Arc<_>, None).unwrap();
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
fn a_budget_with_tools_leaves_the_recipient_open_except_self() {
    let tools = json!([function("count", true, &json!({"n": {"type": "integer"}}), &["n"])]);
    let (conversation, choice, rule) = request(json!({"tools": tools}));
    let inner = GRAMMARS.constraint(&conversation, &choice, &rule).unwrap();
    let mut budget = ReasoningBudget::new(2, &conversation, NANO.clone() as Arc<_>, inner).unwrap();
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
        ReasoningBudget::new(0, &Conversation::default(), NANO.clone() as Arc<_>, None).unwrap();
    assert!(!accepts(&mut none, " to=self<|message|>"));
    assert!(accepts(&mut none, " to=user<|message|>Hi<|eot|>"));
}
