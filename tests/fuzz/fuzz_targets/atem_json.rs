//! The input is the body of a request: it is refused with a reason, or it renders; and JSON prints
//! to itself.
#![no_main]

use libfuzzer_sys::fuzz_target;
use muse_atem::json::Json;
use muse_atem::request::{ChatRequest, from_template_arguments};
use muse_atem::{render, spell};

fuzz_target!(|data: &[u8]| {
    match ChatRequest::parse(data) {
        Err(error) => assert!(!error.to_string().is_empty()),
        Ok(request) => {
            let prompt = spell(&render(&request.conversation).expect("a checked request renders"));
            assert!(prompt.starts_with("<|begin_of_text|>"));
        }
    }
    let Ok(text) = std::str::from_utf8(data) else { return };
    let ours = Json::parse(text);
    let theirs = serde_json::from_str::<serde_json::Value>(text);
    // Numbers beyond the range of doubles are JSON too; depth is counted slightly differently.
    if let (Ok(json), Ok(value)) = (&ours, &theirs) {
        let compact = json.to_compact();
        assert_eq!(&Json::parse(&compact).expect("printed JSON reads"), json);
        assert_eq!(serde_json::from_str::<serde_json::Value>(&compact).ok().as_ref(), Some(value));
    } else if let (Err(ours), Ok(_)) = (&ours, &theirs) {
        panic!("serde_json reads what we refuse: {ours}");
    }
    if let Ok(json) = ours
        && let Ok(conversation) = from_template_arguments(&json)
    {
        let _ = render(&conversation);
    }
});
