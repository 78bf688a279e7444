//! Rules that need the tokens of a Rust file.

use super::source::{Source, Violation};
use super::tokens::Token;

/// Where memory is touched without the compiler's proof, and nowhere else.
const UNSAFE_FILES: &[&str] = &[
    "benches/lab/gpu-check/src/direct.rs",
    "benches/lab/gpu-check/src/overhead.rs",
    "benches/lab/gpu-check/src/typed.rs",
    "benches/src/bin/ccl_overhead.rs",
    "crates/communicator/src/check/memory_tests.rs",
    "crates/communicator/src/memory/cudarc_elements.rs",
    "crates/communicator/src/memory/device.rs",
    "crates/communicator/src/memory/device_slice.rs",
    "crates/communicator/src/memory/raw.rs",
    "crates/compression-wgpu/src/memory.rs",
    "crates/backend/src/fork.rs",
    "crates/backend/src/stream_order_tests.rs",
    "crates/compression-cuda/src/launch.rs",
    "crates/compression-cuda/src/memory.rs",
    "crates/compression-cuda/tests/cuda/bad_input.rs",
    "crates/compression-npu/src/memory.rs",
    "crates/compression-npu/src/npu.rs",
    "crates/compression-npu/src/steps.rs",
    "crates/cuda/src/context.rs",
    "crates/cuda/src/driver.rs",
    "crates/cuda/src/memory.rs",
    "crates/cuda/src/module.rs",
    "crates/cuda/src/nvrtc.rs",
    "crates/cuda/src/raw.rs",
    "crates/cuda/src/stream.rs",
    "crates/cuda/tests/cuda/driver.rs",
    "crates/engine/src/calls/time_slice.rs",
    "crates/engine/src/reduce/dispatch.rs",
    "kernels/src/dispatch.rs",
    "kernels/src/simd/avx2.rs",
    "kernels/src/simd/avx512.rs",
    "crates/engine/src/memory/stream.rs",
    "crates/engine/src/reduce/peer_bytes.rs",
    "crates/offload-ccl/src/discovery.rs",
    "crates/offload-ccl/src/discovery_tests.rs",
    "crates/offload-ccl/src/error.rs",
    "crates/offload-ccl/src/queue.rs",
    "crates/offload-ccl/src/sys.rs",
    "crates/offload-ccl/src/vendor.rs",
    "crates/offload-hccl/src/combining.rs",
    "crates/offload-hccl/src/device.rs",
    "crates/offload-hccl/src/error.rs",
    "crates/offload-hccl/src/operator.rs",
    "crates/offload-hccl/src/scaling.rs",
    "crates/offload-hccl/src/signs.rs",
    "crates/offload-hccl/src/signs_tests.rs",
    "crates/offload-hccl/src/sys.rs",
    "crates/offload-hccl/src/vectors.rs",
    "crates/offload-hccl/src/vectors_tests.rs",
    "crates/offload-hccl/src/vendor.rs",
    "crates/offload-hccl/src/vendor_tests.rs",
    "crates/offload-hccl/src/workspace.rs",
    "crates/offload-nccl/src/arithmetic.rs",
    "crates/offload-nccl/src/comm.rs",
    "crates/offload-nccl/src/device.rs",
    "crates/offload-nccl/src/discovery.rs",
    "crates/offload-nccl/src/discovery_tests.rs",
    "crates/offload-nccl/src/error.rs",
    "crates/offload-nccl/src/sys.rs",
    "crates/offload-nccl/src/vendor.rs",
    "crates/offload-nccl/src/vendor_tests.rs",
    "crates/offload/src/connect.rs",
    "crates/offload/src/device.rs",
    "crates/offload/src/enqueue.rs",
    "crates/offload/src/pending.rs",
    "crates/offload/src/run.rs",
    "crates/offload/src/staged.rs",
    "crates/offload/src/vendor.rs",
    "crates/job/src/sockets/acknowledgement.rs",
    "crates/shared-memory/src/indices/orders_tests.rs",
    "crates/shared-memory/src/memory/mapping.rs",
    "crates/shared-memory/src/memory/mod.rs",
    "crates/job/src/exit.rs",
    "crates/job/src/report.rs",
    "crates/job/src/size_limit.rs",
    "crates/vendor-library/src/functions.rs",
    "crates/vendor-library/src/library.rs",
    "crates/vendor-library/src/words.rs",
    "crates/vendor-library/tests/library.rs",
    "tests/src/bin/first_bytes.rs",
    "tests/src/bin/forking.rs",
    "tests/src/double/communicator.rs",
    "tests/src/double/device.rs",
    "tests/src/double/library/calls.rs",
    "tests/src/double/library/mod.rs",
    "tests/src/processes/raw.rs",
    "tests/src/suite/borrowed.rs",
    "tests/vendors/tests/vendors/ccl/queues.rs",
    "tests/src/vendor_rank.rs",
    "tests/doubles/common/src/control.rs",
    "tests/doubles/common/src/export.rs",
    "tests/doubles/common/src/memory.rs",
    "tests/doubles/common/src/pointer.rs",
    "tests/doubles/common/src/settings.rs",
    "benches/lab/doubles/tests/hccl/api.rs",
    "tests/doubles/nccl/src/driver.rs",
    "benches/lab/doubles/tests/nccl/api.rs",
    "tests/tests/conformance/device.rs",
    "tests/vendors/src/bin/device_overhead.rs",
    "tests/src/bits.rs",
    "tests/src/on_device/calls.rs",
    "tests/src/on_device/mod.rs",
    "tests/src/on_device/moved.rs",
    "tests/src/on_device/turns.rs",
    "tests/vendors/tests/vendors/nccl_double/cudarc_slices.rs",
    "tests/vendors/tests/vendors/nccl_double/stream_order.rs",
    "tests/vendors/tests/vendors/nccl_double/streams.rs",
];

/// The one file that reads the environment.
const ENVIRONMENT_FILE: &str = "crates/communicator/src/settings.rs";

/// Every rule of this file.
pub(crate) fn check(source: &Source<'_>, tokens: &[Token]) -> Vec<Violation> {
    let code = &Code { source, lines: source.text.lines().collect(), tokens };
    let rules = [unsafe_code, panicking, environment];
    let judge = |index| rules.iter().filter_map(move |rule| rule(code, index));
    (0..tokens.len()).flat_map(judge).collect()
}

struct Code<'a> {
    source: &'a Source<'a>,
    lines: Vec<&'a str>,
    tokens: &'a [Token],
}

impl Code<'_> {
    fn text(&self, index: usize) -> &str {
        self.tokens.get(index).map_or("", |token| token.text.as_str())
    }

    /// The texts from `index` on are these.
    fn reads(&self, index: usize, texts: &[&str]) -> bool {
        texts.iter().enumerate().all(|(offset, text)| self.text(index + offset) == *text)
    }

    /// How many arguments stand in the bracket at `open`: other types have methods of these names too.
    fn arguments(&self, open: usize) -> usize {
        let close = self.tokens[open].close.unwrap_or(open);
        let (mut at, mut arguments) = (open + 1, usize::from(open + 1 < close));
        while at < close {
            arguments += usize::from(self.text(at) == "," && at + 1 < close);
            at = self.tokens[at].close.unwrap_or(at) + 1;
        }
        arguments
    }

    fn violation(&self, index: usize, rule: &'static str, text: impl Into<String>) -> Option<Violation> {
        Some(self.source.violation(self.tokens[index].line, rule, text))
    }

    /// Whether a comment with `word` stands above the statement that goes on at `line`, or in the statement.
    fn is_argued(&self, line: usize, word: &str) -> bool {
        for (distance, text) in self.lines[..line].iter().rev().map(|text| text.trim()).enumerate() {
            if text.starts_with("//") {
                if text.contains(word) {
                    return true;
                }
            } else if text.is_empty() || distance > 0 && text.ends_with([';', '{', '}']) {
                return false;
            }
        }
        false
    }
}

fn unsafe_code(code: &Code<'_>, index: usize) -> Option<Violation> {
    if code.text(index) != "unsafe" {
        return None;
    }
    if !UNSAFE_FILES.contains(&code.source.path) {
        let text = format!("only in {}", UNSAFE_FILES.join(", "));
        return code.violation(index, "unsafe", text);
    }
    let line = code.tokens[index].line;
    match (code.text(index + 1), code.text(index + 2)) {
        // A type promises nothing.
        ("fn", "(") => None,
        ("extern", _) if code.reads(index + 3, &["fn", "("]) => None,
        // The one who calls must keep the promise, so its terms are documentation.
        ("fn", _) if code.is_argued(line, "# Safety") || code.is_argued(line, "SAFETY:") => None,
        _ if code.is_argued(line, "SAFETY:") => None,
        _ => code.violation(index, "unsafe", "no `// SAFETY:` above says why it holds"),
    }
}

fn panicking(code: &Code<'_>, index: usize) -> Option<Violation> {
    let is_expect = code.reads(index, &[".", "expect", "("]) && code.arguments(index + 2) == 1;
    let is_call = is_expect || code.reads(index, &[".", "unwrap", "(", ")"]);
    if !is_call || code.source.is_test() || code.tokens[index].is_test {
        return None;
    }
    // The word stands on the line of its method, which formatting may put below the dot's expression.
    if code.is_argued(code.tokens[index + 1].line, "INVARIANT:") {
        return None;
    }
    let text = format!(".{} without `// INVARIANT:` above that says why it holds", code.text(index + 1));
    code.violation(index + 1, "panic", text)
}

fn environment(code: &Code<'_>, index: usize) -> Option<Violation> {
    let names = ["var", "var_os", "vars", "vars_os"];
    let is_read = names.iter().any(|name| code.reads(index, &["env", ":", ":", name]));
    let path = code.source.path;
    let is_excepted = path == ENVIRONMENT_FILE || path.starts_with("xtask/") || code.source.is_test();
    if !is_read || is_excepted || code.tokens[index].is_test {
        return None;
    }
    code.violation(index, "environment", format!("{ENVIRONMENT_FILE} alone reads it"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::tokens::parse;

    const LIBRARY: &str = "crates/x/src/lib.rs";

    /// (line, rule) of every violation.
    fn found(path: &str, text: &str) -> Vec<(usize, &'static str)> {
        let source = Source { path, text };
        let tokens = parse(&source).unwrap();
        check(&source, &tokens).iter().map(|violation| (violation.line, violation.rule)).collect()
    }

    #[test]
    fn unsafe_is_found_outside_its_files_and_without_its_reason() {
        let listed = UNSAFE_FILES[0];
        assert_eq!(found(LIBRARY, "// SAFETY: no\nunsafe {}"), [(2, "unsafe")]);
        assert_eq!(found(listed, "fn f() {\n    unsafe {}\n}"), [(2, "unsafe")]);
        assert_eq!(found(listed, "fn f() {\n    // SAFETY: the\n    // reason\n    unsafe {}\n}"), []);
        assert_eq!(found(listed, "unsafe fn f() {}"), [(1, "unsafe")]);
        assert_eq!(found(listed, "/// # Safety\n/// The terms.\n#[x]\nunsafe fn f() {}"), []);
        assert_eq!(found(listed, "type F = unsafe fn(u8);"), []);
        assert_eq!(found(LIBRARY, "// unsafe\nconst A: &str = \"unsafe\";"), []);
    }

    #[test]
    fn unwrap_and_expect_are_found_outside_tests() {
        assert_eq!(found(LIBRARY, "fn f() {\n    x.unwrap();\n}"), [(2, "panic")]);
        assert_eq!(
            found(LIBRARY, "fn f() {\n    x\n        .g()\n        .expect(\"y\");\n}"),
            [(4, "panic")]
        );
        assert_eq!(found(LIBRARY, "fn f() {\n    // INVARIANT: why\n    x.unwrap();\n}"), []);
        assert_eq!(
            found(
                LIBRARY,
                "fn f() {\n    // INVARIANT: why\n    x\n        .g()\n        .expect(\"y\");\n}"
            ),
            []
        );
        let after = "fn f() {\n    // INVARIANT: why\n    x.unwrap();\n    y.unwrap();\n}";
        assert_eq!(found(LIBRARY, after), [(4, "panic")]);
        assert_eq!(found(LIBRARY, "#[cfg(test)]\nmod tests { fn f() { x.unwrap() } }"), []);
        assert_eq!(found("crates/x/tests/a.rs", "fn f() { x.unwrap() }"), []);
        assert_eq!(found(LIBRARY, "fn f() { x.unwrap_or(1) + self.expect(2, (3, 4)) }"), []);
        assert_eq!(found(LIBRARY, "fn f() { x.expect(&g(1, 2),) }"), [(1, "panic")]);
    }

    #[test]
    fn the_environment_is_read_in_one_file() {
        let text = "fn f() { std::env::var(\"X\"); }";
        assert_eq!(found(LIBRARY, text), [(1, "environment")]);
        assert_eq!(found(LIBRARY, "use std::env;\nfn f() { env::var_os(\"X\"); }"), [(2, "environment")]);
        assert_eq!(found(ENVIRONMENT_FILE, text), []);
        assert_eq!(found("crates/x/tests/a.rs", text), []);
        assert_eq!(found(LIBRARY, "fn f() { std::env::args(); }"), []);
    }
}
