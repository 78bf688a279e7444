//! Calls in the process of a rank: made of a message, and what they leave behind.

use std::panic::resume_unwind;
use std::sync::Arc;

use unisono_communicator::{
    Buffers, Call, Communicator, Error, OwnedBuffers, OwnedCall, Probed, Result, UserFunction,
};

use super::connection::Connection;
use super::memory::{Held, lent_parts, owned};
use super::messages::{BuffersMessage, CallMessage, Executed, Id, MemoryMessage, Upcall};
use super::raw::stream;
use super::wire::Bytes;

/// A user's function, which is the test's.
fn function(id: Id, connection: &Arc<Connection>) -> UserFunction {
    let connection = connection.clone();
    Arc::new(move |left: &[u8], right: &[u8], out: &mut [u8]| {
        let [left, right] = [left, right].map(|side| Bytes(side.to_vec()));
        let out_bytes = out.len() as u64;
        match connection.ask::<std::result::Result<Bytes, String>>(&Upcall::Function {
            function: id,
            left,
            right,
            out_bytes,
        }) {
            Ok(Ok(result)) => out.copy_from_slice(&result.0),
            Ok(Err(text)) => resume_unwind(Box::new(text)),
            Err(ended) => panic!("the test: {ended:?}"),
        }
    })
}

/// Makes a blocking call.
pub(super) fn execute(
    communicator: &dyn Communicator,
    message: CallMessage,
    connection: &Arc<Connection>,
) -> Executed {
    let CallMessage { descriptor, buffers, stream: on, counts, options, function: user, site } = message;
    let user_function = user.map(|id| function(id, connection));
    let stream = on.map(|(handle, device)| stream(handle, device));
    let call = |buffers| {
        let mut call =
            Call { stream, counts, options, user_function, site, ..Call::new(descriptor, buffers) };
        communicator.execute(&mut call)
    };
    match buffers {
        BuffersMessage::None {} => unreachable!("a blocking call has buffers"),
        BuffersMessage::InOut { buffer } => {
            let mut buffer = Held::new(&buffer);
            let result = call(Buffers::InOut(buffer.buffer_mut()));
            Executed { result, is_input_intact: true, output: buffer.parts() }
        }
        BuffersMessage::Separate { input: given, output } => {
            let (input, mut output) = (Held::new(&given), Held::new(&output));
            let result = call(Buffers::Separate { input: input.buffer(), output: output.buffer_mut() });
            Executed { result, is_input_intact: input.is_as_in(&given), output: output.parts() }
        }
    }
}

/// Sends and receives of one batch.
pub(super) fn exchange(communicator: &dyn Communicator, messages: &[CallMessage]) -> Result<Vec<Executed>> {
    let mut memory: Vec<(Held, Held)> = messages.iter().map(both).collect();
    let mut calls: Vec<Call<'_>> = messages
        .iter()
        .zip(&mut memory)
        .map(|(message, (input, output))| Call {
            options: message.options,
            site: message.site,
            ..Call::separate(message.descriptor, input.buffer(), output.buffer_mut())
        })
        .collect();
    let mut results = vec![None; calls.len()];
    communicator.life().exchange(&mut calls, &mut results)?;
    let ended = messages.iter().zip(memory).zip(results);
    let executed = ended.map(|((message, (input, output)), result)| {
        let result = result.unwrap_or(Err(Error::closed()));
        Executed { result, is_input_intact: input.is_as_in(halves(message).0), output: output.parts() }
    });
    Ok(executed.collect())
}

/// The input and the output of a message.
fn halves(message: &CallMessage) -> (&MemoryMessage, &MemoryMessage) {
    match &message.buffers {
        BuffersMessage::Separate { input, output } => (input, output),
        BuffersMessage::None {} | BuffersMessage::InOut { .. } => panic!("a message has two buffers"),
    }
}

fn both(message: &CallMessage) -> (Held, Held) {
    let (input, output) = halves(message);
    (Held::new(input), Held::new(output))
}

/// Looks for a message.
pub(super) fn probe(
    communicator: &dyn Communicator,
    message: &CallMessage,
    waits: bool,
) -> Result<Option<Probed>> {
    let (input, mut output) = both(message);
    let mut call = Call {
        options: message.options,
        site: message.site,
        ..Call::separate(message.descriptor, input.buffer(), output.buffer_mut())
    };
    communicator.life().probe(&mut call, waits)
}

/// An asynchronous call, and which of its host buffers are lent.
pub(super) fn owned_call(message: CallMessage, connection: &Arc<Connection>) -> (OwnedCall, Vec<bool>) {
    let tells = connection.clone();
    let tell = move |lent: Id, bytes: &[u8]| {
        // When the test has ended there is nobody to tell.
        let _ = tells.ask::<()>(&Upcall::Returned { lent, bytes: Bytes(bytes.to_vec()) });
    };
    let lent = lent_parts(&message.buffers);
    let buffers: OwnedBuffers = owned(&message.buffers, &tell);
    let call = OwnedCall {
        stream: message.stream.map(|(handle, device)| stream(handle, device)),
        counts: message.counts,
        options: message.options,
        user_function: message.function.map(|id| function(id, connection)),
        site: message.site,
        ..OwnedCall::new(message.descriptor, buffers)
    };
    (call, lent)
}
