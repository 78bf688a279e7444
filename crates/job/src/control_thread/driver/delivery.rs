//! Finished connections: a control connection gets its tasks, a data socket goes to its engine.

use std::time::Instant;

use unisono_communicator::{Error, JobRank, Severity, log};
use unisono_control::slots::Slot;
use unisono_control::wire::ConnectionRole;
use unisono_control::{ConnectionNumber, Failure};

use super::super::engines::Delivery;
use super::super::frames::FrameSender;
use super::super::tasks::read_messages;
use super::{ControlConnection, Driver};
use crate::connecting::Stream;
use crate::sockets::{DataSocket, Way, set_congestion_control};

impl Driver {
    pub(super) fn deliver(&mut self, slot: Slot, number: ConnectionNumber, stream: Stream) {
        if slot.role == ConnectionRole::Control {
            // Control connections are dialled over TCP only, and a rank accepts no others.
            let Stream::Tcp(stream) = stream else { return };
            let (reader, connection) = stream.into_split();
            while self.writing.try_join_next().is_some() {}
            let patience = self.settings.intervals.suspect;
            let frames = FrameSender::start(connection, &mut self.writing, patience);
            let process = self.watches.get(&slot.peer).cloned();
            tokio::spawn(read_messages((slot.peer, number), reader, process, self.events.clone()));
            self.control_connections.insert(slot.peer, ControlConnection { number, frames });
            self.control.on_connected(slot, Instant::now());
            return;
        }
        self.tune(slot.peer, &stream);
        match stream.into_parts() {
            Ok(parts) => {
                let socket = DataSocket::new(slot.peer, slot.role, parts);
                self.tell_way(&socket);
                self.measurements.add(&socket);
                if let Some(peer) = self.control.communicators.peer_of(slot) {
                    self.engines.deliver(slot.key, Delivery::Socket { peer, role: slot.role, socket });
                    self.control.on_connected(slot, Instant::now());
                }
            }
            Err(error) => {
                let failure = Failure::Error(Error::system("cannot take over a socket", &error));
                self.control.fail(slot, failure, Instant::now());
            }
        }
    }

    /// Sets the congestion control of a data socket within this host. After the first refusal it is not tried again:
    /// whether it is allowed does not change.
    fn tune(&mut self, peer: JobRank, stream: &Stream) {
        if stream.is_tcp()
            && self.identity.is_here(peer)
            && let Some(name) = &self.settings.congestion_control
            && set_congestion_control(stream, name).is_err()
        {
            self.settings.congestion_control = None;
        }
    }

    /// Tells the log the way of a connection, and once that data within this host does not go through memory although
    /// it should.
    fn tell_way(&mut self, socket: &DataSocket) {
        let (peer, rank) = (socket.peer(), Some(self.identity.rank.get()));
        log(
            Severity::Debug,
            rank,
            format_args!("a connection to rank {peer} for data goes {}", socket.way()),
        );
        let why = match socket.way() {
            Way::Memory(_) => return,
            _ if self.settings.rings.is_none() || !self.identity.is_here(peer) => return,
            Way::Unix => {
                "one of the two has no descriptor or no memory left for it (unisono doctor shows how much ranks of a \
                 host may have), so their data goes over a Unix socket"
            }
            Way::Tcp => "they do not reach each other within it, so their data goes over TCP",
        };
        if !std::mem::replace(&mut self.has_told_way, true) {
            let text =
                format_args!("rank {peer} is on the host of this rank, and the two share no memory: {why}");
            log(Severity::Warn, rank, text);
        }
    }
}
