//! The doors of a job: every rank listens at one address, the one it was told or loopback, and a job on several hosts
//! does not begin without a secret.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use unisono_collectives::Collectives;
use unisono_communicator::{Communicator, ReduceOp};
use unisono_job::Job;
use unisono_job::config::Config;

use crate::TRANSPORT;
use crate::child::{Rank, say, words};
use crate::network::Network;

/// The limit of a rank beside strangers. It is lower than the number of strangers, and than the number of connections
/// that a rank of a small job keeps in their handshake where there is no limit.
const DESCRIPTORS: u64 = 60;

/// The program of a rank.
pub(crate) fn one_rank() {
    let mut lines = std::io::stdin().lines().map_while(std::io::Result::ok);
    let begin = lines.next().unwrap();
    let join = |mut config: Config| {
        // The program's own words, where there are any.
        begin.strip_prefix("begin ").map_or(Ok(()), |url| config.set_init_method(url))?;
        Job::join(&config, &TRANSPORT)
    };
    match Config::from_environment()
        .and_then(join)
        .and_then(|world| world.communicator().map(|communicator| (world, communicator)))
    {
        Ok((_world, communicator)) => {
            communicator.barrier().unwrap();
            say("joined");
            lines.next();
            // Nobody looks at doors any more when the first one closes its own.
            communicator.barrier().unwrap();
        }
        Err(error) => say(&error.to_string()),
    }
}

/// A rank of a job of two, with these settings besides, and no secret of the user's.
fn rank(job: &str, rank: usize, settings: &[(&str, &str)]) -> Rank {
    rank_of("listening", job, rank, settings)
}

fn rank_of(program: &str, job: &str, rank: usize, settings: &[(&str, &str)]) -> Rank {
    let (number, job) = (rank.to_string(), format!("listening-{}-{job}", std::process::id()));
    let own: [(&str, &str); 5] = [
        ("UNISONO_RANK", &number),
        ("UNISONO_WORLD_SIZE", "2"),
        ("UNISONO_JOB", &job),
        ("HOME", "/nonexistent"),
        ("XDG_CONFIG_HOME", "/nonexistent"),
    ];
    let mut rank = Rank::again(format!("rank {rank} of {job}"), program, &[&own[..], settings].concat());
    rank.tell("begin");
    rank
}

/// The addresses at which a process listens for TCP connections.
fn doors(process: u32) -> Vec<SocketAddr> {
    let sockets: BTreeSet<String> = std::fs::read_dir(format!("/proc/{process}/fd"))
        .unwrap()
        .filter_map(|entry| std::fs::read_link(entry.ok()?.path()).ok())
        .filter_map(|link| Some(link.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?.to_owned()))
        .collect();
    let mut found = Vec::new();
    for table in ["tcp", "tcp6"] {
        // A machine without IPv6 has no second table.
        let text = std::fs::read_to_string(format!("/proc/{process}/net/{table}")).unwrap_or_default();
        for line in text.lines().skip(1) {
            let fields: Vec<&str> = line.split_whitespace().collect();
            // Local address, state 0A for listening, inode.
            if let [_, local, _, "0A", _, _, _, _, _, inode, ..] = fields[..]
                && sockets.contains(inode)
            {
                let (local, port) = local.split_once(':').unwrap();
                found.push(SocketAddr::new(address(local), u16::from_str_radix(port, 16).unwrap()));
            }
        }
    }
    found
}

/// The kernel prints words of an address as numbers of the machine's own byte order.
fn address(hexadecimal: &str) -> IpAddr {
    let words = hexadecimal.as_bytes().chunks(8).map(|word| std::str::from_utf8(word).unwrap());
    let bytes: Vec<u8> = words
        .flat_map(|word| {
            let word = u32::from_str_radix(word, 16).unwrap();
            if cfg!(target_endian = "big") { word.swap_bytes() } else { word }.to_le_bytes()
        })
        .collect();
    match <[u8; 4]>::try_from(bytes.as_slice()) {
        Ok(bytes) => Ipv4Addr::from(bytes).into(),
        Err(_) => Ipv6Addr::from(<[u8; 16]>::try_from(bytes).unwrap()).into(),
    }
}

/// The program of a rank with few descriptors, beside strangers.
pub(crate) fn rank_beside_strangers() {
    let mut lines = std::io::stdin().lines().map_while(std::io::Result::ok);
    lines.next();
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: Some(DESCRIPTORS), maximum }).unwrap();
    let world = Job::join(&Config::from_environment().unwrap(), &TRANSPORT).unwrap();
    let communicator = world.communicator().unwrap();
    communicator.barrier().unwrap();
    say("joined");
    lines.next();
    let call = || {
        let (copy, mut sum) = (communicator.duplicate()?, [1]);
        copy.all_reduce(&mut sum, ReduceOp::Sum)?;
        copy.close().map(|()| sum[0].to_string())
    };
    say(&call().unwrap_or_else(|error| error.to_string()));
    lines.next();
}

/// Both ranks of a job listen at their addresses and nowhere else.
fn listen_at(mut ranks: Vec<Rank>, expected: &[&str]) {
    ranks.iter().for_each(|rank| assert_eq!(rank.hear(), "joined"));
    for (rank, expected) in ranks.iter().zip(expected) {
        let doors: Vec<IpAddr> = doors(rank.id()).iter().map(SocketAddr::ip).collect();
        assert_eq!(doors, [expected.parse::<IpAddr>().unwrap()]);
    }
    ranks.iter_mut().for_each(|rank| rank.tell("enough"));
    ranks.into_iter().for_each(Rank::end);
}

#[test]
fn a_job_on_one_host_listens_at_loopback() {
    listen_at((0..2).map(|one| rank("default", one, &[])).collect(), &["127.0.0.1"; 2]);
}

#[test]
fn a_rank_listens_at_the_address_that_it_is_given() {
    let given = |one| rank("given", one, &[("UNISONO_ADDRESS", ["127.0.0.2", "127.0.0.3"][one])]);
    listen_at((0..2).map(given).collect(), &["127.0.0.2", "127.0.0.3"]);
    if std::net::TcpListener::bind((Ipv6Addr::LOCALHOST, 0)).is_ok() {
        let sixth = |one| rank("sixth", one, &[("UNISONO_ADDRESS", "::1")]);
        listen_at((0..2).map(sixth).collect(), &["::1"; 2]);
    }
}

#[test]
fn an_address_that_means_all_is_refused() {
    for all in ["0.0.0.0", "::", "224.0.0.1"] {
        let said = rank("all", 0, &[("UNISONO_ADDRESS", all)]).hear();
        let expected = format!("UNISONO_ADDRESS={all}: an IP address that other ranks can dial is needed");
        assert_eq!(said, expected);
    }
}

#[test]
fn several_hosts_without_a_secret_are_refused_with_the_remedy() {
    // An address for documentation: nobody is asked before the secret is missed.
    let settings: [&[(&str, &str)]; 2] =
        [&[("UNISONO_STORE", "192.0.2.1:4000")], &[("MASTER_ADDR", "192.0.2.1"), ("MASTER_PORT", "29500")]];
    for settings in settings {
        let said = rank("secretless", 0, settings).hear();
        let has = |part: &str| said.contains(part);
        assert!(has("UNISONO_SECRET_FILE") && has("0600") && has("/dev/urandom"), "{settings:?}: {said}");
    }
}

#[test]
fn ranks_on_several_hosts_listen_where_the_others_are() {
    let Some(network) = Network::or_skip(2) else { return };
    let start = |one: usize| {
        let mut command = network.rank((one, 0), (one, 2), "env".as_ref());
        let mut rank = Rank::start(format!("rank {one}"), command.args(words("listening")));
        rank.tell("begin");
        rank
    };
    listen_at((0..2).map(start).collect(), &["10.0.0.1", "10.0.0.2"]);
}

/// The hosts have no other way than to each other; without a file, the address of rank 0 would count.
#[test]
fn a18_ranks_on_several_hosts_meet_in_a_file() {
    let Some(network) = Network::or_skip(2) else { return };
    let file = std::env::temp_dir().join(format!("unisono-listening-{}", std::process::id()));
    let start = |one: usize| {
        let mut command = network.rank((one, 1), (one, 2), "env".as_ref());
        command.env_remove("UNISONO_SECRET_FILE");
        let mut rank = Rank::start(format!("rank {one}"), command.args(words("listening")));
        rank.tell(&format!("begin file://{}", file.display()));
        rank
    };
    listen_at((0..2).map(start).collect(), &["10.0.0.1", "10.0.0.2"]);
    assert!(!file.exists());
}

#[test]
fn strangers_that_say_nothing_leave_descriptors_to_the_job() {
    let settings = [("UNISONO_HANDSHAKE_TIMEOUT_MS", "20000")];
    let start = |one| rank_of("beside_strangers", "strangers", one, &settings);
    let mut ranks: Vec<Rank> = (0..2).map(start).collect();
    ranks.iter().for_each(|rank| assert_eq!(rank.hear(), "joined"));
    let doors = ranks.iter().flat_map(|rank| doors(rank.id()));
    let doors = doors.flat_map(|door| std::iter::repeat_n(door, 2 * DESCRIPTORS as usize));
    let strangers: Vec<TcpStream> = doors.map(|door| TcpStream::connect(door).unwrap()).collect();
    ranks.iter_mut().for_each(|rank| rank.tell("call"));
    ranks.iter().for_each(|rank| assert_eq!(rank.hear(), "2"));
    drop(strangers);
    ranks.iter_mut().for_each(|rank| rank.tell("enough"));
    ranks.into_iter().for_each(Rank::end);
}
