//! Closes gRPC connections whose HTTP/2 preface does not arrive in time. After the preface, HTTP/2's
//! pings find dead connections.

use std::future::Future;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::Sleep;
use tonic::transport::server::{Connected, TcpConnectInfo};

/// Bytes of the preface of HTTP/2 (RFC 9113, section 3.4).
const PREFACE_BYTES: usize = 24;

/// A connection whose preface must arrive before a deadline. Reading fails after it.
pub(crate) struct PrefaceTimeout {
    socket: TcpStream,
    /// Bytes of the preface that have not arrived.
    missing: usize,
    deadline: Pin<Box<Sleep>>,
}

impl PrefaceTimeout {
    /// Allows `timeout` from now.
    pub(crate) fn new(timeout: Duration, socket: TcpStream) -> Self {
        Self { socket, missing: PREFACE_BYTES, deadline: Box::pin(tokio::time::sleep(timeout)) }
    }
}

impl AsyncRead for PrefaceTimeout {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.missing > 0 && self.deadline.as_mut().poll(cx).is_ready() {
            let error =
                io::Error::new(io::ErrorKind::TimedOut, "no HTTP/2 preface arrived in time");
            return Poll::Ready(Err(error));
        }
        let before = buf.filled().len();
        let read = Pin::new(&mut self.socket).poll_read(cx, buf);
        self.missing = self.missing.saturating_sub(buf.filled().len() - before);
        read
    }
}

impl AsyncWrite for PrefaceTimeout {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.socket).poll_write(cx, buf)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.socket).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.socket.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_shutdown(cx)
    }
}

impl Connected for PrefaceTimeout {
    type ConnectInfo = TcpConnectInfo;

    fn connect_info(&self) -> TcpConnectInfo {
        self.socket.connect_info()
    }
}
