//! Memory that large requests took goes back to the system.

use std::net::TcpStream;
use std::time::Instant;

use super::serve::Server;
use super::*;

/// What may remain over the resident memory before the requests.
const MAX_REMAINING: usize = 64 << 20;
/// Longer than any passing run waits, however slow the machine: only a hang reaches it.
const HANG: Duration = Duration::from_secs(600);

/// Bytes that the process holds in memory now, and the most that it held.
fn resident(server: &Server) -> [usize; 2] {
    let status = std::fs::read_to_string(format!("/proc/{}/status", server.id())).expect("procfs");
    ["VmRSS:", "VmHWM:"].map(|name| {
        let line = status.lines().find_map(|line| line.strip_prefix(name)).expect("a line");
        let kib = line.trim().trim_end_matches(" kB").parse::<usize>().expect("a number");
        kib << 10
    })
}

/// Sends a body to a server; the status.
fn post(to: &str, body: &str) -> String {
    let mut socket = TcpStream::connect(to).expect("a server");
    let length = body.len();
    let head = format!(
        "POST /v1/chat/completions HTTP/1.1\r\nhost: h\r\nconnection: close\r\n\
         content-length: {length}\r\n\r\n"
    );
    socket.write_all(head.as_bytes()).expect("a listening server");
    socket.write_all(body.as_bytes()).expect("a listening server");
    let mut reply = String::new();
    socket.read_to_string(&mut reply).expect("a reply");
    reply["HTTP/1.1 ".len()..][..3].to_owned()
}

#[test]
fn memory_goes_back_after_large_requests() {
    // By default pages go back 10 seconds after they were freed.
    let fast = [("_RJEM_MALLOC_CONF", "dirty_decay_ms:500")];
    let server = Server::start_with(&[], &fast);
    let hello = r#"{"messages":[{"role":"user","content":"Hi"}],"max_tokens":4}"#;
    assert_eq!(post(&server.http, hello), "200");
    let [before, _] = resident(&server);
    // More messages than the model has positions: all are built, none is answered.
    let message = r#"{"role":"user","content":"x"}"#;
    let body = format!(r#"{{"messages":[{}]}}"#, vec![message; 50_000].join(","));
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| assert_eq!(post(&server.http, &body), "400"));
        }
    });
    let [_, most] = resident(&server);
    assert!(most > before + 2 * MAX_REMAINING, "the requests took {before} to {most} bytes only");
    let start = Instant::now();
    while resident(&server)[0] > before + MAX_REMAINING {
        assert!(start.elapsed() < HANG, "{before} bytes before, {:?} after", resident(&server));
        std::thread::sleep(Duration::from_millis(100));
    }
}
