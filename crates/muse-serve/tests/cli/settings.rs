//! Flags and variables: what is short for what, what empty and unknown variables do.

use super::*;

/// Runs with only these variables of muse's.
fn muse_env(args: &[&str], variables: &[(&str, &str)]) -> Said {
    let mut command = Command::new(env!("CARGO_BIN_EXE_muse"));
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("MUSE_") {
            command.env_remove(name);
        }
    }
    let output = command.args(args).envs(variables.iter().copied()).output().expect("muse runs");
    let text = |bytes| String::from_utf8(bytes).expect("muse writes UTF-8");
    Said { code: output.status.code(), out: text(output.stdout), err: text(output.stderr) }
}

const GENERATE: [&str; 5] = ["generate", "--ids", "5", "--max-tokens", "1"];

#[test]
fn empty_variables_are_unset() {
    let names = ["MODEL", "CONTEXT", "EXACT", "CONFIG", "BACKEND", "KV", "NO_DRAFT"];
    let names = names.map(|name| format!("MUSE_{name}"));
    let empty: Vec<(&str, &str)> = names.iter().map(|name| (name.as_str(), "")).collect();
    muse_env(&GENERATE, &empty).ok();
}

#[test]
fn an_error_names_the_variable() {
    muse_env(&GENERATE, &[("MUSE_CONTEXT", "many")]).refused(&["MUSE_CONTEXT", "many"]);
    muse_env(&GENERATE, &[("MUSE_EXACT", "perhaps")]).refused(&["MUSE_EXACT", "perhaps"]);
    // Only a command that would use it reads a variable, and a flag comes before it.
    muse_env(&["inspect", path(&tiny())], &[("MUSE_CONTEXT", "many")]).ok();
    muse_env(&GENERATE, &[("MUSE_EXACT", "1"), ("MUSE_NO_DRAFT", "0")]).ok();
    muse_env(&[&GENERATE[..], &["--no-draft"]].concat(), &[("MUSE_MAX_DRAFT", "2")]).ok();
}

#[test]
fn an_unknown_variable_is_warned_about() {
    let done = muse_env(&GENERATE, &[("MUSE_CONTEX", "512"), ("MUSE_SERVICE_HOST", "10.0.0.1")]);
    assert_eq!((done.code, done.err.lines().count()), (Some(0), 1), "{}", done.err);
    for word in ["warning: ", "MUSE_CONTEX;", "MUSE_CONTEXT"] {
        assert!(done.err.contains(word), "no {word} in {}", done.err);
    }
}

#[test]
fn the_help_names_variables_and_shows_no_value() {
    let help = muse_env(&["serve", "--help"], &[("MUSE_CONTEXT", "77")]).ok();
    for word in ["MUSE_CONTEXT", "MUSE_HTTP_PORT", "--host", "--port", "-m, --model"] {
        assert!(help.contains(word), "no {word} in {help}");
    }
}

#[test]
fn a_model_is_named_by_its_place_too() {
    let tiny = tiny();
    let model = path(&tiny);
    let refused = |args: &[&str]| muse(args).refused(&["tokenizer"]);
    refused(&["chat", "-m", model, "Hello"]);
    let args = ["bench", model, "--tokens", "1", "--repeats", "1", "--prompt", "64", "--json"];
    let record = muse(&[&args[..], &["--rows", "1", "--depth", "0"]].concat()).json();
    assert_eq!(record["model"], "target");
    muse(&["serve", "/nowhere", "--grpc", "127.0.0.1:0", "--http", "127.0.0.1:0"])
        .refused(&["/nowhere"]);
    let both = muse(&["serve", model, "--model", model]);
    assert_eq!(both.code, Some(2), "{}", both.err);
}

#[test]
fn short_options_are_those_of_peers() {
    let long = ["generate", "--prompt", "Once", "--max-tokens", "3", "--context", "64", "--greedy"];
    let short = ["generate", "-p", "Once", "-n", "3", "-c", "64", "--greedy", "-t", "1"];
    assert_eq!(muse(&long).ok(), muse(&short).ok());
    let unset = ["-n", "-1", "--seed", "-1"];
    let all =
        muse(&[&["generate", "-p", "Once", "-c", "64", "--greedy"], &unset[..]].concat()).ok();
    assert_eq!(all, muse(&["generate", "-p", "Once", "-c", "64", "--greedy"]).ok());
    muse(&["serve", "-c", "5", "--grpc", "127.0.0.1:0", "--http", "127.0.0.1:0"])
        .refused(&["--context is 5"]);
}

#[test]
fn spellings_of_other_tools_lead_to_ours() {
    for (args, words) in [
        (&["serve", "--max-model-len", "4096"][..], "--context"),
        (&["serve", "--max-num-seqs", "4"], "--parallel"),
        (&["serve", "--served-model-name", "a"], "--alias"),
        (&["serve", "-m", "x", "-ngl", "99"], "--backend"),
        (&["chat", "--temp", "0.5", "Hello"], "--temperature"),
        (&["chat", "-p", "Hello"], "as an argument"),
        (&["generate", "-p", "x", "--n-predict", "9"], "--max-tokens"),
        (&["quantize", "in", "out.gguf", "Q4_K_M"], "--type Q4_K_M"),
        (&["run", "model"], "`muse chat`"),
        (&["-m", "model"], "a command comes first"),
    ] {
        let Said { code, out, err } = muse(args);
        assert_eq!((code, out.as_str()), (Some(2), ""), "{args:?}: {err}");
        let first = err.lines().next().expect("an error");
        assert!(first.starts_with("error: ") && first.contains(words), "{args:?}: {err}");
    }
}

#[test]
fn hosts_ports_and_names_are_addresses() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = taken.local_addr().expect("an address").port().to_string();
    let refused = |args: &[&str], words: &[&str]| {
        let args = [&["serve", "--grpc", "127.0.0.1:0", "--model", "/nowhere"], args].concat();
        muse(&args).refused(words);
    };
    refused(&["--port", &port], &["HTTP", &format!("127.0.0.1:{port}")]);
    refused(&["--http", &format!("localhost:{port}")], &["HTTP", &format!("127.0.0.1:{port}")]);
    refused(&["--host", "0.0.0.0", "--port", &port], &["HTTP", &format!("0.0.0.0:{port}")]);
    refused(&["--http", "no-such-host.invalid:80"], &["--http", "no-such-host.invalid"]);
    let wrong = muse(&["serve", "--http", "8080"]);
    assert_eq!(wrong.code, Some(2));
    assert!(wrong.err.contains("localhost:8080"), "{}", wrong.err);
}
