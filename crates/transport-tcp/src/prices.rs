//! What the chooser of algorithms believes of the network and the machine: constants, or `UNISONO_PRICES`. Rank 0's
//! travel with the rendezvous, so that ranks cannot choose differently.
//!
//! As text, `name=number` with commas or spaces between, any of the names below; the others keep their default. As
//! bytes, version `u8` and then one little-endian `u64` for each name, in their order, the piece size, and which
//! streams are checked as `u8`. The cores are not rank 0's to know: 0, their default, stands for as many as the ranks
//! of each host may use together, which the store has counted.

use std::fmt;
use std::str::FromStr;

use unisono_communicator::{Error, Group, Result};
use unisono_engine::Parameters;

use crate::codec::{Malformed, Reader, Writer};
use crate::config::Config;

const VERSION: u8 = 3;

/// Far from every overflow of a price, and slower than anything that exists.
const PRICE_MAX: u64 = 1_000_000_000_000;

/// Of a piece, as [`Config::piece_bytes`] can be.
const PIECE_BYTES_LIMIT: u64 = 1 << 32;

/// Which data streams carry checksums.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Checksum {
    /// Those that leave a host: within one, bytes pass no wire.
    #[default]
    BetweenHosts,
    /// All of them.
    Always,
    /// None.
    Never,
}

impl Checksum {
    /// Whether a stream carries them that leaves its host, or does not.
    pub fn applies(self, leaves_host: bool) -> bool {
        match self {
            Checksum::BetweenHosts => leaves_host,
            Checksum::Always => true,
            Checksum::Never => false,
        }
    }
}

/// What rank 0 decides for all: prices of links and cores, the size of pieces, and which streams are checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Prices {
    /// What does not depend on the group; the ranks per core are worked out for each.
    parameters: Parameters,
    /// Cores of every host; 0 for as many as its ranks may use together.
    cores: u64,
    checksum: Checksum,
}

type Field = (&'static str, fn(&mut Prices) -> &mut u64);

/// What a text may set.
const FIELDS: [Field; 10] = [
    ("latency_ns", |prices| &mut prices.parameters.latency_ns),
    ("wire_fs_per_byte", |prices| &mut prices.parameters.wire_fs_per_byte),
    ("network_latency_ns", |prices| &mut prices.parameters.network_latency_ns),
    ("network_fs_per_byte", |prices| &mut prices.parameters.network_fs_per_byte),
    ("reduce_fs_per_byte", |prices| &mut prices.parameters.reduce_fs_per_byte),
    ("cpu_per_message_ns", |prices| &mut prices.parameters.cpu_per_message_ns),
    ("cpu_fs_per_byte", |prices| &mut prices.parameters.cpu_fs_per_byte),
    ("switch_ns", |prices| &mut prices.parameters.switch_ns),
    ("per_peer_thousandths", |prices| &mut prices.parameters.per_peer_thousandths),
    ("cores", |prices| &mut prices.cores),
];

impl Default for Prices {
    fn default() -> Prices {
        Prices { parameters: Parameters::LOOPBACK, cores: 0, checksum: Checksum::default() }
    }
}

impl Prices {
    /// What the settings of this process say.
    ///
    /// # Errors
    /// [`Error::Configuration`] for a text that is not one of prices.
    pub fn from_config(config: &Config) -> Result<Prices> {
        let text = config.prices.as_deref().unwrap_or_default();
        let mut prices: Prices = text.parse().map_err(|problem| Error::Configuration {
            name: "UNISONO_PRICES".to_owned(),
            value: text.to_owned(),
            problem,
        })?;
        prices.parameters.piece_bytes = config.piece_bytes.into();
        prices.checksum = config.checksum;
        Ok(prices)
    }

    /// For the rendezvous.
    pub fn encode(mut self) -> Vec<u8> {
        let mut writer = Writer::new();
        writer.u8(VERSION);
        for (_, field) in FIELDS {
            writer.u64(*field(&mut self));
        }
        let checksum = match self.checksum {
            Checksum::BetweenHosts => 0,
            Checksum::Always => 1,
            Checksum::Never => 2,
        };
        writer.u64(self.parameters.piece_bytes).u8(checksum).finish()
    }

    /// From the rendezvous.
    ///
    /// # Errors
    /// [`Malformed`] when rank 0 is of another version, or says what [`Prices::encode`] never does.
    pub fn decode(bytes: &[u8]) -> Result<Prices, Malformed> {
        let mut reader = Reader::new(bytes);
        if reader.u8()? != VERSION {
            return Err(Malformed { what: "prices of another version" });
        }
        let mut prices = Prices::default();
        for (_, field) in FIELDS {
            *field(&mut prices) = reader.u64()?;
        }
        prices.parameters.piece_bytes = reader.u64()?;
        prices.checksum = match reader.u8()? {
            0 => Checksum::BetweenHosts,
            1 => Checksum::Always,
            2 => Checksum::Never,
            _ => return Err(Malformed { what: "an unknown choice of checksums" }),
        };
        reader.finish()?;
        let is_bounded = FIELDS.iter().all(|(_, field)| *field(&mut prices) <= PRICE_MAX);
        let is_piece = (1..=PIECE_BYTES_LIMIT).contains(&prices.parameters.piece_bytes);
        if is_bounded && is_piece { Ok(prices) } else { Err(Malformed { what: "a price out of range" }) }
    }

    /// The cores of a host: those that the settings name, else those that were `counted` when the ranks met, by the
    /// number of the host; where nobody has counted, those that this process may use.
    pub fn cores(&self, host: u32, counted: &[u32]) -> u64 {
        let own = || std::thread::available_parallelism().map_or(1, |cores| cores.get() as u64);
        match self.cores {
            0 => counted.get(host as usize).map_or_else(own, |&cores| cores.into()),
            set => set,
        }
    }

    /// Which streams are checked.
    pub fn checksum(&self) -> Checksum {
        self.checksum
    }

    /// The size of pieces.
    pub fn piece_bytes(&self) -> u64 {
        self.parameters.piece_bytes
    }

    /// What holds within a group: the most crowded of its hosts decides how many ranks share a core. `counted` as for
    /// [`Prices::cores`].
    pub fn parameters(&self, group: &Group, counted: &[u32]) -> Parameters {
        let mut hosts = group.hosts().to_vec();
        hosts.sort_unstable();
        let on_host = |ranks: &[u32]| {
            let cores = self.cores(ranks[0], counted);
            self.parameters.with_ranks_on_cores(ranks.len() as u64, cores)
        };
        let all = hosts.chunk_by(|a, b| a == b).map(on_host);
        all.max_by_key(|one| one.ranks_per_core_thousandths).unwrap_or(self.parameters)
    }
}

impl FromStr for Prices {
    type Err = String;

    fn from_str(text: &str) -> Result<Prices, String> {
        let mut prices = Prices::default();
        for part in text.split([',', ' ']).filter(|part| !part.is_empty()) {
            let (name, value) = part.split_once('=').ok_or_else(|| format!("{part:?} is not name=number"))?;
            let Some((_, field)) = FIELDS.iter().find(|field| field.0 == name) else {
                let names: Vec<_> = FIELDS.iter().map(|field| field.0).collect();
                return Err(format!("{name:?} is not one of {}", names.join(", ")));
            };
            let value = value.parse().ok().filter(|value| *value <= PRICE_MAX);
            let problem = || format!("{name} needs a whole number up to {PRICE_MAX}");
            *field(&mut prices) = value.ok_or_else(problem)?;
        }
        Ok(prices)
    }
}

impl fmt::Display for Prices {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut prices = *self;
        let parts = FIELDS.map(|(name, field)| format!("{name}={}", field(&mut prices)));
        f.write_str(&parts.join(","))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prices_survive_text_and_wire() {
        let prices: Prices = "latency_ns=50000, cores=8 wire_fs_per_byte=900000".parse().unwrap();
        assert_eq!((prices.parameters.latency_ns, prices.cores), (50_000, 8));
        assert_eq!(prices.parameters.cpu_fs_per_byte, Parameters::LOOPBACK.cpu_fs_per_byte);
        assert_eq!(prices.to_string().parse(), Ok(prices));
        let bytes = prices.encode();
        assert_eq!(Prices::decode(&bytes), Ok(prices));
        assert!((0..bytes.len()).all(|end| Prices::decode(&bytes[..end]).is_err()));
        assert!(Prices::decode(&[&bytes[..1], &[255; 88], &[0][..]].concat()).is_err(), "out of range");
        assert!(Prices::decode(&[&[9], &bytes[1..]].concat()).is_err(), "another version");
    }

    #[test]
    fn bad_texts_are_refused_with_their_reason() {
        let problem = |text: &str| text.parse::<Prices>().unwrap_err();
        assert!(problem("latency=3").contains("cpu_per_message_ns"));
        assert!(problem("latency_ns").contains("not name=number"));
        assert!(problem("cores=-1").contains("a whole number up to 1000000000000"));
    }

    #[test]
    fn the_most_crowded_host_decides_how_crowded_a_core_is() {
        let crowd = |prices: &str, hosts: &[u32], counted: &[u32]| {
            let (prices, ranks) = (prices.parse::<Prices>().unwrap(), (0..hosts.len() as u32).collect());
            prices.parameters(&Group::new(0, ranks, hosts.into(), 0), counted).ranks_per_core_thousandths
        };
        let named = |hosts| crowd("cores=2", hosts, &[32; 6]);
        assert_eq!([named(&[0, 0, 0]), named(&[0, 1, 0, 0, 0]), named(&[4, 5])], [1500, 2000, 500]);
        let counted = |hosts| crowd("", hosts, &[8, 1, 2]);
        assert_eq!([counted(&[0; 8]), counted(&[0, 1, 0, 1, 0]), counted(&[2, 0])], [1000, 2000, 500]);
        let own = std::thread::available_parallelism().map_or(1, |cores| cores.get() as u64);
        assert_eq!(crowd("", &[3, 3, 3], &[8]), 3000 / own, "nobody has counted");
    }
}
