//! The official Python client of OpenAI against the built `muse serve`: what it sends is
//! understood, and what it gets back becomes its own objects and exceptions. Needs Python with the
//! client: `cargo xtask clients` brings it, or skips aloud, and runs this.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// A server of the embedded model, with the address of its HTTP.
struct Server(Child, String);

impl Server {
    fn start(flags: &[&str]) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_muse"));
        command.args(["serve", "--grpc", "127.0.0.1:0", "--http", "127.0.0.1:0"]).args(flags);
        let mut process = command.stderr(Stdio::piped()).spawn().expect("muse starts");
        let log = BufReader::new(process.stderr.take().expect("a pipe"));
        let mut lines = log.lines().map(|line| line.expect("UTF-8"));
        let found = lines.find_map(|line| Some(line.split_once("http=")?.1.to_owned()));
        // What is logged later is read away, or a full pipe would stop the server.
        std::thread::spawn(move || lines.for_each(drop));
        let found = found.expect("an address is logged");
        Self(process, found.split_whitespace().next().expect("an address").to_owned())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn the_openai_client_chats_streams_calls_parses_and_fails_as_it_should() {
    let python = std::env::var_os("MUSE_CLIENTS_PYTHON").expect("run by `cargo xtask clients`");
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/clients/openai_client.py");
    let servers = [Server::start(&[]), Server::start(&["--strict-model"])];
    let urls = servers.each_ref().map(|server| format!("http://{}/v1", server.1));
    let status = Command::new(python).arg(script).args(urls).status().expect("Python starts");
    assert!(status.success(), "the client's checks failed, see above");
}
