//! A Lambda Runtime API of our own: hands one function its events, one at a time, and takes its answers.

use std::{
    collections::VecDeque,
    io::{BufRead, BufReader, Read, Write},
    net::{TcpListener, TcpStream},
    process::{Child, Command, Stdio},
    sync::mpsc::{Receiver, Sender, channel},
    thread,
    time::{Duration, Instant, SystemTime},
};

use serde_json::Value;

/// How long a function may take for anything.
const PATIENCE: Duration = Duration::from_secs(60);

/// What a function said to the API.
#[derive(Clone, Debug, PartialEq)]
pub enum Said {
    /// It asked for its first event.
    Ready,
    /// Its answer to an event.
    Answer(Value),
    /// It failed an event, or its own start.
    Error(Value),
}

/// A running function.
#[derive(Debug)]
pub struct Function {
    child: Child,
    said: Receiver<Said>,
    /// From the start of the process to its first request for an event.
    pub cold_start: Duration,
}

impl Function {
    /// Starts a binary with these events waiting for it, and waits until it asks for the first.
    ///
    /// # Panics
    /// When it does not start, or asks for no event.
    pub fn start(binary: &str, events: &[Value], environment: &[(&str, &str)]) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address").to_string();
        let (to, said) = channel();
        let mut waiting: VecDeque<Value> = events.iter().cloned().collect();
        thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                if serve(stream, &mut waiting, &to).is_none() {
                    break;
                }
            }
        });
        let began = Instant::now();
        let child = Command::new(binary)
            .env("AWS_LAMBDA_RUNTIME_API", &address)
            .env("AWS_LAMBDA_FUNCTION_NAME", "function")
            .env("AWS_LAMBDA_FUNCTION_MEMORY_SIZE", "256")
            .env("AWS_LAMBDA_FUNCTION_VERSION", "1")
            .env("AWS_LAMBDA_LOG_GROUP_NAME", "logs")
            .env("AWS_LAMBDA_LOG_STREAM_NAME", "stream")
            .envs(environment.iter().copied())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap_or_else(|error| panic!("{binary}: {error}"));
        let function = Self { child, said, cold_start: Duration::ZERO };
        let first = function.next_said();
        assert_eq!(first, Said::Ready, "{binary}");
        Self { cold_start: began.elapsed(), ..function }
    }

    /// What it says next.
    ///
    /// # Panics
    /// When it says nothing in time.
    pub fn next_said(&self) -> Said {
        self.said.recv_timeout(PATIENCE).expect("the function says something")
    }

    /// Resident memory in KiB.
    pub fn memory(&self) -> Option<u64> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).ok()?;
        let line = status.lines().find(|it| it.starts_with("VmRSS:"))?;
        line.split_whitespace().nth(1)?.parse().ok()
    }

    /// Ends it; the lines that it wrote to standard output, each of which must be JSON.
    ///
    /// # Panics
    /// When a line is no JSON.
    pub fn end(mut self) -> Vec<Value> {
        let _ = self.child.kill();
        let mut text = String::new();
        if let Some(mut out) = self.child.stdout.take() {
            out.read_to_string(&mut text).expect("text");
        }
        let _ = self.child.wait();
        text.lines()
            .map(|line| {
                serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"))
            })
            .collect()
    }
}

/// Serves one connection; `None` when nobody listens to what is said.
fn serve(mut stream: TcpStream, waiting: &mut VecDeque<Value>, to: &Sender<Said>) -> Option<()> {
    let mut reader = BufReader::new(stream.try_clone().ok()?);
    let mut asked = false;
    while let Some((target, body)) = request(&mut reader) {
        let body = serde_json::from_slice(&body).unwrap_or(Value::Null);
        if target.ends_with("/invocation/next") {
            if !asked {
                asked = true;
                to.send(Said::Ready).ok()?;
            }
            let Some(event) = waiting.pop_front() else {
                // Nothing more: Lambda freezes a function here.
                thread::sleep(PATIENCE);
                return None;
            };
            let deadline = SystemTime::now() + PATIENCE;
            let deadline = deadline.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
            let event = event.to_string();
            write!(
                stream,
                "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\
                 Lambda-Runtime-Aws-Request-Id: request-{}\r\n\
                 Lambda-Runtime-Deadline-Ms: {}\r\n\
                 Lambda-Runtime-Invoked-Function-Arn: arn:aws:lambda:us-west-2:123456789012:function:f\r\n\
                 Lambda-Runtime-Trace-Id: Root=1-5e1b4151-0000000000000000;Sampled=0\r\n\
                 Content-Length: {}\r\n\r\n{event}",
                waiting.len(),
                deadline.as_millis(),
                event.len(),
            )
            .ok()?;
            continue;
        }
        to.send(if target.ends_with("/response") { Said::Answer(body) } else { Said::Error(body) })
            .ok()?;
        write!(stream, "HTTP/1.1 202 Accepted\r\nContent-Length: 0\r\n\r\n").ok()?;
    }
    Some(())
}

/// The target and the body of the next request.
fn request(reader: &mut BufReader<TcpStream>) -> Option<(String, Vec<u8>)> {
    let mut line = String::new();
    reader.read_line(&mut line).ok().filter(|it| *it > 0)?;
    let target = line.split_whitespace().nth(1)?.to_owned();
    let (mut length, mut chunked) = (0, false);
    loop {
        let mut header = String::new();
        reader.read_line(&mut header).ok()?;
        let header = header.trim().to_ascii_lowercase();
        if header.is_empty() {
            break;
        }
        if let Some(value) = header.strip_prefix("content-length:") {
            length = value.trim().parse().ok()?;
        }
        chunked |= header.starts_with("transfer-encoding:") && header.contains("chunked");
    }
    let mut body = Vec::new();
    if chunked {
        loop {
            let mut size = String::new();
            reader.read_line(&mut size).ok()?;
            let size = usize::from_str_radix(size.trim(), 16).ok()?;
            let mut chunk = vec![0; size + 2];
            reader.read_exact(&mut chunk).ok()?;
            chunk.truncate(size);
            body.extend(chunk);
            if size == 0 {
                break;
            }
        }
    } else {
        body.resize(length, 0);
        reader.read_exact(&mut body).ok()?;
    }
    Some((target, body))
}
