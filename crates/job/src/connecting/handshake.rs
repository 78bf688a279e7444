//! Runs a handshake over a tokio socket, which should collect no small packets: every message waits for its
//! predecessor.

use std::time::{Duration, Instant};

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use unisono_control::handshake::{Expected, Handshake, Hello, NONCE_BYTES, REPLY_BYTES, Refusal};
use unisono_control::secret::{Secret, fill_random};

/// Authenticates a connection that we dialled: returns the other side's hello within `timeout`, having read not one
/// byte behind the handshake. Needs a tokio runtime with I/O and time.
pub(crate) async fn initiate(
    stream: &mut (impl AsyncRead + AsyncWrite + Unpin),
    secret: &Secret,
    hello: &Hello,
    timeout: Duration,
) -> Result<Hello, Refusal> {
    let deadline = Instant::now() + timeout;
    drive(stream, Handshake::initiator(secret, hello, nonce()?, deadline), deadline).await
}

/// Authenticates a connection that we accepted; as [`initiate`].
pub(crate) async fn respond(
    stream: &mut (impl AsyncRead + AsyncWrite + Unpin),
    secret: &Secret,
    expected: &Expected,
    timeout: Duration,
) -> Result<Hello, Refusal> {
    let deadline = Instant::now() + timeout;
    drive(stream, Handshake::responder(secret, expected.clone(), nonce()?, deadline), deadline).await
}

fn nonce() -> Result<[u8; NONCE_BYTES], Refusal> {
    let mut nonce = [0; NONCE_BYTES];
    fill_random(&mut nonce).map_err(|error| Refusal::Closed { text: error.to_string() })?;
    Ok(nonce)
}

async fn drive(
    stream: &mut (impl AsyncRead + AsyncWrite + Unpin),
    mut handshake: Handshake,
    deadline: Instant,
) -> Result<Hello, Refusal> {
    match tokio::time::timeout_at(deadline.into(), exchange(stream, &mut handshake)).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => handshake.on_closed(error.to_string()),
        Err(_elapsed) => handshake.on_time(deadline),
    }
    match handshake.finished() {
        // Without our last message the other side cannot finish its handshake.
        Some(Ok(_)) if !handshake.output().is_empty() => {
            Err(Refusal::Closed { text: "our last message could not be sent".into() })
        }
        Some(result) => result.clone(),
        None => Err(Refusal::Closed { text: "it was given up".into() }),
    }
}

async fn exchange(
    stream: &mut (impl AsyncRead + AsyncWrite + Unpin),
    handshake: &mut Handshake,
) -> std::io::Result<()> {
    let mut input = [0; REPLY_BYTES];
    loop {
        while !handshake.output().is_empty() {
            let count = stream.write(handshake.output()).await?;
            handshake.sent(count);
        }
        let wanted = handshake.wants();
        if wanted == 0 {
            return Ok(());
        }
        match stream.read(&mut input[..wanted]).await? {
            0 => handshake.on_closed("closed by the other side"),
            count => {
                handshake.receive(&input[..count]);
            }
        }
    }
}
