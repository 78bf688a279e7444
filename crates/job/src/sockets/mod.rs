//! Sockets as the job makes them, and the kernel's words about them.

mod acknowledgement;
mod data_socket;
mod options;

pub(crate) use acknowledgement::{TcpTimes, is_acknowledged, tcp_times, unacknowledged_bytes};
pub use data_socket::{DataSocket, Way};
pub(crate) use options::{
    LISTEN_BACKLOG, SocketOptions, is_connected_to_itself, is_own_failure, is_shortage, listen, listen_again,
    new_socket, set_congestion_control,
};
