//! Lines of arguments: their values, and the problems that are told.

use clap::CommandFactory;

use super::*;

fn parsed(line: &str) -> Result<Option<Commands>> {
    parse(line.split(' ').map(OsString::from))
}

#[test]
fn bad_input_is_one_line_that_says_what_is_allowed() {
    let cases = [
        ("unisono", "a command is missing, one of: demo, run, bench, calibrate, algo, doctor"),
        ("unisono dance", "unknown command \"dance\", one of: demo, run, bench, calibrate, algo, doctor"),
        ("unisono algo dance", "unknown command \"dance\", one of: list, show, verify, price"),
        ("unisono algo", "a command is missing, one of: list, show, verify, price"),
        ("unisono bench all_reduce,fold", "one of: all_reduce, reduce_scatter"),
        ("unisono bench", "missing: <OP>"),
        (
            "unisono bench compressed_all_reduce --codec int9",
            "--codec: \"int9\" is not one of sign, sign-rms, int8",
        ),
        ("unisono bench compressed_all_reduce --codec int9", "did you mean \"int8\"?"),
        ("unisono bench all_reduce --dtype f31", "one of: f64, f32"),
        ("unisono bench all_reduce --op plus", "one of: sum, prod"),
        ("unisono bench all_reduce --sizes 64,1X", "K, M or G"),
        ("unisono bench all_reduce --sizes -1", "K, M or G"),
        ("unisono bench all_reduce -n 0", "1..=1024"),
        ("unisono bench all_reduce --speed 3", "--sizes"),
        ("unisono demo -np many", "--ranks"),
        ("unisono algo list all_sum", "unknown collective \"all_sum\", one of: all_reduce, reduce_scatter"),
        ("unisono run -n 2", "PROGRAM"),
        ("unisono run", "PROGRAM"),
        ("unisono run sh", "-n <RANKS>"),
        ("unisono run -n 2 --keepgoing sh", "--keep-going"),
        ("unisono run -n two sh", "1..=65535"),
        ("unisono run --hosts a --hostfile f sh", "cannot be used with"),
        ("unisono run --hosts a --include a --exclude a sh", "cannot be used with"),
        ("unisono run --hosts a", "PROGRAM"),
        ("unisono run --agent -n 2 sh", "cannot be used with"),
        ("unisono run -n 2 --timeout soon sh", "--timeout: unknown time \"soon\": seconds above 0"),
        ("unisono run -n 2 --timeout 0 sh", "seconds above 0"),
        ("unisono run -n 2 --timeout -1 sh", "seconds above 0"),
        ("unisono run -n 2 --timeout inf sh", "up to 1000000000"),
        ("unisono run -n 2 --grace -1 sh", "--grace: unknown time \"-1\": seconds from 0"),
        ("unisono run -n 2 --tag-output maybe sh", "--tag-output: unknown value \"maybe\", one of: on, off"),
        (
            "unisono run -n 2 --bind-to socket sh",
            "--bind-to: unknown binding \"socket\", one of: auto, core, none",
        ),
        ("unisono algo verify --all --ranks 4..1", "both ends included"),
        ("unisono algo verify", "--all"),
        ("unisono calibrate -n 1", "2..=1024"),
        ("unisono doctor --flight", "--flight"),
        ("unisono algo price ring --ranks 4", "--bytes"),
        ("unisono algo price --ranks 4 --bytes 1K", "--all"),
        ("unisono algo price ring --ranks 0 --bytes 1K", "1..=32768"),
        ("unisono algo price ring --ranks 4 --bytes -1", "K, M or G"),
        ("unisono algo price ring --ranks 4 --bytes 1K --alpha-us -1", "--alpha-us: unknown latency"),
        ("unisono algo price ring --ranks 4 --bytes 1K --alpha-us nan", "from 0 to 1000000"),
        ("unisono algo price ring --ranks 4 --bytes 1K --beta-gb-per-s 0", "--beta-gb-per-s: unknown rate"),
        ("unisono algo price ring --ranks 4 --bytes 1K --gamma-gb-per-s -2", "GB/s from"),
        ("unisono algo price ring --ranks 4 --bytes 1K --gamma-gb-per-s inf", "GB/s from"),
    ];
    for (line, expected) in cases {
        let problem = parsed(line).unwrap_err();
        assert_eq!(problem.status, 2, "{line}");
        assert!(!problem.text.contains('\n') && problem.text.contains(expected), "{line}: {}", problem.text);
    }
}

#[test]
fn the_doctor_examines_one_thing() {
    for options in ["-n 2 --flight x", "--discovery --flight x", "--discovery -n 2"] {
        let text = parsed(&format!("unisono doctor {options}")).unwrap_err().text;
        assert!(text.contains("cannot be used with"), "{options}: {text}");
    }
}

#[test]
fn a_backend_and_its_folder_must_be_there() {
    for (line, expected) in [
        ("unisono bench all_reduce --backend mpi", "--backend: unknown backend \"mpi\", one of: auto, tcp"),
        ("unisono run -n 2 --vendor-dir /no/such sh", "--vendor-dir: /no/such: No such file"),
        ("unisono demo --vendor-dir /dev/null", "--vendor-dir: /dev/null: not a directory"),
    ] {
        let text = parsed(line).unwrap_err().text;
        assert!(!text.contains('\n') && text.contains(expected), "{line}: {text}");
    }
}

#[test]
fn a_programs_own_options_stay_its_own() {
    for line in ["-n 2 --", "-n 2", "-np 2 --", "-np 2", "--keep-going -np 2", "--grace 1 -np 2"] {
        let line = format!("unisono run {line} prog -np 3 --json");
        let Ok(Some(Commands::Run(run))) = parsed(&line) else { panic!("{line}") };
        assert_eq!(
            (run.ranks, run.program),
            (Some(2), ["prog", "-np", "3", "--json"].map(OsString::from).to_vec())
        );
    }
}

#[test]
fn ranks_are_counted_as_mpiruns_users_count_them() {
    let ranks = |line: &str| match parsed(line) {
        Ok(Some(Commands::Demo(demo))) => demo.ranks,
        Ok(Some(Commands::Bench(bench))) => bench.ranks.unwrap(),
        Ok(Some(Commands::Calibrate(calibrate))) => calibrate.ranks.unwrap(),
        Ok(Some(Commands::Doctor(doctor))) => doctor.ranks.unwrap(),
        Ok(Some(Commands::Run(run))) => run.ranks.unwrap(),
        other => panic!("{line}: {other:?}"),
    };
    for command in ["demo", "bench all_reduce --sizes 1Mi", "calibrate --json", "doctor"] {
        for option in ["-n 3", "-n3", "-np 3"] {
            assert_eq!(ranks(&format!("unisono {command} {option}")), 3);
        }
    }
    assert_eq!(ranks("unisono run -np 3 bench"), 3);
    assert_eq!(ranks("unisono demo --ranks 3"), 3);
}

#[test]
fn the_help_of_the_bench_names_every_operation() {
    let mut command = Arguments::command();
    let help = command.find_subcommand_mut("bench").unwrap().render_long_help().to_string();
    let words: Vec<&str> = help.split(|letter: char| !letter.is_alphanumeric() && letter != '_').collect();
    for operation in BenchOperation::all() {
        assert!(words.contains(&operation.name()), "{operation} is not in {help}");
    }
}

#[test]
fn the_help_of_the_demonstration_says_how_to_lose_a_rank_and_when_compression_does_not_pay() {
    let mut command = Arguments::command();
    let help = command.find_subcommand_mut("demo").unwrap().render_long_help().to_string();
    assert!(help.contains("--kill 2@300") && help.contains("CompressionState::or_exact"), "{help}");
}

#[test]
fn the_definition_is_consistent() {
    Arguments::command().debug_assert();
}
