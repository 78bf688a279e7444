//! The text of unisono.h, as cbindgen makes it now.

use std::path::Path;

/// The files whose declarations C sees, in the order of the header.
const FILES: [&str; 21] = [
    "version",
    "status",
    "names",
    "error",
    "text",
    "user_op",
    "buffers",
    "handle",
    "outcome",
    "fields",
    "world",
    "group",
    "issue",
    "work",
    "prepared",
    "message",
    "compressed",
    "life",
    "interrupt",
    "records",
    "store",
];

/// The header: the declarations of the crate, and the wrappers that C compiles itself.
///
/// # Errors
/// The problem, where the crate or the settings of cbindgen cannot be read.
pub(crate) fn header() -> Result<String, String> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut config = cbindgen::Config::from_file(folder.join("cbindgen.toml"))?;
    let wrappers = std::fs::read_to_string(folder.join("wrappers.h")).map_err(|error| error.to_string())?;
    config.trailer = Some(wrappers);
    let mut builder = cbindgen::Builder::new().with_config(config);
    for file in FILES {
        builder = builder.with_src(folder.join("src").join(file).with_extension("rs"));
    }
    let mut bytes = Vec::new();
    builder.generate().map_err(|error| error.to_string())?.write(&mut bytes);
    let text = String::from_utf8(bytes).map_err(|error| error.to_string())?;
    // The chapter of Rust's documentation about unsafe functions, for readers of C.
    Ok(text.replace("// # Safety\n", "// Promised by the caller:\n"))
}
