//! The connections of one communicator: asked for, and come.
//!
//! | connection | carries |
//! | --- | --- |
//! | first | short collectives both ways, long ones from the lower to the higher rank |
//! | second | long collectives from the higher to the lower rank, over TCP |
//! | point to point | sends and receives |
//!
//! The control thread dials, accepts and authenticates them, and hands them over through an inbox.

use std::sync::Arc;

use unisono_communicator::{Error, GroupRank};
use unisono_control::wire::ConnectionRole;
use unisono_engine::{Edge, Lane};
use unisono_job::sockets::{DataSocket, Way};
use unisono_job::transport::{Connections, Delivery};

/// All connections of one communicator.
pub(crate) struct Sockets {
    own: GroupRank,
    connections: Connections,
    /// By peer and role.
    sockets: Vec<Option<Arc<DataSocket>>>,
    asked: Vec<bool>,
    /// By peer: whether the connections to it are to lie within this host.
    within_host: Vec<bool>,
    failed: Option<Error>,
}

/// The connections that the stream of a lane needs.
fn roles(lane: Lane) -> &'static [ConnectionRole] {
    match lane {
        Lane::Small => &[ConnectionRole::First],
        Lane::Large => &[ConnectionRole::First, ConnectionRole::Second],
        Lane::PointToPoint => &[ConnectionRole::PointToPoint],
    }
}

fn index(peer: GroupRank, role: ConnectionRole) -> usize {
    peer.index() * ConnectionRole::DATA.len() + role as usize
}

impl Sockets {
    /// No connection yet; `within_host` says by group rank which are to lie within this host.
    pub(crate) fn new(own: GroupRank, within_host: Vec<bool>, connections: Connections) -> Sockets {
        let count = within_host.len() * ConnectionRole::DATA.len();
        Sockets {
            own,
            connections,
            sockets: (0..count).map(|_| None).collect(),
            asked: vec![false; count],
            within_host,
            failed: None,
        }
    }

    /// Takes the next connection that has come, if there is one, and returns its peer.
    pub(crate) fn take_next(&mut self) -> Option<GroupRank> {
        loop {
            match self.connections.next()? {
                Delivery::Failed(error) => self.failed = self.failed.take().or(Some(error)),
                Delivery::Socket { peer, role, socket } => {
                    self.sockets[index(peer, role)] = Some(socket);
                    return Some(peer);
                }
            }
        }
    }

    /// The edge whose stream carries the bytes of this one: within a host, where a second connection would be no
    /// faster, all collectives share a stream.
    pub(crate) fn stream(&self, edge: Edge) -> Edge {
        let is_tcp = || {
            let first = self.sockets[index(edge.peer, ConnectionRole::First)].as_ref();
            let come = first.map(|socket| matches!(socket.way(), Way::Tcp));
            come.unwrap_or(!self.within_host[edge.peer.index()])
        };
        match edge.lane {
            Lane::Large if !is_tcp() => Edge { lane: Lane::Small, ..edge },
            Lane::Small | Lane::Large | Lane::PointToPoint => edge,
        }
    }

    /// The connections on which the stream of an edge sends and receives, once all are there.
    pub(crate) fn of(&self, edge: Edge) -> Option<(Arc<DataSocket>, Arc<DataSocket>)> {
        let mut found = roles(edge.lane).iter().map(|&role| self.sockets[index(edge.peer, role)].clone());
        let first = found.next()??;
        let second = found.next().unwrap_or_else(|| Some(first.clone()))?;
        // The second one carries the bytes of the higher rank.
        Some(if self.own < edge.peer { (first, second) } else { (second, first) })
    }

    /// Asks for the connections that these edges need, each once.
    ///
    /// # Errors
    /// When one of all that were asked for will never come.
    pub(crate) fn ask_for(&mut self, edges: &[Edge]) -> Result<(), Error> {
        if let Some(error) = &self.failed {
            return Err(error.clone());
        }
        let mut wanted = Vec::new();
        for &edge in edges {
            for &role in roles(self.stream(edge).lane) {
                let index = index(edge.peer, role);
                if self.sockets[index].is_none() && !std::mem::replace(&mut self.asked[index], true) {
                    wanted.push((edge.peer, role));
                }
            }
        }
        if !wanted.is_empty() {
            self.connections.dial(wanted);
        }
        Ok(())
    }

    /// Ends the outgoing halves.
    pub(crate) fn shut_down(&self) {
        self.sockets.iter().flatten().for_each(|socket| socket.end());
    }

    /// Closes all of them for good.
    pub(crate) fn close(&mut self) {
        self.sockets.fill(None);
        self.failed.get_or_insert(Error::closed());
    }
}

impl Drop for Sockets {
    fn drop(&mut self) {
        // The sent bytes must arrive, even if this process ends.
        let sockets: Vec<_> = self.sockets.drain(..).flatten().collect();
        if !sockets.is_empty() {
            self.connections.linger(sockets);
        }
    }
}
