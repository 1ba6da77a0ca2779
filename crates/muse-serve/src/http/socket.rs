//! The socket of an HTTP/1.1 connection. It answers clients that closed only their sending half,
//! notices those that left, and gives the parser's own refusals a body.
//!
//! Both kinds of client look alike until something is sent to them: the machine of one that left
//! answers with a reset. While a request is answered, the end of the client's half is therefore
//! hidden from the parser, which would drop the request, and `100 Continue` is sent from time to
//! time until the response begins. Every client of HTTP/1.1 accepts that (RFC 9110, section 15.2).

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::http::StatusCode;
use serde_json::json;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::{Interval, interval};

use super::exchange::Exchange;

/// How often the socket is asked for a reset once the client's half has ended.
const RESET_CHECK: Duration = Duration::from_millis(100);
/// A probe is sent with every such check.
const CHECKS_PER_PROBE: u32 = 100;
const PROBE: &[u8] = b"HTTP/1.1 100 Continue\r\n\r\n";

/// A socket whose requests are answered by a service that reports to an [`Exchange`].
pub(super) struct HttpSocket {
    socket: TcpStream,
    exchange: Exchange,
    /// Since the client's half ended.
    half_closed: Option<HalfClosed>,
    /// Bytes to write before any others.
    pending: Vec<u8>,
}

struct HalfClosed {
    checks: Interval,
    count: u32,
}

impl HttpSocket {
    pub(super) fn new(socket: TcpStream, exchange: Exchange) -> Self {
        Self { socket, exchange, half_closed: None, pending: Vec::new() }
    }

    /// Waits for the end of the reply, or for the client's reset.
    fn poll_half_closed(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let check = || HalfClosed { checks: interval(RESET_CHECK), count: 0 };
        loop {
            let may_probe = match self.exchange.poll_reply(cx) {
                Poll::Ready(()) => return Poll::Ready(Ok(())),
                Poll::Pending => self.exchange.may_probe(),
            };
            let half_closed = self.half_closed.get_or_insert_with(check);
            ready!(half_closed.checks.poll_tick(cx));
            if let Some(error) = self.socket.take_error()? {
                return Poll::Ready(Err(error));
            }
            if may_probe && half_closed.count.is_multiple_of(CHECKS_PER_PROBE) {
                self.pending.extend_from_slice(PROBE);
            }
            half_closed.count = half_closed.count.wrapping_add(1);
            if let Poll::Ready(Err(error)) = self.poll_pending(cx) {
                return Poll::Ready(Err(error));
            }
        }
    }

    /// Writes the pending bytes.
    fn poll_pending(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while !self.pending.is_empty() {
            let written = ready!(Pin::new(&mut self.socket).poll_write(cx, &self.pending))?;
            if written == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.pending.drain(..written);
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncRead for HttpSocket {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.half_closed.is_none() {
            let before = buf.filled().len();
            ready!(Pin::new(&mut self.socket).poll_read(cx, buf))?;
            if buf.filled().len() > before || buf.remaining() == 0 {
                return Poll::Ready(Ok(()));
            }
        }
        self.poll_half_closed(cx)
    }
}

impl AsyncWrite for HttpSocket {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        ready!(self.poll_pending(cx))?;
        if let Some(refusal) = with_body(buf) {
            self.pending = refusal;
            return Poll::Ready(Ok(buf.len()));
        }
        self.exchange.set_reply_begun();
        Pin::new(&mut self.socket).poll_write(cx, buf)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        if let [buf] = bufs {
            return self.poll_write(cx, buf);
        }
        ready!(self.poll_pending(cx))?;
        self.exchange.set_reply_begun();
        Pin::new(&mut self.socket).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.socket.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_pending(cx))?;
        Pin::new(&mut self.socket).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_pending(cx))?;
        Pin::new(&mut self.socket).poll_shutdown(cx)
    }
}

/// The parser's own refusal with a body that says what to do; none for any other bytes. Refusals of
/// the service have a body already.
fn with_body(bytes: &[u8]) -> Option<Vec<u8>> {
    let head = std::str::from_utf8(bytes).ok()?.strip_suffix("\r\n\r\n")?;
    let mut lines = head.split("\r\n");
    let status = lines.next()?.strip_prefix("HTTP/1.1 ")?.get(..3)?;
    let (status, code, message) = match status {
        "400" => (
            StatusCode::BAD_REQUEST,
            "invalid_request",
            "the request line or a header is malformed; send HTTP/1.1",
        ),
        "414" => (
            StatusCode::URI_TOO_LONG,
            "url_too_long",
            "the URL is too long; no parameters are read from it, send them in the body",
        ),
        "431" => (
            StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE,
            "headers_too_large",
            "the headers are too many or too large; send fewer and shorter ones",
        ),
        _ => return None,
    };
    let empty = |line: &str| line.eq_ignore_ascii_case("content-length: 0");
    lines.any(empty).then(|| {
        let body = json!({ "error": {
            "message": message, "type": "invalid_request_error", "param": null, "code": code,
        } })
        .to_string();
        let length = body.len();
        format!(
            "HTTP/1.1 {status}\r\nconnection: close\r\ncontent-type: application/json\r\n\
             content-length: {length}\r\n\r\n{body}"
        )
        .into_bytes()
    })
}
