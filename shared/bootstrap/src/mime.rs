//! MIME multipart archives: reading the user's, writing ours (`spec` aws-nodeclass 10 and 11).
//!
//! What is accepted follows Go's `net/mail`, `mime` and `mime/multipart` readers, because Karpenter's users have
//! archives that those accept: a plain delimiter as the end, text around the parts, either kind of line end.

use std::collections::BTreeMap;

/// Why a text that begins like an archive is none.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MimeError {
    /// A header line is no `Name: value`, or white space comes before the first header.
    #[error("malformed MIME header line {0:?}")]
    HeaderLine(String),
    /// A part follows the header without an empty line between them, or the text ends in the header.
    #[error("the MIME header is not followed by an empty line")]
    NoBlankLine,
    #[error("no MIME media type: the header has no Content-Type")]
    NoContentType,
    #[error("invalid Content-Type {0:?}")]
    InvalidContentType(String),
    #[error("media type {0:?} is not multipart")]
    NotMultipart(String),
    #[error("the Content-Type of the archive has no boundary")]
    NoBoundary,
    #[error("the archive has no part")]
    NoPart,
    #[error("the archive ends without its closing boundary")]
    NoEnd,
    /// Something else stands where a boundary line must be.
    #[error("unexpected line {0:?} where a boundary must be")]
    Unexpected(String),
    #[error("a quoted-printable part cannot be decoded")]
    QuotedPrintable,
}

/// One part of an archive.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Part {
    /// Header lines by canonical name; a name may come more than once.
    pub headers: BTreeMap<String, Vec<String>>,
    pub body: String,
}

impl Part {
    /// A part with nothing but a content type.
    pub fn new(content_type: &str, body: impl Into<String>) -> Self {
        let headers = BTreeMap::from([("Content-Type".to_owned(), vec![content_type.to_owned()])]);
        Self { headers, body: body.into() }
    }

    /// The first value of a header, by canonical name.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name)?.first().map(String::as_str)
    }
}

/// Whether `text` means to be an archive.
pub fn looks_like_mime(text: &str) -> bool {
    let text = text.trim();
    text.starts_with("MIME-Version:") || text.starts_with("Content-Type:")
}

/// Reads an archive.
///
/// # Errors
/// See [`MimeError`].
pub fn parse(text: &str) -> Result<Vec<Part>, MimeError> {
    if text.starts_with([' ', '\t']) {
        let line = text.lines().next().unwrap_or_default();
        return Err(MimeError::HeaderLine(line.to_owned()));
    }
    let mut lines = Lines { rest: text };
    let lenient = |name: &str| Some(canonical_name(name).unwrap_or_else(|| name.to_owned()));
    let Headers::Complete(headers) =
        read_headers(&mut lines, lenient).map_err(|error| match error {
            MimeError::HeaderLine(line) if line.starts_with("--") => MimeError::NoBlankLine,
            other => other,
        })?
    else {
        return Err(MimeError::NoBlankLine);
    };
    let content_type = headers.get("Content-Type").and_then(|it| it.first());
    let content_type = content_type.filter(|it| !it.is_empty()).ok_or(MimeError::NoContentType)?;
    let (media_type, parameters) = parse_media_type(content_type)
        .ok_or_else(|| MimeError::InvalidContentType(content_type.clone()))?;
    if !media_type.starts_with("multipart/") {
        return Err(MimeError::NotMultipart(media_type));
    }
    let boundary = parameters.get("boundary").filter(|it| !it.is_empty());
    let boundary = boundary.ok_or(MimeError::NoBoundary)?;
    let parts = Reader { lines, delimiter: format!("--{boundary}"), crlf: true }.read_all()?;
    if parts.is_empty() { Err(MimeError::NoPart) } else { Ok(parts) }
}

/// Writes an archive: LF line ends only, no carriage return anywhere.
///
/// The boundary is `//`, as in Karpenter. DIFFERENCE: where a part has a line that would read as this boundary,
/// another one is taken, so that the part is not cut in two.
pub fn write(parts: &[Part]) -> String {
    let boundary = free_boundary(parts);
    let mut text =
        format!("MIME-Version: 1.0\nContent-Type: multipart/mixed; boundary=\"{boundary}\"\n\n");
    for part in parts {
        text.push_str(&format!("--{boundary}\n"));
        for (name, values) in &part.headers {
            for value in values {
                text.push_str(&format!("{name}: {value}\n"));
            }
        }
        text.push('\n');
        text.push_str(&part.body);
        text.push('\n');
    }
    text.push_str(&format!("--{boundary}--\n"));
    text.replace('\r', "")
}

fn free_boundary(parts: &[Part]) -> String {
    let bodies: Vec<String> = parts.iter().map(|part| part.body.replace('\r', "")).collect();
    let taken = |boundary: &str| {
        let delimiter = format!("--{boundary}");
        bodies
            .iter()
            .flat_map(|body| body.lines())
            .filter_map(|line| line.strip_prefix(&delimiter))
            .any(
                // A reader takes the line as a boundary by the one character after it, even where the rest then is none.
                |rest| rest.is_empty() || rest.starts_with([' ', '\t', '-']),
            )
    };
    let mut boundary = "//".to_owned();
    let mut n = 0_u32;
    while taken(&boundary) {
        n += 1;
        boundary = format!("//{n}");
    }
    boundary
}

/// The text line by line; every line keeps its end.
struct Lines<'a> {
    rest: &'a str,
}

impl<'a> Lines<'a> {
    fn next(&mut self) -> Option<&'a str> {
        if self.rest.is_empty() {
            return None;
        }
        let end = self.rest.find('\n').map_or(self.rest.len(), |at| at + 1);
        let (line, rest) = self.rest.split_at(end);
        self.rest = rest;
        Some(line)
    }
}

const BLANK: [char; 2] = [' ', '\t'];

fn content(line: &str) -> &str {
    let line = line.strip_suffix('\n').unwrap_or(line);
    line.strip_suffix('\r').unwrap_or(line)
}

enum Headers {
    /// Ended by an empty line.
    Complete(BTreeMap<String, Vec<String>>),
    /// The text ended first.
    Cut,
}

/// The header lines up to the empty one; `canonical` says how a name is kept, `None` for what can be no name.
fn read_headers(
    lines: &mut Lines,
    canonical: impl Fn(&str) -> Option<String>,
) -> Result<Headers, MimeError> {
    let mut headers: BTreeMap<String, Vec<String>> = BTreeMap::new();
    loop {
        let Some(line) = lines.next() else { return Ok(Headers::Cut) };
        let mut logical = content(line).trim_matches(BLANK).to_owned();
        if content(line).is_empty() {
            return Ok(Headers::Complete(headers));
        }
        // A line that begins with white space continues the one before.
        while lines.rest.starts_with(BLANK) {
            if let Some(more) = lines.next() {
                logical.push(' ');
                logical.push_str(content(more).trim_matches(BLANK));
            }
        }
        let malformed = || MimeError::HeaderLine(logical.clone());
        let (name, value) = logical.split_once(':').ok_or_else(malformed)?;
        let name = canonical(name).ok_or_else(malformed)?;
        headers.entry(name).or_default().push(value.trim_start_matches(BLANK).to_owned());
    }
}

/// `content-TYPE` becomes `Content-Type`. `None` when it can be no header name.
fn canonical_name(name: &str) -> Option<String> {
    let is_token = |c: char| c.is_ascii_alphanumeric() || "!#$%&'*+-.^_`|~".contains(c);
    if name.is_empty() || !name.chars().all(|c| is_token(c) || c == ' ') {
        return None;
    }
    if name.contains(' ') {
        return Some(name.to_owned());
    }
    let mut upper = true;
    let canonical = name.chars().map(|c| {
        let c = if upper { c.to_ascii_uppercase() } else { c.to_ascii_lowercase() };
        upper = c == '-';
        c
    });
    Some(canonical.collect())
}

/// `multipart/mixed; boundary="x"` as its type in lower case and its parameters.
fn parse_media_type(text: &str) -> Option<(String, BTreeMap<String, String>)> {
    let (base, mut rest) = match text.find(';') {
        Some(at) => text.split_at(at),
        None => (text, ""),
    };
    let base = base.trim().to_ascii_lowercase();
    let token = |it: &str| !it.is_empty() && it.chars().all(is_token_char);
    let (kind, subtype) = base.split_once('/')?;
    if !token(kind) || !token(subtype) {
        return None;
    }
    let mut parameters = BTreeMap::new();
    loop {
        rest = rest.trim_start();
        if rest.is_empty() {
            return Some((base, parameters));
        }
        rest = rest.strip_prefix(';')?.trim_start();
        if rest.is_empty() {
            return Some((base, parameters));
        }
        let end = rest.find(|c| !is_token_char(c)).unwrap_or(rest.len());
        let (name, after) = rest.split_at(end);
        if name.is_empty() {
            return None;
        }
        let after = after.trim_start().strip_prefix('=')?.trim_start();
        let (value, after) = parameter_value(after)?;
        rest = after;
        if parameters.insert(name.to_ascii_lowercase(), value).is_some() {
            return None;
        }
    }
}

fn is_token_char(c: char) -> bool {
    c.is_ascii_graphic() && !"()<>@,;:\\\"/[]?=".contains(c)
}

/// A token or a quoted string, and what follows it.
fn parameter_value(text: &str) -> Option<(String, &str)> {
    let Some(quoted) = text.strip_prefix('"') else {
        let end = text.find(|c| !is_token_char(c)).unwrap_or(text.len());
        let (token, rest) = text.split_at(end);
        return (!token.is_empty()).then(|| (token.to_owned(), rest));
    };
    let mut value = String::new();
    let mut chars = quoted.char_indices().peekable();
    while let Some((at, c)) = chars.next() {
        match c {
            '"' => return Some((value, quoted.get(at + 1..)?)),
            // A backslash escapes only what is no token character: `C:\dev` stays as it is.
            '\\' => match chars.peek().copied() {
                Some((_, next)) if next.is_ascii_graphic() && !is_token_char(next) => {
                    value.push(next);
                    chars.next();
                }
                _ => value.push(c),
            },
            '\r' | '\n' => return None,
            _ => value.push(c),
        }
    }
    None
}

struct Reader<'a> {
    lines: Lines<'a>,
    /// `--` and the boundary.
    delimiter: String,
    /// Line ends around delimiters are CR LF; the first delimiter line tells.
    crlf: bool,
}

enum Line {
    Delimiter,
    Final,
    Other,
}

impl Reader<'_> {
    fn read_all(mut self) -> Result<Vec<Part>, MimeError> {
        let mut parts = Vec::new();
        let mut separated = false;
        loop {
            let Some(line) = self.lines.next() else {
                return Err(if parts.is_empty() { MimeError::NoPart } else { MimeError::NoEnd });
            };
            match self.classify(line, parts.is_empty()) {
                Line::Final => return Ok(parts),
                Line::Delimiter => {
                    separated = false;
                    // A delimiter with nothing behind it ends the archive as well.
                    let Headers::Complete(headers) = read_headers(&mut self.lines, canonical_name)?
                    else {
                        return Ok(parts);
                    };
                    parts.push(self.read_part(headers)?);
                }
                Line::Other if !line.ends_with('\n') => return Err(MimeError::NoEnd),
                // Text before the first delimiter.
                Line::Other if parts.is_empty() => {}
                // The line end between a body and its delimiter.
                Line::Other if !separated && line == self.line_end() => separated = true,
                Line::Other => return Err(MimeError::Unexpected(content(line).to_owned())),
            }
        }
    }

    const fn line_end(&self) -> &'static str {
        if self.crlf { "\r\n" } else { "\n" }
    }

    fn classify(&mut self, line: &str, first: bool) -> Line {
        let Some(rest) = line.strip_prefix(self.delimiter.as_str()) else { return Line::Other };
        if let Some(tail) = rest.strip_prefix("--") {
            let tail = tail.trim_start_matches(BLANK);
            // Before the first delimiter has told which line ends there are, Go's reader takes this line for text.
            if tail.is_empty() || tail == self.line_end() {
                return Line::Final;
            }
        }
        let tail = rest.trim_start_matches(BLANK);
        if first && tail == "\n" {
            self.crlf = false;
        }
        if tail == self.line_end() { Line::Delimiter } else { Line::Other }
    }

    /// The body up to the line end before the next delimiter.
    fn read_part(&mut self, mut headers: BTreeMap<String, Vec<String>>) -> Result<Part, MimeError> {
        let rest = self.lines.rest;
        let end = if self.is_delimiter(rest) {
            0
        } else {
            let needle = format!("{}{}", self.line_end(), self.delimiter);
            let mut from = 0;
            loop {
                let tail = rest.get(from..).unwrap_or_default();
                let at = from + tail.find(&needle).ok_or(MimeError::NoEnd)?;
                let behind = at + self.line_end().len();
                if self.is_delimiter(rest.get(behind..).unwrap_or_default()) {
                    break at;
                }
                from = behind;
            }
        };
        let (body, rest) = rest.split_at(end);
        self.lines.rest = rest;
        let encoding = headers.get("Content-Transfer-Encoding").and_then(|it| it.first());
        let body = if encoding.is_some_and(|it| it.eq_ignore_ascii_case("quoted-printable")) {
            headers.remove("Content-Transfer-Encoding");
            decode_quoted_printable(body)?
        } else {
            body.to_owned()
        };
        Ok(Part { headers, body })
    }

    /// Whether `text` begins with the delimiter and not just with a longer word that begins alike.
    fn is_delimiter(&self, text: &str) -> bool {
        text.strip_prefix(self.delimiter.as_str()).is_some_and(|rest| {
            rest.is_empty() || rest.starts_with([' ', '\t', '\r', '\n']) || rest.starts_with("--")
        })
    }
}

fn decode_quoted_printable(text: &str) -> Result<String, MimeError> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut lines = Lines { rest: text };
    while let Some(line) = lines.next() {
        let end = line.len() - line.trim_end_matches(['\r', '\n']).len();
        let (body, line_end) = line.split_at(line.len() - end);
        let body = body.trim_end_matches(BLANK);
        let soft = body.ends_with('=');
        let body = body.strip_suffix('=').unwrap_or(body);
        let mut rest = body.as_bytes();
        while let Some((&byte, tail)) = rest.split_first() {
            rest = tail;
            match byte {
                b'=' => {
                    let hex = tail.get(..2).and_then(|it| std::str::from_utf8(it).ok());
                    match hex.and_then(|it| u8::from_str_radix(it, 16).ok()) {
                        Some(decoded) => {
                            bytes.push(decoded);
                            rest = tail.get(2..).unwrap_or_default();
                        }
                        // A stray equals sign stands for itself.
                        None => bytes.push(byte),
                    }
                }
                b'\t' | b'\r' | b' '..=b'~' | 0x80.. => bytes.push(byte),
                _ => return Err(MimeError::QuotedPrintable),
            }
        }
        if !soft {
            bytes.extend_from_slice(line_end.as_bytes());
        }
    }
    String::from_utf8(bytes).map_err(|_| MimeError::QuotedPrintable)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bodies(text: &str) -> Result<Vec<String>, MimeError> {
        parse(text).map(|parts| parts.into_iter().map(|it| it.body).collect())
    }

    fn archive(end: &str) -> String {
        let head = "MIME-Version: 1.0\nContent-Type: multipart/mixed; boundary=\"B\"\n\n";
        format!("{head}--B\nContent-Type: text/plain\n\nbody\n{end}")
    }

    #[test] // aws-nodeclass 10, case 9
    fn the_four_ends() {
        assert_eq!(bodies(&archive("--B--")), Ok(vec!["body".into()]));
        assert_eq!(bodies(&archive("--B--\n")), Ok(vec!["body".into()]));
        assert_eq!(bodies(&archive("--B\n")), Ok(vec!["body".into()]));
        assert_eq!(bodies(&archive("--B")), Err(MimeError::NoEnd));
        assert_eq!(bodies(&archive("")), Err(MimeError::NoEnd));
        assert_eq!(bodies(&archive("--B--\nepilogue\n")), Ok(vec!["body".into()]));
    }

    #[test] // aws-nodeclass 10, cases 6 and 7; B-037 c
    fn what_is_no_archive() {
        for (text, error) in [
            (
                "MIME-Version: 1.0\nContent-Type: text/x-shellscript\n\necho\n",
                MimeError::NotMultipart("text/x-shellscript".into()),
            ),
            (
                "\nMIME-Version: 1.0\nContent-Type: multipart/mixed; boundary=B\n\n--B--\n",
                MimeError::NoContentType,
            ),
            (
                " MIME-Version: 1.0\nContent-Type: multipart/mixed; boundary=B\n\n--B--\n",
                MimeError::HeaderLine(" MIME-Version: 1.0".into()),
            ),
            (
                "MIME-Version: 1.0\nContent-Type: multipart/mixed; boundary=B\n--B\nA: b\n\nx\n--B--\n",
                MimeError::NoBlankLine,
            ),
            ("MIME-Version: 1.0\nContent-Type: multipart/mixed\n\n--B--\n", MimeError::NoBoundary),
            (
                "MIME-Version: 1.0\nContent-Type: multipart/mixed; boundary=B\n\n--B--\n",
                MimeError::NoPart,
            ),
            ("MIME-Version: 1.0\n\n--B--\n", MimeError::NoContentType),
            (
                "MIME-Version: 1.0\nContent-Type: multi part\n\n--B--\n",
                MimeError::InvalidContentType("multi part".into()),
            ),
        ] {
            assert_eq!(parse(text), Err(error), "{text}");
        }
    }

    #[test]
    fn accepted_forms() {
        let either_order = "Content-Type: multipart/alternative; boundary=B\nMIME-Version: 1.0\n\n";
        let text = format!("{either_order}preamble\n--B\nA: b\n\none\n--B  \n\ntwo\n\n--B--\nend");
        assert_eq!(bodies(&text), Ok(vec!["one".into(), "two\n".into()]));
        // B-037 d: the same with CR LF.
        let crlf = text.replace('\n', "\r\n");
        assert_eq!(bodies(&crlf), Ok(vec!["one".into(), "two\r\n".into()]));
        assert!(!write(&parse(&crlf).expect("valid")).contains('\r'));
        // A longer word that begins like the delimiter is part of the body.
        let text = format!("{either_order}--B\nA: b\n\n--Banana\n--B-x\n--B--");
        assert_eq!(bodies(&text), Ok(vec!["--Banana\n--B-x".into()]));
        // An empty body whose delimiter follows at once.
        let text = format!("{either_order}--B\nA: b\n\n--B--");
        assert_eq!(bodies(&text), Ok(vec![String::new()]));
    }

    #[test] // aws-nodeclass 10, case 5
    fn headers_are_kept_in_canonical_form_and_sorted() {
        let text = "Content-Type: multipart/mixed; boundary=\"==X==\"\nMIME-Version: 1.0\n\n--==X==\nContent-Type: text/cloud-config; charset=\"us-ascii\"\nMIME-Version: 1.0\nContent-Transfer-Encoding: 7bit\nContent-Disposition: attachment;\n filename=\"a.txt\"\n\npackages: [a]\n--==X==--\n";
        assert_eq!(
            write(&parse(text).expect("valid")),
            "MIME-Version: 1.0\nContent-Type: multipart/mixed; boundary=\"//\"\n\n--//\nContent-Disposition: attachment; filename=\"a.txt\"\nContent-Transfer-Encoding: 7bit\nContent-Type: text/cloud-config; charset=\"us-ascii\"\nMime-Version: 1.0\n\npackages: [a]\n--//--\n"
        );
    }

    #[test] // aws-nodeclass 10, "Merging": what Go's readers let pass
    fn odd_lines_before_the_first_part() {
        let head = "MIME-Version: 1.0\nContent-Type: multipart/mixed; boundary=B\n";
        for (odd, want) in [
            ("X-\u{dc}: x\n: y\nno token(): z\n\n", Ok(vec!["body".to_owned()])),
            ("\n--B--\n", Ok(vec!["body".to_owned()])),
            ("no colon\n\n", Err(MimeError::HeaderLine("no colon".into()))),
        ] {
            let text = format!("{head}{odd}--B\nA: b\n\nbody\n--B--\n");
            assert_eq!(bodies(&text), want, "{text}");
        }
        // A part's own header is not read as kindly.
        let text = format!("{head}\n--B\nX-\u{dc}: x\n\nbody\n--B--\n");
        assert_eq!(bodies(&text), Err(MimeError::HeaderLine("X-\u{dc}: x".into())));
    }

    #[test]
    fn quoted_printable_is_decoded() {
        let text = "Content-Type: multipart/mixed; boundary=B\n\n--B\nContent-Transfer-Encoding: Quoted-Printable\nContent-Type: text/plain\n\necho =3D=\n1 \n=c3=A9 =zz\n--B--";
        let parts = parse(text).expect("valid");
        assert_eq!(parts[0].body, "echo =1\né =zz");
        assert_eq!(parts[0].header("Content-Transfer-Encoding"), None);
    }

    #[test]
    fn a_part_that_holds_the_boundary_is_not_cut() {
        let parts = [Part::new("text/plain", "a\n--//\nb")];
        let text = write(&parts);
        assert!(text.contains("boundary=\"//1\""), "{text}");
        assert_eq!(parse(&text).expect("valid"), parts);
    }
}
