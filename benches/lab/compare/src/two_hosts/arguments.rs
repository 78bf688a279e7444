//! The command line.

use std::path::PathBuf;

use clap::Parser;
use unisono::Collective;
use unisono_compare::ComparedOperation;

use super::record::Speed;
use crate::plan::Size;

/// Measures calls between two hosts with several ranks each, beside torch's Gloo and Open MPI.
///
/// The hosts are network namespaces of this machine (root and iproute2 are needed; without them it says SKIP). All
/// systems stay up and take turns in every round, and every rank checks every element of a result.
#[derive(Clone, Debug, Parser)]
#[command(name = "cargo xtask two-hosts", version)]
pub(crate) struct TwoHostsArguments {
    /// Speeds of the link in Gbit/s; `unshaped` is as fast as this machine moves bytes between namespaces.
    #[arg(long, value_delimiter = ',', default_value = "1,10,25,unshaped")]
    pub(crate) gbit: Vec<Speed>,
    /// Operations.
    #[arg(long, value_delimiter = ',', default_values_t =
        [Collective::AllReduce, Collective::AllGather, Collective::AllToAll].map(ComparedOperation::from))]
    pub(crate) ops: Vec<ComparedOperation>,
    /// Sizes such as 64, 16K, 64M of the larger of a rank's two buffers; elements are f32.
    #[arg(long, value_delimiter = ',', default_value = "64,4K,64K,1M,16M,64M")]
    pub(crate) sizes: Vec<Size>,
    /// Ranks on each of the two hosts.
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=16))]
    pub(crate) ranks_per_host: u32,
    /// Algorithms of unisono that are measured beside its choice, such as ring, in calls that have them.
    #[arg(long, value_delimiter = ',')]
    pub(crate) algorithms: Vec<String>,
    /// Rounds at each speed.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) rounds: u32,
    /// Leaves Gloo and Open MPI out.
    #[arg(long)]
    pub(crate) no_peers: bool,
    /// The folder of `cargo xtask compare --install`.
    #[arg(long, env = "UNISONO_PEERS", default_value = "target/peers")]
    pub(crate) peers_dir: PathBuf,
    /// The folder of the results; without: a new folder in target/two-hosts.
    #[arg(long)]
    pub(crate) out: Option<PathBuf>,
    /// Measures nothing: makes the table and the picture of these records again, as of one run.
    #[arg(long, value_name = "RECORD.json", value_delimiter = ',')]
    pub(crate) report: Vec<PathBuf>,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(words: &[&str]) -> Result<TwoHostsArguments, clap::Error> {
        TwoHostsArguments::try_parse_from([&["two-hosts"], words].concat())
    }

    #[test]
    fn without_options_it_measures_what_the_page_shows() {
        let arguments = parse(&[]).unwrap();
        assert_eq!(arguments.gbit, [Some(1.0), Some(10.0), Some(25.0), None].map(Speed));
        let names: Vec<&str> = arguments.ops.iter().map(|one| one.name()).collect();
        assert_eq!(names, ["all_reduce", "all_gather", "all_to_all"]);
        assert_eq!((arguments.sizes[0], arguments.sizes.last()), (Size(64), Some(&Size(64 << 20))));
        assert_eq!((arguments.ranks_per_host, arguments.rounds, arguments.no_peers), (2, 5, false));
    }

    #[test]
    fn words_that_cannot_be_are_refused() {
        for words in
            [["--gbit", "0"], ["--gbit", "shaped"], ["--ops", "polka"], ["--sizes", "0"], ["--rounds", "0"]]
        {
            assert!(parse(&words).is_err(), "{words:?}");
        }
    }
}
