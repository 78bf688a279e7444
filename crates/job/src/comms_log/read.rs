//! Reads `UNISONO_COMMS_LOGGER`.

use std::path::Path;

#[cfg(feature = "serde")]
use unisono_communicator::read_regular;
use unisono_communicator::{CommsLoggerConfig, Result};

use crate::settings::{Source, configuration};

const NAME: &str = "UNISONO_COMMS_LOGGER";

/// No configuration of DeepSpeed comes near it.
#[cfg(feature = "serde")]
const BYTES_MAX: u64 = 16 << 20;

/// The value of the setting: `on`, `off`, or a file with the block of DeepSpeed.
///
/// # Errors
/// [`unisono_communicator::Error::Configuration`] for a file that cannot be read, or that holds something else.
pub(crate) fn comms_logger(source: &Source<'_>) -> Result<CommsLoggerConfig> {
    match source.text(NAME).as_deref() {
        None | Some("off") => Ok(CommsLoggerConfig::default()),
        Some("on") => Ok(CommsLoggerConfig::enabled()),
        Some(path) => of_file(Path::new(path)).map_err(|problem| configuration(NAME, path, problem)),
    }
}

/// The block alone, or a whole configuration of DeepSpeed that has the block.
#[cfg(feature = "serde")]
fn of_file(path: &Path) -> std::result::Result<CommsLoggerConfig, String> {
    let needed = |problem: String| format!("on, off or a file is needed: {problem}");
    let bytes = read_regular(path, BYTES_MAX).map_err(|error| needed(error.to_string()))?;
    let text = String::from_utf8(bytes).map_err(|_| needed("it is not UTF-8".to_owned()))?;
    let no_block = |problem: serde_json::Error| {
        format!("not the keys enabled, verbose, prof_all, debug and prof_ops of comms_logger: {problem}")
    };
    let mut whole: serde_json::Value = serde_json::from_str(&text).map_err(no_block)?;
    let block = whole.get_mut("comms_logger").map(serde_json::Value::take).unwrap_or(whole);
    if block.is_array() {
        // A list of values would do for the reader of such types, but it has no keys.
        return Err(no_block(serde::de::Error::custom("a list, not an object")));
    }
    serde_json::from_value(block).map_err(no_block)
}

#[cfg(not(feature = "serde"))]
fn of_file(_: &Path) -> std::result::Result<CommsLoggerConfig, String> {
    Err("on or off is needed: this program was built without the feature `serde`, which reads files"
        .to_owned())
}

#[cfg(feature = "serde")]
#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;

    fn read(text: &str) -> std::result::Result<CommsLoggerConfig, String> {
        let file = tempfile::NamedTempFile::new().expect("a file");
        std::fs::write(file.path(), text).expect("room on the disk");
        let path = file.path().to_string_lossy().into_owned();
        let config = Config::from_lookup(&|name| (name == NAME).then(|| path.clone()));
        config.map(|config| config.comms_logger).map_err(|error| error.to_string())
    }

    #[test]
    fn i2_the_block_is_read_alone_and_in_a_whole_configuration() {
        let block =
            r#"{"enabled": true, "verbose": true, "prof_all": false, "prof_ops": ["all_reduce", "my op"]}"#;
        let prof_ops = vec!["all_reduce".to_owned(), "my op".to_owned()];
        let expected =
            CommsLoggerConfig { enabled: true, verbose: true, prof_all: false, debug: false, prof_ops };
        assert_eq!(read(block), Ok(expected.clone()));
        let whole =
            format!(r#"{{"train_batch_size": 8, "comms_logger": {block}, "fp16": {{"enabled": false}}}}"#);
        assert_eq!(read(&whole), Ok(expected));
        assert_eq!(read(r#"{"comms_logger": {"enabled": false}}"#), Ok(CommsLoggerConfig::default()));
    }

    #[test]
    fn i2_what_is_no_block_is_refused_with_the_reason() {
        for (text, word) in [
            (r#"{"enabled": true, "prof_opps": []}"#, "prof_opps"),
            (r#"{"train_batch_size": 8}"#, "train_batch_size"),
            (r#"{"enabled": "yes"}"#, "yes"),
            ("enabled", "enabled"),
            ("[true]", "a list"),
            (r#"{"comms_logger": []}"#, "a list"),
            ("", "comms_logger"),
        ] {
            let error = read(text).unwrap_err();
            assert!(error.contains(NAME) && error.contains(word), "{error}");
        }
        let named = |path: &str| {
            let config = Config::from_lookup(&|name| (name == NAME).then(|| path.to_owned()));
            config.unwrap_err().to_string()
        };
        assert!(named("/no/such/file").contains("on, off or a file"));
        // Neither may hang, nor be read to its end.
        let folder = tempfile::tempdir().expect("a folder");
        let pipe = folder.path().join("pipe");
        let mode = rustix::fs::Mode::RWXU;
        rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, mode, 0).expect("a pipe");
        for path in [pipe.to_str().expect("text"), "/dev/zero", "/dev/tty", "/"] {
            assert!(named(path).contains("on, off or a file is needed: it is not a regular file"), "{path}");
        }
        let long = folder.path().join("long");
        std::fs::File::create(&long).and_then(|file| file.set_len(1 << 40)).expect("a file with a hole");
        assert!(named(long.to_str().expect("text")).contains("it has more than 16777216 bytes"));
    }

    /// A histogram is a list of the starts and counts of its buckets.
    #[test]
    fn i5_a_report_is_json_with_the_names_of_its_fields() {
        use unisono_collectives::{Collectives, Solo};
        use unisono_communicator::{CallOptions, ReduceOp};

        let comm = Solo::new();
        let log = comm.group().comms_logger();
        log.start();
        for count in [100, 120] {
            let named = comm.with(CallOptions::new().log_name("loss"));
            named.all_reduce(&mut vec![1.0f32; count], ReduceOp::Sum).expect("a sum");
        }
        let report = log.report();
        let json = serde_json::to_value(&report).expect("no map has other keys than text");
        assert_eq!(
            (&json["written_ms"], &json["without_calls"]),
            (&report.written_ms.into(), &serde_json::json!([]))
        );
        let (row, times) = (&report.rows[0], &report.rows[0].times);
        let buckets: Vec<(u64, u32)> = times.buckets().collect();
        let expected = serde_json::json!([{
            "name": "loss", "operation": "all_reduce", "uneven": false, "parent": null, "ranks": 1,
            "bytes_min": 400, "bytes_max": 480, "count": 2, "errors": 0, "times": buckets,
            "bandwidth": { "algbw_gb_per_s": row.bandwidth.algbw_gb_per_s, "busbw_gb_per_s": 0.0 },
        }]);
        assert_eq!(json["rows"], expected);
    }

    #[test]
    fn on_and_off_need_no_file() {
        for (value, enabled) in [("on", true), ("off", false)] {
            let config = Config::from_lookup(&|name| (name == NAME).then(|| value.to_owned())).unwrap();
            assert_eq!(config.comms_logger, CommsLoggerConfig { enabled, ..CommsLoggerConfig::default() });
        }
    }
}
