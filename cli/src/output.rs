//! Printing: JSON or text on standard output, everything else on standard error.

use std::{
    cell::{Cell, RefCell},
    io::{self, IsTerminal, Write},
};

use clap::ValueEnum;
use serde::Serialize;

use crate::Failure;

/// How answers are printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// For people.
    Text,
    /// For scripts: stable keys, nothing else on standard output.
    Json,
}

/// Colours for [`Output::paint`]; used only on a terminal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Colour {
    Red,
    Green,
    Yellow,
    Dim,
    Bold,
}

/// Where a command's answer goes.
///
/// A reader that closes the pipe ends the printing, not the command.
pub struct Output {
    format: Format,
    colours: bool,
    sink: RefCell<Box<dyn Write>>,
    notes: RefCell<Box<dyn Write>>,
    closed: Cell<bool>,
    /// A person reads the notes on a terminal.
    attended: bool,
    /// A line of progress is on the terminal.
    progressing: Cell<bool>,
}

/// Widest line of a table.
const WIDTH: usize = 100;

impl Output {
    /// Standard output and standard error.
    pub fn new(format: Format) -> Self {
        let colours = io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none();
        Self {
            format,
            colours,
            sink: RefCell::new(Box::new(io::BufWriter::new(io::stdout()))),
            notes: RefCell::new(Box::new(io::stderr())),
            closed: Cell::new(false),
            attended: io::stderr().is_terminal(),
            progressing: Cell::new(false),
        }
    }

    /// Into writers of the caller, without colours: for tests and for commands inside commands.
    pub fn into_writers(format: Format, sink: Box<dyn Write>, notes: Box<dyn Write>) -> Self {
        Self {
            format,
            colours: false,
            sink: RefCell::new(sink),
            notes: RefCell::new(notes),
            closed: Cell::new(false),
            attended: false,
            progressing: Cell::new(false),
        }
    }

    /// Whether JSON was asked for.
    pub fn is_json(&self) -> bool {
        self.format == Format::Json
    }

    /// Whether a person reads the answer on a terminal.
    pub fn is_terminal(&self) -> bool {
        self.colours
    }

    /// Prints `value` as JSON and a line feed.
    ///
    /// # Errors
    /// When standard output cannot be written for another reason than a closed pipe.
    pub fn json<T: Serialize + ?Sized>(&self, value: &T) -> Result<(), Failure> {
        if self.closed.get() {
            return Ok(());
        }
        let mut sink = self.sink.borrow_mut();
        let written = serde_json::to_writer_pretty(&mut *sink, value)
            .map_err(io::Error::from)
            .and_then(|()| sink.write_all(b"\n"))
            .and_then(|()| sink.flush());
        self.settle(written)
    }

    /// Prints a line of text.
    ///
    /// # Errors
    /// As [`Output::json`].
    pub fn line(&self, text: &str) -> Result<(), Failure> {
        self.bytes(text.as_bytes()).and_then(|()| self.bytes(b"\n"))
    }

    /// Prints exactly these bytes.
    ///
    /// # Errors
    /// As [`Output::json`].
    pub fn bytes(&self, bytes: &[u8]) -> Result<(), Failure> {
        if self.closed.get() {
            return Ok(());
        }
        let written = self.sink.borrow_mut().write_all(bytes);
        self.settle(written)
    }

    /// Prints rows in columns under `headers`, at most 100 columns wide: the last column is wrapped at spaces.
    ///
    /// # Errors
    /// As [`Output::json`].
    pub fn table(&self, headers: &[&str], rows: &[Vec<String>]) -> Result<(), Failure> {
        for line in table(headers, rows) {
            self.line(&line)?;
        }
        Ok(())
    }

    /// `text` in a colour, if a person reads it on a terminal.
    pub fn paint(&self, colour: Colour, text: &str) -> String {
        if !self.colours {
            return text.to_owned();
        }
        let code = match colour {
            Colour::Red => "31",
            Colour::Green => "32",
            Colour::Yellow => "33",
            Colour::Dim => "2",
            Colour::Bold => "1",
        };
        format!("\x1b[{code}m{text}\x1b[0m")
    }

    /// A hint for people, on standard error; left out when JSON was asked for.
    pub fn note(&self, text: &str) {
        if !self.is_json() {
            self.warn(text);
        }
    }

    /// A line on standard error, whatever the format.
    pub fn warn(&self, text: &str) {
        self.progress("");
        // With standard error gone there is nowhere left to complain.
        let _ = writeln!(self.notes.borrow_mut(), "{text}");
    }

    /// Shows what is being done, on a line of its own that the next one replaces; an empty text takes it away. Only where
    /// a person looks on.
    pub fn progress(&self, text: &str) {
        if !self.attended || (text.is_empty() && !self.progressing.get()) {
            return;
        }
        self.progressing.set(!text.is_empty());
        let mut notes = self.notes.borrow_mut();
        let _ = write!(notes, "\r\x1b[K{text}").and_then(|()| notes.flush());
    }

    /// The one message of a failed command, on standard error.
    pub fn error(&self, text: &str) {
        self.warn(&format!("error: {text}"));
    }

    /// Hands over what is still held back.
    ///
    /// # Errors
    /// As [`Output::json`].
    pub fn flush(&self) -> Result<(), Failure> {
        let written = self.sink.borrow_mut().flush();
        self.settle(written)
    }

    fn settle(&self, written: io::Result<()>) -> Result<(), Failure> {
        match written {
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {
                self.closed.set(true);
                Ok(())
            }
            Err(error) => Err(Failure::new(format!("cannot write the answer: {error}"))),
            Ok(()) => Ok(()),
        }
    }
}

/// The lines of a table. Columns are two spaces apart; without rows only the header is there.
fn table(headers: &[&str], rows: &[Vec<String>]) -> Vec<String> {
    let columns = headers.len();
    let mut widths: Vec<usize> = headers.iter().map(|it| it.chars().count()).collect();
    for row in rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
    }
    // Columns that would leave nothing for the last one are shortened, widest first.
    let fixed = |widths: &[usize]| widths.iter().take(columns - 1).map(|it| it + 2).sum::<usize>();
    if columns == 0 {
        return Vec::new();
    }
    while fixed(&widths) > WIDTH - 20 {
        let Some(widest) = (0..columns - 1).max_by_key(|at| widths[*at]) else { break };
        if widths[widest] <= 8 {
            break;
        }
        widths[widest] -= 1;
    }
    let last = WIDTH.saturating_sub(fixed(&widths)).max(20);
    let mut lines = Vec::new();
    let headers: Vec<String> = headers.iter().map(|it| (*it).to_owned()).collect();
    for row in std::iter::once(&headers).chain(rows) {
        let cells: Vec<Vec<String>> = (0..columns)
            .map(|at| {
                let width = if at + 1 == columns { last } else { widths[at] };
                wrap(row.get(at).map_or("", String::as_str), width)
            })
            .collect();
        for level in 0..cells.iter().map(Vec::len).max().unwrap_or(0) {
            let mut line = String::new();
            for (at, cell) in cells.iter().enumerate() {
                let text = cell.get(level).map_or("", String::as_str);
                line.push_str(text);
                if at + 1 < columns {
                    let padding = widths[at].saturating_sub(text.chars().count()) + 2;
                    line.extend(std::iter::repeat_n(' ', padding));
                }
            }
            lines.push(line.trim_end().to_owned());
        }
    }
    lines
}

/// `text` in pieces of at most `width` characters, broken at spaces where there are any.
fn wrap(text: &str, width: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    let mut used = 0;
    for word in text.split(' ') {
        let mut word: Vec<char> = word.chars().collect();
        let Some(line) = lines.last_mut() else { break };
        if used > 0 && used + 1 + word.len() <= width {
            line.push(' ');
            line.extend(&word);
            used += 1 + word.len();
            continue;
        }
        if used > 0 {
            lines.push(String::new());
        }
        while word.len() > width {
            let rest = word.split_off(width);
            if let Some(line) = lines.last_mut() {
                line.extend(&word);
            }
            lines.push(String::new());
            word = rest;
        }
        if let Some(line) = lines.last_mut() {
            line.extend(&word);
        }
        used = word.len();
    }
    lines
}

impl Drop for Output {
    fn drop(&mut self) {
        let _ = self.flush();
    }
}

#[cfg(test)]
mod tests {
    use std::rc::Rc;

    use super::*;

    #[derive(Clone, Default)]
    struct Shared(Rc<RefCell<Vec<u8>>>);

    impl Write for Shared {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.borrow_mut().extend_from_slice(bytes);
            Ok(bytes.len())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    struct Closed;

    impl Write for Closed {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            Err(io::ErrorKind::BrokenPipe.into())
        }
        fn flush(&mut self) -> io::Result<()> {
            Err(io::ErrorKind::BrokenPipe.into())
        }
    }

    #[test]
    fn progress_is_for_people_and_goes_away() {
        for format in [Format::Text, Format::Json] {
            for (attended, expected) in [
                (true, "\r\x1b[Kreading\r\x1b[Kplacing\r\x1b[Kwarning: x\n"),
                (false, "warning: x\n"),
            ] {
                let (sink, notes) = (Shared::default(), Shared::default());
                let (answer, told) = (Box::new(sink.clone()), Box::new(notes.clone()));
                let mut out = Output::into_writers(format, answer, told);
                out.attended = attended;
                out.progress("reading");
                out.progress("placing");
                out.warn("warning: x");
                out.progress("");
                out.json(&1).expect("written");
                out.flush().expect("written");
                let text = |it: &Shared| String::from_utf8(it.0.borrow().clone()).expect("UTF-8");
                assert_eq!((text(&sink).as_str(), text(&notes).as_str()), ("1\n", expected));
            }
        }
    }

    #[test]
    fn tables_fit_a_hundred_columns() {
        let rows = vec![
            vec!["default".into(), "4".into(), "word ".repeat(40).trim_end().to_owned()],
            vec!["x".repeat(150), "5".into(), "short".into()],
        ];
        let lines = table(&["NODEPOOL", "N", "WHY"], &rows);
        assert!(lines.iter().all(|line| line.chars().count() <= WIDTH), "{lines:#?}");
        assert!(lines[0].starts_with("NODEPOOL"));
        assert_eq!(table(&["A", "B"], &[]), ["A  B"]);
        assert_eq!(table(&[], &[]), Vec::<String>::new());
    }

    #[test]
    fn hints_are_for_people_alone() {
        let (sink, notes) = (Shared::default(), Shared::default());
        let out =
            Output::into_writers(Format::Json, Box::new(sink.clone()), Box::new(notes.clone()));
        out.note("a hint");
        out.json(&serde_json::json!([])).expect("written");
        assert_eq!(sink.0.borrow().as_slice(), b"[]\n");
        assert!(notes.0.borrow().is_empty());
    }

    #[test]
    fn a_closed_pipe_is_no_failure() {
        let out = Output::into_writers(Format::Text, Box::new(Closed), Box::new(Closed));
        out.line("one").expect("quiet");
        out.json(&1).expect("quiet");
        out.error("lost");
    }
}
