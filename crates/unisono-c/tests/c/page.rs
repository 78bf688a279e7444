//! The programs of docs/c.md: each is compiled as it stands there, and run.

use crate::support::{Compiler, Linked, assert_good, compile};

const PAGE: &str = include_str!("../../../../docs/c.md");

/// The blocks of C of the page that are whole programs.
fn blocks() -> Vec<&'static str> {
    let blocks = PAGE.split("```c\n").skip(1).filter_map(|rest| rest.split("\n```").next());
    blocks.filter(|block| block.contains("int main(")).collect()
}

/// Rows: K1
#[test]
fn the_programs_of_the_page_run() {
    let blocks = blocks();
    assert!(blocks.len() >= 4, "{} programs in docs/c.md", blocks.len());
    let folder = tempfile::tempdir().unwrap();
    for (index, block) in blocks.iter().enumerate() {
        let source = folder.path().join(format!("page-{index}.c"));
        std::fs::write(&source, format!("{block}\n")).unwrap();
        let Some(program) = compile(Compiler::Gcc, &source, Linked::Shared, &[]) else { return };
        assert_good(&program.run(4, &[], &[]));
    }
}
