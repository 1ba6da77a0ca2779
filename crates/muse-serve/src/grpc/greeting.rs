//! Connections of gRPC that must say what they are in time. Later silence is asked about by HTTP/2's
//! pings; before the preface there is nobody to ask.

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
const PREFACE: usize = 24;

/// A connection whose preface must have come before a deadline.
pub(crate) struct Greeting {
    socket: TcpStream,
    /// Bytes of the preface that have not come, and until when they may.
    missing: usize,
    deadline: Pin<Box<Sleep>>,
}

impl Greeting {
    /// Within `silence` from now.
    pub(crate) fn within(silence: Duration, socket: TcpStream) -> Self {
        Self { socket, missing: PREFACE, deadline: Box::pin(tokio::time::sleep(silence)) }
    }
}

impl AsyncRead for Greeting {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.missing > 0 && self.deadline.as_mut().poll(cx).is_ready() {
            let error =
                io::Error::new(io::ErrorKind::TimedOut, "no preface of HTTP/2 came in time");
            return Poll::Ready(Err(error));
        }
        let before = buf.filled().len();
        let read = Pin::new(&mut self.socket).poll_read(cx, buf);
        self.missing = self.missing.saturating_sub(buf.filled().len() - before);
        read
    }
}

impl AsyncWrite for Greeting {
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

impl Connected for Greeting {
    type ConnectInfo = TcpConnectInfo;

    fn connect_info(&self) -> TcpConnectInfo {
        self.socket.connect_info()
    }
}
