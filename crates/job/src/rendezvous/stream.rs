//! Length-prefixed messages over tokio.

use std::io::{Error as IoError, ErrorKind, Result as IoResult};
use std::os::fd::AsFd;
use std::time::Duration;

use socket2::{SockRef, TcpKeepalive};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

/// Reads one message of at most `bytes_max` bytes.
pub(super) async fn read_message(
    stream: &mut (impl AsyncRead + Unpin),
    bytes_max: usize,
) -> IoResult<Vec<u8>> {
    let length = stream.read_u32_le().await? as usize;
    if length > bytes_max {
        return Err(IoError::new(ErrorKind::InvalidData, "a message is longer than allowed"));
    }
    let mut message = vec![0; length];
    stream.read_exact(&mut message).await?;
    Ok(message)
}

/// Writes one message.
pub(super) async fn write_message(stream: &mut (impl AsyncWrite + Unpin), message: &[u8]) -> IoResult<()> {
    stream.write_u32_le(message.len() as u32).await?;
    stream.write_all(message).await
}

/// Ends the stream some 11 s after the other side's host has gone without a word. Else a rank that is started again on
/// another host would find its place taken, and a rank would wait for a store that nobody hosts any more.
pub(super) fn watch_peer(stream: &impl AsFd) {
    const QUIET: Duration = Duration::from_secs(5);
    const BETWEEN: Duration = Duration::from_secs(2);
    const PROBES: u32 = 3;
    let keepalive = TcpKeepalive::new().with_time(QUIET).with_interval(BETWEEN).with_retries(PROBES);
    // Without it a wait is as good as before, only longer.
    let _ = SockRef::from(stream).set_tcp_keepalive(&keepalive);
}
