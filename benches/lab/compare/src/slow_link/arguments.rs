//! The command line.

use std::path::PathBuf;

use clap::Parser;

use crate::hosts::parse_speed;
use crate::plan::Size;

/// Measures exact and compressed all-reduces between two hosts with a slow link between them, beside torch's Gloo.
///
/// The hosts are network namespaces of this machine (root and iproute2 are needed; without them it says SKIP). What is
/// measured takes turns in every round, and every result is checked.
#[derive(Clone, Debug, Parser)]
#[command(name = "cargo xtask slow-link", version)]
pub(crate) struct SlowLinkArguments {
    /// Speeds of the link, in Gbit/s.
    #[arg(long, value_delimiter = ',', default_values_t = [1.0, 10.0, 25.0], value_parser = parse_speed)]
    pub(crate) gbit: Vec<f64>,
    /// Sizes such as 1M, 64M; elements are f32.
    #[arg(long, value_delimiter = ',', default_value = "1M,64M")]
    pub(crate) sizes: Vec<Size>,
    /// Codecs of the compressed all-reduce, as `unisono bench compressed_all_reduce --codec` knows them; without a
    /// value: none.
    #[arg(long, value_delimiter = ',', default_value = "sign,int8,int4,bf16", num_args = 0..)]
    pub(crate) codecs: Vec<String>,
    /// Ranks on each of the two hosts; with several, codecs go straight and in two levels, and reduce-scatters are
    /// measured too.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=16))]
    pub(crate) ranks_per_host: u32,
    /// Rounds at each speed.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) rounds: u32,
    /// Leaves torch's Gloo out.
    #[arg(long)]
    pub(crate) no_gloo: bool,
    /// Where `cargo xtask compare --install` has installed torch.
    #[arg(long, env = "UNISONO_PEERS", default_value = "target/peers")]
    pub(crate) peers_dir: PathBuf,
    /// Where the figures go; without: a new folder in target/slow-link.
    #[arg(long)]
    pub(crate) out: Option<PathBuf>,
    /// Measures nothing: makes the tables and the picture of this record again.
    #[arg(long, value_name = "RECORD.json")]
    pub(crate) report: Option<PathBuf>,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(words: &[&str]) -> Result<SlowLinkArguments, clap::Error> {
        SlowLinkArguments::try_parse_from([&["slow-link"], words].concat())
    }

    #[test]
    fn without_options_it_measures_what_the_page_shows() {
        let arguments = parse(&[]).unwrap();
        assert_eq!(arguments.gbit, [1.0, 10.0, 25.0]);
        assert_eq!(arguments.sizes, [Size(1 << 20), Size(64 << 20)]);
        assert_eq!(arguments.codecs, ["sign", "int8", "int4", "bf16"]);
        assert_eq!((arguments.ranks_per_host, arguments.rounds), (1, 5));
    }

    #[test]
    fn speeds_and_counts_that_cannot_be_are_refused() {
        for words in [["--gbit", "0"], ["--gbit", "fast"], ["--gbit", "1,500"], ["--sizes", "0"]] {
            assert!(parse(&words).is_err(), "{words:?}");
        }
        for words in [["--ranks-per-host", "0"], ["--ranks-per-host", "17"], ["--rounds", "0"]] {
            assert!(parse(&words).is_err(), "{words:?}");
        }
        assert_eq!(parse(&["--gbit", "0.5,2"]).unwrap().gbit, [0.5, 2.0]);
    }
}
