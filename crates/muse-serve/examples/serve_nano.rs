//! Serves the embedded muse-nano, asks it one question over HTTP and prints the answer:
//! `cargo run -p muse-serve --example serve_nano`.

use std::error::Error;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;

use muse_serve::runtime::{self, LoadOptions};
use muse_serve::{ServeOptions, Server};
use tokio::sync::oneshot;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let loaded = runtime::load(&LoadOptions::default(), &mut |_, _, _| {})?;
    println!("{}", loaded.plan);
    let app = loaded.start(Arc::new(|error| eprintln!("the engine stopped: {error}")))?;
    // Port 0 takes a free port.
    let any = SocketAddr::from(([127, 0, 0, 1], 0));
    let options = ServeOptions { grpc: any, http: any, ..ServeOptions::default() };
    let server = Server::bind(Arc::new(app), options).await?;
    let address = server.http_addr();
    let (stop, stopped) = oneshot::channel::<()>();
    let server = tokio::spawn(server.run(async { drop(stopped.await) }));
    let answer = tokio::task::spawn_blocking(move || ask(address)).await??;
    println!("{answer}");
    drop(stop);
    server.await??;
    Ok(())
}

/// Sends one chat completion request; the response with its head.
fn ask(address: SocketAddr) -> std::io::Result<String> {
    let body = r#"{"messages": [{"role": "user", "content": "What is 4 + 5?"}]}"#;
    let mut socket = TcpStream::connect(address)?;
    write!(
        socket,
        "POST /v1/chat/completions HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n\
         content-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    )?;
    let mut response = String::new();
    socket.read_to_string(&mut response)?;
    Ok(response)
}
