//! The protocol of the admin socket.
//!
//! A client connects to the daemon's Unix socket and sends one command, a JSON object that ends in NUL or newline
//! (or, as the oldest clients do, a big-endian 32-bit number). The answer is a big-endian 32-bit length and that
//! many bytes, and the connection closes. An error has no place of its own in the answer: it is text in front.

use anyhow::{Context, bail};
use serde::Serialize;
use serde_json::{Map, Value};
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

/// `CEPH_ADMIN_SOCK_VERSION`: the answer to command `0`.
pub const PROTOCOL_VERSION: &str = "2";
const REQUEST_BYTES_MAX: usize = 64 << 10;
const ANSWER_BYTES_MAX: usize = 256 << 20;
/// The time that a client has to send its command.
const PATIENCE: Duration = Duration::from_secs(10);

/// A command as it came in.
#[derive(Clone, Debug, Default)]
pub struct Request {
    pub prefix: String,
    pub args: Map<String, Value>,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Reply {
    Json(Value),
    Text(String),
    /// A positive errno and what to say.
    Error(i32, String),
}

impl Request {
    pub fn parse(text: &str) -> Result<Request, Reply> {
        let invalid = || Reply::Error(libc::EINVAL, "invalid json".into());
        let Ok(Value::Object(mut args)) = serde_json::from_str(text) else { return Err(invalid()) };
        let Some(Value::String(prefix)) = args.remove("prefix") else { return Err(invalid()) };
        Ok(Request { prefix, args })
    }

    /// An argument as text; an array's words with blanks between them.
    pub fn arg(&self, name: &str) -> Option<String> {
        match self.args.get(name)? {
            Value::String(text) => Some(text.clone()),
            Value::Array(words) => Some(words.iter().filter_map(Value::as_str).collect::<Vec<_>>().join(" ")),
            other => Some(other.to_string()),
        }
    }
}

impl Reply {
    pub fn render(&self, format: &str) -> String {
        match self {
            Reply::Json(value) if format == "json" => format!("{value}\n"),
            Reply::Json(value) => format!("{}\n", pretty(value)),
            Reply::Text(text) => text.clone(),
            Reply::Error(errno, text) => {
                let name = std::io::Error::from_raw_os_error(*errno).to_string();
                let name = name.split(" (os error").next().unwrap_or_default().to_owned();
                format!("ERROR: ({errno}) {name}\n{text}\n")
            }
        }
    }
}

/// JSON as Ceph's `json-pretty` lays it out: four blanks a level.
pub fn pretty(value: &Value) -> String {
    let mut out = Vec::new();
    let formatter = serde_json::ser::PrettyFormatter::with_indent(b"    ");
    let mut serializer = serde_json::Serializer::with_formatter(&mut out, formatter);
    value.serialize(&mut serializer).expect("a JSON value serialises into memory");
    String::from_utf8(out).expect("JSON is UTF-8")
}

/// Reads one command. `None` when the client said nothing sensible in time.
pub async fn read_request(stream: &mut tokio::net::UnixStream) -> Option<String> {
    let read = async {
        let mut request = Vec::new();
        loop {
            let byte = stream.read_u8().await.ok()?;
            if request.first() == Some(&0) || (request.is_empty() && byte == 0) {
                request.push(byte);
                if request.len() == 4 {
                    let prefix = match request[3] {
                        0 => "0",
                        1 => "perfcounters_dump",
                        2 => "perfcounters_schema",
                        _ => "unknown",
                    };
                    return Some(format!("{{\"prefix\": \"{prefix}\"}}"));
                }
                continue;
            }
            if byte == 0 || byte == b'\n' {
                return String::from_utf8(request).ok();
            }
            request.push(byte);
            if request.len() > REQUEST_BYTES_MAX {
                return None;
            }
        }
    };
    tokio::time::timeout(PATIENCE, read).await.ok()?
}

pub async fn write_answer(stream: &mut tokio::net::UnixStream, answer: &str) -> std::io::Result<()> {
    let len = u32::try_from(answer.len()).map_err(|_| std::io::ErrorKind::FileTooLarge)?;
    stream.write_all(&len.to_be_bytes()).await?;
    stream.write_all(answer.as_bytes()).await?;
    stream.shutdown().await
}

/// The client's side, for `shoal up` and `shoal status`: one command without arguments, its raw answer.
pub fn ask(socket: &Path, prefix: &str) -> anyhow::Result<String> {
    let mut stream =
        UnixStream::connect(socket).with_context(|| format!("cannot connect to {}", socket.display()))?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let request = serde_json::json!({ "prefix": prefix, "format": "json" });
    stream.write_all(format!("{request}\0").as_bytes())?;
    let mut len = [0; 4];
    stream.read_exact(&mut len)?;
    let len = u32::from_be_bytes(len) as usize;
    if len > ANSWER_BYTES_MAX {
        bail!("{} answers with {len} bytes", socket.display());
    }
    let mut answer = String::new();
    stream.take(len as u64).read_to_string(&mut answer)?;
    anyhow::ensure!(answer.len() == len, "{} stopped in the middle of an answer", socket.display());
    Ok(answer)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn arguments_come_as_words_or_lists() {
        let request =
            Request::parse(r#"{"prefix": "config set", "var": "log_level", "val": ["a", "b"]}"#).unwrap();
        assert_eq!(request.prefix, "config set");
        assert_eq!(request.arg("var").as_deref(), Some("log_level"));
        assert_eq!(request.arg("val").as_deref(), Some("a b"));
        assert!(Request::parse("[]").is_err());
        assert!(Request::parse("{\"prefix\": 3}").is_err());
    }

    #[test]
    fn answers_look_like_cephs() {
        assert_eq!(Reply::Json(json!({"a": [1]})).render(""), "{\n    \"a\": [\n        1\n    ]\n}\n");
        assert_eq!(Reply::Json(json!({"a": 1})).render("json"), "{\"a\":1}\n");
        assert_eq!(
            Reply::Error(22, "unknown command prefix x".into()).render(""),
            "ERROR: (22) Invalid argument\nunknown command prefix x\n"
        );
    }
}
