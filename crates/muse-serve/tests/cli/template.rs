//! Templates: the native one, one from a file, and a checkpoint's own that is another.

use super::*;

const QUESTION: &str = "What is 7 + 8?";

#[test]
fn a_template_file_renders_in_place_of_the_native_one() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("plain.jinja");
    let template = "{{ bos_token }}{% for m in messages %}<|start|>{{ m.role }}<|message|>\
                    {{ m.content }}<|eot|>{% endfor %}<|start|>assistant to=user<|message|>";
    std::fs::write(&file, template).expect("a file");
    let chat = ["chat", "--json", "--chat-template", path(&file), QUESTION];
    let answer = muse(&[&chat, &DATE[..]].concat()).json();
    let native = chats()["chats"]["sum"]["prompt_ids"].as_array().expect("a list").len();
    let prompt = answer["usage"]["prompt_tokens"].as_u64().expect("a count") as usize;
    assert!(prompt > 8 && prompt < native / 2, "no system message is rendered: {answer}");
    std::fs::write(&file, "{% for %}").expect("a file");
    muse(&["chat", "--chat-template", path(&file), QUESTION]).refused(&[path(&file), "line 1"]);
    let missing = folder.path().join("missing");
    muse(&["chat", "--chat-template", path(&missing), QUESTION]).refused(&[path(&missing)]);
}

#[test]
fn a_checkpoint_with_another_template_is_warned_of() {
    let folder = tempfile::tempdir().expect("a folder");
    for entry in std::fs::read_dir(nano_dir().join("target")).expect("the embedded model") {
        let entry = entry.expect("an entry");
        std::fs::copy(entry.path(), folder.path().join(entry.file_name())).expect("a copy");
    }
    let own = folder.path().join("chat_template.jinja");
    std::fs::write(&own, "{{ messages[0].content }}").expect("a file");
    let chat = ["chat", "--model", path(folder.path()), QUESTION];
    let Said { code, out, err } = muse(&[&chat, &DATE[..]].concat());
    assert_eq!((code, out.ends_with("7 + 8 = 15.\n")), (Some(0), true), "{out}");
    assert!(err.starts_with("warning: ") && err.contains("--chat-template"), "{err}");
    let named = muse(&[&chat, &DATE[..], &["--chat-template", path(&own)]].concat());
    assert_eq!(named.err, "", "a template that is asked for is no surprise");
}
