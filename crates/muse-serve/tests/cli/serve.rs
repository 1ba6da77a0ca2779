//! `muse serve`, and where settings come from.

use super::*;

/// A server of the embedded model, on ports that were free.
pub(crate) struct Server {
    process: Child,
    log: std::io::Lines<BufReader<ChildStderr>>,
    /// What was logged up to the addresses.
    pub(crate) first_lines: Vec<String>,
    pub(crate) grpc: String,
    pub(crate) http: String,
}

impl Server {
    pub(crate) fn start() -> Self {
        let server = Self::start_with(&[], &[]);
        let plan = |line: &String| {
            line.contains("memory plan: weights") && line.contains("as bf16 for 8 x 4096 positions")
        };
        assert!(server.first_lines.iter().any(plan), "the memory plan comes before the addresses");
        server
    }

    /// A server with more flags, and variables.
    pub(crate) fn start_with(flags: &[&str], variables: &[(&str, &str)]) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_muse"));
        let addresses = ["serve", "--grpc", "127.0.0.1:0", "--http", "127.0.0.1:0"];
        command.args(addresses).args(flags).envs(variables.iter().copied());
        let mut process = command.stderr(Stdio::piped()).spawn().expect("muse starts");
        let log = BufReader::new(process.stderr.take().expect("a pipe")).lines();
        let (first_lines, grpc, http) = (Vec::new(), String::new(), String::new());
        // Dropping it waits for the process, whatever fails below.
        let mut server = Self { process, log, first_lines, grpc, http };
        let address = |line: &str, name: &str| {
            let line = line.replace("\":\"", "=").replace('"', " ");
            let (_, rest) = line.split_once(&format!("{name}="))?;
            rest.split_whitespace().next().map(str::to_owned)
        };
        loop {
            let line = server.log.next().expect("an address is logged").expect("UTF-8");
            server.first_lines.push(line.clone());
            if let (Some(grpc), Some(http)) = (address(&line, "grpc"), address(&line, "http")) {
                (server.grpc, server.http) = (grpc, http);
                return server;
            }
        }
    }

    /// The id of the process.
    pub(crate) fn id(&self) -> u32 {
        self.process.id()
    }

    /// Sends SIGTERM; the exit code and what was logged on the way out.
    pub(crate) fn stop(&mut self) -> (Option<i32>, Vec<String>) {
        self.stop_by("-TERM")
    }

    fn stop_by(&mut self, name: &str) -> (Option<i32>, Vec<String>) {
        signal(name, &self.process);
        let log = self.log.by_ref().map(|line| line.expect("UTF-8")).collect();
        (self.process.wait().expect("an end").code(), log)
    }
}

impl Drop for Server {
    /// A test that fails leaves no server behind.
    fn drop(&mut self) {
        let _ = self.process.kill();
    }
}

#[test]
fn chat_talks_to_a_server_that_drains_when_told() {
    let mut server = Server::start();
    let chat = ["chat", "--server", &server.grpc];
    let answer = muse(&[&chat, &DATE[..], &["--json", "What is 7 + 8?"]].concat()).json();
    assert_eq!(
        (&answer["content"], &answer["reasoning"]),
        (&"7 + 8 = 15.".into(), &"Add 7 and 8.".into())
    );
    let lines = [&chat, &DATE[..], &["--line-by-line"]].concat();
    let out = muse_with(&lines, "My name is Leo.\nWhat is my name?\n").ok();
    assert!(out.ends_with("Your name is Leo.\n"), "{out}");
    let (code, log) = server.stop();
    assert_eq!(code, Some(0), "{log:?}");
    assert!(log.iter().any(|line| line.contains("stopping")), "{log:?}");
}

#[test]
fn an_address_that_does_not_speak_grpc_is_asked_about() {
    let other = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = other.local_addr().expect("an address").to_string();
    std::thread::spawn(move || {
        for socket in other.incoming().flatten() {
            let mut socket = socket;
            let _ = socket.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n");
        }
    });
    muse(&["chat", "--server", &address, "Hello"]).refused(&["address of gRPC"]);
}

#[test]
fn a_taken_address_is_named() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = taken.local_addr().expect("an address").to_string();
    let args = ["serve", "--log", "error", "--http", "127.0.0.1:0", "--grpc", &address];
    muse(&args).refused(&["gRPC", &address]);
    // Before the model is even looked for.
    muse(&[&args[..], &["--model", "/nowhere"]].concat()).refused(&["gRPC", &address]);
}

#[test]
fn settings_come_from_flags_then_variables_then_the_file() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("muse.toml");
    std::fs::write(&file, "[model]\ncontext = 64\nmax-draft = 0\n").expect("a file");
    let ids = vec!["5"; 100].join(",");
    let run = |flags: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_muse"));
        let args = ["generate", "--ids", &ids, "--json", "--max-tokens", "8", "--config"];
        let command = command.args(args).arg(&file).args(flags);
        let output = command.env("MUSE_CONTEXT", "96").output().expect("muse runs");
        let text = |bytes| String::from_utf8(bytes).expect("muse writes UTF-8");
        Said { code: output.status.code(), out: text(output.stdout), err: text(output.stderr) }
    };
    run(&[]).refused(&["100", "96"]);
    let done = run(&["--context", "128"]).json();
    assert_eq!((done["ids"].as_array().map(Vec::len), &done["accepted"]), (Some(8), &json!([])));
}

#[test]
fn a_hangup_drains_too() {
    let mut server = Server::start_with(&[], &[]);
    let (code, log) = server.stop_by("-HUP");
    assert_eq!(code, Some(0), "{log:?}");
    assert!(log.iter().any(|line| line.contains("stopped")), "{log:?}");
}

#[test]
fn names_of_the_model_are_known_or_any() {
    let ask = |server: &Server, model: &str| {
        let mut socket = std::net::TcpStream::connect(&server.http).expect("a server");
        let head =
            format!("GET /v1/models/{model} HTTP/1.1\r\nhost: h\r\nconnection: close\r\n\r\n");
        socket.write_all(head.as_bytes()).expect("a request");
        let mut reply = String::new();
        socket.read_to_string(&mut reply).expect("a reply");
        let (_, status) = reply.split_once(' ').expect("a status line");
        // The served model is named, whatever was asked for.
        assert_eq!(reply.contains("\"id\":\"muse-nano\""), status.starts_with("200"), "{reply}");
        status[..3].to_owned()
    };
    let server = Server::start_with(&[], &[]);
    assert_eq!(ask(&server, "gpt-4o"), "200");
    let server = Server::start_with(&["--strict-model", "--alias", "a", "--alias", "b"], &[]);
    for known in ["muse-nano", "muse", "Muse-Glimmer-30B", "a", "b"] {
        assert_eq!(ask(&server, known), "200", "{known}");
    }
    assert_eq!(ask(&server, "gpt-4o"), "404");
    let server = Server::start_with(&["--strict-model"], &[("MUSE_ALIAS", "c,gpt-4o")]);
    for known in ["muse-nano", "c", "gpt-4o"] {
        assert_eq!(ask(&server, known), "200", "{known}");
    }
    assert_eq!(ask(&server, "c,gpt-4o"), "404");
}

#[test]
fn a_signal_ends_a_server_that_is_still_loading() {
    for name in ["-TERM", "-INT", "-HUP"] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_muse"));
        let args = ["serve", "--grpc", "127.0.0.1:0", "--http", "127.0.0.1:0", "--log", "debug"];
        let mut process = command.args(args).stderr(Stdio::piped()).spawn().expect("muse starts");
        let mut log = BufReader::new(process.stderr.take().expect("a pipe")).lines();
        let listening = log.by_ref().map_while(Result::ok).any(|line| line.contains("listening"));
        signal(name, &process);
        let rest: Vec<String> = log.map_while(Result::ok).collect();
        // Without a handler the signal itself would end it, or do nothing in a container.
        assert_eq!(process.wait().expect("an end").code(), Some(0), "{name}: {rest:?}");
        assert!(listening && rest.iter().any(|line| line.contains("stopped")), "{name}: {rest:?}");
    }
}
