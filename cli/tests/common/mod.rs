//! The command run within the test, and files for it.
#![allow(dead_code, reason = "every test uses its own part")]

use std::{
    cell::RefCell,
    fs,
    io::{self, Write},
    path::PathBuf,
    rc::Rc,
};

use clap::Parser;
use spokeshave::{Cli, ExitStatus, Failure, Format, Output};

/// Keeps what is written to it.
#[derive(Clone, Default)]
struct Sink(Rc<RefCell<Vec<u8>>>);

impl Sink {
    fn text(&self) -> String {
        String::from_utf8(self.0.borrow().clone()).expect("text")
    }
}

impl Write for Sink {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.borrow_mut().extend_from_slice(bytes);
        Ok(bytes.len())
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// What a run of the command ended with and printed.
pub struct Ran {
    pub status: Result<ExitStatus, Failure>,
    pub output: String,
    /// What went to standard error.
    pub notes: String,
}

/// Runs `spokeshave` with these arguments.
pub fn run(format: Format, args: &[&str]) -> Ran {
    let cli = Cli::try_parse_from(["spokeshave"].iter().chain(args)).expect("a valid call");
    let (sink, notes) = (Sink::default(), Sink::default());
    let out = Output::into_writers(format, Box::new(sink.clone()), Box::new(notes.clone()));
    let status = cli.command.run(&out);
    drop(out);
    Ran { status, output: sink.text(), notes: notes.text() }
}

/// A file with this text in a folder of the test's own, so that tests do not meet.
pub fn file(folder: &str, name: &str, text: impl AsRef<[u8]>) -> String {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(folder);
    fs::create_dir_all(&folder).expect("a folder");
    let path = folder.join(name);
    fs::write(&path, text).expect("written");
    path.display().to_string()
}
